"""The elementwise records as test cases: operand types, points of their domains, functions of one op, exact derivatives."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from pullback.ir.core import Builder, Func, Value
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise
from pullback.ir.parse import parse_type
from pullback.ir.types import DType, Type, bool_, f32, f64, i64
from pullback.llvm import compile_kernel
from pullback.passes.pipeline import differentiate
from pullback.passes.rewrite import with_results

DIGITS = 50
TRIP = (-0.7, 1.3, -2.1)  # the seeds of first, second and third derivatives: negative, unequal, not one
SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (17,), (2, 3), (0,), (0, 2))


@dataclass(frozen=True)
class Case:
    """An op with attributes."""

    op: Elementwise
    attrs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return "-".join([self.op.name, *(str(value) for _, value in self.attrs)])

    @property
    def keywords(self) -> dict[str, Any]:
        return dict(self.attrs)

    @property
    def arity(self) -> int:
        op = self.op
        if op.domain:
            return len(op.domain)
        if op.samples:
            return len(op.samples[0][0])
        return op.numpy.nin if isinstance(op.numpy, np.ufunc) else op.numpy.__code__.co_argcount

    def types(self, kind: DType, shape: Any = ()) -> list[Type] | None:
        """The operand types whose element type is ``kind``, None where the op is not defined for it. What a sample says of the
        other operands of a mixed op (conditions, exponents) stays."""
        sample = [parse_type(t).dtype for t in self.op.samples[0][0]] if self.op.samples else []
        mixed = sample if len(set(sample)) > 1 else [f64] * self.arity
        types = [Type(kind if d is f64 else d, shape) for d in mixed]
        try:
            self.op.infer(tuple(types), self.keywords)
        except ValueError:
            return None
        return types

    def meaning(self, *args: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(self.op.numpy(*args, **self.keywords))

    def func(self, kind: DType, shape: Any = ()) -> Func:
        return self.func_of_shapes(kind, [shape])

    def func_of_shapes(self, kind: DType, shapes: Sequence[Any]) -> Func:
        """The op once per shape, each time of parameters of its own."""
        b, params, results = Builder(), [], []
        for shape in shapes:
            types = self.types(kind, shape)
            assert types is not None
            args = [Value(f"x{len(params) + k}", t) for k, t in enumerate(types)]
            params += args
            results += b.emit(self.op, args, self.keywords)
        return Func("f", b.close("return", results, params))

    def points(self, count: int, kind: DType = f64) -> list[np.ndarray]:
        """``count`` points of the domain, one array per operand; without a domain, numbers with many ties."""
        rng = np.random.default_rng(11)
        if not self.op.domain or kind.kind == "i":
            drawn = [rng.integers(-3, 4, count) for _ in range(self.arity)]
            if self.op.name == "int_div" or self.op.name == "int_rem":  # parts of others, which keep zero away from them
                drawn[1] = np.where(drawn[1] == 0, 2, drawn[1])
            types = self.types(kind) or self.types(bool_)
            assert types is not None
            return [
                (value > 0) if t.dtype is bool_ else value.astype(t.dtype.numpy) for value, t in zip(drawn, types, strict=True)
            ]
        return [(i.low + (i.high - i.low) * rng.random(count)).astype(kind.numpy) for i in self.op.domain]


def cases() -> list[Case]:
    found = []
    for op in OPS.values():
        if isinstance(op, Elementwise):
            found += [Case(op, tuple(attrs.items())) for _, attrs in op.samples or [((), {})]]
    return found


CASES = cases()
KINDS = [(case, kind) for case in CASES for kind in (f64, f32, i64, bool_) if case.types(kind) is not None]
SMOOTH = [case for case in CASES if case.op.domain and case.op.partials is not None]


def compiled(func: Func, args: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(r) for r in compile_kernel(func)([np.array(a, order="C") for a in args])]


# -- derivatives as functions -----------------------------------------------------------------------------------------
def derivatives(func: Func, order: int) -> list[tuple[tuple[int, ...], Func]]:
    """The functions of ``func``'s parameters and one seed for each order that give one derivative each, by operand numbers:
    the adjoint of the adjoint of the adjoint."""
    operands = [p for p in func.params if p.type.is_float]
    level = [((), func)]
    for _ in range(order):
        above = []
        for index, lower in level:
            upper = differentiate(lower, operands, primal=False)
            above += [((*index, k), with_results(upper, [r])) for k, r in enumerate(upper.results)]
        level = above
    return level


# -- exact values -------------------------------------------------------------------------------------------------------
SYMBOLS = sp.symbols("x y z w", real=True)


class Floor(sp.Function):
    """A step that does not move: SymPy leaves the derivative of its own unevaluated."""

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return sp.S.Zero


class Sign(Floor):
    """Likewise."""


MPMATH = [
    {
        "Floor": mpmath.floor,
        "Sign": mpmath.sign,
        "Heaviside": lambda x, at_zero=0.5: mpmath.mpf(1) if x > 0 else mpmath.mpf(0),
        "DiracDelta": lambda *_: mpmath.mpf(0),  # no point of a domain is on a jump
        "Mod": lambda x, y: x - y * mpmath.floor(x / y),
    },
    "mpmath",
]


@functools.cache
def function(case: Case, index: tuple[int, ...] = ()) -> Callable[..., mpmath.mpf]:
    """The SymPy meaning, or its derivative by the operands ``index``, over numbers of many digits."""
    return sp.lambdify(SYMBOLS[: case.arity], _derivative(case, tuple(sorted(index))), MPMATH)


@functools.cache
def _derivative(case: Case, index: tuple[int, ...]) -> sp.Expr:
    if index:
        return sp.diff(_derivative(case, index[:-1]), SYMBOLS[index[-1]])
    expr = sp.sympify(case.op.sympy(sp, *SYMBOLS[: case.arity], **case.keywords))
    expr = expr.replace(sp.Mod, lambda p, q: p - q * Floor(p / q)).replace(sp.ceiling, lambda a: -Floor(-a))
    return expr.replace(sp.floor, Floor).replace(sp.sign, Sign)


def exact(case: Case, index: tuple[int, ...], point: Sequence[float]) -> mpmath.mpf:
    """The derivative of the SymPy meaning by the operands ``index``, to 50 digits."""
    with mpmath.workdps(DIGITS + 20):
        return mpmath.re(function(case, index)(*map(mpmath.mpf, map(float, point))))


def special_numbers(kind: DType) -> list[Any]:
    """Values at which arithmetic is special."""
    if kind is bool_:
        return [False, True]
    if kind is i64:
        return [0, 1, -1, 2, -2, 3, -3, 7, -7, 10, 2**31, -(2**31), 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), -(2**63) + 1]
    info = np.finfo(kind.numpy)
    ordinary = [0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.0, 33.0, 95.0, 200.0, 720.0, 750.0, 1e5]
    extreme = [
        0.0,
        float(info.smallest_subnormal),
        float(info.tiny) / 8,
        float(info.tiny),
        float(info.eps) / 4,
        float(info.max) / 2,
    ]
    numbers = [*extreme, *ordinary, float(info.max), float("inf")]
    return [*numbers, *(-v for v in numbers), float("nan")]


def special_points(case: Case, kind: DType) -> list[np.ndarray]:
    """Every combination of special numbers, one array per operand."""
    types = case.types(kind)
    assert types is not None
    numbers = [special_numbers(t.dtype) for t in types]
    if case.arity > 2:  # a choice or a guarded product: the cube of all is too many
        numbers = [some[:: max(1, len(some) // 9)] for some in numbers]
    grid = list(itertools.product(*numbers))
    return [np.array(column, t.dtype.numpy) for column, t in zip(zip(*grid, strict=True), types, strict=True)]
