"""A Brownian motion of unknown scales with a gap in its observations."""

import dataclasses

from annealax import targets
from annealax.experiments._settings import PosteriorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Brownian(PosteriorSettings):
    """Brownian motion with missing observations, 32 dimensions."""

    num_transitions: int = 24
    ladder_power: float = 1.5
    pilot_transitions: int = 60
    step_size_betas: tuple[float, ...] = (0.0, 0.3, 1.0)
    step_sizes: tuple[float, ...] = (0.06, 0.05, 0.04)
    num_train_steps: int = 200

    def target(self) -> targets.BrownianMotion:
        """The posterior; log Z by quadrature."""
        return targets.BrownianMotion()
