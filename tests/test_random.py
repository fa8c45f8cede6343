"""Generated programs: the interpreter against compiled code, the adjoint against forward mode and differences.

``python -m tests.sweep COUNT [SEED]`` runs the same for as long as one likes. A failing program is printed as IR, shrunk.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pullback.ir.core import Func
from pullback.ir.interp import run
from pullback.ir.parse import parse_func
from pullback.ir.text import print_func
from pullback.ir.verify import verify
from pullback.llvm import compile_kernel
from pullback.passes.pipeline import differentiate, optimize, push_forward
from pullback.passes.split import split
from tests.programs import random_program, shrink

Arrays = list[np.ndarray]


def close(got: object, expected: object, rtol: float = 1e-9, atol: float = 1e-11) -> bool:
    scale = 1 + np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
    return np.allclose(got, expected, rtol=rtol, atol=atol * scale, equal_nan=True)


def passes_keep_values(func: Func, args: Arrays) -> bool:
    better = optimize(func)
    verify(better)
    return all(map(close, run(better, args), run(func, args)))


def text_round_trips(func: Func, args: Arrays) -> bool:
    text = print_func(func)
    return print_func(parse_func(text)) == text


def reverse_is_forward(func: Func, args: Arrays) -> bool:
    """<seed, J d> == <J' seed, d>."""
    func = optimize(func)
    reverse, forward = differentiate(func, func.params, primal=False), push_forward(func, func.params, primal=False)
    verify(reverse), verify(forward)
    rng = np.random.default_rng(7)
    directions = [rng.normal(size=np.shape(a)) for a in args]
    seeds = [rng.normal(size=np.shape(r)) for r in run(func, args)]
    moved, gradients = run(forward, [*args, *directions]), run(reverse, [*args, *seeds])
    ahead = [s * t for s, t in zip(seeds, moved, strict=True)]
    back = [g * d for g, d in zip(gradients, directions, strict=True)]
    size = sum(float(np.sum(np.abs(p))) for p in (*ahead, *back))
    return bool(abs(sum(map(np.sum, ahead)) - sum(map(np.sum, back))) <= 1e-10 * (1e-3 + size))


def tangent_is_difference(func: Func, args: Arrays) -> bool:
    """A central difference along one direction, at two steps: kinks and jumps between are told by their disagreement."""
    func = optimize(func)
    forward = push_forward(func, func.params, primal=False)
    rng = np.random.default_rng(8)
    directions = [rng.normal(size=np.shape(a)) for a in args]

    def difference(h: float) -> Arrays:
        ends = [run(func, [a + s * h * d for a, d in zip(args, directions, strict=True)]) for s in (1, -1)]
        return [(up - down) / (2 * h) for up, down in zip(*ends, strict=True)]

    for moved, near, far in zip(run(forward, [*args, *directions]), difference(1e-6), difference(4e-6), strict=True):
        scale = 1 + np.abs(moved)
        trusted = np.abs(near - far) < 1e-6 * scale
        if not np.all(np.abs(near - moved)[trusted] <= 1e-5 * scale[trusted]):
            return False
    return True


def compiled_is_interpreted(func: Func, args: Arrays) -> bool:
    func = optimize(func)
    reverse = differentiate(func, func.params)
    rng = np.random.default_rng(9)
    seeds = [rng.normal(size=np.shape(r)) for r in run(func, args)]
    return all(map(close, compile_kernel(reverse)([*args, *seeds]), run(reverse, [*args, *seeds])))


def split_is_whole(func: Func, args: Arrays) -> bool:
    func = optimize(func)
    whole = differentiate(func, func.params)
    halves = split(whole, len(func.params), len(func.results))
    verify(halves.forward), verify(halves.reverse)
    rng = np.random.default_rng(10)
    seeds = [rng.normal(size=np.shape(r)) for r in run(func, args)]
    first = run(halves.forward, args)
    kept = [args[k] for k in halves.kept]
    second = run(halves.reverse, [*kept, *first[len(func.results) :], *seeds])
    return all(map(close, (*first[: len(func.results)], *second), run(whole, [*args, *seeds])))


PROPERTIES: tuple[Callable[[Func, Arrays], bool], ...] = (
    passes_keep_values,
    text_round_trips,
    reverse_is_forward,
    tangent_is_difference,
    compiled_is_interpreted,
    split_is_whole,
)


def examine(seed: int, properties: tuple[Callable[[Func, Arrays], bool], ...] = PROPERTIES) -> str | None:
    """None, or the report of the first property that the program of this seed breaks."""
    func, args = random_program(np.random.default_rng(seed))
    verify(func)
    for holds in properties:

        def fails(candidate: Func, holds: Callable[[Func, Arrays], bool] = holds) -> bool:
            try:
                return not holds(candidate, args)
            except Exception:
                return True

        if fails(func):
            small = shrink(func, fails)
            try:
                holds(small, args)
                problem = "wrong numbers"
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            return f"seed {seed}: {holds.__name__} fails ({problem}) for\n{print_func(small)}\nwith arguments {args}"
    return None


@pytest.mark.parametrize("block", range(20))
def test_random_programs(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        problem = examine(seed)
        assert problem is None, problem
