"""Expression files: what they mean, and that they mean what the NumPy function of the same text means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.compiled import CompiledFunction
from pullback.frontends.expression import ExpressionFrontend, inline
from pullback.ir.types import Type, f64
from pullback.llvm import Options


def function(text: str) -> Any:
    return CompiledFunction(ExpressionFrontend.parse(text, "test.expr"), Options())


def expression(text: str, **types: Type | None) -> Any:
    return CompiledFunction(inline(text, types), Options())


# -- inputs -----------------------------------------------------------------------------------------------------------
def test_types_defaults_and_docstring() -> None:
    f = function(
        '"""What it is."""\nX: f64[n, 2]\nk: i64 = 3\non: bool = True\ns: f32 = -1.5\nw: f64[n] = [1, -2]\nreturn X @ w[:2]'
    )
    assert f.frontend.doc == "What it is."
    assert [str(p.declared) for p in f.parameters] == ["f64[n, 2]", "i64", "bool", "f32", "f64[n]"]
    assert f.parameters[1].default == 3 and f.parameters[3].default == -1.5 and f.parameters[4].default == [1, -2]


def test_size_names_are_integers() -> None:
    f = function("x: f64[n]\ny: f64[2*n + 1]\nreturn sum(x)/n + n*y[n], arange(n) * x, zeros(n - 1) + 1")
    x, y = np.arange(1.0, 4.0), np.arange(7.0) - 2
    a, b, c = f(x, y)
    assert a == pytest.approx(2.0 + 3 * y[3])
    np.testing.assert_array_equal(b, np.arange(3) * x)
    np.testing.assert_array_equal(c, np.ones(2))
    with pytest.raises(pb.ShapeError, match=r"f64\[2\*n \+ 1\]"):
        f(x, np.zeros(8))


def test_one_compilation_for_every_length() -> None:
    f = function("x: f64[n]\nreturn sum(x**2)/n")
    for n in (10, 11, 400):
        assert f(np.ones(n)) == pytest.approx(1.0)
    assert f.cache_info().specializations == 1


def test_names_that_elsewhere_are_functions() -> None:
    f = function(
        "gamma: f64\nbeta: f64\nI: f64\nS: f64\nE: f64\nlambda_: f64\nsum: f64\n"
        "return gamma*beta + I*S - E/lambda_ + np.sum(sum)"
    )
    assert f(2.0, 3.0, 5.0, 7.0, 8.0, 4.0, 1.5) == 2 * 3 + 5 * 7 - 8 / 4 + 1.5


# -- names ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ln(x) + log(x) + np.log(x)", lambda x: 3 * np.log(x)),
        ("asin(x/4) + acos(x/4) - atan(x) + atan2(x, 2)", lambda x: np.pi / 2 - np.arctan(x) + np.arctan2(x, 2)),
        ("erf(x) + special.erf(x) + scipy.special.erf(x)", lambda x: 3 * scipy.special.erf(x)),
        ("gammaln(x) * expit(-x)", lambda x: scipy.special.gammaln(x) * scipy.special.expit(-x)),
        ("pi*x + np.pi + e + np.e", lambda x: np.pi * x + np.pi + 2 * np.e),
        ("maximum(x, 2) + minimum(x, 1) + abs(-x)", lambda x: max(x, 2) + min(x, 1) + x),
        ("where(x > inf, nan, x)", lambda x: x),
        ("x.sum() + x.reshape((1, 1)).T[0, 0] + x.size + x.ndim", lambda x: 2 * x + 1),
        ("linalg.norm(array([x, 2*x])) + norm(stack([x, x]))", lambda x: np.sqrt(5) * x + np.sqrt(2) * x),
        ("sum(array([[x, 1], [2, 3*x]]), axis=0)[1]", lambda x: 1 + 3 * x),
        ("x**2 + x**-1 + 2**x + x**0.5", lambda x: x**2 + 1 / x + 2**x + np.sqrt(x)),
        ("7 // 2 + 7 % 4 + x // 1", lambda x: 6 + x // 1),
        ("1 if 2 > 1 else x", lambda x: 1.0),
        ("(x > 1) & ~(x > 9) | (x == 0)", lambda x: True),
    ],
)  # fmt: skip
def test_functions_and_operators(text: str, expected: Any) -> None:
    assert expression(text)(1.7) == pytest.approx(expected(1.7), rel=1e-14)


def test_inline_inputs_are_unknown_names_in_order() -> None:
    f = expression("b*sin(a) + e*pi - b")
    assert [p.name for p in f.parameters] == ["b", "a"]
    g = expression("x*e", e=Type(f64))
    assert [p.name for p in g.parameters] == ["x", "e"]
    assert g.grad(2.0, 3.0) == (3.0, 2.0)


def test_inline_arrays() -> None:
    f = expression("a @ b", a=None, b=None)
    a, b = np.array([[0.0, 0.0], [2.0, 2.0]]), np.array([[1.0, 2.0], [1.0, 2.0]])
    np.testing.assert_array_equal(f.grad(a, b, seed=[[1.0, 2.0], [3.0, 4.0]])[0], [[5, 5], [11, 11]])


# -- statements -------------------------------------------------------------------------------------------------------
def test_named_intermediates_can_be_seeded_and_asked_for() -> None:
    f = function("x: f64\ny: f64\nz: f64\nq = x + y\nf = q*z\nreturn f")
    assert f.grad(4.0, -3.0, 5.0) == (5.0, 5.0, 1.0)
    assert f.grad(4.0, -3.0, 5.0, wrt="q") == 5.0
    assert f.grad(4.0, -3.0, 5.0, seed={"q": -2.0}) == (-2.0, -2.0, 0.0)
    assert f.specialization().names == ("q", "f")


def test_outputs() -> None:
    f = function("x: f64\nreturn {'twice': 2*x, 'square': x**2}")
    assert f(3.0) == {"twice": 6.0, "square": 9.0}
    assert f.grad(3.0, seed={"twice": -1.0, "square": 0.5}) == -2.0 + 0.5 * 6
    assert function("x: f64\nreturn x, (x + 1, [x*2])")(3.0) == (3.0, (4.0, [6.0]))


def test_rebinding_unpacking_and_updates() -> None:
    f = function(
        """
x: f64[n]
a, b = sum(x), x[0]
a = a * b
a += 1
y = zeros(n)
y[0] = a
y[1:] += 2 * x[1:]
y *= -1
return y
"""
    )
    x = np.array([3.0, -1.0, 0.5])
    np.testing.assert_array_equal(f(x), [-(2.5 * 3 + 1), 2.0, -1.0])
    seed = np.array([-1.0, 2.0, 0.5])
    np.testing.assert_allclose(f.grad(x, seed=seed), [3 + 2.5, 3 - 4, 3 - 1], rtol=1e-15)


def test_helpers_are_inlined() -> None:
    f = function(
        """
def power(x, k=2):
    \"\"\"Its own names.\"\"\"
    r = x**k
    return r, scale * r

def cube(x):
    return power(x, k=3)[0]

x: f64
scale = 10
a, b = power(x)
return a + b - cube(x)
"""
    )
    assert f(2.0) == 4 + 40 - 8
    assert f.grad(2.0, seed=-1.0) == -(4 + 40 - 12)
    assert f.specialization().names == ("a", "b")


def test_long_expressions() -> None:
    terms = " + ".join(f"x{k}*sin(y)" for k in range(2000))
    f = inline(terms)
    assert len(f.parameters) == 2001
    chain = function("x: f64\nreturn " + "x + " * 2399 + "x")
    assert chain(0.5) == 1200.0
    assert chain.grad(0.5, seed=-1.0) == -2400.0
    nested = function("x: f64\nreturn " + "sin(" * 140 + "x" + ")" * 140)
    assert np.isfinite(nested.grad(0.5))
    horner = function("x: f64\nreturn " + "(1 + x*" * 120 + "1" + ")" * 120)
    assert horner(0.5) == pytest.approx(2.0)


def test_a_deep_caller_changes_nothing() -> None:
    """How deep a tree Python's parser makes depends on the depth of the caller in some versions."""
    text = "x: f64\nreturn " + "x + " * 2399 + "x"

    def dive(depth: int) -> Any:
        return dive(depth - 1) if depth else ExpressionFrontend.parse(text, "test.expr")

    assert len(dive(700).parameters) == 1


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "my model.expr"
    path.write_bytes("\ufeffx: f64\r\nµ = x**2\r\nreturn µ".encode())
    f = pb.load(path)
    assert f.grad(3.0) == 6.0
    assert f.__name__ == "my_model"
    with pytest.raises(FileNotFoundError):
        pb.load(tmp_path / "none.expr")
