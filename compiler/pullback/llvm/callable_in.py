"""The first half of the direct call: recognising arguments, and where they are for the kernel. See ``callable.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.llvm.callable_text import BAD, BYTES, CELLS, GIVEN, HELD, HOLDS, INPUTS, RANGES, SIZES, SPANS, Code, next_rows
from pullback_runtime import direct
from pullback_runtime.direct import MOST, Axis, Match, Size

if TYPE_CHECKING:
    from pullback_runtime.direct import Layout


def write_size(layout: Layout) -> str:
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
    next_rows(c, pc, at, 2)
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


def write_hold(layout: Layout) -> str:
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


def write_match(layout: Layout) -> str:
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
                next_rows(c, pc, row, 3)
            with choice.case(Match.SAME):
                next_rows(c, pc, row, 2)
            with choice.case(Match.SINGLE):
                number = c.let(f"fptrunc double {c.field(thing, layout.header, 'double')} to float")
                c.store(number, _cell(c, c.load(row, 2)), kind="float")
                next_rows(c, pc, row, 3)
            with choice.case(Match.INTEGER):
                _integer(c, thing, row, fail)
                next_rows(c, pc, row, 4)
            with choice.case(Match.BOOLEAN):
                true = c.test("eq", thing, c.load(row, 3, "ptr"), "ptr")
                c.store(c.let(f"zext i1 {true} to i8"), _cell(c, c.load(row, 2)), kind="i8")
                next_rows(c, pc, row, 4)
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
