r"""Hamiltonian Monte Carlo with full Metropolis correction.

With :math:`p \sim N(0, I)`, step size :math:`\epsilon` and scale :math:`s` per
coordinate, one leapfrog step is

$$p \leftarrow p + \tfrac{\epsilon}{2} s \nabla\log\gamma(x), \quad
  x \leftarrow x + \epsilon s p, \quad
  p \leftarrow p + \tfrac{\epsilon}{2} s \nabla\log\gamma(x),$$

and the end of the trajectory is accepted with probability
:math:`\min\{1, \exp(H(x, p) - H(x', p'))\}`. The loop merges neighbouring half steps
and evaluates only gradients; the density itself is needed at the end alone. That, and
taking over the gradient where the particle stands, is why this one kernel is not
blackjax's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, PRNGKeyArray

from annealax._cotangents import shield
from annealax.kernels._base import (
    AbstractKernel,
    Decision,
    KernelInfo,
    Point,
    accept,
    check_count,
    point_at,
)
from annealax.kernels._schedule import AbstractSchedule, Constant, as_schedule


class HMC(AbstractKernel):
    """Hamiltonian Monte Carlo.

    Args:
        step_size: A positive number, a vector with one value per temperature, or a
            schedule such as `InterpolatedStepSize`.
        num_leapfrog: Leapfrog steps per trajectory.
        num_steps: Trajectories per move.
        scale: Scale of each coordinate, of the shape of a configuration (or a
            schedule of such arrays): the step in a coordinate is `step_size * scale`.
    """

    step_size: AbstractSchedule
    scale: AbstractSchedule
    num_leapfrog: int = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)

    def __init__(
        self,
        step_size: ArrayLike | Sequence[float] | AbstractSchedule,
        num_leapfrog: int = 10,
        num_steps: int = 1,
        scale: ArrayLike | AbstractSchedule = 1.0,
    ):
        self.step_size = as_schedule("step_size", step_size)
        self.scale = (
            scale
            if isinstance(scale, AbstractSchedule)
            else Constant(jnp.asarray(scale, jnp.result_type(float)))
        )
        self.num_leapfrog = check_count("num_leapfrog", num_leapfrog)
        self.num_steps = check_count("num_steps", num_steps)

    def move(self, key, point, log_density, beta):
        """Make `num_steps` trajectories."""
        step = self.step_size(beta) * self.scale(beta)

        def trajectory(point, key):
            return _trajectory(key, point, log_density, step, self.num_leapfrog)

        point, decisions = jax.lax.scan(
            trajectory, point, jr.split(key, self.num_steps)
        )
        acceptance, log_probability = decisions
        count = jnp.asarray(self.num_steps * self.num_leapfrog, acceptance.dtype)
        return point, KernelInfo(jnp.mean(acceptance), count, jnp.sum(log_probability))


class MALA(AbstractKernel):
    r"""Metropolis-adjusted Langevin: HMC with one leapfrog step.

    The proposal is :math:`x + \frac{\epsilon^2}{2} \nabla\log\gamma(x) + \epsilon\xi`.

    Args:
        step_size: As for `HMC`.
        num_steps: Proposals per move.
        scale: As for `HMC`.
    """

    hmc: HMC

    def __init__(
        self,
        step_size: ArrayLike | Sequence[float] | AbstractSchedule,
        num_steps: int = 1,
        scale: ArrayLike | AbstractSchedule = 1.0,
    ):
        self.hmc = HMC(step_size, 1, num_steps, scale)

    def move(self, key, point, log_density, beta):
        """Make `num_steps` proposals."""
        return self.hmc.move(key, point, log_density, beta)


class _Phase(NamedTuple):
    x: Array
    momentum: Array


def _trajectory(
    key: PRNGKeyArray,
    start: Point,
    log_density,
    step: Array,
    num_leapfrog: int,
) -> tuple[Point, Decision]:
    stay = start
    start, token = shield(start)
    key_momentum, key_accept = jr.split(key)
    momentum = jr.normal(key_momentum, start.x.shape, start.x.dtype)
    gradient = jax.grad(log_density)

    def leap(_, phase: _Phase) -> _Phase:
        x = phase.x + step * phase.momentum
        return _Phase(x, phase.momentum + step * gradient(x))

    phase = _Phase(start.x, momentum + 0.5 * step * start.gradient)
    phase = jax.lax.fori_loop(0, num_leapfrog - 1, leap, phase)
    end = point_at(log_density, phase.x + step * phase.momentum)
    end_momentum = phase.momentum + 0.5 * step * end.gradient

    log_ratio = (end.log_density - 0.5 * jnp.sum(end_momentum * end_momentum)) - (
        start.log_density - 0.5 * jnp.sum(momentum * momentum)
    )
    return accept(key_accept, log_ratio, end, stay, token)
