r"""$p(x) = \tfrac12 (q(x_1, x_2) + q(x_2, x_1))$ with $q$ a mixture of three normals.

The components of $q$ have equal weights, means (3, 0), (-2.5, 0), (2, 3), and
covariances diag(0.7, 0.05) twice and [[1, 0.95], [0.95, 1]].
"""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from annealax.targets.base import AbstractTarget
from annealax.targets.gaussian_mixture import GaussianMixture


class ChallengingMixture(AbstractTarget):
    """The two-dimensional mixture of Arbel, Matthews and Doucet (2021), section 6.1.

    Six narrow normals, symmetric under exchange of the coordinates, some of them far
    out in a standard normal; normalised, so log Z = 0. Reference: "Annealed flow
    transport Monte Carlo", and the code published with it, for the numbers.
    """

    mixture: GaussianMixture
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self):
        means = np.array([[3.0, 0.0], [-2.5, 0.0], [2.0, 3.0]])
        thin = [[0.7, 0.0], [0.0, 0.05]]
        covariances = np.array([thin, thin, [[1.0, 0.95], [0.95, 1.0]]])
        self.mixture = GaussianMixture(
            np.concatenate([means, means[:, ::-1]]),
            np.concatenate([covariances, covariances[:, ::-1, ::-1]]),
        )
        self.shape = self.mixture.shape
        self.log_normalizer = self.mixture.log_normalizer

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point."""
        return self.mixture(x)

    def mode_of(self, x: Float[Array, " dim"]) -> Int[Array, ""]:
        """Index, 0 to 5, of the component most responsible for one point."""
        return self.mixture.mode_of(x)

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws."""
        return self.mixture.sample(key, num_samples)
