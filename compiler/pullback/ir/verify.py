"""The verifier: what a well-formed Func is. ``verify``'s docstring lists every rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pullback.errors import IRError
from pullback.ir.core import Block, Func, Instr, Loc, Value, symbol_of
from pullback.ir.dims import Dim, symbols
from pullback.ir.ops import OPS
from pullback.ir.ops.base import TypeMismatch
from pullback.ir.text import print_instr
from pullback.ir.types import DTYPES, FROM_NUMPY, StackType, Type

_BLOCKS = {"if": 2, "for": 1, "while": 2}  # how many blocks an op carries; all others none
_TERMINATORS = ("return", "yield")


def verify(func: Func, after: str = "") -> None:
    """Nothing if ``func`` is well formed, else IRError: the rule broken, the instruction, its place in the user's source.

    ``after`` names the pass that made ``func``, for the message.

    Structure
      1. A function's own block ends in ``return``, a nested one in ``yield``; neither stands anywhere else.
      2. Each instruction's op is the table's record; ``if``, ``for``, ``while`` carry 2, 1, 2 blocks, other ops none.
      3. A value is defined once in the whole function, by one parameter or one result.
      4. An operand is defined before its use, in the same block or in one around it: what a block defines is unknown outside.
      5. The side table of names holds strings and values of the function's own block.
      6. An instruction without results has an effect or blocks; a ``check`` has a message.
    Types
      7. A type is an array type over an element type of the table, or a stack of such; an axis is a Dim or an int >= 0.
      8. The op's shape rule, run again on the operands' types, gives exactly the results' types. The rules of control flow
         compare what the blocks take and yield.
      9. Each symbol of the parameters' types is a bare axis of some parameter; there its length is read.
      10. A symbol of any other type or attribute is one of those, or made by a ``nonzero`` or ``length`` that comes before,
         in the same block or one around it. Each of these makes a symbol that nothing else makes.
    Attributes
      11. Attributes are a mapping from names to str, bool, int, float, None, sizes, types and tuples of them: frozen and
         hashable. A NumPy number is none of these (it would not print as itself).
      12. A constant's value is a read-only, C-contiguous array of an element type of the table; only constants hold arrays.
    The tape (Note [Tape] in ``ops/control.py``)
      13. What ``stack.pop`` gave is a view below the top and is not pushed to.
      14. A version is extended at most once on every path: pushed to, carried into a loop that pushes to it, or yielded.
      15. A version from outside a loop is not extended inside it except as a carried value: each trip would do it again.
    """
    try:
        _Verifier(func).run()
    except _Broken as broken:
        raise IRError(_message(func, broken, after)) from None


class _Broken(Exception):
    def __init__(self, problem: str, instr: Instr | None = None):
        super().__init__(problem)
        self.problem = problem
        self.instr = instr


def _message(func: Func, broken: _Broken, after: str) -> str:
    """The problem, then where: pass, function, instruction, the user's line."""
    text = f"the pass {after!r} made a malformed @{func.name}: " if after else f"malformed @{func.name}: "
    text += broken.problem
    if broken.instr is not None and isinstance(broken.instr.attrs, Mapping):
        loc = broken.instr.loc
        text += f"\n  {print_instr(func, broken.instr)}"
        text += f"\n  from {loc}" if isinstance(loc, Loc) and loc.line else ""
    return text


class _Verifier:
    def __init__(self, func: Func):
        self.func = func
        self.defined: set[Value] = set()  # anywhere so far
        self.visible: dict[Value, None] = {}  # here
        self.sizes: dict[str, None] = {}  # symbols that may be used here
        self.made: set[str] = set()  # symbols made anywhere so far
        self.types: set[Any] = set()  # found well formed; their symbols may have gone since
        self.has_stacks = False

    def run(self) -> None:
        self.check_parameters()
        self.check_block(self.func.block, "return", self.func.params)
        for name, value in self.func.names:
            if not isinstance(name, str) or value not in self.visible:
                raise _Broken(f"the name {name!r} is given to a value that the function's own block does not define")
        if self.has_stacks:
            _Extensions(self.func)

    # -- structure ----------------------------------------------------------------------------------------------------
    def check_parameters(self) -> None:
        """Rules 7 and 9."""
        for param in self.func.params:
            self.check_type(param.type, None)
        shapes = [axis for p in self.func.params for axis in _type_sizes(p.type)]
        for axis in shapes:
            if isinstance(axis, Dim) and (symbol := axis.bare_symbol()) is not None:
                self.sizes[symbol] = None
        unbound = symbols(shapes) - self.sizes.keys()
        if unbound:
            raise _Broken(f"the size {min(unbound)} is not a bare axis of any parameter, so no argument defines it")
        self.made.update(self.sizes)

    def check_block(self, block: Block, terminator: str, params: Iterable[Value]) -> None:
        """Instructions in order, then forget what the block defined (except of the function's own)."""
        before, sizes_before = len(self.visible), len(self.sizes)
        for param in params:
            self.define(param, None)
        last = block.body[-1].op.name if block.body else "nothing"
        if last != terminator:
            raise _Broken(
                f"a block must end in '{terminator}', this one ends in {last!r}", block.body[-1] if block.body else None
            )
        final = len(block.body) - 1
        for k, instr in enumerate(block.body):
            if instr.op.name in _TERMINATORS and k != final:
                raise _Broken(f"'{instr.op.name}' stands before the end of its block", instr)
            self.check_instr(instr)
        if terminator == "yield":
            _shorten(self.visible, before)
            _shorten(self.sizes, sizes_before)

    def check_instr(self, instr: Instr) -> None:
        op = instr.op
        if OPS.get(op.name) is not op:
            raise _Broken(f"{op.name!r} is not the record of the op table", instr)
        if len(instr.blocks) != _BLOCKS.get(op.name, 0):
            raise _Broken(f"'{op.name}' carries {_BLOCKS.get(op.name, 0)} blocks, this one has {len(instr.blocks)}", instr)
        for arg in instr.args:
            if arg not in self.visible:
                where = "is used outside the block that defines it" if arg in self.defined else "is used before it is defined"
                raise _Broken(f"operand {arg!r} {where}", instr)
        if not (instr.outs or op.effect or instr.blocks):
            raise _Broken(f"'{op.name}' has neither results nor an effect", instr)
        self.check_attributes(instr)
        for block in instr.blocks:
            for param in block.params:
                self.check_type(param.type, instr)
            self.check_block(block, "yield", block.params)
        self.check_shape_rule(instr)
        if symbol_of(instr) is not None:
            self.make_symbol(instr)
        for out in instr.outs:
            self.check_type(out.type, instr)
            self.check_sizes(_type_sizes(out.type), instr)
            self.define(out, instr)

    def define(self, value: Value, instr: Instr | None) -> None:
        if not isinstance(value, Value) or not isinstance(value.name, str):
            raise _Broken(f"{value!r} is no value with a name", instr)
        if value in self.defined:
            raise _Broken(f"value {value!r} is defined twice", instr)
        self.defined.add(value)
        self.visible[value] = None

    # -- types --------------------------------------------------------------------------------------------------------
    def check_type(self, type: Any, instr: Instr | None) -> None:
        """Rule 7."""
        if isinstance(type, StackType):
            self.has_stacks = True
            type = type.element
        if not isinstance(type, Type) or DTYPES.get(type.dtype.name) is not type.dtype or not isinstance(type.shape, tuple):
            raise _Broken(f"{type!r} is no type", instr)
        for axis in type.shape:
            if not (isinstance(axis, Dim) or (_is_int(axis) and axis >= 0)):
                raise _Broken(f"the type {type} has an axis {axis!r}, which is no size", instr)

    def check_shape_rule(self, instr: Instr) -> None:
        """Rule 8."""
        types = tuple([a.type for a in instr.args])
        try:
            expected = instr.op.infer(types, instr.attrs, instr.blocks) if instr.blocks else instr.op.infer(types, instr.attrs)
        except TypeMismatch as error:
            raise _Broken(f"'{instr.op.name}': {error}", instr) from None
        except KeyError as error:
            raise _Broken(f"'{instr.op.name}' lacks the attribute {error}", instr) from None
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            # rules may take for granted what only the number of operands or an attribute's kind can break
            raise _Broken(f"'{instr.op.name}' has wrong operands or attributes ({error})", instr) from None
        got = tuple([v.type for v in instr.outs])
        if expected != got:
            raise _Broken(f"'{instr.op.name}' gives {_list(expected)}, but its results are declared {_list(got)}", instr)

    def check_sizes(self, sizes: Iterable[Any], instr: Instr) -> None:
        """Rule 10."""
        unknown = symbols(sizes) - self.sizes.keys()
        if unknown:
            raise _Broken(f"the size {min(unknown)} is not defined here, neither by a parameter nor by an instruction", instr)

    def make_symbol(self, instr: Instr) -> None:
        symbol = instr.attrs["symbol"]
        if symbol in self.made:
            raise _Broken(f"the size {symbol} is defined twice", instr)
        self.made.add(symbol)
        self.sizes[symbol] = None

    # -- attributes ---------------------------------------------------------------------------------------------------
    def check_attributes(self, instr: Instr) -> None:
        """Rules 11 and 12, and the message of rule 6."""
        attrs = instr.attrs
        if not attrs:
            if instr.op.name == "check":
                raise _Broken("'check' has no message", instr)
            return
        if not isinstance(attrs, Mapping):
            raise _Broken(f"attributes are a mapping, got {attrs!r}", instr)
        if instr.op.name == "const":
            _check_constant(attrs, instr)
            return
        if instr.op.name == "check" and not isinstance(attrs.get("message"), str):
            raise _Broken("'check' has no message", instr)
        for name, value in attrs.items():
            if not isinstance(name, str):
                raise _Broken(f"an attribute's name is a str, got {name!r}", instr)
            self.check_sizes(_attribute_sizes(name, value, instr), instr)


def _check_constant(attrs: Mapping[str, Any], instr: Instr) -> None:
    value = attrs.get("value")
    if set(attrs) != {"value"} or not isinstance(value, np.ndarray) or value.dtype not in FROM_NUMPY:
        raise _Broken(f"a constant has one attribute, an array of {', '.join(DTYPES)}", instr)
    if value.flags.writeable or not value.flags.c_contiguous:
        raise _Broken("a constant's array must be read-only and C-contiguous", instr)


def _attribute_sizes(name: str, value: Any, instr: Instr) -> list[Any]:
    """The sizes in an attribute, having seen that it is allowed (rule 11)."""
    found: list[Any] = []
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is tuple:
            pending.extend(item)
        elif isinstance(item, Dim):
            found.append(item)
        elif isinstance(item, (Type, StackType)):
            found.extend(_type_sizes(item))
        elif item is not None and type(item) not in (str, bool, int, float):
            raise _Broken(f"the attribute {name!r} holds {item!r} of {type(item).__name__}, which is not allowed there", instr)
    return found


def _type_sizes(type: Any) -> tuple[Any, ...]:
    shape: tuple[Any, ...] = type.element.shape if isinstance(type, StackType) else type.shape
    return shape


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list(types: Iterable[Any]) -> str:
    return f"({', '.join(map(str, types))})"


def _shorten(ordered: dict[Any, None], length: int) -> None:
    while len(ordered) > length:
        ordered.popitem()


class _Extensions:
    """Rules 13 to 15, for functions that have stacks.

    ``counts`` says how often each version is extended on the path so far. Handing a version on under another name (a loop's
    carried value, what an ``if`` or a loop gives) extends it only if that name is ever pushed to: a loop that pops does not.
    """

    def __init__(self, func: Func) -> None:
        self.pushed = _pushed(func.block)
        self.below: set[Value] = set()  # views that a pop gave, under any name
        self.depth: dict[Value, int] = dict.fromkeys(func.params, 0)  # how many loops are around the definition
        self.loops = 0
        self.block(func.block, {})

    def block(self, block: Block, counts: dict[Value, int]) -> None:
        for instr in block.body:
            match instr.op.name:
                case "stack.push":
                    self.extend(instr.args[0], counts, instr)
                case "stack.pop":
                    self.below.add(instr.outs[0])
                case "if":
                    self.branch(instr, counts)
                case "for" | "while":
                    self.loop(instr, counts)
            self.depth.update(dict.fromkeys(instr.outs, self.loops))

    def branch(self, instr: Instr, counts: dict[Value, int]) -> None:
        """Just one of the branches runs."""
        paths = []
        for block in instr.blocks:
            path = dict(counts)
            self.block(block, path)
            for result, out in zip(block.results, instr.outs, strict=True):
                self.hand_on(result, out, path, block.body[-1])
            paths.append(path)
        for value in {value for path in paths for value in path}:
            counts[value] = max(path.get(value, 0) for path in paths)

    def loop(self, instr: Instr, counts: dict[Value, int]) -> None:
        for condition in instr.blocks[:-1]:
            self.below.update(condition.params)  # a condition yields no stack, so its pushes would be lost
        body, carried = instr.blocks[-1], _carried(instr)
        for init, param, _, _ in carried:
            self.hand_on(init, param, counts, instr)
        self.loops += 1
        inside: dict[Value, int] = {}
        for block in instr.blocks:
            self.depth.update(dict.fromkeys(block.params, self.loops))
            self.block(block, inside)
        for init, param, result, out in carried:
            if result in self.below and param in self.pushed:
                raise _Broken("a stack that was popped is pushed to in the next trip", instr)
            if init in self.below or result in self.below:
                self.below.add(out)
            elif param in self.pushed or out in self.pushed:
                self.extend(result, inside, body.body[-1])
        self.loops -= 1

    def hand_on(self, old: Value, new: Value, counts: dict[Value, int], instr: Instr) -> None:
        """``new`` is another name for the version ``old``."""
        if old in self.below:
            self.below.add(new)
        elif new in self.pushed:
            self.extend(old, counts, instr)

    def extend(self, stack: Value, counts: dict[Value, int], instr: Instr) -> None:
        if stack in self.below:
            raise _Broken("a stack that may only be read here (popped, or in a condition) is pushed to", instr)
        if self.depth.get(stack, 0) < self.loops:
            raise _Broken("a stack from outside the loop is extended in each trip; carry it as a value of the loop", instr)
        counts[stack] = counts.get(stack, 0) + 1
        if counts[stack] > 1:
            raise _Broken("one version of a stack is extended twice", instr)


def _carried(loop: Instr) -> list[tuple[Value, Value, Value, Value]]:
    """(initial value, parameter of the body, what the body yields, result) of each carried value of a loop."""
    body, count = loop.blocks[-1], len(loop.outs)
    start = len(loop.args) - count
    return list(zip(loop.args[start:], body.params[len(body.params) - count :], body.results, loop.outs, strict=True))


def _pushed(block: Block) -> set[Value]:
    """Every value that is pushed to, under this name or a later one."""
    origins: dict[Value, tuple[Value, ...]] = {}
    found: list[Value] = []
    pending = [block]
    while pending:
        for instr in pending.pop().body:
            pending.extend(instr.blocks)
            if instr.op.name == "stack.push":
                found.append(instr.args[0])
            if instr.op.name in ("stack.push", "stack.pop"):
                origins[instr.outs[0]] = (instr.args[0],)
            elif instr.op.name == "if":
                origins.update((out, tuple(b.results[k] for b in instr.blocks)) for k, out in enumerate(instr.outs))
            elif instr.blocks:
                for init, param, result, out in _carried(instr):
                    origins[param] = origins[out] = (init, result)
    pushed: set[Value] = set()
    while found:
        value = found.pop()
        if value not in pushed:
            pushed.add(value)
            found.extend(origins.get(value, ()))
    return pushed
