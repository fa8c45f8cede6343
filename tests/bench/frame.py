"""What a benchmark is, and how it is measured: in turns, so that all contestants meet the same state of the machine."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

OURS = "pullback"
PARALLEL = "pullback, parallel"
SAMPLE = 3e-4  # seconds that one sample takes at least: calls of microseconds are repeated, and few samples are interrupted
LEAST, MOST = 5, 1001  # samples
WARM = 0.1  # seconds of calls that are not measured
SLOW = 1.0  # a call that takes longer is measured three times


@dataclass(frozen=True)
class Calls:
    """What a contestant can do, its arguments bound. ``gradient`` gives (value, gradients); ``small`` does the same work with
    few trips, so that everything is compiled before memory is measured."""

    value: Callable[[], Any] | None
    gradient: Callable[[], Any] | None
    small: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Contestant:
    """``prepare`` imports, compiles and binds; None if the contestant is not installed. ``load`` only imports. One that
    ``compiles`` takes part in the race from the source to the first gradient; one that is ``slow``, or not ``quick``, is
    left out of a quick look."""

    name: str
    prepare: Callable[[], Calls | None]
    load: Callable[[], Any] = lambda: None
    compiles: bool = False
    slow: bool = False
    quick: bool = True


@dataclass(frozen=True)
class Task:
    """One program: ``function(*args)``, its gradients for the arguments ``wrt``, where the output is an array those of its
    product with ``seed``. ``expected`` gives (value, gradients) by other means; agreement is relative to the largest entry.
    ``smaller`` makes arguments of the same kind but of few elements. Everything else is told the task itself, so that
    ``dataclasses.replace`` makes a task of another size."""

    name: str
    about: str
    function: Callable[..., Any]
    make: Callable[[], Sequence[Any]]
    wrt: Sequence[int]
    entrants: Callable[[Task], Sequence[Contestant]]
    expected: Callable[[Task], Any]
    tolerance: float
    why: str  # the reason for the tolerance
    memory: bool = False
    seed: Any = None
    smaller: Callable[[], Sequence[Any]] | None = None
    quick: bool = True  # it is part of a quick look
    differences: bool = True  # the plain program is quick and precise enough to judge the reference

    @functools.cached_property
    def args(self) -> Sequence[Any]:
        return self.make()

    @functools.cached_property
    def contestants(self) -> Sequence[Contestant]:
        return self.entrants(self)

    def reference(self) -> Any:
        return self.expected(self)


@dataclass
class Figures:
    """Of one contestant at one task; seconds and bytes."""

    task: str
    contestant: str
    value: float | None = None
    gradient: float | None = None
    spread: float | None = None  # of the gradient: the quartiles' distance over the median
    least: float | None = None  # of the gradient: the quickest sample, which a busy machine disturbs least
    cold: float | None = None  # from the source to the first gradient in a fresh process; imports are not counted
    cached: float | None = None  # the same in a second process, which finds machine code on disk
    memory: int | None = None
    problem: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


def run(task: Task, seconds: float, out: Mapping[str, str] | None = None) -> list[Figures]:
    """All contestants of a task, checked against the reference first; a wrong or failing one is reported and not timed, nor is
    one that is ``out`` for a known reason."""
    figures, ready = [], {}
    expected = task.reference()
    wrong = off_differences(task, expected) if task.differences else ""
    if wrong:
        return [Figures(task.name, "reference", problem=wrong)]
    for contestant in task.contestants:
        found = Figures(task.name, contestant.name)
        if out and contestant.name in out:
            figures.append(Figures(task.name, contestant.name, problem=out[contestant.name]))
            continue
        try:
            calls = contestant.prepare()
            if calls is None:
                continue
            found.problem = failing(calls, expected, task.tolerance)
        except Exception as error:  # a benchmark goes on without a contestant that fails, and says so
            found.problem = explained(error)
        figures.append(found)
        if not found.problem:
            assert calls is not None
            ready[contestant.name] = (found, calls)
    for kind in ("value", "gradient"):
        functions = {name: getattr(calls, kind) for name, (_, calls) in ready.items() if getattr(calls, kind)}
        for name, samples in in_turns(functions, seconds / 2).items():
            setattr(ready[name][0], kind, statistics.median(samples))
            if kind == "gradient":
                low, middle, high = statistics.quantiles(samples, n=4) if len(samples) > 1 else samples * 3
                ready[name][0].spread = (high - low) / middle
                ready[name][0].least = min(samples)
    return figures


def explained(error: Exception) -> str:
    return (str(error) and f"{type(error).__name__}: {error}".splitlines()[0][:150]) or type(error).__name__


def failing(calls: Calls, expected: Any, tolerance: float) -> str:
    """Empty, or what is wrong with the outcome of a first call."""
    assert calls.gradient or calls.value
    outcome = calls.gradient() if calls.gradient else (calls.value(), None)  # type: ignore[misc]  # one of the two is there
    return disagreement(outcome, expected, tolerance)


def disagreement(got: Any, expected: Any, tolerance: float) -> str:
    """Empty, or what differs. ``got`` may lack the gradients (a contestant that has only the value)."""
    value, gradients = got
    pairs = [("value", value, expected[0])]
    if gradients is not None:
        pairs += [(f"gradient {k}", g, e) for k, (g, e) in enumerate(zip(gradients, expected[1], strict=True))]
    for what, one, other in pairs:
        one, other = np.asarray(one, float), np.asarray(other, float)
        if one.shape != other.shape:
            return f"the {what} has shape {one.shape}, not {other.shape}"
        error = np.max(np.abs(one - other), initial=0) / max(1e-300, np.max(np.abs(other), initial=0))
        if not error <= tolerance:
            return f"the {what} differs by {error:.1e} of its largest entry"
    return ""


def in_turns(functions: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Seconds per call: samples of every function, one of each in every round. One that has had its share of the time sits out
    the rounds that are left, so that a slow one leaves time to the quick ones."""
    samples: dict[str, list[float]] = {name: [] for name in functions}
    repeats = {name: enough(f, samples[name], min(WARM, seconds / 10)) for name, f in functions.items()}
    spent = dict.fromkeys(functions, 0.0)
    share = seconds / max(1, len(functions))
    end = time.perf_counter() + seconds
    while True:
        late = time.perf_counter() > end
        playing = [name for name in functions if wanted(samples[name], late or spent[name] > share)]
        if not playing:
            return samples
        for name in playing:
            start = time.perf_counter()
            samples[name].append(timed(functions[name], repeats[name]))
            spent[name] += time.perf_counter() - start


def wanted(samples: list[float], late: bool) -> bool:
    """Whether there should be one sample more."""
    if samples and samples[0] > SLOW:
        return len(samples) < 3
    return len(samples) < (LEAST if late else MOST)


def enough(function: Callable[[], Any], samples: list[float], warm: float) -> int:
    """How many calls make a sample: found by trying, since first calls are slow and the very first may compile. The time of a
    very long call is a sample already."""
    first = timed(function, 1)
    if first > SLOW:
        samples.append(first)
        return 1
    end = time.perf_counter() + warm
    for _ in range(MOST):  # some libraries spend more time on what is called more often
        function()
        if time.perf_counter() > end:
            break
    count = 1
    while count * (each := timed(function, count)) < SAMPLE:
        count = max(2 * count, min(10 * count, int(SAMPLE / each)))
    return count


def timed(function: Callable[[], Any], repeats: int) -> float:
    rounds = range(repeats)
    start = time.perf_counter()
    for _ in rounds:
        function()
    return (time.perf_counter() - start) / repeats


def off_differences(task: Task, expected: Any) -> str:
    """Empty, or how the reference's gradients disagree with central differences of the plain program, along one direction for
    each argument: the judge of adjoints written by hand."""
    rng = np.random.default_rng(3)
    for place, gradient in zip(task.wrt, expected[1], strict=True):
        arg = np.asarray(task.args[place], float)
        direction = rng.normal(size=arg.shape) * np.maximum(np.abs(arg), 0.1)
        ends = []
        for step in (1e-7, -1e-7):
            moved = arg + step * direction
            args = list(task.args)
            args[place] = moved if moved.ndim else float(moved)
            end = task.function(*args)
            ends.append(float(end if task.seed is None else np.sum(end * task.seed)))
        slope, along = (ends[0] - ends[1]) / 2e-7, float(np.sum(gradient * direction))
        size = float(np.sum(np.abs(gradient * direction)))
        rounding = 1e-16 * abs(ends[0]) / 2e-7  # of the two values, in their difference
        if not abs(slope - along) <= 1e-5 * size + 100 * rounding:  # truncation is below that
            return f"argument {place}: the slope is {slope}, the gradient says {along}"
    return ""
