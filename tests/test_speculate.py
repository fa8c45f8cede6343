"""Products without guards, and the kernel with guards that takes over: Note [Speculation] in ``passes/speculate.py``."""

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core import walk
from pullback.passes.speculate import speculate

inf, nan = np.inf, np.nan


def vjp_kernel(f):
    """The last kernel of the Function's latest specialization."""
    return list(f.specialization()._kernels.values())[-1]


def guards_used(f):
    return vjp_kernel(f)._careful is not None


def test_plain_products_where_nothing_is_infinite():
    f = pb.compile(lambda x: np.sum(np.sqrt(x) * x))
    x = np.linspace(0.5, 2.0, 20)
    np.testing.assert_allclose(f.grad(x), 1.5 * np.sqrt(x), rtol=1e-14)
    assert not guards_used(f)
    assert "select" not in f.ir("loops")


@pytest.mark.parametrize("count", [1, 3, 9, 40, 3000])
def test_zero_times_infinity_is_zero_in_every_lane(count):
    f = pb.compile(lambda x, y: np.sum(np.sqrt(x) * y))
    for place in (0, count // 2, count - 1):
        x = np.full(count, 4.0)
        y = np.full(count, -3.0)
        x[place] = y[place] = 0.0
        gx, gy = f.grad(x, y)
        expected = np.full(count, -0.75)
        expected[place] = 0.0
        np.testing.assert_array_equal(gx, expected)
        np.testing.assert_array_equal(gy, np.sqrt(x))
    assert guards_used(f)


def test_a_nan_of_the_input_stays_one():
    f = pb.compile(lambda x, y: np.sum(np.sqrt(x) * y))
    gx, _ = f.grad(np.array([nan, 4.0]), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(gx, [nan, 0.25])


def test_lanes_that_where_leaves_out_need_no_guards():
    f = pb.compile(lambda x: np.sum(np.where(x > 0, np.log(x) * x, -x)))
    x = np.linspace(-3.0, 4.0, 29)
    with np.errstate(all="ignore"):
        expected = np.where(x > 0, np.log(x) + 1, -1)
    np.testing.assert_allclose(f.grad(x), expected, rtol=1e-14)
    assert not guards_used(f)


def test_equal_products_with_different_guards():
    """Without their guards both are one kernel."""
    x, zero = np.zeros(12), np.zeros(12)

    def first(x, y):
        return np.sum(np.sqrt(x) * y)

    for _ in range(2):
        f, g = pb.compile(first), pb.compile(first)
        np.testing.assert_array_equal(f.grad(x, zero, wrt="x"), zero)
        np.testing.assert_array_equal(g.grad(x, zero, wrt="x"), zero)


def test_in_loops_and_branches():
    def f(x, y, n):
        total = 0.0
        for i in range(n):
            if y[i] > 0.5:
                total = total + np.sqrt(x[i]) * y[i]
            else:
                total = total + np.sqrt(x[i]) * 0.0 * y[i]
        return total

    g = pb.compile(f)
    x, y = np.array([0.0, 4.0, 9.0, 0.0] * 4), np.array([0.0, 1.0, 0.25, 0.0] * 4)
    np.testing.assert_array_equal(g.grad(x, y, 16, wrt="x"), [0.0, 0.25, 0.0, 0.0] * 4)
    assert guards_used(g)
    h = pb.compile(f)
    h.grad(x + 1, y, 16, wrt="x")
    assert not guards_used(h)


def test_what_decides_keeps_its_guard():
    """A loop whose condition depends on a derivative makes the same trips with and without guards."""
    slope = pb.grad(pb.compile(lambda x, y: np.sqrt(x) * y), wrt="x")

    @pb.compile
    def f(x, y, w):
        trips = 0.0
        while slope(x, y) * w < 1.0 and trips < 3.0:
            trips = trips + 1.0
            w = w * 2.0
        return w + trips * x

    assert f(0.0, 0.0, 1.0) == 8.0
    value, grads = f.value_and_grad(0.0, 0.0, 1.0)
    assert value == 8.0
    assert grads == (3.0, 0.0, 8.0)


def test_out_and_residuals():
    f = pb.compile(lambda x, y: np.sqrt(x) * y)
    x, y = np.zeros(10), np.zeros(10)
    out = np.full(10, 7.0)
    f.grad(x, y, seed=-2.0, wrt="x", out=out)
    np.testing.assert_array_equal(out, 0.0)
    _, pull = f.pullback(x, y)
    for _ in range(2):
        np.testing.assert_array_equal(pull(-2.0)[0], 0.0)
    np.testing.assert_array_equal(f.jvp(x, y, tangents={"x": np.zeros(10)})[1], 0.0)


def test_a_failure_of_the_function_comes_first():
    f = pb.compile(lambda x, y, k: np.sqrt(x[k]) * y)
    with pytest.raises(IndexError):
        f.grad(np.zeros(12), 0.0, 40, wrt="x")


@pytest.mark.parametrize("columns", [0, 3])
def test_of_no_columns(columns):
    """What goes only into an empty sum is looked at itself."""

    @pb.compile
    def f(x: pb.f64["n"], y: pb.f64["n"], m: pb.f64["n", "p"]) -> None:
        return np.sum(np.sqrt(x) * y) + np.sum((np.sqrt(x) * y) @ m)

    x, y = np.zeros(4), np.zeros(4)
    np.testing.assert_array_equal(f.grad(x, y, np.ones((4, columns)), wrt="x"), np.zeros(4))


def test_few_looks():
    """Elementwise chains that end in sums are looked at once, at the sums."""
    f = pb.compile(lambda a, b: np.sum(np.sqrt(a * np.linspace(1.0, 2.0, 50)) / b))
    f.grad(2.0, 3.0)
    reverse = f.specialization().default_adjoint()
    plain = speculate(reverse)
    looks = [i for i in walk(plain.block) if i.op.name == "ne"]
    assert looks and all(i.args[0].type.rank == 0 for i in looks)
    assert not any(i.op.name == "guarded_mul" for i in walk(plain.block))
