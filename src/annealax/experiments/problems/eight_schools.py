"""Eight schools: effects of coaching on test scores."""

import dataclasses
from typing import Annotated

from annealax import targets
from annealax.experiments._fields import Doc
from annealax.experiments._settings import PosteriorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class EightSchools(PosteriorSettings):
    """Eight schools, 10 dimensions."""

    centered: Annotated[bool, Doc("the centred form, which is harder")] = False
    num_transitions: int = 8
    initial_scale: float = 2.0
    step_size_betas: tuple[float, ...] = (0.0, 0.3, 1.0)
    step_sizes: tuple[float, ...] = (0.6, 0.4, 0.4)

    def target(self) -> targets.EightSchools:
        """The posterior; log Z by quadrature."""
        return targets.EightSchools(self.centered)
