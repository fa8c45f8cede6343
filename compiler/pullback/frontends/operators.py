"""Operators and methods of traced arrays: each calls the function of the same meaning from the library's table."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import TraceError
from pullback.frontends.sizes import Length
from pullback.frontends.trace import user_text


@functools.cache
def _library() -> Any:
    """The module, which needs this one. An import statement at each operation would take as long as the operation."""
    from pullback.frontends import library

    return library


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    return _library().call(name, args, kwargs)


def _is_array(x: Any) -> bool:
    return isinstance(x, _library().Array)


def _operand(x: Any) -> bool:
    return _is_array(x) or isinstance(x, (Length, np.ndarray, np.generic, bool, int, float, complex, list, tuple))


_REMEDIES = {
    str: "a string chooses (if kind == 'linear': ...), it is not data; pass an array or a number",
    bytes: "bytes are not data; read numbers from them outside the function",
    type(None): "None is not data; pass an array or a number, or ask first: if w is not None",
    dict: "a dict is a container; take the array out of it by its key",
    set: "a set is a container without an order; pass an array",
    list: "a list is a container; pass np.array(y)",
}


def remedy_for(x: Any) -> str:
    """What to do about a value that is no operand."""
    return _REMEDIES.get(type(x), "")


def _no_operand(self: Any, other: Any, name: str) -> Any:
    """Python's answer for other classes, which may know what to do; what can only be a mistake is an error here."""
    repeats = name == "numpy.multiply" and isinstance(other, (str, bytes)) and self.known is not None
    if name in ("numpy.equal", "numpy.not_equal") or repeats or type(other) not in _REMEDIES:
        return NotImplemented
    text, kind = user_text(), "None" if other is None else f"a {type(other).__name__}"
    message = f"{text}: one side is {kind}, the other a traced array" if text else f"a traced array and {kind} are no operands"
    raise self.context.error(TraceError, message, remedy_for(other))


def is_weak(x: Any) -> bool:
    if _is_array(x):
        return bool(x.weak)
    return isinstance(x, (bool, int, float, Length)) and not isinstance(x, np.generic)


def _result(name: str, left: Any, right: Any, result: Any) -> Any:
    """Operators on Python numbers give Python numbers: the result stays weak. Sums of a loop's index are known as such."""
    if is_weak(left) and is_weak(right):
        for part in result if isinstance(result, tuple) else (result,):
            if _is_array(part):
                part.weak = True
        if _is_array(result) and result.known is None:
            from pullback.frontends.staging_index import combined

            return combined(name, left, right, result)
    return result


def binary(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        found = _library().quick(name, (self, other))
        if found is not None:
            return found
        return _result(name, self, other, call(name, self, other)) if _operand(other) else _no_operand(self, other, name)

    return operator


def reflected(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        found = _library().quick(name, (other, self))
        if found is not None:
            return found
        return _result(name, other, self, call(name, other, self)) if _operand(other) else _no_operand(self, other, name)

    return operator


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """``x += y``: a store into an array, another value for a scalar."""

    def operator(self: Any, other: Any) -> Any:
        if not _operand(other):
            return _no_operand(self, other, name)
        result = call(name, self, other)
        if self.ndim == 0 and not self.mutable_scalar:
            return _result(name, self, other, result)
        from pullback.frontends.indexing import store

        store(self, Ellipsis, result, in_place=True)
        return self

    return operator


def unary(name: str) -> Callable[[Any], Any]:
    def operator(self: Any) -> Any:
        return _result(name, self, self, call(name, self))

    return operator


def method(name: str) -> Callable[..., Any]:
    """A method that is a function of the array."""

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(name, self, *args, **kwargs)

    function.__name__ = name.rpartition(".")[2]
    return function
