"""Random straight-line programs over the whole op table, for comparing oracles.

``random_program(rng)`` gives a Func and matching arguments. Elementwise ops get operands mapped into their test domain by a
logistic map, so values stay finite and away from kinks and poles; every other differentiable record is used with random
attributes. Shapes mix static sizes and the symbol ``n``. ``shrink`` cuts a failing program down.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim, evaluate
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise
from pullback.ir.types import Type, bool_, f64, i64
from pullback.passes.dce import dce
from pullback.passes.rewrite import with_results

N = Dim.symbol("n")
SMOOTH = [
    op
    for op in OPS.values()
    if isinstance(op, Elementwise) and op.domain and op.partials is not None and op.name != "guarded_mul"
]
SHAPES = ((), (N,), (3,), (N, 2), (2, N), (3, 2), (1,), (N, 3))


def random_program(rng: np.random.Generator, steps: int = 12, n: int | None = None) -> tuple[Func, list[np.ndarray]]:
    """A function of up to three parameters with up to two results, and arguments for it with ``n`` (default 0 to 12)."""
    length = int(rng.integers(0, 13)) if n is None else n
    shapes = [(N,), *(SHAPES[k] for k in rng.integers(0, len(SHAPES), 2))]
    params = [Value(f"x{k}", Type(f64, shape)) for k, shape in enumerate(shapes)]
    b = Builder()
    pool = list(params)
    for _ in range(steps):
        made = STEPS[int(rng.integers(len(STEPS)))](rng, b, pool, length)
        if made is not None:
            pool.append(made)
    results = [pool[-1], pool[int(rng.integers(len(pool)))]]
    func = Func("random", b.close("return", results, params))
    return func, [rng.normal(size=[evaluate(s, {"n": length}) for s in shape]) for shape in shapes]


def _pick(rng: np.random.Generator, pool: list[Value]) -> Value:
    recent = pool[-6:] if rng.random() < 0.7 else pool
    return recent[int(rng.integers(len(recent)))]


def _with_type(rng: np.random.Generator, b: Builder, pool: list[Value], type: Type) -> Value:
    """Some value of this type: one at hand, or one made from a scalar."""
    same = [v for v in pool if v.type == type]
    if same and rng.random() < 0.85:
        return same[int(rng.integers(len(same)))]
    scalars = [v for v in pool if v.type.rank == 0]
    scalar = scalars[int(rng.integers(len(scalars)))] if scalars else b.const(rng.normal())
    return b.spread(scalar, type.shape)


def _elementwise(rng, b, pool, n):
    op = SMOOTH[int(rng.integers(len(SMOOTH)))]
    first = _pick(rng, pool)
    args = [first] + [_with_type(rng, b, pool, first.type) for _ in op.domain[1:]]
    mapped = []
    for arg, interval in zip(args, op.domain, strict=True):
        low, width = b.full(interval.low, arg.type), b.full(interval.high - interval.low, arg.type)
        one = b.full(1, arg.type)
        mapped.append(b.add(low, b.mul(width, b.div(one, b.add(one, b.exp(b.neg(b.tanh(arg))))))))
    attrs = dict(op.samples[int(rng.integers(len(op.samples)))][1]) if op.samples else {}
    return b.tanh(b.emit(op, mapped, attrs)[0])


def _select(rng, b, pool, n):
    x = _pick(rng, pool)
    y = _with_type(rng, b, pool, x.type)
    # the branch not taken is undefined there: its gradient must not be seen
    root, zero = b.sqrt(x), b.zeros(x.type)
    return b.select(b.gt(x, zero), root, y) if rng.random() < 0.5 else b.select(b.lt(x, y), b.sin(x), b.mul(y, y))


def _broadcast(rng, b, pool, n):
    x = _pick(rng, pool)
    if x.type.rank > 2:
        return None
    place = int(rng.integers(x.type.rank + 1))
    shape = (*x.type.shape[:place], (2, N, 1)[int(rng.integers(3))], *x.type.shape[place:])
    return b.broadcast(x, axes=tuple(k if k < place else k + 1 for k in range(x.type.rank)), shape=shape)


def _reshape(rng, b, pool, n):
    x = _pick(rng, pool)
    return b.reshape(x, shape=(x.type.size,)) if rng.random() < 0.5 else b.reshape(x, shape=(*x.type.shape, 1))


def _transpose(rng, b, pool, n):
    x = _pick(rng, pool)
    return b.transpose(x, perm=tuple(int(p) for p in rng.permutation(x.type.rank)))


def _random_slice(rng, x, n):
    starts, sizes, steps = [], [], []
    for size in x.type.shape:
        length = evaluate(size, {"n": n})
        kind = int(rng.integers(4))
        if kind == 0 or length == 0:
            starts.append(0), sizes.append(size), steps.append(1)
        elif kind == 1:
            starts.append(1), sizes.append(size - 1), steps.append(1)
        elif kind == 2:
            starts.append(size - 1), sizes.append(size), steps.append(-1)
        else:
            starts.append(0), sizes.append((size + 1) // 2), steps.append(2)
    return {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}


def _slice(rng, b, pool, n):
    x = _pick(rng, pool)
    return b.slice(x, **_random_slice(rng, x, n))


def _slice_update(rng, b, pool, n):
    x = _pick(rng, pool)
    attrs = _random_slice(rng, x, n)
    update = _with_type(rng, b, pool, x.type.with_shape(attrs.pop("sizes")))
    return getattr(b, ("slice_set", "slice_add")[int(rng.integers(2))])(x, update, **attrs)


def _concatenate(rng, b, pool, n):
    x = _pick(rng, pool)
    if x.type.rank == 0:
        return None
    y = _with_type(rng, b, pool, x.type)
    return b.concatenate(x, y, axis=int(rng.integers(x.type.rank)))


def _places(rng, b, x, n):
    length = evaluate(x.type.shape[0], {"n": n})
    if length == 0:
        return None
    shape = ((), (4,), (2, 3))[int(rng.integers(3))]
    return b.check_index(b.const(rng.integers(-length, length, shape), i64), size=x.type.shape[0], axis=0)


def _gather(rng, b, pool, n):
    x = _pick(rng, pool)
    index = _places(rng, b, x, n) if x.type.rank else None
    return None if index is None else b.gather(x, index)


def _scatter(rng, b, pool, n):
    x = _pick(rng, pool)
    index = _places(rng, b, x, n) if x.type.rank else None
    if index is None:
        return None
    update = _with_type(rng, b, pool, x.type.with_shape(index.type.shape + x.type.shape[1:]))
    return getattr(b, ("scatter_set", "scatter_add")[int(rng.integers(2))])(x, index, update)


def _reduce(rng, b, pool, n):
    x = _pick(rng, pool)
    axes = tuple(sorted(int(a) for a in rng.permutation(x.type.rank)[: int(rng.integers(x.type.rank + 1))]))
    name = ("sum", "prod", "max", "min", "norm", "var", "std", "logsumexp")[int(rng.integers(8))]
    if any(evaluate(x.type.shape[a], {"n": n}) < 2 for a in axes):
        name = "sum"  # the others have no value, or no slope, there
    if name in ("std", "norm", "var") and not axes:
        name = "sum"
    if name == "std":  # of equal elements it is rounding noise, which has no slope: make them differ
        ramp = b.sin(b.convert(b.iota(size=x.type.shape[axes[-1]]), dtype="f64"))
        x = b.add(x, b.broadcast(ramp, axes=(axes[-1],), shape=x.type.shape))
    attrs = {"ddof": int(rng.integers(2))} if name in ("var", "std") else {}
    return b.tanh(getattr(b, name)(x, axes=axes, **attrs))


def _scan(rng, b, pool, n):
    x = _pick(rng, pool)
    if x.type.rank == 0:
        return None
    reverse = bool(rng.integers(2))
    if rng.random() < 0.5:
        return b.tanh(b.cumsum(x, reverse=reverse))
    return b.recurrence(b.tanh(x), _with_type(rng, b, pool, x.type), reverse=reverse)


def _sorted(rng, b, pool, n):
    x = _pick(rng, pool)
    if x.type.rank != 1:
        return None
    return b.gather(x, b.argsort(x))


def _masked(rng, b, pool, n):
    """Elements where a mask holds; their number is a size of its own, so they are summed at once."""
    x = _pick(rng, pool)
    if x.type.rank != 1:
        return None
    chosen = b.gather(x, b.nonzero(b.lt(b.zeros(x.type), x), symbol=f"k{len(b.body)}"))
    return b.sum(b.mul(chosen, b.convert(b.iota(size=chosen.type.shape[0]), dtype="f64")), axes=(0,))


def _contract(rng, b, pool, n):
    x, y = _pick(rng, pool), _pick(rng, pool)
    pairs = [(i, j) for i, s in enumerate(x.type.shape) for j, t in enumerate(y.type.shape) if s == t]
    if not pairs:
        return b.tanh(b.contract(x, y, batch=((), ()), axes=((), ()))) if x.type.rank + y.type.rank <= 3 else None
    i, j = pairs[int(rng.integers(len(pairs)))]
    batch, axes = (((i,), (j,)), ((), ())) if rng.random() < 0.3 else (((), ()), ((i,), (j,)))
    made = b.contract(x, y, batch=batch, axes=axes)
    return b.tanh(made) if made.type.rank <= 3 else None


def _float_of(rng, b, pool, n):
    """Decisions as numbers: comparisons and integers carry no derivative."""
    x = _pick(rng, pool)
    y = _with_type(rng, b, pool, x.type)
    hit = b.logical_and(b.lt(x, y), b.full(True, Type(bool_, x.type.shape)))
    return b.mul(b.convert(hit, dtype="f64"), x)


STEPS: tuple[Callable[..., Value | None], ...] = (
    *(_elementwise,) * 6,
    _select,
    _broadcast,
    _reshape,
    _transpose,
    _slice,
    _slice_update,
    _concatenate,
    _gather,
    _scatter,
    *(_reduce,) * 2,
    _scan,
    _sorted,
    _masked,
    *(_contract,) * 2,
    _float_of,
)


def shrink(func: Func, fails: Callable[[Func], bool]) -> Func:
    """A smaller function for which ``fails`` still holds: earlier values are returned in place of the results."""
    best = dce(func)
    for instr in best.body[:-1]:
        if instr.outs and getattr(instr.out.type, "is_float", False):
            smaller = dce(with_results(best, [instr.out]))
            if len(smaller.body) < len(best.body) and fails(smaller):
                return shrink(smaller, fails)
    for result in best.results if len(best.results) > 1 else ():
        smaller = dce(with_results(best, [result]))
        if fails(smaller):
            return smaller
    return best
