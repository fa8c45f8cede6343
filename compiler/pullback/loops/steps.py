"""Steps that are no part of a shared nest: updates, scans, searches, sorting, matrix products, pushes of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Size, product, symbols
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Routine, Update
from pullback.ir.types import Type, bool_, i64
from pullback.loops.nest import Call, Define, Operand, Store
from pullback.loops.nests import carry, value_type
from pullback.loops.strides import strided
from pullback.loops.unroll import is_small, unroll_update, update_op

if TYPE_CHECKING:
    from pullback.loops.lower import Lowering


def update(lowering: Lowering, instr: Instr) -> None:
    record = instr.op.lower
    assert isinstance(record, Update)
    target, operand, buffer = instr.args[0], instr.args[-1], lowering.buffers[instr.out]
    if is_small(operand.type.shape):
        unroll_update(lowering, instr, record)
        return
    reader = lowering.reader()
    loops, index = lowering.loops(operand.type.shape, instr.op.name)
    value = reader.element(operand, index)
    place = reader.demand(lambda: record.target(reader, instr, index))
    combine = update_op(record, target.type.dtype)
    position = reader.position(target.type.shape, place)
    lowering.inner(loops).append(Store(buffer, position, value, combine))
    lowering.close(loops)


def checked(lowering: Lowering, instr: Instr) -> None:
    reader = lowering.reader()
    loops, index = lowering.loops(instr.out.type.shape, "check_index")
    value = reader.element(instr.args[0], index)
    wrapped = reader.checked(value, instr)
    lowering.inner(loops).append(Store(lowering.buffers[instr.out], reader.position(instr.out.type.shape, index), wrapped))
    lowering.close(loops)


def scan(lowering: Lowering, instr: Instr) -> None:
    """``s = a*s + b`` (or ``s + x``) along the last axis."""
    s, reader, shape = lowering.scalars, lowering.reader(), instr.out.type.shape
    outer, index = lowering.loops(shape[:-1], instr.op.name)
    loop = lowering.open(shape[-1], outer[-1] if outer else None, instr.op.name)
    assert loop.index is not None
    at = s.sub(s.size(shape[-1] - 1), loop.index) if instr.attrs["reverse"] else loop.index
    index = [*index, at]
    carried = carry(loop, s.const(-0.0 if instr.out.type.is_float else 0, instr.out.type.dtype))
    if instr.op.name == "cumsum":
        value = s.op(OPS["add"], (carried.current, reader.element(instr.args[0], index)))
    else:
        a, b = (reader.element(arg, index) for arg in instr.args)
        step = s.op(OPS["add"], (s.op(OPS["mul"], (a, carried.current)), b))
        first = s.raw("icmp eq", bool_, loop.index, s.integer(0))  # a's first element is not read
        value = s.raw("select", value_type(instr), first, b, step)
    carried.value = value
    loop.body.append(Store(lowering.buffers[instr.out], reader.position(shape, index), value))
    lowering.close([*outer, loop])


def arg(lowering: Lowering, instr: Instr) -> None:
    """The first position of the extremum; the first NaN wins over everything."""
    s, reader, (x,), axis = lowering.scalars, lowering.reader(), instr.args, instr.attrs["axis"]
    shape = x.type.shape
    outer, index = lowering.loops(instr.out.type.shape, instr.op.name)
    parent = outer[-1] if outer else None
    loop = lowering.open(shape[axis], parent, instr.op.name)
    assert loop.index is not None
    best = carry(loop, s.const(0, x.type.dtype))
    where = carry(loop, s.integer(0))
    value = reader.element(x, [*index[:axis], loop.index, *index[axis:]])
    greater = instr.op.name == "argmax"
    first = s.raw("icmp eq", bool_, loop.index, s.integer(0))
    if x.type.dtype.kind == "f":  # unordered comparisons hold for NaN; a NaN found already stays
        better = s.raw("fcmp ugt" if greater else "fcmp ult", bool_, value, best.current)
        better = s.raw("and", bool_, better, s.raw("fcmp ord", bool_, best.current, best.current))
    else:
        better = s.raw("icmp sgt" if greater else "icmp slt", bool_, value, best.current)
    take = s.raw("or", bool_, better, first)
    best.value = s.raw("select", x.type.dtype, take, value, best.current)
    where.value = s.raw("select", i64, take, loop.index, where.current)
    (loop.parent.body if loop.parent else lowering.body).append(loop)
    if instr.out.type.rank:
        position = reader.position(instr.out.type.shape, index)
        lowering.inner(outer).append(Store(lowering.buffers[instr.out], position, where.total))
    else:
        lowering.known[instr.out] = where.total
    lowering.close(outer)


def nonzero(lowering: Lowering, instr: Instr) -> None:
    """Every position is stored at the count so far, which moves on only if the mask holds."""
    s, reader, (mask,) = lowering.scalars, lowering.reader(), instr.args
    loop = lowering.open(mask.type.shape[0], None, instr.op.name)
    assert loop.index is not None
    count = carry(loop, s.integer(0))
    holds = reader.element(mask, [loop.index])
    count.value = s.raw("add", i64, count.current, s.raw("zext", i64, holds))
    loop.body.append(Store(lowering.buffers[instr.out], count.current, loop.index))
    lowering.body.append(loop)
    lowering.define(instr.attrs["symbol"], count.total, mask.type.shape[0])


def sort(lowering: Lowering, instr: Instr) -> None:
    shape = instr.out.type.shape
    spare = lowering.places.work(Type(i64, shape[-1:]))
    operands = (_operand(lowering, instr.args[0]), Operand(spare, 0, ()))
    _call(lowering, Call("argsort", lowering.buffers[instr.out], operands, (product(shape[:-1]), shape[-1])))


def library(lowering: Lowering, instr: Instr) -> None:
    """A routine of LAPACK: it reads whole arrays and has memory to work in."""
    assert isinstance(instr.op.lower, Routine)
    last = instr.args[-1].type.shape
    work = instr.op.lower.work(instr) if instr.op.lower.work else ()
    operands = [_operand(lowering, a) for a in instr.args]
    operands += [Operand(lowering.places.work(kind), 0, ()) for kind in work]
    sizes = (product(last[:-2]), *last[-2:])
    _call(lowering, Call(instr.op.name, lowering.buffers[instr.out], tuple(operands), sizes, instr.attrs))


def _operand(lowering: Lowering, value: Value) -> Operand:
    """A whole array. One that is captured as a view of another has no memory and is copied."""
    if value in lowering.buffers:
        return Operand(lowering.buffers[value], 0, (), lowering.starts.get(value))
    instr = lowering.plan.defs[value]
    if instr.op.name == "const":
        return Operand(lowering.constant(instr.attrs["value"]), 0, ())
    copy, reader = lowering.places.work(value.type), lowering.reader()
    loops, index = lowering.loops(value.type.shape, "copy")
    element = reader.element(value, index)
    lowering.inner(loops).append(Store(copy, reader.position(value.type.shape, index), element))
    lowering.close(loops)
    return Operand(copy, 0, ())


def gemm(lowering: Lowering, instr: Instr) -> None:
    operands = []
    for arg in instr.args:
        form = strided(arg, lowering.plan.defs, lambda v: v in lowering.buffers, blas=True)
        assert form is not None, "the schedule stores what has no strides"
        start = lowering.starts.get(form.base)
        operands.append(Operand(lowering.buffers[form.base], form.offset, form.strides, start))
    x, y = (a.type.shape for a in instr.args)
    batch: Size = x[0] if len(x) == 3 else 1
    _call(lowering, Call("gemm", lowering.buffers[instr.out], tuple(operands), (batch, x[-2], x[-1], y[-1])))


def _call(lowering: Lowering, call: Call) -> None:
    """A routine reads sizes from memory: those that only this block knows are put there."""
    known = lowering.scalars.symbols
    if known:
        for symbol in sorted(symbols((*call.sizes, *(n for a in call.args for n in (a.offset, *a.strides)))) & known.keys()):
            lowering.body.append(Define(symbol, known[symbol]))
    lowering.body.append(call)
