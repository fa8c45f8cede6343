"""Gradients in the structure of what they are the gradients of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from pullback_runtime import binding
from pullback_runtime.binding import Arguments
from pullback_runtime.signature import Structure

Place: TypeAlias = int | str  # a leaf's position, or the name of an intermediate value


class Gradients:
    """Rebuilds gradients from a kernel's results: for each thing chosen, in its argument's structure."""

    def __init__(self, arguments: Arguments, chosen: Sequence[Place], single: bool):
        self.single = single
        self.parts: list[tuple[Structure | None, list[int]]] = []
        places: list[Place] = []
        kinds, spans = arguments.kinds(), arguments.spans()
        for item in chosen:
            if isinstance(item, str):
                places.append(item)
                self.parts.append((None, []))
            else:
                places.extend(i for i in spans[item] if kinds[i].is_float)
                self.parts.append((arguments.key[item][0], list(spans[item])))
        self.places = tuple(places)
        self.floating = {i for i, kind in enumerate(kinds) if kind.is_float}
        others = [i for _, span in self.parts for i in span if i not in self.floating]
        self.zeros = {i: zero_of(arguments.leaves[i]) for i in others}

    def __call__(self, found: Sequence[Any]) -> Any:
        supply = iter(found)
        made = []
        for structure, span in self.parts:
            if structure is None:
                made.append(next(supply))
            else:
                leaves = [next(supply) if i in self.floating else copied(self.zeros[i]) for i in span]
                made.append(structure.unflatten(leaves))
        return made[0] if self.single else tuple(made)

    def leaves(self, out: Any) -> list[Any]:
        """The arrays of ``out=`` in the order of the kernel's results."""
        found: list[Any] = []
        parts = (out,) if self.single else out
        if not isinstance(parts, (tuple, list)) or len(parts) != len(self.parts):
            raise TypeError(f"out: a tuple of {len(self.parts)} expected, an array (or None) for each gradient")
        for (structure, span), part in zip(self.parts, parts, strict=True):
            if structure is None:
                found.append(part)
            else:
                arrays = binding.match_out("gradient", structure, part)
                found.extend(array for array, i in zip(arrays, span, strict=True) if i in self.floating)
        return found


def zero_of(leaf: Any) -> Any:
    """The gradient of an integer within a container."""
    return np.zeros_like(leaf)[()] if isinstance(leaf, (np.ndarray, np.generic)) else 0


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
