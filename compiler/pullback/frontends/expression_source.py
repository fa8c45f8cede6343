"""The text of an expression file: its limits, its errors with a caret, and its syntax tree.

Note [Hostile files]
Whatever a user names may have been written by somebody else. Nothing of it is executed. Before Python's own parser sees it,
size, line lengths and nesting are capped by one linear scan over the tokens: the parser and the syntax tree are recursive in C,
and how deep they may go differs between versions of Python. Nesting is counted as deep as the tree will be, by the precedence
of the operators, since ``a + b + c`` is a tree as deep as it has terms. What is left to the parser is bounded, and what reads
the tree afterwards does it by iteration.
"""

from __future__ import annotations

import ast
import difflib
import keyword
import linecache
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pullback.errors import ExpressionError
from pullback.ir.core import Loc

MAX_SOURCE = 400_000  # characters; Python parses about as many in a second
MAX_LINE = 100_000
MAX_BRACKETS = 150  # CPython itself stops at 200
MAX_CHAIN = 2_500  # levels of the syntax tree; CPython 3.11 makes trees of up to 3000
_SHOWN = 100  # characters of a line that an error shows

_TOKEN = re.compile(
    r"""(?P<space>[ \t\f]+|\\\n)
      | (?P<comment>\#[^\n]*)
      | (?P<newline>\n)
      | (?P<string>(?P<prefix>[A-Za-z]{0,2})(?P<quote>\"\"\"|'''|\"|'))
      | (?P<number>\.?\d(?:[eE][+-]|[\w.])*)
      | (?P<name>[^\W\d]\w*)
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<break>[,;:](?!=)|=(?!=))
      | (?P<operator>\*\*|//|<<|>>|[-+*/%@&|^<>=!]=|->|:=|[-+*/%@&|^~<>.])""",
    re.VERBOSE,
)
_STRING_END = {quote: re.compile(rf"(?:\\.|[^\\])*?{quote}", re.DOTALL) for quote in ('"""', "'''")} | {
    quote: re.compile(rf"(?:\\.|[^\\\n])*?{quote}", re.DOTALL) for quote in ('"', "'")
}
_WORD_OPERATORS = frozenset(("and", "or", "not", "in", "is", "if", "else", "lambda", "await"))
_COMPARISON, _SIGN = 5, 12
_BINDING = {  # how strongly operators bind, from the loosest
    ":=": 0, "->": 0, "lambda": 0, "if": 1, "else": 1, "or": 2, "and": 3, "not": 4, "|": 6, "^": 7, "&": 8, "<<": 9, ">>": 9,
    "+": 10, "-": 10, "*": 11, "/": 11, "//": 11, "%": 11, "@": 11, "~": 12, "await": 12, "**": 13,
}  # fmt: skip
_PAIRS = {")": "(", "]": "[", "}": "{"}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_NEIGHBOURS = re.compile(r"(?<![\w.])([A-Za-z_]\w*|\d+(?:\.\d*)?)([ \t]*)([A-Za-z_]\w*|(?<=[ \t])\d[\d.]*)")
_SYNTAX_PREFIXES = ("invalid syntax. ", "invalid syntax")


@dataclass(frozen=True, slots=True)
class Source:
    """A text with the name it goes by in messages. ``shown``: whether the name is a file's (an inline text is shown whole)."""

    text: str
    name: str
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def of(text: str, name: str, python: bool = True) -> Source:
        """Checked against the limits. ``name`` is the file's, or ``<expression>``. ``python``: Python's parser will read it."""
        text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        if len(text) > MAX_SOURCE:
            raise ExpressionError(f"{name}: the text has {len(text):,} characters; at most {MAX_SOURCE:,} are read")
        source = Source(text, name, tuple(text.split("\n")))
        for number, line in enumerate(source.lines, 1):
            if len(line) > MAX_LINE:
                raise source.at(
                    number, 0, f"the line has {len(line):,} characters; at most {MAX_LINE:,} are read", "break it into several"
                )
        source.characters()
        if python:
            source.scan()
        return source

    @staticmethod
    def read(path: str | Path, python: bool = True) -> Source:
        """A file's text; no more is read than the limit allows. OSError where it cannot be opened."""
        with open(path, "rb") as file:
            data = file.read(4 * MAX_SOURCE + 1)
        if len(data) > 4 * MAX_SOURCE:
            raise ExpressionError(f"{path}: the file is too large; at most {MAX_SOURCE:,} characters are read")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise ExpressionError(f"{path}:{line}: the file is not text in UTF-8 (byte {error.start})") from None
        return Source.of(text, str(path), python)

    # -- errors -----------------------------------------------------------------------------------------------------
    def at(self, line: int, column: int, message: str, remedy: str = "", width: int = 1) -> ExpressionError:
        """The error at a place: ``file:line:col``, the line and a caret below it. ``column`` counts from 0."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        parts = [f"{self.name}:{line}:{column + 1}: {message}"]
        if text.strip():
            start = max(0, column - _SHOWN * 2 // 3) if len(text) > _SHOWN else len(text) - len(text.lstrip())
            window = text[start : start + _SHOWN].rstrip()
            dots = "..." if start and len(text) > _SHOWN else ""
            tail = "..." if start + _SHOWN < len(text) else ""
            width = max(1, min(width, len(window) - (column - start)))
            parts.append("    " + dots + window.replace("\t", " ") + tail)
            parts.append("    " + " " * (len(dots) + column - start) + "^" * width)
        if remedy:
            parts.append(f"  {remedy}")
        return ExpressionError("\n".join(parts))

    def error(self, node: Any, message: str, remedy: str = "") -> ExpressionError:
        """The error at a node of the syntax tree."""
        line, column = node.lineno, self.column(node.lineno, node.col_offset)
        end = node.end_col_offset if node.end_lineno == line else None
        width = 1 if end is None else self.column(line, end) - column
        return self.at(line, column, message, remedy, width)

    def column(self, line: int, offset: int) -> int:
        """Characters instead of the syntax tree's bytes."""
        text = self.lines[line - 1]
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))

    def loc(self, node: Any) -> Loc:
        return Loc(self.name, node.lineno, node.col_offset + 1)

    def _place(self, offset: int) -> tuple[int, int]:
        before = self.text[:offset]
        return before.count("\n") + 1, offset - (before.rfind("\n") + 1)

    def fail(self, offset: int, message: str, remedy: str = "") -> NoReturn:
        raise self.at(*self._place(offset), message, remedy)

    # -- the scan ---------------------------------------------------------------------------------------------------
    def characters(self) -> None:
        """Refuse what is no text: messages that quote it end up on a terminal."""
        control = _CONTROL.search(self.text)
        if control is not None:
            self.fail(control.start(), f"the character U+{ord(control[0]):04X} does not belong in an expression file")
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            self.fail(error.start, "the text is not valid Unicode")

    def scan(self) -> None:
        """Cap nesting; see Note [Hostile files]. Brackets must match, so that the parser never has to guess."""
        text, position, levels, operand = self.text, 0, [_Level("", 0)], False
        pending = 0  # operators that wait for their right operand, of all levels
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                self.fail(position, f"the character {text[position]!r} has no meaning here")
            kind, level, start, position = token.lastgroup, levels[-1], position, token.end()
            if kind in ("space", "comment") or (kind == "newline" and len(levels) > 1):
                continue
            before = len(level.waiting)
            if kind == "operator" or (kind == "name" and token[0] in _WORD_OPERATORS):
                level.operator(token[0], operand)
                operand = False
            elif kind == "open":
                levels.append(_Level(token[0], start))
                operand = False
                if len(levels) > MAX_BRACKETS:
                    self.fail(start, f"brackets are nested more than {MAX_BRACKETS} deep", "name parts of it: q = ...")
            elif kind == "close":
                if _PAIRS[token[0]] != level.bracket:
                    self._unmatched(start, token[0], level)
                pending -= before
                inner = level.finish()
                levels.pop()
                level, before, operand = levels[-1], len(levels[-1].waiting), True
                level.depth = max(level.depth, inner) + 1
            elif kind in ("break", "newline"):
                level.finish()
                operand = False
            else:
                position = self._string(token, start) if kind == "string" else position
                operand = True
            pending += len(level.waiting) - before
            if level.depth + pending > MAX_CHAIN:
                self.fail(start, f"an expression is nested more than {MAX_CHAIN} deep", "name parts of it: q = ...")
        if len(levels) > 1:
            self.fail(levels[-1].start, f"{levels[-1].bracket!r} is never closed")

    def _string(self, token: re.Match[str], start: int) -> int:
        if "f" in token["prefix"].lower():
            self.fail(start, "f-strings have no meaning in an expression file")
        end = _STRING_END[token["quote"]].match(self.text, token.end())
        if end is None:
            self.fail(start, "the string is never closed")
        return end.end()

    def _unmatched(self, start: int, found: str, level: _Level) -> NoReturn:
        if not level.bracket:
            self.fail(start, f"{found!r} closes nothing")
        line, column = self._place(level.start)
        self.fail(start, f"{found!r} does not close the {level.bracket!r} of line {line}, column {column + 1}")

    # -- the tree ---------------------------------------------------------------------------------------------------
    def parse(self) -> ast.Module:
        """The syntax tree of the whole text."""
        try:
            return ast.parse(self.text, filename=self.name)
        except SyntaxError as error:
            raise self._syntax(error) from None
        except (RecursionError, MemoryError):
            return self._parse_afresh()

    def _parse_afresh(self) -> ast.Module:
        """In a thread of its own: how deep a tree may be depends on how deep the caller is."""
        found: list[Any] = []

        def work() -> None:
            try:
                found.append(ast.parse(self.text, filename=self.name))
            except BaseException as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(found[0], ast.Module):
            return found[0]
        if isinstance(found[0], SyntaxError):
            raise self._syntax(found[0])
        raise ExpressionError(f"{self.name}: an expression is nested too deeply for Python's parser; name parts of it: q = ...")

    def _syntax(self, error: SyntaxError) -> ExpressionError:
        line = min(max(error.lineno or 1, 1), len(self.lines))
        text = self.lines[line - 1]
        column = min(max((error.offset or 1) - 1, 0), len(text))
        message = error.msg if "digits" not in error.msg else "a number has too many digits"
        for prefix in _SYNTAX_PREFIXES:
            message = message.removeprefix(prefix)
        word = re.match(r"\w*", text[column:])
        remedy = ""
        if word is not None and keyword.iskeyword(word[0]):
            remedy = f"{word[0]} is a word of the language and cannot be a name; call it {word[0]}_"
        elif (reserved := _reserved_in(text)) is not None:
            remedy = f"{reserved} is a word of the language and cannot be a name; call it {reserved}_"
        else:
            remedy = _sign_left_out(text, column)
        return self.at(line, column, "not valid syntax" + (f": {message[0].lower()}{message[1:]}" if message else ""), remedy)

    def remember(self) -> None:
        """Let messages that quote a line by file and number find a text that is no file."""
        linecache.cache[self.name] = (len(self.text), None, [f"{line}\n" for line in self.lines], self.name)


def _reserved_in(text: str) -> str | None:
    """A reserved word that is used like a variable: ``lambda: f64``, ``2*lambda``."""
    found = re.search(r"\b(lambda|is|as|in|from|class|with|async|del|global|pass|try)\b", text)
    return found[1] if found else None


def _sign_left_out(text: str, column: int) -> str:
    """What to write for ``2x``, ``2 x`` and ``sin x``."""
    from pullback.frontends.expression_names import functions  # the whole library, for this message only

    for found in _NEIGHBOURS.finditer(text):
        first, gap, second = found.groups()
        if found.start() <= column < found.end() and (gap or first[0].isdigit()) and not keyword.iskeyword(second):
            if first in functions():
                return f"write {first}({second}) for a function of {second}"
            return f"write {first}*{second} for a product"
    return ""


class _Level:
    """What is open at a bracket. ``depth`` is that of the tree of the current operand; ``waiting`` are operators with the
    depth of what they hold so far; ``deepest`` is that of the elements before the last comma."""

    __slots__ = ("bracket", "deepest", "depth", "start", "waiting")

    def __init__(self, bracket: str, start: int):
        self.bracket = bracket
        self.start = start
        self.depth = 0
        self.deepest = 0
        self.waiting: list[tuple[int, int]] = []

    def operator(self, text: str, binary: bool) -> None:
        """``binary``: an operand stands before it, so a sign is an operation between two."""
        if text == ".":
            self.depth += 1
            return
        binding = _BINDING.get(text, _COMPARISON) if binary or text in ("not", "lambda") else _SIGN
        self.reduce(binding + (text in ("**", "else")))  # which group from the right
        self.waiting.append((binding, self.depth))
        self.depth = 0

    def reduce(self, binding: int) -> None:
        """Give the operators that bind at least so strongly their right operand."""
        while self.waiting and self.waiting[-1][0] >= binding:
            self.depth = max(self.depth, self.waiting.pop()[1]) + 1

    def finish(self) -> int:
        """The end of an element. The depth of the tree of all elements so far."""
        self.reduce(0)
        self.deepest = max(self.deepest, self.depth)
        self.depth = 0
        return self.deepest


# -- texts of messages ------------------------------------------------------------------------------------------------
def clipped(name: str, limit: int = 60) -> str:
    return name if len(name) <= limit else f"{name[: limit - 3]}..."


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Names like this one, for "did you mean"; none for absurdly long ones."""
    if len(name) > 40:
        return []
    candidates = {k.lower(): k for k in sorted(known, reverse=True)}
    return [candidates[k] for k in difflib.get_close_matches(name.lower(), candidates, n=3, cutoff=0.7)]


def suggestion(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""
