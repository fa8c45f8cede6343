"""Reverse mode: the adjoint of a function, as another function of the same IR.

``y = f(x)`` seeded with ``y_adj`` (the gradient of some loss with respect to ``y``) gives ``x_adj``, the gradient of that
loss with respect to ``x``. Going backwards, each instruction multiplies its result's cotangent by its partial derivatives and
adds the products to the cotangents of its operands (Griewank and Walther 2008, chapter 3): ``adjoint_line.py`` in straight-line
code, ``adjoint_control.py`` for loops and branches. The result is IR, so the pass can be applied to its own output.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from pullback.ir.core import Func, Value
from pullback.ir.dims import Dim, Size, symbols
from pullback.ir.types import Type
from pullback.passes.activity import Activity
from pullback.passes.adjoint_control import reverse
from pullback.passes.adjoint_regions import Whole
from pullback.passes.chain import Derivative
from pullback.passes.rewrite import type_of
from pullback.passes.segments import in_segments


def adjoint(func: Func, wrt: Sequence[Value], seeded: Sequence[Value] | None = None, primal: bool = True) -> Func:
    """The function of ``func``'s parameters and one seed per ``seeded`` value that returns (results, cotangents of ``wrt``).

    ``wrt`` and ``seeded`` are values of ``func``'s own block: parameters, results or intermediates. ``seeded`` is by default
    every floating result, once per place. ``primal=False`` leaves the results out.
    """
    if seeded is None:
        seeded = [v for v in func.results if type_of(v).is_float]
    func = in_segments(func)
    whole = Whole(func, Activity(func, wrt, seeded))
    b = whole.builder
    seeds = []
    known = set(symbols(axis for param in func.params for axis in param.type.shape))
    for value in seeded:
        seed = Value(f"{value.name}_adj" if value.name else "seed", _seed_type(value, known))
        seeds.append(seed)
        same = seed.type == value.type
        whole.contribute(value, Derivative(seed if same else b.match(seed, shape=value.type.shape)))
    reverse(whole, func.body[:-1])
    gradients = [whole.gradient(value) for value in wrt]
    body = [*whole.forward(func.body[:-1]), *b.body]
    b.body[:] = body
    block = b.close("return", (*(func.results if primal else ()), *gradients), (*func.params, *seeds))
    return Func(f"{func.name}_adj", block, func.names)


def _seed_type(value: Value, known: set[str]) -> Type:
    """The seed's type: the value's, but a length that a mask decides is one of the seed's own, to be compared with it.
    Such a new symbol is added to ``known``."""
    axes: list[Size] = []
    for size in value.type.shape:
        if not symbols((size,)) <= known:
            name = next(name for k in count() if (name := f"seed{k}") not in known)
            known.add(name)
            size = Dim.symbol(name)
        axes.append(size)
    return type_of(value).with_shape(tuple(axes))
