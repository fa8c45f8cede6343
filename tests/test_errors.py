"""Whole messages: what was expected, what was got, where, and what to do. Hostile files are refused quickly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.frontends.expression import ExpressionFrontend, inline
from pullback.frontends.traced import Spec

GUARD = 2.0  # seconds of the processor's time; most refusals take hundredths, the slowest half a second


def message_of(text: str) -> str:
    """What reading and tracing a file says."""
    with pytest.raises(pb.PullbackError) as caught:
        frontend = ExpressionFrontend.parse(text, "model.expr")
        frontend.trace([Spec(p.declared) for p in frontend.parameters])
    return str(caught.value)


WHOLE = {
    "x: f64\nreturn x^2": """\
model.expr:2:9: '^' is not a power here
    return x^2
            ^
  write x**2 for powers (np.logical_xor for conditions)""",
    "x: f64\nq = snh(x)\nreturn q": """\
model.expr:2:5: unknown function snh
    q = snh(x)
        ^^^
  did you mean sinh or asinh?""",
    "spot: f64\nreturn 2*spto": """\
model.expr:2:10: unknown name spto
    return 2*spto
             ^^^^
  did you mean spot? declare it if it is an input: spto: f64""",
    "x: f64[n]\nreturn max(x, 0)": """\
model.expr:2:8: max of several values is ambiguous: Python's compares them, NumPy's second argument is an axis
    return max(x, 0)
           ^^^^^^^^^
  write maximum(a, b) to compare, or max(a, axis=0) along an axis""",
    "sum: f64\nreturn sum(sum)": """\
model.expr:2:8: sum is a variable here and cannot be called
    return sum(sum)
           ^^^
  write np.sum(...) for the function""",
    "x: f64\nreturn 2*exp": """\
model.expr:2:10: exp is a function here, not a value
    return 2*exp
             ^^^
  call it, exp(...), or declare an input of that name: exp: f64""",
    "x: f64[n]\nif x[0] > 0:\n    y = 1.0\nreturn x*y": """\
model.expr:4:10: 'y' has a value in one arm only of the if 'x[0] > 0' at model.expr:2
    return x*y
             ^
  give it a value before""",
    "x: f64[n]\nif x > 0:\n    x = -x\nreturn x": """\
model.expr:2:1: the condition of the if 'x > 0' has shape (n,): the truth value of an array with more than one element is \
ambiguous
    if x > 0:
    ^
  use np.any(...) or np.all(...)""",
    "x: f64\nfor i in range(3):\n    x = x*x\n    continue\n    x = 2\nreturn x": """\
model.expr:5:5: nothing after the continue is ever computed
    x = 2
    ^^^^^
  remove it, or move it up""",
    "x: f64\nif x > 0:\n    return x\n": """\
model.expr:3:1: the file can reach its end without a return
    return x
    ^
  end it with return and the output""",
    "x: f64\nfor i in range(x):\n    x = i\nreturn x": """\
model.expr:2:16: range takes integers
    for i in range(x):
                   ^
  declare an input as i64, or convert it: k.astype(int)""",
    "x: f64\nif x > 0:\n    return 1.0\nreturn {'a': x}": """\
model.expr:4:1: what is returned is 1.0 in one arm and a dict of 1 in the other arm of the if 'x > 0' at model.expr:2
    return {'a': x}
    ^^^^^^^^^^^^^^^
  use one variable for each, or give both the same type and shape""",
    "x: f64\nreturn __import__('os').system('true')": """\
model.expr:2:8: unknown function __import__
    return __import__('os').system('true')
           ^^^^^^^^^^
  functions are NumPy's and scipy.special's; for a product write *: a*(b + c)""",
    "import os\nx: f64\nreturn x": """\
model.expr:1:1: imports have no place in an expression file
    import os
    ^^^^^^^^^
  NumPy's and scipy.special's functions are there: exp, np.exp""",
    "x: f64\nreturn (x + 1": """\
model.expr:2:8: '(' is never closed
    return (x + 1
           ^""",
    "x: f64\nreturn x + 1]": """\
model.expr:2:13: ']' closes nothing
    return x + 1]
                ^""",
    "x: f64\ny = x*2": """\
model.expr:2:1: the file has no return
    y = x*2
    ^
  end it with return and the output: return sum(y)""",
    "x: f64\nx*2": """\
model.expr:2:1: the output is not returned
    x*2
    ^^^
  write return in front of it""",
    "x: float\nreturn x": """\
model.expr:1:4: the type of an input is one of f64, f32, i64, bool, got float
    x: float
       ^^^^^
  write f64 for a real number, i64 for an integer, f64[n] for a vector, f64[n, p] for a matrix""",
    "x: f64[n + 1]\nreturn x": """\
model.expr:1:1: the size n cannot be found: no axis is just n
    x: f64[n + 1]
    ^
  declare an input with an axis of length n, or write the length as a number""",
    "def f(x):\n    return f(x)\nx: f64\nreturn f(x)": """\
model.expr:2:12: f calls itself; recursion is not supported
    return f(x)
           ^^^^
  write it out""",
    "lambda: f64\nreturn 1": """\
model.expr:1:1: lambda is a word of the language and cannot be a name
    lambda: f64
    ^^^^^^^^^^^
  call it lambda_""",
    "x: f64\nreturn x.__class__": """\
model.expr:2:8: the attribute __class__ is not allowed: its name starts with _
    return x.__class__
           ^^^^^^^^^^^""",
    "α: f64\nreturn α*βeta": """\
model.expr:2:10: unknown name βeta
    return α*βeta
             ^^^^
  declare it if it is an input: βeta: f64""",
    "seed: f64\nreturn seed": """\
model.expr:1:1: an input cannot be named seed: the derivatives take an argument of that name
    seed: f64
    ^^^^
  rename it""",
    "x: f64[3]\ny: f64[4]\nreturn x + y": """\
model.expr:3:8: operands could not be broadcast together with shapes (3,) (4,)
    return x + y
           ^
  lengths must be equal, or one of them 1""",
}

ALIAS = "x: f64\ny = zeros(3)*x\nz = y\n{}\nreturn y + z"  # two names for one array, and a write after one may have changed


@pytest.mark.parametrize("text", WHOLE)
def test_whole_message(text: str) -> None:
    assert message_of(text) == WHOLE[text]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("return f'{x}'", "f-strings have no meaning"),
        ("x: f64\nreturn [x for x in y]", "comprehensions have no place"),
        ("x: f64\nreturn (lambda: x)()", "lambda has no place"),
        ("x: f64\nreturn (y := x)", "':=' has no place"),
        ("x: f64\nreturn max(*x)", "'*' before an argument"),
        ("x: f64\nreturn sum(**x)", "'**' before an argument"),
        ("x: f64\nreturn {'a': {'b': x}}", "can only be returned"),
        ("x: f64\nreturn {x: x}", "the name of an output is a string"),
        ("x: f64\nreturn 'x'", "an output is a number or an array"),
        ("x: f64\nreturn x + 'x'", "a str is not a number"),
        ("x: f64\nreturn 3j*x", "complex numbers are not supported"),
        ("x: f64\nreturn b'x'", "bytes have no meaning"),
        ("x: f64[n]\nreturn 0 < x < 1", "write (a < x) & (x < b)"),
        ("x: f64\nreturn x << 2", "'<<' is not supported"),
        ("x: f64\nreturn x is 2", "'is' is not supported"),
        ("x: f64\nreturn x in [2]", "'in' is not supported"),
        ("x: f64\nreturn 1/0*x", "division by zero"),
        ("x: f64\nreturn 2**10**9*x", "too large for a float"),
        ("x: f64\nreturn 9**9**9*x", "too large for a float"),
        ("x: f64\nreturn x*" + "9" * 5000, "too many digits"),
        ("x: f64\nreturn ones(10**12)", "elements are too many"),
        ("x: f64\nreturn tile(1.0, (10**5, 10**5))", "elements are too many"),
        ("x: f64\nreturn x.fooo", "arrays have no attribute fooo"),
        ("x: f64\nreturn x.summ()", "did you mean sum?"),
        ("x: f64\nreturn x.sum", "sum is a method"),
        ("x: f64\nreturn np.fft.fft(x)", "unknown function np.fft.fft"),
        ("x: f64\nreturn np.load('secret.npy')", "unknown function np.load"),
        ("x: f64\nreturn open('/etc/passwd')", "unknown function open"),
        ("x: f64\nreturn eval('x')", "unknown function eval"),
        ("x: f64\nreturn x(2)", "x is a variable here and cannot be called"),
        ("x: f64\nreturn (x + 1)(x)", "only functions can be called"),
        ("x: f64\nreturn float(x)", "write x.astype(float)"),
        ("x: f64\nq = q*2\nreturn q", "q is used before it has a value"),
        ("x: f64\ny = f(x)\ndef f(x):\n    return x\nreturn y", "f is called before its definition"),
        ("x: f64\ndef f(x, y):\n    return x\nreturn f(x)", "f(x, y) needs y too"),
        ("x: f64\ndef f(x):\n    return x\nreturn f(x, 2)", "f(x) takes 1 argument, got 2"),
        ("x: f64\ndef f(x):\n    return x\nreturn f(z=2)", "f(x) has no argument z"),
        ("x: f64\ndef f(*x):\n    return x\nreturn f(x)", "plain arguments only"),
        ("x: f64\ndef f(x):\n    y: f64\n    return x\nreturn f(x)", "inputs are declared at the file's top level only"),
        ("x: f64\ndef x(y):\n    return y\nreturn x", "the name x is taken already"),
        ("x: f64\nreturn x\ny = 2", "nothing after the return is ever computed"),
        ("x: f64\nx: f64\nreturn x", "x is declared twice, first in line 1"),
        ("n: i64\nx: f64[n]\nreturn x", "n is an input and the size of an axis"),
        ("x: f64[n]\nn = 2\nreturn x", "n is the size of an axis and cannot be changed"),
        ("x: f64[-1]\nreturn x", "between 0 and 2**31"),
        ("x: f64[n/2]\nreturn x", "not a size"),
        ("x: f64 = 2*3\nreturn x", "the default of x is not a literal"),
        ("x: f64\n(a, b) = x*1, 2, 3\nreturn a", "2 names for 3 values"),
        ("x: f64\nx.T = 2\nreturn x", "this cannot be assigned to"),
        ("x: f64[n]\nx[0] = 2.0\nreturn x", "the input x would be changed in place"),
        ("x: f64\nclass A:\n    pass\nreturn x", "classes have no place"),
        ("x: f64\nwith x:\n    pass\nreturn x", "'with' has no place"),
        ("x: f64\nglobal y\nreturn x", "'global' has no place"),
        ("x: f64\nwhile True:\n    x = x/2\nreturn x", "never ends"),
        ("x: f64\nbreak\nreturn x", "'break' outside of a loop"),
        ("x: f64\nfor i, j in x:\n    y = i\nreturn x", "a loop has one variable"),
        ("x: f64\nfor i in x:\n    x = i\nreturn x", "a loop goes over a range or an array"),
        ("x: f64\nfor i in range(0, 3, 0):\n    x = i\nreturn x", "range() arg 3 must not be zero"),
        (ALIAS.format("if x > 0:\n    z = ones(3)\nz[0] = 2.0"), "'z' may be one array or another after the if 'x > 0'"),
        (ALIAS.format("if x > 0:\n    z = ones(3)\ny[0] = 2.0"), "'z' may be one array or another after the if 'x > 0'"),
        (ALIAS.format("for i in range(99):\n    if x > i:\n        z = z + 1\ny[0] = x"), "'z' may be one array or another"),
        (ALIAS.format("while x > z[0]:\n    z = z + 1\nz[0] = x"), "'z' may be one array or another after the loop"),
        ("x: f64\n__y = 1\nreturn x", "its name starts with __"),
        ("x: f64\nfor i in range():\n    x = i\nreturn x", "range takes one to three numbers"),
        ("x: f64\ny = range(3)\nreturn x", "as an array it is arange(n)"),
        ("x: f64[n]\nfor i in range(n):\n    t = x[i]\nreturn t", "'t' gets its first value in a trip"),
        ("x: f64[n]\nfor i in range(n):\n    x[i] = 2.0\nreturn x", "would be changed in place"),
        ("x: f64\nif x > 0:\n    y = 1.0\nelse:\n    y = zeros(3)\nreturn y", "of shape () in one arm and of shape (3,)"),
        ("x: f64\nassert x > 0, x\nreturn x", "the message of assert is a string"),
        ("x: f64\nassert 1 > 2\nreturn x", "assertion failed: 1 > 2"),
        ("x: f64\nif x > 0:\n    def g(y):\n        return y\nreturn x", "a function inside a block"),
        ("x: f64\ntry:\n    y = 1\nexcept ValueError:\n    y = 2\nreturn x", "'try' has no place"),
        ("x: f64\npass\nreturn x", "'pass' has no place here"),
        ("x: f64\ny = i\nfor i in range(3):\n    y = i\nreturn x", "i is used before it has a value"),
        ("x: f64\n" + "".join("    " * k + "if x > 0:\n" for k in range(30)) + "    " * 30 + "x = 1\nreturn x", "25 deep"),
        ("x: f64\nreturn 2 x", "not valid syntax"),
        ("x: f64\nreturn x*lambda", "lambda is a word of the language"),
        ("x: f64\nreturn x\0", "U+0000"),
        ("x: f64\nreturn x$2", "the character '$' has no meaning here"),
        ("x: f64\nreturn 'x", "the string is never closed"),
        ("x: f64\nreturn (x]", "']' does not close the '(' of line 2, column 8"),
        ("", "the file has no return"),
    ],
)  # fmt: skip
def test_refused(text: str, part: str) -> None:
    assert part in message_of(text)


# -- hostile files ----------------------------------------------------------------------------------------------------
LAUGHS = "x: f64\ndef f0(x):\n  return x + x\n" + "".join(
    f"def f{k}(x):\n  return f{k - 1}(x)*f{k - 1}(x)\n" for k in range(1, 39)
)
HOSTILE = {
    "a million parentheses": "(" * 10**6 + "x" + ")" * 10**6,
    "a line of ten million": "x" + "+x" * (5 * 10**6),
    "a long line": "x: f64\nreturn x" + "+x" * 60_000,
    "nested parentheses": "x: f64\nreturn " + "(" * 50_000 + "x" + ")" * 40_000,
    "closing only": ")" * 99_000,
    "brackets": "[" * 99_000,
    "signs": "x: f64\nreturn " + "-" * 90_000 + "x",
    "nots": "x: f64\nreturn " + "not " * 20_000 + "x",
    "powers": "x: f64\nreturn " + "x**" * 30_000 + "x",
    "conditionals": "x: f64\nreturn " + "x if x else " * 8_000 + "x",
    "lambdas": "x: f64\nreturn " + "lambda:" * 9_000 + "x",
    "attributes": "x: f64\nreturn x" + ".T" * 40_000,
    "calls": "x: f64\nreturn f" + "()" * 40_000,
    "elifs": "x: f64\nif x:\n  y = 1\n" + "elif x:\n  y = 1\n" * 10_000 + "return x",
    "digits": "x: f64\nreturn x*" + "9" * 90_000,
    "hexadecimal": "x: f64\nreturn x*0x" + "f" * 90_000,
    "a name": "x: f64\nreturn " + "f" * 90_000,
    "a size": "x: f64[" + "n*" * 2_000 + "n]\nreturn x",
    "import": "x: f64\nreturn __import__('os').system('rm -rf /')",
    "dunder": "x: f64\nreturn ().__class__.__bases__[0].__subclasses__()",
    "a tower": "x: f64\nreturn x*9**9**9**9",
    "memory": "x: f64\nreturn arange(10**15)[0]*x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.expr"
    path.write_text(HOSTILE[name], encoding="utf-8")
    start = time.process_time()
    with pytest.raises(pb.ExpressionError) as caught:
        frontend = ExpressionFrontend.load(path)
        frontend.trace([Spec(p.declared) for p in frontend.parameters])
    assert time.process_time() - start < GUARD
    assert len(str(caught.value)) < 1_000
    assert "hostile.expr" in str(caught.value)


def test_hostile_expression() -> None:
    start = time.process_time()
    for text in HOSTILE.values():
        with pytest.raises(pb.ExpressionError):
            inline(text).trace([])
    assert time.process_time() - start < 3 * GUARD  # for all of them


def test_helpers_that_explode() -> None:
    """2**38 calls; the steps are counted, and some seconds' worth allowed."""
    assert "steps to evaluate" in message_of(LAUGHS + "return f38(x)")


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.expr"
    path.write_bytes(b"x: f64\nreturn \xff\xfe")
    with pytest.raises(pb.ExpressionError, match=r"binary.expr:2: the file is not text in UTF-8"):
        pb.load(path)
    path.write_bytes(b" " * 2_000_000)
    with pytest.raises(pb.ExpressionError, match="the file is too large"):
        pb.load(path)


# -- calls ------------------------------------------------------------------------------------------------------------
def whole(error: type[Exception], call: Any) -> str:
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_seeds() -> None:
    f = pb.compile(lambda x: x * 2.0, name="twice")
    x = np.ones(3)
    assert whole(pb.SeedError, lambda: f.grad(x)) == (
        "the output of twice has shape (3,); a seed, the gradient of some loss with respect to it, must be given: "
        "seed=np.ones((3,)) for the gradient of its sum"
    )
    assert whole(pb.SeedError, lambda: f.grad(x, seed=np.ones(4))) == (
        "the seed has shape (4,), the output of twice has shape (3,); they must be equal, or the seed a scalar"
    )


def test_what_newcomers_type() -> None:
    f = pb.compile(lambda x, w: x * w, name="f")
    x = np.array([1.0, -2.0])
    assert whole(TypeError, lambda: pb.name(3, "q")) == "name takes (label, value): pb.name('q', x + y); got int as the label"
    for call in (lambda: f.hessian(x, x), lambda: f.hessian(x, x, wrt="w"), lambda: pb.hessian(f, "x")(x, x)):
        assert whole(pb.SeedError, call) == (
            "hessian takes a function with one scalar output; f returns f64[2]; "
            "jacobian takes the first derivatives of a function with an array as its output"
        )
    assert whole(pb.SeedError, lambda: f.hvp(x, x, vector=x, wrt="x")).startswith("hvp takes a function with one scalar output")
    for transform in ("grad", "value_and_grad", "vjp", "jvp", "jacobian", "hessian"):
        assert whole(pb.PullbackError, lambda name=transform: getattr(pb, name)(x)).startswith(
            f"{transform} takes a compiled function, a Python function or a SymPy expression; got ndarray; "
        )
    assert whole(TypeError, lambda: f.value_and_grad(1.0, 2.0, seed=2)).endswith("; use vjp, which takes a seed")
    for call in (lambda: f.grad(1.0, 2.0, wrt="W"), lambda: pb.grad(f, "W")):
        assert whole(pb.PullbackError, call).endswith("it has x, w; did you mean 'w'?")


def test_environment_variables_with_unknown_values_are_spoken_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_DUMP", "adjiont")
    monkeypatch.setenv("PULLBACK_LOG", "compiles")
    with pytest.warns(UserWarning) as caught:
        pb.compile(lambda x: x * x).grad(-2.0)
        pb.compile(lambda x: x * x).grad(-2.0)
    assert sorted(str(w.message) for w in caught) == [
        "PULLBACK_DUMP=adjiont means nothing; known are all, the frontend, simplify, cse, dce, scalarize, together, "
        "adjoint, tangent",
        "PULLBACK_LOG=compiles means nothing; known are compile",
    ]


def test_a_prompt_shows_reports_as_text() -> None:
    f = pb.compile(lambda x: x * x, name="f")
    for found in (f.check(-3.0), f.explain(-3.0)):
        assert repr(found) == found.text


def test_arguments() -> None:
    f = pb.compile(lambda x, y: x * y, name="product")
    assert "no input named 'z'" in whole(TypeError, lambda: f(1.0, z=2.0))
    assert "needs 'y' too" in whole(TypeError, lambda: f(1.0))
    assert "element type complex128" in whole(pb.DTypeError, lambda: f(np.ones(2, complex), 1.0))
    assert "only floating arguments have gradients" in whole(pb.DTypeError, lambda: f.grad(np.arange(3), np.ones(3), wrt="x"))


def test_control_flow_on_a_traced_value() -> None:
    @pb.compile
    def f(x: Any) -> Any:
        if x > 0:
            y = x
        return y

    found = whole(pb.TraceError, lambda: f(1.0))
    assert f"{Path(__file__).name}:" in found
    assert "'y' has a value in one arm only of the if 'x > 0'" in found
    assert "give it a value before" in found


def test_unsupported_function() -> None:
    @pb.compile
    def f(x: Any) -> Any:
        return np.fft.fft(x)

    found = whole(pb.UnsupportedError, lambda: f(np.ones(4)))
    assert "numpy.fft.fft is not supported" in found
    assert f"{Path(__file__).name}:" in found
