"""What the command works on: a function made from a file or an inline expression, with values for its inputs."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.cli.data import Table, assignments, gather, unused
from pullback.cli.errors import CommandError
from pullback.compiled import CompiledFunction
from pullback.errors import PullbackError, SeedError
from pullback.frontends import fpcore
from pullback.frontends.expression import ExpressionFrontend, inline
from pullback.frontends.expression_names import CONSTANTS, ELEMENT_TYPES
from pullback.frontends.expression_source import clipped
from pullback.ir.types import Type, f64
from pullback.llvm import Options
from pullback.wording import output_names
from pullback_runtime.binding import REQUIRED
from pullback_runtime.signature import FLOATS, Structure

SUFFIXES = (".expr", ".fpcore", ".pb", ".py", ".txt")


@dataclass(frozen=True)
class Program:
    """A function and the values that were given for its inputs, by name, defaults included."""

    function: CompiledFunction
    target: str  # as the user wrote it
    values: Mapping[str, Any]
    at: Sequence[str] = ()  # the options, as the user wrote them
    tables: Sequence[Table] = ()

    @property
    def missing(self) -> list[Any]:
        return [p for p in self.function.parameters if p.name not in self.values]

    def floating(self) -> list[str]:
        """The inputs that have gradients."""
        return [n for n, v in self.values.items() if np.asarray(v).dtype.kind == "f"]

    def complete(self, command: str) -> Mapping[str, Any]:
        """The values, or an error that lists what is missing, with its types and an example."""
        missing = self.missing
        if missing:
            lines = [f"missing input{'s' if len(missing) > 1 else ''} of {clipped(self.target)}:"]
            lines += [f"  {p.name}: {p.declared if p.declared is not None else 'f64'}" for p in missing]
            lines += unused(self.tables, [p.name for p in self.function.parameters], [p.name for p in missing])
            given = [f"--data {shlex.quote(table.path)}" for table in self.tables]
            given += [f"--at {shlex.quote(clipped(text))}" for text in self.at]
            example = " ".join([*given, *(f"--at {p.name}={_example(p)}" for p in missing)])
            start = "pullback" + (f" {command}" if command != "grad" or is_file(self.target) else "")
            lines += ["for example:", f"  {start} {shlex.quote(clipped(self.target))} {example}"]
            raise CommandError("\n".join(lines))
        return self.values


def _example(parameter: Any) -> str:
    declared = parameter.declared
    kind = "f" if declared is None else declared.dtype.kind
    one, two = {"f": ("1.5", "2.5"), "i": ("1", "2"), "b": ("True", "False")}[kind]
    rank = 0 if declared is None else len(declared.shape)
    if rank == 0:
        return one
    if rank > 1:
        return f"{parameter.name}.npy"
    length = declared.shape[0]
    count = length if isinstance(length, int) and length <= 6 else 2
    return f"'[{', '.join((one, two)[k % 2] for k in range(count))}]'"


def is_file(target: str) -> bool:
    """Whether the target is a file, or a part of one: ``FILE.fpcore:NAME``."""
    try:
        return os.path.isfile(target) or os.path.isfile(fpcore.split(target)[0])
    except ValueError:  # a null character
        return False


def load(
    target: str,
    at: Sequence[str],
    data: Sequence[str],
    precision: str | None = None,
    max_trips: int | None = None,
    opt: str = "auto",
) -> Program:
    """The program of a file's name or an expression, with the inputs that ``--at`` and ``--data`` give."""
    path = target if os.path.isfile(target) else fpcore.split(target)[0]
    given = assignments(at, any_name=path.lower().endswith(fpcore.SUFFIX))
    tables = [Table(path) for path in data]
    with reported():
        frontend = _frontend(target, given, tables, precision or "")
        function = CompiledFunction(frontend, Options(max_trips=max_trips, opt=opt if opt == "auto" else int(opt)))
    given = {frontend.aliases.get(name, name): value for name, value in given.items()}
    values = gather(frontend.parameters, given, tables)
    for parameter in frontend.parameters:
        if parameter.default is not REQUIRED:
            values.setdefault(parameter.name, np.asarray(parameter.default, parameter.declared.dtype.numpy)[()])
    return Program(function, target, {p.name: values[p.name] for p in frontend.parameters if p.name in values}, at, tables)


def _frontend(target: str, given: Mapping[str, Any], tables: Sequence[Table], precision: str) -> ExpressionFrontend:
    path, core = (target, "") if os.path.isfile(target) else fpcore.split(target)
    if precision and not path.lower().endswith(fpcore.SUFFIX):
        raise CommandError("--precision is for .fpcore files; the inputs of an expression file say their own: x: f32")
    if is_file(target):
        return ExpressionFrontend.load(path, core, precision)
    if core or (target.lower().endswith(SUFFIXES) and " " not in target and "(" not in target):
        raise CommandError(f"there is no file {clipped(path)}")
    if len(target) < 1000 and os.path.isdir(target):
        raise CommandError(f"{clipped(target)} is a directory; a file or an expression expected")
    types: dict[str, Type | None] = {n: None if np.ndim(v) else Type(f64) for n, v in given.items()}
    for table in tables:
        for name in table.names:
            if name not in CONSTANTS and name not in ELEMENT_TYPES:
                types.setdefault(name, None)
    return inline(target.strip(), types)


def _about_seeds(message: str, program: Program | None) -> str:
    """The library's message in the command's words, with an example that fits the outputs."""
    message = re.sub(r"seed=np\.ones\(\(.*?\)\)", "--seed 1", message)
    message = re.sub(r'seed_mode="(\w+)"', r"--seed-mode \1", message).replace("with seed=,", "with --seed,")
    example = "--seed 1, --seed '[1, -2]' or --seed seed.npy"
    made: Any = None if program is None else program.function.specialization(**program.values)
    if made is not None and made.output.kind != "leaf":
        names = output_names(program.function.__name__, made.output.paths("")) if program is not None else []
        message = message.replace(str(made.output), f"({', '.join(names)})")
        if made.output.kind == "dict":
            message = message.replace(", in the same structure (None for an output without one)", ", by its name")
        floats = iter([kind in FLOATS for kind in made.kinds])
        example = f"--seed {shlex.quote(_seed_example(made.output, floats, made.output.kind == 'dict'))}"
    return f"{message}\n  for example: {example}"


def _seed_example(output: Structure, floats: Iterator[bool], named: bool, done: bool = False) -> str:
    """1 for the first floating output, nothing for the others. JSON within a dict, Python's notation within a list."""
    nothing = "null" if named else "None"
    if output.kind == "leaf":
        return "1" if next(floats) and not done else nothing
    parts: list[str] = []
    for child in output.children:
        parts.append(_seed_example(child, floats, named, done or any("1" in p for p in parts)))
    if output.kind == "dict":
        chosen = [f"{json.dumps(key)}: {part}" for key, part in zip(output.meta, parts, strict=True) if "1" in part]
        return "{" + ", ".join(chosen) + "}" if chosen else nothing
    return f"[{', '.join(parts)}]"


@contextmanager
def reported(program: Program | None = None) -> Iterator[None]:
    """Errors of the library become the command's: a message and exit status 2, no traceback."""
    try:
        yield
    except SeedError as error:
        raise CommandError(_about_seeds(str(error), program)) from None
    except (BrokenPipeError, CommandError):
        raise
    except (PullbackError, TypeError, ValueError, IndexError, ZeroDivisionError, OSError, MemoryError) as error:
        raise CommandError(str(error) or type(error).__name__) from None
