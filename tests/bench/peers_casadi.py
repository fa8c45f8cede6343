"""CasADi: the formulas over its scalars (SX), those of arrays over its matrices (MX); by its virtual machine, and as C that
it generates. Called through its buffers, the quickest way that it offers from Python."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from tests.bench import native, programs
from tests.bench.frame import Calls, Task


def sine(task: Task) -> Any:
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    return [x, y], x * y + ca.sin(x), [x, y]


def rosenbrock(task: Task) -> Any:
    x = ca.SX.sym("x", len(task.args[0]))
    return [x], ca.sum1(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2), [x]


def elementwise(task: Task) -> Any:
    x, a, b = ca.MX.sym("x", len(task.args[0])), ca.MX.sym("a"), ca.MX.sym("b")
    return [x, a, b], ca.sum1(ca.tanh(a * x + b) ** 2 * ca.exp(-x * x) / (1.0 + x * x)), [x, a, b]


def logistic(task: Task) -> Any:
    rows, columns = task.args[1].shape
    w, X, y, ridge = ca.MX.sym("w", columns), ca.MX.sym("X", columns, rows), ca.MX.sym("y", rows), ca.MX.sym("ridge")
    terms = ca.log1p(ca.exp(-y * ca.mtimes(X.T, w)))  # CasADi stores columns: X is passed transposed, as it lies in memory
    return [w, X, y, ridge], ca.sum1(terms) / rows + 0.5 * ridge * ca.dot(w, w), [w]


def quasi_poisson(task: Task) -> Any:
    rows, columns = task.args[1].shape
    b, X, y = ca.MX.sym("b", columns), ca.MX.sym("X", columns, rows), ca.MX.sym("y", rows)
    mu = ca.exp(ca.mtimes(X.T, b))
    return [b, X, y], ca.sum1(y * ca.log(mu) - mu), [b]


def van_der_pol(task: Task) -> Any:
    """One step is a function, 1000 of them a fold."""
    s, mu, h = ca.SX.sym("s", 2), ca.SX.sym("mu"), 0.01

    def slope(s: Any) -> Any:
        return ca.vertcat(s[1], mu * (1.0 - s[0] * s[0]) * s[1] - s[0])

    k1 = slope(s)
    k2 = slope(s + 0.5 * h * k1)
    k3 = slope(s + 0.5 * h * k2)
    k4 = slope(s + h * k3)
    step = ca.Function("step", [s, mu], [s + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)])
    start, parameter = ca.MX.sym("s", 2), ca.MX.sym("mu")
    return [start, parameter], step.fold(1000)(start, parameter), [start, parameter]


def of_scalars(task: Task) -> Any:
    x = ca.SX.sym("x", len(task.args[0]))
    return [x], programs.retold(task.function, np=ca)(ca.vertsplit(x)), [x]


BUILD: dict[str, Callable[[Task], Any]] = {
    **{f.__name__: f for f in (sine, rosenbrock, elementwise, logistic, quasi_poisson, van_der_pol)},
    **dict.fromkeys(("dag", "arm", "bodies"), of_scalars),
}


def built(task: Task) -> tuple[Any, Any]:
    inputs, value, wrt = BUILD[task.function.__name__](task)
    if task.seed is None:
        gradients = [ca.gradient(value, v) for v in wrt]
    else:
        gradients = [ca.jtimes(value, v, ca.DM(task.seed), True) for v in wrt]
    return ca.Function("value", inputs, [value]), ca.Function("both", inputs, [value, *gradients])


def prepare(task: Task) -> Calls:
    return bound(task, *built(task))


def prepare_c(task: Task) -> Calls | None:
    compiler = native.compiler()
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source = ca.CodeGenerator("generated.c")
        for function in built(task):
            source.add(function)
        source.generate(folder + "/")
        target = str(Path(folder) / "generated.so")
        subprocess.run([compiler, *native.FLAGS, folder + "/generated.c", "-o", target, "-lm"], check=True)
        ctypes.CDLL(target)  # stays loaded when the file has gone
        return bound(task, ca.external("value", target), ca.external("both", target))


def bound(task: Task, *functions: Any) -> Calls:
    args = [np.ascontiguousarray(a, float) for a in task.args]
    runs = []
    for function in functions:
        buffer, trigger = function.buffer()
        results = [np.zeros(function.sparsity_out(k).nnz()) for k in range(function.n_out())]
        for k, a in enumerate(args):
            buffer.set_arg(k, memoryview(a))
        for k, r in enumerate(results):
            buffer.set_res(k, memoryview(r))
        runs.append((trigger, results, buffer))
    (first, _, _), (second, results, _) = runs
    shapes = [np.shape(task.args[k]) for k in task.wrt]
    value = results[0] if task.seed is not None else results[0].reshape(())
    outcome = value, [r.reshape(s) for r, s in zip(results[1:], shapes, strict=True)]  # views, filled by each call

    def gradient() -> Any:
        second()
        return outcome

    gradient.keep = runs, args, functions  # type: ignore[attr-defined]  # they must live as long as the pointers
    return Calls(lambda: first(), gradient)
