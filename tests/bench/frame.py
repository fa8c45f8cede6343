"""What a benchmark is, and how it is measured: in turns, so that all contestants meet the same state of the machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SAMPLE = 3e-4  # seconds that one sample takes at least: calls of microseconds are repeated, and few samples are interrupted
LEAST, MOST = 5, 1001  # samples


@dataclass(frozen=True)
class Calls:
    """What a contestant can do, its arguments bound. ``gradient`` gives (value, gradients); ``small`` does the same work with
    few trips, so that everything is compiled before memory is measured."""

    value: Callable[[], Any] | None
    gradient: Callable[[], Any] | None
    small: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Contestant:
    """``prepare`` imports, compiles and binds; None if the contestant is not installed."""

    name: str
    prepare: Callable[[], Calls | None]


@dataclass(frozen=True)
class Task:
    """One program: ``function(*args)``, its gradients for the arguments ``wrt``. ``reference`` gives (value, gradients) by
    other means; agreement is relative to the largest entry."""

    name: str
    about: str
    function: Callable[..., Any]
    args: Sequence[Any]
    wrt: Sequence[int]
    contestants: Sequence[Contestant]
    reference: Callable[[], Any]
    tolerance: float
    why: str  # the reason for the tolerance
    memory: bool = False


@dataclass
class Figures:
    """Of one contestant at one task; seconds and bytes."""

    task: str
    contestant: str
    value: float | None = None
    gradient: float | None = None
    spread: float | None = None  # of the gradient: the quartiles' distance over the median
    least: float | None = None  # of the gradient: the quickest sample, which a busy machine disturbs least
    cold: float | None = None  # preparation and the first gradient
    memory: int | None = None
    problem: str = ""
    notes: dict[str, Any] = field(default_factory=dict)


def run(task: Task, seconds: float) -> list[Figures]:
    """All contestants of a task, checked against the reference first; a wrong or failing one is reported and not timed."""
    figures, ready = [], {}
    expected = task.reference()
    wrong = off_differences(task, expected)
    if wrong:
        return [Figures(task.name, "reference", problem=wrong)]
    for contestant in task.contestants:
        found = Figures(task.name, contestant.name)
        start = time.perf_counter()
        try:
            calls = contestant.prepare()
            if calls is None:
                continue
            outcome = calls.gradient() if calls.gradient else (calls.value(), None)
            found.cold = time.perf_counter() - start
            found.problem = disagreement(outcome, expected, task.tolerance)
        except Exception as error:  # a benchmark goes on without a contestant that fails, and says so
            found.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        figures.append(found)
        if not found.problem:
            ready[contestant.name] = (found, calls)
    for kind in ("value", "gradient"):
        functions = {name: getattr(calls, kind) for name, (_, calls) in ready.items() if getattr(calls, kind)}
        for name, samples in in_turns(functions, seconds / 2).items():
            setattr(ready[name][0], kind, statistics.median(samples))
            if kind == "gradient":
                low, middle, high = statistics.quantiles(samples, n=4)
                ready[name][0].spread = (high - low) / middle
                ready[name][0].least = min(samples)
    return figures


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
    """Seconds per call: samples of every function, one of each in every round."""
    repeats = {name: enough(f) for name, f in functions.items()}
    samples: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    while functions:
        for name, function in functions.items():
            samples[name].append(timed(function, repeats[name]))
        count = len(next(iter(samples.values())))
        if count >= MOST or (count >= LEAST and time.perf_counter() > end):
            break
    return samples


def enough(function: Callable[[], Any]) -> int:
    """How many calls make a sample: found by trying, since first calls are slow and the very first may compile."""
    function()
    count = 1
    while count * (each := timed(function, count)) < SAMPLE:
        count = max(2 * count, min(10 * count, int(SAMPLE / each)))
    return count


def timed(function: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
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
            ends.append(float(task.function(*args)))
        slope, along = (ends[0] - ends[1]) / 2e-7, float(np.sum(gradient * direction))
        size = float(np.sum(np.abs(gradient * direction)))
        if not abs(slope - along) <= 1e-5 * size:  # both the truncation and the rounding of such a difference are below it
            return f"argument {place}: the slope is {slope}, the gradient says {along}"
    return ""
