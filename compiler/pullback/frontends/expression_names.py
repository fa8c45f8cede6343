"""What the names of an expression file mean: functions by their short names, modules, constants, element types.

Every function is one of the library's table, so the file means what the NumPy function of the same text means.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback.ir.types import DTYPES

MODULES: Mapping[str, tuple[str, ...]] = {  # the library's modules by the names that people give them
    "np": ("numpy",),
    "numpy": ("numpy",),
    "math": ("math",),
    "scipy": ("scipy",),
    "special": ("scipy.special",),
    "linalg": ("numpy.linalg", "scipy.linalg"),
}
CONSTANTS: Mapping[str, float] = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan}
MODULE_CONSTANTS: Mapping[str, Any] = {**CONSTANTS, "euler_gamma": np.euler_gamma, "newaxis": None, "tau": math.tau}
ELEMENT_TYPES: Mapping[str, Any] = {
    "float": float, "int": int, "bool": bool, "float64": np.float64, "float32": np.float32, "int64": np.int64,
    "bool_": np.bool_, **DTYPES,
}  # fmt: skip
SHORT: Mapping[str, str] = {
    "ln": "numpy.log", "asin": "numpy.arcsin", "acos": "numpy.arccos", "atan": "numpy.arctan", "atan2": "numpy.arctan2",
    "asinh": "numpy.arcsinh", "acosh": "numpy.arccosh", "atanh": "numpy.arctanh", "pow": "numpy.power",
    "norm": "numpy.linalg.norm",
    "lgamma": "scipy.special.gammaln", "psi": "scipy.special.digamma", "sigmoid": "scipy.special.expit",
    "det": "numpy.linalg.det", "inv": "numpy.linalg.inv", "solve": "numpy.linalg.solve", "slogdet": "numpy.linalg.slogdet",
}  # fmt: skip
METHODS = frozenset(
    (
        "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "diagonal", "dot",
        "flatten", "max", "mean", "min", "prod", "ptp", "ravel", "repeat", "reshape", "round", "searchsorted", "squeeze",
        "std", "sum", "swapaxes", "take", "trace", "transpose", "var",
    )
)  # fmt: skip
ATTRIBUTES = frozenset(("T", "mT", "shape", "size", "ndim", "dtype"))
_ORDER = ("numpy.", "scipy.special.", "math.")


@functools.cache
def functions() -> Mapping[str, str]:
    """The library's name for every name that may be called, ``sum``, ``np.sum`` and ``linalg.norm`` alike."""
    from pullback.frontends.library import FUNCTIONS

    found: dict[str, str] = {}
    for prefix in _ORDER:
        for full in FUNCTIONS:
            if full.startswith(prefix) and "." not in full.removeprefix(prefix):
                found.setdefault(full.removeprefix(prefix), full)
    for alias, modules in MODULES.items():
        for module in modules:
            for full in FUNCTIONS:
                if full.startswith(f"{module}."):
                    found.setdefault(f"{alias}.{full.removeprefix(module + '.')}", full)
    return found | {name: full for name, full in SHORT.items() if full in FUNCTIONS}


def display(full: str) -> str:
    """How a user writes a function of the library: ``np.sum``, ``scipy.special.erf``."""
    return "np." + full.removeprefix("numpy.") if full.startswith("numpy.") else full
