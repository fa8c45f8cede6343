"""Running the IR over numbers that are objects: SymPy expressions (``symbolic.py``) or many digits (``precise.py``).

Floating values are object arrays; integers and booleans stay NumPy arrays as long as they are known numbers. Each element of
an elementwise op or a reduction is made by the record's ``sympy`` meaning over a namespace ``sp``; ops that only move elements
do so through their NumPy meaning, which does not care what the elements are.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.ir.core import Builder, Func, Instr
from pullback.ir.interp import Machine, bind
from pullback.ir.ops.base import Attrs, Decompose, Elementwise
from pullback.ir.ops.linalg import OPS as LINALG
from pullback.ir.ops.matrix_functions import OPS as FUNCTIONS
from pullback.ir.ops.reduce import kept_axes
from pullback.ir.ops.spectral import OPS as SPECTRAL
from pullback.ir.types import DTYPES

ROUNDED = {*SPECTRAL, *FUNCTIONS}  # ops whose meaning is NumPy's, in floating point


def boxed(value: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An object array of ``shape`` around what a ufunc over objects gives: an array, or the bare element for rank 0."""
    array = np.empty(shape, object)
    array[...] = value
    return array


def boxed_as(elements: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An object array of ``shape`` from its elements in C order."""
    made = np.empty(len(elements), object)
    made[:] = elements
    return made.reshape(shape)


def is_known(value: Any) -> bool:
    """Whether a value is made of NumPy's own integers, booleans or floats."""
    return np.asarray(value).dtype != object


class Exact(Machine):
    """The interpreter with object arrays for floating values. ``budget`` bounds how many elements may be computed."""

    sp: Any  # the namespace of SymPy's names

    def __init__(self, sizes: dict[str, int], budget: int, watch: Callable[[Instr, tuple[Any, ...]], None] | None = None):
        super().__init__(sizes, watch)
        self.budget = budget

    # -- what the numbers are -----------------------------------------------------------------------------------------
    def number_of(self, value: Any) -> Any:
        """A NumPy number as one of ours."""
        raise TypeError("a subclass says what numbers are")

    def element(self, instr: Instr, meaning: Callable[..., Any], elements: Sequence[Any], attrs: Attrs) -> Any:
        """One element of an elementwise op."""
        raise TypeError("a subclass says how elements are computed")

    def reduced(self, instr: Instr, elements: list[Any], attrs: Attrs) -> Any:
        """One element of a reduction."""
        assert instr.op.sympy is not None
        return instr.op.sympy(self.sp, elements, attrs)

    def refuse(self, instr: Instr, why: str) -> UnsupportedError:
        return UnsupportedError(f"{instr.loc}: '{instr.op.name}' cannot be written exactly: {why}")

    # -- the walk -----------------------------------------------------------------------------------------------------
    def lift(self, array: Any) -> np.ndarray[Any, Any]:
        """A floating NumPy array as an object array of our numbers; integers and booleans as they are."""
        values: np.ndarray[Any, Any] = np.asarray(array)
        if values.dtype.kind != "f":
            return values
        return boxed_as([self.number_of(x) for x in values.ravel()], values.shape)

    def compare(self, instr: Instr, results: Sequence[Any]) -> None:
        """Types are the plain interpreter's business."""

    def spend(self, instr: Instr, count: int) -> None:
        self.budget -= count
        if self.budget < 0:
            raise self.refuse(instr, "the function computes too many elements for it; check a smaller case")

    def compute(self, instr: Instr, args: tuple[Any, ...]) -> tuple[Any, ...]:
        op = instr.op
        attrs = {name: self.attribute(value) for name, value in instr.attrs.items()}
        if op.name == "const":
            return (self.lift(attrs["value"]),)
        if op.name == "convert":
            return (self.convert(instr, args[0], attrs["dtype"]),)
        known = all(map(is_known, args))
        if isinstance(op, Elementwise):
            if known and not instr.out.type.is_float:
                return (np.asarray(op.numpy(*args, **attrs), instr.out.type.dtype.numpy),)
            return (self.elementwise(instr, op, args, attrs),)
        if op.sympy is not None and not known:
            return (self.reduce(instr, args[0], attrs),)
        if op.name == "contract" and not known:
            self.spend(instr, sum(np.size(a) for a in args) + _contracted(args, attrs))
        if op.evaluate is None:
            raise self.refuse(instr, "it has no such meaning")
        self.spend(instr, max((np.size(a) for a in args), default=1))
        if op.name in ROUNDED and not known:  # NumPy would round what it is given
            return self.decomposed(instr)
        try:
            made = op.evaluate(self.indices(instr, args), attrs)
        except TypeError:  # a choice that these numbers do not decide
            return self.decomposed(instr)
        if isinstance(made, np.ndarray) and made.dtype == object and op.name in LINALG:  # which begin with NumPy's zeros
            made = boxed_as([self.number_of(x) if isinstance(x, (int, float)) else x for x in made.ravel()], made.shape)
        return (made if isinstance(made, np.ndarray) else boxed(made, ()) if not is_known(made) else np.asarray(made),)

    def decomposed(self, instr: Instr) -> tuple[Any, ...]:
        """An op by those that it stands for, if it does for any."""
        if not isinstance(instr.op.lower, Decompose):
            raise self.refuse(instr, "it is computed in floating point only, and where these numbers lead is not known")
        b = Builder()
        found = instr.op.lower.build(b, instr)
        for inner in b.body:
            self.values.update(zip(inner.outs, self.instr(inner), strict=True))
        return (self.values[found],)

    def indices(self, instr: Instr, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, after seeing that integers and booleans among them are numbers."""
        for arg, value in zip(args, instr.args, strict=True):
            if not is_known(arg) and value.type.dtype.kind == "i":
                raise self.refuse(instr, "its indices depend on values")
        return args

    def elementwise(self, instr: Instr, op: Elementwise, args: tuple[Any, ...], attrs: Attrs) -> np.ndarray[Any, Any]:
        meaning = op.sympy
        if meaning is None:
            return self.without_meaning(instr, args, attrs)
        shape = np.shape(args[0])
        self.spend(instr, int(np.prod(shape)))
        objects = [a if not is_known(a) else np.asarray(a).astype(object) for a in args]
        function = np.frompyfunc(lambda *xs: self.element(instr, meaning, xs, attrs), len(args), 1)
        made = boxed(function(*objects), shape)
        return made if instr.out.type.is_float else self.settled(made, instr.out.type.dtype.numpy)

    def without_meaning(self, instr: Instr, args: tuple[Any, ...], attrs: Attrs) -> np.ndarray[Any, Any]:
        raise self.refuse(instr, "it has no SymPy meaning")

    def settled(self, made: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """Integers and booleans as a NumPy array, if they are numbers."""
        return made.astype(dtype)

    def reduce(self, instr: Instr, x: Any, attrs: Attrs) -> np.ndarray[Any, Any]:
        axes = attrs["axes"]
        kept = kept_axes(x.ndim, axes)
        self.spend(instr, x.size)
        shape = tuple(x.shape[k] for k in kept)
        rows = (
            np.transpose(x, (*kept, *axes)).reshape(int(np.prod(shape)), -1)
            if x.size
            else np.empty((int(np.prod(shape)), 0), object)
        )
        made = boxed_as([self.reduced(instr, list(row), attrs) for row in rows], shape)
        return made if instr.out.type.is_float else self.settled(made, instr.out.type.dtype.numpy)

    def convert(self, instr: Instr, x: Any, dtype: str) -> np.ndarray[Any, Any]:
        wanted = DTYPES[dtype]
        if wanted.kind == "f":
            if not is_known(x):
                return x if instr.args[0].type.is_float else self.numbers_of_truths(x)
            return self.lift(np.asarray(x).astype(np.float64))
        if is_known(x):
            return np.asarray(x).astype(wanted.numpy)
        return self.truncated(instr, x, wanted.numpy)

    def numbers_of_truths(self, x: Any) -> np.ndarray[Any, Any]:
        one, zero = self.number_of(1), self.number_of(0)
        return boxed(np.frompyfunc(lambda c: self.sp.Piecewise((one, c), (zero, True)), 1, 1)(x), x.shape)

    def truncated(self, instr: Instr, x: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        raise self.refuse(instr, "the integer depends on values")

    def call(self, func: Func, args: Sequence[Any]) -> tuple[np.ndarray[Any, Any], ...]:
        self.values.update(zip(func.params, args, strict=True))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # from the float64 meaning at edges
            return tuple(np.asarray(r) for r in self.block(func.block))


def _contracted(args: tuple[Any, ...], attrs: Attrs) -> int:
    """How many products a contraction forms."""
    x, y = args
    (_, by), (_, cy) = attrs["batch"], attrs["axes"]
    return int(x.size * np.prod([n for k, n in enumerate(y.shape) if k not in by and k not in cy]))


def sizes_for(func: Func, shapes: Sequence[tuple[int, ...]] | None) -> dict[str, int]:
    """The symbols' values for arguments of these shapes."""
    if shapes is not None:
        return bind(func, shapes, {})
    symbolic = sorted({str(n) for p in func.params for n in p.type.shape if not isinstance(n, int)})
    if symbolic:
        raise UnsupportedError(
            f"the arguments of {func.name} have symbolic lengths ({', '.join(symbolic)}); to write it out, give their shapes"
        )
    return {}


def places(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All indices of an array, in C order."""
    return list(itertools.product(*map(range, shape)))
