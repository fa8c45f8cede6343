"""From a Program to LLVM text: one function per loop nest, straight-line code in chunks, and the kernel that calls them.

See Note [Pieces] in ``pieces.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.llvm import control, threads
from pullback.llvm.body import Body, move
from pullback.llvm.functions import FunctionText
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.pieces import CHUNK, Piece, buffers, made, operands, pieces, totals
from pullback.llvm.plain import Plain, fits, possible
from pullback.llvm.routines import Routines
from pullback.llvm.straight import Straight
from pullback.llvm.tiles import Product
from pullback.llvm.vecmath_library import Form
from pullback.loops.nest import Buffer, Call, Fail, For, Node, Operand, Program, Reserve, While, statements

ALIGN = 64  # bytes, of regions of the workspace
FEW = 64  # scalar statements up to which a piece is inlined: a function takes half a millisecond to compile
STACK_SLOTS = 4096  # a longer frame lives in the workspace


@dataclass(frozen=True, slots=True)
class Emitted:
    """``kernel`` and ``chunks`` are LLVM modules; the second, of straight-line code only, may be empty.

    ``frame``: 8-byte slots at the start of the workspace (0 if the frame is on the stack).
    """

    kernel: str
    chunks: str
    frame: int
    scalars: int  # how many scalar statements outside of nests and loops
    largest: int  # how many statements in the largest loop of the program
    loops: bool
    helpers: bool  # whether there are functions for plain code, see Note [Plain code] in ``plain.py``
    blas: tuple[str, ...]
    math: tuple[Form, ...]  # our functions that are called, not inlined
    products: tuple[Product, ...]


def emit(program: Program, features: str, fast_math: bool = False, prefix: str = "k", hasty: bool = True) -> Emitted:
    """``hasty``: very long straight-line code may be written without LLVM."""
    return Emitter(program, features, fast_math, prefix, hasty).run()


class Emitter:
    def __init__(self, program: Program, features: str, fast_math: bool, prefix: str, hasty: bool):
        self.program = program
        self.hasty = hasty
        self.fast = "fast " if fast_math else ""
        self.prefix = prefix
        self.features = features
        self.symbols = {name: k for k, name in enumerate((*program.symbols, *program.defined, *program.local))}
        self.slots: dict[Node, int] = {}
        self.uses: dict[Node, int] = {}  # of values in plain code, how often
        self.table: dict[Buffer, int] = {}  # buffers that chunks use, in the table of pointers
        self.pieces = pieces(program)
        self.functions: list[str] = []
        self.chunk_functions: list[str] = []
        self.math = MathCalls(features)
        self.chunk_math = MathCalls(features)
        self.routines = Routines(self.math)

    def run(self) -> Emitted:
        straight = sum(len(p.body) for p in self.pieces if p.kind == "scalars")
        whole = len(self.pieces) == 1 and self.pieces[0].kind == "scalars"
        apart = straight > 4 * CHUNK
        if apart and self.hasty and possible():
            self._find_plain()
        self._connect()
        plain = Plain(self.prefix, self.slots, self.uses, self.math)
        for k, piece in enumerate(self.pieces):
            piece.name = f"{self.prefix}_{piece.kind}{k}"
            if piece.kind == "plain":
                self.chunk_functions.append(plain.text(piece.name, piece.body))
            elif piece.kind in ("scalars", "nest", "shared", "control") and not whole:
                self._piece(piece, apart and piece.kind == "scalars")
        self.size = plain.count if self.uses else len(self.slots)
        frame = self.size if self.size > STACK_SLOTS else 0
        main = self._kernel(whole, apart, frame)
        if any(isinstance(s, (For, While)) for p in self.pieces if p.kind == "control" for s in statements(p.body)):
            self.functions.append(control.poll_function(self.features))
        if self.program.tapes:
            self.functions.append(control.tape_functions(self.features))
        largest = max((sum(1 for _ in statements(p.body)) for p in self.pieces if p.kind == "control"), default=0)
        constants = [_global(self.prefix, b) for b in self._constants()]
        self.functions += plain.helpers.values()
        kernel = "\n".join([*constants, *self.functions, *self.routines.functions, main, self.math.text()])
        chunks = "\n".join([*self.chunk_functions, self.chunk_math.text()]) if self.chunk_functions else ""
        loops = any(p.kind not in ("scalars", "plain") for p in self.pieces)
        linked = {**self.math.linked, **self.chunk_math.linked}
        blas, products = tuple(self.routines.blas), tuple(self.routines.products)
        helpers = bool(plain.helpers)
        return Emitted(kernel, chunks, frame, straight, largest, loops, helpers, blas, tuple(linked), products)

    def _find_plain(self) -> None:
        """Pieces that need no LLVM; those that follow each other become one."""
        found: list[Piece] = []
        for piece in self.pieces:
            if piece.kind == "scalars" and all(map(fits, piece.body)):
                if found and found[-1].kind == "plain":
                    found[-1].body += piece.body
                    continue
                piece.kind = "plain"
            found.append(piece)
        self.pieces = found

    def _constants(self) -> list[Buffer]:
        found: dict[Buffer, None] = {}
        for piece in self.pieces:
            found.update((b, None) for b in piece.buffers if b.place == "const")
        return list(found)

    def _connect(self) -> None:
        """Which piece makes each scalar, which need it, and the buffers of each."""
        made: dict[Node, Piece] = {}
        for piece in self.pieces:
            for statement in statements(piece.body):
                if isinstance(statement, Node):
                    made[statement] = piece
                    continue
                made.update((total, piece) for total in totals(statement))
                if isinstance(statement, (Fail, For, While, Reserve)):
                    piece.fails = True
        for piece in self.pieces:
            if piece.kind == "plain":
                for statement in piece.body:
                    for node in statement.args:
                        self.uses[node] = self.uses.get(node, 0) + 1
                        if node in made and made[node].kind != "plain":
                            self.slots.setdefault(node, len(self.slots))
                continue
            for statement in statements(piece.body):
                for node in statement.args if isinstance(statement, Node) else operands(statement):
                    if node.scope is None and made.get(node, piece) is not piece:
                        piece.needs[node] = None
                        self.slots.setdefault(node, len(self.slots))
                if isinstance(statement, Node) and statement.kind != "load":
                    continue
                for buffer in buffers(statement):
                    piece.buffers[buffer] = None
                    if piece.kind == "scalars" or buffer.moves:
                        self.table.setdefault(buffer, len(self.table))

    # -- pieces ----------------------------------------------------------------------------------------------------
    def _piece(self, piece: Piece, apart: bool) -> None:
        params = ["ptr noalias %frame", "ptr noalias %sizes", "ptr noalias %ctx"]
        pointers: dict[Buffer, str] = {}
        if piece.kind == "scalars":
            params = ["ptr %frame", "ptr %sizes", "ptr %ctx", "ptr %inputs", "ptr %outputs", "ptr %table"]
        else:
            if piece.kind == "control":
                params += ["ptr noalias %table", "ptr noalias %tapes"]
            for buffer in _handed(piece):
                pointers[buffer] = f"%{_pointer_name(buffer)}"
                params.append(f"ptr noalias {pointers[buffer]}")
        function = FunctionText(
            piece.name, params, "i32" if piece.fails else "void", self.symbols, "" if apart else "internal "
        )
        if piece.kind == "scalars":
            body: Body = Straight(self, function, pointers, self.chunk_math if apart else self.math, hasty=apart)
        else:
            body = Body(self, function, pointers, self.math, control=piece.kind == "control")
        if piece.kind == "shared":
            function.params.append("i64 %chunk")
            body.chunk(piece.body[0], "%chunk")
            self.functions.append(threads.runner(piece.name, len(pointers), piece.fails))
        else:
            body.statements(piece.body)
        if not isinstance(body, Straight):  # which does that by itself
            for node in made(piece.body):
                if node in self.slots:
                    body.keep(node, self.slots[node])
        body.finish()
        function.line("ret i32 0" if piece.fails else "ret void")
        few = piece.kind == "scalars" and not apart and len(piece.body) <= FEW
        text = function.text("#0 alwaysinline" if few else "#0")
        (self.chunk_functions if apart else self.functions).append(text)

    # -- the kernel ------------------------------------------------------------------------------------------------
    def _kernel(self, whole: bool, apart: bool, frame: int) -> str:
        params = ["ptr noalias %ctx", "ptr noalias %inputs", "ptr noalias %sizes", "ptr noalias %outputs", "ptr noalias %work"]
        tapes = self.program.tapes
        f = FunctionText(self.prefix, params, "i32", self.symbols, "")
        if tapes:
            f = FunctionText(f"{self.prefix}_run", [*params, "ptr noalias %tapes"], "i32", self.symbols)
        pointers = Pointers(self, f, frame)
        if whole:
            body = Straight(self, f, {}, self.math, pointers)
            body.statements(self.pieces[0].body)
            f.line("ret i32 0")
            return f.text()
        where = "%work" if frame else f.at_entry(f"alloca [{max(1, self.size)} x i64], align 8")
        table = f.at_entry(f"alloca [{max(1, len(self.table))} x ptr], align 8")
        pointers.table = table
        for buffer, k in self.table.items():
            slot = f.let(f"getelementptr ptr, ptr {table}, i64 {k}")
            f.line(f"store ptr {pointers.first(buffer)}, ptr {slot}")
        for piece in self.pieces:
            if piece.kind == "call":
                (call,) = piece.body
                self.call(f, call, pointers[call.out], [(pointers[a.buffer], a) for a in call.args])
                continue
            if piece.kind in ("clear", "move"):
                self._move(f, piece, pointers)
                continue
            args = [f"ptr {where}", "ptr %sizes", "ptr %ctx"]
            if piece.kind in ("scalars", "plain"):
                args += ["ptr %inputs", "ptr %outputs", f"ptr {table}"]
                if apart:
                    self.math.declare(piece.name, f"declare {'i32' if piece.fails else 'void'} @{piece.name}({_pointers(6)})")
            else:
                if piece.kind == "control":
                    args += [f"ptr {table}", "ptr %tapes" if tapes else "ptr null"]
                args += [f"ptr {pointers[b]}" for b in _handed(piece)]
            if piece.kind == "shared":
                slot = f.let(f"getelementptr i64, ptr {where}, i64 {self.slots[piece.body[0].extent]}")
                count = f.let(f"load i64, ptr {slot}")
                threads.dispatch(f, piece.name, count, where, [pointers[b] for b in _handed(piece)], piece.fails)
                continue
            if not piece.fails:
                f.line(f"call void @{piece.name}({', '.join(args)})")
                continue
            status = f.let(f"call i32 @{piece.name}({', '.join(args)})")
            good, bad = f.new("ok"), f.new("bad")
            test = f.let(f"icmp eq i32 {status}, 0")
            f.line(f"br i1 {test}, label {good}, label {bad}")
            f.block(bad)
            f.line(f"ret i32 {status}")
            f.block(good)
        f.line("ret i32 0")
        return f.text() + (control.outermost(self.prefix, params, tapes) if tapes else "")

    def _move(self, f: FunctionText, piece: Piece, pointers: Pointers) -> None:
        loop = piece.body[0]
        store = loop.body[-1]
        size = f.size_now(loop.extent * store.buffer.type.dtype.bytes)
        source = None if piece.kind == "clear" else pointers[store.value.data]
        move(f, self.math, pointers[store.buffer], source, size)

    def call(self, f: FunctionText, call: Call, out: str, operands: list[tuple[str, Operand]]) -> None:
        self.routines.call(f, call, out, operands, f"{self.prefix}_{len(self.routines.functions)}")


class Pointers:
    """The pointer of each buffer in the kernel, computed when first asked for."""

    def __init__(self, emitter: Emitter, f: FunctionText, frame: int):
        self._emitter = emitter
        self._f = f
        self._frame = frame
        self._found: dict[Buffer, str] = {}
        self._offsets: list[str] = []
        self.table = ""

    def __getitem__(self, buffer: Buffer) -> str:
        if buffer.moves:
            slot = self._f.let(f"getelementptr ptr, ptr {self.table}, i64 {self._emitter.table[buffer]}")
            return self._f.let(f"load ptr, ptr {slot}")
        return self.first(buffer)

    def first(self, buffer: Buffer) -> str:
        """Where the buffer is when the call begins."""
        found = self._found.get(buffer)
        if found is None:
            found = self._found[buffer] = self._pointer(buffer)
        return found

    def _pointer(self, buffer: Buffer) -> str:
        f = self._f
        if buffer.place == "const":
            return f"@{self._emitter.prefix}_const{buffer.number}"
        if buffer.place == "work":
            region = self._emitter.program.where[buffer]
            return f.at_entry(f"getelementptr i8, ptr %work, i64 {self._offset(region)}")
        slot = f.at_entry(f"getelementptr ptr, ptr %{buffer.place}s, i64 {buffer.number}")
        return f.at_entry(f"load ptr, ptr {slot}")

    def _offset(self, region: int) -> str:
        """Where a region begins: after the frame and all regions before it, each rounded up."""
        if not self._offsets:
            self._offsets.append(str(-(-8 * self._frame // ALIGN) * ALIGN))
        f, regions = self._f, self._emitter.program.regions
        while len(self._offsets) <= region:
            size = regions[len(self._offsets) - 1]
            if isinstance(size, int):
                padded = str(-(-size // ALIGN) * ALIGN)
            else:
                more = f.at_entry(f"add i64 {f.size(size)}, {ALIGN - 1}")
                padded = f.at_entry(f"and i64 {more}, {-ALIGN}")
            self._offsets.append(f.at_entry(f"add i64 {self._offsets[-1]}, {padded}"))
        return self._offsets[region]


def _pointers(count: int) -> str:
    return ", ".join(["ptr"] * count)


def _handed(piece: Piece) -> list[Buffer]:
    """The buffers whose pointers are a piece's parameters."""
    return [b for b in piece.buffers if b.place != "tape" and not (b.moves and piece.kind == "control")]


def _pointer_name(buffer: Buffer) -> str:
    return f"{buffer.place}{buffer.number}"


def _global(prefix: str, buffer: Buffer) -> str:
    """A constant array as bytes, which reads quicker than numbers."""
    assert buffer.data is not None
    data = np.ascontiguousarray(buffer.data).tobytes()
    text = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{prefix}_const{buffer.number} = internal constant [{len(data)} x i8] c"{text}", align 64'


__all__ = ["ALIGN", "Emitted", "emit"]
