"""``CompiledFunction``: the runtime's Function with what needs the compiler: checks, explanations, higher derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import PullbackError, ShapeError
from pullback.frontends.traced import Spec
from pullback.ir.dims import Dim, evaluate
from pullback.ir.types import DTYPES, Type
from pullback.llvm import Options
from pullback.specialize import Specialization
from pullback_runtime.binding import Arguments, Parameter
from pullback_runtime.function import Function
from pullback_runtime.signature import Leaf, flatten


class CompiledFunction(Function):
    """A frontend's function, compiled when it is called. ``frontend`` has ``name``, ``parameters`` and ``trace(arguments)``."""

    def __init__(self, frontend: Any, options: Options, symbolic: bool = False, reserved: bool = False):
        self.frontend = frontend
        self.options = options
        parameters = [p if isinstance(p, Parameter) else Parameter(p) for p in frontend.parameters]
        super().__init__(frontend.name, parameters, self._trace, symbolic, frontend, reserved)
        self._derived: dict[Any, CompiledFunction] = {}

    def _trace(self, arguments: Arguments) -> Specialization:
        specs = specs_of(self.parameters, arguments)
        return Specialization(self.frontend.trace(specs), len(arguments.kinds()), self.options)

    def derived(self, key: Any, make: Callable[[], CompiledFunction]) -> CompiledFunction:
        """A Function made from this one, made once."""
        if key not in self._derived:
            self._derived[key] = make()
        return self._derived[key]

    # -- higher derivatives -----------------------------------------------------------------------------------------
    def jacobian(self, *args: Any, wrt: Any = None, **kwargs: Any) -> Any:
        """Dense Jacobians: for each argument of ``wrt`` an array of shape ``output.shape + argument.shape``.

        One reverse pass per element of the output. The output must be one array (or scalar).
        """
        value, pull = self.pullback(*args, wrt=wrt, **kwargs)
        shape = np.shape(value)
        if isinstance(value, (tuple, list, dict)):
            raise PullbackError(f"jacobian: {self.__name__} has several outputs; take the Jacobian of each")
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
        of tuples of blocks, row by row. Reverse over reverse."""
        from pullback import api  # which needs this module

        gradient = api.grad(self, wrt=wrt)
        if wrt is None or isinstance(wrt, (tuple, list)):
            names = self._floating(args, kwargs) if wrt is None else list(wrt)
            if wrt is not None or len(names) > 1:
                return tuple(
                    tuple(api.grad(self, wrt=row).jacobian(*args, wrt=column, **kwargs) for column in names) for row in names
                )
            return api.grad(self, wrt=names[0]).jacobian(*args, wrt=names[0], **kwargs)
        return gradient.jacobian(*args, wrt=wrt, **kwargs)

    def hvp(self, *args: Any, vector: Any, wrt: Any = None, **kwargs: Any) -> Any:
        """The product of the Hessian of a scalar function with ``vector``, by forward over reverse mode."""
        from pullback import api  # which needs this module

        if wrt is None:
            names = self._floating(args, kwargs)
            wrt = names[0] if len(names) == 1 else tuple(names)
        tangents = {wrt: vector} if isinstance(wrt, str) else dict(zip(wrt, vector, strict=True))
        return api.grad(self, wrt=wrt).jvp(*args, tangents=tangents, **kwargs)[1]

    def _floating(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
        """The names of the floating arguments of a call."""
        from pullback_runtime import binding

        values = binding.bind(self.__name__, self.parameters, args, kwargs)
        bound = binding.arguments(self.parameters, values, frozenset(), self._symbolic)
        pairs = zip(self.parameters, bound.key, strict=True)
        return [p.name for p, (_, leaves) in pairs if any(leaf.is_float for leaf in leaves)]

    # -- understanding ----------------------------------------------------------------------------------------------
    def check(self, *args: Any, **kwargs: Any) -> Any:
        """The verification report of the derivatives at this point; see ``pb.check``."""
        from pullback.checking import check  # loads what only verification needs

        return check(self, *args, **kwargs)

    def explain(self, *args: Any, seed: Any = None, **kwargs: Any) -> Any:
        """The chain rule at this point, step by step: every value, local partial derivative and adjoint."""
        from pullback.explain import explain  # loads what only explanations need

        return explain(self, *args, seed=seed, **kwargs)


def _number(array: np.ndarray[Any, Any]) -> Any:
    return array if array.ndim else float(array)


# -- what a frontend is given ---------------------------------------------------------------------------------------
def specs_of(parameters: Sequence[Parameter], arguments: Arguments) -> list[Any]:
    """For each parameter its tree with a Spec for each leaf. Axes that are not static get symbols ``n0, n1, ...``."""
    leaves = iter(arguments.leaves) if arguments.leaves else None
    count = 0
    trees = []
    declared: dict[str, tuple[int, str]] = {}
    for parameter, (structure, kinds) in zip(parameters, arguments.key, strict=True):
        specs = []
        for kind in kinds:
            hint = None if leaves is None else np.shape(next(leaves))
            if kind.declared is not None:
                if hint is not None:
                    _check_declared(parameter.name, kind.declared, hint, declared)
                specs.append(Spec(kind.declared, kind.weak, hint, declared=True))
                continue
            shape: list[Any] = []
            for length in kind.shape:
                shape.append(Dim.symbol(f"n{count}") if length is None else length)
                count += length is None
            specs.append(Spec(Type(DTYPES[kind.dtype], tuple(shape)), kind.weak, hint))
        trees.append(structure.unflatten(specs))
    return trees


def _check_declared(name: str, type: Type, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    """Lengths against a declared type; ``sizes`` collects what each symbol is, and where that was seen."""
    for size, length in zip(type.shape, shape, strict=True):
        symbol = size.bare_symbol() if isinstance(size, Dim) else None
        if symbol is not None and symbol not in sizes:
            sizes[symbol] = (length, name)
    for axis, (size, length) in enumerate(zip(type.shape, shape, strict=True)):
        try:
            expected = evaluate(size, {symbol: value for symbol, (value, _) in sizes.items()})
        except KeyError:
            continue  # bound by a later argument
        if expected != length:
            symbols = sorted(size.symbols()) if isinstance(size, Dim) else []
            known = ", ".join(f"{s} is {sizes[s][0]} by {sizes[s][1]}" for s in symbols)
            raise ShapeError(
                f"{name} is declared as {type}: axis {axis} has length {length}, {expected} expected"
                + (f" ({known})" if known else "")
            )


def leaf_of(spec: Spec) -> Leaf:
    """The key's leaf of a spec, for frontends that call other Functions."""
    return Leaf(spec.type.dtype.name, tuple(n if isinstance(n, int) else None for n in spec.type.shape), spec.weak)
