"""Making one element of a value: the protocol that ``Pull`` and ``Update`` records of the op table are written against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Size, product
from pullback.ir.ops.base import Elementwise, Fold, Pull
from pullback.ir.types import FROM_NUMPY, Type, bool_, i64
from pullback.loops.nest import Buffer, Fail, Node
from pullback.loops.ranges import bounds, nonnegative
from pullback.loops.scalars import Scalars, convert

T = TypeVar("T")


class Flat(tuple[Node, ...]):
    """One index for all axes of an array in row-major order: a nest over a whole array needs one loop only."""


class _Missing(Exception):
    """An element that has to be made first; caught by the driver, which makes it and asks again."""

    def __init__(self, value: Value, index: tuple[Node, ...]):
        super().__init__()
        self.value = value
        self.index = index


class Reader:
    """``read(value, index)`` is the element of ``value`` at ``index``, a sequence of i64 nodes, one per axis.

    What records may use besides: ``size(n)`` makes an index of a size; ``add``, ``sub``, ``mul``, ``floordiv``, ``mod`` do
    arithmetic of indices; ``constant(array, index)`` reads a constant; ``reindex`` maps between two shapes of one size;
    ``convert(element, from, to)`` changes a type; ``checked(index, instr)`` stops the call if an index is out of bounds.

    A record's function may be called several times until all that it reads is there, so that no chain of values, however
    long, needs Python's stack. ``own`` are the stored values that the nest itself computes, at the index ``own_index``.
    """

    def __init__(
        self,
        scalars: Scalars,
        defs: Mapping[Value, Instr],
        buffers: Mapping[Value, Buffer],
        known: Mapping[Value, Node],
        starts: Mapping[Value, Node],
        message: Callable[[Instr, str, str], int],
        constant: Callable[[np.ndarray[Any, Any]], Buffer],
    ):
        self._s = scalars
        self._defs = defs
        self._buffers = buffers
        self._known = known
        self._starts = starts
        self._message = message
        self._constant = constant
        self._made: dict[tuple[Value, tuple[Node, ...]], Node] = {}
        self.own: frozenset[Value] = frozenset()
        self.own_index: tuple[Node, ...] = ()
        self.size, self.add, self.sub, self.mul = scalars.size, scalars.add, scalars.sub, scalars.mul
        self.floordiv, self.mod = scalars.floordiv, scalars.mod

    # -- for the records -------------------------------------------------------------------------------------------
    def __call__(self, value: Value, index: Sequence[Node]) -> Node:
        if not value.type.rank:
            return self._known[value]
        key = (value, index if isinstance(index, Flat) and value.type.rank != 1 else tuple(index))
        found = self._made.get(key)
        if found is None:
            raise _Missing(*key)
        return found

    def constant(self, array: np.ndarray[Any, Any], index: Sequence[Node]) -> Node:
        dtype = FROM_NUMPY[array.dtype]
        if array.size and array.tobytes() == array.flat[0].tobytes() * array.size:
            return self._s.const(array.flat[0].item(), dtype)
        position = self.position(array.shape, index)
        if position.kind == "const":
            return self._s.const(array.flat[position.data].item(), dtype)
        buffer = self._constant(array)
        return self._s.load(buffer, buffer, position, dtype)

    def reindex(self, index: Sequence[Node], old: tuple[Size, ...], new: tuple[Size, ...]) -> Sequence[Node]:
        """The index in an array of shape ``new`` of the element at ``index`` in one of shape ``old``. Runs of axes whose
        products agree are mapped on their own, so axes that both have keep their index."""
        if isinstance(index, Flat):
            return index
        result: list[Node] = []
        for axes, shape in _runs(old, new):
            if [old[a] for a in axes] == list(shape):
                result.extend(index[a] for a in axes)
                continue
            flat = self.position(tuple(old[a] for a in axes), [index[a] for a in axes])
            result.extend(self._split(flat, shape))
        return result

    def _split(self, flat: Node, shape: tuple[Size, ...]) -> list[Node]:
        parts: list[Node] = []
        rest = flat
        for k, size in enumerate(shape):
            below = self.size(product(shape[k + 1 :]))
            if size == 1:
                parts.append(self.size(0))
                continue
            last = all(n == 1 for n in shape[k + 1 :])
            parts.append(rest if last else self.floordiv(rest, below))
            rest = rest if last else self.mod(rest, below)
        return parts

    def convert(self, element: Node, old: Type, new: Type) -> Node:
        return convert(self._s, element, new.dtype)

    def checked(self, index: Node, instr: Instr) -> Node:
        """The index, wrapped if negative, after a check; both only where they could matter."""
        s, size = self._s, self.size(instr.attrs["size"])
        low, high = bounds(index)
        wrapped = index
        if not nonnegative(low):
            negative = s.raw("icmp slt", bool_, index, s.integer(0))
            wrapped = s.raw("select", i64, negative, s.raw("add", i64, index, size), index)
        elif high is not None and nonnegative(instr.attrs["size"] - 1 - high):
            return index
        ok = s.raw("icmp ult", bool_, wrapped, size)
        if ok in s.tested:
            return wrapped
        s.tested.add(ok)
        axis = instr.attrs["axis"]
        number = self._message(instr, "IndexError", f"index {{0}} is out of bounds for axis {axis} with size {{1}}")
        scope = ok.scope.body if ok.scope else s.body
        scope.append(Fail(ok, number, (index, size)))
        return wrapped

    # -- for the lowering ------------------------------------------------------------------------------------------
    def position(self, shape: Sequence[Size], index: Sequence[Node]) -> Node:
        """The flat position of an index."""
        if isinstance(index, Flat):
            return index[0]
        total = self.size(0)
        for size, i in zip(shape, index, strict=True):
            total = self.add(self.mul(total, self.size(size)), i)
        return total

    def element(self, value: Value, index: Sequence[Node]) -> Node:
        return self.demand(lambda: self(value, index))

    def demand(self, thunk: Callable[[], T]) -> T:
        """``thunk()``, with all that it reads made first."""
        while True:
            try:
                return thunk()
            except _Missing as missing:
                self._make(missing.value, missing.index)

    def _make(self, value: Value, index: tuple[Node, ...]) -> None:
        pending = [(value, index)]
        while pending:
            key = pending[-1]
            if key in self._made:
                pending.pop()
                continue
            try:
                self._made[key] = self._one(*key)
            except _Missing as missing:
                pending.append((missing.value, missing.index))

    def _one(self, value: Value, index: tuple[Node, ...]) -> Node:
        buffer = self._buffers.get(value)
        if buffer is not None and not (value in self.own and index == self.own_index):
            position = self.position(value.type.shape, index)
            if value in self._starts:
                position = self.add(self._starts[value], position)
            return self._s.load(value, buffer, position, value.type.dtype)
        instr = self._defs[value]
        lower = instr.op.lower
        if isinstance(instr.op, Elementwise):
            return self._s.op(instr.op, tuple([self(a, index) for a in instr.args]), instr.attrs)
        if isinstance(lower, Fold):
            return self(instr.args[0], index)  # over no axes
        assert isinstance(lower, Pull), instr.op.name
        if isinstance(index, Flat) and instr.op.name == "broadcast" and instr.attrs["axes"]:
            return self(instr.args[0], index)  # `flattens` has seen that it changes nothing
        element: Node = lower.element(self, instr, index)
        return element


def _runs(old: tuple[Size, ...], new: tuple[Size, ...]) -> list[tuple[list[int], tuple[Size, ...]]]:
    """Pairs (axes of ``old``, sizes of ``new``) with equal products, as short as can be proved."""
    runs: list[tuple[list[int], tuple[Size, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        axes: list[int] = []
        sizes: list[Size] = []
        left: Size = 1
        right: Size = 1
        if i < len(old) and j < len(new) and old[i] == new[j]:
            runs.append(([i], (new[j],)))
            i, j = i + 1, j + 1
            continue
        while True:
            if axes and sizes and left == right:
                break
            if i >= len(old) and j >= len(new):
                break
            if j >= len(new) or (i < len(old) and len(axes) <= len(sizes) and not _longer(left, right)):
                left = left * old[i]
                axes.append(i)
                i += 1
            else:
                right = right * new[j]
                sizes.append(new[j])
                j += 1
        runs.append((axes, tuple(sizes)))
    return runs


def _longer(left: Size, right: Size) -> bool:
    return isinstance(left, int) and isinstance(right, int) and left > right


def flattens(value: Value, defs: Mapping[Value, Instr], stored: Callable[[Value], bool]) -> bool:
    """Whether elements of ``value`` can be made from one row-major index alone."""
    pending, seen = [value], {value}
    while pending:
        v = pending.pop()
        if v.type.rank <= 1 or stored(v):
            continue
        instr = defs[v]
        if instr.op.name == "broadcast" and instr.attrs["axes"] and instr.args[0].type.shape != instr.attrs["shape"]:
            return False
        if instr.op.name in ("transpose", "slice", "gather"):
            return False
        for arg in instr.args:
            if arg not in seen:
                seen.add(arg)
                pending.append(arg)
    return True


__all__ = ["Flat", "Reader", "flattens"]
