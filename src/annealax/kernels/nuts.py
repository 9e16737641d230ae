"""The no-U-turn sampler, from blackjax."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import ArrayLike

from annealax._checks import whole_number
from annealax.kernels._schedule import AbstractSchedule, as_schedule
from annealax.kernels.base import AbstractKernel, KernelInfo, Point


class NUTS(AbstractKernel):
    """No-U-turn sampler with a unit mass matrix.

    Under `vmap` all particles wait for the longest trajectory, so HMC is often faster
    inside an annealed sampler.

    Args:
        step_size: A number, one per temperature, or a schedule.
        num_steps: Trajectories per move.
        max_doublings: The longest trajectory has `2**max_doublings` leapfrog steps.
    """

    step_size: AbstractSchedule
    num_steps: int = eqx.field(static=True)
    max_doublings: int = eqx.field(static=True)

    def __init__(
        self,
        step_size: ArrayLike | Sequence[float] | AbstractSchedule,
        num_steps: int = 1,
        max_doublings: int = 6,
    ):
        self.step_size = as_schedule("step_size", step_size)
        self.num_steps = whole_number("num_steps", num_steps)
        self.max_doublings = whole_number("max_doublings", max_doublings)

    def move(self, key, point, log_density, beta):
        """Make `num_steps` trajectories."""
        import blackjax  # noqa: PLC0415 (importing it takes half a second)
        from blackjax.mcmc.hmc import HMCState  # noqa: PLC0415

        step_size = self.step_size(beta)
        kernel = blackjax.nuts.build_kernel()
        unit = jnp.ones(point.x.size, point.x.dtype)

        def trajectory(state, key):
            state, info = kernel(
                key, state, log_density, step_size, unit, self.max_doublings
            )
            return state, (info.acceptance_rate, info.num_integration_steps)

        state, (acceptance, lengths) = jax.lax.scan(
            trajectory, HMCState(*point), jr.split(key, self.num_steps)
        )
        total = jnp.sum(lengths).astype(acceptance.dtype)
        return Point(*state), KernelInfo(jnp.mean(acceptance), total)
