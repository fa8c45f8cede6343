"""Stand-ins for modules, functions and objects in code that has no source and so cannot be rewritten."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.frontends.array import Array
from pullback.frontends.builtin_calls import BUILTINS
from pullback.frontends.sizes import Length

if TYPE_CHECKING:
    from pullback.frontends.hooks import Hooks

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    np.generic,
    np.dtype,
    Array,
    Length,
    list,
    tuple,
    dict,
    set,
    frozenset,
)


class Proxy:
    """Attributes, items and calls of the object go through the hooks."""

    __slots__ = ("_hooks", "_target")

    def __init__(self, hooks: Hooks, target: Any):
        object.__setattr__(self, "_hooks", hooks)
        object.__setattr__(self, "_target", target)

    def __getattr__(self, name: str) -> Any:
        return hooked(self._hooks, self._hooks.attribute(self._target, name))

    def __setattr__(self, name: str, value: Any) -> None:
        self._hooks.set_attribute(value, self._target, name)

    def __getitem__(self, key: Any) -> Any:
        return hooked(self._hooks, self._hooks.item(self._target, key))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plain = [a._target if isinstance(a, Proxy) else a for a in args]
        return self._hooks.call(
            self._target, *plain, **{k: v._target if isinstance(v, Proxy) else v for k, v in kwargs.items()}
        )


def hooked(hooks: Hooks, value: Any) -> Any:
    """What the copied code gets for a value: itself where nothing of it needs hooks."""
    if isinstance(value, _PLAIN) or (isinstance(value, type) and id(value) not in BUILTINS):
        return value
    if isinstance(value, type) and issubclass(value, BaseException):
        return value
    if isinstance(value, types.ModuleType) or callable(value) or hooks.session.captures.path_of(value) is not None:
        return Proxy(hooks, value)
    return value
