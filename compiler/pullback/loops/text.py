"""The loop-nest IR as text, for people. Every copy of an array is marked; ``swap`` exchanges pointers."""

from __future__ import annotations

from pullback.loops.nest import (
    Accumulator,
    Buffer,
    Call,
    Define,
    Fail,
    For,
    If,
    Loop,
    Node,
    Program,
    Reserve,
    Statement,
    Store,
    Swap,
    While,
)


def print_program(program: Program) -> str:
    return _Printer(program).run()


class _Printer:
    def __init__(self, program: Program):
        self.program = program
        self.names: dict[Node, str] = {}
        self.lines: list[str] = []

    def run(self) -> str:
        p = self.program
        self.lines.append(
            f"kernel {p.name}({', '.join(str(v.type) for v in p.params)}) -> ({', '.join(map(str, p.result_types))})"
        )
        for k, size in enumerate(p.regions):
            self.lines.append(f"  region{k}: {size} bytes")
        self._body(p.body, "  ")
        results = [_buffer(r) if isinstance(r, Buffer) else self.name(r) for r in p.results]
        self.lines.append(f"  return {', '.join(results)}")
        return "\n".join(self.lines) + "\n"

    def name(self, node: Node) -> str:
        if node.kind in ("const", "size"):
            return str(node.data)
        found = self.names.get(node)
        if found is None:
            letter = "i" if node.kind == "index" else "%"
            found = self.names[node] = f"{letter}{len(self.names)}"
        return found

    def _body(self, body: list[Statement], indent: str) -> None:
        for statement in body:
            self._statement(statement, indent)

    def _statement(self, statement: Statement, indent: str) -> None:
        match statement:
            case Node():
                self.lines.append(f"{indent}{self.name(statement)} = {self._value(statement)}")
            case Store(buffer=buffer, position=position, value=value, combine=combine):
                sign = f" {combine.name}= " if combine else " = "
                self.lines.append(f"{indent}{_buffer(buffer)}[{self.name(position)}]{sign}{self.name(value)}")
            case Fail(ok=ok, number=number):
                self.lines.append(f"{indent}unless {self.name(ok)}: fail {self.program.messages[number].text!r}")
            case Define(symbol=symbol, value=value):
                self.lines.append(f"{indent}size {symbol} = {self.name(value)}")
            case Call(name=name, out=out, args=args, sizes=sizes, attrs=attrs):
                operands = ", ".join(f"{_buffer(a.buffer)}{list(map(str, a.strides))}" for a in args)
                options = "".join(f", {key}" for key, value in attrs.items() if value)
                self.lines.append(f"{indent}{_buffer(out)} = {name}({operands}; {', '.join(map(str, sizes))}{options})")
            case Reserve(tape=tape, height=height):
                what = "room for" if tape.bounded else "room above"
                self.lines.append(f"{indent}{_buffer(tape.buffer)}: {what} {self.name(height)}")
            case Swap(into=into, source=source):
                self.lines.append(f"{indent}{', '.join(map(_buffer, into))} = swap {', '.join(map(_buffer, source))}")
            case Loop():
                self._loop(statement, indent)
            case For() | While() | If():
                self._control(statement, indent)

    def _control(self, statement: For | While | If, indent: str) -> None:
        inner = indent + "  "
        match statement:
            case For(bound=bound, index=index, carried=carried, body=body):
                self.lines.append(f"{indent}trips {self.name(index)} < {self.name(bound)}:{self._carry(carried)}")
                self._body(body.body, inner)
                self._totals(carried, indent)
            case While(carried=carried, condition=condition, body=body, test=test):
                assert test is not None
                self.lines.append(f"{indent}while:{self._carry(carried)}")
                self._body(condition.body, inner)
                self.lines.append(f"{inner}stop unless {self.name(test)}")
                self._body(body.body, inner)
                self._totals(carried, indent)
            case If(test=test, then=then, other=other, choices=choices):
                assert test is not None
                self.lines.append(f"{indent}if {self.name(test)}:")
                self._body(then.body, inner)
                self.lines.append(f"{indent}else:")
                self._body(other.body, inner)
                for c in choices:
                    self.lines.append(f"{indent}{self.name(c.total)} = {self.name(c.then)} or {self.name(c.other)}")

    def _carry(self, carried: list[Accumulator]) -> str:
        return "".join(f" {self.name(c.current)} from {self.name(c.start)}" for c in carried)

    def _totals(self, carried: list[Accumulator], indent: str) -> None:
        for c in carried:
            assert c.value is not None
            self.lines.append(f"{indent}{self.name(c.total)} = last of {self.name(c.value)}")

    def _loop(self, loop: Loop, indent: str) -> None:
        assert loop.index is not None
        note = f"  # {loop.note}" if loop.note else ""
        extent = self.name(loop.extent) if isinstance(loop.extent, Node) else loop.extent
        note += "  # in any order" if loop.shared else ""
        low = f" = {self.name(loop.low)} + trip" if loop.low is not None else ""
        self.lines.append(f"{indent}for {self.name(loop.index)}{low} < {extent}:{note}")
        for carried in loop.accumulators:
            if carried.combine is None:
                self.lines.append(f"{indent}  carry {self.name(carried.current)} from {self.name(carried.start)}")
        self._body(loop.body, indent + "  ")
        for carried in loop.accumulators:
            assert carried.value is not None
            how = carried.combine.name if carried.combine else "last"
            self.lines.append(f"{indent}{self.name(carried.total)} = {how} of {self.name(carried.value)}")

    def _value(self, node: Node) -> str:
        args = ", ".join(self.name(a) for a in node.args)
        if node.kind == "load":
            return f"{_buffer(node.data)}[{args}]"
        if node.kind == "param":
            return f"input{node.data}"
        return f"{node.data.name if node.kind == 'op' else node.data} {args}"


def _buffer(buffer: Buffer) -> str:
    return f"{buffer.place}{buffer.number}"
