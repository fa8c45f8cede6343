"""asin, acos, atan, atan2, hypot and cbrt.

asin s = s + s**3 P(s**2) for s <= 1/2; beyond, asin x = pi/2 - 2 asin(sqrt((1 - x) / 2)). atan t = t + t**3 Q(t**2) for
t <= tan(pi/8); beyond, the angle is turned by pi/4 or pi/2, which makes one division of other numbers (Cody and Waite).
"""

from __future__ import annotations

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import Code, Number, Val, inf


def _asin_core(m: Code, a: Val) -> tuple[Val, Val, Val]:
    """Whether a > 1/2, then s and s**3 P(s**2) of what is left."""
    outer = a > 0.5
    z = m.select(outer, m.fma(-0.5, a, 0.5), a * a)
    s = m.select(outer, m.sqrt(z), a)
    return outer, s, s * (z * m.poly(tables.INVERSE[m.format.name].asin, z))


def asin(m: Code, x: Val) -> Val:
    high, low = (0.5 * p for p in tables.INVERSE[m.format.name].pi)
    outer, s, rest = _asin_core(m, m.fabs(x))
    outside = m.fma(-2.0, s, high) + m.fma(-2.0, rest, low)
    return m.copysign(m.select(outer, outside, s + rest), x)


def acos(m: Code, x: Val) -> Val:
    high, low = (0.5 * p for p in tables.INVERSE[m.format.name].pi)
    outer, s, rest = _asin_core(m, m.fabs(x))
    signed_s, signed_rest = m.copysign(s, x), m.copysign(rest, x)
    middle = high - (signed_s - (low - signed_rest))
    left = 2.0 * (high - (s + (rest - low)))
    return m.select(outer, m.select(x > 0.0, 2.0 * (s + rest), left), middle)


def _atan_of_quotient(m: Code, a: Val, b: Number) -> Val:
    """The angle of (b, a), neither negative nor NaN."""
    k = tables.INVERSE[m.format.name]
    steep = a > b
    n, d = m.select(steep, b, a), m.select(steep, a, b)
    turned = n > k.tan_pi_8 * d
    t = m.select(turned, n - d, n) / m.select(turned, n + d, d)
    z = t * t
    angle = m.fma(t, z * m.poly(k.atan, z), t)
    high, low = k.pi
    angle = m.select(turned, 0.25 * high + (angle + 0.25 * low), angle)
    return m.select(steep, 0.5 * high - (angle - 0.5 * low), angle)


def atan(m: Code, x: Val) -> Val:
    return m.copysign(_atan_of_quotient(m, m.fabs(x), 1.0), x)


def atan2(m: Code, y: Val, x: Val) -> Val:
    """With the special cases of C's function. Huge numbers are made smaller so that their sum does not overflow, tiny ones
    larger so that comparing them with a product is right."""
    a, b = m.fabs(y), m.fabs(x)
    larger = m.select(a > b, a, b)
    huge, tiny = larger > 2.0 ** (m.format.bias - 3), larger < m.format.least * 2.0**m.format.fraction
    scale = m.select(huge, 0.0625, m.select(tiny, 2.0 ** (m.format.fraction + 4), 1.0))
    a, b = a * scale, b * scale
    both = m.both(m.eq(a, inf), m.eq(b, inf))
    a, b = m.select(both, 1.0, a), m.select(both, 1.0, b)
    b = m.select(m.eq(larger, 0.0), 1.0, b)
    angle = _atan_of_quotient(m, a, b)
    high, low = tables.INVERSE[m.format.name].pi
    angle = m.select(m.negative(x), high - (angle - low), angle)
    return m.select(m.compare("uno", x, y), x + y, m.copysign(angle, y))


def hypot(m: Code, x: Val, y: Val) -> Val:
    """Both are scaled so that no square overflows or loses digits."""
    a, b = m.fabs(x), m.fabs(y)
    swap = a < b
    a, b = m.select(swap, b, a), m.select(swap, a, b)
    reach = m.format.bias // 2 - m.format.fraction
    large, small = a > 2.0**reach, a < 2.0**-reach
    less, more = 2.0 ** -(m.format.bias * 9 // 16), 2.0 ** (m.format.bias * 25 // 32)
    down = m.select(large, less, m.select(small, more, 1.0))
    up = m.select(large, 1 / less, m.select(small, 1 / more, 1.0))
    a, b = a * down, b * down
    value = up * m.sqrt(m.fma(a, a, b * b))
    infinite = m.either(m.eq(m.fabs(x), inf), m.eq(m.fabs(y), inf))
    return m.select(infinite, inf, m.select(m.compare("uno", x, y), x + y, value))


FUNCTIONS = {"asin": asin, "acos": acos, "atan": atan, "atan2": atan2, "hypot": hypot}
