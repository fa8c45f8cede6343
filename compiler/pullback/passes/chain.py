"""The chain rule's one multiplication, shared by forward and reverse mode; and the algebras for transposition.

Note [Zero times infinity]
A derivative is carried with two facts. ``mask`` (a boolean Value or None): lanes in which it is live; elsewhere its value is
exactly zero and the partial of an untaken branch, however infinite, must not enter. ``wild``: an earlier partial may have
been infinite, so an exactly zero partial must win over it. ``guarded_mul`` settles both kinds of 0 * inf; plain programs
of ``mul``, ``add``, ``sin`` and the like are neither singular nor wild and carry no guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.ir.algebra import Instructions, Term
from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops.base import Elementwise, Weighted
from pullback.ir.ops.reduce import spread_back
from pullback.ir.types import Type, bool_
from pullback.passes.rewrite import Definitions


@dataclass(eq=False, slots=True)  # never mutated; frozen costs four times as much to make
class Derivative:
    """A cotangent or tangent; see Note [Zero times infinity]."""

    value: Value
    mask: Value | None = None
    wild: bool = False


def add(b: Builder, left: Derivative | None, right: Derivative) -> Derivative:
    """The sum of two contributions; live where either is."""
    if left is None:
        return right
    if left.mask is None and right.mask is None:
        return Derivative(b.add(left.value, right.value), None, left.wild or right.wild)
    both = left.mask is not None and right.mask is not None
    mask = (left.mask if left.mask is right.mask else b.logical_or(left.mask, right.mask)) if both else None
    return Derivative(b.add(left.value, right.value), mask, left.wild or right.wild)


def masked(b: Builder, mask: Value | None, value: Value) -> Value:
    return value if mask is None else b.select(mask, value, b.zeros(value.type))


def partials(b: Builder, instr: Instr) -> tuple[Any, ...]:
    """The partial derivatives of an elementwise instruction: Terms, numbers or None."""
    op = instr.op
    assert isinstance(op, Elementwise)
    if op.partials is None:
        return (None,) * len(instr.args)
    terms = [Term(b, arg) for arg in instr.args]
    found: tuple[Any, ...] = op.partials(Instructions(b), Term(b, instr.outs[0]), *terms, **instr.attrs)
    return found


def weights(b: Builder, instr: Instr) -> Term:
    """The weights of a reduction: d out / d element, in the argument's shape."""
    op, x = instr.op, instr.args[0]
    assert isinstance(op, Weighted)
    return Term(b, op.weights(b, instr, spread_back(b, instr.out, x.type, instr.attrs["axes"])))


def multiply(b: Builder, derivative: Derivative, partial: Any, instr: Instr, singular: bool) -> Derivative | None:
    """``derivative * partial``, where ``partial`` belongs to ``instr``; None if there is no edge."""
    if partial is None or (not isinstance(partial, Term) and partial == 0):
        return None
    value = derivative.value
    if not isinstance(partial, Term):  # a number: finite, so zero stays zero and no guard is needed
        if partial == -1:
            value = b.neg(value)
        elif partial != 1:
            value = b.mul(value, b.full(partial, value.type))
        return Derivative(value, derivative.mask, derivative.wild)
    if singular or derivative.wild:
        inputs = [a for a in instr.args if a.type == value.type]
        product = b.guarded_mul(value, partial.value, *inputs)
    else:
        product = b.mul(value, partial.value)
    return Derivative(masked(b, derivative.mask, product), derivative.mask, derivative.wild or singular)


def is_singular(instr: Instr, defs: Definitions) -> bool:
    """Whether a partial may be non-finite at finite operands, as far as the operands are known."""
    op = instr.op
    if not isinstance(op, Elementwise) or not op.singular:
        return False
    return op.tame is None or not op.tame(instr.attrs, tuple(defs.constant(a) for a in instr.args))


def may_be_infinite(instr: Instr, defs: Definitions) -> bool:
    """Whether a derivative that went through ``instr`` may be infinite; of one that comes from a tape nothing is known."""
    op = instr.op
    return is_singular(instr, defs) or (isinstance(op, Weighted) and op.singular) or op.name == "stack.pop"


class Values:
    """The algebra of cotangents: what a transpose rule is written over."""

    def __init__(self, builder: Builder):
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., Value]:
        found: Callable[..., Value] = getattr(self.builder, name)
        return found

    def zeros(self, type: Type) -> Value:
        return self.builder.zeros(type)

    def sum(self, x: Value, axes: tuple[int, ...]) -> Value:
        found: Value = self.builder.sum(x, axes=axes)
        return found

    def gather_winners(self, x: Value, *indices: Value) -> Value:
        """``gather`` for the cotangent of ``scatter_set``: where an index comes twice only the last one's is read."""
        b = self.builder
        shape = indices[0].type.shape
        if indices[0].type.size == 1:
            found: Value = b.gather(x, *indices)  # nothing can come twice
            return found
        number = b.reshape(b.iota(size=indices[0].type.size), shape=shape)
        board = b.zeros(Type(number.type.dtype, x.type.shape[: len(indices)]))
        winner = b.gather(b.scatter_set(board, *indices, number), *indices)
        read = b.gather(x, *indices)
        won = b.broadcast(b.eq(winner, number), axes=tuple(range(len(shape))), shape=read.type.shape)
        found = b.select(won, read, self.zeros(read.type))
        return found


class Masks(Values):
    """The algebra of masks: a sum is "any", adding is "or", zero is False."""

    def zeros(self, type: Type) -> Value:
        return self.builder.zeros(type.of(bool_))

    def sum(self, x: Value, axes: tuple[int, ...]) -> Value:
        found: Value = self.builder.any(x, axes=axes)
        return found
