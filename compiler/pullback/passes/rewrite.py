"""Copying a function while replacing instructions: the frame of most passes.

An instruction whose arguments did not change and that nothing replaced is reused as it is, so an idle pass copies nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from pullback.ir.core import Block, Builder, Func, Instr, Value
from pullback.ir.ops import OPS
from pullback.ir.types import Type

# What an instruction becomes: its new results, or None to keep it. Arguments are already the new ones.
Rewrite: TypeAlias = "Callable[[Builder, Instr], tuple[Value, ...] | None]"


def rewrite(func: Func, rule: Rewrite) -> Func:
    """``func`` with every instruction offered to ``rule``, those of nested blocks before the one that carries them."""
    new: dict[Value, Value] = {}
    block = rewrite_block(func.block, rule, new, None)
    return Func(func.name, block, renamed(func.names, new))


def rewrite_block(block: Block, rule: Rewrite, new: dict[Value, Value], parent: Builder | None) -> Block:
    b = Builder(parent)
    for instr in block.body:
        old = instr
        if new or instr.blocks:
            args = tuple([new.get(a, a) for a in instr.args])
            blocks = tuple([rewrite_block(inner, rule, new, b) for inner in instr.blocks])
            if args != instr.args or blocks != instr.blocks:
                instr = Instr(instr.op, instr.outs, args, instr.attrs, blocks, instr.loc)
        b.loc = instr.loc
        outs = rule(b, instr)
        if outs is None:
            b.body.append(instr)
        else:
            new.update(zip(old.outs, outs, strict=True))
    return Block(block.params, tuple(b.body)) if changed(block, b.body) else block


def changed(block: Block, body: list[Instr]) -> bool:
    return len(body) != len(block.body) or not all(map(operator.is_, body, block.body))


def renamed(names: Iterable[tuple[str, Value]], new: Mapping[Value, Value]) -> tuple[tuple[str, Value], ...]:
    """The side table of names after values were replaced."""
    return tuple((name, new.get(value, value)) for name, value in names)


def with_results(func: Func, results: Iterable[Value]) -> Func:
    """The same body returning other values."""
    end = func.body[-1]
    last = Instr(OPS["return"], (), tuple(results), end.attrs, (), end.loc)
    return Func(func.name, Block(func.params, (*func.body[:-1], last)), func.names)


class Definitions(dict[Value, Instr]):
    """Where each value is made, for rules that look at how an operand came about."""

    def add(self, instrs: Iterable[Instr]) -> None:
        for instr in instrs:
            for out in instr.outs:
                self[out] = instr

    def op(self, value: Value, name: str) -> Instr | None:
        """The instruction that makes ``value`` if it is the op ``name``."""
        instr = self.get(value)
        return instr if instr is not None and instr.op.name == name else None

    def constant(self, value: Value) -> Any:
        """The number that every element of ``value`` is known to be, else None."""
        instr = self.get(value)
        while instr is not None and instr.op.name in ("broadcast", "reshape"):
            instr = self.get(instr.args[0])
        if instr is None or instr.op.name != "const":
            return None
        array = instr.attrs["value"]
        if array.size == 0 or (array.size > 1 and not np.all(array == array.flat[0])):
            return None
        return array.flat[0]


def type_of(value: Value) -> Type:
    """The array type of a value, for strict typing."""
    found: Type = value.type
    return found
