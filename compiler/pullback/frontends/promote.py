"""Operands: what becomes a traced array, NumPy's type promotion (NEP 50), and broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.errors import DTypeError, TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.operators import remedy_for
from pullback.frontends.sizes import Length
from pullback.frontends.trace import COMPLEX, Trace, active, current
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.ops import OPS, Op
from pullback.ir.types import FROM_NUMPY, DType, Shape, Type, bool_, f64, i64

SCALAR = Type(f64)
NUMBERS = (bool, int, float, np.generic)


def wrap(x: Any, what: str = "an operand") -> Array:
    """Anything that NumPy takes for an array, as a traced array. Python numbers are weak."""
    if isinstance(x, Array):
        return x if x.context is active() or x.context.finished else _from_outside(x)
    trace = current()
    if isinstance(x, Length):
        return Array.of_size(trace, x.size)
    if isinstance(x, (bool, int, float)) and not isinstance(x, np.generic):
        return Array.constant(trace, _python_number(trace, x), weak=True)
    if isinstance(x, (np.generic, np.ndarray)):
        if x.dtype.kind == "c":
            raise trace.error(UnsupportedError, f"{what} is complex", COMPLEX)
        dtype = trace.element_type(x.dtype, what)
        return Array.constant(trace, np.array(x, dtype.numpy))
    if isinstance(x, (list, tuple)):
        from pullback.frontends.library.create import array

        return array(x)
    if isinstance(x, complex):
        raise trace.error(UnsupportedError, f"{what} is complex", COMPLEX)
    raise trace.error(TraceError, f"{what} is of type {type(x).__name__}; an array or a number expected", remedy_for(x))


def _from_outside(x: Array) -> Array:
    """An array of the function around the one being traced (a closure reads it), within this trace."""
    trace, constant = current(), x.pending_constant()
    if constant is not None:
        return Array.constant(trace, constant, weak=x.weak)
    return Array(trace, trace.lift(x), weak=x.weak, known=x.known, source="an array of the surrounding function")


def _python_number(trace: Trace, x: bool | int | float) -> np.ndarray[Any, Any]:
    if isinstance(x, bool):
        return np.array(x)
    if isinstance(x, int) and not -(2**63) <= x < 2**63:
        return np.array(float(x))  # NumPy makes an object array; as a factor of floats it is this number
    return np.array(x, np.int64 if isinstance(x, int) else np.float64)


# -- element types --------------------------------------------------------------------------------------------------
def result_dtype(arrays: Sequence[Array]) -> DType:
    """NumPy's promoted element type; a weak number only decides the kind."""
    strong = [a.dtype_ for a in arrays if not a.weak]
    weak = [a.dtype_ for a in arrays if a.weak]
    if not strong:
        return max(weak, key=lambda t: "bif".index(t.kind))
    found = strong[0] if all(t is strong[0] for t in strong) else FROM_NUMPY[np.result_type(*(t.numpy for t in strong))]
    for dtype in weak:
        if dtype.kind == "f" and found.kind != "f":
            found = f64
        elif dtype.kind == "i" and found.kind == "b":
            found = i64
    return found


def float_dtype(arrays: Sequence[Array]) -> DType:
    """The promoted type for functions of floats: integers become float64."""
    found = result_dtype(arrays)
    return found if found.kind == "f" else f64


def number_dtype(arrays: Sequence[Array]) -> DType:
    """The promoted type for sums and the like: booleans count as integers."""
    found = result_dtype(arrays)
    return i64 if found is bool_ else found


def cast(array: Array, dtype: DType) -> Value:
    """The value with this element type."""
    if array.dtype_ is dtype:
        return array.value
    constant = array.pending_constant()
    if constant is not None:
        with np.errstate(over="ignore"):
            return array.context.here().const(constant.astype(dtype.numpy), dtype)
    return array.context.builder.convert(array.value, dtype=dtype.name)


def to_dtype(trace: Trace, dtype: Any) -> DType:
    """The IR's element type for what a user writes: float, np.float32, "f4", an IR type."""
    if isinstance(dtype, DType):
        return dtype
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise trace.error(DTypeError, f"not an element type: {dtype!r}", "use float, np.float32, int or bool") from None
    return trace.element_type(wanted, "the result")


# -- shapes ---------------------------------------------------------------------------------------------------------
def broadcast_shape(trace: Trace, shapes: Sequence[Shape]) -> Shape:
    """NumPy's broadcast shape, with whole shapes in its error."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Size] = []
    for k in range(rank):
        sizes = [s[k - rank + len(s)] for s in shapes if k - rank + len(s) >= 0]
        distinct = {s for s in map(trace.canonical, sizes) if s != 1}
        if len({s for s in distinct if isinstance(s, int)}) > 1:
            left, right = _clash(shapes)
            raise trace.mismatch(left, right)
        result.append(distinct.pop() if len(distinct) == 1 else trace.common_size(sizes) if distinct else 1)
    return tuple(trace.canonical(s) for s in result)


def _clash(shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
    """The first two shapes that do not fit each other."""
    for i, right in enumerate(shapes):
        for left in shapes[:i]:
            pairs = zip(reversed(left), reversed(right), strict=False)
            if any(isinstance(a, int) and isinstance(b, int) and a != b and 1 not in (a, b) for a, b in pairs):
                return left, right
    return shapes[0], shapes[-1]


def spread(trace: Trace, value: Value, shape: Shape) -> Value:
    """A value broadcast to ``shape``, which it is known to fit: axes of length 1 are dropped, missing ones added."""
    own: Shape = value.type.shape
    if own == shape:
        return value
    b = trace.builder
    if not own:
        return b.spread(value, shape)
    offset = len(shape) - len(own)
    wanted = shape[offset:]
    ones = [k for k, (a, n) in enumerate(zip(own, wanted, strict=True)) if a != n and trace.is_one(a, n)]
    kept = [k for k in range(len(own)) if k not in ones]
    if any(own[k] != 1 for k in ones):
        value = b.match(value, shape=tuple(1 if k in ones else n for k, n in enumerate(own)))
    if any(own[k] != wanted[k] for k in kept):  # not provably equal: checked when the function runs
        value = b.match(value, shape=tuple(1 if k in ones else n for k, n in enumerate(wanted)))
    if ones:
        value = b.reshape(value, shape=tuple(value.type.shape[k] for k in kept))
    if not kept:
        return b.spread(value, shape)
    if value.type.shape == shape:
        return value
    return b.broadcast(value, axes=tuple(k + offset for k in kept), shape=shape)


def broadcast(trace: Trace, values: Sequence[Value]) -> list[Value]:
    """All values in their common shape."""
    if all(v.type.shape == values[0].type.shape for v in values):
        return list(values)
    shape = broadcast_shape(trace, [v.type.shape for v in values])
    return [spread(trace, v, shape) for v in values]


# -- the ordinary case ----------------------------------------------------------------------------------------------
_SAME = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt cbrt
    arctan2 hypot logaddexp square sign fmax fmin
"""
_QUICK: dict[str, Op] = {f"numpy.{name}": OPS[name] for name in _SAME.split()} | {
    f"numpy.{name}": OPS[op]
    for name, op in (
        ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"), ("true_divide", "div"),
        ("negative", "neg"),
    )
}  # fmt: skip


def quick(name: str, args: Sequence[Any]) -> Array | None:
    """An elementwise function of traced floats of one type and shape, where scalars may meet Python's numbers; with few steps,
    since a program may be made of very many of them. None if it is anything else, for which all rules have to be asked."""
    op = _QUICK.get(name)
    if op is None:
        return None
    trace = active()
    kind: Any = None
    number = False
    for x in args:
        if type(x) is not Array:
            if type(x) is not float:
                return None
            number = True
            continue
        elif x.context is not trace or x._value is None or x.alias is not None or x._known is not None or x.weak:
            return None
        if kind is None:
            kind = x._value.type
        if (kind is not x._value.type and kind != x._value.type) or (x.region is not None and x.region.closed):
            return None
    if kind is None or kind.dtype.kind != "f" or (number and kind is not SCALAR and kind != SCALAR):
        return None
    assert trace is not None
    b = trace.here()
    values: list[Any] = [x._value if type(x) is Array else b.const(x) for x in args]
    (value,) = b.emit(op, values)
    return Array(trace, value, contiguous=not kind.shape or len(kind.shape) == 1)


# -- elementwise ops ------------------------------------------------------------------------------------------------
def elementwise(op: str, *operands: Any, floats: bool = False, weak: bool = False, **attrs: Any) -> Array:
    """An elementwise op of operands brought to one type and shape. ``floats``: integers become floats first.

    ``weak``: the result of weak numbers is weak (operators on Python numbers; functions of NumPy give strong ones).
    """
    arrays = [wrap(x) for x in operands]
    trace = arrays[0].context
    trace.here()
    dtype = (float_dtype if floats else result_dtype)(arrays)
    values = broadcast(trace, [cast(a, dtype) for a in arrays])
    value = getattr(trace.builder, op)(*values, **attrs)
    # of more axes the layout is that of the operands, which is not known here
    return Array(trace, value, weak=weak and all(a.weak for a in arrays), contiguous=value.type.rank <= 1)
