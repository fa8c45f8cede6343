"""Types of IR values: an element type and a shape; and the stack type of the tape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from pullback.ir.dims import Dim, Size, product, replace

Shape: TypeAlias = tuple[Size, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. ``f64["n", 3]`` is the type of an array of it, as annotations write it."""

    pullback_leaf: ClassVar[bool] = True  # in a tree of arguments it stands for a number

    name: str
    numpy: np.dtype[Any]
    kind: str  # "f", "i" or "b"

    @property
    def bytes(self) -> int:
        return int(self.numpy.itemsize)

    def __getitem__(self, axes: object) -> Type:
        sizes = axes if isinstance(axes, tuple) else (axes,)
        return Type(self, tuple(_axis(size) for size in sizes))

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def _axis(size: object) -> Size:
    if isinstance(size, str):
        return Dim.parse(size)
    if isinstance(size, Dim) or (isinstance(size, int) and not isinstance(size, bool) and size >= 0):
        return size
    raise TypeError(f"an axis is a size name, an expression of names or a non-negative integer, got {size!r}")


f64 = DType("f64", np.dtype(np.float64), "f")
f32 = DType("f32", np.dtype(np.float32), "f")
i64 = DType("i64", np.dtype(np.int64), "i")
bool_ = DType("bool", np.dtype(np.bool_), "b")
DTYPES: Mapping[str, DType] = {t.name: t for t in (f64, f32, i64, bool_)}
FROM_NUMPY: Mapping[np.dtype[Any], DType] = {t.numpy: t for t in DTYPES.values()}


@dataclass(frozen=True, slots=True)
class Type:
    """An array of ``dtype`` with ``shape``; rank 0 is a scalar."""

    pullback_leaf: ClassVar[bool] = True  # in a tree of arguments it stands for an array

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        return product(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f"

    def of(self, dtype: DType) -> Type:
        """The same shape with another element type."""
        return Type(dtype, self.shape)

    def with_shape(self, shape: Shape) -> Type:
        return Type(self.dtype, shape)

    def replace(self, values: Mapping[str, Size]) -> Type:
        return Type(self.dtype, tuple(replace(size, values) for size in self.shape))

    def __str__(self) -> str:
        return self.dtype.name + (f"[{', '.join(map(str, self.shape))}]" if self.shape else "")


@dataclass(frozen=True, slots=True)
class StackType:
    """``stack<T>``: a persistent view (buffer, height) of a tape whose elements are of type ``T``."""

    element: Type

    def replace(self, values: Mapping[str, Size]) -> StackType:
        return StackType(self.element.replace(values))

    def __str__(self) -> str:
        return f"stack<{self.element}>"


AnyType: TypeAlias = Type | StackType
