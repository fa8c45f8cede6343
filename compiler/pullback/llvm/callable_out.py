"""The second half of the direct call: memory for the results, the kernel, and the answer. See ``callable.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.llvm.callable_kept import reuse
from pullback.llvm.callable_text import (
    BAD,
    BYTES,
    CLAIMED,
    DIMS,
    GIVEN,
    INPUTS,
    MADE,
    MISS,
    OUTPUTS,
    RANGES,
    RESULTS,
    SIZES,
    SPANS,
    Code,
    next_rows,
)  # fmt: skip
from pullback_runtime.direct import Build, Result, Word

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout

INTERRUPTED = -1  # a kernel's status
NEAR = 4096  # bytes of workspace that fit the stack
ALIGN = 64


def write_poll(layout: Layout) -> str:
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


def write_build(layout: Layout) -> str:
    """The answer, or a part of it, from the results; null if an object could not be made."""
    c = Code("define internal ptr @build(ptr %s, ptr %pc)")
    at = c.load("%pc", kind="ptr")
    op, value = c.load(at), c.load(at, 1)
    with c.when(c.test("eq", op, Build.RESULT)):
        next_rows(c, "%pc", at, 2)
        made = c.at("%s", MADE)
        found = c.load(made, value, "ptr")
        c.store("null", made, value, "ptr")
        c.give(f"ptr {found}")
    with c.when(c.test("eq", op, Build.OBJECT)):
        next_rows(c, "%pc", at, 2)
        thing = c.load(at, 1, "ptr")
        c.do(f"call void @Py_IncRef(ptr {thing})")
        c.give(f"ptr {thing}")
    holder = c.room(1, item="ptr")
    with c.when(c.test("eq", op, Build.DICT)):
        _build_dict(c, at, value)
    with c.choice(op, (Build.TUPLE, Build.LIST, Build.MAKE)) as choice:
        with choice.case(Build.LIST):
            next_rows(c, "%pc", at, 2)
            c.store(c.let(f"call ptr @PyList_New(i64 {value})"), holder, kind="ptr")
        for kind, words in ((Build.TUPLE, 2), (Build.MAKE, 3)):
            with choice.case(kind):
                next_rows(c, "%pc", at, words)
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


def write_give_up(layout: Layout) -> str:
    """Let go of the results that are in no answer, and of the answer that was to be filled."""
    c = Code("define internal void @give_up(ptr %s, i64 %count)")
    claimed = c.load("%s", CLAIMED, "ptr")
    with c.when(c.test("ne", claimed, "null", "ptr")):
        c.do(f"call void @Py_DecRef(ptr {claimed})")
    made = c.at("%s", MADE)
    with c.loop("%count") as k:
        thing = c.load(made, k, "ptr")
        with c.when(c.test("ne", thing, "null", "ptr")):
            c.do(f"call void @Py_DecRef(ptr {thing})")
    c.give("void")
    return c.text()


def write_serve(layout: Layout) -> str:
    """Results, workspace, the kernel, the answer. Null with an exception set, or MISS if the slow path has to serve."""
    c = Code("define internal ptr @serve(ptr %s, ptr %words)")
    context, near, scratch = c.room(4), c.room(NEAR // 8, ALIGN), c.room(1, item="ptr")
    count = c.load("%words", Word.RESULTS)
    rows = c.at("%words", c.load("%words", Word.RESULT_ROWS))
    miss = c.name("miss")
    c.store("null", "%s", CLAIMED, "ptr")
    kept = c.test("ne", c.load("%words", Word.PARTS), 0) if layout.counts else "false"
    with c.when(kept):
        c.do("call void @claim(ptr %s, ptr %words)")
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
    with c.when(c.test("ne", c.load("%s", CLAIMED, "ptr"), "null", "ptr")):
        filled = c.let("call ptr @refill(ptr %s, ptr %words)")
        with c.when(c.null(filled)):
            c.do(f"call void @give_up(ptr %s, i64 {count})")
        c.give(f"ptr {filled}")
    _collect(c, layout, rows, count)
    pc = c.room(1, item="ptr")
    c.store(c.at("%words", c.load("%words", Word.BUILD)), pc, kind="ptr")
    answer = c.let(f"call ptr @build(ptr %s, ptr {pc})")
    with c.when(c.null(answer)):
        c.do(f"call void @give_up(ptr %s, i64 {count})")
        c.give("ptr null")
    with c.when(kept):
        c.do(f"call void @keep(ptr %s, ptr %words, ptr {answer})")
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
                c.hold(layout, thing)
                c.store(thing, given, kind="ptr")
        if layout.counts:
            reuse(c, layout, k, rank, dims, given)
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
