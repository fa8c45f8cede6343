"""``pb.scan`` while tracing: a loop that fills arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.errors import TraceError
from pullback.frontends.array import Array
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length, of_size
from pullback.frontends.staging import Stage, State, stage_for, use
from pullback.frontends.staging_python import reachable
from pullback.frontends.staging_region import Region
from pullback.frontends.staging_tree import Joiner, Lost, Merge, Sides, build, describe, outs
from pullback.frontends.trace import Trace
from pullback.ir.dims import Size
from pullback_runtime.signature import flatten, map_leaves

CARRY, MADE = "the carry", "what is stacked"


def staged_scan(
    trace: Trace, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: Any, counts: bool = False
) -> tuple[Any, Any]:
    """``counts``: ``f`` takes the number of the step."""
    steps = _steps(trace, xs, length)

    def taken(k: Array) -> Any:
        return k if counts else map_leaves(lambda leaf: leaf[k], xs)

    merge = _made(trace, f, init, taken, steps)
    buffers = [Array(trace, trace.here().zeros(o.type.with_shape((steps, *o.type.shape)))) for o in outs(merge)]

    def trip(state: State, k: Array) -> State:
        carry, y = f(state[CARRY], taken(k))
        for buffer, leaf in zip(buffers, flatten(y)[0], strict=True):
            buffer[k] = leaf
        return {CARRY: carry}

    after = stage_for(trace, steps, trip, {CARRY: init}, roots=[*reachable({}), *buffers], text="scan")
    return use(trace, after[CARRY]), build(trace, merge, iter([b.value for b in buffers]), MADE)


def stacked(trace: Trace, steps: Size, item: Callable[[Array], Any]) -> Array:
    """The items of all steps as one array."""
    _, made = staged_scan(trace, lambda carry, k: (carry, item(k)), 0, None, of_size(trace, steps), counts=True)
    if not isinstance(made, Array):
        raise trace.error(
            TraceError,
            f"a list of as many items as an axis is long has items of type {type(made).__name__}; arrays or numbers expected",
            "make a list of each part",
        )
    return made


def _steps(trace: Trace, xs: Any, length: Any) -> Size:
    sizes: list[Size] = [wrap(leaf).type.shape[0] for leaf in flatten(xs)[0]]
    if length is not None:
        sizes.append(length.size if isinstance(length, Length) else int(length))
    if not sizes:
        raise trace.error(TraceError, "scan without arrays needs the number of its steps", "pass length=")
    for size in sizes[1:]:
        trace.equate(sizes[0], size)
    return trace.canonical(sizes[0])


def _made(
    trace: Trace, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, taken: Callable[[Array], Any], steps: Size
) -> Merge:
    """The types of what a step makes, once the carry has the types that it keeps; found by tracing the loop, and undone."""
    stage = Stage(trace, {CARRY: init}, reachable({}), (), "scan")
    found: list[Any] = []
    joiner = Joiner(trace, MADE, Sides("in one step", "in another", f"of {stage.what}", ""))

    def trip(state: State, k: Array) -> State:
        carry, y = f(state[CARRY], taken(k))
        found.append(joiner.template(describe(trace, y)))
        return {CARRY: carry}

    def loop(state: State) -> State:
        return stage_for(trace, steps, trip, state, roots=reachable({}), text="scan")

    region = Region(trace, stage.what)
    stage.run(region, lambda: dict(stage.state), loop)
    trace.pending.remove(region)
    merge = found[-1]
    if isinstance(merge, Lost):
        raise trace.error(TraceError, merge.message, merge.remedy)
    return merge
