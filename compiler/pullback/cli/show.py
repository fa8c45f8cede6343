"""What the command prints and writes: tables for people, JSON for programs, files of arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pullback.cli.errors import CommandError
from pullback.explain import plain
from pullback_runtime.signature import flatten


def tree(value: Any) -> Any:
    """An output, with lists for arrays."""
    if isinstance(value, dict):
        return {str(k): tree(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [tree(v) for v in value]
    return plain(value)


def echo_json(found: Any) -> None:
    click.echo(json.dumps(found, indent=2, ensure_ascii=False))


def shown(value: Any) -> str:
    """A number in full, an array as NumPy shows it (the middle of a long one left out)."""
    array = np.asarray(value)
    if array.ndim == 0:
        return repr(array.item())
    return np.array2string(array, threshold=30, edgeitems=3, max_line_width=100, precision=8)


def named_outputs(value: Any) -> dict[str, Any]:
    """Each output under a name: ``value``, ``value.call``, ``value[0]``."""
    leaves, structure = flatten(value)
    paths = structure.paths("value")
    return dict(zip((p.replace("['", ".").replace("']", "") for p in paths), leaves, strict=True))


def print_values(value: Any) -> None:
    outputs = named_outputs(value)
    for name, part in outputs.items():
        text = shown(part)
        label = f"{name.removeprefix('value.')} = " if len(outputs) > 1 else ""
        click.echo(label + text.replace("\n", "\n" + " " * len(label)))


def print_gradients(value: Any, gradients: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """The value, then a row per input."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for header in ("input", "at", "gradient"):
        table.add_column(Text(header, style="bold"), overflow="fold")
    for name, gradient in gradients.items():
        given = inputs.get(name)
        at = "a named value" if given is None else shown(given) if np.size(given) <= 6 else f"shape {np.shape(given)}"
        table.add_row(Text(name), Text(at), Text(shown(gradient)))
    outputs = named_outputs(value)
    width = max(map(len, outputs))
    for name, part in outputs.items():
        click.echo(f"{name:<{width}}  " + shown(part).replace("\n", "\n" + " " * (width + 2)))
    click.echo()
    console = Console(highlight=False)
    with console.capture() as captured:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def write(path: str, value: Any, gradients: Mapping[str, Any] | None) -> None:
    """The results as ``.npz`` (``value``, ``grad_x``) or ``.json``."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".npz":
            arrays: dict[str, Any] = {k: np.asarray(v) for k, v in named_outputs(value).items()}
            arrays |= {f"grad_{k}": np.asarray(v) for k, v in (gradients or {}).items()}
            np.savez(path, **arrays)
        elif suffix == ".json":
            Path(path).write_text(json.dumps(result(value, gradients), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        else:
            raise CommandError(f"-o {path}: a name that ends in .npz or .json expected")
    except OSError as error:
        raise CommandError(f"-o {path}: {error.strerror or error}") from None


def result(value: Any, gradients: Mapping[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"value": tree(value)}
    if gradients is not None:
        found["gradient"] = {name: tree(g) for name, g in gradients.items()}
    return found
