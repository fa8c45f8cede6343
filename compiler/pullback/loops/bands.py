"""Nests over the same rows become one loop over blocks of rows.

Note [Bands]
A *band* is a loop over blocks of rows; in each trip its members, which are nests over those rows, run one after the other. What
one member leaves for the next is still in the cache then, and needs memory for one block only: ``X @ w``, a link function and
``X.T @ r`` read ``X`` once from memory, while each inner loop is as simple as before and vectorises.

A row is a trip of a member's outermost loop (or ``rows`` trips of it, where another member's rows are longer). Two members may
share a band if whatever one of them writes and the other touches is at the same rows, or if both only add to it. Statements
between them go before the band where they do not depend on it, else after it. Sums over rows are finished by the band: each
block's sum is added with compensation. How many rows a block has depends on the lengths alone, so sums do too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pullback.ir.dims import Size, floordiv
from pullback.ir.ops.base import Libm
from pullback.ir.types import Type, i64
from pullback.loops.nest import (
    Accumulator,
    Band,
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
    number,
    raw,
    rebase,
    statements,
)
from pullback.loops.order import stride
from pullback.loops.ranges import bounds, nonnegative

CACHE = 1 << 16  # bytes that a block should touch at most
MOST, LEAST = 1024, 4  # rows of a block
FUNCTION = 16  # operations that a mathematical function does
AHEAD = 100  # statements looked through for members of a band


@dataclass(frozen=True, slots=True)
class _Access:
    """``stride``: by how many elements the position grows from one trip of the outermost loop to the next, if the positions of
    a trip are within that many elements; else None."""

    buffer: Buffer
    kind: str  # "read", "write" or, where a store combines, the name of the op
    stride: Size | None
    statement: Node | Store


class Member:
    """A loop that does the same for each of its rows, and what it touches."""

    def __init__(self, loop: Loop):
        self.loop = loop
        self.extent: Size = loop.extent  # type: ignore[assignment]  # _eligible has seen that it is no node
        self.rows: Size = 1
        self.accesses = [_access(s, loop) for s in statements([loop]) if _touches(s)]
        # in order, so that the text is the same in every run
        self.buffers = dict.fromkeys(a.buffer for a in self.accesses).keys()
        self.written = dict.fromkeys(a.buffer for a in self.accesses if a.kind != "read").keys()

    def of(self, buffer: Buffer) -> list[_Access]:
        return [a for a in self.accesses if a.buffer is buffer]

    @property
    def work(self) -> Size:
        """About how many operations all trips do."""
        return self.extent * work(self.loop)

    def row(self, access: _Access) -> Size | None:
        """How many elements of the buffer belong to a row of the band."""
        return None if access.stride is None else access.stride * self.rows


@dataclass(slots=True)
class _Band:
    """A band being gathered. ``after`` are statements that have to wait for it, ``made`` what it and they give."""

    extent: Size
    members: list[Member] = field(default_factory=list)
    before: list[Statement] = field(default_factory=list)
    after: list[Statement] = field(default_factory=list)
    made: set[Node] = field(default_factory=set)
    touched: set[Buffer] = field(default_factory=set)  # by what waits
    written: set[Buffer] = field(default_factory=set)  # by what waits
    fails: bool = False

    def depends(self, statement: Statement) -> bool:
        """Whether a statement has to stay behind the band or what waits for it."""
        return self._after_those_that_wait(statement) or any(
            inner.buffer in m.written or (_writes(inner) and inner.buffer in m.buffers)
            for inner in _buffers(statement)
            for m in self.members
        )

    def _after_those_that_wait(self, statement: Statement) -> bool:
        return any(arg in self.made for s in statements([statement]) for arg in _arguments(s)) or any(
            b.buffer in self.written or (_writes(b) and b.buffer in self.touched) for b in _buffers(statement)
        )

    def wait(self, statement: Statement) -> None:
        self.after.append(statement)
        for inner in statements([statement]):
            if isinstance(inner, Node):
                self.made.add(inner)
            elif isinstance(inner, Loop):
                self.made.update(a.total for a in inner.accumulators)
        for found in _buffers(statement):
            self.touched.add(found.buffer)
            if _writes(found):
                self.written.add(found.buffer)

    def join(self, loop: Loop) -> bool:
        """Make ``loop`` a member, if it may be one."""
        if self._after_those_that_wait(loop):
            return False
        new = Member(loop)
        new.rows = ratio = _ratio(new.extent, self.extent)
        extent, scale = self.extent, 1 if ratio else _ratio(self.extent, new.extent)
        if not ratio:
            if not scale:
                return False
            extent, new.rows = new.extent, 1
        for member in self.members:
            member.rows = member.rows * scale
        fits = any(m.buffers & new.buffers for m in self.members) and all(_fit(m, new) for m in self.members)
        if not fits:
            for member in self.members:
                member.rows = floordiv(member.rows, scale)
            return False
        self.extent = extent
        self.add(new)
        return True

    def add(self, member: Member) -> None:
        self.members.append(member)
        self.made.update(a.total for a in member.loop.accumulators)
        self.fails = self.fails or any(isinstance(s, Fail) for s in statements([member.loop]))


def fuse(program: Program) -> None:
    """Gather the bands of a program's outermost statements."""
    body = program.body
    if sum(1 for s in body if _eligible(s)) < 2:
        return
    outside = _outside(program)
    new: list[Statement] = []
    k = 0
    while k < len(body):
        band, end = _gather(body, k) if _eligible(body[k]) else (None, k)
        if band is None or len(band.members) < 2:
            new.append(body[k])
            k += 1
            continue
        new.extend(band.before)
        new.extend(_Builder(band, program, outside).run())
        body[k:end] = band.after
    body[:] = new


def _gather(body: list[Statement], start: int) -> tuple[_Band, int]:
    """The band that begins with a loop, and where the statements end that it was gathered from."""
    first = body[start]
    assert isinstance(first, Loop)
    opening = Member(first)
    band = _Band(opening.extent)
    band.add(opening)
    end, kept = start + 1, (start + 1, 0)  # up to the last member
    for statement in body[start + 1 : start + AHEAD]:
        if isinstance(statement, (For, While, If, Swap, Reserve, Define)):
            break
        depends = band.depends(statement)
        if isinstance(statement, Fail) and not statement.again and (depends or band.fails):
            break
        end += 1
        if _eligible(statement) and isinstance(statement, Loop) and band.join(statement):
            kept = (end, len(band.after))
        elif depends:
            band.wait(statement)
        else:
            band.before.append(statement)
    return (band, end) if end == kept[0] else _shortened(band, body, start, kept[0])


def _shortened(band: _Band, body: list[Statement], start: int, end: int) -> tuple[_Band, int]:
    """Without what was looked through behind the last member."""
    own = {id(s) for s in body[start:end]}
    band.before = [s for s in band.before if id(s) in own]
    band.after = [s for s in band.after if id(s) in own]
    return band, end


def _eligible(statement: Statement) -> bool:
    """Whether a statement could be a member of a band."""
    if not isinstance(statement, Loop) or isinstance(statement.extent, Node):
        return False
    return not any(touch.buffer.moves or touch.buffer.place == "tape" for touch in _buffers(statement))


def work(loop: Loop) -> Size:
    """About how many operations a trip does; inner loops of unknown length count as one trip."""
    total: Size = 1
    for inner in loop.body:
        match inner:
            case Loop(extent=extent):
                total = total + (1 if isinstance(extent, Node) else extent) * work(inner)
            case Node(kind="op", data=op) if isinstance(op.lower, Libm):
                total = total + FUNCTION
            case Node(kind="op" | "load") | Store():
                total = total + 1
    return total


def apart(members: Sequence[Member]) -> frozenset[Buffer]:
    """The buffers of which no two rows touch the same element."""
    found: dict[Buffer, set[Size | None]] = {}
    for member in members:
        for access in member.accesses:
            found.setdefault(access.buffer, set()).add(member.row(access))
    return frozenset(buffer for buffer, rows in found.items() if len(rows) == 1 and None not in rows)


def _ratio(longer: Size, shorter: Size) -> Size:
    """How many times one size is the other, or 0."""
    if longer == shorter:
        return 1
    if isinstance(shorter, int) and (shorter == 0 or (isinstance(longer, int) and longer % shorter)):
        return 0
    found = floordiv(longer, shorter)
    return found if found * shorter == longer and nonnegative(found) else 0


# -- what a statement touches -----------------------------------------------------------------------------------------
def _touches(statement: Statement) -> bool:
    return isinstance(statement, Store) or (isinstance(statement, Node) and statement.kind == "load")


def _access(statement: Statement, loop: Loop) -> _Access:
    if isinstance(statement, Store):
        kind = statement.combine.name if statement.combine else "write"
        return _Access(statement.buffer, kind, _row(statement.position, loop), statement)
    assert isinstance(statement, Node)
    return _Access(statement.data, "read", _row(statement.args[0], loop), statement)


def _row(position: Node, loop: Loop) -> Size | None:
    step = stride(position, loop)
    if step is None or step == 0:
        return None
    low, high = bounds(position, fixed=loop)
    if low is None or high is None or not nonnegative(low) or not nonnegative(step - 1 - high):
        return None
    return step


@dataclass(frozen=True, slots=True)
class _Touch:
    buffer: Buffer
    write: bool


def _writes(touch: _Touch) -> bool:
    return touch.write


def _buffers(statement: Statement) -> Iterator[_Touch]:
    for inner in statements([statement]):
        match inner:
            case Node(kind="load", data=buffer):
                yield _Touch(buffer, False)
            case Store(buffer=buffer):
                yield _Touch(buffer, True)
            case Call(out=out, args=args):
                yield _Touch(out, True)
                yield from (_Touch(a.buffer, False) for a in args)


def _arguments(statement: Statement) -> Iterable[Node]:
    match statement:
        case Node(args=args):
            return args
        case Store(position=position, value=value):
            return (position, value)
        case Fail(ok=ok, values=values):
            return (ok, *values)
        case Loop(accumulators=accumulators):
            return [n for a in accumulators for n in (a.start, a.value) if n is not None]
        case Call(args=args):
            return [a.start for a in args if a.start is not None]
    return ()


def _fit(first: Member, second: Member) -> bool:
    """Whether the second may do a block of rows before the first does the next."""
    for buffer in (first.buffers & second.written) | (first.written & second.buffers):
        one, other = first.of(buffer), second.of(buffer)
        kinds = {a.kind for a in (*one, *other)}
        if len(kinds) == 1 and kinds.isdisjoint({"read", "write"}):
            continue  # both only combine, with the same op
        rows = {first.row(a) for a in one} | {second.row(a) for a in other}
        if len(rows) != 1 or None in rows:
            return False
    return True


def _outside(program: Program) -> dict[Buffer, int]:
    """How many statements touch each buffer."""
    count: dict[Buffer, int] = {}
    for statement in program.body:
        for touch in _buffers(statement):
            count[touch.buffer] = count.get(touch.buffer, 0) + 1
        if not isinstance(statement, (Node, Loop, Store, Call, Fail)):
            for inner in statements([statement]):
                for buffer in getattr(inner, "into", ()):
                    count[buffer] = count.get(buffer, 0) + 1
    return count


# -- building ---------------------------------------------------------------------------------------------------------
class _Builder:
    def __init__(self, band: _Band, program: Program, outside: dict[Buffer, int]):
        self.band = band
        self.program = program
        self.outside = outside
        self.before: list[Statement] = []
        self.loop = Loop(0, None, note="blocks")
        self.loop.index = Node("index", i64, (), self.loop, self.loop)

    def run(self) -> list[Statement]:
        extent = number(self.band.extent)
        own = apart(self.band.members)
        total = sum((m.work for m in self.band.members), 0)
        row = self._row_bytes()
        count = self._rows(row)
        more = self._raw("add", extent, self._raw("sub", count, number(1)))
        self.loop.extent = self._raw("sdiv", more, count)
        assert self.loop.index is not None
        low = self._raw("mul", self.loop.index, count)
        left = self._raw("sub", extent, low)
        trips = self._raw("select", self._raw("icmp slt", left, count), left, count)
        for member in self.band.members:
            self._member(member, low, trips)
        self.loop.band = Band(own, self._shrink(low), total)
        self.loop.body.extend(member.loop for member in self.band.members)
        return [*self.before, self.loop]

    def _member(self, member: Member, low: Node, trips: Node) -> None:
        loop = member.loop
        scale = number(member.rows)
        loop.low = low if member.rows == 1 else self._raw("mul", low, scale)
        loop.extent = trips if member.rows == 1 else self._raw("mul", trips, scale)
        loop.parent, loop.short = self.loop, member.rows == 1
        for inner in loop.accumulators:
            outer = Accumulator(inner.combine, inner.start, _copy(inner.current, self.loop), inner.total)
            outer.current.data = outer.total.data = outer
            inner.total = _copy(inner.total, self.loop)
            inner.total.data = inner
            if inner.combine is None:
                inner.start = outer.current
            outer.value = inner.total
            self.loop.accumulators.append(outer)

    # -- how many rows -----------------------------------------------------------------------------------------------
    def _row_bytes(self) -> Size:
        total: Size = 8  # never 0
        seen: set[Buffer] = set()
        for member in self.band.members:
            for access in member.accesses:
                row = member.row(access)
                if row is not None and access.buffer not in seen:
                    seen.add(access.buffer)
                    total = total + row * access.buffer.type.dtype.bytes
        return total

    def _rows(self, row: Size) -> Node:
        if isinstance(row, int):
            return number(max(LEAST, min(MOST, CACHE // row // LEAST * LEAST)))
        fitting = self._raw("udiv", number(CACHE), number(row))
        few = self._raw("select", self._raw("icmp slt", fitting, number(MOST)), fitting, number(MOST))
        some = self._raw("and", few, number(-LEAST))
        return self._raw("select", self._raw("icmp sgt", some, number(LEAST)), some, number(LEAST))

    # -- memory for one block ----------------------------------------------------------------------------------------
    def _shrink(self, low: Node) -> tuple[Buffer, ...]:
        """Work buffers that only the members touch, row by row, get memory for one block; gives them."""
        bases: dict[Buffer, Node] = {}
        for buffer in {b: None for m in self.band.members for b in m.buffers}:
            using = [m for m in self.band.members if buffer in m.buffers]
            rows = {m.row(a) for m in using for a in m.of(buffer)}
            touched = sum(len(m.of(buffer)) for m in using)
            first = using[0].of(buffer)[0]
            if buffer.place != "work" or buffer.moves or len(rows) != 1 or None in rows:
                continue
            if touched != self.outside[buffer] or first.kind != "write" or buffer in self.program.results:
                continue
            (row,) = rows
            assert row is not None
            bytes_ = buffer.type.dtype.bytes
            most = CACHE // bytes_ + LEAST * row
            if isinstance(row, int) and isinstance(most, int):
                most = min(MOST * row, most)
            buffer.type = Type(buffer.type.dtype, (most,))
            bases[buffer] = low if row == 1 else self._raw("mul", low, number(row))
        if bases:
            for member in self.band.members:
                rebase(member.loop, "sub", {buffer: (buffer, base) for buffer, base in bases.items()})
        return tuple(bases)

    # -- nodes -------------------------------------------------------------------------------------------------------
    def _raw(self, code: str, *args: Node) -> Node:
        inside = any(a.scope is not None for a in args)
        return raw(self.loop.body if inside else self.before, self.loop if inside else None, code, *args)


def _copy(node: Node, scope: Loop) -> Node:
    return Node(node.kind, node.dtype, (), None, scope)


__all__ = ["Member", "apart", "fuse", "work"]
