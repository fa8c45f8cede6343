"""Linear algebra: values against NumPy and SciPy, derivatives against differences, 50 digits and closed forms, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback.ir.core import Builder, Func, Value
from pullback.ir.interp import run
from pullback.ir.types import Type, f32, f64
from pullback.llvm import compile_kernel
from pullback.passes.pipeline import differentiate, push_forward

RNG = np.random.default_rng(4)


def matrix(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    a = matrix(*shape)
    return a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])


def same(found: Any, want: Any, digits: float = 1e-9) -> None:
    """Each part of a result; ``digits`` are those that the condition of the matrices here leaves."""
    if isinstance(want, tuple):
        assert len(found) == len(want)
        for f, w in zip(found, want, strict=True):
            same(f, w, digits)
        return
    assert np.shape(found) == np.shape(want)
    np.testing.assert_allclose(found, want, rtol=digits, atol=digits)


# -- functions whose value is one ---------------------------------------------------------------------------------------
A, S, T = matrix(12, 12), positive(12, 12), matrix(3, 10, 10)
TALL, WIDE, STACK, SMALL = matrix(12, 9), matrix(9, 12), matrix(2, 3, 5, 4), positive(2, 3, 3)
y, Y = matrix(12), matrix(12, 3)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cholesky": (lambda a: np.linalg.cholesky(a), (S,)),
    "cholesky batched": (lambda a: np.linalg.cholesky(a), (SMALL,)),
    "cholesky upper": (lambda a: np.linalg.cholesky(a, upper=True), (S + np.tril(A, -1),)),
    "scipy cholesky": (lambda a: scipy.linalg.cholesky(a), (S + np.tril(A, -1),)),
    "scipy cholesky lower": (lambda a: scipy.linalg.cholesky(a, lower=True), (S + np.triu(A, 1),)),
    "cho_solve": (lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b), (S, y)),
    "cho_solve lower": (lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a, lower=True), b), (S, Y)),
    "solve vector": (lambda a, b: np.linalg.solve(a, b), (A, y)),
    "solve matrix": (lambda a, b: np.linalg.solve(a, b), (A, Y)),
    "solve batched": (lambda a, b: np.linalg.solve(a, b), (T, matrix(10, 2))),
    "solve batched vector": (lambda a, b: np.linalg.solve(a, b), (T, matrix(10))),
    "solve two batches": (lambda a, b: np.linalg.solve(a, b), (matrix(4, 4), matrix(2, 3, 4, 1))),
    "solve in Fortran's order": (lambda a, b: np.linalg.solve(a, b), (np.asfortranarray(A), Y[::1, ::-1])),
    "scipy solve": (lambda a, b: scipy.linalg.solve(a, b, transposed=True), (A, Y)),
    "scipy solve pos": (lambda a, b: scipy.linalg.solve(a, b, assume_a="pos"), (S, y)),
    "triangular": (lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True), (S, y)),
    "triangular upper": (lambda a, b: scipy.linalg.solve_triangular(a, b), (S, Y)),
    "triangular turned": (lambda a, b: scipy.linalg.solve_triangular(a, b, trans="T", unit_diagonal=True), (S / 12, Y)),
    "triangular lower turned": (lambda a, b: scipy.linalg.solve_triangular(a, b, trans=1, lower=True), (S, Y)),
    "inv": (np.linalg.inv, (A,)),
    "inv batched": (np.linalg.inv, (T,)),
    "det": (np.linalg.det, (A,)),
    "det batched": (np.linalg.det, (T,)),
    "slogdet": (lambda a: np.linalg.slogdet(a), (A,)),
    "slogdet batched": (lambda a: np.linalg.slogdet(a), (SMALL,)),
    "tensorsolve": (lambda a, b: np.linalg.tensorsolve(a, b), (matrix(2, 6, 3, 4), matrix(2, 6))),
    "tensorsolve axes": (lambda a, b: np.linalg.tensorsolve(a, b, axes=(0, 2)), (matrix(3, 2, 4, 6), matrix(2, 6))),
    "tensorinv": (lambda a: np.linalg.tensorinv(a), (matrix(2, 6, 3, 4),)),
    "eigvalsh": (lambda a: np.linalg.eigvalsh(a), (S + np.triu(A, 1),)),
    "eigvalsh upper": (lambda a: np.linalg.eigvalsh(a, UPLO="U"), (S + np.tril(A, -1),)),
    "eigvalsh batched": (lambda a: np.linalg.eigvalsh(a), (SMALL,)),
    "eigh": (lambda a: abs(np.linalg.eigh(a).eigenvectors), (S,)),
    "scipy eigh": (lambda a: scipy.linalg.eigh(a, eigvals_only=True), (S,)),
    "svd": (lambda a: abs(np.linalg.svd(a, full_matrices=False)[0]), (TALL,)),
    "svd wide": (lambda a: abs(np.linalg.svd(a, full_matrices=False).Vh), (WIDE,)),
    "svd square": (lambda a: abs(np.linalg.svd(a)[2]), (A,)),
    "svdvals": (lambda a: np.linalg.svd(a, compute_uv=False), (STACK,)),
    "qr": (lambda a: tuple(np.linalg.qr(a)), (TALL,)),
    "qr wide": (lambda a: tuple(np.linalg.qr(a)), (WIDE,)),
    "qr r": (lambda a: np.linalg.qr(a, mode="r"), (STACK,)),
    "scipy qr": (lambda a: scipy.linalg.qr(a, mode="economic"), (TALL,)),
    "pinv": (lambda a: np.linalg.pinv(a), (TALL,)),
    "pinv wide": (lambda a: np.linalg.pinv(a), (WIDE,)),
    "pinv batched": (lambda a: np.linalg.pinv(a), (STACK,)),
    "pinv of half the rank": (lambda a, b: np.linalg.pinv(a @ b, rcond=1e-10), (matrix(7, 3), matrix(3, 6))),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b), (TALL, y)),
    "lstsq several": (lambda a, b: np.linalg.lstsq(a, b), (TALL, Y)),
    "lstsq wide": (lambda a, b: np.linalg.lstsq(a, b), (WIDE, Y[:9])),
    "matrix_rank": (lambda a, b: np.linalg.matrix_rank(a @ b), (matrix(7, 3), matrix(3, 6))),
    "cond": (lambda a: np.linalg.cond(a), (TALL,)),
    "cond 1": (lambda a: np.linalg.cond(a, 1), (A,)),
    "norm 2": (lambda a: np.linalg.norm(a, 2), (TALL,)),
    "norm -2": (lambda a: np.linalg.norm(a, -2, axis=(0, 2), keepdims=True), (T,)),
    "norm nuc": (lambda a: np.linalg.norm(a, "nuc", axis=(2, 1)), (T,)),
    "matrix_power": (lambda a: np.linalg.matrix_power(a, 5), (A,)),
    "matrix_power -2": (lambda a: np.linalg.matrix_power(a, -2), (T,)),
    "matrix_power 0": (lambda a: np.linalg.matrix_power(a, 0), (T,)),
    "expm": (lambda a: scipy.linalg.expm(a), (A / 2,)),
    "expm batched": (lambda a: scipy.linalg.expm(a), (T,)),
    "expm small": (lambda a: scipy.linalg.expm(a), (SMALL,)),
    "multi_dot": (lambda a, b, c: np.linalg.multi_dot([a, b, c]), (TALL, WIDE, y)),
    "multi_dot of four": (lambda a, b, c, d: np.linalg.multi_dot([a, b, c, d]), (y[:9], WIDE, TALL, WIDE)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    function, args = FUNCTIONS[name]
    same(pb.compile(function)(*args), function(*args))


EMPTY = ("cholesky", "solve matrix", "inv", "det", "slogdet", "eigvalsh", "triangular")


@pytest.mark.parametrize("name", EMPTY)
@pytest.mark.parametrize("size", (0, 1))
def test_no_rows_and_one(name: str, size: int) -> None:
    function, args = FUNCTIONS[name]
    args = tuple(a[:size] if a.ndim == 1 or a is Y else a[:size, :size] for a in args)
    if name == "triangular" and not size:
        return  # SciPy has no such matrices
    same(pb.compile(function)(*args), function(*args))


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if "det" not in n and "rank" not in n])
def test_single_precision(name: str) -> None:
    function, args = FUNCTIONS[name]
    args = tuple(a.astype(np.float32) for a in args)
    found, want = pb.compile(function)(*args), function(*args)
    parts = found if isinstance(found, tuple) else (found,)
    if "tensorsolve" not in name and "half" not in name:  # of which the matrices here are the worst
        same(found, want, 2e-2)
    assert all(np.asarray(part).dtype == np.float32 for part in parts if not isinstance(part, int))


def test_integers_are_converted() -> None:
    a = np.array([[2, 1], [1, 3]])
    same(pb.compile(lambda a: np.linalg.inv(a) + np.linalg.cholesky(a))(a), np.linalg.inv(a) + np.linalg.cholesky(a))


# -- derivatives ------------------------------------------------------------------------------------------------------
DIFFERENTIATED = [n for n in FUNCTIONS if n not in ("matrix_rank", "matrix_power 0")]  # which are constant


def summed(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """One number of all parts, with weights that are not symmetric."""

    def total(*args: Any) -> Any:
        parts = function(*args)
        result = 0.0
        for part in parts if isinstance(parts, tuple) else (parts,):
            if not isinstance(part, int) and np.size(part):
                result = result + np.sum(np.ravel(part) * np.cos(np.arange(np.size(part))))
        return result

    by_count = (
        lambda a: total(a),
        lambda a, b: total(a, b),
        lambda a, b, c: total(a, b, c),
        lambda a, b, c, d: total(a, b, c, d),
    )
    return by_count[count - 1]


def slope(function: Callable[..., Any], args: tuple[Any, ...], directions: list[Any]) -> Any:
    """By four values, with an error of the fourth power of the step."""

    def at(step: float) -> Any:
        return function(*(a + step * d for a, d in zip(args, directions, strict=True)))

    h = 1e-3
    return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_gradients_are_differences(name: str) -> None:
    function, args = FUNCTIONS[name]
    scalar = summed(function, len(args))
    compiled = pb.compile(scalar)
    directions = [matrix(*a.shape) / 8 for a in args]
    want = slope(scalar, args, directions)
    names = tuple("abcd"[: len(args)])
    gradients = compiled.grad(*args, wrt=names)
    pulled = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    moved = compiled.jvp(*args, tangents=dict(zip(names, directions, strict=True)))[1]
    size = max(abs(want), np.sqrt(sum(np.sum(g * g) for g in gradients)))
    assert abs(pulled - want) <= 1e-5 * size
    assert abs(moved - pulled) <= 1e-9 * size


@pytest.mark.parametrize(
    "name", ("cholesky", "solve matrix", "slogdet", "pinv", "eigvalsh", "svdvals", "qr", "det", "eigh", "expm")
)
def test_second_derivatives(name: str) -> None:
    function, args = FUNCTIONS[name]
    args = tuple(a[..., :5, :4] if a.shape[-1] < a.shape[-2] else a[..., :4, :4] for a in args)
    if name == "solve matrix":
        args = (args[0], Y[:4])
    scalar = pb.compile(summed(function, len(args)))
    direction = matrix(*args[0].shape) / 8
    found = scalar.hvp(*args, vector=direction, wrt="a")
    want = slope(lambda a: scalar.grad(a, *args[1:], wrt="a"), (args[0],), [direction])
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5 * np.max(np.abs(want)))


@pytest.mark.parametrize("name", ("cholesky", "solve matrix", "inv", "det", "slogdet", "triangular turned", "cho_solve"))
def test_fifty_digits(name: str) -> None:
    """The program's own slopes, by arithmetic with many digits."""
    function, args = FUNCTIONS[name]
    args = tuple(a[:4] if a.ndim == 1 or a is Y else a[:4, :4] for a in args)
    report = pb.check(summed(function, len(args)), *args)
    assert report.ok, str(report)
    assert "50 digits" in str(report)


def test_closed_forms() -> None:
    a = matrix(4, 4)
    inverse = np.array(mpmath.inverse(mpmath.matrix(a)).tolist(), float)
    same(pb.compile(lambda a: np.linalg.slogdet(a)[1]).grad(a), inverse.T, 1e-12)
    same(pb.compile(np.linalg.det).grad(a), np.linalg.det(a) * inverse.T, 1e-12)
    same(pb.compile(lambda a: np.linalg.inv(a)[0, 1]).grad(a), -np.outer(inverse[0], inverse[:, 1]), 1e-10)


def test_determinant_of_singular_matrices() -> None:
    """The gradient is that of cofactors; beside other matrices in a stack too."""
    a = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0, 1.0, 5.0]])
    cofactors = np.array([[7.0, -5.0, 1.0], [-7.0, 5.0, -1.0], [0.0, 0.0, 0.0]])
    same(pb.compile(np.linalg.det).grad(a), cofactors, 1e-12)
    both = np.stack([a, np.eye(3)])
    same(pb.compile(lambda a: np.sum(np.linalg.det(a))).grad(both), np.stack([cofactors, np.eye(3)]), 1e-12)
    same(pb.compile(np.linalg.det).grad(np.zeros((3, 3))), np.zeros((3, 3)))


def test_gradients_of_symmetric_arguments() -> None:
    """Of the triangle that is read; the symmetric part is what others give."""
    g = pb.compile(lambda a: np.sum(np.log(np.diag(np.linalg.cholesky(a))))).grad(S)
    assert not np.triu(g, 1).any()
    same((g + g.T) / 2, np.linalg.inv(S) / 2, 1e-12)
    upper = pb.compile(lambda a: np.sum(np.log(np.diag(scipy.linalg.cholesky(a))))).grad(S)
    same(upper, g.T, 1e-12)


def test_equal_eigenvalues() -> None:
    a = np.diag([2.0, 2.0, 2.0, 5.0])
    same(pb.compile(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3)).grad(a), 3 * a @ a, 1e-12)
    same(pb.compile(lambda a: np.linalg.norm(a, "nuc")).grad(np.eye(3)), np.eye(3), 1e-12)
    moved = pb.compile(lambda a: np.sum(np.linalg.eigvalsh(a) ** 3)).jvp(a, tangents={"a": a + 1})[1]
    assert moved == pytest.approx(np.sum(3 * a @ a * (a + 1)))
    projection = pb.compile(lambda a: np.sum(np.linalg.eigh(a)[1][:, 3] ** 4))
    assert np.isnan(projection.grad(a)).any()  # the vectors of the others are not defined, so none has a derivative here


def test_pseudo_inverse_of_one_rank() -> None:
    """Where the rank stays the derivative exists; equal singular values do it no harm."""
    same(pb.compile(lambda a: np.sum(np.linalg.pinv(a))).grad(np.eye(3, 2)), -np.ones((3, 2)) + [[0, 0], [0, 0], [2, 2]], 1e-12)


def test_in_loops_and_branches() -> None:
    """Factors are kept for the way back, and so are arrays that are views of others."""

    def newton(a, x, steps):
        for _ in range(steps):
            x = x - np.linalg.solve(a.T + np.diag(x * x), a.T @ x - 1.0)
            if np.sum(x) > 100.0:
                x = scipy.linalg.solve_triangular(a.T, x, check_finite=False)
        return np.sum(x)

    def powers(a, steps):
        for _ in range(steps):
            a = np.linalg.inv(a) + scipy.linalg.expm(a / 20) + np.linalg.pinv(a) * np.linalg.det(a / 4)
        return np.sum(np.linalg.cholesky(a.T @ a))

    compiled = pb.compile(newton)
    a, x = S / 4, y
    small = pb.compile(powers)
    assert small(SMALL[0], 3) == pytest.approx(powers(SMALL[0], 3))
    e = matrix(3, 3) / 8
    want = slope(lambda a: powers(a, 3), (SMALL[0],), [e])
    assert np.sum(small.grad(SMALL[0], 3, wrt="a") * e) == pytest.approx(want, rel=1e-6)
    assert compiled(a, x, 3) == pytest.approx(newton(a, x, 3))
    d = matrix(12, 12) / 8
    want = slope(lambda a: newton(a, x, 3), (a,), [d])
    assert np.sum(compiled.grad(a, x, 3, wrt="a") * d) == pytest.approx(want, rel=1e-6)


def test_any_length() -> None:
    """One compilation for every size."""
    f = pb.compile(lambda a, b: np.linalg.solve(a, b) @ b + np.linalg.slogdet(a)[1])
    for n in (9, 17, 40):
        a, b = positive(n, n), matrix(n)
        assert f(a, b) == pytest.approx(np.linalg.solve(a, b) @ b + np.linalg.slogdet(a)[1])
    assert f.cache_info().specializations == 1


# -- the ops: compiled as interpreted -----------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", (f64, f32), ids=str)
@pytest.mark.parametrize("batch", ((), (3,), (0,)), ids=str)
@pytest.mark.parametrize("size", (0, 1, 2, 11))
def test_ops(kind: Any, batch: tuple[int, ...], size: int) -> None:
    digits = 1e-10 if kind is f64 else 5e-3
    square = positive(*batch, size, size).astype(kind.numpy) if size else np.zeros((*batch, 0, 0), kind.numpy)
    sides = matrix(*batch, size, 3).astype(kind.numpy)
    high = matrix(*batch, size + 2, size).astype(kind.numpy)

    def check(name: str, *args: np.ndarray, absolute: bool = False, **attrs: Any) -> np.ndarray:
        params = [Value(f"x{k}", Type(kind, a.shape)) for k, a in enumerate(args)]
        b = Builder()
        func = Func("f", b.close("return", (getattr(b, name)(*params, **attrs),), params))
        (want,), (found,) = run(func, args), compile_kernel(func)(list(args))
        same(np.abs(found) if absolute else found, np.abs(want) if absolute else want, digits)
        return want

    check("cholesky", square)
    factors = check("lu", square)
    for trans in (False, True):
        check("lu_solve", factors, sides, trans=trans)
        for lower in (False, True):
            for unit in (False, True):
                check("triangular_solve", square / (size + 1), sides, lower=lower, trans=trans, unit=unit)
    check("eigh", square, absolute=True)
    check("svd", high, absolute=True, tall=True)
    check("svd", np.ascontiguousarray(np.swapaxes(high, -1, -2)), absolute=True, tall=False)
    check("qr", high, absolute=True)


def test_nothing_is_factored_twice() -> None:
    b = Builder()
    a, y_ = Value("a", Type(f64, (4, 4))), Value("y", Type(f64, (4, 1)))
    func = Func("f", b.close("return", (b.solve(a, b.lu(a), y_, trans=False), b.logabsdet(a, b.lu(a))), (a, y_)))
    for made in (differentiate(func, [a, y_]), push_forward(func, [a, y_])):
        assert sum(instr.op.name == "lu" for instr in made.body) == 1


# -- errors ---------------------------------------------------------------------------------------------------------------
HERE = r" \(.*test_linalg\.py:\d+\)"
FAILING: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (lambda a: np.linalg.cholesky(a), (-S,), "Matrix is not positive definite" + HERE),
    (lambda a: np.linalg.cholesky(a), (np.full((3, 3), np.nan),), "Matrix is not positive definite" + HERE),
    (lambda a: scipy.linalg.cholesky(a), (-SMALL[0],), "Matrix is not positive definite" + HERE),
    (lambda a: np.linalg.solve(a, a[0]), (np.ones((3, 3)),), "Singular matrix" + HERE),
    (lambda a: np.linalg.inv(a), (np.zeros((12, 12)),), "Singular matrix" + HERE),
    (lambda a: np.linalg.inv(a), (np.stack([np.eye(3), np.zeros((3, 3))]),), "Singular matrix" + HERE),
    (
        lambda a: scipy.linalg.solve_triangular(a, a[0]),
        (np.diag([1.0, 0.0]),),
        "singular matrix: a number on the diagonal is zero" + HERE,
    ),
    (
        lambda a, b: np.linalg.lstsq(a, b)[0],
        (np.ones((4, 2)), np.ones(4)),
        "lstsq: the matrix does not have full rank, so the solution has no derivative" + HERE,
    ),
    (lambda a: np.linalg.inv(a), (np.ones((3, 4)),), r"Last 2 dimensions of the array must be square\n  at .*"),
    (lambda a: np.linalg.inv(a), (np.ones((30, 40)),), r"Last 2 dimensions of the array must be square\n  at .*"),
    (
        lambda a: np.linalg.det(a),
        (np.ones(3),),
        r"1-dimensional array given. Array must be at least two-dimensional\n  at .*",
    ),
]


@pytest.mark.parametrize(("function", "args", "message"), FAILING, ids=[str(k) for k in range(len(FAILING))])
def test_errors(function: Callable[..., Any], args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(np.linalg.LinAlgError, match=f"^{message}"):
        pb.compile(function)(*args)


def test_checks_of_scipy() -> None:
    with pytest.raises(ValueError, match=r"^array must not contain infs or NaNs \(.*test_linalg.py:\d+\)$"):
        pb.compile(lambda a: scipy.linalg.cholesky(a))(np.full((3, 3), np.inf))


@pytest.mark.parametrize(
    ("function", "message"),
    (
        (lambda a: np.linalg.svd(a), "the svd with full matrices is not supported"),
        (lambda a: np.linalg.qr(a, mode="complete"), r"np.linalg.qr\(mode='complete'\) is not supported"),
        (lambda a: scipy.linalg.solve(a, a, assume_a="sym"), r"scipy.linalg.solve\(assume_a='sym'\) is not supported"),
        (lambda a: scipy.linalg.eigh(a, a), "scipy.linalg.eigh of two matrices is not supported"),
    ),
)
def test_unsupported(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(pb.UnsupportedError, match=f"^{message}"):
        pb.compile(function)(TALL)
