"""Loops, branches, stacks and checks as statements.

Note [Stacks]
A version of a stack is its height, a scalar like any other; what all versions share is a ``Tape``, found by following the stack
through loops and branches: it is handed on linearly, so a loop's parameter and what the loop yields have the same one. ``push``
stores at the height, ``pop`` is a load below it; an element that is an array is a part of the tape and is read where it is.
Stacks that begin in the two branches of an ``if`` share their memory where they meet, since just one of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pullback.errors import UnsupportedError
from pullback.ir.core import Block, Instr, Value
from pullback.ir.ops.control import AGAIN
from pullback.ir.types import StackType, bool_, i64
from pullback.loops.blocks import is_array, param, slots
from pullback.loops.nest import Accumulator, Buffer, Choice, Fail, For, If, Region, Reserve, Scope, Store, Tape, While
from pullback.loops.ranges import bounds, nonnegative

if TYPE_CHECKING:
    from pullback.loops.lower import Lowering

MEMORY = "no memory for {0} bytes of what the reverse pass reads; less is kept with checkpoint="


# -- loops and branches -----------------------------------------------------------------------------------------------
def control(lowering: Lowering, instr: Instr) -> None:
    _CONTROL[instr.op.name](lowering, instr)


def _for(lowering: Lowering, instr: Instr) -> None:
    (block,), s = instr.blocks, lowering.scalars
    region = Region(s.region)
    carried = _carried(lowering, instr, region)
    index = s.fresh("index", i64, None, region)
    loop = For(lowering.known[instr.args[0]], index, list(carried.values()), region)
    index.data = loop
    lowering.known[block.params[0]] = index
    _inside(lowering, instr, block, region, carried)
    _next(lowering, instr, block, carried)
    lowering.body.append(loop)


def _while(lowering: Lowering, instr: Instr) -> None:
    condition, body = instr.blocks
    s = lowering.scalars
    region = Region(s.region)
    inner = Region(region)
    carried = _carried(lowering, instr, region)
    loop = While(list(carried.values()), region, inner)
    _inside(lowering, instr, condition, region, carried)
    loop.test = lowering.known[condition.results[0]]
    s.enter(region)
    _inside(lowering, instr, body, inner, carried)
    s.leave()
    _next(lowering, instr, body, carried)
    lowering.body.append(loop)


def _if(lowering: Lowering, instr: Instr) -> None:
    s = lowering.scalars
    made = If(lowering.known[instr.args[0]], Region(s.region), Region(s.region))
    for block, region in zip(instr.blocks, (made.then, made.other), strict=True):
        _inside(lowering, instr, block, region, {})
    for k, out in enumerate(instr.outs):
        if is_array(out):
            continue
        results = [block.results[k] for block in instr.blocks]
        _hand_on(lowering, instr, results, out, (made.then, made.other))
        then, other = (lowering.known[r] for r in results)
        choice = Choice(s.fresh("choice", then.dtype, None, s.region), then, other)
        choice.total.data = choice
        made.choices.append(choice)
        lowering.known[out] = choice.total
    lowering.body.append(made)


_CONTROL: Mapping[str, Callable[[Lowering, Instr], None]] = {"for": _for, "while": _while, "if": _if}


def _inside(lowering: Lowering, instr: Instr, block: Block, region: Region, carried: Mapping[int, Accumulator]) -> None:
    """The statements of a block into its region; ``carried`` by result, for the parameters that are scalars."""
    for position, k in slots(instr):
        inner, start = param(instr, block, position), instr.args[position]
        if k in carried:
            lowering.known[inner] = carried[k].current
        if isinstance(inner.type, StackType):
            lowering.tapes[inner] = lowering.tapes[start]
    lowering.scalars.enter(region)
    lowering.stages(block)
    if block in lowering.places.swaps:
        region.body.append(lowering.places.swaps[block])
    lowering.scalars.leave()


def _carried(lowering: Lowering, instr: Instr, region: Region) -> dict[int, Accumulator]:
    found: dict[int, Accumulator] = {}
    s = lowering.scalars
    for position, k in slots(instr):
        if not is_array(instr.outs[k]):
            start = lowering.known[instr.args[position]]
            current, total = s.fresh("current", start.dtype, None, region), s.fresh("total", start.dtype, None, s.region)
            found[k] = current.data = total.data = Accumulator(None, start, current, total)
    return found


def _next(lowering: Lowering, instr: Instr, block: Block, carried: Mapping[int, Accumulator]) -> None:
    """What a trip hands to the next, and the results."""
    for k, accumulator in carried.items():
        result, out = block.results[k], instr.outs[k]
        accumulator.value = lowering.known[result]
        lowering.known[out] = accumulator.total
        _hand_on(lowering, instr, [block.params[len(block.params) - len(instr.outs) + k], result], out)


def _hand_on(lowering: Lowering, instr: Instr, versions: list[Value], out: Value, regions: tuple[Region, ...] = ()) -> None:
    """``out`` has the tape of its versions; ``regions`` are those of the branches from which they come."""
    if not isinstance(out.type, StackType):
        return
    tapes = [lowering.tapes[v] for v in versions]
    if tapes[0] is not tapes[1]:
        if not regions or not all(map(_begins_inside, tapes, regions)):
            raise UnsupportedError(f"{instr.op.name} at {instr.loc} exchanges one stack for another; only one can be handed on")
        tapes[1].buffer.number = tapes[0].buffer.number
        tapes[0] = Tape(tapes[0].buffer, tapes[0].bounded and tapes[1].bounded, lowering.scalars.region)
    lowering.tapes[out] = tapes[0]


def _begins_inside(tape: Tape, region: Region) -> bool:
    scope: Scope | None = tape.region
    while scope is not None and scope is not region:
        scope = scope.parent
    return scope is region and tape.source is None


# -- stacks -----------------------------------------------------------------------------------------------------------
def _new(lowering: Lowering, instr: Instr) -> None:
    stack: StackType = instr.out.type
    number = 1 + max((tape.buffer.number for tape in lowering.tapes.values()), default=-1)
    tape = Tape(Buffer(stack.element, "tape", number), bool(instr.args), lowering.scalars.region)
    lowering.tapes[instr.out] = tape
    lowering.known[instr.out] = lowering.scalars.integer(0)
    if instr.args:
        lowering.body.append(Reserve(tape, lowering.known[instr.args[0]], lowering.message(instr, "PullbackError", MEMORY)))


def push(lowering: Lowering, instr: Instr) -> None:
    stack, value = instr.args
    s, tape, height = lowering.scalars, lowering.tapes[stack], lowering.known[stack]
    if tape.source is not None:
        raise UnsupportedError(f"stack.push at {instr.loc}: a stack that is an argument can only be read")
    lowering.tapes[instr.out] = tape
    lowering.known[instr.out] = s.add(height, s.integer(1))
    if not tape.bounded:
        lowering.body.append(Reserve(tape, height, lowering.message(instr, "PullbackError", MEMORY)))
    if not is_array(value):
        lowering.body.append(Store(tape.buffer, height, lowering.known[value]))
        return
    reader = lowering.reader()
    loops, index = lowering.loops(value.type.shape, "push")
    start = s.mul(height, s.size(value.type.size))
    position = s.add(start, reader.position(value.type.shape, index))
    lowering.inner(loops).append(Store(tape.buffer, position, reader.element(value, index)))
    lowering.close(loops)


def _pop(lowering: Lowering, instr: Instr) -> None:
    (stack,), (rest, value) = instr.args, instr.outs
    s, tape = lowering.scalars, lowering.tapes[stack]
    height = s.raw("sub", i64, lowering.known[stack], s.integer(1))
    lowering.tapes[rest], lowering.known[rest] = tape, height
    if is_array(value):
        lowering.buffers[value] = tape.buffer
        lowering.starts[value] = s.mul(height, s.size(value.type.size))
    else:
        lowering.known[value] = s.load(value, tape.buffer, height, value.type.dtype)


def give(tape: Tape, number: int, name: str) -> None:
    """The caller becomes the owner of a tape."""
    if tape.source is not None or tape.result is not None:
        raise UnsupportedError(f"{name}: result {number} is a stack that the caller has already")
    tape.result = number


# -- checks -----------------------------------------------------------------------------------------------------------
def _check(lowering: Lowering, instr: Instr) -> None:
    text = str(instr.attrs["message"]).replace("{", "{{").replace("}", "}}")
    again = text == AGAIN
    number = lowering.message(instr, "again" if again else instr.attrs.get("error", "PullbackError"), text)
    lowering.body.append(Fail(lowering.known[instr.args[0]], number, again=again))


def _length(lowering: Lowering, instr: Instr) -> None:
    """Defines a size, which must be one: buffers have the length of its bound."""
    s, value, bound = lowering.scalars, lowering.known[instr.args[0]], lowering.scalars.size(instr.attrs["bound"])
    low, high = bounds(value)
    if not (nonnegative(low) and high is not None and nonnegative(instr.attrs["bound"] - high)):
        fits = s.raw("and", bool_, s.raw("icmp sge", bool_, value, s.integer(0)), s.raw("icmp sle", bool_, value, bound))
        number = lowering.message(instr, "IndexError", "a length of {0} is not within 0 and {1}")
        lowering.body.append(Fail(fits, number, (value, bound)))
    lowering.known[instr.out] = value
    lowering.define(instr.attrs["symbol"], value, instr.attrs["bound"])


SCALARS: Mapping[str, Callable[[Lowering, Instr], None]] = {
    **_CONTROL,
    "check": _check,
    "length": _length,
    "stack.new": _new,
    "stack.push": push,
    "stack.pop": _pop,
}
