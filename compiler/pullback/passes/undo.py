"""Arrays that a loop overwrites in place, restored going back.

Note [Undo]
A partial may need an array that the loop has overwritten since. To keep the whole array at every trip would cost its size each
time. Instead each update first keeps the elements that it overwrites; going backwards, the array is carried along and they are
put back, so that every adjoint instruction sees the version that its forward instruction saw. That works for a *chain*: the
versions of one array within a block, each made from the one before by an update, or by a loop or branch that is itself such a
chain, and none read after the next is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pullback.ir.core import Block, Builder, Instr, Value, inside, sizes_in, symbol_of
from pullback.ir.dims import symbols
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Update
from pullback.ir.types import Type
from pullback.passes.activity import carried

SMALL = 16  # elements of an array that is as well kept whole


@dataclass(slots=True, eq=False)
class Chain:
    """``versions`` from the first to the last, and the ``steps`` between them."""

    versions: list[Value]
    steps: list[Instr]

    @property
    def plain(self) -> bool:
        """Whether all steps are updates, which can be undone before anything else happens."""
        return not any(step.blocks for step in self.steps)


class Chains:
    """The chains of a function, found when they are asked for."""

    def __init__(self) -> None:
        self._loops: dict[tuple[Instr, int], Chain | None] = {}
        self._branches: dict[tuple[Instr, int], tuple[Chain, Chain] | None] = {}

    def of_loop(self, loop: Instr, k: int) -> Chain | None:
        """The chain of the carried value ``k`` within the loop's body, if it has at least one step."""
        key = (loop, k)
        if key not in self._loops:
            _, params, result, _ = carried(loop)[k]
            self._loops[key] = self._between(loop.blocks[-1], params[-1], result)
        found = self._loops[key]
        return found if found is not None and found.steps else None

    def of_branches(self, instr: Instr, k: int) -> tuple[Chain, Chain] | None:
        """The chains of result ``k`` of an ``if`` from one value outside, in either block."""
        key = (instr, k)
        if key not in self._branches:
            then, other = ([*self._back(block, block.results[k])] for block in instr.blocks)
            found = None
            if then[-1][0] is other[-1][0]:
                parts = [self._between(block, then[-1][0], block.results[k]) for block in instr.blocks]
                if parts[0] is not None and parts[1] is not None:
                    found = (parts[0], parts[1])
            self._branches[key] = found
        return self._branches[key]

    def _back(self, block: Block, value: Value) -> Iterator[tuple[Value, Instr | None]]:
        """Versions from the last to the first, each with the step that made it."""
        made_by = {out: instr for instr in block.body for out in instr.outs}
        while True:
            instr = made_by.get(value)
            before = None if instr is None else self._before(instr, value)
            yield value, instr if before is not None else None
            if before is None:
                return
            value = before

    def _before(self, instr: Instr, value: Value) -> Value | None:
        """The version from which ``instr`` makes ``value``, if it can be undone."""
        if isinstance(instr.op.lower, Update):
            return instr.args[0]
        if not instr.blocks:
            return None
        k = instr.outs.index(value)
        if instr.op.name == "if":
            parts = self.of_branches(instr, k)
            return parts[0].versions[0] if parts and any(part.steps for part in parts) else None
        if "again" in instr.attrs:  # it runs again from its initial values, so these must be there before it is reversed
            return None
        return instr.args[len(instr.args) - len(instr.outs) + k] if self.of_loop(instr, k) else None

    def _between(self, block: Block, first: Value, last: Value) -> Chain | None:
        kind = first.type
        if not isinstance(kind, Type) or kind.rank == 0 or (isinstance(kind.size, int) and kind.size <= SMALL):
            return None
        versions: list[Value] = []
        steps: list[Instr] = []
        for value, instr in self._back(block, last):
            versions.append(value)
            if value is first:
                chain = Chain(versions[::-1], steps[::-1])
                return chain if _is_linear(block, chain) else None
            if instr is not None:
                steps.append(instr)
        return None


def _is_linear(block: Block, chain: Chain) -> bool:
    """Whether no version is read after the step that replaces it, nor a second time by that step."""
    next_step = dict(zip(chain.versions, chain.steps, strict=False))
    passed: set[Instr] = set()
    for instr in block.body:
        for version in instr.args:
            step = next_step.get(version)
            if step is not None and (step in passed or (instr is step and instr.args.count(version) > 1)):
                return False
        if instr.blocks:
            for inner in inside(b for block_ in instr.blocks for b in block_.body):
                for version in inner.args:
                    step = next_step.get(version)
                    if step is not None and (step in passed or (instr is step and instr.op.name != "if")):
                        return False
        if instr in chain.steps:
            passed.add(instr)
    return True


def reading(instr: Instr) -> tuple[Instr, Value]:
    """The instruction that reads what the update ``instr`` is about to overwrite, and what it gives."""
    b = Builder(loc=instr.loc)
    array, *others = instr.args
    if instr.op.name.startswith("slice"):
        attrs = instr.attrs
        old = b.slice(array, starts=attrs["starts"], sizes=others[-1].type.shape, steps=attrs["steps"])
    else:
        old = b.gather(array, *others[:-1])
    return b.body[-1], old


def restoring(instr: Instr, old: Value) -> Instr:
    """The instruction that makes the version before the update ``instr`` again from the one after it."""
    op = OPS["slice_set" if instr.op.name.startswith("slice") else "scatter_set"]
    return Instr(op, (instr.args[0],), (instr.out, *instr.args[1:-1], old), instr.attrs, (), instr.loc)


def in_order(body: Sequence[Instr]) -> list[Instr]:
    """The instructions, each after those whose results or sizes it reads, else as they stand."""
    made_by = {out: instr for instr in body for out in instr.outs}
    counts = {symbol: instr for instr in body if (symbol := symbol_of(instr)) is not None}
    placed: dict[Instr, None] = {}
    for instr in body:
        pending = [instr]
        while pending:
            current = pending[-1]
            read = [made_by.get(a) for i in inside((current,)) for a in i.args]
            if counts:
                read += [counts.get(symbol) for i in inside((current,)) for symbol in symbols(sizes_in(i))]
            missing = [m for m in read if m is not None and m not in placed and m is not current]
            if missing and current not in placed:
                pending.extend(missing)
            else:
                placed.setdefault(pending.pop())
    return list(placed)
