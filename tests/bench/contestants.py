"""Who takes part in which task."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.bench import by_numpy, native
from tests.bench.frame import OURS, PARALLEL, Calls, Contestant, Task

FORMULAS = ("dag", "arm", "bodies")
SYMBOLIC = ("sine", "rosenbrock", "elementwise", "logistic", "quasi_poisson", "van_der_pol", *FORMULAS)
NUMERIC = ("sine", "rosenbrock", "elementwise", "logistic", "quasi_poisson", "doubling", "van_der_pol")
MODELS = ("network", "gaussian_process", "mixture", "memory_network")


@dataclass(frozen=True)
class Peer:
    """A library, the module here that speaks it, the programs it can do; and the tasks at which it takes so long to compile or
    to run that a quick look goes without it. One that is not ``quick`` is left out of every quick look."""

    name: str
    library: str
    module: str
    programs: Collection[str]
    slow: Collection[str] = ()
    compiles: bool = True
    prepare: str = "prepare"
    quick: bool = True


PEERS = (
    Peer(
        "JAX", "jax", "peers_jax", (*NUMERIC, *FORMULAS, *MODELS),
        ("dag-1e3", "dag-1e4", "dag-1e5", "arm", "bodies-20", "bodies-50", "mixture-d64-K50"),
    ),
    Peer(
        "PyTorch", "torch", "peers_torch", (*NUMERIC, *FORMULAS, *MODELS),
        ("dag-1e4", "dag-1e5", "bodies-50", "van-der-pol", "lstm-2-1024", "lstm-4-4096"), compiles=False,
    ),
    Peer("CasADi", "casadi", "peers_casadi", SYMBOLIC,
         ("dag-1e5",)),
    Peer("CasADi, C", "casadi", "peers_casadi", SYMBOLIC,
         ("dag-1e4", "dag-1e5", "bodies-20", "bodies-50"), prepare="prepare_c"),
    Peer("SymEngine", "symengine", "peers_symengine", ("sine", "rosenbrock", *FORMULAS),
         ("dag-1e4", "dag-1e5", "bodies-20", "bodies-50", "rosenbrock-1000"), quick=False),
    Peer("heyoka", "heyoka", "peers_heyoka", ("sine", "rosenbrock", "elementwise", "van_der_pol", *FORMULAS),
         ("dag-1e4", "dag-1e5", "bodies-50", "van-der-pol")),
    Peer("Numba by hand", "numba", "peers_numba", (*NUMERIC, "bodies"), quick=False),
    Peer(
        "autograd", "autograd", "peers_autograd", (*NUMERIC, *FORMULAS, *MODELS),
        ("dag-1e4", "dag-1e5", "bodies-50", "van-der-pol", "lstm-2-1024", "lstm-4-4096", "mixture-d64-K50"),
        compiles=False, quick=False,
    ),
)  # fmt: skip  # one peer, a few lines

AFTER = {"dag-1e5": "dag-1e4", "dag-1e4": "dag-1e3", "bodies-50": "bodies-20"}  # over the limit at one, over it at the other

LONG = ("rosenbrock-1e5", "logistic", "quasi-poisson", "elementwise")  # tasks with loops for several threads

NEVER = {  # expressions of that many symbols are hopeless: minutes and gigabytes
    "rosenbrock-1e5": ("CasADi, C", "SymEngine", "heyoka"),
    "elementwise": ("CasADi, C",),  # a million numbers are fine for it, but its C is the same loops over temporaries
}


def of(task: Task) -> list[Contestant]:
    """All contestants of a task that can be tried here, ours first."""
    program = task.function.__name__
    found = [Contestant(OURS, lambda: ours(task), load_ours, compiles=True)]
    if task.name in LONG:
        found.append(Contestant(PARALLEL, lambda: ours(task, parallel=True), load_ours))
    if program in by_numpy.CONTESTANTS:
        found.append(Contestant("NumPy by hand", lambda: by_hand(task)))
    if program in C:
        found.append(Contestant("C by hand", lambda: C[program](task)))
    for peer in PEERS:
        if program in peer.programs and importlib.util.find_spec(peer.library) and peer.name not in NEVER.get(task.name, ()):
            load = functools.partial(importlib.import_module, f"tests.bench.{peer.module}")
            prepare = functools.partial(prepared, load, peer.prepare, task)
            found.append(Contestant(peer.name, prepare, load, peer.compiles, task.name in peer.slow, peer.quick))
    return found


def prepared(load: Callable[[], Any], prepare: str, task: Task) -> Calls | None:
    found: Calls | None = getattr(load(), prepare)(task)
    return found


def load_ours() -> None:
    """All modules: ``import pullback`` alone leaves some of them for later, but imports are not to be counted."""
    import pullback
    import pullback_runtime

    for package in (pullback, pullback_runtime):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def ours(task: Task, **options: Any) -> Calls:
    import pullback as pb

    function, wrt, seed = pb.compile(task.function, **options), tuple(task.wrt), task.seed

    def bound(args: Any) -> Callable[[], Any]:
        if seed is not None:
            return lambda: function.vjp(*args, seed=seed, wrt=wrt)
        gradient = pb.value_and_grad(function, wrt=wrt)
        return lambda: gradient(*args)

    args = task.args
    small = bound(task.smaller()) if task.smaller else None
    return Calls(lambda: function(*args), bound(args), small)


def by_hand(task: Task) -> Calls:
    function, args = getattr(by_numpy, task.function.__name__), task.args
    more = () if task.seed is None else (task.seed,)
    small = task.smaller() if task.smaller else None
    plain = None if task.seed is not None else (lambda: task.function(*args))  # a loop in NumPy: the value is not of interest
    return Calls(plain, lambda: function(*args, *more), (lambda: function(*small, *more)) if small else None)


# -- C by hand ------------------------------------------------------------------------------------------------------------
def c_formula(task: Task, *sizes: int) -> Calls | None:
    shapes = [np.shape(task.args[k]) for k in task.wrt]
    return native.by_hand("formulas.c", task.function.__name__, (*task.args, *sizes), shapes)


def c_doubling(task: Task) -> Calls | None:
    n = len(task.args[0])
    return native.by_hand("formulas.c", "doubling", (*task.args, n), ((n,),), end=(n,), seed=task.seed)


def c_van_der_pol(task: Task) -> Calls | None:
    return native.by_hand("formulas.c", "van_der_pol", (*task.args, 1000, 0.01), ((2,), ()), end=(2,), seed=task.seed)


def c_bodies(task: Task) -> Calls | None:
    masses = np.array(task.function.__closure__[0].cell_contents)  # type: ignore[attr-defined]  # a plain function
    return native.by_hand("formulas.c", "bodies", (task.args[0], masses, len(masses)), (task.args[0].shape,))


def c_mixture(task: Task) -> Calls | None:
    alpha, mu, icf, x, *_ = task.args
    sizes = (len(x), x.shape[1], len(alpha))
    return native.by_hand("models.c", "mixture", (*task.args, *sizes), (alpha.shape, mu.shape, icf.shape))


def c_memory_network(task: Task) -> Calls | None:
    main, extra, _, seq = task.args
    return native.by_hand("models.c", "memory_network", (*task.args, len(main) // 2, *seq.shape), (main.shape, extra.shape))


C: dict[str, Callable[[Task], Calls | None]] = {
    "sine": c_formula,
    "rosenbrock": lambda task: c_formula(task, len(task.args[0])),
    "elementwise": lambda task: c_formula(task, len(task.args[0])),
    "logistic": lambda task: c_formula(task, *task.args[1].shape),
    "quasi_poisson": lambda task: c_formula(task, *task.args[1].shape),
    "doubling": c_doubling,
    "van_der_pol": c_van_der_pol,
    "bodies": c_bodies,
    "mixture": c_mixture,
    "memory_network": c_memory_network,
}
