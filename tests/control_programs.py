"""Random programs with nested control flow and in-place updates, for comparing oracles.

``random_control_program(seed)`` gives a Func and matching arguments. It has what the passes and the code generation find hard:
``if``, ``for`` (constant, data-dependent, zero and negative bounds) and ``while`` (ended by a trip limit) nested four deep;
several versions of an array, read before and after updates at traced places; carried values that are swapped, kept, yielded
twice or start alike; captured values; integers and booleans that are carried; lengths that depend on a loop's counter.
Floats stay bounded (what may grow goes through ``tanh`` or ``sin``), so programs have finite values and slopes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim, Size, evaluate
from pullback.ir.types import Type, f64, i64
from tests.control_maker import Maker, Scope

N, M = Dim.symbol("n"), Dim.symbol("m")
SHAPES: tuple[tuple[Size, ...], ...] = ((), (), (N,), (N,), (3,), (1,), (0,), (N, 2), (2, N), (3, 3), (N, N), (M,), (N, M))
LENGTHS = (0, 1, 2, 3, 3, 4, 5, 9)


def random_control_program(seed: int) -> tuple[Func, list[np.ndarray]]:
    """A function of four or five parameters with up to three results, and arguments for it. Three of four are small."""
    rng = np.random.default_rng(seed)
    sizes = {"n": int(rng.choice(LENGTHS)), "m": int(rng.choice(LENGTHS))}
    shapes = [(N,), (M,), (), *(SHAPES[k] for k in rng.integers(0, len(SHAPES), int(rng.integers(0, 2))))]
    params = [Value(f"x{k}", Type(f64, shape)) for k, shape in enumerate(shapes)]
    data = Value("k", Type(i64))
    scope = Scope(Builder(), values=[*params, data])
    made = Maker(rng, sizes, STEPS)
    made.statements(scope, int(rng.integers(2, 6)) if seed % 4 == 0 else int(rng.integers(1, 3)))
    if scope.b.body and not any(instr.blocks for instr in scope.b.body):
        made.loop(scope)
    func = Func("random", scope.b.close("return", made.results(scope), (*params, data)))
    args = [np.asarray(rng.normal(size=[evaluate(s, sizes) for s in shape])) for shape in shapes]
    return func, [*args, np.asarray(rng.integers(-3, 9))]


# -- steps ----------------------------------------------------------------------------------------------------------------
def _binary(g: Maker, scope: Scope) -> None:
    b, x = scope.b, g.float(scope)
    y = g.of_type(scope, x.type)
    half = b.full(0.5, x.type)
    kind = int(g.rng.integers(7))
    if kind == 6:
        made = (b.maximum if g.chance(0.5) else b.minimum)(x, y)  # at a tie the mean of both, as a central difference has it
    elif kind == 0:
        made = b.mul(half, b.add(x, y))
    elif kind == 1:
        made = b.add(x, g.bounded(scope, y))
    elif kind == 2:
        made = g.bounded(scope, b.mul(x, y))
    elif kind == 3:
        made = b.sub(g.bounded(scope, x), b.mul(half, y))
    elif kind == 4:
        made = b.div(x, b.add(b.full(2.5, x.type), b.sin(y)))  # at least 1.5, so it does not grow
    else:
        made = b.mul(b.cos(x), b.tanh(y))
    scope.add(made)


def _unary(g: Maker, scope: Scope) -> None:
    b, x = scope.b, g.float(scope)
    kind = int(g.rng.integers(6))
    if kind == 0:
        scope.add(b.sqrt(b.add(b.full(1.5, x.type), b.tanh(x))))
    elif kind == 1:
        scope.add(b.exp(b.neg(b.square(x))))
    elif kind == 2:
        scope.add(b.mul(b.full(float(np.round(g.rng.uniform(-1, 1), 2)), x.type), x))
    elif kind == 3:
        scope.add(b.neg(x))
    else:
        scope.add(g.bounded(scope, x))


def _of_integer(g: Maker, scope: Scope) -> None:
    """A float that an integer or a decision gives."""
    b = scope.b
    if g.chance(0.3):
        scope.add(b.mul(b.convert(g.condition(scope), dtype="f64"), g.scalar(scope)))
    else:
        scope.add(b.sin(b.mul(b.convert(g.small(scope, g.integer(scope), 5), dtype="f64"), b.tanh(g.scalar(scope)))))


def _integer(g: Maker, scope: Scope) -> None:
    """Another integer: arithmetic, a decision, the place of an extremum, an element."""
    b, kind = scope.b, int(g.rng.integers(4))
    vector = g.pick(scope, lambda v: v.type.is_float and v.type.rank == 1 and bool(g.number(v.type.shape[0])))
    if kind == 0 and vector is not None:
        index = (b.argmax if g.chance(0.5) else b.argmin)(vector, axis=0)
        scope.places[index] = vector.type.shape[0]
        scope.add(index)
    elif kind == 1:
        scope.add(b.convert(g.condition(scope), dtype="i64"))
    elif kind == 2:
        scope.add(b.select(g.condition(scope), g.integer(scope), g.integer(scope)))
        scope.add(g.condition(scope))
    else:
        scope.add(g.small(scope, b.add(g.integer(scope), g.integer(scope)), 5))


def _integers(g: Maker, scope: Scope) -> None:
    """An array of integers: made, changed at a place, read at one."""
    b = scope.b
    array = g.pick(scope, lambda v: v.type.dtype is i64 and v.type.rank == 1)
    if array is None:
        scope.add(b.iota(size=g.one((N, M, 3))))
        return
    index = g.place(scope, array.type.shape[0])
    if index is None:
        return
    if g.chance(0.5):
        scope.add(b.scatter_set(array, index, g.small(scope, g.integer(scope), 5)))
    else:
        scope.add(b.gather(array, index))


def _select(g: Maker, scope: Scope) -> None:
    b, x = scope.b, g.float(scope)
    y = g.of_type(scope, x.type)
    if g.chance(0.5):
        scope.add(b.select(b.gt(x, b.zeros(x.type)), b.sqrt(x), g.bounded(scope, y)))  # the branch not taken has no slope
    else:
        scope.add(b.select(b.lt(x, y), b.sin(x), b.mul(b.full(0.5, x.type), y)))


def _reduce(g: Maker, scope: Scope) -> None:
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0)
    if x is None:
        return
    axes = tuple(sorted(int(a) for a in g.rng.permutation(x.type.rank)[: int(g.rng.integers(1, x.type.rank + 1))]))
    lengths = [g.number(x.type.shape[a]) for a in axes]
    name = ("logsumexp", "prod", "max", "min")[int(g.rng.integers(4))] if all(lengths) and g.chance(0.4) else "sum"
    if name in ("max", "min"):  # ties of many have a slope that differences do not show: make the elements differ
        ramp = b.sin(b.convert(b.iota(size=x.type.shape[axes[-1]]), dtype="f64"))
        x = b.add(x, b.broadcast(ramp, axes=(axes[-1],), shape=x.type.shape))
    scope.add(b.tanh(getattr(b, name)(x, axes=axes)))


def _change(g: Maker, scope: Scope) -> None:
    """A whole array anew, and how much it changed: what iterations to a fixed point do."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0)
    if x is None:
        return
    y = g.of_type(scope, x.type)
    new = b.add(b.mul(b.full(0.4, x.type), x), b.tanh(y) if g.chance(0.5) else y)
    gap = b.sub(new, x)
    total = b.sum(b.abs(gap) if g.chance(0.5) else b.square(gap), axes=tuple(range(x.type.rank)))
    scope.add(new, b.tanh(total) if g.chance(0.5) else total)


def _contract(g: Maker, scope: Scope) -> None:
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0)
    if x is None:
        return
    axis = int(g.rng.integers(x.type.rank))
    size = x.type.shape[axis]
    y = g.pick(scope, lambda v: v.type.is_float and size in v.type.shape and v.type.rank + x.type.rank <= 3)
    if y is None:
        return
    made = b.contract(x, y, batch=((), ()), axes=((axis,), (y.type.shape.index(size),)))
    scope.add(g.bounded(scope, made))


def _view(g: Maker, scope: Scope) -> None:
    """The array seen or put together otherwise."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0 and g.lasting(v))
    if x is None:
        return
    first, kind = x.type.shape[0], int(g.rng.integers(5))
    rest = x.type.rank - 1
    if kind == 0 and g.number(first):  # rolled by one
        ones = (1,) * rest
        head = b.slice(x, starts=(0,) * (rest + 1), sizes=(1, *x.type.shape[1:]), steps=(1, *ones))
        tail = b.slice(x, starts=(1, *(0,) * rest), sizes=(first - 1, *x.type.shape[1:]), steps=(1, *ones))
        scope.add(b.concatenate(tail, head, axis=0))
    elif kind == 1:
        starts, steps = (first - 1, *(0,) * rest), (-1, *(1,) * rest)
        scope.add(b.slice(x, starts=starts, sizes=x.type.shape, steps=steps))
    elif kind == 2 and rest:
        scope.add(b.transpose(x, perm=(1, 0)))
    elif kind == 3:
        scope.add(b.tanh(b.cumsum(x, reverse=g.chance(0.5))))
    elif kind == 4 and not rest:
        scope.add(b.broadcast(x, axes=(1,), shape=(2, first)) if g.chance(0.5) else b.gather(x, b.argsort(x)))


def _read(g: Maker, scope: Scope) -> None:
    """An element or a row, at a traced place; sometimes several elements."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0)
    if x is None:
        return
    places = [g.place(scope, size) for size in x.type.shape[: int(g.rng.integers(1, x.type.rank + 1))]]
    if any(p is None for p in places):
        return
    if len(places) == 1 and g.chance(0.2):
        others = g.pick(scope, lambda v: v.type.dtype is i64 and v.type.rank == 1)
        if others is not None and g.number(x.type.shape[0]):
            size = b.spread(b.dim(x.type.shape[0]), others.type.shape)
            places = [b.mod(others, size)]
    scope.add(b.gather(x, *places))


def _write(g: Maker, scope: Scope) -> None:
    """An element or a row replaced or added to; now and then the version before is read afterwards."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0 and g.lasting(v))
    if x is None:
        return
    places = [g.place(scope, size) for size in x.type.shape[: int(g.rng.integers(1, x.type.rank + 1))]]
    if any(p is None for p in places):
        return
    row = Type(f64, x.type.shape[len(places) :])
    update = b.gather(x, *places) if g.chance(0.4) else g.of_type(scope, row)
    if g.chance(0.5):
        update = b.mul(update, b.cos(g.of_type(scope, row)))
    name = ("scatter_set", "scatter_set", "scatter_add")[int(g.rng.integers(3))]
    scope.add(getattr(b, name)(x, *places, g.bounded(scope, update)))
    if g.chance(0.2):
        scope.add(b.gather(x, *places))


def _write_slice(g: Maker, scope: Scope) -> None:
    """A range that is known when compiling replaced or added to: all but the ends, every second, one element."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0 and g.lasting(v))
    if x is None:
        return
    starts, sizes, steps = [], [], []
    for size in x.type.shape:
        length, kind = g.number(size), int(g.rng.integers(5))
        ranges = [(0, size, 1), (1, size - 2, 1), (0, (size + 1) // 2, 2), (size - 1, size, -1), (0, 1, 1)]
        start, many, step = ranges[kind if length is not None and length >= 2 else 0]
        starts.append(start), sizes.append(many), steps.append(step)
    old = b.slice(x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    update = g.bounded(scope, b.mul(old, g.of_type(scope, old.type)) if g.chance(0.5) else g.of_type(scope, old.type))
    name = "slice_set" if g.chance(0.6) else "slice_add"
    scope.add(getattr(b, name)(x, update, starts=tuple(starts), steps=tuple(steps)))


def _part(g: Maker, scope: Scope) -> None:
    """``x[:k]``, ``x[k:]`` or ``x[k-1::-1]`` with a traced ``k``, reduced; sometimes written back."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank > 0 and g.lasting(v))
    if x is None:
        return
    size, rest = x.type.shape[-1], x.type.rank - 1
    known = [v for v, bound in scope.known_places().items() if bound == size]
    index = g.one(known) if known and g.chance(0.7) else b.mod(g.integer(scope), b.dim(size + 1))
    symbol = next(g.symbols)
    b.length(index, symbol=symbol, bound=size)
    k = Dim.symbol(symbol)
    start, many, step = ((0, k, 1), (k, size - k, 1), (k - 1, k, -1))[int(g.rng.integers(3))]
    starts, sizes, steps = (*(0,) * rest, start), (*x.type.shape[:-1], many), (*(1,) * rest, step)
    part = b.slice(x, starts=starts, sizes=sizes, steps=steps)
    scope.add(part)
    if g.chance(0.4):
        update = g.bounded(scope, part)
        scope.add((b.slice_set if g.chance(0.6) else b.slice_add)(x, update, starts=starts, steps=steps))
    elif g.chance(0.5):
        scope.add(b.tanh(b.contract(part, b.sin(part), batch=((), ()), axes=((rest,), (rest,)))) if not rest else b.sin(part))
    scope.add(b.tanh(b.sum(part, axes=(rest,))))


def _masked(g: Maker, scope: Scope) -> None:
    """``x[mask]`` reduced, or changed in place; how many there are is known only then."""
    b = scope.b
    x = g.pick(scope, lambda v: v.type.is_float and v.type.rank == 1 and g.lasting(v))
    if x is None:
        return
    places = b.nonzero(b.lt(x, g.of_type(scope, x.type)), symbol=next(g.symbols))
    chosen = b.gather(x, places)
    if g.chance(0.5):
        scope.add((b.scatter_set if g.chance(0.6) else b.scatter_add)(x, places, g.bounded(scope, chosen)))
    scope.add(b.tanh(b.sum(b.sin(chosen), axes=(0,))))


def _check(g: Maker, scope: Scope) -> None:
    """A condition that holds."""
    b = scope.b
    b.check(b.lt(g.small(scope, g.integer(scope), 5), b.const(5, i64)), message="less than five expected")


STEPS: tuple[Callable[[Maker, Scope], None], ...] = (
    *(_binary,) * 4,
    *(_unary,) * 2,
    _of_integer,
    _integer,
    _integers,
    _select,
    *(_reduce,) * 2,
    *(_change,) * 2,
    _contract,
    _view,
    *(_read,) * 3,
    *(_write,) * 5,
    *(_write_slice,) * 2,
    *(_part,) * 2,
    _masked,
    _check,
)
