"""Calls like one before: arrays of the same element types and shapes, and Python numbers, in the same containers.

Whatever binding, keys, guards over lengths and seeds have to say was said at the first such call. What is left is to look at
what the function captures, and to run the kernel: for small functions the rest would cost several times the work itself.
Only arguments that a kernel takes as they are make such a call; everything else goes the long way each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from pullback_runtime.binding import Arguments
from pullback_runtime.gradients import Gradients
from pullback_runtime.kernel import Kernel
from pullback_runtime.signature import LEAF, Structure, fields_of
from pullback_runtime.sizes import Polynomial
from pullback_runtime.spots import Spot

MOST = 256  # kinds of calls that a Function remembers; with ever new shapes, beginning anew is as good as any choice
_NUMBERS = frozenset((float, bool, np.float64, np.float32, np.int64, np.bool_))


SizeGuard: TypeAlias = tuple[str, Polynomial, Polynomial, bool]  # relation, its two sides, what must come out


class Captures(Protocol):
    """What a call needs to know of the specialization that serves it."""

    @property
    def captures(self) -> bool: ...
    def guards(self, symbols: Sequence[str]) -> list[SizeGuard] | None: ...
    def spots(self) -> tuple[list[tuple[Spot, Any]], list[Spot]] | None: ...
    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None: ...


class Repeat:
    """How to serve calls of one kind. ``seeds``: those of the first call if it gave none, else None. ``primal``: the number of
    the results that are the value. ``rebuild``: puts gradients into their arguments' structure."""

    __slots__ = ("calls", "entries", "hidden", "kernel", "leaves", "output", "primal", "rebuild", "seeds", "specialization")

    def __init__(
        self,
        kernel: Kernel,
        specialization: Captures,
        arguments: Arguments,
        hidden: Sequence[Any],
        output: Structure,
        primal: int,
        seeds: list[Any] | None = None,
        rebuild: Gradients | None = None,
    ):
        self.kernel = kernel
        self.specialization = specialization
        self.leaves = arguments.kinds()
        self.hidden = [np.shape(array) for array in hidden]
        self.output = output
        self.primal = primal
        self.seeds = seeds
        self.rebuild = rebuild
        self.calls = 0  # served
        self.entries: dict[Any, Any] = {}  # of direct calls, by how the arguments were passed; None where there is none

    def inputs(self, leaves: Sequence[Any]) -> list[Any] | None:
        """What the kernel takes before seeds; None if something captured has changed, so that another trace may be needed."""
        if not self.specialization.captures:
            return list(leaves)
        hidden = self.specialization.again(self.hidden)
        return None if hidden is None else [*leaves, *hidden]

    def value(self, leaves: Sequence[Any], out: Sequence[Any] | None = None) -> tuple[bool, Any]:
        """Whether this served the call, and the function's value."""
        inputs = self.inputs(leaves)
        if inputs is None:
            return False, None
        self.calls += 1
        return True, self._value(self.kernel(inputs, out))

    def reverse(self, leaves: Sequence[Any], seeds: Sequence[Any], out: Any = None) -> tuple[Any, Any] | None:
        """(value, gradients), or None if this does not serve the call."""
        inputs = self.inputs(leaves)
        if inputs is None:
            return None
        self.calls += 1
        inputs += seeds if self.seeds is None else self.seeds
        assert self.rebuild is not None
        found = self.kernel(inputs, self.outs(out))
        return self._value(found) if self.primal else None, self.rebuild(found[self.primal :])

    def outs(self, out: Any) -> list[Any] | None:
        """What of ``out=`` receives each of the kernel's results."""
        if out is None or self.rebuild is None:
            return None
        return [None] * self.primal + self.rebuild.leaves(out)

    def _value(self, found: list[Any]) -> Any:
        return found[0] if self.output is LEAF else self.output.unflatten(found[: self.primal])


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
    """Whether a kernel takes what was given for ``leaves``, and it came in the same order."""
    return len(given) == len(leaves) and all(a is b or _alike(a, b) for a, b in zip(given, leaves, strict=True))


def _alike(given: Any, leaf: Any) -> bool:
    """Whether a number differs from the leaf made from it in its form alone: an integer that became a float, an array without
    axes that became NumPy's scalar, or the other way round."""
    if type(given) is int:
        return type(leaf) is float
    if not isinstance(given, (np.ndarray, np.generic)) or not isinstance(leaf, (np.ndarray, np.generic)):
        return False
    return not given.ndim and not leaf.ndim and given.dtype == leaf.dtype
