"""Memory of a call: pointers, scalars, sizes and the workspace, reused from call to call through a freelist.

A frame belongs to one call at a time, so a kernel is re-entrant and may run in several threads; ``list.append`` and
``list.pop`` are atomic, so the freelist needs no lock.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback_runtime.tape import Watch
from pullback_runtime.team import Team

ALIGN = 64
KEPT = 8  # frames on a freelist; more threads than that at once allocate anew
LARGE = 1 << 26  # bytes; of frames with a larger workspace one is kept

Kinds = Sequence["str | None"]  # of arguments or results: the element type of a scalar, None for an array

CELLS: dict[str, Any] = {"f64": ctypes.c_double, "f32": ctypes.c_float, "i64": ctypes.c_int64, "bool": ctypes.c_bool}


class Frame:
    """What one call passes to the machine code.

    ``pointers`` are the addresses of the code's first four arguments. ``scalars`` and ``results`` are cells for rank-0
    arguments and results (None for arrays), whose addresses are already in ``inputs`` and ``outputs``. ``context`` holds two
    integers of a message, the callback of ``watch``, which kernels with loops have, and that of ``team``, which kernels have
    whose loops threads share.
    """

    __slots__ = (
        "context",
        "inputs",
        "outputs",
        "pointers",
        "results",
        "scalars",
        "sizes",
        "team",
        "watch",
        "work",
        "work_address",
        "work_bytes",
    )

    def __init__(self, inputs: Kinds, outputs: Kinds, sizes: int, watched: bool = False, parallel: bool = False):
        self.context = (ctypes.c_int64 * 4)()
        self.watch = Watch() if watched else None
        self.team = Team() if parallel else None
        for place, callback in ((2, self.watch), (3, self.team)):
            if callback is not None:
                self.context[place] = callback.address
        self.inputs = (ctypes.c_void_p * max(1, len(inputs)))()
        self.outputs = (ctypes.c_void_p * max(1, len(outputs)))()
        self.sizes = (ctypes.c_int64 * max(1, sizes))()
        self.pointers = tuple(ctypes.addressof(a) for a in (self.context, self.inputs, self.sizes, self.outputs))
        self.scalars = [CELLS[kind]() if kind else None for kind in inputs]
        self.results = [CELLS[kind]() if kind else None for kind in outputs]
        for pointers, cells in ((self.inputs, self.scalars), (self.outputs, self.results)):
            for k, cell in enumerate(cells):
                if cell is not None:
                    pointers[k] = ctypes.addressof(cell)
        self.work: Any = None
        self.work_address = 0
        self.work_bytes = 0

    def interruption(self) -> BaseException:
        """What stopped the call."""
        for callback in (self.watch, self.team):
            if callback is not None and callback.error is not None:
                error, callback.error = callback.error, None
                return error
        raise AssertionError("nothing has stopped the call")

    def reserve(self, size: int) -> int:
        """The address of at least ``size`` bytes, aligned."""
        if size > self.work_bytes:
            self.work = np.empty(size + ALIGN, np.uint8)
            address = int(self.work.__array_interface__["data"][0])
            self.work_address = address + (-address) % ALIGN
            self.work_bytes = size
        return self.work_address


class Freelist:
    """Frames of one kernel that no call is using."""

    def __init__(self, inputs: Kinds, outputs: Kinds, sizes: int, watched: bool = False, parallel: bool = False):
        self._make = (tuple(inputs), tuple(outputs), sizes, watched, parallel)
        self._free: list[Frame] = []

    def take(self) -> Frame:
        try:
            return self._free.pop()
        except IndexError:
            return Frame(*self._make)

    def give(self, frame: Frame) -> None:
        if len(self._free) < KEPT and (frame.work_bytes < LARGE or not self._free):
            self._free.append(frame)


# -- addresses --------------------------------------------------------------------------------------------------------
def address(array: Any) -> int:
    """Where an array's first element is."""
    return int(array.__array_interface__["data"][0])


def _direct() -> Any:
    """``address`` by reading the field of the array object: ten times quicker than asking for it.

    The field follows the object's header. Its place is no promise of NumPy's, so it is tried out on a few arrays when this
    module is imported; None where that does not give the right address (another Python, another NumPy).
    """
    header = object.__basicsize__
    if header % 8 or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.implementation.name != "cpython":
        return None
    memory, place = (ctypes.c_size_t * (1 << 59)).from_address(0), header // 8

    def direct(array: Any) -> int:
        found: int = memory[(id(array) >> 3) + place]
        return found

    samples = (np.empty(3), np.empty((2, 2), np.float32)[1:], np.empty(0), np.empty((), np.bool_))
    return direct if all(direct(a) == address(a) for a in samples) else None


quick_address = _direct() or address
