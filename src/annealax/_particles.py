r"""Weighted particles, and what can be read off them.

The error bar of a single run goes through the genealogy: each particle carries the
index of its ancestor among the initial draws (its *root*), and the weights summed by
root play the role of independent contributions (Chan and Lai 2013, Lee and Whiteley
2018). With $S$ the sum of squares of those summed weights,

$$\widehat{\mathrm{Var}}(\hat Z)/\hat Z^2
    = 1 - \frac{N}{N - 1} \prod_p \frac{1}{1 - c_p} \, (1 - S),$$

where the product runs over the resampling events and $c_p$ is the chance that
two particles merge there through the noise of selection alone, which does not move
$\hat Z$. It is $1/N$ for multinomial resampling, which gives Lee and
Whiteley's estimator; other schemes make less noise (`annealax._resampling`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from annealax._layout import Layout, Mapped


class Particles(eqx.Module):
    r"""The particle approximation at one temperature.

    Attributes:
        x: Configurations.
        log_density: Unnormalised log density of each at this temperature.
        log_weights: Normalised log weights, log W in the paper.
        log_normalizer: Running estimate of log Z.
        roots: Index of each particle's ancestor among the initial draws.
        log_selection: Sum of $\log(1 - c_p)$ over the resampling events so far.
        log_choices: Log probability of the accept and reject decisions behind each
            particle, for the score term of Proposition 1.
    """

    x: Float[Array, "particles *shape"]
    log_density: Float[Array, " particles"]
    log_weights: Float[Array, " particles"]
    log_normalizer: Float[Array, ""]
    roots: Int[Array, " particles"]
    log_selection: Float[Array, ""]
    log_choices: Float[Array, " particles"]

    @classmethod
    def uniform(
        cls, x: Array, log_density: Array, layout: Layout | None = None
    ) -> "Particles":
        """Equally weighted draws from the initial distribution.

        Args:
            x: The draws.
            log_density: Their log densities.
            layout: Where they are; None for all in one block.
        """
        layout = layout or Layout(x.shape[0], x.shape[0])
        dtype, n = log_density.dtype, layout.num_particles
        there = layout.index < n
        return cls(
            x=x,
            log_density=log_density,
            log_weights=jnp.where(there, jnp.asarray(-np.log(n), dtype), -jnp.inf),
            log_normalizer=jnp.zeros((), dtype),
            roots=layout.index,
            log_selection=jnp.zeros((), dtype),
            log_choices=jnp.zeros_like(log_density),
        )

    def everywhere(self, layout: Layout) -> "Particles":
        """The whole population, gathered from the devices that it is spread over."""
        here = (self.x, self.log_density, self.log_weights, self.roots)
        x, log_density, log_weights, roots = layout.gather(here)
        return dataclasses.replace(
            self,
            x=x,
            log_density=log_density,
            log_weights=log_weights,
            roots=roots,
            log_choices=layout.gather(self.log_choices),
        )

    @property
    def num_particles(self) -> int:
        """Number of particles, N in the paper."""
        return self.log_weights.shape[0]

    @property
    def weights(self) -> Float[Array, " particles"]:
        """Normalised weights, W in the paper."""
        return jnp.exp(self.log_weights)

    @property
    def log_normalizer_variance(self) -> Float[Array, ""]:
        """Estimated variance of log Z (relative variance of Z) from this one run."""
        n = self.num_particles
        if n == 1:
            return jnp.full((), jnp.inf, self.log_weights.dtype)
        by_root = jax.ops.segment_sum(self.weights, self.roots, n)
        # 1 - a (1 - S) with log a small: written so that it does not cancel.
        log_a = -jnp.log1p(-1 / n) - self.log_selection
        total = jnp.sum(by_root * by_root)
        return jnp.maximum(total - jnp.expm1(log_a) * (1 - total), 0)

    def expectation(self, function: Callable[[Array], Any]) -> Any:
        """Weighted average of a function of one configuration."""
        values = jax.vmap(function)(self.x)
        return jax.tree.map(lambda leaf: weighted_mean(self.weights, leaf), values)

    def expectation_stderr(self, function: Callable[[Array], Array]) -> Array:
        """Standard error of `expectation` from this one run."""
        values = jax.vmap(function)(self.x)
        centred = values - weighted_mean(self.weights, values)
        scaled = _expand(self.weights, centred) * jnp.where(
            _expand(self.weights, centred) > 0, centred, 0
        )
        by_root = jax.ops.segment_sum(scaled, self.roots, self.num_particles)
        return jnp.sqrt(jnp.sum(by_root * by_root, axis=0))


class Sums(NamedTuple):
    """Sums of weights, as logarithms or as parts of them.

    Attributes:
        top: The largest log weight.
        first: Sum of the weights, in units of the largest.
        second: Sum of their squares, in units of the largest squared.
    """

    top: Float[Array, "*blocks"]
    first: Float[Array, "*blocks"]
    second: Float[Array, "*blocks"]

    @classmethod
    def of_block(cls, log_weights: Float[Array, " particles"]) -> "Sums":
        """Those of one block."""
        top = jnp.max(log_weights)
        weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(top), top, 0))
        return cls(top, jnp.sum(weights), jnp.sum(weights * weights))

    def together(self) -> "Sums":
        """Those of all blocks together."""
        top = jnp.max(self.top)
        unit = jnp.exp(self.top - jnp.where(jnp.isfinite(top), top, 0))
        return Sums(top, jnp.sum(self.first * unit), jnp.sum(self.second * unit**2))

    @property
    def log_sum(self) -> Float[Array, "*blocks"]:
        """Logarithm of the sum of the weights; -inf if all are zero."""
        return self.top + jnp.log(self.first)

    @property
    def effective_sample_size(self) -> Float[Array, "*blocks"]:
        """Effective sample size, between 1 and N; NaN if all weights are zero."""
        return self.first * self.first / self.second


def effective_sample_size(
    log_weights: Float[Array, " particles"], layout: Layout | None = None
) -> Float[Array, ""]:
    """Effective sample size of log weights, between 1 and N.

    Args:
        log_weights: Those of the particles here.
        layout: Where the particles are; None for all in one block.
    """
    n = log_weights.shape[0]
    layout = layout or Layout(n, n)

    def of_block(first, log_weights):
        counted = jnp.where(layout.valid(first), log_weights, -jnp.inf)
        return Mapped(numbers=Sums.of_block(counted))

    return layout.map(of_block, log_weights).numbers.together().effective_sample_size


def weighted_mean(weights: Float[Array, " particles"], values: Array) -> Array:
    """Mean of `values` over the first axis; particles of weight zero do not count."""
    weight = _expand(weights, values)
    return jnp.sum(jnp.where(weight > 0, weight * values, 0), axis=0)


def _expand(weights: Array, values: Array) -> Array:
    return weights.reshape(weights.shape + (1,) * (values.ndim - 1))
