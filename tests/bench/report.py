"""Tables of figures: the summary on the terminal, and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from rich.table import Table

from tests.bench.frame import OURS, PARALLEL

Rows = dict[str, dict[str, dict[str, Any]]]  # task, contestant, figures


def rows(documents: Iterable[dict[str, Any]]) -> Rows:
    """Of several runs; a later one replaces the tasks of an earlier one."""
    found: Rows = {}
    for document in documents:
        fresh: Rows = {}
        for figure in document["figures"]:
            fresh.setdefault(figure["task"], {})[figure["contestant"]] = figure
        found.update(fresh)
    return found


def best(contestants: dict[str, dict[str, Any]], what: str) -> tuple[str, float] | None:
    """The quickest peer and its time."""
    times = {name: f[what] for name, f in contestants.items() if not name.startswith(OURS) and f[what] and not f["problem"]}
    return min(times.items(), key=lambda item: item[1]) if times else None


def against(contestants: dict[str, dict[str, Any]], what: str, name: str | None = None) -> float | None:
    """How many times ours a peer takes, the best one if none is named."""
    ours = contestants.get(OURS, {}).get(what)
    if name is None:
        found = best(contestants, what)
        return found[1] / ours if found and ours else None
    figure = contestants.get(name, {})
    return figure[what] / ours if ours and figure.get(what) and not figure.get("problem") else None


COLUMNS: tuple[tuple[str, Callable[[dict[str, dict[str, Any]]], str]], ...] = (
    ("value", lambda c: duration(c.get(OURS, {}).get("value"))),
    ("value + gradient", lambda c: duration(c.get(OURS, {}).get("gradient"))),
    ("best peer", lambda c: named(best(c, "gradient"))),
    ("ratio", lambda c: times(against(c, "gradient"))),
    ("NumPy", lambda c: times(against(c, "gradient", "NumPy by hand"))),
    ("C", lambda c: times(against(c, "gradient", "C by hand"))),
    ("JAX", lambda c: times(against(c, "gradient", "JAX"))),
    ("cold", lambda c: duration(c.get(OURS, {}).get("cold"))),
    ("cached", lambda c: duration(c.get(OURS, {}).get("cached"))),
    ("JAX, cold", lambda c: times(against(c, "cold", "JAX"))),
    ("CasADi's C, cold", lambda c: times(against(c, "cold", "CasADi, C"))),
)


def cells(contestants: dict[str, dict[str, Any]]) -> list[str]:
    problem = contestants.get(OURS, {}).get("problem")
    if problem:
        return [problem, *("" for _ in COLUMNS[1:])]
    return [show(contestants) for _, show in COLUMNS]


def summary(document: dict[str, Any]) -> Table:
    shown = Table(title="ratios: how many times ours a peer takes", title_justify="left")
    shown.add_column("")
    for column, _ in COLUMNS:
        shown.add_column(column, justify="right")
    found = rows([document])
    for name, contestants in found.items():
        shown.add_row(name, *cells(contestants))
    return shown


def markdown(documents: list[dict[str, Any]]) -> str:
    """The Gaussian mixtures, of which there are many, are a table of their own."""
    found = rows(documents)
    last = documents[-1]
    several = {name: c for name, c in found.items() if name.startswith("mixture-")}
    lines = [
        f"Measured on {last['date']}, {last['machine']['processor']}, one thread; ratios say how many times ours a peer takes.",
        "",
        "| | " + " | ".join(column for column, _ in COLUMNS) + " |",
        "|---|" + "---|" * len(COLUMNS),
    ]
    lines += [f"| {name} | " + " | ".join(cells(c)) + " |" for name, c in found.items() if name not in several]
    if several:
        lines += ["", *mixtures(several)]
    lines += ["", *(f"- {label}: {value}" for label, value in means(found))]
    shared = [(name, 1 / r) for name, c in found.items() if (r := against(c, "gradient", PARALLEL)) is not None]
    if shared:
        lines.append(f"- Quicker with `parallel=True`: {', '.join(f'{name} {ratio:.2f} times' for name, ratio in shared)}")
    used = [(name, c[OURS]["memory"]) for name, c in found.items() if c.get(OURS, {}).get("memory") is not None]
    if used:
        lines += [f"- Peak memory of value and gradient: {', '.join(f'{name} {size / 1e6:.2f} MB' for name, size in used)}"]
    return "\n".join(lines)


def mixtures(found: Rows) -> list[str]:
    """One row for each d, in each cell our time and how many times that C by hand and the best peer take."""
    sizes = {name: tuple(part[1:] for part in name.split("-")[1:]) for name in found}
    counts = list(dict.fromkeys(K for _, K in sizes.values()))
    lines = ["| ADBench's Gaussian mixture: ours, C, best peer | " + " | ".join(f"K = {K}" for K in counts) + " |"]
    lines.append("|---|" + "---|" * len(counts))
    for d in dict.fromkeys(d for d, _ in sizes.values()):
        shown = []
        for K in counts:
            contestants = found.get(f"mixture-d{d}-K{K}", {})
            figures = (
                duration(contestants.get(OURS, {}).get("gradient")),
                times(against(contestants, "gradient", "C by hand")),
            )
            shown.append(", ".join(text for text in (*figures, times(against(contestants, "gradient"))) if text))
        lines.append(f"| d = {d} | " + " | ".join(shown) + " |")
    return lines


GROUPS = {
    "the tasks of numbers and formulas": ("sine", "rosenbrock", "logistic", "quasi", "elementwise",
                                             "doubling", "van", "dag", "arm", "bodies"),
    "networks and the Gaussian process": ("network", "gaussian"),
    "ADBench": ("mixture", "lstm"),
    "loops": ("lorenz", "pendulum", "tridiagonal", "seidel", "recurrent", "heat"),
}  # fmt: skip  # prefixes in a row


def means(found: Rows) -> list[tuple[str, str]]:
    """Geometric means over groups of tasks."""
    lines = []
    for group, prefixes in GROUPS.items():
        members = [c for name, c in found.items() if name.startswith(prefixes)]
        for what, label in (("gradient", "value and gradient"), ("cold", "cold")):
            for peer in (None, "JAX", "C by hand") if what == "gradient" else ("JAX", "CasADi, C"):
                ratios = [r for c in members if (r := against(c, what, peer)) is not None]
                if ratios:
                    whom = peer or "the best peer of each"
                    lines.append((f"{label}, {group}, {whom}", f"{geometric(ratios):.2f} over {len(ratios)}"))
        growth = [f["gradient"] / f["value"] for c in members if (f := c.get(OURS, {})).get("gradient") and f.get("value")]
        if growth:
            lines.append((f"gradient over value, {group}", f"{geometric(growth):.2f} over {len(growth)}"))
    return lines


def geometric(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def named(found: tuple[str, float] | None) -> str:
    return f"{found[0]} {duration(found[1])}" if found else ""


def times(found: float | None) -> str:
    return "" if found is None else f"{found:.3g}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ratio(seconds: float | None, base: float | None) -> str:
    return f"{seconds / base:.2f}" if seconds is not None and base else ""
