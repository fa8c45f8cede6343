"""Doing the statements of a program. What blocks are for is decided as for Python functions, see staging_python.py."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pullback.frontends.array import Array
from pullback.frontends.builtin_calls import BUILTINS
from pullback.frontends.expression_eval import BINARY, IN_PLACE, Evaluator, Final, Scope
from pullback.frontends.expression_reader import Program, walk
from pullback.frontends.expression_statements import is_range
from pullback.frontends.fpcore_names import HIDDEN
from pullback.frontends.indexing import store
from pullback.frontends.sizes import Length
from pullback.frontends.staging import UNBOUND, State
from pullback.frontends.staging_core import Stage, Unreachable
from pullback.frontends.staging_python import FEW_TRIPS, Block, ControlHooks, Variables, is_traced
from pullback.frontends.staging_region import Region
from pullback.frontends.trace import Trace
from pullback.ir.dims import Size
from pullback.ir.types import bool_, i64


class Part:
    """A block, or a condition, and the names in it."""

    __slots__ = ("do", "names")

    def __init__(self, do: Callable[..., Any], *nodes: ast.AST):
        self.do = do
        self.names = sorted({n.id for node in nodes for n in walk(node) if isinstance(n, ast.Name)})

    def __call__(self, *args: Any) -> Any:
        return self.do(*args)


class ScopeVariables(Variables):
    """The variables of a file or a helper, which blocks read and set. Those in the blocks come first, in the order that the
    blocks of a Python function have them in: what a loop carries is then in the same order too."""

    def __init__(self, scope: Scope, parts: Sequence[Part]):
        super().__init__()
        self.scope = scope
        self.order = dict.fromkeys(name for part in parts for name in part.names)

    def read(self) -> State:
        values = self.scope.values
        return {**{name: values[name] for name in self.order if name in values}, **values}

    def write(self, state: State) -> None:
        self.scope.values = {name: value for name, value in state.items() if value is not UNBOUND}

    def get(self, name: str) -> Any:
        return self.scope.values.get(name, False)


class Control(ControlHooks):
    """Branches, loops and conditions of files. ``scopes``: of the file and of the helpers that are being called."""

    def __init__(self, trace: Trace, endless: bool):
        self.trace = trace
        self.session = SimpleNamespace(trace=trace, tries=0)
        self.endless = endless
        self.must = False  # whether the loop at hand has to be staged
        self.scopes: list[Scope] = []

    def variables(self, *blocks: Any) -> Variables:
        return ScopeVariables(self.scopes[-1], blocks)

    def reachable(self, state: State) -> list[Any]:
        return [value for scope in self.scopes[:-1] for value in scope.values.values()]

    def repeat(self, test: Callable[[], Any], body: Block, stop: str, text: str) -> None:
        """A ``while`` of more than a few trips is never written out, although its condition may be known."""
        outer, self.must = self.must, False
        try:
            super().repeat(test, body, stop, text)
        finally:
            self.must = outer

    def _foreseen(self, variables: Variables, test: Callable[[], Any], body: Block, stop: str) -> bool:
        self.must = self.endless or self._long(variables, test, body, stop)
        return self.must or super()._foreseen(variables, test, body, stop)

    def _staged_while(self, variables: Variables, test: Callable[[], Any], body: Block, stop: str, text: str) -> None:
        must = self.must
        try:
            super()._staged_while(variables, test, body, stop, text)
        except Unreachable:
            raise
        except Exception as error:
            if must:
                raise Final(error) from None
            raise

    def _long(self, variables: Variables, test: Callable[[], Any], body: Block, stop: str) -> bool:
        """Whether a loop makes more than a few trips; they are made to see, and undone."""
        state = variables.read()
        stage = Stage(self.trace, state, self.reachable(state), (), "the loop")
        found: list[bool] = []

        def trips(inner: State) -> State:
            variables.write(inner)
            for _ in range(FEW_TRIPS):
                body()
                if is_traced(variables.get(stop)) or variables.get(stop) or not test():
                    return inner
            found.append(True)
            return inner

        waiting = len(self.trace.pending)
        self._attempt(lambda: stage.run(Region(self.trace, stage.what), lambda: dict(state), trips))
        del self.trace.pending[waiting:]
        variables.write(state)
        return bool(found)


class Runner(Evaluator):
    """One trace of a program."""

    control: Control

    def __init__(self, program: Program, trace: Trace, sizes: Mapping[str, Size]):
        super().__init__(program, trace, sizes)
        self.control = Control(trace, program.endless)

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """Do the statements, which have no jumps; the value that is returned by the last."""
        self.control.scopes.append(scope)
        try:
            self.block(body[:-1], scope)
            last = body[-1]
            if not isinstance(last, ast.Return):  # a loop that nothing ends, which the staging refuses
                self.block([last], scope)
                raise self.source.error(last, "the loop never ends", "end it by its condition or by break")
            assert last.value is not None
            return self.evaluate(last.value, scope)
        finally:
            self.control.scopes.pop()

    def block(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        for stmt in body:
            if isinstance(stmt, ast.Assign):
                value = self.evaluate(stmt.value, scope)
                for target in stmt.targets:
                    self.assign(target, value, scope)
            elif isinstance(stmt, ast.AugAssign):
                self.augment(stmt, scope)
            elif isinstance(stmt, ast.If):
                self.branch(stmt, scope)
            elif isinstance(stmt, (ast.While, ast.For)):
                self.loop(stmt, scope)
            elif isinstance(stmt, ast.Assert):
                self.require(stmt, scope)
            elif isinstance(stmt, ast.FunctionDef):
                self.defined.add(stmt.name)
            else:
                assert isinstance(stmt, ast.Pass)

    # -- assignments ------------------------------------------------------------------------------------------------
    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            if isinstance(value, str) or value is None:
                raise self.source.error(target, "only numbers and arrays can be given a name")
            scope.values[target.id] = value
            self.name(target.id, value, scope)
        elif isinstance(target, ast.Subscript):
            base, index = self.evaluate(target.value, scope), self.evaluate(target.slice, scope)
            if not isinstance(base, Array):
                raise self.source.error(target, "only elements of arrays can be assigned to")
            self.guarded(target, operator.setitem, base, index, value)
        else:
            assert isinstance(target, (ast.Tuple, ast.List))
            parts = self.guarded(target, list, value) if isinstance(value, (tuple, list, Array)) else None
            if parts is None or len(parts) != len(target.elts):
                have = "one value" if parts is None else f"{len(parts)} values"
                raise self.source.error(target, f"{len(target.elts)} names for {have}")
            for part, item in zip(target.elts, parts, strict=True):
                self.assign(part, item, scope)

    def augment(self, stmt: ast.AugAssign, scope: Scope) -> None:
        function = IN_PLACE[type(stmt.op)]
        amount = self.evaluate(stmt.value, scope)
        if isinstance(stmt.target, ast.Name):
            self.trace.loc = self.source.loc(stmt.target)
            old = self.variable(stmt.target, scope)
            self.operands(stmt, (old, amount))
            self.assign(stmt.target, self.guarded(stmt, function, old, amount), scope)
            return
        assert isinstance(stmt.target, ast.Subscript)
        base, index = self.evaluate(stmt.target.value, scope), self.evaluate(stmt.target.slice, scope)
        if not isinstance(base, Array):
            raise self.source.error(stmt.target, "only elements of arrays can be assigned to")
        old = self.guarded(stmt, operator.getitem, base, index)
        self.operands(stmt, (old, amount))
        self.guarded(stmt, store, base, index, self.guarded(stmt, BINARY[type(stmt.op)], old, amount), in_place=True)

    def name(self, name: str, value: Any, scope: Scope) -> None:
        """Enter an assigned value into the table of named intermediates; constants, inputs and what exists only within a
        block have no place there."""
        if scope.outer is not None or self.trace.region is not None or name.startswith(("__", HIDDEN)):
            return
        known = not isinstance(value, Array) or value.pending_constant() is not None
        if known or value.value in self.trace.params:
            self.named.pop(name, None)
        else:
            self.named[name] = value

    # -- blocks -----------------------------------------------------------------------------------------------------
    def staged(self, node: ast.AST, scope: Scope, construct: Callable[..., None], *parts: Any, counter: str = "") -> None:
        """Do a branch or a loop; the variables that it sets are named after it, but for the one that counts its trips."""
        before = dict(scope.values)
        self.guarded(node, construct, *parts)
        for name, value in scope.values.items():
            if name != counter and value is not before.get(name):
                self.name(name, value, scope)

    def branch(self, stmt: ast.If, scope: Scope) -> None:
        condition = self.evaluate(stmt.test, scope)
        self.operands(stmt.test, (condition,))
        then = Part(lambda: self.block(stmt.body, scope), *stmt.body)
        other = Part(lambda: self.block(stmt.orelse, scope), *stmt.orelse) if stmt.orelse else None
        self.staged(stmt, scope, self.control.branch, condition, then, other, self.text(stmt.test))

    def require(self, stmt: ast.Assert, scope: Scope) -> None:
        """``assert``: an error now, or when the function runs."""
        condition = self.evaluate(stmt.test, scope)
        said = str(stmt.msg.value) if isinstance(stmt.msg, ast.Constant) else None
        try:
            self.guarded(stmt, self.control.check, condition, lambda: said, self.text(stmt.test))
        except AssertionError:
            raise self.source.error(stmt.test, f"assertion failed: {said or self.text(stmt.test)}") from None

    def loop(self, stmt: ast.While | ast.For, scope: Scope) -> None:
        stop: str = getattr(stmt, "stop", "")
        if isinstance(stmt, ast.While):
            test = stmt.test
            self.staged(
                stmt, scope, self.control.repeat,
                Part(lambda: self.condition(test, scope), test), Part(lambda: self.block(stmt.body, scope), *stmt.body),
                stop, self.text(test),
            )  # fmt: skip
            return
        target = stmt.target
        name = target.id if isinstance(target, ast.Name) else ""

        def trip(item: Any) -> None:
            self.assign(target, item, scope)
            self.block(stmt.body, scope)

        self.staged(
            stmt, scope, self.control.loop, self.items(stmt.iter, scope), Part(trip, target, *stmt.body), stop, counter=name
        )

    def condition(self, test: ast.expr, scope: Scope) -> Any:
        """Of a ``while``. Where endless loops are programs, True is a traced value like any other."""
        found = self.evaluate(test, scope)
        self.operands(test, (found,))
        if self.program.endless and not is_traced(found) and found:
            return Array(self.trace, self.trace.here().const(True, bool_))
        return found

    def items(self, node: ast.expr, scope: Scope) -> Any:
        """What a ``for`` goes over: a range, an array, a tuple or a list."""
        if is_range(node) and isinstance(node, ast.Call):
            bounds = [self.evaluate(arg, scope) for arg in node.args]
            for arg, bound in zip(node.args, bounds, strict=True):
                array = isinstance(bound, Array) and bound.ndim == 0 and bound.dtype_ is i64
                if not array and not isinstance(bound, Length) and type(bound) is not int:
                    raise self.source.error(
                        arg, "range takes integers", "declare an input as i64, or convert it: k.astype(int)"
                    )
            return self.guarded(node, BUILTINS[id(range)], self.control.session, *bounds)
        value = self.evaluate(node, scope)
        if not isinstance(value, (tuple, list)) and not (isinstance(value, Array) and value.ndim):
            raise self.source.error(node, "a loop goes over a range or an array", "write for i in range(n)")
        return value
