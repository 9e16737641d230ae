"""A frozen sampler: start, temperatures, step sizes, and how passes improve it.

A pass shows how hard each transition was and how often its proposals were accepted.
Temperatures are then spaced so that all transitions are equally hard, and step sizes
moved towards the acceptance wanted; both for the *next* pass, so that every pass by
itself is an ordinary SMC sampler with an unbiased estimate of Z.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, PRNGKeyArray

from annealax._device import to_device
from annealax._errors import SamplingError
from annealax._estimates import logsumexp
from annealax._jit import quick_jit
from annealax._keys import named_key
from annealax._ladder import even_betas, lengths, rising, work_of
from annealax._layout import mesh_for
from annealax._resampling import ESSResampling
from annealax._result import Result
from annealax._sampler import Sampler, jitted_pass, pass_arguments
from annealax._work.copies import compile_copies
from annealax._work.drive import Program, compile_ahead
from annealax.auto.adaptive_smc import LONGEST, TARGET_ACCEPTANCE, AdaptivePass
from annealax.auto.density import CountedDensity
from annealax.auto.gradient_free import TARGET_ACCEPTANCE as WALK_ACCEPTANCE
from annealax.auto.gradient_free import walk_length
from annealax.auto.starts.base import Seen, Start, Tried
from annealax.kernels import HMC, AbstractKernel, EnsembleWalk, PerTemperature

Say = Callable[[str], None]

WORK_PER_TRANSITION = 0.03
"""Nats that a transition may lose: half the variance of its incremental weights."""

_MIN_TRANSITIONS, _MAX_TRANSITIONS = 8, 400
"""Fewer leave no room for what passes did not see; more cost more than replicates."""

_DEAR_TRANSITIONS = (0.1, 3)
"""Where there is no gradient: nats that each may lose, and the fewest."""

_QUARTER_PERIOD = 0.5 * np.pi
"""Length of a trajectory that forgets where a normal coordinate began."""

_PASSES = 3
"""Passes, each of which improves ladder and step sizes for the next."""

_DEAR_PASSES = 1
"""So many where the density has no gradient, and may be dear."""

_GAIN = 1.5
"""How fast the log of a step size follows the acceptance, less at every pass."""

_NEAR = 0.1
"""Nats by which a start may find less than another and still take its place."""

_RESAMPLE_BELOW = 0.5
"""Share of the particles that the effective sample size may fall to."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """All that defines the sampler but the flows.

    Attributes:
        start: Where it starts, and the coordinates it works in.
        betas: Temperatures.
        step_sizes: Step size of HMC at the end of each transition.
        scales: Scale of each coordinate there.
        num_leapfrog: Leapfrog steps of a trajectory, or proposals of a walk.
        num_particles: Number of particles.
        members: Ensembles of walks there, where the density has no gradient; None for
            HMC.
    """

    start: Start
    betas: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    num_leapfrog: int
    num_particles: int
    members: np.ndarray | None = None

    @property
    def target_acceptance(self) -> float:
        """The acceptance that step sizes are tuned to."""
        return TARGET_ACCEPTANCE if self.members is None else WALK_ACCEPTANCE

    @property
    def num_transitions(self) -> int:
        """Number of transitions."""
        return len(self.betas) - 1

    def sampler(self, log_density: Callable[[Array], Array]) -> Sampler:
        """The sampler."""
        return Sampler(
            self.start.path(log_density, self.betas),
            self._kernel(),
            ESSResampling(_RESAMPLE_BELOW),
            num_particles=self.num_particles,
        )

    def _kernel(self) -> AbstractKernel:
        step_sizes = to_device(self.step_sizes)
        if self.members is not None:
            members = PerTemperature(to_device(self.members))
            return EnsembleWalk(members, step_sizes, self.num_leapfrog)
        scale = PerTemperature(to_device(self.scales))
        return HMC(step_sizes, self.num_leapfrog, scale=scale)

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
        members = self.members
        if members is not None:
            nearest = np.abs(ends[:, None] - at).argmin(axis=0)
            members = members[nearest]
        return dataclasses.replace(
            self,
            betas=betas,
            step_sizes=np.exp(log_steps),
            scales=np.exp(scales),
            members=members,
        )

    def adjusted(self, acceptance: np.ndarray, gain: float = _GAIN) -> "Plan":
        """Step sizes moved towards the acceptance wanted."""
        move = gain * (np.asarray(acceptance, np.float64) - self.target_acceptance)
        return dataclasses.replace(
            self, step_sizes=self.step_sizes * np.exp(move)
        ).capped()

    def capped(self) -> "Plan":
        """No trajectory much longer than a quarter of a period.

        In units of the particles' scale a trajectory of length pi takes a normal
        coordinate to its negative, and one of 2 pi back to where it was.
        """
        if self.members is not None:
            return self  # a walk has no period
        longest = LONGEST / self.num_leapfrog
        return dataclasses.replace(
            self, step_sizes=np.minimum(self.step_sizes, longest)
        )


_INFINITE = 0.01
"""Of the particles: a scale that underflows, say, where a start with heavy tails draws
far out. The answer then has a warning."""


def run_pass(
    sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection | None = None
) -> Result:
    """`sampler.run`, as a program that is compiled in less time if it is small."""
    return _checked_run(_pass, sampler, flows, key)


def compile_runs(
    sampler: Sampler, flows: AbstractBijection | None, count: int
) -> list[Program]:
    """`run_pass`, from a key alone, once for each device that makes some of so many."""
    arguments = pass_arguments(sampler, jr.key(0), flows)
    programs = compile_copies(
        lambda: compile_ahead(_pass, *arguments),
        count,
        is_shared_out=mesh_for(sampler.layout, sampler.mesh) is not None,
    )
    return [
        each._replace(run=functools.partial(_checked_run, each.run, sampler, flows))
        for each in programs
    ]


def _checked_run(
    run: Callable[..., Result],
    sampler: Sampler,
    flows: AbstractBijection | None,
    key: PRNGKeyArray,
) -> Result:
    result = run(*pass_arguments(sampler, key, flows))
    result.check(sampler.path, _INFINITE)
    return result


@quick_jit
def _pass(sampler: Sampler, key: PRNGKeyArray, flows: AbstractBijection) -> Result:
    return jitted_pass(sampler, key, flows)


class Measured(NamedTuple):
    """What one pass of the tuned sampler shows.

    Attributes:
        stderr: Standard error of its log Z.
        seconds: Its time.
        evaluations: Density evaluations that it makes.
        ess: Its effective number of draws.
    """

    stderr: float
    seconds: float
    evaluations: int
    ess: float


class Effort(NamedTuple):
    """How hard to try: more where a first attempt showed that it takes more.

    Attributes:
        longer: The ladder has so many times more transitions than it seems to need.
        try_flows: Flows are tried also where the error seems small enough.
    """

    longer: float = 1.0
    try_flows: bool = False


def tune_best(
    key: PRNGKeyArray, seen: Seen, num_particles: int, effort: Effort, say: Say
) -> tuple[Seen, Plan, Measured]:
    """Tune from the best start, or from the next best if passes from it fail.

    Draws far out, where a start has heavy tails, may be where the density overflows.

    Raises:
        SamplingError: If passes from all starts fail.
    """
    while True:
        best = seen.best
        assert best is not None
        try:
            return seen, *tune(key, seen.density, best, num_particles, effort)
        except SamplingError as error:
            say(f"{best.name}: {error}")
            seen = without_best(seen, error)


def without_best(seen: Seen, error: SamplingError) -> Seen:
    """The next best start, after passes from the best failed.

    Raises:
        SamplingError: The error, if there is no other.
    """
    others = tuple(each for each in seen.tried if each is not seen.best)
    usable = [each for each in others if each.first.usable]
    if not usable:
        raise error
    most = max(each.log_normalizer - each.stderr for each in usable)
    near = [each for each in usable if each.log_normalizer > most - _NEAR]
    easiest = min(near, key=lambda each: (each.lost > 0, each.difficulty))
    return dataclasses.replace(seen, tried=others, best=easiest)


def tune(
    key: PRNGKeyArray,
    density: CountedDensity,
    tried: Tried,
    num_particles: int,
    effort: Effort,
) -> tuple[Plan, Measured]:
    """Passes that improve temperatures and step sizes."""
    plan = first_plan(tried.start, tried.first, num_particles, effort.longer)
    seconds: list[float] = []

    def run_once(plan: Plan) -> Result:
        began = time.perf_counter()
        sampler = plan.sampler(density.log_density)
        result = run_pass(sampler, named_key(key, len(seconds)))
        jax.block_until_ready(result)
        seconds.append(time.perf_counter() - began)
        density.spend(float(np.asarray(result.steps.num_evaluations).sum()))
        return result

    result = run_once(plan)
    for index in range(1, _PASSES if density.has_gradient else _DEAR_PASSES):
        plan = plan.adjusted(np.asarray(result.steps.acceptance_rate), _GAIN / index)
        plan = plan.respaced(work_of(result), plan.num_transitions)
        result = run_once(plan)
    return plan, Measured(
        stderr=float(result.log_normalizer_stderr),
        seconds=float(np.median(seconds[1:] or seconds)),  # the first one compiles
        evaluations=int(np.asarray(result.steps.num_evaluations).sum()),
        ess=float(np.exp(-logsumexp(2 * np.asarray(result.log_weights, np.float64)))),
    )


def first_plan(
    start: Start, found: AdaptivePass, num_particles: int, longer: float = 1.0
) -> Plan:
    """The plan that an adaptive pass suggests."""
    walks = found.members is not None
    plan = Plan(
        start=start,
        betas=rising(np.asarray(found.betas, np.float64)),
        step_sizes=np.asarray(found.step_sizes, np.float64),
        scales=np.asarray(found.scales, np.float64),
        num_leapfrog=(
            walk_length(start.size)
            if walks
            else _num_leapfrog(found.step_sizes, start.size)
        ),
        num_particles=num_particles,
        members=found.members,
    )
    work = 0.5 * np.asarray(found.work_variance)
    count = transitions_for(work, longer, *(_DEAR_TRANSITIONS if walks else ()))
    return plan.respaced(work, count).capped()


def transitions_for(
    work: np.ndarray,
    longer: float = 1.0,
    allowed: float = WORK_PER_TRANSITION,
    fewest: int = _MIN_TRANSITIONS,
) -> int:
    """How many transitions make each lose as much as it may."""
    count = longer * lengths(work).sum() / np.sqrt(allowed)
    least = longer * fewest
    return round_up(float(np.clip(count, least, max(least, _MAX_TRANSITIONS))))


def round_up(count: float | int) -> int:
    """To one of few numbers, so that seeds share compiled programs."""
    step = 2 ** max(0, int(np.floor(np.log2(count))) - 2)
    return int(np.ceil(count / step) * step)


def _num_leapfrog(step_sizes: np.ndarray, size: int) -> int:
    """A quarter of a period, within what the dimension makes sensible."""
    local = int(np.ceil(1.3 * size**0.25))
    wanted = _QUARTER_PERIOD / np.median(step_sizes)
    return round_up(float(np.clip(np.round(wanted), local, 3 * local)))
