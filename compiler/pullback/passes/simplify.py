"""Local rewrites that never change a value (IEEE: signed zeros, infinities and NaN included) and never add cost.

Each rule is a small function named for what it says; it gets the builder, the instruction and the definitions of values, and
returns the replacement or None. ``x + 0`` stays: it is not ``x`` for ``x = -0.0``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from pullback.ir.core import Builder, Func, Instr, Value
from pullback.ir.ops.base import Elementwise
from pullback.passes.rewrite import Definitions, rewrite, type_of

Rule: TypeAlias = Callable[[Builder, Instr, Definitions], Value | None]


# What a rule for an elementwise op looks for among the operands' definitions; without one of these there is nothing to do.
TELLING = frozenset({"const", "broadcast", "reshape", "neg", "sqrt", "norm", "logical_not"})
ALWAYS = frozenset({"powi", "select"})  # are looked at without


def simplify(func: Func) -> Func:
    defs = Definitions()
    telling: set[Value] = set()

    def define(instrs: Sequence[Instr]) -> None:
        for instr in instrs:
            for out in instr.outs:
                defs[out] = instr
                if instr.op.name in TELLING:
                    telling.add(out)

    def visit(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
        elementwise = isinstance(instr.op, Elementwise)
        if not elementwise or instr.op.name in ALWAYS or not telling.isdisjoint(instr.args):
            start = len(b.body)
            rules = RULES.get(instr.op.name, ())
            for rule in (*rules, fold_constants) if elementwise else rules:
                found = rule(b, instr, defs)
                if found is not None:
                    define(b.body[start:])
                    return (found,)
        define((instr,))
        return None

    return rewrite(func, visit)


# -- arithmetic -------------------------------------------------------------------------------------------------------
def mul_by_one(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    x, y = instr.args
    return x if defs.constant(y) == 1 else y if defs.constant(x) == 1 else None


def mul_by_minus_one(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    x, y = instr.args
    return b.neg(x) if defs.constant(y) == -1 else b.neg(y) if defs.constant(x) == -1 else None


def mul_of_two_negatives(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    left, right = (defs.op(a, "neg") for a in instr.args)
    return b.mul(left.args[0], right.args[0]) if left is not None and right is not None else None


def mul_of_equals(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    """``r * r`` where ``r`` is a root: see ``square_of_sqrt`` and ``square_of_norm``."""
    x, y = instr.args
    return _square_of_root(b, x, defs) if x is y else None


def div_by_one(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    return instr.args[0] if defs.constant(instr.args[1]) == 1 else None


def sub_of_zero(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    """``x - 0.0`` is ``x`` even for a negative zero; ``x - -0.0`` is not."""
    zero = defs.constant(instr.args[1])
    return instr.args[0] if zero == 0 and not np.signbit(zero) else None


def add_of_negative(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    x, y = instr.args
    negative = defs.op(y, "neg")
    if negative is not None:
        return b.sub(x, negative.args[0])
    negative = defs.op(x, "neg")
    return b.sub(y, negative.args[0]) if negative is not None else None


def add_of_negative_zero(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    """``x + -0.0`` is ``x``, whatever ``x`` is; ``x + 0.0`` is not for a negative zero."""
    x, y = instr.args
    for value, other in ((x, y), (y, x)):
        zero = defs.constant(other)
        if zero is not None and zero == 0 and np.signbit(zero):
            return value
    return None


def sub_of_negative(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    negative = defs.op(instr.args[1], "neg")
    return b.add(instr.args[0], negative.args[0]) if negative is not None else None


def neg_of_neg(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "neg")
    return inner.args[0] if inner is not None else None


def powi_of_small_exponent(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    x, exponent = instr.args[0], instr.attrs["exponent"]
    return b.full(1, x.type) if exponent == 0 else x if exponent == 1 else b.square(x) if exponent == 2 else None


def square_of_root(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    return _square_of_root(b, instr.args[0], defs)


def _square_of_root(b: Builder, x: Value, defs: Definitions) -> Value | None:
    """``norm(x)**2`` is the sum of squares and ``sqrt(s)**2`` is ``s`` (NaN below zero): their derivatives are exact
    at zero."""
    if not type_of(x).is_float:
        return None
    norm = defs.op(x, "norm")
    if norm is not None:
        return b.sum(b.square(norm.args[0]), axes=norm.attrs["axes"])
    root = defs.op(x, "sqrt")
    if root is None:
        return None
    (s,) = root.args
    if _is_never_negative(s, defs):
        return s
    return b.select(b.lt(s, b.zeros(s.type)), b.full(np.nan, s.type), s)


def _is_never_negative(value: Value, defs: Definitions) -> bool:
    instr = defs.get(value)
    while instr is not None and instr.op.name in ("sum", "broadcast", "reshape", "transpose", "slice"):
        instr = defs.get(instr.args[0])
    if instr is None:
        return False
    return instr.op.name in ("square", "abs", "exp", "norm") or (instr.op.name == "mul" and instr.args[0] is instr.args[1])


# -- choice -----------------------------------------------------------------------------------------------------------
def select_of_constant(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    condition, yes, no = instr.args
    known = defs.constant(condition)
    if known is not None:
        return yes if known else no
    return yes if yes is no else None


def not_of_not(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "logical_not")
    return inner.args[0] if inner is not None else None


# -- views ------------------------------------------------------------------------------------------------------------
def same_type(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    """A reshape, broadcast, convert or match that changes nothing."""
    (x,) = instr.args
    return x if x.type == instr.out.type else None


def sum_over_nothing(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    return instr.args[0] if not instr.attrs["axes"] else None


def transpose_of_nothing(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    perm = instr.attrs["perm"]
    return instr.args[0] if perm == tuple(range(len(perm))) else None


def transpose_twice(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "transpose")
    if inner is None:
        return None
    perm = tuple(inner.attrs["perm"][p] for p in instr.attrs["perm"])
    return inner.args[0] if perm == tuple(range(len(perm))) else b.transpose(inner.args[0], perm=perm)


def reshape_twice(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "reshape")
    if inner is None:
        return None
    (x,) = inner.args
    return x if x.type == instr.out.type else b.reshape(x, shape=instr.out.type.shape)


def broadcast_twice(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "broadcast")
    if inner is None:
        return None
    axes = tuple(instr.attrs["axes"][a] for a in inner.attrs["axes"])
    return b.broadcast(inner.args[0], axes=axes, shape=instr.attrs["shape"])


def slice_of_everything(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    (x,), attrs = instr.args, instr.attrs
    whole = (
        all(s == 0 for s in attrs["starts"]) and all(s == 1 for s in attrs["steps"]) and tuple(attrs["sizes"]) == x.type.shape
    )
    return x if whole else None


def concatenate_of_one(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    return instr.args[0] if len(instr.args) == 1 else None


# -- constants --------------------------------------------------------------------------------------------------------
def number_as_size(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    size = instr.attrs["dim"]
    return b.dim(size) if isinstance(size, int) else None


def convert_constant(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    inner = defs.op(instr.args[0], "const")
    if inner is None or instr.args[0].type.rank:
        return None
    with np.errstate(all="ignore"):
        value = inner.attrs["value"].astype(instr.out.type.dtype.numpy)
    if instr.out.type.dtype.kind == "i" and inner.attrs["value"].dtype.kind == "f" and value != inner.attrs["value"]:
        return None  # a conversion that is not exact stays where it runs
    return b.const(value, instr.out.type.dtype)


def fold_constants(b: Builder, instr: Instr, defs: Definitions) -> Value | None:
    """An elementwise op of scalar constants."""
    if instr.out.type.rank or not instr.args:
        return None
    known = [defs.constant(a) for a in instr.args]
    if any(k is None for k in known):
        return None
    assert isinstance(instr.op, Elementwise)
    with np.errstate(all="ignore"):
        value = instr.op.numpy(*known, **instr.attrs)
    return b.const(value, instr.out.type.dtype)


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (add_of_negative, add_of_negative_zero),
    "sub": (sub_of_zero, sub_of_negative),
    "mul": (mul_by_one, mul_by_minus_one, mul_of_two_negatives, mul_of_equals),
    "div": (div_by_one,),
    "neg": (neg_of_neg,),
    "square": (square_of_root,),
    "powi": (powi_of_small_exponent,),
    "select": (select_of_constant,),
    "logical_not": (not_of_not,),
    "reshape": (same_type, reshape_twice),
    "broadcast": (same_type, broadcast_twice),
    "convert": (same_type, convert_constant),
    "match": (same_type,),
    "sum": (sum_over_nothing,),
    "transpose": (transpose_of_nothing, transpose_twice),
    "slice": (slice_of_everything,),
    "concatenate": (concatenate_of_one,),
    "size": (number_as_size,),
}
