"""The statements of an expression file: which there are, where they may stand, and that each way through ends in a return."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from pullback.frontends.expression_source import Source

MAX_BLOCKS = 25  # blocks within blocks, elif counting as one; Python's own stack is used for them
_STATEMENTS: Mapping[str, tuple[str, str]] = {
    "Import": ("imports have no place in an expression file", "NumPy's and scipy.special's functions are there: exp, np.exp"),
    "ClassDef": ("classes have no place in an expression file", "a helper function is written with def"),
    "AsyncFunctionDef": ("'async' has no place in an expression file", "a helper function is written with def"),
    "Expr": ("a value is computed but not used", "give it a name (q = ...) or return it"),
    "Delete": ("'del' has no place in an expression file", "leave it out"),
    "Global": ("'global' has no place in an expression file", "return the value, or pass it as an argument"),
    "Nonlocal": ("'nonlocal' has no place in an expression file", "return the value, or pass it as an argument"),
    "Raise": ("'raise' has no place in an expression file", "write assert condition, 'what is wrong'"),
    "Try": ("'try' has no place in an expression file", "choose with if what is done"),
    "With": ("'with' has no place in an expression file", "leave it out"),
    "Match": ("'match' has no place in an expression file", "write if and elif"),
}


def without_doc(helper: ast.FunctionDef) -> list[ast.stmt]:
    body = list(helper.body)
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        del body[0]
    return body


def inner(stmt: ast.stmt) -> tuple[list[ast.stmt], ...]:
    """The blocks of a statement."""
    return (stmt.body, stmt.orelse) if isinstance(stmt, (ast.If, ast.While, ast.For)) else ()


def every(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block and of those within it, in the order of the text."""
    pending = list(reversed(body))
    while pending:
        stmt = pending.pop()
        yield stmt
        for block in reversed(inner(stmt)):
            pending.extend(reversed(block))


def targets(body: Sequence[ast.stmt]) -> Iterator[ast.expr]:
    """What the statements assign to, those of inner blocks too, tuples taken apart."""
    for stmt in every(body):
        pending: list[ast.expr] = []
        if isinstance(stmt, ast.Assign):
            pending.extend(reversed(stmt.targets))
        elif isinstance(stmt, (ast.AugAssign, ast.For)):
            pending.append(stmt.target)
        while pending:
            target = pending.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                pending.extend(reversed(target.elts))
            else:
                yield target


def structure(source: Source, body: Sequence[ast.stmt], what: str, helpers_too: bool) -> None:
    """Refuse what has no place in the file or helper ``what``, and a way through it that has no return."""
    _Structure(source, helpers_too).block(body, 0, False)
    returns = any(isinstance(stmt, ast.Return) for stmt in every(body))
    if not returns or not _ends(body):
        last = source.text.count("\n", 0, len(source.text.rstrip())) + 1
        line = getattr(body[-1], "end_lineno", last) if body and not helpers_too else last
        if returns:
            raise source.at(line, 0, f"{what} can reach its end without a return", "end it with return and the output")
        raise source.at(line, 0, f"{what} has no return", "end it with return and the output: return sum(y)")


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether what follows these statements is never reached."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return not _breaks(last.body)
    return isinstance(last, ast.Return)


def _breaks(body: Sequence[ast.stmt]) -> bool:
    """Whether a ``break`` belongs to the loop of this body."""
    pending = list(body)
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, ast.Break):
            return True
        if isinstance(stmt, ast.If):
            pending += [*stmt.body, *stmt.orelse]
        elif isinstance(stmt, (ast.For, ast.While)):
            pending += stmt.orelse
    return False


class _Structure:
    def __init__(self, source: Source, helpers_too: bool):
        self.source = source
        self.helpers_too = helpers_too  # at the file's top level

    def block(self, body: Sequence[ast.stmt], depth: int, in_loop: bool) -> None:
        for place, stmt in enumerate(body):
            last = place == len(body) - 1
            if isinstance(stmt, (ast.Return, ast.Break, ast.Continue)):
                self.leaves(stmt, in_loop)
                if not last:
                    word = type(stmt).__name__.lower()
                    raise self.source.error(
                        body[place + 1], f"nothing after the {word} is ever computed", "remove it, or move it up"
                    )
            elif isinstance(stmt, (ast.If, ast.While, ast.For)):
                self.blocks(stmt, depth + 1, in_loop)
            elif isinstance(stmt, ast.FunctionDef):
                if not self.helpers_too:
                    raise self.source.error(
                        stmt, "a function inside a function is not supported", "move it to the file's top level"
                    )
                if depth:
                    raise self.source.error(
                        stmt, "a function inside a block is not supported", "move it to the file's top level"
                    )
            elif isinstance(stmt, ast.AnnAssign):
                raise self.source.error(stmt, "inputs are declared at the file's top level only", "leave the type out")
            elif isinstance(stmt, ast.Assert):
                self.message(stmt)
            elif not isinstance(stmt, (ast.Assign, ast.AugAssign)) and not (isinstance(stmt, ast.Pass) and depth):
                raise _unwanted(self.source, stmt, last and not depth)

    def leaves(self, stmt: ast.stmt, in_loop: bool) -> None:
        if isinstance(stmt, ast.Return):
            if stmt.value is None:
                raise self.source.error(stmt, "the return has no value", "write return followed by the output")
        elif not in_loop:
            raise self.source.error(stmt, f"{type(stmt).__name__.lower()!r} outside of a loop")

    def blocks(self, stmt: ast.If | ast.While | ast.For, depth: int, in_loop: bool) -> None:
        if depth > MAX_BLOCKS:
            raise self.source.error(stmt, f"blocks are nested more than {MAX_BLOCKS} deep", "write parts of it as functions")
        if isinstance(stmt, ast.For):
            self.iteration(stmt)
        self.block(stmt.body, depth, in_loop or not isinstance(stmt, ast.If))
        self.block(stmt.orelse, depth, in_loop)

    def iteration(self, stmt: ast.For) -> None:
        if not isinstance(stmt.target, ast.Name):
            raise self.source.error(
                stmt.target, "a loop has one variable", "write for i in range(n): and take elements by x[i]"
            )
        if is_range(stmt.iter):
            call = stmt.iter
            assert isinstance(call, ast.Call)
            if call.keywords or not 1 <= len(call.args) <= 3:
                raise self.source.error(call, "range takes one to three numbers", "write range(n) or range(start, stop, step)")

    def message(self, stmt: ast.Assert) -> None:
        if stmt.msg is not None and not (isinstance(stmt.msg, ast.Constant) and isinstance(stmt.msg.value, str)):
            raise self.source.error(stmt.msg, "the message of assert is a string", 'write assert x > 0, "x is not positive"')


def is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _unwanted(source: Source, stmt: ast.stmt, last: bool) -> Exception:
    kind = type(stmt).__name__
    if kind == "ImportFrom":
        kind = "Import"
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Lambda):
        return source.error(stmt, "lambda is a word of the language and cannot be a name", "call it lambda_")
    if kind == "Pass":
        return source.error(stmt, "'pass' has no place here", "leave it out")
    if kind == "Expr" and last:
        return source.error(stmt, "the output is not returned", "write return in front of it")
    known = _STATEMENTS.get(kind)
    if known is None:
        return source.error(stmt, f"{kind.lower()!r} statements have no place in an expression file")
    return source.error(stmt, *known)
