"""The adjoint of straight-line code: one instruction at a time, going backwards.

Each instruction multiplies its result's cotangent by its partial derivatives and adds the products to the cotangents of its
operands. The rules themselves are in the op table.

Note [Untaken branches]
A branch not taken must not poison a gradient: the partial of ``sqrt`` in ``where(x > 0, sqrt(x), 0)`` is infinite or NaN
exactly where it does not matter. ``select`` therefore gives its operands a cotangent with a *mask*; products are taken under
it, views, reductions and indexing carry it, sums of contributions unite it, contractions, recurrences and the borders of blocks
end it (the value is already zero outside the mask). See also Note [Zero times infinity].
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops.base import Elementwise, General, Linear, Weighted
from pullback.ir.ops.reduce import spread_back
from pullback.ir.types import Type
from pullback.passes.chain import Derivative, Masks, Values, add, is_singular, masked, multiply, partials, weights
from pullback.passes.rewrite import Definitions

SMALL = 64  # elements of an array that is taken apart


class Line:
    """Cotangents so far, and the instructions that make them. ``active``: values that carry a derivative."""

    def __init__(self, builder: Builder, active: set[Value], defs: Definitions):
        self.builder = builder
        self.active = active
        self.defs = defs
        self.cotangents: dict[Value, Derivative] = {}
        self.negative = False  # whether some cotangent began as negative zeros

    def current(self, value: Value) -> Derivative | None:
        """The cotangent so far."""
        return self.cotangents.get(value)

    def contribute(self, value: Value, contribution: Derivative | None) -> None:
        if contribution is not None and value in self.active:
            self.cotangents[value] = add(self.builder, self.current(value), contribution)

    def visit(self, instr: Instr) -> None:
        """Hand the cotangent of a result on to the operands."""
        ct = self.cotangents.get(instr.outs[0]) if instr.outs else None
        if ct is None:
            return
        op = instr.op
        if op.name == "select":
            self.select(instr, ct)
        elif isinstance(op, Elementwise):
            self.elementwise(instr, ct)
        elif isinstance(op, Linear):
            self.linear(instr, op, ct)
        elif isinstance(op, Weighted):
            self.weighted(instr, op, ct)
        elif isinstance(op, General):
            for arg, value in zip(instr.args, op.vjp(self.builder, instr, ct.value), strict=True):
                self.contribute(arg, None if value is None else Derivative(value, None, ct.wild))

    def elementwise(self, instr: Instr, ct: Derivative) -> None:
        singular = is_singular(instr, self.defs)
        for arg, partial in zip(instr.args, partials(self.builder, instr), strict=True):
            if arg in self.active:
                self.contribute(arg, multiply(self.builder, ct, partial, instr, singular))

    def select(self, instr: Instr, ct: Derivative) -> None:
        b, (condition, yes, no) = self.builder, instr.args
        for arg, taken in ((yes, condition), (no, None)):
            if arg not in self.active:
                continue
            if taken is None:
                taken = b.logical_not(condition)
            mask = taken if ct.mask is None else b.logical_and(taken, ct.mask)
            self.contribute(arg, Derivative(masked(b, taken, ct.value), mask, ct.wild))

    def linear(self, instr: Instr, op: Linear, ct: Derivative) -> None:
        if op.accumulates:
            self.accumulate(instr, op, ct)
            return
        b = self.builder
        values = op.transpose(Values(b), instr, ct.value)
        masks: Sequence[Value | None] = (None,) * len(values)
        if ct.mask is not None and op.carries_mask:
            masks = op.transpose(Masks(b), instr, ct.mask)
        for arg, value, mask in zip(instr.args, values, masks, strict=True):
            self.contribute(arg, None if value is None else Derivative(value, mask, ct.wild))

    def accumulate(self, instr: Instr, op: Linear, ct: Derivative) -> None:
        """Reads at some places: the cotangent of the array read is updated there."""
        b, source = self.builder, instr.args[0]
        if source not in self.active:
            return
        before = self.current(source)
        total = self.nothing(source.type) if before is None else before.value
        value = op.transpose(Values(b), instr, ct.value, total)[0]
        mask = None
        if ct.mask is not None and (before is None or before.mask is not None):
            masks = Masks(b)
            mask = op.transpose(masks, instr, ct.mask, masks.zeros(source.type) if before is None else before.mask)[0]
        assert value is not None
        self.cotangents[source] = Derivative(value, mask, ct.wild or (before is not None and before.wild))

    def nothing(self, kind: Type) -> Value:
        """The cotangent of what nothing was read from so far, to be added to at some places.

        ``-0.0 + x`` is ``x`` even for a negative zero, so that the additions to a small array, which is taken apart into
        scalars, vanish. What nobody adds to stays -0.0; ``cleared`` makes that 0.0 in the end.
        """
        if _is_small(kind):
            self.negative = True
            return self.builder.full(-0.0, kind)
        return self.builder.zeros(kind)

    def cleared(self, value: Value) -> Value:
        found: Value = value
        if self.negative and _is_small(value.type):
            found = self.builder.add(value, self.builder.zeros(value.type))
        return found

    def weighted(self, instr: Instr, op: Weighted, ct: Derivative) -> None:
        b, x, axes = self.builder, instr.args[0], instr.attrs["axes"]
        if x not in self.active:
            return
        spread = Derivative(
            spread_back(b, ct.value, x.type, axes), None if ct.mask is None else spread_back(b, ct.mask, x.type, axes), ct.wild
        )
        self.contribute(x, multiply(b, spread, weights(b, instr), instr, op.singular))


def _is_small(kind: Type) -> bool:
    size = kind.size
    return isinstance(size, int) and 0 < size <= SMALL and kind.rank > 0
