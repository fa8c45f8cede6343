"""Which arrays of a function are taken apart into scalars: the decision before ``scalarize``.

Note [Taking arrays apart]
Values that control flow connects (a loop's carried value, what the body yields for it, the loop's result; the results of an
``if``; a tape and its versions) form a *web* and are taken apart all or none; any other value is a web of its own. A web that
cannot be taken apart is *pinned*: it holds a parameter, or what an op gives that needs or makes whole arrays, or it is
carried by a loop that reads or writes it at an index known only at run time.

Between neighbours of which only one is taken apart, elements are moved: loaded one by one, or stored to make an array. Such a
border costs the number of elements times ``TRIPS`` for every loop around the value that crosses it. Starting with everything
apart that is not pinned, a web becomes whole when the borders that this removes cost no less than those that it makes; a
value carried in registers counts as a border saved. Every web is changed at most once, so the time is linear. Outside all
loops nothing is gained: there a web stays apart only if it has no border at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from pullback.ir.core import Block, Func, Instr, Value
from pullback.ir.dims import Dim
from pullback.ir.ops.base import Elementwise
from pullback.ir.types import StackType, Type, i64
from pullback.passes.elements import handler

MOST = 64  # elements of an array that may be taken apart
FEW = (
    12  # elements up to which elementwise work is as quick on scalars; more do not fit the registers, and a nest is vectorised
)
PRODUCTS = 64  # multiplications of a contraction that is written out
TRIPS = 256  # what a loop is taken to multiply costs by: more than any number of borders outside it

SCALAR_INTEGER = Type(i64)
_MOVES = frozenset({"reshape", "transpose", "concatenate", "slice", "slice_set", "gather", "scatter_set"})


def elements(type: Any) -> int:
    """How many elements a value of this type has that can be taken apart; 0 if it cannot."""
    shape = type.element.shape if isinstance(type, StackType) else type.shape
    count = 1
    for size in shape:
        if isinstance(size, Dim):
            return 0
        count *= size
    return count if shape and count <= MOST else 0


def index_operands(instr: Instr) -> range:
    """The positions of operands that are indices."""
    name = instr.op.name
    return range(1, len(instr.args)) if name == "gather" else range(1, len(instr.args) - 1 if name[:7] == "scatter" else 1)


class Plan:
    """The webs of a function, their borders and which of them are taken apart."""

    def __init__(self, func: Func):
        self.kinds: dict[Instr, str] = {}  # of instructions that have to do with small arrays: see ``kind``
        self.known: dict[Value, Any] = {}  # integers known now
        self.sources: dict[Value, Instr] = {}  # made of scalars or numbers alone: whole or apart as it is wanted, at no cost
        self._sizes: dict[Any, int] = {}
        self._depth: dict[Value, int] = {}
        self._web: dict[Value, int] = {}
        self._parent: list[int] = []
        self._pinned: list[Value] = []
        self._fixed: list[tuple[Value, int]] = []  # values and what it costs if they are apart
        self._gains: list[tuple[Value, int]] = []  # values and what it costs if they are not
        self._borders: list[tuple[Value, Value, int, int]] = []  # two values, the cost if one is apart, the gain if both are
        self._carried: dict[int, int] = {}  # webs and the depth of the loop that carries them
        self._whole_uses: list[Value] = []
        self._whole: list[bool] = []
        for param in func.params:
            self._define(param, 0)
        self._pinned.extend(p for p in func.params if p in self._web)
        self._block(func.block, 0)
        for value in func.results:
            self._use_whole(value)
            if isinstance(value.type, StackType):
                self._pinned.extend(v for v in (value,) if v in self._web)  # whoever takes it takes one tape
        self._decide()

    @property
    def idle(self) -> bool:
        """Nothing is taken apart."""
        return all(self._whole)

    def apart(self, value: Value) -> bool:
        web = self._web.get(value)
        return web is not None and not self._whole[self._find(web)]

    def size(self, value: Value) -> int:
        found = self._sizes.get(value.type)
        if found is None:
            found = self._sizes[value.type] = elements(value.type)
        return found

    # -- the walk -----------------------------------------------------------------------------------------------------
    def _block(self, block: Block, depth: int) -> None:
        for param in block.params:
            self._define(param, depth)
        for instr in block.body[:-1]:
            if instr.blocks:
                self._control(instr, depth)
            else:
                self._visit(instr, depth)

    def _define(self, value: Value, depth: int) -> None:
        if self.size(value):
            self._depth[value] = depth
            self._web[value] = len(self._parent)
            self._parent.append(len(self._parent))

    def _visit(self, instr: Instr, depth: int) -> None:
        if not any(map(self.size, instr.args)) and not any(map(self.size, instr.outs)):
            if instr.outs and instr.outs[0].type == SCALAR_INTEGER:
                self._learn(instr)
            return
        kind = self.kinds[instr] = self._kind(instr)
        if kind == "source":
            self.sources[instr.outs[0]] = instr
            self._learn(instr)
            return
        for out in instr.outs:
            self._define(out, depth)
        if kind == "tape":
            self._tape(instr)
        elif kind == "apart":
            self._learn(instr)
            self._link(instr)
        elif kind == "view":
            self._use_whole(instr.args[0])
            for index in instr.args[1:]:
                self._border(index, instr.outs[0])
        else:
            for arg in instr.args:
                self._use_whole(arg)
            self._pinned.extend(out for out in instr.outs if out in self._web)

    def _kind(self, instr: Instr) -> str:
        """ "source"; "tape"; "apart": each element from elements; "view": each element from a whole first operand at an
        index of its own; "whole" for the rest."""
        name = instr.op.name
        if name.startswith("stack."):
            return "tape"
        (out,) = instr.outs
        if name in ("const", "iota") or (name in ("broadcast", "reshape") and not instr.args[0].type.rank):
            return "source"
        if handler(instr.op) is None or (out.type.rank and not self.size(out)):
            return "whole"
        if all(self.size(a) or not a.type.rank or 0 in a.type.shape for a in instr.args) and self._static(instr):
            return "apart"
        if name in ("slice", "gather") and self.size(out) and all(self.size(a) or not a.type.rank for a in instr.args[1:]):
            return "view"
        return "whole"

    def _static(self, instr: Instr) -> bool:
        """Whether all places are known, and a contraction is small."""
        if instr.op.name == "contract":
            summed = [instr.args[0].type.shape[k] for k in instr.attrs["axes"][0]]
            return math.prod((*instr.outs[0].type.shape, *summed)) <= PRODUCTS
        if instr.op.name in ("slice", "slice_set", "slice_add"):
            return not any(isinstance(s, Dim) for s in instr.attrs["starts"])
        return all(instr.args[k] in self.known for k in index_operands(instr))

    def _learn(self, instr: Instr) -> None:
        """Integers that are known from known ones."""
        (out,) = instr.outs
        if out.type.dtype is not i64 or any(a not in self.known for a in instr.args) or any(map(_is_dim, instr.attrs.values())):
            return
        args = tuple(self.known[a] for a in instr.args)
        if instr.op.name == "check_index" and not np.all((-instr.attrs["size"] <= args[0]) & (args[0] < instr.attrs["size"])):
            return  # an error when it runs
        if isinstance(instr.op, Elementwise):
            with np.errstate(all="ignore"):
                self.known[out] = np.asarray(instr.op.numpy(*args, **instr.attrs), np.int64)
        elif instr.op.evaluate is not None:
            self.known[out] = np.asarray(instr.op.evaluate(args, instr.attrs))

    # -- borders ------------------------------------------------------------------------------------------------------
    def _link(self, instr: Instr) -> None:
        (out,) = instr.outs
        size = self.size(out)
        bulk = instr.op.name not in _MOVES
        if bulk and size > FEW:
            self._pinned.append(out)
        for arg in dict.fromkeys(instr.args):
            count = self.size(arg)
            if not count:
                continue
            if arg in self.sources:
                if instr.op.name == "concatenate" and size:
                    self._gains.append((out, self._gain(out, count)))
                continue
            if bulk and count > FEW:
                self._pinned.append(arg)
            if size:
                self._border(arg, out)
            else:
                self._gains.append((arg, self._gain(arg, count)))

    def _border(self, a: Value, b: Value) -> None:
        """``a`` is an operand of ``b``, or what ``b`` starts from."""
        if a in self._web and b in self._web:
            size = min(self.size(a), self.size(b))
            self._borders.append((a, b, size * TRIPS ** self._depth[a], self._gain(a, size)))

    def _gain(self, value: Value, size: int) -> int:
        depth = self._depth[value]
        return size * TRIPS**depth if depth else 0

    def _use_whole(self, value: Value) -> None:
        if value in self._web:
            self._whole_uses.append(value)

    def _tape(self, instr: Instr) -> None:
        tapes = [v for v in (*instr.args, *instr.outs) if isinstance(v.type, StackType)]
        for tape in tapes[1:]:
            self._union(tapes[0], tape)
        for value in (*instr.args[1:], *instr.outs[1:]):
            self._border(value, tapes[0])

    # -- control flow -------------------------------------------------------------------------------------------------
    def _control(self, instr: Instr, depth: int) -> None:
        inner = depth if instr.op.name == "if" else depth + 1
        for block in instr.blocks:
            self._block(block, inner)
        for out in instr.outs:
            self._define(out, depth)
        if instr.op.name == "if":
            for block in instr.blocks:
                self._hand_on(block, instr.outs)
            for out in instr.outs:
                if out in self._web:
                    self._gains.append((out, self._gain(out, self.size(out))))
            return
        body = instr.blocks[-1]
        inits = instr.args[len(instr.args) - len(instr.outs) :]
        heads = [block.params[len(block.params) - len(instr.outs) :] for block in instr.blocks]
        for head in heads:
            for param, out, init in zip(head, instr.outs, inits, strict=True):
                if param in self._web:
                    self._union(param, out)
                    self._carried[self._web[param]] = inner
                    self._gains.append((param, self._gain(param, self.size(param))))
                    self._hand(init, param)
        self._hand_on(body, heads[-1])

    def _hand_on(self, block: Block, to: Iterable[Value]) -> None:
        """What a block yields is in the web of what it becomes, if the block itself makes it."""
        own = set(block.params)
        own.update(out for instr in block.body for out in instr.outs)
        for value, target in zip(block.results, to, strict=True):
            if value in own:
                self._union(value, target)
            else:
                self._hand(value, target)

    def _hand(self, value: Value, target: Value) -> None:
        """A value from outside becomes a carried one or a result; a tape cannot cross a border."""
        if isinstance(value.type, StackType):
            self._union(value, target)
        else:
            self._border(value, target)

    # -- the decision -------------------------------------------------------------------------------------------------
    def _find(self, web: int) -> int:
        parent = self._parent
        while parent[web] != web:
            parent[web] = parent[parent[web]]
            web = parent[web]
        return web

    def _union(self, a: Value, b: Value) -> None:
        """Sources have no web: they are whatever is wanted."""
        if a in self._web and b in self._web:
            self._parent[self._find(self._web[a])] = self._find(self._web[b])

    def _decide(self) -> None:
        count, find = len(self._parent), self._find
        cost, gain = [0] * count, [0] * count
        neighbours: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]
        carried: dict[int, int] = {}
        for web, depth in self._carried.items():
            carried[find(web)] = max(depth, carried.get(find(web), 0))
        for value in self._whole_uses:
            if carried.get(find(self._web[value])) == self._depth[value]:
                self._pinned.append(value)
        for value in dict.fromkeys(self._whole_uses):
            cost[find(self._web[value])] += self.size(value) * TRIPS ** self._depth[value]
        for value, amount in self._gains:
            gain[find(self._web[value])] += amount
        for a, b, price, saved in self._borders:
            i, j = find(self._web[a]), find(self._web[b])
            if i != j:
                neighbours[i].append((j, price, saved))
                neighbours[j].append((i, price, saved))
                gain[i] += saved
                gain[j] += saved
        whole = self._whole = [find(web) != web for web in range(count)]  # those that were merged do not count
        pending = [find(self._web[value]) for value in self._pinned]
        pending += [web for web in range(count) if cost[web] and cost[web] >= gain[web]]
        while pending:
            web = pending.pop()
            if whole[web]:
                continue
            whole[web] = True
            for other, price, saved in neighbours[web]:
                cost[other] += price
                gain[other] -= saved
                if cost[other] >= gain[other] and not whole[other]:
                    pending.append(other)


def _is_dim(attribute: Any) -> bool:
    return isinstance(attribute, Dim)
