"""sin, cos and tan.

x = k pi/2 + r with a whole number k and abs(r) <= pi/4, where pi/2 is subtracted in parts: with a fused multiply-add the first
difference is exact, and three parts of full length serve up to ``reach``; otherwise the parts are short, so that their
products with k are exact, which holds up to a smaller reach (Cody and Waite; Muller, Elementary Functions, 3rd edition,
11.2). Beyond that the C library's function is called, which is the slow case of Note [Vector math]. Sine and cosine of one
argument share all but the last operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import F64, Code, Format, Val


def reach(form: Format, fused: bool) -> float:
    """Up to where the reduction keeps all digits."""
    if form is F64:
        return 2.0**36 if fused else 2.0**20
    return 2.0**18 if fused else 2.0**11


def outside(m: Code, x: Val) -> Val:
    return m.fabs(x) > reach(m.format, m.fused)


@dataclass(frozen=True, slots=True)
class Turned:
    """abs(x) = k pi/2 + r + low. ``count`` holds k in its low bits."""

    count: Val
    r: Val
    low: Val | None


def _turned(m: Code, size: Val, precise: bool) -> Turned:
    t = tables.TRIG[m.format.name]
    shifted = m.fma(size, 2.0 * t.inverse_pi, m.format.shifter)
    k = shifted - m.format.shifter
    *parts, middle, last = [-0.5 * p for p in (t.pi if m.fused else t.pi_short)]
    r = size
    for part in parts:
        r = m.fma(k, part, r)
    if not precise:
        return Turned(m.bits(shifted), m.fma(k, last, m.fma(k, middle, r)), None)
    product = k * middle
    r, low = m.two_sum(r, product)  # either may be the larger one
    if m.fused:  # otherwise the product is exact
        low = low + m.fma(k, middle, -product)
    return Turned(m.bits(shifted), r, m.fma(k, last, low))


def _sine(m: Code, x: Turned, z: Val) -> Val:
    series = m.poly(tables.TRIG[m.format.name].sin, z)
    if x.low is None:
        return m.fma(x.r * z, series, x.r)
    return x.r + m.fma(x.r * z, series, x.low)


def _cosine(m: Code, x: Turned, z: Val) -> Val:
    """1 - z/2 + ..., where 1 - z/2 = one + lost."""
    series = m.poly(tables.TRIG[m.format.name].cos, z)
    one = m.fma(-0.5, z, 1.0)
    lost = m.fma(-0.5, z, 1.0 - one)
    if x.low is not None:
        lost = m.fma(x.r, -x.low, lost)
    return one + m.fma(z * z, series, lost)


def sincos(m: Code, x: Val) -> tuple[Val, Val]:
    """Of abs(x), so that the sign of zero is kept."""
    size = m.fabs(x)
    turned = _turned(m, size, False)
    z = turned.r * turned.r
    sine, cosine = _sine(m, turned, z), _cosine(m, turned, z)
    odd = m.odd(turned.count)
    first = m.sign_from(m.select(odd, cosine, sine), turned.count >> 1)
    first = m.number(m.bits(first) ^ (m.bits(size) ^ m.bits(x)))
    return first, m.sign_from(m.select(odd, sine, cosine), (turned.count + 1) >> 1)


def sin(m: Code, x: Val) -> Val:
    return sincos(m, x)[0]


def cos(m: Code, x: Val) -> Val:
    return sincos(m, x)[1]


def tan(m: Code, x: Val) -> Val:
    size = m.fabs(x)
    turned = _turned(m, size, True)
    z = turned.r * turned.r
    sine, cosine = _sine(m, turned, z), _cosine(m, turned, z)
    odd = m.odd(turned.count)
    value = m.select(odd, -cosine, sine) / m.select(odd, sine, cosine)
    return m.number(m.bits(value) ^ (m.bits(size) ^ m.bits(x)))


FUNCTIONS = {"sin": sin, "cos": cos, "tan": tan}
