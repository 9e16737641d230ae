"""Random-walk Metropolis: needs no gradient."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike

from annealax._checks import whole_number
from annealax._cotangents import gate, shield
from annealax.kernels._schedule import AbstractSchedule, as_schedule
from annealax.kernels.base import (
    AbstractKernel,
    KernelInfo,
    Point,
    accept,
    point_at,
)


class RandomWalk(AbstractKernel):
    """Gaussian random walk with Metropolis correction.

    Args:
        step_size: Standard deviation of the proposal: a number, one per temperature,
            or a schedule.
        num_steps: Proposals per move.
    """

    step_size: AbstractSchedule
    num_steps: int = eqx.field(static=True)

    def __init__(
        self,
        step_size: ArrayLike | Sequence[float] | AbstractSchedule,
        num_steps: int = 1,
    ):
        self.step_size = as_schedule("step_size", step_size)
        self.num_steps = whole_number("num_steps", num_steps)

    @property
    def needs_gradient(self) -> bool:
        """No."""
        return False

    def move(self, key, point, log_density, beta):
        """Make `num_steps` proposals."""
        step = self.step_size(beta)

        def jump(key):
            return step * jr.normal(key, point.x.shape, point.x.dtype)

        return walk(jr.split(key, self.num_steps), point, log_density, jump)


def walk(
    keys: Array,
    point: Point,
    log_density: Callable[[Array], Array],
    jump: Callable[[Array], Array],
) -> tuple[Point, KernelInfo]:
    """Metropolis steps whose jumps are as likely as their opposites.

    Args:
        keys: One for each step.
        point: Where to begin.
        log_density: The density to leave invariant.
        jump: Draws a jump.
    """

    def propose(state, key):
        (x, value), token = shield(state)
        key_jump, key_accept = jr.split(key)
        y = x + jump(key_jump)
        proposal = (y, log_density(y))
        exponential = jr.exponential(key_accept, (), x.dtype)
        return accept(exponential, proposal[1] - value, proposal, state, token)

    (x, value), decisions = jax.lax.scan(propose, (point.x, point.log_density), keys)
    acceptance, log_probability = decisions
    count = jnp.asarray(len(keys), acceptance.dtype)
    info = KernelInfo(jnp.mean(acceptance), count, jnp.sum(log_probability))
    if point.gradient is None:
        return Point(x, value, None), info
    # The gradient here costs nothing unless a later kernel uses it.
    x, token = shield(x)
    end = point_at(log_density, x)
    return gate(end, token, ~jnp.isfinite(end.log_density)), info
