"""A correlated, shifted and badly scaled Gaussian with a given log Z."""

import jax.random as jr
from pydantic import Field

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class Gaussian(VectorExperiment):
    """A correlated and shifted Gaussian in 10 dimensions.

    An affine autoregressive flow can be the exact transport between two temperatures.
    """

    dim: int = Field(10, ge=2, le=10_000, description="dimension")
    condition_number: float = Field(
        100.0, ge=1, description="ratio of the largest to the smallest variance"
    )
    log_normalizer: float = Field(1.0, description="exact log Z")
    target_seed: int = Field(
        0, ge=0, le=2**31, description="seed of the rotation and the mean"
    )

    def target(self) -> targets.Normal:
        """The Gaussian."""
        return targets.Normal.ill_conditioned(
            jr.key(self.target_seed),
            self.dim,
            self.condition_number,
            log_normalizer=self.log_normalizer,
        )
