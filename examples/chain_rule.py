"""The chain rule, step by step: q = x + y; f = q * z."""

from pathlib import Path

import pullback as pb


@pb.compile
def f(x, y, z):
    q = pb.name("q", x + y)  # a name, so that explain can speak of it
    return q * z


value, gradients = f.vjp(4.0, -3.0, 5.0)
print("f(4, -3, 5) =", value, " gradient:", gradients)
assert value == 5.0
assert gradients == (5.0, 5.0, 1.0)

story = str(f.explain(4.0, -3.0, 5.0))
print(story)
assert "q = x + y" in story

same = pb.load(Path(__file__).with_suffix(".expr"))  # the same function as a file
assert same.grad(4.0, -3.0, 5.0) == gradients
assert f.grad(4.0, -3.0, 5.0, wrt="q") == 5.0  # the gradient of the intermediate value

square = pb.compile(lambda x: x * x)
print("x*x at 1:", square(1.0), " slope:", square.grad(1.0))
assert square.grad(1.0) == 2.0
