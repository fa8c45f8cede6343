"""The chain rule at one point, told step by step: values forward, then gradients backward, in the user's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.explain_blocks import Course, course, operands, passed_on
from pullback.ir.algebra import Numbers
from pullback.ir.core import Block, Builder, Func, Instr, Value
from pullback.ir.interp import run, trace_values
from pullback.ir.ops.base import Elementwise
from pullback.passes.activity import Activity
from pullback.passes.adjoint import adjoint
from pullback.wording import Vocabulary, output_names, value_text
from pullback_runtime import binding

if TYPE_CHECKING:
    from pullback.compiled import CompiledFunction

_LINEAR_WORDS: Mapping[str, str] = {
    "sum": "every element moves the sum by 1, so each gets the sum's gradient",
    "broadcast": "the value is used for every element, so their gradients add up",
    "reshape": "the elements keep their gradients, in the old shape",
    "transpose": "the elements keep their gradients, transposed back",
    "slice": "the elements that were taken get their gradients, the others nothing",
    "gather": "the elements that were read get their gradients, added up where one was read more than once",
    "slice_set": "the elements that were written pass their gradients to what was written",
    "concatenate": "each part gets the gradients of its own elements",
    "cumsum": "an element moves all sums from its place on",
    "max": "the largest element gets the gradient (ties share it)",
    "min": "the smallest element gets the gradient (ties share it)",
    "contract": "a product of matrices: the gradient times the other factor, transposed",
    "select": "each operand gets the gradient where it was chosen",
    "convert": "the same number in another element type",
}

_BLOCK_WORDS: Mapping[str, str] = {
    "if": "the arm that was taken passes the gradient on, the other gets nothing",
    "for": "trip by trip, the last one first; what every trip reads gets the sum over the trips",
    "while": "trip by trip, the last one first; what every trip reads gets the sum over the trips",
}


@dataclass(frozen=True)
class Forward:
    """A step of the forward pass."""

    step: int
    name: str
    text: str
    value: Any
    line: int
    course: Course | None = None  # of a branch or a loop


@dataclass(frozen=True)
class Contribution:
    """What a step passes on to an operand: ``value = adjoint * partial``; ``partial`` is None where no number says it."""

    to: str
    partial: Any
    partial_text: str
    value: Any


@dataclass(frozen=True)
class Backward:
    """A step of the reverse pass: the gradient of its result (``parts``: what it was added from), and where it goes."""

    step: int
    name: str
    text: str
    adjoint: Any
    parts: tuple[Any, ...]
    contributions: tuple[Contribution, ...]
    words: str = ""
    course: Course | None = None


@dataclass(frozen=True, repr=False)
class Explanation:
    """The whole story. ``str`` tells it to people, ``to_json`` to programs, ``save`` draws it."""

    function: str
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    seeds: Mapping[str, Any]
    forward: tuple[Forward, ...]
    backward: tuple[Backward, ...]
    gradients: Mapping[str, Any]
    parts: Mapping[str, tuple[Any, ...]]
    func: Func = field(repr=False, compare=False)
    notes: Mapping[Value, tuple[Any, Any]] = field(repr=False, compare=False)  # value and gradient of each value

    @property
    def text(self) -> str:
        given = ", ".join(f"{k} = {value_text(v)}" for k, v in self.inputs.items())
        lines = [f"{self.function} at {given}" if given else self.function, "", "Forward: each step and its value"]
        width = max((len(f"{s.name} = {s.text}") for s in self.forward), default=0)
        for s in self.forward:
            lines.append(f"  {s.step:>3}  {f'{s.name} = {s.text}':<{min(width, 48)}}  = {value_text(s.value)}")
            lines += [f"         {line}" for line in (s.course.forward() if s.course else ())]
        if not self.forward:
            lines.append("  nothing is computed: the output is an input or a constant")
        lines += ["", "Backward: by the chain rule, each step passes (gradient of its result) x (local partial) on."]
        for name, seed in self.seeds.items():
            lines.append(f"  Start: the gradient of {name} is the seed: {value_text(seed)}")
        for b in self.backward:
            lines.append(f"  {b.step:>3}  {b.name} = {b.text}")
            lines.append(f"       gradient of {b.name}: {_added(b.parts, b.adjoint)}")
            lines += [f"         {line}" for line in (b.course.backward() if b.course else ())]
            lines += [f"         {_contribution(b, c)}" for c in b.contributions]
            if b.words:
                lines.append(f"         ({b.words})")
        lines += ["", "Gradients"]
        width = max((len(n) for n in self.gradients), default=0)
        lines += [f"  {n:<{width}}  {_added(self.parts.get(n, ()), g)}" for n, g in self.gradients.items()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:  # so that a prompt shows the story
        return self.text

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "function": self.function,
            "inputs": {k: plain(v) for k, v in self.inputs.items()},
            "outputs": {k: plain(v) for k, v in self.outputs.items()},
            "seed": {k: plain(v) for k, v in self.seeds.items()},
            "forward": [
                {"step": s.step, "name": s.name, "text": s.text, "value": plain(s.value), "line": s.line, **_course_json(s)}
                for s in self.forward
            ],
            "backward": [_backward_json(b) for b in self.backward],
            "gradients": {k: plain(v) for k, v in self.gradients.items()},
        }

    def save(self, path: str | Path) -> None:
        """Draw the graph with values and gradients: ``.svg``, ``.png`` or ``.pdf`` (with Matplotlib), or ``.dot``."""
        from pullback.graph import save  # only for pictures

        save(
            self.func,
            path,
            {v: f"{value_text(a)}" + ("" if g is None else f"\ngradient {value_text(g)}") for v, (a, g) in self.notes.items()},
            tuple(self.outputs),
        )


def _added(parts: Sequence[Any], total: Any) -> str:
    if len(parts) < 2 or any(np.size(p) > 1 for p in parts):
        return value_text(total) + (f" (the sum of {len(parts)} contributions)" if len(parts) > 1 else "")
    shown = [value_text(p) for p in parts]
    return " + ".join(f"({s})" if s.startswith("-") and k else s for k, s in enumerate(shown)) + f" = {value_text(total)}"


def _contribution(b: Backward, c: Contribution) -> str:
    head = f"to {c.to}: "
    if c.partial is None:
        return f"{head}{value_text(c.value)}"
    local = value_text(c.partial)
    formula = f"d{b.name}/d{c.to} = "
    formula += local if c.partial_text in ("", local) else f"{c.partial_text} = {local}"
    if np.size(c.value) > 1:
        return f"{head}{formula}, so gradient * partial = {value_text(c.value)}"
    factor = f"({local})" if local.startswith("-") else local
    return f"{head}{formula}, so {value_text(b.adjoint)} * {factor} = {value_text(c.value)}"


def _backward_json(b: Backward) -> dict[str, Any]:
    contributions = [
        {"to": c.to, "partial": plain(c.partial), "partial_text": c.partial_text, "value": plain(c.value)}
        for c in b.contributions
    ]
    return {"step": b.step, "name": b.name, "text": b.text, "adjoint": plain(b.adjoint), "contributions": contributions}


def _course_json(step: Forward) -> dict[str, Any]:
    """How a branch or a loop went, with its trips."""
    if step.course is None:
        return {}
    trips = [
        {
            "trip": t.number,
            "values": {k: plain(v) for k, v in t.values.items()},
            "gradients": {k: plain(v) for k, v in t.gradients.items()},
        }
        for t in step.course.trips
    ]
    return {"course": step.course.summary, "trips": trips}


def plain(value: Any) -> Any:
    """JSON's numbers and lists; what JSON cannot say as text."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
        return _strings(array)
    return array.tolist()


def _strings(array: Any) -> Any:
    if np.ndim(array):
        return [_strings(part) for part in array]
    return float(array) if np.isfinite(array) else str(float(array))


# -- making it --------------------------------------------------------------------------------------------------------
def explain(
    function: CompiledFunction, *args: Any, seed: Any = None, seed_mode: str | None = None, **kwargs: Any
) -> Explanation:
    """The explanation of ``function`` at these arguments; ``seed`` as for ``vjp``."""
    values = binding.bind(function.__name__, function.parameters, args, kwargs)
    call, _, _ = function._target(values, None)
    made = call.specialization
    places, seeds = function._seeds(call, seed, seed_mode)
    func: Func = made.func  # type: ignore[attr-defined]  # the compiler's own Specialization
    seeded: list[Value] = made.values(places, func.results)  # type: ignore[attr-defined]  # as above
    outputs = output_names(func.name, made.output.paths(""))
    given = len(call.arguments.leaves)  # what follows are captured arrays, which have no gradients
    return _Story(func, outputs, call.inputs, given, seeded, seeds).tell(function.__name__)


class _Story:
    """Values forward and gradients backward for one call."""

    def __init__(
        self,
        func: Func,
        outputs: Sequence[str],
        inputs: Sequence[Any],
        given: int,
        seeded: Sequence[Value],
        seeds: Sequence[Any],
    ):
        self.func = func
        self.floats = [p for p in func.params[:given] if p.type.is_float]
        self.outputs = outputs
        self.inputs = inputs
        self.seeded = seeded
        self.seeds = seeds
        self.words = Vocabulary(func, outputs)
        self.values = trace_values(func, inputs)
        self.active = self._active()
        self.gradients = self._gradients()
        self.parts: dict[Value, list[Any]] = {}

    def _active(self) -> set[Value]:
        """Values between the floating inputs and what is seeded."""
        forward = Activity(self.func, self.floats, ()).active
        reached = set(self.seeded)
        for instr in reversed(self.func.body[:-1]):
            if any(out in reached for out in instr.outs):
                reached.update(a for a in operands(instr) if a in forward)
        return forward & reached

    def _gradients(self) -> dict[Value, Any]:
        """The gradient of every value, by the adjoint pass."""
        wanted = [v for v in (*self.func.params, *(o for i in self.func.body for o in i.outs)) if v in self.active]
        wanted += [p for p in self.floats if p not in self.active]
        reverse = adjoint(self.func, wanted, self.seeded, primal=False)
        return dict(zip(wanted, run(reverse, [*self.inputs, *self.seeds]), strict=True))

    def tell(self, name: str) -> Explanation:
        for value, seed in zip(self.seeded, self.seeds, strict=True):
            self.parts.setdefault(value, []).append(seed)
        steps = self.words.steps(self.func)
        courses = {i: self._course(i) for i in steps if i.blocks}
        forward = tuple(
            Forward(k, self.words.of(out).text, text, self.values[out], i.loc.line, course if out is shown[0] else None)
            for k, i in enumerate(steps, 1)
            for text, course in [(self.words.step(i), courses.get(i))]
            for shown in [self.words.told(i)]
            for out in shown
        )
        numbers = {i: k for k, i in enumerate(steps, 1)}
        backward = []
        for i in reversed(steps):
            reached = [out for out in i.outs if out in self.active]
            if reached and i.blocks:
                backward += self._backward_block(i, numbers[i], reached, courses[i])
            elif reached:
                backward.append(self._backward(i, numbers[i]))
        return Explanation(
            name,
            {p.name: self.values[p] for p in self.func.params},
            {n: self.values[v] for n, v in zip(self.outputs, self.func.results, strict=True)},
            {self.words.of(v).text: s for v, s in zip(self.seeded, self.seeds, strict=True)},
            forward,
            tuple(backward),
            {p.name: self.gradients[p] for p in self.floats},
            {p.name: tuple(self.parts.get(p, ())) for p in self.floats},
            self.func,
            {v: (self.values[v], self.gradients.get(v)) for v in self.values},
        )

    def _course(self, instr: Instr) -> Course:
        incoming = {out: self.gradients[out] for out in instr.outs if out in self.active}
        return course(instr, self.words, self.values, incoming, self._sizes())

    def _backward_block(self, instr: Instr, step: int, reached: Sequence[Value], course: Course) -> list[Backward]:
        """A branch or a loop: one entry for each of its results that has a gradient; the last passes all on."""
        incoming = {out: self.gradients[out] for out in reached}
        found = passed_on(instr, self.active, incoming, self.values, self._sizes())
        contributions = []
        for place, value in found.items():
            operand = operands(instr)[place]
            self.parts.setdefault(operand, []).append(value)
            contributions.append(Contribution(self.words.of(operand).text, None, "", value))
        told = []
        for out in reached:
            last = out is reached[-1]
            told.append(
                Backward(
                    step,
                    self.words.of(out).text,
                    self.words.step(instr),
                    incoming[out],
                    tuple(self.parts.get(out, ())),
                    tuple(contributions) if last else (),
                    _BLOCK_WORDS[instr.op.name] if last else "",
                    course if last else None,
                )
            )
        return told

    def _backward(self, instr: Instr, step: int) -> Backward:
        out = instr.outs[0]
        incoming = self.gradients[out]
        texts, partials = self.words.partials(instr), self._partials(instr)
        passed = self._passed_on(instr, incoming)
        contributions = []
        for arg, text, partial, value in zip(instr.args, texts, partials, passed, strict=True):
            if arg in self.active:
                self.parts.setdefault(arg, []).append(value)
                contributions.append(Contribution(self.words.of(arg).text, partial, text, value))
        words = "" if all(c.partial is not None for c in contributions) else _LINEAR_WORDS.get(instr.op.name, "")
        parts = tuple(self.parts.get(out, ()))
        return Backward(step, self.words.of(out).text, self.words.step(instr), incoming, parts, tuple(contributions), words)

    def _partials(self, instr: Instr) -> list[Any]:
        """The numbers of the local partials; None where the op has none of its own."""
        op = instr.op
        if not isinstance(op, Elementwise) or op.partials is None or op.name == "select":
            return [None] * len(instr.args)
        args = [self.values[a] for a in instr.args]
        with np.errstate(all="ignore"):
            found = op.partials(Numbers(), self.values[instr.out], *args, **instr.attrs)
        return [None if p is None else np.asarray(p, float) for p in found]

    def _passed_on(self, instr: Instr, incoming: Any) -> list[Any]:
        """What one instruction makes of its result's gradient, for each operand: the adjoint pass over that instruction."""
        operands = [Value(a.name, a.type) for a in instr.args]
        b = Builder()
        b.body.append(Instr(instr.op, instr.outs, tuple(operands), instr.attrs, instr.blocks, instr.loc))
        single = Func("step", Block(tuple(operands), b.close("return", instr.outs).body))
        wanted = [o for o, a in zip(operands, instr.args, strict=True) if a in self.active]
        found = dict(
            zip(
                wanted,
                run(adjoint(single, wanted, primal=False), [*(self.values[a] for a in instr.args), incoming], self._sizes()),
                strict=True,
            )
        )
        return [self._settled(found.get(o), incoming) for o in operands]

    def _settled(self, passed: Any, incoming: Any) -> Any:
        """Where the gradient is exactly zero nothing is passed on, whatever the partial of an untaken branch."""
        if passed is None or np.shape(passed) != np.shape(incoming):
            return passed
        return np.where((np.asarray(incoming) == 0) & ~np.isfinite(passed), 0.0, passed)

    def _sizes(self) -> dict[str, int]:
        from pullback.ir.interp import bind

        return bind(self.func, [np.shape(v) for v in self.inputs], {})


__all__ = ["Explanation", "explain"]
