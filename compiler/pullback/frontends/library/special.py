"""Functions of ``scipy.special`` and densities of ``scipy.stats``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.errors import UnsupportedError
from pullback.frontends.array import Array
from pullback.frontends.library.create import FUNCTIONS as CREATE
from pullback.frontends.library.elementwise import FUNCTIONS as ELEMENTWISE
from pullback.frontends.library.elementwise import absolute, float_test, floats, of_scalars, where
from pullback.frontends.library.reduce import FUNCTIONS as REDUCE
from pullback.frontends.promote import cast, elementwise, float_dtype, wrap

LOG_2PI = math.log(2 * math.pi)

erf, erfc, gammaln, digamma = floats("erf"), floats("erfc"), floats("gammaln"), floats("polygamma_n", order=0)
expit, log_expit, logit, xlogy = floats("expit"), floats("log_expit"), floats("logit"), floats("xlogy")
gamma = floats("gamma")
exp, log, log1p, logaddexp = floats("exp"), floats("log"), floats("log1p"), floats("logaddexp")


def _float(x: Any) -> Array:
    array = wrap(x)
    array.context.here()
    return Array(array.context, cast(array, float_dtype([array])))


def xlog1py(x: Any, y: Any) -> Array:
    factor, other = _float(x), _float(y)
    zero = (factor == 0) & elementwise("logical_not", float_test("isnan", False)(other))
    return where(zero, 0.0, factor * log1p(other))


def entr(x: Any) -> Array:
    array = _float(x)
    return where(array < 0, -math.inf, -xlogy(array, array))


def rel_entr(x: Any, y: Any) -> Array:
    p, q = _float(x), _float(y)
    both = where((p > 0) & (q > 0), p * log(p / q), where((p == 0) & (q >= 0), 0.0, math.inf))
    return where(float_test("isnan", False)(p + q), math.nan, both)


def kl_div(x: Any, y: Any) -> Array:
    p, q = _float(x), _float(y)
    return where((p > 0) & (q > 0), p * log(p / q) - p + q, where((p == 0) & (q >= 0), q, math.inf))


def gammasgn(x: Any) -> Array:
    """The sign of the gamma function: negative where the floor of a negative number is odd."""
    array = _float(x)
    odd = elementwise("mod", elementwise("floor", array), 2.0) == 1
    return where((array < 0) & odd, -1.0, 1.0)


def rgamma(x: Any) -> Array:
    array = _float(x)
    return gammasgn(array) * exp(-gammaln(array))


def betaln(a: Any, b: Any) -> Array:
    x, y = _float(a), _float(b)
    return gammaln(x) + gammaln(y) - gammaln(x + y)


def beta(a: Any, b: Any) -> Array:
    x, y = _float(a), _float(b)
    return gammasgn(x) * gammasgn(y) * gammasgn(x + y) * exp(betaln(x, y))


def multigammaln(a: Any, d: Any) -> Array:
    """The logarithm of the multivariate gamma function, ``a`` anything that ``gammaln`` takes."""
    array = _float(a)
    terms: Array = gammaln(array[..., None] - CREATE["numpy.arange"](d) / 2)
    return REDUCE["numpy.sum"](terms, axis=-1) + d * (d - 1) * (math.log(math.pi) / 4)


def ndtr(x: Any) -> Array:
    return 0.5 * erfc(-_float(x) / math.sqrt(2.0))


def log_ndtr(x: Any) -> Array:
    """Far to the left by the asymptotic series of the tail, whose first neglected term is below the rounding there."""
    array = _float(x)
    near = elementwise("maximum", array, -20.0)
    far = elementwise("minimum", array, -20.0)
    t = 1.0 / (far * far)
    series = 1.0 - t * (1.0 - 3.0 * t * (1.0 - 5.0 * t * (1.0 - 7.0 * t * (1.0 - 9.0 * t * (1.0 - 11.0 * t)))))
    tail = -0.5 * far * far - log(-far) - 0.5 * LOG_2PI + log(series)
    return where(array < -20.0, tail, log(ndtr(near)))


def polygamma(n: Any, x: Any) -> Array:
    array = _float(x)
    if not isinstance(n, int) or n < 0:
        raise array.context.error(UnsupportedError, "polygamma needs a static order", "give a number, 0 for digamma")
    return elementwise("polygamma_n", array, order=n)


def exp10(x: Any) -> Array:
    return elementwise("pow", 10.0, x, floats=True)


# -- densities ------------------------------------------------------------------------------------------------------
def _standard(x: Any, loc: Any, scale: Any) -> Array:
    return (_float(x) - loc) / scale


def norm_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z = _standard(x, loc, scale)
    return -0.5 * z * z - 0.5 * LOG_2PI - log(scale)


def norm_pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z = _standard(x, loc, scale)
    return exp(-0.5 * z * z) / math.sqrt(2 * math.pi) / scale


def norm_cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return ndtr(_standard(x, loc, scale))


def norm_sf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return ndtr(-_standard(x, loc, scale))


def norm_logcdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return log_ndtr(_standard(x, loc, scale))


def norm_logsf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return log_ndtr(-_standard(x, loc, scale))


def t_logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z, n = _standard(x, loc, scale), _float(df)
    constant = gammaln((n + 1) / 2) - gammaln(n / 2) - 0.5 * log(n * math.pi)
    return constant - (n + 1) / 2 * log1p(z * z / n) - log(scale)


def t_pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(t_logpdf(x, df, loc, scale))


def _outside(inside: Any, value: Array, otherwise: float) -> Array:
    return where(inside, value, otherwise)


def gamma_logpdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z, shape = _standard(x, loc, scale), _float(a)
    return _outside(z >= 0, xlogy(shape - 1, z) - z - gammaln(shape) - log(scale), -math.inf)


def gamma_pdf(x: Any, a: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(gamma_logpdf(x, a, loc, scale))


def chi2_logpdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return gamma_logpdf(x, _float(df) / 2, loc, 2.0 * _float(scale))


def chi2_pdf(x: Any, df: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(chi2_logpdf(x, df, loc, scale))


def poisson_logpmf(k: Any, mu: Any, loc: Any = 0.0) -> Array:
    n, rate = _float(k) - loc, _float(mu)
    whole = (n >= 0) & (elementwise("floor", n) == n)
    return _outside(whole, xlogy(n, rate) - gammaln(n + 1) - rate, -math.inf)


def poisson_pmf(k: Any, mu: Any, loc: Any = 0.0) -> Array:
    return exp(poisson_logpmf(k, mu, loc))


def beta_logpdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z, p, q = _standard(x, loc, scale), _float(a), _float(b)
    value = xlogy(p - 1, z) + xlog1py(q - 1, -z) - betaln(p, q) - log(scale)
    return _outside((z >= 0) & (z <= 1), value, -math.inf)


def beta_pdf(x: Any, a: Any, b: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(beta_logpdf(x, a, b, loc, scale))


def expon_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z = _standard(x, loc, scale)
    return _outside(z >= 0, -z - log(scale), -math.inf)


def expon_pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(expon_logpdf(x, loc, scale))


def laplace_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return -absolute(_standard(x, loc, scale)) - math.log(2.0) - log(scale)


def laplace_pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(laplace_logpdf(x, loc, scale))


def logistic_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z = _standard(x, loc, scale)
    return -z - 2.0 * logaddexp(0.0, -z) - log(scale)


def logistic_pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(logistic_logpdf(x, loc, scale))


def logistic_cdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return expit(_standard(x, loc, scale))


def cauchy_logpdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    z = _standard(x, loc, scale)
    return -math.log(math.pi) - log1p(z * z) - log(scale)


def cauchy_pdf(x: Any, loc: Any = 0.0, scale: Any = 1.0) -> Array:
    return exp(cauchy_logpdf(x, loc, scale))


_SPECIAL: dict[str, Callable[..., Any]] = {
        "erf": erf, "erfc": erfc, "gammaln": gammaln, "digamma": digamma, "psi": digamma, "expit": expit, "logit": logit,
        "log_expit": log_expit, "xlogy": xlogy, "xlog1py": xlog1py, "entr": entr, "rel_entr": rel_entr, "kl_div": kl_div,
        "gammasgn": gammasgn, "gamma": gamma, "rgamma": rgamma, "betaln": betaln, "beta": beta, "ndtr": ndtr,
        "multigammaln": multigammaln,
        "log_ndtr": log_ndtr, "polygamma": polygamma, "exp10": exp10, "exp2": floats("exp2"), "expm1": floats("expm1"),
        "log1p": log1p, "cbrt": floats("cbrt"), "round": floats("rint"), "sinc": ELEMENTWISE["numpy.sinc"],
}  # fmt: skip
_DENSITIES: dict[str, tuple[Callable[..., Any], ...]] = {
    "norm": (norm_pdf, norm_logpdf, norm_cdf, norm_sf, norm_logcdf, norm_logsf),
    "t": (t_pdf, t_logpdf),
    "gamma": (gamma_pdf, gamma_logpdf),
    "chi2": (chi2_pdf, chi2_logpdf),
    "poisson": (poisson_pmf, poisson_logpmf),
    "beta": (beta_pdf, beta_logpdf),
    "expon": (expon_pdf, expon_logpdf),
    "laplace": (laplace_pdf, laplace_logpdf),
    "logistic": (logistic_pdf, logistic_logpdf, logistic_cdf),
    "cauchy": (cauchy_pdf, cauchy_logpdf),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {f"scipy.special.{name}": function for name, function in _SPECIAL.items()}
FUNCTIONS |= {
    f"scipy.stats.{distribution}.{function.__name__.partition('_')[2]}": function
    for distribution, functions in _DENSITIES.items()
    for function in functions
}
FUNCTIONS |= {
    f"math.{name}": of_scalars(name, function)
    for name, function in (("erf", erf), ("erfc", erfc), ("lgamma", gammaln), ("gamma", gamma))
}
