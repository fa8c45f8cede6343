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
STRAIGHT = [record for record in GOLDEN if not record["features"] or record["features"] == ["precision-annot"]]


def identify(record):
    return f"{record['file'].removesuffix('.fpcore')}-{record['name']}".replace(" ", "-")


def tolerance(point):
    """1e-10, or what the condition of the double evaluation makes of rounding: some cores are there to be ill-conditioned."""
    return max(1e-10, 100 * point["f64_rel_err"])


def agrees(record):
    """Value and gradient at the three points, in double precision as the numbers are in real arithmetic."""
    f = pb.load(DATA / record["file"], core=record["name"], precision="binary64")
    assert len(f.parameters) == len(record["args"])
    for point in record["points"]:
        value, gradients = f.vjp(*map(float, point["x"]), seed=-2.5, wrt=tuple(range(len(record["args"]))))
        rtol = tolerance(point)
        np.testing.assert_allclose(value, point["f"], rtol=rtol)
        expected = -2.5 * np.array(point["grad"])
        # an entry that is a small difference of large ones has the error of the large
        np.testing.assert_allclose(gradients, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize("record", STRAIGHT, ids=identify)
def test_golden_gradient(record):
    agrees(record)


def test_every_core_is_read():
    found = [c for path in sorted(DATA.glob("*.fpcore")) for c in fpcore.cores(Source.read(path, python=False))]
    assert len(found) == 136
    for core in found:
        made = fpcore.program(core, "binary64")
        assert len(made.inputs) == len(core.arguments)
        assert made.doc.startswith(core.name)
    assert len(GOLDEN) == 127
