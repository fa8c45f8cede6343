"""Traced integers as sizes: what is known of a loop's index, and slices whose bounds are traced.

Note [Indices as sizes]
A loop's index is a traced integer, and also an integer expression (*affine*) over a size symbol of its own, which stands for
the number of the trip. Sums and differences keep the expression. So ``x[i - 1 : i + 2]`` has three elements whatever ``i``
is, and ``x[i + 1]`` in ``range(n - 1)`` is known to be within ``x`` without a check. A traced integer of which nothing is known
is brought within the bounds by the rules of slicing, and what comes out is a length of its own. ``Trace.spans`` has the largest
value of each such symbol, which may depend on those of the loops around. A shape with one does not leave the block that defines
it.
"""

from __future__ import annotations

import itertools
from typing import Any

from pullback.frontends.array import Array
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.staging_spans import ceiling, surely
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Dim, Size, floordiv
from pullback.ir.types import Type, i64


# -- expressions ----------------------------------------------------------------------------------------------------
def counted(trace: Trace, trip: Array, trips: Size | Array) -> None:
    """Give the index of a loop (from 0) its symbol, within the loop's body; it is dropped again if nothing uses it."""
    end = affine(trips) if isinstance(trips, Array) else trips
    bound = None if end is None else ceiling(trace, end - 1)
    if end is not None and bound is not None:
        symbol = _fresh(trace)
        trace.here().length(trip.value, symbol=symbol, bound=bound)
        trace.spans[symbol] = end - 1
        trip.affine = Dim.symbol(symbol)


def _fresh(trace: Trace) -> str:
    symbol = next(s for s in (f"k{j}" for j in itertools.count()) if s not in trace.counts and s not in trace.hints)
    trace.counts.add(symbol)
    if trace.region is not None:
        trace.region.counts.add(symbol)
    return symbol


def affine(x: Any) -> Size | None:
    """The integer expression that a value is, over size symbols; None if that is not known."""
    if isinstance(x, Array):
        if x.affine is not None:
            return x.context.canonical(x.affine)
        return int(x.known) if x.known is not None and x.known.ndim == 0 and x.known.dtype.kind == "i" else None
    if isinstance(x, Length):
        return x.size
    return x if type(x) is int else None


def combined(name: str, left: Any, right: Any, result: Any) -> Any:
    """Note the expression of a sum, difference or product of integers."""
    if isinstance(result, Array) and result.known is None and (_indexed(left) or _indexed(right)):
        a, b = affine(left), affine(right)
        if a is not None and b is not None and name in _COMBINE:
            result.affine = _COMBINE[name](a, b)
    return result


def _indexed(x: Any) -> bool:
    return isinstance(x, Array) and x.affine is not None


_COMBINE: dict[str, Any] = {
    "numpy.add": lambda a, b: a + b,
    "numpy.subtract": lambda a, b: a - b,
    "numpy.multiply": lambda a, b: a * b,
}


# -- places and slices ----------------------------------------------------------------------------------------------
def within(trace: Trace, index: Array, length: Size) -> bool:
    """Whether an index is known to be from 0 to below the length of its axis."""
    place = affine(index)
    return place is not None and surely(trace, 0, place) and surely(trace, place + 1, length)


def place_of(trace: Trace, index: Array, axis: int, length: Size) -> Size:
    """An index as a start of a slice, checked unless it is known to be within the axis."""
    if within(trace, index, length):
        place = affine(index)
        assert place is not None
        return place
    value = checked(trace, index, axis, length)
    return length_of(trace, value, length)


def checked(trace: Trace, index: Array, axis: int, length: Size) -> Value:
    """An index that is within its axis, by a check where need be; the same one for the same index."""
    value = index.value if index.type.dtype is i64 else trace.here().convert(index.value, dtype="i64")
    if within(trace, index, length):
        return value
    key = ("checked", value, length)
    if key not in trace.memo:
        trace.memo[key] = trace.here().check_index(value, size=length, axis=axis)
    return trace.memo[key]


def length_of(trace: Trace, value: Value, bound: Size) -> Size:
    """A traced integer from 0 to ``bound`` as a size."""
    key = ("size", value)
    if key not in trace.memo:
        symbol = _fresh(trace)
        trace.here().length(value, symbol=symbol, bound=bound)
        trace.spans[symbol] = bound
        trace.memo[key] = Dim.symbol(symbol)
    return trace.memo[key]


def slice_of(trace: Trace, start: Any, stop: Any, step: int, length: Size) -> tuple[Size, Size, int]:
    """Start, size and step of a slice with traced bounds, by Python's rules of clamping."""
    if step > 0:
        low: Any = 0 if start is None else start
        high: Any = length if stop is None else stop
        p, q = (affine(x) if not isinstance(x, Dim) else x for x in (low, high))
        if p is not None and q is not None and surely(trace, 0, p) and surely(trace, p, q) and surely(trace, q, length):
            return p, floordiv(q - p + (step - 1), step), step
    b = trace.here()
    first = _clamped(trace, (0 if step > 0 else length - 1) if start is None else start, length, step, start is None)
    last = _clamped(trace, (length if step > 0 else -1) if stop is None else stop, length, step, stop is None)
    span = b.sub(last, first) if step > 0 else b.sub(first, last)
    zero, stride = b.const(0, i64), b.const(abs(step), i64)
    size = b.maximum(b.floordiv(b.add(span, b.const(abs(step) - 1, i64)), stride), zero)
    begin = b.maximum(first, zero)
    return length_of(trace, begin, length), length_of(trace, size, floordiv(length + (abs(step) - 1), abs(step))), step


def _clamped(trace: Trace, at: Any, length: Size, step: int, given: bool) -> Value:
    """A bound of a slice: negative ones count from the end, those beyond an end are that end."""
    b = trace.here()
    if given:
        return b.dim(at)
    value = b.dim(at) if isinstance(at, Dim) else wrap(at).value
    value = value if value.type == Type(i64) else b.convert(value, dtype="i64")
    size, zero, one = b.dim(length), b.const(0, i64), b.const(1, i64)
    wrapped = b.select(b.lt(value, zero), b.add(value, size), value)
    low, high = (zero, size) if step > 0 else (b.const(-1, i64), b.sub(size, one))
    return b.minimum(b.maximum(wrapped, low), high)
