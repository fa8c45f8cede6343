"""JAX: the NumPy programs with its own ``np``; loops by ``scan``, since a Python loop would be unrolled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, multigammaln

from tests.bench import programs
from tests.bench.frame import Calls, Task

jax.config.update("jax_enable_x64", True)


def doubling(x):
    """The program's loop has no gradient in JAX (reverse mode wants a bound): one of at most 40 trips has."""

    def step(y, _):
        return jnp.where(jnp.linalg.norm(y) < 1000, y * 2, y), None

    return jax.lax.scan(step, x * 2, None, length=40)[0]


def van_der_pol(state, mu):
    h = 0.01

    def slope(x, v):
        return v, mu * (1.0 - x * x) * v - x

    def step(carry, _):
        x, v = carry
        a1, b1 = slope(x, v)
        a2, b2 = slope(x + 0.5 * h * a1, v + 0.5 * h * b1)
        a3, b3 = slope(x + 0.5 * h * a2, v + 0.5 * h * b2)
        a4, b4 = slope(x + h * a3, v + h * b3)
        return (x + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4), v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)), None

    end, _ = jax.lax.scan(step, (state[0], state[1]), None, length=1000)
    return jnp.stack(end)


def mixture(alpha, mu, icf, x, gamma, m):
    n, d = x.shape
    K = len(alpha)
    q = icf[:, :d]
    columns, rows = np.triu_indices(d, 1)
    L = jnp.zeros((K, d, d)).at[:, rows, columns].set(icf[:, d:])
    L = L.at[:, np.arange(d), np.arange(d)].set(jnp.exp(q))
    z = jnp.einsum("kab,nkb->nka", L, x[:, None, :] - mu)
    beta = alpha + jnp.sum(q, axis=1) - 0.5 * jnp.sum(z * z, axis=2)
    freedom = d + m + 1
    prior = jnp.sum(0.5 * gamma**2 * jnp.sum(L * L, axis=(1, 2)) - m * jnp.sum(q, axis=1))
    prior = prior - K * (freedom * d * (jnp.log(gamma) - 0.5 * jnp.log(2.0)) - multigammaln(freedom / 2, d))
    return -0.5 * n * d * jnp.log(2 * jnp.pi) + jnp.sum(logsumexp(beta, axis=1)) - n * logsumexp(alpha) + prior


def memory_network(main, extra, state, seq):
    steps, b = seq.shape
    w, bias = main[::2].reshape(-1, 4, b), main[1::2].reshape(-1, 4, b)

    def step(carry, at):
        now, then = at
        x, out = now * extra[0], []
        for k, (h, c) in enumerate(carry):
            forget = jax.nn.sigmoid(x * w[k, 0] + bias[k, 0])
            ingate = jax.nn.sigmoid(h * w[k, 1] + bias[k, 1])
            outgate = jax.nn.sigmoid(x * w[k, 2] + bias[k, 2])
            c = c * forget + ingate * jnp.tanh(h * w[k, 3] + bias[k, 3])
            x = outgate * jnp.tanh(c)
            out.append((x, c))
        y = x * extra[1] + extra[2]
        return out, jnp.sum(then * (y - jnp.log(2.0 + jnp.sum(jnp.exp(y)))))

    start = [(state[2 * k], state[2 * k + 1]) for k in range(len(state) // 2)]
    _, terms = jax.lax.scan(step, start, (seq[:-1], seq[1:]))
    return -jnp.sum(terms) / (b * (steps - 1))


OWN = {f.__name__: f for f in (doubling, van_der_pol, mixture, memory_network)}


def prepare(task: Task) -> Calls:
    name = task.function.__name__
    function = OWN.get(name) or programs.retold(task.function, np=jnp)
    fixed = {place: a for place, a in enumerate(task.args) if isinstance(a, int)}  # sizes and counts
    args = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for place, a in enumerate(task.args) if place not in fixed]

    def program(*given):
        rest = iter(given)
        return function(*(fixed[k] if k in fixed else next(rest) for k in range(len(task.args))))

    wrt = tuple(task.wrt)  # before the fixed ones
    value, gradient = jax.jit(program), jax.jit(value_and_gradient(program, wrt, task.seed))
    return Calls(
        lambda: jax.block_until_ready(value(*args)),
        lambda: jax.block_until_ready(gradient(*args)),
    )


def value_and_gradient(program: Any, wrt: tuple[int, ...], seed: Any) -> Any:
    if seed is None:
        return jax.value_and_grad(program, wrt)

    def both(*args):
        def of(*chosen):
            full = list(args)
            for place, one in zip(wrt, chosen, strict=True):
                full[place] = one
            return program(*full)

        value, pull = jax.vjp(of, *(args[k] for k in wrt))
        return value, pull(jnp.asarray(seed))

    return both
