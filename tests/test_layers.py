"""Imports point one way, and importing the package is quick.

The table says what each part of the compiler may import of the others; ``pullback_runtime`` knows NumPy and the standard
library only. Imports within functions count too. Imports for type checkers alone do not, for they load nothing.
"""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pullback
import pullback_runtime

COMPILER = Path(pullback.__file__).parent
RUNTIME = Path(pullback_runtime.__file__).parent
BASE = {"errors", "pullback_runtime"}  # errors and the runtime's plain data, for everybody
MAY_IMPORT = {
    "ir": {"errors"},
    "passes": {"errors", "ir"},
    "loops": {"errors", "ir"},
    "llvm": BASE | {"ir", "loops"},
    # a call of one compiled function in another copies the callee's body with the pass that inlines
    "frontends": BASE | {"ir", "passes.inline"},
    "exact": BASE | {"ir"},
    "precise": BASE | {"ir", "exact"},
    "symbolic": BASE | {"ir", "exact"},
    "wording": BASE | {"ir"},
    "identity": BASE | {"ir"},
    "serving": {"ir"},
    "remembered": BASE | {"ir", "llvm", "identity", "serving", "frontends.traced"},
    "specialize": BASE | {"collection", "ir", "passes", "llvm", "frontends.traced"},
    "transforms": BASE | {"ir", "passes", "frontends.traced", "frontends.trace"},
}
LIBRARIES = {  # besides NumPy and the standard library; everybody else has none
    "ir": {"scipy", "sympy"},  # what an op means to NumPy's and SymPy's users, called by the tests' oracles
    "llvm": {"llvmlite", "scipy"},  # SciPy brings the BLAS
    "frontends": {"sympy"},
    "symbolic": {"sympy"},
    "precise": {"mpmath"},
    "checking": {"sympy", "mpmath"},
    "api": {"sympy"},
    "graph": {"matplotlib"},
    "cli": {"click", "rich", "scipy", "sympy"},
}
HEAVY = ("sympy", "scipy", "mpmath", "click", "rich", "matplotlib", "llvmlite")


def _imports(path: Path, top_level: bool = False) -> Iterator[tuple[str, int]]:
    """Full names of what a file imports, with lines; ``top_level``: only what importing the file imports."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"), str(path))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif not (top_level and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))):
            pending.extend(ast.iter_child_nodes(node))


def _modules(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def _part(path: Path) -> str:
    """The part of the compiler that a file belongs to: a package or a module at the top."""
    first = path.relative_to(COMPILER).parts[0]
    return first.removesuffix(".py")


def _allowed(name: str, allowed: set[str]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in allowed)


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_arrows_point_one_way(part):
    files = [path for path in _modules(COMPILER) if _part(path) == part]
    assert files, f"there is no {part} any more; correct the table"
    wrong = []
    for path in files:
        for name, line in _imports(path):
            own = name.removeprefix("pullback.") if name.startswith("pullback.") else name
            if name.split(".")[0] not in ("pullback", "pullback_runtime") or _allowed(own, {part}):
                continue
            if not _allowed(own, MAY_IMPORT[part]):
                wrong.append(f"{path.relative_to(COMPILER)}:{line} imports {name}")
    assert not wrong, f"{part} may import {sorted(MAY_IMPORT[part])}:\n" + "\n".join(wrong)


def test_nothing_below_the_interface_imports_it():
    above = {"api", "compiled", "cli", "checking", "testing", "explain"}
    below = [p for p in _modules(COMPILER) if _part(p) in MAY_IMPORT]
    wrong = [(str(p), name) for p in below for name, _ in _imports(p) if _allowed(name, {f"pullback.{a}" for a in above})]
    assert not wrong


def test_the_runtime_needs_numpy_and_the_standard_library_alone():
    known = {"numpy", "pullback_runtime", *sys.stdlib_module_names}
    wrong = [(path.name, name, line) for path in _modules(RUNTIME) for name, line in _imports(path)]
    assert not [found for found in wrong if found[1].split(".")[0] not in known]


def test_each_part_uses_its_own_libraries_alone():
    wrong = []
    for path in _modules(COMPILER):
        known = {"numpy", "pullback", "pullback_runtime", *sys.stdlib_module_names, *LIBRARIES.get(_part(path), ())}
        wrong += [f"{path}:{line} {name}" for name, line in _imports(path) if name.split(".")[0] not in known]
    assert not wrong


def test_libraries_are_imported_where_they_are_used():
    """At the top of a file only within the parts that are themselves loaded for that library's sake."""
    for_the_library = {"engine.py", "blas.py", "sympy_frontend.py", "sympy_nodes.py", "sympy_plan.py"}
    wrong = []
    for path in _modules(COMPILER):
        if path.name in for_the_library or _part(path) in ("cli", "symbolic", "precise", "checking", "exact"):
            continue
        wrong += [f"{path}:{line} {name}" for name, line in _imports(path, top_level=True) if name.split(".")[0] in HEAVY]
    assert not wrong


def test_the_package_gives_the_public_names_and_nothing_else():
    assert set(pullback.__all__) == {n for n in vars(pullback) if not n.startswith("_")} - _submodules()
    assert list(pullback.__all__) == sorted(pullback.__all__)


def _submodules() -> set[str]:
    return {_part(path) for path in _modules(COMPILER)} - {"compile", "check"}


# -- what importing costs ---------------------------------------------------------------------------------------------
def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_us_loads_no_library():
    loaded = _python(f"import sys, pullback; print(*[m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded == ""


def test_importing_us_loads_neither_ops_nor_passes():
    parts = ("pullback.ir.ops", "pullback.passes", "pullback.loops", "pullback.llvm.compile", "pullback.frontends")
    loaded = _python(f"import sys, pullback; print(*[m for m in sys.modules if m.startswith({parts!r})])")
    assert loaded == ""


def test_compiling_and_calling_load_neither_sympy_nor_the_cli():
    code = "import sys, numpy as np, pullback as pb; f = pb.compile(lambda x: np.sin(x)); f.grad(-0.5)"
    names = tuple(name for name in HEAVY if name not in ("llvmlite", "scipy"))
    assert _python(f"{code}; print(*[m for m in {names!r} if m in sys.modules])") == ""


def test_importing_us_takes_little_more_than_what_we_are_made_from():
    """Processor time, which other processes disturb least, and the best of several runs. The aim is 1.2; a busy machine needs
    more room, and whatever slips in (SymPy, SciPy, the op table) costs a multiple."""
    assert _cost("import pullback") < 1.6 * _cost("import numpy, llvmlite.binding")


def _cost(code: str) -> float:
    costs = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs)
