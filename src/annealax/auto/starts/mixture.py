r"""Starts with a Gaussian at every known mode, and a wide one for the unknown.

The shares of the modes are then right from the beginning, and need not be carried by
weights after barriers have risen between them. The wide component reaches what ascents
did not find. All components share the coordinates that whiten the average covariance
within a mode; in these each is diagonal, so that the start costs no more than one
distance per mode.

Two starts may agree on log Z and yet each miss what the other sees: a narrow spike on a
wide slab of the same mass. The particles show it: those of one lie far outside of those
of the other, or there are too few of the other where the one says that much mass is.
Then both get a Gaussian.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Modes
from annealax.auto.starts.base import (
    AbstractBase,
    Candidate,
    Seen,
    Start,
    Tried,
    WideNormal,
)
from annealax.auto.starts.gaussian import (
    Linear,
    laplace,
    matrix_of,
    moments,
    normal_start,
    root_of,
    widening,
)
from annealax.targets import GaussianMixture

MAX_MIXTURE_SIZE = 256
"""In more dimensions a covariance for each mode costs too much to find and to use."""

_WIDE_SHARE = 0.2
"""Weight of the wide component: unknown modes shall get some particles."""

_SAME_PEAK = 0.3
"""Peaks so near, in standard deviations, are one."""

_LOWEST_SHARE = -8.0
"""Log of the smallest weight of a mode relative to the largest: masses are guesses."""

_ROOM = 2.0
"""An ellipsoid around particles reaches so many times further than they do."""

_COUNTS = 0.02
"""A region with less than this share of the mass is left to the wide component."""

_LACKS = 0.5
"""A region is missed where less than this share of its mass was seen."""


class Gaussians(AbstractBase):
    """A mixture of Gaussians."""

    shape: tuple[int, ...] = eqx.field(static=True)
    mixture: GaussianMixture

    def __init__(self, mixture: GaussianMixture):
        self.shape, self.mixture = mixture.shape, mixture

    @property
    def num_components(self) -> int:
        """How many there are."""
        return len(self.mixture.means)

    @property
    def means(self) -> Array:
        """Where they are."""
        return self.mixture.means

    @property
    def scales(self) -> Array:
        """Their standard deviations."""
        return self.mixture.factors

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        draws = self.mixture.sample(key, int(np.prod(sample_shape)))
        return draws.reshape(*sample_shape, *self.shape)

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        return self.mixture(x)

    def component_log_densities(
        self, x: Float[Array, " size"]
    ) -> Float[Array, " components"]:
        """Log of share times density of each component."""
        return self.mixture.component_log_densities(x)


class Peaks(NamedTuple):
    """Gaussians at peaks (Laplace).

    Attributes:
        fits: One for each peak.
        log_masses: Log of the mass of each, up to a constant that they share.
    """

    fits: tuple[Linear, ...]
    log_masses: tuple[float, ...]

    def and_new(self, others: "Peaks") -> "Peaks":
        """These, and those of the others that are not among them."""
        new = [
            (fit, log_mass)
            for fit, log_mass in zip(*others, strict=True)
            if all(_distance(fit, known) > _SAME_PEAK for known in self.fits)
        ]
        return Peaks(
            (*self.fits, *(fit for fit, _ in new)),
            (*self.log_masses, *(log_mass for _, log_mass in new)),
        )


def peaks_at(density: CountedDensity, modes: Modes) -> Peaks:
    """Newton's method from every mode, the highest first; each end counts once.

    Ascents along a curved ridge may tire before they meet at its top.
    """
    fits: list[Linear] = []
    log_masses = []
    for point, height in zip(modes.points, modes.log_densities, strict=True):
        fit = laplace(density, point)
        if fit is None or any(_distance(fit, other) < _SAME_PEAK for other in fits):
            continue
        fits.append(fit)
        log_masses.append(float(height) + float(fit.log_det))
    return Peaks(tuple(fits), tuple(log_masses))


def _distance(fit: Linear, other: Linear) -> float:
    """Between centres, in standard deviations of the other."""
    away = np.asarray(fit.mean, np.float64) - np.asarray(other.mean, np.float64)
    return float(np.linalg.norm(np.linalg.solve(np.asarray(other.factor), away)))


def start_at_peaks(peaks: Peaks, wide: WideNormal) -> Candidate | None:
    """A Gaussian at every peak, and a wide one if there are several; None for none."""
    count = len(peaks.fits)
    if count == 0:
        return None
    if count == 1:
        start = normal_start(peaks.fits[0])
        return Candidate("Gaussian at the mode (Laplace)", start)
    start = gaussians_at(peaks, wide)
    return Candidate(f"Gaussians at {count} modes and a wide one", start)


def gaussians_at(peaks: Peaks, wide: WideNormal | None) -> Start:
    """A Gaussian at every peak, and a wide one unless it is None."""
    if len(peaks.fits) == 1 and wide is None:
        return normal_start(peaks.fits[0])
    means = [np.asarray(each.mean, np.float64) for each in peaks.fits]
    factors = [matrix_of(each) for each in peaks.fits]
    covariances = [factor @ factor.T for factor in factors]
    log_masses = np.asarray(peaks.log_masses)
    largest = log_masses.max()
    if np.isfinite(largest):
        shares = np.exp(np.maximum(log_masses - largest, _LOWEST_SHARE))
    else:
        shares = np.ones(len(log_masses))  # nothing is known of any
    return mixture_of(np.asarray(means), covariances, shares / shares.sum(), wide)


def propose_refit(seen: Seen) -> Iterator[Candidate]:
    """The mixture of the best start, fitted to its particles."""
    best = seen.best
    assert best is not None
    if best.start.is_of_modes:
        refit = refit_mixture(best.start, best.first.z, best.weights, seen.wide)
        if refit is not None:
            yield Candidate("Gaussians fitted to the particles at modes", refit)


def refit_mixture(
    start: Start, z: np.ndarray, weights: np.ndarray, wide: WideNormal
) -> Start | None:
    """One step of expectation maximisation on particles; the wide normal stays.

    So does a component with too few particles to be fitted to: without it the mode
    would be left to the wide normal, and weights there would be large.
    """
    log_parts = log_densities_of_modes(start, z)
    parts = np.exp(log_parts - log_parts.max(axis=1, keepdims=True))
    parts *= (weights / parts.sum(axis=1))[:, None]
    linear, _ = start.bijection.as_affine(z)
    x = linear.positions(z)
    size, shares = x.shape[1], parts.sum(axis=0)
    enough = enough_particles(shares, weights, size)
    if enough.sum() < 2:
        return None
    base: Any = start.base_dist
    means = linear.positions(np.asarray(base.means, np.float64)[:-1])
    scales = np.asarray(base.scales, np.float64)[:-1]
    root = np.asarray(linear.factor, np.float64)[None] * scales[:, None, :]
    covariances = root @ root.swapaxes(1, 2) / widening(size) ** 2
    for column in np.flatnonzero(enough):
        share = parts[:, column] / shares[column]
        means[column], covariances[column] = moments(x, share)
    shares = np.maximum(shares, 1 / len(x))
    return mixture_of(means, list(covariances), shares / shares.sum(), wide)


def log_densities_of_modes(start: Start, z: np.ndarray) -> np.ndarray:
    """Log densities at particles, of all components but the wide one, the last."""
    densities = _component_log_densities(start.base_dist, to_device(z))
    return np.asarray(densities, np.float64)[:, :-1]


@quick_jit
def _component_log_densities(base: AbstractBase, z: Array) -> Array:
    return jax.vmap(base.component_log_densities)(z)


def enough_particles(shares: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Which components have enough particles to be fitted to them."""
    return 1 / np.sum(weights**2) * shares > max(10, 2 * np.sqrt(size))


def mixture_of(
    means: np.ndarray,
    covariances: Sequence[np.ndarray],
    shares: np.ndarray,
    wide: WideNormal | None,
) -> Start:
    """Gaussians and a wide normal, in coordinates that whiten their mean covariance.

    Args:
        means: Means of the Gaussians.
        covariances: Their covariances.
        shares: Their weights, which sum to 1.
        wide: The wide normal; None for none.
    """
    size = means.shape[1]
    within = np.tensordot(shares, np.asarray(covariances), 1)
    factor = root_of(within)
    inverse = np.linalg.inv(factor)
    origin = shares @ means
    places = (means - origin) @ inverse.T
    variances = np.stack(
        [np.diag(inverse @ covariance @ inverse.T) for covariance in covariances]
    )
    variances = np.maximum(variances, 1e-8) * widening(size) ** 2
    if wide is not None:
        place, variance = in_whitened(wide, origin, inverse)
        places = np.concatenate([places, [place]])
        variances = np.concatenate([variances, [variance]])
        shares = with_wide_share(shares)
    mixture = GaussianMixture(places, variances, shares)
    return Start(Gaussians(mixture), Linear(origin, factor))


def in_whitened(
    wide: WideNormal, origin: np.ndarray, inverse: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variances of the wide normal in z = inverse (x - origin)."""
    variance = np.diag(inverse @ np.diag(wide.scale**2) @ inverse.T)
    return (wide.centre - origin) @ inverse.T, variance


def with_wide_share(shares: np.ndarray) -> np.ndarray:
    """Weights of the modes and, last, of the wide component."""
    return np.concatenate([(1 - _WIDE_SHARE) * shares, [_WIDE_SHARE]])


def propose_regions(seen: Seen) -> Iterator[Candidate]:
    """A mixture with what another start found far from the best so far."""
    best = seen.best
    assert best is not None
    if best.start.size > MAX_MIXTURE_SIZE:
        return
    cloud = cloud_of(best)
    for each in seen.tried:
        if each is not best and each.first.usable:
            mixture = with_region(cloud, cloud_of(each), seen.wide)
            if mixture is not None:
                name = "Gaussians where two starts ended, and a wide one"
                yield Candidate(name, mixture)
                return


class Cloud(NamedTuple):
    """Where the particles of a start ended.

    Attributes:
        x: Particles.
        weights: Their weights, which sum to 1.
        log_mass: Estimate of log Z.
    """

    x: np.ndarray
    weights: np.ndarray
    log_mass: float


def cloud_of(tried: Tried) -> Cloud:
    """Where the particles of its first pass ended."""
    x = np.asarray(tried.x, np.float64)
    return Cloud(x, tried.weights, tried.first.log_normalizer)


def with_region(cloud: Cloud, other: Cloud, wide: WideNormal) -> Start | None:
    """Gaussians for a cloud and for what another has that it lacks, if that counts.

    Args:
        cloud: The best so far.
        other: What may have more.
        wide: The wide normal that also belongs to a mixture.
    """
    first, second = _ellipsoid(cloud), _ellipsoid(other)
    if first is None or second is None:
        return None
    ratio = np.exp(np.minimum(other.log_mass - cloud.log_mass, 50.0))
    beyond = np.where(first.contains(other.x), 0, other.weights)
    within = second.contains(cloud.x) @ cloud.weights
    if (mass := ratio * beyond.sum()) > _COUNTS:
        missed = beyond / beyond.sum()
    elif ratio > _COUNTS and within < _LACKS * ratio:
        # A narrow one that lies inside of it, where it has next to nothing.
        missed, mass = other.weights, ratio
    else:
        return None
    mean, covariance = moments(other.x, missed)
    means = np.stack([first.mean, mean])
    shares = np.array([1.0, mass]) / (1 + mass)
    return mixture_of(means, [first.covariance, covariance], shares, wide)


class _Ellipsoid(NamedTuple):
    """Around all particles that have weight, with much room between."""

    mean: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    reach: float

    def contains(self, x: np.ndarray) -> np.ndarray:
        return _distances(x, self.mean, self.factor) <= self.reach


def _ellipsoid(cloud: Cloud) -> _Ellipsoid | None:
    mean, covariance = moments(cloud.x, cloud.weights)
    diagonal = np.diag(np.diag(covariance))
    if not np.isfinite(covariance).all():
        return None
    try:
        factor = np.linalg.cholesky(covariance + 1e-9 * diagonal)
    except np.linalg.LinAlgError:
        return None
    distances = _distances(cloud.x[cloud.weights > 0], mean, factor)
    return _Ellipsoid(mean, covariance, factor, _ROOM * float(distances.max()))


def _distances(x: np.ndarray, mean: np.ndarray, factor: np.ndarray) -> np.ndarray:
    return np.linalg.norm(np.linalg.solve(factor, (x - mean).T), axis=0)
