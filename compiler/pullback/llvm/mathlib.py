"""The C math library: which of its functions have vector forms, and how a call says so.

LLVM widens a call if its site carries ``vector-function-abi-variant`` with a declared function; no fast-math flag is
needed. glibc's libmvec has such functions; where it cannot be loaded, calls stay scalar.
"""

from __future__ import annotations

import ctypes
import functools

LIBRARY = "libmvec.so.1"


@functools.cache
def library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:  # not glibc, or not x86-64
        return None


@functools.cache
def variants(name: str, arity: int, single: bool, features: str) -> tuple[tuple[str, str], ...]:
    """(symbol, LLVM vector type) of the vector forms of a function that this machine can run, widest last."""
    mvec = library()
    if mvec is None:
        return ()
    found = []
    have = set(features.split(","))
    for isa, lanes, feature in (("d", 4, "+avx2"), ("e", 8, "+avx512f")):
        width = lanes * 2 if single else lanes
        symbol = f"_ZGV{isa}N{width}{'v' * arity}_{name}"
        if feature in have and hasattr(mvec, symbol):
            found.append((symbol, f"<{width} x {'float' if single else 'double'}>"))
    return tuple(found)


class MathCalls:
    """The declarations and attribute groups of one module."""

    def __init__(self, features: str):
        self._features = features
        self._declarations: dict[str, str] = {}
        self._groups: dict[str, int] = {}  # the attribute text -> its number
        self._vectors: dict[str, None] = {}

    def call(self, name: str, kind: str, args: list[str]) -> str:
        """The text of a call with arguments of LLVM type ``kind``."""
        single = kind == "float"
        symbol = name + "f" if single else name
        types = ", ".join([kind] * len(args))
        self._declarations.setdefault(symbol, f"declare {kind} @{symbol}({types}) #1")
        forms = variants(symbol, len(args), single, self._features)
        group = "#1"
        if forms:
            mapping = ",".join(f"_ZGV_LLVM_{vector[5:]}({vector})" for vector, _ in forms)
            text = f'nounwind willreturn memory(none) "vector-function-abi-variant"="{mapping}"'
            group = f"#{self._groups.setdefault(text, len(self._groups) + 2)}"
            for vector, wide in forms:
                self._declarations.setdefault(vector, f"declare {wide} @{vector}({', '.join([wide] * len(args))}) #1")
                self._vectors[vector] = None
        return f"call {kind} @{symbol}({', '.join(f'{kind} {a}' for a in args)}) {group}"

    def intrinsic(self, name: str, kind: str, args: list[str], types: list[str]) -> str:
        suffix = {"double": "f64", "float": "f32", "i64": "i64", "i1": "i1"}[kind]
        symbol = f"{name}.{suffix}"
        self._declarations.setdefault(symbol, f"declare {kind} @{symbol}({', '.join(types)})")
        return f"call {kind} @{symbol}({', '.join(f'{t} {a}' for t, a in zip(types, args, strict=True))})"

    def declare(self, symbol: str, text: str) -> None:
        self._declarations.setdefault(symbol, text)

    def text(self) -> str:
        lines = list(self._declarations.values())
        if self._vectors:
            used = ", ".join(f"ptr @{v}" for v in self._vectors)
            lines.append(
                f'@llvm.compiler.used = appending global [{len(self._vectors)} x ptr] [{used}], section "llvm.metadata"'
            )
        lines.append("attributes #0 = { nounwind }")
        lines.append("attributes #1 = { nounwind willreturn memory(none) }")
        lines.extend(f"attributes #{number} = {{ {text} }}" for text, number in self._groups.items())
        lines.append("!0 = !{i64 0, i64 140737488355328}")
        lines.append('!1 = !{!"branch_weights", i32 1048576, i32 1}')
        return "\n".join(lines) + "\n"
