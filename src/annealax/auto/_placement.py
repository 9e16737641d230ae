r"""Coordinates in which a density looks like a standard normal, as far as known.

A placement is an affine map :math:`x = m + F z`. The sampler works in :math:`z`: it
starts from a normal a little wider than the standard one, and its kernel sees a density
without strong correlations. The start and the preconditioner are one thing.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from annealax._path import GeometricPath, InitialDistribution, sanitise
from annealax.auto._conditional import Conditional, LeaderStart
from annealax.auto._hierarchy import Hierarchy

MAX_FULL_SIZE = 2000
"""Up to this dimension a full matrix is used."""

_NEWTON_STEPS = 40


class Placement(eqx.Module):
    """An affine map from z to x.

    Args:
        mean: Where z = 0 goes.
        factor: A matrix, or a vector that stands for a diagonal one.
        initial: Where passes start, in z; None for a normal somewhat wider than the
            standard one.
    """

    mean: Float[Array, " size"]
    factor: Float[Array, " size"] | Float[Array, "size size"]
    log_det: Float[Array, ""]
    initial: InitialDistribution | None

    def __init__(
        self,
        mean: ArrayLike,
        factor: ArrayLike,
        initial: InitialDistribution | None = None,
    ):
        self.initial = initial
        self.mean = jnp.asarray(mean, jnp.result_type(float))
        self.factor = jnp.asarray(factor, jnp.result_type(float))
        exact = np.asarray(factor, np.float64)
        if exact.ndim == 1:
            log_det = np.sum(np.log(np.abs(exact)))
        else:
            log_det = np.linalg.slogdet(np.asarray(self.factor, np.float64))[1]
        self.log_det = jnp.asarray(log_det, jnp.result_type(float))

    @classmethod
    def scaled(cls, mean: ArrayLike, scale: ArrayLike) -> "Placement":
        """Independent coordinates; a full matrix where that is affordable.

        A full matrix from the beginning lets all placements share compiled programs.
        """
        scale = np.broadcast_to(np.asarray(scale, np.float64), np.shape(mean))
        full = len(scale) <= MAX_FULL_SIZE
        return cls(mean, np.diag(scale) if full else scale)

    @property
    def size(self) -> int:
        """Number of dimensions."""
        return self.mean.shape[0]

    def transform_and_log_det(
        self, z: Float[Array, " size"]
    ) -> tuple[Float[Array, " size"], Float[Array, ""]]:
        """From z to x, and the log Jacobian."""
        if self.factor.ndim == 1:
            return self.mean + self.factor * z, self.log_det
        return self.mean + self.factor @ z, self.log_det

    def after(self, mean: np.ndarray, factor: np.ndarray) -> "Placement":
        """The placement z -> self(mean + factor z), composed in float64."""
        outer = np.asarray(self.factor, np.float64)
        centre = np.asarray(self.mean, np.float64)
        if outer.ndim == 1:
            scale = factor if factor.ndim == 1 else np.diag(factor)
            return Placement(centre + outer * mean, outer * scale)
        inner = np.diag(factor) if factor.ndim == 1 else factor
        return Placement(centre + outer @ mean, outer @ inner)


Coordinates = Placement | Hierarchy | Conditional
"""Maps from z to x in which passes may work."""


class Placed(eqx.Module):
    """A density in the coordinates of a placement."""

    log_density: Callable[[Array], Array]
    placement: Coordinates

    def __call__(self, z: Float[Array, " size"]) -> Float[Array, ""]:
        """Log density at the place of z, with the Jacobian."""
        x, log_det = self.placement.transform_and_log_det(z)
        return self.log_density(x) + log_det


def placed_path(
    log_density: Callable[[Array], Array],
    placement: Coordinates,
    betas: ArrayLike,
) -> GeometricPath:
    """From a normal to the density, in the coordinates of the placement."""
    size = placement.size
    width = widening(size)
    initial: InitialDistribution
    if isinstance(placement, Conditional):
        initial = placement.initial(width)
    elif isinstance(placement, Placement) and placement.initial is not None:
        initial = placement.initial
    else:
        initial = LeaderStart(0, size, jnp.asarray(width, jnp.result_type(float)))
    return GeometricPath(initial, Placed(log_density, placement), betas)


def positions(placement: Coordinates, z: np.ndarray) -> np.ndarray:
    """Where particles are, in double precision for affine placements."""
    if isinstance(placement, Placement):
        factor = np.asarray(placement.factor, np.float64)
        z = np.asarray(z, np.float64)
        moved = z * factor if factor.ndim == 1 else z @ factor.T
        return np.asarray(placement.mean, np.float64) + moved
    return np.asarray(
        jax.vmap(lambda each: placement.transform_and_log_det(each)[0])(jnp.asarray(z))
    )


def widening(size: int) -> float:
    """How much wider than fitted a start is.

    In few dimensions a lot, for safety; in many dimensions so much that the start and
    an exact fit are about one nat apart.
    """
    return float(np.sqrt(1 + min(0.5, 2 / np.sqrt(size))))


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
    placement: Placement, z: np.ndarray, weights: np.ndarray
) -> tuple[Placement, str]:
    """The placement by mean and covariance of weighted particles, and its kind.

    With few particles for the dimension, only directions whose variance stands out of
    what chance gives (the Marchenko-Pastur edge) are trusted beyond the scales.
    """
    z = np.asarray(z, np.float64)
    weights = np.asarray(weights, np.float64)
    mean = weights @ z
    centred = z - mean
    variance = weights @ centred**2
    scale = np.sqrt(np.maximum(variance, 1e-12 * max(variance.max(), 1e-300)))
    if placement.factor.ndim == 1:
        return placement.after(mean, scale), "diagonal"
    size = placement.size
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
    return placement.after(mean, factor), kind


class Laplace(NamedTuple):
    """A Gaussian at a peak, if there is one.

    Attributes:
        placement: The fit; None if the curvature is not that of a peak.
        num_evaluations: Gradient evaluations made (a Hessian counts its columns).
    """

    placement: Placement | None
    num_evaluations: int


def laplace(log_density: Callable[[Array], Array], start: np.ndarray) -> Laplace:
    """Newton's method from `start`, damped, and the curvature where it ends."""
    size, count = len(start), 0
    x = np.asarray(start, np.float64)
    value, gradient, hessian = _curvature(log_density, x)
    damping = 0.0
    for _ in range(_NEWTON_STEPS):
        count += size + 2
        if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
            return Laplace(None, count)
        factor = _cholesky(-hessian, damping)
        if factor is None:
            damping = max(4 * damping, 1e-4 * np.abs(np.diag(hessian)).max(), 1e-8)
            if not np.isfinite(damping) or damping > 1e12:
                return Laplace(None, count)
            continue
        step = np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
        decrement = float(gradient @ step)
        if damping == 0 and decrement < 1e-2:
            # x = m + F z with F F^T the inverse of the precision L L^T.
            return Laplace(Placement(x + step, np.linalg.inv(factor).T), count)
        new = _curvature(log_density, x + step)
        if new[0] >= value - 1e-3 * abs(value) - 1e-3 and np.isfinite(new[0]):
            x, (value, gradient, hessian) = x + step, new
            damping = 0.0 if damping < 1e-6 else damping / 10
            damping = damping if _cholesky(-hessian, 0.0) is None else 0.0
        else:
            damping = max(10 * damping, 1e-3 * np.abs(np.diag(hessian)).max())
    return Laplace(None, count)


def _cholesky(matrix: np.ndarray, damping: float) -> np.ndarray | None:
    try:
        return np.linalg.cholesky(matrix + damping * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return None


def _curvature(
    log_density: Callable[[Array], Array], x: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    value, gradient, hessian = jax.device_get(
        _curvature_compiled(log_density, jnp.asarray(x, jnp.result_type(float)))
    )
    hessian = np.asarray(hessian, np.float64)
    return (
        float(value),
        np.asarray(gradient, np.float64),
        0.5 * (hessian + hessian.T),
    )


@eqx.filter_jit
def _curvature_compiled(log_density, x):
    def gradient(x):
        return jax.grad(lambda y: sanitise(log_density(y)))(x)

    def column(direction):
        return jax.jvp(gradient, (x,), (direction,))[1]

    basis = jnp.eye(x.shape[0], dtype=x.dtype)
    hessian = jax.lax.map(column, basis, batch_size=min(256, x.shape[0]))
    return sanitise(log_density(x)), gradient(x), hessian
