"""Loops of a value and of its gradient that are run as one: the same value bit by bit, the same gradient, the same errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pullback as pb


def pairs(x, m):
    energy = 0.0
    for i in range(len(m)):
        for j in range(i + 1, len(m)):
            dx, dy = x[2 * i] - x[2 * j], x[2 * i + 1] - x[2 * j + 1]
            energy = energy - m[i] * m[j] / np.sqrt(dx * dx + dy * dy + 0.1)
    return energy


def two_sums(x, m):
    s, t = 1.0, 0.5
    for i in range(len(m)):
        s = s + np.sin(x[i]) * m[i]
        t = t - np.exp(x[2 * i]) / m[i]
    return s * t


def weighted(x, m):
    total = 0.0
    for i in range(len(m)):
        if x[i] > 0.0:
            total = total + m[i] * x[i] * x[i]
        else:
            total = total - x[i] * m[i - 1]
    return total


def product(x, m):
    """The way back needs what the loop has come to."""
    total = 1.0
    for i in range(len(m)):
        total = total * (1.0 + 0.1 * np.tanh(x[i] * m[i]))
    return total


@pytest.mark.parametrize("f", [pairs, two_sums, weighted, product])
@pytest.mark.parametrize("count", [9, 12, 40])
def test_values_and_gradients(f, count):
    rng = np.random.default_rng(count)
    x, m = rng.normal(size=2 * count), rng.uniform(0.5, 1.5, count)
    compiled = pb.compile(f)
    value, (a, b) = pb.value_and_grad(compiled, wrt=(0, 1))(x, m)
    assert value == compiled(x, m)
    np.testing.assert_allclose(value, f(x, m), rtol=1e-13)
    kept, pull = compiled.pullback(x, m, wrt=(0, 1))  # two kernels, whose loops are apart
    c, d = pull(1.0)
    assert value == kept
    np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(b, d, rtol=1e-12, atol=1e-14)
    step = rng.normal(size=2 * count)
    slope = (f(x + 1e-6 * step, m) - f(x - 1e-6 * step, m)) / 2e-6
    np.testing.assert_allclose(a @ step, slope, rtol=1e-6)


def test_one_loop_is_left():
    from pullback.ir.core import walk
    from pullback.passes.together import together

    x, m = np.linspace(-1.0, 1.0, 24), np.linspace(0.5, 1.5, 12)
    for f, before, after in ((pairs, 4, 2), (two_sums, 2, 2), (product, 2, 2)):
        made = pb.compile(f).specialization(x, m).default_adjoint()
        merged = together(made)
        assert [sum(i.op.name == "for" for i in walk(g.block)) for g in (made, merged)] == [before, after]


def test_what_fails_fails_as_before():
    def beyond(x, m):
        total = 0.0
        for i in range(len(m)):
            total = total + np.exp(x[i]) * m[i]
        return total

    x, m = np.linspace(0.0, 1.0, 10), np.linspace(0.0, 1.0, 12)
    compiled = pb.compile(beyond)
    with pytest.raises(IndexError) as plain:
        compiled(x, m)
    with pytest.raises(IndexError) as both:
        pb.value_and_grad(compiled, wrt=(0, 1))(x, m)
    assert str(plain.value) == str(both.value)


def test_infinite_slopes_are_guarded():
    def roots(x, m):
        total = 0.0
        for i in range(len(m)):
            total = total + np.where(x[i] > 0.0, np.sqrt(x[i]), 0.0) * m[i]
        return total

    x, m = np.array([0.0, 4.0, 0.0, 1.0] * 3), np.linspace(0.5, 1.5, 12)
    _, slope = pb.value_and_grad(pb.compile(roots), wrt=0)(x, m)
    np.testing.assert_allclose(slope, np.where(x > 0, m * 0.5 / np.sqrt(np.where(x > 0, x, 1.0)), 0.0), rtol=1e-14)


def test_rows_counted_from_the_end_are_read_in_vectors():
    """Where a row begins is computed outside of the loop along it, so however that is done its elements lie side by side."""

    def sweep(A, x):
        y = x.copy()
        for i in range(len(x) - 1, -1, -1):
            y[i] = y[i] - 0.1 * (A[i] @ y)
        return np.sum(y)

    A, x = np.linspace(-1.0, 1.0, 400).reshape(20, 20), np.linspace(0.0, 1.0, 20)
    compiled = pb.compile(sweep)
    value, (a, b) = pb.value_and_grad(compiled, wrt=(0, 1))(A, x)
    np.testing.assert_allclose(value, sweep(A, x), rtol=1e-13)
    assert not re.search(r"extractelement <\d+ x i64>", compiled.ir("llvm", A, x))  # positions of single elements
    h = 1e-6
    np.testing.assert_allclose(b[3], (sweep(A, x + h * (np.arange(20) == 3)) - value) / h, rtol=1e-4)
    np.testing.assert_allclose(
        a[5, 2], (sweep(A + h * np.outer(np.arange(20) == 5, np.arange(20) == 2), x) - value) / h, rtol=1e-4
    )
