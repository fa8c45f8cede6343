"""Equations of motion of pendulums and spring-mass chains, compiled from SymPy: values as lambdify's, gradients as SymPy's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import pullback as pb

SYSTEMS = {s["name"]: s for s in json.loads((Path(__file__).parent / "data" / "mechanics_eoms.json").read_text())}
SMALL = [name for name, system in SYSTEMS.items() if system["count_ops"] < 500]


def read(name):
    """(mass matrix, forcing vector, inputs): functions of time and constants are the inputs, in alphabetical order."""
    system = SYSTEMS[name]
    t = sp.Symbol("t")
    names = {n: sp.Function(n) for n in ("F", *(f"{a}{k}" for a in "quxvf" for k in range(12)))}
    names |= {"t": t, **{f"{a}{k}": sp.Symbol(f"{a}{k}") for a in "mlkc" for k in range(12)}, "g": sp.Symbol("g")}
    mass, forcing = (sp.Matrix(sp.parse_expr(system[key], local_dict=names)) for key in ("mass_matrix", "forcing"))
    found = (mass.atoms(sp.Symbol) | forcing.atoms(sp.Symbol)) - {t}
    found |= mass.atoms(sp.core.function.AppliedUndef) | forcing.atoms(sp.core.function.AppliedUndef)
    return mass, forcing, sorted(found, key=str)


def plainly(expressions, inputs):
    """The expressions with plain symbols for the inputs, for SymPy's own tools."""
    symbols = sp.symbols(f"y:{len(inputs)}")
    return expressions.subs(dict(zip(inputs, symbols, strict=True))), symbols


@pytest.mark.parametrize("name", SYSTEMS)
def test_values(name):
    mass, forcing, inputs = read(name)
    f = pb.compile({"mass": mass, "forcing": forcing}, inputs=inputs)
    point = np.random.default_rng(1).uniform(0.3, 1.7, len(inputs))
    found = f(*map(float, point))
    for key, matrix in (("mass", mass), ("forcing", forcing)):
        assert found[key].shape == matrix.shape
        plain, symbols = plainly(matrix, inputs)
        expected = sp.lambdify(symbols, plain, "numpy", cse=True)(*point)
        np.testing.assert_allclose(found[key], expected, rtol=1e-13, atol=1e-13)  # sums in another order


@pytest.mark.parametrize("name", SMALL)
def test_gradients(name):
    """All inputs at once, for a random combination of all entries of the forcing and of the mass matrix."""
    mass, forcing, inputs = read(name)
    f = pb.compile({"mass": mass, "forcing": forcing}, inputs=inputs)
    random = np.random.default_rng(2)
    seeds = {"mass": random.normal(size=mass.shape), "forcing": random.normal(size=forcing.shape)}
    total, symbols = plainly(
        sp.Matrix(
            [
                sum(
                    float(s) * e
                    for k, m in (("mass", mass), ("forcing", forcing))
                    for s, e in zip(seeds[k].ravel(), m, strict=True)
                )
            ]
        ),
        inputs,
    )
    slopes = sp.lambdify(symbols, [sp.diff(total[0], s) for s in symbols], "numpy", cse=True)
    for _ in range(3):
        point = random.uniform(-1.5, 1.5, len(inputs))
        gradients = f.grad(*map(float, point), seed=seeds)
        np.testing.assert_allclose(gradients, slopes(*point), rtol=1e-11, atol=1e-11)  # seeds and entries of size one


def test_jacobian_of_the_largest_pendulum():
    """By one state variable, against SymPy; the adjoint of 1700 operations compiles."""
    _, forcing, inputs = read("n_link_pendulum_on_cart(5)")
    f = pb.compile(forcing, inputs=inputs)
    point = np.random.default_rng(3).uniform(-1.5, 1.5, len(inputs))
    chosen = next(k for k, symbol in enumerate(inputs) if str(symbol) == "q3(t)")
    found = f.jacobian(*map(float, point), wrt="q3(t)")
    plain, symbols = plainly(forcing, inputs)
    expected = sp.lambdify(symbols, sp.diff(plain, symbols[chosen]), "numpy")(*point)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)  # entries of size one


def test_states_as_one_vector():
    """The state as a list input is one array argument."""
    _, forcing, inputs = read("n_link_pendulum_on_cart(2)")
    state = [i for i in inputs if isinstance(i, sp.core.function.AppliedUndef)]
    constants = [i for i in inputs if i not in state]
    f = pb.compile(forcing, inputs=[state, constants])
    separate = pb.compile(forcing, inputs=[*state, *constants])
    x, p = np.linspace(-1, 1, len(state)), np.linspace(0.5, 2, len(constants))
    np.testing.assert_array_equal(f(x, p), separate(*x, *p))
    jacobian = f.jacobian(x, p, wrt="input0")
    assert jacobian.shape == (*forcing.shape, len(state))
