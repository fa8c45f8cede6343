"""A block of the IR that is being traced: an arm of a branch, the condition or the body of a loop.

Note [Regions]
While a region is open, instructions go into its own builder. What was made within it means nothing outside: every
:class:`~pullback.frontends.array.Array` knows the region that it was made in and refuses to be used when that is over. Arrays
from outside can be read in a region, which may fill their caches (the instruction of a constant, a view read anew), and
written to, which changes what they hold. Both is noted in the region before it happens and undone when the region is left:
whatever is to stay after the block is a result of its instruction, and put into the arrays by the staging.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback.ir.core import Builder, Value

if TYPE_CHECKING:
    from pullback.frontends.array import Array
    from pullback.frontends.trace import Trace


class Region:
    """``with region:`` traces into it; again, to add what the block yields. :meth:`undo` comes in between."""

    __slots__ = ("_kept", "_memo", "builder", "closed", "counts", "doubted", "params", "parent", "trace", "what", "written")

    def __init__(self, trace: Trace, what: str):
        self.trace = trace
        self.what = what  # "the loop at FILE:LINE", for messages
        self.parent = trace.region
        self.builder = Builder(trace.builder)
        self.params: list[Value] = []
        self.counts: set[str] = set()  # size symbols that are defined in it
        self.written: dict[int, Array] = {}  # arrays from outside that were assigned to
        self.doubted: dict[int, tuple[Array, str]] = {}  # arrays from outside that became read-only, and why
        self.closed = False
        self._kept: dict[int, tuple[Array, Any]] = {}
        self._memo: dict[Any, Any] = {}

    def __enter__(self) -> Region:
        self._memo = dict(self.trace.memo)
        self.trace.region, self.trace.builder = self, self.builder
        self.closed = False
        return self

    def __exit__(self, *exception: object) -> None:
        self.trace.region = self.parent
        assert self.builder.parent is not None
        self.trace.builder = self.builder.parent
        self.trace.memo = self._memo
        self.closed = True
        if exception[0] is not None:
            self.undo()

    def keep(self, array: Array) -> None:
        """Note what an array from outside holds, before that changes."""
        if id(array) not in self._kept:
            self._kept[id(array)] = (array, array.contents())

    def undo(self) -> None:
        """Give every array from outside what it held when the region was entered."""
        for array, contents in self._kept.values():
            array.restore(contents)
        self._kept.clear()
