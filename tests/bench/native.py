"""C by hand: compiled by whatever compiler is there, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.frame import Calls

FLAGS = ("-O3", "-march=native", "-shared", "-fPIC")


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")


@functools.cache
def library(source: str) -> ctypes.CDLL | None:
    """The functions of a C file beside this one; None without a compiler."""
    found = compiler()
    if found is None:
        return None
    path = Path(__file__).with_name(source)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "library.so"
        subprocess.run([found, *FLAGS, str(path), "-o", str(target), "-lm"], check=True)
        return ctypes.CDLL(str(target))  # it stays loaded when the file has gone


def call(function: Any, *args: Any) -> Any:
    """A function of doubles, arrays of doubles and ints, ready to be called again and again: no conversion is timed."""
    function.restype = ctypes.c_double
    ready = [_converted(a) for a in args]

    def run() -> float:
        return function(*ready)

    run.keep = args  # type: ignore[attr-defined]  # the arrays must live as long as the pointers
    return run


def _converted(arg: Any) -> Any:
    if isinstance(arg, np.ndarray):
        assert arg.flags.c_contiguous and arg.dtype == np.float64
        return ctypes.c_void_p(arg.ctypes.data)
    return ctypes.c_long(arg) if isinstance(arg, int) else ctypes.c_double(arg)


def by_hand(
    source: str,
    name: str,
    inputs: Sequence[Any],
    shapes: Sequence[tuple[int, ...]],
    small: Sequence[Any] = (),
    end: tuple[int, ...] | None = None,
    seed: Any = None,
) -> Calls | None:
    """``NAME(inputs)`` gives the value, ``NAME_grad(inputs, gradients)`` too and fills the gradients. Where the outcome is an
    array of shape ``end``, it is filled as well: ``NAME(inputs, end)``, ``NAME_grad(inputs, seed, end, gradients)``."""
    found = library(source)
    if found is None:
        return None
    targets = [np.zeros(shape or 1) for shape in shapes]
    result = [] if end is None else [np.zeros(end)]
    more = [] if seed is None else [seed]
    gradient = call(getattr(found, f"{name}_grad"), *inputs, *more, *result, *targets)
    value = call(getattr(found, name), *inputs, *result)
    few = call(getattr(found, f"{name}_grad"), *small, *more, *result, *targets) if small else None
    views = [target if shape else target[0:1].reshape(()) for target, shape in zip(targets, shapes, strict=True)]
    if result:
        return Calls(value, lambda: (gradient(), (result[0], views))[1], few)
    return Calls(value, lambda: (gradient(), views), few)
