"""The NumPy frontend: what is traced means what NumPy means, for static and for symbolic lengths."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from tests.numpy_tracing import same

V = np.array([0.7, -1.3, 2.1, 0.4, -0.2])
U = np.array([1.5, 0.3, -0.8, 2.2, 0.9])
M = np.arange(12.0).reshape(3, 4) / 7 - 0.6
N = np.cos(np.arange(20.0)).reshape(4, 5)
S = np.array([[2.0, 0.3, -0.1], [0.4, 1.5, 0.2], [-0.3, 0.1, 1.1]])
T = np.sin(np.arange(24.0)).reshape(2, 3, 4)
I = np.array([2, -1, 0, 3])  # noqa: E741 - the integer array
B = np.array([True, False, True, True, False])
P = np.abs(V) + 0.3
Z = np.array([0.0, -0.0, 1.0, -2.0, 0.0])
X = np.array([np.nan, 1.0, np.inf, -np.inf, 0.0])

ELEMENTWISE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x, y: x + y * 2 - y / x, (V, U)),
    (lambda x: (x**2, x**3, x**-1, x**-2, x**0, x**1, x**2.0, x**7), (V,)),
    (lambda x: (x**0.5, x**1.5, 2.0**x, x**x), (P,)),
    (lambda x: np.power(x, 0.5), (P,)),
    (lambda x, y: (x % y, x // y, np.fmod(x, y), np.mod(x, 0.7), -x, +x, abs(x)), (V, U)),
    (lambda x, y: divmod(x, y), (V, U)),
    (lambda i: (i // 2, i % 3, i * 2, -i, abs(i), i**2, i / 2, i**3), (I,)),
    (lambda x: (np.exp(x), np.exp2(x), np.expm1(x), np.sin(x), np.cos(x), np.tan(x), np.sinh(x), np.cosh(x), np.tanh(x)), (V,)),
    (lambda x: (np.log(x), np.log2(x), np.log10(x), np.log1p(x), np.sqrt(x), np.cbrt(x), np.square(x)), (P,)),
    (lambda x: (np.arcsin(x / 3), np.arccos(x / 3), np.arctan(x), np.arcsinh(x), np.arctanh(x / 3)), (V,)),
    (lambda x: (np.arccosh(x + 1), np.reciprocal(x), np.deg2rad(x), np.degrees(x), np.radians(x), np.rad2deg(x)), (P,)),
    (lambda x, y: (np.arctan2(x, y), np.hypot(x, y), np.logaddexp(x, y), np.logaddexp2(x, y)), (V, U)),
    (lambda x, y: (np.maximum(x, y), np.minimum(x, y), np.fmax(x, y), np.fmin(x, y), np.maximum(x, 0)), (V, U)),
    (lambda x: (np.floor(x), np.ceil(x), np.rint(x), np.trunc(x), np.round(x, 1), x.round(), np.fix(x), np.sign(x)), (V,)),
    (lambda x: (np.clip(x, -1, 1), x.clip(-0.5, None), np.clip(x, None, 0.5), np.clip(x, 0, x)), (V,)),
    (lambda x: (np.isnan(x), np.isinf(x), np.isfinite(x), np.isposinf(x), np.isneginf(x), np.signbit(x)), (X,)),
    (lambda x: (np.nan_to_num(x), np.nan_to_num(x, nan=1.0, posinf=2.0, neginf=-3.0)), (X,)),
    (lambda x: (np.sign(x), np.abs(x), np.fabs(x), np.signbit(x), np.heaviside(x, 0.5), np.copysign(2.0, x)), (Z,)),
    (lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, x > 0), (V, U)),
    (
        lambda x, b: (np.where(b, x, 0.0), np.where(x > 0, x, -x), np.where(b, 1, 2), b & (x > 0), b | (x > 0), ~b, b ^ b),
        (V, B),
    ),
    (lambda x, b: (np.logical_and(b, x), np.logical_or(b, x), np.logical_not(x), np.logical_xor(b, x)), (Z, B)),
    (
        lambda x: (np.sinc(x), np.ldexp(x, 3), np.ldexp(x, np.array([1, -2, 0, 5, 3])), np.angle(x), np.real(x), np.imag(x)),
        (V,),
    ),
    (lambda x, y: (np.isclose(x, y), np.allclose(x, x), np.array_equal(x, y), np.modf(x)), (V, U)),
    (lambda x: np.select([x > 1, x < 0], [x, -x], 7.0), (V,)),
    (lambda x: (x + 1j.real, x * np.float64(2), np.float32(0.5) * x, np.int64(3) * x, True * x), (V,)),
    (lambda x, b: (b + b, b * b, b * x, b + 1, b / 2, np.sum(b), -(b * 1)), (V, B)),
    (
        lambda x: [math.sin(x), math.exp(x), math.log(x), math.sqrt(x), math.hypot(x, 2.0), math.pow(x, 2), math.log(x, 3)],
        (1.7,),
    ),
    (lambda x: (max(x, 1.0), min(x, 2.0, 1.0), abs(-x), round(x, 1), float(x), x**2, 2 / x, sum([x, x, 1])), (1.7,)),
    (lambda i, x: (i + 1, i / 2, i // 2, i * x, i**2, x**i if False else x * i), (3, 1.5)),
]
SPECIAL: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: (scipy.special.erf(x), scipy.special.erfc(x), scipy.special.expit(x), scipy.special.ndtr(x)), (V,)),
    (lambda x: (scipy.special.gammaln(x), scipy.special.digamma(x), scipy.special.psi(x), math.pi * x), (P,)),
    (
        lambda x: (scipy.special.logit(x / 3), scipy.special.xlogy(x, x), scipy.special.xlog1py(x, x), scipy.special.entr(x)),
        (P,),
    ),
    (
        lambda x: (scipy.special.gamma(x), scipy.special.rgamma(x), scipy.special.beta(x, 2.0), scipy.special.betaln(x, 0.5)),
        (P,),
    ),
    (lambda x: (scipy.special.gamma(x), scipy.special.gammasgn(x), scipy.special.log_expit(x)), (V - 1.0,)),
    (
        lambda x: (
            scipy.special.logsumexp(x),
            scipy.special.logsumexp(x, axis=1),
            scipy.special.logsumexp(x, 0, keepdims=True),
        ),
        (M,),
    ),
    (lambda x: (scipy.special.softmax(x, axis=-1), scipy.special.log_softmax(x, axis=0), scipy.special.softmax(x)), (M,)),
    (lambda x: scipy.special.logsumexp(x, axis=0, b=np.array([[1.0], [0.0], [2.0]])), (M,)),
    (lambda x: scipy.special.log_ndtr(x * 20), (V,)),
]
REDUCE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: (np.sum(x), x.sum(0), x.sum(axis=-1), np.sum(x, axis=(0, 2)), x.sum(1, keepdims=True)), (T,)),
    (lambda x: (np.prod(x), x.prod(0), np.prod(x, axis=(1, -1), keepdims=True), np.prod(x, axis=())), (T,)),
    (lambda x: (np.mean(x), x.mean(0), x.mean(axis=(0, 1), keepdims=True), np.average(x)), (T,)),
    (lambda x: (np.var(x), x.var(0, ddof=1), np.std(x, axis=(0, 2), keepdims=True), x.std(1, ddof=1), np.std(x)), (T,)),
    (lambda x: (np.max(x), x.max(0), x.min(axis=-1, keepdims=True), np.amin(x, axis=(0, 1)), np.ptp(x, axis=1)), (T,)),
    (lambda x: (np.argmax(x), x.argmin(0), np.argmax(x, axis=-1), np.argmin(x, axis=1, keepdims=True)), (T,)),
    (lambda x: (np.any(x > 0), np.all(x > 0, axis=0), (x > 0.5).any(axis=1), np.count_nonzero(x > 0, axis=0)), (M,)),
    (lambda x: (np.cumsum(x), x.cumsum(0), np.cumsum(x, axis=-1), np.cumprod(x), np.cumprod(x, axis=1), x.cumprod(0)), (M,)),
    (lambda x: (np.nansum(x), np.nanmean(x), np.nanmax(x), np.nanmin(x), np.nanprod(x)), (np.array([np.nan, 1.0, 3.0]),)),
    (lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=0), np.linalg.norm(x, axis=1, keepdims=True)), (M,)),
    (lambda x: (np.linalg.norm(x, 1), np.linalg.norm(x, np.inf), np.linalg.norm(x, 3), np.linalg.norm(x, 0)), (V,)),
    (lambda x: (np.linalg.norm(x, "fro"), np.linalg.norm(x, 1), np.linalg.norm(x, np.inf), np.linalg.norm(x, -1)), (M,)),
    (lambda x: np.linalg.norm(x, axis=(0, 2)), (T,)),
    (lambda x: (np.median(x), np.median(x, axis=0), np.median(x, axis=1, keepdims=True), np.median(x, axis=(0, 1))), (M,)),
    (lambda x: (np.quantile(x, 0.3), np.percentile(x, 75, axis=0), np.quantile(x, [0.1, 0.9])), (M,)),
    (lambda x: (np.sum(x, where=x > 0), np.max(x, initial=2.0), np.mean(x, where=x > 0), np.sum(x, initial=3.0)), (V,)),
    (lambda i: (i.sum(), i.mean(), np.prod(i), i.max(), np.var(i), np.cumsum(i), np.median(i), np.linalg.norm(i)), (I,)),
    (lambda b: (np.sum(b), np.mean(b), np.max(b), np.any(b), b.all(), np.cumsum(b)), (B,)),
    (lambda x, w: (np.average(x, weights=w), np.average(x, weights=w, returned=True)), (V, U)),
]
SHAPE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (
        lambda x: (x.reshape(4, 3), x.reshape(-1), x.reshape((2, -1)), np.reshape(x, (6, 2)), np.reshape(x, 12), x.flatten()),
        (M,),
    ),
    (lambda x: (np.reshape(x, (4, 3), order="F"), x.ravel(), x.ravel(order="F"), x.flatten("F")), (M,)),
    (lambda x: (x.T, np.transpose(x, (1, 2, 0)), x.transpose(2, 0, 1), x.transpose(), np.swapaxes(x, 0, -1)), (T,)),
    (lambda x: (np.moveaxis(x, 0, -1), np.moveaxis(x, [0, 1], [2, 0]), np.rollaxis(x, 2), np.rollaxis(x, 0, 3)), (T,)),
    (
        lambda x: (
            np.expand_dims(x, 0),
            np.expand_dims(x, (0, -1)),
            x[None, :, None],
            np.squeeze(x[None]),
            x[:, None].squeeze(1),
        ),
        (M,),
    ),
    (lambda x: (np.atleast_1d(x), np.atleast_2d(x), np.atleast_3d(x), np.atleast_1d(2.0), np.atleast_3d(x[0])), (M,)),
    (lambda x: (np.broadcast_to(x, (2, 5)), np.broadcast_arrays(x, np.ones((2, 1)))), (V,)),
    (
        lambda x, y: (
            np.concatenate([x, y]),
            np.stack([x, y]),
            np.stack((x, y), axis=-1),
            np.hstack([x, y]),
            np.vstack([x, y]),
        ),
        (V, U),
    ),
    (lambda x, y: (np.dstack([x, y]), np.column_stack([x, y]), np.append(x, 3.0), np.concatenate([x, y], axis=None)), (V, U)),
    (lambda x: (np.concatenate([x, x[:1]], axis=0), np.concatenate((x, x, x), axis=1), np.block([[x, x], [x, x]])), (M,)),
    (
        lambda x: (np.split(x, 2, axis=1), np.array_split(x, 2), np.array_split(x, [1, 2]), np.hsplit(x, 4), np.vsplit(x, 3)),
        (M,),
    ),
    (lambda x: (np.flip(x), np.flip(x, 0), np.fliplr(x), np.flipud(x), np.rot90(x), np.rot90(x, 2), np.rot90(x, 3)), (M,)),
    (
        lambda x: (
            np.roll(x, 1),
            np.roll(x, -2, axis=1),
            np.roll(x, (1, 2), axis=(0, 1)),
            np.fft.fftshift(x),
            np.fft.ifftshift(x),
        ),
        (M,),
    ),
    (lambda x: (np.tile(x, 2), np.tile(x, (2, 1)), np.tile(x, (2, 1, 3)), np.repeat(x, 2), np.repeat(x, 3, axis=1)), (M,)),
    (lambda x: np.repeat(x, [1, 0, 2], axis=0), (M,)),
    (lambda x: (np.pad(x, 1), np.pad(x, ((1, 2), (0, 1))), np.pad(x, 1, constant_values=7.0), np.pad(x, 2, mode="edge")), (M,)),
    (lambda x: (np.pad(x, 2, mode="reflect"), np.pad(x, 2, mode="symmetric"), np.pad(x, (1, 2), mode="wrap")), (V,)),
    (lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 2.5), np.empty_like(x) * 0), (M,)),
    (lambda x: (x.shape[0] * 1.0, len(x), x.ndim, x.size / 2), (M,)),
    (lambda x: (x.astype(np.float32), x.astype(int), x.astype(bool), x.copy(), np.copy(x), np.array(x), np.asarray(x)), (M,)),
]
CREATE: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: (np.zeros(x.shape), np.ones(len(x)), np.full((2, 3), x[0]), np.full(3, 1.5), np.eye(3), np.identity(2)), (V,)),
    (lambda x: (np.arange(5), np.arange(1, 7, 2), np.arange(0.0, 1.0, 0.25), np.arange(len(x)) * x, np.eye(2, 4, k=1)), (V,)),
    (
        lambda x: (
            np.linspace(0, 1, 5),
            np.linspace(x[0], x[1], 4),
            np.linspace(0, x[0], 3, endpoint=False),
            np.linspace(1, 2, 1),
        ),
        (V,),
    ),
    (lambda x: (np.array([x[0], 1.0, x[1]]), np.array([[x[0], 0], [1, x[1]]]), np.array([x, x * 2]), np.array(3)), (V,)),
    (
        lambda x: (
            np.meshgrid(x, x[:3]),
            np.meshgrid(x, x[:2], indexing="ij"),
            np.tri(3),
            np.indices((2, 3)),
            np.logspace(0, 1, 3),
        ),
        (V,),
    ),
    (lambda n: np.zeros(3) + np.arange(3) * n, (2.0,)),
]
INDEX: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: (x[0], x[-1], x[1:3], x[:-1], x[::2], x[::-1], x[3:0:-1], x[-2:], x[10:], x[:100], x[...], x[4:1]), (V,)),
    (lambda x: (x[0], x[:, 1], x[1, 2], x[..., 0], x[None], x[:, None, 1:], x[::2, ::-1], x[-1, -2:], x[1:, ..., None]), (M,)),
    (
        lambda x: (x[[0, 2]], x[np.array([1, -1])], x[[0, 2], [1, 3]], x[:, [0, 0, 2]], x[[[0, 1], [2, 0]]], x[np.array(1)]),
        (M,),
    ),
    (
        lambda x: (x[:, [0, 2], 1], x[[0, 1], :, [1, 2]], x[0, :, [1, 2]], x[:, None, [0, 1]], x[1, [0, 2]], x[..., [1, 0]]),
        (T,),
    ),
    (lambda x: (x[[0, 1], ..., [1, 2]], x[:, [[0], [1]], [1, 2]], x[[1], 1:, ::2], x[0, [0, 1], None, 1:]), (T,)),
    (lambda x: (x[np.array([True, False, True])], x[:, np.array([True, False, False, True])], x[np.ones((3, 4), bool)]), (M,)),
    (lambda x, i: (x[i], x[i, 0], x[:, i[:2]], x[i[0]], x[i[1], 1:], x[i, i], x[i[0], i[1]]), (M, np.array([2, -1, 0]))),
    (lambda x: (x[x > 0], np.sum(x[x > 0] ** 2), x[x > 0] * x[x > 0], x[(x > 0) & (x < 2)].mean()), (V,)),
    (lambda x: (x[x[:, 0] > -0.5], x[x > 0], x[x > 0].sum(), x[:, x[0] > -0.3]), (M,)),
    (lambda x: (np.take(x, [0, 2]), np.take(x, [0, 2], axis=1), np.take(x, 1, axis=0), np.take(x, [5, -7], mode="wrap")), (M,)),
    (
        lambda x: (
            np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
            np.take_along_axis(x, np.array([[0, 1, 2, 0]]), axis=0),
        ),
        (M,),
    ),
    (lambda x: (np.sort(x), np.sort(x, axis=0), np.argsort(x), np.argsort(x, axis=0), np.sort(x, axis=None)), (M,)),
    (
        lambda x: (
            np.diag(x),
            np.diag(x, 1),
            np.diag(x, -1),
            np.diagonal(x),
            np.trace(x),
            np.trace(x, offset=1),
            np.diag(x[0]),
        ),
        (S,),
    ),
    (lambda x: (np.diag(x, 2), np.diag(x, -1), np.diagflat(x)), (V,)),
    (lambda x: (np.triu(x), np.tril(x), np.triu(x, 1), np.tril(x, -1), np.diagonal(x, 0, 1, 0), np.tril(x, 2)), (M,)),
    (lambda x: (np.diagonal(x), np.diagonal(x, 1, 1, 2), np.trace(x, axis1=1, axis2=2)), (T,)),
    (
        lambda x: (
            np.diff(x),
            np.diff(x, axis=0),
            np.diff(x, n=2),
            np.ediff1d(x),
            np.diff(x, prepend=0.0),
            np.diff(x, append=x[:, :1]),
        ),
        (M,),
    ),
    (lambda x: (np.gradient(x), np.gradient(x, 0.5, axis=0), np.gradient(x[0], edge_order=2)), (M,)),
    (lambda x: (np.gradient(x, np.array([0.0, 0.5, 2.0, 2.5, 4.0])), np.trapezoid(x), np.trapezoid(x, dx=0.5)), (V,)),
    (
        lambda x: (
            np.convolve(x, x[:3]),
            np.convolve(x[:2], x, "same"),
            np.convolve(x, x[:2], "valid"),
            np.correlate(x, x[:3]),
        ),
        (V,),
    ),
    (
        lambda x: (
            np.interp(x, np.array([-1.0, 0.0, 2.0]), np.array([3.0, 1.0, 4.0])),
            np.searchsorted(np.array([0.0, 1.0]), x),
        ),
        (V,),
    ),
    (
        lambda x: (np.partition(x, 4), np.flatnonzero(x > 0), np.nonzero(x > 0), np.where(x > 0), np.compress(x > 0, x)),
        (np.sort(V),),
    ),
    (lambda x: (np.delete(x, 1), np.insert(x, 1, 9.0), np.delete(x, [0, 2]), np.unwrap(x * 4)), (V,)),
    (lambda x: [row.sum() for row in x] + [a * b for a, b in zip(x[0], x[1], strict=True)], (M,)),
]
CONTRACT: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x, y: (x @ y, np.matmul(x, y), np.dot(x, y), x.dot(y), np.inner(x, y.T), np.tensordot(x, y, 1)), (M, N)),
    (
        lambda x, y: (
            x @ y,
            np.dot(x, y),
            np.inner(x, y),
            np.vdot(x, y),
            np.outer(x, y),
            np.kron(x, y),
            np.multiply.outer(x, y),
        ),
        (V, U),
    ),
    (
        lambda x, v: (x @ v, np.dot(x, v), v @ x.T, np.dot(v, x.T), np.inner(x, v), np.einsum("ij,j->i", x, v)),
        (M, np.arange(4.0)),
    ),
    (
        lambda x, y: (x @ y, np.matmul(x, y[0]), y.swapaxes(1, 2) @ y, np.dot(x, y), x @ np.ones(4)),
        (T, np.ones((2, 4, 2)) * 0.3),
    ),
    (lambda x: (np.matmul(x, np.ones((4, 2))), np.ones(3) @ x, x[:1] @ np.ones((2, 4, 3))), (T,)),
    (
        lambda x, y: (
            np.tensordot(x, y, axes=([1], [0])),
            np.tensordot(x, x, axes=2),
            np.tensordot(x, x, axes=([0, 1], [0, 1])),
        ),
        (M, N),
    ),
    (
        lambda x, y: (np.einsum("ij,jk->ik", x, y), np.einsum("ij,jk", x, y), np.einsum("ij->ji", x), np.einsum("ij->", x)),
        (M, N),
    ),
    (lambda x: (np.einsum("ii->i", x), np.einsum("ii", x), np.einsum("ij,ij->i", x, x), np.einsum("ij,kj->ik", x, x)), (S,)),
    (
        lambda x: (
            np.einsum("...ij,...kj->...ik", x, x),
            np.einsum("ij...->...", x),
            np.einsum("abc,abd,ab->cd", x, x, x[..., 0]),
        ),
        (T,),
    ),
    (
        lambda x, y: (
            np.einsum(x, [0, 1], y, [1, 2], [0, 2]),
            np.einsum("i,j->ij", x[0], y[0]),
            np.einsum("ij,i->ij", x, x[:, 0]),
        ),
        (M, N),
    ),
    (lambda x, y: (np.cross(x, y), np.cross(x, y[0]), np.cross(x.T, y, axisa=0), np.cross(x, y, axis=0)), (S, S.T)),
    (lambda i: (i @ i, np.outer(i, i), np.dot(i, 2)), (I,)),
    (
        lambda x: (2.0 * np.dot(x, 3.0), np.linalg.multi_dot([x, x.T, x]), np.vdot(x, x), np.linalg.matrix_power(x @ x.T, 3)),
        (M,),
    ),
]
FAMILIES = {
    "elementwise": ELEMENTWISE,
    "special": SPECIAL,
    "reduce": REDUCE,
    "shape": SHAPE,
    "create": CREATE,
    "index": INDEX,
    "contract": CONTRACT,
}
CASES = [pytest.param(*case, id=f"{family}-{k}") for family, cases in FAMILIES.items() for k, case in enumerate(cases)]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("function", "args"), CASES)
def test_agrees_with_numpy(function: Callable[..., Any], args: tuple[Any, ...], symbolic: bool) -> None:
    same(function, *args, symbolic=symbolic)


def test_float32_stays() -> None:
    x = V.astype(np.float32)
    same(
        lambda x: (x * 2.0, np.sin(x), x.mean(), x**2, x / 3, x + np.arange(5), x * np.float64(2), np.sum(x), x @ x),
        x,
        rtol=1e-6,
    )
    same(
        lambda x, s: (x * s, s * 2, x + 1, np.where(x > 0, x, 0.0), np.maximum(x, s), np.std(x), np.zeros(2)), x, 2.5, rtol=1e-6
    )


Point = namedtuple("Point", "x y")


def test_containers() -> None:
    def f(p: Any, d: Any) -> Any:
        return Point(p.x * d["a"][0], [p.y, (d["a"][1], None)])

    same(f, Point(2.0, V), {"a": (U, np.float64(3.0))})
