"""Where the numbers in ``pullback/llvm/vecmath_tables.py`` come from: ``python -m tests.vecmath_coefficients`` prints it.

Polynomials are minimax in the relative error of the function they serve, found by Remez' exchange (Muller, Elementary
Functions, 3rd edition, chapter 3; Muller et al., Handbook of Floating-Point Arithmetic, 2nd edition, chapter 10) with mpmath.
Only development and tests need mpmath.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import mpmath as mp

mp.mp.dps = 60


# -- Remez' exchange ------------------------------------------------------------------------------------------------------
def remez(
    function: Callable[[Any], Any],
    degree: int,
    low: Any,
    high: Any,
    weight: Callable[[Any], Any] = lambda x: mp.mpf(1),
    rounds: int = 12,
    digits: int = 40,
) -> tuple[list[Any], Any]:
    """Coefficients from the constant up, and the largest of ``weight * |polynomial - function|``."""
    with mp.workdps(digits):
        low, high = mp.mpf(low), mp.mpf(high)
        count = degree + 2
        middle, half = (low + high) / 2, (high - low) / 2
        points = [middle - half * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]
        grid = [middle - half * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / (24 * count)) for k in range(24 * count)]
        values = [function(x) for x in grid]
        weights = [weight(x) for x in grid]
        coefficients: list[Any] = []
        for _ in range(rounds):
            matrix = mp.matrix(count, count)
            right = mp.matrix(count, 1)
            for row, x in enumerate(points):
                scaled, power = (x - middle) / half, mp.mpf(1)
                for column in range(degree + 1):
                    matrix[row, column] = power
                    power *= scaled
                matrix[row, degree + 1] = (-1) ** row / weight(x)
                right[row] = function(x)
            solved = mp.lu_solve(matrix, right)
            scaled_coefficients = [solved[k] for k in range(degree + 1)]
            errors = [
                w * (horner(scaled_coefficients, (x - middle) / half) - v)
                for x, v, w in zip(grid, values, weights, strict=True)
            ]
            points, worst = _extrema(grid, errors, count)
            level = abs(solved[degree + 1])
            coefficients = _unscaled(scaled_coefficients, middle, half)
            if level and worst / level < 1 + mp.mpf("1e-3"):
                break
        return coefficients, worst


def horner(coefficients: list[Any], x: Any) -> Any:
    total = mp.mpf(0)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def _extrema(grid: list[Any], errors: list[Any], count: int) -> tuple[list[Any], Any]:
    """The largest error of each run of one sign; as many as needed, of alternating signs."""
    found: list[tuple[Any, Any]] = []
    for x, error in zip(grid, errors, strict=True):
        if found and (found[-1][1] > 0) == (error > 0):
            if abs(error) > abs(found[-1][1]):
                found[-1] = (x, error)
        else:
            found.append((x, error))
    worst = max(abs(e) for _, e in found)
    while len(found) > count:
        found.pop(0 if abs(found[0][1]) < abs(found[-1][1]) else -1)
    if len(found) < count:
        raise ArithmeticError(f"only {len(found)} alternations of {count}: fewer digits than the error needs")
    return [x for x, _ in found], worst


def _unscaled(coefficients: list[Any], middle: Any, half: Any) -> list[Any]:
    """Of ``x`` rather than of ``(x - middle) / half``."""
    found = [mp.mpf(0)]
    for coefficient in reversed(coefficients):  # found * (x - middle) / half + coefficient
        shifted = [mp.mpf(0), *[c / half for c in found]]
        for k, c in enumerate(found):
            shifted[k] -= c * middle / half
        shifted[0] += coefficient
        found = shifted
    while len(found) > len(coefficients):
        found.pop()
    return found


# -- rounding ---------------------------------------------------------------------------------------------------------------
def rounded(value: Any, bits: int = 53) -> float:
    """To that many bits, ties to even."""
    if value == 0:
        return 0.0
    with mp.workprec(bits):
        return float(+value)


def single(value: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def parts(value: Any, *bits: int) -> list[float]:
    """``value`` as a sum of numbers of that many bits each."""
    found = []
    for count in bits:
        part = rounded(value, count)
        found.append(part)
        value = value - mp.mpf(part)
    return found


# -- the tables -------------------------------------------------------------------------------------------------------------
# A weight that vanishes where the function's error does not matter is kept off zero by 1 % or 5 %: an exchange needs that.
def exp_tables() -> dict[str, dict[str, Any]]:
    ln2 = mp.log(2)

    def q(r: Any) -> Any:  # (exp(r) - 1 - r) / r**2
        return mp.mpf(1) / 2 if abs(r) < mp.mpf(10) ** -18 else (mp.expm1(r) - r) / r**2

    def fit(degree: int) -> list[Any]:
        edge = ln2 / 2 * mp.mpf("1.0001")
        return remez(q, degree, -edge, edge, lambda r: r * r / mp.exp(r) + mp.mpf("0.01"))[0]

    return {
        "f64": {
            "highest": 710.0, "lowest": -746.0, "highest_half": 710.6, "highest2": 1025.0, "lowest2": -1076.0,
            "log2e": rounded(1 / ln2), "ln2": parts(ln2, 41, 53), "q": [rounded(c) for c in fit(9)],
        },
        "f32": {
            "highest": 89.0, "lowest": -105.0, "highest_half": 89.5, "highest2": 129.0, "lowest2": -151.0,
            "log2e": single(1 / ln2), "ln2": parts(ln2, 15, 24), "q": [single(c) for c in fit(4)],
        },
        "wide": {
            "highest": 90.0, "lowest": -110.0, "log2e": rounded(1 / ln2), "ln2": parts(ln2, 41, 53),
            "q": [rounded(c) for c in fit(5)],
        },
    }  # fmt: skip


def log_tables() -> dict[str, dict[str, Any]]:
    ln2 = mp.log(2)
    edge = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.0001")

    def r(z: Any) -> Any:  # (2 atanh(s) - 2 s) / s**3 with z = s**2
        s = mp.sqrt(z)
        return mp.mpf(2) / 3 if z < mp.mpf(10) ** -20 else (2 * mp.atanh(s) - 2 * s) / s**3

    def fit(degree: int) -> list[Any]:
        return remez(r, degree, 0, edge, lambda z: z + edge / 20)[0]

    def entries(full: int, short: int, fitted: list[float]) -> dict[str, Any]:
        return {
            "ln2": parts(ln2, short, full),
            "log2e": parts(1 / ln2, full, full),
            "log10e": parts(1 / mp.log(10), full, full),
            "log10_2": parts(ln2 / mp.log(10), short, full),
            "r": fitted,
        }

    return {
        "f64": entries(53, 41, [rounded(c) for c in fit(6)]),
        "f32": entries(24, 15, [single(c) for c in fit(2)]),
        "wide": entries(53, 41, [rounded(c) for c in fit(3)]),
    }


def inverse_tables() -> dict[str, dict[str, Any]]:
    def of_square(function: Callable[[Any], Any], slope: Any) -> Callable[[Any], Any]:
        """(function(s) - s) / s**3 of z = s**2; ``slope`` is its value at 0."""

        def quotient(z: Any) -> Any:
            s = mp.sqrt(z)
            return slope if z < mp.mpf(10) ** -20 else (function(s) - s) / s**3

        return quotient

    edge = (mp.sqrt(2) - 1) ** 2 * mp.mpf("1.0001")
    asin, atan = of_square(mp.asin, mp.mpf(1) / 6), of_square(mp.atan, -mp.mpf(1) / 3)

    def fits(asin_degree: int, atan_degree: int) -> tuple[list[Any], list[Any]]:
        return (
            remez(asin, asin_degree, 0, mp.mpf("0.25"), lambda z: z + mp.mpf("0.01"))[0],
            remez(atan, atan_degree, 0, edge, lambda z: z + mp.mpf("0.01"))[0],
        )

    def entries(full: int, rounding: Callable[[Any], float], fitted: tuple[list[Any], list[Any]]) -> dict[str, Any]:
        return {
            "pi": parts(mp.pi, full, full),
            "tan_pi_8": rounding(mp.sqrt(2) - 1),
            "asin": [rounding(c) for c in fitted[0]],
            "atan": [rounding(c) for c in fitted[1]],
        }

    return {"f64": entries(53, rounded, fits(11, 10)), "f32": entries(24, single, fits(4, 3))}


def trig_tables() -> dict[str, dict[str, Any]]:
    def sine(z: Any) -> Any:  # (sin(r) - r) / r**3 of z = r**2
        r = mp.sqrt(z)
        return -mp.mpf(1) / 6 if z < mp.mpf(10) ** -20 else (mp.sin(r) - r) / r**3

    def cosine(z: Any) -> Any:  # (cos(r) - 1 + r**2/2) / r**4
        return mp.mpf(1) / 24 if z < mp.mpf(10) ** -15 else (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2

    edge = (mp.pi / 4) ** 2 * mp.mpf("1.0001")

    def entries(full: int, short: int, rounding: Callable[[Any], float], degree: int) -> dict[str, Any]:
        return {
            "inverse_pi": rounding(1 / mp.pi),
            "pi": parts(mp.pi, full, full, full),
            "pi_short": parts(mp.pi, short, short, short, full),  # whose products with small whole numbers are exact
            "sin": [rounding(c) for c in remez(sine, degree, 0, edge, lambda z: z + edge / 20)[0]],
            "cos": [rounding(c) for c in remez(cosine, degree, 0, edge, lambda z: z * z + edge / 20)[0]],
        }

    return {"f64": entries(53, 31, rounded, 5), "f32": entries(24, 12, single, 2)}


def power_tables() -> dict[str, dict[str, Any]]:
    ln2 = mp.log(2)
    edge = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2 * mp.mpf("1.0001")

    def p(z: Any) -> Any:  # (2 atanh(s) / s - 2 - 2/3 z) / z**2 with z = s**2
        s = mp.sqrt(z)
        return mp.mpf(2) / 5 if z < mp.mpf(10) ** -15 else (2 * mp.atanh(s) / s - 2 - 2 * z / 3) / z**2

    def root(degree: int) -> list[Any]:
        low = mp.sqrt(mp.mpf(1) / 2)
        return remez(mp.cbrt, degree, low, 2 * low, lambda x: 1 / mp.cbrt(x))[0]

    def entries(rounding: Callable[[Any], float], mask: int, degree: int) -> dict[str, Any]:
        return {
            "third": rounding(mp.mpf(1) / 3),
            "roots": [rounding(mp.cbrt(2)), rounding(mp.cbrt(4))],
            "cbrt": [rounding(c) for c in root(degree)],
            "mask": mask,
        }

    fitted = remez(p, 6, 0, edge, lambda z: z * z + edge * edge / 20)[0]
    precise = {"ln2": parts(ln2, 41, 53), "two_thirds": parts(mp.mpf(2) / 3, 53, 53), "p": [rounded(c) for c in fitted]}
    return {
        "f64": {**precise, **entries(rounded, -(1 << 30), 6)},
        "f32": entries(single, -(1 << 13), 3),
    }


def error_tables() -> dict[str, dict[str, Any]]:
    def near(z: Any) -> Any:  # (erf(x) - x) / x of z = x**2
        x = mp.sqrt(z)
        return 2 / mp.sqrt(mp.pi) - 1 if z < mp.mpf(10) ** -20 else mp.erf(x) / x - 1

    def far(shift: float) -> Callable[[Any], Any]:
        """exp(x**2) erfc(x) / w of w = 1 / (x + shift)."""

        def function(w: Any) -> Any:
            x = 1 / w - shift
            return mp.exp(x * x) * mp.erfc(x) / w

        return function

    def seen(w: Any) -> Any:  # how much of the relative error of the function is seen in erf, which is 1 - erfc
        return mp.erfc(1 / w - shift) / function(w) + mp.mpf("1e-4")

    border, shift = mp.mpf("0.875"), 2.0
    function = far(shift)

    def entries(rounding: Callable[[Any], float], most: float, most_c: float, degrees: tuple[int, int, int]) -> dict[str, Any]:
        fits = (
            remez(near, degrees[0], 0, border**2),
            remez(function, degrees[1], 1 / mp.mpf(most + shift), 1 / (border + shift), seen, rounds=20, digits=60),
            remez(function, degrees[2], 1 / mp.mpf(most_c + shift), 1 / (border + shift), lambda w: 1 / function(w), digits=60),
        )
        found = {"border": float(border), "shift": shift, "most": most, "most_c": most_c}
        return found | {name: [rounding(c) for c in f[0]] for name, f in zip(("near", "short", "long"), fits, strict=True)}

    return {"f64": entries(rounded, 6.0, 28.0, (10, 13, 19)), "f32": entries(single, 4.0, 10.5, (5, 6, 9))}


def gamma_tables() -> dict[str, dict[str, Any]]:
    def near(d: Any) -> Any:  # lgamma(2 + d) / d
        return 1 - mp.euler if abs(d) < mp.mpf(10) ** -25 else mp.loggamma(2 + d) / d

    constant = mp.log(2 * mp.pi) / 2

    def stirling(z: Any) -> Any:  # what lgamma is more than the leading terms, times x, of z = 1 / x**2
        if z < mp.mpf(10) ** -8:
            return mp.mpf(1) / 12 - z / 360 + z * z / 1260
        x = 1 / mp.sqrt(z)
        return x * (mp.loggamma(x) - ((x - mp.mpf(1) / 2) * mp.log(x) - x + constant))

    low, high = mp.mpf("-0.8501"), mp.mpf("0.5001")
    return {
        "f64": {
            "near": [rounded(c) for c in remez(near, 22, low, high, lambda d: 1 / near(d), digits=60)[0]],
            "stirling": [rounded(c) for c in remez(stirling, 5, 0, 1 / mp.mpf("6.5") ** 2, digits=50)[0]],
            "constant": rounded(constant - mp.mpf(1) / 2),
        }
    }


TABLES = {
    "EXP": exp_tables,
    "LOG": log_tables,
    "INVERSE": inverse_tables,
    "TRIG": trig_tables,
    "POWER": power_tables,
    "ERROR": error_tables,
    "GAMMA": gamma_tables,
}


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "(" + "".join(f"{_shown(v)}, " for v in value) + ")"
    return repr(value)


def main() -> None:
    print('"""Numbers of the mathematical functions, printed by ``python -m tests.vecmath_coefficients``."""\n')
    print("from __future__ import annotations\n\nfrom types import SimpleNamespace\n")
    for name, make in TABLES.items():
        print(f"{name} = {{")
        for form, entries in make().items():
            print(f'    "{form}": SimpleNamespace(')
            for key, value in entries.items():
                print(f"        {key}={_shown(value)},")
            print("    ),")
        print("}")


if __name__ == "__main__":
    main()
