"""Which buffer each stored value has.

Note [Homes]
What a loop carries has a *home*: one buffer for the operand (or the copy of it), the parameter of each trip and the result.
In a trip the yielded value is most often an update of the parameter, and at home already. A value that is computed anew
goes into a spare buffer, and at the end of the trip the two buffers exchange their memory (``Swap``): pointers move,
elements do not. So do the homes of values that change places (``x, y = y, x``). A value that cannot be had without a copy
(yielded twice, captured) is copied into a spare buffer. The branches of an ``if`` end in the same way, except that a result
which no operand becomes has an empty home, into which a branch computes directly.

Buffers that exchange memory are all in the workspace and live as long as any of them: a result of the function that
has moved is copied into the output at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pullback.ir.core import Block, Func, Instr, Value
from pullback.ir.types import Type
from pullback.loops.blocks import is_array, param, slots
from pullback.loops.nest import Buffer, Swap
from pullback.loops.plan import Schedule, updates


class Places:
    """``buffers`` by value; ``copies`` those of results of blocks that are copied; ``swaps`` what ends each block; ``late``:
    results of the function that are copied when all is done."""

    def __init__(self, func: Func, plan: Schedule):
        self._plan = plan
        self._count = 0
        self._wanted: dict[Value, Buffer] = {}
        self.buffers: dict[Value, Buffer] = {}
        self.copies: dict[tuple[Block, int], Buffer] = {}
        self.swaps: dict[Block, Swap] = {}
        self.late: list[int] = []
        for k, value in enumerate(func.params):
            if is_array(value):
                self.buffers[value] = Buffer(value.type, "input", k, name=value.name)
        for k in plan.copied[func.block]:
            self.copies[func.block, k] = Buffer(func.results[k].type, "output", k)
        self._block(func.block, {}, ())
        self._results(func)

    def _new(self, value: Value) -> Buffer:
        return self.work(value.type, value.name)

    def work(self, type: Type, name: str = "") -> Buffer:
        """Memory of its own."""
        self._count += 1
        return Buffer(type, "work", self._count - 1, name=name)

    def _results(self, func: Func) -> None:
        for k, value in enumerate(func.results):
            if not is_array(value) or (func.block, k) in self.copies:
                continue
            buffer = self.buffers[value]
            if buffer.moves:
                self.copies[func.block, k] = Buffer(value.type, "output", k)
                self.late.append(k)
            else:
                buffer.place, buffer.number = "output", k

    def _block(self, block: Block, homes: Mapping[int, Buffer], empty: Collection[int]) -> None:
        """``homes`` of the block's results that are arrays; nothing is in the ``empty`` ones yet."""
        plan = self._plan
        made = {out: i for i in block.body for out in i.outs if i in plan.kinds} if empty else {}
        for k in empty:
            if k in plan.copied[block]:
                self.copies[block, k] = homes[k]
            else:
                self._wanted.setdefault(self._origin(block.results[k], made), homes[k])
        for instr in block.body[:-1]:
            kind = plan.kinds.get(instr)
            if kind is None or kind == "scalar" or kind == "pop":  # dead; no array; an element of a tape
                continue
            old = {out: target for target, out in updates(instr, kind) if out not in plan.fresh}
            old.update((out, plan.taken[out]) for out in instr.outs if out in plan.taken)
            for out in instr.outs:
                if out in plan.materialized:
                    self.buffers[out] = self.buffers[old[out]] if out in old else self._wanted.get(out) or self._new(out)
            if instr.blocks:
                self._inside(instr)
        for k in plan.copied[block] if homes else ():
            if (block, k) not in self.copies:
                self.copies[block, k] = self._new(block.results[k])
        self._end(block, homes)

    def _origin(self, value: Value, made: Mapping[Value, Instr]) -> Value:
        """The version for which the buffer of ``value`` is made."""
        while value in made and value not in self._plan.fresh:
            instr = made[value]
            old = {out: target for target, out in updates(instr, self._plan.kinds[instr])}
            if value in self._plan.taken:
                old[value] = self._plan.taken[value]
            if value not in old:
                break
            value = old[value]
        return value

    def _inside(self, instr: Instr) -> None:
        homes = {k: self.buffers[out] for k, out in enumerate(instr.outs) if is_array(out)}
        filled = set()
        for position, k in slots(instr):
            if k in homes:
                filled.add(k)
                for block in instr.blocks:
                    self.buffers[param(instr, block, position)] = homes[k]
        for block in instr.blocks:
            if block is instr.blocks[-1] or instr.op.name == "if":
                self._block(block, homes, homes.keys() - filled)
            else:  # the condition of a while
                self._block(block, {}, ())

    def _end(self, block: Block, homes: Mapping[int, Buffer]) -> None:
        """Bring every result home."""
        into: list[Buffer] = []
        source: list[Buffer] = []
        for k, home in homes.items():
            found = self.copies.get((block, k)) or self.buffers[block.results[k]]
            if found is not home:
                into.append(home)
                source.append(found)
        homeless = [b for b in into if b not in source]
        for spare in [b for b in source if b not in into]:
            size = spare.type.size, spare.type.dtype.bytes
            freed = next(b for b in homeless if (b.type.size, b.type.dtype.bytes) == size)
            homeless.remove(freed)
            into.append(spare)
            source.append(freed)
        if into:
            for buffer in into:
                buffer.moves = True
            self.swaps[block] = Swap(tuple(into), tuple(source))
