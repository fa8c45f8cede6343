"""Derivatives of Functions as Functions: frontends whose trace is the base's trace followed by a pass.

They can therefore be called, traced into other functions and transformed again like any Function. The passes are loaded when
something is traced: later processes find most of it on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pullback.errors import DTypeError, PullbackError, SeedError, ShapeError
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim, symbols
from pullback.ir.dims import replace as replace_size
from pullback.ir.types import Shape, Type
from pullback_runtime import binding
from pullback_runtime.binding import Parameter, shape_text
from pullback_runtime.signature import LEAF, Structure, flatten

if TYPE_CHECKING:
    from pullback.compiled import CompiledFunction


class _Derived:
    """What the transforms share: the base function and the arguments that they are with respect to."""

    def __init__(self, base: CompiledFunction, wrt: Any, prefix: str, extra: Sequence[Parameter] = ()):
        self.base = base
        self.wrt = wrt
        self.recipe = (prefix, base, wrt)  # for pickling: the transform's name and its arguments
        self.name = f"{prefix}_{base.__name__}"
        self.parameters = (*base.parameters, *extra)
        self.floats = base._floats
        if wrt is not None:
            for item in binding.select(base.__name__, base.parameters, wrt)[0]:
                if isinstance(item, str):
                    names = ", ".join(p.name for p in base.parameters)
                    near = binding.did_you_mean(item, [p.name for p in base.parameters])
                    raise PullbackError(f"wrt: {base.__name__} has no argument {item!r}; it has {names}{near}")
                self.floats |= {item}

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

    def leaves(self, arguments: Sequence[Any], chosen: Sequence[int]) -> list[tuple[int, bool]]:
        """The leaves of the chosen arguments, in the order of ``chosen``: their positions among all leaves, and whether they
        are floating. An argument without a floating leaf is refused."""
        specs = [flatten(argument)[0] for argument in arguments]
        firsts = list(accumulate(map(len, specs), initial=0))
        for k in chosen:
            if not any(spec.type.is_float for spec in specs[k]):
                kind = str(specs[k][0].type) if specs[k] else "empty"
                raise binding.no_gradient(self.base.__name__, self.base.parameters[k].name, kind)
        return [(firsts[k] + j, spec.type.is_float) for k in chosen for j, spec in enumerate(specs[k])]

    def with_zeros(self, func: Func, count: int, leaves: Sequence[tuple[int, bool]]) -> Func:
        """``func``, whose results are ``count`` values and the gradients of the floating leaves, with zeros for the others."""
        if all(floating for _, floating in leaves):
            return func
        b = Builder()
        b.body.extend(func.body[:-1])
        found = iter(func.results[count:])
        gradients = [next(found) if floating else b.zeros(func.params[place].type) for place, floating in leaves]
        return Func(func.name, b.close("return", (*func.results[:count], *gradients), func.params), func.names)

    def structure(self, arguments: Sequence[Any], chosen: Sequence[int], single: bool) -> Structure:
        parts = tuple(flatten(arguments[k])[1] for k in chosen)
        return parts[0] if single else Structure("tuple", None, parts)


class Gradient(_Derived):
    """The gradient, or (value, gradient), of a function with one scalar output."""

    def __init__(self, base: CompiledFunction, wrt: Any, value: bool):
        super().__init__(base, wrt, "value_and_grad" if value else "grad")
        self.value = value

    def trace(self, arguments: Sequence[Any]) -> Traced:
        from pullback.passes.adjoint import adjoint
        from pullback.passes.pipeline import optimize

        traced: Traced = self.base.traced(arguments)
        func = optimize(traced.func)
        kinds = [r.type for r in func.results]
        if traced.output is not LEAF or kinds[0].rank or not kinds[0].is_float:
            raise SeedError(
                f"{self.name} takes a function with one scalar output; {self.base.__name__} returns "
                f"{'' if traced.output is LEAF else f'{traced.output} of '}{', '.join(map(str, kinds))}; "
                "use vjp with a seed, which is the gradient of some loss with respect to each output"
            )
        chosen, single = self.chosen(arguments)
        leaves = self.leaves(arguments, chosen)
        reverse = adjoint(func, [func.params[k] for k, floating in leaves if floating], primal=self.value)
        structure = self.structure(arguments, chosen, single)
        output = Structure("tuple", None, (traced.output, structure)) if self.value else structure
        seeded = _with_constants(reverse, len(func.params))
        return replace(traced, func=self.with_zeros(seeded, int(self.value), leaves), output=output, weak=())


class Reverse(_Derived):
    """(value, gradients) of the arguments and the seed."""

    def __init__(self, base: CompiledFunction, wrt: Any):
        super().__init__(base, wrt, "vjp", (Parameter("seed", None, seed=True),))

    def trace(self, arguments: Sequence[Any]) -> Traced:
        from pullback.passes.adjoint import adjoint
        from pullback.passes.pipeline import optimize

        *given, seed = arguments
        traced: Traced = self.base.traced(given)
        func = optimize(traced.func)
        kinds = [r.type.dtype.name for r in func.results]
        matched = binding.match_seed(self.base.__name__, traced.output, kinds, [r.type.rank for r in func.results], seed)
        extra = _Extra(self.base.__name__, func, given, flatten(seed)[0], binding.wrong_seed)
        if all(value is None for value in matched):
            raise binding.missing_seed(self.base.__name__, extra.text(func.results[0].type.shape))
        chosen, single = self.chosen(given)
        leaves = self.leaves(given, chosen)
        seeded = [k for k, value in enumerate(matched) if value is not None]
        sources = [func.params[k] for k, floating in leaves if floating]
        reverse = adjoint(func, sources, [func.results[k] for k in seeded])
        targets = [p.type for p in reverse.params[len(func.params) :]]
        values = [extra.fit(matched[k], target) for k, target in zip(seeded, targets, strict=True)]
        output = Structure("tuple", None, (traced.output, self.structure(given, chosen, single)))
        closed = self.with_zeros(extra.close(reverse, values), len(func.results), leaves)
        return replace(traced, func=closed, output=output, weak=())


class Pushforward(_Derived):
    """(value, tangent) of the arguments and the tangents."""

    def __init__(self, base: CompiledFunction, wrt: Any):
        super().__init__(base, wrt, "jvp", (Parameter("tangents", seed=True),))

    def trace(self, arguments: Sequence[Any]) -> Traced:
        from pullback.passes.pipeline import optimize
        from pullback.passes.tangent import tangent

        *given, directions = arguments
        traced: Traced = self.base.traced(given)
        func = optimize(traced.func)
        extra = _Extra(self.base.__name__, func, given, flatten(directions)[0], _wrong_tangent)
        firsts = list(accumulate((flatten(a)[1].size for a in given), initial=0))
        places, values = [], []
        for k, tree in self.directions(given, directions).items():
            parts = binding.matching_leaves(self.base.parameters[k].name, flatten(given[k])[1], tree)
            for place, part in enumerate(parts, firsts[k]):
                if func.params[place].type.is_float:
                    places.append(place)
                    values.append(extra.fit(part, func.params[place].type))
        forward = extra.close(tangent(func, [func.params[k] for k in places]), values)
        count = len(func.results)
        b = Builder()
        b.body.extend(forward.body[:-1])
        moved = iter(forward.results[count:])
        tangents = [next(moved) if r.type.is_float else b.zeros(r.type) for r in func.results]
        block = b.close("return", (*forward.results[:count], *tangents), forward.params)
        output = Structure("tuple", None, (traced.output, traced.output))
        return replace(traced, func=optimize(Func(forward.name, block, forward.names)), output=output, weak=())

    def directions(self, given: Sequence[Any], directions: Any) -> dict[int, Any]:
        """Tangents by the position of their argument: as for ``Function.jvp``, or in the order of ``wrt``."""
        base = self.base
        if isinstance(directions, dict):
            return binding.match_tangents(base.__name__, base.parameters, directions)
        chosen, single = self.chosen(given)
        if single:
            return {chosen[0]: directions}
        if not isinstance(directions, (tuple, list)) or len(directions) != len(chosen):
            names = ", ".join(base.parameters[k].name for k in chosen)
            raise PullbackError(f"tangents: a tuple of {len(chosen)} directions expected, for {names}; or a dict from names")
        return {k: tree for k, tree in zip(chosen, directions, strict=True) if tree is not None}


class _Extra:
    """Seeds or tangents as arguments: they come after the arguments' leaves and before the hidden inputs.

    A number stands for that value everywhere; element types are converted; other shapes are errors, made by ``wrong`` from
    the function's name and the two shapes.
    """

    def __init__(
        self,
        name: str,
        func: Func,
        given: Sequence[Any],
        specs: Sequence[Spec],
        wrong: Callable[[str, Shape, Shape], PullbackError],
    ):
        self.name = name
        self.wrong = wrong
        self.builder = Builder()
        self.params = {spec: Value(f"seed{k}" if k else "seed", spec.type) for k, spec in enumerate(specs)}
        own = [spec for tree in given for spec in flatten(tree)[0]]
        self.count = len(own)
        self.lengths: dict[str, int] = {}
        for param, spec in zip(func.params, own, strict=False):  # hidden inputs have no Spec
            for axis, length in zip(param.type.shape, spec.hint or (), strict=spec.hint is not None):
                symbol = axis.bare_symbol() if isinstance(axis, Dim) else None
                if symbol is not None:
                    self.lengths[symbol] = length
        self.bound = symbols(axis for param in func.params for axis in param.type.shape)

    def fit(self, given: Any, target: Type) -> Value:
        """What is given (a Spec, or a number) in the type of what it belongs to."""
        b = self.builder
        if isinstance(given, float):
            return b.full(given, target)
        if not isinstance(given, Spec):
            raise SeedError(
                f"{self.name}: an array or a number expected for what has shape {self.text(target.shape)}, "
                f"got a {type(given).__name__}; make it an array with np.array(...)"
            )
        param = self.params[given]
        if given.type.rank == target.rank and target.rank:
            self._compare(given, target)
            param.type = Type(given.type.dtype, target.shape)  # the lengths are compared when the arguments are bound
        elif given.type.rank and (target.rank or given.type.size != 1):
            raise self.wrong(self.name, given.hint or given.type.shape, self.known(target.shape))
        elif not symbols(target.shape) <= self.bound:
            raise SeedError(
                f"the output of {self.name} has a length that the data decide, so its seed cannot be a number; give an array"
            )
        value = param if param.type.dtype is target.dtype else b.convert(param, dtype=target.dtype.name)
        if value.type.rank == target.rank:
            return value
        return b.reshape(value, shape=()) if value.type.rank else b.spread(value, target.shape)

    def _compare(self, given: Spec, target: Type) -> None:
        for length, size in zip(given.hint or given.type.shape, target.shape, strict=True):
            wanted = replace_size(size, self.lengths)
            if isinstance(length, int) and isinstance(wanted, int) and length != wanted:
                raise self.wrong(self.name, given.hint or given.type.shape, self.known(target.shape))

    def known(self, shape: Shape) -> Shape:
        """A shape with the lengths of this call for the symbols that have one."""
        return tuple(replace_size(size, self.lengths) for size in shape)

    def text(self, shape: Shape) -> str:
        return shape_text(self.known(shape))

    def close(self, derivative: Func, values: Sequence[Value]) -> Func:
        """The derivative, whose last parameters are seeds or tangents, with ``values`` in their place."""
        from pullback.passes.inline import inline
        from pullback.passes.pipeline import optimize

        inputs = derivative.params[: len(derivative.params) - len(values)]
        results, names = inline(self.builder, derivative, (*inputs, *values))
        params = (*inputs[: self.count], *self.params.values(), *inputs[self.count :])
        return optimize(Func(derivative.name, self.builder.close("return", results, params), names))


def _wrong_tangent(name: str, got: Shape, shape: Shape) -> PullbackError:
    return ShapeError(
        f"a tangent of {name} has shape {shape_text(got)}, its argument has shape {shape_text(shape)}; they must be equal"
    )


def _with_constants(reverse: Func, inputs: int) -> Func:
    """The adjoint with its one seed set to 1. What that makes simpler is seen to when it is compiled; what nothing reads is
    gone already, so that whoever takes the derivative into a trace of its own captures only what it reads."""
    from pullback.passes.dce import dce
    from pullback.passes.inline import inline

    b = Builder()
    one = b.const(1, reverse.params[inputs].type.dtype)
    results, names = inline(b, reverse, (*reverse.params[:inputs], one))
    return dce(Func(reverse.name, b.close("return", results, reverse.params[:inputs]), names))
