"""The loop-nest IR: what a Func becomes before it is LLVM text.

A ``Program`` is a list of statements over buffers. A scalar is a ``Node``: one SSA value, either of the whole program
(``scope`` None), of one iteration of a ``Loop``, or of a ``Region``: one trip of a program's own loop, one branch. A node
stands as a statement where it is computed: in the innermost loop that it depends on, but never outside of the region for
which it was made, so nothing is done that the program does not do. (What does not change LLVM takes out of a loop.)

Note [Purity]
Every node may be computed anywhere its arguments are known: a load reads a value (an SSA version), never a buffer whose
version may still change; the schedule orders the reads of a version before the update that overwrites its buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from pullback.ir.core import NO_ATTRS, Loc, Value
from pullback.ir.dims import Size
from pullback.ir.ops.base import Op
from pullback.ir.types import AnyType, DType, Type, bool_, i64

NEUTRAL: Mapping[str, Mapping[str, Any]] = {  # by op and kind of element: what changes nothing
    "add": {"f": -0.0, "i": 0},
    "mul": {"f": 1.0, "i": 1},
    "maximum": {"f": float("-inf"), "i": -(2**63)},
    "minimum": {"f": float("inf"), "i": 2**63 - 1},
    "logical_or": {"b": False},
    "logical_and": {"b": True},
}


@dataclass(eq=False, slots=True, repr=False)
class Node:
    """One scalar. ``kind`` and ``data``: "const" and the number, "size" and the size, "index" and the loop, "param" and its
    position, "load" and the buffer, "current" or "total" and the accumulator, "raw" and the LLVM instruction's name, "op" and
    the op's record.
    """

    kind: str
    dtype: DType
    args: tuple[Node, ...] = ()
    data: Any = None
    scope: Scope | None = None
    attrs: Any = None


@dataclass(eq=False, slots=True, repr=False)
class Buffer:
    """Memory of one array. ``place``: "input", "output", "work", "const" or "tape"; ``number`` its position there.

    Several values share a buffer when updates are done in place; ``loops/buffers.py`` gives work buffers their regions.
    ``moves``: its memory is exchanged with that of others; see Note [Homes] in ``loops/places.py``.
    """

    type: Type
    place: str
    number: int
    data: np.ndarray[Any, Any] | None = None
    name: str = ""
    moves: bool = False


@dataclass(eq=False, slots=True, repr=False)
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


@dataclass(frozen=True, slots=True)
class Band:
    """What is known of the trips of a loop over blocks of rows. ``apart``: buffers of which no two trips touch the same
    element; ``scratch``: buffers that hold one trip's block; ``work``: about how many operations it does."""

    apart: frozenset[Buffer]
    scratch: tuple[Buffer, ...]
    work: Size


@dataclass(eq=False, slots=True, repr=False)
class Loop:
    """``extent`` trips over ``body``: part of a nest, without control flow. ``parent`` is what is around it, ``level`` how
    much is around it. An extent that only its region knows is a node. The index begins at ``low`` (0 if that is None);
    ``short``: there are too few trips for a sum to need compensation. Both are for members of a ``band``. ``shared``: its
    trips may run at the same time, see Note [Chunks] in ``chunks.py``."""

    extent: Size | Node
    parent: Scope | None = None
    body: list[Statement] = field(default_factory=list)
    accumulators: list[Accumulator] = field(default_factory=list)
    index: Node | None = None
    note: str = ""  # for the text
    low: Node | None = None
    short: bool = False
    band: Band | None = None
    shared: bool = False

    @property
    def level(self) -> int:
        return 0 if self.parent is None else self.parent.level + 1


@dataclass(eq=False, slots=True, repr=False)
class Store:
    """``buffer[position] = value``, or combined with what is there if ``combine`` is given; the position is flat."""

    buffer: Buffer
    position: Node
    value: Node
    combine: Op | None = None


@dataclass(eq=False, slots=True, repr=False)
class Fail:
    """Stop the call with message ``number`` if ``ok`` is false; ``values`` are integers for the message. ``again``: what was
    done was allowed, only its results are of no use."""

    ok: Node
    number: int
    values: tuple[Node, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """An array that a routine reads: element ``index`` is at ``start + offset + sum(index * strides)`` of the buffer."""

    buffer: Buffer
    offset: Size
    strides: tuple[Size, ...]
    start: Node | None = None


@dataclass(eq=False, slots=True, repr=False)
class Call:
    """A routine over buffers: "gemm" of ``sizes`` (batch, m, k, n), "argsort" of (rows, n), or by its op's name one of a
    library, of (batch, rows and columns of its last operand), with the op's attributes. Memory to work in comes last among
    ``args``."""

    name: str
    out: Buffer
    args: tuple[Operand, ...]
    sizes: tuple[Size, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRS)


@dataclass(eq=False, slots=True, repr=False)
class Define:
    """Gives a size that the data decide (a mask's count) its value."""

    symbol: str
    value: Node


# -- control flow ---------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True, repr=False)
class Region:
    """Statements that run together, once or more often: a branch, the body or the condition of a loop."""

    parent: Scope | None
    body: list[Statement] = field(default_factory=list)

    @property
    def level(self) -> int:
        return 0 if self.parent is None else self.parent.level + 1


@dataclass(eq=False, slots=True, repr=False)
class For:
    """``bound`` trips; ``carried`` are accumulators without ``combine``."""

    bound: Node
    index: Node
    carried: list[Accumulator]
    body: Region


@dataclass(eq=False, slots=True, repr=False)
class While:
    """``body`` as long as ``test``, a node of ``condition``, holds. The body is inside the condition: it knows its nodes."""

    carried: list[Accumulator]
    condition: Region
    body: Region
    test: Node | None = None


@dataclass(eq=False, slots=True, repr=False)
class Choice:
    """A scalar that an ``If`` gives."""

    total: Node
    then: Node
    other: Node


@dataclass(eq=False, slots=True, repr=False)
class If:
    test: Node
    then: Region
    other: Region
    choices: list[Choice] = field(default_factory=list)


@dataclass(eq=False, slots=True, repr=False)
class Swap:
    """The buffers ``into`` get the memory of the buffers ``source``, which are the same ones in another order."""

    into: tuple[Buffer, ...]
    source: tuple[Buffer, ...]


@dataclass(eq=False, slots=True, repr=False)
class Tape:
    """Memory of one stack: elements of ``buffer.type`` one after the other. ``bounded``: made at once, for a known capacity;
    ``region``: where it begins; ``source``: the parameter that it is, ``result``: what the caller gets it as."""

    buffer: Buffer
    bounded: bool
    region: Region | None = None
    source: int | None = None
    result: int | None = None


@dataclass(eq=False, slots=True, repr=False)
class Reserve:
    """Make room in a tape for element ``height`` and, of a bounded one, all below it: else the call stops with message
    ``number``."""

    tape: Tape
    height: Node
    number: int


Scope: TypeAlias = Loop | Region
Statement: TypeAlias = Node | Loop | Store | Fail | Call | Define | For | While | If | Swap | Reserve


@dataclass(frozen=True, slots=True)
class Message:
    """What a failed check says: ``text`` with ``{0}`` and ``{1}`` for its integers; ``error`` names the kind."""

    error: str
    text: str
    loc: Loc


@dataclass(eq=False, slots=True, repr=False)
class Program:
    """A whole kernel. ``results``: for each result a Buffer (stored there) or a Node (a scalar)."""

    name: str
    params: tuple[Value, ...]
    body: list[Statement]
    results: list[Buffer | Node]
    result_types: tuple[AnyType, ...]
    messages: list[Message]
    symbols: tuple[str, ...]  # bound from the arguments' shapes
    defined: dict[str, Size]  # bound by the kernel (a mask's count), each with an upper bound
    regions: list[Size] = field(default_factory=list)  # bytes of each region of the workspace
    where: dict[Buffer, int] = field(default_factory=dict)  # the region of each work buffer
    local: dict[str, Size] = field(default_factory=dict)  # like ``defined``, but known in one block only
    tapes: list[Tape] = field(default_factory=list)


def number(size: Size) -> Node:
    """A size as a node."""
    return Node("const", i64, (), size) if isinstance(size, int) else Node("size", i64, (), size)


def raw(body: list[Statement], scope: Scope | None, code: str, *args: Node) -> Node:
    """An instruction for integers, at the end of ``body``."""
    node = Node("raw", bool_ if code.startswith("icmp") else i64, args, code, scope)
    body.append(node)
    return node


def rebase(loop: Loop, code: str, bases: Mapping[Buffer, tuple[Buffer, Node]]) -> None:
    """What touches some buffers inside a loop touches others: at ``code`` ("add" or "sub") of its position and another one."""
    new: list[Statement] = []
    for statement in loop.body:
        if isinstance(statement, Loop):
            rebase(statement, code, bases)
        elif isinstance(statement, Store) and statement.buffer in bases:
            statement.buffer, base = bases[statement.buffer]
            statement.position = raw(new, loop, code, statement.position, base)
        elif isinstance(statement, Node) and statement.kind == "load" and statement.data in bases:
            statement.data, base = bases[statement.data]
            statement.args = (raw(new, loop, code, statement.args[0], base),)
        new.append(statement)
    loop.body[:] = new


def statements(body: list[Statement]) -> Iterator[Statement]:
    """Every statement, one with others inside before them. Not recursive."""
    pending: list[Iterator[Statement]] = [iter(body)]
    while pending:
        for statement in pending[-1]:
            yield statement
            inside = () if isinstance(statement, Node) else bodies(statement)
            if inside:
                pending.extend(iter(b) for b in reversed(inside))
                break
        else:
            pending.pop()


def bodies(statement: Statement) -> tuple[list[Statement], ...]:
    """The lists of statements inside a statement."""
    match statement:
        case Loop(body=body):
            return (body,)
        case For(body=region):
            return (region.body,)
        case While(condition=condition, body=region):
            return condition.body, region.body
        case If(then=then, other=other):
            return then.body, other.body
    return ()
