"""Loops, branches and tapes as LLVM text.

Note [Interrupts]
A loop asks now and then whether it should stop: every PERIOD trips it calls what the caller of the kernel has put into its
context. A ``for`` runs in strips of PERIOD trips, so that the loop itself has no test; a ``while`` counts down. The call
keeps all registers (``preserve_allcc``), so that nothing in the loop is spilled for its sake.

Note [Tapes in memory]
A tape is a pointer and the number of elements for which there is room: two words in the frame of the kernel's outermost
function, which frees every tape whatever the call's status is. A function keeps both in variables that become registers;
they change only in ``reserve``, whose cold path calls ``grow``. Memory doubles by ``realloc``, which moves large blocks by
their page tables and touches no page before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pullback.llvm.functions import HIDDEN, TYPES, FunctionText
from pullback.loops.nest import Accumulator, Buffer, Call, For, If, Loop, Reserve, Statement, Swap, Tape, While, statements

if TYPE_CHECKING:
    from pullback.llvm.body import Body

PERIOD = 1 << 16  # trips between two questions
SLOW = 1 << 10  # the same where a trip is a nest or a loop itself
INTERRUPTED = -1  # the status of a call that was asked to stop
CALLBACK = 2  # its place in the context

_POLL = f"""\
define internal preserve_allcc i32 @poll(ptr %ctx) noinline cold nounwind KEEPS {{
entry:
  %at = getelementptr i64, ptr %ctx, i64 {CALLBACK}
  %callback = load ptr, ptr %at
  %none = icmp eq ptr %callback, null
  br i1 %none, label %go, label %ask
ask:
  %answer = call i32 %callback(ptr %ctx)
  ret i32 %answer
go:
  ret i32 0
}}
"""

_TAPES = """\
declare ptr @malloc(i64)
declare ptr @realloc(ptr, i64)
declare void @free(ptr)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)
define internal preserve_allcc i32 @grow(ptr %tape, i64 %item, ptr %ctx) noinline cold nounwind KEEPS {
entry:
  %room.at = getelementptr i64, ptr %tape, i64 1
  %room = load i64, ptr %room.at
  %twice = shl i64 %room, 1
  %more = udiv i64 8192, %item
  %first = add i64 %more, 1
  %some = icmp ne i64 %room, 0
  %new = select i1 %some, i64 %twice, i64 %first
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %new, i64 %item)
  %bytes = extractvalue { i64, i1 } %product, 0
  %over = extractvalue { i64, i1 } %product, 1
  br i1 %over, label %much, label %ask
ask:
  %old = load ptr, ptr %tape
  %data = call ptr @realloc(ptr %old, i64 %bytes)
  %none = icmp eq ptr %data, null
  br i1 %none, label %fail, label %done
done:
  store ptr %data, ptr %tape
  store i64 %new, ptr %room.at
  ret i32 0
much:
  br label %fail
fail:
  %told = phi i64 [ %bytes, %ask ], [ 9223372036854775807, %much ]
  store i64 %told, ptr %ctx
  ret i32 1
}
define internal i32 @allot(ptr %tape, i64 %count, i64 %item, ptr %ctx) noinline nounwind {
entry:
  %room.at = getelementptr i64, ptr %tape, i64 1
  %room = load i64, ptr %room.at
  %fits = icmp sle i64 %count, %room
  br i1 %fits, label %there, label %compute
there:
  ret i32 0
compute:
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %item)
  %bytes = extractvalue { i64, i1 } %product, 0
  %over = extractvalue { i64, i1 } %product, 1
  br i1 %over, label %much, label %ask
ask:
  %old = load ptr, ptr %tape
  call void @free(ptr %old)
  store ptr null, ptr %tape
  store i64 0, ptr %room.at
  %data = call ptr @malloc(i64 %bytes)
  %none = icmp eq ptr %data, null
  br i1 %none, label %fail, label %done
done:
  store ptr %data, ptr %tape
  store i64 %count, ptr %room.at
  ret i32 0
much:
  br label %fail
fail:
  %told = phi i64 [ %bytes, %ask ], [ 9223372036854775807, %much ]
  store i64 %told, ptr %ctx
  ret i32 1
}
"""


def poll_function(features: str) -> str:
    return _POLL.replace("KEEPS", _keeps(features))


def tape_functions(features: str) -> str:
    return _TAPES.replace("KEEPS", _keeps(features))


def _keeps(features: str) -> str:
    """The attribute of a function that must not clear the upper halves of vector registers; see Note [Interrupts]."""
    return f'"target-features"="{features},-vzeroupper"'


def outermost(prefix: str, params: Sequence[str], tapes: Sequence[Tape]) -> str:
    """The kernel of a program with tapes. It frees them after everything, except those that are the caller's: what the caller
    sees of a tape is three words, its height and a copy of our two."""
    args = ", ".join(p.replace(" noalias", "") for p in params)
    own = sorted({t.buffer.number for t in tapes if t.source is None})
    words = 2 * (1 + max(t.buffer.number for t in tapes))
    lines = [
        f"define i32 @{prefix}({', '.join(params)}) nounwind {{",
        f"  %tapes = alloca [{words} x i64], align 16",
        f"  store [{words} x i64] zeroinitializer, ptr %tapes",
    ]

    def move(number: int, outside: str, inward: bool) -> None:
        lines.append(f"  %slot{number} = getelementptr ptr, ptr {outside}")
        lines.append(f"  %cells{number} = load ptr, ptr %slot{number}")
        for k in (0, 1):
            lines.append(f"  %mine{number}.{k} = getelementptr i64, ptr %tapes, i64 {2 * number + k}")
            lines.append(f"  %yours{number}.{k} = getelementptr i64, ptr %cells{number}, i64 {1 + k}")
            source, target = (f"%yours{number}.{k}", f"%mine{number}.{k}")[:: 1 if inward else -1]
            lines.append(f"  %word{number}.{k} = load i64, ptr {source}")
            lines.append(f"  store i64 %word{number}.{k}, ptr {target}")

    for tape in tapes:
        if tape.source is not None:
            move(tape.buffer.number, f"%inputs, i64 {tape.source}", True)
    lines.append(f"  %status = call i32 @{prefix}_run({args}, ptr %tapes)")
    lines.append("  %good = icmp eq i32 %status, 0")
    lines.append("  br i1 %good, label %give, label %free")
    lines.append("give:")
    for tape in tapes:
        if tape.result is not None:
            move(tape.buffer.number, f"%outputs, i64 {tape.result}", False)
            lines.append(f"  store ptr null, ptr %mine{tape.buffer.number}.0")
    lines.append("  br label %free")
    lines.append("free:")
    for k in own:
        lines.append(f"  %at{k} = getelementptr i64, ptr %tapes, i64 {2 * k}")
        lines.append(f"  %data{k} = load ptr, ptr %at{k}")
        lines.append(f"  call void @free(ptr %data{k})")
    return "\n".join([*lines, "  ret i32 %status", "}", ""])


def descriptor(f: FunctionText, buffer: Buffer) -> str:
    return f.at_entry(f"getelementptr i64, ptr %tapes, i64 {2 * buffer.number}")


# -- loops --------------------------------------------------------------------------------------------------------------
def _period(body: list[Statement]) -> int:
    return SLOW if any(isinstance(s, (Loop, Call, For, While)) for s in statements(body)) else PERIOD


def for_loop(body: Body, loop: For) -> None:
    f, high = body.f, body.name(loop.bound)
    kinds = [TYPES[a.start.dtype.name] for a in loop.carried]
    carried = [(kind, body.name(a.start)) for kind, a in zip(kinds, loop.carried, strict=True)]
    period = _period(loop.body.body)

    def trip(index: str, values: list[str]) -> list[str]:
        body.names[loop.index] = index
        return _trip(body, loop.carried, values, loop.body.body)

    few = loop.bound.kind == "const" and loop.bound.data <= period
    found = f.counted("0", high, carried, trip) if few else _strips(f, high, carried, trip, period)
    _name_totals(body, loop.carried, found)


def _trip(body: Body, carried: list[Accumulator], values: list[str], statements: list[Statement]) -> list[str]:
    for accumulator, value in zip(carried, values, strict=True):
        body.names[accumulator.current] = value
    body.statements(statements)
    following = []
    for accumulator in carried:
        assert accumulator.value is not None
        following.append(body.name(accumulator.value))
    return following


def _name_totals(body: Body, carried: list[Accumulator], values: list[str]) -> None:
    for accumulator, value in zip(carried, values, strict=True):
        body.names[accumulator.total] = value


def _strips(
    f: FunctionText, high: str, carried: list[tuple[str, str]], trip: Callable[[str, list[str]], list[str]], period: int
) -> list[str]:
    """``for i in 0..high`` in strips; see Note [Interrupts]."""
    strip, head, turn, ask, stop, after = (f.new(name) for name in ("strip", "loop", "turn", "ask", "stop", "after"))
    before, some = f.label, f.let(f"icmp sgt i64 {high}, 0")
    f.line(f"br i1 {some}, label {strip}, label {after}")
    low, end, index, following = f.new("low"), f.new("end"), f.new("i"), f.new("next")
    outer, inner = [f.new("out") for _ in carried], [f.new("acc") for _ in carried]
    f.block(strip)
    first = len(f.lines)
    f.lines.extend([""] * (1 + len(carried)))
    left = f.let(f"sub nsw i64 {high}, {low}")
    least = f.let(f"icmp slt i64 {left}, {period}")
    f.line(f"{end} = add nsw i64 {low}, {f.let(f'select i1 {least}, i64 {left}, i64 {period}')}")
    f.line(f"br label {head}")
    f.block(head)
    second = len(f.lines)
    f.lines.extend([""] * (1 + len(carried)))
    values = trip(index, inner)
    latch = f.label
    f.line(f"{following} = {HIDDEN.format(f.let(f'add nuw nsw i64 {index}, 1'))}")
    f.line(f"br i1 {f.let(f'icmp eq i64 {following}, {end}')}, label {turn}, label {head}")
    f.block(turn)
    f.line(f"br i1 {f.let(f'icmp eq i64 {end}, {high}')}, label {after}, label {ask}")
    poll(f, ask, strip, stop)
    f.block(after)
    totals = []
    f.lines[first] = f"  {low} = phi i64 [ 0, %{before} ], [ {end}, {ask} ]"
    f.lines[second] = f"  {index} = phi i64 [ {low}, {strip} ], [ {following}, %{latch} ]"
    for k, ((kind, start), value) in enumerate(zip(carried, values, strict=True), start=1):
        f.lines[first + k] = f"  {outer[k - 1]} = phi {kind} [ {start}, %{before} ], [ {value}, {ask} ]"
        f.lines[second + k] = f"  {inner[k - 1]} = phi {kind} [ {outer[k - 1]}, {strip} ], [ {value}, %{latch} ]"
        totals.append(f.let(f"phi {kind} [ {start}, %{before} ], [ {value}, {turn} ]"))
    return totals


def poll(f: FunctionText, ask: str, go: str, stop: str) -> None:
    """The block ``ask``: on to ``go`` unless the call shall stop."""
    f.block(ask)
    answer = f.let("call preserve_allcc i32 @poll(ptr %ctx)")
    f.line(f"br i1 {f.let(f'icmp eq i32 {answer}, 0')}, label {go}, label {stop}, !prof !1")
    f.block(stop)
    f.line(f"ret i32 {INTERRUPTED}")


def while_loop(body: Body, loop: While) -> None:
    f = body.f
    head, inside, latch, ask, stop, after = (f.new(name) for name in ("while", "do", "latch", "ask", "stop", "after"))
    starts = [body.name(a.start) for a in loop.carried]
    before = f.label
    f.line(f"br label {head}")
    f.block(head)
    count, less, current = f.new("count"), f.new("less"), [f.new("acc") for _ in loop.carried]
    first = len(f.lines)
    f.lines.extend([""] * (1 + len(starts)))
    for accumulator, name in zip(loop.carried, current, strict=True):
        body.names[accumulator.current] = name
    body.statements(loop.condition.body)
    assert loop.test is not None
    f.line(f"br i1 {body.name(loop.test)}, label {inside}, label {after}")
    f.block(inside)
    values = _trip(body, loop.carried, current, loop.body.body)
    f.line(f"br label {latch}")
    f.block(latch)
    period = _period(loop.condition.body + loop.body.body)
    f.line(f"{less} = add nsw i64 {count}, -1")
    f.line(f"br i1 {f.let(f'icmp ne i64 {less}, 0')}, label {head}, label {ask}, !prof !1")
    poll(f, ask, head, stop)
    f.block(after)
    f.lines[first] = f"  {count} = phi i64 [ {period}, %{before} ], [ {less}, {latch} ], [ {period}, {ask} ]"
    for k, (accumulator, start, value) in enumerate(zip(loop.carried, starts, values, strict=True), start=1):
        kind = TYPES[accumulator.start.dtype.name]
        sources = f"[ {start}, %{before} ], [ {value}, {latch} ], [ {value}, {ask} ]"
        f.lines[first + k] = f"  {current[k - 1]} = phi {kind} {sources}"
    _name_totals(body, loop.carried, current)


# -- branches -----------------------------------------------------------------------------------------------------------
def branch(body: Body, choice: If) -> None:
    f = body.f
    then, other, join = f.new("then"), f.new("else"), f.new("join")
    f.line(f"br i1 {body.name(choice.test)}, label {then}, label {other}")
    ends = []
    for label, region in ((then, choice.then), (other, choice.other)):
        f.block(label)
        body.statements(region.body)
        values = [body.name(c.then if label is then else c.other) for c in choice.choices]
        ends.append((f.label, values))
        f.line(f"br label {join}")
    f.block(join)
    for k, c in enumerate(choice.choices):
        sources = ", ".join(f"[ {values[k]}, %{label} ]" for label, values in ends)
        body.names[c.total] = f.let(f"phi {TYPES[c.total.dtype.name]} {sources}")


# -- memory -------------------------------------------------------------------------------------------------------------
def swap(body: Body, exchange: Swap) -> None:
    f = body.f
    pointers = [body.pointer(b) for b in exchange.source]
    for buffer, pointer in zip(exchange.into, pointers, strict=True):
        f.line(f"store ptr {pointer}, ptr {body.cell(buffer)}")


def reserve(body: Body, step: Reserve) -> None:
    """See Note [Tapes in memory]."""
    f, buffer, height = body.f, step.tape.buffer, body.name(step.height)
    kind = buffer.type
    size = kind.size * kind.dtype.bytes
    item = f.size(size) if isinstance(size, int) and size else f.let(f"call i64 @llvm.umax.i64(i64 {f.size(size)}, i64 1)")
    body.math.declare("llvm.umax.i64", "declare i64 @llvm.umax.i64(i64, i64)")
    place, cell, room = descriptor(f, buffer), body.cell(buffer), body.room(buffer)
    full, bad, new, ok = (f.new(name) for name in ("full", "bad", "new", "ok"))
    if step.tape.bounded:
        status = f.let(f"call i32 @allot(ptr {place}, i64 {height}, i64 {item}, ptr %ctx)")
    else:
        enough = f.let(f"icmp ult i64 {height}, {f.let(f'load i64, ptr {room}')}")
        f.line(f"br i1 {enough}, label {ok}, label {full}, !prof !1")
        f.block(full)
        status = f.let(f"call preserve_allcc i32 @grow(ptr {place}, i64 {item}, ptr %ctx)")
    f.line(f"br i1 {f.let(f'icmp eq i32 {status}, 0')}, label {new}, label {bad}, !prof !1")
    f.block(bad)
    f.line(f"ret i32 {step.number + 1}")
    f.block(new)
    f.line(f"store ptr {f.let(f'load ptr, ptr {place}')}, ptr {cell}")
    count = f.let(f"getelementptr i64, ptr {place}, i64 1")
    f.line(f"store i64 {f.let(f'load i64, ptr {count}')}, ptr {room}")
    f.line(f"br label {ok}")
    f.block(ok)
