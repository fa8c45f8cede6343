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

from typing import TYPE_CHECKING

from pullback.llvm.callable_code import TABLE
from pullback.llvm.callable_in import write_hold, write_match, write_size
from pullback.llvm.callable_kept import write_claim, write_keep, write_refill
from pullback.llvm.callable_out import write_build, write_give_up, write_poll, write_serve
from pullback.llvm.callable_text import BAD, BYTES, CAPTURED, GIVEN, HELD, HOLDS, INPUTS, MISS, SPANS, STATE, Code
from pullback_runtime.direct import Guard, Where, Word

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout

NAME = "pullback_call"

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
define void @{TABLE}(ptr %table) {{
  store ptr @{NAME}, ptr %table
  %second = getelementptr ptr, ptr %table, i64 1
  store ptr @called, ptr %second
  ret void
}}
"""


def text(layout: Layout) -> str:
    """The module, for objects that look as ``layout`` says."""
    writers = (
        write_size, write_hold, write_match, write_poll, write_build, write_give_up, write_claim, write_refill, write_keep,
        write_serve, _fallback, _call, _called,
    )  # fmt: skip
    return _DECLARED + "\n".join(write(layout) for write in writers) + "\n" + _EXPORTED


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
    c = Code(f"define internal ptr @{NAME}(ptr %self, ptr %args, i64 %n, ptr %names)")
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
    c.hold(layout, entry)
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
    c.drop(layout, entry)
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
    c.hold(layout, held)  # the instance may get another one meanwhile
    items, count = c.byte("%args", layout.items), c.field("%args", layout.header, "i64")
    answer = c.let(f"call ptr @{NAME}(ptr {own}, ptr {items}, i64 {count}, ptr null)")
    c.drop(layout, held)
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
