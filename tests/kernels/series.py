"""Time series, filters and learning: a state carried along data."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def kalman(y, q, r):
    """The log likelihood of a local level model."""
    level, p, total = y[0], 1.0, 0.0
    for t in range(1, len(y)):
        p = p + q
        s = p + r
        gain = p / s
        v = y[t] - level
        total -= 0.5 * (np.log(2 * np.pi * s) + v * v / s)
        level = level + gain * v
        p = (1 - gain) * p
    return total


def kalman_matrices(y, F, Q, r):
    """Position and speed, position observed."""
    x, P = np.zeros(2), np.eye(2)
    H = np.array([1.0, 0.0])
    path = np.zeros((len(y), 2))
    for t in range(len(y)):
        x = F @ x
        P = F @ P @ F.T + Q
        gain = P @ H / (H @ P @ H + r)
        x = x + gain * (y[t] - H @ x)
        P = P - np.outer(gain, H @ P)
        path[t] = x
    return path


def garch(returns, omega, alpha, beta):
    n = len(returns)
    variance = np.zeros(n)
    variance[0] = np.mean(returns**2)
    for t in range(1, n):
        variance[t] = omega + alpha * returns[t - 1] ** 2 + beta * variance[t - 1]
    return -0.5 * np.sum(np.log(variance) + returns**2 / variance)


def moving_average_likelihood(y, theta, mu):
    """The innovations of an MA(2) process."""
    e = np.zeros(len(y))
    for t in range(len(y)):
        e[t] = y[t] - mu
        if t >= 1:
            e[t] -= theta[0] * e[t - 1]
        if t >= 2:
            e[t] -= theta[1] * e[t - 2]
    return np.sum(e**2)


def exponential_smoothing(y, alpha):
    s = y[0]
    error = 0.0
    for value in y[1:]:
        error += (value - s) ** 2
        s = alpha * value + (1 - alpha) * s
    return error


def holt_winters(y, alpha, beta, gamma):
    period = 4
    level, trend = y[0], 0.1
    season = np.zeros(period)
    error = 0.0
    for t in range(len(y)):
        k = t % period
        predicted = level + trend + season[k]
        error += (y[t] - predicted) ** 2
        last = level
        level = alpha * (y[t] - season[k]) + (1 - alpha) * (level + trend)
        trend = beta * (level - last) + (1 - beta) * trend
        season[k] = gamma * (y[t] - level) + (1 - gamma) * season[k]
    return error


def recurrent_cell(X, W, U, b):
    h = np.zeros(len(b))
    for t in range(X.shape[0]):
        h = np.tanh(W @ h + U @ X[t] + b)
    return h


def gated_cell(x, w):
    """A gated unit with all its states."""
    h = 0.0
    states = np.zeros(len(x))
    for t, value in enumerate(x):
        z = 1 / (1 + np.exp(-(w[0] * value + w[1] * h)))
        r = 1 / (1 + np.exp(-(w[2] * value + w[3] * h)))
        h = (1 - z) * h + z * np.tanh(w[4] * value + w[5] * r * h)
        states[t] = h
    return states


def convolve(x, kernel):
    n, m = len(x), len(kernel)
    y = np.zeros(n + m - 1)
    for i in range(n):
        for j in range(m):
            y[i + j] += x[i] * kernel[j]
    return y


def convolve_2d(image, kernel):
    n, m = image.shape
    out = np.zeros((n - 2, m - 2))
    for i in range(n - 2):
        for j in range(m - 2):
            s = 0.0
            for a in range(3):
                for b in range(3):
                    s += image[i + a, j + b] * kernel[a, b]
            out[i, j] = s if s > 0 else 0.1 * s
    return out


def prefix_products(x):
    y = np.empty_like(x)
    total = 1.0
    for i in range(x.shape[0]):
        total *= x[i]
        y[i] = total
    return y


def savitzky_golay(y, weights):
    n, half = len(y), len(weights) // 2
    out = y.copy()
    for i in range(half, n - half):
        out[i] = 0.0
        for k in range(-half, half + 1):
            out[i] += weights[k + half] * y[i + k]
    return out


def biquad(x, b, a):
    """Direct form II transposed."""
    y = np.zeros_like(x)
    z1 = z2 = 0.0
    for n in range(len(x)):
        y[n] = b[0] * x[n] + z1
        z1 = b[1] * x[n] - a[0] * y[n] + z2
        z2 = b[2] * x[n] - a[1] * y[n]
    return y


def goertzel(x, frequency):
    s1, s2 = 0.0, 0.0
    c = 2 * np.cos(frequency)
    for value in x:
        s1, s2 = value + c * s1 - s2, s1
    return s1**2 + s2**2 - c * s1 * s2


def adaptive_filter(x, d, mu):
    """Least mean squares with three taps."""
    w = np.zeros(3)
    error = 0.0
    for n in range(2, len(x)):
        u = x[n - 2 : n + 1]
        e = d[n] - w @ u
        w = w + mu * e * u
        error += e * e
    return error, w


def fft_radix_2(real, imag):
    """In place, with the bits of the index reversed by hand."""
    n = 8
    re, im = real.copy(), imag.copy()
    j = 0
    for i in range(1, n):
        bit = n // 2
        while j & bit:
            j ^= bit
            bit //= 2
        j ^= bit
        if i < j:
            re[i], re[j] = re[j], re[i]
            im[i], im[j] = im[j], im[i]
    length = 2
    while length <= n:
        angle = -2 * np.pi / length
        for start in range(0, n, length):
            for k in range(length // 2):
                c, s = np.cos(angle * k), np.sin(angle * k)
                p, q = start + k, start + k + length // 2
                tr = re[q] * c - im[q] * s
                ti = re[q] * s + im[q] * c
                re[q], im[q] = re[p] - tr, im[p] - ti
                re[p], im[p] = re[p] + tr, im[p] + ti
        length *= 2
    return re, im


def natural_spline(x, y):
    """Second derivatives at the knots."""
    n = len(x)
    h = x[1:] - x[:-1]
    u, z, m = np.ones(n), np.zeros(n), np.zeros(n)
    for i in range(1, n - 1):
        u[i] = 2 * (x[i + 1] - x[i - 1]) - h[i - 1] ** 2 / u[i - 1] * (i > 1)
        b = 6 * ((y[i + 1] - y[i]) / h[i] - (y[i] - y[i - 1]) / h[i - 1])
        z[i] = b - h[i - 1] * z[i - 1] / u[i - 1]
    for i in range(n - 2, 0, -1):
        m[i] = (z[i] - h[i] * m[i + 1]) / u[i]
    return m


def de_casteljau(points, t):
    p = points.copy()
    n = p.shape[0]
    for k in range(1, n):
        for i in range(n - k):
            p[i] = (1 - t) * p[i] + t * p[i + 1]
    return p[0]


def k_means(points, centres):
    """Three rounds; which centre a point belongs to is a decision."""
    k = centres.shape[0]
    centres = centres.copy()
    for _ in range(3):
        sums, counts = np.zeros_like(centres), np.zeros(k)
        for i in range(points.shape[0]):
            best, nearest = np.inf, 0
            for c in range(k):
                d = np.sum((points[i] - centres[c]) ** 2)
                if d < best:
                    best, nearest = d, c
            sums[nearest] += points[i]
            counts[nearest] += 1
        for c in range(k):
            if counts[c] > 0:
                centres[c] = sums[c] / counts[c]
    return centres


def mixture_em(x, means, scale):
    """Expectation and maximisation of two normals in one dimension."""
    m0, m1, weight = means[0], means[1], 0.5
    for _ in range(20):
        r = np.zeros(len(x))
        for i in range(len(x)):
            a = (1 - weight) * np.exp(-0.5 * ((x[i] - m0) / scale) ** 2)
            b = weight * np.exp(-0.5 * ((x[i] - m1) / scale) ** 2)
            r[i] = b / (a + b)
        weight = r.mean()
        m0 = np.sum((1 - r) * x) / np.sum(1 - r)
        m1 = np.sum(r * x) / np.sum(r)
    return m0, m1, weight


def stochastic_gradient(X, y, rate):
    """Two epochs of logistic regression, one row at a time."""
    w = np.zeros(X.shape[1])
    for epoch in range(2):
        for i in range(len(y)):
            p = 1 / (1 + np.exp(-(X[i] @ w)))
            w -= rate / (1 + epoch) * (p - y[i]) * X[i]
    return w


def metropolis(x, width, normals, uniforms):
    """A chain with given draws: proposals are accepted or not."""
    total, accepted = 0.0, 0
    for i in range(len(normals)):
        proposal = x + width * normals[i]
        if np.log(uniforms[i]) < 0.5 * (x * x - proposal * proposal):
            x = proposal
            accepted += 1
        total = total + x * x
    return total / len(normals), x * accepted


def perceptron(X, labels, start):
    """Corrections until every row is on its side, or ten rounds."""
    w = start.copy()
    rounds, wrong = 0, 1
    while wrong > 0 and rounds < 10:
        wrong = 0
        for i in range(len(labels)):
            if labels[i] * (X[i] @ w) <= 0.1:
                w = w + 0.3 * labels[i] * X[i]
                wrong += 1
        rounds += 1
    return w


def longest_run_above(x, level):
    """An early return from within a loop, else the whole sum."""
    total = 0.0
    for i in range(len(x)):
        if x[i] > level:
            continue
        total += (level - x[i]) ** 2
        if total > 2.0:
            return total * x[i]
    return total


def _separable(rng, n):
    X = rng.normal(size=(n, 3))
    return X, np.where(X @ np.array([1.0, -2.0, 0.5]) > 0, 1.0, -1.0), 0.1 * rng.normal(size=3)


def _state_space(rng, n):
    return rng.normal(size=n), np.array([[1.0, 0.3], [0.0, 0.9]]), 0.1 * np.eye(2), 0.5


KERNELS = (
    Kernel(kalman, lambda rng, n: (rng.normal(size=n), 0.3, 0.8), sizes=(6, 20)),
    Kernel(kalman_matrices, _state_space, sizes=(6, 20)),
    Kernel(garch, lambda rng, n: (rng.normal(size=n), 0.1, 0.15, 0.7), sizes=(6, 20)),
    Kernel(moving_average_likelihood, lambda rng, n: (rng.normal(size=n), np.array([0.4, -0.2]), 0.1), sizes=(6, 20)),
    Kernel(exponential_smoothing, lambda rng, n: (rng.normal(size=n), 0.3), sizes=(6, 20)),
    Kernel(holt_winters, lambda rng, n: (rng.normal(size=n), 0.4, 0.2, 0.3), sizes=(7, 20)),
    Kernel(
        recurrent_cell,
        lambda rng, n: (rng.normal(size=(n, 2)), rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=3)),
        sizes=(5, 20),
    ),
    Kernel(gated_cell, lambda rng, n: (rng.normal(size=n), rng.normal(size=6)), sizes=(5, 20)),
    Kernel(convolve, lambda rng, n: (rng.normal(size=n), rng.normal(size=3)), sizes=(5, 12)),
    Kernel(convolve_2d, lambda rng, n: (rng.normal(size=(n, n)), rng.normal(size=(3, 3))), sizes=(5, 9)),
    Kernel(prefix_products, lambda rng, n: (rng.uniform(0.5, 1.5, n),), sizes=(5, 20)),
    Kernel(savitzky_golay, lambda rng, n: (rng.normal(size=n), np.array([-3, 12, 17, 12, -3]) / 35), sizes=(7, 20)),
    Kernel(biquad, lambda rng, n: (rng.normal(size=n), np.array([0.2, 0.4, 0.2]), np.array([-0.5, 0.3])), sizes=(6, 20)),
    Kernel(goertzel, lambda rng, n: (rng.normal(size=n), 0.9), sizes=(6, 20)),
    Kernel(adaptive_filter, lambda rng, n: (rng.normal(size=n), rng.normal(size=n), 0.05), sizes=(6, 20)),
    Kernel(fft_radix_2, lambda rng, n: (rng.normal(size=8), rng.normal(size=8)), sizes=(1,)),
    Kernel(natural_spline, lambda rng, n: (np.cumsum(rng.uniform(0.5, 1.5, n)), rng.normal(size=n)), sizes=(6, 12)),
    Kernel(de_casteljau, lambda rng, n: (rng.normal(size=(n, 2)), 0.3), sizes=(4, 10)),
    Kernel(k_means, lambda rng, n: (rng.normal(size=(n, 2)), rng.normal(size=(2, 2))), sizes=(6, 14)),
    Kernel(mixture_em, lambda rng, n: (rng.normal(size=n) + np.arange(n) % 2, np.array([-0.5, 1.5]), 0.8), sizes=(5, 20)),
    Kernel(stochastic_gradient, lambda rng, n: (rng.normal(size=(n, 3)), rng.uniform(0, 1, n), 0.4), sizes=(6, 14)),
    Kernel(metropolis, lambda rng, n: (0.4, 1.2, rng.normal(size=n), rng.uniform(0.05, 1, n)), sizes=(6, 30)),
    Kernel(perceptron, _separable, sizes=(6, 12)),
    Kernel(longest_run_above, lambda rng, n: (rng.normal(size=n), 0.3), sizes=(6, 20)),
)
