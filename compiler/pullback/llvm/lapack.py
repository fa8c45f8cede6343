"""Factorizations and solutions of linear equations by LAPACK and BLAS, matrix by matrix of a stack.

Note [Rows and columns]
~~~~~~~~~~~~~~~~~~~~~
LAPACK's matrices go by columns, ours by rows: what we hand over is the transpose of what we mean. For a symmetric matrix or a
triangle that is another letter: our lower triangle is its upper one. ``X A = B`` with a matrix on the right is how it sees our
``A^T X^T = B^T``, so right sides need no transposing. ``lu``, ``eigh`` and ``svd`` do copy the matrix transposed: then they
see just what NumPy gives them, and choose the same pivots and signs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.llvm.functions import TYPES, FunctionText, literal
from pullback.llvm.mathlib import MathCalls
from pullback.loops.nest import Call

BLOCK = 8  # rows that a transposing copy takes together: a cache line of doubles


def function(call: Call, name: str, symbols: Mapping[str, int], math: MathCalls, libraries: dict[str, None]) -> str:
    """The text of a function (out, operands ..., sizes) that does the call; ``libraries`` learns the symbols it needs."""
    params = ["ptr noalias %out", *(f"ptr noalias %x{k}" for k in range(len(call.args))), "ptr noalias %sizes"]
    routine = _Routine(FunctionText(name, params, "void", symbols), call, math, libraries)
    _ROUTINES[call.name](routine)
    routine.f.line("ret void")
    return routine.f.text()


class _Routine:
    """The function being written. Integers of Fortran are cells of memory; ``rows``, ``columns``: of the last operand."""

    def __init__(self, f: FunctionText, call: Call, math: MathCalls, libraries: dict[str, None]):
        self.f, self.attrs, self.math, self.libraries = f, call.attrs, math, libraries
        self.dtype = call.out.type.dtype
        self.kind = TYPES[self.dtype.name]
        self.batch, self.rows, self.columns = (f.size(s) for s in call.sizes)
        self.work = [f.size(a.buffer.type.size) for a in call.args]
        for intrinsic in ("llvm.smax.i64", "llvm.smin.i64"):
            math.declare(intrinsic, f"declare i64 @{intrinsic}(i64, i64)")

    # -- arithmetic on sizes ------------------------------------------------------------------------------------------
    def mul(self, a: str, b: str) -> str:
        return self.f.let(f"mul nsw i64 {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self.f.let(f"add nsw i64 {a}, {b}")

    def least(self, a: str, b: str) -> str:
        return self.f.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    # -- elements -----------------------------------------------------------------------------------------------------
    def at(self, array: str, *terms: str) -> str:
        """The place of the element with the number that is the sum of ``terms``."""
        for term in terms:
            array = self.f.let(f"getelementptr {self.kind}, ptr {array}, i64 {term}")
        return array

    def load(self, place: str) -> str:
        return self.f.let(f"load {self.kind}, ptr {place}")

    def store(self, value: str, place: str) -> None:
        self.f.line(f"store {self.kind} {value}, ptr {place}")

    def each(self, high: str, body: Callable[[str], None], low: str = "0") -> None:
        self.f.each(low, high, body)

    def matrices(self, body: Callable[[str], None]) -> None:
        self.each(self.batch, body)

    # -- arrays -------------------------------------------------------------------------------------------------------
    def copy(self, out: str, source: str, count: str) -> None:
        self.math.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        size = self.mul(count, str(self.dtype.bytes))
        self.f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {source}, i64 {size}, i1 false)")

    def clear(self, out: str, count: str) -> None:
        self.math.declare("llvm.memset", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        size = self.mul(count, str(self.dtype.bytes))
        self.f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {size}, i1 false)")

    def transpose(self, out: str, source: str, rows: str, columns: str) -> None:
        """``out`` becomes the transpose of ``source``, which has ``rows`` and ``columns``."""

        def block(low: str) -> None:
            low = self.mul(low, str(BLOCK))
            high = self.least(self.add(low, str(BLOCK)), rows)

            def column(j: str) -> None:
                target, start = self.at(out, self.mul(j, rows)), self.at(source, j)
                self.each(high, lambda i: self.store(self.load(self.at(start, self.mul(i, columns))), self.at(target, i)), low)

            self.each(columns, column)

        self.each(self.f.let(f"sdiv i64 {self.add(rows, str(BLOCK - 1))}, {BLOCK}"), block)

    def spoil(self, info: str, out: str, count: str) -> None:
        """All NaN if the library says that it failed."""
        failed = self.f.let(f"icmp ne i32 {self.f.let(f'load i32, ptr {info}')}, 0")
        nan = literal(float("nan"), self.dtype)
        self.f.only(failed, lambda: self.each(count, lambda i: self.store(nan, self.at(out, i))))

    # -- calls --------------------------------------------------------------------------------------------------------
    def number(self, value: str) -> str:
        """A cell with a size as Fortran's integer."""
        return self.f.cell("i32", self.f.let(f"trunc i64 {value} to i32"))

    def leading(self, value: str) -> str:
        """A cell with a leading dimension, which must not be 0."""
        return self.number(self.f.let(f"call i64 @llvm.smax.i64(i64 {value}, i64 1)"))

    def letter(self, letter: str) -> str:
        return self.f.cell("i8", str(ord(letter)))

    def info(self) -> str:
        return self.number("0")

    def one(self) -> str:
        return self.f.cell(self.kind, literal(1.0, self.dtype))

    def call(self, name: str, *cells: str) -> None:
        symbol = ("d" if self.kind == "double" else "s") + name
        self.libraries[symbol] = None
        self.math.declare(symbol, f"declare void @pullback_{symbol}({', '.join(['ptr'] * len(cells))})")
        self.f.line(f"call void @pullback_{symbol}({', '.join(f'ptr {cell}' for cell in cells)})")


# -- routines ---------------------------------------------------------------------------------------------------------
def _cholesky(r: _Routine) -> None:
    n = r.columns
    up, size, lead = r.letter("U"), r.number(n), r.leading(n)

    def matrix(k: str) -> None:
        start = r.mul(k, r.mul(n, n))
        source, out, info = r.at("%x0", start), r.at("%out", start), r.info()

        def row(i: str) -> None:
            line, kept = r.mul(i, n), r.add(i, "1")
            r.copy(r.at(out, line), r.at(source, line), kept)
            r.clear(r.at(out, line, kept), r.f.let(f"sub nsw i64 {n}, {kept}"))

        r.each(n, row)
        r.call("potrf", up, size, out, lead, info)
        r.spoil(info, out, r.mul(n, n))

    r.matrices(matrix)


class _Triangle:
    """Solutions with a triangle of a matrix that the library sees (by columns), for our right sides in place: of ``M^T X = B``
    (or with ``trans`` of ``M X = B``). A single right side is a column for the library, several are the rows of ``X^T``."""

    def __init__(self, r: _Routine):
        self.r = r
        r_ = r.f
        n, m = r.rows, r.columns
        self.single = r_.let(f"icmp eq i64 {m}, 1")
        self.side = self._choice("L", "R")
        self.high, self.wide = (r.number(r_.let(f"select i1 {self.single}, i64 {a}, i64 {b}")) for a, b in ((n, m), (m, n)))
        self.lead = r.leading(r_.let(f"select i1 {self.single}, i64 {n}, i64 {m}"))
        self.matrix_lead = r.leading(n)
        self.scale = r.one()
        self._turned = {False: self._choice("T", "N"), True: self._choice("N", "T")}
        self._letters = {letter: r.letter(letter) for letter in "LUN"}

    def _choice(self, single: str, several: str) -> str:
        return self.r.f.cell("i8", self.r.f.let(f"select i1 {self.single}, i8 {ord(single)}, i8 {ord(several)}"))

    def solve(self, matrix: str, out: str, upper: bool, trans: bool, unit: bool) -> None:
        letters = self._letters
        # fmt: off
        self.r.call(
            "trsm", self.side, letters["U" if upper else "L"], self._turned[trans], letters["U" if unit else "N"],
            self.high, self.wide, self.scale, matrix, self.matrix_lead, out, self.lead,
        )
        # fmt: on


def _triangular_solve(r: _Routine) -> None:
    n, m = r.rows, r.columns
    lower, trans, unit = (r.attrs[key] for key in ("lower", "trans", "unit"))
    triangle = _Triangle(r)
    r.copy("%out", "%x1", r.mul(r.batch, r.mul(n, m)))

    def matrix(k: str) -> None:
        out = r.at("%out", r.mul(k, r.mul(n, m)))
        triangle.solve(r.at("%x0", r.mul(k, r.mul(n, n))), out, lower, trans, unit)

    r.matrices(matrix)


def _lu(r: _Routine) -> None:
    n = r.columns
    size, lead = r.number(n), r.leading(n)

    def matrix(k: str) -> None:
        area = r.mul(n, n)
        out = r.at("%out", r.mul(k, r.add(area, n)))
        pivots = r.at(out, area)
        r.transpose(out, r.at("%x0", r.mul(k, area)), n, n)
        r.call("getrf", size, size, out, lead, pivots, r.info())

        def number(i: str) -> None:
            """From the last on: a number takes no less room than the integer that was in its place."""
            i = r.f.let(f"sub nsw i64 {r.f.let(f'sub nsw i64 {n}, 1')}, {i}")
            pivot = r.f.let(f"load i32, ptr {r.f.let(f'getelementptr i32, ptr {pivots}, i64 {i}')}")
            r.store(r.f.let(f"sitofp i32 {r.f.let(f'sub nsw i32 {pivot}, 1')} to {r.kind}"), r.at(pivots, i))

        r.each(n, number)

    r.matrices(matrix)


def _lu_solve(r: _Routine) -> None:
    """The library's factors are of our own matrix, by columns: ``A = P L U``."""
    n, m = r.rows, r.columns
    triangle = _Triangle(r)
    r.copy("%out", "%x1", r.mul(r.batch, r.mul(n, m)))

    def matrix(k: str) -> None:
        area = r.mul(n, n)
        factors = r.at("%x0", r.mul(k, r.add(area, n)))
        out, pivots = r.at("%out", r.mul(k, r.mul(n, m))), r.at(factors, area)

        def exchange(i: str) -> None:
            if r.attrs["trans"]:
                i = r.f.let(f"sub nsw i64 {r.f.let(f'sub nsw i64 {n}, 1')}, {i}")
            other = r.f.let(f"fptosi {r.kind} {r.load(r.at(pivots, i))} to i64")
            first, second = r.at(out, r.mul(i, m)), r.at(out, r.mul(other, m))

            def one(j: str) -> None:
                left, right = r.at(first, j), r.at(second, j)
                values = r.load(left), r.load(right)
                r.store(values[1], left)
                r.store(values[0], right)

            r.each(m, one)

        if r.attrs["trans"]:  # U^T L^T P^T X = B
            triangle.solve(factors, out, True, False, False)
            triangle.solve(factors, out, False, False, True)
            r.each(n, exchange)
        else:  # P L U X = B
            r.each(n, exchange)
            triangle.solve(factors, out, False, True, True)
            triangle.solve(factors, out, True, True, False)

    r.matrices(matrix)


def _eigh(r: _Routine) -> None:
    n = r.columns
    vectors, low, size, lead = r.letter("V"), r.letter("L"), r.number(n), r.leading(n)
    work, integers = r.number(r.work[1]), r.number(r.work[2])

    def matrix(k: str) -> None:
        area = r.mul(n, n)
        count = r.add(area, n)
        values = r.at("%out", r.mul(k, count))
        out, info = r.at(values, n), r.info()
        r.transpose(out, r.at("%x0", r.mul(k, area)), n, n)
        r.call("syevd", vectors, low, size, out, lead, values, "%x1", work, "%x2", integers, info)
        r.spoil(info, values, count)

    r.matrices(matrix)


def _svd(r: _Routine) -> None:
    m, n = r.rows, r.columns
    k = n if r.attrs["tall"] else m
    some, high, wide, lead = r.letter("S"), r.number(m), r.number(n), r.leading(m)
    right_lead, work = r.leading(k), r.number(r.work[2])

    def matrix(i: str) -> None:
        left, right = r.mul(k, m), r.mul(n, k)
        count = r.add(r.add(left, k), right)
        u = r.at("%out", r.mul(i, count))
        s = r.at(u, left)
        v, info = r.at(s, k), r.info()
        r.transpose("%x1", r.at("%x0", r.mul(i, r.mul(m, n))), m, n)
        r.call("gesdd", some, high, wide, "%x1", lead, s, u, lead, v, right_lead, "%x2", work, "%x3", info)
        r.spoil(info, u, count)

    r.matrices(matrix)


def _qr(r: _Routine) -> None:
    """By ``A^T = L Q^T``, as the library sees our matrix."""
    m, n = r.rows, r.columns
    high, wide, lead, work = r.number(m), r.number(n), r.leading(n), r.number(r.work[2])

    def matrix(k: str) -> None:
        area = r.mul(m, n)
        q = r.at("%out", r.mul(k, r.mul(r.add(m, n), n)))
        upper = r.at(q, area)
        r.copy(q, r.at("%x0", r.mul(k, area)), area)
        r.call("gelqf", wide, high, q, lead, "%x1", "%x2", work, r.info())

        def row(i: str) -> None:
            line = r.mul(i, n)
            r.clear(r.at(upper, line), i)
            r.copy(r.at(upper, line, i), r.at(q, line, i), r.f.let(f"sub nsw i64 {n}, {i}"))

        r.each(n, row)
        r.call("orglq", wide, high, wide, q, lead, "%x1", "%x2", work, r.info())

    r.matrices(matrix)


_ROUTINES: Mapping[str, Callable[[Any], None]] = {
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "lu": _lu,
    "lu_solve": _lu_solve,
    "eigh": _eigh,
    "svd": _svd,
    "qr": _qr,
}
