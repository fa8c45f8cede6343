"""Building scalar nodes: equal ones are made once, each is placed in the innermost loop on which it depends.

Ops whose record says ``Compose`` are written out here, over a namespace that is like that of the partial derivatives but
makes nodes; so the loop level knows primitive operations only (``Machine``, ``Intrinsic``, ``Libm``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.ir.core import NO_ATTRS, Instr
from pullback.ir.dims import Dim, Size
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Compose, Elementwise, Intrinsic, Libm, Machine, Op
from pullback.ir.types import DTYPES, DType, Type, bool_, i64
from pullback.loops.nest import Node, Region, Scope, Statement

Key = Any


class Scalars:
    """Nodes of one program. What is made inside a nest or a region is forgotten with it.

    ``symbols`` are the sizes that only some region knows, as nodes.
    """

    def __init__(self, body: list[Statement]):
        self.body = body  # of the innermost region
        self.region: Region | None = None
        self.symbols: dict[str, Node] = {}
        self.tested: set[Node] = set()  # conditions without which the call has stopped where they were made
        self._global: dict[Key, Node] = {}  # of the innermost region
        self._outer: list[tuple[dict[Key, Node], list[Statement], Region | None]] = []
        self._nest: dict[Key, Node] = {}
        self._types: dict[Key, DType] = {}
        self._journal: list[Key] | None = None  # keys made since a mark
        self._loads: list[Node] = []

    def leave_nest(self) -> None:
        self._nest = {}

    def enter(self, region: Region) -> None:
        self._outer.append((self._global, self.body, self.region))
        self._global, self.body, self.region = {}, region.body, region

    def leave(self) -> None:
        self._global, self.body, self.region = self._outer.pop()

    def _find(self, key: Key) -> Node | None:
        found = self._global.get(key) or self._nest.get(key)
        if found is None and self._outer:
            for known, _, _ in reversed(self._outer):
                if key in known:
                    return known[key]
        return found

    # -- trials: a nest is built once to see what it reads ---------------------------------------------------------------
    def mark(self) -> int:
        self._journal, self._loads = [], []
        return len(self.body)

    def loads(self) -> list[Node]:
        """Those made since the mark."""
        return self._loads

    def rollback(self, mark: int) -> None:
        for key in self._journal or ():
            self._global.pop(key, None)
        self._journal = None
        self._nest = {}
        del self.body[mark:]

    def _make(
        self, kind: str, dtype: DType, args: tuple[Node, ...], data: Any, key: Key, scope: Scope | None, attrs: Any = None
    ) -> Node:
        found = self._find(key)
        if found is None:
            found = Node(kind, dtype, args, data, scope, attrs)
            self._remember(key, found)
            if kind == "load" and self._journal is not None:
                self._loads.append(found)
            if kind not in ("const", "size"):
                (self.body if scope is None else scope.body).append(found)
        return found

    def _remember(self, key: Key, node: Node) -> None:
        if node.scope is not self.region and node.scope is not None:
            self._nest[key] = node
            return
        self._global[key] = node
        if self._journal is not None:
            self._journal.append(key)

    # -- sources ---------------------------------------------------------------------------------------------------
    def const(self, value: Any, dtype: DType) -> Node:
        array = np.asarray(value, dtype.numpy)
        number = int(array) if dtype is i64 else array[()]  # which may become a position in an array
        return self._make("const", dtype, (), number, ("const", dtype, array.tobytes()), None)

    def integer(self, value: int) -> Node:
        return self._make("const", i64, (), value, ("const", value), None)

    def size(self, size: Size) -> Node:
        if isinstance(size, int):
            return self.integer(size)
        if self.symbols and not size.symbols().isdisjoint(self.symbols):
            return self._polynomial(size)
        return self._make("size", i64, (), size, ("size", size), None)

    def _polynomial(self, size: Dim) -> Node:
        """A size with symbols that are nodes."""
        total = self.integer(0)
        for monomial, coefficient in size.terms:
            term = self.integer(coefficient)
            for atom in monomial:
                if not isinstance(atom, str):
                    factor = self.raw("floordiv", i64, self.size(atom.numerator), self.size(atom.denominator))
                else:
                    factor = self.symbols.get(atom) or self.size(Dim.symbol(atom))
                term = self.mul(term, factor)
            total = self.add(total, term)
        return total

    def load(self, version: Any, buffer: Any, position: Node, dtype: DType) -> Node:
        """An element of the version ``version`` of what ``buffer`` holds."""
        return self._make("load", dtype, (position,), buffer, ("load", version, position), self._scope((position,)))

    def know(self, version: Any, position: int, node: Node) -> None:
        """What an element of a version is, so that reading it costs no load."""
        self._remember(("load", version, self.integer(position)), node)

    def known(self, version: Any, position: int) -> Node | None:
        return self._find(("load", version, self.integer(position)))

    def fresh(self, kind: str, dtype: DType, data: Any, scope: Scope | None) -> Node:
        """A node that stands where a loop puts it (an index, an accumulator's total): never shared, never a statement."""
        return Node(kind, dtype, (), data, scope)

    # -- operations ------------------------------------------------------------------------------------------------
    def raw(self, code: str, dtype: DType, *args: Node) -> Node:
        """One LLVM instruction by its name, for what the loop level itself needs."""
        return self._make("raw", dtype, args, code, (code, dtype, args), self._scope(args))

    def op(self, op: Op, args: tuple[Node, ...], attrs: Mapping[str, Any] = NO_ATTRS) -> Node:
        key: Key = (op, args, tuple(sorted(attrs.items()))) if attrs else (op, args)
        found = self._global.get(key)
        if found is None and (self._nest or self._outer):
            found = self._find(key)
        if found is not None:
            return found
        if isinstance(op.lower, Compose):
            node = _lift(self, op.lower.expand(Namespace(self), *(Expression(self, a) for a in args), **attrs), args)
            self._remember(key, node)
            return node
        if not isinstance(op.lower, (Machine, Intrinsic, Libm)):
            raise UnsupportedError(f"{op.name} has no compiled form for {', '.join(str(a.dtype) for a in args)}")
        scope = self._scope(args)
        node = Node("op", self._dtype(op, args, attrs), args, op, scope, attrs)
        self._remember(key, node)
        (self.body if scope is None else scope.body).append(node)
        return node

    def _scope(self, args: tuple[Node, ...]) -> Scope | None:
        """The innermost of the loops and regions that the arguments depend on, and of the present region; they are nested in
        each other."""
        scope: Scope | None = self.region
        for arg in args:
            if arg.scope is not None and arg.scope is not scope and (scope is None or arg.scope.level > scope.level):
                scope = arg.scope
        return scope

    def _dtype(self, op: Op, args: tuple[Node, ...], attrs: Mapping[str, Any]) -> DType:
        key = (op, args[0].dtype, args[-1].dtype)  # a select differs from others in its first operand only
        found = self._types.get(key)
        if found is None:
            (result,) = op.infer(tuple(Type(a.dtype) for a in args), attrs)
            found = self._types[key] = result.dtype
        return found

    # -- index arithmetic, simplified as it is made -------------------------------------------------------------------
    def add(self, a: Node, b: Node) -> Node:
        x, y = _known(a), _known(b)
        if x is not None and y is not None:
            return self.size(x + y)
        return b if x == 0 else a if y == 0 else self.raw("add", i64, a, b)

    def sub(self, a: Node, b: Node) -> Node:
        x, y = _known(a), _known(b)
        if x is not None and y is not None:
            return self.size(x - y)
        return a if y == 0 else self.raw("sub", i64, a, b)

    def mul(self, a: Node, b: Node) -> Node:
        x, y = _known(a), _known(b)
        if x is not None and y is not None:
            return self.size(x * y)
        if x == 0 or y == 0:
            return self.integer(0)
        return b if x == 1 else a if y == 1 else self.raw("mul", i64, a, b)

    def floordiv(self, a: Node, b: Node) -> Node:
        """Of a non-negative number by a positive one."""
        x, y = _known(a), _known(b)
        if isinstance(x, int) and isinstance(y, int) and y:
            return self.integer(x // y)
        return a if y == 1 or x == 0 else self.raw("udiv", i64, a, b)

    def mod(self, a: Node, b: Node) -> Node:
        x, y = _known(a), _known(b)
        if isinstance(x, int) and isinstance(y, int) and y:
            return self.integer(x % y)
        return self.integer(0) if y == 1 or x == 0 else self.raw("urem", i64, a, b)


def _known(node: Node) -> Size | None:
    return node.data if node.kind in ("const", "size") else None


class Expression:
    """A node with arithmetic; Python numbers take part as constants of its type."""

    __slots__ = ("node", "scalars")

    def __init__(self, scalars: Scalars, node: Node):
        self.scalars = scalars
        self.node = node

    def _binary(self, name: str, left: Any, right: Any) -> Expression:
        args = (_lift(self.scalars, left, (self.node,)), _lift(self.scalars, right, (self.node,)))
        return Expression(self.scalars, self.scalars.op(OPS[name], args))

    def __add__(self, other: Any) -> Expression:
        return self._binary("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return self._binary("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return self._binary("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self._binary("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self._binary("mul", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return self._binary("mul", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return self._binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self._binary("div", other, self)

    def __neg__(self) -> Expression:
        return Expression(self.scalars, self.scalars.op(OPS["neg"], (self.node,)))

    def __lt__(self, other: Any) -> Expression:
        return self._binary("lt", self, other)

    def __gt__(self, other: Any) -> Expression:
        return self._binary("lt", other, self)

    def __le__(self, other: Any) -> Expression:
        return self._binary("le", self, other)

    def __ge__(self, other: Any) -> Expression:
        return self._binary("le", other, self)

    def __and__(self, other: Any) -> Expression:
        return self._binary("logical_and", self, other)

    def __or__(self, other: Any) -> Expression:
        return self._binary("logical_or", self, other)

    def __invert__(self) -> Expression:
        return Expression(self.scalars, self.scalars.op(OPS["logical_not"], (self.node,)))

    @property
    def dtype(self) -> DType:
        return self.node.dtype


def _lift(scalars: Scalars, value: Any, models: tuple[Node, ...]) -> Node:
    """A node of an operand; a number takes the type of the first of ``models`` (a truth value is boolean)."""
    if isinstance(value, Expression):
        return value.node
    if isinstance(value, (bool, np.bool_)):
        return scalars.const(value, bool_)
    return scalars.const(value, models[0].dtype)


class Namespace:
    """What ``Compose.expand`` sees as ``m``: ``m.NAME(*operands, **attrs)`` is the op; numbers take the type of the first
    operand that is an expression (of a select: of its branches). ``m.convert(x, dtype="f64")`` changes the type."""

    def __init__(self, scalars: Scalars):
        self._scalars = scalars

    def like(self, x: Expression, number: Any) -> Expression:
        """A constant of the type of ``x``, where no other operand gives a number its type."""
        return Expression(self._scalars, self._scalars.const(number, x.dtype))

    def convert(self, x: Expression, dtype: str) -> Expression:
        return Expression(self._scalars, convert(self._scalars, x.node, DTYPES[dtype]))

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        op = OPS.get(name)
        if not isinstance(op, Elementwise):
            raise AttributeError(f"no elementwise op named {name!r}")

        def build(*operands: Any, **attrs: Any) -> Expression:
            skip = 1 if name == "select" else 0
            models = tuple(o.node for o in operands[skip:] if isinstance(o, Expression))
            args = tuple(_lift(self._scalars, o, models) for o in operands)
            return Expression(self._scalars, self._scalars.op(op, args, attrs or NO_ATTRS))

        return build


def convert(s: Scalars, x: Node, to: DType) -> Node:
    """A change of element type as NumPy's ``astype`` does it."""
    kinds = x.dtype.kind + to.kind
    if x.dtype is to:
        return x
    if kinds == "ff":
        return s.raw("fpext" if to.bytes > x.dtype.bytes else "fptrunc", to, x)
    if kinds == "fb":
        return s.raw("fcmp une", bool_, x, s.const(0, x.dtype))
    if kinds == "ib":
        return s.raw("icmp ne", bool_, x, s.integer(0))
    return s.raw({"if": "sitofp", "bf": "uitofp", "bi": "zext", "fi": "fptosi"}[kinds], to, x)


# -- costs ----------------------------------------------------------------------------------------------------------
_COSTS: dict[Key, int] = {}


def op_cost(instr: Instr) -> int:
    """About how many additions an elementwise op is worth."""
    key = (instr.op.name, tuple(a.type.dtype for a in instr.args))
    found = _COSTS.get(key)
    if found is None:
        body: list[Statement] = []
        scalars = Scalars(body)
        args = tuple(scalars.fresh("param", a.type.dtype, None, None) for a in instr.args)
        scalars.op(instr.op, args, instr.attrs)
        found = _COSTS[key] = sum(node_cost(n) for n in body if isinstance(n, Node))
    return found


def node_cost(node: Node) -> int:
    if node.kind != "op":
        return 1
    lower = node.data.lower
    if isinstance(lower, Libm):
        return 20
    return 5 if isinstance(lower, Intrinsic) or node.data.name == "div" else 1


__all__ = ["Expression", "Namespace", "Scalars", "convert", "node_cost", "op_cost"]
