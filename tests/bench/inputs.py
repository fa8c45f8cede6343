"""What the tasks are measured on."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np

Args = tuple[Any, ...]
PEOPLE = 10_000  # rows of the regressions


def generator() -> np.random.Generator:
    return np.random.default_rng(1234)


def rosenbrock(n: int) -> Args:
    return (generator().uniform(-1.2, 1.2, n),)


def logistic(rows: int = PEOPLE) -> Args:
    rng = generator()
    X, w = rng.normal(size=(rows, 50)), 0.1 * rng.normal(size=50)
    y = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-X @ rng.normal(size=50))), 1.0, -1.0)
    return w, X, y, 1e-2


def quasi_poisson(rows: int = PEOPLE) -> Args:
    rng = generator()
    X, b = 0.2 * rng.normal(size=(rows, 50)), 0.1 * rng.normal(size=50)
    return b, X, rng.poisson(np.exp(X @ (0.1 * rng.normal(size=50)))).astype(float)


def elementwise(n: int = 1_000_000) -> Args:
    return generator().normal(size=n), 0.7, -0.2


@functools.cache
def formula(nodes: int) -> tuple[tuple[tuple[str, int, int], ...], tuple[int, ...]]:
    """Steps (operation, operand, operand or -1) over ten numbers, and the results that no step uses, which are added up."""
    rng = random.Random(7)
    steps: list[tuple[str, int, int]] = []
    used: set[int] = set()
    body = int(nodes * 0.66)
    for k in range(10, 10 + body):
        op = rng.choice(["add", "sub", "mul", "mul", "sin", "cos", "tanh"])
        a, b = rng.randrange(k), rng.randrange(k)
        if op in ("sin", "cos", "tanh"):
            b = -1
        used.update((a, b))
        steps.append((op, a, b))
    return tuple(steps), tuple(j for j in range(10, 10 + body) if j not in used)


def network(kind: Any, batch: int = 128, wide: int = 784) -> Args:
    rng = generator()
    X, labels = rng.normal(size=(batch, wide)), rng.integers(0, 10, batch)
    first = rng.normal(size=(wide, 256)) / 28, 0.01 * rng.normal(size=256)
    second = rng.normal(size=(256, 10)) / 16, 0.01 * rng.normal(size=10)
    return tuple(v.astype(kind) for v in (*first, *second, X, np.eye(10)[labels]))


def gaussian_process(n: int = 200) -> Args:
    rng = generator()
    X = rng.uniform(-2, 2, (n, 3))
    y = np.sin(X).sum(1) + 0.1 * rng.normal(size=n)
    D = np.stack([(X[:, None, k] - X[None, :, k]) ** 2 for k in range(3)])
    return np.array([0.1, 0.2, -0.1, 0.3, -2.0]), D, y


def mixture(d: int, K: int, n: int) -> Args:
    rng = generator()
    alpha, mu, icf = rng.normal(size=K), rng.normal(size=(K, d)), 0.5 * rng.normal(size=(K, d * (d + 1) // 2))
    return alpha, mu, icf, rng.normal(size=(n, d)), 1.0, 0


def memory_network(layers: int, steps: int, b: int = 14) -> Args:
    rng = generator()
    main, extra = rng.normal(size=(2 * layers, 4 * b)), rng.normal(size=(3, b))
    seq = (rng.uniform(size=(steps, b)) < 0.2).astype(float)
    return 0.5 * main, 0.5 * extra, rng.normal(size=(2 * layers, b)), seq


# -- inputs whose results are known to many digits ------------------------------------------------------------------------
def small_mixture(d: int, K: int, n: int) -> Args:
    k, j, i, p = np.arange(K)[:, None], np.arange(d), np.arange(n)[:, None], np.arange(d * (d + 1) // 2)
    alpha, mu, icf = 0.3 * np.sin(1 + k[:, 0]), 0.5 * np.cos(1 + 2 * k + 3 * j), 0.2 * np.sin(1 + 5 * k + 7 * p)
    return alpha, mu, icf, np.sin(2 + 3 * i + 5 * j), 1.5, 2


def small_memory_network() -> Args:
    layers, steps, b = 2, 4, 3
    r, j = np.arange(2 * layers)[:, None], np.arange(b)
    main, extra = 0.5 * np.sin(1 + r + 2 * np.arange(4 * b)), 0.5 * np.cos(1 + 3 * np.arange(3)[:, None] + j)
    return main, extra, 0.25 * np.sin(2 + r + 3 * j), (np.arange(steps)[:, None] ** 2 + j) % 2 * 1.0
