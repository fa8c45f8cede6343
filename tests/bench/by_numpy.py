"""Values with gradients derived by hand, in NumPy: a contestant, and the reference of the tasks. A long formula has none
(nobody writes its thousands of lines); its reference is a tape of scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg.blas import ddot
from scipy.special import expit, multigammaln, softmax

from tests.bench import programs


def sine(x, y):
    return x * y + math.sin(x), (y + math.cos(x), x)


def rosenbrock(x):
    a, b, g = x[1:] - x[:-1] ** 2, 1 - x[:-1], np.zeros_like(x)
    g[1:] += 200 * a
    g[:-1] += -400 * x[:-1] * a - 2 * b
    return 100 * np.dot(a, a) + np.dot(b, b), (g,)


def elementwise(x, a, b):
    t, e, q = np.tanh(a * x + b), np.exp(-x * x), 1 + x * x
    f = e / q
    c = 2 * t * (1 - t * t) * f
    return np.sum(t * t * f), (c * a - t * t * 2 * x * (f + f / q), np.dot(c, x), np.sum(c))


def logistic(w, X, y, ridge):
    z = -y * (X @ w)
    e = np.exp(z)
    return np.mean(np.log1p(e)) + 0.5 * ridge * (w @ w), (X.T @ (-y * (e / (1 + e))) / len(y) + ridge * w,)


def quasi_poisson(b, X, y):
    linear = X @ b
    mu = np.exp(linear)
    return y @ linear - np.sum(mu), (X.T @ (y - mu),)


def doubling(x, seed):
    y, k = x * 2, 2.0
    while math.sqrt(ddot(y, y)) < 1000:
        y, k = y * 2, 2 * k
    return y, (k * seed,)


def van_der_pol(state, mu, seed):
    """Scalars of Python: NumPy's are slower."""
    h, tape = 0.01, []
    x, v = float(state[0]), float(state[1])
    for _ in range(1000):
        a1, b1 = v, mu * (1.0 - x * x) * v - x
        x2, v2 = x + 0.5 * h * a1, v + 0.5 * h * b1
        a2, b2 = v2, mu * (1.0 - x2 * x2) * v2 - x2
        x3, v3 = x + 0.5 * h * a2, v + 0.5 * h * b2
        a3, b3 = v3, mu * (1.0 - x3 * x3) * v3 - x3
        x4, v4 = x + h * a3, v + h * b3
        a4, b4 = v4, mu * (1.0 - x4 * x4) * v4 - x4
        tape.append((x, v, x2, v2, x3, v3, x4, v4))
        x = x + h / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
        v = v + h / 6.0 * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
    end = np.array([x, v])
    p, q, r = float(seed[0]), float(seed[1]), 0.0
    for x, v, x2, v2, x3, v3, x4, v4 in reversed(tape):
        at, vt, total_p, total_q = h / 6.0 * p, h / 6.0 * q, p, q
        low_p = low_q = 0.0  # from the stage above, for the slopes of this one
        for (y, u), weight, back in (
            ((x4, v4), 1.0, h),
            ((x3, v3), 2.0, 0.5 * h),
            ((x2, v2), 2.0, 0.5 * h),
            ((x, v), 1.0, 0.0),
        ):
            s, t = weight * at + low_p, weight * vt + low_q
            r += (1.0 - y * y) * u * t
            yp, up = (-2.0 * mu * y * u - 1.0) * t, s + mu * (1.0 - y * y) * t
            total_p, total_q = total_p + yp, total_q + up
            low_p, low_q = back * yp, back * up
        p, q = total_p, total_q
    return end, (np.array([p, q]), r)


def network(W1, b1, W2, b2, X, Y):
    z = X @ W1 + b1
    h = np.maximum(z, 0)
    o = h @ W2 + b2
    o -= o.max(1, keepdims=True)
    e = np.exp(o)
    s = e.sum(1, keepdims=True)
    value = (np.log(s[:, 0]) - (o * Y).sum(1)).mean()
    d = (e / s - Y) / X.dtype.type(len(X))
    dh = d @ W2.T
    dh *= z > 0
    return value, (X.T @ dh, dh.sum(0), h.T @ d, d.sum(0))


def gaussian_process(theta, D, y):
    n = len(y)
    scale, lengths, noise = np.exp(theta[0]), np.exp(theta[1:4]), np.exp(theta[4])
    K0 = scale * np.exp(-0.5 * np.tensordot(1 / lengths**2, D, 1))
    K = K0 + noise * np.eye(n)
    L = np.linalg.cholesky(K)
    al = np.linalg.solve(K, y)
    value = -0.5 * y @ al - np.log(np.diag(L)).sum() - 0.5 * n * math.log(2 * math.pi)
    W = 0.5 * (np.outer(al, al) - np.linalg.inv(K))
    WK = W * K0
    return value, (np.array([WK.sum(), *(np.tensordot(D, WK, 2) / lengths**2), noise * np.trace(W)]),)


def mixture(alpha, mu, icf, x, gamma, m):
    """One component after the other, so that no array is larger than the points."""
    (n, d), K = x.shape, len(alpha)
    columns, rows = np.triu_indices(d, 1)
    q = icf[:, :d]
    L = np.zeros((K, d, d))
    L[:, rows, columns] = icf[:, d:]
    L[:, np.arange(d), np.arange(d)] = np.exp(q)
    apart = [x - mu[k] for k in range(K)]
    z = [apart[k] @ L[k].T for k in range(K)]
    beta = np.stack([alpha[k] + q[k].sum() - 0.5 * np.einsum("na,na->n", z[k], z[k]) for k in range(K)], axis=1)
    top = beta.max(axis=1, keepdims=True)
    e = np.exp(beta - top)
    s = e.sum(axis=1, keepdims=True)
    share = e / s
    freedom, largest = d + m + 1, alpha.max()
    value = -0.5 * n * d * math.log(2 * math.pi) + np.sum(np.log(s) + top)
    value -= n * (math.log(np.exp(alpha - largest).sum()) + largest)
    value += 0.5 * gamma**2 * np.sum(L * L) - m * np.sum(q)
    value -= K * (freedom * d * (math.log(gamma) - 0.5 * math.log(2)) - multigammaln(freedom / 2, d))
    weights = share.sum(axis=0)
    mu_adj, icf_adj = np.empty_like(mu), np.empty_like(icf)
    for k in range(K):
        za = -share[:, k, None] * z[k]
        mu_adj[k] = -(za.sum(axis=0) @ L[k])
        La = za.T @ apart[k] + gamma**2 * L[k]
        icf_adj[k, :d] = weights[k] - m + np.diag(La) * np.diag(L[k])
        icf_adj[k, d:] = La[rows, columns]
    return value, (weights - n * softmax(alpha), mu_adj, icf_adj)


def memory_network(main, extra, state, seq):
    steps, b = seq.shape
    layers = len(main) // 2
    h, c, tape, value = state[::2].copy(), state[1::2].copy(), [], 0.0
    w, bias = main[::2].reshape(layers, 4, b), main[1::2].reshape(layers, 4, b)
    main_adj, extra_adj = np.zeros((layers, 2, 4, b)), np.zeros_like(extra)
    y_adjs = []
    for t in range(steps - 1):
        x = seq[t] * extra[0]
        for k in range(layers):
            old_h, old_c = h[k].copy(), c[k].copy()
            f = expit(x * w[k, 0] + bias[k, 0])
            i = expit(old_h * w[k, 1] + bias[k, 1])
            o = expit(x * w[k, 2] + bias[k, 2])
            g = np.tanh(old_h * w[k, 3] + bias[k, 3])
            c[k] = old_c * f + i * g
            th = np.tanh(c[k])
            h[k] = o * th
            tape.append((x, old_h, old_c, f, i, o, g, th))
            x = h[k].copy()
        y = x * extra[1] + extra[2]
        e = np.exp(y)
        s = 2 + e.sum()
        value += np.sum(seq[t + 1] * (y - math.log(s)))
        y_adjs.append(seq[t + 1] - seq[t + 1].sum() * e / s)
    ha, ca = np.zeros((layers, b)), np.zeros((layers, b))
    for t in range(steps - 2, -1, -1):
        ya = y_adjs[t]
        last = tape[t * layers + layers - 1]
        extra_adj[1] += ya * (last[5] * last[7])
        extra_adj[2] += ya
        xa = ya * extra[1]
        for k in range(layers - 1, -1, -1):
            x, old_h, old_c, f, i, o, g, th = tape[t * layers + k]
            out = ha[k] + xa
            cell = ca[k] + out * o * (1 - th * th)
            s = np.stack([cell * old_c * f * (1 - f), cell * g * i * (1 - i), out * th * o * (1 - o), cell * i * (1 - g * g)])
            main_adj[k, 0] += s * np.stack([x, old_h, x, old_h])
            main_adj[k, 1] += s
            xa, ha[k], ca[k] = s[0] * w[k, 0] + s[2] * w[k, 2], s[1] * w[k, 1] + s[3] * w[k, 3], cell * f
        extra_adj[0] += xa * seq[t]
    scale = -1.0 / (b * (steps - 1))
    return scale * value, (scale * main_adj.reshape(main.shape), scale * extra_adj)


# -- the reference of long formulas -----------------------------------------------------------------------------------------
class Scalar:
    """A number on a tape, with the partial derivatives by the numbers that it was made of."""

    __slots__ = ("adj", "of", "value")
    tape: list[Scalar] = []  # noqa: RUF012  # one for all: only the reference of one task is computed at a time

    def __init__(self, value: float, *of: tuple[Scalar, float]) -> None:
        self.value, self.of, self.adj = value, of, 0.0
        Scalar.tape.append(self)

    def __add__(self, other: Any) -> Scalar:
        if not isinstance(other, Scalar):
            return Scalar(self.value + other, (self, 1.0))
        return Scalar(self.value + other.value, (self, 1.0), (other, 1.0))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Scalar:
        if not isinstance(other, Scalar):
            return Scalar(self.value * other, (self, other))
        return Scalar(self.value * other.value, (self, other.value), (other, self.value))

    __rmul__ = __mul__

    def __neg__(self) -> Scalar:
        return self * -1.0

    def __sub__(self, other: Any) -> Scalar:
        return self + -other

    def __rsub__(self, other: float) -> Scalar:
        return -self + other

    def __rtruediv__(self, other: float) -> Scalar:
        return Scalar(other / self.value, (self, -other / self.value**2))


class Words:
    """The functions of NumPy that long formulas call, of such numbers."""

    @staticmethod
    def sin(a: Scalar) -> Scalar:
        return Scalar(math.sin(a.value), (a, math.cos(a.value)))

    @staticmethod
    def cos(a: Scalar) -> Scalar:
        return Scalar(math.cos(a.value), (a, -math.sin(a.value)))

    @staticmethod
    def tanh(a: Scalar) -> Scalar:
        t = math.tanh(a.value)
        return Scalar(t, (a, 1 - t * t))

    @staticmethod
    def sqrt(a: Scalar) -> Scalar:
        return Scalar(math.sqrt(a.value), (a, 0.5 / math.sqrt(a.value)))


def by_tape(function: Any, x: Any) -> Any:
    Scalar.tape.clear()
    inputs = [Scalar(float(v)) for v in x]
    outcome = programs.retold(function, np=Words)(inputs)
    outcome.adj = 1.0
    for node in reversed(Scalar.tape):
        for parent, partial in node.of:
            parent.adj += partial * node.adj
    Scalar.tape.clear()
    return outcome.value, (np.array([v.adj for v in inputs]),)


CONTESTANTS = {
    f.__name__
    for f in (
        sine,
        rosenbrock,
        elementwise,
        logistic,
        quasi_poisson,
        doubling,
        van_der_pol,
        network,
        gaussian_process,
        mixture,
        memory_network,
    )
}
