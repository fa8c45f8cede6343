"""How time grows: a gradient against the value for more and more numbers, compiling for more and more operations."""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from typing import Any

from rich.console import Console

from tests.bench import contestants, fresh, inputs, report, suite
from tests.bench.frame import OURS, Task, in_turns

RACERS = (OURS, "JAX", "CasADi", "CasADi, C", "heyoka", "SymEngine")


def main(options: argparse.Namespace) -> None:
    console = Console()
    sizes = [10**k for k in range(1, 6 if options.quick else 8)]
    operations = [10**k for k in range(2, 5 if options.quick else 7)]
    document = {
        "ratios": ratios(sizes, 0.3 if options.quick else 2.0, console),
        "compile": compiling(operations, [OURS] if options.quick else RACERS, options.limit, console),
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.picture:
        from tests.bench import pictures

        pictures.growth(document, options.picture)


def ratios(sizes: list[int], seconds: float, console: Console) -> dict[str, list[tuple[int, float, float]]]:
    """For each program (n, value, value and gradient)."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    every = {task.name: task for task in suite.tasks()}
    for name, make in (("rosenbrock-10", inputs.rosenbrock), ("elementwise", inputs.elementwise)):
        label = name.split("-")[0]
        found[label] = []
        for n in sizes:
            calls = contestants.ours(replace(every[name], make=lambda make=make, n=n: make(n)))
            assert calls.value and calls.gradient
            samples = in_turns({"value": calls.value, "gradient": calls.gradient}, seconds)
            value, gradient = (statistics.median(samples[kind]) for kind in ("value", "gradient"))
            found[label].append((n, value, gradient))
            told = f"{report.duration(value)}, with the gradient {report.duration(gradient)}, {gradient / value:.2f} times"
            console.print(f"{label}, n = {n}: {told}")
    return found


def compiling(operations: list[int], racers: Any, limit: float, console: Console) -> dict[str, list[tuple[int, float]]]:
    """For each contestant (operations, seconds); it stops where it takes too long. Each compilation is in a process of its
    own, after a small one."""
    found: dict[str, list[tuple[int, float]]] = {}
    there = {c.name for c in formula(100).contestants}
    for racer in racers:
        if racer not in there:
            continue
        found[racer] = []
        for count in operations:
            most = 10 * limit if racer == OURS else limit
            told = fresh.started("warm", f"dag-{count}", racer, most, {"PULLBACK_CACHE": "0"})
            if told.problem or told.first is None:
                console.print(f"{racer}, {count} operations: {told.problem}")
                break
            found[racer].append((count, told.first))
            each = 1e6 * told.first / count
            console.print(f"{racer}, {count} operations: {report.duration(told.first)}, {each:.1f} us for each")
    return found


def formula(operations: int) -> Task:
    return suite.random_formula(f"dag-{operations}", f"a random formula of {operations} operations", operations)
