"""NumPy's elementwise functions as composites over ops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.errors import DTypeError, TraceError, UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.promote import broadcast, cast, elementwise, float_dtype, number_dtype, result_dtype, wrap
from pullback.frontends.trace import current
from pullback.ir.core import Value
from pullback.ir.types import DType, bool_, f64, i64

_FLOORS_KEEP_INTEGERS = np.floor(np.int64(1)).dtype.kind == "i"  # since NumPy 2.1


def floats(op: str, **attrs: Any) -> Callable[..., Array]:
    """A function of floats; integers are converted first."""
    return lambda *args: elementwise(op, *args, floats=True, **attrs)


def truth(x: Any) -> Array:
    """NumPy's notion of true: not zero."""
    array = wrap(x)
    return array if array.dtype_ is bool_ else elementwise("ne", array, 0)


def of_kind(name: str, op: str, booleans: str | None = None, integers: str | None = None) -> Callable[..., Array]:
    """An op of numbers that on booleans is a logical one, or not defined, and on integers may be a simpler one."""

    def function(*args: Any) -> Array:
        arrays = [wrap(x) for x in args]
        dtype = result_dtype(arrays)
        if dtype is not bool_:
            return elementwise(op if integers is None or dtype.kind == "f" else integers, *arrays)
        if booleans is not None:
            return elementwise(booleans, *arrays)
        if all(a.weak for a in arrays):  # Python's own booleans are integers
            return elementwise(op, *(astype(a, int) for a in arrays))
        raise arrays[0].context.error(
            DTypeError, f"{name} is not defined for booleans", "use ^, ~ or convert with .astype(int)"
        )

    return function


multiply = of_kind("*", "mul", "logical_and")


def astype(x: Any, dtype: Any, copy: bool = True) -> Array:
    from pullback.frontends.promote import to_dtype

    array = wrap(x)
    array.context.here()
    wanted = to_dtype(array.context, dtype)
    if not copy and array.dtype_ is wanted:
        return array
    known = array.pending_constant()
    if known is not None:
        return Array.constant(array.context, known.astype(wanted.numpy))
    result = Array(array.context, convert(array, wanted))
    if array.known is not None:
        result.known = array.known.astype(wanted.numpy)
    return result


def convert(array: Array, dtype: DType) -> Value:
    """The value in another element type; as a condition, whatever is not zero holds."""
    return truth(array).value if dtype is bool_ else cast(array, dtype)


def positive(x: Any) -> Array:
    array = wrap(x)
    return Array(array.context, array.value, weak=array.weak)


def absolute(x: Any) -> Array:
    array = wrap(x)
    return positive(array) if array.dtype_ is bool_ else elementwise("abs", array)


def rounding(op: str) -> Callable[[Any], Array]:
    def function(x: Any) -> Array:
        array = wrap(x)
        if array.dtype_.kind != "f" and _FLOORS_KEEP_INTEGERS and op != "rint":
            return positive(array)
        return elementwise(op, array, floats=True)

    return function


def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    array = wrap(a)
    if array.dtype_.kind != "f":
        if decimals < 0:
            raise array.context.error(
                UnsupportedError, "rounding integers to tens is not supported", "convert them to floats first"
            )
        return positive(array)
    if not decimals:
        return elementwise("rint", array)
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return elementwise("rint", array * scale) / scale
    return elementwise("rint", array / scale) * scale


def reciprocal(x: Any) -> Array:
    array = wrap(x)
    if array.dtype_.kind != "f":
        raise array.context.error(DTypeError, "np.reciprocal of integers is an integer, almost always 0", "write 1 / x")
    return elementwise("div", 1.0, array)


def scaled(factor: float) -> Callable[[Any], Array]:
    return lambda x: elementwise("mul", x, factor, floats=True)


def fabs(x: Any) -> Array:
    return elementwise("abs", x, floats=True)


def signbit(x: Any) -> Array:
    """True for negative numbers and -0.0, whose reciprocal is negative."""
    array = wrap(x)
    if array.dtype_.kind != "f":
        return elementwise("lt", array, 0)
    return elementwise("logical_or", array < 0, elementwise("lt", elementwise("div", 1.0, array), 0.0))


# -- powers ---------------------------------------------------------------------------------------------------------
def power(x: Any, y: Any) -> Array:
    """A constant integral exponent is a product (``square``, ``powi``); any other constant has no derivative of its own."""
    base, exponent = wrap(x), wrap(y)
    known = exponent.known
    dtype = result_dtype([base, exponent])
    if (
        known is not None
        and known.ndim == 0
        and math.isfinite(known)
        and float(known).is_integer()
        and abs(float(known)) < 2**31
    ):
        return _integer_power(base, exponent, int(known), dtype)
    if dtype.kind != "f":
        raise base.context.error(
            UnsupportedError,
            "an integer raised to a traced integer is not supported",
            "convert one of them: x.astype(float) ** n",
        )
    if known is not None and known.ndim == 0 and float(known) == 0.5 and base.ndim:
        return elementwise("sqrt", Array(base.context, cast(base, dtype)))  # as NumPy does for arrays
    return elementwise("pow", base, exponent)


def _integer_power(base: Array, exponent: Array, n: int, dtype: DType) -> Array:
    dtype = i64 if dtype is bool_ else dtype
    if dtype.kind != "f" and n < 0:
        if not (base.weak and exponent.weak):
            raise base.context.error(
                DTypeError, "Integers to negative integer powers are not allowed.", f"write x ** {float(n)} for a float result"
            )
        dtype = f64
    b = base.context.here()
    value = cast(base, dtype)
    if n == 0:
        return Array(base.context, b.full(1, value.type))
    if n == 1:
        return Array(base.context, value)
    return Array(base.context, b.square(value) if n == 2 else b.powi(value, exponent=n))


def float_power(x: Any, y: Any) -> Array:
    return power(astype(x, float), y)


def divide(x: Any, y: Any) -> Array:
    return elementwise("div", x, y, floats=True)


def floor_divide(x: Any, y: Any) -> Array:
    arrays = [wrap(x), wrap(y)]
    return _numbers("floordiv", arrays)


def remainder(x: Any, y: Any) -> Array:
    return _numbers("mod", [wrap(x), wrap(y)])


def fmod(x: Any, y: Any) -> Array:
    return _numbers("fmod", [wrap(x), wrap(y)])


def _numbers(op: str, arrays: list[Array]) -> Array:
    b = arrays[0].context.here()
    dtype = number_dtype(arrays)
    return Array(arrays[0].context, getattr(b, op)(*broadcast(arrays[0].context, [cast(a, dtype) for a in arrays])))


def divmod(x: Any, y: Any) -> tuple[Array, Array]:
    return floor_divide(x, y), remainder(x, y)


def modf(x: Any) -> tuple[Array, Array]:
    whole = elementwise("trunc", x, floats=True)
    return elementwise("sub", x, whole), whole


def ldexp(x: Any, n: Any) -> Array:
    """``x * 2**n``, exactly."""
    base, exponent = wrap(x), wrap(n)
    if exponent.dtype_.kind == "f":
        raise base.context.error(DTypeError, "np.ldexp takes an integer exponent, got a float", "write x * 2.0 ** n")
    b = base.context.here()
    values = broadcast(base.context, [cast(base, float_dtype([base])), cast(exponent, i64)])
    return Array(base.context, b.ldexp(*values))


# -- choice ---------------------------------------------------------------------------------------------------------
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        from pullback.frontends.library.index import nonzero

        return nonzero(condition)
    if x is None or y is None:
        raise current().error(
            TraceError, "numpy.where takes a condition alone, or with two values", "name both: np.where(condition, a, b)"
        )
    chosen, arrays = truth(condition), [wrap(x), wrap(y)]
    trace = chosen.context
    b = trace.here()
    dtype = result_dtype(arrays)
    values = broadcast(trace, [chosen.value, *(cast(a, dtype) for a in arrays)])
    return Array(trace, b.select(*values))


def clip(a: Any, a_min: Any = None, a_max: Any = None, out: None = None, *, min: Any = None, max: Any = None) -> Array:
    low, high = a_min if a_min is not None else min, a_max if a_max is not None else max
    array = wrap(a)
    if low is not None:
        array = maximum(array, low)
    return positive(a) if low is None and high is None else array if high is None else minimum(array, high)


maximum = of_kind("np.maximum", "maximum", "logical_or")
minimum = of_kind("np.minimum", "minimum", "logical_and")


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    array = wrap(x)
    if array.dtype_.kind != "f":
        return positive(array)
    limits = np.finfo(array.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    finite = where(elementwise("isnan", array), nan, array)
    finite = where(elementwise("eq", array, math.inf), high, finite)
    return where(elementwise("eq", array, -math.inf), low, finite)


def heaviside(x: Any, at_zero: Any) -> Array:
    array = wrap(x)
    step = where(array < 0, 0.0, where(elementwise("eq", array, 0), at_zero, 1.0))
    return where(elementwise("isnan", array, floats=True), array, step)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Array:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    result = wrap(default)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = where(condition, choice, result)
    return result


# -- comparisons and logic ------------------------------------------------------------------------------------------
def compare(op: str) -> Callable[[Any, Any], Array]:
    def function(x: Any, y: Any) -> Array:
        arrays = [wrap(x), wrap(y)]
        if result_dtype(arrays) is bool_ and op not in ("eq", "ne"):
            arrays = [astype(a, int) for a in arrays]
        return elementwise(op, *arrays)

    return function


def logical(op: str) -> Callable[..., Array]:
    return lambda *args: elementwise(op, *(truth(a) for a in args))


def bitwise(name: str, op: str) -> Callable[..., Array]:
    def function(*args: Any) -> Array:
        arrays = [wrap(a) for a in args]
        if any(a.dtype_ is not bool_ for a in arrays):
            trace, remedy = arrays[0].context, "compare first, for example (x > 0) & (y > 0)"
            if name == "^":
                base, exponent = (
                    str(a.known) if a.known is not None and not a.ndim else s for a, s in zip(arrays, "xy", strict=True)
                )
                remedy = f"^ is not a power in Python; write {base}**{exponent}"
            elif name == "~":
                remedy = "compare first, for example ~(x > 0)"
            raise trace.error(UnsupportedError, f"{name} is supported for booleans only", remedy)
        return elementwise(op, *arrays)

    return function


def float_test(op: str, of_integers: bool) -> Callable[[Any], Array]:
    def function(x: Any) -> Array:
        array = wrap(x)
        if array.dtype_.kind == "f":
            return elementwise(op, array)
        return Array(array.context, array.context.here().full(of_integers, array.type.of(bool_)))

    return function


def isposinf(x: Any) -> Array:
    return elementwise("eq", x, math.inf, floats=True)


def isneginf(x: Any) -> Array:
    return elementwise("eq", x, -math.inf, floats=True)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    x, y = wrap(a), wrap(b)
    finite = float_test("isfinite", True)(y)
    near = elementwise("le", absolute(x - y), absolute(y) * rtol + atol)
    close = elementwise("logical_or", elementwise("logical_and", near, finite), compare("eq")(x, y))
    if not equal_nan:
        return close
    test = float_test("isnan", False)
    return elementwise("logical_or", close, elementwise("logical_and", test(x), test(y)))


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Array:
    from pullback.frontends.library.reduce import all

    return all(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any) -> Array:
    from pullback.frontends.library.reduce import all

    return all(compare("eq")(a1, a2))


# -- logarithms of sums, and others ---------------------------------------------------------------------------------
def logaddexp2(x: Any, y: Any) -> Array:
    arrays = [wrap(x), wrap(y)]
    dtype = float_dtype(arrays)
    scaled_up = [Array(a.context, cast(a, dtype)) * math.log(2.0) for a in arrays]
    return elementwise("logaddexp", *scaled_up) / math.log(2.0)


def angle(z: Any, deg: bool = False) -> Array:
    """Of real numbers: 0, or pi for negative ones."""
    array = wrap(z)
    return where(array < 0, 180.0 if deg else math.pi, where(float_test("isnan", False)(array), math.nan, 0.0))


def real(x: Any) -> Array:
    return wrap(x)


def imag(x: Any) -> Array:
    array = wrap(x)
    return Array(array.context, array.context.here().zeros(array.type))


def vectorize_binary(function: Callable[[Any, Any], Array]) -> Callable[..., Array]:
    """A two-argument function for any number of arguments, as ``math.hypot`` takes them."""
    return lambda *args: functools.reduce(function, args)


_FLOATS = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh sqrt cbrt
    arctan2 hypot logaddexp
""".split()  # noqa: SIM905 - a list of names reads best as text
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"numpy.{name}": floats(name) for name in _FLOATS},
    **{f"numpy.{name}": rounding(name) for name in ("floor", "ceil", "trunc", "rint")},
    "numpy.less": compare("lt"),
    "numpy.less_equal": compare("le"),
    "numpy.greater": compare("gt"),
    "numpy.greater_equal": compare("ge"),
    "numpy.equal": compare("eq"),
    "numpy.not_equal": compare("ne"),
    **{f"numpy.{name}": logical(name) for name in ("logical_and", "logical_or", "logical_xor", "logical_not")},
        "numpy.bitwise_and": bitwise("&", "logical_and"),
    "numpy.bitwise_or": bitwise("|", "logical_or"),
    "numpy.bitwise_xor": bitwise("^", "logical_xor"),
    "numpy.invert": bitwise("~", "logical_not"),
    "numpy.add": of_kind("+", "add", "logical_or"),
    "numpy.subtract": of_kind("-", "sub"),
    "numpy.multiply": multiply,
    "numpy.negative": of_kind("-", "neg"),
    "numpy.maximum": maximum,
    "numpy.minimum": minimum,
    "numpy.fmax": of_kind("np.fmax", "fmax", "logical_or", "maximum"),
    "numpy.fmin": of_kind("np.fmin", "fmin", "logical_and", "minimum"),
    "numpy.sign": of_kind("np.sign", "sign"),
    "numpy.square": of_kind("np.square", "square", "logical_and"),
    "numpy.divide": divide,
    "numpy.true_divide": divide,
    "numpy.floor_divide": floor_divide,
    "numpy.remainder": remainder,
    "numpy.mod": remainder,
    "numpy.fmod": fmod,
    "numpy.divmod": divmod,
    "numpy.modf": modf,
    "numpy.power": power,
    "numpy.float_power": float_power,
    "numpy.positive": positive,
    "numpy.absolute": absolute,
    "numpy.abs": absolute,
    "numpy.fabs": fabs,
    "numpy.round": round,
    "numpy.around": round,
    "numpy.fix": rounding("trunc"),
    "numpy.reciprocal": reciprocal,
    "numpy.deg2rad": scaled(math.pi / 180),
    "numpy.radians": scaled(math.pi / 180),
    "numpy.rad2deg": scaled(180 / math.pi),
    "numpy.degrees": scaled(180 / math.pi),
    "numpy.signbit": signbit,
    "numpy.copysign": floats("copysign"),
    "numpy.ldexp": ldexp,
    "numpy.where": where,
    "numpy.clip": clip,
    "numpy.nan_to_num": nan_to_num,
    "numpy.heaviside": heaviside,
    "numpy.select": select,
    "numpy.isnan": float_test("isnan", False),
    "numpy.isinf": float_test("isinf", False),
    "numpy.isfinite": float_test("isfinite", True),
    "numpy.isposinf": isposinf,
    "numpy.isneginf": isneginf,
    "numpy.isclose": isclose,
    "numpy.allclose": allclose,
    "numpy.array_equal": array_equal,
    "numpy.logaddexp2": logaddexp2,
    "numpy.angle": angle,
    "numpy.real": real,
    "numpy.imag": imag,
    "numpy.conjugate": positive,
    "numpy.conj": positive,
    "numpy.real_if_close": real,
    "numpy.astype": astype,
    "numpy.sinc": floats("sinc_n", order=0),
}  # fmt: skip
FUNCTIONS |= {
    f"numpy.{new}": FUNCTIONS[f"numpy.{old}"]
    for new, old in (
        ("acos", "arccos"), ("asin", "arcsin"), ("atan", "arctan"), ("atan2", "arctan2"), ("acosh", "arccosh"),
        ("asinh", "arcsinh"), ("atanh", "arctanh"), ("pow", "power"), ("bitwise_not", "invert"), ("bitwise_invert", "invert"),
    )
}  # fmt: skip


def of_scalars(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``math``: of Python numbers, giving Python numbers."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        arrays = [wrap(x) for x in args]
        for array in arrays:
            if array.ndim:
                raise array.context.error(
                    TraceError, f"math.{name} takes a number, got an array of type {array.type}", f"use np.{name}"
                )
        numbers = [Array(a.context, cast(a, f64), weak=True, known=a.known) if a.dtype_.kind == "f" else a for a in arrays]
        result = function(*numbers, **kwargs)
        for part in result if isinstance(result, tuple) else (result,):
            part.weak = True
        return result

    return wrapped


MATH: dict[str, Callable[..., Any]] = {
    f"math.{name}": of_scalars(name, FUNCTIONS[f"numpy.{source}"])
    for name, source in (
        ("exp", "exp"), ("exp2", "exp2"), ("expm1", "expm1"), ("log2", "log2"), ("log10", "log10"), ("log1p", "log1p"),
        ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"),
        ("atan2", "arctan2"), ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"), ("asinh", "arcsinh"), ("acosh", "arccosh"),
        ("atanh", "arctanh"), ("sqrt", "sqrt"), ("cbrt", "cbrt"), ("fabs", "fabs"), ("fmod", "fmod"), ("pow", "float_power"),
        ("copysign", "copysign"), ("degrees", "degrees"), ("radians", "radians"), ("isnan", "isnan"), ("isinf", "isinf"),
        ("isfinite", "isfinite"), ("ldexp", "ldexp"), ("isclose", "isclose"), ("modf", "modf"),
    )
}  # fmt: skip


def _log(x: Any, base: Any = None) -> Array:
    """``math.log`` with its optional base."""
    natural = floats("log")
    return natural(x) if base is None else divide(natural(x), natural(base) if isinstance(base, Array) else math.log(base))


def _whole(op: str) -> Callable[[Any], Array]:
    return lambda x: astype(elementwise(op, x, floats=True), int)


MATH |= {
    "math.log": of_scalars("log", _log),
    "math.hypot": of_scalars("hypot", vectorize_binary(floats("hypot"))),
    "math.floor": of_scalars("floor", _whole("floor")),
    "math.ceil": of_scalars("ceil", _whole("ceil")),
    "math.trunc": of_scalars("trunc", _whole("trunc")),
}
