"""Finding the source of a function as a syntax tree, with the lines and columns of the file."""

from __future__ import annotations

import ast
import functools
import linecache
import types
from collections.abc import Mapping, Sequence
from typing import Any

Function = ast.FunctionDef | ast.Lambda


@functools.lru_cache(maxsize=64)
def _functions(filename: str, text: str) -> Mapping[tuple[str, int], Sequence[Function]]:
    """The functions of a file by their names and the lines where they may begin; all at once, for other functions of the file
    will be asked for, too."""
    found: dict[tuple[str, int], list[Function]] = {}
    try:
        tree = ast.parse(text, filename)
    except SyntaxError:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(node)
        elif isinstance(node, ast.FunctionDef):
            for line in {node.lineno, *(d.lineno for d in node.decorator_list[:1])}:  # a decorator's line is the code's first
                found.setdefault((node.name, line), []).append(node)
    return found


def find(function: types.FunctionType) -> Function | None:
    """The ``def`` or ``lambda`` that made a function; None where there is no source or it cannot be told."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    candidates = _functions(code.co_filename, "".join(lines)).get((code.co_name, code.co_firstlineno), ())
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [node for node in candidates if _argument_names(node.args) == names]
    if len(found) > 1:
        found = [node for node in found if _covers(node, code)]
    return found[0] if len(found) == 1 else None


def _argument_names(args: ast.arguments) -> tuple[str, ...]:
    return tuple(a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs))


def _covers(node: Any, code: types.CodeType) -> bool:
    """Whether the positions of the code lie within the node (they are known since Python 3.11)."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return False
    body = node.body if isinstance(node, ast.Lambda) else node
    spans = [p for p in positions() if None not in p and p[0] == p[1] == body.lineno and p[2] != p[3]]
    return bool(spans) and min(p[2] for p in spans) >= body.col_offset and max(p[3] for p in spans) <= body.end_col_offset
