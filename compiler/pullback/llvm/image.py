"""Objects to an image: code that only has to be put somewhere and told where other libraries' functions are.

Note [Images]
~~~~~~~~~~~~~
Most of our kernels need next to nothing from a linker: code and constants that refer to each other by their distance, and calls
of a few functions of the C library. So the linking is done once, when a kernel is compiled, and its outcome is kept on disk: a
blob in which all sections lie one behind the other with their distances filled in, and behind them a slot with the address of
each foreign function and a jump through it. Loading copies the blob into fresh pages, fills in the slots and makes the pages
executable and read-only, which takes some ten microseconds and neither LLVM nor its linker (which takes 50 ms to load).

This is for ELF on x86-64, and for what our modules contain: no writable data, no absolute addresses. Whatever else turns up,
``link`` gives None and LLVM's own linker does it. Formats: System V ABI, chapters 4 and 5, and its AMD64 supplement, 4.4.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

PROGBITS, SYMTAB, RELA = 1, 2, 4  # kinds of sections
WRITE, ALLOC = 1, 2  # flags of sections
PC32, PLT32, GOTPCREL, GOTPCRELX, REX_GOTPCRELX = 2, 4, 9, 41, 42
IGNORED = (".eh_frame",)  # for unwinding, of which C without exceptions has none
JUMP = b"\xff\x25"  # jmp *[rip + distance]


@dataclass(frozen=True, slots=True)
class Image:
    """``imports``: a foreign function's name and where in ``blob`` its address belongs."""

    blob: bytes
    entry: int
    imports: tuple[tuple[str, int], ...]


class _Unusual(Exception):
    """Something that LLVM's linker should do."""


def link(objects: Sequence[bytes], entry: str) -> Image | None:
    """The image of some objects; None where that takes a real linker."""
    if sys.platform != "linux" or not all(o[:6] == b"\x7fELF\x02\x01" and o[18:20] == b"\x3e\x00" for o in objects):
        return None
    try:
        return _Linker([_Object(o) for o in objects]).image(entry)
    except _Unusual:
        return None


class _Object:
    """The parts of an ELF file that matter."""

    def __init__(self, data: bytes):
        (start,), (size, count, names) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<HHH", data, 58)
        self.data = data
        self.sections: list[Any] = [struct.unpack_from("<IIQQQQIIQQ", data, start + k * size) for k in range(count)]
        self._names = self.sections[names]
        self.symbols: list[tuple[str, int, int, int]] = []  # name, binding, section, value
        for section in self.sections:
            if section[1] == SYMTAB:
                strings = self.sections[section[6]]
                for name, info, _, index, value, _ in struct.iter_unpack("<IBBHQQ", self.content(section)):
                    self.symbols.append((self._text(strings, name), info >> 4, index, value))

    def name(self, section: Any) -> str:
        return self._text(self._names, section[0])

    def content(self, section: Any) -> bytes:
        return self.data[section[4] : section[4] + section[5]]

    def _text(self, strings: Any, offset: int) -> str:
        start = strings[4] + offset
        return self.data[start : self.data.index(b"\0", start)].decode()


class _Linker:
    def __init__(self, objects: Sequence[_Object]):
        self.objects = objects
        self.blob = bytearray()
        self.places: dict[tuple[int, int], int] = {}  # (object, section) -> where it lies
        self.defined: dict[str, int] = {}
        self.slots: dict[str, int] = {}
        self.jumps: dict[str, int] = {}

    def image(self, entry: str) -> Image:
        for number, file in enumerate(self.objects):
            self._lay_out(number, file)
        for number, file in enumerate(self.objects):
            for name, binding, section, value in file.symbols:
                if binding and (number, section) in self.places:
                    self.defined[name] = self.places[number, section] + value
        for number, file in enumerate(self.objects):
            for section in file.sections:
                if section[1] == RELA and (number, section[7]) in self.places:
                    self._relocate(number, file, section)
        if entry not in self.defined:
            raise _Unusual
        return Image(bytes(self.blob), self.defined[entry], tuple(self.slots.items()))

    def _lay_out(self, number: int, file: _Object) -> None:
        for index, section in enumerate(file.sections):
            kind, flags, size, align = section[1], section[2], section[5], section[8]
            if not flags & ALLOC or not size or file.name(section) in IGNORED:
                continue
            if kind != PROGBITS or flags & WRITE:
                raise _Unusual
            self._pad(align)
            self.places[number, index] = len(self.blob)
            self.blob += file.content(section)

    def _pad(self, align: int) -> None:
        self.blob += bytes(-len(self.blob) % max(1, align))

    def _relocate(self, number: int, file: _Object, section: Any) -> None:
        base = self.places[number, section[7]]
        for offset, info, addend in struct.iter_unpack("<QQq", file.content(section)):
            kind, (name, binding, index, value) = info & 0xFFFFFFFF, file.symbols[info >> 32]
            target = self.defined.get(name) if binding else None
            if target is None and (number, index) in self.places:
                target = self.places[number, index] + value
            if kind in (GOTPCREL, GOTPCRELX, REX_GOTPCRELX) and target is None:
                target = self._slot(name)
            elif kind == PLT32 and target is None:
                target = self._jump(name)
            elif kind not in (PC32, PLT32) or target is None:
                raise _Unusual
            struct.pack_into("<i", self.blob, base + offset, target + addend - (base + offset))

    def _slot(self, name: str) -> int:
        if name not in self.slots:
            if not name:
                raise _Unusual
            self._pad(8)
            self.slots[name] = len(self.blob)
            self.blob += bytes(8)
        return self.slots[name]

    def _jump(self, name: str) -> int:
        if name not in self.jumps:
            slot = self._slot(name)
            self.jumps[name] = len(self.blob)
            self.blob += JUMP + struct.pack("<i", slot - (len(self.blob) + 6))
        return self.jumps[name]


# -- loading ----------------------------------------------------------------------------------------------------------
class Loaded:
    """An image in memory, for as long as this object lives."""

    def __init__(self, image: Image, address_of: Callable[[str], int]):
        """``address_of`` gives foreign functions. OSError where new code is not allowed."""
        blob = bytearray(image.blob)
        for name, slot in image.imports:
            struct.pack_into("<Q", blob, slot, address_of(name))
        self._memory = mmap.mmap(-1, len(blob), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.write(blob)
        self._start = ctypes.c_char.from_buffer(self._memory)
        start = ctypes.addressof(self._start)
        if _process().mprotect(start, len(blob), mmap.PROT_READ | mmap.PROT_EXEC):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.address = start + image.entry


@functools.cache
def _process() -> ctypes.CDLL:
    process = ctypes.CDLL(None, use_errno=True)
    process.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return process


def symbol(name: str) -> int:
    """The address of a function of whatever libraries the process has loaded; KeyError if there is none."""
    try:
        found = ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        raise KeyError(name) from None
    assert found is not None
    return found
