r"""Mixtures: $\log p(x) = \log \sum_k w_k p_k(x)$, with $r_k = w_k p_k(x) / p(x)$."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from annealax._checks import finite_array
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration


class AbstractMixture(AbstractTarget):
    """A finite mixture, whose components share one family."""

    @abstractmethod
    def component_log_densities(
        self, x: Float[Array, " dim"]
    ) -> Float[Array, " components"]:
        r"""The terms $\log (w_k p_k(x))$ of the mixture."""

    @abstractmethod
    def weighted_score(
        self, x: Float[Array, " dim"], responsibilities: Float[Array, " components"]
    ) -> Float[Array, " dim"]:
        r"""The sum $\sum_k r_k \nabla \log p_k(x)$ for given $r$."""

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of one point."""
        check_configuration(self.shape, x)
        return _log_density(self, x)

    def mode_of(self, x: Float[Array, " dim"]) -> Int[Array, ""]:
        """Index of the component that is most responsible for one point."""
        return jnp.argmax(self.component_log_densities(x))


# The gradient is given because autodiff goes through the (particles, components, dim)
# array a second time, where one product with the responsibilities does: 2.5 times
# faster for 40 components in 50 dimensions. Derivatives of any order and in both
# modes work, since the rule is itself made of differentiable operations.
@eqx.filter_custom_jvp
def _log_density(mixture: AbstractMixture, x: Array) -> Array:
    return logsumexp(mixture.component_log_densities(x))


@_log_density.def_jvp
def _log_density_jvp(primals, tangents):
    mixture, x = primals
    mixture_tangent, x_tangent = tangents
    terms = mixture.component_log_densities(x)
    value = logsumexp(terms)
    tangent = jnp.zeros_like(value)
    if x_tangent is not None:
        score = mixture.weighted_score(x, jax.nn.softmax(terms))
        tangent = jnp.vdot(score, x_tangent)
    if jax.tree.leaves(mixture_tangent):  # the parameters too: leave them to autodiff
        _, change = eqx.filter_jvp(
            lambda m: logsumexp(m.component_log_densities(x)),
            (mixture,),
            (mixture_tangent,),
        )
        tangent = tangent + change
    return value, tangent


def component_means(value: Any) -> np.ndarray:
    """Means of shape (components, dim)."""
    means = finite_array("means", value)
    if means.ndim != 2:
        raise InvalidInputError(
            f"means must have shape (components, dim), got {means.shape}; for one "
            "component pass means[None]."
        )
    return means


def normalised_weights(weights: Any, num_components: int) -> np.ndarray:
    """Component weights that sum to 1; None means equal weights."""
    if weights is None:
        return np.full(num_components, 1.0 / num_components)
    weights = finite_array("weights", weights)
    if weights.shape != (num_components,):
        raise InvalidInputError(
            f"weights must have shape ({num_components},), one per row of means, got "
            f"{weights.shape}."
        )
    if np.any(weights <= 0):
        raise InvalidInputError(
            f"weights must be above 0, got {weights}; leave out components of weight 0."
        )
    return weights / weights.sum()
