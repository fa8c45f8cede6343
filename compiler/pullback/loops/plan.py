"""The kinds of instructions, and what a schedule says: see ``schedule.py``, which makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pullback.errors import UnsupportedError
from pullback.ir.core import Block, Instr, Value
from pullback.ir.ops.base import Compose, Fold, Intrinsic, Libm, Machine, Pull, Routine, Update
from pullback.loops.blocks import is_array, slots

EACH = (Machine, Intrinsic, Libm, Compose)  # elementwise
IDENTITY = ("convert", "match")  # views that read their operand at their own index
# not part of a shared nest
SINGLE = ("update", "gemm", "scan", "arg", "nonzero", "sort", "library", "checked", "control", "push")
SCALAR = ("scalar", "check", "pop")
CONTROL = {"if": "control", "for": "control", "while": "control", "stack.new": "scalar", "stack.pop": "pop", "length": "scalar"}
ROUTINES = {
    "concatenate": "join",
    "contract": "gemm",
    "recurrence": "scan",
    "cumsum": "scan",
    "argmax": "arg",
    "argmin": "arg",
    "nonzero": "nonzero",
    "argsort": "sort",
    **dict.fromkeys(("cholesky", "triangular_solve", "lu", "lu_solve", "eigh", "svd", "qr"), "library"),
}


@dataclass(frozen=True, slots=True)
class Root:
    """Something a nest does with an element: "store", "fold", "part" (of a concatenation), "init" (of an update), "copy"."""

    kind: str
    value: Value
    instr: Instr | None
    number: int = 0


@dataclass(slots=True)
class Stage:
    scalars: list[Instr] = field(default_factory=list)
    nests: dict[Any, list[Root]] = field(default_factory=dict)  # by domain
    singles: list[Instr] = field(default_factory=list)


@dataclass(slots=True)
class Schedule:
    """Of a whole function; ``stages`` by block."""

    stages: dict[Block, list[Stage]] = field(default_factory=dict)
    materialized: set[Value] = field(default_factory=set)
    fresh: set[Value] = field(default_factory=set)  # new versions in a new buffer: the old one is copied (or computed) into it
    taken: dict[Value, Value] = field(default_factory=dict)  # a value of a nest -> the old one whose memory it takes over
    copied: dict[Block, set[int]] = field(default_factory=dict)  # results of a block that need a copy of their own
    defs: dict[Value, Instr] = field(default_factory=dict)
    kinds: dict[Instr, str] = field(default_factory=dict)


def kind_of(instr: Instr) -> str:
    """ "scalar", "map" (own index), "view" (other indices), "fold", "join", "check", "pop", or one of SINGLE."""
    op, lower = instr.op, instr.op.lower
    if isinstance(lower, EACH) and not op.effect:  # most instructions
        return "map" if instr.outs[0].type.shape else "scalar"
    if op.name == "check":
        return "check"
    if op.name in CONTROL:
        return CONTROL[op.name]
    if op.name == "stack.push":
        return "push" if is_array(instr.args[1]) else "scalar"
    scalar = bool(instr.outs) and instr.out.type.rank == 0
    if op.name == "check_index":
        return "scalar" if scalar else "checked"
    match lower:
        case Fold():
            return "fold" if instr.attrs["axes"] else "scalar" if scalar else "map"
        case Update():
            return "update"
        case Routine(name=name) if name in ROUTINES:
            return ROUTINES[name]
        case Pull():
            return "scalar" if scalar and op.name != "match" else "map" if op.name in IDENTITY else "view"
    raise UnsupportedError(f"{op.name} at {instr.loc} has no compiled form")


def updates(instr: Instr, kind: str) -> list[tuple[Value, Value]]:
    """(old version, new version) for each array that an instruction of this kind updates."""
    if kind == "update":
        return [(instr.args[0], instr.outs[0])]
    if kind == "control":
        return [(instr.args[at], instr.outs[k]) for at, k in slots(instr) if is_array(instr.outs[k])]
    return []


__all__ = ["SCALAR", "SINGLE", "Root", "Schedule", "Stage", "kind_of", "updates"]
