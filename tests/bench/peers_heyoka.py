"""heyoka: expressions and their derivatives as functions compiled by LLVM; arrays by its batched evaluation."""

from __future__ import annotations

import itertools
from typing import Any

import heyoka as hy
import numpy as np

from tests.bench import programs
from tests.bench.frame import Calls, Task


class Words:
    """NumPy's names."""

    sin, cos, tanh, sqrt, exp = hy.sin, hy.cos, hy.tanh, hy.sqrt, hy.exp

    @staticmethod
    def array(elements: Any) -> Any:
        return list(elements)


def prepare(task: Task) -> Calls:
    name = task.function.__name__
    if name == "elementwise":
        return elementwise(task)
    count = {"sine": 2, "van_der_pol": 3}.get(name) or len(task.args[0])
    x = list(hy.make_vars(*(f"x{k:06d}" for k in range(count))))
    outputs = written(task, x)
    target = outputs[0] if task.seed is None else hy.sum([float(s) * o for s, o in zip(task.seed, outputs, strict=True)])
    table = hy.diff_tensors([target], diff_args=x, diff_order=1)
    compact = count >= 30 or name in ("van_der_pol", "dag")
    value = hy.cfunc(outputs, vars=x, compact_mode=compact)
    both = hy.cfunc([*outputs, *table.gradient], vars=x, compact_mode=compact)
    point = np.concatenate([np.ravel(a) for a in task.args]).astype(float)
    out, more, n = np.zeros(len(outputs)), np.zeros(len(outputs) + count), len(outputs)

    gradients: Any = (more[n:],)  # views, filled by each call
    if name == "sine":
        gradients = more[1:2].reshape(()), more[2:].reshape(())
    elif name == "van_der_pol":
        gradients = more[n : n + 2], more[n + 2 :].reshape(())
    outcome = (more[:1].reshape(()) if task.seed is None else more[:n]), gradients

    def gradient() -> Any:
        both(point, outputs=more)
        return outcome

    return Calls(lambda: value(point, outputs=out), gradient)


def written(task: Task, x: list[Any]) -> list[Any]:
    name = task.function.__name__
    if name == "sine":
        return [x[0] * x[1] + hy.sin(x[0])]
    if name == "rosenbrock":
        return [hy.sum([100.0 * (b - a * a) ** 2.0 + (1.0 - a) ** 2.0 for a, b in itertools.pairwise(x)])]
    if name == "van_der_pol":
        return list(programs.retold(task.function, np=Words)(x[:2], x[2]))
    if name == "bodies":  # a sum, as heyoka wants it: a chain of subtractions takes it minutes
        masses = task.function.__closure__[0].cell_contents  # type: ignore[attr-defined]  # a plain function
        pairs = itertools.combinations(range(len(masses)), 2)
        return [hy.sum([-masses[i] * masses[j] / distance(x, i, j) for i, j in pairs])]
    return [programs.retold(task.function, np=Words)(x)]


def distance(x: list[Any], i: int, j: int) -> Any:
    dx, dy, dz = (x[3 * i + k] - x[3 * j + k] for k in range(3))
    return hy.sqrt(dx * dx + dy * dy + dz * dz + 0.01)


def elementwise(task: Task) -> Calls:
    """The terms and their partial derivatives at all points; NumPy adds up."""
    x, a, b = hy.make_vars("x", "a", "b")
    term = hy.tanh(a * x + b) ** 2.0 * hy.exp(-x * x) / (1.0 + x * x)
    table = hy.diff_tensors([term], diff_args=[x, a, b], diff_order=1)
    value, both = hy.cfunc([term], vars=[x, a, b]), hy.cfunc([term, *table.gradient], vars=[x, a, b])
    points, slope, shift = task.args
    inputs = np.stack([points, np.full_like(points, slope), np.full_like(points, shift)])
    out, more = np.zeros((1, len(points))), np.zeros((4, len(points)))

    def gradient() -> Any:
        both(inputs, outputs=more)
        return np.sum(more[0]), (more[1], np.sum(more[2]), np.sum(more[3]))

    return Calls(lambda: np.sum(value(inputs, outputs=out)), gradient)
