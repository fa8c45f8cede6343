"""Copying a function's body into the one being built."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.errors import ShapeError
from pullback.ir.core import Block, Builder, Func, Instr, Value, replace_sizes, symbol_of
from pullback.ir.dims import Dim, Size, replace
from pullback.ir.ops.base import Elementwise
from pullback.passes.rewrite import renamed


def inline(b: Builder, func: Func, args: Sequence[Value]) -> tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]:
    """Append ``func`` applied to ``args``; gives its results and its named values. ShapeError if an argument does not fit."""
    sizes = bind_sizes(func, args)
    new: dict[Value, Value] = dict(zip(func.params, args, strict=True))
    copy_body(b, func.block.body[:-1], sizes, new)
    return tuple(new.get(v, v) for v in func.results), renamed(func.names, new)


def bind_sizes(func: Func, args: Sequence[Value]) -> dict[str, Size]:
    """What ``func``'s symbols are in terms of the caller's: bare axes define, all axes must agree."""
    sizes: dict[str, Size] = {}
    for param, arg in zip(func.params, args, strict=True):
        if param.type.rank != arg.type.rank or param.type.dtype is not arg.type.dtype:
            raise ShapeError(f"{func.name} expects {param.type} for {param.name}, got {arg.type}")
        for axis, size in zip(param.type.shape, arg.type.shape, strict=True):
            symbol = axis.bare_symbol() if isinstance(axis, Dim) else None
            if symbol is not None:
                sizes.setdefault(symbol, size)
    for param, arg in zip(func.params, args, strict=True):
        for axis, size in zip(param.type.shape, arg.type.shape, strict=True):
            if replace(axis, sizes) != size:
                raise ShapeError(f"{func.name} expects {param.type} for {param.name}, got {arg.type}")
    return sizes


def copy_body(b: Builder, body: Sequence[Instr], sizes: dict[str, Size], new: dict[Value, Value]) -> None:
    """Append copies; ``new`` maps values to their copies, ``sizes`` symbols, and both grow."""
    for instr in body:
        if isinstance(instr.op, Elementwise) and not instr.outs[0].type.shape:  # of scalars, of which there can be very many
            (out,) = instr.outs
            copy = new[out] = Value(out.name, out.type)
            b.body.append(Instr(instr.op, (copy,), tuple([new.get(a, a) for a in instr.args]), instr.attrs, (), instr.loc))
            continue
        symbol = symbol_of(instr)
        if symbol is not None and symbol not in sizes:
            sizes[symbol] = Dim.symbol(b.copied_symbol(symbol))  # each copy of a computed length is a size of its own
        attrs = replace_sizes(instr.attrs, sizes)
        if symbol is not None:
            attrs = {**attrs, "symbol": str(sizes[symbol])}
        blocks = tuple(_copy_block(b, inner, sizes, new) for inner in instr.blocks)
        outs = tuple(Value(v.name, v.type.replace(sizes)) for v in instr.outs)
        b.body.append(Instr(instr.op, outs, tuple(new.get(a, a) for a in instr.args), attrs, blocks, instr.loc))
        new.update(zip(instr.outs, outs, strict=True))


def _copy_block(b: Builder, block: Block, sizes: dict[str, Size], new: dict[Value, Value]) -> Block:
    inner = Builder(b)
    params = tuple(Value(p.name, p.type.replace(sizes)) for p in block.params)
    new.update(zip(block.params, params, strict=True))
    copy_body(inner, block.body, sizes, new)
    return Block(params, tuple(inner.body))
