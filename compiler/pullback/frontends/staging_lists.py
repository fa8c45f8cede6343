"""Lists whose number of items is known only when the function runs: ``[f(v) for v in x]`` over an axis that is a symbol.

Such a list is one array, of the items stacked. What makes an array of a list, or one number, takes it: ``np.array``,
``np.stack``, ``np.concatenate``, ``sum``, ``max``; it has a length, items and slices, and can be looped over. Where Python
needs a list of its own (to return it, to join two), the trace is bound to the length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.operators import call


class Stacked:
    """A list as the array of its items."""

    def __init__(self, array: Array):
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.array)

    def __getitem__(self, index: Any) -> Any:
        found = self.array[index]
        return Stacked(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Any) -> list[Any]:
        return [*other, *self]

    def __mul__(self, count: Any) -> list[Any]:
        return [*self] * count

    __rmul__ = __mul__

    def __getattr__(self, name: str) -> Any:
        if not hasattr(list, name):
            raise AttributeError(f"'list' object has no attribute {name!r}")
        raise self.array.context.error(
            UnsupportedError,
            f"{name} of a list of as many items as an axis is long",
            "append in a loop (for ...: y.append(...)), or make it an array: np.array([...])",
        )


class Items:
    """All items of the list that holds it, up to those behind it; ``count`` of them are there by now."""

    def __init__(self, array: Array, count: Any, weak: bool):
        self.array = array
        self.count = count
        self.weak = weak


def as_stacked(x: Any) -> Stacked | None:
    """A list whose number of items depends on the arguments; None for anything else."""
    if isinstance(x, Stacked):
        return x
    if type(x) is not list or not x or not isinstance(x[0], Items):
        return None
    array = x[0].array
    if len(x) > 1:
        array = call("numpy.concatenate", [array, call("numpy.stack", x[1:])])
    return Stacked(array)


def item_of(x: list[Any], k: Any) -> Any:
    """An item of a list that a loop appends to."""
    items, rest = x[0], x[1:]
    listed = as_stacked(x)
    if isinstance(k, slice) and listed is not None:
        return listed[k]
    if isinstance(k, int) and -len(rest) <= k < 0:
        return rest[k]
    place = items.count + (k + len(rest)) if isinstance(k, int) and k < 0 else k
    if place is k:
        trace = items.array.context
        trace.here().check(call("numpy.less", k, items.count).value, message="list index out of range")
    found = items.array[place]
    found.weak = items.weak and not found.ndim
    return found


def written_out(tree: Any) -> Any:
    """The tree with Python's own lists, which bind the trace to their lengths."""
    if isinstance(tree, list) and tree and isinstance(tree[0], Items):
        return [*tree[0].array, *map(written_out, tree[1:])]
    if isinstance(tree, (list, tuple)):
        parts = [written_out(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    if isinstance(tree, dict):
        return {key: written_out(part) for key, part in tree.items()}
    return list(tree) if isinstance(tree, Stacked) else tree


def through(name: str, args: Any, kwargs: Any) -> Any:
    """A function of NumPy's with arrays for such lists; what takes a list of arrays is done to the one array."""
    listed = as_stacked(args[0]) if args else None
    if name in _JOINING and listed is not None:
        axis = args[1] if len(args) > 1 else kwargs.get("axis", 0)
        joined = _joined(name, listed.array, axis)
        if joined is None:
            raise listed.array.context.error(
                UnsupportedError,
                f"{name}(axis={axis}) of a list of as many items as an axis is long",
                "make it an array first: np.array([...]), and reshape that",
            )
        return joined
    return call(name, *map(_plain, args), **{key: _plain(value) for key, value in kwargs.items()})


def _joined(name: str, array: Array, axis: int) -> Any:
    rank = array.ndim - 1
    if name == "numpy.stack":
        return call("pullback.copy", call("numpy.moveaxis", array, 0, axis))
    if name == "numpy.vstack" and rank == 1:
        return call("pullback.copy", array)
    if name == "numpy.column_stack" and rank == 1:
        return call("pullback.copy", call("numpy.transpose", array))
    flat = rank == 1 if name == "numpy.hstack" else rank >= 1 and axis == 0 and name != "numpy.column_stack"
    return call("numpy.reshape", array, (-1, *array.shape[2:])) if flat else None


_JOINING = ("numpy.stack", "numpy.vstack", "numpy.hstack", "numpy.column_stack", "numpy.concatenate")


def _plain(x: Any) -> Any:
    listed = as_stacked(x)
    if listed is not None:
        return listed.array
    if type(x) in (list, tuple):
        return type(x)(map(_plain, x)) if has_stacked(x, {}) else x
    return x


def has_stacked(args: Any, kwargs: Any) -> bool:
    """Whether such a list is among the arguments, or in a list that is."""
    return any(
        isinstance(x, (Stacked, Items)) or (type(x) in (list, tuple) and has_stacked(x, {})) for x in (*args, *kwargs.values())
    )
