"""Kernels as people write them, unmodified: values as plain Python computes them, gradients as forward mode and central
differences give them, for sizes that are compiled in and sizes that are symbols."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.kernels import Kernel, grids, linear_algebra, money, motion, roots, series, tables

ALL: tuple[Kernel, ...] = tuple(
    kernel for module in (linear_algebra, grids, motion, roots, tables, series, money) for kernel in module.KERNELS
)
CASES = [pytest.param(kernel, size, id=f"{kernel.name}-{size}") for kernel in ALL for size in kernel.sizes]
STEPS = (1e-5, 3e-6)  # of central differences


def _leaves(output: Any) -> list[np.ndarray]:
    return [np.asarray(leaf, float) for leaf in (output if isinstance(output, tuple) else (output,))]


def _like(output: Any, leaves: Sequence[np.ndarray]) -> Any:
    """Numbers in the structure of an output."""
    return tuple(leaves) if isinstance(output, tuple) else leaves[0]


def _floating(args: Sequence[Any]) -> list[int]:
    return [k for k, arg in enumerate(args) if np.asarray(arg).dtype.kind == "f"]


def _moved(args: Sequence[Any], directions: dict[int, Any], step: float) -> list[Any]:
    """Arguments a step further; a number stays a Python number."""
    return [
        arg if k not in directions else arg + step * directions[k] if np.ndim(arg) else float(arg + step * directions[k])
        for k, arg in enumerate(args)
    ]


def _difference(kernel: Kernel, args: Sequence[Any], directions: dict[int, Any], seeds: Sequence[np.ndarray]) -> float:
    """The derivative of sum(seed * output) along a direction, extrapolated from two steps."""

    def total(step: float) -> float:
        moved = _leaves(kernel.function(*_moved(args, directions, step)))
        return float(sum(np.sum(s * leaf) for s, leaf in zip(seeds, moved, strict=True)))

    far, near = ((total(h) - total(-h)) / (2 * h) for h in STEPS)
    ratio = (STEPS[0] / STEPS[1]) ** 2
    return (ratio * near - far) / (ratio - 1)


@pytest.mark.parametrize("kernel, size", CASES)
def test_kernel(kernel: Kernel, size: int) -> None:
    rng = np.random.default_rng(5)
    args = kernel.inputs(rng, size)
    before = [np.array(arg) for arg in args]
    expected = kernel.function(*args)
    leaves = _leaves(expected)
    seeds = [np.asarray(rng.normal(size=leaf.shape) - 0.4) for leaf in leaves]
    floating = _floating(args)
    directions = {k: rng.normal(size=np.shape(args[k])) for k in floating}

    compiled = pb.compile(kernel.function)
    value, gradients = compiled.vjp(*args, seed=_like(expected, seeds), wrt=tuple(floating))
    for got, leaf in zip(_leaves(value), leaves, strict=True):
        np.testing.assert_allclose(got, leaf, rtol=1e-9, atol=1e-11)
    assert all(np.all(np.isfinite(g)) for g in gradients)
    assert all(np.array_equal(arg, kept) for arg, kept in zip(args, before, strict=True))

    back = sum(float(np.sum(g * directions[k])) for k, g in zip(floating, gradients, strict=True))
    size_of_sum = sum(float(np.sum(np.abs(g * directions[k]))) for k, g in zip(floating, gradients, strict=True))
    names = list(inspect.signature(kernel.function).parameters)
    _, tangent = compiled.jvp(*args, tangents={names[k]: direction for k, direction in directions.items()})
    ahead = sum(float(np.sum(s * t)) for s, t in zip(seeds, _leaves(tangent), strict=True))
    assert back == pytest.approx(ahead, rel=1e-9, abs=1e-9 * size_of_sum)
    assert back == pytest.approx(_difference(kernel, args, directions, seeds), rel=kernel.rtol, abs=kernel.rtol * size_of_sum)


# -- what else a compiled function offers, on some of them -------------------------------------------------------------------
def _named(*names: str) -> list[Any]:
    return [pytest.param(kernel, id=kernel.name) for kernel in ALL if kernel.name in names]


@pytest.mark.parametrize(
    "kernel", _named("gauss_seidel", "newton", "insertion_sort", "kalman_matrices", "heat_1d", "lorenz_rk4")
)
def test_options_and_residuals_change_nothing(kernel: Kernel) -> None:
    """Checkpoints, limits that are not reached, and the reverse pass apart from the forward one, twice."""
    rng = np.random.default_rng(6)
    args = kernel.inputs(rng, kernel.sizes[-1])
    wrt = tuple(_floating(args))
    expected = kernel.function(*args)
    seed = _like(expected, [np.asarray(rng.normal(size=leaf.shape) - 0.4) for leaf in _leaves(expected)])
    _, gradients = pb.compile(kernel.function).vjp(*args, seed=seed, wrt=wrt)
    for options in ({"checkpoint": 7}, {"checkpoint": "binomial"}, {"max_trips": 5000}):
        _, found = pb.compile(kernel.function, **options).vjp(*args, seed=seed, wrt=wrt)
        for got, gradient in zip(found, gradients, strict=True):
            np.testing.assert_allclose(got, gradient, rtol=1e-9, atol=1e-11)
    _, pull = pb.compile(kernel.function).pullback(*args, wrt=wrt)
    for _ in range(2):
        for got, gradient in zip(pull(seed), gradients, strict=True):
            np.testing.assert_allclose(got, gradient, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "kernel", _named("newton", "kalman", "garch", "rk45_adaptive", "soft_edit_distance", "escape_time", "horner")
)
def test_second_derivatives(kernel: Kernel) -> None:
    """The gradient's reverse mode against its forward mode and central differences."""
    rng = np.random.default_rng(7)
    args = kernel.inputs(rng, kernel.sizes[0])
    gradient = pb.grad(kernel.function, wrt=0)
    direction = rng.normal(size=np.shape(args[0]))
    cotangent = rng.normal(size=np.shape(args[0]))
    name = next(iter(inspect.signature(kernel.function).parameters))
    _, ahead = gradient.jvp(*args, tangents={name: direction})
    _, back = gradient.vjp(*args, seed=cotangent, wrt=0)
    assert np.sum(cotangent * ahead) == pytest.approx(np.sum(back * direction), rel=1e-8, abs=1e-10)
    step = 1e-5
    ends = [gradient(*_moved(args, {0: direction}, s * step)) for s in (1, -1)]
    np.testing.assert_allclose(ahead, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)
