"""Starts fitted to the particles of all passes together: Gaussians where they gather.

Where ascents cannot tell the modes, particles do. A pass may lose a mode that an
earlier one had found, and a start fitted to it alone would lose it for good; so the
particles of all passes count, each pass by the mass that it found.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax.random as jr
import numpy as np

from annealax._estimates import logsumexp
from annealax._keys import named_key
from annealax.auto.starts.base import Candidate, Seen
from annealax.auto.starts.gaussian import Linear, moments, normal_start, root_of
from annealax.auto.starts.mixture import mixture_of

_MOST, _POINTS_EACH = 6, 4
"""Gaussians, at most; points that each needs, per dimension."""

_ITERATIONS = 30
"""Of expectation maximisation."""

_ATTEMPTS = 3
"""From so many beginnings, of which the best counts."""

_FLOOR = 1e-4
"""Share of the overall covariance below which none of a Gaussian's falls."""


class Fit(NamedTuple):
    """A mixture of Gaussians.

    Attributes:
        means: Their means.
        covariances: Their covariances.
        shares: Their weights.
        score: Bayesian information criterion, in nats: the higher the better.
    """

    means: np.ndarray
    covariances: np.ndarray
    shares: np.ndarray
    score: float


def propose_clusters(seen: Seen) -> Iterator[Candidate]:
    """Gaussians where the particles of all passes gather; a wide one with several."""
    x, weights = _particles(seen)
    key = named_key(seen.key, "clusters", len(seen.tried))
    random = np.random.default_rng(np.asarray(jr.key_data(key)))
    fit = fit_gaussians(random, x, weights)
    if fit is not None and len(fit.means) == 1:
        linear = Linear(fit.means[0], root_of(fit.covariances[0]))
        yield Candidate("one Gaussian fitted to all particles", normal_start(linear))
    elif fit is not None:
        start = mixture_of(fit.means, list(fit.covariances), fit.shares, seen.wide)
        yield Candidate(f"{len(fit.means)} Gaussians fitted to all particles", start)


def fit_gaussians(
    random: np.random.Generator, x: np.ndarray, weights: np.ndarray
) -> Fit | None:
    """As many Gaussians as weighted points speak for; None without spread."""
    mean, covariance = moments(x, weights)
    scale = np.sqrt(np.diag(covariance))
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        return None
    z = (x - mean) / scale
    count = 1 / np.sum(weights**2)
    most = int(np.clip(count / (_POINTS_EACH * z.shape[1]), 1, _MOST))
    fits = [
        _maximise(_spread(random, z, weights, k), z, weights, count)
        for k in range(1, most + 1)
        for _ in range(_ATTEMPTS)
    ]
    best = max(fits, key=lambda fit: fit.score)
    return best._replace(
        means=mean + best.means * scale,
        covariances=best.covariances * np.outer(scale, scale),
    )


def _spread(
    random: np.random.Generator, z: np.ndarray, weights: np.ndarray, k: int
) -> np.ndarray:
    """Points far from each other, to begin with (k-means++)."""
    chances, centres = weights, np.zeros((0, z.shape[1]))
    for _ in range(k):
        index = random.choice(len(z), p=chances / chances.sum())
        centres = np.concatenate([centres, z[[index]]])
        distances = ((z[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        chances = weights * distances + 1e-300
    return centres


def _maximise(
    centres: np.ndarray, z: np.ndarray, weights: np.ndarray, count: float
) -> Fit:
    """Expectation maximisation."""
    k, size = centres.shape
    floor = _FLOOR * np.eye(size)
    nearest = np.argmin(((z[:, None] - centres) ** 2).sum(axis=2), axis=1)
    parts = np.eye(k)[nearest]
    for _ in range(_ITERATIONS):
        members = parts * weights[:, None]
        masses = np.maximum(members.sum(axis=0), 1e-12)
        shares = masses / masses.sum()
        means = members.T @ z / masses[:, None]
        away = z[:, None] - means
        covariances = np.einsum("nk,nki,nkj->kij", members, away, away)
        covariances = covariances / masses[:, None, None] + floor
        inverse = np.linalg.inv(covariances)
        heights = -0.5 * np.einsum("nki,kij,nkj->nk", away, inverse, away)
        heights += np.log(shares) - 0.5 * np.linalg.slogdet(covariances)[1]
        total = np.asarray([logsumexp(row) for row in heights])
        parts = np.exp(heights - total[:, None])
    likelihood = count * float(weights @ total)
    numbers = k * (1 + size + size * (size + 1) / 2)
    return Fit(means, covariances, shares, likelihood - 0.5 * numbers * np.log(count))


def _particles(seen: Seen) -> tuple[np.ndarray, np.ndarray]:
    """Those of all passes, each pass by the mass that it found."""
    places, log_weights = [], []
    for tried in seen.tried:
        for each in tried.passes:
            if each.usable:
                places.append(tried.start.bijection.positions(each.z))
                with np.errstate(divide="ignore"):
                    log_weights.append(np.log(each.weights) + each.log_normalizer)
    joint = np.concatenate(log_weights)
    return np.concatenate(places), np.exp(joint - logsumexp(joint))
