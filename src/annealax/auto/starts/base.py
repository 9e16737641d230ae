"""What a start is, and what a proposal of one may look at.

A start is a flowjax distribution in two parts: a base distribution of coordinates z,
and a bijection from z to x. Passes start from the base and work in z, where the density
looks tame, so that the start and the preconditioner are one thing.

A proposal is a pure function of what was seen so far, `Seen`, that yields candidates.
`annealax.auto.starts` lists them all.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution, AbstractTransformed
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from annealax._device import to_device
from annealax._estimates import log_mean, pooled_stderr
from annealax._jit import quick_jit
from annealax._path import GeometricPath
from annealax.auto.adaptive_smc import AdaptivePass
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Modes

if TYPE_CHECKING:
    from annealax.auto.climbed import ClimbedTerms
    from annealax.auto.mass_at_modes import MassAtModes
    from annealax.auto.starts.gaussian import Linear
    from annealax.auto.starts.mixture import Peaks


class AbstractBase(AbstractDistribution):
    """Where passes start, in z: draws a whole population from one key."""

    cond_shape: ClassVar[None] = None  # type: ignore[misc]
    is_prior: ClassVar[bool] = False
    """Whether it is the prior: no mass lies where it has none, and weights of passes
    from it are as bounded as the likelihood."""

    @abstractmethod
    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws of shape `sample_shape + shape`."""

    @abstractmethod
    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""

    def _sample(self, key, condition=None):
        return self.sample(key)

    def _log_prob(self, x, condition=None):
        return self.log_prob(x)

    has_parts: ClassVar[bool] = False
    """Whether it has a base of its own for each of two parts of a density."""

    @property
    def num_components(self) -> int:
        """How many components it is a mixture of."""
        return 1

    def component_log_densities(
        self, x: Float[Array, " size"]
    ) -> Float[Array, " components"]:
        """Log of share times density of each component."""
        return self.log_prob(x)[None]


class AbstractCoordinates(AbstractBijection):
    """A map from z to x in which passes may work."""

    cond_shape: ClassVar[None] = None  # type: ignore[misc]

    knows_rulers: ClassVar[bool] = False
    """Whether it undoes that some coordinates set the scales of others."""

    @property
    def leaders(self) -> tuple[int, ...]:
        """Coordinates of x that others follow."""
        return ()

    def positions(self, z: np.ndarray) -> np.ndarray:
        """Where particles are, in x."""
        return np.asarray(_positions(self, to_device(z)))

    def point(self, z: Float[Array, " size"]) -> Array:
        """Where one particle is, in x."""
        return self.transform(z)

    def in_z(self, log_density: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """A density of x as a function of z, with the Jacobian."""
        return InCoordinates(log_density, self)

    @abstractmethod
    def as_affine(self, z: np.ndarray) -> tuple["Linear", np.ndarray]:
        """Affine coordinates near these, and where particles are in them."""

    def gain_needed(self, other: "AbstractCoordinates") -> float:
        """How many times better than a start in other coordinates it must be."""
        del other
        return 1.0


@quick_jit
def _positions(coordinates: AbstractCoordinates, z: Array) -> Array:
    return jax.vmap(coordinates.point)(z)


class InCoordinates(eqx.Module):
    """A density as a function of z, with the Jacobian."""

    log_density: Callable[[Array], Array]
    bijection: AbstractBijection

    def __call__(self, z: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density at the place of z."""
        x, log_det = self.bijection.transform_and_log_det(z)
        return self.log_density(x) + log_det


class Start(AbstractTransformed):
    """Where passes start, and the coordinates that they work in."""

    base_dist: AbstractBase
    bijection: AbstractCoordinates

    def __init__(self, base_dist: AbstractBase, bijection: AbstractCoordinates):
        self.base_dist, self.bijection = base_dist, bijection

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.shape[0]

    @property
    def is_of_modes(self) -> bool:
        """Whether it is a mixture that has a component at every known mode."""
        return self.base_dist.num_components > 1

    @property
    def has_parts(self) -> bool:
        """Whether it has a start of its own for each of two parts."""
        return self.base_dist.has_parts

    def path(
        self, log_density: Callable[[Array], Array], betas: ArrayLike
    ) -> GeometricPath:
        """From the base to the density, in z."""
        target = self.bijection.in_z(log_density)
        return GeometricPath(self.base_dist, target, to_device(betas))


class Candidate(NamedTuple):
    """A start that somebody proposes, and what it is in words."""

    name: str
    start: Start


@dataclasses.dataclass(frozen=True)
class Tried:
    """A start that was tried.

    Attributes:
        name: What it is, in words.
        start: The start.
        passes: What adaptive passes from it found; more than one if the first left a
            doubt.
        lost: Largest share of the mass, at a mode that is known, at which particles of
            the first pass are missing.
    """

    name: str
    start: Start
    passes: tuple[AdaptivePass, ...]
    lost: float = 0.0

    @property
    def first(self) -> AdaptivePass:
        """The first pass, whose particles proposals look at."""
        return self.passes[0]

    @property
    def num_transitions(self) -> int:
        """Temperatures that a pass takes from here."""
        return self.first.num_transitions

    @property
    def log_normalizer(self) -> float:
        """Estimate of log Z by all passes."""
        return log_mean(self._log_normalizers)

    @property
    def stderr(self) -> float:
        """Its standard error: within passes or between them, whichever is larger."""
        if len(self.passes) == 1:
            return self.first.stderr
        stderrs = np.asarray([each.stderr for each in self.passes])
        return pooled_stderr(self._log_normalizers, stderrs)

    @property
    def difficulty(self) -> float:
        """Squared error times work, up to a factor that starts share."""
        return self.stderr**2 * len(self.passes) * self.num_transitions

    @property
    def x(self) -> np.ndarray:
        """Where the particles of the first pass ended."""
        return self.start.bijection.positions(self.first.z)

    @property
    def weights(self) -> np.ndarray:
        """Their weights."""
        return self.first.weights

    @property
    def _log_normalizers(self) -> np.ndarray:
        return np.asarray([each.log_normalizer for each in self.passes])

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.name}: log Z {self.log_normalizer:.2f} +- {self.stderr:.2f}, "
            f"{self.num_transitions} temperatures"
        )


class WideNormal(NamedTuple):
    """A normal wide enough for what is not known: its centre and scales."""

    centre: np.ndarray
    scale: np.ndarray


@dataclasses.dataclass(frozen=True)
class Seen:
    """All that the search for a start has seen so far.

    Attributes:
        density: The density, which counts its evaluations.
        key: Random key; a proposal draws from `named_key(key, ...)`.
        modes: Peaks that ascents found.
        num_peaks: How many of them have the curvature of a peak.
        wide: Covers what is known, with much room.
        at_modes: Mass that lies at known modes for sure; None before there are any.
        terms: What is known of the terms of the density; None if it is not written as
            a sum.
        spots: Gaussians where the density is positive, if it is zero nearly everywhere.
        chance_of_empty: Where the density is zero at nearly all points, probability
            that none fell into a part of it that matters.
        tried: All starts that were tried, in order.
        best: The best of them; None if no pass has come to its end.
    """

    density: CountedDensity
    key: PRNGKeyArray
    modes: Modes
    wide: WideNormal
    num_peaks: int = 0
    at_modes: "MassAtModes | None" = None
    terms: "ClimbedTerms | None" = None
    spots: "Peaks | None" = None
    chance_of_empty: float = 0.0
    tried: tuple[Tried, ...] = ()
    best: Tried | None = None

    @property
    def climbed(self) -> CountedDensity:
        """The density as ascents see it: it shares programs with its terms."""
        return self.density if self.terms is None else self.terms.whole

    @property
    def knows_terms(self) -> bool:
        """Whether the modes of all terms, and so where the mass is, are known.

        Not if the whole density turned out to have more peaks than they.
        """
        if self.terms is None or not self.terms.all_known:
            return False
        found = self.modes.that_count().peaks()
        return len(found.points) <= len(self.terms.peaks.fits)

    def judged(self, tried: Tried) -> Tried:
        """With what it lost of the modes that are known."""
        if self.at_modes is None or not tried.first.usable:
            return tried
        found = (tried.x, tried.weights, tried.log_normalizer)
        return dataclasses.replace(tried, lost=self.at_modes.lost(*found))

    def times(self, name: str) -> int:
        """How often a start of this name was tried."""
        return sum(each.name == name for each in self.tried)
