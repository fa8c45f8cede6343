"""Bounds of index arithmetic, as sizes: what spares a check in every trip of a loop.

A trip's number lies within 0 and one less than the number of trips, whenever there is a trip at all; sums, differences and
multiples of such numbers follow. Correlations are not seen (``i - i`` is anything from ``-n`` to ``n``).
"""

from __future__ import annotations

from pullback.ir.dims import Dim, Size
from pullback.loops.nest import For, Loop, Node

DEEP = 12  # an expression nested deeper than this is not looked into
HUGE = 1 << 40  # arithmetic with a larger number might wrap around

Bounds = tuple["Size | None", "Size | None"]
UNKNOWN: Bounds = (None, None)


def bounds(node: Node, depth: int = 0, fixed: Loop | None = None) -> Bounds:
    """The least and the largest value of an integer, or None where that is not known; in the first trip of ``fixed``."""
    if depth > DEEP:
        return UNKNOWN
    match node.kind:
        case "const":
            return (node.data, node.data) if abs(node.data) < HUGE else UNKNOWN
        case "size":
            return node.data, node.data
        case "index":
            return (0, 0) if node.data is fixed else (0, _less(_trips(node.data, depth)))
        case "op" | "raw":
            name = node.data if node.kind == "raw" else node.data.name
            if name in ("add", "sub", "mul"):
                return _ARITHMETIC[name](*(bounds(a, depth + 1, fixed) for a in node.args))
    return UNKNOWN


def nonnegative(size: Size | None) -> bool:
    """Whether a size is certainly not negative: symbols are not."""
    if isinstance(size, Dim):
        return all(c >= 0 and all(isinstance(atom, str) for atom in monomial) for monomial, c in size.terms)
    return size is not None and size >= 0


def _trips(loop: Loop | For, depth: int) -> Size | None:
    if isinstance(loop, For):
        return bounds(loop.bound, depth + 1)[1]
    return bounds(loop.extent, depth + 1)[1] if isinstance(loop.extent, Node) else loop.extent


def _less(size: Size | None) -> Size | None:
    return None if size is None else size - 1


def _sum(a: Bounds, b: Bounds) -> Bounds:
    low, high = (None if x is None or y is None else x + y for x, y in zip(a, b, strict=True))
    return low, high


def _difference(a: Bounds, b: Bounds) -> Bounds:
    low, high = (None if x is None or y is None else x - y for x, y in zip(a, b[::-1], strict=True))
    return low, high


def _product(a: Bounds, b: Bounds) -> Bounds:
    """Of two numbers that are not negative."""
    if not (nonnegative(a[0]) and nonnegative(b[0])):
        return UNKNOWN
    low, high = (None if x is None or y is None else x * y for x, y in zip(a, b, strict=True))
    return low, high


_ARITHMETIC = {"add": _sum, "sub": _difference, "mul": _product}
