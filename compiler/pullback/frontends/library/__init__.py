"""The supported functions of NumPy, SciPy and ``math``, in one table by name.

Every frontend that evaluates calls does it through :func:`call`, so that the same expression gives the same IR whether it was
written as a Python function or in an expression file.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.errors import ShapeError, TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library import arrange, create, differences, elementwise, index, reduce, shape
from pullback.frontends.library import contract as contract
from pullback.frontends.library import linalg as linalg
from pullback.frontends.library import special as special
from pullback.frontends.library import spectral as spectral
from pullback.frontends.promote import quick
from pullback.frontends.sizes import Length
from pullback.frontends.staging_lists import has_stacked, through
from pullback.frontends.trace import current
from pullback.ir.ops.base import TypeMismatch
from pullback.ir.types import FROM_NUMPY

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **elementwise.FUNCTIONS,
    **elementwise.MATH,
    **reduce.FUNCTIONS,
    **create.FUNCTIONS,
    **shape.FUNCTIONS,
    **index.FUNCTIONS,
    **arrange.FUNCTIONS,
    **differences.FUNCTIONS,
    **contract.FUNCTIONS,
    **linalg.FUNCTIONS,
    **spectral.FUNCTIONS,
    **special.FUNCTIONS,
}
CREATORS = create.CREATORS  # make arrays of their own even from plain numbers
VIEWS = shape.VIEWS  # their result looks into their argument
FOLD_LIMIT = 1024  # elements up to which functions of constants are done while tracing

__all__ = ["FUNCTIONS", "call", "call_object", "call_ufunc", "join_by_brackets", "name_of", "plain", "unsupported"]


# -- calls ----------------------------------------------------------------------------------------------------------
def call(name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """A function of the table, by its full name (``numpy.sum``, ``math.sin``, ``scipy.special.erf``)."""
    if not kwargs:
        found = quick(name, args)
        if found is not None:
            return found
    kwargs = kwargs or {}
    if has_stacked(args, kwargs):
        return through(name, args, kwargs)
    function = FUNCTIONS.get(name)
    if function is None:
        raise unsupported(name)
    if name not in CREATORS and name != "numpy.astype":  # which folds by itself, and takes no Python numbers in NumPy
        folded = _fold(name, args, kwargs)
        if folded is not None and name not in VIEWS:
            return folded
    else:
        folded = None
    try:
        result = function(*args, **kwargs)
    except TypeMismatch as error:
        raise current().error(ShapeError, f"{name}: {current().with_lengths(str(error))}") from None
    except TypeError:
        _check_arguments(name, function, args, kwargs)
        raise
    if isinstance(folded, Array) and isinstance(result, Array) and result.known is None and folded.known is not None:
        result.known = folded.known
    return result


def _check_arguments(name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """A call with arguments that the function here does not take."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        said = str(error)
        missing = re.search(r"missing a required argument: ('\w+')", said)
        if missing is not None:
            raise current().error(TraceError, f"{name} needs {missing[1]} too", "pass that argument") from None
        keyword = re.search(r"unexpected keyword argument '(\w+)'", said)
        what = f"{name}({keyword[1]}=...) is not supported" if keyword is not None else f"{name}: {said}"
        raise current().error(UnsupportedError, what, "leave that argument out") from None


def call_object(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function of NumPy's or SciPy's, by the object."""
    name = name_of(func)
    if name is None:
        raise unsupported(f"{getattr(func, '__module__', None) or 'numpy'}.{getattr(func, '__name__', repr(func))}")
    return call(name, args, kwargs)


_UFUNC_METHODS = {
    ("add", "at"): "numpy.add.at",
    ("subtract", "at"): "numpy.subtract.at",
    ("add", "reduce"): "numpy.sum",
    ("multiply", "reduce"): "numpy.prod",
    ("maximum", "reduce"): "numpy.max",
    ("minimum", "reduce"): "numpy.min",
    ("logical_and", "reduce"): "numpy.all",
    ("logical_or", "reduce"): "numpy.any",
    ("add", "accumulate"): "numpy.cumsum",
    ("multiply", "accumulate"): "numpy.cumprod",
    ("multiply", "outer"): "numpy.multiply.outer",
}


def call_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What NumPy hands over through ``__array_ufunc__``."""
    options = {k: v for k, v in kwargs.items() if not (k == "out" and v is None)}
    if method == "__call__":
        out = options.pop("out", None)
        dtype, condition = options.pop("dtype", None), options.pop("where", True)
        if condition is not True:
            raise current().error(
                UnsupportedError, f"np.{ufunc.__name__}(where=...) is not supported", "use np.where on the result"
            )
        if dtype is not None:  # the type in which it is computed
            inputs = [call("numpy.astype", (x, dtype)) for x in inputs]
        result = call_object(ufunc, inputs, options)
        result = result if dtype is None else call("numpy.astype", (result, dtype))
        return result if out is None else _into(out, result)
    name = _UFUNC_METHODS.get((ufunc.__name__, method))
    if name is None or name not in FUNCTIONS:
        raise unsupported(f"numpy.{ufunc.__name__}.{method}")
    if method in ("reduce", "accumulate"):
        options.setdefault("axis", 0)
    return call(name, inputs, options)


def _into(out: Any, result: Any) -> Any:
    """``out=`` of a traced array is a store."""
    (target,) = out if isinstance(out, tuple) else (out,)
    if not isinstance(target, Array):
        raise current().error(UnsupportedError, "out= must be an array made in the traced function", "use the returned value")
    target[...] = result
    return target


def join_by_brackets(columns: bool, key: Any) -> Any:
    """``np.r_[a, 1.0, 0:3]`` and ``np.c_[a, b]`` of arrays, numbers and slices."""
    parts = []
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, str):
            raise current().error(UnsupportedError, "np.r_ with a string is not supported", "use np.concatenate or np.stack")
        if isinstance(part, slice):
            low, step = part.start or 0, 1 if part.step is None else part.step
            counted = isinstance(step, complex)
            part = (
                call("numpy.linspace", (low, part.stop, int(abs(step))))
                if counted
                else call("numpy.arange", (low, part.stop, step))
            )
        parts.append(call("numpy.atleast_1d", (part,)))
    if columns:
        parts = [call("numpy.reshape", (p, (-1, 1))) if p.ndim == 1 else p for p in parts]
    return call("numpy.concatenate", (parts,), {"axis": -1})


# -- constants ------------------------------------------------------------------------------------------------------
def _fold(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result where no argument is traced, by NumPy itself; None where one is."""
    values = [plain(arg) for arg in (*args, *kwargs.values())]
    if any(v is plain.TRACED for v in values):
        return None
    function = _resolve(name)
    if function is None:
        return None
    with np.errstate(all="ignore"):
        result = function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))
    return _constant(result)


class _Plain:
    """An argument as NumPy would see it, if it is a constant; ``TRACED`` if it is not."""

    TRACED = object()

    def __call__(self, x: Any) -> Any:
        if isinstance(x, Array):
            known = x.known
            if known is None or known.size > FOLD_LIMIT:
                return self.TRACED
            return known.item() if x.weak else known[()] if known.ndim == 0 else known
        if isinstance(x, Length) or (isinstance(x, np.ndarray) and x.size > FOLD_LIMIT):
            return self.TRACED
        if isinstance(x, slice):
            parts = [self(part) for part in (x.start, x.stop, x.step)]
            return self.TRACED if any(p is self.TRACED for p in parts) else slice(*parts)
        if type(x) in (list, tuple):
            parts = [self(part) for part in x]
            return self.TRACED if any(p is self.TRACED for p in parts) else type(x)(parts)
        return x


plain = _Plain()


def _constant(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        return Array.constant(current(), result) if result.dtype in FROM_NUMPY else None
    if isinstance(result, (list, tuple)):
        parts = [_constant(part) for part in result]
        return None if any(p is None for p in parts) else type(result)(parts) if type(result) in (list, tuple) else tuple(parts)
    return result


# -- names ----------------------------------------------------------------------------------------------------------
@functools.cache
def _resolve(name: str) -> Any:
    root, *rest = name.split(".")
    try:
        found: Any = importlib.import_module(root)
    except ImportError:
        return None
    path = root
    for part in rest:
        path = f"{path}.{part}"
        if not hasattr(found, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return None
        found = getattr(found, part, None)
    return found


_BY_OBJECT: dict[int, str] = {}
_RESOLVED: set[str] = set()


def name_of(func: Any) -> str | None:
    """The table's name for a function object, or None. Never imports a library that is not imported yet."""
    known = _BY_OBJECT.get(id(func))  # whose objects live as long as the process
    if known is not None:
        return known
    owner = getattr(func, "__self__", None)
    if owner is not None and (getattr(type(owner), "__module__", None) or "").startswith("scipy.stats"):
        name = f"scipy.stats.{getattr(owner, 'name', '')}.{func.__name__}"
        return name if name in FUNCTIONS else None
    if not isinstance(func, np.ufunc):
        module = getattr(func, "__module__", None)
        if not isinstance(module, str) or module.partition(".")[0] not in ("numpy", "scipy", "math", "builtins"):
            return None
    if not _RESOLVED.issuperset(FUNCTIONS):
        for name in FUNCTIONS:
            if name not in _RESOLVED and name.rpartition(".")[0] in sys.modules:
                _RESOLVED.add(name)
                target = _resolve(name)
                if target is not None:
                    _BY_OBJECT.setdefault(id(target), name)
    return _BY_OBJECT.get(id(func))


def unsupported(name: str) -> Exception:
    """The error for a function that has no rule, with the nearest that have."""
    module, _, last = name.rpartition(".")
    beside: dict[str, str] = {}
    anywhere: dict[str, str] = {}
    for known in FUNCTIONS:
        home, _, short = known.rpartition(".")
        if home.partition(".")[0] != "pullback":  # which are names for the inside
            anywhere.setdefault(short, known)
            if home == module:
                beside[short] = known
    near = [beside[n] for n in difflib.get_close_matches(last, beside, n=3, cutoff=0.7)]
    near += [anywhere[n] for n in difflib.get_close_matches(last, anywhere, n=3, cutoff=0.85) if n not in beside]
    if not near:
        hint = ""
    else:
        hint = f"the nearest supported {'one is' if len(near) == 1 else 'ones are'} {', '.join(near)}; "
    return current().error(UnsupportedError, f"{name} is not supported", f"{hint}write it with supported functions")
