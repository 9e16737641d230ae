"""The contract of a model: what `annealax.sample` takes in place of a function.

Everything below is for one point, and pure: it can be compiled, differentiated and
mapped over many points. *Parameters* are what the model's author sees, in the space of
its `support`; for named ones, a dict of arrays by name.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax.auto.density import FreeDensity
from annealax.auto.knowledge import Posterior, Prior
from annealax.auto.parameters import Space


class Model(eqx.Module):
    """A log likelihood, a prior where it can be drawn from, and what they are about.

    Subclasses have these fields:

    Attributes:
        space: Names, shapes and supports of the parameters, and how a vector stands
            for them.
        prior: Draws of the parameters and their normalised log density. None where it
            cannot be drawn from, such as flat ones: the whole density is then in the
            log likelihood, and there is no path from the prior.
        why_no_prior: In words, if there is none; else empty.
        observed: Data by name of what was observed.
        dims: Names of the axes of parameters, deterministics and data, by name; where
            a name is missing, its axes have no names.
        coords: Labels along these axes.
    """

    space: eqx.AbstractVar[Space]
    prior: eqx.AbstractVar[Prior | None]
    why_no_prior: eqx.AbstractVar[str]
    observed: eqx.AbstractVar[Mapping[str, Any]]
    dims: eqx.AbstractVar[Mapping[str, tuple[str, ...]]]
    coords: eqx.AbstractVar[Mapping[str, np.ndarray]]

    @abstractmethod
    def log_likelihood(self, parameters: Any) -> Float[Array, ""]:
        """All of the log density that is not the `prior`."""

    def log_prior(self, parameters: Any) -> Float[Array, ""]:
        """Normalised log density of the prior.

        Raises:
            InvalidInputError: If there is none.
        """
        if self.prior is None:
            raise InvalidInputError(f"this model has no prior: {self.why_no_prior}")
        return self.prior.log_prob(parameters)

    def log_density(self, parameters: Any) -> Float[Array, ""]:
        """Prior times likelihood, in the parameters' own space."""
        if self.prior is None:
            return self.log_likelihood(parameters)
        return Posterior(self.prior, self.log_likelihood)(parameters)

    def transform(self, parameters: Any) -> dict[str, Array]:
        """Parameters and what the model computes from them, all by name."""
        return self.space.by_name(parameters)

    def pointwise_log_likelihood(self, parameters: Any) -> dict[str, Array]:
        """Log likelihood of each observation, by name; empty if that is not known."""
        return {}

    @property
    def can_predict(self) -> bool:
        """Whether `predict` works."""
        return False

    def predict(self, key: PRNGKeyArray, parameters: Any) -> dict[str, Array]:
        """New data by name, as the model makes them from these parameters.

        Raises:
            InvalidInputError: If the model does not say how data are made.
        """
        raise InvalidInputError(
            "this model does not say how data are made: write it as a model of NumPyro "
            "or PyMC, or predict with your own function of result.draws()"
        )

    def prepared(self) -> "Model":
        """The model in the precision that JAX is set to now."""
        return self

    def free(self) -> FreeDensity:
        """Its density as a function of an unconstrained vector, checked."""
        return FreeDensity.of(self.log_density, self.space)


def default_coords(
    shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, tuple[str, ...]]
) -> dict[str, np.ndarray]:
    """Numbers along each named axis."""
    return {
        dim: np.arange(size)
        for name, axes in dims.items()
        if name in shapes
        for dim, size in zip(axes, shapes[name], strict=False)
    }


def zero() -> Float[Array, ""]:
    """Nothing, as a number to add to."""
    return jnp.zeros((), jnp.result_type(float))
