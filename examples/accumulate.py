"""Variables collect gradients: backward adds to what is there, and zero_grad starts again."""

import numpy as np

import pullback as pb


@pb.compile
def energy(x):
    return np.sum(x * x)


x = pb.variable(np.array([1.0, -2.0, 0.5]))

energy(x).backward()
print("after one backward: ", x.grad)
assert np.array_equal(x.grad, [2.0, -4.0, 1.0])

energy(x).backward()
print("after another:      ", x.grad)
assert np.array_equal(x.grad, [4.0, -8.0, 2.0])

x.zero_grad()
energy(x).backward(-0.5)  # with a seed
print("anew, seeded -0.5:  ", x.grad)
assert np.array_equal(x.grad, [-1.0, 2.0, -0.5])
