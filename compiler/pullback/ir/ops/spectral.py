"""Eigenvalues, singular values and orthogonal factors of matrices.

The parts of a result are packed in one array: see Note [Packing] in ``linalg.py``; and Note [Symmetric arguments] there.

Note [Equal eigenvalues]
~~~~~~~~~~~~~~~~~~~~~~
Values and vectors are results of different ops. The gradient of a function of eigenvalues alone, such as ``sum(w**2)``, is
right also where some are equal, if it is a function of the matrix (does not depend on how equal ones are told apart). Vectors
that belong to equal values are any basis of their space and have no derivative: the gradient by way of them is NaN or
infinite. So it is even for functions that do not depend on the choice and have one, like ``V f(w) V^T``: the missing terms
are 0/0, and what f is cannot be seen from its values. Where values are equal up to rounding the gradient has few digits. The
same holds for singular values, and for vectors of those that are zero.

Formulas: M. Giles, Collected matrix derivative results for forward and reverse mode algorithmic differentiation (2008), section
3; S. Walter, L. Lehmann, R. Lamour, On evaluating higher-order derivatives of the QR decomposition of tall matrices (2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.dims import Size
from pullback.ir.dims import product as size_of
from pullback.ir.ops.base import Attrs, Decompose, General, Plain, Routine, TypeMismatch, table
from pullback.ir.ops.matrices import (
    columns,
    mirrored,
    part,
    places,
    product,
    rows,
    transposed,
    triangle,
    unmirrored,
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


def _apart(b: Builder, d: Value) -> Value:
    """``d`` with ones on its diagonal, for a division whose diagonal is of no use."""
    found: Value = b.select(b.eq(*places(b, d.type.shape)), b.full(1, d.type), d)
    return found


def _differences(b: Builder, w: Value, shape: tuple[Size, ...]) -> Value:
    """``w_j - w_i`` for row i and column j."""
    return _apart(b, b.sub(columns(b, w, shape), rows(b, w, shape)))


def _sums(b: Builder, w: Value, shape: tuple[Size, ...]) -> Value:
    return _apart(b, b.add(columns(b, w, shape), rows(b, w, shape)))


def _antisymmetric(b: Builder, x: Value) -> Value:
    """``(x - x^T) / 2``."""
    found: Value = b.mul(b.sub(x, transposed(b, x)), b.full(0.5, x.type))
    return found


def _own(b: Builder, x: Value) -> Value:
    """The diagonal, as a sum over rows of what is left without the rest."""
    kept = b.select(b.eq(*places(b, x.type.shape)), x, b.zeros(x.type))
    found: Value = b.sum(kept, axes=(x.type.rank - 1,))
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


EIGH = Plain(  # from the lower triangle: the eigenvalues, rising, then the vectors one after the other; NaN if it fails
    name="eigh",
    infer=_infer_eigh,
    evaluate=_evaluate_eigh,
    lower=Routine("eigh", _work_eigh),
)


def _infer_eigenvalues(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    a, found = types
    if _infer_eigh((a,), {}) != (found,):
        raise TypeMismatch(f"{found} is not what eigh gives of {a}")
    return (a.with_shape(a.shape[:-1]),)


def _vjp_eigenvalues(b: Builder, instr: Instr, ct: Value) -> tuple[Value, None]:
    """``V diag(w_adj) V^T``, as it is read."""
    v = b.eigenvectors(*instr.args)
    return unmirrored(b, product(b, b.mul(v, rows(b, ct, v.type.shape)), v, x_t=True)), None


def _jvp_eigenvalues(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """``diag(V^T dA V)``."""
    assert tangents[0] is not None
    v = b.eigenvectors(*instr.args)
    found: Value = b.sum(b.mul(product(b, v, mirrored(b, tangents[0])), v), axes=(v.type.rank - 1,))
    return found


EIGENVALUES = General(  # of ``(a, eigh(a))``; see Note [Aids] in ``linalg.py``
    name="eigenvalues",
    infer=_infer_eigenvalues,
    evaluate=lambda args, attrs: args[1][..., : args[0].shape[-1]],
    vjp=_vjp_eigenvalues,
    jvp=_jvp_eigenvalues,
    lower=Decompose(lambda b, instr: _slot(b, instr.args[1], 0, instr.args[0].type.shape[-1:])),
)


def _vjp_eigenvectors(b: Builder, instr: Instr, ct: Value) -> tuple[Value, None]:
    """``V (F o V^T V_adj) V^T`` with ``F_ij = 1 / (w_j - w_i)``, as it is read; here the vectors are rows."""
    v = instr.out
    inner = b.div(_antisymmetric(b, product(b, v, ct, y_t=True)), _differences(b, b.eigenvalues(*instr.args), v.type.shape))
    return unmirrored(b, product(b, product(b, v, inner, x_t=True), v)), None


def _jvp_eigenvectors(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """``dV = V (F o V^T dA V)``."""
    assert tangents[0] is not None
    v = instr.out
    inner = product(b, product(b, v, mirrored(b, tangents[0])), v, y_t=True)
    off = b.sub(inner, b.select(b.eq(*places(b, inner.type.shape)), inner, b.zeros(inner.type)))
    turned = b.div(off, _differences(b, b.eigenvalues(*instr.args), v.type.shape))
    return product(b, turned, v, x_t=True)


EIGENVECTORS = General(  # of ``(a, eigh(a))``, as rows
    name="eigenvectors",
    infer=lambda types, attrs: (_infer_eigenvalues(types, attrs) and types[0],),
    evaluate=lambda args, attrs: args[1][..., args[0].shape[-1] :].reshape(args[0].shape),
    vjp=_vjp_eigenvectors,
    jvp=_jvp_eigenvectors,
    lower=Decompose(lambda b, instr: _slot(b, instr.args[1], instr.args[0].type.shape[-1], instr.args[0].type.shape[-2:])),
)


# -- singular values --------------------------------------------------------------------------------------------------
def _least(kind: Type, attrs: Attrs) -> Size:
    return kind.shape[-1] if attrs["tall"] else kind.shape[-2]


def infer_svd(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
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


SVD = Plain(  # U^T, the singular values, V, of k = min(m, n) vectors each; ``tall``: m >= n; NaN if it fails
    name="svd",
    infer=infer_svd,
    evaluate=_evaluate_svd,
    lower=Routine("svd", _work_svd),
)


def _infer_singular_values(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    a, found = types
    if infer_svd((a,), attrs) != (found,):
        raise TypeMismatch(f"{found} is not what svd gives of {a}")
    return (a.with_shape((*a.shape[:-2], _least(a, attrs))),)


def _vjp_singular_values(b: Builder, instr: Instr, ct: Value) -> tuple[Value, None]:
    """``U diag(s_adj) V^T``."""
    ut, v = _sides(b, b.singular_vectors(*instr.args, **instr.attrs), instr)
    return product(b, b.mul(ut, rows(b, ct, ut.type.shape)), v, x_t=True, y_t=True), None


def _jvp_singular_values(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    assert tangents[0] is not None
    ut, v = _sides(b, b.singular_vectors(*instr.args, **instr.attrs), instr)
    return _own(b, product(b, product(b, ut, tangents[0]), v))


def _values_of(a: Any, attrs: Attrs) -> slice:
    """Where the singular values are."""
    k = min(a.shape[-2:])
    return slice(k * a.shape[-2], k * (a.shape[-2] + 1))


def _build_singular_values(b: Builder, instr: Instr) -> Value:
    a, found = instr.args
    k = _least(a.type, instr.attrs)
    return _slot(b, found, k * a.type.shape[-2], (k,))


SINGULAR_VALUES = General(  # of ``(a, svd(a))``
    name="singular_values",
    infer=_infer_singular_values,
    evaluate=lambda args, attrs: args[1][..., _values_of(args[0], attrs)],
    vjp=_vjp_singular_values,
    jvp=_jvp_singular_values,
    lower=Decompose(_build_singular_values),
)


def _sides(b: Builder, vectors: Value, instr: Instr) -> tuple[Value, Value]:
    """U^T and V."""
    kind = instr.args[0].type
    m, n = kind.shape[-2:]
    k = _least(kind, instr.attrs)
    return _slot(b, vectors, 0, (k, m)), _slot(b, vectors, k * m, (n, k))


def _infer_singular_vectors(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    values = _infer_singular_values(types, attrs)[0]
    return (values.with_shape((*values.shape[:-1], types[1].shape[-1] - values.shape[-1])),)


def _build_singular_vectors(b: Builder, instr: Instr) -> Value:
    a, found = instr.args
    k = _least(a.type, instr.attrs)
    m, n = a.type.shape[-2:]
    return _joined(b, part(b, found, -1, 0, k * m), part(b, found, -1, k * m + k, n * k))


def _off_space(b: Builder, side: Value, x: Value) -> Value:
    """``(I - side side^T) x``."""
    found: Value = b.sub(x, product(b, side, product(b, side, x, x_t=True)))
    return found


def _vjp_singular_vectors(b: Builder, instr: Instr, ct: Value) -> tuple[Value, None]:
    """``U K V^T + (I - U U^T) U_adj S^-1 V^T + U S^-1 V_adj^T (I - V V^T)``.

    With ``a``, ``c`` the antisymmetric parts of ``U^T U_adj`` and ``V^T V_adj``, Giles's ``K_ij`` is
    ``2 (s_j a_ij + s_i c_ij) / (s_j^2 - s_i^2)``, which is ``(a + c)_ij / (s_j - s_i) + (a - c)_ij / (s_j + s_i)``.
    """
    ut, v = _sides(b, instr.out, instr)
    ut_adj, v_adj = _sides(b, ct, instr)
    s = b.singular_values(*instr.args, **instr.attrs)
    u, u_adj = transposed(b, ut), transposed(b, ut_adj)
    turn_u = _antisymmetric(b, product(b, u, u_adj, x_t=True))
    turn_v = _antisymmetric(b, product(b, v, v_adj, x_t=True))
    shape = turn_u.type.shape
    inner = b.div(b.add(turn_u, turn_v), _differences(b, s, shape))
    inner = b.add(inner, b.div(b.sub(turn_u, turn_v), _sums(b, s, shape)))
    found = product(b, product(b, u, inner), v, y_t=True)
    m, n = instr.args[0].type.shape[-2:]
    if m != s.type.shape[-1]:
        outside = b.div(_off_space(b, u, u_adj), columns(b, s, u.type.shape))
        found = b.add(found, product(b, outside, v, y_t=True))
    if n != s.type.shape[-1]:
        outside = b.div(_off_space(b, v, v_adj), columns(b, s, v.type.shape))
        found = b.add(found, product(b, u, outside, y_t=True))
    return found, None


def _jvp_singular_vectors(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """The transpose of the rule above, by its terms."""
    moved = tangents[0]
    assert moved is not None
    ut, v = _sides(b, instr.out, instr)
    s = b.singular_values(*instr.args, **instr.attrs)
    u = transposed(b, ut)
    inner = product(b, product(b, ut, moved), v)
    shape = inner.type.shape
    off = b.sub(inner, b.select(b.eq(*places(b, shape)), inner, b.zeros(inner.type)))
    half = b.full(0.5, inner.type)
    even = b.div(b.mul(b.add(off, transposed(b, off)), half), _differences(b, s, shape))
    odd = b.div(_antisymmetric(b, off), _sums(b, s, shape))
    du, dv = product(b, u, b.add(even, odd)), product(b, v, b.sub(even, odd))
    m, n = instr.args[0].type.shape[-2:]
    if m != s.type.shape[-1]:
        du = b.add(du, b.div(_off_space(b, u, product(b, moved, v)), columns(b, s, u.type.shape)))
    if n != s.type.shape[-1]:
        dv = b.add(dv, b.div(_off_space(b, v, product(b, moved, u, x_t=True)), columns(b, s, v.type.shape)))
    return _joined(b, _flat(b, transposed(b, du)), _flat(b, dv))


SINGULAR_VECTORS = General(  # of ``(a, svd(a))``: U^T and V
    name="singular_vectors",
    infer=_infer_singular_vectors,
    evaluate=lambda args, attrs: np.delete(args[1], _values_of(args[0], attrs), -1),
    vjp=_vjp_singular_vectors,
    jvp=_jvp_singular_vectors,
    lower=Decompose(_build_singular_vectors),
)


def singular_parts(b: Builder, a: Value, tall: bool = True) -> tuple[Value, Value, Value]:
    """U^T, the singular values and V of ``a``; ``tall``: not wider than high."""
    found = b.svd(a, tall=tall)
    made = b.singular_vectors(a, found, tall=tall)
    ut, v = _sides(b, made, Instr(SINGULAR_VECTORS, (made,), (a, found), {"tall": tall}))
    return ut, b.singular_values(a, found, tall=tall), v


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


OPS = table(EIGH, EIGENVALUES, EIGENVECTORS, SVD, SINGULAR_VALUES, SINGULAR_VECTORS, QR)
