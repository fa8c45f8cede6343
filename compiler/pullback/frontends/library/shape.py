"""Moving elements without computing: shapes, axes, joining, splitting, padding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError, UnsupportedError
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
def _reshaped(array: Array, shape: Shape, exact: bool | None = None) -> Array:
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
        turned = transpose(reshape(transpose(array), tuple(reversed(_sequence(wanted)))))
        return fixed(turned)
    if order not in ("C", "A"):
        raise ValueError(f"order must be 'C', 'F' or 'A', got {order!r}")
    return _reshaped(array, _fill_in(array, wanted))


def fixed(array: Array) -> Array:
    """The value as an array of its own, where NumPy may or may not make a view: reading is the same, writing is refused."""
    return array.look(lambda v: v, lambda base, new: new, exact=False)


def _sequence(shape: Any) -> Sequence[Any]:
    if isinstance(shape, Array):
        return shape.tolist()
    return list(shape) if isinstance(shape, (tuple, list, np.ndarray)) else [shape]


def _fill_in(array: Array, shape: Any) -> Shape:
    """The new shape, with -1 replaced by what is left."""
    trace = array.context
    sizes = [to_size(n) for n in _sequence(shape)]
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
            f"cannot reshape array of size {total} into shape {_text(sizes)}",
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
        raise array.context.error(ShapeError, f"cannot reshape array of size {total} into shape {_text(sizes)}")
    return floordiv(total, rest)


def _text(sizes: Sequence[Size]) -> str:
    return "(" + ",".join(map(str, sizes)) + ("," if len(sizes) == 1 else "") + ")"


def ravel(a: Any, order: str = "C") -> Array:
    array = wrap(a)
    if order == "F":
        return ravel(transpose(array))
    return _reshaped(array, (array.type.size,))


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
    order = [k.__index__() for k in _sequence(axes)]
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
    froms = [normalize_axis(k, array.ndim) for k in _sequence(source)]
    tos = [normalize_axis(k, array.ndim) for k in _sequence(destination)]
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
    rank = array.ndim + len(_sequence(axis))
    axes = normalize_axes(tuple(_sequence(axis)), rank)
    sizes = iter(array.symbolic_shape)
    return _reshaped(array, tuple(1 if k in axes else next(sizes) for k in range(rank)), exact=True)


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
    return _reshaped(array, tuple(n for k, n in enumerate(shape) if k not in axes), exact=True)


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
            found.append(array if shape == array.symbolic_shape else _reshaped(array, shape, exact=True))
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
        raise trace.error(ShapeError, f"an array of shape {_text(own)} cannot be broadcast to shape {_text(shape)}")
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
    return concatenate([arr, values], axis)


def block(arrays: Any) -> Array:
    """Nested lists of blocks: the innermost lists are joined along the last axis."""

    def depth(x: Any) -> int:
        return 1 + depth(x[0]) if isinstance(x, list) else 0

    levels = depth(arrays)

    def build(x: Any, level: int) -> Array:
        if not isinstance(x, list):
            found = wrap(x)
            return _reshaped(found, (1,) * max(levels - found.ndim, 0) + found.symbolic_shape, exact=True)
        return concatenate([build(part, level + 1) for part in x], level - levels)

    return build(arrays, 0)


# -- splitting ------------------------------------------------------------------------------------------------------
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    array = wrap(ary)
    k = normalize_axis(axis, array.ndim)
    length = array.shape[k]
    if isinstance(indices_or_sections, (list, tuple, np.ndarray, Array)):
        cuts = [0, *_sequence(indices_or_sections), length]
        return [_between(array, k, low, high) for low, high in itertools.pairwise(cuts)]
    sections = int(indices_or_sections)
    if sections <= 0:
        raise ValueError("number sections must be larger than 0.")
    each, extras = divmod(length, sections)
    extra = extras if isinstance(extras, int) else int(extras)
    bounds, at = [0], 0
    for j in range(sections):
        at = at + each + (1 if j < extra else 0)
        bounds.append(at)
    return [_between(array, k, low, high) for low, high in itertools.pairwise(bounds)]


def _between(array: Array, axis: int, low: Any, high: Any) -> Array:
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


# -- turning and repeating ------------------------------------------------------------------------------------------
def flip(m: Any, axis: Any = None) -> Array:
    array = wrap(m)
    axes = normalize_axes(axis, array.ndim)
    return array[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(array.ndim))]


def fliplr(m: Any) -> Array:
    return flip(m, 1)


def flipud(m: Any) -> Array:
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    array = wrap(m)
    turns = k % 4
    if turns == 0:
        return array[...]
    if turns == 2:
        return flip(flip(array, axes[0]), axes[1])
    return flip(swapaxes(array, *axes), axes[0]) if turns == 1 else flip(swapaxes(array, *axes), axes[1])


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Each rolled axis is cut in two and joined the other way round."""
    array = wrap(a)
    if axis is None:
        return _reshaped(roll(ravel(array), shift, 0), array.symbolic_shape)
    shifts, axes = list(_sequence(shift)), list(_sequence(axis))
    count = max(len(shifts), len(axes))
    for s, k in zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True):
        array = _rolled(array, s, normalize_axis(k, array.ndim))
    return array if array is not a else copy(array)


def _rolled(array: Array, shift: Any, axis: int) -> Array:
    length = array.shape[axis]
    if length == 0:
        return copy(array)
    cut = (length - shift) % length if isinstance(length, int) else _cut(array, length, shift)
    if isinstance(cut, int) and cut == 0:
        return copy(array)
    return concatenate([_between(array, axis, cut, None), _between(array, axis, None, cut)], axis)


def _cut(array: Array, length: Any, shift: Any) -> Any:
    """``-shift`` modulo a symbolic length, by a guard that the shift is less than the length."""
    if -length < shift < length:
        return length - shift if shift > 0 else -shift
    return -shift % int(length)


def fftshift(x: Any, axes: Any = None) -> Array:
    array = wrap(x)
    chosen = normalize_axes(axes, array.ndim)
    return roll(array, [array.shape[k] // 2 for k in chosen], list(chosen))


def ifftshift(x: Any, axes: Any = None) -> Array:
    array = wrap(x)
    chosen = normalize_axes(axes, array.ndim)
    return roll(array, [-(array.shape[k] // 2) for k in chosen], list(chosen))


def tile(A: Any, reps: Any) -> Array:
    """Broadcast along new axes, one before each old one, and merge."""
    array = wrap(A)
    given = [to_size(r) for r in _sequence(reps)]
    shape = (1,) * (len(given) - array.ndim) + array.symbolic_shape
    counts = [*[1] * (len(shape) - len(given)), *given]
    b = array.context.here()
    value = array.value if shape == array.symbolic_shape else b.reshape(array.value, shape=shape)
    if all(c == 1 for c in counts):
        return Array(array.context, value, contiguous=True)
    wide = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    value = b.broadcast(value, axes=tuple(range(1, len(wide), 2)), shape=wide)
    return Array(
        array.context, b.reshape(value, shape=tuple(c * n for c, n in zip(counts, shape, strict=True))), contiguous=True
    )


def repeat(a: Any, repeats: Any, axis: Any = None) -> Array:
    array = wrap(a)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    if isinstance(repeats, (list, tuple, np.ndarray)) or (isinstance(repeats, Array) and repeats.ndim):
        from pullback.frontends.library.index import take

        counts = _sequence(repeats)
        length = array.context.number(array.symbolic_shape[k])
        return take(array, np.repeat(np.arange(length), [int(c) for c in counts]), k)
    count, shape, b = to_size(repeats), array.symbolic_shape, array.context.here()
    wide = (*shape[: k + 1], count, *shape[k + 1 :])
    value = b.broadcast(array.value, axes=tuple(j for j in range(len(wide)) if j != k + 1), shape=wide)
    return Array(array.context, b.reshape(value, shape=(*shape[:k], shape[k] * count, *shape[k + 1 :])), contiguous=True)


# -- padding --------------------------------------------------------------------------------------------------------
def _widths(width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(width, dict):
        pairs = [(0, 0)] * rank
        for k, w in width.items():
            pairs[normalize_axis(k, rank)] = tuple(_sequence(w)) * (2 if len(_sequence(w)) == 1 else 1)
        return pairs
    table = np.broadcast_to(np.asarray(width), (rank, 2))
    if (table < 0).any():
        raise ValueError("index can't contain negative values")
    return [(int(low), int(high)) for low, high in table]


def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    found = wrap(array)
    widths = _widths(pad_width, found.ndim)
    if mode == "constant":
        return _pad_constant(found, widths, options.get("constant_values", 0))
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise found.context.error(
            UnsupportedError,
            f"np.pad(mode={mode!r}) is not supported",
            "use 'constant', 'edge', 'reflect', 'symmetric' or 'wrap'",
        )
    if options.get("reflect_type", "even") != "even":
        raise found.context.error(UnsupportedError, "np.pad(reflect_type='odd') is not supported", "use reflect_type='even'")
    for axis, (low, high) in enumerate(widths):
        if low or high:
            found = _pad_axis(found, axis, low, high, mode)
    return found if found is not array else copy(found)


def _pad_constant(array: Array, widths: list[tuple[int, int]], constants: Any) -> Array:
    """The array is stored into a larger one that holds the constants; corners take those of the last axis, as NumPy's do."""
    trace, b = array.context, array.context.here()
    dtype = array.dtype_
    flat = [constants] if not isinstance(constants, (tuple, list, np.ndarray)) else None
    value = array.value
    if flat is not None:
        shape = tuple(n + low + high for n, (low, high) in zip(value.type.shape, widths, strict=True))
        frame = b.spread(cast(wrap(constants), dtype), shape)
        starts = tuple(low for low, _ in widths)
        return Array(trace, b.slice_set(frame, value, starts=starts, steps=(1,) * array.ndim), contiguous=True)
    table = np.broadcast_to(np.asarray(constants), (array.ndim, 2))
    for axis, (low, high) in enumerate(widths):
        parts = [value]
        for width, number, first in ((low, table[axis][0], True), (high, table[axis][1], False)):
            shape = (*value.type.shape[:axis], width, *value.type.shape[axis + 1 :])
            part = b.full(number, value.type.with_shape(shape))
            parts = [part, *parts] if first else [*parts, part]
        value = b.concatenate(*parts, axis=axis)
    return Array(trace, value, contiguous=True)


def _pad_axis(array: Array, axis: int, low: int, high: int, mode: str) -> Array:
    """The padded axis as a read at constant places, for lengths that are at least what the padding needs."""
    length = array.symbolic_shape[axis]
    if isinstance(length, int):
        if length == 0:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        from pullback.frontends.library.index import take

        kind: Any = mode
        return take(array, np.pad(np.arange(length), (low, high), mode=kind), axis)
    need = max(low, high) + (1 if mode == "reflect" else 0)
    if not array.context.decide(max(need, 1), "<=", length):
        return _pad_axis(array[(slice(None),) * axis + (slice(0, int(array.shape[axis])),)], axis, low, high, mode)
    n = array.shape[axis]

    def cut(first: Any, last: Any, turned: bool = False) -> Array:
        part = _between(array, axis, first, last)
        return flip(part, axis) if turned else part

    if mode == "edge":
        before, after = repeat(cut(0, 1), low, axis), repeat(cut(n - 1, n), high, axis)
    elif mode == "reflect":
        before, after = cut(1, low + 1, True), cut(n - 1 - high, n - 1, True)
    elif mode == "symmetric":
        before, after = cut(0, low, True), cut(n - high, n, True)
    else:
        before, after = cut(n - low, n), cut(0, high)
    return concatenate([p for p, width in ((before, low), (array, 1), (after, high)) if width], axis)


def resize(a: Any, new_shape: Any) -> Array:
    from pullback.frontends.library.index import take

    array = ravel(wrap(a))
    trace = array.context
    sizes = [trace.number(n) for n in to_shape(new_shape)]
    length = trace.number(array.symbolic_shape[0])
    return reshape(take(array, np.arange(math.prod(sizes)) % length), sizes)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f
    for f in (
        reshape, ravel, transpose, matrix_transpose, swapaxes, moveaxis, rollaxis, expand_dims, squeeze, broadcast_to,
        broadcast_arrays, concatenate, stack, vstack, hstack, dstack, column_stack, append, block, array_split, split, hsplit,
        vsplit, dsplit, flip, fliplr, flipud, rot90, roll, tile, repeat, pad, resize,
    )
}  # fmt: skip
FUNCTIONS |= {
    "numpy.concat": concatenate,
    "numpy.permute_dims": transpose,
    "numpy.atleast_1d": atleast_1d,
    "numpy.atleast_2d": atleast_2d,
    "numpy.atleast_3d": atleast_3d,
    "numpy.fft.fftshift": fftshift,
    "numpy.fft.ifftshift": ifftshift,
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
