"""Pictures of a function: its values as nodes, dataflow as arrows. Graphviz's text, or drawn with Matplotlib."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.errors import PullbackError
from pullback.explain_blocks import operands
from pullback.ir.core import Func, Value
from pullback.layout import Layout, Size, arrange
from pullback.wording import Vocabulary

MOST = 400  # nodes of a picture; more of them is no picture any more
_COLOURS = {"input": "#d6e9f8", "step": "#ffffff", "output": "#fbe3c0"}
_LINES = "#555555"
_FONT = 9  # points
_PADDING = 5.0  # points around a box's text
_MARGIN = 18.0  # points around the picture
_KEY_SPACE = 30.0  # points above it for the key to the colours
_PIXELS = 40_000_000  # of a picture; a large one is drawn less finely
_SIDE = 60_000  # pixels: Matplotlib draws no longer ones


@dataclass(frozen=True, slots=True)
class Node:
    key: str
    label: str
    kind: str  # "input", "step" or "output"
    sources: tuple[str, ...]


def nodes(func: Func, notes: Mapping[Value, str] | None = None, outputs: Sequence[str] = ()) -> list[Node]:
    """Inputs, steps and outputs in the order of dataflow; ``notes`` are further lines of a node's label."""
    words = Vocabulary(func, outputs)
    results = set(func.results)
    called: dict[Value, list[str]] = {}
    for name, value in zip(outputs, func.results, strict=False):
        called.setdefault(value, []).append(name)
    keys: dict[Value, str] = {}
    found: list[Node] = []

    def add(value: Value, text: str, sources: tuple[str, ...], kind: str) -> None:
        keys[value] = f"n{len(keys)}"
        note = (notes or {}).get(value, str(value.type))
        kind = "output" if value in results and kind == "step" else kind
        others = [name for name in called.get(value, ()) if name != words.of(value).text]
        if others and (len(func.results) > 1 or kind == "input"):
            text += f"\noutput {', '.join(others)}"
        found.append(Node(keys[value], f"{text}\n{note}", kind, sources))

    for param in func.params:
        add(param, param.name, (), "input")
    for instr in words.steps(func):
        sources = tuple(dict.fromkeys(keys[a] for a in operands(instr) if a in keys))
        for out in words.told(instr):
            name = words.of(out).text
            add(out, f"{name} = {words.step(instr)}", sources, "step")
    return found


def dot(func: Func, notes: Mapping[Value, str] | None = None, outputs: Sequence[str] = ()) -> str:
    """The graph in Graphviz's language."""
    lines = [
        f"digraph {json.dumps(func.name)} {{",
        "  rankdir=TB;",
        '  label="blue: inputs; white: steps; orange: outputs";',
        '  node [shape=box, style="rounded,filled", fontname="Helvetica"];',
    ]
    for node in nodes(func, notes, outputs):
        label = json.dumps(node.label, ensure_ascii=False)
        lines.append(f'  {node.key} [label={label}, fillcolor="{_COLOURS[node.kind]}"];')
        lines += [f"  {source} -> {node.key};" for source in node.sources]
    return "\n".join([*lines, "}"])


def save(func: Func, path: str | Path, notes: Mapping[Value, str] | None = None, outputs: Sequence[str] = ()) -> None:
    """Write the graph as ``.dot``, or draw it as ``.svg``, ``.png`` or ``.pdf``."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind in (".dot", ".gv"):
        path.write_text(dot(func, notes, outputs) + "\n", encoding="utf-8")
    elif kind in (".svg", ".png", ".pdf"):
        _draw(nodes(func, notes, outputs), path, gradients=notes is not None)
    else:
        raise PullbackError(f"a picture's name ends in .svg, .png, .pdf or .dot, got {str(path)!r}")


def _draw(graph: list[Node], path: Path, gradients: bool) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # loaded for pictures only, without a display
        from matplotlib.figure import Figure
    except ImportError:
        raise PullbackError(
            f"drawing {path.name} needs Matplotlib: pip install matplotlib; a .dot file needs nothing"
        ) from None
    if len(graph) > MOST:
        raise PullbackError(f"the graph has {len(graph)} nodes; at most {MOST} are drawn. Write a .dot file instead")
    figure = Figure(dpi=72)  # so that pixels are points while texts are measured
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()

    def measure(text: str) -> Size:
        written = figure.text(0, 0, text, fontsize=_FONT, parse_math=False)
        box = written.get_window_extent(renderer)
        written.remove()
        return box.width + 2 * _PADDING, box.height + 2 * _PADDING

    layout = arrange({n.key: measure(n.label) for n in graph}, {n.key: n.sources for n in graph})
    key = [(kind, measure(text), text) for kind, text in (("input", "input"), ("step", "step"), ("output", "output"))]
    remark = "first line: the step; below: its value and the gradient of the seeded output by it" if gradients else ""
    key_width = sum(size[0] + 10 for _, size, _ in key) + (measure(remark)[0] if remark else 0.0)
    width = max(layout.size[0], key_width) + 2 * _MARGIN
    height = layout.size[1] + 2 * _MARGIN + _KEY_SPACE
    figure.set_size_inches(width / 72, height / 72)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    left = (width - layout.size[0]) / 2
    axes.set_xlim(-left, width - left)
    axes.set_ylim(layout.size[1] + _MARGIN, -_MARGIN - _KEY_SPACE)
    axes.axis("off")
    _arrows(axes, layout)
    for node in graph:
        _box(axes, layout.centres[node.key], measure(node.label), node.label, node.kind)
    x, y = _MARGIN - left, -_KEY_SPACE + _PADDING
    for kind, size, text in key:
        _box(axes, (x + size[0] / 2, y), size, text, kind)
        x += size[0] + 10
    axes.text(x, y, remark, ha="left", va="center", fontsize=_FONT, color=_LINES)
    inches = width * height / 72**2
    figure.savefig(path, facecolor="white", dpi=min(144.0, math.sqrt(_PIXELS / inches), _SIDE * 72 / max(width, height)))


def _box(axes: Any, centre: tuple[float, float], size: Size, text: str, kind: str) -> None:
    from matplotlib.patches import FancyBboxPatch  # as above

    corner = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    axes.add_patch(
        FancyBboxPatch(
            corner, *size, boxstyle="round,pad=0,rounding_size=4", facecolor=_COLOURS[kind], edgecolor=_LINES, zorder=2
        )
    )
    axes.text(*centre, text, ha="center", va="center", fontsize=_FONT, zorder=3, parse_math=False)


def _arrows(axes: Any, layout: Layout) -> None:
    """Straight through the layers, curves between them, a head at the border of the box it points to."""
    from matplotlib.patches import FancyArrowPatch  # as above
    from matplotlib.path import Path as Line

    for arrow in layout.arrows:
        vertices, codes = [arrow.corners[0]], [Line.MOVETO]
        for k, (x, y) in enumerate(arrow.corners[1:], 1):
            before_x, before_y = arrow.corners[k - 1]
            if k % 2:  # through a layer
                vertices, codes = [*vertices, (x, y)], [*codes, Line.LINETO]
            else:
                middle = (before_y + y) / 2
                vertices += [(before_x, middle), (x, middle), (x, y)]
                codes += [Line.CURVE4] * 3
        if vertices[-1][1] - vertices[-2][1] < 1.0:  # no way left inside the last layer: the curve's end is the arrow's
            vertices, codes = vertices[:-1], codes[:-1]
        axes.add_patch(
            FancyArrowPatch(
                path=Line(vertices, codes), arrowstyle="-|>", mutation_scale=9, color=_LINES, linewidth=0.9, zorder=1
            )
        )
