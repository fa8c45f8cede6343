"""Threads that share the loops of kernels.

Note [Teams]
A kernel with shared loops calls its frame's team with the address of a function and what that needs; each thread that calls
the function does pieces of the loop until none is left. The calling thread does so too, so a loop is done even if no other
thread is free, and nobody waits for a thread that has not begun. The threads belong to the process: they are made when first
needed, and anew in a forked child.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

from pullback_runtime import errors

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
VARIABLE = "PULLBACK_THREADS"

_pool: ThreadPoolExecutor | None = None
_size = 0
_lock = threading.Lock()


def threads() -> int:
    """How many threads share a loop: what the environment says, else the processors that this process may use."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isdecimal() or int(given) < 1:
        raise errors.PullbackError(f"{VARIABLE}={given}: a number of threads, 1 or more, expected")
    return int(given)


def _workers(count: int) -> ThreadPoolExecutor:
    global _pool, _size
    with _lock:
        if _pool is None or _size < count:
            old = _pool
            _pool, _size = ThreadPoolExecutor(count, "pullback"), count
            if old is not None:
                old.shutdown(wait=False)
        return _pool


def _forget() -> None:
    """In a forked child: the threads are gone, and the lock may be held by one of them."""
    global _pool, _size, _lock
    _pool, _size, _lock = None, 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class _Job:
    """One loop that threads share, and who is at it besides the calling thread."""

    def __init__(self, shared: int):
        self.run = _RUN(ctypes.c_void_p.from_address(shared).value or 0)
        self.shared = shared
        self._lock = threading.Lock()
        self._inside = 0
        self._closed = False
        self._left = threading.Event()

    def help(self) -> None:
        """What another thread does."""
        with self._lock:
            if self._closed:
                return
            self._inside += 1
        self.run(self.shared)
        with self._lock:
            self._inside -= 1
            if self._closed and not self._inside:
                self._left.set()

    def close(self) -> None:
        """Wait for those who have begun; whoever has not need not. May be called again if a signal's handler ends it."""
        with self._lock:
            self._closed = True
            if not self._inside:
                self._left.set()
        self._left.wait()


class Team:
    """What a kernel calls to have a loop shared. It belongs to one call at a time.

    Like a ``Watch`` it is a generator: nothing that a signal's handler raises may escape, for then the kernel would go on while
    others still work in its memory.
    """

    __slots__ = ("_answers", "_callback", "address", "error")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._answers = _answers(self)
        next(self._answers)
        self._callback = _CALLBACK(self._answers.send)
        self.address: int = ctypes.cast(self._callback, ctypes.c_void_p).value or 0


def _answers(team: Team) -> Generator[int, int, None]:
    """1 if all is done; 2 if something was raised meanwhile, which the kernel's caller raises again. (0, which is what the
    kernel gets if not even this could run, has it do the loop itself.)"""
    answer = 1
    while True:
        try:
            shared = yield answer
            answer = 1
            job = _Job(shared)
            try:
                _call(job)
                job.run(shared)
            finally:
                closed = False
                while not closed:
                    try:
                        job.close()
                        closed = True
                    except BaseException as error:
                        team.error, answer = error, 2
        except GeneratorExit:
            return
        except BaseException as error:
            team.error, answer = error, 2


def _call(job: _Job) -> None:
    """Ask other threads to help."""
    count = threads() - 1
    if not count:
        return
    try:
        workers = _workers(count)
        for _ in range(count):
            workers.submit(job.help)
    except RuntimeError:  # the interpreter is ending, or there can be no more threads
        pass
