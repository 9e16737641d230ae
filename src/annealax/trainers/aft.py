r"""Annealed flow transport, simple and practical (the paper's last appendix).

One pass over the temperatures. At each of them the flow is trained to the end on the
particles that are there,

$$T_k \leftarrow \arg\min_T \mathcal L_k^N(T), \qquad
  \mathcal L_k^N(T) = \sum_i W_{k-1}^i D_k(X_{k-1}^i),$$

and only then do they move on with it.

- *Simple* AFT has one population. It goes on with flows that were fitted to it, so its
  estimate of Z is biased when particles are few.
- *Practical* AFT trains on one population, stops early by the loss on another
  (validation), and reports a third (test) that no flow was fitted to.

In both the flow that is kept is the one with the smallest loss of all that were seen,
the start included; the loss is that on the validation population, or on the only one.
"""

import dataclasses
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._checks import whole_number
from annealax._objectives import (
    Estimator,
    check_estimator,
    free_energy,
    free_energy_gradient,
)
from annealax._particles import Particles
from annealax._path import Edge
from annealax._sampler import Sampler
from annealax.flows.base import check_flow, partition, replicate
from annealax.kernels import AbstractKernel
from annealax.trainers.base import (
    AbstractTrainer,
    TrainInfo,
    TrainState,
    guarded_update,
)


class Learnt(NamedTuple):
    """The outcome of the optimisation at one temperature.

    Attributes:
        params: Trainable leaves of the flow that is kept.
        loss: Its loss on the population that judges.
        initial_loss: That of the flow before training.
        num_skipped: Updates left out because the gradient was not finite.
    """

    params: PyTree
    loss: Float[Array, ""]
    initial_loss: Float[Array, ""]
    num_skipped: Int[Array, ""]


class _Candidate(NamedTuple):
    params: PyTree
    loss: Float[Array, ""]
    dead: Float[Array, ""]


class AFT(AbstractTrainer):
    """Train the flows in one pass, each to the end before the next.

    A `step` is one complete pass, and each pass starts again from the flow that was
    given: `fit(..., num_steps=1)` is the method, more steps are repetitions of it.
    The `loss` of a step is that by which the flows were chosen.

    Args:
        sampler: The sampler to be helped; its particles are the test population.
        optimizer: Any optax optimiser; it starts afresh at each temperature.
        num_iters: Updates per temperature.
        early_stopping: Practical AFT if true, simple AFT if false.
        gradient: "plain" (the paper's) or "path".
        train_kernel: Markov kernel of the populations that train, for instance with
            more steps; that of the sampler if left out.
        num_train: Particles to train on; as many as the sampler has if left out. In
            simple AFT they are the only ones.
        num_validation: Particles to stop by; as many as the sampler has if left out.
    """

    restarts: ClassVar[bool] = True
    sampler: Sampler
    optimizer: optax.GradientTransformation = eqx.field(static=True)
    training: Sampler
    num_iters: int = eqx.field(static=True)
    num_validation: int = eqx.field(static=True)
    early_stopping: bool = eqx.field(static=True)
    gradient: Estimator = eqx.field(static=True)

    def __init__(
        self,
        sampler: Sampler,
        optimizer: optax.GradientTransformation,
        *,
        num_iters: int = 500,
        early_stopping: bool = True,
        gradient: Estimator = "plain",
        train_kernel: AbstractKernel | None = None,
        num_train: int | None = None,
        num_validation: int | None = None,
    ):
        check_estimator(gradient)
        self.sampler = sampler
        self.optimizer = optimizer
        self.training = dataclasses.replace(
            sampler,
            kernel=sampler.kernel if train_kernel is None else train_kernel,
            num_particles=sampler.num_particles if num_train is None else num_train,
        )
        self.num_iters = whole_number("num_iters", num_iters)
        self.num_validation = whole_number(
            "num_validation",
            sampler.num_particles if num_validation is None else num_validation,
        )
        self.early_stopping = early_stopping
        self.gradient = gradient

    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """Every transition starts at `flow`, which is kept for the next pass."""
        del key
        check_flow(flow, self.sampler.path)
        flows = replicate(flow, self.sampler.path.num_transitions)
        start, _ = partition(flows)
        # Optimisers live within a pass; the state is where every pass starts.
        return TrainState(flows, start)

    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One pass over the temperatures."""
        key_init, key_steps = jr.split(key)
        start = state.optimizer_state
        _, fixed = partition(state.flows)
        fixed_arrays, static = eqx.partition(fixed, eqx.is_array)
        movers = self._movers()

        def transition(populations, inputs):
            key, edge, params, fixed = inputs
            rest = eqx.combine(fixed, static)
            judge = populations.get("validation", populations["train"])
            learnt = self.learn(params, rest, populations["train"], judge, edge)
            flow = eqx.combine(learnt.params, rest)
            moved = {
                name: mover.step(subkey, populations[name], flow, edge)
                for (name, mover), subkey in zip(
                    movers.items(), jr.split(key, len(movers)), strict=True
                )
            }
            # One population is reported; what it cost is all of them.
            costs = jnp.stack([info.num_evaluations for _, info in moved.values()])
            info = moved[self._reported][1]._replace(
                num_evaluations=jnp.sum(costs) + self._learning_evaluations()
            )
            populations = {name: particles for name, (particles, _) in moved.items()}
            return populations, (learnt, info)

        populations = {
            name: mover.init(subkey)
            for (name, mover), subkey in zip(
                movers.items(), jr.split(key_init, len(movers)), strict=True
            )
        }
        keys = jr.split(key_steps, self.sampler.path.num_transitions)
        inputs = (keys, self.sampler.path.edges, start, fixed_arrays)
        populations, (learnt, steps) = jax.lax.scan(transition, populations, inputs)
        return (
            TrainState(eqx.combine(learnt.params, fixed), start),
            TrainInfo(
                loss=jnp.sum(learnt.loss),
                log_normalizer=populations[self._reported].log_normalizer,
                steps=steps,
                num_skipped=jnp.sum(learnt.num_skipped),
            ),
        )

    def learn(
        self,
        params: PyTree,
        rest: PyTree,
        train: Particles,
        judge: Particles,
        edge: Edge,
    ) -> Learnt:
        """The flow of one transition (EarlyStopLearnFlow if `judge` is not `train`).

        Args:
            params: Trainable leaves of the flow to start at.
            rest: Its other leaves.
            train: Particles that the loss is minimised on.
            judge: Particles whose loss decides which flow is kept.
            edge: The transition.
        """
        is_same = judge is train

        trains, judges = self.training, self._judge

        def lost(particles, moved):
            alive = moved.log_increment > -jnp.inf
            return jnp.sum(jnp.where(alive, 0, particles.weights))

        def judged(params):
            flow = eqx.combine(params, rest)
            value, moved = free_energy(flow, judges, judge, edge, self.gradient)
            return _Candidate(params, value, lost(judge, moved))

        initial = judged(params)

        def better(new: _Candidate, best: _Candidate) -> _Candidate:
            # Dead particles are left out of the loss: to kill must not be a way to
            # make it smaller.
            wins = (new.loss < best.loss) & (new.dead <= initial.dead)
            return jax.tree.map(lambda a, b: jnp.where(wins, a, b), new, best)

        def iterate(_, carry):
            params, optimizer_state, best, skipped = carry
            descent = free_energy_gradient(
                params, rest, trains, train, edge, self.gradient
            )
            here = judged(params)
            if is_same:
                dead = lost(train, descent.moved)
                here = _Candidate(params, descent.loss, dead)
            best = better(here, best)
            params, optimizer_state, skip = guarded_update(
                self.optimizer, descent.gradient, optimizer_state, params
            )
            return params, optimizer_state, best, skipped + skip

        carry = (params, self.optimizer.init(params), initial, jnp.zeros((), jnp.int32))
        params, _, best, skipped = jax.lax.fori_loop(0, self.num_iters, iterate, carry)
        best = better(judged(params), best)
        return Learnt(best.params, best.loss, initial.loss, skipped)

    @property
    def _reported(self) -> str:
        return "test" if self.early_stopping else "train"

    def _movers(self) -> dict[str, Sampler]:
        """Which sampler moves which population."""
        if not self.early_stopping:
            return {"train": self.training}
        judge = self._judge
        return {"train": self.training, "validation": judge, "test": self.sampler}

    @property
    def _judge(self) -> Sampler:
        """Moves the population whose loss decides."""
        if not self.early_stopping:
            return self.training
        return dataclasses.replace(self.training, num_particles=self.num_validation)

    def _learning_evaluations(self) -> int:
        """Evaluations of the density by the optimisation at one temperature."""
        train = self.training.num_particles
        judge = self.num_validation if self.early_stopping else train
        judgements = self.num_iters + 2 if self.early_stopping else 2
        return self.num_iters * train + judgements * judge
