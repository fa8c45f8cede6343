"""What the user says about a function's loops: how many trips they may make, and how much their tapes may keep."""

from __future__ import annotations

from pullback.ir.core import Block, Builder, Func, Instr, Value, walk
from pullback.ir.ops import OPS
from pullback.ir.types import Type, i64
from pullback.passes.rewrite import rewrite


def limit_trips(func: Func, most: int) -> Func:
    """``func`` with a check in every loop that it makes at most ``most`` trips each time that it runs."""
    if not _has_loops(func):
        return func
    message = f"a loop made more than {most} trip{'s' if most != 1 else ''}, which is the limit that max_trips sets"

    def rule(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
        if instr.op.name == "for":
            b.emit(OPS["check"], (b.le(instr.args[0], b.const(most, i64)),), {"message": message})
            return None
        if instr.op.name != "while":
            return None
        condition, body = instr.blocks
        known, trips = Value("trips", Type(i64)), Value("trips", Type(i64))
        inner = Builder(b, instr.loc)
        inner.emit(OPS["check"], (inner.lt(trips, inner.const(most, i64)),), {"message": message})
        inner.body.extend(body.body[:-1])
        inner.loc = instr.loc
        again = inner.close("yield", (*body.results, inner.add(trips, inner.const(1, i64))), (*body.params, trips))
        test = Block((*condition.params, known), condition.body)
        counted = b.emit(instr.op, (*instr.args, b.const(0, i64)), instr.attrs, (test, again))
        return _named(counted[:-1], instr)

    return rewrite(func, rule)


def with_checkpoints(func: Func, checkpoint: int | str) -> Func:
    """``func`` with the choice noted at every loop that has none; the adjoint heeds it."""
    if not _has_loops(func):
        return func

    def rule(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
        if instr.op.name not in ("for", "while") or "checkpoint" in instr.attrs:
            return None
        return _named(b.emit(instr.op, instr.args, {**instr.attrs, "checkpoint": checkpoint}, instr.blocks), instr)

    return rewrite(func, rule)


def _named(values: tuple[Value, ...], instr: Instr) -> tuple[Value, ...]:
    """The results that take the place of those of ``instr``, named as they were."""
    for new, old in zip(values, instr.outs, strict=True):
        new.name = old.name
    return values


def _has_loops(func: Func) -> bool:
    return any(instr.op.name in ("for", "while") for instr in walk(func.block))
