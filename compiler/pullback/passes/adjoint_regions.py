"""The blocks of a function while it is reversed: what each knows of its values, its cotangents and its tapes.

Note [Threads]
A tape is one stack from the beginning to the end of the function. It passes through every block around the one that pushes,
as a value that loops carry and branches yield, and in the reverse pass through the mirrored blocks, where it is popped. A
``Thread`` is a tape as seen by one block: the version with which it begins and ends, forward (``start``, ``end``) and in
reverse (``top``, ``rest``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.errors import UnsupportedError
from pullback.ir.core import Block, Builder, Func, Instr, Value, inside, symbol_of, walk
from pullback.ir.dims import Size
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, Update
from pullback.ir.types import StackType, Type, i64
from pullback.passes.activity import Activity
from pullback.passes.adjoint_line import Line
from pullback.passes.chain import Derivative, may_be_infinite
from pullback.passes.rewrite import Definitions
from pullback.passes.tape import bound_of
from pullback.passes.undo import Chain, Chains, reading, restoring

Trips = tuple[Value, ...] | None  # bounds of the loops around a push, from the inside; None if it may happen less often


@dataclass(slots=True)
class Facts:
    """What all blocks share."""

    activity: Activity
    defs: Definitions
    bounds: dict[str, Size]  # of symbols that the function computes
    chains: Chains

    def wild(self, instr: Instr) -> bool:
        """Whether a cotangent that went through the blocks may be infinite."""
        return any(may_be_infinite(inner, self.defs) for inner in inside((instr,)))


@dataclass(slots=True)
class Thread:
    """See Note [Threads]."""

    element: Type
    start: Value
    end: Value
    top: Value
    rest: Value
    trips: Trips = None  # of the loops within this block


@dataclass(slots=True)
class Undo:
    """A chain that can be undone: ``last`` is what its last version is called in the reverse block, ``wanted`` whether the
    block around may need the first one."""

    chain: Chain
    last: Value
    wanted: bool


class Region(Line, ABC):
    """The reversal of one block."""

    def __init__(self, facts: Facts, builder: Builder, params: Sequence[Value], body: Sequence[Instr]):
        super().__init__(builder, facts.activity.active, facts.defs)
        self.facts = facts
        self.params = list(params)
        self.local = {*params, *(out for instr in body for out in instr.outs)}
        self.before: dict[Instr, list[Instr]] = {}  # added to the forward block, before an instruction
        self.instead: dict[Instr, Instr] = {}  # loops and branches with their tapes
        self.threads: list[Thread] = []
        self.at: Instr | None = None
        self.undos: list[Undo] = []
        self.versions: set[Value] = set()  # of the arrays that can be restored
        self.overwritten: set[Value] = set()  # elements that the forward block reads for that

    def visit(self, instr: Instr) -> None:
        if isinstance(instr.op, Elementwise):  # most instructions
            super().visit(instr)
            return
        if isinstance(instr.op.lower, Update) and instr.out in self.versions and instr.args[0] in self.versions:
            read, old = reading(instr)
            self.before.setdefault(instr, []).append(read)
            self.overwritten.add(old)
            self.builder.body.append(restoring(instr, old))
        match instr.op.name:
            case "stack.push":
                self.push(instr)
            case "stack.pop":
                self.pop(instr)
            case _:
                super().visit(instr)

    def push(self, instr: Instr) -> None:
        """The cotangents of what was pushed are themselves a tape, popped here."""
        ct = self.current(instr.out) if instr.out in self.cotangents else None
        if ct is not None:
            rest, element = self.builder.emit(OPS["stack.pop"], (ct.value,))
            self.contribute(instr.args[0], Derivative(rest))
            self.contribute(instr.args[1], Derivative(element, None, True))

    def pop(self, instr: Instr) -> None:
        """... and pushed where it was popped."""
        rest, element = (self.cotangents.get(out) for out in instr.outs)
        if rest is None and element is None:
            return
        tape = self.empty(instr.args[0].type) if rest is None else rest.value
        value = self.empty(instr.outs[1].type) if element is None else element.value
        self.contribute(instr.args[0], Derivative(self.builder.emit(OPS["stack.push"], (tape, value))[0]))

    def contribute(self, value: Value, contribution: Derivative | None) -> None:
        if contribution is not None and isinstance(value.type, StackType) and value in self.active and self.current(value):
            raise UnsupportedError("the adjoint of a tape that is read in two places is not available")
        super().contribute(value, contribution)

    def empty(self, kind: Type | StackType) -> Value:
        """The cotangent of what nothing depends on."""
        if isinstance(kind, StackType):
            return self.builder.emit(OPS["stack.new"], (), {"element": kind.element})[0]
        return self.builder.zeros(kind)

    def total(self, value: Value) -> Value:
        found = self.current(value)
        return self.empty(value.type) if found is None else found.value

    # -- arrays that are updated in place ---------------------------------------------------------------------------
    def undo(self, chain: Chain, last: Value, wanted: bool) -> bool:
        """Make ready to restore the versions of ``chain``; false if one of them belongs to another chain already."""
        if not self.versions.isdisjoint(chain.versions):
            return False
        self.undos.append(Undo(chain, last, wanted))
        self.versions.update(chain.versions)
        return True

    def without(self, chains: Sequence[Chain]) -> list[Instr]:
        """The adjoint instructions without those that restore the versions of ``chains``."""
        versions = {version for chain in chains for version in chain.versions}
        found = []
        for instr in self.builder.body:
            if any(out in versions for out in instr.outs):
                if not instr.blocks:
                    continue
                outs = tuple(Value(out.name, out.type) if out in versions else out for out in instr.outs)
                instr = Instr(instr.op, outs, instr.args, instr.attrs, instr.blocks, instr.loc)
            found.append(instr)
        return found

    # -- the forward block ------------------------------------------------------------------------------------------
    def forward(self, body: Sequence[Instr]) -> list[Instr]:
        found: list[Instr] = []
        for instr in body:
            found.extend(self.before.get(instr, ()))
            found.append(self.instead.get(instr, instr))
        return found

    @abstractmethod
    def thread(self, element: Type, end: Value, rest: Value, trips: Trips) -> Thread:
        """Lay a tape through this block; ``end`` and ``rest`` are the versions with which the block within leaves it."""


class Whole(Region):
    """The function itself. Its tapes begin here, and the reverse pass, which is in the same block, sees its values."""

    def __init__(self, func: Func, activity: Activity):
        defs = Definitions()
        defs.add(walk(func.block))
        bounds = {s: bound_of(i) for i in walk(func.block) if (s := symbol_of(i)) is not None}
        super().__init__(Facts(activity, defs, bounds, Chains()), Builder(), func.params, func.body[:-1])
        self.builder.copied_symbols(func)

    def gradient(self, value: Value) -> Value:
        """The cotangent of ``value``, named for it."""
        found = self.cotangents.get(value)
        if found is None:
            return self.builder.zeros(value.type)
        if value.name and not found.value.name and found.value not in self.active:
            found.value.name = f"{value.name}_adj"
        return self.cleared(found.value)

    def thread(self, element: Type, end: Value, rest: Value, trips: Trips) -> Thread:
        b = Builder(loc=self.builder.loc)
        capacity: Value | None = None
        if trips is not None and all(bound in self.local for bound in trips):
            zero = b.const(0, i64)
            for bound in trips:
                count = b.maximum(bound, zero)
                capacity = count if capacity is None else b.mul(capacity, count)
        (start,) = b.emit(OPS["stack.new"], () if capacity is None else (capacity,), {"element": element})
        assert self.at is not None
        self.before.setdefault(self.at, []).extend(b.body)
        return Thread(element, start, end, end, rest)


class Body(Region):
    """The body of a loop. The cotangent of a value from outside is carried from trip to trip."""

    def __init__(self, outer: Region, block: Block, wild: bool, bound: Value | None):
        super().__init__(outer.facts, Builder(outer.builder), block.params, block.body[:-1])
        self.outer = outer
        self.wild = wild
        self.bound = bound
        self.accumulators: dict[Value, Value] = {}

    def current(self, value: Value) -> Derivative | None:
        found = self.cotangents.get(value)
        if found is None and value not in self.local and value in self.active:
            self.accumulators[value] = adjoint_of(value)
            found = self.cotangents[value] = Derivative(self.accumulators[value], None, self.wild)
        return found

    def thread(self, element: Type, end: Value, rest: Value, trips: Trips) -> Thread:
        kind = StackType(element)
        if trips is not None:
            trips = None if self.bound is None else (*trips, self.bound)
        self.threads.append(Thread(element, Value("tape", kind), end, Value("tape", kind), rest, trips))
        return self.threads[-1]


class Branch(Region):
    """One block of an ``if``. It goes on with the cotangents that values from outside have so far."""

    def __init__(self, outer: Region, block: Block):
        super().__init__(outer.facts, Builder(outer.builder), (), block.body[:-1])
        self.outer = outer
        self.outs: list[tuple[Value, Value]] = []  # what the ``if`` gives for each thread, forward and in reverse

    def current(self, value: Value) -> Derivative | None:
        found = self.cotangents.get(value)
        return self.outer.current(value) if found is None and value not in self.local else found

    def thread(self, element: Type, end: Value, rest: Value, trips: Trips) -> Thread:
        kind = StackType(element)
        self.outs.append((Value("tape", kind), Value("tape", kind)))
        around = self.outer.thread(element, *self.outs[-1], None)
        self.threads.append(Thread(element, around.start, end, around.top, rest))
        return self.threads[-1]


def adjoint_of(value: Value) -> Value:
    """A value for the cotangent of ``value``, named for it."""
    return Value(f"{value.name}_adj" if value.name else "", value.type)
