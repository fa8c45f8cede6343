"""The traced function with many digits: slopes from both sides, what decides there, and where float64 loses digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.checking.decisions import Decision, Recorder, differing
from pullback.checking.differences import Sides, close, sides
from pullback.errors import UnsupportedError
from pullback.exact import sizes_for
from pullback.ir.core import Func
from pullback.ir.interp import Machine, bind
from pullback.passes.pipeline import differentiate, optimize
from pullback.precise import BUDGET, Numbers, Precise, to_float
from pullback.symbolic import lift, tree_size

if TYPE_CHECKING:
    from pullback.checking.subject import Subject

DIGITS = 50
STEP = 1e-20  # relative; the slopes keep 30 digits and more
TOTAL = 150_000  # elements computed for all entries: about a second or two
NEAR = 1e-4  # relative distance within which kinks and jumps are reported
STEEP = 1e6  # a slope that is this much larger than anything else stands for infinity
SYMPY_NODES = 2_000  # of the expression that SymPy differentiates
SYMPY_INPUTS = 16


class Exactly:
    """The seeded sum of a function's outputs near a point. UnsupportedError if it cannot be evaluated so."""

    def __init__(self, subject: Subject, leaves: Sequence[np.ndarray[Any, Any]], seeds: Sequence[Any]):
        if subject.traced is None:
            raise UnsupportedError(
                "the function cannot be traced" + (f": {subject.why_untraced}" if subject.why_untraced else "")
            )
        func, hidden = subject.traced(leaves)
        self.func: Func = optimize(func)
        self.wrt = tuple(subject.wrt)
        self.numbers = Numbers(DIGITS)
        self.seeds = [s for s in seeds if s is not None]
        self.inputs = [*leaves, *hidden]
        self.at = Recorder(lambda v: None)
        middle, machine = self._evaluate({}, self.at)
        self.middle = middle
        self.affordable = TOTAL // (4 * max(1, BUDGET - machine.budget))
        if self.affordable < 1:
            raise UnsupportedError("it computes too many elements")
        self.base = machine
        self._adjoint: list[np.ndarray[Any, Any]] | None = None
        self._adjoint_failed = False
        self._reverse_func: Func | None = None
        self._reverse_machine: Precise | None = None
        self._decisions: list[Decision] = []

    # -- evaluation -------------------------------------------------------------------------------------------------------
    def _evaluate(
        self, moved: dict[int, np.ndarray[Any, Any]], recorder: Recorder | None, numbers: Numbers | None = None
    ) -> tuple[Any, Precise]:
        """The seeded sum with some inputs replaced by object arrays."""
        machine = Precise(sizes_for(self.func, [np.shape(a) for a in self.inputs]), numbers or self.numbers)
        if recorder is not None:
            recorder.values = lambda v: machine.values[v]
            machine.watch = recorder
        lifted = [moved.get(k) if k in moved else self._lifted(machine, k) for k in range(len(self.inputs))]
        try:
            results = machine.call(self.func, lifted)
        except (IndexError, ValueError) as error:
            raise UnsupportedError(str(error)) from error
        floats = [r for r, v in zip(results, self.func.results, strict=True) if v.type.is_float]
        terms = [
            machine.sp.number(float(s)) * x
            for seed, r in zip(self.seeds, floats, strict=True)
            for s, x in zip(np.ravel(seed), r.ravel(), strict=True)
        ]
        return machine.sp.mp.fsum(terms), machine

    def _lifted(self, machine: Precise, k: int) -> np.ndarray[Any, Any]:
        param, value = self.func.params[k], np.asarray(self.inputs[k])
        return machine.lift(value.astype(np.float64)) if param.type.is_float else value.astype(param.type.dtype.numpy)

    def _line(self, leaf: int, place: tuple[int, ...], numbers: Numbers, recorders: dict[int, Recorder], step: Any) -> Any:
        """The seeded sum as a function of a change of one entry; one step to either side is recorded."""
        machine = Precise({}, numbers)
        value = machine.number_of(self.inputs[leaf][place])

        def function(offset: Any) -> Any:
            changed = self._lifted(machine, leaf).copy()
            changed[place] = value + offset
            return self._evaluate({leaf: changed}, recorders.get(int(offset / step)), numbers)[0]

        return function

    # -- judging an entry -------------------------------------------------------------------------------------------------
    def judge(self, leaf: int, place: tuple[int, ...], got: float) -> tuple[str, float, str, str] | None:
        """(verdict, expected slope, note, line); the verdict is "smooth" where both sides agree, which says nothing of ``got``.

        None where the slopes say nothing at all.
        """
        size = abs(float(self.inputs[leaf][place]))
        numbers = self._numbers_for(size)
        step = numbers.mp.mpf(STEP) * (size or 1e-3)
        below, above = Recorder(lambda v: None), Recorder(lambda v: None)
        middle = self.middle if numbers is self.numbers else self._evaluate({}, None, numbers)[0]
        found = sides(self._line(leaf, place, numbers, {1: above, -1: below}, step), step, middle)
        if not found.agree and math.isfinite(found.left) and math.isfinite(found.right):
            finer = step / 1000
            again = sides(self._line(leaf, place, numbers, {}, finer), finer, middle)
            if abs(again.right - again.left) < 0.1 * abs(found.right - found.left):
                found = replace(found, curved=True)
        self._decisions = differing(self.func, below, self.at, above)
        return self._verdict(found, float(step), got)

    def _numbers_for(self, size: float) -> Numbers:
        """Enough digits for a step that is small beside a tiny input."""
        if size == 0 or size > 1e-8:
            return self.numbers
        return Numbers(DIGITS + int(-math.log10(size)))

    def _verdict(self, found: Sides, step: float, got: float) -> tuple[str, float, str, str] | None:
        finite = [s for s in (found.left, found.right) if math.isfinite(s)]
        if not finite:
            return None
        if math.isinf(got) and max(map(abs, finite)) > STEEP:
            return "infinite slope", got, "", ""
        if len(finite) == 1:
            good = close(got, finite[0], 1e-6)
            return ("one-sided" if good else "WRONG"), finite[0], "the function ends here", ""
        text, line = self._named()
        steepest = max(abs(found.left), abs(found.right))
        size = abs(float(self.middle))
        jumps = [_is_jump(jump, steepest * step, size) for jump in (found.jump_left, found.jump_right)]
        sides_meet = not _is_jump(found.jump_left + found.jump_right, steepest * step, size)
        if all(jumps) and sides_meet and close(found.left, found.right, 1e-6):
            return "special case", found.central, f"{text} gives the point a value that its neighbours do not have", line
        if any(jumps):
            return "jump", found.central, f"the function jumps here{text and ', at '}{text}", line
        if found.agree:
            return "smooth", found.central, "", ""
        low, high = sorted((found.left, found.right))
        slack = 1e-9 * max(abs(low), abs(high))
        note = f"slopes {found.left:.6g} and {found.right:.6g}{text and ', at '}{text}"
        return ("kink" if low - slack <= got <= high + slack else "WRONG"), found.central, note, line

    def _named(self) -> tuple[str, str]:
        """The first decision that differs, equality special cases before others."""
        for decision in sorted(self._decisions, key=lambda d: not d.is_special_case):
            return decision.text, str(decision.instr.loc) if decision.instr.loc.line else ""
        return "", ""

    def special_cases(self, leaf: int, place: tuple[int, ...]) -> list[str]:
        """Equality comparisons that hold, or fail, at the point only; of the entry judged last."""
        return [d.text for d in self._decisions if d.is_special_case]

    def nearby(self, direction: Sequence[Any]) -> list[str]:
        """Decisions that change within a small distance of the point."""
        found = []
        for sign in (1, -1):
            recorder = Recorder(lambda v: None)
            moved: dict[int, np.ndarray[Any, Any]] = {}
            for k in self.wrt:
                if direction[k] is not None:
                    shift = sign * NEAR * np.asarray(direction[k])
                    moved[k] = self.base.lift(np.asarray(self.inputs[k], np.float64) + shift)
            self._evaluate(moved, recorder)
            found += differing(self.func, recorder, self.at, recorder)
        return [f"{text} decides differently within {NEAR:g} of this point" for text in dict.fromkeys(d.text for d in found)]

    # -- the formula, and its rounding ------------------------------------------------------------------------------------
    def adjoint(self, leaf: int, place: tuple[int, ...]) -> float | None:
        """The gradient by our own adjoint, without rounding: whether the formula is right."""
        if self._adjoint is None and not self._adjoint_failed:
            try:
                self._adjoint = self._run_adjoint()
            except UnsupportedError:
                self._adjoint_failed = True
        return None if self._adjoint is None else float(self._adjoint[self.wrt.index(leaf)][place])

    def _run_adjoint(self) -> list[np.ndarray[Any, Any]]:
        reverse = self._reverse()
        arguments = [*self.inputs, *self.seeds]
        machine = Precise(sizes_for(reverse, [np.shape(a) for a in arguments]), self.numbers, 10 * BUDGET)
        lifted = [
            machine.lift(np.asarray(a, np.float64)) if p.type.is_float else np.asarray(a)
            for a, p in zip(arguments, reverse.params, strict=True)
        ]
        self._reverse_machine = machine
        return [to_float(r) for r in machine.call(reverse, lifted)]

    def _reverse(self) -> Func:
        if self._reverse_func is None:
            self._reverse_func = differentiate(self.func, [self.func.params[k] for k in self.wrt], primal=False)
        return self._reverse_func

    def rounded(self, leaf: int, place: tuple[int, ...]) -> float:
        """The gradient by our adjoint in float64, operation by operation."""
        results = self._plain().read(self._reverse().results)
        return float(results[self.wrt.index(leaf)][place])

    def _plain(self) -> Machine:
        """The plain interpreter after a run of the adjoint in float64."""
        reverse, arguments = self._reverse(), [*self.inputs, *self.seeds]
        shapes = [np.shape(a) for a in arguments]
        arrays = [np.asarray(a).astype(p.type.dtype.numpy) for a, p in zip(arguments, reverse.params, strict=True)]
        plain = Machine(bind(reverse, shapes, {}), None)
        plain.values.update(zip(reverse.params, arrays, strict=True))
        with np.errstate(all="ignore"):
            plain.block(reverse.block)
        return plain

    def loss(self) -> tuple[str, str]:
        """(line, operation) where float64 loses most digits on the way to the gradient."""
        if self._adjoint is None or self._reverse_machine is None:
            return "", ""
        reverse, exact, plain = self._reverse(), self._reverse_machine.values, self._plain()
        worst, line, operation = 100.0, "", ""  # two digits are nothing to speak of
        for instr in reverse.body[:-1]:
            if not instr.outs or not getattr(instr.out.type, "is_float", False):
                continue
            before = max((_relative(plain.values[a], exact[a]) for a in instr.args if a.type.is_float), default=0.0)
            growth = _relative(plain.values[instr.out], exact[instr.out]) / max(before, 2.0**-53)
            if growth > worst:
                worst, line = growth, str(instr.loc) if instr.loc.line else ""
                terms = max(_size(plain.values[a]) for a in instr.args)
                operation = f"`{instr.op.name}` of terms of size {terms:.1e} that gives {_size(plain.values[instr.out]):.1e}"
        return line, operation

    # -- SymPy ------------------------------------------------------------------------------------------------------------
    def sympy_gradients(self) -> list[np.ndarray[Any, Any]] | None:
        """The gradients by SymPy's differentiation, evaluated at 50 digits; None where the function is too large for it."""
        if sum(np.size(self.inputs[k]) for k in self.wrt) > SYMPY_INPUTS:
            return None
        try:
            return self._sympy_gradients()
        except (
            UnsupportedError,
            TypeError,
            ValueError,
            AttributeError,
            ZeroDivisionError,
            RecursionError,
            NotImplementedError,
        ):
            return None  # SymPy's own limits; the slopes are the reference anyway

    def _sympy_gradients(self) -> list[np.ndarray[Any, Any]] | None:
        import mpmath
        import sympy as sp

        lifted = lift(self.func, [np.shape(a) for a in self.inputs], budget=500)
        floats = [e for e, v in zip(lifted.expressions, self.func.results, strict=True) if v.type.is_float]
        pairs = [
            (s, e)
            for seed, made in zip(self.seeds, floats, strict=True)
            for s, e in zip(np.ravel(seed), made.ravel(), strict=True)
        ]
        if tree_size([sp.sympify(e) for _, e in pairs]) > SYMPY_NODES:
            return None
        total = sp.Add(*[sp.Rational(float(s)) * e for s, e in pairs])
        symbols = [s for array in lifted.symbols for s in array.ravel()]
        point = [mpmath.mpf(float(x)) for a in self.inputs for x in np.ravel(a)]
        wanted = [s for k in self.wrt for s in lifted.symbols[k].ravel()]
        slopes = [sp.diff(total, s) for s in wanted]
        with mpmath.workdps(DIGITS):
            values = sp.lambdify(symbols, slopes, modules="mpmath", cse=True)(*point)
            numbers = [float(v) if not isinstance(v, mpmath.mpc) else math.nan for v in values]
        supply = iter(numbers)
        return [
            np.array([next(supply) for _ in range(np.size(self.inputs[k]))]).reshape(np.shape(self.inputs[k])) for k in self.wrt
        ]


def _is_jump(jump: float, expected: float, size: float) -> bool:
    """A difference over one step that the slope does not explain; nor that the value at an edge is a rounded one."""
    return abs(jump) > 1e6 * abs(expected) + 1e-13 * size


def _size(array: Any) -> float:
    return float(np.max(np.abs(np.asarray(array, np.float64)), initial=0.0))


def _relative(plain: Any, exact: Any) -> float:
    """The largest relative error of an array, against its exact values."""
    right = to_float(np.asarray(exact)) if np.asarray(exact).dtype != object else np.asarray(exact)
    errors = []
    for a, b in zip(np.ravel(plain), np.ravel(right), strict=True):
        if a == a and abs(float(b)) > 0:
            errors.append(abs(float((b - float(a)) / b)))
    return max(errors, default=0.0)
