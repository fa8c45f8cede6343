"""The textual form of the IR, and its printer; the parser stands beside it in ``parse.py``. print -> parse -> print is
byte-identical.

::

    func @settle(%x0: f64[n], %w: f64[n]) -> f64 {
      %tol = const 0.01 : f64                        # a comment runs to the end of the line
      %x = while (%xi = %x0) {
        %sq = mul %xi, %xi : f64[n]
        %e = sum %sq {axes = [0]} : f64
        %go = gt %e, %tol : bool
        yield %go
      } do {
        %t = tanh %xi : f64[n]
        yield %t
      }
      %r = sum %x {axes = [0]} : f64
      return %r
      names {result = %r}
    }

- An instruction is ``%out, .. = op %arg, .. {key = attribute, ..} : type, ..``; attributes stand in the order of their keys.
- Attributes: integers, floats, ``true``/``false``, ``none``, JSON strings, sizes (``2*n + 1``), types, and lists of these
  (tuples in memory). A size with a symbol named like one of those words stands in parentheses.
- ``if %c {..} else {..}``, ``for %n (%i, %x = %x0) {..}`` and ``while (%x = %x0) {..} do {..}`` show no types: those follow
  from their operands and yields. The blocks of ``while`` share the names of their parameters. Attributes stand after the op.
- A constant is a literal or nested lists of them. An unusual NaN is written as its bits, ``0x7ff8000000000001``.
- ``names {q = %3}`` after the ``return`` is the function's side table of named values.
- A name with characters other than letters, digits, ``_`` and ``.`` is quoted: ``%"w[0]"``, ``@"<lambda>"``.

Value names are hints: an empty one is printed as a counter, a repeated one gets a suffix, a unique one stays as it is. The
parser gives each instruction the place of its text as ``loc``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core import Block, Func, Instr, Value
from pullback.ir.dims import Dim
from pullback.ir.ops.base import Elementwise
from pullback.ir.types import DTYPES, AnyType

PLAIN_NAME = re.compile(r"[\w.]+")
WORD = re.compile(r"[^\W\d][\w.]*")
WORDS = frozenset({"true", "false", "none", "inf", "nan", "stack", *DTYPES})  # what an attribute's word means besides a size
BITS = {"f64": (np.uint64, 0x7FF8000000000000), "f32": (np.uint32, 0x7FC00000)}  # how bits are read; the usual NaN


def print_func(func: Func) -> str:
    """The function as text, ending in a newline."""
    printer = _Printer(value_names(func))
    params = ", ".join(f"{printer.value(p)}: {printer.type(p.type)}" for p in func.params)
    printer.lines.append(f"func @{quoted(func.name)}({params}) -> {printer.types_in_parentheses(func.results)} {{")
    printer.block(func.block, "  ")
    if func.names:
        table = ", ".join(
            f"{name if WORD.fullmatch(name) else json.dumps(name)} = {printer.value(value)}" for name, value in func.names
        )
        printer.lines.append(f"  names {{{table}}}")
    printer.lines.append("}")
    return "\n".join(printer.lines) + "\n"


def print_instr(func: Func, instr: Instr) -> str:
    """The first line of one instruction, with the names it has in the whole function's text; for messages."""
    printer = _Printer(value_names(func))
    printer.instr(instr, "")
    return printer.lines[0]


def print_array(array: np.ndarray[Any, Any]) -> str:
    """An array as a constant shows it."""
    return _nested(_literals(array), array.shape)


def key(func: Func) -> bytes:
    """A digest that is equal for functions that compute the same by the same instructions.

    Names of the function and of its values, locations and the side table of names do not count; types, attributes and the
    bits of constants do.
    """
    printer = _Printer({}, exact=True)
    printer.names = names = {value: f"%{k}" for k, value in enumerate(_definitions(func))}
    _share_names(func, names)
    printer.lines.append(", ".join(printer.type(p.type) for p in func.params))
    printer.block(func.block, "")
    import hashlib  # loads OpenSSL, which takes 10 ms

    return hashlib.sha256("\n".join(printer.lines).encode()).digest()


def value_names(func: Func) -> dict[Value, str]:
    """The name each value has in the text, without the ``%``."""
    values = list(_definitions(func))
    taken = {v.name for v in values}
    used: set[str] = set()
    suffixes: dict[str, int] = {}
    names: dict[Value, str] = {}
    for value in values:
        if value in names:  # defined twice: not valid, but a message may have to print it
            continue
        name = value.name
        if not name or name in used:
            name, suffixes[value.name] = _fresh(name, suffixes.get(name, 1 if name else 0), taken)
            taken.add(name)
        used.add(name)
        names[value] = name
    _share_names(func, names)
    return names


def _share_names(func: Func, names: dict[Value, str]) -> None:
    """The parameters of a while's body are named as those of its condition."""
    for instr in _carriers(func.block):
        if instr.op.name == "while" and len(instr.blocks) == 2:
            condition, body = instr.blocks
            names.update((inside, names[p]) for p, inside in zip(condition.params, body.params, strict=False))


def _fresh(base: str, start: int, taken: set[str]) -> tuple[str, int]:
    number = start
    while (name := f"{base}_{number}" if base else str(number)) in taken:
        number += 1
    return name, number + 1


def _definitions(func: Func) -> Iterator[Value]:
    """Every value, in the order of the text. The body of ``while`` has no parameters of its own there."""
    yield from func.params
    pending = [iter(func.body)]
    while pending:
        for instr in pending[-1]:
            yield from instr.outs
            if instr.blocks:
                shared = 1 if instr.op.name == "while" else len(instr.blocks)
                for block in instr.blocks[:shared]:
                    yield from block.params
                pending.extend(iter(b.body) for b in reversed(instr.blocks))
                break
        else:
            pending.pop()


def _carriers(block: Block) -> Iterator[Instr]:
    pending = [block]
    while pending:
        for instr in pending.pop().body:
            if instr.blocks:
                yield instr
                pending.extend(instr.blocks)


def quoted(text: str) -> str:
    return text if PLAIN_NAME.fullmatch(text) else json.dumps(text)


class _Printer:
    def __init__(self, names: Mapping[Value, str], exact: bool = False):
        self.names = {value: f"%{quoted(name)}" for value, name in names.items()}
        self.exact = exact  # constants by their bits, and what the text leaves out
        self.lines: list[str] = []
        self.type_texts: dict[AnyType, str] = {}

    def value(self, value: Value) -> str:
        return self.names.get(value) or f"%?{value.name}"  # a value that is not defined, in a message

    def values(self, values: tuple[Value, ...]) -> str:
        return ", ".join(map(self.value, values))

    def type(self, type: AnyType) -> str:
        text = self.type_texts.get(type)
        if text is None:
            text = self.type_texts[type] = str(type)
        return text

    def types_in_parentheses(self, values: tuple[Value, ...]) -> str:
        types = ", ".join(self.type(v.type) for v in values)
        return types if len(values) == 1 else f"({types})"

    def block(self, block: Block, indent: str) -> None:
        for instr in block.body:
            self.instr(instr, indent)

    def instr(self, instr: Instr, indent: str) -> None:
        if self.exact and isinstance(instr.op, Elementwise) and not instr.attrs:  # the rest follows
            names = self.names
            self.lines.append(f"{instr.op.name} {' '.join([names[a] for a in instr.args])}")
            return
        head = f"{indent}{self.values(instr.outs)} = {instr.op.name}" if instr.outs else indent + instr.op.name
        if instr.op.name == "const" and not instr.args:
            head += f" {self.constant(instr.attrs['value'])}"
        elif instr.blocks:
            self.control(instr, head, indent)
            return
        else:
            if instr.args:
                head += f" {self.values(instr.args)}"
            if instr.attrs:
                head += f" {_attributes(instr.attrs)}"
        if instr.outs:
            head += f" : {', '.join([self.type(v.type) for v in instr.outs])}"
        self.lines.append(head)

    def control(self, instr: Instr, head: str, indent: str) -> None:
        """``if``, ``for`` and ``while``."""
        kind, blocks, inside = instr.op.name, instr.blocks, indent + "  "
        if instr.attrs:
            head += f" {_attributes(instr.attrs)}"
        if kind == "if":
            self.lines.append(f"{head} {self.values(instr.args)} {{")
        elif kind == "for":
            (counter, *params), (bound, *inits) = blocks[0].params, instr.args
            carried = ", ".join([self.value(counter), *self.carried(params, inits)])
            self.lines.append(f"{head} {self.value(bound)} ({carried}) {{")
        else:
            self.lines.append(f"{head} ({', '.join(self.carried(blocks[0].params, instr.args))}) {{")
        self.block(blocks[0], inside)
        for block in blocks[1:]:
            self.lines.append(f"{indent}}} {'do' if kind == 'while' else 'else'} {{")
            self.block(block, inside)
        self.lines.append(f"{indent}}}")

    def carried(self, params: Sequence[Value], inits: Sequence[Value]) -> list[str]:
        return [f"{self.value(p)} = {self.value(init)}" for p, init in zip(params, inits, strict=False)]

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        if self.exact:
            return array.tobytes().hex()
        return print_array(array)


def _attributes(attrs: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name} = {_attribute(attrs[name])}" for name in sorted(attrs)) + "}"


def _attribute(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "none"
        case str():
            return json.dumps(value)
        case float():
            return float.__repr__(value)
        case tuple() | list():
            return f"[{', '.join(map(_attribute, value))}]"
        case Dim():
            return f"({value})" if value.symbols() & WORDS else str(value)
    return str(value)  # integers and types; the verifier refuses the rest


def _literals(array: np.ndarray[Any, Any]) -> Iterator[str]:
    """The elements as text, in C order."""
    if array.dtype.kind == "b":
        return iter(["true" if x else "false" for x in array.ravel().tolist()])
    texts = [repr(x) for x in array.ravel().tolist()]
    if array.dtype.kind == "f" and np.isnan(array).any():
        unsigned, usual = BITS["f64" if array.dtype.itemsize == 8 else "f32"]
        for k, bits in enumerate(array.ravel().view(unsigned).tolist()):
            if texts[k] == "nan" and bits != usual:
                texts[k] = hex(bits)
    return iter(texts)


def _nested(literals: Iterator[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return next(literals)
    return f"[{', '.join(_nested(literals, shape[1:]) for _ in range(shape[0]))}]"
