r"""Ascent of the evidence in parameters of the target, while CRAFT trains (Appendix E).

With $\gamma^\phi$ the target and $(X^i, W^i)$ the particles that a pass of CRAFT ends
with, Fisher's identity gives the gradient of the evidence,

$$ \nabla_\phi \log Z^\phi = \mathbb{E}_{\pi^\phi}[\nabla_\phi \log \gamma^\phi(X)]
   \approx \sum_i W^i \nabla_\phi \log \gamma^\phi(X^i) . $$

No derivative goes through the sampler. The parameters move after the pass, so each
estimate of Z is unbiased at the parameters it is reported with.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._particles import Particles
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
)
from annealax.trainers.craft import CRAFT

Model = Callable[[PyTree], Callable[[Array], Array]]


class EvidenceState(NamedTuple):
    """What is carried beside the flows.

    Attributes:
        craft: Optimiser state of the flows.
        parameters: The parameters of the target.
        optimizer: Optimiser state of the parameters.
    """

    craft: PyTree
    parameters: PyTree
    optimizer: PyTree


class EvidenceInfo(NamedTuple):
    """What a step shows beside the training (`TrainInfo.extra`).

    Attributes:
        parameters: The parameters during the pass.
        gradient: The estimated gradient of log Z there.
        num_skipped: 1 if the parameters stayed because it was not finite.
    """

    parameters: PyTree
    gradient: PyTree
    num_skipped: Int[Array, "*iterations"]


class EvidenceAscent(AbstractTrainer):
    """Train flows and parameters of the target together.

    Args:
        craft: How the flows are trained; the target of its path is replaced.
        model: From parameters to a target. What it computes before it returns, such
            as a factorisation, is done once in a pass.
        parameters: Where the parameters start: a pytree of floating-point arrays.
        optimizer: Optimiser of the parameters.
    """

    craft: CRAFT
    model: Model
    parameters: PyTree
    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        state = self.craft.init(key, flow)
        carried = EvidenceState(
            state.optimizer_state,
            self.parameters,
            self.optimizer.init(self.parameters),
        )
        return TrainState(state.flows, carried)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass of CRAFT, then one step of the parameters."""
        carried: EvidenceState = state.optimizer_state
        craft = self.at(carried.parameters)
        trained, sweep = craft.sweep(key, TrainState(state.flows, carried.craft))
        gradient = jax.grad(weighted_log_density, argnums=1)(
            self.model, carried.parameters, sweep.particles
        )
        parameters, optimizer, skipped = guarded_update(
            self.optimizer,
            jax.tree.map(jnp.negative, gradient),  # optimisers descend
            carried.optimizer,
            carried.parameters,
        )
        state = TrainState(
            trained.flows, EvidenceState(trained.optimizer_state, parameters, optimizer)
        )
        extra = EvidenceInfo(carried.parameters, gradient, skipped)
        return state, sweep.info._replace(extra=extra)

    def at(self, parameters: PyTree) -> CRAFT:
        """CRAFT on the target with these parameters."""
        return eqx.tree_at(
            lambda craft: craft.sampler.path.target, self.craft, self.model(parameters)
        )


def weighted_log_density(
    model: Model, parameters: PyTree, particles: Particles
) -> Float[Array, ""]:
    """Average of the target's log density over particles, to differentiate."""
    return jnp.sum(particles.weights * log_densities(model, parameters, particles))


def log_densities(
    model: Model, parameters: PyTree, particles: Particles
) -> Float[Array, " particles"]:
    """The target's log density at each particle, as a function of the parameters.

    Particles of zero weight stand where the heaviest does: a derivative that is not
    finite would spoil the sum even with weight zero.
    """
    alive = particles.log_weights > -jnp.inf
    heaviest = particles.x[jnp.argmax(particles.log_weights)]
    shape = alive.shape + (1,) * (particles.x.ndim - 1)
    x = jnp.where(alive.reshape(shape), particles.x, heaviest)
    return jax.vmap(model(parameters))(x)
