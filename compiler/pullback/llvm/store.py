"""Object code on disk: what one process has compiled, the next one finds.

Note [The store]
~~~~~~~~~~~~~~~~
An entry is a file whose name is a digest of everything its content depends on: the texts that the caller gives, and what
``machine`` says of the versions, the compiler's own sources, and the processor. Equal keys have equal contents, so it does not
matter which of several processes writes an entry, and nothing has to be locked: it is written to a temporary file that then
takes its place in one step.

What is found is run, so the directory must be this user's alone. It is opened once, without following a link in its last part,
its owner and permissions are looked at, and files are opened relative to it from then on: what a path means may change
meanwhile, an open directory does not. A directory that others may write to is not used, and said so once. Where nothing can be
written (a read-only or full disk, no home directory) everything is compiled anew, silently.

A digest over name and content stands before the content; a file that does not match is removed and made again. Contents are
bytes that the linker or ``json`` reads. Nothing is ever unpickled.

Using an entry sets its time, and the entries that were not used for the longest time go when all together are larger than the
bound. One entry in 64 (by its digest), and whoever has written a sixteenth of the bound, looks at how large they are.

``PULLBACK_CACHE=0`` turns it off, ``PULLBACK_CACHE_DIR`` says where it is, ``PULLBACK_CACHE_SIZE`` how large (``200M``).
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

try:
    from _blake2 import blake2b  # what hashlib has, without loading OpenSSL, which takes 4 ms
except ImportError:  # another Python
    from hashlib import blake2b

PARTS = ("", "frontends", "frontends/library", "ir", "ir/ops", "passes", "loops", "llvm")  # that compiling depends on
MAGIC = b"pullback entry 1\n"
DIGEST = 32
BOUND = 256 << 20  # bytes, by default: some ten thousand functions
COUNTS = "counts"  # a file with one byte for each entry found or made
MOST_COUNTS = 1 << 20
STALE = 3600  # seconds after which a temporary file is nobody's any more
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)

_lock = threading.Lock()
_told: set[str] = set()
_temporary = 0


def object_code(parts: Sequence[bytes | str], make: Callable[[], bytes]) -> bytes:
    """What ``make`` gives, from the disk if it was made before for equal ``parts``, by this version and on such a processor.

    ``parts`` must say all that ``make`` depends on otherwise. Whatever goes wrong with the disk, ``make`` is called.
    """
    return content(entry(*parts), make) if current() is not None else make()


def content(name: str, make: Callable[[], bytes]) -> bytes:
    """The content of an entry, which ``make`` gives if it is not there."""
    store = current()
    if store is None:
        return make()
    found = store.read(name)
    if found is None:
        found = make()
        store.write(name, found)
    return found


def entry(*parts: bytes | str) -> str:
    """The name of the entry for what is made from ``parts`` by this version, on this machine."""
    return digest(machine(), *parts).hex()


def digest(*parts: bytes | str) -> bytes:
    """A digest of texts that depends on where one ends and the next begins."""
    state = blake2b(digest_size=DIGEST)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        state.update(b"%d:" % len(data))
        state.update(data)
    return state.digest()


@functools.cache
def machine() -> bytes:
    """A digest of what object code depends on besides its source: versions and the processor; without loading LLVM, if the
    system says enough of the processor."""
    from pullback_runtime import __version__

    return digest(__version__, _sources(), _llvm(), *(_processor() or _host()))


def _llvm() -> bytes:
    """Which llvmlite is there, and with it which LLVM: what the file says that holds its version."""
    for place in sys.path:  # what importing would do, without loading what it takes
        with suppress(OSError), open(os.path.join(place, "llvmlite", "_version.py"), "rb") as file:
            return file.read()
    import llvmlite

    return str(llvmlite.__version__).encode()


def _processor() -> tuple[str, ...] | None:
    """What Linux says of an x86 processor: more than enough to tell what LLVM makes of it."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            text = file.read(1 << 14).decode("ascii", "replace")  # of many processors the first is enough
    except OSError:
        return None
    first = text.partition("\n\n")[0]
    wanted = ("vendor_id", "cpu family", "model", "stepping", "flags")
    found = tuple(line for line in first.split("\n") if line.partition("\t")[0].rstrip() in wanted)
    return found if len(found) == len(wanted) else None


def _host() -> tuple[str, ...]:
    """The same from LLVM itself."""
    import llvmlite.binding as llvm

    return str(llvm.get_process_triple()), str(llvm.get_host_cpu_name()), str(llvm.get_host_cpu_features().flatten())


def _sources() -> str:
    """The sizes and times of the compiler's files, so that one under development does not find what it made yesterday."""
    import pullback_runtime

    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = []
    for place in (os.path.dirname(os.path.abspath(pullback_runtime.__file__)), *(f"{here}/{part}" for part in PARTS)):
        try:
            with os.scandir(place) as entries:
                for file in entries:
                    if file.name.endswith(".py"):
                        about = file.stat()
                        found.append((file.path, about.st_size, about.st_mtime_ns))
        except OSError:  # not installed as files
            return ""
    return repr(sorted(found))


# -- where ------------------------------------------------------------------------------------------------------------
def directory() -> str:
    """Where the cache is, whether it exists or not; empty if there is no place for it."""
    given = os.environ.get("PULLBACK_CACHE_DIR")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
        return os.path.join(base, "pullback", "cache") if base else ""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # relative ones are to be ignored, says the XDG base directory specification
        base = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    return os.path.join(base, "pullback") if os.path.isabs(base) else ""


def enabled() -> bool:
    given = os.environ.get("PULLBACK_CACHE", "")
    if given not in ("", "0", "1"):
        _tell(f"PULLBACK_CACHE={given} means nothing; 0 turns the cache of compiled code off, 1 is the default")
    return given != "0"


def bound() -> int:
    """How many bytes all entries together may take."""
    given = os.environ.get("PULLBACK_CACHE_SIZE", "").strip()
    if not given:
        return BOUND
    text = given.upper().removesuffix("B").removesuffix("I")
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    number = text[:-1].strip() if factor > 1 else text
    if not (number.isascii() and number.isdigit()):
        _tell(f"PULLBACK_CACHE_SIZE={given} is no size; a number of bytes is one, or 200M, or 1G; {BOUND >> 20}M is used")
        return BOUND
    return int(number) * factor


def status() -> dict[str, Any]:
    """What there is, for people to look at: also where the cache is turned off. Creates nothing."""
    where, limit = directory(), bound()
    found: dict[str, Any] = {"directory": where, "used": enabled(), "reason": "", "bound": limit}
    if not found["used"]:
        found["reason"] = "PULLBACK_CACHE=0 turns it off"
    elif not limit:
        found |= {"used": False, "reason": "PULLBACK_CACHE_SIZE=0 leaves no room"}
    elif not where:
        found |= {"used": False, "reason": "there is no place for it; PULLBACK_CACHE_DIR names one"}
    entries = total = hits = made = 0
    try:
        store = Store(where, limit, create=False)
    except FileNotFoundError:  # nothing was compiled yet
        pass
    except (Refused, OSError) as error:
        found |= {"used": False, "reason": found["reason"] or str(error)}
    else:
        sizes = [about.st_size for name, about in store.files() if is_entry(name)]
        entries, total = len(sizes), sum(sizes)
        hits, made = store.counts()
        store.close()
    return found | {"entries": entries, "bytes": total, "hits": hits, "made": made}


def clear() -> tuple[int, int]:
    """Remove all entries; how many, and how many bytes. OSError or Refused if the directory cannot be used."""
    try:
        store = Store(directory(), bound(), create=False)
    except FileNotFoundError:
        return 0, 0
    removed = store.clear()
    store.close()
    return removed


def current() -> Store | None:
    """The cache as the environment says now; None if there is none."""
    if not enabled():
        return None
    return _opened(directory(), bound())


@functools.lru_cache(maxsize=8)
def _opened(where: str, limit: int) -> Store | None:
    """Opened once: a directory that cannot be used is not tried again."""
    if not where or not limit:
        return None
    try:
        return Store(where, limit)
    except Refused as reason:
        _tell(f"{reason}; without it, everything is compiled anew")
    except OSError:
        pass
    return None


def _tell(text: str) -> None:
    if text not in _told:
        _told.add(text)
        import warnings  # for this only

        warnings.warn(text, stacklevel=2)


class Refused(Exception):
    """Why a directory is not safe to run code from."""


# -- the files --------------------------------------------------------------------------------------------------------
class Store:
    """An open cache directory. Its methods raise nothing."""

    def __init__(self, where: str, limit: int, create: bool = True):
        """OSError or Refused if it cannot be used."""
        self.where = where
        self.limit = limit
        self._written = 0
        if create:
            os.makedirs(where, 0o700, exist_ok=True)
        self._fd = _directory(where)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def read(self, name: str) -> bytes | None:
        """The content of an entry that is there and whole."""
        try:
            data = self._content(name)
        except OSError:
            return None
        if data is None or not _whole(name, data):
            self._remove(name)
            return None
        self._count(b"+")
        return data[len(MAGIC) + DIGEST :]

    def _content(self, name: str) -> bytes | None:
        fd = self._open(name, os.O_RDONLY)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode) or _stranger(about):
                return None
            parts = []
            while part := os.read(fd, max(1 << 16, about.st_size + 1)):
                parts.append(part)
            with suppress(OSError):  # a read-only disk: nothing goes there either
                os.utime(fd if os.utime in os.supports_fd else self._path(name))
            return b"".join(parts)
        finally:
            os.close(fd)

    def write(self, name: str, content: bytes) -> None:
        """Keep a content. Silently not, where that is impossible or it is too large."""
        if len(content) > self.limit // 4:
            return
        data = MAGIC + digest(name, content) + content
        if not self._replace(name, data):
            return
        self._count(b"-")
        self._written += len(data)
        if name[:2] < "04" or self._written > self.limit // 16:
            self.sweep()

    def _replace(self, name: str, data: bytes) -> bool:
        temporary = _temporary_name()
        try:
            fd = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileNotFoundError:  # the directory has been removed: made again at the next look
            _opened.cache_clear()
            return False
        except OSError:
            return False
        try:
            with open(fd, "wb") as file:
                file.write(data)
            os.replace(self._path(temporary), self._path(name), src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except OSError:  # the disk is full, say
            self._remove(temporary)
            return False
        except BaseException:
            self._remove(temporary)
            raise
        return True

    def sweep(self) -> None:
        """Remove the entries not used for the longest time until the rest is well within the bound, and what was left over."""
        self._written = 0
        entries, total = [], 0
        for name, about in self.files():
            if is_entry(name):
                entries.append((about.st_mtime_ns, name, about.st_size))
                total += about.st_size
            elif name == COUNTS:
                if about.st_size > MOST_COUNTS:
                    self._remove(name)
            elif about.st_mtime < time.time() - STALE:
                self._remove(name)
        if total <= self.limit:
            return
        for _, name, size in sorted(entries):
            if total <= self.limit * 3 // 4:
                break
            if self._remove(name):
                total -= size

    def clear(self) -> tuple[int, int]:
        """Remove everything; how many entries that were, and how many bytes."""
        count = total = 0
        for name, about in self.files():
            if self._remove(name) and is_entry(name):
                count += 1
                total += about.st_size
        return count, total

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Our files: entries, temporary ones and the counts; whatever else is there is left alone."""
        try:
            names = os.listdir(self.where) if self._fd is None else self._names(self._fd)
        except OSError:
            return
        for name in names:
            if name == COUNTS or is_entry(name) or (name.startswith("new-") and name.endswith(".tmp")):
                try:
                    yield name, os.stat(self._path(name), dir_fd=self._fd, follow_symlinks=False)
                except OSError:  # another process has removed it
                    continue

    @staticmethod
    def _names(directory: int) -> list[str]:
        fd = os.open(
            ".", os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=directory
        )  # its own position, others' threads have theirs
        try:
            return os.listdir(fd)
        finally:
            os.close(fd)

    def counts(self) -> tuple[int, int]:
        """How many entries were found, and how many made, since the counts began."""
        try:
            fd = self._open(COUNTS, os.O_RDONLY)
            with open(fd, "rb") as file:
                data = file.read(MOST_COUNTS * 2)
        except OSError:
            return 0, 0
        return data.count(b"+"), data.count(b"-")

    def _count(self, what: bytes) -> None:
        try:
            fd = self._open(COUNTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                os.write(fd, what)
            finally:
                os.close(fd)
        except OSError:  # no more than a number that is shown
            pass

    def _open(self, name: str, flags: int) -> int:
        return os.open(self._path(name), flags | _FLAGS, 0o600, dir_fd=self._fd)

    def _remove(self, name: str) -> bool:
        try:
            os.unlink(self._path(name), dir_fd=self._fd)
        except OSError:
            return False
        return True

    def _path(self, name: str) -> str:
        return name if self._fd is not None else os.path.join(self.where, name)


def _directory(where: str) -> int | None:
    """The directory, open and found to be this user's alone; None where directories cannot be opened."""
    if os.open not in os.supports_dir_fd:
        _examine(where, os.lstat(where))
        return None
    try:
        fd = os.open(where, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    except OSError:
        _examine(where, os.lstat(where))
        raise
    try:
        _examine(where, os.fstat(fd))
    except Refused:
        os.close(fd)
        raise
    return fd


def _examine(where: str, about: os.stat_result) -> None:
    remedy = "or set PULLBACK_CACHE_DIR to another directory"
    if stat.S_ISLNK(about.st_mode):
        raise Refused(f"the cache directory {where} is a symbolic link, which is not followed; remove it, {remedy}")
    if not stat.S_ISDIR(about.st_mode):
        raise Refused(f"the cache directory {where} is not a directory; remove it, {remedy}")
    if hasattr(os, "geteuid") and about.st_uid != os.geteuid():
        raise Refused(f"the cache directory {where} belongs to another user, whose code would be run; remove it, {remedy}")
    if _stranger(about):
        mode = stat.S_IMODE(about.st_mode)
        raise Refused(
            f"others may write to the cache directory {where} (mode {mode:o}), whose code would be run; chmod 700 it, {remedy}"
        )


def _stranger(about: os.stat_result) -> bool:
    """Whether somebody else owns this or may write to it. Windows keeps that elsewhere, and the default place private."""
    return hasattr(os, "geteuid") and (about.st_uid != os.geteuid() or bool(about.st_mode & 0o022))


def _whole(name: str, data: bytes) -> bool:
    start = len(MAGIC) + DIGEST
    return data[: len(MAGIC)] == MAGIC and data[len(MAGIC) : start] == digest(name, data[start:])


def is_entry(name: str) -> bool:
    """Whether a file's name is one of ours for an entry."""
    return len(name) == 2 * DIGEST and all(c in "0123456789abcdef" for c in name)


def _temporary_name() -> str:
    global _temporary
    with _lock:
        _temporary += 1
        return f"new-{os.getpid()}-{_temporary}-{time.time_ns()}.tmp"
