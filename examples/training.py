"""A training loop: logistic regression by gradient descent on a parameter."""

import numpy as np

import pullback as pb


@pb.compile
def loss(w, X, y):
    return np.mean(np.logaddexp(0.0, -y * (X @ w)))


rng = np.random.default_rng(7)
X = rng.normal(size=(400, 3))
truth = np.array([1.5, -2.0, 0.5])
y = np.where(X @ truth + rng.logistic(size=400) > 0, 1.0, -1.0)

w = pb.variable(np.zeros(3))
losses = []
for step in range(200):
    w.zero_grad()
    output = loss(w, X, y)
    output.backward()
    w.value = w.value - 1.0 * w.grad
    losses.append(float(output.value))
    if step % 50 == 0:
        print(f"step {step:3d}: loss {losses[-1]:.6f}")

print("w =", w.value)
assert losses[-1] < 0.65 * losses[0]
assert np.max(np.abs(loss.grad(w.value, X, y, wrt="w"))) < 1e-4  # arrived
assert np.max(np.abs(w.value - truth)) < 0.5  # as far as 400 points tell
