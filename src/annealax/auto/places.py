"""Where to look: points from which ascents start.

Nobody says on which scale a density lives, so without further knowledge ascents start
on all scales; with a region or a prior, from there.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

_SCALES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e6)
"""Without knowledge. Below these, the density's own slope leads to its scale."""


class Climbers(NamedTuple):
    """Points from which ascents start.

    Attributes:
        points: Where they are.
        scales: Each one's first steps are in proportion to this.
    """

    points: Float[np.ndarray, "ascents size"]
    scales: Float[np.ndarray, " ascents"]

    def first(self, count: int) -> "Climbers":
        """The first so many of them."""
        return Climbers(self.points[:count], self.scales[:count])

    def after(self, count: int) -> "Climbers":
        """All but the first so many."""
        return Climbers(self.points[count:], self.scales[count:])

    @classmethod
    def join(cls, several: Sequence["Climbers"]) -> "Climbers":
        """All of several."""
        parts = zip(*several, strict=True)
        return cls(*(np.concatenate(part) for part in parts))


class Places(ABC):
    """Where to look."""

    @abstractmethod
    def draw(self, key: PRNGKeyArray, count: int) -> Climbers:
        """So many points."""

    @abstractmethod
    def __str__(self) -> str:
        """In words, to be read after "looked"."""


class Everywhere(Places):
    """Normal points around the origin, on scales from small to large."""

    def __init__(self, size: int):
        self._size = size

    def draw(self, key, count):
        """So many points, as many on each scale."""
        normal = np.asarray(jr.normal(key, (count, self._size)), np.float64)
        scales = np.asarray(_SCALES)[np.arange(count) % len(_SCALES)]
        return Climbers(normal * scales[:, None], scales)

    def __str__(self):
        """The scales."""
        return (
            f"around the origin on scales from {_SCALES[0]:g} to {_SCALES[-1]:g} and "
            "around what was found there"
        )


_NEAREST, _FURTHEST = 0.7, 30.0
"""So many times further out than the modes lie, or than one is wide."""


class Around(Places):
    """Normal points around what was found.

    Args:
        centre: Where it is.
        scale: How far it reaches.
    """

    def __init__(self, centre: np.ndarray, scale: np.ndarray):
        self._centre, self._scale = centre, scale

    def at(self, points: np.ndarray) -> Climbers:
        """Given points, to climb from with small steps."""
        return Climbers(points, np.full(len(points), float(np.median(self._scale))))

    def draw(self, key, count):
        """So many points, near and further out."""
        normal = np.asarray(jr.normal(key, (count, len(self._centre))), np.float64)
        further = np.geomspace(_NEAREST, _FURTHEST, count)
        np.random.default_rng(count).shuffle(further)
        points = self._centre + further[:, None] * normal * self._scale
        return Climbers(points, further * float(np.median(self._scale)))

    def __str__(self):
        """What it is around."""
        return "around what was found"
