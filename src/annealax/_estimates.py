r"""Estimates and their error bars from numbers on the host.

Everything here takes NumPy arrays, in double precision, and compiles nothing.

The tail of positive contributions to a mean is described by the shape $k$ of a
generalised Pareto distribution, estimated as Zhang and Stephens (2009) do, with the
weak prior of Vehtari et al. (2024). Above 0.7 a mean of the contributions cannot be
trusted, nor its error bar; below that, the heavier the tail, the more an error bar from
the sample falls short.

The integrated autocorrelation time of a trace is

$$\tau = 1 + 2 \sum_{t \ge 1} \rho(t),$$

summed up to the first window $M \ge 5 \tau(M)$ (Sokal 1997), the autocovariance
averaged over chains about their common mean.
"""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

_WINDOW = 5.0
"""Autocorrelations are summed over so many autocorrelation times."""

_FEWEST = 10
"""A tail of fewer contributions says nothing about its shape."""

_LIGHT, _WIDENING = 0.35, 5.0
"""Shapes above the first widen error bars, by the second per unit: a calibration."""


class ByName(dict[str, np.ndarray]):
    """Arrays by the name of an observable.

    It can be called, and gives itself: `chain.mean["x"]` and `chain.mean()["x"]` are
    the same, so that a chain reads like a `Result`, whose `mean()` is a method.
    """

    def __call__(self) -> "ByName":
        """Itself."""
        return self


def logsumexp(values: np.ndarray) -> float:
    """Logarithm of the sum of exponentials."""
    values = np.asarray(values, np.float64)
    top = np.max(values)
    if not np.isfinite(top):
        return float(top)
    return float(top + np.log(np.sum(np.exp(values - top))))


def log_mean(log_values: np.ndarray | Sequence[float]) -> float:
    """Logarithm of the mean of exponentials."""
    return logsumexp(np.asarray(log_values, np.float64)) - math.log(len(log_values))


def pooled_stderr(
    log_normalizers: np.ndarray, stderrs: np.ndarray, pareto_k: float = 0.0
) -> float:
    """Standard error of the logarithm of the mean of Z over replicates.

    Few replicates may agree by chance, and the error bar of a single run may miss what
    all its particles missed: the larger of the two counts. A heavy tail makes both too
    small: they are widened for it. A log Z of 1e5 is rounded to 0.008 in single
    precision.
    """
    relative = np.exp(
        np.asarray(log_normalizers, np.float64) - log_mean(log_normalizers)
    )
    count = len(relative)
    within = np.mean((relative * np.asarray(stderrs, np.float64)) ** 2)
    between = np.var(relative, ddof=1) if count > 1 else math.inf
    variance = max(within, between if math.isfinite(between) else 0) / count
    return math.hypot(
        tail_factor(pareto_k) * math.sqrt(variance), rounding_of(log_normalizers)
    )


def rounding_of(log_normalizers: np.ndarray) -> float:
    """Distance of numbers of that size, at most, in the precision in use."""
    epsilon = float(jnp.finfo(jnp.result_type(float)).eps)
    return epsilon * float(np.max(np.abs(log_normalizers)))


def weighted_quantiles(
    values: np.ndarray, weights: np.ndarray, levels: Sequence[float | int] | np.ndarray
) -> np.ndarray:
    """Quantiles of a weighted sample of numbers.

    Args:
        values: The numbers.
        weights: Their weights; they need not add up to one.
        levels: Which quantiles, from 0 to 1.
    """
    order = np.argsort(values)
    total = np.cumsum(np.asarray(weights, np.float64)[order])
    index = np.searchsorted(total, np.asarray(levels) * total[-1])
    return np.asarray(values)[order[np.minimum(index, len(order) - 1)]]


def pareto_shape(contributions: np.ndarray) -> float:
    """Shape k of the upper tail; NaN if there are too few contributions."""
    values = np.sort(np.asarray(contributions, np.float64))
    values = values[values > 0]
    count = len(values)
    tail = int(min(0.2 * count, 3 * math.sqrt(count)))
    if tail < _FEWEST or values[-1] <= values[-tail - 1] * (1 + 1e-6):
        return math.nan
    excess = values[-tail:] - values[-tail - 1]
    excess = excess[excess > 0]
    if len(excess) < _FEWEST:
        return math.nan
    shape = _fit_pareto(excess)
    return float((shape * len(excess) + 0.5 * _FEWEST) / (len(excess) + _FEWEST))


def _fit_pareto(excess: np.ndarray) -> float:
    n = len(excess)
    grid = 30 + int(math.sqrt(n))
    quartile = excess[int(n / 4 + 0.5) - 1]
    steps = np.arange(1, grid + 1)
    # Where the tail spans many powers of ten, some of the grid is beyond what numbers
    # hold: these places get no weight.
    with np.errstate(all="ignore"):
        theta = 1 / excess[-1] + (1 - np.sqrt(grid / (steps - 0.5))) / (3 * quartile)
        shape = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
        log_likelihood = n * (np.log(-theta / shape) - shape - 1)
        known = np.isfinite(log_likelihood)
        if not known.any():
            return math.nan
        theta, log_likelihood = theta[known], log_likelihood[known]
        weights = np.exp(log_likelihood - logsumexp(log_likelihood))
        best = np.sum(theta * weights)
        return float(np.mean(np.log1p(-best * excess)))


def tail_factor(shape: float) -> float:
    """By how much to widen an error bar, given the shape k of the tail.

    What is far out in the tail was seen too rarely to count in a sample variance. The
    factor, 1 up to k = 0.35, 1.75 at 0.5 and 2.75 at 0.7, is a calibration: without it
    error bars covered the truth in 85 % of 110 runs of `benchmarks/automatic.py`, those
    with k above 0.35 in 70 %; see `docs/automatic.md`.
    """
    if not math.isfinite(shape):
        return 1.0
    return 1 + _WIDENING * max(0.0, min(shape, 1.0) - _LIGHT)


def integrated_autocorrelation_time(trace: np.ndarray) -> np.ndarray:
    """Autocorrelation time of traces of shape (chains, iterations, ...).

    The result has the trailing shape. It is at least 1: anticorrelated traces are not
    given credit, and a constant trace counts as independent.
    """
    chains, length = trace.shape[:2]
    flat = np.asarray(trace, np.float64).reshape(chains, length, -1)
    centred = flat - flat.mean(axis=(0, 1))
    size = 2 ** int(np.ceil(np.log2(max(2 * length, 2))))
    spectrum = np.fft.rfft(centred, size, axis=1)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), size, axis=1)[:, :length]
    covariance = covariance.mean(axis=0) / length
    variance = np.where(covariance[0] > 0, covariance[0], 1.0)
    times = 2 * np.cumsum(covariance / variance, axis=0) - 1
    windows = np.arange(length)[:, None] >= _WINDOW * times
    first = np.where(windows.any(axis=0), windows.argmax(axis=0), length - 1)
    time = times[first, np.arange(flat.shape[2])]
    time = np.where(covariance[0] > 0, np.maximum(time, 1.0), 1.0)
    return time.reshape(trace.shape[2:])
