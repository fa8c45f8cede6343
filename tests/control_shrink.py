"""Cutting down a failing program with control flow: what is left should fit on a screen.

Each *cut* makes one smaller function: other results, an instruction replaced by an older value or a constant, a block put in
place of the ``if`` or loop around it, a carried value left out, a shorter loop. A cut is kept if the program still runs and the
failure is still there; then all cuts are tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

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
SECONDS = 15.0  # after which the smallest so far has to do


def shrink(func: Func, args: Arrays, fails: Fails) -> tuple[Func, Arrays]:
    """A smaller program for which ``fails`` still holds."""
    end = time.monotonic() + SECONDS
    best, best_args = func, args
    progress = True
    while progress:
        progress = False
        for candidate, smaller_args in _candidates(best, best_args):
            if time.monotonic() > end:
                return best, best_args
            if _sound(candidate, smaller_args) and fails(candidate, smaller_args):
                best, best_args, progress = candidate, smaller_args, True
                break
    return best, best_args


def _size(func: Func) -> int:
    return sum(1 for _ in walk(func.block))


def _sound(func: Func, args: Arrays) -> bool:
    try:
        verify(func)
        run(func, args)
    except (PullbackError, ValueError, IndexError, RecursionError):  # no program, or one that refuses these arguments
        return False
    return True


def _candidates(func: Func, args: Arrays) -> Iterator[tuple[Func, Arrays]]:
    size = _size(func)
    if _size(dce(func)) < size:
        yield dce(func), args
    for candidate in _cuts(func):
        smaller = dce(candidate)
        if _size(smaller) < size or _trips(smaller) < _trips(func):
            yield smaller, args
    yield from ((func, shorter) for shorter in _shorter(func, args))


def _trips(func: Func) -> int:
    """The constants, which are loops' bounds for the most part: fewer trips are simpler."""
    values = [i.attrs["value"] for i in walk(func.block) if i.op.name == "const" and i.outs[0].type == Type(i64)]
    return sum(abs(int(v)) for v in values)


def _cuts(func: Func) -> Iterator[Func]:
    results = func.results
    for k in range(len(results)) if len(results) > 1 else ():
        yield with_results(func, results[:k] + results[k + 1 :])
    for instr in func.body[:-1]:
        for out in instr.outs:
            if isinstance(out.type, Type) and out.type.is_float and out not in results:
                yield with_results(func, [out])
    for instr in list(walk(func.block)):
        if instr.op.name in ("return", "yield"):
            continue
        if instr.op.name == "if":
            yield from (_replaced(func, instr, lambda b, i, k=k: _arm(b, i.blocks[k])) for k in range(2))
        elif instr.blocks:
            yield _replaced(func, instr, lambda b, i: i.args[len(i.args) - len(i.outs) :])
            yield _replaced(func, instr, _once)
            yield from (_replaced(func, instr, lambda b, i, k=k: _without(b, i, k)) for k in range(len(instr.outs)))
        elif instr.op.name == "const" and instr.out.type == Type(i64) and int(instr.attrs["value"]) > 0:
            yield _replaced(func, instr, lambda b, i: (b.const(int(i.attrs["value"]) - 1, i64),))
        elif instr.op.effect and not instr.outs:
            yield _replaced(func, instr, lambda b, i: ())
        elif len(instr.outs) == 1 and instr.args:
            for arg in instr.args:
                if arg.type == instr.out.type:
                    yield _replaced(func, instr, lambda b, i, arg=arg: (arg,))
            yield _replaced(func, instr, lambda b, i: (b.full(0.5 if i.out.type.is_float else 0, i.out.type),))


Replacement = Callable[[Builder, Instr], Sequence[Value]]


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
