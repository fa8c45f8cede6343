"""Numba, which has no derivatives: the adjoints written by hand, as loops."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from tests.bench.frame import Calls, Task


def sine(x, y):
    return x * y + math.sin(x)


def sine_grad(x, y):
    return x * y + math.sin(x), y + math.cos(x), x


def rosenbrock(x):
    total = 0.0
    for i in range(len(x) - 1):
        a, b = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        total += 100.0 * a * a + b * b
    return total


def rosenbrock_grad(x):
    g = np.zeros_like(x)
    total = 0.0
    for i in range(len(x) - 1):
        a, b = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        total += 100.0 * a * a + b * b
        g[i] += -400.0 * a * x[i] - 2.0 * b
        g[i + 1] += 200.0 * a
    return total, g


def elementwise(x, a, b):
    total = 0.0
    for i in range(len(x)):
        t = math.tanh(a * x[i] + b)
        total += t * t * math.exp(-x[i] * x[i]) / (1.0 + x[i] * x[i])
    return total


def elementwise_grad(x, a, b):
    g = np.empty_like(x)
    total, ga, gb = 0.0, 0.0, 0.0
    for i in range(len(x)):
        t, q = math.tanh(a * x[i] + b), 1.0 + x[i] * x[i]
        f = math.exp(-x[i] * x[i]) / q
        c = 2.0 * t * (1.0 - t * t) * f
        total += t * t * f
        g[i] = c * a - 2.0 * x[i] * t * t * (f + f / q)
        ga += c * x[i]
        gb += c
    return total, g, ga, gb


def logistic(w, X, y, ridge):
    total = 0.0
    for i in range(len(y)):
        total += math.log1p(math.exp(-y[i] * np.dot(X[i], w)))
    return total / len(y) + 0.5 * ridge * np.dot(w, w)


def logistic_grad(w, X, y, ridge):
    n, total, g = len(y), 0.0, ridge * w
    for i in range(n):
        e = math.exp(-y[i] * np.dot(X[i], w))
        total += math.log1p(e)
        r = -y[i] * e / (1.0 + e) / n
        for j in range(len(w)):
            g[j] += r * X[i, j]
    return total / n + 0.5 * ridge * np.dot(w, w), g


def quasi_poisson(b, X, y):
    total = 0.0
    for i in range(len(y)):
        linear = np.dot(X[i], b)
        total += y[i] * linear - math.exp(linear)
    return total


def quasi_poisson_grad(b, X, y):
    total, g = 0.0, np.zeros_like(b)
    for i in range(len(y)):
        linear = np.dot(X[i], b)
        mu = math.exp(linear)
        total += y[i] * linear - mu
        for j in range(len(b)):
            g[j] += (y[i] - mu) * X[i, j]
    return total, g


def doubling(x):
    y = x * 2.0
    while np.linalg.norm(y) < 1000.0:
        y = y * 2.0
    return y


def doubling_grad(x, seed):
    y, k = x * 2.0, 2.0
    while np.linalg.norm(y) < 1000.0:
        y = y * 2.0
        k *= 2.0
    return y, k * seed


def van_der_pol(state, mu):
    h = 0.01
    x, v = state[0], state[1]
    for _ in range(1000):
        a1, b1 = v, mu * (1.0 - x * x) * v - x
        x2, v2 = x + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = v2, mu * (1.0 - x2 * x2) * v2 - x2
        x3, v3 = x + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = v3, mu * (1.0 - x3 * x3) * v3 - x3
        x4, v4 = x + h * a3, v + h * b3
        x = x + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + v4)
        v = v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + mu * (1.0 - x4 * x4) * v4 - x4)
    return np.array([x, v])


def van_der_pol_grad(state, mu, seed):
    h, steps = 0.01, 1000
    tape = np.empty((steps, 2))
    x, v = state[0], state[1]
    for i in range(steps):
        tape[i, 0], tape[i, 1] = x, v
        a1, b1 = v, mu * (1.0 - x * x) * v - x
        x2, v2 = x + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = v2, mu * (1.0 - x2 * x2) * v2 - x2
        x3, v3 = x + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = v3, mu * (1.0 - x3 * x3) * v3 - x3
        x4, v4 = x + h * a3, v + h * b3
        x, v = (
            x + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + v4),
            v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + mu * (1.0 - x4 * x4) * v4 - x4),
        )
    end = np.array([x, v])
    p, q, r = seed[0], seed[1], 0.0
    for i in range(steps - 1, -1, -1):
        x, v = tape[i, 0], tape[i, 1]
        x2, v2 = x + 0.5 * h * v, v + 0.5 * h * (mu * (1.0 - x * x) * v - x)
        x3, v3 = x + 0.5 * h * v2, v + 0.5 * h * (mu * (1.0 - x2 * x2) * v2 - x2)
        x4, v4 = x + h * v3, v + h * (mu * (1.0 - x3 * x3) * v3 - x3)
        s, t = h / 6.0 * p, h / 6.0 * q
        p4, q4 = (-2.0 * mu * x4 * v4 - 1.0) * t, s + mu * (1.0 - x4 * x4) * t
        s3, t3 = 2.0 * s + h * p4, 2.0 * t + h * q4
        p3, q3 = (-2.0 * mu * x3 * v3 - 1.0) * t3, s3 + mu * (1.0 - x3 * x3) * t3
        s2, t2 = 2.0 * s + 0.5 * h * p3, 2.0 * t + 0.5 * h * q3
        p2, q2 = (-2.0 * mu * x2 * v2 - 1.0) * t2, s2 + mu * (1.0 - x2 * x2) * t2
        s1, t1 = s + 0.5 * h * p2, t + 0.5 * h * q2
        p1, q1 = (-2.0 * mu * x * v - 1.0) * t1, s1 + mu * (1.0 - x * x) * t1
        r += (1.0 - x4 * x4) * v4 * t + (1.0 - x3 * x3) * v3 * t3 + (1.0 - x2 * x2) * v2 * t2 + (1.0 - x * x) * v * t1
        p, q = p + p4 + p3 + p2 + p1, q + q4 + q3 + q2 + q1
    return end, np.array([p, q]), r


def bodies(x, masses):
    energy = 0.0
    for i in range(len(masses)):
        for j in range(i + 1, len(masses)):
            dx, dy, dz = x[3 * i] - x[3 * j], x[3 * i + 1] - x[3 * j + 1], x[3 * i + 2] - x[3 * j + 2]
            energy -= masses[i] * masses[j] / math.sqrt(dx * dx + dy * dy + dz * dz + 0.01)
    return energy


def bodies_grad(x, masses):
    energy, g = 0.0, np.zeros_like(x)
    for i in range(len(masses)):
        for j in range(i + 1, len(masses)):
            dx, dy, dz = x[3 * i] - x[3 * j], x[3 * i + 1] - x[3 * j + 1], x[3 * i + 2] - x[3 * j + 2]
            squared = dx * dx + dy * dy + dz * dz + 0.01
            term = masses[i] * masses[j] / math.sqrt(squared)
            energy -= term
            pull = term / squared
            g[3 * i] += pull * dx
            g[3 * i + 1] += pull * dy
            g[3 * i + 2] += pull * dz
            g[3 * j] -= pull * dx
            g[3 * j + 1] -= pull * dy
            g[3 * j + 2] -= pull * dz
    return energy, g


def prepare(task: Task) -> Calls:
    name = task.function.__name__
    value, both = numba.njit(globals()[name]), numba.njit(globals()[f"{name}_grad"])
    args = list(task.args)
    if name == "bodies":
        args.append(np.array(task.function.__closure__[0].cell_contents))
    full = args if task.seed is None else [*args, task.seed]

    def gradient() -> Any:
        first, *gradients = both(*full)
        return first, gradients

    return Calls(lambda: value(*args), gradient)
