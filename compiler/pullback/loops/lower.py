"""From a scheduled Func to a Program: each stage's scalars, nests and single steps become statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core import Block, Func, Instr, Value
from pullback.ir.dims import Size, symbols
from pullback.ir.ops.base import Elementwise, Fold
from pullback.ir.types import FROM_NUMPY, StackType, Type, bool_, i64
from pullback.loops.bands import fuse
from pullback.loops.blocks import is_array, settle
from pullback.loops.buffers import assign_regions, drop_unread
from pullback.loops.chunks import share
from pullback.loops.control import SCALARS, control, give, push
from pullback.loops.expand import expand
from pullback.loops.nest import Buffer, Define, Fail, Loop, Message, Node, Program, Statement, Store, Tape
from pullback.loops.nests import NestBuilder
from pullback.loops.order import loop_order
from pullback.loops.places import Places
from pullback.loops.plan import Root, Schedule, updates
from pullback.loops.reader import Reader, flattens
from pullback.loops.scalars import Scalars
from pullback.loops.schedule import schedule
from pullback.loops.steps import arg, checked, gemm, library, nonzero, scan, sort, update
from pullback.loops.unroll import fold_start, is_small, unroll_nest

STEPS: Mapping[str, Callable[[Lowering, Instr], None]] = {
    "update": update,
    "gemm": gemm,
    "scan": scan,
    "arg": arg,
    "nonzero": nonzero,
    "sort": sort,
    "library": library,
    "checked": checked,
    "control": control,
    "push": push,
}


def lower(func: Func, parallel: bool = False) -> Program:
    """The program of a function; ``parallel``: with outermost loops that threads share."""
    func = settle(expand(func))
    return Lowering(func, schedule(func)).run(parallel)


class Lowering:
    """``known`` are scalars (and the heights of stacks) as nodes, ``starts`` where in its buffer an array begins, if not at 0,
    ``tapes`` the memory of stacks."""

    def __init__(self, func: Func, plan: Schedule):
        self.func = func
        self.plan = plan
        self.scalars = Scalars([])
        self.places = Places(func, plan)
        self.buffers = self.places.buffers
        self.known: dict[Value, Node] = {}
        self.starts: dict[Value, Node] = {}
        self.tapes: dict[Value, Tape] = {}
        self.messages: list[Message] = []
        self.constants: dict[Any, Buffer] = {}
        self.defined: dict[str, Size] = {}
        self.local: dict[str, Size] = {}
        self.block = func.block  # the one being lowered
        for k, param in enumerate(func.params):
            if not is_array(param):
                stack = isinstance(param.type, StackType)
                if stack:
                    self.tapes[param] = Tape(Buffer(param.type.element, "tape", len(self.tapes)), True, source=k)
                node = Node("param", i64 if stack else param.type.dtype, (), k)
                self.known[param] = node
                self.body.append(node)

    @property
    def body(self) -> list[Statement]:
        return self.scalars.body

    def constant(self, array: np.ndarray[Any, Any]) -> Buffer:
        key = (array.dtype, array.shape, array.tobytes())
        found = self.constants.get(key)
        if found is None:
            kind = Type(FROM_NUMPY[array.dtype], array.shape)
            found = self.constants[key] = Buffer(kind, "const", len(self.constants), data=array)
        return found

    def message(self, instr: Instr, error: str, text: str) -> int:
        self.messages.append(Message(error, text, instr.loc))
        return len(self.messages) - 1

    def reader(self) -> Reader:
        return Reader(self.scalars, self.plan.defs, self.buffers, self.known, self.starts, self.message, self.constant)

    # -- the whole -------------------------------------------------------------------------------------------------
    def run(self, parallel: bool = False) -> Program:
        body = self.body
        self.stages(self.func.block)
        for k in self.places.late:
            value = self.func.results[k]
            self._nest(value.type.shape, [Root("copy", value, None, k)])
        results: list[Buffer | Node] = []
        for k, value in enumerate(self.func.results):
            results.append(
                self.places.copies.get((self.func.block, k)) or self.buffers[value] if is_array(value) else self.known[value]
            )
            if value in self.tapes:
                give(self.tapes[value], k, self.func.name)
        shapes = [p.type.shape for p in self.func.params if is_array(p)]
        program = Program(
            self.func.name,
            self.func.params,
            body,
            results,
            tuple(v.type for v in self.func.results),
            self.messages,
            tuple(sorted(symbols(size for shape in shapes for size in shape))),
            self.defined,
            local=self.local,
            tapes=list(dict.fromkeys(self.tapes.values())),
        )
        drop_unread(program)
        fuse(program)
        if parallel:
            share(program, self.places.work)
        assign_regions(program, list(self.places.swaps.values()))
        return program

    def stages(self, block: Block) -> None:
        """The statements of a block, into the present region."""
        around, self.block = self.block, block
        for stage in self.plan.stages[block]:
            known, op = self.known, self.scalars.op
            for instr in stage.scalars:
                if isinstance(instr.op, Elementwise):  # there can be very many
                    known[instr.outs[0]] = op(instr.op, tuple([known[a] for a in instr.args]), instr.attrs)
                else:
                    self._scalar(instr)
            for domain, roots in stage.nests.items():
                self._nest(domain, roots)
            for instr in stage.singles:
                STEPS[self.plan.kinds[instr]](self, instr)
                self.scalars.leave_nest()
        self.block = around

    def define(self, symbol: str, value: Node, bound: Size) -> None:
        """A size that the data decide. In a block it is a node, elsewhere later statements find it in memory."""
        if self.scalars.region is None:
            self.body.append(Define(symbol, value))
            self.defined[symbol] = bound
        else:
            self.scalars.symbols[symbol] = value
            self.local[symbol] = bound

    def _scalar(self, instr: Instr) -> None:
        if instr.op.name in SCALARS:
            SCALARS[instr.op.name](self, instr)
        elif instr.op.name == "match":
            self._match(instr)
        elif isinstance(instr.op.lower, Fold):
            self.known[instr.out] = self.known[instr.args[0]]  # over no axes
        else:
            reader, element = self.reader(), instr.op.lower.element  # type: ignore[union-attr]  # the rest are Pull
            self.known[instr.out] = reader.demand(lambda: element(reader, instr, ()))

    def _match(self, instr: Instr) -> None:
        for got, expected in zip(instr.args[0].type.shape, instr.attrs["shape"], strict=True):
            if got != expected:
                s = self.scalars
                text = "operands could not be broadcast together with shapes: an axis of length {0} meets one of length {1}"
                values = (s.size(got), s.size(expected))
                self.body.append(Fail(s.raw("icmp eq", bool_, *values), self.message(instr, "ShapeError", text), values))

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
            trial = NestBuilder(self, domain, roots, own, order)
            trial.values()
            order = loop_order(domain, trial.loops, self.scalars.loads(), roots)
            self.scalars.rollback(mark)
        for root in roots:
            if root.kind == "fold" and not flat and self._in_memory(root, domain, order):
                assert root.instr is not None
                self._fill(self.buffers[root.instr.out], fold_start(root.instr))
        NestBuilder(self, domain, roots, own, order, flat).build()

    def _flattens(self, root: Root, own: frozenset[Value]) -> bool:
        if root.kind == "part" or (root.kind == "fold" and root.instr is not None and root.instr.out.type.rank):
            return False
        return flattens(root.value, self.plan.defs, lambda v: v in self.buffers and v not in own)

    def place(self, root: Root, index: Sequence[Node], reader: Reader) -> tuple[Buffer, Node]:
        """The buffer and the position at which a root that stores puts the element at ``index``."""
        shape = root.value.type.shape
        if root.kind == "copy":
            return self.places.copies[self.block, root.number], reader.position(shape, index)
        if root.kind == "init":
            assert root.instr is not None
            _, version = updates(root.instr, self.plan.kinds[root.instr])[root.number]
            return self.buffers[version], reader.position(shape, index)
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
        loop = self.open(buffer.type.size, None, "fill")
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
            parent = self.open(size, parent, note)
            loops.append(parent)
            assert parent.index is not None
            index.append(parent.index)
        return loops, index

    def open(self, size: Size, parent: Loop | None, note: str) -> Loop:
        extent = self.scalars.size(size)
        loop = Loop(extent.data if extent.kind in ("const", "size") else extent, parent or self.scalars.region, note=note)
        loop.index = Node("index", i64, (), loop, loop)
        return loop

    def close(self, loops: Sequence[Loop]) -> None:
        for loop in reversed(loops):
            (loop.parent.body if loop.parent else self.body).append(loop)

    def inner(self, loops: Sequence[Loop]) -> list[Statement]:
        return loops[-1].body if loops else self.body


__all__ = ["lower"]
