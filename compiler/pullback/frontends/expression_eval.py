"""Evaluating a program over traced arrays: the same operators and functions as the NumPy frontend's, so the same IR.

A tree is evaluated by iteration with a stack of values, so that no expression that was accepted can exhaust Python's stack.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import ExpressionError, PullbackError
from pullback.frontends.array import Array
from pullback.frontends.expression_names import CONSTANTS, ELEMENT_TYPES, MODULE_CONSTANTS, functions
from pullback.frontends.expression_reader import Program, module_path
from pullback.frontends.expression_source import clipped, suggestion
from pullback.frontends.expression_statements import without_doc
from pullback.frontends.library import call
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length, of_size
from pullback.frontends.staging import Lack
from pullback.frontends.staging_jumps import VALUE, Jumps, is_flag
from pullback.frontends.staging_python import ControlHooks, is_traced
from pullback.frontends.trace import Trace
from pullback.ir.dims import Size

MAX_STEPS = 50_000  # nodes evaluated, those of helpers at every call; each makes an instruction or so
MAX_CALLS = 40  # helpers that call each other; Python's own stack is used for these
COUNTING = frozenset(  # functions that take lengths
    (
        "arange", "linspace", "logspace", "geomspace", "zeros", "ones", "empty", "full", "eye", "identity", "tri", "indices",
        "tile", "repeat", "broadcast_to", "pad",
    )
)  # fmt: skip
REPEATING = frozenset(("tile", "repeat", "broadcast_to", "pad"))  # done while compiling where the array is a constant
MAX_LENGTH = 10_000_000  # of what a literal count makes: arange(10**12) would fill the memory while compiling
_NUMBERS = (bool, int, float, np.generic)

BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
IN_PLACE: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd, ast.Sub: operator.isub, ast.Mult: operator.imul, ast.Div: operator.itruediv,
    ast.FloorDiv: operator.ifloordiv, ast.Mod: operator.imod, ast.Pow: operator.ipow, ast.MatMult: operator.imatmul,
    ast.BitAnd: operator.iand, ast.BitOr: operator.ior,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip


class Final(BaseException):
    """An error that ends the trace. No Exception, so that the staging tries nothing else instead (which, in nested loops,
    would take for ever)."""

    def __init__(self, reason: Exception):
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class Scope:
    """Variables by name; a helper sees those of the file behind its own."""

    values: dict[str, Any] = field(default_factory=dict)
    outer: Scope | None = None

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def __contains__(self, name: str) -> bool:
        return name in self.values or (self.outer is not None and name in self.outer)


class Evaluator:
    """One trace of a program's expressions; statements are done by its subclass. ``sizes``: what the size names are in it."""

    control: ControlHooks

    def __init__(self, program: Program, trace: Trace, sizes: Mapping[str, Size]):
        self.program = program
        self.source = program.source
        self.trace = trace
        self.sizes = sizes
        self.steps = 0
        self.active: list[str] = []  # helpers being evaluated
        self.defined: set[str] = set()
        try:
            self.body = Jumps().function(list(program.body))
            self.bodies = {name: Jumps().function(without_doc(helper)) for name, helper in program.helpers.items()}
        except RecursionError:
            raise ExpressionError(f"{self.source.name}: too many branches with a return, break or continue") from None
        self.named: dict[str, Array] = {}

    # -- expressions --------------------------------------------------------------------------------------------------
    def evaluate(self, root: ast.expr, scope: Scope) -> Any:
        """The value of an expression: a traced array, a number, a length, or a tuple, list or dict of them."""
        values: list[Any] = []
        pending: list[tuple[ast.expr, int]] = [(root, -1)]  # a node, and how many of the last values are its operands
        while pending:
            node, count = pending.pop()
            if count < 0 and isinstance(node, ast.IfExp):
                pending += [(node, 1), (node.test, -1)]
            elif isinstance(node, ast.BoolOp):
                values.append(self.logic(node, scope))
            elif isinstance(node, ast.Compare) and len(node.ops) > 1:
                values.append(self.chain(node, scope))
            elif count < 0:
                operands = self.operands_of(node, scope)
                pending.append((node, len(operands)))
                pending.extend((part, -1) for part in reversed(operands))
            elif isinstance(node, ast.IfExp):
                condition = values.pop()
                self.operands(node.test, (condition,))
                if is_traced(condition):
                    ways = [functools.partial(self.evaluate, way, scope) for way in (node.body, node.orelse)]
                    values.append(self.guarded(node, self.control.choose, condition, *ways, self.text(node.test)))
                else:
                    pending.append((node.body if self.guarded(node, bool, condition) else node.orelse, -1))
            else:
                self.step(node)
                parts = values[len(values) - count :]
                del values[len(values) - count :]
                values.append(self.visit(node, parts, scope))
        return values[0]

    def step(self, node: ast.expr) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Final(
                self.source.error(node, f"the file takes more than {MAX_STEPS:,} steps to evaluate", "use whole arrays instead")
            )
        self.trace.loc = self.source.loc(node)

    def operands_of(self, node: ast.expr, scope: Scope) -> list[ast.expr]:
        """The parts that are evaluated before the node, in Python's order."""
        match node:
            case ast.UnaryOp(operand=operand):
                return [operand]
            case ast.BinOp(left=left, right=right):
                return [left, right]
            case ast.Compare(left=left, comparators=comparators):
                return [left, *comparators]
            case ast.Call(func=func, args=args, keywords=keywords):
                method = [func.value] if isinstance(func, ast.Attribute) and module_path(func, scope) is None else []
                return [*method, *args, *(k.value for k in keywords)]
            case ast.Attribute(value=value):
                return [value] if module_path(node, scope) is None else []
            case ast.Subscript(value=value, slice=index):
                return [value, index]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return [part for part in (lower, upper, step) if part is not None]
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return elts
            case ast.Dict(values=values):
                return values
        return []

    def visit(self, node: ast.expr, parts: list[Any], scope: Scope) -> Any:
        """The value of a node whose parts are known."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name():
                return self.variable(node, scope)
            case ast.UnaryOp(op=op):
                self.operands(node, parts)
                if isinstance(op, ast.Not):
                    return self.guarded(node, self.control.negated, parts[0], self.text(node))
                return self.guarded(node, _UNARY[type(op)], *parts)
            case ast.BinOp(op=op):
                self.operands(node, parts)
                return self.binary(node, op, *parts)
            case ast.Compare(ops=[op]):
                self.operands(node, parts)
                return self.guarded(node, _COMPARE[type(op)], *parts)
            case ast.Call():
                return self.call(node, parts, scope)
            case ast.Attribute(attr=attr):
                return self.attribute(node, attr, parts, scope)
            case ast.Subscript():
                return self.subscript(node, *parts)
            case ast.Slice(lower=lower, upper=upper, step=step):
                supply = iter(parts)
                return slice(*(None if part is None else next(supply) for part in (lower, upper, step)))
            case ast.Tuple():
                return tuple(parts)
            case ast.List():
                return parts
            case ast.Dict(keys=keys):
                return {key.value: part for key, part in zip(keys, parts, strict=True)}  # type: ignore[union-attr]  # the reader checked the keys
        raise self.source.error(node, f"{type(node).__name__} is not supported in an expression file")

    def variable(self, node: ast.Name, scope: Scope) -> Any:
        name = node.id
        found = scope.find(name)
        if isinstance(found, Lack):
            raise self.source.error(node, found.message.replace(repr(VALUE), "what is returned"), found.remedy)
        if found is not None:
            return found
        if name in self.sizes:
            return of_size(self.trace, self.trace.canonical(self.sizes[name]))
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name in ELEMENT_TYPES:
            return ELEMENT_TYPES[name]
        raise self.source.error(node, f"{clipped(name)} is used before it has a value", "move the line that assigns it up")

    def operands(self, node: ast.AST, parts: Sequence[Any]) -> None:
        """Only numbers and arrays are computed with; NumPy takes a list where the other operand is an array."""
        arrays = any(isinstance(p, Array) for p in parts)
        for part in parts:
            if not isinstance(part, (Array, Length, *_NUMBERS)) and not (arrays and isinstance(part, (list, tuple))):
                kind = type(part).__name__
                raise self.source.error(node, f"a {kind} is not a number or an array", "make arrays of lists: array([1, 2])")

    def binary(self, node: ast.expr, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Pow) and type(left) is int and type(right) is int and left.bit_length() * max(right, 0) > 2048:
            raise self.source.error(node, "the number is too large for a float")
        if type(left) is bool and type(right) is bool and isinstance(op, (ast.BitAnd, ast.BitOr)):
            return BINARY[type(op)](left, right)
        result = self.guarded(node, BINARY[type(op)], left, right)
        if type(result) is int and result.bit_length() > 1023:
            raise self.source.error(node, "the number is too large for a float")
        if isinstance(result, complex):
            raise self.source.error(node, "the result is complex; only real numbers are supported")
        return result

    def attribute(self, node: ast.Attribute, attr: str, parts: list[Any], scope: Scope) -> Any:
        path = module_path(node, scope)
        if path is not None:
            last = path.partition(".")[2]
            return MODULE_CONSTANTS[last] if last in MODULE_CONSTANTS else ELEMENT_TYPES[last]
        return self.guarded(node, getattr, self.array(node, parts[0]), attr)

    def array(self, node: ast.expr, value: Any) -> Array:
        if not isinstance(value, (Array, Length, *_NUMBERS)):
            raise self.source.error(
                node, f"a {type(value).__name__} has no attributes here", "make arrays of lists: array([1, 2])"
            )
        return wrap(value)

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        if not isinstance(value, (Array, tuple, list, np.generic)):
            raise self.source.error(node, f"a {type(value).__name__} has no elements")
        if isinstance(value, (tuple, list)) and isinstance(index, Array) and index.known is not None:
            index = int(index)
        return self.guarded(node, operator.getitem, value, index)

    # -- conditions -------------------------------------------------------------------------------------------------
    def logic(self, node: ast.BoolOp, scope: Scope) -> Any:
        """``and`` and ``or``: what is right of an operand that decides is not computed."""
        self.step(node)
        names = [part.id for part in node.values if isinstance(part, ast.Name) and is_flag(part.id)]
        if len(names) == len(node.values):
            return self.control.any_flag(*(scope.find(name) for name in names))
        first, *rest = [functools.partial(self.operand, node, part, scope) for part in node.values]
        return self.guarded(node, self.control.logic, isinstance(node.op, ast.And), self.text(node), first(), *rest)

    def operand(self, node: ast.expr, part: ast.expr, scope: Scope) -> Any:
        found = self.evaluate(part, scope)
        self.operands(node, (found,))
        return found

    def chain(self, node: ast.Compare, scope: Scope) -> Any:
        """``a < b < c``: what is right of a comparison that fails is not computed."""

        def operand(part: ast.expr) -> Any:
            found = self.operand(node, part, scope)
            if isinstance(found, Array) and found.ndim:
                raise self.source.error(
                    node, "a chain of comparisons of arrays has no meaning in NumPy", "write (a < x) & (x < b)"
                )
            return found

        parts: list[Any] = [operand(node.left)]
        for op, right in zip(node.ops, node.comparators, strict=True):
            parts += [type(op).__name__, functools.partial(operand, right)]
        self.step(node)
        return self.guarded(node, self.control.chained, self.text(node), *parts)

    def text(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.source.text, node) or "the condition"

    # -- calls --------------------------------------------------------------------------------------------------------
    def call(self, node: ast.Call, parts: list[Any], scope: Scope) -> Any:
        func = node.func
        path = func.id if isinstance(func, ast.Name) else module_path(func, scope)
        first = 0 if path is not None else 1
        args = parts[first : first + len(node.args)]
        kwargs = {str(k.arg): value for k, value in zip(node.keywords, parts[first + len(node.args) :], strict=True)}
        if path in self.program.helpers:
            assert path is not None
            return self.helper(node, self.program.helpers[path], args, kwargs, scope)
        if path is None:
            assert isinstance(func, ast.Attribute)
            self.lengths(node, args)
            return self.guarded(node, getattr(self.array(func, parts[0]), func.attr), *args, **kwargs)
        self.lengths(node, [*args, *kwargs.values()])
        return self.guarded(node, call, functions()[path], args, kwargs)

    def lengths(self, node: ast.Call, args: list[Any]) -> None:
        """Refuse counts with which compiling alone would fill the memory."""
        func = node.func
        name = func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""
        if name not in COUNTING:
            return
        for arg in args:
            numbers = [n for n in (arg if isinstance(arg, (tuple, list)) else (arg,)) if type(n) is int]
            total = math.prod(numbers) if name in REPEATING else max(numbers, default=0)
            if abs(total) > MAX_LENGTH:
                raise self.source.error(
                    node, f"{total} elements are too many; at most {MAX_LENGTH:,} can be written as a number"
                )

    def helper(self, node: ast.Call, helper: ast.FunctionDef, args: list[Any], kwargs: Mapping[Any, Any], scope: Scope) -> Any:
        """A call of a function of the file: its body, here and now."""
        name = helper.name
        if name not in self.defined:
            raise self.source.error(node, f"{clipped(name)} is called before its definition", "move the def up")
        if name in self.active:
            raise self.source.error(node, f"{clipped(name)} calls itself; recursion is not supported", "write it out")
        if len(self.active) >= MAX_CALLS:
            raise self.source.error(node, f"functions call each other more than {MAX_CALLS} deep")
        bound = self.bind(node, helper, args, kwargs)
        outermost = scope
        while outermost.outer is not None:
            outermost = outermost.outer
        self.active.append(name)
        try:
            return self.run(self.bodies[name], Scope(bound, outermost))
        finally:
            self.active.pop()

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """Do the statements of the file or a helper; the value that is returned."""
        raise AssertionError("done by the subclass")

    def bind(self, node: ast.Call, helper: ast.FunctionDef, args: list[Any], kwargs: Mapping[Any, Any]) -> dict[str, Any]:
        names = [a.arg for a in helper.args.args]
        signature = f"{helper.name}({', '.join(names)})"
        if len(args) > len(names):
            raise self.source.error(node, f"{signature} takes {len(names)} argument{'s' * (len(names) != 1)}, got {len(args)}")
        bound = dict(zip(names, args, strict=False))
        for key, value in kwargs.items():
            if key not in names:
                raise self.source.error(node, f"{signature} has no argument {clipped(key)}", suggestion(key, names))
            if key in bound:
                raise self.source.error(node, f"{signature} got {key} twice")
            bound[key] = value
        defaults = helper.args.defaults
        for name, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            bound.setdefault(name, ast.literal_eval(default))
        missing = [n for n in names if n not in bound]
        if missing:
            raise self.source.error(node, f"{signature} needs {', '.join(missing)} too")
        return bound

    def guarded(self, node: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do something for a node; what the library or Python refuse is reported at its place."""
        self.trace.loc = self.source.loc(node)
        try:
            return function(*args, **kwargs)
        except PullbackError:
            raise
        except OverflowError:
            raise self.source.error(node, "the number is too large for a float") from None
        except (RecursionError, MemoryError):
            raise Final(
                self.source.error(node, "this is nested too deeply, or too large", "name parts of it: q = ...")
            ) from None
        except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
            raise self.source.error(node, str(error) or type(error).__name__) from None
