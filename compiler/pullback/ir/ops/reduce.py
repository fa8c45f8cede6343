"""Reductions over ``axes`` (a sorted tuple; the axes vanish), and first-order recurrences.

``sum``, ``prod``, ``max``, ``min``, ``any``, ``all``, ``norm``, ``logsumexp``; ``argmax``, ``argmin`` over one axis;
``cumsum``; and ``recurrence``, of which cumulative products are a special case.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np

from pullback.ir.core import Builder, Instr, Value
from pullback.ir.dims import product
from pullback.ir.ops.base import Attrs, Decompose, Fold, General, Infer, Linear, Plain, Routine, TypeMismatch, Weighted, table
from pullback.ir.types import DType, Type, i64


def _reduced(kinds: str) -> Infer:
    def infer(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
        (x,), axes = types, attrs["axes"]
        if list(axes) != sorted(set(axes)) or any(not 0 <= a < x.rank for a in axes):
            raise TypeMismatch(f"{axes} are no axes of {x}")
        if x.dtype.kind not in kinds:
            raise TypeMismatch(f"not defined for {x}")
        return (x.with_shape(tuple(n for k, n in enumerate(x.shape) if k not in axes)),)

    return infer


def kept_axes(rank: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(k for k in range(rank) if k not in axes)


def spread_back(b: Any, reduced: Value, x: Type, axes: tuple[int, ...]) -> Value:
    """A reduced value repeated along the axes that were reduced. ``b`` is a builder or any algebra."""
    return b.broadcast(reduced, axes=kept_axes(x.rank, axes), shape=x.shape)


_SAMPLES = (
    (("f64[5]",), {"axes": (0,)}),
    (("f64[2, 3]",), {"axes": (0,)}),
    (("f64[2, 3]",), {"axes": (1,)}),
    (("f64[2, 3, 2]",), {"axes": (0, 2)}),
    (("f64[3]",), {"axes": ()}),
)

SUM = Linear(
    name="sum",
    infer=_reduced("fi"),
    evaluate=lambda args, attrs: np.sum(args[0], axis=attrs["axes"]),
    transpose=lambda t, instr, ct: (spread_back(t, ct, instr.args[0].type, instr.attrs["axes"]),),
    sympy=lambda sp, xs, attrs: sp.Add(*xs),
    lower=Fold("add", lambda dtype: 0),
    samples=(*_SAMPLES, (("f64[0, 3]",), {"axes": (0,)})),
)


# -- prod -----------------------------------------------------------------------------------------------------------
def _prod_weights(b: Builder, instr: Instr, out: Value) -> Value:
    """The product of all other elements: an exclusive product from the left times one from the right, so zeros are exact."""
    (x,), axes = instr.args, instr.attrs["axes"]
    kept = kept_axes(x.type.rank, axes)
    perm = kept + axes
    lined = b.transpose(x, perm=perm)
    flat = b.reshape(lined, shape=(*(x.type.shape[k] for k in kept), product(x.type.shape[k] for k in axes)))
    others = b.mul(exclusive_cumprod(b, flat, reverse=False), exclusive_cumprod(b, flat, reverse=True))
    back = b.reshape(others, shape=lined.type.shape)
    return b.transpose(back, perm=tuple(perm.index(k) for k in range(len(perm))))


def exclusive_cumprod(b: Builder, x: Value, reverse: bool) -> Value:
    """Along the last axis, the product of the elements strictly before each (after it, if ``reverse``); the first is 1.

    As the recurrence ``p[i] = x[i-1] * p[i-1]``, ``p[0] = 1``.
    """
    one = b.full(1, x.type.with_shape((*x.type.shape[:-1], 1)))
    return b.recurrence(_shifted(b, x, one, reverse), _shifted(b, b.zeros(x.type), one, reverse), reverse=reverse)


def _shifted(b: Builder, x: Value, first: Value, reverse: bool) -> Value:
    """``x[i-1]`` along the last axis with ``first`` before it; ``x[i+1]`` with ``first`` at the end if ``reverse``.

    One element too many is joined and cut off again, so that an empty axis needs no case of its own.
    """
    rank, shape = x.type.rank, x.type.shape
    longer = b.concatenate(*((x, first) if reverse else (first, x)), axis=rank - 1)
    starts = (*(0,) * (rank - 1), 1 if reverse else 0)
    return b.slice(longer, starts=starts, sizes=shape, steps=(1,) * rank)


PROD = Weighted(
    name="prod",
    infer=_reduced("fi"),
    evaluate=lambda args, attrs: np.prod(args[0], axis=attrs["axes"]),
    weights=_prod_weights,
    sympy=lambda sp, xs, attrs: sp.Mul(*xs),
    lower=Fold("mul", lambda dtype: 1),
    samples=_SAMPLES,
)


# -- max and min ----------------------------------------------------------------------------------------------------
def _share_of_ties(b: Builder, instr: Instr, out: Value) -> Value:
    """1/k where an element equals the extremum, of which there are k. The stored operand is compared, nothing is redone."""
    (x,), axes = instr.args, instr.attrs["axes"]
    hit = b.convert(b.eq(x, out), dtype=x.type.dtype.name)
    ties = spread_back(b, b.sum(hit, axes=axes), x.type, axes)
    return b.div(hit, ties)


def _lowest(dtype: DType) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(np.int64).min


def _highest(dtype: DType) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(np.int64).max


def _infer_extremum(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    (result,) = _reduced("fi")(types, attrs)
    if 0 in (types[0].shape[a] for a in attrs["axes"]):
        raise TypeMismatch("zero-size array to reduction operation maximum or minimum which has no identity")
    return (result,)


MAX = Weighted(
    name="max",
    infer=_infer_extremum,
    evaluate=lambda args, attrs: np.max(args[0], axis=attrs["axes"]),
    weights=_share_of_ties,
    sympy=lambda sp, xs, attrs: sp.Max(*xs),
    lower=Fold("maximum", _lowest),
    samples=_SAMPLES,
)
MIN = Weighted(
    name="min",
    infer=_infer_extremum,
    evaluate=lambda args, attrs: np.min(args[0], axis=attrs["axes"]),
    weights=_share_of_ties,
    sympy=lambda sp, xs, attrs: sp.Min(*xs),
    lower=Fold("minimum", _highest),
    samples=_SAMPLES,
)


def _infer_argextremum(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    return (_infer_extremum(types, {"axes": (attrs["axis"],)})[0].of(i64),)


ARGMAX = Plain(  # the first of equals; the first NaN if there is one
    name="argmax",
    infer=_infer_argextremum,
    evaluate=lambda args, attrs: np.asarray(np.argmax(args[0], axis=attrs["axis"]), np.int64),
    lower=Routine("argmax"),
    samples=((("f64[5]",), {"axis": 0}), (("f64[3, 4]",), {"axis": 1}), (("f64[3, 4]",), {"axis": 0})),
)
ARGMIN = Plain(
    name="argmin",
    infer=_infer_argextremum,
    evaluate=lambda args, attrs: np.asarray(np.argmin(args[0], axis=attrs["axis"]), np.int64),
    lower=Routine("argmin"),
    samples=((("f64[5]",), {"axis": 0}), (("f64[3, 4]",), {"axis": 1}), (("f64[3, 4]",), {"axis": 0})),
)

_BOOL_SAMPLES = ((("bool[5]",), {"axes": (0,)}), (("bool[2, 3]",), {"axes": (0,)}), (("bool[2, 3]",), {"axes": (1,)}))
ANY = Plain(
    name="any",
    infer=_reduced("b"),
    evaluate=lambda args, attrs: np.any(args[0], axis=attrs["axes"]),
    sympy=lambda sp, xs, attrs: sp.Or(*xs),
    lower=Fold("logical_or", lambda dtype: False),
    samples=_BOOL_SAMPLES,
)
ALL = Plain(
    name="all",
    infer=_reduced("b"),
    evaluate=lambda args, attrs: np.all(args[0], axis=attrs["axes"]),
    sympy=lambda sp, xs, attrs: sp.And(*xs),
    lower=Fold("logical_and", lambda dtype: True),
    samples=_BOOL_SAMPLES,
)


# -- norm and logsumexp ---------------------------------------------------------------------------------------------
def _norm_weights(b: Builder, instr: Instr, out: Value) -> Value:
    """x / |x|, and 0 where the norm is 0 (the subgradient of least norm)."""
    (x,) = instr.args
    zero = b.zeros(x.type)
    return b.select(b.eq(out, zero), zero, b.div(x, out))


NORM = Weighted(  # the Euclidean norm
    name="norm",
    infer=_reduced("f"),
    evaluate=lambda args, attrs: np.sqrt(np.sum(args[0] * args[0], axis=attrs["axes"])),
    weights=_norm_weights,
    sympy=lambda sp, xs, attrs: sp.sqrt(sp.Add(*(x**2 for x in xs))),
    lower=Decompose(lambda b, instr: b.sqrt(b.sum(b.square(*instr.args), axes=instr.attrs["axes"]))),
    samples=_SAMPLES,
)


def _centred(b: Builder, x: Value, axes: tuple[int, ...]) -> tuple[Value, Value]:
    """``x`` less its mean, and the number of elements in the mean (in x's element type)."""
    count = b.convert(b.dim(product(x.type.shape[a] for a in axes)), dtype=x.type.dtype.name)
    total = b.sum(x, axes=axes)
    return b.sub(x, spread_back(b, b.div(total, b.spread(count, total.type.shape)), x.type, axes)), count


def _freedom(b: Builder, instr: Instr) -> tuple[Value, Value]:
    """Deviations from the mean, and the degrees of freedom ``n - ddof`` as a scalar."""
    centred, count = _centred(b, instr.args[0], instr.attrs["axes"])
    freedom = b.sub(count, b.const(instr.attrs["ddof"], count.type.dtype))
    return centred, b.maximum(freedom, b.const(0, count.type.dtype))  # NumPy clips it at 0


def _var_weights(b: Builder, instr: Instr, out: Value) -> Value:
    """2 (x - mean) / (n - ddof): 0/0 is NaN for one element with ddof=1, as the value is."""
    centred, freedom = _freedom(b, instr)
    return b.div(b.mul(b.full(2, centred.type), centred), b.spread(freedom, centred.type.shape))


def _decompose_var(b: Builder, instr: Instr) -> Value:
    centred, freedom = _freedom(b, instr)
    total = b.sum(b.square(centred), axes=instr.attrs["axes"])
    return b.div(total, b.spread(freedom, total.type.shape))


def _sympy_var(sp: Any, xs: Any, attrs: Attrs) -> Any:
    mean = sp.Add(*xs) / len(xs)
    return sp.Add(*((x - mean) ** 2 for x in xs)) / (len(xs) - attrs["ddof"])


def _evaluate_var(args: Any, attrs: Attrs) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # too few elements: NaN is the answer
        return np.var(args[0], axis=attrs["axes"], ddof=attrs["ddof"])


_VAR_SAMPLES = tuple((types, {**attrs, "ddof": ddof}) for types, attrs in _SAMPLES[:4] for ddof in (0, 1))
VAR = Weighted(  # its own op because its derivative must divide by n - ddof inside the weight
    name="var",
    infer=_reduced("f"),
    evaluate=_evaluate_var,
    weights=_var_weights,
    sympy=_sympy_var,
    lower=Decompose(_decompose_var),
    samples=_VAR_SAMPLES,
)


def _std_weights(b: Builder, instr: Instr, out: Value) -> Value:
    """(x - mean) / (n - ddof) / std, and 0 where the standard deviation is 0."""
    centred, freedom = _freedom(b, instr)
    zero = b.zeros(out.type)
    slope = b.div(b.div(centred, b.spread(freedom, centred.type.shape)), out)
    return b.select(b.eq(out, zero), zero, slope)


STD = Weighted(
    name="std",
    infer=_reduced("f"),
    evaluate=lambda args, attrs: np.sqrt(_evaluate_var(args, attrs)),
    weights=_std_weights,
    sympy=lambda sp, xs, attrs: sp.sqrt(_sympy_var(sp, xs, attrs)),
    lower=Decompose(lambda b, instr: b.sqrt(_decompose_var(b, instr))),
    samples=_VAR_SAMPLES,
)


def _shift(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """The maximum over ``axes``; 0 where that is infinite, so that subtracting it cannot make NaN."""
    top = b.max(x, axes=axes)
    return b.select(b.isfinite(top), top, b.zeros(top.type))


def _decompose_logsumexp(b: Builder, instr: Instr) -> Value:
    (x,), axes = instr.args, instr.attrs["axes"]
    if product(x.type.shape[a] for a in axes) == 0:
        return b.full(-np.inf, instr.out.type)
    shift = _shift(b, x, axes)
    terms = b.exp(b.sub(x, spread_back(b, shift, x.type, axes)))
    return b.add(b.log(b.sum(terms, axes=axes)), shift)


def _evaluate_logsumexp(args: Any, attrs: Attrs) -> Any:
    (x,), axes = args, attrs["axes"]
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        return (np.log(np.sum(np.exp(x - shift), axis=axes)) + np.squeeze(shift, axis=axes)).astype(x.dtype)


def _softmax(b: Builder, instr: Instr, out: Value) -> Value:
    """exp(x - out); 0 where all terms are -inf."""
    (x,) = instr.args
    floor = b.eq(x, b.full(-np.inf, x.type))
    return b.select(floor, b.zeros(x.type), b.exp(b.sub(x, out)))


LOGSUMEXP = Weighted(
    name="logsumexp",
    infer=_reduced("f"),
    evaluate=_evaluate_logsumexp,
    weights=_softmax,
    sympy=lambda sp, xs, attrs: sp.log(sp.Add(*(sp.exp(x) for x in xs))),
    lower=Decompose(_decompose_logsumexp),
    samples=_SAMPLES,
)


# -- recurrence -----------------------------------------------------------------------------------------------------
def _infer_recurrence(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    a, b = types
    if a != b or a.rank == 0 or a.dtype.kind not in "fi":
        raise TypeMismatch(f"two arrays of one type expected, got {a} and {b}")
    return (b,)


def _evaluate_recurrence(args: Any, attrs: Attrs) -> Any:
    a, b = args
    out = np.array(b)
    order = range(out.shape[-1])
    order = order[::-1] if attrs["reverse"] else order
    for before, i in itertools.pairwise(order):
        out[..., i] = a[..., i] * out[..., before] + b[..., i]
    return out


def _before(b: Builder, x: Value, reverse: bool) -> Value:
    """The neighbour that a recurrence comes from, 0 at the start."""
    return _shifted(b, x, b.zeros(x.type.with_shape((*x.type.shape[:-1], 1))), reverse)


def _vjp_recurrence(b: Builder, instr: Instr, ct: Value) -> tuple[Value | None, ...]:
    """With ``s[i] = a[i] s[i-1] + b[i]``: ``b_adj[i] = ct[i] + a[i+1] b_adj[i+1]``, ``a_adj[i] = b_adj[i] s[i-1]``."""
    a, _ = instr.args
    reverse = instr.attrs["reverse"]
    b_adj = b.recurrence(_before(b, a, not reverse), ct, reverse=not reverse)
    return b.mul(b_adj, _before(b, instr.out, reverse)), b_adj


def _jvp_recurrence(b: Builder, instr: Instr, tangents: tuple[Value | None, ...]) -> Value:
    a, _ = instr.args
    da, db = tangents
    reverse = instr.attrs["reverse"]
    step = None if da is None else b.mul(da, _before(b, instr.out, reverse))
    forcing = db if step is None else step if db is None else b.add(step, db)
    return b.recurrence(a, forcing, reverse=reverse)


RECURRENCE = General(
    # s[i] = a[i] * s[i-1] + b[i] along the last axis, s[0] = b[0] (a[0] is not read); from the end if ``reverse``
    name="recurrence",
    infer=_infer_recurrence,
    evaluate=_evaluate_recurrence,
    vjp=_vjp_recurrence,
    jvp=_jvp_recurrence,
    lower=Routine("recurrence"),
    samples=(
        (("f64[5]", "f64[5]"), {"reverse": False}),
        (("f64[2, 4]", "f64[2, 4]"), {"reverse": True}),
        (("f64[1]", "f64[1]"), {"reverse": False}),
    ),
)

# cumulative sum along the last axis: its own op because the factors of a recurrence would be an array of ones
CUMSUM = Linear(
    name="cumsum",
    infer=lambda types, attrs: _infer_recurrence((types[0], types[0]), attrs),
    evaluate=lambda args, attrs: (
        np.cumsum(args[0][..., ::-1], axis=-1)[..., ::-1] if attrs["reverse"] else np.cumsum(args[0], axis=-1)
    ),
    transpose=lambda t, instr, ct: (t.cumsum(ct, reverse=not instr.attrs["reverse"]),),
    carries_mask=False,
    lower=Routine("cumsum"),
    samples=((("f64[5]",), {"reverse": False}), (("f64[2, 3]",), {"reverse": True})),
)

OPS = table(SUM, PROD, MAX, MIN, ARGMAX, ARGMIN, ANY, ALL, NORM, VAR, STD, LOGSUMEXP, RECURRENCE, CUMSUM)
