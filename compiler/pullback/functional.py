"""Branches and loops as functions: ``pb.cond``, ``pb.while_loop``, ``pb.for_loop``, ``pb.scan``.

Python's own ``if``, ``for`` and ``while`` do the same in functions whose source text is known. These do it anywhere, also in a
lambda typed at a prompt, and outside of compiled functions they are plain Python. Only what tracing needs is imported then.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback_runtime.signature import flatten, map_leaves


def _trace() -> Any:
    """The trace of this thread, if the tracing of functions has been loaded at all."""
    module = sys.modules.get("pullback.frontends.trace")
    return None if module is None else module.active()


def _is_traced(x: Any) -> bool:
    from pullback.frontends.staging_python import is_traced

    return is_traced(x)


def cond(pred: Any, then: Callable[..., Any], other: Callable[..., Any], *operands: Any) -> Any:
    """``then(*operands) if pred else other(*operands)``: within a compiled function just one of them is done when it runs.

    ``pred`` is one number or boolean. Both functions must return the same structure, of arrays of the same shapes; numbers meet
    in NumPy's common type. TraceError, with the difference, if they do not.

    >>> f = pb.compile(lambda x: pb.cond(x > 0, np.sqrt, lambda v: -v, x))
    >>> f(4.0), f(-3.0), f.grad(4.0)
    (2.0, 3.0, 0.25)
    """
    trace = _trace()
    if trace is None or not _is_traced(pred):
        return then(*operands) if pred else other(*operands)
    from pullback.frontends.staging import UNBOUND, stage_if, use
    from pullback.frontends.staging_python import reachable

    name = "the result"
    after = stage_if(
        trace,
        pred,
        lambda state: {name: then(*operands)},
        lambda state: {name: other(*operands)},
        {name: UNBOUND},
        roots=reachable({}),
        text="cond",
    )
    return use(trace, after[name])


def while_loop(test: Callable[[Any], Any], body: Callable[[Any], Any], init: Any) -> Any:
    """``carry = init``, then ``carry = body(carry)`` as long as ``test(carry)`` holds; the last carry.

    ``carry`` is an array or number, or a tuple, list or dict of them, that keeps its structure and shapes. It may have a number
    of a lower type at first: an int becomes a float where the body makes it one.

    >>> double = pb.compile(lambda x: pb.while_loop(lambda y: np.linalg.norm(y) < 1000, lambda y: y * 2, x))
    >>> double(np.array([3.0, 4.0]))
    array([ 768., 1024.])
    >>> double.vjp(np.array([3.0, 4.0]), seed=np.array([1.0, -0.5]))[1]
    array([ 256., -128.])
    """
    trace = _trace()
    if trace is None:
        carry = init
        while test(carry):
            carry = body(carry)
        return carry
    from pullback.frontends.staging import stage_while, use
    from pullback.frontends.staging_python import reachable

    name = "the carry"
    after = stage_while(
        trace,
        lambda state: test(state[name]),
        lambda state: {name: body(state[name])},
        {name: init},
        roots=reachable({}),
        text="while_loop",
    )
    return use(trace, after[name])


def for_loop(bounds: Any, body: Callable[[Any, Any], Any], init: Any) -> Any:
    """``carry = body(i, carry)`` for each ``i`` in ``range(bounds)``, or ``range(*bounds)`` for a pair; the last carry.

    The bounds are integers, lengths such as ``x.shape[0]``, or integers that the function computes. ``carry`` as for
    :func:`while_loop`.

    >>> power = pb.compile(lambda x, n: pb.for_loop(n, lambda i, y: y * x, 1.0))
    >>> power.value_and_grad(2.0, np.int64(10), wrt="x")
    (1024.0, 5120.0)
    """
    low, high = bounds if isinstance(bounds, (tuple, list)) else (0, bounds)
    trace = _trace()
    if trace is None:
        carry = init
        for i in range(low, high):
            carry = body(i, carry)
        return carry
    from pullback.frontends.staging import stage_for, use
    from pullback.frontends.staging_iter import Steps
    from pullback.frontends.staging_python import reachable

    name, steps = "the carry", Steps(trace, low, high, 1)
    after = stage_for(
        trace,
        steps.trips,
        lambda state, trip: {name: body(steps.at(trip), state[name])},
        {name: init},
        roots=reachable({}),
        text="for_loop",
    )
    return use(trace, after[name])


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: Any = None) -> tuple[Any, Any]:
    """``carry, y = f(carry, x)`` for each ``x`` along the first axis of ``xs``; the last carry, and all ``y`` stacked.

    ``xs`` is an array, or a tuple, list or dict of arrays with first axes of one length; or None, with the number of steps as
    ``length``. ``y`` may be any such structure, or None.

    >>> decay = pb.compile(lambda x: pb.scan(lambda s, v: (0.5 * s + v, s * v), 0.0, x))
    >>> decay(np.array([1.0, 2.0, 4.0]))
    (5.25, array([ 0.,  2., 10.]))
    """
    trace = _trace()
    if trace is not None:
        from pullback.frontends.staging_scan import staged_scan

        return staged_scan(trace, f, init, xs, length)
    lengths = {len(leaf) for leaf in flatten(xs)[0]} | (set() if length is None else {int(length)})
    if len(lengths) != 1:
        raise ValueError(f"scan takes arrays whose first axes have one length, got {sorted(lengths) or 'none; pass length='}")
    carry, rows = init, []
    for k in range(lengths.pop()):
        carry, y = f(carry, map_leaves(operator.itemgetter(k), xs))
        rows.append(flatten(y))
    if not rows:
        raise ValueError("scan of no steps: outside of compiled functions the shape of what it stacks is not known")
    columns = zip(*(leaves for leaves, _ in rows), strict=True)
    return carry, rows[0][1].unflatten([np.stack(column) for column in columns])
