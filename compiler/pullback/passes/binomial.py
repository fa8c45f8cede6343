"""Loops whose gradient keeps a fixed number of states, however many trips they make.

Note [Binomial checkpoints]
The trips are taken in units (Note [Segments]). Going forward, the state at the beginning of every w-th unit is kept in one of
``SLOTS`` places; when these are full, every other one is dropped and w doubles: so the length need not be known. Going
backwards, the units between two kept states are reversed with as many places again, by the schedule of Griewank and Walther
(2000, algorithm 799): from the last kept state either the last unit is reversed, or the run goes on to where the next state
is best kept. With s places and r runs over each unit, (s + r)! / (s! r!) units can be reversed, so a unit is run again about
3 times for 10^4 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops import OPS
from pullback.ir.types import Type, i64
from pullback.passes.activity import carried
from pullback.passes.inline import copy_body

if TYPE_CHECKING:
    from pullback.passes.adjoint_regions import Region

SLOTS = 32
UNIT = 32  # trips
Values = tuple[Value, ...]
Make = Callable[[Builder], Sequence[Value]]


def if_(b: Builder, condition: Value, then: Make, other: Make) -> Values:
    blocks = []
    for make in (then, other):
        inner = Builder(b)
        blocks.append(inner.close("yield", make(inner)))
    return b.emit(OPS["if"], (condition,), {}, blocks)


def for_(b: Builder, bound: Value, start: Sequence[Value], body: Callable[[Builder, Value, Values], Sequence[Value]]) -> Values:
    inner, index = Builder(b), Value("i", Type(i64))
    params = tuple(Value(v.name, v.type) for v in start)
    return b.emit(OPS["for"], (bound, *start), {}, (inner.close("yield", body(inner, index, params), (index, *params)),))


def while_(
    b: Builder,
    start: Sequence[Value],
    test: Callable[[Builder, Values], Value],
    body: Callable[[Builder, Values], Sequence[Value]],
) -> Values:
    blocks = []
    for make in (lambda inner, params: (test(inner, params),), body):
        inner = Builder(b)
        params = tuple(Value(v.name, v.type) for v in start)
        blocks.append(inner.close("yield", make(inner, params), params))
    return b.emit(OPS["while"], start, {}, blocks)


class Unit:
    """One trip of the loop over units: forward, as the loop itself does it; backwards, ``adjoint`` gives ``ends``."""

    def __init__(self, instr: Instr, cotangents: Sequence[Value], adjoint: Sequence[Instr], ends: Sequence[Value]):
        self.instr = instr
        self.block = instr.blocks[-1]
        self.counted = instr.op.name == "for"
        self.cotangents, self.adjoint, self.ends = tuple(cotangents), tuple(adjoint), tuple(ends)

    def _inputs(self, number: Value, state: Sequence[Value]) -> dict[Value, Value]:
        return dict(zip(self.block.params, (number, *state) if self.counted else state, strict=True))

    def forward(self, b: Builder, number: Value, state: Sequence[Value]) -> list[Value]:
        new = self._inputs(number, state)
        copy_body(b, self.block.body[:-1], {}, new)
        return [new.get(v, v) for v in self.block.results]

    def backward(self, b: Builder, number: Value, state: Sequence[Value], cotangents: Sequence[Value]) -> list[Value]:
        new = self._inputs(number, state)
        new.update(zip(self.cotangents, cotangents, strict=True))
        copy_body(b, self.adjoint, {}, new)
        return [new.get(v, v) for v in self.ends]


def _room(b: Builder, value: Value) -> Value:
    return b.zeros(value.type.with_shape((SLOTS, *value.type.shape)))


def _read(b: Builder, rooms: Sequence[Value], place: Value) -> list[Value]:
    return [b.gather(room, place) for room in rooms]


def _write(b: Builder, rooms: Sequence[Value], place: Value, state: Sequence[Value]) -> list[Value]:
    return [b.scatter_set(room, place, value) for room, value in zip(rooms, state, strict=True)]


# -- forward ------------------------------------------------------------------------------------------------------------
def keeping(outer: Region, instr: Instr) -> tuple[Value, Value, Value, Values]:
    """Let the forward loop keep its states; gives the number of units, of kept states, the units between two, the states."""
    counted, block = instr.op.name == "for", instr.blocks[-1]
    b = Builder(loc=instr.loc)
    zero, one = b.const(0, i64), b.const(1, i64)
    inits = [init for init, *_ in carried(instr)]
    extra = [zero, one, *(_room(b, init) for init in inits)]  # kept states, units between them, rooms
    if not counted:
        extra.append(zero)
    params = [Value("", v.type) for v in extra]
    number = block.params[0] if counted else params[-1]
    state = block.params[1:] if counted else block.params
    inner = Builder(loc=instr.loc)
    kept = _keep(inner, number, params[: 2 + len(inits)], state)
    inner.body.extend(block.body[:-1])
    ends = [*kept] if counted else [*kept, inner.add(number, inner.const(1, i64))]
    body = inner.close("yield", (*block.results, *ends), (*block.params, *params))
    blocks = [body]
    if not counted:
        test = instr.blocks[0]
        blocks.insert(0, type(test)((*test.params, *(Value("", v.type) for v in extra)), test.body))
    outs = tuple(Value("", v.type) for v in extra)
    outer.before.setdefault(instr, []).extend(b.body)
    outer.instead[instr] = Instr(instr.op, (*instr.outs, *outs), (*instr.args, *extra), {}, tuple(blocks), instr.loc)
    units = outer.builder.maximum(instr.args[0], outer.builder.const(0, i64)) if counted else outs[-1]
    return units, outs[0], outs[1], outs[2 : 2 + len(inits)]


def _keep(b: Builder, number: Value, known: Sequence[Value], state: Sequence[Value]) -> Values:
    """What is known of the kept states, with that at the beginning of unit ``number`` if it is one to keep."""

    def keep(inner: Builder) -> Sequence[Value]:
        full = inner.eq(known[0], inner.const(SLOTS, i64))
        count, apart, *rooms = if_(inner, full, thin, lambda _: known)
        return (inner.add(count, inner.const(1, i64)), apart, *_write(inner, rooms, count, state))

    def thin(inner: Builder) -> Sequence[Value]:
        two, half = inner.const(2, i64), inner.const(SLOTS // 2, i64)
        rooms = for_(inner, half, known[2:], lambda c, i, rooms: _write(c, rooms, i, _read(c, rooms, c.mul(i, two))))
        return (half, inner.mul(known[1], two), *rooms)

    due = b.eq(b.mod(number, known[1]), b.const(0, i64))
    return if_(b, due, keep, lambda _: known)


# -- backwards ----------------------------------------------------------------------------------------------------------
def reversing(b: Builder, unit: Unit, units: Value, count: Value, apart: Value, kept: Values, start: Sequence[Value]) -> Values:
    """The cotangents after all units are reversed, from the last kept state to the first."""
    one = b.const(1, i64)

    def stretch(inner: Builder, trip: Value, cotangents: Values) -> Sequence[Value]:
        place = inner.sub(inner.sub(count, one), trip)
        first = inner.mul(place, apart)
        left = inner.sub(inner.minimum(inner.add(first, apart), units), first)
        return _stretch(inner, unit, first, left, _read(inner, kept, place), cotangents)

    return for_(b, count, start, stretch)


def _stretch(
    b: Builder, unit: Unit, first: Value, units: Value, state: Sequence[Value], cotangents: Sequence[Value]
) -> Sequence[Value]:
    """Reverse ``units`` units from number ``first``, at whose beginning the state is ``state``.

    Carried are the units left, the last place in use, the unit of each place, its state, and the cotangents.
    """
    zero, one = b.const(0, i64), b.const(1, i64)
    places = b.zeros(Type(i64, (SLOTS,)))
    rooms = _write(b, [_room(b, v) for v in state], zero, state)
    count = len(rooms)

    def step(c: Builder, now: Values) -> Sequence[Value]:
        left, top, places, *rest = now
        rooms, cotangents = rest[:count], rest[count:]
        at, state = c.gather(places, top), _read(c, rooms, top)
        length = c.sub(left, at)
        free = c.sub(c.const(SLOTS - 1, i64), top)

        def run(d: Builder, steps: Value) -> Values:
            begin = d.add(first, at)
            return for_(d, steps, state, lambda e, i, x: unit.forward(e, e.add(begin, i), x))

        def last(d: Builder) -> Sequence[Value]:
            fewer = d.sub(left, one)
            x = run(d, d.sub(length, one))
            found = unit.backward(d, d.add(first, fewer), x, cotangents)
            done = d.logical_and(d.eq(fewer, at), d.gt(top, zero))
            return (fewer, d.select(done, d.sub(top, one), top), places, *rooms, *found)

        def further(d: Builder) -> Sequence[Value]:
            steps = _split(d, length, free)
            x = run(d, steps)
            above = d.add(top, one)
            return (
                left,
                above,
                d.scatter_set(places, above, d.add(at, steps)),
                *_write(d, rooms, above, x),
                *cotangents,
            )

        return if_(c, c.logical_or(c.le(length, one), c.le(free, zero)), last, further)

    found = while_(b, (units, zero, places, *rooms, *cotangents), lambda c, now: c.gt(now[0], zero), step)
    return found[3 + count :]


def _split(b: Builder, length: Value, free: Value) -> Value:
    """How many of ``length`` > 1 units to run before the next state is kept, with ``free`` > 0 places.

    With n(s, r) = (s + r)! / (s! r!) units for s places and r runs, and the least r that does: so many that the rest can be
    done with one place less, and at least what r - 2 runs can do.
    """
    zero, one = b.const(0, i64), b.const(1, i64)

    def more(c: Builder, now: Values) -> Sequence[Value]:
        runs = c.add(now[0], one)
        return (runs, c.floordiv(c.mul(now[1], c.add(free, runs)), runs))

    runs, reach = while_(b, (zero, one), lambda c, now: c.lt(now[1], length), more)
    fewer = b.floordiv(b.mul(reach, runs), b.add(free, runs))  # n(free, runs - 1)
    least = b.floordiv(b.mul(fewer, b.sub(runs, one)), b.sub(b.add(free, runs), one))  # n(free, runs - 2)
    rest = b.floordiv(b.mul(reach, free), b.add(free, runs))  # n(free - 1, runs)
    found: Value = b.maximum(b.maximum(b.sub(length, rest), least), one)
    return found
