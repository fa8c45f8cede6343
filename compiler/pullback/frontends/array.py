"""The traced array: a value of the IR that behaves like a NumPy array.

Note [Writing to traced arrays]
A value of the IR never changes, an array of NumPy's does. An :class:`Array` that the function made is a cell: writing puts
another value into it. A view (a basic slice, ``.T``, ``reshape``) refers to the array it looks into, reads anew when that has
changed, and writes through to it. Where NumPy itself decides between a view and a copy by the layout in memory (``reshape``
or ``ravel`` of something that may not be contiguous), writing to either of the two is an error, never a guess.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pullback.errors import TraceError
from pullback.frontends.operators import binary, call, in_place, method, reflected, unary
from pullback.frontends.sizes import of_size
from pullback.frontends.trace import Trace
from pullback.ir.core import Value
from pullback.ir.dims import Size
from pullback.ir.types import FROM_NUMPY, DType, Shape, Type

_VERSIONS = itertools.count(1)  # unique, so that a version that was undone is never taken for a later one
UNROLL_LIMIT = 10_000  # elements that iterating over an array unrolls into; more would not be a program any more


@dataclass(frozen=True, slots=True)
class View:
    """How an array looks into another: ``read(value)`` and ``write(value, new)`` translate between the two's values.

    ``exact``: False where NumPy would make a view or a copy depending on the layout.
    """

    base: Array
    read: Callable[[Value], Value]
    write: Callable[[Value, Value], Value] | None
    exact: bool = True


class Array:
    """A traced array or scalar. ``source`` says where the data is the caller's (and may not be written); "" for our own.

    ``known`` is the number itself, for constants and for integers computed from them: an index or a condition made of it is
    no traced value. ``region`` is the block that it was made in, None for the function's own (see staging_region.py).
    ``affine`` is what an integer is in terms of loops' indices, see staging_index.py. ``shared`` says why it must not be
    written to although it is the function's own: another name may or may not stand for it.
    """

    __slots__ = (
        "_constant",
        "_known",
        "_value",
        "_version",
        "affine",
        "alias",
        "context",
        "contiguous",
        "mutable_scalar",
        "region",
        "shared",
        "source",
        "weak",
    )
    __array_priority__ = 1000.0

    def __init__(
        self,
        trace: Trace,
        value: Value | None,
        *,
        weak: bool = False,
        known: np.ndarray[Any, Any] | None = None,
        source: str = "",
        alias: View | None = None,
        contiguous: bool = False,
    ):
        self.context = trace
        self.region = trace.region
        self._value = value
        self._version = 0 if alias is None else alias.base.version
        self._constant: np.ndarray[Any, Any] | None = None
        self.weak = weak
        self._known = known
        self.source = source
        self.alias = alias
        self.contiguous = contiguous
        self.mutable_scalar = False
        self.shared = ""
        self.affine: Size | None = None

    @staticmethod
    def constant(trace: Trace, data: np.ndarray[Any, Any], weak: bool = False) -> Array:
        """A constant; its instruction is made when it is needed, in the element type that is needed."""
        array = Array(trace, None, weak=weak, known=data, contiguous=True)
        array._constant = data
        return array

    @staticmethod
    def of_size(trace: Trace, size: Size) -> Array:
        """A length as a traced integer, weak as Python's integers are."""
        if isinstance(size, int):
            return Array.constant(trace, np.array(size, np.int64), weak=True)
        array = Array(trace, trace.here().dim(size), weak=True)
        array.affine = size
        return array

    # -- the value --------------------------------------------------------------------------------------------------
    @property
    def version(self) -> int:
        """How often the array, or the one it looks into, was written to."""
        return self._version if self.alias is None else self.alias.base.version

    @property
    def value(self) -> Value:
        self._check_place()
        if self.alias is not None and self._version != self.alias.base.version:
            if not self.alias.exact:
                raise self.context.error(
                    TraceError,
                    "whether this array sees the write to the one it was reshaped from depends on the layout in memory",
                    "copy before writing: y = x.reshape(...).copy()",
                )
            base = self.alias.base.value
            self._touch()
            self._value = self.alias.read(base)
            self._version, self._known, self._constant = self.alias.base.version, None, None
        if self._value is None:
            assert self._constant is not None
            self._touch()
            self._value = self.context.here().const(self._constant, FROM_NUMPY[self._constant.dtype])
        return self._value

    def _check_place(self) -> None:
        if self.context.finished:
            raise TraceError("a traced array is used after its function was traced; return it instead of storing it outside")
        if self.region is not None and self.region.closed:
            raise self.context.error(
                TraceError,
                f"a value that was made in {self.region.what} is used outside of it, where it may not exist",
                "assign it to a variable that has a value before, or store it in an array",
            )

    # -- what it holds, for regions ---------------------------------------------------------------------------------
    def _touch(self) -> None:
        """Before the contents change: a region that the array does not belong to undoes that when it is left."""
        region = self.context.region
        if region is not None and region is not self.region:
            region.keep(self)

    def contents(self) -> Any:
        return self._value, self._version, self._known, self._constant, self.shared

    def restore(self, contents: Any) -> None:
        self._value, self._version, self._known, self._constant, self.shared = contents

    def put(self, value: Value) -> None:
        """Make an array that is no view hold another value."""
        self._touch()
        self._value, self._known, self._constant = value, None, None
        self._version = next(_VERSIONS)

    def doubt(self, reason: str) -> None:
        """From here on it is read-only: another name may or may not stand for it."""
        self._touch()
        self.shared = self.shared or reason
        region = self.context.region
        if region is not None and region is not self.region:
            region.doubted[id(self)] = (self, self.shared)

    @property
    def root(self) -> Array:
        """The array whose memory this one shares; itself if it is no view."""
        array = self
        while array.alias is not None:
            array = array.alias.base
        return array

    @property
    def known(self) -> np.ndarray[Any, Any] | None:
        """The numbers themselves, where they depend on no input."""
        return self._known if self._version == self.version else None

    @known.setter
    def known(self, data: np.ndarray[Any, Any]) -> None:
        self._known = data

    def pending_constant(self) -> np.ndarray[Any, Any] | None:
        """The number of a constant whose instruction was not made yet."""
        return self._constant if self._value is None else None

    @property
    def type(self) -> Type:
        """The IR type; of a pending constant without making its instruction."""
        if self._constant is not None and self._value is None:
            return Type(FROM_NUMPY[self._constant.dtype], self._constant.shape)
        return self.value.type

    @property
    def dtype_(self) -> DType:
        return self.type.dtype

    def assign(self, value: Value) -> None:
        """Replace the contents, through to the array that this looks into."""
        if self.source:
            raise self.context.error(
                TraceError,
                f"{self.source} would be changed in place; a compiled function modifies nothing that it is given",
                "write to a copy: y = x.copy(), or build a new array",
            )
        if self.shared:
            raise self.context.error(TraceError, self.shared, "write to a copy: y = x.copy()")
        self._check_place()
        if self.alias is None:
            self.put(value)
            region = self.context.region
            if region is not None and region is not self.region:
                region.written[id(self)] = self
        else:
            if self.alias.write is None or not self.alias.exact:
                raise self.context.error(
                    TraceError,
                    "this array may be a view or a copy, depending on the layout in memory; writing is ambiguous",
                    "write to a copy: y = x.copy()",
                )
            self.alias.base.assign(self.alias.write(self.alias.base.value, value))
            self._touch()
            self._version = self.alias.base.version
            self._value, self._known, self._constant = value, None, None

    def look(
        self,
        read: Callable[[Value], Value],
        write: Callable[[Value, Value], Value] | None,
        exact: bool = True,
        contiguous: bool = False,
    ) -> Array:
        """A view of this array."""
        source = self.source if write is not None else self.source or "a read-only view"
        return Array(self.context, read(self.value), source=source, alias=View(self, read, write, exact), contiguous=contiguous)

    # -- what NumPy's arrays say of themselves ----------------------------------------------------------------------
    @property
    def symbolic_shape(self) -> Shape:
        return self.type.shape

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(of_size(self.context, n) for n in self.type.shape)

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Any:
        return of_size(self.context, self.type.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.dtype_.numpy

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def flat(self) -> Any:
        return call("numpy.ravel", self)

    @property
    def T(self) -> Array:
        return call("numpy.transpose", self)

    @property
    def mT(self) -> Array:
        return call("numpy.matrix_transpose", self)

    @property
    def real(self) -> Array:
        return self

    @property
    def imag(self) -> Array:
        return call("numpy.zeros_like", self)

    def __repr__(self) -> str:
        return f"<traced {self.type}>"

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._conversion("is formatted", "print it without a format, or return it and format the result")
        return repr(self)

    # -- conversions, which tracing cannot do ----------------------------------------------------------------------
    def _conversion(self, what: str, remedy: str) -> Exception:
        return self.context.error(TraceError, f"a traced value ({self.type}) {what} while the function is being traced", remedy)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise self._conversion(
            "is converted to a NumPy array",
            "it reached a function that works on numbers only; use NumPy's functions on it directly, or return it first",
        )

    def __float__(self) -> float:
        if self.known is not None and self.known.ndim == 0:
            return float(self.known)
        raise self._conversion("is converted to a Python float", "leave out float(); arithmetic on it needs no conversion")

    def __int__(self) -> int:
        if self.known is not None and self.known.ndim == 0:
            return int(self.known)
        raise self._conversion("is converted to a Python int", "use .astype(int) for a traced integer, or pass a static number")

    def __index__(self) -> int:
        if self.known is not None and self.known.ndim == 0 and self.known.dtype.kind in "ib":
            return int(self.known)
        raise self._conversion(
            "is used as a Python index or a count",
            "index arrays with it (x[i]) or use np.take; take a count from outside the function, or from a shape: x.shape[0]",
        )

    def __bool__(self) -> bool:
        if self.known is not None and self.known.size == 1:
            return bool(self.known)
        raise self.context.error(
            TraceError,
            f"a traced value ({self.type}) decides an if, while, and, or or not in code that cannot be rewritten",
            "Python's if and while need the source text of the function; without it use np.where(condition, a, b), "
            "pb.cond(condition, then, other, *operands) or pb.while_loop(test, body, start)",
        )

    def __complex__(self) -> complex:
        raise self._conversion("is converted to a Python complex", "only real numbers are supported")

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.context.number(self.type.shape[0])

    def __iter__(self) -> Iterator[Array]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        length = self.context.number(self.type.shape[0], UNROLL_LIMIT)
        return iter([self[i] for i in range(length)])

    def __contains__(self, item: Any) -> NoReturn:
        raise self._conversion("is searched with `in`", "use np.any(x == item)")

    def tolist(self) -> Any:
        if self.known is not None:
            return self.known.tolist()
        return [part.tolist() for part in self] if self.ndim else self

    def item(self, *index: Any) -> Array:
        if index:
            return self[index[0] if len(index) == 1 else index]
        if math.prod(n if isinstance(n, int) else 2 for n in self.type.shape) != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        scalar = call("numpy.reshape", self, ())
        return Array(self.context, scalar.value, weak=True, known=scalar.known)

    def __copy__(self) -> Array:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Array:
        return self.copy()

    # -- indexing ---------------------------------------------------------------------------------------------------
    def __getitem__(self, index: Any) -> Array:
        from pullback.frontends.indexing import get

        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from pullback.frontends.indexing import store

        store(self, index, value)

    # -- NumPy's protocols ------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from pullback.frontends.library import call_ufunc

        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from pullback.frontends.library import call_object

        return call_object(func, args, kwargs)

    # -- operators --------------------------------------------------------------------------------------------------
    __add__ = binary("numpy.add")
    __radd__ = reflected("numpy.add")
    __iadd__ = in_place("numpy.add")
    __sub__ = binary("numpy.subtract")
    __rsub__ = reflected("numpy.subtract")
    __isub__ = in_place("numpy.subtract")
    __mul__ = binary("numpy.multiply")
    __rmul__ = reflected("numpy.multiply")
    __imul__ = in_place("numpy.multiply")
    __truediv__ = binary("numpy.divide")
    __rtruediv__ = reflected("numpy.divide")
    __itruediv__ = in_place("numpy.divide")
    __floordiv__ = binary("numpy.floor_divide")
    __rfloordiv__ = reflected("numpy.floor_divide")
    __ifloordiv__ = in_place("numpy.floor_divide")
    __mod__ = binary("numpy.remainder")
    __rmod__ = reflected("numpy.remainder")
    __imod__ = in_place("numpy.remainder")
    __divmod__ = binary("numpy.divmod")
    __rdivmod__ = reflected("numpy.divmod")
    __pow__ = binary("numpy.power")
    __rpow__ = reflected("numpy.power")
    __ipow__ = in_place("numpy.power")
    __matmul__ = binary("numpy.matmul")
    __rmatmul__ = reflected("numpy.matmul")
    __imatmul__ = in_place("numpy.matmul")
    __and__ = binary("numpy.bitwise_and")
    __rand__ = reflected("numpy.bitwise_and")
    __iand__ = in_place("numpy.bitwise_and")
    __or__ = binary("numpy.bitwise_or")
    __ror__ = reflected("numpy.bitwise_or")
    __ior__ = in_place("numpy.bitwise_or")
    __xor__ = binary("numpy.bitwise_xor")
    __rxor__ = reflected("numpy.bitwise_xor")
    __ixor__ = in_place("numpy.bitwise_xor")
    __lshift__ = binary("numpy.left_shift")
    __rlshift__ = reflected("numpy.left_shift")
    __ilshift__ = in_place("numpy.left_shift")
    __rshift__ = binary("numpy.right_shift")
    __rrshift__ = reflected("numpy.right_shift")
    __irshift__ = in_place("numpy.right_shift")
    __lt__ = binary("numpy.less")
    __le__ = binary("numpy.less_equal")
    __gt__ = binary("numpy.greater")
    __ge__ = binary("numpy.greater_equal")
    __eq__ = binary("numpy.equal")
    __ne__ = binary("numpy.not_equal")
    __neg__ = unary("numpy.negative")
    __pos__ = unary("numpy.positive")
    __abs__ = unary("numpy.absolute")
    __invert__ = unary("numpy.invert")
    __hash__ = None  # type: ignore[assignment]  # as NumPy's arrays

    # -- methods ----------------------------------------------------------------------------------------------------
    all = method("numpy.all")
    any = method("numpy.any")
    argmax = method("numpy.argmax")
    argmin = method("numpy.argmin")
    argsort = method("numpy.argsort")
    clip = method("numpy.clip")
    cumprod = method("numpy.cumprod")
    cumsum = method("numpy.cumsum")
    diagonal = method("numpy.diagonal")
    dot = method("numpy.dot")
    max = method("numpy.max")
    mean = method("numpy.mean")
    min = method("numpy.min")
    nonzero = method("numpy.nonzero")
    prod = method("numpy.prod")
    ptp = method("numpy.ptp")
    ravel = method("numpy.ravel")
    repeat = method("numpy.repeat")
    round = method("numpy.round")
    squeeze = method("numpy.squeeze")
    std = method("numpy.std")
    sum = method("numpy.sum")
    swapaxes = method("numpy.swapaxes")
    take = method("numpy.take")
    trace = method("numpy.trace")
    var = method("numpy.var")
    searchsorted = method("numpy.searchsorted")
    astype = method("numpy.astype")
    flatten = method("pullback.flatten")
    conj = conjugate = method("numpy.positive")

    def reshape(self, *shape: Any, order: str = "C") -> Array:
        return call("numpy.reshape", self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Array:
        if not axes or axes == (None,):
            return call("numpy.transpose", self)
        return call("numpy.transpose", self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)

    def copy(self, order: str = "C") -> Array:
        return call("pullback.copy", self)

    def fill(self, value: Any) -> None:
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        self[...] = call("numpy.sort", self, axis=axis)
