"""The Black-Scholes file against the tables of Haug's book: prices, and Greeks as derivatives of the one formula."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb

HERE = Path(__file__).parent
FORMULA = pb.load(HERE.parent / "examples" / "black_scholes.expr")
INPUTS = ("spot", "strike", "r", "q", "t", "vol")
PRINTED = 1.01e-4  # the tables have four decimals; the last one is rounded, in places cut off


def rows(name: str) -> list[dict[str, str]]:
    with open(HERE / "data" / name, newline="") as file:
        return list(csv.DictReader(file))


def point(row: dict[str, str]) -> dict[str, float]:
    return {name: float(row[name]) for name in INPUTS}


@pb.compile
def call(spot: Any, strike: Any, r: Any, q: Any, t: Any, vol: Any) -> Any:
    return FORMULA(spot, strike, r, q, t, vol)["call"]


@pb.compile
def put(spot: Any, strike: Any, r: Any, q: Any, t: Any, vol: Any) -> Any:
    return FORMULA(spot, strike, r, q, t, vol)["put"]


def test_counts() -> None:
    assert len(rows("haug_prices.csv")) == 43
    assert len(rows("haug_greeks.csv")) == 11


@pytest.mark.parametrize("row", rows("haug_prices.csv"), ids=lambda r: f"{r['type']}-{r['strike']}-{r['t']}-{r['vol']}")
def test_price(row: dict[str, str]) -> None:
    price = FORMULA(**point(row))[row["type"].lower()]
    assert abs(price - float(row["value"])) <= float(row["tol"])


@pytest.mark.parametrize("row", rows("haug_greeks.csv"), ids=lambda r: f"{r['greek']}-{r['type']}")
def test_greek(row: dict[str, str]) -> None:
    option, given = (call if row["type"] == "Call" else put), point(row)
    value, gradient = option.value_and_grad(**given)
    slope = dict(zip(INPUTS, gradient, strict=True))
    found = {
        "delta": lambda: slope["spot"],
        "elasticity": lambda: slope["spot"] * given["spot"] / value,
        "gamma": lambda: pb.grad(pb.grad(option, wrt="spot"), wrt="spot")(**given),
        "vega": lambda: slope["vol"],
        "theta": lambda: -slope["t"],
        "theta per day": lambda: -slope["t"] / 365,
        "rho": lambda: slope["r"],
        "dividendRho": lambda: slope["q"],
    }[row["greek"]]()
    assert abs(found - float(row["value"])) <= PRINTED


def test_parity_and_seeds() -> None:
    """Call minus put is a forward, whose slopes are simple; seeds of the two outputs combine linearly."""
    given = {"spot": 105.0, "strike": 100.0, "r": 0.1, "q": 0.04, "t": 0.5, "vol": 0.36}
    value, gradient = FORMULA.vjp(**given, seed={"call": -2.0, "put": 2.0})
    discounted, kept = np.exp(-0.1 * 0.5), np.exp(-0.04 * 0.5)
    assert value["call"] - value["put"] == pytest.approx(105 * kept - 100 * discounted, rel=1e-13)
    expected = [kept, -discounted, 100 * 0.5 * discounted, -105 * 0.5 * kept, 0.1 * 100 * discounted - 0.04 * 105 * kept, 0.0]
    np.testing.assert_allclose(gradient, -2 * np.array(expected), rtol=1e-11, atol=1e-12)  # differences of larger terms
