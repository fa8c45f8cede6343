"""A Func to a Kernel: loop nests, LLVM text, machine code. Equal functions and options are compiled once per process."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pullback.ir.core import Block, Func, Instr, Loc, walk
from pullback.ir.dims import Dim, Size, upper_bound
from pullback.ir.ops.base import Elementwise
from pullback.ir.text import key
from pullback.ir.types import StackType, i64
from pullback.llvm import kernels, store
from pullback.llvm.image import link
from pullback.llvm.options import Options
from pullback_runtime.kernel import Array, Failure, Kernel, Signature

if TYPE_CHECKING:
    from pullback.llvm.emit import Emitted
    from pullback.loops.nest import Program

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
                found = _cache[identity] = _compile(func, options, identity[0])
                if len(_cache) > KEPT:
                    _cache.popitem(last=False)
    with suppress(KeyError):  # another thread has made it the oldest and dropped it
        _cache.move_to_end(identity)
    return _told_of(func, found)


def _compile(func: Func, options: Options, identity: bytes) -> _Compiled:
    entry = store.entry("kernel", identity, f"fast_math={options.fast_math} opt={options.opt} parallel={options.parallel}")
    texts = _Texts(func, options, entry)
    code = kernels.unpacked(store.content(entry, lambda: _packed(texts)))
    try:
        kernel = kernels.kernel(code, func.name, _places(func, code.origins), texts, entry)
    except (OSError, KeyError):  # a library has gone since, or new code has to be asked for in another way
        code = kernels.unpacked(_packed(texts, images=False))
        kernel = kernels.kernel(code, func.name, _places(func, code.origins), texts)
    return _Compiled(kernel, code.origins)


def _numbered(func: Func) -> Func:
    """``func`` with the number of every instruction that may fail as the column of its place, which the loop level's messages
    carry along."""
    numbers = itertools.count()

    def instr(old: Instr) -> Instr:
        number = next(numbers)
        if isinstance(old.op, Elementwise):  # which has nothing to tell
            return old
        loc = Loc(old.loc.file, old.loc.line, number)
        return Instr(old.op, old.outs, old.args, old.attrs, tuple(map(block, old.blocks)), loc)

    def block(old: Block) -> Block:
        return Block(old.params, tuple(map(instr, old.body)))

    return Func(func.name, block(func.block), func.names)


def _told_of(func: Func, compiled: _Compiled) -> Kernel:
    """The kernel with this function's name and places in its messages."""
    signature = kernels.renamed(compiled.kernel.signature, func.name, _places(func, compiled.origins))
    if signature == compiled.kernel.signature:
        return compiled.kernel
    kernel = compiled.kernel.rebound(signature)
    kernel.texts = kernel.texts.named(func.name)
    return kernel


def _places(func: Func, origins: Sequence[int]) -> list[str]:
    """What messages say of the places of some instructions of a function."""
    locs = [instr.loc for instr in walk(func.block)] if origins else []
    return [str(locs[k]) if locs[k].line else "" for k in origins]


def _level(emitted: Emitted, opt: int | str) -> int:
    """The engine's level for the kernel's module."""
    if isinstance(opt, int):
        return opt
    # a loop is one function, however long
    long = emitted.largest > 4 * LITTLE or (not emitted.loops and emitted.scalars > LITTLE)
    return 0 if long and not emitted.helpers else 1


class _Texts:
    """The texts of a kernel's stages, made when asked for: most kernels come from the disk, without any."""

    def __init__(self, func: Func, options: Options, entry: str):
        self._func = func
        self._options = options
        self.entry = entry  # of the store, where the kernel is kept

    def named(self, name: str) -> _Texts:
        """The texts of the same code for a function of another name."""
        return _Texts(replace(self._func, name=name), self._options, self.entry)

    @functools.cached_property
    def program(self) -> Program:
        from pullback.loops.lower import lower

        return lower(_numbered(self._func), self._options.parallel)

    @functools.cached_property
    def emitted(self) -> Emitted:
        from pullback.llvm import engine
        from pullback.llvm.emit import emit

        hasty = not isinstance(self._options.opt, int) or not self._options.opt
        return emit(self.program, engine.features(), self._options.fast_math, hasty=hasty)

    def modules(self) -> list[Any]:
        from pullback.llvm import engine

        opt = self._options.opt
        modules = [engine.Module(self.emitted.kernel, _level(self.emitted, opt))]
        if self.emitted.chunks:
            modules.append(engine.Module(self.emitted.chunks, opt if isinstance(opt, int) else 0))
        return modules

    def __call__(self, stage: str) -> str:
        if stage == "loops":
            from pullback.loops.text import print_program

            return print_program(self.program)
        if stage == "llvm":
            return self.emitted.kernel + self.emitted.chunks
        if stage == "optimized":
            return "".join(m.text() for m in self.modules())
        if stage == "asm":
            return "".join(m.assembly() for m in self.modules())
        raise ValueError(f"no stage {stage!r}; there are loops, llvm, optimized and asm")


def _packed(texts: _Texts, images: bool = True) -> bytes:
    """A kernel as it is kept. ``images``: in the form that needs no linker, if there is one for it."""
    from pullback.llvm import mathlib, tiles

    objects = [module.object() for module in texts.modules()]
    objects += [mathlib.object_code(form) for form in texts.emitted.math]
    objects += [tiles.object_code(product) for product in texts.emitted.products]
    about = {
        "signature": dataclasses.asdict(signature(texts.program, texts.emitted.frame)),
        "origins": [m.loc.column for m in texts.program.messages],
        "blas": texts.emitted.blas,
    }
    return kernels.packed(about, link(objects, "k") if images else None, objects)


# -- what the runtime has to know -----------------------------------------------------------------------------------
def signature(program: Program, frame: int) -> Signature:
    """What the runtime has to know of a kernel; without name and places, which are those of each function that has it."""
    from pullback.llvm.emit import ALIGN
    from pullback.loops.nest import For, Loop, While, statements

    numbers = {name: k for k, name in enumerate((*program.symbols, *program.defined))}
    total: Size = -(-8 * frame // ALIGN) * ALIGN
    for region in program.regions:
        total = total + (region + (ALIGN - 1)) // ALIGN * ALIGN
    bounds = [upper_bound(b, program.defined) for b in program.defined.values()]
    return Signature(
        name="",
        params=tuple(_array(p.type, numbers) for p in program.params),
        results=tuple(_array(t, numbers) for t in program.result_types),
        symbols=program.symbols,
        defined=tuple(program.defined),
        bounds=tuple(polynomial(b, numbers) for b in bounds),
        workspace=polynomial(total, numbers),
        failures=tuple(Failure(m.error, m.text) for m in program.messages),
        local=len(program.local),
        loops=any(isinstance(s, (For, While)) for s in statements(program.body)),
        parallel=any(isinstance(s, Loop) and s.shared for s in program.body),
    )


def _array(kind: Any, numbers: Mapping[str, int]) -> Array:
    if isinstance(kind, StackType):
        return Array(i64.name, (), str(kind), tape=True)
    return Array(kind.dtype.name, tuple(polynomial(size, numbers) for size in kind.shape), str(kind))


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
