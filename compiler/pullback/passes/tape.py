"""What a reversed block keeps of its forward run, and what it makes again.

Note [Keep or make again]
The reverse block reads values of the forward block. Each is either kept (pushed on a tape, popped going back) or made again
from kept ones. The least to keep is a minimum vertex cut between what cannot be made again (the block's parameters, results of
nested blocks and of costly ops) and what is read, each value weighing its bytes; of equal cuts the one nearest to the readers,
which makes least again. Decisions (conditions, trip counts, indices that come from floating-point numbers) are kept as they
were: computed a second time, by other instructions, they might come out otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pullback.ir.core import Builder, Instr, Loc, Value, inside, sizes_in, symbol_of
from pullback.ir.dims import Size, symbols, upper_bound
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, Fold, General, Routine, Update, Weighted
from pullback.ir.types import StackType, Type, f64
from pullback.passes.undo import Chain

SMALL = 64  # elements up to which a reduction, a product or an update is as cheap to do again as to keep
TYPICAL = 1000  # what a length that is not known counts as
LARGEST = 4000  # values above which a cut is not looked for: either what is read is kept or what it comes from
REPEATABLE = ("check_index", "match")  # effects that may happen again: what passed once passes again


@dataclass(slots=True)
class Kept:
    """``taped`` and ``remade`` are in the order of the forward block; ``undone`` are the chains that are worth their tape."""

    taped: list[Value]
    remade: list[Instr]
    undone: list[Chain]


@dataclass(slots=True)
class Reads:
    """What instructions read: values, those that decide which way they go, symbols. What they make themselves is left out."""

    values: dict[Value, None] = field(default_factory=dict)
    decisions: set[Value] = field(default_factory=set)
    sizes: dict[str, None] = field(default_factory=dict)

    def add(self, body: Iterable[Instr]) -> None:
        made: set[Value] = set()
        for instr in inside(body):
            made.update(instr.outs)
            self.values.update(dict.fromkeys(instr.args))
            self.sizes.update(dict.fromkeys(sorted(symbols(sizes_in(instr)))))
            if instr.op.name in ("if", "for"):
                self.decisions.add(instr.args[0])
        for value in made:
            self.values.pop(value, None)


class Chooser:
    """What to keep of the block ``forward`` with ``params`` so that what is in ``reads`` can be had again.

    Values in ``free`` are there without being kept, and so is what neither ``params`` nor ``forward`` defines. The versions of
    ``chains`` are there if these are undone; nothing is made again from values in ``blocked``; those in ``stuck`` are kept as
    they were, by nature.
    """

    def __init__(
        self,
        forward: Sequence[Instr],
        params: Iterable[Value],
        reads: Reads,
        free: Iterable[Value] = (),
        chains: Sequence[Chain] = (),
        blocked: Collection[Value] = (),
        stuck: Collection[Value] = (),
    ):
        self.made_by = {out: instr for instr in forward for out in instr.outs}
        self.order = {instr: k for k, instr in enumerate(forward)}
        self.places = {v: k for k, v in enumerate((*params, *self.made_by))}
        for value in free:
            self.places.pop(value, None)
        self.counts = {symbol: instr for instr in forward if (symbol := symbol_of(instr)) is not None}
        self.reads, self.blocked, self.stuck = reads, blocked, stuck
        self.needed: dict[Value, None] = {v: None for v in self.reads.values if v in self.places}
        self.below: dict[Value, tuple[Value, ...]] = {}  # of each value that may be made again, what it is made from
        self.chains = {Value("undo", Type(f64)): chain for chain in chains}  # each with a value that stands for its tape
        self.undo = {version: tape for tape, chain in self.chains.items() for version in chain.versions}

    def run(self) -> Kept:
        self.explore()
        cut = self.cut()
        remade: dict[Instr, None] = {}
        for value in self.wanted(cut):
            instr = self.made_by.get(value)
            if value not in cut and instr is not None:
                remade[instr] = None
        for symbol in self.symbols:
            remade[self.counts[symbol]] = None
        undone = [chain for tape, chain in self.chains.items() if tape in cut]
        taped = sorted((v for v in cut if v not in self.chains), key=self.places.__getitem__)
        return Kept(taped, sorted(remade, key=self.order.__getitem__), undone)

    def explore(self) -> None:
        """Find what each needed value can be made from, and the symbols that have to be defined again."""
        self.symbols: dict[str, None] = {}
        pending = list(self.needed)
        sizes = list(self.reads.sizes)
        while pending or sizes:
            while sizes:
                symbol = sizes.pop()
                if symbol in self.counts and symbol not in self.symbols:
                    self.symbols[symbol] = None
                    instr = self.counts[symbol]
                    sizes.extend(symbols(sizes_in(instr)))
                    for arg in instr.args:
                        self.reads.decisions.add(arg)
                        if arg in self.places:
                            self.needed[arg] = None
                            pending.append(arg)
            while pending:
                value = pending.pop()
                if value in self.below or value not in self.places:
                    continue
                if value in self.undo:
                    self.below[value] = (self.undo[value],)
                    continue
                sizes.extend(symbols(value.type.shape) if isinstance(value.type, Type) else ())
                instr_ = self.made_by.get(value)
                if instr_ is None or not self.repeats(instr_):
                    continue
                self.below[value] = tuple(a for a in instr_.args if a in self.places)
                sizes.extend(symbols(sizes_in(instr_)))
                pending.extend(self.below[value])

    def repeats(self, instr: Instr) -> bool:
        """Whether to do ``instr`` again is right and cheap."""
        op = instr.op
        if symbol_of(instr) is not None:
            return True
        if instr.blocks or len(instr.outs) != 1 or (op.effect and op.name not in REPEATABLE):
            return False
        if instr.out in self.stuck or any(a in self.blocked for a in instr.args):
            return False
        kind = instr.out.type
        if isinstance(kind, StackType) or any(isinstance(a.type, StackType) for a in instr.args):
            return False
        if not kind.is_float and any(a.type.is_float for a in instr.args):
            return kind.dtype.kind == "b" and kind.rank > 0 and instr.out not in self.reads.decisions
        if isinstance(op, Elementwise):
            return True
        costly = isinstance(op, (Weighted, General)) or isinstance(op.lower, (Fold, Routine, Update))
        return not costly or all(_known_size(v.type) <= SMALL for v in (*instr.args, instr.out))

    def wanted(self, cut: set[Value]) -> Iterator[Value]:
        """What the reverse block needs, down to the cut."""
        seen: set[Value] = set()
        pending = list(self.needed)
        while pending:
            value = pending.pop()
            if value not in seen:
                seen.add(value)
                yield value
                if value not in cut:
                    pending.extend(self.below.get(value, ()))

    def weight(self, value: Value) -> int:
        if value in self.chains:
            return self.tape_of(self.chains[value])
        total = value.type.dtype.bytes
        for size in value.type.shape:
            total *= size if isinstance(size, int) else TYPICAL
        return max(int(total), 1) * (2 if symbols(value.type.shape) & self.counts.keys() else 1)

    def tape_of(self, chain: Chain) -> int:
        """What the overwritten elements weigh; of a step with blocks it is not known how many there are."""
        return sum(TYPICAL if step.blocks else self.weight(step.args[-1]) for step in chain.steps) + 1

    def cut(self) -> set[Value]:
        nodes = list(self.wanted(set()))
        sources = [v for v in nodes if v not in self.below]
        if all(v in self.needed for v in sources):
            return set(sources)
        if len(nodes) > LARGEST:
            direct = {v for v in self.needed if self.below.get(v, (v,))}
            return min(set(sources), direct, key=lambda values: sum(map(self.weight, values)))
        return minimum_cut(self.below, sources, list(self.needed), {v: self.weight(v) for v in nodes})


# -- shapes that are not known outside ----------------------------------------------------------------------------------
def bound_of(instr: Instr) -> Size:
    """The most that the symbol which ``instr`` defines can be."""
    bound: Size = instr.attrs["bound"] if instr.op.name == "length" else instr.args[0].type.shape[0]
    return bound


def packed(b: Builder, value: Value, bounds: Mapping[str, Size]) -> Value:
    """``value`` at the beginning of an array as large as it can get, if its shape has symbols in ``bounds``."""
    if isinstance(value.type, StackType) or symbols(value.type.shape).isdisjoint(bounds):
        return value
    shape = tuple(upper_bound(size, bounds) for size in value.type.shape)
    room = b.zeros(value.type.with_shape(shape))
    found: Value = b.slice_set(room, value, starts=(0,) * len(shape), steps=(1,) * len(shape))
    return found


def unpacked(value: Value, room: Value, loc: Loc) -> Instr:
    """The instruction that takes ``value`` out again."""
    rank = value.type.rank
    attrs = {"starts": (0,) * rank, "sizes": value.type.shape, "steps": (1,) * rank}
    return Instr(OPS["slice"], (value,), (room,), attrs, (), loc)


def _known_size(kind: Type) -> int:
    total = 1
    for size in kind.shape:
        total *= size if isinstance(size, int) else TYPICAL
    return total


def minimum_cut(
    below: Mapping[Value, tuple[Value, ...]], sources: Sequence[Value], readers: Sequence[Value], weights: Mapping[Value, int]
) -> set[Value]:
    """The lightest set of values that every path from a source to a reader meets; of the lightest the nearest to the readers.

    ``below`` gives the values from which each is made. Flow is pushed along shortest paths (Edmonds and Karp 1972) backwards,
    from readers to sources, through each value's own capacity.
    """
    flow = dict.fromkeys(weights, 0)  # through the value
    along: dict[tuple[Value, Value], int] = {}  # from a value to one it is made from
    above: dict[Value, list[Value]] = {v: [] for v in weights}
    for value, parts in below.items():
        for part in parts:
            if value in above and part in above:
                above[part].append(value)
    ends = set(sources)

    # a node of the search is (value, entered): on the readers' side of a value's capacity or behind it
    def search() -> tuple[dict[tuple[Value, bool], tuple[Value, bool] | None], tuple[Value, bool] | None]:
        came: dict[tuple[Value, bool], tuple[Value, bool] | None] = dict.fromkeys(((v, True) for v in readers), None)
        queue = list(came)
        for node in queue:
            value, front = node
            if front:
                steps = [(value, False)] if flow[value] < weights[value] else []
                steps += [(up, False) for up in above[value] if along.get((up, value), 0) > 0]
            else:
                if value in ends:
                    return came, node
                steps = [(part, True) for part in below.get(value, ())]
                steps += [(value, True)] if flow[value] > 0 else []
            for step in steps:
                if step not in came:
                    came[step] = node
                    queue.append(step)
        return came, None

    while True:
        came, end = search()
        if end is None:
            return {v for v in weights if (v, True) in came and (v, False) not in came}
        path = [end]
        while (before := came[path[-1]]) is not None:
            path.append(before)
        path.reverse()
        pairs = list(pairwise(path))
        room = min(_room(a, b, flow, along, weights) for a, b in pairs)
        for (value, front), (other, _) in pairs:
            if value is other:
                flow[value] += room if front else -room
            elif front:
                along[other, value] -= room
            else:
                along[value, other] = along.get((value, other), 0) + room


def _room(
    a: tuple[Value, bool],
    b: tuple[Value, bool],
    flow: Mapping[Value, int],
    along: Mapping[tuple[Value, Value], int],
    weights: Mapping[Value, int],
) -> int:
    value, front = a
    other, _ = b
    if value is other:
        return weights[value] - flow[value] if front else flow[value]
    return along[other, value] if front else 1 << 62
