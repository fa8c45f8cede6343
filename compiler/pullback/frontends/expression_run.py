"""Doing the statements of a program: branches and loops on traced values become blocks of the IR, see staging.py."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

from pullback.frontends import expression_jumps
from pullback.frontends.array import Array
from pullback.frontends.expression_eval import BINARY, IN_PLACE, Evaluator, Scope
from pullback.frontends.expression_jumps import Loop
from pullback.frontends.expression_statements import is_range
from pullback.frontends.indexing import store
from pullback.frontends.sizes import Length
from pullback.frontends.staging import State, stage_for, stage_if, stage_while
from pullback.ir.types import bool_, i64

UNROLL = 16  # trips up to which a loop over known numbers is written out
OPTIONAL = (expression_jumps.RESULT,)


class Runner(Evaluator):
    """One trace of a program."""

    def run(self, body: Sequence[ast.stmt], scope: Scope) -> Any:
        """Do the statements, which have no jumps; the value that is returned by the last."""
        *before, last = body
        self.block(before, scope)
        assert isinstance(last, ast.Return) and last.value is not None
        return self.evaluate(last.value, scope)

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
            elif isinstance(stmt, Loop):
                self.loop(stmt, scope)
            elif isinstance(stmt, ast.Assert):
                self.require(stmt, scope)
            else:
                assert isinstance(stmt, ast.FunctionDef)
                self.defined.add(stmt.name)

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
        if scope.outer is not None or self.trace.region is not None or not name.isidentifier():
            return
        known = not isinstance(value, Array) or value.pending_constant() is not None
        if known or value.value in self.trace.params:
            self.named.pop(name, None)
        else:
            self.named[name] = value

    # -- blocks -----------------------------------------------------------------------------------------------------
    def within(self, body: Sequence[ast.stmt], scope: Scope) -> Callable[[State], State]:
        """The statements as a block of the staging: from variables to variables."""

        def block(state: State) -> State:
            inner = Scope(state, scope.outer)
            self.block(body, inner)
            return inner.values

        return block

    def roots(self, scope: Scope) -> list[Any]:
        """The values that a block can reach besides its own variables: those of the file and of callers."""
        found = [value for caller in self.callers for value in caller.values.values()]
        while scope.outer is not None:
            scope = scope.outer
            found += scope.values.values()
        return found

    def after(self, state: State, scope: Scope) -> None:
        """Go on with the variables as a branch or a loop leaves them."""
        changed = {name: value for name, value in state.items() if value is not scope.values.get(name)}
        scope.values.update(changed)
        for name, value in changed.items():
            self.name(name, value, scope)

    def branch(self, stmt: ast.If, scope: Scope) -> None:
        condition = self.evaluate(stmt.test, scope)
        known = self.known(stmt.test, condition)
        if known is not None:
            self.block(stmt.body if known else stmt.orelse, scope)
            return
        then, other = self.within(stmt.body, scope), self.within(stmt.orelse, scope)
        self.trace.loc = self.source.loc(stmt)
        roots = self.roots(scope)
        self.after(stage_if(self.trace, condition, then, other, scope.values, optional=OPTIONAL, roots=roots), scope)

    def require(self, stmt: ast.Assert, scope: Scope) -> None:
        """``assert``: an error now, or when the function runs."""
        condition = self.evaluate(stmt.test, scope)
        known = self.known(stmt.test, condition)
        said = str(stmt.msg.value) if isinstance(stmt.msg, ast.Constant) else self.text(stmt.test)
        if known is False:
            raise self.source.error(stmt.test, f"assertion failed: {said}")
        if known is None:
            value = self.truth(stmt.test, condition)
            self.trace.here().check(value, message=f"assertion failed at {self.trace.where()}: {said}")

    def text(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.source.text, node) or "the condition"

    # -- loops ------------------------------------------------------------------------------------------------------
    def loop(self, stmt: Loop, scope: Scope) -> None:
        if isinstance(stmt.kept, ast.For):
            self.counted(stmt, stmt.kept, scope)
            return
        test = stmt.kept.test

        def condition(state: State) -> Any:
            found = self.evaluate(test, Scope(state, scope.outer))
            known = self.known(test, found)
            if known and self.program.endless:
                return Array(self.trace, self.trace.here().const(True, bool_))
            return found if known is None else known

        body = self.within(stmt.body, scope)
        self.trace.loc = self.source.loc(stmt)
        roots = self.roots(scope)
        found = stage_while(self.trace, condition, body, scope.values, stop=stmt.stop, optional=OPTIONAL, roots=roots)
        self.after(found, scope)

    def counted(self, stmt: Loop, kept: ast.For, scope: Scope) -> None:
        """A ``for`` over a range or an array."""
        target = kept.target
        assert isinstance(target, ast.Name)
        if is_range(kept.iter) and isinstance(kept.iter, ast.Call):
            items = self.items_of_range(kept.iter, scope)
        else:
            items = self.items_of_array(kept.iter, scope)
        trips, item = items
        if isinstance(trips, int) and trips <= UNROLL:
            self.unrolled(stmt, target, range(trips), item, scope)
            return

        def body(state: State, trip: Array) -> State:
            inner = Scope(state, scope.outer)
            inner.values[target.id] = item(trip)
            self.block(stmt.body, inner)
            return inner.values

        self.trace.loc = self.source.loc(stmt)
        roots = self.roots(scope)
        size = trips.size if isinstance(trips, Length) else trips
        certain = isinstance(trips, int)
        found = stage_for(self.trace, size, body, scope.values, stop=stmt.stop, certain=certain, optional=OPTIONAL, roots=roots)
        self.after(found, scope)

    def unrolled(self, stmt: Loop, target: ast.Name, trips: range, item: Callable[[Any], Any], scope: Scope) -> None:
        """Trip after trip; where a trip may have ended the loop, the others are done if it has not."""
        for trip in trips:
            stopped = scope.values.get(stmt.stop, False)
            known = self.known(stmt.kept, stopped)
            if known:
                return
            if known is None:

                def rest(state: State, trip: int = trip) -> State:
                    inner = Scope({**state, stmt.stop: False}, scope.outer)
                    self.unrolled(stmt, target, trips[trips.index(trip) :], item, inner)
                    return inner.values

                self.trace.loc = self.source.loc(stmt)
                roots = self.roots(scope)
                found = stage_if(self.trace, stopped, dict, rest, scope.values, optional=OPTIONAL, roots=roots)
                self.after(found, scope)
                return
            self.assign(target, item(trip), scope)
            self.block(stmt.body, scope)

    def items_of_range(self, call: ast.Call, scope: Scope) -> tuple[Any, Callable[[Any], Any]]:
        """How many trips, and the value of each: a number, a length or a traced integer."""
        bounds = [self.evaluate(arg, scope) for arg in call.args]
        for node, bound in zip(call.args, bounds, strict=True):
            self.integer(node, bound)
        bounds = [int(b) if isinstance(b, Array) and b.known is not None else b for b in bounds]
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, int):
            raise self.source.error(call.args[2], "the step of a range is a number that is known before the function runs")
        if step == 0:
            raise self.source.error(call.args[2], "the step of a range cannot be zero")
        if isinstance(start, int) and isinstance(stop, int):
            numbers = range(start, stop, step)
            return len(numbers), lambda trip: numbers[trip] if isinstance(trip, int) else start + trip * step
        distance = _without(stop, start) if step > 0 else _without(start, stop)
        trips = distance if abs(step) == 1 else (distance + (abs(step) - 1)) // abs(step)
        return trips, lambda trip: self.guarded(call, _item, start, trip, step)

    def integer(self, node: ast.expr, value: Any) -> None:
        array = isinstance(value, Array) and value.ndim == 0 and value.dtype_ is i64
        if not array and not isinstance(value, Length) and type(value) is not int:
            raise self.source.error(node, "range takes integers", "declare an input as i64, or convert it: k.astype(int)")

    def items_of_array(self, node: ast.expr, scope: Scope) -> tuple[Any, Callable[[Any], Any]]:
        value = self.evaluate(node, scope)
        if isinstance(value, (tuple, list)):
            return len(value), lambda trip: value[trip]
        if not isinstance(value, Array) or not value.ndim:
            raise self.source.error(node, "a loop goes over a range or an array", "write for i in range(n)")
        return value.shape[0], lambda trip: self.guarded(node, operator.getitem, value, trip)


def _item(start: Any, trip: Any, step: int) -> Any:
    scaled = trip if step == 1 else trip * step
    return scaled if type(start) is int and start == 0 else start + scaled


def _without(a: Any, b: Any) -> Any:
    return a if type(b) is int and b == 0 else a - b
