"""The IR: typed SSA values, instructions, blocks and functions, all immutable; and the builder that makes them.

Order within a block is dataflow. There are no parent pointers and no use lists: a pass reads a Func and makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.dims import Dim, Size
from pullback.ir.types import AnyType, DType, Shape, StackType, Type, f64, i64

if TYPE_CHECKING:
    from pullback.ir.ops.base import Op

NO_ATTRS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's source; line 0 means that it is not known."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "an unknown line"


UNKNOWN = Loc()


@dataclass(eq=False, slots=True)
class Value:
    """One SSA value. Its identity is the object; ``name`` is a hint for the printer and may be empty or repeated."""

    name: str
    type: Any  # AnyType; Any so that the many readers of array types need no narrowing

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


@dataclass(eq=False, slots=True)
class Instr:
    """One operation. Never mutated (a frozen dataclass would cost four times as much to make)."""

    op: Op
    outs: tuple[Value, ...]
    args: tuple[Value, ...]
    attrs: Mapping[str, Any]
    blocks: tuple[Block, ...] = ()
    loc: Loc = UNKNOWN

    @property
    def out(self) -> Value:
        """The result of an instruction that has just one."""
        (out,) = self.outs
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Parameters and instructions; the last instruction is ``yield`` or, in a function's own block, ``return``."""

    params: tuple[Value, ...]
    body: tuple[Instr, ...]

    @property
    def results(self) -> tuple[Value, ...]:
        return self.body[-1].args


@dataclass(frozen=True, slots=True, eq=False)
class Func:
    """A function. ``names`` is the side table of named intermediate values (``pb.name``, assignments of a file)."""

    name: str
    block: Block
    names: tuple[tuple[str, Value], ...] = field(default=())

    @property
    def params(self) -> tuple[Value, ...]:
        return self.block.params

    @property
    def body(self) -> tuple[Instr, ...]:
        return self.block.body

    @property
    def results(self) -> tuple[Value, ...]:
        """The returned values."""
        return self.block.results

    @property
    def result(self) -> tuple[AnyType, ...]:
        """The types of the returned values."""
        return tuple(v.type for v in self.results)

    def __str__(self) -> str:
        from pullback.ir.text import print_func  # the printer needs the op table, which needs this module

        return print_func(self)


def walk(block: Block) -> Iterator[Instr]:
    """Every instruction, those of nested blocks after the instruction that carries them."""
    return inside(block.body)


def inside(body: Iterable[Instr]) -> Iterator[Instr]:
    """These instructions and all in their blocks, each before those that it carries. Not recursive."""
    pending = [iter(body)]
    while pending:
        for instr in pending[-1]:
            yield instr
            if instr.blocks:
                pending.extend(iter(b.body) for b in reversed(instr.blocks))
                break
        else:
            pending.pop()


def symbol_of(instr: Instr) -> str | None:
    """The size symbol that the instruction defines: a mask's count (``nonzero``), an integer's value (``length``)."""
    found: str | None = instr.attrs.get("symbol")
    return found


def sizes_in(instr: Instr) -> Iterator[Size]:
    """Every size that the result types and the attributes mention. (Those of operands are mentioned where they are made.)"""
    for out in instr.outs:
        yield from getattr(out.type, "shape", ())
    for value in instr.attrs.values():
        if isinstance(value, Dim):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in value if isinstance(v, Dim))


def replace_sizes(attrs: Mapping[str, Any], sizes: Mapping[str, Size]) -> Mapping[str, Any]:
    """Attributes with symbols replaced wherever a size or a type stands; ``attrs`` itself if none does."""
    new = {key: _replaced(value, sizes) for key, value in attrs.items()}
    return new if any(new[key] is not value for key, value in attrs.items()) else attrs


def _replaced(value: Any, sizes: Mapping[str, Size]) -> Any:
    if isinstance(value, Dim):
        return value if value.symbols().isdisjoint(sizes) else value.replace(sizes)
    if isinstance(value, tuple):
        parts = tuple(_replaced(part, sizes) for part in value)
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value.replace(sizes) if isinstance(value, (Type, StackType)) else value


class Builder:
    """Appends instructions to one block.

    ``b.add(x, y)``, ``b.sum(x, axes=(0,))``: every op of the table is a method. An op with one result returns the
    Value, any other a tuple. Types are inferred by the op's own shape rule.
    """

    def __init__(self, parent: Builder | None = None, loc: Loc = UNKNOWN):
        self.body: list[Instr] = []
        self.parent = parent
        self.loc: Loc = parent.loc if parent else loc
        self._constants: dict[Any, Value] = {}
        self._copies = 0

    def emit(
        self, op: Op, args: Iterable[Value], attrs: Mapping[str, Any] = NO_ATTRS, blocks: Iterable[Block] = (), name: str = ""
    ) -> tuple[Value, ...]:
        args = tuple(args)
        arg_types = tuple([a.type for a in args])
        if blocks:
            blocks = tuple(blocks)
            types = op.infer(arg_types, attrs, blocks)
        else:
            blocks = ()
            types = op.infer(arg_types, attrs)
        outs = (Value(name, types[0]),) if len(types) == 1 else tuple([Value(name, t) for t in types])
        self.body.append(Instr(op, outs, args, attrs, blocks, self.loc))
        return outs

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from pullback.ir.ops import OPS

        op = OPS.get(name)
        if op is None:
            raise AttributeError(f"no op named {name!r}")

        def build(*args: Value, **attrs: Any) -> Any:
            outs = self.emit(op, args, attrs or NO_ATTRS)
            return outs[0] if len(outs) == 1 else outs

        self.__dict__[name] = build
        return build

    def const(self, value: Any, dtype: DType = f64) -> Value:
        """A constant scalar or array; equal scalars of a block are made once (zeros of either sign are kept apart)."""
        quick: Any = None  # for plain numbers, which are most, a key that needs no array; text tells zeros and types apart
        if type(value) is float or type(value) is int:
            quick = (dtype, repr(value))
            found = self._constant(quick)
            if found is not None:
                return found
        array = np.array(value, dtype.numpy, order="C")  # a copy: the caller's array must stay writable
        array.setflags(write=False)
        key = (dtype, array.shape, array.tobytes())
        found = self._constant(key)
        if found is None:
            from pullback.ir.ops import OPS

            (found,) = self.emit(OPS["const"], (), {"value": array})
            self._constants[key] = found
        if quick is not None:
            self._constants[quick] = found
        return found

    def _constant(self, key: Any) -> Value | None:
        builder: Builder | None = self
        while builder is not None:
            if key in builder._constants:
                return builder._constants[key]
            builder = builder.parent
        return None

    def full(self, value: Any, type: Type) -> Value:
        """The constant ``value`` broadcast to ``type``."""
        return self.spread(self.const(value, type.dtype), type.shape)

    def zeros(self, type: Type) -> Value:
        return self.full(0, type)

    def spread(self, scalar: Value, shape: Shape) -> Value:
        """A scalar broadcast to ``shape``; itself for rank 0."""
        if not shape:
            return scalar
        key = (scalar, shape)
        found = self._constant(key)
        if found is None:
            found = self._constants[key] = self.broadcast(scalar, axes=(), shape=shape)
        return found

    def dim(self, size: Size) -> Value:
        """A size as an i64 scalar."""
        if isinstance(size, int):
            return self.const(size, i64)
        found = self._constant(size)
        if found is None:
            found = self._constants[size] = self.size(dim=size)
        return found

    def copied_symbol(self, symbol: str) -> str:
        """A name for the copy of a symbol that an instruction defines, unlike that of any other copy in the function."""
        root = self
        while root.parent is not None:
            root = root.parent
        root._copies += 1
        return f"{symbol}_{root._copies}"

    def copied_symbols(self, func: Func) -> None:
        """Name the symbols of copies unlike those that ``func`` has."""
        suffixes = (symbol.rpartition("_")[2] for instr in walk(func.block) if (symbol := symbol_of(instr)) is not None)
        self._copies = max((int(s) for s in suffixes if s.isdigit()), default=0)

    def close(self, terminator: str, values: Sequence[Value], params: Sequence[Value] = ()) -> Block:
        """End the block with ``yield`` or ``return``."""
        from pullback.ir.ops import OPS

        self.body.append(Instr(OPS[terminator], (), tuple(values), NO_ATTRS, (), self.loc))
        return Block(tuple(params), tuple(self.body))
