"""Germination of seeds: a logistic regression with random effects."""

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class Seeds(VectorExperiment):
    """Seeds on 21 plates, 26 dimensions: regression with random effects.

    Plain SMC on this ladder: log Z -73.410 with a spread of 0.015 over six passes
    (exact: -73.406). With 16 transitions and steps twice as long it was off by 1.
    """

    num_transitions = 64
    ladder_power = 2.0
    pilot_transitions = 60
    step_size_betas = (0.0, 0.3, 1.0)
    step_sizes = (0.15, 0.1, 0.07)
    num_hmc_steps = 2
    num_train_steps = 60

    def target(self) -> targets.Seeds:
        """The posterior; log Z by quadrature."""
        return targets.Seeds()
