"""From a scheduled Func to a Program: each stage's scalars, nests and single steps become statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core import Func, Instr, Value
from pullback.ir.dims import Size, product, symbols
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, Fold, Op, Update
from pullback.ir.ops.reduce import kept_axes
from pullback.ir.types import FROM_NUMPY, DType, Type, bool_, i64
from pullback.loops.buffers import assign_regions, drop_unread
from pullback.loops.expand import expand
from pullback.loops.nest import (
    Accumulator,
    Buffer,
    Call,
    Define,
    Fail,
    Loop,
    Message,
    Node,
    Operand,
    Program,
    Statement,
    Store,
)
from pullback.loops.order import loop_order
from pullback.loops.reader import Flat, Reader, flattens
from pullback.loops.scalars import Scalars
from pullback.loops.schedule import Root, Schedule, schedule
from pullback.loops.strides import strided
from pullback.loops.unroll import fold_op, fold_start, is_primitive, is_small, unroll_nest, unroll_update, update_op


def lower(func: Func) -> Program:
    """The loop nests of a straight-line function."""
    func = expand(func)
    return Lowering(func, schedule(func)).run()


class Lowering:
    def __init__(self, func: Func, plan: Schedule):
        self.func = func
        self.plan = plan
        self.body: list[Statement] = []
        self.scalars = Scalars(self.body)
        self.known: dict[Value, Node] = {}  # rank-0 values
        self.messages: list[Message] = []
        self.constants: dict[Any, Buffer] = {}
        self.buffers: dict[Value, Buffer] = {}
        self.copies: dict[int, Buffer] = {}  # results that need a buffer of their own
        self.defined: dict[str, Size] = {}
        self._place_params()
        self._place_values()

    # -- buffers ---------------------------------------------------------------------------------------------------
    def _place_params(self) -> None:
        for k, param in enumerate(self.func.params):
            if param.type.rank:
                self.buffers[param] = Buffer(param.type, "input", k, name=param.name)
            else:
                node = Node("param", param.type.dtype, (), k)
                self.known[param] = node
                self.body.append(node)

    def _place_values(self) -> None:
        """Buffers of stored values. The results of in-place updates share the buffer of the first version."""
        outputs: dict[Value, int] = {}
        for k, value in enumerate(self.func.results):
            if value.type.rank:
                if value in outputs or value not in self.plan.materialized or value in self.func.params:
                    self.copies[k] = Buffer(value.type, "output", k)
                else:
                    outputs[value] = k
        first: dict[Value, Value] = {}  # a version -> the version that its buffer was made for
        ends: dict[Value, int] = {}  # such a first version -> the result that the buffer is in the end
        for instr in self.func.body[:-1]:
            for out in instr.outs:
                if out in self.plan.materialized and instr in self.plan.kinds:
                    inplace = self.plan.kinds[instr] == "update" and instr not in self.plan.fresh
                    first[out] = first[instr.args[0]] if inplace else out
                    if out in outputs:
                        ends[first[out]] = outputs[out]
        made: dict[Value, Buffer] = {}
        for value, origin in first.items():
            if origin not in made:
                number = ends.get(origin)
                place, number = ("work", len(made)) if number is None else ("output", number)
                made[origin] = Buffer(origin.type, place, number, name=origin.name)
            self.buffers[value] = made[origin]

    def _constant(self, array: np.ndarray[Any, Any]) -> Buffer:
        key = (array.dtype, array.shape, array.tobytes())
        found = self.constants.get(key)
        if found is None:
            kind = Type(FROM_NUMPY[array.dtype], array.shape)
            found = self.constants[key] = Buffer(kind, "const", len(self.constants), data=array)
        return found

    def _message(self, instr: Instr, error: str, text: str) -> int:
        self.messages.append(Message(error, text, instr.loc))
        return len(self.messages) - 1

    def reader(self) -> Reader:
        return Reader(self.scalars, self.plan.defs, self.buffers, self.known, self._message, self._constant)

    # -- the whole -------------------------------------------------------------------------------------------------
    def run(self) -> Program:
        for stage in self.plan.stages:
            for instr in stage.scalars:
                self._scalar(instr)
            for domain, roots in stage.nests.items():
                self._nest(domain, roots)
            for instr in stage.singles:
                getattr(self, f"_{self.plan.kinds[instr]}")(instr)
                self.scalars.leave_nest()
        results: list[Buffer | Node] = []
        for k, value in enumerate(self.func.results):
            results.append(self.known[value] if not value.type.rank else self.copies.get(k) or self.buffers[value])
        shapes = [p.type.shape for p in self.func.params]
        program = Program(
            self.func.name,
            self.func.params,
            self.body,
            results,
            tuple(v.type for v in self.func.results),
            self.messages,
            tuple(sorted(symbols(size for shape in shapes for size in shape))),
            self.defined,
        )
        drop_unread(program)
        assign_regions(program)
        return program

    def _scalar(self, instr: Instr) -> None:
        if instr.op.name == "check":
            number = self._message(instr, "PullbackError", str(instr.attrs["message"]).replace("{", "{{").replace("}", "}}"))
            self.body.append(Fail(self.known[instr.args[0]], number))
        elif instr.op.name == "match":
            self._match(instr)
        elif isinstance(instr.op, Elementwise):
            self.known[instr.out] = self.scalars.op(instr.op, tuple([self.known[a] for a in instr.args]), instr.attrs)
        elif isinstance(instr.op.lower, Fold):
            self.known[instr.out] = self.known[instr.args[0]]
        else:
            reader, element = self.reader(), instr.op.lower.element  # type: ignore[union-attr]  # the rest are Pull
            self.known[instr.out] = reader.demand(lambda: element(reader, instr, ()))

    def _match(self, instr: Instr) -> None:
        for got, expected in zip(instr.args[0].type.shape, instr.attrs["shape"], strict=True):
            if got != expected:
                s = self.scalars
                text = "operands could not be broadcast together with shapes: an axis of length {0} meets one of length {1}"
                values = (s.size(got), s.size(expected))
                self.body.append(Fail(s.raw("icmp eq", bool_, *values), self._message(instr, "ShapeError", text), values))

    # -- nests -----------------------------------------------------------------------------------------------------
    def _nest(self, domain: tuple[Size, ...], roots: Sequence[Root]) -> None:
        own = frozenset(r.value for r in roots if r.kind == "store")
        if is_small(domain):
            unroll_nest(self, domain, roots, own)
            return
        flat = len(domain) > 1 and all(self._flattens(r, own) for r in roots)
        order = tuple(range(len(domain)))
        if len(domain) > 1 and not flat:
            mark = self.scalars.mark()
            trial = _NestBuilder(self, domain, roots, own, order)
            trial.values()
            order = loop_order(domain, trial.loops, self.scalars.loads(), roots)
            self.scalars.rollback(mark)
        for root in roots:
            if root.kind == "fold" and not flat and self._in_memory(root, domain, order):
                assert root.instr is not None
                self._fill(self.buffers[root.instr.out], fold_start(root.instr))
        _NestBuilder(self, domain, roots, own, order, flat).build()

    def _flattens(self, root: Root, own: frozenset[Value]) -> bool:
        if root.kind == "part" or (root.kind == "fold" and root.instr is not None and root.instr.out.type.rank):
            return False
        return flattens(root.value, self.plan.defs, lambda v: v in self.buffers and v not in own)

    def place(self, root: Root, index: Sequence[Node], reader: Reader) -> tuple[Buffer, Node]:
        """The buffer and the position at which a root that stores puts the element at ``index``."""
        shape = root.value.type.shape
        if root.kind == "copy":
            return self.copies[root.number], reader.position(shape, index)
        if root.kind == "store":
            return self.buffers[root.value], reader.position(shape, index)
        assert root.instr is not None
        buffer = self.buffers[root.instr.out]
        if root.kind == "part":
            axis = root.instr.attrs["axis"]
            start: Size = 0
            for arg in root.instr.args[: root.number]:
                start = start + arg.type.shape[axis]
            s = self.scalars
            index = [s.add(s.size(start), i) if k == axis else i for k, i in enumerate(index)]
            shape = root.instr.out.type.shape
        return buffer, reader.position(shape, index)

    @staticmethod
    def _in_memory(root: Root, domain: tuple[Size, ...], order: tuple[int, ...]) -> bool:
        """Whether a reduction has to accumulate in its result's buffer: some kept axis is inside a reduced one."""
        assert root.instr is not None
        reduced = [a in root.instr.attrs["axes"] for a in order if domain[a] != 1]
        return reduced != sorted(reduced)

    def _fill(self, buffer: Buffer, start: Any) -> None:
        loop = _open(buffer.type.size, None, "fill")
        value = self.scalars.const(start, buffer.type.dtype)
        assert loop.index is not None
        loop.body.append(Store(buffer, loop.index, value))
        self.body.append(loop)

    def loops(self, shape: Sequence[Size], note: str = "", parent: Loop | None = None) -> tuple[list[Loop], list[Node]]:
        """Nested loops over a shape, the first outermost, and an index; axes of size 1 have no loop."""
        loops: list[Loop] = []
        index: list[Node] = []
        for size in shape:
            if size == 1:
                index.append(self.scalars.integer(0))
                continue
            parent = _open(size, parent, note)
            loops.append(parent)
            assert parent.index is not None
            index.append(parent.index)
        return loops, index

    def close(self, loops: Sequence[Loop]) -> None:
        for loop in reversed(loops):
            (loop.parent.body if loop.parent else self.body).append(loop)

    def inner(self, loops: Sequence[Loop]) -> list[Statement]:
        return loops[-1].body if loops else self.body

    # -- single steps ----------------------------------------------------------------------------------------------
    def _update(self, instr: Instr) -> None:
        lowering = instr.op.lower
        assert isinstance(lowering, Update)
        target, operand, buffer = instr.args[0], instr.args[-1], self.buffers[instr.out]
        if is_small(operand.type.shape):
            unroll_update(self, instr, lowering)
            return
        reader = self.reader()
        loops, index = self.loops(operand.type.shape, instr.op.name)
        value = reader.element(operand, index)
        place = reader.demand(lambda: lowering.target(reader, instr, index))
        combine = update_op(lowering, target.type.dtype)
        position = reader.position(target.type.shape, place)
        self.inner(loops).append(Store(buffer, position, value, combine))
        self.close(loops)

    def _checked(self, instr: Instr) -> None:
        reader = self.reader()
        loops, index = self.loops(instr.out.type.shape, "check_index")
        value = reader.element(instr.args[0], index)
        wrapped = reader.checked(value, instr)
        self.inner(loops).append(Store(self.buffers[instr.out], reader.position(instr.out.type.shape, index), wrapped))
        self.close(loops)

    def _scan(self, instr: Instr) -> None:
        """``s = a*s + b`` (or ``s + x``) along the last axis."""
        s, reader, shape = self.scalars, self.reader(), instr.out.type.shape
        outer, index = self.loops(shape[:-1], instr.op.name)
        loop = _open(shape[-1], outer[-1] if outer else None, instr.op.name)
        assert loop.index is not None
        at = s.sub(s.size(shape[-1] - 1), loop.index) if instr.attrs["reverse"] else loop.index
        index = [*index, at]
        carried = _carry(loop, s.const(-0.0 if instr.out.type.is_float else 0, instr.out.type.dtype))
        if instr.op.name == "cumsum":
            value = s.op(OPS["add"], (carried.current, reader.element(instr.args[0], index)))
        else:
            a, b = (reader.element(arg, index) for arg in instr.args)
            step = s.op(OPS["add"], (s.op(OPS["mul"], (a, carried.current)), b))
            first = s.raw("icmp eq", bool_, loop.index, s.integer(0))  # a's first element is not read
            value = s.raw("select", value_type(instr), first, b, step)
        carried.value = value
        loop.body.append(Store(self.buffers[instr.out], reader.position(shape, index), value))
        self.close([*outer, loop])

    def _arg(self, instr: Instr) -> None:
        """The first position of the extremum; the first NaN wins over everything."""
        s, reader, (x,), axis = self.scalars, self.reader(), instr.args, instr.attrs["axis"]
        shape = x.type.shape
        outer, index = self.loops(instr.out.type.shape, instr.op.name)
        parent = outer[-1] if outer else None
        loop = _open(shape[axis], parent, instr.op.name)
        assert loop.index is not None
        best = _carry(loop, s.const(0, x.type.dtype))
        where = _carry(loop, s.integer(0))
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
        (loop.parent.body if loop.parent else self.body).append(loop)
        if instr.out.type.rank:
            position = reader.position(instr.out.type.shape, index)
            self.inner(outer).append(Store(self.buffers[instr.out], position, where.total))
        else:
            self.known[instr.out] = where.total
        self.close(outer)

    def _nonzero(self, instr: Instr) -> None:
        """Every position is stored at the count so far, which moves on only if the mask holds."""
        s, reader, (mask,) = self.scalars, self.reader(), instr.args
        loop = _open(mask.type.shape[0], None, instr.op.name)
        assert loop.index is not None
        count = _carry(loop, s.integer(0))
        holds = reader.element(mask, [loop.index])
        count.value = s.raw("add", i64, count.current, s.raw("zext", i64, holds))
        loop.body.append(Store(self.buffers[instr.out], count.current, loop.index))
        self.body.append(loop)
        symbol = instr.attrs["symbol"]
        self.body.append(Define(symbol, count.total))
        self.defined[symbol] = mask.type.shape[0]

    def _sort(self, instr: Instr) -> None:
        shape = instr.out.type.shape
        buffer = self.buffers[instr.args[0]] if instr.args[0] in self.buffers else self._constant(self._array(instr.args[0]))
        spare = Buffer(Type(i64, shape[-1:]), "work", -1)
        operands = (Operand(buffer, 0, ()), Operand(spare, 0, ()))
        self.body.append(Call("argsort", self.buffers[instr.out], operands, (product(shape[:-1]), shape[-1])))

    def _array(self, value: Value) -> np.ndarray[Any, Any]:
        array: np.ndarray[Any, Any] = self.plan.defs[value].attrs["value"]
        return array

    def _gemm(self, instr: Instr) -> None:
        operands = []
        for arg in instr.args:
            form = strided(arg, self.plan.defs, lambda v: v in self.buffers, blas=True)
            assert form is not None, "the schedule stores what has no strides"
            operands.append(Operand(self.buffers[form.base], form.offset, form.strides))
        x, y = (a.type.shape for a in instr.args)
        batch: Size = x[0] if len(x) == 3 else 1
        self.body.append(Call("gemm", self.buffers[instr.out], tuple(operands), (batch, x[-2], x[-1], y[-1])))


class _NestBuilder:
    """One nest with all its stores and reductions."""

    def __init__(
        self,
        lowering: Lowering,
        domain: tuple[Size, ...],
        roots: Sequence[Root],
        own: frozenset[Value],
        order: tuple[int, ...],
        flat: bool = False,
    ):
        self.lowering = lowering
        self.scalars = lowering.scalars
        self.roots = roots
        self.reader = lowering.reader()
        index: Sequence[Node]
        if flat:
            self.axes: list[int] = []
            self.loops, index = lowering.loops((product(domain),))
            index = Flat(index)
        else:
            self.axes = [a for a in order if domain[a] != 1]
            self.loops, found = lowering.loops([domain[a] for a in order])
            index = tuple(found[order.index(a)] for a in range(len(domain)))
        self.flat = flat
        self.index = index
        self.reader.own, self.reader.own_index = own, tuple(index)
        if flat:
            self.reader.own_index = Flat(index)

    def values(self) -> list[Node]:
        return [self.reader.element(root.value, self.index) for root in self.roots]

    def build(self) -> None:
        folds: list[tuple[Root, Node]] = []
        for root, value in zip(self.roots, self.values(), strict=True):
            if root.kind == "fold":
                folds.append((root, value))
            else:
                self._store(root, value)
        self._close(folds)
        self.scalars.leave_nest()

    def _store(self, root: Root, value: Node) -> None:
        lowering = self.lowering
        buffer, position = lowering.place(root, self.index, self.reader)
        if self.loops and root.kind in ("copy", "init") and self._copies(root):
            self.loops[0].note = "copy"
        lowering.inner(self.loops).append(Store(buffer, position, value))

    def _copies(self, root: Root) -> bool:
        """Whether a store only moves what another buffer holds."""
        return root.value in self.lowering.buffers and root.value not in self.reader.own

    def _close(self, folds: list[tuple[Root, Node]]) -> None:
        """Close the loops from the inside; a reduction stays in a register as long as the loops are reduced ones."""
        lowering = self.lowering
        current = dict(enumerate(value for _, value in folds))
        for k in range(len(self.loops) - 1, -1, -1):
            loop = self.loops[k]
            for number in list(current):
                root, _ = folds[number]
                assert root.instr is not None
                if self.flat or self.axes[k] in root.instr.attrs["axes"]:
                    current[number] = self._accumulate(loop, root.instr, current[number])
                else:
                    outer = [a for a in self.axes[:k] if a in root.instr.attrs["axes"]]
                    self._finish(root.instr, current.pop(number), loop, bool(outer))
            (loop.parent.body if loop.parent else lowering.body).append(loop)
        for number, node in current.items():
            instr = folds[number][0].instr
            assert instr is not None
            self._finish(instr, node, None, False)

    def _accumulate(self, loop: Loop, instr: Instr, value: Node) -> Node:
        combine, start = fold_op(instr), self.scalars.const(fold_start(instr), instr.out.type.dtype)
        if is_primitive(combine):
            carried = _carry(loop, start, combine)
            carried.value = value
        else:  # written out
            carried = _carry(loop, start)
            carried.value = self.scalars.op(combine, (carried.current, value))
        return carried.total

    def _finish(self, instr: Instr, node: Node, scope: Loop | None, partial: bool) -> None:
        """Keep a reduction's value; ``partial``: combine it with what outer loops have accumulated in the buffer."""
        if not instr.out.type.rank:
            self.lowering.known[instr.out] = node
            return
        body = scope.body if scope else self.lowering.body
        buffer, combine = self.lowering.buffers[instr.out], fold_op(instr)
        kept = kept_axes(instr.args[0].type.rank, instr.attrs["axes"])
        position = self.reader.position(instr.out.type.shape, [self.index[a] for a in kept])
        if partial and not is_primitive(combine):
            old = Node("load", instr.out.type.dtype, (position,), buffer, scope)
            body.append(old)
            node, partial = self.scalars.op(combine, (old, node)), False
        body.append(Store(buffer, position, node, combine if partial else None))


def _open(size: Size, parent: Loop | None, note: str) -> Loop:
    loop = Loop(size, parent, note=note)
    loop.index = Node("index", i64, (), loop, loop)
    return loop


def _carry(loop: Loop, start: Node, combine: Op | None = None) -> Accumulator:
    dtype = start.dtype
    carried = Accumulator(combine, start, Node("current", dtype, (), None, loop), Node("total", dtype, (), None, loop.parent))
    carried.current.data = carried.total.data = carried
    loop.accumulators.append(carried)
    return carried


def value_type(instr: Instr) -> DType:
    found: DType = instr.out.type.dtype
    return found


__all__ = ["lower"]
