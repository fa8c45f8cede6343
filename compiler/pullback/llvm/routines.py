"""Routines written for the shape of one call: matrix products (a nest, or BLAS above a size), the stable sort, and those of
LAPACK (``lapack.py``)."""

from __future__ import annotations

from collections.abc import Callable

from pullback.ir.dims import Size
from pullback.llvm import lapack
from pullback.llvm.functions import TYPES, FunctionText
from pullback.llvm.mathlib import MathCalls
from pullback.loops.nest import Call, Operand

LARGE = 3_000  # multiplications from which on BLAS is quicker than a nest


class Routines:
    """The functions that a module's routine calls need, and the BLAS symbols among their callees."""

    def __init__(self, math: MathCalls):
        self.math = math
        self.functions: list[str] = []
        self.blas: dict[str, None] = {}

    def call(self, f: FunctionText, call: Call, out: str, operands: list[tuple[str, Operand]], name: str) -> None:
        """Write the routine's function, and its call into ``f``."""
        name = f"{name}_{call.name}"
        for intrinsic in ("llvm.smax.i64", "llvm.smin.i64"):
            self.math.declare(intrinsic, f"declare i64 @{intrinsic}(i64, i64)")
        if call.name == "gemm":
            self.functions.append(self._gemm(call, name, f))
        elif call.name == "argsort":
            self.functions.append(_argsort(call, name, f))
        else:
            self.functions.append(lapack.function(call, name, f.symbols, self.math, self.blas))
        pointers = ", ".join(f"ptr {p}" for p, _ in operands)
        f.line(f"call void @{name}(ptr {out}, {pointers}, ptr %sizes)")

    # -- matrix products ---------------------------------------------------------------------------------------------
    def _gemm(self, call: Call, name: str, caller: FunctionText) -> str:
        params = ["ptr noalias %out", "ptr noalias %x", "ptr noalias %y", "ptr noalias %sizes"]
        f = FunctionText(name, params, "void", caller.symbols)
        dtype = call.out.type.dtype
        kind = TYPES[dtype.name]
        b, m, k, n = (f.size(s) for s in call.sizes)
        x, y = (_Matrix(f, p, kind, a) for p, a in zip(("%x", "%y"), call.args, strict=True))
        nest, blas, done = "%nest", "%blas", "%done"
        work = f.let(f"mul i64 {f.let(f'mul i64 {m}, {k}')}, {n}")
        large = f.let(f"icmp sgt i64 {work}, {LARGE}")
        for size in (m, k, n):  # the library's integers have 32 bits
            large = f.let(f"and i1 {large}, {f.let(f'icmp slt i64 {size}, {2**31 - 1}')}")
        f.line(f"br i1 {large}, label {blas}, label {nest}")
        f.block(blas)
        self._blas(f, kind, x, y, (b, m, k, n))
        f.line(f"br label {done}")
        f.block(nest)

        def row(batch: str, i: str) -> None:
            before = f.let(f"mul nsw i64 {batch}, {m}")
            line = f.let(f"mul nsw i64 {f.let(f'add nsw i64 {before}, {i}')}, {n}")
            target = f.let(f"getelementptr {kind}, ptr %out, i64 {line}")
            (_row_of_dots if y.unit(1) and not y.unit(2) else _row_of_sums)(f, kind, x, y, (batch, i), (k, n), target)

        _each(f, b, lambda batch: _each(f, m, lambda i: row(batch, i)))
        f.line(f"br label {done}")
        f.block(done)
        f.line("ret void")
        return f.text()

    def _blas(self, f: FunctionText, kind: str, x: _Matrix, y: _Matrix, sizes: tuple[str, str, str, str]) -> None:
        """Row-major ``x @ y`` is the column-major product of the transposes in the other order."""
        b, m, k, n = sizes
        symbol = "dgemm" if kind == "double" else "sgemm"
        self.blas[symbol] = None
        self.math.declare(symbol, f"declare void @pullback_{symbol}({', '.join(['ptr'] * 13)})")
        transposed = (not y.unit(2), not x.unit(2))
        lead_y = f.let(_at_least(f, y.strides[2 if transposed[0] else 1], k if transposed[0] else n))
        lead_x = f.let(_at_least(f, x.strides[2 if transposed[1] else 1], m if transposed[1] else k))
        cells = {}
        for label, value, cell in (
            *(("n", n, "i32"), ("m", m, "i32"), ("k", k, "i32"), ("ldy", lead_y, "i32"), ("ldx", lead_x, "i32")),
            *(("ldc", f.let(_at_least(f, n, "1")), "i32"),),
        ):
            cells[label] = f.at_entry(f"alloca {cell}")
            f.line(f"store i32 {f.let(f'trunc i64 {value} to i32')}, ptr {cells[label]}")
        for label, byte in (("ty", 84 if transposed[0] else 78), ("tx", 84 if transposed[1] else 78)):  # "T" or "N"
            cells[label] = f.at_entry("alloca i8")
            f.line(f"store i8 {byte}, ptr {cells[label]}")
        for label, number in (("one", "1.0"), ("zero", "0.0")):
            cells[label] = f.at_entry(f"alloca {kind}")
            f.line(f"store {kind} {number}, ptr {cells[label]}")

        def product(batch: str) -> None:
            px, py = x.place(batch, "0", "0"), y.place(batch, "0", "0")
            line = f.let(f"mul nsw i64 {batch}, {f.let(f'mul nsw i64 {m}, {n}')}")
            out = f.let(f"getelementptr {kind}, ptr %out, i64 {line}")
            order = ("ty", "tx", "n", "m", "k", "one", py, "ldy", px, "ldx", "zero", out, "ldc")
            f.line(f"call void @pullback_{symbol}({', '.join(f'ptr {cells.get(o, o)}' for o in order)})")

        _each(f, b, product)


class _Matrix:
    """An operand of a matrix product: its strides for (batch, row, column) as text."""

    def __init__(self, f: FunctionText, pointer: str, kind: str, operand: Operand):
        self.f = f
        self.kind = kind
        self._sizes: tuple[Size, ...] = operand.strides if len(operand.strides) == 3 else (0, *operand.strides)
        self.strides = [f.size(s) for s in self._sizes]
        self.pointer = f.at_entry(f"getelementptr {kind}, ptr {pointer}, i64 {f.size(operand.offset)}")

    def unit(self, axis: int) -> bool:
        return self._sizes[axis] == 1

    def place(self, *index: str) -> str:
        f, total = self.f, "0"
        for i, stride in zip(index, self.strides, strict=True):
            if i == "0" or stride == "0":
                continue
            term = i if stride == "1" else f.let(f"mul nsw i64 {i}, {stride}")
            total = term if total == "0" else f.let(f"add nsw i64 {total}, {term}")
        return f.let(f"getelementptr {self.kind}, ptr {self.pointer}, i64 {total}")

    def load(self, *index: str) -> str:
        return self.f.let(f"load {self.kind}, ptr {self.place(*index)}")


def _each(f: FunctionText, high: str, body: Callable[[str], None]) -> None:
    def trip(index: str, values: list[str]) -> list[str]:
        body(index)
        return []

    f.counted("0", high, [], trip)


def _at_least(f: FunctionText, stride: str, rows: str) -> str:
    """A leading dimension that the library accepts also where an axis of length one makes the stride meaningless."""
    bound = f.let(f"call i64 @llvm.smax.i64(i64 {stride}, i64 {rows})")
    return f"call i64 @llvm.smax.i64(i64 {bound}, i64 1)"


def _row_of_sums(
    f: FunctionText, kind: str, x: _Matrix, y: _Matrix, at: tuple[str, str], sizes: tuple[str, str], target: str
) -> None:
    """Rows of ``y`` times elements of ``x``, added up in the row of the result: contiguous where ``y`` is."""
    (batch, i), (k, n) = at, sizes

    def clear(j: str) -> None:
        f.line(f"store {kind} 0.0, ptr {f.let(f'getelementptr {kind}, ptr {target}, i64 {j}')}")

    def add(step: str) -> None:
        factor = x.load(batch, i, step)

        def one(j: str) -> None:
            place = f.let(f"getelementptr {kind}, ptr {target}, i64 {j}")
            term = f.let(f"fmul {kind} {factor}, {y.load(batch, step, j)}")
            old = f.let(f"load {kind}, ptr {place}")
            f.line(f"store {kind} {f.let(f'fadd {kind} {old}, {term}')}, ptr {place}")

        _each(f, n, one)

    _each(f, n, clear)
    _each(f, k, add)


def _row_of_dots(
    f: FunctionText, kind: str, x: _Matrix, y: _Matrix, at: tuple[str, str], sizes: tuple[str, str], target: str
) -> None:
    """Each element as a dot product: for a ``y`` that is contiguous along the summed axis."""
    (batch, i), (k, n) = at, sizes

    def one(j: str) -> None:
        def trip(step: str, values: list[str]) -> list[str]:
            term = f.let(f"fmul {kind} {x.load(batch, i, step)}, {y.load(batch, step, j)}")
            return [f.let(f"fadd reassoc {kind} {values[0]}, {term}")]

        (total,) = f.counted("0", k, [(kind, "0.0")], trip)
        f.line(f"store {kind} {total}, ptr {f.let(f'getelementptr {kind}, ptr {target}, i64 {j}')}")

    _each(f, n, one)


# -- sorting ---------------------------------------------------------------------------------------------------------
_ARGSORT = """\
define internal void @{name}(ptr noalias %out, ptr noalias %x, ptr noalias %spare, ptr noalias %sizes) #0 {{
entry:
{entry}
  br label %rows
rows:
  %row = phi i64 [ 0, %entry ], [ %row.next, %row.end ]
  %row.some = icmp slt i64 %row, {rows}
  br i1 %row.some, label %row.start, label %finish
row.start:
  %skip = mul i64 %row, {n}
  %keys = getelementptr {memory}, ptr %x, i64 %skip
  %own = getelementptr i64, ptr %out, i64 %skip
  br label %number
number:
  %i = phi i64 [ 0, %row.start ], [ %i.next, %number.do ]
  %i.some = icmp slt i64 %i, {n}
  br i1 %i.some, label %number.do, label %widths
number.do:
  %i.place = getelementptr i64, ptr %own, i64 %i
  store i64 %i, ptr %i.place
  %i.next = add nuw nsw i64 %i, 1
  br label %number
widths:
  %width = phi i64 [ 1, %number ], [ %width.next, %width.end ]
  %from = phi ptr [ %own, %number ], [ %to, %width.end ]
  %to = phi ptr [ %spare, %number ], [ %from, %width.end ]
  %width.some = icmp slt i64 %width, {n}
  br i1 %width.some, label %runs, label %collect
runs:
  %low = phi i64 [ 0, %widths ], [ %high, %run.end ]
  %low.some = icmp slt i64 %low, {n}
  br i1 %low.some, label %run, label %width.end
run:
  %mid.raw = add i64 %low, %width
  %mid = call i64 @llvm.smin.i64(i64 %mid.raw, i64 {n})
  %high.raw = add i64 %mid.raw, %width
  %high = call i64 @llvm.smin.i64(i64 %high.raw, i64 {n})
  br label %merge
merge:
  %o = phi i64 [ %low, %run ], [ %o.next, %take ]
  %p = phi i64 [ %low, %run ], [ %p.next, %take ]
  %q = phi i64 [ %mid, %run ], [ %q.next, %take ]
  %o.some = icmp slt i64 %o, %high
  br i1 %o.some, label %choose, label %run.end
choose:
  %left.some = icmp slt i64 %p, %mid
  br i1 %left.some, label %choose.right, label %take.right
choose.right:
  %right.some = icmp slt i64 %q, %high
  br i1 %right.some, label %compare, label %take.left
compare:
  %p.place = getelementptr i64, ptr %from, i64 %p
  %p.which = load i64, ptr %p.place
  %p.key = getelementptr {memory}, ptr %keys, i64 %p.which
  %l = load {memory}, ptr %p.key
  %q.place = getelementptr i64, ptr %from, i64 %q
  %q.which = load i64, ptr %q.place
  %q.key = getelementptr {memory}, ptr %keys, i64 %q.which
  %r = load {memory}, ptr %q.key
{less}
  br i1 %less, label %take.right, label %take.left
take.left:
  br label %take
take.right:
  br label %take
take:
  %source = phi i64 [ %p, %take.left ], [ %q, %take.right ]
  %p.step = phi i64 [ 1, %take.left ], [ 0, %take.right ]
  %q.step = phi i64 [ 0, %take.left ], [ 1, %take.right ]
  %source.place = getelementptr i64, ptr %from, i64 %source
  %which = load i64, ptr %source.place
  %o.place = getelementptr i64, ptr %to, i64 %o
  store i64 %which, ptr %o.place
  %o.next = add nuw nsw i64 %o, 1
  %p.next = add nuw nsw i64 %p, %p.step
  %q.next = add nuw nsw i64 %q, %q.step
  br label %merge
run.end:
  br label %runs
width.end:
  %width.next = shl i64 %width, 1
  br label %widths
collect:
  %there = icmp eq ptr %from, %own
  br i1 %there, label %row.end, label %copy
copy:
  %c = phi i64 [ 0, %collect ], [ %c.next, %copy.do ]
  %c.some = icmp slt i64 %c, {n}
  br i1 %c.some, label %copy.do, label %row.end
copy.do:
  %c.from = getelementptr i64, ptr %from, i64 %c
  %c.value = load i64, ptr %c.from
  %c.to = getelementptr i64, ptr %own, i64 %c
  store i64 %c.value, ptr %c.to
  %c.next = add nuw nsw i64 %c, 1
  br label %copy
row.end:
  %row.next = add nuw nsw i64 %row, 1
  br label %rows
finish:
  ret void
}}
"""

_LESS = {  # right before left? NaN comes last; equal keys keep their order
    "f": """\
  %r.lower = fcmp olt {kind} %r, %l
  %l.nan = fcmp uno {kind} %l, %l
  %r.number = fcmp ord {kind} %r, %r
  %only.left = and i1 %l.nan, %r.number
  %less = or i1 %r.lower, %only.left""",
    "i": "  %less = icmp slt {kind} %r, %l",
    "b": "  %less = icmp ult {kind} %r, %l",
}


def _argsort(call: Call, name: str, caller: FunctionText) -> str:
    """A bottom-up merge sort of positions, row by row."""
    f = FunctionText(name, (), "void", caller.symbols)
    rows, n = (f.size(s) for s in call.sizes)
    dtype = call.args[0].buffer.type.dtype
    memory = "i8" if dtype.kind == "b" else TYPES[dtype.name]
    less = _LESS[dtype.kind].format(kind=memory)
    return _ARGSORT.format(name=name, entry="\n".join(f.entry), rows=rows, n=n, memory=memory, less=less)
