"""The hooks of control flow in rewritten Python code: run a block as Python does, or stage it if that depends on traced values.

Blocks come as functions that share the variables around them (see staging_syntax.py). Their cells are the state that the
staging works on; the variables of the callers count as reachable too.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pullback.errors import PullbackError, TraceError
from pullback.frontends.array import UNROLL_LIMIT, Array
from pullback.frontends.library import call
from pullback.frontends.rewrite import HOOKS, is_ours
from pullback.frontends.staging import UNBOUND, Stage, State, Unreachable, stage_for, stage_if, stage_while, use
from pullback.frontends.staging_iter import Source, long
from pullback.frontends.staging_jumps import VALUE
from pullback.frontends.staging_lists import Stacked
from pullback.frontends.staging_region import Region
from pullback.frontends.staging_syntax import BLOCKS
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Dim
from pullback.ir.types import Type, bool_

FEW_TRIPS = 16  # up to which a loop is written out
MANY_TRIPS = 1000  # above which writing it out takes a warning
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq, "NotEq": operator.ne,
    "Is": operator.is_, "IsNot": operator.is_not, "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip
Block = Callable[..., None]


def is_traced(x: Any) -> bool:
    """Whether a value decides something only when the function runs."""
    return isinstance(x, Array) and (x.known is None or x.known.size != 1)


class Variables:
    """The variables that blocks share, by their cells."""

    def __init__(self, *blocks: Any):
        self.cells: dict[str, types.CellType] = {}
        for block in blocks:
            for name, cell in zip(block.__code__.co_freevars, block.__closure__ or (), strict=True):
                if name != HOOKS:
                    self.cells[name] = cell

    def read(self) -> State:
        state: State = {}
        for name, cell in self.cells.items():
            try:
                state[name] = cell.cell_contents
            except ValueError:
                state[name] = UNBOUND
        return state

    def write(self, state: State) -> None:
        for name, cell in self.cells.items():
            if state[name] is not UNBOUND:
                cell.cell_contents = state[name]
            else:
                with contextlib.suppress(ValueError):
                    del cell.cell_contents

    def block(self, function: Callable[[], Any]) -> Callable[[State], State]:
        def run(state: State) -> State:
            self.write(state)
            function()
            return self.read()

        return run

    def get(self, name: str) -> Any:
        """A flag, which every loop sets before it starts."""
        return self.cells[name].cell_contents if name else False

    @contextlib.contextmanager
    def kept(self, state: State) -> Iterator[None]:
        """What was bound before is bound again if tracing the blocks fails."""
        try:
            yield
        except BaseException:
            self.write(state)
            raise


def reachable(state: State) -> list[Any]:
    """The values of all variables of rewritten functions that are being called, except those of the state."""
    found: list[Any] = []
    missing = dict(state)
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_ours(code) and not code.co_name.startswith(BLOCKS):
            local = frame.f_locals
            for name in (*code.co_varnames, *code.co_cellvars):
                value = local.get(name, UNBOUND)
                if name in missing and missing[name] is value:
                    del missing[name]  # the innermost function that has the variable is the one that the block belongs to
                elif value is not UNBOUND:
                    found.append(value)
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return found


class ControlHooks:
    """What rewritten code calls for branches, loops and conditions."""

    trace: Trace
    session: Any
    unbound = UNBOUND

    # -- variables --------------------------------------------------------------------------------------------------
    def variables(self, *blocks: Any) -> Variables:
        """The variables that blocks share; expression files have others."""
        return Variables(*blocks)

    def reachable(self, state: State) -> list[Any]:
        """What the blocks can reach besides."""
        return reachable(state)

    def use(self, value: Any) -> Any:
        return use(self.trace, value)

    @staticmethod
    def any_flag(*flags: Any) -> Any:
        """``a or b`` of flags, which are booleans."""
        result: Any = False
        for flag in flags:
            if flag is True:
                return True
            if flag is not False:
                result = flag if result is False else call("numpy.logical_or", (result, flag))
        return result

    def returned(self, value: Any, done: Any) -> Any:
        """What a function with early returns returns."""
        if done is False:
            return None
        if done is not True:
            raise self.trace.error(
                TraceError,
                "the function returns a value on some ways only, depending on a traced condition",
                "add a return, or raise an error, at its end",
            )
        return use(self.trace, value)

    def effects(self, names: str) -> None:
        """At the start of a function that sets variables of another: staging could not undo that."""
        if self.trace.region is not None:
            raise self.trace.error(
                TraceError,
                f"a function with `nonlocal {names}` is called in {self.trace.region.what}, which is traced several times",
                "pass the value as an argument and return the new one",
            )

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Within ``try``."""
        self.session.tries += 1
        try:
            yield
        finally:
            self.session.tries -= 1

    def raised(self, error: Any) -> Any:
        """The exception to raise; in a block that may not be done, a check that fails if it is."""
        if self.trace.region is None or self.session.tries:
            return error
        name = error.__name__ if isinstance(error, type) else type(error).__name__
        said = "" if isinstance(error, type) else str(error)
        return self._fails(f"{name}: {said}" if said else name)

    def _fails(self, message: str) -> Unreachable:
        b = self.trace.here()
        b.check(b.const(False, bool_), message=f"{message}, at {self.trace.where()}")
        return Unreachable()

    def _stageable(self, what: str) -> None:
        if self.session.tries:
            raise self.trace.error(
                TraceError,
                f"{what} that depends on a traced value stands within try",
                "the try cannot catch what happens when the function runs; move it out of the function, or the code out of it",
            )

    # -- branches ---------------------------------------------------------------------------------------------------
    def branch(self, test: Any, then: Block, other: Block | None, text: str) -> None:
        if not is_traced(test):
            if test:
                then()
            elif other is not None:
                other()
            return
        self._stageable(f"the condition {text!r}")
        variables = self.variables(then) if other is None else self.variables(then, other)
        self._arms(variables, test, then, other, f"the if {text!r}")

    def _arms(self, variables: Variables, test: Any, then: Block, other: Block | None, text: str) -> None:
        state = variables.read()
        skip = (lambda same: same) if other is None else variables.block(other)
        with variables.kept(state):
            after = stage_if(
                self.trace, test, variables.block(then), skip, state, optional=(VALUE,), roots=self.reachable(state), text=text
            )
        variables.write(after)

    def choose(self, test: Any, then: Callable[[], Any], other: Callable[[], Any], text: str) -> Any:
        """``a if test else b``."""
        if not is_traced(test):
            return then() if test else other()
        self._stageable(f"the condition {text!r}")
        return self._value(test, then, other, f"the conditional expression {text!r}")

    def _value(self, test: Any, then: Callable[[], Any], other: Callable[[], Any], text: str) -> Any:
        """Of one of two expressions."""
        name = "the value"
        after = stage_if(
            self.trace,
            test,
            lambda state: {name: then()},
            lambda state: {name: other()},
            {name: UNBOUND},
            roots=self.reachable({}),
            text=text,
        )
        return use(self.trace, after[name])

    # -- conditions -------------------------------------------------------------------------------------------------
    def logic(self, both: bool, text: str, first: Any, *rest: Callable[[], Any]) -> Any:
        """``a and b``, ``a or b``: the operands after the first are evaluated if it takes them to decide."""
        if is_traced(first):
            self._stageable(f"{text!r}")
            return self._together(both, first, lambda: self._rest(both, text, rest), text)
        return self._rest(both, text, rest) if bool(first) is both else first

    def _rest(self, both: bool, text: str, thunks: Sequence[Callable[[], Any]]) -> Any:
        return self.logic(both, text, thunks[0](), *thunks[1:]) if len(thunks) > 1 else thunks[0]()

    def _together(self, both: bool, known: Array, rest: Callable[[], Any], text: str) -> Any:
        """Two operands, the second of which is to be evaluated only if the first does not decide."""
        second = self._cheap(rest, text) if known.dtype_ is bool_ and not known.ndim else None
        if second is not None:
            b = self.trace.here()
            return Array(self.trace, (b.logical_and if both else b.logical_or)(known.value, second))
        if both:
            return self._value(known, rest, lambda: known, repr(text))
        return self._value(known, lambda: known, rest, repr(text))

    def _cheap(self, condition: Callable[[], Any], text: str) -> Value | None:
        """A condition that is a few instructions that cannot fail, which may as well be evaluated always; None if it is not."""
        stage = Stage(self.trace, {}, self.reachable({}), (), repr(text))
        if stage.world.strange is not None:
            return None
        found: list[Any] = []

        def evaluate(state: State) -> State:
            found.append(condition())
            return state

        region = Region(self.trace, stage.what)
        outcome = stage.run(region, dict, evaluate)
        self.trace.pending.remove(region)
        body = region.builder.body
        second = found[0]._value if found and isinstance(found[0], Array) else None
        harmless = not outcome.dead and not outcome.nodes and all(not i.op.effect and not i.blocks for i in body)
        if second is None or second.type != Type(bool_) or not harmless or len(body) > 12:
            return None
        self.trace.builder.body += body
        return second

    def negated(self, value: Any, text: str) -> Any:
        if not is_traced(value):
            return not value
        if value.type.size != 1:
            bool(value)  # NumPy's error
        flat = value if not value.ndim else call("numpy.reshape", (value, ()))
        return call("numpy.logical_not", (flat,))

    def chained(self, text: str, left: Any, *parts: Any) -> Any:
        """``a < b < c``: the operators and the operands after the first, in turn."""
        right = parts[1]()
        answer = _COMPARE[parts[0]](left, right)
        if len(parts) == 2:
            return answer
        return self.logic(True, text, answer, lambda: self.chained(text, right, *parts[2:]))

    def truth(self, value: Any, text: str, what: str, why: str) -> bool:
        return bool(self.decides(value, text, what, why))

    def decides(self, value: Any, text: str, what: str, why: str) -> Any:
        """The value, which decides what is done next and, where blocks stay Python's, must be known while tracing."""
        if is_traced(value):
            role = "condition" if what in ("if", "while") else "operand"
            reason = f"; {why}" if why else ", and it assigns a name by :="
            raise self.trace.error(
                TraceError,
                f"the {role} of {what!r} is a traced value: {text}{reason}",
                "use np.where, or a function without it",
            )
        return value

    def check(self, value: Any, message: Callable[[], Any], text: str) -> None:
        """``assert`` of a traced condition is checked when the compiled function runs."""
        if isinstance(value, Array) and value.known is None:
            if value.ndim or value.dtype_ is not bool_:
                raise self.trace.error(
                    TraceError, f"assert of a traced value that is no boolean scalar: {text}", "use np.all(...)"
                )
            said = message()
            value.context.here().check(value.value, message=f"assertion failed: {text if said is None else said}")
            return
        if not value:
            said = message()
            if self.trace.region is not None and not self.session.tries:
                raise self._fails(f"assertion failed: {text if said is None else said}")
            raise AssertionError(*(() if said is None else (said,)))

    # -- loops ------------------------------------------------------------------------------------------------------
    def repeat(self, test: Callable[[], Any], body: Block, stop: str, text: str) -> None:
        """``while``: trips are made one by one until the condition is traced, or there are many; the rest is staged."""
        variables = self.variables(test, body)
        trips = 0
        while variables.get(stop) is not True:
            traced = is_traced(variables.get(stop)) or is_traced(go := test())
            if not traced and not go:
                return None
            long = trips == FEW_TRIPS and not self.session.tries
            if traced or long or (trips == 0 and self._foreseen(variables, test, body, stop)):
                self._stageable(f"the loop 'while {text}'")
                if traced:
                    return self._staged_while(variables, test, body, stop, text)
                if self._attempt(lambda: self._staged_while(variables, test, body, stop, text)) is None:
                    return None
            body()
            trips += 1
            self._warn(trips)
            if trips > UNROLL_LIMIT and text == "True":
                message = f"the loop 'while True' at {self.trace.where()} never ends"
                raise self.trace.error(TraceError, message, "end it by its condition or by break")
        return None

    def _staged_while(self, variables: Variables, test: Callable[[], Any], body: Block, stop: str, text: str) -> None:
        def condition(state: State) -> Any:
            variables.write(state)
            return test()

        state = variables.read()
        with variables.kept(state):
            after = stage_while(
                self.trace, condition, variables.block(body), state,
                stop=stop, optional=(VALUE,), roots=self.reachable(state), text=f"the loop 'while {text}'",
            )  # fmt: skip
        variables.write(after)

    def _foreseen(self, variables: Variables, test: Callable[[], Any], body: Block, stop: str) -> bool:
        """Whether the condition is known now but will be traced after a trip; a trip is traced to see, and undone."""
        state = variables.read()
        stage = Stage(self.trace, state, self.reachable(state), (), "the loop")
        if stage.world.strange is not None:
            return False
        found: list[bool] = []

        def trip(inner: State) -> State:
            variables.write(inner)
            body()
            found.append(is_traced(variables.get(stop)) or (variables.get(stop) is not True and is_traced(test())))
            return inner

        waiting = len(self.trace.pending)
        self._attempt(lambda: stage.run(Region(self.trace, stage.what), lambda: dict(state), trip))
        del self.trace.pending[waiting:]
        variables.write(state)
        return bool(found) and found[0]

    def _attempt(self, run: Callable[[], Any]) -> Exception | None:
        """Do something that may turn out to be impossible; the error if it is, as if nothing had been tried."""
        trace = self.trace
        refusal, guards, waiting, tries = trace.refusal, dict(trace.guards), len(trace.pending), self.session.tries
        try:
            run()
        except Unreachable:
            raise
        except Exception as error:
            trace.refusal, trace.guards, self.session.tries = refusal, guards, tries
            del trace.pending[waiting:]
            return error
        return None

    def _warn(self, trips: int) -> None:
        if trips == MANY_TRIPS + 1:
            loc = self.trace.where()
            text = f"the loop is written out, one copy of its body for each of its more than {MANY_TRIPS} trips"
            warnings.warn_explicit(text, UserWarning, loc.file, loc.line)

    def loop(self, items: Iterable[Any], body: Block, stop: str) -> None:
        """``for``: over few items one by one, else staged; written out if that is impossible and the number of trips fixed."""
        source = long(self.trace, items, FEW_TRIPS)
        variables = self.variables(body)
        if source is None or (isinstance(source.trips, int) and self.session.tries):
            return self._written_out(variables, items, body, stop)
        self._stageable("a loop whose number of trips is not fixed")
        error = self._attempt(lambda: self._counted(variables, source, body, stop, 0))
        if error is None:
            return None
        if self._certain(source):  # the first trip by itself may give the variables the shapes that they have from then on
            body(source.at(0))
            if variables.get(stop) is True:
                return None
            error = self._attempt(lambda: self._counted(variables, source, body, stop, 1))
            if error is None:
                return None
            items = itertools.islice(items, 1, None) if isinstance(source.trips, int) else items
        if isinstance(source.trips, int):
            return self._written_out(variables, items, body, stop)
        if isinstance(error, PullbackError):
            raise error
        raise self.trace.error(
            TraceError,
            "the loop cannot be written out, since its number of trips is not fixed, nor compiled: "
            f"{type(error).__name__}: {error}",
            "use arrays instead of lists, or operations on whole arrays",
        ) from error

    def _certain(self, source: Source) -> bool:
        """Whether the loop makes a trip at all."""
        trips = source.trips
        if isinstance(trips, (int, Array)):
            return isinstance(trips, int)
        return not self.trace.is_open(trips) and self.trace.decide(1, "<=", trips)

    def _counted(self, variables: Variables, source: Source, body: Block, stop: str, first: int) -> None:
        """The trips from ``first`` on as a loop of the compiled function."""
        state = variables.read()
        trips = source.trips if first == 0 else source.trips - first

        def trip(inner: State, k: Array) -> State:
            variables.write(inner)
            body(source.at(k + first if first else k))
            return variables.read()

        with variables.kept(state):
            after = stage_for(
                self.trace, trips, trip, state, stop=stop, certain=lambda: first == 0 and self._certain(source),
                optional=(VALUE,), roots=self.reachable(state), text="the loop",
            )  # fmt: skip
        variables.write(after)

    def collected(self, items: Iterable[Any], make: Callable[[Any], list[Any]], kind: str) -> Any:
        """A comprehension; over an axis that is a symbol it is staged, as one array of its items."""
        source = long(self.trace, items, 0)
        if source is None or not isinstance(source.trips, Dim):
            made = (make(item)[0] for item in items)
            return list(made) if kind == "ListComp" else made
        self._stageable("a list of as many items as an axis is long, which")
        from pullback.frontends.staging_scan import stacked  # which needs this module

        return Stacked(stacked(self.trace, source.trips, lambda k: make(source.at(k))[0]))

    def _written_out(self, variables: Variables, items: Iterable[Any], body: Block, stop: str) -> None:
        for trips, item in enumerate(items, 1):
            self._warn(trips)
            left = variables.get(stop)
            if left is True:
                return
            if is_traced(left):
                go_on = call("numpy.logical_not", (left,))
                self._arms(variables, go_on, functools.partial(body, item), None, "the loop")
            else:
                body(item)
