"""The workspace: which region each work buffer has. Regions of one size are used again once their buffer is dead.

Two buffers that are alive in one statement never share a region, so pointers within a nest do not alias.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from pullback.ir.dims import Size, product, upper_bound
from pullback.loops.nest import Buffer, Call, Loop, Node, Program, Statement, Store, Swap, bodies, statements


def assign_regions(program: Program, swaps: Sequence[Swap]) -> None:
    """Fill ``program.regions`` and ``program.where``. Buffers that exchange memory live together."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, statement in enumerate(program.body):
        if isinstance(statement, Node) and statement.kind != "load":
            continue
        for buffer in _touched(statement):
            if buffer.place == "work":
                first.setdefault(buffer, k)
                last[buffer] = k
    together = _together(swaps, last)
    for group in together:
        for buffer in group:
            first[buffer], last[buffer] = min(first[b] for b in group), max(last[b] for b in group)
    ending: dict[int, list[Buffer]] = {}
    for buffer, k in last.items():
        ending.setdefault(k, []).append(buffer)
    beginning: dict[int, list[Buffer]] = {}
    for buffer, k in first.items():
        beginning.setdefault(k, []).append(buffer)
    bounds = {**program.defined, **program.local}
    free: dict[Size, list[int]] = {}
    for k in range(len(program.body)):
        for buffer in beginning.get(k, ()):
            size = upper_bound(product(buffer.type.shape), bounds) * buffer.type.dtype.bytes
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
    stored = False
    for statement in statements(program.body):
        if isinstance(statement, Node):
            if statement.kind == "load":
                read.add(statement.data)
        elif isinstance(statement, Call):
            read.update(a.buffer for a in statement.args)
        elif isinstance(statement, Store):
            stored = True
    if not stored:
        return
    pending = [program.body]
    while pending:
        body = pending.pop()
        body[:] = [
            s
            for s in body
            if not (isinstance(s, Store) and s.buffer.place == "work" and not s.buffer.moves and s.buffer not in read)
        ]
        for statement in body:
            if not isinstance(statement, Loop):  # of a nest that stores nothing a loop would remain
                pending.extend(bodies(statement))


def _together(swaps: Sequence[Swap], live: Container[Buffer]) -> list[list[Buffer]]:
    """Groups of buffers that exchange memory, directly or through others."""
    groups: dict[Buffer, list[Buffer]] = {}
    for swap in swaps:
        merged: dict[Buffer, None] = {}
        for buffer in swap.into:
            merged.update(dict.fromkeys(groups.get(buffer, [buffer])))
        group = [b for b in merged if b in live]
        groups.update(dict.fromkeys(group, group))
    return [g for b, g in groups.items() if g[0] is b]


def _touched(statement: Statement) -> Iterator[Buffer]:
    for inner in statements([statement]):
        match inner:
            case Node(kind="load", data=buffer):
                yield buffer
            case Store(buffer=buffer):
                yield buffer
            case Swap(into=into):
                yield from into
            case Call(out=out, args=args):
                yield out
                yield from (a.buffer for a in args)
