"""Iterations that end when they are done: roots, fixed points, minima, series, integrals."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def newton(a, b):
    x = 1.0
    step = 1.0
    while abs(step) > 1e-12:
        step = (x**3 + a * x - b) / (3 * x**2 + a)
        x = x - step
    return x


def bisection(a):
    """The bracket's ends are constants, so the result's slope comes from one Newton step at the end."""
    low, high = 0.0, 3.0
    while high - low > 1e-9:
        middle = 0.5 * (low + high)
        if middle * np.exp(middle) > a:
            high = middle
        else:
            low = middle
    x = 0.5 * (low + high)
    return x - (x * np.exp(x) - a) / (np.exp(x) * (1 + x))


def secant(c):
    x0, x1 = 0.3, 1.1
    f0 = np.cos(x0) - c * x0
    for _ in range(50):
        f1 = np.cos(x1) - c * x1
        if abs(f1) < 1e-13:
            break
        x0, x1, f0 = x1, x1 - f1 * (x1 - x0) / (f1 - f0), f1
    return x1


def halley_all(values):
    """Cube roots of a vector, each with a loop of its own."""
    out = np.empty_like(values)
    for i in range(len(values)):
        v = values[i]
        x = v if v > 1 else 1.0
        while abs(x**3 - v) > 1e-11 * v:
            x = x * (x**3 + 2 * v) / (2 * x**3 + v)
        out[i] = x
    return out


def fixed_point(W, b):
    """An equilibrium of a layer (Picard iteration)."""
    x = np.zeros(len(b))
    while True:
        new = np.tanh(W @ x + b)
        done = np.max(np.abs(new - x)) < 1e-9
        x = new
        if done:
            return x


def kepler(mean_anomaly, eccentricity):
    E = mean_anomaly + eccentricity * np.sin(mean_anomaly)
    for _ in range(30):
        delta = (E - eccentricity * np.sin(E) - mean_anomaly) / (1 - eccentricity * np.cos(E))
        E -= delta
        if abs(delta) < 1e-13:
            break
    return np.cos(E) - eccentricity, np.sqrt(1 - eccentricity**2) * np.sin(E)


def arithmetic_geometric_mean(a, b):
    while abs(a - b) > 1e-12:
        a, b = (a + b) / 2, np.sqrt(a * b)
    return a


def continued_fraction(x, terms):
    """From the innermost denominator outwards (the tangent, after Lambert)."""
    value = 0.0
    for k in range(len(terms) - 1, -1, -1):
        value = x * x / (2 * k + 1 + terms[k] - value)
    return value / x


def horner(coefficients, x):
    total = 0.0
    for i in range(len(coefficients) - 1, -1, -1):
        total = total * x + coefficients[i]
    return total


def clenshaw(c, x):
    """A Chebyshev series."""
    b1, b2 = np.zeros_like(x), np.zeros_like(x)
    for k in reversed(range(1, len(c))):
        b1, b2 = c[k] + 2 * x * b1 - b2, b1
    return c[0] + x * b1 - b2


def bessel_series(x, order):
    """Summed until a term no longer counts."""
    term = (x / 2) ** order
    for k in range(1, order + 1):
        term = term / k
    total, k = term, 0
    while abs(term) > 1e-14 * abs(total):
        k += 1
        term = -term * x * x / (4 * k * (k + order))
        total += term
    return total


def simpson(a, b):
    n = 40
    h = (b - a) / n
    s = np.sin(a * a) + np.sin(b * b)
    for i in range(1, n):
        weight = 4 if i % 2 == 1 else 2
        s += weight * np.sin((a + i * h) ** 2)
    return s * h / 3


def romberg(a, b):
    levels = 6
    R = np.zeros((levels, levels))
    h = b - a
    R[0, 0] = 0.5 * h * (np.exp(-a * a) + np.exp(-b * b))
    for i in range(1, levels):
        h = h / 2
        s = 0.0
        for k in range(1, 2**i, 2):
            s += np.exp(-((a + k * h) ** 2))
        R[i, 0] = 0.5 * R[i - 1, 0] + h * s
        for j in range(1, i + 1):
            R[i, j] = R[i, j - 1] + (R[i, j - 1] - R[i - 1, j - 1]) / (4**j - 1)
    return R[levels - 1, levels - 1]


def richardson(x):
    """The derivative of a function by ever smaller steps, extrapolated."""
    n = 5
    D = np.zeros((n, n))
    h = 0.4
    for i in range(n):
        D[i, 0] = (np.exp(np.sin(x + h)) - np.exp(np.sin(x - h))) / (2 * h)
        for k in range(1, i + 1):
            D[i, k] = D[i, k - 1] + (D[i, k - 1] - D[i - 1, k - 1]) / (4**k - 1)
        h /= 2
    return D[n - 1, n - 1]


def gradient_descent(x, A):
    """Steps are halved until they descend."""
    for _ in range(20):
        g = A @ x + 0.1 * x**3
        value = 0.5 * x @ A @ x + 0.025 * np.sum(x**4)
        step = 1.0
        while True:
            trial = x - step * g
            if 0.5 * trial @ A @ trial + 0.025 * np.sum(trial**4) <= value - 0.3 * step * (g @ g):
                break
            step = step / 2
        x = trial
    return x


def golden_section(a):
    """The place of a minimum; as with bisection the last step is Newton's."""
    ratio = 0.6180339887498949
    low, high = 0.0, 2.0
    while high - low > 1e-7:
        c, d = high - ratio * (high - low), low + ratio * (high - low)
        if (c - a) ** 2 + 0.3 * np.sin(3 * c) < (d - a) ** 2 + 0.3 * np.sin(3 * d):
            high = d
        else:
            low = c
    x = (low + high) / 2
    return x - (2 * (x - a) + 0.9 * np.cos(3 * x)) / (2 - 2.7 * np.sin(3 * x))


def doubled_until_large(x):
    """The example of the papers: the number of doublings depends on the data."""
    y = x * 2
    while np.linalg.norm(y) < 1000:
        y = y * 2
    return y


def escape_time(c, limit):
    """A smooth count of iterations until a point escapes."""
    x, y = 0.0, 0.0
    steps = 0
    while x * x + y * y < 16.0 and steps < limit:
        x, y = x * x - y * y + c[0], 2 * x * y + c[1]
        steps += 1
    return steps - np.log2(np.log(x * x + y * y))


KERNELS = (
    Kernel(newton, lambda rng, n: (1.5, 4.0), sizes=(1,)),
    Kernel(bisection, lambda rng, n: (2.5,), sizes=(1,)),
    Kernel(secant, lambda rng, n: (0.8,), sizes=(1,)),
    Kernel(halley_all, lambda rng, n: (rng.uniform(0.2, 30, n),)),
    Kernel(fixed_point, lambda rng, n: (0.6 * rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=n))),
    Kernel(kepler, lambda rng, n: (0.9, 0.4), sizes=(1,)),
    Kernel(arithmetic_geometric_mean, lambda rng, n: (1.3, 4.2), sizes=(1,)),
    Kernel(continued_fraction, lambda rng, n: (0.8, 0.1 * rng.normal(size=n)), sizes=(5, 12)),
    Kernel(horner, lambda rng, n: (rng.normal(size=n), 0.7), sizes=(5, 30)),
    Kernel(clenshaw, lambda rng, n: (rng.normal(size=n), np.linspace(-0.9, 0.8, 5))),
    Kernel(bessel_series, lambda rng, n: (2.3, 2), sizes=(1,)),
    Kernel(simpson, lambda rng, n: (0.2, 1.9), sizes=(1,)),
    Kernel(romberg, lambda rng, n: (-0.4, 1.3), sizes=(1,)),
    Kernel(richardson, lambda rng, n: (0.8,), sizes=(1,)),
    Kernel(gradient_descent, lambda rng, n: (rng.normal(size=n), np.diag(np.arange(1.0, n + 1)) + 0.1)),
    Kernel(golden_section, lambda rng, n: (0.9,), sizes=(1,)),
    Kernel(doubled_until_large, lambda rng, n: (rng.normal(size=n),), sizes=(3, 10)),
    Kernel(escape_time, lambda rng, n: (np.array([0.5, 0.6]), 50), sizes=(1,)),
)
