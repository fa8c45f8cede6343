"""Random programs over small static arrays with loops, branches and tapes, for ``scalarize``.

Values stay bounded (``sin`` and ``tanh`` wrap what may grow). With ``exact`` only ops are used whose interpretation rounds each
element alone, and arguments hold infinities, NaN and negative zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim
from pullback.ir.ops import OPS
from pullback.ir.types import StackType, Type, f64, i64

SHAPES: tuple[tuple[int, ...], ...] = ((), (3,), (3,), (2, 2), (1,), (4,), (3, 3), (20,))
LONG = 5


def array_program(seed: int, exact: bool = False) -> tuple[Func, list[np.ndarray]]:
    """A function of three small arrays, a scalar, a long vector and an integer, and arguments for it."""
    rng = np.random.default_rng(seed)
    shapes = [(3,), SHAPES[int(rng.integers(1, len(SHAPES)))], (2, 2), (), (Dim.symbol("n"),)]
    params = [Value(f"x{k}", Type(f64, shape)) for k, shape in enumerate(shapes)]
    trips = Value("k", Type(i64))
    maker = _Maker(rng, exact)
    b = Builder()
    pool = [*params[:-1]]
    maker.long, maker.trips = params[-1], trips
    maker.fill(b, pool, int(rng.integers(2, 6)), 0)
    maker.control(b, pool, 0)
    maker.fill(b, pool, int(rng.integers(1, 4)), 0)
    results = [pool[-1], pool[-2], pool[int(rng.integers(len(pool)))]]
    func = Func("arrays", b.close("return", results, (*params, trips)))
    args = [rng.normal(size=[LONG if isinstance(n, Dim) else n for n in shape]) for shape in shapes]
    if exact:
        args = [_special(rng, a) for a in args]
    return func, [*map(np.asarray, args), np.asarray(rng.integers(0, 4))]


def _special(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    odd = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-310])[rng.integers(0, 6, np.shape(x))]
    return np.where(rng.random(np.shape(x)) < 0.3, odd, x)


class _Maker:
    def __init__(self, rng: np.random.Generator, exact: bool):
        self.rng = rng
        self.bounded = "abs" if exact else "tanh"  # NumPy's tanh of an array and of a scalar differ in the last bit
        self.steps: Sequence[Callable[..., Value | None]] = MOVES if exact else (*MOVES, *SUMS)
        self.long: Value
        self.trips: Value

    def pick(self, pool: Sequence[Value]) -> Value:
        recent = pool[-6:] if self.rng.random() < 0.7 else pool
        return recent[int(self.rng.integers(len(recent)))]

    def like(self, b: Builder, pool: Sequence[Value], type: Type) -> Value:
        """A value of this type, one at hand or one made."""
        same = [v for v in pool if v.type == type]
        if same and self.rng.random() < 0.8:
            return same[int(self.rng.integers(len(same)))]
        if self.rng.random() < 0.3:
            return b.const(self.rng.normal(size=type.shape))
        scalars = [v for v in pool if not v.type.rank]
        return b.spread(scalars[-1] if scalars else b.const(0.7), type.shape)

    def below(self, size: int) -> int:
        return int(self.rng.integers(size))

    def fill(self, b: Builder, pool: list[Value], count: int, depth: int) -> None:
        for _ in range(count):
            if depth and depth < 3 and self.rng.random() < 0.12:
                self.control(b, pool, depth)
                continue
            made = self.steps[self.below(len(self.steps))](self, b, pool)
            if made is not None:
                pool.append(made)

    def control(self, b: Builder, pool: list[Value], depth: int) -> None:
        (self.branch, self.loop, self.loop, self.repeat, self.taped)[self.below(5)](b, pool, depth)

    def starts(self, b: Builder, pool: Sequence[Value]) -> list[Value]:
        return [self.pick(pool) for _ in range(1 + self.below(3))]

    def carried(self, values: Sequence[Value]) -> list[Value]:
        return [Value(f"c{self.below(100)}", v.type) for v in values]

    def body(self, b: Builder, pool: Sequence[Value], depth: int, params: Sequence[Value]) -> list[Value]:
        """New values of the parameters' types, made in a block."""
        inner = [*pool, *params]
        self.fill(b, inner, 2 + self.below(4), depth + 1)
        return [self.like(b, inner[len(pool) :][::-1] if self.rng.random() < 0.8 else inner, p.type) for p in params]

    def branch(self, b: Builder, pool: list[Value], depth: int) -> None:
        models = self.starts(b, pool)
        scalars = [v for v in pool if not v.type.rank]
        condition = b.lt(scalars[self.below(len(scalars))], b.const(0.1)) if scalars else b.const(True, OPS_BOOL)
        blocks = []
        for _ in range(2):
            inner = Builder(b)
            results = [self.like(inner, self.body(inner, pool, depth, [v])[::-1], v.type) for v in models]
            blocks.append(inner.close("yield", results))
        pool.extend(b.emit(OPS["if"], (condition,), {}, blocks))

    def loop(self, b: Builder, pool: list[Value], depth: int) -> None:
        inits, trip = self.starts(b, pool), Value("i", Type(i64))
        params, inner = self.carried(inits), Builder(b)
        results = self.body(inner, pool, depth, params)
        if self.rng.random() < 0.3:  # an element at an index known only at run time
            place = next((k for k, p in enumerate(params) if p.type.rank == 1), None)
            if place is not None:
                at = inner.check_index(inner.minimum(trip, inner.const(0, i64)), size=params[place].type.shape[0], axis=0)
                results[place] = inner.scatter_set(results[place], at, inner.const(0.25))
        block = inner.close("yield", results, (trip, *params))
        pool.extend(b.emit(OPS["for"], (self.trips, *inits), {}, (block,)))

    def repeat(self, b: Builder, pool: list[Value], depth: int) -> None:
        """A ``while`` with a counter."""
        inits = [*self.starts(b, pool), b.const(0, i64)]
        heads, params = self.carried(inits), self.carried(inits)
        condition, inner = Builder(b), Builder(b)
        condition.tanh(heads[0])
        first = condition.close("yield", (condition.lt(heads[-1], self.trips),), heads)
        results = [*self.body(inner, pool, depth, params[:-1]), inner.add(params[-1], inner.const(1, i64))]
        pool.extend(b.emit(OPS["while"], inits, {}, (first, inner.close("yield", results, params)))[:-1])

    def taped(self, b: Builder, pool: list[Value], depth: int) -> None:
        """A loop that pushes, and one that pops."""
        inits, trip = self.starts(b, pool), Value("i", Type(i64))
        params, inner = self.carried(inits), Builder(b)
        results = self.body(inner, pool, depth, params)
        kept = self.pick([*params, *results])
        stack, tape = StackType(kept.type), Value("t", StackType(kept.type))
        pushed = inner.emit(OPS["stack.push"], (tape, kept))
        block = inner.close("yield", (*results, *pushed), (trip, *params, tape))
        empty = b.emit(OPS["stack.new"], (self.trips,) if self.rng.random() < 0.5 else (), {"element": kept.type})
        *outs, full = b.emit(OPS["for"], (self.trips, *inits, *empty), {}, (block,))
        back, total, tape = Builder(b), Value("total", kept.type), Value("t", stack)
        rest, element = back.emit(OPS["stack.pop"], (tape,))
        block = back.close(
            "yield", (back.add(getattr(back, self.bounded)(total), element), rest), (Value("i", Type(i64)), total, tape)
        )
        outs.append(b.emit(OPS["for"], (self.trips, self.like(b, pool, kept.type), full), {}, (block,))[0])
        pool.extend(outs)


# -- steps ------------------------------------------------------------------------------------------------------------
def _binary(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    y = g.like(b, pool, x.type)
    return getattr(b, ("add", "sub", "mul")[g.below(3)])(x, y)


def _unary(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    return getattr(b, ("neg", "abs", "sqrt", "square")[g.below(4)])(x)


def _choose(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    return b.select(b.lt(x, g.like(b, pool, x.type)), x, g.like(b, pool, x.type))


def _spread(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x = g.pick(pool)
    if x.type.rank > 1 or x.type.size == 20:
        return None
    axis = g.below(x.type.rank + 1)
    shape = (*x.type.shape[:axis], 3, *x.type.shape[axis:])
    return b.broadcast(x, axes=tuple(k for k in range(len(shape)) if k != axis), shape=shape)


def _turn(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    if g.rng.random() < 0.5:
        return b.transpose(x, perm=tuple(int(p) for p in g.rng.permutation(x.type.rank)))
    return b.reshape(x, shape=(x.type.size,))


def _window(g: _Maker, type: Type) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    starts, sizes, steps = [], [], []
    for length in type.shape:
        back = g.rng.random() < 0.3
        size = 1 + g.below(length)
        starts.append(length - 1 if back else g.below(length - size + 1))
        sizes.append(size)
        steps.append(-1 if back else 1)
    return tuple(starts), tuple(sizes), tuple(steps)


def _slice(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    starts, sizes, steps = _window(g, x.type)
    return b.slice(x, starts=starts, sizes=sizes, steps=steps)


def _update(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    starts, sizes, steps = _window(g, x.type)
    name = ("slice_set", "slice_add")[g.below(2)]
    return getattr(b, name)(x, g.like(b, pool, Type(f64, sizes)), starts=starts, steps=steps)


def _join(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    scalars = [v for v in pool if not v.type.rank]
    if g.rng.random() < 0.6 and scalars:
        rows = [b.reshape(scalars[g.below(len(scalars))], shape=(1,)) for _ in range(3)]
        return b.concatenate(*rows, axis=0)
    x = g.pick(pool)
    if not x.type.rank or x.type.size > 16:
        return None
    return b.concatenate(x, g.like(b, pool, x.type), axis=g.below(x.type.rank))


def _index(g: _Maker, b: Builder, x: Value) -> Value:
    shape = ((), (2,), (4,))[g.below(3)]
    size = x.type.shape[0]
    return b.check_index(b.const(g.rng.integers(-size, size, shape), i64), size=size, axis=0)


def _gather(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x = g.pick(pool)
    return b.gather(x, _index(g, b, x)) if x.type.rank else None


def _far(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    """A few elements of a long array."""
    index = b.const(g.rng.integers(0, LONG, 3), i64)
    size = g.long.type.shape[0]
    return b.gather(g.long, b.check_index(index, size=size, axis=0))


def _scatter(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x = g.pick(pool)
    if not x.type.rank:
        return None
    index = _index(g, b, x)
    update = g.like(b, pool, Type(f64, index.type.shape + x.type.shape[1:]))
    return getattr(b, ("scatter_set", "scatter_add")[g.below(2)])(x, index, update)


def _sort(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x = g.pick(pool)
    return b.gather(x, b.argsort(x)) if x.type.rank == 1 else None


def _extreme(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)  # of zeros with either sign any may come out, so there is only one
    return getattr(b, ("max", "min")[g.below(2)])(b.abs(x), axes=_axes(g, x))


def _axes(g: _Maker, x: Value) -> tuple[int, ...]:
    return tuple(sorted(int(a) for a in g.rng.permutation(x.type.rank)[: g.below(x.type.rank + 1)]))


def _sum(g: _Maker, b: Builder, pool: list[Value]) -> Value:
    x = g.pick(pool)
    return b.tanh(getattr(b, ("sum", "prod", "norm", "logsumexp")[g.below(4)])(x, axes=_axes(g, x)))


def _product(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x, y = g.pick(pool), g.pick(pool)
    pairs = [(i, j) for i, s in enumerate(x.type.shape) for j, t in enumerate(y.type.shape) if s == t]
    if not pairs:
        return None
    i, j = pairs[g.below(len(pairs))]
    batch, axes = (((i,), (j,)), ((), ())) if g.rng.random() < 0.3 else (((), ()), ((i,), (j,)))
    return b.sin(b.contract(x, y, batch=batch, axes=axes))


def _scan(g: _Maker, b: Builder, pool: list[Value]) -> Value | None:
    x = g.pick(pool)
    if not x.type.rank:
        return None
    reverse = bool(g.below(2))
    y = b.cumsum(x, reverse=reverse) if g.below(2) else b.recurrence(b.tanh(x), g.like(b, pool, x.type), reverse=reverse)
    return b.tanh(y)


OPS_BOOL = OPS["lt"].infer((Type(f64), Type(f64)), {})[0].dtype
MOVES = (
    *(_binary,) * 4,
    *(_unary, _choose, _spread, _turn, _update, _gather, _far, _scatter, _sort, _extreme),
    *(_slice, _join) * 2,
)
SUMS = (_sum, _sum, _product, _product, _scan)
