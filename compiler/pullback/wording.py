"""Instructions in the user's words: ``q = x + y``, the local partial ``cos(x)``, a value in a few characters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core import Block, Func, Instr, Value, walk
from pullback.ir.ops.base import Elementwise

SHOWN = 6  # elements of an array that are shown
LONGEST = 60  # characters of a text that is substituted into others

# precedence of what stands in a text: a sum, a product, a sign, a power, an atom
SUM, PRODUCT, SIGN, POWER, ATOM = range(5)
_INFIX: Mapping[str, tuple[str, int]] = {
    "add": (" + ", SUM), "sub": (" - ", SUM), "mul": (" * ", PRODUCT), "div": (" / ", PRODUCT), "mod": (" % ", PRODUCT),
    "floordiv": (" // ", PRODUCT), "eq": (" == ", -1), "ne": (" != ", -1), "lt": (" < ", -1), "le": (" <= ", -1),
    "gt": (" > ", -1), "ge": (" >= ", -1), "logical_and": (" and ", -2), "logical_or": (" or ", -3),
}  # fmt: skip
_CALLED: Mapping[str, str] = {"select": "where", "convert": "astype", "contract": "matmul", "gather": "take"}


class Text:
    """An expression as text, with the precedence of its outermost operator. The algebra in which partials are written down."""

    __slots__ = ("rank", "text")

    def __init__(self, text: str, rank: int = ATOM):
        self.text = text
        self.rank = rank

    def __str__(self) -> str:
        return self.text

    def within(self, rank: int) -> str:
        """As an operand of something that binds with ``rank``."""
        return self.text if self.rank >= rank else f"({self.text})"

    def _join(self, left: Any, sign: str, right: Any, rank: int, strict: bool) -> Text:
        first, second = text_of(left), text_of(right)
        neutral = "1" if rank == PRODUCT else "0"  # what rules add for the sake of signed zeros, or as the untaken branch
        if second.text == neutral:
            return first
        if first.text == neutral and sign in (" + ", " * "):
            return second
        return Text(first.within(rank) + sign + second.within(rank + strict), rank)

    def __add__(self, other: Any) -> Text:
        return self._join(self, " + ", other, SUM, False)

    def __radd__(self, other: Any) -> Text:
        return self._join(other, " + ", self, SUM, False)

    def __sub__(self, other: Any) -> Text:
        return self._join(self, " - ", other, SUM, True)

    def __rsub__(self, other: Any) -> Text:
        return self._join(other, " - ", self, SUM, True)

    def __mul__(self, other: Any) -> Text:
        return self._join(self, " * ", other, PRODUCT, False)

    def __rmul__(self, other: Any) -> Text:
        return self._join(other, " * ", self, PRODUCT, False)

    def __truediv__(self, other: Any) -> Text:
        return self._join(self, " / ", other, PRODUCT, True)

    def __rtruediv__(self, other: Any) -> Text:
        return self._join(other, " / ", self, PRODUCT, True)

    def __neg__(self) -> Text:
        return Text(f"-{self.within(SIGN)}", SIGN)


class Words:
    """``m.NAME(*operands)`` as text: the namespace for ``partials``."""

    def __getattr__(self, name: str) -> Callable[..., Text]:
        def write(*operands: Any, **attrs: Any) -> Text:
            texts = [text_of(o) for o in operands]
            if name == "like":
                return texts[1]
            if name == "select":  # edges and what lies outside the domain are not worth telling
                for branch, other in ((1, 2), (2, 1)):
                    if texts[branch].text in ("nan", "inf", "-inf"):
                        return texts[other]
            return formula(name, texts, attrs)

        return write


def text_of(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    shown = number(value)
    return Text(shown, SIGN if shown.startswith("-") else ATOM)


def formula(op: str, operands: Sequence[Text], attrs: Mapping[str, Any]) -> Text:
    """An op applied to operands, as one would write it."""
    if op in _INFIX and len(operands) == 2:
        sign, rank = _INFIX[op]
        return Text(operands[0].within(rank) + sign + operands[1].within(rank + 1), rank)
    match op:
        case "neg":
            return -operands[0]
        case "square":
            return Text(f"{operands[0].within(ATOM)}**2", POWER)
        case "powi":
            return Text(f"{operands[0].within(ATOM)}**{attrs['exponent']}", POWER)
        case "pow":
            return Text(f"{operands[0].within(ATOM)}**{operands[1].within(POWER)}", POWER)
        case "logical_not":
            return Text(f"~{operands[0].within(ATOM)}", SIGN)
        case "contract":
            if matrix_product(attrs, operands):
                return Text(f"{operands[0].within(PRODUCT)} @ {operands[1].within(PRODUCT + 1)}", PRODUCT)
    arguments = [o.text for o in operands]
    arguments += [
        f"{k}={_attribute(v)}" for k, v in attrs.items() if k not in ("dtype", "axes") or op in ("broadcast", "transpose")
    ]
    return Text(f"{_CALLED.get(op, op)}({', '.join(arguments)})")


def matrix_product(attrs: Mapping[str, Any], operands: Sequence[Any]) -> bool:
    """Whether a contraction is what ``@`` writes: no batch, one axis of each."""
    left, right = attrs["axes"]
    return not any(attrs["batch"]) and len(left) == len(right) == 1 and tuple(right) == (0,)


def _attribute(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_attribute, value)) + ("," if len(value) == 1 else "") + ")"
    return str(value)


def _slice_text(instr: Instr) -> str:
    """``[1:, ::2]``."""
    attrs, parts = instr.attrs, []
    for start, size, step, whole in zip(attrs["starts"], attrs["sizes"], attrs["steps"], instr.args[0].type.shape, strict=True):
        if step == -1 and size == whole:
            parts.append("::-1")
            continue
        stop = start + size * step
        first = "" if start == 0 else str(start)
        last = "" if stop == whole else str(stop)
        parts.append(f"{first}:{last}" + ("" if step == 1 else f":{step}"))
    return f"[{', '.join(parts)}]"


# -- values -----------------------------------------------------------------------------------------------------------
def number(value: Any) -> str:
    """A number as a person would write it."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    shown = f"{float(value) + 0.0:.6g}"  # the sign of zero would only distract
    return shown[:-2] if shown.endswith(".0") else shown


def value_text(value: Any) -> str:
    """An array in a few characters: all of a small one, the first and last elements of a large one."""
    array = np.asarray(value)
    if array.ndim == 0:
        return number(array[()])
    if array.size <= SHOWN:
        return _nested(array)
    flat = array.reshape(-1)
    return f"{'x'.join(map(str, array.shape))} array [{', '.join(map(number, flat[:3]))}, ..., {number(flat[-1])}]"


def _nested(array: Any) -> str:
    return number(array) if np.ndim(array) == 0 else "[" + ", ".join(map(_nested, array)) + "]"


def output_names(function: str, paths: Sequence[str]) -> list[str]:
    """What the outputs are called: the function's name for the only one, the key of a dict, ``out[0]`` in a tuple."""
    if len(paths) == 1 and not paths[0]:
        return [function if function != "expression" else "f"]
    return [p[2:-2] if p.startswith("['") and p.count("[") == 1 else f"out{p}" for p in paths]


# -- functions --------------------------------------------------------------------------------------------------------
class Vocabulary:
    """What each value of a function is called: by the user's name, else ``v1``, ``v2``, ...; constants by their number."""

    def __init__(self, func: Func, outputs: Sequence[str] = ()):
        self.names: dict[Value, str] = {}
        self.inline: dict[Value, Text] = {}
        self.used = _used(func)
        for param in func.params:
            self.names[param] = param.name
        for name, value in func.names:
            self.names.setdefault(value, name)
        taken = set(self.names.values())
        for name, value in zip(outputs, func.results, strict=False):
            if value not in self.names and name and name not in taken:
                self.names[value] = name
                taken.add(name)
        counter = 0
        for instr in func.body[:-1]:
            self._inline(instr)
            for out in instr.outs:
                if out not in self.names and out not in self.inline:
                    called = _carried_name(instr, out)
                    if called and called not in taken:
                        self.names[out] = called
                        taken.add(called)
                        continue
                    counter += 1
                    while f"v{counter}" in taken:
                        counter += 1
                    self.names[out] = f"v{counter}"

    def _inline(self, instr: Instr) -> None:
        """Constants, sizes and their conversions are written where they are used."""
        if len(instr.outs) != 1 or instr.out in self.names:
            return
        op, attrs = instr.op.name, instr.attrs
        if op == "const":
            array = np.asarray(attrs["value"])
            self.inline[instr.out] = text_of(array[()]) if array.ndim == 0 else Text(value_text(array))
        elif op == "size":
            size = attrs["dim"]
            self.inline[instr.out] = Text(str(size), ATOM if size.bare_symbol() else SUM)
        elif op in ("broadcast", "convert") and instr.args[0] in self.inline:
            self.inline[instr.out] = self.inline[instr.args[0]]

    def of(self, value: Value) -> Text:
        return self.inline.get(value) or Text(self.names.get(value, "?"))

    def steps(self, func: Func) -> list[Instr]:
        """The instructions that are worth telling: not those that are written inline, nor those whose result nobody uses."""
        found = []
        for instr in func.body[:-1]:
            if self.used.isdisjoint(instr.outs) or all(o in self.inline for o in instr.outs):
                continue
            found.append(instr)
        return found

    def told(self, instr: Instr) -> list[Value]:
        """The results of an instruction that are told: of a branch or a loop those that are used."""
        return [out for out in instr.outs if out in self.used] if instr.blocks else list(instr.outs)

    def step(self, instr: Instr) -> str:
        """The right-hand side of a step."""
        if instr.blocks:
            return BlockWords(self, instr).text()
        operands = [self.of(a) for a in instr.args]
        if instr.op.name == "slice":
            return operands[0].within(ATOM) + _slice_text(instr)
        if instr.op.name == "broadcast":
            return f"{operands[0].text} for all of {_attribute(instr.attrs['shape'])}"
        return formula(instr.op.name, operands, instr.attrs).text

    def partials(self, instr: Instr) -> list[str]:
        """The local partial derivatives by each operand, where they can be written shortly; "" where not."""
        op = instr.op
        if not isinstance(op, Elementwise) or op.partials is None:
            return [""] * len(instr.args)
        try:
            found = op.partials(Words(), self.of(instr.out), *map(self.of, instr.args), **instr.attrs)
        except (TypeError, AttributeError):  # a rule that asks more of its operands than a text can answer
            return [""] * len(instr.args)
        texts = ["" if p is None else text_of(p).text for p in found]
        return [t if len(t) <= LONGEST else "" for t in texts]


# -- blocks -----------------------------------------------------------------------------------------------------------
def _used(func: Func) -> set[Value]:
    """The values that results, named values and what they depend on need."""
    used = {*func.results, *(value for _, value in func.names)}
    for instr in reversed(func.body[:-1]):
        if not used.isdisjoint(instr.outs):
            for inner in walk(Block((), (instr,))):
                used.update(inner.args)
                used.update(v for block in inner.blocks for v in block.results)
    return used


def _carried_name(instr: Instr, out: Value) -> str:
    """What a result of a loop is called within it."""
    if instr.op.name not in ("for", "while"):
        return ""
    params = instr.blocks[-1].params[instr.op.name == "for" :]
    return _variable(params[instr.outs.index(out)].name)


def _variable(name: str) -> str:
    """The user's name; empty for one of ours."""
    return name if name.isidentifier() and not name.startswith("__") else ""


class BlockWords:
    """A branch or a loop in words: the expressions of its blocks, written within each other."""

    def __init__(self, words: Vocabulary, instr: Instr):
        self.words = words
        self.instr = instr
        self.made = {out: inner for block in instr.blocks for inner in block.body[:-1] for out in inner.outs}
        self.params = {p: self._called(p, k) for block in instr.blocks for k, p in enumerate(block.params)}

    def _called(self, param: Value, place: int) -> str:
        return _variable(param.name) or ("stopped" if param.type.dtype.kind == "b" else f"c{place}")

    def parameter(self, value: Value) -> str:
        return self.params[value]

    def of(self, value: Value, depth: int = 0) -> Text:
        """A value of the blocks, or from outside."""
        if value in self.params:
            return Text(self.params[value])
        instr = self.made.get(value)
        if instr is None:
            return self.words.of(value)
        if instr.blocks or depth > 8:
            return Text("...")
        if instr.op.name == "const":
            array = np.asarray(instr.attrs["value"])
            return text_of(array[()]) if array.ndim == 0 else Text(value_text(array))
        operands = [self.of(a, depth + 1) for a in instr.args]
        if instr.op.name in ("broadcast", "convert", "match"):
            return operands[0]
        if instr.op.name == "size":
            return Text(str(instr.attrs["dim"]))
        if instr.op.name == "slice":
            return Text(operands[0].within(ATOM) + _slice_text(instr))
        return formula(instr.op.name, operands, instr.attrs)

    def condition(self) -> str:
        """Of a branch or a ``while``."""
        value = self.instr.args[0] if self.instr.op.name == "if" else self.instr.blocks[0].results[0]
        return _short(self.of(value).text)

    def text(self) -> str:
        if self.instr.op.name == "if":
            then, other = ([self.of(v).text for v in block.results] for block in self.instr.blocks)
            if len(then) == 1 and max(len(then[0]), len(other[0])) <= LONGEST // 2:
                return f"{then[0]} if {self.condition()} else {other[0]}"
            return f"if {self.condition()}: ... else: ..."
        body = self.instr.blocks[-1]
        if self.instr.op.name == "for":
            head, carried = f"for {self.params[body.params[0]]} in range({self.words.of(self.instr.args[0])})", body.params[1:]
        else:
            head, carried = f"while {self.condition()}", body.params
        told = self.words.told(self.instr)
        parts = zip(self.instr.outs, carried, body.results, strict=True)
        steps = [f"{self.params[p]} = {self.of(v).text}" for out, p, v in parts if out in told and p is not v]
        done = "; ".join(steps)
        return f"{head}: {done if len(done) <= LONGEST else '...'}"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else "..."
