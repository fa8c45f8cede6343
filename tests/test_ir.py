"""The IR itself: sizes, builder, text, verifier, interpreter, and the records of the op table against each other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.errors import DTypeError, IRError, PullbackError, ShapeError
from pullback.ir.core import NO_ATTRS, Block, Builder, Func, Instr, Loc, Value
from pullback.ir.dims import Dim, Size, evaluate, floordiv, solve, upper_bound
from pullback.ir.interp import bind, run, trace_values
from pullback.ir.ops import OPS
from pullback.ir.ops.base import Elementwise, Linear, Op, Plain, TypeMismatch
from pullback.ir.parse import parse_func, parse_module, parse_type
from pullback.ir.text import key, print_func
from pullback.ir.types import StackType, Type, bool_, f32, f64, i64
from pullback.ir.verify import verify
from pullback.passes.adjoint import adjoint
from pullback.passes.chain import Masks, Values
from pullback.passes.tangent import tangent

N, M = Dim.symbol("n"), Dim.symbol("m")


# -- sizes ------------------------------------------------------------------------------------------------------------
# An expression is a pair: the size, and the function of the symbols' numbers that it must be.
LEAVES = st.one_of(
    st.integers(-5, 5).map(lambda k: (k, lambda v, k=k: k)),
    st.sampled_from("nmp").map(lambda name: (Dim.symbol(name), lambda v, name=name: v[name])),
)


def combine(children: st.SearchStrategy) -> st.SearchStrategy:
    pair = st.tuples(children, children)
    divisor = st.integers(-4, 4).filter(bool)
    return st.one_of(
        pair.map(lambda p: (p[0][0] + p[1][0], lambda v: p[0][1](v) + p[1][1](v))),
        pair.map(lambda p: (p[0][0] - p[1][0], lambda v: p[0][1](v) - p[1][1](v))),
        pair.map(lambda p: (p[0][0] * p[1][0], lambda v: p[0][1](v) * p[1][1](v))),
        st.tuples(children, divisor).map(lambda p: (floordiv(p[0][0], p[1]), lambda v: p[0][1](v) // p[1])),
        children.map(lambda p: (-p[0], lambda v: -p[1](v))),
    )


SIZES = st.recursive(LEAVES, combine, max_leaves=8)
NUMBERS = st.fixed_dictionaries({name: st.integers(0, 20) for name in "nmp"})


@given(SIZES, NUMBERS)
def test_sizes_are_integers(pair: tuple[Size, Any], numbers: dict[str, int]) -> None:
    size, meaning = pair
    assert evaluate(size, numbers) == meaning(numbers)


@given(SIZES)
def test_sizes_print_and_parse(pair: tuple[Size, Any]) -> None:
    size, _ = pair
    again = Dim.parse(str(size))
    assert again == size
    assert hash(again) == hash(size)
    assert str(again) == str(size)


@given(SIZES, SIZES)
def test_equal_polynomials_are_equal(left: tuple[Size, Any], right: tuple[Size, Any]) -> None:
    a, b = left[0], right[0]
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) * (a - b) == a * a - b * b
    assert a - a == 0
    assert isinstance(a - b + b, int) == isinstance(a, int)


def test_division_by_a_size() -> None:
    assert floordiv(N * M, N) == M
    assert floordiv(2 * N * M + N, N) == 2 * M + 1
    assert floordiv(N, N) == 1
    assert str(floordiv(N + 1, M)) == "(n + 1)//m"
    assert evaluate(floordiv(N + 1, M), {"n": 6, "m": 3}) == 2
    with pytest.raises(ZeroDivisionError):
        floordiv(N, 0)
    with pytest.raises(KeyError, match="m"):
        evaluate(N + M, {"n": 1})


def test_solving_for_a_symbol() -> None:
    assert solve(N - 2 * M + 1, ["n"]) == ("n", 2 * M - 1)
    assert solve(2 * M - N, ["n"]) == ("n", 2 * M)
    assert solve(2 * N - M, ["n"]) is None
    assert solve(N * N - N, ["n"]) is None
    assert solve(3 - 2, ["n"]) is None


# -- builder ----------------------------------------------------------------------------------------------------------
def test_builder_makes_equal_constants_once() -> None:
    b = Builder()
    assert b.const(1.5) is b.const(1.5)
    assert b.const(0.0) is not b.const(-0.0)
    assert b.const(1, f64) is not b.const(1, i64)
    assert b.const(np.nan) is b.const(np.nan)
    assert b.full(2, f64[3]) is b.full(2, f64[3])
    assert b.dim(N * 2) is b.dim(2 * N)
    inner = Builder(b)
    assert inner.const(1.5) is b.const(1.5)
    assert inner.body == []


def test_builder_leaves_the_callers_array_alone() -> None:
    array = np.arange(6.0).reshape(2, 3).T
    b = Builder()
    made = b.const(array)
    array[0, 0] = 9
    stored = b.body[0].attrs["value"]
    assert stored[0, 0] == 0 and stored.flags.c_contiguous and not stored.flags.writeable
    assert made.type == f64[3, 2]


def test_builder_refuses() -> None:
    b = Builder()
    with pytest.raises(TypeMismatch, match=r"got f64\[n\], f64\[m\]"):
        b.add(Value("x", f64["n"]), Value("y", f64["m"]))
    with pytest.raises(AttributeError, match="no op named 'adds'"):
        b.adds()


# -- text -------------------------------------------------------------------------------------------------------------
NAMES = ("", "x", "x", "x_1", "0", "1", "w[0]", 'a"b\\', "größe", "a.b")


def random_func(rng: np.random.Generator) -> Func:
    """Nested control flow with all kinds of names."""

    def name() -> str:
        return NAMES[rng.integers(len(NAMES))]

    def one_of(pool: list[Value], type: Type) -> Value:
        fitting = [v for v in pool if v.type == type]
        return fitting[rng.integers(len(fitting))]

    def fill(b: Builder, pool: list[Value], depth: int) -> None:
        for _ in range(rng.integers(1, 5)):
            kind = rng.integers(6 if depth else 3)
            if kind == 0:
                pool += b.emit(OPS["mul"], (one_of(pool, vector), one_of(pool, vector)), name=name())
            elif kind == 1:
                pool += b.emit(OPS["sum"], (one_of(pool, vector),), {"axes": (0,)}, name=name())
            elif kind == 2:
                pool.append(b.const(rng.normal(size=rng.integers(0, 3, rng.integers(3)))))
            elif kind == 3:
                carried = tuple(Value(name(), t) for t in (vector, f64[()])[: rng.integers(3)])
                inits = tuple(one_of(pool, p.type) for p in carried)
                body = block((Value(name(), i64[()]), *carried), pool, b, depth, carried)
                pool += emit(b, "for", (one_of(pool, i64[()]), *inits), (body,))
            elif kind == 4:
                carried = (Value(name(), f64[()]),)
                condition = Builder(b)
                go = condition.lt(*carried, one_of(pool, f64[()]))
                body = block((Value(name(), f64[()]),), pool, b, depth, carried)
                blocks = (condition.close("yield", (go,), carried), body)
                pool += emit(b, "while", (one_of(pool, f64[()]),), blocks)
            else:
                results = tuple(one_of(pool, t) for t in (f64[()], vector)[: rng.integers(3)])
                blocks = tuple(block((), pool, b, depth, results) for _ in range(2))
                pool += emit(b, "if", (one_of(pool, bool_[()]),), blocks)

    def emit(b: Builder, op: str, args: tuple[Value, ...], blocks: tuple[Block, ...]) -> tuple[Value, ...]:
        return b.emit(OPS[op], args, {"note": 1} if rng.random() < 0.3 else NO_ATTRS, blocks, name())

    def block(params: tuple[Value, ...], pool: list[Value], b: Builder, depth: int, like: tuple[Value, ...]) -> Block:
        inner, inside = Builder(b), [*pool, *params]
        fill(inner, inside, depth - 1)
        return inner.close("yield", tuple(one_of(inside, v.type) for v in like), params)

    vector = f64["n"]
    params = tuple(Value(name(), t) for t in (vector, f64[()], i64[()], bool_[()]))
    b, pool = Builder(), list(params)
    fill(b, pool, 3)
    results = tuple(pool[k] for k in rng.integers(len(pool), size=rng.integers(4)))
    names = tuple((NAMES[k], pool[-1]) for k in rng.integers(len(NAMES), size=rng.integers(3)))
    return Func(name() or "f", b.close("return", results, params), names)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_random_functions_round_trip(seed: int) -> None:
    func = random_func(np.random.default_rng(seed))
    verify(func)
    text = print_func(func)
    again = parse_func(text)
    verify(again)
    assert print_func(again) == text
    assert key(again) == key(func)
    assert [name for name, _ in again.names] == [name for name, _ in func.names]


@given(st.lists(st.floats(width=64)), st.lists(st.floats(width=32)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_constants_round_trip_exactly(doubles: list[float], singles: list[float], integers: list[int]) -> None:
    b = Builder()
    for values, dtype in ((doubles, f64), (singles, f32), (integers, i64)):
        b.const(values, dtype)
        b.const(values[0] if values else 0, dtype)
    func = Func("f", b.close("return", ()))
    again = parse_func(print_func(func))
    for old, new in zip(func.body[:-1], again.body[:-1], strict=True):
        left, right = old.attrs["value"], new.attrs["value"]
        assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def test_every_bit_pattern_of_nan_survives() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FF80000DEADBEEF], np.uint64)
    b = Builder()
    b.const(bits.view(np.float64))
    again = parse_func(print_func(Func("f", b.close("return", ()))))
    assert again.body[0].attrs["value"].view(np.uint64).tolist() == bits.tolist()


def test_names_are_kept_where_they_can_be() -> None:
    b = Builder()
    x = Value("x", f64[()])
    first = b.emit(OPS["sin"], (x,))[0]
    second = b.emit(OPS["sin"], (first,), name="x")[0]
    third = b.emit(OPS["sin"], (second,), name="0")[0]
    text = print_func(Func("f", b.close("return", (third,), (x,))))
    assert text.splitlines()[1:4] == ["  %1 = sin %x : f64", "  %x_1 = sin %1 : f64", "  %0 = sin %x_1 : f64"]


def test_text_gives_places() -> None:
    func = parse_func("func @f(%x: f64) -> f64 {\n  %y = sin %x : f64\n  return %y\n}\n", "some.ir")
    assert func.body[0].loc == Loc("some.ir", 2, 3)
    with pytest.raises(IRError, match=r"^some\.ir:2:9: expected ',' or '\)', got '%y'$"):
        parse_func("func @f(\n%x: f64 %y: f64) -> f64 {", "some.ir")


def test_several_functions() -> None:
    text = "func @f() -> () {\n  return\n}\nfunc @g(%x: f64) -> f64 {\n  return %x\n}\n"
    assert "".join(map(print_func, parse_module(text))) == text
    assert parse_module("# nothing\n") == []
    with pytest.raises(IRError, match="expected the end of the text, got 'func'"):
        parse_func(text)


@pytest.mark.parametrize("text", ["f64", "i64[n]", "bool[2, 3*n*m - 1]", "stack<f64[(n + 1)//2]>"])
def test_types_round_trip(text: str) -> None:
    assert str(parse_type(text)) == str(parse_type(str(parse_type(text))))


@pytest.mark.parametrize(
    "text",
    [
        "f64[" + "(" * 3000 + "n" + ")" * 3000 + "]",
        "f64[" + "-" * 1500 + "n]",
        "f64[" + "n+" * 10**5 + "n]",
        "f64[" + "9" * 10**4 + "]",
        "f64[",
        "f64[n m]",
        "f64[n.m]",
        "f64[0x10]",
        "stack<stack<f64>>",
        "",
    ],
)
def test_hostile_types_are_refused(text: str) -> None:
    with pytest.raises(IRError):
        parse_type(text)


@pytest.mark.parametrize(
    "body",
    [
        "if %c {" * 5000,
        "%k = const " + "[" * 5000,
        "%k = sum %c {axes = " + "[" * 5000,
        '%k = sum %c {axes = "' + "\\q" * 10 + '"}',
        "%k = sum %c {axes = 0x5} : f64",
        "%k = sum %c {axes = " + "9" * 5000 + "} : f64",
    ],
)
def test_hostile_bodies_are_refused(body: str) -> None:
    with pytest.raises(IRError):
        parse_func("func @f(%c: bool) -> () {" + body)


def test_long_functions_take_linear_time() -> None:
    """Ten times the instructions take about ten times as long: 40 allows for a busy machine, quadratic would be 100."""

    def seconds(length: int) -> float:
        b = Builder()
        x = Value("x", f64["n"])
        y = x
        for _ in range(length):
            y = b.emit(OPS["sin"], (y,), name="y")[0]
        func = Func("f", b.close("return", (y,), (x,)))
        start = time.process_time()
        text = print_func(func)
        again = parse_func(text)
        verify(again)
        assert key(again) == key(func)
        return time.process_time() - start

    assert seconds(50_000) < 40 * max(seconds(5_000), 0.05)


# -- the structural key -----------------------------------------------------------------------------------------------
BASE = "func @f(%x: f64[n], %y: f64[n]) -> f64[n] {\n  %a = const 0.0 : f64\n  %z = mul %x, %y : f64[n]\n  return %z\n}\n"


@pytest.mark.parametrize(
    "change",
    [("@f", "@g"), ("%z", "%result"), ("%x", "%left"), ("return %z\n", "return %z\n  names {q = %z}\n"), ("  ", "\n    ")],
)
def test_key_ignores(change: tuple[str, str]) -> None:
    assert key(parse_func(BASE.replace(*change))) == key(parse_func(BASE))


@pytest.mark.parametrize(
    "change",
    [
        ("%x, %y :", "%y, %x :"),
        ("mul", "add"),
        ("0.0", "-0.0"),
        ("0.0", "1e-320"),
        ("f64", "f32"),
        ("[n]", "[m]"),
        ("return %z", "return %x"),
    ],
)
def test_key_sees(change: tuple[str, str]) -> None:
    assert key(parse_func(BASE.replace(*change))) != key(parse_func(BASE))


# -- verifier: what the text cannot say; the rest is in filetests/verify -----------------------------------------------
X = Value("x", f64["n"])


def made(*instrs: Instr, results: tuple[Value, ...] = (), params: tuple[Value, ...] = (X,), names: Any = ()) -> Func:
    return Func("f", Block(params, (*instrs, Instr(OPS["return"], (), results, NO_ATTRS))), names)


def instr(
    op: str, *args: Value, type: Any = f64["n"], attrs: Any = NO_ATTRS, blocks: Any = (), loc: Loc | None = None
) -> Instr:
    return Instr(OPS[op], () if type is None else (Value("y", type),), args, attrs, blocks, loc or Loc("user.py", 7))


def array(value: Any, writeable: bool = False, dtype: Any = np.float64) -> np.ndarray:
    found = np.array(value, dtype)
    found.setflags(write=writeable)
    return found


SIN = instr("sin", X)
LATER = instr("sin", SIN.out)
INNER = instr("if", Value("c", bool_[()]))
MALFORMED: dict[str, tuple[Func, str]] = {
    "use before definition": (made(LATER, SIN), "operand %y: f64[n] is used before it is defined"),
    "defined twice": (made(SIN, SIN), "value %y: f64[n] is defined twice"),
    "parameter twice": (made(params=(X, X)), "value %x: f64[n] is defined twice"),
    "no end": (Func("f", Block((X,), (SIN,))), "a block must end in 'return', this one ends in 'sin'"),
    "empty": (Func("f", Block((X,), ())), "a block must end in 'return', this one ends in 'nothing'"),
    "wrong end": (Func("f", Block((X,), (instr("yield", type=None),))), "must end in 'return', this one ends in 'yield'"),
    "early end": (made(instr("return", type=None)), "'return' stands before the end of its block"),
    "foreign op": (
        made(Instr(Plain(name="sin", infer=OPS["sin"].infer), SIN.outs, (X,), NO_ATTRS)),
        "'sin' is not the record of the op table",
    ),
    "blocks": (made(instr("sin", X, blocks=(Block((), ()),))), "'sin' carries 0 blocks, this one has 1"),
    "no blocks": (made(instr("for", X)), "'for' carries 1 blocks, this one has 0"),
    "list attribute": (
        made(instr("sum", X, type=f64[()], attrs={"axes": [0]})),
        "the attribute 'axes' holds [0] of list, which is not allowed there",
    ),
    "NumPy attribute": (
        made(instr("sum", X, type=f64[()], attrs={"axes": (np.int64(0),)})),
        "the attribute 'axes' holds np.int64(0) of int64, which is not allowed there",
    ),
    "NumPy float attribute": (
        made(instr("sin", X, attrs={"a": np.float64(0.5)})),
        "the attribute 'a' holds np.float64(0.5) of float64, which is not allowed there",
    ),
    "attribute name": (made(instr("sin", X, attrs={1: 2})), "an attribute's name is a str, got 1"),
    "attributes": (made(instr("sin", X, attrs=("a",))), "attributes are a mapping, got ('a',)"),
    "writeable constant": (
        made(instr("const", type=f64[()], attrs={"value": array(1, writeable=True)})),
        "a constant's array must be read-only and C-contiguous",
    ),
    "constant's order": (
        made(instr("const", type=f64[2, 3], attrs={"value": array(np.ones((3, 2))).T})),
        "a constant's array must be read-only and C-contiguous",
    ),
    "constant's element type": (
        made(instr("const", type=f64[()], attrs={"value": array(1, dtype=np.int32)})),
        "a constant has one attribute, an array of f64, f32, i64, bool",
    ),
    "constant's declared type": (
        made(instr("const", type=f32[()], attrs={"value": array(1)})),
        "'const' gives (f64), but its results are declared (f32)",
    ),
    "no type": (made(params=(Value("x", "f64"),)), "'f64' is no type"),
    "axis": (made(params=(Value("x", Type(f64, (True,))),)), "has an axis True, which is no size"),
    "stack of stacks": (made(params=(Value("x", StackType(StackType(f64[()]))),)), " is no type"),  # type: ignore[arg-type]  # meant
    "foreign name": (made(SIN, names=(("q", LATER.out),)), "the name 'q' is given to a value that the function's own block"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_verifier_refuses(case: str) -> None:
    func, message = MALFORMED[case]
    with pytest.raises(IRError) as caught:
        verify(func, after="cse")
    text = str(caught.value)
    assert message in text
    assert text.startswith("the pass 'cse' made a malformed @f: ")


def test_verifier_isolates_blocks() -> None:
    c = Value("c", bool_[()])
    inside = instr("sin", X)
    blocks = (Block((), (inside, Instr(OPS["yield"], (), (), NO_ATTRS))), Block((), (Instr(OPS["yield"], (), (), NO_ATTRS),)))
    branch = Instr(OPS["if"], (), (c,), NO_ATTRS, blocks)
    with pytest.raises(IRError, match="used outside the block that defines it"):
        verify(made(branch, instr("sin", inside.out), params=(X, c)))
    with pytest.raises(IRError, match="the name 'q'"):
        verify(made(branch, params=(X, c), names=(("q", inside.out),)))


def test_verifier_says_where() -> None:
    with pytest.raises(IRError) as caught:
        verify(made(SIN, instr("add", SIN.out, X, type=f64["m"])))
    assert str(caught.value) == (
        "malformed @f: 'add' gives (f64[n]), but its results are declared (f64[m])\n"
        "  %y_1 = add %y, %x : f64[m]\n"
        "  from user.py:7"
    )


# -- interpreter ------------------------------------------------------------------------------------------------------
SETTLE = """
func @settle(%x0: f64[n], %w: f64[n]) -> f64 {
  %tol = const 0.01 : f64
  %x = while (%xi = %x0) {
    %sq = mul %xi, %xi : f64[n]
    %e = sum %sq {axes = [0]} : f64
    %go = lt %tol, %e : bool
    yield %go
  } do {
    %t = sin %xi : f64[n]
    %y = mul %t, %w : f64[n]
    yield %y
  }
  %r = sum %x {axes = [0]} : f64
  return %r
}
"""
# Its adjoint by hand, as the reverse of a loop will be: the while pushes what its body overwrites, a for pops it.
SETTLE_ADJOINT = """
func @settle_adj(%x0: f64[n], %w: f64[n], %r_adj: f64) -> (f64, f64[n], f64[n]) {
  %tol = const 0.01 : f64
  %zero = const 0 : i64
  %one = const 1 : i64
  %tape0 = stack.new {element = f64[n]} : stack<f64[n]>
  %x, %tape, %trips = while (%xi = %x0, %s = %tape0, %k = %zero) {
    %sq = mul %xi, %xi : f64[n]
    %e = sum %sq {axes = [0]} : f64
    %go = lt %tol, %e : bool
    yield %go
  } do {
    %s2 = stack.push %s, %xi : stack<f64[n]>
    %k2 = add %k, %one : i64
    %t = sin %xi : f64[n]
    %y = mul %t, %w : f64[n]
    yield %y, %s2, %k2
  }
  %r = sum %x {axes = [0]} : f64
  %x_adj = broadcast %r_adj {axes = [], shape = [n]} : f64[n]
  %fzero = const 0.0 : f64
  %zeros = broadcast %fzero {axes = [], shape = [n]} : f64[n]
  %x0_adj, %end, %w_adj = for %trips (%i, %y_adj = %x_adj, %s = %tape, %wa = %zeros) {
    %s2, %xi = stack.pop %s : stack<f64[n]>, f64[n]
    %t = sin %xi : f64[n]
    %dw = mul %y_adj, %t : f64[n]
    %wa2 = add %wa, %dw : f64[n]
    %t_adj = mul %y_adj, %w : f64[n]
    %c = cos %xi : f64[n]
    %xi_adj = mul %t_adj, %c : f64[n]
    yield %xi_adj, %s2, %wa2
  }
  return %r, %x0_adj, %w_adj
}
"""


def settle(x: np.ndarray, w: np.ndarray) -> float:
    while np.sum(x * x) > 0.01:
        x = np.sin(x) * w
    return np.sum(x)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_settle(n: int) -> None:
    rng = np.random.default_rng(n)
    x, w = rng.normal(size=n), rng.uniform(-0.9, 0.9, n)
    func, reverse = parse_func(SETTLE), parse_func(SETTLE_ADJOINT)
    verify(func), verify(reverse)
    (value,) = run(func, [x, w])
    assert value == settle(x, w)
    seed, h = -1.7, 1e-6
    again, x_adj, w_adj = run(reverse, [x, w, seed])
    assert again == value
    for k in range(n):
        step = h * np.eye(n)[k]
        # central differences of a smooth function: h**2 and rounding/h are both below 1e-9
        assert x_adj[k] == pytest.approx(seed * (settle(x + step, w) - settle(x - step, w)) / (2 * h), abs=1e-8)
        assert w_adj[k] == pytest.approx(seed * (settle(x, w + step) - settle(x, w - step)) / (2 * h), abs=1e-8)


def test_interpreter_binds_sizes() -> None:
    func = parse_func("func @f(%x: f64[n], %y: f64[2*n - 1], %z: f64[3]) -> () {\n  return\n}")
    assert bind(func, [(4,), (7,), (3,)], {}) == {"n": 4}
    for shapes in ([(4,), (8,), (3,)], [(4,), (7,), (4,)], [(4, 1), (7,), (3,)]):
        with pytest.raises(ShapeError):
            bind(func, shapes, {})
    with pytest.raises(ShapeError, match=r"%y is f64\[2\*n - 1\], got shape \(8,\) where n = 4"):
        run(func, [np.ones(4), np.ones(8), np.ones(3)])
    with pytest.raises(DTypeError, match=r"%z is f64\[3\], got an array of complex128"):
        run(func, [np.ones(4), np.ones(7), np.ones(3, complex)])
    with pytest.raises(PullbackError, match="@f takes 3 arguments, got 1"):
        run(func, [1.0])


def test_interpreter_takes_sizes() -> None:
    func = parse_func("func @f() -> i64 {\n  %n = size {dim = 2*n} : i64\n  return %n\n}")
    (value,) = run(func, [], {"n": 3})
    assert value == 6
    with pytest.raises(ShapeError, match="the size n of 2\\*n is not defined by any argument"):
        run(func, [])


def test_interpreter_does_not_alias() -> None:
    func = parse_func("func @f(%x: f64[n]) -> (f64[n], f64[n]) {\n  return %x, %x\n}")
    x = np.ones(3)
    first, second = run(func, [x])
    first[0] = 5
    assert second[0] == 1 and x[0] == 1


def test_interpreter_is_not_sloppy() -> None:
    """A result that is not what its type says is an error even where NumPy would go on."""
    wrong = made(instr("sum", X, type=f64[3], attrs={"axes": (0,)}), params=(X,))
    with pytest.raises(IRError, match=r"'sum' gives an array of float64 and shape \(\), its type f64\[3\] says shape \(3,\)"):
        run(wrong, [np.ones(3)])


def test_interpreter_watches_a_tape() -> None:
    pushes = "func @f(%x: f64) -> () {{\n  %s = stack.new {{element = f64}} : stack<f64>\n{}  return\n}}"
    push = "  %{} = stack.push %s, %x : stack<f64>\n"
    with pytest.raises(IRError, match="a version of height 0 is pushed to again"):
        run(parse_func(pushes.format(push.format("a") + push.format("b"))), [1.0])
    with pytest.raises(IRError, match="empty stack"):
        run(parse_func(pushes.format("  %t, %y = stack.pop %s : stack<f64>, f64\n")), [1.0])


def test_interpreter_shows_values() -> None:
    func = parse_func(SETTLE)
    values = trace_values(func, [[0.5, -2.0], [0.9, 0.1]])
    by_name = {value.name: array for value, array in values.items()}
    assert {"x0", "w", "tol", "x", "sq", "e", "go", "t", "y", "r"} <= set(by_name)
    assert not by_name["go"]  # of what a loop does, the last is kept
    assert np.array_equal(by_name["x"], by_name["y"])
    seen: list[str] = []
    run(func, [[0.5], [0.9]], watch=lambda instr, results: seen.append(instr.op.name))
    assert seen[0] == "const" and seen[-2:] == ["while", "sum"]
    assert seen.count("mul") == 2 * seen.count("sin") + 1  # one more condition than bodies


def test_interpreter_keeps_quiet_and_exact() -> None:
    func = parse_func("func @f(%x: f32[n]) -> f32[n] {\n  %y = div %x, %x : f32[n]\n  return %y\n}")
    (value,) = run(func, [np.array([0, 2], np.float32)])
    assert value.dtype == np.float32 and np.isnan(value[0]) and value[1] == 1


# -- the op table: rules against meanings -------------------------------------------------------------------------------
SAMPLES = [(op, types, attrs) for op in OPS.values() for types, attrs in op.samples]
IDS = [f"{op.name}({', '.join(types)}){attrs or ''}" for op, types, attrs in SAMPLES]


def sample(op: Op, types: tuple[str, ...], attrs: dict[str, Any]) -> tuple[Func, list[np.ndarray]]:
    params = [Value(f"x{k}", parse_type(text)) for k, text in enumerate(types)]
    b = Builder()
    func = Func("f", b.close("return", b.emit(op, params, attrs), params))
    rng = np.random.default_rng(3)
    return func, [draw(rng, p.type) for p in params]


def draw(rng: np.random.Generator, type: Type) -> np.ndarray:
    if type.dtype.kind == "f":
        return rng.normal(size=type.shape).astype(type.dtype.numpy)
    return rng.integers(0, 2, type.shape).astype(type.dtype.numpy)  # as an index these are within bounds


@pytest.mark.parametrize(("op", "types", "attrs"), SAMPLES, ids=IDS)
def test_shape_rule_is_meaning(op: Op, types: Any, attrs: Any) -> None:
    func, args = sample(op, types, attrs)
    verify(func)
    again = parse_func(print_func(func))
    verify(again)
    for left, right in zip(run(func, args), run(again, args), strict=True):  # the interpreter compares types and results
        np.testing.assert_array_equal(left, right)


DIFFERENTIABLE = [
    (op, types, attrs)
    for op, types, attrs in SAMPLES
    if not isinstance(op, (Plain, Elementwise)) and "f" in {parse_type(t).dtype.kind for t in types}
]


@pytest.mark.parametrize(("op", "types", "attrs"), DIFFERENTIABLE)
def test_reverse_is_forward_is_difference(op: Op, types: Any, attrs: Any) -> None:
    func, args = sample(op, types, attrs)
    wrt = [p for p in func.params if p.type.is_float]
    rng = np.random.default_rng(4)
    directions = [draw(rng, p.type) for p in wrt]
    seed = draw(rng, func.results[0].type)
    reverse, forward = adjoint(func, wrt, primal=False), tangent(func, wrt, primal=False)
    verify(reverse), verify(forward)
    gradients = run(reverse, [*args, seed])
    (moved,) = run(forward, [*args, *directions])
    pulled = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    single = any("f32" in text for text in (*types, str(func.results[0].type)))
    rounding = 1e-5 if single else 1e-12  # a few units in the last place of the element type
    assert np.sum(moved * seed) == pytest.approx(pulled, rel=rounding, abs=rounding)

    def at(h: float) -> np.ndarray:
        steps = iter(directions)
        return run(
            func, [a + np.asarray(h * next(steps), a.dtype) if p in wrt else a for p, a in zip(func.params, args, strict=True)]
        )[0]

    h = 1e-2 if single else 1e-5  # in single precision only conversions, which are linear: any step will do
    np.testing.assert_allclose((at(h) - at(-h)) / (2 * h), moved, rtol=1e-3 if single else 1e-6, atol=1e-3 if single else 1e-8)


MASKED = [(op, types, attrs) for op, types, attrs in DIFFERENTIABLE if isinstance(op, Linear) and op.carries_mask]


@pytest.mark.parametrize(("op", "types", "attrs"), MASKED)
def test_masks_transpose_like_values(op: Linear, types: Any, attrs: Any) -> None:
    """Where positive cotangents arrive is where the mask, transposed by the same rule over its algebra, is true."""
    func, args = sample(op, types, attrs)
    if not func.results[0].type.is_float:
        return
    (step,) = func.body[:-1]
    b = Builder()
    ct, mask = Value("ct", step.out.type), Value("mask", step.out.type.of(bool_))
    start = [t.zeros(step.args[0].type) for t in (Values(b), Masks(b))] if op.accumulates else None
    values = op.transpose(Values(b), step, ct, *(start[:1] if start else ()))
    masks = op.transpose(Masks(b), step, mask, *(start[1:] if start else ()))
    assert [v is None for v in values] == [m is None for m in masks]
    results = [v for v in (*values, *masks) if v is not None]
    both = Func("both", b.close("return", results, (*func.params, ct, mask)))
    verify(both)
    rng = np.random.default_rng(5)
    live = rng.random(ct.type.shape) < 0.5
    positive = np.where(live, rng.uniform(0.5, 1, ct.type.shape), 0).astype(ct.type.dtype.numpy)
    found = run(both, [*args, positive, live])
    half = len(found) // 2
    for value, where in zip(found[:half], found[half:], strict=True):
        np.testing.assert_array_equal(value != 0, where)


def test_upper_bound() -> None:
    """A symbol counts with its bound where it adds, with nothing where it takes away."""
    bounds = {"k": Dim.parse("n"), "j": Dim.parse("k + 1")}
    for text, expected in [("n - k", "n"), ("2*k + 1", "2*n + 1"), ("(n + k)//2", "n"), ("j*m", "m*n + m"), ("n", "n")]:
        assert upper_bound(Dim.parse(text), bounds) == Dim.parse(expected)
