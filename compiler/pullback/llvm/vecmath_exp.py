"""exp, expm1, exp2 and the hyperbolic functions.

x = k log 2 + r with a whole number k and abs(r) <= log(2)/2; log 2 is subtracted in two parts, of which the first has trailing
zeros, so that its product with k is exact (Cody and Waite, Software Manual for the Elementary Functions). Then
exp x = 2**k (1 + p) with p = exp(r) - 1 = r + r**2 Q(r), Q minimax. 2**k is multiplied in two steps, since it may be out of
range where the result is not, and so that subnormal results are rounded, not lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import WIDE, Code, Val, inf


@dataclass(frozen=True, slots=True)
class Reduced:
    """exp x = 2**k (1 + p). ``count`` holds k in its low bits, above twice the exponent's bias."""

    count: Val
    p: Val
    k: Val


def reduced(m: Code, x: Val, lowest: float | None = -inf, highest: float | None = inf, low: Val | None = None) -> Reduced:
    """Of ``x + low``. Beyond the ends of the range x is moved to where the result is 0 or infinite; None: not needed."""
    e = tables.EXP[m.format.name]
    if highest is not None:
        x = m.at_most(x, e.highest if highest == inf else highest)
    if lowest is not None:
        x = m.at_least(x, e.lowest if lowest == -inf else lowest)
    count, k = _nearest(m, x, e.log2e)
    r = m.fma(k, -e.ln2[0], x)
    r = m.fma(k, -e.ln2[1], r) if low is None else r + m.fma(k, -e.ln2[1], low)
    return Reduced(count, _expm1_small(m, r), k)


def _nearest(m: Code, x: Val, factor: float) -> tuple[Val, Val]:
    shifter = m.format.shifter + 2 * m.format.bias
    shifted = m.fma(x, factor, shifter)
    return m.bits(shifted), shifted - shifter


def _expm1_small(m: Code, r: Val) -> Val:
    square = r * r
    return m.fma(square, m.poly(tables.EXP[m.format.name].q, r, square), r)


def scales(m: Code, count: Val) -> tuple[Val, Val]:
    """Two powers of two whose product is 2**k, both in range."""
    half = count >> 1
    return m.number(half << m.format.fraction), m.number((count - half) << m.format.fraction)


def scale(m: Code, count: Val, less: int = 0) -> Val:
    """2**(k - less), which is in range."""
    return m.number((count - (m.format.bias + less)) << m.format.fraction)


def scaled(m: Code, e: Reduced, factor: Val | None = None) -> Val:
    """exp x, times a factor."""
    if m.format is WIDE:  # where no power is out of range
        first, second = scale(m, e.count), None
    else:
        first, second = scales(m, e.count)
    if factor is not None:
        first = first * factor
    value = m.fma(first, e.p, first)
    return value if second is None else value * second


def exp(m: Code, x: Val) -> Val:
    return scaled(m, reduced(m, x))


def exp2(m: Code, x: Val) -> Val:
    """k is the nearest whole number; what is left is exact."""
    e = tables.EXP[m.format.name]
    x = m.at_least(m.at_most(x, e.highest2), e.lowest2)
    count, k = _nearest(m, x, 1.0)
    return scaled(m, Reduced(count, _expm1_small(m, (x - k) * (e.ln2[0] + e.ln2[1])), k))


def expm1(m: Code, x: Val) -> Val:
    """2**k p + (2**k - 1), all of it halved since 2**k may be out of range."""
    e = reduced(m, x, lowest=-40.0)
    half = scale(m, e.count, 1)
    value = 2.0 * m.fma(half, e.p, half - 0.5)
    return m.select(m.fabs(x) < m.format.tiny, x, value)


def tanh(m: Code, x: Val) -> Val:
    """-d / (2 + d) with d = exp(-2 abs(x)) - 1. The exponential is the one of the slope, so that the two share it."""
    e = reduced(m, -2.0 * m.fabs(x))
    first, second = scales(m, e.count)
    power = first * second
    d = m.fma(power, e.p, power - 1.0)
    return m.copysign(d / (2.0 + d), x)


def sinh(m: Code, x: Val) -> Val:
    """2 (g + g / (4g + 1)) with g = (exp(abs(x)) - 1) / 4."""
    size = m.fabs(x)
    e = reduced(m, size, lowest=None, highest=tables.EXP[m.format.name].highest_half)
    quarter = scale(m, e.count, 2)
    g = m.fma(quarter, e.p, quarter - 0.25)
    value = m.select(size < m.format.tiny, size, 2.0 * (g + g / m.fma(4.0, g, 1.0)))
    return m.copysign(value, x)


def cosh(m: Code, x: Val) -> Val:
    """2 (g + 1 / (16 g)) with g = exp(abs(x)) / 4."""
    e = reduced(m, m.fabs(x), lowest=None, highest=tables.EXP[m.format.name].highest_half)
    quarter = scale(m, e.count, 2)
    g = m.fma(quarter, e.p, quarter)
    return 2.0 * (g + 0.0625 / g)


FUNCTIONS = {"exp": exp, "exp2": exp2, "expm1": expm1, "tanh": tanh, "sinh": sinh, "cosh": cosh}
