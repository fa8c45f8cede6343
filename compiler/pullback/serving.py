"""Which calls a trace serves: from the types of its parameters, without the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.dims import Dim, Size, evaluate
from pullback.ir.types import Type


class Fit:
    """How the symbols of a trace follow from the shapes of its inputs, and what those must be then."""

    def __init__(self, types: Sequence[Type]):
        self._ranks = [t.rank for t in types]
        self._binders: dict[str, tuple[int, int]] = {}  # where each symbol is bound: parameter, axis
        self._checks: list[tuple[int, int, Size]] = []  # the axes that are then checked
        for place, kind in enumerate(types):
            for axis, size in enumerate(kind.shape):
                symbol = size.bare_symbol() if isinstance(size, Dim) else None
                if symbol is not None and symbol not in self._binders:
                    self._binders[symbol] = (place, axis)
                else:
                    self._checks.append((place, axis, size))

    def sizes(self, arrays: Sequence[Any]) -> dict[str, int] | None:
        """The symbols' values for these inputs; None if the trace is not for them."""
        shapes = [np.shape(a) for a in arrays]
        if any(len(shape) != rank for shape, rank in zip(shapes, self._ranks, strict=True)):
            return None
        sizes = {symbol: shapes[place][axis] for symbol, (place, axis) in self._binders.items()}
        for place, axis, size in self._checks:
            if shapes[place][axis] != (evaluate(size, sizes) if isinstance(size, Dim) else size):
                return None
        return sizes


def shape_of(kind: Type, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """A value's shape as numbers; None if a length is decided by the data."""
    try:
        return tuple(evaluate(size, sizes) for size in kind.shape)
    except KeyError:
        return None
