r"""Starts with heavy tails.

Where particles lie further out than a normal allows, a pass from a normal has to carry
them there, and weights of the few that arrive are large. A Student-t distribution has
them there from the beginning. In the coordinates that whiten the scatter within a mode
it comes in two forms, since a fit to one may be poor for the other: coordinates that
are far out independently of each other, and coordinates that are so together,

$$\prod_j \Big(1 + \frac{z_j^2}{\nu}\Big)^{-(\nu + 1) / 2} \qquad\text{and}\qquad
  \Big(1 + \frac{|z|^2}{\nu}\Big)^{-(\nu + d) / 2}.$$

Location, scales and $\nu$ are those of greatest likelihood (expectation maximisation:
a point far out counts less); the likelihood also chooses the form.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Array, Float

from annealax._device import to_device
from annealax._noise import normals
from annealax.auto.starts.base import (
    AbstractBase,
    Candidate,
    Seen,
    Start,
    WideNormal,
)
from annealax.auto.starts.gaussian import Linear, Normals, root_of
from annealax.auto.starts.mixture import (
    MAX_MIXTURE_SIZE,
    enough_particles,
    in_whitened,
    log_densities_of_modes,
    with_wide_share,
)

_FREEDOMS = (30.0, 15.0, 8.0, 5.0, 3.5, 2.5, 1.8, 1.3, 1.0, 0.7, 0.5, 0.35)
"""Degrees of freedom that are tried, until the likelihood falls."""

_ROBUST = 3.0
"""Degrees of freedom by which points far out count less when scatter is measured."""

_ITERATIONS = 20
"""Of expectation maximisation, for each number of degrees of freedom."""

_WORTH = 0.05
"""Nats per particle that heavy tails must gain over a normal."""

_HEAVIER = 0.8
"""Tails of the start are heavier than fitted by this factor, for safety."""

_HEAVY_DRAWS = 4.0
"""Degrees of freedom of draws that are heavier than normal ones for sure."""

_LIGHTER = 0.5
"""Degrees of freedom of draws heavier than those of a Student's t, as a share."""

_CHANCE = 4.0
"""Correlations below so many standard errors are taken for chance."""

_ENOUGH = 5
"""Particles per dimension from which on correlations are measured at all."""


class Students(AbstractBase):
    """A mixture of Student-t distributions of one kind.

    Args:
        means: Location of each component.
        scales: Scale of each coordinate in each component.
        shares: Weights of the components; their sum is 1.
        freedom: Degrees of freedom, of all components.
        together: Whether coordinates are far out together, not independently.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    means: Float[Array, "components size"]
    scales: Float[Array, "components size"]
    log_shares: Float[Array, " components"]
    freedom: Float[Array, ""]
    together: bool = eqx.field(static=True)

    def __init__(self, means, scales, shares, freedom: float, *, together: bool):
        self.means = to_device(means)
        self.shape = self.means.shape[1:]
        self.scales = to_device(scales)
        self.log_shares = to_device(np.log(shares))
        self.freedom = to_device(freedom)
        self.together = together

    @property
    def num_components(self) -> int:
        """Number of components."""
        return len(self.means)

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        size = self.means.shape[1]
        drawn = normals(key, sample_shape, 2 * size + 1, self.means.dtype)
        first, second = drawn[..., :size], drawn[..., size:-1]
        below = jnp.cumsum(jnp.exp(self.log_shares))[:-1]
        component = jnp.searchsorted(below, ndtr(drawn[..., -1]), side="right")
        freedom = self.freedom
        if self.together:
            freedom = freedom + jnp.arange(size)
        # Exactly Student-t, from the length of a pair of normals (Bailey, 1994).
        exponent = (first * first + second * second) / freedom
        t = first * jnp.sqrt(jnp.expm1(exponent) / exponent)
        if self.together:
            # Given those before it, a coordinate has a degree of freedom more for each
            # of them, and a scale that grows with their length.
            grown = jnp.log1p(t * t / freedom)
            before = jnp.cumsum(grown, axis=-1) - grown
            t = t * jnp.sqrt(self.freedom / freedom) * jnp.exp(0.5 * before)
        return self.means[component] + self.scales[component] * t

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        return jax.nn.logsumexp(self.component_log_densities(x))

    def component_log_densities(
        self, x: Float[Array, " size"]
    ) -> Float[Array, " components"]:
        """Log of share times density of each component."""
        z = (x - self.means) / self.scales
        log_t = _log_student(z, self.freedom, jnp, gammaln, together=self.together)
        return self.log_shares - jnp.sum(jnp.log(self.scales), axis=1) + log_t


def _log_student(z, freedom, xp, log_gamma: Callable, *, together: bool):
    """Log density of rows of standardised coordinates."""
    count = z.shape[-1]
    size = count if together else 1
    log_peak = (
        log_gamma(0.5 * (freedom + size))
        - log_gamma(0.5 * freedom)
        - 0.5 * size * xp.log(xp.pi * freedom)
    )
    square = z * z / freedom
    if together:
        return log_peak - 0.5 * (freedom + size) * xp.log1p(xp.sum(square, axis=-1))
    tails = xp.sum(xp.log1p(square), axis=-1)
    return count * log_peak - 0.5 * (freedom + 1) * tails


def propose_tails(seen: Seen) -> Iterator[Candidate]:
    """A start with heavy tails, if the particles of the best so far have them."""
    best = seen.best
    assert best is not None
    affine = isinstance(best.start.bijection, Linear)
    if not affine or best.start.size > MAX_MIXTURE_SIZE:
        return
    tailed = with_tails(best.start, best.first.z, best.weights, seen.wide)
    if tailed is not None:
        modes = " at modes" if tailed.is_of_modes else ""
        yield Candidate(f"Student-t fitted to the particles{modes}", tailed)


def with_tails(
    start: Start, z: np.ndarray, weights: np.ndarray, wide: WideNormal
) -> Start | None:
    """Student-t distributions fitted to the particles, if their tails are heavy.

    One of them if the start has one mode, or particles enough for one only; else one at
    every mode, and a wide one.
    """
    x = start.bijection.positions(z)
    size = x.shape[1]
    labels = np.zeros(len(x), int)
    if start.is_of_modes:
        log_parts = log_densities_of_modes(start, z)
        count = log_parts.shape[1]
        shares = np.bincount(log_parts.argmax(axis=1), weights, count)
        log_parts = log_parts[:, enough_particles(shares, weights, size)]
        if log_parts.shape[1] > 1:
            labels = log_parts.argmax(axis=1)
    tails = fit_tails(x, weights, labels)
    if tails is None:
        return None
    shares = np.bincount(labels, weights)
    origin = shares @ tails.means
    inverse = np.linalg.inv(tails.factor)
    places, scales = (tails.means - origin) @ inverse.T, tails.scales
    if len(places) > 1:
        place, variance = in_whitened(wide, origin, inverse)
        places = np.concatenate([places, [place]])
        scales = np.concatenate([scales, [np.sqrt(variance)]])
        shares = with_wide_share(shares)
    base = Students(places, scales, shares, tails.freedom, together=tails.together)
    return Start(base, Linear(origin, tails.factor))


def with_heavier_draws(start: Start) -> Start | None:
    """Heavier draws in the same coordinates; None unless these are normal or Student's.

    Half-Cauchy scales, say, have logarithms whose tails are exponential.
    """
    base = start.base_dist
    if isinstance(base, Students):
        heavier: AbstractBase = eqx.tree_at(
            lambda each: each.freedom, base, _LIGHTER * base.freedom
        )
    elif isinstance(base, Normals):
        one = np.ones((1, start.size))
        heavier = Students(0 * one, one, np.ones(1), _HEAVY_DRAWS, together=False)
    else:
        return None
    return Start(heavier, start.bijection)


class Tails(NamedTuple):
    """Student-t distributions fitted to groups of particles.

    Attributes:
        factor: x = factor z; in z the scatter within groups is white.
        means: Location of each group, in x.
        scales: Scale of each coordinate of z, in each group.
        freedom: Degrees of freedom.
        together: The form, as in `Students`.
    """

    factor: np.ndarray
    means: np.ndarray
    scales: np.ndarray
    freedom: float
    together: bool


def fit_tails(x: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> Tails | None:
    """Fit to particles in groups; None if normal distributions do nearly as well.

    Args:
        x: Particles.
        weights: Their weights, which sum to 1.
        labels: Which group each belongs to, from 0; each has some weight.
    """
    if not (np.isfinite(x).all() and (np.ptp(x, axis=0) > 0).all()):
        return None
    members = np.eye(labels.max() + 1)[labels] * weights[:, None]
    members /= members.sum(axis=0)
    from scipy import special  # noqa: PLC0415 (importing it takes a while)

    location, factor = _whiten(x, weights, labels, members)
    inverse = np.linalg.inv(factor)
    z, places = x @ inverse.T, location @ inverse.T
    normal = np.sqrt(members.T @ (z - (members.T @ z)[labels]) ** 2)
    log_normal = (
        -0.5 * x.shape[1] * (1 + np.log(2 * np.pi))
        - weights @ np.sum(np.log(normal), axis=1)[labels]
    )
    best, best_value = None, log_normal + _WORTH
    for together in (False, True):
        means, scales, last = places, np.ones_like(places), -np.inf
        for freedom in _FREEDOMS:
            for _ in range(_ITERATIONS):
                means, scales = _maximise(
                    z, labels, members, means, scales, freedom, together
                )
            standard = (z - means[labels]) / scales[labels]
            log_t = _log_student(
                standard, freedom, np, special.gammaln, together=together
            )
            value = weights @ (log_t - np.sum(np.log(scales), axis=1)[labels])
            if value < last:
                break
            last = value
            if value > best_value:
                best_value = value
                heavier = _HEAVIER * freedom
                best = Tails(factor, means @ factor.T, scales, heavier, together)
    return best


def _maximise(z, labels, members, means, scales, freedom, together):
    """Expectation maximisation, one step: points far out count less."""
    square = ((z - means[labels]) / scales[labels]) ** 2
    if together:
        size = z.shape[1]
        counts = (freedom + size) / (freedom + square.sum(axis=1, keepdims=True))
    else:
        counts = (freedom + 1) / (freedom + square)
    counts = np.broadcast_to(counts, z.shape)
    means = members.T @ (counts * z) / (members.T @ counts)
    scales = np.sqrt(members.T @ (counts * (z - means[labels]) ** 2))
    return means, np.maximum(scales, 1e-6)


def _whiten(x, weights, labels, members):
    """Locations, and a root of the scatter within groups, which no few points rule."""
    size = x.shape[1]
    count = 1 / np.sum(weights**2)
    groups = [x[labels == group] for group in range(members.shape[1])]
    location = np.stack([np.median(each, axis=0) for each in groups])
    away = np.median(np.abs(x - location[labels]), axis=0)
    scatter = np.diag(np.maximum(away, 1e-12 * away.max() + 1e-100) ** 2)
    for _ in range(_ITERATIONS):
        centred = x - location[labels]
        distance = np.sum(centred * np.linalg.solve(scatter, centred.T).T, axis=1)
        counts = (_ROBUST + size) / (_ROBUST + distance)
        rule = members * counts[:, None]
        location = rule.T @ x / rule.sum(axis=0)[:, None]
        centred = x - location[labels]
        scatter = (centred * (weights * counts)[:, None]).T @ centred
        alone = np.diag(np.diag(scatter))
        scatter = scatter + 1e-9 * alone if count >= _ENOUGH * size else alone
    return location, root_of(scatter, _CHANCE / np.sqrt(count))
