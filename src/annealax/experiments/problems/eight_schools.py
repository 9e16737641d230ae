"""Eight schools: effects of coaching on test scores."""

from pydantic import Field

from annealax import targets
from annealax.experiments.experiment import VectorExperiment


class EightSchools(VectorExperiment):
    """Eight schools, 10 dimensions."""

    centered: bool = Field(False, description="the centred form, which is harder")
    num_transitions = 8
    initial_scale = 2.0
    step_size_betas = (0.0, 0.3, 1.0)
    step_sizes = (0.6, 0.4, 0.4)

    def target(self) -> targets.EightSchools:
        """The posterior; log Z by quadrature."""
        return targets.EightSchools(self.centered)
