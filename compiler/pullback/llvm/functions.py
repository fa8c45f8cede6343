"""Text of one LLVM function: names, blocks, counted loops. A string builder, because it is thirty times faster than objects."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.dims import Dim, FloorDiv, Size
from pullback.ir.types import DType

TYPES: Mapping[str, str] = {"f64": "double", "f32": "float", "i64": "i64", "bool": "i1"}
MEMORY: Mapping[str, str] = {"f64": "double", "f32": "float", "i64": "i64", "bool": "i8"}

# A number that LLVM does not look through, and for which there is no instruction. Without it the greater part of the time that
# a loop takes to compile goes into finding other induction variables than the one it has (see Note [Anchors] in ``rounds.py``).
HIDDEN = "call i64 @llvm.expect.i64(i64 {}, i64 0)"


def literal(value: Any, dtype: DType) -> str:
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind == "i":
        return str(int(value))
    with np.errstate(over="ignore"):
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(dtype.numpy.type(value))))[0]:016X}"


def floor_division(a: str, b: str, let: Callable[[str], str]) -> str:
    """Of sizes; by 0 it gives something, but never a trap."""
    zero = let(f"icmp eq i64 {b}, 0")
    safe = let(f"select i1 {zero}, i64 1, i64 {b}")
    quotient = let(f"sdiv i64 {a}, {safe}")
    rest = let(f"srem i64 {a}, {safe}")
    signs = let(f"xor i64 {rest}, {safe}")
    differ = let(f"icmp slt i64 {signs}, 0")
    left = let(f"icmp ne i64 {rest}, 0")
    down = let(f"and i1 {differ}, {left}")
    less = let(f"sext i1 {down} to i64")
    return let(f"add i64 {quotient}, {less}")


class FunctionText:
    """A function being written. ``entry`` is what runs first whatever the order of writing: sizes and values from elsewhere."""

    def __init__(self, name: str, params: Sequence[str], returns: str, symbols: Mapping[str, int], linkage: str = "internal "):
        self.name = name
        self.params = list(params)
        self.returns = returns
        self.linkage = linkage
        self.symbols = symbols  # their places in %sizes
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.label = "start"
        self._sizes: dict[Any, str] = {}
        self._count = 0

    def new(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def let(self, text: str) -> str:
        name = self.new()
        self.lines.append(f"  {name} = {text}")
        return name

    def at_entry(self, text: str, hint: str = "e") -> str:
        name = self.new(hint)
        self.entry.append(f"  {name} = {text}")
        return name

    def at_entry_line(self, text: str) -> None:
        self.entry.append(f"  {text}")

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def block(self, label: str) -> None:
        self.lines.append(f"{label[1:]}:")
        self.label = label[1:]

    def text(self, attributes: str = "#0") -> str:
        head = f"define {self.linkage}{self.returns} @{self.name}({', '.join(self.params)}) {attributes} {{"
        return "\n".join([head, "entry:", *self.entry, "  br label %start", "start:", *self.lines, "}", ""])

    # -- sizes -----------------------------------------------------------------------------------------------------
    def size(self, size: Size) -> str:
        """A size as an operand."""
        if isinstance(size, int):
            return str(size)
        found = self._sizes.get(size)
        if found is None:
            found = self._sizes[size] = self._polynomial(size)
        return found

    def size_now(self, size: Size) -> str:
        """A size with symbols read here: one that this function defines is not known when it begins."""
        if isinstance(size, int):
            return str(size)
        kept, entry = self._sizes, self.entry
        self._sizes, self.entry = {}, self.lines
        found = self._polynomial(size)
        self._sizes, self.entry = kept, entry
        return found

    def symbol(self, name: str) -> str:
        found = self._sizes.get(name)
        if found is None:
            at = self.at_entry(f"getelementptr i64, ptr %sizes, i64 {self.symbols[name]}")
            found = self._sizes[name] = self.at_entry(f"load i64, ptr {at}, !range !0", "n")
        return found

    def _polynomial(self, size: Dim) -> str:
        total = ""
        for monomial, coefficient in size.terms:
            term = "" if coefficient == 1 and monomial else str(coefficient)
            for atom in monomial:
                factor = self.symbol(atom) if isinstance(atom, str) else self._floor_division(atom)
                term = self.at_entry(f"mul nsw i64 {term}, {factor}") if term else factor
            total = self.at_entry(f"add nsw i64 {total}, {term}") if total else term
        return total

    def _floor_division(self, atom: FloorDiv) -> str:
        return floor_division(self.size(atom.numerator), self.size(atom.denominator), self.at_entry)

    # -- loops -----------------------------------------------------------------------------------------------------
    def when(self, test: str, carried: Sequence[tuple[str, str]], body: Callable[[], list[str]]) -> list[str]:
        """``body()`` if ``test`` holds; gives what it returns, else the values of ``carried``, (type, value)."""
        then, after, before = self.new("then"), self.new("after"), self.label
        self.line(f"br i1 {test}, label {then}, label {after}")
        self.block(then)
        values = body()
        inside = self.label
        self.line(f"br label {after}")
        self.block(after)
        return [
            self.let(f"phi {kind} [ {value}, %{inside} ], [ {old}, %{before} ]")
            for (kind, old), value in zip(carried, values, strict=True)
        ]

    def only(self, test: str, body: Callable[[], None]) -> None:
        """``body()`` if ``test`` holds."""

        def run() -> list[str]:
            body()
            return []

        self.when(test, [], run)

    def each(self, low: str, high: str, body: Callable[[str], None], step: int = 1) -> None:
        """``for i in low..high`` with nothing carried; ``step`` divides the distance."""

        def trip(index: str, values: list[str]) -> list[str]:
            body(index)
            return []

        self.counted(low, high, [], trip, step)

    def cell(self, kind: str, value: str) -> str:
        """Memory with a value, whose address a Fortran function is given."""
        cell = self.at_entry(f"alloca {kind}")
        self.line(f"store {kind} {value}, ptr {cell}")
        return cell

    def counted(
        self,
        low: str,
        high: str,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]],
        step: int = 1,
    ) -> list[str]:
        """``for i in low..high``, with (type, start) carried; ``body(i, values)`` returns the next values. Gives the last.
        ``step`` divides the distance."""
        head, latch, after = self.new("loop")[1:], "", self.new("after")[1:]
        before = self.label
        some = self.let(f"icmp slt i64 {low}, {high}")
        self.line(f"br i1 {some}, label %{head}, label %{after}")
        self.lines.append(f"{head}:")
        self.label = head
        index, following = self.new("i"), self.new("next")
        slot = len(self.lines)
        phis = [self.new("acc") for _ in carried]
        self.lines.extend([""] * (1 + len(carried)))
        values = body(index, phis)
        latch = self.label
        self.line(f"{following} = {HIDDEN.format(self.let(f'add nuw nsw i64 {index}, {step}'))}")
        done = self.let(f"icmp eq i64 {following}, {high}")
        self.line(f"br i1 {done}, label %{after}, label %{head}")
        self.lines[slot] = f"  {index} = phi i64 [ {low}, %{before} ], [ {following}, %{latch} ]"
        for k, ((kind, start), phi, value) in enumerate(zip(carried, phis, values, strict=True)):
            self.lines[slot + 1 + k] = f"  {phi} = phi {kind} [ {start}, %{before} ], [ {value}, %{latch} ]"
        self.lines.append(f"{after}:")
        self.label = after
        return [
            self.let(f"phi {kind} [ {start}, %{before} ], [ {value}, %{latch} ]")
            for (kind, start), value in zip(carried, values, strict=True)
        ]
