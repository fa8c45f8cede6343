"""Matrices by hand: factorizations, solvers, eigenvalues."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel, dominant, positive_definite


def cholesky(A):
    n = A.shape[0]
    L = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= L[i, k] * L[j, k]
            if i == j:
                L[i, j] = np.sqrt(s)
            else:
                L[i, j] = s / L[j, j]
    return L


def cholesky_rows(A):
    """The same with a dot product of two row prefixes in the inner loop."""
    n = A.shape[0]
    L = np.zeros_like(A)
    for i in range(n):
        for j in range(i):
            L[i, j] = (A[i, j] - L[i, :j] @ L[j, :j]) / L[j, j]
        L[i, i] = np.sqrt(A[i, i] - np.sum(L[i, :i] ** 2))
    return L


def lu_doolittle(A):
    n = A.shape[0]
    L, U = np.eye(n), np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            s = 0.0
            for k in range(i):
                s += L[i, k] * U[k, j]
            U[i, j] = A[i, j] - s
        for j in range(i + 1, n):
            s = 0.0
            for k in range(i):
                s += L[j, k] * U[k, i]
            L[j, i] = (A[j, i] - s) / U[i, i]
    return L, U


def solve_with_pivoting(A, b):
    """Gaussian elimination; rows change places."""
    n = len(b)
    M, x = A.copy(), b.copy()
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(M[i, k]) > abs(M[p, k]):
                p = i
        if p != k:
            row = M[k].copy()
            M[k] = M[p]
            M[p] = row
            x[k], x[p] = x[p], x[k]
        for i in range(k + 1, n):
            factor = M[i, k] / M[k, k]
            M[i, k:] -= factor * M[k, k:]
            x[i] -= factor * x[k]
    for i in range(n - 1, -1, -1):
        x[i] = (x[i] - M[i, i + 1 :] @ x[i + 1 :]) / M[i, i]
    return x


def triangular_solves(L, b):
    n = len(b)
    y = np.zeros(n)
    for i in range(n):
        y[i] = (b[i] - np.dot(L[i, :i], y[:i])) / L[i, i]
    x = np.zeros(n)
    for i in reversed(range(n)):
        s = y[i]
        for j in range(i + 1, n):
            s = s - L[j, i] * x[j]
        x[i] = s / L[i, i]
    return x


def gauss_seidel(A, b):
    n = len(b)
    x = np.zeros(n)
    for _ in range(20):
        for i in range(n):
            s = 0.0
            for j in range(n):
                if j != i:
                    s += A[i, j] * x[j]
            x[i] = (b[i] - s) / A[i, i]
    return x


def over_relaxation(A, b, omega):
    """Until the residual is small: the number of sweeps depends on the data."""
    x = np.zeros_like(b)
    while np.linalg.norm(b - A @ x) > 1e-3:
        for i in range(len(b)):
            gap = b[i] - A[i] @ x
            x[i] += omega * gap / A[i, i]
    return x


def thomas(lower, diagonal, upper, d):
    n = len(d)
    c, x = np.zeros(n), np.zeros(n)
    c[0] = upper[0] / diagonal[0]
    x[0] = d[0] / diagonal[0]
    for i in range(1, n):
        m = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / m
        x[i] = (d[i] - lower[i] * x[i - 1]) / m
    for i in range(n - 2, -1, -1):
        x[i] = x[i] - c[i] * x[i + 1]
    return x


def gram_schmidt(A):
    Q = A.copy()
    n = A.shape[1]
    for j in range(n):
        for k in range(j):
            Q[:, j] -= (Q[:, k] @ Q[:, j]) * Q[:, k]
        Q[:, j] /= np.sqrt(np.sum(Q[:, j] ** 2))
    return Q


def householder(A):
    """The triangular factor of QR, in place."""
    R = A.copy()
    n = R.shape[0]
    for k in range(n - 1):
        x = R[k:, k]
        alpha = -np.sign(x[0]) * np.sqrt(np.sum(x * x))
        v = x.copy()
        v[0] -= alpha
        v = v / np.sqrt(np.sum(v * v))
        R[k:, k:] -= 2.0 * np.outer(v, v @ R[k:, k:])
    return R


def jacobi_eigenvalues(A):
    """Two sweeps of rotations; the diagonal."""
    M = A.copy()
    n = M.shape[0]
    for _ in range(2):
        for p in range(n - 1):
            for q in range(p + 1, n):
                theta = 0.5 * np.arctan2(2 * M[p, q], M[q, q] - M[p, p])
                c, s = np.cos(theta), np.sin(theta)
                for k in range(n):
                    mkp, mkq = M[k, p], M[k, q]
                    M[k, p] = c * mkp - s * mkq
                    M[k, q] = s * mkp + c * mkq
                for k in range(n):
                    mpk, mqk = M[p, k], M[q, k]
                    M[p, k] = c * mpk - s * mqk
                    M[q, k] = s * mpk + c * mqk
    return np.diag(M)


def power_iteration(A, v):
    old, new = 0.0, 1.0
    while abs(new - old) > 1e-5:
        w = A @ v
        old = new
        new = np.sqrt(w @ w)
        v = w / new
    return new, v


def conjugate_gradient(A, b):
    x = np.zeros(len(b))
    r = b - A @ x
    p = r
    rs = r @ r
    for _ in range(len(b)):
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x = x + alpha * p
        r = r - alpha * Ap
        new = r @ r
        if np.sqrt(new) < 1e-4:
            break
        p = r + (new / rs) * p
        rs = new
    return x


def matrix_exponential(A):
    """Scaling and squaring of a Taylor series."""
    norm = np.max(np.sum(np.abs(A), axis=1))
    squarings = 0
    while norm > 0.5:
        norm = norm / 2
        squarings += 1
    X = A / 2.0**squarings
    n = A.shape[0]
    term, total = np.eye(n), np.eye(n)
    for k in range(1, 18):
        term = term @ X / k
        total = total + term
    for _ in range(squarings):
        total = total @ total
    return total


def pagerank(links, damping):
    n = links.shape[0]
    P = links / links.sum(axis=0)
    rank = np.ones(n) / n
    change = 1.0
    while change > 1e-6:
        new = damping * (P @ rank) + (1 - damping) / n
        change = np.abs(new - rank).sum()
        rank = new
    return rank


def determinant(A):
    M = A.copy()
    n = M.shape[0]
    det = 1.0
    for k in range(n):
        det *= M[k, k]
        for i in range(k + 1, n):
            f = M[i, k] / M[k, k]
            for j in range(k, n):
                M[i, j] -= f * M[k, j]
    return det


def gauss_jordan_inverse(A):
    n = A.shape[0]
    W = np.concatenate([A, np.eye(n)], axis=1)
    for i in range(n):
        W[i] = W[i] / W[i, i]
        for j in range(n):
            if i != j:
                W[j] -= W[j, i] * W[i]
    return W[:, n:]


def levinson_durbin(r):
    n = len(r) - 1
    a = np.zeros(n + 1)
    a[0] = 1.0
    error = r[0]
    for i in range(1, n + 1):
        acc = r[i]
        for j in range(1, i):
            acc += a[j] * r[i - j]
        k = -acc / error
        before = a.copy()
        for j in range(1, i):
            a[j] = before[j] + k * before[i - j]
        a[i] = k
        error *= 1 - k * k
    return a, error


def matmul(A, B):
    n, m, p = A.shape[0], A.shape[1], B.shape[1]
    C = np.zeros((n, p))
    for i in range(n):
        for j in range(p):
            for k in range(m):
                C[i, j] += A[i, k] * B[k, j]
    return C


def _bands(rng, n):
    return rng.uniform(-1, 1, n), rng.uniform(3, 4, n), rng.uniform(-1, 1, n), rng.normal(size=n)


KERNELS = (
    Kernel(cholesky, lambda rng, n: (positive_definite(rng, n),)),
    Kernel(cholesky_rows, lambda rng, n: (positive_definite(rng, n),)),
    Kernel(lu_doolittle, lambda rng, n: (dominant(rng, n),)),
    Kernel(solve_with_pivoting, lambda rng, n: (dominant(rng, n)[::-1].copy(), rng.normal(size=n))),
    Kernel(triangular_solves, lambda rng, n: (dominant(rng, n), rng.normal(size=n))),
    Kernel(gauss_seidel, lambda rng, n: (dominant(rng, n), rng.normal(size=n))),
    Kernel(over_relaxation, lambda rng, n: (dominant(rng, n), rng.normal(size=n), 1.1)),
    Kernel(thomas, _bands, sizes=(5, 12)),
    Kernel(gram_schmidt, lambda rng, n: (dominant(rng, n),)),
    Kernel(householder, lambda rng, n: (dominant(rng, n),)),
    Kernel(jacobi_eigenvalues, lambda rng, n: (positive_definite(rng, n) + np.diag(np.arange(n)),)),
    Kernel(power_iteration, lambda rng, n: (positive_definite(rng, n) + np.diag(np.arange(n)), np.ones(n))),
    Kernel(conjugate_gradient, lambda rng, n: (positive_definite(rng, n), rng.normal(size=n))),
    Kernel(matrix_exponential, lambda rng, n: (rng.normal(size=(n, n)) / 2,)),
    Kernel(pagerank, lambda rng, n: (rng.uniform(0.1, 1, (n, n)), 0.85)),
    Kernel(determinant, lambda rng, n: (dominant(rng, n) / n,)),
    Kernel(gauss_jordan_inverse, lambda rng, n: (dominant(rng, n),)),
    Kernel(levinson_durbin, lambda rng, n: (np.array([2.0, *(0.8 ** np.arange(n) * rng.uniform(0.3, 1, n))]),), sizes=(5, 12)),
    Kernel(matmul, lambda rng, n: (rng.normal(size=(n, 3)), rng.normal(size=(3, n)))),
)
