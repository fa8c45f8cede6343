"""What is measured in a process of its own: the time from the source to the first gradient, and memory. A contestant that takes
too long there is stopped, and never stalls the run."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.frame import OURS, Calls, Contestant, Task, explained, failing

OVER = "over the limit"
AGAIN = 5.0  # seconds: one whose second gradient takes longer is not measured further


@dataclass
class Start:
    """Of one contestant: the first gradient and the next, in seconds; or the problem."""

    first: float | None = None
    second: float | None = None
    busy: float | None = None  # of the first: the processor's time
    problem: str = ""


def start(task: Task, contestant: Contestant, limit: float) -> Start:
    """The first gradient in a fresh process, without a cache on disk."""
    return started("start", task.name, contestant.name, limit, {"PULLBACK_CACHE": "0"})


def cached_start(task: Task, limit: float) -> float | None:
    """Ours, in the second of two processes that share a cache on disk; what ``import pullback`` leaves for later is counted."""
    with tempfile.TemporaryDirectory() as folder:
        place = {"PULLBACK_CACHE": "1", "PULLBACK_CACHE_DIR": str(Path(folder) / "cache")}
        started("cached", task.name, OURS, limit, place)
        return started("cached", task.name, OURS, limit, place).first


def started(kind: str, task: str, contestant: str, limit: float, settings: dict[str, str]) -> Start:
    told = child(kind, task, contestant, limit, settings)
    return told if isinstance(told, Start) else Start(**told)


def child(kind: str, task: str, contestant: str, limit: float, settings: dict[str, str]) -> Any:
    """What the process prints; a Start with a problem where there is nothing to read."""
    command = [sys.executable, "-m", "tests.bench", "--child", kind, task, contestant]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **settings},
        start_new_session=True,  # it may have started a compiler, which ends with it
    )
    try:
        out, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Start(problem=f"{OVER}, {limit:.0f} s")
    lines = out.splitlines()
    if process.returncode or not lines:
        return Start(problem=f"the process ended with status {process.returncode}")
    return json.loads(lines[-1])


# -- within that process ------------------------------------------------------------------------------------------------
def main(kind: str, task: Task, contestant: str) -> None:
    (chosen,) = (c for c in task.contestants if c.name == contestant)
    if kind == "cached":
        import pullback  # noqa: F401  # and no more

        chosen = replace(chosen, load=lambda: None)
    if kind == "warm":  # what a first compilation has to set up is not counted
        warmed(contestant)
    print(json.dumps(told_memory(task, chosen) if kind == "memory" else told_start(task, chosen, kind != "warm")))


def warmed(contestant: str) -> None:
    from tests.bench import suite

    for chosen in suite.named("dag-50").contestants:
        if chosen.name == contestant:
            chosen.load()
            calls = chosen.prepare()
            if calls and calls.gradient:
                calls.gradient()


def told_start(task: Task, contestant: Contestant, check: bool) -> dict[str, Any]:
    made = task.args  # not counted either
    contestant.load()
    try:
        begin, busy = time.perf_counter(), time.process_time()
        calls = contestant.prepare()
        if calls is None or calls.gradient is None:
            return {"problem": "not there"}
        outcome = calls.gradient()
        first, busy = time.perf_counter() - begin, time.process_time() - busy
        begin = time.perf_counter()
        calls.gradient()
        second = time.perf_counter() - begin
    except Exception as error:  # it is reported
        return {"problem": explained(error)}
    problem = failing(Calls(None, lambda: outcome), task.reference(), task.tolerance) if check else ""
    if not problem and second > AGAIN:
        problem = f"a gradient takes {second:.0f} s"
    del made
    return {"first": first, "second": second, "busy": busy, "problem": problem}


def memory(task: Task, contestant: str, limit: float) -> int | None:
    """Bytes; None where the system does not tell (only Linux does)."""
    found = child("memory", task.name, contestant, limit, {})
    return found if isinstance(found, int) else None


def told_memory(task: Task, contestant: Contestant) -> int | None:
    """How much the peak grew by a gradient; all code was compiled by a short one, or by the same one if there is none."""
    calls = contestant.prepare()
    if calls is None or calls.gradient is None or not Path("/proc/self/clear_refs").exists():
        return None
    (calls.small or calls.gradient)()
    _release()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = _kilobytes("VmRSS")
    kept = calls.gradient()  # with the results
    peak = _kilobytes("VmHWM")
    del kept
    return 1024 * (peak - before)


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
