"""Reading the cases of ``data/cases.jsonl``: each a function, a point, a seed and what must come out."""

from __future__ import annotations

import json
import linecache
from pathlib import Path
from typing import Any

import numpy as np

RECORDS = {r["id"]: r for r in map(json.loads, (Path(__file__).parent / "data" / "cases.jsonl").read_text().splitlines())}


def number(value: Any) -> Any:
    """``"nan"`` and ``"inf"`` stand as strings."""
    return [number(v) for v in value] if isinstance(value, list) else float(value)


def arguments(record: dict[str, Any]) -> list[Any]:
    """NumPy scalars and arrays in argument order; a string is an expression, often a view."""
    data = {name: np.array(number(value)) for name, value in record.get("data", {}).items()}
    found = []
    for value in record["inputs"].values():
        if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
            found.append(eval(value, {"np": np, **data}))  # our own file
        elif isinstance(value, int):
            found.append(value)
        else:
            array = np.array(number(value))
            found.append(array if array.ndim else array[()])
    return found


def python_function(record: dict[str, Any], **names: Any) -> Any:
    """The case's function with a source that ``inspect`` finds."""
    import scipy.special

    body = record["function"]
    if not body.startswith("def "):
        body = f"def f({', '.join(record['inputs'])}):\n    return {body}\n"
    path = f"<case {record['id']}>"
    linecache.cache[path] = (len(body), None, body.splitlines(keepends=True), path)
    needed = [n.strip().split(".")[-1] for n in record.get("needs", "").split(",") if n]
    space = {"np": np, **names, **{n: getattr(scipy.special, n) for n in needed}}
    exec(compile(body, path, "exec"), space)  # our own file
    return space["f"]


def sympy_function(record: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The expression, made by SymPy's constructors, and its inputs in argument order."""
    import sympy as sp

    names = {name: sp.Symbol(name) for name in record["inputs"]}
    inputs = list(names.values())
    if "Symbol(" in record["sympy"]:
        inputs = [sp.Symbol(name) for name in ("x_{1}", r"\\alpha", "lambda", "two words")]
    if "IndexedBase(" in record["sympy"]:
        inputs = [sp.IndexedBase("a")]
    space = {**{n: getattr(sp, n) for n in dir(sp) if not n.startswith("_")}, **names}
    return eval(record["sympy"], {**space, "i": sp.Symbol("i"), "j": sp.Symbol("j")}), inputs  # our own file


def flat(parts: Any) -> np.ndarray:
    """Gradients, or blocks of a Hessian, as one vector."""
    parts = parts if isinstance(parts, (tuple, list)) else [parts]
    return np.concatenate([np.ravel(p) for p in parts]) if parts else np.zeros(0)
