"""Where a function finds what it reads from outside: a global name, or a variable of the function around it.

A closure that reads it would do for Python; machine code needs to know what it has to look at.
"""

from __future__ import annotations

from typing import Any


class Spot:
    """``spot()`` reads what is there now. ``holder``: a dict of globals, with a ``name`` in it; or a closure's cell."""

    __slots__ = ("holder", "missing", "name")

    def __init__(self, holder: Any, name: str | None = None, *missing: Any):
        """``missing``: what is read where nothing is; without it that is an error."""
        self.holder = holder
        self.name = name
        self.missing = missing

    def __call__(self) -> Any:
        try:
            return self.holder.cell_contents if self.name is None else self.holder[self.name]
        except (KeyError, ValueError):
            if self.missing:
                return self.missing[0]
            raise
