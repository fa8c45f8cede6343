"""Function -> Function: derivatives that are called, transformed and traced like any function."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy.optimize import minimize

import pullback as pb

X = np.linspace(-1.0, 1.5, 12)
SYMBOLIC = pytest.mark.parametrize("symbolic", (False, True))
TIGHT = {"rtol": 1e-13, "atol": 1e-14}  # other orders of adding


def cubic(x):
    return x * x * x


def energy(x, k):
    return np.sum(k * x**3)


@pb.compile
def decorated(x):
    """What it does."""
    return x**2


def plain(x, y):
    return x * x * y


compiled = pb.compile(plain)


# -- gradients --------------------------------------------------------------------------------------------------------
def test_to_any_order():
    f = pb.compile(cubic)
    orders = [f]
    for _ in range(4):
        orders.append(pb.grad(orders[-1]))
    assert [g(2.0) for g in orders] == [8.0, 12.0, 12.0, 6.0, 0.0]
    assert pb.grad(pb.grad(cubic))(-2) == -12.0  # a Python integer is a float where nothing else is floating
    assert pb.grad(f) is orders[1]


@SYMBOLIC
def test_a_gradient_of_arrays_and_its_products(symbolic):
    f = pb.compile(energy, symbolic=symbolic)
    gradient = pb.grad(f, wrt="x")
    np.testing.assert_allclose(gradient(X, 2.0), 6 * X**2, **TIGHT)
    np.testing.assert_allclose(gradient.vjp(X, 2.0, seed=-X, wrt="x")[1], -12 * X * X, **TIGHT)
    np.testing.assert_allclose(gradient.jvp(X, 2.0, tangents={"x": X})[1], 12 * X * X, **TIGHT)
    np.testing.assert_allclose(f.hvp(X, 2.0, vector=-X, wrt="x"), -12 * X * X, **TIGHT)
    np.testing.assert_allclose(f.hvp(X, 2.0, vector=-X, wrt=0), -12 * X * X, **TIGHT)
    by_x, by_k = f.hvp(X, 2.0, vector=(X, -1.0), wrt=("x", "k"))
    np.testing.assert_allclose(by_x, 12 * X * X - 3 * X**2, **TIGHT)
    np.testing.assert_allclose(by_k, np.sum(3 * X**2 * X), **TIGHT)


def test_wrt_and_python_integers():
    assert compiled.grad(2, 3.0, wrt="x") == 12.0
    assert pb.grad(compiled, wrt="x")(2, 3.0) == 12.0
    assert pb.grad(compiled, wrt=(1, 0))(2, 3) == (4.0, 12.0)
    assert pb.value_and_grad(plain)(2.0, 3.0) == (12.0, (12.0, 4.0))
    assert pb.grad(pb.grad(compiled, wrt="x"), wrt="y")(2, 3) == 4.0
    with pytest.raises(pb.PullbackError, match="wrt: plain has no argument 'z'; it has x, y"):
        pb.grad(compiled, wrt="z")
    with pytest.raises(pb.DTypeError, match="wrt: argument 'x' of plain is i64"):
        pb.grad(compiled, wrt="x")(np.int64(2), 3.0)


def test_containers_as_arguments():
    f = pb.compile(lambda p, x: np.sum(p["w"] * x) * p["n"])
    p = {"n": np.int64(3), "w": X}
    for by_p, by_x in (f.grad(p, X), pb.grad(f)(p, X), pb.vjp(f)(p, X)[1], pb.grad(f, wrt=("p", "x"))(p, X)):
        assert list(by_p) == ["n", "w"] and by_p["n"] == 0
        np.testing.assert_array_equal(by_p["w"], 3 * X)
        np.testing.assert_array_equal(by_x, 3 * X)
    by_x, by_p = pb.grad(f, wrt=("x", "p"))({"w": X, "n": 2}, -X)
    np.testing.assert_array_equal(by_x, 2 * X)
    np.testing.assert_allclose(by_p["n"], -np.sum(X * X), **TIGHT)  # a Python integer that wrt names is a float


def test_a_gradient_needs_one_scalar_output():
    with pytest.raises(pb.SeedError) as error:
        pb.grad(cubic)(np.ones(3))
    assert str(error.value) == (
        "grad_cubic takes a function with one scalar output; cubic returns f64[3]; "
        "use vjp with a seed, which is the gradient of some loss with respect to each output"
    )


def test_scipy_takes_them_as_they_are():
    def rosenbrock(x):
        return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    f = pb.compile(rosenbrock)
    found = minimize(pb.value_and_grad(f), np.zeros(4), jac=True)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)  # the optimiser's own tolerance
    found = minimize(f, np.zeros(12), jac=f.grad, hess=f.hessian, method="trust-exact")
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)  # the optimiser's own tolerance


# -- seeds and tangents as arguments ----------------------------------------------------------------------------------
@SYMBOLIC
def test_vjp_is_what_the_method_gives(symbolic):
    f = pb.compile(cubic, symbolic=symbolic)
    for seed in (np.cos(X), -2.5, 3, np.arange(12)):
        value, gradient = pb.vjp(f)(X, seed=seed)
        expected = f.vjp(X, seed=seed)
        np.testing.assert_array_equal(value, expected[0])
        np.testing.assert_allclose(gradient, expected[1], **TIGHT)
    assert pb.vjp(f)(2.0) == (8.0, 12.0)
    assert pb.vjp(compiled, wrt="y")(2, 3, seed=-2) == (12.0, -8.0)
    with pytest.raises(pb.SeedError) as error:
        pb.vjp(f)(X)
    assert str(error.value) == (
        "the output of cubic has shape (12,); a seed, the gradient of some loss with respect to it, must be given: "
        "seed=np.ones((12,)) for the gradient of its sum"
    )
    with pytest.raises(pb.SeedError, match=r"the seed has shape \(11,\), the output of cubic has shape \(12,\)"):
        pb.vjp(f)(X, seed=np.ones(11))
    with pytest.raises(pb.SeedError, match="got a list; make it an array"):
        pb.vjp(f)(X, seed=[1.0] * 12)


def test_structured_seeds_as_arguments():
    f = pb.vjp(lambda x: {"a": x.sum(), "b": x * x, "n": np.argmax(x)})
    np.testing.assert_array_equal(f(X, seed={"b": -X})[1], -2 * X * X)
    np.testing.assert_array_equal(f(X, seed={"b": None, "a": -2})[1], np.full(12, -2.0))
    with pytest.raises(pb.SeedError, match="which has no gradient"):
        f(X, seed={"n": 1.0})


@SYMBOLIC
def test_jvp_is_what_the_method_gives(symbolic):
    f = pb.compile(energy, symbolic=symbolic)
    expected = f.jvp(X, 2.0, tangents={"x": np.cos(X), "k": -1.0})
    for tangents in ((np.cos(X), -1.0), {"k": -1, "x": np.cos(X)}):
        np.testing.assert_allclose(pb.jvp(f)(X, 2.0, tangents=tangents), expected, **TIGHT)
    assert pb.jvp(f, wrt="k")(X, 2.0, tangents=-3) == f.jvp(X, 2.0, tangents={"k": -3})
    with pytest.raises(pb.ShapeError, match=r"a tangent of energy has shape \(3,\), its argument has shape \(12,\)"):
        pb.jvp(f, wrt="x")(X, 2.0, tangents=np.ones(3))
    with pytest.raises(pb.PullbackError, match="a tuple of 2 directions expected, for x, k"):
        pb.jvp(f)(X, 2.0, tangents=X)


def test_the_tangent_of_an_integer_output_is_zero():
    f = pb.compile(lambda x: (x * x, np.argmax(x)))
    for value, tangent in (f.jvp(X, tangents={"x": X}), pb.jvp(f)(X, tangents=X)):
        assert value[1] == 11 and tangent[1] == 0
        np.testing.assert_allclose(tangent[0], 2 * X * X, **TIGHT)


# -- second derivatives -----------------------------------------------------------------------------------------------
@SYMBOLIC
def test_jacobian_and_hessian(symbolic):
    f = pb.compile(lambda x, w: np.sin(x) * w, symbolic=symbolic)
    by_x, by_w = f.jacobian(X[:3], X[3:6])
    np.testing.assert_allclose(by_x, np.diag(np.cos(X[:3]) * X[3:6]), **TIGHT)
    np.testing.assert_allclose(by_w, np.diag(np.sin(X[:3])), **TIGHT)
    assert pb.jacobian(f, wrt=1)(X, X).shape == (12, 12)
    assert f.jacobian(X[:0], X[:0], wrt="x").shape == (0, 0)
    h = pb.compile(energy, symbolic=symbolic)
    np.testing.assert_allclose(h.hessian(X, 2.0, wrt="x"), np.diag(12 * X), **TIGHT)
    blocks = h.hessian(X[:2], 2.0)
    np.testing.assert_allclose(blocks[0][1], 3 * X[:2] ** 2, **TIGHT)
    np.testing.assert_allclose(blocks[1][0], 3 * X[:2] ** 2, **TIGHT)
    assert blocks[1][1] == 0.0
    assert pb.hessian(cubic)(2.0) == 12.0


# -- within a trace ---------------------------------------------------------------------------------------------------
@SYMBOLIC
def test_derivatives_are_part_of_a_trace(symbolic):
    f = pb.compile(cubic)
    slope = lambda x: np.sum(pb.grad(lambda v: np.sum(v**3))(x) * x)  # noqa: E731  # as it is written at a prompt
    np.testing.assert_allclose(pb.compile(slope, symbolic=symbolic).grad(X), 9 * X**2, **TIGHT)
    methods = {
        "grad": lambda x: f.grad(x, seed=x),
        "vjp": lambda x: f.vjp(x, seed=x)[1],
        "jvp": lambda x: f.jvp(x, tangents={"x": x})[1],
        "pullback": lambda x: f.pullback(x)[1](x),
    }
    for method in methods.values():
        value, gradient = pb.compile(method, symbolic=symbolic).vjp(X, seed=-1.0)
        np.testing.assert_allclose(value, 3 * X**3, **TIGHT)
        np.testing.assert_allclose(gradient, -9 * X**2, **TIGHT)
    assert pb.compile(lambda x: f.value_and_grad(x)[1] * x).grad(2.0) == 36.0
    with pytest.raises(pb.UnsupportedError, match="within a traced function"):
        pb.compile(lambda x: f.grad(x, seed=x, seed_mode="broadcast"))(X)


def test_a_function_that_calls_itself_without_an_end():
    def endless(x):
        return forever(x)

    forever = pb.compile(endless)
    with pytest.raises(pb.TraceError, match="tracing endless went too deep"):
        forever(1.0)


# -- identity ---------------------------------------------------------------------------------------------------------
def test_pickles_are_by_reference():
    for f, args in ((decorated, (3.0,)), (compiled, (2.0, 3.0)), (pb.grad(compiled, wrt="y"), (2.0, 3.0))):
        again = pickle.loads(pickle.dumps(f))
        assert again(*args) == f(*args)
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    assert copy.copy(compiled) is compiled and copy.deepcopy([compiled])[0] is compiled
    for f in (pb.compile(lambda x: x), pb.grad(pb.compile(lambda x: x))):
        with pytest.raises(TypeError) as error:
            pickle.dumps(f)
        assert str(error.value) == (
            "function cannot be pickled: only what was compiled from a function at the top level of a module can; "
            "define it there, or compile it again in the other process"
        )


def test_a_compiled_function_looks_like_the_one_it_was_made_from():
    assert (decorated.__name__, decorated.__doc__, decorated.__module__) == ("decorated", "What it does.", __name__)
    assert repr(compiled) == "<compiled plain(x, y)>"
    assert repr(pb.vjp(compiled)) == "<compiled vjp_plain(x, y, seed = None)>"
