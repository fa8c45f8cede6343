"""FPCore as text: S-expressions with their places, and the numbers in them.

FPCore is the format in which FPBench and the tools around it (Herbie, Daisy, FPTaylor) exchange floating-point programs. A
file may come from anywhere: it is read by iteration, and its size, its nesting and its exponents are bounded.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from pullback.errors import ExpressionError
from pullback.frontends.expression_source import Source, clipped

MAX_NESTING = 1_000  # brackets in brackets; deeper trees are not made by people, nor by the tools
MAX_EXPONENT = 5_000  # of a number; beyond, every format overflows to infinity or is zero

_TOKEN = re.compile(
    r"""(?P<space>[ \t\f\n]+)
      | (?P<comment>;[^\n]*)
      | (?P<open>[(\[])
      | (?P<close>[)\]])
      | (?P<string>"(?:\\.|[^"\\])*")
      | (?P<atom>[^\s()\[\]";]+)""",
    re.VERBOSE | re.DOTALL,
)
_DECIMAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_HEXADECIMAL = re.compile(r"[-+]?0x(?:[\da-f]+(?:\.[\da-f]*)?|\.[\da-f]+)(?:p[-+]?\d+)?", re.IGNORECASE)
_RATIONAL = re.compile(r"[-+]?\d+/\d*[1-9]\d*")
_LIKE_A_NUMBER = re.compile(r"[-+]?\.?\d")
_PAIRS = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """An atom (``text``), a string (``string``) or a list (``items``) with its place in the file."""

    file: FPCoreFile
    start: int
    end: int
    text: str = ""
    string: str | None = None
    items: tuple[Form, ...] | None = None

    @property
    def head(self) -> str:
        """The first atom of a list; empty where there is none."""
        return self.items[0].text if self.items else ""

    def error(self, message: str, remedy: str = "") -> ExpressionError:
        line, column = self.file.place(self.start)
        width = self.end - self.start
        return self.file.source.at(line, column, message, remedy, width)

    def shown(self) -> str:
        """The text as it was written, in one line, for documentation."""
        return " ".join(self.file.source.text[self.start : self.end].split())


class FPCoreFile:
    """The text of a file with the places of its lines."""

    def __init__(self, source: Source):
        self.source = source
        self._starts = [0]
        for line in source.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def place(self, offset: int) -> tuple[int, int]:
        """Line, from 1, and column, from 0."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def fail(self, offset: int, message: str, remedy: str = "") -> NoReturn:
        raise self.source.at(*self.place(offset), message, remedy)

    def forms(self) -> Iterator[Form]:
        """The lists at the top level."""
        open_lists: list[tuple[str, int, list[Form]]] = []
        for kind, start, token in self._tokens():
            end = start + len(token)
            if kind == "open":
                if len(open_lists) >= MAX_NESTING:
                    self.fail(start, f"brackets are nested more than {MAX_NESTING:,} deep", "name parts of it with let*")
                open_lists.append((token, start, []))
                continue
            if kind == "close":
                form = self._closed(open_lists, start, end, token)
            elif kind == "string":
                form = Form(self, start, end, string=re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL))
            else:
                form = Form(self, start, end, text=token)
            if open_lists:
                open_lists[-1][2].append(form)
            elif form.items is None:
                raise form.error("an FPCore expected", "a file holds (FPCore (x y) ... expression) one after another")
            else:
                yield form
        if open_lists:
            bracket, start, _ = open_lists[-1]
            self.fail(start, f"{bracket!r} is never closed")

    def _tokens(self) -> Iterator[tuple[str, int, str]]:
        text, position = self.source.text, 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                what = "the string is never closed" if text[position] == '"' else f"{text[position]!r} has no meaning here"
                self.fail(position, what)
            kind, start, position = str(token.lastgroup), position, token.end()
            if kind not in ("space", "comment"):
                yield kind, start, token[0]

    def _closed(self, open_lists: list[tuple[str, int, list[Form]]], start: int, end: int, token: str) -> Form:
        if not open_lists:
            self.fail(start, f"{token!r} closes nothing")
        bracket, opened, items = open_lists.pop()
        if _PAIRS[token] != bracket:
            line, column = self.place(opened)
            self.fail(start, f"{token!r} does not close the {bracket!r} of line {line}, column {column + 1}")
        return Form(self, opened, end, items=tuple(items))


# -- numbers ----------------------------------------------------------------------------------------------------------
def is_number(form: Form) -> bool:
    return bool(form.text) and any(p.fullmatch(form.text) for p in (_DECIMAL, _HEXADECIMAL, _RATIONAL))


def like_a_number(text: str) -> bool:
    return _LIKE_A_NUMBER.match(text) is not None


def exact(form: Form) -> Fraction | float:
    """The number itself; an infinity or a zero where its exponent is beyond all formats."""
    try:
        found = _magnitude(form.text.lstrip("+-").lower())
    except ValueError:  # Python reads no integers of more than 4300 digits
        raise form.error(f"the number {clipped(form.text)} has too many digits") from None
    if form.text.startswith("-"):
        return -found or -0.0
    return found


def _magnitude(text: str) -> Fraction | float:
    if "/" in text:
        return Fraction(text)
    if text.startswith("0x"):
        return _scaled(*_parts(text[2:], "p", 16), 2, 4)
    return _scaled(*_parts(text, "e", 10), 10, 1)


def _parts(text: str, mark: str, base: int) -> tuple[int, int, int]:
    """Digits as an integer, how many of them are behind the point, and the exponent."""
    digits, _, exponent = text.partition(mark)
    whole, _, fraction = digits.partition(".")
    if len(exponent) > 12:
        exponent = exponent[:12]
    return int(whole + fraction, base), len(fraction), int(exponent or "0")


def _scaled(digits: int, behind: int, exponent: int, base: int, per_digit: int) -> Fraction | float:
    power = exponent - behind * per_digit
    size = digits.bit_length() if base == 2 else len(str(digits))
    if abs(power + size) > MAX_EXPONENT:
        return math.inf if power > 0 and digits else 0.0
    return digits * Fraction(base) ** power


def digits(form: Form, mantissa: Form, exponent: Form, base: Form) -> Fraction | float:
    """``(digits m e b)``: m times b to the power of e."""
    parts = [exact(f) for f in (mantissa, exponent, base)]
    if any(isinstance(p, float) or p.denominator != 1 for p in parts) or parts[2] < 2:
        raise form.error("digits takes three integers: mantissa, exponent and a base of at least 2")
    m, e, b = (int(p) for p in parts)
    if abs(e) * b.bit_length() > 4 * MAX_EXPONENT:
        return math.copysign(math.inf if e > 0 and m else 0.0, m)
    return m * Fraction(b) ** e


def rounded(number: Fraction | float, precision: str) -> Any:
    """The nearest number of the format, as a NumPy scalar: arithmetic on constants is then IEEE's, like all other."""
    if precision == "integer":
        return np.int64(int(number))
    try:
        near = float(number)
    except OverflowError:
        near = math.inf if number > 0 else -math.inf
    if precision == "binary64":
        return np.float64(near)
    if isinstance(number, Fraction) and math.isfinite(near) and Fraction(near) != number and _even(near):
        near = math.nextafter(near, math.inf if number > Fraction(near) else -math.inf)  # so that no tie is rounded twice
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(near)


def _even(number: float) -> bool:
    return int(np.float64(number).view(np.int64)) % 2 == 0
