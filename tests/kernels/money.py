"""Prices and payments."""

from __future__ import annotations

import numpy as np

from tests.kernels import Kernel


def binomial_american_put(spot, strike, rate, sigma):
    steps = 30
    dt = 1.0 / steps
    up = np.exp(sigma * np.sqrt(dt))
    p = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    discount = np.exp(-rate * dt)
    values = np.zeros(steps + 1)
    for j in range(steps + 1):
        values[j] = max(strike - spot * up ** (2.0 * j - steps), 0.0)
    for i in range(steps - 1, -1, -1):
        for j in range(i + 1):
            held = discount * (p * values[j + 1] + (1 - p) * values[j])
            exercised = strike - spot * up ** (2.0 * j - i)
            values[j] = held if held > exercised else exercised
    return values[0]


def barrier_monte_carlo(spot, sigma, barrier, draws):
    """Paths that touch the barrier are worth nothing."""
    paths, steps = draws.shape
    total = 0.0
    for i in range(paths):
        s = spot
        alive = True
        for t in range(steps):
            s = s * np.exp(-0.5 * sigma**2 / steps + sigma * np.sqrt(1 / steps) * draws[i, t])
            if s < barrier:
                alive = False
                break
        if alive:
            total += max(s - 1.0, 0.0)
    return total / paths


def bond_yield(price, coupons):
    """Newton's method over a sum of discounted payments."""
    y = 0.05
    for _ in range(100):
        value, slope = 0.0, 0.0
        for t in range(len(coupons)):
            d = (1 + y) ** -(t + 1.0)
            value += coupons[t] * d
            slope -= (t + 1) * coupons[t] * d / (1 + y)
        step = (value - price) / slope
        y = y - step
        if abs(step) < 1e-13:
            break
    return y


def loan(balance, rate, payment):
    """Paid off month by month; the interest paid in all."""
    interest, months = 0.0, 0
    while balance > 0 and months < 600:
        due = balance * rate / 12
        interest += due
        if balance + due < payment:
            balance = 0.0
        else:
            balance = balance + due - payment
        months += 1
    return interest


def drawdown(returns, start):
    """The deepest fall from a peak, and the wealth at the end."""
    wealth, peak, worst = start, start, 0.0
    for r in returns:
        wealth *= 1 + r
        peak = max(peak, wealth)
        fall = (peak - wealth) / peak
        if fall > worst:
            worst = fall
    return worst, wealth


def rebalanced(returns, target, cost):
    """Two assets, brought back to their shares when they have drifted."""
    a, b = target, 1 - target
    trades = 0
    for t in range(returns.shape[0]):
        a = a * (1 + returns[t, 0])
        b = b * (1 + returns[t, 1])
        share = a / (a + b)
        if abs(share - target) > 0.05:
            total = (a + b) * (1 - cost * abs(share - target))
            a, b = target * total, (1 - target) * total
            trades += 1
    return a + b, trades * (a - b)


def implied_volatility(price, strike):
    """Newton inside a bracket that is halved where Newton leaves it; the normal distribution by its series."""
    low, high, sigma = 0.01, 2.0, 0.4
    for _ in range(40):
        d1 = -np.log(strike) / sigma + sigma / 2
        d2 = d1 - sigma
        n1, n2 = 1 / (1 + np.exp(-1.702 * d1)), 1 / (1 + np.exp(-1.702 * d2))
        gap = n1 - strike * n2 - price
        if gap > 0:
            high = sigma
        else:
            low = sigma
        vega = 1.702 * (
            n1 * (1 - n1) * (np.log(strike) / sigma**2 + 0.5) - strike * n2 * (1 - n2) * (np.log(strike) / sigma**2 - 0.5)
        )
        new = sigma - gap / vega
        if new < low or new > high:
            new = 0.5 * (low + high)
        if abs(new - sigma) < 1e-13:
            break
        sigma = new
    return sigma


KERNELS = (
    Kernel(binomial_american_put, lambda rng, n: (1.0, 1.05, 0.04, 0.3), sizes=(1,)),
    Kernel(barrier_monte_carlo, lambda rng, n: (1.1, 0.3, 0.9, rng.normal(size=(n, 5))), sizes=(3, 12)),
    Kernel(bond_yield, lambda rng, n: (0.9 + 0.03 * n, np.array([0.06] * (n - 1) + [1.06])), sizes=(5, 12)),
    Kernel(loan, lambda rng, n: (100.0, 0.05, 1.3), sizes=(1,)),
    Kernel(drawdown, lambda rng, n: (0.1 * rng.normal(size=n), 1.3), sizes=(7, 30)),
    Kernel(rebalanced, lambda rng, n: (0.1 * rng.normal(size=(n, 2)), 0.6, 0.02), sizes=(7, 30)),
    Kernel(implied_volatility, lambda rng, n: (0.12, 1.1), sizes=(1,)),
)
