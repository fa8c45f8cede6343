"""The cache of compiled code on disk: what is found, what is not, whom it trusts, and what it does when it cannot work."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.identity import Identity, Unknown
from pullback.ir.core import Func
from pullback.ir.parse import parse_func
from pullback.llvm import compile as compiling
from pullback.llvm import compile_kernel, image, kernels, store
from pullback.llvm.options import Options

posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and permissions are those of POSIX")
SQUARE = "func @f(%x: f64[n]) -> f64[n] {\n  %y = mul %x, %x : f64[n]\n  return %y\n}\n"
PICK = """func @{name}(%x: f64[n], %i: i64) -> f64 {{
  %k = check_index %i {{axis = 0, size = n}} : i64
  %y = gather %x, %k : f64
  return %y
}}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache, and a process that has compiled nothing."""
    where = tmp_path / "cache"
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(where))
    for name in ("PULLBACK_CACHE", "PULLBACK_CACHE_SIZE", "PULLBACK_CHECK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(store, "_told", set())
    monkeypatch.setattr(store, "_sources", lambda: "the same")  # also while somebody is editing them
    store.machine.cache_clear()
    forget(monkeypatch)
    yield where
    store.machine.cache_clear()


def forget(monkeypatch):
    """As in a new process."""
    store._opened.cache_clear()
    monkeypatch.setattr(compiling, "_cache", type(compiling._cache)())


def entries(where):
    return sorted(p for p in where.iterdir() if len(p.name) == 64)


def made_by(calls, content=b"some code"):
    def make():
        calls.append(1)
        return content

    return make


# -- entries ----------------------------------------------------------------------------------------------------------
def test_the_second_time_it_is_found(place):
    calls = []
    assert store.object_code(("a", b"b"), made_by(calls)) == b"some code"
    assert store.object_code(("a", b"b"), made_by(calls)) == b"some code"
    assert len(calls) == 1 and len(entries(place)) == 1
    assert store.current().counts() == (1, 1)


def test_parts_are_told_apart_where_they_end(place):
    for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("2:ab", "c")):
        store.object_code(parts, lambda: b"x")
    assert len(entries(place)) == 5


def test_another_machine_or_version_finds_nothing(place, monkeypatch):
    calls = []
    store.object_code(("a",), made_by(calls))
    for name, value in (("_processor", ("another",)), ("_llvm", b"0.1"), ("_sources", "edited")):
        store.machine.cache_clear()
        with monkeypatch.context() as changed:
            changed.setattr(store, name, lambda value=value: value)
            store.object_code(("a",), made_by(calls))
    store.machine.cache_clear()
    store.object_code(("a",), made_by(calls))
    assert len(calls) == 4


def test_where_the_system_says_nothing_of_the_processor_llvm_does(place, monkeypatch):
    monkeypatch.setattr(store, "_processor", lambda: None)
    store.machine.cache_clear()
    first = store.machine()
    store.machine.cache_clear()
    assert store.machine() == first
    with monkeypatch.context() as other:
        other.setattr(store, "_processor", lambda: ("another",))
        store.machine.cache_clear()
        assert store.machine() != first


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "longer", "other entry"])
def test_a_damaged_entry_is_made_anew(place, damage):
    calls = []
    store.object_code(("a",), made_by(calls, b"x" * 1000))
    store.object_code(("b",), made_by([], b"y" * 1000))
    (path,) = [p for p in entries(place) if b"x" * 9 in p.read_bytes()]
    (other,) = [p for p in entries(place) if p != path]
    data = path.read_bytes()
    changed = {
        "flip": data[:500] + b"z" + data[501:],
        "cut": data[:-1],
        "empty": b"",
        "longer": data + b"x",
        "other entry": other.read_bytes(),
    }
    path.write_bytes(changed[damage])
    assert store.object_code(("a",), made_by(calls, b"x" * 1000)) == b"x" * 1000
    assert len(calls) == 2 and path.read_bytes() == data


def test_what_fails_to_be_made_is_not_kept(place):
    def fails():
        raise ValueError("no such code")

    with pytest.raises(ValueError, match="no such code"):
        store.object_code(("a",), fails)
    assert not entries(place)


# -- whom it trusts ---------------------------------------------------------------------------------------------------
@posix
def test_what_it_makes_is_private(place):
    store.object_code(("a",), lambda: b"x")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in place.iterdir()} == {0o600}


@posix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_may_write_to_is_not_used(place, mode):
    place.mkdir()
    place.chmod(mode)
    with pytest.warns(UserWarning, match=f"others may write to the cache directory .* \\(mode {mode:o}\\).*chmod 700 it"):
        assert store.object_code(("a",), lambda: b"x") == b"x"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert store.object_code(("a",), lambda: b"y") == b"y"
        forget_directory()
        assert store.object_code(("a",), lambda: b"y") == b"y"
    assert not list(place.iterdir())


def forget_directory():
    store._opened.cache_clear()


@posix
def test_a_directory_of_somebody_else_is_not_used(place, monkeypatch):
    place.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: place.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="belongs to another user, whose code would be run"):
        assert store.object_code(("a",), lambda: b"x") == b"x"


@posix
def test_links_are_not_followed(place, tmp_path):
    real = tmp_path / "elsewhere"
    real.mkdir(mode=0o700)
    place.symlink_to(real)
    with pytest.warns(UserWarning, match="is a symbolic link, which is not followed"):
        assert store.object_code(("a",), lambda: b"x") == b"x"
    assert not list(real.iterdir())


@posix
def test_an_entry_that_is_a_link_or_no_file_is_not_read(place, tmp_path):
    calls = []
    store.object_code(("a",), made_by(calls))
    (path,) = entries(place)
    aside = tmp_path / "aside"
    path.rename(aside)
    path.symlink_to(aside)
    assert store.object_code(("a",), made_by(calls)) == b"some code"
    assert len(calls) == 2 and not path.is_symlink()
    path.unlink()
    os.mkfifo(path)  # reading one would wait for a writer
    assert store.object_code(("a",), made_by(calls)) == b"some code"
    assert len(calls) == 3 and path.is_file()


@posix
def test_an_entry_that_others_may_write_to_is_not_read(place):
    calls = []
    store.object_code(("a",), made_by(calls))
    (path,) = entries(place)
    path.chmod(0o666)
    store.object_code(("a",), made_by(calls))
    assert len(calls) == 2 and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_in_its_place_is_left_alone(place):
    place.write_text("mine")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert store.object_code(("a",), lambda: b"x") == b"x"
    assert place.read_text() == "mine"


# -- where it cannot work ---------------------------------------------------------------------------------------------
def test_it_can_be_turned_off(place, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE", "0")
    calls = []
    for _ in range(2):
        store.object_code(("a",), made_by(calls))
    assert len(calls) == 2 and not place.exists()


def test_a_setting_that_means_nothing_is_spoken_of(place, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE", "maybe")
    with pytest.warns(UserWarning, match="PULLBACK_CACHE=maybe means nothing; 0 turns"):
        assert store.enabled()


@pytest.mark.parametrize(
    ("text", "bound"),
    [("", store.BOUND), ("1000", 1000), ("3k", 3072), ("200M", 200 << 20), ("1GB", 1 << 30), ("2 MiB", 2 << 20), ("0", 0)],
)
def test_sizes(place, monkeypatch, text, bound):
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", text)
    assert store.bound() == bound


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "M", "²"])
def test_what_is_no_size_is_spoken_of(place, monkeypatch, text):
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", text)
    with pytest.warns(UserWarning, match="is no size; a number of bytes is one"):
        assert store.bound() == store.BOUND


def test_a_disk_that_takes_nothing_breaks_nothing(place, monkeypatch):
    store.object_code(("kept",), lambda: b"x")
    real = os.open

    def full(path, flags, *args, **kwargs):
        if flags & (os.O_WRONLY | os.O_CREAT):
            raise OSError(28, "No space left on device")
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", full)
    calls = []
    for _ in range(2):
        assert store.object_code(("a",), made_by(calls)) == b"some code"
    assert len(calls) == 2
    assert store.object_code(("kept",), lambda: b"other") == b"x"


def test_a_write_that_breaks_off_leaves_nothing(place, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    assert store.object_code(("a",), lambda: b"x") == b"x"
    assert not [p for p in place.iterdir() if p.name != store.COUNTS]


def test_where_no_directory_can_be_made_nothing_is_said(place, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PULLBACK_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.object_code(("a",), lambda: b"x") == b"x"


def test_a_directory_that_is_removed_is_made_again(place):
    store.object_code(("a",), lambda: b"x")
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    calls = []
    for _ in range(3):
        assert store.object_code(("a",), made_by(calls)) == b"some code"
    assert len(calls) == 2


@pytest.mark.parametrize(("variable", "value", "end"), [("XDG_CACHE_HOME", "x", "x/pullback"), ("HOME", "h", "pullback")])
def test_where_it_is(tmp_path, monkeypatch, variable, value, end):
    monkeypatch.delenv("PULLBACK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / value))
    if sys.platform != "win32":
        found = Path(store.directory())
        assert found.is_relative_to(tmp_path) and found.as_posix().endswith(end)


# -- the bound --------------------------------------------------------------------------------------------------------
def test_what_was_not_used_for_the_longest_time_goes(place, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", "100k")
    for k in range(20):
        store.object_code((f"{k}",), lambda: os.urandom(4000))
        store.object_code(("used",), lambda: b"always" * 100)
    disk = store.current()
    for age, path in enumerate(sorted(entries(place), key=lambda p: p.stat().st_mtime_ns)):
        os.utime(path, ns=(age * 10**9, age * 10**9))  # far apart, whatever the clock of the file system
    store.object_code(("used",), lambda: b"never")
    for k in range(20, 60):
        store.object_code((f"{k}",), lambda: os.urandom(4000))
        store.object_code(("used",), lambda: b"never")
    disk.sweep()
    assert sum(p.stat().st_size for p in entries(place)) <= 100 << 10
    calls = []
    assert store.object_code(("used",), made_by(calls)) == b"always" * 100
    store.object_code(("0",), made_by(calls))
    assert len(calls) == 1


def test_what_is_larger_than_a_quarter_of_the_bound_is_not_kept(place, monkeypatch):
    monkeypatch.setenv("PULLBACK_CACHE_SIZE", "1000")
    assert store.object_code(("a",), lambda: b"x" * 251) == b"x" * 251
    assert not entries(place)


def test_what_a_killed_process_left_is_swept_up(place):
    store.object_code(("a",), lambda: b"x")
    old, new, foreign = (place / name for name in ("new-1-1-1.tmp", "new-2-1-1.tmp", "notes.txt"))
    for path in (old, new, foreign):
        path.write_text("")
    os.utime(old, (0, 0))
    os.utime(foreign, (0, 0))
    store.current().sweep()
    assert not old.exists() and new.exists() and foreign.exists()
    assert store.clear() == (1, len(store.MAGIC) + store.DIGEST + 1)
    assert [p.name for p in place.iterdir()] == ["notes.txt"]


# -- kernels ----------------------------------------------------------------------------------------------------------
def test_a_kernel_that_is_found_is_the_one_that_was_made(place, monkeypatch):
    func = parse_func(SQUARE)
    made = compile_kernel(func)
    forget(monkeypatch)
    with monkeypatch.context() as off:
        off.setattr(compiling, "_packed", None)  # nothing is compiled
        found = compile_kernel(func)
    assert found is not made and found.signature == made.signature
    x = np.array([1.5, -2.0, 3.0])
    assert np.array_equal(found([x])[0], x * x)
    for stage in ("loops", "llvm", "optimized", "asm"):
        assert found.texts(stage) == made.texts(stage)


def test_options_are_part_of_the_key(place, monkeypatch):
    func = parse_func(SQUARE)
    for options in (Options(), Options(fast_math=True), Options(opt=0), Options(opt=1), Options(opt=3)):
        forget(monkeypatch)
        x = np.array([1.5, -2.0])
        assert np.array_equal(compile_kernel(func, options)([x])[0], x * x)
    assert len(entries(place)) == 5


def test_equal_code_keeps_the_names_and_places_of_each_function(place, monkeypatch):
    first = parse_func(PICK.format(name="first"))
    second = parse_func("\n\n# two lines further down\n" + PICK.format(name="second"))
    with pytest.raises(IndexError) as error:
        compile_kernel(first)([np.arange(3.0), 7])
    assert "index 7 is out of bounds for axis 0 with size 3" in str(error.value) and ":2" in str(error.value)
    forget(monkeypatch)
    kernel = compile_kernel(second)
    assert store.current().counts()[0] == 1
    with pytest.raises(IndexError) as error:
        kernel([np.arange(3.0), -4])
    assert "index -4 is out of bounds for axis 0 with size 3" in str(error.value) and ":5" in str(error.value)
    assert kernel.signature.name == "second"
    with pytest.raises(TypeError, match="second takes 2 arguments"):
        kernel([np.arange(3.0)])


def test_where_an_image_cannot_be_loaded_the_linker_of_llvm_does_it(place, monkeypatch):
    func: Func = parse_func(SQUARE)

    def refused(*args):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(kernels, "Loaded", refused)
    x = np.array([1.5, -2.0])
    assert np.array_equal(compile_kernel(func)([x])[0], x * x)
    forget(monkeypatch)
    monkeypatch.setattr(image.sys, "platform", "elsewhere")  # where there are no images at all
    assert np.array_equal(compile_kernel(func)([x])[0], x * x)


def test_several_threads_compile_the_same(place, monkeypatch):
    found = []
    func = parse_func(SQUARE)  # not by threads: Python 3.11 cannot always parse in several at once

    def work():
        x = np.array([1.5, -2.0])
        found.append(np.array_equal(compile_kernel(func)([x])[0], x * x))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8


# -- processes --------------------------------------------------------------------------------------------------------
PROGRAM = """
import sys
import numpy as np
import pullback as pb

SCALE = 1.0

def helper(x):
    return np.tanh(x) * SCALE

@pb.compile
def loss(w, X, y):
    return np.mean(np.log1p(np.exp(-y * (X @ w)))) + np.sum(helper(w))

w, X, y = np.linspace(-1, 1, 9), np.linspace(-1, 1, 270).reshape(30, 9), np.where(np.arange(30) % 2, 1.0, -1.0)
value, gradient = loss.value_and_grad(w, X, y, wrt="w")
print(value.hex(), gradient.tobytes().hex()[:64], "pullback.specialize" in sys.modules, "llvmlite" in sys.modules)
"""


def script(tmp_path, text=PROGRAM, name="program.py"):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return path


def run(path, *args, **env):
    done = subprocess.run([sys.executable, str(path), *args], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_another_process_neither_traces_nor_loads_llvm(place, tmp_path):
    path = script(tmp_path)
    first, *_ = run(path)
    second, *_ = run(path)
    assert first.split()[2:] == ["True", "True"]
    assert second.split()[:2] == first.split()[:2]
    if sys.platform == "linux":
        assert second.split()[2:] == ["False", "False"]


def test_who_wants_to_see_the_passes_sees_them(place, tmp_path):
    path = script(tmp_path)
    run(path)
    for name, value in (("PULLBACK_CHECK", "1"), ("PULLBACK_DUMP", "adjoint")):
        assert run(path, **{name: value})[0].split()[2] == "True"


@pytest.mark.parametrize("change", [("np.tanh(x) * SCALE", "np.sin(x) * SCALE"), ("SCALE = 1.0", "SCALE = 2.0")])
def test_what_the_function_reaches_is_part_of_the_key(place, tmp_path, change):
    path = script(tmp_path)
    before, *_ = run(path)
    script(tmp_path, PROGRAM.replace(*change))
    after, *_ = run(path)
    again, *_ = run(path)
    assert before.split()[1] != after.split()[1] == again.split()[1]


def test_a_module_of_the_user_is_part_of_the_key(place, tmp_path):
    path = script(tmp_path, PROGRAM.replace("helper(w)", "own.helper(w)").replace("import sys", "import sys, own"))
    script(tmp_path, "import numpy as np\nK = 2.0\ndef helper(x):\n    return x * K\n", "own.py")
    before, *_ = run(path)
    assert run(path)[0].split()[:3] == [*before.split()[:2], "False"]
    script(tmp_path, "import numpy as np\nK = 3.0\ndef helper(x):\n    return x * K\n", "own.py")
    os.utime(tmp_path / "own.py", (1, 1))
    assert run(path)[0].split()[1] != before.split()[1]


def test_processes_at_once(place, tmp_path):
    path = script(tmp_path)
    started = [subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    found = {process.communicate()[0].split()[0] for process in started}
    assert len(found) == 1 and all(process.returncode == 0 for process in started)
    assert not list(place.glob("*.tmp"))


ERRORS = """
import numpy as np
import pullback as pb

def pick(x, i):
    return x[i] * 2.0
{gap}
f = pb.compile(pick)
x = np.arange(20.0)
f(x, 3)
for wrong in (20, -21):
    try:
        f(x, wrong)
    except IndexError as error:
        print(error)
try:
    f.grad(x, 3, seed=np.ones(2))
except pb.SeedError as error:
    print(error)
print(f.ir("asm", x, 3).count("ret"), f.cache_info().reasons[0])
f2 = f.pullback(x, 3)[1](2.0)
print(f2.sum())
"""


def test_messages_and_texts_are_the_same_from_disk(place, tmp_path):
    path = script(tmp_path, ERRORS.format(gap=""))
    first = run(path)
    assert run(path) == first
    assert f"{path}:6" in first[0] and "index 20 is out of bounds" in first[0]
    moved = ERRORS.replace("def pick", "\n\n\ndef pick").format(gap="")
    assert f"{script(tmp_path, moved)}:9" in run(path)[0]


GUARDS = """
import sys
import numpy as np
import pullback as pb

SCALE = 2.0

@pb.compile
def f(x):
    if x.shape[0] > 30:
        return np.sum(x) * SCALE
    return np.sum(x * x) * SCALE

n = int(sys.argv[1])
print(f.value_and_grad(np.full(n, 3.0))[0], "pullback.specialize" in sys.modules)
SCALE = 10.0
print(f.value_and_grad(np.full(n, 3.0))[0])
SCALE = 2.0
print(f.value_and_grad(np.full(n, 3.0))[0])
"""


def test_guards_hold_for_what_is_remembered(place, tmp_path):
    path = script(tmp_path, GUARDS)
    for n, value in ((20, 180.0), (20, 180.0), (40, 120.0), (40, 120.0), (20, 180.0)):
        first, changed, back, _ = run(path, str(n))
        assert [float(v) * 2.0 for v in (first.split()[0], back)] == [value * 4.0, value * 4.0]
        assert float(changed) == value * 10.0


KINDS = """
import sys
import numpy as np
import pullback as pb

@pb.compile
def f(p, *, k: pb.f64["n"]):
    return {{"a": p["u"] * k, "b": (np.sum(k), p["v"])}}

p, k = {{"u": 2.0, "v": np.arange(3.0)}}, np.linspace(0.0, 1.0, 12)
value = f(p, k=k)
seed = {{"a": np.ones(12), "b": (-1.0, np.ones(3))}}
value2, (gp, gk) = f.vjp(p, k=k, seed=seed)
direction, tangent = f.jvp(p, k=k, tangents={{"k": np.ones(12)}})
print(sorted(value), value["b"][0], gp["u"], gp["v"], gk[:3], tangent["a"][:2])
print("pullback.specialize" in sys.modules)
"""


def test_structures_come_back_from_disk(place, tmp_path):
    path = script(tmp_path, KINDS.format())
    first, second = run(path), run(path)
    assert first[0] == second[0]
    assert (first[1], second[1]) == ("True", "False")


CAPTURES = """
import sys
import numpy as np
import pullback as pb

X = np.linspace(-1.0, 1.0, 60).reshape(20, 3)

def make(y):
    def loss(w):
        return np.mean((X @ w - y) ** 2)
    return pb.value_and_grad(loss, wrt="w")

f = make(np.arange(20))
w = np.array([1.0, -2.0, 0.5])
print(f(w), "pullback.specialize" in sys.modules)
X = X * 2.0
print(f(w))
X = X.astype(np.float32).astype(np.float64)[:, ::-1]
print(f(w))
X = X[:10]
try:
    f(w)
except ValueError as error:
    print(type(error).__name__)
"""


def test_captured_arrays_and_transforms(place, tmp_path):
    path = script(tmp_path, CAPTURES)
    first, second = run(path), run(path)
    assert first[0].endswith("True") and second[0].endswith("False")
    assert [line.removesuffix(" True").removesuffix(" False") for line in second] == [
        line.removesuffix(" True").removesuffix(" False") for line in first
    ]


VALUES = """
import sys
import numpy as np
import pullback as pb

PAIR = (2.0, (3.0, -1.0))
ORDER = np.array([2, 0, 1])

@pb.compile
def f(x):
    total = x[0] * PAIR[1][0]
    for k in ORDER:
        total = total * x[k] + PAIR[0]
    return total

x = np.array([1.0, -2.0, 0.5])
print(f.grad(x), "pullback.specialize" in sys.modules)
PAIR = (2.0, (5.0, -1.0))
print(f.grad(x))
ORDER[:] = [1, 2, 0]
print(f.grad(x))
ORDER = np.array([0, 0, 0])
print(f.grad(x))
"""


def test_values_that_a_trace_looked_at_are_looked_at_again(place, tmp_path):
    path = script(tmp_path, VALUES)
    first, second = run(path), run(path)
    assert first[0].endswith("True") and first[1:] == second[1:] and len(set(first)) == 5
    assert first[0].rpartition(" ")[0] == second[0].rpartition(" ")[0]


def test_the_command_finds_what_it_compiled(place, tmp_path):
    path = tmp_path / "model.expr"
    path.write_text("x: f64[n]\nk: f64 = 2.0\nq = x * k\nreturn sum(q**2)\n")
    args = ("grad", str(path), "--at", "x=[1, -2]")
    first = command(*args)
    made = store.status()["made"]
    assert command(*args) == first and store.status()["made"] == made
    path.write_text("x: f64[n]\nk: f64 = 2.0\nq = x * k\nreturn sum(q**3)\n")
    assert command(*args)[1] != first[1]
    assert "there is no input z" in command("grad", str(path), "--at", "x=[1, -2]", "--at", "z=1")[2]


# -- identity ---------------------------------------------------------------------------------------------------------
LIMIT = 3.0
TABLE = [1.0, 2.0]
DATA = np.ones(4)


def outer(x):
    return inner(x) * LIMIT


def inner(x):
    return np.exp(x) + outer.__name__.count("o") if False else np.exp(x)


def reads_a_list(x):
    return x * TABLE[0]


def reads_an_array(x):
    return np.sum(x * DATA)


def imports(x):
    import math

    return x * math.pi


def looks_up(x):
    return x * globals()["LIMIT"]


def opens(x):
    return x * len(open("/dev/null").read())


class Model:
    scale = 2.0


MODEL = Model()


def reads_an_object(x):
    return x * MODEL.scale


def test_an_identity_is_the_same_twice_and_says_when_it_has_changed(monkeypatch):
    first, second = Identity(outer), Identity(outer)
    assert first.parts == second.parts and first.unchanged() and first.watches
    monkeypatch.setitem(globals(), "LIMIT", 4.0)
    assert not first.unchanged() and Identity(outer).parts != first.parts


def test_constants_that_compare_equal_are_told_apart(monkeypatch):
    monkeypatch.setitem(globals(), "LIMIT", 0.0)
    positive = Identity(outer).parts
    for other in (-0.0, 0, False, np.float64(0.0), np.float32(0.0)):
        monkeypatch.setitem(globals(), "LIMIT", other)
        assert Identity(outer).parts != positive


@pytest.mark.parametrize("function", [reads_a_list, imports, looks_up, opens, reads_an_object, np.sin, Model().__init__, len])
def test_what_has_no_identity(function):
    with pytest.raises(Unknown):
        Identity(function)


def test_of_arrays_the_type_counts(monkeypatch):
    first = Identity(reads_an_array)
    assert list(first.arrays) == ["global DATA"] and first.arrays["global DATA"][0]() is DATA
    monkeypatch.setitem(globals(), "DATA", np.zeros(4))
    assert first.unchanged() and Identity(reads_an_array).parts == first.parts
    for other in (np.zeros(5), np.zeros((4, 1)), np.zeros(4, np.float32), [0.0] * 4):
        monkeypatch.setitem(globals(), "DATA", other)
        try:
            assert Identity(reads_an_array).parts != first.parts
        except Unknown:
            assert isinstance(other, list)


def test_code_without_a_file_has_no_identity():
    space = {}
    exec("def f(x):\n    return x", space)
    with pytest.raises(Unknown):
        Identity(space["f"])


def test_a_text_that_was_edited_since_is_another(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("def f(x):\n    return x * 2.0\n")
    space = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    before = Identity(space["f"]).parts
    path.write_text("def f(x):\n    return x * 3.0\n")
    os.utime(path, (1, 1))
    assert Identity(space["f"]).parts != before


# -- the command ------------------------------------------------------------------------------------------------------
def command(*args, **env):
    done = subprocess.run(
        [sys.executable, "-m", "pullback.cli", *args], capture_output=True, text=True, env={**os.environ, **env}
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command(place):
    assert json.loads(command("cache", "--json")[1])["entries"] == 0
    assert not place.exists()  # looking at it makes nothing
    compile_kernel(parse_func(SQUARE))
    code, text, _ = command("cache")
    assert code == 0 and str(place) in text and "entries    1, " in text and "made 1 times" in text
    found = json.loads(command("cache", "--clear", "--json")[1])
    assert (found["removed"], found["entries"], found["directory"]) == (1, 0, str(place))
    assert "PULLBACK_CACHE=0 turns it off" in command("cache", PULLBACK_CACHE="0")[1]


@posix
def test_the_command_says_why_a_directory_is_not_used(place):
    place.mkdir()
    place.chmod(0o777)
    assert "not used:  others may write to the cache directory" in command("cache")[1]
    code, _, error = command("cache", "--clear")
    assert code == 2 and "others may write" in error


# -- opt= -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("opt", ["auto", 0, 1, 2, 3])
def test_results_are_the_same_bits_at_every_level(opt):
    def f(x, y):
        return np.sum(np.exp(x) * y) + np.mean(np.tanh(x - y))

    x, y = np.linspace(-2.0, 1.0, 37), np.linspace(3.0, -1.0, 37)
    value, (gx, gy) = pb.compile(f, opt=opt).value_and_grad(x, y)
    plain, (px, py) = pb.compile(f).value_and_grad(x, y)
    assert value == plain and np.array_equal(gx, px) and np.array_equal(gy, py)


@pytest.mark.parametrize("opt", [4, -1, "fast", True, 1.0, None, "2"])
def test_what_is_no_level_is_refused(opt):
    with pytest.raises(pb.PullbackError, match='opt is "auto" or a number from 0 to 3; got'):
        pb.compile(lambda x: x, opt=opt)


def test_transforms_keep_the_level():
    f = pb.compile(lambda x: x * x, opt=0)
    assert pb.grad(f).options.opt == 0
