"""Seeds: the gradient of some loss with respect to each output. What may be given, what it means, and what is refused."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import pullback as pb
from pullback_runtime import binding

A = np.array([[1.0, 2.0], [3.0, 4.0]])
B = np.array([[0.5, -1.0], [2.0, 0.0]])
X = np.array([1.0, -2.0, 3.0])
SYMBOLIC = pytest.mark.parametrize("symbolic", (False, True))


def total(a, b):
    return np.sum(a - b)


def square(x):
    return x * x


def several(x):
    return {"s": x.sum(), "v": x * x, "n": np.argmax(x), "t": (x[0], [x * 3])}


def refused(call, *args, **kwargs):
    """The message of the SeedError that a call raises."""
    with pytest.raises(pb.SeedError) as error:
        call(*args, **kwargs)
    return str(error.value)


# -- one output -------------------------------------------------------------------------------------------------------
@SYMBOLIC
@pytest.mark.parametrize("seed", (None, 1, 1.0, np.float32(1), [1.0], [[1.0]], np.array(1)))
def test_a_scalar_output_takes_nothing_a_number_or_one_element(seed, symbolic):
    f = pb.compile(total, symbolic=symbolic)
    value, (da, db) = f.vjp(A, B, seed=seed)
    assert value == 8.5
    np.testing.assert_array_equal(da, np.ones((2, 2)))
    np.testing.assert_array_equal(db, -np.ones((2, 2)))


@SYMBOLIC
def test_a_seed_multiplies_the_derivative(symbolic):
    f = pb.compile(square, symbolic=symbolic)
    np.testing.assert_array_equal(f.grad(X, seed=[2, -3, 0.5]), [4.0, 12.0, 3.0])
    np.testing.assert_array_equal(f.grad(X, seed=-2), -4 * X)


def test_seeds_are_cast_to_the_type_of_the_output_and_never_modified():
    f = pb.compile(square)
    seed = np.array([2, -3, 1])
    gradient = f.grad(X.astype(np.float32), seed=seed)
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, [4, 12, 6])
    np.testing.assert_array_equal(seed, [2, -3, 1])
    np.testing.assert_array_equal(f.grad(X, seed=np.array([2.0, 9, -3, 9, 1])[::2]), [4.0, 12.0, 6.0])


def test_the_messages_of_seeds_that_do_not_fit():
    f = pb.compile(square, name="square")
    assert refused(f.vjp, X) == (
        "the output of square has shape (3,); a seed, the gradient of some loss with respect to it, must be given: "
        "seed=np.ones((3,)) for the gradient of its sum"
    )
    wrong = "the seed has shape (2,), the output of square has shape (3,); they must be equal, or the seed a scalar"
    assert refused(f.grad, X, seed=[1, 2]) == wrong
    assert refused(pb.vjp(f), X, seed=np.ones(2)) == wrong
    assert refused(f.pullback(X)[1], np.ones(2)) == wrong
    wider = refused(f.grad, X, seed=-np.ones((2, 3)))
    assert wider.endswith(
        'or the seed a scalar. seed_mode="broadcast" takes the output broadcast to the seed\'s shape; '
        'seed_mode="expand" takes a reduced output as if it had not been reduced'
    )
    assert refused(pb.vjp(f), X, seed=-np.ones((2, 3))).endswith("or the seed a scalar")
    for call in (f.vjp, pb.vjp(f)):
        assert refused(call, A, seed=np.array([1.0, -2])).endswith(
            "or the seed a scalar. np.broadcast_to(seed, (2, 2)) spreads it"
        )
    assert refused(f.grad, A, seed=[1, -2], seed_mode="broadcast") == (
        "the output of square has shape (2, 2), which does not broadcast to the seed's shape (2,); "
        "it broadcasts the output, not the seed: use np.broadcast_to(seed, (2, 2))"
    )
    assert refused(f.grad, X, seed=1j) == "a seed is made of real numbers, got complex128 from complex"
    assert refused(f.grad, X, seed=[[1, 2], [3]]) == "a seed is an array or a number, got a ragged list"
    assert refused(f.grad, X, seed=1, seed_mode="sum") == 'seed_mode is "broadcast" or "expand", got \'sum\''
    assert refused(f.value_and_grad, X) == (
        "value_and_grad takes a function with one scalar output; square returns f64[3]; "
        "use vjp(..., seed=...) with the gradient of some loss with respect to each output"
    )
    assert refused(pb.compile(lambda x: np.argmax(x), name="best").grad, X) == (
        "no output of best is floating, so there is nothing to differentiate"
    )


def test_an_output_of_one_element_is_no_scalar():
    f = pb.compile(lambda x: x[:1] * 2)
    assert "has shape (1,)" in refused(f.grad, X)
    np.testing.assert_array_equal(f.grad(X, seed=[-3.0]), [-6.0, 0.0, 0.0])


def test_a_seed_error_comes_before_any_code_runs():
    def element(x, n):
        return x * x[n]

    f = pb.compile(element)
    with pytest.raises(IndexError):
        f(X, np.int64(7))
    assert "the seed has shape (2,)" in refused(f.grad, X, np.int64(7), seed=[1, 2])


# -- several outputs --------------------------------------------------------------------------------------------------
@SYMBOLIC
def test_missing_entries_are_zero_if_any_is_given(symbolic):
    f = pb.compile(several, symbolic=symbolic)
    np.testing.assert_array_equal(f.grad(X, seed={"s": -2}), [-2, -2, -2])
    np.testing.assert_array_equal(f.grad(X, seed={"t": (None, [[1, 2, -1]]), "v": 1.0}), 2 * X + [3, 6, -3])
    value, pull = f.pullback(X)
    assert value["n"] == 2
    np.testing.assert_array_equal(pull({"t": (5.0, [None])}), [5, 0, 0])


def test_the_messages_of_structures_that_do_not_fit():
    f = pb.compile(several, name="several")
    absent = (
        "several has 5 outputs, {'s': *, 'v': *, 'n': *, 't': (*, [*])}; give the gradient of each with seed=, in the same "
        "structure (None for an output without one)"
    )
    assert refused(f.grad, X) == absent
    assert refused(f.grad, X, seed={}) == absent
    assert refused(f.grad, X, seed={"s": None}) == absent
    assert refused(f.pullback(X)[1]) == absent
    assert refused(f.grad, X, seed={"n": 1}) == "output['n'] of several is i64, which has no gradient; leave its seed out"
    assert refused(f.grad, X, seed={"q": 1}) == ("seed: several has no output or named value 'q'; it has 's', 'v', 'n', 't'")
    assert refused(f.grad, X, seed=[1, 2]) == (
        "seed: the output of several has the structure {'s': *, 'v': *, 'n': *, 't': (*, [*])}, got a seed of list"
    )
    assert refused(f.grad, X, seed={"t": [1]}) == "seed['t']: 2 entries expected, one for each output of several, got 1"


def test_an_array_is_no_seed_of_a_pair():
    pair = pb.compile(lambda x: (x.sum(), x.mean()))
    assert "got a seed of ndarray" in refused(pair.grad, X, seed=np.array([1.0, 2.0]))
    np.testing.assert_array_equal(pair.grad(X, seed=[1.0, -3.0]), [0, 0, 0])


def test_named_tuples_and_one_float_among_integers():
    Pair = namedtuple("Pair", "value where")
    f = pb.compile(lambda x: Pair(x.max(), np.argmax(x)))
    value, gradient = f.vjp(X)
    assert value == Pair(3.0, 2)
    np.testing.assert_array_equal(gradient, [0, 0, 1])
    np.testing.assert_array_equal(f.grad(X, seed=Pair(-2.0, None)), [0, 0, -2])


def test_lengths_that_a_mask_decides():
    f = pb.compile(lambda x: x[x > 0] * 2, name="positive")
    np.testing.assert_array_equal(f.grad(X, seed=[3, -4]), [6, 0, -8])
    np.testing.assert_array_equal(f.grad(X, seed=-1), [-2, 0, -2])
    np.testing.assert_array_equal(f.pullback(X)[1]([3, -4]), [6, 0, -8])
    np.testing.assert_array_equal(pb.vjp(f)(X, seed=np.array([3.0, -4.0]))[1], [6, 0, -8])
    assert refused(f.grad, X, seed=[1, 2, 3]).startswith("the seed has shape (3,), the output of positive has shape (2,)")


# -- modes ------------------------------------------------------------------------------------------------------------
@SYMBOLIC
def test_broadcast_is_the_gradient_of_the_sum_of_seed_times_broadcast_output(symbolic):
    seed = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
    f = pb.compile(square, symbolic=symbolic)
    np.testing.assert_array_equal(f.grad(X, seed=seed, seed_mode="broadcast"), 2 * X * seed.sum(0))
    row = pb.compile(lambda x: np.sum(x * x, axis=1, keepdims=True), symbolic=symbolic)
    np.testing.assert_array_equal(row.grad(A, seed=[[1, 2, 3], [-1, 0, 5]], seed_mode="broadcast"), [[12, 24], [24, 32]])
    g = pb.compile(total, symbolic=symbolic)
    da, db = g.grad(A, B, seed=[[1, 2], [3, -4]], seed_mode="broadcast")
    np.testing.assert_array_equal(da, np.full((2, 2), 2.0))
    np.testing.assert_array_equal(db, -da)
    assert refused(f.grad, X, seed=[1, 2], seed_mode="broadcast").endswith(
        "has shape (3,), which does not broadcast to the seed's shape (2,)"
    )


@SYMBOLIC
def test_expand_gives_each_element_of_the_sum_its_own_seed(symbolic):
    f = pb.compile(total, symbolic=symbolic)
    seed = np.array([[1.0, 2.0], [3.0, 4.0]])
    value, (da, db) = f.vjp(A, B, seed=seed, seed_mode="expand")
    assert value == 8.5
    np.testing.assert_array_equal(da, seed)
    np.testing.assert_array_equal(db, -seed)
    np.testing.assert_array_equal(f.grad(A, B, wrt="a", seed=-2, seed_mode="expand"), np.full((2, 2), -2.0))
    weighted = pb.compile(lambda x, w: (x * w).sum(axis=0), symbolic=symbolic)
    np.testing.assert_array_equal(weighted.grad(A, B, wrt=0, seed=-seed, seed_mode="expand"), -seed * B)
    np.testing.assert_array_equal(weighted.grad(A, B, wrt=0, seed=[2, -3], seed_mode="expand"), [2, -3] * B)
    kept = pb.compile(lambda x: np.sum(x, axis=1, keepdims=True), symbolic=symbolic)
    np.testing.assert_array_equal(kept.grad(A, seed=seed, seed_mode="expand"), seed)


def test_expand_of_one_output_among_several():
    f = pb.compile(several)
    np.testing.assert_array_equal(f.grad(X, seed={"s": [1, -2, 3]}, seed_mode="expand"), [1, -2, 3])
    assert refused(f.grad, X, seed={"s": [1, 2, 3], "v": X}, seed_mode="expand") == (
        'seed_mode="expand" takes the seed of one output, got 2'
    )


def test_expand_undoes_nothing_but_a_sum():
    f = pb.compile(total, name="total")
    assert refused(f.grad, A, B, seed=np.ones((2, 3)), seed_mode="expand") == (
        'seed_mode="expand": the output of total is a sum over an array of shape (2, 2), the seed has shape (2, 3); '
        "they must be equal"
    )
    mean = refused(pb.compile(lambda x: np.mean(x), name="mean").grad, X, seed=X, seed_mode="expand")
    assert mean.startswith('seed_mode="expand" takes an output that is a sum, and undoes that; the output of mean is made by ')
    assert mean.endswith("give a seed of the output's own shape")
    same = refused(pb.compile(lambda x: x, name="same").grad, X, seed=X, seed_mode="expand")
    assert "the output of same is an input" in same
    assert "is for vjp, grad and backward" in refused(f.pullback(A, B)[1], A, "expand")


# -- named values -----------------------------------------------------------------------------------------------------
def chained(x, y, z):
    q = pb.name("q", x + y)
    return q * z


def test_named_values_are_seeded_and_asked_for():
    f = pb.compile(chained, name="chained")
    assert f.vjp(4.0, -3.0, 5.0) == (5.0, (5.0, 5.0, 1.0))
    assert f.grad(4.0, -3.0, 5.0, wrt="q") == 5.0
    assert f.vjp(4.0, -3.0, 5.0, wrt=("q", "z"), seed=-2.0) == (5.0, (-10.0, -2.0))
    assert f.grad(4.0, -3.0, 5.0, seed={"q": -2.0}) == (-2.0, -2.0, 0.0)
    assert f.pullback(4.0, -3.0, 5.0, wrt="q")[1](-2.0) == -10.0
    assert refused(f.grad, 4.0, -3.0, 5.0, seed={"r": 1.0}) == ("seed: chained has no output or named value 'r'; it has 'q'")
    with pytest.raises(pb.PullbackError, match="chained has no argument or named value 'r'; it has x, y, z, q"):
        f.grad(4.0, -3.0, 5.0, wrt="r")


def test_outputs_and_named_values_are_seeded_together():
    f = pb.compile(lambda x: {"a": x * 2, "b": pb.name("m", x * 3) * x})
    np.testing.assert_array_equal(f.grad(X, seed={"a": 1.0, "m": [10, 0, -1]}), [32, 2, -1])
    np.testing.assert_array_equal(f.grad(X, seed={"m": 1.0}), [3, 3, 3])
    with pytest.raises(pb.SeedError, match=r"the output of .*, value 'm', has shape \(3,\)"):
        f.grad(X, seed={"m": [1, 2]})


def test_naming_outside_a_trace_does_nothing():
    assert pb.name("q", A) is A


def test_what_runs_for_a_seed_is_the_seed_summed_to_the_output():
    fitted = binding.fit_seed("f", np.arange(24.0).reshape(2, 3, 4), "f64", (3, 1), "broadcast")
    np.testing.assert_array_equal(fitted, np.arange(24.0).reshape(2, 3, 4).sum((0, 2))[:, None])
