"""Before the loop level: ops defined by other ops are expanded, contractions are brought into one of two forms.

A contraction is either written out as a product and a sum (vectors, small static matrices, integers: it then fuses like
anything else), or becomes the canonical matrix product ``[B, M, K] x [B, K, N]`` that ``gemm`` does, with reshapes and
transposes around it that are views whenever the strides allow.

Note [Operands]
A computed array is stored for the products that read it, in the order of axes that they want, its own last axis last if that
is one of the matrix's: what reads it the other way round is a transposition of that one. So an array that a product reads and
one of its adjoints reads turned is stored once, and its rows are stored as they are computed. A product's own axes are in the
order that makes the last axis of what is made of it the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core import Block, Builder, Func, Instr, Value, walk
from pullback.ir.dims import Size, product
from pullback.ir.ops.base import Decompose, Update
from pullback.ir.ops.contract import free_axes
from pullback.ir.types import bool_
from pullback.loops.strides import turns

SMALL = 8  # a static matrix product with no axis longer than this is written out


def expand(func: Func) -> Func:
    """The same function without Decompose ops and with canonical contractions."""
    return Func(func.name, _expanded(func.block, {}), ())


def _expanded(block: Block, new: dict[Value, Value]) -> Block:
    """``new`` is what stands for results of instructions that were expanded, here or in the blocks around."""
    if not new and not any(_touched(instr) for instr in block.body):
        return block
    b = Builder()
    factors = _Factors()
    pending = [iter(_turned(block))]
    wait: list[tuple[Instr, Value]] = []  # an expanded instruction and the value that stands for its result
    while pending:
        for instr in pending[-1]:
            built = _expand_one(instr, new, factors)
            if instr.blocks:
                blocks = tuple([_expanded(inner, new) for inner in instr.blocks])
                args = tuple([new.get(a, a) for a in instr.args])
                b.body.append(Instr(instr.op, instr.outs, args, instr.attrs, blocks, instr.loc))
            elif built is None:
                b.body.append(_renamed(instr, new))
                factors.know(b.body[-1])
            else:
                body, result = built
                wait.append((instr, result))
                pending.append(iter(body))
                break
        else:
            pending.pop()
            if wait and pending:
                instr, result = wait.pop()
                new[instr.out] = new.get(result, result)
    return Block(block.params, tuple(b.body))


def _touched(instr: Instr) -> bool:
    """Whether anything may be expanded here."""
    return bool(instr.blocks) or instr.op.name == "contract" or isinstance(instr.op.lower, (Decompose, Update))


def _turned(block: Block) -> Sequence[Instr]:
    """The instructions, with ``transpose(contract(x, y))`` as ``contract(y, x)``, transposed or not, where that is all that
    uses the product and its last axis is better last."""
    defs: dict[Value, Instr] = {}
    uses: dict[Value, int] = {}
    if not any(instr.op.name == "contract" for instr in block.body):
        return block.body
    for instr in walk(block):
        for arg in instr.args:
            uses[arg] = uses.get(arg, 0) + 1
    body: list[Instr] = []
    for instr in block.body:
        contraction = defs.get(instr.args[0]) if instr.op.name == "transpose" else None
        if contraction is not None and uses[instr.args[0]] == 1:
            swapped, perm = _swapped_axes(contraction), instr.attrs["perm"]
            attrs = {key: value[::-1] for key, value in contraction.attrs.items()}
            if perm == swapped:
                instr = Instr(contraction.op, instr.outs, contraction.args[::-1], attrs, (), instr.loc)
            elif perm and swapped[-1] == perm[-1]:
                old = contraction.out
                new = Value(old.name, old.type.with_shape(tuple(old.type.shape[k] for k in swapped)))
                body.append(Instr(contraction.op, (new,), contraction.args[::-1], attrs, (), contraction.loc))
                turned = {**instr.attrs, "perm": tuple(swapped.index(k) for k in perm)}
                instr = Instr(instr.op, instr.outs, (new,), turned, (), instr.loc)
        for out in instr.outs:
            if instr.op.name == "contract":
                defs[out] = instr
        body.append(instr)
    return body


def _swapped_axes(instr: Instr) -> tuple[int, ...]:
    """The permutation that swaps the free axes of the factors in a contraction's result."""
    (bx, _), (cx, _) = instr.attrs["batch"], instr.attrs["axes"]
    first, rank = len(bx), instr.out.type.rank
    second = first + len(free_axes(instr.args[0].type.rank, bx, cx))
    return (*range(first), *range(second, rank), *range(first, second))


def _renamed(instr: Instr, new: dict[Value, Value]) -> Instr:
    if not new:
        return instr
    args = tuple([new.get(a, a) for a in instr.args])
    return instr if args == instr.args else Instr(instr.op, instr.outs, args, instr.attrs, instr.blocks, instr.loc)


def _expand_one(instr: Instr, new: dict[Value, Value], factors: _Factors) -> tuple[list[Instr], Value] | None:
    if not _touched(instr):
        return None
    inner = Builder()
    inner.loc = instr.loc
    if isinstance(instr.op.lower, Decompose):
        result = instr.op.lower.build(inner, _renamed(instr, new))
        return inner.body, result
    if isinstance(instr.op.lower, Update) and not instr.out.type.rank:  # of a scalar: nothing to find
        target, operand = (new.get(a, a) for a in instr.args)
        if instr.op.lower.mode == "set":
            return [], operand
        total = inner.logical_or(target, operand) if target.type.dtype is bool_ else inner.add(target, operand)
        return inner.body, total
    if instr.op.name == "contract":
        instr = _renamed(instr, new)
        if not is_canonical(instr) or (not _written_out(instr) and any(map(factors.is_astray, instr.args))):
            return inner.body, _contract(inner, instr, factors)
    return None


def is_canonical(instr: Instr) -> bool:
    """Whether a contraction is ``[M, K] x [K, N]`` or ``[B, M, K] x [B, K, N]`` of floats and worth a routine."""
    x, y = instr.args
    batch, axes = instr.attrs["batch"], instr.attrs["axes"]
    plain = (batch, axes) == (((), ()), ((1,), (0,))) and x.type.rank == y.type.rank == 2
    batched = (batch, axes) == (((0,), (0,)), ((2,), (1,))) and x.type.rank == y.type.rank == 3
    return (plain or batched) and not _written_out(instr)


def _written_out(instr: Instr) -> bool:
    x, y = instr.args
    (bx, by), (cx, cy) = instr.attrs["batch"], instr.attrs["axes"]
    free_x, free_y = free_axes(x.type.rank, bx, cx), free_axes(y.type.rank, by, cy)
    if not (free_x and free_y and cx) or x.type.dtype.kind != "f":
        return True
    groups = [[x.type.shape[k] for k in axes] for axes in (free_x, cx)] + [[y.type.shape[k] for k in free_y]]
    return all(isinstance(size, int) and size <= SMALL for size in map(product, groups))


def _contract(b: Builder, instr: Instr, factors: _Factors) -> Value:
    return _as_sum(b, instr) if _written_out(instr) else _as_matrices(b, instr, factors)


def _as_sum(b: Builder, instr: Instr) -> Value:
    """Over the domain (batch, free of x, free of y, summed): the product of the factors, summed over the last axes."""
    x, y = instr.args
    (bx, by), (cx, cy) = instr.attrs["batch"], instr.attrs["axes"]
    free_x, free_y = free_axes(x.type.rank, bx, cx), free_axes(y.type.rank, by, cy)
    shape = instr.out.type.shape + tuple(x.type.shape[k] for k in cx)
    rank, kept, first_y = len(shape), instr.out.type.rank, len(bx) + len(free_x)
    x_axes = (*range(len(bx)), *range(len(bx), first_y), *range(kept, rank))
    y_axes = (*range(len(bx)), *range(first_y, kept), *range(kept, rank))
    terms = b.mul(_spread(b, x, (*bx, *free_x, *cx), x_axes, shape), _spread(b, y, (*by, *free_y, *cy), y_axes, shape))
    return b.sum(terms, axes=tuple(range(kept, rank))) if cx else terms


def _ordered(b: Builder, x: Value, perm: tuple[int, ...]) -> Value:
    return x if perm == tuple(range(x.type.rank)) else b.transpose(x, perm=perm)


def _spread(b: Builder, x: Value, perm: tuple[int, ...], axes: tuple[int, ...], shape: tuple[Size, ...]) -> Value:
    moved = _ordered(b, x, perm)
    return moved if moved.type.shape == shape else b.broadcast(moved, axes=axes, shape=shape)


def _reshaped(b: Builder, x: Value, shape: tuple[Size, ...]) -> Value:
    return x if x.type.shape == shape else b.reshape(x, shape=shape)


class _Factors:
    """What products read in one block; see Note [Operands]."""

    def __init__(self) -> None:
        self._turned: dict[Value, Instr] = {}  # transpositions
        self._made: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def know(self, instr: Instr) -> None:
        if instr.op.name == "transpose":
            self._turned[instr.out] = instr

    def is_astray(self, x: Value) -> bool:
        """Whether a matrix is an array with its axes in an order in which it should not be stored."""
        instr = self._turned.get(x)
        return instr is not None and instr.attrs["perm"][-2] == x.type.rank - 1 and not turns(instr)

    def ordered(self, b: Builder, x: Value, perm: tuple[int, ...]) -> Value:
        """``x`` with its axes in another order, made once."""
        while x in self._turned:
            instr = self._turned[x]
            x, perm = instr.args[0], tuple(instr.attrs["perm"][p] for p in perm)
        if len(perm) > 1 and perm[-2] == len(perm) - 1:
            straight = self.ordered(b, x, (*perm[:-2], perm[-1], perm[-2]))
            return b.transpose(straight, perm=(*range(len(perm) - 2), len(perm) - 1, len(perm) - 2))
        if (x, perm) not in self._made:
            self._made[x, perm] = _ordered(b, x, perm)
        return self._made[x, perm]


def _as_matrices(b: Builder, instr: Instr, factors: _Factors) -> Value:
    x, y = instr.args
    (bx, by), (cx, cy) = instr.attrs["batch"], instr.attrs["axes"]
    free_x, free_y = free_axes(x.type.rank, bx, cx), free_axes(y.type.rank, by, cy)
    # the summed axes in the order in which y has them costs y nothing; x's own order does the same for x: x decides
    order = sorted(range(len(cx)), key=lambda k: cx[k])
    cx, cy = tuple(cx[k] for k in order), tuple(cy[k] for k in order)
    batch = (product(x.type.shape[k] for k in bx),) if bx else ()
    m = product(x.type.shape[k] for k in free_x)
    k = product(x.type.shape[k] for k in cx)
    n = product(y.type.shape[k] for k in free_y)
    left = _reshaped(b, factors.ordered(b, x, (*bx, *free_x, *cx)), (*batch, m, k))
    right = _reshaped(b, factors.ordered(b, y, (*by, *cy, *free_y)), (*batch, k, n))
    r = len(batch)
    pairs = ((0,), (0,)) if batch else ((), ())
    out = b.contract(left, right, batch=pairs, axes=((r + 1,), (r,)))
    return _reshaped(b, out, instr.out.type.shape)


__all__ = ["expand", "is_canonical"]
