"""SymEngine: symbolic derivatives, common subexpressions found, compiled by LLVM."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import symengine as se

from tests.bench import programs
from tests.bench.frame import Calls, Task


class Words:
    """NumPy's names."""

    sin, cos, sqrt, tanh = se.sin, se.cos, se.sqrt, se.tanh


def prepare(task: Task) -> Calls:
    name = task.function.__name__
    if name == "sine":
        x = se.symbols("x y")
        expression = x[0] * x[1] + se.sin(x[0])
    elif name == "rosenbrock":
        x = se.symbols(f"x:{len(task.args[0])}")
        expression = se.Add(*(100.0 * (b - a**2) ** 2 + (1.0 - a) ** 2 for a, b in itertools.pairwise(x)))
    else:
        x = se.symbols(f"x:{len(task.args[0])}")
        expression = programs.retold(task.function, np=Words)(x)
    gradients = [se.diff(expression, v) for v in x]
    value = se.Lambdify(x, [expression], backend="llvm", cse=True)
    both = se.Lambdify(x, [expression, *gradients], backend="llvm", cse=True)
    point = np.array(task.args, float).ravel()
    out, more = np.zeros(1), np.zeros(1 + len(x))

    gradients = (more[1:],) if len(task.wrt) == 1 else tuple(more[k : k + 1].reshape(()) for k in range(1, len(more)))
    outcome = more[:1].reshape(()), gradients  # views, filled by each call

    def gradient() -> Any:
        both(point, out=more)
        return outcome

    return Calls(lambda: value(point, out=out), gradient)
