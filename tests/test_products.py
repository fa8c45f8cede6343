"""Products of matrices: Note [Tiles] in ``llvm/tiles.py``, Note [Operands] in ``loops/expand.py``."""

import ctypes
import re

import numpy as np
import pytest

import pullback as pb
from pullback.llvm import engine, mathlib, tiles

RNG = np.random.default_rng(3)
KINDS = {"double": np.float64, "float": np.float32}


class Product:
    """Our function for an element type, called with arrays of three axes."""

    def __init__(self, kind, library, features=""):
        product = tiles.Product(kind, library)
        features = features or engine.features()
        code = engine.object_of(tiles.module(product, features, mathlib.fused(features)))
        self.code = engine.Linked([code], product.symbol, (product.blas,) if library else ())
        self.call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 10)(self.code.address)

    def __call__(self, x, y):
        (b, m, k), n = x.shape, y.shape[2]
        out = np.full((b, m, n), np.nan, x.dtype)
        strides = [s // x.itemsize for s in (*x.strides, *y.strides)]
        self.call(out.ctypes.data, x.ctypes.data, y.ctypes.data, b, m, k, n, *strides)
        return out


def turned(x):
    """The same numbers, in memory by columns."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)


SIZES = [
    (1, 1, 1),
    (2, 0, 3),
    (0, 2, 3),
    (3, 2, 0),
    (3, 5, 7),
    (4, 4, 4),
    (5, 12, 13),
    (64, 192, 96),
    (65, 193, 97),
    (130, 400, 25),
    (9, 3, 200),
]


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_and_orders(kind, library):
    product = Product(kind, library)
    eps = np.finfo(KINDS[kind]).eps
    for m, k, n in SIZES:
        for batch in (1, 3):
            x, y = (RNG.normal(size=s).astype(KINDS[kind]) for s in ((batch, m, k), (batch, k, n)))
            bound = (np.abs(x).astype(float) @ np.abs(y).astype(float)) * (k + 2) * eps
            for left in (x, turned(x)):
                for right in (y, turned(y)):
                    assert np.all(np.abs(product(left, right) - x.astype(float) @ y.astype(float)) <= bound)


def test_without_wide_vectors():
    """As on processors without AVX."""
    product = Product("double", False, "+sse2")
    x, y = RNG.normal(size=(2, 7, 33)), RNG.normal(size=(2, 33, 29))
    np.testing.assert_allclose(product(x, y), x @ y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_an_element_does_not_depend_on_its_place(kind):
    product = Product(kind, False)
    x, y = (RNG.normal(size=s).astype(KINDS[kind]) for s in ((1, 71, 211), (1, 211, 101)))
    whole = product(x, y)
    for rows in (slice(0, 1), slice(3, 8), slice(64, 71)):
        for columns in (slice(0, 1), slice(5, 18), slice(90, 101)):
            part = product(np.ascontiguousarray(x[:, rows]), turned(y[:, :, columns]))
            assert np.array_equal(part, whole[:, rows, columns])


def test_values_that_are_no_numbers():
    """Columns that are not there are zeros in our copy; they must not meet what is there."""
    x, y = RNG.normal(size=(1, 6, 5)), RNG.normal(size=(1, 5, 3))
    x[0, 1, 2], x[0, 4, 0], y[0, 3, 1] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = np.matmul(x, y)
    np.testing.assert_allclose(Product("double", False)(x, y), expected, rtol=1e-13, equal_nan=True)


def test_strides_without_a_unit():
    """What no library can read is done by tiles, large or not."""
    x, y = RNG.normal(size=(1, 80, 160))[:, :, ::2], RNG.normal(size=(1, 160, 150))[:, ::2, ::2]
    np.testing.assert_allclose(Product("double", True)(x, y), x @ y, rtol=1e-12, atol=1e-12)


# -- in programs --------------------------------------------------------------------------------------------------------
def test_a_factor_is_stored_once():
    """What a product reads and its adjoint reads turned is one array, in the order in which it is computed."""

    def f(A, x):
        z = np.einsum("kab,nkb->nka", A, np.sin(x[:, None, :]) - 0.5 * np.ones((11, 1)))
        return np.sum(z * z)

    A, x = RNG.normal(size=(11, 13, 13)), RNG.normal(size=(17, 13))
    g = pb.compile(f)
    value, gradients = g.value_and_grad(A, x)
    np.testing.assert_allclose(value, f(A, x), rtol=1e-12)
    B = np.sin(x[:, None, :]) - 0.5 * np.ones((11, 1))
    dz = 2 * np.einsum("kab,nkb->nka", A, B)
    np.testing.assert_allclose(gradients[0], np.einsum("nka,nkb->kab", dz, B), rtol=1e-11)
    np.testing.assert_allclose(gradients[1], np.einsum("nka,kab->nb", dz, A) * np.cos(x), rtol=1e-11)
    calls = [line for line in g.ir("loops", A, x).splitlines() if "gemm(" in line]
    operands = [re.findall(r"(\w+)\[", line) for line in calls]
    assert len(calls) == 3 and len({name for names in operands for name in names}) == 3  # A, B and the cotangent


@pytest.mark.parametrize(
    "spec", ["ij,jk->ik", "ij,jk->ki", "ji,kj->ik", "bij,bjk->bik", "bij,bjk->ibk", "bij,kjb->kib", "nkb,kab->nka"]
)
def test_orders_of_axes(spec):
    left, right = spec.split("->")[0].split(",")
    lengths = dict(zip("ijkbna", (9, 14, 11, 10, 12, 13), strict=True))
    x, y = (RNG.normal(size=[lengths[c] for c in part]) for part in (left, right))

    def f(x, y):
        return np.exp(0.1 * np.einsum(spec, x, np.cos(y)))

    g = pb.compile(f)
    np.testing.assert_allclose(g(x, y), f(x, y), rtol=1e-11)
    seed = RNG.normal(size=f(x, y).shape)
    _, (dx, dy) = g.vjp(x, y, seed=seed)
    ct, out = seed * f(x, y) * 0.1, spec.split("->")[1]
    np.testing.assert_allclose(dx, np.einsum(f"{out},{right}->{left}", ct, np.cos(y)), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(dy, -np.sin(y) * np.einsum(f"{out},{left}->{right}", ct, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(200, 2, 3), (3, 200, 2), (2, 3, 200), (200, 4, 1), (4, 200, 4), (1, 2, 200), (200, 1, 4)])
@pytest.mark.parametrize("batch", [(), (5,)])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_one_long_axis(shape, batch, dtype):
    """Written out, with the bits that tiles give."""
    m, k, n = shape
    x, y = RNG.normal(size=(*batch, m, k)).astype(dtype), RNG.normal(size=(*batch, k, n)).astype(dtype)
    got = pb.compile(lambda x, y: x @ y)(x, y)
    tiled = Product("double" if dtype == "f8" else "float", False)(x.reshape(-1, m, k), y.reshape(-1, k, n))
    assert np.array_equal(got, tiled.reshape(got.shape))
    turned = pb.compile(lambda x, y: np.swapaxes(np.swapaxes(y, -1, -2) @ np.swapaxes(x, -1, -2), -1, -2))(x, y)
    np.testing.assert_allclose(turned, got, rtol=1e-12 if dtype == "f8" else 1e-4, atol=1e-12 if dtype == "f8" else 1e-5)
