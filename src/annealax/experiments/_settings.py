"""Settings of an experiment: all its numbers, and what is built from them.

A problem is a subclass that gives `target` (and the defaults that suit it). A field
has a type, a default and a meaning; `annealax show` prints them and `--set` changes
them.
"""

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from flowjax.distributions import Normal
from jaxtyping import Array, PRNGKeyArray

from annealax import flows, kernels
from annealax._errors import InvalidInputError
from annealax._objectives import Estimator
from annealax._path import GeometricPath
from annealax._resampling import AbstractResampler, ESSResampling
from annealax._sampler import Sampler
from annealax.experiments._fields import Doc, check_value, fields_of
from annealax.targets import AbstractTarget
from annealax.targets._posterior import AbstractPosterior
from annealax.trainers import CRAFT, AbstractTrainer

_MANY = 10**7

Scheme = Literal["systematic", "stratified", "residual", "multinomial"]
Schedule = Literal["constant", "drop", "cosine", "exponential"]
FlowFamily = Literal[
    "diagonal_affine",
    "affine_autoregressive",
    "spline_autoregressive",
    "affine_coupling",
    "spline_coupling",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(ABC):
    """What every experiment has: particles, ladder, kernel, training, repeats."""

    num_particles: Annotated[
        int, Doc("particles in every pass", at_least=1, at_most=_MANY)
    ] = 2000
    num_transitions: Annotated[
        int, Doc("temperatures after the first", at_least=1, at_most=_MANY)
    ] = 10
    ladder_power: Annotated[
        float, Doc("temperatures are beta = t**power, t even in [0, 1]", above=0)
    ] = 1.0
    ladder: Annotated[
        tuple[float, ...],
        Doc(
            "temperatures themselves, rising from 0 to 1, instead of ladder_power; "
            "interpolated where their number is not that of the transitions",
            at_least=0,
            at_most=1,
        ),
    ] = ()
    initial_scale: Annotated[
        float, Doc("standard deviation of the normal that passes start from", above=0)
    ] = 1.0
    pilot_transitions: Annotated[
        int,
        Doc(
            "start from the mean and scale that a pilot pass of SMC with so many "
            "transitions finds; 0: no pilot, from zero and initial_scale",
            at_least=0,
            at_most=_MANY,
        ),
    ] = 0

    step_size_betas: Annotated[
        tuple[float, ...],
        Doc("where HMC step sizes are given, rising", at_least=0, at_most=1),
    ] = (0.0, 1.0)
    step_sizes: Annotated[
        tuple[float, ...], Doc("HMC step sizes there; linear in between", above=0)
    ] = (0.5, 0.2)
    num_leapfrog: Annotated[
        int, Doc("leapfrog steps per trajectory", at_least=1, at_most=_MANY)
    ] = 10
    num_hmc_steps: Annotated[
        int, Doc("trajectories at each temperature", at_least=1, at_most=_MANY)
    ] = 1

    resample_threshold: Annotated[
        float, Doc("resample when ESS / N is at most this", above=0, at_most=1)
    ] = 0.3
    resample_scheme: Annotated[Scheme, Doc("how to resample")] = "systematic"

    num_train_steps: Annotated[
        int, Doc("training steps, each one pass", at_least=0, at_most=_MANY)
    ] = 200
    learning_rate: Annotated[
        float, Doc("learning rate of Adam at the start", above=0)
    ] = 1e-2
    final_learning_rate: Annotated[
        float, Doc("learning rate at the end, unless constant", above=0)
    ] = 1e-3
    learning_rate_schedule: Annotated[
        Schedule,
        Doc("from one to the other: not at all, at half time, or in two smooth ways"),
    ] = "cosine"
    clip_norm: Annotated[
        float, Doc("clip each flow's gradient to this norm; 0 for never", at_least=0)
    ] = 0.0
    gradient: Annotated[Estimator, Doc("estimator of the loss's gradient")] = "plain"

    num_repeats: Annotated[
        int, Doc("independent passes behind the spread", at_least=1, at_most=_MANY)
    ] = 10
    smc_transitions: Annotated[
        int,
        Doc(
            "temperatures of SMC at the same cost; 0: as many as take the same time",
            at_least=0,
            at_most=_MANY,
        ),
    ] = 0

    def __post_init__(self) -> None:
        """Validate."""
        for name, field in fields_of(type(self)).items():
            check_value(field, self.values()[name])
        if len(self.step_size_betas) != len(self.step_sizes):
            raise InvalidInputError(
                "step_size_betas and step_sizes must have the same length; got "
                f"{len(self.step_size_betas)} and {len(self.step_sizes)}."
            )
        rising = sorted(set(self.ladder)) == list(self.ladder)
        if self.ladder and not (
            rising and self.ladder[0] == 0 and self.ladder[-1] == 1
        ):
            raise InvalidInputError(
                f"ladder must rise from 0 to 1, or be empty; got {self.ladder}."
            )
        if not self.step_sizes or sorted(set(self.step_size_betas)) != list(
            self.step_size_betas
        ):
            raise InvalidInputError(
                "step_size_betas must hold at least one number and rise; got "
                f"{self.step_size_betas}."
            )

    @abstractmethod
    def target(self) -> AbstractTarget:
        """The density to sample."""

    @abstractmethod
    def flow(self, key: PRNGKeyArray) -> AbstractBijection:
        """Where the flow of every transition starts."""

    def pictures(self, run: Any) -> Mapping[str, Callable[[], Any]]:
        """Pictures that only this problem has: file name to what makes the figure.

        They join the generic ones, and replace one of the same name.

        Args:
            run: A run with these settings, as `annealax.load_run` gives it.
        """
        del run
        return {}

    def values(self) -> Mapping[str, Any]:
        """All settings by name."""
        return dict(vars(self))

    def sampler(
        self,
        *,
        num_transitions: int | None = None,
        resampler: AbstractResampler | None = None,
    ) -> Sampler:
        """The sampler.

        Args:
            num_transitions: None for that of the settings.
            resampler: None for that of the settings.
        """
        count = self.num_transitions if num_transitions is None else num_transitions
        return Sampler(
            GeometricPath(self.initial(), self.target(), self.betas(count)),
            self.kernel(),
            resampler or ESSResampling(self.resample_threshold, self.resample_scheme),
            num_particles=self.num_particles,
        )

    def initial(self) -> Normal:
        """Where passes start."""
        # Settings that the pilot does not see must not make it run again.
        same = dataclasses.replace(
            self, num_transitions=1, num_train_steps=0, num_repeats=1
        )
        return _initial(same)

    def betas(self, num_transitions: int) -> Array:
        """Inverse temperatures of a ladder with so many transitions."""
        t = jnp.linspace(0, 1, num_transitions + 1)
        if not self.ladder:
            return t**self.ladder_power
        given = jnp.asarray(self.ladder)
        return jnp.interp(t, jnp.linspace(0, 1, len(given)), given)

    def kernel(self) -> kernels.HMC:
        """Hamiltonian Monte Carlo with the step sizes of the settings."""
        return kernels.HMC(
            kernels.InterpolatedStepSize(self.step_size_betas, self.step_sizes),
            self.num_leapfrog,
            self.num_hmc_steps,
        )

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

    def trainer(self) -> AbstractTrainer:
        """CRAFT on this sampler."""
        return CRAFT(self.sampler(), self.optimizer(), self.gradient)


@functools.lru_cache(maxsize=16)
def _initial(settings: Settings) -> Normal:
    """Where passes start: a normal, placed by a pilot pass if there is one.

    A start with the mean of the target keeps the shares of the modes nearly level
    along the ladder, so that they need not be corrected by weights after the barriers
    have risen. The pilot has its own fixed key: it is part of the settings.
    """
    target = settings.target()
    wide = Normal(jnp.zeros(target.shape), settings.initial_scale)
    if settings.pilot_transitions == 0:
        return wide
    pilot = Sampler(
        GeometricPath(wide, target, settings.pilot_transitions),
        settings.kernel(),
        ESSResampling(0.5),
        num_particles=5 * settings.num_particles,
    ).run(jr.key(77))
    return Normal(pilot.mean(), pilot.std())


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSettings(Settings):
    """Settings of a problem without structure, for any family of flows."""

    flow_family: Annotated[FlowFamily, Doc("family of the flows")] = (
        "affine_autoregressive"
    )
    flow_hidden: Annotated[
        tuple[int, ...],
        Doc("widths of the hidden layers of its networks", at_least=1, at_most=_MANY),
    ] = (32, 32)
    flow_layers: Annotated[
        int, Doc("number of layers (coupling)", at_least=1, at_most=_MANY)
    ] = 4
    flow_bins: Annotated[int, Doc("bins (splines)", at_least=2, at_most=999)] = 8
    flow_bound: Annotated[float, Doc("splines act on [-bound, bound]", above=0)] = 5.0

    def flow(self, key: PRNGKeyArray) -> AbstractBijection:
        """A flow of the chosen family."""
        shape, hidden = self.target().shape, self.flow_hidden
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class PosteriorSettings(VectorSettings):
    """Settings of a posterior with named parameters."""

    @abstractmethod
    def target(self) -> AbstractPosterior:
        """The posterior."""
