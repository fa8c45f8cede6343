"""A compiled function called while another one is traced becomes part of that trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pullback.frontends.array import Array
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.trace import Trace, active
from pullback.frontends.traced import SizeGuard, Spec, Traced, ValueGuard
from pullback.ir import dims
from pullback.ir.core import Value
from pullback.ir.dims import Dim, Size
from pullback.ir.types import Type
from pullback.passes.inline import inline


def trace_hook(function: Any, values: Sequence[Any]) -> tuple[bool, Any]:
    """What the runtime asks when a compiled function is called: within a trace, the call becomes part of it."""
    trace = active()
    if trace is None or getattr(function, "frontend", None) is None:
        return False, None
    leaves: list[Array] = []
    specs = [_specs(trace, tree, leaves, p.name) for p, tree in zip(function.parameters, values, strict=True)]
    return True, inline_traced(trace, function.traced(specs), leaves, function.__name__)


def _specs(trace: Trace, tree: Any, leaves: list[Array], path: str) -> Any:
    """The tree with a Spec for each leaf, over symbols of its own; the traced leaves are collected in order."""
    if isinstance(tree, tuple):
        parts = [_specs(trace, part, leaves, f"{path}[{k}]") for k, part in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if isinstance(tree, list):
        return [_specs(trace, part, leaves, f"{path}[{k}]") for k, part in enumerate(tree)]
    if isinstance(tree, dict):
        return {key: _specs(trace, part, leaves, f"{path}[{key!r}]") for key, part in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree)]
        return type(tree)(**{name: _specs(trace, getattr(tree, name), leaves, f"{path}.{name}") for name in fields})
    if tree is None or isinstance(tree, str):
        return tree
    array = wrap(tree._array() if isinstance(tree, Length) else tree, path)
    leaves.append(array)
    shape: list[Size] = []
    hint: list[int] = []
    for axis, size in enumerate(array.symbolic_shape):
        shape.append(Dim.symbol(f"s{len(leaves) - 1}_{axis}") if isinstance(size, Dim) else size)
        counted = isinstance(size, Dim) and not size.symbols().isdisjoint(trace.counts)
        hint.append(10**6 if counted else trace.hint(size) if isinstance(size, Dim) else size)
    return Spec(Type(array.dtype_, tuple(shape)), array.weak, tuple(hint))


def inline_traced(trace: Trace, traced: Traced, leaves: list[Array], name: str) -> Any:
    """Copy a traced function's body into the trace; its captures and guards become the trace's own."""
    b = trace.here()
    values: list[Value] = [leaf.value for leaf in leaves]
    for hidden in traced.hidden:
        path, found = f"{name}: {hidden.path}", hidden.read()
        # a traced array of a function around the inlined one is this trace's own, or comes from further outside
        values.append(wrap(found).value if isinstance(found, Array) else trace.capture(path, found, hidden.read))
    sizes = _sizes(trace, traced, values)
    for guard in traced.guards:
        if isinstance(guard, ValueGuard):
            trace.guards.setdefault(("value", name, guard.path), guard)
        elif isinstance(guard, SizeGuard):
            trace.decide(dims.replace(guard.left, sizes), guard.relation, dims.replace(guard.right, sizes))
    results, names = inline(b, traced.func, values)
    for inner, value in names:
        if trace.region is None and all(inner != known for known, _ in trace.names):
            trace.names.append((inner, value))
    weak = traced.weak or (False,) * len(results)
    arrays = [Array(trace, value, weak=w, contiguous=True) for value, w in zip(results, weak, strict=True)]
    return traced.output.unflatten(arrays)


def _sizes(trace: Trace, traced: Traced, values: list[Value]) -> dict[str, Size]:
    """What the callee's symbols are in the caller's lengths; axes that the callee found equal are made equal here."""
    sizes: dict[str, Size] = {}
    pairs = [
        pair for p, v in zip(traced.func.params, values, strict=True) for pair in zip(p.type.shape, v.type.shape, strict=True)
    ]
    for axis, size in pairs:
        symbol = axis.bare_symbol() if isinstance(axis, Dim) else None
        if symbol is not None:
            sizes.setdefault(symbol, size)
    for place, param in enumerate(traced.func.params):
        wanted = tuple(dims.replace(axis, sizes) for axis in param.type.shape)
        for k, axis in enumerate(wanted):
            if not trace.equate(axis, values[place].type.shape[k]):
                value = values[place]
                shape = tuple(axis if j == k else n for j, n in enumerate(value.type.shape))
                values[place] = trace.builder.match(value, shape=shape)
        sizes.update({symbol: trace.canonical(size) for symbol, size in sizes.items()})
    return sizes
