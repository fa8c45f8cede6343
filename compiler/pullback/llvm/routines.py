"""Routines written for the shape of one call: matrix products (``tiles.py``), the stable sort, and those of
LAPACK (``lapack.py``)."""

from __future__ import annotations

from pullback.llvm import lapack
from pullback.llvm.functions import TYPES, FunctionText
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.tiles import Product, is_little
from pullback.loops.nest import Call, Operand


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
        """The call of a product with this one's sizes and strides."""
        kind = TYPES[call.out.type.dtype.name]
        product = Product(kind, not is_little(call.sizes))
        self.products[product] = None
        self.math.declare(product.symbol, product.declaration())
        if product.library:
            self.blas[product.blas] = None
        f = FunctionText(name, ["ptr %out", "ptr %x", "ptr %y", "ptr noalias %sizes"], "void", caller.symbols)
        numbers = [f.size(s) for s in call.sizes]
        pointers = []
        for pointer, operand in zip(("%x", "%y"), call.args, strict=True):
            strides = operand.strides if len(operand.strides) == 3 else (0, *operand.strides)
            numbers += [f.size(s) for s in strides]
            pointers.append(f.at_entry(f"getelementptr {kind}, ptr {pointer}, i64 {f.size(operand.offset)}"))
        args = ", ".join(("ptr %out", *(f"ptr {p}" for p in pointers), *(f"i64 {n}" for n in numbers)))
        f.line(f"call void @{product.symbol}({args})")
        f.line("ret void")
        return f.text()


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
