"""A frozen sampler: placement, temperatures, step sizes, and how passes improve it.

A pass shows how hard each transition was and how often its proposals were accepted.
Temperatures are then spaced so that all transitions are equally hard, and step sizes
moved towards the acceptance wanted; both for the *next* pass, so that every pass by
itself is an ordinary SMC sampler with an unbiased estimate of Z.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from annealax._ladder import even_betas, lengths, rising
from annealax._resampling import ESSResampling
from annealax._sampler import Sampler
from annealax.auto._pilot import LONGEST, TARGET_ACCEPTANCE, Pilot
from annealax.auto._placement import Coordinates, placed_path
from annealax.kernels import HMC, PerTemperature

WORK_PER_TRANSITION = 0.03
"""Nats that a transition may lose: half the variance of its incremental weights."""

_MIN_TRANSITIONS, _MAX_TRANSITIONS = 20, 400
_QUARTER_PERIOD = 0.5 * np.pi


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that defines the sampler but the flows.

    Attributes:
        placement: Coordinates it works in.
        betas: Temperatures.
        step_sizes: Step size of HMC at the end of each transition.
        scales: Scale of each coordinate there.
        num_leapfrog: Leapfrog steps of a trajectory.
        num_particles: Number of particles.
    """

    placement: Coordinates
    betas: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    num_leapfrog: int
    num_particles: int

    @property
    def num_transitions(self) -> int:
        """Number of transitions."""
        return len(self.betas) - 1

    def sampler(self, log_density: Callable[[Array], Array]) -> Sampler:
        """The sampler."""
        return Sampler(
            placed_path(log_density, self.placement, self.betas),
            HMC(
                jnp.asarray(self.step_sizes, jnp.result_type(float)),
                self.num_leapfrog,
                scale=PerTemperature(jnp.asarray(self.scales, jnp.result_type(float))),
            ),
            ESSResampling(0.5),
            num_particles=self.num_particles,
        )

    def respaced(self, work: np.ndarray, num_transitions: int) -> "Plan":
        """Transitions of equal work; what belongs to a temperature is interpolated.

        Args:
            work: Nats lost at each transition.
            num_transitions: How many there shall be.
        """
        betas = even_betas(self.betas, work, num_transitions)
        at, ends = betas[1:], self.betas[1:]
        log_steps = np.interp(at, ends, np.log(self.step_sizes))
        log_scales = np.log(self.scales)
        scales = np.stack(
            [np.interp(at, ends, column) for column in log_scales.T], axis=1
        )
        return dataclasses.replace(
            self, betas=betas, step_sizes=np.exp(log_steps), scales=np.exp(scales)
        )

    def adjusted(self, acceptance: np.ndarray, gain: float = 1.5) -> "Plan":
        """Step sizes moved towards the acceptance wanted."""
        move = gain * (np.asarray(acceptance, np.float64) - TARGET_ACCEPTANCE)
        return dataclasses.replace(
            self, step_sizes=self.step_sizes * np.exp(move)
        ).capped()

    def capped(self) -> "Plan":
        """No trajectory much longer than a quarter of a period.

        In units of the particles' scale a trajectory of length pi takes a normal
        coordinate to its negative, and one of 2 pi back to where it was.
        """
        longest = LONGEST / self.num_leapfrog
        return dataclasses.replace(
            self, step_sizes=np.minimum(self.step_sizes, longest)
        )


def first_plan(pilot: Pilot, placement: Coordinates, num_particles: int) -> Plan:
    """The plan that a pilot suggests."""
    plan = Plan(
        placement=placement,
        betas=rising(np.asarray(pilot.betas, np.float64)),
        step_sizes=np.asarray(pilot.step_sizes, np.float64),
        scales=np.asarray(pilot.scales, np.float64),
        num_leapfrog=_num_leapfrog(pilot.step_sizes, placement.size),
        num_particles=num_particles,
    )
    work = 0.5 * np.asarray(pilot.work_variance)
    return plan.respaced(work, transitions_for(work)).capped()


def transitions_for(work: np.ndarray) -> int:
    """How many transitions make each lose as much as it may."""
    count = lengths(work).sum() / np.sqrt(WORK_PER_TRANSITION)
    return round_up(float(np.clip(count, _MIN_TRANSITIONS, _MAX_TRANSITIONS)))


def round_up(count: float | int) -> int:
    """To one of few numbers, so that seeds share compiled programs."""
    step = 2 ** max(0, int(np.floor(np.log2(count))) - 2)
    return int(np.ceil(count / step) * step)


def _num_leapfrog(step_sizes: np.ndarray, size: int) -> int:
    """A quarter of a period, within what the dimension makes sensible."""
    local = int(np.ceil(1.3 * size**0.25))
    wanted = _QUARTER_PERIOD / np.median(step_sizes)
    return round_up(float(np.clip(np.round(wanted), local, 3 * local)))
