"""The loop-nest IR: what a Func becomes before it is LLVM text.

A ``Program`` is a list of statements over buffers. A scalar is a ``Node``: one SSA value, either of the whole program
(``scope`` None) or of one iteration of a ``Loop``. A node stands as a statement where it is computed: in the body of the
innermost loop that it depends on. Statements nest, so that loops within loops, and later control flow, need nothing new.

Note [Purity]
Every node may be computed anywhere its arguments are known: a load reads a value (an SSA version), never a buffer whose
version may still change; the schedule orders the reads of a version before the update that overwrites its buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pullback.ir.core import Loc, Value
from pullback.ir.dims import Size
from pullback.ir.ops.base import Op
from pullback.ir.types import DType, Type


@dataclass(eq=False, slots=True)
class Node:
    """One scalar. ``kind`` and ``data``: "const" and the number, "size" and the size, "index" and the loop, "param" and its
    position, "load" and the buffer, "current" or "total" and the accumulator, "raw" and the LLVM instruction's name, "op" and
    the op's record.
    """

    kind: str
    dtype: DType
    args: tuple[Node, ...] = ()
    data: Any = None
    scope: Loop | None = None
    attrs: Any = None


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of one array. ``place``: "input", "output", "work" or "const"; ``number`` its position there.

    Several values share a buffer when updates are done in place; ``loops/buffers.py`` gives work buffers their regions.
    """

    type: Type
    place: str
    number: int
    data: np.ndarray[Any, Any] | None = None
    name: str = ""


@dataclass(eq=False, slots=True)
class Accumulator:
    """A scalar carried from trip to trip: ``start`` before the first; ``total`` after the last.

    With ``combine`` it is a reduction: each trip combines it with ``value``, in an order of the emitter's choosing. Without,
    ``value`` is what the next trip sees as ``current``.
    """

    combine: Op | None
    start: Node
    current: Node
    total: Node
    value: Node | None = None  # of the body; set once the body is built


@dataclass(eq=False, slots=True)
class Loop:
    """``extent`` trips over ``body``. ``parent`` is the loop around it, ``level`` the number of loops around it."""

    extent: Size
    parent: Loop | None = None
    body: list[Statement] = field(default_factory=list)
    accumulators: list[Accumulator] = field(default_factory=list)
    index: Node | None = None
    note: str = ""  # for the text

    @property
    def level(self) -> int:
        return 0 if self.parent is None else self.parent.level + 1


@dataclass(eq=False, slots=True)
class Store:
    """``buffer[position] = value``, or combined with what is there if ``combine`` is given; the position is flat."""

    buffer: Buffer
    position: Node
    value: Node
    combine: Op | None = None


@dataclass(eq=False, slots=True)
class Fail:
    """Stop the call with message ``number`` if ``ok`` is false; ``values`` are integers for the message."""

    ok: Node
    number: int
    values: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a routine reads: element ``index`` is at ``offset + sum(index * strides)`` of the buffer."""

    buffer: Buffer
    offset: Size
    strides: tuple[Size, ...]


@dataclass(eq=False, slots=True)
class Call:
    """A routine over buffers: "gemm" of ``sizes`` (batch, m, k, n) or "argsort" of (rows, n)."""

    name: str
    out: Buffer
    args: tuple[Operand, ...]
    sizes: tuple[Size, ...]


@dataclass(eq=False, slots=True)
class Define:
    """Gives a size that the data decide (a mask's count) its value."""

    symbol: str
    value: Node


Statement: TypeAlias = Node | Loop | Store | Fail | Call | Define


@dataclass(frozen=True, slots=True)
class Message:
    """What a failed check says: ``text`` with ``{0}`` and ``{1}`` for its integers; ``error`` names the kind."""

    error: str
    text: str
    loc: Loc


@dataclass(eq=False, slots=True)
class Program:
    """A whole kernel. ``results``: for each result a Buffer (stored there) or a Node (a scalar)."""

    name: str
    params: tuple[Value, ...]
    body: list[Statement]
    results: list[Buffer | Node]
    result_types: tuple[Type, ...]
    messages: list[Message]
    symbols: tuple[str, ...]  # bound from the arguments' shapes
    defined: dict[str, Size]  # bound by the kernel (a mask's count), each with an upper bound
    regions: list[Size] = field(default_factory=list)  # bytes of each region of the workspace
    where: dict[Buffer, int] = field(default_factory=dict)  # the region of each work buffer


def statements(body: list[Statement]) -> Iterator[Statement]:
    """Every statement, a loop before its body. Not recursive."""
    pending: list[Iterator[Statement]] = [iter(body)]
    while pending:
        for statement in pending[-1]:
            yield statement
            if isinstance(statement, Loop):
                pending.append(iter(statement.body))
                break
        else:
            pending.pop()
