"""Lists that a staged loop appends to: ``out.append(y)`` once in every trip fills an array.

Note [Growing lists]
In the loop and after it the list holds one :class:`Items`, which stands for all that were appended, and for those that it held
before; what is appended in a trip comes behind it. The array has room for all trips, so their number must be known when the
loop starts, and no trip may end the loop.
"""

from __future__ import annotations

from typing import Any

from pullback.frontends.array import Array
from pullback.frontends.sizes import of_size
from pullback.frontends.staging_lists import Items
from pullback.frontends.staging_tree import Group, Grown, Joiner, Node, Number, Out, emit
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.types import Type


def start(trace: Trace, grown: Grown, before: Node) -> Value:
    """The array as it is before the loop: with the items that there are."""
    buffer = Array(trace, trace.here().zeros(array_type(grown)))
    assert isinstance(before, Group)
    for k, part in enumerate(before.parts):
        buffer[k] = Array(trace, emit(trace, grown.out, part)[0])
    return buffer.value


def array_type(grown: Grown) -> Type:
    return grown.out.type.with_shape((grown.first + grown.trips, *grown.out.type.shape))


def held(trace: Trace, grown: Grown, value: Value, trip: Array | None) -> list[Any]:
    """What the list holds in a trip, or after the loop."""
    count = of_size(trace, grown.first + grown.trips) if trip is None else grown.first + trip
    return [Items(Array(trace, value, contiguous=True), count, grown.out.weak)]


def appended(trace: Trace, grown: Grown, param: Value, node: Node, trip: Array) -> Value:
    """The array at the end of a trip."""
    buffer = Array(trace, param)
    assert isinstance(node, Group)
    buffer[grown.first + trip] = Array(trace, emit(trace, grown.out, node.parts[-1])[0])
    return buffer.value


def growth(joiner: Joiner, entry: Node, after: Node, known: Grown | None, trips: Size) -> Grown | None:
    """Whether a trip appended one item to a list, and what all its items are; None if it did something else."""
    if not isinstance(entry, Group) or not isinstance(after, Group) or len(after.parts) != len(entry.parts) + 1:
        return None
    kept = all(a.original is b.original for a, b in zip(entry.parts, after.parts, strict=False))
    item = after.parts[-1]
    if not kept or not isinstance(item, Number):
        return None
    merge: Any = joiner.template(item)
    for part in [Number(known, None, known.out.type, known.out.weak)] if known is not None else entry.parts:
        merge = joiner.join(part, item) if isinstance(part, Number) and isinstance(merge, Out) else None
        item = Number(merge, None, merge.type, merge.weak) if isinstance(merge, Out) else item
    if not isinstance(merge, Out):
        return None
    return Grown(Out(merge.type, merge.weak), len(entry.parts) if known is None else known.first, trips)
