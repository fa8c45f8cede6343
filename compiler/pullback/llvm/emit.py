"""From a Program to LLVM text: one function per loop nest, straight-line code in chunks, and the kernel that calls them.

See Note [Pieces] in ``pieces.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.ops.base import Intrinsic, Libm, Machine, Op
from pullback.ir.types import DType
from pullback.llvm.functions import TYPES, FunctionText, literal
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.pieces import CHUNK, Piece, Result, buffers, made, operands, pieces
from pullback.llvm.routines import Routines
from pullback.loops.nest import (
    Accumulator,
    Buffer,
    Call,
    Define,
    Fail,
    Loop,
    Node,
    Program,
    Store,
    statements,
)

BLOCK = 1024  # elements that a sum adds up before it moves on to the next compensated block
ALIGN = 64  # bytes, of regions of the workspace
STACK_SLOTS = 4096  # a longer frame lives in the workspace

MEMORY: Mapping[str, str] = {"f64": "double", "f32": "float", "i64": "i64", "bool": "i8"}


@dataclass(frozen=True, slots=True)
class Emitted:
    """``kernel`` and ``chunks`` are LLVM modules; the second, of straight-line code only, may be empty.

    ``frame``: 8-byte slots at the start of the workspace (0 if the frame is on the stack).
    """

    kernel: str
    chunks: str
    frame: int
    scalars: int  # how many scalar statements outside of nests
    loops: bool
    blas: tuple[str, ...]


def emit(program: Program, features: str, fast_math: bool = False, prefix: str = "k") -> Emitted:
    return _Emitter(program, features, fast_math, prefix).run()


class _Emitter:
    def __init__(self, program: Program, features: str, fast_math: bool, prefix: str):
        self.program = program
        self.fast = "fast " if fast_math else ""
        self.prefix = prefix
        self.features = features
        self.symbols = {name: k for k, name in enumerate((*program.symbols, *program.defined))}
        self.slots: dict[Node, int] = {}
        self.table: dict[Buffer, int] = {}  # buffers that chunks use, in the table of pointers
        self.pieces = pieces(program)
        self.functions: list[str] = []
        self.chunk_functions: list[str] = []
        self.math = MathCalls(features)
        self.chunk_math = MathCalls(features)
        self.routines = Routines(self.math)

    def run(self) -> Emitted:
        self._connect()
        straight = sum(len(p.body) for p in self.pieces if p.kind == "scalars")
        whole = len(self.pieces) == 1 and self.pieces[0].kind == "scalars"
        apart = straight > 4 * CHUNK
        for k, piece in enumerate(self.pieces):
            piece.name = f"{self.prefix}_{piece.kind}{k}"
            if piece.kind in ("scalars", "nest") and not whole:
                self._piece(piece, apart and piece.kind == "scalars")
        frame = len(self.slots) if len(self.slots) > STACK_SLOTS else 0
        main = self._kernel(whole, apart, frame)
        constants = [_global(self.prefix, b) for b in self._constants()]
        kernel = "\n".join([*constants, *self.functions, *self.routines.functions, main, self.math.text()])
        chunks = "\n".join([*self.chunk_functions, self.chunk_math.text()]) if self.chunk_functions else ""
        loops = any(p.kind != "scalars" for p in self.pieces)
        return Emitted(kernel, chunks, frame, straight, loops, tuple(self.routines.blas))

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
                elif isinstance(statement, Loop):
                    made.update((a.total, piece) for a in statement.accumulators)
                elif isinstance(statement, Fail):
                    piece.fails = True
        for piece in self.pieces:
            for statement in statements(piece.body):
                for node in operands(statement):
                    if node.scope is None and node.kind not in ("const", "size") and made[node] is not piece:
                        piece.needs[node] = None
                        self.slots.setdefault(node, len(self.slots))
                for buffer in buffers(statement):
                    piece.buffers[buffer] = None
                    if piece.kind == "scalars":
                        self.table.setdefault(buffer, len(self.table))

    # -- pieces ----------------------------------------------------------------------------------------------------
    def _piece(self, piece: Piece, apart: bool) -> None:
        params = ["ptr noalias %frame", "ptr noalias %sizes", "ptr noalias %ctx"]
        pointers: dict[Buffer, str] = {}
        if piece.kind == "scalars":
            params += ["ptr %inputs", "ptr %outputs", "ptr %table"]
        else:
            for buffer in piece.buffers:
                pointers[buffer] = f"%{_pointer_name(buffer)}"
                params.append(f"ptr noalias {pointers[buffer]}")
        function = FunctionText(
            piece.name, params, "i32" if piece.fails else "void", self.symbols, "" if apart else "internal "
        )
        body = _Body(self, function, pointers, self.chunk_math if apart else self.math)
        body.statements(piece.body)
        for node in made(piece.body):
            if node in self.slots:
                body.keep(node, self.slots[node])
        function.line("ret i32 0" if piece.fails else "ret void")
        # a nest over short static axes may be inlined; other calls cost nothing beside their loops
        (self.chunk_functions if apart else self.functions).append(function.text())

    # -- the kernel ------------------------------------------------------------------------------------------------
    def _kernel(self, whole: bool, apart: bool, frame: int) -> str:
        params = ["ptr noalias %ctx", "ptr noalias %inputs", "ptr noalias %sizes", "ptr noalias %outputs", "ptr noalias %work"]
        f = FunctionText(self.prefix, params, "i32", self.symbols, "")
        pointers = _Pointers(self, f, frame)
        if whole:
            body = _Body(self, f, {}, self.math, pointers)
            body.statements(self.pieces[0].body)
            f.line("ret i32 0")
            return f.text()
        where = "%work" if frame else f.at_entry(f"alloca [{max(1, len(self.slots))} x i64], align 8")
        table = f.at_entry(f"alloca [{max(1, len(self.table))} x ptr], align 8")
        for buffer, k in self.table.items():
            slot = f.let(f"getelementptr ptr, ptr {table}, i64 {k}")
            f.line(f"store ptr {pointers[buffer]}, ptr {slot}")
        for piece in self.pieces:
            if piece.kind == "call":
                self._call(f, piece.body[0], pointers)
                continue
            if piece.kind in ("clear", "move"):
                self._move(f, piece, pointers)
                continue
            args = [f"ptr {where}", "ptr %sizes", "ptr %ctx"]
            if piece.kind == "scalars":
                args += ["ptr %inputs", "ptr %outputs", f"ptr {table}"]
                if apart:
                    self.math.declare(piece.name, f"declare {'i32' if piece.fails else 'void'} @{piece.name}({_pointers(6)})")
            else:
                args += [f"ptr {pointers[b]}" for b in piece.buffers]
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
        return f.text()

    def _move(self, f: FunctionText, piece: Piece, pointers: _Pointers) -> None:
        loop = piece.body[0]
        store = loop.body[-1]
        out, size = pointers[store.buffer], f.size(loop.extent * store.buffer.type.dtype.bytes)
        if piece.kind == "clear":
            self.math.declare("llvm.memset", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {size}, i1 false)")
        else:
            self.math.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
            source = pointers[store.value.data]
            f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {source}, i64 {size}, i1 false)")

    def _call(self, f: FunctionText, call: Call, pointers: _Pointers) -> None:
        operands = [(pointers[a.buffer], a) for a in call.args]
        self.routines.call(f, call, pointers[call.out], operands, f"{self.prefix}_{len(self.routines.functions)}")


class _Pointers:
    """The pointer of each buffer in the kernel, computed when first asked for."""

    def __init__(self, emitter: _Emitter, f: FunctionText, frame: int):
        self._emitter = emitter
        self._f = f
        self._frame = frame
        self._found: dict[Buffer, str] = {}
        self._offsets: list[str] = []

    def __getitem__(self, buffer: Buffer) -> str:
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


class _Body:
    """Statements of one function."""

    def __init__(
        self,
        emitter: _Emitter,
        f: FunctionText,
        pointers: Mapping[Buffer, str],
        math: MathCalls,
        on_demand: _Pointers | None = None,
    ):
        self.emitter = emitter
        self.f = f
        self.math = math
        self.names: dict[Node, str] = {}
        self._pointers = dict(pointers)
        self._on_demand = on_demand

    def pointer(self, buffer: Buffer) -> str:
        found = self._pointers.get(buffer)
        if found is None:
            if self._on_demand is not None:
                found = self._on_demand[buffer]
            else:
                slot = self.f.at_entry(f"getelementptr ptr, ptr %table, i64 {self.emitter.table[buffer]}")
                found = self.f.at_entry(f"load ptr, ptr {slot}")
            self._pointers[buffer] = found
        return found

    def name(self, node: Node) -> str:
        found = self.names.get(node)
        if found is None:
            if node.kind == "const":
                return literal(node.data, node.dtype)
            if node.kind == "size":
                return self.f.size(node.data)
            slot = self.f.at_entry(f"getelementptr i64, ptr %frame, i64 {self.emitter.slots[node]}")
            found = self.names[node] = self.f.at_entry(f"load {TYPES[node.dtype.name]}, ptr {slot}")
        return found

    def keep(self, node: Node, slot: int) -> None:
        place = self.f.let(f"getelementptr i64, ptr %frame, i64 {slot}")
        self.f.line(f"store {TYPES[node.dtype.name]} {self.name(node)}, ptr {place}")

    def statements(self, body: list[Any]) -> None:
        for statement in body:
            match statement:
                case Node():
                    self.names[statement] = self._node(statement)
                case Loop():
                    self._loop(statement)
                case Store():
                    self._store(statement)
                case Fail():
                    self._fail(statement)
                case Define():
                    place = self.f.let(f"getelementptr i64, ptr %sizes, i64 {self.emitter.symbols[statement.symbol]}")
                    self.f.line(f"store i64 {self.name(statement.value)}, ptr {place}")
                case Result():
                    slot = self.f.let(f"getelementptr ptr, ptr %outputs, i64 {statement.number}")
                    pointer = self.f.let(f"load ptr, ptr {slot}")
                    self._write(pointer, statement.value)

    # -- scalars ---------------------------------------------------------------------------------------------------
    def _node(self, node: Node) -> str:
        f = self.f
        if node.kind == "op":
            return self.operation(node.data, node.dtype, [a.dtype for a in node.args], [self.name(a) for a in node.args])
        if node.kind == "raw":
            return self._raw(node, [self.name(a) for a in node.args])
        if node.kind == "param":
            slot = f.let(f"getelementptr ptr, ptr %inputs, i64 {node.data}")
            return self._read(f.let(f"load ptr, ptr {slot}"), node.dtype)
        assert node.kind == "load", node.kind
        place = f.let(
            f"getelementptr inbounds {MEMORY[node.dtype.name]}, ptr {self.pointer(node.data)}, i64 {self.name(node.args[0])}"
        )
        return self._read(place, node.dtype)

    def _read(self, place: str, dtype: DType) -> str:
        value = self.f.let(f"load {MEMORY[dtype.name]}, ptr {place}")
        return self.f.let(f"icmp ne i8 {value}, 0") if dtype.kind == "b" else value

    def _write(self, place: str, node: Node) -> None:
        value = self.name(node)
        if node.dtype.kind == "b":
            value = self.f.let(f"zext i1 {value} to i8")
        self.f.line(f"store {MEMORY[node.dtype.name]} {value}, ptr {place}")

    def operation(self, op: Op, dtype: DType, kinds: list[DType], args: list[str], flags: str = "") -> str:
        """One primitive op on operands of types ``kinds``."""
        f, kind, lower = self.f, TYPES[kinds[-1].name], op.lower
        if isinstance(lower, Libm):
            return f.let(self.math.call(lower.name, kind, args))
        if isinstance(lower, Intrinsic):
            name = lower.integer if dtype.kind == "i" else lower.name
            return f.let(self.math.intrinsic(name, TYPES[dtype.name], args, [TYPES[k.name] for k in kinds]))
        assert isinstance(lower, Machine)
        spec = getattr(lower, kinds[-1].kind)
        if not spec:
            raise KeyError(f"{op.name} has no instruction for {kinds[-1]}")
        if spec == "select":
            return f.let(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        *code, last = spec.split()
        if last.endswith(","):  # a first operand in the text, as in "sub 0,"
            args = [last[:-1], *args]
        else:
            code.append(last)
        if code[0] in ("sdiv", "srem"):
            return self._guarded_division(code[0], *args)
        if kinds[-1].kind == "f" and code[0] in ("fadd", "fsub", "fmul", "fdiv", "fneg", "frem"):
            code.insert(1, (flags or self.emitter.fast).strip())
        return f.let(f"{' '.join(c for c in code if c)} {kind} {', '.join(args)}")

    def _guarded_division(self, code: str, a: str, b: str) -> str:
        """Division by zero gives 0 as in NumPy; the least integer by -1 wraps, as multiplication would."""
        f = self.f
        zero = f.let(f"icmp eq i64 {b}, 0")
        minus = f.let(f"icmp eq i64 {b}, -1")
        odd = f.let(f"or i1 {zero}, {minus}")
        safe = f.let(f"select i1 {odd}, i64 1, i64 {b}")
        plain = f.let(f"{code} i64 {a}, {safe}")
        special = f.let(f"sub i64 0, {a}") if code == "sdiv" else "0"
        wrapped = f.let(f"select i1 {minus}, i64 {special}, i64 {plain}")
        return f.let(f"select i1 {zero}, i64 0, i64 {wrapped}")

    def _raw(self, node: Node, args: list[str]) -> str:
        f, code, to = self.f, node.data, TYPES[node.dtype.name]
        kind = TYPES[node.args[-1].dtype.name]
        if code == "select":
            return f.let(f"select i1 {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        if code == "fptosi":  # NaN and what does not fit become the least integer, as on x86
            low = f.let(f"fcmp oge {kind} {args[0]}, {literal(-(2.0**63), node.args[0].dtype)}")
            high = f.let(f"fcmp olt {kind} {args[0]}, {literal(2.0**63, node.args[0].dtype)}")
            fits = f.let(f"and i1 {low}, {high}")
            number = f.let(f"fptosi {kind} {args[0]} to i64")
            return f.let(f"select i1 {fits}, i64 {number}, i64 {-(2**63)}")
        if code in ("zext", "sitofp", "uitofp", "fpext", "fptrunc"):
            return f.let(f"{code} {kind} {args[0]} to {to}")
        if code in ("add", "sub", "mul"):
            code += " nsw"
        return f.let(f"{code} {kind} {', '.join(args)}")

    # -- memory and checks ------------------------------------------------------------------------------------------
    def _store(self, store: Store) -> None:
        dtype = store.buffer.type.dtype
        place = self.f.let(
            f"getelementptr inbounds {MEMORY[dtype.name]}, ptr {self.pointer(store.buffer)}, i64 {self.name(store.position)}"
        )
        if store.combine is None:
            self._write(place, store.value)
            return
        old = self._read(place, dtype)
        value = self.operation(store.combine, dtype, [dtype, dtype], [old, self.name(store.value)])
        if dtype.kind == "b":
            value = self.f.let(f"zext i1 {value} to i8")
        self.f.line(f"store {MEMORY[dtype.name]} {value}, ptr {place}")

    def _fail(self, fail: Fail) -> None:
        f = self.f
        good, bad = f.new("ok"), f.new("bad")
        f.line(f"br i1 {self.name(fail.ok)}, label {good}, label {bad}")
        f.block(bad)
        for k, value in enumerate(fail.values):
            f.line(f"store i64 {self.name(value)}, ptr {f.let(f'getelementptr i64, ptr %ctx, i64 {k}')}")
        f.line(f"ret i32 {fail.number + 1}")
        f.block(good)

    # -- loops -----------------------------------------------------------------------------------------------------
    def _loop(self, loop: Loop) -> None:
        innermost = not any(isinstance(s, Loop) for s in loop.body)
        short = isinstance(loop.extent, int) and loop.extent <= BLOCK
        exact = [not short and _is_sum(a) for a in loop.accumulators]  # sums that are compensated
        if innermost and any(exact):
            totals = self._blocked(loop, exact)
        else:
            totals = self._plain(loop, exact, "0", self.f.size(loop.extent), [self.name(a.start) for a in loop.accumulators])
        for carried, total in zip(loop.accumulators, totals, strict=True):
            self.names[carried.total] = total

    def _trip(self, loop: Loop, index: str, values: list[str], reassociate: bool) -> list[str]:
        """The body once; the next values of what is carried, sums not yet added."""
        assert loop.index is not None
        self.names[loop.index] = index
        for carried, value in zip(loop.accumulators, values, strict=True):
            self.names[carried.current] = value
        self.statements(loop.body)
        following = []
        for carried, value in zip(loop.accumulators, values, strict=True):
            assert carried.value is not None
            term = self.name(carried.value)
            if carried.combine is None:
                following.append(term)
                continue
            dtype = carried.start.dtype
            flags = "reassoc" if reassociate and dtype.kind == "f" and not self.emitter.fast else ""
            following.append(self.operation(carried.combine, dtype, [dtype, dtype], [value, term], flags))
        return following

    def _plain(self, loop: Loop, exact: list[bool], low: str, high: str, starts: list[str]) -> list[str]:
        """One loop. A compensated sum carries its rounding error in a second variable."""
        kinds = [TYPES[a.start.dtype.name] for a in loop.accumulators]
        extra = [k for k, e in enumerate(exact) if e]
        innermost = not any(isinstance(s, Loop) for s in loop.body)

        def body(index: str, values: list[str]) -> list[str]:
            sums, errors = values[: len(kinds)], values[len(kinds) :]
            # a compensated sum takes the term alone: combined with the neutral start of a sum, which changes nothing
            inputs = [literal(0, loop.accumulators[k].start.dtype) if exact[k] else s for k, s in enumerate(sums)]
            following = self._trip(loop, index, inputs, innermost)
            for j, k in enumerate(extra):
                following[k], error = self._two_sum(kinds[k], sums[k], following[k], errors[j])
                errors[j] = error
            return following + errors

        carried = list(zip(kinds, starts, strict=True)) + [
            (kinds[k], literal(0, loop.accumulators[k].start.dtype)) for k in extra
        ]
        found = self.f.counted(low, high, carried, body)
        return self._corrected(loop, found, extra)

    def _blocked(self, loop: Loop, exact: list[bool]) -> list[str]:
        """Blocks of BLOCK trips: within one, sums may be reassociated (so they vectorise); blocks are added compensated."""
        f, accumulators = self.f, loop.accumulators
        kinds = [TYPES[a.start.dtype.name] for a in accumulators]
        zeros = [literal(0, a.start.dtype) for a in accumulators]
        extra = [k for k, e in enumerate(exact) if e]
        extent = f.size(loop.extent)
        more = f.at_entry(f"add i64 {extent}, {BLOCK - 1}")
        blocks = f.at_entry(f"ashr i64 {more}, {BLOCK.bit_length() - 1}")

        def block(number: str, values: list[str]) -> list[str]:
            low = f.let(f"mul nuw nsw i64 {number}, {BLOCK}")
            left = f.let(f"sub nsw i64 {extent}, {low}")
            some = f.let(f"icmp slt i64 {left}, {BLOCK}")
            high = f.let(f"add nsw i64 {low}, {f.let(f'select i1 {some}, i64 {left}, i64 {BLOCK}')}")
            starts = [zeros[k] if e else values[k] for k, e in enumerate(exact)]

            def trip(index: str, inner: list[str]) -> list[str]:
                return self._trip(loop, index, inner, True)

            found = f.counted(low, high, list(zip(kinds, starts, strict=True)), trip)
            errors = values[len(kinds) :]
            for j, k in enumerate(extra):
                found[k], errors[j] = self._two_sum(kinds[k], values[k], found[k], errors[j])
            return found + errors

        carried = [(kind, self.name(a.start)) for kind, a in zip(kinds, accumulators, strict=True)]
        carried += [(kinds[k], zeros[k]) for k in extra]
        return self._corrected(loop, f.counted("0", blocks, carried, block), extra)

    def _two_sum(self, kind: str, total: str, term: str, error: str) -> tuple[str, str]:
        """``total + term`` and the accumulated rounding error (Knuth's branch-free form)."""
        f = self.f
        new = f.let(f"fadd {kind} {total}, {term}")
        part = f.let(f"fsub {kind} {new}, {total}")
        rest = f.let(f"fsub {kind} {new}, {part}")
        lost = f.let(f"fadd {kind} {f.let(f'fsub {kind} {total}, {rest}')}, {f.let(f'fsub {kind} {term}, {part}')}")
        return new, f.let(f"fadd {kind} {error}, {lost}")

    def _corrected(self, loop: Loop, found: list[str], extra: list[int]) -> list[str]:
        """Add the errors, unless the sum is not finite and they are therefore NaN."""
        f, count = self.f, len(loop.accumulators)
        for j, k in enumerate(extra):
            kind, error = TYPES[loop.accumulators[k].start.dtype.name], found[count + j]
            fine = f.let(f"fcmp ord {kind} {error}, {error}")
            exact = f.let(f"fadd {kind} {found[k]}, {error}")
            found[k] = f.let(f"select i1 {fine}, {kind} {exact}, {kind} {found[k]}")
        return found[:count]


def _pointers(count: int) -> str:
    return ", ".join(["ptr"] * count)


def _pointer_name(buffer: Buffer) -> str:
    return f"{buffer.place}{buffer.number}"


def _is_sum(carried: Accumulator) -> bool:
    return carried.combine is not None and carried.combine.name == "add" and carried.start.dtype.kind == "f"


def _global(prefix: str, buffer: Buffer) -> str:
    """A constant array as bytes, which reads quicker than numbers."""
    assert buffer.data is not None
    data = np.ascontiguousarray(buffer.data).tobytes()
    text = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{prefix}_const{buffer.number} = internal constant [{len(data)} x i8] c"{text}", align 64'


__all__ = ["ALIGN", "Emitted", "emit"]
