"""Which mathematical functions there are of our own, and their LLVM text: see Note [Vector math] in ``vecmath.py``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from pullback.llvm import vecmath_error, vecmath_exp, vecmath_gamma, vecmath_inverse, vecmath_log, vecmath_power, vecmath_trig
from pullback.llvm.vecmath import FORMATS, Code, Val

PREFIX = "math_"
PAIRS = ("atan2", "hypot", "pow")  # functions of two arguments


@dataclass(frozen=True, slots=True)
class Own:
    """``build(code, *args)`` gives the value. ``outside(code, x)``: where the C library's function is called instead."""

    build: Callable[..., Val]
    arity: int = 1
    outside: Callable[[Code, Val], Val] | None = None


def _table() -> dict[str, Own]:
    plain = (vecmath_exp, vecmath_log, vecmath_inverse, vecmath_power, vecmath_error)
    found = {name: Own(build, 2 if name in PAIRS else 1) for m in plain for name, build in m.FUNCTIONS.items()}
    for partial in (vecmath_trig, vecmath_gamma):
        found |= {name: Own(build, 1, partial.outside) for name, build in partial.FUNCTIONS.items()}
    return found


OWN = _table()


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """One function for one element (``lanes`` 0) or several, of LLVM type ``kind``; ``inline``: the form that loops inline."""

    name: str
    kind: str
    lanes: int = 0
    inline: bool = False

    @property
    def symbol(self) -> str:
        lanes = f"_v{self.lanes}" if self.lanes else ""
        return f"{PREFIX}{self.name}_{FORMATS[self.kind].suffix}{lanes}{'_inline' if self.inline else ''}"

    @property
    def type(self) -> str:
        return f"<{self.lanes} x {self.kind}>" if self.lanes else self.kind

    @property
    def params(self) -> str:
        return ", ".join([self.type] * OWN[self.name].arity)

    def declaration(self) -> str:
        return f"declare {self.type} @{self.symbol}({self.params}) #1"

    def scalar(self) -> Form:
        return Form(self.name, self.kind)


@dataclass(frozen=True, slots=True)
class Definition:
    """The text of a function, the declarations it needs, and the other forms it calls."""

    text: str
    needs: tuple[str, ...]
    calls: tuple[Form, ...]


@functools.cache
def definition(form: Form, fused: bool, linkage: str, attributes: str) -> Definition:
    own = OWN[form.name]
    code = Code(FORMATS[form.kind], form.lanes, fused)
    args = [Val(code, form.kind, f"%x{k}") for k in range(own.arity)]
    value = own.build(code, *args)
    params = ", ".join(f"{form.type} {a.text}" for a in args)
    end = [f"  ret {form.type} {value.text}"]
    calls: tuple[Form, ...] = ()
    if own.outside is not None:
        end, calls = _elsewhere(code, form, args[0], value, own.outside(code, args[0]))
    head = f"define {linkage}{form.type} @{form.symbol}({params}) {attributes} {{"
    return Definition("\n".join([head, *code.lines, *end, "}", ""]), tuple(sorted(code.needs)), calls)


def _elsewhere(code: Code, form: Form, x: Val, value: Val, far: Val) -> tuple[list[str], tuple[Form, ...]]:
    """The end of a function whose value is that of the C library where ``far`` is true."""
    kind, wide = form.kind, form.type
    if not form.lanes:
        libm = form.name if kind == "double" else f"{form.name}f"
        code.needs.add(f"declare {kind} @{libm}({kind}) #1")
        slow = [f"  %far_value = call {kind} @{libm}({kind} {x.text}) #1", f"  ret {kind} %far_value"]
        calls: tuple[Form, ...] = ()
    else:
        reduce = f"llvm.vector.reduce.or.v{code.lanes}i1"
        code.needs.add(f"declare i1 @{reduce}({code.type('i1')})")
        far = code.let(f"call i1 @{reduce}({code.type('i1')} {far.text})", "i1")
        calls = (form.scalar(),)
        total, slow = "poison", []
        for k in range(form.lanes):
            slow += [
                f"  %x_{k} = extractelement {wide} {x.text}, i64 {k}",
                f"  %y_{k} = call {kind} @{form.scalar().symbol}({kind} %x_{k}) #1",
                f"  %z_{k} = insertelement {wide} {total}, {kind} %y_{k}, i64 {k}",
            ]
            total = f"%z_{k}"
        slow.append(f"  ret {wide} {total}")
    branch = f"  br i1 {far.text}, label %far, label %near, !prof !2"
    return [branch, "far:", *slow, "near:", f"  ret {wide} {value.text}"], calls


def module(form: Form, fused: bool) -> str:
    """A module with that function alone."""
    found = definition(form, fused, "", "#0")
    declarations = [*found.needs, *(c.declaration() for c in found.calls)]
    return "\n".join([found.text, *declarations, *ATTRIBUTES, ""])


ATTRIBUTES = (
    "declare i64 @llvm.expect.i64(i64, i64)",
    "attributes #0 = { nounwind }",
    "attributes #1 = { nounwind willreturn memory(none) }",
    "!0 = !{i64 0, i64 140737488355328}",
    '!1 = !{!"branch_weights", i32 1048576, i32 1}',
    '!2 = !{!"branch_weights", i32 1, i32 1048576}',
)


def fused(features: str, machine: str) -> bool:
    """Whether a target has a fused multiply-add for scalars and vectors."""
    return "+fma" in features.split(",") or machine.lower() in ("aarch64", "arm64")


__all__ = ["ATTRIBUTES", "OWN", "Definition", "Form", "Own", "definition", "fused", "module"]
