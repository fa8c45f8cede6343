"""Rewriting Python's control flow so that it can be staged: blocks become functions that share the variables around them.

``if c: A else: B`` becomes ::

    def __then_1__(): nonlocal x; A
    def __else_1__(): nonlocal x; B
    hooks.branch(c, __then_1__, __else_1__, "c")

and the hook calls one of the two, or traces both where ``c`` is known only when the function runs. Loops are treated alike.
The hooks find the variables in the cells of these functions. Jumps were removed before, see staging_jumps.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from pullback.frontends.staging_jumps import RETURNED, VALUE, is_flag

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BLOCKS = ("__then_", "__else_", "__body_", "__test_")  # how the functions are called that blocks become


def bound_in(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that these statements bind in their own scope."""
    names: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, COMPREHENSIONS):
            pending += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]  # := binds outside the comprehension
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
        ):
            names.add(node.name)
        pending += list(ast.iter_child_nodes(node))
    return names


def own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function's body that are not of a function inside it."""
    pending = list(body)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)):
            pending += list(ast.iter_child_nodes(node))


def uncertain_in(body: Sequence[ast.AST]) -> set[str]:
    """The names that branches and loops of a function bind, and that may have no certain value after them."""
    found: set[str] = set()
    for node in own_nodes(body):
        if isinstance(node, (ast.If, ast.While)):
            found |= bound_in([*node.body, *node.orelse])
        elif isinstance(node, ast.For):
            found |= bound_in([node.target, *node.body])
    return found


def has_walrus(*nodes: ast.AST) -> bool:
    return any(isinstance(part, ast.NamedExpr) for node in nodes for part in ast.walk(node))


class ControlRewriter(ast.NodeTransformer):
    """The part of the rewriter that deals with control flow. ``scopes`` are the names of the functions around, inmost last."""

    scopes: list[set[str]]

    def __init__(self) -> None:
        self.uncertain: list[set[str]] = []  # by scope
        self.shared: list[set[str]] = []  # by scope: names that its blocks bind
        self.plain: list[str] = []  # by scope: why its blocks stay Python's, "" if they do not
        self.numbers = 0
        self.tries = 0

    def hook(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        raise AssertionError("the rewriter defines it")

    def placed(self, new: Any, old: ast.AST) -> Any:
        raise AssertionError("the rewriter defines it")

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        raise AssertionError("the rewriter defines it")

    # -- blocks as functions ----------------------------------------------------------------------------------------
    def _as_function(self, kind: str, body: list[ast.stmt], node: ast.AST, item: ast.expr | None = None) -> ast.FunctionDef:
        """``item``: the target of a loop, which the function takes as its argument."""
        names = bound_in(body if item is None else [item, *body])
        self.shared[-1] |= names
        made = self._block(body)
        if item is not None:
            made = [self.placed(ast.Assign([self.visit(item)], ast.Name("__item__", ast.Load())), item), *made]
        if names:
            made.insert(0, ast.Nonlocal(sorted(names)))
        empty = ast.arguments(
            posonlyargs=[], args=[] if item is None else [ast.arg("__item__")], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        function = ast.FunctionDef(name=kind, args=empty, body=made or [ast.Pass()], decorator_list=[], returns=None)
        return self.placed(function, node)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _thunk(self, node: ast.expr) -> ast.expr:
        empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return self.placed(ast.Lambda(empty, self.visit(node)), node)

    def _test(self, node: ast.expr, what: str) -> ast.expr:
        """A condition where the blocks stay Python's."""
        text, why = ast.unparse(node), self.plain[-1]
        return self.hook(node, "truth", self.visit(node), ast.Constant(text), ast.Constant(what), ast.Constant(why))

    # -- statements -------------------------------------------------------------------------------------------------
    def visit_If(self, node: ast.If) -> Any:
        if self.plain[-1]:
            made = ast.If(self._test(node.test, "if"), self._block(node.body), self._block(node.orelse))
            return ast.copy_location(made, node)
        k, text = self._number(), ast.Constant(ast.unparse(node.test))
        test = self.visit(node.test)
        functions = [self._as_function(f"__then_{k}__", node.body, node)]
        if node.orelse:
            functions.append(self._as_function(f"__else_{k}__", node.orelse, node))
        names = [self.placed(ast.Name(f.name, ast.Load()), node) for f in functions]
        names += [ast.Constant(None)] * (2 - len(names))
        return [*functions, ast.copy_location(ast.Expr(self.hook(node, "branch", test, *names, text)), node)]

    def visit_While(self, node: ast.While) -> Any:
        if self.plain[-1]:
            made = ast.While(self._test(node.test, "while"), self._block(node.body), self._block(node.orelse))
            return ast.copy_location(made, node)
        text, stop = ast.Constant(ast.unparse(node.test)), ast.Constant(getattr(node, "stop", ""))
        body = self._as_function(f"__body_{self._number()}__", node.body, node)
        name = self.placed(ast.Name(body.name, ast.Load()), node)
        call = self.hook(node, "repeat", self._thunk(node.test), name, stop, text)
        return [body, ast.copy_location(ast.Expr(call), node)]

    def visit_For(self, node: ast.For) -> Any:
        if self.plain[-1]:
            self.generic_visit(node)
            return node
        stop = ast.Constant(getattr(node, "stop", ""))
        items = self.visit(node.iter)
        body = self._as_function(f"__body_{self._number()}__", node.body, node, node.target)
        name = self.placed(ast.Name(body.name, ast.Load()), node)
        return [body, ast.copy_location(ast.Expr(self.hook(node, "loop", items, name, stop)), node)]

    def visit_Return(self, node: ast.Return) -> Any:
        if not hasattr(node, "leaves"):
            self.generic_visit(node)
            return node
        done: ast.expr = ast.Constant(True) if node.leaves else ast.Name(RETURNED, ast.Load())
        return ast.copy_location(ast.Return(self.hook(node, "returned", ast.Name(VALUE, ast.Load()), done)), node)

    def visit_Raise(self, node: ast.Raise) -> Any:
        """Under a condition that is traced, a check that fails when the function runs; but not where it is caught at once."""
        if node.exc is None or self.tries:
            self.generic_visit(node)
            return node
        cause = None if node.cause is None else self.visit(node.cause)
        return ast.copy_location(ast.Raise(self.hook(node, "raised", self.visit(node.exc)), cause), node)

    def visit_Try(self, node: ast.Try) -> Any:
        self.tries += 1
        body = self._block(node.body)
        self.tries -= 1
        watched = self.placed(ast.With([ast.withitem(self.hook(node, "trying"))], body), node)
        handlers = [
            ast.copy_location(ast.ExceptHandler(h.type and self.visit(h.type), h.name, self._block(h.body)), h)
            for h in node.handlers
        ]
        return ast.copy_location(ast.Try([watched], handlers, self._block(node.orelse), self._block(node.finalbody)), node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        text = ast.unparse(node.test)  # before the visit, which changes it
        message: ast.expr = ast.Constant(None) if node.msg is None else node.msg
        call = self.hook(node, "check", self.visit(node.test), self._thunk(message), ast.Constant(text))
        return ast.copy_location(ast.Expr(call), node)

    def visit_match_case(self, node: ast.match_case) -> Any:
        guard = None if node.guard is None else self._test(node.guard, "if")
        return ast.match_case(node.pattern, guard, self._block(node.body))

    # -- expressions ------------------------------------------------------------------------------------------------
    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if self.plain[-1] or has_walrus(node.body, node.orelse):
            test = self._test(node.test, "if")
            return ast.copy_location(ast.IfExp(test, self.visit(node.body), self.visit(node.orelse)), node)
        text = ast.Constant(ast.unparse(node.test))
        return self.hook(node, "choose", self.visit(node.test), self._thunk(node.body), self._thunk(node.orelse), text)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        names = [v.id for v in node.values if isinstance(v, ast.Name)]
        if len(names) == len(node.values) and all(map(is_flag, names)):  # flags have no effects: no matter in which order
            return self.hook(node, "any_flag", *map(self.visit, node.values))
        both, text = isinstance(node.op, ast.And), ast.unparse(node)
        first, *rest = node.values
        if self.plain[-1] or has_walrus(*rest):
            what, why = ast.Constant("and" if both else "or"), ast.Constant(self.plain[-1])
            texts = [ast.unparse(v) for v in node.values[:-1]]  # before the visit, which changes them
            values = [
                self.hook(v, "decides", self.visit(v), ast.Constant(t), what, why)
                for v, t in zip(node.values[:-1], texts, strict=True)
            ]
            return ast.copy_location(ast.BoolOp(node.op, [*values, self.visit(node.values[-1])]), node)
        thunks = [self._thunk(v) for v in rest]
        return self.hook(node, "logic", ast.Constant(both), ast.Constant(text), self.visit(first), *thunks)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        text = ast.unparse(node.operand)
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self.hook(node, "negated", operand, ast.Constant(text))
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """``a < x < b`` is ``a < x and x < b``, with ``x`` evaluated once."""
        if len(node.ops) == 1 or self.plain[-1] or has_walrus(*node.comparators):
            self.generic_visit(node)
            return node
        text = ast.Constant(ast.unparse(node))
        parts: list[ast.expr] = []
        for op, right in zip(node.ops, node.comparators, strict=True):
            parts += [ast.Constant(type(op).__name__), self._thunk(right)]
        return self.hook(node, "chained", text, self.visit(node.left), *parts)
