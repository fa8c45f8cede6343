"""A compiled kernel: machine code and what has to be known to call it with NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback_runtime import errors
from pullback_runtime.quick import quick_call
from pullback_runtime.signature import NUMPY
from pullback_runtime.sizes import Polynomial, compiled, nested
from pullback_runtime.tape import Tape
from pullback_runtime.workspace import Freelist, quick_address

ERRORS: dict[str, type[Exception]] = {
    "IndexError": IndexError,
    "LinAlgError": np.linalg.LinAlgError,
    "PullbackError": errors.PullbackError,
    "ShapeError": errors.ShapeError,
    "ValueError": ValueError,
    "ZeroDivisionError": ZeroDivisionError,
}
AGAIN = "again"  # the error of a failure after which the kernel with guards is called
READABLE = 0x101  # NumPy's flags C_CONTIGUOUS and ALIGNED
INTERRUPTED = -1  # the status of a call that a signal's handler stopped
SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 5)


@dataclass(frozen=True, slots=True)
class Array:
    """An argument's or result's element type and shape; an axis is a number or a polynomial over the symbols. A tape has the
    type of its height and no shape."""

    dtype: str
    shape: tuple[Polynomial, ...]
    text: str  # as the IR writes it, for messages
    tape: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed check says: ``text`` with ``{0}`` and ``{1}`` for the two integers of the context."""

    error: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """All that a kernel's caller needs: plain data, so that an exported library can carry it.

    ``symbols`` are bound from the arguments' shapes, in this order; ``defined`` come after them and are written by the kernel,
    each with an upper bound over ``symbols`` that sizes what is allocated before the call. ``upper`` are the results'
    shapes with those bounds in place. ``workspace`` is in bytes. ``local`` sizes more are the kernel's own. ``loops``: a call
    may take long, and asks now and then whether it should stop. ``parallel``: it has loops that threads share.
    """

    name: str
    params: tuple[Array, ...]
    results: tuple[Array, ...]
    symbols: tuple[str, ...]
    defined: tuple[str, ...]
    bounds: tuple[Polynomial, ...]
    workspace: Polynomial
    failures: tuple[Failure, ...]
    local: int = 0
    loops: bool = False
    parallel: bool = False


class Kernel:
    """``kernel(args)``: arrays in the order of the parameters give a list of results.

    Arguments are arrays of exactly the declared element types; scalars may be Python numbers. A rank-0 result is a Python
    float, int or bool (a NumPy float32 for f32), a stack a ``Tape``. ``out`` is a list with an array, or None, for each result;
    results may overlap arguments there, and go through a temporary then. ``keep`` is whatever has to live as long as the code.
    """

    def __init__(self, signature: Signature, address: int, keep: Any = None, texts: Any = None):
        self.signature = signature
        self.texts = texts  # "loops", "llvm" ...: functions that give the text; None for an exported library
        self._keep = keep
        self.address = address
        self.calls = 0  # how often a Function has served calls with it, up to a few
        self._call = SIGNATURE(address)
        count = len(signature.symbols)
        self._arrays = [(k, p, NUMPY[p.dtype], len(p.shape)) for k, p in enumerate(signature.params) if p.shape]
        self._scalars = [(k, NUMPY[p.dtype]) for k, p in enumerate(signature.params) if not p.shape and not p.tape]
        self._tapes = [(k, p) for k, p in enumerate(signature.params) if p.tape]
        self._results = [(bool(r.shape), NUMPY[r.dtype]) for r in signature.results]
        self._binders = _binders(signature)
        self._checks = _checks(signature)
        bounded = [tuple(_bounded(axis, count, signature.bounds) for axis in r.shape) for r in signature.results]
        self._upper = nested(bounded)
        self._exact = nested([r.shape for r in signature.results]) if signature.defined else None
        self._static = None if count else (self._upper(()), compiled((signature.workspace,))(()))
        self._workspace = compiled((signature.workspace,))
        scalars = [None if p.shape or p.tape else p.dtype for p in signature.params]
        cells = [None if r.shape or r.tape else r.dtype for r in signature.results]
        sizes = count + len(signature.defined) + signature.local
        self._frames = Freelist(scalars, cells, sizes, signature.loops, signature.parallel)
        self._make_guarded: Callable[[], Kernel] | None = None
        self._careful: Kernel | None = None
        self._quick: Callable[[Sequence[Any]], list[Any]] = self._first

    def _first(self, args: Sequence[Any]) -> list[Any]:
        """The first call goes the general way, for making the quick one takes longer than that."""
        self._quick = self._second
        return self._slow(args)

    def _second(self, args: Sequence[Any]) -> list[Any]:
        signature = self.signature
        dtypes, results = ([NUMPY[a.dtype] for a in arrays] for arrays in (signature.params, signature.results))
        self._quick = quick_call(signature, dtypes, results, self._frames, self._call, self._slow, self._error, self._guarded)
        return self._quick(args)

    def rebound(self, signature: Signature) -> Kernel:
        """The same code under a signature that differs in texts alone."""
        return Kernel(signature, self.address, self._keep, self.texts)

    def with_guards(self, make: Callable[[], Kernel]) -> Kernel:
        """The same code, with the kernel that ``make`` gives called where it fails with AGAIN: see Note [Speculation] in
        ``pullback/passes/speculate.py``. A kernel of its own, since equal code may stand for different guards."""
        kernel = self.rebound(self.signature)
        kernel._make_guarded = make
        return kernel

    @property
    def guarded(self) -> bool:
        """Whether there is a kernel with guards for where this one fails."""
        return self._make_guarded is not None

    def _guarded(self, args: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        if self._careful is None:
            assert self._make_guarded is not None
            self._careful = self._make_guarded()
        return self._careful(args, out)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        return self._quick(args) if out is None else self._slow(args, out)

    def _slow(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        frame = self._frames.take()
        try:
            found = self._run(frame, args, out)
        finally:
            self._frames.give(frame)
        return self._guarded(args, out) if found is None else found

    def _run(self, frame: Any, args: Sequence[Any], out: Sequence[Any] | None) -> list[Any] | None:
        """The results; None if the kernel with guards has to be called."""
        if len(args) != len(self.signature.params):
            raise TypeError(f"{self.signature.name} takes {len(self.signature.params)} arguments, got {len(args)}")
        arrays = self._pass(frame, args)
        sizes = self._bind(arrays)
        if self._static is not None:
            shapes, (work,) = self._static
        else:
            shapes, (work,) = self._upper(sizes), self._workspace(sizes)
            for k, size in enumerate(sizes):
                frame.sizes[k] = size
        results = self._allocate(frame, shapes, arrays, out)
        status = self._call(*frame.pointers, frame.reserve(work) if work else None)
        if status:
            error = self._error(status, frame)
            if error is None:
                return None
            raise error
        return self._collect(frame, results, out)

    # -- in --------------------------------------------------------------------------------------------------------
    def _pass(self, frame: Any, args: Sequence[Any]) -> list[Any]:
        """Put scalars and pointers into the frame; gives the arrays, which must outlive the call."""
        for k, dtype in self._scalars:
            value = args[k]
            if type(value) is not float and isinstance(value, (np.ndarray, np.generic)):
                if value.dtype != dtype or value.ndim:
                    raise errors.DTypeError(f"argument {k}: a scalar {dtype} expected, got {_described(value)}")
                value = value.item()
            frame.scalars[k].value = value
        for k, param in self._tapes:
            if not isinstance(args[k], Tape) or args[k].text != param.text:
                raise errors.DTypeError(f"argument {k}: {param.text} expected, got {_described(args[k])}")
            frame.inputs[k] = args[k].address
        arrays = []
        for k, param, dtype, rank in self._arrays:
            array = args[k]
            if not isinstance(array, np.ndarray) or (array.dtype is not dtype and array.dtype != dtype):
                raise errors.DTypeError(f"argument {k}: {param.text} expected, got {_described(array)}")
            if array.ndim != rank:
                raise errors.ShapeError(f"argument {k}: {param.text} expected, got {_described(array)}")
            if array.flags.num & READABLE != READABLE:
                array = np.require(array, requirements=("C", "A"))
            arrays.append(array)
            frame.inputs[k] = quick_address(array)
        return arrays

    def _bind(self, arrays: Sequence[Any]) -> list[int]:
        sizes = [arrays[position].shape[axis] for position, axis in self._binders]
        if self._checks is not None:
            expected = self._checks(sizes)
            for array, shape, (k, param, _, _) in zip(arrays, expected, self._arrays, strict=True):
                if array.shape != shape:
                    raise errors.ShapeError(
                        f"argument {k}: {param.text} expected, here of shape {shape}; got shape {array.shape}"
                    )
        return sizes

    # -- out -------------------------------------------------------------------------------------------------------
    def _allocate(self, frame: Any, shapes: Any, arrays: Sequence[Any], out: Sequence[Any] | None) -> list[Any]:
        results: list[Any] = []
        for k, (ranked, dtype) in enumerate(self._results):
            if not ranked:
                result = self.signature.results[k]
                results.append(Tape(result.text) if result.tape else None)
                if result.tape:
                    frame.outputs[k] = results[k].address
                continue
            given = None if out is None else out[k]
            if given is not None and _usable(given, shapes[k], dtype, [*arrays, *results]):
                array = given
            else:
                array = np.empty(shapes[k], dtype)
            results.append(array)
            frame.outputs[k] = quick_address(array)
        return results

    def _collect(self, frame: Any, results: list[Any], out: Sequence[Any] | None) -> list[Any]:
        if self._exact is not None:
            exact = self._exact(frame.sizes)
            for k, array in enumerate(results):
                if isinstance(array, np.ndarray) and array.shape != exact[k]:
                    count = int(np.prod(exact[k], dtype=np.int64))
                    results[k] = array.reshape(-1)[:count].reshape(exact[k])
        for k, array in enumerate(results):
            if array is None:
                value = frame.results[k].value
                results[k] = value if self._results[k][1] != np.float32 else np.float32(value)
            if out is not None and out[k] is not None and out[k] is not results[k]:
                if np.shape(out[k]) != np.shape(results[k]):
                    raise errors.ShapeError(f"out[{k}]: shape {np.shape(results[k])} expected, got {np.shape(out[k])}")
                out[k][...] = results[k]
                results[k] = out[k]
        return results

    def _error(self, status: int, frame: Any) -> BaseException | None:
        """What a call that ended with ``status`` raises; None if it is to be made again with guards."""
        if status == INTERRUPTED:
            return frame.interruption()
        failure = self.signature.failures[status - 1]
        if failure.error == AGAIN:
            return None
        text = failure.text.format(frame.context[0], frame.context[1])
        return ERRORS[failure.error](f"{text} ({failure.where})" if failure.where else text)


def _usable(array: Any, shape: tuple[int, ...], dtype: np.dtype[Any], arrays: Sequence[Any]) -> bool:
    """Whether the kernel can write into a caller's array directly."""
    if not isinstance(array, np.ndarray):
        raise errors.DTypeError(f"out: an array expected, got {_described(array)}")
    if array.dtype != dtype:
        raise errors.DTypeError(f"out: element type {dtype} expected, got {array.dtype}")
    if not array.flags.writeable:
        raise ValueError("out: the array is read-only")
    fits = array.shape == shape and array.flags.c_contiguous and array.flags.aligned
    return fits and not any(isinstance(other, np.ndarray) and np.may_share_memory(array, other) for other in arrays)


def _described(value: Any) -> str:
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def _bare(axis: Polynomial) -> int | None:
    """The number of a symbol that stands alone."""
    if isinstance(axis, tuple) and len(axis) == 1 and axis[0][0] == 1 and len(axis[0][1]) == 1:
        factor = axis[0][1][0]
        return factor if isinstance(factor, int) else None
    return None


def _binders(signature: Signature) -> list[tuple[int, int]]:
    """For each symbol, the position among the array arguments and the axis that define it."""
    found: dict[int, tuple[int, int]] = {}
    position = 0
    for param in signature.params:
        if param.shape:
            for axis, size in enumerate(param.shape):
                symbol = _bare(size)
                if symbol is not None:
                    found.setdefault(symbol, (position, axis))
            position += 1
    missing = [name for k, name in enumerate(signature.symbols) if k not in found]
    if missing:
        raise errors.ShapeError(f"{signature.name}: no argument has {missing[0]} alone as the length of an axis")
    return [found[k] for k in range(len(signature.symbols))]


def _checks(signature: Signature) -> Any:
    """The shapes that the arguments must have given the symbols; None if any shapes will do."""
    shapes = [p.shape for p in signature.params if p.shape]
    symbols = [_bare(axis) for shape in shapes for axis in shape]
    if None not in symbols and len(set(symbols)) == len(symbols):
        return None
    return nested(shapes)


def _bounded(size: Polynomial, count: int, bounds: Sequence[Polynomial]) -> Polynomial:
    """``size`` with each symbol that the kernel defines at its bound, where it adds, and at 0 where it takes away."""
    if isinstance(size, int) or not bounds:
        return size
    terms = []
    for coefficient, factors in size:
        defined = any(not isinstance(f, int) or f >= count for f in factors)
        if defined and coefficient < 0:
            continue
        replaced = []
        for factor in factors:
            if isinstance(factor, int):
                replaced.append(factor if factor < count else (bounds[factor - count], 1))
            else:
                replaced.append((_bounded(factor[0], count, bounds), factor[1]))
        terms.append((coefficient, tuple(replaced)))
    return tuple(terms)
