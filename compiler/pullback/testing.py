"""For pytest users: derivatives as assertions.

from pullback.testing import assert_derivatives

def test_loss():
    assert_derivatives(loss, w, X, y)             # a compiled function, or one that can be
    assert_derivatives((rosen, rosen_der), x0)    # a gradient written by hand
"""

from __future__ import annotations

from typing import Any

from pullback.checking import check
from pullback.checking.report import Report

__all__ = ["assert_derivatives"]


def assert_derivatives(function: Any, *args: Any, **kwargs: Any) -> Report:
    """Verify the derivatives of ``function`` at ``args``; CheckError (an AssertionError) with the report if they fail."""
    __tracebackhide__ = True  # pytest then shows the caller's line
    return check(function, *args, **kwargs).raise_if_failed()
