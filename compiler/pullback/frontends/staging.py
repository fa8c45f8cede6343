"""Branches and loops on traced values: Python blocks become blocks of the IR's ``if``, ``for`` and ``while``.

This is the core that the frontends share; it knows nothing of syntax. A frontend hands over its variables as a *state*, a dict
from names to Python values (traced arrays, numbers, trees of them, anything; :data:`UNBOUND` for a name without a value), and
each block as a function that takes a state and returns the state after it. ::

    stage_if(trace, condition, then, other, state) -> state
        condition: a traced scalar;  then, other: (state) -> state
    stage_while(trace, test, body, state, stop="") -> state
        test: (state) -> condition (traced, or a bool where it is always one);  body: (state) -> state
    stage_for(trace, trips, body, state, stop="", certain=False) -> state
        trips: an int, a Size or a traced i64 scalar;  body: (state, trip) -> state, ``trip`` a traced i64 from 0

All take ``optional``, names whose value does not matter where they have none (a value that is returned later, say), ``roots``,
other Python values that the blocks can reach and change (variables of callers), and ``text``, what the construct is called in
messages ("the loop"). ``stop`` is the name of a variable that ends a loop when it has become true: ``break`` is written so.
``certain`` says (when asked) whether a loop makes at least one trip: a variable that every trip sets has a value afterwards.

A block may be traced several times, and what it did to the state's lists, dicts, objects and arrays is undone each time: it
must have no effect besides. Afterwards, each array that a block wrote to holds the result, whoever refers to it; each variable
that a block set has a fresh value. Types of carried variables are those in which the value before the loop and that of every
trip meet by NumPy's rules. A variable for which there is no such type, or that has a value on one way only, holds a
:class:`Lack` afterwards: :func:`use` raises the error that says why. Blocks that raise :class:`Unreachable` (after emitting the
``check`` that fails) end there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.errors import TraceError
from pullback.frontends.array import Array
from pullback.frontends.staging_core import Outcome, Slot, Stage, State, Unreachable, boolean, numbers, use
from pullback.frontends.staging_growth import appended, array_type, growth, held, start
from pullback.frontends.staging_index import counted
from pullback.frontends.staging_region import Region
from pullback.frontends.staging_tree import (
    DEAD,
    UNBOUND,
    Group,
    Grown,
    Guarded,
    Keep,
    Lack,
    Lost,
    Merge,
    Missing,
    Node,
    Out,
    Sides,
    Unbound,
    build,
    describe,
    emit,
    ghost,
    given,
    outs,
    same_merge,
    set_with,
)
from pullback.frontends.trace import Trace
from pullback.ir.core import Block, Builder, Value
from pullback.ir.dims import Size
from pullback.ir.ops import OPS
from pullback.ir.types import Type, bool_, i64

__all__ = ["UNBOUND", "Lack", "Stage", "State", "Unreachable", "boolean", "stage_for", "stage_if", "stage_while", "use"]
MAX_PASSES = 12  # of a loop's body until the types of what it carries are settled; each pass can only widen them


def stage_if(
    trace: Trace,
    condition: Any,
    then: Callable[[State], State],
    other: Callable[[State], State],
    state: Mapping[str, Any],
    *,
    optional: Collection[str] = (),
    roots: Sequence[Any] = (),
    text: str = "the if",
) -> State:
    """Both arms are traced; the state after them is what the condition chooses when the function runs."""
    stage = Stage(trace, state, roots, optional, text)
    chosen = boolean(trace, condition, text)
    waiting = len(trace.pending)
    try:
        certain = _certain_in(stage, chosen)
        arms = [
            stage.run(Region(trace, stage.what), lambda values=values: {**stage.state, **values}, arm)  # type: ignore[misc]  # bound now
            for arm, values in zip((then, other), certain, strict=True)
        ]
        slots = list(dict.fromkeys(slot for arm in arms for slot in arm.nodes))
        before = {slot: stage.before(slot) for slot in slots}
        sides = Sides("in one arm", "in the other arm", f"of {stage.what}", "has a value in one arm only")
        merges: dict[Slot, Merge] = {}
        for slot in slots:
            joiner = stage.joiner(slot, sides, [arm.region for arm in arms])
            nodes = [arm.node(slot, before[slot]) for arm in arms]
            merges[slot] = joiner.join(nodes[0], nodes[1])
        guards = _guarded(stage, merges, arms, before)
        stage.protect(merges, arms, before)
        stage.freeze()
        blocks = []
        for arm in arms:
            with arm.region as region:
                region.builder.loc = stage.loc
                values = [v for slot in slots for v in emit(trace, merges[slot], arm.node(slot, before[slot]))]
                blocks.append(region.builder.close("yield", values))
    finally:
        del trace.pending[waiting:]
    trace.builder.loc = stage.loc
    results = iter(trace.builder.emit(OPS["if"], (chosen,), blocks=blocks))
    after = dict(stage.state)
    for slot, merge in merges.items():
        stage.place(slot, build(trace, merge, results, stage.name(slot)), after)
    for name, (flag, lack) in guards.items():
        after[name] = Guarded(lack, flag, after[flag], after[name])
    if all(arm.dead for arm in arms):
        raise Unreachable
    return after


def _certain_in(stage: Stage, chosen: Value) -> tuple[State, State]:
    """What is certain in the two arms where the condition is a flag, or the opposite of one: the flag, and what it guards."""
    body = stage.trace.builder.body
    opposite = next((i.args[0] for i in reversed(body) if i.op.name == "logical_not" and chosen in i.outs), None)
    found: tuple[State, State] = ({}, {})
    for name, value in stage.state.items():
        flag = value.holds.value if isinstance(value, Guarded) and isinstance(value.holds, Array) else None
        if flag is not None and flag in (chosen, opposite):
            found[flag is opposite].update({name: value.value, value.flag: True})
            found[flag is not opposite].update({name: UNBOUND, value.flag: False})
    stage.assumed.update(found[0])
    return found


def _guarded(
    stage: Stage, merges: dict[Slot, Merge], arms: Sequence[Outcome], before: Mapping[Slot, Node]
) -> dict[str, tuple[str, Lack]]:
    """Lost variables that have a value just where a flag that the arms set is true; they get a merge after all."""
    found: dict[str, tuple[str, Lack]] = {}
    flags = [slot for slot in merges if slot[0] == "name" and isinstance(merges[slot], (Out, Keep))]
    for slot, merge in list(merges.items()):
        if slot[0] != "name" or not isinstance(merge, Lost):
            continue
        for flag in flags:
            nodes = [(arm.node(slot, before[slot]), arm.node(flag, before[flag])) for arm in arms]
            if all(set_with(node, value) for node, value in nodes) and any(given(n) is not DEAD for n, _ in nodes):
                sides = Sides("in one arm", "in the other arm", f"of {stage.what}", "")
                joiner = stage.joiner(slot, sides, [arm.region for arm in arms])
                joiner.filled = True
                joined = joiner.join(given(nodes[0][0]), given(nodes[1][0]))
                if not isinstance(joined, Lost):
                    merges[slot] = joined
                    found[slot[1]] = (flag[1], Lack(slot[1], merge.message, merge.remedy))
                break
    return found


def stage_while(
    trace: Trace,
    test: Callable[[State], Any],
    body: Callable[[State], State],
    state: Mapping[str, Any],
    *,
    stop: str = "",
    optional: Collection[str] = (),
    roots: Sequence[Any] = (),
    text: str = "the loop",
) -> State:
    stage = Stage(trace, state, roots, optional, text)
    return Loop(stage, lambda inner, trip: body(inner), test, None, stop, lambda: False).staged()


def stage_for(
    trace: Trace,
    trips: Array | Size,
    body: Callable[[State, Array], State],
    state: Mapping[str, Any],
    *,
    stop: str = "",
    certain: bool | Callable[[], bool] = False,
    optional: Collection[str] = (),
    roots: Sequence[Any] = (),
    text: str = "the loop",
) -> State:
    stage = Stage(trace, state, roots, optional, text)
    return Loop(stage, body, None, trips, stop, certain if callable(certain) else lambda: bool(certain)).staged()


@dataclass(slots=True)
class Pass:
    """One tracing of a loop: what it carries, the parameters of its body, and what that did."""

    carried: dict[Slot, Merge]
    late: frozenset[Slot]  # places that have no value until a trip sets them
    params: dict[Slot, list[Value]] = field(default_factory=dict)
    entry: dict[Slot, Node] = field(default_factory=dict)  # what they are in the body
    counter: Value | None = None
    trip: Any = None
    test: Outcome | None = None
    body: Outcome | None = None


class Loop:
    """Finds what a loop carries, and in which types, by tracing it until nothing changes; then emits it.

    A loop over a number of trips that can be stopped (``break``) is a ``while`` that counts.
    """

    def __init__(
        self,
        stage: Stage,
        body: Callable[[State, Any], State],
        test: Callable[[State], Any] | None,
        trips: Array | Size | None,
        stop: str,
        certain: Callable[[], bool],
    ):
        self.stage = stage
        self.trace = stage.trace
        self.body = body
        self.test = test
        self.trips = trips
        self.bound: Value | None = None
        if trips is not None:
            self.bound = trips.value if isinstance(trips, Array) else stage.trace.here().dim(trips)
        self.stop = stop
        self.certain = certain
        self.is_while = trips is None or stage.state.get(stop, False) is not False
        self.guarded: dict[Slot, Lack] = {}  # places that have a value just where the loop was stopped
        self.open = False  # whether nothing but a stop ends it
        self.never = False  # whether there is no trip at all
        self.endless = False  # whether nothing can end it
        self.sides = Sides("before", "after a trip", f"of {stage.what}", "gets its first value in a trip")
        self.before: dict[Slot, Node] = {}

    def staged(self) -> State:
        waiting = len(self.trace.pending)
        try:
            found = self._settled()
            if found is None:
                return dict(self.stage.state)
            if self.endless:
                raise self.trace.error(TraceError, f"{self.stage.what} never ends", "end it by its condition or by break")
            self.stage.freeze()
            blocks = self._blocks(found)
        finally:
            del self.trace.pending[waiting:]
        builder = self.trace.builder
        builder.loc = self.stage.loc
        first = [v for slot, merge in found.carried.items() for v in self._start(slot, merge)]
        if not self.is_while:
            assert self.bound is not None
            results = builder.emit(OPS["for"], (self.bound, *first), blocks=blocks)
        else:
            count = () if self.trips is None else (builder.const(0, i64),)
            results = builder.emit(OPS["while"], (*count, *first), blocks=blocks)[len(count) :]
        after = dict(self.stage.state)
        values = iter(results)
        for slot, merge in found.carried.items():
            name = self.stage.name(slot)
            grown = held(self.trace, merge, next(values), None) if isinstance(merge, Grown) else None
            self.stage.place(slot, grown or build(self.trace, merge, values, name), after)
        if self.open:
            after[self.stop] = True
        for slot, lack in self.guarded.items():
            if not self.open and not isinstance(found.carried[slot], Lost):
                after[slot[1]] = Guarded(lack, self.stop, after[self.stop], after[slot[1]])
        return after

    def _start(self, slot: Slot, merge: Merge) -> list[Value]:
        before = self.before[slot]
        return [start(self.trace, merge, before)] if isinstance(merge, Grown) else emit(self.trace, merge, before)

    # -- the fixpoint -----------------------------------------------------------------------------------------------
    def _settled(self) -> Pass | None:
        """The pass that ends in the types that it started from; None if there are no trips."""
        now = Pass({}, frozenset())
        for _ in range(MAX_PASSES):
            waiting, kind = len(self.trace.pending), self.is_while
            self._trace(now)
            if self.never:
                return None
            carried, late = self._meet(now)
            settled = kind == self.is_while and late == now.late and carried.keys() == now.carried.keys()
            settled = settled and all(same_merge(self.trace, carried[s], now.carried[s]) for s in carried)
            if settled and not self._protected(carried, now):
                return now
            del self.trace.pending[waiting:]
            now = Pass(carried, late)
        raise self.trace.error(
            TraceError, f"the types of the variables of {self.stage.what} do not settle", "give them the types they get before"
        )

    def _trace(self, now: Pass) -> None:
        stage = self.stage
        self.stage.doubtful.clear()
        if self.is_while:
            region = Region(self.trace, stage.what)
            entry: dict[Slot, Node] = {}

            def enter_test() -> State:
                state, _, found = self._enter(region, now)
                entry.update(found)
                return state

            now.test = stage.run(region, enter_test, lambda state: self._condition(now, region, state))
            for slot, node in now.test.nodes.items():
                if slot not in entry or not _same_parts(node, entry[slot]):
                    message = f"the condition of {stage.what} changes {stage.name(slot)!r}"
                    raise self.trace.error(TraceError, message, "change it in the body")
            if self.never:
                return
        region = Region(self.trace, stage.what)

        def enter() -> State:
            state, now.params, now.entry = self._enter(region, now)
            if self.stop and state.get(self.stop) is not True:
                state[self.stop] = False  # in a trip
            return state

        now.body = stage.run(region, enter, lambda state: self.body(state, self._trip(now)))

    def _enter(self, region: Region, now: Pass) -> tuple[State, dict[Slot, list[Value]], dict[Slot, Node]]:
        """Parameters for what is carried, put into place; the state, and what is carried as nodes."""
        state = dict(self.stage.state)
        params: dict[Slot, list[Value]] = {}
        entry: dict[Slot, Node] = {}
        if self.trips is not None:
            now.counter = Value("i", Type(i64))
            region.params.append(now.counter)
        for slot, merge in now.carried.items():
            name = self.stage.name(slot)
            if isinstance(merge, Grown):
                params[slot] = [Value(name if name.isidentifier() else "", array_type(merge))]
                region.params += params[slot]
                content = held(self.trace, merge, params[slot][0], self._trip(now))
                self.stage.place(slot, content, state)
                entry[slot] = describe(self.trace, content)
                continue
            shapes = [self.trace.canonical_shape(out.type.shape) for out in outs(merge)]
            types = [out.type.with_shape(shape) for out, shape in zip(outs(merge), shapes, strict=True)]
            params[slot] = [Value(name if name.isidentifier() else "", type) for type in types]
            region.params += params[slot]
            if slot in now.late:
                entry[slot] = ghost(merge)
                continue
            value = build(self.trace, merge, iter(params[slot]), name)
            self.stage.place(slot, value, state)
            entry[slot] = self.stage.held(self.stage.arrays[slot[1]]) if slot[0] == "array" else describe(self.trace, value)
        return state, params, entry

    def _trip(self, now: Pass) -> Any:
        if now.counter is None or self.trips is None:
            return None
        if now.trip is None or now.trip.region is not self.trace.region:
            now.trip = Array(self.trace, now.counter, weak=True)
            counted(self.trace, now.trip, self.trips)
        return now.trip

    def _condition(self, now: Pass, region: Region, state: State) -> State:
        """Trace the condition of a ``while``; the block yields it."""
        b = self.trace.here()
        stopped = state.get(self.stop, False)
        stopped = boolean(self.trace, stopped, "break") if isinstance(stopped, Array) else stopped
        answer: Any
        if stopped is True:
            answer = False
        elif self.trips is not None:
            assert now.counter is not None
            answer = b.lt(now.counter, self.bound)
            answer = b.logical_and(answer, b.logical_not(stopped)) if isinstance(stopped, Value) else answer
        elif isinstance(stopped, Value):
            answer = self._unless(stopped, state)
        else:
            answer = self._tested(state)
        first = not now.carried
        if answer is True and first:
            self.certain = lambda: True
        self.never, self.endless = answer is False and first, answer is True
        region.builder.close("yield", (b.const(answer, bool_) if isinstance(answer, bool) else answer,))
        return state

    def _tested(self, state: State) -> Value | bool:
        assert self.test is not None
        answer = self.test(state)
        if isinstance(answer, Array) and answer.known is None:
            return boolean(self.trace, answer, self.stage.text)
        return bool(answer)

    def _unless(self, stopped: Value, state: State) -> Value:
        """The condition where the loop was not stopped; what it computes is not to be done where it was."""
        trace, outer = self.trace, self.trace.builder
        inner = trace.builder = Builder(outer)
        try:
            answer = self._tested(state)
        finally:
            trace.builder = outer
        self.open = answer is True
        if isinstance(answer, bool):
            return outer.logical_not(stopped) if answer else outer.const(False, bool_)
        yes = Builder(outer)
        blocks = (yes.close("yield", (yes.const(False, bool_),)), inner.close("yield", (answer,)))
        return outer.emit(OPS["if"], (stopped,), blocks=blocks)[0]

    def _meet(self, now: Pass) -> tuple[dict[Slot, Merge], frozenset[Slot]]:
        """What is carried, in types that hold it before the loop and after this trip."""
        assert now.body is not None
        carried: dict[Slot, Merge] = {}
        late = set(now.late)
        for slot in dict.fromkeys((*now.carried, *now.body.nodes)):
            known = now.carried.get(slot)
            if isinstance(known, Lost):
                carried[slot] = known
                continue
            if slot not in self.before:
                self.before[slot] = self.stage.before(slot)
            entry = now.entry.get(slot, self.before[slot])
            after = now.body.node(slot, entry)
            joiner = self.stage.joiner(slot, self.sides, [now.body.region])
            unbound = isinstance(entry, Missing) and isinstance(entry.lack, Unbound)
            lack = self._set_by_stop(now, slot, entry, after)
            if lack is not None:
                self.guarded[slot] = lack
                joiner.filled, after = True, given(after)
                late.add(slot)
            elif unbound and (joiner.filled or (slot[0] == "name" and self.certain())):
                joiner.filled = True
                late.add(slot)
            grown = None
            if slot[0] == "content" and not self.is_while and not isinstance(self.trips, Array):
                assert self.trips is not None
                grown = growth(joiner, entry, after, known if isinstance(known, Grown) else None, self.trips)
            if grown is None and isinstance(known, Grown):
                raise self.trace.error(
                    TraceError,
                    f"{self.stage.what} does not append just one item to the list {self.stage.name(slot)!r} in every trip",
                    "use an array: y = np.zeros(...), y[i] = ...",
                )
            carried[slot] = grown or joiner.join(entry, after, known)
        if self.trips is not None and not self.is_while and ("name", self.stop) in carried:
            self.is_while, late = True, set(now.late)
            carried = dict(now.carried)
        return carried, frozenset(late)

    def _set_by_stop(self, now: Pass, slot: Slot, entry: Node, after: Node) -> Lack | None:
        """Why a variable that has a value just where the loop is stopped has none elsewhere; None if it is no such variable."""
        stop = ("name", self.stop)
        assert now.body is not None
        if slot[0] != "name" or slot == stop or not self.stop or not (slot in self.guarded or isinstance(entry, Missing)):
            return None
        if slot not in self.guarded and not (isinstance(entry, Missing) and isinstance(entry.lack, Unbound)):
            return None
        unset = now.entry.get(stop, self.stage.before(stop))
        flag = now.body.node(stop, unset)
        if not isinstance(after, Missing) or not set_with(after, flag, flag is unset):
            return None
        return self.guarded.get(slot, after.lack)

    def _protected(self, carried: dict[Slot, Merge], now: Pass) -> bool:
        """Whether arrays under two names make another pass necessary, in which they are read-only."""
        assert now.body is not None
        changed = self.stage.protect(carried, [now.body], now.entry)
        for slot in [s for s in carried if s[0] != "array" and s not in now.late]:
            for number in numbers(self.before[slot]):
                array = number.array
                if array is not None and number.type.rank and self.stage.world.holders[id(array.root)] > 1:
                    changed |= self.stage.doubt(carried, slot, array.root)
        return changed

    # -- the instruction --------------------------------------------------------------------------------------------
    def _blocks(self, found: Pass) -> list[Block]:
        assert found.body is not None
        blocks = [] if found.test is None else [_block(found.test.region)]
        with found.body.region as region:
            builder = region.builder
            builder.loc = self.stage.loc
            count = []
            if self.is_while and found.counter is not None:
                count = [builder.add(found.counter, builder.const(1, i64))]
            values = [v for slot, merge in found.carried.items() for v in self._yielded(found, slot, merge)]
            builder.close("yield", (*count, *values))
        return [*blocks, _block(region)]

    def _yielded(self, found: Pass, slot: Slot, merge: Merge) -> list[Value]:
        assert found.body is not None
        node = found.body.node(slot, found.entry[slot])
        if isinstance(merge, Grown):
            return [appended(self.trace, merge, found.params[slot][0], node, self._trip(found))]
        if slot in found.late and (isinstance(given(node), Missing) or slot not in found.body.nodes):
            return found.params[slot]
        return emit(self.trace, merge, node)


def _same_parts(a: Node, b: Node) -> bool:
    """Whether a container holds what it held; it is described anew each time."""
    if not isinstance(a, Group) or not isinstance(b, Group) or a.keys != b.keys:
        return False
    return all(x.original is y.original for x, y in zip(a.parts, b.parts, strict=True))


def _block(region: Region) -> Block:
    return Block(tuple(region.params), tuple(region.builder.body))
