"""Elementwise ops on numbers: arithmetic, remainders, powers, rounding and signs."""

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
    Libm,
    Machine,
    TypeMismatch,
    only,
    table,
)
from pullback.ir.types import Type, i64

inf, nan = float("inf"), float("nan")
ANY = Interval(-3, 3)
POSITIVE = Interval(0.3, 3)

# -- arithmetic -----------------------------------------------------------------------------------------------------
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
    domain=(ANY, POSITIVE),
    singular=True,
    tame=lambda attrs, known: known[1] is not None and abs(known[1]) >= 1e-300,  # 1 / less overflows
    edges=(Edge(at=(2.0, 0.0), value=inf, partials=(inf, -inf), why="a pole"),),
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
SQUARE = Elementwise(
    name="square",
    infer=NUMBER,
    numpy=np.square,
    sympy=lambda sp, x: x**2,
    partials=lambda m, out, x: (2 * x,),
    lower=Compose(lambda m, x: x * x),
    domain=(ANY,),
)


def _guarded_product(ct: Any, partial: Any, *inputs: Any) -> Any:
    with np.errstate(invalid="ignore", over="ignore"):
        product = ct * partial
    zero = np.isnan(product) & ((np.asarray(ct) == 0) | ((np.asarray(partial) == 0) & ~np.isnan(ct)))
    return np.where(zero & ~np.any([np.isnan(i) for i in inputs], axis=0), np.zeros_like(product), product)


def _expand_guarded_product(m: Any, ct: Any, partial: Any, *inputs: Any) -> Any:
    product = ct * partial
    zero = m.logical_or(m.eq(ct, 0.0), m.logical_and(m.eq(partial, 0.0), m.eq(ct, ct)))
    zero = m.logical_and(zero, m.ne(product, product))
    for value in inputs:
        zero = m.logical_and(zero, m.eq(value, value))  # false for NaN
    return m.select(zero, 0.0, product)


GUARDED_MUL = Elementwise(
    # derivative * partial, where an exactly zero factor wins over an infinite one unless an input is NaN:
    # Note [Zero times infinity] in passes/chain.py
    name="guarded_mul",
    infer=FLOAT,
    numpy=_guarded_product,
    sympy=lambda sp, ct, partial, *inputs: ct * partial,
    partials=lambda m, out, ct, partial, *inputs: (partial, ct, *(None for _ in inputs)),
    lower=Compose(_expand_guarded_product),
    domain=(ANY, ANY, ANY),
    singular=True,
    edges=(Edge(at=(0.0, inf, 1.0), value=0.0, partials=(None, None, None), why="a zero cotangent stays zero"),),
)


# -- remainders: the quotient is a number that does not move --------------------------------------------------------
def _int_mod(x: Any, y: Any) -> Any:
    """NumPy's, where a zero divisor gives 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.mod(x, y)


def _int_floordiv(x: Any, y: Any) -> Any:
    with np.errstate(divide="ignore", over="ignore"):
        return np.floor_divide(x, y)


def _toward_zero(x: Any, y: Any) -> Any:
    down = np.floor_divide(x, y)
    return down + ((down < 0) & (np.mod(x, y) != 0))


def _expand_fmod(m: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return m.libm_fmod(x, y)
    safe = m.select(m.logical_or(m.eq(y, 0), m.eq(y, -1)), 1, y)  # INT_MIN % -1 traps; both remainders are 0
    return m.int_rem(x, safe)


def _expand_mod(m: Any, x: Any, y: Any) -> Any:
    """The remainder with the divisor's sign."""
    rest = m.fmod(x, y)
    wrong_side = m.logical_and(m.ne(rest, 0), m.ne(m.lt(rest, 0), m.lt(y, 0)))
    moved = m.select(wrong_side, rest + y, rest)
    if x.dtype.kind != "f":
        return m.select(m.eq(y, 0), 0, moved)
    return m.select(m.eq(rest, 0.0), m.copysign(0.0 * rest, y), moved)


def _expand_floordiv(m: Any, x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":  # as NumPy: from the remainder, so that quotient and remainder belong together
        rest = m.fmod(x, y)
        wrong_side = m.logical_and(m.ne(rest, 0), m.ne(m.lt(rest, 0), m.lt(y, 0)))
        toward_zero = (x - rest) / y
        quotient = m.select(wrong_side, toward_zero - 1.0, toward_zero)
        near = m.floor(quotient)
        whole = m.select(m.gt(quotient - near, 0.5), near + 1.0, near)
        exact = m.select(m.eq(quotient, 0.0), m.copysign(0.0 * quotient, x / y), whole)
        return m.select(m.eq(y, 0.0), x / y, exact)
    special = m.logical_or(m.eq(y, 0), m.eq(y, -1))
    quotient = m.int_div(x, m.select(special, 1, y))
    rest = x - quotient * y
    down = m.logical_and(m.ne(rest, 0), m.ne(m.lt(rest, 0), m.lt(y, 0)))
    plain = m.select(down, quotient - 1, quotient)
    return m.select(special, m.select(m.eq(y, 0), 0, -x), plain)


def _mod_partials(m: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """The quotient comes from the remainder: x / y may be rounded up to the next whole number (1 / 0.1)."""
    return 1, -m.rint((x - out) / y)


LIBM_FMOD = Elementwise(name="libm_fmod", infer=FLOAT, numpy=np.fmod, lower=Libm("fmod"))
INT_REM = Elementwise(name="int_rem", infer=only("i"), numpy=np.fmod, lower=Machine(i="srem"))
INT_DIV = Elementwise(name="int_div", infer=only("i"), numpy=_toward_zero, lower=Machine(i="sdiv"))
FMOD = Elementwise(  # the sign of the dividend, as in C
    name="fmod",
    infer=NUMBER,
    numpy=np.fmod,
    sympy=lambda sp, x, y: x - y * sp.sign(x / y) * sp.floor(sp.Abs(x / y)),
    partials=_mod_partials,
    lower=Compose(_expand_fmod),
    domain=(Interval(-5.9, -5.1), Interval(1.6, 1.68)),
    singular=True,
)
MOD = Elementwise(  # the sign of the divisor, as in Python
    name="mod",
    infer=NUMBER,
    numpy=_int_mod,
    sympy=lambda sp, x, y: sp.Mod(x, y),
    partials=_mod_partials,
    lower=Compose(_expand_mod),
    domain=(Interval(-5.9, -5.1), Interval(1.6, 1.68)),
    singular=True,
    edges=(Edge(at=(1.0, 0.1), value=1.0 % 0.1, partials=(1.0, -9.0), why="0.1 is a little more than a tenth"),),
)
FLOORDIV = Elementwise(
    name="floordiv",
    infer=NUMBER,
    numpy=_int_floordiv,
    sympy=lambda sp, x, y: sp.floor(x / y),
    partials=lambda m, out, x, y: (None, None),
    lower=Compose(_expand_floordiv),
    domain=(Interval(-5.9, -5.1), Interval(1.6, 1.68)),
)


# -- powers ---------------------------------------------------------------------------------------------------------
def _infer_powi(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (x,) = NUMBER(types, attrs)
    if x.dtype.kind == "i" and attrs["exponent"] < 0:
        raise TypeMismatch("Integers to negative integer powers are not allowed.")
    return (x,)


def _powi(x: Any, exponent: int) -> Any:
    x = np.asarray(x)
    return np.power(x, exponent) if x.dtype.kind == "i" else np.power(x, x.dtype.type(exponent))


def _expand_powi(m: Any, x: Any, exponent: int) -> Any:
    """By repeated squaring where that takes few multiplications; the C library's pow is exact for the rest."""
    count = abs(exponent)
    if x.dtype.kind == "f" and count > 4:  # each squaring doubles the relative error
        return m.pow(x, float(exponent))
    result, square = None, x
    while count:
        if count & 1:
            result = square if result is None else result * square
        count >>= 1
        if count:
            square = square * square
    if result is None:
        return m.like(x, 1)
    return 1 / result if exponent < 0 else result


POWI = Elementwise(  # attrs: exponent, an integer known when compiling
    name="powi",
    infer=_infer_powi,
    numpy=_powi,
    sympy=lambda sp, x, exponent: x**exponent,
    partials=lambda m, out, x, exponent: (
        None
        if exponent == 0
        else 1
        if exponent == 1
        else 2 * x
        if exponent == 2
        else exponent * m.powi(x, exponent=exponent - 1),
    ),
    lower=Compose(_expand_powi),
    domain=(Interval(-2.5, -0.4),),
    singular=True,
    tame=lambda attrs, known: attrs["exponent"] >= 1,
    samples=tuple((("f64[3]",), {"exponent": n}) for n in (3, 2, 1, 0, -1, -2, 5, 7)),
    edges=(
        Edge(at=(0.0,), value=0.0, partials=(0.0,), why="a cubic is flat at 0", attrs={"exponent": 3}),
        Edge(at=(0.0,), value=0.0, partials=(0.0,), why="a parabola too", attrs={"exponent": 2}),
        Edge(at=(0.0,), value=0.0, partials=(1.0,), why="a line is not", attrs={"exponent": 1}),
        Edge(at=(0.0,), value=1.0, partials=(0.0,), why="x**0 is 1 for all x", attrs={"exponent": 0}),
        Edge(at=(0.0,), value=inf, partials=(-inf,), why="a pole", attrs={"exponent": -1}),
    ),
)


def _pow_partials(m: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """``y x**(y-1)`` and ``x**y log(x)``; x**0 does not move with x, nor 0**y (y > 0) with y.

    The first needs a case only at 0**0: one for every y = 0 would lose the mixed second derivative.
    """
    corner = m.logical_and(m.eq(x, 0), m.eq(y, 0))
    slope = m.select(corner, m.like(x, 0), y * m.pow(x, y - 1))
    positive_at_zero = m.logical_and(m.eq(x, 0), m.gt(y, 0))
    growth = m.select(positive_at_zero, m.like(x, 0), out * m.log(x))
    return slope, growth


POW = Elementwise(
    name="pow",
    infer=FLOAT,
    numpy=np.power,
    sympy=lambda sp, x, y: x**y,
    partials=_pow_partials,
    lower=Libm("pow"),
    domain=(POSITIVE, Interval(-2.5, 2.5)),
    singular=True,
    edges=(
        Edge(at=(0.0, 2.0), value=0.0, partials=(0.0, 0.0), why="0**y is 0 for all y > 0"),
        Edge(at=(0.0, 0.0), value=1.0, partials=(0.0, None), why="x**0 is 1 for all x"),
        Edge(at=(0.0, 1.0), value=0.0, partials=(1.0, 0.0), why="x**1 is x"),
        Edge(at=(0.0, 0.5), value=0.0, partials=(inf, 0.0), why="one-sided slope"),
        Edge(at=(0.0, -1.0), value=inf, partials=(-inf, -inf), why="a pole"),
        Edge(at=(-2.0, 0.0), value=1.0, partials=(0.0, nan), why="x**0 is 1 for all x"),
        Edge(at=(-2.0, 2.0), value=4.0, partials=(-4.0, nan), why="the exponent's partial is complex"),
    ),
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
    edges=(
        Edge(at=(0.0,), value=0.0, partials=(inf,), why="one-sided slope"),
        Edge(at=(-1.0,), value=nan, partials=(nan,), why="no value, no slope"),
    ),
)
CBRT = Elementwise(
    name="cbrt",
    infer=FLOAT,
    numpy=np.cbrt,
    sympy=lambda sp, x: sp.sign(x) * sp.Abs(x) ** sp.Rational(1, 3),
    partials=lambda m, out, x: (1 / (3 * out * out),),
    lower=Libm("cbrt"),
    domain=(Interval(-9, -0.1),),
    singular=True,
    edges=(Edge(at=(0.0,), value=0.0, partials=(inf,), why="a vertical tangent"),),
)
HYPOT = Elementwise(
    name="hypot",
    infer=FLOAT,
    numpy=np.hypot,
    sympy=lambda sp, x, y: sp.sqrt(x**2 + y**2),
    partials=lambda m, out, x, y: (
        m.select(m.eq(out, 0), m.like(x, 0), x / out),
        m.select(m.eq(out, 0), m.like(x, 0), y / out),
    ),
    lower=Libm("hypot"),
    domain=(ANY, POSITIVE),
    singular=True,
    edges=(
        Edge(at=(0.0, 0.0), value=0.0, partials=(0.0, 0.0), why="the subgradient of least norm"),
        Edge(at=(3e200, 4e200), value=5e200, partials=(0.6, 0.8), why="no overflow"),
    ),
)


def _infer_ldexp(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    x, exponent = types
    if x.dtype.kind != "f" or exponent != x.of(i64):
        raise TypeMismatch(f"floats and i64 exponents of one shape expected, got {x} and {exponent}")
    return (x,)


def _expand_ldexp(m: Any, x: Any, exponent: Any) -> Any:
    """In three steps, since 2**exponent alone may be out of range where the product is not."""
    most = 2200 if x.dtype.bytes == 8 else 300  # takes the smallest number beyond the largest
    n = m.convert(m.minimum(m.maximum(exponent, -most), most), dtype=x.dtype.name)
    first = m.trunc(n / 3.0)
    second = m.trunc((n - first) / 2.0)
    return x * m.exp2(first) * m.exp2(second) * m.exp2(n - first - second)


LDEXP = Elementwise(  # x * 2**exponent, exact wherever the result is a normal number
    name="ldexp",
    infer=_infer_ldexp,
    numpy=np.ldexp,
    sympy=lambda sp, x, exponent: x * sp.Integer(2) ** exponent,
    partials=lambda m, out, x, exponent: (m.ldexp(m.like(x, 1), exponent), None),
    lower=Compose(_expand_ldexp),
    samples=((("f64[3]", "i64[3]"), {}),),
)


# -- rounding and signs ---------------------------------------------------------------------------------------------
def _sign(x: Any) -> Any:
    return np.sign(x)


def _expand_sign(m: Any, x: Any) -> Any:
    if x.dtype.kind == "f":  # x + 0.0 is what is left: a zero without its sign, or NaN
        return m.select(m.gt(m.float_abs(x), 0.0), m.copysign(m.like(x, 1), x), x + 0.0)
    return m.select(m.gt(x, 0), m.like(x, 1), m.select(m.lt(x, 0), m.like(x, -1), m.like(x, 0)))


ABS = Elementwise(
    name="abs",
    infer=NUMBER,
    numpy=np.abs,
    sympy=lambda sp, x: sp.Abs(x),
    partials=lambda m, out, x: (m.sign(x),),
    lower=Compose(lambda m, x: m.float_abs(x) if x.dtype.kind == "f" else m.select(m.lt(x, 0), -x, x)),
    domain=(Interval(-3, -0.1),),
    edges=(
        Edge(at=(0.0,), value=0.0, partials=(0.0,), why="the middle of the slopes"),
        Edge(at=(-0.0,), value=0.0, partials=(0.0,), why="the same point"),
    ),
)
FLOAT_ABS = Elementwise(name="float_abs", infer=FLOAT, numpy=np.fabs, lower=Intrinsic("llvm.fabs"))
SIGN = Elementwise(
    name="sign",
    infer=NUMBER,
    numpy=_sign,
    sympy=lambda sp, x: sp.sign(x),
    partials=lambda m, out, x: (None,),
    lower=Compose(_expand_sign),
    domain=(Interval(-3, -0.1),),
)
COPYSIGN = Elementwise(
    name="copysign",
    infer=FLOAT,
    numpy=np.copysign,
    sympy=lambda sp, x, y: sp.Abs(x) * sp.sign(y),
    partials=lambda m, out, x, y: (m.sign(x) * m.sign(out), None),
    lower=Intrinsic("llvm.copysign"),
    domain=(Interval(0.1, 3), Interval(-3, -0.1)),
)
FLOOR = Elementwise(
    name="floor",
    infer=FLOAT,
    numpy=np.floor,
    sympy=lambda sp, x: sp.floor(x),
    partials=lambda m, out, x: (None,),
    lower=Intrinsic("llvm.floor"),
    domain=(Interval(1.1, 1.9),),
)
CEIL = Elementwise(
    name="ceil",
    infer=FLOAT,
    numpy=np.ceil,
    sympy=lambda sp, x: sp.ceiling(x),
    partials=lambda m, out, x: (None,),
    lower=Intrinsic("llvm.ceil"),
    domain=(Interval(1.1, 1.9),),
)
RINT = Elementwise(  # half to even
    name="rint",
    infer=FLOAT,
    numpy=np.rint,
    sympy=lambda sp, x: sp.floor(x + sp.Rational(1, 2)),
    partials=lambda m, out, x: (None,),
    lower=Intrinsic("llvm.roundeven"),
    domain=(Interval(1.6, 2.4),),
)
TRUNC = Elementwise(
    name="trunc",
    infer=FLOAT,
    numpy=np.trunc,
    sympy=lambda sp, x: sp.sign(x) * sp.floor(sp.Abs(x)),
    partials=lambda m, out, x: (None,),
    lower=Intrinsic("llvm.trunc"),
    domain=(Interval(-1.9, -1.1),),
)

OPS = table(
    *(ADD, SUB, MUL, DIV, NEG, SQUARE, GUARDED_MUL),
    *(FMOD, MOD, FLOORDIV, LIBM_FMOD, INT_REM, INT_DIV),
    *(POWI, POW, SQRT, CBRT, HYPOT, LDEXP),
    *(ABS, FLOAT_ABS, SIGN, COPYSIGN, FLOOR, CEIL, RINT, TRUNC),
)
