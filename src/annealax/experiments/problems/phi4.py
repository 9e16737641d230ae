"""Lattice phi^4 theory (Section 4.3 and Appendix I)."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from flowjax.bijections import AbstractBijection, Chain
from jaxtyping import PRNGKeyArray

from annealax import flows, targets
from annealax._errors import InvalidInputError
from annealax.experiments._fields import Doc
from annealax.experiments._settings import Settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phi4(Settings):
    """phi^4 theory on a 14 x 14 lattice, with the settings of the paper.

    Ten evenly spaced transitions from a standard normal, ten HMC steps of ten
    leapfrogs at each, two checkerboard coupling layers. After 300 steps log Z spreads
    by 0.29 and the susceptibility by 0.59 from pass to pass. `phi4-tuned` does better.
    """

    lattice: Annotated[
        tuple[int, ...], Doc("sides of the lattice", at_least=1, at_most=10_000)
    ] = (14, 14)
    mass_squared: Annotated[float, Doc("coefficient of phi^2")] = -4.75
    coupling: Annotated[float, Doc("coefficient of phi^4", at_least=0)] = 5.1
    step_size_betas: tuple[float, ...] = (0.0, 0.3, 1.0)
    step_sizes: tuple[float, ...] = (0.3, 0.15, 0.1)
    num_hmc_steps: int = 10
    num_train_steps: int = 500
    learning_rate: float = 3e-3
    final_learning_rate: float = 3e-4
    flow_sites: Annotated[bool, Doc("first bend every site by one odd map")] = False
    flow_modes: Annotated[
        bool, Doc("then scale plane waves and move the magnetisation")
    ] = False
    flow_layers: Annotated[
        int, Doc("then so many coupling layers", at_least=0, at_most=1000)
    ] = 2
    flow_channels: Annotated[
        tuple[int, ...],
        Doc("channels of the hidden layers", at_least=1, at_most=10_000),
    ] = (10,)
    flow_kernel: Annotated[
        int, Doc("side of the convolutions, odd", at_least=3, at_most=999)
    ] = 3
    flow_transformer: Annotated[
        Literal["affine", "spline"], Doc("what a layer does to a site")
    ] = "affine"
    flow_odd: Annotated[bool, Doc("flows keep the symmetry phi -> -phi")] = False

    def __post_init__(self) -> None:
        """Validate."""
        super().__post_init__()
        if len(self.lattice) != 2:
            raise InvalidInputError(
                f"lattice must be two sides, such as 8,8; got {self.lattice}."
            )

    def target(self) -> targets.Phi4:
        """The theory; its log Z is not known."""
        return targets.Phi4(self.lattice, self.mass_squared, self.coupling)

    def flow(self, key: PRNGKeyArray) -> AbstractBijection:
        """The parts that the settings ask for, in turn."""
        sides = (self.lattice[0], self.lattice[1])
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phi4Small(Phi4):
    """phi^4 theory on an 8 x 8 lattice in its symmetric phase: a minute or two.

    Mass squared -4 and coupling 8 are those of a published value by HMC: two-point
    susceptibility 0.75 +- 0.01.
    """

    lattice: tuple[int, ...] = (8, 8)
    mass_squared: float = -4.0
    coupling: float = 8.0
    num_particles: int = 1000
    ladder_power: float = 1.5
    num_hmc_steps: int = 2
    num_train_steps: int = 200
    learning_rate: float = 5e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phi4Tuned(Phi4):
    """phi^4 theory on a 14 x 14 lattice, with the best settings found.

    A narrower start, a ladder on which every transition is about equally hard (found
    from the KL divergence of each transition after a first training), and flows that
    move plane waves and the magnetisation as well as sites. log Z spreads by 0.12 and
    the susceptibility by 0.34, near that of 2000 independent fields (0.30).
    """

    initial_scale: float = 0.6
    ladder: tuple[float, ...] = (
        *(0.0, 0.148, 0.385, 0.559, 0.683, 0.777),
        *(0.847, 0.895, 0.934, 0.967, 1.0),
    )
    step_sizes: tuple[float, ...] = (0.18, 0.15, 0.1)
    num_train_steps: int = 200
    learning_rate: float = 1e-2
    final_learning_rate: float = 5e-4
    flow_sites: bool = True
    flow_modes: bool = True
