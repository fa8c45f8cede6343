"""Eigenvalues, singular values and orthogonal factors of matrices; pseudo-inverses; exponentials.

The parts of a result are packed in one array: see Note [Packing] in ``linalg.py``; and Note [Symmetric arguments] there.

Note [Equal eigenvalues]
~~~~~~~~~~~~~~~~~~~~~~
Vectors of an eigenvalue that comes several times are any basis of their space, so they have no derivative; but functions that
do not depend on the choice do (a sum of eigenvalues, a projection, ``V f(w) V^T``). In their gradients the terms of a pair of
equal values, ``x / (w_j - w_i)``, have ``x = 0``: those terms are left out, so the gradient is right. For functions that do
depend on the choice it is the gradient for fixed vectors. Of singular values the same holds, once the terms that belong to the
two vectors' turning together are separated from those of their turning against each other, which divide by ``s_j + s_i``.

Formulas: M. Giles, Collected matrix derivative results for forward and reverse mode algorithmic differentiation (2008), section
3; S. Walter, L. Lehmann, R. Lamour, On evaluating higher-order derivatives of the QR decomposition of tall matrices (2012);
G. Golub and V. Pereyra, The differentiation of pseudo-inverses (1973); C. Van Loan, Computing integrals involving the matrix
exponential (1978); N. Higham, The scaling and squaring method for the matrix exponential revisited (2005).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.dims import Size
from pullback.ir.dims import product as size_of
from pullback.ir.ops.base import Attrs, General, Routine, TypeMismatch, table
from pullback.ir.ops.matrices import (
    columns,
    part,
    places,
    product,
    rows,
    symmetrised,
    transposed,
    triangle,
)
from pullback.ir.types import Type, i64

BLOCK = 64  # columns that LAPACK takes together


def square(kind: Type) -> Type:
    """A stack of square matrices of floats, or TypeMismatch."""
    if kind.rank < 2 or kind.shape[-1] != kind.shape[-2] or not kind.is_float:
        raise TypeMismatch(f"square matrices of floats expected, got {kind}")
    return kind


def _slot(b: Builder, x: Value, start: Size, shape: tuple[Size, ...]) -> Value:
    """Some elements of the last axis as a matrix (or as they are)."""
    found: Value = part(b, x, -1, start, size_of(shape))
    return found if len(shape) == 1 else b.reshape(found, shape=(*x.type.shape[:-1], *shape))


def _flat(b: Builder, x: Value, inner: int = 2) -> Value:
    """A stack of matrices as a stack of rows of all their elements."""
    shape = x.type.shape
    keep = len(shape) - inner
    found: Value = b.reshape(x, shape=(*shape[:keep], size_of(shape[keep:])))
    return found


def _joined(b: Builder, *parts: Value) -> Value:
    found: Value = b.concatenate(*parts, axis=parts[0].type.rank - 1)
    return found


def _reciprocal(b: Builder, x: Value) -> Value:
    """``1 / x``, and 0 for 0: see Note [Equal eigenvalues]."""
    zero = b.zeros(x.type)
    nothing = b.eq(x, zero)
    one = b.full(1, x.type)
    found: Value = b.select(nothing, zero, b.div(one, b.select(nothing, one, x)))
    return found


def _differences(b: Builder, w: Value, shape: tuple[Size, ...]) -> Value:
    """``w_j - w_i`` for row i and column j."""
    found: Value = b.sub(columns(b, w, shape), rows(b, w, shape))
    return found


def _antisymmetric(b: Builder, x: Value) -> Value:
    """``(x - x^T) / 2``."""
    found: Value = b.mul(b.sub(x, transposed(b, x)), b.full(0.5, x.type))
    return found


def _with_diagonal(b: Builder, x: Value, values: Value) -> Value:
    """``x`` plus a diagonal matrix."""
    shape = x.type.shape
    there = b.select(b.eq(*places(b, shape)), columns(b, values, shape), b.zeros(x.type))
    found: Value = b.add(x, there)
    return found


# -- symmetric matrices -----------------------------------------------------------------------------------------------
def _infer_eigh(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    *batch, n, _ = square(types[0]).shape
    return (types[0].with_shape((*batch, n + n * n)),)


def _evaluate_eigh(args: Any, attrs: Attrs) -> Any:
    a = args[0]
    try:
        w, v = np.linalg.eigh(a)
    except np.linalg.LinAlgError:
        return np.full((*a.shape[:-2], a.shape[-1] * (a.shape[-1] + 1)), np.nan, a.dtype)
    return np.concatenate([w, np.swapaxes(v, -1, -2).reshape(*w.shape[:-1], a.shape[-1] ** 2)], -1)


def _work_eigh(instr: Instr) -> tuple[Type, ...]:
    """What ``dsyevd`` asks for: numbers, and integers."""
    n = instr.args[0].type.shape[-1]
    return instr.args[0].type.with_shape((1 + 6 * n + 2 * n * n,)), Type(i64, (3 + 5 * n,))


def eigh_parts(b: Builder, packed: Value, n: Size) -> tuple[Value, Value]:
    """The eigenvalues, and the vectors as rows."""
    return _slot(b, packed, 0, (n,)), _slot(b, packed, n, (n, n))


def _vjp_eigh(b: Builder, instr: Instr, ct: Value) -> tuple[Value]:
    """``V (diag(w_adj) + F o (V^T V_adj)) V^T`` with ``F_ij = 1 / (w_j - w_i)``, symmetrised."""
    shape = instr.args[0].type.shape
    w, v = eigh_parts(b, instr.out, shape[-1])
    w_adj, v_adj = eigh_parts(b, ct, shape[-1])
    inner = b.mul(_antisymmetric(b, product(b, v, v_adj, y_t=True)), _reciprocal(b, _differences(b, w, shape)))
    inner = _with_diagonal(b, inner, w_adj)
    return (symmetrised(b, product(b, product(b, v, inner, x_t=True), v)),)


def _jvp_eigh(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """``dw = diag(V^T dA V)``, ``dV = V (F o (V^T dA V))``."""
    assert tangents[0] is not None
    shape = instr.args[0].type.shape
    w, v = eigh_parts(b, instr.out, shape[-1])
    inner = product(b, product(b, v, symmetrised(b, tangents[0])), v, y_t=True)
    own = b.select(b.eq(*places(b, shape)), inner, b.zeros(inner.type))
    turned = b.mul(inner, _reciprocal(b, _differences(b, w, shape)))
    moved = product(b, turned, v, x_t=True)  # of the vectors as rows
    return _joined(b, b.sum(own, axes=(len(shape) - 1,)), _flat(b, moved))


EIGH = General(
    name="eigh",  # from the lower triangle: the eigenvalues, rising, then the vectors one after the other; NaN if it fails
    infer=_infer_eigh,
    evaluate=_evaluate_eigh,
    vjp=_vjp_eigh,
    jvp=_jvp_eigh,
    lower=Routine("eigh", _work_eigh),
)


# -- singular values --------------------------------------------------------------------------------------------------
def _least(kind: Type, attrs: Attrs) -> Size:
    return kind.shape[-1] if attrs["tall"] else kind.shape[-2]


def _infer_svd(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (a,) = types
    if a.rank < 2 or not a.is_float:
        raise TypeMismatch(f"matrices of floats expected, got {a}")
    *batch, m, n = a.shape
    k = _least(a, attrs)
    return (a.with_shape((*batch, k * m + k + n * k)),)


def _evaluate_svd(args: Any, attrs: Attrs) -> Any:
    a = args[0]
    batch, (m, n) = a.shape[:-2], a.shape[-2:]
    k = n if attrs["tall"] else m
    try:
        u, s, vt = np.linalg.svd(a, full_matrices=False)
    except np.linalg.LinAlgError:
        return np.full((*batch, k * m + k + n * k), np.nan, a.dtype)
    left, right = np.swapaxes(u, -1, -2).reshape(*batch, k * m), np.swapaxes(vt, -1, -2).reshape(*batch, n * k)
    return np.concatenate([left, s, right], -1)


def _work_svd(instr: Instr) -> tuple[Type, ...]:
    """The matrix, which ``dgesdd`` overwrites; what it asks for, with room for blocks; its integers."""
    (a,) = instr.args
    m, n = a.type.shape[-2:]
    k = _least(a.type, instr.attrs)
    room = k * (4 * k + 7) + BLOCK * (m + n) + BLOCK
    return a.type.with_shape((m * n,)), a.type.with_shape((room,)), Type(i64, (8 * k,))


def _split_svd(b: Builder, packed: Value, kind: Type, attrs: Attrs) -> tuple[Value, Value, Value]:
    """U^T, the singular values, V."""
    m, n = kind.shape[-2:]
    k = _least(kind, attrs)
    return _slot(b, packed, 0, (k, m)), _slot(b, packed, k * m, (k,)), _slot(b, packed, k * m + k, (n, k))


def svd_parts(b: Builder, a: Value, tall: bool = True) -> tuple[Value, Value, Value]:
    """U, the singular values and V of ``a``; ``tall``: not wider than high."""
    ut, s, v = _split_svd(b, b.svd(a, tall=tall), a.type, {"tall": tall})
    return transposed(b, ut), s, v


def _off_space(b: Builder, side: Value, x: Value) -> Value:
    """``(I - side side^T) x``."""
    found: Value = b.sub(x, product(b, side, product(b, side, x, x_t=True)))
    return found


def _vjp_svd(b: Builder, instr: Instr, ct: Value) -> tuple[Value]:
    """``U (diag(s_adj) + K) V^T + (I - U U^T) U_adj S^-1 V^T + U S^-1 V_adj^T (I - V V^T)``.

    With ``a``, ``c`` the antisymmetric parts of ``U^T U_adj`` and ``V^T V_adj``, Giles's ``K_ij`` is ``2 (s_j a_ij + s_i
    c_ij) / (s_j^2 - s_i^2)``, which is ``(a + c)_ij / (s_j - s_i) + (a - c)_ij / (s_j + s_i)``: see Note [Equal eigenvalues].
    """
    kind = instr.args[0].type
    ut, s, v = _split_svd(b, instr.out, kind, instr.attrs)
    ut_adj, s_adj, v_adj = _split_svd(b, ct, kind, instr.attrs)
    u, u_adj = transposed(b, ut), transposed(b, ut_adj)
    turn_u = _antisymmetric(b, product(b, u, u_adj, x_t=True))
    turn_v = _antisymmetric(b, product(b, v, v_adj, x_t=True))
    shape = turn_u.type.shape
    sums = b.add(columns(b, s, shape), rows(b, s, shape))
    inner = b.mul(b.add(turn_u, turn_v), _reciprocal(b, _differences(b, s, shape)))
    inner = _with_diagonal(b, b.add(inner, b.mul(b.sub(turn_u, turn_v), _reciprocal(b, sums))), s_adj)
    found = product(b, product(b, u, inner), v, y_t=True)
    inverse = _reciprocal(b, s)
    m, n = kind.shape[-2:]
    if m != s.type.shape[-1]:
        outside = b.mul(_off_space(b, u, u_adj), columns(b, inverse, u.type.shape))
        found = b.add(found, product(b, outside, v, y_t=True))
    if n != s.type.shape[-1]:
        outside = b.mul(_off_space(b, v, v_adj), columns(b, inverse, v.type.shape))
        found = b.add(found, product(b, u, outside, y_t=True))
    return (found,)


def _jvp_svd(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """The transpose of the rule above, by its terms."""
    moved = tangents[0]
    assert moved is not None
    kind = instr.args[0].type
    ut, s, v = _split_svd(b, instr.out, kind, instr.attrs)
    u = transposed(b, ut)
    inner = product(b, product(b, u, moved, x_t=True), v)
    shape = inner.type.shape
    sums = b.add(columns(b, s, shape), rows(b, s, shape))
    own = b.select(b.eq(*places(b, shape)), inner, b.zeros(inner.type))
    # together and against each other, of the two sides' turning
    half = b.full(0.5, inner.type)
    even = b.mul(b.mul(b.add(inner, transposed(b, inner)), half), _reciprocal(b, _differences(b, s, shape)))
    odd = b.mul(_antisymmetric(b, inner), _reciprocal(b, sums))
    du, dv = product(b, u, b.add(even, odd)), product(b, v, b.sub(even, odd))
    inverse = _reciprocal(b, s)
    m, n = kind.shape[-2:]
    if m != s.type.shape[-1]:
        outside = b.mul(_off_space(b, u, product(b, moved, v)), columns(b, inverse, u.type.shape))
        du = b.add(du, outside)
    if n != s.type.shape[-1]:
        outside = b.mul(_off_space(b, v, product(b, moved, u, x_t=True)), columns(b, inverse, v.type.shape))
        dv = b.add(dv, outside)
    return _joined(b, _flat(b, transposed(b, du)), b.sum(own, axes=(len(shape) - 1,)), _flat(b, dv))


SVD = General(
    name="svd",  # U^T, the singular values, V, of k = min(m, n) vectors each; ``tall``: m >= n; NaN if it fails
    infer=_infer_svd,
    evaluate=_evaluate_svd,
    vjp=_vjp_svd,
    jvp=_jvp_svd,
    lower=Routine("svd", _work_svd),
)


# -- orthogonal factors -----------------------------------------------------------------------------------------------
def _infer_qr(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (a,) = types
    if a.rank < 2 or not a.is_float:
        raise TypeMismatch(f"matrices of floats expected, got {a}")
    *batch, m, n = a.shape
    return (a.with_shape((*batch, m + n, n)),)


def _work_qr(instr: Instr) -> tuple[Type, ...]:
    """The factors of the reflections, and room for blocks of them."""
    n = instr.args[0].type.shape[-1]
    return instr.args[0].type.with_shape((n,)), instr.args[0].type.with_shape((BLOCK * n + 1,))


def qr_parts(b: Builder, packed: Value, kind: Type) -> tuple[Value, Value]:
    m, n = kind.shape[-2:]
    return part(b, packed, -2, 0, m), part(b, packed, -2, m, n)


def _vjp_qr(b: Builder, instr: Instr, ct: Value) -> tuple[Value]:
    """``(Q_adj + Q copyltu(M)) R^-T`` with ``M = R R_adj^T - Q_adj^T Q``, where copyltu mirrors the lower triangle."""
    kind = instr.args[0].type
    q, r = qr_parts(b, instr.out, kind)
    q_adj, r_adj = qr_parts(b, ct, kind)
    inner = b.sub(product(b, r, triangle(b, r_adj, False), y_t=True), product(b, q_adj, q, x_t=True))
    mirrored = b.add(triangle(b, inner, True), transposed(b, triangle(b, inner, True, strict=True)))
    side = b.add(q_adj, product(b, q, mirrored))
    solved = b.triangular_solve(r, transposed(b, side), lower=False, trans=False, unit=False)
    return (transposed(b, solved),)


def _jvp_qr(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """With ``C = dA R^-1`` and ``W = Q^T C``: ``dQ = C - Q (W - X)``, ``dR = (W - X) R``, where X is the antisymmetric matrix
    with W's lower triangle, so that ``W - X`` is upper triangular."""
    assert tangents[0] is not None
    kind = instr.args[0].type
    q, r = qr_parts(b, instr.out, kind)
    solved = b.triangular_solve(r, transposed(b, tangents[0]), lower=False, trans=True, unit=False)
    inner = product(b, q, solved, x_t=True, y_t=True)
    below = triangle(b, inner, True, strict=True)
    upper = b.add(triangle(b, inner, False), transposed(b, below))
    dq = b.sub(transposed(b, solved), product(b, q, upper))
    found: Value = b.concatenate(dq, product(b, upper, r), axis=kind.rank - 2)
    return found


QR = General(
    name="qr",  # the orthonormal columns above the upper triangle, of matrices that are not wider than high
    infer=_infer_qr,
    evaluate=lambda args, attrs: np.concatenate(np.linalg.qr(args[0]), -2),
    vjp=_vjp_qr,
    jvp=_jvp_qr,
    lower=Routine("qr", _work_qr),
)

OPS = table(EIGH, SVD, QR)
