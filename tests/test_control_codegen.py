"""Generated code for loops, branches and tapes against the interpreter; what is copied; what a trip costs."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pullback.errors import DTypeError, PullbackError, UnsupportedError
from pullback.ir.interp import run
from pullback.ir.parse import parse_func
from pullback.ir.verify import verify
from pullback.llvm import compile_kernel

RNG = np.random.default_rng(11)
VECTOR = np.array([1.5, -0.5, 2.25, 0.75, -3.0, 0.125, 4.5, -1.25, 0.5, 2.0])


def program(text):
    func = parse_func(text)
    verify(func)
    return func


def agree(func, *args):
    """What is compiled gives the bits that the interpreter gives (sums of a nest aside), and leaves its arguments alone."""
    expected = run(func, args)
    given = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    found = compile_kernel(func)(given)
    for value, want in zip(found, expected, strict=True):
        assert np.shape(value) == want.shape
        np.testing.assert_allclose(np.asarray(value), want, rtol=1e-14, atol=1e-15, err_msg=str(func))
    for old, new in zip(args, given, strict=True):
        np.testing.assert_array_equal(old, new)
    return found


def copies(func):
    """How many copies of arrays the loops show, and how many exchanges of pointers."""
    text = compile_kernel(func).texts("loops")
    return text.count("# copy"), text.count(" swap ")


def seconds(func, *args):
    kernel = compile_kernel(func)
    kernel(list(args))
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        kernel(list(args))
        best = min(best, time.perf_counter() - start)
    return best


# -- carried scalars ----------------------------------------------------------------------------------------------------
def test_swapped_scalars():
    func = program("""func @fibonacci(%n: i64) -> (i64, i64) {
  %zero = const 0 : i64
  %one = const 1 : i64
  %a, %b = for %n (%i, %x = %zero, %y = %one) {
    %s = add %x, %y : i64
    yield %y, %s
  }
  return %a, %b
}
""")
    for n in (-3, 0, 1, 2, 30):
        agree(func, n)


def test_a_bound_that_the_data_decide_and_a_value_from_outside():
    func = program("""func @f(%x: f64[n], %b: f64) -> f64 {
  %t = sum %x {axes = [0]} : f64
  %k = convert %t {dtype = "i64"} : i64
  %y = for %k (%i, %z = %b) {
    %j = convert %i {dtype = "f64"} : f64
    %u = mul %z, %b : f64
    %v = add %u, %j : f64
    yield %v
  }
  return %y
}
""")
    for n in (0, 3, 10):
        agree(func, np.abs(VECTOR[:n]), -0.75)
    agree(func, VECTOR[4:5], -0.75)


def test_more_trips_than_a_strip():
    func = program("""func @f(%n: i64, %x: f64) -> (f64, i64) {
  %half = const 0.5 : f64
  %zero = const 0 : i64
  %y, %s = for %n (%i, %z = %x, %c = %zero) {
    %u = mul %z, %half : f64
    %v = add %u, %x : f64
    %d = add %c, %i : i64
    yield %v, %d
  }
  return %y, %s
}
""")
    for n in (65535, 65536, 65537, 200_000):
        found, total = compile_kernel(func)([n, 1.5])
        assert (found, total) == (3.0, n * (n - 1) // 2)


def test_a_while_within_an_if_within_a_for():
    func = program("""func @collatz(%n: i64) -> (i64, bool) {
  %zero = const 0 : i64
  %one = const 1 : i64
  %two = const 2 : i64
  %three = const 3 : i64
  %no = const false : bool
  %most, %odd = for %n (%i, %m = %zero, %o = %no) {
    %big = gt %i, %one : bool
    %k = if %big {
      %last, %count = while (%a = %i, %c = %zero) {
        %go = gt %a, %one : bool
        yield %go
      } do {
        %r = mod %a, %two : i64
        %even = eq %r, %zero : bool
        %b = if %even {
          %h = floordiv %a, %two : i64
          yield %h
        } else {
          %t = mul %a, %three : i64
          %u = add %t, %one : i64
          yield %u
        }
        %d = add %c, %one : i64
        yield %b, %d
      }
      yield %count
    } else {
      yield %zero
    }
    %m2 = maximum %m, %k : i64
    %o2 = ne %m2, %m : bool
    yield %m2, %o2
  }
  return %most, %odd
}
""")
    for n in (0, 1, 2, 28, 100):
        agree(func, n)


# -- carried arrays -----------------------------------------------------------------------------------------------------
STEP = """func @steps(%n: i64, %x: f64[n0]) -> f64[n0] {
  %y = for %n (%i, %z = %x) {
    %t = tanh %z : f64[n0]
    %r = slice %t {sizes = [n0], starts = [n0 - 1], steps = [-1]} : f64[n0]
    %u = add %z, %r : f64[n0]
    yield %u
  }
  return %y
}
"""


@pytest.mark.parametrize("size", ("n0", "4"))
def test_a_whole_array_from_the_old_one(size):
    func = program(STEP.replace("n0 - 1", str(Size(size) - 1)).replace("n0", size))
    for trips in (-1, 0, 1, 2, 5):
        for n in (0, 1, 10) if size == "n0" else (4,):
            agree(func, trips, VECTOR[:n])
    assert copies(func)[1] == 1  # the pointers of the two buffers


def Size(text):
    from pullback.ir.dims import Dim

    return Dim.parse(text)


SWAPPED = """func @swapped(%n: i64, %x: f64[n0], %y: f64[n0]) -> (f64[n0], f64[n0], f64[n0]) {
  %a, %b, %c = for %n (%i, %u = %x, %v = %y, %w = %x) {
    %k = const 0 : i64
    %e = gather %u, %k : f64
    %d = add %e, %e : f64
    %p = scatter_set %u, %k, %d : f64[n0]
    yield %v, %p, %w
  }
  return %a, %b, %c
}
"""


def test_arrays_that_change_places_and_share_their_initial_value():
    func = program(SWAPPED)
    for trips in (0, 1, 2, 3):
        agree(func, trips, VECTOR, VECTOR[::-1].copy())
    text = compile_kernel(func).texts("loops")
    inside = text[text.index("trips") :]
    assert "swap" in inside and "for i" not in inside.split("swap")[0]


def test_one_initial_value_for_two():
    func = program("""func @f(%n: i64, %x: f64[n0]) -> (f64[n0], f64[n0], f64[n0]) {
  %h = exp %x : f64[n0]
  %a, %b, %c = for %n (%i, %u = %h, %v = %h, %w = %h) {
    %k = const 1 : i64
    %e = gather %u, %k : f64
    %f = gather %v, %k : f64
    %g = mul %e, %f : f64
    %p = scatter_set %u, %k, %g : f64[n0]
    %q = scatter_add %v, %k, %e : f64[n0]
    yield %p, %q, %u
  }
  return %a, %b, %c
}
""")
    for trips in (0, 1, 2, 3):
        agree(func, trips, VECTOR)


def test_one_value_yielded_twice_and_one_from_outside():
    func = program("""func @f(%n: i64, %x: f64[n0]) -> (f64[n0], f64[n0], f64[n0]) {
  %a, %b, %c = for %n (%i, %u = %x, %v = %x, %w = %x) {
    %k = const 1 : i64
    %e = gather %u, %k : f64
    %p = scatter_add %w, %k, %e : f64[n0]
    %q = add %v, %p : f64[n0]
    yield %q, %q, %x
  }
  return %a, %b, %c
}
""")
    for trips in (0, 1, 2, 4):
        agree(func, trips, VECTOR)


def test_a_captured_array_is_not_changed_by_its_update():
    func = program("""func @f(%n: i64, %x: f64[n0]) -> (f64, f64[n0]) {
  %zero = const 0.0 : f64
  %h = exp %x : f64[n0]
  %s = for %n (%i, %t = %zero) {
    %k = const 1 : i64
    %p = scatter_add %h, %k, %t : f64[n0]
    %q = sum %p {axes = [0]} : f64
    %r = tanh %q : f64
    yield %r
  }
  return %s, %h
}
""")
    for trips in (0, 1, 4):
        agree(func, trips, VECTOR)


def test_readers_of_the_old_version_come_first():
    """The new element depends on the old array, a later result on the old element: no copy."""
    func = program("""func @f(%n: i64, %x: f64[n0]) -> (f64[n0], f64) {
  %zero = const 0.0 : f64
  %a, %b = for %n (%i, %u = %x, %t = %zero) {
    %k = const 2 : i64
    %j = const 1 : i64
    %s = sum %u {axes = [0]} : f64
    %c = tanh %s : f64
    %p = scatter_set %u, %k, %c : f64[n0]
    %e = gather %u, %j : f64
    %d = gather %u, %k : f64
    %f = add %e, %d : f64
    %g = add %f, %t : f64
    yield %p, %g
  }
  return %a, %b
}
""")
    for trips in (0, 1, 2, 5):
        agree(func, trips, VECTOR)
    assert copies(func) == (1, 0)  # of the argument


def test_a_true_cycle_is_copied():
    func = program("""func @f(%n: i64, %x: f64[n0]) -> f64[n0] {
  %a = for %n (%i, %u = %x) {
    %k = const 2 : i64
    %d = gather %u, %i : f64
    %p = scatter_set %u, %k, %d : f64[n0]
    %e = gather %p, %k : f64
    %f = slice %u {sizes = [n0], starts = [n0 - 1], steps = [-1]} : f64[n0]
    %g = add %p, %f : f64[n0]
    yield %g
  }
  return %a
}
""")
    for trips in (0, 1, 2, 5):
        agree(func, trips, VECTOR)


def test_sorting_by_exchange_costs_nothing_but_the_exchange():
    text = """func @bubble(%x: f64[n]) -> f64[n] {
  %one = const 1 : i64
  %n = size {dim = n} : i64
  %last = sub %n, %one : i64
  %y = for %last (%i, %a = %x) {
    %z = for %last (%j, %b = %a) {
      %k = add %j, %one : i64
      %left = gather %b, %j : f64
      %right = gather %b, %k : f64
      %wrong = gt %left, %right : bool
      %c = if %wrong {
        %d = scatter_set %b, %j, %right : f64[n]
        %e = scatter_set %d, %k, %left : f64[n]
        yield %e
      } else {
        yield %b
      }
      yield %c
    }
    yield %z
  }
  return %y
}
"""
    func = program(text)
    for n in (0, 1, 2, 10):
        agree(func, VECTOR[:n])
    assert copies(func) == (1, 0)
    x = RNG.normal(size=1000)
    (found,) = compile_kernel(func)([x])
    np.testing.assert_array_equal(found, np.sort(x))
    assert seconds(func, x) < 0.05  # 1e6 trips; a copy in each would take 0.1 s and more


UPDATES = """func @updates(%x: f64[n], %k: i64) -> f64[n] {
  %n = size {dim = n} : i64
  %c = const 7919 : i64
  %y = for %k (%i, %a = %x) {
    %p = mul %i, %c : i64
    %j = mod %p, %n : i64
    %q = check_index %j {axis = 0, size = n} : i64
    %v = gather %a, %q : f64
    %w = cos %v : f64
    %b = scatter_add %a, %q, %w : f64[n]
    %d = length %q {bound = n, symbol = "s"} : i64
    %e = reshape %w {shape = [1]} : f64[1]
    yield %b
  }
  return %y
}
"""


def test_updates_of_single_elements_take_constant_time():
    func = program(UPDATES)
    agree(func, VECTOR, 25)
    assert copies(func) == (1, 0)
    assert seconds(func, np.zeros(1_000_000), 100_000) < 0.1


def test_slices_that_begin_at_a_trip_number():
    func = program("""func @f(%x: f64[n]) -> (f64[n], f64) {
  %zero = const 0.0 : f64
  %n = size {dim = n} : i64
  %y, %t = for %n (%i, %a = %x, %s = %zero) {
    %k = length %i {bound = n, symbol = "k"} : i64
    %row = slice %a {sizes = [k], starts = [0], steps = [1]} : f64[k]
    %sum = sum %row {axes = [0]} : f64
    %rest = slice %a {sizes = [n - k], starts = [k], steps = [1]} : f64[n - k]
    %top = sum %rest {axes = [0]} : f64
    %d = sub %sum, %top : f64
    %e = tanh %d : f64
    %e1 = reshape %e {shape = [1]} : f64[1]
    %b = slice_set %a, %e1 {starts = [k], steps = [1]} : f64[n]
    %c = add %s, %sum : f64
    yield %b, %c
  }
  return %y, %t
}
""")
    for n in (0, 1, 2, 10):
        agree(func, VECTOR[:n])
    assert copies(func) == (1, 0)


def test_an_index_of_an_outer_loop_is_checked_in_the_inner_one():
    func = program("""func @f(%x: f64[n], %y: f64[m], %k: i64) -> f64 {
  %zero = const 0.0 : f64
  %three = const 3 : i64
  %r = for %k (%i, %s = %zero) {
    %t = for %i (%j, %u = %s) {
      %p = check_index %i {axis = 0, size = n} : i64
      %a = gather %x, %p : f64
      %late = gt %j, %three : bool
      %b = if %late {
        %q = check_index %i {axis = 0, size = m} : i64
        %c = gather %y, %q : f64
        yield %c
      } else {
        yield %a
      }
      %v = add %u, %b : f64
      yield %v
    }
    yield %t
  }
  return %r
}
""")
    agree(func, VECTOR, VECTOR[:7], 7)
    agree(func, VECTOR[:4], VECTOR[:0], 4)
    with pytest.raises(IndexError, match=r"index 7 .* size 7"):
        compile_kernel(func)([VECTOR, VECTOR[:7], 8])
    with pytest.raises(IndexError, match=r"index 4 .* size 4"):
        compile_kernel(func)([VECTOR[:4], VECTOR, 5])


@pytest.mark.parametrize(
    ("bound", "index", "checks"),
    (
        ("%n", "%i", 0),  # range(n)
        ("%n", "%back", 0),  # n - 1 - i
        ("%less", "%next", 0),  # i + 1 for i in range(n - 1)
        ("%n", "%next", 1),
        ("%k", "%i", 1),
        ("%n", "%before", 1),  # i - 1, which may wrap
    ),
)
def test_checks_that_cannot_fail_are_not_made(bound, index, checks):
    func = program(f"""func @f(%x: f64[n], %k: i64) -> f64 {{
  %zero = const 0.0 : f64
  %one = const 1 : i64
  %n = size {{dim = n}} : i64
  %less = size {{dim = n - 1}} : i64
  %r = for {bound} (%i, %s = %zero) {{
    %b0 = sub %n, %i : i64
    %back = sub %b0, %one : i64
    %next = add %i, %one : i64
    %before = sub %i, %one : i64
    %p = check_index {index} {{axis = 0, size = n}} : i64
    %a = gather %x, %p : f64
    %half = mul %s, %a : f64
    %v = add %half, %a : f64
    yield %v
  }}
  return %r
}}
""")
    assert compile_kernel(func).texts("loops").count("unless") == checks
    if (bound, index) == ("%n", "%next"):
        with pytest.raises(IndexError, match="index 10 is out of bounds"):
            compile_kernel(func)([VECTOR, 3])
    else:
        for n in (0, 1, 10):
            agree(func, VECTOR[:n], n)


def test_what_needs_its_own_element_alone_is_computed_in_place():
    func = program("""func @f(%n: i64, %x: f64[m], %y: f64[m]) -> (f64[m], f64[m], f64) {
  %zero = const 0.0 : f64
  %a, %b, %s = for %n (%i, %u = %x, %v = %y, %t = %zero) {
    %d = sum %u {axes = [0]} : f64
    %p = mul %u, %v : f64[m]
    %q = tanh %p : f64[m]
    %e = broadcast %d {axes = [], shape = [m]} : f64[m]
    %w = sub %v, %e : f64[m]
    %z = sin %w : f64[m]
    %t2 = add %t, %d : f64
    yield %q, %z, %t2
  }
  return %a, %b, %s
}
""")
    for trips in (0, 1, 2, 5):
        for n in (0, 1, 10):
            agree(func, trips, VECTOR[:n], VECTOR[::-1][:n].copy())
    assert compile_kernel(func).texts("loops").count("region") == 0 and copies(func)[1] == 0


# -- branches -----------------------------------------------------------------------------------------------------------
BRANCH = """func @branch(%c: f64, %x: f64[n], %y: f64[n]) -> (f64[n], f64[n], f64) {
  %zero = const 0.0 : f64
  %k = const 0 : i64
  %u = exp %x : f64[n]
  %v = tanh %y : f64[n]
  %up = gt %c, %zero : bool
  %p, %q, %r = if %up {
    %e = scatter_set %u, %k, %c : f64[n]
    yield %e, %v, %c
  } else {
    %s = sum %u {axes = [0]} : f64
    yield %v, %u, %s
  }
  return %p, %q, %r
}
"""


def test_a_branch_updates_or_exchanges():
    func = program(BRANCH)
    for c in (1.5, -2.5):
        agree(func, c, VECTOR, VECTOR[::-1].copy())
    text = compile_kernel(func).texts("loops")
    inside = text[text.index("if %") :]
    assert "swap" in inside


def test_branches_that_compute_anew_store_in_one_place():
    func = program("""func @f(%c: bool, %x: f64[n], %y: f64[3]) -> (f64[n], f64[3]) {
  %p, %q = if %c {
    %e = exp %x : f64[n]
    %k = const [1.0, 2.0, 3.0] : f64[3]
    yield %e, %k
  } else {
    %f = neg %y : f64[3]
    yield %x, %f
  }
  return %p, %q
}
""")
    for c in (True, False):
        for n in (0, 1, 10):
            agree(func, c, VECTOR[:n], VECTOR[:3])


def test_a_value_that_lives_on_is_not_overwritten_by_a_branch():
    func = program("""func @f(%c: bool, %x: f64[n]) -> (f64[n], f64[n]) {
  %k = const 0 : i64
  %h = exp %x : f64[n]
  %p = if %c {
    %e = gather %h, %k : f64
    %d = scatter_add %h, %k, %e : f64[n]
    yield %d
  } else {
    yield %h
  }
  %s = add %p, %h : f64[n]
  return %p, %s
}
""")
    for c in (True, False):
        agree(func, c, VECTOR)


# -- tapes --------------------------------------------------------------------------------------------------------------
def reverse_of(element, capacity, value):
    return program(f"""func @f(%n: i64, %x: f64[m]) -> (f64[m], f64) {{
  %one = const 1.0 : f64
  %s0 = stack.new{capacity} {{element = {element}}} : stack<{element}>
  %y, %full = for %n (%i, %z = %x, %s = %s0) {{
    %k = const 0 : i64
    %e = gather %z, %k : f64
    %s2 = stack.push %s, {value} : stack<{element}>
    %a = sin %e : f64
    %b = scatter_set %z, %k, %a : f64[m]
    yield %b, %s2
  }}
  %g, %last = for %n (%i, %ct = %one, %s = %full) {{
    %s2, %z = stack.pop %s : stack<{element}>, {element}
    %k = const 0 : i64
    {"%e = gather %z, %k : f64" if "[" in element else "%e = neg %z : f64"}
    %c = cos %e : f64
    %d = mul %ct, %c : f64
    yield %d, %s2
  }}
  return %y, %g
}}
""")


@pytest.mark.parametrize("capacity", ("", " %n"))
@pytest.mark.parametrize(("element", "value"), (("f64", "%e"), ("f64[m]", "%z")))
def test_what_was_pushed_comes_back(element, value, capacity):
    func = reverse_of(element, capacity, value)
    for trips in (-2, 0, 1, 7, 3000):
        agree(func, trips, VECTOR)


def test_a_branch_pushes_in_a_nested_loop():
    func = program("""func @f(%n: i64, %x: f64) -> (f64, i64) {
  %zero = const 0 : i64
  %one = const 1 : i64
  %two = const 2 : i64
  %nil = const 0.0 : f64
  %s0 = stack.new {element = f64} : stack<f64>
  %b0 = stack.new {element = bool} : stack<bool>
  %y, %s, %bs, %count = for %n (%i, %a = %x, %s1 = %s0, %b1 = %b0, %c = %zero) {
    %a2, %s2, %b2, %c2 = for %i (%j, %u = %a, %s3 = %s1, %b3 = %b1, %d = %c) {
      %r = mod %j, %two : i64
      %odd = eq %r, %one : bool
      %b4 = stack.push %b3, %odd : stack<bool>
      %v, %s4, %e = if %odd {
        %s5 = stack.push %s3, %u : stack<f64>
        %t = sin %u : f64
        %f = add %d, %one : i64
        yield %t, %s5, %f
      } else {
        %t = add %u, %x : f64
        yield %t, %s3, %d
      }
      yield %v, %s4, %b4, %e
    }
    yield %a2, %s2, %b2, %c2
  }
  %g, %rest = for %count (%i, %h = %nil, %s1 = %s) {
    %s2, %v = stack.pop %s1 : stack<f64>, f64
    %w = cos %v : f64
    %h2 = add %h, %w : f64
    yield %h2, %s2
  }
  return %g, %count
}
""")
    for n in (0, 1, 2, 5, 12):
        agree(func, n, 0.25)


def test_an_element_is_read_where_it_is():
    func = reverse_of("f64[m]", "", "%z")
    text = compile_kernel(func).texts("loops")
    back = text[text.rindex("trips") :]
    assert "# copy" not in back and "tape0[" in back


def test_vector_registers_survive_growth_and_questions():
    """What does not change stays in vector registers while a tape grows and an interrupt is asked for."""
    func = program("""func @f(%n: i64, %x: f64[m], %c: f64) -> (f64[m], f64) {
  %nil = const 0.0 : f64
  %s0 = stack.new {element = f64} : stack<f64>
  %cs = broadcast %c {axes = [], shape = [m]} : f64[m]
  %y, %full = for %n (%i, %z = %x, %s = %s0) {
    %k = const 0 : i64
    %e = gather %z, %k : f64
    %s2 = stack.push %s, %e : stack<f64>
    %u = mul %z, %cs : f64[m]
    %v = add %u, %x : f64[m]
    yield %v, %s2
  }
  %t, %rest = for %n (%i, %a = %nil, %s = %full) {
    %s2, %v = stack.pop %s : stack<f64>, f64
    %b = add %a, %v : f64
    yield %b, %s2
  }
  return %y, %t
}
""")
    agree(func, 5000, RNG.normal(size=40), 0.75)


# -- failures -----------------------------------------------------------------------------------------------------------
def test_a_check_within_loops_says_what_and_where():
    func = program("""func @f(%n: i64, %x: f64[m]) -> f64 {
  %zero = const 0.0 : f64
  %s0 = stack.new {element = f64} : stack<f64>
  %y, %s = for %n (%i, %z = %zero, %s1 = %s0) {
    %w, %s2 = for %n (%j, %u = %z, %s3 = %s1) {
      %k = check_index %j {axis = 0, size = m} : i64
      %v = gather %x, %k : f64
      %t = add %u, %v : f64
      %s4 = stack.push %s3, %t : stack<f64>
      yield %t, %s4
    }
    yield %w, %s2
  }
  %s5, %last = stack.pop %s : stack<f64>, f64
  return %last
}
""")
    agree(func, 7, VECTOR)
    with pytest.raises(IndexError, match=re.escape("index 10 is out of bounds for axis 0 with size 10 (<text>:6)")):
        compile_kernel(func)([11, VECTOR])


FAILING = """func @failing(%n: i64, %limit: i64, %x: f64[m]) -> f64 {
  %zero = const 0.0 : f64
  %s0 = stack.new {element = f64[m]} : stack<f64[m]>
  %y, %s = for %n (%i, %z = %zero, %s1 = %s0) {
    %s2 = stack.push %s1, %x : stack<f64[m]>
    %fine = lt %i, %limit : bool
    check %fine {message = "too far {really}"}
    %k = const 0 : i64
    %e = gather %x, %k : f64
    %w = add %z, %e : f64
    yield %w, %s2
  }
  %s5, %last = stack.pop %s : stack<f64[m]>, f64[m]
  %t = sum %last {axes = [0]} : f64
  %r = add %t, %y : f64
  return %r
}
"""


def test_failing_calls_leave_no_memory_behind():
    func = program(FAILING)
    agree(func, 7, 7, VECTOR)
    kernel, x = compile_kernel(func), RNG.normal(size=1000)

    def fail():
        with pytest.raises(PullbackError, match=re.escape("too far {really} (<text>:7)")):
            kernel([1000, 99, x])

    for _ in range(50):
        fail()
    before = resident()
    for _ in range(1000):  # of 800 kB each
        fail()
    assert resident() - before < 20e6


def resident():
    """Bytes of this process's memory that are in use now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


MANY = """func @many(%n: i64, %x: f64) -> f64 {
  %zero = const 0.0 : f64
  %s0 = stack.newCAPACITY {element = f64} : stack<f64>
  %y, %s = for %n (%i, %z = %x, %s1 = %s0) {
    %s2 = stack.push %s1, %z : stack<f64>
    %w = sin %z : f64
    yield %w, %s2
  }
  %g, %rest = for %n (%i, %z = %zero, %s1 = %s) {
    %s2, %v = stack.pop %s1 : stack<f64>, f64
    %w = add %z, %v : f64
    yield %w, %s2
  }
  return %g
}
"""


@pytest.mark.parametrize("count", (2**40, 2**61, 2**63 - 1))
def test_a_tape_that_cannot_be_had_is_an_error(count):
    kernel = compile_kernel(program(MANY.replace("CAPACITY", " %n")))
    expected = min(8 * count, 2**63 - 1)
    with pytest.raises(PullbackError, match=rf"no memory for {expected} bytes .* checkpoint= \(<text>:3\)"):
        kernel([count, 0.5])
    assert kernel([3, 0.5])[0] == pytest.approx(0.5 + np.sin(0.5) + np.sin(np.sin(0.5)), rel=1e-15)


def test_memory_that_runs_out_in_the_middle_is_an_error():
    """In a process of its own, which may have 100 MB more than it has."""
    script = f"""
import resource
from pullback.errors import PullbackError
from pullback.ir.parse import parse_func
from pullback.llvm import compile_kernel
kernel = compile_kernel(parse_func({MANY.replace("CAPACITY", "")!r}))
kernel([1000, 0.5])
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, resource.RLIM_INFINITY))
for _ in range(3):
    try:
        kernel([50_000_000, 0.5])
    except PullbackError as error:
        print(error)
kernel([1000, 0.5])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1 and re.match(r"no memory for \d+ bytes .* \(<text>:5\)", lines[0])


def test_what_a_tape_takes():
    """8 bytes an element, and what has not been written takes nothing."""
    kernel, n = compile_kernel(program(MANY.replace("CAPACITY", ""))), 5_000_000
    peak = []
    watched = threading.Thread(target=lambda: [peak.append(resident()) or time.sleep(0.001) for _ in range(150)])
    before = resident()
    watched.start()
    kernel([n, 0.5])
    watched.join()
    assert max(peak) - before < 1.5 * 8 * n


# -- tapes that outlive a call --------------------------------------------------------------------------------------------
FORWARD = """func @forward(%n: i64, %x: f64[m]) -> (f64[m], stack<f64>, stack<f64[m]>) {
  %s0 = stack.new {element = f64} : stack<f64>
  %a0 = stack.new %n {element = f64[m]} : stack<f64[m]>
  %y, %full, %arrays = for %n (%i, %z = %x, %s = %s0, %as = %a0) {
    %k = const 0 : i64
    %e = gather %z, %k : f64
    %s2 = stack.push %s, %e : stack<f64>
    %as2 = stack.push %as, %z : stack<f64[m]>
    %c = sin %z : f64[m]
    yield %c, %s2, %as2
  }
  return %y, %full, %arrays
}
"""
REVERSE = """func @reverse(%n: i64, %t: stack<f64>, %as: stack<f64[m]>, %seed: f64[m]) -> (f64[m], f64) {
  %nil = const 0.0 : f64
  %g, %h, %e, %e2 = for %n (%i, %ct = %seed, %u = %nil, %s = %t, %a = %as) {
    %s2, %z = stack.pop %s : stack<f64>, f64
    %a2, %x = stack.pop %a : stack<f64[m]>, f64[m]
    %b = cos %x : f64[m]
    %c = mul %ct, %b : f64[m]
    %v = add %u, %z : f64
    yield %c, %v, %s2, %a2
  }
  return %g, %h
}
"""


def test_tapes_pass_from_one_kernel_to_another():
    forward, reverse = compile_kernel(program(FORWARD)), compile_kernel(program(REVERSE))
    y, scalars, arrays = forward([6, VECTOR])
    assert (len(scalars), len(arrays)) == (6, 6) and repr(scalars) == "<stack<f64> of 6 elements>"
    for seed in (VECTOR, -2.5 * VECTOR, VECTOR):  # the tapes are not used up
        x, total, slope = VECTOR, 0.0, seed
        for _ in range(6):
            total, slope, x = total + x[0], slope * np.cos(x), np.sin(x)
        found = reverse([6, scalars, arrays, seed])
        np.testing.assert_allclose(found[0], slope, rtol=1e-13)
        assert found[1] == pytest.approx(total, rel=1e-14)
    np.testing.assert_allclose(y, x, rtol=1e-14)
    with pytest.raises(DTypeError, match="argument 1: stack<f64> expected, got Tape"):
        reverse([6, arrays, arrays, VECTOR])


def test_tapes_are_freed_with_their_handles():
    forward, x = compile_kernel(program(FORWARD)), RNG.normal(size=1000)
    for _ in range(10):
        forward([100, x])
    before = resident()
    for _ in range(300):  # of 800 kB each
        forward([100, x])
    assert resident() - before < 20e6


def test_an_argument_is_not_pushed_to():
    func = program("""func @f(%s: stack<f64>, %x: f64) -> stack<f64> {
  %s2 = stack.push %s, %x : stack<f64>
  return %s2
}
""")
    with pytest.raises(UnsupportedError, match="a stack that is an argument can only be read"):
        compile_kernel(func)


# -- interrupts -----------------------------------------------------------------------------------------------------------
ENDLESS = """func @endless(%x: f64) -> f64 {
  %half = const 0.5 : f64
  %s0 = stack.new {element = bool} : stack<bool>
  %y, %s = while (%z = %x, %s1 = %s0) {
    %go = lt %z, %half : bool
    yield %go
  } do {
    %w = mul %z, %half : f64
    yield %w, %s1
  }
  return %y
}
"""
NESTED = """func @nested(%n: i64, %x: f64[m]) -> f64[m] {
  %y = for %n (%i, %z = %x) {
    %w = for %n (%j, %u = %z) {
      %v = sin %u : f64[m]
      yield %v
    }
    yield %w
  }
  return %y
}
"""


class Stopped(Exception):
    pass


@pytest.fixture
def alarm():
    """Raise Stopped in the main thread after a while."""

    def handle(number, frame):
        raise Stopped

    old = signal.signal(signal.SIGUSR1, handle)
    timers = []

    def start(delay=0.1):
        timers.append(threading.Timer(delay, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize(
    ("text", "args"), ((ENDLESS, (0.25,)), (NESTED, (10**6, VECTOR)), (MANY.replace("CAPACITY", ""), (10**9, 0.5)))
)
def test_a_signal_stops_a_loop(text, args, alarm):
    kernel = compile_kernel(program(text))
    for _ in range(2):  # and all is as before
        alarm()
        start = time.monotonic()
        with pytest.raises(Stopped):
            kernel(list(args))
        assert time.monotonic() - start < 2
    kernel([args[0] + 1.0] if len(args) == 1 else [3, *args[1:]])


def test_ctrl_c_stops_a_loop():
    kernel = compile_kernel(program(ENDLESS))
    threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        kernel([0.25])


def test_a_handler_that_returns_does_not_stop_a_loop(alarm):
    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    alarm(0.02)
    func = program(NESTED.replace("f64[m]", "f64"))
    kernel = compile_kernel(func)
    assert kernel([2500, 0.5])[0] == kernel([2500, 0.5])[0]
    assert seen == [signal.SIGUSR1]


def test_other_threads_run_on():
    kernel = compile_kernel(program(NESTED.replace("f64[m]", "f64")))
    (expected,) = kernel([700, 0.5])
    found = []
    workers = [threading.Thread(target=lambda: found.extend(kernel([700, 0.5]) for _ in range(3))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [[expected]] * 9
