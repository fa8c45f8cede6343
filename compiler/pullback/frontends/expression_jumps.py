"""Statements without jumps: ``break``, ``continue`` and early ``return`` become variables and branches.

Note [Jumps]
A block of the IR is left at its end only, so a jump is written as what it skips. Where one arm of an ``if`` always jumps, what
follows the ``if`` moves into the other arm, as with ``if c: break`` and the rest of the body. Where an arm may or may not jump,
it sets a variable, and what follows is done if that is not set: ``skip`` within a loop (the rest of this trip), ``returned``
elsewhere. ``stop`` ends a loop when it has become true; the ``else`` of the loop is done if it has not. Returned values go
into one variable, which the only ``return``, the last statement, gives back. A variable that nothing reads is left out.

The variables are plain False and True until a traced condition is in the way, so jumps that depend on what is known while
tracing are decided then and there.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.frontends.expression_statements import every, inner

RESULT = ".result"  # no identifiers, so that no variable of the file can be meant
RETURNED = ".returned"
_JUMPS = (ast.Return, ast.Break, ast.Continue)


class Loop(ast.stmt):
    """A ``while`` or ``for`` without jumps: ``kept`` has its condition, or its variable and what it goes over; ``body`` is what
    is done. ``stop`` is the variable that ends it, empty where nothing does."""

    _fields = ("kept", "body")

    def __init__(self, kept: ast.While | ast.For, body: list[ast.stmt], stop: str):
        super().__init__()
        ast.copy_location(self, kept)
        self.kept = kept
        self.body = body
        self.stop = stop


def without_jumps(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a file or a helper, whose only return comes last."""
    *before, last = body
    if isinstance(last, ast.Return) and not any(isinstance(stmt, ast.Return) for stmt in every(before)):
        found, end = _Lowering().block(before, None), last
    else:
        found = _Lowering().block(body, None)
        end = _placed(last, ast.Return(_placed(last, ast.Name(RESULT, ast.Load()))))
        found.insert(0, _set(body[0], RETURNED, False))
    return [*_read_only(found), end]


@dataclass(frozen=True, slots=True)
class _Flags:
    """The variables of a loop."""

    stop: str
    skip: str


class _Lowering:
    def __init__(self) -> None:
        self.loops = 0

    def block(self, body: Sequence[ast.stmt], loop: _Flags | None) -> list[ast.stmt]:
        """A block within a loop, or outside of all (None)."""
        found: list[ast.stmt] = []
        for k, stmt in enumerate(body):
            rest = body[k + 1 :]
            if isinstance(stmt, _JUMPS):
                return [*found, *_jump(stmt, loop)]
            if isinstance(stmt, ast.If):
                if _has(inner(stmt), _JUMPS):
                    return [*found, *self.branch(stmt, rest, loop)]
                found.append(self.arms(stmt, stmt.body, stmt.orelse, loop))
            elif isinstance(stmt, (ast.While, ast.For)):
                if stmt.orelse or _has((stmt.body,), _JUMPS):
                    return [*found, *self.left(stmt, rest, loop)]
                found.append(Loop(stmt, self.block(stmt.body, None), ""))
            elif not isinstance(stmt, ast.Pass):
                found.append(stmt)
        return found

    def arms(self, stmt: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], loop: _Flags | None) -> ast.stmt:
        return _placed(stmt, ast.If(stmt.test, self.block(body, loop), self.block(orelse, loop)))

    def branch(self, stmt: ast.If, rest: Sequence[ast.stmt], loop: _Flags | None) -> list[ast.stmt]:
        """An ``if`` with jumps in it, and all that follows it in its block."""
        if _always(stmt.body):
            return [self.arms(stmt, stmt.body, [*stmt.orelse, *rest], loop)]
        if _always(stmt.orelse):
            return [self.arms(stmt, [*stmt.body, *rest], stmt.orelse, loop)]
        made = self.arms(stmt, stmt.body, stmt.orelse, loop)
        left = _name(stmt, RETURNED if loop is None else loop.skip)
        return [made, _unless(stmt, left, self.block(rest, loop))] if rest else [made]

    def left(self, stmt: ast.While | ast.For, rest: Sequence[ast.stmt], outer: _Flags | None) -> list[ast.stmt]:
        """A loop with jumps in it or an ``else``, and all that follows it in its block."""
        self.loops += 1
        flags = _Flags(f".stop{self.loops}", f".skip{self.loops}")
        ends, returns = _breaks(stmt.body), _has((stmt.body,), (ast.Return,))
        body = [_set(stmt, flags.skip, False), *self.block(stmt.body, flags)]
        made = Loop(stmt, body, flags.stop if ends or returns else "")
        found: list[ast.stmt] = [_set(stmt, flags.stop, False), made] if made.stop else [made]
        if stmt.orelse and made.stop:
            rest = [_unless(stmt, _name(stmt, flags.stop), stmt.orelse), *rest]
        else:
            rest = [*stmt.orelse, *rest]
        if not returns:
            return [*found, *self.block(rest, outer)]
        away = [] if outer is None else [_set(stmt, outer.stop, True), _set(stmt, outer.skip, True)]
        after = self.block(rest, outer)
        if away:
            return [*found, _placed(stmt, ast.If(_name(stmt, RETURNED), away, after))]
        return [*found, _unless(stmt, _name(stmt, RETURNED), after)] if after else found


def _jump(stmt: ast.stmt, loop: _Flags | None) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    if isinstance(stmt, ast.Return):
        assert stmt.value is not None
        target = _placed(stmt, ast.Name(RESULT, ast.Store()))
        found += [_placed(stmt, ast.Assign([target], stmt.value)), _set(stmt, RETURNED, True)]
    if loop is not None and not isinstance(stmt, ast.Continue):
        found.append(_set(stmt, loop.stop, True))
    return found if loop is None else [*found, _set(stmt, loop.skip, True)]


# -- questions --------------------------------------------------------------------------------------------------------
def _has(blocks: Sequence[Sequence[ast.stmt]], kinds: tuple[type[ast.stmt], ...]) -> bool:
    """Whether a jump of these kinds leaves the blocks: those of inner loops that stay within them are their own."""
    pending = [(stmt, kinds) for block in blocks for stmt in block]
    while pending:
        stmt, wanted = pending.pop()
        if isinstance(stmt, wanted):
            return True
        own = tuple(k for k in wanted if k is ast.Return) if isinstance(stmt, (ast.While, ast.For)) else wanted
        pending += [(s, w) for block, w in zip(inner(stmt), (own, wanted), strict=False) for s in block]
    return False


def _breaks(body: Sequence[ast.stmt]) -> bool:
    return _has((body,), (ast.Break,))


def _always(body: Sequence[ast.stmt]) -> bool:
    """Whether a block always ends in a jump."""
    if not body:
        return False
    last = body[-1]
    return isinstance(last, _JUMPS) or (isinstance(last, ast.If) and _always(last.body) and _always(last.orelse))


# -- nodes ------------------------------------------------------------------------------------------------------------
def _placed(like: ast.AST, node: Any) -> Any:
    return ast.copy_location(node, like)


def _name(like: ast.AST, name: str) -> ast.expr:
    return _placed(like, ast.Name(name, ast.Load()))


def _set(like: ast.AST, name: str, value: bool) -> ast.stmt:
    target = _placed(like, ast.Name(name, ast.Store()))
    return _placed(like, ast.Assign([target], _placed(like, ast.Constant(value))))


def _unless(like: ast.AST, flag: ast.expr, body: list[ast.stmt]) -> ast.stmt:
    return _placed(like, ast.If(_placed(like, ast.UnaryOp(ast.Not(), flag)), body, []))


def _read_only(body: list[ast.stmt]) -> list[ast.stmt]:
    """Leave out what sets a variable of ours that nothing reads."""
    read = {RESULT} | {loop.stop for loop in _everything(body) if isinstance(loop, Loop)}
    for stmt in _everything(body):
        if isinstance(stmt, ast.If):
            test = stmt.test.operand if isinstance(stmt.test, ast.UnaryOp) else stmt.test
            if isinstance(test, ast.Name):
                read.add(test.id)
    for stmt in _everything(body):
        for block in (*inner(stmt), *([stmt.body] if isinstance(stmt, Loop) else [])):
            block[:] = [s for s in block if not _unread(s, read)]
    return [s for s in body if not _unread(s, read)]


def _unread(stmt: ast.stmt, read: set[str]) -> bool:
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) else None
    return isinstance(target, ast.Name) and target.id[:2] in (".s", ".r") and target.id not in read


def _everything(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    pending = list(body)
    while pending:
        stmt = pending.pop()
        found.append(stmt)
        for block in (*inner(stmt), *([stmt.body] if isinstance(stmt, Loop) else [])):
            pending.extend(block)
    return found
