"""A quasi-Poisson fit of school absences by SciPy, with exact gradients. The data are R's: see data/README.md."""

import csv
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

import pullback as pb

HERE = Path(__file__).parent
quasi = pb.load(HERE / "quasi_poisson.expr")


@pb.compile
def loss(b, X, y):
    return -quasi(X, b, y)  # a compiled function within another


with open(HERE / "data" / "quine.csv", newline="") as file:
    rows = list(csv.DictReader(file))

y = np.array([float(row["Days"]) for row in rows])
columns = {"(Intercept)": np.ones(len(rows))}
for factor in ("Eth", "Sex", "Age", "Lrn"):  # treatment contrasts, the first level as the reference
    for level in sorted({row[factor] for row in rows})[1:]:
        columns[factor + level] = np.array([float(row[factor] == level) for row in rows])
X = np.stack(list(columns.values()), axis=1)

start = np.zeros(X.shape[1])
start[0] = np.log(y.mean())
fit = minimize(pb.value_and_grad(loss, wrt="b"), start, args=(X, y), jac=True, method="BFGS", options={"gtol": 1e-8})
b = fit.x

mu = np.exp(X @ b)
phi = np.sum((y - mu) ** 2 / mu) / (len(y) - len(b))  # the dispersion, which widens the standard errors
information = loss.hessian(b, X, y, wrt="b")
errors = np.sqrt(phi * np.diag(np.linalg.inv(information)))
for name, estimate, error in zip(columns, b, errors, strict=True):
    print(f"{name:12s} {estimate:9.5f}  (standard error {error:.5f})")
print(f"dispersion {phi:.4f}")

# the same by iteratively reweighted least squares, which needs no gradient
c = start
for _ in range(50):
    m = np.exp(X @ c)
    c = np.linalg.solve(X.T @ (m[:, None] * X), X.T @ (m * (X @ c) + y - m))
assert np.allclose(b, c, rtol=0, atol=1e-7)
assert np.max(np.abs(loss.grad(b, X, y, wrt="b"))) < 1e-4  # the score vanishes; its terms are of the order of 1000
assert np.allclose(information, X.T @ (mu[:, None] * X), rtol=1e-12)
