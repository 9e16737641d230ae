"""Mass that lies at known modes for sure, and whether draws have it.

A start in other coordinates, fitted to particles of one mode, may lose another. Passes
from it say nothing of that: they agree on too small a log Z. But the mass near a known
mode is a small integral, which a few hundred draws from its Gaussian give.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from annealax._estimates import log_mean
from annealax._keys import generator
from annealax.auto.modes import NUM_SCREENED, Ascents
from annealax.auto.starts.gaussian import Linear, distances

_DRAWS = 512
"""Draws from each Gaussian, at most; all of them make one batch."""

_USABLE = 0.1
"""Of these so many must be effective, or the Gaussian says nothing."""

_SURE = 2.33
"""Normal quantile of the share of a Gaussian inside of its ellipsoid: 99 %."""

MATTERS, _LACKS = 0.03, 0.3
"""A mode with this share of the mass is lost by draws of which less than the second,
of what there should be, are inside of its ellipsoid."""


class MassAtModes(NamedTuple):
    """Ellipsoids at modes, and the mass inside of each.

    Attributes:
        fits: Gaussians at the modes; an ellipsoid holds 99 % of each.
        log_masses: Log of the integral of the density over the ellipsoid; minus
            infinity where it could not be found.
        likeness: How near the density is to what all Gaussians together say of it,
            from 0 to 1: the effective share of draws from each.
    """

    fits: tuple[Linear, ...]
    log_masses: Float[np.ndarray, " modes"]
    likeness: Float[np.ndarray, " modes"]

    def lost(
        self,
        x: Float[np.ndarray, "draws size"],
        weights: Float[np.ndarray, " draws"],
        log_normalizer: float,
    ) -> float:
        """The largest share of all mass at a mode that draws have lost.

        Args:
            x: Draws.
            weights: Their weights, which add up to one.
            log_normalizer: What they say of log Z.
        """
        return float(self.shares_lost(x, weights, log_normalizer).max(initial=0.0))

    def shares_lost(
        self,
        x: Float[np.ndarray, "draws size"],
        weights: Float[np.ndarray, " draws"],
        log_normalizer: float,
    ) -> Float[np.ndarray, " modes"]:
        """Of each mode: the share of all mass there, if draws have lost it; else zero.

        Args:
            x: Draws.
            weights: Their weights, which add up to one.
            log_normalizer: What they say of log Z.
        """
        lost = np.zeros(len(self.fits))
        pairs = zip(self.fits, self.log_masses, strict=True)
        for index, (fit, log_mass) in enumerate(pairs):
            log_share = log_mass - np.logaddexp(log_normalizer, log_mass)
            share = float(np.exp(log_share)) if np.isfinite(log_mass) else 0.0
            if share < MATTERS:
                continue
            inside = distances(fit, x) < np.sqrt(squared_radius(x.shape[1]))
            if weights @ inside < _LACKS * share:
                lost[index] = share
        return lost


def mass_at_modes(
    key: PRNGKeyArray, ascents: Ascents, fits: Sequence[Linear]
) -> MassAtModes:
    """Integrate over ellipsoids, by importance sampling from the Gaussians."""
    if not fits:
        return MassAtModes((), np.zeros(0), np.zeros(0))
    (size,) = fits[0].shape
    count = min(_DRAWS, (NUM_SCREENED - len(fits)) // len(fits))
    z = generator(key).normal(size=(len(fits), count, size))
    each = zip(fits, z, strict=True)
    centres = np.stack([np.asarray(fit.mean, np.float64) for fit in fits])
    points = np.concatenate([centres, *(fit.positions(some) for fit, some in each)])
    filling = np.repeat(points[:1], NUM_SCREENED - len(points), axis=0)
    values = ascents.evaluate(np.concatenate([points, filling]))[: len(points)]
    heights, values = values[: len(fits)], values[len(fits) :]
    constant = 0.5 * size * math.log(2 * math.pi)
    log_dets = np.asarray([float(fit.log_det) for fit in fits]) + constant
    # What the Gaussians say of the density, each with the mass of its peak.
    squares = np.stack([distances(fit, points[len(fits) :]) ** 2 for fit in fits])
    explained = np.logaddexp.reduce(heights[:, None] - 0.5 * squares, axis=0)
    # Where the density is zero at a peak and at a draw, nothing is known.
    with np.errstate(invalid="ignore"):
        likeness = (values - explained).reshape(len(fits), count)
    own = np.sum(z**2, axis=2)
    log_weights = values.reshape(own.shape) + 0.5 * own + log_dets[:, None]
    log_weights[own >= squared_radius(size)] = -np.inf
    log_masses = [
        log_mean(row) if _effective_share(row) > _USABLE else -np.inf
        for row in log_weights
    ]
    return MassAtModes(
        tuple(fits),
        np.asarray(log_masses),
        np.asarray([_effective_share(row) for row in likeness]),
    )


def _effective_share(log_weights: np.ndarray) -> float:
    if not np.isfinite(log_weights.max()):
        return 0.0  # NaN, too
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2) / len(weights))


def squared_radius(size: int) -> float:
    """Of a ball with 99 % of a standard normal (Wilson and Hilferty, 1931)."""
    spread = 2 / (9 * size)
    return size * (1 - spread + _SURE * math.sqrt(spread)) ** 3
