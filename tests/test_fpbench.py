"""FPBench: every FPCore of the suite is read, and gives the value and the gradient that real arithmetic gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.frontends import fpcore
from pullback.frontends.expression_source import Source

DATA = Path(__file__).parent / "data" / "fpbench"
GOLDEN = [json.loads(line) for line in (DATA / "golden_gradients.jsonl").read_text().splitlines()]
ENDLESS = ("Euler Oscillator", "Filter", "Circle")  # while TRUE
POINTS = {  # of loops whose gradients are not among the golden ones, within their preconditions
    "Arrow-Hurwicz": (0.7, 0.9, 0.2, 0.4),
    "Symplectic Oscillator": (0.3, 0.9),
    "Flower": (0.02, 0.3),
    "Rocket Trajectory": (150000.0, 140.0),
    "Eigenvalue Computation": (151.0, 2.0, 1.0, 1.0, 1.0, 100.0, 1.0, 1.0, 1.0, 1.0, 80.0, 2.0, 1.0, 2.0, 1.0, 150.5,
                               0.5, 0.2, -0.1, 1.0),
    "Iterative Gram-Schmidt Method": (1 / 63, 0.001, 0.002, 0.003, 1 / 225, 0.0, 1 / 2592, 1 / 2601, 1 / 2583),
}  # fmt: skip


def identify(record):
    return f"{record['file'].removesuffix('.fpcore')}-{record['name']}".replace(" ", "-")


def tolerances(record, point):
    """Of value and gradient: 1e-10, or what the condition of the double evaluation makes of rounding.

    Some cores are there to be ill-conditioned. Newton's method at a fivefold root divides differences of numbers that agree in
    all but the last digits, the function and its first derivative; the gradient does so with the second as well.
    """
    worse = 1000.0 if record["name"] == "Newton-Raphson's Method" else 1.0
    value = max(1e-10, 100 * point["f64_rel_err"])
    return value, worse * value


@pytest.mark.parametrize("record", GOLDEN, ids=identify)
def test_golden_gradient(record):
    """Value and gradient at the three points, in double precision as the numbers are in real arithmetic."""
    f = pb.load(DATA / record["file"], core=record["name"], precision="binary64")
    assert len(f.parameters) == len(record["args"])
    for point in record["points"]:
        value, gradients = f.vjp(*map(float, point["x"]), seed=-2.5, wrt=tuple(range(len(record["args"]))))
        first, second = tolerances(record, point)
        np.testing.assert_allclose(value, point["f"], rtol=first)
        expected = -2.5 * np.array(point["grad"])
        # an entry that is a small difference of large ones has the error of the large
        np.testing.assert_allclose(gradients, expected, rtol=second, atol=second * np.abs(expected).max())


@pytest.mark.parametrize("name", POINTS)
def test_reverse_agrees_with_forward(name, tmp_path):
    """Loops without golden gradients, some of which return arrays."""
    text = next(path for path in DATA.glob("*.fpcore") if f'"{name}"' in path.read_text()).read_text()
    path = tmp_path / "some.fpcore"
    path.write_text(text.replace("2000000.0", "2000.0"))  # the flight of the rocket, shortened for the test
    f = pb.load(path, core=name, precision="binary64")
    point = POINTS[name]
    seed = np.array([-1.5, 0.75])[: max(1, np.size(f(*point)))]
    _, gradients = f.vjp(*point, seed=seed if np.ndim(f(*point)) else seed[0])
    forward = []
    for k in range(len(point)):
        tangents = tuple(float(k == j) for j in range(len(point)))
        forward.append(float(np.sum(seed * f.jvp(*point, tangents=tangents)[1])))
    moves = name != "Rocket Trajectory"  # whose result is the place of the other body, which neither input has a part in
    assert (np.abs(forward).max() > 0) == moves
    # both modes round differently, and the loops amplify that
    np.testing.assert_allclose(gradients, forward, rtol=1e-9, atol=1e-10 * np.abs(forward).max())


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_loops_stop_at_the_limit(name):
    """Forward, reverse and in forward mode; the limit and the line are told."""
    f = pb.load(DATA / "apron.fpcore", core=name, max_trips=1000)
    seed = 1.0 if name == "Filter" else np.array([1.0, -2.0])
    for call in (f, lambda *at: f.vjp(*at, seed=seed), lambda *at: f.jvp(*at, tangents=(1.0, 0.0))):
        with pytest.raises(pb.PullbackError, match=r"more than 1000 trips, .*max_trips.*apron\.fpcore:\d+"):
            call(0.1, 0.2)


def test_a_loop_that_stops_below_rounding_ends_at_the_limit_at_the_latest():
    """Jacobi's method goes on until nothing changes by 1e-17; whether that comes to pass depends on rounding."""
    f = pb.load(DATA / "salsa.fpcore", core="Jacobi's Method", max_trips=100_000)
    point = (0.61, 0.62, 0.6006, 0.601, 0.5, 1 / 3, 0.25, 0.2)
    try:
        value = f(*map(np.float32, point))
    except pb.PullbackError as error:
        assert "max_trips" in str(error)
    else:
        assert value == pytest.approx(-3.35781, rel=1e-4)  # in single precision


def test_every_core_is_read():
    found = [c for path in sorted(DATA.glob("*.fpcore")) for c in fpcore.cores(Source.read(path, python=False))]
    assert len(found) == 136
    for core in found:
        made = fpcore.program(core, "binary64")
        assert len(made.inputs) == len(core.arguments)
        assert made.doc.startswith(core.name)
    assert len(GOLDEN) == 127
