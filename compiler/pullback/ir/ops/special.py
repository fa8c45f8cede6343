"""Special functions of one or more real variables: error functions, gamma functions, logistic pairs, sinc."""

from __future__ import annotations

from pullback.ir.ops.base import table

OPS = table()
