r"""$p(x) = \sum_k w_k \prod_i t_\nu((x_i - m_{ki}) / s) / s$."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import positive_number, whole_number
from annealax.targets._mixture import (
    AbstractMixture,
    component_means,
    normalised_weights,
)


class StudentTMixture(AbstractMixture):
    r"""Mixture of products of Student-t densities; normalised, so log Z = 0.

    Within a component the coordinates are independent, each $t_\nu$ with its own
    location: the tails are heaviest along the axes. This is the choice of Blessing et
    al. (2024), not the elliptical multivariate t, whose coordinates share one scale.

    Args:
        means: Locations, shape (components, dim); means only if `df` is above 1.
        weights: Relative weights, shape (components,); None for equal ones.
        df: Degrees of freedom $\nu$; at 2 or below the variance is infinite.
        scale: Scale $s$ of every coordinate.

    Raises:
        InvalidInputError: If shapes disagree, a number is not finite, or a weight, `df`
            or `scale` is not above 0.
    """

    means: Float[Array, "components dim"]
    log_weights: Float[Array, " components"]
    log_peaks: Float[Array, " components"]
    df: float = eqx.field(static=True)
    scale: float = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(
        self, means: Any, weights: Any = None, *, df: float = 2.0, scale: float = 1.0
    ):
        means = component_means(means)
        count, dim = means.shape
        self.df = positive_number("df", df)
        self.scale = positive_number("scale", scale)
        log_weights = np.log(normalised_weights(weights, count))
        log_peak = (
            math.lgamma(0.5 * (self.df + 1.0))
            - math.lgamma(0.5 * self.df)
            - 0.5 * math.log(math.pi * self.df)
            - math.log(self.scale)
        )
        self.shape = (dim,)
        self.log_normalizer = 0.0
        self.means = jnp.asarray(means)
        self.log_weights = jnp.asarray(log_weights)
        self.log_peaks = jnp.asarray(log_weights + dim * log_peak)

    @classmethod
    def ten_modes(cls, dim: int = 2, seed: int = 0) -> "StudentTMixture":
        """10 equal components of 2 degrees of freedom, means uniform in [-10, 10]^dim.

        The mixture of Blessing et al. (2024), "Beyond ELBOs: a large-scale evaluation
        of variational methods for sampling", with means of our own draw.

        Args:
            dim: Dimension.
            seed: Seed of NumPy's generator for the means.
        """
        shape = (10, whole_number("dim", dim, at_least=1))
        return cls(np.random.default_rng(seed).uniform(-10.0, 10.0, shape))

    def component_log_densities(
        self, x: Float[Array, " dim"]
    ) -> Float[Array, " components"]:
        """The terms: log of weight times product of Student-t densities."""
        _, spread = self._spread(x)
        return self.log_peaks - 0.5 * (self.df + 1.0) * jnp.log(spread).sum(axis=1)

    def weighted_score(
        self, x: Float[Array, " dim"], responsibilities: Float[Array, " components"]
    ) -> Float[Array, " dim"]:
        r"""The sum $-\sum_k r_k (1 + 1/\nu) z_k / (1 + z_k^2 / \nu) / s$."""
        centred, spread = self._spread(x)
        factor = (1.0 + 1.0 / self.df) / self.scale
        return -factor * (responsibilities @ (centred / spread))

    def _spread(self, x: Array) -> tuple[Array, Array]:
        r"""Standardised $z = (x - m_k) / s$ and $1 + z^2 / \nu$."""
        centred = (x - self.means) / self.scale
        return centred, 1.0 + centred * centred / self.df

    def sample(
        self, key: PRNGKeyArray, num_samples: int
    ) -> Float[Array, "num_samples dim"]:
        """Exact, independent draws (by the polar method of Bailey, 1994)."""
        component_key, noise_key = jr.split(key)
        component = jr.categorical(
            component_key, self.log_weights, shape=(num_samples,)
        )
        # If r is the length of a pair of normals z, then z_1 / r times the square root
        # of df (exp(r^2 / df) - 1) is exactly t distributed: no rejection loop.
        shape = (2, num_samples, *self.shape)
        normals = jr.normal(noise_key, shape, self.means.dtype)
        exponent = jnp.sum(normals * normals, axis=0) / self.df
        noise = normals[0] * jnp.sqrt(jnp.expm1(exponent) / exponent)
        return self.means[component] + self.scale * noise
