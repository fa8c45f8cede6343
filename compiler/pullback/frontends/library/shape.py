"""Moving elements without computing: shapes, axes, joining, splitting."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError
from pullback.frontends.array import Array
from pullback.frontends.library.create import copy, to_shape
from pullback.frontends.library.reduce import normalize_axes, normalize_axis
from pullback.frontends.promote import broadcast_shape, cast, result_dtype, spread, to_dtype, wrap
from pullback.frontends.sizes import to_size
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Size, floordiv, product
from pullback.ir.types import Shape


# -- reshape --------------------------------------------------------------------------------------------------------
def reshaped(array: Array, shape: Shape, exact: bool | None = None) -> Array:
    """A view in another shape. Whether NumPy would copy is certain only for what is contiguous."""
    own = array.symbolic_shape
    array.context.here()
    if shape == own:
        return array.look(lambda v: v, lambda base, new: new, contiguous=array.contiguous)
    sure = array.contiguous if exact is None else exact
    trace = array.context
    return array.look(
        lambda v: reshape_value(trace, v, trace.canonical_shape(shape)),
        lambda base, new: reshape_value(trace, new, trace.canonical_shape(own)),
        exact=sure,
        contiguous=array.contiguous,
    )


def reshape_value(trace: Trace, value: Value, shape: Shape) -> Value:
    """A reshape; of numbers of elements that agree for certain lengths only by way of a checked flat array."""
    b = trace.builder
    size, wanted = value.type.size, product(shape)
    if size == wanted:
        return b.reshape(value, shape=shape)
    flat = value if value.type.rank == 1 else b.reshape(value, shape=(size,))
    return b.reshape(b.match(flat, shape=(wanted,)), shape=shape)


def reshape(a: Any, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Array:
    array = wrap(a)
    wanted = shape if newshape is None else newshape
    if order == "F":
        turned = transpose(reshape(transpose(array), tuple(reversed(sequence(wanted)))))
        return fixed(turned)
    if order not in ("C", "A"):
        raise ValueError(f"order must be 'C', 'F' or 'A', got {order!r}")
    return reshaped(array, _fill_in(array, wanted))


def fixed(array: Array) -> Array:
    """The value as an array of its own, where NumPy may or may not make a view: reading is the same, writing is refused."""
    return array.look(lambda v: v, lambda base, new: new, exact=False)


def sequence(shape: Any) -> Sequence[Any]:
    if isinstance(shape, Array):
        return shape.tolist()
    return list(shape) if isinstance(shape, (tuple, list, np.ndarray)) else [shape]


def _fill_in(array: Array, shape: Any) -> Shape:
    """The new shape, with -1 replaced by what is left."""
    trace = array.context
    sizes = [to_size(n) for n in sequence(shape)]
    unknown = [k for k, n in enumerate(sizes) if n == -1]
    total = array.type.size
    if len(unknown) > 1:
        raise ValueError("can only specify one unknown dimension")
    if unknown:
        rest = product(n for n in sizes if n != -1)
        sizes[unknown[0]] = _quotient(array, total, rest, tuple(sizes))
    new = product(sizes)
    if not _made_equal(trace, new, total):
        raise trace.error(
            ShapeError,
            f"cannot reshape array of size {trace.length_text(total)} into shape {trace.shape_text(sizes, ',')}",
            "the products of the two shapes must be equal",
        )
    return tuple(trace.canonical(n) for n in sizes)


def _made_equal(trace: Trace, new: Size, total: Size) -> bool:
    """Whether the numbers of elements agree, by a guard, or when the function runs if the lengths were declared."""
    try:
        if trace.equate(new, total):
            return True
    except ShapeError:  # which speaks of broadcasting
        return False
    return trace.is_open(new, total) or trace.decide(new, "==", total)


def _quotient(array: Array, total: Size, rest: Size, sizes: Shape) -> Size:
    """What -1 stands for; whether it divides is looked at with the whole shape."""
    if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
        trace = array.context
        text = f"cannot reshape array of size {trace.length_text(total)} into shape {trace.shape_text(sizes, ',')}"
        raise trace.error(ShapeError, text, "the products of the two shapes must be equal")
    return floordiv(total, rest)


def ravel(a: Any, order: str = "C") -> Array:
    array = wrap(a)
    if order == "F":
        return ravel(transpose(array))
    return reshaped(array, (array.type.size,))


def flatten(a: Any, order: str = "C") -> Array:
    return copy(ravel(a, order))


# -- axes -----------------------------------------------------------------------------------------------------------
def permuted(array: Array, perm: tuple[int, ...]) -> Array:
    """A transposed view."""
    if perm == tuple(range(array.ndim)):
        return array.look(lambda v: v, lambda base, new: new, contiguous=array.contiguous)
    b = array.context.here()
    back = tuple(perm.index(k) for k in range(len(perm)))
    return array.look(lambda v: b.transpose(v, perm=perm), lambda base, new: b.transpose(new, perm=back))


def transpose(a: Any, axes: Any = None) -> Array:
    array = wrap(a)
    if axes is None:
        return permuted(array, tuple(reversed(range(array.ndim))))
    order = [k.__index__() for k in sequence(axes)]
    if len(order) != array.ndim:
        raise ValueError("axes don't match array")
    perm = tuple(normalize_axis(k, array.ndim) for k in order)
    if len(set(perm)) != len(perm):
        raise ValueError("repeated axis in transpose")
    return permuted(array, perm)


def matrix_transpose(x: Any) -> Array:
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    array = wrap(a)
    perm = list(range(array.ndim))
    i, j = normalize_axis(axis1, array.ndim), normalize_axis(axis2, array.ndim)
    perm[i], perm[j] = perm[j], perm[i]
    return permuted(array, tuple(perm))


def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    array = wrap(a)
    froms = [normalize_axis(k, array.ndim) for k in sequence(source)]
    tos = [normalize_axis(k, array.ndim) for k in sequence(destination)]
    if len(froms) != len(tos):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(array.ndim) if k not in froms]
    for to, origin in sorted(zip(tos, froms, strict=True)):
        order.insert(to, origin)
    return permuted(array, tuple(order))


def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    array = wrap(a)
    k = normalize_axis(axis, array.ndim)
    start = start + array.ndim if start < 0 else start
    order = [j for j in range(array.ndim) if j != k]
    order.insert(start - 1 if k < start else start, k)
    return permuted(array, tuple(order))


def expand_dims(a: Any, axis: Any) -> Array:
    array = wrap(a)
    rank = array.ndim + len(sequence(axis))
    axes = normalize_axes(tuple(sequence(axis)), rank)
    sizes = iter(array.symbolic_shape)
    return reshaped(array, tuple(1 if k in axes else next(sizes) for k in range(rank)), exact=True)


def squeeze(a: Any, axis: Any = None) -> Array:
    array = wrap(a)
    shape = array.symbolic_shape
    axes = [k for k, n in enumerate(shape) if n == 1] if axis is None else normalize_axes(axis, array.ndim)
    for k in axes:
        if shape[k] != 1 and not array.context.decide(shape[k], "==", 1):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    b = array.context.here()
    if any(shape[k] != 1 for k in axes):
        ones = tuple(1 if k in axes else n for k, n in enumerate(shape))
        array = Array(array.context, b.match(array.value, shape=ones))
    return reshaped(array, tuple(n for k, n in enumerate(shape) if k not in axes), exact=True)


def _at_least(rank: int) -> Callable[..., Any]:
    def function(*arys: Any) -> Any:
        found = []
        for a in arys:
            array = wrap(a)
            shape = array.symbolic_shape
            if rank == 3 and array.ndim < 3:
                shape = {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}[array.ndim]
            else:
                shape = (1,) * (rank - array.ndim) + shape
            found.append(array if shape == array.symbolic_shape else reshaped(array, shape, exact=True))
        return found[0] if len(found) == 1 else tuple(found)

    return function


atleast_1d, atleast_2d, atleast_3d = _at_least(1), _at_least(2), _at_least(3)


# -- broadcasting ---------------------------------------------------------------------------------------------------
def broadcast_value(trace: Trace, value: Value, shape: Shape) -> Value:
    """``np.broadcast_to`` on values; the target may not change."""
    own = value.type.shape
    if len(own) > len(shape) or any(
        isinstance(a, int) and isinstance(n, int) and a not in (1, n)
        for a, n in zip(reversed(own), reversed(shape), strict=False)
    ):  # fmt: skip
        raise trace.error(
            ShapeError, f"an array of shape {trace.shape_text(own)} cannot be broadcast to shape {trace.shape_text(shape)}"
        )
    broadcast_shape(trace, [own, shape])
    return spread(trace, value, tuple(trace.canonical(n) for n in shape))


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Array:
    found = wrap(array)
    trace = found.context
    trace.here()
    wanted = to_shape(shape)
    return found.look(lambda v: broadcast_value(trace, v, trace.canonical_shape(wanted)), None)


def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Array, ...]:
    arrays = [wrap(a) for a in args]
    if not arrays:
        return ()
    trace = arrays[0].context
    trace.here()
    shape = broadcast_shape(trace, [a.symbolic_shape for a in arrays])
    return tuple(a.look(lambda v: spread(trace, v, trace.canonical_shape(shape)), None) for a in arrays)


# -- joining --------------------------------------------------------------------------------------------------------
def join(trace: Trace, values: Sequence[Value], axis: int) -> Value:
    """Concatenation of values whose other axes are made equal."""
    b = trace.here()
    rank = values[0].type.rank
    for value in values[1:]:
        if value.type.rank != rank:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, "
                f"but along dimension 0 the arrays have {rank} and {value.type.rank} dimension(s)"
            )
    k = normalize_axis(axis, rank)
    joined = list(values)
    for j in range(rank):
        for place, value in enumerate(joined[1:], 1):
            if j != k and value.type.shape[j] != joined[0].type.shape[j]:
                sizes = value.type.shape[j], joined[0].type.shape[j]
                if all(isinstance(n, int) for n in sizes):
                    raise trace.error(
                        ShapeError,
                        "all the input array dimensions except for the concatenation axis must match exactly, but along "
                        f"dimension {j} the arrays have sizes {sizes[1]} and {sizes[0]}",
                    )
                if not trace.equate(*sizes):
                    shape = tuple(joined[0].type.shape[i] if i == j else n for i, n in enumerate(value.type.shape))
                    joined[place] = b.match(value, shape=shape)
    return joined[0] if len(joined) == 1 else b.concatenate(*joined, axis=k)


def _parts(arrays: Any, dtype: Any = None) -> tuple[Trace, list[Value]]:
    found = [wrap(a) for a in arrays]
    if not found:
        raise ValueError("need at least one array to concatenate")
    trace = found[0].context
    trace.here()
    kind = result_dtype(found) if dtype is None else to_dtype(trace, dtype)
    return trace, [cast(a, kind) for a in found]


def concatenate(arrays: Any, /, axis: Any = 0, out: None = None, *, dtype: Any = None, casting: str = "same_kind") -> Array:
    trace, values = _parts(arrays, dtype)
    if axis is None:
        values = [trace.builder.reshape(v, shape=(v.type.size,)) for v in values]
        axis = 0
    if not values[0].type.rank:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    return Array(trace, join(trace, values, axis), contiguous=True)


def stack(arrays: Any, axis: int = 0, out: None = None, *, dtype: Any = None) -> Array:
    trace, values = _parts(arrays, dtype)
    if len({v.type.rank for v in values}) > 1:
        raise ValueError("all input arrays must have the same shape")
    k = normalize_axis(axis, values[0].type.rank + 1)
    wide = [trace.builder.reshape(v, shape=(*v.type.shape[:k], 1, *v.type.shape[k:])) for v in values]
    return Array(trace, join(trace, wide, k), contiguous=True)


def vstack(tup: Any, **options: Any) -> Array:
    return concatenate([atleast_2d(a) for a in tup], 0)


def hstack(tup: Any, **options: Any) -> Array:
    arrays = [atleast_1d(a) for a in tup]
    return concatenate(arrays, 0 if arrays and arrays[0].ndim == 1 else 1)


def dstack(tup: Any) -> Array:
    return concatenate([atleast_3d(a) for a in tup], 2)


def column_stack(tup: Any) -> Array:
    arrays = [wrap(a) for a in tup]
    return concatenate([transpose(atleast_2d(a)) if a.ndim < 2 else a for a in arrays], 1)


def append(arr: Any, values: Any, axis: Any = None) -> Array:
    added = wrap(values)
    if added.weak:  # NumPy makes an array of a number first, whose type then counts
        added = Array(added.context, added.value)
    return concatenate([arr, added], axis)


def block(arrays: Any) -> Array:
    """Nested lists of blocks: the innermost lists are joined along the last axis."""

    def depth(x: Any) -> int:
        return 1 + depth(x[0]) if isinstance(x, list) else 0

    levels = depth(arrays)

    def build(x: Any, level: int) -> Array:
        if not isinstance(x, list):
            found = wrap(x)
            return reshaped(found, (1,) * max(levels - found.ndim, 0) + found.symbolic_shape, exact=True)
        return concatenate([build(part, level + 1) for part in x], level - levels)

    return build(arrays, 0)


# -- splitting ------------------------------------------------------------------------------------------------------
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    array = wrap(ary)
    k = normalize_axis(axis, array.ndim)
    length = array.shape[k]
    if isinstance(indices_or_sections, (list, tuple, np.ndarray, Array)):
        cuts = [0, *sequence(indices_or_sections), length]
        return [between(array, k, low, high) for low, high in itertools.pairwise(cuts)]
    sections = int(indices_or_sections)
    if sections <= 0:
        raise ValueError("number sections must be larger than 0.")
    each, extras = divmod(length, sections)
    extra = extras if isinstance(extras, int) else int(extras)
    bounds, at = [0], 0
    for j in range(sections):
        at = at + each + (1 if j < extra else 0)
        bounds.append(at)
    return [between(array, k, low, high) for low, high in itertools.pairwise(bounds)]


def between(array: Array, axis: int, low: Any, high: Any) -> Array:
    return array[(slice(None),) * axis + (slice(low, high),)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    array = wrap(ary)
    if not isinstance(indices_or_sections, (list, tuple, np.ndarray, Array)):
        length = array.shape[normalize_axis(axis, array.ndim)]
        if length % int(indices_or_sections) != 0:
            raise ValueError("array split does not result in an equal division")
    return array_split(array, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    array = wrap(ary)
    return split(array, indices_or_sections, 1 if array.ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    return split(ary, indices_or_sections, 2)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f
    for f in (
        reshape, ravel, transpose, matrix_transpose, swapaxes, moveaxis, rollaxis, expand_dims, squeeze, broadcast_to,
        broadcast_arrays, concatenate, stack, vstack, hstack, dstack, column_stack, append, block, array_split, split, hsplit,
        vsplit, dsplit,
    )
}  # fmt: skip
FUNCTIONS |= {
    "numpy.concat": concatenate,
    "numpy.permute_dims": transpose,
    "numpy.atleast_1d": atleast_1d,
    "numpy.atleast_2d": atleast_2d,
    "numpy.atleast_3d": atleast_3d,
    "pullback.flatten": flatten,
}
VIEWS = frozenset(
    f"numpy.{name}"
    for name in (
        "reshape", "ravel", "transpose", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze",
        "broadcast_to", "flip", "fliplr", "flipud", "rot90", "atleast_1d", "atleast_2d", "atleast_3d", "permute_dims",
        "array_split", "split", "hsplit", "vsplit", "dsplit", "broadcast_arrays", "diagonal",
    )
)  # fmt: skip
