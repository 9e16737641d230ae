r"""A start with a Gaussian at every known mode, and a wide one for the unknown.

The shares of the modes are then right from the beginning, and need not be carried by
weights after barriers have risen between them. The wide component reaches what ascents
did not find. All components share the coordinates that whiten the average covariance
within a mode; in these each is diagonal, so that the start costs no more than one
distance per mode.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax.auto._explore import Modes
from annealax.auto._placement import (
    Coordinates,
    Placement,
    laplace,
    moments,
    positions,
    root_of,
    widening,
)
from annealax.auto._tails import StudentStart, fit_tails
from annealax.targets import GaussianMixture

_WIDE_SHARE = 0.2
_SAME_PEAK = 0.3


class MixtureStart(eqx.Module):
    """A mixture as an initial distribution."""

    mixture: GaussianMixture

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one configuration."""
        return self.mixture.shape

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws."""
        (count,) = sample_shape
        return self.mixture.sample(key, count)

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Normalised log density of one point."""
        return self.mixture(x)

    def component_log_densities(
        self, x: Float[Array, " size"]
    ) -> Float[Array, " components"]:
        """Log of share times density of each component."""
        return self.mixture.component_log_densities(x)


def is_of_modes(placement: Coordinates) -> bool:
    """Whether passes start from a mixture that has a component at every mode."""
    start = getattr(placement, "initial", None)
    several = isinstance(start, StudentStart) and start.num_components > 1
    return isinstance(start, MixtureStart) or several


class Peaks(NamedTuple):
    """Gaussians at peaks (Laplace).

    Attributes:
        placements: One for each peak.
        log_masses: Log of the mass of each, up to a constant that they share.
        num_evaluations: Evaluations made.
    """

    placements: tuple[Placement, ...]
    log_masses: tuple[float, ...]
    num_evaluations: int


def peaks_at(log_density: Callable[[Array], Array], modes: Modes) -> Peaks:
    """Newton's method from every mode, the highest first; each end counts once.

    Ascents along a curved ridge may tire before they meet at its top.
    """
    placements: list[Placement] = []
    log_masses, count = [], 0
    for point, height in zip(modes.points, modes.log_densities, strict=True):
        fit = laplace(log_density, point)
        count += fit.num_evaluations
        if fit.placement is None or any(
            _distance(fit.placement, other) < _SAME_PEAK for other in placements
        ):
            continue
        placements.append(fit.placement)
        log_masses.append(float(height) + float(fit.placement.log_det))
    return Peaks(tuple(placements), tuple(log_masses), count)


def _distance(placement: Placement, other: Placement) -> float:
    """Between centres, in standard deviations of the other."""
    away = np.asarray(placement.mean, np.float64) - np.asarray(other.mean, np.float64)
    return float(np.linalg.norm(np.linalg.solve(np.asarray(other.factor), away)))


def mixture_at_peaks(peaks: Peaks, centre: np.ndarray, scale: np.ndarray) -> Placement:
    """A Gaussian at every peak, and a wide normal."""
    means = [np.asarray(each.mean, np.float64) for each in peaks.placements]
    factors = [np.asarray(each.factor, np.float64) for each in peaks.placements]
    covariances = [factor @ factor.T for factor in factors]
    log_shares = np.asarray(peaks.log_masses) - np.max(peaks.log_masses)
    shares = np.exp(np.maximum(log_shares, -8.0))
    shares /= shares.sum()
    return mixture_of(np.asarray(means), covariances, shares, centre, scale)


def refit_mixture(
    placement: Placement,
    z: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
) -> Placement | None:
    """One step of expectation maximisation on particles; the wide normal stays.

    So does a component with too few particles to be fitted to: without it the mode
    would be left to the wide normal, and weights there would be large.
    """
    log_parts = _log_parts(placement, z)
    parts = np.exp(log_parts - log_parts.max(axis=1, keepdims=True))
    parts *= (weights / parts.sum(axis=1))[:, None]
    x = positions(placement, z)
    size, shares = x.shape[1], parts.sum(axis=0)
    enough = _enough(shares, weights, size)
    if enough.sum() < 2:
        return None
    means, scales = _components(placement)
    means = positions(placement, means)
    root = np.asarray(placement.factor, np.float64)[None] * scales[:, None, :]
    covariances = root @ root.swapaxes(1, 2) / widening(size) ** 2
    for column in np.flatnonzero(enough):
        share = parts[:, column] / shares[column]
        means[column], covariances[column] = moments(x, share)
    shares = np.maximum(shares, 1 / len(x))
    return mixture_of(means, list(covariances), shares / shares.sum(), centre, scale)


def with_tails(
    placement: Placement,
    z: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
) -> Placement | None:
    """Student-t distributions fitted to the particles, if their tails are heavy.

    One of them if the placement has one mode; else one at every mode, and a wide one.
    """
    x = positions(placement, z)
    size = x.shape[1]
    if is_of_modes(placement):
        log_parts = _log_parts(placement, z)
        count = log_parts.shape[1]
        shares = np.bincount(log_parts.argmax(axis=1), weights, count)
        log_parts = log_parts[:, _enough(shares, weights, size)]
        if log_parts.shape[1] < 2:
            return None
        labels = log_parts.argmax(axis=1)
    else:
        labels = np.zeros(len(x), int)
    tails = fit_tails(x, weights, labels)
    if tails is None:
        return None
    shares = np.bincount(labels, weights)
    origin = shares @ tails.means
    inverse = np.linalg.inv(tails.factor)
    places, scales = (tails.means - origin) @ inverse.T, tails.scales
    if len(places) > 1:
        wide = np.sqrt(np.diag(inverse @ np.diag(scale**2) @ inverse.T))
        places = np.concatenate([places, [(centre - origin) @ inverse.T]])
        scales = np.concatenate([scales, [wide]])
        shares = np.concatenate([(1 - _WIDE_SHARE) * shares, [_WIDE_SHARE]])
    start = StudentStart(places, scales, shares, tails.freedom, together=tails.together)
    return Placement(origin, tails.factor, start)


def _log_parts(placement: Placement, z: np.ndarray) -> np.ndarray:
    """Log densities at particles, of all components but the wide one, the last."""
    start = placement.initial
    assert isinstance(start, MixtureStart | StudentStart)
    densities = jax.vmap(start.component_log_densities)(jnp.asarray(z))
    return np.asarray(densities, np.float64)[:, :-1]


def _components(placement: Placement) -> tuple[np.ndarray, np.ndarray]:
    """Centres and scales, in z, of all components but the wide one, the last."""
    start = placement.initial
    if isinstance(start, StudentStart):
        means, scales = start.means, start.scales
    else:
        assert isinstance(start, MixtureStart)
        means, scales = start.mixture.means, start.mixture.factors
    return np.asarray(means, np.float64)[:-1], np.asarray(scales, np.float64)[:-1]


def _enough(shares: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Which components have enough particles to be fitted to them."""
    return 1 / np.sum(weights**2) * shares > max(10, 2 * np.sqrt(size))


def mixture_of(
    means: np.ndarray,
    covariances: Sequence[np.ndarray],
    shares: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
) -> Placement:
    """Gaussians and a wide normal, in coordinates that whiten their mean covariance.

    Args:
        means: Means of the Gaussians.
        covariances: Their covariances.
        shares: Their weights, which sum to 1.
        centre: Of the wide normal.
        scale: Of the wide normal.
    """
    size = means.shape[1]
    within = np.tensordot(shares, np.asarray(covariances), 1)
    factor = root_of(within)
    inverse = np.linalg.inv(factor)
    origin = shares @ means
    places = (means - origin) @ inverse.T
    variances = np.stack(
        [np.diag(inverse @ covariance @ inverse.T) for covariance in covariances]
    )
    variances = np.maximum(variances, 1e-8) * widening(size) ** 2
    wide = np.diag(inverse @ np.diag(scale**2) @ inverse.T)
    mixture = GaussianMixture(
        np.concatenate([places, [(centre - origin) @ inverse.T]]),
        np.concatenate([variances, [wide]]),
        np.concatenate([(1 - _WIDE_SHARE) * shares, [_WIDE_SHARE]]),
    )
    return Placement(origin, factor, MixtureStart(mixture))
