r"""Stochastic normalising flows: the ELBO of a whole pass (Section 2.2, Appendix B).

All flows are trained at once on

$$-\mathbb E[\log w_K] = -\mathbb E\Big[\sum_k \log G_k(X_{k-1})\Big],$$

with gradients that go back through every transport and every Markov kernel. The true
gradient has two terms (Proposition 1),

$$\mathbb E\big[\nabla \log w_K + \log w_K \nabla \log p(a)\big],$$

with the decisions :math:`a` to accept or reject. The original method keeps the first,
the reparameterisation term: the gradient runs through the branch that was taken.
`score_term=True` adds the second, which makes the gradient unbiased and noisier.

The backward pass needs what the forward pass went through, so memory grows with the
number of temperatures. Rematerialisation keeps only the particles at each temperature
and repeats the rest of the forward pass.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from annealax._errors import InvalidInputError
from annealax._objectives import choice_score, evidence_lower_bound
from annealax._particles import Particles
from annealax._resampling import NoResampling
from annealax._result import StepInfo
from annealax._sampler import Sampler
from annealax.flows.base import partition
from annealax.kernels import NUTS
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
    initial_state,
)

# The derivative of a gradient, by reverse mode, costs about two gradients.
_BACKWARD = 2


class SNF(AbstractTrainer):
    """Train all flows on the evidence lower bound of a pass.

    Evaluations are counted in gradients: one for each of the forward pass, two for
    each in the backward pass, which differentiates a gradient, and one more for each
    with rematerialisation.

    Args:
        sampler: The sampler to be helped. It is deployed as it is, but trained
            without resampling unless `resampling` says so.
        optimizer: Any optax optimiser; each transition has its own state.
        score_term: Add the score term of Proposition 1: an unbiased gradient.
        resampling: Resample in the forward pass, and neglect that in the gradient;
            the paper found this variant unstable.
        rematerialise: Trade computing time for memory.
    """

    sampler: Sampler
    optimizer: optax.GradientTransformation = eqx.field(static=True)
    score_term: bool = eqx.field(static=True, default=False, kw_only=True)
    resampling: bool = eqx.field(static=True, default=False, kw_only=True)
    rematerialise: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self):
        """Validate."""
        if self.score_term and self.resampling:
            raise InvalidInputError(
                "score_term=True makes the gradient unbiased, which resampling=True "
                "undoes: choose one"
            )
        nodes = jax.tree.leaves(
            self.sampler.kernel, is_leaf=lambda node: isinstance(node, NUTS)
        )
        if any(isinstance(node, NUTS) for node in nodes):
            raise InvalidInputError(
                "SNF differentiates through the kernel, and trajectories of NUTS have "
                "no fixed length: use HMC, MALA or RandomWalk"
            )

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`."""
        del key
        return initial_state(self.optimizer, flow, self.sampler.path)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass, its gradient, one update of every flow."""
        params, fixed = partition(state.flows)

        def loss(params):
            return self._loss(key, eqx.combine(params, fixed))

        (value, (particles, steps)), gradient = jax.value_and_grad(loss, has_aux=True)(
            params
        )
        params, optimizer_state, skipped = jax.vmap(
            lambda *inputs: guarded_update(self.optimizer, *inputs)
        )(gradient, state.optimizer_state, params)
        cost = 1 + _BACKWARD + self.rematerialise
        return (
            TrainState(eqx.combine(params, fixed), optimizer_state),
            TrainInfo(
                loss=value,
                log_normalizer=particles.log_normalizer,
                steps=steps._replace(num_evaluations=cost * steps.num_evaluations),
                num_skipped=jnp.sum(skipped),
            ),
        )

    def _loss(
        self, key: PRNGKeyArray, flows: AbstractBijection
    ) -> tuple[Float[Array, ""], tuple[Particles, StepInfo]]:
        """The negative ELBO; its derivative is the gradient that was asked for."""
        key_init, key_steps = jr.split(key)
        sampler = self._forward_sampler()
        arrays, static = eqx.partition(flows, eqx.is_array)

        def transition(carry: tuple[Particles, Array], inputs: PyTree):
            particles, score = carry
            key, edge, arrays = inputs
            moved = sampler.transport(eqx.combine(arrays, static), particles, edge)
            if self.score_term:
                score = score + choice_score(particles, moved)
            particles, info = sampler.correct(key, particles, moved, edge)
            return (particles, score), info

        if self.rematerialise:
            # A scan keeps the compiler from undoing it; no further barrier is needed.
            transition = jax.checkpoint(transition, prevent_cse=False)
        particles = sampler.init(key_init)
        keys = jr.split(key_steps, sampler.path.num_transitions)
        (particles, score), steps = jax.lax.scan(
            transition,
            (particles, jnp.zeros_like(particles.log_normalizer)),
            (keys, sampler.path.edges, arrays),
        )
        # The score adds nothing to the value, unless a kernel cannot give it (NaN).
        value = evidence_lower_bound(particles) + score - jax.lax.stop_gradient(score)
        return -value, (particles, steps)

    def _forward_sampler(self) -> Sampler:
        # The backward pass needs all particles anyway: nothing is won by blocks.
        sampler = dataclasses.replace(
            self.sampler, block_size=self.sampler.num_particles
        )
        if self.resampling:
            return sampler
        return dataclasses.replace(sampler, resampler=NoResampling())
