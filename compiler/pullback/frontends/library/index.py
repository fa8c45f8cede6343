"""Reads at computed places: take, diagonals, triangles, sorting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.create import fresh, grid
from pullback.frontends.library.elementwise import astype, compare, truth, where
from pullback.frontends.library.reduce import along_last, kept_shape, normalize_axes, normalize_axis, not_empty
from pullback.frontends.library.reduce import sum as total
from pullback.frontends.library.shape import concatenate, ravel, reshape, stack
from pullback.frontends.promote import broadcast, cast, elementwise, float_dtype, spread, wrap
from pullback.frontends.sizes import of_size
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Size, product
from pullback.ir.types import Type, i64


# -- take -----------------------------------------------------------------------------------------------------------
def take(a: Any, indices: Any, axis: Any = None, out: None = None, mode: str = "raise") -> Array:
    array = wrap(a)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    places = wrap(indices)
    if mode == "wrap":
        places = places % array.shape[k]
    elif mode == "clip":
        places = elementwise("minimum", elementwise("maximum", places, 0), wrap(array.shape[k] - 1))
    elif mode != "raise":
        raise ValueError(f"clipmode must be 'clip', 'raise' or 'wrap', got {mode!r}")
    return copied(array[(slice(None),) * k + (places,)])


def copied(array: Array) -> Array:
    """A view as an array of its own."""
    return array if array.alias is None else Array(array.context, array.value, known=array.known, contiguous=True)


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Array:
    array, places = wrap(arr), wrap(indices)
    if axis is None:
        array, places, axis = ravel(array), ravel(places), 0
    k = normalize_axis(axis, array.ndim)
    if places.ndim != array.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return array[tuple(places if j == k else along(array, j) for j in range(array.ndim))]


def along(array: Array, axis: int) -> Array:
    """The index along an axis, shaped to broadcast against the array. It is within the axis by its making."""
    from pullback.frontends.indexing import Within

    b = array.context.here()
    size = array.symbolic_shape[axis]
    shape = tuple(size if j == axis else 1 for j in range(array.ndim))
    return Within(array.context, b.reshape(b.iota(size=size), shape=shape) if len(shape) > 1 else b.iota(size=size))


def nonzero(a: Any) -> tuple[Array, ...]:
    from pullback.frontends.indexing import mask_places

    mask = truth(a)
    if not mask.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return tuple(mask_places(mask))


def flatnonzero(a: Any) -> Array:
    return nonzero(ravel(a))[0]


def argwhere(a: Any) -> Array:
    return stack(nonzero(a), 1)


def compress(condition: Any, a: Any, axis: Any = None, out: None = None) -> Array:
    array, mask = wrap(a), truth(condition)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    return array[(slice(None),) * k + (mask,)]


def extract(condition: Any, arr: Any) -> Array:
    return ravel(arr)[ravel(truth(condition))]


def delete(arr: Any, obj: Any, axis: Any = None) -> Array:
    array = wrap(arr)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    length = array.context.number(array.symbolic_shape[k])
    return take(array, np.delete(np.arange(length), obj), k)


def insert(arr: Any, obj: int, values: Any, axis: Any = None) -> Array:
    array = wrap(arr)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    if not isinstance(obj, (int, np.integer)):
        raise array.context.error(UnsupportedError, "np.insert takes one integer place here", "use np.concatenate")
    before = (slice(None),) * k
    place = astype(wrap(values), array.dtype)
    length = array.symbolic_shape[k]
    if not array.context.decide(abs(obj), "<=", length):
        size = array.context.hint(length)
        raise IndexError(f"index {obj} is out of bounds for axis {k} with size {size}")
    shape = tuple(1 if j == k else n for j, n in enumerate(array.symbolic_shape))
    part = Array(array.context, spread(array.context, place.value, shape)) if place.ndim < array.ndim else place
    head, tail = (*before, slice(None, obj)), (*before, slice(obj, None))
    return concatenate([array[head], part, array[tail]], k)


# -- diagonals and triangles ----------------------------------------------------------------------------------------
def _diagonal_places(trace: Trace, rows: Size, columns: Size, k: int) -> tuple[Value, Value]:
    """Row and column indices of the k-th diagonal."""
    high, wide = (rows + min(k, 0)), (columns - max(k, 0))
    length = high if high == wide or trace.decide(high, "<=", wide) else wide
    if not trace.decide(0, "<=", length):
        length = 0
    b = trace.here()
    at = b.iota(size=length)
    shifted = b.add(at, b.full(abs(k), at.type)) if k else at
    return (shifted, at) if k < 0 else (at, shifted)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """A read-only view; the diagonal is the last axis."""
    array = wrap(a)
    if array.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = normalize_axis(axis1, array.ndim), normalize_axis(axis2, array.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    trace = array.context
    rest = [m for m in range(array.ndim) if m not in (i, j)]
    perm = (i, j, *rest)

    def read(value: Value) -> Value:
        b = trace.builder
        shape = value.type.shape
        places = _diagonal_places(trace, shape[i], shape[j], int(offset))
        front = value if perm == tuple(range(len(perm))) else b.transpose(value, perm=perm)
        found = b.gather(front, *places)
        return b.transpose(found, perm=(*range(1, len(rest) + 1), 0)) if rest else found

    return array.look(read, None)


def diag(v: Any, k: int = 0) -> Array:
    array = wrap(v)
    if array.ndim == 2:
        return diagonal(array, k)
    if array.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    trace, n = array.context, array.symbolic_shape[0]
    size = n + abs(int(k))
    places = _diagonal_places(trace, size, size, int(k))
    b = trace.here()
    empty = b.zeros(array.type.with_shape((size, size)))
    return fresh(trace, b.scatter_set(empty, *places, array.value))


def diagflat(v: Any, k: int = 0) -> Array:
    return diag(ravel(v), k)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None) -> Array:
    return total(diagonal(a, offset, axis1, axis2), -1, dtype)


def _triangle(relation: str) -> Callable[..., Array]:
    def function(m: Any, k: int = 0) -> Array:
        array = wrap(m)
        if array.ndim < 2:
            raise array.context.error(
                UnsupportedError, "np.triu and np.tril of a vector are not supported", "give them a matrix"
            )
        b = array.context.here()
        shape = array.symbolic_shape
        limit = grid(array.context, shape, array.ndim - 2)
        if k:
            limit = b.add(limit, b.full(int(k), limit.type))
        kept = getattr(b, relation)(grid(array.context, shape, array.ndim - 1), limit)
        return Array(array.context, b.select(kept, array.value, b.zeros(array.type)))

    return function


triu, tril = _triangle("ge"), _triangle("le")


# -- sorting --------------------------------------------------------------------------------------------------------
def _gather_last(trace: Trace, value: Value, order: Value) -> Value:
    """``value[..., order]`` row by row."""
    b = trace.builder
    grids = [grid(trace, order.type.shape, k) for k in range(order.type.rank - 1)]
    return b.gather(value, *grids, order)


def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Array:
    """A read by the stable permutation, through which the gradient goes back."""
    array = wrap(a)
    if array.ndim == 0:
        raise np.exceptions.AxisError("axis -1 is out of bounds for array of dimension 0")
    value, back = along_last(array, axis)
    return Array(array.context, back(_gather_last(array.context, value, array.context.builder.argsort(value))), contiguous=True)


def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Array:
    array = wrap(a)
    value, back = along_last(array, axis)
    return Array(array.context, back(array.context.builder.argsort(value)))


def partition(a: Any, kth: Any, axis: Any = -1, kind: Any = None, order: Any = None) -> Array:
    """Sorted through and through, which is one of the orders that a partition may have."""
    return sort(a, axis)


def _sorted_rows(array: Array, axis: Any) -> tuple[Array, tuple[int, ...]]:
    """The reduced axes merged into one last axis and sorted, as floats."""
    b = array.context.here()
    axes = normalize_axes(axis, array.ndim)
    kept = tuple(k for k in range(array.ndim) if k not in axes)
    value = cast(array, float_dtype([array]))
    shape = value.type.shape
    not_empty(array, axes, "median")
    perm = (*kept, *axes)
    if perm != tuple(range(len(perm))):
        value = b.transpose(value, perm=perm)
    if len(axes) != 1:
        value = b.reshape(value, shape=(*(shape[k] for k in kept), product(shape[k] for k in axes)))
    return sort(Array(array.context, value)), axes


def _kept(array: Array, result: Array, axes: Sequence[int], keepdims: bool) -> Array:
    return reshape(result, [of_size(array.context, n) for n in kept_shape(array.symbolic_shape, axes)]) if keepdims else result


def median(a: Any, axis: Any = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False) -> Array:
    """The mean of the two middle elements of the sorted array; NaN if there is one."""
    array = wrap(a)
    rows, axes = _sorted_rows(array, axis)
    n = rows.shape[-1]
    low, high = rows[..., (n - 1) // 2], rows[..., n // 2]
    middle = low if isinstance(n, int) and n % 2 else (low + high) / 2
    last = rows[..., n - 1]
    return _kept(array, where(elementwise("isnan", last), last, middle), axes, keepdims)


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Array:
    array = wrap(a)
    if method != "linear":
        raise array.context.error(UnsupportedError, f"np.quantile(method={method!r}) is not supported", "use method='linear'")
    if isinstance(q, (list, tuple, np.ndarray)) and np.ndim(q):
        return stack([quantile(array, float(p), axis, keepdims=keepdims) for p in np.asarray(q)])
    rows, axes = _sorted_rows(array, axis)
    n = rows.shape[-1]
    place = wrap(q) * wrap(n - 1)
    below = place // 1
    fraction = astype(place - below, float_dtype([array]).numpy)
    low = astype(below, int)
    high = elementwise("minimum", low + 1, wrap(n - 1))
    first, second = take(rows, low, -1), take(rows, high, -1)
    last = rows[..., n - 1]
    return _kept(array, where(elementwise("isnan", last), last, first + (second - first) * fraction), axes, keepdims)


def percentile(a: Any, q: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Array:
    share = np.asarray(q) / 100 if isinstance(q, (list, tuple, np.ndarray)) else q / 100
    return quantile(a, share, axis, *args, **kwargs)


def searchsorted(a: Any, v: Any, side: str = "left", sorter: None = None) -> Array:
    """By counting the smaller elements."""
    array, values = wrap(a), wrap(v)
    if sorter is not None:
        raise array.context.error(UnsupportedError, "np.searchsorted(sorter=...) is not supported", "sort first")
    wide = values[..., None]
    return total(compare("lt" if side == "left" else "le")(array, wide), -1)


def digitize(x: Any, bins: Any, right: bool = False) -> Array:
    """For increasing bins."""
    return searchsorted(bins, x, "left" if right else "right")


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: None = None) -> Array:
    at, places, values = wrap(x), wrap(xp), wrap(fp)
    if period is not None:
        raise at.context.error(UnsupportedError, "np.interp(period=...) is not supported", "reduce x modulo the period first")
    n = places.shape[0]
    upper = elementwise("minimum", elementwise("maximum", searchsorted(places, at, "right"), 1), wrap(n - 1))
    x0, x1, y0, y1 = places[upper - 1], places[upper], values[upper - 1], values[upper]
    inside = y0 + (y1 - y0) / (x1 - x0) * (at - x0)
    result = where(at < places[0], values[0] if left is None else left, inside)
    return where(
        at > places[n - 1], values[n - 1] if right is None else right, where(at == places[n - 1], values[n - 1], result)
    )


# -- in place --------------------------------------------------------------------------------------------------------
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """In place."""
    rows, columns = a.symbolic_shape
    b = a.context.here()
    places = _diagonal_places(a.context, rows, columns, 0)
    from pullback.frontends.promote import wrap as as_array

    (value, _) = broadcast(a.context, [cast(as_array(val), a.dtype_), b.zeros(Type(a.dtype_, places[0].type.shape))])
    a.assign(b.scatter_set(a.value, *places, value))


def add_at(a: Any, indices: Any, b: Any) -> None:
    """In place, an index as often as it comes."""
    from pullback.frontends.indexing import accumulate

    accumulate(a, indices, b)


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """In place."""
    k = normalize_axis(axis, arr.ndim)
    arr[tuple(wrap(indices) if j == k else along(arr, j) for j in range(arr.ndim))] = values


def triu_indices(n: Any, k: int = 0, m: Any = None) -> tuple[Array, ...]:
    from pullback.frontends.trace import current

    return tuple(
        Array.constant(current(), i.astype(i64.numpy)) for i in np.triu_indices(int(n), k, None if m is None else int(m))
    )


def tril_indices(n: Any, k: int = 0, m: Any = None) -> tuple[Array, ...]:
    from pullback.frontends.trace import current

    return tuple(
        Array.constant(current(), i.astype(i64.numpy)) for i in np.tril_indices(int(n), k, None if m is None else int(m))
    )


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f
    for f in (
        take, take_along_axis, nonzero, flatnonzero, argwhere, compress, extract, delete, insert, diagonal, diag, diagflat,
        trace, sort, argsort, partition, median, quantile, percentile, searchsorted, digitize, interp,
        fill_diagonal, put_along_axis, triu_indices, tril_indices,
    )
}  # fmt: skip
FUNCTIONS |= {
    "numpy.triu": triu,
    "numpy.tril": tril,
    "numpy.linalg.diagonal": lambda x, /, *, offset=0: diagonal(x, offset, -2, -1),
    "numpy.linalg.trace": lambda x, /, *, offset=0: trace(x, offset, -2, -1),
    "numpy.add.at": add_at,
    "numpy.subtract.at": lambda a, indices, b: add_at(a, indices, -wrap(b)),
}
