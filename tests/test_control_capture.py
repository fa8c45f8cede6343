"""Python's own control flow on traced values: what is staged gives plain NumPy's numbers, and errors say what to do."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ShapeError, TraceError
from pullback.frontends.traced import Traced
from pullback.ir.core import walk
from pullback.ir.interp import run
from tests.numpy_tracing import compare, evaluate
from tests.numpy_tracing import trace as trace_it

LONG = np.linspace(-2.0, 3.0, 23)
SHORT = np.array([0.5, -1.5, 2.5])
SQUARE = np.random.default_rng(5).normal(size=(11, 11))
SPD = SQUARE @ SQUARE.T + 11 * np.eye(11)


def trace(function: Callable[..., Any], *args: Any) -> Traced:
    """Axes of length 9 and more are symbols, as for calls."""
    return trace_it(function, *args, symbolic=any(n > 8 for a in args for n in np.shape(a)))[0]


def ops(function: Callable[..., Any], *args: Any) -> list[str]:
    return [instr.op.name for instr in walk(trace(function, *args).func.block)]


def agree(function: Callable[..., Any], *args: Any) -> None:
    """The traced function gives what NumPy gives, in the same types."""
    traced, leaves = trace_it(function, *args, symbolic=any(n > 8 for a in args for n in np.shape(a)))
    compare(evaluate(traced, leaves), function(*[np.copy(a) if isinstance(a, np.ndarray) else a for a in args]))


# -- branches -------------------------------------------------------------------------------------------------------
def two_arms(x):
    if x > 0:
        y = x * 2
    else:
        y = -x
    return y


def one_arm(x):
    y = 1.0
    if x > 0:
        y = x
    return y


def chain(x):
    if x < -1:
        return -1.0
    elif x < 0:
        return x
    elif x < 1:
        return x**2
    else:
        return 1.0


def early(x):
    if x < 0:
        return x * 3
    y = np.sqrt(x)
    if y > 1:
        return y
    return y + 1


def nested_arms(x):
    a = 0.0
    if x > 0:
        if x > 1:
            a = x * x
        b = a + 1
    else:
        b = x
    return a, b


def tuples_in_arms(x):
    if x > 0:
        pair = (x, x + 1)
    else:
        pair = (x - 1, 2.0)
    return pair


def swapped(x):
    a, b = x, 2.0
    if a > b:
        a, b = b, a
    return a, b


def conditional_expression(x):
    return (x if x > 0 else 0) + (1 if x > 1 else x)


def logic(x):
    return (1.0 if x > 0 and x < 2 else 0.0) + (2.0 if x < 0 or x > 3 else 0.0) + (4.0 if not x > 1 else 0.0)


def values_of_logic(x):
    y = x > 0 and x * 2
    z = x or 5.0
    return y * 1.0 + z


def chained_comparison(x):
    return 1.0 if 0 < x < 2 <= x + 1 else -1.0


def raises(x):
    if x < -10:
        raise ValueError("too low")
    return np.exp(x)


def asserts(x):
    assert x > -10, "too low"
    return x * 2


def number_as_condition(x):
    n = np.floor(x)
    if n:
        return x
    return x + 1


def array_of_one(x):
    y = np.array([x])
    if y > 0:
        return y[0]
    return -x


def helper_with_returns(v):
    if v > 1:
        return v - 1
    for k in range(3):
        if v < -k:
            return v * k
    return v


def calls_helper(x):
    return helper_with_returns(x) + helper_with_returns(x - 2)


def lists_in_arms(x):
    items = [x, 1.0, 2.0]
    table = {"a": x}
    if x > 0:
        items[1] = x * 2
        table["a"] = 3.0
    else:
        items[2] = x
    return items, table["a"]


class State:
    def __init__(self, x):
        self.x = x
        self.count = 0

    def step(self):
        self.x = self.x / 2
        self.count += 1


def objects(x):
    state = State(x)
    while state.x > 0.1:
        state.step()
    return state.x, state.count


def closures(x):
    scale = 1.0

    def scaled(v):
        return v * scale

    if x > 0:
        scale = 3.0
    return scaled(x)


def strings_choose(x):
    mode = "double"
    for _ in range(2):
        if mode == "double":
            x = x * 2
            mode = "stop"
    return x


def match_statement(x):
    match (1, x):
        case (1, v) if True:
            if v > 0:
                return v
            return -v
    return x


BRANCHES = [
    two_arms, one_arm, chain, early, nested_arms, tuples_in_arms, swapped, conditional_expression, logic, values_of_logic,
    chained_comparison, raises, asserts, number_as_condition, array_of_one, calls_helper, lists_in_arms, objects, closures,
    strings_choose, match_statement,
]  # fmt: skip


@pytest.mark.parametrize("x", [-2.5, -0.5, 0.5, 1.5, 4.0])
@pytest.mark.parametrize("function", BRANCHES, ids=lambda f: f.__name__)
def test_branches(function: Callable[..., Any], x: float) -> None:
    agree(function, x)


def test_an_if_with_returns_is_one_if() -> None:
    assert ops(early, 1.0).count("if") == 2
    assert "if" not in ops(logic, 1.0)[:3]


def test_cheap_conditions_need_no_branch() -> None:
    def both(x: Any) -> Any:
        return np.where((x[0] > 0 and x[1] > 0) or not x[2] > 0, 1.0, 2.0)

    assert "if" not in ops(both, SHORT)


# -- loops ----------------------------------------------------------------------------------------------------------
def doubling(x):
    y = x * 2
    while np.linalg.norm(y) < 1000:
        y = y * 2
    return y


def newton(x):
    a = np.abs(x[0]) + 2
    y = a
    for _ in range(50):
        new = 0.5 * (y + a / y)
        if abs(new - y) < 1e-12:
            break
        y = new
    return y


def newton_until(x):
    a = np.abs(x[0]) + 2
    y, step = a, np.inf
    while abs(step) > 1e-12:
        step = (y * y - a) / (2 * y)
        y -= step
    return y


def forever(x):
    y = np.sum(x * x)
    while True:
        z = y / 2
        if z < 0.1:
            break
        y = z
    return z


def bisection(x):
    low, high = 0.0, 10.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if middle**3 > np.abs(x[0]) + 1:
            high = middle
        else:
            low = middle
    return low


def absolute_sum(x):
    s = 0
    for i in range(x.shape[0]):
        if x[i] < 0:
            s -= x[i]
        else:
            s += x[i]
    return s


def rows(x):
    total = 0
    for row in np.outer(x, x):
        total = total + row * 2
    return total


def prefix(x):
    y = np.zeros_like(x)
    t = 0.0
    for i, v in enumerate(x):
        t += v
        y[i] = t
    return y


def pairs(x):
    s = 0.0
    for a, b in zip(x, x[::-1], strict=True):
        s += a * b
    for a, b in zip(x, x[1:], strict=False):  # noqa: RUF007 - zip is what is tested
        s -= a * b
    return s


def backwards(x):
    s = 0.0
    for v in reversed(x):
        s = s * 0.5 + v
    for i in reversed(range(len(x))):
        s = s + i * x[i]
    return s


def strides(x):
    s = 0.0
    for i in range(len(x) - 1, -1, -2):
        s = s * 0.9 + x[i]
    for i in range(1, len(x), 3):
        s += i * x[i]
    return s


def triangle(x):
    n = len(x)
    s = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            s += x[i] * x[j] * (j - i)
    return s


def search(x):
    for i in range(len(x)):
        if x[i] > 1:
            return x[i] * 2
    return -1.0


def search_else(x):
    for v in x:
        if v > 100:
            found = v
            break
    else:
        found = -1.0
    return found


def result_of_a_break(x):
    y = np.sum(x * x)
    while True:
        z = y / 2
        if z < 0.1:
            root = z + 1
            break
        y = z
    return root


def nested_result_of_a_break(x):
    s = 0.0
    for i in range(len(x)):
        if x[i] > 0:
            if x[i] > 1:
                where, what = i, x[i]
                break
            s -= x[i]
    else:
        where = -1
        what = 0.0
    return where, what, s


def leaves_in_the_first_trip(x):
    y, total = np.zeros(3), 0
    for i in range(1, len(x)):
        total = total + x[:3] * i
        y[-1] += x[i]
        break
    for v in x:
        total = total + v
    return y, total


def skipping(x):
    s = 0.0
    for v in x:
        if v < 0:
            continue
        s += np.sqrt(v)
    return s


def skip_and_stop(x):
    s = 0.0
    for v in x:
        if v < -1.5:
            continue
        if v > 2:
            break
        s += v
    return s


def returns_from_inner(x):
    for i in range(len(x)):
        for j in range(len(x)):
            if x[i] + x[j] > 2:
                return x[i] - x[j]
    return 0.0


def while_else(x):
    k = 0
    while k < len(x):
        if x[k] > 50:
            break
        k += 1
    else:
        k = -1
    return k


def walrus(x):
    y = np.sum(x * x)
    while (z := y / 2) > 0.1:
        y = z
    return z + y


def known_then_traced(x):
    n, y = 0, x[0]
    while n < 2 or y > 1:
        y = y - 0.5
        n += 1
    return y


def recurrence(x):
    y = np.empty_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = 0.5 * y[i - 1] + x[i]
    return y


def stencil(x):
    u = x.copy()
    for _ in range(20):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def window(x):
    y = np.zeros(len(x) - 2)
    for i in range(len(x) - 2):
        y[i] = np.sum(x[i : i + 3] * np.array([1.0, 2.0, 1.0]))
    return y


def heads(x):
    y = np.zeros_like(x)
    for i in range(len(x)):
        y[i] = np.sum(x[:i]) - np.sum(x[i + 1 :])
    return y


def swap_buffers(x):
    u, new = x.copy(), np.zeros_like(x)
    for _ in range(21):
        for i in range(1, len(x) - 1):
            new[i] = (u[i - 1] + u[i + 1]) / 2
        u, new = new, u
    return u


def views(x):
    y = np.zeros((len(x), 2))
    left = y[:, 0]
    same = y
    for i in range(len(x)):
        left[i] = x[i]
        row = y[i]
        row[1] = 2 * x[i]
    same[0, 0] += 1
    return y, left


def masks(x):
    y = x.copy()
    while np.max(y) > 0.5:
        y[y > 0.5] *= 0.5
    return y


def indices(x):
    y = np.zeros(3)
    for i in range(len(x)):
        y[np.array([i % 3, (i + 1) % 3])] += x[i]
    return y


def list_of_arrays(x):
    states = [x.copy(), np.zeros_like(x)]
    for i in range(len(x)):
        states[1][i] = states[0][i] ** 2
        states[0][i] = 0.0
    return states


def coefficients(x):
    c = [1.0, 0.5, x[0]]
    s = 0.0
    for i in range(len(x)):
        s += c[i % 3] * x[i]
    return s


def traced_bounds(x):
    low, high = np.argmin(x), np.argmax(x)
    s = 0.0
    for i in range(low, high + 1, 2):
        s += x[i]
    return s


def lengths_and_floats(x):
    s = 0.0
    for v in x:
        if len(x) > v and v < len(x) - 0.5:
            s += len(x) if len(x) > 2.5 else v
    return s


def index_at_the_end(x):
    for i in range(len(x)):
        y = x[i] + i
    return y, i


def augmented(x):
    s, p, q = 0, 1, 2
    for v in x:
        s += v
        p *= 1 + v * v
        q -= 1
    return s, p, q


def single(x):
    s = np.float32(0)
    t = 0.0
    for v in x.astype(np.float32):
        s += v
        t = t + v
    return s, t


def sorting(x):
    y = x[::-1].copy()
    n = len(y)
    for i in range(1, n):
        key = y[i]
        j = i - 1
        while j >= 0 and y[j] > key:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = key
    return y


def tridiagonal(x):
    n = len(x)
    c, d = np.zeros(n), np.zeros(n)
    c[0], d[0] = 1 / 4, x[0] / 4
    for i in range(1, n):
        m = 4 - c[i - 1]
        c[i] = 1 / m
        d[i] = (x[i] - d[i - 1]) / m
    y = np.zeros(n)
    y[-1] = d[-1]
    for i in range(n - 2, -1, -1):
        y[i] = d[i] - c[i] * y[i + 1]
    return y


def with_errstate(x):
    s = 0.0
    with np.errstate(all="ignore"):
        for v in x:
            s += v if v > 0 else 0.0
    return s


def gives_up(x):
    y = np.sum(x * x)
    for _ in range(100):
        y = y / 2
        if y < 1e-3:
            return y
    raise RuntimeError("no convergence")


def best_so_far(x):
    best, where = -np.inf, -1
    for i in range(len(x)):
        if x[i] * (5 - i) > best:
            best, where = x[i] * (5 - i), i
    return best, where


def kalman(x):
    m, p, like = 0.0, 1.0, 0.0
    for v in x:
        p = p + 0.1
        s = p + 0.5
        like -= 0.5 * (np.log(s) + (v - m) ** 2 / s)
        k = p / s
        m, p = m + k * (v - m), (1 - k) * p
    return like, m


def math_and_builtins(x):
    s = 0.0
    for i in range(len(x)):
        s = max(s, math.sin(x[i])) + abs(min(x[i], 0.0)) + float(i) / len(x)
    return s


LOOPS = [
    doubling, newton, newton_until, forever, bisection, absolute_sum, rows, prefix, pairs, backwards, strides, triangle,
    search, search_else, leaves_in_the_first_trip,
    result_of_a_break, nested_result_of_a_break, skipping, skip_and_stop, returns_from_inner,
    while_else, walrus, known_then_traced, recurrence, stencil, window, heads, swap_buffers, views, masks, indices,
    list_of_arrays, coefficients, traced_bounds, lengths_and_floats, index_at_the_end, augmented, single, sorting,
    tridiagonal, with_errstate, gives_up, best_so_far, kalman, math_and_builtins,
]  # fmt: skip


@pytest.mark.parametrize("x", [LONG, LONG[::-1].copy(), SHORT], ids=["symbolic", "descending", "static"])
@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_loops(function: Callable[..., Any], x: np.ndarray) -> None:
    agree(function, x)


@pytest.mark.parametrize("function", LOOPS, ids=lambda f: f.__name__)
def test_loops_over_symbolic_lengths_are_staged(function: Callable[..., Any]) -> None:
    found = ops(function, LONG)
    assert "for" in found or "while" in found
    assert len(found) < 250


def test_a_loop_that_ends_at_a_length_checks_no_index() -> None:
    assert "check_index" not in ops(triangle, LONG)
    assert "check_index" not in ops(tridiagonal, LONG)
    assert "check_index" in ops(sorting, LONG)


def test_a_loop_with_break_is_a_while_and_without_is_a_for() -> None:
    assert ops(newton, LONG).count("while") == 1
    assert "while" not in ops(recurrence, LONG)


def cholesky(a):
    n = a.shape[0]
    low = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j] - low[i, :j] @ low[j, :j]
            low[i, j] = np.sqrt(s) if i == j else s / low[j, j]
    return low


def gauss_seidel(a):
    n = a.shape[0]
    x = np.zeros(n)
    for _ in range(5):
        for i in range(n):
            x[i] = (1.0 - a[i, :i] @ x[:i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


def elimination(a):
    m = a.copy()
    n = m.shape[0]
    for k in range(n):
        p = k + np.argmax(np.abs(m[k:, k]))
        if p != k:
            keep = m[k].copy()
            m[k] = m[p]
            m[p] = keep
        for i in range(k + 1, n):
            m[i, k:] -= m[i, k] / m[k, k] * m[k, k:]
    return m


def columns(a):
    b = np.zeros_like(a)
    for j in range(a.shape[1]):
        b[:, j] = a[:, j] / np.sum(a[:, j])
        b[j, :j] = 0.0
    return b


def last_axis(a):
    s = 0.0
    for i in range(a.shape[0]):
        s += np.sum(a[i, ::2]) + a[i, -1] + np.sum(a[max(i - 1, 0) : i + 1, i])
    return s


@pytest.mark.parametrize("size", [4, 11])
@pytest.mark.parametrize("function", [cholesky, gauss_seidel, elimination, columns, last_axis], ids=lambda f: f.__name__)
def test_matrices(function: Callable[..., Any], size: int) -> None:
    agree(function, SPD[:size, :size].copy())


def test_matrix_loops_are_staged() -> None:
    assert ops(cholesky, SPD).count("for") == 2
    assert ops(elimination, SPD).count("for") == 2


# -- what stays Python's --------------------------------------------------------------------------------------------
def test_short_loops_over_fixed_ranges_are_written_out() -> None:
    def power(x: Any) -> Any:
        for _ in range(16):
            x = x * 1.5
        return x

    assert ops(power, 2.0).count("mul") == 16


def test_longer_loops_over_fixed_ranges_are_staged() -> None:
    def power(x: Any) -> Any:
        for _ in range(17):
            x = x * 1.5
        return x

    assert ops(power, 2.0).count("mul") == 1
    agree(power, 2.0)


def test_a_fixed_loop_that_cannot_be_staged_is_written_out() -> None:
    def growing(x: Any) -> Any:
        names = {}
        for k in range(20):
            names[f"x{k}"] = x * k
        return names["x7"] + len(names)

    def longer(x: Any) -> Any:
        y = np.zeros(1)
        for _ in range(20):
            y = np.concatenate((y, x[:1]))
        return y

    agree(growing, 2.0)
    agree(longer, SHORT)
    assert "for" not in ops(growing, 2.0)


def test_writing_out_more_than_a_thousand_trips_takes_a_warning() -> None:
    def longer(x: Any) -> Any:
        found = {}
        for k in range(1010):
            found[k] = x
        return found[1000]

    with pytest.warns(UserWarning, match="the loop is written out, one copy of its body for each of its more than 1000 trips"):
        trace(longer, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(doubling, SHORT)


def test_what_is_known_decides_at_once() -> None:
    def plain(x: Any, n: int = 3) -> Any:
        while n > 0:
            n -= 1
            x = x * 2
        return x if n == 0 else None

    found = trace(lambda x: plain(x), 2.0)
    assert [i.op.name for i in walk(found.func.block)].count("mul") == 3


def test_generators_and_try_go_on_working_where_nothing_is_traced() -> None:
    def halves(n: int) -> Any:
        for k in range(n):
            yield 0.5**k

    def function(x: Any) -> Any:
        s = 0.0
        for h in halves(3):
            try:
                s = s + x * h
            except KeyError:
                s = 0.0
        return s

    agree(function, 2.0)


def test_nonlocal_names_of_inner_functions() -> None:
    def function(x: Any) -> Any:
        count = 0

        def bump() -> None:
            nonlocal count
            count += 1

        bump()
        for _ in range(3):
            bump()
        return x * count

    agree(function, 2.0)


# -- lists ----------------------------------------------------------------------------------------------------------
def comprehensions(x):
    squares = [v * v for v in x]
    heads = [np.sum(x[:i]) for i in range(len(x))]
    total = 0.0
    for h in heads:
        total += h
    return np.array(squares), sum(v * 2 for v in x), np.mean(heads), max(squares), heads[2], len(heads), total


def stacks(x):
    rows = [np.array([v, 2 * v]) for v in x]
    return np.stack(rows), np.stack(rows, axis=1), np.concatenate(rows), np.vstack(rows), np.column_stack(rows), sum(rows)


def nested_comprehensions(x):
    return np.array([[i * v for v in x] for i in range(3)]), np.array([sum(v * w for w in x) for v in x])


def appends(x):
    ys, times = [x[0]], [0]
    for i in range(1, len(x)):
        ys.append(0.5 * ys[-1] + x[i])
        times.append(times[-1] + 0.5)
    return np.array(ys), ys[-1], ys[1], len(ys), sum(ys), np.array(times)


def appends_arrays(x):
    u, history = x.copy(), []
    for _ in range(30):
        u = u * 0.9
        history.append(u)
    s = 0.0
    for h in history:
        s += h[0]
    return np.array(history), np.stack(history, axis=1), s


def lists_of_their_own(x):
    return [v * 2 for v in x] + [x[0]], [-v for v in x]


LISTS = [comprehensions, stacks, nested_comprehensions, appends, appends_arrays, lists_of_their_own]


@pytest.mark.parametrize("x", [LONG, SHORT], ids=["symbolic", "static"])
@pytest.mark.parametrize("function", LISTS, ids=lambda f: f.__name__)
def test_lists(function: Callable[..., Any], x: np.ndarray) -> None:
    agree(function, x)


@pytest.mark.parametrize("function", LISTS[:-1], ids=lambda f: f.__name__)
def test_lists_over_symbolic_axes_are_filled_in_loops(function: Callable[..., Any]) -> None:
    found = ops(function, LONG)
    assert "for" in found
    assert len(found) < 250


# -- aliasing -------------------------------------------------------------------------------------------------------
def test_one_array_under_two_names_stays_one() -> None:
    def function(x: Any) -> Any:
        y = np.zeros(3)
        z = y
        items = [y, y[1:]]
        while np.sum(y) < 10:
            z[0] += x
            items[1][0] += 2 * x
        y[2] = 7.0
        return y, z, items

    agree(function, 1.5)


def test_an_array_from_one_arm_keeps_what_it_is() -> None:
    def function(x: Any) -> Any:
        if x > 0:
            y = np.zeros(2)
        else:
            y = np.ones(2)
        y[0] = x
        return y

    agree(function, 1.5)
    agree(function, -1.5)


def test_one_arm_writes_and_the_other_replaces() -> None:
    def function(x: Any) -> Any:
        y = np.zeros(3)
        items = [x, 1.0]
        if x > 0:
            y = np.ones(3)
            items[1] = x
        else:
            y[2] = 12.0
        return y, items[1]

    agree(function, 1.5)
    agree(function, -1.5)


def test_writing_to_what_may_be_another_array_is_refused() -> None:
    def function(x: Any) -> Any:
        a, b = np.zeros(2), np.ones(2)
        c = a if x > 0 else b
        c[0] = x
        return a, b

    with pytest.raises(TraceError, match="may be one array or another after the conditional expression 'x > 0'"):
        trace(function, 1.0)


def test_writing_to_the_other_name_is_refused_too() -> None:
    def function(x: Any) -> Any:
        a = np.zeros(2)
        c = np.ones(2)
        if x > 0:
            c = a
        a[0] = x
        return c

    with pytest.raises(TraceError, match="'c' may be one array or another after the if 'x > 0'"):
        trace(function, 1.0)


def test_a_view_does_not_leave_its_branch() -> None:
    def function(x: Any) -> Any:
        a = np.zeros(3)
        c = np.ones(2)
        if x > 0:
            c = a[1:]
        return c

    with pytest.raises(TraceError, match="'c' looks into another array, or into none, after the if 'x > 0'"):
        trace(function, 1.0)


def test_inputs_stay_as_they_are() -> None:
    def function(x: Any) -> Any:
        for i in range(len(x)):
            x[i] = 0.0
        return x

    with pytest.raises(TraceError, match="the argument 'x' would be changed in place"):
        trace(function, LONG)


# -- errors ---------------------------------------------------------------------------------------------------------
def only_one_arm(x):
    if x > 0:
        y = x
    return y


def only_in_the_loop(x):
    while x > 1:
        last = x
        x = x / 2
    return last


def grows(x):
    y = np.zeros(2)
    while np.sum(y) < x:
        y = np.concatenate((y, y))
    return y


def kinds(x):
    y = None
    if x > 0:
        y = "low"
    return x if y is None else y


def several(x):
    y = np.zeros(3) + x
    if y > 0:
        return y
    return -y


def no_end(x):
    while True:
        x = x * 2
    return x


def within_try(x):
    try:
        if x > 0:
            x = x + 1
    except ValueError:
        pass
    return x


def some_ways(x):
    for k in range(20):
        if x > k:
            return x


def outer_names(x):
    total = 0

    def add(v):
        nonlocal total
        total = total + v
        return v

    while x > 1:
        x = add(x / 2)
    return total


def factorial(x):
    if x < 1:
        return 1.0
    return x * factorial(x - 1)


def generated(x):
    def values():
        if x > 0:
            yield x

    return next(iter(values()))


def labelled(x):
    while x > 1:
        x = pb.name("half", x / 2)
    return x


ERRORS: list[tuple[Callable[..., Any], type[Exception], str, str, str]] = [
    (only_one_arm, TraceError, "'y' has a value in one arm only of the if 'x > 0' at FILE:LINE", "return y",
     "give it a value before"),
    (only_in_the_loop, TraceError, "'last' gets its first value in a trip of the loop 'while x > 1' at FILE:LINE",
     "return last",
     "give it a value before"),
    (grows, TraceError, "'y' is of shape (2,) before and of shape (4,) after a trip of the loop 'while np.sum(y) < x' at "
     "FILE:LINE", "while np.sum(y) < x:", "use one variable for each, or give both the same type and shape"),
    (kinds, TraceError, "'y' is 'low' in one arm and None in the other arm of the if 'x > 0' at FILE:LINE",
     "return x if y is None else y", "use one variable for each, or give both the same type and shape"),
    (several, ShapeError, "the condition of the if 'y > 0' has shape (3,): the truth value of an array with more than one "
     "element is ambiguous", "if y > 0:", "use np.any(...) or np.all(...)"),
    (no_end, TraceError, "the loop 'while True' at FILE:LINE never ends", "while True:", "end it by its condition or by break"),
    (within_try, TraceError, "the condition 'x > 0' that depends on a traced value stands within try", "if x > 0:",
     "the try cannot catch what happens when the function runs; move it out of the function, or the code out of it"),
    (some_ways, TraceError, "the function returns a value on some ways only, depending on a traced condition",
     "for k in range(20):",
     "add a return, or raise an error, at its end"),
    (outer_names, TraceError, "a function with `nonlocal total` is called in the loop 'while x > 1' at FILE:LINE, which is "
     "traced several times", "def add(v):", "pass the value as an argument and return the new one"),
    (factorial, TraceError, "factorial calls itself under a condition that is known only when the function runs",
     "return x * factorial(x - 1)", "write it as a loop"),
    (generated, TraceError, "the condition of 'if' is a traced value: x > 0; the function is a generator (it has a yield)",
     "if x > 0:", "use np.where, or a function without it"),
    (labelled, TraceError, "'half' is given to a value in the loop 'while x > 1' at FILE:LINE, which has another value each "
     "time, or none", 'x = pb.name("half", x / 2)', "name what comes out of the loop or branch"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "kind", "message", "code", "remedy"), ERRORS, ids=lambda v: getattr(v, "__name__", None))
def test_errors(function: Callable[..., Any], kind: type[Exception], message: str, code: str, remedy: str) -> None:
    with pytest.raises(kind) as error:
        trace(function, 2.5)
    first, place, last = str(error.value).splitlines()
    named, _, line = first.partition(f"{__file__}:")
    number = line.partition(" ")[0].rstrip(",")
    assert first == message.replace("FILE:LINE", f"{__file__}:{number}"), named
    start = function.__code__.co_firstlineno
    assert not number or start < int(number) < start + 15
    at, _, text = place.removeprefix(f"  at {__file__}:").partition(": ")
    assert start < int(at) < start + 15
    assert text == code
    assert last == f"  {remedy}"


def test_a_loop_of_traced_length_that_cannot_be_compiled_says_why() -> None:
    def function(x: Any) -> Any:
        names = {}
        for i in range(len(x)):
            names[f"{i}"] = x[i]
        return names

    with pytest.raises(TraceError) as error:
        trace(function, LONG)
    assert "for i in range(len(x)):" in str(error.value)


def test_raising_under_a_condition_is_a_check_of_the_compiled_function() -> None:
    with pytest.raises(pb.PullbackError, match="ValueError: too low, at "):
        agree(raises, -11.0)
    with pytest.raises(pb.PullbackError, match="RuntimeError: no convergence"):
        run(trace(gives_up, np.array([1e40, 1.0])).func, [np.array([1e40, 1.0])])


def test_locations_are_the_users_lines() -> None:
    first = sorting.__code__.co_firstlineno
    lines = {instr.loc.line for instr in walk(trace(sorting, LONG).func.block) if instr.loc.line}
    assert lines <= set(range(first, first + 13))


# -- without source, and functional forms ---------------------------------------------------------------------------
def test_code_without_source_is_told_of_the_functional_forms() -> None:
    function = eval("lambda x: x if x > 0 else -x")
    with pytest.raises(TraceError) as error:
        trace(function, 2.0)
    assert "decides an if, while, and, or or not in code that cannot be rewritten" in str(error.value)
    assert "pb.cond(condition, then, other, *operands)" in str(error.value)
    forms = eval("lambda x: pb.cond(x > 0, lambda v: v * 2, lambda v: -v, x)", {"pb": pb})
    agree(forms, 2.0)
    agree(forms, -2.0)


def cond(x):
    return pb.cond(x[0] > 0, lambda v, w: (v + w, 1), lambda v, w: (v - w, 2), x[1], x[2])


def while_loop(x):
    return pb.while_loop(lambda c: c[0] < 50, lambda c: (c[0] * 2 + 1, c[1] + 1), (np.abs(x[0]), 0))


def for_loop(x):
    return pb.for_loop((1, x.shape[0]), lambda i, c: c * 0.5 + x[i], 0)


def scan(x):
    return pb.scan(lambda s, v: (0.5 * s + v, {"product": s * v, "pair": (v, s)}), 0.0, x)


def scan_of_trees(x):
    carry, _ = pb.scan(lambda s, v: (s + v["a"] * v["b"][0], None), 0, {"a": x, "b": (x * 2,)})
    return carry, pb.scan(lambda s, _: (s * 0.5, s), x, None, length=4)[1]


@pytest.mark.parametrize("x", [LONG, SHORT], ids=["symbolic", "static"])
@pytest.mark.parametrize("function", [cond, while_loop, for_loop, scan, scan_of_trees], ids=lambda f: f.__name__)
def test_functional_forms(function: Callable[..., Any], x: np.ndarray) -> None:
    agree(function, x)
    agree(function, -x)
