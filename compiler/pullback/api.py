"""``compile``, ``load`` and the transforms: frontend, then passes, then code generation, then the runtime's Function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pullback.compiled import CompiledFunction
from pullback.errors import PullbackError
from pullback.llvm.options import OPTS, Options

if TYPE_CHECKING:
    from pathlib import Path


def compile(
    function: Any = None,
    *,
    inputs: Sequence[Any] | None = None,
    name: str = "",
    fast_math: bool = False,
    symbolic: bool = False,
    max_trips: int | None = None,
    checkpoint: int | str | None = None,
    opt: int | str = "auto",
    parallel: bool = False,
) -> Any:
    """A Function from a Python function of NumPy arrays, or from a SymPy expression, Matrix, list or dict of them.

    As a decorator, plain or with options. ``inputs``: for SymPy, the inputs in argument order. ``fast_math`` lets the machine
    code reorder and assume finite numbers. ``symbolic`` makes every axis a symbol, also those up to 8 that are compiled in
    otherwise. ``max_trips`` is the most trips that any loop may make (PullbackError beyond it); there is no limit by default.

    ``checkpoint`` bounds what the gradient of a loop keeps of its forward run, for which it computes parts of that again.
    Default: every trip keeps what the reverse pass needs (8 bytes for a scalar). A number k: the state at every k-th trip, and
    the tape of k trips at a time. ``"binomial"``: a fixed number of states, whatever the number of trips (Griewank and Walther
    2000, algorithm 799).

    ``opt``: how much time may be spent on better machine code. By default (``"auto"``) that follows from what there is to
    compile: long straight-line code gets little, loops get what makes a difference. 0: none, 1: a few quick passes, 2: LLVM's
    standard ones, 3: these, with a look for what straight-line code can do in vectors. Without ``fast_math`` the results are
    the same bits at all of them.

    ``parallel``: outermost loops over long arrays are shared by as many threads as there are processors for this process, or
    as the environment variable ``PULLBACK_THREADS`` says. How a loop is cut up depends on lengths alone, so results have the
    same bits for any number of threads (sums may differ in the last ones from those without ``parallel``). It takes memory for
    up to 16 copies of each array that all trips of a loop add to.

    PullbackError for anything else than these; what the function computes is looked at when it is called (TraceError,
    UnsupportedError).

    >>> @pb.compile
    ... def f(x, y):
    ...     return np.sum(x * y)
    >>> f(np.array([1.0, 2.0]), np.array([3.0, -4.0]))
    -5.0
    >>> import sympy
    >>> a, b = sympy.symbols("a b")
    >>> pb.compile(a**2 * b, inputs=[a, b]).grad(3.0, -2.0)
    (-12.0, 9.0)
    """
    if function is None:
        return lambda f: compile(
            f,
            inputs=inputs,
            name=name,
            fast_math=fast_math,
            symbolic=symbolic,
            max_trips=max_trips,
            checkpoint=checkpoint,
            opt=opt,
            parallel=parallel,
        )
    if isinstance(function, CompiledFunction):
        return function
    return CompiledFunction(
        _frontend(function, inputs, name), _options(fast_math, max_trips, checkpoint, opt, parallel), symbolic
    )


def _options(fast_math: bool, max_trips: Any, checkpoint: Any, opt: Any, parallel: Any) -> Options:
    if max_trips is not None and not (_is_count(max_trips) and max_trips >= 0):
        raise PullbackError(f"max_trips is a number of trips, 0 or more, or None; got {max_trips!r}")
    if checkpoint is not None and checkpoint != "binomial" and not (_is_count(checkpoint) and checkpoint >= 1):
        raise PullbackError(f'checkpoint is a number of trips, 1 or more, or "binomial" or None; got {checkpoint!r}')
    if isinstance(opt, bool) or not isinstance(opt, (int, str)) or opt not in OPTS:
        raise PullbackError(f'opt is "auto" or a number from 0 to {OPTS[-1]}; got {opt!r}')
    if not isinstance(parallel, bool):
        raise PullbackError(f"parallel is True or False, the number of threads is set by PULLBACK_THREADS; got {parallel!r}")
    return Options(fast_math, max_trips, checkpoint, opt, parallel)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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


def load(
    path: str | Path,
    *,
    fast_math: bool = False,
    core: str = "",
    precision: str = "",
    max_trips: int | None = None,
    checkpoint: int | str | None = None,
    opt: int | str = "auto",
    parallel: bool = False,
) -> CompiledFunction:
    """The Function of an expression file, or of an FPCore file. ExpressionError (file, line, column) if it is wrong.

    ``core``: which FPCore of a ``.fpcore`` file that holds several, by its name or as ``"#2"``. ``precision``: ``"binary64"``
    or ``"binary32"`` for all numbers of an FPCore, whatever it says itself. The other options are those of
    ``pb.compile``.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "product.expr")
    >>> _ = path.write_text("x: f64\\ny: f64\\nreturn x * y")
    >>> pb.load(path).grad(2.0, -3.0)
    (-3.0, 2.0)
    """
    from pathlib import Path  # takes 10 ms to import

    from pullback.frontends.expression import ExpressionFrontend

    options = _options(fast_math, max_trips, checkpoint, opt, parallel)
    return CompiledFunction(ExpressionFrontend.load(Path(path), core, precision), options)


# -- transforms: Function -> Function -------------------------------------------------------------------------------
def _function(f: Any, caller: str) -> CompiledFunction:
    if isinstance(f, CompiledFunction):
        return f
    return CompiledFunction(_frontend(f, None, "", caller), Options(False), False)


def _key(wrt: Any) -> Any:
    return tuple(wrt) if isinstance(wrt, list) else wrt


def _transform(f: Any, caller: str, kind: str, wrt: Any, **options: Any) -> CompiledFunction:
    from pullback import transforms  # few use them

    function = _function(f, caller)

    def make() -> CompiledFunction:
        kept = replace(function.options, max_trips=None, checkpoint=None)  # which the base has seen to
        return CompiledFunction(getattr(transforms, kind)(function, wrt, **options), kept, function._symbolic)

    return function.derived((kind, _key(wrt), *options.values()), make)


def grad(f: Any, wrt: Any = None) -> CompiledFunction:
    """The gradient of a function with one scalar output, as a Function of the same arguments. ``wrt``: see ``Function.vjp``.

    Without ``wrt`` the gradients by all floating arguments come back, in a tuple if there are several, also where some of the
    arguments are only data. An optimizer wants one: ``minimize(loss, w0, args=(X, y), jac=pb.grad(loss, wrt="w"))``.
    ``pb.grad(pb.grad(f))`` works, to any order. SeedError when it is called if the output is not one scalar.

    >>> pb.grad(lambda w, x: np.sum(w * x), wrt="w")(np.array([1.0, 2.0]), np.array([3.0, -4.0]))
    array([ 3., -4.])
    >>> pb.grad(pb.grad(lambda x: x**3))(2.0)
    12.0
    """
    return _transform(f, "grad", "Gradient", wrt, value=False)


def value_and_grad(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, gradient) of a function with one scalar output, as a Function of the same arguments: what
    ``scipy.optimize.minimize(..., jac=True)`` takes. With data among the arguments say ``wrt``, as for ``grad``.

    >>> pb.value_and_grad(lambda x: np.sum(x * x))(np.array([1.0, -2.0]))
    (5.0, array([ 2., -4.]))
    """
    return _transform(f, "value_and_grad", "Gradient", wrt, value=True)


def vjp(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, gradients) as a Function of the arguments and ``seed``, the gradient of some loss by the output.

    The seed has the output's shape or is a number, that value everywhere; it may be left out for a scalar output. SeedError if
    it does not fit.

    >>> pb.vjp(lambda x: x * x)(np.array([1.0, 2.0]), seed=np.array([-1.0, 3.0]))
    (array([1., 4.]), array([-2., 12.]))
    """
    return _transform(f, "vjp", "Reverse", wrt)


def jvp(f: Any, wrt: Any = None) -> CompiledFunction:
    """(value, tangent) as a Function of the arguments and ``tangents``: a direction (or a tuple of them) for ``wrt``, which is
    by default every floating argument; or a dict from argument names. ShapeError if a direction has another shape.

    >>> pb.jvp(lambda x: x * x)(np.array([1.0, 2.0]), tangents=np.array([1.0, -1.0]))
    (array([1., 4.]), array([ 2., -4.]))
    """
    return _transform(f, "jvp", "Pushforward", wrt)


def jacobian(f: Any, wrt: Any = None) -> Callable[..., Any]:
    """``f.jacobian`` with ``wrt`` fixed: an array of shape ``output.shape + argument.shape``, or a tuple of them.

    >>> pb.jacobian(lambda x, a: a * x, wrt="x")(np.array([1.0, 2.0]), 3.0)
    array([[3., 0.],
           [0., 3.]])
    """
    function = _function(f, "jacobian")
    return lambda *args, **kwargs: function.jacobian(*args, wrt=wrt, **kwargs)


def hessian(f: Any, wrt: Any = None) -> Callable[..., Any]:
    """``f.hessian`` with ``wrt`` fixed: an array of shape ``argument.shape * 2``, or a tuple of tuples of blocks.

    >>> pb.hessian(lambda x: x[0] * x[1] ** 2)(np.array([1.0, 2.0]))
    array([[0., 4.],
           [4., 2.]])
    """
    function = _function(f, "hessian")
    return lambda *args, **kwargs: function.hessian(*args, wrt=wrt, **kwargs)


def name(label: str, value: Any) -> Any:
    """Name an intermediate value while tracing; anywhere else just the value. The label comes first, then the value.

    A named value can be seeded (``seed={"q": ...}``) and asked for (``wrt="q"``), and ``explain`` shows it. TraceError if a
    name is given twice in one trace.

    >>> f = pb.compile(lambda x, y, z: pb.name("q", x + y) * z)
    >>> f.grad(-2.0, 5.0, -4.0, wrt="q")
    -4.0
    """
    if not isinstance(label, str):
        raise TypeError(f"name takes (label, value): pb.name('q', x + y); got {type(label).__name__} as the label")
    trace_module = sys.modules.get("pullback.frontends.trace")
    trace = None if trace_module is None else trace_module.active()
    return value if trace is None else trace.label(label, value)


def check(f: Any, *args: Any, **kwargs: Any) -> Any:
    """Verify derivatives at a point: of a Function, or of a pair (function, hand-written gradient). Gives a report.

    A prompt or ``print`` shows its text. It has ``.ok``; ``.function`` and ``.reference``, what was compared with; ``.inputs``,
    for each floating input its ``.name``, ``.verdict``, ``.ok``, ``.error``, ``.tolerance`` and, of the ``.worst`` entry,
    ``.got`` and ``.expected``; ``.tests`` of the whole function with ``.name`` and ``.verdict``; ``.flags``, remarks;
    ``.text``, ``.to_json()``, and ``.raise_if_failed()``, a CheckError.

    >>> pb.check(lambda x: np.sum(x**3), np.array([1.0, -2.0])).ok
    True
    >>> wrong = pb.check((lambda x: x**3, lambda x: 2 * x**2), 2.0)
    >>> wrong.ok, wrong.inputs[0].verdict, wrong.inputs[0].got
    (False, 'WRONG', 8.0)
    """
    from pullback.checking import check as run  # loads what only verification needs

    return run(f, *args, **kwargs)
