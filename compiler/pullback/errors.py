"""Errors: every message says what was expected, what was got, where, and what to do."""

from pullback_runtime.errors import DTypeError, PullbackError, SeedError, ShapeError
from pullback_runtime.kernel import ERRORS


class TraceError(PullbackError, TypeError):
    """A function cannot be traced: control flow on a traced value, a side effect, a conversion to a Python number."""


class UnsupportedError(PullbackError, NotImplementedError):
    """A function or construct that has no rule. Names the nearest supported ones."""


class ExpressionError(PullbackError, ValueError):
    """An expression file or inline expression is wrong; the message has file:line:column and a caret."""


class CheckError(PullbackError, AssertionError):
    """A derivative failed verification."""


class IRError(PullbackError, ValueError):
    """The IR is malformed: a parser's complaint or the verifier's."""


__all__ = [
    "ERRORS",
    "CheckError",
    "DTypeError",
    "ExpressionError",
    "IRError",
    "PullbackError",
    "SeedError",
    "ShapeError",
    "TraceError",
    "UnsupportedError",
]
