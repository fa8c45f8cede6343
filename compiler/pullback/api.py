"""``compile``, ``load`` and the transforms: frontend, then passes, then code generation, then the runtime's Function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback.compiled import CompiledFunction
from pullback.errors import PullbackError
from pullback.llvm import Options

if TYPE_CHECKING:
    from pathlib import Path


def compile(
    function: Any = None,
    *,
    inputs: Sequence[Any] | None = None,
    name: str = "",
    fast_math: bool = False,
    symbolic: bool = False,
) -> Any:
    """A Function from a Python function of NumPy arrays, or from a SymPy expression, Matrix, list or dict of them.

    As a decorator, plain or with options. ``inputs``: for SymPy, the inputs in argument order. ``fast_math`` lets the machine
    code reorder and assume finite numbers. ``symbolic`` makes every axis a symbol, also those up to 8 that are compiled in
    otherwise.
    """
    if function is None:
        return lambda f: compile(f, inputs=inputs, name=name, fast_math=fast_math, symbolic=symbolic)
    if isinstance(function, CompiledFunction):
        return function
    return CompiledFunction(_frontend(function, inputs, name), Options(fast_math), symbolic)


def _frontend(function: Any, inputs: Sequence[Any] | None, name: str, caller: str = "compile") -> Any:
    if inputs is None and callable(function) and not _is_sympy(function):
        from pullback.frontends.python import PythonFrontend  # each frontend is loaded when it is used

        return PythonFrontend(function, name)
    if _is_sympy(function):
        from pullback.frontends.sympy_frontend import SympyFrontend

        return SympyFrontend(function, inputs, name)
    hint = "; an expression file is loaded with pb.load(path)" if isinstance(function, str) else ""
    if caller != "compile":
        raise PullbackError(
            f"{caller} takes a compiled function, a Python function or a SymPy expression; got {type(function).__name__}{hint}"
            f"; {caller}(f) is a function, to be called with the arguments of f: pb.{caller}(f)(x)"
        )
    raise PullbackError(
        f"compile takes a Python function, or a SymPy expression, Matrix, list or dict with inputs=[...]; "
        f"got {type(function).__name__}{hint}"
    )


def _is_sympy(value: Any) -> bool:
    """Whether a value is SymPy's or a container with something of SymPy's in it; never imports SymPy."""
    if "sympy" not in sys.modules:
        return False
    if isinstance(value, dict):
        return any(map(_is_sympy, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_is_sympy, value))
    import sympy

    return isinstance(value, (sympy.Basic, sympy.MatrixBase, sympy.NDimArray))


def load(path: str | Path, *, fast_math: bool = False) -> CompiledFunction:
    """The Function of an expression file. ExpressionError (file, line, column) if it is wrong."""
    from pathlib import Path  # takes 10 ms to import

    from pullback.frontends.expression import ExpressionFrontend

    return CompiledFunction(ExpressionFrontend.load(Path(path)), Options(fast_math))


# -- transforms: Function -> Function -------------------------------------------------------------------------------
def _function(f: Any, caller: str) -> CompiledFunction:
    if isinstance(f, CompiledFunction):
        return f
    return CompiledFunction(_frontend(f, None, "", caller), Options(False), False)


def _key(wrt: Any) -> Any:
    return tuple(wrt) if isinstance(wrt, list) else wrt


def _transform(f: Any, caller: str, kind: str, wrt: Any, **options: Any) -> CompiledFunction:
    from pullback import transforms  # which loads the passes

    function = _function(f, caller)

    def make() -> CompiledFunction:
        return CompiledFunction(getattr(transforms, kind)(function, wrt, **options), function.options, function._symbolic)

    return function.derived((kind, _key(wrt), *options.values()), make)


def grad(f: Any, wrt: Any = None) -> CompiledFunction:
    """The gradient of a function with one scalar output, as a Function of the same arguments. ``wrt``: see ``Function.vjp``.

    ``pb.grad(pb.grad(f))`` works, to any order.
    """
    return _transform(f, "grad", "Gradient", wrt, value=False)


def value_and_grad(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, gradient) of a function with one scalar output: what ``scipy.optimize.minimize(..., jac=True)`` takes."""
    return _transform(f, "value_and_grad", "Gradient", wrt, value=True)


def vjp(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, gradients) as a Function of the arguments and ``seed``, the gradient of some loss by the output.

    The seed has the output's shape or is a number, that value everywhere; it may be left out for a scalar output.
    """
    return _transform(f, "vjp", "Reverse", wrt)


def jvp(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, tangent) as a Function of the arguments and ``tangents``: a direction (or a tuple of them) for ``wrt``, which is
    by default every floating argument; or a dict from argument names."""
    return _transform(f, "jvp", "Pushforward", wrt)


def jacobian(f: Any, wrt: Any = None) -> Callable[..., Any]:
    """``f.jacobian`` with ``wrt`` fixed."""
    function = _function(f, "jacobian")
    return lambda *args, **kwargs: function.jacobian(*args, wrt=wrt, **kwargs)


def hessian(f: Any, wrt: Any = None) -> Callable[..., Any]:
    """``f.hessian`` with ``wrt`` fixed."""
    function = _function(f, "hessian")
    return lambda *args, **kwargs: function.hessian(*args, wrt=wrt, **kwargs)


def name(label: str, value: Any) -> Any:
    """Name an intermediate value while tracing; anywhere else just the value. A named value can be seeded
    (``seed={"q": ...}``) and asked for (``wrt="q"``), and ``explain`` shows it."""
    if not isinstance(label, str):
        raise TypeError(f"name takes (label, value): pb.name('q', x + y); got {type(label).__name__} as the label")
    trace_module = sys.modules.get("pullback.frontends.trace")
    trace = None if trace_module is None else trace_module.active()
    return value if trace is None else trace.label(label, value)


def check(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Verify derivatives at a point: of a Function, or of a pair (function, hand-written gradient). Gives a report."""
    from pullback.checking import check as run  # loads what only verification needs

    return run(f, *args, **kwargs)
