"""Splitting an adjoint into a forward pass that keeps residuals and a reverse pass that can run for many seeds.

What does not depend on a seed belongs to the forward pass. What the reverse pass reads of it is a residual; constants and views
are made again in the reverse pass instead of being stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.core import Block, Builder, Func, Instr, Value, sizes_in
from pullback.ir.dims import Dim, symbols
from pullback.ir.ops.base import Pull
from pullback.passes.dce import dce


@dataclass(frozen=True, slots=True)
class Split:
    """``forward`` returns the primal results, then the residuals that are not parameters. ``reverse`` takes the parameters at
    the places ``kept``, then those residuals, then the seeds, and returns the cotangents."""

    forward: Func
    reverse: Func
    kept: tuple[int, ...]


def split(func: Func, params: int, results: int) -> Split:
    """Split an adjoint whose first ``params`` parameters and first ``results`` results are those of the primal."""
    seeds = func.params[params:]
    made_by: dict[Value, Instr] = {}
    tainted: set[Value] = set(seeds)
    reverse_body: list[Instr] = []
    for instr in func.body[:-1]:
        if any(a in tainted for a in instr.args) or any(v in tainted for v in _captured(instr)):
            tainted.update(instr.outs)
            reverse_body.append(instr)
        else:
            made_by.update(dict.fromkeys(instr.outs, instr))
    cotangents = func.results[results:]
    again, residuals = _residuals(reverse_body, cotangents, tainted, made_by)
    own = set(func.params[:params])
    kept = [p for p in func.params[:params] if p in residuals]
    stored = [v for v in residuals if v not in own]
    # a symbol that no residual or seed has as an axis of its own comes with a parameter that does
    bound = _bare((*kept, *stored, *seeds))
    own_counts = {instr.attrs["symbol"] for instr in reverse_body if instr.op.name == "nonzero"}
    mentioned = symbols(size for instr in (*again, *reverse_body) for size in sizes_in(instr))
    for symbol in sorted(mentioned - own_counts):
        if symbol not in bound:
            source = next(v for v in (*func.params[:params], *made_by) if symbol in _bare((v,)))
            (kept if source in own else stored).append(source)
            bound |= _bare((source,))
    forward_body = [i for i in func.body[:-1] if not any(out in tainted for out in i.outs) and i not in set(reverse_body)]
    forward = _function(f"{func.name}_forward", func.params[:params], forward_body, (*func.results[:results], *stored))
    reverse = _function(f"{func.name}_reverse", (*kept, *stored, *seeds), [*again, *reverse_body], cotangents)
    places = tuple(func.params.index(p) for p in kept)
    return Split(dce(forward), dce(reverse), places)


def _function(name: str, params: tuple[Value, ...], body: list[Instr], results: tuple[Value, ...]) -> Func:
    b = Builder()
    b.body.extend(body)
    return Func(name, b.close("return", results, params))


def _captured(instr: Instr) -> list[Value]:
    """Values that nested blocks read from outside."""
    inside: set[Value] = set()
    read: list[Value] = []
    pending: list[Block] = list(instr.blocks)
    while pending:
        block = pending.pop()
        inside.update(block.params)
        for inner in block.body:
            read.extend(inner.args)
            inside.update(inner.outs)
            pending.extend(inner.blocks)
    return [v for v in read if v not in inside]


def _residuals(
    body: list[Instr], results: tuple[Value, ...], tainted: set[Value], made_by: dict[Value, Instr]
) -> tuple[list[Instr], dict[Value, None]]:
    """Instructions to make again, in order, and the values to keep."""
    wanted = [v for instr in body for v in (*instr.args, *_captured(instr)) if v not in tainted]
    wanted += [v for v in results if v not in tainted]
    residuals: dict[Value, None] = {}
    remade: dict[Instr, None] = {}
    visited: set[Value] = set()
    pending = list(reversed(wanted))
    while pending:
        value = pending.pop()
        if value in visited:
            continue
        visited.add(value)
        instr = made_by.get(value)
        if instr is not None and _is_view(instr):
            remade[instr] = None
            pending.extend(instr.args)
        else:
            residuals[value] = None
    order = {instr: k for k, instr in enumerate(dict.fromkeys(made_by.values()))}
    return sorted(remade, key=order.__getitem__), residuals


def _is_view(instr: Instr) -> bool:
    """Constants, sizes and re-readings that cost nothing to make again."""
    if isinstance(instr.op.lower, Pull) and not instr.op.effect and instr.op.name != "concatenate":
        return instr.op.name != "convert" and (not instr.args or instr.args[0].type.size == 1 or instr.op.name != "gather")
    return False


def _bare(values: tuple[Value, ...]) -> set[str]:
    axes = (axis.bare_symbol() for v in values for axis in v.type.shape if isinstance(axis, Dim))
    return {symbol for symbol in axes if symbol is not None}
