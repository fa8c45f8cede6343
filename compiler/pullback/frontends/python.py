"""The frontend for Python functions that are written with NumPy: what is known of one before it is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.ir.types import DType, Type
from pullback_runtime.binding import REQUIRED, Parameter

if TYPE_CHECKING:
    from pullback.frontends.traced import Traced


class PythonFrontend:
    """Traces a Python function. ``trace`` takes the argument trees in the order of the parameters, a Spec for each leaf."""

    def __init__(self, function: Callable[..., Any], name: str = ""):
        self.function = function
        own = getattr(function, "__name__", type(function).__name__)
        self.name = name or ("function" if own == "<lambda>" else own)
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise UnsupportedError(f"{self.name} is a generator or a coroutine; a function that returns arrays is expected")
        self.signature = _parameters(function)
        for parameter in self.signature:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UnsupportedError(
                    f"{self.name} takes {parameter}; a compiled function has a fixed number of parameters. Use one parameter "
                    "that is a tuple, list or dict of arrays"
                )
        annotations = _annotations(function)
        self.parameters = tuple(
            Parameter(p.name, REQUIRED if p.default is p.empty else p.default, declared(annotations.get(p.name)))
            for p in self.signature
        )

    def trace(self, arguments: Sequence[Any]) -> Traced:
        from pullback.frontends.python_trace import trace  # loads what tracing needs

        return trace(self, arguments)


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    if isinstance(function, np.ufunc):  # where=, out= and the like are no inputs
        names = ("x",) if function.nin == 1 else [f"x{k + 1}" for k in range(function.nin)]
        return tuple(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names)
    return tuple(inspect.signature(function).parameters.values())


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
