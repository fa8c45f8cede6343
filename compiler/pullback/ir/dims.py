"""Symbolic sizes: integer polynomials over symbols, with floor division.

Note [Symbolic sizes]
A shape is a tuple of ``int | Dim``. A size that does not depend on a symbol is always a plain ``int``, so the two
never compare equal by accident and most code needs no special case. A ``Dim`` is a sum of monomials in canonical
order; a monomial is a product of atoms; an atom is a symbol's name or a floor division that did not simplify. Two
equal polynomials are therefore equal as tuples, hash alike and print alike.

``==`` is equality as polynomials ("provably equal"), never a question about run-time lengths: what to do with two
lengths that are not provably equal is the business of the frontends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

Atom: TypeAlias = Union[str, "FloorDiv"]
Monomial: TypeAlias = tuple[Atom, ...]  # with repetition for powers, sorted by text
Size: TypeAlias = Union[int, "Dim"]


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``numerator // denominator`` that is not itself a polynomial."""

    numerator: Size
    denominator: Size

    def __str__(self) -> str:
        return f"{_factor_text(self.numerator)}//{_factor_text(self.denominator)}"


class Dim:
    """A size that depends on symbols. Build with :meth:`symbol`, :meth:`parse` and arithmetic."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        self._hash = hash(terms)

    @staticmethod
    def symbol(name: str) -> Dim:
        return Dim((((name,), 1),))

    @staticmethod
    def parse(text: str) -> Size:
        """Read what ``str`` writes, for example ``"n*m - 1"`` or ``"(n + 1)//2"``.

        >>> str(Dim.parse("m*n - 1 + n*m"))
        '2*m*n - 1'
        """
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError:
            raise ValueError(f"not a size: {text!r}") from None
        return from_ast(tree)

    # -- arithmetic -------------------------------------------------------------------------------------------
    def __add__(self, other: Size) -> Size:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        sums = dict(self.terms)
        for monomial, coefficient in _terms(other):
            sums[monomial] = sums.get(monomial, 0) + coefficient
        return _canonical(sums)

    def __mul__(self, other: Size) -> Size:
        if not isinstance(other, (int, Dim)):
            return NotImplemented
        products: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                monomial = tuple(sorted(left + right, key=str))
                products[monomial] = products.get(monomial, 0) + a * b
        return _canonical(products)

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + -1 * other

    def __rsub__(self, other: int) -> Size:
        return -1 * self + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return floordiv(other, self)

    def __mod__(self, other: Size) -> Size:
        return self - floordiv(self, other) * other

    # -- identity ---------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            factors = "*".join(_atom_text(a, len(monomial) > 1 or coefficient != 1) for a in monomial)
            size = abs(coefficient)
            term = str(size) if not monomial else factors if size == 1 else f"{size}*{factors}"
            sign = "-" if coefficient < 0 else "+"
            text += (f" {sign} " if text else "-" if sign == "-" else "") + term
        return text

    __repr__ = __str__

    # -- questions --------------------------------------------------------------------------------------------
    def symbols(self) -> frozenset[str]:
        """The names of all symbols, those inside floor divisions included."""
        found: set[str] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, str):
                    found.add(atom)
                else:
                    found |= symbols((atom.numerator, atom.denominator))
        return frozenset(found)

    def bare_symbol(self) -> str | None:
        """The name if this is just one symbol, else None."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            atom = self.terms[0][0][0]
            return atom if isinstance(atom, str) else None
        return None

    def replace(self, values: Mapping[str, Size]) -> Size:
        """The polynomial with symbols replaced, numbers or other sizes alike."""
        total: Size = 0
        for monomial, coefficient in self.terms:
            product: Size = coefficient
            for atom in monomial:
                if isinstance(atom, str):
                    product = product * values.get(atom, Dim.symbol(atom))
                else:
                    product = product * floordiv(replace(atom.numerator, values), replace(atom.denominator, values))
            total = total + product
        return total


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else ((((), size),) if size else ())


def _canonical(sums: Mapping[Monomial, int]) -> Size:
    kept = [(m, c) for m, c in sums.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    kept.sort(key=lambda term: (-len(term[0]), [str(a) for a in term[0]]))
    return Dim(tuple(kept))


def _factor_text(size: Size) -> str:
    plain = (isinstance(size, int) and size >= 0) or (isinstance(size, Dim) and size.bare_symbol() is not None)
    return str(size) if plain else f"({size})"


def _atom_text(atom: Atom, within_product: bool) -> str:
    return str(atom) if isinstance(atom, str) or not within_product else f"({atom})"


def floordiv(a: Size, b: Size) -> Size:
    """Floor division. Multiples of ``b`` are taken out: ``(4*n + 2*m + 1)//2 = 2*n + m``."""
    if isinstance(b, int):
        if b == 0:
            raise ZeroDivisionError("a size divided by zero")
        if isinstance(a, int):
            return a // b
        whole: Size = 0
        rest: Size = 0
        for monomial, coefficient in a.terms:
            quotient, remainder = divmod(coefficient, b)
            whole = whole + _canonical({monomial: quotient})
            rest = rest + _canonical({monomial: remainder})
        if isinstance(rest, int):  # 0 <= rest < b by divmod, so it vanishes
            return whole
        return whole + Dim((((FloorDiv(rest, b),), 1),))
    if a == b:
        return 1
    exact = _divide_by_monomial(a, b)
    if exact is not None:
        return exact
    return Dim((((FloorDiv(a, b),), 1),))


def _divide_by_monomial(a: Size, b: Dim) -> Size | None:
    """``a / b`` where ``b`` has one term and divides every term of ``a`` exactly."""
    if len(b.terms) != 1:
        return None
    divisor, scale = b.terms[0]
    total: Size = 0
    for monomial, coefficient in _terms(a):
        left = list(monomial)
        for atom in divisor:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % scale:
            return None
        total = total + _canonical({tuple(left): coefficient // scale})
    return total


def product(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def replace(size: Size, values: Mapping[str, Size]) -> Size:
    """``Dim.replace`` for a size that may be a plain number."""
    return size.replace(values) if isinstance(size, Dim) else size


def upper_bound(size: Size, bounds: Mapping[str, Size]) -> Size:
    """A size that ``size`` does not exceed, without the symbols in ``bounds``, which gives for each the most that it can be:
    a symbol counts with that where it adds, with 0 where it takes away. The bounds may themselves have such symbols."""
    if not isinstance(size, Dim) or size.symbols().isdisjoint(bounds):
        return size
    total: Size = 0
    for monomial, coefficient in size.terms:
        factors = [Dim(((((atom,)), 1),)) for atom in monomial]
        moving = any(not factor.symbols().isdisjoint(bounds) for factor in factors)
        if coefficient < 0 and moving:
            continue
        term: Size = coefficient
        for atom, factor in zip(monomial, factors, strict=True):
            if isinstance(atom, str):
                term = term * bounds.get(atom, factor)
            else:
                most, least = upper_bound(atom.numerator, bounds), atom.denominator
                known = not isinstance(least, Dim) or least.symbols().isdisjoint(bounds)
                term = term * (floordiv(most, least) if known else most)
        total = total + term
    return upper_bound(total, bounds)


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    """The number, where every symbol has one. KeyError names the symbol that has none."""
    result = replace(size, values)
    if isinstance(result, Dim):
        raise KeyError(min(result.symbols()))
    return result


def symbols(sizes: Iterable[Size]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for size in sizes:
        if isinstance(size, Dim):
            found |= size.symbols()
    return found


def solve(difference: Size, candidates: Iterable[str]) -> tuple[str, Size] | None:
    """A symbol and the size it must have for ``difference`` to be zero, or None.

    Only where the symbol stands alone with coefficient 1 or -1 and nowhere else.
    """
    if isinstance(difference, int):
        return None
    for name in candidates:
        coefficient = dict(difference.terms).get((name,), 0)
        rest = difference - coefficient * Dim.symbol(name)
        if abs(coefficient) == 1 and name not in symbols((rest,)):
            return name, -coefficient * rest
    return None


_OPERATORS: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: floordiv,
}


def from_ast(node: ast.expr) -> Size:
    """A size from a Python expression tree of names, integers, ``+ - * //``; ValueError otherwise."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return Dim.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -1 * from_ast(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](from_ast(left), from_ast(right))
    raise ValueError(f"not a size: {ast.unparse(node)!r}; use names, integers, +, -, * and //")
