"""The programs, as a user writes them in NumPy: nothing in them is meant for a compiler. Peers that speak NumPy run these very
functions (``retold``), the others the same thing in their own words."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp, multigammaln

constant = np  # stays NumPy where `np` is another library


def retold(function: Callable[..., Any], **world: Any) -> Callable[..., Any]:
    """The same program where names such as ``np`` mean another library; the functions it calls go with it."""
    names = {**globals(), **world}
    for name, found in globals().items():
        if isinstance(found, types.FunctionType) and found.__module__ == __name__ and name not in world:
            names[name] = types.FunctionType(found.__code__, names, name, found.__defaults__)
    return types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)


# -- a few numbers, a vector --------------------------------------------------------------------------------------------
def sine(x, y):
    return x * y + np.sin(x)


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def elementwise(x, a, b):
    return np.sum(np.tanh(a * x + b) ** 2 * np.exp(-x * x) / (1.0 + x * x))


# -- regressions ----------------------------------------------------------------------------------------------------------
def logistic(w, X, y, ridge):
    return np.mean(np.log1p(np.exp(-y * (X @ w)))) + 0.5 * ridge * (w @ w)


def quasi_poisson(b, X, y):
    mu = np.exp(X @ b)
    return np.sum(y * np.log(mu) - mu)


# -- loops ----------------------------------------------------------------------------------------------------------------
def doubling(x):
    y = x * 2
    while np.linalg.norm(y) < 1000:
        y = y * 2
    return y


def van_der_pol(state, mu):
    h = 0.01
    x, v = state
    for _ in range(1000):
        a1, b1 = v, mu * (1.0 - x * x) * v - x
        x2, v2 = x + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = v2, mu * (1.0 - x2 * x2) * v2 - x2
        x3, v3 = x + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = v3, mu * (1.0 - x3 * x3) * v3 - x3
        x4, v4 = x + h * a3, v + h * b3
        a4, b4 = v4, mu * (1.0 - x4 * x4) * v4 - x4
        x = x + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
        v = v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
    return np.array([x, v])


# -- long formulas over scalars -------------------------------------------------------------------------------------------
def random_formula(nodes):
    """A function of 10 numbers in about that many random operations, each of an earlier result."""
    from tests.bench.inputs import formula

    steps, ends = formula(nodes)

    def dag(x):
        v = list(x)
        for op, a, b in steps:
            if op == "add":
                v.append(v[a] + v[b])
            elif op == "sub":
                v.append(v[a] - v[b])
            elif op == "mul":
                v.append(v[a] * v[b])
            elif op == "sin":
                v.append(np.sin(v[a]))
            elif op == "cos":
                v.append(np.cos(v[a]))
            else:
                v.append(np.tanh(v[a]))
        total = v[ends[0]]
        for j in ends[1:]:
            total = total + v[j]
        return total

    return dag


LINKS = (  # of a robot arm of seven joints: twist, offset, length (Denavit and Hartenberg's parameters)
    (0.0, 0.333, 0.0),
    (-1.1, 0.0, 0.1),
    (1.1, 0.316, 0.2),
    (1.3, 0.0, 0.0825),
    (-1.3, 0.384, -0.0825),
    (1.2, 0.0, 0.1),
    (1.4, 0.107, 0.088),
)


def arm(angles):
    """How far the hand is from a target, and how it is turned."""
    T = None
    for i, (twist, offset, length) in enumerate(LINKS):
        c, s = np.cos(angles[i]), np.sin(angles[i])
        ct, st = math.cos(twist), math.sin(twist)
        A = [[c, -s * ct, s * st, length * c], [s, c * ct, -c * st, length * s], [0.0, st, ct, offset]]
        if T is None:
            T = A
        else:
            T = [
                [row[0] * A[0][j] + row[1] * A[1][j] + row[2] * A[2][j] for j in range(3)]
                + [row[0] * A[0][3] + row[1] * A[1][3] + row[2] * A[2][3] + row[3]]
                for row in T
            ]
    dx, dy, dz = T[0][3] - 0.3, T[1][3] - 0.2, T[2][3] - 0.5
    return dx * dx + dy * dy + dz * dz + 0.1 * (T[0][0] + T[1][1] + T[2][2])


def potential(masses):
    """Of bodies with these masses."""

    def bodies(x):
        energy = 0.0
        for i in range(len(masses)):
            for j in range(i + 1, len(masses)):
                dx = x[3 * i] - x[3 * j]
                dy = x[3 * i + 1] - x[3 * j + 1]
                dz = x[3 * i + 2] - x[3 * j + 2]
                energy = energy - masses[i] * masses[j] / np.sqrt(dx * dx + dy * dy + dz * dz + 0.01)
        return energy

    return bodies


# -- models -----------------------------------------------------------------------------------------------------------------
def network(W1, b1, W2, b2, X, Y):
    h = np.maximum(X @ W1 + b1, 0)
    o = h @ W2 + b2
    o = o - np.max(o, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(o), axis=1)) - np.sum(o * Y, axis=1))


def gaussian_process(theta, D, y):
    """The logarithm of the marginal likelihood; D[k] are the squared distances along coordinate k."""
    n = len(y)
    scale, lengths, noise = np.exp(theta[0]), np.exp(theta[1:4]), np.exp(theta[4])
    K = scale * np.exp(-0.5 * np.tensordot(1.0 / lengths**2, D, 1)) + noise * np.eye(n)
    L = np.linalg.cholesky(K)
    return -0.5 * y @ np.linalg.solve(K, y) - np.sum(np.log(np.diag(L))) - 0.5 * n * math.log(2 * math.pi)


def mixture(alpha, mu, icf, x, gamma, m):
    """The log-posterior of a Gaussian mixture (ADBench's GMM): a factor of each inverse covariance is given by the logarithm
    of its diagonal and the columns of its strict lower triangle; gamma and m are of the Wishart prior."""
    n, d = x.shape
    K = len(alpha)
    q = icf[:, :d]
    L = np.zeros((K, d, d))
    columns, rows = np.triu_indices(d, 1)
    L[:, rows, columns] = icf[:, d:]
    L[:, np.arange(d), np.arange(d)] = np.exp(q)
    z = np.einsum("kab,nkb->nka", L, x[:, None, :] - mu)
    beta = alpha + np.sum(q, axis=1) - 0.5 * np.sum(z * z, axis=2)
    freedom = d + m + 1
    prior = np.sum(0.5 * gamma**2 * np.sum(L * L, axis=(1, 2)) - m * np.sum(q, axis=1))
    prior = prior - K * (freedom * d * (np.log(gamma) - 0.5 * np.log(2.0)) - multigammaln(freedom / 2, d))
    return -0.5 * n * d * np.log(2 * np.pi) + np.sum(logsumexp(beta, axis=1)) - n * logsumexp(alpha) + prior


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def memory_network(main, extra, state, seq):
    """The loss of a long short-term memory with diagonal weights (ADBench's LSTM) that predicts the next row of ``seq``."""
    steps, b = seq.shape
    layers = len(main) // 2
    s = state.copy()
    total = 0.0
    for t in range(steps - 1):
        x = seq[t] * extra[0]
        for k in range(layers):
            w, bias, h, c = main[2 * k], main[2 * k + 1], s[2 * k], s[2 * k + 1]
            forget = sigmoid(x * w[:b] + bias[:b])
            ingate = sigmoid(h * w[b : 2 * b] + bias[b : 2 * b])
            outgate = sigmoid(x * w[2 * b : 3 * b] + bias[2 * b : 3 * b])
            change = np.tanh(h * w[3 * b :] + bias[3 * b :])
            c = c * forget + ingate * change
            x = outgate * np.tanh(c)
            s[2 * k] = x
            s[2 * k + 1] = c
        y = x * extra[1] + extra[2]
        total = total + np.sum(seq[t + 1] * (y - np.log(2.0 + np.sum(np.exp(y)))))
    return -total / (b * (steps - 1))


# -- the same, for libraries without item assignment --------------------------------------------------------------------
def mixture_by_products(alpha, mu, icf, x, gamma, m):
    """Ones and zeros put the numbers where they belong."""
    n, d = x.shape
    K = len(alpha)
    columns, rows = constant.triu_indices(d, 1)
    place = constant.zeros((d * (d + 1) // 2, d, d))
    place[constant.arange(d), constant.arange(d), constant.arange(d)] = 1.0
    place[d + constant.arange(len(rows)), rows, columns] = 1.0
    q = icf[:, :d]
    L = np.einsum("kp,pab->kab", np.concatenate([np.exp(q), icf[:, d:]], axis=1), place)
    z = np.einsum("kab,nkb->nka", L, x[:, None, :] - mu)
    beta = alpha + np.sum(q, axis=1) - 0.5 * np.sum(z * z, axis=2)
    freedom = d + m + 1
    prior = np.sum(0.5 * gamma**2 * np.sum(L * L, axis=(1, 2)) - m * np.sum(q, axis=1))
    prior = prior - K * (freedom * d * (math.log(gamma) - 0.5 * math.log(2.0)) - float(multigammaln(freedom / 2, d)))
    return -0.5 * n * d * math.log(2 * math.pi) + np.sum(logsumexp(beta, axis=1)) - n * logsumexp(alpha, axis=0) + prior


def memory_network_of_lists(main, extra, state, seq):
    steps, b = seq.shape
    s = list(state)
    total = 0.0
    for t in range(steps - 1):
        x = seq[t] * extra[0]
        for k in range(len(s) // 2):
            w, bias, h, c = main[2 * k], main[2 * k + 1], s[2 * k], s[2 * k + 1]
            forget = sigmoid(x * w[:b] + bias[:b])
            ingate = sigmoid(h * w[b : 2 * b] + bias[b : 2 * b])
            outgate = sigmoid(x * w[2 * b : 3 * b] + bias[2 * b : 3 * b])
            change = np.tanh(h * w[3 * b :] + bias[3 * b :])
            c = c * forget + ingate * change
            x = outgate * np.tanh(c)
            s[2 * k], s[2 * k + 1] = x, c
        y = x * extra[1] + extra[2]
        total = total + np.sum(seq[t + 1] * (y - np.log(2.0 + np.sum(np.exp(y)))))
    return -total / (b * (steps - 1))
