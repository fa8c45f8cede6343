"""The seed is the gradient of some later loss with respect to the output. It is an input of the gradient."""

import numpy as np

import pullback as pb


@pb.compile
def total(a, b):
    return np.sum(a - b)


a = np.array([[1.0, 2.0], [3.0, 4.0]])
b = np.array([[0.5, -1.0], [2.0, 7.0]])

# the output is a scalar, so its seed is 1 unless another one is given
da, db = total.grad(a, b)
print("no seed:", da.tolist(), db.tolist())
assert np.array_equal(da, [[1, 1], [1, 1]])
assert np.array_equal(db, [[-1, -1], [-1, -1]])

da, db = total.grad(a, b, seed=[1.0])  # a seed of one element counts as a scalar
assert np.array_equal(da, [[1, 1], [1, 1]])
assert np.array_equal(db, [[-1, -1], [-1, -1]])

# a seed of the shape that was summed flows back as if nothing had been summed, if one asks for it
da, db = total.grad(a, b, seed=[[1.0, 2.0], [3.0, 4.0]], seed_mode="expand")
print("expanded:", da.tolist(), db.tolist())
assert np.array_equal(da, [[1, 2], [3, 4]])
assert np.array_equal(db, [[-1, -2], [-3, -4]])

try:
    total.grad(a, b, seed=[[1.0, 2.0], [3.0, 4.0]])
except pb.SeedError as error:
    print("without asking:", error)
else:
    raise AssertionError("a seed of another shape must be refused")


@pb.compile
def product(a, b):
    return a @ b


a = np.array([[0.0, 0.0], [2.0, 2.0]])
b = np.array([[1.0, 2.0], [1.0, 2.0]])

da, db = product.grad(a, b, seed=np.ones((2, 2)))
print("a @ b, seeded with ones:", da.tolist(), db.tolist())
assert np.array_equal(da, [[3, 3], [3, 3]])
assert np.array_equal(db, [[2, 2], [2, 2]])

da, db = product.grad(a, b, seed=[[1.0, 2.0], [3.0, 4.0]])
print("a @ b, seeded with [[1, 2], [3, 4]]:", da.tolist(), db.tolist())
assert np.array_equal(da, [[5, 5], [11, 11]])
assert np.array_equal(db, [[6, 8], [6, 8]])

value, pull = product.pullback(a, b)  # forward once, then as many seeds as wanted
assert np.array_equal(pull(np.ones((2, 2)))[0], [[3, 3], [3, 3]])
assert np.array_equal(pull([[1.0, 2.0], [3.0, 4.0]])[0], [[5, 5], [11, 11]])
