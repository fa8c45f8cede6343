"""The commands: ``run``, ``grad``, ``check``, ``explain``, ``emit``, ``cache``; an expression or file alone means ``grad``."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np

from pullback.cli.data import one_each, parse
from pullback.cli.errors import CommandError
from pullback.cli.program import Program, is_file, load, reported
from pullback.cli.show import echo_json, print_gradients, print_values, result, write
from pullback.llvm import store
from pullback.llvm.options import OPTS
from pullback.wording import output_names

STAGES = ("ir", "adjoint", "loops", "llvm", "asm", "sympy", "latex", "dot")
EXAMPLES = """\b
Examples:
  pullback 'x**2*sin(y)' --at x=1 --at y=2
  pullback run model.expr --data table.csv --at b='[0.5, 1]'
  pullback grad model.expr --data table.csv --at b=b.npy --wrt b
  pullback grad 'a @ b' --at a=a.npy --at b=b.npy --seed 1
  pullback explain '(x + y)*z' --at x=4 --at y=-3 --at z=5
  pullback check model.expr --data table.csv --at b='[0.5, 1]'
  pullback emit 'exp(x)*y' --stage adjoint
  pullback grad rosa.fpcore:Pendulum --at t0=0.5 --at w0=-1 --at N=100

\b
An expression file holds inputs with types, named steps and a return:
  X: f64[n, p]
  b: f64[p]
  y: f64[n]
  mu = exp(X @ b)
  return sum(mu - y*log(mu))
"""
_NEGATIVE = re.compile(r"-(?![-oh])[\w.(]")


class _Arguments:
    """Expressions may begin with a minus sign, which click would read as an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = [f" {a}" if _NEGATIVE.match(a) else a for a in args]
        try:
            parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # click's, by the class this is mixed into
        except click.UsageError as error:
            extra = re.search(r"unexpected extra arguments? \((.*)\)", error.format_message())
            if extra is not None and re.match(r"[A-Za-z_]\w*\s*=(?!=)", extra[1]):
                raise CommandError(one_each(extra[1])) from None
            raise
        return parsed


class _Command(_Arguments, click.Command):
    pass


class _Main(_Arguments, click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.commands, n=1, cutoff=0.7) if len(name) < 20 else []
        if near and not is_file(name) and not any(a.startswith(f"{name}=") for a in args):
            raise CommandError(f"there is no command {name!r}; did you mean {near[0]}?")
        return "grad", self.commands["grad"], args


@click.group(cls=_Main, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=True)
@click.version_option(package_name="pullback", prog_name="pullback")
def cli() -> None:
    """Exact gradients of formulas, as machine code.

    FILE is an expression file, or an expression such as 'x**2*sin(y)' itself; alone, it means grad. Of a file in FPCore that
    holds several, FILE.fpcore:NAME is one.
    """


Function = Callable[..., Any]


def _inputs(function: Function) -> Function:
    """What all commands take, for the program that they work on."""

    @functools.wraps(function)
    def loaded(
        target: str,
        at: Sequence[str],
        data: Sequence[str],
        precision: str | None,
        max_trips: int | None,
        opt: str,
        **rest: Any,
    ) -> Any:
        return function(load(target, at, data, precision, max_trips, opt), **rest)

    wrapped: Function = loaded
    precision = "The format of all numbers of an FPCore, whatever it says itself."
    trips = "Stop with an error when a loop makes more trips."
    effort = "How much time machine code is worth; auto: what there is to compile says so."
    for option in (
        click.option("--opt", type=click.Choice([str(o) for o in OPTS]), default="auto", show_default=True, help=effort),
        click.option("--max-trips", type=click.IntRange(min=0), metavar="N", help=trips),
        click.option("--precision", type=click.Choice(["binary64", "binary32"]), help=precision),
        click.option("--data", multiple=True, metavar="FILE", help="A table of inputs: .csv (columns), .npz or .json."),
        click.option("--at", multiple=True, metavar="NAME=VALUE", help="An input: a number, a list [1, 2] or a .npy file."),
        click.argument("target", metavar="FILE|EXPRESSION"),
    ):
        wrapped = option(wrapped)
    return wrapped


def _json(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def _output(function: Function) -> Function:
    return click.option("-o", "--output", metavar="FILE", help="Write the results to a .npz or .json file.")(function)


def _seed(function: Function) -> Function:
    help = (
        "The gradient of the output: a number, a list, a .npy or .json file. 1 for a scalar output if absent. "
        """Of several outputs by name: '{"call": 1}'."""
    )
    mode = "What to do with a seed of another shape than the output's."
    function = click.option("--seed-mode", type=click.Choice(["broadcast", "expand"]), help=mode)(function)
    return click.option("--seed", metavar="VALUE|FILE", help=help)(function)


@cli.command(cls=_Command)
@_inputs
@_output
@_json
def run(program: Program, output: str | None, as_json: bool) -> None:
    """The value at a point."""
    values = program.complete("run")
    with reported():
        value = program.function(**values)
    if output:
        write(output, value, None)
    if as_json:
        echo_json(result(value, None))
    elif not output:
        print_values(value)


@cli.command(cls=_Command)
@_inputs
@_seed
@click.option("--wrt", multiple=True, metavar="NAME", help="Differentiate by this input or named value only; repeatable.")
@_output
@_json
def grad(
    program: Program,
    seed: str | None,
    seed_mode: str | None,
    wrt: Sequence[str],
    output: str | None,
    as_json: bool,
) -> None:
    """The value and the gradient by each input."""
    values = program.complete("grad")
    names = list(dict.fromkeys(wrt)) or program.floating()
    if not names:
        raise CommandError(f"{program.function.__name__} has no floating input, so there is nothing to differentiate by")
    with reported(program):
        value, found = program.function.vjp(**values, seed=_seed_value(program, seed), seed_mode=seed_mode, wrt=tuple(names))
    gradients = dict(zip(names, found, strict=True))
    if output:
        write(output, value, gradients)
    if as_json:
        echo_json(result(value, gradients))
    elif not output:
        print_gradients(value, gradients, values)


def _seed_value(program: Program, seed: str | None) -> Any:
    """The seed of a single output is an array; of several it has their structure."""
    if seed is None:
        return None
    value = parse(seed, "--seed", nested=True)
    single = program.function.specialization(**program.values).output.kind == "leaf"
    return np.asarray(value, float) if single and not isinstance(value, dict) else value


@cli.command(cls=_Command)
@_inputs
@_json
def check(program: Program, as_json: bool) -> None:
    """Verify the derivatives; exit status 1 if they fail."""
    values = program.complete("check")
    with reported():
        report = program.function.check(**values)
    if as_json:
        echo_json(report.to_json())
    else:
        click.echo(report.text)
    if not report.ok:
        raise click.exceptions.Exit(1)


@cli.command(cls=_Command)
@_inputs
@_seed
@click.option("--graph", metavar="FILE", help="Draw the graph: .svg, .png or .pdf (with Matplotlib), or .dot.")
@_json
def explain(
    program: Program,
    seed: str | None,
    seed_mode: str | None,
    graph: str | None,
    as_json: bool,
) -> None:
    """The chain rule, step by step."""
    values = program.complete("explain")
    with reported(program):
        from pullback.explain import explain as tell

        story = tell(program.function, seed=_seed_value(program, seed), seed_mode=seed_mode, **values)
        if graph:
            story.save(graph)
    if as_json:
        echo_json(story.to_json())
    else:
        click.echo(story.text)


@cli.command(cls=_Command)
@_inputs
@click.option("--stage", type=click.Choice(STAGES), default="ir", show_default=True, help="What to print.")
def emit(program: Program, stage: str) -> None:
    """The text of a stage of compilation. Without inputs it is for their declared types."""
    with reported():
        click.echo(_stage(program, stage, {} if program.missing else program.values))


@cli.command(cls=_Command)
@click.option("--clear", is_flag=True, help="Remove all entries.")
@_json
def cache(clear: bool, as_json: bool) -> None:
    """The machine code kept on disk: where, how much, how often it was found."""
    try:
        removed = store.clear() if clear else (0, 0)
    except (store.Refused, OSError) as error:
        raise CommandError(str(error)) from None
    found = store.status() | ({"removed": removed[0], "removed_bytes": removed[1]} if clear else {})
    if as_json:
        echo_json(found)
        return
    if clear:
        click.echo(f"removed    {removed[0]} entries, {_size(removed[1])}")
    click.echo(f"directory  {found['directory'] or 'none'}")
    if not found["used"]:
        click.echo(f"not used:  {found['reason']}")
    click.echo(f"entries    {found['entries']}, {_size(found['bytes'])} of at most {_size(found['bound'])}")
    click.echo(f"found      {found['hits']} times, made {found['made']} times")


def _size(count: int) -> str:
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


def _stage(program: Program, stage: str, values: Mapping[str, Any]) -> str:
    function = program.function
    if stage in ("adjoint", "loops", "llvm", "asm"):
        return function.ir(stage, **values).rstrip()
    made: Any = function.specialization(**values)
    names = output_names(made.func.name, made.output.paths(""))
    if stage == "dot":
        from pullback.graph import dot

        return dot(made.func, outputs=names)
    if stage == "ir":
        return str(made.func).rstrip()
    from pullback import symbolic

    shapes = [np.shape(values[p.name]) for p in function.parameters] if values else None
    write_out = symbolic.text if stage == "sympy" else symbolic.latex
    return write_out(made.func, shapes, names if made.output.kind == "dict" else ())
