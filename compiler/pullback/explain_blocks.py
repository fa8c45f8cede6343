"""Branches and loops in an explanation: which way was taken, and what each trip did to the values and to the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core import Block, Builder, Func, Instr, Value, walk
from pullback.ir.interp import Machine, run
from pullback.ir.ops import OPS
from pullback.passes.adjoint import adjoint
from pullback.wording import BlockWords, Vocabulary, value_text

TOLD = 64  # trips of which the gradients are told one by one; each takes an interpretation of the body's adjoint
SHOWN = 3  # trips at the beginning and at the end that a text shows


@dataclass(frozen=True)
class Trip:
    """What a loop's variables are after a trip (0: before the first), and the gradient of the output by them there."""

    number: int
    values: Mapping[str, Any]
    gradients: Mapping[str, Any]


@dataclass(frozen=True)
class Course:
    """How a branch or a loop went. ``summary`` says it in words; ``trips`` is empty for a branch and for a long loop."""

    summary: str
    trips: tuple[Trip, ...] = ()

    def forward(self) -> list[str]:
        lines = [self.summary] if self.summary else []
        return lines + [
            f"{_when(t.number)}: {_listed(t.values)}" if t else "..." for t in _some(self.trips) if not t or t.values
        ]

    def backward(self) -> list[str]:
        trips = [t for t in self.trips if t.gradients]
        lines = [f"{_when(t.number)}: {_listed(t.gradients, 'gradient of ')}" if t else "..." for t in _some(trips)]
        return lines[::-1]


def _when(trip: int) -> str:
    return f"after trip {trip}" if trip else "before the first trip"


def _listed(values: Mapping[str, Any], what: str = "") -> str:
    return ", ".join(f"{what}{name} = {value_text(value)}" for name, value in values.items())


def _some(trips: Sequence[Trip]) -> list[Trip | None]:
    """The first and the last; None for those between."""
    if len(trips) <= 2 * SHOWN + 2:
        return list(trips)
    return [*trips[: SHOWN + 1], None, *trips[-SHOWN:]]


def captured(blocks: Sequence[Block]) -> tuple[Value, ...]:
    """The values from outside that blocks read, in the order in which they do."""
    inside: set[Value] = set()
    read: dict[Value, None] = {}
    for block in blocks:
        inside.update(block.params)
        for instr in walk(block):
            inside.update(instr.outs)
            inside.update(p for inner in instr.blocks for p in inner.params)
            read.update(dict.fromkeys(instr.args))
    return tuple(v for v in read if v not in inside)


def operands(instr: Instr) -> tuple[Value, ...]:
    """What an instruction depends on: its arguments, and what its blocks read."""
    return (*instr.args, *captured(instr.blocks)) if instr.blocks else instr.args


def passed_on(instr: Instr, wanted: set[Value], incoming: Mapping[Value, Any], values: Any, sizes: Any) -> dict[int, Any]:
    """What a branch or loop makes of the gradients of its results: by place among the operands, those that are ``wanted``."""
    given = [Value(a.name, a.type) for a in instr.args]
    params = (*given, *captured(instr.blocks))
    b = Builder()
    b.body.append(Instr(instr.op, instr.outs, tuple(given), instr.attrs, instr.blocks, instr.loc))
    seeded = [out for out in instr.outs if out in incoming]
    single = Func("step", Block(params, b.close("return", instr.outs).body))
    places = [k for k, operand in enumerate(operands(instr)) if operand in wanted]
    reverse = adjoint(single, [params[k] for k in places], seeded, primal=False)
    found = run(reverse, [*(values[v] for v in operands(instr)), *(incoming[out] for out in seeded)], sizes)
    return dict(zip(places, found, strict=True))


def course(instr: Instr, words: Vocabulary, values: Mapping[Value, Any], incoming: Mapping[Value, Any], sizes: Any) -> Course:
    """How an ``if``, ``for`` or ``while`` went. ``incoming``: the gradients of its results, of those that have one."""
    inner = BlockWords(words, instr)
    if instr.op.name == "if":
        chosen = bool(values[instr.args[0]])
        return Course(f"{inner.condition()} is {chosen}")
    states, count = _states(instr, values, sizes)
    summary = f"{count:,} trip{'s' * (count != 1)}"
    if count > TOLD:
        return Course(summary)
    params = instr.blocks[-1].params[instr.op.name == "for" :]
    told = words.told(instr)
    named = [(k, inner.parameter(p)) for k, p in enumerate(params) if instr.outs[k] in told and p.type.dtype.kind != "b"]
    gradients = _gradients(instr, params, states, values, incoming, sizes)
    trips = []
    for number, state in enumerate(states):
        found = gradients[number] if gradients else {}
        trips.append(Trip(number, {name: state[k] for k, name in named}, {name: found[k] for k, name in named if k in found}))
    return Course(summary, tuple(trips))


def _states(instr: Instr, values: Mapping[Value, Any], sizes: Any) -> tuple[list[tuple[Any, ...]], int]:
    """The carried values before and after every trip, of the first ones; how many trips there are."""
    machine = Machine(dict(sizes), None)
    machine.values.update(values)
    counted = instr.op.name == "for"
    state = tuple(np.asarray(values[a]) for a in instr.args[counted:])
    states, count, body = [state], 0, instr.blocks[-1]
    with np.errstate(all="ignore"):
        while count < int(values[instr.args[0]]) if counted else machine.enter(instr.blocks[0], state)[0]:
            state = machine.enter(body, (np.asarray(count, np.int64), *state) if counted else state)
            count += 1
            if count <= TOLD:
                states.append(state)
    return states, count


def _gradients(
    instr: Instr,
    params: Sequence[Value],
    states: Sequence[tuple[Any, ...]],
    values: Mapping[Value, Any],
    incoming: Mapping[Value, Any],
    sizes: Any,
) -> list[dict[int, Any]]:
    """By trip, the gradients by the carried values: back through the adjoint of one trip, again and again."""
    if not incoming:
        return []
    body = instr.blocks[-1]
    outside = captured((body,))
    end = Instr(OPS["return"], (), body.results, {}, (), instr.loc)
    places = [k for k, p in enumerate(params) if p.type.is_float]
    trip = Func("trip", Block((*body.params, *outside), (*body.body[:-1], end)))
    reverse = adjoint(trip, [params[k] for k in places], primal=False)
    now = {k: incoming.get(instr.outs[k], np.zeros_like(states[-1][k])) for k in places}
    found = [now]
    counted = len(body.params) > len(params)
    for number in range(len(states) - 2, -1, -1):
        start = (np.asarray(number, np.int64), *states[number]) if counted else states[number]
        seeds = [now[k] for k in places]
        results = run(reverse, [*start, *(values[v] for v in outside), *seeds], sizes)
        now = dict(zip(places, results, strict=True))
        found.append(now)
    return found[::-1]
