"""Shared by the tests of the NumPy frontend: trace a function for arguments, interpret it, compare with NumPy itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.frontends.python import PythonFrontend
from pullback.frontends.traced import Spec, Traced
from pullback.ir.dims import Dim
from pullback.ir.interp import bind, run
from pullback.ir.types import FROM_NUMPY, Type, bool_, f64, i64
from pullback.ir.verify import verify
from pullback_runtime.signature import flatten


def spec_of(value: Any, symbolic: bool, names: list[str]) -> Spec:
    """The Spec of an argument; ``symbolic`` makes every axis a symbol."""
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        kind = bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f64
        return Spec(Type(kind), True, ())
    shape: list[Any] = []
    for length in np.shape(value):
        shape.append(Dim.symbol(f"n{len(names)}") if symbolic else length)
        names.append("")
    return Spec(Type(FROM_NUMPY[np.asarray(value).dtype], tuple(shape)), False, np.shape(value))


def trace(function: Callable[..., Any], *args: Any, symbolic: bool = False) -> tuple[Traced, list[Any]]:
    """The trace, and the arguments' leaves."""
    leaves: list[Any] = []
    names: list[str] = []
    trees: list[Any] = []
    frontend = PythonFrontend(function)
    for arg in (*args, *(p.default for p in frontend.parameters[len(args) :])):
        if isinstance(arg, str):
            trees.append(arg)
            continue
        found, structure = flatten(arg)
        leaves += found
        trees.append(structure.unflatten([spec_of(leaf, symbolic, names) for leaf in found]))
    return frontend.trace(trees), leaves


def evaluate(traced: Traced, leaves: list[Any]) -> Any:
    """The value by the interpreter. The guards must hold for the arguments that were traced with."""
    verify(traced.func)
    inputs = [*leaves, *(h.read() for h in traced.hidden)]
    sizes = bind(traced.func, [np.shape(a) for a in inputs], {})
    assert traced.valid(sizes), [str(g) for g in traced.guards]
    return traced.output.unflatten(run(traced.func, inputs))


def same(function: Callable[..., Any], *args: Any, symbolic: bool = False, rtol: float = 1e-12) -> Traced:
    """Traced and interpreted, the function gives what NumPy gives: structure, element types, shapes, values."""
    traced, leaves = trace(function, *args, symbolic=symbolic)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy on infinities and empty means
        expected = function(*args)
    compare(evaluate(traced, leaves), expected, rtol)
    return traced


def compare(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    got, structure = flatten(found)
    wanted, other = flatten(expected)
    assert str(structure) == str(other)
    for a, b in zip(got, wanted, strict=True):
        b = np.asarray(b)
        b = b.astype(np.int64) if b.dtype == np.int32 else b
        assert a.dtype == b.dtype, (a.dtype, b.dtype)
        assert a.shape == b.shape, (a.shape, b.shape)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13)
