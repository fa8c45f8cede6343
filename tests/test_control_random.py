"""Generated programs with loops, branches and in-place updates: several oracles against each other.

``python -m tests.control_sweep COUNT SEED`` runs the same for as long as one likes. A failing program is printed as IR, shrunk.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pullback.ir.core import Func, Value
from pullback.ir.interp import run
from pullback.ir.parse import parse_func, parse_module
from pullback.ir.text import key, print_func
from pullback.ir.verify import verify
from pullback.llvm import compile as compilation
from pullback.llvm import compile_kernel
from pullback.passes import binomial, segments
from pullback.passes.limits import limit_trips, with_checkpoints
from pullback.passes.pipeline import OPTIMIZE, PASSES, differentiate, optimize, push_forward
from pullback.passes.split import split
from tests.control_programs import random_control_program
from tests.control_shrink import shrink

OPTIMIZED = 7  # LLVM's optimizer is five sixths of the time: it works on one program in so many

CHECKPOINTS: tuple[int | str, ...] = (1, 2, 3, "binomial")

Arrays = list[np.ndarray]
Property = Callable[[Func, Arrays], bool]


def close(got: object, expected: object, rtol: float = 1e-8, atol: float = 1e-10) -> bool:
    """Equal but for rounding: sums are taken in other orders, and a loop may amplify a last digit a hundred times."""
    scale = 1 + np.max(np.abs(expected), initial=0, where=np.isfinite(expected))
    return np.shape(got) == np.shape(expected) and np.allclose(got, expected, rtol=rtol, atol=atol * scale, equal_nan=True)


def all_close(got: Sequence[object], expected: Sequence[object]) -> bool:
    return len(got) == len(expected) and all(map(close, got, expected))


def floats(func: Func) -> list[Value]:
    return [p for p in func.params if p.type.is_float]


def drawn(like: Sequence[np.ndarray], seed: int) -> Arrays:
    """Random numbers of these shapes: seeds and directions, negative, unequal and not one."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(a)) for a in like]


def seeds_of(func: Func, args: Arrays) -> Arrays:
    return drawn([r for r in run(func, args) if np.asarray(r).dtype.kind == "f"], 7)


def directions_of(args: Arrays) -> Arrays:
    return drawn([a for a in args if a.dtype.kind == "f"], 8)


def moved(args: Arrays, directions: Arrays, step: float) -> Arrays:
    ahead = iter(directions)
    return [a + step * next(ahead) if a.dtype.kind == "f" else a for a in args]


@functools.lru_cache(maxsize=8)
def better(func: Func) -> Func:
    return optimize(func)


@functools.lru_cache(maxsize=8)
def reverse_of(func: Func) -> Func:
    return differentiate(better(func), floats(func))


@functools.lru_cache(maxsize=8)
def forward_of(func: Func) -> Func:
    return push_forward(better(func), floats(func))


# -- the program itself ---------------------------------------------------------------------------------------------------
def passes_keep_values(func: Func, args: Arrays) -> bool:
    expected = run(func, args)
    for name in OPTIMIZE:
        func = PASSES[name](func)
        verify(func, after=name)
        if not all_close(run(func, args), expected):
            return False
    return True


def text_round_trips(func: Func, args: Arrays) -> bool:
    text = print_func(func)
    again = parse_func(text)
    verify(again)
    return print_func(again) == text and key(again) == key(func)


def compiled_is_interpreted(func: Func, args: Arrays) -> bool:
    func = better(func)
    return all_close(compile_kernel(func)(args), run(func, args))


# -- first derivatives ----------------------------------------------------------------------------------------------------
def reverse_is_forward(func: Func, args: Arrays) -> bool:
    """<seed, J d> == <J' seed, d>, for a dense direction and for single entries."""
    reverse, forward = reverse_of(func), forward_of(func)
    seeds, dense = seeds_of(func, args), directions_of(args)
    values, count = run(func, args), len(func.results)
    backward = run(reverse, [*args, *seeds])
    gradients = backward[count:]
    if not all_close(backward[:count], values):
        return False
    for direction in (dense, *single_entries(dense, 2)):
        ahead = run(forward, [*args, *direction])
        if not all_close(ahead[:count], values):
            return False
        left = [float(np.sum(s * t)) for s, t in zip(seeds, ahead[count:], strict=True)]
        right = [float(np.sum(g * d)) for g, d in zip(gradients, direction, strict=True)]
        size = sum(float(np.sum(np.abs(s * t))) for s, t in zip(seeds, ahead[count:], strict=True))
        size += sum(float(np.sum(np.abs(g * d))) for g, d in zip(gradients, direction, strict=True))
        gap = abs(sum(left) - sum(right))
        if not gap <= 1e-9 * (1e-3 + size):  # so NaN fails
            near = run(forward, [*moved(args, dense, 1e-14), *direction])[count:]
            spread = sum(float(np.sum(np.abs(s * (t - u)))) for s, t, u in zip(seeds, ahead[count:], near, strict=True))
            if not gap <= spread:  # a loop of many trips may be chaotic: the last digits of its arguments decide then
                return False
    return True


def single_entries(like: Arrays, count: int) -> list[Arrays]:
    """Directions along one entry each."""
    entries = [(k, i) for k, a in enumerate(like) for i in np.ndindex(a.shape)]
    rng = np.random.default_rng(12)
    found = []
    for number in rng.permutation(len(entries))[:count]:
        k, place = entries[number]
        one = [np.zeros(np.shape(a)) for a in like]
        one[k][place] = 1.0
        found.append(one)
    return found


def decisions(func: Func, args: Arrays) -> tuple[Arrays, list[bytes]]:
    """The results, and every integer and truth value on the way: branches taken, trips, places of extrema, orders."""
    seen: list[bytes] = []

    def watch(instr: object, results: tuple[np.ndarray, ...]) -> None:
        seen.extend(r.tobytes() for r in results if isinstance(r, np.ndarray) and r.dtype.kind in "ib")

    return [r for r in run(func, args, watch=watch) if r.dtype.kind == "f"], seen


def tangent_is_difference(func: Func, args: Arrays) -> bool:
    """Central differences along one direction, extrapolated from two steps, if no decision changes in between; the distance
    of the two says how far they can be trusted."""
    direction, forward = directions_of(args), forward_of(func)
    func = better(func)
    _, taken = decisions(func, args)
    for step in (1e-4, 1e-6):  # with the second if a decision is nearer than the first
        ends = [decisions(func, moved(args, direction, s * step)) for s in (1, -1, 2, -2)]
        if all(way == taken for _, way in ends):
            break
    else:
        return True
    (up, _), (down, _), (far_up, _), (far_down, _) = ends
    tangents = run(forward, [*args, *direction])[len(func.results) :]
    for got, a, b, c, d in zip(tangents, up, down, far_up, far_down, strict=True):
        near, far = (a - b) / (2 * step), (c - d) / (4 * step)
        best = near + (near - far) / 3
        allowed = 1e-6 * (1 + np.abs(got)) + np.abs(near - far) + 1e-13 / step
        trusted = np.abs(near - far) < 1e-2 * (1 + np.abs(got))
        if not np.all((np.abs(best - got) <= allowed) | ~trusted):
            return False
    return True


def adjoint_compiles(func: Func, args: Arrays) -> bool:
    reverse = reverse_of(func)
    given = [*args, *seeds_of(func, args)]
    return all_close(compile_kernel(reverse)(given), run(reverse, given))


def split_is_whole(func: Func, args: Arrays) -> bool:
    """Forward once, then the reverse pass for two seeds and the first again: the residuals are not used up."""
    return _split_agrees(func, args, lambda half: lambda given: run(half, given))


def split_compiles(func: Func, args: Arrays) -> bool:
    return _split_agrees(func, args, compile_kernel)


def _split_agrees(func: Func, args: Arrays, made: Callable[[Func], Callable[[list[Any]], Sequence[Any]]]) -> bool:
    whole, count = reverse_of(func), len(func.results)
    halves = split(whole, len(func.params), count)
    verify(halves.forward), verify(halves.reverse)
    first, backward = made(halves.forward)(args), made(halves.reverse)
    kept = [args[k] for k in halves.kept]
    seeds = seeds_of(func, args)
    for given in (seeds, [-2 * s for s in seeds], seeds):
        second = backward([*kept, *first[count:], *given])
        if not all_close((*first[:count], *second), run(whole, [*args, *given])):
            return False
    return True


# -- bounds on trips and tapes --------------------------------------------------------------------------------------------
def checkpoints_change_nothing(func: Func, args: Arrays) -> bool:
    """What is kept of a loop and what is computed again is a matter of memory and time only."""
    given = [*args, *seeds_of(func, args)]
    expected = run(reverse_of(func), given)
    return all(all_close(run(_checkpointed(func, choice), given), expected) for choice in CHECKPOINTS)


def checkpoints_compile(func: Func, args: Arrays) -> bool:
    given = [*args, *seeds_of(func, args)]
    expected = run(reverse_of(func), given)
    return all(all_close(compile_kernel(_checkpointed(func, choice))(given), expected) for choice in CHECKPOINTS)


def checkpoints_second_order(func: Func, args: Arrays) -> bool:
    with few_slots():
        return all(second_order_agrees(with_checkpoints(func, choice), args) for choice in (2, "binomial"))


def limits_change_nothing(func: Func, args: Arrays) -> bool:
    """As long as they are not reached."""
    limited = optimize(limit_trips(func, 10_000))
    verify(limited)
    given = [*args, *seeds_of(func, args)]
    return all_close(run(differentiate(limited, floats(limited)), given), run(reverse_of(func), given))


@functools.lru_cache(maxsize=8)
def _checkpointed(func: Func, choice: int | str) -> Func:
    noted = optimize(with_checkpoints(func, choice))
    verify(noted)
    with few_slots():
        return differentiate(noted, floats(noted))


@contextlib.contextmanager
def few_slots() -> Iterator[None]:
    """Binomial checkpointing with so few states, each for so few trips, that short loops run out of them."""
    with patch.object(binomial, "SLOTS", 4), patch.object(segments, "UNIT", 1):
        yield


# -- second derivatives ---------------------------------------------------------------------------------------------------
def second_order_agrees(func: Func, args: Arrays) -> bool:
    """The gradient is a function of the arguments and seeds; its reverse and forward mode agree."""
    return reverse_is_forward(_gradient(func), [*args, *seeds_of(func, args)])


def second_order_compiles(func: Func, args: Arrays) -> bool:
    return adjoint_compiles(_gradient(func), [*args, *seeds_of(func, args)])


@functools.lru_cache(maxsize=8)
def _gradient(func: Func) -> Func:
    return differentiate(better(func), floats(func), primal=False)


PROPERTIES: tuple[tuple[Property, int], ...] = (  # for every so many programs: what takes long, or finds little
    (reverse_is_forward, 1),
    (adjoint_compiles, 1),
    (passes_keep_values, 2),
    (tangent_is_difference, 2),
    (text_round_trips, 4),
    (split_is_whole, 4),
    (compiled_is_interpreted, 8),
    (split_compiles, 8),
    (second_order_agrees, 8),
    (second_order_compiles, 16),
    (checkpoints_change_nothing, 8),
    (checkpoints_compile, 32),
    (checkpoints_second_order, 32),
    (limits_change_nothing, 32),
)


def examine(seed: int, properties: Sequence[Property] | None = None) -> str | None:
    """None, or the report of the first property that the program of this seed breaks."""
    with patch.object(compilation, "_level", compilation._level if seed % OPTIMIZED == 0 else lambda *given: 0):
        return _examine(seed, properties or [holds for holds, often in PROPERTIES if seed % often == 0])


def _examine(seed: int, properties: Sequence[Property]) -> str | None:
    func, args = random_control_program(seed)
    verify(func)
    for holds in properties:
        problem = outcome(holds, func, args)
        if problem is not None:
            same = problem.split(":")[0]

            def fails(candidate: Func, arguments: Arrays, holds: Property = holds, same: str = same) -> bool:
                found = outcome(holds, candidate, arguments)
                return found is not None and found.split(":")[0] == same

            small, small_args = shrink(func, args, fails)
            again = outcome(holds, small, small_args)
            return f"seed {seed}: {holds.__name__} fails ({again}) for\n{print_func(small)}with arguments {small_args}"
    return None


def outcome(holds: Property, func: Func, args: Arrays) -> str | None:
    """What is wrong, beginning with its kind."""
    try:
        return None if holds(func, args) else "wrong numbers"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("block", range(20))
def test_random_programs(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        problem = examine(seed)
        assert problem is None, problem


FOUND = parse_module((Path(__file__).parent / "data" / "found.ir").read_text())


@pytest.mark.parametrize("func", FOUND, ids=lambda func: func.name)
def test_programs_that_were_wrong_once(func: Func) -> None:
    for n in (0, 1, 6):
        rng = np.random.default_rng(n)
        args = [rng.normal(size=n), np.asarray(rng.normal())]
        for holds, _ in PROPERTIES:
            assert outcome(holds, func, args) is None, f"{holds.__name__} for n = {n}"
