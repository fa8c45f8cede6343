"""Textual tests of the IR: every tests/filetests/**/*.ir is one.

The first comment lines of a file say what is done with its functions; below the line ``# ----`` stands what comes out::

    # pass=simplify
    func @f(%x: f64) -> f64 {
      ..
    }
    # ----
    func @f(%x: f64) -> f64 {
      return %x
    }

Directives:

- ``roundtrip``: each function prints exactly as it stands in the file.
- ``verify``: each function is read and verified. Where a line ends in ``# error: MESSAGE``, reading or verifying the function
  must fail at that line (the function's first, if the error has no place) with that message.
- ``pass=NAME,NAME..``: the passes in this order; ``adjoint``, ``tangent`` (both may be followed by ``wrt=x,y``) and ``pass``
  directives apply one after another, and their outcome is printed.
- ``run [ARGUMENT, ..]``: the functions' results for these arguments (JSON), or the error.
- ``loops``: the loop nests that the functions become.

``pytest --bless`` rewrites the expected parts.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from pullback.errors import IRError
from pullback.ir.core import Func, Value
from pullback.ir.interp import run
from pullback.ir.parse import parse_func
from pullback.ir.text import print_array, print_func
from pullback.ir.verify import verify
from pullback.loops.lower import lower
from pullback.loops.text import print_program
from pullback.passes import pipeline
from pullback.passes.adjoint import adjoint
from pullback.passes.tangent import tangent

FOLDER = Path(__file__).parent / "filetests"
SEPARATOR = "# ----\n"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.ir")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_file(path: Path, pytestconfig: pytest.Config) -> None:
    text = path.read_text(encoding="utf-8")
    source, _, expected = text.partition(SEPARATOR)
    directives = leading_comments(source)
    assert directives, "the first line must be a comment with a directive"
    if directives == ["verify"]:
        got = "".join(annotated(chunk) for chunk in chunks(source, path))
        if pytestconfig.getoption("bless"):
            path.write_text(got, encoding="utf-8")
        else:
            assert got == source
        return
    outcomes = [outcome(directives, chunk) for chunk in chunks(source, path)[1:]]
    got = ("\n" if any("\n}" in text for text in outcomes) else "").join(outcomes)  # functions stand apart, values do not
    if pytestconfig.getoption("bless"):
        path.write_text(source + (SEPARATOR + got if got else ""), encoding="utf-8")
    else:
        assert got == expected


# -- reading a test ---------------------------------------------------------------------------------------------------
def leading_comments(source: str) -> list[str]:
    found = []
    for line in source.splitlines():
        if not line.startswith("#"):
            break
        found.append(line[1:].strip())
    return found


class Chunk:
    """One function of a file, with what precedes it in its lines; the first chunk is what stands before all functions."""

    def __init__(self, text: str, first_line: int, path: Path):
        self.text = text
        self.first_line = first_line
        self.path = path

    def parse(self) -> Func:
        return parse_func("\n" * (self.first_line - 1) + self.text, self.path.name)


def chunks(source: str, path: Path) -> list[Chunk]:
    starts = [0, *(m.start() for m in re.finditer(r"^func ", source, re.MULTILINE)), len(source)]
    return [
        Chunk(source[start:end], source.count("\n", 0, start) + 1, path)
        for start, end in itertools.pairwise(starts)
        if start != end or start == 0
    ]


# -- verify -----------------------------------------------------------------------------------------------------------
def annotated(chunk: Chunk) -> str:
    """The text with the errors that reading and verifying it give as comments on the faulty lines."""
    lines = [re.sub(r" *# error: .*", "", line) for line in chunk.text.splitlines(keepends=True)]
    if not chunk.text.startswith("func "):
        return chunk.text
    try:
        verify(chunk.parse())
    except IRError as error:
        place = re.search(rf"{re.escape(chunk.path.name)}:(\d+)", str(error))
        line = min(int(place.group(1)) - chunk.first_line, len(lines) - 1) if place else 0
        message = str(error).splitlines()[0]
        message = re.sub(rf"^({re.escape(chunk.path.name)}:\d+:\d+|malformed @\w+): ", "", message)
        lines[line] = f"{lines[line].rstrip()}  # error: {message}\n"
    return "".join(lines)


# -- what comes out ---------------------------------------------------------------------------------------------------
def outcome(directives: list[str], chunk: Chunk) -> str:
    func = chunk.parse()
    verify(func)
    text, transformed = "", False
    for directive in directives:
        name, _, rest = directive.partition(" ")
        if name == "roundtrip":
            assert print_func(func) == chunk.text.rstrip() + "\n"
        elif name == "run":
            text += ran(func, json.loads(rest))
        elif name == "loops":
            text += print_program(lower(func))
        else:
            func, transformed = transform(func, name, rest), True
    return (print_func(func) if transformed else "") + text


def transform(func: Func, name: str, rest: str) -> Func:
    if name.startswith("pass="):
        for each in name.removeprefix("pass=").split(","):
            func = pipeline.run(func, [each])
            verify(func, after=each)
        return func
    derive = {"adjoint": adjoint, "tangent": tangent}[name]
    derived = derive(func, differentiated(func, rest))
    verify(derived, after=name)
    return derived


def differentiated(func: Func, wrt: str) -> Iterable[Value]:
    if not wrt:
        return [p for p in func.params if p.type.is_float]
    by_name = {p.name: p for p in func.params}
    return [by_name[name] for name in wrt.removeprefix("wrt=").split(",")]


def ran(func: Func, arguments: list[object]) -> str:
    arrays = [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, func.params, strict=True)]
    try:
        results = run(func, arrays)
    except Exception as error:
        return f"@{func.name}(*{json.dumps(arguments)}) -> {type(error).__name__}: {error}\n"
    return f"@{func.name}(*{json.dumps(arguments)}) -> {', '.join(map(print_array, results))}\n"
