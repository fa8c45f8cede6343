"""Making arrays: from scalars, lists and lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.elementwise import astype, convert
from pullback.frontends.promote import broadcast, cast, elementwise, result_dtype, to_dtype, wrap
from pullback.frontends.sizes import Length, to_size
from pullback.frontends.trace import Trace, current
from pullback.ir.core import Value
from pullback.ir.dims import Dim, Size, floordiv
from pullback.ir.types import FROM_NUMPY, Shape, Type, bool_, f64, i64

KNOWN_LIMIT = 1024  # elements of a new constant array that are remembered, so that it can serve as indices


def to_shape(shape: Any) -> Shape:
    """NumPy's shape argument: an integer or a sequence of them, lengths included."""
    if isinstance(shape, Array) and shape.ndim == 1:
        shape = shape.tolist()
    sizes = (
        shape
        if isinstance(shape, (tuple, list))
        else shape.tolist()
        if isinstance(shape, np.ndarray) and shape.ndim
        else (shape,)
    )
    found = tuple(to_size(n) for n in sizes)
    if any(isinstance(n, int) and n < 0 for n in found):
        raise ValueError("negative dimensions are not allowed")
    for n in found:
        if isinstance(n, Dim) and not current().decide(0, "<=", n):
            raise ValueError("negative dimensions are not allowed")
    return found


def fresh(trace: Trace, value: Value, known: Callable[[], Any] | None = None) -> Array:
    """A new array of the function's own; what it holds is remembered where that is constant and small."""
    array = Array(trace, value, contiguous=True)
    sizes = value.type.shape
    if known is not None and all(isinstance(n, int) for n in sizes) and math.prod(sizes) <= KNOWN_LIMIT:
        array.known = np.asarray(known(), value.type.dtype.numpy)
    array.mutable_scalar = not sizes
    return array


# -- constant fills -------------------------------------------------------------------------------------------------
def _filled(number: int) -> Callable[..., Array]:
    def function(shape: Any, dtype: Any = float, order: str = "C", **options: Any) -> Array:
        trace = current()
        b = trace.here()
        type = Type(to_dtype(trace, float if dtype is None else dtype), to_shape(shape))
        return fresh(trace, b.full(number, type), lambda: np.full(type.shape, number))

    return function


zeros, ones = _filled(0), _filled(1)


def full(shape: Any, fill_value: Any, dtype: Any = None, order: str = "C") -> Array:
    array = wrap(fill_value)
    trace = array.context
    b = trace.here()
    value = convert(array, array.dtype_ if dtype is None else to_dtype(trace, dtype))
    from pullback.frontends.library.shape import broadcast_value

    known = array.known
    result = broadcast_value(trace, value, to_shape(shape)) if value.type.rank else b.spread(value, to_shape(shape))
    return fresh(trace, result, None if known is None else lambda: np.full(result.type.shape, known))


def _like(fill: Callable[..., Array]) -> Callable[..., Array]:
    def function(a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
        array = wrap(a)
        return fill(_shape_of(array, shape), array.dtype if dtype is None else dtype)

    return function


def _shape_of(array: Array, shape: Any) -> Any:
    return array.shape if shape is None else shape


def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None) -> Array:
    array = wrap(a)
    return full(_shape_of(array, shape), fill_value, array.dtype if dtype is None else dtype)


# -- from what there is ---------------------------------------------------------------------------------------------
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Array:
    """``np.array``: a copy; lists are stacked, their elements promoted together."""
    if copy in (False, None) and not ndmin:
        return asarray(object, dtype)
    found = _assemble(object)
    trace = found.context
    trace.here()
    wanted = found.dtype_ if dtype is None else to_dtype(trace, dtype)
    known = found.known
    result = fresh(trace, convert(found, wanted), None if known is None else lambda: known)
    while result.ndim < ndmin:
        result = fresh(trace, trace.builder.reshape(result.value, shape=(1, *result.symbolic_shape)))
    return result


def asarray(a: Any, dtype: Any = None, order: Any = None, **options: Any) -> Array:
    """``np.asarray``: the array itself where nothing has to change."""
    if isinstance(a, Array) and (dtype is None or to_dtype(a.context, dtype) is a.dtype_) and not a.weak:
        return a
    return array(a, dtype)


def _in_order(array: Array, order: str) -> Array:
    """The array itself if its layout is certain to be this; else what may be a copy and is not to be written to."""
    if array.ndim < 2 or (order == "C" and array.contiguous):
        return array
    return array.look(lambda v: v, lambda base, new: new, exact=False)


def _assemble(x: Any) -> Array:
    """Nested lists as one array."""
    if not isinstance(x, (list, tuple)) or not x:
        return wrap(x) if not isinstance(x, (list, tuple)) else Array.constant(current(), np.array(x))
    if not any(isinstance(part, (Array, Length, list, tuple)) for part in x):
        data = np.array(x)
        if data.dtype in FROM_NUMPY or data.dtype.kind in "iu":
            return wrap(data)
    parts = [_assemble(part) for part in x]
    trace = parts[0].context
    if all(p.known is not None for p in parts):
        return Array.constant(trace, np.array([p.known.item() if p.weak else p.known for p in parts]))  # type: ignore[union-attr]  # just tested
    dtype = result_dtype(parts)
    b = trace.here()
    values = [cast(p, dtype) for p in parts]
    if len({len(v.type.shape) for v in values}) > 1:
        shapes = ", ".join(trace.shape_text(p.type.shape) for p in parts)
        raise trace.error(ShapeError, f"np.array of parts with different shapes: {shapes}", "give all parts one shape")
    for k in range(values[0].type.rank):
        for value in values[1:]:
            if value.type.shape[k] != values[0].type.shape[k] and not trace.equate(
                value.type.shape[k], values[0].type.shape[k]
            ):
                shapes = ", ".join(trace.shape_text(v.type.shape) for v in (values[0], value))
                raise trace.error(ShapeError, f"np.array of parts with different shapes: {shapes}", "give all parts one shape")
    joined = b.concatenate(*(b.reshape(v, shape=(1, *v.type.shape)) for v in values), axis=0)
    return Array(trace, joined)


def copy(a: Any, order: str = "K", subok: bool = False) -> Array:
    found = wrap(a)
    known = found.known
    return fresh(found.context, found.value, None if known is None else lambda: known)


# -- ranges ---------------------------------------------------------------------------------------------------------
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, **options: Any) -> Array:
    """With lengths as bounds, or numbers. A traced bound would make the result's length unknown."""
    if stop is None:
        start, stop = 0, start
    trace = current()
    for bound in (start, stop, step):
        if isinstance(bound, Array) and bound.known is None:
            raise trace.error(
                UnsupportedError, "np.arange with a traced bound has a length that is known only when the function runs",
                "use a static number or a length such as x.shape[0]",
            )  # fmt: skip
    if not any(isinstance(bound, Length) for bound in (start, stop, step)):
        return _static_range(trace, np.arange(*(_number(v) for v in (start, stop, step)), dtype=_numpy_dtype(trace, dtype)))
    if any(not isinstance(bound, (int, np.integer, Length)) for bound in (start, stop, step)):
        raise trace.error(
            UnsupportedError, "np.arange of a length takes integer bounds", "scale the result: np.arange(n) * step"
        )
    first, last, stride = to_size(start), to_size(stop), to_size(step)
    if not isinstance(stride, int) or stride == 0:
        raise trace.error(UnsupportedError, "np.arange needs a static step that is not zero")
    span = last - first if stride > 0 else first - last
    length: Size = floordiv(span + (abs(stride) - 1), abs(stride)) if trace.decide(0, "<=", span) else 0
    b = trace.here()
    value = b.iota(size=length)
    if stride != 1:
        value = b.mul(value, b.full(stride, value.type))
    if first != 0:
        value = b.add(value, b.spread(b.dim(first), value.type.shape))
    result = fresh(trace, value)
    return result if dtype is None else astype(result, dtype)


def _number(x: Any) -> Any:
    return x.known.item() if isinstance(x, Array) and x.known is not None else x


def _numpy_dtype(trace: Trace, dtype: Any) -> Any:
    return None if dtype is None else to_dtype(trace, dtype).numpy


def _static_range(trace: Trace, data: np.ndarray[Any, Any]) -> Array:
    b = trace.here()
    if data.dtype == np.int64 and np.array_equal(data, np.arange(len(data))):
        return fresh(trace, b.iota(size=len(data)), lambda: data)
    return fresh(trace, b.const(data, FROM_NUMPY[data.dtype]), lambda: data)


def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """``start + k * step``; the last element is ``stop`` itself."""
    first, last = wrap(start), wrap(stop)
    trace = first.context
    count = to_size(num)
    if isinstance(count, int) and count < 0:
        raise ValueError(f"Number of samples, {count}, must be non-negative.")
    kind = result_dtype([first, last, wrap(0.0)])
    b = trace.here()
    low, high = broadcast(trace, [cast(first, kind), cast(last, kind)])
    many = trace.decide(2, "<=", count) if endpoint else trace.decide(1, "<=", count)
    parts = (count - 1 if endpoint else count) if many else 1
    number = b.const(parts, kind) if isinstance(parts, int) else b.convert(b.dim(parts), dtype=kind.name)
    step = b.div(b.sub(high, low), b.spread(number, low.type.shape))
    rank = low.type.rank
    shape = (count, *low.type.shape)
    along = b.broadcast(b.convert(b.iota(size=count), dtype=kind.name), axes=(0,), shape=shape)
    wide = tuple(range(1, rank + 1))
    value = b.add(b.mul(along, b.broadcast(step, axes=wide, shape=shape)), b.broadcast(low, axes=wide, shape=shape))
    if endpoint and many:
        end = b.reshape(high, shape=(1, *high.type.shape))
        value = b.slice_set(value, end, starts=(count - 1, *(0,) * rank), steps=(1,) * (rank + 1))
    result = fresh(trace, value)
    if dtype is not None:
        result = astype(result, dtype)
    if axis not in (0, -rank - 1):
        from pullback.frontends.library.shape import moveaxis

        result = moveaxis(result, 0, axis)
    return (result, Array(trace, step)) if retstep else result


def logspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None) -> Array:
    result = elementwise("pow", base, linspace(start, stop, num, endpoint), floats=True)
    return result if dtype is None else astype(result, dtype)


def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None) -> Array:
    first, last = (elementwise("log", x, floats=True) for x in (start, stop))
    result = elementwise("exp", linspace(first, last, num, endpoint))
    return result if dtype is None else astype(result, dtype)


# -- matrices -------------------------------------------------------------------------------------------------------
def grid(trace: Trace, shape: Shape, axis: int) -> Value:
    """The index along one axis, in ``shape``."""
    b = trace.here()
    return b.broadcast(b.iota(size=shape[axis]), axes=(axis,), shape=shape)


def eye(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C") -> Array:
    trace = current()
    shape = to_shape((N, N if M is None else M))
    b = trace.here()
    rows, columns = grid(trace, shape, 0), grid(trace, shape, 1)
    diagonal = b.add(rows, b.spread(b.dim(to_size(k)), shape)) if not (isinstance(k, int) and k == 0) else rows
    value = b.eq(columns, diagonal)
    wanted = to_dtype(trace, dtype)
    known = (lambda: np.eye(int(N), int(N if M is None else M), int(k))) if not isinstance(k, Length) else None
    return fresh(trace, value if wanted is bool_ else b.convert(value, dtype=wanted.name), known)


def identity(n: Any, dtype: Any = float) -> Array:
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: int = 0, dtype: Any = float) -> Array:
    trace = current()
    shape = to_shape((N, N if M is None else M))
    b = trace.here()
    limit = b.add(grid(trace, shape, 0), b.full(k, Type(i64, shape)))
    value = b.le(grid(trace, shape, 1), limit)
    wanted = to_dtype(trace, dtype)
    return fresh(trace, value if wanted is bool_ else b.convert(value, dtype=wanted.name))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Array, ...]:
    from pullback.frontends.library.shape import broadcast_arrays, ravel, swapaxes

    vectors = [ravel(wrap(x)) for x in xi]
    count = len(vectors)
    wide = []
    for k, x in enumerate(vectors):
        shape = tuple(x.symbolic_shape[0] if j == k else 1 for j in range(count))
        wide.append(Array(x.context, x.context.here().reshape(x.value, shape=shape)))
    if indexing == "xy" and count > 1:
        wide = [swapaxes(w, 0, 1) for w in wide]
    return tuple(wide) if sparse else tuple(broadcast_arrays(*wide))


def indices(dimensions: Sequence[Any], dtype: Any = int) -> Array:
    trace = current()
    shape = to_shape(dimensions)
    b = trace.here()
    parts = [b.reshape(grid(trace, shape, k), shape=(1, *shape)) for k in range(len(shape))]
    return astype(fresh(trace, b.concatenate(*parts, axis=0)), dtype)


def ndim(a: Any) -> int:
    return wrap(a).ndim


def shape(a: Any) -> tuple[Any, ...]:
    return wrap(a).shape


def size(a: Any, axis: Any = None) -> Any:
    found = wrap(a)
    return found.size if axis is None else found.shape[axis]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.zeros": zeros,
    "numpy.ones": ones,
    "numpy.empty": zeros,
    "numpy.full": full,
    "numpy.zeros_like": _like(zeros),
    "numpy.ones_like": _like(ones),
    "numpy.empty_like": _like(zeros),
    "numpy.full_like": full_like,
    "numpy.array": array,
    "numpy.asarray": asarray,
    "numpy.asanyarray": asarray,
    "numpy.ascontiguousarray": lambda a, dtype=None: _in_order(asarray(a, dtype), "C"),
    "numpy.asfortranarray": lambda a, dtype=None: _in_order(asarray(a, dtype), "F"),
    "numpy.asarray_chkfinite": asarray,
    "numpy.copy": copy,
    "pullback.copy": copy,
    "numpy.arange": arange,
    "numpy.linspace": linspace,
    "numpy.logspace": logspace,
    "numpy.geomspace": geomspace,
    "numpy.eye": eye,
    "numpy.identity": identity,
    "numpy.tri": tri,
    "numpy.meshgrid": meshgrid,
    "numpy.indices": indices,
    "numpy.float64": lambda x=0.0: astype(x, f64),
    "numpy.float32": lambda x=0.0: astype(x, "float32"),
    "numpy.int64": lambda x=0: astype(x, i64),
    "numpy.bool_": lambda x=False: astype(x, bool_),
    "numpy.isscalar": lambda element: not isinstance(element, Array) or not element.ndim,
    "numpy.iterable": lambda y: not isinstance(y, Array) or y.ndim > 0,
    "numpy.ndim": ndim,
    "numpy.shape": shape,
    "numpy.size": size,
}
CREATORS = frozenset(FUNCTIONS) - {
    "numpy.ndim",
    "numpy.shape",
    "numpy.size",
    "numpy.float64",
    "numpy.float32",
    "numpy.int64",
    "numpy.bool_",
    "numpy.isscalar",
    "numpy.iterable",
}
