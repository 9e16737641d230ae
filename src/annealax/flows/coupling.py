r"""Coupling flows: half of the coordinates moves, given the other half.

Each layer maps coordinates $x_B$ elementwise with parameters that a perceptron
computes from $x_A$ (Dinh et al. 2017, Durkan et al. 2019). Both directions take
one pass.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Chain
from jaxtyping import Array, PRNGKeyArray

from annealax._checks import whole_number, whole_numbers
from annealax._errors import InvalidInputError
from annealax.flows._transformers import (
    AbstractTransformer,
    transformer_named,
)
from annealax.flows.base import flow_shape


def coupling(
    key: PRNGKeyArray,
    shape: tuple[int, ...] | int,
    *,
    transformer: Literal["affine", "spline"] = "affine",
    num_layers: int = 4,
    hidden: Sequence[int] = (64, 64),
    num_bins: int = 8,
    bound: float = 5.0,
    activation: Callable[[Array], Array] = jax.nn.relu,
) -> AbstractBijection:
    """Coupling flow; starts exactly as the identity.

    Layers come in pairs that move the two halves in turn; each pair after the first
    splits the coordinates in a new random way.

    Args:
        key: Random key for splits and hidden layers.
        shape: Shape of one configuration, of at least two coordinates.
        transformer: "affine" or "spline".
        num_layers: Number of layers; two are needed to move every coordinate.
        hidden: Width of each hidden layer of the perceptrons.
        num_bins: Bins of the splines.
        bound: The splines act on [-bound, bound].
        activation: Nonlinearity.
    """
    shape = flow_shape(shape)
    dim = int(np.prod(shape))
    if dim < 2:
        raise InvalidInputError(
            f"a coupling flow needs at least two coordinates, got shape {shape}; use "
            "diagonal_affine or spline_autoregressive"
        )
    num_layers = whole_number("num_layers", num_layers)
    kind = transformer_named(transformer, num_bins, bound)
    widths = whole_numbers("hidden", hidden)
    layers, order = [], np.arange(dim)
    for index in range(num_layers):
        key, key_split, key_layer = jr.split(key, 3)
        if index >= 2 and index % 2 == 0:
            order = np.asarray(jr.permutation(key_split, dim))
        halves = np.sort(order[: dim // 2]), np.sort(order[dim // 2 :])
        frozen, moving = halves if index % 2 == 0 else halves[::-1]
        layers.append(
            CouplingLayer(
                key_layer,
                shape,
                tuple(map(int, frozen)),
                tuple(map(int, moving)),
                kind,
                widths,
                activation,
            )
        )
    return Chain(layers)


class CouplingLayer(AbstractBijection):
    """Move the coordinates `moving`, given those in `frozen`."""

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)
    frozen: tuple[int, ...] = eqx.field(static=True)
    moving: tuple[int, ...] = eqx.field(static=True)
    transformer: AbstractTransformer
    network: "Perceptron"

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...],
        frozen: tuple[int, ...],
        moving: tuple[int, ...],
        transformer: AbstractTransformer,
        hidden: tuple[int, ...],
        activation: Callable[[Array], Array],
    ):
        self.shape, self.cond_shape = shape, None
        self.frozen, self.moving, self.transformer = frozen, moving, transformer
        out = transformer.num_params * len(moving)
        self.network = Perceptron(key, (len(frozen), *hidden, out), activation)

    def transform_and_log_det(self, x, condition=None):
        """Move half of the coordinates."""
        return self._apply(self.transformer.forward, x)

    def inverse_and_log_det(self, y, condition=None):
        """Move them back."""
        return self._apply(self.transformer.inverse, y)

    def _apply(self, function, x):
        flat = x.reshape(-1)
        frozen, moving = np.asarray(self.frozen), np.asarray(self.moving)
        params = self.network(flat[frozen]).reshape(-1, len(moving))
        moved, log_det = function(params, flat[moving])
        y = jnp.zeros_like(flat).at[frozen].set(flat[frozen]).at[moving].set(moved)
        return y.reshape(self.shape), jnp.sum(log_det)


class Perceptron(eqx.Module):
    """A plain network whose last layer starts at zero."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        activation: Callable[[Array], Array],
    ):
        pairs = list(itertools.pairwise(sizes))
        self.weights = tuple(
            jnp.sqrt(2 / n_in) * jr.normal(subkey, (n_out, n_in))
            if index < len(pairs) - 1
            else jnp.zeros((n_out, n_in))
            for index, (subkey, (n_in, n_out)) in enumerate(
                zip(jr.split(key, len(pairs)), pairs, strict=True)
            )
        )
        self.biases = tuple(jnp.zeros(n_out) for _, n_out in pairs)
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        """Apply all layers."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = self.activation(weight @ x + bias)
        # Steps of Adam then move the output by as much whatever the width.
        x = x / np.sqrt(x.shape[0]).astype(x.dtype)
        return self.weights[-1] @ x + self.biases[-1]
