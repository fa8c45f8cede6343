"""The behaviour cases: what must happen, rather than a number. Named by the case's id in ``data/cases.jsonl``.

Some have a test elsewhere: Z10, Z12 (test_check.py), Z29 (test_threads.py), Z34 (test_sympy.py).
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from scipy.optimize import minimize

import pullback as pb
from tests.cases import RECORDS, arguments, python_function


def case(name):
    return pb.compile(python_function(RECORDS[name])), arguments(RECORDS[name])


def square(x):
    return x**2


def test_z01_missing_seed():
    f, args = case("Z01")
    with pytest.raises(pb.SeedError, match=r"(?s)\(2,\).*seed="):
        f.vjp(*args)
    assert f.grad(*args, seed=1.0).tolist() == [2.0, 4.0]


def test_z02_seed_shapes():
    f, args = case("Z02")
    with pytest.raises(ValueError, match=r"(?s)\(3,\).*\(2,\)|\(2,\).*\(3,\)"):
        f.vjp(*args, seed=[1.0, 1.0, 1.0])
    assert f.grad(*args, seed=np.array([1, -2], np.float32)).dtype == np.float64


def test_z05_gradient_dtype():
    f, _ = case("Z05")
    value, gradient = f.vjp(np.array([1.0, 2.0], np.float32), seed=1.0)
    assert gradient.dtype == np.float32
    assert np.asarray(value).dtype == np.float32
    assert gradient.tolist() == [np.float32(0.2)] * 2


def test_z06_scipy():
    def well(x, c):
        return np.sum((x - c) ** 2)

    value, gradient = pb.value_and_grad(well, wrt="x")(np.zeros(3), np.arange(3.0))
    assert type(value) is float
    assert (gradient.dtype, gradient.ndim, gradient.flags.c_contiguous) == (np.float64, 1, True)
    found = minimize(pb.value_and_grad(well, wrt="x"), np.zeros(3), args=(np.arange(3.0),), jac=True)
    np.testing.assert_allclose(found.x, [0, 1, 2], atol=1e-6)  # the optimiser's tolerance


def test_z07_gradient_shapes():
    f, _ = case("Z07")
    for shape in ((), (1,), (1, 1), (2, 1), (3,), (0,), (2, 0)):
        x = np.ones(shape)
        assert np.shape(f.grad(x, seed=1.0)) == shape


def test_z08_float32_is_checked_in_float64():
    f, args = case("Z08")
    report = f.check(args[0].astype(np.float32))
    assert report.ok, report.text


def test_z11_early_exit():
    """A trace that froze the exit must not pass for the function."""
    f, args = case("Z11")
    gradient = f.grad(*args)
    assert np.allclose(gradient, [0, 6, 0]) or not f.check(*args).ok


def test_z15_same_bits():
    f, _ = case("Z15")
    x = np.random.default_rng(0).normal(size=1000) * 1.1
    first = f.vjp(x)
    for _ in range(3):
        again = f.vjp(x)
        assert np.asarray(again[0]).tobytes() == np.asarray(first[0]).tobytes()
        assert again[1].tobytes() == first[1].tobytes()


def test_z16_nan_in_nan_out():
    f, args = case("Z16")
    value, gradient = f.vjp(*args, seed=1.0)
    assert np.isnan(value)
    assert np.isnan(pb.compile(lambda x: np.sin(x) * x).grad(np.nan))
    assert np.isnan(pb.compile(lambda x: np.sign(x))(np.nan))
    assert np.isnan(gradient) or gradient == 1.0  # of x + floor(x), where the slope of both is known


def test_z17_nan_questions():
    f, args = case("Z17")
    value, gradient = f.vjp(*args, seed=[1.0, 1.0])
    assert value.tolist() == [0.0, 2.0]
    assert gradient.tolist() == [0.0, 1.0]


def test_z21_a_branch_on_a_traced_value():
    @pb.compile
    def f(x):
        if x > 0:
            return x**2
        return -3 * x

    for x, value, slope in ((2.0, 4.0, 4.0), (-2.0, 6.0, -3.0), (0.0, 0.0, -3.0)):
        assert f.vjp(x, seed=-0.5) == (value, -0.5 * slope)
    assert f.cache_info().specializations == 1  # both ways are in the code


def test_z23_lengths_share_compilations():
    f, _ = case("Z23")
    for n in range(1, 1001, 7):
        x = np.full(n, 0.5)
        assert f(x) == pytest.approx(n * np.sin(0.5), rel=1e-12)
    assert f.cache_info().specializations <= 10


def test_z24_reasons_for_compiling():
    f = pb.compile(square)
    f(1.0)
    f(2.0)
    assert f.cache_info().specializations == 1
    f(np.ones(3))
    info = f.cache_info()
    assert info.specializations == 2
    assert len(info.reasons) == 2
    assert all("square" in reason for reason in info.reasons)


def test_z25_long_unrolled_loop():
    f, args = case("Z25")
    start = time.process_time()
    f.vjp(*args, seed=-1.0)
    assert time.process_time() - start < 10  # about 2 s, with the verifier after every pass
    s, slope = args[0], 1.0
    for i in range(2000):
        slope *= np.cos(s)
        s = np.sin(s) + 0.001 * i
    value, gradient = f.vjp(*args, seed=-1.0)
    assert value == pytest.approx(s, rel=1e-12)
    assert gradient == pytest.approx(-slope, rel=1e-9, abs=1e-300)  # a product of 2000 cosines


def test_z30_pickle():
    try:
        again = pickle.loads(pickle.dumps(COMPILED))
    except TypeError as error:
        assert "pickled" in str(error)
    else:
        assert again.grad(3.0) == 6.0


COMPILED = pb.compile(square)


def test_z36_arg_of_an_imaginary():
    x = sp.Symbol("x")
    with pytest.raises(pb.UnsupportedError, match="real"):
        pb.compile(sp.arg(sp.I * x), inputs=[x])


def test_z37_complex_input():
    with pytest.raises(pb.PullbackError, match="complex"):
        pb.compile(square)(np.array([1 + 2j]))
    with pytest.raises(pb.PullbackError, match="complex"):
        pb.compile(lambda x: x * 1j)(1.0)


def test_z38_several_outputs():
    def f(x):
        return np.sum(x), (x**2, {"first": x[0]})

    g = pb.compile(f)
    x = np.array([1.0, 2.0, 3.0])
    value = g(x)
    assert [np.shape(value[0]), value[1][0].shape, np.shape(value[1][1]["first"])] == [(), (3,), ()]
    gradient = g.grad(x, seed=(2.0, ([1.0, 0.0, -1.0], {"first": 10.0})))
    assert gradient.tolist() == [2 + 2 + 10, 2, 2 - 6]


def test_z39_broadcasting_symbols():
    x, y = sp.symbols("x y")
    f = pb.compile(x * y + 1, inputs=[x, y])
    found = f(np.array([1.0, 2.0]), 3.0)
    assert (found.dtype, found.tolist()) == (np.float64, [4.0, 7.0])
    assert f(np.ones((2, 1)), np.ones(3)).shape == (2, 3)


def test_z40_unsupported_operation():
    def f(x):
        return np.fft.fft(x)

    with pytest.raises(NotImplementedError, match=r"(?s)fft.*test_behaviours\.py:\d+"):
        pb.compile(f)(np.ones(4))


def test_z41_views():
    f, args = case("Z41")
    before = [a.copy() for a in args]
    gradient = f.grad(*args, seed=1.0)
    assert gradient.tolist() == [31.0, 20.0, 100.0]
    for a, b in zip(args, before, strict=True):
        assert a.tolist() == b.tolist()


def test_z45_ties_in_the_median():
    f, args = case("Z45")
    assert np.sum(f.grad(*args)) == 1.0
    assert f(*args) == np.median(args[0])


def test_z47_infinite_slopes_stay_where_they_are():
    f, args = case("Z47")
    gx, gy = f.grad(*args)
    assert gx == 0.0
    assert gy == np.inf


def test_z50_source_lines():
    def f(weight, bias):
        scaled = pb.name("scaled", weight * 2)
        return scaled + bias

    text = pb.compile(f).ir("primal", 1.0, 2.0)
    assert "%weight" in text
    assert "%bias" in text
    made = pb.compile(f).specialization(1.0, 2.0)
    assert Path(made.traced.func.body[1].loc.file).name == "test_behaviours.py"
    assert "scaled" in dict(made.traced.func.names)
