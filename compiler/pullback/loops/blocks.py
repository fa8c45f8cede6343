"""Blocks before they are scheduled: what they use from outside, what a loop leaves alone, what a branch updates.

Note [Branches]
An ``if`` whose branches hand on an array from outside, updated or as it is, is written here like a loop that runs at most
once: the array becomes an operand after the condition and the branches get a parameter for it; ``slots`` says to which result
each operand belongs. So everything that is known about updates in loops holds for branches: the result takes over the operand's
memory if that version dies there, and a branch that hands the operand on costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pullback.ir.core import Block, Func, Instr, Value, sizes_in, symbol_of, walk
from pullback.ir.dims import symbols
from pullback.ir.ops.base import Update
from pullback.ir.types import Type


def is_array(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, Type) and bool(kind.shape)


def slots(instr: Instr) -> Iterator[tuple[int, int]]:
    """For each operand that an ``if`` or a loop hands into its blocks: its position, and the result that it becomes."""
    if instr.op.name == "if":
        yield from enumerate(instr.attrs.get("slots", ()), start=1)
    else:
        first = len(instr.args) - len(instr.outs)
        yield from ((first + k, k) for k in range(len(instr.outs)))


def param(instr: Instr, block: Block, position: int) -> Value:
    """A block's parameter for the operand at ``position``."""
    return block.params[position - len(instr.args) + len(block.params)]


class Uses:
    """What the instructions of a function use, blocks included; each is looked at once."""

    def __init__(self) -> None:
        self._captured: dict[Instr, tuple[Value, ...]] = {}
        self._effect: dict[Instr, bool] = {}

    def captured(self, instr: Instr) -> tuple[Value, ...]:
        """Values from outside that the blocks of ``instr`` use."""
        if not instr.blocks:
            return ()
        found = self._captured.get(instr)
        if found is None:
            used: dict[Value, None] = {}
            defined: set[Value] = set()
            for block in instr.blocks:
                defined.update(block.params)
                for inner in block.body:
                    used.update(dict.fromkeys(self.operands(inner)))
                    defined.update(inner.outs)
            found = self._captured[instr] = tuple([v for v in used if v not in defined])
        return found

    def operands(self, instr: Instr) -> tuple[Value, ...]:
        return instr.args + self.captured(instr) if instr.blocks else instr.args

    def effect(self, instr: Instr) -> bool:
        """Whether a check is inside."""
        found = self._effect.get(instr)
        if found is None:
            found = any(self.effect(i) if i.blocks else i.op.effect for b in instr.blocks for i in b.body[:-1])
            self._effect[instr] = found
        return found


def mentions(instr: Instr) -> frozenset[str]:
    """Symbols that an instruction or what is inside needs from elsewhere."""
    if not instr.blocks:
        return symbols(sizes_in(instr))
    inside = [i for block in instr.blocks for i in walk(block)]
    found = symbols(size for i in (instr, *inside) for size in sizes_in(i))
    return found - {symbol_of(i) for i in inside}


# -- the normal form ------------------------------------------------------------------------------------------------
def settle(func: Func) -> Func:
    """The function with its loops and branches in the form that is scheduled."""
    if not any(instr.blocks for instr in func.body):
        return func
    return Func(func.name, _Settling().block(func.block, owned=()), func.names)


class _Settling:
    def __init__(self) -> None:
        self.uses = Uses()

    def block(self, block: Block, owned: Any) -> Block:
        """``owned``: values from outside the body that an update may overwrite."""
        if not any(instr.blocks for instr in block.body):
            return block
        last: dict[Value, int] = {}
        for k, instr in enumerate(block.body):
            last.update(dict.fromkeys(self.uses.operands(instr), k))
        new: dict[Value, Value] = {}
        mine = set(owned)
        defs: dict[Value, Instr] = {}
        body: list[Instr] = []
        for k, instr in enumerate(block.body):
            if new:
                instr = substitute(instr, new)
            if instr.op.name == "if":
                instr = self._branch(instr, {v for v in mine if last.get(v, k) <= k})
            elif instr.blocks:
                instr = self._loop(instr, new)
            body.append(instr)
            mine.update(instr.outs)
            defs.update(dict.fromkeys(instr.outs, instr))
        return Block(block.params, tuple(body))

    def _loop(self, instr: Instr, new: dict[Value, Value]) -> Instr:
        """A carried value that no trip changes is not carried."""
        body = instr.blocks[-1]
        first = len(instr.args) - len(instr.outs)
        count, shift = len(instr.outs), len(body.params) - len(instr.outs)
        still = [body.results[k] is body.params[shift + k] for k in range(count)]
        if any(still):
            inside: dict[Value, Value] = {}
            for k in range(count):
                if still[k]:
                    new[instr.outs[k]] = instr.args[first + k]
                    inside.update((b.params[len(b.params) - count + k], instr.args[first + k]) for b in instr.blocks)
            blocks = []
            for block in instr.blocks:
                params = _without(block.params, still, len(block.params) - count)
                body_of = [substitute(i, inside) for i in block.body]
                if block is body:
                    end = body_of[-1]
                    body_of[-1] = Instr(end.op, (), _without(end.args, still, 0), end.attrs, (), end.loc)
                blocks.append(Block(params, tuple(body_of)))
            outs = _without(instr.outs, still, 0)
            instr = Instr(instr.op, outs, _without(instr.args, still, first), instr.attrs, tuple(blocks), instr.loc)
        blocks = [self.block(b, b.params if b is instr.blocks[-1] else ()) for b in instr.blocks]
        return Instr(instr.op, instr.outs, instr.args, instr.attrs, tuple(blocks), instr.loc)

    def _branch(self, instr: Instr, dying: set[Value]) -> Instr:
        """See Note [Branches]. ``dying``: values whose memory is ours and that nothing uses after ``instr``."""
        captured = {v for v in self.uses.captured(instr) if is_array(v)}
        blocks = [self.block(block, captured) for block in instr.blocks]
        chosen: dict[Value, int] = {}
        for k, out in enumerate(instr.outs):
            if not is_array(out):
                continue
            roots = [_root(block.results[k], block) for block in blocks]
            if roots[0] is roots[1]:
                wanted = roots[:1]
            else:
                wanted = [r for r in roots if r in dying]
            for root in wanted:
                if root is not None and root in captured and root not in chosen:
                    chosen[root] = k
                    break
        if not chosen:
            return Instr(instr.op, instr.outs, instr.args, instr.attrs, tuple(blocks), instr.loc)
        settled = []
        for block in blocks:
            inside = {v: Value(v.name, v.type) for v in chosen}
            settled.append(Block(tuple(inside.values()), tuple([substitute(i, inside) for i in block.body])))
        attrs = {**instr.attrs, "slots": tuple(chosen.values())}
        return Instr(instr.op, instr.outs, (*instr.args, *chosen), attrs, tuple(settled), instr.loc)


def _without(values: tuple[Value, ...], dropped: list[bool], first: int) -> tuple[Value, ...]:
    return values[:first] + tuple(v for v, gone in zip(values[first:], dropped, strict=True) if not gone)


def _root(value: Value, block: Block) -> Value | None:
    """The value from outside the block that ``value`` is, after updates; None if it is something new."""
    made = {out: instr for instr in block.body for out in instr.outs}
    while value in made:
        instr = made[value]
        if isinstance(instr.op.lower, Update):
            value = instr.args[0]
            continue
        source = {instr.outs[k]: instr.args[position] for position, k in slots(instr)} if instr.blocks else {}
        if value not in source:
            return None
        value = source[value]
    return value


def substitute(instr: Instr, new: Mapping[Value, Value]) -> Instr:
    """The instruction with other operands, inside its blocks too."""
    args = tuple([new.get(a, a) for a in instr.args])
    blocks = tuple([Block(b.params, tuple([substitute(i, new) for i in b.body])) for b in instr.blocks])
    if args == instr.args and not blocks:
        return instr
    return Instr(instr.op, instr.outs, args, instr.attrs, blocks, instr.loc)


__all__ = ["Uses", "is_array", "mentions", "param", "settle", "slots"]
