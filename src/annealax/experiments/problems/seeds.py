"""Germination of seeds: a logistic regression with random effects."""

import dataclasses

from annealax import targets
from annealax.experiments._settings import PosteriorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seeds(PosteriorSettings):
    """Seeds on 21 plates, 26 dimensions: regression with random effects."""

    num_transitions: int = 16
    ladder_power: float = 2.0
    pilot_transitions: int = 60
    step_size_betas: tuple[float, ...] = (0.0, 0.3, 1.0)
    step_sizes: tuple[float, ...] = (0.3, 0.25, 0.2)
    num_train_steps: int = 200

    def target(self) -> targets.Seeds:
        """The posterior; log Z by quadrature."""
        return targets.Seeds()
