r"""SMC that chooses temperatures and step sizes as it goes.

The next temperature is where the conditional effective sample size

$$\mathrm{CESS}(\beta') = \frac{N (\sum_i W_i w_i)^2}{\sum_i W_i w_i^2},
    \qquad w_i = e^{(\beta' - \beta) u_i}, \quad u = \log\gamma - \log\pi_0,$$

falls to a given share of N, found by bisection (Zhou, Johansen and Aston 2016). What
is chosen depends on the particles that it is used for, so the estimates of such a
pass are slightly biased: they guide choices and never enter an answer.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Identity
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._particles import Particles, weighted_mean
from annealax._path import Edge, GeometricPath, sanitise
from annealax._resampling import ESSResampling
from annealax._sampler import Sampler
from annealax.auto.density import CountedDensity
from annealax.auto.places import Climbers
from annealax.kernels import HMC, Point
from annealax.kernels._schedule import Constant

TARGET_ACCEPTANCE = 0.8
"""Near the best of HMC in many dimensions (0.65), on the safe side."""

LONGEST = 2.0
"""Length of a trajectory in units of the particles' scale, at most."""

CONDITIONAL_ESS = 0.9
"""Transitions this easy leave the estimates good enough to compare starts by."""

MAX_TEMPERATURES = 1000
"""A start that needs more than these is of no use."""

_TRAJECTORIES = 3
"""At each temperature: enough for the step size to follow the density."""

_NUM_LEAPFROG = 6
"""Leapfrog steps of a trajectory, until tuning finds a better number."""

_GAIN = 1.5
"""How fast the log of a step size follows the acceptance."""

_RESAMPLE_BELOW = 0.5
"""Share of the particles that the effective sample size may fall to."""

_TRAIL, _SMALL_STEP = 32, 0.1
"""Particles kept of each temperature; first steps of ascents from them, in scales."""

_FAR = 3.0
"""Scales beyond so many typical distances are made by a few particles far out."""

_ROOT_MOMENT = math.sqrt(2 / math.pi) * math.gamma(0.75)
"""Mean of the root of the distance between two draws of a standard normal."""


@dataclasses.dataclass(frozen=True)
class AdaptivePass:
    """What an adaptive pass found, per temperature where it is an array.

    Attributes:
        betas: Temperatures, from 0 to 1.
        step_sizes: Step sizes of HMC at the end of each transition.
        scales: Scales of the coordinates of z there.
        acceptance: Acceptance there.
        work_variance: Variance of the incremental log weights of each transition.
        log_normalizer: Estimate of log Z, slightly biased.
        stderr: Its standard error from the genealogy.
        z: Particles at the last temperature.
        weights: Their weights.
        trail: Some particles of each temperature.
        members: Ensembles of walks there; None for HMC.
    """

    betas: np.ndarray
    step_sizes: np.ndarray
    scales: np.ndarray
    acceptance: np.ndarray
    work_variance: np.ndarray
    log_normalizer: float
    stderr: float
    z: np.ndarray
    weights: np.ndarray
    trail: np.ndarray
    members: np.ndarray | None = None

    def climbers(self, place: Callable[[np.ndarray], np.ndarray]) -> Climbers:
        """Where particles were at all temperatures, to climb from with small steps.

        Args:
            place: From z to x.
        """
        _, some, size = self.trail.shape
        x = place(self.trail.reshape(-1, size)).reshape(self.trail.shape)
        scale = _SMALL_STEP * np.median(x.std(axis=1), axis=1) + 1e-30
        return Climbers(x.reshape(-1, size), np.repeat(scale, some))

    @property
    def num_transitions(self) -> int:
        """How many temperatures it took."""
        return len(self.betas) - 1

    @property
    def reached(self) -> bool:
        """Whether it got to the target within the allowed temperatures."""
        return bool(self.betas[-1] == 1)

    @property
    def usable(self) -> bool:
        """Whether it got there with an estimate."""
        return self.reached and math.isfinite(self.log_normalizer)


class _Step(NamedTuple):
    beta: Float[Array, ""]
    log_step: Float[Array, ""]
    scale: Float[Array, " size"]
    acceptance: Float[Array, ""]
    work_variance: Float[Array, ""]


def adaptive_pass(
    key: PRNGKeyArray,
    path: GeometricPath,
    density: CountedDensity,
    *,
    num_particles: int,
    max_temperatures: int = MAX_TEMPERATURES,
) -> AdaptivePass:
    """One adaptive pass from the start of the path to its end.

    Args:
        key: Random key.
        path: Its temperatures are not used.
        density: Where the evaluations are counted.
        num_particles: Number of particles.
        max_temperatures: Give up after so many.
    """
    resampler = ESSResampling(_RESAMPLE_BELOW)
    sampler = Sampler(path, None, resampler, num_particles=num_particles)
    size = path.shape[0]
    key, subkey = jr.split(key)
    particles = _start(sampler, subkey)
    # With a type: numbers of Python would have every pass compiled a second time.
    dtype = jnp.result_type(float)
    beta = jnp.zeros((), dtype)
    longest = min(1.0 / size**0.25, LONGEST / _NUM_LEAPFROG)
    log_step = jnp.asarray(math.log(longest), dtype)
    steps: list[_Step] = []
    trail: list[Array] = []
    while float(beta) < 1 and len(steps) < max_temperatures:
        key, subkey = jr.split(key)
        particles, step = _advance(sampler, subkey, particles, beta, log_step)
        beta, log_step = step.beta, step.log_step
        steps.append(step)
        trail.append(particles.x[:: -(-num_particles // _TRAIL)])
        if not np.isfinite(float(particles.log_normalizer)):
            break
    per_step = jax.device_get(jax.tree.map(lambda *each: jnp.stack(each), *steps))
    # To choose the temperature, to reweight, and where trajectories begin.
    per_temperature = 3 + _TRAJECTORIES * _NUM_LEAPFROG
    density.spend(len(steps) * per_temperature * num_particles)
    return AdaptivePass(
        betas=np.concatenate([[0.0], np.asarray(per_step.beta, np.float64)]),
        step_sizes=np.exp(per_step.log_step),
        scales=per_step.scale,
        acceptance=per_step.acceptance,
        work_variance=per_step.work_variance,
        log_normalizer=float(particles.log_normalizer),
        stderr=float(jnp.sqrt(particles.log_normalizer_variance)),
        z=np.asarray(particles.x),
        weights=np.asarray(particles.weights, np.float64),
        trail=np.stack(jax.device_get(trail)),
    )


@eqx.filter_jit
def _start(sampler: Sampler, key: PRNGKeyArray) -> Particles:
    return sampler.init(key)


@eqx.filter_jit
def _advance(
    sampler: Sampler,
    key: PRNGKeyArray,
    particles: Particles,
    beta: Float[Array, ""],
    log_step: Float[Array, ""],
) -> tuple[Particles, _Step]:
    """Choose the next temperature, reweight and resample, move and adapt."""
    key, subkey = jr.split(key)
    path = sampler.path
    assert isinstance(path, GeometricPath)
    slope = jax.vmap(lambda x: sanitise(path.target(x)) - path.initial.log_prob(x))(
        particles.x
    )
    beta_next = _next_beta(particles.log_weights, slope, beta)
    flow = Identity(path.shape)  # type: ignore[call-arg]
    edge = Edge(beta, beta_next)
    moved = sampler.transport(flow, particles, edge)
    work = jnp.where(jnp.isfinite(moved.log_increment), moved.log_increment, 0)
    mean_work = weighted_mean(particles.weights, work)
    variance = weighted_mean(particles.weights, (work - mean_work) ** 2)
    particles, _ = sampler.correct(subkey, particles, moved, edge)

    scale = _scales(particles.x, particles.weights)
    log_density = path.at(beta_next)
    points = Point(particles.x, *jax.vmap(jax.value_and_grad(log_density))(particles.x))

    def move(carry, key):
        points, log_step = carry
        kernel = HMC(Constant(jnp.exp(log_step)), _NUM_LEAPFROG, 1, Constant(scale))
        points, info = kernel.move_all(key, points, log_density, beta_next)
        rate = jnp.mean(info.acceptance_rate)
        log_step = log_step + _GAIN * (rate - TARGET_ACCEPTANCE)
        return (points, jnp.minimum(log_step, jnp.log(LONGEST / _NUM_LEAPFROG))), rate

    (points, log_step), rates = jax.lax.scan(
        move, (points, log_step), jr.split(key, _TRAJECTORIES)
    )
    particles = dataclasses.replace(
        particles, x=points.x, log_density=points.log_density
    )
    return particles, _Step(beta_next, log_step, scale, rates[-1], variance)


def _scales(x: Float[Array, "n size"], weights: Float[Array, " n"]) -> Array:
    """Standard deviations, unless a few particles far out make most of them."""
    centre = weighted_mean(weights, x)
    spread = jnp.sqrt(weighted_mean(weights, (x - centre) ** 2))
    # By a moment that even a Cauchy distribution has, of differences: it has no mean.
    # A particle and the one half way round are seldom copies of each other.
    half = len(x) // 2
    pair = jnp.sqrt(weights * jnp.roll(weights, half))
    pair = pair / jnp.maximum(jnp.sum(pair), 1e-30)
    apart = jnp.abs(x - jnp.roll(x, half, axis=0))
    typical = weighted_mean(pair, jnp.sqrt(apart)) ** 2 / _ROOT_MOMENT**2
    spread = jnp.where(typical > 0, jnp.minimum(spread, _FAR * typical), spread)
    return jnp.maximum(spread, 1e-3 * jnp.max(spread) + 1e-30)


def _next_beta(log_weights: Array, slope: Array, beta: Array) -> Float[Array, ""]:
    """The temperature at which the conditional effective sample size is as given."""
    # A density of zero keeps its particle out of every temperature alike.
    alive = jnp.isfinite(slope) & jnp.isfinite(log_weights)
    log_weights = jnp.where(alive, log_weights, -jnp.inf)
    log_weights = log_weights - jax.nn.logsumexp(log_weights)
    slope = jnp.where(alive, slope, 0)

    def share(delta):
        log_increment = delta * slope
        return jnp.exp(
            2 * jax.nn.logsumexp(log_weights + log_increment)
            - jax.nn.logsumexp(log_weights + 2 * log_increment)
        )

    def halve(_, bounds):
        low, high = bounds
        # In the logarithm: the first temperatures may be very small.
        middle = jnp.where(low > 0, jnp.sqrt(jnp.maximum(low * high, 1e-38)), high / 8)
        enough = share(middle) >= CONDITIONAL_ESS
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    left = 1 - beta
    low, high = jax.lax.fori_loop(0, 60, halve, (jnp.zeros_like(left), left))
    delta = jnp.where(
        share(left) >= CONDITIONAL_ESS, left, jnp.where(low > 0, low, high)
    )
    # Always forward, in this precision.
    smallest = jnp.maximum(jnp.nextafter(beta, 1.0) - beta, 1e-7 * (beta + 1e-3))
    reached = beta + jnp.maximum(delta, smallest)
    return jnp.where(reached > 1 - 1e-6, 1.0, reached)
