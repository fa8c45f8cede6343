"""Dead code elimination: drops instructions whose results nobody needs and that have no effect.

A value that a loop carries lives only if its last version, or something else that lives, depends on it; so a tape that nobody
pops goes, with what was pushed on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.ir.core import Block, Func, Instr, Value, sizes_in, symbol_of
from pullback.ir.dims import symbols


def dce(func: Func) -> Func:
    roots = [*func.results, *(value for _, value in func.names)]
    body = live_body(func.body[:-1], roots)
    if len(body) == len(func.body) - 1 and all(a is b for a, b in zip(body, func.body, strict=False)):
        return func
    return Func(func.name, Block(func.params, (*body, func.body[-1])), func.names)


def live_body(body: Sequence[Instr], roots: Iterable[Value]) -> list[Instr]:
    """The instructions that ``roots`` need or that have effects, without what nested blocks make in vain."""
    marks = _Marks(body)
    marks.mark(roots)
    return marks.sweep(body)


class _Marks:
    """Which values live, which instructions are needed. One visit to each."""

    def __init__(self, body: Sequence[Instr]):
        self.live: set[Value] = set()
        self.needed: set[Instr] = set()
        self.made_by: dict[Value, tuple[Instr, int]] = {}
        self.carried: dict[Value, tuple[Instr, int]] = {}  # the parameters of a loop's blocks
        self.around: dict[Instr, Instr] = {}
        self.counts: dict[str, Instr] = {}
        self.pending: list[Value] = []
        self.effects: list[Instr] = []
        for instr in body:
            self._enter(instr, None)

    def _enter(self, instr: Instr, around: Instr | None) -> None:
        if not instr.blocks and around is None and not instr.attrs:  # most instructions
            for k, out in enumerate(instr.outs):
                self.made_by[out] = (instr, k)
            if instr.op.effect and instr.op.name != "yield":
                self.effects.append(instr)
            return
        entering = [(instr, around)]
        while entering:
            instr, around = entering.pop()
            if around is not None:
                self.around[instr] = around
            for k, out in enumerate(instr.outs):
                self.made_by[out] = (instr, k)
            if instr.op.effect and instr.op.name != "yield":
                self.effects.append(instr)
            symbol = symbol_of(instr)
            if symbol is not None:
                self.counts[symbol] = instr
            for block in instr.blocks:
                extra = len(block.params) - len(instr.outs)
                for k, param in enumerate(block.params):
                    self.carried[param] = (instr, k - extra)
                entering.extend((inner, instr) for inner in block.body)

    def mark(self, roots: Iterable[Value]) -> None:
        self.pending.extend(roots)
        for instr in self.effects:
            self._need(instr)
        while self.pending:
            value = self.pending.pop()
            if value in self.live:
                continue
            self.live.add(value)
            if value in self.made_by:
                instr, k = self.made_by[value]
                self._need(instr)
                if instr.blocks:
                    self._need_carried(instr, k)
            elif value in self.carried:
                instr, k = self.carried[value]
                self._need(instr)
                if k >= 0:
                    self._need_carried(instr, k)

    def _need_carried(self, instr: Instr, k: int) -> None:
        """What decides result ``k`` of an ``if`` or a loop; in a loop also the result itself, which the next trip sees."""
        if instr.op.name == "if":
            self.pending.extend(block.results[k] for block in instr.blocks)
            return
        body = instr.blocks[-1]
        first = len(instr.args) - len(instr.outs)
        self.pending.extend((instr.args[first + k], body.results[k], instr.outs[k]))
        self.pending.extend(block.params[len(block.params) - len(instr.outs) + k] for block in instr.blocks)

    def _need(self, instr: Instr) -> None:
        around: Instr | None = instr
        while around is not None and around not in self.needed:
            instr = around
            self.needed.add(instr)
            if instr.op.name == "while":
                self.pending.extend(instr.blocks[0].results)
            elif instr.blocks:
                self.pending.append(instr.args[0])  # the condition or the bound
            else:
                self.pending.extend(instr.args)
            for symbol in symbols(sizes_in(instr)) if self.counts else ():
                if symbol in self.counts:
                    self._need(self.counts[symbol])
            around = self.around.get(instr)

    def sweep(self, body: Sequence[Instr]) -> list[Instr]:
        kept: list[Instr] = []
        for instr in body:
            if instr.op.name == "yield" or instr in self.needed:
                kept.append(self._trimmed(instr) if instr.blocks else instr)
        return kept

    def _trimmed(self, instr: Instr) -> Instr:
        keep = [out in self.live for out in instr.outs]
        if all(keep):
            blocks = tuple(self._block(block, None) for block in instr.blocks)
            if all(a is b for a, b in zip(blocks, instr.blocks, strict=True)):
                return instr
            return Instr(instr.op, instr.outs, instr.args, instr.attrs, blocks, instr.loc)
        args = instr.args
        if instr.op.name != "if":  # which takes none of what it gives
            first = len(args) - len(keep)
            args = args[:first] + _chosen(args[first:], keep)
        blocks = tuple(
            self._block(block, keep, block is not instr.blocks[0] or instr.op.name != "while") for block in instr.blocks
        )
        return Instr(instr.op, _chosen(instr.outs, keep), args, instr.attrs, blocks, instr.loc)

    def _block(self, block: Block, keep: list[bool] | None, yields: bool = True) -> Block:
        """``keep``: which carried values; ``yields``: whether the block yields them, unlike the condition of a while."""
        body = self.sweep(block.body)
        params = block.params
        if keep is not None:
            extra = len(params) - len(keep)
            params = params[:extra] + _chosen(params[extra:], keep) if params else params
            if yields:
                end = body[-1]
                body[-1] = Instr(end.op, (), _chosen(end.args, keep), end.attrs, (), end.loc)
        if (
            params == block.params
            and len(body) == len(block.body)
            and all(a is b for a, b in zip(body, block.body, strict=True))
        ):
            return block
        return Block(params, tuple(body))


def _chosen(values: tuple[Value, ...], keep: Sequence[bool]) -> tuple[Value, ...]:
    return tuple(v for v, kept in zip(values, keep, strict=True) if kept)
