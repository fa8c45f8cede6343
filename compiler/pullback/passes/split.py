"""Splitting an adjoint into a forward pass that keeps residuals and a reverse pass that can run for many seeds.

What does not depend on a seed belongs to the forward pass. What the reverse pass reads of it is a residual; constants and views
are made again in the reverse pass instead of being stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.ir.core import UNKNOWN, Builder, Func, Instr, Value, inside, sizes_in, symbol_of
from pullback.ir.dims import Dim, symbols
from pullback.ir.ops.base import Pull
from pullback.ir.types import Type
from pullback.passes.dce import dce
from pullback.passes.tape import bound_of, packed, unpacked
from pullback.passes.undo import in_order


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
    defined = _define_symbols(func.params[:params], made_by, kept, stored, seeds, [*again, *reverse_body])
    bounds = {symbol: bound_of(instr) for instr in defined if (symbol := symbol_of(instr)) is not None}
    packing = Builder()
    rooms = [packed(packing, value, bounds) for value in stored]
    unpacking = [unpacked(v, room, UNKNOWN) for v, room in zip(stored, rooms, strict=True) if v is not room]
    again = in_order([*defined, *unpacking, *again])
    forward_body = [i for i in func.body[:-1] if not any(out in tainted for out in i.outs) and i not in set(reverse_body)]
    forward = _function(
        f"{func.name}_forward", func.params[:params], [*forward_body, *packing.body], (*func.results[:results], *rooms)
    )
    reverse = _function(f"{func.name}_reverse", (*kept, *rooms, *seeds), [*again, *reverse_body], cotangents)
    places = tuple(func.params.index(p) for p in kept)
    return Split(dce(forward), dce(reverse), places)


def _define_symbols(
    params: Sequence[Value],
    made_by: Mapping[Value, Instr],
    kept: list[Value],
    stored: list[Value],
    seeds: Sequence[Value],
    body: Sequence[Instr],
) -> list[Instr]:
    """A symbol that no residual or seed has as an axis of its own comes with a value that does, which is added to ``kept`` or
    ``stored``, or is computed again from the integer that it is: the instructions that do so are returned."""
    bound = _bare((*kept, *stored, *seeds))
    bound |= {symbol for instr in inside(body) if (symbol := symbol_of(instr)) is not None}
    lengths = {symbol_of(i): i for i in made_by.values() if i.op.name == "length"}
    sizes = [size for instr in inside(body) for size in sizes_in(instr)]
    sizes += [size for v in (*kept, *stored) if isinstance(v.type, Type) for size in v.type.shape]
    again: list[Instr] = []
    again_already = {out for instr in body for out in instr.outs}
    pending = sorted(symbols(sizes), reverse=True)
    while pending:
        symbol = pending.pop()
        if symbol in bound:
            continue
        instr = lengths.get(symbol)
        if instr is None:
            source = next(v for v in (*params, *made_by) if symbol in _bare((v,)))
            pending.extend(symbols(source.type.shape))
            bound |= _bare((source,))
        else:
            again.append(instr)
            (source,) = instr.args
            pending.extend(symbols(sizes_in(instr)))
            bound |= {symbol}
        if source not in kept and source not in stored and source not in again_already:
            (kept if source in params else stored).append(source)
    return again[::-1]


def _function(name: str, params: tuple[Value, ...], body: list[Instr], results: tuple[Value, ...]) -> Func:
    b = Builder()
    b.body.extend(body)
    return Func(name, b.close("return", results, params))


def _captured(instr: Instr) -> list[Value]:
    """Values that nested blocks read from outside."""
    if not instr.blocks:
        return []
    known = {p for i in inside((instr,)) for block in i.blocks for p in block.params}
    known.update(out for i in inside((instr,)) for out in i.outs)
    return [v for i in inside((instr,)) for v in i.args if v not in known]


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
        empty = instr is not None and instr.op.name == "stack.new"  # a tape is made in the pass that fills it
        if instr is not None and (empty or _is_view(instr)):
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
    axes = (axis.bare_symbol() for v in values if isinstance(v.type, Type) for axis in v.type.shape if isinstance(axis, Dim))
    return {symbol for symbol in axes if symbol is not None}
