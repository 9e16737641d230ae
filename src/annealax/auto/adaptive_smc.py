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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax._keys import generator, named_key
from annealax._particles import Particles, weighted_mean
from annealax._path import Edge, GeometricPath, sanitise
from annealax._resampling import ESSResampling
from annealax._sampler import Moved, Sampler
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

_AT_ONCE, _NUMBERS = 128, 2**22
"""Temperatures of a program call, at most, and numbers that their trail may hold."""

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


class _Records(NamedTuple):
    """What is kept of each temperature; arrays over temperatures."""

    beta: Any
    step_size: Any
    scale: Any
    acceptance: Any
    work_variance: Any
    trail: Any


class _State(NamedTuple):
    """Where a pass is."""

    particles: Particles
    beta: Float[Array, ""]
    log_step: Float[Array, ""]


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
    capacity = max(1, min(_AT_ONCE, _NUMBERS // (_TRAIL * path.shape[0])))
    state: Any = None
    parts, done, went_on = [], 0, True
    while went_on and done < max_temperatures:
        limit = to_device(min(capacity, max_temperatures - done), np.int32)
        keys = _keys_from(generator(named_key(key, done)), capacity)
        state, records, made, summary = _climb(sampler, keys, state, limit)
        records, made, summary = jax.device_get((records, made, summary))
        parts.append(jax.tree.map(lambda each, made=made: each[:made], records))
        done += int(made)
        went_on = bool(summary.goes_on)
    kept = _Records(*map(np.concatenate, zip(*parts, strict=True)))
    # To choose the temperature, where trajectories begin, and along them.
    per_temperature = 2 + _TRAJECTORIES * _NUM_LEAPFROG
    density.spend(done * per_temperature * num_particles)
    return AdaptivePass(
        betas=np.concatenate([[0.0], np.asarray(kept.beta, np.float64)]),
        step_sizes=kept.step_size,
        scales=kept.scale,
        acceptance=kept.acceptance,
        work_variance=kept.work_variance,
        log_normalizer=float(summary.log_normalizer),
        stderr=float(summary.stderr),
        z=np.asarray(state.particles.x),
        weights=np.asarray(summary.weights, np.float64),
        trail=kept.trail,
    )


class _Keys(NamedTuple):
    """Random keys of all that a program does: it need not make them."""

    start: Key[Array, ""]
    select: Key[Array, " temperatures"]
    moves: Key[Array, "temperatures trajectories"]


def _keys_from(random: np.random.Generator, capacity: int) -> _Keys:
    def keys(*shape: int) -> Key[Array, "*shape"]:
        words = random.integers(0, 2**32, (*shape, 2), np.uint32)
        return jr.wrap_key_data(jax.device_put(words), impl="threefry2x32")

    return _Keys(keys(), keys(capacity), keys(capacity, _TRAJECTORIES))


class _Summary(NamedTuple):
    """What the host wants to know of the particles."""

    goes_on: Bool[Array, ""]
    log_normalizer: Float[Array, ""]
    stderr: Float[Array, ""]
    weights: Float[Array, " particles"]


@quick_jit
def _climb(
    sampler: Sampler,
    keys: "_Keys",
    state: _State | None,
    limit: Int[Array, ""],
) -> tuple[_State, _Records, Int[Array, ""], _Summary]:
    """As many temperatures as are allowed, in one program."""
    if state is None:
        state = _first_state(sampler, keys.start)
    capacity = len(keys.select)
    x, dtype = state.particles.x, state.log_step.dtype
    size = x.shape[1]
    every = -(-len(x) // _TRAIL)
    numbers = [jnp.zeros(capacity, dtype) for _ in range(4)]
    beta, step_size, acceptance, variance = numbers
    records = _Records(
        beta=beta,
        step_size=step_size,
        scale=jnp.zeros((capacity, size), dtype),
        acceptance=acceptance,
        work_variance=variance,
        trail=jnp.zeros((capacity, len(x[::every]), size), x.dtype),
    )

    def goes_on(state: _State) -> Bool[Array, ""]:
        usable = jnp.isfinite(state.particles.log_normalizer)
        return (state.beta < 1) & usable

    def advance(carry):
        index, state, records = carry
        state, record = _advance(sampler, keys.select[index], keys.moves[index], state)
        record = record._replace(trail=state.particles.x[::every])
        records = jax.tree.map(
            lambda kept, one: kept.at[index].set(one), records, record
        )
        return index + 1, state, records

    made, state, records = jax.lax.while_loop(
        lambda carry: (carry[0] < limit) & goes_on(carry[1]),
        advance,
        (jnp.zeros((), jnp.int32), state, records),
    )
    particles = state.particles
    summary = _Summary(
        goes_on=goes_on(state),
        log_normalizer=particles.log_normalizer,
        stderr=jnp.sqrt(particles.log_normalizer_variance),
        weights=particles.weights,
    )
    return state, records, made, summary


def _first_state(sampler: Sampler, key: PRNGKeyArray) -> _State:
    particles = sampler.init(key)
    dtype = jnp.result_type(float)
    longest = min(1.0 / particles.x.shape[1] ** 0.25, LONGEST / _NUM_LEAPFROG)
    log_step = jnp.full((), math.log(longest), dtype)
    return _State(particles, jnp.zeros((), dtype), log_step)


def _advance(
    sampler: Sampler,
    key: PRNGKeyArray,
    keys: Key[Array, " trajectories"],
    state: _State,
) -> tuple[_State, _Records]:
    """Choose the next temperature, reweight and resample, move and adapt."""
    path = sampler.path
    assert isinstance(path, GeometricPath)
    particles = state.particles
    slope = jax.vmap(lambda x: sanitise(path.target(x)) - path.initial.log_prob(x))(
        particles.x
    )
    beta = _next_beta(particles.log_weights, slope, state.beta)
    increment = sanitise((beta - state.beta) * slope)
    work = jnp.where(jnp.isfinite(increment), increment, 0)
    mean_work = weighted_mean(particles.weights, work)
    variance = weighted_mean(particles.weights, (work - mean_work) ** 2)
    # On a geometric path the weights follow from the slope: nothing is evaluated.
    moved = Moved(
        point=Point(particles.x, particles.log_density, jnp.zeros_like(particles.x)),
        log_increment=increment,
        is_nan=jnp.isnan(slope),
        is_infinite=jnp.isinf(slope),
    )
    particles, _ = sampler.correct(key, particles, moved, Edge(state.beta, beta))

    scale = _scales(particles.x, particles.weights)
    log_density = path.at(beta)
    points = Point(particles.x, *jax.vmap(jax.value_and_grad(log_density))(particles.x))

    def move(carry, key):
        points, log_step = carry
        kernel = HMC(Constant(jnp.exp(log_step)), _NUM_LEAPFROG, 1, Constant(scale))
        points, info = kernel.move_all(key, points, log_density, beta)
        rate = jnp.mean(info.acceptance_rate)
        log_step = log_step + _GAIN * (rate - TARGET_ACCEPTANCE)
        return (points, jnp.minimum(log_step, jnp.log(LONGEST / _NUM_LEAPFROG))), rate

    (points, log_step), rates = jax.lax.scan(move, (points, state.log_step), keys)
    particles = dataclasses.replace(
        particles, x=points.x, log_density=points.log_density
    )
    record = _Records(beta, jnp.exp(log_step), scale, rates[-1], variance, None)
    return _State(particles, beta, log_step), record


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
    weights = jnp.where(alive, jnp.exp(log_weights - jnp.max(log_weights)), 0)
    weights = weights / jnp.sum(weights)
    # All of these are at most zero, so that nothing overflows.
    slope = jnp.where(alive, slope, -jnp.inf)
    slope = jnp.where(alive, slope - jnp.max(slope), 0)

    def halve(index, bounds):
        low, high = bounds
        # In the logarithm: the first temperatures may be very small.
        middle = jnp.where(low > 0, jnp.sqrt(jnp.maximum(low * high, 1e-38)), high / 8)
        middle = jnp.where(index == 0, high, middle)
        increment = jnp.exp(middle * slope)
        mean = jnp.sum(weights * increment)
        square = jnp.sum(weights * increment * increment)
        enough = mean * mean >= CONDITIONAL_ESS * square
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    left = 1 - beta
    low, high = jax.lax.fori_loop(0, 61, halve, (jnp.zeros_like(left), left))
    delta = jnp.where(low > 0, low, high)
    # Always forward, in this precision.
    smallest = jnp.maximum(jnp.nextafter(beta, 1.0) - beta, 1e-7 * (beta + 1e-3))
    reached = beta + jnp.maximum(delta, smallest)
    return jnp.where(reached > 1 - 1e-6, 1.0, reached)
