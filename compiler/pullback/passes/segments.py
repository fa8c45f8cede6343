"""Loops whose tapes are bounded, cut into segments.

Note [Segments]
A loop with ``checkpoint = k`` becomes a loop over segments of at most k trips each, and a loop over the trips of a segment,
which is marked ``again``: its tapes are made by running it a second time within the reverse pass, just before it is reversed.
So only the state at the beginning of each segment is kept, and the tape of one segment at a time. ``checkpoint = "binomial"``
bounds the kept states, too: see ``binomial.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.core import NO_ATTRS, Block, Builder, Func, Instr, Value, walk
from pullback.ir.ops import OPS
from pullback.ir.types import StackType, Type, i64
from pullback.passes.binomial import UNIT
from pullback.passes.inline import copy_body
from pullback.passes.rewrite import renamed, rewrite_block

AGAIN = {"again": True}
BINOMIAL = {"binomial": True}


def in_segments(func: Func) -> Func:
    """``func`` with the loops that have ``checkpoint`` cut; results and parameters stay the same values."""
    if not any("checkpoint" in instr.attrs for instr in walk(func.block)):
        return func
    root = Builder()
    root.copied_symbols(func)
    new: dict[Value, Value] = {}
    return Func(func.name, rewrite_block(func.block, _cut, new, root), renamed(func.names, new))


def _cut(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
    length = instr.attrs.get("checkpoint")
    if length is None or any(isinstance(out.type, StackType) for out in instr.outs):
        return None
    attrs = BINOMIAL if length == "binomial" else NO_ATTRS
    cut = _cut_for if instr.op.name == "for" else _cut_while
    cut(b, instr, UNIT if length == "binomial" else length, attrs)
    return instr.outs


def _cut_for(b: Builder, instr: Instr, length: int, attrs: Mapping[str, Any]) -> None:
    bound, (body,) = instr.args[0], instr.blocks
    k = b.const(length, i64)
    trips = b.maximum(bound, b.const(0, i64))
    segments = b.floordiv(b.add(trips, b.const(length - 1, i64)), k)
    outer, number = Builder(b, instr.loc), Value("segment", Type(i64))
    state = tuple(Value(p.name, p.type) for p in body.params[1:])
    first = outer.mul(number, k)
    count = outer.minimum(outer.sub(trips, first), k)
    trip = Value("trip", Type(i64))
    index = Instr(OPS["add"], (body.params[0],), (first, trip), {}, (), instr.loc)
    within = Block((trip, *body.params[1:]), (index, *body.body))
    ends = outer.emit(instr.op, (count, *state), AGAIN, (within,))
    block = outer.close("yield", ends, (number, *state))
    b.body.append(Instr(instr.op, instr.outs, (segments, *instr.args[1:]), attrs, (block,), instr.loc))


def _cut_while(b: Builder, instr: Instr, length: int, attrs: Mapping[str, Any]) -> None:
    condition, body = instr.blocks
    outer = Builder(b, instr.loc)
    state = tuple(Value(p.name, p.type) for p in body.params)
    trips, known = Value("trips", Type(i64)), Value("trips", Type(i64))
    test = Builder(outer, instr.loc)
    going = tuple(Value(p.name, p.type) for p in condition.params)
    again = dict(zip(condition.params, going, strict=True))
    copy_body(test, condition.body[:-1], {}, again)
    goes = again.get(condition.results[0], condition.results[0])
    short = test.lt(known, test.const(length, i64))
    tested = test.close("yield", (test.logical_and(goes, short),), (*going, known))
    inner = Builder(outer, instr.loc)
    inner.body.extend(body.body[:-1])
    within = inner.close("yield", (*body.results, inner.add(trips, inner.const(1, i64))), (*body.params, trips))
    ends = outer.emit(instr.op, (*state, outer.const(0, i64)), AGAIN, (tested, within))
    block = outer.close("yield", ends[:-1], state)
    b.body.append(Instr(instr.op, instr.outs, instr.args, attrs, (condition, block), instr.loc))
