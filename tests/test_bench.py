"""The benchmarks' own arithmetic: adjoints written by hand in C against differences of the programs, and the frame."""

from __future__ import annotations

import pytest

from tests.bench.frame import Calls, Contestant, Task, disagreement, off_differences, run
from tests.bench.loops import tasks

TASKS = {task.name: task for task in tasks() if task.name != "pendulum"}  # whose 10^6 trips take Python too long


@pytest.mark.parametrize("name", TASKS)
def test_the_reference_agrees_with_differences(name: str) -> None:
    task = TASKS[name]
    reference = task.reference()
    assert off_differences(task, reference) == ""
    value = float(task.function(*task.args))
    assert disagreement((value, None), reference, task.tolerance) == ""


def contest(gradient: float) -> list[str]:
    """The problems of two contestants at ``3 x``, one of which says ``gradient``."""
    calls = {"right": Calls(lambda: 6.0, lambda: (6.0, (3.0,))), "other": Calls(None, lambda: (6.0, (gradient,)))}
    contestants = [Contestant(name, lambda name=name: calls[name]) for name in calls]
    contestants.append(Contestant("not installed", lambda: None))
    task = Task("t", "3 x", lambda x: 3 * x, (2.0,), (0,), contestants, lambda: (6.0, (3.0,)), 1e-12, "exact")
    figures = run(task, 0.01)
    assert [f.contestant for f in figures] == ["right", "other"]
    assert figures[0].value and figures[0].gradient and figures[0].cold
    assert (figures[1].gradient is None) == bool(figures[1].problem)
    return [f.problem for f in figures]


def test_contestants_are_checked_before_they_are_timed() -> None:
    assert contest(3.0) == ["", ""]
    assert contest(3.1) == ["", "the gradient 0 differs by 3.3e-02 of its largest entry"]
