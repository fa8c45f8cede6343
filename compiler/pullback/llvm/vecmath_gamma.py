"""lgamma of positive numbers; the C library's has the others.

Between BORDER and 5/2, lgamma x = (x - 2) P(x - 2). Below 13/2 the argument is moved there by lgamma(x + 1) = lgamma x + log x,
with one logarithm of the product of all steps. Beyond, Stirling's series (Abramowitz and Stegun 6.1.40).
"""

from __future__ import annotations

from pullback.llvm import vecmath_tables as tables
from pullback.llvm.vecmath import F32, Code, Val
from pullback.llvm.vecmath_log import logarithm

BORDER = 1.15  # below, one step up: where the step's logarithm and the rest do not cancel too much
STEPS = (1.0, 2.0, 3.0, 4.0)  # how far it may be down to the middle


def lgamma(m: Code, x: Val) -> Val:
    if m.format is F32:
        return m.narrowed(_lgamma(m.wider(), m.widened(x)))
    return _lgamma(m, x)


def _lgamma(m: Code, x: Val) -> Val:
    k = tables.GAMMA["f64"]
    product, near = m.select(x < 0.5, m.fma(x, x, x), m.select(x < BORDER, x, 1.0)), x - 2.0
    near = m.select(x < BORDER, m.select(x < 0.5, x, x - 1.0), near)
    for step in STEPS:
        above = x > step + 1.5
        product = m.select(above, product * (x - step), product)
        near = m.select(above, x - (step + 2.0), near)
    beyond = x > STEPS[-1] + 2.5
    log = logarithm(m, m.select(beyond, x, product))
    w = 1.0 / x
    stirling = m.fma(x - 0.5, log - 1.0, m.fma(w, m.poly(k.stirling, w * w), k.constant))
    rest = near * m.poly(k.near, near)
    return m.select(beyond, stirling, m.select(x < BORDER, rest - log, rest + log))


def outside(m: Code, x: Val) -> Val:
    return x <= 0.0


FUNCTIONS = {"lgamma": lgamma}
