r"""A start for densities of unlike parts: each part has a start of its own.

A division writes a density as a sum of parts: its terms, or what is inside of
ellipsoids around some modes and the rest. Coordinates that make one part tame, those of
a funnel, say, need not know the others.

One more coordinate u, standard normal, says which of the parts a particle is in. With
:math:`s_j` the share of draws of part j, :math:`p_j` the part itself, and :math:`T_j`
its coordinates, passes sample

$$\gamma(u, z) = \frac{\phi(u)}{s_j}\, p_j(T_j z)\, |\det \nabla T_j(z)|,
    \qquad j = j(u),$$

whose integral is that of the density. All else is as with any other start: weights and
resampling move particles from a part that had too many to one that had too few.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, Float, Int

from annealax._device import to_device
from annealax._noise import normals
from annealax.auto.starts.base import AbstractBase, AbstractCoordinates, Start
from annealax.auto.starts.gaussian import Linear, matrix_of

_STEEP = 24.0
"""How fast a part falls beyond its edge: as this power of the distance."""

_CENTRE = 1e-12
"""Squared distances from a centre are no smaller, so that their logs have a slope."""

_LEAST_SHARE = 0.1
"""Of the draws, divided by the number of parts: masses are guesses."""

_NEEDED = 0.5
"""Gain needed over a start for all of it, whose tails one of the parts may outgrow."""


class AbstractDivision(eqx.Module):
    """A density as a sum of parts."""

    num_parts: eqx.AbstractVar[int]

    @abstractmethod
    def log_part(
        self,
        log_density: Callable[[Array], Array],
        x: Float[Array, " size"],
        index: Int[Array, ""],
    ) -> Float[Array, ""]:
        """Log density of a part. The index is data: all parts are one program."""


class Ellipsoids(AbstractDivision):
    """What is outside (0) and inside (1) of ellipsoids with soft edges.

    Args:
        fits: Gaussians in the middle of them.
        radii: How many standard deviations each reaches.
    """

    num_parts: int = eqx.field(static=True, default=2, init=False)
    means: Float[Array, "modes size"]
    inverses: Float[Array, "modes size size"]
    log_radii: Float[Array, " modes"]

    def __init__(self, fits: Sequence[Linear], radii: Sequence[float]):
        self.num_parts = 2
        self.means = to_device(np.stack([np.asarray(fit.mean) for fit in fits]))
        inverses = [np.linalg.inv(matrix_of(fit)) for fit in fits]
        self.inverses = to_device(np.stack(inverses))
        self.log_radii = to_device(np.log(np.asarray(radii, np.float64)))

    def log_shares(self, x: Float[Array, " size"]) -> Float[Array, "2"]:
        """Logs of the shares of a point that are outside and inside."""
        away = jnp.einsum("kij,kj->ki", self.inverses, x - self.means)
        log_distances = 0.5 * jnp.log(jnp.sum(away * away, axis=1) + _CENTRE)
        inside = jax.nn.logsumexp(_STEEP * (self.log_radii - log_distances))
        both = jnp.stack([jnp.zeros_like(inside), inside])
        return both - jnp.logaddexp(0.0, inside)

    def log_part(self, log_density, x, index):
        """Log density of a part."""
        return log_density(x) + self.log_shares(x)[index]


class Part(eqx.Module):
    """A part of a density as a density of its own."""

    log_density: Callable[[Array], Array]
    division: AbstractDivision
    index: Int[Array, ""]

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        division: AbstractDivision,
        index: int,
    ):
        self.log_density, self.division = log_density, division
        self.index = to_device(index, np.int32)

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density of the part."""
        return self.division.log_part(self.log_density, x, self.index)


class Label(eqx.Module):
    """Which part a number u says.

    Args:
        shares: Share of the draws of each part; they add up to one.
    """

    log_shares: Float[Array, " parts"]
    edges: Float[Array, " edges"]

    def __init__(self, shares: np.ndarray):
        from scipy.special import ndtri  # noqa: PLC0415 (importing it takes a while)

        self.log_shares = to_device(np.log(shares))
        self.edges = to_device(ndtri(np.cumsum(shares)[:-1]))

    def of(self, u: Float[Array, "..."]) -> Int[Array, "..."]:
        """Index of the part."""
        return jnp.sum(u[..., None] > self.edges, axis=-1)


class OfParts(AbstractBase):
    """Where passes start: u, and a draw from the base of the part that it says."""

    has_parts: ClassVar[bool] = True
    shape: tuple[int, ...] = eqx.field(static=True)
    bases: tuple[AbstractBase, ...]
    label: Label

    def __init__(self, bases: Sequence[AbstractBase], label: Label):
        (size,) = bases[0].shape
        self.shape, self.bases, self.label = (1 + size,), tuple(bases), label

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        key, *keys = jr.split(key, 1 + len(self.bases))
        u = normals(key, sample_shape, 1, self.label.edges.dtype)
        index = self.label.of(u)
        z = jnp.zeros((*sample_shape, *self.bases[0].shape), u.dtype)
        for part, (base, subkey) in enumerate(zip(self.bases, keys, strict=True)):
            z = jnp.where(index == part, base.sample(subkey, sample_shape), z)
        return jnp.concatenate([u, z], axis=-1)

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        u, z = x[0], x[1:]
        each = jnp.stack([base.log_prob(z) for base in self.bases])
        return stats.norm.logpdf(u) + each[self.label.of(u)]


class Parts(AbstractCoordinates):
    """u, and the coordinates of the part that it says.

    Args:
        maps: Coordinates of each part.
        division: What divides the density.
        label: Which part a number says.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    maps: tuple[AbstractCoordinates, ...]
    division: AbstractDivision
    label: Label

    def __init__(
        self,
        maps: Sequence[AbstractCoordinates],
        division: AbstractDivision,
        label: Label,
    ):
        (size,) = maps[0].shape
        self.shape = (1 + size,)
        self.maps, self.division, self.label = tuple(maps), division, label

    @property
    def knows_rulers(self) -> bool:  # type: ignore[override]
        """Whether one of its maps undoes that coordinates set the scales of others."""
        return any(each.knows_rulers for each in self.maps)

    @property
    def leaders(self) -> tuple[int, ...]:
        """Coordinates of x that others follow."""
        return tuple(dict.fromkeys(i for each in self.maps for i in each.leaders))

    def gain_needed(self, other: AbstractCoordinates) -> float:
        """Less than others."""
        del other
        return _NEEDED

    def transform_and_log_det(self, x, condition=None):
        """From (u, z) to (u, x), and the log Jacobian."""
        return self._mapped([each.transform_and_log_det for each in self.maps], x)

    def inverse_and_log_det(self, y, condition=None):
        """From (u, x) to (u, z), and the log Jacobian."""
        return self._mapped([each.inverse_and_log_det for each in self.maps], y)

    def _mapped(self, maps, point):
        u, z = point[0], point[1:]
        index = self.label.of(u)
        found, log_dets = zip(*(each(z) for each in maps), strict=True)
        chosen = jnp.stack(found)[index]
        return jnp.concatenate([u[None], chosen]), jnp.stack(log_dets)[index]

    def point(self, z):
        """Where a particle is, in x."""
        return self.transform(z)[1:]

    def in_z(self, log_density):
        """A density of x as a function of (u, z)."""
        return _InParts(log_density, self)

    def as_affine(self, z: np.ndarray) -> tuple[Linear, np.ndarray]:
        """The coordinates of x."""
        return Linear.identity(self.shape[0] - 1), self.positions(z)


class _InParts(eqx.Module):
    """A density as a function of (u, z)."""

    log_density: Callable[[Array], Array]
    parts: Parts

    def __call__(self, z: Float[Array, " size"]) -> Float[Array, ""]:
        placed, log_det = self.parts.transform_and_log_det(z)
        u, x, label = placed[0], placed[1:], self.parts.label
        index = label.of(u)
        value = self.parts.division.log_part(self.log_density, x, index)
        return value + log_det + stats.norm.logpdf(u) - label.log_shares[index]


def start_of_parts(
    starts: Sequence[Start], division: AbstractDivision, shares: np.ndarray
) -> Start:
    """Several starts, each for its own part.

    Args:
        starts: One for each part.
        division: What divides the density.
        shares: About how much of the mass is in each.
    """
    shares = np.maximum(shares / shares.sum(), _LEAST_SHARE / len(starts))
    label = Label(shares / shares.sum())
    base = OfParts([each.base_dist for each in starts], label)
    maps = [each.bijection for each in starts]
    return Start(base, Parts(maps, division, label))
