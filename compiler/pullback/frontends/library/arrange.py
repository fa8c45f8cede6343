"""Turning, rolling, repeating and padding arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.create import copy, to_shape
from pullback.frontends.library.index import take
from pullback.frontends.library.reduce import normalize_axes, normalize_axis
from pullback.frontends.library.shape import between, concatenate, ravel, reshape, reshaped, sequence, swapaxes
from pullback.frontends.promote import cast, wrap
from pullback.frontends.sizes import to_size


# -- turning and repeating ------------------------------------------------------------------------------------------
def flip(m: Any, axis: Any = None) -> Array:
    array = wrap(m)
    axes = normalize_axes(axis, array.ndim)
    return array[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(array.ndim))]


def fliplr(m: Any) -> Array:
    return flip(m, 1)


def flipud(m: Any) -> Array:
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    array = wrap(m)
    turns = k % 4
    if turns == 0:
        return array[...]
    if turns == 2:
        return flip(flip(array, axes[0]), axes[1])
    return flip(swapaxes(array, *axes), axes[0]) if turns == 1 else flip(swapaxes(array, *axes), axes[1])


def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Each rolled axis is cut in two and joined the other way round."""
    array = wrap(a)
    if axis is None:
        return reshaped(roll(ravel(array), shift, 0), array.symbolic_shape)
    shifts, axes = list(sequence(shift)), list(sequence(axis))
    count = max(len(shifts), len(axes))
    for s, k in zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True):
        array = _rolled(array, s, normalize_axis(k, array.ndim))
    return array if array is not a else copy(array)


def _rolled(array: Array, shift: Any, axis: int) -> Array:
    length = array.shape[axis]
    if length == 0:
        return copy(array)
    cut = (length - shift) % length if isinstance(length, int) else _cut(array, length, shift)
    if isinstance(cut, int) and cut == 0:
        return copy(array)
    return concatenate([between(array, axis, cut, None), between(array, axis, None, cut)], axis)


def _cut(array: Array, length: Any, shift: Any) -> Any:
    """``-shift`` modulo a symbolic length, by a guard that the shift is less than the length."""
    if -length < shift < length:
        return length - shift if shift > 0 else -shift
    return -shift % int(length)


def fftshift(x: Any, axes: Any = None) -> Array:
    array = wrap(x)
    chosen = normalize_axes(axes, array.ndim)
    return roll(array, [array.shape[k] // 2 for k in chosen], list(chosen))


def ifftshift(x: Any, axes: Any = None) -> Array:
    array = wrap(x)
    chosen = normalize_axes(axes, array.ndim)
    return roll(array, [-(array.shape[k] // 2) for k in chosen], list(chosen))


def tile(A: Any, reps: Any) -> Array:
    """Broadcast along new axes, one before each old one, and merge."""
    array = wrap(A)
    given = [to_size(r) for r in sequence(reps)]
    shape = (1,) * (len(given) - array.ndim) + array.symbolic_shape
    counts = [*[1] * (len(shape) - len(given)), *given]
    b = array.context.here()
    value = array.value if shape == array.symbolic_shape else b.reshape(array.value, shape=shape)
    if all(c == 1 for c in counts):
        return Array(array.context, value, contiguous=True)
    wide = tuple(n for pair in zip(counts, shape, strict=True) for n in pair)
    value = b.broadcast(value, axes=tuple(range(1, len(wide), 2)), shape=wide)
    return Array(
        array.context, b.reshape(value, shape=tuple(c * n for c, n in zip(counts, shape, strict=True))), contiguous=True
    )


def repeat(a: Any, repeats: Any, axis: Any = None) -> Array:
    array = wrap(a)
    if axis is None:
        array, axis = ravel(array), 0
    k = normalize_axis(axis, array.ndim)
    if isinstance(repeats, (list, tuple, np.ndarray)) or (isinstance(repeats, Array) and repeats.ndim):
        counts = sequence(repeats)
        length = array.context.number(array.symbolic_shape[k])
        return take(array, np.repeat(np.arange(length), [int(c) for c in counts]), k)
    count, shape, b = to_size(repeats), array.symbolic_shape, array.context.here()
    wide = (*shape[: k + 1], count, *shape[k + 1 :])
    value = b.broadcast(array.value, axes=tuple(j for j in range(len(wide)) if j != k + 1), shape=wide)
    return Array(array.context, b.reshape(value, shape=(*shape[:k], shape[k] * count, *shape[k + 1 :])), contiguous=True)


# -- padding --------------------------------------------------------------------------------------------------------
def _widths(width: Any, rank: int) -> list[tuple[int, int]]:
    if isinstance(width, dict):
        pairs = [(0, 0)] * rank
        for k, w in width.items():
            pairs[normalize_axis(k, rank)] = tuple(sequence(w)) * (2 if len(sequence(w)) == 1 else 1)
        return pairs
    table = np.broadcast_to(np.asarray(width), (rank, 2))
    if (table < 0).any():
        raise ValueError("index can't contain negative values")
    return [(int(low), int(high)) for low, high in table]


def pad(array: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Array:
    found = wrap(array)
    widths = _widths(pad_width, found.ndim)
    if mode == "constant":
        return _pad_constant(found, widths, options.get("constant_values", 0))
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise found.context.error(
            UnsupportedError,
            f"np.pad(mode={mode!r}) is not supported",
            "use 'constant', 'edge', 'reflect', 'symmetric' or 'wrap'",
        )
    if options.get("reflect_type", "even") != "even":
        raise found.context.error(UnsupportedError, "np.pad(reflect_type='odd') is not supported", "use reflect_type='even'")
    for axis, (low, high) in enumerate(widths):
        if low or high:
            found = _pad_axis(found, axis, low, high, mode)
    return found if found is not array else copy(found)


def _pad_constant(array: Array, widths: list[tuple[int, int]], constants: Any) -> Array:
    """The array is stored into a larger one that holds the constants; corners take those of the last axis, as NumPy's do."""
    trace, b = array.context, array.context.here()
    dtype = array.dtype_
    flat = [constants] if not isinstance(constants, (tuple, list, np.ndarray)) else None
    value = array.value
    if flat is not None:
        shape = tuple(n + low + high for n, (low, high) in zip(value.type.shape, widths, strict=True))
        frame = b.spread(cast(wrap(constants), dtype), shape)
        starts = tuple(low for low, _ in widths)
        return Array(trace, b.slice_set(frame, value, starts=starts, steps=(1,) * array.ndim), contiguous=True)
    table = np.broadcast_to(np.asarray(constants), (array.ndim, 2))
    for axis, (low, high) in enumerate(widths):
        parts = [value]
        for width, number, first in ((low, table[axis][0], True), (high, table[axis][1], False)):
            shape = (*value.type.shape[:axis], width, *value.type.shape[axis + 1 :])
            part = b.full(number, value.type.with_shape(shape))
            parts = [part, *parts] if first else [*parts, part]
        value = b.concatenate(*parts, axis=axis)
    return Array(trace, value, contiguous=True)


def _pad_axis(array: Array, axis: int, low: int, high: int, mode: str) -> Array:
    """The padded axis as a read at constant places, for lengths that are at least what the padding needs."""
    length = array.symbolic_shape[axis]
    if isinstance(length, int):
        if length == 0:
            raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        kind: Any = mode
        return take(array, np.pad(np.arange(length), (low, high), mode=kind), axis)
    need = max(low, high) + (1 if mode == "reflect" else 0)
    if not array.context.decide(max(need, 1), "<=", length):
        return _pad_axis(array[(slice(None),) * axis + (slice(0, int(array.shape[axis])),)], axis, low, high, mode)
    n = array.shape[axis]

    def cut(first: Any, last: Any, turned: bool = False) -> Array:
        part = between(array, axis, first, last)
        return flip(part, axis) if turned else part

    if mode == "edge":
        before, after = repeat(cut(0, 1), low, axis), repeat(cut(n - 1, n), high, axis)
    elif mode == "reflect":
        before, after = cut(1, low + 1, True), cut(n - 1 - high, n - 1, True)
    elif mode == "symmetric":
        before, after = cut(0, low, True), cut(n - high, n, True)
    else:
        before, after = cut(n - low, n), cut(0, high)
    return concatenate([p for p, width in ((before, low), (array, 1), (after, high)) if width], axis)


def resize(a: Any, new_shape: Any) -> Array:
    array = ravel(wrap(a))
    trace = array.context
    sizes = [trace.number(n) for n in to_shape(new_shape)]
    length = trace.number(array.symbolic_shape[0])
    return reshape(take(array, np.arange(math.prod(sizes)) % length), sizes)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"numpy.{f.__name__}": f for f in (flip, fliplr, flipud, rot90, roll, tile, repeat, pad, resize)
} | {
    "numpy.fft.fftshift": fftshift,
    "numpy.fft.ifftshift": ifftshift,
}
