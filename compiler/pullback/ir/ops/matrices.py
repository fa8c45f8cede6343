"""A vocabulary for rules about matrices: products, transposes, triangles, diagonals. The last two axes are rows and columns;
all before them are a batch."""

from __future__ import annotations

from typing import Any

from pullback.ir.core import Builder, Value
from pullback.ir.dims import Size
from pullback.ir.types import Type


def product(b: Builder, x: Value, y: Value, x_t: bool = False, y_t: bool = False) -> Value:
    """``x @ y``, either factor transposed: the contraction reads it that way, so it costs nothing."""
    rank = x.type.rank
    batch = tuple(range(rank - 2))
    found: Value = b.contract(
        x, y, batch=(batch, batch), axes=((rank - 2 if x_t else rank - 1,), (rank - 1 if y_t else rank - 2,))
    )
    return found


def transposed(b: Builder, x: Value) -> Value:
    rank = x.type.rank
    found: Value = b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return found


def places(b: Builder, shape: tuple[Size, ...]) -> tuple[Value, Value]:
    """The number of its row and of its column, for each element."""
    rank = len(shape)
    row = b.broadcast(b.iota(size=shape[-2]), axes=(rank - 2,), shape=shape)
    column = b.broadcast(b.iota(size=shape[-1]), axes=(rank - 1,), shape=shape)
    return row, column


def triangle(b: Builder, x: Value, lower: bool, strict: bool = False) -> Value:
    """``x`` with zeros above (below) its diagonal, or from the diagonal on."""
    row, column = places(b, x.type.shape)
    kept = (b.gt if strict else b.ge)(row, column) if lower else (b.lt if strict else b.le)(row, column)
    found: Value = b.select(kept, x, b.zeros(x.type))
    return found


def mirrored(b: Builder, x: Value) -> Value:
    """The symmetric matrix that has the lower triangle of ``x``."""
    found: Value = b.add(triangle(b, x, True), transposed(b, triangle(b, x, True, strict=True)))
    return found


def unmirrored(b: Builder, ct: Value) -> Value:
    """The cotangent of ``x`` for one of ``mirrored(x)``."""
    found: Value = b.add(triangle(b, ct, True), triangle(b, transposed(b, ct), True, strict=True))
    return found


def identity(b: Builder, kind: Type) -> Value:
    found: Value = b.select(b.eq(*places(b, kind.shape)), b.full(1, kind), b.zeros(kind))
    return found


def diagonal(b: Builder, x: Value) -> Value:
    """The diagonal of matrices that are as wide as high (or higher, from their top)."""
    rank = x.type.rank
    at = b.iota(size=x.type.shape[-1])
    front = b.transpose(x, perm=(rank - 2, rank - 1, *range(rank - 2))) if rank > 2 else x
    found: Value = b.gather(front, at, at)
    return b.transpose(found, perm=(*range(1, rank - 1), 0)) if rank > 2 else found


def columns(b: Builder, x: Value, shape: tuple[Size, ...]) -> Value:
    """A row vector in each row of matrices of this shape."""
    rank = len(shape)
    found: Value = b.broadcast(x, axes=(*range(rank - 2), rank - 1), shape=shape)
    return found


def rows(b: Builder, x: Value, shape: tuple[Size, ...]) -> Value:
    """A column vector in each column of matrices of this shape."""
    rank = len(shape)
    found: Value = b.broadcast(x, axes=tuple(range(rank - 1)), shape=shape)
    return found


def scalars(b: Builder, x: Value, shape: tuple[Size, ...]) -> Value:
    """A number for each matrix, in all its elements."""
    found: Value = b.broadcast(x, axes=tuple(range(len(shape) - 2)), shape=shape)
    return found


def part(b: Builder, x: Value, axis: int, start: Size, size: Size) -> Value:
    """Some rows (``axis`` -2), columns or elements (-1) of an array."""
    rank = x.type.rank
    starts = tuple(start if k == rank + axis else 0 for k in range(rank))
    sizes = tuple(size if k == rank + axis else n for k, n in enumerate(x.type.shape))
    found: Value = b.slice(x, starts=starts, sizes=sizes, steps=(1,) * rank)
    return found


def total(b: Builder, *terms: Value | None) -> Value:
    """The sum of those terms that there are."""
    found: Any = None
    for term in terms:
        if term is not None:
            found = term if found is None else b.add(found, term)
    assert found is not None
    return found
