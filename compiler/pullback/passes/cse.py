"""Common subexpression elimination: equal instructions are done once. An inner block sees those of the blocks around it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np

from pullback.ir.core import Block, Func, Instr, Value, symbol_of
from pullback.ir.ops.base import Elementwise
from pullback.passes.rewrite import changed, renamed

# Effects that may be merged with an earlier equal one: checks that passed once pass again.
_REPEATABLE = frozenset({"check_index", "match", "check"})


def cse(func: Func) -> Func:
    new: dict[Value, Value] = {}
    block = _merge(func.block, {}, new)
    return Func(func.name, block, renamed(func.names, new))


def _merge(block: Block, seen: MutableMapping[Any, tuple[Value, ...]], new: dict[Value, Value]) -> Block:
    body: list[Instr] = []
    for old in block.body:
        instr = old
        if new or old.blocks:
            args = tuple([new.get(a, a) for a in old.args])
            blocks = tuple([_merge(inner, ChainMap({}, seen), new) for inner in old.blocks])
            if args != old.args or blocks != old.blocks:
                instr = Instr(old.op, old.outs, args, old.attrs, blocks, old.loc)
        if not _mergeable(instr):
            body.append(instr)
            continue
        key = (instr.op, instr.args, attrs_key(instr.attrs)) if instr.attrs else (instr.op, instr.args)
        found = seen.get(key)
        if found is None:
            seen[key] = old.outs
            body.append(instr)
        else:
            new.update(zip(old.outs, found, strict=True))
    return Block(block.params, tuple(body)) if changed(block, body) else block


def _mergeable(instr: Instr) -> bool:
    # each computed length is a symbol of its own, and each stack has its own buffer
    op = instr.op
    if isinstance(op, Elementwise):
        return True
    return (
        not instr.blocks and op.name != "stack.new" and symbol_of(instr) is None and (not op.effect or op.name in _REPEATABLE)
    )


def attrs_key(attrs: Mapping[str, Any]) -> Any:
    """A hashable that is equal for equal attributes; constants by their bits, so -0.0 and NaN are themselves."""
    return tuple(
        [
            (key, (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
            for key, value in sorted(attrs.items())
        ]
    )
