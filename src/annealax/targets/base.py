"""The contract of a target: one configuration in, one log density out.

A posterior is a target whose configuration stands for named parameters of a model.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from annealax._errors import InvalidInputError


class AbstractTarget(eqx.Module):
    """An unnormalised log density that knows its shape and, maybe, its log Z.

    A target is any callable from one configuration to a scalar; deriving from this
    class only adds what the commands and reports use.

    Attributes:
        shape: Shape of one configuration.
        log_normalizer: The exact log normalising constant, or None if unknown.
    """

    shape: eqx.AbstractVar[tuple[int, ...]]
    log_normalizer: eqx.AbstractVar[float | None]

    @abstractmethod
    def __call__(self, x: Float[Array, "*shape"]) -> Float[Array, ""]:
        """Log density of one configuration, up to a constant."""

    @property
    def observables(self) -> Mapping[str, Callable[[Array], Array]]:
        """Named functions of one configuration whose expectations are of interest."""
        return {}


def check_configuration(shape: tuple[int, ...], x: Array) -> None:
    """Refuse anything but one configuration: broadcasting would be silently wrong."""
    if x.shape != shape:
        raise InvalidInputError(
            f"this target takes one configuration of shape {shape}, got {x.shape}; use "
            "jax.vmap over a batch of configurations."
        )


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
