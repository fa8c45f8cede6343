"""The SymPy frontend: an expression, matrix, list or dict of them, and its inputs, as a traceable function.

Symbols stand for real numbers. A symbol may be called with an array: the expressions then apply to each element, broadcast as
NumPy does, and every scalar output has the common shape of the scalar inputs, also where it does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.errors import ExpressionError, ShapeError
from pullback.frontends.array import Array
from pullback.frontends.promote import broadcast_shape, cast, float_dtype, spread, wrap
from pullback.frontends.sympy_plan import Plan, shown
from pullback.frontends.trace import Trace
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import UNKNOWN, Value
from pullback.ir.types import Shape, f64
from pullback_runtime.signature import flatten

SCALARS = ("Symbol", "AppliedUndef", "Derivative", "Indexed", "MatrixElement")
REMEDY = (
    "an input is a Symbol, an applied function f(t), a Derivative, an Indexed, an IndexedBase, a MatrixSymbol, "
    "or a list or Matrix of such"
)


@dataclass(frozen=True, slots=True)
class Input:
    """One parameter: its name, and for a container of scalars its shape (for an array, the declared one if it has one)."""

    name: str
    kind: str  # "scalar", "array" or "container"
    shape: tuple[Any, ...] = ()


class SympyFrontend:
    """``expr`` as a function of ``inputs``, in their order.

    What is unsupported, and a free symbol that is not among the inputs, is an error here, before any argument is seen.
    """

    def __init__(self, expr: Any, inputs: Sequence[Any] | None, name: str = ""):
        import sympy  # only where SymPy is used

        self._sp = sympy
        self.name = name or "expression"
        readers: dict[Any, Callable[[Sequence[Any]], Any]] = {}
        self.inputs = tuple(self._input(node, k, readers) for k, node in enumerate(_inputs(inputs, expr)))
        self.parameters = _unique([i.name for i in self.inputs])
        self.plan = Plan(readers)
        self.output = self._output(expr)
        if self.plan.missing:
            names = ", ".join(self.plan.missing)
            raise ExpressionError(f"free symbols that are not among the inputs: {names}; inputs=[...] has to list them too")

    # -- building -----------------------------------------------------------------------------------------------------
    def _input(self, node: Any, k: int, readers: dict[Any, Callable[[Sequence[Any]], Any]]) -> Input:
        sp = self._sp
        kind = _kind(node)
        if isinstance(node, str):
            raise ExpressionError(f"the input {node!r} is a string; pass the symbol itself, for example sympy.Symbol({node!r})")
        if kind == "":
            raise ExpressionError(f"{shown(node)} ({type(node).__name__}) cannot be an input; {REMEDY}")
        if kind != "container":
            self._declare(node, lambda arguments: arguments[k], readers)
            declared = node.shape if kind == "array" and getattr(node, "shape", None) else ()
            return Input(_name(node), kind, tuple(declared))
        table = sp.Array(node) if isinstance(node, (list, tuple)) else node
        shape = tuple(int(n) for n in table.shape)
        if len(shape) == 0 or any(_kind(e) != "scalar" for e in _elements(table, shape)):
            raise ExpressionError(f"the input {shown(node)} holds something that cannot be an input; {REMEDY}")
        for place in _places(shape):
            self._declare(table[place], _reader(k, place), readers)
        return Input(f"input{k}", kind, shape)

    def _declare(self, node: Any, read: Callable[[Sequence[Any]], Any], readers: dict[Any, Any]) -> None:
        if node in readers:
            raise ExpressionError(f"the input {shown(node)} is listed twice")
        readers[node] = read

    def _output(self, expr: Any) -> Any:
        """The output's containers with step numbers for leaves."""
        if isinstance(expr, dict):
            return {_key(key): self._output(value) for key, value in expr.items()}
        if isinstance(expr, (list, tuple)) and not hasattr(expr, "_fields"):
            return type(expr)(self._output(e) for e in expr)
        if isinstance(expr, str):
            raise ExpressionError(
                f"the expression {expr!r} is a string; parse it first (sympy.parse_expr), or use an expression file"
            )
        node = self._sp.sympify(expr)
        if isinstance(node, (self._sp.Tuple, self._sp.Dict)):
            return self._output(tuple(node) if isinstance(node, self._sp.Tuple) else dict(node))
        return Output(self.plan.add(node), getattr(node, "shape", None) not in (None, ()))

    # -- tracing ------------------------------------------------------------------------------------------------------
    def trace(self, arguments: Sequence[Any]) -> Traced:
        """The IR for arguments given as trees of Specs."""
        with Trace(self.name, UNKNOWN) as trace:
            bound = [
                _bind(trace, given, name, argument)
                for given, name, argument in zip(self.inputs, self.parameters, arguments, strict=True)
            ]
            scalars = [b for b, given in zip(bound, self.inputs, strict=True) if given.kind == "scalar"]
            leaves, structure = flatten(self.output)
            if any(leaf.is_array for leaf in leaves) and any(s.symbolic_shape for s in scalars):
                raise ShapeError(
                    f"{self.name} has a matrix among its outputs, so its scalar inputs must be scalars, got an array; "
                    "return a list of expressions to evaluate them for arrays"
                )
            values = self.plan.run(bound)
            results = [_result(trace, values[leaf.step], leaf, scalars, bound) for leaf in leaves]
            return trace.finish(results, structure)


class Output:
    """A leaf of the output: the step that computes it, and whether it is an array in the expression already.

    Not a dataclass, which would count as a container of outputs.
    """

    def __init__(self, step: int, is_array: bool):
        self.step = step
        self.is_array = is_array


# -- inputs ---------------------------------------------------------------------------------------------------------------
def _inputs(inputs: Sequence[Any] | None, expr: Any) -> list[Any]:
    if inputs is None:
        raise ExpressionError("a SymPy expression needs inputs=[...], the symbols in the order of the arguments")
    if isinstance(inputs, (list, tuple)):
        return list(inputs)
    return [inputs]


def _kind(node: Any) -> str:
    """How a node can serve as an input; "" if it cannot."""
    if isinstance(node, (list, tuple)):
        return "container"
    names = {cls.__name__ for cls in type(node).__mro__}
    if names & {"MatrixSymbol", "IndexedBase"}:
        return "array"
    if names & {"MatrixBase", "NDimArray"}:
        return "container"
    return "scalar" if names & set(SCALARS) else ""


def _name(node: Any) -> str:
    """A symbol's name as given; the text of anything else, such as ``q(t)``."""
    return shown(node) if node.args else str(node.name)


def _unique(names: list[str]) -> tuple[str, ...]:
    """Names as given; a repeated one (symbols may differ in assumptions only) gets a number."""
    taken: dict[str, int] = {}
    found = []
    for name in names:
        taken[name] = taken.get(name, 0) + 1
        found.append(name if taken[name] == 1 else f"{name}_{taken[name]}")
    return tuple(found)


def _key(key: Any) -> Any:
    return key if isinstance(key, (str, int)) else str(key)


def _places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    from itertools import product

    return list(product(*map(range, shape)))


def _elements(table: Any, shape: tuple[int, ...]) -> list[Any]:
    return [table[place] for place in _places(shape)]


def _reader(k: int, place: tuple[int, ...]) -> Callable[[Sequence[Any]], Any]:
    return lambda arguments: arguments[k][place]


class Parts:
    """A list of scalars given for a container input."""

    def __init__(self, parts: Any):
        self.parts = parts

    def __getitem__(self, place: tuple[int, ...]) -> Any:
        found = self.parts
        for k in place:
            found = found[k]
        return found


def _bind(trace: Trace, given: Input, name: str, argument: Any) -> Any:
    """The traced value of an argument; its lengths are compared with what the input says."""
    if isinstance(argument, (list, tuple)):
        if given.kind != "container":
            raise ShapeError(f"the input {name} is one {given.kind}, got a {type(argument).__name__}; pass an array")
        return Parts(_bind_parts(trace, name, argument, given.shape))
    array = _argument(trace, name, argument)
    shape = array.symbolic_shape
    if given.kind == "scalar" or not given.shape:
        return array
    flat = given.kind == "container" or given.shape[1:] == (1,)
    if len(shape) == 1 and len(given.shape) == 2 and 1 in given.shape and flat:
        return _checked(trace, name, array, (given.shape[0] * given.shape[1],), given.shape)
    return _checked(trace, name, array, given.shape, None)


def _bind_parts(trace: Trace, name: str, parts: Sequence[Any], shape: tuple[Any, ...]) -> Any:
    if len(parts) != shape[0]:
        raise ShapeError(f"the input {name} has {shape[0]} parts, got {len(parts)}")
    return [
        _bind_parts(trace, f"{name}[{k}]", part, shape[1:])
        if isinstance(part, (list, tuple))
        else _argument(trace, f"{name}[{k}]", part)
        for k, part in enumerate(parts)
    ]


def _argument(trace: Trace, name: str, spec: Spec) -> Array:
    value = trace.parameter(name, spec.type, spec.hint)
    array = Array(trace, value, weak=spec.weak)
    return array if spec.type.is_float else Array(trace, cast(array, f64), weak=spec.weak)


def _checked(trace: Trace, name: str, array: Array, shape: tuple[Any, ...], reshaped: tuple[Any, ...] | None) -> Array:
    """The array, if its shape is the declared one; integers of a declared shape are compared, symbols are any length."""
    own: Shape = array.symbolic_shape
    fits = len(own) == len(shape) and all(
        trace.decide(n, "==", int(m)) for n, m in zip(own, shape, strict=True) if getattr(m, "is_Integer", isinstance(m, int))
    )
    if not fits:
        wanted = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
        raise ShapeError(f"the input {name} has shape {wanted}, got an array of shape ({', '.join(map(str, own))})")
    if reshaped is None:
        return array
    return Array(trace, trace.here().reshape(array.value, shape=tuple(int(n) for n in reshaped)), weak=array.weak)


# -- outputs --------------------------------------------------------------------------------------------------------------
def _result(trace: Trace, value: Any, leaf: Output, scalars: Sequence[Array], bound: Sequence[Any]) -> Value:
    """An output as the value that the function returns, in the common shape of the scalar inputs."""
    array = wrap(value)
    given = [b for b in bound if isinstance(b, Array)]
    found = (
        array.value
        if array.dtype_.kind == "b"
        else cast(array, float_dtype([*given, array] if not array.weak else given or [array]))
    )
    return found if leaf.is_array else spread(trace, found, broadcast_shape(trace, [s.symbolic_shape for s in scalars]))
