"""Many threads that call, compile and differentiate at once: no crash, the same bits as one thread gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb

THREADS = 16


def together(work: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all, started at the same moment; the first error is raised."""
    barrier = threading.Barrier(len(work))
    results: list[Any] = [None] * len(work)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        barrier.wait()
        try:
            results[k] = work[k]()
        except BaseException as error:  # whatever it is belongs to the test, not to the thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def loss(w, X, y):
    z = X @ w
    return np.mean(np.log1p(np.exp(-y * z))) + 0.01 * np.sum(w * w)


def data(n: int, p: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.normal(size=p), rng.normal(size=(n, p)), np.sign(rng.normal(size=n))


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, also within tuples."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_first_calls_of_one_function():
    f = pb.compile(loss)
    arguments = data(60)
    results = together([lambda: f(*arguments)] * THREADS)
    assert all(same(r, results[0]) for r in results)
    assert f.cache_info().specializations == 1


def test_first_gradients_of_one_function():
    f, alone = pb.compile(loss), pb.compile(loss)
    arguments = data(61)
    expected = alone.vjp(*arguments, seed=-1.5, wrt=("w", "X"))
    results = together([lambda: f.vjp(*arguments, seed=-1.5, wrt=("w", "X"))] * THREADS)
    assert all(same(r, expected) for r in results)
    assert f.cache_info().specializations == 1


def test_first_calls_with_different_types_and_lengths():
    f, alone = pb.compile(loss), pb.compile(loss)
    cases = [data(n, p) for n in (1, 3, 9, 200) for p in (2, 5, 12)]
    cases += [tuple(a.astype(np.float32) for a in data(n)) for n in (1, 9, 40, 200)]
    expected = [alone.value_and_grad(*case, wrt="w") for case in cases]
    results = together([lambda case=case: f.value_and_grad(*case, wrt="w") for case in cases])
    assert all(map(same, results, expected))
    assert f.cache_info().specializations == alone.cache_info().specializations


def test_first_calls_of_different_functions():
    factors = [-1.25 + 0.375 * k for k in range(THREADS)]
    functions = [pb.compile(lambda x, a=a: np.sum(np.sin(a * x) * x)) for a in factors]
    x = np.linspace(-2.0, 3.0, 33)
    results = together([lambda f=f, a=a: f.vjp(x, a, wrt=0) for f, a in zip(functions, factors, strict=True)])
    for (value, gradient), a in zip(results, factors, strict=True):
        assert value == pytest.approx(np.sum(np.sin(a * x) * x), rel=1e-13)  # a few roundings of 33 terms
        np.testing.assert_allclose(gradient, np.sin(a * x) + a * x * np.cos(a * x), rtol=1e-13, atol=1e-14)


def test_every_kind_of_derivative_at_once():
    f, alone = pb.compile(loss), pb.compile(loss)
    w, X, y = data(44)
    v = np.linspace(-1.0, 2.0, w.size)
    work: list[Callable[[Any], Any]] = [
        lambda f: f(w, X, y),
        lambda f: f.grad(w, X, y, wrt="w"),
        lambda f: f.jvp(w, X, y, tangents={"w": v}),
        lambda f: f.hvp(w, X, y, vector=v, wrt="w"),
        lambda f: f.pullback(w, X, y, wrt="X")[1](-0.75),
        lambda f: f.hessian(w, X, y, wrt="w"),
        lambda f: pb.grad(f, wrt="w")(w, X, y),
        lambda f: f.ir("adjoint", w, X, y),
    ]
    expected = [one(alone) for one in work]
    results = together([lambda one=one: one(f) for one in work * 2])
    assert [r for r in results if isinstance(r, str)] == [expected[-1]] * 2
    numbers = [k for k, r in enumerate(results) if not isinstance(r, str)]
    assert all(same(results[k], expected[k % len(work)]) for k in numbers)


def test_one_derived_function_is_made():
    f = pb.compile(lambda x: np.sum(x**3))
    assert len({id(made) for made in together([lambda: pb.grad(f)] * THREADS)}) == 1
    x = np.linspace(-1.0, 1.0, 12)
    second = together([lambda: pb.grad(lambda x: np.sum(f.grad(x) * x))(x)] * 4)
    assert all(same(r, second[0]) for r in second)
    np.testing.assert_allclose(second[0], 9 * x**2, rtol=1e-14)


def test_warm_calls_interfere_with_nobody():
    """Frames and workspaces are of one call: threads with their own data get their own answers, many times over."""
    f = pb.compile(loss)
    cases = [data(30 + 7 * k) for k in range(THREADS)]
    expected = [f.vjp(*case, seed=2.5) for case in cases]

    def repeat(case: Any, expected: Any) -> bool:
        return all(same(f.vjp(*case, seed=2.5), expected) for _ in range(40))

    assert all(together([lambda c=c, e=e: repeat(c, e) for c, e in zip(cases, expected, strict=True)]))


def test_captured_arrays_that_change_between_calls():
    scale = np.linspace(1.0, 2.0, 10)

    def scaled(x):
        return np.sum(scale * x)

    f = pb.compile(scaled)
    x = np.linspace(-3.0, 1.0, 10)
    for factor in (1.0, -0.5, 4.0):
        scale[:] = factor * np.linspace(1.0, 2.0, 10)
        expected = np.sum(scale * x)
        for value, gradient in together([lambda: f.vjp(x, seed=-2.0)] * THREADS):
            assert value == pytest.approx(expected, rel=1e-14)
            np.testing.assert_array_equal(gradient, -2.0 * scale)


def test_errors_reach_the_thread_that_made_them():
    f = pb.compile(lambda x, y: x * y)

    def wrong() -> str:
        with pytest.raises(pb.ShapeError) as error:
            f(np.arange(10.0), np.arange(11.0))
        return str(error.value)

    def right() -> Any:
        return f(np.arange(10.0), np.full(10, -2.0))

    results = together([wrong, right] * (THREADS // 2))
    assert len(set(results[::2])) == 1
    assert all(same(r, -2.0 * np.arange(10.0)) for r in results[1::2])


def test_one_pull_in_many_threads():
    f = pb.compile(lambda A, x: A @ x)
    rng = np.random.default_rng(3)
    A, x = rng.normal(size=(11, 12)), rng.normal(size=12)
    _, pull = f.pullback(A, x)
    seeds = [rng.normal(size=11) for _ in range(THREADS)]
    for seed, (A_grad, x_grad) in zip(seeds, together([lambda s=s: pull(s) for s in seeds]), strict=True):
        np.testing.assert_array_equal(A_grad, np.outer(seed, x))
        np.testing.assert_allclose(x_grad, A.T @ seed, rtol=1e-13, atol=1e-14)  # another order of summation


def test_variables_of_their_own_in_each_thread():
    f = pb.compile(lambda x: np.sum(x * x * x))

    def step(k: int) -> np.ndarray:
        x = pb.variable(np.arange(12.0) - k)
        for _ in range(3):
            f(x).backward(-0.5)
        return x.grad

    for k, gradient in enumerate(together([lambda k=k: step(k) for k in range(THREADS)])):
        np.testing.assert_array_equal(gradient, -4.5 * (np.arange(12.0) - k) ** 2)
