"""Calls like one before take a short way; it must give what the long way gives, and notice whatever has changed."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback_runtime import repeat

X = np.linspace(-1.0, 2.0, 10)


def test_repeated_calls_give_the_same_bits():
    f = pb.compile(lambda x, y: (np.sum(np.sin(x) * y), x - y))
    rng = np.random.default_rng(0)
    for n in (3, 20):
        for _ in range(3):
            x, y = rng.normal(size=n), rng.normal(size=n)
            fresh = pb.compile(lambda x, y: (np.sum(np.sin(x) * y), x - y))
            for a, b in zip(f(x, y), fresh(x, y), strict=True):
                np.testing.assert_array_equal(a, b)
    assert len(f._repeats) == 2


@pytest.mark.parametrize("seed", [None, -1.5, 2, np.float64(3.0), np.array(0.5), np.float32(-2.0), np.array([2.0]), True])
@pytest.mark.parametrize("wrt", [None, "x", 0, ("x",), ("y", "x"), ["y"]])
def test_repeated_gradients(seed, wrt):
    f = pb.compile(lambda x, y: np.sum(x * x) * y)
    for y in (0.5, -3.0):
        for x in (X, -2 * X):
            value, found = f.vjp(x, y, seed=seed, wrt=wrt)
            alone = f.grad(x, y, seed=seed, wrt=wrt)
            s = 1.0 if seed is None else float(np.reshape(seed, ()))
            parts = {"x": 2 * x * y * s, "y": np.sum(x * x) * s}
            names = ("x", "y") if wrt is None else ("x",) if wrt in ("x", 0) else wrt
            expected = [parts[name] for name in names]
            assert value == pytest.approx(np.sum(x * x) * y, rel=1e-14)
            for gradients in (found, alone):
                single = wrt in ("x", 0)
                assert isinstance(gradients, tuple) is not single
                for a, b in zip((gradients,) if single else gradients, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-14)


def test_repeated_seeds_of_arrays():
    f = pb.compile(lambda x: 3.0 * x)
    for seed in (X, -X, X.astype(np.float32), 2.0, X[::-1], np.asfortranarray(X)):
        for _ in range(2):
            np.testing.assert_array_equal(f.grad(X, seed=seed), np.broadcast_to(3.0 * np.asarray(seed, float), 10))
    for _ in range(2):
        with pytest.raises(pb.SeedError, match="seed has shape"):
            f.grad(X, seed=np.ones(11))
        with pytest.raises(pb.SeedError, match="must be given"):
            f.grad(X)


def test_errors_are_not_forgotten():
    f = pb.compile(lambda x, n: (np.sum(x) * n, n > 2))
    for _ in range(2):
        assert f(X, 4)[0] == pytest.approx(4 * np.sum(X), rel=1e-14)
        assert f.grad(X, 4, wrt="x", seed=None)[0] == 4.0
        with pytest.raises(pb.SeedError, match="value_and_grad takes a function with one scalar output"):
            f.value_and_grad(X, 4, wrt="x")
        with pytest.raises(pb.DTypeError, match="does not fit 64 bits"):
            f(X, 2**63)
        with pytest.raises(TypeError):
            f(X)


def test_numbers_of_other_types_are_other_calls():
    f = pb.compile(lambda x, s: x * s)
    x = np.ones(9, np.float32)
    for _ in range(2):
        assert f(x, 2).dtype == f(x, 2.0).dtype == f(x, True).dtype == np.float32
        assert f(x, np.float64(2.0)).dtype == np.float64
        assert type(f(2, 3)) is float and type(f(2.0, 3)) is float


def test_what_is_captured_is_looked_at(monkeypatch):
    space = {"np": np, "W": X.copy(), "K": 2.0}
    exec("def g(x): return np.sum(W * x) * K", space)
    f = pb.compile(space["g"])
    v = np.linspace(1.0, -3.0, 10)

    def check():
        expected = space["W"] * space["K"] * np.ones(10)
        for _ in range(2):
            assert f(v) == pytest.approx(np.sum(expected * v), rel=1e-13)
            np.testing.assert_allclose(f.grad(v), expected, rtol=1e-14)

    check()
    space["W"][4] = -7.0
    check()
    space["K"] = -0.25
    check()
    space["W"] = np.float32(0.5) * np.ones(10, np.float32)
    check()
    space["W"] = np.array([3.0])
    check()
    space["W"] = X[::-1]
    check()
    space["K"], space["W"] = 2.0, X.copy()
    check()


def test_results_are_new_at_every_call():
    f = pb.compile(lambda x: 2 * x)
    first, second = f(X), f(X)
    assert not np.shares_memory(first, second)
    a, b = f.grad(X, seed=X), f.grad(X, seed=X)
    assert not np.shares_memory(a, b)


def test_containers_are_part_of_what_is_alike():
    f = pb.compile(lambda p: p["a"] * p["b"] if isinstance(p, dict) else p[0] - p[1])
    for _ in range(2):
        assert f.vjp({"a": 3.0, "b": 2.0}, seed=-1.0) == (6.0, {"a": -2.0, "b": -3.0})
        assert f.vjp({"b": 2.0, "a": 5.0}, seed=-1.0) == (10.0, {"b": -5.0, "a": -2.0})
        assert f.vjp((3.0, 2.0), seed=2.0) == (1.0, (2.0, -2.0))
        assert f.vjp([3.0, 2.0], seed=2.0) == (1.0, [2.0, -2.0])
        assert f.grad({"a": 2 * X, "b": 3}, seed=X)["b"] == 0
        with pytest.raises(KeyError):
            f({"a": 3.0, "c": 2.0})


def test_integers_within_a_container_are_not_shared():
    f = pb.compile(lambda p: np.sum(p["x"][p["i"]]))
    p = {"x": X, "i": np.array([1, 1, 2])}
    first, second = f.grad(p), f.grad(p)
    first["i"][:] = 7
    assert second["i"].tolist() == f.grad(p)["i"].tolist() == [0, 0, 0]


def test_structured_seeds_in_another_order():
    f = pb.compile(lambda x: {"a": 2 * x, "b": x * x})
    for k in (1.0, -3.0):
        for _ in range(2):
            np.testing.assert_allclose(f.grad(X, seed={"a": k * X, "b": 1 + X}), 2 * k * X + 2 * X * (1 + X), rtol=1e-14)
            np.testing.assert_allclose(f.grad(X, seed={"b": 1 + X, "a": k * X}), 2 * k * X + 2 * X * (1 + X), rtol=1e-14)
            np.testing.assert_allclose(f.grad(X, seed={"b": k * X}), 2 * k * X * X, rtol=1e-14)
            np.testing.assert_allclose(f.grad(X, seed={"b": None, "a": X}), 2 * X, rtol=1e-14)
    g = pb.compile(lambda x: {"a": 2 * x, "b": x * x})
    for a, b in ((1.0, 1.0), (-2.0, 5.0)):
        assert g.grad(3.0, seed={"b": b, "a": a}) == 2 * a + 6 * b


def test_calls_within_a_trace_are_not_short():
    inner = pb.compile(lambda x: np.float64(2.0) * x)
    inner(3.0)
    outer = pb.compile(lambda y: inner(3.0) * y)
    assert outer(np.ones(9, np.float32)).dtype == np.float64
    assert inner(pb.variable(3.0)).value == 6.0


def test_what_is_remembered_is_bounded():
    f = pb.compile(lambda x: np.sum(x))
    for n in range(10, 20 + 2 * repeat.MOST):
        assert f(np.ones(n)) == n
    assert len(f._repeats) <= repeat.MOST
