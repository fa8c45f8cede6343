"""Python's builtin functions of traced values. Called from rewritten code with the session first."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import TraceError
from pullback.frontends import library
from pullback.frontends.array import Array
from pullback.frontends.sizes import Length, of_size
from pullback.frontends.staging_iter import Backward, Numbered, Steps, Zipped, long
from pullback.frontends.staging_lists import Items, Stacked, as_stacked
from pullback.ir.types import f64, i64


def _weak(x: Any) -> Any:
    """Builtins give Python numbers."""
    if isinstance(x, Array):
        return Array(x.context, x.value, weak=True, known=x.known) if x.pending_constant() is None else x
    return x


def _len(session: Any, x: Any) -> Any:
    if isinstance(x, Array):
        if not x.ndim:
            raise TypeError("len() of unsized object")
        return x.shape[0]
    if type(x) is list and x and isinstance(x[0], Items):
        return x[0].count + (len(x) - 1)
    return x.array.shape[0] if isinstance(x, Stacked) else len(x)


def _range(session: Any, *bounds: Any) -> Any:
    """A range that can be counted when the function runs, if an end of it is known only then."""
    if not any(isinstance(bound, (Array, Length)) and not _is_number(bound) for bound in bounds):
        return range(*(bound.__index__() for bound in bounds))
    if len(bounds) > 3:
        raise TypeError(f"range expected at most 3 arguments, got {len(bounds)}")
    for bound in bounds:
        if isinstance(bound, Array) and (bound.ndim or bound.dtype_.kind != "i"):
            raise TypeError(f"range takes integers, got a traced {bound.type}")
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
    return Steps(session.trace, *(int(b) if _is_number(b) else b for b in (start, stop, step)))


def _is_number(x: Any) -> bool:
    return (isinstance(x, Array) and x.known is not None) or not isinstance(x, (Array, Length))


def _enumerate(session: Any, items: Any, start: Any = 0) -> Any:
    source = long(session.trace, items, 0)
    return enumerate(items, start) if source is None else Numbered(source, start)


def _zip(session: Any, *parts: Any, **kwargs: Any) -> Any:
    sources = [found for part in parts if (found := long(session.trace, part, 0)) is not None]
    strict = bool(kwargs.get("strict", False))
    if not parts or len(sources) != len(parts):
        return zip(*parts, strict=strict)
    for k, source in enumerate(sources[1:], 2):
        first, other = sources[0].trips, source.trips
        if strict and not (isinstance(first, Array) or isinstance(other, Array) or session.trace.decide(first, "==", other)):
            raise ValueError(
                f"zip() argument {k} is {'shorter' if session.trace.decide(other, '<', first) else 'longer'} than"
                f" argument{'s 1-' if k > 2 else ' '}{k - 1}"
            )
    return Zipped(sources)


def _reversed(session: Any, items: Any) -> Any:
    source = long(session.trace, items, 0)
    return reversed(items) if source is None else Backward(source)


def _extremum(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """``max(s, t)`` of traced scalars chooses one of them; a tie gives the first, as in Python, and splits the gradient."""

    def function(session: Any, *args: Any, **kwargs: Any) -> Any:
        listed = as_stacked(args[0]) if len(args) == 1 else None
        if listed is not None and listed.array.ndim == 1 and not kwargs:
            return library.call(f"numpy.{plain.__name__}", (listed.array,))
        items = list(args[0]) if len(args) == 1 else list(args)
        if not any(isinstance(x, Array) and x.known is None for x in items):
            return plain(items, **kwargs) if len(args) == 1 else plain(*args, **kwargs)
        if "key" in kwargs:
            raise session.trace.error(TraceError, f"{plain.__name__}(key=...) of traced values", "use np.argmax and an index")
        for x in items:
            if isinstance(x, Array) and x.ndim:
                raise session.trace.error(
                    TraceError,
                    f"{plain.__name__}() compares whole arrays",
                    f"use np.{name} for elements, np.{plain.__name__} to reduce",
                )
        result = items[0]
        for x in items[1:]:
            both = _is_weak(result) and _is_weak(x)
            result = library.call(f"numpy.{name}", (result, x))
            result = _weak(result) if both else result
        return result

    return function


def _is_weak(x: Any) -> bool:
    return x.weak if isinstance(x, Array) else not isinstance(x, np.generic)


def _sum(session: Any, items: Any, /, start: Any = 0) -> Any:
    listed = as_stacked(items)
    if listed is not None:
        return library.call("numpy.sum", (listed.array,), {"axis": 0}) + start
    result = start
    for x in items:
        result = result + x
    return result


def _convert(kind: type, dtype: Any, check: bool) -> Callable[..., Any]:
    def function(session: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Length):
            return int(args[0]) if kind is int else _scalar(session, Array.of_size(args[0].context, args[0].size), dtype, False)
        if len(args) == 1 and isinstance(args[0], Array) and args[0].known is None:
            return _scalar(session, args[0], dtype, check)
        return kind(*args, **kwargs)

    return function


def _scalar(session: Any, x: Array, dtype: Any, check: bool) -> Array:
    """``float(x)`` of a traced scalar is that scalar as a Python number."""
    if x.ndim:
        return x.item() if x.type.size == 1 else kind_error(session, x)
    found = library.call("numpy.astype", (x, dtype.numpy))
    return Array(x.context, found.value, weak=True)


def kind_error(session: Any, x: Array) -> Array:
    raise session.trace.error(
        TraceError, f"only arrays of one element can become Python numbers, got {x.type}", "index it first"
    )


def _abs(session: Any, x: Any) -> Any:
    return abs(x)


def _round(session: Any, x: Any, ndigits: Any = None) -> Any:
    if not isinstance(x, Array):
        return round(x) if ndigits is None else round(x, ndigits)
    rounded = library.call("numpy.round", (x, 0 if ndigits is None else ndigits))
    return _weak(library.call("numpy.astype", (rounded, np.int64))) if ndigits is None else rounded


def _pow(session: Any, base: Any, exponent: Any, modulus: Any = None) -> Any:
    return base**exponent if modulus is None else pow(base, exponent, modulus)


def _isinstance(session: Any, x: Any, kinds: Any) -> bool:
    """A traced array is an ndarray, a traced number a float or an int, a length an int."""
    options = kinds if isinstance(kinds, tuple) else (kinds,)
    if isinstance(x, Array):
        like: Any = np.zeros((1,) * x.ndim, x.dtype)
        like = like if x.ndim else (like.item() if x.weak else like[()])
        return isinstance(like, tuple(_flat(options)))
    if isinstance(x, Length):
        return isinstance(0, tuple(_flat(options)))
    return isinstance(x, kinds)


def _type(session: Any, x: Any, *rest: Any) -> Any:
    if rest or not isinstance(x, (Array, Length)):
        return type(x, *rest)
    if isinstance(x, Length):
        return int
    return (
        np.ndarray if x.ndim else (float if x.dtype_ is f64 else int if x.dtype_ is i64 else bool) if x.weak else x.dtype.type
    )


def _flat(kinds: Any) -> list[Any]:
    return [k for kind in kinds for k in (_flat(kind) if isinstance(kind, tuple) else [kind])]


def _getattr(session: Any, owner: Any, name: str, *default: Any) -> Any:
    value = getattr(owner, name, *default)
    return value if isinstance(owner, (Array, Length)) else session.captures.attribute(owner, name, value)


def _print(session: Any, *args: Any, **kwargs: Any) -> None:
    """Prints while tracing: traced values show their types."""
    print(*args, **kwargs)


def _refused(what: str) -> Callable[..., Any]:
    def function(session: Any, *args: Any, **kwargs: Any) -> Any:
        raise session.trace.error(
            TraceError,
            f"{what}, which would happen once while tracing and never again",
            "do that outside the compiled function",
        )

    return function


def _through(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``map``, ``filter`` and ``sorted`` call the user's functions, which have to be entered."""

    def function(session: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        if "key" in kwargs:
            kwargs["key"] = session.callable_argument(kwargs["key"])
        return plain(session.callable_argument(first), *args, **kwargs)

    return function


def _all_or_any(plain: Callable[..., bool], combine: str) -> Callable[..., Any]:
    def function(session: Any, items: Any, /) -> Any:
        parts = list(items)
        if not any(isinstance(p, Array) and p.known is None for p in parts):
            return plain(parts)
        result = parts[0]
        for part in parts[1:]:
            result = library.call(combine, (result, part))
        return result

    return function


def _sequence(plain: Callable[..., Any]) -> Callable[..., Any]:
    def function(session: Any, *args: Any) -> Any:
        listed = as_stacked(args[0]) if args else None
        return plain(*args) if listed is None else listed

    return function


def _divmod(session: Any, x: Any, y: Any) -> Any:
    return divmod(x, y)


_TABLE: list[tuple[Any, Callable[..., Any]]] = [
    (len, _len),
    (range, _range),
    (enumerate, _enumerate),
    (zip, _zip),
    (reversed, _reversed),
    (max, _extremum("maximum", max)),
    (min, _extremum("minimum", min)),
    (sum, _sum),
    (float, _convert(float, f64, True)),
    (int, _convert(int, i64, True)),
    (abs, _abs),
    (round, _round),
    (pow, _pow),
    (divmod, _divmod),
    (isinstance, _isinstance),
    (type, _type),
    (getattr, _getattr),
    (print, _print),
    (list, _sequence(list)),
    (tuple, _sequence(tuple)),
    (map, _through(map)),
    (filter, _through(filter)),
    (sorted, _through(sorted)),
    (all, _all_or_any(all, "numpy.logical_and")),
    (any, _all_or_any(any, "numpy.logical_or")),
    (builtins.open, _refused("a file is opened")),
    (builtins.input, _refused("input is read")),
    (builtins.exec, _refused("code is executed from text")),
    (builtins.eval, _refused("code is evaluated from text")),
]
BUILTINS: dict[int, Callable[..., Any]] = {id(function): hook for function, hook in _TABLE}

__all__ = ["BUILTINS", "of_size"]
