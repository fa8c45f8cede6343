"""What is stored, what is recomputed, which values share a nest, and in which order.

Note [Stages]
Elements of array values are made on demand, inside the nest that needs them. Some values are *materialized*: they have a
buffer. Each value has two numbers. ``here`` is the first stage whose nest over the value's own shape can have its element
at the nest's index: for an elementwise op the maximum over its operands, because it can join their nest. ``whole`` is
the first stage in which any of its elements can be read: for a materialized value one more than the stage of its nest.
Everything that is stored or reduced at one stage over one domain shares one nest. A stage runs its scalars, then its nests
(which are independent of each other), then its single steps: routines and updates.

An update writes into the buffer of its first operand if that version dies there. All other readers of the version are
ordered before it; only if one of them needs the update's own result is the buffer copied.

Note [Blocks]
Each block has stages of its own. For the block around it a loop or an ``if`` is one step that reads what its blocks capture and
updates each of its operands that is an array: the result has the memory of the operand (its *home*) if that version dies there
and no trip needs it besides, else a copy is made before. A parameter of a body is a version like any other, whose memory the
body may overwrite. What is captured has a buffer by then, or is a view that costs no more than a few additions an element.

Note [Heirs]
In a block that may run often, a value of a nest takes over the memory of an operand (``taken``) if each element needs only the
operand's element at its own index and all that reads the operand besides is done by then: ``x = x + h*f(x)`` of a whole array
neither needs a second buffer nor moves a pointer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pullback.ir.core import Block, Func, Instr, Value, symbol_of
from pullback.ir.ops.base import Elementwise
from pullback.loops.blocks import Uses, is_array, mentions
from pullback.loops.plan import SCALAR, SINGLE, Root, Schedule, Stage, kind_of, updates
from pullback.loops.scalars import op_cost
from pullback.loops.strides import strided, turns

EXPENSIVE = 10  # a value that costs more than this many simple operations is stored rather than computed twice
LONGEST = 300  # a chain of elementwise ops longer than this is cut, so that no nest grows without bound
VIEWS = 8  # views of a captured value that are read through


class _Scheduler:
    """Of one block, after that of the blocks around it. ``writable``: values from outside the body that it may overwrite."""

    def __init__(self, plan: Schedule, uses: Uses, block: Block, writable: Iterable[Value] = (), whole: bool = False):
        self.plan = plan
        self.uses = uses
        self.block = block
        self.body = _live(block, uses)
        self.results: Sequence[Value] = block.results
        self.writable = frozenset(v for v in writable if is_array(v))
        self.outermost = whole
        self.defs = {out: instr for instr in self.body for out in instr.outs}
        self.kinds = {instr: kind_of(instr) for instr in self.body}
        plan.defs.update(self.defs)
        plan.kinds.update(self.kinds)
        # all but plain scalar work, of which there can be very much: only what has to do with arrays needs a closer look
        self.rest = [i for i in self.body if self.kinds[i] != "scalar" or i.blocks or not isinstance(i.op, Elementwise)]
        self.users: dict[Value, list[Instr]] = {}  # of arrays
        for instr in self.rest:
            for arg in dict.fromkeys(uses.operands(instr)):
                if is_array(arg):
                    self.users.setdefault(arg, []).append(instr)
        self.counts = {symbol: i for i in self.body if i.attrs and (symbol := symbol_of(i)) is not None}
        self.materialized = plan.materialized
        self.cut: set[Value] = set()
        self.fresh = plan.fresh
        self.here: dict[Value, int] = defaultdict(int)  # of arrays
        self.whole: dict[Value, int] = defaultdict(int)
        self.at: dict[Instr, int] = {}
        self.inherited: set[Value] = set()

    def run(self) -> None:
        self.stages: list[Stage] = []
        self.plan.stages[self.block] = self.stages
        copied = self.plan.copied[self.block] = set()
        if all(map(self._plain, self.body)) and not any(map(is_array, self.results)):  # there can be very many
            self.stages.append(Stage(scalars=self.body))
        else:
            self._force()
            self._estimate()
            self._choose()
            self._force_operands()
            self._arrange()
            for k, value in enumerate(self.results):
                if is_array(value) and (not self._owned(value) or value in self.results[:k]):
                    copied.add(k)
                    self._stage(self.whole[value]).nests.setdefault(value.type.shape, []).append(Root("copy", value, None, k))
        for instr in self.body:
            for block in instr.blocks:
                writable = block.params if block is instr.blocks[-1] or instr.op.name == "if" else ()
                _Scheduler(self.plan, self.uses, block, writable).run()

    def _plain(self, instr: Instr) -> bool:
        """Whether no array is made by ``instr``, nor inside it."""
        if not instr.blocks:
            return (self.plan.kinds.get(instr) or kind_of(instr)) in SCALAR
        return not any(map(is_array, instr.outs)) and all(self._plain(i) for b in instr.blocks for i in b.body[:-1])

    def _owned(self, value: Value) -> bool:
        """Whether the block may overwrite the value's memory, once nothing needs the value."""
        if value not in self.defs:
            return value in self.writable
        return value in self.materialized and self.kinds[self.defs[value]] != "pop"

    # -- what is stored -------------------------------------------------------------------------------------------
    def _force(self) -> None:
        """Whatever has no element on demand is stored; so are results and what a routine reads through a pointer."""
        for instr in self.rest:
            kind = self.kinds[instr]
            if kind in (*SINGLE, "join", "pop") or (kind == "fold" and instr.out.type.rank):
                self.materialized.update(o for o in instr.outs if is_array(o))
        self.materialized.update(v for v in self.results if v in self.defs and is_array(v))
        for instr in self.rest:
            if self.kinds[instr] == "gemm":
                for arg in instr.args:
                    self._force_matrix(arg)
            elif self.kinds[instr] in ("sort", "library"):
                for arg in instr.args:
                    self._store(arg)
            elif instr.blocks:
                self._force_captured(instr)

    def _force_matrix(self, matrix: Value) -> None:
        """Store what a product reads; of a matrix that is turned, the one that is not: see Note [Operands] in ``expand.py``."""
        if strided(matrix, self.plan.defs, self._stored, blas=True) is not None:
            return
        made = self.defs.get(matrix)
        self._store(made.args[0] if made is not None and made.op.name == "transpose" and turns(made) else matrix)

    def _force_captured(self, instr: Instr) -> None:
        """A trip must not compute again what its loop captures, nor read what it updates through a view of the old version."""
        captured = self.uses.captured(instr)
        targets: set[Value] = set()
        for target, out in updates(instr, self.kinds[instr]):
            if target in targets or target in captured:
                self.fresh.add(out)
            targets.add(target)
        for value in captured:
            if is_array(value) and not (self._cheap(value) and not any(self._reads(value, t) for t in targets - {value})):
                self._store(value)

    def _cheap(self, value: Value) -> bool:
        """Whether an element costs a few additions and a load."""
        for _ in range(VIEWS):
            if self._stored(value):
                return True
            instr = self.plan.defs[value]
            if self.plan.kinds[instr] != "view" or instr.op.name == "gather":
                return False
            if not instr.args or not is_array(instr.args[0]):
                return True
            value = instr.args[0]
        return False

    def _stored(self, value: Value) -> bool:
        return value not in self.plan.defs or value in self.materialized

    def _store(self, value: Value) -> None:
        if value in self.defs and is_array(value):
            self.materialized.add(value)

    def _estimate(self) -> None:
        """Stages as they are if nothing more is stored, and where long chains are cut."""
        depth: dict[Value, int] = {}
        for instr in self.body:
            kind = self.kinds[instr]
            if kind == "scalar":
                self._time_scalar(instr)
                continue
            self._time(instr, self._earliest(instr))
            if kind in ("map", "view"):
                length = 1 + max((depth.get(a, 0) for a in instr.args if a not in self.materialized), default=0)
                if length > LONGEST:
                    self.cut.add(instr.out)
                    self._store(instr.out)
                    length = 0
                depth[instr.out] = length

    def _choose(self) -> None:
        """Store what is expensive and would otherwise be computed in two places. From consumers to producers."""
        cost = self._costs()
        sites: dict[Value, set[Any]] = {}
        for instr in reversed(self.rest):
            kind = self.kinds[instr]
            pulled = kind in ("map", "view") and instr.out not in self.materialized
            if pulled and cost[instr.out] > EXPENSIVE and len(sites.get(instr.out, ())) > 1:
                self.materialized.add(instr.out)
            for arg in instr.args:
                if is_array(arg):
                    found = sites.setdefault(arg, set())
                    if len(found) < 2:  # two are as good as many
                        found.update(self._sites_of_use(instr, arg, kind, sites))

    def _sites_of_use(self, instr: Instr, arg: Value, kind: str, sites: dict[Value, set[Any]]) -> Iterable[Any]:
        """Where elements of ``arg`` are computed because of ``instr``: nests, or accesses at other indices."""
        if kind == "map":
            if instr.out not in self.materialized:
                return sites.get(instr.out, ())
            return ((self.here[instr.out], instr.out.type.shape),)
        if kind == "view":
            if instr.op.name == "gather" or (
                instr.op.name == "broadcast" and instr.attrs["axes"] != tuple(range(arg.type.rank))
            ):
                return (instr, "many times")
            return (instr,)
        if kind in ("fold", "join"):
            return ((self.here[arg], arg.type.shape),)
        return (instr,)

    def _costs(self) -> dict[Value, int]:
        cost: dict[Value, int] = {}
        for instr in self.rest:
            if self.kinds[instr] in ("map", "view"):
                own = op_cost(instr) if isinstance(instr.op, Elementwise) else 0
                below = sum(1 if a in self.materialized else cost.get(a, 1) for a in instr.args if is_array(a))
                cost[instr.out] = min(own + below, 1000)
        return cost

    def _force_operands(self) -> None:
        """An update over several elements must not read, through its other operands, the buffer that it writes."""
        for instr in self.rest:
            if self.kinds[instr] == "update" and instr.args[-1].type.size != 1:
                for operand in instr.args[1:]:
                    if operand.type.rank and self._reads(operand, instr.args[0]):
                        if operand is instr.args[0]:
                            self.fresh.add(instr.out)
                        self._store(operand)

    def _reads(self, value: Value, target: Value) -> bool:
        """Whether elements of ``value`` are computed from elements of ``target``."""
        pending, seen = [value], {value}
        while pending:
            v = pending.pop()
            if v is target:
                return True
            if v in self.defs and v not in self.materialized and v.type.rank:
                for arg in self.defs[v].args:
                    if arg not in seen:
                        seen.add(arg)
                        pending.append(arg)
        return False

    # -- when ------------------------------------------------------------------------------------------------------
    def _earliest(self, instr: Instr) -> int:
        """The first stage in which ``instr`` can be done."""
        kind = self.kinds[instr]
        at = 0
        for arg in self.uses.operands(instr):
            joins = kind in ("map", "fold", "join") and is_array(arg) and arg not in self.cut
            at = max(at, self.here[arg] if joins else self.whole[arg])
        if self.counts:
            for symbol in mentions(instr):
                if symbol in self.counts and self.counts[symbol] is not instr:
                    at = max(at, self.whole[self.counts[symbol].outs[0]])
        for target, out in updates(instr, self.kinds[instr]):
            if self._is_fresh(target, out):
                at = max(at, self.here[target] + 1)
        return at

    def _is_fresh(self, target: Value, out: Value) -> bool:
        return out in self.fresh or not self._owned(target) or target in self.results

    def _time(self, instr: Instr, at: int) -> None:
        kind = self.kinds[instr]
        self.at[instr] = at
        for out in instr.outs:
            if kind in ("map", "view"):
                self.here[out] = at
                stored = out in self.materialized
                wholes = (self.whole[a] for a in instr.args)
                self.whole[out] = at + 1 if stored else max((at, *wholes))
            elif kind in SCALAR:
                self.here[out] = self.whole[out] = at
            else:
                self.here[out] = self.whole[out] = at + 1

    def _time_scalar(self, instr: Instr) -> int:
        """The stage of plain scalar work."""
        if self.counts or instr.op.effect or not isinstance(instr.op, Elementwise):
            at = self._earliest(instr)
            self._time(instr, at)
            return at
        at = 0
        for arg in instr.args:
            found = self.whole.get(arg, 0)
            if found > at:
                at = found
        if at:
            for out in instr.outs:
                self.whole[out] = at
        return at

    def _arrange(self) -> None:
        """Everything in an order in which readers of a version precede its in-place update, and in a stage."""
        position = {instr: k for k, instr in enumerate(self.body)}
        readers: dict[Instr, set[Instr]] = {}  # of the versions that an update overwrites
        for instr in self.rest:
            targets = [target for target, out in updates(instr, self.kinds[instr]) if not self._is_fresh(target, out)]
            if targets:
                readers[instr] = set().union(*map(self._evaluators, targets)) - {instr}
        before = self._checks_before()
        heirs = {} if self.outermost else self._heirs(position)
        if all(position[r] < position[update] for update, found in readers.items() for r in found):
            plain = frozenset(self.body).difference(self.rest)
            for instr in self.body:  # as it stands
                if instr in plain:
                    self._stage(self._time_scalar(instr)).scalars.append(instr)
                else:
                    self._settle(instr, readers, heirs, before)
                    self._place(instr)
            return
        for instr in self._ordered(position, readers, heirs, before):
            self._place(instr)

    def _settle(
        self,
        instr: Instr,
        readers: Mapping[Instr, set[Instr]],
        heirs: Mapping[Instr, list[Value]],
        before: Mapping[Instr, set[Instr]],
    ) -> None:
        """Give ``instr`` its stage, and the memory that it takes over."""
        at = self._earliest(instr)
        if instr in heirs:
            self._inherit(instr, heirs[instr], at)
        at = max([at, *(self.at[r] for r in readers.get(instr, ()))])
        single = self.kinds[instr] in SINGLE  # a stage's single steps come last
        self._time(instr, max([at, *(self.at[b] + (bool(b.blocks) and not single) for b in before.get(instr, ()))]))

    def _ordered(
        self,
        position: Mapping[Instr, int],
        readers: dict[Instr, set[Instr]],
        heirs: Mapping[Instr, list[Value]],
        before: Mapping[Instr, set[Instr]],
    ) -> Iterable[Instr]:
        """A topological order in which readers of a version precede its in-place update; gives stages to everything."""
        after: dict[Instr, list[Instr]] = {}
        waits = dict.fromkeys(self.body, 0)
        for instr in self.body:
            needed = {self.defs[a] for a in self.uses.operands(instr) if a in self.defs} | before.get(instr, set())
            if self.counts:
                needed |= {self.counts[s] for s in mentions(instr) if s in self.counts} - {instr}
            for earlier in needed:
                after.setdefault(earlier, []).append(instr)
            waits[instr] = len(needed)
        blocks: dict[Instr, list[Instr]] = {}
        for instr, found in readers.items():
            for reader in found:
                blocks.setdefault(reader, []).append(instr)
        for instr, candidates in heirs.items():
            for earlier in set().union(*map(self._evaluators, candidates)) - {instr}:
                if earlier not in after or instr not in after[earlier]:
                    after.setdefault(earlier, []).append(instr)
                    waits[instr] += 1
        unread = {instr: len(found) for instr, found in readers.items()}
        ready = [position[i] for i in self.body if not waits[i] and not unread.get(i)]
        heapq.heapify(ready)
        stuck = [position[i] for i in self.body if not waits[i] and unread.get(i)]  # updates that wait for readers only
        done: set[Instr] = set()
        while ready or stuck:
            if not ready:  # a true cycle: a reader needs the update's result, so the old version is copied
                first = self.body[heapq.heappop(stuck)]
                if first in done:
                    continue
                self.fresh.update(out for _, out in updates(first, self.kinds[first]))
                readers.pop(first)
                heapq.heappush(ready, position[first])
                continue
            instr = self.body[heapq.heappop(ready)]
            if instr in done:
                continue
            done.add(instr)
            self._settle(instr, readers, heirs, before)
            yield instr
            for follower in after.get(instr, ()):
                waits[follower] -= 1
                if not waits[follower]:
                    heapq.heappush(stuck if unread.get(follower) else ready, position[follower])
            for update in blocks.get(instr, ()):
                unread[update] -= 1
                if not unread[update] and not waits[update]:
                    heapq.heappush(ready, position[update])

    # -- in place --------------------------------------------------------------------------------------------------
    def _heirs(self, position: dict[Instr, int]) -> dict[Instr, list[Value]]:
        """Values of nests that could take over the memory of an operand: each element needs only the old one at its own index,
        and all other readers of the old value stand before."""
        heirs: dict[Instr, list[Value]] = {}
        for instr in self.body:
            if self.kinds[instr] != "map" or instr.out not in self.materialized or instr.op.name == "match":
                continue
            found = [v for v in self._own_reads(instr) if v.type == instr.out.type and self._owned(v) and v not in self.results]
            kept = []
            for value in found:
                readers = self._evaluators(value)
                if all(position[r] <= position[instr] for r in readers) and not any(
                    target is value for r in readers for target, _ in updates(r, self.kinds[r])
                ):
                    kept.append(value)
            if kept:
                heirs[instr] = sorted(kept, key=lambda v: v not in self.writable)
        return heirs

    def _own_reads(self, instr: Instr) -> list[Value]:
        """The stored values of which an element of ``instr`` reads its own index, and no other."""
        own: dict[Value, None] = {}
        other: list[Value] = []
        pending = list(instr.args)
        seen = set(pending)
        while pending:
            value = pending.pop()
            if not is_array(value):
                continue
            if self._stored(value):
                own[value] = None
            elif value in self.defs and self.kinds[self.defs[value]] == "map":
                fresh = [a for a in self.defs[value].args if a not in seen]
                pending.extend(fresh)
                seen.update(fresh)
            else:
                other.append(value)
        return [v for v in own if not any(self._reads(view, v) for view in other)]

    def _inherit(self, instr: Instr, candidates: list[Value], at: int) -> None:
        """Take over the memory of the first candidate whose readers are all done when the nest at stage ``at`` stores."""
        for value in candidates:
            if value not in self.inherited and all(
                self._read_by(r, value, instr, at) for r in self._evaluators(value) - {instr}
            ):
                self.plan.taken[instr.out] = value
                self.inherited.add(value)
                return

    def _read_by(self, reader: Instr, value: Value, heir: Instr, at: int) -> bool:
        if self.at[reader] < at:
            return True
        kind = self.kinds[reader]
        if kind in SCALAR:
            return self.at[reader] == at
        domain = reader.args[0].type.shape if kind == "fold" else reader.outs[0].type.shape if kind == "map" else None
        return self.at[reader] == at and domain == heir.out.type.shape and value in self._own_reads(reader)

    def _checks_before(self) -> dict[Instr, set[Instr]]:
        """A loop must not run before a check that precedes it, nor a check before a loop that may fail itself."""
        before: dict[Instr, set[Instr]] = {}
        if not any(instr.blocks for instr in self.body):
            return before
        checks: list[Instr] = []
        fence: Instr | None = None
        for instr in self.body:
            if instr.blocks:
                before[instr] = {*checks, *([fence] if fence else [])}
                if self.uses.effect(instr):
                    fence, checks = instr, []
            elif instr.op.effect:
                if fence is not None:
                    before[instr] = {fence}
                checks.append(instr)
        return before

    def _evaluators(self, value: Value) -> set[Instr]:
        """The instructions at which elements of ``value`` are read, through everything that is not stored."""
        found: set[Instr] = set()
        pending, seen = [value], {value}
        while pending:
            for user in self.users.get(pending.pop(), ()):
                if self.kinds[user] in ("map", "view") and user.out not in self.materialized:
                    if user.out not in seen:
                        seen.add(user.out)
                        pending.append(user.out)
                else:
                    found.add(user)
        return found

    # -- where -----------------------------------------------------------------------------------------------------
    def _stage(self, number: int) -> Stage:
        while len(self.stages) <= number:
            self.stages.append(Stage())
        return self.stages[number]

    def _place(self, instr: Instr) -> None:
        kind, stage = self.kinds[instr], self._stage(self.at[instr])
        if kind in SCALAR or instr.op.name == "match":
            stage.scalars.append(instr)
        if kind in SINGLE:
            for number, (target, out) in enumerate(updates(instr, self.kinds[instr])):
                if self._is_fresh(target, out):
                    self.fresh.add(out)
                    nests = self._stage(self.here[target]).nests
                    nests.setdefault(target.type.shape, []).append(Root("init", target, instr, number))
            stage.singles.append(instr)
        elif kind == "join":
            for k, arg in enumerate(instr.args):
                stage.nests.setdefault(arg.type.shape, []).append(Root("part", arg, instr, k))
        elif kind == "fold":
            stage.nests.setdefault(instr.args[0].type.shape, []).append(Root("fold", instr.args[0], instr))
        elif kind in ("map", "view") and instr.out in self.materialized:
            stage.nests.setdefault(instr.out.type.shape, []).append(Root("store", instr.out, instr))


def _live(block: Block, uses: Uses) -> list[Instr]:
    """Instructions that results or effects need."""
    needed: set[Value] = set(block.results)
    counts: set[str] = set()
    kept: list[Instr] = []
    has_counts = any(i.attrs and symbol_of(i) is not None for i in block.body)
    for instr in reversed(block.body[:-1]):
        counted = has_counts and symbol_of(instr) in counts
        wanted = instr.outs[0] in needed if len(instr.outs) == 1 else not needed.isdisjoint(instr.outs)
        if wanted or instr.op.effect or counted or (instr.blocks and uses.effect(instr)):
            needed.update(uses.operands(instr) if instr.blocks else instr.args)
            kept.append(instr)
            if has_counts:
                counts |= mentions(instr)
    kept.reverse()
    return kept


def schedule(func: Func) -> Schedule:
    plan = Schedule()
    _Scheduler(plan, Uses(), func.block, whole=True).run()
    return plan


__all__ = ["schedule"]
