"""A writer of LLVM text for code with branches and loops: variables live on the stack until LLVM's passes take them off it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pullback_runtime.direct import MOST, MOST_PARTS

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout

MISS = "inttoptr (i64 1 to ptr)"  # what ``serve`` gives where the slow path has to be taken

# Words of a call's own memory, on the stack.
HELD, BYTES, SPANS, BAD, CLAIMED, SLOT, GONE_COUNT = range(7)
INPUTS = 8
CELLS, OUTPUTS, RESULTS, MADE, GIVEN, HOLDS, SIZES = (INPUTS + k * MOST for k in range(1, 8))
RANGES = SIZES + MOST
DIMS = RANGES + 3 * MOST
CAPTURED = DIMS + 64
REUSED = CAPTURED + MOST
PARTS = REUSED + MOST
GONE = PARTS + MOST_PARTS
STATE = GONE + MOST_PARTS


class Code:
    """One function. Values are names such as ``%v3`` or literals; what is no pointer is an ``i64`` unless it says so."""

    def __init__(self, head: str):
        self._head = head
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._names = itertools.count()
        self._left = False  # whether the block has ended with a return or a branch

    def text(self) -> str:
        """The function; whatever is written last has returned."""
        return "\n".join([f"{self._head} {{", "entry:", *self._entry, "  br label %start", "start:", *self._lines, "}"])

    # -- lines ------------------------------------------------------------------------------------------------------
    def name(self, hint: str = "v") -> str:
        return f"%{hint}{next(self._names)}"

    def do(self, line: str) -> None:
        if not self._left:  # what follows a return is never reached
            self._lines.append(f"  {line}")

    def let(self, line: str) -> str:
        name = self.name()
        self.do(f"{name} = {line}")
        return name

    def block(self, label: str) -> None:
        self._left = False
        self._lines.append(f"{label[1:]}:")

    def room(self, count: int, align: int = 8, item: str = "i64") -> str:
        """Memory on the stack."""
        name = self.name("room")
        self._entry.append(f"  {name} = alloca [{count} x {item}], align {align}")
        return name

    # -- memory -----------------------------------------------------------------------------------------------------
    def at(self, pointer: str, index: str | int) -> str:
        """The address of word ``index``."""
        return pointer if index == 0 else self.let(f"getelementptr i64, ptr {pointer}, i64 {index}")

    def byte(self, pointer: str, offset: int | str) -> str:
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, pointer: str, index: str | int = 0, kind: str = "i64") -> str:
        return self.let(f"load {kind}, ptr {self.at(pointer, index)}")

    def field(self, pointer: str, offset: int, kind: str = "ptr") -> str:
        """What an object has at ``offset`` bytes."""
        return self.let(f"load {kind}, ptr {self.byte(pointer, offset)}")

    def store(self, value: str | int, pointer: str, index: str | int = 0, kind: str = "i64") -> None:
        self.do(f"store {kind} {value}, ptr {self.at(pointer, index)}")

    def hold(self, layout: Layout, thing: str) -> None:
        """One reference more to an object that is no immortal one."""
        if layout.counts:
            self.store(self.let(f"add i64 {self.load(thing)}, 1"), thing)
        else:
            self.do(f"call void @Py_IncRef(ptr {thing})")

    def drop(self, layout: Layout, thing: str) -> None:
        """One reference less."""
        if not layout.counts:
            self.do(f"call void @Py_DecRef(ptr {thing})")
            return
        count = self.load(thing)
        last, more, after = (self.name(n) for n in ("last", "more", "dropped"))
        self.do(f"br i1 {self.test('eq', count, 1)}, label {last}, label {more}")
        self.block(last)
        self.do(f"call void @Py_DecRef(ptr {thing})")
        self.go(after)
        self.block(more)
        self.store(self.let(f"sub i64 {count}, 1"), thing)
        self.go(after)
        self.block(after)

    # -- conditions -------------------------------------------------------------------------------------------------
    def test(self, relation: str, a: str, b: str | int, kind: str = "i64") -> str:
        return self.let(f"icmp {relation} {kind} {a}, {b}")

    def null(self, pointer: str) -> str:
        return self.test("eq", pointer, "null", "ptr")

    def give(self, value: str) -> None:
        self.do(f"ret {value}")
        self._left = True

    def go(self, label: str) -> None:
        self.do(f"br label {label}")
        self._left = True

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        inside, after = self.name("when"), self.name("after")
        self.do(f"br i1 {condition}, label {inside}, label {after}")
        self.block(inside)
        yield
        self.go(after)
        self.block(after)

    def unless(self, condition: str, label: str) -> None:
        """Leave for ``label`` if the condition does not hold."""
        on = self.name("on")
        self.do(f"br i1 {condition}, label {on}, label {label}")
        self.block(on)

    @contextmanager
    def loop(self, count: str) -> Iterator[str]:
        """``count`` times; gives the number of the trip."""
        cell = self.room(1)
        head, inside, after = (self.name(n) for n in ("head", "trip", "after"))
        self.store(0, cell)
        self.do(f"br label {head}")
        self.block(head)
        k = self.load(cell)
        self.do(f"br i1 {self.test('slt', k, count)}, label {inside}, label {after}")
        self.block(inside)
        yield k
        self.store(self.let(f"add i64 {k}, 1"), cell)
        self.go(head)
        self.block(after)

    @contextmanager
    def choice(self, value: str, cases: Sequence[int]) -> Iterator[Choice]:
        """The blocks of a ``switch``; ``case`` begins each, other values do nothing."""
        made = Choice(self, value, cases)
        yield made
        made.close()


class Choice:
    def __init__(self, code: Code, value: str, cases: Sequence[int]):
        self._code = code
        self._labels = {case: code.name("case") for case in cases}
        self._after = code.name("after")
        targets = " ".join(f"i64 {case}, label {label}" for case, label in self._labels.items())
        code.do(f"switch i64 {value}, label {self._after} [{targets}]")

    @contextmanager
    def case(self, number: int) -> Iterator[None]:
        self._code.block(self._labels[number])
        yield
        self._code.go(self._after)

    def close(self) -> None:
        self._code.block(self._after)


def next_rows(c: Code, pc: str, at: str, count: str | int) -> None:
    """Move the cursor in ``pc`` behind ``count`` words."""
    c.store(c.at(at, count), pc, kind="ptr")
