"""The machine code of the direct call: from the disk, or compiled. What it does is written in ``callable.py``.

Loaded in processes that find it on disk, so it needs neither the rest of the compiler nor LLVM.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.llvm import store
from pullback.llvm.image import Image, Loaded, link, symbol
from pullback_runtime import direct

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout

TABLE = "pullback_calls"  # tells the addresses of both functions that Python gets


class _Absent(Exception):
    pass


_kept: list[Any] = []


def address(layout: Layout, take_time: bool) -> tuple[int, int] | None:
    """The callable's code and that of ``_called``, linked once in this process and never removed; None if it would have to be
    compiled, which takes 100 ms, and may not be."""

    def make() -> bytes:
        if not take_time:
            raise _Absent
        from pullback.llvm import engine
        from pullback.llvm.callable import text

        return _packed(engine.Module(text(layout), 1).object())

    try:  # the key is what the text depends on besides the compiler's files, which the store looks at: writing it takes 2 ms
        found = store.object_code(("callable", str(layout), direct.numbers()), make)
    except _Absent:
        return None
    code = _loaded(found)
    _kept.append(code)
    table = (ctypes.c_uint64 * 2)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(ctypes.addressof(table))
    call, called = table
    return call, called


def _packed(code: bytes) -> bytes:
    """What is kept on disk: a line, empty or about an image; then that or the object. An image is loaded without LLVM."""
    image = link([code], TABLE)
    if image is None:
        return b"\n" + code
    return json.dumps([image.entry, image.imports]).encode() + b"\n" + image.blob


def _loaded(data: bytes) -> Any:
    line, _, code = data.partition(b"\n")
    if line:
        entry, imports = json.loads(line)
        return Loaded(Image(code, entry, tuple((name, slot) for name, slot in imports)), symbol)
    from pullback.llvm import engine

    return engine.Linked([code], TABLE)


def size_guards(guards: Sequence[Any], symbols: Sequence[str]) -> list[Any] | None:
    """Guards over lengths as plain data, over the numbers of ``symbols``; None if they speak of other symbols."""
    if not guards:
        return []
    from pullback.llvm.compile import polynomial  # which loads the IR

    numbers = {name: k for k, name in enumerate(symbols)}
    try:
        return [(g.relation, polynomial(g.left, numbers), polynomial(g.right, numbers), g.outcome) for g in guards]
    except KeyError:
        return None
