"""The statements of one function as LLVM text: scalars, memory, nests. Control flow is in ``control.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pullback.ir.ops.base import Intrinsic, Libm, Machine, Op
from pullback.ir.types import DType
from pullback.llvm import control, rounds
from pullback.llvm.functions import MEMORY, TYPES, FunctionText, floor_division, literal
from pullback.llvm.mathlib import MathCalls
from pullback.llvm.pieces import Result
from pullback.loops.nest import (
    Buffer,
    Call,
    Define,
    Fail,
    For,
    If,
    Loop,
    Node,
    Operand,
    Reserve,
    Store,
    Swap,
    While,
)

if TYPE_CHECKING:
    from pullback.llvm.emit import Emitter, Pointers


class Body:
    """Statements of one function."""

    def __init__(
        self,
        emitter: Emitter,
        f: FunctionText,
        pointers: Mapping[Buffer, str],
        math: MathCalls,
        on_demand: Pointers | None = None,
        control: bool = False,
    ):
        self.emitter = emitter
        self.f = f
        self.math = math
        self.names: dict[Node, str] = {}
        self.anchors: dict[tuple[Buffer, Node], tuple[str, Node]] = {}  # see Note [Anchors] in ``rounds.py``
        self.sparing = False  # whether loops should be short rather than quick
        self._pointers = dict(pointers)
        self._on_demand = on_demand
        self._control = control  # whether buffers may move in this function
        self._cells: dict[Buffer | int, str] = {}
        self._rooms: dict[int, str] = {}
        self._kept: list[tuple[str, str]] = []

    def pointer(self, buffer: Buffer) -> str:
        if buffer.place == "tape" or (buffer.moves and self._control):
            return self.f.let(f"load ptr, ptr {self.cell(buffer)}")
        found = self._pointers.get(buffer)
        if found is None:
            if self._on_demand is not None:
                found = self._on_demand[buffer]
            else:
                slot = self.f.at_entry(f"getelementptr ptr, ptr %table, i64 {self.emitter.table[buffer]}")
                found = self.f.at_entry(f"load ptr, ptr {slot}")
            self._pointers[buffer] = found
        return found

    def cell(self, buffer: Buffer) -> str:
        """Where the present pointer of a buffer that moves or grows is: a variable that becomes a register."""
        key = buffer.number if buffer.place == "tape" else buffer  # stacks of two branches may share a tape
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = self.f.at_entry("alloca ptr")
            if buffer.place == "tape":
                kept = control.descriptor(self.f, buffer)
            else:
                kept = self.f.at_entry(f"getelementptr ptr, ptr %table, i64 {self.emitter.table[buffer]}")
                self._kept.append((found, kept))
            self.f.at_entry_line(f"store ptr {self.f.at_entry(f'load ptr, ptr {kept}')}, ptr {found}")
        return found

    def room(self, buffer: Buffer) -> str:
        """Where the number of elements for which a tape has room is."""
        found = self._rooms.get(buffer.number)
        if found is None:
            found = self._rooms[buffer.number] = self.f.at_entry("alloca i64")
            kept = self.f.at_entry(f"getelementptr i64, ptr {control.descriptor(self.f, buffer)}, i64 1")
            self.f.at_entry_line(f"store i64 {self.f.at_entry(f'load i64, ptr {kept}')}, ptr {found}")
        return found

    def finish(self) -> None:
        """Where buffers have moved to, for the pieces that follow."""
        for cell, kept in self._kept:
            self.f.line(f"store ptr {self.f.let(f'load ptr, ptr {cell}')}, ptr {kept}")

    def operand(self, operand: Operand) -> str:
        pointer = self.pointer(operand.buffer)
        if operand.start is None:
            return pointer
        kind = MEMORY[operand.buffer.type.dtype.name]
        return self.f.let(f"getelementptr {kind}, ptr {pointer}, i64 {self.name(operand.start)}")

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
                    rounds.nest(self, statement)
                case Store():
                    self._store(statement)
                case Fail():
                    self._fail(statement)
                case Define():
                    place = self.f.let(f"getelementptr i64, ptr %sizes, i64 {self.emitter.symbols[statement.symbol]}")
                    self.f.line(f"store i64 {self.name(statement.value)}, ptr {place}")
                case Call():
                    pointers = [(self.operand(a), a) for a in statement.args]
                    self.emitter.call(self.f, statement, self.pointer(statement.out), pointers)
                case For():
                    control.for_loop(self, statement)
                case While():
                    control.while_loop(self, statement)
                case If():
                    control.branch(self, statement)
                case Swap():
                    control.swap(self, statement)
                case Reserve():
                    control.reserve(self, statement)
                case Result():
                    slot = self.f.let(f"getelementptr ptr, ptr %outputs, i64 {statement.number}")
                    pointer = self.f.let(f"load ptr, ptr {slot}")
                    self.write(pointer, self.name(statement.value), statement.value.dtype)

    def chunk(self, loop: Loop, index: str) -> None:
        """One trip of a loop whose trips are shared by threads."""
        assert loop.index is not None
        self.names[loop.index] = index
        self.statements(loop.body)

    # -- scalars ---------------------------------------------------------------------------------------------------
    def _node(self, node: Node) -> str:
        f = self.f
        if node.kind == "op":
            return self.operation(node.data, node.dtype, [a.dtype for a in node.args], [self.name(a) for a in node.args])
        if node.kind == "raw":
            return self.raw(node, [self.name(a) for a in node.args])
        if node.kind == "param":
            slot = f.let(f"getelementptr ptr, ptr %inputs, i64 {node.data}")
            return self.read(f.let(f"load ptr, ptr {slot}"), node.dtype)
        assert node.kind == "load", node.kind
        return self.read(self._place(node.data, node.args[0]), node.dtype)

    def _place(self, buffer: Buffer, position: Node) -> str:
        found = self.anchors.get((buffer, position))
        if found is None:
            pointer, index = self.pointer(buffer), self.name(position)
        else:
            pointer, index = found[0], self.name(found[1])
        return self.f.let(f"getelementptr inbounds {MEMORY[buffer.type.dtype.name]}, ptr {pointer}, i64 {index}")

    def read(self, place: str, dtype: DType) -> str:
        value = self.f.let(f"load {MEMORY[dtype.name]}, ptr {place}")
        return self.f.let(f"icmp ne i8 {value}, 0") if dtype.kind == "b" else value

    def write(self, place: str, value: str, dtype: DType) -> None:
        if dtype.kind == "b":
            value = self.f.let(f"zext i1 {value} to i8")
        self.f.line(f"store {MEMORY[dtype.name]} {value}, ptr {place}")

    def operation(self, op: Op, dtype: DType, kinds: list[DType], args: list[str]) -> str:
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
            code.insert(1, self.emitter.fast.strip())
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

    def raw(self, node: Node, args: list[str]) -> str:
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
        if code == "floordiv":
            a, b = args
            return floor_division(a, b, f.let)
        if code in ("zext", "sitofp", "uitofp", "fpext", "fptrunc"):
            return f.let(f"{code} {kind} {args[0]} to {to}")
        if code in ("add", "sub", "mul"):
            code += " nsw"
        return f.let(f"{code} {kind} {', '.join(args)}")

    # -- memory and checks ------------------------------------------------------------------------------------------
    def _store(self, store: Store) -> None:
        dtype = store.buffer.type.dtype
        place = self._place(store.buffer, store.position)
        value = self.name(store.value)
        if store.combine is not None:
            value = self.operation(store.combine, dtype, [dtype, dtype], [self.read(place, dtype), value])
        self.write(place, value, dtype)

    def _fail(self, fail: Fail) -> None:
        f = self.f
        good, bad = f.new("ok"), f.new("bad")
        f.line(f"br i1 {self.name(fail.ok)}, label {good}, label {bad}, !prof !1")
        f.block(bad)
        for k, value in enumerate(fail.values):
            f.line(f"store i64 {self.name(value)}, ptr {f.let(f'getelementptr i64, ptr %ctx, i64 {k}')}")
        f.line(f"ret i32 {fail.number + 1}")
        f.block(good)

    # -- loops -----------------------------------------------------------------------------------------------------
    def extent(self, loop: Loop) -> str:
        return self.name(loop.extent) if isinstance(loop.extent, Node) else self.f.size(loop.extent)

    def move(self, loop: Loop) -> None:
        """A loop that only clears or copies, as memset or memcpy."""
        store = loop.body[-1]
        assert isinstance(store, Store)
        count, bytes_ = self.extent(loop), store.buffer.type.dtype.bytes
        source = self.pointer(store.value.data) if len(loop.body) > 1 else None
        move(self.f, self.math, self.pointer(store.buffer), source, self.f.let(f"mul i64 {count}, {bytes_}"))


def move(f: FunctionText, math: MathCalls, out: str, source: str | None, size: str) -> None:
    """Zeros, or a copy of what is at ``source``."""
    if source is None:
        math.declare("llvm.memset", "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr {out}, i8 0, i64 {size}, i1 false)")
    else:
        math.declare("llvm.memcpy", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {source}, i64 {size}, i1 false)")


__all__ = ["MEMORY", "Body", "move"]
