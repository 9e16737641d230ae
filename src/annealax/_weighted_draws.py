"""What weighted particles are worth as draws, and draws out of them."""

from collections.abc import Mapping

import numpy as np


def distinct_points(variables: Mapping[str, np.ndarray]) -> np.ndarray:
    """A number for every particle, the same for copies of one point."""
    labels = []
    for array in variables.values():
        rows = np.ascontiguousarray(array).reshape(len(array), -1)
        if rows.shape[1]:
            row = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1])))
            labels.append(np.unique(row.ravel(), return_inverse=True)[1])
    if not labels:
        return np.arange(len(next(iter(variables.values()))))
    return np.unique(np.stack(labels, axis=1), axis=0, return_inverse=True)[1].ravel()


def effective_draws(
    variables: Mapping[str, np.ndarray], weights: np.ndarray, roots: np.ndarray
) -> float:
    """How many independent draws give means as precise as these particles do.

    The ratio of variance to squared standard error, the latter by ancestry, pooled over
    all coordinates. Centring on the mean itself takes a share of the noise away, all of
    it if there is one root; that is put right.
    """
    _, families = np.unique(roots, return_inverse=True)
    left = 1 - float(np.sum(np.bincount(families, weights) ** 2))
    alive = weights > 0
    weights, families = weights[alive], families[alive]
    ratios = []
    for array in variables.values():
        for column in array.reshape(len(array), -1)[alive].T.astype(np.float64):
            centred = column - weights @ column
            variance = float(weights @ centred**2)
            error = float(np.sum(np.bincount(families, weights * centred) ** 2))
            if variance > 0 and np.isfinite(variance):
                ratios.append(error / variance)
    if not ratios or left <= 1e-6:
        return 1.0
    return max(1.0, left / max(float(np.mean(ratios)), 1e-12))


def resample(
    points: np.ndarray, weights: np.ndarray, num_draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices of particles, drawn systematically; copies of a point stand together.

    Args:
        points: Which point each particle is at (`distinct_points`).
        weights: Normalised weights.
        num_draws: Number of draws.
        rng: Where randomness comes from.
    """
    # In random order: that of the particles follows their genealogy.
    order = np.argsort(rng.permutation(points.max() + 1)[points], kind="stable")
    cumulative = np.cumsum(weights[order])
    positions = (np.arange(num_draws) + rng.uniform()) / num_draws * cumulative[-1]
    # side="right" never selects a particle of weight zero, but rounding may end past
    # the last of positive weight.
    last = np.flatnonzero(weights[order])[-1]
    index = np.minimum(np.searchsorted(cumulative, positions, side="right"), last)
    return order[index]
