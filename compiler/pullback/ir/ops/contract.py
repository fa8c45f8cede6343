"""The one contraction: every product of arrays (matmul, dot, einsum, tensordot, outer with a sum) is ``contract``.

``contract(x, y) {batch = ((bx..), (by..)), axes = ((cx..), (cy..))}`` multiplies and sums over the paired axes ``cx``/``cy``;
the paired axes ``bx``/``by`` are kept once. The result has the batch axes, then the free axes of ``x``, then those of ``y``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.ops.base import Attrs, General, Routine, TypeMismatch, table
from pullback.ir.ops.shape import inverse
from pullback.ir.types import Type


def free_axes(rank: int, batch: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(k for k in range(rank) if k not in batch and k not in axes)


def _infer_contract(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    x, y = types
    (bx, by), (cx, cy) = attrs["batch"], attrs["axes"]
    if x.dtype is not y.dtype or x.dtype.kind not in "fi":
        raise TypeMismatch(f"cannot contract {x} and {y}")
    for i, j in zip((*bx, *cx), (*by, *cy), strict=True):
        if x.shape[i] != y.shape[j]:
            raise TypeMismatch(f"cannot contract {x} and {y}: axis {i} has size {x.shape[i]}, axis {j} has size {y.shape[j]}")
    free_x, free_y = free_axes(x.rank, bx, cx), free_axes(y.rank, by, cy)
    return (x.with_shape(tuple(x.shape[k] for k in (*bx, *free_x)) + tuple(y.shape[k] for k in free_y)),)


def _evaluate_contract(args: Any, attrs: Attrs) -> Any:
    x, y = (np.asarray(a) for a in args)
    (bx, by), (cx, cy) = attrs["batch"], attrs["axes"]
    label_x, label_y = list(range(x.ndim)), list(range(x.ndim, x.ndim + y.ndim))
    for i, j in zip((*bx, *cx), (*by, *cy), strict=True):
        label_y[j] = label_x[i]
    kept = [label_x[k] for k in bx] + [label_x[k] for k in free_axes(x.ndim, bx, cx)]
    kept += [label_y[k] for k in free_axes(y.ndim, by, cy)]
    return np.asarray(np.einsum(x, label_x, y, label_y, kept), x.dtype)


def _vjp_contract(b: Builder, instr: Instr, ct: Value) -> tuple[Value | None, ...]:
    """Each factor's cotangent is the contraction of ``ct`` with the other factor over that one's free axes, axes put back."""
    x, y = instr.args
    (bx, by), (cx, cy) = instr.attrs["batch"], instr.attrs["axes"]
    free_x, free_y = free_axes(x.type.rank, bx, cx), free_axes(y.type.rank, by, cy)
    batch = tuple(range(len(bx)))
    x_place = tuple(range(len(bx), len(bx) + len(free_x)))
    y_place = tuple(range(len(bx) + len(free_x), len(bx) + len(free_x) + len(free_y)))
    x_adj = b.contract(ct, y, batch=(batch, by), axes=(y_place, free_y))
    y_adj = b.contract(ct, x, batch=(batch, bx), axes=(x_place, free_x))
    return (
        _reorder(b, x_adj, (*bx, *free_x, *(cx[cy.index(k)] for k in sorted(cy)))),
        _reorder(b, y_adj, (*by, *free_y, *(cy[cx.index(k)] for k in sorted(cx)))),
    )


def _reorder(b: Builder, value: Value, axes: tuple[int, ...]) -> Value:
    """Axis ``k`` of ``value`` goes to place ``axes[k]``."""
    return value if axes == tuple(range(len(axes))) else b.transpose(value, perm=inverse(axes))


def _jvp_contract(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    (x, y), (dx, dy), attrs = instr.args, tangents, instr.attrs
    left = None if dx is None else b.contract(dx, y, **attrs)
    right = None if dy is None else b.contract(x, dy, **attrs)
    return left if right is None else right if left is None else b.add(left, right)  # type: ignore[return-value]  # one of the two is not None


CONTRACT = General(
    name="contract",
    infer=_infer_contract,
    evaluate=_evaluate_contract,
    vjp=_vjp_contract,
    jvp=_jvp_contract,
    lower=Routine("contract"),
    samples=(
        (("f64[3]", "f64[3]"), {"batch": ((), ()), "axes": ((0,), (0,))}),
        (("f64[2, 3]", "f64[3, 4]"), {"batch": ((), ()), "axes": ((1,), (0,))}),
        (("f64[3, 2]", "f64[4, 3]"), {"batch": ((), ()), "axes": ((0,), (1,))}),
        (("f64[2, 3]", "f64[3]"), {"batch": ((), ()), "axes": ((1,), (0,))}),
        (("f64[5, 2, 3]", "f64[3, 5, 4]"), {"batch": ((0,), (1,)), "axes": ((2,), (0,))}),
        (("f64[2, 3, 4]", "f64[4, 2, 3]"), {"batch": ((), ()), "axes": ((0, 2), (1, 0))}),
        (("f64[2]", "f64[3]"), {"batch": ((), ()), "axes": ((), ())}),
    ),
)

OPS = table(CONTRACT)
