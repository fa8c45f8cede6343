"""The adjoint through loops and branches: what the tapes keep, what is undone, and that bounded tapes change no gradient."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core import Func, Instr, walk
from pullback.ir.interp import run
from pullback.ir.parse import parse_func
from pullback.ir.types import StackType
from pullback.passes import binomial, segments
from pullback.passes.limits import limit_trips, with_checkpoints
from pullback.passes.pipeline import differentiate, optimize


def loop(body: str, kind: str = "f64", more: str = "") -> Func:
    """``%x`` carried ``%n`` times through ``body``, which makes ``%y``."""
    params = f"%x0: {kind}, %a: f64, %n: i64{more}"
    return optimize(
        parse_func(
            f"func @f({params}) -> {kind} {{\n  %r = for %n (%i, %x = %x0) {{\n{body}\n    yield %y\n  }}\n  return %r\n}}"
        )
    )


def tapes(func: Func) -> list[str]:
    """What is pushed, by type."""
    return sorted(str(i.args[1].type) for i in walk(func.block) if i.op.name == "stack.push")


def ops(func: Func) -> list[str]:
    return [i.op.name for i in walk(func.block)]


def gradient(func: Func) -> Func:
    return differentiate(func, [p for p in func.params if p.type.is_float])


# -- what is kept ---------------------------------------------------------------------------------------------------------
def test_a_linear_loop_keeps_nothing() -> None:
    func = gradient(loop("    %t = neg %x : f64\n    %y = add %t, %x : f64"))
    assert tapes(func) == []


def test_only_what_a_partial_reads_is_kept() -> None:
    """tanh's partial is of its result; the sum before it is not needed."""
    func = gradient(loop("    %t = add %x, %a : f64\n    %y = tanh %t : f64"))
    assert tapes(func) == ["f64"]


def test_many_values_that_come_from_the_state_are_made_again_from_it() -> None:
    body = "    %p = mul %x, %x : f64\n    %q = mul %p, %x : f64\n    %s = mul %q, %p : f64\n    %y = mul %s, %q : f64"
    assert tapes(gradient(loop(body))) == ["f64"]


def test_an_array_read_at_one_place_keeps_the_element() -> None:
    body = "    %e = gather %x, %i : f64\n    %t = sin %e : f64\n    %y = scatter_set %x, %i, %t : f64[n]"
    assert tapes(gradient(loop(body, "f64[n]"))) == ["f64"]


GAUSS_SEIDEL = """    %row = gather %A, %i : f64[n]
    %s = contract %row, %x {axes = [[0], [0]], batch = [[], []]} : f64
    %t = tanh %s : f64
    %y = scatter_set %x, %i, %t : f64[n]"""


def test_an_overwritten_array_is_restored_rather_than_kept() -> None:
    """Its partial is the whole array, but only the elements that are overwritten are kept, and one scalar for tanh."""
    func = loop(GAUSS_SEIDEL, "f64[n]", ", %A: f64[n, n]")
    reverse = gradient(func)
    assert tapes(reverse) == ["f64", "f64"]
    rng = np.random.default_rng(1)
    args = [rng.normal(size=4), 0.5, np.int64(4), rng.normal(size=(4, 4))]
    seed, step = rng.normal(size=4), 1e-6
    _, x, _, matrix = run(reverse, [*args, seed])
    for k, got in ((0, x), (3, matrix)):
        move = rng.normal(size=got.shape)
        ends = [run(func, [a + s * step * move if j == k else a for j, a in enumerate(args)])[0] for s in (1, -1)]
        assert np.sum(got * move) == pytest.approx(seed @ (ends[0] - ends[1]) / (2 * step), rel=1e-6)


def test_a_version_that_is_read_later_is_kept_whole() -> None:
    """After the update the old array is read again, so it cannot be restored in time."""
    body = """    %e = gather %x, %i : f64
    %t = sin %e : f64
    %z = scatter_set %x, %i, %t : f64[n]
    %y = mul %z, %x : f64[n]"""
    assert "f64[n]" in tapes(gradient(loop(body, "f64[n]")))


def test_branches_keep_their_decision_and_what_their_arm_needs() -> None:
    body = """    %c = lt %x, %a : bool
    %y = if %c {
      %t = sin %x : f64
      yield %t
    } else {
      yield %x
    }"""
    assert tapes(gradient(loop(body))) == ["bool", "f64"]


def test_tapes_of_counted_loops_know_their_length() -> None:
    func = gradient(loop("    %y = sin %x : f64"))
    (new,) = (i for i in walk(func.block) if i.op.name == "stack.new")
    assert len(new.args) == 1


def test_a_tape_nobody_pops_is_gone() -> None:
    func = parse_func("""func @f(%x: f64, %n: i64) -> f64 {
  %s0 = stack.new {element = f64} : stack<f64>
  %r, %s = for %n (%i, %y = %x, %t = %s0) {
    %z = sin %y : f64
    %u = stack.push %t, %z : stack<f64>
    yield %z, %u
  }
  return %r
}""")
    assert not any(isinstance(v.type, StackType) for i in walk(optimize(func).block) for v in i.outs)


# -- bounded tapes and trips ------------------------------------------------------------------------------------------------
LOGISTIC = "    %q = mul %x, %x : f64\n    %d = sub %x, %q : f64\n    %e = mul %d, %a : f64\n    %y = sin %e : f64"


@pytest.mark.parametrize("trips", [-1, 0, 1, 2, 3, 7, 8, 9, 30])
@pytest.mark.parametrize("checkpoint", [1, 3, 8, "binomial"])
def test_checkpoints_change_no_gradient(trips: int, checkpoint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binomial, "SLOTS", 4)
    monkeypatch.setattr(segments, "UNIT", 1)
    func = loop(LOGISTIC)
    args = [0.3, 3.1, np.int64(trips), -1.7]
    bounded = gradient(with_checkpoints(func, checkpoint))
    assert np.allclose(run(bounded, args), run(gradient(func), args), rtol=1e-13, atol=0)
    second, args = gradient(bounded), [*args, 0.3, -0.8, 0.4]
    assert np.allclose(run(second, args), run(gradient(gradient(func)), args), rtol=1e-11, atol=0)


def test_binomial_checkpoints_run_each_trip_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 8 places before and 8 within a stretch, 200 trips take less than three more runs (Griewank and Walther: 120 units
    of a stretch in two). One run each goes to the forward pass, the tape of a unit and the reverse unit."""
    monkeypatch.setattr(binomial, "SLOTS", 8)
    monkeypatch.setattr(segments, "UNIT", 1)
    sines = 0

    def count(instr: Instr, results: Any) -> None:
        nonlocal sines
        sines += instr.op.name == "sin"

    func = loop("    %s = sin %x : f64\n    %t = mul %s, %a : f64\n    %y = add %t, %x : f64")
    run(gradient(with_checkpoints(func, "binomial")), [0.3, 0.1, np.int64(200), 1.0], watch=count)
    assert 3 * 200 <= sines <= 5 * 200


def test_max_trips() -> None:
    func = limit_trips(loop(LOGISTIC), 10)
    assert run(func, [0.3, 3.1, np.int64(10)]) == run(loop(LOGISTIC), [0.3, 3.1, np.int64(10)])
    with pytest.raises(pb.PullbackError, match="more than 10 trips"):
        run(func, [0.3, 3.1, np.int64(11)])


def grow(x, limit):
    while x < limit:
        x = x + np.sin(x) * 0.1 + 0.2
    return x


def test_max_trips_of_a_compiled_function() -> None:
    compiled = pb.compile(grow, max_trips=20)
    assert compiled(0.5, 2.0) == pytest.approx(grow(0.5, 2.0))
    for call in (compiled, compiled.grad, pb.grad(compiled), pb.compile(lambda x, limit: 2 * compiled(x, limit))):
        with pytest.raises(pb.PullbackError, match=r"more than 20 trips.*max_trips.*test_control_adjoint\.py:\d+"):
            call(0.5, 1e6)


@pytest.mark.parametrize("options", [{"max_trips": -1}, {"max_trips": 2.5}, {"checkpoint": 0}, {"checkpoint": "all"}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(pb.PullbackError, match=f"{next(iter(options))} is a number of trips"):
        pb.compile(grow, **options)


@pytest.mark.parametrize("checkpoint", [7, "binomial"])
def test_compiled_checkpoints(checkpoint: Any) -> None:
    args = (0.5, 200.0)
    expected = pb.compile(grow).vjp(*args, seed=-1.3, wrt="x")
    assert pb.compile(grow, checkpoint=checkpoint).vjp(*args, seed=-1.3, wrt="x") == pytest.approx(expected)


MEMORY = """
import numpy as np
import pullback as pb

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

@pb.compile(checkpoint={checkpoint!r})
def f(x, a, n):
    while n > 0:
        x = x + np.sin(x) * a
        n = n - 1
    return x

f.grad(0.3, 1e-6, 100, wrt=("x", "a"))
before = peak()
f.grad(0.3, 1e-6, 1_000_000, wrt=("x", "a"))
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's account of a process's memory")
@pytest.mark.parametrize(("checkpoint", "most"), [(None, 1.5 * 8_000_000), (1000, 1_000_000), ("binomial", 1_000_000)])
def test_memory_of_a_long_loop(checkpoint: Any, most: float, tmp_path: Any) -> None:
    """A million trips, one scalar each: 8 bytes a trip, or next to nothing."""
    script = tmp_path / "long.py"
    script.write_text(MEMORY.format(checkpoint=checkpoint))
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert int(found.stdout) * 1024 <= most


# -- the example that started it ---------------------------------------------------------------------------------------------
def double(x):
    y = x * 2
    while np.linalg.norm(y) < 1000:
        y = y * 2
    return y


@pytest.mark.parametrize("make", [lambda f: f.vjp, lambda f: pb.vjp(f)])
def test_the_seed_times_a_power_of_two(make: Callable[[Any], Any]) -> None:
    vjp = make(pb.compile(double))
    rng = np.random.default_rng(0)
    seed = np.array([0.1, 1.0, 0.0001])
    for _ in range(50):
        x = rng.normal(size=3) * 10.0 ** rng.integers(-3, 4)
        value, found = vjp(x, seed=seed)
        assert np.array_equal(found, seed * (value[0] / x[0]))


# -- second derivatives through the front door -----------------------------------------------------------------------------
def smooth(x):
    y = x.copy()
    for _ in range(3):
        for i in range(1, len(y)):
            y[i] = np.sin(y[i]) * y[i - 1] + (y @ y) * 0.1
    return np.sum(y**2)


def branching(x):
    s = 0.0
    for _ in range(25):
        if x[0] > 0.2:
            s = np.tanh(s + x[0] * x[1])
        else:
            s = s * x[1] + x[2] ** 2
    return s


@pytest.mark.parametrize("function", [smooth, branching])
@pytest.mark.parametrize("checkpoint", [None, 4, "binomial"])
def test_hessians_and_products(function: Callable[[Any], Any], checkpoint: Any) -> None:
    """The reverse pass of the gradient fills a tape of its own, which the forward pass of ``pullback`` must not own."""
    compiled = pb.compile(function, checkpoint=checkpoint)
    x, step = np.array([0.3, 0.7, -0.2, 0.1, 0.4, -0.3, 0.2, 0.25, -0.1, 0.15]), 1e-5
    rows = [(compiled.grad(x + step * d) - compiled.grad(x - step * d)) / (2 * step) for d in np.eye(len(x))]
    hessian = compiled.hessian(x)
    assert np.allclose(hessian, rows, atol=1e-8)
    assert np.allclose(compiled.hvp(x, vector=x), hessian @ x)
    _, pull = pb.grad(compiled).pullback(x)
    assert np.allclose(pull(x), hessian @ x) and np.allclose(pull(-2 * x), -2 * hessian @ x)
