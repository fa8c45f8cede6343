"""PyTorch's autograd, eager, on one thread."""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np
import torch

from tests.bench import programs
from tests.bench.frame import Calls, Task

van_der_pol = programs.retold(programs.van_der_pol, np=types.SimpleNamespace(array=torch.stack))


def network(W1, b1, W2, b2, X, Y):
    o = torch.relu(X @ W1 + b1) @ W2 + b2
    return torch.nn.functional.cross_entropy(o, Y)


def gaussian_process(theta, D, y):
    n = len(y)
    scale, lengths, noise = torch.exp(theta[0]), torch.exp(theta[1:4]), torch.exp(theta[4])
    K = scale * torch.exp(-0.5 * torch.tensordot(1.0 / lengths**2, D, 1)) + noise * torch.eye(n, dtype=y.dtype)
    L = torch.linalg.cholesky(K)
    solution = torch.cholesky_solve(y[:, None], L)[:, 0]
    return -0.5 * y @ solution - torch.sum(torch.log(torch.diagonal(L))) - 0.5 * n * math.log(2 * math.pi)


def mixture(alpha, mu, icf, x, gamma, m):
    n, d = x.shape
    K = len(alpha)
    q = icf[:, :d]
    columns, rows = np.triu_indices(d, 1)
    L = torch.diag_embed(torch.exp(q))
    L[:, rows, columns] = icf[:, d:]
    z = torch.einsum("kab,nkb->nka", L, x[:, None, :] - mu)
    beta = alpha + torch.sum(q, dim=1) - 0.5 * torch.sum(z * z, dim=2)
    freedom = d + m + 1
    prior = torch.sum(0.5 * gamma**2 * torch.sum(L * L, dim=(1, 2)) - m * torch.sum(q, dim=1))
    prior = prior - K * (freedom * d * (math.log(gamma) - 0.5 * math.log(2.0)) - float(programs.multigammaln(freedom / 2, d)))
    scores = torch.sum(torch.logsumexp(beta, dim=1)) - n * torch.logsumexp(alpha, dim=0)
    return -0.5 * n * d * math.log(2 * math.pi) + scores + prior


OWN = {f.__name__: f for f in (van_der_pol, network, gaussian_process, mixture)}
INSTEAD = {"memory_network": programs.memory_network_of_lists}


def prepare(task: Task) -> Calls:
    torch.set_num_threads(1)
    name = task.function.__name__
    program = OWN.get(name) or programs.retold(INSTEAD.get(name, task.function), np=torch, sigmoid=torch.sigmoid)
    args = [tensor(a) for a in task.args]
    active = [tensor(task.args[k]).requires_grad_() for k in task.wrt]
    full = list(args)
    for place, one in zip(task.wrt, active, strict=True):
        full[place] = one
    seed = None if task.seed is None else tensor(task.seed)

    def gradient() -> Any:
        value = program(*full)
        return value.detach(), torch.autograd.grad(value, active, seed)

    def plain() -> Any:
        with torch.no_grad():
            return program(*args)

    return Calls(plain, gradient)


def tensor(a: Any) -> Any:
    if isinstance(a, np.ndarray):
        return torch.from_numpy(a).clone()
    return torch.tensor(a, dtype=torch.float64) if isinstance(a, float) else a
