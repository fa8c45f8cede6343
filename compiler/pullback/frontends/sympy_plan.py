"""A SymPy expression as a list of steps: a walk over its DAG by iteration, each distinct node once.

Note [Planning]
Expressions are read when a function is built, before any argument is known, so that what is unsupported or missing is said at
once. The walk keeps its own stack (expressions may be nested a hundred thousand deep) and goes by the identity of node objects:
comparing deep expressions would recurse. Equal nodes that are not one object meet in value numbering: a step is found by its
meaning and the numbers of its operands. A subexpression without inputs stays an exact constant until something needs its
number; then SymPy rounds it to float64 once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.errors import UnsupportedError

EVALUATED = 30  # digits to which SymPy evaluates constants before they are rounded to float64
SHOWN = 60  # characters of an expression in a message


@dataclass(frozen=True, slots=True)
class Constant:
    """A subexpression without inputs."""

    node: Any


@dataclass(frozen=True, slots=True)
class Step:
    """``apply`` of the values of earlier steps; an input step is applied to all arguments."""

    apply: Callable[..., Any]
    operands: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Power:
    """``base**exponent`` with a number as exponent: stands for a SymPy node that need not be made."""

    base: Any
    exponent: Any


@dataclass(frozen=True, slots=True)
class Rule:
    """How a node is computed: ``build(plan, operands)`` gives its operand, after those of ``children``."""

    children: Sequence[Any]
    build: Callable[[Plan, list[Any]], Any]
    numeric: bool = True  # without inputs among the children it is a constant


@dataclass(slots=True)
class Plan:
    """Steps, in an order in which they can be computed. An operand is a step's number or a Constant."""

    inputs: dict[Any, Callable[[Sequence[Any]], Any]]  # by the node that they replace
    kinds: set[type] = field(init=False)  # of inputs; only such nodes are looked up, for hashing a deep one would recurse
    steps: list[Step] = field(default_factory=list)
    missing: dict[str, None] = field(default_factory=dict)  # names of free symbols that are no inputs, in order
    numbers: dict[Hashable, int] = field(default_factory=dict)
    done: dict[int, Any] = field(default_factory=dict)  # by the identity of the node
    rules: dict[int, Rule] = field(default_factory=dict)
    kept: list[Any] = field(default_factory=list)  # nodes made on the way, so that identities stay theirs

    def __post_init__(self) -> None:
        self.kinds = {type(node) for node in self.inputs}

    def add(self, root: Any) -> int:
        """The number of the step that computes ``root``."""
        from pullback.frontends.sympy_nodes import rule_for

        pending = [root]
        while pending:
            node = pending[-1]
            key = id(node)
            if key in self.done:
                pending.pop()
                continue
            rule = self.rules.get(key)
            if rule is None:
                rule = self.rules[key] = rule_for(self, node)
                self.kept.append(node)
            waiting = [c for c in rule.children if id(c) not in self.done]
            if waiting:
                pending.extend(reversed(waiting))
                continue
            self.done[key] = self._close(node, rule)
            pending.pop()
        return self.number(self.done[id(root)])

    def _close(self, node: Any, rule: Rule) -> Any:
        operands = [self.done[id(c)] for c in rule.children]
        if rule.numeric and not isinstance(node, Power) and all(isinstance(o, Constant) for o in operands):
            return Constant(node)
        return rule.build(self, operands)

    def step(self, key: Hashable, apply: Callable[..., Any], operands: Sequence[Any] | None) -> int:
        """The step with this meaning, made if it is new."""
        numbers = None if operands is None else tuple([self.number(o) for o in operands])
        found = self.numbers.get((key, numbers))
        if found is None:
            found = self.numbers[key, numbers] = len(self.steps)
            self.steps.append(Step(apply, numbers))
        return found

    def call(self, name: str, *operands: Any) -> int:
        """A function of the library's table."""
        return self.step(name, _library(name), operands)

    def number(self, operand: Any) -> int:
        """The step of an operand; a constant is rounded to float64 here."""
        if not isinstance(operand, Constant):
            return int(operand)
        value = to_number(operand.node)
        return self.step(("constant", repr(value)), lambda: value, ())

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """The values of all steps."""
        values: list[Any] = []
        for step in self.steps:
            if step.operands is None:
                values.append(step.apply(arguments))
            else:
                values.append(step.apply(*[values[o] for o in step.operands]))
        return values


def _library(name: str) -> Callable[..., Any]:
    def apply(*operands: Any) -> Any:
        from pullback.frontends.library import call

        return call(name, operands)

    return apply


# -- constants ------------------------------------------------------------------------------------------------------------
def to_number(node: Any) -> float | bool:
    """The float64 nearest to an expression without free symbols, or a truth value."""
    import sympy as sp

    if node in (sp.true, sp.false):
        return bool(node)
    if node.is_Rational:
        return _rounded(int(node.p), int(node.q), node)
    if node is sp.nan:
        return float("nan")
    if node in (sp.oo, -sp.oo):
        return float("inf") if node is sp.oo else float("-inf")
    if node.is_Float:
        return _rounded_float(node)
    value = node.evalf(EVALUATED)
    if value is sp.zoo or value.has(sp.zoo):
        raise UnsupportedError(f"{shown(node)} is infinite in the complex plane, not a real number")
    if value.has(sp.I):
        raise UnsupportedError(f"{shown(node)} is not real; only real numbers are supported")
    if not value.is_number or value is node or not (value.is_Float or value.is_Rational or value in (sp.nan, sp.oo, -sp.oo)):
        raise UnsupportedError(f"{shown(node)} has no known numerical value; simplify it, or substitute a number")
    return to_number(value)


def _rounded(p: Any, q: int, node: Any) -> float:
    try:
        return p / q  # Python rounds the quotient of two integers correctly
    except OverflowError:
        raise UnsupportedError(f"the constant {shown(node)} is beyond float64's range (about 1.8e308)") from None


def _rounded_float(node: Any) -> float:
    """A Float of any precision, rounded once."""
    if not node.is_finite:
        return float(node)
    sign, mantissa, exponent, _ = node._mpf_  # mpmath's triple; float(node) would round twice
    whole = -int(mantissa) if sign else int(mantissa)
    if exponent >= 0:
        return _rounded(whole << exponent, 1, node)
    return _rounded(whole, 1 << -exponent, node)


# -- messages -------------------------------------------------------------------------------------------------------------
def shown(node: Any) -> str:
    """The text of a node, cut; deep ones cannot be printed by SymPy."""
    try:
        text = str(node)
    except RecursionError:
        return f"a deeply nested {type(node).__name__}"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def unsupported(node: Any, hint: str) -> UnsupportedError:
    return UnsupportedError(f"'{shown(node)}' ({type(node).__name__}) is not supported; {hint}")
