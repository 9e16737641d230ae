"""The two-dimensional mixture of the paper that introduced AFT."""

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class ChallengingMixture(VectorExperiment):
    """Six thin modes in the plane, of Arbel, Matthews and Doucet (2021)."""

    num_transitions = 8
    step_size_betas = (0.0, 0.5, 1.0)
    step_sizes = (0.5, 0.2, 0.15)
    num_hmc_steps = 2
    num_train_steps = 300
    flow_family = "spline_autoregressive"
    flow_bound = 6.0

    def target(self) -> targets.ChallengingMixture:
        """The mixture; its log Z is 0."""
        return targets.ChallengingMixture()
