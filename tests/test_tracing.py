"""Tracing Python functions: rewriting, captures, guards, stores, and what is refused with which words."""

from __future__ import annotations

import contextlib
import functools
import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import DTypeError, PullbackError, ShapeError, TraceError, UnsupportedError
from pullback.frontends.python import PythonFrontend, declared
from pullback.frontends.traced import Spec
from pullback.ir.types import f64
from tests.numpy_tracing import compare, evaluate, same, trace

V = np.array([0.7, -1.3, 2.1, 0.4, -0.2])
M = np.arange(12.0).reshape(3, 4) / 7 - 0.6
LONG = np.linspace(-1.0, 2.0, 12)

# -- what functions may look like -----------------------------------------------------------------------------------
SCALE = 2.5
WEIGHTS = np.array([1.0, -2.0, 0.5, 3.0, 1.5])
SETTINGS = {"power": 3, "shift": np.ones(5), "layers": [np.eye(5), (np.full(5, 2.0), "relu")]}


def helper(x: Any, factor: Any = 3.0, *, offset: Any = WEIGHTS) -> Any:
    return np.tanh(x) * factor + offset


def recursive(x: Any, n: int) -> Any:
    return x if n == 0 else recursive(np.sin(x), n - 1)


def with_helper(x: Any) -> Any:
    return helper(x) + helper(x, factor=0.5, offset=1.0) + recursive(x, 3)


def with_globals(x: Any) -> Any:
    return x * SCALE + WEIGHTS ** SETTINGS["power"] + SETTINGS["shift"] * SETTINGS["layers"][1][0] + SETTINGS["layers"][0] @ x


def with_control(x: Any, p: Any = None, mode: str = "a") -> Any:
    total = 0.0
    if p is None and mode == "a":
        for i in range(3):
            for j, part in enumerate(x):
                if j == i:
                    continue
                if j > 3:
                    break
                total += part * i
    while total is None:
        total = 1.0
    names = {f"v{k}": v for k, v in zip("abc", x, strict=False)}
    pairs = [a * b for a in x[:2] for b in x[2:4] if True]
    first, *rest = x[:3]
    return total + names["va"] + sum(pairs) + first - rest[-1], (lambda t: t * 2)(x[0]) if len(x) > 2 else 0.0


def with_nested(x: Any) -> Any:
    scale = 2.0
    calls = []

    def inner(y: Any, *more: Any, **options: Any) -> Any:
        calls.append(1)
        return sum([y, *more]) * scale * options.get("k", 1.0)

    def counter() -> Any:
        nonlocal scale
        scale = scale + 1.0
        return scale

    result = inner(x, x, k=3.0) + counter()
    return result * len(calls), list(map(inner, [x, x])), functools.reduce(lambda a, b: a * b, [x, x, x])


@dataclass
class Layer:
    weights: Any
    bias: float = 0.5

    @property
    def doubled(self) -> Any:
        return self.weights * 2

    def apply(self, x: Any) -> Any:
        return np.maximum(self.weights * x + self.bias, 0) + self.__private(x)

    def __private(self, x: Any) -> Any:
        return x * 0.5

    def __call__(self, x: Any) -> Any:
        return self.apply(x) + self.doubled

    @staticmethod
    def fixed(x: Any) -> Any:
        return math.pi * x


class Child(Layer):
    def __init__(self, weights: Any):
        super().__init__(weights, 1.5)
        self.more = weights[:2]

    def apply(self, x: Any) -> Any:
        return super().apply(x) * 2 + self.more[0]


LAYER, CHILD = Layer(WEIGHTS), Child(WEIGHTS)


def with_objects(x: Any) -> Any:
    made = Child(x)
    return LAYER(x) + CHILD(x) + LAYER.apply(x) + Layer.fixed(x) + made(x) + made.more[1] + LAYER.bias


def closure(weights: Any, factor: float) -> Callable[[Any], Any]:
    return lambda x: np.sum(x * weights) * factor


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    "function",
    [with_helper, with_globals, with_control, with_nested, with_objects, closure(WEIGHTS, 3.0), LAYER.apply, CHILD, Layer.fixed,
     functools.partial(helper, factor=2.0), lambda x: helper(x)],
    ids=lambda f: getattr(f, "__name__", type(f).__name__),
)  # fmt: skip
def test_functions(function: Callable[..., Any], symbolic: bool) -> None:
    same(function, V, symbolic=symbolic)


def test_the_line_is_the_users() -> None:
    traced, _ = trace(with_helper, V)
    lines = {instr.loc.line for instr in traced.func.body if instr.loc.line}
    first = helper.__code__.co_firstlineno
    assert first + 1 in lines
    assert all(instr.loc.file == __file__ for instr in traced.func.body if instr.loc.line)


def test_code_without_source() -> None:
    space: dict[str, Any] = {"np": np, "math": math, "W": V, "helper": helper, "LAYER": LAYER, "K": 2.0}
    exec(
        "def f(x):\n    y = np.zeros(len(x))\n    y[0] = math.sin(x[0])\n"
        "    return np.array([max(x[0], 1.0), abs(x[1])]), y + W * K + helper(x) + LAYER.weights + np.linalg.norm(x)\n"
        "g = lambda x: sum(x) + sum([v * 2 for v in x])\n",
        space,
    )
    traced = same(space["f"], V)
    assert {h.path for h in traced.hidden} >= {"global W", "global LAYER.weights"}
    same(space["g"], V)


# -- captures -------------------------------------------------------------------------------------------------------
def test_captured_arrays_are_read_again() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    box = {"w": weights, "k": 2.0}

    def f(x: Any) -> Any:
        return np.sum(x * box["w"]) * box["k"]

    x = np.array([0.5, -1.0, 2.0])
    traced, leaves = trace(f, x)
    assert [h.path for h in traced.hidden] == ["closure box['w']"]
    compare(evaluate(traced, leaves), f(x))
    weights[0] = 10.0
    compare(evaluate(traced, leaves), f(x))
    box["w"] = np.array([0.0, 1.0, 0.0])
    compare(evaluate(traced, leaves), f(x))
    assert traced.valid({})
    box["k"] = 3.0
    assert not traced.valid({})
    box["k"] = 2.0
    assert traced.valid({})
    box["new"] = 1.0
    assert not traced.valid({})


def test_a_captured_array_of_another_type_is_refused() -> None:
    box = [np.array([1, 2, 3])]

    def f(x: Any) -> Any:
        return x * box[0]

    traced, _ = trace(f, np.ones(3))
    box[0] = np.array([0.5, 1.5, 2.5])  # type: ignore[list-item]  # that is the point
    with pytest.raises(DTypeError, match="was i64 and has become float64"):
        traced.hidden[0].read()


def test_captured_functions_and_objects_are_guarded() -> None:
    space = {"inner": np.sin, "layer": Layer(WEIGHTS)}

    class Holder:
        function = staticmethod(helper)
        layer = Layer(WEIGHTS)

    def f(x: Any) -> Any:
        return Holder.function(x) + Holder.layer(x)

    traced, leaves = trace(f, V)
    assert traced.valid({})
    Holder.layer = Layer(WEIGHTS * 2)
    compare(evaluate(traced, leaves), f(V))
    Holder.layer.bias = 7.0
    assert not traced.valid({})
    Holder.layer.bias = 0.5
    Holder.function = staticmethod(recursive)  # type: ignore[assignment]  # that is the point
    assert not traced.valid({})
    assert space


def test_derived_values_are_traced() -> None:
    table = np.array([3.0, 1.0, 2.0])

    def f(x: Any) -> Any:
        return x * np.sort(table) + table.sum() + table[1:].mean() + np.asarray(table).T[0]

    traced, leaves = trace(f, np.ones(3))
    table[:] = [9.0, 4.0, 7.0]
    compare(evaluate(traced, leaves), f(np.ones(3)))


class Scaled:
    def __init__(self) -> None:
        self.w = np.array([1.0, -2.0])

    def method(self, x: Any) -> Any:
        return x * self.w

    def __call__(self, x: Any) -> Any:
        return x * self.w


@pytest.mark.parametrize(
    "make",
    (lambda s: s.method, lambda s: s, lambda s: functools.partial(lambda w, x: x * w, s.w)),
    ids=("method", "object", "partial"),
)
def test_what_methods_objects_and_partials_hold_is_read_again(make: Callable[[Any], Any]) -> None:
    held = Scaled()
    f = pb.compile(make(held))
    np.testing.assert_array_equal(f(3.0), [3, -6])
    held.w[:] = [5, 7]
    np.testing.assert_array_equal(f(3.0), [15, 21])
    assert f.cache_info().specializations == 1


def test_ufuncs_are_functions_of_their_operands() -> None:
    assert pb.compile(np.sin)(0.0) == 0.0
    assert pb.compile(np.arctan2).grad(0.0, x2=-2.0) == (-0.5, 0.0)


def test_unused_captures_are_dropped() -> None:
    def f(x: Any) -> Any:
        _ = WEIGHTS + 1 if False else WEIGHTS
        return x * 2

    assert not trace(f, V)[0].hidden


# -- lengths --------------------------------------------------------------------------------------------------------
def test_lengths_meet() -> None:
    traced, _ = trace(lambda x, y: np.sum(x[1:] * y), LONG, LONG[1:], symbolic=True)
    assert [str(p.type) for p in traced.func.params] == ["f64[n0]", "f64[n0 - 1]"]
    with pytest.raises(ShapeError) as error:
        trace(lambda x, y: x + y, LONG, LONG[1:], symbolic=True)
    assert str(error.value).splitlines()[0] == "operands could not be broadcast together with shapes (12,) (11,)"
    assert f"{__file__}:" in str(error.value)


def test_lengths_in_arithmetic() -> None:
    def f(x: Any) -> Any:
        n = x.shape[0]
        return (np.sum(x) / n, x * n, np.zeros(n - 1), np.arange(n) * 1.0, n // 2 + 0.0, x.reshape(n // 2, 2), np.ones((n, 2)),
                n**2 * x, 1.0 / n, -n + 0.5, n % 5 * 1.0, np.linspace(0, 1, n), x[n // 2], x[-n], np.eye(n)[0],
                float(n) + x)  # fmt: skip

    same(f, LONG)
    traced = same(f, LONG, symbolic=True)
    assert [str(p.type) for p in traced.func.params] == ["f64[n0]"]


def test_decisions_are_guarded() -> None:
    def f(x: Any) -> Any:
        if x.shape[0] > 10:
            return x[2:] + x[:-2]
        return x[:3] * 2

    traced = same(f, LONG, symbolic=True)
    assert not traced.valid({"n0": 10})
    assert traced.valid({"n0": 11})
    same(f, LONG[:9], symbolic=True)
    clamped = same(lambda x: x[20:], LONG, symbolic=True)
    assert not clamped.valid({"n0": 21})
    assert clamped.valid({"n0": 15})
    unrolled = same(lambda x: [v * k for k, v in enumerate(x)], LONG, symbolic=True)
    assert not unrolled.valid({"n0": 13})


def test_declared_lengths_have_no_hints() -> None:
    def f(x: Any, y: Any) -> Any:
        return np.mean(x) + np.sum(x[1:] * y), x[:3], np.concatenate([x, y])

    traced = PythonFrontend(f).trace([Spec(f64["n"]), Spec(f64["m"])])
    assert [str(p.type) for p in traced.func.params] == ["f64[n]", "f64[n - 1]"]
    assert [str(t) for t in traced.func.result] == ["f64", "f64[3]", "f64[2*n - 1]"]
    assert not traced.valid({"n": 2})
    assert traced.valid({"n": 5})
    with pytest.raises(TraceError, match="declared without data, so it has no number here"):
        PythonFrontend(lambda x: list(x)).trace([Spec(f64["n"])])


def test_a_declared_length_never_broadcasts() -> None:
    with pytest.raises(ShapeError, match="could not be broadcast"):
        PythonFrontend(lambda x, y: x + y).trace(
            [Spec(f64["n"], hint=(1,), declared=True), Spec(f64["m"], hint=(3,), declared=True)]
        )
    assert declared((f64["n"], f64)) == (f64["n"], f64[()])


def test_masks_define_a_length() -> None:
    def f(x: Any, y: Any) -> Any:
        kept = x > 0
        return np.sum(x[kept] * y[kept]), x[kept], np.sqrt(x[kept]).sum() / np.sum(kept)

    traced = same(f, LONG, LONG[::-1].copy(), symbolic=True)
    assert str(traced.func.result[1]) == "f64[k0]"
    with pytest.raises(TraceError, match="how many elements a mask selects is known only when the function runs"):
        trace(lambda x: x[x > 0][:3], LONG)


# -- stores ---------------------------------------------------------------------------------------------------------
STORES: list[Callable[[Any], Any]] = []


def store(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    STORES.append(function)
    return function


@store
def items(x: Any) -> Any:
    y = np.zeros(x.shape[0])
    y[0] = x[1]
    y[1:3] = x[:2] * 2
    y[-1] += 5.0
    y[1:] *= 3
    y[::2] -= x[::2]
    return y


@store
def views(x: Any) -> Any:
    y = np.ones((3, 4))
    row, column, turned = y[1], y[:, 2], y.T
    row[0] = x[0]
    column[:] = x[:3]
    turned[3, 0] = 7.0
    y[2] = 9.0
    flat = y.reshape(-1)
    flat[5] = x[1]
    part = y[1:, ::2]
    part += 1
    part[0][1] = -3.0
    return y, row, column, turned, flat, part


@store
def indices(x: Any) -> Any:
    y = x.copy()
    y[[0, 2]] = 5.0
    y[np.array([1, 1])] += 1.0
    y[y > 4] = x[0]
    y[np.array([True, False, False, False, True])] = x[:2]
    z = np.zeros((3, 5))
    z[:, 1] = 2.0
    z[[0, 2], [3, 4]] = x[:2]
    z[1:, [0, 2]] = x[:2]
    z[z > 1.5] *= 2
    z[..., -1] = z[..., 0]
    return y, z


@store
def traced_index(x: Any) -> Any:
    i = np.argmax(x)
    y = np.zeros_like(x)
    y[i] = 1.0
    z = np.zeros((5, 2))
    z[i] = x[:2]
    z[i][1] = 8.0
    y[np.argsort(x)] += np.arange(5)
    return y, z


@store
def whole(x: Any) -> Any:
    y = np.empty(5)
    y[:] = x
    y[...] = y * 2
    y += 1
    z = y
    z -= x
    w = np.array([x[0], 1.0, 2.0])
    w[1] = w[0] + w[2]
    w.sort()
    np.fill_diagonal(m := np.zeros((3, 3)), w)
    s = np.array(0.0)
    s += x[0]
    t = s
    t += 1.0
    n = np.zeros(3, dtype=int)
    n[0] = 2.7
    np.add(x, 1.0, out=y)
    return y, z, w, m, s, n


@store
def swaps(x: Any) -> Any:
    y = x * 1.0
    y[0], y[1] = y[1], y[0]
    a = [y[2], y[3]]
    a[0] = a[1]
    box = {"k": y}
    box["k"][4] = 1.5
    return y, a


@store
def broadcasts(x: Any) -> Any:
    y = np.zeros((2, 5))
    y[:] = x
    y[0] = np.ones((1, 5)) * 3
    y[:, :2] += np.array([[1.0], [2.0]])
    return y


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("function", STORES, ids=lambda f: f.__name__)
def test_stores(function: Callable[[Any], Any], symbolic: bool) -> None:
    same(function, V, symbolic=symbolic)


# -- refusals -------------------------------------------------------------------------------------------------------
class Counted:
    total = 0.0


LOG: list[Any] = []
COUNTED = Counted()


def chained(x: Any) -> Any:
    return np.where(0 < x < 1, x, 0.0)


def to_float(x: Any) -> Any:
    return np.full(3, math.comb(5, x[0]))


def trips(x: Any) -> Any:
    return [x for _ in range(np.argmax(x))]


def to_numpy(x: Any) -> Any:
    return np.random.default_rng(0).normal() + x


def clock(x: Any) -> Any:
    return x * time.perf_counter()


def dice(x: Any) -> Any:
    return x * random.random()


def opens(x: Any) -> Any:
    with open("/dev/null") as f:
        return x * len(f.read())


def unknown(x: Any) -> Any:
    return np.linalg.eigvals(x)


def keyword(x: Any) -> Any:
    return np.sum(x, axis=0, order="K")  # type: ignore[call-overload]  # that is the point


def writes_input(x: Any) -> Any:
    x[0] = 1.0
    return x


def writes_view_of_input(x: Any) -> Any:
    y = x.reshape(-1)[1:]
    y += 1
    return y


def writes_global(x: Any) -> Any:
    WEIGHTS[0] = x[0]
    return x


def appends(x: Any) -> Any:
    LOG.append(x)
    return x


def sets_attribute(x: Any) -> Any:
    COUNTED.total += 1
    return x


def assigns_global(x: Any) -> Any:
    global SCALE
    SCALE = 3.0
    return x * SCALE


def wrong_product(x: Any) -> Any:
    return x @ M


def wrong_shape(x: Any) -> Any:
    return x.reshape(2, 3)


def wrong_type(x: Any) -> Any:
    return x[np.array([0.5])]


def returns_object(x: Any) -> Any:
    return object()


def returns_nothing(x: Any) -> Any:
    x + 1.0  # the mistake is the subject


def maximum_of_arrays(x: Any) -> Any:
    return max(x, 0)


def generator(x: Any) -> Any:
    yield x


IN_PLACE = "would be changed in place; a compiled function modifies nothing that it is given"
REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str, str, str]] = [
    (chained, ShapeError,
     "the condition of '0 < x < 1' has shape (5,): the truth value of an array with more than one element is ambiguous",
     "return np.where(0 < x < 1, x, 0.0)", "use np.any(...) or np.all(...)"),
    (to_float, TraceError, "a traced value (f64) is used as a Python index or a count while the function is being traced",
     "return np.full(3, math.comb(5, x[0]))",
     "index arrays with it (x[i]) or use np.take; take a count from outside the function, or from a shape: x.shape[0]"),
    (trips, TraceError, "range() of a traced value: the number of trips is known only when the function runs",
     "return [x for _ in range(np.argmax(x))]",
     "loop over it with for, outside of comprehensions, or take the number from a shape: x.shape[0]"),
    (to_numpy, TraceError, "default_rng draws random numbers, which would happen once while tracing and never again",
     "return np.random.default_rng(0).normal() + x", "draw them outside and pass them as an argument"),
    (clock, TraceError, "perf_counter reads the clock, which would happen once while tracing and never again",
     "return x * time.perf_counter()", "read it outside and pass it as an argument"),
    (dice, TraceError, "random draws random numbers, which would happen once while tracing and never again",
     "return x * random.random()", "draw them outside and pass them as an argument"),
    (opens, TraceError, "a file is opened, which would happen once while tracing and never again",
     'with open("/dev/null") as f:', "do that outside the compiled function"),
    (writes_input, TraceError,
     f"the argument 'x' {IN_PLACE}", "x[0] = 1.0", "write to a copy: y = x.copy(), or build a new array"),
    (writes_view_of_input, TraceError,
     f"the argument 'x' {IN_PLACE}", "y += 1",
     "write to a copy: y = x.copy(), or build a new array"),
    (writes_global, TraceError,
     f"the captured array 'WEIGHTS' {IN_PLACE}",
     "WEIGHTS[0] = x[0]", "write to a copy: y = x.copy(), or build a new array"),
    (sets_attribute, TraceError,
     "the function sets the attribute 'total' of an object from outside; a compiled function has no side "
     "effects", "COUNTED.total += 1", "return the new value instead"),
    (assigns_global, TraceError, "the function assigns the global SCALE", "global SCALE", "return the value instead"),
    (wrong_product, ShapeError, "matmul: the last axis of (5,) and the second to last axis of (3, 4) differ: 5 and 3",
     "return x @ M", "transpose one factor, or check the order"),
    (wrong_shape, ShapeError, "cannot reshape array of size 5 into shape (2,3)", "return x.reshape(2, 3)",
     "the products of the two shapes must be equal"),
    (wrong_type, TraceError, "arrays used as indices must be of integer (or boolean) type, got a float",
     "return x[np.array([0.5])]", "convert it: i.astype(int)"),
    (maximum_of_arrays, TraceError, "max() compares whole arrays", "return max(x, 0)",
     "use np.maximum for elements, np.max to reduce"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "kind", "message", "code", "remedy"), REFUSED, ids=lambda v: getattr(v, "__name__", None))
def test_refusals(function: Callable[[Any], Any], kind: type[Exception], message: str, code: str, remedy: str) -> None:
    before = function.__code__.co_firstlineno
    with pytest.raises(kind) as error:
        trace(function, V)
    first, place, last = str(error.value).splitlines()
    assert first == message
    assert place.startswith(f"  at {__file__}:")
    line = int(place.removeprefix(f"  at {__file__}:").partition(":")[0])
    assert before < line < before + 5
    assert place.endswith(f": {code}")
    assert last == f"  {remedy}"


@pytest.mark.parametrize(
    ("other", "kind", "remedy"),
    [("hello", "a str", "a string chooses"), (None, "None", "None is not data"), ({}, "a dict", "a dict is a container")],
)
def test_operands_that_are_no_data(other: Any, kind: str, remedy: str) -> None:
    # before Python 3.11 the place of an operator within its line is not known, and the message is a general one
    said = f"{kind}, the other a traced array|a traced array and {kind} are no operands|is of type"
    for wrong in (lambda x: x @ other, lambda x: other + x, lambda x: np.maximum(x, other)):
        with pytest.raises(TraceError, match=f"(?s)({said}).*at .*lambda.*{remedy}"):
            trace(wrong, V)
    assert trace(lambda x: x if x != "mode" else -x, V) is not None


def test_shapes_in_errors_have_the_lengths_at_hand() -> None:
    tall = np.ones((20, 3))
    for wrong, text in (
        (lambda x: x @ np.ones(4), "matmul: the last axis of (20, 3) and the axis of (4,) differ: 3 and 4"),
        (lambda x: np.dot(x, np.ones((4, 9))), "(axis 1 of shape (20, 3)) and 4 (axis 0 of shape (4, 9))"),
        (lambda x: x + np.ones(4), "shapes (20,3) (4,)"),
        (lambda x: x.reshape(7, 9), "array of size 60 into shape (7,9)"),
        (lambda x: x.reshape(7, -1), "array of size 60 into shape (7,-1)"),
        (lambda x: np.broadcast_to(x, (20, 4)), "an array of shape (20, 3) cannot be broadcast to shape (20, 4)"),
        (lambda x: np.array([x, x[0]]), "different shapes: (20, 3), (3,)"),
        (lambda x: np.concatenate([x, np.ones((20, 4))]), "f64[20, 3]"),
    ):
        with pytest.raises((ShapeError, ValueError)) as error:
            pb.compile(wrong)(tall)
        assert text in str(error.value)


def test_other_refusals() -> None:
    with pytest.raises(UnsupportedError) as error:
        trace(unknown, M[:, :3])
    assert str(error.value).splitlines()[0] == "numpy.linalg.eigvals is not supported"
    assert (
        str(error.value).splitlines()[2]
        == "  the nearest supported one is numpy.linalg.eigvalsh; write it with supported functions"
    )
    with pytest.raises(UnsupportedError) as error:
        trace(lambda x: np.fft.fft(x), V)
    assert str(error.value).splitlines()[2] == "  write it with supported functions"  # no near name is better than a wrong one
    with pytest.raises(UnsupportedError, match=r"numpy.sum\(order=...\) is not supported"):
        trace(keyword, V)
    with pytest.raises(
        UnsupportedError, match=r"(?s)^numpy.nancumsum is.*nearest supported ones are numpy.nansum, numpy.cumsum;"
    ):
        trace(lambda x: np.nancumsum(x), V)
    with pytest.raises(TraceError, match=r"^numpy.outer needs 'b' too\n"):
        trace(lambda x: np.outer(x), V)  # type: ignore[call-overload]  # the mistake is the subject
    with pytest.raises(TraceError, match=r"^numpy.where takes a condition alone, or with two values\n"):
        trace(lambda x: np.where(x > 0, x), V)  # the mistake is the subject
    for wrong, remedy in ((lambda x: x ^ 2, "x**2"), (lambda x: 2.0 ^ x, "2.0**y"), (lambda x: x ^ x, "x**y")):
        with pytest.raises(
            UnsupportedError, match=f"(?s)^. is supported for booleans only.*is not a power.*write {re.escape(remedy)}$"
        ):
            trace(wrong, V)
    with pytest.raises(TraceError, match=r"(?s)^returns_nothing returned None; is a return missing\?.*def returns_nothing"):
        trace(returns_nothing, V)
    with pytest.raises(UnsupportedError, match=r"(?s)^an operand is complex.*complex numbers are not supported"):
        trace(lambda x: x * 1j, V)
    with pytest.raises(pb.DTypeError, match="complex numbers are not supported"):
        pb.compile(lambda x: x)(np.ones(3) * 1j)
    with pytest.raises(pb.DTypeError, match="is a complex number; complex numbers are not supported"):
        pb.compile(lambda x: x)(1j)
    with pytest.raises(TraceError, match="the function changes global LOG, which belongs to the caller"):
        trace(appends, V)
    assert not LOG
    with pytest.raises(TraceError, match="returns_object returns a object; arrays, numbers and containers of them"):
        trace(returns_object, V)
    with pytest.raises(UnsupportedError, match="generator is a generator or a coroutine"):
        PythonFrontend(generator)
    with pytest.raises(UnsupportedError, match=r"takes \*xs; a compiled function has a fixed number of parameters"):
        PythonFrontend(lambda *xs: xs)
    with pytest.raises(DTypeError, match=r"element type complex128|is complex"):
        trace(lambda x: x * np.ones(5, complex), V)
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 5"):
        trace(lambda x: x[7], V)


def test_a_leaked_array_says_so() -> None:
    kept: dict[str, Any] = {}

    class Box:
        pass

    def f(x: Any) -> Any:
        box = Box()
        box.value = x * 2  # type: ignore[attr-defined]  # made here
        kept_by.append(box)
        return x

    kept_by: list[Any] = []
    with pytest.raises(PullbackError):
        trace(f, V)
    assert not kept


def test_asserts_become_checks() -> None:
    def f(x: Any) -> Any:
        assert np.all(x > -5), "too small"
        assert len(x) == 5
        return x * 2

    traced, leaves = trace(f, V)
    compare(evaluate(traced, leaves), V * 2)
    with pytest.raises(PullbackError, match=r"assertion failed: too small"):
        evaluate(traced, [V - 9])


def test_printing_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        print("x is", x, f"{x}")
        return x * 2

    same(f, V)
    assert "x is <traced f64[5]> <traced f64[5]>" in capsys.readouterr().out


# -- more of the language, and of NumPy's ---------------------------------------------------------------------------
@functools.lru_cache
def remembered(n: int) -> Any:
    return n * 2


def with_statements(x: Any) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(np.abs(x))
    match len(x):
        case 5:
            y = y * 2
        case _:
            y = x
    try:
        z = {"b": y}["a"]
    except KeyError:
        z = y
    finally:
        z = z + 1
    if (n := len(x)) > 3:
        z = z * n
    a = b = z

    def twice(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return f(*args, **kwargs) * 2

        return wrapper

    @twice
    def inner(t: Any, *, k: Any = 2.0) -> Any:
        return t * k

    del y
    return inner(a) + inner(*[b], k=3.0) + remembered(3) * x


def with_brackets(x: Any) -> Any:
    return np.r_[x, x[:2], 1.0, 0:3], np.c_[x, x * 2], np.r_[0:1:4j]


def with_ufunc_methods(x: Any) -> Any:
    y = np.zeros(5)
    np.add.at(y, [0, 0, 1], x[:3])
    np.subtract.at(y, [2, 2], 1.0)
    return y, np.add.reduce(M), np.multiply.accumulate(x), np.maximum.reduce(x), np.add(x, 1.0, dtype=np.float32)


def with_copies(x: Any) -> Any:
    y = np.zeros((3, 5))
    for copy in (np.take(y, 0, axis=0), y.flatten(), np.array(y), y.astype(float), y.copy(), y[[0, 1]], +y, np.sort(y)):
        copy[...] = 9.0
    shared = np.asarray(y)
    shared[0, 0] = 1.0
    np.atleast_2d(y)[0, 1] = 2.0
    y.astype(float, copy=False)[0, 2] = x[0]
    np.split(y, 3)[1][...] = 4.0
    y.T[4, 2] = 5.0
    return y


def with_types(x: Any) -> Any:
    assert isinstance(x, np.ndarray)
    assert isinstance(x[0], np.floating)
    assert type(x) is np.ndarray
    assert np.isscalar(x[0])
    assert not isinstance(math.sin(x[0]), np.ndarray)
    return type(x[0])(2) * x, math.floor(x[2]) * 1.0, x.dtype == np.float64 and x * 1.0, np.float32(x)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("function", [with_statements, with_brackets, with_ufunc_methods, with_copies, with_types])
def test_more_functions(function: Callable[..., Any], symbolic: bool) -> None:
    same(function, V, symbolic=symbolic)


def test_narrow_and_wide_integers() -> None:
    table = np.array([3, 1, 2], dtype=np.int32)
    same(lambda x: x[table % 3] * table, np.array([0.5, 1.5, 2.5]))
    small = np.array([3, 1, 2], dtype=np.int8)
    with pytest.raises(DTypeError) as error:
        trace(lambda x: x * small, np.ones(3))
    assert "has the element type int8; float64, float32, int64, int32, uint32 or bool expected" in str(error.value)


def test_writing_to_what_may_be_a_copy() -> None:
    def f(x: Any) -> Any:
        y = (x.T * 2).T
        flat = y.reshape(-1)
        flat[0] = 1.0
        return y

    with pytest.raises(TraceError, match="may be a view or a copy, depending on the layout in memory"):
        trace(f, M)

    def g(x: Any) -> Any:
        y = (x.T * 2).T
        flat = y.reshape(-1)
        y[0, 0] = 1.0
        return flat

    with pytest.raises(TraceError, match=r"whether this array sees the write .* depends on the layout in memory"):
        trace(g, M)


def test_kinds_in_place() -> None:
    def f(x: Any) -> Any:
        n = np.zeros(5, dtype=int)
        n += x
        return n

    with pytest.raises(DTypeError, match="cannot cast the result from float64 to int64 in place"):
        trace(f, V)


def test_compiled_functions_within_functions() -> None:
    inner = pb.compile(lambda w, y: np.sum(w * y[1:]) + np.mean(WEIGHTS))

    def f(x: Any, y: Any) -> Any:
        q = pb.name("q", inner(x, y))
        return q * 2, pb.grad(inner, wrt="w")(x, y)

    traced, leaves = trace(f, LONG[1:], LONG, symbolic=True)
    assert [str(p.type) for p in traced.func.params] == ["f64[n0]", "f64[n0 + 1]", "f64[5]"]
    assert [name for name, _ in traced.func.names] == ["q"]
    value = np.sum(LONG[1:] * LONG[1:]) + np.mean(WEIGHTS)
    compare(evaluate(traced, leaves), (value * 2, LONG[1:]))


def test_derivatives_of_closures_over_traced_values() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for k in range(3):

            def loss(w: Any, k: int = k) -> Any:
                return np.sum(w**3) * k + np.sum(x * w)

            total = total + pb.grad(loss, wrt="w")(x)
        return total

    traced, leaves = trace(f, LONG, symbolic=True)
    compare(evaluate(traced, leaves), 3 * LONG**2 * 3 + 3 * LONG)


def test_the_named_values_of_a_trace() -> None:
    with pytest.raises(TraceError, match="the name 'q' is given twice"):
        trace(lambda x: pb.name("q", x) + pb.name("q", x * 2), V)
    assert pb.name("q", 3.0) == 3.0


def test_a_string_chooses_and_each_choice_is_compiled() -> None:
    @pb.compile
    def f(x: Any, mode: str = "sin", options: Any = None) -> Any:
        return np.sin(x) if mode == "sin" else np.cos(x) * len(options["name"])

    assert f(2.0) == np.sin(2.0)
    assert f(2.0, "cos", {"name": "ab"}) == 2 * np.cos(2.0)
    assert f.grad(2.0, mode="cos", options={"name": "abc"}) == -3 * np.sin(2.0)
    assert f.grad(2.0, seed=-2.0) == -2 * np.cos(2.0)
    assert f.cache_info().specializations == 3


def _catches(x: Any) -> Any:
    try:
        if x[0] > 0:
            return x
    except Exception:
        return x * 100
    return -x


def _suppresses(x: Any) -> Any:
    with contextlib.suppress(Exception):
        return np.linalg.eigvals(x)
    return -x


def _expects_an_index_error(x: Any) -> Any:
    try:
        return x[10]
    except IndexError:
        return x[0]


def test_a_refusal_cannot_be_caught() -> None:
    """A handler is for what NumPy raises; what cannot be traced must not choose the branch that is compiled."""
    with pytest.raises(TraceError):
        pb.compile(_catches)(V)
    with pytest.raises(UnsupportedError, match=r"numpy\.linalg\.eigvals"):
        pb.compile(_suppresses)(M)
    assert pb.compile(_expects_an_index_error)(V) == V[0]


def test_integers_beside_integer_arrays_stay_integers() -> None:
    add = pb.compile(lambda a, b: a + b)
    large = np.array([2**53 + 1])
    assert add(large, 1).tolist() == (large + 1).tolist()
    assert add(3, 4) == 7.0
    assert isinstance(add(3, 4), float)


def test_inserting_and_appending_take_numpys_types() -> None:
    single = np.ones(2, np.float32)
    assert pb.compile(lambda x: np.append(x, 1e8))(single).dtype == np.float64
    assert pb.compile(lambda x: np.insert(x, 1, 5.7))(np.array([1, 2])).tolist() == [1, 5, 2]
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        pb.compile(lambda x: np.insert(x, 7, 5.0))(np.ones(3))


@pytest.mark.parametrize("length", [3, 9])
def test_single_precision_stays(length: int) -> None:
    single = np.linspace(0, 1, length, dtype=np.float32)
    assert pb.compile(lambda x: np.gradient(x, 0.5))(single).dtype == np.float32
    for function in (lambda x: np.quantile(x, 0.25), lambda x: np.percentile(x, 50), lambda x: np.median(x)):
        assert isinstance(pb.compile(function)(single), np.float32)


def test_integers_and_booleans_in_functions_of_numbers() -> None:
    whole, truth = np.array([3, -1, 2]), np.array([True, False, True])
    assert pb.compile(lambda x: np.fmax(x, 1))(whole).tolist() == [3, 1, 2]
    assert pb.compile(lambda x: np.fmin(x, 1))(whole).tolist() == [1, -1, 1]
    assert pb.compile(lambda x: np.outer(x, x))(truth).tolist() == np.outer(truth, truth).tolist()


def test_writing_through_a_reshaped_vector() -> None:
    """A vector that the function made is contiguous, so its reshape is a view."""

    def f(x: Any) -> Any:
        y = x * 2
        w = y.reshape(1, -1)
        w[0, 1] = 4.0
        return y

    for x in (np.arange(3.0), np.arange(24.0)[::2]):
        assert pb.compile(f)(x).tolist() == f(x).tolist()
