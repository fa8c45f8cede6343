"""Kernels as people write them: plain NumPy functions with loops, branches and assignments, and inputs to try them with.

The functions know nothing of pullback. ``ALL`` in ``tests/test_kernels.py`` gathers them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Inputs = Callable[[np.random.Generator, int], tuple[Any, ...]]


@dataclass(frozen=True)
class Kernel:
    """A function, and ``inputs(rng, size)`` that makes arguments for it.

    ``sizes``: one that is compiled in (at most 8) and one that is a symbol. ``rtol``: how well the gradient agrees with central
    differences; a looser one has its reason in ``why``.
    """

    function: Callable[..., Any]
    inputs: Inputs
    sizes: tuple[int, ...] = (3, 10)
    rtol: float = 1e-6
    why: str = ""

    @property
    def name(self) -> str:
        return self.function.__name__


def positive_definite(rng: np.random.Generator, n: int) -> np.ndarray:
    a = rng.normal(size=(n, n))
    return a @ a.T / n + 2 * np.eye(n)


def dominant(rng: np.random.Generator, n: int) -> np.ndarray:
    """A matrix whose diagonal outweighs its rows: no pivoting needed, and sweeps converge."""
    a = rng.uniform(-1, 1, size=(n, n))
    return a + np.diag(np.sum(np.abs(a), axis=1) + 0.5)
