"""One function written as a NumPy function and as an expression file gives the same IR text."""

from __future__ import annotations

import dataclasses
import linecache
from typing import Any

import numpy as np
import pytest

from pullback.frontends.expression import ExpressionFrontend
from pullback.frontends.python import PythonFrontend
from pullback.frontends.traced import Spec

# inputs, then the body that both are made of
BODIES = {
    "scalar": ("x: f64\ny: f64", "return x**2*np.sin(y) + 3*x/y - x**-1.5"),
    "poisson": ("X: f64[n, p]\nb: f64[p]\ny: f64[n]\nphi: f64", "mu = np.exp(X @ b)\nreturn np.sum(y*np.log(mu) - mu)/phi"),
    "logistic": ("w: f64[p]\nX: f64[n, p]\ny: f64[n]", "return np.mean(np.log1p(np.exp(-y*(X @ w))))"),
    "shapes": ("x: f64[n, m]", "y = x.T.reshape(-1)\nreturn y[1:] - y[:-1], x[::-1, None], x.shape[0]*x.sum(axis=0)"),
    "choice": ("x: f64[n]", "return np.where(x > 0, np.sqrt(x), 0.0), np.maximum(x, 0), np.clip(x, -1, 1)"),
    "reductions": ("x: f64[n, 3]", "return {'s': x.std(axis=0, ddof=1), 'm': np.max(x), 'n': np.linalg.norm(x, axis=1)}"),
    "integers": ("k: i64[n]\nx: f64", "return k // 2 + k % 3, k*x, k / 2"),
    "single": ("x: f32[n]\ns: f64", "return 2*x + 1.5, x*s, np.exp(x)"),
    "creation": ("x: f64[4]", "return np.array([x[0], 1.0, x[1]*x[2]]), np.zeros(3), np.eye(2), np.arange(4)*x"),
    "updates": ("x: f64[n]", "y = np.zeros(x.shape[0])\ny[0] = x[1]\ny[1:] += 2*x[:-1]\ny *= x\nreturn y"),
    "constants": ("x: f64", "return x*np.pi + np.e - 1/3, np.sqrt(2)*x, 2**0.5*x"),
    "products": ("a: f64[n, m]\nb: f64[m, k]", "return a @ b, np.einsum('ij,jk->ki', a, b), np.outer(a[0], b[0])"),
    "gather": ("x: f64[n]\ni: i64[k]", "return x[i], np.take(x, i)*2, np.cumsum(x), np.sort(x)"),
}  # fmt: skip


def numpy_function(name: str, inputs: str, body: str) -> Any:
    names = [line.split(":")[0] for line in inputs.splitlines()]
    text = f"def {name}({', '.join(names)}):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    file = f"<numpy {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"np": np}
    exec(compile(text, file, "exec"), space)
    return space[name]


@pytest.mark.parametrize("name", BODIES)
def test_same_ir(name: str) -> None:
    inputs, body = BODIES[name]
    file = ExpressionFrontend.parse(f"{inputs}\n{body}\n", f"{name}.expr")
    specs = [Spec(p.declared) for p in file.parameters]
    of_file, of_numpy = file.trace(specs), PythonFrontend(numpy_function(name, inputs, body)).trace(specs)
    # a file names every assignment, a function only what pb.name names; names are a side table
    assert str(dataclasses.replace(of_file.func, names=())) == str(of_numpy.func)
    assert of_file.output == of_numpy.output
    assert [str(g) for g in of_file.guards] == [str(g) for g in of_numpy.guards]


@pytest.mark.parametrize("name", BODIES)
def test_short_names_mean_the_same(name: str) -> None:
    inputs, body = BODIES[name]
    long = ExpressionFrontend.parse(f"{inputs}\n{body}\n", f"{name}.expr")
    short = ExpressionFrontend.parse(f"{inputs}\n{body.replace('np.linalg.', 'linalg.').replace('np.', '')}\n", f"{name}.expr")
    specs = [Spec(p.declared) for p in long.parameters]
    assert str(long.trace(specs).func) == str(short.trace(specs).func)
