"""The benchmarks' own arithmetic: gradients by hand against differences of the programs and values known to many digits,
ours against both, and the frame. Nothing here is timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.bench import by_numpy, inputs, programs, report, suite
from tests.bench.frame import OURS, Calls, Contestant, Figures, Task, disagreement, failing, off_differences, run, wanted
from tests.bench.loops import tasks as loops

LOOPS = {task.name: task for task in loops() if task.name != "pendulum"}  # whose 10^6 trips take Python too long


def small_tasks() -> dict[str, Task]:
    """Every program once, on few elements."""
    found = {}
    for task in [*suite.numbers(), *suite.models(), suite.random_formula("dag-200", "", 200), *suite.formulas()[3:5]]:
        small = replace(task, make=task.smaller) if task.smaller else task
        found.setdefault(task.function.__name__ + ("-f32" if "f32" in task.name else ""), small)
    return found


SMALL = small_tasks()


@pytest.mark.parametrize("name", LOOPS)
def test_the_reference_of_a_loop_agrees_with_differences(name: str) -> None:
    task = LOOPS[name]
    reference = task.reference()
    assert off_differences(task, reference) == ""
    value = float(task.function(*task.args))
    assert disagreement((value, None), reference, task.tolerance) == ""


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_agrees_with_the_program_and_its_differences(name: str) -> None:
    task = SMALL[name]
    reference = task.reference()
    assert disagreement((task.function(*task.args), None), reference, task.tolerance) == ""
    if "f32" not in name:  # differences of single precision say nothing
        assert off_differences(task, reference) == ""


@pytest.mark.parametrize("name", SMALL)
def test_contestants_that_are_always_there_are_right(name: str) -> None:
    task = SMALL[name]
    reference = task.reference()
    for contestant in task.contestants:
        if contestant.name in (OURS, "NumPy by hand", "C by hand"):
            calls = contestant.prepare()
            assert calls is None or failing(calls, reference, task.tolerance) == "", contestant.name  # None: no C compiler


# -- ADBench's definitions, at points where the outcome is known to sixteen digits ----------------------------------------
def flat(gradients: Any) -> np.ndarray:
    return np.concatenate([np.ravel(g) for g in gradients])


@pytest.mark.parametrize(
    ("sizes", "value", "norm", "first"),
    [
        (
            (3, 2, 4),
            -4.673379090523515,
            5.117133843928423,
            [0.03222687704319349, -0.03222687704319416, -1.624499728303763, 0.7532799562107410],
        ),
        ((4, 2, 5), -9.594074880307927, 7.813163851430171, [0.3889433475155541]),  # tells columns from rows
    ],
)
def test_the_mixture_is_adbenchs(sizes: tuple[int, int, int], value: float, norm: float, first: list[float]) -> None:
    args = inputs.small_mixture(*sizes)
    found, gradients = by_numpy.mixture(*args)
    assert programs.mixture(*args) == pytest.approx(value, rel=1e-13) == found
    assert np.linalg.norm(flat(gradients)) == pytest.approx(norm, rel=1e-13)
    np.testing.assert_allclose(flat(gradients)[: len(first)], first, rtol=1e-12)


def test_the_memory_network_is_adbenchs() -> None:
    args = inputs.small_memory_network()
    found, gradients = by_numpy.memory_network(*args)
    assert programs.memory_network(*args) == pytest.approx(0.9119841339419236, rel=1e-13) == found
    assert np.linalg.norm(flat(gradients)) == pytest.approx(0.1645359368338445, rel=1e-13)
    assert flat(gradients)[-1] == pytest.approx(-0.1479135641446014, rel=1e-12)


@pytest.mark.parametrize("name", ["mixture", "memory_network"])
def test_the_same_without_item_assignment(name: str) -> None:
    args = inputs.small_mixture(4, 2, 5) if name == "mixture" else inputs.small_memory_network()
    other = {"mixture": programs.mixture_by_products, "memory_network": programs.memory_network_of_lists}[name]
    assert other(*args) == pytest.approx(getattr(programs, name)(*args), rel=1e-13)


# -- the frame ----------------------------------------------------------------------------------------------------------------
def contest(gradient: float) -> list[str]:
    """The problems of two contestants at ``3 x``, one of which says ``gradient``."""
    calls = {"right": Calls(lambda: 6.0, lambda: (6.0, (3.0,))), "other": Calls(None, lambda: (6.0, (gradient,)))}
    contestants = [Contestant(name, lambda name=name: calls[name]) for name in calls]
    contestants += [Contestant("not installed", lambda: None), Contestant("too slow", lambda: calls["right"])]
    task = Task(
        "t", "3 x", lambda x: 3 * x, lambda: (2.0,), (0,), lambda _: contestants, lambda _: (6.0, (3.0,)), 1e-12, "exact"
    )
    figures = run(task, 0.01, {"too slow": "over 60 s"})
    assert [f.contestant for f in figures] == ["right", "other", "too slow"]
    assert figures[0].value and figures[0].gradient and figures[0].least
    assert (figures[1].gradient is None) == bool(figures[1].problem)
    assert figures[2].gradient is None
    return [f.problem for f in figures]


def test_contestants_are_checked_before_they_are_timed() -> None:
    assert contest(3.0) == ["", "", "over 60 s"]
    assert contest(3.1) == ["", "the gradient 0 differs by 3.3e-02 of its largest entry", "over 60 s"]


def test_a_slow_contestant_is_measured_three_times() -> None:
    assert [wanted([2.0] * k, late=False) for k in (1, 2, 3)] == [True, True, False]
    assert [wanted([1e-3] * k, late=True) for k in (4, 5)] == [True, False]
    assert wanted([1e-3] * 5, late=False)


def test_a_table_in_markdown() -> None:
    def figure(contestant: str, gradient: float, cold: float, **more: Any) -> dict[str, Any]:
        return vars(Figures("sine", contestant, gradient / 2, gradient, cold=cold, **more))

    machine = {"processor": "a processor"}
    figures = [figure(OURS, 2e-7, 0.01), figure("JAX", 8e-6, 0.2), figure("NumPy by hand", 4e-7, 0.0)]
    figures.append(figure("C by hand", 1e-9, 0.0, problem="the value differs"))
    lines = report.markdown([{"date": "2026-01-01", "machine": machine, "figures": figures}]).splitlines()
    assert lines[0].startswith("Measured on 2026-01-01, a processor, one thread;")
    (row,) = (line for line in lines if line.startswith("| sine"))
    assert "| 100 ns | 200 ns | NumPy by hand 400 ns | 2 | 2 |  | 40 | 10 ms |" in row
