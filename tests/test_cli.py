"""The ``pullback`` command: what it prints, writes and refuses."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import pullback as pb
from pullback.cli.commands import STAGES, cli
from pullback.layout import arrange

MODEL = '''"""Quasi-Poisson quasi-likelihood of a log-linear model."""
X: f64[n, p]
b: f64[p]
y: f64[n]
phi: f64 = 1.0

mu = exp(X @ b)
return sum(y * log(mu) - mu) / phi
'''
B = np.array([0.3, -0.4])
Y = np.array([2.0, 0.0, 5.0])


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a matrix and a table, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    Path("model.expr").write_text(MODEL)
    np.save("X.npy", matrix())
    Path("table.csv").write_text("\ufeffname,y\nann,2\nbob,0\ncy,5\n", encoding="utf-8")
    return tmp_path


def matrix() -> np.ndarray[Any, Any]:
    return np.array([[1.0, 0.5], [1.0, -2.0], [1.0, 0.25]])


def command(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


def good(*args: str) -> str:
    done = command(*args)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*args: str) -> str:
    done = command(*args)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return done.stderr


POINT = ("model.expr", "--data", "table.csv", "--at", "X=X.npy", "--at", "b=[0.3, -0.4]")


def value_and_gradient() -> tuple[float, dict[str, Any]]:
    mu = np.exp(matrix() @ B)
    value = float(np.sum(Y * np.log(mu) - mu))
    gradient = {"X": np.outer(Y - mu, B), "b": matrix().T @ (Y - mu), "y": np.log(mu), "phi": -value}
    return value, gradient


# -- values and gradients ---------------------------------------------------------------------------------------------
def test_an_expression_alone_gives_value_and_gradient() -> None:
    out = good("x**2*sin(y)", "--at", "x=1", "--at", "y=2")
    assert out == (
        "value  0.9092974268256817\n"
        "\n"
        "input   at    gradient\n"
        "x       1.0   1.8185948536513634\n"
        "y       2.0   -0.4161468365471424\n"
    )


def test_a_file_alone_too(model: Path) -> None:
    assert good(*POINT) == good("grad", *POINT)


def test_grad_json(model: Path) -> None:
    found = json.loads(good("grad", *POINT, "--json"))
    value, gradient = value_and_gradient()
    assert found["value"] == pytest.approx(value, rel=1e-14)
    assert list(found["gradient"]) == ["X", "b", "y", "phi"]
    for name, expected in gradient.items():
        np.testing.assert_allclose(found["gradient"][name], expected, rtol=1e-13)


def test_run(model: Path) -> None:
    value, _ = value_and_gradient()
    assert float(good("run", *POINT)) == pytest.approx(value, rel=1e-14)
    assert float(good("run", *POINT, "--at", "phi=-2")) == pytest.approx(value / -2, rel=1e-14)
    assert json.loads(good("run", *POINT, "--json"))["value"] == pytest.approx(value, rel=1e-14)


def test_wrt_is_repeatable_and_takes_named_values(model: Path) -> None:
    found = json.loads(good("grad", *POINT, "--wrt", "phi", "--wrt", "mu", "--json"))["gradient"]
    assert list(found) == ["phi", "mu"]
    np.testing.assert_allclose(found["mu"], Y / np.exp(matrix() @ B) - 1, rtol=1e-14)
    assert "phi" in good("grad", *POINT, "--wrt", "phi")
    assert "no argument or named value 'nu'" in refused("grad", *POINT, "--wrt", "nu")


def test_seeds(model: Path) -> None:
    given = ("--at", "a=[[0, 0], [2, 2]]", "--at", "b=[[1, 2], [1, 2]]", "--json")
    found = json.loads(good("grad", "a @ b", *given, "--seed", "1"))["gradient"]
    assert found == {"a": [[3, 3], [3, 3]], "b": [[2, 2], [2, 2]]}
    np.save("seed.npy", [[1.0, 2.0], [3.0, 4.0]])
    for seed in ("seed.npy", "[[1, 2], [3, 4]]"):
        found = json.loads(good("grad", "a @ b", *given, "--seed", seed))["gradient"]
        assert found == {"a": [[5, 5], [11, 11]], "b": [[6, 8], [6, 8]]}
    expanded = json.loads(good("grad", "sum(a - b)", *given, "--seed", "seed.npy", "--seed-mode", "expand"))["gradient"]
    assert expanded == {"a": [[1, 2], [3, 4]], "b": [[-1, -2], [-3, -4]]}
    summed = json.loads(good("grad", "sum(a - b)", *given, "--seed", "seed.npy", "--seed-mode", "broadcast"))["gradient"]
    assert summed == {"a": [[10, 10], [10, 10]], "b": [[-10, -10], [-10, -10]]}
    assert "--seed" in refused("grad", "a @ b", *given)


def test_seeds_of_several_outputs(model: Path) -> None:
    Path("two.expr").write_text("x: f64\nq = x**2\nreturn {'a': 3*q, 'b': x}\n")
    given = ("two.expr", "--at", "x=2", "--json")
    assert json.loads(good("grad", *given, "--seed", '{"a": -1, "b": 0.5}'))["gradient"] == {"x": -11.5}
    assert json.loads(good("grad", *given, "--seed", '{"q": 2}'))["gradient"] == {"x": 8.0}
    Path("seed.json").write_text('{"b": -1}')
    assert json.loads(good("grad", *given, "--seed", "seed.json"))["gradient"] == {"x": -1.0}
    assert json.loads(good("run", *given))["value"] == {"a": 12.0, "b": 2.0}
    assert good("run", "two.expr", "--at", "x=2") == "a = 12.0\nb = 2.0\n"
    assert json.loads(good("(x, y*x)", "--at", "x=2", "--at", "y=3", "--seed", "[-1, 2]", "--json"))["gradient"] == {
        "x": 5.0,
        "y": 4.0,
    }


def test_output_files(model: Path) -> None:
    value, gradient = value_and_gradient()
    assert good("grad", *POINT, "-o", "out.npz") == ""
    with np.load("out.npz") as found:
        assert set(found) == {"value", "grad_X", "grad_b", "grad_y", "grad_phi"}
        assert found["value"] == pytest.approx(value)
        np.testing.assert_allclose(found["grad_X"], gradient["X"], rtol=1e-13)
    good("grad", *POINT, "-o", "out.json")
    assert json.loads(Path("out.json").read_text())["gradient"]["phi"] == pytest.approx(-value)
    assert "a name that ends in .npz or .json expected" in refused("run", *POINT, "-o", "out.txt")
    assert "out.json: No such file or directory" in refused("run", *POINT, "-o", "none/out.json")


def test_expressions_and_numbers_that_begin_with_a_minus() -> None:
    found = json.loads(good("-x**2 + s", "--at", "x=-3", "--at", "s=-1e-3", "--seed", "-2", "--json"))
    assert found == {"value": -9.001, "gradient": {"x": -12.0, "s": -2.0}}


def test_numbers_that_json_lacks() -> None:
    found = json.loads(good("log(x)", "--at", "x=0", "--json"))
    assert found == {"value": "-inf", "gradient": {"x": "inf"}}
    assert json.loads(good("run", "x*y", "--at", "x=nan", "--at", "y=inf", "--json"))["value"] == "nan"


def test_constants_are_inputs_only_if_given() -> None:
    assert json.loads(good("x*e", "--at", "x=2", "--json"))["gradient"] == {"x": pytest.approx(np.e)}
    assert json.loads(good("x*e", "--at", "x=2", "--at", "e=3", "--json"))["gradient"] == {"x": 3.0, "e": 2.0}


# -- data -------------------------------------------------------------------------------------------------------------
def test_tables(model: Path) -> None:
    expected = good("run", *POINT)
    np.savez("table.npz", y=Y, X=matrix())
    assert good("run", "model.expr", "--data", "table.npz", "--at", "b=[0.3, -0.4]") == expected
    Path("table.json").write_text(json.dumps({"y": Y.tolist(), "X": matrix().tolist(), "b": B.tolist()}))
    assert good("run", "model.expr", "--data", "table.json") == expected
    assert good("run", "model.expr", "--data", "table.json", "--data", "table.csv") == expected
    assert float(good("run", "sum(y)", "--data", "table.csv")) == 7.0


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("t.csv", "y\n1\ntwo\n3\n", "t.csv:3: column 'y': a number expected, got 'two'"),
        ("t.csv", 'y\n1\n""\n3\n', "t.csv:3: column 'y': a number expected, got ''"),
        ("t.csv", "y\n1\n1_000\n3\n", "column 'y': a number expected, got '1_000'"),
        ("t.csv", "y,z\n1,2\n3\n", "t.csv:3: 2 values expected, one for each column, got 1"),
        ("t.csv", "y,y\n1,2\n", "t.csv:1: two columns are named 'y'"),
        ("t.csv", "y;z\n1;2\n", "t.csv:1: commas between the columns expected, got ';'"),
        ("t.csv", "", "t.csv: the table is empty"),
        ("t.csv", "z\n1\n", "t.csv has none of the inputs X, b, y, phi; it has z"),
        ("t.json", "[1, 2]", "t.json: an object expected"),
        ("t.json", '{"y": [1, "a"]}', "t.json: y: a number or a list of numbers expected"),
        ("t.json", '{"y": [[1], [1, 2]]}', "the rows have different lengths"),
        ("t.json", "{", "t.json is not valid JSON"),
        ("t.json", "[" * 100_000, "t.json is not valid JSON"),
        ("t.npz", "no archive", "t.npz cannot be read as an archive of arrays"),
        ("t.txt", "y\n1\n", "a .csv, .npz or .json file expected"),
    ],
)
def test_bad_tables(model: Path, name: str, content: str, part: str) -> None:
    Path(name).write_text(content)
    assert part in refused("run", "model.expr", "--data", name, "--at", "X=X.npy", "--at", "b=[0.3, -0.4]")


def test_pickles_are_not_read(model: Path) -> None:
    np.save("bad.npy", np.array([{}]), allow_pickle=True)
    assert "bad.npy cannot be read as an array" in refused("run", "sum(x)", "--at", "x=bad.npy")
    np.savez("bad.npz", y=np.array([{}]))
    assert "bad.npz cannot be read" in refused("run", "sum(y)", "--data", "bad.npz")


# -- errors -----------------------------------------------------------------------------------------------------------
def test_missing_inputs(model: Path) -> None:
    assert refused("run", "model.expr", "--at", "b=[1, 2]") == (
        "error: missing inputs of model.expr:\n"
        "  X: f64[n, p]\n"
        "  y: f64[n]\n"
        "for example:\n"
        "  pullback run model.expr --at 'b=[1, 2]' --at X=X.npy --at y='[1.5, 2.5]'\n"
    )
    assert refused("x*y", "--at", "x=2") == (
        "error: missing input of x*y:\n  y: f64\nfor example:\n  pullback 'x*y' --at x=2 --at y=1.5\n"
    )
    Path("typo.csv").write_text("x,T\n1,2\n")
    assert refused("x*t", "--data", "typo.csv") == (
        "error: missing input of x*t:\n  t: f64\n"
        "typo.csv has x, T; not used: T; is T meant to be t?\n"
        "for example:\n  pullback 'x*t' --data typo.csv --at t=1.5\n"
    )


def test_missing_seeds_of_several_outputs(model: Path) -> None:
    Path("pair.expr").write_text("x: f64\ny: f64\nreturn {'call': x*y, 'put': x - y}\n")
    given = ("grad", "pair.expr", "--at", "x=2", "--at", "y=3")
    assert refused(*given) == (
        "error: pair has 2 outputs, (call, put); give the gradient of each with --seed, by its name\n"
        "  for example: --seed '{\"call\": 1}'\n"
    )
    assert "the structure (call, put), got a seed of int\n  for example: --seed '{\"call\": 1}'" in refused(
        *given, "--seed", "1"
    )
    assert json.loads(good(*given, "--seed", '{"call": 1}', "--json"))["gradient"] == {"x": 3.0, "y": 2.0}
    assert "--seed '[1, None]'" in refused("(x, 2*x)", "--at", "x=1")
    assert json.loads(good("(x, 2*x)", "--at", "x=1", "--seed", "[1, None]", "--json"))["gradient"] == {"x": 1.0}
    assert "given: --seed 1 for the gradient of its sum" in refused("3*x", "--at", "x=[1, 2]")
    assert "  seed, chosen at random, the same each time: call = " in good("check", *given[1:])
    assert good("emit", "pair.expr", "--stage", "sympy") == 'return {"call": x*y,\n        "put": x - y}\n'
    assert r"\mathrm{call} &= x y \\" in good("emit", "pair.expr", "--stage", "latex")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("x*rate", "--at", "x=1", "--at", "rtae=2"), "--at rtae: there is no input rtae; did you mean rate?"),
        (("x", "--at", "x"), "--at 'x': NAME=VALUE expected, for example --at x=1.5"),
        (("x", "--at", "x=1", "--at", "x=2"), "--at x is given twice"),
        (("x", "--at", "x=one"), "--at x: a number, a list such as [1, 2.5] or a .npy file expected, got 'one'"),
        (("x", "--at", "x=[1, 'a']"), "--at x: a number, a list such as [1, 2.5] or a .npy file expected"),
        (("x", "--at", "x=[[1], [1, 2]]"), "the rows have different lengths"),
        (("x", "--at", "x=" + "[" * 9000), "brackets are nested more than"),
        (("x", "--at", "x=__import__('os')"), "a number, a list such as"),
        (("x", "--at", "x=none.npy"), "--at x: there is no file none.npy"),
        (("x", "--at", "x=t.csv"), "pass it as --data t.csv"),
        (("none.expr",), "there is no file none.expr"),
        (("gard", "x", "--at", "x=1"), "there is no command 'gard'; did you mean grad?"),
        (("run", "x^2", "--at", "x=1"), "write x**2 for powers"),
        (("run", "x +", "--at", "x=1"), "<expression>:1:4: not valid syntax"),
        (("2x", "--at", "x=1"), "write 2*x for a product"),
        (("sin x", "--at", "x=1"), "write sin(x) for a function of x"),
        (("x*y", "--at", "x=1", "y=2"), "one --at NAME=VALUE for each input: --at y=2"),
        (("x*y", "--at", "x=1,y=2"), "one --at NAME=VALUE for each input: --at x=1 --at y=2"),
        (("run", "y = x", "--at", "x=1"), "one expression expected"),
        (("run", " ",), "the expression is empty"),
        (("run", "sum(x*y)", "--at", "x=[1,2,3]", "--at", "y=[1,2]"), "broadcast together with shapes (3,) (2,)"),
        (("grad", "3*4"), "no floating input"),
        (("x", "--at", "x=1", "--seed", "[1, 2]"), "they must be equal, or the seed a scalar"),
        (("x", "--at", "x=1", "--seed", "one"), "--seed: a number"),
        (("explain", "x*y", "--at", "x=1", "--at", "y=2", "--graph", "f.tiff"), "a picture's name ends in"),
    ],
)  # fmt: skip
def test_refused(args: tuple[str, ...], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = refused(*args)
    assert part in found
    assert found.startswith("error: ")
    assert "Traceback" not in found


def test_values_are_of_the_declared_type(model: Path) -> None:
    Path("typed.expr").write_text("k: i64\non: bool\nx: f64[n]\nreturn where(on, x*k, x)\n")
    given = ("run", "typed.expr", "--at", "x=[1, 2]")
    assert good(*given, "--at", "k=3", "--at", "on=true") == "[3. 6.]\n"
    assert "k: the input is i64: integers expected" in refused(*given, "--at", "k=1.5", "--at", "on=true")
    assert "on: the input is bool: True or False expected" in refused(*given, "--at", "k=1", "--at", "on=2")
    assert "the input is f64[n]: a list of numbers expected, got an array of shape ()" in refused(
        "run", "typed.expr", "--at", "x=1"
    )


# -- check, explain, emit -----------------------------------------------------------------------------------------------
def test_check(model: Path) -> None:
    assert "derivatives verified" in good("check", *POINT)
    found = json.loads(good("check", *POINT, "--json"))
    assert found["ok"] and {i["name"] for i in found["inputs"]} == {"X", "b", "y", "phi"}


def test_check_fails_with_status_1(model: Path) -> None:
    done = command("check", "floor(x)", "--at", "x=2")  # a jump: no derivative is right there
    assert done.exit_code == 1
    assert "NOT verified" in done.stdout


def test_explain_tells_the_chain_rule(model: Path) -> None:
    Path("chain.expr").write_text("x: f64\ny: f64\nz: f64\nq = x + y\nf = q*z\nreturn f\n")
    assert good("explain", "chain.expr", "--at", "x=-2", "--at", "y=5", "--at", "z=-4") == (
        "chain at x = -2, y = 5, z = -4\n"
        "\n"
        "Forward: each step and its value\n"
        "    1  q = x + y  = 3\n"
        "    2  f = q * z  = -12\n"
        "\n"
        "Backward: by the chain rule, each step passes (gradient of its result) x (local partial) on.\n"
        "  Start: the gradient of f is the seed: 1\n"
        "    2  f = q * z\n"
        "       gradient of f: 1\n"
        "         to q: df/dq = z = -4, so 1 * (-4) = -4\n"
        "         to z: df/dz = q = 3, so 1 * 3 = 3\n"
        "    1  q = x + y\n"
        "       gradient of q: -4\n"
        "         to x: dq/dx = 1, so -4 * 1 = -4\n"
        "         to y: dq/dy = 1, so -4 * 1 = -4\n"
        "\n"
        "Gradients\n"
        "  x  -4\n"
        "  y  -4\n"
        "  z  3\n"
    )


def test_explain_adds_up_and_is_right(model: Path) -> None:
    assert "x  1 + (-3) = -2\n" in good("explain", "x*y + x", "--at", "x=2", "--at", "y=-3")
    found = json.loads(good("explain", *POINT, "--seed", "-2", "--json"))
    _, gradient = value_and_gradient()
    for name, expected in gradient.items():
        np.testing.assert_allclose(found["gradients"][name], -2 * expected, rtol=1e-13)
    assert [s["name"] for s in found["forward"]][1] == "mu"
    last = found["backward"][0]
    assert last["adjoint"] == -2.0
    for part in last["contributions"]:
        assert part["value"] == pytest.approx(part["partial"] * last["adjoint"])


def test_partials_are_written_shortly() -> None:
    assert "df/dx = 1 / x = 0.5" in good("explain", "log(x)", "--at", "x=2")


def test_explain_of_an_untaken_branch() -> None:
    found = json.loads(good("explain", "sum(where(x > 0, sqrt(x), 0*x))", "--at", "x=[-1, 4]", "--json"))
    assert found["gradients"]["x"] == [0.0, 0.25]


def test_graphs(model: Path) -> None:
    for name in ("f.svg", "f.png", "f.dot"):
        good("explain", *POINT, "--graph", name)
    assert ET.parse("f.svg").getroot().tag.endswith("svg")
    assert Path("f.png").read_bytes().startswith(b"\x89PNG")
    assert Path("f.dot").read_text().startswith('digraph "model"')


def test_boxes_and_arrows_keep_clear_of_each_other() -> None:
    sources = {"a": (), "b": (), "c": ("a",), "d": ("c", "b"), "e": ("d", "a"), "f": ("e", "d", "a", "b"), "g": ("d",)}
    sizes = {key: (40.0 + 15 * k, 30.0 + 5 * (k % 3)) for k, key in enumerate(sources)}
    layout = arrange(sizes, sources)
    assert {(a.source, a.target) for a in layout.arrows} == {(s, t) for t, found in sources.items() for s in found}
    boxes = {k: (x - sizes[k][0] / 2, y - sizes[k][1] / 2, x + sizes[k][0] / 2, y + sizes[k][1] / 2)
             for k, (x, y) in layout.centres.items()}  # fmt: skip
    for k, (left, top, right, bottom) in boxes.items():
        assert left >= -1e-9 and top >= -1e-9 and right <= layout.size[0] + 1e-9 and bottom <= layout.size[1] + 1e-9
        for other, (l2, t2, r2, b2) in boxes.items():
            assert other == k or right < l2 or r2 < left or bottom < t2 or b2 < top
    for arrow in layout.arrows:
        assert arrow.corners[0][1] == boxes[arrow.source][3] and arrow.corners[-1][1] == boxes[arrow.target][1]
        for k, ((x, y), (to_x, to_y)) in enumerate(pairwise(arrow.corners)):
            for left, top, right, bottom in boxes.values():
                inside = max(x, to_x) > left and min(x, to_x) < right if k % 2 else left < x < right
                assert not (inside and max(y, top) + 1e-9 < min(to_y, bottom))


def test_pictures_name_the_outputs(model: Path) -> None:
    Path("pair.expr").write_text("x: f64\ny: f64\nreturn {'call': x*y, 'put': x - y}\n")
    good("explain", "pair.expr", "--at", "x=2", "--at", "y=3", "--seed", '{"call": 1}', "--graph", "pair.dot")
    assert 'label="call = x * y' in Path("pair.dot").read_text() and 'label="put = x - y' in Path("pair.dot").read_text()
    assert 'label="put = x - y' in good("emit", "pair.expr", "--stage", "dot")


def test_explain_of_a_function() -> None:
    scale = np.array([1.0, -2.0, 0.5])

    @pb.compile
    def energy(p: Any) -> Any:
        h = pb.name("h", np.tanh(scale * p["a"]))
        return np.sum(h * p["b"])

    a = np.array([1.0, 0.3, -2.0])
    story = energy.explain({"a": a, "b": 2.0}, seed=-1.5)
    expected = energy.grad({"a": a, "b": 2.0}, seed=-1.5)
    assert list(story.gradients) == ["p['a']", "p['b']"]  # not the captured array
    np.testing.assert_allclose(story.gradients["p['a']"], expected["a"], rtol=1e-14)
    np.testing.assert_allclose(story.gradients["p['b']"], expected["b"], rtol=1e-14)
    assert "h = tanh(" in story.text
    assert energy.graph().startswith('digraph "energy"')


def test_graphs_without_matplotlib(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "drawing f.svg needs Matplotlib: pip install matplotlib; a .dot" in refused("explain", *POINT, "--graph", "f.svg")


@pytest.mark.parametrize("stage", STAGES)
def test_emit(model: Path, stage: str) -> None:
    given = POINT if stage in ("sympy", "latex") else ("model.expr",)  # SymPy writes out elements, so it needs lengths
    out = good("emit", *given, "--stage", stage)
    expected = {
        "ir": r"func @model\(%X: f64\[n, p\]",
        "adjoint": r"func @model_adj\(",
        "loops": r"kernel model_adj\(",
        "llvm": r"define .*@k\(",
        "asm": r"\.globl\s+k",
        "sympy": r"mu_0 = exp\(",
        "latex": r"\\begin\{aligned\}",
        "dot": r'label="mu = exp\(v1\)',
    }
    assert re.search(expected[stage], out), out


def test_emit_of_an_expression() -> None:
    assert good("emit", "x**2*sin(y)", "--stage", "sympy") == "return x**2*sin(y)\n"
    assert "%x_adj" in good("emit", "x**2*sin(y)", "--stage", "adjoint")


# -- the program itself -----------------------------------------------------------------------------------------------
def test_help() -> None:
    out = good("--help")
    for word in ("run", "grad", "check", "explain", "emit", "pullback 'x**2*sin(y)' --at x=1 --at y=2"):
        assert word in out
    for name in ("run", "grad", "check", "explain", "emit"):
        assert "--at NAME=VALUE" in good(name, "--help")
    assert re.fullmatch(r"pullback, version \d+\.\d+\.\d+\n", good("--version"))


def shell(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "pullback.cli", *args], cwd=cwd, capture_output=True, text=True, timeout=60)


def test_the_process(tmp_path: Path) -> None:
    done = shell("x**2*sin(y)", "--at", "x=1", "--at", "y=2", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["gradient"]["x"] == pytest.approx(2 * np.sin(2.0))
    done = shell("run", "x*y", "--at", "x=1", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: missing input of x*y:")
    (tmp_path / "hostile.expr").write_text("(" * 10**6 + "x" + ")" * 10**6)
    done = shell("run", "hostile.expr", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: hostile.expr: the ")
