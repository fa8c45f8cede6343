"""The passes in their order, checked one by one when ``PULLBACK_CHECK=1``.

``PULLBACK_DUMP=NAME`` prints the IR after the pass NAME to stderr: one of ``DUMPS``, ``all`` for every pass.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from pullback.ir.core import Func, Value
from pullback.passes.adjoint import adjoint
from pullback.passes.cse import cse
from pullback.passes.dce import dce
from pullback.passes.scalarize import scalarize
from pullback.passes.simplify import simplify
from pullback.passes.tangent import tangent
from pullback.passes.together import together

PASSES: Mapping[str, Callable[[Func], Func]] = {
    "simplify": simplify,
    "cse": cse,
    "dce": dce,
    "scalarize": scalarize,
    "together": together,
}
OPTIMIZE: tuple[str, ...] = ("simplify", "cse", "dce")
PREPARE: tuple[str, ...] = ("scalarize", "together")
DUMPS = ("all", "the frontend", *PASSES, "adjoint", "tangent")


def run(func: Func, names: Sequence[str]) -> Func:
    """Apply passes by name, in order."""
    for name in names:
        func = checked(name, PASSES[name](func))
    return func


def optimize(func: Func) -> Func:
    return run(func, OPTIMIZE)


def prepare(func: Func) -> Func:
    """What is compiled for ``func``: with what would only make its derivatives larger."""
    for name in PREPARE:
        ready = PASSES[name](func)
        func = ready if ready is func else checked(name, ready)
    return func


def differentiate(func: Func, wrt: Sequence[Value], seeded: Sequence[Value] | None = None, primal: bool = True) -> Func:
    """``adjoint``, with what comes after it. ``func`` must be optimized: the simplifications before the adjoint are part of
    its edge conventions."""
    return optimize(checked("adjoint", adjoint(func, wrt, seeded, primal)))


def push_forward(func: Func, wrt: Sequence[Value], primal: bool = True) -> Func:
    """``tangent``, with what comes after it."""
    return optimize(checked("tangent", tangent(func, wrt, primal)))


def checked(name: str, func: Func) -> Func:
    """``func``, verified and printed as the environment asks; ``name`` is the pass that made it."""
    if os.environ.get("PULLBACK_CHECK") == "1":
        from pullback.ir.verify import verify  # only a debugging aid

        verify(func, after=name)
    if _dumped(os.environ.get("PULLBACK_DUMP", "")) in (name, "all"):
        print(f"# after {name}\n{func}", file=sys.stderr)
    return func


@functools.cache
def _dumped(given: str) -> str:
    """What to print, as given. Cached, so that a name which means nothing is spoken of once."""
    if given not in ("", "0", *DUMPS):
        import warnings  # for this only

        warnings.warn(f"PULLBACK_DUMP={given} means nothing; known are {', '.join(DUMPS)}", stacklevel=3)
    return given
