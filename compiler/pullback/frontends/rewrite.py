"""Rewriting a Python function so that calls, subscripts, stores, conditions and outer names go through hooks.

The rewritten function keeps the user's file, lines and columns. It is compiled inside a factory that takes the hooks, in the
function's own globals, which are not touched. Names from outside are looked up by the hooks, which capture what they hold.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

from pullback.errors import TraceError
from pullback.frontends.source import Function, find
from pullback.frontends.staging_jumps import VALUE, Jumps
from pullback.frontends.staging_syntax import ControlRewriter, bound_in, has_walrus, own_nodes, uncertain_in
from pullback.frontends.trace import located
from pullback.ir.core import Loc

HOOKS = "__pullback_hooks__"
_FACTORIES: dict[types.CodeType, Callable[[dict[str, Any], Any], types.FunctionType] | None] = {}
_MADE: set[types.CodeType] = set()  # what was compiled here


def rewritten(function: types.FunctionType, hooks: Any) -> types.FunctionType | None:
    """The function with hooks; None where there is no source. Defaults are set by the caller."""
    code = function.__code__
    if code not in _FACTORIES:
        node = find(function)
        _FACTORIES[code] = None if node is None else _factory(function, node)
    factory = _FACTORIES[code]
    return None if factory is None else factory(function.__globals__, hooks)


def _factory(function: types.FunctionType, node: Function) -> Callable[[dict[str, Any], Any], types.FunctionType]:
    filename = function.__code__.co_filename
    body = _Rewriter(filename, function.__qualname__).root(copy.deepcopy(node))  # the tree of the file is kept
    outer = ast.FunctionDef(
        name="__pullback_factory__",
        args=ast.arguments(posonlyargs=[], args=[ast.arg(arg=HOOKS)], kwonlyargs=[], kw_defaults=[], defaults=[]),
        body=body,
        decorator_list=[],
    )
    ast.copy_location(outer, node)
    code = compile(ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[])), filename, "exec", dont_inherit=True)
    _MADE.update(_all_codes(code))

    def make(namespace: dict[str, Any], hooks: Any) -> types.FunctionType:
        local: dict[str, Any] = {}
        exec(code, namespace, local)
        return local["__pullback_factory__"](hooks)

    return make


def _all_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_codes(constant)


def is_rewritten(function: types.FunctionType) -> bool:
    return is_ours(function.__code__)


def is_ours(code: types.CodeType) -> bool:
    """Whether code was compiled here from a user's function."""
    return code in _MADE


def _arguments(args: ast.arguments) -> set[str]:
    extra = [a.arg for a in (args.vararg, args.kwarg) if a is not None]
    return {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)} | set(extra)


class _Rewriter(ControlRewriter):
    def __init__(self, filename: str, qualname: str):
        super().__init__()
        self.filename = filename
        owner = qualname.rpartition(".")[0].rpartition(".")[2]
        self.owner = "" if owner in ("", "<locals>") else owner.lstrip("_")
        self.scopes: list[set[str]] = []
        self.first_argument = ""

    # -- scopes -----------------------------------------------------------------------------------------------------
    def root(self, node: Function) -> list[ast.stmt]:
        """The statements of the factory: the definition without decorators and defaults, and its return."""
        arguments = [*node.args.posonlyargs, *node.args.args]
        self.first_argument = arguments[0].arg if arguments else ""
        args = self._plain_arguments(node.args)
        args.defaults = [ast.Constant(None) for _ in args.defaults]
        args.kw_defaults = [None if d is None else ast.Constant(None) for d in args.kw_defaults]
        if isinstance(node, ast.Lambda):
            body = self._expression(args, node.body)
            return [ast.copy_location(ast.Return(ast.copy_location(ast.Lambda(args, body), node)), node)]
        made = ast.FunctionDef(
            name=node.name, args=args, body=self._body(args, node), decorator_list=[], returns=None, type_comment=None
        )
        ast.copy_location(made, node)
        return [made, ast.copy_location(ast.Return(ast.Name(node.name, ast.Load())), node)]

    def _expression(self, args: ast.arguments, body: ast.expr) -> ast.expr:
        """The body of a lambda."""
        self._open(_arguments(args) | bound_in([body]), set(), "")
        made = self.visit(body)
        self._close()
        return made

    def _body(self, args: ast.arguments, node: ast.FunctionDef) -> list[ast.stmt]:
        """The body of a function: its jumps as structure, its blocks as functions."""
        why = _stays_plain(node.body)
        body = node.body if why else Jumps().function(node.body)
        names = _arguments(args) | bound_in(body)
        self._open(names, uncertain_in(body), why)
        made = self._block(body)
        outside = {name for stmt in node.body for n in own_nodes([stmt]) if isinstance(n, ast.Nonlocal) for name in n.names}
        start: list[ast.stmt] = []
        cells = sorted(self.shared[-1] - _arguments(args) - outside)
        if cells:  # bound in the function's blocks only as Python sees it; this makes them the function's own
            unbound: list[ast.expr] = [ast.Name(name, ast.Store()) for name in cells]
            start.append(ast.If(ast.Constant(False), [ast.Assign(unbound, ast.Constant(None))], []))
        if VALUE in names:
            unbound = [ast.Name(VALUE, ast.Store())]
            start.append(ast.Assign(unbound, ast.Attribute(ast.Name(HOOKS, ast.Load()), "unbound", ast.Load())))
        if outside:
            start.append(ast.Expr(self.hook(node, "effects", ast.Constant(", ".join(sorted(outside))))))
        self._close()
        doc = made[:1] if made and isinstance(made[0], ast.Expr) and isinstance(made[0].value, ast.Constant) else []
        return [*doc, *(self.placed(stmt, node.body[0]) for stmt in start), *made[len(doc) :]]

    def _open(self, names: set[str], uncertain: set[str], plain: str) -> None:
        self.scopes.append(names)
        self.uncertain.append(uncertain)
        self.shared.append(set())
        self.plain.append(plain)

    def _close(self) -> None:
        for stack in (self.scopes, self.uncertain, self.shared, self.plain):
            stack.pop()

    def _plain_arguments(self, args: ast.arguments) -> ast.arguments:
        def bare(a: ast.arg | None) -> Any:
            return None if a is None else ast.copy_location(ast.arg(arg=a.arg), a)

        return ast.arguments(
            posonlyargs=[bare(a) for a in args.posonlyargs],
            args=[bare(a) for a in args.args],
            vararg=bare(args.vararg),
            kwonlyargs=[bare(a) for a in args.kwonlyargs],
            kw_defaults=list(args.kw_defaults),
            kwarg=bare(args.kwarg),
            defaults=list(args.defaults),
        )

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            new = self.visit(statement)
            found += new if isinstance(new, list) else [new]
        return found

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        args = self._plain_arguments(node.args)
        args.defaults = [self.visit(d) for d in args.defaults]
        args.kw_defaults = [None if d is None else self.visit(d) for d in args.kw_defaults]
        decorators = [self.visit(d) for d in node.decorator_list]
        body = self._body(args, node)
        made = ast.FunctionDef(name=node.name, args=args, body=body, decorator_list=decorators, returns=None, type_comment=None)
        return ast.copy_location(made, node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        args = self._plain_arguments(node.args)
        args.defaults = [self.visit(d) for d in args.defaults]
        args.kw_defaults = [None if d is None else self.visit(d) for d in args.kw_defaults]
        return ast.copy_location(ast.Lambda(args, self._expression(args, node.body)), node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        raise self.error(node, "a class is defined inside the traced function", "define it outside")

    def _comprehension(self, node: Any) -> Any:
        targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        first = self.visit(node.generators[0].iter)  # evaluated outside, and not to be visited again
        node.generators[0].iter = ast.copy_location(ast.Constant(None), node)
        self._open(targets, set(), self.plain[-1])
        self.generic_visit(node)
        self._close()
        generator = node.generators[0]
        simple = len(node.generators) == 1 and not generator.ifs and not generator.is_async and not has_walrus(node)
        if simple and isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._collected(node, first)
        generator.iter = first
        return node

    def _collected(self, node: ast.ListComp | ast.GeneratorExp, items: ast.expr) -> ast.expr:
        """``[f(v) for v in items]`` by a hook, which is given how one item is made."""
        one = ast.Tuple([ast.Name("__item__", ast.Load())], ast.Load())
        target = node.generators[0].target
        made = self.placed(ast.ListComp(node.elt, [ast.comprehension(target, self.placed(one, node), [], 0)]), node)
        args = ast.arguments(posonlyargs=[], args=[ast.arg("__item__")], kwonlyargs=[], kw_defaults=[], defaults=[])
        function = self.placed(ast.Lambda(args, made), node)
        return self.hook(node, "collected", items, function, ast.Constant(type(node).__name__))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def error(self, node: ast.AST, message: str, remedy: str) -> TraceError:
        return TraceError(located(message, Loc(self.filename, getattr(node, "lineno", 0)), remedy))

    # -- hooks ------------------------------------------------------------------------------------------------------
    def hook(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        target = self.placed(ast.Attribute(ast.Name(HOOKS, ast.Load()), name, ast.Load()), node)
        target.end_lineno, target.end_col_offset = target.lineno, target.col_offset  # a call counts as where this ends
        return self.placed(ast.Call(target, list(args), []), node)

    def placed(self, new: Any, old: ast.AST) -> Any:
        """Give the old node's place to the new nodes that have none."""
        pending: list[ast.AST] = [new]
        while pending:
            node = pending.pop()
            if "lineno" in node._attributes and not hasattr(node, "lineno"):
                ast.copy_location(node, old)
                pending += list(ast.iter_child_nodes(node))
            elif "lineno" not in node._attributes:
                pending += list(ast.iter_child_nodes(node))
        return new

    def _mangled(self, name: str) -> str:
        private = self.owner and name.startswith("__") and not name.endswith("__")
        return f"_{self.owner}{name}" if private else name

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            return node
        for scope, uncertain in zip(reversed(self.scopes), reversed(self.uncertain), strict=True):
            if node.id in scope:
                return self.hook(node, "use", node) if node.id in uncertain else node
        return self.hook(node, "outer", ast.Constant(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            return self.hook(node, "attribute", owner, ast.Constant(self._mangled(node.attr)))
        return ast.copy_location(ast.Attribute(owner, self._mangled(node.attr), node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        if not isinstance(node.ctx, ast.Load):
            self.generic_visit(node)
            return node
        return self.hook(node, "item", self.visit(node.value), self._key(node.slice))

    def _key(self, key: ast.expr) -> ast.expr:
        return self._slice(self.visit(key))

    def _slice(self, key: Any) -> ast.expr:
        """A subscript as an expression: ``a:b`` only exists within brackets."""
        if isinstance(key, ast.Slice):
            parts = [ast.Constant(None) if p is None else p for p in (key.lower, key.upper, key.step)]
            return self.hook(key, "slice", *parts)
        if isinstance(key, ast.Tuple):
            key.elts = [self._slice(e) for e in key.elts]
        return key

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args and not node.keywords:
            made = ast.Call(
                self.hook(node, "outer", ast.Constant("super")),
                [self.hook(node, "outer", ast.Constant("__class__")), ast.Name(self.first_argument, ast.Load())],
                [],
            )
            return self.placed(made, node)
        function = self.visit(node.func)
        args = [self.visit(a) for a in node.args]
        keywords = [ast.copy_location(ast.keyword(k.arg, self.visit(k.value)), k) for k in node.keywords]
        made = self.hook(node, "call", function, *args)
        made.keywords = keywords
        return made

    # -- stores -----------------------------------------------------------------------------------------------------
    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) == 1 and isinstance(node.targets[0], (ast.Subscript, ast.Attribute)):
            target = node.targets[0]
            value = self.visit(node.value)
            if isinstance(target, ast.Subscript):
                call = self.hook(node, "store", value, self.visit(target.value), self._key(target.slice))
            else:
                call = self.hook(
                    node, "set_attribute", value, self.visit(target.value), ast.Constant(self._mangled(target.attr))
                )
            return ast.copy_location(ast.Expr(call), node)
        self.generic_visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        operator = ast.Constant(type(node.op).__name__)
        target, value = node.target, self.visit(node.value)
        if isinstance(target, ast.Subscript):
            call = self.hook(node, "update", self.visit(target.value), self._key(target.slice), operator, value)
        elif isinstance(target, ast.Attribute):
            name = ast.Constant(self._mangled(target.attr))
            call = self.hook(node, "update_attribute", self.visit(target.value), name, operator, value)
        elif target.id in self.uncertain[-1]:
            old = self.visit(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            return ast.copy_location(ast.Assign([target], self.hook(node, "augmented", operator, old, value)), node)
        else:
            return ast.copy_location(ast.AugAssign(target, node.op, value), node)
        return ast.copy_location(ast.Expr(call), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Annotations of local names are not evaluated by Python either."""
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Global(self, node: ast.Global) -> Any:
        raise self.error(node, f"the function assigns the global {', '.join(node.names)}", "return the value instead")

    def visit_Nonlocal(self, node: ast.Nonlocal) -> Any:
        outside = [n for n in node.names if not any(n in scope for scope in self.scopes[:-1])]
        if outside:
            raise self.error(
                node, f"the function assigns {', '.join(outside)} of the function around it", "return the value instead"
            )
        self.scopes[-1] -= set(node.names)
        return node


def _stays_plain(body: list[ast.stmt]) -> str:
    """Why blocks of a function cannot become functions of their own; empty if they can."""
    for node in own_nodes(body):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return "the function is a generator (it has a yield)"
        if isinstance(node, (ast.Await, ast.AsyncFor, ast.AsyncWith)):
            return "the function is a coroutine"
        if isinstance(node, ast.TryStar) if hasattr(ast, "TryStar") else False:
            return "the function has a try with except*"
    return ""


def names_of(code: types.CodeType) -> Iterator[str]:
    """All global names that code mentions, nested functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_of(constant)
