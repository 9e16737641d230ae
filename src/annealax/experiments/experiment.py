"""The contract of an experiment: a problem, and all numbers of how it is sampled.

An experiment is a class that gives `target` (and the defaults that suit it). It may
also bring its own start, kernel, flow, observables, pictures and methods; none of this
needs an edit in annealax: `annealax run my_experiment.py` finds the class in the file.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, PRNGKeyArray
from pydantic import Field, model_validator

from annealax import flows, kernels
from annealax._errors import InvalidInputError
from annealax._objectives import Estimator
from annealax._path import GeometricPath
from annealax._resampling import AbstractResampler, ESSResampling
from annealax._sampler import Sampler
from annealax.experiments.settings import Settings
from annealax.kernels.base import AbstractKernel
from annealax.targets import AbstractTarget

if TYPE_CHECKING:
    from annealax.experiments.methods import Method

_MANY = 10**7
_PILOT_SEED = 77  # of its own: where passes start is part of the settings

Count = Annotated[int, Field(ge=1, le=_MANY)]
CountOrZero = Annotated[int, Field(ge=0, le=_MANY)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Scheme = Literal["systematic", "stratified", "residual", "multinomial"]
Schedule = Literal["constant", "drop", "cosine", "exponential"]
FlowFamily = Literal[
    "diagonal_affine",
    "affine_autoregressive",
    "spline_autoregressive",
    "affine_coupling",
    "spline_coupling",
]


class Experiment(Settings, ABC):
    """What every experiment has: particles, ladder, kernel, training, repeats."""

    default_method: ClassVar[str] = "craft"
    """What `annealax run` uses where `--method` does not say."""

    num_particles: Count = Field(2000, description="particles in every pass")
    block_size: CountOrZero = Field(
        0,
        description="particles that are worked on at once, at most; 0: as many as fit "
        "the cache. Blocks are what devices and processes share out",
    )
    num_transitions: Count = Field(10, description="temperatures after the first")
    ladder_power: Positive = Field(
        1.0, description="temperatures are beta = t**power, t even in [0, 1]"
    )
    ladder: tuple[Share, ...] = Field(
        (),
        description="temperatures themselves, rising from 0 to 1, instead of "
        "ladder_power; interpolated where their number is not that of the transitions",
    )
    initial_scale: Positive = Field(
        1.0, description="standard deviation of the normal that passes start from"
    )
    pilot_transitions: CountOrZero = Field(
        0,
        description="start from the mean and scale that a pilot pass of SMC with so "
        "many transitions finds; 0: no pilot, from zero and initial_scale",
    )

    step_size_betas: tuple[Share, ...] = Field(
        (0.0, 1.0), description="where HMC step sizes are given, rising"
    )
    step_sizes: tuple[Positive, ...] = Field(
        (0.5, 0.2), description="HMC step sizes there; linear in between"
    )
    num_leapfrog: Count = Field(10, description="leapfrog steps per trajectory")
    num_hmc_steps: Count = Field(1, description="trajectories at each temperature")

    resample_threshold: float = Field(
        0.3, gt=0, le=1, description="resample when ESS / N is at most this"
    )
    resample_scheme: Scheme = Field("systematic", description="how to resample")

    num_train_steps: CountOrZero = Field(
        200, description="training steps, each one pass"
    )
    learning_rate: Positive = Field(
        1e-2, description="learning rate of Adam at the start"
    )
    final_learning_rate: Positive = Field(
        1e-3, description="learning rate at the end, unless constant"
    )
    learning_rate_schedule: Schedule = Field(
        "cosine",
        description="from one to the other: not at all, at half time, or in two "
        "smooth ways",
    )
    clip_norm: float = Field(
        0.0, ge=0, description="clip each flow's gradient to this norm; 0 for never"
    )
    gradient: Estimator = Field("plain", description="estimator of the loss's gradient")

    num_repeats: Count = Field(10, description="independent passes behind the spread")
    smc_transitions: CountOrZero = Field(
        0,
        description="temperatures of SMC to compare with; 0: as many times the ladder "
        "as cost what a pass with flows costs, rounded up",
    )

    @model_validator(mode="after")
    def _fits_together(self):
        if len(self.step_size_betas) != len(self.step_sizes):
            raise InvalidInputError(
                "step_size_betas and step_sizes must have the same length; got "
                f"{len(self.step_size_betas)} and {len(self.step_sizes)}."
            )
        if not self.step_sizes or not _rises(self.step_size_betas):
            raise InvalidInputError(
                "step_size_betas must hold at least one number and rise; got "
                f"{self.step_size_betas}."
            )
        ladder = self.ladder
        if ladder and not (_rises(ladder) and ladder[0] == 0 and ladder[-1] == 1):
            raise InvalidInputError(
                f"ladder must rise from 0 to 1, or be empty; got {ladder}."
            )
        return self

    @abstractmethod
    def target(self) -> AbstractTarget:
        """The density to sample."""

    @abstractmethod
    def flow(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> AbstractBijection:
        """Where the flow of every transition starts.

        Args:
            key: Random key.
            shape: Shape of a configuration.
        """

    def start(self, target: AbstractTarget) -> AbstractDistribution:
        """Where passes start, before a pilot has seen anything."""
        return Normal(jnp.zeros(target.shape), self.initial_scale)

    def betas(self, num_transitions: int) -> Array:
        """Inverse temperatures of a ladder with so many transitions."""
        t = jnp.linspace(0, 1, num_transitions + 1)
        if not self.ladder:
            return t**self.ladder_power
        given = jnp.asarray(self.ladder)
        return jnp.interp(t, jnp.linspace(0, 1, len(given)), given)

    def kernel(self) -> AbstractKernel:
        """Hamiltonian Monte Carlo with the step sizes of the settings."""
        return kernels.HMC(
            kernels.InterpolatedStepSize(self.step_size_betas, self.step_sizes),
            self.num_leapfrog,
            self.num_hmc_steps,
        )

    def resampler(self) -> AbstractResampler:
        """Resampling by effective sample size."""
        return ESSResampling(self.resample_threshold, self.resample_scheme)

    def optimizer(self) -> optax.GradientTransformation:
        """Adam with the schedule of the settings."""
        first, last = self.learning_rate, self.final_learning_rate
        count = max(self.num_train_steps, 1)
        schedules: Mapping[str, Callable[[], optax.Schedule]] = {
            "constant": lambda: optax.constant_schedule(first),
            "drop": lambda: optax.piecewise_constant_schedule(
                first, {count // 2: last / first}
            ),
            "cosine": lambda: optax.cosine_decay_schedule(first, count, last / first),
            "exponential": lambda: optax.exponential_decay(first, count, last / first),
        }
        adam = optax.adam(schedules[self.learning_rate_schedule]())
        if self.clip_norm == 0:
            return adam
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), adam)

    def observables(
        self, target: AbstractTarget
    ) -> Mapping[str, Callable[[Array], Array]]:
        """Functions of one configuration whose expectations are of interest."""
        return target.observables

    def methods(self) -> Mapping[str, "Method"]:
        """Ways to sample that only this experiment has, by name."""
        return {}

    def pictures(self, run: Any) -> Mapping[str, Callable[[], Any]]:
        """Pictures that only this experiment has: file name to what makes the figure.

        They join the generic ones, and replace one of the same name.

        Args:
            run: A finished run, as `annealax.load_run` gives it.
        """
        del run
        return {}

    def problem(self) -> "Problem":
        """What is sampled, built once; with a pilot this takes its pass."""
        target = self.target()
        start = self.start(target)
        if self.pilot_transitions:
            # A start with the mean of the target keeps the shares of the modes nearly
            # level along the ladder, so that they need not be corrected by weights
            # after the barriers have risen.
            pilot = Sampler(
                GeometricPath(start, target, self.pilot_transitions),
                self.kernel(),
                ESSResampling(0.5),
                num_particles=5 * self.num_particles,
                block_size=self.block_size or None,
            ).run(jr.key(_PILOT_SEED))
            start = Normal(pilot.mean(), pilot.std())
        return Problem(self, target, start, dict(self.observables(target)))


@dataclasses.dataclass(frozen=True)
class Problem:
    """What an experiment samples, built once and shared by all that samples it.

    Attributes:
        settings: The experiment.
        target: Its density.
        initial: Where passes start.
        observables: Functions of one configuration, by name.
    """

    settings: Experiment
    target: AbstractTarget
    initial: AbstractDistribution
    observables: Mapping[str, Callable[[Array], Array]]

    def replace(self, **changes: Any) -> "Problem":
        """The same density from the same start, with other settings."""
        return dataclasses.replace(self, settings=self.settings.replace(**changes))

    def sampler(
        self,
        *,
        num_transitions: int | None = None,
        resampler: AbstractResampler | None = None,
    ) -> Sampler:
        """The sampler of the settings.

        Args:
            num_transitions: None for that of the settings.
            resampler: None for that of the settings.
        """
        settings = self.settings
        count = settings.num_transitions if num_transitions is None else num_transitions
        return Sampler(
            GeometricPath(self.initial, self.target, settings.betas(count)),
            settings.kernel(),
            resampler or settings.resampler(),
            num_particles=settings.num_particles,
            block_size=settings.block_size or None,
        )

    def flow(self, key: PRNGKeyArray) -> AbstractBijection:
        """Where the flow of every transition starts."""
        return self.settings.flow(key, self.target.shape)


class VectorExperiment(Experiment):
    """A problem without structure, for any family of flows."""

    flow_family: FlowFamily = Field(
        "affine_autoregressive", description="family of the flows"
    )
    flow_hidden: tuple[Count, ...] = Field(
        (32, 32), description="widths of the hidden layers of its networks"
    )
    flow_layers: Count = Field(4, description="number of layers (coupling)")
    flow_bins: int = Field(8, ge=2, le=999, description="bins (splines)")
    flow_bound: Positive = Field(5.0, description="splines act on [-bound, bound]")

    def flow(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> AbstractBijection:
        """A flow of the chosen family."""
        hidden = self.flow_hidden
        spline: dict[str, Any] = {
            "num_bins": self.flow_bins,
            "bound": self.flow_bound,
        }
        layers: dict[str, Any] = {"num_layers": self.flow_layers, "hidden": hidden}
        families: Mapping[str, Callable[[], AbstractBijection]] = {
            "diagonal_affine": lambda: flows.diagonal_affine(key, shape),
            "affine_autoregressive": lambda: flows.affine_autoregressive(
                key, shape, hidden=hidden
            ),
            "spline_autoregressive": lambda: flows.spline_autoregressive(
                key, shape, hidden=hidden, **spline
            ),
            "affine_coupling": lambda: flows.coupling(key, shape, **layers),
            "spline_coupling": lambda: flows.coupling(
                key, shape, transformer="spline", **layers, **spline
            ),
        }
        return families[self.flow_family]()


def _rises(numbers: tuple[float, ...]) -> bool:
    return sorted(set(numbers)) == list(numbers)
