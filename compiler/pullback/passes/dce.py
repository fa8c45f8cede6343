"""Dead code elimination: drops instructions whose results nobody needs and that have no effect."""

from __future__ import annotations

from pullback.ir.core import Block, Func, Instr, Value, sizes_in, walk
from pullback.ir.dims import symbols


def dce(func: Func) -> Func:
    live: set[Value] = {value for _, value in func.names}
    counted = any(instr.op.name == "nonzero" for instr in walk(func.block))
    return Func(func.name, _sweep(func.block, live, set() if counted else None), func.names)


def _sweep(block: Block, live: set[Value], sizes: set[str] | None) -> Block:
    """``sizes``: the symbols that live code mentions, which keep the mask alive that defines one; None if no mask does."""
    kept: list[Instr] = []
    for instr in reversed(block.body):
        needed = _has_effect(instr) or any(out in live for out in instr.outs)
        if not needed and not (sizes and instr.attrs.get("symbol") in sizes):
            continue
        live.update(instr.args)
        if sizes is not None:
            sizes |= symbols(sizes_in(instr))
        blocks = tuple(_sweep(inner, live, sizes) for inner in instr.blocks)
        if blocks != instr.blocks:
            instr = Instr(instr.op, instr.outs, instr.args, instr.attrs, blocks, instr.loc)
        kept.append(instr)
    if len(kept) == len(block.body) and all(a is b for a, b in zip(reversed(kept), block.body, strict=True)):
        return block
    return Block(block.params, tuple(reversed(kept)))


def _has_effect(instr: Instr) -> bool:
    """Effects of its own, or (beyond the yields) of an instruction inside."""
    if instr.op.effect:
        return True
    return any(inner.op.effect and inner.op.name != "yield" for block in instr.blocks for inner in walk(block))
