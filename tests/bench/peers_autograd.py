"""autograd: the NumPy programs with its own ``np``."""

from __future__ import annotations

import autograd
import autograd.numpy as anp
from autograd.scipy.special import logsumexp

from tests.bench import programs
from tests.bench.frame import Calls, Task

INSTEAD = {"mixture": programs.mixture_by_products, "memory_network": programs.memory_network_of_lists}


def prepare(task: Task) -> Calls:
    program = programs.retold(INSTEAD.get(task.function.__name__, task.function), np=anp, logsumexp=logsumexp)
    args, wrt, seed = task.args, tuple(task.wrt), task.seed
    if seed is None:
        gradient = autograd.value_and_grad(program, wrt)
        return Calls(lambda: program(*args), lambda: gradient(*args))

    def of(chosen):
        full = list(args)
        for place, one in zip(wrt, chosen, strict=True):
            full[place] = one
        return program(*full)

    def both():
        pull, value = autograd.make_vjp(of)(tuple(args[k] for k in wrt))
        return value, pull(seed)

    return Calls(lambda: program(*args), both)
