"""Pictures of a function: its values as nodes, dataflow as arrows. Graphviz's text, or drawn with Matplotlib."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.errors import PullbackError
from pullback.ir.core import Func, Value
from pullback.wording import Vocabulary

MOST = 400  # nodes of a picture; more of them is no picture any more
_COLOURS = {"input": "#d6e9f8", "step": "#ffffff", "output": "#fbe3c0"}


@dataclass(frozen=True, slots=True)
class Node:
    key: str
    label: str
    kind: str  # "input", "step" or "output"
    sources: tuple[str, ...]


def nodes(func: Func, notes: Mapping[Value, str] | None = None) -> list[Node]:
    """Inputs, steps and outputs in the order of dataflow; ``notes`` are further lines of a node's label."""
    words = Vocabulary(func)
    results = set(func.results)
    keys: dict[Value, str] = {}
    found: list[Node] = []

    def add(value: Value, text: str, sources: tuple[str, ...], kind: str) -> None:
        keys[value] = f"n{len(keys)}"
        note = (notes or {}).get(value, str(value.type))
        kind = "output" if value in results and kind == "step" else kind
        found.append(Node(keys[value], f"{text}\n{note}", kind, sources))

    for param in func.params:
        add(param, param.name, (), "input")
    for instr in words.steps(func):
        sources = tuple(keys[a] for a in instr.args if a in keys)
        for out in instr.outs:
            name = words.of(out).text
            add(out, f"{name} = {words.step(instr)}", sources, "step")
    return found


def dot(func: Func, notes: Mapping[Value, str] | None = None) -> str:
    """The graph in Graphviz's language."""
    lines = [
        f"digraph {json.dumps(func.name)} {{",
        "  rankdir=TB;",
        '  node [shape=box, style="rounded,filled", fontname="Helvetica"];',
    ]
    for node in nodes(func, notes):
        label = json.dumps(node.label, ensure_ascii=False)
        lines.append(f'  {node.key} [label={label}, fillcolor="{_COLOURS[node.kind]}"];')
        lines += [f"  {source} -> {node.key};" for source in node.sources]
    return "\n".join([*lines, "}"])


def save(func: Func, path: str | Path, notes: Mapping[Value, str] | None = None) -> None:
    """Write the graph as ``.dot``, or draw it as ``.svg``, ``.png`` or ``.pdf``."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind in (".dot", ".gv"):
        path.write_text(dot(func, notes) + "\n", encoding="utf-8")
    elif kind in (".svg", ".png", ".pdf"):
        _draw(nodes(func, notes), path)
    else:
        raise PullbackError(f"a picture's name ends in .svg, .png, .pdf or .dot, got {str(path)!r}")


def _draw(graph: list[Node], path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # loaded for pictures only, without a display
        from matplotlib.figure import Figure
    except ImportError:
        raise PullbackError(
            f"drawing {path.name} needs Matplotlib: pip install 'pullback[pictures]'; a .dot file needs nothing"
        ) from None
    if len(graph) > MOST:
        raise PullbackError(f"the graph has {len(graph)} nodes; at most {MOST} are drawn. Write a .dot file instead")
    places = _places(graph)
    width = max(x for x, _ in places.values()) + 1
    depth = max(y for _, y in places.values()) + 1
    figure = Figure(figsize=(2.6 * width, 1.15 * depth))
    FigureCanvasAgg(figure)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-0.5, width - 0.5)
    axes.set_ylim(depth - 0.5, -0.5)
    axes.axis("off")
    for node in graph:
        x, y = places[node.key]
        for source in node.sources:
            axes.annotate(
                "", xy=(x, y), xytext=places[source], zorder=1,
                arrowprops={"arrowstyle": "-|>", "shrinkA": 18, "shrinkB": 22, "color": "#555555"},
            )  # fmt: skip
        axes.text(
            x, y, node.label.replace("$", r"\$"), ha="center", va="center", fontsize=8, zorder=2,
            bbox={"boxstyle": "round", "facecolor": _COLOURS[node.kind], "edgecolor": "#555555"},
        )  # fmt: skip
    figure.savefig(path)


def _places(graph: list[Node]) -> dict[str, tuple[float, float]]:
    """A node one level below its lowest source; within a level in order of the sources' mean place."""
    level: dict[str, int] = {}
    for node in graph:
        level[node.key] = 1 + max((level[s] for s in node.sources), default=-1)
    rows: dict[int, list[Node]] = {}
    for node in graph:
        rows.setdefault(level[node.key], []).append(node)
    widest = max(map(len, rows.values()))
    places: dict[str, tuple[float, float]] = {}
    for y in sorted(rows):
        row = rows[y]
        if y:
            row.sort(key=lambda n: sum(places[s][0] for s in n.sources) / max(1, len(n.sources)))
        offset = (widest - len(row)) / 2
        for k, node in enumerate(row):
            places[node.key] = (offset + k, float(y))
    return places
