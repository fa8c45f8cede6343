"""Forward mode: the tangent (Jacobian-vector product) of a function, as another function of the same IR.

Every value that moves with the inputs has its tangent beside it: loops carry both, branches yield both, and a tape has a second
one for the tangents of what is pushed.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core import Builder, Func, Instr, Value, walk
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, General, Linear, Weighted
from pullback.ir.types import StackType
from pullback.passes.activity import Activity, carried
from pullback.passes.chain import Derivative, add, is_singular, may_be_infinite, multiply, partials, weights
from pullback.passes.rewrite import Definitions, type_of


def tangent(func: Func, wrt: Sequence[Value], primal: bool = True) -> Func:
    """The function of ``func``'s parameters and a tangent per ``wrt`` that returns (results, tangents of the floating results).

    ``wrt`` are parameters of ``func``. ``primal=False`` leaves the results out.
    """
    pass_ = _Tangent(func, wrt)
    b = Builder()
    seeds = [_dot(v, "dot") for v in wrt]
    pass_.tangents.update((v, Derivative(seed)) for v, seed in zip(wrt, seeds, strict=True))
    pass_.run(b, func.body[:-1])
    moved = [pass_.of(b, v).value for v in func.results if type_of(v).is_float]
    block = b.close("return", (*(func.results if primal else ()), *moved), (*func.params, *seeds))
    return Func(f"{func.name}_dot", block, func.names)


def _dot(value: Value, otherwise: str = "") -> Value:
    return Value(f"{value.name}_dot" if value.name else otherwise, value.type)


class _Tangent:
    def __init__(self, func: Func, wrt: Sequence[Value]):
        self.active = Activity(func, wrt, ()).active
        self.defs = Definitions()
        self.defs.add(walk(func.block))
        self.tangents: dict[Value, Derivative] = {}
        self.infinite = any(may_be_infinite(instr, self.defs) for instr in walk(func.block))

    def of(self, b: Builder, value: Value) -> Derivative:
        """The tangent; zero (for a tape: an empty one) if ``value`` does not move."""
        found = self.tangents.get(value)
        if found is not None:
            return found
        if isinstance(value.type, StackType):
            return Derivative(b.emit(OPS["stack.new"], (), {"element": value.type.element})[0])
        return Derivative(b.zeros(value.type))

    def run(self, b: Builder, body: Sequence[Instr]) -> None:
        for instr in body:
            b.loc = instr.loc
            if not any(out in self.active for out in instr.outs):
                b.body.append(instr)
                continue
            match instr.op.name:
                case "if":
                    self.branch(b, instr)
                case "for" | "while":
                    self.loop(b, instr)
                case "stack.push":
                    b.body.append(instr)
                    pushed = b.emit(instr.op, [self.of(b, a).value for a in instr.args])[0]
                    self.tangents[instr.out] = Derivative(pushed)
                case "stack.pop":
                    b.body.append(instr)
                    popped = b.emit(instr.op, (self.of(b, instr.args[0]).value,))
                    self.tangents.update((out, Derivative(v, None, True)) for out, v in zip(instr.outs, popped, strict=True))
                case _:
                    b.body.append(instr)
                    if any(a in self.tangents for a in instr.args):
                        moved = self.move(b, instr)
                        if moved is not None:
                            self.tangents[instr.out] = moved

    # -- blocks -----------------------------------------------------------------------------------------------------
    def branch(self, b: Builder, instr: Instr) -> None:
        places = [k for k, out in enumerate(instr.outs) if out in self.active]
        blocks = []
        for block in instr.blocks:
            inner = Builder(b)
            self.run(inner, block.body[:-1])
            moved = [self.of(inner, block.results[k]).value for k in places]
            blocks.append(inner.close("yield", (*block.results, *moved)))
        outs = [_dot(instr.outs[k]) for k in places]
        b.body.append(Instr(instr.op, (*instr.outs, *outs), instr.args, instr.attrs, tuple(blocks), instr.loc))
        self.moved([instr.outs[k] for k in places], outs)

    def loop(self, b: Builder, instr: Instr) -> None:
        moving = [c for c in carried(instr) if c[-1] in self.active]
        starts = [self.of(b, init).value for init, *_ in moving]
        blocks = []
        for number, block in enumerate(instr.blocks):
            inner = Builder(b)
            params = [_dot(params[number]) for _, params, _, _ in moving]
            last = number == len(instr.blocks) - 1
            if last:
                self.moved([params[number] for _, params, _, _ in moving], params)
                self.run(inner, block.body[:-1])
            else:
                inner.body.extend(block.body[:-1])
            moved = [self.of(inner, result).value for _, _, result, _ in moving] if last else []
            blocks.append(inner.close("yield", (*block.results, *moved), (*block.params, *params)))
        outs = [_dot(out) for *_, out in moving]
        args = (*instr.args, *starts)
        b.body.append(Instr(instr.op, (*instr.outs, *outs), args, instr.attrs, tuple(blocks), instr.loc))
        self.moved([out for *_, out in moving], outs)

    def moved(self, values: Sequence[Value], tangents: Sequence[Value]) -> None:
        """Tangents that came through a border, in a loop perhaps from an instruction that is still to come."""
        for value, dot in zip(values, tangents, strict=True):
            self.tangents[value] = Derivative(dot, None, self.infinite)

    # -- one instruction --------------------------------------------------------------------------------------------
    def move(self, b: Builder, instr: Instr) -> Derivative | None:
        op, tangents = instr.op, self.tangents
        if op.name == "select":
            condition, *branches = instr.args
            return Derivative(b.select(condition, *(self.of(b, a).value for a in branches)), None, self.wild(instr))
        if isinstance(op, Elementwise):
            return self.elementwise(b, instr, is_singular(instr, self.defs))
        if isinstance(op, Linear):
            return self.linear(b, instr, op)
        if isinstance(op, Weighted):
            x = instr.args[0]
            terms = multiply(b, tangents[x], weights(b, instr), instr, op.singular)
            assert terms is not None
            return Derivative(b.sum(terms.value, axes=instr.attrs["axes"]), None, terms.wild)
        if isinstance(op, General):
            given = tuple(tangents[a].value if a in tangents else None for a in instr.args)
            return Derivative(op.jvp(b, instr, given), None, self.wild(instr))
        return None

    def wild(self, instr: Instr) -> bool:
        return any(self.tangents[a].wild for a in instr.args if a in self.tangents)

    def elementwise(self, b: Builder, instr: Instr, singular: bool) -> Derivative | None:
        total: Derivative | None = None
        for arg, partial in zip(instr.args, partials(b, instr), strict=True):
            part = multiply(b, self.tangents[arg], partial, instr, singular) if arg in self.tangents else None
            if part is not None:
                total = add(b, total, part)
        return total

    def linear(self, b: Builder, instr: Instr, op: Linear) -> Derivative:
        """The op applied to the tangents; the arguments in which it is not linear are passed on."""
        places = range(len(instr.args)) if op.linear is None else [p % len(instr.args) for p in op.linear]
        args = list(instr.args)
        for place in places:
            args[place] = self.of(b, args[place]).value
        return Derivative(b.emit(op, args, instr.attrs)[0], None, self.wild(instr))
