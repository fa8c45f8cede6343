"""Straight-line code, of which there can be very much: written with few steps, and its calls of functions several at a time.

Note [Calls side by side]
Most of the time of long straight-line code goes into calls of sin, exp and the like. Those of one function that do not depend
on each other are done by one call for ``LANES`` arguments, which takes little longer than one for a single argument, and gives
the same bits. To find them, statements are ordered by how many calls they have to wait for; between two stores or checks any
order in which operands come first will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.ops.base import Libm
from pullback.llvm.body import Body
from pullback.llvm.functions import TYPES, literal
from pullback.llvm.pieces import operands
from pullback.llvm.vecmath_library import OWN
from pullback.loops.nest import Node

LANES = 4


@dataclass(frozen=True, slots=True)
class Together:
    """Two to ``LANES`` calls of one function."""

    nodes: Sequence[Node]


def is_call(node: Node) -> bool:
    """Whether a node is a call of a function that there is for several arguments."""
    lower = node.data.lower if node.kind == "op" else None
    return isinstance(lower, Libm) and lower.name in OWN


def side_by_side(body: Sequence[Any]) -> list[Any]:
    """The statements in an order in which calls stand together."""
    found: list[Any] = []
    run: list[Node] = []
    for statement in body:
        if isinstance(statement, Node):
            run.append(statement)
        else:
            found += _together(run)
            found.append(statement)
            run = []
    return found + _together(run)


def _together(run: list[Node]) -> list[Any]:
    calls = set(filter(is_call, run))
    if len(calls) < 2:
        return run
    waits: dict[Node, int] = {}  # how many calls come before, one after the other
    plain: list[list[Node]] = []
    called: list[dict[Any, list[Node]]] = []
    for node in run:
        level = 0
        for arg in node.args:
            if arg in waits:
                level = max(level, waits[arg] + (arg in calls))
        waits[node] = level
        if level == len(plain):
            plain.append([])
            called.append({})
        if node in calls:
            called[level].setdefault((node.data, node.dtype), []).append(node)
        else:
            plain[level].append(node)
    found: list[Any] = []
    for nodes, groups in zip(plain, called, strict=True):
        found += nodes
        for group in groups.values():
            for k in range(0, len(group), LANES):
                part = group[k : k + LANES]
                found.append(Together(part) if len(part) > 1 else part[0])
    return found


class Straight(Body):
    """Statements without loops. What other functions need is stored as soon as it is known, and what they made is loaded where
    it is needed first. ``hasty``: the code is translated instruction by instruction, without looking for better places."""

    def __init__(self, *args: Any, hasty: bool = False) -> None:
        super().__init__(*args)
        self._forms: dict[Any, str | None] = {}
        self._hasty = hasty
        self._count = 0
        self._room = ""

    def statements(self, body: list[Any]) -> None:
        names, slots, lines = self.names, self.emitter.slots, self.f.lines
        for statement in side_by_side(body):
            if isinstance(statement, Together):
                self._call(statement.nodes)
                continue
            if not isinstance(statement, Node):
                for node in operands(statement):  # loaded before a check splits the code
                    self.name(node)
                super().statements([statement])
                continue
            form = self._form(statement) if statement.kind == "op" else None
            if form is None:
                names[statement] = self._node(statement)
                if statement in slots:
                    self.keep(statement, slots[statement])
                continue
            given = [names.get(a) or self.name(a) for a in statement.args]
            self._count += 1
            name = names[statement] = f"%a{self._count}"
            lines.append(f"  {name} = {form.format(*given)}")
            if statement in slots:
                kind, slot = TYPES[statement.dtype.name], slots[statement]
                lines.append(f"  {name}p = getelementptr i64, ptr %frame, i64 {slot}\n  store {kind} {name}, ptr {name}p")

    def _form(self, node: Node) -> str | None:
        """The text of an operation with places for its operands; None for what takes more than one line."""
        kinds = [a.dtype for a in node.args]
        key = (node.data, kinds[0], kinds[-1])
        if key not in self._forms:
            lines = self.f.lines
            self.f.lines = []
            self.operation(node.data, node.dtype, kinds, [f"{{{k}}}" for k in range(len(kinds))])
            text = self.f.lines[0].partition(" = ")[2] if len(self.f.lines) == 1 else None
            self.f.lines = lines
            self._forms[key] = text
        return self._forms[key]

    def name(self, node: Node) -> str:
        found = self.names.get(node)
        if found is None:
            if node.kind == "size":
                return super().name(node)
            if node.kind == "const":
                found = literal(node.data, node.dtype)
            else:
                self._count += 1
                found, slot = f"%a{self._count}", self.emitter.slots[node]
                self.f.line(f"{found}p = getelementptr i64, ptr %frame, i64 {slot}")
                self.f.line(f"{found} = load {TYPES[node.dtype.name]}, ptr {found}p")
            self.names[node] = found
        return found

    def _call(self, nodes: Sequence[Node]) -> None:
        f, kind = self.f, TYPES[nodes[0].dtype.name]
        columns = []
        for column in zip(*(node.args for node in nodes), strict=True):
            names = [self.name(a) for a in column]
            columns.append(names + names[:1] * (LANES - len(names)))  # the first once more where there is none
        results = self._scattered(nodes, kind, columns) if self._hasty else self._vector(nodes, kind, columns)
        for node, result in zip(nodes, results, strict=False):
            self.names[node] = f.let(result)
            if node in self.emitter.slots:
                self.keep(node, self.emitter.slots[node])

    def _vector(self, nodes: Sequence[Node], kind: str, columns: list[list[str]]) -> list[str]:
        f, vectors = self.f, []
        for names in columns:
            total = "poison"
            for k, name in enumerate(names):
                total = f.let(f"insertelement <{LANES} x {kind}> {total}, {kind} {name}, i64 {k}")
            vectors.append(total)
        result = f.let(self.math.linked_call(nodes[0].data.lower.name, kind, LANES, vectors))
        return [f"extractelement <{LANES} x {kind}> {result}, i64 {k}" for k in range(LANES)]

    def _scattered(self, nodes: Sequence[Node], kind: str, columns: list[list[str]]) -> list[str]:
        f = self.f
        self._room = self._room or f.at_entry(f"alloca [{LANES} x double]")
        f.line(self.math.scattered_call(nodes[0].data.lower.name, kind, LANES, columns, self._room))
        places = [f.let(f"getelementptr {kind}, ptr {self._room}, i64 {k}") for k in range(len(nodes))]
        return [f"load {kind}, ptr {place}" for place in places]


__all__ = ["LANES", "Straight", "side_by_side"]
