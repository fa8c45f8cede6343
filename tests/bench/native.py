"""C by hand: compiled by whatever compiler is there, called through ctypes."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-lm")


@functools.cache
def library(source: str) -> ctypes.CDLL | None:
    """The functions of a C file beside this one; None without a compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        return None
    path = Path(__file__).with_name(source)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "library.so"
        subprocess.run([compiler, *FLAGS[:-1], str(path), "-o", str(target), FLAGS[-1]], check=True)
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
