"""The traces of a Function: which of them serves a call, and when another one is made.

Note [Specializations]
A call's *key* is the structure of its arguments and, for each leaf, element type, rank, static lengths and weakness. Under one
key there can be several specializations, told apart by guards over lengths and captured values; the first that fits serves
the call. If none fits, the function is traced with the call's own lengths as hints; tracing is also what reports lengths
that do not go together, so a call never fails for lengths that another trace would take.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pullback_runtime import binding
from pullback_runtime.binding import Arguments, Parameter
from pullback_runtime.environment import asked
from pullback_runtime.errors import PullbackError
from pullback_runtime.gradients import Place
from pullback_runtime.kernel import Kernel
from pullback_runtime.repeat import SizeGuard
from pullback_runtime.signature import Structure
from pullback_runtime.spots import Spot

KEPT = 512  # specializations of one Function; of more the oldest are dropped


class Specialization(Protocol):
    """One trace, and the kernels made from it when asked for. Made by the compiler."""

    output: Structure
    kinds: tuple[str, ...]  # element types of the outputs
    ranks: tuple[int, ...]
    names: tuple[str, ...]  # of intermediate values

    @property
    def captures(self) -> bool: ...
    def guards(self, symbols: Sequence[str]) -> list[SizeGuard] | None: ...
    def spots(self) -> tuple[list[tuple[Spot, Any]], list[Spot]] | None: ...
    def bind(self, leaves: Sequence[Any]) -> tuple[dict[str, int], list[Any]] | None: ...
    def again(self, shapes: Sequence[tuple[int, ...]]) -> list[Any] | None: ...
    def shapes(self, sizes: dict[str, int]) -> list[tuple[int, ...] | None]: ...
    def named_shape(self, name: str, sizes: dict[str, int]) -> tuple[str, tuple[int, ...]]: ...
    def primal(self) -> Kernel: ...
    def vjp(self, wrt: tuple[Place, ...], seeded: tuple[Place, ...], primal: bool) -> Kernel: ...
    def jvp(self, wrt: tuple[int, ...]) -> Kernel: ...
    def split(self, wrt: tuple[Place, ...], seeded: tuple[Place, ...]) -> tuple[Kernel, Kernel, tuple[int, ...]]: ...
    def expanded(self, result: int, sizes: dict[str, int]) -> tuple[int, ...]: ...
    def expand(self, wrt: tuple[Place, ...], result: int, primal: bool) -> Kernel: ...
    def text(self, stage: str) -> str: ...
    def describe(self) -> str: ...
    def output_text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """How many specializations exist, and why each was made."""

    specializations: int
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Call:
    """A call that found its specialization. ``inputs``: the leaves, then the hidden inputs."""

    arguments: Arguments
    specialization: Specialization
    sizes: dict[str, int]
    inputs: list[Any]

    def hidden(self) -> list[Any]:
        return self.inputs[len(self.arguments.leaves) :]


class Specializations:
    """Those of one Function. ``make(arguments)`` traces."""

    def __init__(self, name: str, parameters: Sequence[Parameter], make: Callable[[Arguments], Specialization]):
        self._name = name
        self._parameters = parameters
        self._make = make
        self._found: dict[Any, list[Specialization]] = {}
        self._ahead: list[tuple[Any, Specialization]] = []  # compiled for declared types: their keys
        self._reasons: deque[str] = deque(maxlen=KEPT)
        self._order: deque[tuple[Any, Specialization]] = deque()
        self._made = 0
        self._lock = threading.RLock()

    def call(self, arguments: Arguments) -> Call:
        """What serves these arguments, traced if nothing does. Thread-safe."""
        return _served(arguments, self._found.get(arguments.key, ())) or self._specialize(arguments)

    def latest(self) -> Call | None:
        """A call without data of the specialization that was made last."""
        if not self._order:
            return None
        key, latest = self._order[-1]
        return Call(Arguments([], key), latest, {}, [])

    def declared(self, key: Any) -> Call:
        """The specialization for declared types, made ahead of data."""
        arguments = Arguments([], key)
        with self._lock:
            if key not in self._found:
                specialization = self._make(arguments)
                self._keep(arguments, specialization, "declared types")
                self._ahead.append((key, specialization))
            return Call(arguments, self._found[key][0], {}, [])

    def info(self) -> CacheInfo:
        return CacheInfo(self._made, tuple(self._reasons))

    def _specialize(self, arguments: Arguments) -> Call:
        with self._lock:
            known = self._found.get(arguments.key, ())
            ahead = [made for key, made in self._ahead if made not in known and binding.serves(key, arguments.key)]
            call = _served(arguments, known)  # another thread may have made it meanwhile
            if call is None:
                call = _served(arguments, ahead)
                if call is not None:
                    self._found[arguments.key] = [*known, call.specialization]
            if call is None:
                made = self._make(arguments)
                call = _served(arguments, [made])
                if call is None:
                    raise PullbackError(
                        f"{self._name}: a trace does not fit the arguments that it was made for; please report this"
                    )
                self._keep(arguments, made, "a guard of the others fails" if known else "new argument types")
        return call

    def _keep(self, arguments: Arguments, specialization: Specialization, why: str) -> None:
        """Remember a specialization, and forget the oldest if there are too many. The lock is held."""
        key = arguments.key
        self._found[key] = [*self._found.get(key, ()), specialization]
        self._order.append((key, specialization))
        if len(self._order) > KEPT:
            old, gone = self._order.popleft()
            left = [s for s in self._found.get(old, ()) if s is not gone]
            self._found[old] = left
            if not left:
                del self._found[old]
        self._made += 1
        self._note(arguments, specialization, why)

    def _note(self, arguments: Arguments, specialization: Specialization, why: str) -> None:
        kinds = iter(arguments.kinds())
        inputs = ", ".join(f"{path}: {next(kinds)}" for path in self._paths(arguments))
        reason = f"{self._name}({inputs}): {why}; {specialization.describe()}"
        self._reasons.append(reason)
        if "compile" in asked("PULLBACK_LOG", ("compile",)):
            import logging  # takes 8 ms, and few ask for it

            logging.getLogger("pullback").warning("compiled %s", reason)

    def _paths(self, arguments: Arguments) -> list[str]:
        pairs = zip(self._parameters, arguments.key, strict=True)
        return [path for parameter, (structure, _) in pairs for path in structure.paths(parameter.name)]


def _served(arguments: Arguments, candidates: Sequence[Specialization]) -> Call | None:
    """The call by the first specialization that fits its lengths and what is captured."""
    for specialization in candidates:
        bound = specialization.bind(arguments.leaves)
        if bound is not None:
            return Call(arguments, specialization, bound[0], [*arguments.leaves, *bound[1]])
    return None
