"""Posteriors: targets whose configuration stands for named parameters of a model."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from annealax.targets.base import AbstractTarget


class AbstractPosterior(AbstractTarget):
    """A target on unconstrained coordinates that can name its parameters.

    Positive parameters enter by their logarithm. The density counts the Jacobian, so
    log Z is the evidence of the model, whichever coordinates are used.
    """

    @abstractmethod
    def constrain(self, x: Array) -> dict[str, Array]:
        """The parameters of one configuration, by name, in their own space."""

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """The scalar parameters, in their own space."""
        parameters = self.constrain(jnp.zeros(self.shape))
        return {
            name: Parameter(self, name)
            for name, value in parameters.items()
            if value.shape == ()
        }


class Parameter(eqx.Module):
    """One named parameter, as a function of the configuration."""

    posterior: AbstractPosterior
    name: str = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        """The value of the parameter."""
        return self.posterior.constrain(x)[self.name]


def log_normal(x: Array, log_scale: Array | float = 0.0) -> Array:
    """Log density of centred independent normals, summed over `x`.

    The scale enters by its logarithm: exact however small or large it is.
    """
    return -jnp.sum(
        0.5 * (x * jnp.exp(-log_scale)) ** 2 + log_scale + 0.5 * math.log(2 * math.pi)
    )
