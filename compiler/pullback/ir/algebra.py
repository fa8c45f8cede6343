"""Namespaces over which a partial derivative is stated once: instructions, NumPy, SymPy.

A record writes ``partials=lambda m, out, x: (m.cos(x),)``. With ``Instructions`` as ``m`` the operands are ``Term`` and the
result is IR; with ``Numbers`` they are arrays; with ``Symbols`` SymPy expressions. ``m.NAME`` is the op NAME of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.core import Builder, Value
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise


class Term:
    """A Value with arithmetic; Python numbers take part as constants of its type."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value):
        self.builder = builder
        self.value = value

    def lift(self, other: Any) -> Value:
        return other.value if isinstance(other, Term) else self.builder.full(other, self.value.type)

    def _binary(self, op: str, left: Any, right: Any) -> Term:
        return Term(self.builder, getattr(self.builder, op)(self.lift(left), self.lift(right)))

    def __add__(self, other: Any) -> Term:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Term:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Term:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Term:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Term:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Term:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Term:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Term:
        return self._binary("div", other, self)

    def __neg__(self) -> Term:
        return Term(self.builder, self.builder.neg(self.value))


class Instructions:
    """``m.NAME(*terms, **attrs)`` appends the op; numbers take the type of the first Term among the operands."""

    def __init__(self, builder: Builder):
        self.builder = builder

    def like(self, x: Term, number: Any) -> Term:
        """A constant of the type of ``x``, where no other operand gives a number its type."""
        return Term(self.builder, x.lift(number))

    def __getattr__(self, name: str) -> Callable[..., Term]:
        op = OPS.get(name)
        if not isinstance(op, Elementwise):
            raise AttributeError(f"no elementwise op named {name!r}")

        def build(*operands: Any, **attrs: Any) -> Term:
            # of a select only the branches share a type with a number; its condition is always a Term
            model = next((o for o in operands[1 if name == "select" else 0 :] if isinstance(o, Term)), operands[0])
            values = [model.lift(o) for o in operands]
            return Term(self.builder, self.builder.emit(op, values, attrs)[0])

        return build


class Numbers:
    """The ops as NumPy functions."""

    def like(self, x: Any, number: Any) -> Any:
        return np.full_like(x, number)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = OPS.get(name)
        if not isinstance(op, Elementwise):
            raise AttributeError(f"no elementwise op named {name!r}")
        return op.numpy


class Symbols:
    """The ops as SymPy functions."""

    def like(self, x: Any, number: Any) -> Any:
        return number

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = OPS.get(name)
        if not isinstance(op, Elementwise) or op.sympy is None:
            raise AttributeError(f"no elementwise op named {name!r} with a SymPy meaning")
        import sympy  # only where SymPy is used

        meaning = op.sympy
        return lambda *operands, **attrs: meaning(sympy, *operands, **attrs)
