"""Special functions: error functions, the gamma family, sinc."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from pullback.ir.ops.base import FLOAT, Compose, Edge, Elementwise, Interval, Libm, table

inf, nan = float("inf"), float("nan")
ANY = Interval(-3, 3)
TWO_OVER_ROOT_PI = 1.1283791670955126


def _scipy(name: str) -> Any:
    """A function of scipy.special, which is loaded when it is first used."""

    def function(*args: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*args)

    return function


# -- error functions ------------------------------------------------------------------------------------------------
ERF = Elementwise(
    name="erf",
    infer=FLOAT,
    numpy=_scipy("erf"),
    sympy=lambda sp, x: sp.erf(x),
    partials=lambda m, out, x: (TWO_OVER_ROOT_PI * m.exp(-(x * x)),),
    lower=Libm("erf"),
    domain=(ANY,),
)
ERFC = Elementwise(
    name="erfc",
    infer=FLOAT,
    numpy=_scipy("erfc"),
    sympy=lambda sp, x: sp.erfc(x),
    partials=lambda m, out, x: (-TWO_OVER_ROOT_PI * m.exp(-(x * x)),),
    lower=Libm("erfc"),
    domain=(ANY,),
)

# -- gamma ----------------------------------------------------------------------------------------------------------
GAMMALN = Elementwise(  # log |gamma(x)|
    name="gammaln",
    infer=FLOAT,
    numpy=_scipy("gammaln"),
    sympy=lambda sp, x: sp.loggamma(x),
    partials=lambda m, out, x: (m.polygamma_n(x, order=0),),
    lower=Libm("lgamma"),
    domain=(Interval(0.3, 9),),
    singular=True,
    edges=(
        Edge(at=(0.0,), value=inf, partials=(-inf,), why="one-sided slope"),
        Edge(at=(-1.0,), value=inf, partials=(nan,), why="the slopes of the two sides differ"),
    ),
)
GAMMA = Elementwise(
    name="gamma",
    infer=FLOAT,
    numpy=_scipy("gamma"),
    sympy=lambda sp, x: sp.gamma(x),
    partials=lambda m, out, x: (out * m.polygamma_n(x, order=0),),
    lower=Libm("tgamma"),
    domain=(Interval(0.3, 5),),
    singular=True,
)

# Note [Polygamma]
# psi_n(x) = (-1)**(n+1) n! sum_k (x + k)**-(n+1) for n >= 1 (Abramowitz and Stegun 6.4.10), and digamma for n = 0. The first
# SHIFT terms are summed, the rest comes from the asymptotic series at x + SHIFT (6.3.18, 6.4.11) with the Bernoulli numbers
# B_2 .. B_20. Below REFLECT the reflection formula (6.4.7) is used, whose derivatives of cot(pi x) are polynomials in it.
SHIFT = 10
REFLECT = 0.0
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


@functools.cache
def _cot_derivative(order: int) -> tuple[float, ...]:
    """The coefficients, from the constant up, of d**order/dx**order cot(x) as a polynomial in cot(x); cot' = -(1 + cot**2)."""
    if order == 0:
        return (0.0, 1.0)
    before = _cot_derivative(order - 1)
    found = [0.0] * (len(before) + 1)
    for power, coefficient in enumerate(before):
        if power:
            found[power - 1] -= power * coefficient
            found[power + 1] -= power * coefficient
    return tuple(found)


def _horner(coefficients: tuple[float, ...], x: Any) -> Any:
    total: Any = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _polygamma_positive(m: Any, x: Any, order: int) -> Any:
    """For x > 0."""
    if order == 0:
        return _digamma_positive(m, x)
    n = order
    sign = 1.0 if n % 2 else -1.0  # of (-1)**(n+1)
    head: Any = 0.0
    for k in range(SHIFT):
        head = head + 1.0 / m.powi(x + float(k), exponent=n + 1)
    z = x + float(SHIFT)
    inverse = 1.0 / z
    square = inverse * inverse
    scale = math.factorial(n)
    series = tuple(b * math.factorial(2 * k + n - 1) / math.factorial(2 * k) for k, b in enumerate(BERNOULLI, 1))
    leading = math.factorial(n - 1) * m.powi(inverse, exponent=n) + 0.5 * scale * m.powi(inverse, exponent=n + 1)
    tail = leading + m.powi(inverse, exponent=n + 2) * _horner(series, square)
    return sign * (scale * head + tail)


def _digamma_positive(m: Any, x: Any) -> Any:
    """The terms of the first SHIFT steps, two by two from both ends, are (2 x + s) / (y + k (s - k)) with s = SHIFT - 1 and
    y = x (x + s): their sum is one fraction, whose parts are positive. It is for small x only, where it does not overflow."""
    last = float(SHIFT - 1)
    small = m.lt(x, 16.0)
    near = m.select(small, x, 0.5)
    y = near * (near + last)
    over: Any = 1.0
    under = y
    for k in range(1, SHIFT // 2):
        term = y + k * (last - k)
        over = over * term + under
        under = under * term
    head = m.select(small, (2.0 * near + last) * over / under, 0.0)
    z = m.select(small, x + float(SHIFT), x)
    inverse = 1.0 / z
    square = inverse * inverse
    series = tuple(-b / (2 * k) for k, b in enumerate(BERNOULLI, 1))
    return m.log(z) - 0.5 * inverse + square * _horner(series, square) - head


def _pole(m: Any, x: Any, order: int) -> Any:
    """The value at 0, -1, ...: infinite where both sides agree and at 0, whose sign tells the side; as in SciPy."""
    return inf if order % 2 else m.select(m.eq(x, 0.0), m.copysign(m.like(x, inf), -x), nan)


def _expand_polygamma(m: Any, x: Any, order: int) -> Any:
    positive = m.gt(x, REFLECT)
    inside = m.select(positive, x, 1.0 - x)
    value = _polygamma_positive(m, inside, order)
    # psi_n(1 - x) + (-1)**(n+1) psi_n(x) = (-1)**n pi d**n/dx**n cot(pi x); the argument is reduced to keep tan's digits
    turned = x - m.rint(x)
    cot = 1.0 / m.tan(math.pi * turned)
    flip = 1.0 if order % 2 == 0 else -1.0
    reflected = flip * value - math.pi ** (order + 1) * _horner(_cot_derivative(order), cot)
    at_pole = m.logical_and(m.eq(x, m.floor(x)), m.le(x, 0.0))
    return m.select(positive, value, m.select(at_pole, _pole(m, x, order), reflected))


def _polygamma(x: Any, order: int) -> Any:
    """SciPy's digamma; its polygamma is for x > 0 only, so below 0 the reflection is done here."""
    import scipy.special

    x = np.asarray(x)
    if order == 0:
        return np.asarray(scipy.special.digamma(x), x.dtype)
    with np.errstate(all="ignore"):
        inside = np.where(x > 0, x, 1 - x)
        value = scipy.special.polygamma(order, inside)
        cot = 1 / np.tan(np.pi * (x - np.rint(x)))
        reflected = (-1) ** order * value - math.pi ** (order + 1) * _horner(_cot_derivative(order), cot)
        at_pole = (x <= 0) & (x == np.floor(x))
        return np.where(x > 0, value, np.where(at_pole, _pole(_NumPy, x, order), reflected)).astype(x.dtype)


POLYGAMMA_N = Elementwise(  # attrs: order; 0 is digamma
    name="polygamma_n",
    infer=FLOAT,
    numpy=_polygamma,
    sympy=lambda sp, x, order: sp.polygamma(order, x),
    partials=lambda m, out, x, order: (m.polygamma_n(x, order=order + 1),),
    lower=Compose(_expand_polygamma),
    domain=(Interval(0.3, 9),),
    singular=True,
    samples=tuple((("f64[3]",), {"order": n}) for n in range(4)),
    edges=(Edge(at=(0.0,), value=-inf, partials=(inf,), why="one-sided slope", attrs={"order": 0}),),
)

# Note [Sinc]
# sinc_n(x) is the n-th derivative of sin(pi x)/(pi x). With u = pi x and f(u) = sin(u)/u it is pi**n f_n(u), and f_n satisfies
# u f_n(u) + n f_(n-1)(u) = sin(u + n pi/2) (Leibniz on u f = sin u). Forwards that loses digits for small u, where the Taylor
# series f_n(u) = sum_k (-1)**k u**(2k-n) (2k)!/(2k-n)!/(2k+1)! is summed instead.
SINC_TERMS = 18


def _sinc_radius(order: int) -> float:
    """Below this |u| the series is used; the recurrence loses about order log10(order/|u|) digits above it."""
    return 1.0 + 1.2 * order


def _sinc_series(order: int) -> tuple[int, tuple[float, ...]]:
    """The lowest power of u (0 or 1) and the coefficients in u**2."""
    first = (order + 1) // 2
    terms = []
    for k in range(first, first + SINC_TERMS + order):
        exact = math.factorial(2 * k) / math.factorial(2 * k - order) / math.factorial(2 * k + 1)
        terms.append((-1.0) ** k * exact)
    return 2 * first - order, tuple(terms)


def _expand_sinc(m: Any, x: Any, order: int) -> Any:
    u = x * math.pi
    small = m.lt(m.float_abs(u), _sinc_radius(order))
    lowest, terms = _sinc_series(order)
    near = m.select(small, u, 0.0)
    series = _horner(terms, near * near)
    if lowest:
        series = series * near
    far = m.select(small, 1.0, u)
    # sin(pi x) and cos(pi x) of what is left of the nearest whole number, which keeps the digits at sinc's zeros
    whole = m.rint(x)
    angle = math.pi * (x - whole)
    odd = whole - 2.0 * m.rint(0.5 * whole)
    flip = 1.0 - 2.0 * odd * odd
    sine = flip * m.sin(angle)
    value = sine / far
    if order:
        cosine = flip * m.cos(angle)
        turned = (sine, cosine, -sine, -cosine)
        for k in range(1, order + 1):
            value = (turned[k % 4] - float(k) * value) / far
    return m.select(small, series, value) * math.pi**order


class _NumPy:
    """What ``_expand_sinc`` and ``_pole`` ask of their namespace."""

    lt, eq, float_abs, rint, sin, cos, copysign = np.less, np.equal, np.abs, np.rint, np.sin, np.cos, np.copysign
    like = np.full_like

    @staticmethod
    def select(condition: Any, yes: Any, no: Any) -> Any:
        return np.where(condition, yes, no)


def _sinc(x: Any, order: int) -> Any:
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return np.asarray(_expand_sinc(_NumPy, x, order), x.dtype)


def _sympy_sinc(sp: Any, x: Any, order: int) -> Any:
    """By Leibniz' rule for sin(pi x) * 1/(pi x); for numbers as well as for symbols."""
    if x == 0:
        return sp.Integer(0) if order % 2 else (-1) ** (order // 2) * sp.pi**order / (order + 1)
    terms = []
    for k in range(order + 1):
        wave = sp.pi ** (order - k) * sp.sin(sp.pi * x + (order - k) * sp.pi / 2)
        terms.append(math.comb(order, k) * wave * (-1) ** k * math.factorial(k) / x ** (k + 1))
    return sp.Add(*terms) / sp.pi


SINC_N = Elementwise(  # attrs: order, how often np.sinc was differentiated
    name="sinc_n",
    infer=FLOAT,
    numpy=_sinc,
    sympy=_sympy_sinc,
    partials=lambda m, out, x, order: (m.sinc_n(x, order=order + 1),),
    lower=Compose(_expand_sinc),
    domain=(Interval(0.2, 3),),
    samples=tuple((("f64[3]",), {"order": n}) for n in range(4)),
    edges=(
        Edge(at=(0.0,), value=1.0, partials=(0.0,), why="the removable singularity", attrs={"order": 0}),
        Edge(at=(0.0,), value=0.0, partials=(-(math.pi**2) / 3,), why="its slope", attrs={"order": 1}),
        Edge(at=(0.0,), value=-(math.pi**2) / 3, partials=(0.0,), why="its curvature", attrs={"order": 2}),
        Edge(at=(0.0,), value=0.0, partials=(math.pi**4 / 5,), why="its third derivative", attrs={"order": 3}),
        Edge(at=(2.0,), value=0.0, partials=(0.5,), why="an exact zero", attrs={"order": 0}),
    ),
)

OPS = table(ERF, ERFC, GAMMALN, GAMMA, POLYGAMMA_N, SINC_N)
