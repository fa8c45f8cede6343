"""The function that CPython calls, built as machine code: from Python's objects to a kernel and back without Python.

Note [The direct call]
One piece of code serves every compiled function. What it has to do for one kind of call (this many arguments, of these types)
is a table of words, an *entry*, which ``pullback_runtime.direct`` makes and whose numbers are named there. The callable's
``self`` is ``(slow, entries, state)``: entries are tried in order, and where none fits, or the kernel fails, ``slow`` is
called with the arguments as they came. So this code converts nothing and says nothing: it only recognises what needs neither.

Matching runs no Python code, so nothing changes under it. What is found within containers is held, since another thread may
take it out of them while the kernel runs without the interpreter's lock. The entry itself is held too: allocating an array may
run the collector, and that anything, also what replaces the entry.

Everything that belongs to one process (types, element types, functions of NumPy's) stands in the entries; the places of
fields are numbers in this text. Object code is therefore as good in another process.

Note [The interpreter's lock]
It is given away before the kernel starts where there are many bytes to work on, and in kernels with loops at their first
question whether to stop (see Note [Interrupts] in ``control.py``): short loops never pay for it. ``poll`` is what they ask: it
takes the lock, lets pending signal handlers run, and gives the lock away. What a handler raises is left where Python looks
for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.llvm.callable_text import Code
from pullback_runtime import direct
from pullback_runtime.direct import MOST, Axis, Build, Guard, Match, Result, Size, Where, Word

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout

NAME = "pullback_call"
TABLE = "pullback_calls"  # of the addresses of both functions that Python gets
INTERRUPTED = -1  # a kernel's status
MISS = "inttoptr (i64 1 to ptr)"  # what ``serve`` gives where the slow path has to be taken
NEAR = 4096  # bytes of workspace that fit the stack
ALIGN = 64

# Words of a call's own memory, on the stack.
HELD, BYTES, SPANS, BAD = range(4)
INPUTS = 8
CELLS, OUTPUTS, RESULTS, MADE, GIVEN, HOLDS, SIZES = (INPUTS + k * MOST for k in range(1, 8))
RANGES = SIZES + MOST
DIMS = RANGES + 3 * MOST
CAPTURED = DIMS + 64
STATE = CAPTURED + MOST

_DECLARED = """\
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyTuple_New(i64)
declare ptr @PyList_New(i64)
declare ptr @PyDict_New()
declare i32 @PyDict_SetItem(ptr, ptr, ptr)
declare ptr @PyObject_GetAttrString(ptr, ptr)
declare ptr @PyDict_GetItemWithError(ptr, ptr)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)
declare ptr @PyObject_Call(ptr, ptr, ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @PyObject_CallFunctionObjArgs(ptr, ...)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
declare i32 @PyErr_CheckSignals()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)
"""

_EXPORTED = f"""\
@PyCFunction_Type = external global i8
@name = internal constant [9 x i8] c"__call__\\00"
@{TABLE} = constant [2 x ptr] [ptr @{NAME}, ptr @called]
"""


def text(layout: Layout) -> str:
    """The module, for objects that look as ``layout`` says."""
    writers = (_size, _hold, _match, _poll, _build, _give_up, _serve, _fallback, _call, _called)
    return _DECLARED + "\n".join(write(layout) for write in writers) + "\n" + _EXPORTED


def address(layout: Layout, take_time: bool) -> tuple[int, int] | None:
    """The callable's code and that of ``_called``, linked once in this process and never removed; None if it would have to be
    compiled, which takes 60 ms, and may not be."""
    from pullback.llvm import engine, store

    source = text(layout)

    def make() -> bytes:
        if not take_time:
            raise _Absent
        return engine.Module(source, 1).object()

    try:
        image = store.object_code(("callable", source), make)
    except _Absent:
        return None
    linked = engine.Linked([image], TABLE)
    _kept.append(linked)
    call, called = (ctypes.c_uint64 * 2).from_address(linked.address)
    return call, called


def size_guards(guards: Sequence[Any], symbols: Sequence[str]) -> list[Any] | None:
    """Guards over lengths as plain data, over the numbers of ``symbols``; None if they speak of other symbols."""
    from pullback.llvm.compile import polynomial  # which loads the IR

    numbers = {name: k for k, name in enumerate(symbols)}
    try:
        return [(g.relation, polynomial(g.left, numbers), polynomial(g.right, numbers), g.outcome) for g in guards]
    except KeyError:
        return None


class _Absent(Exception):
    pass


_kept: list[Any] = []


# -- what is needed everywhere ----------------------------------------------------------------------------------------
def _next_rows(c: Code, pc: str, at: str, count: str | int) -> None:
    """Move the cursor in ``pc`` behind ``count`` words."""
    c.store(c.at(at, count), pc, kind="ptr")


def _size(layout: Layout) -> str:
    """A length or a number of bytes: a constant, a symbol, or a polynomial written backwards. Division by 0 marks the call as
    bad."""
    c = Code("define internal i64 @size(ptr %s, ptr %words, i64 %op, i64 %value)")
    with c.when(c.test("eq", "%op", Size.FIXED)):
        c.give("i64 %value")
    sizes = c.at("%s", SIZES)
    with c.when(c.test("eq", "%op", Size.SYMBOL)):
        c.give(f"i64 {c.load(sizes, '%value')}")
    stack, top, pc = c.room(direct.DEPTH), c.room(1), c.room(1, item="ptr")
    c.store(0, top)
    c.store(c.at("%words", "%value"), pc, kind="ptr")
    head = c.name("head")
    c.do(f"br label {head}")
    c.block(head)
    at = c.load(pc, kind="ptr")
    op, value = c.load(at), c.load(at, 1)
    _next_rows(c, pc, at, 2)
    count = c.load(top)
    with c.when(c.test("eq", op, Size.END)):
        c.give(f"i64 {c.load(stack)}")
    with c.when(c.test("sle", op, Size.SYMBOL)):
        fixed = c.test("eq", op, Size.FIXED)
        symbol = c.let(f"select i1 {fixed}, i64 0, i64 {value}")
        pushed = c.let(f"select i1 {fixed}, i64 {value}, i64 {c.load(sizes, symbol)}")
        c.store(pushed, stack, count)
        c.store(c.let(f"add i64 {count}, 1"), top)
        c.go(head)
    under = c.let(f"sub i64 {count}, 2")
    a, b = c.load(stack, under), c.load(stack, c.let(f"sub i64 {count}, 1"))
    c.store(c.let(f"sub i64 {count}, 1"), top)
    with c.choice(op, (Size.ADD, Size.MUL, Size.DIV)) as choice:
        with choice.case(Size.ADD):
            c.store(c.let(f"add i64 {a}, {b}"), stack, under)
        with choice.case(Size.MUL):
            c.store(c.let(f"mul i64 {a}, {b}"), stack, under)
        with choice.case(Size.DIV):
            with c.when(c.test("sle", b, 0)):
                c.store(1, "%s", BAD)
                c.give("i64 0")
            quotient, rest = c.let(f"sdiv i64 {a}, {b}"), c.let(f"srem i64 {a}, {b}")
            down = c.let(f"sext i1 {c.test('slt', rest, 0)} to i64")
            c.store(c.let(f"add i64 {quotient}, {down}"), stack, under)
    c.go(head)
    return c.text()


def _hold(layout: Layout) -> str:
    """Keep what was found within a container until the call is over; false if there is no room for more."""
    c = Code("define internal i1 @hold(ptr %s, ptr %thing)")
    count = c.load("%s", HELD)
    with c.when(c.test("sge", count, MOST)):
        c.give("i1 false")
    c.do("call void @Py_IncRef(ptr %thing)")
    c.store("%thing", c.at("%s", HOLDS), count, "ptr")
    c.store(c.let(f"add i64 {count}, 1"), "%s", HELD)
    c.give("i1 true")
    return c.text()


# -- in -----------------------------------------------------------------------------------------------------------------
def _match(layout: Layout) -> str:
    """Compare objects with the rows of a pattern; where the next row is, or null where something does not fit."""
    c = Code("define internal ptr @match(ptr %s, ptr %objects, i64 %n, ptr %from, i1 %inside)")
    fail = c.name("fail")
    pc = c.room(1, item="ptr")
    c.store("%from", pc, kind="ptr")
    with c.loop("%n") as k:
        thing = c.load("%objects", k, "ptr")
        at = c.load(pc, kind="ptr")
        op = c.load(at)
        kinds = (Match.ARRAY, Match.PLACE, Match.SAME, Match.SINGLE, Match.INTEGER, Match.BOOLEAN, Match.ITEMS, Match.DICT)
        plain = c.test("eq", op, Match.SAME)
        expected, row = c.load(at, 1, "ptr"), at
        mark = c.let(f"select i1 {plain}, ptr {thing}, ptr {c.field(thing, layout.type)}")
        c.unless(c.test("eq", mark, expected, "ptr"), fail)
        with c.when("%inside"):
            c.unless(c.let(f"call i1 @hold(ptr %s, ptr {thing})"), fail)
        with c.choice(op, kinds) as choice:
            with choice.case(Match.ARRAY):
                _array(c, layout, thing, row, pc, fail)
            with choice.case(Match.PLACE):  # a number whose bits are used where they are
                c.store(c.byte(thing, layout.header), c.at("%s", INPUTS), c.load(row, 2), "ptr")
                _next_rows(c, pc, row, 3)
            with choice.case(Match.SAME):
                _next_rows(c, pc, row, 2)
            with choice.case(Match.SINGLE):
                number = c.let(f"fptrunc double {c.field(thing, layout.header, 'double')} to float")
                c.store(number, _cell(c, c.load(row, 2)), kind="float")
                _next_rows(c, pc, row, 3)
            with choice.case(Match.INTEGER):
                _integer(c, thing, row, fail)
                _next_rows(c, pc, row, 4)
            with choice.case(Match.BOOLEAN):
                true = c.test("eq", thing, c.load(row, 3, "ptr"), "ptr")
                c.store(c.let(f"zext i1 {true} to i8"), _cell(c, c.load(row, 2)), kind="i8")
                _next_rows(c, pc, row, 4)
            with choice.case(Match.ITEMS):
                count = c.load(row, 2)
                c.unless(c.test("eq", c.field(thing, layout.header, "i64"), count), fail)
                there = c.byte(thing, layout.items)
                inner = c.load(row, 3)  # a list has a pointer to its items, a tuple the items themselves
                pointed = c.room(1, item="ptr")
                c.store(there, pointed, kind="ptr")
                with c.when(c.test("ne", inner, 0)):
                    c.store(c.load(there, kind="ptr"), pointed, kind="ptr")
                begin = c.load(pointed, kind="ptr")
                after = c.let(f"call ptr @match(ptr %s, ptr {begin}, i64 {count}, ptr {c.at(row, 4)}, i1 true)")
                c.unless(c.test("ne", after, "null", "ptr"), fail)
                c.store(after, pc, kind="ptr")
            with choice.case(Match.DICT):
                _dict(c, thing, row, pc, fail)
    c.give(f"ptr {c.load(pc, kind='ptr')}")
    c.block(fail)
    c.give("ptr null")
    return c.text()


def _cell(c: Code, number: str) -> str:
    """The cell of input ``number``, which becomes where the kernel finds it."""
    cell = c.at(c.at("%s", CELLS), number)
    c.store(cell, c.at("%s", INPUTS), number, "ptr")
    return cell


def _integer(c: Code, thing: str, row: str, fail: str) -> None:
    over = c.room(1, item="i32")
    value = c.let(f"call i64 @PyLong_AsLongLongAndOverflow(ptr {thing}, ptr {over})")
    c.unless(c.test("eq", c.load(over, kind="i32"), 0, "i32"), fail)
    cell = _cell(c, c.load(row, 2))
    c.store(value, cell)
    with c.when(c.test("ne", c.load(row, 3), 0)):
        c.store(c.let(f"sitofp i64 {value} to double"), cell, kind="double")


def _array(c: Code, layout: Layout, thing: str, row: str, pc: str, fail: str) -> None:
    """Row: type, element type, flags, rank, bytes of an element, number of the input (or of the result it receives, and then
    not -1), axes."""
    c.unless(c.test("eq", c.field(thing, layout.descr), c.load(row, 2, "ptr"), "ptr"), fail)
    flags = c.let(f"sext i32 {c.field(thing, layout.flags, 'i32')} to i64")
    wanted = c.load(row, 3)
    c.unless(c.test("eq", c.let(f"and i64 {flags}, {wanted}"), wanted), fail)
    rank = c.load(row, 4)
    c.unless(c.test("eq", c.let(f"sext i32 {c.field(thing, layout.rank, 'i32')} to i64"), rank), fail)
    shape, total = c.field(thing, layout.shape), c.room(1)
    c.store(c.load(row, 5), total)
    axes = c.at(row, 8)
    with c.loop(rank) as j:
        length = c.load(shape, j)
        axis = c.at(axes, c.let(f"mul i64 {j}, 3"))
        op, a = c.load(axis), c.load(axis, 1)
        sizes = c.at("%s", SIZES)
        with c.choice(op, (Axis.FIXED, Axis.BIND, Axis.SAME, Axis.EXACT)) as choice:
            with choice.case(Axis.FIXED):
                c.unless(c.test("eq", length, a), fail)
            with choice.case(Axis.BIND):
                c.unless(c.test("sge", length, c.load(axis, 2)), fail)
                c.store(length, sizes, a)
            with choice.case(Axis.EXACT):
                c.unless(c.test("eq", length, c.load(axis, 2)), fail)
                c.store(length, sizes, a)
            with choice.case(Axis.SAME):
                c.unless(c.test("eq", length, c.load(sizes, a)), fail)
        c.store(c.let(f"mul i64 {c.load(total)}, {length}"), total)
    data, size = c.field(thing, layout.data), c.load(total)
    target, given = c.load(row, 6), c.load(row, 7)
    with c.when(c.test("sge", target, 0)):
        c.store(data, c.at("%s", INPUTS), target, "ptr")
    with c.when(c.test("sge", given, 0)):
        c.store(thing, c.at("%s", GIVEN), given, "ptr")
    c.store(c.let(f"add i64 {c.load('%s', BYTES)}, {size}"), "%s", BYTES)
    count = c.load("%s", SPANS)
    span = c.at(c.at("%s", RANGES), c.let(f"mul i64 {count}, 3"))
    c.store(data, span, kind="ptr")
    c.store(c.byte(data, size), span, 1, "ptr")
    c.store(given, span, 2)
    c.store(c.let(f"add i64 {count}, 1"), "%s", SPANS)
    c.store(c.at(axes, c.let(f"mul i64 {rank}, 3")), pc, kind="ptr")


def _dict(c: Code, thing: str, row: str, pc: str, fail: str) -> None:
    """Row: type, count, keys, and behind them the rows of the values."""
    count = c.load(row, 2)
    keys = c.at(row, 3)
    c.store(c.at(keys, count), pc, kind="ptr")
    place, key, value = c.room(1), c.room(1, item="ptr"), c.room(1, item="ptr")
    c.store(0, place)
    with c.loop(count) as j:
        more = c.let(f"call i32 @PyDict_Next(ptr {thing}, ptr {place}, ptr {key}, ptr {value})")
        c.unless(c.test("ne", more, 0, "i32"), fail)
        c.unless(c.test("eq", c.load(key, kind="ptr"), c.load(keys, j, "ptr"), "ptr"), fail)
        after = c.let(f"call ptr @match(ptr %s, ptr {value}, i64 1, ptr {c.load(pc, kind='ptr')}, i1 true)")
        c.unless(c.test("ne", after, "null", "ptr"), fail)
        c.store(after, pc, kind="ptr")
    more = c.let(f"call i32 @PyDict_Next(ptr {thing}, ptr {place}, ptr {key}, ptr {value})")
    c.unless(c.test("eq", more, 0, "i32"), fail)


# -- the kernel -----------------------------------------------------------------------------------------------------------
def _poll(layout: Layout) -> str:
    """What a kernel's loops ask; see Note [The interpreter's lock]. The context's last word is the thread's state while it is
    without the lock."""
    c = Code("define internal i32 @poll(ptr %context)")
    state = c.load("%context", 3, "ptr")
    with c.when(c.test("ne", state, "null", "ptr")):
        c.do(f"call void @PyEval_RestoreThread(ptr {state})")
    answer = c.let("call i32 @PyErr_CheckSignals()")
    c.store(c.let("call ptr @PyEval_SaveThread()"), "%context", 3, "ptr")
    stop = c.test("ne", answer, 0, "i32")
    c.give(f"i32 {c.let(f'zext i1 {stop} to i32')}")
    return c.text()


def _build(layout: Layout) -> str:
    """The answer, or a part of it, from the results; null if an object could not be made."""
    c = Code("define internal ptr @build(ptr %s, ptr %pc)")
    at = c.load("%pc", kind="ptr")
    op, value = c.load(at), c.load(at, 1)
    with c.when(c.test("eq", op, Build.RESULT)):
        _next_rows(c, "%pc", at, 2)
        made = c.at("%s", MADE)
        found = c.load(made, value, "ptr")
        c.store("null", made, value, "ptr")
        c.give(f"ptr {found}")
    with c.when(c.test("eq", op, Build.OBJECT)):
        _next_rows(c, "%pc", at, 2)
        thing = c.load(at, 1, "ptr")
        c.do(f"call void @Py_IncRef(ptr {thing})")
        c.give(f"ptr {thing}")
    holder = c.room(1, item="ptr")
    with c.when(c.test("eq", op, Build.DICT)):
        _build_dict(c, at, value)
    with c.choice(op, (Build.TUPLE, Build.LIST, Build.MAKE)) as choice:
        with choice.case(Build.LIST):
            _next_rows(c, "%pc", at, 2)
            c.store(c.let(f"call ptr @PyList_New(i64 {value})"), holder, kind="ptr")
        for kind, words in ((Build.TUPLE, 2), (Build.MAKE, 3)):
            with choice.case(kind):
                _next_rows(c, "%pc", at, words)
                c.store(c.let(f"call ptr @PyTuple_New(i64 {value})"), holder, kind="ptr")
    whole = c.load(holder, kind="ptr")
    with c.when(c.null(whole)):
        c.give("ptr null")
    items = c.room(1, item="ptr")
    there = c.byte(whole, layout.items)
    c.store(there, items, kind="ptr")
    with c.when(c.let(f"and i1 {c.test('eq', op, Build.LIST)}, {c.test('sgt', value, 0)}")):
        c.store(c.load(there, kind="ptr"), items, kind="ptr")
    begin = c.load(items, kind="ptr")
    with c.loop(value) as k:
        part = c.let("call ptr @build(ptr %s, ptr %pc)")
        with c.when(c.null(part)):
            c.do(f"call void @Py_DecRef(ptr {whole})")
            c.give("ptr null")
        c.store(part, begin, k, "ptr")
    with c.when(c.test("eq", op, Build.MAKE)):
        make = c.load(at, 2, "ptr")
        made = c.let(f"call ptr (ptr, ...) @PyObject_CallFunctionObjArgs(ptr {make}, ptr {whole}, ptr null)")
        c.do(f"call void @Py_DecRef(ptr {whole})")
        c.give(f"ptr {made}")
    c.give(f"ptr {whole}")
    return c.text()


def _build_dict(c: Code, at: str, count: str) -> None:
    keys = c.at(at, 2)
    c.store(c.at(keys, count), "%pc", kind="ptr")
    whole = c.let("call ptr @PyDict_New()")
    with c.when(c.null(whole)):
        c.give("ptr null")
    with c.loop(count) as k:
        part = c.let("call ptr @build(ptr %s, ptr %pc)")
        with c.when(c.null(part)):
            c.do(f"call void @Py_DecRef(ptr {whole})")
            c.give("ptr null")
        wrong = c.let(f"call i32 @PyDict_SetItem(ptr {whole}, ptr {c.load(keys, k, 'ptr')}, ptr {part})")
        c.do(f"call void @Py_DecRef(ptr {part})")
        with c.when(c.test("ne", wrong, 0, "i32")):
            c.do(f"call void @Py_DecRef(ptr {whole})")
            c.give("ptr null")
    c.give(f"ptr {whole}")


def _give_up(layout: Layout) -> str:
    """Let go of the results that are in no answer."""
    c = Code("define internal void @give_up(ptr %s, i64 %count)")
    made = c.at("%s", MADE)
    with c.loop("%count") as k:
        thing = c.load(made, k, "ptr")
        with c.when(c.test("ne", thing, "null", "ptr")):
            c.do(f"call void @Py_DecRef(ptr {thing})")
    c.give("void")
    return c.text()


def _serve(layout: Layout) -> str:
    """Results, workspace, the kernel, the answer. Null with an exception set, or MISS if the slow path has to serve."""
    c = Code("define internal ptr @serve(ptr %s, ptr %words)")
    context, near, scratch = c.room(4), c.room(NEAR // 8, ALIGN), c.room(1, item="ptr")
    count = c.load("%words", Word.RESULTS)
    rows = c.at("%words", c.load("%words", Word.RESULT_ROWS))
    miss = c.name("miss")
    _allocate(c, layout, rows, count, miss)
    _apart(c, miss)
    work = c.let(f"call i64 @size(ptr %s, ptr %words, i64 {c.load('%words', Word.WORK_OP)}, i64 {c.load('%words', Word.WORK)})")
    c.unless(c.test("eq", c.load("%s", BAD), 0), miss)
    place = _workspace(c, near, work, scratch, miss)
    c.store("@poll", context, 2, "ptr")
    c.store("null", context, 3, "ptr")
    touched = c.let(f"add i64 {c.load('%s', BYTES)}, {work}")
    with c.when(c.test("sge", touched, c.load("%words", Word.MANY))):
        c.store(c.let("call ptr @PyEval_SaveThread()"), context, 3, "ptr")
    inputs, sizes, outputs = (c.at("%s", k) for k in (INPUTS, SIZES, OUTPUTS))
    kernel = c.load("%words", Word.KERNEL, "ptr")
    status = c.let(f"call i32 {kernel}(ptr {context}, ptr {inputs}, ptr {sizes}, ptr {outputs}, ptr {place})")
    state = c.load(context, 3, "ptr")
    with c.when(c.test("ne", state, "null", "ptr")):
        c.do(f"call void @PyEval_RestoreThread(ptr {state})")
    _keep_workspace(c, scratch)
    with c.when(c.test("ne", status, 0, "i32")):
        with c.when(c.test("eq", status, INTERRUPTED, "i32")):
            c.do(f"call void @give_up(ptr %s, i64 {count})")
            c.give("ptr null")
        c.go(miss)
    _collect(c, layout, rows, count)
    pc = c.room(1, item="ptr")
    c.store(c.at("%words", c.load("%words", Word.BUILD)), pc, kind="ptr")
    answer = c.let(f"call ptr @build(ptr %s, ptr {pc})")
    with c.when(c.null(answer)):
        c.do(f"call void @give_up(ptr %s, i64 {count})")
    c.give(f"ptr {answer}")
    c.block(miss)
    c.do(f"call void @give_up(ptr %s, i64 {count})")
    c.give(f"ptr {MISS}")
    return c.text()


def _allocate(c: Code, layout: Layout, rows: str, count: str, miss: str) -> None:
    """Arrays for the results, or those of the caller. Row: kind, element type, rank, bytes of an element, axes."""
    made, outputs, results = (c.at("%s", k) for k in (MADE, OUTPUTS, RESULTS))
    pc = c.room(1, item="ptr")
    c.store(rows, pc, kind="ptr")
    with c.loop(count) as k:
        c.store("null", made, k, "ptr")
    with c.loop(count) as k:
        row = c.load(pc, kind="ptr")
        rank = c.load(row, 2)
        c.store(c.at(row, c.let(f"add i64 4, {c.let(f'shl i64 {rank}, 1')}")), pc, kind="ptr")
        array, scalar, after = c.name("array"), c.name("scalar"), c.name("after")
        c.do(f"br i1 {c.test('eq', c.load(row), Result.ARRAY)}, label {array}, label {scalar}")
        c.block(scalar)
        c.store(c.at(results, k), outputs, k, "ptr")
        c.do(f"br label {after}")
        c.block(array)
        dims, total = c.at("%s", DIMS), c.room(1)
        c.store(c.load(row, 3), total)
        with c.loop(rank) as j:
            axis = c.at(c.at(row, 4), c.let(f"shl i64 {j}, 1"))
            length = c.let(f"call i64 @size(ptr %s, ptr %words, i64 {c.load(axis)}, i64 {c.load(axis, 1)})")
            c.store(length, dims, j)
            c.store(c.let(f"mul i64 {c.load(total)}, {length}"), total)
        given = c.room(1, item="ptr")
        c.store("null", given, kind="ptr")
        with c.when(c.test("ne", c.load("%words", Word.GIVEN), 0)):
            thing = c.load(c.at("%s", GIVEN), k, "ptr")
            with c.when(c.test("ne", thing, "null", "ptr")):
                shape = c.field(thing, layout.shape)
                with c.loop(rank) as j:
                    c.unless(c.test("eq", c.load(shape, j), c.load(dims, j)), miss)
                c.do(f"call void @Py_IncRef(ptr {thing})")
                c.store(thing, given, kind="ptr")
        with c.when(c.null(c.load(given, kind="ptr"))):
            new = c.load("%words", Word.NEW, "ptr")
            kind, dimensions = (c.let(f"trunc i64 {n} to i32") for n in (c.load(row, 1), rank))
            fresh = c.let(
                f"call ptr {new}(ptr {c.load('%words', Word.NDARRAY, 'ptr')}, i32 {dimensions}, ptr {dims}, i32 {kind}, "
                "ptr null, ptr null, i32 0, i32 0, ptr null)"
            )
            with c.when(c.null(fresh)):
                c.do("call void @PyErr_Clear()")
                c.go(miss)
            c.store(fresh, given, kind="ptr")
        found = c.load(given, kind="ptr")
        c.store(found, made, k, "ptr")
        c.store(c.field(found, layout.data), outputs, k, "ptr")
        c.store(c.let(f"add i64 {c.load('%s', BYTES)}, {c.load(total)}"), "%s", BYTES)
        c.do(f"br label {after}")
        c.block(after)


def _apart(c: Code, miss: str) -> None:
    """Arrays of the caller that receive results must share no memory with any other argument."""
    with c.when(c.test("ne", c.load("%words", Word.GIVEN), 0)):
        count = c.load("%s", SPANS)
        with c.loop(count) as k:
            low, high, given = _span(c, k)
            with c.when(c.test("sge", given, 0)), c.loop(count) as j:
                start, end, _ = _span(c, j)
                before, behind = c.test("ule", high, start, "ptr"), c.test("ule", end, low, "ptr")
                apart = c.let(f"or i1 {before}, {behind}")
                itself = c.test("eq", j, k)
                c.unless(c.let(f"or i1 {apart}, {itself}"), miss)


def _span(c: Code, k: str) -> tuple[str, str, str]:
    """Where a matched array begins and ends, and which result it receives, or -1."""
    at = c.at(c.at("%s", RANGES), c.let(f"mul i64 {k}, 3"))
    return c.load(at, kind="ptr"), c.load(at, 1, "ptr"), c.load(at, 2)


def _workspace(c: Code, near: str, size: str, scratch: str, miss: str) -> str:
    """Memory for the kernel: on the stack, or the entry's own unless another call has it, or new. ``scratch``: what of it is
    to be given back; its first word says how many bytes there are."""
    place = c.room(1, item="ptr")
    c.store("null", scratch, kind="ptr")
    c.store(near, place, kind="ptr")
    c.unless(c.test("sge", size, 0), miss)
    with c.when(c.test("sgt", size, NEAR)):
        pool = c.load("%words", Word.POOL, "ptr")
        c.store("null", "%words", Word.POOL, "ptr")
        c.store(pool, scratch, kind="ptr")
        enough = c.room(1)
        c.store(0, enough)
        with c.when(c.test("ne", pool, "null", "ptr")):
            c.store(c.load(pool), enough)
        with c.when(c.test("slt", c.load(enough), size)):
            c.do(f"call void @PyMem_RawFree(ptr {pool})")
            fresh = c.let(f"call ptr @PyMem_RawMalloc(i64 {c.let(f'add i64 {size}, {ALIGN + 8}')})")
            c.store(fresh, scratch, kind="ptr")
            c.unless(c.test("ne", fresh, "null", "ptr"), miss)
            c.store(size, fresh)
        start = c.let(f"ptrtoint ptr {c.load(scratch, kind='ptr')} to i64")
        up = c.let(f"and i64 {c.let(f'add i64 {start}, {ALIGN + 7}')}, {-ALIGN}")
        c.store(c.let(f"inttoptr i64 {up} to ptr"), place, kind="ptr")
    return c.load(place, kind="ptr")


def _keep_workspace(c: Code, scratch: str) -> None:
    mine = c.load(scratch, kind="ptr")
    with c.when(c.test("ne", mine, "null", "ptr")):
        other = c.load("%words", Word.POOL, "ptr")
        c.store(mine, "%words", Word.POOL, "ptr")
        c.do(f"call void @PyMem_RawFree(ptr {other})")


# -- out ------------------------------------------------------------------------------------------------------------------
def _collect(c: Code, layout: Layout, rows: str, count: str) -> None:
    """Numbers become objects. One that cannot be made stays null, and then so does the answer."""
    made, results = c.at("%s", MADE), c.at("%s", RESULTS)
    pc = c.room(1, item="ptr")
    c.store(rows, pc, kind="ptr")
    with c.loop(count) as k:
        row = c.load(pc, kind="ptr")
        rank = c.load(row, 2)
        c.store(c.at(row, c.let(f"add i64 4, {c.let(f'shl i64 {rank}, 1')}")), pc, kind="ptr")
        cell = c.at(results, k)
        with c.choice(c.load(row), (Result.FLOAT, Result.INT, Result.BOOL, Result.SCALAR)) as choice:
            with choice.case(Result.FLOAT):
                c.store(c.let(f"call ptr @PyFloat_FromDouble(double {c.load(cell, kind='double')})"), made, k, "ptr")
            with choice.case(Result.INT):
                c.store(c.let(f"call ptr @PyLong_FromLongLong(i64 {c.load(cell)})"), made, k, "ptr")
            with choice.case(Result.BOOL):
                value = c.let(f"zext i8 {c.load(cell, kind='i8')} to i64")
                c.store(c.let(f"call ptr @PyBool_FromLong(i64 {value})"), made, k, "ptr")
            with choice.case(Result.SCALAR):
                scalar, kind = c.load("%words", Word.SCALAR, "ptr"), c.load(row, 1, "ptr")
                c.store(c.let(f"call ptr {scalar}(ptr {cell}, ptr {kind}, ptr null)"), made, k, "ptr")


# -- the callable -----------------------------------------------------------------------------------------------------------
def _fallback(layout: Layout) -> str:
    """Call the slow path with the arguments as they came. By tuple and dict, since the quicker ways differ between Pythons."""
    c = Code("define internal ptr @fallback(ptr %slow, ptr %args, i64 %n, ptr %names) noinline cold")
    given = c.let("call ptr @PyTuple_New(i64 %n)")
    with c.when(c.null(given)):
        c.give("ptr null")
    items = c.byte(given, layout.items)
    with c.loop("%n") as k:
        thing = c.load("%args", k, "ptr")
        c.do(f"call void @Py_IncRef(ptr {thing})")
        c.store(thing, items, k, "ptr")
    named, answer = c.room(1, item="ptr"), c.room(1, item="ptr")
    c.store("null", named, kind="ptr")
    c.store("null", answer, kind="ptr")
    call = c.name("call")
    with c.when(c.test("ne", "%names", "null", "ptr")):
        pairs = c.let("call ptr @PyDict_New()")
        c.store(pairs, named, kind="ptr")
        out = c.name("out")
        c.unless(c.test("ne", pairs, "null", "ptr"), out)
        with c.loop(c.field("%names", layout.header, "i64")) as k:
            value = c.load("%args", c.let(f"add i64 %n, {k}"), "ptr")
            key = c.load(c.byte("%names", layout.items), k, "ptr")
            wrong = c.let(f"call i32 @PyDict_SetItem(ptr {pairs}, ptr {key}, ptr {value})")
            c.unless(c.test("eq", wrong, 0, "i32"), out)
        c.go(call)
        c.block(out)
        c.do(f"call void @Py_DecRef(ptr {given})")
        with c.when(c.test("ne", pairs, "null", "ptr")):
            c.do(f"call void @Py_DecRef(ptr {pairs})")
        c.give("ptr null")
    c.go(call)
    c.block(call)
    names = c.load(named, kind="ptr")
    c.store(c.let(f"call ptr @PyObject_Call(ptr %slow, ptr {given}, ptr {names})"), answer, kind="ptr")
    c.do(f"call void @Py_DecRef(ptr {given})")
    with c.when(c.test("ne", names, "null", "ptr")):
        c.do(f"call void @Py_DecRef(ptr {names})")
    c.give(f"ptr {c.load(answer, kind='ptr')}")
    return c.text()


def _call(layout: Layout) -> str:
    c = Code(f"define ptr @{NAME}(ptr %self, ptr %args, i64 %n, ptr %names)")
    s = c.room(STATE, 16)
    own = c.byte("%self", layout.items)
    slow, entries, state = (c.load(own, k, "ptr") for k in range(3))
    asked, names = c.room(1), c.room(1, item="ptr")
    c.store(0, asked)
    c.store("null", names, kind="ptr")
    with c.when(c.test("ne", "%names", "null", "ptr")):
        c.store(c.field("%names", layout.header, "i64"), asked)
        c.store(c.byte("%names", layout.items), names, kind="ptr")
    miss = c.name("miss")
    traces = c.field(state, layout.data)
    c.unless(c.test("eq", c.load(traces), 0), miss)
    index, head, following = c.room(1), c.name("head"), c.name("following")
    c.store(0, index)
    c.do(f"br label {head}")
    c.block(following)
    c.store(c.let(f"add i64 {c.load(index)}, 1"), index)
    c.do(f"br label {head}")
    c.block(head)
    k = c.load(index)
    c.unless(c.test("slt", k, c.field(entries, layout.header, "i64")), miss)  # the list may have changed meanwhile
    entry = c.load(c.field(entries, layout.items), k, "ptr")
    words = c.field(c.field(entry, layout.items), layout.data)
    c.unless(c.test("eq", c.load(words, Word.COUNT), "%n"), following)
    named = c.load(asked)
    c.unless(c.test("eq", c.load(words, Word.NAMED), named), following)
    expected, given = c.at(words, c.load(words, Word.NAMES)), c.load(names, kind="ptr")
    with c.loop(named) as j:
        c.unless(c.test("eq", c.load(given, j, "ptr"), c.load(expected, j, "ptr"), "ptr"), following)
    for cell in (HELD, BYTES, SPANS, BAD):
        c.store(0, s, cell)
    inputs, constants = c.at(s, INPUTS), c.at(words, c.load(words, Word.CONSTANTS))
    with c.loop(c.load(words, Word.CONSTANT_COUNT)) as j:
        pair = c.at(constants, c.let(f"shl i64 {j}, 1"))
        c.store(c.load(pair, 1), inputs, c.load(pair))
    with c.when(c.test("ne", c.load(words, Word.GIVEN), 0)), c.loop(c.load(words, Word.RESULTS)) as j:
        c.store("null", c.at(s, GIVEN), j, "ptr")
    total = c.let(f"add i64 %n, {named}")
    pattern = c.at(words, c.load(words, Word.PATTERN))
    found = c.let(f"call ptr @match(ptr {s}, ptr %args, i64 {total}, ptr {pattern}, i1 false)")
    answer, hidden, drop = c.room(1, item="ptr"), c.room(1, item="ptr"), c.name("drop")
    c.store(MISS, answer, kind="ptr")
    c.store("null", hidden, kind="ptr")
    c.do(f"call void @Py_IncRef(ptr {entry})")
    c.unless(c.test("ne", found, "null", "ptr"), drop)
    provider = c.load(words, Word.PROVIDER, "ptr")
    with c.when(c.test("ne", provider, "null", "ptr")):
        _captured(c, layout, s, words, provider, hidden, answer, drop)
    with c.when(c.test("ne", c.load(words, Word.SPOT_COUNT), 0)):
        _spots(c, layout, s, words, drop)
    with c.loop(c.load(words, Word.GUARD_COUNT)) as j:
        row = c.at(c.at(words, c.load(words, Word.GUARDS)), c.let(f"mul i64 {j}, {Guard.WORDS}"))
        c.unless(_holds(c, s, words, row), drop)
    c.store(c.let(f"call ptr @serve(ptr {s}, ptr {words})"), answer, kind="ptr")
    c.go(drop)
    c.block(drop)
    holds = c.at(s, HOLDS)
    with c.loop(c.load(s, HELD)) as j:
        c.do(f"call void @Py_DecRef(ptr {c.load(holds, j, 'ptr')})")
    captured = c.load(hidden, kind="ptr")
    with c.when(c.test("ne", captured, "null", "ptr")):
        c.do(f"call void @Py_DecRef(ptr {captured})")
    c.do(f"call void @Py_DecRef(ptr {entry})")
    result = c.load(answer, kind="ptr")
    c.unless(c.test("eq", result, MISS, "ptr"), (done := c.name("done")))
    c.go(following)
    c.block(done)
    c.give(f"ptr {result}")
    c.block(miss)
    served = c.let(f"call ptr @fallback(ptr {slow}, ptr %args, i64 %n, ptr %names)")
    c.give(f"ptr {served}")
    return c.text()


def _called(layout: Layout) -> str:
    """What Python calls for a call of an instance: the direct callable that the instance holds is entered without looking it
    up and without building anything for it. Everything else is called as Python would."""
    c = Code("define internal ptr @called(ptr %instance, ptr %args, ptr %named)")
    held = c.field("%instance", layout.header)
    with c.when(c.null(held)):
        c.give(f"ptr {c.let('call ptr @PyObject_GetAttrString(ptr %instance, ptr @name)')}")  # which says that it has none
    other = c.name("other")
    c.unless(c.test("eq", c.field(held, layout.type), "@PyCFunction_Type", "ptr"), other)
    definition, own = c.field(held, layout.header), c.field(held, layout.header + 8)
    c.unless(c.test("eq", c.load(definition, 1, "ptr"), f"@{NAME}", "ptr"), other)
    c.unless(c.null("%named"), other)
    c.do(f"call void @Py_IncRef(ptr {held})")  # the instance may get another one meanwhile
    items, count = c.byte("%args", layout.items), c.field("%args", layout.header, "i64")
    answer = c.let(f"call ptr @{NAME}(ptr {own}, ptr {items}, i64 {count}, ptr null)")
    c.do(f"call void @Py_DecRef(ptr {held})")
    c.give(f"ptr {answer}")
    c.block(other)
    c.do(f"call void @Py_IncRef(ptr {held})")
    answer = c.let(f"call ptr @PyObject_Call(ptr {held}, ptr %args, ptr %named)")
    c.do(f"call void @Py_DecRef(ptr {held})")
    c.give(f"ptr {answer}")
    return c.text()


def _spots(c: Code, layout: Layout, s: str, words: str, drop: str) -> None:
    """The same by looking where the function finds them: what it reads must be the same objects, or arrays."""
    count, found, captured = c.room(1), c.room(1, item="ptr"), c.at(s, CAPTURED)
    c.store(0, count)
    with c.loop(c.load(words, Word.SPOT_COUNT)) as j:
        row = c.at(c.at(words, c.load(words, Word.SPOTS)), c.let(f"mul i64 {j}, {Where.WORDS}"))
        holder, key, expected = (c.load(row, k, "ptr") for k in (1, 2, 3))
        with c.choice(c.load(row), (Where.GLOBAL, Where.CELL)) as choice:
            with choice.case(Where.GLOBAL):
                c.store(c.let(f"call ptr @PyDict_GetItemWithError(ptr {holder}, ptr {key})"), found, kind="ptr")
            with choice.case(Where.CELL):
                c.store(c.field(holder, layout.header), found, kind="ptr")
        thing = c.load(found, kind="ptr")
        c.unless(c.test("ne", thing, "null", "ptr"), drop)
        array = c.null(expected)
        same = c.test("eq", thing, expected, "ptr")
        c.unless(c.let(f"or i1 {array}, {same}"), drop)
        with c.when(array):
            c.unless(c.let(f"call i1 @hold(ptr {s}, ptr {thing})"), drop)
            c.store(thing, captured, c.load(count), "ptr")
            c.store(c.let(f"add i64 {c.load(count)}, 1"), count)
    rows = c.at(words, c.load(words, Word.HIDDEN))
    after = c.let(f"call ptr @match(ptr {s}, ptr {captured}, i64 {c.load(count)}, ptr {rows}, i1 false)")
    c.unless(c.test("ne", after, "null", "ptr"), drop)


def _holds(c: Code, s: str, words: str, row: str) -> str:
    """Whether a guard over lengths holds. Row: relation, two sizes, outcome."""
    left, right = (
        c.let(f"call i64 @size(ptr {s}, ptr {words}, i64 {c.load(row, k)}, i64 {c.load(row, k + 1)})") for k in (1, 3)
    )
    relation = c.load(row)
    less, equal = c.test("slt", left, right), c.test("eq", left, right)
    below = c.let(f"and i1 {less}, {c.test('ne', relation, Guard.EQUAL)}")
    level = c.let(f"and i1 {equal}, {c.test('ne', relation, Guard.LESS)}")
    found = c.let(f"or i1 {below}, {level}")
    return c.let(f"icmp eq i1 {found}, {c.test('ne', c.load(row, 5), 0)}")


def _captured(c: Code, layout: Layout, s: str, words: str, provider: str, hidden: str, answer: str, drop: str) -> None:
    """The arrays that the function reads from outside, as a list; anything else if what it captured has changed."""
    found = c.let(f"call ptr @PyObject_CallNoArgs(ptr {provider})")
    c.store(found, hidden, kind="ptr")
    with c.when(c.null(found)):
        c.store("null", answer, kind="ptr")
        c.go(drop)
    c.unless(c.test("eq", c.field(found, layout.type), c.load(words, Word.LIST, "ptr"), "ptr"), drop)
    count = c.field(found, layout.header, "i64")
    c.unless(c.test("eq", count, c.load(words, Word.HIDDEN_COUNT)), drop)
    rows = c.at(words, c.load(words, Word.HIDDEN))
    after = c.let(f"call ptr @match(ptr {s}, ptr {c.field(found, layout.items)}, i64 {count}, ptr {rows}, i1 false)")
    c.unless(c.test("ne", after, "null", "ptr"), drop)
