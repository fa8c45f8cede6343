"""From an FPCore's expression to statements and an expression of Python's syntax tree.

Note [From FPCore to statements]
FPCore is made of expressions alone. ``let`` and loops within an expression become statements in front of it; the language has
no effects, so computing them earlier changes nothing (an ``if`` whose arms need statements becomes a statement itself). Every
binding gets a name of its own, since an inner ``let`` may bind a name anew while the outer one is still in use; the assigned
names are the named intermediates, as in an expression file.

A tree may be a thousand levels deep, so handlers are generators: they yield a part, with its context, and get its expression
back, and :meth:`Writer.write` keeps the ones that wait on a list of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.errors import ExpressionError
from pullback.frontends.expression_source import clipped, suggestion
from pullback.frontends.fpcore_names import (
    ARITHMETIC,
    CLASSES,
    COMPARISONS,
    CONSTANTS,
    FUNCTIONS,
    KEYWORDS,
    LOGIC,
    OPERATIONS,
    PRECISIONS,
    UNSUPPORTED,
    WRITTEN_OUT,
)
from pullback.frontends.fpcore_reader import Form, digits, exact, is_number, like_a_number
from pullback.frontends.fpcore_values import ARRAY, BOOLEAN, Context, Expression, Values, Variable, constant, placed, widest

MAX_BLOCKS = 25  # loops and conditions within each other, which Python's own stack is used for

Task = Generator[tuple[Form, Context], Expression, Expression]


class Writer(Values):
    """Writes one FPCore. ``override``: the format of all numbers, whatever the file says."""

    # -- the walk ---------------------------------------------------------------------------------------------------
    def write(self, form: Form, at: Context) -> Expression:
        """The expression of a form; what it needs is added to the statements of the context."""
        waiting: list[Task] = []
        value = self._start(form, at, waiting)
        while waiting:
            try:
                request = waiting[-1].send(value)  # type: ignore[arg-type]  # a generator just made is sent None
            except StopIteration as done:
                waiting.pop()
                value = done.value
            else:
                value = self._start(*request, waiting)
        assert value is not None
        return value

    def _start(self, form: Form, at: Context, waiting: list[Task]) -> Expression | None:
        """The expression of an atom, or the task of a list put on the list of those that wait."""
        if form.items is None:
            return self.atom(form, at)
        waiting.append(self.task(form, at))
        return None

    def task(self, form: Form, at: Context) -> Task:
        head = form.head
        match head:
            case "if":
                return self.branch(form, at)
            case "let" | "let*":
                return self.let(form, at, head == "let*")
            case "while" | "while*" | "for" | "for*":
                return self.loop(form, at, head.rstrip("*"), head.endswith("*"))
            case "!":
                return self.annotated(form, at)
            case "cast":
                return self.cast(form, at)
            case "array":
                return self.array(form, at)
            case "digits":
                return self.digits(form, at)
        if head in UNSUPPORTED:
            raise form.error(*UNSUPPORTED[head])
        if head not in OPERATIONS:
            raise self._unknown(form, at)
        return self.operation(form, head, at)

    def _unknown(self, form: Form, at: Context) -> ExpressionError:
        if not form.items:
            return form.error("an expression expected, got empty brackets")
        head = form.items[0]
        if head.text in at.names or is_number(head):
            return head.error(f"{clipped(head.text)} is not an operation", "operations come first: (* a b)")
        if not head.text:
            return head.error("the name of an operation expected", "operations come first: (* a b)")
        return head.error(f"unknown operation {clipped(head.text)}", suggestion(head.text, (*OPERATIONS, *KEYWORDS)))

    def parts(self, form: Form, count: int, what: str) -> tuple[Form, ...]:
        assert form.items is not None
        if len(form.items) - 1 != count:
            raise form.error(f"({form.head} {what}) expected, got {len(form.items) - 1} parts")
        return form.items[1:]

    # -- atoms ------------------------------------------------------------------------------------------------------
    def atom(self, form: Form, at: Context) -> Expression:
        name = form.text
        if form.string is not None:
            raise form.error("a string is not a number", "")
        if is_number(form):
            return self.number(form, exact(form), at)
        if name in at.names:
            variable = at.names[name]
            return Expression(placed(form, ast.Name(variable.name, ast.Load())), variable.kind)
        if name in CONSTANTS:
            value = CONSTANTS[name]
            if isinstance(value, np.bool_):
                return Expression(constant(form, value), BOOLEAN)
            return self.number(form, value, at)
        if like_a_number(name):
            raise form.error(f"{clipped(name)} is not a number", "write 0.5, 1e-3, 1/3 or 0x1.8p-2")
        known = (*at.names, *CONSTANTS)
        if name in OPERATIONS or name in KEYWORDS:
            raise form.error(f"{name} is an operation, not a value", f"put it in brackets with its arguments: ({name} ...)")
        raise form.error(
            f"unknown name {clipped(name)}", suggestion(name, known) or f"the variables are {', '.join(at.names) or 'none'}"
        )

    def digits(self, form: Form, at: Context) -> Task:
        parts = self.parts(form, 3, "mantissa exponent base")
        for part in parts:
            if not is_number(part):
                raise part.error("an integer expected", "(digits m e b) is m times b to the power of e")
        return self.number(form, digits(form, *parts), at)
        yield  # a task like all others, though it asks for nothing

    # -- operations -------------------------------------------------------------------------------------------------
    def operation(self, form: Form, name: str, at: Context) -> Task:
        assert form.items is not None
        forms = form.items[1:]
        self._arity(form, name, len(forms))
        values: list[Expression] = []
        for part in forms:
            values.append((yield part, at))
        if name in LOGIC:
            return self.logic(form, name, [self.boolean(f, e) for f, e in zip(forms, values, strict=True)])
        values = [self.numeric(f, e) for f, e in zip(forms, values, strict=True)]
        if name in COMPARISONS:
            return self.comparison(form, name, self.alike(forms, values), at)
        if name in CLASSES or name == "isnormal":
            return self.classified(form, name, values[0], at)
        return self.computed(form, name, list(forms), values, at)

    def _arity(self, form: Form, name: str, count: int) -> None:
        if name in FUNCTIONS or name in WRITTEN_OUT:
            low = high = FUNCTIONS[name][1] if name in FUNCTIONS else WRITTEN_OUT[name]
        elif name in CLASSES or name == "not":
            low = high = 1
        elif name in ("-", "/"):
            low, high = (1 if name == "-" else 2), 2
        else:
            low, high = (2 if name in ARITHMETIC else 1), 10_000
        if not low <= count <= high:
            wanted = str(low) if low == high else f"{low} or {high}" if high == 2 else f"at least {low}"
            raise form.error(f"{name} takes {wanted} argument{'s' * (wanted != '1')}, got {count}")

    # -- formats ----------------------------------------------------------------------------------------------------
    def annotated(self, form: Form, at: Context) -> Task:
        """``(! :precision binary32 e)``: another rounding context for e, but no operation of its own."""
        assert form.items is not None
        if len(form.items) < 2:
            raise form.error("(! :property value ... expression) expected")
        *given, inner = form.items[1:]
        return (yield inner, replace(at, precision=self.precision(properties(form, given), at.precision)))

    def precision(self, given: Mapping[str, tuple[Form, Form]], outer: str) -> str:
        """The format that properties ask for. Other directions of rounding than the nearest are refused."""
        if ":round" in given and given[":round"][1].text != "nearestEven":
            raise given[":round"][1].error(
                "numbers are rounded to the nearest, ties to even", "remove :round, or write nearestEven"
            )
        if ":precision" not in given:
            return outer
        wanted = given[":precision"][1]
        if self.override:
            return self.override
        if wanted.text not in PRECISIONS:
            raise wanted.error(
                f"{wanted.shown()} is not supported",
                f"the formats are {', '.join(PRECISIONS)}; with --precision binary64 (in Python precision='binary64') "
                "all is done in double precision",
            )
        return wanted.text

    def cast(self, form: Form, at: Context) -> Task:
        (part,) = self.parts(form, 1, "expression")
        value = self.numeric(part, (yield part, at))
        if at.precision == "integer" and value.kind != "integer":
            raise form.error("a cast to integers is not supported", "keep the number in a binary format")
        return self.converted(form, value, at.precision)

    def array(self, form: Form, at: Context) -> Task:
        assert form.items is not None
        values: list[Expression] = []
        for part in form.items[1:]:
            values.append(self.numeric(part, (yield part, at)))
        if not values:
            raise form.error("an array without elements has no meaning here")
        elements = placed(form, ast.List([e.node for e in self.alike(form.items[1:], values)], ast.Load()))
        return Expression(self.call(form, "np.array", elements), ARRAY)

    # -- let and if -------------------------------------------------------------------------------------------------
    def bindings(self, form: Form, count: int, what: str, again: bool = False) -> list[tuple[Form, ...]]:
        """``([x e] ...)``; each name once, unless it may be bound ``again``."""
        if form.items is None:
            raise form.error(f"a list of bindings expected: ({what} ...)")
        seen: set[str] = set()
        for binding in form.items:
            name = binding.items[0].text if binding.items else ""
            if binding.items is None or len(binding.items) != count or not name or is_number(binding.items[0]):
                raise binding.error(f"a binding {what} expected")
            if name in seen and not again:
                raise binding.items[0].error(f"{clipped(name)} is bound twice here", "")
            seen.add(name)
        return [binding.items for binding in form.items if binding.items is not None]

    def let(self, form: Form, at: Context, sequential: bool) -> Task:
        bindings, result = self.parts(form, 2, "([x e] ...) expression")
        inner = at
        for name, value in self.bindings(bindings, 2, "[x e]", again=sequential):
            e = yield value, inner if sequential else at
            inner = inner.bind(name.text, self.assign(name, self.unique(name.text), e, at))
        return (yield result, inner)

    def branch(self, form: Form, at: Context) -> Task:
        test, *arms = self.parts(form, 3, "condition then else")
        condition = self.boolean(test, (yield test, at))
        bodies: list[list[ast.stmt]] = [[], []]
        self._nested(form, at)
        values: list[Expression] = []
        for arm, body in zip(arms, bodies, strict=True):
            values.append((yield arm, at.within(body)))
        then, other = self.alike(arms, values)
        if not bodies[0] and not bodies[1]:
            return Expression(placed(form, ast.IfExp(condition, then.node, other.node)), then.kind)
        name = self.hidden()
        for arm, body, e in zip(arms, bodies, (then, other), strict=True):
            self.assign(arm, name, e, at.within(body))
        at.body.append(placed(form, ast.If(condition, *bodies)))
        return self.variable(form, Variable(name, then.kind))

    def _nested(self, form: Form, at: Context) -> None:
        if at.depth >= MAX_BLOCKS:
            raise form.error(f"loops and conditions are nested more than {MAX_BLOCKS} deep")

    # -- loops ------------------------------------------------------------------------------------------------------
    def loop(self, form: Form, at: Context, kind: str, sequential: bool) -> Task:
        """``while`` updates all its variables at once, ``while*`` one after another; so do ``for`` and ``for*``."""
        what = "condition" if kind == "while" else "([i n] ...)"
        control, bindings, result = self.parts(form, 3, f"{what} ([x start next] ...) expression")
        self._nested(form, at)
        triples = self.bindings(bindings, 3, "[x start next]")
        inner, variables = at, []
        for name, start, _ in triples:
            e = yield start, inner if sequential else at
            if e.kind == "binary32" and at.precision == "binary64":
                e = self.converted(start, e, at.precision)  # it may become as wide as the context, and loses nothing
            variables.append(self.assign(name, self.unique(name.text), e, at))
            inner = inner.bind(name.text, variables[-1])
        body: list[ast.stmt] = []
        if kind == "while":
            yield from self._while(form, control, inner, body)
            looped = inner.within(body)
        else:
            looped = yield from self._for(control, at, inner, body)
        yield from self._updates(form, triples, variables, looped, sequential)
        return (yield result, inner)

    def _while(
        self, form: Form, test: Form, at: Context, body: list[ast.stmt]
    ) -> Generator[tuple[Form, Context], Expression, None]:
        """The statement, with the body to be filled. A condition that needs statements is tested within the loop."""
        needed: list[ast.stmt] = []
        condition = self.boolean(test, (yield test, at.within(needed)))
        if needed:
            stop = ast.If(placed(test, ast.UnaryOp(ast.Invert(), condition)), [placed(test, ast.Break())], [])
            body += [*needed, placed(test, stop)]
            condition = constant(test, True)
        elif isinstance(condition, ast.Constant) and condition.value:  # what follows a ``while True`` would be left out
            condition = placed(test, ast.UnaryOp(ast.Invert(), constant(test, np.False_)))
        at.body.append(placed(form, ast.While(condition, body, [])))

    def _for(
        self, control: Form, at: Context, inner: Context, body: list[ast.stmt]
    ) -> Generator[tuple[Form, Context], Expression, Context]:
        """The statements, one within the other, with the innermost body to be filled."""
        counters = self.bindings(control, 2, "[i n]")
        if not counters:
            raise control.error("a for loop needs a counter: ([i n])")
        blocks = [at.body, *([] for _ in counters[1:]), body]
        for k, (name, count) in enumerate(counters):
            self._nested(name, replace(at, depth=at.depth + k))
            bound = self._count(count, self.numeric(count, (yield count, at)), at)
            counter = self.unique(name.text)
            calls = self.call(name, "range", bound)
            loop = ast.For(placed(name, ast.Name(counter, ast.Store())), calls, blocks[k + 1], [])
            inner = inner.bind(name.text, Variable(counter, "integer"))
            blocks[k].append(placed(name, loop))
        return replace(inner, body=body, depth=at.depth + len(counters))

    def _count(self, form: Form, e: Expression, at: Context) -> ast.expr:
        """How often a loop runs, as an integer."""
        if isinstance(e.node, ast.Constant):
            count: Any = e.node.value
            if not float(count).is_integer():
                raise form.error(f"{form.shown()} is no integer, and a for loop counts")
            return constant(form, int(count))
        if e.kind == "integer":
            return e.node
        e = self.named(form, e, at)
        whole = placed(form, ast.Compare(e.node, [ast.Eq()], [self.call(form, "np.floor", e.node)]))
        at.body.append(placed(form, ast.Assert(whole, constant(form, f"{form.shown()} is no integer"))))
        return self.converted(form, e, "integer").node

    def _updates(
        self, form: Form, triples: Sequence[tuple[Form, ...]], variables: Sequence[Variable], at: Context, sequential: bool
    ) -> Generator[tuple[Form, Context], Expression, None]:
        values: list[Expression] = []
        for (name, _, update), variable in zip(triples, variables, strict=True):
            e = yield update, at
            if e.kind != variable.kind and widest({e.kind, variable.kind}) != variable.kind:
                raise update.error(
                    f"{clipped(name.text)} starts as {variable.kind} and becomes {e.kind}", "start it in the wider format"
                )
            values.append(self.converted(update, e, variable.kind))
            if sequential:
                self.assign(name, variable.name, values[-1], at)
        if sequential or not values:
            return
        if len(values) == 1:
            self.assign(triples[0][0], variables[0].name, values[0], at)
            return
        targets = placed(
            form,
            ast.Tuple(
                [placed(t[0], ast.Name(v.name, ast.Store())) for t, v in zip(triples, variables, strict=True)], ast.Store()
            ),
        )
        together = placed(form, ast.Tuple([e.node for e in values], ast.Load()))
        at.body.append(placed(form, ast.Assign([targets], together)))


def properties(form: Form, given: Sequence[Form]) -> dict[str, tuple[Form, Form]]:
    """``:name value`` pairs: the form of the name and that of the value, by name."""
    found: dict[str, tuple[Form, Form]] = {}
    supply = iter(given)
    for name in supply:
        value = next(supply, None)
        if not name.text.startswith(":"):
            raise name.error("a property expected, such as :name or :precision", "the expression comes last")
        if value is None:
            raise name.error(f"the property {clipped(name.text)} has no value")
        found[name.text] = (name, value)
    return found
