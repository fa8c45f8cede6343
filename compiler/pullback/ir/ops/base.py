"""What a record of the op table can say. One op is one record; every pass, oracle and test reads only records.

The kinds differ in how they are differentiated:

- ``Elementwise``: partial derivatives, stated without the cotangent.
- ``Linear``: linear in some arguments; the tangent is the op itself, the adjoint its ``transpose``.
- ``Weighted``: a reduction whose output moves by ``sum(weight * dx)``; the weights are stated.
- ``General``: a ``vjp``/``jvp`` pair, for contractions and recurrences.
- ``Plain``: no derivative: integer or boolean results, constants, sizes, control flow (the passes handle that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pullback.ir.types import DType, Type, bool_

if TYPE_CHECKING:
    from pullback.ir.core import Builder, Instr, Value

Attrs: TypeAlias = Mapping[str, Any]
Infer: TypeAlias = Callable[..., tuple[Any, ...]]  # of AnyType
Partials: TypeAlias = Callable[..., tuple[Any, ...]]


class TypeMismatch(ValueError):
    """Operands that an op's shape rule refuses. The frontends turn it into an error with the user's line."""


# -- lowering: how the loop level makes an element of the result ---------------------------------------------------
@dataclass(frozen=True, slots=True)
class Intrinsic:
    """An LLVM intrinsic, overloaded on the element type: ``llvm.sqrt`` becomes ``llvm.sqrt.f64``; ``integer`` is that for
    i64."""

    name: str
    integer: str = ""


@dataclass(frozen=True, slots=True)
class Libm:
    """A function of the C library; the f32 form has an ``f`` appended. Of most there is a form of our own, also for vectors."""

    name: str


@dataclass(frozen=True, slots=True)
class Machine:
    """One LLVM instruction per kind of element: ``Machine(f="fadd", i="add")``; ``"fcmp olt"`` and the like too."""

    f: str = ""
    i: str = ""
    b: str = ""


@dataclass(frozen=True, slots=True)
class Compose:
    """Other elementwise ops: ``expand(m, *args, **attrs)`` over a namespace of ops, like ``partials``."""

    expand: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Pull:
    """``element(read, instr, index)``: the element of the result at ``index``, by reading arguments at other indices.

    ``read`` is a Reader (``loops/reader.py`` lists what it can do); an index is a sequence of opaque i64 of the loop level.
    A pure view, so it costs no buffer.
    """

    element: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction over ``attrs["axes"]``: start from ``start`` and combine elements with the elementwise op ``combine``."""

    combine: str
    start: Callable[[DType], Any]


@dataclass(frozen=True, slots=True)
class Update:
    """The first argument with some elements replaced (``mode="set"``) or added to (``mode="add"``).

    ``target(read, instr, index)`` gives, for an index of the update operand (the last argument), the index of the
    element of the first argument that it hits.
    """

    mode: str
    target: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Decompose:
    """Instructions that compute the same: ``build(b, instr)`` returns the result Value; done just before the loop level."""

    build: Callable[[Builder, Instr], Value]


@dataclass(frozen=True, slots=True)
class Routine:
    """A routine of the loop level, by name (sorting, contractions, scans ...). ``work(instr)`` are the types of the arrays that
    it needs besides, for a library to work in."""

    name: str
    work: Callable[[Instr], tuple[Type, ...]] | None = None


Lowering: TypeAlias = Intrinsic | Libm | Machine | Compose | Pull | Fold | Update | Decompose | Routine | None


# -- records --------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Interval:
    """Where the tests sample an argument: open, finite, free of kinks and poles."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A promised value and first partials at a special point (None: that partial is not promised)."""

    at: tuple[float, ...]
    value: float
    partials: tuple[float | None, ...]
    why: str
    attrs: Attrs = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Op:
    """What every record has.

    ``infer(types, attrs[, blocks])`` is the shape rule: it returns the result types or raises TypeMismatch.
    ``evaluate(args, attrs)`` is the NumPy meaning used by the interpreter; sizes in ``attrs`` are numbers by then.
    ``sympy`` is the SymPy meaning: ``sympy(sp, *args, **attrs)`` of elementwise ops, ``sympy(sp, elements, attrs)`` of
    reductions, where ``elements`` is the list that becomes one element of the result.
    """

    name: str
    infer: Infer
    evaluate: Callable[..., Any] | None = None
    sympy: Callable[..., Any] | None = None
    lower: Lowering = None
    effect: bool = False  # kept, ordered, never speculated
    samples: tuple[Any, ...] = ()  # (argument types, attrs) with which the tests build the op


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plain(Op):
    """No derivative."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Elementwise(Op):
    """Applies to each element; all operands have one shape, and one element type unless ``infer`` says otherwise.

    ``partials(m, out, *args, **attrs)``: the partial derivative for each argument, over the namespace ``m`` (instructions,
    NumPy or SymPy). None: no dependence. A partial may be a Python number.
    ``singular``: a partial can be non-finite at finite operands; see Note [Zero times infinity] in ``passes/chain.py``.
    ``tame(attrs, known)``: whether it cannot, for these attributes and operands (None: not known while compiling).
    ``numpy(*args, **attrs)``: the NumPy meaning. ``domain``: one Interval per argument.
    """

    numpy: Callable[..., Any]
    partials: Partials | None = None
    domain: tuple[Interval, ...] = ()
    singular: bool = False
    tame: Callable[[Attrs, tuple[Any, ...]], bool] | None = None
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linear(Op):
    """Linear in the arguments whose positions are ``linear`` (None: all); the others (indices, conditions) are passed on.

    ``transpose(t, instr, ct)`` gives one contribution (or None) per argument, written over an algebra ``t`` so that one
    rule serves cotangents and their masks: ``t.sum`` is ``sum`` for values and ``any`` for masks, ``t.scatter_add`` is
    adding and or-ing, ``t.zeros(type)`` is 0 and False; views are the builder's own. If ``accumulates``, the rule is
    called as ``transpose(t, instr, ct, total)`` with the first argument's cotangent so far (zeros if none yet) and
    returns its new total in first place: no one-hot array is formed.
    """

    linear: tuple[int, ...] | None = (0,)
    transpose: Callable[..., tuple[Value | None, ...]]
    accumulates: bool = False
    carries_mask: bool = True  # False: the rule is for values only, so the mask ends here


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Weighted(Op):
    """A reduction of the first argument over ``attrs["axes"]``. ``weights(b, instr, out)``: d out / d element, in the
    argument's shape; ``out`` is the result broadcast to that shape."""

    weights: Callable[[Builder, Instr, Value], Value]
    singular: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class General(Op):
    """``vjp(b, instr, ct)``: a contribution or None per argument; ``jvp(b, instr, tangents)``: the result's tangent, where
    a tangent is None if the argument has none (not all are None)."""

    vjp: Callable[[Builder, Instr, Value], tuple[Value | None, ...]]
    jvp: Callable[[Builder, Instr, tuple[Value | None, ...]], Value]


# -- shape rules shared by the families -----------------------------------------------------------------------------
def same(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
    """All operands and the result have one type."""
    first = types[0]
    for other in types[1:]:
        if other is not first and other != first:
            raise TypeMismatch(f"operands of one type expected, got {', '.join(map(str, types))}")
    return (first,)


def only(kinds: str) -> Infer:
    """``same``, for element types of these kinds only."""

    def infer(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
        if types[0].dtype.kind not in kinds:
            raise TypeMismatch(f"not defined for {types[0]}")
        return same(types, attrs)

    return infer


def truth(kinds: str) -> Infer:
    """Operands of one type with one of these kinds; the result is boolean."""
    operands = only(kinds)

    def infer(types: tuple[Type, ...], attrs: Attrs) -> tuple[Type, ...]:
        return (operands(types, attrs)[0].of(bool_),)

    return infer


def table(*ops: Op) -> dict[str, Op]:
    """A family as a table by name."""
    by_name = {op.name: op for op in ops}
    assert len(by_name) == len(ops), "an op is defined twice"
    return by_name


FLOAT = only("f")
NUMBER = only("fi")
