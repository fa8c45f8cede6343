"""``x[index]`` and ``x[index] = value`` by NumPy's rules: slices, integers, new axes, index arrays and masks, mixed.

A plan is made of the index once; it can read the selected elements from a value and write them into one. Slices, integers and
new axes give views; index arrays and masks give copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import DTypeError, ShapeError, TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library import plain
from pullback.frontends.library.elementwise import convert, truth
from pullback.frontends.library.shape import broadcast_value
from pullback.frontends.promote import broadcast_shape, spread, wrap
from pullback.frontends.sizes import Length, to_size
from pullback.frontends.staging_index import checked, place_of, slice_of
from pullback.frontends.staging_spans import is_computed, surely
from pullback.frontends.trace import Trace, current
from pullback.ir.core import Builder, Value
from pullback.ir.dims import Dim, Size, floordiv
from pullback.ir.types import Shape, Type, bool_, i64


# -- reading and storing --------------------------------------------------------------------------------------------
def get(array: Array, index: Any) -> Array:
    array = wrap(array)
    found = Plan.make(array, index)
    array.context.here()
    if found.is_view and found.rank:
        result = array.look(found.read, found.write, contiguous=found.leading and array.contiguous)
    else:
        result = Array(array.context, found.read(array.value), contiguous=True)
    numbers, places = array.known, plain(index)
    if numbers is not None and places is not plain.TRACED:
        result.known = np.asarray(numbers[places])
    return result


def store(array: Array, index: Any, value: Any, in_place: bool = False) -> None:
    """``in_place``: the value comes from ``x += y``, whose type may not be of a higher kind than the array's."""
    trace = array.context
    if trace is not current():
        raise current().error(
            TraceError,
            "an array of the enclosing function is changed in place by a function that is compiled in it",
            "return the new array",
        )
    new = wrap(value, "the stored value")
    trace.here()
    if array.source:
        array.assign(array.value)  # says why not
    if in_place and "bif".index(new.dtype_.kind) > "bif".index(array.dtype_.kind):
        raise trace.error(
            DTypeError,
            f"cannot cast the result from {new.dtype} to {array.dtype} in place",
            "write x = x + y, or convert with .astype",
        )
    if _stores_by_mask(array, index, new):
        mask = truth(index).value
        whole = spread(trace, _trailing(trace, mask, array.ndim), array.symbolic_shape)
        array.assign(trace.builder.select(whole, _spread(trace, convert(new, array.dtype_), array.symbolic_shape), array.value))
        return
    found = Plan.make(array, index)
    target = found.read_type(array.type)
    update = _spread(trace, convert(new, array.dtype_), target.shape)
    array.assign(found.write(array.value, update))


def accumulate(array: Array, index: Any, value: Any) -> None:
    """``np.add.at``: what is added at an index that comes twice counts twice."""
    trace = array.context
    if array.source:
        array.assign(array.value)  # says why not
    new = wrap(value)
    trace.here()
    found = Plan.make(array, index)
    update = _spread(trace, convert(new, array.dtype_), found.read_type(array.type).shape)
    array.assign(found.write(array.value, update, add=True))


def _stores_by_mask(array: Array, index: Any, new: Array) -> bool:
    """A scalar for the elements of a traced mask: a choice, without counting them."""
    return isinstance(index, Array) and index.dtype_ is bool_ and index.known is None and index.ndim > 0 and new.ndim == 0


def _trailing(trace: Trace, mask: Value, rank: int) -> Value:
    """A mask over the leading axes, with axes of length 1 behind."""
    extra = rank - mask.type.rank
    return trace.builder.reshape(mask, shape=(*mask.type.shape, *(1,) * extra)) if extra > 0 else mask


def _spread(trace: Trace, value: Value, shape: Shape) -> Value:
    """The stored value in the shape of its place; leading axes of length 1 are dropped as NumPy does."""
    while value.type.rank > len(shape) and value.type.shape[0] == 1:
        value = trace.builder.reshape(value, shape=value.type.shape[1:])
    if value.type.rank > len(shape):
        own, place = trace.shape_text(value.type.shape), trace.shape_text(shape)
        raise trace.error(ShapeError, f"could not broadcast input array from shape {own} into shape {place}")
    return broadcast_value(trace, value, shape)


# -- the plan -------------------------------------------------------------------------------------------------------
@dataclass
class Plan:
    """Start, size and step for each axis, where an integer index has size 1 and is dropped; the index arrays by axis."""

    trace: Trace
    starts: list[Size] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    gathered: dict[int, Value] = field(default_factory=dict)  # all of one shape
    layout: list[int | None] = field(
        default_factory=list
    )  # of the result: a position in (index axes + remaining axes), None: new axis
    whole: bool = True  # no slice cuts anything off
    leading: bool = False  # integers, then at most one slice: contiguous if the array is
    is_view: bool = True

    @staticmethod
    def make(array: Array, index: Any) -> Plan:
        return _Maker(array, index).plan

    @property
    def rank(self) -> int:
        return len(self.layout)

    def _canonical(self, sizes: Sequence[Size]) -> Shape:
        return tuple(self.trace.canonical(n) for n in sizes)

    # the stages of a read
    def _sliced(self, b: Builder, value: Value) -> Value:
        if self.whole:
            return value
        return b.slice(value, starts=self._canonical(self.starts), sizes=self._canonical(self.sizes), steps=tuple(self.steps))

    def _kept(self) -> list[int]:
        return [k for k in range(len(self.sizes)) if k not in self.dropped]

    def _front(self) -> tuple[int, ...] | None:
        """The permutation that brings the gathered axes to the front, of the axes that are kept."""
        kept = self._kept()
        order = [kept.index(k) for k in self.gathered] + [j for j, k in enumerate(kept) if k not in self.gathered]
        return None if order == list(range(len(kept))) else tuple(order)

    def _before_gather(self, b: Builder, value: Value) -> Value:
        value = self._sliced(b, value)
        if self.dropped:
            value = b.reshape(value, shape=tuple(value.type.shape[k] for k in self._kept()))
        front = self._front() if self.gathered else None
        return value if front is None else b.transpose(value, perm=front)

    def read(self, value: Value) -> Value:
        b = self.trace.builder
        value = self._before_gather(b, value)
        if self.gathered:
            value = b.gather(value, *self.gathered.values())
        perm = tuple(k for k in self.layout if k is not None)
        if perm != tuple(range(len(perm))):
            value = b.transpose(value, perm=perm)
        if None in self.layout:
            sizes = iter(value.type.shape)
            value = b.reshape(value, shape=tuple(1 if k is None else next(sizes) for k in self.layout))
        return value

    def read_type(self, type: Type) -> Type:
        """The type of what ``read`` gives, without building it."""
        shape = [self.trace.canonical(n) for k, n in enumerate(self.sizes) if k not in self.dropped and k not in self.gathered]
        if self.gathered:
            shape = [*next(iter(self.gathered.values())).type.shape, *shape]
        return type.with_shape(tuple(1 if k is None else shape[k] for k in self.layout))

    def write(self, value: Value, new: Value, add: bool = False) -> Value:
        """``value`` with the selected elements replaced, or with ``new`` added to them."""
        b = self.trace.builder
        if None in self.layout:
            new = b.reshape(new, shape=tuple(n for k, n in zip(self.layout, new.type.shape, strict=True) if k is not None))
        perm = tuple(k for k in self.layout if k is not None)
        if perm != tuple(range(len(perm))):
            new = b.transpose(new, perm=tuple(perm.index(k) for k in range(len(perm))))
        if self.gathered:
            put = b.scatter_add if add else b.scatter_set
            new = put(self._before_gather(b, value), *self.gathered.values(), new)
            front = self._front()
            if front is not None:
                new = b.transpose(new, perm=tuple(front.index(k) for k in range(len(front))))
        if self.dropped:
            new = b.reshape(new, shape=self._canonical(self.sizes))
        added = add and not self.gathered
        if self.whole:
            return b.add(value, new) if added else new
        return (b.slice_add if added else b.slice_set)(value, new, starts=self._canonical(self.starts), steps=tuple(self.steps))


class _Maker:
    """Reads an index expression into a plan."""

    def __init__(self, array: Array, index: Any):
        self.array = array
        self.trace = array.context
        self.trace.here()
        self.plan = Plan(self.trace)
        self.places: list[str] = []  # of the index in order: "array", "slice", "new", "int"
        entries = self._expand(index)
        self.arrays = any(isinstance(e, Array) and e.ndim for e in entries)
        scalars = any(isinstance(e, Array) and not e.ndim for e in entries)
        self.gathers = self.arrays or (scalars and _leading(entries))  # else a traced integer is the start of a slice
        self.axis = 0
        indices: dict[int, Array] = {}
        for entry in entries:
            self._entry(entry, indices)
        self._gather(indices)
        self._layout()
        kinds = [p for p in self.places if p not in ("new", "gap")]
        ints = len(list(itertools.takewhile(lambda p: p == "int", kinds)))
        rest = range(ints + 1, len(kinds))
        self.plan.leading = "array" not in kinds and all(self._full(k) for k in rest) and all(s == 1 for s in self.plan.steps)
        self.plan.is_view = not self.arrays

    def _full(self, axis: int) -> bool:
        plan = self.plan
        return (
            axis not in plan.dropped
            and plan.starts[axis] == 0
            and plan.steps[axis] == 1
            and plan.sizes[axis] == self._length(axis)
        )

    def _length(self, axis: int) -> Size:
        return self.array.symbolic_shape[axis]

    # -- entries ----------------------------------------------------------------------------------------------------
    def _expand(self, index: Any) -> list[Any]:
        """The entries, one for each axis or new axis: arrays wrapped, masks as index arrays, the ellipsis written out."""
        parts = list(index) if isinstance(index, tuple) else [index]
        parts = [self._as_entry(p) for p in parts]
        consumed = sum(p.ndim if self._is_mask(p) else 1 for p in parts if p is not None and p is not Ellipsis)
        missing = self.array.ndim - consumed
        if missing < 0:
            raise IndexError(f"too many indices for array: array is {self.array.ndim}-dimensional, but {consumed} were indexed")
        if sum(p is Ellipsis for p in parts) > 1:
            raise IndexError("an index can only have a single ellipsis ('...')")
        if not any(p is Ellipsis for p in parts):
            parts.append(Ellipsis)
        entries: list[Any] = []
        axis = 0
        for part in parts:
            if part is Ellipsis:
                entries += ["gap"] if missing == 0 else [slice(None)] * missing
                axis += missing
            elif self._is_mask(part):
                entries += self._of_mask(part, axis)
                axis += part.ndim
            else:
                entries.append(part)
                axis += part is not None
        return entries

    @staticmethod
    def _is_mask(part: Any) -> bool:
        return isinstance(part, Array) and part.dtype_ is bool_

    def _as_entry(self, part: Any) -> Any:
        if part is None or part is Ellipsis or isinstance(part, (slice, Length)):
            return part
        if isinstance(part, (bool, np.bool_)):
            raise self.trace.error(
                UnsupportedError, "an index of a single True or False is not supported", "use np.expand_dims"
            )
        if isinstance(part, (int, np.integer)):
            return int(part)
        if isinstance(part, list) and not part:
            return Array.constant(self.trace, np.zeros(0, np.int64))
        if not isinstance(part, (Array, list, tuple, np.ndarray)):
            raise IndexError(
                "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays "
                "are valid indices"
            )
        entry = wrap(part)
        if entry.dtype_.kind == "f":
            raise self.trace.error(
                TraceError,
                "arrays used as indices must be of integer (or boolean) type, got a float",
                "convert it: i.astype(int)",
            )
        if entry.ndim == 0 and entry.known is not None and entry.dtype_.kind == "i":
            return int(entry.known)
        return entry

    def _of_mask(self, mask: Array, axis: int) -> list[Array]:
        """A mask as one index array for each of its axes."""
        if mask.ndim == 0:
            raise self.trace.error(UnsupportedError, "a traced boolean scalar as an index is not supported", "use np.where")
        for k in range(mask.ndim):
            length, own = self._length(axis + k), mask.symbolic_shape[k]
            if length != own and not self.trace.equate(own, length):
                raise self.trace.error(
                    ShapeError,
                    f"boolean index did not match indexed array along axis {axis + k}; size of axis is {length} but size of "
                    f"corresponding boolean axis is {own}",
                )
        if mask.known is not None:
            return [Within.constant(self.trace, i) for i in np.nonzero(mask.known)]
        return mask_places(mask)

    def _entry(self, entry: Any, indices: dict[int, Array]) -> None:
        plan, axis = self.plan, self.axis
        if entry == "gap" if isinstance(entry, str) else False:
            self.places.append("gap")
            return
        if entry is None:
            self.places.append("new")
            return
        self.axis += 1
        length = self._length(axis)
        if isinstance(entry, slice):
            start, size, step = self._slice(entry, length)
            self.places.append("slice")
        elif not self.gathers:
            place = isinstance(entry, Array)
            start = place_of(self.trace, entry, axis, length) if place else self._integer(to_size(entry), axis, length)
            size, step = 1, 1
            plan.dropped.append(axis)
            self.places.append("int")
        else:
            start, size, step = 0, length, 1
            indices[axis] = wrap(entry)
            self.places.append("array")
        plan.starts.append(start)
        plan.sizes.append(size)
        plan.steps.append(step)
        plan.whole = plan.whole and start == 0 and step == 1 and size == length

    def _integer(self, at: Size, axis: int, length: Size) -> Size:
        decide = self.trace.decide
        if isinstance(at, int) and isinstance(length, int):
            if not -length <= at < length:
                raise IndexError(f"index {at} is out of bounds for axis {axis} with size {length}")
            return at % length
        if is_computed(self.trace, length - at):
            place = at + length if surely(self.trace, at, -1) else at
            known = surely(self.trace, 0, place) and surely(self.trace, place + 1, length)
            return place if known else place_of(self.trace, Array.of_size(self.trace, at), axis, length)
        negative = at < 0 if isinstance(at, int) else decide(at, "<", 0)
        place = at + length if negative else at
        if not (decide(0, "<=", place) and decide(place, "<", length)):
            number = self.trace.hint(length) if isinstance(length, Dim) else length
            raise IndexError(f"index {at} is out of bounds for axis {axis} with size {number}")
        return place

    def _bound(self, bound: Any) -> Size | Array | None:
        if isinstance(bound, Array):
            if bound.known is not None:
                return int(bound)
            if bound.ndim or bound.dtype_.kind == "f":
                raise TypeError("slice indices must be integers or None or have an __index__ method")
            return bound
        return None if bound is None else to_size(bound)

    def _slice(self, entry: slice, length: Size) -> tuple[Size, Size, int]:
        """Start, size and step; clamping is decided for the lengths at hand."""
        start, stop, step = self._bound(entry.start), self._bound(entry.stop), self._bound(entry.step)
        if isinstance(step, Array):
            raise self.trace.error(TraceError, "the step of a slice is a traced value", "use a static step, or an index array")
        stride = 1 if step is None else self.trace.number(step)
        if stride == 0:
            raise ValueError("slice step cannot be zero")
        if start is None and stop is None and stride == 1:
            return 0, length, 1
        bounds = [x for x in (start, stop, length) if x is not None]
        if any(isinstance(x, Array) or is_computed(self.trace, x) for x in bounds):
            return slice_of(self.trace, start, stop, stride, length)
        assert not isinstance(start, Array)
        assert not isinstance(stop, Array)
        if isinstance(length, int) and not isinstance(start, Dim) and not isinstance(stop, Dim):
            found = range(*slice(start, stop, stride).indices(length))
            return (found.start if len(found) else 0), len(found), stride if len(found) else 1
        if stride > 0:
            low = 0 if start is None else self._clamp(start, length, 0, length)
            high = length if stop is None else self._clamp(stop, length, 0, length)
            span = high - low
        else:
            low = length - 1 if start is None else self._clamp(start, length, -1, length - 1)
            high = -1 if stop is None else self._clamp(stop, length, -1, length - 1)
            span = low - high
        if not self.trace.decide(0, "<=", span):
            return 0, 0, 1
        return low, floordiv(span + (abs(stride) - 1), abs(stride)), stride

    def _clamp(self, at: Size, length: Size, lowest: Size, highest: Size) -> Size:
        decide = self.trace.decide
        negative = at < 0 if isinstance(at, int) else decide(at, "<", 0)
        if negative:
            at = at + length
            return at if decide(lowest if lowest == 0 else 0, "<=", at) else lowest
        return at if decide(at, "<=", highest) else highest

    # -- index arrays -----------------------------------------------------------------------------------------------
    def _gather(self, indices: dict[int, Array]) -> None:
        """Check the indices against their axes and bring them to one shape."""
        if not indices:
            return
        b = self.trace.builder
        shape = broadcast_shape(self.trace, [i.symbolic_shape for i in indices.values()])
        for axis, index in indices.items():
            value = self._checked(b, index, axis)
            self.plan.gathered[axis] = spread(self.trace, value, shape)

    def _checked(self, b: Builder, index: Array, axis: int) -> Value:
        length = self._length(axis)
        if isinstance(index, Within):
            return index.value
        if index.known is not None and isinstance(length, int):
            wrong = (index.known < -length) | (index.known >= length)
            if wrong.any():
                bad = index.known[wrong].flat[0] if index.known.ndim else index.known
                raise IndexError(f"index {int(bad)} is out of bounds for axis {axis} with size {length}")
            return b.const(np.where(index.known < 0, index.known + length, index.known), i64)
        return checked(self.trace, index, axis, length)

    def _layout(self) -> None:
        """Where the axes of the index arrays go: where the arrays stand if they stand together, else to the front."""
        plan = self.plan
        gathered = next(iter(plan.gathered.values())).type.rank if plan.gathered else 0
        at = [k for k, p in enumerate(self.places) if p == "array"]
        together = not at or at == list(range(at[0], at[-1] + 1))
        layout: list[int | None] = [] if together else list(range(gathered))
        rest = gathered
        for k, place in enumerate(self.places):
            if place == "array" and together and k == at[0]:
                layout += range(gathered)
            elif place == "new":
                layout.append(None)
            elif place == "slice":
                layout.append(rest)
                rest += 1
        plan.layout = layout


def _leading(entries: Sequence[Any]) -> bool:
    """Whether integers come first, and whole axes after them."""
    places = [e for e in entries if not (e is None or isinstance(e, str))]
    first = itertools.dropwhile(lambda e: not isinstance(e, slice), places)
    return all(isinstance(e, slice) and (e.start, e.stop, e.step) == (None, None, None) for e in first)


class Within(Array):
    """An index that cannot leave its axis."""

    __slots__ = ()


def mask_places(mask: Array) -> list[Array]:
    """The indices, axis by axis, at which a traced mask holds. The number of them is a length that the mask defines."""
    trace = mask.context
    b = trace.here()
    places = trace.nonzero(mask.value)
    if mask.ndim == 1:
        return [Within(trace, places)]
    found: list[Array] = []
    for length in reversed(mask.symbolic_shape):
        size = b.spread(b.dim(length), places.type.shape)
        found.append(Within(trace, b.mod(places, size)))
        places = b.floordiv(places, size)
    return found[::-1]
