r"""$\log p(x) = \log Z - \tfrac12 |L^{-1}(x - m)|^2 - \log|L| - \tfrac d2\log 2\pi$."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import finite_array, finite_number, whole_number
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration


class Normal(AbstractTarget):
    r"""Gaussian $Z \, N(m, C)$ with any mean, covariance $C = L L^T$ and $Z$.

    The covariance is factorised once, here, in float64. The density multiplies by
    $L^{-1}$ rather than by the precision matrix, whose float32 quadratic form would
    lose as many digits as $C$ has in its condition number, not half as many.

    Args:
        mean: Mean; its shape is the shape of a configuration.
        covariance: None for the identity, variances of the shape of `mean`, or, for a
            vector `mean`, a full matrix.
        log_normalizer: The log normalising constant, added to the log density.

    Raises:
        InvalidInputError: If shapes disagree, a number is not finite, or the covariance
            is not symmetric and positive definite.
    """

    mean: Float[Array, "*shape"]
    factor: Float[Array, "*shape"] | Float[Array, "dim dim"]
    whitening: Float[Array, "*shape"] | Float[Array, "dim dim"]
    log_peak: Float[Array, ""]
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(
        self, mean: Any, covariance: Any = None, *, log_normalizer: float = 0.0
    ):
        mean = finite_array("mean", mean)
        log_normalizer = finite_number("log_normalizer", log_normalizer)
        if covariance is None:
            covariance = np.ones(mean.shape)
        covariance = finite_array("covariance", covariance)
        if covariance.shape == mean.shape:
            factor = standard_deviations("covariance", covariance)
            whitening = 1.0 / factor
            log_determinant = np.log(factor).sum()
        elif mean.ndim == 1 and covariance.shape == 2 * mean.shape:
            factor = cholesky("covariance", covariance)
            whitening = np.tril(np.linalg.inv(factor))
            log_determinant = np.log(np.diagonal(factor)).sum()
        else:
            raise InvalidInputError(
                f"covariance of shape {covariance.shape} does not fit a mean of shape "
                f"{mean.shape}; give variances of that same shape, or, for a vector "
                "mean, a square matrix."
            )
        self.shape = mean.shape
        self.log_normalizer = log_normalizer
        self.mean = jnp.asarray(mean)
        self.factor = jnp.asarray(factor)
        self.whitening = jnp.asarray(whitening)
        self.log_peak = jnp.asarray(
            log_normalizer - log_determinant - 0.5 * mean.size * math.log(2.0 * math.pi)
        )

    @classmethod
    def ill_conditioned(
        cls,
        key: PRNGKeyArray,
        dim: int,
        condition_number: float,
        *,
        log_normalizer: float = 0.0,
    ) -> "Normal":
        r"""A badly scaled, correlated and shifted Gaussian.

        The eigenvalues of the covariance are spaced geometrically from
        $\kappa^{-1/2}$ to $\kappa^{1/2}$, its eigenvectors are uniform over rotations,
        and the mean is standard normal.

        Args:
            key: Key for the eigenvectors and the mean.
            dim: Dimension, 2 or more.
            condition_number: Ratio $\kappa$ of largest to smallest eigenvalue, in
                [1, 1e12] so that float64 can factorise the covariance.
            log_normalizer: The log normalising constant.
        """
        dim = whole_number("dim", dim, at_least=2)
        condition_number = finite_number("condition_number", condition_number)
        if not 1.0 <= condition_number <= 1e12:
            raise InvalidInputError(
                f"condition_number must lie in [1, 1e12], got {condition_number}."
            )
        # Always float32 draws, so that the target does not depend on the precision.
        normals = np.asarray(jr.normal(key, (dim + 1, dim), jnp.float32), np.float64)
        rotation, upper = np.linalg.qr(normals[1:])
        rotation = rotation * np.sign(np.diagonal(upper))  # makes it Haar distributed
        eigenvalues = condition_number ** np.linspace(-0.5, 0.5, dim)
        covariance = (rotation * eigenvalues) @ rotation.T
        return cls(normals[0], covariance, log_normalizer=log_normalizer)

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        check_configuration(self.shape, x)
        centred = x - self.mean
        if self.whitening.shape == self.shape:
            white = self.whitening * centred
        else:
            white = self.whitening @ centred
        return self.log_peak - 0.5 * jnp.sum(white * white)

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, " num_samples *shape"]:
        """Exact, independent draws."""
        noise = jr.normal(key, (num_samples, *self.shape), self.mean.dtype)
        if self.factor.shape == self.shape:
            return self.mean + self.factor * noise
        return self.mean + noise @ self.factor.T


def cholesky(name: str, covariance: np.ndarray) -> np.ndarray:
    """Cholesky factors of covariances of shape (..., dim, dim), in float64."""
    transposed = np.swapaxes(covariance, -1, -2)
    # Loose enough for a matrix that was computed in float32.
    asymmetry, size = np.abs(covariance - transposed).max(), np.abs(covariance).max()
    if asymmetry > 1e-5 * size:
        raise InvalidInputError(
            f"{name} must be symmetric, but entries differ from their mirror image by "
            f"up to {asymmetry:.3g}; pass (C + C.T) / 2 if that is what is meant."
        )
    symmetric = 0.5 * (covariance + transposed)
    try:
        return np.linalg.cholesky(symmetric)
    except np.linalg.LinAlgError:
        raise InvalidInputError(
            f"{name} must be positive definite, but its smallest eigenvalue is "
            f"{np.linalg.eigvalsh(symmetric).min():.3g}; remove redundant coordinates "
            "or add a small multiple of the identity."
        ) from None


def standard_deviations(name: str, variances: np.ndarray) -> np.ndarray:
    """Square roots of variances, refused unless all are above 0."""
    if np.any(variances <= 0):
        raise InvalidInputError(
            f"{name} holds variances, which must be above 0, got {variances}."
        )
    return np.sqrt(variances)
