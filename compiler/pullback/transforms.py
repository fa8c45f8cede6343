"""Derivatives of Functions as Functions: frontends whose trace is the base's trace followed by a pass.

They can therefore be called, traced into other functions and transformed again like any Function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pullback.errors import DTypeError, PullbackError, SeedError
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import Builder, Func, Value
from pullback.passes.adjoint import adjoint
from pullback.passes.inline import inline
from pullback.passes.pipeline import optimize
from pullback.passes.tangent import tangent
from pullback_runtime import binding
from pullback_runtime.binding import Parameter
from pullback_runtime.signature import LEAF, Structure, flatten

if TYPE_CHECKING:
    from pullback.compiled import CompiledFunction


class _Derived:
    """What the transforms share: the base function and the arguments that they are with respect to."""

    def __init__(self, base: CompiledFunction, wrt: Any, prefix: str, extra: Sequence[Parameter] = ()):
        self.base = base
        self.wrt = wrt
        self.name = f"{prefix}_{base.__name__}"
        self.parameters = (*base.parameters, *extra)
        if wrt is not None:
            for item in binding.select(base.__name__, base.parameters, wrt)[0]:
                if isinstance(item, str):
                    names = ", ".join(p.name for p in base.parameters)
                    raise PullbackError(f"wrt: {base.__name__} has no argument {item!r}; it has {names}")

    def chosen(self, arguments: Sequence[Any]) -> tuple[list[int], bool]:
        """Positions of the arguments, and whether one gradient comes back rather than a tuple."""
        base = self.base
        if self.wrt is not None:
            picked, single = binding.select(base.__name__, base.parameters, self.wrt)
            return [p for p in picked if isinstance(p, int)], single
        floating = [k for k, a in enumerate(arguments) if any(spec.type.is_float for spec in flatten(a)[0])]
        if not floating:
            raise DTypeError(f"no argument of {base.__name__} is floating, so there is nothing to differentiate by")
        return floating, len(floating) == 1

    def leaves(self, arguments: Sequence[Any], chosen: Sequence[int]) -> list[tuple[int, Spec]]:
        """The leaves of the chosen arguments, with their positions among all leaves. Integer leaves are refused."""
        found, start = [], 0
        for k, argument in enumerate(arguments):
            specs = flatten(argument)[0]
            if k in chosen:
                for offset, spec in enumerate(specs):
                    if not spec.type.is_float:
                        raise DTypeError(
                            f"wrt: argument {self.base.parameters[k].name!r} of {self.base.__name__} is {spec.type}; "
                            "only floating arguments have gradients; pass it as a float, for example with .astype(float)"
                        )
                    found.append((start + offset, spec))
            start += len(specs)
        return found

    def structure(self, arguments: Sequence[Any], chosen: Sequence[int], single: bool) -> Structure:
        parts = tuple(flatten(arguments[k])[1] for k in chosen)
        return parts[0] if single else Structure("tuple", None, parts)


class Gradient(_Derived):
    """The gradient, or (value, gradient), of a function with one scalar output."""

    def __init__(self, base: CompiledFunction, wrt: Any, value: bool):
        super().__init__(base, wrt, "value_and_grad" if value else "grad")
        self.value = value

    def trace(self, arguments: Sequence[Any]) -> Traced:
        traced = self.base.frontend.trace(arguments)
        func = optimize(traced.func)
        kinds = [r.type for r in func.results]
        if traced.output is not LEAF or kinds[0].rank or not kinds[0].is_float:
            raise SeedError(
                f"{self.name} takes a function with one scalar output; {self.base.__name__} returns {traced.output} of "
                f"{', '.join(map(str, kinds))}; use vjp with a seed, which is the gradient of some loss by each output"
            )
        chosen, single = self.chosen(arguments)
        places = [k for k, _ in self.leaves(arguments, chosen)]
        reverse = adjoint(func, [func.params[k] for k in places], primal=self.value)
        structure = self.structure(arguments, chosen, single)
        output = Structure("tuple", None, (traced.output, structure)) if self.value else structure
        seeded = _with_constants(reverse, len(func.params))
        return replace(traced, func=seeded, output=output, weak=())


class Reverse(_Derived):
    """(value, gradients) of the arguments and the seed."""

    def __init__(self, base: CompiledFunction, wrt: Any):
        super().__init__(base, wrt, "vjp", (Parameter("seed"),))

    def trace(self, arguments: Sequence[Any]) -> Traced:
        *given, seed = arguments
        traced = self.base.frontend.trace(given)
        func = optimize(traced.func)
        floating = [r for r in func.results if r.type.is_float]
        specs = flatten(seed)[0]
        if len(specs) != len(floating):
            raise SeedError(f"{self.base.__name__} has {len(floating)} floating outputs, the seed has {len(specs)} leaves")
        chosen, single = self.chosen(given)
        places = [k for k, _ in self.leaves(given, chosen)]
        reverse = adjoint(func, [func.params[k] for k in places])
        output = Structure("tuple", None, (traced.output, self.structure(given, chosen, single)))
        moved = _reorder_seeds(reverse, traced, sum(len(flatten(a)[0]) for a in given), specs, self.name)
        return replace(traced, func=moved, output=output, weak=())


class Pushforward(_Derived):
    """(value, tangent) of the arguments and the tangents."""

    def __init__(self, base: CompiledFunction, wrt: Any):
        super().__init__(base, wrt, "jvp", (Parameter("tangents"),))

    def trace(self, arguments: Sequence[Any]) -> Traced:
        *given, directions = arguments
        traced = self.base.frontend.trace(given)
        func = optimize(traced.func)
        chosen, _ = self.chosen(given)
        places = [k for k, _ in self.leaves(given, chosen)]
        specs = flatten(directions)[0]
        if len(specs) != len(places):
            raise PullbackError(f"{self.name}: {len(places)} tangents expected, got {len(specs)}")
        if any(not r.type.is_float for r in func.results):
            raise DTypeError(f"{self.name}: every output of {self.base.__name__} must be floating")
        forward = tangent(func, [func.params[k] for k in places])
        output = Structure("tuple", None, (traced.output, traced.output))
        moved = _reorder_seeds(forward, traced, sum(len(flatten(a)[0]) for a in given), specs, self.name)
        return replace(traced, func=moved, output=output, weak=())


def _with_constants(reverse: Func, inputs: int) -> Func:
    """The adjoint with its one seed set to 1."""
    b = Builder()
    one = b.const(1, reverse.params[inputs].type.dtype)
    results, names = inline(b, reverse, (*reverse.params[:inputs], one))
    return optimize(Func(reverse.name, b.close("return", results, reverse.params[:inputs]), names))


def _reorder_seeds(func: Func, traced: Traced, leaves: int, specs: Sequence[Spec], name: str) -> Func:
    """Seeds or tangents become arguments: they come after the arguments' leaves and before the hidden inputs.

    Each must have exactly the type of what it belongs to; a seed that is a Python number fits a scalar.
    """
    inputs = len(traced.func.params)
    arguments, hidden, seeds = func.params[:leaves], func.params[leaves:inputs], func.params[inputs:]
    for seed, spec in zip(seeds, specs, strict=True):
        if spec.type.rank != seed.type.rank or spec.type.dtype is not seed.type.dtype:
            raise SeedError(f"{name}: {seed.type} expected for {seed.name}, got {spec.type}")
    params: tuple[Value, ...] = (*arguments, *seeds, *hidden)
    b = Builder()
    b.body.extend(func.body[:-1])
    return optimize(Func(func.name, b.close("return", func.results, params), func.names))
