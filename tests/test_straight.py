"""Long straight-line code: calls of one function side by side, values that go from chunk to chunk, checks in between."""

import math
import random

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core import Builder, Func, Value
from pullback.ir.ops import OPS
from pullback.ir.types import Type, f64
from pullback.llvm import Options, compile_kernel, engine, plain
from pullback.llvm.emit import emit
from pullback.llvm.straight import LANES, Together, side_by_side
from pullback.loops.lower import lower
from pullback.loops.nest import Node


def long_formula(steps):
    """``steps`` operations of each other's results, every third a function."""

    def formula(x):
        v = list(x)
        for k in range(steps):
            a, b = v[(7 * k) % len(v)], v[(5 * k + 3) % len(v)]
            v.append((np.sin(a), a * b, np.tanh(a), a - b, np.exp(-a * a), a + 0.5 * b)[k % 6])
        total = v[-1]
        for part in v[:-1]:
            total = total + part
        return total

    return formula


def by_hand(steps, x):
    """The same in Python, with the tangents of each input."""
    v = [(t, np.eye(len(x))[k]) for k, t in enumerate(x)]
    for k in range(steps):
        (a, da), (b, db) = v[(7 * k) % len(v)], v[(5 * k + 3) % len(v)]
        e = math.exp(-a * a)
        v.append(
            (
                (math.sin(a), math.cos(a) * da), (a * b, a * db + b * da), (math.tanh(a), (1 - math.tanh(a) ** 2) * da),
                (a - b, da - db), (e, -2 * a * e * da), (a + 0.5 * b, da + 0.5 * db),
            )[k % 6]
        )  # fmt: skip
    return sum(t for t, _ in v), sum(d for _, d in v)


@pytest.mark.parametrize("steps", [6, 100, 700, 2500])  # one function; several; chunks that are translated hastily
def test_gradient_of_a_long_formula(steps):
    x = np.array([0.3, -0.7, 1.1, 0.2])
    value, gradient = pb.value_and_grad(long_formula(steps))(x)
    expected, slopes = by_hand(steps, x)
    np.testing.assert_allclose(value, expected, rtol=1e-11)  # thousands of roundings, in another order
    np.testing.assert_allclose(gradient, slopes, rtol=1e-10)


def many_calls(count, name):
    """A function of ``count`` numbers that applies ``name`` to each and adds the results up from the left."""
    b = Builder()
    params = [Value(f"x{k}", Type(f64)) for k in range(count)]
    made = [b.emit(OPS[name], (p,))[0] for p in params]
    total = made[0]
    for value in made[1:]:
        total = b.add(total, value)
    return Func("many", b.close("return", [*made, total], params))


@pytest.mark.parametrize("name", ["sin", "cos", "exp", "tanh", "log1p"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
def test_calls_side_by_side_give_the_bits_of_single_ones(name, count):
    x = np.linspace(0.1, 700.0, count)
    together = compile_kernel(many_calls(count, name))(list(x))
    for k in range(count):
        (alone, _) = compile_kernel(many_calls(1, name))([x[k]])
        assert np.float64(alone).tobytes() == np.float64(together[k]).tobytes()


def test_calls_stand_together_after_what_they_need():
    body = [s for s in lower(many_calls(6, "sin")).body if isinstance(s, Node)]
    order = side_by_side(body)
    calls = [s for s in order if isinstance(s, Together)]
    assert [len(c.nodes) for c in calls] == [LANES, 2]
    known = set()
    for statement in order:
        for node in statement.nodes if isinstance(statement, Together) else (statement,):
            assert all(a in known for a in node.args if a.kind != "const")
        known.update(statement.nodes if isinstance(statement, Together) else (statement,))


def test_a_chain_of_calls_has_none_side_by_side():
    b = Builder()
    x = Value("x", Type(f64))
    value = x
    for _ in range(5):
        value = b.sin(value)
    func = Func("chain", b.close("return", [value], [x]))
    assert not any(isinstance(s, Together) for s in side_by_side(lower(func).body))


def formula_of_all_kinds(steps):
    """Plain operations, functions and constants; now and then something that plain code cannot hold, and what is used late."""
    b, rng = Builder(), random.Random(3)
    params = [Value(f"x{k}", Type(f64)) for k in range(8)]
    values = list(params)
    for k in range(steps):
        x, y = rng.choice(values[-60:]), rng.choice(values[-60:] if k % 50 else values)
        kind = rng.choice(["add", "sub", "mul", "div", "neg", "abs", "sqrt", "sin", "exp", "pow", "square", "constant"])
        if k % 2000 == 1999:
            values += [b.maximum(x, y)] * 30
        elif kind == "pow":
            values.append(b.pow(b.abs(x), b.const(1.5)))
        elif kind == "square":
            values.append(b.mul(x, x))
        elif kind == "constant":
            values.append(b.sub(b.const(rng.choice([1.25, 0.75, -0.0])), x))
        elif kind in ("add", "sub", "mul", "div"):
            values.append(b.emit(OPS[kind], (x, y))[0])
        else:
            values.append(b.emit(OPS[kind], (x,))[0])
    return Func("all_kinds", b.close("return", values[-40:] + values[100::13], params))


@pytest.mark.skipif(not plain.possible(), reason="the machine code is that of another machine")
@pytest.mark.parametrize(
    "x",
    [
        [0.3, -0.7, 1.1, 0.2, -1.9, 3.0, 0.01, 5.5],
        [0.0, -0.0, 1e-310, -1e300, float("inf"), 1e308, -2.5, 1.0],
        [float("nan"), 1.0, 2.0, -1e-320, 1e5, -float("inf"), 0.5, 0.25],
    ],
)
def test_plain_code_gives_the_bits_of_llvms(x):
    func = formula_of_all_kinds(6000)
    assert emit(lower(func), engine.features()).chunks.count(".globl") >= 2  # pieces of it, with others in between
    ours, theirs = (np.array(compile_kernel(func, Options(opt=opt))(x)) for opt in ("auto", 1))
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours[ours == 0]), np.signbit(theirs[ours == 0]))


def test_plain_code_uses_slots_again():
    b = Builder()
    x = Value("x", Type(f64))
    value = x
    for k in range(5000):  # each needs two values at a time
        value = b.sub(b.mul(value, x), b.div(value, x)) if k % 2 else b.add(b.neg(value), x)
    emitted = emit(lower(Func("chain", b.close("return", [value], [x]))), engine.features())
    assert emitted.frame == 0  # few enough for the stack
    assert not plain.possible() or "module asm" in emitted.chunks


def test_captured_steps_are_compared_as_a_whole():
    steps = [("mul", 0, 1), ("sin", 2, 0.0)]

    @pb.compile
    def f(x):
        v = list(x)
        for name, a, b in steps:
            v.append(v[a] * v[b] if name == "mul" else np.sin(v[a]) + b)
        return v[-1]

    x = np.array([0.5, -2.0])
    assert f(x) == pytest.approx(math.sin(-1.0))
    steps[1] = ("sin", 2, 1.0)
    assert f(x) == pytest.approx(math.sin(-1.0) + 1)
    steps[1] = ("sin", 2, -0.0)
    assert f.cache_info().specializations == 2
    f(x)
    assert f.cache_info().specializations == 3  # the sign of a zero counts
    steps.append(("mul", 3, 3))
    assert f(x) == pytest.approx(math.sin(-1.0) ** 2)


def test_what_a_check_tells_is_there_when_it_holds():
    """The lengths in a check's message come from another piece of the code and are used after the check, too."""

    @pb.compile
    def f(x, mask, y):
        chosen = x[mask]
        return np.sum(chosen * y) + chosen.shape[0] * np.sum(y)

    x, mask = np.array([1.0, -2.0, 3.5]), np.array([True, False, True])
    assert f(x, mask, np.array([2.0, -1.0])) == pytest.approx(-1.5 + 2 * 1.0)
    with pytest.raises(pb.PullbackError):
        f(x, mask, np.array([2.0, -1.0, 4.0]))
