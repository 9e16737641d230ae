"""What is different where a density has no gradient: it may be a black box.

There are no ascents and no HMC. Passes start wide (from the prior, the region, or wide
normals), two of them by independent draws, so that mass which only one of them finds
shows as a contradiction. They move by `EnsembleWalk` along differences of their own
particles, and later starts come from moments of these particles. Calls of such a
density may take seconds, so passes are small, and nothing is evaluated that is known.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._estimates import logsumexp
from annealax._keys import named_key
from annealax._particles import Particles
from annealax._path import Edge, GeometricPath, sanitise
from annealax._resampling import ESSResampling
from annealax._result import StepInfo
from annealax._sampler import Moved, Sampler
from annealax.auto.adaptive_smc import AdaptivePass
from annealax.auto.density import CountedDensity, FreeDensity
from annealax.auto.knowledge import Knowledge
from annealax.auto.modes import Modes
from annealax.auto.starts.base import Candidate, Seen, WideNormal
from annealax.auto.starts.gaussian import Linear, from_moments, normal_start
from annealax.kernels import EnsembleWalk, Point

TARGET_ACCEPTANCE = 0.3
"""Near the best of random walks: 0.44 in one dimension, 0.23 in many."""

PARTICLES = 500
"""Particles of a pass."""

WIDE = 10.0
"""Standard deviation of where to look if nothing is known."""

WIDER = 10.0
"""The second look goes so many times further, but not in logarithms of a support."""

_UNLIKE = 10.0
"""A mode so many times narrower than the others is what passes should notice."""

_CONDITIONAL_ESS = 0.7
"""Transitions are long: their accuracy is dear, and only guides choices."""

_MEMBERS = 200
"""Members of an ensemble: some forty thousand differences."""

_GAIN = 2.0
"""How fast the log of the step follows the acceptance, from temperature to the next."""

_RESAMPLE_BELOW = 0.5
"""Share of the particles that the effective sample size may fall to."""

_TRAIL = 32
"""Particles kept of each temperature."""

_ENOUGH_POINTS = 2
"""Points given, per dimension, from which on a normal is fitted to them."""


def walk_length(size: int) -> int:
    """Proposals of a move: a walk needs about as many as there are dimensions."""
    return int(np.clip(3 + size // 2, 4, 25))


def wide_starts(density: CountedDensity, known: Knowledge) -> tuple[Candidate, ...]:
    """Starts of two passes that look everywhere: what is known, else wide normals."""
    if known.start is not None:
        name, start = known.start
        return known.start, Candidate(f"{name}, again", start)
    centre, scale = np.zeros(density.size), np.full(density.size, WIDE)
    wider = np.where(_are_plain(density), WIDER * WIDE, WIDE)
    return (
        Candidate("wide normal", normal_start(Linear.scaled(centre, scale))),
        Candidate("wider normal", normal_start(Linear.scaled(centre, wider))),
    )


def _are_plain(density: CountedDensity) -> np.ndarray:
    """Coordinates that are parameters themselves, not such as their logarithms."""
    function = density.log_density
    if not isinstance(function, FreeDensity):
        return np.ones(density.size, bool)
    space = function.space
    slope = jax.grad(lambda vector: space.constrain(vector)[1])
    return np.asarray(slope(jnp.full(density.size, 0.7))) == 0


def first_starts(density: CountedDensity, known: Knowledge) -> Iterator[Candidate]:
    """Starts that need no particles: those of wide passes, then the points given."""
    size, points = density.size, known.points
    yield from wide_starts(density, known)
    if len(points) > _ENOUGH_POINTS * size:
        weights = np.full(len(points), 1 / len(points))
        linear, kind = from_moments(Linear.identity(size), points, weights)
        name = f"mean and covariance of the points given ({kind})"
        yield Candidate(name, normal_start(linear))
    elif len(points):
        scale = np.maximum(points.std(axis=0), 1.0)
        start = normal_start(Linear.scaled(points.mean(axis=0), scale))
        yield Candidate("normal around the points given", start)


def where(known: Knowledge) -> str:
    """Where wide passes began, in words."""
    if known.start is not None:
        return str(known.places)
    return (
        f"from normals around 0 of standard deviation {WIDE:.0f} and {WIDER * WIDE:.0f}"
    )


def chance_of_a_miss(size: int) -> float:
    r"""Probability that no particle of a wide pass began where a narrow mode rules.

    Of a mode as heavy as the rest and $k$ times narrower, at the distance $\sqrt d$
    standard deviations of the start, where most draws lie. It rules where it is the
    nearer one in units of widths: in a ball of radius $\sqrt d\, k / (k^2 - 1)$.
    Particles elsewhere are led away from it.
    """
    radius = math.sqrt(size) * _UNLIKE / (_UNLIKE**2 - 1)
    log_volume = 0.5 * size * math.log(math.pi) - math.lgamma(size / 2 + 1)
    log_density = -0.5 * size * (math.log(2 * math.pi) + 1)
    share = math.exp(log_density + log_volume + size * math.log(radius))
    return (1 - share) ** PARTICLES


def nothing_seen(key: PRNGKeyArray, density: CountedDensity, known: Knowledge) -> Seen:
    """Before the first pass: no modes, which ascents would find."""
    size = density.size
    none = np.zeros((0, 0, 0)), np.zeros((0, 0))
    modes = Modes(np.zeros((0, size)), np.zeros(0), np.zeros(0, int), *none)
    wide = WideNormal(np.zeros(size), np.full(size, WIDE))
    if known.start is not None:
        linear, _ = known.start.start.bijection.as_affine(np.zeros((1, size)))
        factor = np.asarray(linear.factor, np.float64)
        scale = np.abs(np.diag(factor) if factor.ndim == 2 else factor)
        wide = WideNormal(np.asarray(linear.mean, np.float64), scale)
    return Seen(density, key, modes, wide)


class _Now(NamedTuple):
    """Where a pass is."""

    particles: Particles
    slope: Float[Array, " particles"]


class _Temperature(NamedTuple):
    """What is kept of a temperature; arrays over them in the end."""

    beta: Any
    step_size: Any
    members: Any
    acceptance: Any
    work_variance: Any
    trail: Any


def walk_pass(
    key: PRNGKeyArray, path: GeometricPath, density: CountedDensity, limit: int
) -> AdaptivePass:
    """SMC that chooses temperatures and steps as it goes, without gradient.

    Args:
        key: Random key.
        path: From a start to the density, in z.
        density: Counts the evaluations.
        limit: The most temperatures.
    """
    (size,) = path.shape
    length, beta = walk_length(size), 0.0
    log_step = math.log(2.38 / math.sqrt(2 * size))
    random = np.random.default_rng(np.asarray(jr.key_data(named_key(key, "members"))))
    now = _begin(path, named_key(key, "start"))
    density.spend(PARTICLES)
    found: list[_Temperature] = []
    while beta < 1 and len(found) < limit:
        x, slope = np.asarray(now.particles.x), np.asarray(now.slope, np.float64)
        log_weights = np.asarray(now.particles.log_weights, np.float64)
        after = _next_beta(log_weights, slope, beta)
        weights, variance = _reweighted(log_weights, (after - beta) * slope)
        members = _chosen(random, x, weights)
        subkey = named_key(key, len(found))
        where, then, step = (
            jnp.asarray(number, x.dtype) for number in (beta, after, math.exp(log_step))
        )
        ensemble = jnp.asarray(members)
        now, info = _advance(path, subkey, now, ensemble, where, then, step, length)
        rate = float(info.acceptance_rate)
        density.spend(PARTICLES * length)
        some = np.asarray(now.particles.x[:: -(-PARTICLES // _TRAIL)])
        step_size = math.exp(log_step)
        found.append(_Temperature(after, step_size, members, rate, variance, some))
        beta, log_step = after, log_step + _GAIN * (rate - TARGET_ACCEPTANCE)
        if not np.isfinite(float(now.particles.log_normalizer)):
            break
    particles = now.particles
    kept = _Temperature(*map(np.stack, zip(*found, strict=True)))
    return AdaptivePass(
        betas=np.concatenate([[0.0], kept.beta]),
        step_sizes=kept.step_size,
        scales=np.maximum(kept.members.std(axis=1), 1e-30),
        acceptance=kept.acceptance,
        work_variance=kept.work_variance,
        log_normalizer=float(particles.log_normalizer),
        stderr=float(jnp.sqrt(particles.log_normalizer_variance)),
        z=np.asarray(particles.x),
        weights=np.asarray(particles.weights, np.float64),
        trail=kept.trail,
        members=kept.members,
    )


@eqx.filter_jit
def _begin(path: GeometricPath, key: PRNGKeyArray) -> _Now:
    particles = Sampler(path, num_particles=PARTICLES).init(key)
    return _Now(particles, _slopes(path, particles.x))


@eqx.filter_jit
def _advance(
    path: GeometricPath,
    key: PRNGKeyArray,
    now: _Now,
    members: Float[Array, "members size"],
    beta: Float[Array, ""],
    after: Float[Array, ""],
    step_size: Float[Array, ""],
    length: int,
) -> tuple[_Now, StepInfo]:
    """Reweight by what is known, resample, move, and see where that led."""
    sampler = Sampler(
        path,
        EnsembleWalk(members, step_size, length),
        ESSResampling(_RESAMPLE_BELOW),
        num_particles=PARTICLES,
    )
    particles, slope = now
    initial = jax.vmap(path.initial.log_prob)(particles.x)
    moved = Moved(
        point=Point(particles.x, sanitise(initial + after * slope), None),
        log_increment=sanitise((after - beta) * slope),
        is_nan=jnp.isnan(slope),
        is_infinite=slope == jnp.inf,
    )
    particles, info = sampler.correct(key, particles, moved, Edge(beta, after))
    return _Now(particles, _slopes(path, particles.x)), info


def _slopes(path: GeometricPath, x: Array) -> Array:
    """Derivative of the log density in the temperature."""
    return jax.vmap(lambda x: sanitise(path.target(x)) - path.initial.log_prob(x))(x)


def _next_beta(log_weights: np.ndarray, slope: np.ndarray, beta: float) -> float:
    """Where the conditional effective sample size falls to its share."""
    alive = np.isfinite(slope) & np.isfinite(log_weights)
    if not alive.any():
        return 1.0
    weight, rise = log_weights[alive], slope[alive]
    weight = weight - logsumexp(weight)

    def excess(log_delta: float) -> float:
        step = math.exp(log_delta) * rise
        share = 2 * logsumexp(weight + step) - logsumexp(weight + 2 * step)
        return float(share) - math.log(_CONDITIONAL_ESS)

    highest, lowest = math.log(1 - beta), math.log(1e-12)
    if excess(highest) >= 0:
        return 1.0
    if excess(lowest) <= 0:
        return beta + 1e-7
    from scipy.optimize import brentq  # noqa: PLC0415 (loaded where it is used)

    delta = math.exp(brentq(excess, lowest, highest, xtol=1e-4))
    # Always forward, in single precision.
    reached = beta + max(delta, 1e-6 * (beta + 1e-3))
    return 1.0 if reached > 1 - 1e-5 else reached


def _reweighted(
    log_weights: np.ndarray, increment: np.ndarray
) -> tuple[np.ndarray, float]:
    """Weights after a transition, and the variance of its increments before it."""
    increment = np.where(np.isfinite(increment), increment, -np.inf)
    total = log_weights + increment
    if not np.isfinite(total).any():
        return np.exp(log_weights), 0.0
    before, finite = np.exp(log_weights), np.isfinite(increment)
    share = before[finite] / before[finite].sum()
    mean = share @ increment[finite]
    variance = float(share @ (increment[finite] - mean) ** 2)
    return np.exp(total - logsumexp(total)), variance


def _chosen(
    random: np.random.Generator, x: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Members by weight, each once if there are enough."""
    distinct, first = np.unique(x, axis=0, return_inverse=True)
    shares = np.bincount(np.ravel(first), weights, len(distinct))
    possible = int(np.count_nonzero(shares > 1e-12 * shares.max()))
    replace = possible < _MEMBERS
    shares = np.where(shares > 1e-12 * shares.max(), shares, 0)
    index = random.choice(
        len(distinct), _MEMBERS, replace=replace, p=shares / shares.sum()
    )
    return distinct[index]
