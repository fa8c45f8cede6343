"""Verification of derivatives, ours and other people's: ``check(f, *args)`` and ``check((f, gradient), *args)``.

Gradients are compared with slopes of the function itself: with many digits where the function can be traced and evaluated so
(a step of 1e-20 then costs no accuracy, and one-sided slopes tell kinks and jumps from mistakes), with central differences of
controlled step in float64 otherwise. Beside that: reverse against forward mode, the order of the Taylor remainder, SymPy's own
derivative of small functions, and second derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.checking import differences
from pullback.checking.exactly import Exactly
from pullback.checking.report import InputReport, Report, TestReport
from pullback.checking.subject import Arrays, Subject, subject_of
from pullback.errors import UnsupportedError

ENTRIES = 16  # of each input that are compared one by one
SEED = 20240131  # of the directions and output seeds, so that a check can be repeated
RELATIVE = {"f64": 1e-8, "f32": 2e-3}  # of an entry; float64 differences and well-conditioned code are far better
OF_LARGEST = {"f64": 1e-12, "f32": 1e-5}  # of the largest entry: rounding in sums
DIGITS_GONE = 1e-3  # a relative error beyond which a gradient that lost digits is of no use


def check(function: Any, *args: Any, **kwargs: Any) -> Report:
    """Verify the derivatives of ``function`` at ``args``: a compiled function, one to be compiled, or a pair
    ``(function, gradient)`` where the gradient was written elsewhere.
    """
    return _Check(subject_of(function, args, kwargs)).report()


class _Check:
    def __init__(self, subject: Subject):
        self.subject = subject
        self.random = np.random.default_rng(SEED)
        self.leaves = subject.leaves
        self.outputs = subject.values(self.leaves)
        self.seeds = [_weights(self.random, np.shape(o)) if _is_float(o) else None for o in self.outputs]
        if len(self.outputs) == 1 and np.ndim(self.outputs[0]) == 0:
            self.seeds = [np.ones(()) if _is_float(self.outputs[0]) else None]  # the gradient that people know
        self.gradients = subject.gradients(self.leaves, self.seeds)
        self.double = [a.astype(np.float64) if _is_float(a) else a for a in self.leaves]
        self.exactly, self.why_not = self._exactly()
        self.flags: list[str] = []

    def _exactly(self) -> tuple[Exactly | None, str]:
        try:
            return Exactly(self.subject, self.double, self.seeds), ""
        except UnsupportedError as error:
            return None, str(error)

    # -- the function along a line ----------------------------------------------------------------------------------------
    def phi(self, leaves: Arrays) -> float:
        """The seeded sum of the outputs, in float64."""
        found = self.subject.values(leaves, original=True)
        return float(
            sum(np.sum(s * np.asarray(v, np.float64)) for s, v in zip(self.seeds, found, strict=True) if s is not None)
        )

    def along(self, direction: Arrays) -> Callable[[float], float]:
        def function(step: float) -> float:
            with np.errstate(all="ignore"):
                return self.phi([a if d is None else a + step * d for a, d in zip(self.double, direction, strict=True)])

        return function

    def unit(self, leaf: int, place: tuple[int, ...]) -> list[Any]:
        direction: list[Any] = [None] * len(self.leaves)
        direction[leaf] = np.zeros(np.shape(self.leaves[leaf]))
        direction[leaf][place] = 1.0
        return direction

    def anywhere(self) -> list[Any]:
        """A random direction of all inputs, each in its own scale."""
        return [
            _weights(self.random, np.shape(a)) * _scale(a) if k in self.subject.wrt else None for k, a in enumerate(self.double)
        ]

    def noise(self) -> float:
        """What rounding makes of the seeded sum."""
        terms = (
            np.sum(np.abs(s * np.asarray(v, np.float64)))
            for s, v in zip(self.seeds, self.outputs, strict=True)
            if s is not None
        )
        return float(sum(terms)) * 2.0**-52

    # -- the report -------------------------------------------------------------------------------------------------------
    def report(self) -> Report:
        inputs = [self.input(k, g) for k, g in zip(self.subject.wrt, self.gradients, strict=True)]
        smooth = all(i.verdict in ("ok", "no effect", "not tested") for i in inputs)
        made = [self.follows(), self.dot_product(inputs), self.sympy()]
        if smooth:  # what a kink, a jump or lost digits do to the others says nothing more
            made += [self.taylor(), self.second()]
        tests = [t for t in made if t is not None]
        self.flags += self.nearby()
        self.flags += self.subject.notes
        reference = "slopes at 50 digits" if self.exactly else "central differences in float64"
        if self.why_not:
            self.flags.append(f"not evaluated at 50 digits: {self.why_not}")
        names = self.subject.outputs or [f"out[{k}]" for k in range(len(self.seeds))]
        seeds = {name: seed for name, seed in zip(names, self.seeds, strict=True) if seed is not None}
        flags = tuple(dict.fromkeys(self.flags))
        return Report(self.subject.name, reference, tuple(inputs), tuple(tests), flags, seeds)

    def input(self, leaf: int, gradient: np.ndarray[Any, Any]) -> InputReport:
        """Compare the gradient of one input with slopes, entry by entry."""
        name, value = self.subject.names[leaf], self.leaves[leaf]
        line = self.subject.line_of(leaf)
        if np.shape(gradient) != np.shape(value):
            note = f"the gradient has shape {np.shape(gradient)}, the input {np.shape(value)}"
            return InputReport(name, "WRONG", math.inf, 0.0, note=note, line=line)
        if value.size == 0:
            return InputReport(name, "not tested", note="it has no elements")
        if not all(np.all(np.isfinite(o)) for o, s in zip(self.outputs, self.seeds, strict=True) if s is not None):
            return InputReport(name, "not finite", note="the value is NaN or infinite at this point", line=line)
        largest = float(np.max(np.abs(gradient), initial=0.0, where=np.isfinite(gradient)))
        found = [self.entry(leaf, place, float(gradient[place]), largest) for place in self._places(gradient)]
        worst = max(found, key=lambda r: (not r.ok, r.verdict != "ok", r.error / r.tolerance if r.tolerance else r.error))
        if worst.verdict == "ok" and all(r.got == 0 and r.expected == 0 for r in found) and self._has_no_effect(leaf):
            return InputReport(name, "no effect", note="not tested: changing it does not change the output")
        return InputReport(
            name,
            worst.verdict,
            worst.error,
            worst.tolerance,
            worst.worst,
            worst.got,
            worst.expected,
            worst.line or line,
            worst.note,
        )

    def _places(self, gradient: np.ndarray[Any, Any]) -> list[tuple[int, ...]]:
        """All entries of a small input; of a large one the largest gradients and some at random."""
        shape, count = np.shape(gradient), np.size(gradient)
        affordable = max(2, min(ENTRIES, self.exactly.affordable if self.exactly else ENTRIES))
        if count <= affordable:
            flat: Sequence[int] = range(count)
        else:
            order = np.argsort(-np.abs(np.where(np.isfinite(gradient), gradient, np.inf)).ravel(), kind="stable")
            flat = sorted(
                {*map(int, order[: affordable // 2]), *map(int, self.random.choice(count, affordable // 2, replace=False))}
            )
        return [tuple(int(k) for k in np.unravel_index(i, shape)) for i in flat]

    def entry(self, leaf: int, place: tuple[int, ...], got: float, largest: float) -> InputReport:
        name, kind = self.subject.names[leaf], "f32" if self.leaves[leaf].dtype == np.float32 else "f64"
        if self.exactly is not None:
            judged = self.exactly.judge(leaf, place, got)
            if judged is not None:
                verdict, expected, note, line = judged
                tolerance = RELATIVE[kind] * abs(expected) + OF_LARGEST[kind] * largest
                error = 0.0 if got == expected else abs(got - expected)
                if verdict == "smooth":
                    verdict, note, line = self._smooth(leaf, place, got, expected, error, tolerance)
                return InputReport(name, verdict, error, tolerance, place, got, expected, line, note)
        return self._by_differences(leaf, place, got, largest, kind)

    def _smooth(
        self, leaf: int, place: tuple[int, ...], got: float, expected: float, error: float, tolerance: float
    ) -> tuple[str, str, str]:
        """The verdict where the slope exists: right, wrong, or right on paper and lost in float64."""
        assert self.exactly is not None
        if error <= tolerance:
            return "ok", "", ""
        formula = self.exactly.adjoint(leaf, place)
        if formula is None or not differences.close(formula, expected, 1e-9):
            special = self.exactly.special_cases(leaf, place)
            if special:
                return (
                    "special case",
                    f"{special[0]} holds only at this point, and its branch has another slope than the neighbours",
                    "",
                )
            return "WRONG", "", ""
        if abs(self.exactly.rounded(leaf, place) - expected) <= max(tolerance, 0.01 * error):
            return "WRONG", "", ""  # float64 can do it
        lost = error / max(abs(expected), 1e-300)
        where, worst = self.exactly.loss()
        digits = f"the formula is right; float64 keeps {max(0, int(-math.log10(min(lost, 1.0))))} digits of it"
        note = digits + (f", most are lost in {worst}" if worst else "")
        return ("lost digits" if lost <= DIGITS_GONE else "digits gone"), note, where

    def _by_differences(self, leaf: int, place: tuple[int, ...], got: float, largest: float, kind: str) -> InputReport:
        name = self.subject.names[leaf]
        function = self.along(self.unit(leaf, place))
        scale = float(_scale(self.double[leaf])[place])
        expected, uncertain = differences.slope(function, 0.02 * scale)
        noise = self.noise() / scale
        tolerance = 1e-7 * abs(expected) + 1e-9 * largest + 10 * uncertain + 100 * noise
        if kind == "f32":
            tolerance += RELATIVE[kind] * max(abs(expected), abs(got)) + OF_LARGEST[kind] * largest
        error = abs(got - expected)
        if error <= tolerance:
            return InputReport(name, "ok", error, tolerance, place, got, expected)
        step = 1e-6 * scale
        middle, above, below = function(0.0), function(step), function(-step)
        right, left = (function(2 * step) - above) / step, (below - function(-2 * step)) / step
        if abs(right - left) > 1e-3 * max(abs(left), abs(right)) + 100 * self.noise() / step:
            low, high = sorted((left, right))
            slack = 1e-4 * max(abs(left), abs(right)) + 100 * self.noise() / step
            verdict = "kink" if low - slack <= got <= high + slack else "WRONG"
            return InputReport(
                name, verdict, error, tolerance, place, got, (left + right) / 2, note=f"slopes {left:.6g} and {right:.6g}"
            )
        if abs(middle - (above + below) / 2) > 100 * self.noise() + abs(right - left) * step + 1e-9 * abs(middle):
            return InputReport(
                name, "special case", error, tolerance, place, got, expected, note="the value here is not its neighbours'"
            )
        if not math.isfinite(expected):
            return InputReport(
                name, "not tested", error, tolerance, place, got, expected, note="the differences are not finite"
            )
        return InputReport(name, "WRONG", error, tolerance, place, got, expected)

    def _has_no_effect(self, leaf: int) -> bool:
        direction: list[Any] = [None] * len(self.leaves)
        direction[leaf] = _weights(self.random, np.shape(self.leaves[leaf])) * _scale(self.double[leaf])
        function = self.along(direction)
        return all(function(step) == function(0.0) for step in (0.3, -0.7))

    # -- tests of the whole -------------------------------------------------------------------------------------------------
    def follows(self) -> TestReport | None:
        """The compiled function against the function as it was written, at the point and beside it."""
        if not self.subject.has_original:
            return None
        direction = self.anywhere()
        error = scale = 0.0
        for step in (0.0, 1e-3, -1e-2):
            leaves = [a if d is None else a + step * d for a, d in zip(self.double, direction, strict=True)]
            with np.errstate(all="ignore"):
                pairs = zip(self.subject.values(leaves), self.subject.values(leaves, original=True), strict=True)
            for ours, theirs in pairs:
                a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
                if a.shape != b.shape:
                    return TestReport(
                        "value", "FAIL", math.inf, 0.0, f"shape {a.shape}, the function as written gives {b.shape}"
                    )
                if a.size:
                    error = max(error, float(np.max(np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b)))))
                    scale = max(scale, float(np.max(np.abs(b), initial=0.0, where=np.isfinite(b))))
        tolerance = 1e-9 * scale + 1e-300
        return TestReport("value as written", "ok" if error <= tolerance else "FAIL", error, tolerance)

    def nearby(self) -> list[str]:
        """Kinks and jumps that are close to the point."""
        return [] if self.exactly is None else self.exactly.nearby(self.anywhere())

    def dot_product(self, inputs: Sequence[InputReport]) -> TestReport | None:
        """<seed, J v> from forward mode against <J' seed, v> from reverse mode, with seeds of its own."""
        if self.subject.tangents is None or not self.subject.wrt:
            return None
        direction: list[Any] = [
            None if d is None else d.astype(a.dtype) for d, a in zip(self.anywhere(), self.leaves, strict=True)
        ]
        moved = self.subject.tangents(self.leaves, direction)
        seeds = [None if s is None else _weights(self.random, np.shape(s)) for s in self.seeds]
        gradients = self.subject.gradients(self.leaves, seeds)
        forward = [s * np.asarray(t, np.float64) for s, t in zip(seeds, moved, strict=True) if s is not None]
        reverse = [np.asarray(g, np.float64) * direction[k] for k, g in zip(self.subject.wrt, gradients, strict=True)]
        error = abs(sum(float(np.sum(f)) for f in forward) - sum(float(np.sum(r)) for r in reverse))
        scale = sum(float(np.sum(np.abs(x))) for x in (*forward, *reverse))
        single = any(a.dtype == np.float32 for a in self.leaves)
        tolerance = (1e-4 if single else 1e-10) * scale + 1e-300
        if not math.isfinite(error):
            return TestReport("forward = reverse", "not tested", note="a derivative is not finite here")
        if error > tolerance and any("digits" in i.verdict for i in inputs):
            return TestReport("forward = reverse", "not tested", error, tolerance, "rounding dominates both")
        return TestReport("forward = reverse", "ok" if error <= tolerance else "FAIL", error, tolerance)

    def taylor(self) -> TestReport | None:
        """The remainder after the linear term must shrink with the square of the step."""
        if not self.subject.wrt:
            return None
        direction: list[Any] = [None if d is None else 1e-2 * d for d in self.anywhere()]
        derivative = sum(
            float(np.sum(np.asarray(g, np.float64) * direction[k]))
            for k, g in zip(self.subject.wrt, self.gradients, strict=True)
        )
        single = any(a.dtype == np.float32 for a in self.leaves)
        noise = self.noise() + abs(derivative) * (1e-5 if single else 1e-9)
        order = differences.remainder_order(self.along(direction), derivative, 1.0, noise)
        if math.isinf(order):
            return TestReport("Taylor remainder", "ok", note="linear, up to rounding")
        if not order > 1.5:  # NaN too: never clear of rounding
            return TestReport(
                "Taylor remainder", "not tested", note=f"observed order {order:.2f}: a kink is near, or the step too coarse"
            )
        return TestReport("Taylor remainder", "ok", note=f"observed order {order:.2f}")

    def sympy(self) -> TestReport | None:
        """SymPy's own derivative, of small functions."""
        if self.exactly is None:
            return None
        made = self.exactly.sympy_gradients()
        if made is None or any(np.shape(g) != np.shape(m) for g, m in zip(self.gradients, made, strict=True)):
            return None
        error = worst = 0.0
        for gradient, expected in zip(self.gradients, made, strict=True):
            g = np.asarray(gradient, np.float64)
            usable = np.isfinite(expected) & np.isfinite(g)
            gap = np.abs(np.where(usable, g - expected, 0.0))
            limit = 1e-7 * np.abs(np.where(usable, expected, 0.0)) + 1e-10 * float(
                np.max(np.abs(expected), initial=0.0, where=usable)
            )
            if gap.size and np.max(gap - limit) > worst:
                worst, error = float(np.max(gap - limit)), float(np.max(gap))
        if worst > 0:  # the slopes decide: SymPy differentiates a branch by its formula too, and knows no lost digits
            return TestReport("SymPy's derivative", "not tested", error, note="differs; see the verdict of the input")
        return TestReport("SymPy's derivative", "ok")

    def second(self) -> TestReport | None:
        """Second derivatives: symmetric, and the slope of the gradient."""
        if self.subject.hessian_product is None or not self.subject.wrt or any(a.dtype == np.float32 for a in self.leaves):
            return None
        u, v = self.anywhere(), self.anywhere()
        try:
            hu = self.subject.hessian_product(self.leaves, self.seeds, u)
            hv = self.subject.hessian_product(self.leaves, self.seeds, v)
        except UnsupportedError as why:
            return TestReport("second derivatives", "not tested", note=str(why))
        wrt = self.subject.wrt
        left = [np.asarray(h) * v[k] for k, h in zip(wrt, hu, strict=True)]
        right = [np.asarray(h) * u[k] for k, h in zip(wrt, hv, strict=True)]
        uv, vu = (sum(float(np.sum(part)) for part in parts) for parts in (left, right))
        scale = sum(float(np.sum(np.abs(part))) for part in (*left, *right))
        if not math.isfinite(scale):
            return TestReport("second derivatives", "not tested", note="they are not finite here")

        def gradient_along_u(step: float) -> float:
            leaves = [a if d is None else a + step * d for a, d in zip(self.leaves, v, strict=True)]
            found = self.subject.gradients(leaves, self.seeds)
            return sum(float(np.sum(np.asarray(g) * u[k])) for k, g in zip(wrt, found, strict=True))

        expected, uncertain = differences.slope(gradient_along_u, 1e-2)
        slack = (
            1e-14 * sum(float(np.sum(np.abs(np.asarray(g) * u[k]))) for k, g in zip(wrt, self.gradients, strict=True)) / 1e-4
        )
        asymmetry, error = abs(uv - vu), abs(uv - expected)
        if asymmetry > 1e-8 * scale + 1e-300:
            return TestReport("second derivatives", "FAIL", asymmetry, 1e-8 * scale, "not symmetric")
        tolerance = 1e-7 * scale + 10 * uncertain + slack
        if not math.isfinite(expected) or uncertain > 1e-2 * max(scale, abs(expected)):
            return TestReport("second derivatives", "ok", asymmetry, 1e-8 * scale, "symmetric; differences too uncertain")
        return TestReport("second derivatives", "ok" if error <= tolerance else "FAIL", error, tolerance)


def _weights(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Unequal numbers of both signs, none small."""
    return np.asarray(random.uniform(0.5, 1.5, shape) * random.choice([-1.0, 1.0], shape))


def _scale(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The size of each entry; of a zero the mean size of the others, or 1."""
    sizes = np.abs(np.asarray(array, np.float64))
    mean = float(np.mean(sizes)) if sizes.size else 1.0
    return np.where(sizes > 0, sizes, mean if mean > 0 and math.isfinite(mean) else 1.0)


def _is_float(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"
