"""The diagonal affine flow: a scale and a shift for each coordinate."""

import equinox as eqx
import jax.numpy as jnp
import paramax
from flowjax.bijections import Affine
from jaxtyping import PRNGKeyArray
from paramax.wrappers import AbstractUnwrappable

from annealax.flows.base import flow_shape


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
