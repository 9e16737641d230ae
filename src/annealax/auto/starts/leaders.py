r"""Coordinates for models with a few parameters that rule the others.

Let $h$ be the few coordinates that set the scales of others (the *leaders*, such as
the standard deviations of a hierarchical model), or with which the means of others
bend, and $x$ the others. The map

$$h = m + F z_h, \qquad
  x_j = a_j(h) + e^{l_j(h)} \Big(z_j + \sum_{i < j} C_{ji}(h)\, z_i\Big)$$

makes of a standard normal $z$ a normal $q(x \mid h)$ whose mean, scales and
correlations follow $h$. The functions are linear with a few bends (tanh); those of the
mean have squares too, as a banana does however far out. They minimise

$$\mathbb{E}_{h}\, \mathrm{KL}\big(q(x \mid h) \,\|\, p(x \mid h)\big),$$

with $h$ from a distribution with longer tails than the particles': the density itself
says what $x$ does in the neck of a funnel, into which no particle may have come. The
distribution of $h$ is not part of this, so that nothing of it can get lost. Passes
start from the same distribution of the leaders: since the others follow, its tails
cost little.
"""

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.scipy import stats
from jax.scipy.special import ndtri
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax._keys import named_key
from annealax._noise import normals
from annealax.auto.density import CountedDensity
from annealax.auto.starts.base import (
    AbstractBase,
    AbstractCoordinates,
    Candidate,
    Seen,
    Start,
)
from annealax.auto.starts.gaussian import Linear, widening
from annealax.auto.starts.hierarchy import (
    Hierarchy,
    fit_coordinate,
    fit_hierarchy,
    may_have_rulers,
)

MAX_LEADERS = 4
"""More rulers than these are left to a `Hierarchy`."""

_INFLUENCE, _CURVATURE = 0.15, 0.5
"""Slopes of log scales, and bends of means, below these are left to the sampler."""

_WEAK, _STRONG = 0.15, 0.3
"""Shares of the strongest influence from which on a coordinate is a ruler."""

_NOWHERE = 5.0
"""A pass that lost more nats against the best went nowhere and shows nothing."""

_BENDS, _TWISTS = 16, 8
"""Bends (tanh) that means and scales are made of, and correlations."""

_STEPS, _BATCH = 2000, 64
_RATES = (1e-2, 2e-4)
"""Training: steps, draws in each, first and last learning rate of Adam."""

_NARROW, _WIDE, _WIDE_SHARE = 1.2, 4.0, 0.25
"""Leaders come from two normals, somewhat and much wider than the particles."""

_STEEPEST = 10.0
"""Pulls longer than this, per root of the dimension, count no more than it."""

_SQUARE = 0.25
"""Scale of the squares, so that they are of order one within the wide normal."""

_FEW = 10
"""Up to so many others, correlations are learnt at the full rate."""

_SAME_LEADERS, _OTHER_LEADERS = 0.5, 1.5
"""Gain needed over a start with leaders of its own.

With the same leaders it was fitted to particles that came further into a neck. With
others it must be clearly better: what neither saw does not show.
"""


class Leaders(AbstractCoordinates):
    """The map above, in standardised coordinates, leaders first."""

    knows_rulers: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True)
    mean: Float[Array, " size"]
    axes: Float[Array, "size size"]
    leader_factor: Float[Array, "leaders leaders"]
    bend_slopes: Float[Array, "bends leaders"]
    bend_offsets: Float[Array, " bends"]
    centres: Float[Array, " others"]
    centre_slopes: Float[Array, "others bent_features"]
    log_scales: Float[Array, " others"]
    log_scale_slopes: Float[Array, "others features"]
    correlations: Float[Array, "twists others others"]  # below the diagonal
    log_det: Float[Array, ""]

    def __init__(self, **fields: ArrayLike):
        for name, value in fields.items():
            setattr(self, name, to_device(value))
        self.shape = self.mean.shape

    @property
    def num_leaders(self) -> int:
        """Number of coordinates that rule the others."""
        return self.leader_factor.shape[0]

    @property
    def leaders(self) -> tuple[int, ...]:
        """Which they are."""
        columns = np.asarray(self.axes)[:, : self.num_leaders]
        return tuple(map(int, np.argmax(columns, axis=0)))

    def transform_and_log_det(self, x, condition=None):
        """From z to x, and the log Jacobian."""
        leaders, others = x[: self.num_leaders], x[self.num_leaders :]
        given = self.given(leaders)
        x = self.place(leaders, self.others(given, others))
        return x, self.log_det + jnp.sum(given.log_scales)

    def inverse_and_log_det(self, y, condition=None):
        """From x to z, and the log Jacobian."""
        # Each row of the axes' transpose picks one coordinate, over its scale.
        picked = jnp.sum(self.axes * self.axes, axis=0)
        y = (y - self.mean) @ self.axes / picked
        solve = jax.scipy.linalg.solve_triangular
        leaders = solve(self.leader_factor, y[: self.num_leaders], lower=True)
        given = self.given(leaders)
        mixed = (y[self.num_leaders :] - given.centres) * jnp.exp(-given.log_scales)
        others = solve(self.mix(given), mixed, lower=True)
        log_det = self.log_det + jnp.sum(given.log_scales)
        return jnp.concatenate([leaders, others]), -log_det

    def as_affine(self, z: np.ndarray) -> tuple[Linear, np.ndarray]:
        """The coordinates of x."""
        return Linear.identity(len(self.mean)), self.positions(z)

    def gain_needed(self, other: AbstractCoordinates) -> float:
        """More over other leaders, less over the same."""
        if not other.leaders:
            return 1.0
        same = set(self.leaders) == set(other.leaders)
        return _SAME_LEADERS if same else _OTHER_LEADERS

    def others(self, given: "Given", z: Float[Array, " others"]) -> Array:
        """From z to the others, in standardised coordinates."""
        mixed = z + given.twists @ (self.correlations @ z)
        return given.centres + jnp.exp(given.log_scales) * mixed

    def mix(self, given: "Given") -> Float[Array, "others others"]:
        """From z to the others at unit scales."""
        return jnp.eye(len(self.mean) - self.num_leaders) + jnp.tensordot(
            given.twists, self.correlations, 1
        )

    def place(self, leaders: Float[Array, " leaders"], others: Array) -> Array:
        """From leaders in z and standardised others to x."""
        y = jnp.concatenate([self.leader_factor @ leaders, others])
        return self.mean + self.axes @ y

    def given(self, leaders: Float[Array, " leaders"]) -> "Given":
        """The normal distribution of the others."""
        bends = jnp.tanh(self.bend_slopes @ leaders + self.bend_offsets)
        features = jnp.concatenate([leaders, bends])
        squares = _SQUARE * leaders**2
        bent = jnp.concatenate([features, squares])
        return Given(
            centres=self.centres + self.centre_slopes @ bent,
            log_scales=self.log_scales + self.log_scale_slopes @ features,
            twists=jnp.concatenate([jnp.ones(1), bends[: len(self.correlations) - 1]]),
        )


class Given(NamedTuple):
    """A normal distribution of the others."""

    centres: Array
    log_scales: Array
    twists: Array


class LeadersBase(AbstractBase):
    """Each leader from a mixture of a narrow and a wide normal, the others normal."""

    shape: tuple[int, ...] = eqx.field(static=True)
    num_leaders: int = eqx.field(static=True)
    width: Float[Array, ""]

    def __init__(self, size: int, num_leaders: int, width: float):
        self.shape, self.num_leaders = (size,), num_leaders
        self.width = to_device(width)

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        (size,), count = self.shape, self.num_leaders
        drawn = normals(key, sample_shape, count + size, self.width.dtype)
        choice, normal = drawn[..., :count], drawn[..., count:]
        leaders = jnp.where(choice < ndtri(_WIDE_SHARE), _WIDE, _NARROW)
        others = jnp.full((*sample_shape, size - count), self.width)
        return jnp.concatenate([leaders, others], axis=-1) * normal

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        leaders, others = x[: self.num_leaders], x[self.num_leaders :]
        of_leaders = jnp.logaddexp(
            math.log(1 - _WIDE_SHARE) + stats.norm.logpdf(leaders, 0, _NARROW),
            math.log(_WIDE_SHARE) + stats.norm.logpdf(leaders, 0, _WIDE),
        )
        return jnp.sum(of_leaders) + jnp.sum(stats.norm.logpdf(others, 0, self.width))


def leaders_start(bijection: Leaders) -> Start:
    """Where passes start: since others follow them, tails of leaders cost little."""
    (size,) = bijection.shape
    base = LeadersBase(size, bijection.num_leaders, widening(size))
    return Start(base, bijection)


def propose_leaders_of_scales(seen: Seen) -> Iterator[Candidate]:
    """A normal that follows the few coordinates that set the scales of others."""
    best = seen.best
    assert best is not None
    leaders = best.start.bijection.leaders
    if not leaders and may_have_rulers(seen):
        leaders = leaders_of_scales(seen)
    if len(leaders):
        yield from _follow(seen, leaders)


def propose_leaders_of_means(seen: Seen) -> Iterator[Candidate]:
    """A normal that follows the few coordinates with which others bend."""
    best = seen.best
    assert best is not None
    if not may_have_rulers(seen):
        return
    leaders = few(curvature_of(best.x, best.weights))
    known = [set(each.start.bijection.leaders) for each in seen.tried]
    if len(leaders) and set(leaders) not in known:
        yield from _follow(seen, leaders)


def _follow(seen: Seen, leaders: tuple[int, ...]) -> Iterator[Candidate]:
    """A normal that follows the leaders, unless training fails."""
    best = seen.best
    assert best is not None
    names = ", ".join(map(str, leaders))
    name = f"normal that follows coordinates {names}"
    key = named_key(seen.key, "leaders", name, seen.times(name))
    first = fit_leaders(best.x, best.weights, np.asarray(leaders))
    trained = train_leaders(key, seen.density, first)
    if trained is not None:
        yield Candidate(name, leaders_start(trained))


def leaders_of_scales(seen: Seen) -> tuple[int, ...]:
    """The few coordinates that set the scales of others; none if they are many.

    The particles of a good start may have lost a neck that others, unless they went
    nowhere, came some way into.
    """
    best = seen.best
    assert best is not None
    influence = np.zeros(best.start.size)
    for each in seen.tried:
        lost = best.first.log_normalizer - each.first.log_normalizer
        if each is best or (each.first.reached and lost < _NOWHERE):
            hierarchy = fit_hierarchy(each.x, each.weights)
            if hierarchy is not None:
                influence = np.maximum(influence, influence_of(hierarchy))
    return few(influence)


def few(influence: np.ndarray) -> tuple[int, ...]:
    """The coordinates of most influence, if they are few."""
    leaders = np.flatnonzero(influence > _WEAK * influence.max())
    if len(leaders) > MAX_LEADERS:
        leaders = np.flatnonzero(influence > _STRONG * influence.max())
    is_few = len(leaders) <= min(MAX_LEADERS, len(influence) - 1)
    return tuple(map(int, leaders)) if is_few else ()


def influence_of(hierarchy: Hierarchy) -> np.ndarray:
    """How much the scales of others depend on each coordinate; often zero."""
    influence = np.sqrt(np.sum(np.asarray(hierarchy.log_scale_slopes) ** 2, axis=0))
    return np.where(influence > _INFLUENCE, influence, 0)


def curvature_of(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """How much the means of others bend with each coordinate; often zero."""
    x = np.asarray(x, np.float64)
    mean = weights @ x
    y = (x - mean) / np.sqrt(np.maximum(weights @ (x - mean) ** 2, 1e-300))
    weighted = y * weights[:, None]
    # The square of each, without what is linear in it.
    bend = y**2 - 1 - (weights @ y**3) * y
    spread = np.sqrt(np.maximum(weights @ bend**2, 1e-12))
    left = np.sqrt(np.maximum(1 - (weighted.T @ y) ** 2, 1e-3))
    link = np.abs(bend.T @ weighted) / spread[:, None] / left
    np.fill_diagonal(link, 0)
    count = 1 / np.sum(np.asarray(weights, np.float64) ** 2)
    level = max(_CURVATURE, 5 / np.sqrt(count))
    return np.sqrt(np.sum(np.where(link > level, link, 0) ** 2, axis=1))


def fit_leaders(x: np.ndarray, weights: np.ndarray, leaders: np.ndarray) -> Leaders:
    """Without bends, by maximum likelihood from weighted particles."""
    x = np.asarray(x, np.float64)
    weights = np.asarray(weights, np.float64)
    size, num_leaders = x.shape[1], len(leaders)
    order = np.concatenate([leaders, np.setdiff1d(np.arange(size), leaders)])
    mean = weights @ x
    scale = np.sqrt(np.maximum(weights @ (x - mean) ** 2, 1e-300))
    y = ((x - mean) / scale)[:, order]
    count = 1 / np.sum(weights**2)
    above, below = y[:, :num_leaders], y[:, num_leaders:]
    factor = _cholesky(above, weights, count)
    z = np.linalg.solve(factor, above.T).T
    rows = [fit_coordinate(column, z, weights, count) for column in below.T]
    centres = np.asarray([row.centre for row in rows])
    centre_slopes = np.stack([row.location for row in rows])
    log_scales = np.asarray([row.log_scale for row in rows])
    log_scale_slopes = np.stack([row.slopes for row in rows])
    residual = below - centres - z @ centre_slopes.T
    residual *= np.exp(np.clip(-log_scales - z @ log_scale_slopes.T, -30, 30))
    triangle = _cholesky(residual, weights, count)
    spread = np.diag(triangle)
    correlations = np.zeros((1 + _TWISTS, len(rows), len(rows)))
    correlations[0] = np.tril(triangle / spread[:, None], -1)
    bends = np.zeros((len(rows), _BENDS))
    # Each bend turns somewhere along one direction of the leaders.
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(_BENDS, num_leaders))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    fields = {
        "mean": mean,
        "axes": scale[:, None] * np.eye(size)[:, order],
        "leader_factor": factor,
        "bend_slopes": directions,
        "bend_offsets": rng.normal(size=_BENDS),
        "centres": centres,
        "centre_slopes": np.hstack([centre_slopes, bends, 0 * centre_slopes]),
        "log_scales": log_scales + np.log(spread),
        "log_scale_slopes": np.hstack([log_scale_slopes, bends]),
        "correlations": correlations,
        "log_det": np.sum(np.log(scale)) + np.sum(np.log(np.diag(factor))),
    }
    return Leaders(**fields)


def _cholesky(y: np.ndarray, weights: np.ndarray, count: float) -> np.ndarray:
    """Root of a covariance, drawn towards its diagonal where particles are few."""
    centred = y - weights @ y
    covariance = (centred * weights[:, None]).T @ centred
    covariance = np.where(np.isfinite(covariance), covariance, 0)
    size = len(covariance)
    share = min(0.9, size / max(count, 1.0)) + 1e-6
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-12))
    return np.linalg.cholesky((1 - share) * covariance + share * diagonal)


def train_leaders(
    key: PRNGKeyArray, density: CountedDensity, first: Leaders
) -> Leaders | None:
    """Let the density say how the others follow the leaders; None if that failed.

    Args:
        key: Random key.
        density: The density.
        first: As `fit_leaders` gives it, without bends.
    """
    trained = _train(key, density.log_density, first)
    density.spend(_STEPS * _BATCH)
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained))
    return trained if finite else None


@quick_jit
def _train(key, log_density, start):
    fixed = lambda tree: (tree.mean, tree.axes, tree.leader_factor, tree.log_det)  # noqa: E731
    learnt = eqx.tree_at(fixed, jax.tree.map(lambda _: True, start), (False,) * 4)
    parameters, rest = eqx.partition(start, learnt)
    optimiser = optax.chain(
        optax.clip_by_global_norm(10.0),
        optax.adam(optax.exponential_decay(_RATES[0], _STEPS, _RATES[1] / _RATES[0])),
    )
    num_leaders = start.num_leaders
    draws = LeadersBase(len(start.mean), num_leaders, 1.0)
    # Adam moves noise as far as signal: in a row of many correlations its steps add
    # up, and the inverse of a matrix full of them grows without bound.
    calm = min(1.0, math.sqrt(_FEW / (len(start.mean) - num_leaders)))

    # Beyond a boundary the density says nothing: there the particles do, by the first
    # map. It has no bends: its correlations are the same for all leaders.
    inverse = jnp.linalg.inv(start.mix(start.given(jnp.zeros(num_leaders))))
    precision = inverse.T @ inverse

    def first_score(leaders, y):
        given = start.given(leaders)
        scales = jnp.exp(given.log_scales)
        return -(precision @ ((y - given.centres) / scales)) / scales

    def combined(parameters):
        conditional = eqx.combine(parameters, rest)
        lower = jnp.tril(conditional.correlations, -1)
        return eqx.tree_at(_of_correlations, conditional, lower)

    def loss(parameters, z):
        conditional = combined(parameters)

        def one_draw(z):
            leaders, others = z[:num_leaders], z[num_leaders:]
            given = conditional.given(leaders)
            y = conditional.others(given, others)
            x = conditional.place(leaders, y)
            pull = _pull(
                conditional, log_density, x, others, given, first_score(leaders, y)
            )
            return -jnp.sum(jax.lax.stop_gradient(pull) * y)

        return jnp.mean(jax.vmap(one_draw)(z))

    def step(carry, key):
        parameters, state = carry
        half = draws.sample(key, (_BATCH // 2,))
        z = jnp.concatenate([half, half.at[:, num_leaders:].multiply(-1)])
        gradient = jax.grad(loss)(parameters, z)
        update, state = optimiser.update(gradient, state, parameters)
        update = eqx.tree_at(_of_correlations, update, calm * update.correlations)
        return (optax.apply_updates(parameters, update), state), None

    carry = (parameters, optimiser.init(parameters))
    (parameters, _), _ = jax.lax.scan(step, carry, jr.split(key, _STEPS))
    return combined(parameters)


def _of_correlations(tree: Leaders):
    return tree.correlations


def _pull(conditional, log_density, x, others, given, score_if_unknown):
    """Where the others should go: the gradient of log p - log q, q being fixed.

    It vanishes when q is right, whatever z, so that learning ends without noise (the
    path gradient). Points far out, where it is steep, count no more than others.
    """
    value, gradient = jax.value_and_grad(log_density)(x)
    score = (gradient @ conditional.axes)[conditional.num_leaders :]
    known = jnp.isfinite(value) & jnp.all(jnp.isfinite(score))
    score = jnp.where(known, score, score_if_unknown)
    scales, mix = jnp.exp(given.log_scales), conditional.mix(given)
    away = jax.scipy.linalg.solve_triangular(mix.T, others, lower=False) / scales
    length = jnp.linalg.norm((scales * score) @ mix + others)
    longest = _STEEPEST * np.sqrt(len(others))
    return (score + away) * jnp.minimum(1, longest / jnp.maximum(length, 1e-30))
