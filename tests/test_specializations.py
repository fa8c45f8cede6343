"""What is compiled, when, and why: one compilation for every length, guards, captured values, declared types."""

import gc
import logging
import weakref

import numpy as np
import pytest

import pullback as pb

SCALE = np.linspace(1.0, 2.0, 10)
FACTOR = 2.0


def rms(x):
    return np.sqrt(np.mean(x * x))


# -- lengths ----------------------------------------------------------------------------------------------------------
def test_one_compilation_serves_every_length_from_9():
    f = pb.compile(rms)
    rng = np.random.default_rng(0)
    for n in (9, 10, 63, 64, 65, 1000, 4097, 100_000):
        x = rng.normal(size=n)
        value, gradient = f.vjp(x, seed=-1.5)
        assert value == pytest.approx(rms(x), rel=1e-13)  # another order of summation
        np.testing.assert_allclose(gradient, -1.5 * x / (n * rms(x)), rtol=1e-12)
    assert f.cache_info().specializations == 1


def test_lengths_1_to_1000_make_at_most_ten():
    f = pb.compile(lambda x: np.sum(x * x))
    for n in range(1, 1001):
        assert f(np.full(n, -2.0)) == 4.0 * n
    assert f.cache_info().specializations <= 10


def test_two_lengths_that_must_agree():
    f = pb.compile(lambda x, y: x * y)
    f(np.ones(20), np.ones(20))
    for x, y in ((np.ones(20), np.ones(21)), (np.ones(5), np.ones(20)), (np.ones((9, 20)), np.ones((20, 9)))):
        with pytest.raises(pb.ShapeError, match="could not be broadcast"):
            f(x, y)
    assert f(np.ones(20), np.ones(1)).shape == (20,)
    assert f(np.ones((30, 1)), np.ones(20)).shape == (30, 20)
    assert f(np.ones(200), np.ones(200)).shape == (200,)
    assert f.cache_info().specializations == 3  # both long, one of length 1, two ranks


def test_axes_that_are_static_and_axes_that_are_not():
    f = pb.compile(lambda X, w: X @ w)
    for n in (9, 50, 1000):
        for p in (2, 3):
            X, w = np.ones((n, p)), np.arange(float(p))
            np.testing.assert_array_equal(f(X, w), np.full(n, p * (p - 1) / 2))
    assert f.cache_info().specializations == 2  # p = 2 and p = 3


# -- every axis a symbol ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lengths", [(0, 1, 2, 5, 40), (40, 5, 2, 1, 0), (1, 0, 3)])
def test_symbolic_serves_all_lengths_with_one_compilation(lengths):
    f = pb.compile(lambda x, y: np.sum(np.sin(x) * y) + np.prod(x.shape), symbolic=True)
    for n in lengths:
        x, y = np.linspace(-1, 2, n), np.linspace(3, 1, n)
        value, (by_x, by_y) = f.vjp(x, y, seed=-0.5)
        assert value == pytest.approx(np.sum(np.sin(x) * y) + n, rel=1e-14, abs=1e-14)
        np.testing.assert_allclose(by_x, -0.5 * np.cos(x) * y, rtol=1e-14)
        np.testing.assert_allclose(by_y, -0.5 * np.sin(x), rtol=1e-14)


def test_symbolic_still_broadcasts_as_numpy_does():
    f = pb.compile(lambda x, y: x - 2 * y, symbolic=True)
    rng = np.random.default_rng(1)
    for a, b in (
        ((4,), (4,)),
        ((1,), (4,)),
        ((4,), (1,)),
        ((1,), (1,)),
        ((0,), (1,)),
        ((1,), (0,)),
        ((3, 1), (1, 5)),
        ((2, 3), (3,)),
    ):
        x, y = rng.normal(size=a), rng.normal(size=b)
        result = f(x, y)
        np.testing.assert_array_equal(result, x - 2 * y)
        seed = rng.normal(size=result.shape)
        by_x, by_y = f.grad(x, y, seed=seed)
        assert by_x.shape == a and by_y.shape == b
        assert np.sum(by_y) == pytest.approx(-2 * np.sum(seed), abs=1e-14)
    with pytest.raises(pb.ShapeError):
        f(np.ones(0), np.ones(2))


# -- guards -----------------------------------------------------------------------------------------------------------
def test_a_slice_that_clamps_is_traced_anew():
    f = pb.compile(lambda x: np.sum(x[20:]))
    for n in (30, 25, 20, 15, 21, 100):
        x = np.arange(float(n))
        value, gradient = f.vjp(x, seed=-1.0)
        assert value == np.sum(x[20:])
        np.testing.assert_array_equal(gradient, np.where(np.arange(n) >= 20, -1.0, 0.0))
    assert f.cache_info().specializations <= 3


def test_a_branch_on_a_length_is_a_guard():
    def f(x):
        if x.shape[0] > 30:
            return np.sum(x)
        return np.sum(x * x)

    f = pb.compile(f)
    for n in (20, 40, 30, 31, 9, 200):
        x = np.full(n, -2.0)
        assert f(x) == (-2.0 * n if n > 30 else 4.0 * n)
        np.testing.assert_array_equal(f.grad(x), np.full(n, 1.0 if n > 30 else -4.0))
    info = f.cache_info()
    assert info.specializations == 2
    assert "a guard of the others fails" in info.reasons[1]
    assert "where" in info.reasons[0]


def test_int_of_a_length_binds_the_trace_to_it():
    f = pb.compile(lambda x: np.sum(x) * float("1" * int(x.shape[0])))
    assert f(np.ones(9)) == 9 * 111111111.0
    assert f(np.ones(10)) == 10 * 1111111111.0
    assert f(np.ones(9)) == 9 * 111111111.0
    assert f.cache_info().specializations == 2


# -- captured values --------------------------------------------------------------------------------------------------
def test_captured_arrays_are_read_at_every_call(monkeypatch):
    f = pb.compile(lambda x: np.sum(SCALE * x))
    x = np.linspace(-1.0, 3.0, 10)
    assert f(x) == pytest.approx(np.sum(SCALE * x), rel=1e-14)
    monkeypatch.setitem(globals(), "SCALE", -SCALE)
    np.testing.assert_array_equal(f.grad(x), SCALE)
    changed = SCALE
    changed[3] = 40.0  # in place
    np.testing.assert_array_equal(f.grad(x), changed)
    assert f.cache_info().specializations == 1
    monkeypatch.setitem(globals(), "SCALE", np.float32(2.0) * np.ones(10, np.float32))
    assert f(x) == pytest.approx(2 * np.sum(x), rel=1e-14)
    assert f.cache_info().specializations == 2


def test_captured_numbers_are_guards(monkeypatch):
    f = pb.compile(lambda x: FACTOR * x)
    assert f(3.0) == 6.0
    monkeypatch.setitem(globals(), "FACTOR", -1.0)
    assert f(3.0) == -3.0 and f.grad(3.0) == -1.0
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert f(3.0) == 6.0
    assert f.cache_info().specializations == 2


def test_a_derived_function_sees_the_captured_values_of_now(monkeypatch):
    gradient = pb.grad(lambda x: np.sum(SCALE * x * x) * FACTOR)
    x = np.linspace(-1.0, 3.0, 10)
    np.testing.assert_allclose(gradient(x), 2 * SCALE * x * FACTOR, rtol=1e-14)
    monkeypatch.setitem(globals(), "FACTOR", -3.0)
    monkeypatch.setitem(globals(), "SCALE", SCALE + 1.0)
    np.testing.assert_allclose(gradient(x), 2 * SCALE * x * FACTOR, rtol=1e-14)


def test_one_compiled_function_within_another():
    inner = pb.compile(lambda x, s: np.sum(x * SCALE) * s)
    outer = pb.compile(lambda x, s: inner(x, s=s) ** 2 - inner(2.0 * x, 1.0))
    x = np.linspace(-1.0, 1.5, 10)
    total = np.sum(x * SCALE)
    value, (by_x, by_s) = outer.vjp(x, -0.5, seed=-2.0)
    assert value == pytest.approx((total * 0.5) ** 2 - 2 * total, rel=1e-13)
    np.testing.assert_allclose(by_x, -2.0 * (2 * 0.25 * total * SCALE - 2 * SCALE), rtol=1e-12)
    assert by_s == pytest.approx(-2.0 * 2 * -0.5 * total**2, rel=1e-13)
    assert inner.cache_info().specializations == 0  # it became part of the other


# -- what is told -----------------------------------------------------------------------------------------------------
def test_cache_info_says_why():
    f = pb.compile(lambda x, k: np.sum(x) * k)
    f(np.ones((12, 3)), 2.0)
    f(np.ones(3, np.float32), np.float64(2.0))
    info = f.cache_info()
    assert info.specializations == 2
    assert info.reasons[0].startswith("function(x: f64[?, 3], k: f64 (Python number)): new argument types; ")
    assert info.reasons[1].startswith("function(x: f32[3], k: f64): new argument types; ")


def test_each_compilation_is_logged_when_asked_for(monkeypatch, caplog):
    monkeypatch.setenv("PULLBACK_LOG", "compile")
    f = pb.compile(lambda x: 2 * x)
    with caplog.at_level(logging.WARNING, "pullback"):
        f(1.0)
        f(1.0)
        f(np.ones(3))
    assert [r.getMessage().partition(";")[0] for r in caplog.records] == [
        "compiled function(x: f64 (Python number)): new argument types",
        "compiled function(x: f64[3]): new argument types",
    ]
    monkeypatch.delenv("PULLBACK_LOG")
    f(np.ones(4))
    assert len(caplog.records) == 2


# -- declared types ---------------------------------------------------------------------------------------------------
def test_annotations_compile_ahead_of_data():
    @pb.compile
    def loss(w: pb.f64["p"], X: pb.f64["n", "p"], y: pb.f64["n"]):
        return np.sum((X @ w - y) ** 2)

    assert loss.specialize() is loss
    assert loss.cache_info().specializations == 1
    rng = np.random.default_rng(2)
    for n, p in ((40, 12), (1, 1), (3, 2), (0, 3), (9, 20)):
        w, X, y = rng.normal(size=p), rng.normal(size=(n, p)), rng.normal(size=n)
        value, gradient = loss.value_and_grad(w, X, y, wrt="w")
        r = X @ w - y
        assert value == pytest.approx(r @ r, rel=1e-12, abs=1e-14)
        np.testing.assert_allclose(gradient, 2 * r @ X, rtol=1e-11, atol=1e-13)
    assert loss.cache_info().specializations == 1
    with pytest.raises(pb.ShapeError) as error:
        loss(np.ones(3), np.ones((4, 2)), np.ones(4))
    assert str(error.value) == "X is declared as f64[n, p]: axis 1 has length 2, 3 expected (p is 3 by w)"
    with pytest.raises(pb.ShapeError) as error:
        loss(np.ones(2), np.ones(4), np.ones(4))
    assert str(error.value) == "X is declared as f64[n, p], got an array of shape (4,)"
    with pytest.raises(pb.DTypeError, match="w has the element type complex128"):
        loss(np.ones(2, dtype=complex), np.ones((4, 2)), np.ones(4))
    assert loss(np.ones(2, int), np.ones((4, 2), np.float32), np.ones(4)) == 4.0  # widened, which loses nothing


def test_declared_trees():
    @pb.compile
    def f(p: {"w": pb.f64["n"], "b": pb.f64}, x: (pb.f64["n"], pb.f64["n"])):
        return np.sum(p["w"] * x[0] - x[1]) + p["b"]

    f.specialize()
    x = np.arange(3.0), np.ones(3)
    value, gradient = f.value_and_grad({"w": np.array([1.0, -2.0, 3.0]), "b": 4}, x, wrt="p")
    assert value == 4.0 - 3.0 + 4.0
    np.testing.assert_array_equal(gradient["w"], x[0])
    assert gradient["b"] == 1.0
    assert f.cache_info().specializations == 1
    with pytest.raises((TypeError, pb.ShapeError)):
        f({"w": np.ones(3)}, x)


def test_specialize_with_types_and_examples():
    f = pb.compile(lambda X, s: np.sum(X, axis=0) * s)
    f.specialize(pb.f64["n", 3], pb.f64)
    assert f.cache_info().specializations == 1
    for n in (0, 1, 2, 100):
        np.testing.assert_array_equal(f(np.ones((n, 3)), np.float64(-2.0)), np.full(3, -2.0 * n))
    assert f.cache_info().specializations == 1
    f.specialize(np.ones((4, 5)), 2.0)
    assert f.cache_info().specializations == 2


def test_a_declared_length_never_broadcasts():
    @pb.compile
    def f(x: pb.f64["n"], y: pb.f64["m"]):
        return np.sum(x) * np.sum(y)

    assert f(np.ones(1), np.ones(4)) == 4.0

    @pb.compile
    def g(x: pb.f64["n"], y: pb.f64["n"]):
        return x + y

    with pytest.raises(pb.ShapeError, match="y is declared as"):
        g(np.ones(1), np.ones(4))


# -- bounds -----------------------------------------------------------------------------------------------------------
def test_functions_that_nobody_holds_are_freed():
    alive = []
    for k in range(5):
        f = pb.compile(lambda x, k=k: np.sum(x * x))
        pb.grad(f)(np.ones(3), k)
        alive.append(weakref.ref(f))
        del f
    gc.collect()
    assert not any(ref() for ref in alive)


def test_the_specializations_of_a_function_are_bounded():
    from pullback_runtime.specializations import KEPT

    f = pb.compile(lambda x, n: x)
    kept = f._specializations
    made = {}

    class Fake:
        def __init__(self, key):
            self.key = key

        def describe(self):
            return ""

    class Arguments:
        def __init__(self, key):
            self.key = key

        def kinds(self):
            return []

    kept._paths = lambda arguments: []  # reasons are not what is tested
    for k in range(KEPT + 20):
        with kept._lock:
            kept._keep(Arguments(k), Fake(k), "test")
        made[k] = True
    assert len(kept._found) == KEPT and len(kept._order) == KEPT and len(f.cache_info().reasons) <= KEPT
    assert f.cache_info().specializations == KEPT + 20
