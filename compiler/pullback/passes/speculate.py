"""Guards of the chain rule, taken out on trial: products are plain, and a check asks for the guards if that went wrong.

Note [Speculation]
``guarded_mul`` differs from ``mul`` only where the plain product is NaN. So the kernel that is compiled first multiplies, and
looks whether a NaN has come out; if so the call ends with the failure AGAIN, and the caller runs the kernel with guards, which
is compiled then. A kernel writes to nothing that it reads from its caller, so it may always be run anew.

Few values need a look: a NaN stays NaN through sums, products and reductions, so it is enough to look at what becomes of it,
best at a scalar. A product that decides something (through a comparison, an index, a condition) keeps its guard: both kernels
take the same branches, make the same trips and read the same elements.
"""

from __future__ import annotations

from collections.abc import Iterable

from pullback.ir.core import Block, Builder, Func, Instr, Value, walk
from pullback.ir.dims import symbols
from pullback.ir.ops import OPS
from pullback.ir.ops.control import AGAIN
from pullback.ir.types import StackType, Type

PASSED_ON = frozenset({"add", "sub", "mul", "div", "neg", "guarded_mul"})  # of a NaN they give a NaN


def speculate(func: Func) -> Func:
    """``func`` without the guards that can be made up for; itself if it has none."""
    if not any(instr.op.name == "guarded_mul" for instr in walk(func.block)):
        return func
    if any(isinstance(t, StackType) for t in func.result):  # memory that is handed out cannot be taken back
        return func
    return Func(func.name, _plain(func.block, _decisive(func)), func.names)


def _plain(block: Block, kept: set[Value]) -> Block:
    guarded = [i.out for i in block.body if i.op.name == "guarded_mul" and i.out not in kept]
    b = Builder()
    for instr in block.body[:-1]:
        b.loc = instr.loc
        if instr.op.name == "guarded_mul" and instr.out not in kept:
            instr = Instr(OPS["mul"], instr.outs, instr.args[:2], {}, (), instr.loc)
        elif instr.blocks:
            blocks = tuple([_plain(inner, kept) for inner in instr.blocks])
            if any(new is not old for new, old in zip(blocks, instr.blocks, strict=True)):
                instr = Instr(instr.op, instr.outs, instr.args, instr.attrs, blocks, instr.loc)
        b.body.append(instr)
    if guarded:
        _look(b, _witnesses(block, guarded))
    elif len(b.body) == len(block.body) - 1 and all(x is y for x, y in zip(b.body, block.body, strict=False)):
        return block
    b.body.append(block.body[-1])
    return Block(block.params, tuple(b.body))


def _look(b: Builder, values: Iterable[Value]) -> None:
    """Stop if one of the values is NaN or holds one."""
    wrong: Value | None = None
    for value in values:
        found = b.ne(value, value)
        if value.type.rank:
            found = b.any(found, axes=tuple(range(value.type.rank)))
        wrong = found if wrong is None else b.logical_or(wrong, found)
    if wrong is not None:
        b.emit(OPS["check"], (b.logical_not(wrong),), {"message": AGAIN})


def _witnesses(block: Block, guarded: Iterable[Value]) -> list[Value]:
    """Values, few and small, of which one is NaN if an element of a product is that matters."""
    users: dict[Value, list[Instr]] = {}
    for instr in block.body[:-1]:
        for arg in dict.fromkeys((*instr.args, *_captured(instr))):
            users.setdefault(arg, []).append(instr)
    results = set(block.results)
    order = {instr.outs[0]: k for k, instr in enumerate(block.body[:-1]) if instr.outs}
    found: dict[Value, tuple[Value, ...]] = {}

    def witness(value: Value) -> tuple[Value, ...]:
        """Where to look, when that is known for all that ``value`` becomes."""
        using = users.get(value, [])
        followed = [found[u.outs[0]] for u in using if _passes(u, value)]
        masked = [u for u in using if u.op.name == "select" and u.args[0] is not value]
        if masked and value not in results and len(followed) + len(masked) == len(using):
            # the lanes that a select leaves out may be NaN: what remains is what matters
            return tuple(dict.fromkeys([*(w for f in followed for w in f), *(w for u in masked for w in found[u.outs[0]])]))
        single = [f[0] for f in followed if len(f) == 1]
        return (min([value, *single], key=lambda v: (v.type.rank, -order[v])),)

    for instr in reversed(block.body[:-1]):
        if len(instr.outs) == 1 and isinstance(instr.out.type, Type) and instr.out.type.is_float:
            found[instr.out] = witness(instr.out)
    return list(dict.fromkeys(w for value in guarded for w in found[value]))


def _passes(user: Instr, value: Value) -> bool:
    """Whether a NaN in any element of ``value`` makes one in the user's result, whatever the sizes."""
    if user.op.name in PASSED_ON:
        return value in user.args[:2]
    return user.op.name == "sum" and not symbols(user.out.type.shape) - symbols(value.type.shape)


def _captured(instr: Instr) -> set[Value]:
    return {arg for block in instr.blocks for inner in walk(block) for arg in inner.args}


# -- what decides -----------------------------------------------------------------------------------------------------
def _decisive(func: Func) -> set[Value]:
    """Values on which a comparison, an index or a condition depends, in whatever way."""
    sources: dict[Value, list[Value]] = {}
    pending: list[Value] = []
    for instr in walk(func.block):
        for block in instr.blocks:
            carried = block.params[1:] if instr.op.name == "for" else block.params
            for param, start in zip(carried, instr.args[len(instr.args) - len(carried) :], strict=True):
                sources.setdefault(param, []).append(start)
            if instr.op.name == "while" and block is instr.blocks[0]:
                continue
            for position, value in enumerate(block.results):
                sources.setdefault(instr.outs[position], []).append(value)
                if carried:
                    sources.setdefault(carried[position], []).append(value)
        if instr.op.name == "while":  # both of its blocks have parameters
            test, body = instr.blocks
            for known, param in zip(test.params, body.params, strict=True):
                sources.setdefault(known, []).append(param)
        if not instr.blocks:
            for out in instr.outs:
                sources.setdefault(out, []).extend(instr.args)
                if isinstance(out.type, Type) and not out.type.is_float:
                    pending.extend(instr.args)
    found: set[Value] = set()
    while pending:
        value = pending.pop()
        if value not in found:
            found.add(value)
            pending.extend(sources.get(value, ()))
    return found


__all__ = ["speculate"]
