"""The frontend for Python functions that are written with NumPy."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.hooks import Session
from pullback.frontends.inlining import trace_hook
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.staging_lists import written_out
from pullback.frontends.trace import Trace, located
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import UNKNOWN, Loc
from pullback.ir.types import DType, Type
from pullback_runtime.binding import REQUIRED, Parameter
from pullback_runtime.function import set_trace_hook
from pullback_runtime.signature import flatten


class PythonFrontend:
    """Traces a Python function. ``trace`` takes the argument trees in the order of the parameters, a Spec for each leaf."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        self.function = function
        own = getattr(function, "__name__", type(function).__name__)
        self.name = name or ("function" if own == "<lambda>" else own)
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise UnsupportedError(f"{self.name} is a generator or a coroutine; a function that returns arrays is expected")
        self._parameters = _parameters(function)
        for parameter in self._parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UnsupportedError(
                    f"{self.name} takes {parameter}; a compiled function has a fixed number of parameters. Use one parameter "
                    "that is a tuple, list or dict of arrays"
                )
        annotations = _annotations(function)
        self.parameters = tuple(
            Parameter(p.name, REQUIRED if p.default is p.empty else p.default, declared(annotations.get(p.name)))
            for p in self._parameters
        )

    def trace(self, arguments: Sequence[Any]) -> Traced:
        trace = Trace(self.name)
        with trace:
            session = Session(trace, self.function)
            values = [plant(trace, tree, p.name) for p, tree in zip(self._parameters, arguments, strict=True)]
            kinds = [p.kind for p in self._parameters]
            positional = tuple(v for v, kind in zip(values, kinds, strict=True) if kind is not inspect.Parameter.KEYWORD_ONLY)
            keywords = {p.name: v for p, v in zip(self._parameters, values, strict=True) if p.kind is p.KEYWORD_ONLY}
            function = _captured(session, self.function, self.name)
            result = session.call(function, positional, keywords)
            session.captures.check_unchanged()
            if result is None:
                place = getattr(self.function, "__code__", None)
                loc = UNKNOWN if place is None else Loc(place.co_filename, place.co_firstlineno)
                raise TraceError(located(f"{self.name} returned None; is a return missing?", loc, "return the value"))
            return finish(trace, result)


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    if isinstance(function, np.ufunc):  # where=, out= and the like are no inputs
        names = ("x",) if function.nin == 1 else [f"x{k + 1}" for k in range(function.nin)]
        return tuple(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names)
    return tuple(inspect.signature(function).parameters.values())


def _captured(session: Session, function: Any, path: str) -> Any:
    """The function, where what it holds (the object of a method, the arguments of a partial) counts as read from outside."""
    if isinstance(function, types.MethodType):
        session.captures.register(function.__self__, f"{path}.__self__", lambda: function.__self__)
    elif isinstance(function, functools.partial):
        args = function.args
        held = [session.captures(v, f"{path}.args[{k}]", functools.partial(args.__getitem__, k)) for k, v in enumerate(args)]
        return functools.partial(_captured(session, function.func, f"{path}.func"), *held, **function.keywords)
    elif not isinstance(function, (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type)):
        session.captures.register(function, path, lambda: function)
    return function


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, those that ``from __future__ import annotations`` left as text evaluated."""
    found = dict(getattr(function, "__annotations__", None) or {})
    space = getattr(function, "__globals__", {})
    for name, annotation in found.items():
        if isinstance(annotation, str):
            try:
                found[name] = eval(annotation, space)  # the user's own code, as typing.get_type_hints evaluates it
            except Exception:  # an annotation that means something to others only
                found[name] = None
    return found


def declared(annotation: Any) -> Any:
    """The declared type (a tree of types) that an annotation states, or None."""
    if isinstance(annotation, Type):
        return annotation
    if isinstance(annotation, DType):
        return Type(annotation)
    if isinstance(annotation, (tuple, list)) and annotation:
        parts = [declared(a) for a in annotation]
        return None if any(p is None for p in parts) else type(annotation)(parts)
    if isinstance(annotation, dict) and annotation:
        entries = {key: declared(a) for key, a in annotation.items()}
        return None if any(p is None for p in entries.values()) else entries
    return None


def plant(trace: Trace, tree: Any, path: str) -> Any:
    """An argument with traced arrays for its leaves."""
    if isinstance(tree, Spec):
        value = trace.parameter(path, tree.type, tree.hint, tree.declared)
        return Array(trace, value, weak=tree.weak, source=f"the argument {path!r}" if tree.type.rank else "")
    if isinstance(tree, tuple):
        names = getattr(tree, "_fields", None)
        parts = [plant(trace, part, f"{path}.{names[k]}" if names else f"{path}[{k}]") for k, part in enumerate(tree)]
        return type(tree)(*parts) if names else tuple(parts)
    if isinstance(tree, list):
        return [plant(trace, part, f"{path}[{k}]") for k, part in enumerate(tree)]
    if isinstance(tree, dict):
        return {key: plant(trace, part, f"{path}[{key!r}]") for key, part in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree)]
        return type(tree)(**{name: plant(trace, getattr(tree, name), f"{path}.{name}") for name in fields})
    return tree


def finish(trace: Trace, result: Any) -> Traced:
    """Close the trace with what the function returned."""
    leaves, structure = flatten(written_out(result))
    arrays = [_output(trace, leaf) for leaf in leaves]
    return trace.finish([a.value for a in arrays], structure, [a.weak for a in arrays])


def _output(trace: Trace, leaf: Any) -> Array:
    if isinstance(leaf, Array):
        if leaf.context.finished:
            raise TraceError("the function returns a traced array of another function; it was stored while that one was traced")
        return wrap(leaf)
    if isinstance(leaf, (bool, int, float, np.ndarray, np.generic, Length)):
        return wrap(leaf, "the result")
    raise TraceError(
        f"{trace.name} returns a {type(leaf).__name__}; arrays, numbers and containers of them (tuple, list, dict, "
        "named tuple, dataclass) can be returned"
    )


set_trace_hook(trace_hook)
