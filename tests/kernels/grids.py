"""Stencils and partial differential equations on grids."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def jacobi_2d(u, f):
    """Sweeps of Poisson's equation, boundary fixed."""
    n, m = u.shape
    u = u.copy()
    for _ in range(20):
        new = u.copy()
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                new[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])
        u = new
    return u


def heat_1d(u, diffusivity):
    """Many steps: what is asked or allocated now and then must leave the rest alone."""
    u = u.copy()
    for _ in range(1500):
        u[1:-1] += diffusivity * (u[2:] - 2 * u[1:-1] + u[:-2])
    return u


def heat_2d(u, k):
    u = u.copy()
    for _ in range(20):
        u[1:-1, 1:-1] += k * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        u[0, :] = u[1, :]
        u[:, -1] = u[:, -2]
    return u


def red_black(u, f):
    """Gauss-Seidel over the cells of one colour, then those of the other."""
    u = u.copy()
    n = u.shape[0]
    for sweep in range(20):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                if (i + j + sweep) % 2 == 0:
                    u[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j]) / 4
    return u


def burgers_upwind(u, dt):
    """The side that the wind comes from decides which difference is taken."""
    n = len(u)
    u = u.copy()
    for _ in range(20):
        old = u.copy()
        for i in range(1, n - 1):
            if old[i] > 0:
                slope = old[i] - old[i - 1]
            else:
                slope = old[i + 1] - old[i]
            u[i] = old[i] - dt * old[i] * slope
    return u


def wave_leapfrog(u, v, c):
    n = len(u)
    before, now = u - 0.1 * v, u.copy()
    for _ in range(20):
        after = np.zeros(n)
        for i in range(1, n - 1):
            after[i] = 2 * now[i] - before[i] + c**2 * (now[i + 1] - 2 * now[i] + now[i - 1])
        before, now = now, after
    return now


def advection_limited(u, courant):
    """A second-order scheme whose slopes are limited (minmod)."""
    n = len(u)
    for _ in range(20):
        flux = np.zeros(n + 1)
        for i in range(1, n - 1):
            left, right = u[i] - u[i - 1], u[i + 1] - u[i]
            if left * right <= 0:
                slope = 0.0
            elif abs(left) < abs(right):
                slope = left
            else:
                slope = right
            flux[i + 1] = courant * (u[i] + 0.5 * (1 - courant) * slope)
        u = u - (flux[1:] - flux[:-1])
    return u


def crank_nicolson(u, r):
    """Each step solves a tridiagonal system."""
    n = len(u)
    u = u.copy()
    for _ in range(20):
        rhs = u.copy()
        rhs[1:-1] = u[1:-1] + 0.5 * r * (u[2:] - 2 * u[1:-1] + u[:-2])
        c, d = np.zeros(n), np.zeros(n)
        d[0] = rhs[0]
        for i in range(1, n - 1):
            m = 1 + r + 0.5 * r * c[i - 1]
            c[i] = -0.5 * r / m
            d[i] = (rhs[i] + 0.5 * r * d[i - 1]) / m
        u[n - 1] = rhs[n - 1]
        for i in range(n - 2, -1, -1):
            u[i] = d[i] - c[i] * u[i + 1]
    return u


def black_scholes_grid(sigma, rate, strike):
    """The price of a put on a grid of prices, stepped back from its end explicitly."""
    n, steps, dt = 24, 40, 0.0125
    price = np.linspace(0.0, 3.0, n)
    v = np.maximum(strike - price, 0.0)
    for t in range(steps):
        new = v.copy()
        for i in range(1, n - 1):
            delta = (v[i + 1] - v[i - 1]) / 2
            gamma = v[i + 1] - 2 * v[i] + v[i - 1]
            new[i] = v[i] + dt * (0.5 * sigma**2 * i**2 * gamma + rate * i * delta - rate * v[i])
        new[0] = strike * np.exp(-rate * (t + 1) * dt)
        v = new
    return v


def reaction_diffusion(u, v, feed):
    """Gray-Scott on a ring."""
    u, v = u.copy(), v.copy()
    n = len(u)
    for _ in range(20):
        un, vn = u.copy(), v.copy()
        for i in range(n):
            left, right = (i - 1) % n, (i + 1) % n
            reaction = u[i] * v[i] ** 2
            un[i] = u[i] + 0.16 * (u[left] - 2 * u[i] + u[right]) - reaction + feed * (1 - u[i])
            vn[i] = v[i] + 0.08 * (v[left] - 2 * v[i] + v[right]) + reaction - (feed + 0.06) * v[i]
        u, v = un, vn
    return u, v


def relax_until_settled(u):
    """A stencil repeated until it changes little; a safety limit ends it otherwise."""
    u = u.copy()
    change, sweeps = 1.0, 0
    while change > 1e-2 and sweeps < 200:
        old = u.copy()
        for i in range(1, len(u) - 1):
            u[i] = 0.5 * (u[i - 1] + u[i + 1])
        change = np.max(np.abs(u - old))
        sweeps += 1
    return u


def _field(rng, n):
    return rng.normal(size=(n, n)), rng.normal(size=(n, n))


def _hump(rng, n):
    return np.sin(np.linspace(0, 6, n)) + 0.1 * rng.normal(size=n)


KERNELS = (
    Kernel(jacobi_2d, _field, sizes=(5, 9)),
    Kernel(heat_1d, lambda rng, n: (rng.normal(size=n), 0.2), sizes=(6, 12)),
    Kernel(heat_2d, lambda rng, n: (rng.normal(size=(n, n)), 0.15), sizes=(5, 9)),
    Kernel(red_black, _field, sizes=(5, 9)),
    Kernel(burgers_upwind, lambda rng, n: (_hump(rng, n), 0.1), sizes=(6, 12)),
    Kernel(wave_leapfrog, lambda rng, n: (rng.normal(size=n), rng.normal(size=n), 0.5), sizes=(6, 12)),
    Kernel(advection_limited, lambda rng, n: (_hump(rng, n), 0.4), sizes=(6, 12)),
    Kernel(crank_nicolson, lambda rng, n: (rng.normal(size=n), 0.7), sizes=(6, 12)),
    Kernel(black_scholes_grid, lambda rng, n: (0.3, 0.05, 1.05), sizes=(1,)),
    Kernel(reaction_diffusion, lambda rng, n: (rng.uniform(0.4, 1, n), rng.uniform(0, 0.3, n), 0.04), sizes=(6, 12)),
    Kernel(relax_until_settled, lambda rng, n: (rng.normal(size=n),), sizes=(6, 12)),
)
