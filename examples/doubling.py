"""A loop that runs as often as the data makes it: the gradient is the seed, times 2 for every doubling.

``y`` is doubled until it is longer than 1000. Going backwards, each trip multiplies the gradient by 2 once more, so for the k
doublings of one x the gradient is ``seed * 2**k``; another x makes another number of trips, with the same compiled code.
"""

from pathlib import Path

import numpy as np

import pullback as pb


@pb.compile
def doubled(x):
    y = x * 2
    while np.linalg.norm(y) < 1000:
        y = y * 2
    return y


def doublings(x):
    """How often this x is doubled, counted by hand."""
    count, y = 1, x * 2
    while np.linalg.norm(y) < 1000:
        count, y = count + 1, y * 2
    return count


seed = np.array([0.1, 1.0, 0.0001])  # the gradient of some loss by y
from_file = pb.load(Path(__file__).with_name("doubling.expr"))
rng = np.random.default_rng(3)

print("  doublings   gradient")
for _ in range(50):
    x = rng.normal(size=3) * 10.0 ** rng.uniform(-3, 4)
    k = doublings(x)
    y, gradient = doubled.vjp(x, seed=seed)
    assert np.array_equal(y, x * 2.0**k) and np.array_equal(gradient, seed * 2.0**k)
    assert np.array_equal(from_file.grad(x, seed=seed), gradient)

    leaf = pb.variable(x)
    doubled(leaf).backward(seed)
    assert np.array_equal(leaf.grad, gradient)
    if _ < 5:
        print(f"  {k:>9}   {gradient}")

print()
print(doubled.explain(np.array([120.0, -35.0, 60.0]), seed=seed))
