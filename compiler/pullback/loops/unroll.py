"""Nests over a few elements become straight-line code: quicker to compile than a loop, and loads of what was just stored
need no memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Size, product
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Fold, Intrinsic, Machine, Op, Update
from pullback.ir.ops.reduce import kept_axes
from pullback.ir.types import DType, bool_
from pullback.loops.nest import Node, Store
from pullback.loops.plan import Root

if TYPE_CHECKING:
    from pullback.loops.lower import Lowering

FEW = 16  # elements; a loop costs LLVM about 10 ms, a scalar operation in straight-line code about 50 us
FORWARDED = 64  # elements of an array whose elements are followed through updates


def is_small(domain: tuple[Size, ...]) -> bool:
    count = product(domain)
    return isinstance(count, int) and 0 < count <= FEW


def unroll_nest(lowering: Lowering, domain: tuple[Size, ...], roots: Sequence[Root], own: frozenset[Value]) -> None:
    s, reader = lowering.scalars, lowering.reader()
    totals: dict[tuple[int, tuple[int, ...]], Node] = {}
    for place in itertools.product(*(range(int(n)) for n in domain if isinstance(n, int))):
        index = tuple(s.integer(i) for i in place)
        reader.own, reader.own_index = own, index
        values = [reader.element(root.value, index) for root in roots]  # before the stores: one may be in place
        for number, (root, value) in enumerate(zip(roots, values, strict=True)):
            if root.kind == "fold":
                assert root.instr is not None
                at = (number, tuple(place[a] for a in kept_axes(len(place), root.instr.attrs["axes"])))
                totals[at] = s.op(fold_op(root.instr), (totals[at], value)) if at in totals else value
                continue
            buffer, position = lowering.place(root, index, reader)
            lowering.body.append(Store(buffer, position, value))
            if root.kind != "copy":
                version = root.instr.out if root.kind == "part" and root.instr else root.value
                s.know(version, position.data, value)
    for (number, kept), total in totals.items():
        instr = roots[number].instr
        assert instr is not None
        if not instr.out.type.rank:
            lowering.known[instr.out] = total
            continue
        position = reader.position(instr.out.type.shape, [s.integer(i) for i in kept])
        lowering.body.append(Store(lowering.buffers[instr.out], position, total))
        s.know(instr.out, position.data, total)


def unroll_update(lowering: Lowering, instr: Instr, update: Update) -> None:
    """Each element in turn; where all places are known, so is the new version as far as the old one is."""
    s, reader, buffer = lowering.scalars, lowering.reader(), lowering.buffers[instr.out]
    target, operand = instr.args[0], instr.args[-1]
    combine = update_op(update, target.type.dtype)
    found: list[tuple[Node, Node]] = []
    for place in itertools.product(*(range(int(n)) for n in operand.type.shape if isinstance(n, int))):
        index = [s.integer(i) for i in place]
        value = reader.element(operand, index)
        spot = reader.demand(lambda index=index: update.target(reader, instr, index))  # type: ignore[misc]  # bound early
        found.append((reader.position(target.type.shape, spot), value))
    if any(position.kind != "const" for position, _ in found):
        lowering.body.extend(Store(buffer, position, value, combine) for position, value in found)
        return
    current: dict[int, Node] = {}
    for position, value in found:
        at = position.data
        if combine is not None:
            old = current.get(at) or s.load(target, buffer, position, target.type.dtype)
            value = s.op(combine, (old, value))
        current[at] = value
    lowering.body.extend(Store(buffer, s.integer(at), value) for at, value in current.items())
    size = target.type.size
    for at in range(size if isinstance(size, int) and size <= FORWARDED else 0):
        node = current.get(at) or s.known(target, at)
        if node is not None:
            s.know(instr.out, at, node)


def update_op(update: Update, dtype: DType) -> Op | None:
    """With what an update combines; None if it replaces."""
    if update.mode == "set":
        return None
    return OPS["logical_or"] if dtype is bool_ else OPS["add"]


def is_primitive(op: Op) -> bool:
    """Whether an op is one operation for the emitter, which may then choose the order of a reduction."""
    return isinstance(op.lower, (Machine, Intrinsic))


def fold_op(instr: Instr) -> Op:
    fold = instr.op.lower
    assert isinstance(fold, Fold)
    return OPS[fold.combine]


def fold_start(instr: Instr) -> Any:
    fold = instr.op.lower
    assert isinstance(fold, Fold)
    return fold.start(instr.out.type.dtype)
