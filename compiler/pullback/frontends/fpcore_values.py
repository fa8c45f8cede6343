"""The values of an FPCore's expressions: their formats, and the operations on them as nodes of Python's syntax tree.

Note [Formats of FPCore]
Every number has a format, which the text alone fixes: a literal and an operation have that of the rounding context, a variable
that of its value. An operation is done in the widest format of its operands and the context, then converted to the context's.
Constants are NumPy's scalars, so that arithmetic on them is done in their format, by the rules of IEEE 754.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.frontends.expression_source import clipped
from pullback.frontends.fpcore_names import CLASSES, FUNCTIONS, HIDDEN, INTEGER, PRECISIONS
from pullback.frontends.fpcore_reader import Form, rounded

BOOLEAN, ARRAY = "boolean", "array"
_WIDTH = tuple(PRECISIONS)
_BINARY: Mapping[str, type[ast.operator]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div}
_COMPARE: Mapping[str, type[ast.cmpop]] = {
    "<": ast.Lt, ">": ast.Gt, "<=": ast.LtE, ">=": ast.GtE, "==": ast.Eq, "!=": ast.NotEq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression and what it is: a number of a format, a ``boolean`` or an ``array``."""

    node: ast.expr
    kind: str


@dataclass(frozen=True, slots=True)
class Variable:
    name: str  # in the statements
    kind: str


@dataclass(frozen=True, slots=True)
class Context:
    """Where an expression stands: its rounding context, the variables, and the statements before it."""

    precision: str
    names: Mapping[str, Variable]
    body: list[ast.stmt]
    depth: int = 0

    def bind(self, name: str, variable: Variable) -> Context:
        return replace(self, names={**self.names, name: variable})

    def within(self, body: list[ast.stmt]) -> Context:
        return replace(self, body=body, depth=self.depth + 1)


def placed(form: Form, node: Any) -> Any:
    """Give a node the form's place in the file, in the bytes that syntax trees count in."""
    line, column = form.file.place(form.start)
    node.lineno, node.col_offset = line, _bytes(form, line, column)
    line, column = form.file.place(form.end)
    node.end_lineno, node.end_col_offset = line, _bytes(form, line, column)
    return node


def constant(form: Form, value: Any) -> ast.expr:
    """A NumPy scalar in the syntax tree, which Python's own parser would not put there."""
    return placed(form, ast.Constant(value))


def _bytes(form: Form, line: int, column: int) -> int:
    text = form.file.source.lines[line - 1]
    return column if text.isascii() else len(text[:column].encode())


class Values:
    """Makes the nodes. ``override``: the format of all numbers, whatever the file says."""

    def __init__(self, override: str = ""):
        self.override = override
        self.used: set[str] = set()

    # -- names ------------------------------------------------------------------------------------------------------
    def unique(self, name: str, taken: Sequence[str] = ()) -> str:
        """An identifier like FPCore's name that nothing else has: ``y_n*`` is ``y_n_``."""
        base = re.sub(r"\W", "_", name)
        if not base.isidentifier() or keyword.iskeyword(base) or base in taken:
            base = f"{base}_" if base[:1].isalpha() else f"_{base}"
        made, count = base, 1
        while made in self.used:
            count += 1
            made = f"{base}_{count}"
        self.used.add(made)
        return made

    def hidden(self) -> str:
        name = f"{HIDDEN}{len(self.used)}"
        self.used.add(name)
        return name

    def number(self, form: Form, value: Any, at: Context) -> Expression:
        if at.precision == "integer" and (isinstance(value, float) or value.denominator != 1 or abs(value) >= 2**63):
            raise form.error(f"{clipped(form.text)} is no integer of 64 bits, which this context asks for")
        return Expression(constant(form, rounded(value, at.precision)), at.precision)

    # -- kinds ------------------------------------------------------------------------------------------------------
    def boolean(self, form: Form, e: Expression) -> ast.expr:
        if e.kind != BOOLEAN:
            raise form.error(f"a condition expected, got a number ({e.kind})", "compare it: (!= x 0)")
        return e.node

    def numeric(self, form: Form, e: Expression) -> Expression:
        if e.kind not in PRECISIONS:
            raise form.error(f"a number expected, got {'an array' if e.kind == ARRAY else 'a condition'}")
        return e

    def converted(self, form: Form, e: Expression, kind: str) -> Expression:
        if e.kind == kind:
            return e
        if isinstance(e.node, ast.Constant):
            with np.errstate(over="ignore", under="ignore"):
                return Expression(constant(form, PRECISIONS[kind](e.node.value)), kind)
        method = placed(form, ast.Attribute(e.node, "astype", ast.Load()))
        call = ast.Call(method, [constant(form, PRECISIONS[kind])], [])
        return Expression(placed(form, call), kind)

    def alike(self, forms: Sequence[Form], values: Sequence[Expression]) -> list[Expression]:
        """All in one kind: conditions, arrays, or numbers of the widest format among them."""
        kinds = {e.kind for e in values}
        if len(kinds) == 1:
            return list(values)
        for form, e in zip(forms, values, strict=True):
            self.numeric(form, e)
        wide = widest(kinds)
        return [self.converted(form, e, wide) for form, e in zip(forms, values, strict=True)]

    # -- operations ------------------------------------------------------------------------------------------------------
    def logic(self, form: Form, name: str, nodes: list[ast.expr]) -> Expression:
        if name == "not":
            return Expression(placed(form, ast.UnaryOp(ast.Invert(), nodes[0])), BOOLEAN)
        return Expression(self._folded(form, ast.BitAnd if name == "and" else ast.BitOr, nodes), BOOLEAN)

    def _folded(self, form: Form, op: type[ast.operator], nodes: Sequence[ast.expr]) -> ast.expr:
        result = nodes[0]
        for node in nodes[1:]:
            result = placed(form, ast.BinOp(result, op(), node))
        return result

    def comparison(self, form: Form, name: str, values: list[Expression], at: Context) -> Expression:
        """Of neighbours; ``!=`` of all pairs."""
        if len(values) == 1:
            return Expression(constant(form, np.True_), BOOLEAN)
        if len(values) > 2:
            values = [self.named(form, e, at) for e in values]
        pairs = list(itertools.pairwise(values))
        if name == "!=":
            if len(values) > 50:
                raise form.error(f"!= of {len(values)} numbers compares every two of them; at most 50 are allowed")
            pairs = [(a, b) for k, a in enumerate(values) for b in values[k + 1 :]]
        made = [placed(form, ast.Compare(a.node, [_COMPARE[name]()], [b.node])) for a, b in pairs]
        return Expression(self._folded(form, ast.BitAnd, made), BOOLEAN)

    def computed(self, form: Form, name: str, forms: list[Form], values: list[Expression], at: Context) -> Expression:
        """An operation whose result is a number: in the widest format, then in that of the context."""
        if at.precision == "integer":
            if name not in INTEGER:
                raise form.error(f"{name} has no meaning in integers", "give it a format: (! :precision binary64 ...)")
            wrong = next((f for f, e in zip(forms, values, strict=True) if e.kind != "integer"), None)
            if wrong is not None:
                raise wrong.error(
                    "an integer expected in this context", "give the operation a format: (! :precision binary64 ...)"
                )
        wide = widest({at.precision, *(e.kind for e in values)})
        nodes = [self.converted(f, e, wide) for f, e in zip(forms, values, strict=True)]
        return self.converted(form, Expression(self._compute(form, name, nodes, at), wide), at.precision)

    def _compute(self, form: Form, name: str, values: list[Expression], at: Context) -> ast.expr:
        nodes = [e.node for e in values]
        if name == "-" and len(nodes) == 1:
            return placed(form, ast.UnaryOp(ast.USub(), nodes[0]))
        if name in _BINARY:
            return self._folded(form, _BINARY[name], nodes)
        if name == "pow":
            return placed(form, ast.BinOp(nodes[0], ast.Pow(), nodes[1]))
        if name in FUNCTIONS:
            return self.call(form, FUNCTIONS[name][0], *nodes)
        zero = constant(form, PRECISIONS[values[0].kind](0))
        x = self.named(form, values[0], at).node
        if name == "fdim":
            y = self.named(form, values[1], at).node
            below = placed(form, ast.Compare(x, [ast.LtE()], [y]))
            return self.call(form, "np.where", below, zero, placed(form, ast.BinOp(x, ast.Sub(), y)))
        assert name == "round"  # halves away from zero
        whole = self.named(form, Expression(self.call(form, "np.trunc", x), values[0].kind), at).node
        rest = self.call(form, "np.abs", placed(form, ast.BinOp(x, ast.Sub(), whole)))
        half = constant(form, PRECISIONS[values[0].kind](0.5))
        step = self.call(
            form, "np.where", placed(form, ast.Compare(rest, [ast.GtE()], [half])), self.call(form, "np.sign", x), zero
        )
        return placed(form, ast.BinOp(whole, ast.Add(), step))

    def classified(self, form: Form, name: str, e: Expression, at: Context) -> Expression:
        if e.kind == "integer":
            e = self.converted(form, e, "binary64")
        if name in CLASSES:
            return Expression(self.call(form, CLASSES[name], e.node), BOOLEAN)
        x = self.named(form, e, at).node
        tiny = constant(form, PRECISIONS[e.kind](np.finfo(PRECISIONS[e.kind]).tiny))
        large = placed(form, ast.Compare(self.call(form, "np.abs", x), [ast.GtE()], [tiny]))
        return Expression(self._folded(form, ast.BitAnd, [self.call(form, "np.isfinite", x), large]), BOOLEAN)

    def call(self, form: Form, path: str, *nodes: ast.expr) -> ast.expr:
        """A call of the library. The path is one name, which no variable can be in the way of."""
        return placed(form, ast.Call(placed(form, ast.Name(path, ast.Load())), list(nodes), []))

    def named(self, form: Form, e: Expression, at: Context) -> Expression:
        """A value that is used more than once, under a hidden name."""
        if isinstance(e.node, (ast.Name, ast.Constant)):
            return e
        return self.variable(form, self.assign(form, self.hidden(), e, at))

    def assign(self, form: Form, name: str, e: Expression, at: Context) -> Variable:
        at.body.append(placed(form, ast.Assign([placed(form, ast.Name(name, ast.Store()))], e.node)))
        return Variable(name, e.kind)

    def variable(self, form: Form, variable: Variable) -> Expression:
        return Expression(placed(form, ast.Name(variable.name, ast.Load())), variable.kind)


def widest(kinds: set[str]) -> str:
    """The format that holds numbers of all of these; empty for what is no number."""
    if not kinds <= PRECISIONS.keys():
        return ""
    if {"integer", "binary32"} <= kinds:
        return "binary64"
    return max(kinds, key=_WIDTH.index)
