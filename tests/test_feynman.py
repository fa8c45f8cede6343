"""The 100 formulas of the Feynman Symbolic Regression Database as expression files, against SymPy at 50 digits."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy

import pullback as pb

TABLE = Path(__file__).parent / "data" / "FeynmanEquations.csv"
POINTS = 3
RELATIVE = 1e-13  # some hundred roundings; none of the formulas is worse conditioned in its ranges
NAMES = {"ln": sympy.log, "arcsin": sympy.asin, "pi": sympy.pi}
NAMES |= {name: getattr(sympy, name) for name in ("exp", "sqrt", "sin", "cos", "tanh", "log")}


@dataclass(frozen=True)
class Formula:
    name: str
    text: str
    ranges: dict[str, tuple[float, float]]

    def file(self) -> str:
        inputs = "".join(f"{variable}: f64\n" for variable in self.ranges)
        return f'"""Equation {self.name} of the Feynman lectures."""\n{inputs}\nreturn {self.text}\n'

    def points(self) -> list[dict[str, float]]:
        supply = random.Random(self.name)
        return [{v: supply.uniform(low, high) for v, (low, high) in self.ranges.items()} for _ in range(POINTS)]


def formulas() -> list[Formula]:
    found = []
    with open(TABLE, encoding="utf-8-sig", newline="") as file:  # the file begins with a byte-order mark
        for row in csv.DictReader(file):
            if not row["Formula"]:
                continue
            # the column "# variables" is wrong in some rows; the name columns are right
            names = [row[f"v{k}_name"] for k in range(1, 11)]
            ranges = {name: (float(row[f"v{k}_low"]), float(row[f"v{k}_high"])) for k, name in enumerate(names, 1) if name}
            found.append(Formula(row["Filename"], row["Formula"], ranges))
    return found


FORMULAS = formulas()


def test_count() -> None:
    assert len(FORMULAS) == 100


class Reference:
    """The formula as SymPy reads it, by Python's own parser and not ours."""

    def __init__(self, formula: Formula):
        self.symbols = {name: sympy.Symbol(f"v_{name}", real=True) for name in formula.ranges}
        self.expression = eval(formula.text, {"__builtins__": {}}, {**NAMES, **self.symbols})
        self.slopes = {name: self.expression.diff(s) for name, s in self.symbols.items()}

    def at(self, expression: Any, point: dict[str, float]) -> Any:
        exact = {self.symbols[name]: sympy.Rational(value) for name, value in point.items()}
        return sympy.N(expression.subs(exact), 50)


def check(reference: Reference, expression: Any, point: dict[str, float], got: float) -> None:
    expected = reference.at(expression, point)
    assert abs(sympy.Float(got, 50) - expected) <= RELATIVE * abs(expected), (expression, point, got, expected)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_value_and_gradient(formula: Formula, tmp_path: Path) -> None:
    path = tmp_path / "formula.expr"
    path.write_text(formula.file(), encoding="utf-8")
    function = pb.load(path)
    reference = Reference(formula)
    for point in formula.points():
        value, gradient = function.vjp(**point, wrt=tuple(point), seed=1.0)
        check(reference, reference.expression, point, value)
        for name, slope in zip(point, gradient, strict=True):
            check(reference, reference.slopes[name], point, slope)
        seeded = function.grad(**point, wrt=tuple(point), seed=-2.5)
        np.testing.assert_allclose(seeded, -2.5 * np.array(gradient), rtol=1e-14)  # scaled before instead of after


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.name)
def test_check_passes(formula: Formula, tmp_path: Path) -> None:
    path = tmp_path / "formula.expr"
    path.write_text(formula.file(), encoding="utf-8")
    report = pb.load(path).check(**formula.points()[0])
    assert report.ok, report.text
