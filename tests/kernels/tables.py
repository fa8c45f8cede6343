"""Sorting and dynamic programming: tables filled cell by cell."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def bubble_sort(x):
    y = x.copy()
    n = len(y)
    for i in range(n):
        for j in range(n - 1 - i):
            if y[j] > y[j + 1]:
                y[j], y[j + 1] = y[j + 1], y[j]
    return y


def insertion_sort(x):
    y = x.copy()
    for i in range(1, len(y)):
        key = y[i]
        j = i - 1
        while j >= 0 and y[j] > key:
            y[j + 1] = y[j]
            j -= 1
        y[j + 1] = key
    return y


def selection_sort_weighted(x, w):
    """Sorting carries a second array along."""
    x, w = x.copy(), w.copy()
    n = len(x)
    for i in range(n - 1):
        least = i
        for j in range(i + 1, n):
            if x[j] < x[least]:
                least = j
        x[i], x[least] = x[least], x[i]
        w[i], w[least] = w[least], w[i]
    return np.cumsum(x * w)


def _soft_min(a, b, c, temperature):
    low = min(a, b, c)
    return low - temperature * np.log(
        np.exp(-(a - low) / temperature) + np.exp(-(b - low) / temperature) + np.exp(-(c - low) / temperature)
    )


def soft_edit_distance(a, b, temperature):
    n, m = len(a), len(b)
    D = np.zeros((n + 1, m + 1))
    for i in range(n + 1):
        D[i, 0] = i
    for j in range(m + 1):
        D[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 1 - np.exp(-((a[i - 1] - b[j - 1]) ** 2))
            D[i, j] = _soft_min(D[i - 1, j] + 1, D[i, j - 1] + 1, D[i - 1, j - 1] + cost, temperature)
    return D[n, m]


def dynamic_time_warping(a, b):
    n, m = len(a), len(b)
    D = np.full((n + 1, m + 1), np.inf)
    D[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            D[i, j] = (a[i - 1] - b[j - 1]) ** 2 + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[n, m]


def needleman_wunsch(scores, gap):
    n, m = scores.shape
    H = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        H[i, 0] = -gap * i
    for j in range(1, m + 1):
        H[0, j] = -gap * j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            best = H[i - 1, j - 1] + scores[i - 1, j - 1]
            if H[i - 1, j] - gap > best:
                best = H[i - 1, j] - gap
            if H[i, j - 1] - gap > best:
                best = H[i, j - 1] - gap
            H[i, j] = best
    return H[n, m]


def smith_waterman_soft(scores, gap):
    n, m = scores.shape
    H = np.zeros((n + 1, m + 1))
    for i in range(n):
        for j in range(m):
            options = np.array([0.0, H[i, j] + scores[i, j], H[i, j + 1] - gap, H[i + 1, j] - gap])
            H[i + 1, j + 1] = np.log(np.sum(np.exp(options)))
    return np.max(H)


def longest_increasing_weight(x, w):
    """The heaviest rising subsequence."""
    n = len(x)
    best = w.copy()
    for i in range(n):
        for j in range(i):
            if x[j] < x[i] and best[j] + w[i] > best[i]:
                best[i] = best[j] + w[i]
    return best.max()


def knapsack(values, weights, start):
    """The weights are integers: they are indices."""
    table = start.copy()
    capacity = len(start) - 1
    for i in range(len(values)):
        for c in range(capacity, weights[i] - 1, -1):
            table[c] = max(table[c], table[c - weights[i]] + values[i])
    return table[capacity]


def floyd_warshall(D):
    D = D.copy()
    n = D.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if D[i, k] + D[k, j] < D[i, j]:
                    D[i, j] = D[i, k] + D[k, j]
    return D


def bellman_ford(D, source):
    n = D.shape[0]
    dist = np.full(n, 1e3)
    dist[source] = 0.0
    changed = True
    while changed:
        changed = False
        for i in range(n):
            for j in range(n):
                if dist[i] + D[i, j] < dist[j] - 1e-12:
                    dist[j] = dist[i] + D[i, j]
                    changed = True
    return dist


def hmm_forward(initial, transition, emission):
    """The likelihood of observations, scaled step by step."""
    T = emission.shape[0]
    alpha = initial * emission[0]
    total = 0.0
    for t in range(1, T):
        scale = alpha.sum()
        total += np.log(scale)
        alpha = (alpha / scale) @ transition * emission[t]
    return total + np.log(alpha.sum())


def viterbi(transition, emission):
    """The best path's score and what its states are worth, by back pointers."""
    T, n = emission.shape
    score = np.zeros((T, n))
    back = np.zeros((T, n), dtype=int)
    score[0] = emission[0]
    for t in range(1, T):
        for j in range(n):
            options = score[t - 1] + transition[:, j]
            k = np.argmax(options)
            back[t, j] = k
            score[t, j] = options[k] + emission[t, j]
    state = np.argmax(score[T - 1])
    worth = 0.0
    for t in range(T - 1, -1, -1):
        worth += emission[t, state] ** 2
        state = back[t, state]
    return score[T - 1].max(), worth


def viterbi_soft(transition, emission):
    T, n = emission.shape
    v = emission[0]
    for t in range(1, T):
        new = np.zeros(n)
        for j in range(n):
            options = v + transition[:, j]
            top = options.max()
            new[j] = emission[t, j] + top + np.log(np.exp(options - top).sum())
        v = new
    return np.log(np.exp(v).sum())


def ctc_forward(probabilities, labels):
    """Blanks between the labels; a label may follow another one only if they differ."""
    T = probabilities.shape[0]
    S = 2 * len(labels) + 1
    alpha = np.zeros(S)
    alpha[0] = probabilities[0, 0]
    alpha[1] = probabilities[0, labels[0]]
    for t in range(1, T):
        new = np.zeros(S)
        for s in range(S):
            label = 0 if s % 2 == 0 else labels[s // 2]
            total = alpha[s]
            if s > 0:
                total += alpha[s - 1]
            if s > 1 and s % 2 == 1 and labels[s // 2] != labels[s // 2 - 1]:
                total += alpha[s - 2]
            new[s] = total * probabilities[t, label]
        alpha = new
    return -np.log(alpha[S - 1] + alpha[S - 2])


def matrix_chain(dimensions):
    """The cost of the cheapest bracketing, over real dimensions."""
    n = len(dimensions) - 1
    cost = np.zeros((n, n))
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = np.inf
            for k in range(i, j):
                c = cost[i, k] + cost[k + 1, j] + dimensions[i] * dimensions[k + 1] * dimensions[j + 1]
                if c < cost[i, j]:
                    cost[i, j] = c
    return cost[0, n - 1]


def interpolate(xs, ys, points):
    """Piecewise linear; the interval is found by halving."""
    out = np.zeros(len(points))
    for i in range(len(points)):
        low, high = 0, len(xs) - 1
        while high - low > 1:
            middle = (low + high) // 2
            if xs[middle] > points[i]:
                high = middle
            else:
                low = middle
        share = (points[i] - xs[low]) / (xs[high] - xs[low])
        out[i] = ys[low] + share * (ys[high] - ys[low])
    return out


def _stochastic(rng, n):
    p = rng.uniform(0.1, 1, (n, n))
    return p / p.sum(axis=1, keepdims=True)


KERNELS = (
    Kernel(bubble_sort, lambda rng, n: (rng.normal(size=n),), sizes=(5, 12)),
    Kernel(insertion_sort, lambda rng, n: (rng.normal(size=n),), sizes=(5, 12)),
    Kernel(selection_sort_weighted, lambda rng, n: (rng.normal(size=n), rng.normal(size=n)), sizes=(5, 12)),
    Kernel(soft_edit_distance, lambda rng, n: (rng.normal(size=n), rng.normal(size=n + 2), 0.3)),
    Kernel(dynamic_time_warping, lambda rng, n: (rng.normal(size=n), rng.normal(size=n + 2))),
    Kernel(needleman_wunsch, lambda rng, n: (rng.normal(size=(n, n + 2)), 0.4)),
    Kernel(smith_waterman_soft, lambda rng, n: (rng.normal(size=(n, n + 2)), 0.4)),
    Kernel(longest_increasing_weight, lambda rng, n: (rng.normal(size=n), rng.uniform(0.5, 2, n)), sizes=(6, 12)),
    Kernel(knapsack, lambda rng, n: (rng.uniform(1, 5, n), rng.integers(1, 5, n), np.zeros(10))),
    Kernel(floyd_warshall, lambda rng, n: (rng.uniform(0.1, 3, (n, n)),), sizes=(3, 9)),
    Kernel(bellman_ford, lambda rng, n: (rng.uniform(0.1, 3, (n, n)), 1), sizes=(3, 9)),
    Kernel(hmm_forward, lambda rng, n: (np.full(3, 1 / 3), _stochastic(rng, 3), rng.uniform(0.1, 1, (n, 3))), sizes=(5, 12)),
    Kernel(viterbi, lambda rng, n: (rng.normal(size=(3, 3)), rng.normal(size=(n, 3))), sizes=(5, 12)),
    Kernel(viterbi_soft, lambda rng, n: (rng.normal(size=(3, 3)), rng.normal(size=(n, 3))), sizes=(5, 12)),
    Kernel(ctc_forward, lambda rng, n: (_stochastic(rng, n)[:, :4].copy(), np.array([1, 2, 2, 3])[: n // 2]), sizes=(6, 12)),
    Kernel(matrix_chain, lambda rng, n: (rng.uniform(1, 4, n),), sizes=(4, 10)),
    Kernel(
        interpolate, lambda rng, n: (np.sort(rng.uniform(0, 9, n)), rng.normal(size=n), rng.uniform(0, 9, 6)), sizes=(6, 12)
    ),
)
