"""Settings of a kernel that follow the temperature: functions of beta.

They are modules, not lambdas, so that changing their numbers does not recompile.
"""

from abc import abstractmethod
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from annealax._errors import InvalidInputError


class AbstractSchedule(eqx.Module):
    """A setting as a function of the inverse temperature."""

    @abstractmethod
    def __call__(self, beta: ArrayLike) -> Array:
        """The setting at `beta`."""


class Constant(AbstractSchedule):
    """The same value at every temperature."""

    value: Float[Array, "*shape"]

    def __call__(self, beta):
        """The value."""
        return self.value


class InterpolatedStepSize(AbstractSchedule):
    """Linear interpolation in beta through given points, as in the paper's appendix.

    Args:
        betas: Where the values are given, rising.
        values: Step sizes there, positive.
    """

    betas: Float[Array, " points"]
    values: Float[Array, " points"]

    def __init__(
        self, betas: ArrayLike | Sequence[float], values: ArrayLike | Sequence[float]
    ):
        self.betas = jnp.asarray(betas, jnp.result_type(float))
        self.values = jnp.asarray(values, jnp.result_type(float))
        if self.betas.ndim != 1 or self.betas.shape != self.values.shape:
            raise InvalidInputError(
                "betas and values must be vectors of the same length, got shapes "
                f"{self.betas.shape} and {self.values.shape}"
            )
        _check_positive("step size", self.values)
        if _is_concrete(self.betas) and np.any(np.diff(np.asarray(self.betas)) <= 0):
            raise InvalidInputError(f"betas must rise strictly, got {self.betas}")

    def __call__(self, beta):
        """The interpolated step size."""
        return jnp.interp(beta, self.betas, self.values)


class PerTemperature(AbstractSchedule):
    """One value for each transition of the ladder; the sampler says which ladder.

    Args:
        values: One value (a number or an array) per transition, stacked.
        betas: The `beta` at the end of each transition. Left out by users: `Sampler`
            fills it in.
    """

    values: Float[Array, "transitions *shape"]
    betas: Float[Array, " transitions"] | None = None

    def __call__(self, beta):
        """The value of the transition that ends at `beta`."""
        if self.betas is None:
            raise InvalidInputError(
                "this kernel has one step size per temperature, but no temperatures: "
                "use it in a Sampler, or give PerTemperature(values, betas)"
            )
        return self.values[jnp.argmin(jnp.abs(self.betas - beta))]


def as_schedule(
    name: str, value: ArrayLike | Sequence[float] | AbstractSchedule
) -> AbstractSchedule:
    """A number is constant, a vector is one value per temperature."""
    if isinstance(value, AbstractSchedule):
        return value
    array = jnp.asarray(value, jnp.result_type(float))
    _check_positive(name, array)
    if array.ndim == 0:
        return Constant(array)
    if array.ndim == 1:
        return PerTemperature(array)
    raise InvalidInputError(
        f"{name} must be a number, a vector with one value per temperature, or a "
        f"schedule such as InterpolatedStepSize; got an array of shape {array.shape}"
    )


def bind(tree: PyTree, betas: Float[Array, " levels"]) -> PyTree:
    """Tell every `PerTemperature` in a kernel which ladder it belongs to."""
    # On the host where that is possible: there is nothing to compile a program for.
    ends = jax.device_put(np.asarray(betas)[1:]) if _is_concrete(betas) else betas[1:]

    def is_unbound(node):
        return isinstance(node, PerTemperature)

    def fill(node):
        if not is_unbound(node):
            return node
        if node.values.shape[0] != ends.shape[0]:
            raise InvalidInputError(
                f"one value per temperature is needed: {ends.shape[0]} for the "
                f"transitions of this ladder, got {node.values.shape[0]}"
            )
        return PerTemperature(node.values, ends)

    return jax.tree.map(fill, tree, is_leaf=is_unbound)


def _is_concrete(array: Array) -> bool:
    return not isinstance(array, jax.core.Tracer)


def _check_positive(name: str, array: Array) -> None:
    if _is_concrete(array) and not np.all(np.asarray(array) > 0):
        raise InvalidInputError(f"{name} must be positive, got {np.asarray(array)}")
