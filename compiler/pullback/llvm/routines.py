"""Routines written for the shape of one call: matrix products (``tiles.py``), the stable sort, and those of
LAPACK (``lapack.py``)."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.llvm import lapack
from pullback.llvm.functions import TYPES, FunctionText
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.tiles import Product, is_little
from pullback.loops.nest import Call, Operand

FEW = 4  # elements of an axis that is written out


class Routines:
    """The functions that a module's routine calls need, and the BLAS symbols among their callees."""

    def __init__(self, math: MathCalls):
        self.math = math
        self.functions: list[str] = []
        self.blas: dict[str, None] = {}
        self.products: dict[Product, None] = {}

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
        """A product whose long axis, if any, is the only one: written out; else the call of one with any sizes and strides."""
        kind = TYPES[call.out.type.dtype.name]
        f = FunctionText(name, ["ptr noalias %out", "ptr %x", "ptr %y", "ptr noalias %sizes"], "void", caller.symbols)
        sizes = [f.size(s) for s in call.sizes]
        factors = [_Factor(f, kind, p, a) for p, a in zip(("%x", "%y"), call.args, strict=True)]
        long = [k for k, size in enumerate(call.sizes[1:]) if not (isinstance(size, int) and size <= FEW)]
        if len(long) == 1:
            _few(f, self.math, kind, factors, sizes, long[0])
        else:
            product = Product(kind, not is_little(call.sizes))
            self.products[product] = None
            self.math.declare(product.symbol, product.declaration())
            if product.library:
                self.blas[product.blas] = None
            numbers = [*sizes, *(n for factor in factors for n in factor.strides)]
            args = ", ".join(("ptr %out", *(f"ptr {factor.pointer}" for factor in factors), *(f"i64 {n}" for n in numbers)))
            f.line(f"call void @{product.symbol}({args})")
        f.line("ret void")
        return f.text()


class _Factor:
    """An operand of a product: where it begins, its strides for (batch, row, column)."""

    def __init__(self, f: FunctionText, kind: str, pointer: str, operand: Operand):
        self.f = f
        self.kind = kind
        self.strides = [f.size(s) for s in (operand.strides if len(operand.strides) == 3 else (0, *operand.strides))]
        self.pointer = f.at_entry(f"getelementptr {kind}, ptr {pointer}, i64 {f.size(operand.offset)}")

    def load(self, *index: str) -> str:
        total = "0"
        for i, stride in zip(index, self.strides, strict=True):
            total = self.f.let(f"add nsw i64 {total}, {self.f.let(f'mul nsw i64 {i}, {stride}')}")
        return self.f.let(f"load {self.kind}, ptr {self.f.let(f'getelementptr {self.kind}, ptr {self.pointer}, i64 {total}')}")


def _few(f: FunctionText, math: MathCalls, kind: str, factors: Sequence[_Factor], sizes: Sequence[str], long: int) -> None:
    """A product one of whose axes (rows, summed, columns) is long and the others have a few elements, in one loop. Sums are
    added in the same way as in ``tiles.py``, so they have the same bits."""
    (x, y), (batches, m, k, n) = factors, sizes
    rows, summed, columns = (
        [str(i) for i in range(int(s))] if s.isdigit() and a != long else [""] for a, s in enumerate((m, k, n))
    )

    def place(batch: str, i: str, j: str) -> str:
        line = f.let(f"add nsw i64 {f.let(f'mul nsw i64 {batch}, {m}')}, {i}")
        index = f.let(f"add nsw i64 {f.let(f'mul nsw i64 {line}, {n}')}, {j}")
        return f.let(f"getelementptr {kind}, ptr %out, i64 {index}")

    def added(total: str, a: str, b: str) -> str:
        if not math.fused:
            return f.let(f"fadd {kind} {total}, {f.let(f'fmul {kind} {a}, {b}')}")
        return f.let(math.intrinsic("llvm.fma", kind, [a, b, total], [kind] * 3))

    def product(batch: str) -> None:
        fixed: dict[tuple[int, str, str], str] = {}
        if long != 0:
            fixed |= {(0, i, p): x.load(batch, i, p) for i in rows for p in summed if i and p}
        if long != 2:
            fixed |= {(1, p, j): y.load(batch, p, j) for p in summed for j in columns if p and j}

        def trip(at: str, sums: list[str]) -> list[str]:
            left = {(i, p): fixed.get((0, i, p)) or x.load(batch, i or at, p or at) for i in rows for p in summed}
            right = {(p, j): fixed.get((1, p, j)) or y.load(batch, p or at, j or at) for p in summed for j in columns}
            found = []
            for c, (i, j) in enumerate((i, j) for i in rows for j in columns):
                total = sums[c] if sums else "0.0"
                for p in summed:
                    total = added(total, left[i, p], right[p, j])
                found.append(total)
                if not sums:
                    f.line(f"store {kind} {total}, ptr {place(batch, i or at, j or at)}")
            return found if sums else []

        carried = [(kind, "0.0")] * (len(rows) * len(columns)) if long == 1 else []
        totals = f.counted("0", (m, k, n)[long], carried, trip)
        places = [place(batch, i, j) for i in rows for j in columns] if totals else []
        for total, at in zip(totals, places, strict=True):
            f.line(f"store {kind} {total}, ptr {at}")

    f.each("0", batches, product)


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
