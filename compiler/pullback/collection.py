"""The garbage collector rests while something is compiled.

A program is many small objects without cycles, and nearly all of them stay until it is compiled. Python's
collector looks for cycles among them again and again as they become more: with 1e4 operations that is half of the time.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_resting = 0  # how many compilations are under way
_wanted = False  # whether the collector was on before the first of them


@contextmanager
def resting() -> Iterator[None]:
    """No collection until all who asked for that are done. Objects without cycles go when nobody needs them, as always."""
    global _resting, _wanted
    with _lock:
        if not _resting:
            _wanted = gc.isenabled()
            gc.disable()
        _resting += 1
    try:
        yield
    finally:
        with _lock:
            _resting -= 1
            if not _resting and _wanted:
                gc.enable()
