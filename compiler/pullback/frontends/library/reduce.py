"""NumPy's reductions, means and norms as composites over ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.elementwise import absolute, astype, convert, fabs, float_test, power, truth, where
from pullback.frontends.promote import cast, elementwise, float_dtype, number_dtype, spread, to_dtype, wrap
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import product
from pullback.ir.types import Shape, bool_, f64

Axis = Any  # None, an integer or a tuple of them


# -- axes -----------------------------------------------------------------------------------------------------------
def normalize_axis(axis: Any, rank: int) -> int:
    k = int(axis.__index__())
    if not -rank <= k < rank:
        raise np.exceptions.AxisError(f"axis {k} is out of bounds for array of dimension {rank}")
    return k % rank


def normalize_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    axes = [normalize_axis(k, rank) for k in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError("duplicate value in 'axis'")
    return tuple(sorted(axes))


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    return tuple(1 if k in axes else n for k, n in enumerate(shape))


def _keep(trace: Trace, value: Value, shape: Shape, axes: tuple[int, ...], keepdims: Any) -> Value:
    return trace.builder.reshape(value, shape=kept_shape(shape, axes)) if keepdims and axes else value


def no_out(array: Array, out: Any) -> None:
    if out is not None:
        raise array.context.error(UnsupportedError, "out= is not supported while tracing", "use the returned value")


def reduced(array: Array, op: str, value: Value, axis: Axis, keepdims: Any, **attrs: Any) -> Array:
    """One reduction op over NumPy's ``axis``; the result has the reduced axes again if ``keepdims``."""
    axes = normalize_axes(axis, value.type.rank)
    result = getattr(array.context.here(), op)(value, axes=axes, **attrs)
    return Array(array.context, _keep(array.context, result, value.type.shape, axes, keepdims))


def _masked(array: Array, value: Value, condition: Any, neutral: Any) -> Value:
    """Elements that ``where=`` leaves out are replaced by the reduction's neutral element."""
    if condition is True or condition is None:
        return value
    return where(condition, Array(array.context, value), neutral).value


# -- sums and products ----------------------------------------------------------------------------------------------
def _total(op: str, neutral: int, combine: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def function(
        a: Any,
        axis: Axis = None,
        dtype: Any = None,
        out: None = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Array:
        array = wrap(a)
        no_out(array, out)
        array.context.here()
        kind = number_dtype([array]) if dtype is None else to_dtype(array.context, dtype)
        value = _masked(array, convert(array, kind), where, neutral)
        result = reduced(array, op, value, axis, keepdims)
        return result if initial is None else combine(result, initial)

    return function


sum = _total("sum", 0, lambda x, y: x + y)
prod = _total("prod", 1, lambda x, y: x * y)


def nansum(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Array:
    array = wrap(a)
    return sum(_without_nan(array, 0), axis, dtype, out, keepdims)


def nanprod(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Array:
    return prod(_without_nan(wrap(a), 1), axis, dtype, out, keepdims)


def _without_nan(array: Array, number: Any) -> Array:
    return where(elementwise("isnan", array), number, array) if array.dtype_.kind == "f" else array


def count(trace: Trace, sizes: Shape, dtype: Any) -> Value:
    """The number of elements as a float."""
    number = product(sizes)
    b = trace.builder
    return b.const(number, dtype) if isinstance(number, int) else b.convert(b.dim(number), dtype=dtype.name)


def mean(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, where: Any = None) -> Array:
    array = wrap(a)
    no_out(array, out)
    array.context.here()
    kind = float_dtype([array]) if dtype is None else to_dtype(array.context, dtype)
    value = cast(array, kind)
    if where is not None and where is not True:
        chosen = truth(where)
        present = Array(array.context, spread(array.context, chosen.value, value.type.shape))
        total = sum(Array(array.context, value), axis, keepdims=keepdims, where=present)
        return total / sum(astype(present, kind), axis, keepdims=keepdims)
    axes = normalize_axes(axis, value.type.rank)
    b = array.context.builder
    total = b.sum(value, axes=axes)
    number = count(array.context, tuple(value.type.shape[k] for k in axes), kind)
    result = b.div(total, b.spread(number, total.type.shape))
    return Array(array.context, _keep(array.context, result, value.type.shape, axes, keepdims))


def nanmean(a: Any, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False) -> Array:
    array = wrap(a)
    if array.dtype_.kind != "f":
        return mean(array, axis, dtype, out, keepdims)
    present = elementwise("logical_not", elementwise("isnan", array))
    return nansum(array, axis, dtype, out, keepdims) / sum(astype(present, array.dtype), axis, keepdims=keepdims)


def average(a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    array = wrap(a)
    if weights is None:
        result = mean(array, axis, keepdims=keepdims)
        total = result * 0 + wrap(array.size if axis is None else 1)
    else:
        factors = wrap(weights)
        if factors.ndim == 1 and array.ndim != 1 and axis is not None:
            from pullback.frontends.library.shape import moveaxis

            shape = (1,) * (array.ndim - 1) + factors.symbolic_shape
            wide = Array(array.context, array.context.here().reshape(factors.value, shape=shape))
            factors = moveaxis(wide, -1, normalize_axis(axis, array.ndim))
        total = sum(factors + array * 0, axis, keepdims=keepdims)
        result = sum(array * factors, axis, keepdims=keepdims) / total
    return (result, total) if returned else result


def _spread_measure(op: str) -> Callable[..., Array]:
    def function(
        a: Any,
        axis: Axis = None,
        dtype: Any = None,
        out: None = None,
        ddof: Any = 0,
        keepdims: bool = False,
        *,
        correction: Any = None,
    ) -> Array:
        array = wrap(a)
        no_out(array, out)
        array.context.here()
        kind = float_dtype([array]) if dtype is None else to_dtype(array.context, dtype)
        freedom = ddof if correction is None else correction
        if isinstance(freedom, Array) or not isinstance(freedom, (int, float, np.number)):
            raise array.context.error(
                UnsupportedError, "ddof must be a number, not a traced value", "write the quotient yourself"
            )
        return reduced(array, op, cast(array, kind), axis, keepdims, ddof=freedom)

    return function


var, std = _spread_measure("var"), _spread_measure("std")


# -- extrema --------------------------------------------------------------------------------------------------------
def not_empty(array: Array, axes: Sequence[int], what: str) -> None:
    """An extremum needs an element, whatever the lengths."""
    for axis in axes:
        if not array.context.decide(1, "<=", array.symbolic_shape[axis]):
            raise array.context.error(ShapeError, f"zero-size array to reduction operation {what} which has no identity")


def _extremum(op: str, booleans: str, combine: str) -> Callable[..., Array]:
    def function(
        a: Any, axis: Axis = None, out: None = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Array:
        array = wrap(a)
        no_out(array, out)
        axes = normalize_axes(axis, array.ndim)
        if array.dtype_ is bool_:
            return reduced(array, booleans, array.value, axes, keepdims)
        value = array.value
        if where is not None and where is not True:
            if initial is None:
                raise ValueError(f"reduction operation '{combine}' does not have an identity, so where= needs initial=")
            value = _masked(array, value, where, initial)
        if initial is None:
            not_empty(array, axes, combine)
        elif 0 in (array.symbolic_shape[k] for k in axes):
            shape = (
                kept_shape(array.symbolic_shape, axes)
                if keepdims
                else [n for k, n in enumerate(array.symbolic_shape) if k not in axes]
            )
            return Array(array.context, array.context.here().full(initial, array.type.with_shape(tuple(shape))))
        result = reduced(array, op, value, axes, keepdims)
        return result if initial is None else elementwise(combine, result, initial)

    return function


max, min = _extremum("max", "any", "maximum"), _extremum("min", "all", "minimum")


def _nan_extremum(function: Callable[..., Array], start: float) -> Callable[..., Array]:
    def reduce(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
        array = wrap(a)
        if array.dtype_.kind != "f":
            return function(array, axis, out, keepdims)
        missing = elementwise("isnan", array)
        found = function(where(missing, start, array), axis, out, keepdims)
        return where(all(missing, axis, keepdims=keepdims), math.nan, found)

    return reduce


nanmax, nanmin = _nan_extremum(max, -math.inf), _nan_extremum(min, math.inf)


def ptp(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
    return max(a, axis, out, keepdims) - min(a, axis, out, keepdims)


def _arg(op: str) -> Callable[..., Array]:
    def function(a: Any, axis: Any = None, out: None = None, *, keepdims: bool = False) -> Array:
        array = wrap(a)
        no_out(array, out)
        value = astype(array, int).value if array.dtype_ is bool_ else array.value
        b = array.context.here()
        shape = value.type.shape
        not_empty(array, range(array.ndim) if axis is None else (normalize_axis(axis, array.ndim),), op)
        if axis is None:
            value = b.reshape(value, shape=(product(shape),))
        axes = (0,) if axis is None else (normalize_axis(axis, array.ndim),)
        result = getattr(b, op)(value, axis=axes[0])
        return Array(
            array.context, _keep(array.context, result, shape, tuple(range(len(shape))) if axis is None else axes, keepdims)
        )

    return function


argmax, argmin = _arg("argmax"), _arg("argmin")


# -- logic ----------------------------------------------------------------------------------------------------------
def _logic(op: str) -> Callable[..., Array]:
    def function(a: Any, axis: Axis = None, out: None = None, keepdims: bool = False) -> Array:
        array = truth(a)
        no_out(array, out)
        return reduced(array, op, array.value, axis, keepdims)

    return function


any, all = _logic("any"), _logic("all")


def count_nonzero(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Array:
    return sum(truth(a), axis, keepdims=keepdims)


# -- cumulative -----------------------------------------------------------------------------------------------------
def along_last(array: Array, axis: Any) -> tuple[Value, Callable[[Value], Value]]:
    """The value with ``axis`` moved last (None: flattened), and the way back."""
    b = array.context.here()
    value = array.value
    if axis is None:
        return b.reshape(value, shape=(array.type.size,)) if array.ndim != 1 else value, lambda v: v
    k = normalize_axis(axis, array.ndim)
    if k == array.ndim - 1:
        return value, lambda v: v
    perm = (*(j for j in range(array.ndim) if j != k), k)
    back = tuple(perm.index(j) for j in range(array.ndim))
    return b.transpose(value, perm=perm), lambda v: b.transpose(v, perm=back)


def _number(a: Any, dtype: Any) -> Array:
    array = wrap(a)
    array.context.here()
    return Array(array.context, convert(array, number_dtype([array]) if dtype is None else to_dtype(array.context, dtype)))


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
    array = _number(a, dtype)
    no_out(array, out)
    value, back = along_last(array, axis)
    return Array(array.context, back(array.context.builder.cumsum(value, reverse=False)))


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Array:
    """``p[i] = x[i] * p[i-1]``; the start is the first element itself."""
    array = _number(a, dtype)
    no_out(array, out)
    value, back = along_last(array, axis)
    b = array.context.builder
    if 0 in value.type.shape:
        return Array(array.context, back(value))
    trace, rank, shape = array.context, value.type.rank, value.type.shape
    if not trace.decide(1, "<=", shape[-1]):
        return Array(trace, back(value))
    first = b.slice(value, starts=(0,) * rank, sizes=(*shape[:-1], 1), steps=(1,) * rank)
    start = b.slice_set(b.zeros(value.type), first, starts=(0,) * rank, steps=(1,) * rank)
    return Array(trace, back(b.recurrence(value, start, reverse=False)))


# -- norms ----------------------------------------------------------------------------------------------------------
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Array:
    array = wrap(x)
    if array.dtype_.kind != "f":
        array = astype(array, f64)
    if axis is None and (ord is None or (ord in ("fro", "f") and array.ndim == 2) or (ord == 2 and array.ndim == 1)):
        return reduced(array, "norm", array.value, None, keepdims)
    axes = normalize_axes(axis, array.ndim)
    if len(axes) == 1:
        return _vector_norm(array, ord, axes, keepdims)
    if len(axes) == 2:
        order = tuple(range(array.ndim)) if axis is None else tuple(normalize_axis(k, array.ndim) for k in axis)
        return _matrix_norm(array, ord, order, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _vector_norm(array: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord is None or ord == 2:
        return reduced(array, "norm", array.value, axes, keepdims)
    if ord == math.inf:
        return max(fabs(array), axes, keepdims=keepdims)
    if ord == -math.inf:
        return min(fabs(array), axes, keepdims=keepdims)
    if ord == 0:
        return sum(astype(elementwise("ne", array, 0), array.dtype), axes, keepdims=keepdims)
    if ord == 1:
        return sum(fabs(array), axes, keepdims=keepdims)
    if not isinstance(ord, (int, float)):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return power(sum(power(absolute(array), ord), axes, keepdims=keepdims), 1.0 / ord)


def _matrix_norm(array: Array, ord: Any, order: tuple[int, ...], keepdims: bool) -> Array:
    rows, columns = order
    if ord in (None, "fro", "f"):
        return reduced(array, "norm", array.value, order, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
        extremum = max if ord > 0 else min
        found = extremum(sum(fabs(array), inner, keepdims=True), outer, keepdims=True)
        if keepdims:
            return found
        shape = tuple(n for k, n in enumerate(array.symbolic_shape) if k not in order)
        return Array(array.context, array.context.here().reshape(found.value, shape=shape))
    if ord in (2, -2, "nuc"):
        from pullback.frontends.library.shape import expand_dims, moveaxis
        from pullback.frontends.library.spectral import svdvals

        values = svdvals(moveaxis(array, order, (-2, -1)))
        found = sum(values, -1) if ord == "nuc" else values[..., 0 if ord == 2 else -1]
        return expand_dims(found, tuple(sorted(order))) if keepdims else found
    raise ValueError("Invalid norm order for matrices.")


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Array:
    array = wrap(x)
    if axis is None:
        if ord == 2 or keepdims:
            return (
                norm(array, None, tuple(range(array.ndim)) if array.ndim != 2 else None, keepdims)
                if ord == 2
                else _refuse(array)
            )
        from pullback.frontends.library.shape import ravel

        return norm(ravel(array), ord)
    return norm(array, ord, axis, keepdims)


def _refuse(array: Array) -> Array:
    raise array.context.error(
        UnsupportedError, "vector_norm over all axes with keepdims and this ord is not supported", "flatten first"
    )


# -- log-sum-exp ----------------------------------------------------------------------------------------------------
def logsumexp(a: Any, axis: Axis = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    array = wrap(a)
    if return_sign:
        raise array.context.error(
            UnsupportedError, "logsumexp(return_sign=True) is not supported", "use weights that are positive"
        )
    if array.dtype_.kind != "f":
        array = astype(array, f64)
    if b is None:
        return reduced(array, "logsumexp", array.value, axis, keepdims)
    weights = wrap(b)
    shape = (array + weights).symbolic_shape
    wide = Array(array.context, spread(array.context, array.value, shape))
    axes = normalize_axes(axis, len(shape))
    terms = where(elementwise("eq", weights, 0), -math.inf, wide)
    top = max(terms, axes, keepdims=True)
    shift = where(float_test("isfinite", True)(top), top, 0.0)
    total = sum(weights * elementwise("exp", terms - shift), axes, keepdims=True)
    result = elementwise("log", total) + shift
    if keepdims:
        return result
    kept = tuple(n for k, n in enumerate(shape) if k not in axes)
    return Array(array.context, array.context.here().reshape(result.value, shape=kept))


def log_softmax(x: Any, axis: Axis = None) -> Array:
    array = wrap(x)
    return array - logsumexp(array, axis, keepdims=True)


def softmax(x: Any, axis: Axis = None) -> Array:
    return elementwise("exp", log_softmax(x, axis))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.sum": sum,
    "numpy.prod": prod,
    "numpy.nansum": nansum,
    "numpy.nanprod": nanprod,
    "numpy.mean": mean,
    "numpy.nanmean": nanmean,
    "numpy.average": average,
    "numpy.var": var,
    "numpy.std": std,
    "numpy.max": max,
    "numpy.amax": max,
    "numpy.min": min,
    "numpy.amin": min,
    "numpy.nanmax": nanmax,
    "numpy.nanmin": nanmin,
    "numpy.ptp": ptp,
    "numpy.argmax": argmax,
    "numpy.argmin": argmin,
    "numpy.any": any,
    "numpy.all": all,
    "numpy.count_nonzero": count_nonzero,
    "numpy.cumsum": cumsum,
    "numpy.cumprod": cumprod,
    "numpy.linalg.norm": norm,
    "numpy.linalg.vector_norm": vector_norm,
    "scipy.linalg.norm": norm,
    "scipy.special.logsumexp": logsumexp,
    "scipy.special.softmax": softmax,
    "scipy.special.log_softmax": log_softmax,
}
