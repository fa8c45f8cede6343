"""Elementwise ops: exponentials, logarithms, circular and hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.ops.base import FLOAT, Compose, Edge, Elementwise, Interval, Libm, table

inf, nan = float("inf"), float("nan")
LN2, LN10 = 0.6931471805599453, 2.302585092994046
ANY = Interval(-3, 3)
POSITIVE = Interval(0.3, 3)
UNIT = Interval(-0.9, 0.9)

# -- exponentials and logarithms ------------------------------------------------------------------------------------
EXP = Elementwise(
    name="exp",
    infer=FLOAT,
    numpy=np.exp,
    sympy=lambda sp, x: sp.exp(x),
    partials=lambda m, out, x: (out,),
    lower=Libm("exp"),
    domain=(ANY,),
    singular=True,
    edges=(
        Edge(at=(-inf,), value=0.0, partials=(0.0,), why="flat"),
        Edge(at=(800.0,), value=inf, partials=(inf,), why="overflow"),
    ),
)
EXP2 = Elementwise(
    name="exp2",
    infer=FLOAT,
    numpy=np.exp2,
    sympy=lambda sp, x: sp.Integer(2) ** x,
    partials=lambda m, out, x: (out * LN2,),
    lower=Libm("exp2"),
    domain=(ANY,),
    singular=True,
)
EXPM1 = Elementwise(
    name="expm1",
    infer=FLOAT,
    numpy=np.expm1,
    sympy=lambda sp, x: sp.exp(x) - 1,
    partials=lambda m, out, x: (m.exp(x),),  # out + 1 would lose the digits of a very negative x
    lower=Libm("expm1"),
    domain=(ANY,),
    singular=True,
)
_LOG_EDGES = (
    Edge(at=(0.0,), value=-inf, partials=(inf,), why="one-sided slope"),
    Edge(at=(-0.0,), value=-inf, partials=(inf,), why="the same point"),
    Edge(at=(-1.0,), value=nan, partials=(nan,), why="no value, no slope"),
)
LOG = Elementwise(
    name="log",
    infer=FLOAT,
    numpy=np.log,
    sympy=lambda sp, x: sp.log(x),
    partials=lambda m, out, x: (_where_defined(m, x, 1 / (x + 0.0)),),  # + 0.0: the slope at -0.0 is that at 0.0
    lower=Libm("log"),
    domain=(POSITIVE,),
    singular=True,
    edges=_LOG_EDGES,
)


def _where_defined(m: Any, x: Any, slope: Any) -> Any:
    """The slope where ``x >= 0`` or NaN; NaN below, where the function has no value. As a factor, which derivatives keep."""
    return slope * m.select(m.lt(x, 0), m.like(x, nan), m.like(x, 1))


LOG2 = Elementwise(
    name="log2",
    infer=FLOAT,
    numpy=np.log2,
    sympy=lambda sp, x: sp.log(x) / sp.log(2),
    partials=lambda m, out, x: (_where_defined(m, x, 1 / (x * LN2 + 0.0)),),
    lower=Libm("log2"),
    domain=(POSITIVE,),
    singular=True,
    edges=_LOG_EDGES,
)
LOG10 = Elementwise(
    name="log10",
    infer=FLOAT,
    numpy=np.log10,
    sympy=lambda sp, x: sp.log(x) / sp.log(10),
    partials=lambda m, out, x: (_where_defined(m, x, 1 / (x * LN10 + 0.0)),),
    lower=Libm("log10"),
    domain=(POSITIVE,),
    singular=True,
    edges=_LOG_EDGES,
)
LOG1P = Elementwise(
    name="log1p",
    infer=FLOAT,
    numpy=np.log1p,
    sympy=lambda sp, x: sp.log(1 + x),
    partials=lambda m, out, x: (_where_defined(m, 1 + x, 1 / (1 + x)),),
    lower=Libm("log1p"),
    domain=(POSITIVE,),
    singular=True,
    edges=(
        Edge(at=(-1.0,), value=-inf, partials=(inf,), why="one-sided slope"),
        Edge(at=(-2.0,), value=nan, partials=(nan,), why="no value, no slope"),
    ),
)


def _expand_logaddexp(m: Any, x: Any, y: Any) -> Any:
    """The larger, plus what the smaller adds to it. Equal infinities add up to themselves, not to NaN."""
    larger = m.maximum(x, y)
    step = m.log1p(m.exp(-m.float_abs(x - y)))
    return m.select(m.eq(x, y), x + LN2, larger + step)


LOGADDEXP = Elementwise(
    name="logaddexp",
    infer=FLOAT,
    numpy=np.logaddexp,
    sympy=lambda sp, x, y: sp.log(sp.exp(x) + sp.exp(y)),
    partials=lambda m, out, x, y: (_share(m, x, y), _share(m, y, x)),
    lower=Compose(_expand_logaddexp),
    domain=(ANY, ANY),
    edges=(
        Edge(at=(0.0, 800.0), value=800.0, partials=(0.0, 1.0), why="no overflow"),
        Edge(at=(-inf, -inf), value=-inf, partials=(0.0, 0.0), why="all terms are zero"),
        Edge(at=(-inf, 1.0), value=1.0, partials=(0.0, 1.0), why="a term that is zero"),
        Edge(at=(-inf, nan), value=nan, partials=(nan, nan), why="NaN is not hidden by it"),
    ),
)


def _share(m: Any, x: Any, y: Any) -> Any:
    """exp(x) / (exp(x) + exp(y)), and 0 for a term that is zero.

    Only where both are infinite is there a case of its own: one for all ties would have no slope.
    """
    both = m.logical_and(m.eq(x, inf), m.eq(y, inf))
    absent = m.logical_and(m.eq(x, -inf), m.eq(y, y))  # beside NaN the share is NaN
    return m.select(absent, m.like(x, 0), m.select(both, m.like(x, 0.5), m.expit(x - y)))


def _xlogy(x: Any, y: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((np.asarray(x) == 0) & ~np.isnan(y), np.zeros_like(x), x * np.log(y))


XLOGY = Elementwise(  # x log y, and 0 at x = 0
    name="xlogy",
    infer=FLOAT,
    numpy=_xlogy,
    sympy=lambda sp, x, y: x * sp.log(y),
    partials=lambda m, out, x, y: (m.log(y), m.select(m.logical_and(m.eq(x, 0), m.eq(y, 0)), m.like(x, 0), x / y)),
    lower=Compose(lambda m, x, y: m.select(m.logical_and(m.eq(x, 0.0), m.eq(y, y)), 0.0, x * m.log(y))),
    domain=(ANY, POSITIVE),
    singular=True,
    edges=(
        Edge(at=(0.0, 0.0), value=0.0, partials=(-inf, 0.0), why="x log y is 0 for x = 0"),
        Edge(at=(2.0, 0.0), value=-inf, partials=(-inf, inf), why="one-sided slope"),
    ),
)


# -- the logistic function ------------------------------------------------------------------------------------------
def _expit(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + small), np.where(np.isnan(x), x, small / (1 + small)))


def _expand_expit(m: Any, x: Any) -> Any:
    """Without overflow, so that tiny results keep their digits; expit(-x) shares the exponential."""
    small = m.exp(-m.float_abs(x))
    return m.select(m.ge(x, 0.0), 1.0, small) / (1.0 + small)


EXPIT = Elementwise(
    name="expit",
    infer=FLOAT,
    numpy=_expit,
    sympy=lambda sp, x: 1 / (1 + sp.exp(-x)),
    # out (1 - out), where 1 - out is computed from the other side and so keeps its digits
    partials=lambda m, out, x: (out * m.expit(-x),),
    lower=Compose(_expand_expit),
    domain=(ANY,),
    edges=(
        Edge(at=(800.0,), value=1.0, partials=(0.0,), why="saturated"),
        Edge(at=(-800.0,), value=0.0, partials=(0.0,), why="no overflow"),
        Edge(at=(-720.0,), value=float(np.exp(-720.0)), partials=(float(np.exp(-720.0)),), why="a subnormal number, not 0"),
    ),
)
LOG_EXPIT = Elementwise(
    name="log_expit",
    infer=FLOAT,
    numpy=lambda x: -np.logaddexp(0, -x),
    sympy=lambda sp, x: -sp.log(1 + sp.exp(-x)),
    partials=lambda m, out, x: (m.expit(-x),),
    lower=Compose(lambda m, x: -m.logaddexp(m.select(m.eq(x, x), 0.0, 0.0 * x), -x)),
    domain=(ANY,),
    edges=(Edge(at=(-800.0,), value=-800.0, partials=(1.0,), why="no overflow"),),
)


def _logit(x: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.asarray(x)
        return np.where(x < 0.3, np.log(x / (1 - x)), np.log1p((2 * x - 1) / (1 - x))).astype(x.dtype)


def _expand_logit(m: Any, x: Any) -> Any:
    """log(x / (1 - x)), which near x = 1/2 would lose the digits of its zero."""
    other = 1.0 - x
    return m.select(m.lt(x, 0.3), m.log(x / other), m.log1p((2.0 * x - 1.0) / other))


LOGIT = Elementwise(
    name="logit",
    infer=FLOAT,
    numpy=_logit,
    sympy=lambda sp, x: sp.log(x / (1 - x)),
    partials=lambda m, out, x: (_where_defined(m, x * (1 - x), 1 / (x * (1 - x) + 0.0)),),
    lower=Compose(_expand_logit),
    domain=(Interval(0.1, 0.9),),
    singular=True,
    edges=(
        Edge(at=(0.0,), value=-inf, partials=(inf,), why="a pole"),
        Edge(at=(1.0,), value=inf, partials=(inf,), why="a pole"),
        Edge(at=(1.5,), value=nan, partials=(nan,), why="no value, no slope"),
    ),
)

# -- circular -------------------------------------------------------------------------------------------------------
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
TAN = Elementwise(
    name="tan",
    infer=FLOAT,
    numpy=np.tan,
    sympy=lambda sp, x: sp.tan(x),
    partials=lambda m, out, x: (1 + out * out,),
    lower=Libm("tan"),
    domain=(Interval(-1.3, 1.3),),
    singular=True,
)
ARCSIN = Elementwise(
    name="arcsin",
    infer=FLOAT,
    numpy=np.arcsin,
    sympy=lambda sp, x: sp.asin(x),
    partials=lambda m, out, x: (1 / m.sqrt((1 - x) * (1 + x)),),
    lower=Libm("asin"),
    domain=(UNIT,),
    singular=True,
    edges=(Edge(at=(1.0,), value=float(np.arcsin(1.0)), partials=(inf,), why="one-sided slope"),),
)
ARCCOS = Elementwise(
    name="arccos",
    infer=FLOAT,
    numpy=np.arccos,
    sympy=lambda sp, x: sp.acos(x),
    partials=lambda m, out, x: (-1 / m.sqrt((1 - x) * (1 + x)),),
    lower=Libm("acos"),
    domain=(UNIT,),
    singular=True,
    edges=(Edge(at=(1.0,), value=0.0, partials=(-inf,), why="one-sided slope"),),
)
ARCTAN = Elementwise(
    name="arctan",
    infer=FLOAT,
    numpy=np.arctan,
    sympy=lambda sp, x: sp.atan(x),
    partials=lambda m, out, x: (1 / (1 + x * x),),
    lower=Libm("atan"),
    domain=(ANY,),
)


def _arctan2_partials(m: Any, out: Any, y: Any, x: Any) -> tuple[Any, Any]:
    """x / r**2 and -y / r**2, divided by r twice, so that neither overflows nor underflows too early."""
    r = m.hypot(x, y)
    return (x / r) / r, -((y / r) / r)


ARCTAN2 = Elementwise(
    name="arctan2",
    infer=FLOAT,
    numpy=np.arctan2,
    sympy=lambda sp, y, x: sp.atan2(y, x),
    partials=_arctan2_partials,
    lower=Libm("atan2"),
    domain=(ANY, POSITIVE),
    singular=True,
    edges=(
        Edge(at=(0.005, 0.0), value=float(np.arctan2(0.005, 0.0)), partials=(0.0, -200.0), why="on the axis"),
        Edge(at=(0.0, -2.0), value=float(np.pi), partials=(-0.5, 0.0), why="the upper side of the cut"),
        Edge(at=(-0.0, -2.0), value=float(-np.pi), partials=(-0.5, 0.0), why="the lower side of the cut"),
        Edge(at=(3e200, 4e200), value=float(np.arctan2(3.0, 4.0)), partials=(1.6e-201, -1.2e-201), why="no overflow"),
        Edge(at=(0.0, 0.0), value=0.0, partials=(nan, nan), why="every angle meets here"),
    ),
)

# -- hyperbolic -----------------------------------------------------------------------------------------------------
SINH = Elementwise(
    name="sinh",
    infer=FLOAT,
    numpy=np.sinh,
    sympy=lambda sp, x: sp.sinh(x),
    partials=lambda m, out, x: (m.cosh(x),),
    lower=Libm("sinh"),
    domain=(ANY,),
    singular=True,
)
COSH = Elementwise(
    name="cosh",
    infer=FLOAT,
    numpy=np.cosh,
    sympy=lambda sp, x: sp.cosh(x),
    partials=lambda m, out, x: (m.sinh(x),),
    lower=Libm("cosh"),
    domain=(ANY,),
    singular=True,
)


def _tanh_slope(m: Any, x: Any) -> Any:
    """4 e / (1 + e)**2 with e = exp(-2|x|): every digit, where 1 - tanh**2 cancels for large x."""
    e = m.exp(-2 * m.abs(x))
    return 4 * e / ((1 + e) * (1 + e))


TANH = Elementwise(
    name="tanh",
    infer=FLOAT,
    numpy=np.tanh,
    sympy=lambda sp, x: sp.tanh(x),
    partials=lambda m, out, x: (m.sech2(x),),
    lower=Libm("tanh"),
    domain=(ANY,),
    edges=(Edge(at=(400.0,), value=1.0, partials=(0.0,), why="saturated"),),
)
SECH2 = Elementwise(  # the slope of tanh
    name="sech2",
    infer=FLOAT,
    numpy=lambda x: np.asarray(4 * np.exp(-2 * np.abs(x)) / (1 + np.exp(-2 * np.abs(x))) ** 2, np.asarray(x).dtype),
    sympy=lambda sp, x: 1 - sp.tanh(x) ** 2,
    partials=lambda m, out, x: (-2 * out * m.tanh(x),),
    lower=Compose(_tanh_slope),
    domain=(ANY,),
)
ARCSINH = Elementwise(
    name="arcsinh",
    infer=FLOAT,
    numpy=np.arcsinh,
    sympy=lambda sp, x: sp.asinh(x),
    partials=lambda m, out, x: (1 / m.hypot(x, m.like(x, 1)),),
    lower=Libm("asinh"),
    domain=(ANY,),
)
ARCCOSH = Elementwise(
    name="arccosh",
    infer=FLOAT,
    numpy=np.arccosh,
    sympy=lambda sp, x: sp.acosh(x),
    partials=lambda m, out, x: (1 / (m.sqrt(x - 1) * m.sqrt(x + 1)),),
    lower=Libm("acosh"),
    domain=(Interval(1.2, 4),),
    singular=True,
    edges=(Edge(at=(1.0,), value=0.0, partials=(inf,), why="one-sided slope"),),
)
ARCTANH = Elementwise(
    name="arctanh",
    infer=FLOAT,
    numpy=np.arctanh,
    sympy=lambda sp, x: sp.atanh(x),
    partials=lambda m, out, x: (_where_defined(m, (1 - x) * (1 + x), 1 / ((1 - x) * (1 + x) + 0.0)),),
    lower=Libm("atanh"),
    domain=(UNIT,),
    singular=True,
    edges=(
        Edge(at=(1.0,), value=inf, partials=(inf,), why="a pole"),
        Edge(at=(-1.0,), value=-inf, partials=(inf,), why="a pole"),
        Edge(at=(2.0,), value=nan, partials=(nan,), why="no value, no slope"),
    ),
)

OPS = table(
    *(EXP, EXP2, EXPM1, LOG, LOG2, LOG10, LOG1P, LOGADDEXP, XLOGY, EXPIT, LOG_EXPIT, LOGIT),
    *(SIN, COS, TAN, ARCSIN, ARCCOS, ARCTAN, ARCTAN2),
    *(SINH, COSH, TANH, SECH2, ARCSINH, ARCCOSH, ARCTANH),
)
