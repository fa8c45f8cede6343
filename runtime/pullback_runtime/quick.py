"""The common call of a kernel, written out for its signature: no loops over arguments, no general checks.

For a small kernel the call costs more than the work, so ``quick_call`` makes a Python function with one statement for each
thing to be done. It handles arguments that are exactly as declared and hands everything else (and every error) to ``slow``.
Its source is built from numbers alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback_runtime.sizes import Polynomial, source
from pullback_runtime.workspace import Freelist, quick_address

if TYPE_CHECKING:
    from pullback_runtime.kernel import Signature

MOST = 32  # arguments and results; beyond that the general path does not matter
SCALARS = {"f64": "float", "f32": "float", "i64": "int", "bool": "bool"}


def quick_call(
    signature: Signature,
    dtypes: Sequence[np.dtype[Any]],
    results: Sequence[np.dtype[Any]],
    frames: Freelist,
    call: Callable[..., int],
    slow: Callable[[Sequence[Any]], list[Any]],
    failed: Callable[[int, Any], BaseException | None],
    again: Callable[[Sequence[Any], None], list[Any]],
) -> Callable[[Sequence[Any]], list[Any]]:
    """A function of the list of arguments; ``slow`` itself where a signature is not for this."""
    if signature.defined or len(signature.params) + len(signature.results) > MOST:
        return slow
    if any(a.tape for a in (*signature.params, *signature.results)):
        return slow
    names = {f"d{k}": dtype for k, dtype in enumerate(dtypes)} | {f"e{k}": dtype for k, dtype in enumerate(results)}
    space: dict[str, Any] = {
        **names,
        "slow": slow,
        "failed": failed,
        "again": again,
        "call": call,
        "take": frames.take,
        "give": frames.give,
        "address": quick_address,
        "ndarray": np.ndarray,
        "empty": np.empty,
        "float32": np.float32,
    }
    exec(_code(_source(signature)), space)
    made: Callable[[Sequence[Any]], list[Any]] = space["quick"]
    return made


@functools.lru_cache(maxsize=1024)
def _code(source: str) -> CodeType:
    """Most kernels are called like some other, and Python's compiler takes longer than making a kernel otherwise would."""
    return compile(source, "<call>", "exec")


def _source(signature: Signature) -> str:
    params, results = signature.params, signature.results
    lines = ["def quick(args):"]
    add = lines.append
    if not params:
        add("    if len(args): return slow(args)")
    else:
        add(f"    if len(args) != {len(params)}: return slow(args)")
        add(f"    {''.join(f'a{k}, ' for k in range(len(params)))} = args")
    bound: set[tuple[int, int]] = set()  # axes that define a symbol
    for k, param in enumerate(params):
        if not param.shape:
            test = f"isinstance(a{k}, float)" if SCALARS[param.dtype] == "float" else f"type(a{k}) is {SCALARS[param.dtype]}"
            add(f"    if not {test}: return slow(args)")
            continue
        add(f"    if type(a{k}) is not ndarray or a{k}.dtype is not d{k} or a{k}.ndim != {len(param.shape)}: return slow(args)")
        add(f"    if a{k}.flags.num & 257 != 257: return slow(args)")
    add("    s = [" + ", ".join(_binding(signature, number, bound) for number in range(len(signature.symbols))) + "]")
    for k, param in enumerate(params):
        if param.shape and not all((k, j) in bound for j in range(len(param.shape))):
            add(f"    if a{k}.shape != {_shape(param.shape)}: return slow(args)")
    add("    f = take()")
    if any(param.shape for param in params):
        add("    inputs = f.inputs")
    for k, param in enumerate(params):
        add(f"    inputs[{k}] = address(a{k})" if param.shape else f"    f.scalars[{k}].value = a{k}")
    if signature.symbols:
        add(f"    f.sizes[:{len(signature.symbols) if signature.local else ''}] = s")
    for k, result in enumerate(results):
        if result.shape:
            add(f"    r{k} = empty({_shape(result.shape)}, e{k})")
            add(f"    f.outputs[{k}] = address(r{k})")
    work = "None" if signature.workspace == 0 else f"f.reserve({source(signature.workspace)})"
    add(f"    status = call(*f.pointers, {work})")
    add("    if status:")
    add("        error = failed(status, f)")
    add("        give(f)")
    add("        if error is None: return again(args, None)")
    add("        raise error")
    for k, result in enumerate(results):
        if not result.shape:
            value = f"f.results[{k}].value"
            add(f"    r{k} = float32({value})" if result.dtype == "f32" else f"    r{k} = {value}")
    add("    give(f)")
    add(f"    return [{', '.join(f'r{k}' for k in range(len(results)))}]")
    return "\n".join(lines)


def _binding(signature: Signature, number: int, bound: set[tuple[int, int]]) -> str:
    """The length that defines a symbol: the first axis that is the symbol alone."""
    for k, param in enumerate(signature.params):
        for j, axis in enumerate(param.shape):
            if axis == ((1, (number,)),):
                bound.add((k, j))
                return f"a{k}.shape[{j}]"
    raise AssertionError("the kernel has checked that every symbol is an axis")


def _shape(shape: Sequence[Polynomial]) -> str:
    return "(" + "".join(f"{source(axis)}, " for axis in shape) + ")"
