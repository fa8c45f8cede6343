"""What a kernel and its caller share besides arrays: tapes that outlive a call, and questions during a call.

Note [Residual tapes]
The forward half of a ``pullback`` gives what its loops pushed as tapes: memory that the kernel has allocated, of which the
caller becomes the owner. The reverse half only reads it, so it may run as often as one likes, in several threads. The
memory is freed with the ``Tape`` object.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from typing import Any

_libc: ctypes.CDLL | None = None


def _free(pointer: int) -> None:
    global _libc
    if _libc is None:
        _libc = ctypes.CDLL(None)
        _libc.free.argtypes, _libc.free.restype = (ctypes.c_void_p,), None
    _libc.free(pointer)


class Tape:
    """A stack that a kernel gave: its height, where its elements are, and for how many there is room."""

    __slots__ = ("cells", "text")

    def __init__(self, text: str):
        self.text = text  # the type, as the IR writes it
        self.cells = (ctypes.c_int64 * 3)()

    @property
    def address(self) -> int:
        return ctypes.addressof(self.cells)

    def __len__(self) -> int:
        return int(self.cells[0])

    def __repr__(self) -> str:
        return f"<{self.text} of {len(self)} elements>"

    def __del__(self) -> None:
        if self.cells[1]:
            _free(self.cells[1])
            self.cells[1] = 0


class Watch:
    """What a kernel calls now and then from a loop: pending signal handlers run, and what they raise stops the call.

    The callback resumes a generator, not a function: Python runs pending handlers as it enters a function, where nothing could
    catch what they raise; a generator is entered within its ``try``. A watch belongs to one call at a time.
    """

    __slots__ = ("_answers", "_callback", "address", "error")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._answers = _answers(self)
        next(self._answers)
        self._callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._answers.send)
        self.address: int = ctypes.cast(self._callback, ctypes.c_void_p).value or 0


def _answers(watch: Watch) -> Generator[int, Any, None]:
    """1 to stop, 0 to go on."""
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
        except GeneratorExit:
            return
        except BaseException as error:  # whatever a handler raises is raised again when the kernel has returned
            watch.error = error
            answer = 1
