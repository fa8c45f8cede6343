"""Products of arrays: matmul, dot, einsum and their relatives, all by way of labelled axes.

An operand is a value with one label per axis. A label in both operands but not in the result is summed over (``contract``); one
in both and in the result is a batch axis; without any to be summed the product is elementwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from pullback.errors import ShapeError
from pullback.frontends.array import Array
from pullback.frontends.library.elementwise import convert, multiply
from pullback.frontends.library.index import diagonal
from pullback.frontends.library.reduce import normalize_axis
from pullback.frontends.library.shape import broadcast_to, moveaxis, ravel, reshape, stack
from pullback.frontends.promote import cast, elementwise, number_dtype, result_dtype, wrap
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.types import bool_

Labels = tuple[Hashable, ...]


# -- two operands ---------------------------------------------------------------------------------------------------
def product_of(trace: Trace, x: Value, lx: Labels, y: Value, ly: Labels, out: Labels) -> Value:
    """The sum over all labels that ``out`` does not name of the product of two labelled values."""
    x, lx = _without_ones(trace, x, lx, y, ly)
    y, ly = _without_ones(trace, y, ly, x, lx)
    x, lx = _sum_alone(trace, x, lx, {*ly, *out})
    y, ly = _sum_alone(trace, y, ly, {*lx, *out})
    b = trace.builder
    both = [label for label in lx if label in ly]
    for label in both:
        y = agree(trace, x, lx.index(label), y, ly.index(label))
    batch, summed = [label for label in both if label in out], [label for label in both if label not in out]
    if not summed:
        return _elementwise(trace, x, lx, y, ly, out)
    value = b.contract(
        x,
        y,
        batch=(tuple(lx.index(k) for k in batch), tuple(ly.index(k) for k in batch)),
        axes=(tuple(lx.index(k) for k in summed), tuple(ly.index(k) for k in summed)),
    )
    found = (*batch, *(k for k in lx if k not in both), *(k for k in ly if k not in both))
    return _arranged(trace, value, found, out)


def _without_ones(trace: Trace, x: Value, lx: Labels, y: Value, ly: Labels) -> tuple[Value, Labels]:
    """Axes of length 1 that meet longer ones broadcast: they are dropped."""
    shape = x.type.shape
    pairs = [(k, y.type.shape[ly.index(label)]) for k, label in enumerate(lx) if label in ly]
    ones = [k for k, other in pairs if shape[k] != other and trace.is_one(shape[k], other)]
    if not ones:
        return x, lx
    b = trace.builder
    if any(shape[k] != 1 for k in ones):
        x = b.match(x, shape=tuple(1 if k in ones else n for k, n in enumerate(shape)))
    kept = [k for k in range(len(lx)) if k not in ones]
    return b.reshape(x, shape=tuple(x.type.shape[k] for k in kept)), tuple(lx[k] for k in kept)


def _sum_alone(trace: Trace, x: Value, lx: Labels, wanted: set[Hashable]) -> tuple[Value, Labels]:
    """Sum over labels that nothing else has."""
    axes = tuple(k for k, label in enumerate(lx) if label not in wanted)
    return (trace.builder.sum(x, axes=axes), tuple(label for label in lx if label in wanted)) if axes else (x, lx)


def agree(trace: Trace, x: Value, i: int, y: Value, j: int) -> Value:
    """Two axes that are paired must have one length."""
    a, c = x.type.shape[i], y.type.shape[j]
    if a == c:
        return y
    if isinstance(a, int) and isinstance(c, int):
        raise trace.error(
            ShapeError,
            f"the lengths of the paired axes differ: {a} (axis {i} of shape {trace.shape_text(x.type.shape)}) "
            f"and {c} (axis {j} of shape {trace.shape_text(y.type.shape)})",
            "a product sums over axes of one length; check the order of the factors, or transpose one",
        )
    if trace.equate(a, c):
        return y
    return trace.builder.match(y, shape=tuple(x.type.shape[i] if k == j else n for k, n in enumerate(y.type.shape)))


def _elementwise(trace: Trace, x: Value, lx: Labels, y: Value, ly: Labels, out: Labels) -> Value:
    sizes = {**dict(zip(lx, x.type.shape, strict=True)), **dict(zip(ly, y.type.shape, strict=True))}
    shape = tuple(sizes[label] for label in out)
    b = trace.builder
    factors = []
    for value, labels in ((x, lx), (y, ly)):
        ordered = tuple(label for label in out if label in labels)
        value = _arranged(trace, value, labels, ordered)
        axes = tuple(out.index(label) for label in ordered)
        whole = value.type.shape == shape
        factors.append(value if whole else b.spread(value, shape) if not axes else b.broadcast(value, axes=axes, shape=shape))
    return b.mul(*factors)


def _arranged(trace: Trace, value: Value, labels: Labels, out: Labels) -> Value:
    if labels == out:
        return value
    return trace.builder.transpose(value, perm=tuple(labels.index(label) for label in out))


def _operands(*operands: Any) -> tuple[Trace, list[Value]]:
    arrays = [wrap(x) for x in operands]
    trace = arrays[0].context
    trace.here()
    dtype = number_dtype(arrays)
    return trace, [cast(a, dtype) for a in arrays]


def _finished(trace: Trace, value: Value, operands: Sequence[Any]) -> Array:
    """Products of booleans are booleans in NumPy."""
    result = Array(trace, value, contiguous=True)
    booleans = result_dtype([wrap(x) for x in operands]) is bool_
    return Array(trace, convert(result, bool_)) if booleans else result


# -- products by name -----------------------------------------------------------------------------------------------
def matmul(x1: Any, x2: Any) -> Array:
    trace, (x, y) = _operands(x1, x2)
    if not x.type.rank or not y.type.rank:
        raise trace.error(ShapeError, "matmul: a scalar is no matrix", "use * to multiply by a scalar")
    wide = max(x.type.rank, y.type.rank) - 2
    batch: Labels = tuple(f"b{k}" for k in range(max(wide, 0)))
    lx: Labels = (*batch[len(batch) - max(x.type.rank - 2, 0) :], *(("i", "k") if x.type.rank > 1 else ("k",)))
    ly: Labels = (*batch[len(batch) - max(y.type.rank - 2, 0) :], *(("k", "j") if y.type.rank > 1 else ("k",)))
    k_x, k_y = x.type.shape[-1], y.type.shape[-2 if y.type.rank > 1 else -1]
    if isinstance(k_x, int) and isinstance(k_y, int) and k_x != k_y:
        raise trace.error(
            ShapeError,
            f"matmul: the last axis of {trace.shape_text(x.type.shape)} and the "
            f"{'second to last ' if y.type.rank > 1 else ''}axis of {trace.shape_text(y.type.shape)} differ: {k_x} and {k_y}",
            "transpose one factor, or check the order",
        )
    y = agree(trace, x, x.type.rank - 1, y, max(y.type.rank - 2, 0))
    out = (*batch, *(("i",) if x.type.rank > 1 else ()), *(("j",) if y.type.rank > 1 else ()))
    return _finished(trace, product_of(trace, x, lx, y, ly, out), (x1, x2))


def dot(a: Any, b: Any, out: None = None) -> Array:
    trace, (x, y) = _operands(a, b)
    if not x.type.rank or not y.type.rank:
        return elementwise("mul", a, b)
    return _paired(trace, x, y, [(x.type.rank - 1, max(y.type.rank - 2, 0))], (a, b))


def inner(a: Any, b: Any) -> Array:
    trace, (x, y) = _operands(a, b)
    if not x.type.rank or not y.type.rank:
        return elementwise("mul", a, b)
    return _paired(trace, x, y, [(x.type.rank - 1, y.type.rank - 1)], (a, b))


def _paired(trace: Trace, x: Value, y: Value, pairs: Sequence[tuple[int, int]], operands: Sequence[Any]) -> Array:
    """The sum over pairs of axes; no broadcasting."""
    lx: list[Hashable] = [("x", k) for k in range(x.type.rank)]
    ly: list[Hashable] = [("y", k) for k in range(y.type.rank)]
    for i, j in pairs:
        y = agree(trace, x, i, y, j)
        ly[j] = lx[i]
    out = tuple(label for label in lx if label not in ly) + tuple(label for label in ly if label not in lx)
    return _finished(trace, product_of(trace, x, tuple(lx), y, tuple(ly), out), operands)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    trace, (x, y) = _operands(a, b)
    if isinstance(axes, int):
        left: Sequence[int] = range(x.type.rank - axes, x.type.rank)
        right: Sequence[int] = range(axes)
    else:
        left, right = ([k] if isinstance(k, int) else list(k) for k in axes)
    if len(left) != len(right):
        raise ValueError("shape-mismatch for sum")
    pairs = [(normalize_axis(i, x.type.rank), normalize_axis(j, y.type.rank)) for i, j in zip(left, right, strict=True)]
    return _paired(trace, x, y, pairs, (a, b))


def outer(a: Any, b: Any, out: None = None) -> Array:
    x, y = ravel(a), ravel(b)
    return multiply(x[:, None], y[None, :])


def multiply_outer(a: Any, b: Any) -> Array:
    x, y = wrap(a), wrap(b)
    return multiply(x[(...,) + (None,) * y.ndim], y)


def vdot(a: Any, b: Any) -> Array:
    return dot(ravel(a), ravel(b))


def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Array:
    x, y = moveaxis(x1, axis, -1), moveaxis(x2, axis, -1)
    return matmul(x[..., None, :], y[..., :, None])[..., 0, 0]


def matvec(x1: Any, x2: Any, /) -> Array:
    return matmul(x1, wrap(x2)[..., None])[..., 0]


def vecmat(x1: Any, x2: Any, /) -> Array:
    return matmul(wrap(x1)[..., None, :], x2)[..., 0, :]


def kron(a: Any, b: Any) -> Array:
    x, y = wrap(a), wrap(b)
    rank = max(x.ndim, y.ndim)
    sx, sy = ((1,) * (rank - v.ndim) + v.shape for v in (x, y))
    wide_x = reshape(x, [n for size in sx for n in (size, 1)])
    wide_y = reshape(y, [n for size in sy for n in (1, size)])
    return reshape(elementwise("mul", wide_x, wide_y), [m * n for m, n in zip(sx, sy, strict=True)])


def matrix_power(a: Any, n: int) -> Array:
    from pullback.frontends.library.create import eye

    array = wrap(a)
    if n < 0:
        from pullback.frontends.library.linalg import inv

        array, n = inv(array), -n
    if n == 0:
        return broadcast_to(eye(array.shape[-1], dtype=array.dtype), array.shape)
    result = array
    for digit in bin(n)[3:]:
        result = matmul(result, result)
        result = matmul(result, array) if digit == "1" else result
    return result


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None) -> Array:
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    lengths = x.context.number(x.symbolic_shape[-1]), y.context.number(y.symbolic_shape[-1])
    if not all(n in (2, 3) for n in lengths):
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    p, q = ([v[..., k] for k in range(n)] for v, n in zip((x, y), lengths, strict=True))
    if lengths == (2, 2):
        return p[0] * q[1] - p[1] * q[0]
    if len(p) == 2:
        parts = [p[1] * q[2], -(p[0] * q[2]), p[0] * q[1] - p[1] * q[0]]
    elif len(q) == 2:
        parts = [-(p[2] * q[1]), p[2] * q[0], p[0] * q[1] - p[1] * q[0]]
    else:
        parts = [p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]]
    return moveaxis(stack(parts, -1), -1, axisc)


# -- einsum ---------------------------------------------------------------------------------------------------------
def einsum(*operands: Any, optimize: Any = False, out: None = None, dtype: None = None) -> Array:
    """From left to right; a label is summed over as soon as nothing later names it."""
    subscripts, arrays, output = _parse(operands)
    trace, values = _operands(*arrays)
    items = [_one_of_each(trace, value, labels) for value, labels in zip(values, subscripts, strict=True)]
    value, labels = items[0]
    for place, (other, theirs) in enumerate(items[1:], 1):
        later = {label for _, names in items[place + 1 :] for label in names} | set(output)
        found: Labels = tuple(k for k in labels if k in later) + tuple(k for k in theirs if k in later and k not in labels)
        last = place == len(items) - 1
        value = product_of(trace, value, labels, other, theirs, output if last else found)
        labels = output if last else found
    value, labels = _sum_alone(trace, value, labels, set(output))
    return _finished(trace, _arranged(trace, value, labels, output), arrays)


def _one_of_each(trace: Trace, value: Value, labels: Labels) -> tuple[Value, Labels]:
    """A label that one operand has twice takes the diagonal."""
    while len(set(labels)) < len(labels):
        label = next(k for k in labels if labels.count(k) > 1)
        i = labels.index(label)
        j = labels.index(label, i + 1)
        if value.type.shape[i] != value.type.shape[j] and not trace.equate(value.type.shape[i], value.type.shape[j]):
            own = trace.shape_text(value.type.shape)
            raise trace.error(ShapeError, f"einsum: the axes labelled {label!r} of {own} differ in length")
        value = diagonal(Array(trace, value), 0, i, j).value
        labels = (*(k for m, k in enumerate(labels) if m not in (i, j)), label)
    return value, labels


def _parse(operands: Sequence[Any]) -> tuple[list[Labels], list[Array], Labels]:
    """Labels of each operand and of the result, ellipses written out."""
    if isinstance(operands[0], str):
        left, arrow, right = operands[0].replace(" ", "").partition("->")
        arrays = [wrap(x) for x in operands[1:]]
        terms: list[list[Hashable]] = [_characters(term) for term in left.split(",")]
        output = _characters(right) if arrow else None
    else:
        pairs = len(operands) // 2
        arrays = [wrap(x) for x in operands[: 2 * pairs : 2]]
        terms = [list(labels) for labels in operands[1 : 2 * pairs : 2]]
        output = list(operands[-1]) if len(operands) % 2 else None
    if len(terms) != len(arrays):
        more = "more" if len(arrays) > len(terms) else "fewer"
        raise ValueError(f"{more} operands provided to einstein sum function than specified in the subscripts string")
    widths = []
    for term, array in zip(terms, arrays, strict=True):
        extra = array.ndim - sum(label is not Ellipsis for label in term)
        if extra < 0 or (extra and Ellipsis not in term):
            raise ValueError(
                f"einsum: operand of shape {array.context.shape_text(array.symbolic_shape)} has {array.ndim} axes "
                f"but {len(term)} labels"
            )
        widths.append(extra if Ellipsis in term else 0)
    most = max(widths)
    spelled = [_spell(term, width) for term, width in zip(terms, widths, strict=True)]
    if output is None:
        named = [label for term in terms for label in term if label is not Ellipsis]
        once = sorted({label for label in named if named.count(label) == 1})  # type: ignore[type-var]  # characters or integers
        output = [Ellipsis, *once] if most else list(once)
    missing = [label for label in output if label is not Ellipsis and not any(label in term for term in spelled)]
    if missing:
        raise ValueError(f"einsum: the output label {missing[0]!r} is in no operand")
    return spelled, arrays, _spell(output, most)


def _characters(term: str) -> list[Hashable]:
    before, dots, after = term.partition("...")
    for character in before + after:
        if not character.isalpha():
            raise ValueError(f"invalid subscript {character!r} in einstein sum subscripts string, subscripts must be letters")
    return [*before, *((Ellipsis,) if dots else ()), *after]


def _spell(term: Sequence[Hashable], width: int) -> Labels:
    """The ellipsis as labels counted from the right, so that they align as in broadcasting."""
    dots = [("...", k) for k in range(width, 0, -1)]
    return tuple(itertools.chain.from_iterable(dots if label is Ellipsis else [label] for label in term))


def prod_of(values: Sequence[Any], start: Any = 1) -> Any:
    """``math.prod``."""
    result = start
    for value in values:
        result = result * value
    return result


def fsum(values: Sequence[Any]) -> Any:
    return sum(values)


def dist(p: Any, q: Any) -> Any:
    from pullback.frontends.library.create import array
    from pullback.frontends.library.reduce import norm

    return norm(array(list(p)) - array(list(q)))


def sumprod(p: Any, q: Any) -> Any:
    return sum(x * y for x, y in zip(p, q, strict=True))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f for f in (matmul, dot, inner, tensordot, outer, vdot, vecdot, matvec, vecmat, kron, cross, einsum)
} | {
    "numpy.linalg.matmul": matmul,
    "numpy.linalg.outer": outer,
    "numpy.linalg.tensordot": tensordot,
    "numpy.linalg.vecdot": vecdot,
    "numpy.linalg.cross": cross,
    "numpy.linalg.matrix_power": matrix_power,
    "numpy.multiply.outer": multiply_outer,
    "math.prod": prod_of,
    "math.fsum": fsum,
    "math.dist": dist,
    "math.sumprod": sumprod,
}
