"""What a block can change: the variables, what lists, dicts and objects hold, and the contents of arrays.

A :class:`World` is a snapshot of all that is reachable when a block is entered. After the block, :meth:`World.changes` says
what is different, and :meth:`World.restore` makes everything what it was, so that another block can be traced from the same
state.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.frontends.array import Array
from pullback.frontends.sizes import Length
from pullback.frontends.staging_tree import Lack

_ATOMS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.ndarray, np.dtype, Length, Lack, range, slice, type)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, np.ufunc)
_LIBRARIES = frozenset(("numpy", "scipy", "pullback", "pullback_runtime", "functools", "operator", "math"))


class World:
    """``state``: the variables by name. ``roots``: whatever else can be reached, such as variables of callers."""

    def __init__(self, state: Mapping[str, Any], roots: Sequence[Any] = ()):
        self.state = dict(state)
        self.containers: dict[int, tuple[Any, Any]] = {}
        self.holders: collections.Counter[int] = collections.Counter()  # by array: how many places hold it or look into it
        self.strange: Any = None  # something whose state cannot be put back: an iterator, for example
        self._seen: set[int] = set()
        self._visit([*state.values(), *roots])

    def _visit(self, values: Sequence[Any]) -> None:
        pending = list(values)
        closures: list[Any] = []  # share their variables with the functions around them, which count already
        while pending or closures:
            again = not pending
            x = closures.pop() if again else pending.pop()
            if isinstance(x, Array):
                self.holders[id(x.root)] = max(1, self.holders[id(x.root)] + (not again))
            elif isinstance(x, _ATOMS) or id(x) in self._seen:
                continue
            else:
                self._seen.add(id(x))
                (closures if again or isinstance(x, types.FunctionType) else pending).extend(self._parts(x))

    def _parts(self, x: Any) -> list[Any]:
        if isinstance(x, (list, dict, set)):
            held = hold(x)
            self.containers[id(x)] = (x, held)
            return list(held.values()) if isinstance(held, dict) else list(held)
        if isinstance(x, (tuple, frozenset)):
            return list(x)
        if isinstance(x, types.FunctionType):
            return _closure(x)
        if isinstance(x, types.MethodType):
            return [x.__self__]
        if isinstance(x, _CODE) or type(x).__module__.partition(".")[0] in _LIBRARIES:
            return []
        if hasattr(x, "__dict__") and not hasattr(x, "__next__"):
            self.containers[id(x)] = (x, dict(vars(x)))
            return list(vars(x).values())
        if type(x).__module__ != "builtins" or hasattr(x, "__next__"):
            self.strange = x
        return []

    def changes(self) -> dict[int, Any]:
        """The containers that hold something else than at first, by identity: what they hold now."""
        found: dict[int, Any] = {}
        for key, (x, before) in self.containers.items():
            now = hold(x)
            if not _same(before, now):
                found[key] = now
        return found

    def restore(self) -> None:
        for x, before in self.containers.values():
            if not _same(before, hold(x)):
                fill(x, before)


def hold(x: Any) -> Any:
    """What a container holds: a copy of it, of an object the attributes."""
    return x.copy() if isinstance(x, (list, dict, set)) else dict(vars(x))


def fill(x: Any, held: Any) -> None:
    """Make a container hold this."""
    if isinstance(x, list):
        x[:] = held
    elif isinstance(x, (dict, set)):
        x.clear()
        x.update(held)
    else:
        vars(x).clear()
        vars(x).update(held)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return len(a) == len(b) and all(k == m and v is w for (k, v), (m, w) in zip(a.items(), b.items(), strict=True))
    if isinstance(a, set):
        return bool(a == b)
    return len(a) == len(b) and all(v is w for v, w in zip(a, b, strict=True))


def _closure(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    return found
