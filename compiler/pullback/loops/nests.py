"""One nest with all that it stores and reduces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Size, product
from pullback.ir.ops.base import Op
from pullback.ir.ops.reduce import kept_axes
from pullback.ir.types import DType
from pullback.loops.nest import Accumulator, Loop, Node, Store
from pullback.loops.plan import Root
from pullback.loops.reader import Flat
from pullback.loops.unroll import fold_op, fold_start, is_primitive

if TYPE_CHECKING:
    from pullback.loops.lower import Lowering


class NestBuilder:
    """One nest with all its stores and reductions."""

    def __init__(
        self,
        lowering: Lowering,
        domain: tuple[Size, ...],
        roots: Sequence[Root],
        own: frozenset[Value],
        order: tuple[int, ...],
        flat: bool = False,
    ):
        self.lowering = lowering
        self.scalars = lowering.scalars
        self.roots = roots
        self.reader = lowering.reader()
        index: Sequence[Node]
        if flat:
            self.axes: list[int] = []
            self.loops, index = lowering.loops((product(domain),))
            index = Flat(index)
        else:
            self.axes = [a for a in order if domain[a] != 1]
            self.loops, found = lowering.loops([domain[a] for a in order])
            index = tuple(found[order.index(a)] for a in range(len(domain)))
        self.flat = flat
        self.index = index
        self.reader.own, self.reader.own_index = own, tuple(index)
        if flat:
            self.reader.own_index = Flat(index)

    def values(self) -> list[Node]:
        return [self.reader.element(root.value, self.index) for root in self.roots]

    def build(self) -> None:
        folds: list[tuple[Root, Node]] = []
        for root, value in zip(self.roots, self.values(), strict=True):
            if root.kind == "fold":
                folds.append((root, value))
            else:
                self._store(root, value)
        self._close(folds)
        self.scalars.leave_nest()

    def _store(self, root: Root, value: Node) -> None:
        lowering = self.lowering
        buffer, position = lowering.place(root, self.index, self.reader)
        if self.loops and root.kind in ("copy", "init") and self._copies(root):
            self.loops[0].note = "copy"
        lowering.inner(self.loops).append(Store(buffer, position, value))

    def _copies(self, root: Root) -> bool:
        """Whether a store only moves what another buffer holds."""
        return root.value in self.lowering.buffers and root.value not in self.reader.own

    def _close(self, folds: list[tuple[Root, Node]]) -> None:
        """Close the loops from the inside; a reduction stays in a register as long as the loops are reduced ones."""
        lowering = self.lowering
        current = dict(enumerate(value for _, value in folds))
        for k in range(len(self.loops) - 1, -1, -1):
            loop = self.loops[k]
            for number in list(current):
                root, _ = folds[number]
                assert root.instr is not None
                if self.flat or self.axes[k] in root.instr.attrs["axes"]:
                    current[number] = self._accumulate(loop, root.instr, current[number])
                else:
                    outer = [a for a in self.axes[:k] if a in root.instr.attrs["axes"]]
                    self._finish(root.instr, current.pop(number), loop, bool(outer))
            (loop.parent.body if loop.parent else lowering.body).append(loop)
        for number, node in current.items():
            instr = folds[number][0].instr
            assert instr is not None
            self._finish(instr, node, None, False)

    def _accumulate(self, loop: Loop, instr: Instr, value: Node) -> Node:
        combine, start = fold_op(instr), self.scalars.const(fold_start(instr), instr.out.type.dtype)
        if is_primitive(combine):
            carried = carry(loop, start, combine)
            carried.value = value
        else:  # written out
            carried = carry(loop, start)
            carried.value = self.scalars.op(combine, (carried.current, value))
        return carried.total

    def _finish(self, instr: Instr, node: Node, scope: Loop | None, partial: bool) -> None:
        """Keep a reduction's value; ``partial``: combine it with what outer loops have accumulated in the buffer."""
        if not instr.out.type.rank:
            self.lowering.known[instr.out] = node
            return
        body = scope.body if scope else self.lowering.body
        buffer, combine = self.lowering.buffers[instr.out], fold_op(instr)
        kept = kept_axes(instr.args[0].type.rank, instr.attrs["axes"])
        position = self.reader.position(instr.out.type.shape, [self.index[a] for a in kept])
        if partial and not is_primitive(combine):
            old = Node("load", instr.out.type.dtype, (position,), buffer, scope)
            body.append(old)
            node, partial = self.scalars.op(combine, (old, node)), False
        body.append(Store(buffer, position, node, combine if partial else None))


def carry(loop: Loop, start: Node, combine: Op | None = None) -> Accumulator:
    dtype = start.dtype
    carried = Accumulator(combine, start, Node("current", dtype, (), None, loop), Node("total", dtype, (), None, loop.parent))
    carried.current.data = carried.total.data = carried
    loop.accumulators.append(carried)
    return carried


def value_type(instr: Instr) -> DType:
    found: DType = instr.out.type.dtype
    return found


__all__ = ["NestBuilder", "carry", "value_type"]
