"""Answers of direct calls that are filled again: only where nobody can tell."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from itertools import pairwise

import numpy as np
import pytest

import pullback as pb
from pullback_runtime import direct

X = np.linspace(-1.0, 2.0, 20)
needed = pytest.mark.skipif(
    direct.layout() is None or not direct.layout().counts, reason="here references are counted by Python alone"
)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setattr(direct, "PRICE", 0)


def product(x, a):
    return a * np.sum(x * x * x)


def expected(x, a):
    return a * np.sum(x * x * x), (3 * a * x * x, np.sum(x * x * x))


def warmed(*args):
    both = pb.value_and_grad(pb.compile(product), wrt=(0, 1))
    for _ in range(8):
        both(*args)
    return both


def growth(call):
    """How many objects 300 calls leave behind; the least of several times, since others work and remember things meanwhile."""
    counts = []
    for _ in range(5):
        for _ in range(300):
            call()
        gc.collect()
        counts.append(sys.getallocatedblocks())
    return min(after - before for before, after in pairwise(counts))


def same(found, wanted):
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-13)
    np.testing.assert_allclose(found[1][0], wanted[1][0], rtol=1e-13)
    np.testing.assert_allclose(found[1][1], wanted[1][1], rtol=1e-13)


@pytest.mark.parametrize("x", [X[:3].copy(), X])
@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a,
        lambda a: (a[0], (a[1][0], a[1][1])),
        lambda a: (a[0], a[1]),
        lambda a: (a[0], (a[1][0][:], float(a[1][1]))),
        lambda a: (a[0], (memoryview(a[1][0]), a[1][1])),
    ],
)
def test_what_somebody_holds_is_left_alone(x, hold):
    both = warmed(x, 1.0)
    held = [hold(both(x * k, -2.0 + k)) for k in range(12)]
    for k, answer in enumerate(held):
        same(answer, expected(x * k, -2.0 + k))
    arrays = [a for _, (a, _) in held]
    assert not any(np.may_share_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k])


def test_a_loop_that_unpacks():
    both, x = warmed(X, 1.0), X
    for _ in range(20):
        before = x
        value, (slope, other) = both(x, 0.5)
        x = x - 0.01 * slope
        same((value, (slope, other)), expected(before, 0.5))


def test_a_result_that_is_the_next_argument():
    both, x, y = warmed(X, 1.0), X, X.copy()
    for _ in range(10):
        x = both(x, 0.1)[1][0]
        y = expected(y, 0.1)[1][0]
    np.testing.assert_allclose(x, y, rtol=1e-11)


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.setflags(write=False),
        lambda a: setattr(a, "shape", (4, 5)),
        lambda a: a.resize(2, refcheck=False),
        lambda a: a.resize((20, 1), refcheck=False),
        lambda a: a.fill(np.nan),
    ],
)
def test_what_was_changed_is_made_anew(change):
    both = warmed(X, 1.0)
    for _ in range(6):
        change(both(X, 2.0)[1][0])
    for _ in range(3):
        found = both(X, 2.0)
        same(found, expected(X, 2.0))
        assert found[1][0].shape == (20,) and found[1][0].flags.writeable and found[1][0].flags.owndata


def test_other_lengths():
    both = warmed(X, 1.0)
    for n in (20, 9, 20, 300, 9, 300, 5000, 20):
        x = np.linspace(0.5, 1.5, n)
        same(both(x, -1.5), expected(x, -1.5))


def test_weak_references_and_calls_from_their_callbacks():
    both, gone = warmed(X, 1.0), []

    def again(_):
        gone.append(both(X, 7.0))

    for k in range(6):
        answer = both(X, float(k))
        kept = weakref.ref(answer[1][0], again)
        same(answer, expected(X, float(k)))
        del answer
        both(X, 1.0), both(X, 1.0)
        assert kept() is None
    assert len(gone) == 6
    for answer in gone:
        same(answer, expected(X, 7.0))


@needed
def test_small_answers_are_kept_as_long_as_their_function():
    both = warmed(X, 1.0)
    slope = both(X, 1.0)[1][0]
    assert sys.getrefcount(slope) == 3  # the name, the argument, and the answer that is kept
    del both
    gc.collect()
    assert sys.getrefcount(slope) == 2


@needed
def test_large_answers_are_not_kept():
    x = np.linspace(0.0, 1.0, 10_000)
    both = warmed(x, 1.0)
    assert sys.getrefcount(both(x, 1.0)[1][0]) == 2


def test_only_tuples_are_filled_again():
    @pb.compile
    def several(x):
        return {"a": [np.sum(x), x * 2.0]}

    answers = [several(X) for _ in range(8)]
    answers[-1]["a"].append(3)
    assert len(several(X)["a"]) == 2


def test_nothing_is_lost():
    both = warmed(X, 1.0)
    held = []

    def mixed():
        answer = both(X, 2.0)
        value, (slope, _) = answer
        held.append((answer, value, (slope, value))[len(held) % 3])
        del held[:-4]

    assert growth(mixed) < 50


def test_a_call_that_fails_lets_go():
    @pb.compile
    def picked(x, k):
        return np.sum(x * x[k])

    both = pb.value_and_grad(picked, wrt=0)
    for _ in range(8):
        both(X, 3)

    def failing():
        with pytest.raises(IndexError):
            both(X, 20)
        value, _ = both(X, 2)
        np.testing.assert_allclose(value, np.sum(X * X[2]), rtol=1e-13)

    assert growth(failing) < 50


def test_threads():
    both, wrong = warmed(X, 1.0), []

    def work(seed):
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(3000):
            a = float(rng.normal())
            held.append((a, both(X, a)))
            if len(held) > 3:
                a, found = held.pop(0)
                if found[0] != a * found[1][1]:
                    wrong.append((a, found))

    total = both(X, 1.0)[0]
    assert abs(total - np.sum(X**3)) < 1e-12
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
