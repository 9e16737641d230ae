"""Forty Gaussians scattered over a large square."""

import dataclasses
from typing import Annotated

from annealax import targets
from annealax.experiments._fields import Doc
from annealax.experiments._settings import FlowFamily, VectorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class FortyModes(VectorSettings):
    """40 unit Gaussians scattered over [-40, 40]^2.

    Passes start from a normal as wide as the square: from a standard normal most modes
    would never be seen.
    """

    dim: Annotated[int, Doc("dimension", at_least=1, at_most=10_000)] = 2
    target_seed: Annotated[int, Doc("seed of the means", at_least=0, at_most=2**31)] = 0
    initial_scale: float = 25.0
    num_transitions: int = 16
    ladder_power: float = 2.0
    step_size_betas: tuple[float, ...] = (0.0, 0.1, 1.0)
    step_sizes: tuple[float, ...] = (3.0, 1.0, 0.4)
    flow_family: FlowFamily = "spline_autoregressive"
    flow_bins: int = 16
    flow_bound: float = 60.0

    def target(self) -> targets.GaussianMixture:
        """The mixture; its log Z is 0."""
        return targets.GaussianMixture.forty_modes(self.dim, self.target_seed)
