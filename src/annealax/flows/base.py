"""What all flows share: their contract, and one flow per transition as one tree.

With the simplest of them: a scale and a shift for each coordinate.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import paramax
from flowjax.bijections import AbstractBijection, Affine
from jaxtyping import PRNGKeyArray, PyTree
from paramax.wrappers import AbstractUnwrappable

from annealax._checks import whole_numbers
from annealax._errors import InvalidInputError
from annealax._path import AbstractPath


def flow_shape(shape: Sequence[int] | int) -> tuple[int, ...]:
    """A shape as a tuple; a number is the length of a vector."""
    sizes = whole_numbers("the shape of a flow", shape)
    if not sizes:
        raise InvalidInputError("a flow needs at least one axis, got the shape ()")
    return sizes


def partition(flow: AbstractBijection) -> tuple[PyTree, PyTree]:
    """Split a flow into its trainable leaves and the rest (`eqx.combine` joins)."""
    return eqx.partition(
        flow,
        eqx.is_inexact_array,
        is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable),
    )


def replicate(flow: AbstractBijection, num_transitions: int) -> AbstractBijection:
    """The same flow for every transition: each array gets a leading axis."""
    return jax.tree.map(
        lambda leaf: (
            jnp.broadcast_to(leaf, (num_transitions, *leaf.shape))
            if eqx.is_array(leaf)
            else leaf
        ),
        flow,
    )


def select(flows: AbstractBijection, index: int) -> AbstractBijection:
    """The flow of one transition."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, flows)


def check_flow(flow: AbstractBijection, path: AbstractPath) -> None:
    """A flow must be an unconditional flowjax bijection of the right shape."""
    if not isinstance(flow, AbstractBijection):
        raise InvalidInputError(
            f"a flow must be a flowjax bijection, got {type(flow).__name__}"
        )
    if tuple(flow.shape) != path.shape:
        raise InvalidInputError(
            f"the flow has shape {tuple(flow.shape)}, but a configuration of this "
            f"path has shape {path.shape}"
        )
    if flow.cond_shape is not None:
        raise InvalidInputError(
            f"the flow needs a condition of shape {flow.cond_shape}; only "
            "unconditional bijections can be used"
        )


def check_stacked(flows: AbstractBijection, path: AbstractPath) -> None:
    """Flows must carry one entry per transition in every array."""
    check_flow(flows, path)
    for leaf in jax.tree.leaves(eqx.filter(flows, eqx.is_array)):
        if leaf.ndim == 0 or leaf.shape[0] != path.num_transitions:
            raise InvalidInputError(
                f"flows must hold one flow for each of the {path.num_transitions} "
                f"transitions, stacked along a leading axis, but one of their arrays "
                f"has shape {leaf.shape}; use the flows that `fit` returns, or "
                "annealax.flows.replicate(flow, num_transitions)"
            )


def diagonal_affine(key: PRNGKeyArray | None, shape: tuple[int, ...] | int) -> Affine:
    """Scale and shift every coordinate; starts exactly as the identity.

    Args:
        key: Not used: there is nothing random in it. Every builder takes a key first.
        shape: Shape of one configuration.
    """
    del key
    zeros = jnp.zeros(flow_shape(shape))
    # flowjax's softplus scale is not exactly one at the start; exp(0) is.
    scale: AbstractUnwrappable = paramax.Parameterize(jnp.exp, zeros)
    return eqx.tree_at(
        lambda flow: flow.scale, Affine(zeros), scale, is_leaf=lambda x: x is None
    )
