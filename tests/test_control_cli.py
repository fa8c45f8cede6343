"""The command on files with branches and loops, and on FPCore files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback import symbolic
from tests.test_cli import command, good, refused

DOUBLING = "x: f64[3]\ny = x*2\nwhile norm(y) < 1000:\n    y = y*2\nreturn y\n"
AT = ("doubling.expr", "--at", "x=[120, -35, 60]")
SEED = ("--seed", "[0.1, 1, -0.0001]")
BRANCH = "x: f64\ny: f64\nif x > 0:\n    z = sin(x)*y\nelse:\n    z = x*x + y\nreturn z\n"
SUMS = (
    "x: f64\ny: f64[n]\ns = 0\nfor i in range(n):\n    if i == 3:\n        continue\n    if s > 100*x:\n        break\n"
    "    s += i*x*y[i]\nreturn s*x\n"
)
CORES = """\
(FPCore (x y) :name "ratio" :precision binary32 (/ x y))
(FPCore (n* x) :name "powers of x" (while (< i n*) ([p x (* p x)] [i 0 (+ i 1)]) p))
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {"doubling.expr": DOUBLING, "branch.expr": BRANCH, "sums.expr": SUMS, "two.fpcore": CORES}
    for name, text in texts.items():
        Path(name).write_text(text)


# -- loops ------------------------------------------------------------------------------------------------------------
def test_run_and_grad() -> None:
    assert good("run", *AT) == "[ 960. -280.  480.]\n"
    found = json.loads(good("grad", *AT, *SEED, "--json"))
    assert found == {"value": [960.0, -280.0, 480.0], "gradient": {"x": [0.8, 8.0, -0.0008]}}


def test_check() -> None:
    assert "derivatives verified" in good("check", *AT)
    assert "derivatives verified" in good("check", "sums.expr", "--at", "x=1.5", "--at", "y=[1, 2, 3, 4, 5, 6, 7]")
    assert "derivatives verified" in good("check", "branch.expr", "--at", "x=-0.5", "--at", "y=2")


def test_emit() -> None:
    assert "while (%y = %2) {" in good("emit", "doubling.expr")
    assert "for %count" in good("emit", "doubling.expr", "--stage", "adjoint")
    assert "while:" in good("emit", "doubling.expr", "--stage", "loops")
    assert "define" in good("emit", "doubling.expr", "--stage", "llvm")
    picture = good("emit", "doubling.expr", "--stage", "dot")
    assert "y = while norm(y) < 1000: y = y * 2" in picture


def test_a_branch_lifts_to_sympy_and_a_loop_says_that_it_does_not() -> None:
    assert good("emit", "branch.expr", "--stage", "sympy") == ("z = Piecewise((y*sin(x), x > 0), (x**2 + y, True))\nreturn z\n")
    assert "\\begin{cases}" in good("emit", "branch.expr", "--stage", "latex")
    for stage in ("sympy", "latex"):
        assert refused("emit", "doubling.expr", "--stage", stage) == (
            "error: doubling.expr:3: a loop does not lift to SymPy where the number of its trips depends on the inputs; "
            "the other stages and check work with loops\n"
        )


def test_a_loop_over_known_numbers_lifts_to_sympy() -> None:
    Path("power.expr").write_text("x: f64\ny = x\nfor i in range(20):\n    y = y*x\nreturn y\n")
    assert good("emit", "power.expr", "--stage", "sympy").endswith("return y\n")
    func = pb.load("power.expr").specialization(1.5).func
    (expression,) = symbolic.lift(func).expressions
    assert str(expression[()]) == "x**21"


def test_explain_of_a_loop_goes_trip_by_trip() -> None:
    assert good("explain", *AT, *SEED) == (
        """\
doubling at x = [120, -35, 60]

Forward: each step and its value
    1  v1 = x * 2                           = [240, -70, 120]
    2  y = while norm(y) < 1000: y = y * 2  = [960, -280, 480]
         2 trips
         before the first trip: y = [240, -70, 120]
         after trip 1: y = [480, -140, 240]
         after trip 2: y = [960, -280, 480]

Backward: by the chain rule, each step passes (gradient of its result) x (local partial) on.
  Start: the gradient of y is the seed: [0.1, 1, -0.0001]
    2  y = while norm(y) < 1000: y = y * 2
       gradient of y: [0.1, 1, -0.0001]
         after trip 2: gradient of y = [0.1, 1, -0.0001]
         after trip 1: gradient of y = [0.2, 2, -0.0002]
         before the first trip: gradient of y = [0.4, 4, -0.0004]
         to v1: [0.4, 4, -0.0004]
         (trip by trip, the last one first; what every trip reads gets the sum over the trips)
    1  v1 = x * 2
       gradient of v1: [0.4, 4, -0.0004]
         to x: dv1/dx = 2 = [2, 2, 2], so gradient * partial = [0.8, 8, -0.0008]

Gradients
  x  [0.8, 8, -0.0008]
"""
    )


def test_explain_of_a_long_loop_is_short() -> None:
    """Of many trips the first and the last are shown, of very many how many there are."""
    found = good("explain", "doubling.expr", "--at", "x=[1e-5, 0, 0]", "--seed", "1")
    assert "26 trips" in found and "after trip 26: y" in found and "         ...\n" in found and "after trip 10" not in found
    Path("long.expr").write_text("x: f64\ny = x\nfor i in range(500):\n    y = y*0.99\nreturn y\n")
    found = good("explain", "long.expr", "--at", "x=2")
    assert "500 trips" in found and "after trip" not in found
    assert f"x  {0.99**500:.6g}" in found


def test_explain_of_several_results_and_of_what_every_trip_reads() -> None:
    found = json.loads(good("explain", "sums.expr", "--at", "x=1.5", "--at", "y=[1, 2, 3, 4, 5, 6]", "--seed", "-2", "--json"))
    gradient = json.loads(good("grad", "sums.expr", "--at", "x=1.5", "--at", "y=[1, 2, 3, 4, 5, 6]", "--seed", "-2", "--json"))
    for name, value in gradient["gradient"].items():
        assert found["gradients"][name] == pytest.approx(value)
    loop = found["forward"][0]
    assert loop["name"] == "s" and loop["course"] == "6 trips" and [t["trip"] for t in loop["trips"]] == list(range(7))
    assert loop["trips"][3]["values"]["s"] == 1.5 * (2 + 6)
    assert all(t["gradients"]["s"] == -3.0 for t in loop["trips"])


def test_explain_of_a_branch() -> None:
    found = good("explain", "branch.expr", "--at", "x=-0.5", "--at", "y=2")
    assert "z = sin(x) * y if v1 else x * x + y  = 2.25" in found
    assert "v1 is False" in found
    assert "to x: -1" in found and "(the arm that was taken passes the gradient on, the other gets nothing)" in found


def test_the_error_of_a_file_with_a_branch() -> None:
    Path("bad.expr").write_text("x: f64[n]\nif x[0] > 0:\n    t = x[0]\nreturn t\n")
    assert refused("run", "bad.expr", "--at", "x=[1, 2]") == (
        "error: bad.expr:4:8: 't' has a value in one arm only of the if 'x[0] > 0' at bad.expr:2\n"
        "    return t\n           ^\n  give it a value before\n"
    )


def test_a_limit_of_trips() -> None:
    for name in ("run", "grad", "check", "explain"):
        assert "a loop made more than 1 trip," in refused(
            name, *AT, *(SEED if name in ("grad", "explain") else ()), "--max-trips", "1"
        )
    assert good("run", *AT, "--max-trips", "2") == good("run", *AT)
    assert "--max-trips" in refused("run", *AT, "--max-trips", "-1")


# -- FPCore -----------------------------------------------------------------------------------------------------------
def test_fpcore_by_name_and_number() -> None:
    found = json.loads(good("grad", "two.fpcore:powers of x", "--at", "n*=3", "--at", "x=2", "--seed", "-1", "--json"))
    assert found == {"value": 16.0, "gradient": {"n_": 0.0, "x": -32.0}}
    assert good("run", "two.fpcore:#1", "--at", "x=1", "--at", "y=3") == f"{float(np.float32(1) / np.float32(3))!r}\n"
    assert good("run", "two.fpcore:#1", "--at", "x=1", "--at", "y=3", "--precision", "binary64") == f"{1 / 3!r}\n"


def test_fpcore_needs_a_name_where_there_are_several() -> None:
    assert refused("run", "two.fpcore") == (
        "error: two.fpcore holds 2 FPCores; say which one, by name or number: two.fpcore:ratio\n    #1  ratio\n"
        "    #2  powers of x\n"
    )
    assert "two.fpcore has no FPCore ratoi; did you mean ratio" in refused("run", "two.fpcore:ratoi")
    assert refused("run", "three.fpcore:ratio") == "error: there is no file three.fpcore\n"
    Path("one.fpcore").write_text("(FPCore (x) (* x x))")
    assert good("run", "one.fpcore", "--at", "x=3") == "9.0\n"


def test_fpcore_missing_inputs_and_wrong_options() -> None:
    assert "powers of x' --at 'n*=3' --at x=1.5" in refused("grad", "two.fpcore:powers of x", "--at", "n*=3")
    assert "--precision is for .fpcore files" in refused("run", *AT, "--precision", "binary32")
    assert "there is no input m*; the inputs are n_, x" in refused("grad", "two.fpcore:#2", "--at", "m*=3")


def test_fpcore_in_all_commands() -> None:
    core = ("two.fpcore:#2", "--at", "n*=2.5", "--at", "x=2")
    assert "derivatives verified" in good("check", *core)
    assert "the function jumps here" in command("check", *core[:2], "n*=3", *core[3:]).stdout
    assert "while" in good("emit", "two.fpcore:#2")
    assert "3 trips" in good("explain", *core)
