"""Operators and methods of traced arrays: each calls the function of the same meaning from the library's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.frontends.sizes import Length


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    from pullback.frontends.library import call as library_call

    return library_call(name, args, kwargs)


def _is_array(x: Any) -> bool:
    from pullback.frontends.array import Array

    return isinstance(x, Array)


def _operand(x: Any) -> bool:
    return _is_array(x) or isinstance(x, (Length, np.ndarray, np.generic, bool, int, float, complex, list, tuple))


def _is_weak(x: Any) -> bool:
    if _is_array(x):
        return bool(x.weak)
    return isinstance(x, (bool, int, float, Length)) and not isinstance(x, np.generic)


def _result(left: Any, right: Any, result: Any) -> Any:
    """Operators on Python numbers give Python numbers: the result stays weak."""
    if _is_weak(left) and _is_weak(right):
        for part in result if isinstance(result, tuple) else (result,):
            if _is_array(part):
                part.weak = True
    return result


def binary(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        return _result(self, other, call(name, self, other)) if _operand(other) else NotImplemented

    return operator


def reflected(name: str) -> Callable[[Any, Any], Any]:
    def operator(self: Any, other: Any) -> Any:
        return _result(self, other, call(name, other, self)) if _operand(other) else NotImplemented

    return operator


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """``x += y``: a store into an array, another value for a scalar."""

    def operator(self: Any, other: Any) -> Any:
        if not _operand(other):
            return NotImplemented
        result = call(name, self, other)
        if self.ndim == 0 and not self.mutable_scalar:
            return _result(self, other, result)
        from pullback.frontends.indexing import store

        store(self, Ellipsis, result, in_place=True)
        return self

    return operator


def unary(name: str) -> Callable[[Any], Any]:
    def operator(self: Any) -> Any:
        return _result(self, self, call(name, self))

    return operator


def method(name: str) -> Callable[..., Any]:
    """A method that is a function of the array."""

    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(name, self, *args, **kwargs)

    function.__name__ = name.rpartition(".")[2]
    return function
