"""The op table, swept: every meaning, lowering, partial and edge against NumPy, SymPy and mpmath. Nothing is listed by hand."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import sympy as sp

from pullback.ir.algebra import Numbers, Symbols
from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim
from pullback.ir.interp import run
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Compose, Edge, Elementwise, Intrinsic, Libm, Plain
from pullback.ir.parse import parse_type
from pullback.ir.types import DType, Type, f32, f64
from pullback.llvm import compile_kernel
from pullback.passes.pipeline import differentiate, push_forward
from tests.op_cases import (
    CASES,
    DIGITS,
    KINDS,
    MPMATH,
    SHAPES,
    SMOOTH,
    SYMBOLS,
    TRIP,
    Case,
    compiled,
    derivatives,
    exact,
    function,
    special_points,
)

N = Dim.symbol("n")
# two calls of 4 ulp each (which is what our functions promise) and what a composition adds to them
ROUNDING = {"f64": 4e-15, "f32": 2e-6, "i64": 0, "bool": 0}
# Terms of order one that cancel at the zeros of these (digamma's at 1.46, -0.50 ...; equal but opposite logarithms) leave
# their rounding; the test of accuracy says how much of it there may be.
CANCELLING = {"polygamma_n", "sinc_n", "logaddexp", "logit"}
# which of two zeros is the larger depends on NumPy's version and on the place in the array
SIGN_OF_ZERO_UNDEFINED = {"maximum", "minimum", "fmax", "fmin"}
ids = str


def floor_of(case: Case, kind: DType) -> float:
    """The absolute error that is always allowed: subnormal numbers have few digits."""
    return (
        ROUNDING[kind.name]
        if case.op.name in CANCELLING
        else float(np.finfo(kind.numpy).tiny) * 1e-3
        if kind.kind == "f"
        else 0
    )


def different(case: Case, found: np.ndarray, want: np.ndarray, kind: DType) -> np.ndarray:
    """Where two results are not equal up to rounding; NaN, infinities and signs of zeros are to be equal exactly."""
    assert found.dtype == want.dtype and found.shape == want.shape
    if want.dtype.kind != "f":
        return found != want
    with np.errstate(all="ignore"):
        near = np.abs(found - want) <= 4 * ROUNDING[kind.name] * np.abs(want) + floor_of(case, kind)
    zeros = (found == 0) & (want == 0) & (case.op.name not in SIGN_OF_ZERO_UNDEFINED)
    equal = np.where(zeros, np.signbit(found) == np.signbit(want), (found == want) | near)
    return ~(equal | (np.isnan(found) & np.isnan(want)))


def same_numbers(case: Case, found: np.ndarray, want: np.ndarray, kind: DType, points: list[np.ndarray], what: str) -> None:
    wrong = np.flatnonzero(different(case, found, want, kind))
    shown = [f"({', '.join(str(p.flat[k]) for p in points)}) gives {found.flat[k]}, not {want.flat[k]}" for k in wrong[:12]]
    assert not wrong.size, f"{what}: {wrong.size} of {want.size}: {'; '.join(shown)}"


# -- values -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("case", "kind"), KINDS, ids=ids)
def test_meaning_is_interpreted_is_compiled(case: Case, kind: DType) -> None:
    func = case.func_of_shapes(kind, SHAPES)
    args, meant = [], []
    for shape in SHAPES:
        points = [p.reshape(shape) for p in case.points(int(np.prod(shape)), kind)]
        args += points
        meant.append(case.meaning(*points))
    results = (run(func, args), compiled(func, args))
    for k, (shape, want, interpreted, made) in enumerate(zip(SHAPES, meant, *results, strict=True)):
        assert want.shape == shape
        points = args[k * case.arity : (k + 1) * case.arity]
        same_numbers(case, interpreted, want.astype(interpreted.dtype), kind, points, f"interpreted {shape}")
        same_numbers(case, made, interpreted, kind, points, f"compiled {shape}")


@pytest.mark.parametrize(("case", "kind"), KINDS, ids=ids)
def test_special_values(case: Case, kind: DType) -> None:
    """NaN, infinities, both zeros, subnormals, overflow; the extreme integers, division by zero: as in NumPy."""
    if case.op.name in ("int_div", "int_rem"):  # machine division, which others guard
        return
    points = special_points(case, kind)
    want = case.meaning(*points)
    array, scalar = compile_kernel(case.func(kind, (N,))), compile_kernel(case.func(kind))
    (found,) = array(points)
    want = want.astype(np.asarray(found).dtype)
    alone = np.array([scalar([np.array(p) for p in point])[0] for point in zip(*points, strict=True)], want.dtype)
    same_numbers(case, np.asarray(found), want, kind, points, "array")
    same_numbers(case, alone, want, kind, points, "scalar")


@pytest.mark.parametrize("case", [c for c in CASES if c.op.sympy is not None], ids=ids)
def test_sympy_is_numpy(case: Case) -> None:
    points = case.points(5)
    for point, value in zip(zip(*points, strict=True), case.meaning(*points), strict=True):
        if case.op.domain:
            assert abs(exact(case, (), point) - float(value)) <= 1e-14 + 1e-13 * abs(value)  # NumPy's own rounding
        else:
            given = [sp.sympify(p.item()) for p in point]
            assert value.dtype.type(case.op.sympy(sp, *given, **case.keywords)) == value


# -- accuracy -----------------------------------------------------------------------------------------------------------
SINGLE_ARGUMENT = [c for c in CASES if c.arity == 1 and c.op.domain and isinstance(c.op.lower, (Libm, Compose, Intrinsic))]
# ours promise 4 ulp; glibc documents up to 5 for gamma. Compositions add those of several calls, and near a zero of theirs
# the terms that cancel have errors as if the argument had been moved by a few ulp.
LIBRARY, COMPOSED, MOVED = 5, 16, 16


@pytest.mark.parametrize("kind", (f64, f32), ids=str)
@pytest.mark.parametrize("case", SINGLE_ARGUMENT, ids=ids)
def test_accuracy(case: Case, kind: DType) -> None:
    """Against mpmath, over the domain and over all magnitudes."""
    rng = np.random.default_rng(5)
    magnitudes = 10.0 ** rng.uniform(-12, 2.8, 60) * rng.choice([-1.0, 1.0], 60)
    large = np.array([1e3, -1e4, 12345.678, 1e6 + 0.25, 1e10, -3e15, 1e22])
    x = np.concatenate([case.points(60)[0], magnitudes, large]).astype(kind.numpy)
    (vector,) = compiled(case.func(kind, (N,)), [x])
    scalar = compile_kernel(case.func(kind))
    smallest, largest = 1e3 * np.finfo(kind.numpy).tiny, 1e-3 * np.finfo(kind.numpy).max
    failures = []
    with mpmath.workdps(300):  # exp(x) - 1, 1 + x, 1 - tanh(x)**2 cancel hundreds of digits
        for point, value in zip(x, vector, strict=True):
            if not smallest < abs(value) < largest:
                continue  # special values are compared with NumPy's
            true = mpmath.re(function(case)(mpmath.mpf(float(point))))
            allowed = LIBRARY * float(np.spacing(abs(value)))
            if isinstance(case.op.lower, Compose):
                slope = abs(function(case, (0,))(mpmath.mpf(float(point))))
                allowed = COMPOSED * float(np.spacing(abs(value))) + MOVED * slope * float(np.spacing(abs(point)))
            for found, how in ((value, "array"), (scalar([np.array(point)])[0], "scalar")):
                error = abs(mpmath.mpf(float(found)) - true)
                if error > allowed:
                    failures.append(f"{how} {point!r}: {found!r}, {float(error / float(np.spacing(abs(value)))):.1f} ulp")
    assert not failures, f"{len(failures)} of {2 * x.size}: " + "; ".join(failures[:20])


# -- partials -----------------------------------------------------------------------------------------------------------
CLOSE = (1e-13, 1e-12, 1e-11)  # relative, by order: each differentiation adds a few roundings and some cancellation


@pytest.mark.parametrize("case", SMOOTH, ids=ids)
def test_partials_are_sympys(case: Case) -> None:
    """Over numbers and over symbols."""
    points = case.points(3)
    found = case.op.partials(Numbers(), case.meaning(*points), *points, **case.keywords)
    symbols = SYMBOLS[: case.arity]
    meaning = case.op.sympy(sp, *symbols, **case.keywords)
    stated = case.op.partials(Symbols(), meaning, *symbols, **case.keywords)
    for k, (partial, symbolic) in enumerate(zip(found, stated, strict=True)):
        values = np.broadcast_to(0.0 if partial is None else partial, (3,))
        rule = sp.lambdify(symbols, sp.sympify(0 if symbolic is None else symbolic), MPMATH)
        for j, point in enumerate(zip(*points, strict=True)):
            want = exact(case, (k,), point)
            assert abs(want - float(values[j])) <= CLOSE[0] * (abs(want) + 0.1)
            with mpmath.workdps(DIGITS):
                # constants such as log(2) are doubles
                assert abs(want - rule(*map(mpmath.mpf, map(float, point)))) <= 1e-14 * (abs(want) + 0.1)


@pytest.mark.parametrize("order", (1, 2, 3))
@pytest.mark.parametrize("case", SMOOTH, ids=ids)
def test_derivatives_are_sympys(case: Case, order: int) -> None:
    """Compiled adjoints of adjoints, over 17 elements: three points, repeated."""
    few = case.points(3)
    points = [np.resize(p, 17) for p in few]
    seeds = [np.full(17, s) for s in TRIP[:order]]
    for index, func in derivatives(case.func(f64, (17,)), order):
        (found,) = compiled(func, [*points, *seeds])
        for j, point in enumerate(zip(*few, strict=True)):
            want = float(exact(case, index, point) * mpmath.fprod(TRIP[:order]))
            np.testing.assert_allclose(found[j::3], want, rtol=CLOSE[order - 1], atol=CLOSE[order - 1], err_msg=str(index))


@pytest.mark.parametrize("case", SMOOTH, ids=ids)
def test_single_precision_gradients(case: Case) -> None:
    few = case.points(3, f32)
    points = [np.resize(p, 17) for p in few]
    for index, func in derivatives(case.func(f32, (17,)), 1):
        (found,) = compiled(func, [*points, np.full(17, -0.5, np.float32)])
        assert found.dtype == np.float32
        for j, point in enumerate(zip(*few, strict=True)):
            want = -0.5 * float(exact(case, index, point))
            np.testing.assert_allclose(found[j::3], want, rtol=1e-5, atol=1e-5, err_msg=str(index))  # 24 bits


# -- edges --------------------------------------------------------------------------------------------------------------
EDGES = [(Case(op, tuple(e.attrs.items())), e) for op in OPS.values() if isinstance(op, Elementwise) for e in op.edges]
EDGE_IDS = [f"{case}-at-{edge.at}" for case, edge in EDGES]
SEED = -0.7


def exactly(found: np.ndarray, want: float, what: str) -> None:
    """Infinities, NaN and zeros exactly; other numbers within a few roundings."""
    np.testing.assert_allclose(np.asarray(found), np.full(np.shape(found), want), rtol=4e-15, atol=0, err_msg=what)


@pytest.mark.parametrize(("case", "edge"), EDGES, ids=EDGE_IDS)
@pytest.mark.parametrize("shape", ((), (17,)), ids=("scalar", "array"))
def test_edges(case: Case, edge: Edge, shape: tuple[int, ...]) -> None:
    """Value and first partials, by reverse and forward mode, interpreted and compiled; a zero cotangent gives zero."""
    func = case.func(f64, shape)
    args = [np.full(shape, a) for a in edge.at]
    for evaluate in (run, compiled):
        exactly(evaluate(func, args)[0], edge.value, "value")
    reverse = differentiate(func, func.params, primal=False)
    forwards = [push_forward(func, [p], primal=False) for p in func.params]
    for evaluate in (run, compiled):
        gradients = evaluate(reverse, [*args, np.full(shape, SEED)])
        tangents = [evaluate(forward, [*args, np.full(shape, SEED)])[0] for forward in forwards]
        for k, (partial, pulled, moved) in enumerate(zip(edge.partials, gradients, tangents, strict=True)):
            if partial is not None:
                exactly(pulled, SEED * partial, f"reverse, operand {k}, {evaluate.__module__}")
                exactly(moved, SEED * partial, f"forward, operand {k}, {evaluate.__module__}")
        if not np.isnan(edge.at).any():
            # mul's partials are its operands, so infinite operands go their IEEE way; the record says so by `singular`
            for seed in (0.0, -0.0) if case.op.singular or np.isfinite([p or 0.0 for p in edge.partials]).all() else ():
                for part in (
                    *evaluate(reverse, [*args, np.full(shape, seed)]),
                    *(evaluate(f, [*args, np.full(shape, seed)])[0] for f in forwards),
                ):
                    exactly(part, 0.0, "zero seed")


@pytest.mark.parametrize("case", list(dict.fromkeys(case for case, _ in EDGES)), ids=ids)
def test_higher_derivatives_at_edges(case: Case) -> None:
    """Nothing is promised about their values, except that compiled code computes what was meant."""
    points = np.array([edge.at for other, edge in EDGES if other == case])
    for order in (2, 3) if case.arity == 1 else (2,):
        seeds = [np.full(len(points), s) for s in TRIP[:order]]
        for index, func in derivatives(case.func(f64, (len(points),)), order):
            args = [*points.T, *seeds]
            # terms of order one may cancel at an edge
            np.testing.assert_allclose(compiled(func, args)[0], run(func, args)[0], rtol=1e-12, atol=1e-12, err_msg=str(index))


@pytest.mark.parametrize("kind", (f64, f32), ids=str)
@pytest.mark.parametrize("case", SMOOTH, ids=ids)
def test_nan_is_never_hidden(case: Case, kind: DType) -> None:
    """An operand that is NaN gives a gradient of NaN, unless the value does not depend on it or does at a constant rate."""
    func = case.func(kind)
    ordinary = [p[0] for p in case.points(1, kind)]
    reverse = differentiate(func, func.params, primal=False)
    rates = case.op.partials(Numbers(), case.meaning(*ordinary), *ordinary, **case.keywords)
    moving = [not (rate is None or isinstance(rate, (int, float))) for rate in rates]
    for place in range(case.arity):
        args = [np.asarray(np.nan if k == place else a, kind.numpy) for k, a in enumerate(ordinary)]
        (value,) = compiled(func, args)
        gradients = compiled(reverse, [*args, np.asarray(-1.5, kind.numpy)])
        if np.isnan(value) and any(moving):
            assert any(np.isnan(g) for g, rate in zip(gradients, moving, strict=True) if rate), (place, gradients)


# -- structural records -------------------------------------------------------------------------------------------------
STRUCTURAL = [
    (op, types, attrs)
    for op in OPS.values()
    if not isinstance(op, Plain) and not (isinstance(op, Elementwise) and (op.domain or op.partials is None))
    for types, attrs in op.samples
    if any(parse_type(t).is_float for t in types)
]


@pytest.mark.parametrize(
    ("op", "types", "attrs"), STRUCTURAL, ids=[f"{op.name}({', '.join(types)}){attrs or ''}" for op, types, attrs in STRUCTURAL]
)
def test_second_order_of_structural_ops(op, types, attrs) -> None:
    """The gradient, differentiated: reverse over reverse against forward over reverse against differences; all compiled."""
    params = [Value(f"x{k}", parse_type(text)) for k, text in enumerate(types)]
    b = Builder()
    func = Func("f", b.close("return", b.emit(op, params, attrs), params))
    if not func.results[0].type.is_float:
        return
    rng = np.random.default_rng(6)
    args = [draw(rng, p.type) for p in params]
    first = differentiate(func, [p for p in params if p.type.is_float], primal=False)
    moving = [p for p in first.params if p.type.is_float]
    point = [*args, draw(rng, first.params[-1].type)]
    single = any(p.type.dtype is f32 for p in (*first.params, *first.results))
    digits = 1e-5 if single else 1e-12  # a few units in the last place of the element type
    for want, found in zip(run(first, point), compiled(first, point), strict=True):
        np.testing.assert_allclose(found, want, rtol=digits, atol=digits)
    directions, seeds = [draw(rng, p.type) for p in moving], [draw(rng, r.type) for r in first.results]
    reverse, forward = differentiate(first, moving, primal=False), push_forward(first, moving, primal=False)
    pulled, moved = compiled(reverse, [*point, *seeds]), compiled(forward, [*point, *directions])
    for want, found in zip(
        (*run(reverse, [*point, *seeds]), *run(forward, [*point, *directions])), (*pulled, *moved), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=digits, atol=digits)
    left = sum(float(np.sum(p * d)) for p, d in zip(pulled, directions, strict=True))
    right = sum(float(np.sum(m * s)) for m, s in zip(moved, seeds, strict=True))
    assert left == pytest.approx(right, rel=10 * digits, abs=10 * digits)
    if single:
        return  # only conversions, which are linear

    def at(h: float) -> list[np.ndarray]:
        steps = iter(directions)
        return list(run(first, [a + h * next(steps) if p in moving else a for p, a in zip(first.params, point, strict=True)]))

    for high, low, slope in zip(
        at(1e-5), at(-1e-5), moved, strict=True
    ):  # central differences: about 1e-10 of the third derivative
        np.testing.assert_allclose((high - low) / 2e-5, slope, rtol=1e-6, atol=1e-6)


def draw(rng: np.random.Generator, kind: Type) -> np.ndarray:
    if kind.is_float:
        return rng.normal(size=kind.shape).astype(kind.dtype.numpy)
    return rng.integers(0, 2, kind.shape).astype(kind.dtype.numpy)  # as an index these are within bounds
