"""Traces that another process has made: a call is served by kernels from disk without tracing or differentiating anything.

Note [Remembered traces]
~~~~~~~~~~~~~~~~~~~~~~~~
For a function whose trace depends on nothing but what ``identity.py`` can name, the store keeps beside the kernels a
record of what ``Specialization`` knows: types, guards over lengths, the output's structure, and for each kernel that was asked
for (the value, gradients by these arguments for those seeds) the entry in which its code is. A process that finds the record
needs neither the tracer nor the passes nor LLVM, which take longer to import than to do their work. Whatever is not in the
record (a text, another kind of derivative) makes the trace after all, and is added where it can be.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import SeedError
from pullback.identity import Identity, Unknown, structure_text
from pullback.ir.dims import Dim, Size
from pullback.ir.types import DTYPES, Type
from pullback.llvm import kernels, store
from pullback.serving import Fit, shape_of
from pullback_runtime.binding import Arguments
from pullback_runtime.kernel import Kernel
from pullback_runtime.signature import LEAF, NUMPY, Structure, element_name
from pullback_runtime.spots import Spot

Place = Any  # a position, or the name of a value


class Memory:
    """What the store has for one function and one kind of arguments. ``entry``: the name of the record."""

    def __init__(self, entry: str, identity: Identity):
        self.entry = entry
        self.identity = identity

    # -- kernels ----------------------------------------------------------------------------------------------------
    def keep(self, request: Any, kernel: Kernel) -> None:
        """Remember which entry of the store a kernel is in."""
        kept = getattr(kernel.texts, "entry", "")
        disk = store.current()
        if disk is None or not kept:
            return
        failures = kernel.signature.failures
        about = {
            "kernel": kept,
            "name": kernel.signature.name,
            "places": [f.where for f in failures],
            "guarded": kernel.guarded,
        }
        disk.write(self._name(request), json.dumps(about).encode())

    def kernel(self, request: Any, texts: Callable[[str], str], again: Callable[[], Kernel]) -> Kernel | None:
        """The kernel that was remembered. ``again`` makes the one with guards, where this one is without."""
        disk = store.current()
        data = None if disk is None else disk.read(self._name(request))
        if disk is None or data is None:
            return None
        about = json.loads(data)
        code = disk.read(str(about["kernel"])) if store.is_entry(about["kernel"]) else None
        if code is None:
            return None
        try:
            found = kernels.kernel(kernels.unpacked(code), about["name"], about["places"], texts, about["kernel"])
        except (OSError, KeyError):  # something that it needs is not there any more
            return None
        return found.with_guards(again) if about["guarded"] else found

    def _name(self, request: Any) -> str:
        return store.digest(self.entry, repr(request)).hex()

    # -- the record ---------------------------------------------------------------------------------------------------
    def record(self, made: Any) -> None:
        """Remember what a Specialization knows, and later its kernels, if that can be."""
        disk = store.current()
        hidden = [(h.path, h.type.dtype.name) for h in made.traced.hidden]
        if disk is None or not all(len(self.identity.arrays.get(path, ())) == 1 for path, _ in hidden):
            return
        guarded = {guard.path.partition("[")[0] for guard in made.traced.guards if hasattr(guard, "path")}
        if not guarded <= self.identity.watched:  # a value that is looked at in another way
            return
        try:
            output = _structure_data(made.output)
        except Unknown:
            return
        made.memory = self
        func = made.func
        about = {
            "output": output,
            "hidden": hidden,
            "params": [_type_data(p.type) for p in func.params],
            "results": [_type_data(r.type) for r in func.results],
            "names": [[name, _type_data(value.type)] for name, value in func.names],
            "guards": [_guard_data(g) for g in made.traced.guards if hasattr(g, "relation")],
            "description": made.describe(),
            "text": made.output_text(),
        }
        disk.write(self.entry, json.dumps(about).encode())

    def find(self) -> dict[str, Any] | None:
        disk = store.current()
        data = None if disk is None else disk.read(self.entry)
        found: dict[str, Any] | None = None if data is None else json.loads(data)
        return found


def memory_of(function: Any, arguments: Arguments) -> Memory | None:
    """Where a trace of ``function`` for ``arguments`` is remembered; None if it depends on what has no name."""
    watching = any(os.environ.get(name, "0") not in ("", "0") for name in ("PULLBACK_CHECK", "PULLBACK_DUMP"))
    if watching or store.current() is None:  # somebody wants to see the passes work
        return None
    try:
        identity = Identity(function)
        keys = [f"{structure_text(structure)} {leaves}" for structure, leaves in arguments.key]
    except Unknown:
        return None
    hints = "data" if arguments.leaves else "declared"
    return Memory(store.entry("trace", hints, *keys, *identity.parts), identity)


class Remembered:
    """A Specialization from a record. ``make`` gives the real one, which knows everything else."""

    def __init__(self, memory: Memory, record: dict[str, Any], make: Callable[[], Any]):
        self._memory = memory
        self._make = make
        self._lock = threading.RLock()
        self._kernels: dict[Any, Kernel] = {}
        self._traced: Any = None
        self.output = _structure_of(record["output"])
        self._results = [_type_of(t) for t in record["results"]]
        self._named = {name: _type_of(t) for name, t in record["names"]}
        self._guards = [_guard_of(g) for g in record["guards"]]
        self._fit = Fit([_type_of(t) for t in record["params"]])
        self._hidden = [(memory.identity.arrays[path][0], dtype) for path, dtype in record["hidden"]]
        self._description: str = record["description"]
        self._text: str = record["text"]
        self.kinds = tuple(t.dtype.name for t in self._results)
        self.ranks = tuple(t.rank for t in self._results)
        self.names = tuple(self._named)
        self.captures = memory.identity.watches or bool(self._hidden)

    def __getattr__(self, name: str) -> Any:
        """Whatever is not remembered."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.traced_anew(), name)

    def traced_anew(self) -> Any:
        """The real Specialization."""
        if self._traced is None:
            with self._lock:
                if self._traced is None:
                    self._traced = self._make()
        return self._traced

    # -- does it serve a call ---------------------------------------------------------------------------------------
    def bind(self, leaves: Sequence[Any]) -> tuple[dict[str, int], list[Any]] | None:
        hidden = self._arrays()
        sizes = None if hidden is None else self._fit.sizes([*leaves, *hidden])
        if hidden is None or sizes is None or not all(guard.holds(sizes) for guard in self._guards):
            return None
        return sizes, hidden

    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None:
        hidden = self._arrays()
        return hidden if hidden is not None and [array.shape for array in hidden] == shapes else None

    def _arrays(self) -> list[Any] | None:
        """The captured arrays as they are now; None if something else that was captured has changed, or their types have."""
        if not self._memory.identity.unchanged():
            return None
        found = []
        for read, dtype in self._hidden:
            array = read()
            if type(array) is not np.ndarray or element_name(array.dtype) != dtype:
                return None
            found.append(array.astype(NUMPY[dtype], copy=False))
        return found

    def spots(self) -> tuple[list[tuple[Spot, Any]], list[Spot]] | None:
        watched = [(read, value) for read, value in self._memory.identity.objects if isinstance(read, Spot)]
        hidden = [read for read, _ in self._hidden if isinstance(read, Spot)]
        complete = len(watched) == len(self._memory.identity.objects) and len(hidden) == len(self._hidden)
        return (watched, hidden) if complete else None

    def guards(self, symbols: Sequence[str]) -> list[Any] | None:
        from pullback.llvm.callable_code import size_guards  # when a function is called often

        return size_guards(self._guards, symbols)

    def shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...] | None]:
        return [shape_of(t, sizes) for t in self._results]

    def named_shape(self, name: str, sizes: dict[str, int]) -> tuple[str, tuple[int, ...]]:
        shape = shape_of(self._named[name], sizes)
        if shape is None:
            raise SeedError(f"the value {name!r} has a length that the data decide, so it cannot be seeded")
        return self._named[name].dtype.name, shape

    # -- kernels ----------------------------------------------------------------------------------------------------
    def primal(self) -> Kernel:
        return self._kernel("primal", lambda made: made.primal())

    def vjp(self, wrt: tuple[Place, ...], seeded: tuple[Place, ...], primal: bool) -> Kernel:
        return self._kernel(("vjp", wrt, seeded, primal), lambda made: made.vjp(wrt, seeded, primal))

    def jvp(self, wrt: tuple[int, ...]) -> Kernel:
        return self._kernel(("jvp", wrt), lambda made: made.jvp(wrt))

    def _kernel(self, request: Any, of: Callable[[Any], Kernel]) -> Kernel:
        found = self._kernels.get(request)
        if found is None:
            with self._lock:
                found = self._kernels.get(request)
                if found is None:
                    found = None if self._traced is not None else self._from_disk(request, of)
                    found = self._kernels[request] = found or of(self.traced_anew())
        return found

    def _from_disk(self, request: Any, of: Callable[[Any], Kernel]) -> Kernel | None:
        def careful() -> Kernel:
            return of(self.traced_anew())  # which has the one with guards

        return self._memory.kernel(request, lambda stage: str(careful().texts(stage)), careful)

    # -- texts ------------------------------------------------------------------------------------------------------
    def describe(self) -> str:
        return self._description

    def output_text(self) -> str:
        return self._text


# -- as JSON ----------------------------------------------------------------------------------------------------------
def _structure_data(structure: Structure) -> Any:
    meta = list(structure.meta) if structure.kind == "dict" else structure.meta
    structure_text(structure)  # Unknown if it is of the user's classes
    return [structure.kind, meta, [_structure_data(child) for child in structure.children]]


def _structure_of(data: Any) -> Structure:
    kind, meta, children = data
    if kind == "leaf":
        return LEAF
    return Structure(kind, tuple(meta) if kind == "dict" else meta, tuple(map(_structure_of, children)))


def _size_data(size: Size) -> int | str:
    return size if isinstance(size, int) else str(size)


def _size_of(data: int | str) -> Size:
    if isinstance(data, int):
        return data
    return Dim.symbol(data) if data.isidentifier() else Dim.parse(data)


def _type_data(kind: Any) -> Any:
    return [kind.dtype.name, [_size_data(size) for size in kind.shape]]


def _type_of(data: Any) -> Type:
    return Type(DTYPES[data[0]], tuple(map(_size_of, data[1])))


def _guard_data(guard: Any) -> Any:
    return [_size_data(guard.left), guard.relation, _size_data(guard.right), guard.outcome]


def _guard_of(data: Any) -> Any:
    from pullback.frontends.traced import SizeGuard  # few traces have guards

    left, relation, right, outcome = data
    return SizeGuard(_size_of(left), relation, _size_of(right), outcome)


def without_data(arguments: Arguments) -> Arguments:
    """Arguments of the same shapes that keep no array alive."""
    leaves = [np.broadcast_to(np.empty((), np.asarray(leaf).dtype), np.shape(leaf)) for leaf in arguments.leaves]
    return Arguments(leaves, arguments.key)
