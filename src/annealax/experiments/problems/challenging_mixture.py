"""The two-dimensional mixture of the paper that introduced AFT."""

import dataclasses

from annealax import targets
from annealax.experiments._settings import FlowFamily, VectorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChallengingMixture(VectorSettings):
    """Six thin modes in the plane, of Arbel, Matthews and Doucet (2021)."""

    num_transitions: int = 8
    step_size_betas: tuple[float, ...] = (0.0, 0.5, 1.0)
    step_sizes: tuple[float, ...] = (0.5, 0.2, 0.15)
    num_hmc_steps: int = 2
    num_train_steps: int = 300
    flow_family: FlowFamily = "spline_autoregressive"
    flow_bound: float = 6.0

    def target(self) -> targets.ChallengingMixture:
        """The mixture; its log Z is 0."""
        return targets.ChallengingMixture()
