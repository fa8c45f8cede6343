"""The frontend for Python functions that are written with NumPy."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.hooks import Session
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.trace import Trace
from pullback.frontends.traced import Spec, Traced
from pullback_runtime.signature import flatten


class NumpyFrontend:
    """Traces a Python function. ``trace`` takes the argument trees, in the order of the parameters, with a Spec for each leaf.

    A ``*args`` parameter takes a tuple, a ``**kwargs`` parameter a dict.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        if self.name == "<lambda>":
            self.name = "function"
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise UnsupportedError(f"{self.name} is a generator or a coroutine; a function that returns arrays is expected")
        self.signature = inspect.signature(function)
        self.parameters = tuple(self.signature.parameters.values())

    def trace(self, arguments: Sequence[Any], name: str | None = None) -> Traced:
        trace = Trace(name or self.name)
        with trace:
            session = Session(trace)
            values = [plant(trace, tree, p.name) for p, tree in zip(self.parameters, arguments, strict=True)]
            positional, keywords = self._arranged(values)
            result = session.call(self.function, positional, keywords)
            session.captures.check_unchanged()
            return finish(trace, result)

    def _arranged(self, values: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the call."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is parameter.VAR_KEYWORD:
                keywords |= value
            elif parameter.kind is parameter.KEYWORD_ONLY:
                keywords[parameter.name] = value
            else:
                positional.append(value)
        return tuple(positional), keywords


def plant(trace: Trace, tree: Any, path: str) -> Any:
    """An argument with traced arrays for its leaves."""
    if isinstance(tree, Spec):
        value = trace.parameter(path, tree.type, tree.hint)
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
    leaves, structure = flatten(result)
    arrays = [_output(trace, leaf) for leaf in leaves]
    return trace.finish([a.value for a in arrays], structure, [a.weak for a in arrays])


def _output(trace: Trace, leaf: Any) -> Array:
    if isinstance(leaf, Array):
        if leaf.context is not trace:
            raise TraceError("the function returns a traced array of another function; it was stored while that one was traced")
        return leaf
    if isinstance(leaf, (bool, int, float, np.ndarray, np.generic, Length)):
        return wrap(leaf, "the result")
    raise TraceError(
        f"{trace.name} returns a {type(leaf).__name__}; arrays, numbers and containers of them (tuple, list, dict, named tuple, "
        "dataclass) can be returned"
    )
