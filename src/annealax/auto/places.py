"""Where to look: points from which ascents start.

Nobody says on which scale a density lives, so without further knowledge ascents start
on all scales; with a region or a prior, from there.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from annealax._keys import generator

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
    """Where to look.

    Attributes:
        is_all: Whether all mass lies there. If so, only points from there say how much
            a mode that was not found can hold.
    """

    is_all: ClassVar[bool] = True

    @abstractmethod
    def draw(self, key: PRNGKeyArray, count: int) -> Climbers:
        """So many points."""

    def log_prob(
        self, points: Float[np.ndarray, "points size"]
    ) -> Float[np.ndarray, " points"]:
        """How densely points are drawn where they matter alike, in logarithms."""
        return np.zeros(len(points))

    @abstractmethod
    def __str__(self) -> str:
        """In words, to be read after "looked"."""


class Everywhere(Places):
    """Normal points around the origin, on scales from small to large."""

    is_all = False

    def __init__(self, size: int):
        self._size = size

    def draw(self, key, count):
        """So many points, as many on each scale."""
        normal = generator(key).normal(size=(count, self._size))
        scales = np.asarray(_SCALES)[np.arange(count) % len(_SCALES)]
        return Climbers(normal * scales[:, None], scales)

    def log_prob(self, points):
        """By their scales: those drawn on a large one stand for more of the volume."""
        scales = np.asarray(_SCALES)
        squares = np.sum(np.square(points, dtype=np.float64), axis=1)
        each = -0.5 * squares[:, None] / scales**2 - self._size * np.log(scales)
        return np.logaddexp.reduce(each, axis=1)

    def __str__(self):
        """The scales."""
        return (
            f"around the origin on scales from {_SCALES[0]:g} to {_SCALES[-1]:g} and "
            "around what was found there"
        )


_NEAREST, _FAR, _FURTHEST = 0.4, 2.5, 30.0
"""So many times as far out as what was found reaches: mostly up to the second."""

_SHARE_NEAR = 0.75
"""Of the points, up to there. Narrow modes lie among the others as a rule, and are in
nobody's way further out."""


class Around(Places):
    """Normal points around what was found.

    Args:
        centres: Where it is, a centre in each row.
        factors: What points are drawn around each with: factors of covariances.
    """

    def __init__(self, centres: np.ndarray, factors: np.ndarray):
        self._centres, self._factors = centres, factors

    @classmethod
    def one(cls, centre: np.ndarray, scale: np.ndarray) -> "Around":
        """Around one centre, with a scale for each coordinate."""
        return cls(centre[None], np.diag(scale)[None])

    @property
    def _reach(self) -> np.ndarray:
        """Typical scale of each."""
        return np.median(np.linalg.norm(self._factors, axis=2), axis=1)

    def at(self, points: np.ndarray) -> Climbers:
        """Given points, to climb from with small steps."""
        return Climbers(points, np.full(len(points), float(np.median(self._reach))))

    def draw(self, key, count):
        """So many points, near and further out, as many around each centre."""
        rng = generator(key)
        normal = rng.normal(size=(count, self._centres.shape[1]))
        near = int(_SHARE_NEAR * count)
        further = np.concatenate(
            [
                np.geomspace(_NEAREST, _FAR, near),
                np.geomspace(_FAR, _FURTHEST, count - near),
            ]
        )
        rng.shuffle(further)
        which, points = np.arange(count) % len(self._centres), np.empty_like(normal)
        for index, factor in enumerate(self._factors):
            here = which == index
            away = further[here, None] * normal[here] @ factor.T
            points[here] = self._centres[index] + away
        return Climbers(points, further * self._reach[which])

    def __str__(self):
        """What it is around."""
        return "around what was found"
