"""Tables for the direct call: what machine code needs to know to serve a call of a known kind without Python.

The code is ``pullback/llvm/callable.py``; see Note [The direct call] there. It reads fields of Python's and NumPy's objects by
their places, which no interface promises: they are derived from the sizes that the types state, and tried out on samples
before anything is made of them. Where they are not as expected (another Python, another NumPy, no interpreter's lock) there
is no direct call, and every call goes through Python as it would have anyway.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

FRESH = (
    0x2505,
    0x505,
)  # NumPy's flags: of contiguous, own data, aligned, writable and copied back, a new array has all but the last
MOST = 64  # arguments and results of a call, and symbols
DEPTH = 16  # of the stack on which polynomials are evaluated
FAST = 0x82  # METH_FASTCALL | METH_KEYWORDS
PATIENCE = 3  # calls of a Function before it gets a callable that has been made in this process or is on the disk
PRICE = 1000  # calls after which even making it pays: that takes as long as ten times as many, but once on a machine


# -- numbers that the machine code knows ------------------------------------------------------------------------------
class Word:
    """The first words of an entry. Offsets are in words from its start."""

    COUNT, NAMED, NAMES, PATTERN, KERNEL, CONSTANT_COUNT, CONSTANTS, RESULTS, RESULT_ROWS, BUILD = range(10)
    WORK_OP, WORK, GIVEN, MANY, PROVIDER, HIDDEN, HIDDEN_COUNT, GUARDS, GUARD_COUNT, SPOTS, SPOT_COUNT = range(10, 21)
    POOL, NEW, SCALAR, NDARRAY, LIST, PARTS, PART_ROWS, SLOTS, TURN, END = range(21, 31)


class Match:
    SAME, PLACE, SINGLE, INTEGER, BOOLEAN, ARRAY, ITEMS, DICT = range(8)


class Axis:
    """A length is a number; or names a symbol, if it is long enough; or is a symbol; or names a symbol that is a number."""

    FIXED, BIND, SAME, EXACT, ANY = range(5)


class Size:
    FIXED, SYMBOL, ADD, MUL, DIV, END = range(6)
    POLYNOMIAL = 6


class Where:
    """What holds something that the function reads from outside; the object that must be there, or 0 for a hidden input."""

    GLOBAL, CELL = range(2)
    WORDS = 4


class Guard:
    """Two sizes, how they are compared, and what must come out."""

    EQUAL, LESS, AT_MOST = range(3)
    WORDS = 6


class Result:
    FLOAT, SCALAR, INT, BOOL, ARRAY = range(5)


class Build:
    RESULT, TUPLE, LIST, DICT, OBJECT, MAKE = range(6)


class Part:
    """Of an answer that is kept: what it is, the number of the result, which part holds it and where, its element type."""

    TUPLE, FLOAT, ARRAY = range(3)
    WORDS = 5


MOST_PARTS = 16  # of an answer that is kept
KEPT_BYTES = 1 << 14  # of a call's arrays, up to which its answer is


def numbers() -> str:
    """All of them."""
    kinds = (Word, Match, Axis, Size, Where, Guard, Result, Build, Part)
    found = [(name, value) for kind in kinds for name, value in vars(kind).items() if type(value) is int]
    return str((MOST, DEPTH, MOST_PARTS, KEPT_BYTES, FRESH, found))


# -- the look of objects ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets. ``header``: of what follows an object's header, such as a float's value or a tuple's length; ``items``: of
    a tuple's items and a list's pointer to them; the rest are fields of arrays, ``type`` excepted. ``counts``: whether an
    object's first word is the number of references and nothing else."""

    header: int
    type: int
    items: int
    data: int
    rank: int
    shape: int
    base: int
    descr: int
    flags: int
    weak: int
    counts: bool = False


@functools.cache
def layout() -> Layout | None:
    """The look of objects in this process; None if it is not what the machine code could read."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return None
    if "t" in getattr(sys, "abiflags", "") or "free-threading" in sys.version:  # no interpreter's lock, or one that may go
        return None
    header, items = object.__basicsize__, tuple.__basicsize__
    data, rank, shape, base, descr, flags, weak = (header + k for k in (0, 8, 16, 32, 40, 48, 56))
    found = Layout(header, header - 8, items, data, rank, shape, base, descr, flags, weak)
    try:
        return replace(found, counts=_counts()) if _looks(found) else None
    except (AttributeError, TypeError, ValueError):
        return None


def _looks(at: Layout) -> bool:
    """Whether samples look like that. Nothing behind the size that a type states is read."""
    if list.__basicsize__ < at.items + 8 or np.ndarray.__basicsize__ < at.weak + 8 or at.header < 16:
        return False

    def word(thing: Any, offset: int) -> int:
        return int(ctypes.c_int64.from_address(id(thing) + offset).value)

    a, b = object(), 1.5
    pair, row = (a, b), [b, a, b]
    good = all(word(thing, at.type) == id(type(thing)) for thing in (a, b, pair, row, True, {}, 3, np.zeros(2)))
    good = good and word(pair, at.header) == 2 and word(row, at.header) == 3
    good = good and word(pair, at.items) == id(a) and word(pair, at.items + 8) == id(b)
    if not good:
        return False
    first = word(row, at.items)
    good = [int(ctypes.c_int64.from_address(first + 8 * k).value) for k in range(3)] == [id(b), id(a), id(b)]
    numbers = (b, np.float64(2.5), np.int64(-7), np.float32(0.75), np.bool_(True))
    for number, kind in zip(numbers, (None, None, None, "float32", "bool"), strict=True):
        size = np.dtype(kind or type(number)).itemsize
        memory = ctypes.string_at(id(number) + at.header, size)
        good = good and type(number).__basicsize__ >= at.header + size
        good = good and memory == np.array(number, np.dtype(type(number))).tobytes()
    base = np.arange(24.0).reshape(4, 6)
    samples = (base, base[1:], base.T, np.zeros(0, np.int64), np.array(1.5, np.float32), np.zeros((2, 3, 4), np.bool_))
    return good and all(_array_looks(at, sample, word) for sample in samples)


def _counts() -> bool:
    """Whether references can be counted without asking Python. Not from 3.14 on, which keeps more than the number there."""
    if sys.version_info >= (3, 14) or hasattr(sys, "gettotalrefcount"):
        return False
    things: list[Any] = [(1.5, object()), np.zeros(2), float("1.25")]
    for k, more in enumerate((1, 2, 3)):
        held = [things[k]] * more
        if ctypes.c_int64.from_address(id(things[k])).value != 1 + len(held):
            return False
    return tuple.__basicsize__ == object.__basicsize__ + 8  # else a tuple remembers more than its items, such as its hash


def _array_looks(at: Layout, array: Any, word: Callable[[Any, int], int]) -> bool:
    shape = [int(ctypes.c_int64.from_address(word(array, at.shape) + 8 * k).value) for k in range(array.ndim)]
    unheld = word(array, at.weak) == 0
    held = weakref.ref(array)
    return (
        (unheld and word(array, at.weak) == id(held))
        and word(array, at.data) == array.__array_interface__["data"][0]
        and word(array, at.rank) & 0xFFFFFFFF == array.ndim
        and tuple(shape) == array.shape
        and word(array, at.base) == (0 if array.base is None else id(array.base))
        and word(array, at.descr) == id(array.dtype)
        and word(array, at.flags) & 0xFFFFFFFF == array.flags.num
    )


@functools.cache
def numpy_functions() -> tuple[int, int]:
    """PyArray_New and PyArray_Scalar, by their places in NumPy's table, which are its C interface."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]  # the table is no matter of types

    capsule = _multiarray_umath._ARRAY_API
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    return int(table[93] or 0), int(table[60] or 0)


# -- callables ----------------------------------------------------------------------------------------------------------
TRACES = np.zeros(1, np.int64)  # traces under way in any thread: until they are done no call is direct
_lock = threading.Lock()


def tracing(change: int) -> None:
    """A trace begins (1) or ends (-1); a call that belongs to it must be seen by the compiler."""
    with _lock:
        TRACES[0] += change


# Set by the compiler: ``make(layout, whether to take the time)`` is where the machine code is, of a callable and of what an
# instance's type calls; or None.
_maker: Callable[[Layout, bool], tuple[int, int] | None] | None = None
_address: tuple[int, int] | None = None
_broken = False
_looked = False  # whether it was looked for on the disk


def set_maker(make: Callable[[Layout, bool], tuple[int, int] | None]) -> None:
    global _maker
    _maker = make


def address(calls: int) -> tuple[int, int] | None:
    """Where the machine code is; None as long as it is not worth making after so many calls, and where it cannot be used."""
    global _address, _broken, _looked
    if _address is not None or _broken or calls < (PRICE if _looked else PATIENCE) or _maker is None:
        return _address
    with _lock:
        if _address is None and not _broken:
            found, _looked = layout(), True
            try:
                if found is not None and all(numpy_functions()):
                    _address = _maker(found, calls >= PRICE)
            except (AttributeError, ImportError, OSError, RuntimeError):  # a symbol that this Python or NumPy has not
                found = None
            _broken = found is None
    return _address


# -- types ----------------------------------------------------------------------------------------------------------------
BASIC_SIZE, CALL = 32, 128  # of the fields of a type, in bytes


class _With:
    __slots__ = ("__call__",)


class _Without:
    __slots__ = ()


def quicken(kind: type, instance: Any, code: int) -> bool:
    """Let Python enter ``code`` for calls of instances, which hold what they call in the first field of theirs: it does what
    Python's own way through ``__call__`` does, in half the time. Only if the type looks as it should."""
    if not _callable_looks(kind, instance):
        return False
    ctypes.c_void_p.from_address(id(kind) + CALL).value = code
    return True


def _callable_looks(kind: type, instance: Any) -> bool:
    def word(thing: Any, offset: int) -> int:
        return int(ctypes.c_int64.from_address(id(thing) + offset).value)

    metaclass: Any = type
    if metaclass.__basicsize__ < CALL + 8 or object.__basicsize__ != 16:
        return False
    kinds = (kind, _With, _Without)
    if any(word(k, BASIC_SIZE) != k.__basicsize__ for k in kinds) or word(_Without, CALL) != 0:
        return False
    usual = word(_With, CALL)
    return usual != 0 and word(kind, CALL) == usual and word(instance, object.__basicsize__) == id(instance.__call__)
