"""Ten heavy-tailed modes."""

from pydantic import Field

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class StudentT(VectorExperiment):
    """10 Student-t modes with two degrees of freedom in [-10, 10]^2.

    The variance is infinite: the tails are longer than any normal's.
    """

    dim: int = Field(2, ge=1, le=10_000, description="dimension")
    target_seed: int = Field(0, ge=0, le=2**31, description="seed of the means")
    initial_scale = 8.0
    num_transitions = 12
    ladder_power = 1.5
    step_size_betas = (0.0, 0.2, 1.0)
    step_sizes = (2.0, 0.8, 0.5)
    flow_family = "spline_autoregressive"
    flow_bound = 25.0

    def target(self) -> targets.StudentTMixture:
        """The mixture; its log Z is 0."""
        return targets.StudentTMixture.ten_modes(self.dim, self.target_seed)
