"""Factorizations, linear equations, determinants: ``numpy.linalg`` and ``scipy.linalg``.

All axes before the last two are a batch and broadcast as in NumPy. What the gradient of a symmetric argument is says Note
[Symmetric arguments] in ``ir/ops/linalg.py``. A factorization that does not exist is NumPy's LinAlgError when the function
runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.contract import agree
from pullback.frontends.promote import broadcast_shape, cast, float_dtype, spread, wrap
from pullback.frontends.trace import Trace, located
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.ops.linalg import determinant_sign
from pullback.ir.ops.matrices import diagonal, identity, part, transposed

SINGULAR, INDEFINITE = "Singular matrix", "Matrix is not positive definite"


# -- operands ---------------------------------------------------------------------------------------------------------
def refused(trace: Trace, message: str) -> Exception:
    """NumPy's error for shapes, with the user's line."""
    return np.linalg.LinAlgError(located(message, trace.where()))


def matrices(*operands: Any) -> tuple[Trace, list[Value]]:
    """Stacks of matrices with one floating element type."""
    arrays = [wrap(x) for x in operands]
    trace = arrays[0].context
    trace.here()
    for array in arrays:
        if array.ndim < 2:
            raise refused(trace, f"{array.ndim}-dimensional array given. Array must be at least two-dimensional")
    dtype = float_dtype(arrays)
    return trace, [cast(array, dtype) for array in arrays]


def squared(trace: Trace, x: Value) -> Value:
    """``x`` with last axes that are known to be equal."""
    *batch, m, n = x.type.shape
    m, n = trace.canonical(m), trace.canonical(n)
    if m == n:
        return x
    if not trace.is_open(m, n) and trace.hint(m) != trace.hint(n):
        raise refused(trace, "Last 2 dimensions of the array must be square")
    if trace.equate(m, n):
        return x
    found: Value = trace.builder.match(x, shape=(*batch, n, n))
    return found


def square(a: Any) -> tuple[Trace, Value]:
    trace, (x,) = matrices(a)
    return trace, squared(trace, x)


def require(trace: Trace, holds: Value, message: str, error: str = "LinAlgError") -> None:
    """A check, when the function runs, that a condition holds everywhere."""
    b = trace.here()
    b.check(b.all(holds, axes=tuple(range(holds.type.rank))) if holds.type.rank else holds, message=message, error=error)


def require_number(trace: Trace, x: Value, message: str) -> None:
    """A check that nothing is NaN, as which a routine that failed leaves its result."""
    require(trace, trace.here().eq(x, x), message)


def _require_nonzero_diagonal(trace: Trace, x: Value, message: str) -> None:
    b = trace.here()
    pivots = diagonal(b, x)
    require(trace, b.ne(pivots, b.zeros(pivots.type)), message)


def _require_finite(trace: Trace, *values: Value) -> None:
    """SciPy's ``check_finite``."""
    for value in values:
        require(trace, trace.here().isfinite(value), "array must not contain infs or NaNs", "ValueError")


def factors(trace: Trace, x: Value, message: str = "") -> Value:
    """Gauss's factors; with a message only of a matrix that is not singular."""
    b = trace.here()
    lu: Value = b.lu(x)
    if message:
        _require_nonzero_diagonal(trace, part(b, lu, -2, 0, x.type.shape[-1]), message)
    return lu


def _sides(trace: Trace, a: Value, y: Value) -> tuple[Value, Value]:
    """Matrices and right sides with one batch, and as many rows."""
    y = agree(trace, a, a.type.rank - 1, y, y.type.rank - 2)
    batch = broadcast_shape(trace, [a.type.shape[:-2], y.type.shape[:-2]])
    return _spread(trace, a, batch), _spread(trace, y, batch)


def _spread(trace: Trace, x: Value, batch: Sequence[Size]) -> Value:
    shape = trace.canonical_shape((*batch, *x.type.shape[-2:]))
    return x if x.type.shape == shape else spread(trace, x, shape)


def _with_sides(a: Any, b: Any, method: Callable[[Trace, Value, Value], Value], vector: bool | None = None) -> Array:
    """``method(trace, matrices, right sides)`` for right sides as the user gives them: ``vector`` if they are one."""
    given = wrap(b)
    vector = given.ndim == 1 if vector is None else vector
    trace, (x, y) = matrices(a, given[..., None] if vector else given)
    x = squared(trace, x)
    found = method(trace, *_sides(trace, x, y))
    if vector:
        found = trace.builder.reshape(found, shape=found.type.shape[:-1])
    return Array(trace, found, contiguous=True)


# -- Cholesky ---------------------------------------------------------------------------------------------------------
def _factored(trace: Trace, x: Value, lower: bool) -> Value:
    """The factor, read from and given as the lower or the upper triangle."""
    b = trace.here()
    factor = b.cholesky(x if lower else transposed(b, x))
    require_number(trace, diagonal(b, factor), INDEFINITE)
    return factor if lower else transposed(b, factor)


def cholesky(a: Any, /, *, upper: bool = False) -> Array:
    trace, x = square(a)
    return Array(trace, _factored(trace, x, not upper))


def scipy_cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    trace, x = square(a)
    if check_finite:
        _require_finite(trace, x)
    return Array(trace, _factored(trace, x, lower))


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """SciPy leaves what it likes in the other triangle; here it is zero."""
    return scipy_cholesky(a, lower, overwrite_a, check_finite), lower


def _by_factor(trace: Trace, factor: Value, y: Value, lower: bool) -> Value:
    """The solution with the matrix of which this is the Cholesky factor."""
    b = trace.here()
    half = b.triangular_solve(factor, y, lower=lower, trans=not lower, unit=False)
    found: Value = b.triangular_solve(factor, half, lower=lower, trans=lower, unit=False)
    return found


def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    c, lower = c_and_lower
    return _with_sides(c, b, lambda trace, x, y: _by_factor(trace, x, y, bool(lower)))


# -- linear equations -------------------------------------------------------------------------------------------------
def _solved(trace: Trace, x: Value, y: Value, trans: bool = False) -> Value:
    found: Value = trace.here().solve(x, factors(trace, x, SINGULAR), y, trans=trans)
    return found


def solve(a: Any, b: Any) -> Array:
    return _with_sides(a, b, _solved)


def scipy_solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Array:
    known = {"general": "gen", "positive definite": "pos"}
    kind = known.get(assume_a or "gen", assume_a or "gen")
    if kind not in ("gen", "pos"):
        raise wrap(a).context.error(
            UnsupportedError, f"scipy.linalg.solve(assume_a={assume_a!r}) is not supported", "use assume_a='gen' or 'pos'"
        )

    def method(trace: Trace, x: Value, y: Value) -> Value:
        if check_finite:
            _require_finite(trace, x, y)
        return _by_factor(trace, _factored(trace, x, lower), y, lower) if kind == "pos" else _solved(trace, x, y, transposed)

    return _with_sides(a, b, method)


def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans is 0, 1, 2 or 'N', 'T', 'C', got {trans!r}")

    def method(trace: Trace, x: Value, y: Value) -> Value:
        if check_finite:
            _require_finite(trace, x, y)
        if not unit_diagonal:
            _require_nonzero_diagonal(trace, x, "singular matrix: a number on the diagonal is zero")
        turned = trans not in (0, "N")
        found: Value = trace.here().triangular_solve(x, y, lower=bool(lower), trans=turned, unit=bool(unit_diagonal))
        return found

    return _with_sides(a, b, method)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    trace, x = square(a)
    return Array(trace, _solved(trace, x, identity(trace.here(), x.type)))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Array:
    array, sides = wrap(a), wrap(b)
    if axes is not None:
        order = [k for k in range(array.ndim) if k not in axes] + list(axes)
        array = array.transpose(order)
    tail = array.shape[sides.ndim :]
    return solve(array.reshape((sides.size, sides.size)), sides.ravel()).reshape(tail)


def tensorinv(a: Any, ind: int = 2) -> Array:
    array = wrap(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    head, tail = array.shape[:ind], array.shape[ind:]
    count = 1
    for n in tail:
        count = count * n
    return inv(array.reshape((-1, count))).reshape((*tail, *head))


# -- determinants -----------------------------------------------------------------------------------------------------
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    trace, x = square(a)
    return Array(trace, trace.here().det(x, factors(trace, x)))


def slogdet(a: Any) -> Any:
    trace, x = square(a)
    b = trace.here()
    lu = factors(trace, x)
    kind = type(np.linalg.slogdet(np.eye(1)))
    return kind(Array(trace, determinant_sign(b, lu)), Array(trace, b.logabsdet(x, lu)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.linalg.cholesky": cholesky,
    "numpy.linalg.solve": solve,
    "numpy.linalg.inv": inv,
    "numpy.linalg.det": det,
    "numpy.linalg.slogdet": slogdet,
    "numpy.linalg.tensorsolve": tensorsolve,
    "numpy.linalg.tensorinv": tensorinv,
    "scipy.linalg.cholesky": scipy_cholesky,
    "scipy.linalg.cho_factor": cho_factor,
    "scipy.linalg.cho_solve": cho_solve,
    "scipy.linalg.solve": scipy_solve,
    "scipy.linalg.solve_triangular": solve_triangular,
    "scipy.linalg.inv": inv,
    "scipy.linalg.det": det,
}
