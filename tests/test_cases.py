"""The cases: trouble that users of other differentiation systems have had, each run with static axes and with symbols."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from tests.cases import RECORDS, arguments, flat, number, python_function, sympy_function

VALUES = [r for i, r in RECORDS.items() if r["kind"] == "value" and i[0] in "ABCDEFGHIJK"]
LITERAL = ("K07", "K08")  # as literal Piecewise these are wrong at the point: the checker has to say so (test_check.py)
WITH_SYMPY = [r for r in VALUES if r.get("sympy") and r["id"] not in LITERAL]


def derivative(f, record, args):
    """The quantity that the case asks for, flattened."""
    wrt = tuple(record["wrt"])
    positions = tuple(list(record["inputs"]).index(w) for w in wrt)
    match record["quantity"]:
        case "vjp":
            value, gradients = f.vjp(*args, seed=number(record["seed"]), wrt=positions)
            if record.get("expected_value") is not None:
                close(flat(value), record["expected_value"], record["tolerance"])
            for k, gradient in zip(positions, gradients, strict=True):
                assert np.shape(gradient) == np.shape(args[k])
            return flat(gradients)
        case "hessian":
            blocks = f.hessian(*args, wrt=positions)
            sizes = [np.size(args[k]) for k in positions]
            rows = [
                np.hstack([np.reshape(b, (m, n)) for b, n in zip(row, sizes, strict=True)])
                for row, m in zip(blocks, sizes, strict=True)
            ]
            return flat(np.vstack(rows))
        case "second":
            return flat(pb.grad(pb.grad(f))(*args))
        case "third":
            return flat(pb.grad(pb.grad(pb.grad(f)))(*args))
        case "elementwise_second":
            return np.diag(pb.compile(lambda x: np.sum(f(x))).hessian(*args))
    raise AssertionError(record["quantity"])


def close(found, expected, tolerance):
    """Relative to each entry, and exact where zero is expected, up to rounding of the largest."""
    wanted = flat(np.array(number(expected)))
    finite = np.abs(wanted[np.isfinite(wanted)])
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=1e-16 * max(finite, default=0.0))


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbols"])
@pytest.mark.parametrize("record", VALUES, ids=lambda r: r["id"])
def test_numpy_form(record, symbolic):
    """One ``f`` for the whole case: value, gradient or Hessian to the stated tolerance, by the project's own conventions."""
    names = {"D": lambda f, at: pb.grad(f)(at)}
    f = pb.compile(python_function(record, **names), symbolic=symbolic)
    close(derivative(f, record, arguments(record)), record["expected"], record["tolerance"])


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbols"])
@pytest.mark.parametrize("record", WITH_SYMPY, ids=lambda r: r["id"])
def test_sympy_form(record, symbolic):
    expression, inputs = sympy_function(record)
    f = pb.compile(expression, inputs=inputs, symbolic=symbolic)
    args = arguments(record)
    if record["id"] in ("K09", "K17"):  # the expression is differentiated already
        close(flat(f(*args)), record["expected"] if record["id"] == "K09" else record["expected_value"], record["tolerance"])
        if record["id"] == "K09":
            found = f(*args)
            assert (found.shape, found.dtype) == ((4,), np.float64)
            return
    close(derivative(f, record, args), record["expected"], record["tolerance"])


def test_every_case_is_accounted_for():
    """What is not run here is behaviour, see test_behaviours.py."""
    assert [i for i, r in RECORDS.items() if r["kind"] == "value" and r not in VALUES] == []
    assert len(VALUES) >= 97
