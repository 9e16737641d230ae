"""The contract of a Markov kernel: it leaves a density invariant."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from annealax._errors import InvalidInputError


class Point(NamedTuple):
    """One configuration with its log density and the gradient of that, or many."""

    x: Float[Array, "*shape"]
    log_density: Float[Array, "*particles"]
    gradient: Float[Array, "*shape"]


class KernelInfo(NamedTuple):
    """What happened in a move.

    Attributes:
        acceptance_rate: Mean Metropolis acceptance probability.
        num_evaluations: Evaluations of the density (with its gradient, if the kernel
            uses it) that the move made.
    """

    acceptance_rate: Float[Array, "*particles"]
    num_evaluations: Float[Array, "*particles"]


class AbstractKernel(eqx.Module):
    """A Markov kernel for one particle.

    Calling it is all that a user needs; samplers use `move_all`, which takes over the
    densities and gradients that are already known and returns those of the new points.
    A new kernel has to give `move` alone.
    """

    @abstractmethod
    def move(
        self,
        key: PRNGKeyArray,
        point: Point,
        log_density: Callable[[Array], Array],
        beta: ArrayLike,
    ) -> tuple[Point, KernelInfo]:
        """Move one particle; `log_density` is that at `beta`."""

    def move_all(
        self,
        key: PRNGKeyArray,
        points: Point,
        log_density: Callable[[Array], Array],
        beta: ArrayLike,
    ) -> tuple[Point, KernelInfo]:
        """Move every particle (the first axis of all arrays) on its own."""
        return jax.vmap(lambda key, point: self.move(key, point, log_density, beta))(
            jr.split(key, points.x.shape[0]), points
        )

    def __call__(
        self,
        key: PRNGKeyArray,
        x: Float[Array, "*shape"],
        log_density: Callable[[Array], Array],
        beta: ArrayLike = 1.0,
    ) -> tuple[Float[Array, "*shape"], KernelInfo]:
        """Move `x`, leaving `log_density` invariant; `beta` sets the step size."""
        point, info = self.move(key, point_at(log_density, x), log_density, beta)
        return point.x, info


def point_at(log_density: Callable[[Array], Array], x: Array) -> Point:
    """Evaluate the density and its gradient."""
    return Point(x, *jax.value_and_grad(log_density)(x))


def accept(
    exponential: Float[Array, "*particles"],
    log_ratio: Float[Array, "*particles"],
    proposal: PyTree,
    current: PyTree,
) -> tuple[PyTree, Float[Array, "*particles"]]:
    """Metropolis: the proposal with probability min(1, exp(log_ratio)).

    A ratio that is not a number, from an overflow on the way, counts as zero.

    Args:
        exponential: A standard exponential number.
        log_ratio: Logarithm of the acceptance ratio.
        proposal: Where to go.
        current: Where to stay otherwise; particles are the last axis, if any.
    """
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    accepted = -exponential < log_ratio
    point = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), proposal, current)
    return point, jnp.exp(jnp.minimum(log_ratio, 0))


def check_count(name: str, value: int) -> int:
    """A positive whole number, or an error that names it."""
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise InvalidInputError(f"{name} must be a positive whole number, got {value}")
    return int(value)
