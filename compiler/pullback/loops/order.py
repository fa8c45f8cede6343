"""Which axis of a nest runs innermost: the one along which most of the memory is contiguous."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.dims import Size
from pullback.loops.nest import Loop, Node
from pullback.loops.plan import Root

DEEP = 40  # an index expression nested deeper than this has no vote


def loop_order(
    domain: tuple[Size, ...], loops: Sequence[Loop], loads: Sequence[Node], roots: Sequence[Root]
) -> tuple[int, ...]:
    """A permutation of the axes, the last innermost. Axes other than that one keep their order."""
    axes = [a for a, size in enumerate(domain) if size != 1]
    if len(axes) < 2:
        return tuple(range(len(domain)))
    votes = dict.fromkeys(axes, 0)
    for load in loads:
        strides = {axis: stride(load.args[0], loop, 0) for axis, loop in zip(axes, loops, strict=True)}
        weight = sum(1 for step in strides.values() if step != 0)
        for axis, step in strides.items():
            if step == 1:
                votes[axis] += weight
    for root in roots:
        kept = axes
        if root.kind == "fold" and root.instr is not None:
            kept = [a for a in axes if a not in root.instr.attrs["axes"]]
        if kept:
            votes[kept[-1]] += len(kept)
    best = max(axes, key=lambda a: (votes[a], a))
    if votes[best] == votes[axes[-1]]:
        best = axes[-1]
    return (*(a for a in range(len(domain)) if a != best), best)


def stride(node: Node, loop: Loop, depth: int = 0) -> Size | None:
    """By how much a position grows with a loop's index; None if that is not a constant."""
    if node.kind == "index":
        return 1 if node.data is loop else 0
    if node.scope is None or node.scope.level < loop.level:  # a node is in the innermost loop that it depends on
        return 0
    if node.kind != "raw" or depth > DEEP:
        return 0 if node.kind in ("const", "size", "param") else None
    parts = [stride(a, loop, depth + 1) for a in node.args]
    if all(part == 0 for part in parts):
        return 0
    if any(part is None for part in parts):
        return None
    left, right = parts[0], parts[-1]
    assert left is not None and right is not None
    if node.data == "add":
        return left + right
    if node.data == "sub":
        return left - right
    if node.data == "mul":
        fixed, moving = (node.args[0], right) if left == 0 else (node.args[1], left)
        return fixed.data * moving if fixed.kind in ("const", "size") else None
    return None
