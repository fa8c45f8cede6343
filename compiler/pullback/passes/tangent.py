"""Forward mode: the tangent (Jacobian-vector product) of a straight-line function, as another function of the same IR."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.errors import UnsupportedError
from pullback.ir.core import Builder, Func, Instr, Value
from pullback.ir.ops.base import Elementwise, General, Linear, Weighted
from pullback.passes.adjoint import active_values
from pullback.passes.chain import Derivative, add, is_singular, multiply, partials, weights
from pullback.passes.rewrite import Definitions, type_of


def tangent(func: Func, wrt: Sequence[Value], primal: bool = True) -> Func:
    """The function of ``func``'s parameters and a tangent per ``wrt`` that returns (results, tangents of the floating results).

    ``wrt`` are parameters of ``func``. ``primal=False`` leaves the results out.
    """
    active = active_values(func, wrt)
    b = Builder()
    defs = Definitions()
    defs.add(func.body)
    seeds = [Value(f"{v.name}_dot" if v.name else "dot", v.type) for v in wrt]
    tangents = {v: Derivative(seed) for v, seed in zip(wrt, seeds, strict=True)}
    for instr in func.body[:-1]:
        b.body.append(instr)
        if not any(out in active for out in instr.outs) or not any(a in tangents for a in instr.args):
            continue
        b.loc = instr.loc
        moved = _move(b, instr, tangents, defs)
        if moved is not None:
            tangents[instr.out] = moved
    moved_results = [tangents[v].value if v in tangents else b.zeros(v.type) for v in func.results if type_of(v).is_float]
    block = b.close("return", (*(func.results if primal else ()), *moved_results), (*func.params, *seeds))
    return Func(f"{func.name}_dot", block, func.names)


def _move(b: Builder, instr: Instr, tangents: dict[Value, Derivative], defs: Definitions) -> Derivative | None:
    op = instr.op
    if instr.blocks:
        raise UnsupportedError(f"{instr.loc}: the tangent of '{op.name}' is not available")
    if op.name == "select":
        condition, *branches = instr.args
        moved = [tangents[a].value if a in tangents else b.zeros(a.type) for a in branches]
        return Derivative(b.select(condition, *moved), None, _wild(instr, tangents))
    if isinstance(op, Elementwise):
        return _elementwise(b, instr, tangents, is_singular(instr, defs))
    if isinstance(op, Linear):
        return _linear(b, instr, op, tangents)
    if isinstance(op, Weighted):
        x = instr.args[0]
        terms = multiply(b, tangents[x], weights(b, instr), instr, op.singular)
        assert terms is not None
        return Derivative(b.sum(terms.value, axes=instr.attrs["axes"]), None, terms.wild)
    if isinstance(op, General):
        given = tuple(tangents[a].value if a in tangents else None for a in instr.args)
        return Derivative(op.jvp(b, instr, given), None, _wild(instr, tangents))
    return None


def _wild(instr: Instr, tangents: dict[Value, Derivative]) -> bool:
    return any(tangents[a].wild for a in instr.args if a in tangents)


def _elementwise(b: Builder, instr: Instr, tangents: dict[Value, Derivative], singular: bool) -> Derivative | None:
    total: Derivative | None = None
    for arg, partial in zip(instr.args, partials(b, instr), strict=True):
        part = multiply(b, tangents[arg], partial, instr, singular) if arg in tangents else None
        if part is not None:
            total = add(b, total, part)
    return total


def _linear(b: Builder, instr: Instr, op: Linear, tangents: dict[Value, Derivative]) -> Derivative:
    """The op applied to the tangents; the arguments in which it is not linear are passed on."""
    places = range(len(instr.args)) if op.linear is None else [p % len(instr.args) for p in op.linear]
    args = list(instr.args)
    for place in places:
        arg = args[place]
        args[place] = tangents[arg].value if arg in tangents else b.zeros(arg.type)
    return Derivative(b.emit(op, args, instr.attrs)[0], None, _wild(instr, tangents))
