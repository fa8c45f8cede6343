"""What is built of neighbouring elements: differences, gradients, trapezoids, convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.elementwise import absolute, compare, where
from pullback.frontends.library.reduce import cumsum, normalize_axes, normalize_axis
from pullback.frontends.library.reduce import sum as total
from pullback.frontends.library.shape import concatenate, moveaxis, ravel, reshape
from pullback.frontends.promote import cast, float_dtype, result_dtype, spread, wrap
from pullback.frontends.sizes import of_size
from pullback.ir.dims import product
from pullback.ir.types import Shape, Type, bool_


# -- differences ----------------------------------------------------------------------------------------------------
def _cut(array: Array, axis: int, start: Any, stop: Any, step: Any = None) -> Array:
    return array[(slice(None),) * axis + (slice(start, stop, step),)]


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    array = wrap(a)
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    k = normalize_axis(axis, array.ndim)
    parts = [array]
    for extra, first in ((prepend, True), (append, False)):
        if extra is not None:
            part = wrap(extra)
            if part.ndim == 0:
                shape = tuple(1 if j == k else m for j, m in enumerate(array.symbolic_shape))
                part = Array(array.context, spread(array.context, part.value, shape))
            parts = [part, *parts] if first else [*parts, part]
    array = concatenate(parts, k) if len(parts) > 1 else array
    for _ in range(n):
        later, earlier = _cut(array, k, 1, None), _cut(array, k, None, -1)
        array = compare("ne")(later, earlier) if array.dtype_ is bool_ else later - earlier
    return array


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    found = diff(ravel(ary))
    parts = [p for p in (to_begin, found, to_end) if p is not None]
    return concatenate([ravel(p) for p in parts]) if len(parts) > 1 else found


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences inside, one-sided ones at the ends."""
    array = wrap(f)
    axes = tuple(range(array.ndim)) if axis is None else normalize_axes(axis, array.ndim)
    steps = [1.0] * len(axes) if not varargs else list(varargs) * (len(axes) if len(varargs) == 1 else 1)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    floating = Array(array.context, cast(array, float_dtype([array])))
    found = [_slope(floating, k, step, edge_order) for k, step in zip(axes, steps, strict=True)]
    return found[0] if len(found) == 1 else tuple(found)


def _slope(array: Array, axis: int, step: Any, edge_order: int) -> Array:
    h = wrap(step)
    if not array.context.decide(edge_order + 1, "<=", array.symbolic_shape[axis]):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
        )
    y = moveaxis(array, axis, -1)
    if h.ndim == 0:
        inner = (y[..., 2:] - y[..., :-2]) / (2.0 * h)
        if edge_order == 1:
            first, last = (y[..., 1:2] - y[..., 0:1]) / h, (y[..., -1:] - y[..., -2:-1]) / h
        else:
            first = (-1.5 * y[..., 0:1] + 2.0 * y[..., 1:2] - 0.5 * y[..., 2:3]) / h
            last = (0.5 * y[..., -3:-2] - 2.0 * y[..., -2:-1] + 1.5 * y[..., -1:]) / h
    elif edge_order == 1:
        gap = diff(h)
        left, right = gap[:-1], gap[1:]
        weights = -right / (left * (left + right)), (right - left) / (left * right), left / (right * (left + right))
        inner = weights[0] * y[..., :-2] + weights[1] * y[..., 1:-1] + weights[2] * y[..., 2:]
        first, last = (y[..., 1:2] - y[..., 0:1]) / gap[0], (y[..., -1:] - y[..., -2:-1]) / gap[-1]
    else:
        raise array.context.error(
            UnsupportedError, "np.gradient with coordinates and edge_order=2 is not supported", "use edge_order=1"
        )
    joined = moveaxis(concatenate([first, inner, last], -1), -1, axis)
    return Array(joined.context, cast(joined, array.dtype_))  # whatever the type of the steps


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    array = wrap(y)
    k = normalize_axis(axis, array.ndim)
    if x is None:
        width: Any = dx
    else:
        places = wrap(x)
        width = diff(places) if places.ndim == 1 else diff(places, axis=k)
        if places.ndim == 1 and array.ndim > 1:
            width = reshape(width, [-1 if j == k else 1 for j in range(array.ndim)])
    return total(width * (_cut(array, k, 1, None) + _cut(array, k, None, -1)) / 2.0, k)


CONVOLUTION_LIMIT = 4096  # elements of a kernel, which unroll into as many instructions


# -- convolution ----------------------------------------------------------------------------------------------------
def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    left, right = wrap(a), wrap(v)
    if left.ndim == 0 or right.ndim == 0:
        left, right = reshape(left, -1), reshape(right, -1)
    if left.ndim != 1 or right.ndim != 1:
        raise ValueError("object too deep for desired array")
    trace = left.context
    if not trace.decide(right.symbolic_shape[0], "<=", left.symbolic_shape[0]):
        left, right = right, left
    return _convolved(left, right, mode, same_as=left.symbolic_shape)


def signal_convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Array:
    """Of any rank; "same" is centred on the first argument."""
    first, second = wrap(in1), wrap(in2)
    if first.ndim != second.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    shape = first.symbolic_shape
    if mode == "valid" and not all(first.context.decide(n, "<=", m) for m, n in zip(shape, second.symbolic_shape, strict=True)):
        first, second = second, first
    return _convolved(first, second, mode, same_as=shape)


def _convolved(big: Array, small: Array, mode: str, same_as: Shape) -> Array:
    """The larger array is added at each place of the smaller, weighted; the smaller one's lengths must be static."""
    trace = big.context
    b = trace.here()
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")
    lengths = [trace.number(n) for n in small.symbolic_shape]
    if product(lengths) > CONVOLUTION_LIMIT:  # type: ignore[operator]  # a number
        raise trace.error(
            TraceError, f"a convolution with a kernel of {product(lengths)} elements is not supported", "use the FFT"
        )
    dtype = result_dtype([big, small])
    x, y = cast(big, dtype), cast(small, dtype)
    rank = big.ndim
    full = tuple(m + n - 1 for m, n in zip(x.type.shape, lengths, strict=True))
    found = b.zeros(Type(dtype, full))
    for place in np.ndindex(*lengths):
        weight = b.reshape(b.slice(y, starts=place, sizes=(1,) * rank, steps=(1,) * rank), shape=())
        found = b.slice_add(found, b.mul(x, b.spread(weight, x.type.shape)), starts=place, steps=(1,) * rank)
    if mode == "full":
        return Array(trace, found)
    shape = same_as if mode == "same" else tuple(m - n + 1 for m, n in zip(x.type.shape, lengths, strict=True))
    cuts = [(m - n) // 2 for m, n in zip(full, shape, strict=True)]
    return Array(trace, found)[tuple(slice(of_size(trace, c), of_size(trace, c + n)) for c, n in zip(cuts, shape, strict=True))]


def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    left, right = wrap(a), wrap(v)
    if not left.context.decide(right.symbolic_shape[0], "<=", left.symbolic_shape[0]):
        return convolve(right[::-1], left, mode)[::-1] if mode != "full" else convolve(left, right[::-1], mode)
    return convolve(left, right[::-1], mode)


def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Array:
    array = wrap(p)
    k = normalize_axis(axis, array.ndim)
    steps = diff(array, axis=k)
    half = period / 2
    wrapped = (steps + half) % period - half
    wrapped = where((wrapped == -half) & (steps > 0), half, wrapped)
    correction = where(absolute(steps) < (half if discont is None else discont), 0.0, wrapped - steps)
    return concatenate([_cut(array, k, None, 1), _cut(array, k, 1, None) + cumsum(correction, k)], k)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f for f in (diff, ediff1d, gradient, trapezoid, convolve, correlate, unwrap)
} | {
    "numpy.trapz": trapezoid,
    "scipy.signal.convolve": signal_convolve,
    "scipy.integrate.trapezoid": trapezoid,
}
