"""Arrays seen through views as a base buffer, an offset and a stride per axis, so that BLAS can read them in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pullback.ir.core import Instr, Value
from pullback.ir.dims import Size, product


@dataclass(frozen=True, slots=True)
class Strided:
    """Element ``index`` is at ``offset + sum(index * strides)`` of ``base``."""

    base: Value
    offset: Size
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]


def turns(transpose: Instr) -> bool:
    """Whether a transposition swaps the last two axes and no others."""
    rank = transpose.out.type.rank
    return rank > 1 and transpose.attrs["perm"] == (*range(rank - 2), rank - 1, rank - 2)


def contiguous(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    return tuple(product(shape[k + 1 :]) for k in range(len(shape)))


def strided(value: Value, defs: Mapping[Value, Instr], stored: Callable[[Value], bool], blas: bool = False) -> Strided | None:
    """The strided form of a value, or None if it is computed or a view has no strides.

    With ``blas`` also None unless the last two axes have a unit stride somewhere.
    """
    views: list[Instr] = []
    while not stored(value):
        instr = defs[value]
        if instr.op.name not in ("transpose", "reshape", "slice"):
            return None
        views.append(instr)
        value = instr.args[0]
    form = Strided(value, 0, value.type.shape, contiguous(value.type.shape))
    for instr in reversed(views):
        found = _through(form, instr)
        if found is None:
            return None
        form = found
    if blas and not any(_unit(form, k) for k in (-1, -2)):
        return None
    return form


def _unit(form: Strided, axis: int) -> bool:
    return form.strides[axis] == 1


def _through(form: Strided, instr: Instr) -> Strided | None:
    attrs, out = instr.attrs, instr.out.type.shape
    if instr.op.name == "transpose":
        perm = attrs["perm"]
        return Strided(form.base, form.offset, out, tuple(form.strides[p] for p in perm))
    if instr.op.name == "slice":
        offset = form.offset
        for start, stride in zip(attrs["starts"], form.strides, strict=True):
            offset = offset + start * stride
        strides = tuple(step * s for step, s in zip(attrs["steps"], form.strides, strict=True))
        if any(isinstance(s, int) and s < 0 for s in strides):
            return None
        return Strided(form.base, offset, out, strides)
    return _reshaped(form, out)


def _reshaped(form: Strided, shape: tuple[Size, ...]) -> Strided | None:
    """Only axes that merge, split into ones, or stay: enough for the matrices that contractions are brought to."""
    old = [(n, s) for n, s in zip(form.shape, form.strides, strict=True) if n != 1]
    strides: list[Size] = []
    k = 0
    for size in shape:
        if size == 1:
            strides.append(1)
            continue
        if k >= len(old):
            return None
        total, stride = old[k]
        k += 1
        while total != size and k < len(old) and stride == old[k][0] * old[k][1]:
            total, stride = total * old[k][0], old[k][1]
            k += 1
        if total != size:
            return None
        strides.append(stride)
    return Strided(form.base, form.offset, shape, tuple(strides)) if k == len(old) else None
