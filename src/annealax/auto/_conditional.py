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
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.scipy import stats
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._noise import normals
from annealax.auto._hierarchy import fit_coordinate

_BENDS, _TWISTS = 16, 8
_STEPS, _BATCH = 2000, 64
_RATES = (1e-2, 2e-4)
_NARROW, _WIDE, _WIDE_SHARE = 1.2, 4.0, 0.25
_STEEPEST = 10.0
_SQUARE = 0.25
_FEW = 10


class Conditional(eqx.Module):
    """The map above, in standardised coordinates, leaders first."""

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

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.mean.shape[0]

    @property
    def num_leaders(self) -> int:
        """Number of coordinates that rule the others."""
        return self.leader_factor.shape[0]

    @property
    def leaders(self) -> np.ndarray:
        """Which they are."""
        return np.argmax(np.asarray(self.axes)[:, : self.num_leaders], axis=0)

    def initial(self, width: float) -> "LeaderStart":
        """Where passes start, in z: the others from a normal of that width."""
        return LeaderStart(
            self.num_leaders, self.size, jnp.asarray(width, jnp.result_type(float))
        )

    def transform_and_log_det(
        self, z: Float[Array, " size"]
    ) -> tuple[Float[Array, " size"], Float[Array, ""]]:
        """From z to x, and the log Jacobian."""
        leaders, others = z[: self.num_leaders], z[self.num_leaders :]
        given = self.given(leaders)
        x = self.place(leaders, self.others(given, others))
        return x, self.log_det + jnp.sum(given.log_scales)

    def others(self, given: "Given", z: Float[Array, " others"]) -> Array:
        """From z to the others, in standardised coordinates."""
        mixed = z + given.twists @ (self.correlations @ z)
        return given.centres + jnp.exp(given.log_scales) * mixed

    def mix(self, given: "Given") -> Float[Array, "others others"]:
        """From z to the others at unit scales."""
        return jnp.eye(self.size - self.num_leaders) + jnp.tensordot(
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


class LeaderStart(eqx.Module):
    """Each leader from a mixture of a narrow and a wide normal, the others normal.

    Without leaders it is a normal of one width.
    """

    num_leaders: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    width: Float[Array, ""]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one configuration."""
        return (self.size,)

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        """Independent draws."""
        count = self.num_leaders
        drawn = normals(key, sample_shape, count + self.size, self.width.dtype)
        choice, normal = drawn[..., :count], drawn[..., count:]
        leaders = jnp.where(choice < ndtri(_WIDE_SHARE), _WIDE, _NARROW)
        others = jnp.full((*sample_shape, self.size - count), self.width)
        return jnp.concatenate([leaders, others], axis=-1) * normal

    def log_prob(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Normalised log density of one point."""
        leaders, others = x[: self.num_leaders], x[self.num_leaders :]
        of_leaders = jnp.logaddexp(
            math.log(1 - _WIDE_SHARE) + stats.norm.logpdf(leaders, 0, _NARROW),
            math.log(_WIDE_SHARE) + stats.norm.logpdf(leaders, 0, _WIDE),
        )
        return jnp.sum(of_leaders) + jnp.sum(stats.norm.logpdf(others, 0, self.width))


def first_conditional(
    x: np.ndarray, weights: np.ndarray, leaders: np.ndarray
) -> Conditional:
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
    dtype = jnp.result_type(float)
    return Conditional(**{k: jnp.asarray(v, dtype) for k, v in fields.items()})


def _cholesky(y: np.ndarray, weights: np.ndarray, count: float) -> np.ndarray:
    """Root of a covariance, drawn towards its diagonal where particles are few."""
    centred = y - weights @ y
    covariance = (centred * weights[:, None]).T @ centred
    covariance = np.where(np.isfinite(covariance), covariance, 0)
    size = len(covariance)
    share = min(0.9, size / max(count, 1.0)) + 1e-6
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-12))
    return np.linalg.cholesky((1 - share) * covariance + share * diagonal)


class Trained(NamedTuple):
    """A trained map, None if training failed, and what it cost."""

    conditional: Conditional | None
    num_evaluations: int


def train_conditional(
    key: PRNGKeyArray, log_density: Callable[[Array], Array], start: Conditional
) -> Trained:
    """Let the density say how the others follow the leaders.

    Args:
        key: Random key.
        log_density: The density.
        start: As `first_conditional` gives it, without bends.
    """
    trained = _train(key, log_density, start)
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained))
    return Trained(trained if finite else None, _STEPS * _BATCH)


@eqx.filter_jit
def _train(key, log_density, start):
    fixed = lambda tree: (tree.mean, tree.axes, tree.leader_factor, tree.log_det)  # noqa: E731
    learnt = eqx.tree_at(fixed, jax.tree.map(lambda _: True, start), (False,) * 4)
    parameters, rest = eqx.partition(start, learnt)
    optimiser = optax.chain(
        optax.clip_by_global_norm(10.0),
        optax.adam(optax.exponential_decay(_RATES[0], _STEPS, _RATES[1] / _RATES[0])),
    )
    num_leaders = start.num_leaders
    # Adam moves noise as far as signal: in a row of many correlations its steps add
    # up, and the inverse of a matrix full of them grows without bound.
    calm = min(1.0, math.sqrt(_FEW / (start.size - num_leaders)))

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

        def one(z):
            leaders, others = z[:num_leaders], z[num_leaders:]
            given = conditional.given(leaders)
            y = conditional.others(given, others)
            x = conditional.place(leaders, y)
            pull = _pull(
                conditional, log_density, x, others, given, first_score(leaders, y)
            )
            return -jnp.sum(jax.lax.stop_gradient(pull) * y)

        return jnp.mean(jax.vmap(one)(z))

    def step(carry, key):
        parameters, state = carry
        half = start.initial(1.0).sample(key, (_BATCH // 2,))
        z = jnp.concatenate([half, half.at[:, num_leaders:].multiply(-1)])
        gradient = jax.grad(loss)(parameters, z)
        update, state = optimiser.update(gradient, state, parameters)
        update = eqx.tree_at(_of_correlations, update, calm * update.correlations)
        return (optax.apply_updates(parameters, update), state), None

    carry = (parameters, optimiser.init(parameters))
    (parameters, _), _ = jax.lax.scan(step, carry, jr.split(key, _STEPS))
    return combined(parameters)


def _of_correlations(tree: Conditional):
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
