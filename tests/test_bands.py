"""Nests that share a loop over blocks of rows: Note [Bands] in ``loops/bands.py``."""

import numpy as np
import pytest

import pullback as pb

ROWS = (0, 1, 3, 9, 1023, 1024, 1025, 5000)  # blocks have up to 1024 rows


def logistic(w, X, y):
    return np.mean(np.log1p(np.exp(-y * (X @ w))))


def softmax(X, W, Y):
    z = X @ W
    z = z - np.max(z, axis=1, keepdims=True)
    return -np.mean(np.sum(Y * (z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))), axis=1))


def standardized(X, w):
    z = (X - np.mean(X, axis=1, keepdims=True)) / np.sqrt(1.0 + np.var(X, axis=1, keepdims=True))
    return np.sum(np.tanh(z @ w) ** 2)


def shifted(X, w):
    """Rows read their neighbours, so values are not passed on row by row."""
    y = np.exp(-(X**2))
    s = np.sum(y, axis=1)
    return np.sum((s[1:] - s[:-1]) ** 2) + np.sum(y[1:] * y[:-1] * w)


def columns(X, w):
    """A sum over the rows that the rows need again: two bands."""
    m = np.mean(X, axis=0)
    return np.sum(np.log1p((X - m) ** 2) @ w)


def inputs(f, n, p, seed=0):
    r = np.random.default_rng(seed)
    X = r.normal(size=(n, p))
    if f is logistic:
        return r.normal(size=p), X, np.sign(r.normal(size=n))
    if f is softmax:
        return X, r.normal(size=(p, 3)), np.eye(3)[r.integers(0, 3, n)].reshape(n, 3)
    return X, r.normal(size=p)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # means of nothing
@pytest.mark.parametrize("f", [logistic, softmax, standardized, shifted, columns], ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", ROWS)
@pytest.mark.parametrize("p", [2, 12, 70])
def test_values_and_gradients(f, n, p):
    args = inputs(f, n, p)
    g = pb.compile(f)
    if n < 2 and f is shifted:
        return  # two rows at least have neighbours
    value, gradients = g.value_and_grad(*args)
    np.testing.assert_allclose(value, f(*args), rtol=1e-12, equal_nan=True)
    for k, (x, gradient) in enumerate(zip(args, gradients, strict=True)):
        assert gradient.shape == x.shape
        if n == 0 or (f is softmax and k == 2):
            continue
        direction = np.random.default_rng(k).normal(size=x.shape)
        moved = list(args)
        slopes = []
        for step in (1e-5, -1e-5):
            moved[k] = x + step * direction
            slopes.append(f(*moved))
        expected = (slopes[0] - slopes[1]) / 2e-5
        # differences of sums of up to 350,000 terms of order 1
        np.testing.assert_allclose(np.sum(gradient * direction), expected, rtol=2e-6, atol=1e-9 * x.size)


def test_the_matrix_is_read_once():
    f = pb.compile(logistic)
    f.value_and_grad(*inputs(logistic, 2000, 20), wrt="w")
    text = f.specialization().vjp((0,), (0,), True).texts("loops")
    top = [line for line in text.splitlines() if line.startswith("  for ")]
    assert sum("blocks" in line for line in top) == 1
    assert "8*n1 bytes" not in text  # nothing as long as the rows is kept


def test_memory_of_a_chain_of_row_sums_is_one_block():
    f = pb.compile(standardized)
    f.value_and_grad(*inputs(standardized, 2000, 20))
    text = f.ir("loops")
    assert "n0*n1" not in "".join(line for line in text.splitlines() if "region" in line)


def test_the_same_bits_for_the_same_lengths():
    args = inputs(logistic, 3000, 20)
    f = pb.compile(logistic)
    first = f.value_and_grad(*args)
    again = f.value_and_grad(*(np.copy(a) for a in args))
    assert first[0] == again[0]
    for a, b in zip(first[1], again[1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_sums_over_many_blocks_are_accurate():
    x = np.full(10_000_000, 0.1)
    f = pb.compile(lambda x: np.sum(x * x) + np.sum(np.sqrt(np.mean(x) + x)))
    exact = 10_000_000 * (0.1 * 0.1 + np.sqrt(0.2))
    assert abs(f(x) / exact - 1) < 4e-15  # within a block each lane adds 64 equal terms, whose errors do not cancel


def test_loops_over_what_a_mask_leaves():
    f = pb.compile(lambda x: np.sum(np.exp(-x[x > 0])) + np.sum(np.cumsum(x[x > 0] ** 2)))
    x = np.random.default_rng(1).normal(size=4000)
    np.testing.assert_allclose(f(x), np.sum(np.exp(-x[x > 0])) + np.sum(np.cumsum(x[x > 0] ** 2)), rtol=1e-12)
