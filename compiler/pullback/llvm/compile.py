"""A Func to a Kernel: loop nests, LLVM text, machine code. Equal functions and options are compiled once per process."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.core import Block, Func, Instr, Loc, walk
from pullback.ir.dims import Dim, Size, upper_bound
from pullback.ir.text import key
from pullback.ir.types import StackType, i64
from pullback.llvm.emit import ALIGN, Emitted, emit
from pullback.llvm.options import Options
from pullback.loops.lower import lower
from pullback.loops.nest import For, Program, While, statements
from pullback.loops.text import print_program
from pullback_runtime.kernel import Array, Failure, Kernel, Signature

LITTLE = 2000  # scalar statements up to which straight-line code is optimised

KEPT = 1024  # kernels that the process keeps for functions to come; those in use live on without it


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A kernel as compiled first, and which instruction (in the order of ``walk``) each of its failures belongs to."""

    kernel: Kernel
    origins: tuple[int, ...]


_cache: OrderedDict[Any, _Compiled] = OrderedDict()
_cache_lock = threading.Lock()


def compile_kernel(func: Func, options: Options | None = None) -> Kernel:
    """Machine code for ``func``; UnsupportedError for what cannot be compiled.

    The code is shared with every equal function; the name and the places that messages tell are this function's own.
    """
    options = options or Options()
    identity = (key(func), options)
    found = _cache.get(identity)
    if found is None:
        with _cache_lock:
            found = _cache.get(identity)
            if found is None:
                found = _cache[identity] = _compile(func, options)
                if len(_cache) > KEPT:
                    _cache.popitem(last=False)
    with suppress(KeyError):  # another thread has made it the oldest and dropped it
        _cache.move_to_end(identity)
    return _told_of(func, found)


def _compile(func: Func, options: Options) -> _Compiled:
    from pullback.llvm import engine  # llvmlite's binding takes 70 ms to import

    program = lower(_numbered(func))
    emitted = emit(program, engine.features(), options.fast_math)
    modules = [engine.Module(emitted.kernel, _level(emitted))]
    if emitted.chunks:
        modules.append(engine.Module(emitted.chunks, 0))
    linked = engine.Linked([m.object() for m in modules], "k", emitted.blas)
    texts = _Texts(program, emitted)
    kernel = Kernel(signature(program, emitted.frame), linked.address, linked, texts)
    return _Compiled(kernel, tuple(m.loc.column for m in program.messages))


def _numbered(func: Func) -> Func:
    """``func`` with every instruction's number as the column of its place, where the loop level's messages carry it along."""
    numbers = itertools.count()

    def instr(old: Instr) -> Instr:
        loc = Loc(old.loc.file, old.loc.line, next(numbers))
        return Instr(old.op, old.outs, old.args, old.attrs, tuple(map(block, old.blocks)), loc)

    def block(old: Block) -> Block:
        return Block(old.params, tuple(map(instr, old.body)))

    return Func(func.name, block(func.block), func.names)


def _told_of(func: Func, compiled: _Compiled) -> Kernel:
    """The kernel with this function's name and places in its messages."""
    signature = compiled.kernel.signature
    places: list[str] = []
    if compiled.origins:
        locs = [instr.loc for instr in walk(func.block)]
        places = [_where(locs[k]) for k in compiled.origins]
    if func.name == signature.name and places == [f.where for f in signature.failures]:
        return compiled.kernel
    failures = tuple(replace(f, where=where) for f, where in zip(signature.failures, places, strict=True))
    kernel = compiled.kernel.rebound(replace(signature, name=func.name, failures=failures))
    kernel.texts = kernel.texts.named(func.name)
    return kernel


def _level(emitted: Emitted) -> int:
    if emitted.largest > LITTLE:  # a loop is one function, however long
        return 1 if emitted.largest <= 4 * LITTLE else 0
    return 2 if emitted.loops else 1 if emitted.scalars <= LITTLE else 0


class _Texts:
    """The texts of a kernel's stages, made when asked for."""

    def __init__(self, program: Program, emitted: Emitted):
        self._program = program
        self._emitted = emitted

    def named(self, name: str) -> _Texts:
        """The texts of the same code for a function of another name."""
        return _Texts(replace(self._program, name=name), self._emitted)

    def __call__(self, stage: str) -> str:
        from pullback.llvm import engine

        if stage == "loops":
            return print_program(self._program)
        if stage == "llvm":
            return self._emitted.kernel + self._emitted.chunks
        modules = [engine.Module(self._emitted.kernel, _level(self._emitted))]
        if self._emitted.chunks:
            modules.append(engine.Module(self._emitted.chunks, 0))
        if stage == "optimized":
            return "".join(m.text() for m in modules)
        if stage == "asm":
            return "".join(m.assembly() for m in modules)
        raise ValueError(f"no stage {stage!r}; there are loops, llvm, optimized and asm")


# -- what the runtime has to know -----------------------------------------------------------------------------------
def signature(program: Program, frame: int) -> Signature:
    numbers = {name: k for k, name in enumerate((*program.symbols, *program.defined))}
    total: Size = -(-8 * frame // ALIGN) * ALIGN
    for region in program.regions:
        total = total + (region + (ALIGN - 1)) // ALIGN * ALIGN
    bounds = [upper_bound(b, program.defined) for b in program.defined.values()]
    return Signature(
        name=program.name,
        params=tuple(_array(p.type, numbers) for p in program.params),
        results=tuple(_array(t, numbers) for t in program.result_types),
        symbols=program.symbols,
        defined=tuple(program.defined),
        bounds=tuple(polynomial(b, numbers) for b in bounds),
        workspace=polynomial(total, numbers),
        failures=tuple(Failure(m.error, m.text, _where(m.loc)) for m in program.messages),
        local=len(program.local),
        loops=any(isinstance(s, (For, While)) for s in statements(program.body)),
    )


def _array(kind: Any, numbers: Mapping[str, int]) -> Array:
    if isinstance(kind, StackType):
        return Array(i64.name, (), str(kind), tape=True)
    return Array(kind.dtype.name, tuple(polynomial(size, numbers) for size in kind.shape), str(kind))


def _where(loc: Loc) -> str:
    return str(loc) if loc.line else ""


def polynomial(size: Size, numbers: Mapping[str, int]) -> Any:
    """A size as the runtime's tuples."""
    if not isinstance(size, Dim):
        return size
    terms = []
    for monomial, coefficient in size.terms:
        factors: list[Any] = []
        for atom in monomial:
            if isinstance(atom, str):
                factors.append(numbers[atom])
            else:
                factors.append((polynomial(atom.numerator, numbers), polynomial(atom.denominator, numbers)))
        terms.append((coefficient, tuple(factors)))
    return tuple(terms)
