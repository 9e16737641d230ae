"""A correlated, shifted and badly scaled Gaussian with a given log Z."""

import dataclasses
from typing import Annotated

import jax.random as jr

from annealax import targets
from annealax.experiments._fields import Doc
from annealax.experiments._settings import VectorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gaussian(VectorSettings):
    """A correlated and shifted Gaussian in 10 dimensions.

    An affine autoregressive flow can be the exact transport between two temperatures.
    """

    dim: Annotated[int, Doc("dimension", at_least=2, at_most=10_000)] = 10
    condition_number: Annotated[
        float, Doc("ratio of the largest to the smallest variance", at_least=1)
    ] = 100.0
    log_normalizer: Annotated[float, Doc("exact log Z")] = 1.0
    target_seed: Annotated[
        int, Doc("seed of the rotation and the mean", at_least=0, at_most=2**31)
    ] = 0

    def target(self) -> targets.Normal:
        """The Gaussian."""
        return targets.Normal.ill_conditioned(
            jr.key(self.target_seed),
            self.dim,
            self.condition_number,
            log_normalizer=self.log_normalizer,
        )
