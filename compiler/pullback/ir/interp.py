"""The reference interpreter: any Func evaluated with NumPy, slowly and obviously. The oracle for generated code.

Each instruction is done by its record's ``evaluate`` (``numpy`` for elementwise ops), and what comes out is compared with the
instruction's type, so that a record whose rule and meaning disagree is found at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pullback.errors import ERRORS, DTypeError, IRError, PullbackError, ShapeError
from pullback.ir.core import Block, Func, Instr, Value
from pullback.ir.dims import Dim, Size, evaluate
from pullback.ir.ops.base import Elementwise
from pullback.ir.types import StackType

Array: TypeAlias = np.ndarray[Any, Any]
Watch: TypeAlias = Callable[[Instr, tuple[Any, ...]], None]


@dataclass(frozen=True, slots=True)
class Tape:
    """What a stack value is: a buffer that all versions share, and a height. See Note [Tape] in ``ops/control.py``."""

    buffer: list[Array]
    height: int

    def push(self, element: Array) -> Tape:
        if self.height != len(self.buffer):
            raise IRError(f"a version of height {self.height} is pushed to again: its tape has {len(self.buffer)} elements")
        self.buffer.append(element)
        return Tape(self.buffer, self.height + 1)

    def pop(self) -> tuple[Tape, Array]:
        if self.height == 0:
            raise IRError("stack.pop of an empty stack")
        return Tape(self.buffer, self.height - 1), self.buffer[self.height - 1]


def run(func: Func, args: Sequence[Any], sizes: Mapping[str, int] | None = None, watch: Watch | None = None) -> tuple[Any, ...]:
    """The results of ``func`` for ``args``: arrays, and tapes.

    ``sizes`` gives symbols that the arguments' shapes do not define. ``watch`` is called after every instruction with its
    results, in loops each time. What a program itself refuses comes as NumPy would raise it (IndexError, ValueError), a failed
    ``check`` as PullbackError.
    """
    given = [_argument(param, arg) for param, arg in zip(func.params, _counted(func, args), strict=True)]
    shapes = [np.shape(arg) for arg in given if not isinstance(arg, Tape)]
    machine = Machine(bind(func, shapes, sizes or {}), watch)
    machine.values.update(zip(func.params, given, strict=True))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return tuple(r if isinstance(r, Tape) else np.array(r) for r in machine.block(func.block))


def trace_values(func: Func, args: Sequence[Any], sizes: Mapping[str, int] | None = None) -> dict[Value, Any]:
    """The value of every parameter and instruction; of one that a loop does several times the last."""
    values: dict[Value, Any] = dict(zip(func.params, map(np.asarray, args), strict=True))
    run(func, args, sizes, lambda instr, results: values.update(zip(instr.outs, results, strict=True)))
    return values


# -- arguments --------------------------------------------------------------------------------------------------------
def _counted(func: Func, args: Sequence[Any]) -> Sequence[Any]:
    if len(args) != len(func.params):
        raise PullbackError(f"@{func.name} takes {len(func.params)} arguments, got {len(args)}")
    return args


def _argument(param: Value, arg: Any) -> Any:
    if isinstance(param.type, StackType):
        if not isinstance(arg, Tape):
            raise DTypeError(f"%{param.name} is {param.type}, got {type(arg).__name__}")
        return arg
    array = np.asarray(arg)
    dtype = param.type.dtype.numpy
    if not np.can_cast(array.dtype, dtype, "safe"):
        raise DTypeError(f"%{param.name} is {param.type}, got an array of {array.dtype}")
    return array.astype(dtype)


def bind(func: Func, shapes: Sequence[tuple[int, ...]], sizes: Mapping[str, int]) -> dict[str, int]:
    """What the symbols of the parameters' types are for these shapes of the arrays; ShapeError if an axis does not agree."""
    params = [param for param in func.params if not isinstance(param.type, StackType)]
    bound = dict(sizes)
    for param, shape in zip(params, shapes, strict=True):
        if len(shape) != param.type.rank:
            raise ShapeError(f"%{param.name} is {param.type}, got shape {shape}")
        for axis, length in zip(param.type.shape, shape, strict=True):
            symbol = axis.bare_symbol() if isinstance(axis, Dim) else None
            if symbol is not None:
                bound.setdefault(symbol, length)
    for param, shape in zip(params, shapes, strict=True):
        for axis, length in zip(param.type.shape, shape, strict=True):
            if number(axis, bound) != length:
                known = ", ".join(f"{name} = {value}" for name, value in sorted(bound.items()))
                raise ShapeError(f"%{param.name} is {param.type}, got shape {shape}" + (f" where {known}" if known else ""))
    return bound


def number(size: Size, sizes: Mapping[str, int]) -> int:
    """A size as a number."""
    try:
        return evaluate(size, sizes)
    except KeyError as error:
        raise ShapeError(f"the size {error.args[0]} of {size} is not defined by any argument") from None


# -- instructions -----------------------------------------------------------------------------------------------------
class Machine:
    """The state of one call. Other meanings of the ops (symbols, many digits) replace ``compute`` and ``compare``."""

    def __init__(self, sizes: dict[str, int], watch: Watch | None):
        self.sizes = sizes
        self.watch = watch
        self.values: dict[Value, Any] = {}

    def block(self, block: Block) -> tuple[Any, ...]:
        """Do the instructions; the values that the block returns or yields."""
        for instr in block.body[:-1]:
            results = self.instr(instr)
            self.compare(instr, results)
            self.values.update(zip(instr.outs, results, strict=True))
            if self.watch is not None:
                self.watch(instr, results)
        return self.read(block.results)

    def read(self, values: Sequence[Value]) -> tuple[Any, ...]:
        return tuple([self.values[v] for v in values])

    def enter(self, block: Block, values: Sequence[Any]) -> tuple[Any, ...]:
        self.values.update(zip(block.params, values, strict=True))
        return self.block(block)

    def instr(self, instr: Instr) -> tuple[Any, ...]:
        args = self.read(instr.args)
        match instr.op.name:
            case "if":
                then, other = instr.blocks
                return self.block(then if args[0] else other)
            case "for":
                (body,), carried = instr.blocks, args[1:]
                for trip in range(int(args[0])):
                    carried = self.enter(body, (np.asarray(trip, np.int64), *carried))
                return carried
            case "while":
                condition, body = instr.blocks
                while self.enter(condition, args)[0]:
                    args = self.enter(body, args)
                return args
            case "stack.new":
                return (Tape([], 0),)
            case "stack.push":
                return (args[0].push(args[1]),)
            case "stack.pop":
                tape, element = args[0].pop()
                return tape, element
            case "check":
                if not args[0]:
                    raise ERRORS[instr.attrs.get("error", "PullbackError")](instr.attrs["message"])
                return ()
            case "nonzero":
                self.sizes[instr.attrs["symbol"]] = int(np.count_nonzero(args[0]))
            case "length":
                self.sizes[instr.attrs["symbol"]] = int(args[0])
        return self.compute(instr, args)

    def compute(self, instr: Instr, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """What an instruction without blocks gives, by its record."""
        attrs = {name: self.attribute(value) for name, value in instr.attrs.items()}
        if isinstance(instr.op, Elementwise):
            return (np.asarray(instr.op.numpy(*args, **attrs), instr.out.type.dtype.numpy),)
        if instr.op.evaluate is None:
            raise IRError(f"the op {instr.op.name!r} has no meaning for the interpreter")
        return (np.asarray(instr.op.evaluate(args, attrs)),)

    def attribute(self, value: Any) -> Any:
        """An attribute with numbers for sizes."""
        if isinstance(value, Dim):
            return number(value, self.sizes)
        return tuple(map(self.attribute, value)) if isinstance(value, tuple) else value

    def compare(self, instr: Instr, results: Sequence[Any]) -> None:
        """What was computed must be what the instruction's types say."""
        for out, result in zip(instr.outs, results, strict=True):
            if isinstance(out.type, StackType):
                continue
            shape = tuple([number(size, self.sizes) for size in out.type.shape])
            if result.dtype != out.type.dtype.numpy or result.shape != shape:
                raise IRError(
                    f"{instr.loc}: {instr.op.name!r} gives an array of {result.dtype} and shape {result.shape}, "
                    f"its type {out.type} says shape {shape}"
                )
