"""Equal functions share machine code, and tell each its own name and lines when something fails."""

import threading

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import key
from pullback.llvm import compile as kernels
from pullback.llvm import compile_kernel


def _twins():
    def first(x, i):
        return x[i] * 2.0

    def second(x, i):
        factor = 2.0
        picked = x[i]
        return picked * factor

    return pb.compile(first), pb.compile(second), first, second


def _line(function, offset):
    return f"{function.__code__.co_filename}:{function.__code__.co_firstlineno + offset}"


def test_a_failed_check_names_the_line_of_the_function_that_was_called():
    first, second, source, other = _twins()
    x, wrong = np.arange(20.0), np.array([3] * 9 + [-21])
    for _ in range(2):  # the order of compilation and of calls must not matter
        with pytest.raises(IndexError, match="index -21 is out of bounds for axis 0 with size 20") as error:
            first(x, wrong)
        assert _line(source, 1) in str(error.value)
        with pytest.raises(IndexError) as error:
            second(x, wrong)
        assert _line(other, 2) in str(error.value)


def test_the_machine_code_is_shared():
    first, second, *_ = _twins()
    x, i = np.arange(20.0), np.arange(12)
    assert np.array_equal(first(x, i), second(x, i))
    one, two = first.specialization().primal(), second.specialization().primal()
    assert one is not two
    assert one._keep is two._keep
    assert (one.signature.name, two.signature.name) == ("first", "second")


def test_two_checks_on_one_line_keep_their_lines_in_a_function_that_spreads_them():
    def together(x, y, i, j):
        return x[i] * y[j]

    def apart(x, y, i, j):
        a = x[i]
        b = y[j]
        return a * b

    f, g = pb.compile(together), pb.compile(apart)
    x, y, good, bad = np.arange(9.0), np.arange(11.0), np.zeros(10, int), np.full(10, 30)
    f(x, y, good, good)
    for i, j, offset in ((bad, good, 1), (good, bad, 2)):
        with pytest.raises(IndexError) as error:
            g(x, y, i, j)
        assert _line(apart, offset) in str(error.value)


def test_the_same_function_gets_the_same_kernel():
    f = pb.compile(lambda x: np.sum(x * x) - 3.0)
    f(np.arange(10.0))
    func = f.specialization().func
    assert compile_kernel(func) is compile_kernel(func)


def test_the_cache_is_bounded_and_what_it_forgets_lives_on(monkeypatch):
    monkeypatch.setattr(kernels, "KEPT", len(kernels._cache) + 2)
    functions = []
    for k in range(5):
        factor = 1.5 + k
        functions.append(pb.compile(lambda x, factor=factor: x * factor + 0.0625))
        assert functions[-1](2.0) == 2.0 * factor + 0.0625
    assert len(kernels._cache) <= kernels.KEPT
    del monkeypatch
    for k, f in enumerate(functions):
        assert f(-4.0, 1.5 + k) == -4.0 * (1.5 + k) + 0.0625


def test_equal_functions_compiled_at_once_are_compiled_once():
    barrier, made = threading.Barrier(8), []

    def build():
        f = pb.compile(lambda x: np.sum(np.exp(x) * 0.123456789))
        f(np.linspace(0.0, 1.0, 17))
        barrier.wait()
        made.append(f.specialization().primal())

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(kernel._keep) for kernel in made}) == 1


def test_keys_do_not_see_places():
    first, second, *_ = _twins()
    x, i = np.arange(20.0), np.arange(12)
    first(x, i), second(x, i)
    assert key(first.specialization().func) == key(second.specialization().func)
