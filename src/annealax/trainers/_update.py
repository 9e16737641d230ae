"""One optimiser step that a non-finite gradient cannot spoil."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree


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
