r"""A walk whose jumps are differences of known points: needs no gradient.

$$y = x + s \, (a - b),$$

with two members $a, b$ of an ensemble that looks like the density, so that a jump
has its scales and correlations; now and then $s = 1$, which carries from one mode
to another (differential evolution, ter Braak 2006). The ensemble is frozen, not the
population that moves, and so the density stays invariant exactly.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import ArrayLike

from annealax._checks import whole_number
from annealax._errors import InvalidInputError
from annealax.kernels._schedule import AbstractSchedule, Constant, as_schedule
from annealax.kernels.base import AbstractKernel
from annealax.kernels.random_walk import walk

_BETWEEN_MODES = 0.15
"""Share of the jumps that take a whole difference."""

_JITTER = 0.01
"""Jumps differ from differences by so much of these: they reach every place."""


class EnsembleWalk(AbstractKernel):
    """Metropolis steps along differences of members of an ensemble.

    Args:
        members: Points that look like the density, along the first axis; or a schedule
            of such arrays, for instance `PerTemperature`.
        step_size: Length of a jump in units of such differences: a number, one per
            temperature, or a schedule.
        num_steps: Proposals per move.
    """

    members: AbstractSchedule
    step_size: AbstractSchedule
    num_steps: int = eqx.field(static=True)

    def __init__(
        self,
        members: ArrayLike | AbstractSchedule,
        step_size: ArrayLike | AbstractSchedule,
        num_steps: int = 1,
    ):
        if not isinstance(members, AbstractSchedule):
            array = jnp.asarray(members, jnp.result_type(float))
            if array.ndim == 0 or len(array) < 2:
                raise InvalidInputError(
                    "members must be at least two points along the first axis, got an "
                    f"array of shape {array.shape}"
                )
            members = Constant(array)
        self.members = members
        self.step_size = as_schedule("step_size", step_size)
        self.num_steps = whole_number("num_steps", num_steps)

    @property
    def needs_gradient(self) -> bool:
        """No."""
        return False

    def move(self, key, point, log_density, beta):
        """Make `num_steps` proposals."""
        members, step = self.members(beta), self.step_size(beta)
        count, shape, dtype = len(members), point.x.shape, point.x.dtype

        def jump(key):
            key_first, key_second, key_whole, key_jitter = jr.split(key, 4)
            first = jr.randint(key_first, (), 0, count)
            second = (first + jr.randint(key_second, (), 1, count)) % count
            whole = jr.uniform(key_whole, (), dtype) < _BETWEEN_MODES
            jitter = 1 + _JITTER * jr.normal(key_jitter, shape, dtype)
            along = jitter * (members[first] - members[second])
            return jnp.where(whole, 1, step) * along

        return walk(jr.split(key, self.num_steps), point, log_density, jump)
