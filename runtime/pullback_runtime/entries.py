"""Entries of the direct call, made from a call that was served the long way; see ``direct.py`` for what they are."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import CellType
from typing import Any

import numpy as np

from pullback_runtime.direct import (
    DEPTH,
    MOST,
    MOST_PARTS,
    Axis,
    Build,
    Guard,
    Match,
    Part,
    Result,
    Size,
    Where,
    Word,
    numpy_functions,
)  # fmt: skip
from pullback_runtime.gradients import Gradients, copied
from pullback_runtime.kernel import Kernel
from pullback_runtime.repeat import SizeGuard
from pullback_runtime.signature import NUMPY, STATIC_LENGTH, Leaf, Structure
from pullback_runtime.sizes import Polynomial
from pullback_runtime.spots import Spot

MANY = 1 << 15  # bytes of arrays and workspace from which the interpreter's lock is given away: 2 % of such a call's time
READ, WRITE = 0x101, 0x501  # NumPy's flags: C contiguous and aligned, and writable
_SCALARS = {np.float64: "f64", np.float32: "f32", np.int64: "i64", np.bool_: "bool"}
_RESULTS = {"f64": Result.FLOAT, "f32": Result.SCALAR, "i64": Result.INT, "bool": Result.BOOL}


_RELATIONS = {"==": Guard.EQUAL, "<": Guard.LESS, "<=": Guard.AT_MOST}


class _Unsuited(Exception):
    """There is no entry for such a call; it goes through Python."""


class _Memory:
    """Owns the workspace that an entry's calls share, and the answers it keeps."""

    __slots__ = ("_words",)

    def __init__(self, words: Any):
        self._words = words

    def __del__(self) -> None:
        pointer = int(self._words[Word.POOL])
        if pointer:
            self._words[Word.POOL] = 0
            ctypes.pythonapi.PyMem_RawFree(ctypes.c_void_p(pointer))
        for k in range(2):
            place = int(self._words[Word.SLOTS]) + k * int(self._words[Word.PARTS])
            kept = int(self._words[place]) if self._words[Word.PARTS] else 0
            if kept:
                self._words[place] = 0
                ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(kept))


class EntryMaker:
    """Collects the words of one entry. ``exact``: it serves only arrays of the very shapes of the call that it is made from.

    ``given`` are the arguments as they were passed, each with what it is: ``("leaves", k)``, whose leaves are the kernel's
    inputs from ``k`` on; ``("same", None)``, something that must come again; or ``("out", arrays)``, where ``arrays`` are what
    receives each result, or None.
    """

    def __init__(self, kernel: Kernel, leaves: Sequence[Leaf], symbolic: bool, exact: bool):
        self.kernel = kernel
        self.signature = kernel.signature
        self.leaves = leaves
        self.symbolic = symbolic
        self.exact = exact
        self.words: list[int] = [0] * Word.END
        self.keep: list[Any] = [kernel]
        self.bound: dict[int, int] = {}  # symbols and what they are in this call
        self.addresses: list[tuple[int, int]] = []  # words that become the address of another word
        self.given = 0

    # -- writing ----------------------------------------------------------------------------------------------------
    def _id(self, thing: Any) -> int:
        """What machine code compares with, which lives as long as the entry."""
        self.keep.append(thing)
        return id(thing)

    def _here(self, word: int) -> None:
        """What is written next is where ``word`` says."""
        self.words[word] = len(self.words)

    # -- arguments --------------------------------------------------------------------------------------------------
    def arguments(self, given: Sequence[tuple[Any, str, Any]], named: Sequence[str]) -> None:
        self.words[Word.COUNT] = len(given) - len(named)
        self.words[Word.NAMED] = len(named)
        self._here(Word.NAMES)
        self.words.extend(map(self._id, named))
        self._here(Word.PATTERN)
        for value, kind, about in given:
            if kind == "leaves":
                self._leaves(value, about)
            elif kind == "same":
                self._walk(value, self._same)
            else:
                self._walk(value, functools.partial(self._out, about))
        self.words[Word.GIVEN] = self.given

    def hidden(self, provider: Callable[[], Any], arrays: Sequence[Any], start: int) -> None:
        """What the function reads from outside: ``provider`` gives the arrays as a list, or None if the entry does not hold."""
        self.words[Word.PROVIDER] = self._id(provider)
        self._hidden(arrays, start)

    def spots(self, watched: Sequence[tuple[Spot, Any]], hidden: Sequence[Spot], arrays: Sequence[Any], start: int) -> None:
        """The same, where machine code can look itself: ``watched`` objects must be where they were."""
        self._here(Word.SPOTS)
        self.words[Word.SPOT_COUNT] = len(watched) + len(hidden)
        objects: list[tuple[Spot, int]] = [(spot, self._id(value)) for spot, value in watched]
        for spot, expected in objects + [(spot, 0) for spot in hidden]:
            if spot.name is None:
                if type(spot.holder) is not CellType:
                    raise _Unsuited
                self.words.extend((Where.CELL, self._id(spot.holder), 0, expected))
            else:
                if type(spot.holder) is not dict or type(spot.name) is not str:
                    raise _Unsuited
                self.words.extend((Where.GLOBAL, self._id(spot.holder), self._id(spot.name), expected))
        self._hidden(arrays, start)

    def _hidden(self, arrays: Sequence[Any], start: int) -> None:
        self._here(Word.HIDDEN)
        self.words[Word.HIDDEN_COUNT] = len(arrays)
        for k, array in enumerate(arrays, start):
            self._leaf(array, k)

    def constants(self, values: Mapping[int, Any]) -> None:
        """Inputs that are the same at every call: defaults of parameters, and the seed 1."""
        pairs = []
        for k, value in values.items():
            if isinstance(value, np.ndarray) and value.ndim:
                if value.flags.num & READ != READ:
                    raise _Unsuited
                self.keep.append(value)
                pairs.append((k, int(value.__array_interface__["data"][0])))
                continue
            self._param(k)
            bits = np.zeros(8, np.uint8)
            data = np.asarray(value, NUMPY[self.signature.params[k].dtype]).reshape(1).view(np.uint8)
            bits[: len(data)] = data
            self.words.append(int(bits.view(np.int64)[0]))
            pairs.append((k, -(len(self.words) - 1)))
        self._here(Word.CONSTANTS)
        self.words[Word.CONSTANT_COUNT] = len(pairs)
        for k, where in pairs:
            self.words.append(k)
            if where < 0:
                self.addresses.append((len(self.words), -where))
            self.words.append(max(0, where))

    def _walk(self, value: Any, leaf: Callable[[Any], None]) -> None:
        kind = type(value)
        if kind is tuple or kind is list or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            self.words.extend((Match.ITEMS, self._id(kind), len(value), int(kind is list)))
            for item in value:
                self._walk(item, leaf)
        elif kind is dict:
            self.words.extend((Match.DICT, id(dict), len(value), *map(self._id, value)))
            for item in value.values():
                self._walk(item, leaf)
        else:
            leaf(value)

    def _same(self, value: Any) -> None:
        if value is not None and type(value) not in (str, int):
            raise _Unsuited
        self.words.extend((Match.SAME, self._id(value)))

    def _leaves(self, value: Any, start: int) -> None:
        number = start

        def leaf(found: Any) -> None:
            nonlocal number
            if found is None or type(found) is str:
                self._same(found)
            else:
                self._leaf(found, number)
                number += 1

        self._walk(value, leaf)

    def _param(self, k: int) -> Any:
        if not 0 <= k < len(self.signature.params):
            raise _Unsuited
        return self.signature.params[k]

    def _leaf(self, value: Any, k: int) -> None:
        kind, param = type(value), self._param(k)
        if kind is np.ndarray:
            self._array(value, k)
        elif param.shape:
            raise _Unsuited
        elif kind is float and param.dtype in ("f64", "f32"):
            self.words.extend((Match.PLACE if param.dtype == "f64" else Match.SINGLE, id(float), k))
        elif kind is int and param.dtype in ("f64", "i64"):
            self.words.extend((Match.INTEGER, id(int), k, int(param.dtype == "f64")))
        elif kind is bool and param.dtype == "bool":
            self.words.extend((Match.BOOLEAN, id(bool), k, id(True)))
        elif _SCALARS.get(kind) == param.dtype:
            self.words.extend((Match.PLACE, self._id(kind), k))
        else:
            raise _Unsuited

    def _array(self, array: Any, k: int) -> None:
        param = self.signature.params[k]
        if array.dtype != NUMPY[param.dtype] or array.ndim != len(param.shape):
            raise _Unsuited
        self._header(array, READ, k, -1)
        for j, (axis, length) in enumerate(zip(param.shape, array.shape, strict=True)):
            if isinstance(axis, int):
                if axis != length:
                    raise _Unsuited
                self.words.extend((Axis.FIXED, axis, 0))
                continue
            symbol = axis[0][1][0] if len(axis) == 1 and axis[0][0] == 1 and len(axis[0][1]) == 1 else None
            if not isinstance(symbol, int):  # its length follows from others; the long way has compared them
                if not self.exact:
                    raise _Unsuited
                self.words.extend((Axis.FIXED, length, 0))
            elif symbol in self.bound:
                if self.bound[symbol] != length:
                    raise _Unsuited
                self.words.extend((Axis.SAME, symbol, 0))
            else:
                self.bound[symbol] = length
                self.words.extend((Axis.EXACT, symbol, length) if self.exact else (Axis.BIND, symbol, self._least(k, j)))

    def _least(self, k: int, axis: int) -> int:
        """From which length on an axis is a symbol: shorter ones are compiled in, unless the user said otherwise."""
        leaf = self.leaves[k] if k < len(self.leaves) else None
        return 0 if leaf is None or self.symbolic or leaf.declared is not None else STATIC_LENGTH + 1

    def _header(self, array: Any, flags: int, k: int, result: int) -> None:
        about = (Match.ARRAY, id(np.ndarray), self._id(array.dtype), flags, array.ndim, array.itemsize, k, result)
        self.words.extend(about)

    def _out(self, outs: Sequence[Any], leaf: Any) -> None:
        if leaf is None:
            self._same(None)
            return
        places = [k for k, array in enumerate(outs) if array is leaf]
        if type(leaf) is not np.ndarray or len(places) != 1 or not self.signature.results[places[0]].shape:
            raise _Unsuited
        result = self.signature.results[places[0]]
        if leaf.dtype != NUMPY[result.dtype] or leaf.ndim != len(result.shape):
            raise _Unsuited
        self._header(leaf, WRITE, -1, places[0])
        self.words.extend((Axis.ANY, 0, 0) * leaf.ndim)
        self.given += 1

    def guards(self, guards: Sequence[SizeGuard]) -> None:
        """What lengths decided when the function was traced. Of an entry for the same shapes nothing is asked."""
        rows: list[int] = []
        for relation, left, right, outcome in () if self.exact else guards:
            rows.extend((_RELATIONS[relation], *self._size(left), *self._size(right), int(outcome)))
        self._here(Word.GUARDS)
        self.words.extend(rows)
        self.words[Word.GUARD_COUNT] = len(rows) // Guard.WORDS

    # -- results ----------------------------------------------------------------------------------------------------
    def results(self) -> None:
        rows: list[int] = []
        for result in self.signature.results:
            dtype = NUMPY[result.dtype]
            if result.shape:
                rows.extend((Result.ARRAY, dtype.num, len(result.shape), dtype.itemsize))
                for axis in result.shape:
                    rows.extend(self._size(axis))
            else:
                rows.extend((_RESULTS[result.dtype], self._id(dtype), 0, 0))
        self._here(Word.RESULT_ROWS)
        self.words.extend(rows)
        self.words[Word.RESULTS] = len(self.signature.results)
        self.words[Word.WORK_OP], self.words[Word.WORK] = self._size(self.signature.workspace)

    def _size(self, size: Polynomial) -> tuple[int, int]:
        if isinstance(size, int):
            return Size.FIXED, size
        if self.exact:
            return Size.FIXED, evaluated(size, self.bound)
        if len(size) == 1 and size[0][0] == 1 and len(size[0][1]) == 1 and isinstance(size[0][1][0], int):
            return Size.SYMBOL, size[0][1][0]
        start = len(self.words)
        if self._postfix(size) > DEPTH:
            raise _Unsuited
        self.words.extend((Size.END, 0))
        return Size.POLYNOMIAL, start

    def _postfix(self, size: Polynomial) -> int:
        """Write a polynomial; how deep its stack becomes."""
        if isinstance(size, int):
            self.words.extend((Size.FIXED, size))
            return 1
        deepest = 1
        self.words.extend((Size.FIXED, 0))
        for coefficient, factors in size:
            self.words.extend((Size.FIXED, coefficient))
            for factor in factors:
                if isinstance(factor, int):
                    self.words.extend((Size.SYMBOL, factor))
                    deepest = max(deepest, 3)
                else:
                    deepest = max(deepest, 2 + self._postfix(factor[0]), 3 + self._postfix(factor[1]))
                    self.words.extend((Size.DIV, 0))
                self.words.extend((Size.MUL, 0))
            self.words.extend((Size.ADD, 0))
        return max(deepest, 2)

    # -- the answer -------------------------------------------------------------------------------------------------
    def answer(self, output: Structure, primal: int, rebuild: Gradients | None) -> None:
        """``output`` of the first ``primal`` results, the gradients that ``rebuild`` makes of the others, or a pair of both."""
        self._here(Word.BUILD)
        supply = iter(range(len(self.signature.results)))
        if rebuild is not None and primal:
            self.words.extend((Build.TUPLE, 2))
        if rebuild is None or primal:
            self._structure(output, supply)
        if rebuild is not None:
            if not rebuild.single:
                self.words.extend((Build.TUPLE, len(rebuild.parts)))
            for structure, span in rebuild.parts:
                if structure is None:
                    self.words.extend((Build.RESULT, next(supply)))
                else:
                    self._structure(structure, supply, iter(span), rebuild)
        if next(supply, None) is not None:
            raise _Unsuited
        self._kept()

    def _kept(self) -> None:
        """The parts of an answer that can be kept; see Note [Kept answers] in ``callable_kept.py``."""
        numbers, rows, parents = iter(self.words[self.words[Word.BUILD] :]), list[tuple[int, ...]](), list[tuple[int, int]]()
        for op, value in zip(numbers, numbers, strict=True):
            parent, place = parents.pop() if parents else (0, 0)
            if op == Build.TUPLE and value:
                parents.extend((len(rows), k) for k in reversed(range(value)))
                rows.append((Part.TUPLE, 0, parent, place, 0))
                continue
            result = self.signature.results[value] if op == Build.RESULT else None
            if result is None or not (result.shape or result.dtype == "f64") or len(rows) == MOST_PARTS:
                return
            kind = Part.ARRAY if result.shape else Part.FLOAT
            rows.append((kind, value, parent, place, id(NUMPY[result.dtype])))
        if self.given or not any(row[0] != Part.FLOAT for row in rows):
            return
        self.words[Word.PARTS] = len(rows)
        self._here(Word.PART_ROWS)
        self.words.extend(word for row in rows for word in row)
        self._here(Word.SLOTS)
        self.words.extend([0] * (2 * len(rows)))

    def _structure(self, tree: Structure, supply: Any, span: Any = None, rebuild: Gradients | None = None) -> None:
        if tree.kind == "leaf":
            place = None if rebuild is None else next(span)
            if place is None or rebuild is None or place in rebuild.floating:
                self.words.extend((Build.RESULT, next(supply)))
            else:
                zero = rebuild.zeros[place]
                self.words.extend((Build.MAKE, 0, self._id(lambda _: copied(zero))))
            return
        if tree.kind in ("none", "text"):
            self.words.extend((Build.OBJECT, self._id(tree.meta)))
            return
        count = len(tree.children)
        if tree.kind == "dict":
            self.words.extend((Build.DICT, count, *map(self._id, tree.meta)))
        elif tree.kind in ("tuple", "list"):
            self.words.extend((Build.TUPLE if tree.kind == "tuple" else Build.LIST, count))
        else:
            self.words.extend((Build.MAKE, count, self._id(_assembler(tree))))
        for child in tree.children:
            self._structure(child, supply, span, rebuild)

    def entry(self) -> Any:
        """``(words, what lives as long)``."""
        if set(self.bound) != set(range(len(self.signature.symbols))):
            raise _Unsuited
        words = self.words
        new, scalar = numpy_functions()
        words[Word.KERNEL], words[Word.NEW], words[Word.SCALAR] = self.kernel.address, new, scalar
        words[Word.NDARRAY], words[Word.LIST], words[Word.MANY] = id(np.ndarray), id(list), MANY
        made = np.array(words, np.int64)
        start = int(made.__array_interface__["data"][0])
        for word, target in self.addresses:
            made[word] = start + 8 * target
        return made, _Memory(made), *self.keep


def _assembler(tree: Structure) -> Callable[[Sequence[Any]], Any]:
    """What makes a named tuple or a dataclass of its parts."""
    if tree.kind == "namedtuple":
        make: Callable[[Sequence[Any]], Any] = tree.meta._make
        return make
    names = [f.name for f in dataclasses.fields(tree.meta)]
    return lambda parts: tree.meta(**dict(zip(names, parts, strict=True)))


def evaluated(size: Polynomial, symbols: Mapping[int, int]) -> int:
    if isinstance(size, int):
        return size
    total = 0
    for term, factors in size:
        product = term
        for factor in factors:
            if isinstance(factor, int):
                product *= symbols[factor]
            else:
                product *= evaluated(factor[0], symbols) // evaluated(factor[1], symbols)
        total += product
    return total


def suited(kernel: Kernel) -> bool:
    """Whether calls of a kernel can be direct at all."""
    signature = kernel.signature
    arrays = (*signature.params, *signature.results)
    sizes = len(signature.symbols) + signature.local
    if signature.parallel or signature.defined:
        return False
    return not (len(arrays) > MOST or sizes > MOST or any(a.tape or len(a.shape) > 32 for a in arrays))


def made(write: Callable[[], Any]) -> Any:
    """An entry; None if there is none for such a call."""
    try:
        return write()
    except (_Unsuited, ZeroDivisionError, KeyError):
        return None
