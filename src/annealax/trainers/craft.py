r"""CRAFT: continual repeated annealed flow transport (Algorithm 2).

Each training step is one pass of the sampler. At every temperature the gradient of
that transition's loss (`annealax._objectives`) is taken on the particles that arrive,
the same transport moves them on, and only then is the flow updated: the update is
first felt in the next pass, so the estimate of Z of each pass is unbiased.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import PRNGKeyArray

from annealax._objectives import Estimator, check_estimator, free_energy_gradient
from annealax._particles import Particles
from annealax._sampler import Sampler, spread
from annealax.flows.base import partition
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
    initial_state,
)


class Sweep(NamedTuple):
    """One training pass, with the particles that it ended with.

    Attributes:
        state: The trainer's state after it.
        info: What the pass shows.
        particles: The particles at the last temperature.
    """

    state: TrainState
    info: TrainInfo
    particles: Particles


class CRAFT(AbstractTrainer):
    """Train each flow on the KL divergence between successive temperatures.

    Args:
        sampler: The sampler to be helped.
        optimizer: Any optax optimiser; each transition has its own state, so that a
            clip by norm or a schedule acts on each flow by itself.
        gradient: "plain" (the paper's) or "path".
    """

    sampler: Sampler
    optimizer: optax.GradientTransformation = eqx.field(static=True)
    gradient: Estimator = eqx.field(static=True, default="plain")

    def __check_init__(self):
        """Validate."""
        check_estimator(self.gradient)

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        del key
        return initial_state(self.optimizer, flow, self.sampler.path)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass (Algorithm 2, lines 4 to 10)."""
        sweep = self.sweep(key, state)
        return sweep.state, sweep.info

    def sweep(self, key: PRNGKeyArray, state: TrainState) -> Sweep:
        """One pass, with the particles that line 10 of Algorithm 2 yields."""
        return spread(self._sweep, self.sampler, key, state)

    def _sweep(self, sampler: Sampler, key: PRNGKeyArray, state: TrainState) -> Sweep:
        key_init, key_steps = jr.split(key)
        params, fixed = partition(state.flows)
        fixed_arrays, static = eqx.partition(fixed, eqx.is_array)

        def transition(particles, inputs):
            key, edge, params, fixed, optimizer_state = inputs
            rest = eqx.combine(fixed, static)
            descent = free_energy_gradient(
                params, rest, sampler, particles, edge, self.gradient
            )
            particles, info = sampler.correct(key, particles, descent.moved, edge)
            params, optimizer_state, skipped = guarded_update(
                self.optimizer, descent.gradient, optimizer_state, params
            )
            return particles, (params, optimizer_state, descent.loss, info, skipped)

        keys = jr.split(key_steps, sampler.path.num_transitions)
        inputs = (keys, sampler.path.edges, params, fixed_arrays, state.optimizer_state)
        particles, (params, optimizer_state, losses, steps, skipped) = jax.lax.scan(
            transition, sampler.init(key_init), inputs
        )
        state = TrainState(eqx.combine(params, fixed_arrays, static), optimizer_state)
        info = TrainInfo(
            loss=jnp.sum(losses),
            log_normalizer=particles.log_normalizer,
            steps=steps,
            num_skipped=jnp.sum(skipped),
        )
        return Sweep(state, info, particles.everywhere(sampler.layout))
