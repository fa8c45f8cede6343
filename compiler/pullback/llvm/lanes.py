"""Innermost loops in vectors: one trip does as many elements as a register has lanes.

Note [Lanes]
The loops of nests have independent trips, so a trip of several elements needs no analysis: floating-point values are vectors,
positions are the scalars of the first lane as long as they are in steps of the index. What is left over at the end is done by
the same instructions under a mask, so that an element's bits do not depend on where it stands, and a short loop needs no
scalar code. A sum has one accumulator per lane (and several of those, if the body is short); they are added in a fixed order.

What has no vector form (divisions of integers, functions without one) is done lane by lane, and so are loads and stores that
are not contiguous. Lanes that store to places of the data's choosing do so one after the other, in the loop's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pullback.ir.dims import Size
from pullback.ir.ops.base import Intrinsic, Libm, Machine, Op
from pullback.ir.types import DType, bool_, i64
from pullback.llvm.functions import MEMORY, TYPES, literal
from pullback.loops.nest import NEUTRAL, Accumulator, Buffer, Fail, Loop, Node, Store
from pullback.loops.order import stride

if TYPE_CHECKING:
    from pullback.llvm.body import Body

ONE_BY_ONE = ("sdiv", "srem", "udiv", "urem", "fptosi", "floordiv", "frem")  # no vector instruction, or one that may trap
SHORT, SHORTER = 12, 4  # values in a body up to which two or four vectors are done in a trip that sums up


def width(loop: Loop, features: str) -> int:
    """How many lanes an innermost loop should have; 0 if it has to be done one element at a time."""
    if any(a.combine is None or a.start.dtype.kind not in NEUTRAL.get(a.combine.name, ()) for a in loop.accumulators):
        return 0
    dear = cheap = 0
    kinds: set[DType] = set()
    for statement in loop.body:
        match statement:
            case Node(kind="load", args=(position,)):
                contiguous = stride(position, loop) == 1
                cheap, dear = (cheap + 1, dear) if contiguous else (cheap, dear + 1)
                kinds.add(statement.dtype)
            case Node(kind="op"):
                cheap += 10 if isinstance(statement.data.lower, Libm) else 1
                kinds.add(statement.dtype)
            case Store(position=position):
                contiguous = stride(position, loop) == 1
                cheap, dear = (cheap + 1, dear) if contiguous else (cheap, dear + 1)
                kinds.add(statement.value.dtype)
            case Node() | Fail():
                pass
            case _:
                return 0
    if 2 * dear > cheap + len(loop.accumulators):
        return 0
    bits = 512 if "+avx512f" in features else 256 if "+avx" in features.split(",") else 128
    return bits // (8 * max((k.bytes for k in kinds if k is not bool_), default=8))


def unrolled(loop: Loop) -> int:
    """How many vectors a trip does, so that a sum does not wait for itself."""
    if not loop.accumulators:
        return 1
    if any(isinstance(s, Node) and s.kind == "op" and isinstance(s.data.lower, Libm) for s in loop.body):
        return 1
    work = sum(1 for s in loop.body if not isinstance(s, Node) or s.dtype is not i64)
    return 4 if work <= SHORTER else 2 if work <= SHORT else 1


def masked(loop: Loop) -> bool:
    """Whether what is left over can be done under a mask: lanes that store one by one cannot be left out."""
    return all(stride(s.position, loop) == 1 for s in loop.body if isinstance(s, Store))


class Rows:
    """What rows that go through one loop together have in common: nodes that are the same for all of them, and what all of
    them add to, which is loaded for the first one and stored for the last one.

    ``made`` are the vectors of such nodes and ``first`` their scalars in the present trip, ``held`` sums not stored yet.
    """

    def __init__(self, loop: Loop, count: int):
        self.loop = loop
        self.last = count - 1
        self.nodes: set[Node] = set() if loop.index is None else {loop.index}
        accesses: dict[Buffer, int] = {}
        for statement in loop.body:
            if isinstance(statement, Store):
                accesses[statement.buffer] = accesses.get(statement.buffer, 0) + 1
        for node in loop.body:
            if not isinstance(node, Node):
                continue
            if node.kind == "load" and node.data in accesses:
                accesses[node.data] += 1
            elif all(a in self.nodes or self.around(a) for a in node.args):
                self.nodes.add(node)
        self.uniform: dict[Node, str] = {}
        self._once = {buffer for buffer, times in accesses.items() if times == 1}
        self.start()

    def start(self) -> None:
        self.made: dict[Node, str] = {}
        self.first: dict[Node, str] = {}
        self.held: dict[Store, str] = {}

    def around(self, node: Node) -> bool:
        """Whether a node is outside of the loop over rows."""
        return node.scope is not self.loop and node.scope is not self.loop.parent

    def sums(self, store: Store) -> bool:
        """Whether all rows add to the same elements."""
        return store.combine is not None and store.buffer in self._once and store.position in self.nodes


class Lanes:
    """The body of a loop for ``width`` elements of one row, the ``number``-th of ``rows``. ``names`` are those of the row's
    scalars."""

    def __init__(
        self,
        body: Body,
        loop: Loop,
        width: int,
        names: dict[Node, str],
        anchors: dict[Any, tuple[str, Node]],
        rows: Rows,
        number: int,
    ):
        self.body = body
        self.f = body.f
        self.loop = loop
        self.width = width
        self.names = names
        self.anchors = anchors
        self.rows = rows
        self.number = number
        self.index = ""
        self.mask = ""
        self._first: dict[Node, str] = {}
        self._vectors: dict[Node, str] = {}
        self._uniform: dict[Node, str] = {}
        body.names = names
        for statement in loop.body:
            for node in _operands(statement):
                if node.scope is not loop and node.dtype is not i64:
                    self._uniform[node] = self._everywhere(node)
        for carried in loop.accumulators:
            term = carried.value
            if term is not None and term.scope is not loop:
                self._uniform[term] = self._everywhere(term)

    def _everywhere(self, node: Node) -> str:
        """A scalar in all lanes; one vector for all rows, if it is the same for them."""
        found = self._uniform.get(node) or self.rows.uniform.get(node)
        if found is None:
            found = self.splat(self.body.name(node), node.dtype)
            if self.rows.around(node):
                self.rows.uniform[node] = found
        return found

    # -- types and constants -----------------------------------------------------------------------------------------
    def kind(self, dtype: DType) -> str:
        return f"<{self.width} x {TYPES[dtype.name]}>"

    def constant(self, value: Any, dtype: DType) -> str:
        return self._repeated(literal(value, dtype), TYPES[dtype.name])

    def _repeated(self, text: str, kind: str) -> str:
        return "<" + ", ".join([f"{kind} {text}"] * self.width) + ">"

    def splat(self, name: str, dtype: DType) -> str:
        kind = TYPES[dtype.name]
        if not name.startswith("%"):
            return self._repeated(name, kind)
        one = self.f.let(f"insertelement <{self.width} x {kind}> poison, {kind} {name}, i64 0")
        return self.f.let(
            f"shufflevector <{self.width} x {kind}> {one}, <{self.width} x {kind}> poison, <{self.width} x i32> zeroinitializer"
        )

    def _lane(self, vector: str, dtype: DType, k: int) -> str:
        return self.f.let(f"extractelement {self.kind(dtype)} {vector}, i64 {k}")

    def _gathered(self, parts: Sequence[str], kind: str) -> str:
        found = "poison"
        for k, part in enumerate(parts):
            found = self.f.let(f"insertelement <{self.width} x {kind}> {found}, {kind} {part}, i64 {k}")
        return found

    # -- one trip ----------------------------------------------------------------------------------------------------
    def trip(self, index: str, values: Sequence[str], mask: str = "") -> list[str]:
        """The elements from ``index`` on, where ``mask`` (if given) has a lane set; the accumulators after it."""
        self.index, self.mask = index, mask
        if not self.number:
            self.rows.start()
        self._first, self._vectors = dict(self.rows.first), dict(self.rows.made)
        body = self.body
        body.names = self.names
        for statement in self.loop.body:
            if isinstance(statement, Store):
                self._store(statement)
            elif isinstance(statement, Fail):
                self._fail(statement)
            else:
                assert isinstance(statement, Node)  # `width` has seen that no others are left
                if statement.kind == "load" or (statement.kind == "op" and statement.dtype is not i64):
                    self.vector(statement)
        return [self._combined(carried, value) for carried, value in zip(self.loop.accumulators, values, strict=True)]

    def _combined(self, carried: Accumulator, value: str) -> str:
        assert carried.value is not None and carried.combine is not None
        dtype = carried.start.dtype
        term = self.vector(carried.value)
        if self.mask:
            neutral = self.neutral(carried)
            kind = self.kind(dtype)
            term = self.f.let(f"select <{self.width} x i1> {self.mask}, {kind} {term}, {kind} {neutral}")
        return self.operation(carried.combine, dtype, [dtype, dtype], [value, term])

    def neutral(self, carried: Accumulator) -> str:
        assert carried.combine is not None
        dtype = carried.start.dtype
        return self.constant(NEUTRAL[carried.combine.name][dtype.kind], dtype)

    def total(self, carried: Accumulator, start: str, vector: str) -> str:
        """The lanes of an accumulator with what it started from."""
        assert carried.combine is not None
        body, dtype, lanes = self.body, carried.start.dtype, self.width
        parts = [self._lane(vector, dtype, k) for k in range(lanes)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [body.operation(carried.combine, dtype, [dtype, dtype], [parts[k], parts[k + half]]) for k in range(half)]
        return body.operation(carried.combine, dtype, [dtype, dtype], [start, parts[0]])

    # -- values ------------------------------------------------------------------------------------------------------
    def first(self, node: Node) -> str:
        """The scalar of the first lane, of an integer."""
        if node.scope is not self.loop:
            return self.body.name(node)
        if node is self.loop.index:
            return self.index
        found = self._first.get(node)
        if found is None:
            if node.kind == "raw":
                found = self.body.raw(node, [self.first(a) for a in node.args])
            else:
                found = self._lane(self.vector(node), node.dtype, 0)
            self._first[node] = found
            if node in self.rows.nodes:
                self.rows.first[node] = found
        return found

    def vector(self, node: Node) -> str:
        if node.scope is not self.loop:
            return self._uniform.get(node) or self.splat(self.body.name(node), node.dtype)
        found = self._vectors.get(node)
        if found is None:
            found = self._vectors[node] = self._made(node)
            if node in self.rows.nodes:
                self.rows.made[node] = found
        return found

    def _made(self, node: Node) -> str:
        if node.kind == "load":
            return self._load(node)
        if node is self.loop.index:
            steps = ", ".join(f"i64 {k}" for k in range(self.width))
            return self.f.let(f"add <{self.width} x i64> {self.splat(self.index, i64)}, <{steps}>")
        kinds = [a.dtype for a in node.args]
        args = [self.vector(a) for a in node.args]
        if node.kind == "op":
            return self.operation(node.data, node.dtype, kinds, args)
        code = node.data
        if code in ONE_BY_ONE:
            return self._one_by_one(node.dtype, kinds, args, lambda parts: self.body.raw(node, parts))
        kind, to = self.kind(kinds[-1]), self.kind(node.dtype)
        if code == "select":
            return self.f.let(f"select <{self.width} x i1> {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
        if code in ("zext", "sitofp", "uitofp", "fpext", "fptrunc"):
            return self.f.let(f"{code} {kind} {args[0]} to {to}")
        if code in ("add", "sub", "mul"):
            code += " nsw"
        return self.f.let(f"{code} {kind} {', '.join(args)}")

    def _one_by_one(self, dtype: DType, kinds: Sequence[DType], args: Sequence[str], make: Callable[[list[str]], str]) -> str:
        parts = [make([self._lane(a, d, k) for a, d in zip(args, kinds, strict=True)]) for k in range(self.width)]
        return self._gathered(parts, TYPES[dtype.name])

    def operation(self, op: Op, dtype: DType, kinds: Sequence[DType], args: list[str]) -> str:
        """One primitive op on vectors of elements of types ``kinds``."""
        f, math, lower, kind = self.f, self.body.math, op.lower, self.kind(kinds[-1])
        if isinstance(lower, Libm):
            call = math.vector_call(lower.name, TYPES[kinds[-1].name], self.width, args)
            if call is not None:
                return f.let(call)
        elif isinstance(lower, Intrinsic) and dtype.kind == "f":
            return f.let(math.intrinsic(lower.name, self.kind(dtype), args, [self.kind(k) for k in kinds]))
        elif isinstance(lower, Machine):
            spec = getattr(lower, kinds[-1].kind)
            if not spec:
                raise KeyError(f"{op.name} has no instruction for {kinds[-1]}")
            if spec == "select":
                return f.let(f"select <{self.width} x i1> {args[0]}, {kind} {args[1]}, {kind} {args[2]}")
            *code, last = spec.split()
            if last.endswith(","):  # a first operand in the text, as in "sub 0,"
                args = [self._repeated(last[:-1], TYPES[kinds[-1].name]), *args]
            else:
                code.append(last)
            if code[0] not in ONE_BY_ONE:
                if kinds[-1].kind == "f" and code[0] in ("fadd", "fsub", "fmul", "fdiv", "fneg"):
                    code.insert(1, self.body.emitter.fast.strip())
                return f.let(f"{' '.join(c for c in code if c)} {kind} {', '.join(args)}")
        return self._one_by_one(dtype, kinds, args, lambda parts: self.body.operation(op, dtype, list(kinds), parts))

    # -- memory ------------------------------------------------------------------------------------------------------
    def _place(self, buffer: Buffer, position: Node) -> tuple[str, Node]:
        found = self.anchors.get((buffer, position))
        return (self.body.pointer(buffer), position) if found is None else found

    def _at(self, pointer: str, dtype: DType, index: str) -> str:
        return self.f.let(f"getelementptr inbounds {MEMORY[dtype.name]}, ptr {pointer}, i64 {index}")

    def _load(self, node: Node) -> str:
        pointer, position = self._place(node.data, node.args[0])
        dtype, memory = node.dtype, MEMORY[node.dtype.name]
        if stride(position, self.loop) == 1:
            found = self._contiguous(self._at(pointer, dtype, self.first(position)), dtype)
        else:
            places = [self._at(pointer, dtype, index) for index in self._positions(position)]
            found = self._gathered([self.f.let(f"load {memory}, ptr {place}") for place in places], memory)
        return self._truth(found) if dtype.kind == "b" else found

    def _truth(self, bytes_: str) -> str:
        return self.f.let(f"icmp ne <{self.width} x i8> {bytes_}, zeroinitializer")

    def _contiguous(self, place: str, dtype: DType) -> str:
        memory, bytes_ = MEMORY[dtype.name], dtype.bytes
        kind = f"<{self.width} x {memory}>"
        if not self.mask:
            return self.f.let(f"load {kind}, ptr {place}, align {bytes_}")
        name = f"llvm.masked.load.v{self.width}{_SUFFIX[memory]}.p0"
        mask = f"<{self.width} x i1>"
        self.body.math.declare(name, f"declare {kind} @{name}(ptr, i32 immarg, {mask}, {kind})")
        return self.f.let(f"call {kind} @{name}(ptr {place}, i32 {bytes_}, {mask} {self.mask}, {kind} zeroinitializer)")

    def _positions(self, position: Node) -> list[str]:
        """The position of each lane; lanes that are masked have that of the first."""
        step = stride(position, self.loop)
        if step is None:
            vector = self.vector(position)
            found = [self._lane(vector, i64, k) for k in range(self.width)]
        else:
            base = self.first(position)
            found = [base, *(self.f.let(f"add i64 {base}, {self._times(step, k)}") for k in range(1, self.width))]
        if self.mask:
            for k in range(1, self.width):
                found[k] = self.f.let(f"select i1 {self._lane(self.mask, bool_, k)}, i64 {found[k]}, i64 {found[0]}")
        return found

    def _times(self, step: Size, k: int) -> str:
        return self.f.size(step * k)

    def _store(self, store: Store) -> None:
        pointer, position = self._place(store.buffer, store.position)
        dtype = store.buffer.type.dtype
        if stride(position, self.loop) != 1:
            self._scattered(store, pointer, position)
            return
        value, held = self.vector(store.value), self.rows.held.get(store)
        if held is None or self.number == self.rows.last:
            place = self._at(pointer, dtype, self.first(position))
        if store.combine is not None:
            if held is None:
                held = self._contiguous(place, dtype)
                held = self._truth(held) if dtype.kind == "b" else held
            value = self.operation(store.combine, dtype, [dtype, dtype], [held, value])
            if self.number < self.rows.last and self.rows.sums(store):
                self.rows.held[store] = value
                return
        memory, bytes_ = MEMORY[dtype.name], dtype.bytes
        kind = f"<{self.width} x {memory}>"
        if dtype.kind == "b":
            value = self.f.let(f"zext {self.kind(dtype)} {value} to {kind}")
        if not self.mask:
            self.f.line(f"store {kind} {value}, ptr {place}, align {bytes_}")
            return
        name = f"llvm.masked.store.v{self.width}{_SUFFIX[memory]}.p0"
        mask = f"<{self.width} x i1>"
        self.body.math.declare(name, f"declare void @{name}({kind}, ptr, i32 immarg, {mask})")
        self.f.line(f"call void @{name}({kind} {value}, ptr {place}, i32 {bytes_}, {mask} {self.mask})")

    def _scattered(self, store: Store, pointer: str, position: Node) -> None:
        """One lane after the other: places may coincide."""
        dtype, body = store.buffer.type.dtype, self.body
        value = self.vector(store.value)
        for k, index in enumerate(self._positions(position)):
            part, place = self._lane(value, dtype, k), self._at(pointer, dtype, index)
            if store.combine is not None:
                part = body.operation(store.combine, dtype, [dtype, dtype], [body.read(place, dtype), part])
            body.write(place, part, dtype)

    # -- checks ------------------------------------------------------------------------------------------------------
    def _fail(self, fail: Fail) -> None:
        """Stop at the first lane that fails."""
        f, mask = self.f, f"<{self.width} x i1>"
        ok = self.vector(fail.ok)
        if self.mask:
            others = f.let(f"xor {mask} {self.mask}, {self.constant(True, bool_)}")
            ok = f.let(f"or {mask} {ok}, {others}")
        values = [(node, self.vector(node) if node.scope is self.loop else "") for node in fail.values]
        name = f"llvm.vector.reduce.and.v{self.width}i1"
        self.body.math.declare(name, f"declare i1 @{name}({mask})")
        good, bad = f.new("ok"), f.new("bad")
        f.line(f"br i1 {f.let(f'call i1 @{name}({mask} {ok})')}, label {good}, label {bad}, !prof !1")
        f.block(bad)
        for k, (node, vector) in enumerate(values):
            found = self._of_the_first(ok, vector) if vector else self.body.name(node)
            f.line(f"store i64 {found}, ptr {f.let(f'getelementptr i64, ptr %ctx, i64 {k}')}")
        f.line(f"ret i32 {fail.number + 1}")
        f.block(good)

    def _of_the_first(self, ok: str, vector: str) -> str:
        """The integer of the first lane that is not ``ok``."""
        found = self._lane(vector, i64, self.width - 1)
        for k in range(self.width - 2, -1, -1):
            fine, own = self._lane(ok, bool_, k), self._lane(vector, i64, k)
            found = self.f.let(f"select i1 {fine}, i64 {found}, i64 {own}")
        return found


_SUFFIX: Mapping[str, str] = {"double": "f64", "float": "f32", "i64": "i64", "i8": "i8"}


def _operands(statement: Any) -> Sequence[Node]:
    match statement:
        case Node(args=args):
            return args
        case Store(value=value):
            return (value,)
        case Fail(ok=ok):
            return (ok,)
    return ()


__all__ = ["Lanes", "Rows", "masked", "unrolled", "width"]
