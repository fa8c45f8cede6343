"""Derivatives from values alone: the reference against which derivatives are checked.

``slope`` is Ridders' method (Ridders 1982, as in Numerical Recipes 5.7): central differences at shrinking steps, extrapolated
to step zero, with an error estimate. ``sides`` takes one-sided slopes with many digits, where a step of 1e-20 costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SHRINK = 1.6  # from one step to the next
STEPS = 10
GIVE_UP = 2.0  # stop when the extrapolation gets worse by this factor


def slope(function: Callable[[float], float], step: float) -> tuple[float, float]:
    """The derivative of ``function`` at 0 and an estimate of its error, from steps of ``step`` downwards."""
    best, error = math.nan, math.inf
    previous: list[float] = []
    for k in range(STEPS):
        row = [(function(step) - function(-step)) / (2 * step)]
        factor = SHRINK**2
        for j in range(k):
            row.append((row[j] * factor - previous[j]) / (factor - 1))
            factor *= SHRINK**2
            change = max(abs(row[j + 1] - row[j]), abs(row[j + 1] - previous[j]))
            if change <= error:
                best, error = row[j + 1], change
        if k and abs(row[k] - previous[k - 1]) >= GIVE_UP * error:
            break
        previous = row
        step /= SHRINK
    return best, error


def remainder_order(function: Callable[[float], float], derivative: float, step: float, noise: float) -> float:
    """The observed order of ``f(h) - f(0) - h f'(0)`` in ``h``: 2 if the derivative is right, 1 if it is not.

    Infinity where the remainder vanishes in rounding (a linear function), NaN where it never rises above the noise.
    """
    start = function(0.0)
    remainders = [abs(function(step / 2**k) - start - step / 2**k * derivative) for k in range(6)]
    usable = [r for r in remainders if r > 100 * noise]
    if not usable:
        return math.inf
    if len(usable) < 2:
        return math.nan
    return math.log2(usable[0] / usable[-1]) / (len(usable) - 1)


@dataclass(frozen=True, slots=True)
class Sides:
    """What a function does on both sides of a point: slopes from the left and the right, and the jumps to the point's value."""

    left: float
    right: float
    jump_left: float
    jump_right: float
    curved: bool = False  # the slopes part by the function's curvature only, so the slope at the point is zero

    @property
    def agree(self) -> bool:
        return math.isfinite(self.left) and (self.curved or close(self.left, self.right, 1e-6))

    @property
    def central(self) -> float:
        return 0.0 if self.curved else (self.left + self.right) / 2


def close(a: float, b: float, relative: float) -> bool:
    return a == b or abs(a - b) <= relative * max(abs(a), abs(b))


def sides(function: Callable[[Any], Any], step: Any, middle: Any) -> Sides:
    """One-sided slopes of a function over many digits; ``middle`` is its value at 0, which the slopes do not use."""
    above, further_above = function(step), function(2 * step)
    below, further_below = function(-step), function(-2 * step)
    return Sides(
        float((below - further_below) / step),
        float((further_above - above) / step),
        float(middle - below),
        float(above - middle),
    )
