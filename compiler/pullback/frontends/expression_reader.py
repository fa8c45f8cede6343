"""From the syntax tree of an expression file to a program: inputs, sizes, statements; whatever else it holds is an error here.

Names are checked as well, so that a misspelt function is reported when the file is loaded and not when a call happens to reach
it. Trees are walked by iteration: see Note [Hostile files].
"""

from __future__ import annotations

import ast
import keyword
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.frontends.expression_names import (
    ATTRIBUTES,
    CONSTANTS,
    ELEMENT_TYPES,
    METHODS,
    MODULE_CONSTANTS,
    MODULES,
    display,
    functions,
)
from pullback.frontends.expression_source import Source, clipped, suggestion
from pullback.frontends.expression_statements import is_range, structure, targets, without_doc
from pullback.ir import dims
from pullback.ir.dims import Dim, Size
from pullback.ir.types import DTYPES, DType, Type
from pullback_runtime.binding import REQUIRED, RESERVED

MAX_SIZE_NODES = 50  # of the expression of one axis
_EXPRESSIONS: Mapping[str, tuple[str, str]] = {
    "Lambda": ("lambda has no place in an expression file", "a helper function is written with def"),
    "ListComp": ("comprehensions have no place in an expression file", "use whole arrays: sum(x**2), arange(n)"),
    "GeneratorExp": ("generators have no place in an expression file", "use whole arrays: sum(x**2), arange(n)"),
    "SetComp": ("comprehensions have no place in an expression file", "use whole arrays"),
    "DictComp": ("comprehensions have no place in an expression file", "write the outputs out: return {'a': a}"),
    "NamedExpr": ("':=' has no place in an expression file", "give it a line of its own: q = ..."),
    "Starred": ("'*' before an argument is not supported", "write the arguments out"),
    "Set": ("sets are not supported", "write a list [a, b] or a dict {'a': a}"),
    "Await": ("'await' has no place in an expression file", ""),
    "Yield": ("'yield' has no place in an expression file", "the outputs are given by return"),
    "YieldFrom": ("'yield' has no place in an expression file", "the outputs are given by return"),
    "JoinedStr": ("f-strings have no meaning in an expression file", ""),
}
_OPERATORS: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.BitXor: ("'^' is not a power here", "write x**2 for powers (np.logical_xor for conditions)"),
    ast.LShift: ("'<<' is not supported", "write x * 2**n"),
    ast.RShift: ("'>>' is not supported", "write x // 2**n"),
    ast.Is: ("'is' is not supported", "compare with =="),
    ast.IsNot: ("'is not' is not supported", "compare with !="),
    ast.In: ("'in' is not supported", "write any(x == value)"),
    ast.NotIn: ("'not in' is not supported", "write all(x != value)"),
}


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    type: Type
    default: Any
    node: ast.AST


@dataclass(frozen=True, slots=True)
class Program:
    """A checked file. ``sizes``: the names of axes; ``helpers``: functions by name.

    ``endless``: a loop that nothing ends is a program all the same (which stops at a limit of trips), and no mistake.
    """

    source: Source
    doc: str
    inputs: tuple[Input, ...]
    sizes: tuple[str, ...]
    body: tuple[ast.stmt, ...]
    helpers: Mapping[str, ast.FunctionDef]
    endless: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)  # of inputs whose names are no Python names


def read(source: Source) -> Program:
    """The program of a file. ExpressionError at the first thing that does not belong."""
    body = list(source.parse().body)
    doc = ""
    if (
        body
        and isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        doc = body.pop(0).value.value.strip()  # type: ignore[attr-defined]  # just tested
    inputs = tuple(_input(source, s) for s in body if isinstance(s, ast.AnnAssign))
    sizes = _sizes(source, inputs)
    statements = tuple(s for s in body if not isinstance(s, ast.AnnAssign))
    helpers = _helpers(source, statements, {i.name for i in inputs} | set(sizes))
    structure(source, statements, "the file", helpers_too=True)
    for helper in helpers.values():
        structure(source, without_doc(helper), f"the function {helper.name}", helpers_too=False)
    program = Program(source, doc, inputs, sizes, statements, helpers)
    check(program)
    return program


def check(program: Program) -> None:
    """Refuse unknown names and whatever has no place in an expression."""
    _Checker(program).check()


# -- inputs -----------------------------------------------------------------------------------------------------------
def _input(source: Source, node: ast.AnnAssign) -> Input:
    if not isinstance(node.target, ast.Name):
        raise source.error(node.target, "an input is a plain name with a type", "write x: f64[n]")
    name = node.target.id
    if name in RESERVED:
        raise source.error(
            node.target, f"an input cannot be named {name}: the derivatives take an argument of that name", "rename it"
        )
    type = _type(source, node.annotation)
    default = REQUIRED if node.value is None else _literal(source, node.value, name)
    return Input(name, type, default, node.target)


def _type(source: Source, node: ast.expr) -> Type:
    """``f64``, ``f64[n, p]``, ``f64[2*n + 1, 3]``."""
    base, axes = (node.value, node.slice) if isinstance(node, ast.Subscript) else (node, None)
    known = ", ".join(DTYPES)
    if not isinstance(base, ast.Name) or base.id not in DTYPES:
        text = base.id if isinstance(base, ast.Name) else "this"
        remedy = "write f64 for a real number, i64 for an integer, f64[n] for a vector, f64[n, p] for a matrix"
        raise source.error(base, f"the type of an input is one of {known}, got {clipped(text)}", remedy)
    dtype: DType = DTYPES[base.id]
    if axes is None:
        return Type(dtype)
    parts = axes.elts if isinstance(axes, ast.Tuple) else [axes]
    return Type(dtype, tuple(_axis(source, part) for part in parts))


def _axis(source: Source, node: ast.expr) -> Size:
    if isinstance(node, ast.Slice) or sum(1 for _ in ast.walk(node)) > MAX_SIZE_NODES:
        raise source.error(node, "an axis is a size name, a number or a short expression of them", "write f64[n], f64[2*n + 1]")
    try:
        size = dims.from_ast(node)
    except (ValueError, ZeroDivisionError) as error:
        raise source.error(node, str(error)) from None
    if isinstance(size, int) and not 0 <= size < 2**31:
        raise source.error(node, f"the length of an axis is between 0 and 2**31, got {size}")
    return size


def _literal(source: Source, node: ast.expr, name: str) -> Any:
    """A default: a number, or nested lists of numbers."""
    try:
        value = ast.literal_eval(node)
        _numbers(value)
        return value
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise source.error(
            node, f"the default of {clipped(name)} is not a literal", "write a number, True, or a list of numbers"
        ) from None


def _numbers(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, (list, tuple)):
            pending.extend(item)
        elif not isinstance(item, (bool, int, float)) or (isinstance(item, int) and item.bit_length() > 63):
            raise ValueError


def _sizes(source: Source, inputs: Sequence[Input]) -> tuple[str, ...]:
    """The size names in order of appearance; each must be the bare length of some axis, which is how it is known."""
    seen: dict[str, Input] = {}
    for given in inputs:
        if seen.setdefault(given.name, given) is not given:
            first = seen[given.name].node.lineno  # type: ignore[attr-defined]  # targets have places
            raise source.error(given.node, f"{given.name} is declared twice, first in line {first}")
    sizes: dict[str, Input] = {}
    for given in inputs:
        for size in given.type.shape:
            for name in sorted(dims.symbols((size,))):
                sizes.setdefault(name, given)
    bare = {size.bare_symbol() for given in inputs for size in given.type.shape if isinstance(size, Dim)}
    for name, given in sizes.items():
        if name in seen:
            raise source.error(given.node, f"{name} is an input and the size of an axis; give one of them another name")
        if name not in bare:
            remedy = f"declare an input with an axis of length {name}, or write the length as a number"
            raise source.error(given.node, f"the size {name} cannot be found: no axis is just {name}", remedy)
    return tuple(sizes)


# -- helpers ----------------------------------------------------------------------------------------------------------
def _helper(source: Source, node: ast.FunctionDef) -> None:
    args = node.args
    if node.decorator_list:
        raise source.error(node.decorator_list[0], "decorators have no place in an expression file", "remove it")
    if args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs:
        raise source.error(node, f"the function {clipped(node.name)} takes plain arguments only", "write def f(x, y=1.0): ...")
    names = [a.arg for a in args.args]
    for arg in args.args:
        if names.count(arg.arg) > 1:
            raise source.error(arg, f"the function {clipped(node.name)} has two arguments named {clipped(arg.arg)}")
    for default in args.defaults:
        _literal(source, default, node.name)


def _helpers(source: Source, body: Sequence[ast.stmt], taken: set[str]) -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for stmt in body:
        if isinstance(stmt, ast.FunctionDef):
            if stmt.name in taken or stmt.name in found:
                raise source.error(stmt, f"the name {clipped(stmt.name)} is taken already", "give the function another name")
            found[stmt.name] = stmt
            _helper(source, stmt)
    return found


# -- expressions ------------------------------------------------------------------------------------------------------
def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A tree in the order of its text."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(list(ast.iter_child_nodes(found))))


def module_path(node: ast.expr, variables: Any) -> str | None:
    """``np.linalg.norm`` as text if its root is a module's name and no variable's."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < 4:  # no module's function is deeper
        parts.append(node.attr)
        node = node.value
    if not parts or not isinstance(node, ast.Name) or node.id not in MODULES or node.id in variables:
        return None
    return ".".join((node.id, *reversed(parts)))


class _Checker:
    """Names and forbidden constructs of a whole program."""

    def __init__(self, program: Program):
        self.program = program
        self.source = program.source

    def check(self) -> None:
        top = {i.name for i in self.program.inputs} | set(self.program.sizes) | self._assigned(self.program.body)
        for stmt in self.program.body:
            if isinstance(stmt, ast.FunctionDef):
                body = without_doc(stmt)
                arguments = {a.arg for a in stmt.args.args}
                self._protect(stmt, arguments)
                self._walk(body, top | arguments | self._assigned(body))
            else:
                self._walk([stmt], top)

    def _assigned(self, body: Sequence[ast.stmt]) -> set[str]:
        names: set[str] = set()
        for target in targets(body):
            if isinstance(target, ast.Name):
                names.add(target.id)
                self._protect(target, (target.id,))
            elif not (isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name)):
                raise self.source.error(
                    target, "this cannot be assigned to", "assign to a name, or to elements of one: y[i] = ..."
                )
        return names

    def _protect(self, node: ast.AST, names: Any) -> None:
        for name in names:
            if name.startswith("__"):
                raise self.source.error(node, f"{clipped(name)} cannot be assigned to: its name starts with __", "rename it")
            if name in self.program.sizes:
                raise self.source.error(node, f"{name} is the size of an axis and cannot be changed", "use another name")
            if name in self.program.helpers:
                raise self.source.error(node, f"{clipped(name)} is a function of this file", "use another name for the value")

    def _walk(self, body: Sequence[ast.stmt], variables: set[str]) -> None:
        """Inner nodes first, so that ``__import__("os").system()`` is refused for what it begins with."""
        for stmt in body:
            nodes = list(walk(stmt))
            returned = {node.value for node in nodes if isinstance(node, ast.Return)}
            counted = {node.iter for node in nodes if isinstance(node, ast.For) and is_range(node.iter)}
            named: set[ast.AST] = set()  # functions of calls and parts of np.linalg.norm, which are no values
            for node in nodes:
                known = _EXPRESSIONS.get(type(node).__name__)
                if known is not None:
                    raise self.source.error(node, *known)
                if isinstance(node, ast.Call):
                    named.add(node.func)
                if isinstance(node, ast.Attribute) and module_path(node, variables) is not None:
                    named.update(walk(node.value))
            for node in reversed(nodes):
                if isinstance(node, ast.Call):
                    if node not in counted or "range" in variables:
                        self._call(node, variables)
                elif isinstance(node, ast.Dict):
                    self._dict(node, returned)
                elif node not in named:
                    self._other(node, variables)

    def _other(self, node: ast.AST, variables: set[str]) -> None:
        if isinstance(node, ast.Attribute):
            self._attribute(node, variables)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            self._name(node, variables)
        elif isinstance(node, (ast.BinOp, ast.AugAssign)):
            self._operators(node, (node.op,))
        elif isinstance(node, ast.Compare):
            self._operators(node, node.ops)
        elif isinstance(node, ast.Constant):
            self._constant(node)

    def _operators(self, node: Any, ops: Sequence[ast.AST]) -> None:
        for op in ops:
            if type(op) in _OPERATORS:
                message, remedy = _OPERATORS[type(op)]
                place = node.left if not isinstance(node, ast.AugAssign) else node.target
                raise self.source.at(*self._operator_place(node, place, message.split("'")[1]), message, remedy)

    def _operator_place(self, node: Any, left: Any, text: str) -> tuple[int, int]:
        """Where an operator stands: after its left operand."""
        line, column = left.end_lineno, self.source.column(left.end_lineno, left.end_col_offset)
        found = self.source.lines[line - 1].find(text, column)
        return (line, found) if found >= 0 else (node.lineno, self.source.column(node.lineno, node.col_offset))

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, complex):
            raise self.source.error(node, "complex numbers are not supported", "only real numbers are")
        if isinstance(node.value, bytes):
            raise self.source.error(node, "bytes have no meaning in an expression file")
        if isinstance(node.value, int) and node.value.bit_length() > 1023:
            raise self.source.error(node, "the number is too large for a float")

    def _dict(self, node: ast.Dict, returned: Collection[ast.AST | None]) -> None:
        if node not in returned:
            raise self.source.error(node, "a dict names outputs and can only be returned", "write return {'a': a, 'b': b}")
        for key in node.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise self.source.error(key or node, "the name of an output is a string", "write return {'a': a, 'b': b}")

    def _name(self, node: ast.Name, variables: set[str]) -> None:
        name = node.id
        if name in variables or name in CONSTANTS or name in ELEMENT_TYPES:
            return
        if name in self.program.helpers or name in functions():
            remedy = f"call it, {clipped(name)}(...), or declare an input of that name: {clipped(name)}: f64"
            raise self.source.error(node, f"{clipped(name)} is a function here, not a value", remedy)
        near = suggestion(name, (*variables, *CONSTANTS))
        declare = f"declare it if it is an input: {clipped(name)}: f64" if not keyword.iskeyword(name) else ""
        raise self.source.error(node, f"unknown name {clipped(name)}", f"{near} {declare}".strip())

    def _call(self, node: ast.Call, variables: set[str]) -> None:
        func = node.func
        for k in node.keywords:
            if k.arg is None:
                raise self.source.error(k.value, "'**' before an argument is not supported", "write the arguments out")
        path = func.id if isinstance(func, ast.Name) else module_path(func, variables)
        if isinstance(func, ast.Name) and func.id in variables:
            full = functions().get(func.id)
            remedy = f"write {display(full)}(...) for the function" if full else "put * between factors: a*(b + c)"
            raise self.source.error(func, f"{clipped(func.id)} is a variable here and cannot be called", remedy)
        if path is not None:
            self._function(node, path)
        elif not isinstance(func, ast.Attribute):
            raise self.source.error(func, "only functions can be called", "put * between factors: (a + b)*(c + d)")
        elif func.attr not in METHODS:
            self._unknown_method(func)

    def _function(self, node: ast.Call, path: str) -> None:
        table = functions()
        if path in self.program.helpers:
            return
        if path not in table:
            near = suggestion(path.rpartition(".")[2], (*(n for n in table if "." not in n), *self.program.helpers))
            remedy = near or "functions are NumPy's and scipy.special's; for a product write *: a*(b + c)"
            if path == "range":
                remedy = "a range is what a loop goes over: for i in range(n); as an array it is arange(n)"
            if path in ELEMENT_TYPES:
                remedy = f"to convert an array write x.astype({path})"
            raise self.source.error(node.func, f"unknown function {clipped(path)}", remedy)
        if path in ("max", "min") and len(node.args) > 1:
            both = f"{path}imum"
            raise self.source.error(
                node,
                f"{path} of several values is ambiguous: Python's compares them, NumPy's second argument is an axis",
                f"write {both}(a, b) to compare, or {path}(a, axis=0) along an axis",
            )

    def _attribute(self, node: ast.Attribute, variables: set[str]) -> None:
        path = module_path(node, variables)
        if path is not None:
            last = path.partition(".")[2]
            if last not in MODULE_CONSTANTS and last not in ELEMENT_TYPES:
                near = suggestion(last, MODULE_CONSTANTS)
                kind = "is a function; call it" if path in functions() else f"is not known{': ' + near if near else ''}"
                raise self.source.error(node, f"{clipped(path)} {kind}")
        elif node.attr in METHODS:
            raise self.source.error(node, f"{node.attr} is a method", f"call it: .{node.attr}()")
        elif node.attr not in ATTRIBUTES:
            self._unknown_method(node)

    def _unknown_method(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_"):
            raise self.source.error(node, f"the attribute {clipped(node.attr)} is not allowed: its name starts with _")
        near = suggestion(node.attr, (*METHODS, *ATTRIBUTES))
        remedy = near or "arrays have .T, .shape, .size, .ndim and methods such as .sum(), .reshape()"
        raise self.source.error(node, f"arrays have no attribute {clipped(node.attr)} here", remedy)
