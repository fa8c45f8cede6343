"""LLVM code generation: ``compile_kernel(func, options)`` gives a Kernel."""

from pullback.llvm.compile import Options, compile_kernel

__all__ = ["Options", "compile_kernel"]
