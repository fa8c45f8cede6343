"""Small static arrays taken apart into scalars, loop parameters and tapes included; see Note [Taking arrays apart] for which.

It comes last before code generation and changes no result: parameters and results of the function keep their types. Only
functions with loops or branches are looked at. In straight-line code the loop level unrolls small nests by itself; what it
cannot do is to carry elements from trip to trip in registers.

An array that stays whole is the same Value as before. The elements of one that does not, and those of a whole array that are
wanted one by one, are made where the array is defined, outside of the loops that use them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core import Block, Builder, Func, Instr, Value
from pullback.ir.ops.base import Decompose
from pullback.ir.types import StackType, Type, i64
from pullback.passes.apart import Plan, elements, index_operands
from pullback.passes.dce import dce
from pullback.passes.elements import assembled, element, handler
from pullback.passes.rewrite import rewrite


def scalarize(func: Func) -> Func:
    """``func`` with small arrays as scalars where that pays."""
    if not any(instr.blocks for instr in func.body):
        return func
    func = rewrite(func, _decompose)
    plan = Plan(func)
    if plan.idle:
        return func
    return dce(_Scalarizer(func, plan).run())


def _decompose(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
    """Ops that are defined by others, such as ``norm``."""
    lower = instr.op.lower
    return (lower.build(b, instr),) if isinstance(lower, Decompose) and elements(instr.args[0].type) else None


class _Body(Builder):
    """A builder that can add to what it has made already: where a value is defined."""

    def __init__(self, parent: Builder | None):
        super().__init__(parent)
        self.later: list[tuple[int, list[Instr]]] = []

    def merged(self) -> list[Instr]:
        if not self.later:
            return self.body
        merged: list[Instr] = []
        done = 0
        for place, instrs in sorted(self.later, key=lambda later: later[0]):
            merged += self.body[done:place]
            merged += instrs
            done = place
        return merged + self.body[done:]


class _Scalarizer:
    def __init__(self, func: Func, plan: Plan):
        self.func = func
        self.plan = plan
        self.new: dict[Value, Value] = {}  # scalars under another name, and arrays made of their elements
        self.parts: dict[Value, list[Value]] = {}  # arrays and tapes that are apart
        self.single: dict[tuple[Value, int], Value] = {}  # elements of whole arrays
        self.place: dict[Value, tuple[_Body, int]] = {}  # where an array is defined

    def run(self) -> Func:
        b = _Body(None)
        self.define(b, self.func.params)
        block = self.block(b, self.func.block, self.func.params, (False,) * len(self.func.results))
        kept = tuple((name, self.new.get(v, v)) for name, v in self.func.names if v not in self.parts or v in self.new)
        return Func(self.func.name, block, kept)

    def define(self, b: _Body, values: Sequence[Value]) -> None:
        for value in values:
            if self.plan.size(value):
                self.place[value] = (b, len(b.body))

    # -- reading what was made ----------------------------------------------------------------------------------------
    def whole(self, value: Value) -> Value:
        """The value as one: an array that is apart is put together where it is defined, once."""
        found = self.new.get(value)
        if found is not None:
            return found
        parts = self.parts.get(value)
        if parts is None:
            return value
        b = self._at(value)
        found = self.new[value] = assembled(b, parts, value.type)
        return found

    def elements(self, b: Builder, value: Value) -> list[Value]:
        """The value's elements; ``b`` is where they are wanted."""
        found = self.parts.get(value)
        if found is not None:
            return found
        if not value.type.rank:
            return [self.new.get(value, value)]
        source = self.plan.sources.get(value)
        count = self.plan.size(value)
        if source is None:
            return [self.element(value, k) for k in range(count)]
        if source.args:
            return [self.whole(source.args[0])] * count
        array = source.attrs["value"].ravel() if source.op.name == "const" else range(count)
        return [b.const(number, value.type.dtype) for number in array]

    def element(self, value: Value, place: int) -> Value:
        found = self.single.get((value, place))
        if found is None:
            found = self.single[value, place] = element(self._at(value), value, place)
        return found

    def _at(self, value: Value) -> Builder:
        """A builder whose instructions land right after the definition of ``value``."""
        body, index = self.place[value]
        b = Builder(loc=body.body[index - 1].loc if index else body.loc)
        body.later.append((index, b.body))
        return b

    # -- blocks -------------------------------------------------------------------------------------------------------
    def block(self, b: _Body, block: Block, params: Sequence[Value], apart: Sequence[bool]) -> Block:
        """``apart``: whether the block's result at each place is wanted as elements."""
        for instr in block.body[:-1]:
            b.loc = instr.loc
            if instr.blocks:
                self.control(b, instr)
            else:
                self.instr(b, instr)
        end = block.body[-1]
        b.loc = end.loc
        results = self.listed(b, end.args, apart)
        b.body = b.merged()
        return Block(tuple(params), (*b.body, Instr(end.op, (), tuple(results), end.attrs, (), end.loc)))

    def listed(self, b: _Body, values: Sequence[Value], apart: Sequence[bool]) -> list[Value]:
        found: list[Value] = []
        for value, split in zip(values, apart, strict=True):
            if split:
                found += self.elements(b, value)
            else:
                found.append(self.whole(value))
        return found

    def named(self, values: Sequence[Value], apart: Sequence[bool]) -> list[Value]:
        """New scalars for those that are apart; the others as they are."""
        found: list[Value] = []
        for value, split in zip(values, apart, strict=True):
            if split:
                stack = isinstance(value.type, StackType)
                scalar = Type(value.type.element.dtype if stack else value.type.dtype)
                kind = StackType(scalar) if stack else scalar
                parts = [Value(f"{value.name}_{k}" if value.name else "", kind) for k in range(self.plan.size(value))]
                self.parts[value] = parts
                found += parts
            else:
                found.append(value)
        return found

    def control(self, b: _Body, instr: Instr) -> None:
        apart = [self.plan.apart(out) for out in instr.outs]
        own = (False,) * (len(instr.args) - len(instr.outs) if instr.op.name != "if" else 1)  # the bound; the condition
        wanted = [*own, *(() if instr.op.name == "if" else apart)]
        args = self.listed(b, instr.args, wanted)
        blocks = []
        for block in instr.blocks:
            inner = _Body(b)
            inner.loc = instr.loc
            params = self.named(block.params, ([False] if instr.op.name == "for" else []) + apart if block.params else ())
            self.define(inner, block.params)
            last = block is instr.blocks[-1] or instr.op.name == "if"
            blocks.append(self.block(inner, block, params, apart if last else (False,)))
        outs = self.named(instr.outs, apart)
        b.body.append(Instr(instr.op, tuple(outs), tuple(args), instr.attrs, tuple(blocks), instr.loc))
        self.define(b, instr.outs)

    # -- instructions -------------------------------------------------------------------------------------------------
    def instr(self, b: _Body, instr: Instr) -> None:
        kind = self.plan.kinds.get(instr)
        if instr.op.name == "check_index" and instr.outs[0] in self.plan.known:  # within bounds
            self.new[instr.outs[0]] = b.const(self.plan.known[instr.outs[0]], i64)
        elif kind == "tape" and self.plan.apart(next(v for v in (*instr.args, *instr.outs) if isinstance(v.type, StackType))):
            self.tape(b, instr)
        elif kind == "apart" and self.pays(instr):
            self.take_apart(b, instr)
        elif kind == "view" and self.plan.apart(instr.outs[0]):
            self.parts[instr.outs[0]] = self.viewed(b, instr)
            self.define(b, instr.outs)
        else:
            args = tuple([self.whole(a) for a in instr.args])
            b.body.append(instr if args == instr.args else Instr(instr.op, instr.outs, args, instr.attrs, (), instr.loc))
            self.define(b, instr.outs)

    def pays(self, instr: Instr) -> bool:
        """Whether the result is made from elements: if it is apart; and if it is wanted whole where that stores and loads no
        more than putting the operands together would."""
        (out,) = instr.outs
        if self.plan.apart(out):
            return True
        stored = moved = 0
        for arg in dict.fromkeys(instr.args):
            if arg in self.parts:
                stored += self.plan.size(arg)
            elif arg not in self.plan.sources:
                moved += self.plan.size(arg)
        return stored > 0 and (not out.type.rank or moved + self.plan.size(out) <= stored)

    def take_apart(self, b: _Body, instr: Instr) -> None:
        (out,) = instr.outs
        indices = index_operands(instr)
        known: list[Any] = [self.plan.known[a] if k in indices else None for k, a in enumerate(instr.args)]
        if instr.op.name == "slice" and instr.args[0] not in self.parts and instr.args[0] not in self.plan.sources:
            parts = self.viewed(b, instr)  # only these elements are read
        else:
            read = [self.elements(b, a) if number is None else () for a, number in zip(instr.args, known, strict=True)]
            make = handler(instr.op)
            assert make is not None
            parts = make(b, instr, read, known)
        if out.type.rank:
            self.parts[out] = parts
            self.define(b, instr.outs)
        else:
            (self.new[out],) = parts
            parts[0].name = parts[0].name or out.name

    def viewed(self, b: _Body, instr: Instr) -> list[Value]:
        """A slice or a gather of a whole array, element by element."""
        shape = instr.outs[0].type.shape
        found: list[Value] = []
        if instr.op.name == "slice":
            x, attrs = self.whole(instr.args[0]), instr.attrs
            ones = (1,) * len(shape)
            for place in np.ndindex(shape):
                starts = tuple(s + k * step for s, k, step in zip(attrs["starts"], place, attrs["steps"], strict=True))
                found.append(b.reshape(b.slice(x, starts=starts, sizes=ones, steps=ones), shape=()))
            return found
        x = self.whole(instr.args[0])
        rank = instr.args[1].type.rank
        indices = [self.elements(b, a) for a in instr.args[1:]]
        for number, place in enumerate(np.ndindex(shape)):
            row = number // max(1, math.prod(shape[rank:]))
            found.append(b.gather(x, *(i[row] for i in indices), *(b.const(k, i64) for k in place[rank:])))
        return found

    def tape(self, b: _Body, instr: Instr) -> None:
        """A tape of arrays as one tape for each element."""
        outs = self.named(instr.outs, [self.plan.apart(out) for out in instr.outs])
        count = self.plan.size(instr.outs[0])
        columns = [self.elements(b, a) if self.plan.size(a) else [self.whole(a)] * count for a in instr.args]
        if instr.op.name == "stack.pop" and len(outs) == count + 1:  # the element is wanted whole
            self.parts[instr.outs[1]] = [Value("", instr.outs[1].type.with_shape(())) for _ in range(count)]
            outs = [*outs[:count], *self.parts[instr.outs[1]]]
        attrs = {"element": outs[0].type.element} if instr.op.name == "stack.new" else instr.attrs
        for k in range(count):
            b.body.append(Instr(instr.op, tuple(outs[k::count]), tuple(c[k] for c in columns), attrs, (), instr.loc))
        self.define(b, instr.outs)
