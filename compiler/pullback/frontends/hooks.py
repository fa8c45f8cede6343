"""What rewritten code calls for calls, subscripts, stores, conditions and names from outside.

A call is dispatched on what is called: a function of NumPy, SciPy or ``math`` goes to the library, a compiled function is
inlined, a plain Python function of the user's is rewritten and entered, and whatever would not be the same at the next call
(random numbers, clocks, files) is refused.
"""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import TraceError, UnsupportedError
from pullback.frontends import library
from pullback.frontends.array import Array
from pullback.frontends.builtin_calls import BUILTINS
from pullback.frontends.capture import Captures
from pullback.frontends.operators import is_weak
from pullback.frontends.promote import wrap
from pullback.frontends.rewrite import is_rewritten, names_of, rewritten
from pullback.frontends.sizes import Length
from pullback.frontends.staging_lists import Items, item_of
from pullback.frontends.staging_python import ControlHooks
from pullback.frontends.trace import Trace, is_library
from pullback_runtime.function import Function
from pullback_runtime.spots import Spot

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "Pow": operator.pow, "MatMult": operator.matmul, "BitAnd": operator.and_, "BitOr": operator.or_,
    "BitXor": operator.xor, "LShift": operator.lshift, "RShift": operator.rshift,
}  # fmt: skip
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd, "Sub": operator.isub, "Mult": operator.imul, "Div": operator.itruediv, "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod, "Pow": operator.ipow, "MatMult": operator.imatmul, "BitAnd": operator.iand, "BitOr": operator.ior,
    "BitXor": operator.ixor, "LShift": operator.ilshift, "RShift": operator.irshift,
}  # fmt: skip
MAX_RECURSION = 6  # calls of a function within itself, each in a block of the one before
_FILES = ("load", "loadtxt", "save", "savez", "savez_compressed", "savetxt", "genfromtxt", "fromfile", "tofile", "memmap")


def contains_traced(x: Any) -> bool:
    if isinstance(x, (Array, Length)):
        return True
    if isinstance(x, slice):
        return contains_traced((x.start, x.stop, x.step))
    if isinstance(x, (list, tuple)):
        return any(contains_traced(part) for part in x)
    return isinstance(x, dict) and any(contains_traced(part) for part in x.values())


def is_append(function: Any) -> bool:
    return type(function.__self__) is list and function.__name__ == "append"


class Session:
    """One trace of a Python function: its captures, and the functions that were entered."""

    def __init__(self, trace: Trace, root: Any = None):
        self.trace = trace
        self.captures = Captures(trace)
        self.root = root
        self.entered: dict[int, tuple[Any, Callable[..., Any]]] = {}
        self.calls: dict[int, list[int]] = {}  # by code: in how many regions each call of it that is under way was made
        self.tries = 0  # how many try statements are being done

    # -- functions --------------------------------------------------------------------------------------------------
    def enter(self, function: Any, path: str = "") -> Callable[..., Any]:
        """The function with hooks, defaults captured."""
        found = self.entered.get(id(function))
        if found is None:
            hooks = Hooks(self, function)
            made = rewritten(function, hooks) or hooks.copied()
            name = path or function.__name__
            if function is self.root:  # whose arguments are all given
                self.entered[id(function)] = (function, made)
                return made
            if function.__defaults__ is not None:
                made.__defaults__ = tuple(
                    self.captures(v, f"default {k} of {name}", functools.partial(_default, function, k))
                    for k, v in enumerate(function.__defaults__)
                )
            if function.__kwdefaults__ is not None:
                made.__kwdefaults__ = {
                    k: self.captures(v, f"default {k} of {name}", functools.partial(_keyword_default, function, k))
                    for k, v in function.__kwdefaults__.items()
                }
            found = self.entered[id(function)] = (function, made)
        return found[1]

    def enterable(self, function: Any) -> bool:
        """A plain Python function of the user's: not of a library, not already rewritten."""
        if not isinstance(function, types.FunctionType) or any(function is made for _, made in self.entered.values()):
            return False
        name = function.__code__.co_filename
        return not is_library(name) and not name.startswith(_STANDARD_LIBRARY) and not is_rewritten(function)

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(function) is types.BuiltinFunctionType and len(args) == 1 and type(args[0]) is Array and is_append(function):
            return function(args[0])  # the ordinary case
        found = BUILTINS.get(id(function))
        if found is not None:
            return found(self, *args, **kwargs)
        name = library.name_of(function)
        if name is not None and kwargs and isinstance(function, np.ufunc):
            return library.call_ufunc(function, "__call__", args, kwargs)
        if name is not None:
            return library.call(name, args, kwargs)
        if isinstance(function, types.FunctionType):
            return self._function(function, args, kwargs)
        if isinstance(function, types.MethodType) and self.enterable(function.__func__):
            return self.enter(function.__func__)(function.__self__, *args, **kwargs)
        if isinstance(function, functools.partial):
            return self.call(function.func, (*function.args, *args), {**function.keywords, **kwargs})
        if isinstance(function, type):
            return self._construct(function, args, kwargs)
        if isinstance(function, Function):
            return function(*args, **kwargs)  # which asks inlining.trace_hook
        if isinstance(function, functools._lru_cache_wrapper) and (contains_traced(args) or contains_traced(kwargs)):
            return self.call(function.__wrapped__, args, kwargs)
        special = _class_attribute(type(function), "__call__")
        if self.enterable(special):
            return self.enter(special)(function, *args, **kwargs)
        return self._foreign(function, args, kwargs)

    def _function(self, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        depths = self.calls.setdefault(id(function.__code__), [])
        self._count_call(function, depths)
        try:
            if self.enterable(function):
                return self.enter(function)(*args, **kwargs)
            return self._foreign(function, args, kwargs)
        finally:
            depths.pop()

    def _count_call(self, function: types.FunctionType, depths: list[int]) -> None:
        """A function that calls itself within a branch that is traced either way would never come to an end."""
        depth, region = 0, self.trace.region
        while region is not None:
            depth, region = depth + 1, region.parent
        if len(depths) >= MAX_RECURSION and all(a < b for a, b in itertools.pairwise([*depths[-MAX_RECURSION:], depth])):
            raise self.trace.error(
                TraceError,
                f"{function.__name__} calls itself under a condition that is known only when the function runs",
                "write it as a loop",
            )
        depths.append(depth)

    def _construct(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Instances of the user's classes, whose ``__init__`` is entered."""
        start = _class_attribute(kind, "__init__")
        if type(kind) is type and _class_attribute(kind, "__new__") is object.__new__ and self.enterable(start):
            made = object.__new__(kind)
            self.enter(start)(made, *args, **kwargs)
            return made
        return self._foreign(kind, args, kwargs)

    def _foreign(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that is not rewritten: it sees traced arrays only through NumPy's protocols."""
        self._refuse_impure(function)
        traced = contains_traced(args) or contains_traced(kwargs)
        module = getattr(function, "__module__", None) or ""
        of_array = isinstance(getattr(function, "__self__", None), Array)
        if traced and module.partition(".")[0] in ("numpy", "scipy") and not isinstance(function, type) and not of_array:
            return self._of_library(function, module, args, kwargs)
        args = tuple(self.callable_argument(a) for a in args)
        result = function(*args, **{k: self.callable_argument(v) for k, v in kwargs.items()})
        owner = getattr(function, "__self__", None)
        found = None if owner is None or traced else self.captures.path_of(owner)
        if found is not None and not isinstance(owner, types.ModuleType):
            path, read = found
            attribute = function.__name__
            return self.captures(result, f"{path}.{attribute}(...)", lambda: getattr(read(), attribute)(*args, **kwargs))
        return result

    def _of_library(self, function: Any, module: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of NumPy's or SciPy's without a rule: written in Python over supported ones it may trace all the same."""
        if isinstance(function, (np.ufunc, types.BuiltinFunctionType)) or module.startswith("numpy"):
            raise library.unsupported(f"{module}.{getattr(function, '__name__', '?')}")
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError, AttributeError) as error:
            raise library.unsupported(f"{module}.{getattr(function, '__name__', '?')}") from error

    def callable_argument(self, x: Any) -> Any:
        """A user's function that is handed to a foreign one (``map``, ``functools.reduce``) is entered when it is called."""
        if self.enterable(x):
            return self.enter(x)
        if isinstance(x, types.MethodType) and self.enterable(x.__func__):
            return functools.partial(self.enter(x.__func__), x.__self__)
        if not isinstance(x, type) and library.name_of(x) is not None:
            return functools.partial(_library_call, x)
        return x

    def _refuse_impure(self, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", None) or ""
        name = getattr(function, "__name__", "")
        what = None
        if (
            isinstance(owner, (random.Random, np.random.RandomState, np.random.Generator))
            or str(module).startswith("numpy.random")
            or function in (np.random.default_rng, np.random.RandomState)
            or module in ("random", "secrets")
        ):
            what, remedy = "draws random numbers", "draw them outside and pass them as an argument"
        elif module == "time" or (name in ("now", "today", "utcnow") and getattr(owner, "__module__", "") == "datetime"):
            what, remedy = "reads the clock", "read it outside and pass it as an argument"
        elif function in (builtins.open, builtins.input) or (module.startswith("numpy") and name in _FILES):
            what, remedy = "reads or writes files", "do that outside the compiled function"
        if what is not None:
            raise self.trace.error(
                TraceError, f"{name or function} {what}, which would happen once while tracing and never again", remedy
            )


def _default(function: types.FunctionType, k: int) -> Any:
    assert function.__defaults__ is not None
    return function.__defaults__[k]


def _keyword_default(function: Any, k: str) -> Any:
    return function.__kwdefaults__[k]


def _library_call(function: Any, *args: Any, **kwargs: Any) -> Any:
    return library.call_object(function, args, kwargs)


_STANDARD_LIBRARY = functools.__file__.rpartition("functools")[0]


class Hooks(ControlHooks):
    """The hooks of one function: it knows the function's globals and closure."""

    def __init__(self, session: Session, function: types.FunctionType):
        self.session = session
        self.trace = session.trace
        self.function = function
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    # -- names ------------------------------------------------------------------------------------------------------
    def outer(self, name: str) -> Any:
        """A name from outside the function: of the function around it, global, or builtin."""
        cell = self.cells.get(name)
        if cell is not None:
            try:
                value = cell.cell_contents
            except ValueError:
                raise NameError(f"cannot access free variable {name!r} where it is not associated with a value") from None
            return self.session.captures(value, f"closure {name}", Spot(cell))
        space = self.function.__globals__
        if name in space:
            return self.session.captures(space[name], f"global {name}", Spot(space, name))
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"name {name!r} is not defined")

    def attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, (Array, Length)) or type(owner) is list:
            return getattr(owner, name)
        found = _class_attribute(type(owner), name)
        if isinstance(found, property) and self.session.enterable(found.fget):
            return self.session.enter(found.fget)(owner)
        value = getattr(owner, name)
        return self.session.captures.attribute(owner, name, value)

    # -- calls ------------------------------------------------------------------------------------------------------
    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self.session.call(function, args, kwargs)

    # -- items ------------------------------------------------------------------------------------------------------
    @staticmethod
    def slice(start: Any, stop: Any, step: Any) -> Any:
        return builtins.slice(start, stop, step)

    def item(self, owner: Any, key: Any) -> Any:
        if type(owner) is list and type(key) is int and owner and type(owner[0]) is Array:
            return owner[key]  # the ordinary case
        if isinstance(owner, np.ndarray) and contains_traced(key):
            return wrap(owner)[key]
        if type(owner) is list and owner and isinstance(owner[0], Items):
            return item_of(owner, key)
        if type(owner) in (list, tuple) and isinstance(key, Array) and key.known is None and key.ndim == 0:
            return self._chosen(owner, key)
        if owner is np.r_ or owner is np.c_:
            return library.join_by_brackets(owner is np.c_, key)
        special = getattr(type(owner), "__getitem__", None)
        if self.session.enterable(special):
            return self.session.enter(special)(owner, key)
        value = owner[key]
        return value if isinstance(owner, (Array, list, tuple, dict)) else self.session.captures.item(owner, key, value)

    def _chosen(self, items: Any, key: Array) -> Any:
        """An item of a list of numbers or arrays at a traced index: read from an array of them all."""
        if not items or not all(isinstance(x, (Array, Length, bool, int, float, np.number, np.ndarray)) for x in items):
            raise self.trace.error(
                TraceError,
                f"a {type(items).__name__} is indexed by a traced value, which takes numbers or arrays of one shape in it",
                "use an array, or loop over the items",
            )
        picked = library.call("numpy.array", (items,))[key]
        if all(is_weak(x) for x in items):
            picked.weak = True
        return picked

    def store(self, value: Any, owner: Any, key: Any) -> None:
        if isinstance(owner, np.ndarray) and (contains_traced(value) or contains_traced(key)):
            raise self.trace.error(
                TraceError,
                "a traced value is stored in an array that is not traced",
                "make the array in the traced function with np.zeros, np.array and the like, or copy it: y = np.array(x)",
            )
        if isinstance(owner, np.ndarray) or self.session.captures.path_of(owner) is not None:
            self._refuse_effect("an item of an object from outside")
        owner[key] = value

    def update(self, owner: Any, key: Any, name: str, value: Any) -> None:
        """``owner[key] op= value``."""
        if isinstance(owner, Array):
            from pullback.frontends.indexing import store

            store(owner, key, _OPERATORS[name](owner[key], value), in_place=True)
            return
        self.store(_IN_PLACE[name](self.item(owner, key), value), owner, key)

    @staticmethod
    def augmented(name: str, old: Any, value: Any) -> Any:
        """``x op= value``: the new value of the variable."""
        return _IN_PLACE[name](old, value)

    def set_attribute(self, value: Any, owner: Any, name: str) -> None:
        if self.session.captures.path_of(owner) is not None:
            self._refuse_effect(f"the attribute {name!r} of an object from outside")
        setattr(owner, name, value)

    def update_attribute(self, owner: Any, attribute: str, name: str, value: Any) -> None:
        self.set_attribute(_IN_PLACE[name](self.attribute(owner, attribute), value), owner, attribute)

    def _refuse_effect(self, what: str) -> None:
        raise self.trace.error(
            TraceError, f"the function sets {what}; a compiled function has no side effects", "return the new value instead"
        )

    # -- code without source ----------------------------------------------------------------------------------------
    def copied(self) -> types.FunctionType:
        """The function over globals in which NumPy, SciPy, ``math``, the builtins and all captured names are hooked."""
        from pullback.frontends.proxies import hooked

        function = self.function
        code = function.__code__
        if any(op in _opcodes(code) for op in ("STORE_GLOBAL", "DELETE_GLOBAL")):
            raise self.trace.error(TraceError, f"{function.__name__} assigns global names", "return the values instead")
        space: dict[str, Any] = {}
        for name in dict.fromkeys(names_of(code)):
            if name in function.__globals__:
                space[name] = hooked(self, self.outer(name))
        space["__builtins__"] = {
            **vars(builtins),
            **{k: hooked(self, v) for k, v in vars(builtins).items() if id(v) in BUILTINS},
        }
        space["__name__"] = function.__globals__.get("__name__", "")
        cells = tuple(types.CellType(hooked(self, self.outer(name))) for name in code.co_freevars)
        return types.FunctionType(code, space, function.__name__, function.__defaults__, cells)


def _opcodes(code: types.CodeType) -> set[str]:
    import dis

    found = {instruction.opname for instruction in dis.get_instructions(code)}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _opcodes(constant)
    return found


def _class_attribute(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


__all__ = ["Hooks", "Session", "UnsupportedError", "contains_traced"]
