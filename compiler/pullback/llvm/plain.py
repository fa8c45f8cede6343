"""Very long straight-line code as machine code that is written here.

Note [Plain code]
~~~~~~~~~~~~~~~~~
Of 1e5 operations LLVM's least careful code takes longer to make than all else that a compiler does with them, and an operation
becomes three instructions there too: load an operand, combine it with the other one, store the result. So these are written
right away. Each value has a slot of the frame; each instruction takes eight bytes, so that distances are known before anything
is written. Functions are called for LANES arguments at a time (see Note [Calls side by side] in ``straight.py``), through a
function of LLVM's that is told the slots of arguments and results. The bytes go to LLVM's assembler, whose objects are linked
and kept like others.

This is for x86-64 under Linux, and for pieces of nothing but arithmetic of doubles and our own functions; whatever holds
something else is left to LLVM. Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; registers
in calls: System V ABI, AMD64 supplement, 3.2.
"""

from __future__ import annotations

import itertools
import platform
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.types import f64
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.pieces import CHUNK
from pullback.llvm.straight import LANES, Together, is_call, side_by_side
from pullback.llvm.vecmath_library import OWN
from pullback.loops.nest import Node


def _word(code: str) -> int:
    return int.from_bytes(bytes.fromhex(code), "little")


# Instructions on xmm0 and a slot, rbx being the frame: the last four bytes are the slot's distance.
LOAD, STORE, ROOT = _word("F20F1083"), _word("F20F1183"), _word("F20F5183")
COMBINE = {"add": _word("F20F5883"), "sub": _word("F20F5C83"), "mul": _word("F20F5983"), "div": _word("F20F5E83")}
EITHER = ("add", "mul")  # whose operands may change places
LOAD_NEAR, STORE_NEAR = _word("F20F100D"), _word("F20F118B")  # of a constant, by way of xmm1; from the next instruction on
# The same on rax, whose distance is followed by a nop, and what is done to the sign there.
TAKE, PUT = _word("488B830000000090"), _word("4889830000000090")
SIGN = {"neg": _word("480FBAF83F0F1F00"), "float_abs": _word("480FBAF03F0F1F00")}
ENTER, LEAVE = _word("534889FB0F1F4000"), _word("5BC3909090909090")  # push rbx; mov rbx, rdi; and back
FRAME, TABLE = _word("4889DF0F1F440000"), _word("488D350000000090")  # mov rdi, rbx; lea rsi, [rip + distance]
AFTER_CALL = ".byte 15,31,0"  # a nop, for a call has five bytes
MOST = 1 << 27  # slots that a distance can reach


def possible() -> bool:
    """Whether this machine runs it."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 2**32


def fits(statement: Any) -> bool:
    """Whether a statement can be written so."""
    if not isinstance(statement, Node) or statement.kind != "op" or statement.dtype is not f64:
        return False
    name = statement.data.name
    return name in COMBINE or name in SIGN or name == "sqrt" or is_call(statement)


class Plain:
    """The plain pieces of one program, in order. ``slots`` are those of values that others make or need, ``uses`` how often
    each value is an operand from here on. Other values get a slot that nobody needs any more, or a new one: ``count`` in all.
    ``helpers`` are the functions called from here."""

    def __init__(self, prefix: str, slots: Mapping[Node, int], uses: dict[Node, int], math: MathCalls):
        self.places = dict(slots)
        self.kept = slots
        self.uses = uses
        self.count = len(slots) + 1
        self.spare = len(slots)  # where results go that nobody wants
        self.free: list[int] = []
        self.helpers: dict[str, str] = {}
        self._prefix = prefix
        self._math = math

    def text(self, name: str, body: Sequence[Any]) -> str:
        """The function ``name`` as assembly in a module."""
        return _Function(self).text(name, body)

    def helper(self, name: str) -> str:
        """The function that applies a function of our own to slots: those of LANES arguments, of each operand after the
        other, then those of the results."""
        symbol = f"{self._prefix}_{name}_slots"
        if symbol not in self.helpers:
            lines: list[str] = []
            places = []
            for k in range(LANES * (OWN[name].arity + 1)):
                lines.append(f"  %t{k} = getelementptr i32, ptr %table, i64 {k}")
                lines.append(f"  %s{k} = load i32, ptr %t{k}")
                lines.append(f"  %p{k} = getelementptr double, ptr %frame, i32 %s{k}")
                places.append(f"%p{k}")
            vectors = []
            for i in range(OWN[name].arity):
                total = "poison"
                for k in range(LANES):
                    lines.append(f"  %x{i}_{k} = load double, ptr {places[LANES * i + k]}")
                    lines.append(f"  %v{i}_{k} = insertelement <{LANES} x double> {total}, double %x{i}_{k}, i64 {k}")
                    total = f"%v{i}_{k}"
                vectors.append(total)
            lines.append(f"  %y = {self._math.linked_call(name, 'double', LANES, vectors)}")
            for k in range(LANES):
                lines.append(f"  %y{k} = extractelement <{LANES} x double> %y, i64 {k}")
                lines.append(f"  store double %y{k}, ptr {places[LANES * OWN[name].arity + k]}")
            head = f"define void @{symbol}(ptr %frame, ptr %table) #0 {{"
            self.helpers[symbol] = "\n".join([head, *lines, "  ret void", "}", ""])
        return symbol


class _Function:
    """``_held``: the value in xmm0 that has not been stored yet."""

    def __init__(self, plain: Plain):
        self._plain = plain
        self._words: list[int] = [ENTER]
        self._calls: list[tuple[int, str]] = []  # which words are calls
        self._pool: list[int] = []  # words behind the code
        self._near: list[tuple[int, int, int]] = []  # word, how long its instruction is, which word of the pool it refers to
        self._held: Node | None = None

    def text(self, name: str, body: Sequence[Any]) -> str:
        words = self._words
        parts = (side_by_side(body[k : k + CHUNK]) for k in range(0, len(body), CHUNK))
        for statement in itertools.chain.from_iterable(parts):
            if isinstance(statement, Together) or is_call(statement):
                self._store()
                self._call(statement.nodes if isinstance(statement, Together) else [statement])
                continue
            op = statement.data.name
            if op in COMBINE:
                self._combine(op, statement)
                continue
            self._store()
            place = self._place(statement.args[0])
            if op == "sqrt":
                words.append(ROOT | place << 35)
                self._held = statement
            else:
                words += (TAKE | place << 27, SIGN[op], PUT | self._new(statement) << 27)
        self._store()
        words.append(LEAVE)
        if self._plain.count > MOST:
            raise MemoryError(f"straight-line code with {self._plain.count} values at a time")
        return self._assembly(name)

    def _combine(self, op: str, node: Node) -> None:
        """A value that only this operation needs does not leave its register."""
        plain, held = self._plain, self._held
        first, last = node.args
        if last is held and op in EITHER:
            first, last = last, first
        if held is not None and (first is not held or last is held or plain.uses[held] > 1 or held in plain.kept):
            self._store()
        if first is held:
            self._used(first)
        else:
            self._words.append(LOAD | self._place(first) << 35)
        self._words.append(COMBINE[op] | self._place(last) << 35)
        self._held = node

    # -- slots -----------------------------------------------------------------------------------------------------
    def _store(self) -> None:
        if self._held is not None:
            self._words.append(STORE | self._new(self._held) << 35)
            self._held = None

    def _place(self, node: Node) -> int:
        """The slot of an operand, which may be free after that."""
        plain = self._plain
        place = plain.places.get(node)
        if place is None:
            assert node.kind == "const", node.kind
            place = self._new(node)
            self._near.append((len(self._words), 8, len(self._pool)))
            self._pool += struct.unpack("<Q", struct.pack("<d", node.data))
            self._words += (LOAD_NEAR, STORE_NEAR | place << 35)
        self._used(node)
        return place

    def _used(self, node: Node) -> None:
        plain = self._plain
        plain.uses[node] -= 1
        if not plain.uses[node] and node not in plain.kept and node in plain.places:
            plain.free.append(plain.places.pop(node))

    def _new(self, node: Node) -> int:
        plain = self._plain
        place = plain.kept.get(node)
        if place is None:
            if plain.free:
                place = plain.free.pop()
            else:
                place = plain.count
                plain.count += 1
            plain.places[node] = place
        return place

    # -- functions -------------------------------------------------------------------------------------------------
    def _call(self, nodes: Sequence[Node]) -> None:
        table: list[int] = []
        for column in zip(*(node.args for node in nodes), strict=True):
            places = [self._place(a) for a in column]
            table += places + places[:1] * (LANES - len(places))  # the first once more where there is none
        table += [self._new(node) for node in nodes]
        table += [self._plain.spare] * (-len(table) % LANES)
        self._near.append((len(self._words), 7, len(self._pool)))
        self._pool += struct.unpack(f"<{len(table) // 2}Q", struct.pack(f"<{len(table)}I", *table))
        self._words += (TABLE, FRAME, 0)
        self._calls.append((len(self._words) - 1, self._plain.helper(nodes[0].data.lower.name)))

    def _assembly(self, name: str) -> str:
        words, end = self._words, len(self._words)
        for at, length, target in self._near:
            distance = 8 * (end + target) - (8 * at + length)
            words[at] |= distance << (32 if length == 8 else 24)
        lines = [".text", ".p2align 4", f".globl {name}", f".type {name},@function", f"{name}:"]
        start = 0
        for at, helper in self._calls:
            lines += (_quads(words[start:at]), f"call {helper}@PLT", AFTER_CALL)
            start = at + 1
        lines += (_quads(words[start:] + self._pool), f".size {name}, .-{name}")
        return "".join(f'module asm "{line}"\n' for line in lines)


def _quads(words: Sequence[int]) -> str:
    return f".quad {','.join(map(str, words))}"


__all__ = ["Plain", "fits", "possible"]
