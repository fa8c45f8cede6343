"""Small arrays taken apart: nothing changes but the form, and the form is what was meant."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.core import Block, Func, walk
from pullback.ir.interp import run
from pullback.ir.parse import parse_func
from pullback.ir.types import StackType
from pullback.ir.verify import verify
from pullback.llvm import compile_kernel
from pullback.passes.pipeline import differentiate, optimize, prepare
from pullback.passes.scalarize import scalarize
from tests.array_programs import array_program
from tests.control_programs import random_control_program


def bits(x: np.ndarray) -> tuple[str, bytes]:
    """What must not change: everything but the payload of NaN, which depends on the order of operands."""
    x = np.asarray(x)
    return str(x.dtype), np.where(np.isnan(x), np.nan, x).tobytes() if x.dtype.kind == "f" else x.tobytes()


@pytest.mark.parametrize("block", range(10))
def test_programs_that_only_move_elements_keep_their_bits(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        func, args = array_program(seed, exact=True)
        scalar = scalarize(func if seed % 2 else optimize(func))
        verify(scalar)
        assert list(map(bits, run(scalar, args))) == list(map(bits, run(func, args))), f"seed {seed}:\n{func}\n{scalar}"


@pytest.mark.parametrize("block", range(10))
def test_programs_with_sums_keep_their_values(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        func, args = array_program(seed)
        same(func if seed % 2 else optimize(func), args, f"seed {seed}")


@pytest.mark.parametrize("block", range(10))
def test_programs_with_all_kinds_of_control_flow(block: int) -> None:
    for seed in range(20 * block, 20 * block + 20):
        func, args = random_control_program(seed)
        same(func if seed % 2 else optimize(func), args, f"seed {seed}")


def same(func: Func, args: list[np.ndarray], what: str) -> None:
    """Equal to the interpreter's rounding of sums, whose order NumPy chooses by the shape."""
    try:
        expected = run(func, args)
    except Exception as error:
        with pytest.raises(type(error)):
            run(scalarize(func), args)
        return
    scalar = scalarize(func)
    verify(scalar)
    for got, want in zip(run(scalar, args), expected, strict=True):
        assert got.dtype == want.dtype and np.shape(got) == np.shape(want), f"{what}:\n{func}\n{scalar}"
        assert np.allclose(got, want, rtol=1e-12, atol=1e-12, equal_nan=True), f"{what}:\n{func}\n{scalar}"


@pytest.mark.parametrize("block", range(5))
def test_adjoints_with_tapes_compiled(block: int) -> None:
    """The whole way: adjoint, scalarize, machine code, against the interpreted adjoint."""
    for seed in range(1000 + 4 * block, 1004 + 4 * block):
        func, args = array_program(seed)
        func = optimize(func)
        reverse = differentiate(func, [p for p in func.params if p.type.is_float])
        rng = np.random.default_rng(seed)
        seeded = [*args, *(rng.normal(size=np.shape(r)) for r in run(func, args))]
        expected = run(reverse, seeded)
        for got, want in zip(compile_kernel(prepare(reverse))(seeded), expected, strict=True):
            scale = 1 + np.max(np.abs(want), initial=0, where=np.isfinite(want))
            assert np.allclose(got, want, rtol=1e-9, atol=1e-9 * scale, equal_nan=True), f"seed {seed}:\n{func}"


# -- the form -----------------------------------------------------------------------------------------------------------
def arrays_inside(func: Func) -> list[str]:
    """The ops of instructions in loops and branches that make or read arrays."""
    return [i.op.name for outer in func.body for block in outer.blocks for i in walk(block) if is_array(i)]


def is_array(instr: object) -> bool:
    values = (*instr.outs, *instr.args)
    return any((v.type.element if isinstance(v.type, StackType) else v.type).rank for v in values)


def check(text: str, *args: object) -> Func:
    func = parse_func(text)
    verify(func)
    scalar = scalarize(func)
    verify(scalar)
    for got, want in zip(run(scalar, args), run(func, args), strict=True):
        assert bits(got) == bits(want), scalar
    return scalar


STATE = """
func @f(%x0: f64[3], %w: f64[3], %n: i64) -> f64[3] {
  %x = for %n (%i, %xi = %x0) {
    %a = slice %xi {sizes = [1], starts = [0], steps = [1]} : f64[1]
    %b = slice %xi {sizes = [2], starts = [1], steps = [1]} : f64[2]
    %turned = concatenate %b, %a {axis = 0} : f64[3]
    %y = mul %turned, %w : f64[3]
    yield %y
  }
  return %x
}
"""


def test_a_carried_state_becomes_scalars() -> None:
    func = check(STATE, [1.0, -2.0, np.inf], [-0.5, -0.0, 3.0], 4)
    assert not arrays_inside(func)
    assert func.result == parse_func(STATE).result
    (loop,) = (i for i in func.body if i.blocks)
    assert len(loop.outs) == 3


def test_invariant_arrays_are_read_outside_the_loop() -> None:
    func = check(STATE, [1.0, -2.0, 4.0], [-0.5, -0.0, 3.0], 2)
    reads = [i for i in func.body if i.op.name == "slice"]
    assert len(reads) == 6


TRACED = """
func @f(%x0: f64[3], %n: i64) -> f64[3] {
  %x = for %n (%i, %xi = %x0) {
    %j = check_index %i {axis = 0, size = 3} : i64
    %a = gather %xi, %j : f64
    %b = neg %a : f64
    %y = scatter_set %xi, %j, %b : f64[3]
    yield %y
  }
  return %x
}
"""


def test_an_array_read_at_a_traced_index_stays_whole() -> None:
    func = check(TRACED, [1.0, -2.0, 4.0], 3)
    (loop,) = (i for i in func.body if i.blocks)
    assert [str(out.type) for out in loop.outs] == ["f64[3]"]
    assert str(func) == str(parse_func(TRACED))


TAPE = """
func @f(%x0: f64[2], %n: i64) -> f64[2] {
  %t0 = stack.new %n {element = f64[2]} : stack<f64[2]>
  %x, %t = for %n (%i, %xi = %x0, %ti = %t0) {
    %tn = stack.push %ti, %xi : stack<f64[2]>
    %y = sqrt %xi : f64[2]
    yield %y, %tn
  }
  %g, %te = for %n (%i2, %gi = %x, %tj = %t) {
    %rest, %e = stack.pop %tj : stack<f64[2]>, f64[2]
    %p = div %gi, %e : f64[2]
    yield %p, %rest
  }
  return %g
}
"""


def test_a_tape_of_arrays() -> None:
    func = check(TAPE, [0.0, 16.0], 3)
    assert not arrays_inside(func)


BRANCH = """
func @f(%x0: f64[2, 2], %n: i64) -> (f64, f64[2, 2]) {
  %x = for %n (%i, %xi = %x0) {
    %sq = contract %xi, %xi {axes = [[1], [0]], batch = [[], []]} : f64[2, 2]
    %tr = max %sq {axes = [0, 1]} : f64
    %ten = const 10.0 : f64
    %big = lt %ten, %tr : bool
    %y = if %big {
      %t = transpose %xi {perm = [1, 0]} : f64[2, 2]
      yield %t
    } else {
      yield %sq
    }
    yield %y
  }
  %m = min %x {axes = [0, 1]} : f64
  return %m, %x
}
"""


def test_a_branch_in_a_loop() -> None:
    func = check(BRANCH, [[1.0, 2.0], [-0.5, 0.25]], 4)
    assert not arrays_inside(func)


WHOLE = """
func @f(%x0: f64[3], %A: f64[n, 3], %n: i64) -> f64[3] {
  %x = for %n (%i, %xi = %x0) {
    %t = tanh %xi : f64[3]
    %order = argsort %t : i64[3]
    %y = gather %t, %order : f64[3]
    yield %y
  }
  return %x
}
"""


def test_what_is_needed_whole_each_trip_stays_whole() -> None:
    func = check(WHOLE, [3.0, -1.0, 2.0], np.zeros((2, 3)), 2)
    assert str(func) == str(parse_func(WHOLE))


ROW = """
func @f(%x0: f64[3], %A: f64[n, 3], %n: i64) -> f64[3] {
  %x = for %n (%i, %xi = %x0) {
    %size = size {dim = n} : i64
    %j = mod %i, %size : i64
    %row = gather %A, %j : f64[3]
    %y = mul %row, %xi : f64[3]
    yield %y
  }
  return %x
}
"""


def test_a_row_of_a_long_array_is_read_by_element() -> None:
    func = check(ROW, [3.0, -1.0, 2.0], np.arange(6.0).reshape(2, 3) - 1.5, 5)
    (loop,) = (i for i in func.body if i.blocks)
    assert len(loop.outs) == 3
    assert [i.op.name for i in walk(loop.blocks[0]) if is_array(i)] == ["gather"] * 3


def test_straight_line_code_is_left_alone() -> None:
    func = parse_func("func @f(%x: f64[3]) -> f64 {\n  %y = sum %x {axes = [0]} : f64\n  return %y\n}\n")
    assert scalarize(func) is func


def test_a_stack_that_leaves_the_function_is_one() -> None:
    func = parse_func(TAPE)
    end = func.body[-1]
    tape = next(i for i in func.body if i.blocks).outs[1]
    block = Block(func.params, (*func.body[:-1], type(end)(end.op, (), (*end.args, tape), end.attrs, (), end.loc)))
    scalar = scalarize(Func("f", block))
    verify(scalar)
    assert str(scalar.result[1]) == "stack<f64[2]>"


def test_names_stay_with_what_is_whole() -> None:
    text = STATE.replace("return %x\n", "return %x\n  names {state = %x}\n")
    func = check(text, [1.0, -2.0, 4.0], [-0.5, -0.0, 3.0], 2)
    assert dict(func.names)["state"] is func.results[0]
