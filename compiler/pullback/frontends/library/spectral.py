"""Eigenvalues, singular values, orthogonal factors and what is made of them: ``numpy.linalg`` and ``scipy.linalg``.

What the gradient is where eigenvalues are equal: Note [Equal eigenvalues] in ``ir/ops/spectral.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.contract import dot, matmul
from pullback.frontends.library.create import zeros
from pullback.frontends.library.elementwise import astype
from pullback.frontends.library.linalg import inv, matrices, refused, require, require_number, square
from pullback.frontends.library.reduce import any as some
from pullback.frontends.library.reduce import max as largest
from pullback.frontends.library.reduce import norm
from pullback.frontends.library.reduce import sum as total
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import of_size
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.ops.matrices import diagonal, part, product, transposed
from pullback.ir.ops.spectral import qr_parts, singular_parts


def _named(function: Callable[..., Any], *parts: Any) -> Any:
    """A result of the tuple type that NumPy's function gives."""
    return type(function(np.eye(1)))(*(part if isinstance(part, Array) else Array(parts[0].context, part) for part in parts))


def _tall(trace: Trace, x: Value) -> bool:
    """Whether a matrix is not wider than high."""
    return trace.decide(x.type.shape[-1], "<=", x.type.shape[-2])


# -- symmetric matrices -----------------------------------------------------------------------------------------------
def _eigh(a: Any, lower: bool) -> tuple[Trace, Value, Value]:
    """The eigenvalues, rising, and the vectors as columns."""
    trace, x = square(a)
    b = trace.here()
    x = x if lower else transposed(b, x)
    found = b.eigh(x)
    w = b.eigenvalues(x, found)
    require_number(trace, w, "Eigenvalues did not converge")
    return trace, w, transposed(b, b.eigenvectors(x, found))


def _is_lower(uplo: str) -> bool:
    if uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return uplo.upper() == "L"


def eigh(a: Any, UPLO: str = "L") -> Any:
    trace, w, v = _eigh(a, _is_lower(UPLO))
    return _named(np.linalg.eigh, Array(trace, w), Array(trace, v))


def eigvalsh(a: Any, UPLO: str = "L") -> Array:
    trace, w, _ = _eigh(a, _is_lower(UPLO))
    return Array(trace, w)


def scipy_eigh(a: Any, b: Any = None, *, lower: bool = True, eigvals_only: bool = False, check_finite: bool = True) -> Any:
    if b is not None:
        raise wrap(a).context.error(
            UnsupportedError,
            "scipy.linalg.eigh of two matrices is not supported",
            "factor the second one: L = cholesky(b), then eigh(inv(L) @ a @ inv(L).T)",
        )
    trace, w, v = _eigh(a, lower)
    return Array(trace, w) if eigvals_only else (Array(trace, w), Array(trace, v))


def scipy_eigvalsh(a: Any, b: Any = None, *, lower: bool = True, check_finite: bool = True) -> Any:
    return scipy_eigh(a, b, lower=lower, eigvals_only=True)


# -- singular values --------------------------------------------------------------------------------------------------
def _svd(a: Any) -> tuple[Trace, Value, Value, Value]:
    trace, (x,) = matrices(a)
    ut, s, v = singular_parts(trace.here(), x, _tall(trace, x))
    require_number(trace, s, "SVD did not converge")
    return trace, transposed(trace.here(), ut), s, v


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    if not compute_uv:
        return svdvals(a)
    trace, u, s, v = _svd(a)
    if full_matrices and not _is_square(trace, a):
        raise trace.error(
            UnsupportedError,
            "the svd with full matrices is not supported, since the vectors that it adds have no derivative",
            "use full_matrices=False",
        )
    parts = (Array(trace, u), Array(trace, s), Array(trace, transposed(trace.here(), v)))
    return _named(np.linalg.svd, *parts)


def scipy_svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, check_finite: bool = True) -> Any:
    found = svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def _is_square(trace: Trace, a: Any) -> bool:
    m, n = wrap(a).symbolic_shape[-2:]
    return trace.decide(m, "==", n)


def svdvals(x: Any, /, check_finite: bool = True) -> Array:
    trace, _, s, _ = _svd(x)
    return Array(trace, s)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    return norm(x, ord, (-2, -1), keepdims)


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """How many singular values are larger than the tolerance. As an integer it has no gradient."""
    array = wrap(A)
    if array.ndim < 2:
        return astype(some(array != 0), int)
    s = svdvals(array)
    if tol is None:
        relative = _longest(array) * np.finfo(s.dtype).eps if rtol is None else wrap(rtol)[..., None]
        least = largest(s, -1, keepdims=True) * relative
    else:
        least = wrap(tol)[..., None]
    return total(s > least, -1)


def _longest(array: Array) -> Any:
    m, n = array.symbolic_shape[-2:]
    return of_size(array.context, m if array.context.decide(n, "<=", m) else n)


def cond(x: Any, p: Any = None) -> Array:
    if p is None or p in (2, -2):
        s = svdvals(x)
        high, low = s[..., 0], s[..., -1]
        return low / high if p == -2 else high / low
    array = wrap(x)
    return norm(array, p, (-2, -1)) * norm(inv(array), p, (-2, -1))


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Array:
    """Singular values up to ``rcond`` (a number) times the largest count as zero."""
    trace, (x,) = matrices(a)
    if rtol is not None:
        rcond = rtol
    if rcond is None:
        rcond = 1e-15
    if not isinstance(rcond, (int, float)):
        raise trace.error(UnsupportedError, "pinv with a tolerance that is no number is not supported", "give it a number")
    found = trace.here().pinv(x, tall=_tall(trace, x), rcond=float(rcond))
    require_number(trace, found, "SVD did not converge")
    return Array(trace, found)


def scipy_pinv(a: Any, *, atol: Any = None, rtol: Any = None, check_finite: bool = True) -> Array:
    array = wrap(a)
    if atol:
        raise array.context.error(UnsupportedError, "scipy.linalg.pinv(atol=...) is not supported", "use rtol")
    if rtol is None:
        m, n = (array.context.hint(n) for n in array.symbolic_shape[-2:])
        rtol = max(m, n) * float(np.finfo(np.float64 if array.dtype_.kind != "f" else array.dtype).eps)
    return pinv(array, rtol)


# -- orthogonal factors -----------------------------------------------------------------------------------------------
def _qr(trace: Trace, x: Value) -> tuple[Value, Value]:
    """The reduced factors. Of a wide matrix they are those of its first columns, which turn the others too."""
    b = trace.here()
    if _tall(trace, x):
        return qr_parts(b, b.qr(x), x.type)
    m, n = x.type.shape[-2:]
    first = part(b, x, -1, 0, m)
    q, r = qr_parts(b, b.qr(first), first.type)
    rest = product(b, q, part(b, x, -1, m, n - m), x_t=True)
    return q, b.concatenate(r, rest, axis=x.type.rank - 1)


def qr(a: Any, mode: str = "reduced") -> Any:
    trace, (x,) = matrices(a)
    whole = mode == "complete" and trace.decide(x.type.shape[-2], "<=", x.type.shape[-1])  # then it is the same
    if mode not in ("reduced", "r") and not whole:
        raise trace.error(UnsupportedError, f"np.linalg.qr(mode={mode!r}) is not supported", "use mode='reduced' or 'r'")
    q, r = _qr(trace, x)
    return Array(trace, r) if mode == "r" else _named(np.linalg.qr, Array(trace, q), Array(trace, r))


def scipy_qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", pivoting: bool = False) -> Any:
    known = {"full": "complete", "economic": "reduced", "r": "r"}
    if pivoting or mode not in known:
        raise wrap(a).context.error(
            UnsupportedError, f"scipy.linalg.qr(mode={mode!r}, pivoting={pivoting}) is not supported", "use mode='economic'"
        )
    found = qr(a, known[mode])
    return (found,) if mode == "r" else tuple(found)


def _least_squares(trace: Trace, x: Value, y: Value) -> Value:
    """The solution by orthogonal factors, for a matrix of full rank; the shortest one where there are several."""
    b = trace.here()
    tall = _tall(trace, x)
    q, r = _qr(trace, x if tall else transposed(b, x))
    pivots = b.abs(diagonal(b, r))
    top = b.max(pivots, axes=(pivots.type.rank - 1,))
    limit = b.mul(
        b.broadcast(top, axes=tuple(range(top.type.rank)), shape=pivots.type.shape),
        b.full(float(np.finfo(x.type.dtype.numpy).eps) * 8, pivots.type),
    )
    require(trace, b.gt(pivots, limit), "lstsq: the matrix does not have full rank, so the solution has no derivative")
    if tall:
        found: Value = b.triangular_solve(r, product(b, q, y, x_t=True), lower=False, trans=False, unit=False)
        return found
    return product(b, q, b.triangular_solve(r, y, lower=False, trans=True, unit=False))


def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """The solution, the sums of squares that are left, the rank (which must be full) and the singular values."""
    array, sides = wrap(a), wrap(b)
    trace = matrices(array)[0]
    if array.ndim != 2:
        raise refused(trace, f"{array.ndim}-dimensional array given. Array must be two-dimensional")
    found = _with_sides_of(array, sides)
    m, n = array.symbolic_shape
    if trace.decide(m, "<=", n):
        left = zeros((0,), found.dtype)
    else:
        left = total((sides - matmul(array, found)) ** 2, 0)
        left = left.reshape((1,)) if sides.ndim == 1 else left
    rank = of_size(trace, m if trace.decide(m, "<=", n) else n)
    return found, left, rank, svdvals(array)


def _with_sides_of(a: Array, b: Array) -> Array:
    """Right sides of a matrix that need not be square."""
    vector = b.ndim == 1
    trace, (x, y) = matrices(a, b[:, None] if vector else b)
    if trace.canonical(x.type.shape[0]) != trace.canonical(y.type.shape[0]):
        if not trace.is_open(x.type.shape[0], y.type.shape[0]) and trace.hint(x.type.shape[0]) != trace.hint(y.type.shape[0]):
            raise refused(trace, "Incompatible dimensions")
        if not trace.equate(x.type.shape[0], y.type.shape[0]):
            y = trace.builder.match(y, shape=(x.type.shape[0], y.type.shape[1]))
    found = _least_squares(trace, x, y)
    return Array(trace, trace.builder.reshape(found, shape=found.type.shape[:-1]) if vector else found)


def scipy_lstsq(a: Any, b: Any, cond: Any = None, *options: Any, **named: Any) -> tuple[Any, ...]:
    return lstsq(a, b)


def expm(A: Any) -> Array:
    trace, x = square(A)
    found = trace.here().expm(x)
    return Array(trace, found, contiguous=True)


# -- products ---------------------------------------------------------------------------------------------------------
def multi_dot(arrays: Sequence[Any], *, out: None = None) -> Array:
    """In the order that takes fewest multiplications for the arguments at hand."""
    factors = [wrap(a) for a in arrays]
    if len(factors) < 2:
        raise ValueError("Expecting at least two arrays.")
    trace = factors[0].context
    ends = (
        factors[0].symbolic_shape[0] if factors[0].ndim == 2 else 1,
        factors[-1].symbolic_shape[-1] if factors[-1].ndim == 2 else 1,
    )
    sizes: list[Size] = [ends[0], *(f.symbolic_shape[0] for f in factors[1:]), ends[1]]
    if trace.is_open(*sizes):
        found = factors[0]
        for other in factors[1:]:
            found = dot(found, other)
        return found
    return _chain(factors, [trace.hint(n) for n in sizes])


def _chain(factors: Sequence[Array], sizes: Sequence[int]) -> Array:
    """The product of factors of ``sizes[k]`` by ``sizes[k + 1]`` (Cormen et al., Introduction to Algorithms, 15.2)."""
    count = len(factors)
    best: dict[tuple[int, int], tuple[int, int]] = {(k, k): (0, k) for k in range(count)}
    for width in range(1, count):
        for low in range(count - width):
            high = low + width
            costs = (
                (best[low, cut][0] + best[cut + 1, high][0] + sizes[low] * sizes[cut + 1] * sizes[high + 1], cut)
                for cut in range(low, high)
            )
            best[low, high] = min(costs)

    def build(low: int, high: int) -> Array:
        if low == high:
            return factors[low]
        cut = best[low, high][1]
        return dot(build(low, cut), build(cut + 1, high))

    return build(0, count - 1)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.linalg.eigh": eigh,
    "numpy.linalg.eigvalsh": eigvalsh,
    "numpy.linalg.svd": svd,
    "numpy.linalg.svdvals": svdvals,
    "numpy.linalg.qr": qr,
    "numpy.linalg.pinv": pinv,
    "numpy.linalg.lstsq": lstsq,
    "numpy.linalg.cond": cond,
    "numpy.linalg.matrix_rank": matrix_rank,
    "numpy.linalg.matrix_norm": matrix_norm,
    "numpy.linalg.multi_dot": multi_dot,
    "scipy.linalg.eigh": scipy_eigh,
    "scipy.linalg.eigvalsh": scipy_eigvalsh,
    "scipy.linalg.svd": scipy_svd,
    "scipy.linalg.svdvals": svdvals,
    "scipy.linalg.qr": scipy_qr,
    "scipy.linalg.pinv": scipy_pinv,
    "scipy.linalg.lstsq": scipy_lstsq,
    "scipy.linalg.expm": expm,
}
