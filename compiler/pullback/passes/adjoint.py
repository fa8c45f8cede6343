"""Reverse mode: the adjoint of a straight-line function, as another function of the same IR.

``y = f(x)`` seeded with ``y_adj`` (the gradient of some loss with respect to ``y``) gives ``x_adj``, the gradient of that
loss with respect to ``x``. Going backwards, each instruction multiplies its result's cotangent by its partial derivatives and
adds the products to the cotangents of its operands (Griewank and Walther 2008, chapter 3). The result is IR, so the pass can
be applied to its own output.

Note [Untaken branches]
A branch not taken must not poison a gradient: the partial of ``sqrt`` in ``where(x > 0, sqrt(x), 0)`` is infinite or NaN
exactly where it does not matter. ``select`` therefore gives its operands a cotangent with a *mask*; products are taken under
it, views, reductions and indexing carry it, sums of contributions unite it, contractions and recurrences end it (the value is
already zero outside the mask). See also Note [Zero times infinity].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pullback.errors import UnsupportedError
from pullback.ir.core import Builder, Func, Instr, Value
from pullback.ir.dims import Dim, Size, symbols
from pullback.ir.ops.base import Elementwise, General, Linear, Plain, Weighted
from pullback.ir.ops.reduce import spread_back
from pullback.ir.types import Type
from pullback.passes.chain import Derivative, Masks, Values, add, is_singular, masked, multiply, partials, weights
from pullback.passes.rewrite import Definitions, type_of


def adjoint(func: Func, wrt: Sequence[Value], seeded: Sequence[Value] | None = None, primal: bool = True) -> Func:
    """The function of ``func``'s parameters and one seed per ``seeded`` value that returns (results, cotangents of ``wrt``).

    ``wrt`` and ``seeded`` are values of ``func``'s own block: parameters, results or intermediates. ``seeded`` is by default
    every floating result, once per place. ``primal=False`` leaves the results out.
    """
    if seeded is None:
        seeded = [v for v in func.results if type_of(v).is_float]
    pass_ = _Adjoint(func, wrt)
    seeds = []
    for value in seeded:
        seed = Value(f"{value.name}_adj" if value.name else "seed", pass_.seed_type(value))
        seeds.append(seed)
        if value in pass_.active:
            same = seed.type == value.type
            pass_.contribute(value, Derivative(seed if same else pass_.builder.match(seed, shape=value.type.shape)))
    for instr in reversed(func.body[:-1]):
        pass_.visit(instr)
    gradients = [pass_.cotangent(value) for value in wrt]
    b = pass_.builder
    block = b.close("return", (*(func.results if primal else ()), *gradients), (*func.params, *seeds))
    return Func(f"{func.name}_adj", block, func.names)


def active_values(func: Func, wrt: Sequence[Value]) -> set[Value]:
    """Floating values that depend on ``wrt`` through instructions that can carry a derivative."""
    active = {v for v in wrt if type_of(v).is_float}
    for instr in func.body[:-1]:
        if any(a in active for a in instr.args) and (instr.blocks or not isinstance(instr.op, Plain)):
            active.update(out for out in instr.outs if getattr(out.type, "is_float", True))
    return active


class _Adjoint:
    """The state of one run: the builder, which values are active, and the cotangents so far."""

    def __init__(self, func: Func, wrt: Sequence[Value]):
        self.active = active_values(func, wrt)
        self.builder = Builder()
        self.builder.body.extend(func.body[:-1])
        self.defs = Definitions()
        self.defs.add(func.body)
        self.cotangents: dict[Value, Derivative] = {}
        self.bound = symbols(axis for param in func.params for axis in param.type.shape)

    def seed_type(self, value: Value) -> Type:
        """The seed's type: the value's, but a length that a mask decides is one of the seed's own, to be compared with it."""
        axes: list[Size] = []
        for size in value.type.shape:
            if not symbols((size,)) <= self.bound:
                name = next(name for k in count() if (name := f"seed{k}") not in self.bound)
                self.bound |= {name}
                size = Dim.symbol(name)
            axes.append(size)
        return type_of(value).with_shape(tuple(axes))

    def contribute(self, value: Value, contribution: Derivative | None) -> None:
        if contribution is not None and value in self.active:
            self.cotangents[value] = add(self.builder, self.cotangents.get(value), contribution)

    def cotangent(self, value: Value) -> Value:
        found = self.cotangents.get(value)
        if found is None:
            return self.builder.zeros(value.type)
        if value.name and not found.value.name and found.value not in self.active:
            found.value.name = f"{value.name}_adj"
        return found.value

    def visit(self, instr: Instr) -> None:
        if not instr.outs:
            return
        if instr.blocks:
            if any(out in self.cotangents for out in instr.outs):
                raise UnsupportedError(f"{instr.loc}: the adjoint of '{instr.op.name}' is not available")
            return
        ct = self.cotangents.get(instr.outs[0])
        if ct is None:
            return
        self.builder.loc = instr.loc
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
        before = self.cotangents.get(source)
        total = b.zeros(source.type) if before is None else before.value
        value = op.transpose(Values(b), instr, ct.value, total)[0]
        mask = None
        if ct.mask is not None and (before is None or before.mask is not None):
            masks = Masks(b)
            mask = op.transpose(masks, instr, ct.mask, masks.zeros(source.type) if before is None else before.mask)[0]
        assert value is not None
        self.cotangents[source] = Derivative(value, mask, ct.wild or (before is not None and before.wild))

    def weighted(self, instr: Instr, op: Weighted, ct: Derivative) -> None:
        b, x, axes = self.builder, instr.args[0], instr.attrs["axes"]
        if x not in self.active:
            return
        spread = Derivative(
            spread_back(b, ct.value, x.type, axes), None if ct.mask is None else spread_back(b, ct.mask, x.type, axes), ct.wild
        )
        self.contribute(x, multiply(b, spread, weights(b, instr), instr, op.singular))
