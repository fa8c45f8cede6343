"""The state around a branch or a loop that is being staged: what its blocks start from, what they change, what comes after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pullback.errors import ShapeError, TraceError
from pullback.frontends.array import Array
from pullback.frontends.promote import wrap
from pullback.frontends.staging_region import Region
from pullback.frontends.staging_tree import (
    DEAD,
    UNBOUND,
    Group,
    Joiner,
    Keep,
    Lack,
    Lost,
    Merge,
    Missing,
    Node,
    Number,
    Out,
    Sides,
    contents,
    describe,
    outs,
)
from pullback.frontends.staging_world import World, fill
from pullback.frontends.trace import Trace
from pullback.ir.core import Loc, Value
from pullback.ir.types import bool_

State: TypeAlias = dict[str, Any]
Slot: TypeAlias = tuple[str, Any]  # ("name", n), ("content", id of a container) or ("array", id of an array)


class Unreachable(Exception):
    """The block that is being traced ends in a check that fails."""


def use(trace: Trace, value: Any) -> Any:
    """The value of a variable that is read; an error where it has none."""
    if isinstance(value, Lack):
        raise value.refuse(trace)
    return value


def boolean(trace: Trace, condition: Any, text: str) -> Value:
    """A condition as the IR wants it: one boolean. NumPy's error for arrays of several elements."""
    array = wrap(condition)
    b = trace.here()
    if array.type.size != 1:
        raise trace.error(
            ShapeError,
            f"the condition of {text} has shape {trace.shape_text(array.symbolic_shape)}: "
            "the truth value of an array with more than one element is ambiguous",
            "use np.any(...) or np.all(...)",
        )
    value = array.value if not array.ndim else b.reshape(array.value, shape=())
    return value if value.type.dtype is bool_ else b.ne(value, b.zeros(value.type))


@dataclass(slots=True)
class Outcome:
    """What a block did: its region, and a node for each place that it changed. ``dead``: its end is never reached.

    ``written``: nodes of places that hold what they held, arrays that were written to; for where another block changes them.
    """

    region: Region
    nodes: dict[Slot, Node] = field(default_factory=dict)
    written: dict[Slot, Node] = field(default_factory=dict)
    dead: bool = False

    def node(self, slot: Slot, before: Node) -> Node:
        return DEAD if self.dead else self.nodes.get(slot) or self.written.get(slot, before)


class Stage:
    """One construct. ``optional``, ``roots`` and ``text`` as in :mod:`pullback.frontends.staging`."""

    def __init__(self, trace: Trace, state: Mapping[str, Any], roots: Sequence[Any], optional: Collection[str], text: str):
        self.trace = trace
        self.world = World(state, roots)
        self.state = self.world.state
        self.optional = optional
        self.text = text
        self.loc: Loc = trace.where()
        self.what = f"{text} at {self.loc}" if self.loc.line else text
        self.assumed: set[str] = set()  # variables that hold something else at the start of a block than around it
        self.arrays: dict[int, Array] = {}  # those that blocks wrote to
        self.doubtful: dict[int, tuple[Array, str]] = {}  # those that a variable may or may not stand for, and why

    # -- blocks -----------------------------------------------------------------------------------------------------
    def run(self, region: Region, enter: Callable[[], State], block: Callable[[State], State]) -> Outcome:
        """Trace a block in its region from the state that ``enter`` makes there, read what it changed and undo it."""
        outcome = Outcome(region)
        with region:
            try:
                before = enter()
                region.written.clear()  # to which the parameters belong
                after = block(dict(before))
            except Unreachable:
                outcome.dead = True
            else:
                self._read(outcome, before, after)
            finally:
                self.world.restore()
            region.undo()
        self.doubtful.update(region.doubted)
        self.trace.pending.append(region)
        return outcome

    def _read(self, outcome: Outcome, before: State, after: State) -> None:
        for name, value in after.items():
            self._note(outcome, ("name", name), value, value is not before.get(name, UNBOUND))
            if name in self.assumed:
                outcome.written[("name", name)] = describe(self.trace, value)
        changes = self.world.changes()
        for key, (_, first) in self.world.containers.items():
            if key in changes and isinstance(first, set):
                raise self.trace.error(TraceError, f"{self.what} changes a set", "use a list or an array")
            self._note(outcome, ("content", key), changes.get(key, first), key in changes)
        for key, array in outcome.region.written.items():
            self.arrays[key] = array
            outcome.nodes["array", key] = self.held(array)

    def _note(self, outcome: Outcome, slot: Slot, value: Any, changed: bool) -> None:
        if changed:
            outcome.nodes[slot] = describe(self.trace, value)
        elif _holds_written(value, outcome.region):
            outcome.written[slot] = describe(self.trace, value)

    # -- places -----------------------------------------------------------------------------------------------------
    def before(self, slot: Slot) -> Node:
        """What a place holds before the construct."""
        kind, key = slot
        if kind == "name":
            return describe(self.trace, self.state.get(key, UNBOUND))
        if kind == "content":
            return describe(self.trace, self.world.containers[key][1])
        return self.held(self.arrays[key])

    @staticmethod
    def held(array: Array) -> Number:
        """What an array that is written to holds now."""
        return Number(array.value, array, array.type, False, array.value)

    def name(self, slot: Slot) -> str:
        """A place in a message."""
        kind, key = slot
        if kind == "name":
            return str(key)
        found = self.world.containers[key][0] if kind == "content" else self.arrays[key]
        holder = next((name for name, value in self.state.items() if value is found), "")
        return holder or (f"a {type(found).__name__}" if kind == "content" else "an array")

    def joiner(self, slot: Slot, sides: Sides, regions: Sequence[Region]) -> Joiner:
        counts = {name for region in regions for name in region.counts}
        filled = slot[0] == "name" and slot[1] in self.optional
        return Joiner(self.trace, self.name(slot), sides, filled, counts)

    def place(self, slot: Slot, value: Any, state: State) -> None:
        """Put a value where it belongs: into the state, a container or an array."""
        kind, key = slot
        if kind == "name":
            state[key] = value
        elif isinstance(value, Lack):
            raise value.refuse(self.trace)  # a container has no place for a value that is not certain
        elif kind == "content":
            fill(self.world.containers[key][0], value)
        else:
            array, region = self.arrays[key], self.trace.region
            array.put(value.value if isinstance(value, Array) else value)  # or what every way leaves in it
            if region is not None and array.region is not region:
                region.written[key] = array

    # -- one array under two names ----------------------------------------------------------------------------------
    def protect(self, merges: dict[Slot, Merge], outcomes: Sequence[Outcome], before: Mapping[Slot, Node]) -> bool:
        """See to it that nothing is written through a name that may or may not stand for an array; whether a merge changed.

        An array from outside that a variable stands for on one way becomes, like the variable, read-only: whether a write
        through the one would be seen through the other depends on data. A view of such an array is lost instead, since it is
        seldom meant to be used later. Two variables that stand for one new array are read-only too.
        """
        new: dict[int, set[Slot]] = {}
        changed = False
        for slot in [s for s in merges if s[0] != "array"]:
            known = [number.array for number in numbers(before[slot])]
            for outcome in outcomes:
                for number in numbers(outcome.node(slot, before[slot])):
                    array = number.array
                    if array is None or not _writable(number, array):
                        continue
                    if array.root.region is outcome.region:
                        new.setdefault(id(array.root), set()).add(slot)
                    elif not any(array is a for a in known):
                        changed |= self._lose(merges, slot) if array.alias is not None else self.doubt(merges, slot, array)
                    elif self.world.holders[id(array.root)] > 1:  # another name stands for it, or looks into it
                        changed |= self.doubt(merges, slot, array.root)
        for slots in new.values():
            if len(slots) > 1:
                for slot in slots:
                    changed |= self.share(merges, slot)
        return changed

    def share(self, merges: dict[Slot, Merge], slot: Slot) -> bool:
        """Make what comes of a place read-only."""
        new = _with_shared(merges[slot], self._ambiguous(slot))
        changed = new is not merges[slot]
        merges[slot] = new
        return changed

    def _ambiguous(self, slot: Slot) -> str:
        return f"{self.name(slot)!r} may be one array or another after {self.what}; writing to either is ambiguous"

    def doubt(self, merges: dict[Slot, Merge], slot: Slot, array: Array) -> bool:
        if any(True for _ in outs(merges[slot])):
            self.doubtful[id(array)] = (array, self._ambiguous(slot))
        return self.share(merges, slot)

    def _lose(self, merges: dict[Slot, Merge], slot: Slot) -> bool:
        if isinstance(merges[slot], (Lost, Keep)):
            return False
        message = f"{self.name(slot)!r} looks into another array, or into none, after {self.what}"
        merges[slot] = Lost(message, "copy where it is made: .copy()")
        return True

    def freeze(self) -> None:
        """Once all is settled: arrays from outside that a variable may stand for are read-only from here on."""
        for key, (array, reason) in self.doubtful.items():
            if key in self.arrays:
                raise self.trace.error(TraceError, reason, "write to a copy: y = x.copy()")
            array.doubt(reason)


def _holds_written(x: Any, region: Region) -> bool:
    """Whether an array in a value may hold something else than when the block began."""
    if isinstance(x, Array):
        return x.root.region is region or id(x.root) in region.written
    return any(_holds_written(part, region) for part in contents(x)[1])


def _writable(number: Number, array: Array) -> bool:
    return bool(number.type.rank or array.mutable_scalar) and not array.root.source


def numbers(node: Node) -> Iterator[Number]:
    if isinstance(node, Number):
        yield node
    elif isinstance(node, Group):
        for part in node.parts:
            yield from numbers(part)
    elif isinstance(node, Missing) and node.given is not None:
        yield from numbers(node.given)


def _with_shared(merge: Merge, text: str) -> Merge:
    if isinstance(merge, Out) and not merge.shared and merge.type.rank:
        return Out(merge.type, merge.weak, merge.source, text)
    if isinstance(merge, Group):
        parts = tuple(_with_shared(part, text) for part in merge.parts)
        same = all(a is b for a, b in zip(parts, merge.parts, strict=True))
        return merge if same else Group(merge.original, merge.keys, parts)
    return merge
