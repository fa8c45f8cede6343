"""The parser of the textual form that ``text.py`` describes and prints."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from pullback.errors import IRError
from pullback.ir.core import NO_ATTRS, Block, Func, Instr, Loc, Value
from pullback.ir.dims import Dim, Size
from pullback.ir.ops import OPS
from pullback.ir.text import BITS, quoted
from pullback.ir.types import DTYPES, AnyType, DType, StackType, Type, i64

MAX_DEPTH = 100  # of nested blocks and lists: deeper text is refused, not recursed into
MAX_SIZE_TEXT = 2000  # characters of one size expression


def parse_func(text: str, file: str = "<text>") -> Func:
    """The one function that ``text`` holds."""
    parser = _Parser(text, file)
    func = parser.func()
    if parser.kind != "end":
        parser.fail("the end of the text")
    return func


def parse_module(text: str, file: str = "<text>") -> list[Func]:
    """All functions of ``text``, in order."""
    parser = _Parser(text, file)
    funcs = []
    while parser.kind != "end":
        funcs.append(parser.func())
    return funcs


def parse_type(text: str) -> AnyType:
    """A type such as ``f64[n, 3]``."""
    parser = _Parser(text, "<text>")
    found = parser.type()
    if parser.kind != "end":
        parser.fail("the end of the type")
    return found


_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?P<space>\s+|\#[^\n]*)
    | (?P<value>%(?:[\w.]+|{_QUOTED}))
    | (?P<func>@(?:[\w.]+|{_QUOTED}))
    | (?P<string>{_QUOTED})
    | (?P<number>0x[0-9a-f]+|\d+\.\d*(?:e[-+]?\d+)?|\d+e[-+]?\d+|\d+)
    | (?P<word>[^\W\d][\w.]*)
    | (?P<mark>->|//|[-+*(){{}}\[\]<>,:=])""",
    re.VERBOSE,
)
_Literal: TypeAlias = "tuple[list[str], tuple[int, ...]]"  # element texts in C order, and the shape of the nested lists


class _Parser:
    """Recursive descent over a list of tokens; recursion only by nesting, which is bounded."""

    def __init__(self, text: str, file: str):
        self.source = text
        self.file = file
        self.line_starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self.tokens: list[tuple[str, str, int]] = []  # kind, text, offset
        self.at = 0
        self.values: dict[str, Value] = {}  # those that can be used here
        self.defined: list[str] = []  # their names in the order of definition
        self.depth = 0
        self.tokenize()
        self.kind, self.text, self.offset = self.tokens[0]

    # -- tokens ---------------------------------------------------------------------------------------------------
    def tokenize(self) -> None:
        offset, end = 0, len(self.source)
        while offset < end:
            match = _TOKEN.match(self.source, offset)
            if match is None:
                self.error(offset, f"unexpected character {self.source[offset]!r}")
            kind = match.lastgroup
            assert kind is not None
            if kind != "space":
                self.tokens.append((kind, match.group(), offset))
            offset = match.end()
        self.tokens.append(("end", "", end))

    def next(self) -> str:
        """Step to the next token; the text of the one left."""
        left = self.text
        self.at += 1
        self.kind, self.text, self.offset = self.tokens[self.at]
        return left

    def expect(self, text: str, what: str = "") -> None:
        if self.text != text or self.kind in ("string", "end"):
            self.fail(what or f"{text!r}")
        self.next()

    def accept(self, text: str) -> bool:
        if self.text != text or self.kind in ("string", "end"):
            return False
        self.next()
        return True

    def take(self, kind: str, what: str) -> str:
        if self.kind != kind:
            self.fail(what)
        return self.next()

    def place(self, offset: int) -> Loc:
        line = bisect_right(self.line_starts, offset)
        return Loc(self.file, line, offset - self.line_starts[line - 1] + 1)

    def fail(self, expected: str) -> NoReturn:
        got = "the end of the text" if self.kind == "end" else repr(self.text)
        self.error(self.offset, f"expected {expected}, got {got}")

    def error(self, offset: int, message: str) -> NoReturn:
        place = self.place(offset)
        raise IRError(f"{place.file}:{place.line}:{place.column}: {message}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.error(self.offset, f"nested more than {MAX_DEPTH} deep")

    def separated(self, item: Callable[[], Any], end: str) -> list[Any]:
        """``item, item, .. end``, possibly none; the end is taken."""
        found: list[Any] = []
        if self.accept(end):
            return found
        found.append(item())
        while self.accept(","):
            found.append(item())
        self.expect(end, f"',' or {end!r}")
        return found

    # -- names ----------------------------------------------------------------------------------------------------
    def unquoted(self, token: str, offset: int) -> str:
        if not token.startswith('"'):
            return token
        try:
            return str(json.loads(token))
        except ValueError:
            self.error(offset, f"{token} is no valid string")

    def new_name(self) -> tuple[str, int]:
        offset = self.offset
        return self.unquoted(self.take("value", "the name of a new value, such as %x")[1:], offset), offset

    def use(self) -> Value:
        offset = self.offset
        name = self.unquoted(self.take("value", "a value, such as %x")[1:], offset)
        value = self.values.get(name)
        if value is None:
            self.error(offset, f"value %{quoted(name)} is not defined here")
        return value

    def define(self, name: str, offset: int, type: AnyType) -> Value:
        if name in self.values:
            self.error(offset, f"value %{quoted(name)} is defined twice")
        value = self.values[name] = Value(name, type)
        self.defined.append(name)
        return value

    # -- functions ------------------------------------------------------------------------------------------------
    def func(self) -> Func:
        self.values, self.defined = {}, []
        self.expect("func")
        offset = self.offset
        name = self.unquoted(self.take("func", "the function's name, such as @f")[1:], offset)
        self.expect("(")
        params = tuple(self.separated(self.param, ")"))
        self.expect("->")
        offset = self.offset
        declared = tuple(self.separated(self.type, ")")) if self.accept("(") else (self.type(),)
        self.expect("{")
        body = self.body("return")
        returned = tuple(v.type for v in body[-1].args)
        if declared != returned:
            texts = ["(" + ", ".join(map(str, types)) + ")" for types in (declared, returned)]
            self.error(offset, f"@{quoted(name)} is declared to return {texts[0]}, but returns {texts[1]}")
        names: tuple[tuple[str, Value], ...] = ()
        if self.accept("names"):
            self.expect("{")
            names = tuple(self.separated(self.named, "}"))
        self.expect("}")
        return Func(name, Block(params, body), names)

    def param(self) -> Value:
        name, offset = self.new_name()
        self.expect(":")
        return self.define(name, offset, self.type())

    def named(self) -> tuple[str, Value]:
        if self.kind not in ("word", "string"):
            self.fail("a name")
        offset = self.offset
        name = self.unquoted(self.next(), offset)
        self.expect("=")
        return name, self.use()

    def body(self, terminator: str) -> tuple[Instr, ...]:
        """Instructions up to the terminator."""
        body: list[Instr] = []
        while True:
            offset = self.offset
            instr = self.instr()
            body.append(instr)
            if instr.op.name in ("return", "yield"):
                if instr.op.name != terminator:
                    self.error(offset, f"this block must end in {terminator!r}, not in {instr.op.name!r}")
                return tuple(body)

    def block(self, params: list[tuple[str, int, AnyType]]) -> Block:
        """``{ .. yield }``, whose values are forgotten afterwards."""
        self.deeper()
        outside = len(self.defined)
        made = tuple(self.define(*param) for param in params)
        self.expect("{")
        body = self.body("yield")
        self.expect("}", "the end of the block after its 'yield', '}'")
        for name in self.defined[outside:]:
            del self.values[name]
        del self.defined[outside:]
        self.depth -= 1
        return Block(made, body)

    # -- instructions -----------------------------------------------------------------------------------------------
    def instr(self) -> Instr:
        loc = self.place(self.offset)
        outs: list[tuple[str, int]] = []
        if self.kind == "value":
            outs.append(self.new_name())
            while self.accept(","):
                outs.append(self.new_name())
            self.expect("=")
        offset = self.offset
        name = self.take("word", "an instruction")
        op = OPS.get(name)
        if op is None:
            import difflib  # for errors only

            close = difflib.get_close_matches(name, OPS, n=1)
            self.error(offset, f"no op named {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        attrs: Mapping[str, Any]
        args: tuple[Value, ...]
        blocks: tuple[Block, ...] = ()
        types: tuple[AnyType, ...]
        if name == "const":
            args, (attrs, types) = (), self.constant()
        elif name in ("if", "for", "while"):
            attrs = self.attributes()
            args, blocks, types = {"if": self.if_, "for": self.for_, "while": self.while_}[name]()
        else:
            args = self.operands()
            attrs = self.attributes()
            types = self.result_types() if outs else ()
        if len(types) != len(outs):
            self.error(offset, f"{len(outs)} names for the {len(types)} results of {name!r}")
        results = tuple(self.define(*out, type) for out, type in zip(outs, types, strict=True))
        return Instr(op, results, args, attrs, blocks, loc)

    def operands(self) -> tuple[Value, ...]:
        if self.kind != "value":
            return ()
        found = [self.use()]
        while self.accept(","):
            found.append(self.use())
        return tuple(found)

    def result_types(self) -> tuple[AnyType, ...]:
        self.expect(":", "the result's type after ':'")
        found = [self.type()]
        while self.accept(","):
            found.append(self.type())
        return tuple(found)

    def if_(self) -> _Control:
        condition = self.use()
        then = self.block([])
        self.expect("else")
        other = self.block([])
        return (condition,), (then, other), tuple(v.type for v in then.results)

    def for_(self) -> _Control:
        bound = self.use()
        self.expect("(")
        counter = (*self.new_name(), Type(i64))
        carried: list[tuple[tuple[str, int, AnyType], Value]] = []
        if self.accept(","):
            carried = self.separated(self.carried, ")")
        else:
            self.expect(")", "',' or ')'")
        body = self.block([counter, *(param for param, _ in carried)])
        inits = tuple(init for _, init in carried)
        return (bound, *inits), (body,), tuple(init.type for init in inits)

    def while_(self) -> _Control:
        self.expect("(")
        carried = self.separated(self.carried, ")")
        params, inits = [param for param, _ in carried], tuple(init for _, init in carried)
        condition = self.block(params)
        self.expect("do")
        body = self.block(params)
        return inits, (condition, body), tuple(init.type for init in inits)

    def carried(self) -> tuple[tuple[str, int, AnyType], Value]:
        name, offset = self.new_name()
        self.expect("=")
        init = self.use()
        return (name, offset, init.type), init

    # -- types and sizes ----------------------------------------------------------------------------------------------
    def type(self) -> AnyType:
        if self.text == "stack" and self.kind == "word":
            self.next()
            self.expect("<")
            element = self.array_type()
            self.expect(">")
            return StackType(element)
        return self.array_type()

    def array_type(self) -> Type:
        dtype = DTYPES.get(self.text) if self.kind == "word" else None
        if dtype is None:
            self.fail("a type, such as f64[n]")
        self.next()
        return Type(dtype, tuple(self.separated(self.size, "]")) if self.accept("[") else ())

    def size(self) -> Size:
        offset, depth, text, before = self.offset, 0, "", ""
        while self.kind in ("word", "number") or self.text in ("+", "-", "*", "//", "(", ")"):
            depth += (self.text == "(") - (self.text == ")")
            if depth < 0 or (self.kind == "number" and not self.text.isdecimal()):
                break
            apart = " " if before and self.kind in ("word", "number") else ""  # "n m" is not "nm"
            before = self.kind if apart or self.kind in ("word", "number") else ""
            text += apart + self.next()
        if not text:
            self.fail("a size, such as 2*n + 1")
        try:
            if len(text) > MAX_SIZE_TEXT:
                raise ValueError("the size is too long")
            return Dim.parse(text)
        except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:
            self.error(offset, str(error) or "the size is too deeply nested")

    # -- attributes ---------------------------------------------------------------------------------------------------
    def attributes(self) -> Mapping[str, Any]:
        if not self.accept("{"):
            return NO_ATTRS
        attrs: dict[str, Any] = {}

        def item() -> None:
            offset = self.offset
            name = self.take("word", "an attribute's name")
            if name in attrs:
                self.error(offset, f"attribute {name!r} is given twice")
            self.expect("=")
            attrs[name] = self.attribute()

        self.separated(item, "}")
        return attrs

    def attribute(self) -> Any:
        if self.kind == "string":
            offset = self.offset
            return self.unquoted(self.next(), offset)
        if self.accept("["):
            self.deeper()
            items = tuple(self.separated(self.attribute, "]"))
            self.depth -= 1
            return items
        if self.kind == "word" and (self.text == "stack" or self.text in DTYPES):
            return self.type()
        if self.kind == "word" and self.text in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[self.next()]
        place = self.at + (self.text == "-")
        kind, text, _ = self.tokens[place]
        if (kind == "number" or text in ("inf", "nan")) and self.tokens[min(place + 1, len(self.tokens) - 1)][1] in ",]}":
            negative = self.accept("-")
            number = self.number()
            return -number if negative else number
        return self.size()

    def number(self) -> int | float:
        offset, text = self.offset, self.next()
        try:
            return int(text) if text.isdecimal() else float(text)
        except ValueError:
            self.error(offset, f"{text[:40]!r} is no number here")

    # -- constants ----------------------------------------------------------------------------------------------------
    def constant(self) -> tuple[Mapping[str, Any], tuple[Type]]:
        offset = self.offset
        literals, nesting = self.literals()
        self.expect(":", "the constant's type after ':'")
        type = self.array_type()
        shape = tuple(n for n in type.shape if isinstance(n, int))
        # nested lists do not show what follows an axis of length zero
        visible = shape[: shape.index(0) + 1] if 0 in shape else shape
        if len(shape) != type.rank or nesting != visible:
            self.error(offset, f"a constant of shape {nesting} is no {type}")
        try:
            array = _array(literals, type.dtype).reshape(shape)
        except (ValueError, OverflowError) as error:
            self.error(offset, f"this is no constant of type {type}: {error}")
        array.setflags(write=False)
        return {"value": array}, (type,)

    def literals(self) -> _Literal:
        if not self.accept("["):
            sign = "-" if self.accept("-") else ""
            if self.kind != "number" and self.text not in ("true", "false", "inf", "nan"):
                self.fail("a constant")
            return [sign + self.next()], ()
        self.deeper()
        offset = self.offset
        items: list[_Literal] = self.separated(self.literals, "]")
        self.depth -= 1
        shapes = {shape for _, shape in items}
        if len(shapes) > 1:
            self.error(offset, "the lists of a constant have unequal lengths")
        flat = [text for texts, _ in items for text in texts]
        return flat, (len(items), *next(iter(shapes), ()))


def _array(literals: list[str], dtype: DType) -> np.ndarray[Any, Any]:
    """A new vector of the literals; ValueError or OverflowError if one does not fit."""
    if dtype.kind == "b":
        if not {"true", "false"}.issuperset(literals):
            raise ValueError("true and false expected")
        return np.array([text == "true" for text in literals], np.bool_)
    if dtype.kind == "i":
        return np.array([int(text) for text in literals], np.int64)
    with np.errstate(over="ignore"):  # 1e300 is infinite in f32
        array = np.array([np.nan if text.startswith("0x") else float(text) for text in literals], dtype.numpy)
    bits = array.view(BITS[dtype.name][0])
    for k, text in enumerate(literals):
        if text.startswith("0x"):
            bits[k] = int(text, 16)
    return array


_Control: TypeAlias = tuple[tuple[Value, ...], tuple[Block, ...], tuple[AnyType, ...]]  # operands, blocks, result types
