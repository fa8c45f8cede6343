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
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.errors import UnsupportedError
from pullback.ir.core import Func, Instr, Value, sizes_in
from pullback.ir.dims import symbols
from pullback.ir.ops.base import Compose, Elementwise, Fold, Intrinsic, Libm, Machine, Pull, Routine, Update
from pullback.loops.scalars import op_cost
from pullback.loops.strides import strided

EXPENSIVE = 10  # a value that costs more than this many simple operations is stored rather than computed twice
LONGEST = 300  # a chain of elementwise ops longer than this is cut, so that no nest grows without bound

IDENTITY = ("convert", "match")  # views that read their operand at their own index
SINGLE = ("update", "gemm", "scan", "arg", "nonzero", "sort", "checked")  # steps of their own, not part of a shared nest
ROUTINES = {
    "concatenate": "join",
    "contract": "gemm",
    "recurrence": "scan",
    "cumsum": "scan",
    "argmax": "arg",
    "argmin": "arg",
    "nonzero": "nonzero",
    "argsort": "sort",
}


@dataclass(frozen=True, slots=True)
class Root:
    """Something a nest does with an element: "store", "fold", "part" (of a concatenation), "init" (of an update), "copy"."""

    kind: str
    value: Value
    instr: Instr | None
    number: int = 0


@dataclass(slots=True)
class Stage:
    scalars: list[Instr] = field(default_factory=list)
    nests: dict[Any, list[Root]] = field(default_factory=dict)  # by domain
    singles: list[Instr] = field(default_factory=list)


@dataclass(slots=True)
class Schedule:
    stages: list[Stage]
    materialized: set[Value]
    fresh: set[Instr]  # updates whose first operand is copied (or computed) into a new buffer
    defs: dict[Value, Instr]
    kinds: dict[Instr, str]


def kind_of(instr: Instr) -> str:
    """ "scalar", "map" (own index), "view" (other indices), "fold", "join", "check", or one of SINGLE."""
    op, lower = instr.op, instr.op.lower
    scalar = bool(instr.outs) and instr.out.type.rank == 0
    if op.name == "check":
        return "check"
    if op.name == "check_index":
        return "scalar" if scalar else "checked"
    match lower:
        case Fold():
            return "fold" if instr.attrs["axes"] else "scalar" if scalar else "map"
        case Update():
            return "update"
        case Routine(name=name) if name in ROUTINES:
            return ROUTINES[name]
        case Pull():
            return "scalar" if scalar and op.name != "match" else "map" if op.name in IDENTITY else "view"
        case Intrinsic() | Libm() | Machine() | Compose():
            return "scalar" if scalar else "map"
    raise UnsupportedError(f"{op.name} at {instr.loc} has no compiled form")


class _Scheduler:
    def __init__(self, func: Func):
        self.func = func
        self.body = _live(func)
        self.results: Sequence[Value] = func.results
        self.defs = {out: instr for instr in self.body for out in instr.outs}
        self.kinds = {instr: kind_of(instr) for instr in self.body}
        self.users: dict[Value, list[Instr]] = {}
        for instr in self.body:
            for arg in dict.fromkeys(instr.args):
                self.users.setdefault(arg, []).append(instr)
        self.counts = {i.attrs["symbol"]: i for i in self.body if i.op.name == "nonzero"}
        self.materialized: set[Value] = set()
        self.cut: set[Value] = set()
        self.fresh: set[Instr] = set()
        self.here: dict[Value, int] = dict.fromkeys(func.params, 0)
        self.whole: dict[Value, int] = dict.fromkeys(func.params, 0)
        self.at: dict[Instr, int] = {}

    def run(self) -> Schedule:
        self.stages: list[Stage] = []
        scalar = all(kind in ("scalar", "check") for kind in self.kinds.values())
        if scalar and not any(value.type.rank for value in self.results):  # there can be very many
            self.stages.append(Stage(scalars=self.body))
            return Schedule(self.stages, self.materialized, self.fresh, self.defs, self.kinds)
        self._force()
        self._estimate()
        self._choose()
        self._force_operands()
        for instr in self._ordered():
            self._place(instr)
        for k, value in enumerate(self.results):
            if value.type.rank and (value not in self.materialized or value in self.results[:k] or value in self.func.params):
                self._stage(self.whole[value]).nests.setdefault(value.type.shape, []).append(Root("copy", value, None, k))
        return Schedule(self.stages, self.materialized, self.fresh, self.defs, self.kinds)

    # -- what is stored -------------------------------------------------------------------------------------------
    def _force(self) -> None:
        """Whatever has no element on demand is stored; so are results and what a routine reads through a pointer."""
        for instr in self.body:
            kind = self.kinds[instr]
            if kind in (*SINGLE, "join") or (kind == "fold" and instr.out.type.rank):
                self.materialized.update(o for o in instr.outs if o.type.rank)
        self.materialized.update(v for v in self.results if v.type.rank and v in self.defs)
        for instr in self.body:
            if self.kinds[instr] == "gemm":
                for arg in instr.args:
                    if strided(arg, self.defs, self._stored, blas=True) is None:
                        self._store(arg)
            elif self.kinds[instr] == "sort":
                self._store(instr.args[0])

    def _stored(self, value: Value) -> bool:
        return value not in self.defs or value in self.materialized

    def _store(self, value: Value) -> None:
        if value in self.defs and value.type.rank:
            self.materialized.add(value)

    def _estimate(self) -> None:
        """Stages as they are if nothing more is stored, and where long chains are cut."""
        depth: dict[Value, int] = {}
        for instr in self.body:
            kind = self.kinds[instr]
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
        for instr in reversed(self.body):
            kind = self.kinds[instr]
            pulled = kind in ("map", "view") and instr.out not in self.materialized
            if pulled and cost[instr.out] > EXPENSIVE and len(sites.get(instr.out, ())) > 1:
                self.materialized.add(instr.out)
            for arg in instr.args:
                if arg.type.rank:
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
        for instr in self.body:
            if self.kinds[instr] in ("map", "view", "scalar") and instr.out.type.rank:
                own = op_cost(instr) if isinstance(instr.op, Elementwise) else 0
                below = sum(1 if a in self.materialized else cost.get(a, 1) for a in instr.args if a.type.rank)
                cost[instr.out] = min(own + below, 1000)
        return cost

    def _force_operands(self) -> None:
        """An update over several elements must not read, through its other operands, the buffer that it writes."""
        for instr in self.body:
            if self.kinds[instr] == "update" and instr.args[-1].type.size != 1:
                for operand in instr.args[1:]:
                    if operand.type.rank and self._reads(operand, instr.args[0]):
                        if operand is instr.args[0]:
                            self.fresh.add(instr)
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
        for arg in instr.args:
            joins = kind in ("map", "fold", "join") and arg.type.rank and arg not in self.cut
            at = max(at, self.here[arg] if joins else self.whole[arg])
        if self.counts:
            for symbol in symbols(sizes_in(instr)):
                if symbol in self.counts and self.counts[symbol] is not instr:
                    at = max(at, self.whole[self.counts[symbol].out])
        if kind == "update" and self._is_fresh(instr):
            at = max(at, self.here[instr.args[0]] + 1)
        return at

    def _is_fresh(self, instr: Instr) -> bool:
        target = instr.args[0]
        return instr in self.fresh or target not in self.materialized or target in self.results

    def _time(self, instr: Instr, at: int) -> None:
        kind = self.kinds[instr]
        self.at[instr] = at
        for out in instr.outs:
            if kind in ("map", "view"):
                self.here[out] = at
                stored = out in self.materialized
                wholes = (self.whole[a] for a in instr.args)
                self.whole[out] = at + 1 if stored else max((at, *wholes))
            elif kind == "scalar":
                self.here[out] = self.whole[out] = at
            else:
                self.here[out] = self.whole[out] = at + 1

    def _ordered(self) -> Iterable[Instr]:
        """A topological order in which readers of a version precede its in-place update; gives stages to everything."""
        position = {instr: k for k, instr in enumerate(self.body)}
        after: dict[Instr, list[Instr]] = {}
        waits = dict.fromkeys(self.body, 0)
        for instr in self.body:
            needed = {self.defs[a] for a in instr.args if a in self.defs}
            if self.counts:
                needed |= {self.counts[s] for s in symbols(sizes_in(instr)) if s in self.counts} - {instr}
            for before in needed:
                after.setdefault(before, []).append(instr)
            waits[instr] = len(needed)
        readers: dict[Instr, set[Instr]] = {}  # of the version that an update overwrites
        blocks: dict[Instr, list[Instr]] = {}
        for instr in self.body:
            if self.kinds[instr] == "update" and not self._is_fresh(instr):
                readers[instr] = self._evaluators(instr.args[0]) - {instr}
                for reader in readers[instr]:
                    blocks.setdefault(reader, []).append(instr)
        unread = {instr: len(found) for instr, found in readers.items()}
        ready = [position[i] for i in self.body if not waits[i] and not unread.get(i)]
        heapq.heapify(ready)
        stuck: list[int] = []  # updates that wait for readers only
        done: set[Instr] = set()
        while ready or stuck:
            if not ready:  # a true cycle: a reader needs the update's result, so the old version is copied
                first = self.body[heapq.heappop(stuck)]
                if first in done:
                    continue
                self.fresh.add(first)
                readers.pop(first)
                heapq.heappush(ready, position[first])
                continue
            instr = self.body[heapq.heappop(ready)]
            if instr in done:
                continue
            done.add(instr)
            at = self._earliest(instr)
            self._time(instr, max([at, *(self.at[r] for r in readers.get(instr, ()))]))
            yield instr
            for follower in after.get(instr, ()):
                waits[follower] -= 1
                if not waits[follower]:
                    heapq.heappush(stuck if unread.get(follower) else ready, position[follower])
            for update in blocks.get(instr, ()):
                unread[update] -= 1
                if not unread[update] and not waits[update]:
                    heapq.heappush(ready, position[update])

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
        if kind in ("scalar", "check") or instr.op.name == "match":
            stage.scalars.append(instr)
        if kind in SINGLE:
            if kind == "update" and self._is_fresh(instr):
                self.fresh.add(instr)
                target = instr.args[0]
                self._stage(self.here[target]).nests.setdefault(target.type.shape, []).append(Root("init", target, instr))
            stage.singles.append(instr)
        elif kind == "join":
            for k, arg in enumerate(instr.args):
                stage.nests.setdefault(arg.type.shape, []).append(Root("part", arg, instr, k))
        elif kind == "fold":
            stage.nests.setdefault(instr.args[0].type.shape, []).append(Root("fold", instr.args[0], instr))
        elif kind in ("map", "view") and instr.out in self.materialized:
            stage.nests.setdefault(instr.out.type.shape, []).append(Root("store", instr.out, instr))


def _live(func: Func) -> list[Instr]:
    """Instructions that results or effects need."""
    needed: set[Value] = set(func.results)
    counts: set[str] = set()
    kept: list[Instr] = []
    has_counts = any(i.op.name == "nonzero" for i in func.body)
    for instr in reversed(func.body[:-1]):
        counted = instr.op.name == "nonzero" and instr.attrs["symbol"] in counts
        if instr.op.effect or counted or any(out in needed for out in instr.outs):
            needed.update(instr.args)
            kept.append(instr)
            if has_counts:
                counts |= symbols(sizes_in(instr))
    kept.reverse()
    return kept


def schedule(func: Func) -> Schedule:
    return _Scheduler(func).run()


__all__ = ["Root", "Schedule", "Stage", "schedule"]
