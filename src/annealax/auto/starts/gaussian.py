r"""Starts that are normal: affine coordinates :math:`x = m + F z`, and z normal.

They come from the curvature at a peak (Laplace) or from the moments of particles.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, ArrayLike, Float

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax._noise import normals
from annealax._path import sanitise
from annealax.auto.density import CountedDensity
from annealax.auto.starts.base import (
    AbstractBase,
    AbstractCoordinates,
    Candidate,
    Seen,
    Start,
)

MAX_FULL_SIZE = 2000
"""Up to this dimension a full matrix is used: its product costs little beside HMC."""

_NEWTON_STEPS = 40
"""Newton's method either arrives within these or goes nowhere."""


class Normals(AbstractBase):
    """Independent normal numbers of one width."""

    shape: tuple[int, ...] = eqx.field(static=True)
    width: Float[Array, ""]

    def __init__(self, size: int, width: ArrayLike):
        self.shape, self.width = (size,), to_device(width)

    def sample(self, key, sample_shape=(), condition=None):
        """Independent draws."""
        (size,) = self.shape
        return self.width * normals(key, sample_shape, size, self.width.dtype)

    def log_prob(self, x, condition=None):
        """Normalised log density of one point."""
        return jnp.sum(stats.norm.logpdf(x, 0, self.width))


class Linear(AbstractCoordinates):
    """An affine map from z to x.

    Args:
        mean: Where z = 0 goes.
        factor: A matrix, or a vector that stands for a diagonal one.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    mean: Float[Array, " size"]
    factor: Float[Array, " size"] | Float[Array, "size size"]
    log_det: Float[Array, ""]

    def __init__(self, mean: ArrayLike, factor: ArrayLike):
        self.mean = to_device(mean)
        self.shape = self.mean.shape
        self.factor = to_device(factor)
        exact = np.asarray(factor, np.float64)
        if exact.ndim == 1:
            log_det = np.sum(np.log(np.abs(exact)))
        else:
            log_det = np.linalg.slogdet(np.asarray(self.factor, np.float64))[1]
        self.log_det = to_device(log_det)

    @classmethod
    def scaled(cls, mean: ArrayLike, scale: ArrayLike) -> "Linear":
        """Independent coordinates; a full matrix where that is affordable.

        A full matrix from the beginning lets all of them share compiled programs.
        """
        scale = np.broadcast_to(np.asarray(scale, np.float64), np.shape(mean))
        full = len(scale) <= MAX_FULL_SIZE
        return cls(mean, np.diag(scale) if full else scale)

    @classmethod
    def identity(cls, size: int) -> "Linear":
        """The same coordinates."""
        return cls.scaled(np.zeros(size), 1.0)

    def transform_and_log_det(self, x, condition=None):
        """From z to x, and the log Jacobian."""
        if self.factor.ndim == 1:
            return self.mean + self.factor * x, self.log_det
        return self.mean + self.factor @ x, self.log_det

    def inverse_and_log_det(self, y, condition=None):
        """From x to z, and the log Jacobian."""
        if self.factor.ndim == 1:
            return (y - self.mean) / self.factor, -self.log_det
        return jnp.linalg.solve(self.factor, y - self.mean), -self.log_det

    def positions(self, z: np.ndarray) -> np.ndarray:
        """Where particles are, in x, in double precision."""
        factor = np.asarray(self.factor, np.float64)
        z = np.asarray(z, np.float64)
        moved = z * factor if factor.ndim == 1 else z @ factor.T
        return np.asarray(self.mean, np.float64) + moved

    def as_affine(self, z: np.ndarray) -> tuple["Linear", np.ndarray]:
        """These coordinates themselves."""
        return self, z

    def after(self, mean: np.ndarray, factor: np.ndarray) -> "Linear":
        """The map z -> self(mean + factor z), composed in float64."""
        outer = np.asarray(self.factor, np.float64)
        centre = np.asarray(self.mean, np.float64)
        if outer.ndim == 1:
            scale = factor if factor.ndim == 1 else np.diag(factor)
            return Linear(centre + outer * mean, outer * scale)
        inner = np.diag(factor) if factor.ndim == 1 else factor
        return Linear(centre + outer @ mean, outer @ inner)


def matrix_of(linear: Linear) -> np.ndarray:
    """Its factor as a matrix, in double precision."""
    factor = np.asarray(linear.factor, np.float64)
    return np.diag(factor) if factor.ndim == 1 else factor


def distances(linear: Linear, x: np.ndarray) -> np.ndarray:
    """How far points are from the place of z = 0, in z."""
    away = x - np.asarray(linear.mean, np.float64)
    return np.linalg.norm(np.linalg.solve(matrix_of(linear), away.T), axis=0)


def normal_start(bijection: AbstractCoordinates) -> Start:
    """A normal in these coordinates, somewhat wider than the standard one."""
    (size,) = bijection.shape
    return Start(Normals(size, widening(size)), bijection)


def widening(size: int) -> float:
    """How much wider than fitted a start is.

    In few dimensions a lot, for safety; in many dimensions so much that the start and
    an exact fit are about one nat apart.
    """
    return float(np.sqrt(1 + min(0.5, 2 / np.sqrt(size))))


def propose_moments(seen: Seen) -> Iterator[Candidate]:
    """A normal with the mean and covariance of the best start's particles."""
    best = seen.best
    assert best is not None
    if best.start.bijection.leaders or best.start.is_of_modes:
        return
    linear, z = best.start.bijection.as_affine(best.first.z)
    fitted, kind = from_moments(linear, z, best.weights)
    yield Candidate(f"mean and covariance of particles ({kind})", normal_start(fitted))


def moments(x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of weighted particles."""
    mean = weights @ x
    centred = x - mean
    return mean, (centred * weights[:, None]).T @ centred


def root_of(covariance: np.ndarray, chance: float = 0.0) -> np.ndarray:
    """A factor that turns axes as little as can be.

    Args:
        covariance: A covariance matrix.
        chance: Correlations below this count for nothing, if what is left is one.
    """
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scale, scale)
    clear = np.where(np.abs(correlation) < chance, 0, correlation)
    if chance and np.linalg.eigvalsh(clear)[0] > 1e-2:
        correlation = clear
    values, vectors = np.linalg.eigh(correlation + 1e-3 * np.eye(len(scale)))
    return scale[:, None] * ((vectors * np.sqrt(np.maximum(values, 1e-6))) @ vectors.T)


def from_moments(
    linear: Linear, z: np.ndarray, weights: np.ndarray
) -> tuple[Linear, str]:
    """Coordinates by mean and covariance of weighted particles, and their kind.

    With few particles for the dimension, only directions whose variance stands out of
    what chance gives (the Marchenko-Pastur edge) are trusted beyond the scales.
    """
    z = np.asarray(z, np.float64)
    weights = np.asarray(weights, np.float64)
    mean = weights @ z
    centred = z - mean
    variance = weights @ centred**2
    scale = np.sqrt(np.maximum(variance, 1e-12 * max(variance.max(), 1e-300)))
    if linear.factor.ndim == 1:
        return linear.after(mean, scale), "diagonal"
    size = z.shape[1]
    count = 1 / np.sum(weights**2)
    standard = centred / scale
    correlation = (standard * weights[:, None]).T @ standard
    values, vectors = np.linalg.eigh(correlation)
    if count >= 5 * size:
        kept, kind = np.ones(size, bool), "full"
        values = np.maximum(values, 1e-6 * values.max())
    else:
        kept = values > (1 + np.sqrt(size / count)) ** 2
        kind = f"scales and {kept.sum()} directions"
    roots = np.where(kept, np.sqrt(np.maximum(values, 1e-12)), 1.0)
    factor = scale[:, None] * ((vectors * roots) @ vectors.T)
    return linear.after(mean, factor), kind


def laplace(density: CountedDensity, start: np.ndarray) -> Linear | None:
    """Newton's method from `start`, damped, and the curvature where it ends.

    None if that is not the curvature of a peak.
    """
    x = np.asarray(start, np.float64)
    value, gradient, hessian = _curvature(density, x)
    damping = 0.0
    for _ in range(_NEWTON_STEPS):
        if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
            return None
        factor = _cholesky(-hessian, damping)
        if factor is None:
            damping = max(4 * damping, 1e-4 * np.abs(np.diag(hessian)).max(), 1e-8)
            if not np.isfinite(damping) or damping > 1e12:
                return None
            continue
        step = np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
        decrement = float(gradient @ step)
        if damping == 0 and decrement < 1e-2:
            # x = m + F z with F F^T the inverse of the precision L L^T.
            return Linear(x + step, np.linalg.inv(factor).T)
        new = _curvature(density, x + step)
        if new.value >= value - 1e-3 * abs(value) - 1e-3 and np.isfinite(new.value):
            x, (value, gradient, hessian) = x + step, new
            damping = 0.0 if damping < 1e-6 else damping / 10
            damping = damping if _cholesky(-hessian, 0.0) is None else 0.0
        else:
            damping = max(10 * damping, 1e-3 * np.abs(np.diag(hessian)).max())
    return None


def _cholesky(matrix: np.ndarray, damping: float) -> np.ndarray | None:
    try:
        return np.linalg.cholesky(matrix + damping * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return None


class _Curvature(NamedTuple):
    value: float
    gradient: np.ndarray
    hessian: np.ndarray


def _curvature(density: CountedDensity, x: np.ndarray) -> _Curvature:
    point = to_device(x)
    value, gradient, hessian = jax.device_get(
        _curvature_compiled(density.log_density, point)
    )
    density.spend(len(x) + 2)  # a column of the Hessian costs a gradient
    hessian = np.asarray(hessian, np.float64)
    gradient = np.asarray(gradient, np.float64)
    return _Curvature(float(value), gradient, 0.5 * (hessian + hessian.T))


@quick_jit
def _curvature_compiled(log_density: Callable[[Array], Array], x: Array):
    def gradient(x):
        return jax.grad(lambda y: sanitise(log_density(y)))(x)

    def column(direction):
        return jax.jvp(gradient, (x,), (direction,))[1]

    basis = jnp.eye(x.shape[0], dtype=x.dtype)
    hessian = jax.lax.map(column, basis, batch_size=min(256, x.shape[0]))
    return sanitise(log_density(x)), gradient(x), hessian
