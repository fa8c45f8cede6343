"""What a ``for`` loop runs over when its trips are counted by the compiled function: ranges, rows of arrays, and both combined.

A source knows its number of trips and the element of a trip, given by a number or by a traced index. Where it is iterated over
by Python itself (a comprehension, ``list``), its elements come one by one and the trace is bound to their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pullback.errors import TraceError
from pullback.frontends.array import UNROLL_LIMIT, Array
from pullback.frontends.library import call
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length, of_size
from pullback.frontends.staging_lists import as_stacked
from pullback.frontends.trace import Trace
from pullback.ir.dims import Size


class Source:
    """``trips``: an int, a symbolic size, or a traced integer."""

    def __init__(self, trace: Trace, trips: Size | Array):
        self.trace = trace
        self.trips = trips

    def at(self, trip: Any) -> Any:
        raise AssertionError("every source defines it")

    def __len__(self) -> int:
        if isinstance(self.trips, Array):
            raise self.trace.error(
                TraceError,
                "range() of a traced value: the number of trips is known only when the function runs",
                "loop over it with for, outside of comprehensions, or take the number from a shape: x.shape[0]",
            )
        return self.trace.number(self.trips, UNROLL_LIMIT)

    def __iter__(self) -> Iterator[Any]:
        return (self.at(k) for k in range(len(self)))


class Steps(Source):
    """``range(start, stop, step)`` of which something is traced or symbolic, or that is long."""

    def __init__(self, trace: Trace, start: Any, stop: Any, step: Any):
        self.start = start
        self.step = step
        super().__init__(trace, self._trips(trace, start, stop, step))

    @staticmethod
    def _trips(trace: Trace, start: Any, stop: Any, step: Any) -> Size | Array:
        """Negative where there are none, which the IR's ``for`` takes for zero."""
        if isinstance(step, (Array, Length)):
            trace.here().check(wrap(step != 0).value, message="range() arg 3 must not be zero")
            up, down = (stop - start + (step - 1)) // step, (start - stop - (step + 1)) // -step
            return call("numpy.where", (step > 0, up, down))
        if step == 0:
            raise ValueError("range() arg 3 must not be zero")
        span, stride = (stop - start, step) if step > 0 else (start - stop, -step)
        trips = span if stride == 1 else (span + (stride - 1)) // stride
        return trips.size if isinstance(trips, Length) else trips

    def at(self, trip: Any) -> Any:
        scaled = trip if type(self.step) is int and self.step == 1 else self.step * trip
        place = scaled if type(self.start) is int and self.start == 0 else self.start + scaled
        if isinstance(place, Array):
            place.weak = True  # ranges are of Python's integers
        return place


class Rows(Source):
    """The rows of an array, read as they are when their trip comes."""

    def __init__(self, array: Array):
        super().__init__(array.context, array.type.shape[0])
        self.array = array

    def at(self, trip: Any) -> Any:
        return self.array[trip]


class Numbered(Source):
    """``enumerate``."""

    def __init__(self, inner: Source, start: Any = 0):
        super().__init__(inner.trace, inner.trips)
        self.inner = inner
        self.start = start

    def at(self, trip: Any) -> Any:
        return self.start + trip, self.inner.at(trip)


class Zipped(Source):
    """``zip``: as long as the shortest."""

    def __init__(self, parts: Sequence[Source]):
        trace, trips = parts[0].trace, parts[0].trips
        for part in parts[1:]:
            trips = _least(trace, trips, part.trips)
        super().__init__(trace, trips)
        self.parts = parts

    def at(self, trip: Any) -> Any:
        return tuple(part.at(trip) for part in self.parts)


def _least(trace: Trace, a: Size | Array, b: Size | Array) -> Size | Array:
    if isinstance(a, Array) or isinstance(b, Array):
        sizes = [x if isinstance(x, Array) else of_size(trace, x) for x in (a, b)]
        return call("numpy.minimum", sizes)
    return a if trace.decide(a, "<=", b) else b


class Backward(Source):
    """``reversed``."""

    def __init__(self, inner: Source):
        super().__init__(inner.trace, inner.trips)
        self.inner = inner

    def at(self, trip: Any) -> Any:
        count = self.trips if isinstance(self.trips, Array) else of_size(self.trace, self.trips)
        return self.inner.at(count - 1 - trip)


def source_of(trace: Trace, x: Any) -> Source | None:
    """What can be counted: a source, a range, an array of rank 1 or more; None for whatever Python iterates over."""
    if isinstance(x, Source):
        return x
    if isinstance(x, range):
        return Steps(trace, x.start, x.stop, x.step)
    listed = as_stacked(x)
    if listed is not None:
        return Rows(listed.array)
    return Rows(x) if isinstance(x, Array) and x.ndim else None


def long(trace: Trace, x: Any, limit: int) -> Source | None:
    """A source of more trips than are written out one by one; None if there are few of them, or no source."""
    if isinstance(x, range) and len(x) <= limit:
        return None
    found = source_of(trace, x)
    return None if found is None or (isinstance(found.trips, int) and found.trips <= limit) else found
