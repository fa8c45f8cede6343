"""Cutting a program into the pieces that become functions.

Note [Pieces]
The program's statements are cut into pieces: a nest, a routine, or a run of scalar statements of bounded length (a single
function with 1e5 instructions takes minutes to compile, chunks of 500 less than a second). Each piece is a function.
Scalars that one piece makes and another needs go through the *frame*, an array of 8-byte slots; the buffers of a nest are
its parameters, marked ``noalias``, which they are: see ``loops/buffers.py``. A loop of the program or an ``if`` is one
piece with all that is inside, and so is a step on a tape.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.loops.nest import (
    Accumulator,
    Buffer,
    Call,
    Define,
    Fail,
    For,
    If,
    Loop,
    Node,
    Program,
    Reserve,
    Statement,
    Store,
    Swap,
    While,
    statements,
)

CHUNK = 500  # scalar statements per function


@dataclass(slots=True)
class Piece:
    """``kind``: "scalars", "nest" and "control" become functions, "shared" becomes two; "call" is a routine, "clear" and "move"
    are memset and memcpy."""

    kind: str
    body: list[Any]
    name: str = ""
    fails: bool = False
    needs: dict[Node, None] = field(default_factory=dict)  # scalars from other pieces
    buffers: dict[Buffer, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The store of a scalar result, an addition of the emitter to the statements."""

    number: int
    value: Node


def pieces(program: Program) -> list[Piece]:
    pieces: list[Piece] = []

    def straight(statement: Any) -> None:
        if not pieces or pieces[-1].kind != "scalars" or len(pieces[-1].body) >= CHUNK:
            pieces.append(Piece("scalars", []))
        pieces[-1].body.append(statement)

    for statement in program.body:
        if isinstance(statement, Node) and statement.kind != "load":
            straight(statement)
        elif isinstance(statement, (For, While, If, Reserve)) or _on_tape(statement):
            pieces.append(Piece("control", [statement]))
        elif isinstance(statement, Loop):
            pieces.append(Piece("shared" if statement.shared else nest_kind(statement), [statement]))
        elif isinstance(statement, Call):
            pieces.append(Piece("call", [statement]))
        else:
            straight(statement)
            if isinstance(statement, Define):  # what follows has to read the size anew
                pieces.append(Piece("scalars", []))
    for k, result in enumerate(program.results):
        if isinstance(result, Node):
            straight(Result(k, result))
    if not pieces:
        pieces.append(Piece("scalars", []))
    return pieces


def _on_tape(statement: Statement) -> bool:
    if isinstance(statement, (Node, Store)):
        return any(b.place == "tape" for b in buffers(statement))
    return isinstance(statement, (Loop, Call)) and any(b.place == "tape" for s in statements([statement]) for b in buffers(s))


def nest_kind(loop: Loop) -> str:
    """ "clear" for a loop that only stores zeros, "move" for one that only copies; such a loop takes 10 ms to compile."""
    if not loop.body:
        return "nest"  # it only counts its trips: a sum of what does not change
    *before, store = loop.body
    if not isinstance(store, Store) or store.combine is not None or store.position is not loop.index or loop.accumulators:
        return "nest"
    value = store.value
    if not before and value.kind == "const" and not np.asarray(value.data).tobytes().strip(b"\0"):
        return "clear"
    if before == [value] and value.kind == "load" and value.args[0] is loop.index and value.data is not store.buffer:
        return "move"
    return "nest"


def operands(statement: Any) -> list[Node]:
    match statement:
        case Node(args=args):
            return list(args)
        case Store(position=position, value=value):
            return [position, value]
        case Fail(ok=ok, values=values):
            return [ok, *values]
        case Define(value=value) | Result(value=value) | Reserve(height=value):
            return [value]
        case Loop(accumulators=accumulators, extent=extent):
            return [*_carried(accumulators), *([extent] if isinstance(extent, Node) else ())]
        case For(bound=bound, carried=carried):
            return [bound, *_carried(carried)]
        case While(carried=carried, test=test):
            return [*_carried(carried), *([test] if test is not None else ())]
        case If(test=test, choices=choices):
            return [test, *(n for c in choices for n in (c.then, c.other))]
        case Call(args=args):
            return [a.start for a in args if a.start is not None]
    return []


def _carried(accumulators: list[Accumulator]) -> list[Node]:
    return [n for a in accumulators for n in (a.start, a.value) if n is not None]


def buffers(statement: Any) -> list[Buffer]:
    match statement:
        case Node(kind="load", data=buffer) | Store(buffer=buffer):
            return [buffer]
        case Call(out=out, args=args):
            return [out, *(a.buffer for a in args)]
        case Swap(into=into):
            return list(into)
        case Reserve(tape=tape):
            return [tape.buffer]
    return []


def made(body: list[Any]) -> list[Node]:
    """Scalars of the whole program that these statements make."""
    found: list[Node] = []
    for statement in body:
        if isinstance(statement, Node):
            found.append(statement)
        else:
            found.extend(totals(statement))
    return found


def totals(statement: Any) -> list[Node]:
    """The scalars that a statement with others inside gives."""
    match statement:
        case Loop(accumulators=accumulators) | For(carried=accumulators) | While(carried=accumulators):
            return [a.total for a in accumulators]
        case If(choices=choices):
            return [c.total for c in choices]
    return []
