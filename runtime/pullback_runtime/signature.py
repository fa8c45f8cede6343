"""Arguments and outputs as trees of leaves, and what of a leaf decides which specialization serves it.

Containers are tuples, lists, dicts (in insertion order), named tuples, dataclasses and None; everything else is a leaf, and so
is a dataclass with ``pullback_leaf`` set, such as the compiler's own types.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback_runtime.errors import DTypeError

STATIC_LENGTH = 8


def is_static(length: int) -> bool:
    """The one policy of sizes: whether an inferred axis of this length is compiled in; longer ones become symbols."""
    return length <= STATIC_LENGTH


# -- trees ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Structure:
    """How a value is put together from leaves. ``meta``: a dict's keys, the class of a named tuple or dataclass, a string."""

    kind: str  # "leaf", "none", "text", "tuple", "list", "dict", "namedtuple", "dataclass"
    meta: Any = None
    children: tuple[Structure, ...] = ()

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """The value with these leaves; as many as :meth:`paths` names."""
        supply = iter(leaves)
        value = self._take(supply)
        if next(supply, supply) is not supply:
            raise ValueError(f"{len(leaves)} leaves are too many for {self}")
        return value

    def _take(self, supply: Iterator[Any]) -> Any:
        if self.kind == "leaf":
            return next(supply)
        if self.kind == "none":
            return None
        if self.kind == "text":
            return self.meta
        parts = [child._take(supply) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.meta, parts, strict=True))
        if self.kind == "namedtuple":
            return self.meta._make(parts)
        if self.kind == "dataclass":
            fields = (f.name for f in dataclasses.fields(self.meta))
            return self.meta(**dict(zip(fields, parts, strict=True)))
        return tuple(parts) if self.kind == "tuple" else parts

    def paths(self, root: str = "") -> list[str]:
        """How the user writes each leaf, below ``root``: ``w[0].bias``, ``w['a']``."""
        if self.kind == "leaf":
            return [root]
        return [path for k, child in enumerate(self.children) for path in child.paths(root + self._step(k))]

    def _step(self, k: int) -> str:
        if self.kind == "dict":
            return f"[{self.meta[k]!r}]"
        if self.kind == "namedtuple":
            return f".{self.meta._fields[k]}"
        if self.kind == "dataclass":
            return f".{dataclasses.fields(self.meta)[k].name}"
        return f"[{k}]"

    @property
    def size(self) -> int:
        """The number of leaves."""
        return 1 if self.kind == "leaf" else sum(child.size for child in self.children)

    def __str__(self) -> str:
        if self.kind in ("leaf", "none", "text"):
            return {"leaf": "*", "none": "None", "text": repr(self.meta)}[self.kind]
        inner = [str(child) for child in self.children]
        if self.kind == "list":
            return f"[{', '.join(inner)}]"
        if self.kind == "tuple":
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if self.kind == "dict":
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(self.meta, inner, strict=True)) + "}"
        return f"{self.meta.__name__}({', '.join(inner)})"


LEAF = Structure("leaf")
NONE = Structure("none")


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """The leaves of a value, in order, and its structure."""
    leaves: list[Any] = []
    try:
        return leaves, _flatten(tree, leaves)
    except RecursionError:
        raise TypeError(f"a {type(tree).__name__} is nested too deeply, or contains itself; pass a flatter container") from None


def _flatten(tree: Any, leaves: list[Any]) -> Structure:
    kind = type(tree)
    if kind is np.ndarray or kind is float or kind is int:
        leaves.append(tree)
        return LEAF
    if tree is None:
        return NONE
    if isinstance(tree, str):
        return Structure("text", str(tree))
    if isinstance(tree, tuple):
        parts = tuple(_flatten(child, leaves) for child in tree)
        return Structure("namedtuple", kind, parts) if hasattr(tree, "_fields") else Structure("tuple", None, parts)
    if isinstance(tree, list):
        return Structure("list", None, tuple(_flatten(child, leaves) for child in tree))
    if isinstance(tree, dict):
        return Structure("dict", tuple(tree), tuple(_flatten(child, leaves) for child in tree.values()))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type) and not getattr(kind, "pullback_leaf", False):
        return Structure("dataclass", kind, tuple(_flatten(child, leaves) for child in fields_of(tree)))
    leaves.append(tree)
    return LEAF


def fields_of(tree: Any) -> list[Any]:
    """The values of a dataclass's fields, in order."""
    return [getattr(tree, field.name) for field in dataclasses.fields(tree)]


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``function`` applied to every leaf."""
    leaves, structure = flatten(tree)
    return structure.unflatten([function(leaf) for leaf in leaves])


# -- leaves ---------------------------------------------------------------------------------------------------------
FLOATS = ("f64", "f32")
_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(np.float64): "f64",
    np.dtype(np.float32): "f32",
    np.dtype(np.int64): "i64",
    np.dtype(np.bool_): "bool",
}
_CAST: dict[np.dtype[Any], str] = {np.dtype(np.int32): "i64", np.dtype(np.uint32): "i64"}
NUMPY: dict[str, np.dtype[Any]] = {name: dtype for dtype, name in _NAMES.items()}


def element_name(dtype: np.dtype[Any]) -> str | None:
    """The element type that arrays of this dtype get; None if they have no place."""
    dtype = dtype.newbyteorder("=")
    return _NAMES.get(dtype) or _CAST.get(dtype)


@dataclass(frozen=True, slots=True)
class Leaf:
    """What a specialization depends on. ``shape``: the length of a static axis, None for a symbol; ``weak``: a Python number.

    ``declared``: the type as the user declared it (``f64[n, 3]``), which then decides instead of the shape.
    """

    dtype: str
    shape: tuple[int | None, ...]
    weak: bool = False
    declared: Any = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def __str__(self) -> str:
        axes = ", ".join("?" if n is None else str(n) for n in self.shape)
        weak = " (Python number)" if self.weak else ""
        return str(self.declared) if self.declared is not None else self.dtype + (f"[{axes}]" if axes else "") + weak


_COMPLEX = "complex numbers are not supported; pass the real and the imaginary part as two arguments"


def canonical(value: Any, path: str) -> tuple[Any, str, bool]:
    """A leaf as a kernel takes it: (array or Python number, element type, weak). DTypeError for what has no place."""
    kind = type(value)
    if kind is float:
        return value, "f64", True
    if kind is bool:
        return value, "bool", True
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise DTypeError(f"{path}: the integer {value} does not fit 64 bits; pass it as a float")
        return value, "i64", True
    if kind is not np.ndarray and isinstance(value, _own_meanings()):
        raise DTypeError(
            f"{path} is a {kind.__name__}, whose mask or own meaning of * would be lost; pass a plain array, for example with "
            f"{'x.filled(0.0)' if isinstance(value, np.ma.MaskedArray) else 'np.asarray(x)'}"
        )
    if not isinstance(value, (np.ndarray, np.generic)):
        array = _converted(value, path)
    else:
        array = np.asarray(value)
    name = element_name(array.dtype)
    if name is None:
        remedy = _COMPLEX if array.dtype.kind == "c" else f"convert it, for example with {path or 'x'}.astype(float)"
        raise DTypeError(
            f"{path} has the element type {array.dtype}; float64, float32, int64, int32, uint32 or bool expected; {remedy}"
        )
    if array.dtype != NUMPY[name]:
        array = array.astype(NUMPY[name])
    return array if array.ndim else array[()], name, False


def _own_meanings() -> tuple[type, ...]:
    """Arrays for which operators mean something else. ``numpy.ma`` takes 10 ms to load, and whoever has one has loaded it."""
    masked = sys.modules.get("numpy.ma")
    return (np.matrix,) if masked is None else (np.matrix, masked.MaskedArray)


def _converted(value: Any, path: str) -> np.ndarray[Any, Any]:
    """An object that offers itself as an array; anything else is no argument."""
    if hasattr(value, "__array__"):
        return np.asarray(value)
    if isinstance(value, complex):
        raise DTypeError(f"{path} is a complex number; {_COMPLEX}")
    raise DTypeError(
        f"{path} is a {type(value).__name__}; arrays, numbers and containers of them (tuple, list, dict, named tuple, "
        "dataclass) can be arguments"
    )


def shape_key(shape: tuple[int, ...], symbolic: bool) -> tuple[int | None, ...]:
    """The part of a shape that is compiled in. ``symbolic`` makes every axis a symbol."""
    return tuple(None if symbolic or not is_static(length) else length for length in shape)
