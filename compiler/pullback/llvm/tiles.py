"""Products of matrices: a function of our own, and a library's for large ones.

Note [Tiles]
A library's product first copies both factors into an order of its own and clears the result, which pays for itself only with
many uses of each element. Here the second factor alone is copied, a *panel* of a few columns at a time, with zeros for columns
that are not there, so that each panel is contiguous whatever the strides are; elements of the first are read where they are. A
*tile* of the result, ROWS rows of a panel, stays in registers while the summed index runs over a block of DEPTH. Blocks keep
what is used again in the caches (Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication").

Each element is one sum in the order of the summed index, with fused multiplications where the processor has them, wherever in
the result it is: its bits do not depend on the shape of tiles.

The function takes sizes and strides as arguments; it is compiled once for an element type, kept in the store, and linked. What
calls tiles rather than being one is compiled without care (``optnone``), in a third of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pullback.ir.dims import Size, product
from pullback.llvm import store
from pullback.llvm.functions import FunctionText
from pullback.llvm.mathlib import fused, suffix

ROWS = 4  # of a tile
VECTORS = 3  # of a tile's row, at most: 12 sums, 3 vectors and one factor are 16 registers
DEPTH = 192  # of a block in the direction that is summed
PANELS = 8  # of a block, at most
HIGH = 64  # rows of a block
LARGE = 1 << 21  # multiplications from which on a library's product is called, for it may use several threads
THIN = 24  # but only if no axis is shorter than this

PREFIX = "product_"
STRIDES = ("b", "m", "k", "n", "xb", "xm", "xk", "yb", "yk", "yn")  # sizes, and the steps of both factors
PARAMS = ("ptr noalias %out", "ptr %x", "ptr %y", *(f"i64 %{s}" for s in STRIDES))
ATTRIBUTES = ("attributes #0 = { nounwind noinline }", "attributes #1 = { nounwind noinline optnone }")
TYPES = ", ".join(p.split()[0] for p in PARAMS)


@dataclass(frozen=True, slots=True, order=True)
class Product:
    """``out[b] = x[b] @ y[b]`` for elements of LLVM type ``kind``: x has m x k elements, y has k x n, with any strides (of the
    batch, rows and columns); the result is contiguous. ``library``: with BLAS for what is large."""

    kind: str
    library: bool

    @property
    def symbol(self) -> str:
        return f"{PREFIX}{self.kind}{'_large' if self.library else ''}"

    @property
    def blas(self) -> str:
        """The library's function."""
        return "dgemm" if self.kind == "double" else "sgemm"

    def declaration(self) -> str:
        return f"declare void @{self.symbol}({TYPES})"


def is_little(sizes: Sequence[Size]) -> bool:
    """Whether a product of (batch, m, k, n) is certainly none for a library."""
    _, *axes = sizes
    if any(isinstance(n, int) and n < THIN for n in axes):
        return True
    work = product(axes)
    return isinstance(work, int) and work < LARGE


def object_code(product: Product) -> bytes:
    """The machine code of that function for this machine."""

    def make() -> bytes:
        from pullback.llvm import engine

        return engine.object_of(module(product, engine.features(), fused(engine.features())))

    return store.object_code(("product", repr(product)), make)


def module(product: Product, features: str, fma: bool) -> str:
    """A module with that function alone."""
    bits = 256 if "+avx" in features.split(",") else 128
    functions = _Writer(product.kind, bits // (64 if product.kind == "double" else 32), fma).functions(product)
    return "\n".join([*functions, *ATTRIBUTES, ""])


class _Writer:
    def __init__(self, kind: str, lanes: int, fused: bool):
        self.kind = kind
        self.lanes = lanes
        self.vector = f"<{lanes} x {kind}>"
        self.align = 8 if kind == "double" else 4
        self.width = VECTORS * lanes  # columns of a panel
        self.fused = fused

    def functions(self, product: Product) -> list[str]:
        tiles = [*(self._tile(ROWS, vectors) for vectors in range(1, VECTORS + 1)), self._tile(1, VECTORS)]
        declared = [
            f"declare {self.vector} @llvm.fma.{suffix(self.vector)}({self.vector}, {self.vector}, {self.vector})",
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
        ]
        whole = self._whole(product.symbol)
        if product.library:
            declared.append(f"declare void @pullback_{product.blas}({', '.join(['ptr'] * 13)})")
            whole = f"{self._whole('tiles', 'internal ')}{self._either(product)}"
        return [*tiles, self._copy(), self._strip(), self._pack(), whole, *declared]

    # -- pieces of text ----------------------------------------------------------------------------------------------
    def _function(self, name: str, params: str, returns: str = "void", linkage: str = "internal ") -> FunctionText:
        return FunctionText(name, params.split(", "), returns, {}, linkage)

    def _at(self, f: FunctionText, pointer: str, index: str) -> str:
        return f.let(f"getelementptr {self.kind}, ptr {pointer}, i64 {index}")

    def _product(self, f: FunctionText, a: str, b: str | int) -> str:
        return f.let(f"mul i64 {a}, {b}")

    def _least(self, f: FunctionText, a: str, b: str | int) -> str:
        return f.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def _left(self, f: FunctionText, total: str, index: str, most: int) -> str:
        """How many there are from ``index`` on, but at most ``most``."""
        return self._least(f, f.let(f"sub i64 {total}, {index}"), most)

    def _each(self, f: FunctionText, low: str, high: str, body: Callable[[str], None], step: int = 1) -> None:
        """``for i in range(low, high, step)``; ``step`` need not divide the distance."""
        if step > 1:
            distance = f.let(f"sub i64 {high}, {low}")
            steps = f.let(f"sdiv i64 {f.let(f'add i64 {distance}, {step - 1}')}, {step}")
            high = f.let(f"add i64 {low}, {self._product(f, steps, step)}")
        f.each(low, high, body, step)

    # -- a tile ------------------------------------------------------------------------------------------------------
    def _tile(self, rows: int, vectors: int) -> str:
        """``c (+)= a @ b`` for tiles one below the other; ``first``: nothing is in ``c`` yet."""
        params = "ptr %c, i64 %cm, ptr %a, i64 %am, i64 %ak, ptr %b, i64 %k, i1 %first, i64 %rows"
        f = self._function(f"tiles_{rows}_{vectors}", params)
        kind, vector, align = self.kind, self.vector, self.align
        there = f.let("xor i1 %first, true")

        def trip(index: str, values: list[str], own: list[str]) -> list[str]:
            *sums, offset = values
            row = self._at(f, "%b", self._product(f, index, self.width))
            panel = [self._at(f, row, str(v * self.lanes)) for v in range(vectors)]
            right = [f.let(f"load {vector}, ptr {place}, align {align}") for place in panel]
            following = []
            for r in range(rows):
                element = f.let(f"load {kind}, ptr {self._at(f, own[r], offset)}")
                one = f.let(f"insertelement {vector} poison, {kind} {element}, i64 0")
                left = f.let(f"shufflevector {vector} {one}, {vector} poison, <{self.lanes} x i32> zeroinitializer")
                following += [self._add(f, left, right[v], sums[r * vectors + v]) for v in range(vectors)]
            return [*following, f.let(f"add i64 {offset}, %ak")]

        def tile(i: str) -> None:
            own = self._rows(f, self._at(f, "%a", self._product(f, i, "%am")), "%am", rows)
            lines = self._rows(f, self._at(f, "%c", self._product(f, i, "%cm")), "%cm", rows)
            places = [self._at(f, line, str(v * self.lanes)) for line in lines for v in range(vectors)]
            zeros = [(vector, "zeroinitializer")] * len(places)
            old = f.when(there, zeros, lambda: [f.let(f"load {vector}, ptr {place}, align {align}") for place in places])
            start = [*((vector, o) for o in old), ("i64", "0")]
            *sums, _ = f.counted("0", "%k", start, lambda index, values: trip(index, values, own))
            for place, value in zip(places, sums, strict=True):
                f.line(f"store {vector} {value}, ptr {place}, align {align}")

        self._each(f, "0", "%rows", tile, rows)
        f.line("ret void")
        return f.text("#0")

    def _rows(self, f: FunctionText, pointer: str, stride: str, rows: int) -> list[str]:
        found = [pointer]
        while len(found) < rows:
            found.append(self._at(f, found[-1], stride))
        return found

    def _add(self, f: FunctionText, left: str, right: str, total: str) -> str:
        if not self.fused:
            return f.let(f"fadd {self.vector} {total}, {f.let(f'fmul {self.vector} {left}, {right}')}")
        args = ", ".join(f"{self.vector} {x}" for x in (left, right, total))
        return f.let(f"call {self.vector} @llvm.fma.{suffix(self.vector)}({args})")

    # -- a panel -----------------------------------------------------------------------------------------------------
    def _strip(self) -> str:
        """A panel's tiles, one below the other. Tiles with columns that are not there go through memory of their own."""
        f = self._function(
            "strip",
            "ptr %c, i64 %cm, ptr %a, i64 %am, i64 %ak, ptr %b, i64 %k, i1 %first, i64 %rows, i64 %columns",
        )
        spare = f.at_entry(f"alloca [{HIGH * self.width} x {self.kind}], align 64")
        vectors = f.let(f"udiv i64 {f.let(f'add i64 %columns, {self.lanes - 1}')}, {self.lanes}")
        many = f.let(f"and i64 %rows, {-ROWS}")
        fits = f.let(f"icmp eq i64 {self._product(f, vectors, self.lanes)}, %columns")
        widest, even = f.let(f"icmp eq i64 {vectors}, {VECTORS}"), f.let(f"icmp eq i64 {many}, %rows")
        whole = f.let(f"and i1 {fits}, {f.let(f'or i1 {widest}, {even}')}")
        part = f.let(f"xor i1 {whole}, true")
        target, stride = (
            f.let(f"select i1 {whole}, ptr %c, ptr {spare}"),
            f.let(f"select i1 {whole}, i64 %cm, i64 {self.width}"),
        )
        adds = f.let(f"and i1 {part}, {f.let('xor i1 %first, true')}")
        own, outer, both = f"ptr {spare}, i64 {self.width}", "ptr %c, i64 %cm", "i64 %rows, i64 %columns"

        rest, odd = f.let(f"sub i64 %rows, {many}"), f.let(f"xor i1 {even}, true")

        def tiles(size: str, first: str, count: str) -> str:
            out, left = self._at(f, target, self._product(f, first, stride)), self._at(f, "%a", self._product(f, first, "%am"))
            args = f"ptr {out}, i64 {stride}, ptr {left}, i64 %am, i64 %ak, ptr %b, i64 %k, i1 %first, i64 {count}"
            return f"call void @tiles_{size}({args})"

        f.only(adds, lambda: f.line(f"call void @copy({own}, {outer}, {both})"))
        self._choose(f, vectors, [tiles(f"{ROWS}_{v}", "0", many) for v in range(1, VECTORS + 1)])
        f.only(odd, lambda: f.line(tiles(f"1_{VECTORS}", many, rest)))
        f.only(part, lambda: f.line(f"call void @copy({outer}, {own}, {both})"))
        f.line("ret void")
        return f.text("#1")

    def _choose(self, f: FunctionText, number: str, cases: list[str]) -> None:
        """The case with a number from 1."""
        done, labels = f.new("done"), [f.new("case") for _ in cases]
        others = " ".join(f"i64 {k}, label {label}" for k, label in enumerate(labels[:-1], start=1))
        f.line(f"switch i64 {number}, label {labels[-1]} [ {others} ]")
        for label, case in zip(labels, cases, strict=True):
            f.block(label)
            f.line(case)
            f.line(f"br label {done}")
        f.block(done)

    def _copy(self) -> str:
        """A few rows of a few columns."""
        f = self._function("copy", "ptr %to, i64 %to.m, ptr %from, i64 %from.m, i64 %rows, i64 %columns")

        def row(i: str) -> None:
            goal, source = (
                self._at(f, "%to", self._product(f, i, "%to.m")),
                self._at(f, "%from", self._product(f, i, "%from.m")),
            )

            def element(j: str) -> None:
                value = f.let(f"load {self.kind}, ptr {self._at(f, source, j)}")
                f.line(f"store {self.kind} {value}, ptr {self._at(f, goal, j)}")

            self._each(f, "0", "%columns", element)

        self._each(f, "0", "%rows", row)
        f.line("ret void")
        return f.text("#0")

    # -- blocks ------------------------------------------------------------------------------------------------------
    def _pack(self) -> str:
        """The panels of a block of the second factor, one after the other."""
        f = self._function("pack", "ptr %to, ptr %y, i64 %yk, i64 %yn, i64 %k, i64 %columns")
        kind, vector, align = self.kind, self.vector, self.align
        near = f.let("icmp eq i64 %yn, 1")

        def panel(first: str) -> None:
            to, start = self._at(f, "%to", self._product(f, first, "%k")), self._at(f, "%y", self._product(f, first, "%yn"))
            some = self._left(f, "%columns", first, self.width)
            quick = f.let(f"and i1 {near}, {f.let(f'icmp eq i64 {some}, {self.width}')}")
            slow = f.let(f"xor i1 {quick}, true")

            def copied(p: str) -> None:
                source, goal = self._at(f, start, self._product(f, p, "%yk")), self._at(f, to, self._product(f, p, self.width))
                for v in range(VECTORS):
                    found = f.let(f"load {vector}, ptr {self._at(f, source, str(v * self.lanes))}, align {align}")
                    f.line(f"store {vector} {found}, ptr {self._at(f, goal, str(v * self.lanes))}, align {align}")

            def gathered(p: str) -> None:
                source, goal = self._at(f, start, self._product(f, p, "%yk")), self._at(f, to, self._product(f, p, self.width))

                def one(c: str) -> None:
                    found = f.let(f"load {kind}, ptr {self._at(f, source, self._product(f, c, '%yn'))}")
                    f.line(f"store {kind} {found}, ptr {self._at(f, goal, c)}")

                self._each(f, "0", some, one)
                self._each(f, some, str(self.width), lambda c: f.line(f"store {kind} 0.0, ptr {self._at(f, goal, c)}"))

            f.only(quick, lambda: self._each(f, "0", "%k", copied))
            f.only(slow, lambda: self._each(f, "0", "%k", gathered))

        self._each(f, "0", "%columns", panel, self.width)
        f.line("ret void")
        return f.text("#0")

    def _whole(self, symbol: str, linkage: str = "") -> str:
        f = self._function(symbol, ", ".join(PARAMS), linkage=linkage)
        packed = f.at_entry(f"alloca [{DEPTH * PANELS * self.width} x {self.kind}], align 64")

        def block(x: str, y: str, out: str, j: str, p: str) -> None:
            """Some columns of the result, a part of the sums."""
            columns, depth = self._left(f, "%n", j, PANELS * self.width), self._left(f, "%k", p, DEPTH)
            right = self._at(f, self._at(f, y, self._product(f, p, "%yk")), self._product(f, j, "%yn"))
            f.line(f"call void @pack(ptr {packed}, ptr {right}, i64 %yk, i64 %yn, i64 {depth}, i64 {columns})")
            first = f.let(f"icmp eq i64 {p}, 0")
            left = self._at(f, x, self._product(f, p, "%xk"))

            def rows(i: str) -> None:
                count = self._left(f, "%m", i, HIGH)
                own, line = self._at(f, left, self._product(f, i, "%xm")), self._product(f, i, "%n")

                def panel(q: str) -> None:
                    width = self._left(f, columns, q, self.width)
                    place = self._at(f, out, f.let(f"add i64 {line}, {f.let(f'add i64 {j}, {q}')}"))
                    part = self._at(f, packed, self._product(f, q, depth))
                    args = (f"ptr {place}", "i64 %n", f"ptr {own}", "i64 %xm", "i64 %xk", f"ptr {part}", f"i64 {depth}")
                    f.line(f"call void @strip({', '.join(args)}, i1 {first}, i64 {count}, i64 {width})")

                self._each(f, "0", columns, panel, self.width)

            self._each(f, "0", "%m", rows, HIGH)

        depth = f.let("call i64 @llvm.smax.i64(i64 %k, i64 1)")  # a sum of nothing is zero

        def multiply(batch: str) -> None:
            x, y = (self._at(f, name, self._product(f, batch, step)) for name, step in (("%x", "%xb"), ("%y", "%yb")))
            out = self._at(f, "%out", self._product(f, batch, self._product(f, "%m", "%n")))
            self._each(
                f, "0", "%n", lambda j: self._each(f, "0", depth, lambda p: block(x, y, out, j, p), DEPTH), PANELS * self.width
            )

        self._each(f, "0", "%b", multiply)
        f.line("ret void")
        return f.text("#1")

    # -- a library's -------------------------------------------------------------------------------------------------
    def _either(self, product: Product) -> str:
        """The library's product for what is large and has strides that it knows."""
        f = self._function(product.symbol, ", ".join(PARAMS), linkage="")
        work = self._product(f, self._product(f, "%m", "%k"), "%n")
        shortest = self._least(f, self._least(f, "%m", "%k"), "%n")
        longest = f.let(f"call i64 @llvm.smax.i64(i64 %m, i64 {f.let('call i64 @llvm.smax.i64(i64 %k, i64 %n)')})")
        turned = {}
        tests = [f"icmp sge i64 {work}, {LARGE}", f"icmp sge i64 {shortest}, {THIN}", f"icmp slt i64 {longest}, {2**31 - 1}"]
        for name, row, column in (("x", "%xm", "%xk"), ("y", "%yk", "%yn")):
            straight, turned[name] = (f.let(f"icmp eq i64 {step}, 1") for step in (column, row))
            tests.append(f"or i1 {straight}, {turned[name]}")
            turned[name] = f.let(f"xor i1 {straight}, true")
        large = "true"
        for test in tests:
            large = f.let(f"and i1 {large}, {f.let(test)}")
        f.line(f"br i1 {large}, label %large, label %small")
        f.block("%small")
        f.line(f"call void @tiles({', '.join(PARAMS).replace('noalias ', '')})")
        f.line("ret void")
        f.block("%large")
        self._library(f, product.blas, turned)
        f.line("ret void")
        return f.text("#1")

    def _library(self, f: FunctionText, symbol: str, turned: Mapping[str, str]) -> None:
        """Row-major ``x @ y`` is the column-major product of the transposes in the other order. ``turned``: whether a factor
        has its columns together."""
        cells = {}
        for name, value in (("n", "%n"), ("m", "%m"), ("k", "%k"), ("ldc", "%n")):
            cells[name] = f.cell("i32", f.let(f"trunc i64 {value} to i32"))
        for name, row, column in (("x", "%xm", "%xk"), ("y", "%yk", "%yn")):
            lead = f.let(f"select i1 {turned[name]}, i64 {column}, i64 {row}")
            rows, columns = ("%m", "%k") if name == "x" else ("%k", "%n")
            # a stride means nothing where an axis has one element
            least = f.let(f"select i1 {turned[name]}, i64 {rows}, i64 {columns}")
            lead = f.let(f"call i64 @llvm.smax.i64(i64 {lead}, i64 {least})")
            cells[f"ld{name}"] = f.cell("i32", f.let(f"trunc i64 {lead} to i32"))
            cells[f"t{name}"] = f.cell("i8", f.let(f"select i1 {turned[name]}, i8 84, i8 78"))  # "T" or "N"
        cells |= {"one": f.cell(self.kind, "1.0"), "zero": f.cell(self.kind, "0.0")}

        def multiply(batch: str) -> None:
            x, y = (self._at(f, name, self._product(f, batch, step)) for name, step in (("%x", "%xb"), ("%y", "%yb")))
            out = self._at(f, "%out", self._product(f, batch, self._product(f, "%m", "%n")))
            order = ("ty", "tx", "n", "m", "k", "one", y, "ldy", x, "ldx", "zero", out, "ldc")
            f.line(f"call void @pullback_{symbol}({', '.join(f'ptr {cells.get(o, o)}' for o in order)})")

        self._each(f, "0", "%b", multiply)


__all__ = ["Product", "is_little", "module", "object_code"]
