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
from annealax.auto._placement import Placement, laplace, widening
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
    return _assemble(np.asarray(means), covariances, shares, centre, scale)


def refit_mixture(
    placement: Placement,
    z: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
) -> Placement | None:
    """One step of expectation maximisation on particles; the wide normal stays."""
    start = placement.initial
    assert isinstance(start, MixtureStart)
    log_parts = np.asarray(
        jax.vmap(start.mixture.component_log_densities)(jnp.asarray(z)), np.float64
    )
    log_parts[:, -1] -= 1e3  # the wide component explains nothing here
    parts = np.exp(log_parts - log_parts.max(axis=1, keepdims=True))
    parts *= (weights / parts.sum(axis=1))[:, None]
    factor = np.asarray(placement.factor, np.float64)
    x = np.asarray(placement.mean, np.float64) + np.asarray(z, np.float64) @ factor.T
    size = x.shape[1]
    enough = 1 / np.sum(weights**2) * parts.sum(axis=0) > max(10, 2 * np.sqrt(size))
    means, covariances, shares = [], [], []
    for column in np.flatnonzero(enough[:-1]):
        share = parts[:, column].sum()
        part = parts[:, column] / share
        mean = part @ x
        centred = x - mean
        means.append(mean)
        covariances.append((centred * part[:, None]).T @ centred)
        shares.append(share)
    if len(means) < 2:
        return None
    total = np.asarray(shares)
    return _assemble(np.asarray(means), covariances, total / total.sum(), centre, scale)


def _assemble(
    means: np.ndarray,
    covariances: Sequence[np.ndarray],
    shares: np.ndarray,
    centre: np.ndarray,
    scale: np.ndarray,
) -> Placement:
    """The placement that whitens within modes, with the mixture as its start."""
    size = means.shape[1]
    within = sum(s * c for s, c in zip(shares, covariances, strict=True))
    spread = np.sqrt(np.diag(within))
    correlation = within / np.outer(spread, spread)
    values, vectors = np.linalg.eigh(correlation + 1e-3 * np.eye(size))
    root = (vectors * np.sqrt(np.maximum(values, 1e-6))) @ vectors.T
    factor = spread[:, None] * root
    inverse = np.linalg.inv(factor)
    origin = shares @ means
    places = (means - origin) @ inverse.T
    variances = np.stack(
        [np.diag(inverse @ covariance @ inverse.T) for covariance in covariances]
    )
    variances = np.maximum(variances, 1e-4) * widening(size) ** 2
    wide = np.diag(inverse @ np.diag(scale**2) @ inverse.T)
    mixture = GaussianMixture(
        np.concatenate([places, [(centre - origin) @ inverse.T]]),
        np.concatenate([variances, [wide]]),
        np.concatenate([(1 - _WIDE_SHARE) * shares, [_WIDE_SHARE]]),
    )
    return Placement(origin, factor, MixtureStart(mixture))
