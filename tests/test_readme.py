"""What the README tells people to type is what works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pullback.cli.commands import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
RUN, TEST = re.findall(r"```sh\n(.*?)\n```", README, re.DOTALL)
SHOWN = re.findall(r"^\$ (pullback .*?)(?:\s+#.*)?$", README, re.MULTILINE)


def test_main_command(monkeypatch: pytest.MonkeyPatch) -> None:
    install, command = RUN.split(" && ")
    assert install == "pip install ."
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    assert "b" in result.output


def test_check_calls_the_same_commands() -> None:
    """.ci/run runs the README's test command, on an install by the README's way (with the tools for lint and types)."""
    script = (ROOT / ".ci" / "run").read_text()
    install, command = TEST.split(" && ")
    assert command in script
    assert install == "pip install -e '.[test]'"
    assert "-e '.[test,dev]'" in script


@pytest.mark.parametrize("command", SHOWN)
def test_shown_commands(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a directory that sees the project's, for some leave files."""
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output


def test_python_blocks_run_in_order(tmp_path: Path) -> None:
    """As somebody would paste them into a file, one after the other."""
    names: dict[str, object] = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)\n```", README, re.DOTALL)):
        file = tmp_path / f"block{number}.py"  # loops and branches need their source
        file.write_text(block)
        exec(compile(block, str(file), "exec"), names)
    assert np.allclose(names["x"].grad, [0.128, -0.096])  # type: ignore[attr-defined]  # a variable


def test_version() -> None:
    import pullback

    assert f'version = "{pullback.__version__}"' in (ROOT / "pyproject.toml").read_text()
