"""The mathematical functions: accuracy over the whole domain, special cases, and the same bits wherever an element stands."""

from __future__ import annotations

import ctypes
import functools
import itertools
import platform

import llvmlite.binding as llvm
import mpmath as mp
import numpy as np
import pytest

from pullback.ir.core import Builder, Func, Value
from pullback.ir.interp import run
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Libm
from pullback.ir.parse import parse_type
from pullback.llvm import compile_kernel, engine
from pullback.llvm.vecmath_library import OWN, Form, module

ULPS = 4.0  # what is promised; most functions stay below 2
inf, nan = float("inf"), float("nan")
OF_LIBM = {op.lower.name: name for name, op in OPS.items() if isinstance(op.lower, Libm)}
NAMES = sorted(OWN)
PAIRS = sorted(name for name, own in OWN.items() if own.arity == 2)
DTYPES = {"f64": np.float64, "f32": np.float32}
mp.mp.prec = 170


def op_of(name, dtype, size="n"):
    """A function of arrays, or of scalars if ``size`` is empty, that is one op."""
    kind = parse_type(f"{dtype}[{size}]" if size else dtype)
    params = [Value(f"x{k}", kind) for k in range(OWN[name].arity)]
    b = Builder()
    return Func(name, b.close("return", (getattr(b, OF_LIBM[name])(*params),), params))


@functools.cache
def kernel_of(name, dtype, size="n"):
    return compile_kernel(op_of(name, dtype, size))


def call(name, *args, size="n"):
    return kernel_of(name, "f64" if args[0].dtype == np.float64 else "f32", size)([np.ascontiguousarray(a) for a in args])[0]


# -- the truth --------------------------------------------------------------------------------------------------------------
def real(function, *args):
    try:
        value = function(*args)
    except (ValueError, ZeroDivisionError):
        return mp.nan
    return mp.nan if isinstance(value, mp.mpc) else value


def power(x, y):
    return mp.power(x, int(y)) if y == int(y) else mp.power(x, y)


TRUTH = {
    **{n: getattr(mp, n) for n in ("exp", "expm1", "log", "log1p", "tanh", "sinh", "cosh", "sin", "cos", "tan", "erf")},
    **{n: getattr(mp, n) for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "hypot", "log10")},
    "exp2": lambda x: mp.power(2, x),
    "log2": lambda x: mp.log(x, 2),
    "lgamma": lambda x: mp.loggamma(x) if x else mp.inf,
    "erfc": lambda x: mp.erfc(x) if x < 1e3 else mp.mpf(0),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "pow": power,
}


def error(found, exact, dtype):
    """In units of the last place of the exact value; beyond the largest number, of the largest binade."""
    kind = np.finfo(dtype)
    if mp.isnan(exact):
        return 0.0 if np.isnan(found) else inf
    if np.isnan(found):
        return inf
    limit = mp.mpf(2) ** kind.maxexp
    exact = max(min(exact, limit), -limit)
    place = mp.mpf(2) ** (max(mp.frexp(exact)[1] if exact else -9999, kind.minexp + 1) - kind.nmant - 1)
    place = min(place, mp.mpf(2) ** (kind.maxexp - kind.nmant - 1))
    value = limit * mp.sign(found) if np.isinf(found) else mp.mpf(float(found))
    return float(abs(value - exact) / place)


def worst(name, args, found):
    """The largest error, and where it is."""
    function, dtype = TRUTH[name], found.dtype.type
    errors = [
        error(f, real(function, *(mp.mpf(float(a)) for a in point)), dtype)
        for f, *point in zip(found, *args, strict=True)
        if all(np.isfinite(point)) and (len(args) == 1 or all(point))  # mpmath has no negative zero
    ]
    return max(errors), int(np.argmax(errors))


# -- the points -------------------------------------------------------------------------------------------------------------
# within these bounds most of what is interesting happens; the whole range of numbers is looked at besides
INNER = {
    **dict.fromkeys(("exp", "expm1"), (-750.0, 712.0)), "exp2": (-1080.0, 1026.0), "tanh": (-20.0, 20.0),
    "sinh": (-712.0, 712.0), "cosh": (-712.0, 712.0), **dict.fromkeys(("log", "log2", "log10"), (0.0, 4.0)),
    "log1p": (-1.0, 4.0), "atanh": (-1.0, 1.0),
    **dict.fromkeys(("asin", "acos"), (-1.0, 1.0)), "acosh": (1.0, 8.0), "erf": (-6.5, 6.5),
    "erfc": (-6.5, 28.0), "lgamma": (0.0, 12.0),
    **dict.fromkeys(("sin", "cos", "tan"), (-1000.0, 1000.0)),
}  # fmt: skip
SINGLE = {"exp": (-105.0, 90.0), "expm1": (-30.0, 90.0), "exp2": (-152.0, 129.0), "sinh": (-91.0, 91.0), "cosh": (-91.0, 91.0)}
# next to these points something changes: a formula, the exponent, overflow, a zero
TURNS = {
    "exp": (709.782712893384, -708.3964185322641, -744.4400719213812, -745.1332191019411, 0.34657359027997264, 88.72283,
            -87.33655, -103.2789, -103.97208),
    "exp2": (1024.0, -1022.0, -1074.0, -1075.0, 0.5, 128.0, -126.0, -149.0, -150.0),
    "expm1": (709.782712893384, -37.42994775023705, 0.34657359027997264, 88.72283, -17.32868),
    "sinh": (710.4758600739439, 0.34657359027997264, 89.415985),
    "cosh": (710.4758600739439, 89.415985),
    "tanh": (19.06154746539849, 0.17328679513998632, 9.010913),
    "log": (1.0, 0.7071067811865476, 1.4142135623730951, 2.2250738585072014e-308, 1.1754944e-38),
    "log2": (1.0, 0.7071067811865476, 1.4142135623730951, 2.2250738585072014e-308, 1.1754944e-38),
    "log10": (1.0, 0.7071067811865476, 1.4142135623730951, 10.0, 1000.0, 2.2250738585072014e-308, 1.1754944e-38),
    "log1p": (-1.0, -0.2928932188134524, 0.41421356237309515, -0.5, 1.0),
    "asin": (0.5, 1.0), "acos": (0.5, 1.0, -0.5, -1.0), "atan": (0.4142135623730951, 1.0, 2.414213562373095),
    "acosh": (1.0, 268435456.0, 8192.0), "asinh": (268435456.0, 8192.0, 1e154), "atanh": (1.0, 0.5),
    "sin": (3.141592653589793, 1.5707963267948966, 0.7853981633974483, 2.0**36, 2.0**20, 2.0**18, 2.0**11, 6381956970095103.0),
    "cos": (3.141592653589793, 1.5707963267948966, 0.7853981633974483, 2.0**36, 2.0**20, 2.0**18, 2.0**11),
    "tan": (3.141592653589793, 1.5707963267948966, 0.7853981633974483, 2.0**36, 2.0**20, 2.0**18, 2.0**11, 1e22),
    "erf": (0.875, 5.921587195794507, 6.0, 3.919, 4.0),
    "erfc": (0.875, 26.543258454250955, 27.226017111108366, 28.0, 10.05, -6.0),
    "cbrt": (1.0, 2.0, 8.0, 0.125, 2.2250738585072014e-308),
    "lgamma": (0.5, 1.0, 1.5, 2.0, 2.5, 3.5, 4.5, 5.5, 6.5, 171.0, 2.5563481638716906e305),
}  # fmt: skip


def neighbours(values, dtype):
    values = np.asarray(values, dtype)
    around = [values]
    for toward in (inf, -inf):
        step = values
        for _ in range(2):
            step = np.nextafter(step, dtype(toward))
            around.append(step)
    found = np.concatenate(around)
    return np.concatenate([found, -found])


def anywhere(rng, dtype, count):
    """All magnitudes alike, subnormal numbers too, both signs."""
    kind = np.finfo(dtype)
    return (rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(kind.minexp - kind.nmant, kind.maxexp, count)).astype(dtype)


def points(name, dtype, count=150):
    rng = np.random.default_rng(sum(map(ord, name)))
    if name in PAIRS:
        return pairs(rng, name, dtype, count)
    low, high = INNER.get(name, (-10.0, 10.0)) if dtype is np.float64 else SINGLE.get(name, INNER.get(name, (-10.0, 10.0)))
    inner = rng.uniform(low, high, count).astype(dtype)
    near = rng.uniform(max(low, -1.5), min(high, 2.5), count).astype(dtype)
    with np.errstate(over="ignore"):
        turns = neighbours(TURNS.get(name, ()), dtype)
    found = np.concatenate([inner, near, anywhere(rng, dtype, count), turns])
    return (np.abs(found) if name == "lgamma" else found,)  # the C library's lgamma is used for negative numbers


def pairs(rng, name, dtype, count):
    x, y = anywhere(rng, dtype, count), anywhere(rng, dtype, count)
    near = rng.normal(size=(2, count)).astype(dtype)
    if name == "pow":
        base = np.exp2(rng.uniform(-8, 8, count))
        top = np.finfo(dtype).maxexp * 1.05  # exponents up to overflow and underflow
        exponent = rng.uniform(-top, top, count) / np.log2(base)
        about_one = 1 + rng.normal(size=count) * 1e-5
        whole = rng.integers(-30, 30, count)
        xs = (np.abs(x), base, about_one, near[0], near[0] * 10)
        ys = (near[1], exponent, exponent * 1e3, whole, whole % 4)
    else:
        close = x * np.exp2(rng.uniform(-3, 3, count))
        with np.errstate(over="ignore"):
            xs, ys = (x, x, near[0]), (y, np.clip(close, np.finfo(dtype).min, np.finfo(dtype).max), near[1])
    return tuple(np.concatenate([np.asarray(v, dtype) for v in side]) for side in (xs, ys))


# -- accuracy ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_accuracy(name, dtype):
    args = points(name, DTYPES[dtype])
    found, at = worst(name, args, call(name, *args))
    assert found <= ULPS, f"{found} ulp at {[a[at] for a in args]}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_next_to_multiples_of_a_right_angle(name, dtype):
    """Where nearly nothing is left of the argument, near and far."""
    rng = np.random.default_rng(6)
    counts = np.exp2(rng.uniform(0, 38 if dtype == "f64" else 21, 300)).astype(int)
    x = np.array([float(mp.mpf(int(k)) * mp.pi / 2) for k in counts], DTYPES[dtype])
    args = (np.concatenate([x, np.nextafter(x, DTYPES[dtype](0))]),)
    found, at = worst(name, args, call(name, *args))
    assert found <= ULPS, f"{found} ulp at {args[0][at]}"


SPECIAL = (0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 4.0, 5e-324, -5e-324, 1e-310, 1e308, -1e308)
SPECIAL += (1e-300, 2.0**52 + 1, -(2.0**52 + 1), 2.0**53, 4503599627370495.5, 1e-40, 8.0, 1000.0, 1024.0, -1074.0, -1075.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name, dtype):
    """Zeros with their signs, infinities and NaN as the C library gives them, which NumPy and SciPy call."""
    with np.errstate(all="ignore"):
        # SciPy's gammaln is infinite next to 0
        values = np.array([v for v in SPECIAL if name != "lgamma" or not v < 1e-300 or v == 0], DTYPES[dtype])
        args = (values,) if OWN[name].arity == 1 else tuple(v.ravel() for v in np.meshgrid(values, values))
        (expected,) = run(op_of(name, dtype), args)
    found = call(name, *args)
    for got, want, *point in zip(found, expected, *args, strict=True):
        if np.isnan(want):
            assert np.isnan(got), point
        elif want == 0 or np.isinf(want) or abs(want) == 1:
            assert (got == want or abs(want) == 1) and np.signbit(got) == np.signbit(want), (point, got, want)
        else:
            assert abs(got - want) <= (ULPS + 1) * abs(np.spacing(want)), (point, got, want)
    assert worst(name, args, found)[0] <= ULPS


EXACT = [
    *(
        (name, (0.0,), 0.0)
        for name in ("expm1", "tanh", "sinh", "sin", "tan", "asin", "atan", "asinh", "atanh", "log1p", "erf")
    ),
    *((name, (0.0,), 1.0) for name in ("exp", "exp2", "cosh", "cos", "erfc")),
    *((name, (1.0,), 0.0) for name in ("log", "log2", "log10", "acos", "acosh")),
    *(("log2", (2.0**k,), float(k)) for k in (-126, -3, 1, 10, 100)),
    *(("exp2", (float(k),), 2.0**k) for k in (-126, -3, 1, 10, 100)),
    *(("log10", (10.0**k,), float(k)) for k in range(1, 11)),
    *(("cbrt", (k**3,), k) for k in (2.0, -3.0, 5.0, 100.0, 2.0**40)),
    *(("pow", (x, float(k)), x**k) for x in (2.0, -3.0, 10.0, 1.5, 0.5) for k in (1, 2, 3, 7)),
    *(("hypot", (3.0 * k, 4.0 * k), 5.0 * k) for k in (1.0, 2.0**-80, 2.0**80)),
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_cases(dtype):
    for name, point, want in EXACT:
        assert call(name, *(np.array([p], DTYPES[dtype]) for p in point))[0] == want, (name, point)


# -- the same bits everywhere -----------------------------------------------------------------------------------------------
def bits(values):
    return np.ascontiguousarray(values).view(np.uint64 if values.dtype == np.float64 else np.uint32)


def offset_copy(values, count):
    """The same values at another alignment."""
    room = np.empty(len(values) + count, values.dtype)
    room[count:] = values
    return room[count:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_where_an_element_stands(name, dtype):
    args = tuple(np.resize(a, 83) for a in (x[::7] for x in points(name, DTYPES[dtype])))
    kernel = kernel_of(name, dtype)
    whole = kernel(list(args))[0]
    for n in range(41):
        for at in (0, n % 5, 41 - n % 3):
            part = kernel([offset_copy(a[at : at + n], n % 3) for a in args])[0]
            assert np.array_equal(bits(part), bits(whole[at : at + n])), (n, at)
    alone = kernel_of(name, dtype, "")  # straight-line code
    for k, point in enumerate(zip(*args, strict=True)):
        assert np.array_equal(bits(np.asarray(alone(list(point))[0], DTYPES[dtype]).reshape(1)), bits(whole[k : k + 1])), point


def test_bits_in_long_straight_line_code():
    """It is cut into chunks, in a module of its own."""
    names = ("exp", "sin", "tanh")
    x = np.random.default_rng(3).normal(size=800)
    params = [Value(f"x{k}", parse_type("f64")) for k in range(len(x))]
    b = Builder()
    values = [getattr(b, name)(p) for name in names for p in params]
    kernel = compile_kernel(Func("long", b.close("return", tuple(values), params)))
    assert np.array_equal(bits(np.array(kernel(list(x)))), bits(np.concatenate([call(name, x) for name in names])))


def several(x):
    return np.exp(x) + np.sin(3 * x) * np.tanh(x) + np.log1p(x * x)


def test_bits_in_loops_of_other_kinds():
    """Elements that do not lie side by side, rows of an outer loop, a loop of the program, and every level of optimisation."""
    import pullback as pb

    x = np.random.default_rng(5).normal(size=63)
    want = bits(pb.compile(several)(x))
    backwards = pb.compile(lambda x: several(x[::-1]))
    assert np.array_equal(bits(np.ascontiguousarray(backwards(x)[::-1])), want)
    table = pb.compile(lambda x: several(x.reshape(9, 7).T))
    assert np.array_equal(bits(np.ascontiguousarray(table(x).T)).ravel(), want)
    rows = pb.compile(lambda x: several(x.reshape(21, 3)))
    assert np.array_equal(bits(rows(x)).ravel(), want)

    @pb.compile
    def one_by_one(x):
        out = np.zeros(len(x))
        for i in range(len(x)):
            out[i] = several(x[i])
        return out

    assert np.array_equal(bits(one_by_one(x)), want)
    for opt in (0, 1, 3):
        assert np.array_equal(bits(pb.compile(several, opt=opt)(x)), want), opt


def test_bits_of_gradients():
    import pullback as pb

    def loss(x):
        return np.sum(
            np.tanh(0.7 * x - 0.2) ** 2 * np.exp(-x * x) / (1 + x * x) + np.sin(x) * np.log1p(x * x) + np.cos(x * 1e9)
        )

    gradient = pb.grad(pb.compile(loss))
    x = np.random.default_rng(4).normal(size=70)
    x[5] = 1e300  # this element alone goes through the C library
    whole = gradient(x)
    for n in (1, 2, 3, 5, 8, 13, 31, 40):
        for at in (0, 3, 30):
            assert np.array_equal(bits(gradient(offset_copy(x[at : at + n], 1))), bits(whole[at : at + n])), (n, at)


# -- other machines ---------------------------------------------------------------------------------------------------------
def loop_module(form, fused):
    """The function of one element, and a loop that calls it."""
    kind, arity = form.kind, OWN[form.name].arity
    params = ", ".join(f"ptr %a{k}" for k in range(arity))
    loads = "".join(
        f"  %p{k} = getelementptr {kind}, ptr %a{k}, i64 %i\n  %y{k} = load {kind}, ptr %p{k}\n" for k in range(arity)
    )
    args = ", ".join(f"{kind} %y{k}" for k in range(arity))
    return f"""{module(form, fused)}
define void @loop(i64 %n, ptr %out, {params}) {{
entry:
  br label %round
round:
  %i = phi i64 [ 0, %entry ], [ %j, %round ]
{loads}  %r = call {kind} @{form.symbol}({args})
  %q = getelementptr {kind}, ptr %out, i64 %i
  store {kind} %r, ptr %q
  %j = add i64 %i, 1
  %done = icmp eq i64 %j, %n
  br i1 %done, label %end, label %round
end:
  ret void
}}
"""


@functools.cache
def plain_machine():
    """The oldest processor of this family: no fused multiply-add, on x86-64 no instruction for rounding."""
    engine.features()
    engine._initialize()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    cpu = "x86-64" if platform.machine().lower() in ("x86_64", "amd64") else ""
    machine = target.create_target_machine(cpu=cpu, features="", opt=2, reloc="pic", codemodel="small")
    return machine, llvm.create_lljit_compiler(machine, use_jit_link=True)


NUMBER = itertools.count()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_accuracy_without_fused_multiply_add(name, dtype):
    machine, jit = plain_machine()
    args = points(name, DTYPES[dtype], 60)
    parsed = llvm.parse_assembly(loop_module(Form(name, "double" if dtype == "f64" else "float"), False))
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    builder = llvm.JITLibraryBuilder()
    builder.add_object_img(machine.emit_object(parsed)).add_current_process().export_symbol("loop")
    linked = builder.link(jit, f"plain{next(NUMBER)}")
    out = np.empty_like(args[0])
    function = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (1 + len(args)))(linked["loop"])
    function(len(out), out.ctypes.data, *(a.ctypes.data for a in args))
    found, at = worst(name, args, out)
    assert found <= ULPS, f"{found} ulp at {[a[at] for a in args]}"


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
def test_vectors_are_vectors_on_every_machine(triple):
    """Whatever the machine, no function is done element by element: the only calls are those of the slow case."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple)
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    for name, (kind, lanes) in itertools.product(NAMES, (("double", 2), ("float", 4))):
        parsed = llvm.parse_assembly(module(Form(name, kind, lanes), triple.startswith("aarch64")))
        parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
        code = machine.emit_assembly(parsed)
        calls = [line for line in code.splitlines() if line.split()[:1] in (["bl"], ["callq"], ["call"])]
        assert all(Form(name, kind).symbol in line for line in calls), (name, calls)
