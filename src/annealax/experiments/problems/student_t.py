"""Ten heavy-tailed modes."""

import dataclasses
from typing import Annotated

from annealax import targets
from annealax.experiments._fields import Doc
from annealax.experiments._settings import FlowFamily, VectorSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentT(VectorSettings):
    """10 Student-t modes with two degrees of freedom in [-10, 10]^2.

    The variance is infinite: the tails are longer than any normal's.
    """

    dim: Annotated[int, Doc("dimension", at_least=1, at_most=10_000)] = 2
    target_seed: Annotated[int, Doc("seed of the means", at_least=0, at_most=2**31)] = 0
    initial_scale: float = 8.0
    num_transitions: int = 12
    ladder_power: float = 1.5
    step_size_betas: tuple[float, ...] = (0.0, 0.2, 1.0)
    step_sizes: tuple[float, ...] = (2.0, 0.8, 0.5)
    flow_family: FlowFamily = "spline_autoregressive"
    flow_bound: float = 25.0

    def target(self) -> targets.StudentTMixture:
        """The mixture; its log Z is 0."""
        return targets.StudentTMixture.ten_modes(self.dim, self.target_seed)
