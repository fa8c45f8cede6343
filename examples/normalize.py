"""The backward of normalising a vector: only the part of the seed across the vector gets through."""

import numpy as np

import pullback as pb


@pb.compile
def normalize(x):
    return x / np.sqrt(np.sum(x * x))


x = np.array([3.0, 0.0, -4.0])
seed = np.array([1.0, 2.0, -1.0])

unit, dx = normalize.vjp(x, seed=seed)
by_hand = (seed - unit * (unit @ seed)) / np.linalg.norm(x)
print("x / |x| =", unit)
print("backward:", dx, " by hand:", by_hand)
assert np.allclose(dx, by_hand, rtol=0, atol=1e-15)
assert abs(dx @ x) < 1e-15  # lengthening x changes nothing
assert np.allclose(normalize.grad(x, seed=x), 0, rtol=0, atol=1e-15)  # a seed along x is lost
