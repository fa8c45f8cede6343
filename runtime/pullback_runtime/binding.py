"""From what a user passes to what a kernel takes: arguments by name, ``wrt``, seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback_runtime.errors import DTypeError, PullbackError, SeedError, ShapeError
from pullback_runtime.signature import FLOATS, LEAF, NUMPY, Leaf, Structure, canonical, fields_of, flatten, shape_key

RESERVED = ("seed", "seeds", "seed_mode", "wrt", "out", "tangents", "vector", "axes")
REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """A parameter of a Function. ``declared``: a tree of types for its leaves, where the user declared them.

    ``seed``: it takes seeds or tangents, which are floating whatever the arguments are.
    """

    name: str
    default: Any = REQUIRED
    declared: Any = None
    seed: bool = False

    def __str__(self) -> str:
        declared = "" if self.declared is None else f": {self.declared}"
        return self.name + declared + ("" if self.default is REQUIRED else f" = {self.default!r}")


def refuse_reserved(name: str, parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        if parameter.name in RESERVED:
            raise PullbackError(
                f"{name} has a parameter named {parameter.name!r}, which vjp, jvp and their like take themselves; rename it"
            )


def bind(name: str, parameters: Sequence[Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The value of every parameter, as Python binds calls. TypeErrors name the signature."""
    if len(args) == len(parameters) and not kwargs:
        return list(args)
    signature = f"{name}({', '.join(map(str, parameters))})"
    if len(args) > len(parameters):
        raise TypeError(f"{signature} takes {len(parameters)} arguments, got {len(args)}")
    values = list(args)
    left = dict(kwargs)
    missing = []
    for parameter in parameters[len(args) :]:
        if parameter.name in left:
            values.append(left.pop(parameter.name))
        elif parameter.default is not REQUIRED:
            values.append(parameter.default)
        else:
            missing.append(parameter.name)
            values.append(None)
    for extra in left:
        names = [p.name for p in parameters]
        if extra in names:
            raise TypeError(f"{signature} got {extra!r} twice, by position and by name")
        hint = "; use vjp, which takes a seed" if extra in ("seed", "seed_mode") else did_you_mean(extra, names)
        raise TypeError(f"{signature} has no input named {extra!r}{hint}")
    if missing:
        raise TypeError(f"{signature} needs {', '.join(map(repr, missing))} too")
    return values


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: the known one that is nearest to it, whatever the case of letters."""
    import difflib  # for errors only

    lowered = {k.lower(): k for k in reversed(known)}
    near = difflib.get_close_matches(word.lower(), lowered, n=1)
    return f"; did you mean {lowered[near[0]]!r}?" if near else ""


# -- arguments ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Arguments:
    """A call's arguments: canonical leaves in order, and the key of the specialization that serves them."""

    leaves: list[Any]
    key: tuple[tuple[Structure, tuple[Leaf, ...]], ...]

    def spans(self) -> list[range]:
        """For each parameter, the positions of its leaves."""
        spans, start = [], 0
        for _, leaves in self.key:
            spans.append(range(start, start + len(leaves)))
            start += len(leaves)
        return spans

    def kinds(self) -> list[Leaf]:
        return [leaf for _, leaves in self.key for leaf in leaves]


def arguments(parameters: Sequence[Parameter], values: Sequence[Any], floats: frozenset[int], symbolic: bool) -> Arguments:
    """Canonical leaves and key. Python integers are float64 in the parameters ``floats``, or if all arguments are Python
    integers; beside an array of integers they stay what they are, as in NumPy."""
    trees, found, any_strong = [], [], False
    for parameter, value in zip(parameters, values, strict=True):
        leaves, structure = flatten(value)
        paths = structure.paths(parameter.name) if structure is not LEAF else [parameter.name]
        made = [canonical(leaf, path) for leaf, path in zip(leaves, paths, strict=True)]
        any_strong = any_strong or (not parameter.seed and any(dtype in FLOATS or not weak for _, dtype, weak in made))
        trees.append(structure)
        found.append(made)
    canon: list[Any] = []
    key = []
    for k, (parameter, structure, made) in enumerate(zip(parameters, trees, found, strict=True)):
        declared = [None] * len(made) if parameter.declared is None else flatten(parameter.declared)[0]
        if len(declared) != len(made):
            raise TypeError(f"{parameter.name} is declared as {parameter.declared}, got {structure}")
        row = []
        for (value, dtype, weak), spec in zip(made, declared, strict=True):
            if spec is not None:
                value, dtype, weak = _as_declared(parameter.name, value, dtype, spec), spec.dtype.name, False
            elif dtype == "i64" and weak and (k in floats or parameter.seed or not any_strong):
                value, dtype = float(value), "f64"
            canon.append(value)
            shape = shape_key(np.shape(value), symbolic or spec is not None)
            row.append(Leaf(dtype, shape, weak, spec))
        key.append((structure, tuple(row)))
    return Arguments(canon, tuple(key))


def _as_declared(name: str, value: Any, dtype: str, spec: Any) -> Any:
    """A value in the element type that was declared for it, if that loses nothing."""
    wanted = NUMPY[spec.dtype.name]
    if np.ndim(value) != len(spec.shape):
        raise ShapeError(f"{name} is declared as {spec}, got {_shaped(value)}")
    if dtype == spec.dtype.name:
        return value
    if not (np.can_cast(NUMPY[dtype], wanted, "same_kind") or (dtype == "i64" and wanted.kind == "f")):
        raise DTypeError(f"{name} is declared as {spec}, got {dtype}; convert it, for example with .astype({wanted})")
    return np.asarray(value).astype(wanted)[()]


def _shaped(value: Any) -> str:
    return f"an array of shape {np.shape(value)}" if np.ndim(value) else "a number"


# -- wrt ------------------------------------------------------------------------------------------------------------
def select(name: str, parameters: Sequence[Parameter], wrt: Any) -> tuple[list[int | str], bool]:
    """What ``wrt`` asks for: positions of parameters, or names of intermediates, and whether it asks for just one."""
    single = not isinstance(wrt, (tuple, list))
    names = [p.name for p in parameters]
    chosen: list[int | str] = []
    for item in (wrt,) if single else wrt:
        if isinstance(item, str):
            chosen.append(names.index(item) if item in names else item)
        elif isinstance(item, (int, np.integer)) and not isinstance(item, bool) and -len(names) <= item < len(names):
            chosen.append(int(item) % len(names))
        else:
            raise TypeError(f"wrt takes names or positions of the arguments of {name} ({', '.join(names)}), got {item!r}")
    return chosen, single


def no_gradient(name: str, parameter: str, kind: str) -> DTypeError:
    return DTypeError(
        f"wrt: argument {parameter!r} of {name} is {kind}; only floating arguments have gradients; "
        "pass it as a float, for example with .astype(float)"
    )


# -- seeds ----------------------------------------------------------------------------------------------------------
def match_seed(name: str, output: Structure, kinds: Sequence[str], ranks: Sequence[int], seed: Any) -> list[Any]:
    """A seed, or None, for every leaf of the output. SeedError if the structure does not fit."""
    floating = [k for k, kind in enumerate(kinds) if kind in FLOATS]
    if not floating:
        raise SeedError(f"no output of {name} is floating, so there is nothing to differentiate")
    if seed is None:
        if len(floating) == 1 and ranks[floating[0]] == 0:
            return [1.0 if k == floating[0] else None for k in range(len(kinds))]
        if len(kinds) > 1:
            raise SeedError(
                f"{name} has {len(kinds)} outputs, {output}; give the gradient of each with seed=, in the same structure "
                "(None for an output without one)"
            )
        return [None]  # the caller names the shape
    found: list[Any] = []
    _match(name, output, seed, "seed", found)
    for k, value in enumerate(found):
        if value is not None and k not in floating:
            raise SeedError(f"{output.paths('output')[k]} of {name} is {kinds[k]}, which has no gradient; leave its seed out")
    return found if any(value is not None for value in found) else match_seed(name, output, kinds, ranks, None)


def _match(name: str, output: Structure, seed: Any, path: str, found: list[Any]) -> None:
    if seed is None:
        found.extend([None] * output.size)
    elif output.kind == "leaf":
        found.append(seed)
    elif output.kind == "dict" and isinstance(seed, Mapping):
        for extra in seed:
            if extra not in output.meta:
                raise SeedError(f"{path}: {name} has no output {extra!r}; it has {', '.join(map(repr, output.meta))}")
        for key, child in zip(output.meta, output.children, strict=True):
            _match(name, child, seed.get(key), f"{path}[{key!r}]", found)
    elif output.kind in ("tuple", "list", "namedtuple") and isinstance(seed, (tuple, list)):
        if len(seed) != len(output.children):
            raise SeedError(f"{path}: {len(output.children)} entries expected, one for each output of {name}, got {len(seed)}")
        for k, (child, part) in enumerate(zip(output.children, seed, strict=True)):
            _match(name, child, part, f"{path}[{k}]", found)
    elif output.kind == "dataclass" and isinstance(seed, output.meta):
        for k, (child, part) in enumerate(zip(output.children, fields_of(seed), strict=True)):
            _match(name, child, part, f"{path}[{k}]", found)
    else:
        raise SeedError(f"{path}: the output of {name} has the structure {output}, got a seed of {type(seed).__name__}")


def as_array(seed: Any, dtype: str, what: str = "a seed") -> np.ndarray[Any, Any]:
    """A seed in its output's element type."""
    try:
        array = np.asarray(seed)
    except ValueError:  # rows of different lengths
        raise SeedError(f"{what} is an array or a number, got a ragged {type(seed).__name__}") from None
    if array.dtype.kind not in "fiub":
        raise SeedError(f"{what} is made of real numbers, got {array.dtype} from {type(seed).__name__}")
    return array.astype(NUMPY[dtype], copy=False)


def check_mode(mode: str | None) -> None:
    if mode not in (None, "broadcast", "expand"):
        raise SeedError(f'seed_mode is "broadcast" or "expand", got {mode!r}')


def fit_seed(name: str, seed: Any, dtype: str, shape: tuple[int, ...], mode: str | None) -> Any:
    """A seed in the shape of its output, by the rules of ``seed_mode``."""
    if seed is None:
        raise missing_seed(name, str(shape))
    array = as_array(seed, dtype)
    if array.shape == shape:
        return array
    if array.ndim == 0 or (array.size == 1 and not shape):
        return np.full(shape, array.reshape(()))
    if mode == "broadcast":
        try:
            fits = np.broadcast_shapes(array.shape, shape) == array.shape
        except ValueError:
            fits = False
        if not fits:
            hint = "; it broadcasts the output, not the seed: use " + _filled(shape) if _spreads(array.shape, shape) else ""
            raise SeedError(
                f"the output of {name} has shape {shape}, which does not broadcast to the seed's shape {array.shape}{hint}"
            )
        lead = array.ndim - len(shape)
        axes = (*range(lead), *(lead + k for k, n in enumerate(shape) if n == 1 and array.shape[lead + k] != 1))
        return array.sum(axis=axes).reshape(shape)
    raise wrong_seed(name, array.shape, shape, modes=True)


def missing_seed(name: str, shape: str) -> SeedError:
    return SeedError(
        f"the output of {name} has shape {shape}; a seed, the gradient of some loss with respect to it, must be given: "
        f"seed=np.ones({shape}) for the gradient of its sum"
    )


def wrong_seed(name: str, got: Sequence[Any], shape: Sequence[Any], modes: bool = False) -> SeedError:
    """``modes``: there is a ``seed_mode``, which is spoken of where it could be what was meant."""
    hints = []
    if _spreads(got, shape):
        hints.append(f"{_filled(shape)} spreads it")
    if modes and _spreads(shape, got):
        hints.append('seed_mode="broadcast" takes the output broadcast to the seed\'s shape')
    if modes and (_spreads(shape, got) or len(got) > len(shape)):
        hints.append('seed_mode="expand" takes a reduced output as if it had not been reduced')
    return SeedError(
        f"the seed has shape {shape_text(got)}, the output of {name} has shape {shape_text(shape)}; they must be equal, "
        "or the seed a scalar" + (". " if hints else "") + "; ".join(hints)
    )


def _spreads(shape: Sequence[Any], wider: Sequence[Any]) -> bool:
    """Whether ``shape`` broadcasts to ``wider``."""
    pairs = zip(reversed(shape), reversed(wider), strict=False)
    return len(shape) <= len(wider) and all(a == b or a == 1 for a, b in pairs)


def _filled(shape: Sequence[Any]) -> str:
    return f"np.broadcast_to(seed, {shape_text(shape)})"


def shape_text(shape: Sequence[Any]) -> str:
    """A shape as NumPy writes it, with symbols by their names."""
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


# -- outputs and tangents -------------------------------------------------------------------------------------------
def matching_leaves(name: str, structure: Structure, tree: Any) -> list[Any]:
    """The leaves of ``tree``, which must have ``structure``."""
    if structure.kind == "dict" and isinstance(tree, Mapping) and set(tree) == set(structure.meta):
        tree = {key: tree[key] for key in structure.meta}  # keys are what counts, not their order
    leaves, found = flatten(tree)
    if structure is LEAF and found is not LEAF:
        return [np.asarray(tree)]
    if found != structure:
        raise TypeError(f"{name}: the structure {structure} expected, got {found}")
    return leaves


def match_out(name: str, structure: Structure, out: Any) -> list[Any]:
    """The arrays of ``out=``; None where none is given."""
    if out is None:
        return [None] * structure.size
    if structure is LEAF:
        return [out]
    if isinstance(out, (tuple, list)) and len(out) == len(structure.children):
        parts: Sequence[Any] = out
    elif structure.kind == "dict" and isinstance(out, Mapping) and set(out) <= set(structure.meta):
        parts = [out.get(key) for key in structure.meta]
    elif structure.kind == "dataclass" and isinstance(out, structure.meta):
        parts = fields_of(out)
    else:
        return matching_leaves(f"{name}: out", structure, out)
    return [array for child, part in zip(structure.children, parts, strict=True) for array in match_out(name, child, part)]


def match_tangents(name: str, parameters: Sequence[Parameter], tangents: Any) -> dict[int, Any]:
    """Tangents by the position of their parameter: from a dict, a tuple in the order of the arguments, or for the only one."""
    names = [p.name for p in parameters]
    if isinstance(tangents, Mapping):
        for key in tangents:
            if key not in names:
                raise TypeError(f"tangents: {name} has no argument {key!r}; it has {', '.join(names)}")
        return {names.index(key): value for key, value in tangents.items() if value is not None}
    if isinstance(tangents, (tuple, list)) and len(tangents) == len(names):
        return {k: value for k, value in enumerate(tangents) if value is not None}
    if len(names) == 1 and tangents is not None:
        return {0: tangents}
    raise TypeError(
        f"tangents: a dict from argument names of {name} ({', '.join(names)}) to directions expected, "
        f"got {type(tangents).__name__}"
    )


def fit_tangent(name: str, tangent: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    array = as_array(tangent, dtype, "a tangent")
    if array.shape != shape:
        if array.ndim:
            raise ShapeError(f"tangents: {name} has shape {shape}, its tangent {array.shape}; they must be equal")
        return np.full(shape, array)
    return array


def is_declared(tree: Any) -> bool:
    """Whether a value is, or contains, a type that stands for data to come."""
    return any(getattr(leaf, "pullback_leaf", False) for leaf in flatten(tree)[0])


def declared_key(parameter: Parameter, given: Any = None) -> tuple[Structure, tuple[Leaf, ...]]:
    """The part of a key that a parameter has before there is data: by its declaration, or by the types ``given`` for it."""
    specs, structure = flatten(parameter.declared if given is None else given)
    shapes = [tuple(None for _ in s.shape) for s in specs]
    return structure, tuple(Leaf(s.dtype.name, shape, False, s) for s, shape in zip(specs, shapes, strict=True))


def serves(ahead: Sequence[tuple[Structure, tuple[Leaf, ...]]], key: Sequence[tuple[Structure, tuple[Leaf, ...]]]) -> bool:
    """Whether what was compiled for the types of ``ahead`` can serve a call with ``key``; lengths are compared elsewhere.

    A Python number is served as the number of the declared type.
    """
    for (structure, types), (found, leaves) in zip(ahead, key, strict=True):
        if structure != found:
            return False
        for declared, leaf in zip(types, leaves, strict=True):
            if declared.dtype != leaf.dtype or len(declared.shape) != len(leaf.shape):
                return False
    return True
