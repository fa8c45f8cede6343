"""What a trace of a Python function depends on, without tracing it: a digest that the next process finds again.

Note [Identity]
~~~~~~~~~~~~~~~
Tracing looks at the function's text and at what it reaches from there: names of its module and closure, the functions that it
calls, their names in turn. All of that is taken into the digest: bytecode with places, constants, the size and time of the
file, and for each name that the bytecode mentions whatever it stands for now. That is more than the trace reads, which is safe:
where two digests are equal, the traces are equal.

Everything that is not understood makes it Unknown, and the function is traced as ever: objects and their classes, containers
that can be changed, code without a file, names that are looked up by ``getattr`` or ``globals``, imports within the function.
NumPy, SciPy and ``math`` are taken by name and version. Of arrays the type counts: they are inputs, read anew at each call.
"""

from __future__ import annotations

import builtins
import dis
import os
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pullback.ir.types import DType, Type
from pullback_runtime.function import Function
from pullback_runtime.signature import Structure, shape_key
from pullback_runtime.spots import Spot

LIBRARIES = frozenset({"numpy", "scipy", "math", "pullback", "pullback_runtime"})
_PLAIN_BUILTINS = frozenset(
    {
        "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "filter", "float", "frozenset", "int",
        "isinstance", "issubclass", "iter", "len", "list", "map", "max", "min", "next", "pow", "range", "repr", "reversed",
        "round", "set", "slice", "sorted", "str", "sum", "tuple", "type", "zip", "NotImplemented", "Ellipsis"
    }
)  # fmt: skip
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_IMPORT = dis.opmap["IMPORT_NAME"]
_MISSING = object()


class Unknown(Exception):
    """Something that a trace may depend on and that has no identity beyond this process."""


class Identity:
    """``parts``: texts that are equal in another process if everything is as it was; ``unchanged`` asks that again here."""

    def __init__(self, function: Any):
        """``function``: a compiled one, or a plain one. Unknown if there is none."""
        scipy = getattr(sys.modules.get("scipy"), "__version__", "")
        self.parts: list[bytes | str] = [sys.version, np.__version__, scipy, str(sys.flags.optimize)]
        self.arrays: dict[str, list[Callable[[], Any]]] = {}  # by how a trace calls what it captures
        self.watched: set[str] = set()  # what else it captures
        self._watched: list[tuple[Callable[[], Any], Any]] = []
        self._seen: dict[int, int] = {}
        self._files: set[str] = set()
        self._kept: list[Any] = []  # so that no other object gets an id that was seen
        if isinstance(function, Function):
            self._compiled(function)
        elif type(function) is types.FunctionType:
            self._function(function)
        else:
            raise Unknown

    def unchanged(self) -> bool:
        """Whether the names that were looked at still stand for the same objects."""
        return all(read() is value for read, value in self._watched)

    @property
    def objects(self) -> list[tuple[Callable[[], Any], Any]]:
        """What is looked at again, and what has to be there."""
        return self._watched

    @property
    def watches(self) -> bool:
        return bool(self._watched)

    # -- functions --------------------------------------------------------------------------------------------------
    def _function(self, function: types.FunctionType) -> None:
        if self._again(function):
            return
        if function.__dict__:  # wrappers, and functions that keep something
            raise Unknown
        code = function.__code__
        names: set[str] = set()
        self._code(code, names)
        self._file(code.co_filename)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._watch(f"closure {name}", _cell_reader(cell), names)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(value, names)
        space = function.__globals__
        for name in sorted(names):
            if name in space:
                self._watch(f"global {name}", _global_reader(space, name), names)
            elif hasattr(builtins, name) and name not in _PLAIN_BUILTINS and not _is_error(getattr(builtins, name)):
                raise Unknown

    def _code(self, code: types.CodeType, names: set[str]) -> None:
        instructions = code.co_code
        if _IMPORT in instructions[::2]:
            raise Unknown
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_firstlineno)
        shape = (code.co_name, code.co_filename, counts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        places = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
        self.parts += [repr(shape), instructions, places]
        names.update(code.co_names)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._code(constant, names)
            else:
                self._value(constant, names)

    def _file(self, path: str) -> None:
        """The trace reads the text, which may be newer than the bytecode that this process has."""
        if path not in self._files:
            self._files.add(path)
            try:
                about = os.stat(path)
            except OSError:
                raise Unknown from None
            self.parts.append(f"{path} {about.st_size} {about.st_mtime_ns}")

    # -- what names stand for -----------------------------------------------------------------------------------------
    def _watch(self, path: str, read: Callable[[], Any], names: set[str]) -> None:
        value = read()
        self.parts.append(path)
        if type(value) is np.ndarray:
            self.parts.append(f"array of {value.dtype} {shape_key(value.shape, False)}")
            self.arrays.setdefault(path, []).append(read)
            return
        if not isinstance(value, types.ModuleType) or not _is_library(value.__name__):
            self._watched.append((read, value))
            self.watched.add(path)
        self._value(value, names)

    def _value(self, value: Any, names: set[str]) -> None:
        kind = type(value)
        if kind in _SCALARS:
            self.parts.append(f"{kind.__name__} {value!r}")
        elif kind in (tuple, frozenset):
            parts = value if kind is tuple else sorted(value, key=repr)
            self.parts.append(f"{kind.__name__} {len(parts)}")
            for part in parts:
                self._value(part, names)
        elif kind is types.FunctionType and not _is_library(value.__module__ or ""):
            self._function(value)
        elif isinstance(value, types.ModuleType):
            self._module(value, names)
        elif isinstance(value, Function):
            self._compiled(value)
        elif isinstance(value, (DType, Type, np.dtype)):
            self.parts.append(f"{kind.__name__} {value}")
        elif isinstance(value, np.generic):
            self.parts.append(f"{kind.__name__} {value.tobytes().hex()}")
        else:
            self._named(value)

    def _named(self, value: Any) -> None:
        """A function or type of a library or of Python's own."""
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else None)
        if not isinstance(name, str) or not isinstance(module, str):
            raise Unknown
        places = (sys.modules.get(module), sys.modules.get("scipy.special"))
        if module == "builtins":
            if name not in _PLAIN_BUILTINS and not _is_error(value):
                raise Unknown
        elif not _is_library(module):
            raise Unknown
        if all(getattr(place, name, _MISSING) is not value for place in places):
            raise Unknown
        self.parts.append(f"{module}.{name}")

    def _module(self, module: types.ModuleType, names: set[str]) -> None:
        self.parts.append(f"module {module.__name__}")
        if self._again(module):
            return
        space = vars(module)
        if _is_library(module.__name__):
            for name in names & space.keys():
                value = space[name]
                if type(value) is types.FunctionType and not _is_library(value.__module__ or ""):  # put there by somebody else
                    raise Unknown
            return
        if "__getattr__" in space:
            raise Unknown
        for name in sorted(names & space.keys()):
            self._watch(f"{module.__name__}.{name}", _global_reader(space, name), names)

    def _compiled(self, function: Any) -> None:
        if self._again(function):
            return
        frontend = function.frontend
        kind = type(frontend).__name__
        declared = [(p.name, str(p.declared)) for p in function.parameters]
        self.parts.append(repr((kind, frontend.name, function.options, function._symbolic, sorted(function._floats), declared)))
        recipe = getattr(frontend, "recipe", None)
        original = getattr(frontend, "function", None)
        if recipe is not None:
            transform, base, wrt = recipe
            if type(wrt) not in _SCALARS and not (type(wrt) is tuple and all(type(part) in _SCALARS for part in wrt)):
                raise Unknown
            self.parts.append(f"{transform} {wrt!r}")
            self._compiled(base)
        elif kind == "PythonFrontend" and type(original) is types.FunctionType:
            self._function(original)
        elif hasattr(frontend, "identity"):
            self.parts.append(frontend.identity())
        else:
            raise Unknown

    def _again(self, value: Any) -> bool:
        """Whether an object was looked at before; if so, which one it is says all."""
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self.parts.append(f"object {known}")
            return False
        self.parts.append(f"object {known}")
        return True


def structure_text(structure: Structure) -> str:
    """A structure as text that says all about it. Unknown for the user's own classes."""
    if structure.kind in ("namedtuple", "dataclass"):
        raise Unknown
    if structure.kind == "dict" and not all(type(key) in (str, int) for key in structure.meta):
        raise Unknown
    return f"{structure.kind}({structure.meta!r}, {', '.join(map(structure_text, structure.children))})"


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _cell_reader(cell: Any) -> Spot:
    return Spot(cell, None, _MISSING)


def _global_reader(space: Mapping[str, Any], name: str) -> Spot:
    return Spot(space, name, _MISSING)
