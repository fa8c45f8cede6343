"""Own mathematical functions as LLVM text: the language they are written in, and which there are.

Note [Vector math]
A function is written as operations that exist for one element and for vectors: no branches, no tables, only arithmetic,
comparisons, ``select`` and shifts. Its text for the number of lanes that a loop has is inlined there; what is left over at a
loop's end, calls with one element, and straight-line code do the same operations and so give the same bits, whatever the
length or the alignment of an array, with or without a vector library. Only a fused multiply-add, where the machine has one,
changes bits, from machine to machine.

Some functions call the C library for some arguments: sine and its like beyond the reach of their quick reduction, lgamma for
negative numbers (``Own.outside``). In a vector any such element leads to a branch, in which all of its elements go through the
function of one element.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Number: TypeAlias = "Val | float"


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: names of types, bits of the fraction, the exponent's bias."""

    name: str
    float_: str
    int_: str
    suffix: str
    fraction: int
    bias: int

    @property
    def shifter(self) -> float:
        """What makes the sum with a small number a whole number, in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @property
    def tiny(self) -> float:
        """Below this, an odd function with slope 1 at 0 is its argument."""
        return 2.0 ** -(self.fraction + 2)

    @property
    def least(self) -> float:
        """The least normal number."""
        return 2.0 ** (1 - self.bias)


F64 = Format("f64", "double", "i64", "f64", 52, 1023)
F32 = Format("f32", "float", "i32", "f32", 23, 127)
WIDE = Format("wide", "double", "i64", "f64", 52, 1023)  # double precision with as many digits as single precision needs
FORMATS = {"double": F64, "float": F32}
inf, nan = float("inf"), float("nan")


@functools.cache
def _literal(value: float | int | bool, kind: str) -> str:
    if kind in ("double", "float"):
        if value != value:
            return "0x7FF8000000000000"
        if kind == "float":
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if kind == "i1":
        return "true" if value else "false"
    return str(int(value))


class Val:
    """A value of a function being written; ``kind`` is the LLVM type of an element."""

    __slots__ = ("code", "kind", "text")

    def __init__(self, code: Code, kind: str, text: str):
        self.code, self.kind, self.text = code, kind, text

    def _op(self, other: Number | int, floats: str, ints: str, swap: bool = False) -> Val:
        is_float = self.kind in ("double", "float")
        pair = (other, self) if swap else (self, other)
        return self.code.op(floats if is_float else ints, self.kind, *pair)

    def __add__(self, other: Number | int) -> Val:
        return self._op(other, "fadd", "add")

    def __radd__(self, other: Number | int) -> Val:
        return self._op(other, "fadd", "add", swap=True)

    def __sub__(self, other: Number | int) -> Val:
        return self._op(other, "fsub", "sub")

    def __rsub__(self, other: Number | int) -> Val:
        return self._op(other, "fsub", "sub", swap=True)

    def __mul__(self, other: Number | int) -> Val:
        return self._op(other, "fmul", "mul")

    def __rmul__(self, other: Number | int) -> Val:
        return self._op(other, "fmul", "mul", swap=True)

    def __truediv__(self, other: Number) -> Val:
        return self._op(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Number) -> Val:
        return self._op(other, "fdiv", "sdiv", swap=True)

    def __and__(self, other: Val | int) -> Val:
        return self._op(other, "and", "and")

    def __or__(self, other: Val | int) -> Val:
        return self._op(other, "or", "or")

    def __xor__(self, other: Val | int) -> Val:
        return self._op(other, "xor", "xor")

    def __lshift__(self, other: int) -> Val:
        return self._op(other, "shl", "shl")

    def __rshift__(self, other: int) -> Val:
        """Filled with zeros: vectors of long integers have no other shift on many machines."""
        return self._op(other, "lshr", "lshr")

    def __neg__(self) -> Val:
        return self.code.let(f"fneg {self.code.type(self.kind)} {self.text}", self.kind)

    def __lt__(self, other: Number) -> Val:
        return self.code.compare("olt", self, other)

    def __le__(self, other: Number) -> Val:
        return self.code.compare("ole", self, other)

    def __gt__(self, other: Number) -> Val:
        return self.code.compare("ogt", self, other)

    def __ge__(self, other: Number) -> Val:
        return self.code.compare("oge", self, other)


class Code:
    """The body of a function, for one element (``lanes`` 0) or for that many."""

    def __init__(self, form: Format, lanes: int, fused: bool):
        self.format = form
        self.lanes = lanes
        self.fused = fused  # whether the machine has a fused multiply-add
        self.lines: list[str] = []
        self.needs: set[str] = set()  # declarations

    # -- text ------------------------------------------------------------------------------------------------------
    def type(self, kind: str) -> str:
        return f"<{self.lanes} x {kind}>" if self.lanes else kind

    def let(self, text: str, kind: str) -> Val:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return Val(self, kind, name)

    def text(self, value: Number | int, kind: str) -> str:
        if isinstance(value, Val):
            return value.text
        literal = _literal(value, kind)
        return f"splat ({kind} {literal})" if self.lanes else literal

    def op(self, name: str, kind: str, a: Number | int, b: Number | int) -> Val:
        return self.let(f"{name} {self.type(kind)} {self.text(a, kind)}, {self.text(b, kind)}", kind)

    def intrinsic(self, name: str, *args: Number) -> Val:
        kind = next(a.kind for a in args if isinstance(a, Val))
        suffix = FORMATS[kind].suffix
        symbol = f"llvm.{name}.{f'v{self.lanes}' if self.lanes else ''}{suffix}"
        wide = self.type(kind)
        self.needs.add(f"declare {wide} @{symbol}({', '.join([wide] * len(args))})")
        return self.let(f"call {wide} @{symbol}({', '.join(f'{wide} {self.text(a, kind)}' for a in args)})", kind)

    # -- arithmetic ------------------------------------------------------------------------------------------------
    def fma(self, a: Number, b: Number, c: Number) -> Val:
        """``a * b + c``, rounded once if the machine can do so: for results that bear one rounding more."""
        if self.fused:
            return self.intrinsic("fma", a, b, c)
        product = a * b
        assert isinstance(product, Val)
        return product + c

    def const(self, value: float) -> Val:
        return Val(self, self.format.float_, self.text(value, self.format.float_))

    def poly(self, coefficients: Sequence[float], x: Val, square: Val | None = None) -> Val:
        """From the constant up; the even and the odd powers apart, which halves the chain of dependent operations."""
        if len(coefficients) < 4:
            return self._horner(coefficients, x)
        square = x * x if square is None else square
        even, odd = self._horner(coefficients[::2], square), self._horner(coefficients[1::2], square)
        return self.fma(odd, x, even)

    def _horner(self, coefficients: Sequence[float], x: Val) -> Val:
        if len(coefficients) == 1:
            return self.const(coefficients[0])
        total = self.fma(coefficients[-1], x, coefficients[-2])
        for coefficient in coefficients[-3::-1]:
            total = self.fma(total, x, coefficient)
        return total

    def two_sum(self, a: Number, b: Number) -> tuple[Val, Val]:
        """The sum and its rounding error (Knuth)."""
        total = self.fixed(a) + b
        part = total - a
        return total, (self.fixed(a) - (total - part)) + (self.fixed(b) - part)

    def quick_sum(self, a: Number, b: Number) -> tuple[Val, Val]:
        """The sum and its rounding error, where ``a`` is zero or the larger one (Dekker)."""
        total = self.fixed(a) + b
        return total, self.fixed(b) - (total - a)

    def two_product(self, a: Val, b: Val) -> tuple[Val, Val]:
        """The product and its rounding error; without a fused multiply-add by splitting (Veltkamp, Dekker)."""
        product = a * b
        if self.fused:
            return product, self.fma(a, b, -product)
        (a1, a2), (b1, b2) = self.split(a), self.split(b)
        return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2

    def split(self, a: Val) -> tuple[Val, Val]:
        """Two halves of the fraction."""
        big = a * (2.0 ** ((self.format.fraction + 2) // 2) + 1.0)
        high = big - (big - a)
        return high, a - high

    def fixed(self, a: Number) -> Val:
        return a if isinstance(a, Val) else self.const(a)

    def sqrt(self, x: Val) -> Val:
        return self.intrinsic("sqrt", x)

    def fabs(self, x: Val) -> Val:
        return self.intrinsic("fabs", x)

    def copysign(self, x: Number, sign: Val) -> Val:
        return self.intrinsic("copysign", x, sign)

    # -- comparisons -----------------------------------------------------------------------------------------------
    def compare(self, how: str, a: Val, b: Number) -> Val:
        return self.let(f"fcmp {how} {self.type(a.kind)} {a.text}, {self.text(b, a.kind)}", "i1")

    def eq(self, a: Val, b: Number) -> Val:
        return self.compare("oeq", a, b)

    def is_nan(self, a: Val) -> Val:
        return self.compare("uno", a, a)

    def negative(self, x: Val) -> Val:
        """Whether the sign is set, also of zero and NaN."""
        kind = FORMATS[x.kind].int_
        return self.let(f"icmp slt {self.type(kind)} {self.bits(x).text}, {self.text(0, kind)}", "i1")

    def odd(self, bits: Val) -> Val:
        """Whether the lowest bit is set."""
        shifted = bits << (31 if bits.kind == "i32" else 63)
        return self.let(f"icmp slt {self.type(bits.kind)} {shifted.text}, {self.text(0, bits.kind)}", "i1")

    def select(self, condition: Val, yes: Number | int, no: Number | int, kind: str = "") -> Val:
        kind = kind or next((v.kind for v in (yes, no) if isinstance(v, Val)), self.format.float_)
        wide = self.type(kind)
        return self.let(
            f"select {self.type('i1')} {condition.text}, {wide} {self.text(yes, kind)}, {wide} {self.text(no, kind)}", kind
        )

    def at_most(self, x: Val, most: Number) -> Val:
        """The smaller one; NaN stays."""
        return self.select(x > most, most, x)

    def at_least(self, x: Val, least: Number) -> Val:
        return self.select(x < least, least, x)

    def both(self, a: Val, b: Val) -> Val:
        return self.op("and", "i1", a, b)

    def either(self, a: Val, b: Val) -> Val:
        return self.op("or", "i1", a, b)

    def opposite(self, a: Val) -> Val:
        return self.op("xor", "i1", a, 1)

    # -- bits ------------------------------------------------------------------------------------------------------
    def bits(self, x: Val) -> Val:
        to = FORMATS[x.kind].int_
        return self.let(f"bitcast {self.type(x.kind)} {x.text} to {self.type(to)}", to)

    def number(self, x: Val) -> Val:
        to = "double" if x.kind == "i64" else "float"
        return self.let(f"bitcast {self.type(x.kind)} {x.text} to {self.type(to)}", to)

    def convert(self, code: str, x: Val, to: str) -> Val:
        return self.let(f"{code} {self.type(x.kind)} {x.text} to {self.type(to)}", to)

    def wider(self) -> Code:
        """For more precision in the same function."""
        code = Code(WIDE, self.lanes, self.fused)
        code.lines, code.needs = self.lines, self.needs
        return code

    def widened(self, x: Val) -> Val:
        return Val(self.wider(), "double", self.convert("fpext", x, "double").text)

    def narrowed(self, x: Val) -> Val:
        return self.convert("fptrunc", x, "float")

    def sign_from(self, x: Val, bits: Val) -> Val:
        """``x``, negated where the lowest of ``bits`` is set."""
        form = FORMATS[x.kind]
        return self.number(self.bits(x) ^ (bits << (31 if form is F32 else 63)))


__all__ = ["F32", "F64", "FORMATS", "WIDE", "Code", "Format", "Number", "Val", "inf", "nan"]
