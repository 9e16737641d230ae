"""Which modes the draws of an answer lie in."""

import numpy as np
from jaxtyping import PRNGKeyArray

from annealax.auto._answer import ModeTable
from annealax.auto._explore import Ascents


def find_modes(
    key: PRNGKeyArray,
    ascents: Ascents,
    vectors: np.ndarray,
    weights: np.ndarray,
    num_replicates: int,
) -> ModeTable:
    """Peaks that are reached from draws, with the share of the draws nearest to each.

    Args:
        key: Random key.
        ascents: Ascents of the density.
        vectors: Draws of all replicates, one after the other.
        weights: Their weights, which add up to one.
        num_replicates: How many replicates there are.
    """
    points = ascents.from_particles(key, vectors, weights).points
    if len(points) == 0:
        points = vectors[[np.argmax(weights)]]
    scale = np.sqrt(weights @ (vectors - weights @ vectors) ** 2) + 1e-30
    nearest = _nearest(vectors / scale, points / scale)
    shares = np.stack(
        [
            np.bincount(which, part / max(part.sum(), 1e-300), len(points))
            for which, part in zip(
                np.split(nearest, num_replicates),
                np.split(weights, num_replicates),
                strict=True,
            )
        ]
    )
    pooled = np.bincount(nearest, weights, len(points))
    order = np.argsort(-pooled, kind="stable")
    return ModeTable(points[order], shares[:, order], pooled[order])


def _nearest(vectors: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Index of the point nearest to each vector."""
    centre = points.mean(axis=0)
    vectors, points = vectors - centre, points - centre
    return np.argmin(np.sum(points**2, axis=1) - 2 * vectors @ points.T, axis=1)
