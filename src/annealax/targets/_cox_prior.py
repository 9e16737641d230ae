"""A Cox process under a prior whose parameters may be traced: to learn them.

The covariance is factorised when the density is built, not when it is evaluated.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from annealax.targets._reflection import covariance_blocks, fold, log_det_fold
from annealax.targets._validation import check_configuration


class CoxDensity(eqx.Module):
    """Log density of the (whitened) field, differentiable in all parameters.

    Args:
        counts: Number of points in each cell.
        covariance: Prior covariance, of shape (columns, rows, columns, rows).
        mean: Prior mean.
        whitened: Whether the configuration is the whitened field.
    """

    counts: Float[Array, "columns rows"]
    factors: tuple[Array, ...]  # transposed: the Cholesky factor, or inverses of four
    mean: Float[Array, ""]
    log_constant: Float[Array, ""]
    whitened: bool = eqx.field(static=True)

    def __init__(
        self,
        counts: Float[Array, "columns rows"],
        covariance: Float[Array, "columns rows columns rows"],
        mean: Float[Array, ""],
        *,
        whitened: bool,
    ):
        self.counts, self.mean, self.whitened = counts, mean, whitened
        size = counts.size
        constant = jnp.asarray(-0.5 * size * math.log(2 * math.pi), counts.dtype)
        if whitened:
            self.factors = (jnp.linalg.cholesky(covariance.reshape(size, size)).T,)
            self.log_constant = constant
            return
        blocks = [jnp.linalg.cholesky(block) for block in covariance_blocks(covariance)]
        half_log_det = sum(jnp.sum(jnp.log(jnp.diagonal(block))) for block in blocks)
        self.log_constant = constant + log_det_fold(*counts.shape) - half_log_det
        self.factors = tuple(
            solve_triangular(
                block, jnp.eye(len(block), dtype=block.dtype), lower=True
            ).T
            for block in blocks
        )

    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log density of one configuration."""
        if x.shape != self.counts.shape:
            check_configuration((self.counts.size,), x)
        if self.whitened:
            field = self.mean + _product(x, self.factors[0])
            prior = -0.5 * jnp.sum(x * x)
        else:
            field = x
            centred = x.reshape(self.counts.shape) - self.mean
            white = map(_product, fold(centred), self.factors)
            prior = -0.5 * jnp.sum(jnp.stack([jnp.sum(part**2) for part in white]))
        field = field.reshape(self.counts.shape)
        likelihood = jnp.sum(self.counts * field - jnp.exp(field) / self.counts.size)
        return self.log_constant + prior + likelihood


def _product(x: Array, factor: Array) -> Array:
    return jnp.matmul(x.reshape(-1), factor, precision="highest")
