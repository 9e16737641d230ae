"""Two unequal modes in the plane: the default of `annealax run`."""

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class Bimodal(VectorExperiment):
    """Two narrow, tilted modes of weights 0.7 and 0.3 in the plane.

    Five transitions and a small spline flow. Over six seeds, training included, log Z
    spread by 0.040 to 0.055 over 20 passes, with means from -0.006 to 0.013 (exact: 0);
    plain SMC spread by 0.17 with 5 transitions and 0.15 with 10 (30 passes each).
    Since HMC became faster, seed 0 gives 0.063, and SMC of equal time (11 to 13
    transitions) 0.10 to 0.13.
    Modes that are further apart, or fewer transitions on an even ladder, can make CRAFT
    lose the smaller mode without a warning from the weights.
    """

    num_particles = 1000
    num_transitions = 5
    ladder_power = 2.0
    step_size_betas = (0.0, 0.25, 1.0)
    step_sizes = (0.4, 0.2, 0.1)
    num_train_steps = 200
    learning_rate = 2e-2
    num_repeats = 20
    flow_family = "spline_autoregressive"
    flow_hidden = (16, 16)
    flow_bins = 8
    flow_bound = 6.0

    def target(self) -> targets.GaussianMixture:
        """The mixture; its log Z is 0."""
        return targets.GaussianMixture(
            [[-2.6, 1.3], [2.6, -1.3]],
            [[[0.06, 0.04], [0.04, 0.05]], [[0.04, -0.02], [-0.02, 0.06]]],
            [0.7, 0.3],
        )
