"""Calls like one before: arrays of the same element types and shapes, and Python numbers, in the same containers.

Whatever binding, keys, guards over lengths and seeds have to say was said at the first such call. What is left is to look at
what the function captures, and to run the kernel: for small functions the rest would cost several times the work itself.
Only arguments that a kernel takes as they are make such a call; everything else goes the long way each time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol

import numpy as np

from pullback_runtime.kernel import Kernel
from pullback_runtime.signature import LEAF, Structure, fields_of

MOST = 256  # kinds of calls that a Function remembers; with ever new shapes, beginning anew is as good as any choice
_NUMBERS = (float, bool)


class Captures(Protocol):
    """What a call needs to know of the specialization that serves it."""

    @property
    def captures(self) -> bool: ...
    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None: ...


class Repeat:
    """How to serve calls of one kind. ``seeds``: those of the first call if it gave none, else None. ``primal``: the number of
    the results that are the value. ``rebuild``: puts gradients into their arguments' structure."""

    __slots__ = ("_hidden", "_kernel", "_output", "_primal", "_rebuild", "_seeds", "_specialization")

    def __init__(
        self,
        kernel: Kernel,
        specialization: Captures,
        hidden: Sequence[Any],
        output: Structure,
        primal: int,
        seeds: list[Any] | None = None,
        rebuild: Callable[[Sequence[Any]], Any] | None = None,
    ):
        self._kernel = kernel
        self._specialization = specialization if specialization.captures else None
        self._hidden = [np.shape(array) for array in hidden]
        self._output = output
        self._primal = primal
        self._seeds = seeds
        self._rebuild = rebuild

    def inputs(self, leaves: Sequence[Any]) -> list[Any] | None:
        """What the kernel takes before seeds; None if something captured has changed, so that another trace may be needed."""
        if self._specialization is None:
            return list(leaves)
        hidden = self._specialization.again(self._hidden)
        return None if hidden is None else [*leaves, *hidden]

    def value(self, leaves: Sequence[Any]) -> tuple[bool, Any]:
        """Whether this served the call, and the function's value."""
        inputs = self.inputs(leaves)
        if inputs is None:
            return False, None
        return True, self._value(self._kernel(inputs))

    def reverse(self, leaves: Sequence[Any], seeds: Sequence[Any]) -> tuple[Any, Any] | None:
        """(value, gradients), or None if this does not serve the call."""
        inputs = self.inputs(leaves)
        if inputs is None:
            return None
        inputs += seeds if self._seeds is None else self._seeds
        found = self._kernel(inputs)
        assert self._rebuild is not None
        return self._value(found) if self._primal else None, self._rebuild(found[self._primal :])

    def _value(self, found: list[Any]) -> Any:
        return found[0] if self._output is LEAF else self._output.unflatten(found[: self._primal])


def kind_of(values: Sequence[Any], leaves: list[Any]) -> Hashable:
    """What calls that are alike have in common; None if some argument can make no short call. Collects the leaves."""
    parts: list[Any] = []
    try:
        return tuple(parts) if _walk_all(values, parts, leaves) else None
    except RecursionError:  # the long way has the message
        return None


def _walk_all(values: Iterable[Any], parts: list[Any], leaves: list[Any]) -> bool:
    for value in values:  # noqa: SIM110  # a loop takes half the time of all() over a generator
        if not _walk(value, parts, leaves):
            return False
    return True


def _walk(value: Any, parts: list[Any], leaves: list[Any]) -> bool:
    kind = type(value)
    if kind is np.ndarray:
        parts.append(value.dtype)
        parts.append(value.shape)
    elif kind in _NUMBERS or (kind is int and -(2**63) <= value < 2**63):
        parts.append(kind)
    elif kind is dict:
        parts.append(kind)
        parts.append(tuple(value))
        return _walk_all(value.values(), parts, leaves)
    elif kind is tuple or kind is list:
        parts.append(kind)
        parts.append(len(value))
        return _walk_all(value, parts, leaves)
    elif value is None or kind is str:
        parts.append(value)
        return True
    elif (isinstance(value, tuple) and hasattr(kind, "_fields")) or _is_container(value):
        parts.append(kind)
        children = value if isinstance(value, tuple) else fields_of(value)
        return _walk_all(children, parts, leaves)
    else:
        return False
    leaves.append(value)
    return True


def _is_container(value: Any) -> bool:
    """Whether a value is a dataclass that holds leaves rather than being one."""
    return is_dataclass(value) and not isinstance(value, type) and not getattr(value, "pullback_leaf", False)


def as_they_are(given: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether what was given needed no conversion, and came in the same order."""
    return len(given) == len(leaves) and all(a is b for a, b in zip(given, leaves, strict=True))
