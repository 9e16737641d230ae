"""Random-walk Metropolis: needs no gradient."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import ArrayLike

from annealax._checks import whole_number
from annealax._cotangents import gate, shield
from annealax.kernels._schedule import AbstractSchedule, as_schedule
from annealax.kernels.base import (
    AbstractKernel,
    KernelInfo,
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

    def move(self, key, point, log_density, beta):
        """Make `num_steps` proposals."""
        step = self.step_size(beta)

        def propose(state, key):
            (x, value), token = shield(state)
            key_noise, key_accept = jr.split(key)
            y = x + step * jr.normal(key_noise, x.shape, x.dtype)
            proposal = (y, log_density(y))
            exponential = jr.exponential(key_accept, (), x.dtype)
            return accept(exponential, proposal[1] - value, proposal, state, token)

        (x, _), decisions = jax.lax.scan(
            propose, (point.x, point.log_density), jr.split(key, self.num_steps)
        )
        acceptance, log_probability = decisions
        count = jnp.asarray(self.num_steps, acceptance.dtype)
        info = KernelInfo(jnp.mean(acceptance), count, jnp.sum(log_probability))
        # The gradient here costs nothing unless a later kernel uses it.
        x, token = shield(x)
        end = point_at(log_density, x)
        return gate(end, token, ~jnp.isfinite(end.log_density)), info
