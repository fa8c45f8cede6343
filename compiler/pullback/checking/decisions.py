"""Where a function decides: comparisons, kinks and jumps, as its values show them.

Evaluated at a point and at its neighbours, each decision (a comparison's outcome, the sign under ``abs``, which operand of
``maximum`` is larger) either agrees or differs. One that differs only at the point itself is an equality special case; one that
differs between the two sides is a kink or a jump.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core import Func, Instr

Outcome = np.ndarray[Any, Any]


def _sign(x: Any) -> Outcome:
    """-1, 0 or 1 of arrays of any numbers; NaN is 2."""
    array = np.asarray(x)
    return np.where(array > 0, 1, np.where(array < 0, -1, np.where(array == 0, 0, 2))).astype(np.int64)


def _larger(args: Sequence[Any], out: Any) -> Outcome:
    return _sign(np.asarray(args[0]) - np.asarray(args[1]))


def _extreme(args: Sequence[Any], out: Any) -> Outcome:
    """Which elements are the extremum."""
    x, result = np.asarray(args[0]), np.asarray(out)
    axes = _lost_axes(x.shape, result.shape)
    return np.asarray(x == np.expand_dims(result, axes), bool) if axes is not None else np.zeros(0, bool)


def _lost_axes(shape: tuple[int, ...], reduced: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes that a reduction removed, if the shapes tell."""
    if not reduced:
        return tuple(range(len(shape)))
    for start in range(len(shape)):
        count = len(shape) - len(reduced)
        if shape[:start] + shape[start + count :] == reduced:
            return tuple(range(start, start + count))
    return None


def _result(args: Sequence[Any], out: Any) -> Outcome:
    return np.asarray(np.asarray(out) * 1, np.float64)


DECISIONS: Mapping[str, Callable[[Sequence[Any], Any], Outcome]] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil", "rint", "trunc", "floordiv", "argsort"), _result),
    **dict.fromkeys(("argmax", "argmin"), _result),
    **dict.fromkeys(("abs", "sign"), lambda args, out: _sign(args[0])),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin"), _larger),
    **dict.fromkeys(("mod", "fmod"), lambda args, out: _quotient(args)),
    **dict.fromkeys(("max", "min"), _extreme),
}
EQUALITIES = ("eq", "ne")
SHOWN = 60  # characters of a decision's text


def _quotient(args: Sequence[Any]) -> Outcome:
    with np.errstate(all="ignore"):
        x, y = (np.asarray(a).astype(np.float64) for a in args)
        return np.floor(x / y)


@dataclass(frozen=True, slots=True)
class Decision:
    """One instruction that decides differently at a point and beside it."""

    instr: Instr
    isolated: bool  # only at the point itself; both sides agree
    text: str

    @property
    def is_special_case(self) -> bool:
        return self.isolated and self.instr.op.name in EQUALITIES


class Recorder:
    """A ``watch`` for the interpreters that keeps every decision's outcome."""

    def __init__(self, values: Callable[[Any], Any]):
        self.values = values  # reads the interpreter's value of an SSA value
        self.outcomes: dict[Instr, Outcome] = {}

    def __call__(self, instr: Instr, results: tuple[Any, ...]) -> None:
        decide = DECISIONS.get(instr.op.name)
        if decide is not None:
            self.outcomes[instr] = decide([self.values(a) for a in instr.args], results[0])


def differing(func: Func, below: Recorder, at: Recorder, above: Recorder) -> list[Decision]:
    """The decisions that are not the same on both sides and at the point."""
    found = []
    for instr, outcome in at.outcomes.items():
        left, right = below.outcomes.get(instr), above.outcomes.get(instr)
        if left is None or right is None or left.shape != outcome.shape or right.shape != outcome.shape:
            continue
        if np.array_equal(left, outcome) and np.array_equal(right, outcome):
            continue
        same_sides = left == right
        isolated = bool(np.any(same_sides & (left != outcome)))
        found.append(Decision(instr, isolated, describe(func, instr)))
    return found


_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def describe(func: Func, instr: Instr) -> str:
    """A decision in words: ``x == 1`` or ``abs(x - y)``, with its line if known."""
    source = instr.loc
    where = f" at {source}" if source.line else ""
    names = [_operand(func, a, 2) for a in instr.args]
    symbol = _SYMBOLS.get(instr.op.name)
    text = f"{names[0]} {symbol} {names[1]}" if symbol else f"{instr.op.name}({', '.join(names)})"
    return f"`{text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}`{where}"


def _operand(func: Func, value: Any, depth: int) -> str:
    """A short text for an operand: a name, a number, or the op that makes it."""
    for name, named in func.names:
        if named is value:
            return name
    if value in func.params:
        return value.name or f"input {func.params.index(value)}"
    made = next((i for i in func.body if value in i.outs), None)
    if made is None:
        return "..."
    if made.op.name == "const":
        number = made.attrs["value"]
        return f"{number.item():g}" if number.size == 1 else "[...]"
    if made.op.name in ("broadcast", "reshape", "convert", "match"):
        return _operand(func, made.args[0], depth)
    return f"{made.op.name}({', '.join(_operand(func, a, depth - 1) for a in made.args)})" if depth else "..."
