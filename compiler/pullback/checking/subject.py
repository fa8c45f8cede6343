"""What is checked, whatever it was given as: values, gradients, and what else can be had of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import PullbackError
from pullback.ir.core import Func
from pullback.ir.interp import run
from pullback.passes.pipeline import differentiate, optimize, push_forward
from pullback.wording import output_names
from pullback_runtime.function import Function
from pullback_runtime.signature import Structure, flatten

Arrays = Sequence[Any]  # one array per leaf of the arguments


@dataclass(slots=True)
class Subject:
    """A function at a point. ``leaves`` are copies of the arguments' leaves; ``wrt`` are the positions of floating ones."""

    name: str
    names: list[str]
    leaves: list[np.ndarray[Any, Any]]
    wrt: list[int]
    values: Callable[..., list[Any]]  # (leaves, original=False) -> the outputs' leaves
    gradients: Callable[[Arrays, Arrays], list[Any]]  # (leaves, seeds) -> one per wrt
    tangents: Callable[[Arrays, Arrays], list[Any]] | None = None
    hessian_product: Callable[[Arrays, Arrays, Arrays], list[Any]] | None = None
    traced: Callable[[Arrays], tuple[Func, list[Any]]] | None = None  # the IR, and the values of hidden inputs
    why_untraced: str = ""
    has_original: bool = False
    notes: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)  # what the outputs' leaves are called

    def line_of(self, leaf: int) -> str:
        """The first line that uses an input."""
        if self.traced is None:
            return ""
        func, _ = self.traced(self.leaves)
        places = (i.loc for i in func.body if func.params[leaf] in i.args and i.loc.line)
        return next(map(str, places), "")


def subject_of(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Subject:
    if isinstance(function, tuple) and len(function) == 2 and all(map(callable, function)):
        return _of_pair(function[0], function[1], args, kwargs)
    if not isinstance(function, Function):
        from pullback.api import compile

        function = compile(function)
    return _of_function(function, args, kwargs)


# -- compiled functions ---------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Arguments:
    """Positional arguments as leaves and back."""

    structures: list[Structure]
    names: list[str]
    leaves: list[np.ndarray[Any, Any]]

    def rebuild(self, leaves: Arrays) -> list[Any]:
        supply = list(leaves)
        rebuilt = []
        for structure in self.structures:
            count = structure.size
            rebuilt.append(structure.unflatten(supply[:count]))
            supply = supply[count:]
        return rebuilt

    @property
    def wrt(self) -> list[int]:
        return [k for k, a in enumerate(self.leaves) if a.dtype.kind == "f"]


def _arguments(values: Sequence[Any], names: Sequence[str]) -> _Arguments:
    """Copies of the arguments; Python integers are floats if nothing else is one."""
    structures, paths, leaves = [], [], []
    for value, name in zip(values, names, strict=True):
        found, structure = flatten(value)
        structures.append(structure)
        paths += structure.paths(name)
        leaves += found
    arrays = [np.array(leaf) for leaf in leaves]
    if not any(a.dtype.kind == "f" for a in arrays):
        arrays = [
            a.astype(np.float64) if isinstance(leaf, int) and not isinstance(leaf, bool) else a
            for a, leaf in zip(arrays, leaves, strict=True)
        ]
    arrays = [a.astype(np.float64) if a.dtype == object or a.dtype.kind not in "fib" else a for a in arrays]
    return _Arguments(structures, paths, arrays)


def _of_function(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Subject:
    from pullback_runtime import binding

    values = binding.bind(function.__name__, function.parameters, args, kwargs)
    given = _arguments(values, [p.name for p in function.parameters])
    original = original_of(function)
    output = flatten(function(*given.rebuild(given.leaves)))[1]
    spans = _spans(given)
    chosen = tuple(k for k, span in enumerate(spans) if any(i in given.wrt for i in span))

    def evaluate(leaves: Arrays, original_: bool = False) -> list[Any]:
        call = original if original_ and original is not None else function
        return flatten(call(*given.rebuild([np.asarray(a) for a in leaves])))[0]

    def gradients(leaves: Arrays, seeds: Arrays) -> list[Any]:
        seed = output.unflatten(list(seeds))
        _, found = function.vjp(*given.rebuild(leaves), seed=seed, wrt=chosen)
        flat = [leaf for part in found for leaf in flatten(part)[0]]
        positions = [i for k in chosen for i in spans[k]]
        return [np.asarray(g) for g, i in zip(flat, positions, strict=True) if i in given.wrt]

    def tangents(leaves: Arrays, directions: Arrays) -> list[Any]:
        filled = [np.zeros(np.shape(a)) if d is None else d for a, d in zip(leaves, directions, strict=True)]
        trees = given.rebuild(filled)
        moved = {function.parameters[k].name: trees[k] for k in chosen}
        return flatten(function.jvp(*given.rebuild(leaves), tangents=moved)[1])[0]

    def traced(leaves: Arrays) -> tuple[Func, list[Any]]:
        return trace_of(function, given.rebuild([np.asarray(a) for a in leaves]))

    return Subject(
        function.__name__,
        given.names,
        given.leaves,
        given.wrt,
        lambda leaves, original=False: evaluate(leaves, original),
        gradients,
        tangents if chosen else None,
        lambda leaves, seeds, direction: hessian_product(traced, given.wrt, leaves, seeds, direction),
        traced,
        has_original=original is not None,
        outputs=output_names(function.__name__, output.paths("")),
    )


def _spans(given: _Arguments) -> list[range]:
    spans, start = [], 0
    for structure in given.structures:
        spans.append(range(start, start + structure.size))
        start += structure.size
    return spans


def original_of(function: Function) -> Callable[..., Any] | None:
    """The Python function that was compiled, to be called with plain arrays: one value for each parameter."""
    python = getattr(function.origin, "function", None)
    if python is None:
        return None
    kinds = [p.kind for p in inspect.signature(python).parameters.values()]
    names = list(inspect.signature(python).parameters)

    def call(*values: Any) -> Any:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for kind, name, value in zip(kinds, names, values, strict=True):
            if kind is inspect.Parameter.VAR_POSITIONAL:
                positional += value
            elif kind is inspect.Parameter.VAR_KEYWORD:
                keywords |= value
            elif kind is inspect.Parameter.KEYWORD_ONLY:
                keywords[name] = value
            else:
                positional.append(value)
        return python(*positional, **keywords)

    return call


def trace_of(function: Function, args: Sequence[Any]) -> tuple[Func, list[Any]]:
    """The IR of a compiled function for these arguments, and the values of its hidden inputs."""
    made: Any = function.specialization(*args)
    return made.traced.func, [np.asarray(hidden.read()) for hidden in made.traced.hidden]


def hessian_product(
    traced: Callable[[Arrays], tuple[Func, list[Any]]], wrt: Sequence[int], leaves: Arrays, seeds: Arrays, direction: Arrays
) -> list[Any]:
    """Second derivatives times a direction, forward over reverse, by the interpreter."""
    func, hidden = traced(leaves)
    func = optimize(func)
    reverse = differentiate(func, [func.params[k] for k in wrt], primal=False)
    both = push_forward(reverse, [reverse.params[k] for k in wrt], primal=False)
    given = [np.asarray(s, np.float64) for s in seeds if s is not None]
    moved = [np.asarray(direction[k], np.float64) for k in wrt]
    return list(run(both, [*leaves, *hidden, *given, *moved]))


# -- functions with gradients from elsewhere --------------------------------------------------------------------------------
def _of_pair(
    function: Callable[..., Any], gradient: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Subject:
    """A function and a gradient written by hand: one array for each floating argument, or for the first one only."""
    name = getattr(function, "__name__", "function")
    names = [f"argument {k}" for k in range(len(args))]
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        names, values = list(bound.arguments), list(bound.arguments.values())
    except (TypeError, ValueError):  # a builtin, or starred parameters: positions have to do
        values = list(args)
    if len(names) != len(args) + len(kwargs) or set(kwargs) - set(names):
        names, values = [f"argument {k}" for k in range(len(args))], list(args)
    given = _arguments(values, names)

    def evaluate(leaves: Arrays, original: bool = False) -> list[Any]:
        found = np.asarray(function(*given.rebuild(_plain(leaves))), np.float64)
        if found.size != 1:
            raise PullbackError(
                f"{name} returns an array of shape {found.shape}; a pair (function, gradient) needs a scalar function"
            )
        return [found.reshape(())]

    def gradients(leaves: Arrays, seeds: Arrays) -> list[Any]:
        flat = flatten(gradient(*given.rebuild(_plain(leaves))))[0]
        if len(flat) not in (1, len(wrt)) or not flat:
            raise PullbackError(f"the gradient has {len(flat)} parts, {name} has {len(given.wrt)} floating arguments")
        return [np.asarray(g, np.float64) for g in flat]

    count = len(flatten(gradient(*given.rebuild(_plain(given.leaves))))[0])
    wrt = given.wrt if count != 1 else given.wrt[:1]
    notes = [f"only the gradient of {given.names[wrt[0]]} was given"] if count == 1 and len(given.wrt) > 1 else []
    traced, why = _traced_if_possible(function, given)
    return Subject(
        name,
        given.names,
        given.leaves,
        wrt,
        evaluate,
        gradients,
        traced=traced,
        why_untraced=why,
        notes=notes,
        outputs=[name],
    )


def _plain(leaves: Arrays) -> list[Any]:
    """0-d arrays as NumPy scalars, as functions written for numbers expect."""
    return [a[()] if isinstance(a, np.ndarray) and a.ndim == 0 else np.array(a) for a in leaves]


def _traced_if_possible(function: Callable[..., Any], given: _Arguments) -> tuple[Callable[[Arrays], Any] | None, str]:
    """The function through our own compiler, if it takes it: then slopes are had with many digits."""
    from pullback.api import compile

    try:
        compiled = function if isinstance(function, Function) else compile(function)
        trace_of(compiled, given.rebuild(_plain(given.leaves)))
    except Exception as error:  # whatever it is, the function is not ours, and differences do without
        return None, str(error).splitlines()[0] if str(error) else type(error).__name__
    return lambda leaves: trace_of(compiled, given.rebuild(_plain(leaves))), ""
