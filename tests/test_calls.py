"""Direct calls: what they recognise they answer as the long way does, what they do not goes there, and nothing leaks."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import signal
import sys
import threading
import time
import weakref
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback_runtime import direct
from pullback_runtime.function import Function

X = np.array([0.5, -1.25, 2.0])
LONG = np.linspace(-1.0, 2.0, 20)
Pair = namedtuple("Pair", "left right")


@dataclass
class Box:
    a: Any
    b: Any


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """The machine code is made for the first calls, wherever the objects look as it needs them to."""
    monkeypatch.setattr(direct, "PRICE", 0)


@pytest.fixture
def slow(monkeypatch):
    """How many calls went through Python."""
    counts = [0]

    def counted(original):
        def run(self, *args, **kwargs):
            counts[0] += 1
            return original(self, *args, **kwargs)

        return run

    for name in ("_value", "_reverse"):
        monkeypatch.setattr(Function, name, counted(getattr(Function, name)))
    return counts


def is_direct(slow, call, times=5):
    """Whether repeated calls stay out of Python; all Pythons that are tested can do that."""
    for _ in range(6):
        call()
    before = slow[0]
    for _ in range(times):
        call()
    return slow[0] == before


def alike(a, b):
    """The same types, structure and bits."""
    assert type(a) is type(b)
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            alike(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            alike(a[key], b[key])
    elif isinstance(a, Box):
        alike((a.a, a.b), (b.a, b.b))
    elif isinstance(a, np.ndarray):
        assert a.dtype is b.dtype and a.shape == b.shape and a.flags.num == b.flags.num
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes()
    else:
        assert a == b


def against_the_long_way(make, calls):
    """Each call gives the same at first, when it has been made often, and from a Function that was never called before."""
    f = make()
    for call in calls:
        first = call(make())
        for _ in range(7):
            alike(call(f), first)


# -- arguments ----------------------------------------------------------------------------------------------------------
VALUES = {
    "float": 1.5,
    "negative zero": -0.0,
    "nan": float("nan"),
    "int": 3,
    "large int": 2**53 + 1,
    "bool": True,
    "float64": np.float64(-2.5),
    "float32": np.float32(0.1),
    "int64": np.int64(7),
    "int32": np.int32(-7),
    "bool_": np.bool_(True),
    "0-d": np.array(1.25),
    "0-d float32": np.array(0.3, np.float32),
    "float64s": X,
    "float32s": X.astype(np.float32),
    "ints": np.array([1, -2, 3]),
    "int32s": np.array([1, -2, 3], np.int32),
    "bools": np.array([True, False, True]),
    "long": LONG,
    "matrix": LONG.reshape(4, 5),
    "Fortran": np.asfortranarray(LONG.reshape(4, 5)),
    "strided": LONG[::2],
    "reversed": X[::-1],
    "read-only": np.broadcast_to(X, (2, 3)),
    "frozen": np.frombuffer(X.tobytes()),
    "big-endian": X.astype(">f8"),
    "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float64),
    "empty": np.zeros(0),
    "no rows": np.zeros((0, 3)),
    "unpickled": pickle.loads(pickle.dumps(X)),
    "subclass": X.view(type("Sub", (np.ndarray,), {})),
    "memmap-like": LONG.view(np.memmap),
}
DIRECT = {
    *(
        "float",
        "negative zero",
        "nan",
        "int",
        "large int",
        "bool",
        "float64",
        "float32",
        "int64",
        "bool_",
        "0-d",
        "0-d float32",
    ),
    *("float64s", "float32s", "ints", "bools", "long", "matrix", "frozen", "empty", "no rows", "unpickled"),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_argument(name, slow):
    x = VALUES[name]
    against_the_long_way(lambda: pb.compile(lambda x: x * 3 + x), [lambda f: f(x)])
    f = pb.compile(lambda x: x * 3 + x)
    if name == "read-only":
        assert not is_direct(slow, lambda: f(x))  # it is broadcast, and so not contiguous
    else:
        assert is_direct(slow, lambda: f(x)) is (name in DIRECT)


def test_kinds_that_follow_each_other(slow):
    """One call after the other, each often enough that all of them are known."""
    make = lambda: pb.compile(lambda x: x * 3 + x)  # noqa: E731  # a maker, as the others
    calls = [lambda f, x=x: f(x) for x in VALUES.values()]
    against_the_long_way(make, calls + calls[::-1])


@pytest.mark.parametrize("value", [np.matrix([[1.0, 2.0]]), np.ma.masked_array([1.0, 2.0], [True, False]), 1j, {1.0}])
def test_refused_arguments_stay_refused(value):
    f = pb.compile(lambda x: x * 2)
    for _ in range(8):
        f(np.array([1.0, 2.0]))
    for _ in range(3):
        with pytest.raises((TypeError, pb.DTypeError, pb.PullbackError)):
            f(value)
        with pytest.raises((TypeError, pb.DTypeError, pb.PullbackError)):
            f.value_and_grad(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_integers_without_a_place(value):
    f = pb.compile(lambda n: n * 2)
    for _ in range(8):
        assert f(4) == 8.0
    with pytest.raises(pb.DTypeError, match="does not fit 64 bits"):
        f(value)


def test_a_type_that_changes_between_calls():
    f = pb.compile(lambda x, y: x * y)
    for _ in range(8):
        alike(f(2.0, 3.0), 6.0)
        alike(f(2, 3.0), 6.0)
        alike(f(np.float32(2), np.float32(3)), np.float32(6))
        alike(f(X, 2.0), X * 2.0)
        alike(f(2.0, X), X * 2.0)
        alike(f(X.astype(np.float32), 2.0), X.astype(np.float32) * np.float32(2))


# -- how arguments are passed -------------------------------------------------------------------------------------------
def test_keywords_in_any_order(slow):
    f = pb.compile(lambda x, y: x - 2 * y)
    for call in (
        lambda: f(X, y=1.5),
        lambda: f(x=X, y=1.5),
        lambda: f(y=1.5, x=X),
        lambda: f.vjp(y=1.5, x=X, seed=X),
        lambda: f.vjp(X, seed=X, y=1.5),
        lambda: f.grad(X, 1.5, wrt="x", seed=X),
        lambda: f.grad(X, 1.5, seed=X, wrt=("y", "x")),
        lambda: f.grad(X, 1.5, wrt=1, seed=X),
    ):
        first = call()
        assert is_direct(slow, call)
        alike(call(), first)
    for _ in range(8):
        with pytest.raises(TypeError, match="no input named 'z'"):
            f(X, z=1.0)
        with pytest.raises(TypeError, match="twice"):
            f(X, 1.5, x=X)
        with pytest.raises(TypeError, match="needs 'y' too"):
            f(X)
        with pytest.raises(TypeError, match="takes 2 arguments, got 3"):
            f(X, 1.0, 2.0)


def test_a_tuple_of_names_may_be_a_new_one_each_time(slow):
    f = pb.compile(lambda x, y: np.sum(x * y))
    assert is_direct(slow, lambda: f.grad(X, 2.0, wrt=tuple("yx")))
    alike(f.grad(X, 2.0, wrt=("y", "x")), (float(np.sum(X)), np.full(3, 2.0)))
    alike(f.grad(X, 2.0, wrt=("x", "y")), (np.full(3, 2.0), float(np.sum(X))))


def test_defaults(slow):
    @pb.compile
    def f(x, a=2.0, n=3, flag=True, kind="plain", nothing=None):
        return x * a + n if flag else x

    for _ in range(8):
        alike(f(X), X * 2.0 + 3)
        alike(f(X, 4.0), X * 4.0 + 3)
        alike(f(X, n=5), X * 2.0 + 5)
        alike(f(X, flag=False), X)
        alike(f.grad(X, seed=X, wrt="x"), 2.0 * X)
    assert is_direct(slow, lambda: f(X))
    assert is_direct(slow, lambda: f(X, n=5))


def test_a_default_that_is_an_array_and_changes():
    default = X.copy()

    @pb.compile
    def f(x, w=default):
        return x * w

    for _ in range(8):
        alike(f(X), X * X)
    default[0] = 100.0
    alike(f(X), X * default)


CONTAINERS = [
    (X, 2.0),
    [X, LONG],
    {"a": X, "b": 3.0},
    {"a": {"c": X, "d": (1.0, X)}, "b": [LONG]},
    Pair(X, 2.0),
    Pair(Pair(X, 1.5), [X]),
    (X, None, "text", 2.0),
    (),
]


@pytest.mark.parametrize("tree", CONTAINERS, ids=str)
def test_containers(tree, slow):
    def total(tree):
        if isinstance(tree, dict):
            return sum(total(t) for t in tree.values())
        if isinstance(tree, (tuple, list)):
            return sum(total(t) for t in tree)
        return 0.0 if tree is None or isinstance(tree, str) else np.sum(tree * tree)

    make = lambda: pb.compile(lambda tree, y: total(tree) * y)  # noqa: E731  # as above
    against_the_long_way(make, [lambda f: f(tree, 2.0), lambda f: f.value_and_grad(tree, 2.0), lambda f: f.grad(tree, 2.0)])
    f = make()
    assert is_direct(slow, lambda: f.value_and_grad(tree, 2.0))


def test_containers_of_another_make_up():
    f = pb.compile(lambda p, y: sum(p.values()) * y if isinstance(p, dict) else p[0] * y)
    for _ in range(8):
        alike(f({"a": X, "b": 1.0}, 2.0), (X + 1.0) * 2.0)
        alike(f({"b": 1.0, "a": X}, 2.0), (1.0 + X) * 2.0)
        alike(f({"a": X}, 2.0), X * 2.0)
        alike(f({"".join(["lo", "ng key"]): X}, 2.0), X * 2.0)
        alike(f((X,), 2.0), X * 2.0)
        alike(f([X], 2.0), X * 2.0)
        alike(f([X, 1.0], 2.0), X * 2.0)
    with pytest.raises(TypeError):
        f({"a": {}}, 2.0)


def test_dataclasses_go_the_long_way():
    against_the_long_way(
        lambda: pb.compile(lambda box: Box(box.a * box.b, {"k": box.b})), [lambda f: f(Box(X, 2.0)), lambda f: f(Box(2.0, X))]
    )


def test_integers_within_containers_have_zeros_for_gradients(slow):
    def make():
        return pb.compile(lambda p: np.sum(p["x"] * p["n"]) * p["k"])

    tree = {"x": X, "n": np.array([1, 2, 3]), "k": 2}
    against_the_long_way(make, [lambda f: f.value_and_grad(tree), lambda f: f.grad(tree)])
    f = make()
    assert is_direct(slow, lambda: f.grad(tree))
    first, second = f.grad(tree), f.grad(tree)
    assert first["n"] is not second["n"]


# -- results --------------------------------------------------------------------------------------------------------------
RESULTS = [
    lambda x: x * 2,
    lambda x: np.sum(x),
    lambda x: np.sum(x) > 0,
    lambda x: x > 0,
    lambda x: (x, np.sum(x)),
    lambda x: [x, [x * 2, x[0]]],
    lambda x: {"b": x, "a": (x + 1, {"c": x[1]})},
    lambda x: Pair(x, Pair(x + 1, 2.0)),
    lambda x: Box(x, [x * 2]),
    lambda x: (x, None, "text"),
    lambda x: (),
    lambda x: (3, True, 2.5),
    lambda x: np.outer(x, x),
    lambda x: x[None, :, None] * 2,
    lambda x: x[:0],
    lambda x: np.argmax(x),
    lambda x: (x > 0).astype(np.int64),
    lambda x: np.concatenate([x, x, x[:1]]),
    lambda x: x[: x.shape[0] // 2],
]


@pytest.mark.parametrize("function", RESULTS, ids=range(len(RESULTS)))
@pytest.mark.parametrize("x", [X, LONG, LONG[:11], X.astype(np.float32)], ids=["short", "long", "odd", "float32"])
def test_every_result(function, x, slow):
    against_the_long_way(lambda: pb.compile(function), [lambda f: f(x)])
    f = pb.compile(function)
    assert is_direct(slow, lambda: f(x))


def test_results_are_new_each_time():
    f = pb.compile(lambda x: (x * 2, np.float32(1) * np.sum(x)))
    found = [f(LONG)[0] for _ in range(10)]
    assert len({id(a) for a in found}) == 10
    assert len({a.__array_interface__["data"][0] for a in found}) == 10
    assert all(a.flags.owndata and a.flags.writeable for a in found)


def test_a_length_that_the_data_decide():
    f = pb.compile(lambda x: x[x > 0])
    for x in (LONG, -LONG, LONG, X) * 3:
        np.testing.assert_array_equal(f(x), x[x > 0])


# -- shapes ---------------------------------------------------------------------------------------------------------------
def test_ever_new_lengths(slow):
    f = pb.compile(lambda x, y: (np.outer(x, y), np.sum(x), x[: x.shape[0] // 2]))
    rng = np.random.default_rng(0)
    for n in range(9, 20):
        f(rng.normal(size=n), rng.normal(size=n + 3))
    before = slow[0]
    for n in range(20, 60):
        x, y = rng.normal(size=n), rng.normal(size=2 * n)
        a, _, c = f(x, y)
        np.testing.assert_array_equal(a, np.outer(x, y))
        np.testing.assert_array_equal(c, x[: n // 2])
    assert slow[0] == before
    assert f.cache_info().specializations == 1


def test_short_lengths_are_compiled_in(slow):
    f = pb.compile(lambda x: x * 2)
    for n in (20, 12, 9, 30, 40, 50):
        f(np.ones(n))
    for n in (3, 8, 0, 1):
        alike(f(np.ones(n)), np.full(n, 2.0))
    assert f.cache_info().specializations == 5


def test_lengths_that_must_agree():
    f = pb.compile(lambda x, y: np.sum(x * y))
    for _ in range(8):
        f.value_and_grad(LONG, LONG)
    for _ in range(4):
        with pytest.raises(pb.ShapeError):
            f.value_and_grad(LONG, np.ones(21))
        a, b = f.grad(LONG, np.ones(1))
        alike(a, np.ones(20))
        np.testing.assert_allclose(b, [10.0], rtol=1e-15)


def test_branches_on_lengths():
    f = pb.compile(lambda x: x * 2 if x.shape[0] > 30 else x + 1)
    for n in (20, 40, 20, 21, 40, 41, 30, 31) * 4:
        x = np.arange(float(n))
        alike(f(x), x * 2 if n > 30 else x + 1)


def test_declared_lengths():
    def product(A, x):
        return A @ x

    product.__annotations__ = {"A": pb.f64["m", "n"], "x": pb.f64["n"]}
    f = pb.compile(product)
    for n in (2, 3, 20) * 5:
        alike(f(np.ones((4, n)), np.ones(n)), np.full(4, float(n)))
        with pytest.raises(pb.ShapeError, match="declared"):
            f(np.ones((4, n)), np.ones(n + 1))
    assert f.cache_info().specializations == 1


def test_symbolic_lengths(slow):
    f = pb.compile(lambda x: np.sum(x * x), symbolic=True)
    for n in (2, 3, 4, 5, 6, 7):
        f.value_and_grad(np.ones(n))
    before = slow[0]
    for n in (1, 8, 20, 3):
        alike(f.value_and_grad(np.ones(n)), (float(n), np.full(n, 2.0)))
    assert slow[0] == before and f.cache_info().specializations == 1


# -- derivatives ----------------------------------------------------------------------------------------------------------
def test_every_way_to_a_gradient(slow):
    loss = lambda x, y: np.sum(np.sin(x) * y)  # noqa: E731  # one function for all
    f, g = pb.compile(loss), pb.value_and_grad(loss)
    expected = (loss(X, 2.0), (np.cos(X) * 2.0, np.sum(np.sin(X))))
    seeded = pb.vjp(loss)
    for call, wanted in (
        (lambda: f.value_and_grad(X, 2.0), expected),
        (lambda: f.grad(X, 2.0), expected[1]),
        (lambda: f.vjp(X, 2.0), expected),
        (lambda: f.vjp(X, 2.0, seed=1.0), expected),
        (lambda: f.vjp(X, 2.0, seed=1), expected),
        (lambda: f.vjp(X, 2.0, seed=np.float64(1)), expected),
        (lambda: g(X, 2.0), expected),
        (lambda: pb.grad(f)(X, 2.0), expected[1]),
        (lambda: pb.grad(f, wrt="x")(X, 2.0), expected[1][0]),
        (lambda: seeded(X, 2.0, seed=1.0), expected),
        (lambda: f.grad(X, 2.0, wrt="y"), expected[1][1]),
    ):
        assert is_direct(slow, call)
        found = call()
        np.testing.assert_allclose(np.hstack(_flat(found)), np.hstack(_flat(wanted)), rtol=1e-14)


def _flat(tree):
    return [leaf for part in tree for leaf in _flat(part)] if isinstance(tree, tuple) else [tree]


def test_seeds_of_every_form():
    make = lambda: pb.compile(lambda x: (x * 2, {"s": np.sum(x), "n": 3}))  # noqa: E731  # as above
    against_the_long_way(
        make,
        [
            lambda f: f.vjp(X, seed=(X, {"s": 2.0, "n": None})),
            lambda f: f.vjp(X, seed=(None, {"s": -1.0})),
            lambda f: f.vjp(X, seed=[X, None]),
            lambda f: f.vjp(X, seed=(X[::-1], {"s": 2})),
            lambda f: f.grad(X, seed=(2.0, None)),
        ],
    )


def test_seeds_that_do_not_fit():
    f = pb.compile(lambda x: x * 2)
    for _ in range(8):
        alike(f.grad(LONG, seed=LONG), 2 * LONG)
    for _ in range(3):
        with pytest.raises(pb.SeedError, match="seed has shape"):
            f.grad(LONG, seed=np.ones(21))
        with pytest.raises(pb.SeedError, match="must be given"):
            f.grad(LONG)
        alike(f.grad(LONG, seed=2.0), np.full(20, 4.0))
        alike(f.vjp(LONG, seed=np.ones((2, 20)), seed_mode="broadcast")[1], np.full(20, 4.0))


def test_errors_of_derivatives_stay():
    f = pb.compile(lambda x: x * 2)
    for _ in range(8):
        with pytest.raises(pb.SeedError, match="value_and_grad takes a function with one scalar output"):
            f.value_and_grad(X)
        with pytest.raises(pb.DTypeError, match="nothing to differentiate by"):
            f.grad(np.array([1, 2]), seed=1.0)
        with pytest.raises(TypeError, match="no input named 'seed'"):
            f.value_and_grad(2.0, seed=1.0)


def test_methods_that_were_held_before(slow):
    f = pb.compile(lambda x: np.sum(x * x))
    held, call = f.value_and_grad, f.__call__
    for _ in range(8):
        held(X), call(X)
    before = slow[0]
    alike(held(X), (5.8125, 2 * X))
    alike(call(X), 5.8125)
    assert slow[0] == before


# -- out ------------------------------------------------------------------------------------------------------------------
def test_out(slow):
    f = pb.compile(lambda x, y: x * y)
    o, p = np.empty(3), np.empty(3)
    assert is_direct(slow, lambda: f(X, 2.0, out=o))
    assert f(X, 3.0, out=p) is p and f(X, 2.0, out=o) is o
    alike((o, p), (X * 2.0, X * 3.0))
    g = pb.compile(lambda x, y: np.sum(x * y))
    assert is_direct(slow, lambda: g.value_and_grad(X, X + 1, out=(o, p)))
    value, (a, b) = g.value_and_grad(X, X + 1, out=(o, p))
    assert a is o and b is p
    alike((value, o, p), (float(np.sum(X * (X + 1))), X + 1, X))
    assert is_direct(slow, lambda: g.grad(X, X + 1, out=(None, p)))
    a, b = g.grad(X, X + 1, out=(None, p))
    assert b is p and a is not o
    assert is_direct(slow, lambda: g.grad(X, X, wrt="x", out=o))


def test_out_that_overlaps_an_argument():
    f = pb.compile(lambda x, y: (x[::-1] + y, x * 2))
    x, y, o = LONG.copy(), LONG * 3, np.empty(20)
    for _ in range(8):
        f(x, y, out=(o, y.copy()))
    expected = f(x, y)
    a, b = f(x, y, out=(x, o))
    assert a is x and b is o
    alike((a, b), expected)
    store = np.concatenate([LONG, LONG])
    for _ in range(8):
        expected = f(store[:20], y)
        alike(tuple(np.copy(r) for r in f(store[:20], y, out=(store[5:25], o))), expected)
        store[:] = np.concatenate([LONG, LONG])


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (np.empty(4), pb.ShapeError),
        (np.empty(3, np.float32), pb.DTypeError),
        (np.frombuffer(bytes(24)), ValueError),
        ([0.0, 0.0, 0.0], (TypeError, pb.DTypeError)),
        (2.0, pb.DTypeError),
    ],
)
def test_out_that_does_not_fit(out, error):
    f = pb.compile(lambda x: x * 2)
    for _ in range(8):
        f(X, out=np.empty(3))
    for _ in range(3):
        with pytest.raises(error):
            f(X, out=out)


def test_out_of_every_layout():
    f = pb.compile(lambda x: np.outer(x, x))
    for out in (np.empty((3, 3)), np.empty((3, 3), order="F"), np.empty((6, 3))[::2], np.empty((3, 3)).T) * 3:
        assert f(X, out=out) is out
        np.testing.assert_array_equal(out, np.outer(X, X))


def test_out_of_an_unknown_length(slow):
    f = pb.compile(lambda x: np.concatenate([x, x[:-1]]))
    for n in range(12, 24):
        x = np.arange(float(n))
        alike(f(x, out=np.empty(2 * n - 1)), np.concatenate([x, x[:-1]]))
    with pytest.raises(pb.ShapeError):
        f(np.arange(20.0), out=np.empty(40))


# -- captured values --------------------------------------------------------------------------------------------------------
SCALE, TABLE, FACTORS = 2.0, np.array([1.0, 2.0, 3.0]), {"k": 1.0}


@pb.compile
def captures(x):
    return np.sum(x * TABLE) * SCALE * FACTORS["k"]


def test_captured_values(slow, monkeypatch):
    monkeypatch.setitem(globals(), "TABLE", np.array([1.0, 2.0, 3.0]))
    assert is_direct(slow, lambda: captures.value_and_grad(X))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    alike(captures.value_and_grad(X)[1], TABLE * 5.0)
    TABLE[0] = -7.0
    alike(captures.value_and_grad(X)[1], TABLE * 5.0)
    monkeypatch.setitem(globals(), "TABLE", np.ones(3))
    alike(captures.value_and_grad(X)[1], np.full(3, 5.0))
    monkeypatch.setitem(FACTORS, "k", 2.0)
    alike(captures.value_and_grad(X)[1], np.full(3, 10.0))
    monkeypatch.setitem(globals(), "TABLE", np.ones(4))
    with pytest.raises((pb.ShapeError, pb.TraceError, pb.PullbackError)):
        captures.value_and_grad(X)
    monkeypatch.setitem(globals(), "TABLE", np.ones(3)[::-1])
    alike(captures.value_and_grad(X)[1], np.full(3, 10.0))


OFFSETS = ((1.0, 2.0), (3.0, "text"))


def helper(x):
    return x * OFFSETS[1][0]


def other_helper(x):
    return x - 1.0


def closing(scale, table):
    def change(new):
        nonlocal scale
        scale = new

    @pb.compile
    def f(x):
        return np.sum(helper(x) * table[:3]) * scale

    return f, change


def test_what_names_stand_for(slow, monkeypatch):
    """Names of functions, numbers, tuples and arrays that are looked up without Python, and notice every change."""
    table = np.arange(1.0, 13.0)
    f, change = closing(2.0, table)
    assert is_direct(slow, lambda: f.value_and_grad(X))
    alike(f.grad(X), 6.0 * table[:3])
    table[0] = -5.0
    alike(f.grad(X), 6.0 * table[:3])
    change(-0.5)
    alike(f.grad(X), -1.5 * table[:3])
    assert is_direct(slow, lambda: f.grad(X))
    monkeypatch.setitem(globals(), "OFFSETS", ((1.0, 2.0), (-4.0, "text")))
    alike(f.grad(X), 2.0 * table[:3])
    monkeypatch.setitem(globals(), "OFFSETS", ((1.0, 2.0), (-4.0, "text")))  # equal, but another object
    alike(f.grad(X), 2.0 * table[:3])
    monkeypatch.setitem(globals(), "helper", other_helper)
    alike(f.grad(X), -0.5 * table[:3])
    assert is_direct(slow, lambda: f.grad(X))
    monkeypatch.delitem(globals(), "helper")
    with pytest.raises((NameError, pb.TraceError)):
        f.grad(X)


def test_captured_arrays_are_held_while_the_kernel_runs(monkeypatch):
    f = pb.compile(lambda x: np.sum(np.exp(TABLE)) * x)
    monkeypatch.setitem(globals(), "TABLE", np.zeros(200_000))
    for _ in range(8):
        f(2.0)
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            globals()["TABLE"] = np.zeros(200_000)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(200):
            assert f(2.0) == 400_000.0
    finally:
        stop.set()
        thread.join()


# -- errors and signals -----------------------------------------------------------------------------------------------------
def test_errors_while_running():
    f = pb.compile(lambda x, i: x[i] * 2)
    for _ in range(8):
        assert f(X, 1) == -2.5
        with pytest.raises(IndexError):
            f(X, 3)
        with pytest.raises(IndexError):
            f.grad(X, 30)


def test_kernels_that_have_to_run_again():
    f = pb.compile(lambda x: np.sum(np.where(x > 0, np.log(x), 0.0) * 2))
    for x in (X, np.array([0.0, 1.0, 2.0]), np.array([np.nan, 1.0, -1.0])) * 6:
        value, gradient = f.value_and_grad(x)
        fresh = pb.compile(lambda x: np.sum(np.where(x > 0, np.log(x), 0.0) * 2)).value_and_grad(x)
        alike((value, gradient), fresh)


@pb.compile
def endless(x, n):
    for _ in range(n):
        x = np.cos(x) * 1.5
    return x


def test_a_signal_stops_a_loop():
    """What the handler raises comes out of the call, and the next call is none the worse."""

    class Stop(Exception):
        pass

    def handler(number, frame):
        raise Stop

    for _ in range(8):
        endless(0.5, np.int64(3))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            started = time.monotonic()
            with pytest.raises(Stop):
                endless(0.5, np.int64(10**12))
            assert time.monotonic() - started < 5.0
            assert endless(0.5, np.int64(1)) == np.cos(0.5) * 1.5
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_nothing_and_calls_the_same_function():
    seen = []
    for _ in range(8):
        endless(0.5, np.int64(3))
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(endless(0.5, np.int64(2))))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        first = endless(0.5, np.int64(10**7))
        assert first == endless(0.5, np.int64(10**7))
        assert seen == [endless(0.5, np.int64(2))]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- threads ----------------------------------------------------------------------------------------------------------------
def _in_threads(work, count=4):
    errors = []

    def run(k):
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_loops_let_other_threads_run():
    for _ in range(8):
        endless(0.5, np.int64(3))
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(1)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        count = len(ticks)
        started = time.monotonic()
        endless(0.5, np.int64(3 * 10**7))
        assert time.monotonic() - started > 0.02
        assert len(ticks) - count > 5
    finally:
        done.set()
        thread.join()


def test_many_threads_and_a_workspace(slow):
    """Arrays above the size from which the lock is given away, with memory between two nests."""
    f = pb.compile(lambda x, y: np.sum(np.exp(x - np.max(x)) * y) + np.sum(np.sort(x)))
    rng = np.random.default_rng(1)
    data = [(rng.normal(size=20000), rng.normal(size=20000)) for _ in range(4)]
    expected = [f.value_and_grad(*d) for d in data]
    for _ in range(8):
        f.value_and_grad(*data[0])

    def work(k):
        for _ in range(30):
            alike(f.value_and_grad(*data[k]), expected[k])

    before = slow[0]
    _in_threads(work)
    assert slow[0] == before


def test_threads_with_kinds_of_their_own():
    f = pb.compile(lambda x: x * 2)

    def work(k):
        for n in range(200):
            x = np.full(1 + (n + 3 * k) % 12, float(k))
            alike(f(x), x * 2)
            assert f(float(k)) == 2.0 * k

    _in_threads(work)


def test_items_taken_out_of_a_container_while_the_kernel_runs():
    f = pb.compile(lambda p: np.sum(np.exp(p[0])) + np.sum(p[1]))
    p = [np.zeros(200_000), np.zeros(3)]
    for _ in range(8):
        f(p)
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            p[0] = np.zeros(200_000)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(200):
            assert f(p) == 200_000.0
    finally:
        stop.set()
        thread.join()


def test_a_call_within_a_trace_belongs_to_it():
    inner = pb.compile(lambda x: x * 3)
    for _ in range(8):
        inner(2.0), inner(X), inner.grad(2.0)
    outer = pb.compile(lambda x: inner(x) + inner(2.0) + inner(np.ones(3)) + inner.grad(2.0))
    alike(outer(X), X * 3 + 6 + 3 + 3)
    assert outer.ir("primal").count("\n") < 12
    assert direct.TRACES[0] == 0
    failing = pb.compile(lambda x: inner(x) + undefined_name)  # the trace fails on purpose
    with pytest.raises((NameError, pb.TraceError)):
        failing(X)
    assert direct.TRACES[0] == 0


# -- references -------------------------------------------------------------------------------------------------------------
def _growth(call, rounds=20000):
    """Bytes by which the process grows while calls are made."""
    with open("/proc/self/statm") as f:
        f.read()
    for _ in range(1000):
        call()
    gc.collect()
    before = _resident()
    for _ in range(rounds):
        call()
    gc.collect()
    return _resident() - before


def _resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def test_reference_counts():
    f = pb.compile(lambda x, p, y: (x * p["a"], np.sum(x) * y, p["b"][0]))
    a, b, x, y, seed = np.ones(3), np.ones(3), X.copy(), 12345.678, np.full(3, 2.0)
    p = {"a": a, "b": (b,)}
    o = np.empty(3)

    def calls():
        f(x, p, y)
        f(x, p, y=y)
        f.vjp(x, p, y, seed=(seed, 2.0, None))
        f.grad(x, p, y, seed=(seed, None, None), wrt=("x", "p"))
        f(x, p, y, out=(o, None, None))
        f(x[::-1], p, y)
        with pytest.raises(pb.PullbackError):
            f(np.ones(4), p, y)
        with pytest.raises(TypeError):
            f(x, p)

    watched = [a, b, x, y, seed, p, o, None, True, float, np.ndarray, "x", p["b"]]
    for _ in range(10):
        calls()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(200):
        calls()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert all(abs(n - m) <= 5 for n, m in zip(after, before, strict=True)), str((before, after))


def test_results_have_one_owner():
    f = pb.compile(lambda x: (x * 2, {"k": np.sum(x)}, [x]))
    fresh = pb.compile(lambda x: (x * 2, {"k": np.sum(x)}, [x]))
    for _ in range(8):
        found = f(LONG)
    expected = fresh(LONG)
    assert sys.getrefcount(found) == sys.getrefcount(expected)
    for a, b in zip(found, expected, strict=True):
        assert sys.getrefcount(a) == sys.getrefcount(b)
    assert sys.getrefcount(found[1]["k"]) == sys.getrefcount(expected[1]["k"])
    assert sys.getrefcount(found[2][0]) == sys.getrefcount(expected[2][0])
    assert gc.is_tracked(found[2])


@pytest.mark.parametrize("rounds", [30_000])
def test_memory_does_not_grow(rounds):
    f = pb.compile(lambda x, y: (x * y, np.sum(x)))
    g = pb.compile(lambda p: np.sum(p["a"] * p["b"][0]))
    big = pb.compile(lambda x: np.sum(np.sort(x) * x))
    x, tree, out = np.arange(1000.0), {"a": X, "b": (X,)}, (np.empty(1000), None)
    wide = np.arange(5000.0)
    assert _growth(lambda: f(x, 2.0), rounds) < 1 << 20
    assert _growth(lambda: f.vjp(x, 2.0, seed=(x, 1.0)), rounds) < 1 << 20
    assert _growth(lambda: f(x, 2.0, out=out), rounds) < 1 << 20
    assert _growth(lambda: g.value_and_grad(tree), rounds) < 1 << 20
    assert _growth(lambda: big.value_and_grad(wide), 2000) < 1 << 20
    assert _growth(lambda: f(x[::2], 2.0), 3000) < 1 << 20


def test_millions_of_calls():
    f = pb.compile(lambda x, y: x * y + 1.0)
    g = pb.compile(lambda x: np.sum(x * x))
    for _ in range(8):
        f(2.0, 3.0), g.value_and_grad(X)
    before = _resident()
    for _ in range(1_000_000):
        f(2.0, 3.0)
        g.value_and_grad(X)
    assert _resident() - before < 1 << 20


def test_functions_are_collected():
    def made():
        f = pb.compile(lambda x: np.sum(np.sort(x) * x))
        wide = np.arange(5000.0)
        for _ in range(8):
            f(X), f.value_and_grad(wide), f.grad(X, wrt="x"), f.vjp(X, seed=2.0)
        return weakref.ref(f)

    dead = [made() for _ in range(3)]
    gc.collect()
    assert all(reference() is None for reference in dead)


# -- what the callables are ----------------------------------------------------------------------------------------------
@pb.compile
def at_top(x):
    """What it does."""
    return np.sum(x * x)


def test_pickling():
    for _ in range(8):
        at_top(X), at_top.value_and_grad(X)
    assert pickle.loads(pickle.dumps(at_top)) is at_top
    assert copy.copy(at_top) is at_top and copy.deepcopy(at_top) is at_top
    alike(pickle.loads(pickle.dumps(at_top.value_and_grad))(X), at_top.value_and_grad(X))
    alike(pickle.loads(pickle.dumps(at_top.__call__))(X), at_top(X))


def test_signatures_and_documentation():
    before = {name: inspect.getdoc(getattr(at_top, name)) for name in ("vjp", "grad", "value_and_grad")}
    signatures = {name: str(inspect.signature(getattr(pb.Function, name))) for name in before}
    for _ in range(8):
        at_top(X), at_top.vjp(X), at_top.grad(X), at_top.value_and_grad(X)
    for name in before:
        assert inspect.getdoc(getattr(at_top, name)) == before[name]
        parameters = list(inspect.signature(getattr(at_top, name)).parameters)
        assert all(p in signatures[name] for p in parameters) and parameters[0] == "args"
    assert str(inspect.signature(at_top)) == "(x)"
    assert callable(at_top) and at_top.__doc__ == "What it does."
    assert "receives it" in inspect.getdoc(pb.Function.__call__)


def test_recursion_within_a_handler_of_a_call():
    """A Function whose arguments' conversion calls it again."""
    f = pb.compile(lambda x: x * 2)

    class Offers:
        def __array__(self, dtype=None, copy=None):
            return f(X)

    for _ in range(8):
        alike(f(Offers()), X * 4)
        alike(f(X), X * 2)


def test_what_an_instance_holds_is_what_is_called():
    """Whatever way Python takes to a call: by position, from a tuple, with names; also of classes made from ours."""

    class Own(type(at_top)):
        def __call__(self, *args):
            return "own"

    class Derived(type(at_top)):
        pass

    f = pb.compile(lambda x, y: x - y)
    for _ in range(8):
        args, named = (X, 2.0), {"x": X, "y": 2.0}
        for found in (f(*args), f(X, 2.0), f(**named), f(X, y=2.0), f(X, *(2.0,)), next(map(f, [X], [2.0]))):
            alike(found, X - 2.0)
        with pytest.raises(TypeError):
            f(*args, 3.0)
        with pytest.raises(TypeError):
            f()
    for kind in (Own, Derived):
        g = kind(f.frontend, f.options)
        for _ in range(8):
            if kind is Own:
                assert g(X, 2.0) == "own"
            else:
                alike(g(X, 2.0), X - 2.0)
    with pytest.raises(AttributeError):
        type(f).__new__(type(f))(1.0)
    f.__call__ = lambda *args: args
    assert f(1, 2) == (1, 2)


def test_a_type_that_does_not_look_as_expected():
    class Plain:
        __slots__ = ("__call__",)

    plain = Plain()
    plain.__call__ = print
    assert direct._callable_looks(Plain, plain)
    assert not direct._callable_looks(float, 1.0)
    assert not direct._callable_looks(type(at_top), plain)


def test_a_layout_that_is_not_as_expected(monkeypatch):
    """Without a known layout everything goes through Python, as before."""
    monkeypatch.setattr(direct, "_address", None)
    monkeypatch.setattr(direct, "_broken", False)
    monkeypatch.setattr(direct, "layout", lambda: None)
    f = pb.compile(lambda x: x * 2)
    for _ in range(8):
        alike(f(X), X * 2)
    assert not f._doors and direct._broken


def test_the_layout_is_probed():
    found = direct.layout()
    assert found is not None and found.header == object.__basicsize__
    wrong = [direct.Layout(*(n + 8 * (k == j) for k, n in enumerate(vars_of(found)))) for j in range(len(vars_of(found)))]
    assert not any(direct._looks(layout) for layout in wrong if layout.items < 40 and layout.flags < 72 and layout.header < 24)


def vars_of(layout):
    return [getattr(layout, name) for name in layout.__slots__ if name != "counts"]
