"""Loops as plain Python: against C by hand (``loops.c``), JAX's scan and autograd where they are installed.

C is compiled with contraction (fused multiply-adds), as its users would; pullback rounds as NumPy does.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.bench import native
from tests.bench.frame import Calls, Contestant, Task


# -- the programs, as a user writes them ------------------------------------------------------------------------------
def lorenz_rhs(state, sigma, rho, beta):
    x, y, z = state
    return np.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])


def lorenz(state, sigma, rho, beta):
    h = 0.01
    for _ in range(1000):
        k1 = lorenz_rhs(state, sigma, rho, beta)
        k2 = lorenz_rhs(state + h / 2 * k1, sigma, rho, beta)
        k3 = lorenz_rhs(state + h / 2 * k2, sigma, rho, beta)
        k4 = lorenz_rhs(state + h * k3, sigma, rho, beta)
        state = state + h / 6 * (k1 + 2 * (k2 + k3) + k4)
    return np.sum(state * state)


def pendulum(x, a, b, end, dt):
    t = 0.0
    while t < end:
        x = x + dt * (b - a * np.sin(x))
        t = t + dt
    return x


def tridiagonal(lower, diagonal, upper, rhs):
    n = len(rhs)
    d, x = diagonal.copy(), rhs.copy()
    for i in range(1, n):
        w = lower[i] / d[i - 1]
        d[i] -= w * upper[i - 1]
        x[i] -= w * x[i - 1]
    x[n - 1] = x[n - 1] / d[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = (x[i] - upper[i] * x[i + 1]) / d[i]
    return 0.5 * np.sum(x * x)


def seidel(A, b):
    n = len(b)
    x = np.zeros(n)
    for _ in range(20):
        for i in range(n):
            x[i] += (b[i] - A[i] @ x) / A[i, i]
    return 0.5 * np.sum(x * x)


def recurrent(W, U, b, xs):
    h = np.zeros(len(b))
    for t in range(len(xs)):
        h = np.tanh(W @ h + U @ xs[t] + b)
    return 0.5 * np.sum(h * h)


def heat(u0, r, c):
    u = u0.copy()
    for _ in range(200):
        u[1:-1] += r * (u[2:] - 2 * u[1:-1] + u[:-2]) - c * u[1:-1] ** 2
    return 0.5 * np.sum(u * u)


# -- contestants ------------------------------------------------------------------------------------------------------
def ours(
    function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int], small: Sequence[Any] = (), **options: Any
) -> Calls:
    import pullback as pb

    compiled = pb.compile(function, **options)
    gradient = pb.value_and_grad(compiled, wrt=tuple(wrt))
    return Calls(lambda: compiled(*args), lambda: gradient(*args), (lambda: gradient(*small)) if small else None)


def plain(function: Callable[..., Any], args: Sequence[Any]) -> Calls:
    """The program run by Python, which has no gradient."""
    return Calls(lambda: function(*args), None)


def by_autograd(function: Callable[..., Any], args: Sequence[Any], wrt: Sequence[int]) -> Calls | None:
    """The program with autograd's own NumPy; it has no in-place assignment."""
    try:
        import autograd
    except ImportError:
        return None
    world = {**globals(), "np": autograd.numpy}
    for name, found in globals().items():
        if isinstance(found, types.FunctionType) and found.__module__ == __name__:
            world[name] = types.FunctionType(found.__code__, world, name, found.__defaults__)
    gradient = autograd.value_and_grad(world[function.__name__], tuple(wrt))
    return Calls(lambda: world[function.__name__](*args), lambda: gradient(*args))


def by_jax(make: Callable[[Any, Any], Callable[..., Any]], args: Sequence[Any], wrt: Sequence[int]) -> Calls | None:
    """``make(jax, jnp)`` gives the function."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    function = make(jax, jax.numpy)
    arrays = [jax.numpy.asarray(a) for a in args]
    value, gradient = jax.jit(function), jax.jit(jax.value_and_grad(function, tuple(wrt)))
    return Calls(
        lambda: value(*arrays).block_until_ready(),
        lambda: jax.block_until_ready(gradient(*arrays)),
    )


def task(
    name: str,
    about: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    wrt: Sequence[int],
    c: Callable[[], Calls | None],
    jax: Callable[[Any, Any], Callable[..., Any]] | None = None,
    more: Sequence[Contestant] = (),
    autograd: bool = False,
    tolerance: float = 1e-9,
    why: str = "sums in other orders",
    memory: bool = False,
    small: Sequence[Any] = (),
    quick: bool = False,
) -> Task:
    contestants = [Contestant("pullback", lambda: ours(function, args, wrt, small)), *more, Contestant("C by hand", c)]
    if jax is not None:
        contestants.append(Contestant("JAX scan", lambda: by_jax(jax, args, wrt)))
    if autograd:
        contestants.append(Contestant("autograd", lambda: by_autograd(function, args, wrt)))
    contestants.append(Contestant("Python", lambda: plain(function, args)))

    def reference(_: Task) -> Any:
        calls = c()
        if calls is not None:
            return calls.gradient()
        calls = ours(function, args, wrt)  # then only the differences say whether it is right
        return calls.gradient()

    return Task(name, about, function, lambda: args, wrt, lambda _: contestants, reference, tolerance, why, memory, quick=quick)


# -- the tasks --------------------------------------------------------------------------------------------------------
def lorenz_in_jax(jax: Any, jnp: Any) -> Callable[..., Any]:
    def function(state, sigma, rho, beta):
        def rhs(s):
            x, y, z = s
            return jnp.array([sigma * (y - x), x * (rho - z) - y, x * y - beta * z])

        def step(s, _):
            h = 0.01
            k1 = rhs(s)
            k2 = rhs(s + h / 2 * k1)
            k3 = rhs(s + h / 2 * k2)
            k4 = rhs(s + h * k3)
            return s + h / 6 * (k1 + 2 * (k2 + k3) + k4), None

        end, _ = jax.lax.scan(step, state, None, length=1000)
        return jnp.sum(end * end)

    return function


def recurrent_in_jax(jax: Any, jnp: Any) -> Callable[..., Any]:
    def function(W, U, b, xs):
        h, _ = jax.lax.scan(lambda h, x: (jnp.tanh(W @ h + U @ x + b), None), jnp.zeros(len(b)), xs)
        return 0.5 * jnp.sum(h * h)

    return function


def heat_in_jax(jax: Any, jnp: Any) -> Callable[..., Any]:
    def function(u0, r, c):
        def step(u, _):
            return u.at[1:-1].add(r * (u[2:] - 2 * u[1:-1] + u[:-2]) - c * u[1:-1] ** 2), None

        u, _ = jax.lax.scan(step, u0, None, length=200)
        return 0.5 * jnp.sum(u * u)

    return function


def lorenz_c(inputs: Sequence[Any]) -> Calls | None:
    """The parameters are one array there."""
    state, *parameters = inputs
    calls = native.by_hand("loops.c", "lorenz", (state, np.array(parameters), 1000, 0.01), ((3,), (3,)))
    if calls is None:
        return None

    def gradient() -> Any:
        value, (start, slopes) = calls.gradient()
        return value, (start, *slopes)

    return Calls(calls.value, gradient)


def tasks() -> list[Task]:
    rng = np.random.default_rng(20)
    state = (np.array([1.0, -2.0, 15.0]), 10.0, 28.0, 8 / 3)
    swing, short = (0.5, 1.0, 1.3, 10.0, 1e-5), (0.5, 1.0, 1.3, 1e-3, 1e-5)
    n = 1000
    bands = (rng.uniform(-1, 1, n), rng.uniform(3, 4, n), rng.uniform(-1, 1, n), rng.normal(size=n))
    A, b = rng.uniform(-1, 1, (50, 50)) + 60 * np.eye(50), rng.normal(size=50)
    h, m, steps = 16, 8, 100
    weights = (rng.normal(size=(h, h)) / 4, rng.normal(size=(h, m)) / 3, rng.normal(size=h), rng.normal(size=(steps, m)))
    rod = (np.sin(np.linspace(0, math.pi, 100)), 0.3, 0.01)

    def bounded(**options: Any) -> Callable[[], Calls]:
        return lambda: ours(pendulum, swing, (0, 1, 2), short, **options)

    return [
        task(
            "lorenz", "RK4 of the Lorenz system, 1000 steps", lorenz, state, (0, 1, 2, 3),
            lambda: lorenz_c(state), lorenz_in_jax,
            tolerance=1e-7, why="the system is chaotic: a rounding error grows by 1e4 over the interval", quick=True,
        ),
        task(
            "pendulum", "a while loop over scalars, 10^6 trips", pendulum, swing, (0, 1, 2),
            lambda: native.by_hand("loops.c", "pendulum", swing, ((), (), ()), short),
            more=[
                *(Contestant(f"pullback checkpoint={k}", bounded(checkpoint=k)) for k in (100, 1000, 10000)),
                Contestant("pullback checkpoint=binomial", bounded(checkpoint="binomial")),
            ],
            tolerance=1e-8, why="10^6 roundings", memory=True, small=short,
        ),
        task(
            "tridiagonal", "elimination and back substitution in place, n = 1000", tridiagonal, bands, (0, 1, 2, 3),
            lambda: native.by_hand("loops.c", "tridiagonal", (*bands, n), ((n,),) * 4), quick=True,
        ),
        task(
            "seidel", "20 Gauss-Seidel sweeps in place, n = 50", seidel, (A, b), (0, 1),
            lambda: native.by_hand("loops.c", "seidel", (A, b, 50, 20), ((50, 50), (50,))),
        ),
        task(
            "recurrent", "a recurrent cell, 100 steps, 16 units", recurrent, weights, (0, 1, 2),
            lambda: native.by_hand("loops.c", "recurrent", (*weights, steps, h, m), ((h, h), (h, m), (h,))),
            recurrent_in_jax, autograd=True,
        ),
        task(
            "heat", "an explicit heat equation in place, 200 steps of 100 cells", heat, rod, (0, 1, 2),
            lambda: native.by_hand("loops.c", "heat", (*rod, 100, 200), ((100,), (), ())), heat_in_jax,
        ),
    ]  # fmt: skip  # one task, a few lines
