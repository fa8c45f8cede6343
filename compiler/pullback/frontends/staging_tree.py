"""Values at the borders of blocks: what a variable holds, and what it can hold after a branch or from trip to trip.

:func:`describe` reads a Python value (a tree of arrays, numbers and anything else) into a *node* while its block is open.
:class:`Joiner` finds the *merge* of two nodes: what stays as it is, what becomes a result of the IR's instruction and of which
type, what is lost. :func:`emit` gives the IR values that a node yields for a merge, :func:`build` makes the Python value of
results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import PullbackError, ShapeError, TraceError
from pullback.frontends.array import Array
from pullback.frontends.promote import result_dtype, wrap
from pullback.frontends.sizes import Length
from pullback.frontends.trace import Trace
from pullback.ir import dims
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.types import Shape, Type


class Lack:
    """What a variable holds that has no value, or none that is certain; ``message`` says why."""

    __slots__ = ("message", "name", "remedy")

    def __init__(self, name: str, message: str, remedy: str = "give it a value before"):
        self.name = name
        self.message = message
        self.remedy = remedy

    def refuse(self, trace: Trace) -> PullbackError:
        return trace.error(TraceError, self.message, self.remedy)


class Unbound(Lack):
    """A variable without a value, as Python means it."""


class Guarded(Lack):
    """A variable that has a value, ``value``, just where the flag named ``flag`` is true: one that is set before a ``break``.

    ``holds`` is that flag. Where a branch asks for it the value is certain again.
    """

    __slots__ = ("flag", "holds", "value")

    def __init__(self, lack: Lack, flag: str, holds: Any, value: Any):
        super().__init__(lack.name, lack.message, lack.remedy)
        self.flag = flag
        self.holds = holds
        self.value = value


UNBOUND = Unbound("", "a variable is used before it has a value")


# -- nodes ----------------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True)
class Number:
    """An array or a number. ``constant`` where it is one whose instruction is not made yet."""

    original: Any
    array: Array | None  # None: only the type is known
    type: Type
    weak: bool
    value: Value | None = None
    constant: np.ndarray[Any, Any] | None = None


@dataclass(eq=False, slots=True)
class Group:
    """A container. Also a merge: one that is made anew of its parts."""

    original: Any
    keys: tuple[Any, ...]
    parts: tuple[Any, ...]


@dataclass(eq=False, slots=True)
class Other:
    original: Any


@dataclass(eq=False, slots=True)
class Missing:
    """``given``: what a guarded variable is where it has a value."""

    lack: Lack
    given: Node | None = None

    @property
    def original(self) -> Lack:
        return self.lack


Node = Number | Group | Other | Missing
DEAD = Missing(UNBOUND)  # every variable at the end of a block that raises


def describe(trace: Trace, x: Any) -> Node:
    """Read a value; within its block, since views are read and lengths become numbers."""
    if isinstance(x, Lack):
        return Missing(x, describe(trace, x.value) if isinstance(x, Guarded) else None)
    if isinstance(x, (Array, Length, bool, int, float, np.generic, np.ndarray)):
        if isinstance(x, Array) and x.context is not trace:
            return Other(x)  # of an enclosing trace
        array = wrap(x)
        constant = array.pending_constant()
        value = array.value if constant is None else None
        return Number(x, array, array.type, array.weak, value, constant)
    keys, parts = contents(x)
    if keys is None:
        return Other(x)
    return Group(x, keys, tuple(describe(trace, part) for part in parts))


def given(node: Node) -> Node:
    """A guarded variable as its value."""
    return node.given if isinstance(node, Missing) and node.given is not None else node


def set_with(node: Node, flag: Node, unchanged: bool = False) -> bool:
    """Whether a variable has a value at the end of a block just if a flag is true there; ``unchanged``: the flag is not set."""
    if node is DEAD:
        return True
    if not isinstance(node, Missing):
        return flag.original is True
    if isinstance(node.lack, Guarded):
        return node.lack.holds is flag.original
    return isinstance(node.lack, Unbound) and (unchanged or flag.original is False)


def contents(x: Any) -> tuple[tuple[Any, ...] | None, Sequence[Any]]:
    """The keys and the parts of a container of values; None for anything else."""
    if isinstance(x, (tuple, list)):
        return tuple(range(len(x))), x
    if type(x) is dict:
        return tuple(x), list(x.values())
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(f.name for f in dataclasses.fields(x))
        return names, [getattr(x, name) for name in names]
    return None, ()


def rebuild(x: Any, parts: Sequence[Any]) -> Any:
    """A container like ``x`` of other parts."""
    if isinstance(x, tuple):
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return list(parts)
    if isinstance(x, dict):
        return dict(zip(x, parts, strict=True))
    return dataclasses.replace(x, **{f.name: p for f, p in zip(dataclasses.fields(x), parts, strict=True)})


# -- merges ---------------------------------------------------------------------------------------------------------
@dataclass(eq=False, slots=True)
class Keep:
    """The very same value, whichever way was taken."""

    original: Any


@dataclass(frozen=True, slots=True)
class Out:
    """A result of the instruction. ``source`` and ``shared``: see :class:`~pullback.frontends.array.Array`."""

    type: Type
    weak: bool
    source: str = ""
    shared: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """The variable has no certain value afterwards; using it is an error that says why."""

    message: str
    remedy: str = "give it a value before"


@dataclass(frozen=True, slots=True)
class Grown:
    """A list that every trip of a loop appends to, see staging_growth.py: its items' type, and how many it held before."""

    out: Out
    first: int
    trips: Size


Merge = Keep | Out | Group | Lost | Grown


@dataclass(frozen=True, slots=True)
class Sides:
    """The two ways that meet, in words: ``{name} is {a} {first} and {b} {second}``."""

    first: str  # "in one arm"
    second: str  # "in the other arm"
    of: str  # "of the if at FILE:LINE"
    alone: str  # "has a value in one arm only of ..."


@dataclass(slots=True)
class Joiner:
    """Joins the nodes of one variable. ``filled``: where one side has no value, any will do."""

    trace: Trace
    name: str
    sides: Sides
    filled: bool = False
    counts: set[str] = field(default_factory=set)  # size symbols that do not leave the block

    def join(self, a: Node, b: Node, now: Merge | None = None) -> Merge:
        """``now``: what the two had in common so far, which stays if they are one and the same."""
        if isinstance(a, Missing) or isinstance(b, Missing):
            return self._one(a, b)
        if a.original is b.original:
            return Keep(a.original) if now is None else now
        if isinstance(a, Number) and isinstance(b, Number):
            return Keep(a.original) if now is None and same(a.original, b.original) else self._numbers(a, b)
        if isinstance(a, Group) and isinstance(b, Group) and type(a.original) is type(b.original) and a.keys == b.keys:
            before = now.parts if isinstance(now, Group) else (None,) * len(a.parts)
            parts = tuple(self.join(x, y, m) for x, y, m in zip(a.parts, b.parts, before, strict=True))
            return next((p for p in parts if isinstance(p, Lost)), None) or Group(b.original, b.keys, parts)
        if isinstance(a, Other) and isinstance(b, Other) and same(a.original, b.original):
            return Keep(a.original)
        return self.differ(noun(self.trace, a), noun(self.trace, b))

    def _one(self, a: Node, b: Node) -> Merge:
        """At least one of the two has no value."""
        if isinstance(a, Missing) and isinstance(b, Missing):
            lack = b.lack if isinstance(a.lack, Unbound) else a.lack
            return Keep(lack) if isinstance(lack, Unbound) else Lost(lack.message, lack.remedy)
        missing, node = (a, b) if isinstance(a, Missing) else (b, a)
        assert isinstance(missing, Missing) and not isinstance(node, Missing)
        if self.filled or missing is DEAD:
            return self.template(node)
        if not isinstance(missing.lack, Unbound):
            return Lost(missing.lack.message, missing.lack.remedy)
        return Lost(f"{self.name!r} {self.sides.alone} {self.sides.of}")

    def template(self, node: Node) -> Merge:
        """What has this node's value, and any of its type on the other side."""
        if isinstance(node, Number):
            if self._local(node.type.shape):
                return self._inner(node.type)
            return Out(node.type, node.weak)
        if isinstance(node, Group):
            parts = tuple(map(self.template, node.parts))
            return next((p for p in parts if isinstance(p, Lost)), None) or Group(node.original, node.keys, parts)
        return Keep(node.original)

    def _numbers(self, a: Number, b: Number) -> Merge:
        shape = self.shape(a.type.shape, b.type.shape)
        if shape is None:
            return self.differ(*(f"of shape {self.trace.shape_text(n.type.shape)}" for n in (a, b)))
        if self._local(shape):
            return self._inner(b.type)
        like = [_typed(n) for n in (a, b)]
        source = next((n.array.source for n in (a, b) if n.array is not None and n.array.source), "")
        shared = next((n.array.shared for n in (a, b) if n.array is not None and n.array.shared), "")
        return Out(Type(result_dtype(like), shape), a.weak and b.weak, source, shared)

    def shape(self, a: Shape, b: Shape) -> Shape | None:
        """The one shape of both, lengths that may differ when the function runs being checked then; None if they differ."""
        if len(a) != len(b):
            return None
        for m, n in zip(a, b, strict=True):
            try:
                self.trace.equate(m, n)
            except ShapeError:
                return None
        return self.trace.canonical_shape(a)

    def _local(self, shape: Shape) -> bool:
        return not dims.symbols(self.trace.canonical_shape(shape)).isdisjoint(self.counts)

    def _inner(self, type: Type) -> Lost:
        return Lost(
            f"the shape of {self.name!r} {self.trace.shape_text(type.shape)} depends on a number that is known only inside "
            + self.sides.of.removeprefix("of "),
            "store it in an array whose length does not depend on it, for example y[:k] = ...",
        )

    def differ(self, a: str, b: str) -> Lost:
        first, second = self.sides.first, self.sides.second
        return Lost(
            f"{self.name!r} is {a} {first} and {b} {second} {self.sides.of}",
            "use one variable for each, or give both the same type and shape",
        )


def _typed(node: Number) -> Any:
    """What NumPy's promotion looks at."""
    return _Typed(node.type.dtype, node.weak)


@dataclass(frozen=True, slots=True)
class _Typed:
    dtype_: Any
    weak: bool


def noun(trace: Trace, node: Node) -> str:
    """A node in a message."""
    if isinstance(node, Number):
        if node.array is not None and not isinstance(node.original, Array):
            return repr(node.original)
        return f"an array of shape {trace.shape_text(node.type.shape)}" if node.type.rank else "a number"
    x = node.original
    if x is None or isinstance(x, str):
        return repr(x)
    if isinstance(node, Group):
        return f"a {type(x).__name__} of {len(node.keys)}"
    name = getattr(x, "__name__", None)
    return name if isinstance(name, str) else f"a {type(x).__name__}"


def same(a: Any, b: Any) -> bool:
    """Equal plain values: numbers and strings that are not traced."""
    if isinstance(a, (Array, Length)) or isinstance(b, (Array, Length)):
        return isinstance(a, Length) and isinstance(b, Length) and a.size == b.size
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    try:
        return bool(a == b) and repr(a) == repr(b)  # 0.0 and -0.0 differ
    except Exception:  # an == of the user's that fails says nothing
        return False


def same_merge(trace: Trace, a: Merge, b: Merge) -> bool:
    if isinstance(a, Out) and isinstance(b, Out):
        shapes = trace.canonical_shape(a.type.shape), trace.canonical_shape(b.type.shape)
        return (
            shapes[0] == shapes[1]
            and a.type.dtype is b.type.dtype
            and (a.weak, a.source, a.shared)
            == (
                b.weak,
                b.source,
                b.shared,
            )
        )
    if isinstance(a, Group) and isinstance(b, Group):
        return a.keys == b.keys and all(same_merge(trace, x, y) for x, y in zip(a.parts, b.parts, strict=True))
    if isinstance(a, Grown) and isinstance(b, Grown):
        return same_merge(trace, a.out, b.out)
    if isinstance(a, Keep) and isinstance(b, Keep):
        return a.original is b.original or same(a.original, b.original)
    return a == b


def ghost(merge: Merge) -> Node:
    """A node of a merge's types without values."""
    if isinstance(merge, Out):
        return Number(merge, None, merge.type, merge.weak)
    if isinstance(merge, Group):
        return Group(merge.original, merge.keys, tuple(map(ghost, merge.parts)))
    if isinstance(merge, Lost):
        return Missing(Lack("", merge.message, merge.remedy))
    assert isinstance(merge, Keep)
    return Other(merge.original)


# -- from and to the IR ---------------------------------------------------------------------------------------------
def outs(merge: Merge) -> Iterator[Out]:
    """The IR results of a merge, in order."""
    if isinstance(merge, Out):
        yield merge
    elif isinstance(merge, Group):
        for part in merge.parts:
            yield from outs(part)


def emit(trace: Trace, merge: Merge, node: Node) -> list[Value]:
    """The values of a node in the types of its merge, in the block that is open; zeros where there is none."""
    node = given(node)
    if isinstance(merge, Out):
        type = merge.type.with_shape(trace.canonical_shape(merge.type.shape))
        return [_converted(trace, node, type) if isinstance(node, Number) else trace.builder.zeros(type)]
    if isinstance(merge, Group):
        parts = node.parts if isinstance(node, Group) else (node,) * len(merge.parts)
        return [value for m, n in zip(merge.parts, parts, strict=True) for value in emit(trace, m, n)]
    return []


def _converted(trace: Trace, node: Number, type: Type) -> Value:
    b = trace.builder
    if node.constant is not None and node.array is not None and node.array.pending_constant() is not None:
        with np.errstate(all="ignore"):
            value = b.const(node.constant.astype(type.dtype.numpy), type.dtype)
    elif node.value is not None:
        value = node.value
    else:
        assert node.array is not None
        value = node.array.value
    if value.type.dtype is not type.dtype:
        value = b.convert(value, dtype=type.dtype.name)
    return value if value.type.shape == type.shape else b.match(value, shape=type.shape)


def build(trace: Trace, merge: Merge, values: Iterator[Value], name: str) -> Any:
    """The Python value, of fresh arrays for the results of the instruction."""
    if isinstance(merge, Out):
        array = Array(trace, next(values), weak=merge.weak, source=merge.source, contiguous=True)
        array.shared = merge.shared
        return array
    if isinstance(merge, Group):
        return rebuild(merge.original, [build(trace, part, values, name) for part in merge.parts])
    if isinstance(merge, Lost):
        return Lack(name, merge.message, merge.remedy)
    assert isinstance(merge, Keep)
    return merge.original
