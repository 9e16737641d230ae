"""Where a density is positive, if it is zero nearly everywhere.

Beyond the edges of a few boxes, say, no slope leads to them: only points that fall
inside say where they are. Each stands for more of the volume or the prior's mass, the
more seldom points are drawn near it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from annealax._keys import generator, named_key
from annealax.auto.modes import NUM_SCREENED, Ascents
from annealax.auto.places import Places
from annealax.auto.starts.base import Candidate
from annealax.auto.starts.clusters import fit_gaussians
from annealax.auto.starts.gaussian import Linear, from_moments, normal_start, root_of
from annealax.auto.starts.mixture import Peaks

_RARE, _BATCHES = 0.02, 64
"""A density is rarely positive if it is so at a smaller share of points than the first;
then so many batches of points are looked at."""

_ENOUGH, _MORE_BATCHES = 200, 1024
"""And as many as the second, if the density is worth it, as long as there are fewer
points inside than the first."""

_PART = 0.1
"""What matters is a part with this share of the whole."""


class RarelyPositive(NamedTuple):
    """Points at which a density is positive that is zero at nearly all others.

    Attributes:
        points: Where they are.
        weights: How much of the whole each stands for; they add up to one.
    """

    points: Float[np.ndarray, "points size"]
    weights: Float[np.ndarray, " points"]

    @property
    def effective(self) -> float:
        """How many points of equal weights would say as much."""
        if len(self.points) == 0:
            return 0.0
        return float(1 / np.sum(self.weights**2))

    @property
    def chance_of_a_miss(self) -> float:
        """Probability that no point fell into a part that matters."""
        return (1 - _PART) ** self.effective

    def spots(self, key: PRNGKeyArray) -> Peaks:
        """Gaussians where they gather; none of too few.

        Points alone say how many places there are: what each stands for is known
        roughly, and would let few of them rule.
        """
        count, size = self.points.shape
        fit = None
        if count > 2 * size:
            even = np.full(count, 1 / count)
            fit = fit_gaussians(generator(key), self.points, even)
        if fit is None:
            return Peaks((), ())
        fits = [
            Linear(mean, root_of(covariance))
            for mean, covariance in zip(fit.means, fit.covariances, strict=True)
        ]
        return Peaks(tuple(fits), tuple(map(float, np.log(fit.shares))))

    def candidate(self) -> Candidate | None:
        """A normal around them; None of too few."""
        count, size = self.points.shape
        if count <= size:
            return None
        linear, kind = from_moments(Linear.identity(size), self.points, self.weights)
        name = f"normal where the density is positive ({kind})"
        return Candidate(name, normal_start(linear))


def where_positive(
    key: PRNGKeyArray, ascents: Ascents, places: Places
) -> RarelyPositive | None:
    """Look for such points; None of a density that is positive at many."""
    found: list[np.ndarray] = []
    count = 0
    most = int(np.clip(ascents.effort / NUM_SCREENED, _BATCHES, _MORE_BATCHES))
    for index in range(most):
        if index >= _BATCHES and count >= _ENOUGH:
            break
        points = places.draw(named_key(key, index), NUM_SCREENED).points
        inside = np.isfinite(ascents.evaluate(points))
        if index == 0 and inside.mean() > _RARE:
            return None
        found.append(points[inside])
        count += int(inside.sum())
    points = np.concatenate(found)
    volumes = -places.log_prob(points)
    weights = np.exp(volumes - volumes.max(initial=-np.inf))
    return RarelyPositive(points, weights / max(weights.sum(), 1e-300))
