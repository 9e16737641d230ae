"""Posteriors: targets whose configuration stands for named parameters of a model."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from annealax.targets._base import AbstractTarget
from annealax.targets._csv import read_csv


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
        point = jax.ShapeDtypeStruct(self.shape, jnp.result_type(float))
        parameters = eqx.filter_eval_shape(self.constrain, point)
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


def load_numbers(name: str, columns: tuple[str, ...], **options) -> np.ndarray:
    """Columns of a table that is shipped with annealax, of shape (rows, columns)."""
    with resources.as_file(resources.files("annealax.targets") / "data" / name) as path:
        return read_csv(path).numbers(columns, **options)
