"""A loop and the loop that goes back over it as one, where the way back needs nothing but what it computes again itself.

Note [One loop for both]
A sum over terms is a loop whose derivative does not depend on what the sum has come to: the way back computes each term again,
and adds to the gradients. Then both loops can make their trips together, and what they have in common is computed once. The
value's loop keeps its order, so the value keeps its bits; the other one makes its trips the other way round, which changes the
order in which contributions to gradients are added up, and nothing else.

That takes two loops of as many trips, the second of which depends neither on results of the first nor, but for sums, on its
own earlier trips. Nests of loops merge from the outside in: what the outer bodies have in common becomes the same value, and
with it the bounds of the inner loops. What came out is taken only if it is less code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.ir.core import Block, Builder, Func, Instr, Value, inside, walk
from pullback.ir.ops import OPS
from pullback.ir.types import StackType
from pullback.passes.cse import cse
from pullback.passes.dce import dce
from pullback.passes.rewrite import Definitions, renamed, rewrite, rewrite_block
from pullback.passes.simplify import simplify

_ADDING = frozenset({"add", "sub", "scatter_add", "slice_add"})  # to their first operand; add to either
DEPTH = 8  # of nests that merge


def together(func: Func) -> Func:
    """``func`` with loops merged where that computes less; itself if there are none."""
    if sum(instr.op.name == "for" for instr in func.body) < 2:
        return func
    found = rewrite(func, _without_constants)
    merged = found
    for _ in range(DEPTH):
        after = _Merge(merged).run()
        if after is merged:
            break
        merged = dce(cse(simplify(after)))
    if merged is found or _length(merged) >= _length(dce(cse(simplify(found)))):
        return func
    return merged


def _length(func: Func) -> int:
    return sum(instr.op.name not in ("const", "yield", "for") for instr in walk(func.block))


def _without_constants(b: Builder, instr: Instr) -> tuple[Value, ...] | None:
    """A loop without the carried values that no trip changes."""
    if instr.op.name != "for":
        return None
    (body,) = instr.blocks
    index, *params = body.params
    results = body.results
    changing = [k for k, (p, r) in enumerate(zip(params, results, strict=True)) if p is not r]
    if len(changing) == len(params) or not changing:
        return None
    fixed = {p: start for k, (p, start) in enumerate(zip(params, instr.args[1:], strict=True)) if k not in changing}
    block = _copied(Block((index, *(params[k] for k in changing)), body.body), fixed)
    end = block.body[-1]
    last = Instr(end.op, (), tuple(end.args[k] for k in changing), end.attrs, (), end.loc)
    block = Block(block.params, (*block.body[:-1], last))
    made = iter(b.emit(instr.op, (instr.args[0], *(instr.args[1 + k] for k in changing)), instr.attrs, (block,)))
    return tuple(next(made) if k in changing else instr.args[1 + k] for k in range(len(params)))


def _copied(block: Block, new: dict[Value, Value]) -> Block:
    """A block with other values in the place of some."""
    return rewrite_block(block, lambda b, instr: None, new, None)


class _Merge:
    """One round: in each block, loops next to each other, but not what is in loops that merged."""

    def __init__(self, func: Func):
        self.func = func
        self.defs = Definitions()
        self.defs.add(walk(func.block))
        self.new: dict[Value, Value] = {}

    def run(self) -> Func:
        block = self.block(self.func.block)
        if block is self.func.block:
            return self.func
        return Func(self.func.name, _copied(block, self.new), renamed(self.func.names, self.new))

    def block(self, block: Block) -> Block:
        body = list(block.body)
        merged = False
        while (pair := self.pair(body)) is not None:
            body = self.joined(body, *pair)
            merged = True
        if not merged:
            for k, instr in enumerate(body):
                if instr.blocks:
                    blocks = tuple(self.block(inner) for inner in instr.blocks)
                    if any(x is not y for x, y in zip(blocks, instr.blocks, strict=True)):
                        body[k] = Instr(instr.op, instr.outs, instr.args, instr.attrs, blocks, instr.loc)
                        merged = True
        return Block(block.params, tuple(body)) if merged else block

    def pair(self, body: Sequence[Instr]) -> tuple[int, int] | None:
        """Places of two loops that can merge."""
        loops = [k for k, instr in enumerate(body) if instr.op.name == "for"]
        for n, second in enumerate(loops):
            back = body[second]
            if not loops[:n] or not self.backwards(back) or not _only_adds(back.blocks[0], range(len(back.args) - 1)):
                continue
            for first in reversed(loops[:n]):
                if self.equal(body[first].args[0], back.args[0]) and self.apart(body, first, second):
                    return first, second
        return None

    def apart(self, body: Sequence[Instr], first: int, second: int) -> bool:
        """Whether the second loop needs nothing of the first, and nothing with an effect between them does."""
        tainted = set(body[first].outs)
        for instr in body[first + 1 : second + 1]:
            if tainted.isdisjoint(_used(instr)):
                continue
            if instr is body[second] or any(i.op.effect and i.op.name != "yield" for i in inside([instr])):
                return False
            tainted.update(instr.outs)
        return True

    def backwards(self, loop: Instr) -> bool:
        """Whether the trips are counted down, which is how the way back is written."""
        trip = loop.blocks[0].params[0]
        users = [instr for instr in walk(loop.blocks[0]) if trip in instr.args]
        return bool(users) and all(self.down(instr, trip, loop.args[0]) for instr in users)

    def down(self, instr: Instr, trip: Value, bound: Value) -> bool:
        """Whether it is ``bound - 1 - trip``."""
        if instr.op.name != "sub" or instr.args[1] is not trip:
            return False
        top = instr.args[0]
        last, count = self.defs.constant(top), self.defs.constant(bound)
        if last is not None and count is not None:
            return bool(last == count - 1)
        made = self.defs.op(top, "sub")
        if made is not None:
            return made.args[0] is bound and bool(self.defs.constant(made.args[1]) == 1)
        sizes = [self.defs.op(v, "size") for v in (top, bound)]
        if sizes[0] is None or sizes[1] is None:
            return False
        return bool(sizes[1].attrs["dim"] - sizes[0].attrs["dim"] == 1)

    def equal(self, a: Value, b: Value) -> bool:
        if a is b:
            return True
        x, y = self.defs.constant(a), self.defs.constant(b)
        return x is not None and y is not None and bool(x == y)

    def joined(self, body: list[Instr], first: int, second: int) -> list[Instr]:
        """The block with both loops as one, in the place of the second."""
        forth, back = body[first], body[second]
        (own,), (other,) = forth.blocks, back.blocks
        index = own.params[0]
        counted = [i for i in walk(other) if other.params[0] in i.args]
        self.new.update((instr.out, index) for instr in counted)
        rest = [instr for instr in other.body[:-1] if instr not in counted]
        end = Instr(OPS["yield"], (), (*own.results, *other.results), own.body[-1].attrs, (), back.loc)
        block = Block((*own.params, *other.params[1:]), (*own.body[:-1], *_without(rest, counted), end))
        loop = Instr(forth.op, (*forth.outs, *back.outs), (*forth.args, *back.args[1:]), forth.attrs, (block,), forth.loc)
        before: list[Instr] = []
        after: list[Instr] = []
        tainted = set(forth.outs)
        for instr in body[first + 1 : second]:
            late = not tainted.isdisjoint(_used(instr))
            (after if late else before).append(instr)
            if late:
                tainted.update(instr.outs)
        return [*body[:first], *before, loop, *after, *body[second + 1 :]]


def _without(body: Iterable[Instr], gone: Sequence[Instr]) -> list[Instr]:
    """Instructions without those in ``gone``, also in their blocks."""
    kept = []
    for instr in body:
        if instr in gone:
            continue
        if instr.blocks:
            blocks = tuple(Block(block.params, tuple(_without(block.body, gone))) for block in instr.blocks)
            instr = Instr(instr.op, instr.outs, instr.args, instr.attrs, blocks, instr.loc)
        kept.append(instr)
    return kept


def _used(instr: Instr) -> set[Value]:
    return {a for i in inside([instr]) for a in i.args}


def _only_adds(block: Block, places: Iterable[int]) -> bool:
    """Whether each of the carried values is only added to, so that the order of the trips does not matter but for rounding."""
    users: dict[Value, list[Instr]] = {}
    for instr in block.body:
        for value in _used(instr):
            users.setdefault(value, []).append(instr)
    return all(_added(block.params[1 + k], block.results[k], users) for k in places)


def _added(value: Value, end: Value, users: dict[Value, list[Instr]]) -> bool:
    """Whether ``end`` is ``value`` with something added, and nothing else sees what lies between."""
    if isinstance(value.type, StackType):
        return False
    while True:
        (user, *more) = users.get(value, ()) or (None,)
        if user is None or more or user.args.count(value) != 1:
            return False
        if user.op.name == "yield":
            return value is end
        if user.op.name == "for":
            place = user.args.index(value) - 1
            if place < 0 or not _only_adds(user.blocks[0], [place]) or value in _used_inside(user):
                return False
            value = user.outs[place]
        elif user.op.name in _ADDING and (user.args[0] is value or user.op.name == "add"):
            value = user.out
        else:
            return False


def _used_inside(instr: Instr) -> set[Value]:
    return {a for block in instr.blocks for i in walk(block) for a in i.args}
