"""pow and cbrt.

x**y = exp(y log abs(x)) with the logarithm and the product in two parts each, so that the exponent, which may be 745, has an
absolute error far below the last place of the result (Muller et al., Handbook of Floating-Point Arithmetic, 2nd edition, 10.5).
"""

from __future__ import annotations

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import F32, Code, Val, inf, nan
from pullback.llvm.vecmath_exp import reduced, scaled
from pullback.llvm.vecmath_log import logarithm, split

GREAT = 2.0**70  # an exponent beyond which the power of whatever is not 1 is 0 or infinite


def _precise_log(m: Code, x: Val) -> tuple[Val, Val]:
    """Of a positive, finite number, as a sum of two."""
    k = tables.POWER[m.format.name]
    parts = split(m, x)
    f = parts.m - 1.0
    d, d_low = m.quick_sum(2.0, f)
    inverse = 1.0 / d
    s = f * inverse
    product, error = m.two_product(s, d)
    s_low = (((f - product) - error) - s * d_low) * inverse
    z, z_low = m.two_product(s, s)
    z_low = m.fma(2.0 * s, s_low, z_low)
    # log m = 2 s + s**3 c, c = 2/3 + z P(z)
    c, c_low = m.quick_sum(k.two_thirds[0], z * m.poly(k.p, z))
    c_low = c_low + k.two_thirds[1]
    cube, cube_low = m.two_product(s, z)
    cube_low = m.fma(s, z_low, m.fma(s_low, z, cube_low))
    u, u_low = m.two_product(cube, c)
    u_low = m.fma(cube, c_low, m.fma(cube_low, c, u_low))
    a, a_low = m.quick_sum(parts.e * k.ln2[0], 2.0 * s)
    b, b_low = m.quick_sum(a, u)
    low = (a_low + b_low) + (m.fma(2.0, s_low, u_low) + parts.e * k.ln2[1])
    return m.quick_sum(b, low)


def _of_size(m: Code, size: Val, y: Val) -> Val:
    """The power of a number that is not negative, whose exponent is finite."""
    if m.format is F32:
        wide = m.wider()
        return m.narrowed(scaled(wide, reduced(wide, m.widened(y) * logarithm(wide, m.widened(size)))))
    high, low = _precise_log(m, size)
    high = m.select(size < inf, high, size)
    high = m.select(m.eq(size, 0.0), -inf, high)
    product, error = m.two_product(y, high)
    error = m.select(m.fabs(product) < 1100.0, m.fma(y, low, error), 0.0)
    return scaled(m, reduced(m, product, low=error))


def pow_(m: Code, x: Val, y: Val) -> Val:
    """With the special cases of C's function. The exponent is bounded, so that its product with log 1 is 0."""
    value = _of_size(m, m.fabs(x), m.at_least(m.at_most(y, GREAT), -GREAT))
    whole, odd = _whole_and_odd(m, m.fabs(y))
    value = m.select(m.both(m.negative(x), odd), -value, value)
    undefined = m.both(m.both(x < 0.0, x > -inf), m.opposite(whole))
    value = m.select(undefined, m.select(m.is_nan(y), y, nan), value)
    return m.select(m.either(m.eq(y, 0.0), m.eq(x, 1.0)), 1.0, value)


def _whole_and_odd(m: Code, size: Val) -> tuple[Val, Val]:
    """Whether a number is whole (an infinite one is), and whether it is odd."""
    limit = 2.0**m.format.fraction
    below = size < limit
    shifted = m.select(below, size + limit, size)
    whole = m.opposite(m.both(below, m.compare("one", shifted - limit, size)))
    return whole, m.both(m.both(m.odd(m.bits(shifted)), whole), size < 2.0 * limit)


def cbrt(m: Code, x: Val) -> Val:
    """x = 2**(3q) m with 0.7 < m < 5.7; a polynomial for the root of m, then one step of Halley's iteration, from a number so
    short that its square is exact."""
    k = tables.POWER[m.format.name]
    size = m.fabs(x)
    parts = split(m, size)
    shifter = m.format.shifter + m.format.bias
    shifted = m.fma(parts.e - 1.0, k.third, shifter)
    rest = m.fma(-3.0, shifted - shifter, parts.e)
    one, two = m.eq(rest, 1.0), m.eq(rest, 2.0)
    guess = m.poly(k.cbrt, parts.m) * m.select(two, k.roots[1], m.select(one, k.roots[0], 1.0))
    t = m.number(m.bits(guess) & k.mask)
    number = parts.m * m.select(two, 4.0, m.select(one, 2.0, 1.0))
    square = t * t
    over = m.fma(square, t, -number)
    root = m.fma(-t, over / m.fma(2.0 * square, t, number), t)
    value = root * m.number(m.bits(shifted) << m.format.fraction)
    return m.select(m.both(size > 0.0, size < inf), m.copysign(value, x), x)


FUNCTIONS = {"pow": pow_, "cbrt": cbrt}
