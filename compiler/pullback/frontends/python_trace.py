"""Tracing a Python function: from argument trees with a Spec for each leaf to the IR."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.errors import TraceError
from pullback.frontends.array import Array
from pullback.frontends.hooks import Session
from pullback.frontends.inlining import trace_hook
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.staging_lists import written_out
from pullback.frontends.trace import Trace, located
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import UNKNOWN, Loc
from pullback_runtime.function import set_trace_hook
from pullback_runtime.signature import flatten

if TYPE_CHECKING:
    from pullback.frontends.python import PythonFrontend


def trace(frontend: PythonFrontend, arguments: Sequence[Any]) -> Traced:
    """``arguments``: the argument trees in the order of the parameters, a Spec for each leaf."""
    function, name, parameters = frontend.function, frontend.name, frontend.signature
    trace = Trace(name)
    with trace:
        session = Session(trace, function)
        values = [plant(trace, tree, p.name) for p, tree in zip(parameters, arguments, strict=True)]
        positional = tuple(v for v, p in zip(values, parameters, strict=True) if p.kind is not inspect.Parameter.KEYWORD_ONLY)
        keywords = {p.name: v for p, v in zip(parameters, values, strict=True) if p.kind is p.KEYWORD_ONLY}
        result = session.call(_captured(session, function, name), positional, keywords)
        session.captures.check_unchanged()
        if result is None:
            place = getattr(function, "__code__", None)
            loc = UNKNOWN if place is None else Loc(place.co_filename, place.co_firstlineno)
            raise TraceError(located(f"{name} returned None; is a return missing?", loc, "return the value"))
        return finish(trace, result)


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
