"""Sizes at run time: integer polynomials over numbered symbols, as plain tuples that any manifest can hold.

A polynomial is an int, or a tuple of terms ``(coefficient, factors)``; a factor is a symbol's number, or a pair
``(numerator, denominator)`` of polynomials for a floor division. ``compiled`` makes a Python function of several of them; its
source is built from these tuples alone, never from anybody's text.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Polynomial: TypeAlias = Any  # int | tuple[tuple[int, tuple[int | tuple[Polynomial, Polynomial], ...]], ...]


def source(size: Polynomial) -> str:
    """A Python expression over ``s``, the list of the symbols' values."""
    if isinstance(size, int):
        return str(int(size))
    terms = []
    for coefficient, factors in size:
        parts = [str(int(coefficient))]
        for factor in factors:
            if isinstance(factor, int):
                parts.append(f"s[{int(factor)}]")
            else:
                numerator, denominator = factor
                parts.append(f"(({source(numerator)}) // ({source(denominator)}))")
        terms.append("*".join(parts[1:] if parts[0] == "1" and len(parts) > 1 else parts))
    return " + ".join(terms) or "0"


def compiled(sizes: Sequence[Polynomial]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """A function from the symbols' values to all the sizes."""
    body = "".join(f"{source(size)}, " for size in sizes)
    return _function(f"lambda s: ({body})")


def nested(sizes: Sequence[Sequence[Polynomial]]) -> Callable[[Sequence[int]], tuple[tuple[int, ...], ...]]:
    """The same for several shapes at once."""
    body = "".join("(" + "".join(f"{source(size)}, " for size in shape) + "), " for shape in sizes)
    return _function(f"lambda s: ({body})")


@functools.lru_cache(maxsize=1024)
def _function(source: str) -> Callable[[Sequence[int]], Any]:
    """Kernels share their shapes with others, and this text takes longer to compile than to make."""
    function: Callable[[Sequence[int]], Any] = eval(source)
    return function
