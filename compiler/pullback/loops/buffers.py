"""The workspace: which region each work buffer has. Regions of one size are used again once their buffer is dead.

Two buffers that are alive in one statement never share a region, so pointers within a nest do not alias.
"""

from __future__ import annotations

from collections.abc import Iterator

from pullback.ir.dims import Dim, Size, product
from pullback.loops.nest import Buffer, Call, Node, Program, Statement, Store, statements


def assign_regions(program: Program) -> None:
    """Fill ``program.regions`` and ``program.where``."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, statement in enumerate(program.body):
        for buffer in _touched(statement):
            if buffer.place == "work":
                first.setdefault(buffer, k)
                last[buffer] = k
    ending: dict[int, list[Buffer]] = {}
    for buffer, k in last.items():
        ending.setdefault(k, []).append(buffer)
    beginning: dict[int, list[Buffer]] = {}
    for buffer, k in first.items():
        beginning.setdefault(k, []).append(buffer)
    free: dict[Size, list[int]] = {}
    for k in range(len(program.body)):
        for buffer in beginning.get(k, ()):
            size = _bounded(product(buffer.type.shape), program.defined) * buffer.type.dtype.bytes
            spare = free.setdefault(size, [])
            if not spare:
                spare.append(len(program.regions))
                program.regions.append(size)
            program.where[buffer] = spare.pop()
        for buffer in ending.get(k, ()):
            free[program.regions[program.where[buffer]]].append(program.where[buffer])


def drop_unread(program: Program) -> None:
    """Remove single stores into work buffers that nothing reads: their elements were passed on directly."""
    read: set[Buffer] = set()
    for statement in statements(program.body):
        match statement:
            case Node(kind="load", data=buffer):
                read.add(buffer)
            case Call(args=args):
                read.update(a.buffer for a in args)
    program.body[:] = [
        s for s in program.body if not (isinstance(s, Store) and s.buffer.place == "work" and s.buffer not in read)
    ]


def _touched(statement: Statement) -> Iterator[Buffer]:
    for inner in statements([statement]):
        match inner:
            case Node(kind="load", data=buffer):
                yield buffer
            case Store(buffer=buffer):
                yield buffer
            case Call(out=out, args=args):
                yield out
                yield from (a.buffer for a in args)


def _bounded(size: Size, defined: dict[str, Size]) -> Size:
    """An upper bound without the sizes that the data decide: each at its bound where it adds, at 0 where it takes away."""
    if not isinstance(size, Dim) or not size.symbols() & defined.keys():
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        term: Size = coefficient
        for atom in monomial:
            term = term * Dim(((((atom,)), 1),))
        lowest = coefficient < 0 and isinstance(term, Dim) and bool(term.symbols() & defined.keys())
        if not lowest:
            total = total + (term.replace(defined) if isinstance(term, Dim) else term)
    return _bounded(total, defined)


upper_bound = _bounded
