"""The command: measures, prints a table of ratios, writes JSON."""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import loops, memory
from tests.bench.frame import Figures, Task, run

OURS = "pullback"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look at everything in less than two minutes")
    parser.add_argument("--only", nargs="+", default=[], metavar="TASK", help="these tasks")
    parser.add_argument("--list", action="store_true", help="the tasks and their contestants")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)  # a process of its own for memory
    options = parser.parse_args()
    tasks = {task.name: task for task in loops.tasks()}
    if options.child:
        memory.child(tasks[options.child[0]], options.child[1])
        return
    console = Console()
    unknown = set(options.only) - set(tasks)
    if unknown:
        parser.error(f"no task {min(unknown)!r}; there are {', '.join(tasks)}")
    chosen = [task for name, task in tasks.items() if not options.only or name in options.only]
    if options.list:
        for task in chosen:
            console.print(f"[bold]{task.name}[/]: {task.about} ({', '.join(c.name for c in task.contestants)})")
        return
    seconds = 2.0 if options.quick else 20.0
    figures = [figure for task in chosen for figure in measured(task, seconds, console)]
    if options.json:
        options.json.write_text(json.dumps(report(figures), indent=2) + "\n", encoding="utf-8")


def measured(task: Task, seconds: float, console: Console) -> list[Figures]:
    with console.status(task.name):
        figures = run(task, seconds)
        if task.memory:
            for figure in figures:
                if not figure.problem and figure.gradient is not None:
                    figure.memory = memory.of(task.name, figure.contestant)
    console.print(table(task, figures))
    return figures


def table(task: Task, figures: list[Figures]) -> Table:
    """Times, and how many times ours each takes."""
    shown = Table(title=f"{task.name}: {task.about}", title_justify="left")
    shown.add_column("")
    for column in (
        "value",
        "ratio",
        "value + gradient",
        "ratio",
        "quartiles",
        "least",
        "ratio",
        "first call",
        *(("memory",) if task.memory else ()),
    ):
        shown.add_column(column, justify="right")
    base = next((f for f in figures if f.contestant == OURS), None)
    for figure in figures:
        if figure.problem:
            shown.add_row(figure.contestant, f"[red]{figure.problem}[/]")
            continue
        cells = [
            duration(figure.value),
            ratio(figure.value, base and base.value),
            duration(figure.gradient),
            ratio(figure.gradient, base and base.gradient),
            "" if figure.spread is None else f"{100 * figure.spread:.0f} %",
            duration(figure.least),
            ratio(figure.least, base and base.least),
            duration(figure.cold),
        ]
        if task.memory:
            cells.append("" if figure.memory is None else f"{figure.memory / 1e3:.0f} kB")
        shown.add_row(figure.contestant, *cells)
    return shown


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ratio(seconds: float | None, base: float | None) -> str:
    return f"{seconds / base:.2f}" if seconds is not None and base else ""


def report(figures: list[Figures]) -> dict[str, object]:
    machine = {"processor": processor(), "system": platform.platform(), "python": platform.python_version()}
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine, "figures": [asdict(f) for f in figures]}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


main()
