"""Variables: gradients that accumulate in leaves, through several compiled functions."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import numpy as np
import pytest

import pullback as pb

add = pb.compile(lambda x, y: x + y, name="add")
multiply = pb.compile(lambda x, y: x * y, name="multiply")
square = pb.compile(lambda x: x * x, name="square")
total = pb.compile(lambda a, b: np.sum(a - b), name="total")
X = np.array([1.0, -2.0, 3.0])


def test_the_chain_rule_through_two_functions():
    x, y, z = map(pb.variable, (4.0, -3, 5.0))
    f = multiply(add(x, y), z)
    assert f.value == 5.0
    f.backward()
    assert (x.grad, y.grad, z.grad) == (5.0, 5.0, 1.0)
    assert all(type(v.grad) is float for v in (x, y, z))


def test_backward_accumulates_until_zero_grad():
    x, y = pb.variable(2.0), pb.variable(-3.0)
    f = multiply(x, y)
    f.backward()
    f.backward(-2.0)
    assert (x.grad, y.grad) == (3.0, -2.0)
    square(x).backward()  # a second function adds to the same leaf
    assert x.grad == 7.0
    x.zero_grad()
    assert (x.grad, y.grad) == (None, -2.0)
    f.backward()
    assert (x.grad, y.grad) == (-3.0, 0.0)


def test_a_value_that_is_used_twice_gets_both_contributions():
    x = pb.variable(3.0)
    multiply(x, x).backward()
    assert x.grad == 6.0
    x.zero_grad()
    y = square(x)
    multiply(add(y, 1.0), add(y, x)).backward()  # (x^2 + 1)(x^2 + x)
    assert x.grad == 2 * 3 * (9 + 3) + (9 + 1) * (2 * 3 + 1)


def test_outputs_that_are_no_scalars_need_a_seed():
    x = pb.variable(X)
    y = square(x)
    with pytest.raises(pb.SeedError) as error:
        y.backward()
    assert str(error.value) == (
        "the output of square has shape (3,); a seed, the gradient of some loss with respect to it, must be given: "
        "seed=np.ones((3,)) for the gradient of its sum"
    )
    with pytest.raises(pb.SeedError, match=r"the seed has shape \(2,\), the output of square has shape \(3,\)"):
        y.backward([1, 2])
    assert x.grad is None
    y.backward([1, -2, 0.5])
    np.testing.assert_array_equal(x.grad, 2 * X * [1, -2, 0.5])
    y.backward(-1)
    np.testing.assert_array_equal(x.grad, 2 * X * [0, -3, -0.5])


def test_both_seed_modes():
    x = pb.variable(X)
    square(x).backward([[1, 2, 3], [-2, 0, 1]], seed_mode="broadcast")
    np.testing.assert_array_equal(x.grad, 2 * X * [-1, 2, 4])
    a, b = pb.variable([[1, 2], [3, 4]]), pb.variable(np.ones((2, 2)))
    seed = np.array([[1.0, 2.0], [3.0, 4.0]])
    c = total(square(a), b)
    c.backward(seed, seed_mode="expand")
    np.testing.assert_array_equal(a.grad, 2 * a.value * seed)
    np.testing.assert_array_equal(b.grad, -seed)
    with pytest.raises(pb.SeedError, match="takes an output that is a sum"):
        square(x).backward(np.ones((2, 3)), seed_mode="expand")
    with pytest.raises(pb.SeedError, match="seed_mode is"):
        square(x).backward(1, seed_mode="other")


def test_later_changes_of_the_inputs_do_not_matter():
    data, other = X.copy(), X.copy()
    x = pb.variable(data)
    y, s = multiply(square(x), other), total(x, other)
    data[:], other[:] = 100.0, 7.0
    y.backward(1.0)
    np.testing.assert_array_equal(x.grad, 2 * X * X)
    s.backward([1, -2, 3], seed_mode="expand")
    np.testing.assert_array_equal(x.grad, 2 * X * X + [1, -2, 3])


def test_structures_of_variables_and_of_outputs():
    @dataclass
    class Layer:
        w: object
        b: object

    f = pb.compile(lambda p, x: {"y": p["layer"].w * x + p["layer"].b, "best": np.argmax(x)})
    w = pb.variable(np.arange(3.0))
    out = f({"layer": Layer(w, 0.5)}, X)
    assert out["best"] == 2 and not isinstance(out["best"], pb.Variable)
    out["y"].backward([1, 2, -1])
    np.testing.assert_array_equal(w.grad, X * [1, 2, -1])


def test_single_precision_stays():
    x = pb.variable(X.astype(np.float32))
    square(x).backward(-1.0)
    assert x.grad.dtype == np.float32


def test_a_training_loop():
    rng = np.random.default_rng(3)
    data = rng.normal(size=(30, 2))
    target = data @ [2.0, -1.0]
    loss = pb.compile(lambda w: np.mean((data @ w - target) ** 2))
    w = pb.variable(np.zeros(2))
    for _ in range(200):
        w.zero_grad()
        loss(w).backward()
        w.value = w.value - 0.1 * w.grad
    np.testing.assert_allclose(w.value, [2.0, -1.0], atol=1e-6)  # gradient descent converges linearly


def test_what_variables_refuse():
    x = pb.variable(X)
    arithmetic = (
        "variables are arguments of compiled functions, they have no arithmetic of their own; "
        "put the expression into a function: pb.compile(lambda x, y: ...)(x, y)"
    )
    for operation in (lambda: x + 1.0, lambda: 2.0 * x, lambda: X - x, lambda: np.sin(x), lambda: np.sum(x), lambda: x[0]):
        with pytest.raises(TypeError) as error:
            operation()
        assert str(error.value) == arithmetic
    for conversion in (lambda: float(x), lambda: bool(x), lambda: np.asarray(x), lambda: square.grad(x, seed=1.0)):
        with pytest.raises(TypeError, match=r"a variable is not an array or a number; use its \.value"):
            conversion()
    with pytest.raises(pb.PullbackError, match="this variable is a leaf"):
        x.backward()
    with pytest.raises(pb.DTypeError, match="a variable is floating, got i64"):
        pb.variable(np.arange(3))


def test_nothing_is_kept_that_nobody_holds():
    x = pb.variable(2.0)
    y = square(x)
    watch = weakref.ref(y)
    del y
    assert watch() is None  # at once: there is no cycle
    f = pb.compile(lambda v: v * 3.25)
    f(pb.variable(1.0)).backward()
    watch = weakref.ref(f)
    del f
    gc.collect()
    assert watch() is None
