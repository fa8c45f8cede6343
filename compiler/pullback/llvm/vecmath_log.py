"""log, log1p, log2, log10 and the inverse hyperbolic functions.

x = 2**e m with sqrt(1/2) <= m < sqrt(2), f = m - 1, s = f / (2 + f): log m = 2 atanh(s) = 2s + s R(s**2) and 2s = f - s f, so
that log m = f - s (f - R), where all rounding errors but the last are small against the result (Muller, Elementary
Functions, 3rd edition, 4.2; Tang, Table-driven implementation of the logarithm function, 1990).
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import WIDE, Code, Val, inf, nan


@dataclass(frozen=True, slots=True)
class Split:
    """x = 2**e m."""

    e: Val
    m: Val
    unscaled: Val  # the bits of 2**e, less those of 1


def split(m: Code, x: Val, subnormal: bool = True) -> Split:
    """Of a positive, finite number; whatever for others."""
    form = m.format
    one = form.bias << form.fraction
    bottom = _bits_of_root_half(m)
    magic = form.fraction + form.bias << form.fraction  # the number 2**fraction, into which whole numbers are or-ed
    shift: Val | float = 2.0**form.fraction + form.bias
    if subnormal:
        small = x < form.least
        x = m.select(small, x * 2.0 ** (form.fraction + 2), x)
        shift = m.select(small, 2.0**form.fraction + form.bias + form.fraction + 2, shift)
    bits = m.bits(x) + (one - bottom)
    e = m.number((bits >> form.fraction) | magic) - shift
    fraction = (bits & ((1 << form.fraction) - 1)) + bottom
    return Split(e, m.number(fraction), m.bits(x) - fraction)


def _bits_of_root_half(m: Code) -> int:
    return 0x3FE6A09E667F3BCD if m.format.fraction == 52 else 0x3F3504F3


def _small_part(m: Code, f: Val, d: Val) -> Val:
    """s (f - R): what log(1 + f) is less than f; d = 2 + f."""
    s = f / d
    z = s * s
    return s * m.fma(-z, m.poly(tables.LOG[m.format.name].r, z), f)


def _sum(m: Code, e: Val, f: Val, d: Val, scale: Val) -> Val:
    """e log 2 + log(1 + f), where d = 2 + f; with another ``scale`` than e, whatever that says."""
    k = tables.LOG[m.format.name]
    s = f / d
    z = s * s
    rest = m.fma(-z, m.poly(k.r, z), f)
    return m.fma(scale, k.ln2[0], f - m.fma(s, rest, e * -k.ln2[1]))


def _scale(m: Code, x: Val, e: Val) -> Val:
    """e, or what makes the logarithm of x NaN or infinite: NaN and infinity are themselves, 0 is a pole, and there is none of
    what is less (by the sign, which vectors need not compare). So early, nothing waits for it."""
    e = m.select(x < inf, e, x)
    e = m.select(m.negative(x), nan, e)
    return m.select(m.eq(x, 0.0), -inf, e)


def logarithm(m: Code, x: Val) -> Val:
    parts = split(m, x, subnormal=m.format is not WIDE)
    return _sum(m, parts.e, parts.m - 1.0, parts.m + 1.0, _scale(m, x, parts.e))


def _log_of_sum(m: Code, u: Val, error: Val, more: Val | None = None) -> Val:
    """log(u + error), plus ``more`` times log 2, for the sum u of 1 and something, and its error."""
    form = m.format
    parts = split(m, m.at_least(u, m.format.tiny), subnormal=False)  # for numbers that are not positive, whatever is finite
    twice = m.number(((form.bias + 1) << form.fraction) - parts.unscaled)  # twice 2**-e, which may itself be out of range
    half = 0.5 * error
    f, d = m.fma(half, twice, parts.m - 1.0), m.fma(half, twice, parts.m + 1.0)
    e = parts.e if more is None else parts.e + more
    return _sum(m, e, f, d, _scale(m, u, e))


def log1p(m: Code, x: Val) -> Val:
    """The error of 1 + x is exact also where x is the larger one, since 1 is a multiple of the last place or lost."""
    u, error = m.quick_sum(1.0, x)
    error = m.select(error < 1.0, error, 1.0)  # of an infinite sum it is NaN
    return m.select(m.eq(u, 1.0), x, _log_of_sum(m, u, error))


def _log_to_base(m: Code, x: Val, base: tuple[float, float], two: tuple[float, float]) -> Val:
    """With all digits, so that the logarithms of powers of the base are exact. ``base``: 1 / log(base) in two parts; ``two``:
    the logarithm of 2, the first part short."""
    parts = split(m, x)
    f = parts.m - 1.0
    less = _small_part(m, f, parts.m + 1.0)
    high = f - less
    low = (f - high) - less
    product, error = m.two_product(high, m.const(base[0]))
    error = m.fma(high, base[1], m.fma(low, base[0], error))
    if two[1]:
        error = m.fma(parts.e, two[1], error)
    total, lost = m.quick_sum(parts.e * two[0] if two[0] != 1.0 else parts.e, product)
    return total + (lost + (error + _scale(m, x, m.const(0.0))))


def log2(m: Code, x: Val) -> Val:
    return _log_to_base(m, x, tables.LOG[m.format.name].log2e, (1.0, 0.0))


def log10(m: Code, x: Val) -> Val:
    k = tables.LOG[m.format.name]
    return _log_to_base(m, x, k.log10e, k.log10_2)


def asinh(m: Code, x: Val) -> Val:
    """log(1 + y) with y = a + a**2 / (1 + sqrt(1 + a**2)), a = abs(x); for large a, log(2a)."""
    a = m.fabs(x)
    square = a * a
    y = a + square / (1.0 + m.sqrt(1.0 + square))
    value = _log_or_twice(m, a, y)
    return m.copysign(m.select(a < m.format.tiny, a, value), x)


def _log_or_twice(m: Code, a: Val, y: Val) -> Val:
    """log(1 + y); log(2a) for large a, where y may have overflowed."""
    large = a > 2.0 ** (m.format.fraction // 2 + 2)
    u, error = m.quick_sum(1.0, y)
    return _log_of_sum(m, m.select(large, a, u), m.select(large, 0.0, error), m.select(large, 1.0, 0.0))


def acosh(m: Code, x: Val) -> Val:
    """log(1 + y) with y = t + sqrt(2t + t**2), t = x - 1."""
    t = x - 1.0
    value = _log_or_twice(m, x, t + m.sqrt(m.fma(t, t, 2.0 * t)))
    return m.select(x < 1.0, nan, value)


def atanh(m: Code, x: Val) -> Val:
    """log(1 + 2a / (1 - a)) / 2, a = abs(x)."""
    a = m.fabs(x)
    y = (2.0 * a) / (1.0 - a)
    value = 0.5 * _log_of_sum(m, *m.quick_sum(1.0, y))
    value = m.select(a < m.format.tiny, a, m.select(m.eq(a, 1.0), inf, value))
    return m.copysign(m.select(a <= 1.0, value, nan), x)


FUNCTIONS = {
    "log": logarithm,
    "log1p": log1p,
    "log2": log2,
    "log10": log10,
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
}
