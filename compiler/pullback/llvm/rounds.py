"""The loops of nests as LLVM text: plain, in blocks whose sums are compensated, or several rows at a time.

Note [Rows at a time]
Where a row's inner loop sums up, or adds to something that all rows share, ROWS rows go through one inner loop together: what
they read in common is loaded once, their sums are independent of each other, and what is added to in memory is loaded and
stored once for all of them. Rows are independent (see Note [Purity]) but for what they add to.

Note [Anchors]
A position in an inner loop is often a sum of what the outer loops say and of the inner loop's index. The first part goes into a
pointer, the *anchor* of the row, made outside the inner loop and hidden from LLVM's analysis of induction variables: that takes
time without bound for polynomials in the indices of all loops around, and gains nothing. The intrinsic that hides it stands for
no instruction, and alias analysis looks through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.ops.base import Libm
from pullback.ir.types import i64
from pullback.llvm.functions import MEMORY, TYPES, literal
from pullback.llvm.lanes import Lanes, Rows, masked, unrolled, width
from pullback.llvm.pieces import nest_kind
from pullback.loops.nest import Accumulator, Buffer, Call, Fail, Loop, Node, Region, Statement, Store
from pullback.loops.order import stride

if TYPE_CHECKING:
    from pullback.llvm.body import Body

BLOCK = 1024  # elements that a sum adds up before it moves on to the next compensated block
ROWS = 4  # rows that go through an inner loop together
HIDE = "llvm.strip.invariant.group.p0"
LITTLE = 24  # statements of an inner loop up to which that is worth it


class Names(dict[Node, str]):
    """The names of one row's scalars, before those of what is around."""

    def __init__(self, around: dict[Node, str]):
        super().__init__()
        self._around = around

    def get(self, node: Node, default: Any = None) -> Any:
        found = dict.get(self, node)
        return self._around.get(node, default) if found is None else found


def nest(body: Body, loop: Loop) -> None:
    """A loop with all that is inside."""
    if isinstance(loop.parent, Region) and nest_kind(loop) in ("clear", "move"):
        body.move(loop)
        return
    body.math.depth += 1
    totals = _Rounds(body, loop).run()
    body.math.depth -= 1
    for carried, total in zip(loop.accumulators, totals, strict=True):
        body.names[carried.total] = total


class _Rounds:
    """One loop, for one or more rows of the loop around it: ``rows`` are the names of each."""

    def __init__(self, body: Body, loop: Loop, rows: Sequence[dict[Node, str]] = ()):
        self.body = body
        self.f = body.f
        self.loop = loop
        self.rows = rows or [body.names]
        self.innermost = not any(isinstance(s, Loop) for s in loop.body)
        short = loop.short or (isinstance(loop.extent, int) and loop.extent <= BLOCK)
        self.accumulators = [a for _ in self.rows for a in loop.accumulators]
        self.kinds = [TYPES[a.start.dtype.name] for a in self.accumulators]
        self.zeros = [literal(0, a.start.dtype) for a in self.accumulators]
        self.exact = [not short and _is_sum(a) for a in self.accumulators]  # sums that are compensated
        self.extra = [k for k, exact in enumerate(self.exact) if exact]
        self.anchors = [self._anchors(names) for names in self.rows] if self.innermost else []
        self.width = width(loop, body.emitter.features) if self.innermost else 0
        if self.width:
            shared = Rows(loop, len(self.rows))
            own = zip(self.rows, self.anchors, strict=True)
            self.lanes = [Lanes(body, loop, self.width, *row, shared, k) for k, row in enumerate(own)]

    def run(self) -> list[str]:
        """The totals of every row's accumulators."""
        if self.innermost and self.extra:
            return self._blocked()
        body, f = self.body, self.f
        low, high = "0", body.extent(self.loop)
        if self.loop.low is not None:
            low = body.name(self.loop.low)
            high = f.let(f"add nsw i64 {low}, {high}")
        starts = self._starts()
        if self.innermost:
            return self._sweep(low, high, starts)
        if self.extra or not together(self.loop):
            return self._plain(low, high, starts)
        low, starts = self._together(low, high, starts)
        body.sparing = True  # of code, for what is left
        found = self._plain(low, high, starts)
        body.sparing = False
        return found

    def _starts(self) -> list[str]:
        found = []
        for names in self.rows:
            self.body.names = names
            found += [self.body.name(a.start) for a in self.loop.accumulators]
        return found

    def _trip(self, index: str, values: list[str]) -> list[str]:
        """The body once for each row; the next values of what is carried, sums not yet added."""
        body, loop, count = self.body, self.loop, len(self.loop.accumulators)
        assert loop.index is not None
        following = []
        for k, names in enumerate(self.rows):
            body.names = names
            body.anchors = self.anchors[k] if self.anchors else {}
            names[loop.index] = index
            own = values[k * count : (k + 1) * count]
            for carried, value in zip(loop.accumulators, own, strict=True):
                names[carried.current] = value
            body.statements(loop.body)
            following += self._next(own)
        body.anchors = {}
        return following

    def _anchors(self, names: dict[Node, str]) -> dict[tuple[Buffer, Node], tuple[str, Node]]:
        """For what the loop loads and stores in one row: where its row begins, and the position from there."""
        body, f = self.body, self.f
        found: dict[tuple[Buffer, Node], tuple[str, Node]] = {}
        pointers: dict[tuple[Any, ...], str] = {}
        body.names = names
        for statement in self.loop.body:
            access = _access(statement)
            if access is None or access[0].place == "tape" or access[0].moves:
                continue
            buffer, position = access
            outer, inner = _parts(position, self.loop)
            if len(inner) != 1 or not any(isinstance(node.scope, Loop) for _, node in outer):
                continue
            key = (buffer, *outer)
            if key not in pointers:
                total = ""
                for sign, node in outer:
                    name = body.name(node)
                    total = f.let(f"{sign} nsw i64 {total or 0}, {name}") if total or sign != "add" else name
                kind = MEMORY[buffer.type.dtype.name]
                row = f.let(f"getelementptr inbounds {kind}, ptr {body.pointer(buffer)}, i64 {total}")
                body.math.declare(HIDE, f"declare ptr @{HIDE}(ptr)")
                pointers[key] = f.let(f"call ptr @{HIDE}(ptr {row})")
            found[buffer, position] = (pointers[key], inner[0])
        return found

    def _next(self, values: Sequence[str]) -> list[str]:
        """What one row's accumulators become."""
        following = []
        for carried, value in zip(self.loop.accumulators, values, strict=True):
            assert carried.value is not None
            term = self.body.name(carried.value)
            if carried.combine is not None:
                dtype = carried.start.dtype
                term = self.body.operation(carried.combine, dtype, [dtype, dtype], [value, term])
            following.append(term)
        return following

    # -- the innermost loop ------------------------------------------------------------------------------------------
    def _sweep(self, low: str, high: str, starts: list[str]) -> list[str]:
        """All trips of an innermost loop, none of whose sums is compensated; in vectors where that can be."""
        f = self.f
        if not self.width:
            return f.counted(low, high, list(zip(self.kinds, starts, strict=True)), self._trip)
        count = f.let(f"sub nsw i64 {high}, {low}")
        count = f.let(f"select i1 {f.let(f'icmp sgt i64 {count}, 0')}, i64 {count}, i64 0")
        kinds = [lanes.kind(a.start.dtype) for lanes in self.lanes for a in self.loop.accumulators]
        values = [lanes.neutral(a) for lanes in self.lanes for a in self.loop.accumulators]
        times = 1 if len(self.rows) > 1 or self.body.sparing else unrolled(self.loop)
        at, values = self._vectors(low, count, times, kinds, values)
        if not masked(self.loop):
            starts = self._totals(starts, values)
            return f.counted(at, high, list(zip(self.kinds, starts, strict=True)), self._trip)
        return self._totals(starts, self._left_over(at, high, times, kinds, values))

    def _vectors(self, low: str, count: str, times: int, kinds: list[str], values: list[str]) -> tuple[str, list[str]]:
        """Trips of ``times`` vectors, as many as there are whole ones."""
        f, step, size = self.f, times * self.width, len(values)
        end = f.let(f"add nsw i64 {low}, {f.let(f'and i64 {count}, {-step}')}")

        def trip(index: str, given: list[str]) -> list[str]:
            following: list[str] = []
            for k in range(times):
                start = f.let(f"add nuw nsw i64 {index}, {k * self.width}") if k else index
                following += self._trip_of_vectors(start, given[k * size : (k + 1) * size])
            return following

        found = f.counted(low, end, list(zip(kinds * times, values * times, strict=True)), trip, step=step)
        while len(found) > size:  # pairs first, for accuracy
            half = len(found) // 2
            found = [self._both(k % size, found[k], found[k + half]) for k in range(half)]
        return end, found

    def _both(self, k: int, left: str, right: str) -> str:
        carried = self.accumulators[k]
        assert carried.combine is not None
        dtype = carried.start.dtype
        return self.lanes[0].operation(carried.combine, dtype, [dtype, dtype], [left, right])

    def _trip_of_vectors(self, index: str, values: Sequence[str], mask: str = "") -> list[str]:
        count = len(self.loop.accumulators)
        following: list[str] = []
        for k, lanes in enumerate(self.lanes):
            following += lanes.trip(index, values[k * count : (k + 1) * count], mask)
        return following

    def _left_over(self, at: str, high: str, times: int, kinds: list[str], values: list[str]) -> list[str]:
        """The last elements, fewer than ``times`` vectors have, each vector under a mask. Without a loop, which takes more time
        to compile than what would stand in it several times."""
        f, lanes = self.f, self.lanes[0]

        def rest() -> list[str]:
            left, found = lanes.splat(f.let(f"sub nsw i64 {high}, {at}"), i64), values
            self.body.math.cold = True
            for k in range(times):
                numbers = ", ".join(f"i64 {k * self.width + lane}" for lane in range(self.width))
                mask = f.let(f"icmp slt <{self.width} x i64> <{numbers}>, {left}")
                found = self._trip_of_vectors(f.let(f"add nuw nsw i64 {at}, {k * self.width}") if k else at, found, mask)
            self.body.math.cold = False
            return found

        return f.when(f.let(f"icmp slt i64 {at}, {high}"), list(zip(kinds, values, strict=True)), rest)

    def _totals(self, starts: Sequence[str], values: Sequence[str]) -> list[str]:
        return [
            self.lanes[0].total(carried, start, value)
            for carried, start, value in zip(self.accumulators, starts, values, strict=True)
        ]

    def _plain(self, low: str, high: str, starts: list[str]) -> list[str]:
        """One loop. A compensated sum carries its rounding error in a second variable."""
        count = len(self.kinds)

        def trip(index: str, values: list[str]) -> list[str]:
            sums, errors = values[:count], values[count:]
            # a compensated sum takes the term alone: combined with the neutral start of a sum, which changes nothing
            inputs = [self.zeros[k] if self.exact[k] else s for k, s in enumerate(sums)]
            following = self._trip(index, inputs)
            for j, k in enumerate(self.extra):
                following[k], errors[j] = self._two_sum(self.kinds[k], sums[k], following[k], errors[j])
            return following + errors

        carried = list(zip(self.kinds, starts, strict=True)) + [(self.kinds[k], self.zeros[k]) for k in self.extra]
        return self._corrected(self.f.counted(low, high, carried, trip))

    def _blocked(self) -> list[str]:
        """Blocks of BLOCK trips: within one, each lane has a sum of its own; blocks are added compensated."""
        f, loop = self.f, self.loop
        extent = self.body.extent(loop)
        early = f.let if isinstance(loop.extent, Node) else f.at_entry
        more = early(f"add i64 {extent}, {BLOCK - 1}")
        blocks = early(f"ashr i64 {more}, {BLOCK.bit_length() - 1}")
        count = len(self.kinds)

        def block(number: str, values: list[str]) -> list[str]:
            low = f.let(f"mul nuw nsw i64 {number}, {BLOCK}")
            left = f.let(f"sub nsw i64 {extent}, {low}")
            if loop.low is not None:
                low = f.let(f"add nsw i64 {low}, {self.body.name(loop.low)}")
            some = f.let(f"icmp slt i64 {left}, {BLOCK}")
            high = f.let(f"add nsw i64 {low}, {f.let(f'select i1 {some}, i64 {left}, i64 {BLOCK}')}")
            starts = [self.zeros[k] if exact else values[k] for k, exact in enumerate(self.exact)]
            found = self._sweep(low, high, starts)
            errors = values[count:]
            for j, k in enumerate(self.extra):
                found[k], errors[j] = self._two_sum(self.kinds[k], values[k], found[k], errors[j])
            return found + errors

        carried = list(zip(self.kinds, self._starts(), strict=True)) + [(self.kinds[k], self.zeros[k]) for k in self.extra]
        return self._corrected(f.counted("0", blocks, carried, block))

    # -- several rows ------------------------------------------------------------------------------------------------
    def _together(self, low: str, high: str, starts: list[str]) -> tuple[str, list[str]]:
        """As many rows as ROWS divides; where the rest begins, and what the accumulators have become by then."""
        f, body, loop = self.f, self.body, self.loop
        assert loop.index is not None
        around = body.names
        rows = f.let(f"and i64 {f.let(f'sub nsw i64 {high}, {low}')}, {-ROWS}")
        middle = f.let(f"add nsw i64 {low}, {rows}")
        at = next(k for k, s in enumerate(loop.body) if isinstance(s, Loop))
        inner = loop.body[at]
        assert isinstance(inner, Loop)

        def trip(index: str, values: list[str]) -> list[str]:
            envs = [Names(around) for _ in range(ROWS)]
            for k, names in enumerate(envs):
                body.names = names
                names[loop.index] = f.let(f"add nuw nsw i64 {index}, {k}") if k else index  # type: ignore[index]
                body.statements(loop.body[:at])
            totals = _Rounds(body, inner, envs).run()
            count = len(inner.accumulators)
            for k, names in enumerate(envs):
                body.names = names
                for carried, total in zip(inner.accumulators, totals[k * count : (k + 1) * count], strict=True):
                    names[carried.total] = total
                body.statements(loop.body[at + 1 :])
                values = self._next(values)
            return values

        found = f.counted(low, middle, list(zip(self.kinds, starts, strict=True)), trip, step=ROWS)
        body.names = around
        return middle, found

    # -- compensation ------------------------------------------------------------------------------------------------
    def _two_sum(self, kind: str, total: str, term: str, error: str) -> tuple[str, str]:
        """``total + term`` and the accumulated rounding error (Knuth's branch-free form)."""
        f = self.f
        new = f.let(f"fadd {kind} {total}, {term}")
        part = f.let(f"fsub {kind} {new}, {total}")
        rest = f.let(f"fsub {kind} {new}, {part}")
        lost = f.let(f"fadd {kind} {f.let(f'fsub {kind} {total}, {rest}')}, {f.let(f'fsub {kind} {term}, {part}')}")
        return new, f.let(f"fadd {kind} {error}, {lost}")

    def _corrected(self, found: list[str]) -> list[str]:
        """Add the errors, unless the sum is not finite and they are therefore NaN."""
        f, count = self.f, len(self.accumulators)
        for j, k in enumerate(self.extra):
            kind, error = self.kinds[k], found[count + j]
            fine = f.let(f"fcmp ord {kind} {error}, {error}")
            exact = f.let(f"fadd {kind} {found[k]}, {error}")
            found[k] = f.let(f"select i1 {fine}, {kind} {exact}, {kind} {found[k]}")
        return found[:count]


def _access(statement: Statement) -> tuple[Buffer, Node] | None:
    match statement:
        case Node(kind="load", data=buffer, args=(position,)):
            return buffer, position
        case Store(buffer=buffer, position=position):
            return buffer, position
    return None


def _parts(position: Node, loop: Loop) -> tuple[list[tuple[str, Node]], list[Node]]:
    """A position as a sum: (sign, term) for what does not depend on the loop, and the terms that do."""
    outer: list[tuple[str, Node]] = []
    inner: list[Node] = []
    pending = [("add", position)]
    while pending:
        sign, node = pending.pop()
        if node.scope is not loop:
            outer.append((sign, node))
        elif node.kind == "raw" and node.data in ("add", "sub") and sign == "add":
            pending += [("add", node.args[0]), (node.data, node.args[1])]
        elif sign == "add":
            inner.append(node)
        else:
            return [], [position]
    return outer, inner


def _is_sum(carried: Accumulator) -> bool:
    return carried.combine is not None and carried.combine.name == "add" and carried.start.dtype.kind == "f"


def together(loop: Loop) -> bool:
    """Whether several trips of a loop should go through its inner loop together."""
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if len(inner) != 1 or any(a.combine is None for a in loop.accumulators):
        return False
    if isinstance(loop.extent, int) and loop.extent < 2 * ROWS:
        return False
    if any(isinstance(s, (Fail, Call)) for s in (*loop.body, *inner[0].body)) or len(inner[0].body) > LITTLE:
        return False
    if any(isinstance(s, (Loop, Fail)) or _is_dear(s) for s in inner[0].body):
        return False
    return any(a.combine is not None for a in inner[0].accumulators) or any(
        isinstance(s, Store) and s.combine is not None and stride(s.position, loop) == 0 for s in inner[0].body
    )


def _is_dear(statement: Statement) -> bool:
    return isinstance(statement, Node) and statement.kind == "op" and isinstance(statement.data.lower, Libm)


__all__ = ["BLOCK", "nest"]
