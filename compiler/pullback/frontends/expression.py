"""Expression files and inline expressions as a frontend: read once, traced for every specialization."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.errors import ExpressionError, PullbackError, ShapeError
from pullback.frontends import fpcore
from pullback.frontends.array import Array
from pullback.frontends.expression_eval import Final, Scope
from pullback.frontends.expression_names import CONSTANTS, ELEMENT_TYPES, MODULES
from pullback.frontends.expression_reader import Input, Program, check, read, walk
from pullback.frontends.expression_run import Runner
from pullback.frontends.expression_source import Source
from pullback.frontends.promote import wrap
from pullback.frontends.sizes import Length
from pullback.frontends.staging_core import Unreachable
from pullback.frontends.trace import Trace
from pullback.frontends.traced import Spec, Traced
from pullback.ir.core import UNKNOWN
from pullback.ir.dims import Dim, Size, replace, symbols
from pullback.ir.types import Type, f64
from pullback_runtime.binding import REQUIRED, Parameter
from pullback_runtime.signature import Structure, flatten

INLINE = "<expression>"


class _FileTrace(Trace):
    """Errors of the library and of the staging show the line of the file and the place in it, as all others do."""

    def __init__(self, name: str, source: Source):
        super().__init__(name, UNKNOWN)
        self.source = source

    def error(self, kind: type[PullbackError], message: str, remedy: str = "") -> PullbackError:
        loc = self.where()
        if not loc.line:
            return super().error(kind, message, remedy)
        return kind(str(self.source.at(loc.line, self.source.column(loc.line, loc.column - 1), message, remedy)))


class ExpressionFrontend:
    """A checked program. ``parameters`` are its inputs with their declared types and defaults."""

    def __init__(self, program: Program, name: str, declared: bool | Mapping[str, bool] = True, variant: str = ""):
        """``variant``: what else than the text decides what it says."""
        self.program = program
        self.name = name
        self.variant = variant
        self.doc = program.doc
        self.aliases = program.aliases
        self.parameters = tuple(
            Parameter(i.name, i.default, i.type if declared is True or (declared and declared[i.name]) else None)
            for i in program.inputs
        )

    def identity(self) -> str:
        """All that a trace depends on."""
        program = self.program
        inputs = [(i.name, str(i.type)) for i in program.inputs]
        names = (program.sizes, tuple(program.helpers), dict(program.aliases), program.endless)
        return repr((program.source.name, program.source.text, self.variant, inputs, names))

    def trace(self, arguments: Sequence[Any]) -> Traced:
        """The IR for the types of the arguments, one Spec each."""
        with _FileTrace(self.name, self.program.source) as trace:
            scope = Scope()
            inputs = list(zip(self.program.inputs, arguments, strict=True))
            for given, spec in inputs:
                value = trace.parameter(given.name, spec.type, spec.hint)
                source = f"the input {given.name}" if spec.type.shape else ""
                scope.values[given.name] = Array(trace, value, weak=spec.weak, source=source)
            evaluator = Runner(self.program, trace, self._sizes(trace, inputs))
            output = self._run(evaluator, scope)
            leaves, structure = flatten(output)
            if _has_text(structure):
                raise self._no_output(evaluator)
            arrays = [self._output(evaluator, leaf) for leaf in leaves]
            results = [array.value for array in arrays]
            trace.names = [(name, array.value) for name, array in evaluator.named.items()]
            return trace.finish(results, structure, [array.weak for array in arrays])

    def _run(self, evaluator: Runner, scope: Scope) -> Any:
        try:
            with np.errstate(all="ignore"):  # arithmetic on constants is IEEE's, as it is in the function
                return evaluator.run(evaluator.body, scope)
        except Final as final:
            raise final.reason from None
        except RecursionError:
            raise ExpressionError(f"{self.program.source.name}: its branches and loops are nested too deeply") from None
        except Unreachable:
            raise ExpressionError(f"{self.program.source.name}: an assertion fails on every way through it") from None

    def _sizes(self, trace: Trace, inputs: Sequence[tuple[Input, Spec]]) -> dict[str, Size]:
        """What the size names are: the axes that they stand for alone. Every other axis has to agree."""
        if not self.program.sizes:
            return {}
        sizes: dict[str, Size] = {}
        for given, spec in inputs:
            for declared, actual in zip(given.type.shape, spec.type.shape, strict=True):
                symbol = declared.bare_symbol() if isinstance(declared, Dim) else None
                if symbol is not None:
                    sizes.setdefault(symbol, actual)
        for given, spec in inputs:
            for declared, actual in zip(given.type.shape, spec.type.shape, strict=True):
                if isinstance(actual, Dim) and not symbols((actual,)) <= set(trace.symbols) | set(trace.equations):
                    continue  # a length such as n + 1 whose n is another axis: the types say so already
                if not trace.equate(replace(declared, sizes), actual):
                    raise ShapeError(f"the input {given.name} is declared {given.type}, got {spec.type}")
        return sizes

    def _output(self, evaluator: Runner, leaf: Any) -> Array:
        if not isinstance(leaf, (Array, Length, bool, int, float, np.generic)):
            raise self._no_output(evaluator)
        return wrap(leaf, "the output")

    def _no_output(self, evaluator: Runner) -> ExpressionError:
        return evaluator.source.error(self.program.body[-1], "an output is a number or an array", "or a tuple or dict of such")

    @staticmethod
    def load(path: str | Path, core: str = "", precision: str = "") -> ExpressionFrontend:
        """The program of a file. ExpressionError if it is wrong, OSError if it cannot be read.

        Of an FPCore file (``.fpcore``) the one named ``core``, with its numbers in ``precision`` instead of its own.
        """
        if Path(path).suffix.lower() == fpcore.SUFFIX:
            program, name = fpcore.read(path, core, precision)
            return ExpressionFrontend(program, _identifier(name), variant=f"{core} {precision}")
        return ExpressionFrontend(read(Source.read(path)), _identifier(Path(path).stem))

    @staticmethod
    def parse(text: str, name: str = INLINE) -> ExpressionFrontend:
        """The program of a text in the form of an expression file; ``name`` stands for the file in messages."""
        source = Source.of(text, name)
        source.remember()
        return ExpressionFrontend(read(source), _identifier(Path(name).stem.strip("<>")))


def inline(text: str, given: Mapping[str, Type | None] | None = None) -> ExpressionFrontend:
    """An expression such as ``x**2*sin(y)``. Unknown names are its inputs, in order of appearance: real numbers, or of the
    types in ``given`` (None: whatever the call passes). A constant such as ``e`` is an input only if it is given."""
    given = given or {}
    source = Source.of(text, INLINE)
    source.remember()
    tree = source.parse()
    expressions = [s.value for s in tree.body if isinstance(s, ast.Expr)]
    if len(tree.body) != 1 or len(expressions) != 1:
        place = tree.body[1] if len(tree.body) > 1 else tree.body[0] if tree.body else None
        if place is None:
            raise source.at(1, 0, "the expression is empty")
        raise source.error(place, "one expression expected", "write several lines into a file and pass its name")
    inputs = tuple(Input(n.id, given.get(n.id) or Type(f64), REQUIRED, n) for n in _free(expressions[0], given))
    sizes = tuple(dict.fromkeys(s for i in inputs for size in i.type.shape for s in sorted(symbols((size,)))))
    returned = ast.copy_location(ast.Return(expressions[0]), expressions[0])
    program = Program(source, "", inputs, sizes, (returned,), {})
    check(program)
    return ExpressionFrontend(program, "expression", {i.name: given.get(i.name, f64) is not None for i in inputs})


def _free(tree: ast.expr, given: Mapping[str, Any]) -> list[ast.Name]:
    """Names that are inputs: not called, and no constants, modules or element types."""
    called = {node.func for node in walk(tree) if isinstance(node, ast.Call)}
    roots = {node.value for node in walk(tree) if isinstance(node, ast.Attribute)}
    found: dict[str, ast.Name] = {}
    for node in walk(tree):
        if not isinstance(node, ast.Name) or node in called:
            continue
        known = node.id in CONSTANTS or node.id in ELEMENT_TYPES or (node in roots and node.id in MODULES)
        if node.id in given or not known:
            found.setdefault(node.id, node)
    return list(found.values())


def _identifier(text: str) -> str:
    return re.sub(r"\W", "_", text) or "expression"


def _has_text(structure: Structure) -> bool:
    return structure.kind == "text" or any(map(_has_text, structure.children))
