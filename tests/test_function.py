"""Functions: how they are called, what they take and give back, and what they leave alone."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import pullback as pb


@pb.compile
def affine(x, a=2.0, b=-0.5):
    """A line."""
    return a * x + b


@pb.compile
def quadratic(x, y):
    return np.sum(x * x * y)


def plain_square(x):
    return np.sum(x * x)


square = pb.compile(plain_square)


@dataclasses.dataclass
class Layer:
    weights: Any
    bias: Any


Point = namedtuple("Point", "x y")


# -- calls ------------------------------------------------------------------------------------------------------------
def test_positions_names_and_defaults():
    assert affine(3.0) == 5.5
    assert affine(3.0, 1.0) == affine(3.0, a=1.0) == affine(a=1.0, x=3.0) == 2.5
    assert affine(b=1.0, x=-1.0) == -1.0
    assert affine.grad(3.0, b=4.0, wrt="a") == 3.0
    assert affine.vjp(x=3.0, seed=-2.0, wrt="x") == (5.5, -4.0)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "affine(x, a = 2.0, b = -0.5) needs 'x' too"),
        ((1.0, 2.0, 3.0, 4.0), {}, "affine(x, a = 2.0, b = -0.5) takes 3 arguments, got 4"),
        ((1.0,), {"x": 2.0}, "affine(x, a = 2.0, b = -0.5) got 'x' twice, by position and by name"),
        ((1.0,), {"bb": 2.0}, "affine(x, a = 2.0, b = -0.5) has no input named 'bb'; did you mean 'b'?"),
        ((1.0,), {"zzz": 2.0}, "affine(x, a = 2.0, b = -0.5) has no input named 'zzz'"),
    ],
)
def test_calls_that_do_not_fit_the_signature(args, kwargs, message):
    for call in (affine, affine.vjp, affine.grad, affine.value_and_grad, affine.pullback):
        with pytest.raises(TypeError) as error:
            call(*args, **kwargs)
        assert str(error.value) == message


def test_keyword_only_and_positional_only_parameters():
    f = pb.compile(lambda x, /, *, scale=3.0: scale * x)
    assert f(2.0) == 6.0
    assert f(2.0, scale=-1.0) == -2.0
    assert f.grad(2.0, scale=-1.0) == (-1.0, 2.0)


@pytest.mark.parametrize("name", ["seed", "seeds", "seed_mode", "wrt", "out", "tangents", "vector", "axes"])
def test_reserved_parameter_names_are_refused(name):
    space: dict[str, Any] = {}
    exec(f"def f(x, {name}): return x", space)
    with pytest.raises(pb.PullbackError, match=f"f has a parameter named '{name}', which vjp, jvp .* rename it"):
        pb.compile(space["f"])


def test_a_function_looks_like_what_it_was_made_from():
    assert repr(affine) == "<compiled affine(x, a = 2.0, b = -0.5)>"
    assert affine.__name__ == "affine" and affine.__doc__ == "A line."
    assert pb.compile(affine) is affine
    assert pb.compile(plain_square, name="other").__name__ == "other"


# -- numbers ----------------------------------------------------------------------------------------------------------
def test_a_float64_scalar_comes_back_as_a_python_float():
    for value in (affine(1.0), affine(np.float64(1.0)), affine(np.array(1.0)), quadratic(np.arange(3.0), 1.0)):
        assert type(value) is float
    value, gradient = affine.value_and_grad(np.array(2.0), wrt="x")
    assert type(value) is float and type(gradient) is float


def test_integers_and_booleans_as_results():
    f = pb.compile(lambda x: (np.argmax(x), x > 0, np.any(x > 1), x.shape[0]))
    where, positive, some, count = f(np.array([-1.0, 3.0, 0.5]))
    assert (type(where), where) == (int, 1)
    assert positive.dtype == bool and positive.tolist() == [False, True, True]
    assert (type(some), some, count) == (bool, True, 3)


@pytest.mark.parametrize("number", [2, 2.0, True])
def test_python_numbers_give_way_to_the_arrays_type(number):
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    for f in (pb.compile(lambda x, s: x * s), pb.compile(lambda x, s: s + x)):
        result = f(x, number)
        assert result.dtype == np.float32
    np.testing.assert_array_equal(pb.compile(lambda x, s: x * s)(x, number), x * np.float32(number))


def test_numpy_scalars_and_0d_arrays_do_not_give_way():
    f = pb.compile(lambda x, s: x * s)
    x = np.ones(10, np.float32)
    for s in (np.float64(2.0), np.array(2.0)):
        assert f(x, s).dtype == np.float64
    assert f(x, np.float32(2.0)).dtype == np.float32


def test_float32_is_computed_and_returned_in_float32():
    f = pb.compile(lambda x: np.sum(np.exp(x)))
    x = np.linspace(-1, 1, 11, dtype=np.float32)
    value, gradient = f.vjp(x, seed=-0.3)
    assert type(value) is np.float32 and gradient.dtype == np.float32
    assert value == pytest.approx(np.sum(np.exp(x)), rel=1e-6)  # 11 terms, rounded in another order
    np.testing.assert_allclose(gradient, np.float32(-0.3) * np.exp(x), rtol=3e-7)  # two roundings
    assert type(pb.compile(lambda s: s * s).grad(np.float32(3.0))) is np.float32


def test_gradients_of_weak_numbers_beside_float32():
    f = pb.compile(lambda x, s: np.sum(x * s))
    x = np.linspace(-1, 2, 10, dtype=np.float32)
    x_grad, s_grad = f.grad(x, -2.0)
    assert x_grad.dtype == np.float32
    assert s_grad == pytest.approx(float(np.sum(x)), rel=1e-6)  # summed in float32
    assert pb.grad(f, wrt="s")(x, -2.0) == s_grad


def test_python_integers():
    power = pb.compile(lambda x, n: x**n)
    assert power(3.0, 2) == 9.0
    assert power.grad(3.0, 2) == 6.0  # an integer exponent is no floating argument
    assert power.grad(3.0, 2, wrt="n") == pytest.approx(9 * np.log(3), rel=1e-15)  # unless it is asked for
    assert type(power(3, 2)) is float  # nor if nothing else is floating
    assert power.grad(3, 2) == (6.0, pytest.approx(9 * np.log(3), rel=1e-15))
    with pytest.raises(pb.DTypeError, match=r"n: the integer 1e?\d* ?does not fit 64 bits; pass it as a float"):
        power(3.0, 10**30)


def test_integer_arguments_have_no_gradient():
    f = pb.compile(lambda x, i: np.sum(x[i]))
    x, i = np.arange(10.0), np.array([1, 1, 4])
    np.testing.assert_array_equal(f.grad(x, i), np.bincount(i, minlength=10))
    message = (
        "wrt: argument 'i' of function is i64[3]; only floating arguments have gradients; pass it as a float, "
        "for example with .astype(float)"
    )
    for call in (f.vjp, f.grad, f.value_and_grad, f.pullback, pb.grad(f, wrt="i"), pb.vjp(f, wrt="i")):
        options = {} if isinstance(call, pb.Function) else {"wrt": "i"}
        with pytest.raises(pb.DTypeError) as error:
            call(x, i, **options)
        assert str(error.value) == message


def test_a_function_without_floating_arguments():
    f = pb.compile(lambda i, j: i * j)
    i = np.arange(10)
    assert f(i, i).dtype == np.int64
    with pytest.raises(pb.DTypeError, match="no argument of function is floating, so there is nothing to differentiate by"):
        f.vjp(i, i, seed=1.0)
    with pytest.raises(pb.SeedError, match="no output of function is floating, so there is nothing to differentiate"):
        pb.compile(lambda x: x > 0).vjp(i + 0.5, seed=1.0)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint64, np.float16, np.longdouble, np.complex128, "U3", "O"])
def test_element_types_that_have_no_place(dtype):
    x = np.ones(9).astype(dtype)
    with pytest.raises(pb.DTypeError) as error:
        affine(x)
    assert str(error.value).startswith(
        f"x has the element type {x.dtype}; float64, float32, int64, int32, uint32 or bool expected"
    )


def test_integers_of_32_bits_are_cast():
    f = pb.compile(lambda i: i + i)
    for dtype in (np.int32, np.uint32):
        result = f(np.full(10, 2**31 - 1, dtype))
        assert result.dtype == np.int64 and result[0] == 2**32 - 2


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j, b"x"])
def test_what_is_no_argument(value):
    with pytest.raises(pb.DTypeError, match=r"^x (is a|has the element type)"):
        affine(value)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")  # which is why it is refused
def test_masked_arrays_and_matrices_are_refused():
    with pytest.raises(pb.DTypeError, match=r"x is a MaskedArray, whose mask .* x\.filled"):
        affine(np.ma.masked_array([1.0, 2.0], [0, 1]))
    with pytest.raises(pb.DTypeError, match="x is a matrix"):
        affine(np.asmatrix([[1.0]]))


# -- wrt --------------------------------------------------------------------------------------------------------------
def test_forms_of_wrt():
    x, y = np.array([1.0, -2.0]), np.array([3.0, 0.5])
    by_x, by_y = 2 * x * y, x * x
    for wrt in ("x", 0, -2, np.int64(0)):
        np.testing.assert_array_equal(quadratic.grad(x, y, wrt=wrt), by_x)
    for wrt in (("y", "x"), ["y", "x"], (1, 0), ("y", 0)):
        found = quadratic.grad(x, y, wrt=wrt)
        assert type(found) is tuple
        np.testing.assert_array_equal(found[0], by_y)
        np.testing.assert_array_equal(found[1], by_x)
    (single,) = quadratic.grad(x, y, wrt=("x",))
    np.testing.assert_array_equal(single, by_x)
    everything = quadratic.grad(x, y)
    np.testing.assert_array_equal(everything[0], by_x)
    np.testing.assert_array_equal(everything[1], by_y)
    one, again = quadratic.grad(x, y, wrt=("x", "x"))
    np.testing.assert_array_equal(one, again)
    assert not np.shares_memory(one, again)
    assert quadratic.grad(x, y, wrt=()) == ()


@pytest.mark.parametrize("wrt", [2, -3, 1.5, None.__class__, True, ("x", 7)])
def test_what_wrt_cannot_be(wrt):
    with pytest.raises(TypeError, match=r"wrt takes names or positions of the arguments of quadratic \(x, y\), got "):
        quadratic.grad(np.ones(2), np.ones(2), wrt=wrt)


def test_unknown_names_in_wrt():
    with pytest.raises(pb.PullbackError) as error:
        quadratic.grad(np.ones(2), np.ones(2), wrt="z")
    assert str(error.value) == "wrt: quadratic has no argument or named value 'z'; it has x, y"


def test_an_unused_argument_gets_zeros():
    f = pb.compile(lambda x, unused, n: 2.0 * x)
    unused = np.ones((3, 11), np.float32)
    x_grad, zeros = f.grad(3.0, unused, 4)
    assert x_grad == 2.0
    assert zeros.shape == (3, 11) and zeros.dtype == np.float32 and not zeros.any()
    assert f.grad(3.0, -1.5, 4) == (2.0, 0.0)
    np.testing.assert_array_equal(f.grad(3.0, unused, 4, wrt="unused"), zeros)
    np.testing.assert_array_equal(pb.grad(f, wrt="unused")(3.0, unused, 4), zeros)


# -- containers -------------------------------------------------------------------------------------------------------
def tree():
    return {
        "layers": [Layer(np.array([[1.0, -2.0], [0.5, 3.0]]), np.array([0.25, -1.0])), Layer(np.ones((1, 2)), 0.5)],
        "point": Point(2.0, (np.float32(3.0),)),
        "nothing": None,
        "empty": (),
    }


def network(p, x):
    first, last = p["layers"]
    h = np.tanh(first.weights @ x + first.bias)
    return (last.weights @ h)[0] + last.bias * p["point"].x - p["point"].y[0] * h[1]


def test_gradients_have_the_arguments_structure():
    f = pb.compile(network)
    p, x = tree(), np.array([0.5, -0.25])
    assert f(p, x) == pytest.approx(network(p, x), rel=1e-14)
    gradient = f.grad(p, x, wrt="p")
    assert list(gradient) == list(p)
    assert gradient["nothing"] is None and gradient["empty"] == ()
    assert type(gradient["layers"]) is list and type(gradient["layers"][0]) is Layer
    assert type(gradient["point"]) is Point and gradient["point"].x == 0.5
    assert type(gradient["point"].y[0]) is np.float32
    assert gradient["layers"][0].weights.shape == (2, 2)
    step = 1e-6
    for k, delta in ((0, 1.0), (1, -2.0)):
        moved = [tree(), tree()]
        for sign, t in zip((1, -1), moved, strict=True):
            t["layers"][0].bias[k] += sign * step * delta
        difference = (network(moved[0], x) - network(moved[1], x)) / (2 * step * delta)
        assert gradient["layers"][0].bias[k] == pytest.approx(difference, abs=1e-8)  # of a central difference
    assert gradient["layers"][1].bias == 2.0


def test_other_structures_are_other_specializations():
    f = pb.compile(lambda t: sum(t) if isinstance(t, tuple) else t[0] - t[1])
    assert f((1.0, 2.0)) == 3.0
    assert f([1.0, 2.0]) == -1.0
    assert f((1.0, 2.0, 4.0)) == 7.0
    assert f.cache_info().specializations == 3
    assert f.grad([1.0, 2.0]) == [1.0, -1.0]


def test_integers_within_a_container():
    f = pb.compile(lambda t: np.sum(t["x"][t["i"]]) * t["n"])
    x = np.array([1.0, -2.0, 4.0])
    gradient = f.grad({"x": x, "i": np.array([2, 2]), "n": 3})
    np.testing.assert_array_equal(gradient["x"], [0.0, 0.0, 6.0])
    assert gradient["i"].tolist() == [0, 0] and gradient["n"] == 0
    derived = pb.grad(f, wrt="t")({"x": x, "i": np.array([2, 2]), "n": 3.0})
    np.testing.assert_array_equal(derived["x"], [0.0, 0.0, 6.0])
    assert derived["n"] == 8.0


def test_containers_without_end():
    deep, circle = 1.0, []
    for _ in range(5000):
        deep = [deep]
    circle.append(circle)
    for tree in (deep, circle):
        with pytest.raises(TypeError, match="a list is nested too deeply, or contains itself"):
            affine(tree)


def test_dataclasses_with_slots():
    @dataclasses.dataclass(frozen=True, slots=True)
    class Pair:
        a: Any
        b: Any

    f = pb.compile(lambda p: Pair(p.a * p.b, np.sum(p.a)))
    x = np.array([1.0, -2.0])
    (gradient,) = f.grad(Pair(x, 3.0), seed=Pair(x, None), wrt=("p",))
    np.testing.assert_array_equal(gradient.a, 3.0 * x)
    assert gradient.b == 5.0
    out = Pair(np.empty(2), None)
    assert f(Pair(x, 3.0), out=out).a is out.a


def test_outputs_in_containers():
    f = pb.compile(lambda x: {"sum": np.sum(x), "parts": (x, [x > 0]), "none": None, "point": Point(1.5, x)})
    x = np.array([1.0, -2.0])
    found = f(x)
    assert list(found) == ["sum", "parts", "none", "point"] and found["none"] is None
    assert found["sum"] == -1.0 and type(found["parts"][1]) is list
    assert found["point"].x == 1.5
    np.testing.assert_array_equal(found["point"].y, x)


# -- arrays of every layout -------------------------------------------------------------------------------------------
def layouts():
    rng = np.random.default_rng(0)
    base = rng.normal(size=(12, 20))
    yield "C", base.copy()
    yield "Fortran", np.asfortranarray(base)
    yield "transposed", np.ascontiguousarray(base.T).T
    yield "strided", np.repeat(np.repeat(base, 2, 0), 3, 1)[::2, ::3]
    yield "reversed", base[::-1, ::-1].copy()[::-1, ::-1]
    yield "broadcast", np.broadcast_to(base[:1], (12, 20))
    unaligned = np.zeros(base.nbytes + 1, np.uint8)[1:].view(np.float64).reshape(base.shape)
    unaligned[...] = base
    yield "unaligned", unaligned
    yield "big-endian", base.astype(">f8")
    locked = base.copy()
    locked.setflags(write=False)
    yield "read-only", locked


@pytest.mark.parametrize(("kind", "array"), list(layouts()))
def test_every_layout(kind, array):
    f = pb.compile(lambda x, v: np.sum(np.sin(x) @ v))
    v = np.linspace(-1.0, 2.0, 40)[::2]
    clean = np.array(array, dtype=float, order="C")
    kept, kept_v = array.copy(), v.copy()
    value, (by_x, by_v) = f.vjp(array, v, seed=-1.5)
    expected = f.vjp(clean, v.copy(), seed=-1.5)
    assert value == expected[0]
    np.testing.assert_array_equal(by_x, expected[1][0])
    np.testing.assert_array_equal(by_v, expected[1][1])
    np.testing.assert_array_equal(array, kept)
    np.testing.assert_array_equal(v, kept_v)
    np.testing.assert_allclose(by_x, -1.5 * np.cos(clean) * v, rtol=1e-15)  # two products in another order
    assert by_x.dtype == np.float64 and by_x.flags.c_contiguous and by_x.flags.writeable


@pytest.mark.parametrize("shape", [(0,), (0, 3), (12, 0), (0, 0), (3, 0, 20)])
def test_arrays_without_elements(shape):
    f = pb.compile(lambda x: np.sum(np.exp(x)))
    value, gradient = f.vjp(np.zeros(shape), seed=-2.0)
    assert value == 0.0 and gradient.shape == shape
    g = pb.compile(lambda x: 2.0 * x)
    assert g(np.zeros(shape)).shape == shape
    assert g.vjp(np.zeros(shape), seed=np.zeros(shape))[1].shape == shape


def test_subclasses_and_things_that_offer_themselves_as_arrays():
    class Own(np.ndarray):
        pass

    class Offers:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.0, 2.0])

    assert quadratic(np.array([1.0, 2.0]).view(Own), 3.0) == 15.0
    assert quadratic(Offers(), 3.0) == 15.0
    assert type(quadratic.grad(np.array([1.0, 2.0]).view(Own), 3.0, wrt=0)) is np.ndarray


def test_outputs_alias_nothing():
    x = np.arange(10.0)
    f = pb.compile(lambda x: (x, x, x[2:5], np.reshape(x, (2, 5)), x.T))
    everything = [x, *f(x)]
    everything += f.pullback(x)[0]
    for k, a in enumerate(everything):
        assert not any(np.shares_memory(a, b) for b in everything[k + 1 :])
    seed = np.ones(10)
    same = pb.compile(lambda x: x)
    value, gradient = same.vjp(x, seed=seed)
    assert not any(np.shares_memory(a, b) for a, b in ((value, x), (gradient, seed), (gradient, x)))
    value, pull = same.pullback(x)
    assert not np.shares_memory(pull(seed), seed)


# -- out= -------------------------------------------------------------------------------------------------------------
def test_out_receives_the_value():
    x = np.arange(10.0) / 4 - 1
    out = np.full(10, np.nan)
    assert affine(x, out=out) is out
    np.testing.assert_array_equal(out, 2 * x - 0.5)
    pair = pb.compile(lambda x: {"a": 2 * x, "b": (np.sum(x), -x)})
    a, b = np.empty(10), np.empty(10)
    found = pair(x, out={"a": a, "b": (None, b)})
    assert found["a"] is a and found["b"][1] is b and found["b"][0] == np.sum(x)
    np.testing.assert_array_equal(b, -x)


@pytest.mark.parametrize("view", [lambda b: b[:10], lambda b: b[5:15], lambda b: b[9::-1], lambda b: b[4:24:2]])
def test_out_that_overlaps_an_input(view):
    buffer = np.linspace(-1.0, 2.0, 30)
    x = buffer[:10]
    f = pb.compile(lambda x: np.cumsum(x) + x[::-1])
    expected = np.cumsum(x) + x[::-1]
    out = view(buffer)
    assert f(x, out=out) is out
    np.testing.assert_array_equal(out, expected)


def test_out_for_gradients():
    x, y = np.arange(10.0), np.linspace(1.0, -1.0, 10)
    a, b = np.empty(10), np.empty((2, 10)).T[:, 0]
    gradients = quadratic.vjp(x, y, seed=-1.0, out=(a, b))[1]
    assert gradients[0] is a and gradients[1] is b
    np.testing.assert_array_equal(a, -2 * x * y)
    np.testing.assert_array_equal(b, -x * x)
    gradient = quadratic.grad(x, y, wrt="x", out=x)  # in place of what it was read from
    assert gradient is x
    np.testing.assert_array_equal(x, 2 * np.arange(10.0) * y)
    assert quadratic.value_and_grad(x, y, wrt="y", out=a)[1] is a


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (np.empty(9), pb.ShapeError, r"out.*\(10,\) expected, got \(9,\)"),
        (np.empty(10, np.float32), pb.DTypeError, "out.*float64 expected, got float32"),
        ([0.0] * 10, (pb.DTypeError, TypeError), "out"),
        (np.broadcast_to(np.zeros(1), 10), ValueError, "out: the array is read-only"),
    ],
)
def test_out_that_does_not_fit(out, error, message):
    with pytest.raises(error, match=message):
        affine(np.arange(10.0), out=out)


def test_out_needs_a_part_for_each_gradient():
    with pytest.raises(TypeError, match=r"out: a tuple of 2 expected, an array .or None. for each gradient"):
        quadratic.grad(np.ones(3), np.ones(3), out=(np.empty(3),))
    with pytest.raises(TypeError, match="out: a tuple of 2 expected"):
        quadratic.grad(np.ones(3), np.ones(3), out=np.empty(3))


# -- pickling and copying ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("function", [square, pb.grad(square), pb.grad(square, wrt="x"), pb.grad(square, wrt=(0,))])
def test_pickles_are_by_reference(function):
    again = pickle.loads(pickle.dumps(function))
    assert repr(again) == repr(function)
    x = np.array([1.0, -2.0])
    for mine, theirs in zip(np.atleast_1d(again(x)), np.atleast_1d(function(x)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert pickle.loads(pickle.dumps(affine)) is affine


def test_what_no_module_holds_cannot_be_pickled():
    for f in (pb.compile(lambda x: x), pb.grad(pb.compile(lambda x: x))):
        with pytest.raises(TypeError, match="cannot be pickled: only what was compiled from a function at the top level"):
            pickle.dumps(f)


def test_copies_are_the_function_itself():
    assert copy.copy(affine) is affine
    assert copy.deepcopy({"f": affine})["f"] is affine


# -- texts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("stage", ["primal", "adjoint", "loops", "llvm", "optimized", "asm"])
def test_the_text_of_every_stage(stage):
    f = pb.compile(lambda x, y: np.sum(x * np.sin(y)))
    with pytest.raises(pb.PullbackError, match="has no specialization yet: call it, pass example arguments, or declare"):
        f.ir(stage)
    text = f.ir(stage, np.ones(12), np.ones(12))
    assert text == f.ir(stage)
    marks = {
        "primal": "func @function(",
        "adjoint": "cos",
        "loops": "for",
        "llvm": "define",
        "optimized": "define",
        "asm": "ret",
    }
    assert marks[stage] in text


def test_the_text_of_no_stage():
    with pytest.raises(ValueError, match="no stage 'tokens'; there are primal, adjoint, loops, llvm, optimized, asm"):
        affine.ir("tokens")
