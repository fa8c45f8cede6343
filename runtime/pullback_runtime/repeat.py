"""Calls like one before: arrays of the same element types and shapes, and Python numbers, in the same places.

Whatever binding, keys, guards over lengths and seeds have to say was said at the first such call. What is left is to look at
what the function captures, and to run the kernel: for small functions the rest would cost several times the work itself.
Only arguments that a kernel takes as they are make such a call; everything else goes the long way each time.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from pullback_runtime.kernel import Kernel
from pullback_runtime.signature import LEAF, Structure

MOST = 256  # kinds of calls that a Function remembers; with ever new shapes, beginning anew is as good as any choice
_NUMBERS = (float, bool)


class Captures(Protocol):
    """What a call needs to know of the specialization that serves it."""

    @property
    def captures(self) -> bool: ...
    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None: ...


class Repeat:
    """How to serve calls of one kind. ``seeds``: those of the first call if it gave none, else None. ``primal``: the number of
    the results that are the value. ``single``: one gradient comes back rather than a tuple."""

    __slots__ = ("_hidden", "_kernel", "_output", "_primal", "_seeds", "_single", "_specialization")

    def __init__(
        self,
        kernel: Kernel,
        specialization: Captures,
        hidden: Sequence[Any],
        output: Structure,
        primal: int,
        seeds: list[Any] | None = None,
        single: bool = False,
    ):
        self._kernel = kernel
        self._specialization = specialization if specialization.captures else None
        self._hidden = [np.shape(array) for array in hidden]
        self._output = output
        self._primal = primal
        self._seeds = seeds
        self._single = single

    def inputs(self, values: Sequence[Any]) -> list[Any] | None:
        """What the kernel takes before seeds; None if something captured has changed, so that another trace may be needed."""
        if self._specialization is None:
            return list(values)
        hidden = self._specialization.again(self._hidden)
        return None if hidden is None else [*values, *hidden]

    def value(self, values: Sequence[Any]) -> tuple[bool, Any]:
        """Whether this served the call, and the function's value."""
        inputs = self.inputs(values)
        if inputs is None:
            return False, None
        return True, self._value(self._kernel(inputs))

    def reverse(self, values: Sequence[Any], seed: Any) -> tuple[Any, Any] | None:
        """(value, gradients), or None if this does not serve the call."""
        inputs = self.inputs(values)
        if inputs is None:
            return None
        if self._seeds is None:
            inputs.append(seed)
        else:
            inputs += self._seeds
        found = self._kernel(inputs)
        gradients = found[self._primal :]
        return self._value(found) if self._primal else None, gradients[0] if self._single else tuple(gradients)

    def _value(self, found: list[Any]) -> Any:
        return found[0] if self._output is LEAF else self._output.unflatten(found[: self._primal])


def kind_of(values: Sequence[Any]) -> Hashable:
    """What calls that are alike have in common; None for arguments that are not arrays and numbers alone."""
    parts: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            parts.append(value.dtype)
            parts.append(value.shape)
        elif kind in _NUMBERS or (kind is int and -(2**63) <= value < 2**63):
            parts.append(kind)
        else:
            return None
    return tuple(parts)


def as_they_are(values: Sequence[Any], leaves: Sequence[Any]) -> bool:
    """Whether the arguments were leaves that needed no conversion."""
    return len(values) == len(leaves) and all(a is b for a, b in zip(values, leaves, strict=True))
