"""Evaluating a function with many digits: the IR run over mpmath's numbers.

The meaning of each op is its record's SymPy meaning, read over a namespace in which SymPy's names are functions of mpmath. At
points where real arithmetic has no answer (a pole, a logarithm of zero) the float64 meaning decides between inf and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.exact import Exact, boxed, boxed_as, sizes_for
from pullback.ir.core import Func, Instr
from pullback.ir.ops.base import Attrs, Elementwise

BUDGET = 400_000  # elements computed in one evaluation: some seconds
GUARD_DIGITS = 15  # computed beyond those asked for
SAME_NAMES = frozenset(
    "sin cos tan sec csc cot asin acos atan sinh cosh tanh asinh acosh atanh beta binomial erfinv lambertw".split()  # noqa: SIM905  # a list of names reads best as text
)


class Numbers:
    """SymPy's names as functions of mpmath's real numbers, right to ``digits`` digits and some more."""

    def __init__(self, digits: int):
        import mpmath  # comes with SymPy; only where many digits are used

        self.mp = mpmath.MPContext()  # our own: its precision is nobody else's
        self.mp.dps = digits + GUARD_DIGITS
        mp = self.mp
        self.pi, self.E, self.oo, self.nan = +mp.pi, +mp.e, mp.inf, mp.nan
        self.EulerGamma = +mp.euler
        self.Half = mp.mpf(1) / 2
        self.true, self.false = True, False
        self.S = self
        self.Abs, self.sqrt, self.exp, self.factorial = abs, mp.sqrt, mp.exp, mp.factorial
        self.sign, self.atan2, self.floor, self.ceiling = mp.sign, mp.atan2, mp.floor, mp.ceil
        self.gamma, self.erf, self.erfc, self.digamma = mp.gamma, mp.erf, mp.erfc, mp.digamma
        self.expm1, self.log1p = mp.expm1, mp.log1p
        self.Integer = self.Float = self.sympify = self.Number = self.number

    def __getattr__(self, name: str) -> Any:
        if name in SAME_NAMES:
            return getattr(self.mp, name)
        raise AttributeError(name)

    def number(self, value: Any) -> Any:
        if isinstance(value, (int, np.integer)):
            return self.mp.mpf(int(value))
        return self.mp.mpf(float(value)) if isinstance(value, (float, np.floating)) else value

    def Rational(self, p: Any, q: Any = 1) -> Any:
        return self.number(p) / self.number(q)

    # -- sums and choices ---------------------------------------------------------------------------------------------
    def Add(self, *terms: Any) -> Any:
        return self.mp.fsum(terms)

    def Mul(self, *factors: Any) -> Any:
        return self.mp.fprod(factors)

    def Pow(self, base: Any, exponent: Any) -> Any:
        return base**exponent

    def Max(self, *xs: Any) -> Any:
        return self.mp.nan if any(x != x for x in xs) else max(xs)

    def Min(self, *xs: Any) -> Any:
        return self.mp.nan if any(x != x for x in xs) else min(xs)

    def Piecewise(self, *branches: Any) -> Any:
        return next((value for value, condition in branches if condition), self.mp.nan)

    def ITE(self, condition: Any, yes: Any, no: Any) -> Any:
        return yes if condition else no

    def Eq(self, x: Any, y: Any) -> bool:
        return bool(x == y)

    def Ne(self, x: Any, y: Any) -> bool:
        return bool(x != y)

    def Lt(self, x: Any, y: Any) -> bool:
        return bool(x < y)

    def Le(self, x: Any, y: Any) -> bool:
        return bool(x <= y)

    def Gt(self, x: Any, y: Any) -> bool:
        return bool(x > y)

    def Ge(self, x: Any, y: Any) -> bool:
        return bool(x >= y)

    def And(self, *xs: Any) -> bool:
        return all(xs)

    def Or(self, *xs: Any) -> bool:
        return any(xs)

    def Not(self, x: Any) -> bool:
        return not x

    def Xor(self, *xs: Any) -> bool:
        return bool(sum(map(bool, xs)) % 2)

    # -- functions that mpmath has under another name, or for complex numbers ---------------------------------------------
    def log(self, x: Any, base: Any = None) -> Any:
        return self.mp.log(x) if base is None else self.mp.log(x) / self.mp.log(base)

    def cbrt(self, x: Any) -> Any:
        return self.real_root(x, 3)

    def root(self, x: Any, n: Any) -> Any:
        return self.mp.root(x, n)

    def real_root(self, x: Any, n: Any) -> Any:
        return -self.mp.root(-x, n) if x < 0 and int(n) % 2 else self.mp.root(x, n)

    def Heaviside(self, x: Any, at_zero: Any = None) -> Any:
        middle = self.Half if at_zero is None else at_zero
        return self.number(1) if x > 0 else self.number(0) if x < 0 else middle if x == 0 else self.mp.nan

    def Mod(self, x: Any, y: Any) -> Any:
        return x - y * self.mp.floor(x / y)

    def frac(self, x: Any) -> Any:
        return x - self.mp.floor(x)

    def loggamma(self, x: Any) -> Any:
        return self.mp.log(abs(self.mp.gamma(x))) if x < 0 else self.mp.loggamma(x)

    def polygamma(self, n: Any, x: Any) -> Any:
        return self.mp.polygamma(int(n), x)

    def sinc(self, x: Any) -> Any:
        return self.mp.sinc(x)

    def diff(self, function: Any, *rest: Any) -> Any:
        raise AttributeError("diff of symbols has no meaning for numbers")


class Precise(Exact):
    """The interpreter over mpmath's numbers."""

    def __init__(self, sizes: dict[str, int], numbers: Numbers, budget: int = BUDGET, watch: Any = None):
        super().__init__(sizes, budget, watch)
        self.sp: Numbers = numbers  # all numbers of a computation come from one

    def number_of(self, value: Any) -> Any:
        return self.sp.number(value)

    def element(self, instr: Instr, meaning: Callable[..., Any], elements: Sequence[Any], attrs: Attrs) -> Any:
        mp = self.sp.mp
        try:
            made = meaning(self.sp, *elements, **attrs)
        except AttributeError as error:
            raise self.refuse(instr, str(error)) from None
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            return self.at_an_edge(instr, elements, attrs)
        if isinstance(made, (bool, np.bool_)):
            return bool(made)
        if isinstance(made, mp.mpc):
            return self.at_an_edge(instr, elements, attrs)
        made = self.sp.number(made)
        return made if mp.isfinite(made) else self.at_an_edge(instr, elements, attrs)

    def at_an_edge(self, instr: Instr, elements: Sequence[Any], attrs: Attrs) -> Any:
        """Where the exact meaning has no finite value, what float64 makes of it."""
        assert isinstance(instr.op, Elementwise)
        with np.errstate(all="ignore"):
            plain = [np.float64(float(e)) if isinstance(e, self.sp.mp.mpf) else e for e in elements]
            return self.sp.number(np.asarray(instr.op.numpy(*plain, **attrs)).item())

    def reduced(self, instr: Instr, elements: list[Any], attrs: Attrs) -> Any:
        if not elements:
            return self.of_nothing(instr, attrs)
        try:
            made = super().reduced(instr, [self.sp.number(e) for e in elements], attrs)
        except (ZeroDivisionError, ValueError, OverflowError, TypeError):
            made = self.sp.mp.nan
        if isinstance(made, (bool, np.bool_)):
            return bool(made)
        made = self.sp.number(made)
        if not isinstance(made, self.sp.mp.mpc) and self.sp.mp.isfinite(made):
            return made
        return self._float_reduction(instr, np.array([float(e) for e in elements]), attrs)

    def of_nothing(self, instr: Instr, attrs: Attrs) -> Any:
        dtype = instr.args[0].type.dtype.numpy
        return self._float_reduction(instr, np.empty(0, dtype), attrs)

    def _float_reduction(self, instr: Instr, elements: np.ndarray[Any, Any], attrs: Attrs) -> Any:
        assert instr.op.evaluate is not None
        with np.errstate(all="ignore"):
            return self.sp.number(np.asarray(instr.op.evaluate((elements,), {**attrs, "axes": (0,)})).item())

    def without_meaning(self, instr: Instr, args: tuple[Any, ...], attrs: Attrs) -> np.ndarray[Any, Any]:
        """Questions such as isfinite are answered for the float64 number."""
        if instr.out.type.is_float:
            return super().without_meaning(instr, args, attrs)
        assert isinstance(instr.op, Elementwise)
        plain = [np.asarray(a).astype(np.float64) if v.type.is_float else a for a, v in zip(args, instr.args, strict=True)]
        return np.asarray(instr.op.numpy(*plain, **attrs))

    def truncated(self, instr: Instr, x: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if dtype.kind == "b":
            return boxed(np.frompyfunc(lambda v: bool(v != 0), 1, 1)(x), x.shape).astype(dtype)
        return boxed(np.frompyfunc(int, 1, 1)(x), x.shape).astype(dtype)


def evaluate(func: Func, args: Sequence[Any], digits: int = 50, budget: int = BUDGET) -> tuple[np.ndarray[Any, Any], ...]:
    """The results of ``func`` as object arrays of mpmath numbers, right to about ``digits`` digits.

    ``args`` are NumPy arrays, taken exactly, or object arrays of mpmath numbers. UnsupportedError where an op has no exact
    meaning or more than ``budget`` elements would be computed.
    """
    arrays = [np.asarray(a) for a in args]
    machine = Precise(sizes_for(func, [a.shape for a in arrays]), Numbers(digits), budget)
    lifted = [_argument(machine, a, p) for a, p in zip(arrays, func.params, strict=True)]
    try:
        return machine.call(func, lifted)
    except (IndexError, ValueError) as error:
        raise UnsupportedError(f"{func.name} cannot be evaluated with many digits here: {error}") from error


def _argument(machine: Precise, array: np.ndarray[Any, Any], param: Any) -> np.ndarray[Any, Any]:
    if array.dtype == object:
        return boxed_as([machine.sp.mp.mpf(x) for x in array.ravel()], array.shape)
    return machine.lift(array.astype(np.float64)) if param.type.is_float else array.astype(param.type.dtype.numpy)


def to_float(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to float64."""
    return np.asarray(array.astype(np.float64) if array.dtype == object else array)
