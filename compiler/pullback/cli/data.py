"""From the command line's texts and files to arrays: ``--at``, ``--data``, ``--seed``. Files are data, never code."""

from __future__ import annotations

import ast
import csv
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.cli.errors import CommandError
from pullback.errors import ExpressionError
from pullback.frontends.expression_source import Source, clipped, nearest, suggestion

_WORDS: Mapping[str, Any] = {
    "inf": math.inf, "+inf": math.inf, "-inf": -math.inf, "nan": math.nan,
    "true": True, "false": False, "True": True, "False": False,
}  # fmt: skip
_NEXT = re.compile(r"[,;\s]+(?=[A-Za-z_]\w*\s*=(?!=))")  # before another NAME=
MAX_FILE = 2_000_000_000  # bytes of a data file


# -- --at and --seed --------------------------------------------------------------------------------------------------
def assignments(texts: Sequence[str], any_name: bool = False) -> dict[str, Any]:
    """``NAME=VALUE`` texts as values by name. ``any_name``: names need not be Python's, as in FPCore."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign or not (name if any_name else name.isidentifier()):
            raise CommandError(f"--at {clipped(text)!r}: NAME=VALUE expected, for example --at x=1.5 or --at X=data.npy")
        if _NEXT.search(value) and not value.endswith((".npy", ".json")):
            raise CommandError(f"--at {clipped(text)!r}: {one_each(text)}")
        if name in found:
            raise CommandError(f"--at {name} is given twice")
        found[name] = parse(value, f"--at {name}")
    return found


def one_each(text: str) -> str:
    """What to write instead of several ``NAME=VALUE`` in one."""
    parts = (part.strip() for part in _NEXT.split(text))
    return "one --at NAME=VALUE for each input: " + " ".join(f"--at {shlex.quote(clipped(p))}" for p in parts)


def parse(text: str, what: str, nested: bool = False) -> Any:
    """A number, a list in brackets, or the contents of a ``.npy`` or ``.json`` file. Lists are arrays, unless ``nested``."""
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    suffix = Path(text).suffix.lower() if len(text) < 1000 else ""
    if suffix == ".npy":
        return load_npy(text, what)
    if suffix == ".json":
        return load_json(text, what)
    if suffix in (".csv", ".npz"):
        raise CommandError(f"{what}: {text} is a table; pass it as --data {text}")
    return _literal(text, what, nested)


def _literal(text: str, what: str, nested: bool) -> Any:
    shown = clipped(text)
    expected = f"{what}: a number, a list such as [1, 2.5] or a .npy file expected, got {shown!r}"
    try:
        Source.of(text, what)  # caps size and nesting
        value = json.loads(text) if text.startswith("{") else ast.literal_eval(text)
    except ExpressionError as error:
        raise CommandError(str(error)) from None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise CommandError(expected) from None
    if nested and isinstance(value, (dict, tuple, list)):
        return value
    return _numbers(value, expected)


def _numbers(value: Any, expected: str) -> Any:
    """A number, or an array of a list of numbers."""
    if isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, list):
        raise CommandError(expected)
    try:
        array = np.array(value)
    except ValueError:
        raise CommandError(f"{expected}: the rows have different lengths") from None
    if array.dtype.kind not in "fib":
        raise CommandError(expected)
    return array.astype(np.float64) if array.size == 0 else array


# -- files ------------------------------------------------------------------------------------------------------------
def load_npy(path: str, what: str) -> np.ndarray[Any, Any]:
    _exists(path, what)
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise CommandError(f"{what}: {path} cannot be read as an array: {error}") from None
    if not isinstance(array, np.ndarray):
        raise CommandError(f"{what}: {path} is an archive of arrays; pass it as --data {path}")
    return array


def load_json(path: str, what: str) -> Any:
    _exists(path, what)
    try:
        return json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{what}: {path} is not valid JSON: {error}") from None


def _exists(path: str, what: str) -> None:
    file = Path(path)
    if not file.is_file():
        raise CommandError(f"{what}: there is no file {path}")
    if file.stat().st_size > MAX_FILE:
        raise CommandError(f"{what}: {path} has more than {MAX_FILE:,} bytes")


class Table:
    """A file of named columns or arrays. Columns are read when they are asked for, so that others may hold text."""

    def __init__(self, path: str):
        self.path = path
        reader = {".csv": self._csv, ".npz": self._npz, ".json": self._json}.get(Path(path).suffix.lower())
        if reader is None:
            raise CommandError(f"--data {path}: a .csv, .npz or .json file expected")
        _exists(path, "--data")
        self._readers: dict[str, Callable[[], Any]] = {}
        reader()

    @property
    def names(self) -> list[str]:
        return list(self._readers)

    def __getitem__(self, name: str) -> Any:
        return self._readers[name]()

    def _csv(self) -> None:
        with open(self.path, encoding="utf-8-sig", newline="") as file:
            try:
                rows = [(reader.line_num, row) for reader in [csv.reader(file)] for row in reader if row]
            except (csv.Error, UnicodeDecodeError) as error:
                raise CommandError(f"{self.path}: not a table of comma-separated values: {error}") from None
        if not rows:
            raise CommandError(f"{self.path}: the table is empty; its first line has to name the columns")
        header = [name.strip() for name in rows[0][1]]
        sign = next((c for c in (";", "\t") if c in header[0]), "") if len(header) == 1 else ""
        if sign:
            raise CommandError(f"{self.path}:1: commas between the columns expected, got {sign!r}")
        for name in header:
            if header.count(name) > 1:
                raise CommandError(f"{self.path}:1: two columns are named {name!r}")
        for line, row in rows[1:]:
            if len(row) != len(header):
                raise CommandError(f"{self.path}:{line}: {len(header)} values expected, one for each column, got {len(row)}")
        for k, name in enumerate(header):
            self._readers[name] = lambda k=k, name=name: np.array(list(self._column(rows[1:], k, name)))  # type: ignore[misc]  # defaults bind the loop's variables

    def _column(self, rows: Iterable[tuple[int, list[str]]], k: int, name: str) -> Iterable[float]:
        for line, row in rows:
            cell = row[k].strip()
            try:
                if "_" in cell:  # Python reads 1_000, a table does not mean it
                    raise ValueError
                yield float(cell)
            except ValueError:
                raise CommandError(f"{self.path}:{line}: column {name!r}: a number expected, got {clipped(cell)!r}") from None

    def _npz(self) -> None:
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                arrays = dict(archive)
        except (ValueError, OSError, EOFError, KeyError, TypeError) as error:
            raise CommandError(f"{self.path} cannot be read as an archive of arrays: {error}") from None
        except Exception as error:  # zipfile.BadZipFile and zlib.error, whose modules need not be imported for this
            raise CommandError(f"{self.path} cannot be read as an archive of arrays: {error}") from None
        self._readers = {name: lambda array=array: array for name, array in arrays.items()}  # type: ignore[misc]  # as above

    def _json(self) -> None:
        found = load_json(self.path, "--data")
        if not isinstance(found, dict):
            raise CommandError(f'{self.path}: an object expected, such as {{"x": [1, 2]}}')
        for name, value in found.items():
            expected = f"{self.path}: {clipped(name)}: a number or a list of numbers expected"
            self._readers[name] = lambda value=value, expected=expected: _numbers(value, expected)  # type: ignore[misc]  # as above


# -- the inputs of a function -----------------------------------------------------------------------------------------
def gather(parameters: Sequence[Any], given: Mapping[str, Any], tables: Sequence[Table]) -> dict[str, Any]:
    """A value, in the declared element type, for every parameter that has one."""
    names = [p.name for p in parameters]
    for name in given:
        if name not in names:
            near = suggestion(name, names)
            raise CommandError(
                f"--at {name}: there is no input {name}; " + (near or f"the inputs are {', '.join(names) or 'none'}")
            )
    used = {name for table in tables for name in table.names if name in names}
    for table in tables:
        if not used.intersection(table.names):
            known = ", ".join(clipped(n) for n in table.names[:20]) or "nothing"
            near = "; ".join(filter(None, (_near(name, table.names) for name in names if name not in given)))
            found = f"{table.path} has none of the inputs {', '.join(names)}; it has {known}"
            raise CommandError(found + (f"; {near}" if near else ""))
    values: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.name in given:
            values[parameter.name] = fitted(parameter, given[parameter.name], f"--at {parameter.name}")
            continue
        for table in tables:
            if parameter.name in table.names:
                values[parameter.name] = fitted(parameter, table[parameter.name], f"{table.path}: {parameter.name}")
    return values


def _near(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"is {near[0]} meant to be {name}?" if near else ""


def unused(tables: Sequence[Table], names: Sequence[str], missing: Sequence[str]) -> list[str]:
    """Lines on what the tables hold that is no input, and which missing input it might be."""
    lines = []
    for table in tables:
        rest = [name for name in table.names if name not in names]
        line = f"{table.path} has {', '.join(clipped(n) for n in table.names[:20])}"
        if rest:
            line += f"; not used: {', '.join(clipped(n) for n in rest[:20])}"
        near = filter(None, (_near(name, rest) for name in missing))
        lines.append("; ".join([line, *near]))
    return lines


def fitted(parameter: Any, value: Any, what: str) -> Any:
    """A value in its input's element type and of its rank; what is not declared is real."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise CommandError(f"{what}: numbers expected, got {array.dtype}")
    declared = parameter.declared
    if declared is None:
        return float(array) if array.ndim == 0 else array.astype(np.float64)
    if array.ndim != len(declared.shape):
        expected = (
            ["one number", "a list of numbers", "a matrix"][len(declared.shape)] if len(declared.shape) < 3 else "an array"
        )
        raise CommandError(f"{what}: the input is {declared}: {expected} expected, got an array of shape {array.shape}")
    wanted = declared.dtype.numpy
    with np.errstate(invalid="ignore"):
        made = array.astype(wanted)
    if declared.dtype.kind != "f" and not np.array_equal(made, array):
        kind = "integers" if declared.dtype.kind == "i" else "True or False"
        raise CommandError(f"{what}: the input is {declared}: {kind} expected")
    return made if made.ndim else made[()]
