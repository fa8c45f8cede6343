"""Elementwise ops that decide: choice, comparison and logic."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.ops.base import (
    FLOAT,
    NUMBER,
    Attrs,
    Compose,
    Edge,
    Elementwise,
    Interval,
    Intrinsic,
    Machine,
    TypeMismatch,
    only,
    table,
    truth,
)
from pullback.ir.types import Type, bool_

inf, nan = float("inf"), float("nan")


# -- choice ---------------------------------------------------------------------------------------------------------
def _infer_select(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    condition, yes, no = types
    if condition != yes.of(bool_) or yes != no:
        raise TypeMismatch(f"a condition and two values of one type expected, got {condition}, {yes}, {no}")
    return (yes,)


SELECT = Elementwise(  # its cotangent is split by the adjoint pass, which makes the mask there
    name="select",
    infer=_infer_select,
    numpy=np.where,
    sympy=lambda sp, c, x, y: sp.Piecewise((x, c), (y, True)),
    lower=Machine(f="select", i="select", b="select"),
    samples=((("bool[3]", "f64[3]", "f64[3]"), {}),),
)


def _choice_partials(m: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """1 for the operand that was taken, 1/2 each at a tie; NaN where neither was, since the result is NaN."""
    half, one, zero = m.like(x, 0.5), m.like(x, 1), m.like(x, 0)
    tie, x_wins, y_wins = m.eq(x, y), m.eq(out, x), m.eq(out, y)
    lost = m.like(x, nan)
    return (
        m.select(tie, half, m.select(x_wins, one, m.select(y_wins, zero, lost))),
        m.select(tie, half, m.select(y_wins, one, m.select(x_wins, zero, lost))),
    )


_TIE = (Edge(at=(2.0, 2.0), value=2.0, partials=(0.5, 0.5), why="half to each at a tie"),)
_MISSING = (
    *_TIE,
    Edge(at=(nan, 2.0), value=2.0, partials=(0.0, 1.0), why="NaN is missing data here"),
    Edge(at=(nan, nan), value=nan, partials=(nan, nan), why="but not where there is no other"),
)
_APART = (Interval(-3, -0.1), Interval(0.1, 3))
MAXIMUM = Elementwise(
    name="maximum",
    infer=NUMBER,
    numpy=np.maximum,
    sympy=lambda sp, x, y: sp.Max(x, y),
    partials=_choice_partials,
    lower=Intrinsic("llvm.maximum", integer="llvm.smax"),
    domain=_APART,
    edges=_TIE,
)
MINIMUM = Elementwise(
    name="minimum",
    infer=NUMBER,
    numpy=np.minimum,
    sympy=lambda sp, x, y: sp.Min(x, y),
    partials=_choice_partials,
    lower=Intrinsic("llvm.minimum", integer="llvm.smin"),
    domain=_APART,
    edges=_TIE,
)
FMAX = Elementwise(
    name="fmax",
    infer=FLOAT,
    numpy=np.fmax,
    sympy=lambda sp, x, y: sp.Max(x, y),
    partials=_choice_partials,
    lower=Intrinsic("llvm.maxnum"),
    domain=_APART,
    edges=_MISSING,
)
FMIN = Elementwise(
    name="fmin",
    infer=FLOAT,
    numpy=np.fmin,
    sympy=lambda sp, x, y: sp.Min(x, y),
    partials=_choice_partials,
    lower=Intrinsic("llvm.minnum"),
    domain=_APART,
    edges=_MISSING,
)

# -- comparison -----------------------------------------------------------------------------------------------------
EQ = Elementwise(
    name="eq",
    infer=truth("fib"),
    numpy=np.equal,
    sympy=lambda sp, x, y: sp.Eq(x, y),
    lower=Machine(f="fcmp oeq", i="icmp eq", b="icmp eq"),
)
NE = Elementwise(
    name="ne",
    infer=truth("fib"),
    numpy=np.not_equal,
    sympy=lambda sp, x, y: sp.Ne(x, y),
    lower=Machine(f="fcmp une", i="icmp ne", b="icmp ne"),
)
LT = Elementwise(
    name="lt",
    infer=truth("fi"),
    numpy=np.less,
    sympy=lambda sp, x, y: sp.Lt(x, y),
    lower=Machine(f="fcmp olt", i="icmp slt"),
)
LE = Elementwise(
    name="le",
    infer=truth("fi"),
    numpy=np.less_equal,
    sympy=lambda sp, x, y: sp.Le(x, y),
    lower=Machine(f="fcmp ole", i="icmp sle"),
)
GT = Elementwise(
    name="gt",
    infer=truth("fi"),
    numpy=np.greater,
    sympy=lambda sp, x, y: sp.Gt(x, y),
    lower=Machine(f="fcmp ogt", i="icmp sgt"),
)
GE = Elementwise(
    name="ge",
    infer=truth("fi"),
    numpy=np.greater_equal,
    sympy=lambda sp, x, y: sp.Ge(x, y),
    lower=Machine(f="fcmp oge", i="icmp sge"),
)
ISNAN = Elementwise(
    name="isnan",
    infer=truth("f"),
    numpy=np.isnan,
    sympy=lambda sp, x: sp.false,
    lower=Compose(lambda m, x: m.ne(x, x)),
)
ISINF = Elementwise(
    name="isinf",
    infer=truth("f"),
    numpy=np.isinf,
    sympy=lambda sp, x: sp.false,
    lower=Compose(lambda m, x: m.eq(m.float_abs(x), inf)),
)
ISFINITE = Elementwise(
    name="isfinite",
    infer=truth("f"),
    numpy=np.isfinite,
    sympy=lambda sp, x: sp.true,
    lower=Compose(lambda m, x: m.lt(m.float_abs(x), inf)),
)

# -- logic ----------------------------------------------------------------------------------------------------------
LOGICAL_AND = Elementwise(
    name="logical_and",
    infer=only("b"),
    numpy=np.logical_and,
    sympy=lambda sp, x, y: sp.And(x, y),
    lower=Machine(b="and"),
)
LOGICAL_OR = Elementwise(
    name="logical_or", infer=only("b"), numpy=np.logical_or, sympy=lambda sp, x, y: sp.Or(x, y), lower=Machine(b="or")
)
LOGICAL_XOR = Elementwise(
    name="logical_xor", infer=only("b"), numpy=np.logical_xor, sympy=lambda sp, x, y: sp.Xor(x, y), lower=Machine(b="xor")
)
LOGICAL_NOT = Elementwise(
    name="logical_not", infer=only("b"), numpy=np.logical_not, sympy=lambda sp, x: sp.Not(x), lower=Machine(b="xor true,")
)

OPS = table(
    *(SELECT, MAXIMUM, MINIMUM, FMAX, FMIN),
    *(EQ, NE, LT, LE, GT, GE, ISNAN, ISINF, ISFINITE),
    *(LOGICAL_AND, LOGICAL_OR, LOGICAL_XOR, LOGICAL_NOT),
)
