"""The SymPy frontend: every kind of node, names, containers, what is refused."""

from __future__ import annotations

import gc
import sys
import time

import numpy as np
import pytest
import sympy as sp

import pullback as pb
from pullback.frontends.sympy_frontend import SympyFrontend

x, y, z, t = sp.symbols("x y z t")


def numbers(expression, point):
    """(value, gradient) at 60 digits by SymPy; slopes by steps of 1e-20, for SymPy leaves the derivative of floor alone."""

    def at(**moved):
        return sp.N(expression.subs({s: sp.Rational(v) + moved.get(s.name, 0) for s, v in point.items()}).doit(), 60)

    expression = expression.xreplace({f: sp.Rational(f) for f in expression.atoms(sp.Float)})  # Floats have 15 digits
    h = sp.Rational(1, 10**20)
    return float(at()), [float((at(**{s.name: h}) - at(**{s.name: -h})) / (2 * h)) for s in point]


SMOOTH = [
    x + y,
    x - 2 * y + 3,
    x * y / 3,
    -x * y,
    2 * x / (3 * y),
    sp.pi * x / 7 + sp.sqrt(2) * y,
    sp.sqrt(2) * sp.sqrt(3) * x / sp.E + sp.GoldenRatio + sp.EulerGamma * y,
    x / y**2,
    x**3 * y**-3,
    sp.sqrt(x) / sp.sqrt(y),
    x ** sp.Rational(1, 3) * y ** sp.Rational(-2, 3),
    x ** sp.Rational(3, 2),
    x**2.5 * y,
    x**y,
    2**x + 3**y,
    x**sp.pi,
    (x - y) ** 25,
    1 / (x + y),
    sp.exp(-x) * sp.exp(y),
    sp.log(x, 2) + sp.log(y, 10) + sp.log(x),
    sp.sin(x) * sp.cos(y) * sp.tan(x),
    sp.sec(x) + sp.csc(x) + sp.cot(y),
    sp.asin(x / 3) + sp.acos(y / 3) + sp.atan(x * y) + sp.acot(y),
    sp.asec(x + 2) + sp.acsc(y + 2),
    sp.sinh(x) + sp.cosh(y) + sp.tanh(x),
    sp.sech(x) + sp.csch(y) + sp.coth(x),
    sp.asinh(x) + sp.acosh(y + 1) + sp.atanh(x / 3) + sp.acoth(y + 2) + sp.asech(x / 3) + sp.acsch(y),
    sp.atan2(y, x) + sp.atan2(-y, -x),
    sp.Abs(x - y) + sp.sign(x - y) * x,
    sp.Max(x, y) + sp.Min(x, y) * 2,
    sp.Max(x, y, 1, sp.sin(x)) * sp.Min(x, y, x * y),
    sp.Heaviside(x - y, sp.Rational(1, 2)) * x,
    sp.floor(x) * y + sp.ceiling(y) * x + sp.frac(x),
    sp.Mod(x, y) + sp.Mod(-3 * x, y),
    sp.erf(x) + sp.erfc(y),
    sp.gamma(x) + sp.loggamma(y) + sp.digamma(x),
    sp.polygamma(1, x) + sp.polygamma(2, y) + sp.polygamma(0, x),
    sp.factorial(x) + sp.binomial(y, x) + sp.beta(x, y),
    sp.sinc(x) * y,
    sp.Piecewise((x**2, x < y), (sp.sin(x), x < 2 * y), (y, True)),
    sp.Piecewise((sp.sqrt(x - 5), x > 5), (x, True)),
    sp.Piecewise((x, sp.And(x > 0, y > 0)), (y, sp.Or(x < -1, sp.Not(y > 1))), (x * y, True)),
    sp.Piecewise((x, sp.Xor(x > 1, y > 1)), (y**2, True)),
    sp.Piecewise((x, sp.ITE(x > 1, y > 1, y < 1)), (y**2, True)),
    sp.Piecewise((x, sp.Ne(x, 1)), (0, True)),
    sp.Piecewise((x * y, sp.Interval(1, 2).contains(x)), (y, True)),
    sp.re(x) + sp.conjugate(y),
    sp.Float("0.1", 50) * x + sp.Float("1e-300") + sp.Rational(1, 3) * y,
    sp.Sum(x**z / z, (z, 1, 5)) + sp.Product(y + z, (z, 1, 3)),
]


@pytest.mark.parametrize("expression", SMOOTH, ids=str)
def test_against_sympy(expression):
    real = {x: sp.Symbol("x", real=True), y: sp.Symbol("y", real=True)}
    value, gradient = numbers(expression.subs(real), {real[x]: 1.25, real[y]: 1.75})
    f = pb.compile(expression, inputs=[x, y])
    found, slopes = f.vjp(1.25, 1.75, seed=-2.0)
    assert found == pytest.approx(value, rel=1e-13, abs=1e-15)
    assert slopes == pytest.approx([-2 * g for g in gradient], rel=1e-12, abs=1e-14)  # sums of terms of size one


def test_constants_are_rounded_once():
    cases = {
        sp.Rational(1, 3): 1 / 3,
        sp.Integer(10) ** 30: 1e30,
        sp.Integer(2) ** 60 + 1: float(2**60),
        sp.Rational(10**40 + 1, 10**40): 1.0,
        sp.Float("0.1", 60): 0.1,
        sp.Float("1e-310"): 1e-310,
        sp.pi**2 / 6: 1.6449340668482264,
        sp.sqrt(2) + sp.pi: 4.555806215962888,
        sp.GoldenRatio: 1.618033988749895,
        sp.Catalan: 0.915965594177219,
        sp.oo: np.inf,
        -sp.oo: -np.inf,
    }
    for expression, expected in cases.items():
        assert pb.compile([expression, x], inputs=[x])(2.0)[0] == expected, expression
    assert np.isnan(pb.compile([sp.nan, x], inputs=[x])(2.0)[0])
    f = pb.compile(sp.log(10**30 * x) + 10**20 * x, inputs=[x])
    assert f.grad(2.0) == 1e20


def test_any_symbol_name():
    names = ["x_{1}", r"\alpha", "lambda", "two words", "return", "np", "1x", "x.y", "δ", "sum", ""]
    symbols = [sp.Symbol(name) for name in names]
    f = pb.compile(sum((k + 1) * s**2 for k, s in enumerate(symbols)), inputs=symbols)
    point = [0.5 * (k + 1) for k in range(len(names))]
    gradients = f.grad(*point)
    assert gradients == pytest.approx([2 * (k + 1) * v for k, v in enumerate(point)])
    by_name = f(**dict(zip(names, point, strict=True)))
    assert by_name == f(*point)
    assert f.grad(*point, wrt="two words") == gradients[3]


def test_symbols_that_differ_in_assumptions():
    a, b = sp.Symbol("a", positive=True), sp.Symbol("a", real=True)
    f = pb.compile(a - b, inputs=[a, b])
    assert [p.name for p in f.parameters] == ["a", "a_2"]
    assert f.grad(1.0, 2.0) == (1.0, -1.0)


def test_containers_of_outputs():
    f = pb.compile({"a": x + y, "b": [x * y, (sp.pi, y)]}, inputs=[x, y])
    assert f(2.0, 3.0) == {"a": 5.0, "b": [6.0, (np.pi, 3.0)]}
    assert f.grad(2.0, 3.0, seed={"a": -1.0, "b": [2.0, (5.0, 7.0)]}) == (5.0, 10.0)


def test_matrices():
    m = sp.Matrix([[x, 1], [x * y, sp.Rational(1, 3)], [0, y]])
    for form in (m, sp.ImmutableMatrix(m), sp.SparseMatrix(m)):
        f = pb.compile(form, inputs=[x, y])
        np.testing.assert_array_equal(f(2.0, 3.0), [[2, 1], [6, 1 / 3], [0, 3]])
        np.testing.assert_array_equal(f.grad(2.0, 3.0, seed=[[1, 2], [-3, 4], [5, 6]]), (1 - 9, -6 + 6))
    cube = pb.compile(sp.Array([[[x, y], [1, 2]]]), inputs=[x, y])
    assert cube(2.0, 3.0).shape == (1, 2, 2)


def test_array_inputs():
    a, i, j = sp.IndexedBase("a"), sp.Symbol("i", integer=True), sp.Symbol("j", integer=True)
    data = np.array([[1.0, 2.0], [3.0, 4.0]])
    f = pb.compile(sp.Sum(a[i, j] ** 2, (i, 0, 1), (j, 0, 1)) + a[1, 0], inputs=[a])
    value, gradient = f.vjp(data, seed=-1.0)
    assert value == 33.0
    np.testing.assert_array_equal(gradient, -2 * data - [[0, 0], [1, 0]])
    m, v = sp.MatrixSymbol("M", 2, 2), sp.MatrixSymbol("v", 2, 1)
    g = pb.compile(m.T * v + 3 * v - m * v * x, inputs=[m, v, x])
    expected = data.T @ [[1.0], [2]] + [[3.0], [6]] - data @ [[1.0], [2]] * 0.5
    np.testing.assert_allclose(g(data, np.array([[1.0], [2.0]]), 0.5), expected, rtol=1e-15)
    np.testing.assert_allclose(g(data, np.array([1.0, 2.0]), 0.5), expected, rtol=1e-15)  # a vector for a column
    h = pb.compile(m[0, 1] * v[1, 0] + sp.Trace(m * m), inputs=[m, v])
    assert h(data, np.array([[1.0], [2.0]])) == 4.0 + np.trace(data @ data)
    with pytest.raises(pb.ShapeError, match=r"the input M has shape \(2, 2\), got an array of shape \(3, 2\)"):
        h(np.ones((3, 2)), np.ones((2, 1)))


def test_elements_as_inputs():
    a = sp.IndexedBase("a")
    f = pb.compile(a[0] * a[1] ** 2, inputs=[a[0], a[1]])
    assert [p.name for p in f.parameters] == ["a[0]", "a[1]"]
    assert f.grad(2.0, 3.0) == (9.0, 12.0)


def test_list_inputs():
    f = pb.compile(x * y + z, inputs=[(x, y), z])
    assert f([2.0, 3.0], 1.0) == f((2.0, 3.0), 1.0) == f(np.array([2.0, 3.0]), 1.0) == 7.0
    np.testing.assert_array_equal(f.grad(np.array([2.0, 3.0]), 1.0, wrt="input0"), [3.0, 2.0])
    column = pb.compile(x * y, inputs=[sp.Matrix([x, y])])
    np.testing.assert_array_equal(column.grad(np.array([[2.0], [3.0]])), [[3.0], [2.0]])
    np.testing.assert_array_equal(column.grad(np.array([2.0, 3.0])), [3.0, 2.0])


def test_functions_of_time():
    q = sp.Function("q")(t)
    f = pb.compile(sp.sin(q) + q.diff(t) ** 2 * t, inputs=[t, q, q.diff(t)])
    assert [p.name for p in f.parameters] == ["t", "q(t)", "Derivative(q(t), t)"]
    value, gradient = f.vjp(1.0, 2.0, 3.0, seed=2.0)
    assert value == np.sin(2.0) + 9.0
    assert gradient == (18.0, 2 * np.cos(2.0), 12.0)


def test_arrays_for_symbols():
    f = pb.compile(x**2 * y + 1, inputs=[x, y])
    data = np.linspace(-1, 1, 12).reshape(3, 4)
    np.testing.assert_array_equal(f(data, 2.0), data**2 * 2 + 1)
    np.testing.assert_array_equal(f(data, np.arange(4.0)), data**2 * np.arange(4.0) + 1)
    seed = np.arange(12.0).reshape(3, 4) - 5
    gx, gy = f.grad(data, np.arange(4.0), seed=seed)
    np.testing.assert_allclose(gx, seed * 2 * data * np.arange(4.0), rtol=1e-15)
    np.testing.assert_allclose(gy, (seed * data**2).sum(0), rtol=1e-14)
    with pytest.raises(ValueError, match="could not be broadcast"):
        f(np.ones(3), np.ones(4))
    constant = pb.compile(sp.Integer(2), inputs=[x])
    found = constant(np.arange(4.0))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [2.0] * 4)
    with pytest.raises(pb.ShapeError, match="a matrix among its outputs"):
        pb.compile(sp.Matrix([x, y]), inputs=[x, y])(np.ones(3), 1.0)


def test_element_types():
    f = pb.compile(x / 3 + y, inputs=[x, y])
    assert f(2, 3.0) == 2 / 3 + 3
    assert f(2, 3) == 2 / 3 + 3
    assert f(np.int64(2), 3) == 2 / 3 + 3
    single = f(np.float32(2), np.float32(3))
    assert single.dtype == np.float32
    assert single == np.float32(2) / np.float32(3) + np.float32(3)


def test_relations_as_outputs():
    f = pb.compile([x < y, sp.And(x > 0, y > 0)], inputs=[x, y])
    assert f(1.0, 2.0) == [True, True]
    assert f(1.0, -2.0) == [False, False]


def test_real_symbols():
    assert pb.compile(sp.im(x) + x, inputs=[x]).grad(2.0) == 1.0
    f = pb.compile(sp.arg(x), inputs=[x])
    assert (f(2.0), f(-2.0)) == (0.0, np.pi)
    assert f.grad(2.0) == 0.0


def test_untaken_branches():
    f = pb.compile(sp.Piecewise((sp.sqrt(x), x > 0), (0, True)), inputs=[x])
    assert f.grad(-4.0) == 0.0
    g = pb.compile(sp.Piecewise((sp.sqrt(x), x >= 0), (sp.sqrt(-x), True)), inputs=[x])
    np.testing.assert_allclose(g.grad(np.array([1.44, -1.44]), seed=1.0), [1 / 2.4, -1 / 2.4], rtol=1e-15)
    assert np.isnan(pb.compile(sp.Piecewise((x, x > 0)), inputs=[x])(-1.0))  # no branch holds


def test_ties_of_three():
    f = pb.compile(sp.Max(x, y, z), inputs=[x, y, z])
    assert f.grad(2.0, 2.0, 2.0) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert f.grad(2.0, 2.0, 1.0) == (0.5, 0.5, 0.0)


def test_large_binomials():
    f = pb.compile(sp.binomial(x, y), inputs=[x, y])
    assert f(200.0, 100.0) == pytest.approx(float(sp.binomial(200, 100)), rel=1e-11)  # 1e59 by logarithms: 60 ulps


# -- size ---------------------------------------------------------------------------------------------------------------------
def test_shared_subexpressions_are_computed_once():
    e = x
    for k in range(60):  # 2^60 nodes as a tree
        e = sp.cos(e) * e + sp.Integer(k)
    plan = SympyFrontend(e, [x]).plan
    assert len(plan.steps) < 60 * 5
    twin = SympyFrontend([sp.sin(x * y) + 1, sp.sin(x * y) * 2], [x, y]).plan
    assert sum(1 for _ in twin.steps) <= 8


def test_deep_expressions():
    """Far deeper than Python's recursion limit, in linear time."""
    spent = []
    for depth in (10_000, 30_000):
        assert depth >= 10 * sys.getrecursionlimit()
        e = x
        for _ in range(depth):
            e = sp.sin(e, evaluate=False)
        gc.collect()
        gc.disable()  # what earlier tests left behind would be gone through again and again
        start = time.process_time()
        frontend = SympyFrontend(e, [x])
        spent.append(time.process_time() - start)
        gc.enable()
        assert len(frontend.plan.steps) == depth + 1
    assert spent[1] < 9 * max(spent[0], 0.05)  # linear is 3 times; the slack is for a busy machine


def test_nested_thirty_deep():
    """A recurrence as one expression: the text grows to thousands of nodes, the program has 30 steps."""
    w = sp.symbols("w:30")
    e = w[0]
    for k in range(1, 30):
        e = 1 / (1 + sp.exp(e - w[k]))
    f = pb.compile(e, inputs=list(w))
    point = [0.1 * k for k in range(30)]
    s, slopes = point[0], []
    for k in range(1, 30):
        s = 1 / (1 + np.exp(s - point[k]))
        slopes.append(s * (1 - s))
    value, gradient = f.vjp(*point)
    assert value == pytest.approx(s, rel=1e-14)
    assert gradient[-1] == pytest.approx(slopes[-1], rel=1e-13)
    assert gradient[-2] == pytest.approx(-slopes[-1] * slopes[-2], rel=1e-13)


# -- what is refused -----------------------------------------------------------------------------------------------------------
REFUSED = [
    (x + y + z, [x], pb.ExpressionError, "free symbols that are not among the inputs: y, z"),
    (sp.Function("q")(t), [t], pb.ExpressionError, r"not among the inputs: q\(t\)"),
    (sp.Integral(sp.sin(x) / x, (x, 0, y)), [y], pb.UnsupportedError, r"'Integral\(sin\(x\)/x, \(x, 0, y\)\)'.*\.doit\(\)"),
    (sp.Derivative(sp.sin(x), x), [x], pb.UnsupportedError, r"'Derivative\(sin\(x\), x\)'.*\.doit\(\)"),
    (sp.Subs(x * y, y, 3), [x], pb.UnsupportedError, r"Subs.*\.doit\(\)"),
    (sp.LambertW(x), [x], pb.UnsupportedError, "LambertW"),
    (sp.besselj(0, x), [x], pb.UnsupportedError, r"'besselj\(0, x\)' \(besselj\) is not supported"),
    (sp.DiracDelta(x), [x], pb.UnsupportedError, "DiracDelta"),
    (sp.arg(sp.I * x), [x], pb.UnsupportedError, "only real numbers are supported"),
    (sp.sqrt(-2) * x, [x], pb.UnsupportedError, "only real numbers are supported"),
    (x + sp.log(-2), [x], pb.UnsupportedError, "not real|only real"),
    (x * sp.zoo, [x], pb.UnsupportedError, "real"),
    (10**400 * x, [x], pb.UnsupportedError, "beyond float64's range"),
    (sp.Sum(x**t, (t, 0, y)), [x, y], pb.UnsupportedError, "its bounds must be integers"),
    (sp.Sum(x**t, (t, 0, 10**9)), [x], pb.UnsupportedError, "1000000001 terms"),
    (sp.IndexedBase("a")[t], [sp.IndexedBase("a"), t], pb.UnsupportedError, "indices must be integers"),
    (x, ["x"], pb.ExpressionError, r"sympy\.Symbol\('x'\)"),
    (x, None, pb.PullbackError, "inputs="),
    (x, [x, x], pb.ExpressionError, "listed twice"),
    (x, [x + y], pb.ExpressionError, "cannot be an input"),
    (x, [x, 3], pb.ExpressionError, "cannot be an input"),
]


@pytest.mark.parametrize(("expression", "inputs", "kind", "message"), REFUSED, ids=[str(r[0]) for r in REFUSED])
def test_refused_when_built(expression, inputs, kind, message):
    with pytest.raises(kind, match=message):
        pb.compile(expression, inputs=inputs)


def test_unused_inputs_have_zero_gradients():
    f = pb.compile(x**2, inputs=[x, y, sp.MatrixSymbol("A", 2, 2)])
    gx, gy, ga = f.grad(3.0, 1.0, np.ones((2, 2)))
    assert (gx, gy) == (6.0, 0.0)
    np.testing.assert_array_equal(ga, np.zeros((2, 2)))


def test_the_same_as_numpy():
    """The same numbers as the function written with NumPy."""

    def written(x, y):
        return np.exp(-(x**2)) * np.sin(y) / 3 + np.where(x > y, x, y)

    expression = sp.exp(-(x**2)) * sp.sin(y) / 3 + sp.Piecewise((x, x > y), (y, True))
    f, g = pb.compile(expression, inputs=[x, y]), pb.compile(written)
    a, b = np.array([0.3, -1.2, 2.0]), np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(f(a, b), g(a, b), rtol=1e-15)
    for ours, theirs in zip(f.grad(a, b, seed=[1, -2, 3.0]), g.grad(a, b, seed=[1, -2, 3.0]), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14)
