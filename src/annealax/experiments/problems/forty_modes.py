"""Forty Gaussians scattered over a large square."""

from pydantic import Field

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class FortyModes(VectorExperiment):
    """40 unit Gaussians scattered over [-40, 40]^2.

    Passes start from a normal as wide as the square: from a standard normal most modes
    would never be seen.
    """

    dim: int = Field(2, ge=1, le=10_000, description="dimension")
    target_seed: int = Field(0, ge=0, le=2**31, description="seed of the means")
    initial_scale = 25.0
    num_transitions = 16
    ladder_power = 2.0
    step_size_betas = (0.0, 0.1, 1.0)
    step_sizes = (3.0, 1.0, 0.4)
    flow_family = "spline_autoregressive"
    flow_bins = 16
    flow_bound = 60.0

    def target(self) -> targets.GaussianMixture:
        """The mixture; its log Z is 0."""
        return targets.GaussianMixture.forty_modes(self.dim, self.target_seed)
