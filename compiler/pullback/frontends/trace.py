"""A trace under way: the instructions so far, the lengths known by hint, the guards, and what was captured.

Note [Lengths while tracing]
Every type in the builder is kept canonical. When two axes meet in broadcasting and are not provably equal, one symbol is
solved for (:meth:`Trace.equate`) and replaced everywhere at once, the parameters' own types included: binding the arguments
of a call then checks the lengths. Decisions that depend on a length (does this slice clamp? is this derived size 1?) are
made with the hints, which are the lengths of the arguments at hand, and recorded as guards; a call whose lengths decide
otherwise is traced anew. Where a length was declared ahead of data it is assumed large.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np

import pullback_runtime
from pullback.errors import DTypeError, PullbackError, ShapeError, TraceError, UnsupportedError
from pullback.frontends.staging_region import Region
from pullback.frontends.staging_spans import is_computed, never_negative, surely
from pullback.frontends.traced import Guard, Hidden, SizeGuard, Traced
from pullback.ir import dims
from pullback.ir.core import UNKNOWN, Block, Builder, Func, Instr, Loc, Value, replace_sizes, sizes_in, walk
from pullback.ir.dims import Dim, Size
from pullback.ir.types import FROM_NUMPY, DType, Shape, StackType, Type, i64
from pullback_runtime.direct import tracing
from pullback_runtime.signature import Structure, is_static
from pullback_runtime.spots import Spot

LARGE = 1_000_003  # a length declared ahead of data, for decisions; a prime, so that it divides nothing by accident
_OURS = tuple(
    os.path.dirname(os.path.abspath(f)) + os.sep for f in (os.path.dirname(__file__), pullback_runtime.__file__, np.__file__)
)
COMPLEX = "complex numbers are not supported; compute with the real and the imaginary part"
_STATE = threading.local()


# -- the trace of this thread ---------------------------------------------------------------------------------------
def active() -> Trace | None:
    """The innermost trace of this thread."""
    stack = getattr(_STATE, "stack", None)
    return stack[-1] if stack else None


def current() -> Trace:
    trace = active()
    if trace is None:
        raise TraceError(
            "a traced array is used outside the function that was being traced; return values instead of storing them"
        )
    return trace


# -- places in the user's code --------------------------------------------------------------------------------------
@functools.cache
def is_library(filename: str) -> bool:
    """Whether a file belongs to us, NumPy or SciPy (and so is neither rewritten nor the user's)."""
    return filename.startswith(_OURS) or f"site-packages{os.sep}scipy{os.sep}" in filename or filename.startswith("<frozen")


def user_frame() -> FrameType | None:
    frame = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return frame


_place = functools.lru_cache(4096)(Loc)


def user_loc() -> Loc:
    frame = user_frame()
    return _place(frame.f_code.co_filename, frame.f_lineno) if frame is not None else UNKNOWN


def user_text() -> str:
    """The expression that the user's code is at, as it is written; empty where that cannot be told (before Python 3.11)."""
    frame = user_frame()
    positions = getattr(frame.f_code, "co_positions", None) if frame is not None else None
    if frame is None or positions is None:
        return ""
    first, last, start, stop = next(itertools.islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    if first is None or first != last or start is None or stop is None:
        return ""
    return linecache.getline(frame.f_code.co_filename, first).encode()[start:stop].decode()


def located(message: str, loc: Loc, remedy: str = "") -> str:
    """The three parts of an error: what is wrong, where, what to do."""
    lines = [message]
    if loc.line:
        code = linecache.getline(loc.file, loc.line).strip()
        code = code if len(code) <= 200 else f"{code[:200]}..."  # a generated line can be very long
        lines.append(f"  at {loc.file}:{loc.line}" + (f": {code}" if code else ""))
    if remedy:
        lines.append(f"  {remedy}")
    return "\n".join(lines)


class Trace:
    """What is being built. ``loc`` fixes the place of the next instructions; None asks the user's frame."""

    def __init__(self, name: str, loc: Loc | None = None):
        self.name = name
        self.loc = loc
        self.builder = Builder()
        self.region: Region | None = None  # the innermost block that is being traced
        self.pending: list[Region] = []  # blocks that were traced and wait for what they yield
        self.params: list[Value] = []
        self.hidden: dict[str, tuple[Hidden, Value]] = {}
        self.hints: dict[str, int] = {}
        self.symbols: list[str] = []  # of parameters, in order
        self.rigid: set[str] = set()  # symbols that never broadcast
        self.counts: set[str] = set()  # symbols that masks define
        self.guards: dict[Any, Guard] = {}
        self.names: list[tuple[str, Value]] = []
        self.equations: dict[str, Size] = {}
        self.memo: dict[Any, Any] = {}  # what is not to be made twice in a block: a mask's places, a checked index
        self.spans: dict[str, Size] = {}  # the largest value of each integer that is a size, see staging_index.py
        self.finished = False
        self.refusal: PullbackError | None = None  # the first thing that could not be traced

    def __enter__(self) -> Trace:
        if not hasattr(_STATE, "stack"):
            _STATE.stack = []
        _STATE.stack.append(self)
        tracing(1)
        return self

    def __exit__(self, *exception: object) -> None:
        _STATE.stack.pop()
        tracing(-1)
        self.finished = True

    # -- places and errors ------------------------------------------------------------------------------------------
    def where(self) -> Loc:
        return self.loc if self.loc is not None else user_loc()

    def here(self) -> Builder:
        """The builder, set to the user's line."""
        self.builder.loc = self.where()
        return self.builder

    def error(self, kind: type[PullbackError], message: str, remedy: str = "") -> PullbackError:
        made = kind(located(message, self.where(), remedy))
        if self.refusal is None and issubclass(kind, (TraceError, UnsupportedError)):
            self.refusal = made
        return made

    # -- inputs -----------------------------------------------------------------------------------------------------
    def parameter(self, name: str, type: Type, hint: tuple[int, ...] | None = None, declared: bool = False) -> Value:
        """``declared``: the lengths were named by the user and never broadcast."""
        value = Value(name, type)
        self._declare(type, hint)
        if declared or hint is None:
            self.rigid |= dims.symbols(type.shape)
        self.params.append(value)
        return value

    def _declare(self, type: Type, hint: tuple[int, ...] | None) -> None:
        for axis, size in enumerate(type.shape):
            symbol = size.bare_symbol() if isinstance(size, Dim) else None
            if symbol is not None and symbol not in self.symbols:
                self.symbols.append(symbol)
                self.hints[symbol] = LARGE if hint is None else hint[axis]

    def capture(self, path: str, array: np.ndarray[Any, Any], read: Callable[[], Any]) -> Value:
        """An array from outside as a hidden input, one for each access path."""
        found = self.hidden.get(path)
        if found is not None:
            return found[1]
        dtype = self.element_type(array.dtype, path)
        shape = tuple(n if is_static(n) else self._fresh_symbol(k) for k, n in enumerate(array.shape))
        type = Type(dtype, shape)
        self._declare(type, array.shape)
        value = Value(re.sub(r"\W+", "_", path.partition(" ")[2] or path).strip("_"), type)

        def read_now() -> np.ndarray[Any, Any]:
            array = np.asarray(read())
            if self.element_type(array.dtype, path) is not dtype:
                raise DTypeError(f"{path} was {dtype} and has become {array.dtype}")  # which asks for another trace
            return array.astype(dtype.numpy, copy=False)

        hidden = Hidden(path, type, read_now, read if isinstance(read, Spot) else None)
        self.hidden[path] = (hidden, value)
        return value

    def lift(self, array: Any) -> Value:
        """A traced array of an enclosing trace as a hidden input of this one; inlining connects the two again."""
        path = f"outer value {id(array)}.{array.version}"
        found = self.hidden.get(path)
        if found is not None:
            return found[1]
        hint = tuple(array.context.hint(n) for n in array.symbolic_shape)
        shape = tuple(self._fresh_symbol(k) if isinstance(n, Dim) else n for k, n in enumerate(array.symbolic_shape))
        type = Type(array.dtype_, shape)
        self._declare(type, hint)
        value = Value("outer", type)
        self.hidden[path] = (Hidden(path, type, lambda: array), value)
        return value

    def _fresh_symbol(self, axis: int) -> Dim:
        taken = {*self.symbols, *self.equations, *self.counts}
        return Dim.symbol(next(s for s in (f"h{k}" for k in itertools.count(len(self.hidden) + axis)) if s not in taken))

    def element_type(self, dtype: np.dtype[Any], what: str) -> DType:
        """The IR's element type for a NumPy one; int32 and uint32 are cast, whatever else has no place is refused."""
        dtype = dtype.newbyteorder("=")
        if dtype in (np.dtype(np.int32), np.dtype(np.uint32)):
            return i64
        found = FROM_NUMPY.get(dtype)
        if found is None:
            raise self.error(
                DTypeError,
                f"{what} has the element type {dtype}; float64, float32, int64, int32, uint32 or bool expected",
                COMPLEX if dtype.kind == "c" else "convert it, for example with .astype(float)",
            )
        return found

    def label(self, name: str, value: Any) -> Any:
        """``pb.name``: remember a value under a name that can be seeded and asked for."""
        if any(name == known for known, _ in self.names):
            raise self.error(TraceError, f"the name {name!r} is given twice", "give every named value a name of its own")
        if self.region is not None:
            raise self.error(
                TraceError,
                f"{name!r} is given to a value in {self.region.what}, which has another value each time, or none",
                "name what comes out of the loop or branch",
            )
        inner = getattr(value, "value", None)
        if not isinstance(inner, Value):
            raise self.error(TraceError, f"{name!r} is given to a {type(value).__name__}; a traced array or number expected")
        self.names.append((name, inner))
        return value

    # -- lengths ----------------------------------------------------------------------------------------------------
    def canonical(self, size: Size) -> Size:
        while isinstance(size, Dim) and not size.symbols().isdisjoint(self.equations):
            size = dims.replace(size, self.equations)
        return size

    def canonical_shape(self, shape: Sequence[Size]) -> Shape:
        return tuple(self.canonical(n) for n in shape)

    def hint(self, size: Size) -> int:
        """The length that a size has for the arguments at hand."""
        size = self.canonical(size)
        if not dims.symbols((size,)).isdisjoint(self.counts):
            raise self.error(
                TraceError,
                f"a decision depends on {size}, but how many elements a mask selects is known only when the function runs",
                "use np.where(mask, value, 0) instead of selecting by the mask",
            )
        return dims.evaluate(size, self.hints)

    def decide(self, left: Size, relation: str, right: Size) -> bool:
        """Whether ``left relation right`` ("==", "<", "<="); recorded as a guard unless it holds, or fails, for all lengths."""
        left, right = self.canonical(left), self.canonical(right)
        difference = right - left
        if isinstance(difference, int):
            return {"==": difference == 0, "<": difference > 0, "<=": difference >= 0}[relation]
        slack = difference - (1 if relation == "<" else 0)  # the relation says that this is not negative
        if relation != "==" and never_negative(slack):
            return True
        if relation != "==" and never_negative(-1 * slack - 1):
            return False
        if is_computed(self, difference):
            return self._decide_computed(relation, difference, slack)
        key = (relation == "==", slack)  # two ways of asking one thing make one guard
        found = self.guards.get(key)
        if found is None:
            guard = SizeGuard(left, relation, right, True, self.where())
            sizes = {name: self.hint(Dim.symbol(name)) for name in dims.symbols((left, right))}
            found = self.guards[key] = guard if guard.holds(sizes) else replace(guard, outcome=False)
        return found.outcome  # type: ignore[union-attr]  # such a key belongs to a guard over sizes

    def _decide_computed(self, relation: str, difference: Size, slack: Size) -> bool:
        """What holds for all values of an integer that the function computes; no guard can decide the rest."""
        if relation != "==" and surely(self, 0, slack):
            return True
        if surely(self, slack, -1) or (relation == "==" and surely(self, 1, difference)):
            return False
        raise self.error(
            TraceError,
            "a decision depends on a length that is computed, or on the index of a loop",
            "compare values instead of lengths, or use arrays whose lengths are fixed with np.where",
        )

    def number(self, size: Size, limit: float = math.inf) -> int:
        """The length as a number, to which the trace is then bound; ``limit`` is for loops that are unrolled."""
        size = self.canonical(size)
        if isinstance(size, int):
            return size
        value = self.hint(size)
        if any(self.hints.get(name) == LARGE for name in size.symbols()):
            raise self.error(
                TraceError,
                f"the length {size} was declared without data, so it has no number here",
                "keep it symbolic (x.shape[0] in arithmetic, np.arange(n), np.zeros(n)), or compile by calling with data",
            )
        if value > limit:
            raise self.error(
                TraceError,
                f"the loop over the length {size} ({value} here) would be unrolled into as many copies of its body",
                "use operations on whole arrays",
            )
        self.decide(size, "==", value)
        return value

    def equate(self, a: Size, b: Size) -> bool:
        """Make two lengths one, or say that it takes a check at run time (False). ShapeError if they differ."""
        a, b = self.canonical(a), self.canonical(b)
        difference = a - b
        if difference == 0:
            return True
        if isinstance(difference, int):
            raise self.mismatch((a,), (b,))
        known = dims.symbols((a, b)).isdisjoint(self.counts)
        if known and LARGE not in (self.hints[s] for s in dims.symbols((a, b))) and self.hint(a) != self.hint(b):
            raise self.mismatch((a,), (b,))
        solution = dims.solve(difference, reversed(self.symbols)) if known else None
        if solution is None or (isinstance(solution[1], int) and solution[1] < 0):
            return False
        self._substitute(*solution)
        return True

    def is_open(self, *sizes: Size) -> bool:
        """Whether a length was declared without data, or is defined by a mask, so that nothing can be decided with it."""
        names = dims.symbols(self.canonical_shape(sizes))
        return not names.isdisjoint(self.counts) or any(self.hints.get(name) == LARGE for name in names)

    def _substitute(self, symbol: str, size: Size) -> None:
        """Replace a symbol in every type and attribute so far."""
        self.equations[symbol] = size
        self.symbols.remove(symbol)
        values = {symbol: size}
        _replace_types((*self.params, *(v for _, v in self.hidden.values())), values)
        builder: Builder | None = self.builder
        while builder is not None:  # of the innermost block and of those around it
            builder.body[:] = [_with_sizes(instr, values) for instr in builder.body]
            builder = builder.parent
        region = self.region
        while region is not None:
            _replace_types(region.params, values)
            region = region.parent
        for region in self.pending:
            region.builder.body[:] = [_with_sizes(instr, values) for instr in region.builder.body]
            _replace_types(region.params, values)

    def mismatch(self, left: Shape, right: Shape) -> PullbackError:
        """NumPy's broadcasting error, with the lengths of the arguments at hand."""
        texts = [self.shape_text(shape, ",") for shape in (left, right)]
        return self.error(
            ShapeError,
            f"operands could not be broadcast together with shapes {texts[0]} {texts[1]}",
            "lengths must be equal, or one of them 1",
        )

    def shape_text(self, shape: Sequence[Size], comma: str = ", ") -> str:
        """A shape with the lengths of the arguments at hand."""
        return "(" + comma.join(map(self.length_text, shape)) + ("," if len(shape) == 1 else "") + ")"

    def with_lengths(self, message: str) -> str:
        """The message of an op, whose types are written with symbols: ``f64[n0, 3]`` as ``f64[20, 3]``."""

        def known(found: re.Match[str]) -> str:
            try:
                return f"[{', '.join(self.length_text(Dim.parse(part)) for part in found[1].split(', '))}]"
            except ValueError:  # brackets of another meaning
                return found[0]

        return re.sub(r"\[([^][]+)\]", known, message)

    def length_text(self, size: Size) -> str:
        size = self.canonical(size)
        known = all(self.hints.get(name, LARGE) != LARGE for name in dims.symbols((size,)))
        return str(dims.evaluate(size, self.hints)) if known else str(size)

    def common_size(self, sizes: Sequence[Size]) -> Size:
        """The length of an axis in which arrays of these lengths meet, by NumPy's rule."""
        result: Size = 1
        for size in map(self.canonical, sizes):
            if self.is_one(size, result):
                continue
            if self.is_one(result, size):
                result = size
            else:
                self.equate(result, size)
                result = self.canonical(result)
        return result

    def is_one(self, size: Size, other: Size) -> bool:
        """Whether an axis that meets one of length ``other`` is of length 1, by a guard if need be."""
        size = self.canonical(size)
        if not isinstance(size, Dim) or size == self.canonical(other):
            return size == 1
        symbol = size.bare_symbol()
        if symbol is not None:  # a wrong guess does not bind to the call, so only the 1 needs a guard
            return symbol not in self.rigid and self.hints.get(symbol) == 1 and self.decide(size, "==", 1)
        return dims.symbols((size,)).isdisjoint(self.counts) and self.decide(size, "==", 1)

    def nonzero(self, mask: Value) -> Value:
        """Where a mask holds, flattened; asking again about the same mask gives the same indices, so their length is one."""
        found: Value | None = self.memo.get(mask)
        if found is None:
            b = self.builder
            symbol = next(s for s in (f"k{j}" for j in itertools.count()) if s not in self.counts and s not in self.hints)
            self.counts.add(symbol)
            if self.region is not None:
                self.region.counts.add(symbol)
            flat = mask if mask.type.rank == 1 else b.reshape(mask, shape=(mask.type.size,))
            found = self.memo[mask] = b.nonzero(flat, symbol=symbol)
        return found

    # -- the end ----------------------------------------------------------------------------------------------------
    def finish(self, results: Sequence[Value], output: Structure, weak: Sequence[bool] = ()) -> Traced:
        """Close the function. Captured arrays that nothing reads are dropped.

        What could not be traced is raised again if the function caught it: its handler is for what NumPy raises.
        """
        if self.refusal is not None:
            raise self.refusal
        self.builder.loc = UNKNOWN
        used = {arg for instr in walk(Block((), tuple(self.builder.body))) for arg in instr.args} | set(results)
        kept = [(hidden, value) for hidden, value in self.hidden.values() if value in used]
        defined = dims.symbols(s for v in (*self.params, *(v for _, v in kept)) for s in v.type.shape) | self.counts
        if not self._used_symbols(results) <= defined:  # the length of an otherwise unused array is in use
            kept = list(self.hidden.values())
        block = self.builder.close("return", results, (*self.params, *(v for _, v in kept)))
        func = Func(self.name, block, tuple(self.names))
        hidden = tuple(replace(h, type=v.type) for h, v in kept)
        return Traced(func, output, hidden, tuple(map(self._canonical_guard, self.guards.values())), tuple(weak))

    def _used_symbols(self, results: Sequence[Value]) -> frozenset[str]:
        """The symbols of what was built and of the guards."""
        sizes: list[Size] = [s for v in results for s in v.type.shape]
        for instr in walk(Block((), tuple(self.builder.body))):
            sizes += sizes_in(instr)
        for guard in map(self._canonical_guard, self.guards.values()):
            sizes += [guard.left, guard.right] if isinstance(guard, SizeGuard) else []
        return dims.symbols(sizes)

    def _canonical_guard(self, guard: Guard) -> Guard:
        if isinstance(guard, SizeGuard):
            return replace(guard, left=self.canonical(guard.left), right=self.canonical(guard.right))
        return guard


def _replace_types(made: Iterable[Value], sizes: Mapping[str, Size]) -> None:
    for value in made:
        array = value.type.element if isinstance(value.type, StackType) else value.type
        if not dims.symbols(array.shape).isdisjoint(sizes):
            value.type = value.type.replace(sizes)


def _with_sizes(instr: Instr, sizes: Mapping[str, Size]) -> Instr:
    """The instruction with symbols replaced, in the blocks that it carries too; the types of values change in place."""
    _replace_types(instr.outs, sizes)
    attrs = replace_sizes(instr.attrs, sizes)
    if attrs is instr.attrs and not instr.blocks:
        return instr
    for block in instr.blocks:
        _replace_types(block.params, sizes)
    blocks = tuple(Block(b.params, tuple(_with_sizes(inner, sizes) for inner in b.body)) for b in instr.blocks)
    return Instr(instr.op, instr.outs, instr.args, attrs, blocks, instr.loc)
