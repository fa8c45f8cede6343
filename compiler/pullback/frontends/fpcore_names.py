"""What the names of FPCore mean: its operations as functions of the library, its constants, its formats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

PRECISIONS: Mapping[str, Any] = {"integer": np.int64, "binary32": np.float32, "binary64": np.float64}
LONGER: Mapping[str, str] = {"integer": "integers", "binary32": "single precision", "binary64": "double precision"}

CONSTANTS: Mapping[str, Any] = {
    "E": math.e, "LOG2E": math.log2(math.e), "LOG10E": math.log10(math.e), "LN2": math.log(2.0), "LN10": math.log(10.0),
    "PI": math.pi, "PI_2": math.pi / 2, "PI_4": math.pi / 4, "M_1_PI": 1 / math.pi, "M_2_PI": 2 / math.pi,
    "M_2_SQRTPI": 2 / math.sqrt(math.pi), "1_PI": 1 / math.pi, "2_PI": 2 / math.pi, "2_SQRTPI": 2 / math.sqrt(math.pi),
    "SQRT2": math.sqrt(2.0), "SQRT1_2": math.sqrt(0.5), "INFINITY": math.inf, "NAN": math.nan,
    "TRUE": np.True_, "FALSE": np.False_,
}  # fmt: skip

ARITHMETIC = ("+", "-", "*", "/")
COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
LOGIC = ("and", "or", "not")
INTEGER = frozenset(("+", "-", "*", "fabs", "fmax", "fmin"))  # what has a meaning in integers

FUNCTIONS: Mapping[str, tuple[str, int]] = {  # the function of the library, and how many arguments
    **{name: (f"np.{name}", 1) for name in (
        "exp", "exp2", "expm1", "log", "log10", "log2", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
        "ceil", "floor", "trunc",
    )},
    "fabs": ("np.abs", 1), "nearbyint": ("np.rint", 1),
    "asin": ("np.arcsin", 1), "acos": ("np.arccos", 1), "atan": ("np.arctan", 1),
    "asinh": ("np.arcsinh", 1), "acosh": ("np.arccosh", 1), "atanh": ("np.arctanh", 1),
    "erf": ("special.erf", 1), "erfc": ("special.erfc", 1), "tgamma": ("special.gamma", 1), "lgamma": ("special.gammaln", 1),
    "pow": ("np.power", 2), "hypot": ("np.hypot", 2), "atan2": ("np.arctan2", 2), "fmod": ("np.fmod", 2),
    "fmax": ("np.fmax", 2), "fmin": ("np.fmin", 2), "copysign": ("np.copysign", 2),
}  # fmt: skip
CLASSES: Mapping[str, str] = {  # questions about one number
    "isfinite": "np.isfinite", "isinf": "np.isinf", "isnan": "np.isnan", "signbit": "np.signbit",
}  # fmt: skip
WRITTEN_OUT: Mapping[str, int] = {"fdim": 2, "round": 1, "isnormal": 1}  # of several operations

UNSUPPORTED: Mapping[str, tuple[str, str]] = {
    "fma": ("fma rounds once, a product and a sum round twice", "write (+ (* x y) z) if that is accurate enough"),
    "remainder": ("the IEEE remainder is not supported", "fmod, the remainder with the sign of x, is"),
    "tensor": ("tensors are not supported", "an expression file has arrays: y = zeros(n), and y[i] = ..."),
    "tensor*": ("tensors are not supported", "an expression file has arrays: y = zeros(n), and y[i] = ..."),
    "ref": ("tensors are not supported", "write the elements as inputs of their own"),
    "dim": ("tensors are not supported", "write the lengths as numbers"),
    "size": ("tensors are not supported", "write the lengths as numbers"),
}  # fmt: skip

KEYWORDS = ("if", "let", "let*", "while", "while*", "for", "for*", "!", "cast", "array", "digits")
OPERATIONS = (*ARITHMETIC, *COMPARISONS, *LOGIC, *FUNCTIONS, *CLASSES, *WRITTEN_OUT)
HIDDEN = "."  # begins the names of values that nobody named
