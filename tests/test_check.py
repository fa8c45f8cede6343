"""The verifier: it accepts what is right, names what is wrong, and tells kinks, jumps, special cases and rounding apart."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import sympy as sp
from scipy.optimize import rosen, rosen_der
from scipy.special import xlogy

import pullback as pb
from pullback.checking import differences
from pullback.ir.core import Builder, Func, Value
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise
from pullback.ir.types import f64
from pullback.precise import evaluate, to_float
from pullback.symbolic import latex, lift, text, tree_size
from pullback.testing import assert_derivatives
from tests.cases import RECORDS, arguments, python_function, sympy_function

x, y = sp.symbols("x y")
X = np.array([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]])


def verdicts(report):
    return {i.name: i.verdict for i in report.inputs}


# -- what is right ------------------------------------------------------------------------------------------------------------
def regression(w, X, y):
    return np.mean(np.log1p(np.exp(-y * (X @ w)))), w[0] * y


RIGHT = [
    (regression, (np.array([0.3, -0.7]), X, np.array([1.0, -1.0, 1.0]))),
    (lambda x: np.sin(x), (1.0,)),  # the second difference of a sine is accurate only with the right step
    (lambda x: np.sqrt(x) ** 2, (np.array([4.0, 1e-30]),)),
    (lambda x: np.linalg.norm(x), (np.array([1e-8, 2e-8]),)),
    (lambda x: np.prod(x), (np.array([0.0, 2.0, 5.0]),)),
    (lambda x: np.sum(np.where(x > 0, np.sqrt(np.abs(x)), x**2)), (np.array([-4.0, 9.0]),)),
    (lambda x: np.sum(np.sort(x) * np.arange(3.0)), (np.array([3.0, 1.0, 2.0]),)),
    (lambda x: np.exp(x["a"]) * x["b"][1], ({"a": 0.5, "b": [2, np.array([2.0, 3.0])]},)),
    (lambda x: np.sum(x * 1e200), (np.array([1e-200, 2.0]),)),
    (lambda x: 1e-200 * np.sum(x**2), (np.array([3.0, 2.0]),)),
    (lambda x, n: np.sum(x**3) * n, (np.array([3.0, 2.0]), 2)),
]


@pytest.mark.parametrize(("function", "args"), RIGHT, ids=range(len(RIGHT)))
def test_right_derivatives_pass(function, args):
    report = pb.check(function, *args)
    assert report.ok, report.text
    assert set(verdicts(report).values()) == {"ok"}, report.text
    assert {t.name for t in report.tests} >= {"forward = reverse", "second derivatives", "Taylor remainder"}
    assert all(t.verdict == "ok" for t in report.tests if t.name != "SymPy's derivative"), report.text
    assert report.reference == "slopes at 50 digits"


@pytest.mark.parametrize("case", ["A02", "A09", "A21", "B08", "B11", "C18", "F04", "F12", "G01", "H10", "J10", "K02"])
def test_cases_pass(case):
    report = pb.check(python_function(RECORDS[case]), *arguments(RECORDS[case]))
    assert report.ok, report.text


def test_views_and_read_only_inputs():
    """They are copied before they are moved."""
    v = np.broadcast_to(2.0, (2,))
    assert pb.check(lambda v: np.sum(np.array([[1.0, 2.0], [3.0, 4.0]]) @ v), v).ok
    data = np.arange(6.0)
    data.flags.writeable = False
    assert pb.check(lambda v: np.sum(v**2), data[::-2]).ok
    assert data.tolist() == [0, 1, 2, 3, 4, 5]


def test_float32_is_differenced_in_float64():
    report = pb.check(lambda x: np.sum(np.sin(x) * x), np.array([1.0, 2.0, 0.3], np.float32))
    assert report.ok, report.text
    assert 0 < report.inputs[0].error < 1e-5


def test_of_methods_and_sympy():
    f = pb.compile(sp.exp(x) * sp.sin(y), inputs=[x, y])
    report = f.check(0.5, 0.25)
    assert report.ok
    assert {t.name: t.verdict for t in report.tests}["SymPy's derivative"] == "ok"
    assert assert_derivatives(f, 0.5, 0.25).ok


def test_captured_arrays():
    w = np.array([1.0, -2.0, 3.0])
    report = pb.check(lambda x: np.sum(w * x**2), np.array([1.0, 2.0, 0.5]))
    assert report.ok, report.text
    assert report.reference == "slopes at 50 digits"


def test_large_functions_by_differences():
    random = np.random.default_rng(4)
    start = time.process_time()
    report = pb.check(lambda X, w: np.sum(np.tanh(X @ w) ** 2), random.normal(size=(3000, 20)), random.normal(size=20))
    assert report.ok, report.text
    assert report.reference == "central differences in float64"
    assert time.process_time() - start < 15  # about two seconds


def power(x, y):
    return x**y


SECOND_ORDER = [
    (np.logaddexp, (0.3, 0.3)),  # a tie
    (power, (2.0, 0.0)),  # y x**(y-1) at y = 0
    (lambda x, y: xlogy(x, y), (0.0, 2.0)),
    (lambda x, y: np.hypot(x, y), (3.0, 0.0)),
    (lambda x, y: np.sinc(x) * y, (0.0, 2.0)),
]


@pytest.mark.parametrize(("function", "args"), SECOND_ORDER, ids=range(len(SECOND_ORDER)))
def test_partials_at_special_points(function, args):
    """A partial that has a case of its own at a point must have the right slope there."""
    report = pb.check(lambda x, y: function(x, y), *args)
    assert {t.name: t.verdict for t in report.tests}["second derivatives"] == "ok", report.text


# -- what is wrong ------------------------------------------------------------------------------------------------------------
def test_gradients_written_by_hand():
    point = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
    assert pb.check((rosen, rosen_der), point).ok
    report = pb.check((rosen, lambda v: rosen_der(v) + np.array([0, 0, 1e-3, 0, 0])), point)
    assert not report.ok
    assert report.inputs[0].verdict == "WRONG"
    assert report.inputs[0].worst == (2,)
    with pytest.raises(pb.CheckError, match=r"WRONG"):
        report.raise_if_failed()
    with pytest.raises(AssertionError):
        assert_derivatives((rosen, lambda v: 2 * rosen_der(v)), point)


def test_numbers_of_tests_that_were_not_made_are_not_shown():
    report = pb.check((lambda x: x**2, lambda x: 2 * x + 2), 1.5)
    assert report.inputs[0].verdict == "WRONG"
    assert "SymPy's derivative: not tested (differs; see the verdict of the input)" in report.text


def test_pairs_with_several_arguments():
    def f(a, b):
        return float(np.sum(a**2) * b)

    a, b = np.array([1.0, 2.0]), 3.0
    assert pb.check((f, lambda a, b: (2 * a * b, np.sum(a**2))), a, b).ok
    report = pb.check((f, lambda a, b: (2 * a * b, np.sum(a))), a, b)
    assert verdicts(report) == {"a": "ok", "b": "WRONG"}
    only_first = pb.check((f, lambda a, b: 2 * a * b), a, b)
    assert only_first.ok
    assert any("only the gradient of a was given" in flag for flag in only_first.flags)
    wrong_shape = pb.check((f, lambda a, b: (np.ones(3), 5.0)), a, b)
    assert "shape (3,)" in wrong_shape.inputs[0].note


def test_pairs_that_cannot_be_traced():
    def opaque(v):
        return float(sum(float(e) ** 3 for e in v.tolist()))

    report = pb.check((opaque, lambda v: 3 * v**2), np.array([1.0, -2.0]))
    assert report.ok, report.text
    assert not pb.check((opaque, lambda v: 3 * v), np.array([1.5, -2.0])).ok


def test_kinks_by_differences():
    def opaque(v):
        return float(sum(abs(float(e)) for e in v.tolist()))

    report = pb.check((opaque, lambda v: np.sign(v)), np.array([0.0, -2.0]))
    assert report.ok, report.text
    assert report.inputs[0].verdict == "kink"
    assert not pb.check((opaque, lambda v: np.sign(v) + 3), np.array([0.0, -2.0])).ok


# -- special cases, kinks, jumps ----------------------------------------------------------------------------------------------
def test_equality_special_case():
    """The trace's slope is 0 at 1, the function's is 2."""
    report = pb.check(lambda x: np.where(x == 1.0, 1.0, x**2), 1.0)
    (found,) = report.inputs
    assert not report.ok
    assert (found.verdict, found.got, found.expected) == ("special case", 0.0, 2.0)
    assert "`x == 1`" in found.note
    assert "test_check.py" in found.note
    assert pb.check(lambda x: np.where(x == 1.0, 1.0, x**2), 1.5).ok


@pytest.mark.parametrize("case", ["K07", "K08"])
def test_literal_piecewise(case):
    """Differentiated branch by branch these are wrong at the point, at second or at first order."""
    expression, inputs = sympy_function(RECORDS[case])
    f = pb.compile(expression, inputs=inputs)
    report = pb.check(pb.grad(f) if RECORDS[case]["quantity"] == "second" else f, 0.0)
    assert not report.ok, report.text
    assert report.inputs[0].verdict == "special case"
    assert "x == 0" in report.text or "x != 0" in report.text
    assert report.inputs[0].expected == pytest.approx(RECORDS[case]["expected"][0], rel=1e-9)


def test_a_value_of_its_own():
    report = pb.check(lambda x: np.where(x == 1.0, 5.0, x), 1.0)
    assert report.inputs[0].verdict == "special case"
    assert not report.ok


def test_kinks_are_flagged():
    report = pb.check(lambda x: np.sum(np.abs(x) * np.array([1.0, 2.0])), np.array([3.0, 0.0]))
    (found,) = report.inputs
    assert report.ok
    assert (found.verdict, found.worst) == ("kink", (1,))
    assert "slopes -2 and 2" in found.note
    assert "abs(x)" in found.note
    near = pb.check(lambda x: np.maximum(x, 1.0), 1.00001)
    assert near.ok
    assert any("maximum(x, 1)" in flag for flag in near.flags)


def test_jumps_fail():
    f = pb.compile(y * sp.Heaviside(x, sp.Rational(1, 2)), inputs=[x, y])
    report = f.check(0.0, 2.0)
    assert not report.ok
    assert verdicts(report)["x"] == "jump"
    assert f.check(0.5, 2.0).ok
    assert pb.check(lambda x: np.floor(x), 2.0).inputs[0].verdict == "jump"


def test_ends_of_the_domain():
    assert pb.check(lambda x: np.sqrt(x) + x, 0.0).inputs[0].verdict == "infinite slope"
    assert pb.check(lambda x: x**1.5 + x, 0.0).inputs[0].verdict == "one-sided"
    report = pb.check(lambda x: np.log(x), -1.0)
    assert report.inputs[0].verdict == "not finite"
    assert not report.ok


def test_lost_digits():
    """Expanded, no float64 code can be right; it is not the derivative that is wrong."""
    expression, inputs = sympy_function(RECORDS["Z12"])
    report = pb.compile(expression, inputs=inputs).check(3.0, 2.0)
    for found, expected in zip(report.inputs, (25, -25), strict=True):
        assert found.verdict == "digits gone"
        assert found.expected == pytest.approx(expected, rel=1e-12)
        assert "the formula is right" in found.note
    assert "WRONG" not in report.text
    assert pb.compile((x - y) ** 25, inputs=[x, y]).check(3.0, 2.0).ok
    mild = pb.check(lambda x: (1e7 + x) ** 2 - 1e14 - x**2, 0.3)
    assert mild.ok, mild.text


def test_inputs_without_effect():
    report = pb.check(lambda a, b: a**2 + 0.0 * b, 1.5, 2.0)
    assert verdicts(report) == {"a": "ok", "b": "no effect"}
    assert "not tested" in report.text
    zero_here = pb.check(lambda a: np.sum((a - 1.0) ** 2), np.array([1.0, 1.0]))
    assert verdicts(zero_here) == {"a": "ok"}


# -- the report ---------------------------------------------------------------------------------------------------------------
def test_report_as_json():
    report = pb.check(lambda x: np.sqrt(x), 0.0)
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["ok"] is True
    assert plain["inputs"][0]["got"] == "inf"
    assert {"name", "verdict", "error", "tolerance", "worst", "line"} <= set(plain["inputs"][0])


def test_report_text():
    report = pb.check(lambda longish, b: longish * b, 1.5, 2.0)
    lines = report.text.splitlines()
    assert "derivatives verified" in lines[0]
    assert lines[2].split()[:2] == ["longish", "ok"]


# -- differences --------------------------------------------------------------------------------------------------------------
def test_slope():
    value, error = differences.slope(lambda h: np.exp(1.0 + h), 0.1)
    assert abs(value - np.e) < 1e-10
    assert error < 1e-8
    assert differences.remainder_order(lambda h: np.exp(h), 1.0, 0.1, 1e-16) == pytest.approx(2, abs=0.1)
    assert differences.remainder_order(lambda h: np.exp(h), 1.1, 0.01, 1e-16) == pytest.approx(1, abs=0.1)


# -- exact meanings -----------------------------------------------------------------------------------------------------------
def ir_of(function, *args):
    from pullback.checking.subject import trace_of
    from pullback.passes.pipeline import optimize

    return optimize(trace_of(pb.compile(function), args)[0])


def test_many_digits():
    func = ir_of(lambda x: np.sum(np.exp(x)) / 3, np.array([1.0, 2.0]))
    (found,) = evaluate(func, [np.array([1.0, 2.0])], digits=50)
    assert str(found.item()).startswith("3.36911264246323")
    exact = (sp.exp(1) + sp.exp(2)) / 3
    assert abs(sp.Float(str(found.item()), 50) - sp.N(exact, 50)) < sp.Float("1e-48")
    assert to_float(found) == float(exact)


@pytest.mark.parametrize(
    "op", [o for o in OPS.values() if isinstance(o, Elementwise) and o.domain and o.sympy], ids=lambda o: o.name
)
def test_every_op_with_many_digits(op):
    """The SymPy meaning, read over many digits and over symbols, is the NumPy meaning."""
    random = np.random.default_rng(5)
    for _, attrs in op.samples or ((None, {}),):
        args = [random.uniform(i.low, i.high, 4) for i in op.domain]
        params = [Value(f"x{k}", f64[4]) for k in range(len(args))]
        b = Builder()
        func = Func(op.name, b.close("return", b.emit(op, params, attrs), params))
        expected = op.numpy(*args, **attrs)
        np.testing.assert_allclose(to_float(evaluate(func, args)[0]), expected, rtol=1e-12)  # NumPy's own error
        lifted = lift(func)
        point = {s[0]: sp.Rational(float(a[0])) for s, a in zip(lifted.symbols, args, strict=True)}
        assert float(sp.N(lifted.expressions[0][0].subs(point), 30)) == pytest.approx(expected[0], rel=1e-12)


def test_lifted_matches_numpy():
    def f(a, B):
        c = B @ a + np.cumsum(a)
        d = np.where(c > 0.5, np.sqrt(np.abs(c)), c * a)
        return np.std(d) + np.max(d), np.concatenate([d, a[::-1]]), np.linalg.norm(B, axis=1)

    a, B = np.array([0.3, -0.8]), np.array([[1.5, 0.25], [0.75, -2.0]])
    func = ir_of(f, a, B)
    lifted = lift(func, [(2,), (2, 2)])
    point = dict(zip([s for array in lifted.symbols for s in array.ravel()], [*a, *B.ravel()], strict=True))
    for ours, theirs in zip(lifted.expressions, f(a, B), strict=True):
        found = [float(sp.sympify(e).subs(point)) for e in ours.ravel()]
        np.testing.assert_allclose(found, np.ravel(theirs), rtol=1e-13)


def test_text_and_latex():
    def f(x, y):
        q = pb.name("q", x + y)
        return np.sin(q) * 0.5 * np.pi

    func = ir_of(f, 1.0, 2.0)
    assert text(func) == "q = x + y\nreturn pi*sin(q)/2"
    assert r"\frac{\pi \sin{\left(q \right)}}{2}" in latex(func)
    vector = ir_of(lambda x: x * 2, np.array([1.0, 2.0]))
    assert text(vector) == "return [2*x_0, 2*x_1]"
    assert "x_{0}" in latex(vector)


def test_lifting_is_refused_where_it_cannot_be():
    with pytest.raises(pb.UnsupportedError, match="depends on"):
        lift(ir_of(lambda x: np.sort(x), np.array([1.0, 2.0])))
    big = ir_of(lambda x: np.sum(np.sin(x) * x), np.ones(20_000))
    with pytest.raises(pb.UnsupportedError, match="too many"):
        lift(big, [(20_000,)])
    with pytest.raises(pb.UnsupportedError, match="symbolic lengths"):
        lift(big)


def test_tree_size_of_a_deep_expression():
    e = x
    for _ in range(5000):
        e = sp.sin(e, evaluate=False)
    assert tree_size([e]) == 5001
