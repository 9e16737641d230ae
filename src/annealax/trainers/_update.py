"""What trainers share: where the flows start, and an update that NaN cannot spoil."""

import jax
import jax.numpy as jnp
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Int, PyTree

from annealax import _flows
from annealax._path import AbstractPath
from annealax.trainers.base import TrainState


def initial_state(
    optimizer: optax.GradientTransformation,
    flow: AbstractBijection,
    path: AbstractPath,
) -> TrainState:
    """Every transition starts at `flow`, with a state of the optimiser of its own."""
    _flows.check_flow(flow, path)
    flows = _flows.replicate(flow, path.num_transitions)
    params, _ = _flows.partition(flows)
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
    updates, new_state = optimizer.update(gradient, optimizer_state, params)
    new_params = optax.apply_updates(params, updates)
    params, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(finite, new, old),
        (new_params, new_state),
        (params, optimizer_state),
    )
    return params, optimizer_state, 1 - finite.astype(jnp.int32)
