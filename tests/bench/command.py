"""Measures, prints a table of ratios, writes JSON, Markdown and pictures."""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import contestants, fresh, report, suite
from tests.bench.frame import OURS, Figures, Task, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a look at everything in less than two minutes")
    parser.add_argument("--only", nargs="+", default=[], metavar="TASK", help="these tasks, or all whose names begin so")
    parser.add_argument("--against", nargs="+", default=[], metavar="NAME", help="these contestants, besides pullback")
    parser.add_argument("--list", action="store_true", help="the tasks and their contestants")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="bars of ratios")
    parser.add_argument("--growth", action="store_true", help="instead, how time grows with numbers and with operations")
    parser.add_argument(
        "--markdown", type=Path, nargs="+", metavar="JSON", help="measures nothing: prints tables of these figures"
    )
    parser.add_argument("--seconds", type=float, help="for each task, in turns (8)")
    parser.add_argument(
        "--limit", type=float, default=60.0, metavar="SECONDS", help="for the first gradient of a contestant (60)"
    )
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)  # a process of its own
    options = parser.parse_args()
    if options.markdown:
        print(report.markdown([json.loads(path.read_text(encoding="utf-8")) for path in options.markdown]))
        return
    if options.growth:
        from tests.bench import growth

        growth.main(options)
        return
    if options.child:
        kind, name, contestant = options.child
        fresh.main(kind, suite.named(name), contestant)
        return
    tasks = {task.name: task for task in suite.tasks()}
    wrong = [start for start in options.only if not any(name.startswith(start) for name in tasks)]
    if wrong:
        parser.error(f"no task {wrong[0]!r}; there are {', '.join(tasks)}")
    chosen = [task for name, task in tasks.items() if not options.only or any(name.startswith(start) for start in options.only)]
    if options.quick and not options.only:
        chosen = [task for task in chosen if task.quick]
    measure(chosen, options)


def measure(tasks: list[Task], options: argparse.Namespace) -> None:
    console = Console(width=max(140, Console().width))
    if options.list:
        for task in tasks:
            console.print(f"[bold]{task.name}[/]: {task.about} ({', '.join(c.name for c in task.contestants)})")
        return
    figures: list[Figures] = []
    for task in tasks:  # a larger one comes after a smaller one
        before = {f.contestant: f.problem for f in figures if f.task == contestants.AFTER.get(task.name)}
        figures += measured(task, options, before, console)
        if options.json:  # after each task, so that a run that is broken off has told something
            options.json.write_text(json.dumps(told(figures), indent=1) + "\n", encoding="utf-8")
    document = json.loads(json.dumps(told(figures)))
    console.print(report.summary(document))
    for label, value in report.means(report.rows([document])):
        console.print(f"{label}: {value}")
    if options.picture:
        from tests.bench import pictures

        pictures.bars(document, options.picture)


def measured(task: Task, options: argparse.Namespace, before: dict[str, str], console: Console) -> list[Figures]:
    """In a quick look only our own first gradient is measured in a fresh process, and no memory."""
    seconds = options.seconds or (0.4 if options.quick else 8.0)
    starts: dict[str, fresh.Start] = {}
    out: dict[str, str] = {}
    cached = None
    with console.status(task.name) as status:
        for contestant in task.contestants:
            name = contestant.name
            unasked = name != OURS and options.against and name not in options.against
            if unasked or (options.quick and (contestant.slow or not contestant.quick)):
                out[name] = "left out"
            elif before.get(name, "").startswith(fresh.OVER):
                out[name] = before[name]
            elif name == OURS or (not options.quick and (contestant.compiles or contestant.slow)):
                status.update(f"{task.name}: {name}, first gradient")
                starts[name] = fresh.start(task, contestant, options.limit)
                out.update({name: starts[name].problem} if starts[name].problem else {})
        if OURS not in out and not options.quick:
            cached = fresh.cached_start(task, options.limit)
        status.update(f"{task.name}: in turns")
        figures = [f for f in run(task, seconds, out) if f.problem != "left out"]
        compiles = {c.name for c in task.contestants if c.compiles or c.name.startswith(OURS)}
        for figure in figures:
            begun = starts.get(figure.contestant)
            if begun and figure.contestant in compiles and begun.first is not None:
                figure.cold = begun.first
                figure.notes["busy"] = begun.busy
            if figure.contestant == OURS:
                figure.cached = cached
            if task.memory and not figure.problem and figure.gradient is not None and not options.quick:
                status.update(f"{task.name}: {figure.contestant}, memory")
                figure.memory = fresh.memory(task, figure.contestant, options.limit)
    console.print(table(task, figures))
    return figures


def table(task: Task, figures: list[Figures]) -> Table:
    """Times, and how many times ours each takes."""
    shown = Table(title=f"{task.name}: {task.about}", title_justify="left")
    shown.add_column("")
    ratios = ("value", "ratio", "value + gradient", "ratio", "quartiles", "least", "ratio", "cold", "ratio", "cached")
    for column in (*ratios, *(("memory",) if task.memory else ())):
        shown.add_column(column, justify="right")
    base = next((f for f in figures if f.contestant == OURS), None)
    for figure in figures:
        if figure.problem:
            shown.add_row(figure.contestant, f"[red]{figure.problem}[/]")
            continue
        cells = [
            report.duration(figure.value),
            report.ratio(figure.value, base and base.value),
            report.duration(figure.gradient),
            report.ratio(figure.gradient, base and base.gradient),
            "" if figure.spread is None else f"{100 * figure.spread:.0f} %",
            report.duration(figure.least),
            report.ratio(figure.least, base and base.least),
            report.duration(figure.cold),
            report.ratio(figure.cold, base and base.cold),
            report.duration(figure.cached),
        ]
        if task.memory:
            cells.append("" if figure.memory is None else f"{figure.memory / 1e3:.0f} kB")
        shown.add_row(figure.contestant, *cells)
    return shown


def told(figures: list[Figures]) -> dict[str, Any]:
    machine = {"processor": processor(), "system": platform.platform(), "python": platform.python_version()}
    return {"date": time.strftime("%Y-%m-%d"), "machine": machine, "figures": [asdict(f) for f in figures]}


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
