"""Every example runs, and says what it promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import pullback as pb
from pullback.cli.commands import cli

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
FILES = sorted(EXAMPLES.glob("*.expr"))
POINT = {
    "chain_rule": ["x=4", "y=-3", "z=5"],
    "doubling": ["x=[120, -35, 60]"],
    "quasi_poisson": ["X=[[1, 0.5], [1, -2], [1, 0.25]]", "b=[0.3, -0.4]", "y=[2, 0, 5]", "phi=1.5"],
    "black_scholes": ["spot=105", "strike=100", "r=0.1", "q=0.1", "t=0.5", "vol=0.36"],
}


def test_there_are_examples() -> None:
    assert {path.stem for path in FILES} == set(POINT)
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_script(script: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("command", ["run", "check", "explain", "grad"])
def test_file(path: Path, command: str) -> None:
    given = [part for text in POINT[path.stem] for part in ("--at", text)]
    if path.stem == "black_scholes" and command in ("grad", "explain"):
        given += ["--seed", '{"call": 1, "put": -2}']
    if path.stem == "doubling" and command in ("grad", "explain"):
        given += ["--seed", "[0.1, 1.0, 0.0001]"]
    done = CliRunner().invoke(cli, [command, str(path), *given])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip()


def test_every_file_is_documented() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in (*SCRIPTS, *FILES):
        assert path.name in text
        assert pb.load(path).frontend.doc if path.suffix == ".expr" else True
