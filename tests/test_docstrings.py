"""The examples in the docstrings of what users call are true, and nothing public goes without one."""

from __future__ import annotations

import doctest
import importlib
import inspect

import numpy as np
import pytest

import pullback as pb

MODULES = ("pullback.api", "pullback.compiled", "pullback.functional", "pullback_runtime.function", "pullback_runtime.variable")
FUNCTIONS = [
    *(
        "compile",
        "load",
        "grad",
        "value_and_grad",
        "vjp",
        "jvp",
        "jacobian",
        "hessian",
        "name",
        "variable",
        "check",
        "Variable",
    ),
    "Function",
]
METHODS = [
    *("__call__", "vjp", "grad", "value_and_grad", "jvp", "pullback", "specialize", "cache_info", "ir"),
    *("jacobian", "hessian", "hvp", "check", "explain", "graph"),
]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module), extraglobs={"pb": pb, "np": np})
    assert result.attempted and not result.failed


def test_everything_public_has_an_example() -> None:
    for name in FUNCTIONS:
        assert ">>>" in getattr(pb, name).__doc__, name
    for name in METHODS:
        assert ">>>" in (inspect.getdoc(getattr(pb.Function, name)) or ""), name


def test_the_class_that_is_exported_is_the_one_that_users_get() -> None:
    f = pb.compile(lambda x: x * x)
    assert type(f) is pb.Function
    assert isinstance(pb.grad(f), pb.Function)
    public = {name for name in dir(f) if not name.startswith("_")}
    assert {"explain", "check", "graph", "hessian", "hvp", "jacobian"} <= public & set(dir(pb.Function))
