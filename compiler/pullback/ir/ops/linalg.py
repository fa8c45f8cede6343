"""Factorizations of matrices and the solutions of linear equations: LAPACK, over all axes before the last two.

Note [Aids]
~~~~~~~~~~
A derivative of ``solve`` needs the matrix only through solutions with it, so ``solve(a, lu, b)`` is handed the matrix, for the
derivative, and its factors, for the work. The factors (``lu``, ``lu_solve``) have no derivative themselves; the adjoint, the
tangent and their derivatives solve with the same ones, and nothing is factored twice.

Note [Packing]
~~~~~~~~~~~~
What a routine of LAPACK gives together is one array, of which the parts are slices: ``lu`` has the factors by columns, as
LAPACK makes them, and in its last row, as numbers, the rows that pivoting exchanged. An op has one result then, and one
cotangent.

Note [Failures]
~~~~~~~~~~~~~
A factorization that does not exist is all NaN (``cholesky``) or has a zero on the diagonal (``lu``). The frontends add a
``check`` of that, so the op itself has no effect and may be moved, shared or left out.

Note [Symmetric arguments]
~~~~~~~~~~~~~~~~~~~~~~~~
``cholesky`` and ``eigh`` read one triangle of a matrix that is symmetric, as in NumPy, and the gradient is that of the
program as written: zero in the other triangle, while each number off the diagonal counts twice, for both of its places. It
agrees with differences by any element and along any direction, symmetric or not. ``(g + g.T) / 2`` is what JAX and PyTorch
give, where a step along the gradient leaves the matrix symmetric. For a matrix that the program makes symmetric all this
comes to the same.

Formulas: M. Giles, Collected matrix derivative results for forward and reverse mode algorithmic differentiation (2008);
I. Murray, Differentiation of the Cholesky decomposition (2016, arXiv:1602.07527), section 3.1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops.base import Attrs, Decompose, General, Plain, Routine, TypeMismatch, table
from pullback.ir.ops.control import OPS as OPS_OF_CONTROL
from pullback.ir.ops.matrices import (
    columns,
    diagonal,
    identity,
    mirrored,
    part,
    places,
    product,
    scalars,
    total,
    transposed,
    triangle,
    unmirrored,
)
from pullback.ir.ops.spectral import singular_parts, square
from pullback.ir.types import Type


def _factors(kind: Type) -> Type:
    """The type of ``lu`` of such matrices."""
    *batch, n, _ = kind.shape
    return kind.with_shape((*batch, n + 1, n))


def _sides(a: Type, b: Type) -> Type:
    """Right sides that fit the matrices."""
    if b.rank != a.rank or b.dtype is not a.dtype or b.shape[:-1] != a.shape[:-1]:
        raise TypeMismatch(f"right sides {b} do not fit the matrices {a}")
    return b


# -- Cholesky ---------------------------------------------------------------------------------------------------------
def _each(f: Any, *arrays: Any) -> Any:
    """``f`` of each matrix of stacks that have one batch."""
    batch = arrays[0].shape[:-2]
    if not batch:
        return f(*arrays)
    flat = [a.reshape(math.prod(batch), *a.shape[-2:]) for a in arrays]
    found = [f(*one) for one in zip(*flat, strict=True)]
    shape = found[0].shape if found else f(*(np.zeros(a.shape[1:], a.dtype) for a in flat)).shape
    return np.array(found, arrays[0].dtype).reshape(*batch, *shape)


def _cholesky(a: Any) -> Any:
    """Column by column; in numbers of any kind, like all that follows."""
    factor = np.zeros_like(a)
    for j in range(len(a)):
        square = a[j, j] - np.dot(factor[j, :j], factor[j, :j])
        if not square > 0:
            return np.full_like(a, np.nan)
        factor[j, j] = square**0.5
        factor[j + 1 :, j] = (a[j + 1 :, j] - np.dot(factor[j + 1 :, :j], factor[j, :j])) / factor[j, j]
    return factor


def _halved(b: Builder, x: Value) -> Value:
    """The lower triangle with half the diagonal: Murray's Phi."""
    row, column = places(b, x.type.shape)
    factor = b.select(b.eq(row, column), b.full(0.5, x.type), b.full(1, x.type))
    return triangle(b, b.mul(x, factor), True)


def _vjp_cholesky(b: Builder, instr: Instr, ct: Value) -> tuple[Value]:
    """``L^-T Phi(L^T L_adj) L^-1``, as it is read."""
    factor = instr.out
    inner = _halved(b, product(b, factor, ct, x_t=True))
    left = b.triangular_solve(factor, inner, lower=True, trans=True, unit=False)
    both = b.triangular_solve(factor, transposed(b, left), lower=True, trans=True, unit=False)
    return (unmirrored(b, b.mul(b.add(both, transposed(b, both)), b.full(0.5, both.type))),)


def _jvp_cholesky(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """``L Phi(L^-1 dA L^-T)``."""
    factor, moved = instr.out, tangents[0]
    assert moved is not None
    left = b.triangular_solve(factor, mirrored(b, moved), lower=True, trans=False, unit=False)
    both = b.triangular_solve(factor, transposed(b, left), lower=True, trans=False, unit=False)
    return product(b, factor, _halved(b, both))


CHOLESKY = General(
    name="cholesky",  # the lower factor, from the lower triangle; NaN if the matrix is not positive definite
    infer=lambda types, attrs: (square(types[0]),),
    evaluate=lambda args, attrs: _each(_cholesky, args[0]),
    vjp=_vjp_cholesky,
    jvp=_jvp_cholesky,
    lower=Routine("cholesky"),
)


# -- triangles --------------------------------------------------------------------------------------------------------
def _triangular(attrs: Attrs) -> Any:
    def solve(a: Any, b: Any) -> Any:
        matrix = (np.tril if attrs["lower"] else np.triu)(a)
        if attrs["unit"]:
            np.fill_diagonal(matrix, 1)
        with np.errstate(all="ignore"):
            order = range(len(b)) if attrs["lower"] != attrs["trans"] else range(len(b) - 1, -1, -1)
            matrix, x = matrix.T if attrs["trans"] else matrix, b.copy()
            for k in order:
                x[k] = (b[k] - np.dot(np.delete(matrix[k], k), np.delete(x, k, 0))) / matrix[k, k]
        return x

    return solve


def _vjp_triangular(b: Builder, instr: Instr, ct: Value) -> tuple[Value, Value]:
    """Of ``A X = B``: ``B_adj = A^-T X_adj`` and the triangle of ``-B_adj X^T``."""
    a, _ = instr.args
    attrs = instr.attrs
    side = b.triangular_solve(a, ct, **{**attrs, "trans": not attrs["trans"]})
    matrix = product(b, instr.out, side, y_t=True) if attrs["trans"] else product(b, side, instr.out, y_t=True)
    return triangle(b, b.neg(matrix), attrs["lower"], attrs["unit"]), side


def _jvp_triangular(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    (a, _), (da, db), attrs = instr.args, tangents, instr.attrs
    moved = None
    if da is not None:
        moved = b.neg(product(b, triangle(b, da, attrs["lower"], attrs["unit"]), instr.out, x_t=attrs["trans"]))
    found: Value = b.triangular_solve(a, total(b, moved, db), **attrs)
    return found


TRIANGULAR_SOLVE = General(
    # A X = B, or with ``trans`` A^T X = B; only the lower (upper) triangle of A is read, and with ``unit`` its diagonal is 1
    name="triangular_solve",
    infer=lambda types, attrs: (_sides(square(types[0]), types[1]),),
    evaluate=lambda args, attrs: _each(_triangular(attrs), *args),
    vjp=_vjp_triangular,
    jvp=_jvp_triangular,
    lower=Routine("triangular_solve"),
    samples=(
        (("f64[3, 3]", "f64[3, 2]"), {"lower": True, "trans": False, "unit": True}),
        (("f64[2, 3, 3]", "f64[2, 3, 1]"), {"lower": False, "trans": True, "unit": True}),
    ),
)


# -- general matrices -------------------------------------------------------------------------------------------------
def _lu(a: Any) -> Any:
    """Gauss's elimination with row exchanges, the obvious way."""
    n = len(a)
    packed = np.zeros((n + 1, n), a.dtype)
    m = packed[:n].T
    m[...] = a
    with np.errstate(all="ignore"):
        for k in range(n):
            pivot = k + int(np.argmax(np.abs(m[k:, k])))
            packed[n, k] = pivot  # a number of the same kind as the rest
            m[[k, pivot]] = m[[pivot, k]]
            if m[k, k] != 0:
                m[k + 1 :, k] /= m[k, k]
            m[k + 1 :, k + 1 :] -= np.outer(m[k + 1 :, k], m[k, k + 1 :])
    return packed


LU = Plain(  # L (ones on its diagonal) and U in one, by columns; the row that each was exchanged with. See Note [Packing]
    name="lu",
    infer=lambda types, attrs: (_factors(square(types[0])),),
    evaluate=lambda args, attrs: _each(_lu, args[0]),
    lower=Routine("lu"),
    samples=((("f64[3, 3]",), {}),),
)


def _infer_lu_solve(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    lu, b = types
    if lu.rank != b.rank or lu.shape[:-2] != b.shape[:-2] or lu.shape[-1] != b.shape[-2] or lu.shape[-2] != b.shape[-2] + 1:
        raise TypeMismatch(f"right sides {b} do not fit the factors {lu}")
    return (b,)


def _lu_solve(attrs: Attrs) -> Any:
    def solve(packed: Any, b: Any) -> Any:
        n = len(b)
        lu, pivots, x = packed[:n].T, packed[n].astype(int), b.copy()
        lower, upper = ({"lower": low, "unit": low, "trans": attrs["trans"]} for low in (True, False))
        if attrs["trans"]:
            x = _triangular(lower)(lu, _triangular(upper)(lu, x))
            for k in range(n - 1, -1, -1):
                x[[k, pivots[k]]] = x[[pivots[k], k]]
            return x
        for k in range(n):
            x[[k, pivots[k]]] = x[[pivots[k], k]]
        return _triangular(upper)(lu, _triangular(lower)(lu, x))

    return solve


LU_SOLVE = Plain(
    name="lu_solve",
    infer=_infer_lu_solve,
    evaluate=lambda args, attrs: _each(_lu_solve(attrs), *args),
    lower=Routine("lu_solve"),
)


def _infer_solve(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    a, lu, b = types
    if lu != _factors(square(a)):
        raise TypeMismatch(f"{lu} are no factors of {a}")
    return (_sides(a, b),)


def _vjp_solve(b: Builder, instr: Instr, ct: Value) -> tuple[Value, None, Value]:
    """Giles 2.3.1: ``B_adj = A^-T X_adj``, ``A_adj = -B_adj X^T``."""
    a, lu, _ = instr.args
    trans = instr.attrs["trans"]
    side = b.solve(a, lu, ct, trans=not trans)
    matrix = product(b, instr.out, side, y_t=True) if trans else product(b, side, instr.out, y_t=True)
    return b.neg(matrix), None, side


def _jvp_solve(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    (a, lu, _), (da, _, db), trans = instr.args, tangents, instr.attrs["trans"]
    moved = None if da is None else b.neg(product(b, da, instr.out, x_t=trans))
    found: Value = b.solve(a, lu, total(b, moved, db), trans=trans)
    return found


SOLVE = General(  # A X = B, or with ``trans`` A^T X = B; see Note [Aids]
    name="solve",
    infer=_infer_solve,
    evaluate=lambda args, attrs: _each(_lu_solve(attrs), *args[1:]),
    vjp=_vjp_solve,
    jvp=_jvp_solve,
    lower=Decompose(lambda b, instr: b.lu_solve(*instr.args[1:], **instr.attrs)),
)


def _pivots(b: Builder, lu: Value) -> Value:
    """The diagonal of U."""
    return diagonal(b, part(b, lu, -2, 0, lu.type.shape[-1]))


def _sign(b: Builder, lu: Value) -> Value:
    """The determinant of the row exchanges: -1 for each that is one."""
    n = lu.type.shape[-1]
    exchanged = b.reshape(part(b, lu, -2, n, 1), shape=(*lu.type.shape[:-2], n))
    own = b.convert(b.iota(size=n), dtype=lu.type.dtype.name)
    own = b.broadcast(own, axes=(exchanged.type.rank - 1,), shape=exchanged.type.shape)
    signs = b.select(b.eq(exchanged, own), b.full(1, own.type), b.full(-1, own.type))
    found: Value = b.prod(signs, axes=(signs.type.rank - 1,))
    return found


def _infer_det(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    a, lu = types
    if lu != _factors(square(a)):
        raise TypeMismatch(f"{lu} are no factors of {a}")
    return (a.with_shape(a.shape[:-2]),)


def _inverse(b: Builder, instr: Instr, trans: bool) -> Value:
    a, lu = instr.args
    found: Value = b.solve(a, lu, identity(b, a.type), trans=trans)
    return found


def _build_logabsdet(b: Builder, instr: Instr) -> Value:
    diagonals = _pivots(b, instr.args[1])
    found: Value = b.sum(b.log(b.abs(diagonals)), axes=(diagonals.type.rank - 1,))
    return found


def _evaluate_logabsdet(args: Any, attrs: Attrs) -> Any:
    with np.errstate(all="ignore"):
        return np.sum(np.log(np.abs(np.diagonal(args[1], axis1=-2, axis2=-1))), -1)


def _jvp_logabsdet(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """``trace(A^-1 dA)``."""
    assert tangents[0] is not None
    terms = b.mul(_inverse(b, instr, True), tangents[0])
    found: Value = b.sum(terms, axes=(terms.type.rank - 2, terms.type.rank - 1))
    return found


LOGABSDET = General(  # log |det A| of ``(a, lu)``; Giles 2.2.4
    name="logabsdet",
    infer=_infer_det,
    evaluate=_evaluate_logabsdet,
    vjp=lambda b, instr, ct: (b.mul(_inverse(b, instr, True), scalars(b, ct, instr.args[0].type.shape)), None),
    jvp=_jvp_logabsdet,
    lower=Decompose(_build_logabsdet),
)


def determinant_sign(b: Builder, lu: Value) -> Value:
    """The sign of the determinant, 0 for a singular matrix."""
    signs = b.sign(_pivots(b, lu))
    found: Value = b.mul(b.prod(signs, axes=(signs.type.rank - 1,)), _sign(b, lu))
    return found


def _build_det(b: Builder, instr: Instr) -> Value:
    lu = instr.args[1]
    diagonals = _pivots(b, lu)
    found: Value = b.mul(b.prod(diagonals, axes=(diagonals.type.rank - 1,)), _sign(b, lu))
    return found


def _evaluate_det(args: Any, attrs: Attrs) -> Any:
    factors = args[1]
    exchanged = np.sum(factors[..., -1, :] != np.arange(factors.shape[-1]), -1)
    return np.prod(np.diagonal(factors, axis1=-2, axis2=-1), -1) * (1 - 2 * (exchanged % 2)).astype(factors.dtype)


def _cofactors(b: Builder, instr: Instr) -> Value:
    """``det(A) A^-T``, which exists for singular matrices too: from ``A = U S V^T`` it is ``det(U) det(V) U P V^T``, where P
    has the products of all singular values but one. That is done only if some determinant is zero, for it takes longer."""
    a, _ = instr.args
    shape = a.type.shape
    singular = b.eq(instr.out, b.zeros(instr.out.type))
    if singular.type.rank:
        singular = b.any(singular, axes=tuple(range(singular.type.rank)))
    usual, rare = Builder(b), Builder(b)
    found = usual.mul(_inverse(usual, instr, True), scalars(usual, instr.out, shape))
    ut, s, v = singular_parts(rare, a)
    others = rare.select(rare.eq(*places(rare, shape)), rare.full(1, a.type), columns(rare, s, shape))
    weights = columns(rare, rare.prod(others, axes=(a.type.rank - 1,)), shape)
    signs = rare.mul(*(determinant_sign(rare, rare.lu(side)) for side in (ut, v)))
    parts = product(rare, ut, rare.mul(v, weights), x_t=True, y_t=True)
    other = rare.mul(parts, scalars(rare, signs, shape))
    blocks = (usual.close("yield", (found,)), rare.close("yield", (other,)))
    return b.emit(OPS_OF_CONTROL["if"], (b.logical_not(singular),), blocks=blocks)[0]


def _jvp_det(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    assert tangents[0] is not None
    terms = b.mul(_cofactors(b, instr), tangents[0])
    found: Value = b.sum(terms, axes=(terms.type.rank - 2, terms.type.rank - 1))
    return found


DET = General(  # of ``(a, lu)``; Jacobi's formula
    name="det",
    infer=_infer_det,
    evaluate=_evaluate_det,
    vjp=lambda b, instr, ct: (b.mul(_cofactors(b, instr), scalars(b, ct, instr.args[0].type.shape)), None),
    jvp=_jvp_det,
    lower=Decompose(_build_det),
)

OPS = table(CHOLESKY, TRIANGULAR_SOLVE, LU, LU_SOLVE, SOLVE, LOGABSDET, DET)
