"""Elementwise ops: arithmetic, powers, rounding, exponentials, trigonometry, choice, comparison and logic."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.ops.base import (
    FLOAT,
    NUMBER,
    Attrs,
    Elementwise,
    Interval,
    Intrinsic,
    Libm,
    Machine,
    TypeMismatch,
    only,
    table,
    truth,
)
from pullback.ir.types import Type, bool_

ANY = Interval(-3, 3)

ADD = Elementwise(
    name="add",
    infer=NUMBER,
    numpy=np.add,
    sympy=lambda sp, x, y: x + y,
    partials=lambda m, out, x, y: (1, 1),
    lower=Machine(f="fadd", i="add"),
    domain=(ANY, ANY),
)
SUB = Elementwise(
    name="sub",
    infer=NUMBER,
    numpy=np.subtract,
    sympy=lambda sp, x, y: x - y,
    partials=lambda m, out, x, y: (1, -1),
    lower=Machine(f="fsub", i="sub"),
    domain=(ANY, ANY),
)
MUL = Elementwise(
    name="mul",
    infer=NUMBER,
    numpy=np.multiply,
    sympy=lambda sp, x, y: x * y,
    partials=lambda m, out, x, y: (y, x),
    lower=Machine(f="fmul", i="mul"),
    domain=(ANY, ANY),
)
DIV = Elementwise(
    name="div",
    infer=FLOAT,
    numpy=np.true_divide,
    sympy=lambda sp, x, y: x / y,
    partials=lambda m, out, x, y: (1 / y, -out / y),
    lower=Machine(f="fdiv"),
    domain=(ANY, Interval(0.3, 3)),
    singular=True,
)
NEG = Elementwise(
    name="neg",
    infer=NUMBER,
    numpy=np.negative,
    sympy=lambda sp, x: -x,
    partials=lambda m, out, x: (-1,),
    lower=Machine(f="fneg", i="sub 0,"),
    domain=(ANY,),
)


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
)


def _guarded_product(ct: Any, partial: Any, *inputs: Any) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        product = ct * partial
    return np.where((np.asarray(ct) == 0) & ~np.any([np.isnan(i) for i in inputs], axis=0), ct, product)


GUARDED_MUL = Elementwise(
    # cotangent * partial, except that a cotangent of exactly zero stays zero unless an input is NaN
    name="guarded_mul",
    infer=FLOAT,
    numpy=_guarded_product,
    sympy=lambda sp, ct, partial, *inputs: ct * partial,
    partials=lambda m, out, ct, partial, *inputs: (partial, ct, *(None for _ in inputs)),
    domain=(ANY, ANY, ANY),
    singular=True,
)

SIN = Elementwise(
    name="sin",
    infer=FLOAT,
    numpy=np.sin,
    sympy=lambda sp, x: sp.sin(x),
    partials=lambda m, out, x: (m.cos(x),),
    lower=Libm("sin"),
    domain=(ANY,),
)
COS = Elementwise(
    name="cos",
    infer=FLOAT,
    numpy=np.cos,
    sympy=lambda sp, x: sp.cos(x),
    partials=lambda m, out, x: (-m.sin(x),),
    lower=Libm("cos"),
    domain=(ANY,),
)
EXP = Elementwise(
    name="exp",
    infer=FLOAT,
    numpy=np.exp,
    sympy=lambda sp, x: sp.exp(x),
    partials=lambda m, out, x: (out,),
    lower=Libm("exp"),
    domain=(ANY,),
    singular=True,
)
SQRT = Elementwise(
    name="sqrt",
    infer=FLOAT,
    numpy=np.sqrt,
    sympy=lambda sp, x: sp.sqrt(x),
    partials=lambda m, out, x: (0.5 / out,),
    lower=Intrinsic("llvm.sqrt"),
    domain=(Interval(0.1, 9),),
    singular=True,
)
SQUARE = Elementwise(
    name="square",
    infer=NUMBER,
    numpy=np.square,
    sympy=lambda sp, x: x**2,
    partials=lambda m, out, x: (2 * x,),
    domain=(ANY,),
)
EQ = Elementwise(
    name="eq",
    infer=truth("fib"),
    numpy=np.equal,
    sympy=lambda sp, x, y: sp.Eq(x, y),
    lower=Machine(f="fcmp oeq", i="icmp eq", b="icmp eq"),
)
LT = Elementwise(
    name="lt", infer=truth("fi"), numpy=np.less, sympy=lambda sp, x, y: x < y, lower=Machine(f="fcmp olt", i="icmp slt")
)
ISFINITE = Elementwise(name="isfinite", infer=truth("f"), numpy=np.isfinite)
LOGICAL_OR = Elementwise(
    name="logical_or", infer=only("b"), numpy=np.logical_or, sympy=lambda sp, x, y: sp.Or(x, y), lower=Machine(b="or")
)
LOGICAL_NOT = Elementwise(
    name="logical_not", infer=only("b"), numpy=np.logical_not, sympy=lambda sp, x: sp.Not(x), lower=Machine(b="xor true,")
)

OPS = table(
    ADD, SUB, MUL, DIV, NEG, SELECT, GUARDED_MUL, SIN, COS, EXP, SQRT, SQUARE, EQ, LT, ISFINITE, LOGICAL_OR, LOGICAL_NOT
)
