"""Which values carry a derivative: those that depend on the inputs, and those on which what is seeded depends.

Both are reachability in one graph, whose arrows go from each value to those that move with it. Through a loop a value gets to
the parameter of the next trip, through the tape at what is popped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pullback.ir.core import Block, Func, Instr, Value, walk
from pullback.ir.ops.base import Elementwise, Plain
from pullback.ir.types import StackType


class Activity:
    """``active``: moves with ``wrt``. ``useful``: moves something in ``seeded``."""

    def __init__(self, func: Func, wrt: Iterable[Value], seeded: Iterable[Value]):
        after: dict[Value, list[Value]] = {}
        before: dict[Value, list[Value]] = {}
        for instr in walk(func.block):
            if isinstance(instr.op, Elementwise):  # most instructions
                (target,) = instr.outs
                if differentiable(target):
                    sources = [arg for arg in instr.args if differentiable(arg)]
                    before[target] = sources
                    for source in sources:
                        if source in after:
                            after[source].append(target)
                        else:
                            after[source] = [target]
                continue
            for source, target in _arrows(instr):
                if differentiable(source) and differentiable(target):
                    after.setdefault(source, []).append(target)
                    before.setdefault(target, []).append(source)
        self.active = _reached([v for v in wrt if differentiable(v)], after)
        self.useful = _reached([v for v in seeded if differentiable(v)], before)


def differentiable(value: Value) -> bool:
    kind = value.type.element if isinstance(value.type, StackType) else value.type
    found: bool = kind.dtype.kind == "f"
    return found


def _arrows(instr: Instr) -> Iterator[tuple[Value, Value]]:
    name = instr.op.name
    if name == "if":
        for block in instr.blocks:
            yield from zip(block.results, instr.outs, strict=True)
    elif instr.blocks:
        for init, params, result, out in carried(instr):
            yield from ((init, out), (result, out))
            yield from ((source, param) for param in params for source in (init, result))
    elif not isinstance(instr.op, Plain) or name in ("stack.push", "stack.pop"):
        yield from ((arg, out) for arg in instr.args for out in instr.outs)


def carried(loop: Instr) -> list[tuple[Value, tuple[Value, ...], Value, Value]]:
    """(initial value, parameters of the blocks, what the body yields, result) of each value that a loop carries."""
    count = len(loop.outs)
    inits = loop.args[len(loop.args) - count :]
    params = zip(*(_last(block, count) for block in loop.blocks), strict=True)
    return list(zip(inits, params, loop.blocks[-1].results, loop.outs, strict=True))


def _last(block: Block, count: int) -> tuple[Value, ...]:
    return block.params[len(block.params) - count :]


def _reached(start: Iterable[Value], arrows: dict[Value, list[Value]]) -> set[Value]:
    found: set[Value] = set()
    pending = list(start)
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending.extend(arrows.get(value, ()))
    return found
