"""Reads numpy_vjp.jsonl: calls of NumPy and SciPy functions, a cotangent and the gradients, recorded with autograd (MIT).

A line has ``fn``, ``args``, ``kwargs``, ``argnums`` (the differentiated ones; of ``concatenate`` the items of its sequence),
``ans``, ``g`` (the cotangent) and ``vjp``. Arrays are ``{"a", "s", "d"}``, tuples ``{"t"}``, floats ``{"f"}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Record:
    """One call. ``slots``: the arguments (the items of the sequence if ``packed``); ``argnums``: those differentiated."""

    number: int
    name: str
    slots: list[Any]
    kwargs: dict[str, Any]
    argnums: tuple[int, ...]
    packed: bool
    cotangent: Any
    gradients: list[Any]

    def arguments(self, inputs: list[Any]) -> tuple[Any, ...]:
        """The arguments of the call with other values for the differentiated ones."""
        full = list(self.slots)
        for place, value in zip(self.argnums, inputs, strict=True):
            full[place] = value
        return (tuple(full),) if self.packed else tuple(full)

    @property
    def inputs(self) -> list[Any]:
        return [self.slots[k] for k in self.argnums]


def decode(value: Any) -> Any:
    if isinstance(value, dict):
        if "a" in value:
            return np.array(value["a"], dtype=value["d"]).reshape(value["s"])
        if "t" in value:
            return tuple(decode(part) for part in value["t"])
        if "f" in value:
            return float(value["f"])
        return slice(*[decode(part) for part in value["slice"]])
    return [decode(part) for part in value] if isinstance(value, list) else value


def plain_integers(value: Any) -> Any:
    """Shapes and axes were recorded as integer arrays in places; NumPy takes them as tuples."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim < 2:
        return tuple(int(n) for n in value) if value.ndim else int(value)
    return value


def records() -> Iterator[Record]:
    for number, line in enumerate(Path(__file__).with_name("numpy_vjp.jsonl").read_text().splitlines(), 1):
        raw = json.loads(line)
        args = [decode(a) for a in raw["args"]]
        packed = raw["fn"] == "numpy.concatenate"
        argnums = tuple(raw["argnums"])
        slots = list(args[0]) if packed else [a if k in argnums else plain_integers(a) for k, a in enumerate(args)]
        kwargs = {name: plain_integers(decode(a)) for name, a in raw["kwargs"].items()}
        gradients = raw["vjp"] if isinstance(raw["vjp"], list) else [raw["vjp"]]
        yield Record(number, raw["fn"], slots, kwargs, argnums, packed, decode(raw["g"]), [decode(g) for g in gradients])
