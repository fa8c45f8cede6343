"""A trace and the kernels made from it on demand: the compiler's side of ``pullback_runtime.function``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.collection import resting
from pullback.errors import SeedError
from pullback.frontends.traced import SizeGuard, Traced, ValueGuard
from pullback.ir.core import Func, Instr, Value
from pullback.ir.dims import Dim, Size, evaluate
from pullback.llvm import Options, compile_kernel
from pullback.passes.adjoint import adjoint
from pullback.passes.pipeline import checked, differentiate, optimize, prepare, push_forward
from pullback.passes.rewrite import with_results
from pullback.passes.speculate import speculate
from pullback.passes.split import split
from pullback_runtime.gradients import Place
from pullback_runtime.kernel import Kernel
from pullback_runtime.signature import LEAF
from pullback_runtime.spots import Spot


class Specialization:
    """See the protocol of the same name in ``pullback_runtime.function``."""

    def __init__(self, traced: Traced, inputs: int, options: Options):
        self.traced = traced
        self.output = traced.output
        self.options = options
        self.func = optimize(checked("the frontend", traced.func))
        self.kinds = tuple(v.type.dtype.name for v in self.func.results)
        self.ranks = tuple(v.type.rank for v in self.func.results)
        self.names = tuple(dict(self.func.names))
        self._inputs = inputs
        self._binders, self._checks = _plan(self.func.params)
        self._value_guards = [guard for guard in traced.guards if isinstance(guard, ValueGuard)]
        self.captures = bool(traced.hidden or self._value_guards)
        self._kernels: dict[Any, Any] = {}
        self.memory: Any = None  # a ``remembered.Memory``, which keeps what later processes need of the kernels
        self._lock = threading.RLock()

    # -- does it serve a call ---------------------------------------------------------------------------------------
    def bind(self, leaves: Sequence[Any]) -> tuple[dict[str, int], list[Any]] | None:
        """The symbols' values and the hidden inputs as they are now, or None if this trace is not for these arguments."""
        hidden = []
        for captured in self.traced.hidden:
            try:
                hidden.append(captured.read())
            except Exception:  # the captured array is gone or has become something else: another trace will say so
                return None
        arrays = [*leaves, *hidden]
        shapes = [np.shape(a) for a in arrays]
        if any(len(shape) != rank for shape, rank in zip(shapes, self._ranks_of_params(), strict=True)):
            return None
        sizes = {symbol: shapes[place][axis] for symbol, place, axis in self._binders}
        for place, axis, size in self._checks:
            if shapes[place][axis] != (evaluate(size, sizes) if isinstance(size, Dim) else size):
                return None
        if self.traced.guards and not self.traced.valid(sizes):
            return None
        return sizes, hidden

    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None:
        """The hidden inputs as they are now, for arguments that this trace was bound to before; ``shapes`` are those the
        hidden inputs had then. None if something captured has changed."""
        if not all(guard.check() for guard in self._value_guards):
            return None
        try:
            hidden = [captured.read() for captured in self.traced.hidden]
        except Exception:  # as in ``bind``
            return None
        return hidden if [array.shape for array in hidden] == shapes else None

    def spots(self) -> tuple[list[tuple[Spot, Any]], list[Spot]] | None:
        """The objects that must be where they were, and where the hidden inputs are; None if that does not say everything."""
        watched = [guard.spot for guard in self._value_guards if guard.spot is not None]
        hidden = [captured.spot for captured in self.traced.hidden if captured.spot is not None]
        complete = len(watched) == len(self._value_guards) and len(hidden) == len(self.traced.hidden)
        return (watched, hidden) if complete else None

    def guards(self, symbols: Sequence[str]) -> list[Any] | None:
        """What lengths must fulfil: (relation, left, right, outcome), sizes over the numbers of ``symbols``. None if they speak
        of other symbols."""
        from pullback.llvm.callable_code import size_guards  # when a function is called often

        return size_guards([guard for guard in self.traced.guards if isinstance(guard, SizeGuard)], symbols)

    def _ranks_of_params(self) -> list[int]:
        return [p.type.rank for p in self.func.params]

    def shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...] | None]:
        return [_shape(v, sizes) for v in self.func.results]

    def named_shape(self, name: str, sizes: dict[str, int]) -> tuple[str, tuple[int, ...]]:
        value = dict(self.func.names)[name]
        shape = _shape(value, sizes)
        if shape is None:
            raise SeedError(f"the value {name!r} has a length that the data decide, so it cannot be seeded")
        return value.type.dtype.name, shape

    # -- functions of the IR ----------------------------------------------------------------------------------------
    def values(self, places: Sequence[Place], of: Sequence[Value]) -> list[Value]:
        named = dict(self.func.names)
        return [named[p] if isinstance(p, str) else of[p] for p in places]

    def adjoint(self, wrt: Sequence[Place], seeded: Sequence[Place], primal: bool = True) -> Func:
        """Value (unless ``primal`` is false) and gradients, of the inputs and seeds."""
        func = self.func
        return differentiate(func, self.values(wrt, func.params), self.values(seeded, func.results), primal)

    def default_adjoint(self) -> Func | None:
        """By every floating input, seeded at every floating output; None if there is no such input or output."""
        wrt = [k for k, p in enumerate(self.func.params[: self._inputs]) if p.type.is_float]
        seeded = [k for k, r in enumerate(self.func.results) if r.type.is_float]
        return self.adjoint(wrt, seeded) if wrt and seeded else None

    # -- kernels ----------------------------------------------------------------------------------------------------
    def primal(self) -> Kernel:
        found: Kernel = self._once("primal", lambda: self._compile(self.func))
        return found

    def vjp(self, wrt: tuple[Place, ...], seeded: tuple[Place, ...], primal: bool) -> Kernel:
        found: Kernel = self._once(("vjp", wrt, seeded, primal), lambda: self._compile(self.adjoint(wrt, seeded, primal)))
        return found

    def jvp(self, wrt: tuple[int, ...]) -> Kernel:
        def make() -> Kernel:
            return self._compile(push_forward(self.func, [self.func.params[k] for k in wrt]))

        found: Kernel = self._once(("jvp", wrt), make)
        return found

    def split(self, wrt: tuple[Place, ...], seeded: tuple[Place, ...]) -> tuple[Kernel, Kernel, tuple[int, ...]]:
        def make() -> tuple[Kernel, Kernel, tuple[int, ...]]:
            halves = split(self.adjoint(wrt, seeded), len(self.func.params), len(self.func.results))
            return self._compile(halves.forward), self._compile(halves.reverse), halves.kept

        found: tuple[Kernel, Kernel, tuple[int, ...]] = self._once(("split", wrt, seeded), make)
        return found

    # -- seed_mode="expand" -----------------------------------------------------------------------------------------
    def _summed(self, result: int) -> Value:
        """The operand of the sum that makes a result, in the trace before any simplification."""
        makers = {out: instr for instr in self.traced.func.body for out in instr.outs}
        last = instr = makers.get(self.traced.func.results[result])
        if instr is not None and instr.op.name == "reshape" and _keeps_dimensions(instr, makers.get(instr.args[0])):
            instr = makers[instr.args[0]]
        if instr is None or instr.op.name != "sum":
            what = "an input" if last is None else f"made by {last.op.name!r}" + (f" at {last.loc}" if last.loc.line else "")
            raise SeedError(
                f'seed_mode="expand" takes an output that is a sum, and undoes that; the output of {self.func.name} is {what}; '
                "give a seed of the output's own shape"
            )
        return instr.args[0]

    def expanded(self, result: int, sizes: dict[str, int]) -> tuple[int, ...]:
        shape = _shape(self._summed(result), sizes)
        assert shape is not None
        return shape

    def expand(self, wrt: tuple[Place, ...], result: int, primal: bool) -> Kernel:
        def make() -> Kernel:
            traced = self.traced.func
            func = optimize(with_results(traced, (*traced.results, self._summed(result))))
            named = dict(func.names)
            sources = [named[p] if isinstance(p, str) else func.params[p] for p in wrt]
            reverse = adjoint(func, sources, [func.results[-1]], primal=False)
            outputs = func.results[:-1] if primal else ()
            return self._compile(optimize(with_results(reverse, (*outputs, *reverse.results))))

        found: Kernel = self._once(("expand", wrt, result, primal), make)
        return found

    # -- texts ------------------------------------------------------------------------------------------------------
    def text(self, stage: str) -> str:
        if stage == "primal":
            return str(self.func)
        reverse = self.default_adjoint()
        if stage == "adjoint":
            if reverse is None:
                raise SeedError("there is no adjoint: no floating input, or no floating output")
            return str(reverse)
        kernel = self.primal() if reverse is None else self._compile(reverse)
        return str(kernel.texts(stage))

    def output_text(self) -> str:
        """What the function returns, for messages."""
        types = ", ".join(str(v.type) for v in self.func.results)
        return types if self.output is LEAF else f"{self.output} of {types}"

    def describe(self) -> str:
        conditions = [str(g) for g in self.traced.guards] + [f"reads {h}" for h in self.traced.hidden]
        return f"{len(self.func.body) - 1} instructions" + (f", where {', '.join(conditions)}" if conditions else "")

    def _compile(self, func: Func) -> Kernel:
        ready = prepare(func)
        plain = speculate(ready)
        kernel = compile_kernel(plain, self.options)
        return kernel if plain is ready else kernel.with_guards(lambda: compile_kernel(ready, self.options))

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        found = self._kernels.get(key)
        if found is None:
            with self._lock, resting():
                found = self._kernels.get(key)
                if found is None:
                    found = self._kernels[key] = make()
                    if self.memory is not None and isinstance(found, Kernel):
                        self.memory.keep(key, found)
        return found


def _keeps_dimensions(reshape: Instr, inner: Instr | None) -> bool:
    """Whether a reshape of a sum is what ``keepdims=True`` says."""
    if inner is None or inner.op.name != "sum":
        return False
    axes, shape = inner.attrs["axes"], inner.args[0].type.shape
    kept: bool = reshape.out.type.shape == tuple(1 if k in axes else n for k, n in enumerate(shape))
    return kept


def _plan(params: Sequence[Value]) -> tuple[list[tuple[str, int, int]], list[tuple[int, int, Size]]]:
    """Where each symbol is bound (symbol, parameter, axis), and the axes that are then checked (parameter, axis, size)."""
    binders: dict[str, tuple[str, int, int]] = {}
    checks: list[tuple[int, int, Size]] = []
    for place, param in enumerate(params):
        for axis, size in enumerate(param.type.shape):
            symbol = size.bare_symbol() if isinstance(size, Dim) else None
            if symbol is not None and symbol not in binders:
                binders[symbol] = (symbol, place, axis)
            else:
                checks.append((place, axis, size))
    return list(binders.values()), checks


def _shape(value: Value, sizes: dict[str, int]) -> tuple[int, ...] | None:
    """A value's shape as numbers; None if a length is decided by the data."""
    try:
        return tuple(evaluate(size, sizes) for size in value.type.shape)
    except KeyError:
        return None
