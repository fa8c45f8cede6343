"""Loops whose trips several threads share.

Note [Chunks]
An outermost loop (a nest's, or a band's over blocks of rows) is cut into *chunks* of consecutive trips: a loop over them is put
around it, whose trips may run at the same time, in any order. For that, whatever one trip writes and another touches has to
become the chunk's own: a sum gets a variable of its own, an array that all trips add to gets a copy, memory for one block is
there once for each chunk. A loop that follows combines these in the order of the chunks.

How many chunks there are depends on the lengths alone, so the order of every sum does too: results have the same bits with
any number of threads, one included. A chunk does GRAIN operations or more; threads are called for WORTH chunks, for that takes
about 0.2 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pullback.ir.dims import Size
from pullback.ir.ops.base import Op
from pullback.ir.types import Type, i64
from pullback.loops.bands import Member, apart, work
from pullback.loops.nest import (
    NEUTRAL,
    Accumulator,
    Buffer,
    Call,
    Loop,
    Node,
    Program,
    Statement,
    Store,
    number,
    raw,
    rebase,
    statements,
)
from pullback.loops.order import stride

MOST = 32  # chunks of a loop
FEWER = 16  # where they have copies of arrays
GRAIN = 1 << 20  # operations of a chunk at least
WORTH = 8  # chunks from which on threads are called
ROUND = 16  # trips of the outermost loop go to chunks in multiples of this, so that neighbours seldom share a line of the cache
MERE = (1, 2, 3)  # operations of a trip that fills or copies: memory is what it waits for
COPIED = 4  # operations more for each element of an array that a chunk has a copy of


def share(program: Program, new_buffer: Callable[[Type], Buffer]) -> None:
    """Cut the outermost loops of a program that can be cut. ``new_buffer`` gives memory."""
    body: list[Statement] = []
    for statement in program.body:
        copies = _copies(statement) if isinstance(statement, Loop) else None
        if copies is None:
            body.append(statement)
        else:
            assert isinstance(statement, Loop)
            body.extend(_Cut(statement, copies, new_buffer).run())
    program.body[:] = body


# -- which loops --------------------------------------------------------------------------------------------------------
def _copies(loop: Loop) -> Mapping[Buffer, Op] | None:
    """The buffers that all trips add to, of which each chunk needs a copy, and how it is added; None if the loop is not to be
    cut."""
    if loop.band is None and (isinstance(loop.extent, Node) or work(loop) in MERE):
        return None
    total = _work(loop)
    if isinstance(total, int) and total < WORTH * GRAIN:
        return None
    if any(isinstance(s, Call) for s in statements([loop])):
        return None
    members = _members(loop)
    if any(b.place == "tape" or b.moves for m in members for b in m.buffers):
        return None
    if any(a.combine is None or a.start.dtype.kind not in NEUTRAL.get(a.combine.name, ()) for a in loop.accumulators):
        return None
    own = apart(members) if loop.band is None else loop.band.apart.union(loop.band.scratch)
    copies: dict[Buffer, Op] = {}
    for member in members:
        for buffer in (b for b in member.written if b not in own):
            accesses = [a for m in members for a in m.of(buffer)]
            stores = [a.statement for a in accesses if isinstance(a.statement, Store) and a.kind == "add"]
            fixed = all(stride(s.position, m.loop) == 0 for m in members for s in stores)
            if len(stores) != len(accesses) or not fixed:
                return None
            assert stores[0].combine is not None
            copies[buffer] = stores[0].combine
    return copies


def _members(loop: Loop) -> list[Member]:
    return [Member(loop)] if loop.band is None else [Member(s) for s in loop.body if isinstance(s, Loop)]


def _work(loop: Loop) -> Size:
    """About how many operations all trips do."""
    if loop.band is not None:
        return loop.band.work
    assert not isinstance(loop.extent, Node)  # `_copies` has seen that
    return loop.extent * work(loop)


# -- cutting ------------------------------------------------------------------------------------------------------------
class _Cut:
    def __init__(self, loop: Loop, copies: Mapping[Buffer, Op], new_buffer: Callable[[Type], Buffer]):
        self.loop = loop
        self.copies = copies
        self.new_buffer = new_buffer
        self.most = FEWER if copies else MOST
        self.before: list[Statement] = []
        self.after: list[Statement] = []
        self.chunks, self.index = _open(0, None, "chunks")
        self.chunks.shared = True

    def run(self) -> list[Statement]:
        loop, chunks = self.loop, self.chunks
        extent = loop.extent if isinstance(loop.extent, Node) else number(loop.extent)
        each = self._each(extent)
        more = raw(self.before, None, "add", extent, raw(self.before, None, "sub", each, number(1)))
        chunks.extent = raw(self.before, None, "sdiv", more, each)
        low = raw(chunks.body, chunks, "mul", self.index, each)
        left = raw(chunks.body, chunks, "sub", extent, low)
        few = raw(chunks.body, chunks, "icmp slt", left, each)
        trips = raw(chunks.body, chunks, "select", few, left, each)
        self._own_memory()
        loop.low, loop.extent, loop.parent = low, trips, chunks
        chunks.body.append(loop)
        for carried in loop.accumulators:
            self._own_sum(carried)
        return [*self.before, chunks, *self.after]

    def _each(self, extent: Node) -> Node:
        """Trips of a chunk."""
        body, total = self.before, raw(self.before, None, "add", number(_work(self.loop)), number(1))
        least = raw(body, None, "sdiv", extent, number(self.most))
        wanted: Size = GRAIN
        for buffer in self.copies:
            wanted = wanted + COPIED * buffer.type.size
        dear = raw(body, None, "sdiv", raw(body, None, "mul", extent, number(wanted)), total)
        larger = raw(body, None, "icmp sgt", least, dear)
        each = raw(body, None, "select", larger, least, dear)
        unit = 1 if self.loop.band is not None else ROUND
        each = raw(body, None, "add", each, number(unit))
        return each if unit == 1 else raw(body, None, "and", each, number(-unit))

    def _own_sum(self, carried: Accumulator) -> None:
        """Each chunk leaves its sum in memory; the total is made of them."""
        assert carried.combine is not None
        dtype, start, total = carried.start.dtype, carried.start, carried.total
        parts = self.new_buffer(Type(dtype, (self.most,)))
        carried.start = Node("const", dtype, (), NEUTRAL[carried.combine.name][dtype.kind])
        carried.total = Node("total", dtype, (), carried, self.chunks)
        self.chunks.body.append(Store(parts, self.index, carried.total))
        loop, index = _open(self.chunks.extent, None, "parts")
        value = Node("load", dtype, (index,), parts, loop)
        loop.body.append(value)
        new = Accumulator(carried.combine, start, Node("current", dtype, (), None, loop), total, value)
        new.current.data = total.data = new
        loop.accumulators.append(new)
        self.after.append(loop)

    def _own_memory(self) -> None:
        bases: dict[Buffer, tuple[Buffer, Node]] = {}
        for buffer in self.loop.band.scratch if self.loop.band is not None else ():
            base = raw(self.chunks.body, self.chunks, "mul", self.index, number(buffer.type.size))
            buffer.type = Type(buffer.type.dtype, (self.most * buffer.type.size,))
            bases[buffer] = buffer, base
        for buffer, combine in self.copies.items():
            size, dtype = buffer.type.size, buffer.type.dtype
            copy = self.new_buffer(Type(dtype, (self.most * size,)))
            base = raw(self.chunks.body, self.chunks, "mul", self.index, number(size))
            bases[buffer] = copy, base
            clear, at = _open(size, self.chunks, "fill")
            clear.body.append(
                Store(copy, raw(clear.body, clear, "add", at, base), Node("const", dtype, (), NEUTRAL["add"][dtype.kind]))
            )
            self.chunks.body.append(clear)
            self._add_up(buffer, copy, size, combine)
        if bases:
            rebase(self.loop, "add", bases)

    def _add_up(self, buffer: Buffer, copy: Buffer, size: Size, combine: Op) -> None:
        outer, chunk = _open(self.chunks.extent, None, "parts")
        base = raw(outer.body, outer, "mul", chunk, number(size))
        inner, at = _open(size, outer, "parts")
        position = raw(inner.body, inner, "add", base, at)
        value = Node("load", buffer.type.dtype, (position,), copy, inner)
        inner.body += [value, Store(buffer, at, value, combine)]
        outer.body.append(inner)
        self.after.append(outer)


def _open(extent: Size | Node, parent: Loop | None, note: str) -> tuple[Loop, Node]:
    loop = Loop(extent, parent, note=note)
    loop.index = Node("index", i64, (), loop, loop)
    return loop, loop.index


__all__ = ["share"]
