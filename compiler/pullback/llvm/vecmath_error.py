"""erf and erfc.

Near 0, erf x = x + x P(x**2). Beyond, erfc x = exp(-x**2) w R(w) with w = 1 / (x + K), since exp(x**2) erfc(x) is smooth in w
on the whole half-line (Shepherd and Laframboise, Chebyshev approximation of (1 + 2x) exp(x**2) erfc x, 1981); and all terms of
R that matter are positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import F32, Code, Val
from pullback.llvm.vecmath_exp import reduced, scaled


def _far(m: Code, x: Val, shift: float, coefficients: Sequence[float]) -> Val:
    """exp(x**2) erfc(x). The smaller the shift, the less does the rounding of w matter, and the more coefficients it takes."""
    w = 1.0 / (x + shift)
    return w * m.poly(coefficients, w)


def erf(m: Code, x: Val) -> Val:
    """Where exp(-x**2) R is subtracted from 1, its last digits do not matter."""
    k = tables.ERROR[m.format.name]
    size = m.fabs(x)
    far = m.at_most(size, k.most)  # beyond, the value is 1
    rest = _far(m, far, k.shift, k.short)
    value = m.fma(-rest, scaled(m, reduced(m, -(far * far), highest=None, lowest=None)), 1.0)
    near = m.fma(size, m.poly(k.near, size * size), size)
    return m.copysign(m.select(size < k.border, near, value), x)


def erfc(m: Code, x: Val) -> Val:
    """In single precision the errors of its many steps add up to more than they should: it is computed in double precision."""
    if m.format is F32:
        return m.narrowed(_erfc(m.wider(), m.widened(x), tables.ERROR["f32"], precise=False))
    return _erfc(m, x, tables.ERROR["f64"], precise=True)


def _erfc(m: Code, x: Val, k: SimpleNamespace, precise: bool) -> Val:
    """``precise``: the rounding error of the square matters."""
    size = m.at_most(m.fabs(x), k.most_c)  # beyond, the value is 0 or 2
    square, error = m.two_product(size, size) if precise else (size * size, None)
    e = reduced(m, -square, low=None if error is None else -error, highest=None)
    value = scaled(m, e, _far(m, size, k.shift, k.long))
    value = m.select(m.negative(x), 2.0 - value, value)
    near = m.fma(-x, m.poly(k.near, x * x), 1.0 - x)
    return m.select(size < k.border, near, m.select(m.is_nan(x), x, value))


FUNCTIONS = {"erf": erf, "erfc": erfc}
