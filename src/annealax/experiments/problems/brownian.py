"""A Brownian motion of unknown scales with a gap in its observations."""

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class Brownian(VectorExperiment):
    """Brownian motion with missing observations, 32 dimensions.

    Plain SMC on this ladder: log Z 1.167 with a spread of 0.023 over six passes (exact:
    1.188). The start that the pilot places decides: from a standard normal it was off
    by 1 with 120 transitions.
    """

    num_transitions = 64
    ladder_power = 1.5
    pilot_transitions = 60
    step_size_betas = (0.0, 0.1, 1.0)
    step_sizes = (0.06, 0.03, 0.02)
    num_hmc_steps = 4
    num_train_steps = 60

    def target(self) -> targets.BrownianMotion:
        """The posterior; log Z by quadrature."""
        return targets.BrownianMotion()
