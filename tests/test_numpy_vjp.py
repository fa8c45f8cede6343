"""Every recorded gradient of NumPy's and SciPy's functions: traced, differentiated, interpreted, and compared.

What has no rule must say so; nothing may give a wrong number.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.errors import UnsupportedError
from pullback.frontends.hooks import Session
from pullback.frontends.library import FUNCTIONS
from pullback.frontends.python_trace import finish, plant
from pullback.frontends.trace import Trace
from pullback.ir.core import Func
from pullback.ir.interp import run
from pullback.llvm import Options, compile_kernel
from pullback.passes.adjoint import adjoint
from pullback.passes.pipeline import optimize
from pullback_runtime.signature import flatten
from tests.data.numpy_vjp import Record, records
from tests.numpy_tracing import spec_of

# in this list the gradient must be right for every record; whatever else is supported must be right too
REQUIRED = """
    abs add arccos arccosh arcsin arctan arctan2 arctanh clip concatenate cosh cumsum diag diff dot einsum exp
    expand_dims expm1 fmax fmin hypot inner linspace log log10 logaddexp matmul max maximum mean minimum mod multiply
    nan_to_num negative outer pad power prod sin sinc sinh sort sqrt square std subtract sum tan tanh tile trace
    transpose tril
""".split()  # noqa: SIM905 - a list of names reads best as text
REQUIRED_LINALG = ("det", "inv", "pinv", "slogdet", "solve", "svd")
REQUIRED_SPECIAL = ("digamma", "psi", "erf", "erfc", "expit", "logit", "logsumexp")
TOLERANCE = 1e-9  # relative to the largest entry: autograd's own formulas lose digits, gamma functions most
LIMIT_COMPILED = 2  # of one function, so that the whole takes seconds
OTHER_TYPES = ("float16", "float128", "longdouble", "complex64", "complex128")


def resolve(name: str) -> Any:
    import importlib

    root, *rest = name.split(".")
    found: Any = importlib.import_module(root)
    for place, part in enumerate(rest):
        if not hasattr(found, part):
            importlib.import_module(".".join([root, *rest[: place + 1]]))
        found = getattr(found, part)
    return found


def compiled(func: Func, inputs: list[Any]) -> list[Any]:
    return list(compile_kernel(optimize(func), Options())(inputs))


def gradients(record: Record, symbolic: bool = False, execute: Callable[..., Any] = run) -> list[np.ndarray[Any, Any]]:
    """The cotangents of the differentiated arguments."""
    trace = Trace("record")
    names: list[str] = []
    inputs = [np.asarray(x, None if isinstance(x, np.ndarray) else float) for x in record.inputs]
    with trace:
        session = Session(trace)
        arrays = [plant(trace, spec_of(x, symbolic, names), f"x{k}") for k, x in enumerate(inputs)]
        result = session.call(resolve(record.name), record.arguments(arrays), dict(record.kwargs))
        traced = finish(trace, result)
    func = traced.func
    reverse = adjoint(func, list(func.params[: len(inputs)]), primal=False)
    seeds = flatten(record.cotangent)[0]
    seeds = [np.asarray(s, r.dtype.numpy) for s, r in zip(seeds, func.result, strict=True)]
    assert not traced.hidden
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # values at the ends of their range
        return list(execute(reverse, [*inputs, *seeds]))


def real_valued(record: Record) -> bool:
    arrays = [*flatten(record.slots)[0], *flatten(record.cotangent)[0], *flatten(record.gradients)[0]]
    return not any(str(getattr(a, "dtype", "")) in OTHER_TYPES for a in arrays)


def agree(found: np.ndarray[Any, Any], expected: Any) -> bool:
    wanted = np.asarray(expected)
    if found.shape != wanted.shape:
        return False
    scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1e-3)
    return np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True)


@pytest.fixture(scope="module", params=[False, True], ids=["static", "symbolic"])
def outcomes(request: pytest.FixtureRequest) -> list[tuple[Record, str, str]]:
    """For each real-valued record: "passed", "unsupported" or "wrong", and what went wrong."""
    found = []
    for record in filter(real_valued, records()):
        try:
            got = gradients(record, request.param)
        except UnsupportedError as error:
            found.append((record, "unsupported", str(error)))
            continue
        right = all(agree(a, b) for a, b in zip(got, record.gradients, strict=True))
        found.append((record, "passed" if right else "wrong", "" if right else f"{got} instead of {record.gradients}"))
    return found


def test_no_wrong_numbers(outcomes: list[tuple[Record, str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    counts: dict[str, Counter[str]] = {}
    for record, outcome, _ in outcomes:
        counts.setdefault(record.name, Counter())[outcome] += 1
    total = Counter(outcome for _, outcome, _ in outcomes)
    with capsys.disabled():
        print(f"\nrecorded gradients: {total['passed']} passed, {total['unsupported']} unsupported")
        for name, row in sorted(counts.items()):
            if row["passed"] != sum(row.values()):
                print(f"  {name}: {dict(row)}")
    wrong = [f"record {r.number} ({r.name}): {why}" for r, outcome, why in outcomes if outcome == "wrong"]
    assert not wrong, "\n".join(wrong[:20])


def test_the_required_functions_pass(outcomes: list[tuple[Record, str, str]]) -> None:
    required = {f"numpy.{name}" for name in REQUIRED} | {f"scipy.special.{name}" for name in REQUIRED_SPECIAL}
    required |= {f"numpy.linalg.{name}" for name in REQUIRED_LINALG}
    failed = [
        f"record {r.number} ({r.name}): {why}"
        for r, outcome, why in outcomes
        if r.name in required and outcome == "unsupported"
    ]
    assert not failed, "\n".join(failed[:20])


def test_what_is_in_the_library_is_supported(outcomes: list[tuple[Record, str, str]]) -> None:
    failed = [
        f"record {r.number} ({r.name}): {why}"
        for r, outcome, why in outcomes
        if r.name in FUNCTIONS and outcome == "unsupported"
    ]
    assert not failed, "\n".join(failed[:20])


def test_compiled() -> None:
    """One record of each function and keywords, as machine code."""
    seen = set()
    for record in filter(real_valued, records()):
        key = (record.name, str(record.kwargs), tuple(np.ndim(x) for x in record.inputs))
        if record.name in FUNCTIONS and key not in seen and len([k for k in seen if k[0] == record.name]) < LIMIT_COMPILED:
            seen.add(key)
            got = gradients(record, execute=compiled)
            assert all(agree(np.asarray(a), b) for a, b in zip(got, record.gradients, strict=True)), (
                record.number,
                record.name,
            )
