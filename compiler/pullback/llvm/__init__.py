"""LLVM code generation: ``compile_kernel(func, options)`` gives a Kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.llvm.options import Options

if TYPE_CHECKING:
    from pullback.ir.core import Func
    from pullback_runtime.kernel import Kernel

__all__ = ["Options", "compile_kernel"]


def compile_kernel(func: Func, options: Options | None = None) -> Kernel:
    """See ``pullback.llvm.compile``, which is loaded when something is compiled: a third of what importing us would take."""
    from pullback.llvm.compile import compile_kernel

    return compile_kernel(func, options)
