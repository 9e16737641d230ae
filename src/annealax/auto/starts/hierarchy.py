r"""Coordinates for hierarchical models: scales that depend on other coordinates.

In a funnel, and in most hierarchical models, one coordinate sets the scale of others.
The map

$$x_j = m_j + s_j \Big( \sum_{i < j} A_{ji} z_i
    + \exp\big(c_j + \sum_{i < j} B_{ji} z_i\big)\, z_j \Big)$$

(an affine inverse autoregressive flow with linear conditioners) undoes that: it learns
to write such a model in its non-centred form. It is fitted to particles by maximum
likelihood, one coordinate after the other, each by weighted least squares for the mean
and Newton's method for the log scale, which is concave. Linear conditioners carry on
outside of where the particles are: from the mouth of a funnel they know its neck.
"""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from annealax._device import to_device
from annealax._estimates import weighted_quantiles
from annealax.auto.starts.base import (
    AbstractCoordinates,
    Candidate,
    Seen,
)
from annealax.auto.starts.gaussian import Linear, normal_start

NAME = "scales that depend on other coordinates"

MAX_SIZE = 128
"""In more dimensions the fit, a regression for each coordinate, takes too long."""

_SIGNIFICANT = 5.0
"""Slopes count from so many standard errors on: there are many of them."""

_NEWTON_STEPS = 12
"""The objective is concave: Newton's method needs no more."""

_MAX_SLOPE = 3.0
"""Steeper slopes of a log scale are not believed: they overflow outside the data."""

_MAX_REGRESSORS = 8
"""Coordinates that a scale may depend on."""

_EASY = 5
"""A start from which passes take no more temperatures needs no better coordinates."""

_GAIN_NEEDED = 1.5
"""It costs more than affine coordinates, and has to show that it is worth it."""


class Hierarchy(AbstractCoordinates):
    """The map above; what is called `order` there is how coordinates are numbered."""

    knows_rulers: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True)
    mean: Float[Array, " size"]
    scale: Float[Array, " size"]
    location_slopes: Float[Array, "size size"]
    log_scale_slopes: Float[Array, "size size"]
    log_scales: Float[Array, " size"]

    def __init__(self, mean, scale, location_slopes, log_scale_slopes, log_scales):
        self.mean = to_device(mean)
        self.shape = self.mean.shape
        self.scale = to_device(scale)
        self.location_slopes = to_device(location_slopes)
        self.log_scale_slopes = to_device(log_scale_slopes)
        self.log_scales = to_device(log_scales)

    def transform_and_log_det(self, x, condition=None):
        """From z to x, and the log Jacobian."""
        log_scales, log_det = self._log_scales(x)
        y = self.location_slopes @ x + jnp.exp(log_scales) * x
        return self.mean + self.scale * y, log_det

    def inverse_and_log_det(self, y, condition=None):
        """From x to z, and the log Jacobian."""
        y = (y - self.mean) / self.scale

        def settle(_, z):
            log_scales, _ = self._log_scales(z)
            return (y - self.location_slopes @ z) * jnp.exp(-log_scales)

        # Whatever it starts from, each sweep settles one more coordinate of the order.
        z = jax.lax.fori_loop(0, len(y), settle, jnp.zeros_like(y))
        return z, -self._log_scales(z)[1]

    def _log_scales(self, z: Array) -> tuple[Array, Array]:
        log_scales = self.log_scales + self.log_scale_slopes @ z
        return log_scales, jnp.sum(log_scales) + jnp.sum(jnp.log(self.scale))

    def as_affine(self, z: np.ndarray) -> tuple[Linear, np.ndarray]:
        """The coordinates of x."""
        return Linear.identity(len(self.mean)), self.positions(z)

    def gain_needed(self, other: AbstractCoordinates) -> float:
        """More than others."""
        del other
        return _GAIN_NEEDED


def propose_hierarchy(seen: Seen) -> Iterator[Candidate]:
    """Scales that follow others, where no few leaders do.

    They may be too many, or the density hard to learn from: a boundary.
    """
    best = seen.best
    assert best is not None
    if best.start.bijection.leaders or not may_have_rulers(seen):
        return
    hierarchy = fit_hierarchy(best.x, best.weights)
    if hierarchy is not None:
        yield Candidate(NAME, normal_start(hierarchy))


def may_have_rulers(seen: Seen) -> bool:
    """Whether it is worth looking for coordinates that rule others."""
    best = seen.best
    assert best is not None
    several = best.start.is_of_modes and seen.num_peaks > 1
    hard = best.num_transitions > _EASY
    return hard and not several and best.start.size <= MAX_SIZE


def fit_hierarchy(x: np.ndarray, weights: np.ndarray) -> Hierarchy | None:
    """Fit to weighted particles; None if no scale depends on a coordinate."""
    x = np.asarray(x, np.float64)
    weights = np.asarray(weights, np.float64)
    mean = weights @ x
    scale = np.sqrt(np.maximum(weights @ (x - mean) ** 2, 1e-300))
    y = (x - mean) / scale
    size, count = y.shape[1], 1 / np.sum(weights**2)
    order = _order(y, weights)
    location, slope = np.zeros((size, size)), np.zeros((size, size))
    log_scales = np.zeros(size)
    z = np.zeros_like(y)
    done: list[int] = []
    for j in order:
        before = z[:, done]
        row = fit_coordinate(y[:, j], before, weights, count)
        location[j, done], slope[j, done] = row.location, row.slopes
        log_scales[j] = row.log_scale
        mean[j] += scale[j] * row.centre
        residual = y[:, j] - row.centre - before @ row.location
        z[:, j] = residual * np.exp(-row.log_scale - before @ row.slopes)
        done.append(j)
    if not slope.any():
        return None
    return Hierarchy(mean, scale, location, slope, log_scales)


def _order(y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Coordinates that set the scales of many others come first."""
    log_square = np.log(y**2 + 1e-4)
    log_square = log_square - weights @ log_square
    log_square /= np.sqrt(weights @ log_square**2) + 1e-12
    influence = np.abs((y * weights[:, None]).T @ log_square)
    np.fill_diagonal(influence, 0)
    significant = np.where(influence > 0.1, influence, 0)
    return np.argsort(-significant.sum(axis=1), kind="stable")


class _Row(NamedTuple):
    """A coordinate: centre, slopes of location and of log scale, and log scale."""

    centre: float
    location: np.ndarray
    slopes: np.ndarray
    log_scale: float


def fit_coordinate(
    y: np.ndarray, before: np.ndarray, weights: np.ndarray, count: float
) -> _Row:
    """Fit a coordinate, given those before it."""
    size = before.shape[1]
    slopes = np.zeros(size)
    location = _least_squares(y, before, weights, count)
    residual = y - before @ location
    variance = weights @ residual**2
    if variance <= 0 or not np.isfinite(variance):
        return _Row(0.0, np.zeros(size), slopes, 0.0)
    constant = 0.5 * np.log(variance)
    centre = 0.0
    chosen: list[int] = []
    standard = residual
    threshold = _SIGNIFICANT / np.sqrt(max(count, 1))
    while len(chosen) < min(size, _MAX_REGRESSORS):
        # Does a coordinate move the scale? Logarithms are robust to outliers.
        link = np.abs(_correlations(np.log(standard**2 + 1e-30), before, weights))
        link[chosen] = 0
        if link.max() < threshold:
            break
        if not chosen:  # from here on only locations that stand out count
            centre = float(weighted_quantiles(y, weights, [0.5])[0])
            location, residual = np.zeros(size), y - centre
        chosen.append(int(np.argmax(link)))
        for _ in range(3):
            constant, part = _fit_log_scale(residual, before[:, chosen], weights)
            slopes[chosen] = np.clip(part, -_MAX_SLOPE, _MAX_SLOPE)
            inverse_scale = np.exp(np.clip(-constant - before @ slopes, -30, 30))
            location = _sparse_least_squares(
                y - centre, before, weights, inverse_scale, count
            )
            # The centre must be right where the scale is smallest.
            precision = weights * inverse_scale**2
            centre = float(precision @ (y - before @ location) / precision.sum())
            residual = y - centre - before @ location
        standard = residual * inverse_scale
    return _Row(centre, location, slopes, constant)


def _correlations(
    values: np.ndarray, regressors: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Weighted correlation of values with each regressor."""
    values = values - weights @ values
    centred = regressors - weights @ regressors
    covariance = (weights * values) @ centred
    spread = np.sqrt((weights @ values**2) * (weights @ centred**2))
    return covariance / np.maximum(spread, 1e-12)


def _sparse_least_squares(
    y: np.ndarray,
    before: np.ndarray,
    weights: np.ndarray,
    inverse_scale: np.ndarray,
    count: float,
) -> np.ndarray:
    """Slopes of the location that stand out of the noise.

    Where the scale is small, noise in a slope would be many times the scale; and the
    particles there are few and akin, so they must not decide alone.
    """
    capped = np.minimum(inverse_scale, 1.5 * np.median(inverse_scale))
    precision = weights * capped**2
    weighted = before * precision[:, None]
    gram = weighted.T @ before
    gram += 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    inverse = np.linalg.inv(gram)
    slopes = inverse @ (weighted.T @ y)
    # The residual over its scale has variance one; `weights` add up to one.
    errors = np.sqrt(np.maximum(np.diag(inverse), 0) / max(0.5 * count, 1))
    kept = np.flatnonzero(np.abs(slopes) > _SIGNIFICANT * errors)
    result = np.zeros(len(slopes))
    if len(kept):
        part = gram[np.ix_(kept, kept)]
        result[kept] = np.linalg.solve(part, (weighted.T @ y)[kept])
    return np.where(np.isfinite(result), result, 0.0)


def _least_squares(
    y: np.ndarray, before: np.ndarray, weights: np.ndarray, count: float
) -> np.ndarray:
    size = before.shape[1]
    if size == 0:
        return np.zeros(0)
    weighted = before * weights[:, None]
    ridge = (size / max(count, 1)) * 0.1 * np.trace(weighted.T @ before) / size
    gram = weighted.T @ before + (ridge + 1e-12) * np.eye(size)
    slopes = np.linalg.solve(gram, weighted.T @ y)
    return np.where(np.isfinite(slopes), slopes, 0.0)


def _fit_log_scale(
    residual: np.ndarray, regressors: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """Maximise the sum of -l - r^2 exp(-2 l) / 2 with l linear in the regressors."""
    design = np.column_stack([np.ones(len(residual)), regressors])
    square = residual**2 + 1e-30
    # The mean of the log of a squared standard normal is -1.27.
    level = 0.5 * (np.log(square) + 1.27)
    weighted = design * weights[:, None]
    gram = weighted.T @ design + 1e-9 * np.eye(design.shape[1])
    theta = np.linalg.solve(gram, weighted.T @ level)

    def objective(theta):
        level = np.clip(design @ theta, -15, 15)
        return weights @ (-level - 0.5 * square * np.exp(-2 * level))

    value = objective(theta)
    for _ in range(_NEWTON_STEPS):
        level = np.clip(design @ theta, -15, 15)
        ratio = square * np.exp(-2 * level)
        gradient = (weights * (ratio - 1)) @ design
        hessian = (design * (2 * weights * ratio)[:, None]).T @ design
        hessian += 1e-6 * np.eye(len(theta))
        step = np.linalg.solve(hessian, gradient)
        for size in (1.0, 0.5, 0.25, 0.1):
            trial = theta + size * step
            if (new := objective(trial)) > value:
                theta, value = trial, new
                break
        else:
            break
    return float(theta[0]), theta[1:]
