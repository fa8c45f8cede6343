"""IR to SymPy: the oracle of the tests and of ``check``, and the text and LaTeX of a function.

``lift`` writes every element of every result as a SymPy expression in real symbols, one for each element of an argument. It is
meant for small functions; for larger ones, or numbers with many digits, see ``precise.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pullback.errors import UnsupportedError
from pullback.exact import Exact, boxed, boxed_as, is_known, places, sizes_for
from pullback.ir.core import Func, Instr, Value
from pullback.ir.ops.base import Attrs

BUDGET = 5_000  # elements made into expressions: about a second
DEPTH = 2_000  # instructions; SymPy walks expressions recursively
PRINTED = 20_000  # nodes of an expression, shared ones counted each time, beyond which printing it helps nobody


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function as expressions.

    ``symbols`` has an object array per parameter, ``expressions`` one per result. ``steps`` are the named intermediate values:
    a name, the symbols that stand for its elements, and their expressions (only if they were asked to be kept apart).
    """

    symbols: tuple[np.ndarray[Any, Any], ...]
    expressions: tuple[np.ndarray[Any, Any], ...]
    steps: tuple[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]], ...] = ()


class Symbolic(Exact):
    """The interpreter over SymPy expressions."""

    def __init__(self, sizes: dict[str, int], budget: int, exact: bool, apart: dict[Value, str]):
        import sympy  # only where SymPy is asked for

        super().__init__(sizes, budget, self.set_apart)
        self.sp = sympy
        self.exact = exact
        self.apart = apart
        self.steps: list[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        self.constants = {float(getattr(np, n)): s for n, s in (("pi", sympy.pi), ("e", sympy.E))}

    def number_of(self, value: Any) -> Any:
        """Exactly the float64 (or, for printing, the decimal that a person would write)."""
        sp, number = self.sp, float(value)
        if number != number:
            return sp.nan
        if number in (np.inf, -np.inf):
            return sp.oo if number > 0 else -sp.oo
        if number.is_integer() and abs(number) < 1e15:
            return sp.Integer(int(number))
        if self.exact:
            return sp.Rational(number)
        if abs(number) in self.constants:
            return self.constants[abs(number)] * (1 if number > 0 else -1)
        simple = Fraction(number).limit_denominator(100)
        return sp.Rational(simple.numerator, simple.denominator) if float(simple) == number else sp.Float(repr(number))

    def element(self, instr: Instr, meaning: Callable[..., Any], elements: Sequence[Any], attrs: Attrs) -> Any:
        try:
            made = self.sp.sympify(meaning(self.sp, *map(self.sp.sympify, elements), **attrs))
        except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
            raise self.refuse(instr, str(error)) from None
        if made.has(self.sp.zoo) or made.has(self.sp.I):
            raise self.refuse(instr, "SymPy's answer is not real")
        return made

    def reduced(self, instr: Instr, elements: list[Any], attrs: Attrs) -> Any:
        if not elements:
            assert instr.op.evaluate is not None
            made = instr.op.evaluate((np.empty(0, instr.args[0].type.dtype.numpy),), {**attrs, "axes": (0,)})
            return self.number_of(made) if instr.out.type.is_float else made
        return super().reduced(instr, elements, attrs)

    def settled(self, made: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        truths = (self.sp.true, self.sp.false)
        if all(m in truths or isinstance(m, (bool, int)) or getattr(m, "is_Integer", False) for m in made.ravel()):
            return boxed_as([bool(m) if dtype.kind == "b" else int(m) for m in made.ravel()], made.shape).astype(dtype)
        return made

    def instr(self, instr: Instr) -> tuple[Any, ...]:
        """Branches become Piecewise; a loop is written out, if what ends it does not depend on the inputs."""
        name, args = instr.op.name, self.read(instr.args)
        if name == "if" and not is_known(args[0]):
            return self.piecewise(instr, args[0])
        if name == "while":
            condition, body = instr.blocks
            while self.decided(instr, self.enter(condition, args)[0]):
                args = self.enter(body, args)
            return args
        if name == "check" and not is_known(args[0]):
            return ()  # what is written out holds where the check does
        return super().instr(instr)

    def decided(self, instr: Instr, condition: Any) -> bool:
        if is_known(condition):
            return bool(condition)
        raise UnsupportedError(
            f"{instr.loc}: a loop does not lift to SymPy where the number of its trips depends on the inputs; "
            "the other stages and check work with loops"
        )

    def piecewise(self, instr: Instr, condition: Any) -> tuple[Any, ...]:
        then, other = (self.block(block) for block in instr.blocks)
        found = []
        for yes, no, out in zip(then, other, instr.outs, strict=True):
            if out.type.is_float:
                choose = np.frompyfunc(lambda a, b: self.sp.Piecewise((a, condition[()]), (b, True)), 2, 1)
                found.append(boxed(choose(self.lift(yes), self.lift(no)), np.shape(yes)))
            elif is_known(yes) and is_known(no) and np.array_equal(yes, no):
                found.append(yes)
            elif out.type.dtype.kind == "b":
                decide = np.frompyfunc(self._either(condition[()]), 2, 1)
                found.append(self.settled(boxed(decide(yes, no), np.shape(yes)), out.type.dtype.numpy))
            else:
                raise UnsupportedError(
                    f"{instr.loc}: a branch does not lift to SymPy where it decides about more than real numbers"
                )
        return tuple(found)

    def _either(self, condition: Any) -> Callable[[Any, Any], Any]:
        sp = self.sp

        def choose(yes: Any, no: Any) -> Any:
            a, b = (sp.sympify(bool(x)) if isinstance(x, (bool, np.bool_)) else x for x in (yes, no))
            return sp.Or(sp.And(condition, a), sp.And(sp.Not(condition), b))

        return choose

    def compute(self, instr: Instr, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if instr.op.name in ("argsort", "argmax", "argmin", "nonzero") and np.asarray(args[0]).dtype == object:
            raise self.refuse(instr, "the order of values depends on the point")
        if instr.op.name == "select":
            condition, yes, no = args
            if np.asarray(condition).dtype != object:  # decided already
                return (boxed(np.where(condition, yes, no), np.shape(yes)),) if instr.out.type.is_float else (np.where(*args),)
        return super().compute(instr, args)

    def set_apart(self, instr: Instr, results: tuple[Any, ...]) -> None:
        """A named intermediate value goes on as symbols of its own."""
        for out, result in zip(instr.outs, results, strict=True):
            name = self.apart.pop(out, None)
            if name is not None and out.type.is_float:
                symbols = elementwise_symbols(name, np.shape(result))
                self.steps.append((name, symbols, np.asarray(result)))
                self.values[out] = symbols


def elementwise_symbols(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """One real symbol for each element: ``x`` for a scalar, ``x_0_1`` for an element of a matrix."""
    import sympy

    made = boxed(None, shape)
    for place in places(shape):
        made[place] = sympy.Symbol("_".join([name, *map(str, place)]), real=True)
    return made


def lift(
    func: Func,
    shapes: Sequence[tuple[int, ...]] | None = None,
    *,
    exact: bool = True,
    apart: bool = False,
    budget: int = BUDGET,
) -> Lifted:
    """``func`` for arguments of these shapes as SymPy expressions; UnsupportedError where it cannot be written so.

    ``exact``: constants are the float64 numbers exactly; otherwise as one would write them. ``apart``: named intermediate
    values become symbols, defined in ``steps``, instead of being substituted.
    """
    if len(func.body) > DEPTH:
        raise UnsupportedError(f"{func.name} has {len(func.body)} instructions; SymPy takes at most {DEPTH}")
    named = {value: name for name, value in func.names if value not in func.params} if apart else {}
    machine = Symbolic(sizes_for(func, shapes), budget, exact, named)
    symbols = []
    for k, param in enumerate(func.params):
        shape = tuple(machine.attribute(tuple(param.type.shape)))
        if not param.type.is_float:
            raise UnsupportedError(
                f"{func.name} depends on {param.name}, which is {param.type}; SymPy is for real numbers here"
            )
        symbols.append(elementwise_symbols(param.name or f"x{k}", shape))
    try:
        results = machine.call(func, symbols)
    except RecursionError:
        raise UnsupportedError(f"{func.name} is nested too deeply for SymPy") from None
    return Lifted(tuple(symbols), results, tuple(machine.steps))


# -- text -----------------------------------------------------------------------------------------------------------------
def text(func: Func, shapes: Sequence[tuple[int, ...]] | None = None, keys: Sequence[str] = ()) -> str:
    """The function in SymPy's notation: a line for each named intermediate value, then the results, under their ``keys``."""
    lifted = _printable(func, shapes)
    lines = [f"{symbol} = {expression}" for symbol, expression in _definitions(lifted)]
    results = [_nested(r) for r in lifted.expressions]
    if keys:
        entries = [f'"{key}": {result}' for key, result in zip(keys, results, strict=True)]
        return "\n".join([*lines, "return {" + ",\n        ".join(entries) + "}"])
    return "\n".join([*lines, *(f"return {r}" for r in results[:1]), *(f"       {r}" for r in results[1:])])


def latex(func: Func, shapes: Sequence[tuple[int, ...]] | None = None, keys: Sequence[str] = ()) -> str:
    """The function in LaTeX: named intermediate values, then the results, by their ``keys``."""
    import sympy

    lifted = _printable(func, shapes)
    names = {s: _latex_name(s.name) for array in (*lifted.symbols, *(s for _, s, _ in lifted.steps)) for s in array.ravel()}

    def show(expression: Any) -> str:
        return str(sympy.latex(sympy.sympify(expression), symbol_names=names))

    lines = [f"{show(symbol)} &= {show(expression)}" for symbol, expression in _definitions(lifted)]
    for k, result in enumerate(lifted.expressions):
        name = keys[k] if keys else func.name if len(lifted.expressions) == 1 else f"{func.name}_{k}"
        body = (
            show(result[()])
            if result.ndim == 0
            else show(_matrix(result))
            if result.ndim <= 2
            else show(sympy.Array(result.tolist()))
        )
        if _latex_name(name) != body:  # an output that is called like the step it returns has its line already
            lines.append(f"{_latex_name(name)} &= {body}")
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def _latex_name(name: str) -> str:
    if "\\" in name or "{" in name:
        return name  # LaTeX already
    base, *indices = name.split("_")
    if not re.fullmatch(r"[A-Za-z0-9]*", name.replace("_", "")):
        return "\\text{" + name.replace("_", r"\_") + "}"
    import sympy

    shown = sympy.latex(sympy.Symbol(base)) if base else base
    shown = shown if len(base) == 1 or shown.startswith("\\") else rf"\mathrm{{{base}}}"
    return shown + (f"_{{{','.join(indices)}}}" if indices else "")


def _matrix(result: np.ndarray[Any, Any]) -> Any:
    import sympy

    return sympy.Matrix(result.shape[0], 1 if result.ndim == 1 else result.shape[1], list(result.ravel()))


def _nested(result: np.ndarray[Any, Any]) -> str:
    """Like NumPy's lists, with expressions in them."""
    return str(result[()]) if result.ndim == 0 else "[" + ", ".join(_nested(np.asarray(part)) for part in result) + "]"


def _definitions(lifted: Lifted) -> list[tuple[Any, Any]]:
    return [pair for _, symbols, made in lifted.steps for pair in zip(symbols.ravel(), made.ravel(), strict=True)]


def _printable(func: Func, shapes: Sequence[tuple[int, ...]] | None) -> Lifted:
    lifted = lift(func, shapes, exact=False, apart=True)
    expressions = [e for made in (*lifted.expressions, *(m for _, _, m in lifted.steps)) for e in made.ravel()]
    nodes = tree_size(expressions)
    if nodes > PRINTED:
        raise UnsupportedError(
            f"{func.name} written out has {nodes} nodes; name intermediate values (pb.name) to print it in steps"
        )
    return lifted


def tree_size(expressions: Sequence[Any]) -> int:
    """The number of nodes, shared ones counted as often as they occur. Not recursive."""
    sizes: dict[Any, int] = {}
    for root in expressions:
        pending = [root]
        while pending:
            node = pending[-1]
            children = [c for c in getattr(node, "args", ()) if c not in sizes]
            if children:
                pending.extend(children)
            else:
                sizes[node] = 1 + sum(sizes[c] for c in getattr(node, "args", ()))
                pending.pop()
    return sum(sizes[root] for root in expressions)
