"""Calls of mathematical functions: our own (Note [Vector math] in ``vecmath.py``), else those of the C library.

In loops our own functions are defined in the module and inlined. Straight-line code calls them: their code is compiled once,
kept in the store, and linked to the kernels that need it. A function of the C library is called for one element at a time.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Sequence

from pullback.llvm import store, vecmath_library
from pullback.llvm.vecmath_library import ATTRIBUTES, OWN, Form

PURE = "nounwind willreturn memory(none)"


def fused(features: str) -> bool:
    return vecmath_library.fused(features, platform.machine())


@functools.cache
def object_code(form: Form) -> bytes:
    """The machine code of one of our functions for this machine."""

    def make() -> bytes:
        from pullback.llvm import engine

        return engine.object_of(vecmath_library.module(form, fused(engine.features())))

    return store.object_code(("math", repr(form)), make)


def suffix(kind: str) -> str:
    """How an intrinsic's name says a type."""
    if kind.startswith("<"):
        lanes, _, element = kind[1:-1].partition(" x ")
        return f"v{lanes}{suffix(element)}"
    return {"double": "f64", "float": "f32", "i64": "i64", "i1": "i1"}[kind]


class MathCalls:
    """The declarations, definitions and attribute groups of one module. ``depth``: how many loops of nests are around."""

    def __init__(self, features: str):
        self.fused = fused(features)
        self._declarations: dict[str, str] = {}
        self._groups: dict[str, int] = {}  # the attribute text -> its number
        self.linked: dict[Form, None] = {}  # our functions that are linked
        self.depth = 0
        self.cold = False  # whether code is written that runs seldom, in which functions are not worth inlining

    def call(self, name: str, kind: str, args: list[str]) -> str:
        """The text of a call with arguments of LLVM type ``kind``."""
        own = OWN.get(name)
        if own is None:
            symbol = name if kind == "double" else f"{name}f"
            self.declare(symbol, f"declare {kind} @{symbol}({', '.join([kind] * len(args))}) #1")
            return _call(symbol, kind, args, "#1")
        if self.depth and own.outside is None:
            return self._inlined(Form(name, kind, 0, True), args)
        form = Form(name, kind)
        self._link(form)
        return _call(form.symbol, kind, args, "#1")

    def vector_call(self, name: str, kind: str, lanes: int, args: list[str]) -> str | None:
        """The text of a call for ``lanes`` elements of LLVM type ``kind``; None if there is no such function."""
        if name not in OWN:
            return None
        if self.cold:
            return self.linked_call(name, kind, lanes, args)
        return self._inlined(Form(name, kind, lanes, True), args)

    def linked_call(self, name: str, kind: str, lanes: int, args: list[str]) -> str:
        """The text of a call for ``lanes`` elements of a function of our own that is not inlined."""
        form = Form(name, kind, lanes)
        self._link(form)
        return _call(form.symbol, form.type, args, "#1")

    def scattered_call(self, name: str, kind: str, lanes: int, args: Sequence[Sequence[str]], out: str) -> str:
        """The text of a call like ``linked_call`` whose arguments are single elements, those of each operand after the other,
        and that leaves the results at ``out``: so code that is translated without any care has no vectors in it."""
        form = Form(name, kind, lanes)
        self._link(form)
        symbol = f"{form.symbol}_scattered"
        if symbol not in self._declarations:
            lines, vectors = [], []
            for i in range(len(args)):
                total = "poison"
                for k in range(lanes):
                    lines.append(f"  %v{i}_{k} = insertelement {form.type} {total}, {kind} %x{i}_{k}, i64 {k}")
                    total = f"%v{i}_{k}"
                vectors.append(total)
            params = ", ".join(f"{kind} %x{i}_{k}" for i in range(len(args)) for k in range(lanes))
            lines.append(f"  %y = {_call(form.symbol, form.type, vectors, '#1')}")
            lines += [f"  store {form.type} %y, ptr %out, align 8", "  ret void"]
            text = "\n".join([f"define internal void @{symbol}({params}, ptr %out) noinline {{", *lines, "}"])
            self._declarations[symbol] = text
        elements = ", ".join(f"{kind} {a}" for column in args for a in column)
        return f"call void @{symbol}({elements}, ptr {out})"

    def _inlined(self, form: Form, args: list[str]) -> str:
        found = vecmath_library.definition(form, self.fused, "internal ", self._group(f"{PURE} alwaysinline"))
        self._declarations.setdefault(form.symbol, found.text)
        self._need(found)
        return _call(form.symbol, form.type, args, "#1")

    def _need(self, found: vecmath_library.Definition) -> None:
        for text in found.needs:
            self._declarations.setdefault(text.split("@")[1].split("(")[0], text)
        for form in found.calls:
            self._link(form)

    def _link(self, form: Form) -> None:
        if form not in self.linked:
            self.linked[form] = None
            self._declarations.setdefault(form.symbol, form.declaration())
            for needed in vecmath_library.definition(form, self.fused, "", "#0").calls:
                self._link(needed)

    def _group(self, text: str) -> str:
        return f"#{self._groups.setdefault(text, len(self._groups) + 2)}"

    def intrinsic(self, name: str, kind: str, args: list[str], types: list[str]) -> str:
        symbol = f"{name}.{suffix(kind)}"
        self._declarations.setdefault(symbol, f"declare {kind} @{symbol}({', '.join(types)})")
        return f"call {kind} @{symbol}({', '.join(f'{t} {a}' for t, a in zip(types, args, strict=True))})"

    def declare(self, symbol: str, text: str) -> None:
        self._declarations.setdefault(symbol, text)

    def text(self) -> str:
        lines = list(self._declarations.values())
        lines.extend(ATTRIBUTES)
        lines.extend(f"attributes #{number} = {{ {text} }}" for text, number in self._groups.items())
        return "\n".join(lines) + "\n"


def _call(symbol: str, kind: str, args: list[str], group: str) -> str:
    return f"call {kind} @{symbol}({', '.join(f'{kind} {a}' for a in args)}) {group}"


__all__ = ["PURE", "MathCalls", "fused", "object_code", "suffix"]
