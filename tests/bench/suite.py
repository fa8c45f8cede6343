"""The tasks whose programs are in ``programs.py``, and those of ``loops.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.bench import by_numpy, contestants, inputs, loops, programs
from tests.bench.frame import Task

MIXTURES = [(d, K) for d in (2, 10, 20, 32, 64) for K in (5, 25, 50)]
SUMS = "sums in other orders"


def task(
    name: str,
    about: str,
    function: Callable[..., Any],
    make: Callable[[], Sequence[Any]],
    wrt: Sequence[int] = (0,),
    tolerance: float = 1e-10,
    why: str = SUMS,
    **more: Any,
) -> Task:
    return Task(name, about, function, make, wrt, contestants.of, reference, tolerance, why, **more)


def reference(task: Task) -> Any:
    """By hand in NumPy, in double precision, or by a tape."""
    name = task.function.__name__
    if name not in by_numpy.CONTESTANTS:
        return by_numpy.by_tape(task.function, *task.args)
    args = [a.astype(float) if isinstance(a, np.ndarray) else a for a in task.args]
    return getattr(by_numpy, name)(*args, *(() if task.seed is None else (task.seed,)))


def numbers() -> list[Task]:
    return [
        task("sine", "x*y + sin(x) of two floats", programs.sine, lambda: (1.3, 0.7), (0, 1)),
        *(
            task(f"rosenbrock-{name}", f"Rosenbrock's function, n = {n}", programs.rosenbrock, lambda n=n: inputs.rosenbrock(n),
                 memory=n > 1000, quick=n != 1000, smaller=lambda: inputs.rosenbrock(10))
            for name, n in (("10", 10), ("1000", 1000), ("1e5", 100_000))
        ),
        task("logistic", "logistic regression, 10000 x 50", programs.logistic, inputs.logistic,
             memory=True, smaller=lambda: inputs.logistic(10)),
        task("quasi-poisson", "quasi-Poisson regression, 10000 x 50", programs.quasi_poisson, inputs.quasi_poisson,
             memory=True, smaller=lambda: inputs.quasi_poisson(10)),
        task("elementwise", "sum(tanh(a*x+b)**2 * exp(-x*x) / (1+x*x)), 10^6 numbers", programs.elementwise, inputs.elementwise,
             (0, 1, 2), memory=True, smaller=lambda: inputs.elementwise(10)),
        task("doubling", "doubles three numbers until their norm is 1000", programs.doubling,
             lambda: (np.array([0.5, -0.3, 0.8]),), seed=np.array([0.1, 1.0, 0.0001])),
        task("van-der-pol", "1000 steps of RK4, Van der Pol", programs.van_der_pol, lambda: (np.array([2.0, 0.0]), 1.0), (0, 1),
             tolerance=1e-9, why="1000 steps of rounding", seed=np.array([1.0, 0.5])),
    ]  # fmt: skip  # one task, a few lines


def random_formula(name: str, about: str, operations: int, quick: bool = False) -> Task:
    def point() -> Sequence[Any]:
        return (inputs.generator().uniform(0.2, 0.9, 10),)

    return task(
        name, about, programs.random_formula(operations), point,
        tolerance=1e-8, why="a long formula amplifies roundings", differences=False, quick=quick,
    )  # fmt: skip  # like the others


def formulas() -> list[Task]:
    def bodies(n: int) -> Task:
        rng = inputs.generator()
        masses = tuple(float(m) for m in rng.uniform(0.5, 1.5, n))
        where = rng.normal(size=3 * n)
        return task(f"bodies-{n}", f"the potential of {n} bodies", programs.potential(masses), lambda: (where,))

    return [
        *(random_formula(f"dag-1e{k}", f"a random formula of 10^{k} operations", 10**k, quick=k < 4) for k in (3, 4, 5)),
        task("arm", "the hand of a robot arm of seven joints", programs.arm, lambda: (inputs.generator().uniform(-1, 1, 7),)),
        bodies(20),
        bodies(50),
    ]  # fmt: skip  # one task, a few lines


def models() -> list[Task]:
    single = "single precision"
    return [
        task("network-f32", "a network 784-256-10, batch 128, float32", programs.network, lambda: inputs.network(np.float32),
             (0, 1, 2, 3), tolerance=1e-4, why=single, differences=False, quick=False,
             smaller=lambda: inputs.network(np.float32, 4, 20)),
        task("network-f64", "the same, float64", programs.network, lambda: inputs.network(np.float64), (0, 1, 2, 3),
             smaller=lambda: inputs.network(np.float64, 4, 20)),
        task("gaussian-process", "the log marginal likelihood of a Gaussian process, n = 200", programs.gaussian_process,
             inputs.gaussian_process, tolerance=1e-8, why="the matrix is ill-conditioned",
             smaller=lambda: inputs.gaussian_process(8)),
        *(
            task(f"mixture-d{d}-K{K}", f"ADBench's Gaussian mixture, d = {d}, K = {K}, n = 1000", programs.mixture,
                 lambda d=d, K=K: inputs.mixture(d, K, 1000), (0, 1, 2), memory=(d, K) == (20, 50),
                 quick=(d, K) in ((2, 5), (10, 25)), smaller=lambda: inputs.small_mixture(4, 2, 5))
            for d, K in MIXTURES
        ),
        *(
            task(f"lstm-{layers}-{steps}", f"ADBench's memory network, {layers} layers, {steps} steps", programs.memory_network,
                 lambda layers=layers, steps=steps: inputs.memory_network(layers, steps), (0, 1),
                 tolerance=1e-9, why="thousands of steps", differences=steps < 2000,
                 memory=True, quick=steps < 2000, smaller=inputs.small_memory_network)
            for layers, steps in ((2, 1024), (4, 4096))
        ),
    ]  # fmt: skip  # one task, a few lines


def named(name: str) -> Task:
    """A task of the list, or a random formula of any number of operations: dag-NUMBER."""
    if name.startswith("dag-"):
        return random_formula(name, "a random formula", int(float(name.removeprefix("dag-"))))
    groups = (numbers, models, loops.tasks, formulas)
    return next(one for group in groups for one in group() if one.name == name)


def tasks() -> list[Task]:
    return [*numbers(), *formulas(), *models(), *loops.tasks()]
