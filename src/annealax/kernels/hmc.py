r"""Hamiltonian Monte Carlo with full Metropolis correction.

With $p \sim N(0, I)$, step size $\epsilon$ and scale $s$ per
coordinate, one leapfrog step is

$$p \leftarrow p + \tfrac{\epsilon}{2} s \nabla\log\gamma(x), \quad
  x \leftarrow x + \epsilon s p, \quad
  p \leftarrow p + \tfrac{\epsilon}{2} s \nabla\log\gamma(x),$$

and the end of the trajectory is accepted with probability
$\min\{1, \exp(H(x, p) - H(x', p'))\}$. The loop merges neighbouring half steps
and evaluates only gradients; the density itself is needed at the end alone. That, and
taking over the gradient where the particle stands, is why this one kernel is not
blackjax's.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from annealax._checks import whole_number
from annealax._cotangents import shield
from annealax._noise import noise
from annealax.kernels._schedule import AbstractSchedule, Constant, as_schedule
from annealax.kernels.base import (
    AbstractKernel,
    Decision,
    KernelInfo,
    Point,
    accept,
)


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
        self.num_leapfrog = whole_number("num_leapfrog", num_leapfrog)
        self.num_steps = whole_number("num_steps", num_steps)

    def move(self, key, point, log_density, beta):
        """Make `num_steps` trajectories."""
        return jax.tree.map(
            lambda leaf: leaf[0],
            self.move_all(
                key, jax.tree.map(lambda leaf: leaf[None], point), log_density, beta
            ),
        )

    def move_all(self, key, points, log_density, beta, first=0):
        """Make `num_steps` trajectories of every particle."""
        step = (self.step_size(beta) * self.scale(beta))[..., None]
        # Particles go last: every operation then runs along a long axis. Loops are
        # outside of `vmap`, which would bring the particles of a carry to the front.
        value_and_gradient = jax.vmap(jax.value_and_grad(log_density), -1, (0, -1))
        gradient = jax.vmap(jax.grad(log_density), -1, -1)

        def trajectory(start: Point, key: PRNGKeyArray):
            return _trajectory(
                key, first, start, value_and_gradient, gradient, step, self.num_leapfrog
            )

        start = Point(
            jnp.moveaxis(points.x, 0, -1),
            points.log_density,
            jnp.moveaxis(points.gradient, 0, -1),
        )
        end, decisions = jax.lax.scan(trajectory, start, jr.split(key, self.num_steps))
        acceptance = jnp.mean(decisions.probability, axis=0)
        count = jnp.full_like(acceptance, self.num_steps * self.num_leapfrog)
        return (
            Point(
                jnp.moveaxis(end.x, -1, 0),
                end.log_density,
                jnp.moveaxis(end.gradient, -1, 0),
            ),
            KernelInfo(acceptance, count, jnp.sum(decisions.log_probability, axis=0)),
        )


class MALA(HMC):
    r"""Metropolis-adjusted Langevin: HMC with one leapfrog step.

    The proposal is $x + \frac{\epsilon^2}{2} \nabla\log\gamma(x) + \epsilon\xi$.

    Args:
        step_size: As for `HMC`.
        num_steps: Proposals per move.
        scale: As for `HMC`.
    """

    def __init__(
        self,
        step_size: ArrayLike | Sequence[float] | AbstractSchedule,
        num_steps: int = 1,
        scale: ArrayLike | AbstractSchedule = 1.0,
    ):
        super().__init__(step_size, 1, num_steps, scale)


class _Phase(NamedTuple):
    x: Array
    momentum: Array


def _trajectory(
    key: PRNGKeyArray,
    first: Int[Array, ""] | int,
    start: Point,
    value_and_gradient: Callable[[Array], tuple[Array, Array]],
    gradient: Callable[[Array], Array],
    step: Array,
    num_leapfrog: int,
) -> tuple[Point, Decision]:
    """One trajectory of every particle; particles are the last axis."""
    stay, (start, token) = start, shield(start, start.log_density.shape)
    *shape, num_particles = start.x.shape
    drawn = noise(key, tuple(shape), num_particles, start.x.dtype, first)
    momentum = drawn.normal

    def leap(_, phase: _Phase) -> _Phase:
        x = phase.x + step * phase.momentum
        return _Phase(x, phase.momentum + step * gradient(x))

    phase = _Phase(start.x, momentum + 0.5 * step * start.gradient)
    phase = jax.lax.fori_loop(0, num_leapfrog - 1, leap, phase)
    x = phase.x + step * phase.momentum
    end = Point(x, *value_and_gradient(x))
    end_momentum = phase.momentum + 0.5 * step * end.gradient
    log_ratio = (end.log_density - _kinetic(end_momentum)) - (
        start.log_density - _kinetic(momentum)
    )
    return accept(drawn.exponential, log_ratio, end, stay, token)


def _kinetic(momentum: Float[Array, "*shape particles"]) -> Float[Array, " particles"]:
    return 0.5 * jnp.sum(momentum * momentum, axis=range(momentum.ndim - 1))
