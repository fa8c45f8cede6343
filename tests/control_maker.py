"""How a random program with control flow is put together: choices of operands, decisions and places; blocks and loops.

What stands in the blocks comes from the steps in ``control_programs.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from pullback.ir.core import Builder, Value
from pullback.ir.dims import Size, evaluate, symbols
from pullback.ir.ops import OPS
from pullback.ir.types import Type, bool_, f64, i64

DEPTH = 4  # of nested blocks
WORK = 1500  # instructions that one call does, more or less
MANY = (17, 40, 150)  # trips with which a tape grows


@dataclass
class Scope:
    """A block being built: its builder, what it has defined so far, and the integers known to be places of an axis."""

    b: Builder
    parent: Scope | None = None
    values: list[Value] = field(default_factory=list)
    places: dict[Value, Size] = field(default_factory=dict)
    depth: int = 0
    times: int = 1  # how often the block runs at most
    fresh: int = 0  # how many of ``values`` are parameters

    def visible(self) -> list[Value]:
        """Values of the blocks around, then the block's own."""
        return [*(self.parent.visible() if self.parent else ()), *self.values]

    def known_places(self) -> dict[Value, Size]:
        return {**(self.parent.known_places() if self.parent else {}), **self.places}

    def child(self, trips: int = 1, params: Sequence[Value] = ()) -> Scope:
        return Scope(Builder(self.b), self, list(params), {}, self.depth + 1, self.times * max(trips, 1), len(params))

    def add(self, *values: Value) -> None:
        self.values.extend(values)


class Maker:
    """The choices. A step appends to a scope; one that finds nothing to work on does nothing."""

    def __init__(self, rng: np.random.Generator, sizes: dict[str, int], steps: Sequence[Callable[[Maker, Scope], None]]):
        self.rng = rng
        self.simple = steps
        self.sizes = sizes
        self.work = 0
        self.symbols = (f"k{k}" for k in count())

    # -- choosing -------------------------------------------------------------------------------------------------
    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, items: Sequence[object]) -> object:
        return items[int(self.rng.integers(len(items)))]

    def pick(self, scope: Scope, wanted: Callable[[Value], bool]) -> Value | None:
        """A visible value, recent ones and those of the innermost block more often."""
        own = [v for v in scope.values if wanted(v)]
        if own and self.chance(0.65):
            return own[-1 - int(self.rng.integers(min(len(own), 4)))]
        found = [v for v in scope.visible() if wanted(v)]
        return found[int(self.rng.integers(len(found)))] if found else None

    def number(self, size: Size) -> int | None:
        """A size as a number; None for a length that is known only when the program runs."""
        return None if symbols((size,)) - self.sizes.keys() else evaluate(size, self.sizes)

    def lasting(self, value: Value) -> bool:
        """Whether the type means something outside this block."""
        return not symbols(value.type.shape) - self.sizes.keys()

    def float(self, scope: Scope) -> Value:
        found = self.pick(scope, lambda v: v.type.is_float)
        assert found is not None
        return found

    def scalar(self, scope: Scope) -> Value:
        return self.of_type(scope, Type(f64))

    def of_type(self, scope: Scope, type: Type) -> Value:
        """A value of this type: one at hand, or one made from a scalar."""
        found = self.pick(scope, lambda v: v.type == type)
        if found is not None and self.chance(0.9):
            return found
        if type.dtype is bool_:
            scalar = self.condition(scope) if type.rank else scope.b.const(self.chance(0.5), bool_)
        elif type.dtype is i64:
            scalar = self.integer(scope) if type.rank else scope.b.const(int(self.rng.integers(-2, 5)), i64)
        elif type.rank:
            scalar = self.scalar(scope)
        else:
            scalar = scope.b.const(float(np.round(self.rng.normal(), 2)))
        return scope.b.spread(scalar, type.shape)

    def bounded(self, scope: Scope, value: Value) -> Value:
        return getattr(scope.b, ("tanh", "sin")[int(self.rng.integers(2))])(value)

    # -- integers and decisions -----------------------------------------------------------------------------------
    def integer(self, scope: Scope) -> Value:
        b = scope.b
        found = self.pick(scope, lambda v: v.type == Type(i64))
        if found is None or self.chance(0.2):
            return b.const(int(self.rng.integers(-2, 6)), i64)
        if self.chance(0.3):
            step = b.const(int(self.rng.integers(1, 4)), i64)
            return getattr(b, ("add", "sub", "mul")[int(self.rng.integers(3))])(found, step)
        return found

    def small(self, scope: Scope, value: Value, limit: int) -> Value:
        """``value`` brought into 0 .. limit - 1, so that integers do not grow."""
        return scope.b.mod(value, scope.b.const(limit, i64))

    def place(self, scope: Scope, size: Size) -> Value | None:
        """An i64 scalar within an axis; sometimes one that was negative."""
        b = scope.b
        known = [v for v, bound in scope.known_places().items() if bound == size]
        length = self.number(size)
        if known and (self.chance(0.6) or not length):
            index = known[-1 - int(self.rng.integers(min(len(known), 3)))]
        elif not length:
            return None
        elif self.chance(0.2):
            index = b.const(int(self.rng.integers(length)), i64)
        else:
            index = b.mod(self.integer(scope), b.dim(size))
        if self.chance(0.25):
            index = b.check_index(b.sub(index, b.dim(size)), size=size, axis=0)
        scope.places[index] = size
        return index

    def condition(self, scope: Scope) -> Value:
        b, kind = scope.b, int(self.rng.integers(9))
        made = self.pick(scope, lambda v: v.type == Type(bool_)) if kind < 2 else None
        if made is not None:
            return made if kind else b.logical_not(made)
        compare = getattr(b, ("lt", "le", "gt", "ge")[int(self.rng.integers(4))])
        if kind < 4:
            x = self.integer(scope)
            return compare(x, self.integer(scope)) if kind < 3 else b.eq(self.small(scope, x, 2), b.const(0, i64))
        array = self.pick(scope, lambda v: v.type.is_float and v.type.rank > 0) if kind == 4 else None
        if array is not None:
            hits = compare(array, self.of_type(scope, array.type))
            return (b.any if self.chance(0.5) else b.all)(hits, axes=tuple(range(array.type.rank)))
        threshold = b.const(float(np.round(self.rng.normal(0, 0.6), 2)))
        decided = compare(self.scalar(scope), threshold if self.chance(0.5) else self.scalar(scope))
        return b.logical_and(decided, self.condition(scope)) if kind == 5 and self.chance(0.5) else decided

    # -- blocks ---------------------------------------------------------------------------------------------------
    def statements(self, scope: Scope, steps: int) -> None:
        for _ in range(steps):
            start = len(scope.b.body)
            if scope.depth < DEPTH and scope.times < 60 and self.work < WORK and self.chance(0.4 - 0.07 * scope.depth):
                self.loop(scope) if self.chance(0.65) else self.branch(scope)
            else:
                self.simple[int(self.rng.integers(len(self.simple)))](self, scope)
            self.work += scope.times * (len(scope.b.body) - start)

    def steps(self) -> int:
        return int(self.rng.integers(1, 4))

    def branch(self, scope: Scope) -> None:
        condition = self.condition(scope)
        sources = [self.float(scope), *(self.pick(scope, self.lasting) for _ in range(int(self.rng.integers(3))))]
        types = [v.type for v in sources if v is not None and self.lasting(v)]
        arms = []
        for _ in range(2):
            inner = scope.child()
            self.statements(inner, self.steps() if self.chance(0.8) else 0)
            results = [self.outcome(inner, type) for type in types]
            arms.append(inner.b.close("yield", results))
        scope.add(*scope.b.emit(OPS["if"], [condition], {}, arms))

    def loop(self, scope: Scope) -> None:
        inits = [self.pick(scope, lambda v: v.type.is_float and self.lasting(v)) for _ in range(int(self.rng.integers(1, 4)))]
        inits += [self.pick(scope, self.lasting) for _ in range(int(self.rng.integers(2)))]
        carried = [v for v in inits if v is not None]
        if self.chance(0.2):
            carried.append(carried[0])  # starts alike
        if self.chance(0.05):
            carried = []
        (self.for_loop if self.chance(0.6) else self.while_loop)(scope, carried)

    def bound(self, scope: Scope) -> tuple[Value, int, Size | None]:
        """A loop's bound, how often it runs at most, and the axis whose places the counter runs through."""
        b, kind = scope.b, int(self.rng.integers(8))
        if scope.times == 1 and self.chance(0.06):
            many = int(self.one(MANY))
            return b.const(many, i64), many, None
        sizes = [s for v in scope.visible() for s in v.type.shape if self.lasting(v)]
        if kind < 3 and sizes:
            size = self.one(sizes)
            return b.dim(size), self.number(size), size
        if kind == 3:
            fixed = int(self.rng.integers(-1, 4))
            return b.const(fixed, i64), fixed, max(fixed, 0)
        if kind == 4 and (places := scope.known_places()):  # a triangle: up to, or from, the counter outside
            index = self.one(list(places))
            if self.chance(0.5):
                return b.sub(b.dim(places[index]), index), 5, None
            return index, 5, places[index]
        data = self.small(scope, self.integer(scope), 4)
        return (b.sub(data, b.const(2, i64)), 1, None) if kind == 5 else (data, 3, None)

    def for_loop(self, scope: Scope, inits: list[Value]) -> None:
        bound, trips, axis = self.bound(scope)
        counter, params = Value("i", Type(i64)), [Value("", v.type) for v in inits]
        inner = scope.child(trips, [counter, *params])
        if axis is not None:
            inner.places[counter] = axis
        self.statements(inner, self.steps())
        body = inner.b.close("yield", self.yields(inner, params), (counter, *params))
        scope.add(*scope.b.emit(OPS["for"], [bound, *inits], {}, [body]))

    def while_loop(self, scope: Scope, inits: list[Value]) -> None:
        """Ends after at most five trips, seldom many; mostly earlier, when the data say so."""
        limit = int(self.rng.integers(0, 6))
        if scope.times == 1 and self.chance(0.06):
            limit = int(self.one(MANY))
        first = scope.b.const(int(self.rng.integers(0, 2)), i64)
        inits = [first, *inits]
        here, inside = ([Value("", v.type) for v in inits] for _ in range(2))
        test = scope.child(limit + 1, here)
        go = test.b.lt(here[0], test.b.const(limit, i64))
        if self.chance(0.2):
            self.statements(test, 1)
        if self.chance(0.8):
            data = self.condition(test)
            go = test.b.logical_and(go, data) if self.chance(0.5) else test.b.logical_and(data, go)
        condition = test.b.close("yield", [go], here)
        inner = scope.child(limit, inside)
        self.statements(inner, self.steps())
        onward = inner.b.add(inside[0], inner.b.const(1, i64))
        body = inner.b.close("yield", [onward, *self.yields(inner, inside[1:])], inside)
        scope.add(*scope.b.emit(OPS["while"], inits, {}, [condition, body]))

    def yields(self, inner: Scope, params: list[Value]) -> list[Value]:
        """What is carried on: mostly something new of that type, sometimes itself, another one, or one from outside."""
        chosen: list[Value] = []
        for param in params:
            others = [v for v in (*params, *chosen) if v.type == param.type]
            if self.chance(0.08):
                chosen.append(param)
            elif self.chance(0.15):
                chosen.append(others[int(self.rng.integers(len(others)))])
            else:
                chosen.append(self.outcome(inner, param.type))
        return chosen

    def outcome(self, inner: Scope, type: Type) -> Value:
        """A value of this type for a block to give, if possible one that the block made."""
        made = [v for v in inner.values[inner.fresh :] if v.type == type]
        if made and self.chance(0.85):
            return made[-1 - int(self.rng.integers(min(len(made), 3)))]
        value = self.of_type(inner, type)
        if type.dtype is i64 and self.chance(0.8):
            return self.small(inner, inner.b.add(value, value), 7) if not type.rank else value
        if type.dtype is bool_ and not type.rank:
            return self.condition(inner)
        return self.bounded(inner, value) if type.is_float and self.chance(0.7) else value

    def results(self, scope: Scope) -> list[Value]:
        """Mostly what control flow gave, at least one float."""
        given = [v for instr in scope.b.body if instr.blocks for v in instr.outs if self.lasting(v)]
        floats = [v for v in (given or scope.values) if v.type.is_float] or [v for v in scope.values if v.type.is_float]
        chosen = [floats[-1 - int(self.rng.integers(min(3, len(floats))))]]
        for pool in (given, [v for v in scope.values if self.lasting(v)]):
            if pool and self.chance(0.6):
                chosen.append(pool[int(self.rng.integers(len(pool)))])
        return chosen
