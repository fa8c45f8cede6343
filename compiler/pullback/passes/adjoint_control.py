"""The adjoint of loops and branches, nested in any way.

Each block is reversed by itself: its adjoint is a block of the reverse pass. A loop runs its trips backwards, carrying the
cotangents of the values that it carried forward, and those of values from outside, which every trip adds to. A branch is
decided again by the same condition. What the reverse blocks read of the forward ones is kept on tapes: see ``tape.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.ir.core import Block, Builder, Instr, Value, inside
from pullback.ir.dims import Size
from pullback.ir.ops import OPS
from pullback.ir.types import StackType, Type, i64
from pullback.passes.activity import carried
from pullback.passes.adjoint_regions import Body, Branch, Region, Thread, Whole, adjoint_of
from pullback.passes.binomial import Unit, keeping, reversing
from pullback.passes.chain import Derivative
from pullback.passes.dce import live_body
from pullback.passes.inline import copy_body
from pullback.passes.segments import AGAIN
from pullback.passes.tape import Chooser, Kept, Reads, packed, unpacked
from pullback.passes.undo import Chain, in_order


def reverse(region: Region, body: Sequence[Instr]) -> None:
    """Go backwards through the instructions of a block."""
    for instr in reversed(body):
        region.at = instr
        region.builder.loc = instr.loc
        if not instr.blocks:
            region.visit(instr)
        elif instr.op.name == "if":
            reverse_if(region, instr)
        else:
            reverse_loop(region, instr)


# -- what loops and branches have in common -----------------------------------------------------------------------------
class Closed:
    """A block and its reversal once it is decided what the tapes keep.

    ``forward`` are the instructions of the forward block, pushes included; ``reverse`` builds the reverse block: it has popped,
    made again what is cheap, and done the adjoint instructions. ``mapped`` gives what a value of those is called there.
    """

    def __init__(
        self,
        region: Body | Branch,
        body: Sequence[Instr],
        roots: Sequence[Value],
        trip: Value | None = None,
        given: Sequence[Value] = (),
    ):
        """``trip``: the number of the reverse trip of a ``for``; ``given``: parameters that the reverse block has anyway."""
        region.outer.negative |= region.negative
        self.forward = region.forward(body)
        self.reverse = Builder(region.outer.builder)
        self._new: dict[Value, Value] = {}
        self._sizes: dict[str, Size] = {}
        index = region.params[:1]
        kept, adjoint = self._choose(region, roots, given if trip is None else index)
        if trip is not None:
            assert isinstance(region, Body) and region.bound is not None
            last = self.reverse.sub(region.bound, self.reverse.const(1, i64))
            self._new[index[0]] = self.reverse.sub(last, trip)
        order = {out: k for k, instr in enumerate(self.forward) for out in instr.outs}
        again = [(order[instr.outs[0]], instr) for instr in kept.remade]
        for value in kept.taped:
            taken = self._keep(region, value)
            if taken is not None:
                again.append((order[value], taken))
        again.sort(key=lambda pair: pair[0])
        copy_body(self.reverse, in_order([*(instr for _, instr in again), *adjoint]), self._sizes, self._new)
        self.roots = [self.mapped(root) for root in roots]
        self.firsts = [self.mapped(u.chain.versions[0]) for u in self.undone]

    def _choose(self, region: Body | Branch, roots: Sequence[Value], index: Sequence[Value]) -> tuple[Kept, list[Instr]]:
        """What is kept and the adjoint instructions that are done; sets ``undone``. See Note [Undo]."""

        def chooser(adjoint: list[Instr], free: Sequence[Value], chains: Sequence[Chain], blocked: set[Value]) -> Chooser:
            reads = Reads(dict.fromkeys(roots))
            reads.add(adjoint)
            return Chooser(self.forward, region.params, reads, free, chains, blocked, region.overwritten)

        chains = [u.chain for u in region.undos]
        rigid = {version for chain in chains if not chain.plain for version in chain.versions}
        adjoint = _live(region, region.without(chains), roots)
        kept = chooser(adjoint, index, chains, rigid).run()
        self.undone = [u for u in region.undos if u.chain in kept.undone or u.wanted]
        if self.undone:
            rejected = [chain for chain in chains if chain not in [u.chain for u in self.undone]]
            firsts = [u.chain.versions[0] for u in self.undone]
            adjoint = _live(region, region.without(rejected), (*roots, *firsts))
            free = [*index]
            for u in self.undone:
                if u.chain in kept.undone:
                    free += u.chain.versions
                else:  # it is there for the block around only
                    rigid.update(u.chain.versions)
                    free.append(u.chain.versions[-1])
                self._new[u.chain.versions[-1]] = u.last
            kept = chooser(adjoint, free, (), rigid).run()
        return kept, adjoint

    def mapped(self, value: Value) -> Value:
        return self._new.get(value, value)

    def rest(self, thread: Thread) -> Value:
        """The version of a tape with which the reverse block ends; where nobody pops it is the one that it began with."""
        return self._new.get(thread.rest, thread.top)

    def _keep(self, region: Body | Branch, value: Value) -> Instr | None:
        """Push at the end of the forward block, pop at the beginning of the reverse one.

        A value whose shape is not known outside is kept within its bounds; the instruction that takes it out again is returned.
        """
        b = Builder(loc=self.reverse.loc)
        pushed = packed(b, value, region.facts.bounds)
        kind = StackType(pushed.type)
        end, rest = Value("tape", kind), Value("tape", kind)
        thread = region.thread(pushed.type, end, rest, ())
        self.forward += [*b.body, Instr(OPS["stack.push"], (end,), (thread.start, pushed), {}, (), self.reverse.loc)]
        self._new[rest], popped = self.reverse.emit(OPS["stack.pop"], (thread.top,), name=value.name)
        self._new[rest].name = "tape"
        if pushed is value:
            self._new[value] = popped
            return None
        return unpacked(value, popped, self.reverse.loc)


def _live(region: Region, body: Sequence[Instr], roots: Sequence[Value]) -> list[Instr]:
    """What ``roots`` need, and of the tapes that are popped for it the versions that are left."""
    found = live_body(body, roots)
    read = {arg for instr in inside(found) for arg in instr.args}
    return live_body(body, (*roots, *(t.rest for t in region.threads if t.top in read)))


def _block(old: Block, params: Iterable[Value], body: Sequence[Instr], ends: Iterable[Value]) -> Block:
    """``old`` with other contents."""
    end = old.body[-1]
    return Block(tuple(params), (*body, Instr(end.op, (), tuple(ends), end.attrs, (), end.loc)))


# -- branches ---------------------------------------------------------------------------------------------------------
def reverse_if(outer: Region, instr: Instr) -> None:
    seeds = [(k, outer.cotangents[out]) for k, out in enumerate(instr.outs) if out in outer.cotangents]
    branches = [Branch(outer, block) for block in instr.blocks]
    _undo_in_if(outer, instr, branches)
    if not seeds and not any(branch.undos for branch in branches):
        return
    for branch, block in zip(branches, instr.blocks, strict=True):
        for k, ct in seeds:
            branch.contribute(block.results[k], Derivative(ct.value, None, ct.wild))
        reverse(branch, block.body[:-1])
    touched = list(dict.fromkeys(v for branch in branches for v in branch.cotangents if v not in branch.local))
    totals = [[branch.total(v) for v in touched] for branch in branches]
    parts = [Closed(branch, block.body[:-1], t) for branch, block, t in zip(branches, instr.blocks, totals, strict=True)]
    _keep_in_if(outer, instr, branches, parts)
    blocks = []
    for number, part in enumerate(parts):
        rests = [part.rest(t) if k == number else t.top for k, branch in enumerate(branches) for t in branch.threads]
        firsts = [first for first, u in zip(part.firsts, part.undone, strict=True) if u.wanted]
        blocks.append(part.reverse.close("yield", (*part.roots, *firsts, *rests)))
    outs = [adjoint_of(v) for v in touched]
    restored = [u.chain.versions[0] for u in branches[0].undos if u.wanted]
    rests = [rest for branch in branches for _, rest in branch.outs]
    outer.builder.body.append(Instr(instr.op, (*outs, *restored, *rests), instr.args, {}, tuple(blocks), instr.loc))
    wild = outer.facts.wild(instr) or any(ct.wild for _, ct in seeds)
    for value, out in zip(touched, outs, strict=True):
        before = outer.current(value)
        outer.cotangents[value] = Derivative(out, None, wild or (before is not None and before.wild))


def _undo_in_if(outer: Region, instr: Instr, branches: Sequence[Branch]) -> None:
    """Arrays that the branches update are restored if their last version is there, and handed on if the block around asks."""
    for k, out in enumerate(instr.outs):
        wanted = out in outer.versions
        chains = outer.facts.chains.of_branches(instr, k) if wanted or isinstance(outer, Whole) else None
        if chains is not None and (wanted or any(chain.steps for chain in chains)):
            for branch, chain in zip(branches, chains, strict=True):
                branch.undo(chain, out, wanted)


def _keep_in_if(outer: Region, instr: Instr, branches: Sequence[Branch], parts: Sequence[Closed]) -> None:
    """The forward ``if`` with its tapes: the branch not taken hands them on as they are."""
    blocks = []
    for number, (part, block) in enumerate(zip(parts, instr.blocks, strict=True)):
        ends = [t.end if k == number else t.start for k, branch in enumerate(branches) for t in branch.threads]
        blocks.append(_block(block, (), part.forward, (*block.results, *ends)))
    outs = tuple(end for branch in branches for end, _ in branch.outs)
    outer.instead[instr] = Instr(instr.op, (*instr.outs, *outs), instr.args, instr.attrs, tuple(blocks), instr.loc)


# -- loops ------------------------------------------------------------------------------------------------------------
def reverse_loop(outer: Region, instr: Instr) -> None:
    facts, block = outer.facts, instr.blocks[-1]
    moving = facts.activity.active & facts.activity.useful
    live = [c for c in carried(instr) if c[1][-1] in moving or c[-1] in moving]
    if not live and not any(out in outer.versions for out in instr.outs):
        return
    given = [outer.current(out) for *_, out in live]
    wild = facts.wild(instr) or any(ct is not None and ct.wild for ct in given)
    starts = [outer.empty(c[-1].type) if ct is None else ct.value for c, ct in zip(live, given, strict=True)]
    seeds = [adjoint_of(out) for *_, out in live]
    trip = Value("trip", Type(i64)) if instr.op.name == "for" else None
    body = Body(outer, block, wild, None if trip is None else instr.args[0])
    _undo_in_loop(outer, instr, body)
    for (_, _, result, _), seed in zip(live, seeds, strict=True):
        body.contribute(result, Derivative(seed, None, wild))
    reverse(body, block.body[:-1])
    ends = [body.total(params[-1]) for _, params, _, _ in live]
    outside = list(body.accumulators)
    starts += [outer.total(v) for v in outside]
    ends += [body.total(v) for v in outside]

    if "binomial" in instr.attrs:
        outs = _reverse_binomial(outer, instr, body, starts, seeds, ends)
    else:
        outs = _reverse_trips(outer, instr, body, starts, seeds, ends, trip)
    for value, out in zip(outside, outs[len(live) :], strict=True):
        outer.cotangents[value] = Derivative(out, None, wild)
    for (init, *_), out in zip(live, outs, strict=False):
        out.name = out.name or (f"{init.name}_adj" if init.name else "")
        outer.contribute(init, Derivative(out, None, wild))


def _reverse_trips(
    outer: Region,
    instr: Instr,
    body: Body,
    starts: Sequence[Value],
    seeds: Sequence[Value],
    ends: Sequence[Value],
    trip: Value | None,
) -> Sequence[Value]:
    """The loop that runs the trips backwards, with the cotangents from ``starts`` to ``ends``; what they are in the end."""
    part = Closed(body, instr.blocks[-1].body[:-1], ends, trip)
    outs = [Value(seed.name, seed.type) for seed in (*seeds, *body.accumulators.values())]
    lasts, restored = _restored_by(instr, part)
    if "again" in instr.attrs:
        around, count, lasts = _run_again(outer, instr, body, part, lasts)
    else:
        around = [_laid(outer, thread) for thread in body.threads]
        before, taping, count = _taping(instr, body, part, around)
        outer.before.setdefault(instr, []).extend(before)
        outer.instead[instr] = taping
    params = (*seeds, *body.accumulators.values(), *(u.last for u in part.undone), *(t.top for t in body.threads))
    trip = trip or Value("trip", Type(i64))
    reverse = part.reverse.close("yield", (*part.roots, *part.firsts, *map(part.rest, body.threads)), (trip, *params))
    args = (count, *starts, *lasts, *(t.top for t in around))
    all_outs = (*outs, *restored, *(t.rest for t in around))
    outer.builder.body.append(Instr(OPS["for"], all_outs, args, {}, (reverse,), instr.loc))
    return outs


def _reverse_binomial(
    outer: Region, instr: Instr, body: Body, starts: Sequence[Value], seeds: Sequence[Value], ends: Sequence[Value]
) -> Sequence[Value]:
    """The same from states that are kept at some trips only; see Note [Binomial checkpoints]."""
    part = Closed(body, instr.blocks[-1].body[:-1], ends, None, body.params)
    assert not body.threads and not part.undone, "all that a unit needs comes from its state"
    unit = Unit(instr, (*seeds, *body.accumulators.values()), part.reverse.body, part.roots)
    return reversing(outer.builder, unit, *keeping(outer, instr), starts)


def _undo_in_loop(outer: Region, instr: Instr, body: Body) -> None:
    for k, (init, params, result, out) in enumerate(carried(instr)):
        chain = outer.facts.chains.of_loop(instr, k)
        if chain is not None:
            body.undo(chain, Value(params[-1].name, result.type), out in outer.versions and init in outer.versions)


def _restored_by(instr: Instr, part: Closed) -> tuple[list[Value], list[Value]]:
    """Of the arrays that the reversed loop restores, the last versions, with which it begins, and the first ones; these are
    known by the names of the forward loop's initial values where the block around asks for them."""
    of = {params[-1]: (init, out) for init, params, _, out in carried(instr)}
    lasts, firsts = [], []
    for u in part.undone:
        init, out = of[u.chain.versions[0]]
        lasts.append(out)
        firsts.append(init if u.wanted else Value(init.name, init.type))
    return lasts, firsts


def _laid(outer: Region, thread: Thread) -> Thread:
    """A tape of a loop's body as the block around the loop sees it."""
    kind = thread.start.type
    return outer.thread(thread.element, Value("tape", kind), Value("tape", kind), thread.trips)


def _run_again(
    outer: Region, instr: Instr, body: Body, part: Closed, lasts: Sequence[Value]
) -> tuple[list[Thread], Value, list[Value]]:
    """A loop of Note [Segments] makes its tapes within the reverse pass. The tapes there, the trips, and the arrays with which
    undoing begins."""
    around = []
    for thread in body.threads:
        start = outer.builder.emit(OPS["stack.new"], (), {"element": thread.element})[0]
        around.append(Thread(thread.element, start, Value("tape", thread.start.type), start, Value("tape", thread.start.type)))
    before, taping, count = _taping(instr, body, part, around)
    new: dict[Value, Value] = {}
    copy_body(outer.builder, (*before, taping), {}, new)
    for thread in around:
        thread.top = new[thread.end]
    return around, new.get(count, count), [new[last] for last in lasts]


def _taping(instr: Instr, body: Body, part: Closed, around: Sequence[Thread]) -> tuple[list[Instr], Instr, Value]:
    """The forward loop with its tapes, what comes before it, and the number of its trips, which a ``while`` counts."""
    block = instr.blocks[-1]
    args, outs = [t.start for t in around], [t.end for t in around]
    params, ends = [t.start for t in body.threads], [t.end for t in body.threads]
    count = instr.args[0]
    before: list[Instr] = []
    blocks = []
    if instr.op.name == "while":
        b = Builder(loc=instr.loc)
        args.append(b.const(0, i64))
        before = b.body
        params.append(Value("count", Type(i64)))
        b = Builder(loc=instr.loc)
        ends.append(b.add(params[-1], b.const(1, i64)))
        part.forward += b.body
        count = Value("count", Type(i64))
        outs.append(count)
        condition = instr.blocks[0]
        again = (Value(p.name, p.type) for p in params)
        blocks.append(Block((*condition.params, *again), condition.body))
    blocks.append(_block(block, (*block.params, *params), part.forward, (*block.results, *ends)))
    outs_, args_ = (*instr.outs, *outs), (*instr.args, *args)
    attrs = {name: value for name, value in instr.attrs.items() if name not in AGAIN}  # this one is not to be run again
    return before, Instr(instr.op, outs_, args_, attrs, tuple(blocks), instr.loc), count
