"""Loops that threads share: Note [Chunks] in ``loops/chunks.py``, Note [Teams] in ``pullback_runtime/team.py``."""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import pullback as pb
from pullback.llvm import Options, compile, compile_kernel
from pullback.loops import chunks
from pullback.loops.lower import lower
from pullback.loops.text import print_program
from pullback.passes.pipeline import differentiate, optimize
from pullback_runtime import team
from tests.array_programs import array_program
from tests.numpy_tracing import trace
from tests.programs import random_program
from tests.test_bands import inputs, logistic, shifted, softmax, standardized

RNG = np.random.default_rng(5)
THREADS = ("1", "2", "3", "7")


@pytest.fixture
def small(monkeypatch):
    """Loops of a few trips are cut, so that little programs show what large ones do."""
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    monkeypatch.setattr(compile, "_cache", type(compile._cache)())
    for name, value in (("GRAIN", 2), ("MOST", 5), ("FEWER", 3), ("ROUND", 1), ("COPIED", 0), ("WORTH", 2)):
        monkeypatch.setattr(chunks, name, value)


def tanh_sum(x, a):
    return np.sum(np.tanh(a * x) ** 2 / (1 + x * x))


def columns(X, w):
    return np.sum(np.sin(X) @ w) + np.max(X * 0.5) - np.min(X) + np.prod(1 + 1e-7 * X)


def outer(x, y):
    return np.exp(-np.abs(x[:, None] - y)) + np.sum(x) * y


def moved(x, k):
    """A gather, whose adjoint adds to places of the data's choosing: that loop stays whole."""
    return np.sum(np.cos(x[k]) * x[k])


CASES = {
    "tanh_sum": (tanh_sum, (RNG.normal(size=400_001), 0.7)),
    "columns": (columns, (RNG.normal(size=(99_001, 7)), RNG.normal(size=7))),
    "logistic": (logistic, inputs(logistic, 90_003, 30)),
    "softmax": (softmax, inputs(softmax, 120_003, 12)),
    "standardized": (standardized, inputs(standardized, 59_001, 70)),
    "shifted": (shifted, inputs(shifted, 99_001, 12)),
    "moved": (moved, (RNG.normal(size=40_000), RNG.integers(0, 40_000, 90_000))),
    "single precision": (tanh_sum, (RNG.normal(size=400_001).astype("f4"), np.float32(0.7))),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_with_any_number_of_threads(name, monkeypatch):
    f, args = CASES[name]
    wrt = [k for k, a in enumerate(args) if np.asarray(a).dtype.kind == "f"]
    names = [f.__code__.co_varnames[k] for k in wrt]
    alone = pb.compile(f).value_and_grad(*args, wrt=names)
    function = pb.compile(f, parallel=True)
    found = []
    for count in THREADS:
        monkeypatch.setenv("PULLBACK_THREADS", count)
        found.append(function.value_and_grad(*args, wrt=names))
    tolerance = 1e-4 if np.asarray(args[0]).dtype == np.float32 else 1e-11
    for value, gradients in found:
        np.testing.assert_allclose(value, alone[0], rtol=tolerance)
        assert value == found[0][0]
        for gradient, first, other in zip(gradients, found[0][1], alone[1], strict=True):
            assert np.array_equal(gradient, first)
            np.testing.assert_allclose(gradient, other, rtol=tolerance, atol=tolerance)


def test_values_that_are_arrays():
    x, y = RNG.normal(size=300), RNG.normal(size=401)
    f = pb.compile(outer, parallel=True)
    np.testing.assert_allclose(f(x, y), outer(x, y), rtol=1e-12, atol=1e-14)
    seed = RNG.normal(size=(300, 401))
    for got, expected in zip(f.vjp(x, y, seed=seed)[1], pb.compile(outer).vjp(x, y, seed=seed)[1], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_derivatives_stay_parallel():
    """What is derived from a Function has its options."""
    f = pb.compile(tanh_sum, parallel=True)
    assert pb.grad(f).options.parallel and pb.value_and_grad(f).options.parallel
    x = RNG.normal(size=400_001)
    pb.grad(f)(x, 0.7)
    assert "in any order" in f.ir("loops", x, 0.7) + pb.grad(f).ir("loops", x, 0.7)


def _kernels_agree(func, args):
    """The same results with and without chunks, of a function and its adjoint."""
    func = optimize(func)
    reverse = differentiate(func, func.params)
    plain, cut = compile_kernel(func), compile_kernel(func, Options(parallel=True))
    expected, got = plain(args), cut(args)
    seeds = [np.asarray(RNG.normal(size=np.shape(r))) for r in expected]
    expected += compile_kernel(reverse)([*args, *seeds])
    got += compile_kernel(reverse, Options(parallel=True))([*args, *seeds])
    for a, b in zip(got, expected, strict=True):
        scale = 1 + np.max(np.abs(b), initial=0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * scale)
    return cut.signature.parallel


@pytest.mark.parametrize("part", range(4))
def test_generated_programs(part, small, monkeypatch):
    monkeypatch.setenv("PULLBACK_THREADS", "3")
    some = 0
    for seed in range(6 * part, 6 * part + 6):
        some += _kernels_agree(*random_program(np.random.default_rng(seed), n=19))
    assert some


def test_lengths_around_chunks(small, monkeypatch):
    monkeypatch.setenv("PULLBACK_THREADS", "2")
    f, g = pb.compile(columns, parallel=True, symbolic=True), pb.compile(columns, symbolic=True)
    for n in (*range(1, 40), 1023, 1024, 1025):
        X, w = RNG.normal(size=(n, 3)), RNG.normal(size=3)
        (value, gradients), (other, others) = f.value_and_grad(X, w), g.value_and_grad(X, w)
        np.testing.assert_allclose(value, other, rtol=1e-12)
        for a, b in zip(gradients, others, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_long_sum_is_compensated():
    """Parts and their total are sums like any other."""
    f = pb.compile(lambda x: np.sum(x), parallel=True)
    for _ in range(3):
        x = RNG.normal(size=3_000_000) * RNG.exponential(size=3_000_000) + 1
        assert f(x) == pytest.approx(math.fsum(x), rel=5e-16)


# -- what fails ---------------------------------------------------------------------------------------------------------
def test_the_first_failure_is_told(monkeypatch):
    k = RNG.integers(0, 40_000, 600_000)
    k[[250_000, 120_001, 299_999]] = 50_000, 40_000, 70_000
    x = RNG.normal(size=40_000)
    messages = set()
    for count in THREADS:
        monkeypatch.setenv("PULLBACK_THREADS", count)
        with pytest.raises(IndexError) as caught:
            pb.compile(moved, parallel=True)(x, k)
        messages.add(str(caught.value))
    with pytest.raises(IndexError) as caught:
        pb.compile(moved)(x, k)
    assert messages == {str(caught.value)}


@pytest.mark.parametrize("given", ["0", "-1", "many", "1.5"])
def test_a_number_of_threads_that_is_none(given, monkeypatch):
    monkeypatch.setenv("PULLBACK_THREADS", given)
    with pytest.raises(pb.PullbackError, match=f"PULLBACK_THREADS={given}: a number of threads, 1 or more, expected"):
        pb.compile(tanh_sum, parallel=True)(*CASES["tanh_sum"][1])


def test_parallel_is_a_choice():
    with pytest.raises(
        pb.PullbackError, match="parallel is True or False, the number of threads is set by PULLBACK_THREADS; got 4"
    ):
        pb.compile(tanh_sum, parallel=4)


# -- threads ------------------------------------------------------------------------------------------------------------
def test_calls_from_many_threads(monkeypatch):
    monkeypatch.setenv("PULLBACK_THREADS", "3")
    f = pb.compile(tanh_sum, parallel=True)
    arrays = [RNG.normal(size=400_000) for _ in range(6)]
    expected = [f.value_and_grad(x, 0.3) for x in arrays]
    wrong = []

    def work(k):
        for _ in range(20):
            value, (dx, da) = f.value_and_grad(arrays[k], 0.3)
            if value != expected[k][0] or da != expected[k][1][1] or not np.array_equal(dx, expected[k][1][0]):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_no_threads_to_be_had(monkeypatch):
    """The calling thread does it all then."""

    def none(count):
        raise RuntimeError("can't start new thread")

    f, args = pb.compile(tanh_sum, parallel=True), CASES["tanh_sum"][1]
    expected = f(*args)
    monkeypatch.setattr(team, "_workers", none)
    monkeypatch.setenv("PULLBACK_THREADS", "4")
    assert f(*args) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_threads_of_its_own():
    code = """
import os, warnings, numpy as np, pullback as pb
warnings.simplefilter("ignore")
os.environ["PULLBACK_THREADS"] = "3"
f = pb.compile(lambda x: np.sum(np.sin(x) ** 2), parallel=True)
x = np.linspace(0, 1, 200_000)
expected = f(x)
child = os.fork()
if not child:
    os._exit(0 if f(x) == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and f(x) == expected
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers here")
def test_a_signal_stops_the_call(monkeypatch):
    monkeypatch.setenv("PULLBACK_THREADS", "2")
    f = pb.compile(lambda x: np.sum(np.sin(np.exp(np.cos(x))) ** 0.3), parallel=True)
    x = np.full(4_000_000, 0.5)
    expected = f(x)

    class Enough(Exception):
        pass

    def handler(number, frame):
        raise Enough

    old = signal.signal(signal.SIGALRM, handler)
    try:
        start = time.perf_counter()
        with pytest.raises(Enough):
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            for _ in range(1000):
                f(x)
        assert time.perf_counter() - start < 60  # a guard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert f(x) == expected


def test_arrays_of_programs(small, monkeypatch):
    """Programs with loops and branches: only what stands outside of them is cut."""
    monkeypatch.setenv("PULLBACK_THREADS", "2")
    for seed in range(10):
        _kernels_agree(*array_program(seed))


def test_threads_are_called_where_it_is_worth_it(monkeypatch):
    asked = []
    workers = team._workers
    monkeypatch.setattr(team, "_workers", lambda count: asked.append(count) or workers(count))
    monkeypatch.setenv("PULLBACK_THREADS", "3")
    f = pb.compile(tanh_sum, parallel=True)
    f(RNG.normal(size=1000), 0.3)
    assert not asked
    f(RNG.normal(size=400_000), 0.3)
    assert asked == [2]


def test_the_text_is_the_same_each_time():
    """Nothing depends on where objects are in memory."""
    func = optimize(trace(standardized, *CASES["standardized"][1], symbolic=True)[0].func)
    reverse = differentiate(func, func.params)
    for parallel in (False, True):
        programs = [lower(reverse, parallel) for _ in range(8)]  # all of them kept, so that each is elsewhere
        assert len({print_program(program) for program in programs}) == 1
