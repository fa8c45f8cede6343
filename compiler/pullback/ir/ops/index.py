"""Reads and writes at computed places: gather, scatter, masks, sorting; lengths that are computed.

Shape convention of ``gather`` and ``scatter_*``: the index operands have one shape ``S`` and index the leading axes of the
array, so ``gather(x[d0, .., dk, rest], i0, .., ik)`` has shape ``S + rest``; other axes are moved by ``transpose`` first.
Indices are i64 and within bounds: ``check_index`` wraps negative ones and refuses the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Dim
from pullback.ir.ops.base import Attrs, Linear, Plain, Pull, Routine, TypeMismatch, Update, table
from pullback.ir.types import Type, bool_, i64


def _indices(types: tuple[Type, ...]) -> tuple[Type, ...]:
    if not types or any(t != types[0] for t in types) or types[0].dtype is not i64:
        raise TypeMismatch(f"i64 indices of one shape expected, got {', '.join(map(str, types)) or 'none'}")
    return types


# -- bounds ---------------------------------------------------------------------------------------------------------
def _infer_check_index(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    return _indices(types)


def _evaluate_check_index(args: Any, attrs: Attrs) -> Any:
    (index,), size = args, attrs["size"]
    wrong = (index < -size) | (index >= size)
    if np.any(wrong):
        bad = int(np.asarray(index)[wrong].flat[0])
        raise IndexError(f"index {bad} is out of bounds for axis {attrs['axis']} with size {size}")
    return np.where(index < 0, index + size, index)


CHECK_INDEX = Plain(
    name="check_index",  # attrs: size (of the axis indexed), axis (for the message)
    infer=_infer_check_index,
    evaluate=_evaluate_check_index,
    effect=True,
    lower=Pull(lambda read, instr, index: read.checked(read(instr.args[0], index), instr)),
    samples=((("i64[4]",), {"size": 3, "axis": 0}),),
)


# -- gather and scatter ---------------------------------------------------------------------------------------------
def _infer_gather(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    x, *indices = types
    first = _indices(tuple(indices))[0]
    if len(indices) > x.rank:
        raise TypeMismatch(f"{len(indices)} indices for {x}")
    return (x.with_shape(first.shape + x.shape[len(indices) :]),)


def _read_gather(read: Any, instr: Instr, index: Any) -> Any:
    x, *indices = instr.args
    rank = indices[0].type.rank
    return read(x, [*(read(i, index[:rank]) for i in indices), *index[rank:]])


def _transpose_gather(t: Any, instr: Instr, ct: Value, total: Value) -> tuple[Value | None, ...]:
    return (t.scatter_add(total, *instr.args[1:], ct), *(None for _ in instr.args[1:]))


GATHER = Linear(
    name="gather",
    infer=_infer_gather,
    evaluate=lambda args, attrs: np.asarray(args[0])[tuple(args[1:])],
    transpose=_transpose_gather,
    accumulates=True,
    lower=Pull(_read_gather),
    samples=((("f64[4, 2]", "i64[3]"), {}), (("f64[3, 4]", "i64[2, 2]", "i64[2, 2]"), {}), (("f64[5]", "i64"), {})),
)


def _infer_scatter(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    x, *indices, update = types
    if _infer_gather((x, *indices), attrs)[0] != update:
        raise TypeMismatch(f"cannot scatter {update} into {x} at {len(indices)} indices of type {indices[0]}")
    return (x,)


def _target(read: Any, instr: Instr, index: Any) -> list[Any]:
    _, *indices, _ = instr.args
    rank = indices[0].type.rank
    return [*(read(i, index[:rank]) for i in indices), *index[rank:]]


def _evaluate_scatter_add(args: Any, attrs: Attrs) -> Any:
    x, *indices, update = args
    x = np.array(x)
    (np.logical_or if x.dtype == np.bool_ else np.add).at(x, tuple(indices), update)
    return x


def _evaluate_scatter_set(args: Any, attrs: Attrs) -> Any:
    x, *indices, update = args
    x = np.array(x)
    x[tuple(indices)] = update
    return x


def _gather_back(t: Any, instr: Instr, ct: Value) -> tuple[Value | None, ...]:
    return (*(None for _ in instr.args[1:-1]), t.gather(ct, *instr.args[1:-1]))


def _transpose_scatter_set(t: Any, instr: Instr, ct: Value) -> tuple[Value | None, ...]:
    """Where an index comes twice the last one wins, so only it has a cotangent: the read is masked by a winner's number."""
    _, *indices, update = instr.args
    kept = t.scatter_set(ct, *indices, t.zeros(update.type))
    return (kept, *(None for _ in indices), t.gather_winners(ct, *indices))


_SCATTER_SAMPLES: tuple[Any, ...] = (
    (("f64[4, 2]", "i64[3]", "f64[3, 2]"), {}),
    (("f64[3, 4]", "i64[2]", "i64[2]", "f64[2]"), {}),
    (("f64[5]", "i64", "f64"), {}),
)
SCATTER_ADD = Linear(
    name="scatter_add",
    infer=_infer_scatter,
    evaluate=_evaluate_scatter_add,
    linear=(0, -1),
    transpose=lambda t, instr, ct: (ct, *_gather_back(t, instr, ct)),
    lower=Update("add", _target),
    samples=_SCATTER_SAMPLES,
)
SCATTER_SET = Linear(
    name="scatter_set",
    infer=_infer_scatter,
    evaluate=_evaluate_scatter_set,
    linear=(0, -1),
    transpose=_transpose_scatter_set,
    lower=Update("set", _target),
    samples=_SCATTER_SAMPLES,
)


# -- masks and sorting ----------------------------------------------------------------------------------------------
def _infer_nonzero(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (mask,) = types
    if mask.dtype is not bool_ or mask.rank != 1:
        raise TypeMismatch(f"a boolean vector expected, got {mask}")
    return (Type(i64, (Dim.symbol(attrs["symbol"]),)),)


NONZERO = Plain(  # the positions where a mask holds; defines the size ``symbol``, at most the mask's length
    name="nonzero",
    infer=_infer_nonzero,
    evaluate=lambda args, attrs: np.flatnonzero(args[0]).astype(np.int64),
    lower=Routine("nonzero"),
)


# -- lengths that are computed --------------------------------------------------------------------------------------
def _infer_length(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    if types != (Type(i64),):
        raise TypeMismatch(f"an i64 scalar expected, got {', '.join(map(str, types)) or 'nothing'}")
    return types


def _evaluate_length(args: Any, attrs: Attrs) -> Any:
    if not 0 <= args[0] <= attrs["bound"]:
        raise IndexError(f"a length of {args[0]} is not within 0 and {attrs['bound']}")
    return args[0]


LENGTH = Plain(  # the integer itself; defines the size ``symbol`` as its value, which must lie within 0 and ``bound``
    name="length",
    infer=_infer_length,
    evaluate=_evaluate_length,
    lower=Routine("length"),
)


def _infer_argsort(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    if x.rank == 0:
        raise TypeMismatch("a scalar cannot be sorted")
    return (x.of(i64),)


ARGSORT = Plain(  # along the last axis; stable, NaN last
    name="argsort",
    infer=_infer_argsort,
    evaluate=lambda args, attrs: np.argsort(args[0], axis=-1, kind="stable").astype(np.int64),
    lower=Routine("argsort"),
    samples=((("f64[3, 5]",), {}), (("i64[4]",), {})),
)

OPS = table(CHECK_INDEX, GATHER, SCATTER_ADD, SCATTER_SET, NONZERO, LENGTH, ARGSORT)
