"""The memory that one gradient takes, in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.bench.frame import Task


def of(task: str, contestant: str) -> int | None:
    """Bytes; None where the system does not tell (only Linux does)."""
    command = [sys.executable, "-m", "tests.bench", "--child", task, contestant]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    found: int | None = json.loads(done.stdout.splitlines()[-1])
    return found


def child(task: Task, contestant: str) -> None:
    """Prints how much the peak grew by the first long gradient; all code was compiled by a short one."""
    (chosen,) = (c for c in task.contestants if c.name == contestant)
    calls = chosen.prepare()
    if calls is None or calls.gradient is None or calls.small is None or not Path("/proc/self/clear_refs").exists():
        print("null")
        return
    calls.small()
    _release()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = _kilobytes("VmRSS")
    calls.gradient()
    print(1024 * (_kilobytes("VmHWM") - before))


def _release() -> None:
    """Free memory goes back to the system: else what compiling left behind would serve the tape unseen."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
    if trim is not None:
        trim(0)


def _kilobytes(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found.group(1))
