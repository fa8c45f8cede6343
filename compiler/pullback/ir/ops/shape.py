"""Ops that move elements without computing: constants, views, concatenation and slice updates.

Shape conventions: ``broadcast`` is the only broadcasting in the IR: axis ``k`` of the operand lands at axis ``axes[k]`` of
``shape``, equal in size; an axis of size 1 is first dropped by ``reshape``. ``slice`` has a start (a size), a length (a
size) and a step (a non-zero number) per axis and never clamps: the frontends settle that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Dim, product
from pullback.ir.ops.base import Attrs, Linear, Plain, Pull, Routine, TypeMismatch, Update, table
from pullback.ir.types import DTYPES, FROM_NUMPY, Type, bool_, i64


# -- sources --------------------------------------------------------------------------------------------------------
def _infer_const(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    value = attrs["value"]
    return (Type(FROM_NUMPY[value.dtype], value.shape),)


CONST = Plain(
    name="const",
    infer=_infer_const,
    evaluate=lambda args, attrs: attrs["value"],
    lower=Pull(lambda read, instr, index: read.constant(instr.attrs["value"], index)),
)
SIZE = Plain(
    name="size",
    infer=lambda types, attrs: (Type(i64),),
    evaluate=lambda args, attrs: np.int64(attrs["dim"]),
    lower=Pull(lambda read, instr, index: read.size(instr.attrs["dim"])),
)
IOTA = Plain(
    name="iota",
    infer=lambda types, attrs: (Type(i64, (attrs["size"],)),),
    evaluate=lambda args, attrs: np.arange(attrs["size"], dtype=np.int64),
    lower=Pull(lambda read, instr, index: index[0]),
    samples=(((), {"size": 5}),),
)


# -- views ----------------------------------------------------------------------------------------------------------
def _infer_broadcast(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,), axes, shape = types, attrs["axes"], attrs["shape"]
    if len(axes) != x.rank or list(axes) != sorted(set(axes)) or any(shape[a] != n for a, n in zip(axes, x.shape, strict=True)):
        raise TypeMismatch(f"cannot broadcast {x} to shape {shape} with its axes at {axes}")
    return (x.with_shape(tuple(shape)),)


def _evaluate_broadcast(args: Any, attrs: Attrs) -> Any:
    (x,), shape = args, attrs["shape"]
    aligned = [1] * len(shape)
    for axis, size in zip(attrs["axes"], np.shape(x), strict=True):
        aligned[axis] = size
    return np.broadcast_to(np.reshape(x, aligned), shape)


def _transpose_broadcast(t: Any, instr: Instr, ct: Value) -> tuple[Value, ...]:
    axes = instr.attrs["axes"]
    return (t.sum(ct, axes=tuple(a for a in range(len(instr.attrs["shape"])) if a not in axes)),)


BROADCAST = Linear(
    name="broadcast",
    infer=_infer_broadcast,
    evaluate=_evaluate_broadcast,
    transpose=_transpose_broadcast,
    lower=Pull(lambda read, instr, index: read(instr.args[0], [index[a] for a in instr.attrs["axes"]])),
    samples=(
        (("f64[3]",), {"axes": (1,), "shape": (2, 3)}),
        (("f64",), {"axes": (), "shape": (4,)}),
        (("f64[2, 3]",), {"axes": (0, 2), "shape": (2, 4, 3)}),
    ),
)


def _infer_reshape(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,), shape = types, tuple(attrs["shape"])
    if product(shape) != x.size:
        raise TypeMismatch(f"cannot reshape {x} ({x.size} elements) to {shape} ({product(shape)} elements)")
    return (x.with_shape(shape),)


def _read_reshape(read: Any, instr: Instr, index: Any) -> Any:
    """Through the flat position, except that runs of axes that are the same on both sides keep their index."""
    (x,) = instr.args
    return read(x, read.reindex(index, instr.attrs["shape"], x.type.shape))


RESHAPE = Linear(
    name="reshape",
    infer=_infer_reshape,
    evaluate=lambda args, attrs: np.reshape(args[0], attrs["shape"]),
    transpose=lambda t, instr, ct: (t.reshape(ct, shape=instr.args[0].type.shape),),
    lower=Pull(_read_reshape),
    samples=((("f64[2, 3]",), {"shape": (6,)}), (("f64[6]",), {"shape": (3, 1, 2)}), (("f64[1]",), {"shape": ()})),
)


def _infer_transpose(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,), perm = types, attrs["perm"]
    if sorted(perm) != list(range(x.rank)):
        raise TypeMismatch(f"{perm} is no permutation of the {x.rank} axes of {x}")
    return (x.with_shape(tuple(x.shape[p] for p in perm)),)


def inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(k) for k in range(len(perm)))


TRANSPOSE = Linear(
    name="transpose",
    infer=_infer_transpose,
    evaluate=lambda args, attrs: np.transpose(args[0], attrs["perm"]),
    transpose=lambda t, instr, ct: (t.transpose(ct, perm=inverse(instr.attrs["perm"])),),
    lower=Pull(lambda read, instr, index: read(instr.args[0], [index[k] for k in inverse(instr.attrs["perm"])])),
    samples=((("f64[2, 3, 4]",), {"perm": (2, 0, 1)}),),
)


# -- slices ---------------------------------------------------------------------------------------------------------
def _infer_slice(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    _check_slice(x, attrs["starts"], attrs["sizes"], attrs["steps"])
    return (x.with_shape(tuple(attrs["sizes"])),)


def _check_slice(x: Type, starts: Any, sizes: Any, steps: Any) -> None:
    if not len(starts) == len(sizes) == len(steps) == x.rank or 0 in steps:
        raise TypeMismatch(f"a slice of {x} needs a start, a size and a non-zero step for each axis")
    for start, size, step, length in zip(starts, sizes, steps, x.shape, strict=True):
        if any(isinstance(v, Dim) for v in (start, size, length)) or size == 0:
            continue  # settled by a guard of the frontend
        last = start + (size - 1) * step
        if not (0 <= start < length and 0 <= last < length):
            raise TypeMismatch(f"slice from {start} to {last} leaves an axis of length {length}")


def slices(attrs: Attrs, sizes: Any) -> tuple[slice, ...]:
    """The NumPy slices of a slice instruction, with numbers for sizes."""
    found = []
    for start, size, step in zip(attrs["starts"], sizes, attrs["steps"], strict=True):
        stop = start + size * step
        found.append(slice(0, 0) if size == 0 else slice(start, None if stop < 0 else stop, step))
    return tuple(found)


def _strided(read: Any, instr: Instr, index: Any) -> list[Any]:
    return [
        read.add(read.size(start), read.mul(i, read.size(step)))
        for start, step, i in zip(instr.attrs["starts"], instr.attrs["steps"], index, strict=True)
    ]


def _transpose_slice(t: Any, instr: Instr, ct: Value, total: Value) -> tuple[Value, ...]:
    return (t.slice_add(total, ct, starts=instr.attrs["starts"], steps=instr.attrs["steps"]),)


_SLICE_SAMPLES = (
    (("f64[7]",), {"starts": (1,), "sizes": (3,), "steps": (2,)}),
    (("f64[3, 4]",), {"starts": (2, 3), "sizes": (3, 2), "steps": (-1, -2)}),
    (("f64[3]",), {"starts": (1,), "sizes": (0,), "steps": (1,)}),
)
SLICE = Linear(
    name="slice",
    infer=_infer_slice,
    evaluate=lambda args, attrs: np.asarray(args[0])[slices(attrs, attrs["sizes"])],
    transpose=_transpose_slice,
    accumulates=True,
    lower=Pull(lambda read, instr, index: read(instr.args[0], _strided(read, instr, index))),
    samples=_SLICE_SAMPLES,
)


def _infer_slice_update(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    x, update = types
    _check_slice(x, attrs["starts"], update.shape, attrs["steps"])
    if x.dtype is not update.dtype:
        raise TypeMismatch(f"cannot update {x} with {update}")
    return (x,)


def _evaluate_slice_set(args: Any, attrs: Attrs) -> Any:
    x, update = np.array(args[0]), args[1]
    x[slices(attrs, np.shape(update))] = update
    return x


def _evaluate_slice_add(args: Any, attrs: Attrs) -> Any:
    x, update = np.array(args[0]), args[1]
    x[slices(attrs, np.shape(update))] += update  # += is "or" for masks
    return x


def _slice_back(t: Any, instr: Instr, ct: Value) -> Value:
    update = instr.args[1].type
    return t.slice(ct, starts=instr.attrs["starts"], sizes=update.shape, steps=instr.attrs["steps"])


def _transpose_slice_set(t: Any, instr: Instr, ct: Value) -> tuple[Value, ...]:
    attrs, update = instr.attrs, instr.args[1].type
    kept = t.slice_set(ct, t.zeros(update), starts=attrs["starts"], steps=attrs["steps"])
    return kept, _slice_back(t, instr, ct)


_UPDATE_SAMPLES = (
    (("f64[7]", "f64[3]"), {"starts": (1,), "steps": (2,)}),
    (("f64[3, 4]", "f64[2, 2]"), {"starts": (2, 0), "steps": (-1, 3)}),
)
SLICE_SET = Linear(
    name="slice_set",
    infer=_infer_slice_update,
    evaluate=_evaluate_slice_set,
    linear=(0, 1),
    transpose=_transpose_slice_set,
    lower=Update("set", _strided),
    samples=_UPDATE_SAMPLES,
)
SLICE_ADD = Linear(
    name="slice_add",
    infer=_infer_slice_update,
    evaluate=_evaluate_slice_add,
    linear=(0, 1),
    transpose=lambda t, instr, ct: (ct, _slice_back(t, instr, ct)),
    lower=Update("add", _strided),
    samples=_UPDATE_SAMPLES,
)


# -- joining --------------------------------------------------------------------------------------------------------
def _infer_concatenate(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    axis, first = attrs["axis"], types[0]
    total = types[0].shape[axis]
    for other in types[1:]:
        rest = other.shape[:axis] + other.shape[axis + 1 :]
        if other.dtype is not first.dtype or rest != first.shape[:axis] + first.shape[axis + 1 :]:
            raise TypeMismatch(f"cannot concatenate {first} and {other} along axis {axis}")
        total = total + other.shape[axis]
    return (first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _transpose_concatenate(t: Any, instr: Instr, ct: Value) -> tuple[Value, ...]:
    axis, start, parts = instr.attrs["axis"], 0, []
    for arg in instr.args:
        starts = tuple(start if k == axis else 0 for k in range(arg.type.rank))
        parts.append(t.slice(ct, starts=starts, sizes=arg.type.shape, steps=(1,) * arg.type.rank))
        start = start + arg.type.shape[axis]
    return tuple(parts)


CONCATENATE = Linear(
    name="concatenate",
    infer=_infer_concatenate,
    evaluate=lambda args, attrs: np.concatenate(args, axis=attrs["axis"]),
    linear=None,
    transpose=_transpose_concatenate,
    lower=Routine("concatenate"),
    samples=((("f64[2, 3]", "f64[2, 1]", "f64[2, 2]"), {"axis": 1}), (("f64[0]", "f64[2]"), {"axis": 0})),
)


# -- types ----------------------------------------------------------------------------------------------------------
def _infer_convert(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    return (types[0].of(DTYPES[attrs["dtype"]]),)


def _transpose_convert(t: Any, instr: Instr, ct: Value) -> tuple[Value | None]:
    (x,) = instr.args
    if x.type.dtype.kind != "f" or instr.out.type.dtype.kind != "f":
        return (None,)
    return (ct if ct.type.dtype is bool_ else t.convert(ct, dtype=x.type.dtype.name),)


CONVERT = Linear(
    name="convert",
    infer=_infer_convert,
    evaluate=lambda args, attrs: np.asarray(args[0]).astype(DTYPES[attrs["dtype"]].numpy),
    transpose=_transpose_convert,
    lower=Pull(lambda read, instr, index: read.convert(read(instr.args[0], index), instr.args[0].type, instr.out.type)),
    samples=((("f32[3]",), {"dtype": "f64"}), (("f64[3]",), {"dtype": "f32"}), (("i64[3]",), {"dtype": "f64"})),
)


def _infer_match(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,), shape = types, tuple(attrs["shape"])
    if len(shape) != x.rank:
        raise TypeMismatch(f"{x} cannot have shape {shape}")
    return (x.with_shape(shape),)


def _evaluate_match(args: Any, attrs: Attrs) -> Any:
    (x,) = args
    if np.shape(x) != tuple(attrs["shape"]):
        raise ValueError(f"operands could not be broadcast together with shapes {np.shape(x)} {tuple(attrs['shape'])}")
    return x


MATCH = Linear(  # the run-time check of two lengths that cannot be proved equal
    name="match",
    infer=_infer_match,
    evaluate=_evaluate_match,
    transpose=lambda t, instr, ct: (t.match(ct, shape=instr.args[0].type.shape),),
    effect=True,
    lower=Pull(lambda read, instr, index: read(instr.args[0], index)),
)

OPS = table(CONST, SIZE, IOTA, BROADCAST, RESHAPE, TRANSPOSE, SLICE, SLICE_SET, SLICE_ADD, CONCATENATE, CONVERT, MATCH)
