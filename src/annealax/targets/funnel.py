r"""$\log p(x) = \log N(x_0; 0, s^2) + \sum_{i \ge 1} \log N(x_i; 0, e^{x_0})$."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import positive_number, whole_number
from annealax.targets.base import AbstractTarget, check_configuration


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
