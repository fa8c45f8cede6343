"""Variables: leaves that collect gradients, as in ``loss.backward(gradient)``.

``backward(seed)`` takes the gradient of some loss with respect to the value it is called on: 1 if that is a scalar, and for
anything else it must be said, because a gradient exists only of a number. It goes backwards through every compiled function
that made the value, by the chain rule, and *adds* what arrives to ``.grad`` of each leaf. It adds, so that a loss may be made
of several parts; ``zero_grad()`` begins anew.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback_runtime.binding import check_mode, fit_seed
from pullback_runtime.errors import DTypeError, PullbackError
from pullback_runtime.signature import FLOATS, canonical, flatten

if TYPE_CHECKING:
    from pullback_runtime.function import Function

_numbers = itertools.count()


class _Node:
    """One call of a compiled function on variables. ``outputs``: its floating outputs, None for the others."""

    __slots__ = ("name", "number", "outputs", "parents", "pull")

    def __init__(self, name: str, pull: Callable[[Sequence[Any], str | None], Sequence[Any]], parents: Sequence[Variable]):
        self.name = name
        self.number = next(_numbers)
        self.pull = pull  # seeds of the outputs, in order, to gradients of the parents
        self.parents = tuple(parents)
        self.outputs: list[weakref.ref[Variable] | None] = []

    def place(self, variable: Variable) -> int:
        return next(k for k, output in enumerate(self.outputs) if output is not None and output() is variable)


class Variable:
    """A value whose gradient is collected. Made by ``pb.variable(value)``, a leaf, or by calling a Function on variables.

    ``value``: the number or array. ``grad``: None until ``backward`` of something made from this leaf; then an array of the
    value's shape (or a number) to which each further ``backward`` adds. Only leaves collect: the ``grad`` of what a Function
    returned stays None. ``shape``: that of the value. Variables have no arithmetic outside of compiled functions (TypeError).

    >>> x = pb.variable(np.array([1.0, 2.0]))
    >>> y = pb.compile(lambda x: x * x)(x)
    >>> y.backward(np.array([-1.0, 3.0]))
    >>> x.grad, y.grad, y.value, y.shape
    (array([-2., 12.]), None, array([1., 4.]), (2,))
    """

    __slots__ = ("__weakref__", "_dtype", "_node", "grad", "value")

    def __init__(self, value: Any, node: _Node | None = None):
        if isinstance(value, (list, tuple)):
            value = np.array(value, np.float64)
        value, dtype, weak = canonical(value, "the value of a variable")
        if dtype == "i64" and weak:
            value, dtype = float(value), "f64"
        if dtype not in FLOATS:
            raise DTypeError(f"a variable is floating, got {dtype}; convert it, for example with .astype(float)")
        self.value = value
        self.grad: Any = None
        self._dtype = dtype
        self._node = node

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value; () for a number."""
        return np.shape(self.value)

    def zero_grad(self) -> None:
        """Forget the gradient collected so far."""
        self.grad = None

    def backward(self, seed: Any = None, seed_mode: str | None = None) -> None:
        """Add the gradients of ``sum(seed * value)`` to ``.grad`` of every leaf that this value was made from.

        ``seed``: the gradient of some loss with respect to this value, in its shape, or a scalar meaning that value everywhere;
        1 if absent and this is a scalar. ``seed_mode="broadcast"``: see ``Function.vjp``. SeedError if it does not fit.
        """
        node = self._node
        if node is None:
            raise PullbackError("backward() goes back from the output of a compiled function; this variable is a leaf")
        check_mode(seed_mode)
        waiting: dict[_Node, dict[int, Any]] = {}
        order: list[tuple[int, _Node]] = []

        def arrive(variable: Variable, gradient: Any) -> None:
            above = variable._node
            if above is None:
                variable.grad = gradient if variable.grad is None else variable.grad + gradient
                return
            if above not in waiting:
                waiting[above] = {}
                heapq.heappush(order, (-above.number, above))
            seeds, place = waiting[above], above.place(variable)
            seeds[place] = gradient if place not in seeds else seeds[place] + gradient

        if seed_mode != "expand":
            if seed is None and not self.shape:
                seed = 1.0
            seed, seed_mode = fit_seed(node.name, seed, self._dtype, self.shape, seed_mode), None
        arrive(self, seed)
        while order:  # the latest call first: by then everything that used its outputs has arrived
            _, node = heapq.heappop(order)
            seeds = waiting.pop(node)
            gradients = node.pull([seeds.get(k) for k in range(len(node.outputs))], seed_mode)
            seed_mode = None  # the mode is one of the seed that was given
            for parent, gradient in zip(node.parents, gradients, strict=True):
                arrive(parent, gradient)

    def __repr__(self) -> str:
        return f"variable({self.value!r})"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "variables are arguments of compiled functions, they have no arithmetic of their own; "
            "put the expression into a function: pb.compile(lambda x, y: ...)(x, y)"
        )

    def _no_number(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "a variable is not an array or a number; use its .value, or give it to a compiled function and call backward() "
            "on the result"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse
    __neg__ = __abs__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __array_ufunc__ = __array_function__ = _refuse
    __float__ = __int__ = __bool__ = __array__ = _no_number


def variable(value: Any) -> Variable:
    """A leaf with ``.value`` and ``.grad``; see :class:`Variable`. The value is floating: an array, a number, or a list that
    becomes an array. DTypeError for others.

    >>> w = pb.variable(3.0)
    >>> pb.compile(lambda w: w * w)(w).backward()
    >>> w.grad
    6.0
    """
    return Variable(value)


def record(function: Function, values: Sequence[Any]) -> Any:
    """Call ``function`` on arguments among which are variables; the outputs are variables that know how they were made."""
    parents: list[Variable] = []
    plain, spots = [], []
    for k, value in enumerate(values):
        leaves, structure = flatten(value)
        found = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Variable)]
        parents.extend(leaves[i] for i in found)
        if found:
            spots.append((k, found))
        plain.append(structure.unflatten([leaf.value if isinstance(leaf, Variable) else leaf for leaf in leaves]))
    result, pull = function._pullback(plain, tuple(k for k, _ in spots), whole=True)
    results, structure = flatten(result)

    def pull_leaves(seeds: Sequence[Any], seed_mode: str | None) -> list[Any]:
        gradients = pull(structure.unflatten(seeds), seed_mode)
        return [flatten(gradient)[0][i] for gradient, (_, found) in zip(gradients, spots, strict=True) for i in found]

    node = _Node(function.__name__, pull_leaves, parents)
    outputs = [Variable(r, node) if _is_float(r) else r for r in results]
    node.outputs = [weakref.ref(v) if isinstance(v, Variable) else None for v in outputs]
    return structure.unflatten(outputs)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f")
