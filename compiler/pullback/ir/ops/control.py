"""Structured control flow, the tape, checks and terminators. They are differentiated by the passes, not by records.

- ``if %c {then} else {else}``: blocks without parameters, each yielding the results.
- ``for %n (%i, %x = %x0) {body}``: the bound ``%n`` (i64) is known at entry; the body's parameters are the trip number and
  the carried values, it yields the new carried values, whose last are the results.
- ``while (%x = %x0) {condition} do {body}``: both blocks have the carried values as parameters; the condition block yields
  one bool scalar, the body the new carried values.
- ``stack.new %n``, ``stack.push``, ``stack.pop``: the tape; see Note [Tape]. The capacity ``%n`` (i64) may be left out.
- ``check %ok {message}``: stops the call with ``message`` if ``%ok`` is false; kept and ordered. ``error`` names the error's
  class, one of those of the runtime's kernels; PullbackError if it is left out.

Note [Tape]
``stack<T>`` is a persistent view (buffer, height). ``push`` gives a view one higher and may be done at most once to each
version; ``pop`` is a read: it gives the view one lower and the top element, and a reverse pass can therefore run again
for another seed. The buffer belongs to the frame of the call. With a capacity, at most that many elements are ever pushed, so
that the buffer can be made at once.
"""

from __future__ import annotations

from typing import Any

from pullback.ir.ops.base import Attrs, Plain, TypeMismatch, table
from pullback.ir.types import AnyType, StackType, Type, bool_, i64


def _types(values: Any) -> tuple[AnyType, ...]:
    return tuple(v.type for v in values)


def _expect(what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise TypeMismatch(f"{what}: {_list(expected)} expected, got {_list(got)}")


def _list(types: Any) -> str:
    return f"({', '.join(map(str, types))})" if isinstance(types, tuple) else str(types)


def _infer_if(types: tuple[AnyType, ...], attrs: Attrs, blocks: Any) -> tuple[AnyType, ...]:
    then, other = blocks
    _expect("the condition of if", (Type(bool_),), types)
    _expect("the else block of if yields", _types(then.results), _types(other.results))
    _expect("the blocks of if take", ((), ()), (then.params, other.params))
    return _types(then.results)


def _infer_for(types: tuple[AnyType, ...], attrs: Attrs, blocks: Any) -> tuple[AnyType, ...]:
    (body,) = blocks
    bound, *carried = types
    _expect("the bound of for", Type(i64), bound)
    _expect("the body of for takes", (Type(i64), *carried), _types(body.params))
    _expect("the body of for yields", tuple(carried), _types(body.results))
    return tuple(carried)


def _infer_while(types: tuple[AnyType, ...], attrs: Attrs, blocks: Any) -> tuple[AnyType, ...]:
    condition, body = blocks
    _expect("the condition of while takes", types, _types(condition.params))
    _expect("the condition of while yields", (Type(bool_),), _types(condition.results))
    _expect("the body of while takes", types, _types(body.params))
    _expect("the body of while yields", types, _types(body.results))
    return types


def _infer_new(types: tuple[AnyType, ...], attrs: Attrs) -> tuple[AnyType, ...]:
    if types:
        _expect("the capacity of stack.new", (Type(i64),), types)
    return (StackType(attrs["element"]),)


def _infer_push(types: tuple[AnyType, ...], attrs: Attrs) -> tuple[AnyType, ...]:
    stack, value = types
    _expect("push", stack, StackType(value) if isinstance(value, Type) else None)
    return (stack,)


def _infer_pop(types: tuple[AnyType, ...], attrs: Attrs) -> tuple[AnyType, ...]:
    (stack,) = types
    if not isinstance(stack, StackType):
        raise TypeMismatch(f"pop: a stack expected, got {stack}")
    return stack, stack.element


def _infer_check(types: tuple[AnyType, ...], attrs: Attrs) -> tuple[AnyType, ...]:
    _expect("check", (Type(bool_),), types)
    return ()


def _nothing(types: tuple[AnyType, ...], attrs: Attrs) -> tuple[AnyType, ...]:
    return ()


AGAIN = "a derivative is not a number without the guards of the chain rule"  # the message of a check that asks for them

IF = Plain(name="if", infer=_infer_if)
FOR = Plain(name="for", infer=_infer_for)
WHILE = Plain(name="while", infer=_infer_while)
STACK_NEW = Plain(name="stack.new", infer=_infer_new)
PUSH = Plain(name="stack.push", infer=_infer_push)
POP = Plain(name="stack.pop", infer=_infer_pop)
CHECK = Plain(name="check", infer=_infer_check, effect=True)
YIELD = Plain(name="yield", infer=_nothing, effect=True)
RETURN = Plain(name="return", infer=_nothing, effect=True)

OPS = table(IF, FOR, WHILE, STACK_NEW, PUSH, POP, CHECK, YIELD, RETURN)
