"""What a frontend makes of a function: the IR, how to rebuild its output, what it captured, and when it is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core import UNKNOWN, Func, Loc
from pullback.ir.dims import Size, evaluate
from pullback.ir.types import Type

if TYPE_CHECKING:
    from pullback_runtime.signature import Structure
    from pullback_runtime.spots import Spot


class Spec:
    """A leaf of an argument to be traced. No dataclass, which would be a container of leaves.

    ``weak``: a Python number, whose type gives way (NEP 50). ``hint``: the lengths of the actual array, by which decisions
    that depend on lengths are made; None for a type that was declared ahead of data. ``declared``: the user named the
    lengths, which then never broadcast, not even a length of 1.
    """

    __slots__ = ("declared", "hint", "type", "weak")

    def __init__(self, type: Type, weak: bool = False, hint: tuple[int, ...] | None = None, declared: bool = False):
        self.type = type
        self.weak = weak
        self.hint = hint
        self.declared = declared

    def __repr__(self) -> str:
        return f"Spec({self.type}, weak={self.weak}, hint={self.hint})"


@dataclass(frozen=True, slots=True)
class Hidden:
    """An array that the function reads from outside. ``read()`` gives the array as it is now, of the traced dtype.

    A value of an enclosing trace is read as the traced array that it is; inlining takes it as it comes.
    An array of another dtype, rank or static length than ``type`` says needs another trace, as a failed guard does.
    """

    path: str  # how the user's code reaches it, for messages: "global X", "closure w", "global model.weights"
    type: Type
    read: Callable[[], np.ndarray[Any, Any]] = field(compare=False)
    spot: Spot | None = field(default=None, compare=False)  # where what ``read`` makes an array of is

    def __str__(self) -> str:
        return f"{self.path}: {self.type}"


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """The trace holds only where ``(left relation right)`` is ``outcome``; both sides are over the parameters' symbols."""

    left: Size
    relation: str  # "==" or "<" or "<="
    right: Size
    outcome: bool
    loc: Loc = field(default=UNKNOWN, compare=False)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        left, right = evaluate(self.left, sizes), evaluate(self.right, sizes)
        answer = left == right if self.relation == "==" else left < right if self.relation == "<" else left <= right
        return answer is self.outcome

    def __str__(self) -> str:
        text = f"{self.left} {self.relation} {self.right}"
        return text if self.outcome else f"not {text}"


@dataclass(frozen=True, slots=True)
class ValueGuard:
    """The trace holds only while a captured number, string, function or container is what it was."""

    path: str
    check: Callable[[], bool] = field(compare=False)
    loc: Loc = field(default=UNKNOWN, compare=False)
    spot: tuple[Spot, Any] | None = field(default=None, compare=False)  # the guard holds if this very object is there

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return self.check()

    def __str__(self) -> str:
        return f"{self.path} is unchanged"


Guard = SizeGuard | ValueGuard


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced function.

    ``func.params`` are the leaves of the arguments in order, then the hidden inputs; its results are the leaves of the output.
    ``weak``: which results are of a weak type (made from Python numbers alone), for calls inside another trace.
    """

    func: Func
    output: Structure
    hidden: tuple[Hidden, ...] = ()
    guards: tuple[Guard, ...] = ()
    weak: tuple[bool, ...] = ()

    def valid(self, sizes: Mapping[str, int]) -> bool:
        """Whether every guard holds for these lengths and the captured values of now."""
        return all(guard.holds(sizes) for guard in self.guards)
