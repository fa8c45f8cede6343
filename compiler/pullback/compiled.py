"""``CompiledFunction``: the runtime's Function with what needs the compiler: traces, higher derivatives, checks, texts."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback import remembered
from pullback.collection import resting
from pullback.errors import PullbackError, SeedError, ShapeError, TraceError, UnsupportedError
from pullback.ir.core import Func
from pullback.ir.dims import Dim, evaluate
from pullback.ir.types import DTYPES, DType, Type
from pullback.llvm import Options
from pullback_runtime import binding, direct
from pullback_runtime.binding import Arguments, Parameter
from pullback_runtime.function import Function
from pullback_runtime.signature import LEAF, flatten, map_leaves

if TYPE_CHECKING:
    from pullback.frontends.traced import Traced
    from pullback.specialize import Specialization


def active() -> Any:
    """The trace under way in this thread, if any; without loading what tracing needs."""
    trace = sys.modules.get("pullback.frontends.trace")
    return None if trace is None else trace.active()


class CompiledFunction(Function):
    """A compiled function: what ``pb.compile`` and ``pb.load`` return, and the transforms such as ``pb.grad``.

    Call it with arrays, numbers and containers of them (tuples, lists, dicts, dataclasses); its methods give derivatives. It is
    compiled at the first call for each kind of arguments, and can be called from several threads.

    >>> f = pb.compile(lambda x, y: np.sum(x * y), name="dot")
    >>> f
    <compiled dot(x, y)>
    >>> f.grad(np.array([1.0, 2.0]), np.array([3.0, -4.0]), wrt="x")
    array([ 3., -4.])
    """

    def __init__(self, frontend: Any, options: Options, symbolic: bool = False):
        """Not called by users: ``pb.compile`` and ``pb.load`` do. ``frontend`` has ``name``, ``parameters`` and
        ``trace(arguments)``; ``symbolic``: every axis is a symbol."""
        self.frontend = frontend
        self.options = options
        parameters = [p if isinstance(p, Parameter) else Parameter(p) for p in frontend.parameters]
        super().__init__(frontend.name, parameters, self._trace, symbolic, frontend, getattr(frontend, "floats", frozenset()))
        self._derived: dict[Any, CompiledFunction] = {}
        original = getattr(frontend, "function", None)
        if original is not None:  # the Function takes the place of what it was made from, in help() too
            functools.update_wrapper(self, original, assigned=("__module__", "__qualname__", "__doc__"), updated=())

    def __reduce__(self) -> Any:
        """By reference: to the function that was compiled, or for a decorator to this Function itself."""
        recipe = getattr(self.frontend, "recipe", None)
        if recipe is not None:
            return _derive, recipe
        original = getattr(self.frontend, "function", None)
        found: Any = sys.modules.get(getattr(original, "__module__", ""))
        for part in getattr(original, "__qualname__", "?").split("."):
            found = getattr(found, part, None)
        if found is self:
            return self.__qualname__
        if original is not None and found is original:
            return _compile_again, (original, self.__name__, self.options, self._symbolic)
        return super().__reduce__()

    def traced(self, specs: Sequence[Any]) -> Traced:
        """What the frontend makes of the function for these arguments, with what the options say about its loops."""
        found: Traced = self.frontend.trace(specs)
        options = self.options
        if options.max_trips is None and options.checkpoint is None:
            return found
        from pullback.passes.limits import limit_trips, with_checkpoints  # only where it is asked for

        func = found.func
        if options.max_trips is not None:
            func = limit_trips(func, options.max_trips)
        if options.checkpoint is not None:
            func = with_checkpoints(func, options.checkpoint)
        return replace(found, func=func)

    def _trace(self, arguments: Arguments) -> Any:
        """What serves calls of this kind: remembered by an earlier process, or traced."""
        memory = remembered.memory_of(self, arguments)
        if memory is None:
            return self._traced(arguments)
        known = memory.find()
        if known is not None:
            shapes = remembered.without_data(arguments)
            found = remembered.Remembered(memory, known, lambda: self._recorded(shapes, memory))
            ahead = not arguments.leaves and arguments.kinds()  # compiled for types, without data
            if ahead or found.bind(arguments.leaves) is not None:
                return found
        return self._recorded(arguments, memory)

    def _recorded(self, arguments: Arguments, memory: remembered.Memory) -> Specialization:
        made = self._traced(arguments)
        memory.record(made)
        return made

    def _traced(self, arguments: Arguments) -> Specialization:
        from pullback.specialize import Specialization  # which loads the passes

        specs = specs_of(self.parameters, arguments)
        with resting():
            try:
                traced = self.traced(specs)
            except RecursionError:
                raise TraceError(
                    f"tracing {self.__name__} went too deep: a function calls itself without an end that depends only on the "
                    "structure of the arguments; use a loop, or pass a smaller structure"
                ) from None
            return Specialization(traced, len(arguments.kinds()), self.options)

    def derived(self, key: Any, make: Callable[[], CompiledFunction]) -> CompiledFunction:
        """A Function made from this one, made once."""
        found = self._derived.get(key)
        return self._derived.setdefault(key, make()) if found is None else found

    def specialize(self, *args: Any, **kwargs: Any) -> Function:
        """Compile ahead of data: for the declared types if called without arguments; else for types, such as
        ``pb.f64["n", 3]``, or example values in place of the arguments. Gives the Function itself.

        >>> f = pb.compile(lambda A, x: A @ x).specialize(pb.f64["m", "n"], pb.f64["n"])
        >>> f(np.ones((2, 3)), np.ones(3)), f.cache_info().specializations
        (array([3., 3.]), 1)
        """
        given = [_as_type(a) for a in args]
        return super().specialize(*given, **{name: _as_type(a) for name, a in kwargs.items()})

    # -- derivatives within a trace ---------------------------------------------------------------------------------
    def vjp(
        self, *args: Any, seed: Any = None, seed_mode: str | None = None, wrt: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """(value, gradients). ``seed`` is the gradient of some downstream loss with respect to the output.

        It has the output's structure and shapes, or is a scalar, meaning that value everywhere; it is 1 if absent for a
        scalar output. ``seed_mode="broadcast"``: the gradient of ``sum(seed * broadcast(output))``. ``seed_mode="expand"``: a
        seed larger than an output that is a sum flows back as if nothing had been summed. ``wrt``: a name or position (one
        gradient comes back) or a tuple of them (a tuple comes back); by default every floating argument, a tuple if there are
        several. A gradient has its argument's structure, shape and element type. ``out``: arrays that receive the gradients.
        SeedError if the seed does not fit.

        >>> f = pb.compile(lambda x: x * x)
        >>> f.vjp(np.array([1.0, 2.0]), seed=np.array([-1.0, 3.0]))
        (array([1., 4.]), array([-2., 12.]))
        """
        if active() is None:
            return super().vjp(*args, seed=seed, seed_mode=seed_mode, wrt=wrt, out=out, **kwargs)
        self._only_plainly(seed_mode, out)
        from pullback import api  # which needs this module

        return api.vjp(self, wrt)(*args, seed=seed, **kwargs)

    def grad(
        self, *args: Any, seed: Any = None, seed_mode: str | None = None, wrt: Any = None, out: Any = None, **kwargs: Any
    ) -> Any:
        """The gradients alone; the arguments, shapes and errors are those of :meth:`vjp`.

        One floating argument, or one name for ``wrt``: its gradient. Else a tuple, also where some arguments are only data: for
        ``scipy.optimize.minimize(..., jac=...)`` say ``wrt``.

        >>> f = pb.compile(lambda w, x: np.sum(w * x))
        >>> w, x = np.array([1.0, 2.0]), np.array([3.0, -4.0])
        >>> f.grad(w, x)
        (array([ 3., -4.]), array([1., 2.]))
        >>> f.grad(w, x, wrt="w", seed=2.0)
        array([ 6., -8.])
        """
        if active() is None:
            return super().grad(*args, seed=seed, seed_mode=seed_mode, wrt=wrt, out=out, **kwargs)
        return self.vjp(*args, seed=seed, seed_mode=seed_mode, wrt=wrt, out=out, **kwargs)[1]

    def value_and_grad(self, *args: Any, wrt: Any = None, out: Any = None, **kwargs: Any) -> Any:
        """(value, gradients) of a function with one scalar output; ``wrt`` and ``out`` as for :meth:`vjp`. SeedError for any
        other output: use :meth:`vjp`, which takes a seed.

        >>> pb.compile(lambda x: np.sum(x * x)).value_and_grad(np.array([1.0, -2.0]))
        (5.0, array([ 2., -4.]))
        """
        if active() is None:
            return super().value_and_grad(*args, wrt=wrt, out=out, **kwargs)
        self._only_plainly(None, out)
        from pullback import api  # which needs this module

        return api.value_and_grad(self, wrt)(*args, **kwargs)

    def jvp(self, *args: Any, tangents: Any, **kwargs: Any) -> Any:
        """(value, tangent of the output): the derivative along a direction, in the output's structure and shape.

        ``tangents``: a dict from argument names (or a tuple in argument order, None for an argument that stays) to directions
        of the arguments' structures and shapes. TypeError for unknown names, ShapeError for other shapes.

        >>> f = pb.compile(lambda x, y: x * y)
        >>> f.jvp(np.array([1.0, 2.0]), 3.0, tangents={"x": np.array([1.0, -1.0])})
        (array([3., 6.]), array([ 3., -3.]))
        """
        if active() is None:
            return super().jvp(*args, tangents=tangents, **kwargs)
        from pullback import api  # which needs this module

        given = binding.match_tangents(self.__name__, self.parameters, tangents)
        directions = {self.parameters[k].name: tangent for k, tangent in given.items()}
        return api.jvp(self)(*args, tangents=directions, **kwargs)

    def pullback(self, *args: Any, wrt: Any = None, copy: bool = True, **kwargs: Any) -> Any:
        """(value, pull): the forward pass once; ``pull(seed)`` gives the gradients, as often as wanted, as :meth:`vjp` does.

        ``pull`` keeps copies of the arguments that the reverse pass reads; ``copy=False`` keeps the arrays themselves.

        >>> value, pull = pb.compile(lambda x: x * x).pullback(np.array([1.0, 2.0]))
        >>> value, pull(1.0), pull(np.array([0.0, -1.0]))
        (array([1., 4.]), array([2., 4.]), array([ 0., -4.]))
        """
        if active() is None:
            return super().pullback(*args, wrt=wrt, copy=copy, **kwargs)

        def pull(seed: Any = None, seed_mode: str | None = None) -> Any:
            return self.grad(*args, seed=seed, seed_mode=seed_mode, wrt=wrt, **kwargs)

        return self(*args, **kwargs), pull

    def _only_plainly(self, seed_mode: str | None, out: Any) -> None:
        if seed_mode is not None or out is not None:
            raise UnsupportedError(
                f"seed_mode= and out= of {self.__name__} are not available within a traced function; "
                "broadcast or sum the seed with NumPy's functions instead"
            )

    # -- higher derivatives -----------------------------------------------------------------------------------------
    def jacobian(self, *args: Any, wrt: Any = None, **kwargs: Any) -> Any:
        """Dense Jacobians: for each argument of ``wrt`` an array of shape ``output.shape + argument.shape``.

        A tuple of them for several arguments, as for :meth:`vjp`. One reverse pass per element of the output, which must be one
        array or scalar: PullbackError for several outputs.

        >>> pb.compile(lambda x: x * x).jacobian(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
        """
        value, pull = self.pullback(*args, wrt=wrt, **kwargs)
        if flatten(value)[1] is not LEAF:
            raise PullbackError(f"jacobian: {self.__name__} has several outputs; take the Jacobian of each")
        shape = np.shape(value)
        rows = []
        for k in range(int(np.prod(shape))):
            seed = np.zeros(shape)
            seed.reshape(-1)[k] = 1.0
            rows.append(pull(seed))
        if not rows:
            leaves, structure = flatten(pull(np.zeros(shape)))
            return structure.unflatten([np.zeros(shape + np.shape(leaf)) for leaf in leaves])
        structure = flatten(rows[0])[1]
        columns = zip(*(flatten(row)[0] for row in rows), strict=True)
        return structure.unflatten([_number(np.stack(c).reshape(shape + np.shape(c[0]))) for c in columns])

    def hessian(self, *args: Any, wrt: Any = None, **kwargs: Any) -> Any:
        """The dense Hessian of a scalar function: for one ``wrt`` an array of shape ``argument.shape * 2``; for several a tuple
        of tuples of blocks, row by row. Reverse over reverse. SeedError if the output is not one scalar.

        >>> pb.compile(lambda x: x[0] * x[1] ** 2).hessian(np.array([1.0, 2.0]))
        array([[0., 4.],
               [4., 2.]])
        """
        from pullback import api  # which needs this module

        gradient = api.grad(self, wrt=wrt)
        with self._scalar_for("hessian", args, kwargs):
            if wrt is None or isinstance(wrt, (tuple, list)):
                names = self._floating(args, kwargs) if wrt is None else list(wrt)
                if wrt is not None or len(names) > 1:
                    rows = [api.grad(self, wrt=row) for row in names]
                    return tuple(tuple(row.jacobian(*args, wrt=column, **kwargs) for column in names) for row in rows)
                return api.grad(self, wrt=names[0]).jacobian(*args, wrt=names[0], **kwargs)
            return gradient.jacobian(*args, wrt=wrt, **kwargs)

    def hvp(self, *args: Any, vector: Any, wrt: Any = None, **kwargs: Any) -> Any:
        """The product of the Hessian of a scalar function with ``vector``, by forward over reverse mode, without the Hessian.

        ``vector`` and the product have the shape of the argument; for several ``wrt`` they are tuples. SeedError if the output
        is not one scalar.

        >>> pb.compile(lambda x: x[0] * x[1] ** 2).hvp(np.array([1.0, 2.0]), vector=np.array([1.0, -1.0]))
        array([-4.,  2.])
        """
        from pullback import api  # which needs this module

        if wrt is None:
            names = self._floating(args, kwargs)
            wrt = names[0] if len(names) == 1 else tuple(names)
        chosen, single = binding.select(self.__name__, self.parameters, wrt)
        if not single and (not isinstance(vector, (tuple, list)) or len(vector) != len(chosen)):
            raise TypeError(f"hvp: a tuple of {len(chosen)} directions expected for vector, one for each of wrt")
        names = [self.parameters[k].name for k in chosen if isinstance(k, int)]
        tangents = dict(zip(names, (vector,) if single else vector, strict=True))
        gradient = api.grad(self, wrt=wrt)
        with self._scalar_for("hvp", args, kwargs):
            return gradient.jvp(*args, tangents=tangents, **kwargs)[1]

    @contextlib.contextmanager
    def _scalar_for(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterator[None]:
        """Where the gradient does not exist because the output is no scalar, say so in the words of ``method``."""
        try:
            yield
        except SeedError:
            if active() is not None:
                raise
            made = self._prepare(binding.bind(self.__name__, self.parameters, args, kwargs)).specialization
            if made.ranks == (0,):
                raise
            raise SeedError(
                f"{method} takes a function with one scalar output; {self.__name__} returns {made.output_text()}; "
                "jacobian takes the first derivatives of a function with an array as its output"
            ) from None

    def _floating(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
        """The names of the floating arguments of a call."""
        values = binding.bind(self.__name__, self.parameters, args, kwargs)
        bound = binding.arguments(self.parameters, values, self._floats, self._symbolic)
        pairs = zip(self.parameters, bound.key, strict=True)
        return [p.name for p, (_, leaves) in pairs if any(leaf.is_float for leaf in leaves)]

    # -- understanding ----------------------------------------------------------------------------------------------
    def check(self, *args: Any, **kwargs: Any) -> Any:
        """The verification report of the derivatives at this point; see ``pb.check``.

        >>> pb.compile(lambda x: np.sum(np.sin(x))).check(np.array([1.0, -2.0])).ok
        True
        """
        from pullback.checking import check  # loads what only verification needs

        return check(self, *args, **kwargs)

    def explain(self, *args: Any, seed: Any = None, **kwargs: Any) -> Any:
        """The chain rule at this point, step by step: every value, local partial derivative and adjoint. ``seed`` as for
        :meth:`vjp`.

        An Explanation, whose text a prompt or ``print`` shows; it has ``.inputs``, ``.outputs``, ``.seeds``, ``.forward``,
        ``.backward``, ``.gradients``, ``.to_json()`` and ``.save(path)``, which draws it.

        >>> float(pb.compile(lambda x, y: x * y).explain(2.0, -3.0).gradients["x"])
        -3.0
        """
        from pullback.explain import explain  # loads what only explanations need

        return explain(self, *args, seed=seed, **kwargs)

    def graph(self, path: Any = None) -> str:
        """The picture of the latest specialization in Graphviz's language; also drawn to ``path`` (.svg, .png, .pdf, .dot).
        PullbackError before the first call, unless the types are declared.

        >>> f = pb.compile(lambda x: x * x, name="square").specialize(2.0)
        >>> f.graph().splitlines()[0]
        'digraph "square" {'
        """
        from pullback.graph import dot, save  # loads what only pictures need
        from pullback.wording import output_names  # as above

        made = self.specialization()
        func: Func = made.func  # type: ignore[attr-defined]  # the compiler's own Specialization
        names = output_names(func.name, made.output.paths(""))
        if path is not None:
            save(func, path, outputs=names)
        return dot(func, outputs=names)


def _derive(kind: str, base: CompiledFunction, wrt: Any) -> CompiledFunction:
    """What pickles of derived Functions are made by."""
    from pullback import api  # which needs this module

    made: CompiledFunction = getattr(api, kind)(base, wrt)
    return made


def _compile_again(function: Any, name: str, options: Options, symbolic: bool) -> CompiledFunction:
    from pullback.frontends.python import PythonFrontend  # each frontend is loaded when it is used

    return CompiledFunction(PythonFrontend(function, name), options, symbolic)


def _direct_code(layout: direct.Layout, take_time: bool) -> tuple[int, int] | None:
    from pullback.llvm.callable_code import address  # when a function is called often

    return address(layout, take_time)


direct.set_maker(_direct_code)


def _as_type(tree: Any) -> Any:
    """A tree with every element type, such as ``pb.f64``, as the type of a scalar of it."""
    return map_leaves(lambda leaf: Type(leaf) if isinstance(leaf, DType) else leaf, tree)


def _number(array: np.ndarray[Any, Any]) -> Any:
    return array if array.ndim else float(array)


# -- what a frontend is given ---------------------------------------------------------------------------------------
def specs_of(parameters: Sequence[Parameter], arguments: Arguments) -> list[Any]:
    """For each parameter its tree with a Spec for each leaf. Axes that are not static get symbols ``n0, n1, ...``."""
    from pullback.frontends.traced import Spec  # which loads the IR

    leaves = iter(arguments.leaves) if arguments.leaves else None
    count = 0
    trees = []
    declared: list[tuple[str, Type, tuple[int, ...]]] = []
    for parameter, (structure, kinds) in zip(parameters, arguments.key, strict=True):
        specs = []
        for kind in kinds:
            hint = None if leaves is None else np.shape(next(leaves))
            if kind.declared is not None:
                if hint is not None:
                    declared.append((parameter.name, kind.declared, hint))
                specs.append(Spec(kind.declared, kind.weak, hint, declared=True))
                continue
            shape: list[Any] = []
            for length in kind.shape:
                shape.append(Dim.symbol(f"n{count}") if length is None else length)
                count += length is None
            specs.append(Spec(Type(DTYPES[kind.dtype], tuple(shape)), kind.weak, hint))
        trees.append(structure.unflatten(specs))
    _check_declared(declared)
    return trees


def _check_declared(given: Sequence[tuple[str, Type, tuple[int, ...]]]) -> None:
    """Lengths against declared types: (name, type, shape) of every leaf that was declared."""
    sizes: dict[str, tuple[int, str]] = {}  # what each symbol is, and by which argument
    for name, type, shape in given:
        for size, length in zip(type.shape, shape, strict=True):
            symbol = size.bare_symbol() if isinstance(size, Dim) else None
            if symbol is not None:
                sizes.setdefault(symbol, (length, name))
    numbers = {symbol: length for symbol, (length, _) in sizes.items()}
    for name, type, shape in given:
        for axis, (size, length) in enumerate(zip(type.shape, shape, strict=True)):
            symbols = sorted(size.symbols()) if isinstance(size, Dim) else []
            if any(symbol not in sizes for symbol in symbols):
                raise ShapeError(f"{name} is declared as {type}, but no argument has {symbols[0]} alone as a length")
            expected = evaluate(size, numbers)
            if expected != length:
                known = ", ".join(f"{s} is {sizes[s][0]} by {sizes[s][1]}" for s in symbols)
                raise ShapeError(
                    f"{name} is declared as {type}: axis {axis} has length {length}, {expected} expected"
                    + (f" ({known})" if known else "")
                )
