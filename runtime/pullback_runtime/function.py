"""``Function``: what ``pb.compile`` returns. Binds arguments, finds or makes the specialization, seeds, calls, rebuilds."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback_runtime import binding, direct
from pullback_runtime.binding import Arguments, Parameter
from pullback_runtime.doors import Door
from pullback_runtime.errors import DTypeError, PullbackError, SeedError
from pullback_runtime.gradients import Gradients, Place, copied
from pullback_runtime.kernel import Kernel
from pullback_runtime.repeat import MOST, Repeat, as_they_are, kind_of
from pullback_runtime.signature import FLOATS, flatten
from pullback_runtime.specializations import CacheInfo, Call, Specialization, Specializations
from pullback_runtime.variable import Variable, record

_OPTIONS = ("seed", "seed_mode", "wrt", "out")
_SIGNATURES = {  # as Python reads them from the documentation of a function that is no Python
    "__call__": "(*args, out=None, **kwargs)\n--\n\n",
    "vjp": "(*args, seed=None, seed_mode=None, wrt=None, out=None, **kwargs)\n--\n\n",
    "grad": "(*args, seed=None, seed_mode=None, wrt=None, out=None, **kwargs)\n--\n\n",
    "value_and_grad": "(*args, wrt=None, out=None, **kwargs)\n--\n\n",
}
STAGES = ("primal", "adjoint", "loops", "llvm", "optimized", "asm")


_QUICK: set[type] = set()  # classes for which the quicker way to an instance's own callable was tried


class _Called:
    """Calls of an instance go to its own ``__call__``, which may be a direct callable: a descriptor, found on the class, that
    gives what this instance holds."""

    __slots__ = {"__call__": "Calls the function."}

    if TYPE_CHECKING:
        __call__: Callable[..., Any]


class Function(_Called):
    """A compiled function. Called with arrays, numbers and containers of them; see the methods for derivatives.

    ``make(arguments)`` traces and returns a Specialization: the compiler, as a callback. Thread-safe.
    """

    def __init__(
        self,
        name: str,
        parameters: Sequence[Parameter],
        make: Callable[[Arguments], Specialization],
        symbolic: bool = False,
        origin: Any = None,
        floats: frozenset[int] = frozenset(),
    ):
        """``floats``: positions of arguments in which a Python integer is always a float64."""
        binding.refuse_reserved(name, [p for p in parameters if not p.seed])
        self.__name__ = name
        self.parameters = tuple(parameters)
        self.origin = origin  # what it was compiled from, for the compiler
        self._floats = floats
        self._symbolic = symbolic
        self._specializations = Specializations(name, self.parameters, make)
        self._repeats: dict[Hashable, Repeat] = {}
        self._calls = 0  # that went through Python, up to when direct callables are made
        self._doors: dict[str, Door] = {}
        self._lock = threading.RLock()
        self.__call__ = self._call

    def __repr__(self) -> str:
        return f"<compiled {self.__name__}({', '.join(map(str, self.parameters))})>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.__name__} cannot be pickled: only what was compiled from a function at the top level of a module can; "
            "define it there, or compile it again in the other process"
        )

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: Any) -> Function:
        return self

    # -- calls ----------------------------------------------------------------------------------------------------------
    def _call(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """The value, with NumPy's shapes: a Python number for a scalar. ``out``: an array, or the output's structure of arrays,
        that receives it. An argument may be a ``pb.variable``; then the outputs are variables. TypeError, DTypeError or
        ShapeError if the arguments do not fit.

        >>> f = pb.compile(lambda x, y: x * y)
        >>> f(np.array([1.0, 2.0]), 3.0)
        array([3., 6.])
        """
        door = self._door("__call__")
        if door is not None and out is None:
            return door.callable(*args, **kwargs)
        return self._value(binding.bind(self.__name__, self.parameters, args, kwargs), out)[0]

    def _enter_call(self, *args: Any, **kwargs: Any) -> Any:
        """What the direct callable does not recognise."""
        out = kwargs.get("out")
        named = {name: value for name, value in kwargs.items() if name != "out"} if "out" in kwargs else kwargs
        values = binding.bind(self.__name__, self.parameters, args, named)
        result, repeat = self._value(values, out)
        if repeat is not None:
            outs = None if out is None else binding.match_out(self.__name__, repeat.output, out)
            self._doors["__call__"].learn(self.parameters, repeat, args, kwargs, values, outs)
        return result

    def _value(self, values: Sequence[Any], out: Any) -> tuple[Any, Repeat | None]:
        """The value, and how to serve such calls again, if that is known."""
        hook = _TRACE_HOOK
        if hook is not None:
            inlined, result = hook(self, values)
            if inlined:
                return result, None
        leaves: list[Any] = []
        kind = kind_of(values, leaves)
        known = None if kind is None else self._repeats.get(kind)
        if known is not None:
            outs = None if out is None else binding.match_out(self.__name__, known.output, out)
            served, result = known.value(leaves, outs)
            if served:
                return result, known
        if kind is None and any(map(_has_variable, values)):
            return record(self, values), None
        call = self._prepare(values)
        made = call.specialization
        kernel = made.primal()
        results = kernel(call.inputs, self._outs(call, out))
        repeat = None
        if kind is not None and as_they_are(leaves, call.arguments.leaves):
            repeat = self._remember(kind, Repeat(kernel, made, call.arguments, call.hidden(), made.output, len(made.kinds)))
        return made.output.unflatten(results), repeat

    def _door(self, method: str) -> Door | None:
        """The direct callable for a method, if there is one. After some calls of the Function it takes the method's place."""
        if direct.TRACES[0]:
            return None
        door = self._doors.get(method)
        if door is None:
            self._calls += 1
            code = direct.address(self._calls)
            if code is not None:
                with self._lock:
                    door = self._doors.get(method) or self._open(code, method)
        return door

    def _open(self, code: tuple[int, int], method: str) -> Door:
        """Called with the lock."""
        kind = type(self)
        if method == "__call__":
            about = f"{method}{_SIGNATURES[method]}{self._call.__doc__}"
            door = Door(code[0], self, method, self._enter_call, about, self._symbolic)
            self.__call__ = door.callable
            if kind not in _QUICK and kind.__dict__.get("__call__") is None and kind.__call__ is _Called.__call__:
                direct.quicken(kind, self, code[1])
                _QUICK.add(kind)
        else:
            about = f"{method}{_SIGNATURES[method]}{getattr(kind, method).__doc__}"
            door = Door(code[0], self, method, functools.partial(self._enter, method), about, self._symbolic)
            self.__dict__[method] = door.callable
        self._doors[method] = door
        return door

    def _remember(self, kind: Hashable, repeat: Repeat) -> Repeat:
        if len(self._repeats) >= MOST:
            self._repeats.clear()
        self._repeats[kind] = repeat
        return repeat

    def _outs(self, call: Call, out: Any) -> list[Any] | None:
        if out is None:
            return None
        return binding.match_out(self.__name__, call.specialization.output, out)

    def _prepare(self, values: Sequence[Any], floats: frozenset[int] = frozenset()) -> Call:
        arguments = binding.arguments(self.parameters, values, floats | self._floats, self._symbolic)
        return self._specializations.call(arguments)

    def cache_info(self) -> CacheInfo:
        """How many specializations were made (``.specializations``), and for the latest of them why (``.reasons``).

        >>> f = pb.compile(lambda x: x * x)
        >>> f(2.0), f(3.0), f(np.ones(3)).shape
        (4.0, 9.0, (3,))
        >>> f.cache_info().specializations
        2
        """
        return self._specializations.info()

    def specialize(self, *args: Any, **kwargs: Any) -> Function:
        """Compile ahead of data."""
        self._example(args, kwargs).specialization.primal()
        return self

    def _example(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """A prepared call for texts: with the arguments given, or the latest specialization, or from declarations."""
        if args or kwargs:
            values = binding.bind(self.__name__, self.parameters, args, kwargs)
            return self._declared(values) if any(map(binding.is_declared, values)) else self._prepare(values)
        latest = self._specializations.latest()
        if latest is not None:
            return latest
        missing = [p.name for p in self.parameters if p.declared is None]
        if missing:
            raise PullbackError(
                f"{self.__name__} has no specialization yet: call it, pass example arguments, or declare the types of "
                f"{', '.join(missing)}, as in {missing[0]}: pb.f64['n']"
            )
        return self._declared([p.declared for p in self.parameters])

    def _declared(self, types: Sequence[Any]) -> Call:
        """A specialization ahead of data. It also serves calls whose short lengths would be compiled in otherwise."""
        for parameter, given in zip(self.parameters, types, strict=True):
            if not all(getattr(leaf, "pullback_leaf", False) for leaf in flatten(given)[0]):
                raise TypeError(f"specialize: a type such as pb.f64['n'] expected for {parameter.name}, as for the others")
        key = tuple(binding.declared_key(p, given) for p, given in zip(self.parameters, types, strict=True))
        return self._specializations.declared(key)

    # -- derivatives ----------------------------------------------------------------------------------------------------
    def vjp(
        self, *args: Any, seed: Any = None, seed_mode: str | None = None, wrt: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """(value, gradients) for a seed of the output."""
        return self._derivative("vjp", args, kwargs, seed, seed_mode, wrt, out)

    def grad(
        self, *args: Any, seed: Any = None, seed_mode: str | None = None, wrt: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """The gradients for a seed of the output."""
        return self._derivative("grad", args, kwargs, seed, seed_mode, wrt, out)

    def value_and_grad(self, *args: Any, wrt: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """(value, gradients) of a function with one scalar output, seeded with 1."""
        return self._derivative("value_and_grad", args, kwargs, None, None, wrt, out)

    def _derivative(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: Any, mode: str | None, wrt: Any, out: Any
    ) -> Any:
        door = self._door(method)
        if door is not None and seed is None and mode is None and wrt is None and out is None:
            return door.callable(*args, **kwargs)  # for those who hold the method as it was at first
        values = binding.bind(self.__name__, self.parameters, args, kwargs)
        result = self._reverse(method, values, seed, mode, wrt, out)[0]
        return result[1] if method == "grad" else result

    def _enter(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """What the direct callable does not recognise."""
        if direct.TRACES[0]:
            return getattr(type(self), method)(self, *args, **kwargs)
        seed, mode, wrt, out = (kwargs.get(option) for option in _OPTIONS)
        taken = _OPTIONS[2:] if method == "value_and_grad" else _OPTIONS
        named = {name: value for name, value in kwargs.items() if name not in taken}
        values = binding.bind(self.__name__, self.parameters, args, named)
        result, repeat = self._reverse(method, values, seed, mode, wrt, out)
        if repeat is not None:
            self._doors[method].learn(self.parameters, repeat, args, kwargs, values, repeat.outs(out))
        return result[1] if method == "grad" else result

    def _reverse(
        self, method: str, values: Sequence[Any], seed: Any, mode: str | None, wrt: Any, out: Any
    ) -> tuple[tuple[Any, Any], Repeat | None]:
        """(value, gradients), where the value is None for the method ``grad``; and how to serve such calls again."""
        kind: Hashable = None
        leaves: list[Any] = []
        given: list[Any] = []  # the leaves of the seed
        if mode is None and (wrt is None or type(wrt) in (str, int, tuple)):
            kind, of_seed = kind_of(values, leaves), kind_of((seed,), given)
            kind = None if kind is None or of_seed is None else (method, kind, wrt, of_seed)
        if kind is not None:
            known = self._repeats.get(kind)
            served = None if known is None else known.reverse(leaves, given, out)
            if served is not None:
                return served, known
        binding.check_mode(mode)
        call, places, rebuild = self._target(values, wrt)
        made = call.specialization
        if method == "value_and_grad":
            self._require_scalar(made)
        primal = method != "grad"
        if mode == "expand":
            kernel, seeds = self._expand(made, call.sizes, places, seed, primal)
        else:
            seeded, seeds = self._seeds(call, seed, mode)
            kernel = made.vjp(places, seeded, primal)
        count = len(made.kinds) if primal else 0
        outs = None if out is None else [None] * count + rebuild.leaves(out)
        found = kernel([*call.inputs, *seeds], outs)
        repeat = None
        if kind is not None and as_they_are(leaves, call.arguments.leaves):
            number = type(seed) in (float, int) and len(seeds) == 1 and not np.shape(seeds[0])
            if seed is None or number or as_they_are(given, seeds):
                own = seeds if seed is None else None
                repeat = Repeat(kernel, made, call.arguments, call.hidden(), made.output, count, own, rebuild)
                self._remember(kind, repeat)
        return (made.output.unflatten(found[:count]) if primal else None, rebuild(found[count:])), repeat

    def _require_scalar(self, made: Specialization) -> None:
        if made.ranks != (0,) or made.kinds[0] not in FLOATS:
            raise SeedError(
                f"value_and_grad takes a function with one scalar output; {self.__name__} returns {made.output_text()}; "
                "use vjp(..., seed=...) with the gradient of some loss with respect to each output"
            )

    def _target(self, values: Sequence[Any], wrt: Any) -> tuple[Call, tuple[Place, ...], Gradients]:
        """The call, and what its gradients are taken with respect to."""
        floats: frozenset[int] = frozenset()
        chosen: list[Place] | None = None
        if wrt is not None:
            chosen, single = binding.select(self.__name__, self.parameters, wrt)
            floats = frozenset(k for k in chosen if isinstance(k, int))
        call = self._prepare(values, floats)
        spans, kinds = call.arguments.spans(), call.arguments.kinds()
        if chosen is None:
            chosen = [k for k, span in enumerate(spans) if any(kinds[i].is_float for i in span)]
            single = len(chosen) == 1
            if not chosen:
                raise DTypeError(f"no argument of {self.__name__} is floating, so there is nothing to differentiate by")
        for item in chosen:
            if isinstance(item, str):
                if item not in call.specialization.names:
                    known = [*(p.name for p in self.parameters), *call.specialization.names]
                    raise PullbackError(
                        f"wrt: {self.__name__} has no argument or named value {item!r}; it has {', '.join(known)}"
                        + binding.did_you_mean(item, known)
                    )
            elif not any(kinds[i].is_float for i in spans[item]):
                kind = str(kinds[spans[item][0]]) if len(spans[item]) else "empty"
                raise binding.no_gradient(self.__name__, self.parameters[item].name, kind)
        gradients = Gradients(call.arguments, chosen, single)
        return call, gradients.places, gradients

    def _seeds(self, call: Call, seed: Any, mode: str | None) -> tuple[tuple[Place, ...], list[Any]]:
        """Which outputs and intermediates are seeded, and with what."""
        made = call.specialization
        named: dict[str, Any] = {}
        if isinstance(seed, dict):
            outputs = made.output.meta if made.output.kind == "dict" else ()
            named = {k: v for k, v in seed.items() if k not in outputs}
            for name in named:
                if name not in made.names:
                    known = ", ".join(map(repr, (*outputs, *made.names))) or "none"
                    raise SeedError(f"seed: {self.__name__} has no output or named value {name!r}; it has {known}")
            seed = {k: v for k, v in seed.items() if k in outputs} or None
        if named and seed is None:
            matched: list[Any] = [None] * len(made.kinds)
            default = False
        else:
            matched = binding.match_seed(self.__name__, made.output, made.kinds, made.ranks, seed)
            default = all(value is None for value in matched)
        shapes = made.shapes(call.sizes)
        if any(shape is None for shape in shapes):  # a length that the data decide
            shapes = [np.shape(r) for r in made.primal()(call.inputs)]
        places: list[Place] = []
        seeds: list[Any] = []
        for k, value in enumerate(matched):
            if value is not None or default:
                shape = shapes[k]
                assert shape is not None
                places.append(k)
                seeds.append(binding.fit_seed(self.__name__, value, made.kinds[k], shape, mode))
        for name, value in named.items():
            kind, shape = made.named_shape(name, call.sizes)
            places.append(name)
            seeds.append(binding.fit_seed(f"{self.__name__}, value {name!r},", value, kind, shape, mode))
        return tuple(places), seeds

    def _expand(
        self, made: Specialization, sizes: dict[str, int], places: tuple[Place, ...], seed: Any, primal: bool
    ) -> tuple[Kernel, list[Any]]:
        """A kernel, and the seed for what an output summed."""
        matched = binding.match_seed(self.__name__, made.output, made.kinds, made.ranks, seed)
        given = [k for k, value in enumerate(matched) if value is not None]
        if len(given) != 1:
            raise SeedError(f'seed_mode="expand" takes the seed of one output, got {len(given)}')
        (result,) = given
        shape = made.expanded(result, sizes)
        own = made.shapes(sizes)[result]
        array = binding.as_array(matched[result], made.kinds[result])
        if array.size == 1 or array.shape == own:  # nothing to expand
            assert own is not None
            return made.vjp(places, (result,), primal), [binding.fit_seed(self.__name__, array, made.kinds[result], own, None)]
        try:
            filled = np.broadcast_to(array, shape)
        except ValueError:
            raise SeedError(
                f'seed_mode="expand": the output of {self.__name__} is a sum over an array of shape {shape}, '
                f"the seed has shape {array.shape}; they must be equal"
            ) from None
        return made.expand(places, result, primal), [np.ascontiguousarray(filled)]

    def pullback(self, *args: Any, wrt: Any = None, copy: bool = True, **kwargs: Any) -> Any:
        """(value, pull), where ``pull(seed)`` gives the gradients."""
        return self._pullback(binding.bind(self.__name__, self.parameters, args, kwargs), wrt, copy)

    def _pullback(self, values: Sequence[Any], wrt: Any, copy: bool = True, whole: bool = False) -> Any:
        """``whole``: keep copies of all arguments, so that ``pull`` can run the function again for seed_mode="expand"."""
        call, places, rebuild = self._target(values, wrt)
        made, sizes = call.specialization, call.sizes
        seeded: tuple[Place, ...] = tuple(k for k, kind in enumerate(made.kinds) if kind in FLOATS)
        forward, reverse, kept = made.split(places, seeded)
        inputs = list(map(copied, call.inputs)) if whole else []
        found = forward(call.inputs)
        count = len(made.kinds)
        shapes = [np.shape(r) for r in found[:count]]
        sources = inputs if whole else call.inputs
        held = [copied(sources[k]) if copy and not whole else sources[k] for k in kept] + found[count:]
        del call, sources  # the caller's arrays are not kept alive

        def pull(seed: Any = None, seed_mode: str | None = None) -> Any:
            """The gradients for this seed of the output; see ``Function.vjp``."""
            binding.check_mode(seed_mode)
            if seed_mode == "expand":
                if not whole:
                    raise SeedError('seed_mode="expand" is for vjp, grad and backward, which run the function again')
                kernel, expanded = self._expand(made, sizes, places, seed, False)
                return rebuild(kernel([*inputs, *expanded]))
            matched = binding.match_seed(self.__name__, made.output, made.kinds, made.ranks, seed)
            default = all(value is None for value in matched)
            seeds = []
            for k in seeded:
                assert isinstance(k, int)
                value = matched[k] if default or matched[k] is not None else 0.0
                seeds.append(binding.fit_seed(self.__name__, value, made.kinds[k], shapes[k], seed_mode))
            return rebuild(reverse([*held, *seeds]))

        return made.output.unflatten(found[:count]), pull

    def jvp(self, *args: Any, tangents: Any, **kwargs: Any) -> Any:
        """(value, tangent of the output)."""
        values = binding.bind(self.__name__, self.parameters, args, kwargs)
        given = binding.match_tangents(self.__name__, self.parameters, tangents)
        call = self._prepare(values, frozenset(given))
        spans, kinds = call.arguments.spans(), call.arguments.kinds()
        places: list[int] = []
        moved: list[Any] = []
        for k, tangent in given.items():
            structure = call.arguments.key[k][0]
            parts = binding.matching_leaves(self.parameters[k].name, structure, tangent)
            for position, part in zip(spans[k], parts, strict=True):
                if kinds[position].is_float:
                    places.append(position)
                    like = call.arguments.leaves[position]
                    moved.append(binding.fit_tangent(self.parameters[k].name, part, kinds[position].dtype, np.shape(like)))
        made = call.specialization
        found = made.jvp(tuple(places))([*call.inputs, *moved])
        count = len(made.kinds)
        floating = iter(found[count:])
        zeros = [np.zeros_like(value)[()] for value in found[:count]]
        directions = [next(floating) if kind in FLOATS else zero for kind, zero in zip(made.kinds, zeros, strict=True)]
        return made.output.unflatten(found[:count]), made.output.unflatten(directions)

    # -- texts ----------------------------------------------------------------------------------------------------------
    def ir(self, stage: str = "primal", *args: Any, **kwargs: Any) -> str:
        """The text of a stage, of the latest specialization or of the one that serves the arguments given: "primal" (the
        function as traced), "adjoint", "loops", "llvm", "optimized" (LLVM's text after its passes) or "asm".

        >>> print(pb.compile(lambda x: x * x, name="square").ir("primal", 2.0))
        func @square(%x: f64) -> f64 {
          %0 = mul %x, %x : f64
          return %0
        }
        <BLANKLINE>
        """
        if stage not in STAGES:
            raise ValueError(f"no stage {stage!r}; there are {', '.join(STAGES)}")
        return self._example(args, kwargs).specialization.text(stage)

    def specialization(self, *args: Any, **kwargs: Any) -> Specialization:
        """The specialization that serves these arguments (without arguments: the latest, or that of the declarations)."""
        return self._example(args, kwargs).specialization


def _has_variable(value: Any) -> bool:
    kind = type(value)
    if kind is np.ndarray or kind is float or kind is int:
        return False
    if kind is Variable:
        return True
    if isinstance(value, (tuple, list, dict)) or is_dataclass(kind):
        return any(isinstance(leaf, Variable) for leaf in flatten(value)[0])
    return False


_Called.__slots__["__call__"] = Function._call.__doc__ or ""  # where ``help`` looks for it

# Set by the compiler while something is being traced: ``hook(function, values) -> (whether it was inlined, result)``.
_TRACE_HOOK: Callable[[Function, Sequence[Any]], tuple[bool, Any]] | None = None


def set_trace_hook(hook: Callable[[Function, Sequence[Any]], tuple[bool, Any]] | None) -> None:
    """How a call of a compiled function inside another that is being traced becomes part of that trace."""
    global _TRACE_HOOK
    _TRACE_HOOK = hook
