"""A differentiation compiler: NumPy functions, SymPy expressions and expression files to machine-code gradients."""

from pullback.api import check, compile, grad, hessian, jacobian, jvp, load, name, value_and_grad, vjp
from pullback.compiled import CompiledFunction as Function
from pullback.errors import (
    CheckError,
    DTypeError,
    ExpressionError,
    PullbackError,
    SeedError,
    ShapeError,
    TraceError,
    UnsupportedError,
)
from pullback.functional import cond, for_loop, scan, while_loop
from pullback.ir.types import bool_, f32, f64, i64
from pullback_runtime import __version__ as __version__
from pullback_runtime.variable import Variable, variable

__all__ = [
    "CheckError",
    "DTypeError",
    "ExpressionError",
    "Function",
    "PullbackError",
    "SeedError",
    "ShapeError",
    "TraceError",
    "UnsupportedError",
    "Variable",
    "bool_",
    "check",
    "compile",
    "cond",
    "f32",
    "f64",
    "for_loop",
    "grad",
    "hessian",
    "i64",
    "jacobian",
    "jvp",
    "load",
    "name",
    "scan",
    "value_and_grad",
    "variable",
    "vjp",
    "while_loop",
]
