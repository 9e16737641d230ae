"""The contract of a trainer: `init` a state from a flow, `step` it.

With what trainers share: where the flows start, and an update that NaN cannot spoil.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from annealax._layout import with_true_quotients
from annealax._path import AbstractPath
from annealax._result import StepInfo
from annealax.flows.base import check_flow, partition, replicate


class TrainState(NamedTuple):
    """What a trainer carries from step to step.

    Attributes:
        flows: The flows, stacked over transitions.
        optimizer_state: State of the optimiser.
    """

    flows: AbstractBijection
    optimizer_state: PyTree


class TrainInfo(NamedTuple):
    """What a training step shows (with a leading axis over steps in a history).

    Attributes:
        loss: The training loss.
        log_normalizer: Estimate of log Z made by the step's own pass.
        steps: Diagnostics per transition of that pass.
        num_skipped: Updates left out because the gradient was not finite.
        extra: Arrays that only some trainers show.
    """

    loss: Float[Array, "*iterations"]
    log_normalizer: Float[Array, "*iterations"]
    steps: StepInfo
    num_skipped: Int[Array, "*iterations"]
    extra: PyTree = ()


class AbstractTrainer(eqx.Module):
    """Learns the flows of a sampler.

    Attributes:
        restarts: Whether every step starts again from the flow that was given, so
            that training cannot diverge.
    """

    restarts: ClassVar[bool] = False

    @abstractmethod
    def init(self, key: PRNGKeyArray, flow: AbstractBijection) -> TrainState:
        """The state before the first step, every transition starting at `flow`."""

    @abstractmethod
    def step(
        self, key: PRNGKeyArray, state: TrainState
    ) -> tuple[TrainState, TrainInfo]:
        """One training step."""

    def steps(
        self,
        key: PRNGKeyArray,
        state: TrainState,
        start: Int[Array, ""],
        count: Int[Array, ""],
        capacity: int,
    ) -> tuple[TrainState, TrainInfo]:
        """Several training steps, for `fit`: one after the other.

        Args:
            key: Random key of the whole training; a step's depends on its index alone.
            state: The state before them.
            start: Index of the first.
            count: How many.
            capacity: The most that there may be: the history is so long, and zero
                behind the last of them.
        """
        # The step is traced here, once: the loop replays what was traced.
        step = eqx.filter_closure_convert(self.step, key, state)
        info = step.out_struct[1]  # type: ignore[attr-defined]
        history = jax.tree.map(
            lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), info
        )
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(i, carry):
            arrays, history = carry
            state, info = step(jr.fold_in(key, start + i), eqx.combine(arrays, static))
            history = jax.tree.map(lambda all, one: all.at[i].set(one), history, info)
            return eqx.filter(state, eqx.is_array), history

        arrays, history = jax.lax.fori_loop(0, count, body, (arrays, history))
        return eqx.combine(arrays, static), history


def initial_state(
    optimizer: optax.GradientTransformation,
    flow: AbstractBijection,
    path: AbstractPath,
) -> TrainState:
    """Every transition starts at `flow`, with a state of the optimiser of its own."""
    check_flow(flow, path)
    flows = replicate(flow, path.num_transitions)
    params, _ = partition(flows)
    return TrainState(flows, jax.vmap(optimizer.init)(params))


def guarded_update(
    optimizer: optax.GradientTransformation,
    gradient: PyTree,
    optimizer_state: PyTree,
    params: PyTree,
) -> tuple[PyTree, PyTree, Int[Array, ""]]:
    """New parameters and state, or the old ones if the gradient is not finite.

    The third value is 1 if the update was skipped, for counting.
    """
    leaves = jax.tree.leaves(gradient)
    finite = jnp.all(
        jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves] or [True])
    )

    def update(turn, carry):
        gradient = carry[0]
        return gradient, *with_true_quotients(updated, turn, *carry)

    def updated(gradient, optimizer_state, params):
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optimizer_state, optax.apply_updates(params, updates)

    # Once or not at all. The body of a loop is compiled by itself, so that its rounding
    # does not depend on where the gradient comes from (`annealax._layout`).
    turns = finite.astype(jnp.int32)
    carry = (gradient, optimizer_state, params)
    _, optimizer_state, params = jax.lax.fori_loop(0, turns, update, carry)
    return params, optimizer_state, 1 - finite.astype(jnp.int32)
