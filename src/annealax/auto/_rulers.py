"""Which coordinates rule others: set their scales, or bend their means.

The standard deviations of a hierarchical model do the first, the long direction of a
banana does the second. Both show in particles, and most densities have neither.
"""

import numpy as np

from annealax.auto._hierarchy import Hierarchy, fit_hierarchy

MAX_LEADERS = 4
"""More rulers than these are left to a `Hierarchy`."""

_INFLUENCE, _CURVATURE = 0.15, 0.5
_WEAK, _STRONG = 0.15, 0.3


class Rulers:
    """What the particles of several passes have shown so far."""

    def __init__(self, size: int):
        self._influence, self._curvature = np.zeros(size), np.zeros(size)

    def see(self, x: np.ndarray, weights: np.ndarray) -> Hierarchy | None:
        """Learn from weighted particles which coordinates set scales, and how."""
        hierarchy = fit_hierarchy(x, weights)
        if hierarchy is not None:
            self._influence = np.maximum(self._influence, influence_of(hierarchy))
        return hierarchy

    def see_bends(self, x: np.ndarray, weights: np.ndarray) -> None:
        """Learn with which coordinates the means of others bend."""
        self._curvature = np.maximum(self._curvature, curvature_of(x, weights))

    @property
    def of_scales(self) -> np.ndarray:
        """The few coordinates that set the scales of others; none if they are many."""
        return _few(self._influence)

    @property
    def of_means(self) -> np.ndarray:
        """The few coordinates with which others bend; none if they are many."""
        return _few(self._curvature)


def _few(influence: np.ndarray) -> np.ndarray:
    leaders = np.flatnonzero(influence > _WEAK * influence.max())
    if len(leaders) > MAX_LEADERS:
        leaders = np.flatnonzero(influence > _STRONG * influence.max())
    few = len(leaders) <= min(MAX_LEADERS, len(influence) - 1)
    return leaders if few else leaders[:0]


def influence_of(hierarchy: Hierarchy) -> np.ndarray:
    """How much the scales of others depend on each coordinate; often zero."""
    influence = np.sqrt(np.sum(np.asarray(hierarchy.log_scale_slopes) ** 2, axis=0))
    return np.where(influence > _INFLUENCE, influence, 0)


def curvature_of(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How much the means of others bend with each coordinate; often zero."""
    x = np.asarray(x, np.float64)
    mean = weights @ x
    y = (x - mean) / np.sqrt(np.maximum(weights @ (x - mean) ** 2, 1e-300))
    weighted = y * weights[:, None]
    # The square of each, without what is linear in it.
    bend = y**2 - 1 - (weights @ y**3) * y
    spread = np.sqrt(np.maximum(weights @ bend**2, 1e-12))
    left = np.sqrt(np.maximum(1 - (weighted.T @ y) ** 2, 1e-3))
    link = np.abs(bend.T @ weighted) / spread[:, None] / left
    np.fill_diagonal(link, 0)
    count = 1 / np.sum(np.asarray(weights, np.float64) ** 2)
    level = max(_CURVATURE, 5 / np.sqrt(count))
    return np.sqrt(np.sum(np.where(link > level, link, 0) ** 2, axis=1))
