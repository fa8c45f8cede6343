"""The report of a derivative check: per input and per test, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from pullback.errors import CheckError
from pullback.wording import value_text

PASSING = ("ok", "kink", "one-sided", "no effect", "infinite slope", "not tested", "lost digits")


@dataclass(frozen=True, slots=True)
class InputReport:
    """One floating input: how far its gradient is from the reference, where it is worst, and what to think of it."""

    name: str
    verdict: str  # one of PASSING, or "WRONG", "special case", "jump", "digits gone", "not finite"
    error: float = 0.0  # of the worst entry, absolute
    tolerance: float = 0.0  # for that entry
    worst: tuple[int, ...] = ()
    got: float = math.nan
    expected: float = math.nan
    line: str = ""
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict in PASSING


@dataclass(frozen=True, slots=True)
class TestReport:
    """One test of the function as a whole."""

    __test__ = False  # not a pytest class

    name: str
    verdict: str  # "ok", "FAIL" or "not tested"
    error: float = math.nan
    tolerance: float = math.nan
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict != "FAIL"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What ``check`` found at one point."""

    function: str
    reference: str  # what the gradients were compared with
    inputs: tuple[InputReport, ...]
    tests: tuple[TestReport, ...]
    flags: tuple[str, ...] = field(default=())
    seeds: Mapping[str, Any] = field(default_factory=dict)  # the gradient that each floating output was given

    @property
    def ok(self) -> bool:
        return all(i.ok for i in self.inputs) and all(t.ok for t in self.tests)

    @property
    def text(self) -> str:
        """For people."""
        verdict = "derivatives verified" if self.ok else "NOT verified"
        lines = [f"{self.function}: {verdict} (reference: {self.reference})"]
        if len(self.seeds) > 1 or any(np.ndim(seed) for seed in self.seeds.values()):  # else it is 1, as everybody expects
            told = ", ".join(f"{name} = {value_text(seed)}" for name, seed in self.seeds.items())
            lines.append(f"  seed, chosen at random, the same each time: {told}")
        width = max([len("input"), *(len(i.name) for i in self.inputs)])
        lines.append(f"  {'input':<{width}}  {'verdict':<14} {'error':>9}  {'tolerance':>9}  worst entry")
        for i in self.inputs:
            place = f"[{', '.join(map(str, i.worst))}] " if i.worst else ""
            values = f"{place}got {i.got:.12g}, expected {i.expected:.12g}" if i.got == i.got or not i.ok else place.strip()
            lines.append(f"  {i.name:<{width}}  {i.verdict:<14} {i.error:>9.1e}  {i.tolerance:>9.1e}  {values}".rstrip())
            where = f"at {i.line}" if i.line and i.verdict != "ok" and i.line not in i.note else ""
            lines += [f"  {'':<{width}}  {part}" for part in (i.note, where) if part]
        for t in self.tests:
            numbers = f" {t.error:>9.1e}  {t.tolerance:>9.1e}" if t.error == t.error and t.verdict != "not tested" else ""
            lines.append(f"  {t.name}: {t.verdict}{numbers}" + (f" ({t.note})" if t.note else ""))
        lines += [f"  note: {flag}" for flag in self.flags]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:  # so that a prompt shows the report
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Plain data; numbers that JSON does not have are strings."""
        inputs = [{**asdict(i), "worst": list(i.worst), "ok": i.ok} for i in self.inputs]
        tests = [{**asdict(t), "ok": t.ok} for t in self.tests]
        found: dict[str, Any] = {
            "function": self.function,
            "ok": self.ok,
            "reference": self.reference,
            "seed": {name: np.asarray(seed).tolist() for name, seed in self.seeds.items()},
            "inputs": inputs,
            "tests": tests,
            "flags": list(self.flags),
        }
        return {key: plain(value) for key, value in found.items()}

    def raise_if_failed(self) -> Report:
        """CheckError with the whole report, unless all is well."""
        if not self.ok:
            raise CheckError(self.text)
        return self


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
