"""Loops whose trips several threads share, as LLVM text: see Note [Chunks] in ``loops/chunks.py``.

Note [Sharing]
A shared loop becomes two functions: one does a chunk, the other takes chunks from a counter until none is left. The kernel
puts what they need on its stack, the second one's address first, and hands it to the *team* in its context, which has some
threads call it and returns when all of them have; without a team, or for few chunks, the kernel calls it itself. A check that
fails ends its chunk; of several the one in the first chunk counts, which would have failed first without threads too.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.llvm.control import INTERRUPTED
from pullback.llvm.functions import FunctionText
from pullback.loops import chunks

TEAM = 3  # its place in the context
RUN, COUNTER, CHUNKS, FRAME, SIZES, BUFFERS = range(6)  # words of what the threads share
OWN = 3  # words of each chunk: two integers of a message, its status
DONE, STOPPED = 1, 2  # the team's answers


def runner(name: str, buffers: int, fails: bool) -> str:
    """The function that does chunks until none is left. ``name``: the one that does a chunk."""
    f = FunctionText(f"{name}_run", ["ptr %shared"], "void", {})
    words = [f.at_entry(f"getelementptr i64, ptr %shared, i64 {k}") for k in range(BUFFERS + buffers)]
    count = f.at_entry(f"load i64, ptr {words[CHUNKS]}")
    pointers = [f.at_entry(f"load ptr, ptr {word}") for word in words[FRAME:]]
    f.line("br label %next")
    f.block("%next")
    chunk = f.let(f"atomicrmw add ptr {words[COUNTER]}, i64 1 seq_cst")
    f.line(f"br i1 {f.let(f'icmp slt i64 {chunk}, {count}')}, label %some, label %none")
    f.block("%some")
    word = f.let(f"add i64 {f.let(f'mul i64 {chunk}, {OWN}')}, {BUFFERS + buffers}")
    own = f.let(f"getelementptr i64, ptr %shared, i64 {word}")
    args = ", ".join(f"ptr {p}" for p in (*pointers[:2], own, *pointers[2:]))
    if fails:
        status = f.let(f"call i32 @{name}({args}, i64 {chunk})")
        place = f.let(f"getelementptr i64, ptr {own}, i64 {OWN - 1}")
        f.line(f"store i64 {f.let(f'sext i32 {status} to i64')}, ptr {place}")
        f.line(f"br i1 {f.let(f'icmp eq i32 {status}, 0')}, label %next, label %stop")
        f.block("%stop")  # no chunk after this one matters; those before it have all begun
        f.line(f"store atomic i64 {count}, ptr {words[COUNTER]} seq_cst, align 8")
    else:
        f.line(f"call void @{name}({args}, i64 {chunk})")
    f.line("br label %next")
    f.block("%none")
    f.line("ret void")
    return f.text()


def dispatch(f: FunctionText, name: str, count: str, frame: str, pointers: Sequence[str], fails: bool) -> None:
    """Have all chunks done, and return from the kernel with the status of one that failed."""
    buffers = BUFFERS + len(pointers)
    words = buffers + OWN * chunks.MOST
    shared = f.at_entry(f"alloca [{words} x i64], align 64")
    places = [f.let(f"getelementptr i64, ptr {shared}, i64 {k}") for k in range(buffers)]
    values = [f"ptr @{name}_run", "i64 0", f"i64 {count}", *(f"ptr {p}" for p in (frame, "%sizes", *pointers))]
    for place, value in zip(places, values, strict=True):
        f.line(f"store {value}, ptr {place}")
    team = f.let(f"load ptr, ptr {f.let(f'getelementptr i64, ptr %ctx, i64 {TEAM}')}")
    alone, many, stopped, done = (f.new(label) for label in ("alone", "many", "stopped", "done"))
    nobody, few = f.let(f"icmp eq ptr {team}, null"), f.let(f"icmp slt i64 {count}, {chunks.WORTH}")
    f.line(f"br i1 {f.let(f'or i1 {nobody}, {few}')}, label {alone}, label {many}")
    f.block(alone)
    f.line(f"call void @{name}_run(ptr {shared})")
    f.line(f"br label {done}")
    f.block(many)
    answer = f.let(f"call i32 {team}(ptr {shared})")
    f.line(f"switch i32 {answer}, label {alone} [ i32 {DONE}, label {done} i32 {STOPPED}, label {stopped} ]")
    f.block(stopped)
    f.line(f"ret i32 {INTERRUPTED}")
    f.block(done)
    if fails:
        _first_failure(f, count, shared, buffers)


def _first_failure(f: FunctionText, count: str, shared: str, first: int) -> None:
    """Return with the first chunk's status that is not 0, if there is one, and its message's integers."""

    def look(chunk: str) -> None:
        word = f.let(f"add i64 {f.let(f'mul i64 {chunk}, {OWN}')}, {first}")
        own = f.let(f"getelementptr i64, ptr {shared}, i64 {word}")
        status = f.let(f"load i64, ptr {f.let(f'getelementptr i64, ptr {own}, i64 {OWN - 1}')}")
        good, bad = f.new("ok"), f.new("bad")
        f.line(f"br i1 {f.let(f'icmp eq i64 {status}, 0')}, label {good}, label {bad}")
        f.block(bad)
        for k in range(OWN - 1):
            value = f.let(f"load i64, ptr {f.let(f'getelementptr i64, ptr {own}, i64 {k}')}")
            f.line(f"store i64 {value}, ptr {f.let(f'getelementptr i64, ptr %ctx, i64 {k}')}")
        f.line(f"ret i32 {f.let(f'trunc i64 {status} to i32')}")
        f.block(good)

    f.each("0", count, look)
