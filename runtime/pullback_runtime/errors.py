"""Errors that a compiled function can raise when it runs."""


class PullbackError(Exception):
    """Whatever pullback raises; subclasses also derive from the builtin that fits."""


class SeedError(PullbackError, ValueError):
    """The seed (gradient of the output) is missing or does not fit the output."""


class ShapeError(PullbackError, ValueError):
    """Lengths or ranks that do not fit."""


class DTypeError(PullbackError, TypeError):
    """An element type that does not fit."""
