"""Cutting down a failing program with control flow: what is left should fit on a screen.

Each *cut* makes one smaller function: other results, an instruction replaced by an older value or a constant, a block put in
place of the ``if`` or loop around it, a carried value left out, a shorter loop. A cut is kept if the program still runs and the
failure is still there, until none helps any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from pullback.errors import PullbackError
from pullback.ir.core import Block, Builder, Func, Instr, Value, walk
from pullback.ir.interp import run
from pullback.ir.types import Type, i64
from pullback.ir.verify import verify
from pullback.passes.dce import dce
from pullback.passes.rewrite import rewrite, with_results

Arrays = list[np.ndarray]
Fails = Callable[[Func, Arrays], bool]
Cut = Callable[[], Any]  # of Func, or of the arguments
Replacement = Callable[[Builder, Instr], Sequence[Value]]
SECONDS = 20.0  # after which the smallest so far has to do


def shrink(func: Func, args: Arrays, fails: Fails) -> tuple[Func, Arrays]:
    """A smaller program for which ``fails`` still holds. After a cut that worked the next are tried, not the first again."""
    end = time.monotonic() + SECONDS
    cuts, at, vain = _cuts(func, args), 0, 0
    while vain < len(cuts) and time.monotonic() < end:
        smaller = _cut(func, args, cuts[at % len(cuts)])
        if smaller is not None and fails(*smaller):
            func, args = smaller
            cuts, vain = _cuts(func, args), 0
        else:
            at, vain = at + 1, vain + 1
    return func, args


def _cut(func: Func, args: Arrays, cut: Cut) -> tuple[Func, Arrays] | None:
    """The program after a cut, if it is smaller or simpler and still one that runs."""
    made = cut()
    if isinstance(made, list):
        return (func, made) if _sound(func, made) else None
    made = dce(made)
    simpler = _size(made) < _size(func) or _trips(made) < _trips(func) or len(made.results) < len(func.results)
    return (made, args) if simpler and _sound(made, args) else None


def _size(func: Func) -> int:
    return sum(1 for _ in walk(func.block))


def _sound(func: Func, args: Arrays) -> bool:
    """Whether it is a program that accepts these arguments, and ends, with numbers."""
    done = count()

    def watch(instr: Instr, results: tuple[Any, ...]) -> None:
        if next(done) > 20_000:
            raise PullbackError("endless")

    try:
        verify(func)
        return all(np.all(np.isfinite(r)) for r in run(func, args, watch=watch))
    except (PullbackError, ValueError, IndexError, RecursionError):
        return False


def _trips(func: Func) -> int:
    """The constants, which are loops' bounds for the most part: fewer trips are simpler."""
    values = [i.attrs["value"] for i in walk(func.block) if i.op.name == "const" and i.outs[0].type == Type(i64)]
    return sum(abs(int(v)) for v in values)


def _cuts(func: Func, args: Arrays) -> list[Cut]:
    """Large cuts first."""
    results, body = func.results, func.body[:-1]
    found: list[Cut] = [lambda: func]  # without dead code
    found += [partial(with_results, func, results[:k] + results[k + 1 :]) for k in range(len(results)) if len(results) > 1]
    outs = [v for instr in body for v in instr.outs if isinstance(v.type, Type) and v.type.is_float]
    found += [partial(with_results, func, [v]) for v in outs if v not in results]
    blocks, lines = [], []
    for instr in walk(func.block):
        (blocks if instr.blocks else lines).append(instr)
    found += [partial(_replaced, func, instr, make) for instr in (*blocks, *lines) for make in _replacements(instr)]
    return [*found, *(partial(lambda a: a, shorter) for shorter in _shorter(func, args))]


def _replacements(instr: Instr) -> Iterator[Replacement]:
    """What an instruction may become."""
    if instr.op.name == "if":
        yield from (lambda b, i, k=k: _arm(b, i.blocks[k]) for k in range(2))
    elif instr.blocks:
        yield lambda b, i: i.args[len(i.args) - len(i.outs) :]
        yield _once
        yield from (lambda b, i, k=k: _without(b, i, k) for k in range(len(instr.outs)))
    elif instr.op.name == "const":
        if instr.out.type == Type(i64) and int(instr.attrs["value"]) > 0:
            yield lambda b, i: (b.const(int(i.attrs["value"]) - 1, i64),)
    elif instr.op.effect and not instr.outs:
        if instr.op.name not in ("return", "yield"):
            yield lambda b, i: ()
    elif len(instr.outs) == 1 and instr.args:
        yield from (lambda b, i, arg=arg: (arg,) for arg in instr.args if arg.type == instr.out.type)
        if instr.out.type != Type(i64) or instr.op.name != "length":
            yield lambda b, i: (b.full(0.5 if i.out.type.is_float else 0, i.out.type),)


def _replaced(func: Func, target: Instr, make: Replacement) -> Func:
    """``func`` with one instruction replaced; nothing before it changes, so it is met as it stands."""

    def rule(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
        return tuple(make(b, instr)) if instr is target else None

    return rewrite(func, rule)


def _arm(b: Builder, block: Block) -> Sequence[Value]:
    b.body.extend(block.body[:-1])
    return block.results


def _once(b: Builder, loop: Instr) -> Sequence[Value]:
    """The body done once in place of the loop."""
    body, count = loop.blocks[-1], len(loop.outs)
    inits = loop.args[len(loop.args) - count :]
    start = [b.const(0, i64)] if loop.op.name == "for" else []
    return _arm(b, _renamed(body, dict(zip(body.params, (*start, *inits), strict=True))))


def _without(b: Builder, loop: Instr, k: int) -> Sequence[Value]:
    """The loop without its ``k``-th carried value, which stays what it was at first."""
    count = len(loop.outs)
    first = len(loop.args) - count
    init = loop.args[first + k]
    blocks = []
    for block in loop.blocks:
        place = len(block.params) - count + k
        inner = _renamed(block, {block.params[place]: init})
        body = inner.body
        if block is loop.blocks[-1]:
            end = body[-1]
            body = (*body[:-1], Instr(end.op, (), end.args[:k] + end.args[k + 1 :], end.attrs))
        blocks.append(Block(block.params[:place] + block.params[place + 1 :], body))
    args = loop.args[: first + k] + loop.args[first + k + 1 :]
    outs = loop.outs[:k] + loop.outs[k + 1 :]
    b.body.append(Instr(loop.op, outs, args, loop.attrs, tuple(blocks), loop.loc))
    return (*outs[:k], init, *outs[k:])


def _renamed(block: Block, new: dict[Value, Value]) -> Block:
    body = [
        Instr(i.op, i.outs, tuple(new.get(a, a) for a in i.args), i.attrs, tuple(_renamed(c, new) for c in i.blocks), i.loc)
        for i in block.body
    ]
    return Block(block.params, tuple(body))


def _shorter(func: Func, args: Arrays) -> Iterator[Arrays]:
    """Arguments with one symbol's length less, and rounder numbers."""
    symbols = sorted({str(s) for p in func.params for s in p.type.shape if not isinstance(s, int)})
    for symbol in symbols:
        smaller = [
            a[tuple(slice(0, -1) if str(s) == symbol else slice(None) for s in p.type.shape)]
            for p, a in zip(func.params, args, strict=True)
        ]
        if any(s.shape != a.shape for s, a in zip(smaller, args, strict=True)):
            yield smaller
    for k, arg in enumerate(args):
        rounder = np.round(arg, 1) if arg.dtype.kind == "f" else arg
        if not np.array_equal(rounder, arg):
            yield [*args[:k], rounder, *args[k + 1 :]]
