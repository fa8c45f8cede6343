"""Direct callables of a Function: what takes the place of a method once calls are worth it, and how it learns kinds of calls.

A door stays the same when it learns, so whoever holds it profits from what it learns later.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from pullback_runtime import entries
from pullback_runtime.binding import Parameter
from pullback_runtime.direct import FAST, PATIENCE, TRACES
from pullback_runtime.entries import EntryMaker
from pullback_runtime.repeat import Repeat
from pullback_runtime.signature import flatten

ENTRIES = 8  # kinds of calls that one callable recognises; the latest come first
_UNKNOWN = object()


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


@functools.cache  # for ever: callables point to it
def _definition(code: int, name: str, doc: str) -> _MethodDef:
    return _MethodDef(name.encode(), code, FAST, doc.encode())


class _Self(tuple[Any, ...]):
    """What the machine code gets as its ``self``: (slow path, entries, TRACES, owner). The callable is pickled as an attribute
    of it, and so it is pickled as the owner, whose attribute the callable is too."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return _same, (self[3],)


def _same(thing: Any) -> Any:
    return thing


class Door:
    """A direct callable and the kinds of calls that it recognises; everything else goes to ``slow``."""

    __slots__ = ("callable", "entries", "symbolic")

    def __init__(self, code: int, owner: Any, name: str, slow: Callable[..., Any], doc: str, symbolic: bool):
        """``owner``: the Function. ``symbolic``: whether all its axes are symbols, however short."""
        self.symbolic = symbolic
        self.entries: list[Any] = []
        definition = _definition(code, name, doc)
        new = ctypes.pythonapi.PyCFunction_NewEx
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        this = _Self((slow, self.entries, TRACES, owner))
        self.callable: Callable[..., Any] = new(ctypes.addressof(definition), this, owner.__module__)

    def put(self, entry: Any) -> None:
        """Recognise what ``entry`` describes, before everything else."""
        if not any(known is entry for known in self.entries):
            self.entries.insert(0, entry)
            del self.entries[ENTRIES:]

    def learn(
        self,
        parameters: Sequence[Parameter],
        repeat: Repeat,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        values: Sequence[Any],
        outs: Sequence[Any] | None,
    ) -> None:
        """See to it that a call like this one, which ``repeat`` can serve, is recognised."""
        form = (len(args), tuple(kwargs), None if outs is None else tuple(array is not None for array in outs))
        entry = repeat.entries.get(form, _UNKNOWN)
        if entry is _UNKNOWN:
            kernel = repeat.kernel
            kernel.calls += 1
            if repeat.calls < 1 and kernel.calls < PATIENCE:
                return
            entry = None
            if entries.suited(kernel):
                for exact in (False, True):
                    maker = EntryMaker(kernel, repeat.leaves, self.symbolic, exact)
                    entry = entries.made(functools.partial(_written, maker, parameters, repeat, args, kwargs, values, outs))
                    if entry is not None:
                        break
            repeat.entries[form] = entry
        if entry is not None:
            self.put(entry)


def _written(
    maker: EntryMaker,
    parameters: Sequence[Parameter],
    repeat: Repeat,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Sequence[Any],
    outs: Sequence[Any] | None,
) -> Any:
    """The entry for a call that was given ``args`` and ``kwargs``, which are ``values`` in the order of the parameters."""
    leaves = [flatten(value)[0] for value in values]
    starts = list(accumulate(map(len, leaves), initial=0))
    hidden = repeat.specialization.again(repeat.hidden) if repeat.specialization.captures else []
    if hidden is None:
        return None
    seeds = starts[-1] + len(hidden)
    places = {p.name: k for k, p in enumerate(parameters)}
    given: list[tuple[Any, str, Any]] = [(value, "leaves", start) for value, start in zip(args, starts, strict=False)]
    missing = dict.fromkeys(range(len(args), len(values)))
    for name, value in kwargs.items():
        if name in places:
            missing.pop(places[name])
            given.append((value, "leaves", starts[places[name]]))
        elif name == "seed" and value is not None:
            given.append((value, "leaves", seeds))
        elif name == "out" and value is not None:
            given.append((value, "out", outs))
        else:
            given.append((value, "same", None))
    maker.arguments(given, tuple(kwargs))
    if repeat.specialization.captures:
        spots = repeat.specialization.spots()
        if spots is None:
            maker.hidden(functools.partial(repeat.specialization.again, repeat.hidden), hidden, starts[-1])
        else:
            maker.spots(*spots, hidden, starts[-1])
    constants = {starts[k] + j: leaf for k in missing for j, leaf in enumerate(leaves[k])}
    constants.update(enumerate(repeat.seeds or (), seeds))
    maker.constants(constants)
    guards = repeat.specialization.guards(maker.signature.symbols)
    if guards is None and not maker.exact:
        return None
    maker.guards(guards or ())
    maker.results()
    maker.answer(repeat.output, repeat.primal, repeat.rebuild)
    return maker.entry()
