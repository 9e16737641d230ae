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

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_SIGNIFICANT = 5.0
_NEWTON_STEPS = 12
_MAX_SLOPE = 3.0
_MAX_REGRESSORS = 8


class Hierarchy(eqx.Module):
    """The map above; what is called `order` there is how coordinates are numbered."""

    mean: Float[Array, " size"]
    scale: Float[Array, " size"]
    location_slopes: Float[Array, "size size"]
    log_scale_slopes: Float[Array, "size size"]
    log_scales: Float[Array, " size"]

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.mean.shape[0]

    def transform_and_log_det(
        self, z: Float[Array, " size"]
    ) -> tuple[Float[Array, " size"], Float[Array, ""]]:
        """From z to x, and the log Jacobian."""
        log_scales = self.log_scales + self.log_scale_slopes @ z
        y = self.location_slopes @ z + jnp.exp(log_scales) * z
        log_det = jnp.sum(log_scales) + jnp.sum(jnp.log(self.scale))
        return self.mean + self.scale * y, log_det


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
    as_array = lambda value: jnp.asarray(value, jnp.result_type(float))  # noqa: E731
    return Hierarchy(*map(as_array, (mean, scale, location, slope, log_scales)))


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
            centre = _weighted_median(y, weights)
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


def _weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(total, 0.5 * total[-1])]])


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
