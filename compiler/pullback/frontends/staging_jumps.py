"""``break``, ``continue`` and early ``return`` as structure: the remainder of a block moves into the branch that goes on.

Blocks of the IR have one end, so a statement list that may be left early is rewritten, by syntax alone. Where one arm of an
``if`` always leaves, what follows becomes part of the other arm, and nothing needs to be remembered. Elsewhere a flag
remembers that the list was left, and what follows is guarded by it. A loop that may be left has the name of its flag in the
attribute ``stop`` of its node, and no ``else`` any more. A function with early returns ends in one ``return`` of :data:`VALUE`;
:data:`RETURNED` tells whether it has one by then, unless the attribute ``leaves`` of that node says that it always has.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

VALUE, RETURNED = "__value__", "__returned__"  # what the function returns, and whether it does by now
_NEW_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def is_flag(name: str) -> bool:
    return name.startswith(("__break_", "__continue_")) or name in (VALUE, RETURNED)


@dataclass(slots=True)
class Block:
    """Statements; the flags that may be set at their end; whether the end is never reached."""

    body: list[ast.stmt] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    leaves: bool = False


@dataclass(slots=True)
class _Place:
    """Where a jump leads: the flags of the loop around it, for ``break`` and for ``continue``."""

    stop: str = ""
    skip: str = ""


class Jumps:
    """Rewrites the body of one function. ``early``: it has a return that is not its last statement."""

    def __init__(self) -> None:
        self.loops = 0
        self.early = False

    def function(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The body without jumps; unchanged if it has none."""
        self.early = any(isinstance(node, ast.Return) for stmt in body[:-1] for node in _own(stmt)) or (
            bool(body) and not isinstance(body[-1], ast.Return) and any(isinstance(n, ast.Return) for n in _own(body[-1]))
        )
        block = self.block(body, _Place())
        if not self.early:
            return block.body
        last = ast.Return(_name(VALUE))
        last.leaves = block.leaves  # type: ignore[attr-defined]  # read by whoever makes code of it
        made = block.body
        stops = any(getattr(node, "stop", "") == RETURNED for stmt in made for node in _own(stmt))
        if block.leaves and not stops and not _reads(made, RETURNED):
            made = _without(made, RETURNED)
        else:
            made.insert(0, _assign(RETURNED, ast.Constant(False), body[0]))
        return [*made, _placed(last, body[-1])]

    # -- statement lists --------------------------------------------------------------------------------------------
    def block(self, statements: Sequence[ast.stmt], place: _Place) -> Block:
        found = Block()
        for k, stmt in enumerate(statements):
            rest = statements[k + 1 :]
            if isinstance(stmt, ast.If) and rest and self._splits(stmt):
                part = self._split(stmt, list(rest), place)
                rest = ()
            else:
                part = self.statement(stmt, place)
            found.body += part.body
            found.flags |= part.flags
            if part.leaves:
                found.leaves = True
                break
            if part.flags and rest:
                after = self.block(rest, place)
                found.body.append(_guarded(part.flags, after.body, rest[0]))
                found.flags |= after.flags
                found.leaves = after.leaves
                break
            if not rest:
                break
        return found

    def _splits(self, stmt: ast.If) -> bool:
        """Whether one arm always leaves by a jump."""
        return any(_always(arm) and _jumps(arm) for arm in (stmt.body, stmt.orelse))

    def _split(self, stmt: ast.If, rest: list[ast.stmt], place: _Place) -> Block:
        """What follows belongs to the arm that goes on."""
        leaving = _always(stmt.body) and _jumps(stmt.body)
        then, other = (stmt.body, stmt.orelse + rest) if leaving else (stmt.body + rest, stmt.orelse)
        return self._branch(stmt, then, other, place)

    def _branch(self, stmt: ast.If, then: list[ast.stmt], other: list[ast.stmt], place: _Place) -> Block:
        first, second = self.block(then, place), self.block(other, place)
        made = ast.copy_location(ast.If(stmt.test, _filled(first.body, stmt), second.body), stmt)
        return Block([made], first.flags | second.flags, first.leaves and second.leaves)

    # -- statements -------------------------------------------------------------------------------------------------
    def statement(self, stmt: ast.stmt, place: _Place) -> Block:
        match stmt:
            case ast.Break():
                return Block([_assign(place.stop, ast.Constant(True), stmt)], {place.stop}, True)
            case ast.Continue():
                return Block([_assign(place.skip, ast.Constant(True), stmt)], {place.skip}, True)
            case ast.Return() if self.early:
                return self._return(stmt, place)
            case ast.Return() | ast.Raise():
                return Block([stmt], set(), True)
            case ast.If():
                return self._branch(stmt, stmt.body, stmt.orelse, place)
            case ast.While() | ast.For():
                return self._loop(stmt, place)
            case ast.With():
                inner = self.block(stmt.body, place)
                made = ast.copy_location(ast.With(stmt.items, inner.body), stmt)
                return Block([made], inner.flags, inner.leaves and _lets_errors_through(stmt))
            case ast.Try():
                return self._try(stmt, place)
            case ast.Match():
                return self._match(stmt, place)
        return Block([stmt])

    def _return(self, stmt: ast.Return, place: _Place) -> Block:
        value = ast.Constant(None) if stmt.value is None else stmt.value
        body = [_assign(VALUE, value, stmt), _assign(RETURNED, ast.Constant(True), stmt)]
        if place.stop not in ("", RETURNED):
            body.append(_assign(place.stop, ast.Constant(True), stmt))
        return Block(body, {place.stop or RETURNED}, True)

    def _loop(self, stmt: ast.While | ast.For, place: _Place) -> Block:
        self.loops += 1
        stop, skip = f"__break_{self.loops}__", f"__continue_{self.loops}__"
        returns = self.early and any(isinstance(node, ast.Return) for part in stmt.body for node in _own(part))
        walrus = isinstance(stmt, ast.While) and any(isinstance(node, ast.NamedExpr) for node in ast.walk(stmt.test))
        if returns and not walrus and not _has(stmt.body, ast.Break):
            stop = RETURNED
        inner = self.block(stmt.body, _Place(stop, skip))
        left = stop in inner.flags
        used = _reads(inner.body, skip)
        body = [_assign(skip, ast.Constant(False), stmt), *inner.body] if used else _without(inner.body, skip)
        if isinstance(stmt, ast.While):
            test = stmt.test
            if walrus:  # binds names, as only a body can
                left = True
                ends = ast.If(ast.UnaryOp(ast.Not(), test), [_assign(stop, ast.Constant(True), stmt)], body)
                body, test = [_placed(ends, stmt)], _placed(ast.Constant(True), stmt)
            made: Any = ast.While(test, _filled(body, stmt), [])
        else:
            made = ast.For(stmt.target, stmt.iter, _filled(body, stmt), [], None)
        made.stop = stop if left else ""
        found = Block([ast.copy_location(made, stmt)])
        if left and stop != RETURNED:
            found.body.insert(0, _assign(stop, ast.Constant(False), stmt))
        found.leaves = _always([stmt])
        if stmt.orelse:
            after = self.block(stmt.orelse, place)
            found.body += [_guarded({stop}, after.body, stmt.orelse[0])] if left else after.body
            found.flags |= after.flags
        if returns:
            if place.stop not in ("", RETURNED):  # out of the loop around it too
                leave = _assign(place.stop, ast.Constant(True), stmt)
                found.body.append(_placed(ast.If(_name(RETURNED), [leave], []), stmt))
            found.flags.add(place.stop or RETURNED)
        return found

    def _try(self, stmt: ast.Try, place: _Place) -> Block:
        body, final = self.block(stmt.body, place), self.block(stmt.finalbody, place)
        orelse = self.block(stmt.orelse, place)
        flags = body.flags | final.flags | orelse.flags
        handlers = []
        for handler in stmt.handlers:
            inner = self.block(handler.body, place)
            flags |= inner.flags
            made = ast.ExceptHandler(handler.type, handler.name, _filled(inner.body, handler))
            handlers.append(ast.copy_location(made, handler))
        after = [_guarded(body.flags, orelse.body, stmt)] if body.flags and orelse.body else orelse.body
        return Block([ast.copy_location(ast.Try(_filled(body.body, stmt), handlers, after, final.body), stmt)], flags)

    def _match(self, stmt: ast.Match, place: _Place) -> Block:
        flags: set[str] = set()
        cases = []
        for case in stmt.cases:
            inner = self.block(case.body, place)
            flags |= inner.flags
            cases.append(ast.match_case(case.pattern, case.guard, _filled(inner.body, stmt)))
        return Block([ast.copy_location(ast.Match(stmt.subject, cases), stmt)], flags)


# -- questions about statements -------------------------------------------------------------------------------------
def _own(root: ast.AST) -> list[ast.AST]:
    """The nodes of a statement that belong to its own function."""
    found: list[ast.AST] = []
    pending = [root]
    while pending:
        node = pending.pop()
        found.append(node)
        if not isinstance(node, _NEW_SCOPES):
            pending += ast.iter_child_nodes(node)
    return found


def _always(statements: Sequence[ast.stmt]) -> bool:
    """Whether the end of the statements is never reached."""
    for stmt in statements:
        if isinstance(stmt, (ast.Break, ast.Continue, ast.Return, ast.Raise)):
            return True
        if isinstance(stmt, ast.If) and _always(stmt.body) and _always(stmt.orelse):
            return True
        if isinstance(stmt, ast.With) and _always(stmt.body) and _lets_errors_through(stmt):
            return True
        endless = isinstance(stmt, ast.While) and isinstance(stmt.test, ast.Constant) and bool(stmt.test.value)
        if endless and not _has(stmt.body, ast.Break):  # type: ignore[attr-defined]  # a while, by the line above
            return True
    return False


def _lets_errors_through(stmt: ast.With) -> bool:
    """Whether what follows is reached only from the end of the body: ``contextlib.suppress`` would lead there too."""
    names = [item.context_expr.func for item in stmt.items if isinstance(item.context_expr, ast.Call)]
    known = [isinstance(name, ast.Attribute) and name.attr in ("errstate", "catch_warnings") for name in names]
    return len(known) == len(stmt.items) and all(known)


def _jumps(statements: Sequence[ast.stmt]) -> bool:
    """Whether a jump leads out of the statements."""
    return _has(statements, ast.Break, ast.Continue) or any(
        isinstance(node, ast.Return) for stmt in statements for node in _own(stmt)
    )


def _has(statements: Sequence[ast.stmt], *kinds: type[ast.stmt]) -> bool:
    """Whether the statements have a break or continue that belongs to the loop around them."""
    pending: list[ast.AST] = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, kinds):
            return True
        if isinstance(node, (ast.While, ast.For)):
            pending += node.orelse
        elif not isinstance(node, _NEW_SCOPES):
            pending += ast.iter_child_nodes(node)
    return False


def _reads(statements: Sequence[ast.stmt], name: str) -> bool:
    nodes = (node for stmt in statements for node in ast.walk(stmt))
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)


def _without(statements: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The statements without assignments of a flag that nothing reads."""

    class Remover(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> Any:
            target = node.targets[0]
            return ast.copy_location(ast.Pass(), node) if isinstance(target, ast.Name) and target.id == name else node

    return [Remover().visit(stmt) for stmt in statements]


# -- new statements -------------------------------------------------------------------------------------------------
def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _placed(new: Any, old: ast.AST) -> Any:
    ast.copy_location(new, old)
    return ast.fix_missing_locations(new)


def _assign(name: str, value: ast.expr, old: ast.AST) -> ast.stmt:
    return _placed(ast.Assign([ast.Name(name, ast.Store())], value), old)


def _guarded(flags: set[str], body: list[ast.stmt], old: ast.AST) -> ast.stmt:
    """``if not (a or b): body``."""
    names: list[ast.expr] = [_name(flag) for flag in sorted(flags)]
    test = ast.UnaryOp(ast.Not(), names[0] if len(names) == 1 else ast.BoolOp(ast.Or(), names))
    return _placed(ast.If(test, _filled(body, old), []), old)


def _filled(body: list[ast.stmt], old: ast.AST) -> list[ast.stmt]:
    return body or [_placed(ast.Pass(), old)]
