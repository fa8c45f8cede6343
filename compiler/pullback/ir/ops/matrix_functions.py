"""Functions of matrices: pseudo-inverses and exponentials.

Formulas: G. Golub and V. Pereyra, The differentiation of pseudo-inverses and nonlinear least squares problems (1973); C. Van
Loan, Computing integrals involving the matrix exponential (1978); N. Higham, The scaling and squaring method for the matrix
exponential revisited (2005).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops.base import Attrs, Decompose, General, table
from pullback.ir.ops.control import OPS as OPS_OF_CONTROL
from pullback.ir.ops.matrices import columns, identity, part, product, transposed
from pullback.ir.ops.spectral import infer_svd, singular_parts, square
from pullback.ir.types import Type, i64


# -- pseudo-inverses --------------------------------------------------------------------------------------------------
def _infer_pinv(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (a,) = types
    infer_svd(types, attrs)
    *batch, m, n = a.shape
    return (a.with_shape((*batch, n, m)),)


def _build_pinv(b: Builder, instr: Instr) -> Value:
    """``V S^+ U^T``, where singular values up to ``rcond`` times the largest count as zero."""
    ut, s, v = singular_parts(b, instr.args[0], instr.attrs["tall"])
    largest = b.max(s, axes=(s.type.rank - 1,))
    largest = b.broadcast(largest, axes=tuple(range(largest.type.rank)), shape=s.type.shape)
    nothing = b.le(s, b.mul(largest, b.full(instr.attrs["rcond"], s.type)))
    one = b.full(1, s.type)
    inverse = b.select(nothing, b.zeros(s.type), b.div(one, b.select(nothing, one, s)))
    return product(b, b.mul(v, columns(b, inverse, v.type.shape)), ut)


def _vjp_pinv(b: Builder, instr: Instr, ct: Value) -> tuple[Value]:
    """``-P^T P_adj P^T + (I - A P) P_adj^T P P^T + P^T P P_adj^T (I - P A)``: the transpose of the rule below."""
    (a,), p = instr.args, instr.out
    left = product(b, product(b, p, ct, x_t=True), p, y_t=True)
    middle = product(b, ct, product(b, p, p, y_t=True), x_t=True)
    middle = b.sub(middle, product(b, a, product(b, p, middle)))
    right = product(b, product(b, p, p, x_t=True), ct, y_t=True)
    right = b.sub(right, product(b, product(b, right, p), a))
    return (b.sub(b.add(middle, right), left),)


def _jvp_pinv(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    """Golub and Pereyra: ``-P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P``."""
    (a,), p, moved = instr.args, instr.out, tangents[0]
    assert moved is not None
    left = product(b, product(b, p, moved), p)
    middle = product(b, product(b, p, p, y_t=True), moved, y_t=True)
    middle = b.sub(middle, product(b, product(b, middle, a), p))
    right = product(b, moved, product(b, p, p, x_t=True), x_t=True)
    right = b.sub(right, product(b, p, product(b, a, right)))
    found: Value = b.sub(b.add(middle, right), left)
    return found


PINV = General(  # the derivative is that for matrices of one rank: where the rank changes there is none
    name="pinv",
    infer=_infer_pinv,
    evaluate=lambda args, attrs: np.linalg.pinv(args[0], attrs["rcond"]) if args[0].size else np.swapaxes(args[0], -1, -2),
    vjp=_vjp_pinv,
    jvp=_jvp_pinv,
    lower=Decompose(_build_pinv),
    samples=((("f64[3, 2]",), {"tall": True, "rcond": 1e-15}), (("f64[2, 2, 3]",), {"tall": False, "rcond": 1e-15})),
)


# -- exponentials -----------------------------------------------------------------------------------------------------
# the numerator of the approximant of degree 13, and the largest 1-norm for which it has full precision: Higham, section 2.3
PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600, 670442572800,
    33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
LARGEST = 5.371920351148152


def _approximant(b: Builder, a: Value) -> Value:
    """``(V - U)^-1 (V + U)`` with the odd and the even terms of the numerator."""
    one, squared = identity(b, a.type), product(b, a, a)
    fourth = product(b, squared, squared)
    sixth = product(b, fourth, squared)

    def terms(last: int, powers: tuple[Value, ...]) -> Value:
        found = None
        for k, power in enumerate(powers):
            term = b.mul(power, b.full(float(PADE[last - 2 * k]), a.type))
            found = term if found is None else b.add(found, term)
        assert found is not None
        return found

    powers = (sixth, fourth, squared)
    odd = product(b, a, b.add(product(b, sixth, terms(13, powers)), terms(7, (*powers, one))))
    even = b.add(product(b, sixth, terms(12, powers)), terms(6, (*powers, one)))
    found: Value = b.lu_solve(b.lu(b.sub(even, odd)), b.add(even, odd), trans=False)
    return found


def _build_expm(b: Builder, instr: Instr) -> Value:
    """Scaled until the approximant holds for all matrices of the stack, then squared as often."""
    (a,) = instr.args
    rank = a.type.rank
    sums = b.sum(b.abs(a), axes=(rank - 2,))
    size = b.max(sums, axes=tuple(range(rank - 1)))
    doublings = b.ceil(b.log2(b.div(size, b.const(LARGEST, a.type.dtype))))
    usual = b.logical_and(b.gt(size, b.const(LARGEST, a.type.dtype)), b.isfinite(size))
    times = b.convert(b.select(usual, doublings, b.zeros(doublings.type)), dtype="i64")
    scale = b.exp2(b.neg(b.convert(times, dtype=a.type.dtype.name)))
    start = _approximant(b, b.mul(a, b.spread(scale, a.type.shape)))
    trip, value = Value("trip", Type(i64)), Value("power", a.type)
    body = Builder(b)
    block = body.close("yield", (product(body, value, value),), (trip, value))
    return b.emit(OPS_OF_CONTROL["for"], (times, start), blocks=(block,))[0]


def _moved_expm(b: Builder, a: Value, moved: Value | None) -> Value:
    """The derivative in a direction: the upper right block of the exponential of ``[[A, E], [0, A]]`` (Van Loan)."""
    assert moved is not None
    rank, n = a.type.rank, a.type.shape[-1]
    upper = b.concatenate(a, moved, axis=rank - 1)
    lower = b.concatenate(b.zeros(a.type), a, axis=rank - 1)
    both = b.expm(b.concatenate(upper, lower, axis=rank - 2))
    return part(b, part(b, both, -2, 0, n), -1, n, n)


def _evaluate_expm(args: Any, attrs: Attrs) -> Any:
    """By its series, halved and squared."""
    (a,) = args
    size = float(np.max(np.sum(np.abs(a), -2), initial=0.0))
    if not np.isfinite(size):
        return np.full_like(a, np.nan)
    times = max(0, math.ceil(math.log2(size)) + 4) if size else 0
    x = a.astype(np.float64) / 2.0**times
    term = found = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for k in range(1, 20):
        term = term @ x / k
        found = found + term
    for _ in range(times):
        found = found @ found
    return np.asarray(found, a.dtype)


EXPM = General(
    name="expm",
    infer=lambda types, attrs: (square(types[0]),),
    evaluate=_evaluate_expm,
    vjp=lambda b, instr, ct: (_moved_expm(b, transposed(b, instr.args[0]), ct),),
    jvp=lambda b, instr, tangents: _moved_expm(b, instr.args[0], tangents[0]),
    lower=Decompose(_build_expm),
    samples=((("f64[3, 3]",), {}), (("f64[2, 2, 2]",), {})),
)

OPS = table(PINV, EXPM)
