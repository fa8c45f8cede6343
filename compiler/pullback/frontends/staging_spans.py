"""What is certain of sizes that depend on integers which the function computes, such as the indices of its loops.

``Trace.spans`` has the largest value of each such symbol; the smallest is 0. The largest may depend on symbols of outer loops,
which are older and so have lower numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.ir import dims
from pullback.ir.dims import Dim, Size

if TYPE_CHECKING:
    from pullback.frontends.trace import Trace


def never_negative(size: Size) -> bool:
    """Whether a size is at least 0 for all lengths: a sum of non-negative terms."""
    if isinstance(size, int):
        return size >= 0
    return all(coefficient >= 0 for _, coefficient in size.terms)


def is_computed(trace: Trace, size: Size) -> bool:
    """Whether a size depends on an integer that the function computes."""
    return not dims.symbols((trace.canonical(size),)).isdisjoint(trace.spans)


def surely(trace: Trace, low: Size, high: Size) -> bool:
    """Whether ``low <= high`` holds in every trip of the loops around, for all lengths."""
    difference = trace.canonical(high - low)
    for _ in range(20):  # each step replaces one index; inner ones have ends that depend on outer ones
        names = [s for s in dims.symbols((difference,)) if s in trace.spans]
        if not names:
            return never_negative(difference)
        name = max(names, key=lambda s: int(s[1:]))
        assert isinstance(difference, Dim)
        factor = dict(difference.terms).get((name,), 0)
        rest = difference - factor * Dim.symbol(name)
        if name in dims.symbols((rest,)):
            return False
        difference = trace.canonical(rest + factor * trace.spans[name] if factor < 0 else rest)
    return False


def ceiling(trace: Trace, high: Size) -> Size | None:
    """The largest value that a size has in any trip of the loops around."""
    while True:
        names = [s for s in dims.symbols((high,)) if s in trace.spans]
        if not names:
            return trace.canonical(high)
        assert isinstance(high, Dim)
        name = max(names, key=lambda s: int(s[1:]))
        factor = dict(high.terms).get((name,), 0)
        rest = high - factor * Dim.symbol(name)
        if name in dims.symbols((rest,)):
            return None
        high = trace.canonical(rest + factor * trace.spans[name] if factor > 0 else rest)
