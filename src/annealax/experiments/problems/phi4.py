"""Lattice phi^4 theory (Section 4.3 and Appendix I)."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from flowjax.bijections import AbstractBijection, Chain
from jaxtyping import PRNGKeyArray
from pydantic import Field, model_validator

from annealax import flows, targets
from annealax._errors import InvalidInputError
from annealax.experiments.experiment import Experiment


class Phi4(Experiment):
    """phi^4 theory on a 14 x 14 lattice, with the settings of the paper.

    Ten evenly spaced transitions from a standard normal, ten HMC steps of ten
    leapfrogs at each, two checkerboard coupling layers. After 300 steps log Z spreads
    by 0.29 and the susceptibility by 0.59 from pass to pass. `phi4-tuned` does better.
    """

    lattice: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(
        (14, 14), description="sides of the lattice"
    )
    mass_squared: float = Field(-4.75, description="coefficient of phi^2")
    coupling: float = Field(5.1, ge=0, description="coefficient of phi^4")
    step_size_betas = (0.0, 0.3, 1.0)
    step_sizes = (0.3, 0.15, 0.1)
    num_hmc_steps = 10
    num_train_steps = 500
    learning_rate = 3e-3
    final_learning_rate = 3e-4
    flow_sites: bool = Field(False, description="first bend every site by one odd map")
    flow_modes: bool = Field(
        False, description="then scale plane waves and move the magnetisation"
    )
    flow_layers: int = Field(
        2, ge=0, le=1000, description="then so many coupling layers"
    )
    flow_channels: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = Field(
        (10,), description="channels of the hidden layers"
    )
    flow_kernel: int = Field(
        3, ge=3, le=999, description="side of the convolutions, odd"
    )
    flow_transformer: Literal["affine", "spline"] = Field(
        "affine", description="what a layer does to a site"
    )
    flow_odd: bool = Field(False, description="flows keep the symmetry phi -> -phi")

    @model_validator(mode="after")
    def _is_a_lattice(self):
        if len(self.lattice) != 2:
            raise InvalidInputError(
                f"lattice must be two sides, such as 8,8; got {self.lattice}."
            )
        return self

    def target(self) -> targets.Phi4:
        """The theory; its log Z is not known."""
        return targets.Phi4(self.lattice, self.mass_squared, self.coupling)

    def flow(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> AbstractBijection:
        """The parts that the settings ask for, in turn."""
        sides = (shape[0], shape[1])
        parts: list[AbstractBijection] = []
        if self.flow_sites:
            parts.append(flows.lattice_sites(key, sides))
        if self.flow_modes:
            parts.append(flows.lattice_modes(key, sides))
        if self.flow_layers:
            coupling = flows.lattice_coupling(
                key,
                sides,
                num_layers=self.flow_layers,
                channels=self.flow_channels,
                kernel_size=self.flow_kernel,
                transformer=self.flow_transformer,
                odd=self.flow_odd,
            )
            parts.append(coupling)
        if not parts:
            raise InvalidInputError(
                "a flow needs at least one of flow_sites, flow_modes and flow_layers."
            )
        return parts[0] if len(parts) == 1 else Chain(parts)

    def pictures(self, run: Any) -> Mapping[str, Callable[[], Any]]:
        """Fields along the ladder and the two signs of the magnetisation."""
        from annealax.report import problem_charts  # noqa: PLC0415

        return problem_charts.lattice(run)


class Phi4Small(Phi4):
    """phi^4 theory on an 8 x 8 lattice in its symmetric phase: a minute or two.

    Mass squared -4 and coupling 8 are those of a published value by HMC: two-point
    susceptibility 0.75 +- 0.01.
    """

    lattice = (8, 8)
    mass_squared = -4.0
    coupling = 8.0
    num_particles = 1000
    ladder_power = 1.5
    num_hmc_steps = 2
    num_train_steps = 200
    learning_rate = 5e-3


class Phi4Tuned(Phi4):
    """phi^4 theory on a 14 x 14 lattice, with the best settings found.

    A narrower start, a ladder on which every transition is about equally hard (found
    from the KL divergence of each transition after a first training), and flows that
    move plane waves and the magnetisation as well as sites. log Z spreads by 0.12 and
    the susceptibility by 0.34, near that of 2000 independent fields (0.30).
    """

    initial_scale = 0.6
    ladder = (
        *(0.0, 0.148, 0.385, 0.559, 0.683, 0.777),
        *(0.847, 0.895, 0.934, 0.967, 1.0),
    )
    step_sizes = (0.18, 0.15, 0.1)
    num_train_steps = 200
    learning_rate = 1e-2
    final_learning_rate = 5e-4
    flow_sites = True
    flow_modes = True
