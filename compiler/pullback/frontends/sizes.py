"""``x.shape[0]`` while tracing: an integer that depends on the lengths of the arguments."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import numpy as np

from pullback.errors import TraceError
from pullback.frontends.trace import Trace
from pullback.ir.dims import Dim, Size, floordiv


class Length:
    """A symbolic length. Arithmetic with integers gives lengths; with anything else it is a traced integer.

    Comparisons are decided for the arguments at hand and guarded; ``int(n)`` binds the trace to the number.
    """

    __slots__ = ("_size", "context")

    def __init__(self, trace: Trace, size: Dim):
        self.context = trace
        self._size: Size = size

    @property
    def size(self) -> Size:
        return self.context.canonical(self._size)

    def _other(self, other: Any) -> Size | None:
        if isinstance(other, Length):
            return other.size
        if isinstance(other, int) and not isinstance(other, bool):
            return other
        return None

    def _array(self) -> Any:
        from pullback.frontends.array import Array

        return Array.of_size(self.context, self.size)

    # -- arithmetic -------------------------------------------------------------------------------------------------
    def __add__(self, other: Any) -> Any:
        size = self._other(other)
        return self._array() + other if size is None else of_size(self.context, self.size + size)

    def __radd__(self, other: Any) -> Any:
        return self + other if self._other(other) is not None else other + self._array()

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, (list, tuple)):
            return other * int(self)
        size = self._other(other)
        return self._array() * other if size is None else of_size(self.context, self.size * size)

    def __rmul__(self, other: Any) -> Any:
        return self * other if self._other(other) is not None or isinstance(other, (list, tuple)) else other * self._array()

    def __sub__(self, other: Any) -> Any:
        size = self._other(other)
        return self._array() - other if size is None else of_size(self.context, self.size - size)

    def __rsub__(self, other: Any) -> Any:
        size = self._other(other)
        return other - self._array() if size is None else of_size(self.context, size - self.size)

    def __floordiv__(self, other: Any) -> Any:
        size = self._other(other)
        return self._array() // other if size is None else of_size(self.context, self._divide(self.size, size))

    def __rfloordiv__(self, other: Any) -> Any:
        size = self._other(other)
        return other // self._array() if size is None else of_size(self.context, self._divide(size, self.size))

    def __mod__(self, other: Any) -> Any:
        size = self._other(other)
        if size is None:
            return self._array() % other
        return of_size(self.context, self.size - self._divide(self.size, size) * size)

    def __rmod__(self, other: Any) -> Any:
        size = self._other(other)
        if size is None:
            return other % self._array()
        return of_size(self.context, size - self._divide(size, self.size) * self.size)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def _divide(self, a: Size, b: Size) -> Size:
        if self.context.decide(b, "==", 0):
            raise ZeroDivisionError("integer division or modulo by zero")
        return floordiv(a, b)

    def __truediv__(self, other: Any) -> Any:
        return self._array() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._array()

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and 0 <= other <= 8:
            power: Size = 1
            for _ in range(other):
                power = power * self.size
            return of_size(self.context, power)
        return self._array() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self._array()

    def __neg__(self) -> Any:
        return of_size(self.context, -1 * self.size)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    # -- comparisons ------------------------------------------------------------------------------------------------
    def _decide(self, other: Any, relation: str, swap: bool) -> Any:
        size = self._other(other)
        if size is None and isinstance(other, (float, np.floating)):
            return self._decide_number(float(other), relation, swap)
        if size is None:
            return NotImplemented
        return self.context.decide(size, relation, self.size) if swap else self.context.decide(self.size, relation, size)

    def _decide_number(self, other: float, relation: str, swap: bool) -> bool:
        """As between integers: ``n < 2.5`` is ``n < 3``."""
        if math.isnan(other):
            return False
        if math.isinf(other):
            return relation != "==" and (other > 0) is not swap
        if relation == "==":
            return other.is_integer() and self.context.decide(self.size, "==", int(other))
        up = swap is (relation == "<=")
        bound = math.ceil(other) if up else math.floor(other)
        return self.context.decide(bound, relation, self.size) if swap else self.context.decide(self.size, relation, bound)

    def __eq__(self, other: object) -> Any:
        return self._decide(other, "==", False)

    def __ne__(self, other: object) -> Any:
        answer = self._decide(other, "==", False)
        return answer if answer is NotImplemented else not answer

    def __lt__(self, other: Any) -> Any:
        return self._decide(other, "<", False)

    def __le__(self, other: Any) -> Any:
        return self._decide(other, "<=", False)

    def __gt__(self, other: Any) -> Any:
        return self._decide(other, "<", True)

    def __ge__(self, other: Any) -> Any:
        return self._decide(other, "<=", True)

    def __bool__(self) -> bool:
        return not self.context.decide(self.size, "==", 0)

    def __hash__(self) -> int:
        return hash(self.size)

    # -- conversions ------------------------------------------------------------------------------------------------
    def __int__(self) -> int:
        return self.context.number(self.size)

    __index__ = __int__

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise self.context.error(
            TraceError,
            f"the length {self} is symbolic while tracing and cannot become an array of NumPy's",
            "use it with np functions and operators directly, or bind the trace to it with int(n)",
        )

    def __str__(self) -> str:
        return str(self.size)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        args = [x._array() if isinstance(x, Length) else x for x in inputs]
        return self._array().__array_ufunc__(ufunc, method, *args, **kwargs)


def of_size(trace: Trace, size: Size) -> Any:
    """An int where the size is known, else a Length."""
    return size if isinstance(size, int) else Length(trace, size)


def to_size(value: Any) -> Size:
    """The size that an integer, a Length or NumPy integer stands for."""
    if isinstance(value, Length):
        return value.size
    return int(value.__index__())
