"""The Cox process of the pine saplings (Sections 4.1, 4.2; Appendices F, I)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray
from matplotlib.figure import Figure

from annealax import flows, targets
from annealax.experiments._fields import Doc
from annealax.experiments._settings import Schedule, Settings
from annealax.experiments.problem_pictures import draw_intensity


@dataclasses.dataclass(frozen=True, kw_only=True)
class LGCP(Settings):
    """Log Gaussian Cox process of 126 pine saplings, 32 x 32 cells: 1024 dimensions.

    The paper's settings: 10 transitions, a diagonal affine flow, one HMC step of 10
    leapfrogs, 2000 particles; 200 training steps at 0.05, from half time at 0.01.

    Published log Z for this file of points: 503.39 on 32 x 32 cells, 501.81 on 40 x 40.
    With num_train_steps=300, learning_rate=0.1 and learning_rate_schedule=cosine ten
    passes of the trained flows gave 503.29 on 32 x 32 cells (log of the mean of Z; mean
    of log Z 502.77, spread 1.07), plain SMC with 10 transitions 51.8 (spread 6.9) and
    with 30 transitions 327.6 (7.4).
    """

    grid: Annotated[int, Doc("cells along each side", at_least=2, at_most=200)] = 32
    whitened: Annotated[bool, Doc("sample the whitened field")] = False
    step_size_betas: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0)
    step_sizes: tuple[float, ...] = (0.3, 0.3, 0.2, 0.2)
    learning_rate: float = 5e-2
    final_learning_rate: float = 1e-2
    learning_rate_schedule: Schedule = "drop"

    def target(self) -> targets.LogGaussianCoxPines:
        """The posterior of the log intensity."""
        return targets.LogGaussianCoxPines(self.grid, whitened=self.whitened)

    def flow(self, key: PRNGKeyArray) -> AbstractBijection:
        """A diagonal affine flow."""
        return flows.diagonal_affine(key, self.target().shape)

    def pictures(self, outcome: Any) -> Mapping[str, Callable[[], Figure]]:
        """The intensity with the trees on it."""
        target = self.target()
        return {
            "intensity.png": lambda: draw_intensity(
                outcome, target, target.points(), target.window, "m"
            )
        }
