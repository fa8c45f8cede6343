"""Array instructions as scalar work: the elements of a result from the elements of the operands.

Elements are lists of rank-0 values in row-major order. What only moves elements is done by the op's own NumPy meaning, applied
to positions instead of numbers, so there is one meaning of a slice or a transpose. Sums and products go from the first element
to the last, as unrolled nests do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from pullback.ir.core import NO_ATTRS, Builder, Instr, Value
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, Fold, Op
from pullback.ir.ops.contract import free_axes
from pullback.ir.ops.reduce import kept_axes
from pullback.ir.types import Type, bool_
from pullback.passes.rewrite import type_of

Elements: TypeAlias = Sequence[Value]
# The elements of the one result. Of operands with known numbers (indices) the array is given, of the others the elements.
Handler: TypeAlias = Callable[[Builder, Instr, Sequence[Elements], Sequence[Any]], list[Value]]


def each(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """Element by element; equal elements (of a broadcast scalar, say) are computed once."""
    op, attrs = instr.op, instr.attrs
    (result,) = op.infer(tuple([a.type.with_shape(()) for a in instr.args]), attrs)
    made: dict[tuple[Value, ...], Value] = {}
    out: list[Value] = []
    for args in zip(*parts, strict=True):
        found = made.get(args)
        if found is None:
            found = made[args] = Value("", result)
            b.body.append(Instr(op, (found,), args, attrs, (), b.loc))
        out.append(found)
    return out


def moved(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """Elements of the operands in new places."""
    pool: list[Value] = []
    arrays: list[Any] = []
    for arg, elements, number in zip(instr.args, parts, known, strict=True):
        if number is not None:
            arrays.append(number)
        else:
            arrays.append(np.arange(len(pool), len(pool) + len(elements)).reshape(arg.type.shape))
            pool.extend(elements)
    assert instr.op.evaluate is not None
    places = np.asarray(instr.op.evaluate(tuple(arrays), instr.attrs))
    return [pool[k] for k in places.ravel().tolist()]


def folded(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """A reduction over axes."""
    (elements,), (x,) = parts, instr.args
    axes = instr.attrs["axes"]
    fold = instr.op.lower
    assert isinstance(fold, Fold)
    places = np.arange(len(elements)).reshape(x.type.shape)
    rows = places.transpose(*kept_axes(x.type.rank, axes), *axes).reshape(type_of(instr.out).size, -1)
    return [_chain(b, OPS[fold.combine], [elements[k] for k in row]) for row in rows.tolist()]


def _chain(b: Builder, op: Op, terms: Sequence[Value]) -> Value:
    total = terms[0]
    for term in terms[1:]:
        total = emit(b, op, total, term)
    return total


def emit(b: Builder, op: Op, *args: Value) -> Value:
    """An op of two scalars of one type, whose result has it too."""
    out = Value("", args[0].type)
    b.body.append(Instr(op, (out,), args, NO_ATTRS, (), b.loc))
    return out


def contracted(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """Products summed over the paired axes, in row-major order of these."""
    (x, y), ((bx, by), (cx, cy)) = instr.args, (instr.attrs["batch"], instr.attrs["axes"])
    free_x, free_y = free_axes(x.type.rank, bx, cx), free_axes(y.type.rank, by, cy)
    left = _grid(x, bx, free_x, cx)
    right = _grid(y, by, free_y, cy)
    out: list[Value] = []
    for rows, columns in zip(left, right, strict=True):
        for row, column in itertools.product(rows, columns):
            terms = [emit(b, OPS["mul"], parts[0][i], parts[1][j]) for i, j in zip(row, column, strict=True)]
            out.append(_chain(b, OPS["add"], terms))
    return out


def _grid(x: Value, batch: Sequence[int], free: Sequence[int], summed: Sequence[int]) -> list[list[list[int]]]:
    """Positions in ``x`` by batch, free and summed axes."""
    shape = [math.prod(x.type.shape[k] for k in axes) for axes in (batch, free, summed)]
    places = np.arange(math.prod(x.type.shape)).reshape(x.type.shape).transpose(*batch, *free, *summed)
    found: list[list[list[int]]] = places.reshape(shape).tolist()
    return found


def added(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """``slice_add`` and ``scatter_add`` at known places; one place may come several times."""
    target, update = instr.args[0], parts[-1]
    places = np.arange(len(parts[0])).reshape(target.type.shape)
    if instr.op.name == "slice_add":
        hit = OPS["slice"].evaluate((places,), {**instr.attrs, "sizes": instr.args[1].type.shape})  # type: ignore[misc]  # it has one
    else:
        hit = places[tuple(known[1:-1])]
    op = OPS["logical_or" if target.type.dtype is bool_ else "add"]
    out = list(parts[0])
    for place, term in zip(np.ravel(hit).tolist(), update, strict=True):
        out[place] = emit(b, op, out[place], term)
    return out


def scanned(b: Builder, instr: Instr, parts: Sequence[Elements], known: Sequence[Any]) -> list[Value]:
    """``cumsum`` and ``recurrence`` along the last axis."""
    length = instr.out.type.shape[-1]
    out = list(parts[-1])
    order = range(length)[::-1] if instr.attrs["reverse"] else range(length)
    for row in range(0, len(out), length):
        for before, k in itertools.pairwise(order):
            last = out[row + before]
            step = last if instr.op.name == "cumsum" else emit(b, OPS["mul"], parts[0][row + k], last)
            out[row + k] = emit(b, OPS["add"], step, out[row + k])
    return out


HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all"), folded),
    **dict.fromkeys(("reshape", "transpose", "broadcast", "concatenate", "slice", "slice_set", "gather", "scatter_set"), moved),
    **dict.fromkeys(("slice_add", "scatter_add"), added),
    **dict.fromkeys(("cumsum", "recurrence"), scanned),
    **dict.fromkeys(("convert", "check_index"), each),
    "contract": contracted,
}


def handler(op: Op) -> Handler | None:
    """How an op is taken apart; None if it cannot be."""
    return each if isinstance(op, Elementwise) else HANDLERS.get(op.name)


# -- between an array and its elements ------------------------------------------------------------------------------
def element(b: Builder, array: Value, place: int) -> Value:
    """One element of an array, by its row-major position."""
    shape = array.type.shape
    starts = tuple(int(k) for k in np.unravel_index(place, shape))
    ones = (1,) * len(shape)
    return b.reshape(b.slice(array, starts=starts, sizes=ones, steps=ones), shape=())


def assembled(b: Builder, elements: Elements, type: Type) -> Value:
    """The array of these elements."""
    if all(e is elements[0] for e in elements):
        return b.spread(elements[0], type.shape)
    rows = [b.reshape(e, shape=(1,)) for e in elements]
    flat = b.concatenate(*rows, axis=0) if len(rows) > 1 else rows[0]
    return flat if type.rank == 1 else b.reshape(flat, shape=type.shape)
