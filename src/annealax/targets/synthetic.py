"""Densities of one formula with a known log Z: a normal, a funnel, many wells."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import finite_array, finite_number, positive_number, whole_number
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration


class Normal(AbstractTarget):
    r"""Gaussian $Z \, N(m, C)$ with any mean, covariance $C = L L^T$ and $Z$.

    $$ \log p(x) = \log Z - \tfrac12 |L^{-1}(x - m)|^2 - \log|L| - \tfrac d2\log 2\pi $$

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


class Funnel(AbstractTarget):
    r"""Neal's funnel: $x_0 \sim N(0, s^2)$, then $x_i \mid x_0 \sim N(0, e^{x_0})$.

    Normalised, so log Z = 0. Reference: Neal (2003), "Slice sampling", section 8.

    Args:
        dim: Dimension, 2 or more.
        scale: Standard deviation $s$ of $x_0$.
    """

    scale: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(self, dim: int = 10, scale: float = 3.0):
        self.shape = (whole_number("dim", dim, at_least=2),)
        self.scale = positive_number("scale", scale)
        self.log_normalizer = 0.0

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point."""
        check_configuration(self.shape, x)
        (dim,) = self.shape
        log_variance, rest = x[0], x[1:]
        standardised = log_variance / self.scale
        log_peak = -math.log(self.scale) - 0.5 * dim * math.log(2.0 * math.pi)
        return log_peak - 0.5 * (
            standardised * standardised
            + (dim - 1) * log_variance
            + jnp.exp(-log_variance) * jnp.sum(rest * rest)
        )

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws."""
        noise = jr.normal(key, (num_samples, *self.shape))
        log_variance = self.scale * noise[:, :1]
        rest = jnp.exp(0.5 * log_variance) * noise[:, 1:]
        return jnp.concatenate([log_variance, rest], axis=1)


class ManyWell(AbstractTarget):
    r"""Independent pairs of a double well $a$ and a standard normal $b$.

    $$ \log p(x) = \sum_j (-a_j^4 + 6 a_j^2 + a_j/2 - b_j^2/2) $$

    Coordinates alternate, $x = (a_1, b_1, a_2, b_2, \dots)$. Each well has a minor mode
    near $a = -1.7$ and a major one near $a = 1.8$, so there are $2^{d/2}$ modes.
    References: Wu, Koehler and Noe (2020), "Stochastic normalizing flows"; Midgley et
    al. (2023), "Flow annealed importance sampling bootstrap".

    Args:
        dim: Dimension, even.

    Attributes:
        log_normalizer: Exact log Z, by quadrature at construction.
        positive_probability: Exact probability that a well has $a > 0$.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)
    positive_probability: float = eqx.field(static=True)

    def __init__(self, dim: int = 32):
        dim = whole_number("dim", dim, at_least=2)
        if dim % 2:
            raise InvalidInputError(
                f"dim must be even, since coordinates come in pairs, got {dim}; use "
                f"{dim - 1} or {dim + 1}."
            )
        negative, positive = _well_masses()
        log_pair = math.log(negative + positive) + 0.5 * math.log(2.0 * math.pi)
        self.shape = (dim,)
        self.log_normalizer = dim // 2 * log_pair
        self.positive_probability = positive / (negative + positive)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point, not normalised."""
        check_configuration(self.shape, x)
        square = x * x
        well = square * (6.0 - square) + 0.5 * x
        # A mask is half the time of slicing the pairs apart (gradients, 2 CPU cores).
        return jnp.sum(jnp.where(_is_well(x), well, -0.5 * square))

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """The fraction of wells on the positive side; see `positive_probability`."""

        def positive_fraction(x: Array) -> Array:
            return 2.0 * jnp.mean(_is_well(x) & (x > 0.0), dtype=x.dtype)

        return {"positive_fraction": positive_fraction}


def _is_well(x: Array) -> Array:
    return jnp.arange(x.size) % 2 == 0


def _well_masses() -> tuple[float, float]:
    """Integrals of the double well over negative and over positive $a$."""
    # Past 6 the integrand is below exp(-1000); the integrand is entire, so that 200
    # Gauss-Legendre nodes on [0, 6] reach the rounding error of float64.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = 3.0 * (nodes + 1.0), 3.0 * weights

    def mass(a: np.ndarray) -> float:
        return float(weights @ np.exp(-(a**4) + 6.0 * a**2 + 0.5 * a))

    return mass(-nodes), mass(nodes)
