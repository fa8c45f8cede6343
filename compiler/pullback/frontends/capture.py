"""What a traced function reads from outside: arrays become hidden inputs, everything else is guarded.

Each thing has an access path, such as ``global MODEL.weights[0]``, and a reader that follows it again. Arrays are read at every
call; numbers, strings, functions and the make-up of containers are compared at every call, and a change asks for another trace.
Containers are handed to the traced code as copies whose arrays are traced; changing such a copy would be a side effect and is
refused at the end. Objects are handed over as they are, and their attributes captured when they are read.
"""

from __future__ import annotations

import enum
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import TraceError
from pullback.frontends.array import Array
from pullback.frontends.sizes import Length
from pullback.frontends.trace import Trace, is_library
from pullback.frontends.traced import ValueGuard
from pullback_runtime.spots import Spot

Reader = Callable[[], Any]
_SCALARS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, np.generic, np.dtype, enum.Enum)
_MISSING = object()


def same(a: Any, b: Any) -> bool:
    """Equal in value and type; NaN equals NaN, 0.0 and -0.0 differ."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (float, np.floating)):
        return bool(a == b and math.copysign(1, a) == math.copysign(1, b)) or bool(a != a and b != b)
    return bool(a == b)


def _is_frozen(value: Any) -> bool:
    """Whether a value cannot change, nor anything in it: numbers, strings and tuples of them."""
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, tuple) and (type(part) is tuple or hasattr(part, "_fields")):
            pending.extend(part)
        elif not isinstance(part, _SCALARS):
            return False
    return True


def _unchanged(now: Any, then: Any) -> bool:
    """Whether two values that cannot change are the same, types and signs of zeros included. The very same object is."""
    pending = [(now, then)]
    while pending:
        a, b = pending.pop()
        if a is b:
            continue
        if isinstance(a, tuple) and isinstance(b, tuple):
            if type(a) is not type(b) or len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        elif not same(a, b):
            return False
    return True


class Captures:
    """The captures of one trace."""

    def __init__(self, trace: Trace):
        self.trace = trace
        self.objects: dict[int, tuple[Any, str, Reader]] = {}
        self.copies: dict[str, tuple[Any, Any]] = {}  # by path: what the traced code holds, and how it was at first

    def __call__(self, value: Any, path: str, read: Reader) -> Any:
        """What the traced code gets for a value that was read from outside."""
        if isinstance(value, (Array, Length)):
            return value
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            return Array(
                self.trace, self.trace.capture(path, value, read), source=f"the captured array {path.split(' ', 1)[-1]!r}"
            )
        if isinstance(value, _SCALARS):
            self.guard(path, lambda: same(read(), value), (read, value))
            return value
        if type(value) in (list, tuple, dict) or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return self._container(value, path, read)
        if isinstance(value, (set, frozenset)):
            kept = frozenset(value)
            self.guard(path, lambda: read() == kept)
            return value
        if isinstance(value, types.FunctionType):
            if not is_library(value.__code__.co_filename):
                self.guard(path, lambda: read() is value, (read, value))
            return value
        if isinstance(value, types.MethodType):
            self.register(value.__self__, f"{path}.__self__", lambda: read().__self__)
            return value
        if isinstance(value, (types.BuiltinFunctionType, np.ufunc)):
            return value
        if isinstance(value, types.ModuleType):
            self.objects.setdefault(id(value), (value, value.__name__, lambda: value))
            return value
        self.register(value, path, read)
        return value

    def guard(self, path: str, check: Callable[[], bool], found: tuple[Reader, Any] | None = None) -> None:
        """``found``: a reader and what it gave, where finding that very object again says that ``check`` holds."""

        def holds() -> bool:
            try:
                return check()
            except (AttributeError, LookupError, TypeError, NameError):  # the path leads nowhere any more
                return False

        spot = (found[0], found[1]) if found is not None and isinstance(found[0], Spot) else None
        self.trace.guards.setdefault(("value", path), ValueGuard(path, holds, self.trace.where(), spot))

    def register(self, value: Any, path: str, read: Reader) -> None:
        """Remember how an object is reached, so that its attributes can be captured; its class must stay."""
        if id(value) not in self.objects:
            self.objects[id(value)] = (value, path, read)
            kind = value if isinstance(value, type) else type(value)
            self.guard(path, lambda: (read() if isinstance(value, type) else type(read())) is kind)

    def path_of(self, value: Any) -> tuple[str, Reader] | None:
        found = self.objects.get(id(value))
        return None if found is None else found[1:]

    def attribute(self, owner: Any, name: str, value: Any) -> Any:
        """An attribute that was read from a captured object."""
        found = self.path_of(owner)
        if found is None:
            return value
        path, read = found
        library = isinstance(owner, types.ModuleType) and _is_library_module(owner)
        if library and not isinstance(value, np.ndarray):
            return value
        return self(value, f"{path}.{name}", lambda: getattr(read(), name))

    def item(self, owner: Any, key: Any, value: Any) -> Any:
        found = self.path_of(owner)
        if found is None:
            return value
        path, read = found
        return self(value, f"{path}[{key!r}]", lambda: read()[key])

    def _container(self, value: Any, path: str, read: Reader) -> Any:
        found = self.copies.get(path)
        if found is not None:
            return found[0]
        if isinstance(value, tuple) and _is_frozen(value):
            self.guard(path, lambda: _unchanged(read(), value), (read, value))
            return value
        if type(value) in (list, dict) and all(map(_is_frozen, value.values() if type(value) is dict else value)):
            return self._frozen_items(value, path, read)
        if isinstance(value, dict):
            keys = tuple(value)
            self.guard(path, lambda: type(read()) is dict and tuple(read()) == keys)
            copied: Any = {k: self(v, f"{path}[{k!r}]", _item(read, k)) for k, v in value.items()}
        else:
            kind, count = type(value), len(value)
            self.guard(path, lambda: type(read()) is kind and len(read()) == count)
            parts = [self(v, f"{path}[{k}]", _item(read, k)) for k, v in enumerate(value)]
            copied = kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        self.copies[path] = (copied, dict(copied) if isinstance(copied, dict) else list(copied))
        return copied

    def _frozen_items(self, value: Any, path: str, read: Reader) -> Any:
        """A list or dict whose items cannot change, of which there may be very many: one guard for them all."""
        kind, keys = type(value), tuple(value) if type(value) is dict else ()
        items = tuple(value.values() if kind is dict else value)

        def holds() -> bool:
            now = read()
            if type(now) is not kind or len(now) != len(items) or (keys and tuple(now) != keys):
                return False
            found = now.values() if kind is dict else now
            return all(map(operator.is_, found, items)) or all(map(_unchanged, found, items))

        self.guard(path, holds)
        copied = kind(value)
        self.copies[path] = (copied, kind(value))
        return copied

    def check_unchanged(self) -> None:
        """A container of the caller's that the function changed would not be changed by the compiled one."""
        for path, (copied, first) in self.copies.items():
            now = dict(copied) if isinstance(copied, dict) else list(copied)
            pairs = zip(now.items(), first.items(), strict=False) if isinstance(now, dict) else zip(now, first, strict=False)
            if len(now) != len(first) or any(a is not b and not _same_item(a, b) for a, b in pairs):
                raise self.trace.error(
                    TraceError,
                    f"the function changes {path}, which belongs to the caller; a compiled function has no side effects",
                    "return the new values instead",
                )


def _same_item(a: Any, b: Any) -> bool:
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b) == 2 and a[0] is b[0] and a[1] is b[1]


def _item(read: Reader, key: Any) -> Reader:
    return lambda: read()[key]


_LIBRARIES = frozenset(
    ["numpy", "scipy", "math", "cmath", "pullback", "pullback_runtime", "builtins", "functools", "itertools", "operator"]
)


def _is_library_module(module: types.ModuleType) -> bool:
    return module.__name__.partition(".")[0] in _LIBRARIES
