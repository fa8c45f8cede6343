"""Pictures of figures, drawn by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from tests.bench.frame import OURS
from tests.bench.report import rows

COLOURS = {
    "C by hand": "#4d4d4d",
    "NumPy by hand": "#4c72b0",
    "Numba by hand": "#55a3b5",
    "JAX": "#dd8452",
    "JAX scan": "#dd8452",
    "PyTorch": "#c44e52",
    "autograd": "#da8bc3",
    "CasADi": "#8172b3",
    "CasADi, C": "#b3a5d9",
    "SymEngine": "#ccb974",
    "heyoka": "#64a35f",
}


def bars(document: dict[str, Any], target: Path) -> None:
    """One group for each task, one bar for each peer: how many times ours it takes, on a logarithmic scale."""
    found = {name: c for name, c in rows([document]).items() if c.get(OURS, {}).get("gradient")}
    lines = sum(len(c) for c in found.values())
    figure, panels = plt.subplots(1, 2, figsize=(13, max(4, 0.13 * lines + 1.5)), sharey=True)
    for panel, what, title in ((panels[0], "gradient", "value and gradient"), (panels[1], "cold", "source to first gradient")):
        place, ticks = 0.0, []
        for name, contestants in found.items():
            begin = place
            for peer, colour in COLOURS.items():
                if peer not in contestants:
                    continue
                time = contestants[peer][what]
                if time is not None and not contestants[peer]["problem"] and contestants[OURS][what]:
                    panel.barh(place, time / contestants[OURS][what] - 1, left=1, height=0.9, color=colour)
                place += 1
            ticks.append(((begin + place - 1) / 2, name))
            place += 1
        panel.set_xscale("log")
        panel.axvline(1, color="black", linewidth=1)
        panel.set_yticks([where for where, _ in ticks], [name for _, name in ticks], fontsize=8)
        panel.set_xlabel("times pullback's")
        panel.set_title(title, fontsize=10)
        panel.grid(axis="x", alpha=0.3)
    panels[0].set_ylim(place, -1)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in COLOURS if name != "JAX scan"]
    figure.legend(handles, [name for name in COLOURS if name != "JAX scan"], loc="lower center", ncol=6, fontsize=8)
    figure.suptitle(
        f"{document['machine']['processor']}, {document['date']}: right of the line pullback is quicker", fontsize=10
    )
    figure.tight_layout(rect=(0, 0.03 + 1.2 / figure.get_figheight() / 4, 1, 1))
    figure.savefig(target, dpi=130)
    plt.close(figure)


def growth(document: dict[str, Any], target: Path) -> None:
    """The two pictures of growth, beside each other."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    for name, points in document["ratios"].items():
        left.plot([n for n, *_ in points], [gradient / value for _, value, gradient in points], marker="o", label=name)
    left.set(xscale="log", xlabel="n", title="value and gradient over value", ylim=(0, None))
    for name, points in document["compile"].items():
        right.plot([n for n, _ in points], [1e6 * time / n for n, time in points], marker="o", label=name)
    right.set(xscale="log", yscale="log", xlabel="operations", title="source to first gradient, us per operation")
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(target, dpi=130)
    plt.close(figure)
