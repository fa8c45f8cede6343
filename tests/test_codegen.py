"""Generated code against the reference interpreter, over hand-written and random programs; and what the loops look like."""

from __future__ import annotations

import platform
import threading
import time

import numpy as np
import pytest

from pullback.errors import PullbackError, ShapeError
from pullback.ir.core import Builder, Func, Value
from pullback.ir.dims import Dim
from pullback.ir.interp import run
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise
from pullback.ir.parse import parse_type
from pullback.ir.types import Type, bool_, f32, f64, i64
from pullback.ir.verify import verify
from pullback.llvm import Options, compile_kernel
from tests import programs

N, M = Dim.symbol("n"), Dim.symbol("m")
SIZES = (0, 1, 2, 3, 7, 8, 9, 100, 1000)
# functions are good to 4 ulp, sums are added in another order: about 50 ulp for values of order one
CLOSE = {"f64": 1e-14, "f32": 1e-5, "i64": 0, "bool": 0}


def func_of(types, build, name="f"):
    """A function of parameters of these types, given as text or Types."""
    params = [Value(f"x{k}", t if isinstance(t, Type) else parse_type(t)) for k, t in enumerate(types)]
    b = Builder()
    results = build(b, *params)
    func = Func(name, b.close("return", results if isinstance(results, tuple) else (results,), params))
    verify(func)
    return func


def draw(rng, kind, sizes=None):
    """A random array of an IR type, signs mixed."""
    shape = [(sizes or {})[str(s)] if isinstance(s, Dim) else s for s in kind.shape]
    if kind.dtype is bool_:
        return rng.random(shape) < 0.5
    if kind.dtype is i64:
        return rng.integers(-9, 10, shape)
    return np.asarray(rng.normal(size=shape), kind.dtype.numpy)


def agree(func, args, scale=1.0, options=None):
    """Compiled and interpreted results are the same; gives the compiled ones."""
    expected = run(func, args)
    found = compile_kernel(func, options)([np.array(a, order="C") for a in args])
    assert len(found) == len(expected)
    for value, want, result in zip(found, expected, func.results, strict=True):
        assert np.shape(value) == want.shape
        tolerance = (
            CLOSE[result.type.dtype.name] * scale * max(1.0, float(np.max(np.abs(want), initial=1.0, where=np.isfinite(want))))
        )
        np.testing.assert_allclose(np.asarray(value), want, rtol=0, atol=tolerance, err_msg=str(func))
    return found


def loops(func):
    return compile_kernel(func).texts("loops")


@pytest.mark.parametrize("kind", ("f64", "f64[2, 3]", "f64[20, 3]"))
def test_an_argument_that_is_returned_is_copied(kind):
    rng = np.random.default_rng(5)
    for build in (lambda b, x, y: y, lambda b, x, y: (y, y), lambda b, x, y: (y, b.neg(x), x)):
        func = func_of((kind, kind), build)
        args = [np.asarray(draw(rng, p.type)) for p in func.params]
        agree(func, args)


# -- every record ---------------------------------------------------------------------------------------------------
def record_samples():
    for op in OPS.values():
        if isinstance(op, Elementwise):
            continue
        for k, (types, attrs) in enumerate(op.samples):
            yield pytest.param(op, types, attrs, id=f"{op.name}-{k}")


@pytest.mark.parametrize(("op", "types", "attrs"), list(record_samples()))
def test_samples(op, types, attrs):
    rng = np.random.default_rng(3)
    types = [parse_type(t) for t in types]
    func = func_of(types, lambda b, *args: tuple(b.emit(op, args, attrs)))
    args = [draw(rng, t) for t in types]
    if op.name in ("gather", "scatter_add", "scatter_set"):
        for k, kind in enumerate(types[1:], 1):
            if kind.dtype is i64:
                args[k] = rng.integers(0, types[0].shape[k - 1], kind.shape)
    if op.name == "check_index":
        args = [np.array([-3, 2, 0, -1])]
    agree(func, args, scale=10)


@pytest.mark.parametrize("kind", [f64, f32, i64, bool_], ids=str)
@pytest.mark.parametrize("op", [op for op in OPS.values() if isinstance(op, Elementwise)], ids=lambda op: op.name)
def test_elementwise(op, kind):
    """Each elementwise op at 37 points of its domain, as an array and as a scalar, for each element type that it has."""
    rng = np.random.default_rng(7)
    count = 3 if op.name == "select" else len(op.domain)
    count = count or (op.numpy.nin if isinstance(op.numpy, np.ufunc) else op.numpy.__code__.co_argcount)
    for attrs in [dict(s[1]) for s in op.samples] or [{}]:
        for shape in ((37,), ()):
            types = [Type(kind, shape)] * count
            if op.name == "select":
                types = [Type(bool_, shape), Type(kind, shape), Type(kind, shape)]
            try:
                func = func_of(types, lambda b, *args, attrs=attrs: tuple(b.emit(op, args, attrs)))
            except ValueError:  # the op is not defined for this element type or number of operands
                continue
            args = []
            for k, t in enumerate(types):
                value = draw(rng, t)
                if op.domain and t.dtype.kind == "f":
                    low, high = op.domain[k % len(op.domain)].low, op.domain[k % len(op.domain)].high
                    value = np.asarray(low + (high - low) * rng.random(shape), t.dtype.numpy)
                if op.name == "int_div":  # a part of floor division, which keeps zeros away from it
                    value = np.where(value == 0, 2, value)
                args.append(value)
            agree(func, args, scale=100)


# -- hand-written programs ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", SIZES)
def test_fused_sum(n):
    func = func_of(["f64[n]", "f64[n]"], lambda b, x, y: (b.sum(b.mul(x, b.sin(y)), axes=(0,)), b.exp(x)))
    rng = np.random.default_rng(n)
    agree(func, [rng.normal(size=n), rng.normal(size=n)], scale=n + 1)
    assert loops(func).count("for ") == 1


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("m", (0, 1, 2, 9))
def test_matrix_reductions(n, m):
    def build(b, x):
        y = b.mul(x, x)
        sums = [b.sum(y, axes=axes) for axes in ((0,), (1,), (0, 1))]
        return (*sums, b.sum(b.transpose(x, perm=(1, 0)), axes=(1,)), b.any(b.lt(x, y), axes=(0,)))

    agree(func_of(["f64[n, m]"], build), [np.random.default_rng(n).normal(size=(n, m))], scale=n + m + 1)


def test_leading_axes_are_summed_in_row_order():
    text = loops(func_of(["f64[n, m]", "f64[n]"], lambda b, x, r: b.contract(x, r, batch=((), ()), axes=((0,), (0,)))))
    body = text[text.rindex("for i") :]
    assert "add=" in body  # accumulated into the row of the result
    assert text.index("< n") < text.rindex("< m")  # rows outside, columns inside


@pytest.mark.parametrize(
    "sizes", [(0, 0, 0), (1, 1, 1), (3, 0, 2), (2, 3, 4), (9, 8, 7), (33, 40, 50), (70, 64, 31), (1, 400, 300), (400, 1, 300)]
)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_matrix_products(sizes, transposed):
    m, k, n = sizes
    left, right = (
        (("f64[k, m]", 0) if transposed[0] else ("f64[m, k]", 1)),
        (("f64[n, k]", 1) if transposed[1] else ("f64[k, n]", 0)),
    )
    func = func_of([left[0], right[0]], lambda b, x, y: b.contract(x, y, batch=((), ()), axes=((left[1],), (right[1],))))
    rng = np.random.default_rng(m)
    x = rng.normal(size=(k, m) if transposed[0] else (m, k))
    y = rng.normal(size=(n, k) if transposed[1] else (k, n))
    agree(func, [x, y], scale=k + 1)
    assert "region" not in loops(func)  # operands are read in place


@pytest.mark.parametrize("size", (2, 40))
def test_products_propagate_nan_and_infinity(size):
    func = func_of(["f64[m, k]", "f64[k, n]"], lambda b, x, y: b.contract(x, y, batch=((), ()), axes=((1,), (0,))))
    x, y = np.zeros((size, size)), np.ones((size, size))
    y[0, 0], y[1, 1] = np.inf, np.nan
    (found,) = compile_kernel(func)([x, y])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, x @ y)


def test_batched_and_general_contractions():
    rng = np.random.default_rng(1)
    cases = [
        (["f64[b, m, k]", "f64[b, k, n]"], ((0,), (0,)), ((2,), (1,)), [(5, 3, 4), (5, 4, 2)]),
        (["f64[m, b, k]", "f64[n, k, b]"], ((1,), (2,)), ((2,), (1,)), [(3, 5, 4), (2, 4, 5)]),
        (["f64[m, k, l]", "f64[k, n, l]"], ((), ()), ((1, 2), (0, 2)), [(30, 4, 5), (4, 60, 5)]),
        (["f32[m, k]", "f32[k, n]"], ((), ()), ((1,), (0,)), [(50, 60), (60, 40)]),
        (["i64[m, k]", "i64[k, n]"], ((), ()), ((1,), (0,)), [(5, 6), (6, 4)]),
    ]
    for types, batch, axes, shapes in cases:
        func = func_of(types, lambda b, x, y, batch=batch, axes=axes: b.contract(x, y, batch=batch, axes=axes))
        args = [np.asarray(draw(rng, Type(p.type.dtype, s))) for p, s in zip(func.params, shapes, strict=True)]
        agree(func, args, scale=100)


def rosenbrock_gradient():
    def build(b, x):
        one = {"starts": (1,), "sizes": (N - 1,), "steps": (1,)}
        zero = {"starts": (0,), "sizes": (N - 1,), "steps": (1,)}
        x0, x1 = b.slice(x, **zero), b.slice(x, **one)
        like = x0.type
        t = b.sub(x1, b.mul(x0, x0))
        u = b.sub(b.full(1, like), x0)
        value = b.sum(b.add(b.mul(b.full(100, like), b.mul(t, t)), b.mul(u, u)), axes=(0,))
        dt = b.mul(b.full(200, like), t)
        dx0 = b.sub(b.mul(b.full(-2, like), b.mul(x0, dt)), b.mul(b.full(2, like), u))
        gradient = b.slice_add(b.slice_add(b.zeros(x.type), dt, starts=(1,), steps=(1,)), dx0, starts=(0,), steps=(1,))
        return value, gradient

    return func_of(["f64[n]"], build)


@pytest.mark.parametrize("n", (1, 2, 3, 9, 100, 1000))
def test_update_chains(n):
    agree(rosenbrock_gradient(), [np.random.default_rng(n).normal(size=n)], scale=n)


def test_update_chains_do_not_copy():
    text = loops(rosenbrock_gradient())
    assert "copy" not in text and "region" not in text
    assert text.count("for ") <= 5  # with that over blocks


def test_an_update_of_an_argument_copies_once():
    func = func_of(["f64[n]", "f64[3]"], lambda b, x, u: b.slice_set(x, u, starts=(1,), steps=(2,)))
    assert loops(func).count("# copy") == 1
    agree(func, [np.arange(9.0), np.ones(3)])


def test_reads_of_an_old_version_come_first():
    """A value read after an update in program order, but not depending on it, does not cost a copy."""

    def build(b, x):
        y = b.exp(x)
        z = b.slice_set(b.add(y, y), b.full(5, f64[2]), starts=(1,), steps=(1,))
        w = b.slice_set(z, b.full(7, f64[2]), starts=(3,), steps=(1,))
        return b.sum(z, axes=(0,)), w

    func = func_of(["f64[n]"], build)
    assert "# copy" not in loops(func)
    agree(func, [np.random.default_rng(0).normal(size=12)], scale=100)


def test_a_true_cycle_copies():
    def build(b, x):
        y = b.slice_set(b.exp(x), b.full(5, f64[2]), starts=(1,), steps=(1,))
        z = b.slice_set(y, b.full(7, f64[2]), starts=(3,), steps=(1,))
        return b.add(y, z)

    func = func_of(["f64[n]"], build)
    agree(func, [np.random.default_rng(0).normal(size=12)], scale=100)


def test_an_update_that_reads_its_own_target():
    def build(b, x):
        y = b.exp(x)
        part = b.slice(y, starts=(0,), sizes=(N - 1,), steps=(1,))
        return b.slice_set(y, b.mul(part, part), starts=(1,), steps=(1,))

    func = func_of(["f64[n]"], build)
    for n in (1, 2, 3, 100):
        agree(func, [np.random.default_rng(0).normal(size=n)], scale=100)


def test_expensive_values_are_not_computed_twice():
    def build(b, x):
        e = b.exp(x)
        return b.mul(e, b.broadcast(b.sum(e, axes=(0,)), axes=(), shape=(N,)))

    func = func_of(["f64[n]"], build)
    assert loops(func).count("= exp") == 1
    agree(func, [np.random.default_rng(0).normal(size=100)], scale=1000)


def test_outputs_alias_nothing():
    func = func_of(["f64[n]"], lambda b, x: (x, b.neg(x), x))
    x = np.arange(5.0)
    results = compile_kernel(func)([x])
    for k, a in enumerate(results):
        assert not np.shares_memory(a, x)
        assert not any(np.shares_memory(a, other) for other in results[k + 1 :])
    agree(func, [x])
    y = b_twice = func_of(["f64[n]"], lambda b, x: (y := b.exp(x), y))
    assert y is b_twice
    first, second = compile_kernel(b_twice)([x])
    assert not np.shares_memory(first, second)


# -- sums -------------------------------------------------------------------------------------------------------------
def test_sums_are_accurate_and_reproducible():
    import math

    func = func_of(["f64[n]"], lambda b, x: b.sum(x, axes=(0,)))
    kernel = compile_kernel(func)
    x = np.random.default_rng(5).random(3_000_000)
    exact = math.fsum(x)
    (found,) = kernel([x])
    assert abs(found - exact) <= 4 * abs(np.sum(x) - exact) + 2 * np.spacing(exact)
    assert kernel([x.copy()])[0] == found
    for special in (np.inf, -np.inf, np.nan):
        x[1234567] = special
        np.testing.assert_equal(kernel([x])[0], special)


def test_row_sums_are_accurate():
    func = func_of(["f64[n, m]"], lambda b, x: b.sum(b.transpose(x, perm=(1, 0)), axes=(0, 1)))
    x = np.full((100_000, 3), 0.1)
    (found,) = compile_kernel(func)([x])
    assert abs(found - 30000.0) < 1e-10


def test_float32_is_computed_in_float32():
    func = func_of(["f32[n]"], lambda b, x: b.mul(x, x))
    assert "double" not in compile_kernel(func).texts("llvm")
    agree(func, [np.arange(9, dtype=np.float32)])


# -- checks -----------------------------------------------------------------------------------------------------------
def test_indices_are_checked():
    func = func_of(["f64[n]", "i64[m]"], lambda b, x, i: b.gather(x, b.check_index(i, size=N, axis=0)))
    agree(func, [np.arange(5.0), np.array([0, -1, 4, -5])])
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 5"):
        compile_kernel(func)([np.arange(5.0), np.array([0, 7])])
    with pytest.raises(IndexError, match="index -6 is out of bounds"):
        compile_kernel(func)([np.arange(5.0), np.array([-6])])
    scalar = func_of(["f64[n]", "i64"], lambda b, x, i: b.gather(x, b.check_index(i, size=N, axis=0)))
    assert compile_kernel(scalar)([np.arange(5.0), -2]) == [3.0]
    with pytest.raises(IndexError, match="index 5"):
        compile_kernel(scalar)([np.arange(5.0), 5])


def test_lengths_are_matched():
    func = func_of(["f64[n]", "f64[m]"], lambda b, x, y: b.add(x, b.match(y, shape=(N,))))
    agree(func, [np.arange(5.0), np.ones(5)])
    with pytest.raises(ShapeError, match="length 4 meets one of length 5"):
        compile_kernel(func)([np.arange(5.0), np.ones(4)])


def test_a_failed_check_raises_its_message():
    def build(b, x):
        b.check(b.lt(x, b.const(1)), message="x {must} be small")
        return b.mul(x, x)

    func = func_of(["f64"], build)
    assert compile_kernel(func)([0.5]) == [0.25]
    with pytest.raises(PullbackError, match=r"x \{must\} be small"):
        compile_kernel(func)([2.0])


def test_arguments_are_checked():
    kernel = compile_kernel(
        func_of(["f64[n]", "f64[n - 1]"], lambda b, x, y: b.add(b.slice(x, starts=(1,), sizes=(N - 1,), steps=(1,)), y))
    )
    with pytest.raises(ShapeError, match=r"argument 1: f64\[n - 1\] expected, here of shape \(4,\); got shape \(5,\)"):
        kernel([np.ones(5), np.ones(5)])
    with pytest.raises(TypeError, match="argument 0: f64"):
        kernel([np.ones(5, np.float32), np.ones(4)])


# -- masks and sorting --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", SIZES)
def test_masks(n):
    def build(b, x):
        chosen = b.gather(x, b.nonzero(b.lt(b.zeros(x.type), x), symbol="k"))
        back = b.scatter_add(
            b.zeros(x.type),
            b.nonzero(b.lt(b.zeros(x.type), x), symbol="j"),
            b.broadcast(b.const(2.0), axes=(), shape=(Dim.symbol("j"),)),
        )
        return chosen, b.sum(b.exp(chosen), axes=(0,)), back

    agree(func_of(["f64[n]"], build), [np.random.default_rng(n).normal(size=n)], scale=n + 1)


@pytest.mark.parametrize("n", SIZES)
def test_sorting_is_stable(n):
    rng = np.random.default_rng(n)
    func = func_of(["f64[n]"], lambda b, x: (b.argsort(x), b.gather(x, b.argsort(x))))
    x = rng.integers(0, 5, n).astype(float)
    x[rng.random(n) < 0.1] = np.nan
    agree(func, [x])


def test_extrema_propagate_nan():
    func = func_of(["f64[n]"], lambda b, x: (b.max(x, axes=(0,)), b.argmax(x, axis=0), b.argmin(x, axis=0)))
    for values in ([1.0, np.nan, 3.0], [2.0, 2.0, 1.0, 1.0], [-np.inf], [np.inf, -np.inf]):
        agree(func, [np.array(values)])


# -- calls --------------------------------------------------------------------------------------------------------------
def test_out():
    kernel = compile_kernel(func_of(["f64[n]"], lambda b, x: (b.exp(x), b.sum(x, axes=(0,)))))
    x, y = np.arange(5.0), np.empty(5)
    result = kernel([x], out=[y, None])
    assert result[0] is y
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-15)
    kernel([x], out=[x, None])  # overlaps the argument
    np.testing.assert_allclose(x, np.exp(np.arange(5.0)), rtol=1e-15)
    wide = np.zeros((5, 2))
    kernel([np.arange(5.0)], out=[wide[:, 1], None])
    np.testing.assert_allclose(wide, np.stack([np.zeros(5), np.exp(np.arange(5.0))], 1), rtol=1e-15)
    with pytest.raises(ShapeError):
        kernel([np.arange(5.0)], out=[np.empty(4), None])


def test_threads():
    func = rosenbrock_gradient()
    kernel = compile_kernel(func)
    arguments = [np.random.default_rng(k).normal(size=1000 + k) for k in range(8)]
    expected = [kernel([x]) for x in arguments]
    wrong = []

    def work(k):
        for _ in range(50):
            value, gradient = kernel([arguments[k]])
            if value != expected[k][0] or not np.array_equal(gradient, expected[k][1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_equal_functions_are_compiled_once():
    first = func_of(["f64[n]"], lambda b, x: b.mul(x, x), name="a")
    second = func_of(["f64[n]"], lambda b, x: b.mul(x, x), name="b")
    assert compile_kernel(first)._keep is compile_kernel(second)._keep  # the machine code; names are each function's own
    assert compile_kernel(first)._keep is not compile_kernel(first, Options(fast_math=True))._keep


def test_reductions_vectorise():
    func = func_of(["f64[n]"], lambda b, x: b.sum(b.mul(b.exp(x), b.sin(x)), axes=(0,)))
    assembly = compile_kernel(func).texts("asm")
    if platform.machine().lower() in ("x86_64", "amd64"):
        assert "addpd" in assembly
        assert "fmadd" not in assembly or ("fmadd213pd" in assembly and "fmadd213sd" not in assembly)  # the functions too


# -- large programs -------------------------------------------------------------------------------------------------------
def test_huge_scalar_code():
    """40000 scalar operations: chunked, without recursion, in seconds."""
    b = Builder()
    params = [Value(f"x{k}", Type(f64)) for k in range(4)]
    pool = list(params)
    rng = np.random.default_rng(0)
    for k in range(40_000):
        x, y = (pool[-int(i)] for i in rng.integers(1, 5, 2))
        pool.append(
            b.sin(x) if k % 10 == 0 else b.mul(x, y) if k % 3 == 0 else b.sub(x, y) if k % 3 == 1 else b.add(x, params[k % 4])
        )
    func = Func("huge", b.close("return", (pool[-1], pool[20_000], pool[7]), params))
    start = time.perf_counter()
    kernel = compile_kernel(func)
    assert time.perf_counter() - start < 30  # generous: about 2 s on an idle machine
    args = [0.3, -0.2, 0.7, 1.1]
    expected = run(func, args)
    for found, want in zip(kernel(args), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-9)  # rounding grows over thousands of operations


def test_long_elementwise_chains():
    def build(b, x):
        y = x
        for k in range(2000):
            y = b.sub(b.mul(y, x), y) if k % 2 else b.add(y, x)
        return b.sum(y, axes=(0,)), y

    agree(func_of(["f64[n]"], build), [np.full(11, 0.5)], scale=1e4)


def test_many_updates_in_a_row():
    def build(b, x):
        for k in range(200):
            before = b.reshape(b.slice(x, starts=(k,), sizes=(1,), steps=(1,)), shape=())
            x = b.slice_set(x, b.reshape(b.mul(before, b.const(0.5)), shape=(1,)), starts=(k + 1,), steps=(1,))
        return x

    func = func_of(["f64[n]"], build)
    assert loops(func).count("# copy") == 1  # of the argument
    agree(func, [np.arange(300.0)])


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed):
    rng = np.random.default_rng(1000 + seed)
    func, args = programs.random_program(rng, n=(None, 0, 1, 9)[seed % 4])
    agree(func, args, scale=1e5)  # values near kinks and nested maps lose digits


def test_a_signature_survives_its_manifest():
    from pullback_runtime import library

    def build(b, x):
        chosen = b.gather(x, b.check_index(b.nonzero(b.lt(b.zeros(x.type), x), symbol="k"), size=N, axis=0))
        return chosen, b.slice(x, starts=(0,), sizes=((N + 1) // 2,), steps=(2,))

    signature = compile_kernel(func_of(["f64[n]"], build)).signature
    assert library.signature(library.manifest(signature)) == signature


def test_products_are_transposed_for_free():
    """The adjoint of a matrix product, as it comes out of the rule: a product and a transpose."""

    def build(b, x, y):
        product = b.contract(y, x, batch=((), ()), axes=((0,), (0,)))
        return b.transpose(product, perm=(1, 0))

    func = func_of(["f64[n, p]", "f64[n, q]"], build)
    assert "for " not in loops(func)
    rng = np.random.default_rng(2)
    agree(func, [rng.normal(size=(30, 20)), rng.normal(size=(30, 25))], scale=100)


def test_small_static_arrays_need_no_memory():
    def build(b, x):
        for _ in range(5):
            x = b.add(b.mul(x, x), b.broadcast(b.sum(x, axes=(0,)), axes=(), shape=(3,)))
        return b.slice_set(x, b.full(2, f64[1]), starts=(1,), steps=(1,))

    func = func_of(["f64[3]"], build)
    text = loops(func)
    assert "for " not in text and "region" not in text
    agree(func, [np.array([0.1, -0.2, 0.3])])


def test_fast_math_computes_the_same_sums():
    func = func_of(["f64[n]"], lambda b, x: (b.sum(b.mul(x, x), axes=(0,)), b.div(x, b.sin(x))))
    agree(func, [np.random.default_rng(4).normal(size=1000)], scale=1e4, options=Options(fast_math=True))
