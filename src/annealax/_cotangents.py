r"""Keep derivatives of discarded numbers out of a gradient.

`jnp.where(accepted, proposal, current)` gives a rejected proposal the cotangent zero,
but on its way back through the trajectory that zero meets the proposal's derivatives,
and $0 \cdot \infty$ is not a number. Whether a value is discarded is known only
after it was computed, too late for the usual remedy of a harmless input. So the news
travels with the backward pass:

    x, token = shield(x)            # before the risky computation f
    y = gate(f(x), token, discarded)

is `f(x)`, and where `discarded` holds the cotangent of `x` is exactly zero, whatever
the derivatives of `f` are. Elsewhere nothing changes: an overflow in a value that is
kept still shows.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def shield(
    tree: PyTree[Float[Array, "..."]], shape: tuple[int, ...] = ()
) -> tuple[PyTree[Float[Array, "..."]], Float[Array, "..."]]:
    """The same arrays, and a token for the `gate` behind the risky computation.

    Args:
        tree: Arrays; those of many particles have them on the last axes, of `shape`.
        shape: Shape of the token: one entry for each that may be discarded.
    """
    return tree, jnp.zeros(shape)


def _shield_forward(tree, shape):
    return shield(tree, shape), None


def _shield_backward(_shape, _residuals, cotangents):
    tree, token = cotangents
    return (jax.tree.map(lambda leaf: jnp.where(token > 0, 0, leaf), tree),)


shield.defvjp(_shield_forward, _shield_backward)


@jax.custom_vjp
def gate(
    tree: PyTree[Float[Array, "..."]],
    token: Float[Array, "..."],
    discarded: Bool[Array, "..."],
) -> PyTree[Float[Array, "..."]]:
    """The same arrays; tells the `shield` whether their derivatives matter."""
    del token, discarded
    return tree


def _gate_forward(tree, token, discarded):
    return gate(tree, token, discarded), discarded


def _gate_backward(discarded, cotangents):
    return cotangents, discarded.astype(jnp.result_type(float)), None


gate.defvjp(_gate_forward, _gate_backward)
