"""Answers that nobody holds any more are filled again: the third part of the direct call. See ``callable.py``.

Note [Kept answers]
Making an answer's tuples and arrays and freeing them takes longer than many a kernel. So an entry keeps its last two answers,
as Python's ``zip`` keeps its last tuple: one that nobody else holds cannot be told from a new one. Two, since a loop that
calls ``value, gradient = f(x)`` still holds the parts of the last answer while the next one is made.

An answer is kept as the list of its *parts* (itself, then what is in it, in the order in which it is built). It is *claimed*
before the kernel runs if its reference count says that only the entry has it; meanwhile the entry has it no more, so a call
from another thread, or from within this one, finds nothing. A number or an array that somebody holds, or an array that was
changed in anything but its elements, is replaced by a new one. Only answers of tuples, floats and arrays are kept, and only
small ones: what is kept is memory, and for large arrays the time does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.llvm.callable_text import (
    BYTES,
    CLAIMED,
    GONE,
    GONE_COUNT,
    MADE,
    PARTS,
    RESULTS,
    REUSED,
    SLOT,
    Code,
)  # fmt: skip
from pullback_runtime.direct import FRESH, KEPT_BYTES, Part, Word

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout


def write_claim(layout: Layout) -> str:
    """Take the older answer, if nobody holds it, and say which arrays in it can be written to."""
    c = Code("define internal void @claim(ptr %s, ptr %words)")
    count = c.load("%words", Word.PARTS)
    turn = c.let(f"xor i64 {c.load('%words', Word.TURN)}, 1")
    c.store(turn, "%words", Word.TURN)
    at, none = _slot(c, turn, count), c.name("none")
    root = c.load(at, kind="ptr")
    c.unless(c.test("ne", root, "null", "ptr"), none)
    c.unless(_alone(c, root), none)
    parts, rows = c.at("%s", PARTS), c.at("%words", c.load("%words", Word.PART_ROWS))
    with c.loop(count) as k:
        row, part = _row(c, rows, k), c.load(at, k, "ptr")
        c.store(part, parts, k, "ptr")
        kind = c.load(row)
        with c.when(c.test("eq", kind, Part.TUPLE)):
            c.unless(_alone(c, part), none)  # somebody took a tuple out of it
        with c.when(c.test("eq", kind, Part.ARRAY)):
            _writable(c, layout, part, c.at(c.at("%s", REUSED), c.load(row, 1)), c.load(row, 4, "ptr"))
    c.store("null", at, kind="ptr")
    c.store(at, "%s", SLOT, "ptr")
    c.store(root, "%s", CLAIMED, "ptr")
    c.give("void")
    c.block(none)
    c.give("void")
    return c.text()


def _slot(c: Code, number: str, count: str) -> str:
    slots = c.at("%words", c.load("%words", Word.SLOTS))
    return c.at(slots, c.let(f"mul i64 {number}, {count}"))


def _row(c: Code, rows: str, k: str) -> str:
    return c.at(rows, c.let(f"mul i64 {k}, {Part.WORDS}"))


def _alone(c: Code, thing: str) -> str:
    """Whether there is one reference."""
    return c.test("eq", c.load(thing), 1)


def _writable(c: Code, layout: Layout, array: str, cell: str, kind: str) -> None:
    """Whether an array is as it was made, but for its shape, which is compared later."""
    c.store("null", cell, kind="ptr")
    flags = c.field(array, layout.flags, "i32")
    good = c.test("eq", c.let(f"and i32 {flags}, {FRESH[0]}"), FRESH[1], "i32")
    for test in (
        _alone(c, array),
        c.null(c.field(array, layout.base)),
        c.null(c.field(array, layout.weak)),
        c.test("eq", c.field(array, layout.descr), kind, "ptr"),
    ):
        good = c.let(f"and i1 {good}, {test}")
    with c.when(good):
        c.store(array, cell, kind="ptr")


def reuse(c: Code, layout: Layout, k: str, rank: str, dims: str, given: str) -> None:
    """Let the claimed answer's array receive result ``k``, if it has the shape."""
    with c.when(c.test("ne", c.load("%s", CLAIMED, "ptr"), "null", "ptr")):
        array = c.load(c.at("%s", REUSED), k, "ptr")
        with c.when(c.test("ne", array, "null", "ptr")):
            other = c.name("other")
            found = c.let(f"sext i32 {c.field(array, layout.rank, 'i32')} to i64")
            c.unless(c.test("eq", found, rank), other)
            shape = c.field(array, layout.shape)
            with c.loop(rank) as j:
                c.unless(c.test("eq", c.load(shape, j), c.load(dims, j)), other)
            c.hold(layout, array)
            c.store(array, given, kind="ptr")
            c.go(other)
            c.block(other)


def write_refill(layout: Layout) -> str:
    """The claimed answer with the new results; null if an object could not be made."""
    c = Code("define internal ptr @refill(ptr %s, ptr %words)")
    count, rows = c.load("%words", Word.PARTS), c.at("%words", c.load("%words", Word.PART_ROWS))
    parts, made, results = (c.at("%s", k) for k in (PARTS, MADE, RESULTS))
    c.store(0, "%s", GONE_COUNT)
    fresh = c.room(1, item="ptr")
    with c.loop(count) as k:
        row, part = _row(c, rows, k), c.load(parts, k, "ptr")
        result = c.load(row, 1)
        c.store(part, fresh, kind="ptr")
        with c.choice(c.load(row), (Part.FLOAT, Part.ARRAY)) as choice:
            with choice.case(Part.FLOAT):
                number = c.load(c.at(results, result), kind="double")
                filled, held, after = (c.name(n) for n in ("filled", "held", "number"))
                c.do(f"br i1 {_alone(c, part)}, label {filled}, label {held}")
                c.block(filled)
                c.store(number, c.byte(part, layout.header), kind="double")
                c.go(after)
                c.block(held)
                new = c.let(f"call ptr @PyFloat_FromDouble(double {number})")
                with c.when(c.null(new)):
                    _free_gone(c)
                    c.give("ptr null")
                c.store(new, fresh, kind="ptr")
                c.go(after)
                c.block(after)
            with choice.case(Part.ARRAY):
                array = c.load(made, result, "ptr")
                c.store("null", made, result, "ptr")
                c.store(array, fresh, kind="ptr")
                with c.when(c.test("eq", array, part, "ptr")):
                    c.drop(layout, array)  # the answer has it already
        new = c.load(fresh, kind="ptr")
        with c.when(c.test("ne", new, part, "ptr")):
            _replace(c, layout, row, k, part, new)
    root = c.load(parts, kind="ptr")
    at = c.load("%s", SLOT, "ptr")
    with c.when(c.let(f"and i1 {c.null(c.load(at, kind='ptr'))}, {c.test('sle', c.load('%s', BYTES), KEPT_BYTES)}")):
        _remember(c, layout, at, parts, count)
    _free_gone(c)
    c.give(f"ptr {root}")
    return c.text()


def _replace(c: Code, layout: Layout, row: str, k: str, part: str, new: str) -> None:
    """Put a new object where an answer has ``part``, which is let go when everything else is done: that may run code."""
    parts, gone, count = c.at("%s", PARTS), c.at("%s", GONE), c.load("%s", GONE_COUNT)
    c.store(part, gone, count, "ptr")
    c.store(c.let(f"add i64 {count}, 1"), "%s", GONE_COUNT)
    c.store(new, parts, k, "ptr")
    with c.when(c.test("ne", k, 0)):
        holder = c.byte(c.load(parts, c.load(row, 2), "ptr"), layout.items)
        c.store(new, holder, c.load(row, 3), "ptr")


def _free_gone(c: Code) -> None:
    with c.loop(c.load("%s", GONE_COUNT)) as j:
        c.do(f"call void @Py_DecRef(ptr {c.load(c.at('%s', GONE), j, 'ptr')})")


def _remember(c: Code, layout: Layout, at: str, parts: str, count: str) -> None:
    with c.loop(count) as j:
        c.store(c.load(parts, j, "ptr"), at, j, "ptr")
    c.hold(layout, c.load(parts, kind="ptr"))


def write_keep(layout: Layout) -> str:
    """Keep an answer that was just built, in the place of the older one."""
    c = Code("define internal void @keep(ptr %s, ptr %words, ptr %answer)")
    count, rows, parts = c.load("%words", Word.PARTS), c.at("%words", c.load("%words", Word.PART_ROWS)), c.at("%s", PARTS)
    with c.when(c.test("sgt", c.load("%s", BYTES), KEPT_BYTES)):
        c.give("void")
    at = _slot(c, c.load("%words", Word.TURN), count)
    before = c.load(at, kind="ptr")
    c.store("%answer", parts, kind="ptr")
    with c.loop(count) as k, c.when(c.test("ne", k, 0)):
        row = _row(c, rows, k)
        holder = c.byte(c.load(parts, c.load(row, 2), "ptr"), layout.items)
        c.store(c.load(holder, c.load(row, 3), "ptr"), parts, k, "ptr")
    _remember(c, layout, at, parts, count)
    with c.when(c.test("ne", before, "null", "ptr")):
        c.do(f"call void @Py_DecRef(ptr {before})")
    c.give("void")
    return c.text()
