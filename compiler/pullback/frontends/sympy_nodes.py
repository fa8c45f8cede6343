"""What each kind of SymPy node means, in terms of the library's functions.

SymPy's symbols stand for real numbers here, so ``re``, ``im``, ``conjugate`` and ``arg`` of real expressions are real.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from pullback.frontends.sympy_plan import Constant, Plan, Power, Rule, shown, unsupported

TERMS = 10_000  # of a sum or product written out; more would not be a program any more

# one operand, and the library's function of it
UNARY: dict[str, str] = {
    **{name: f"numpy.{name}" for name in "sin cos tan sinh cosh tanh exp log sign floor log1p expm1 exp2 log2 log10".split()},  # noqa: SIM905  # a list of names reads best as text
    **{f"a{name}": f"numpy.arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "Abs": "numpy.absolute",
    "ceiling": "numpy.ceil",
    "Sqrt": "numpy.sqrt",
    "Cbrt": "numpy.cbrt",
    "Not": "numpy.logical_not",
    "erf": "scipy.special.erf",
    "erfc": "scipy.special.erfc",
    "gamma": "scipy.special.gamma",
    "loggamma": "scipy.special.gammaln",
    "digamma": "scipy.special.digamma",
    "Transpose": "numpy.transpose",
    "Trace": "numpy.trace",
}
BINARY: dict[str, str] = {
    "atan2": "numpy.arctan2",
    "Mod": "numpy.remainder",
    "hypot": "numpy.hypot",
    "logaddexp": "numpy.logaddexp",
    "StrictLessThan": "numpy.less",
    "LessThan": "numpy.less_equal",
    "StrictGreaterThan": "numpy.greater",
    "GreaterThan": "numpy.greater_equal",
    "Equality": "numpy.equal",
    "Unequality": "numpy.not_equal",
}
# any number of operands, joined from left to right
JOINED: dict[str, str] = {
    "And": "numpy.logical_and",
    "Or": "numpy.logical_or",
    "Xor": "numpy.logical_xor",
    "MatAdd": "numpy.add",
    "HadamardProduct": "numpy.multiply",
}
HINTS: dict[str, str] = {
    "Integral": "evaluate it first with .doit(), or integrate numerically by a Sum over nodes",
    "Derivative": "carry it out with .doit(), or list it among the inputs",
    "Subs": "carry it out with .doit()",
    "Limit": "evaluate it first with .doit()",
    "DiracDelta": "it has no value as a function; leave out the derivative of the jump",
    "Inverse": "write the matrix out with .as_explicit(), or pass the inverse as an input",
    "Determinant": "evaluate it first with .doit() or .as_explicit()",
    "ImaginaryUnit": "only real numbers are supported; write real and imaginary parts as two expressions",
    "ComplexInfinity": "it is not a real number",
    "LambertW": "pass its value as an input: its derivative is w/(x*(1 + w))",
}


def rule_for(plan: Plan, node: Any) -> Rule:
    """How ``node`` is computed."""
    if isinstance(node, Power):
        return _power_rule(node.base, node.exponent)
    read = plan.inputs.get(node) if type(node) in plan.kinds else None
    if read is not None:
        key = ("input", id(read))
        return Rule((), lambda p, _: p.step(key, read, None), numeric=False)
    names = [cls.__name__ for cls in type(node).__mro__ if (cls.__module__ or "").split(".")[0] == "sympy"]
    for name in names:
        special = SPECIAL.get(name)
        if special is not None:
            return special(node)
        if name in UNARY:
            return _named(node.args[:1], UNARY[name])
        if name in BINARY:
            return _named(node.args, BINARY[name])
        if name in JOINED:
            return _joined(node.args, JOINED[name])
        if name in HINTS:
            raise unsupported(node, HINTS[name])
    close = difflib.get_close_matches(type(node).__name__, [*UNARY, *BINARY, *JOINED, *SPECIAL], 2)
    near = f"the nearest supported ones are {' and '.join(close)}; " if close else ""
    raise unsupported(
        node, f"{near}substitute an equivalent made of supported functions (.rewrite), or evaluate it with .doit()"
    )


def _never(plan: Plan, operands: list[Any]) -> Any:
    raise AssertionError("a constant has nothing to build")


def _named(children: Sequence[Any], name: str) -> Rule:
    return Rule(children, lambda p, xs: p.call(name, *xs))


def _joined(children: Sequence[Any], name: str) -> Rule:
    return Rule(children, lambda p, xs: functools.reduce(lambda x, y: p.call(name, x, y), xs))


def _composed(children: Sequence[Any], build: Callable[..., Any]) -> Rule:
    """``build(plan, *operands)``."""
    return Rule(children, lambda p, xs: build(p, *xs))


def _constant(node: Any) -> Rule:
    return Rule((), _never)


# -- symbols --------------------------------------------------------------------------------------------------------------
def _free(node: Any) -> Rule:
    """A symbol that is no input. All of them are reported together, so the walk goes on."""

    def build(plan: Plan, operands: list[Any]) -> int:
        plan.missing[shown(node)] = None
        return plan.step(("missing", shown(node)), lambda: 0.0, ())

    return Rule((), build, numeric=False)


def _element(base: Any, indices: Sequence[Any], node: Any) -> Rule:
    """``a[i, j]`` with indices that are numbers."""
    if any(not getattr(i, "is_Integer", False) for i in indices):
        raise unsupported(node, "indices must be integers; a Sum with concrete bounds is written out by itself")
    place = tuple(int(i) for i in indices)
    return Rule((base,), lambda p, xs: p.step(("element", place), lambda array: array[place], xs))


def _indexed(node: Any) -> Rule:
    return _element(node.base, node.indices, node)


def _matrix_element(node: Any) -> Rule:
    return _element(node.parent, (node.i, node.j), node)


# -- arithmetic -----------------------------------------------------------------------------------------------------------
def _add(node: Any) -> Rule:
    def build(plan: Plan, operands: list[Any]) -> int:
        constants = [o.node for o in operands if isinstance(o, Constant)]
        terms = [o for o in operands if not isinstance(o, Constant)]
        if len(constants) > 1:
            constants = [_sum_of(constants)]
        return functools.reduce(lambda x, y: plan.call("numpy.add", x, y), [*map(Constant, constants), *terms])

    return Rule(node.args, build)


def _sum_of(constants: list[Any]) -> Any:
    import sympy

    return sympy.Add(*constants)


def _mul(node: Any) -> Rule:
    """A product as a quotient; constants become one factor, or one divisor."""
    above: list[Any] = []
    below: list[Any] = []
    for factor in node.args:
        if factor.is_Pow and factor.exp.is_Rational and factor.exp.is_negative:
            below.append(factor.base if factor.exp == -1 else Power(factor.base, -factor.exp))
        elif factor.is_Rational and not factor.is_Integer:
            above.append(_integer(factor.p))
            below.append(_integer(factor.q))
        else:
            above.append(factor)

    def build(plan: Plan, operands: list[Any]) -> int:
        numerator, denominator = operands[: len(above)], operands[len(above) :]
        scale, divisor = _constant_factor(numerator, denominator)
        top = [o for o in numerator if not isinstance(o, Constant)]
        bottom = [o for o in denominator if not isinstance(o, Constant)]
        sign = scale is not None and scale == -1
        if scale is not None and not sign and scale != 1:
            top.insert(0, Constant(scale))
        if divisor is not None and divisor != 1:
            bottom.insert(0, Constant(divisor))
        value = _product(plan, top) if top else Constant(_integer(1))
        if bottom:
            value = plan.call("numpy.divide", value, _product(plan, bottom))
        return plan.call("numpy.negative", value) if sign else plan.number(value)

    return Rule([*above, *below], build)


def _integer(n: int) -> Any:
    import sympy

    return sympy.Integer(n)


def _product(plan: Plan, operands: list[Any]) -> Any:
    return functools.reduce(lambda x, y: plan.call("numpy.multiply", x, y), operands)


def _constant_factor(numerator: list[Any], denominator: list[Any]) -> tuple[Any, Any]:
    """The constants of a quotient as a factor and a divisor: one of the two suffices unless both are there (2/3)."""
    import sympy

    above = sympy.Mul(*[_node(o.node) for o in numerator if isinstance(o, Constant)])
    below = sympy.Mul(*[_node(o.node) for o in denominator if isinstance(o, Constant)])
    if below == 1 or above in (1, -1):
        return above, below
    return above / below, None


def _node(node: Any) -> Any:
    return node.base**node.exponent if isinstance(node, Power) else node


def _pow(node: Any) -> Rule:
    base, exponent = node.base, node.exp
    if exponent.is_Number:
        return _power_rule(base, exponent)
    if base == 2:
        return _named((exponent,), "numpy.exp2")
    return _named((base, exponent), "numpy.power")


def _power_rule(base: Any, exponent: Any) -> Rule:
    """A power with a number as exponent. (A Power object is never a constant: its constant base is raised by SymPy.)"""

    def build(plan: Plan, operands: list[Any]) -> Any:
        (x,) = operands
        if isinstance(x, Constant):
            return Constant(_node(Power(_node(x.node), exponent)))
        if exponent.is_Rational and exponent.is_negative:
            return plan.call("numpy.divide", Constant(_integer(1)), _positive_power(plan, x, -exponent))
        return _positive_power(plan, x, exponent)

    return Rule((base,), build)


def _positive_power(plan: Plan, x: Any, exponent: Any) -> int:
    """Halves by a square root, which is exact; whole numbers by products."""
    if exponent == 1:
        return plan.number(x)
    if exponent.is_Integer:
        n = int(exponent)
        return plan.step(("power", n), lambda base: _library_power(base, n), (x,))
    if exponent.is_Rational and (exponent.p, exponent.q) == (1, 2):
        return plan.call("numpy.sqrt", x)
    return plan.call("numpy.power", x, Constant(exponent))


def _library_power(base: Any, n: int) -> Any:
    from pullback.frontends.library import call

    return call("numpy.power", (base, n))


# -- choice ---------------------------------------------------------------------------------------------------------------
def _piecewise(node: Any) -> Rule:
    children = [part for branch in node.args for part in (branch.cond, branch.expr)]

    def build(plan: Plan, operands: list[Any]) -> Any:
        import sympy as sp

        value: Any = Constant(sp.nan)
        for condition, result in reversed(list(zip(operands[::2], operands[1::2], strict=True))):
            if isinstance(condition, Constant):
                value = result if condition.node == sp.true else value
            else:
                value = plan.call("numpy.where", condition, result, value)
        return value

    return Rule(children, build)


def _ite(node: Any) -> Rule:
    return _composed(node.args, lambda p, c, x, y: p.call("numpy.where", c, x, y))


def _negated(join: str) -> Callable[[Any], Rule]:
    def rule(node: Any) -> Rule:
        return Rule(node.args, lambda p, xs: p.call("numpy.logical_not", functools.reduce(lambda x, y: p.call(join, x, y), xs)))

    return rule


def _implies(node: Any) -> Rule:
    return _composed(node.args, lambda p, x, y: p.call("numpy.logical_or", p.call("numpy.logical_not", x), y))


def _extremum(name: str) -> Callable[[Any], Rule]:
    """Of two a binary op; of more a reduction, which splits ties evenly."""

    def rule(node: Any) -> Rule:
        if len(node.args) == 2:
            return _named(node.args, f"numpy.{name}imum")
        return Rule(node.args, lambda p, xs: p.step(f"numpy.{name}", lambda *values: _of_all(name, values), xs))

    return rule


def _of_all(name: str, values: Sequence[Any]) -> Any:
    from pullback.frontends.library import call

    together = call("numpy.broadcast_arrays", values) if any(getattr(v, "ndim", 0) for v in values) else values
    return call(f"numpy.{name}", (call("numpy.stack", (list(together),)),), {"axis": 0})


def _heaviside(node: Any) -> Rule:
    return _named(node.args, "numpy.heaviside")


def _frac(node: Any) -> Rule:
    return _composed(node.args, lambda p, x: p.call("numpy.subtract", x, p.call("numpy.floor", x)))


def _contains(node: Any) -> Rule:
    return Rule((node.args[1].as_relational(node.args[0]),), lambda p, xs: xs[0])


# -- functions made of others ---------------------------------------------------------------------------------------------
def _reciprocal_of(name: str) -> Callable[[Any], Rule]:
    return lambda node: _composed(node.args, lambda p, x: p.call("numpy.divide", Constant(_integer(1)), p.call(name, x)))


def _of_reciprocal(name: str) -> Callable[[Any], Rule]:
    return lambda node: _composed(node.args, lambda p, x: p.call(name, p.call("numpy.divide", Constant(_integer(1)), x)))


def _real_part(node: Any) -> Rule:
    return Rule(node.args, lambda p, xs: xs[0])


def _imaginary_part(node: Any) -> Rule:
    return _composed(node.args, lambda p, x: p.call("numpy.zeros_like", x))


def _arg(node: Any) -> Rule:
    return _composed(node.args, lambda p, x: p.call("numpy.angle", x))


def _sinc(node: Any) -> Rule:
    """SymPy's is sin(x)/x, NumPy's sin(pi x)/(pi x)."""

    def build(plan: Plan, x: Any) -> int:
        import sympy

        return plan.call("numpy.sinc", plan.call("numpy.divide", x, Constant(sympy.pi)))

    return _composed(node.args, build)


def _log(node: Any) -> Rule:
    if len(node.args) == 1:
        return _named(node.args, "numpy.log")
    return _composed(node.args, lambda p, x, b: p.call("numpy.divide", p.call("numpy.log", x), p.call("numpy.log", b)))


def _plus_one(plan: Plan, x: Any) -> Any:
    if isinstance(x, Constant):
        return Constant(x.node + 1)
    return plan.call("numpy.add", x, Constant(_integer(1)))


def _factorial(node: Any) -> Rule:
    return _composed(node.args, lambda p, x: p.call("scipy.special.gamma", _plus_one(p, x)))


def _polygamma(node: Any) -> Rule:
    order, x = node.args
    if not order.is_Integer or order < 0:
        raise unsupported(node, "the order must be a non-negative integer")
    return Rule((x,), lambda p, xs: p.step(("polygamma", int(order)), lambda v: _library_polygamma(int(order), v), xs))


def _library_polygamma(order: int, x: Any) -> Any:
    from pullback.frontends.library import call

    return call("scipy.special.digamma", (x,)) if order == 0 else call("scipy.special.polygamma", (order, x))


def _gammas(plan: Plan, above: list[Any], below: list[Any]) -> Any:
    """gamma(a)... / (gamma(b)...). By logarithms where a gamma function is large, for it overflows at 171."""

    def product(name: str, join: str, xs: list[Any]) -> Any:
        return functools.reduce(lambda x, y: plan.call(join, x, y), [plan.call(name, x) for x in xs])

    direct = plan.call(
        "numpy.divide",
        product("scipy.special.gamma", "numpy.multiply", above),
        product("scipy.special.gamma", "numpy.multiply", below),
    )
    logarithm = plan.call(
        "numpy.subtract",
        product("scipy.special.gammaln", "numpy.add", above),
        product("scipy.special.gammaln", "numpy.add", below),
    )
    largest = functools.reduce(lambda x, y: plan.call("numpy.maximum", x, y), [*above, *below])
    small = plan.call("numpy.less", largest, Constant(_integer(100)))
    return plan.call("numpy.where", small, direct, plan.call("numpy.exp", logarithm))


def _binomial(node: Any) -> Rule:
    def build(plan: Plan, n: Any, k: Any) -> Any:
        difference = plan.call("numpy.subtract", n, k)
        return _gammas(plan, [_plus_one(plan, n)], [_plus_one(plan, k), _plus_one(plan, difference)])

    return _composed(node.args, build)


def _beta(node: Any) -> Rule:
    return _composed(node.args, lambda p, x, y: _gammas(p, [x, y], [p.call("numpy.add", x, y)]))


# -- sums, matrices -------------------------------------------------------------------------------------------------------
def _written_out(join: str) -> Callable[[Any], Rule]:
    """A Sum or Product with concrete bounds, one term for each value of its indices."""

    def rule(node: Any) -> Rule:
        import sympy

        ranges = []
        for limits in node.limits:
            if len(limits) != 3 or not (limits[1].is_Integer and limits[2].is_Integer):
                raise unsupported(node, "its bounds must be integers; substitute them, or evaluate it with .doit()")
            ranges.append(range(int(limits[1]), int(limits[2]) + 1))
        count = functools.reduce(operator.mul, map(len, ranges), 1)
        if count > TERMS:
            raise unsupported(node, f"written out it has {count} terms; use a closed form, or a NumPy function")
        indices = [limits[0] for limits in node.limits]
        bodies = [
            node.function.xreplace(dict(zip(indices, map(sympy.Integer, values), strict=True)))
            for values in itertools.product(*ranges)
        ]
        if not bodies:
            return Rule((_integer(0 if join == "numpy.add" else 1),), lambda p, xs: xs[0])
        return _joined(bodies, join)

    return rule


def _matrix(node: Any) -> Rule:
    """An explicit matrix, or array, from its elements."""
    shape = tuple(int(n) for n in node.shape)
    elements = [node[place] for place in itertools.product(*map(range, shape))]

    def apply(*values: Any) -> Any:
        from pullback.frontends.library import call

        return call("numpy.reshape", (call("numpy.stack", (list(values),)), shape))

    return Rule(elements, lambda p, xs: p.step(("matrix", shape), apply, xs), numeric=False)


def _matmul(node: Any) -> Rule:
    scalars = [a for a in node.args if not getattr(a, "is_Matrix", False)]
    matrices = [a for a in node.args if getattr(a, "is_Matrix", False)]

    def build(plan: Plan, operands: list[Any]) -> Any:
        product = functools.reduce(lambda x, y: plan.call("numpy.matmul", x, y), operands[len(scalars) :])
        return functools.reduce(lambda x, y: plan.call("numpy.multiply", y, x), operands[: len(scalars)], product)

    return Rule([*scalars, *matrices], build, numeric=False)


def _matpow(node: Any) -> Rule:
    base, exponent = node.args
    if not (exponent.is_Integer and exponent > 0):
        raise unsupported(node, "only positive whole powers; write an inverse out with .as_explicit()")

    def build(plan: Plan, operands: list[Any]) -> Any:
        return functools.reduce(lambda x, y: plan.call("numpy.matmul", x, y), operands * int(exponent))

    return Rule((base,), build, numeric=False)


def _explicit(node: Any) -> Rule:
    """Identity, zeros and ones of a known shape."""
    if not all(getattr(n, "is_Integer", False) for n in node.shape):
        raise unsupported(node, "its shape must be known")
    return Rule((node.as_explicit(),), lambda p, xs: xs[0], numeric=False)


SPECIAL: dict[str, Callable[[Any], Rule]] = {
    "Number": _constant,
    "NumberSymbol": _constant,
    "Infinity": _constant,
    "NegativeInfinity": _constant,
    "NaN": _constant,
    "BooleanAtom": _constant,
    "Symbol": _free,
    "MatrixSymbol": _free,
    "IndexedBase": _free,
    "AppliedUndef": _free,
    "Indexed": _indexed,
    "MatrixElement": _matrix_element,
    "Add": _add,
    "Mul": _mul,
    "Pow": _pow,
    "Piecewise": _piecewise,
    "ITE": _ite,
    "Nand": _negated("numpy.logical_and"),
    "Nor": _negated("numpy.logical_or"),
    "Xnor": _negated("numpy.logical_xor"),
    "Equivalent": _negated("numpy.logical_xor"),
    "Implies": _implies,
    "Contains": _contains,
    "Max": _extremum("max"),
    "Min": _extremum("min"),
    "Heaviside": _heaviside,
    "frac": _frac,
    "log": _log,
    "sinc": _sinc,
    "re": _real_part,
    "conjugate": _real_part,
    "im": _imaginary_part,
    "arg": _arg,
    **{name: _reciprocal_of(f"numpy.{of}") for name, of in (("sec", "cos"), ("csc", "sin"), ("cot", "tan"))},
    **{name: _reciprocal_of(f"numpy.{of}") for name, of in (("sech", "cosh"), ("csch", "sinh"), ("coth", "tanh"))},
    **{name: _of_reciprocal(f"numpy.arc{of}") for name, of in (("asec", "cos"), ("acsc", "sin"), ("acot", "tan"))},
    **{name: _of_reciprocal(f"numpy.arc{of}") for name, of in (("asech", "cosh"), ("acsch", "sinh"), ("acoth", "tanh"))},
    "factorial": _factorial,
    "polygamma": _polygamma,
    "binomial": _binomial,
    "beta": _beta,
    "Sum": _written_out("numpy.add"),
    "Product": _written_out("numpy.multiply"),
    "MatrixBase": _matrix,
    "NDimArray": _matrix,
    "MatMul": _matmul,
    "MatPow": _matpow,
    "Identity": _explicit,
    "ZeroMatrix": _explicit,
    "OneMatrix": _explicit,
}
