"""The contract of a target: one configuration in, one log density out."""

from abc import abstractmethod
from collections.abc import Callable, Mapping

import equinox as eqx
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
