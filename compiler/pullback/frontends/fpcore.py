"""FPCore as an input format: each FPCore of a file becomes the same kind of program that an expression file is."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pullback.errors import ExpressionError
from pullback.frontends.expression_reader import Input, Program
from pullback.frontends.expression_source import Source, clipped, suggestion
from pullback.frontends.fpcore_names import PRECISIONS
from pullback.frontends.fpcore_reader import Form, FPCoreFile, is_number
from pullback.frontends.fpcore_values import Context, Variable, placed
from pullback.frontends.fpcore_write import Writer, properties
from pullback.ir.types import Type, f32, f64, i64
from pullback_runtime.binding import REQUIRED, RESERVED

SUFFIX = ".fpcore"
_TYPES = {"binary64": f64, "binary32": f32, "integer": i64}


@dataclass(frozen=True, slots=True)
class Core:
    """One FPCore. ``name``: its ``:name``, or the identifier in front of its arguments."""

    form: Form
    name: str
    identifier: str
    arguments: tuple[Form, ...]
    properties: Mapping[str, tuple[Form, Form]]
    body: Form

    def text(self, key: str) -> str:
        """A property as text; empty where it is not given."""
        if key not in self.properties:
            return ""
        value = self.properties[key][1]
        return value.string if value.string is not None else value.shown()

    @property
    def doc(self) -> str:
        """What is known of it: name, description, and the precondition that its inputs are meant to fulfil."""
        lines = [self.name, self.text(":description").strip()]
        lines += [f"{what}: {self.text(key)}" for key, what in ((":pre", "for"), (":spec", "computes")) if self.text(key)]
        return "\n".join(filter(None, lines))


def split(target: str | Path) -> tuple[str, str]:
    """``FILE.fpcore:NAME`` as file and name; the name is empty where there is none."""
    path, mark, name = str(target).rpartition(f"{SUFFIX}:")
    return (path + SUFFIX, name) if mark else (str(target), "")


def cores(source: Source) -> list[Core]:
    """All FPCores of a text. ExpressionError at the first thing that is none."""
    found = [_core(form) for form in FPCoreFile(source).forms()]
    if not found:
        raise source.at(1, 0, "the file holds no FPCore", "write (FPCore (x y) ... expression)")
    return found


def _core(form: Form) -> Core:
    assert form.items is not None
    if form.head != "FPCore":
        raise form.error("an FPCore expected", "a file holds (FPCore (x y) ... expression) one after another")
    parts = list(form.items[1:])
    identifier = parts.pop(0).text if parts and parts[0].text else ""
    if len(parts) < 2 or parts[0].items is None:
        raise form.error("(FPCore (x y) ... expression) expected", "the arguments stand in brackets, the expression comes last")
    arguments, *given, body = parts
    assert arguments.items is not None
    found = properties(form, given)
    named = found.get(":name")
    name = identifier if named is None else named[1].string if named[1].string is not None else named[1].shown()
    return Core(form, name, identifier, arguments.items, found, body)


def select(found: Sequence[Core], wanted: str, file: str) -> Core:
    """The FPCore of a name, or of a number such as ``#2``; the only one where no name is given."""
    if not wanted and len(found) == 1:
        return found[0]
    if wanted.startswith("#") and wanted[1:].isdecimal() and len(wanted) < 10 and 0 < int(wanted[1:]) <= len(found):
        return found[int(wanted[1:]) - 1]
    matching = [c for c in found if wanted and wanted in (c.name, c.identifier)]
    if len(matching) == 1:
        return matching[0]
    listed = "\n".join(f"    #{k}  {clipped(c.name) or '(without a name)'}" for k, c in list(enumerate(found, 1))[:100])
    if len(matching) > 1:
        message = f"{file} has {len(matching)} FPCores named {clipped(wanted)}; say which by its number"
    elif wanted:
        near = suggestion(wanted, [c.name for c in found])
        message = f"{file} has no FPCore {clipped(wanted)}" + (f"; {near}" if near else "")
    else:
        message = f"{file} holds {len(found)} FPCores; say which one, by name or number: {Path(file).name}:{_example(found)}"
    raise ExpressionError(f"{message}\n{listed}")


def _example(found: Sequence[Core]) -> str:
    names = [c.name for c in found]
    return next((name for name in names if name.isidentifier() and names.count(name) == 1), "#1")


def program(core: Core, precision: str = "") -> Program:
    """The statements of an FPCore. ``precision``: the format of all its numbers, whatever it says itself."""
    if precision not in ("", "binary32", "binary64"):
        raise ExpressionError(f"the precision is binary64 or binary32, got {clipped(precision)}")
    writer = Writer(precision)
    outer = writer.precision(core.properties, precision or "binary64")
    names: dict[str, Variable] = {}
    inputs = []
    for argument in core.arguments:
        form, kind = _argument(argument, writer, outer)
        if form.text in names:
            raise form.error(f"{clipped(form.text)} is an argument twice")
        names[form.text] = Variable(writer.unique(form.text, tuple(RESERVED)), kind)
        inputs.append(Input(names[form.text].name, Type(_TYPES[kind]), REQUIRED, placed(form, ast.Name("x", ast.Load()))))
    body: list[ast.stmt] = []
    result = writer.write(core.body, Context(outer, names, body))
    body.append(placed(core.body, ast.Return(result.node)))
    aliases = {name: variable.name for name, variable in names.items() if name != variable.name}
    return Program(core.form.file.source, core.doc, tuple(inputs), (), tuple(body), {}, True, aliases)


def _argument(form: Form, writer: Writer, outer: str) -> tuple[Form, str]:
    """The name and the format of an argument: ``x`` or ``(! :precision binary32 x)``."""
    kind = outer
    if form.head == "!" and form.items is not None and len(form.items) > 1:
        *given, name = form.items[1:]
        kind, form = writer.precision(properties(form, given), outer), name
    if form.items is not None:
        raise form.error("an argument is a number; tensors are not supported", "an expression file has arrays: x: f64[n]")
    if not form.text or is_number(form):
        raise form.error("the name of an argument expected")
    assert kind in PRECISIONS
    return form, kind


def read(path: str | Path, name: str = "", precision: str = "") -> tuple[Program, str]:
    """The program of one FPCore of a file, and its name."""
    found = cores(Source.read(path, python=False))
    core = select(found, name, str(path))
    return program(core, precision), core.name or Path(path).stem
