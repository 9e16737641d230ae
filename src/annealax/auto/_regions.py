"""Regions that one start finds and another does not.

Two starts may agree on log Z and yet each miss what the other sees: a narrow spike on a
wide slab of the same mass. The particles show it: those of one lie far outside of those
of the other, or there are too few of the other where the one says that much mass is.
Then both belong to the answer.
"""

from typing import NamedTuple

import numpy as np

from annealax.auto._mixture import mixture_of
from annealax.auto._placement import Placement, moments

_ROOM = 2.0
_COUNTS, _LACKS = 0.02, 0.5


class Cloud(NamedTuple):
    """Where the particles of a start ended.

    Attributes:
        x: Particles.
        weights: Their weights, which sum to 1.
        log_mass: Estimate of log Z.
    """

    x: np.ndarray
    weights: np.ndarray
    log_mass: float


def with_region(
    cloud: Cloud, other: Cloud, centre: np.ndarray, scale: np.ndarray
) -> Placement | None:
    """Gaussians for a cloud and for what another has that it lacks, if that counts.

    Args:
        cloud: The best so far.
        other: What may have more.
        centre: Of the wide normal that also belongs to a mixture.
        scale: Of the wide normal.
    """
    first, second = _ellipsoid(cloud), _ellipsoid(other)
    if first is None or second is None:
        return None
    ratio = np.exp(np.minimum(other.log_mass - cloud.log_mass, 50.0))
    beyond = np.where(first.contains(other.x), 0, other.weights)
    within = second.contains(cloud.x) @ cloud.weights
    if (mass := ratio * beyond.sum()) > _COUNTS:
        missed = beyond / beyond.sum()
    elif ratio > _COUNTS and within < _LACKS * ratio:
        # A narrow one that lies inside of it, where it has next to nothing.
        missed, mass = other.weights, ratio
    else:
        return None
    mean, covariance = moments(other.x, missed)
    means = np.stack([first.mean, mean])
    shares = np.array([1.0, mass]) / (1 + mass)
    return mixture_of(means, [first.covariance, covariance], shares, centre, scale)


class _Ellipsoid(NamedTuple):
    """Around all particles that have weight, with much room between."""

    mean: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    reach: float

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _distances(x, self.mean, self.factor) <= self.reach


def _ellipsoid(cloud: Cloud) -> _Ellipsoid | None:
    mean, covariance = moments(cloud.x, cloud.weights)
    diagonal = np.diag(np.diag(covariance))
    if not np.isfinite(covariance).all():
        return None
    try:
        factor = np.linalg.cholesky(covariance + 1e-9 * diagonal)
    except np.linalg.LinAlgError:
        return None
    distances = _distances(cloud.x[cloud.weights > 0], mean, factor)
    return _Ellipsoid(mean, covariance, factor, _ROOM * float(distances.max()))


def _distances(x: np.ndarray, mean: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.linalg.solve(factor, (x - mean).T), axis=0)
