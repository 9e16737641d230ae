r"""Inverse autoregressive flows: all coordinates at once, each given those before it.

Coordinate $i$ is mapped by an increasing function whose parameters a masked
network computes from $x_{<i}$ (Germain et al. 2015, Kingma et al. 2016). The
Jacobian is triangular. Moving particles takes one pass of the network; inverting takes
one pass per coordinate.
"""

import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import whole_numbers
from annealax.flows._transformers import AbstractTransformer, Affine, Spline
from annealax.flows.base import flow_shape

# Masked matrices are block triangular: computing by groups of rows, each with the
# columns it may see, leaves out zeros. Two groups save a sixth of a value and gradient
# at 960 units; more save nothing further and take longer to compile.
_MAX_GROUPS = 2


def affine_autoregressive(
    key: PRNGKeyArray,
    shape: tuple[int, ...] | int,
    *,
    hidden: Sequence[int] = (150, 150),
    activation: Callable[[Array], Array] = jax.nn.leaky_relu,
) -> AbstractBijection:
    """Affine inverse autoregressive flow; starts exactly as the identity.

    Args:
        key: Random key for the hidden layers.
        shape: Shape of one configuration.
        hidden: Width of each hidden layer (the paper's VAE flow: two of 150).
        activation: Nonlinearity.
    """
    return Autoregressive(
        key, shape, Affine(), whole_numbers("hidden", hidden), activation
    )


def spline_autoregressive(
    key: PRNGKeyArray,
    shape: tuple[int, ...] | int,
    *,
    hidden: Sequence[int] | None = None,
    num_bins: int = 10,
    bound: float = 4.0,
    activation: Callable[[Array], Array] = jax.nn.leaky_relu,
) -> AbstractBijection:
    """Spline inverse autoregressive flow; starts exactly as the identity.

    Args:
        key: Random key for the hidden layers.
        shape: Shape of one configuration.
        hidden: Width of each hidden layer; None for two layers with 10 units per
            coordinate.
        num_bins: Bins of the rational quadratic splines.
        bound: The splines act on [-bound, bound]; outside is the identity.
        activation: Nonlinearity.
    """
    if hidden is None:
        hidden = (10 * int(np.prod(flow_shape(shape))),) * 2
    return Autoregressive(
        key, shape, Spline(num_bins, bound), whole_numbers("hidden", hidden), activation
    )


class Autoregressive(AbstractBijection):
    """An elementwise transformer whose parameters come from a masked network."""

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)
    network: "MaskedNetwork"
    transformer: AbstractTransformer

    def __init__(
        self,
        key: PRNGKeyArray,
        shape: tuple[int, ...] | int,
        transformer: AbstractTransformer,
        hidden: tuple[int, ...],
        activation: Callable[[Array], Array],
    ):
        self.shape = flow_shape(shape)
        self.cond_shape = None
        self.transformer = transformer
        self.network = MaskedNetwork(
            key,
            int(np.prod(self.shape)),
            transformer.num_params,
            hidden,
            activation,
        )

    def transform_and_log_det(self, x, condition=None):
        """One pass of the network."""
        x = x.reshape(-1)
        y, log_det = self.transformer.forward(self.network(x), x)
        return y.reshape(self.shape), jnp.sum(log_det)

    def inverse_and_log_det(self, y, condition=None):
        """One pass per coordinate: each makes one more of them right."""
        y = y.reshape(-1)

        def solve(x, _):
            return self.transformer.inverse(self.network(x), y)[0], None

        x, _ = jax.lax.scan(solve, y, length=y.shape[0])
        _, log_det = self.transformer.forward(self.network(x), x)
        return x.reshape(self.shape), -jnp.sum(log_det)


class MaskedNetwork(eqx.Module):
    """Perceptron whose output for coordinate `i` depends on inputs before `i` only.

    Every unit has a degree: the last input that it may see. Units are sorted by
    degree, so what a group of units may see is always a prefix of the layer below.
    The last layer starts at zero.
    """

    weights: tuple[Float[Array, "_out _in"], ...]
    biases: tuple[Float[Array, " _out"], ...]
    dim: int = eqx.field(static=True)
    num_params: int = eqx.field(static=True)
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        dim: int,
        num_params: int,
        hidden: tuple[int, ...],
        activation: Callable[[Array], Array],
    ):
        self.dim, self.num_params, self.activation = dim, num_params, activation
        if dim == 1:  # nothing to condition on: the last bias is all there is
            hidden = ()
        sizes = (dim, *hidden)
        weights, biases = [], []
        for subkey, n_in, n_out in zip(
            jr.split(key, max(len(hidden), 1)), sizes[:-1], sizes[1:], strict=False
        ):
            seen = np.maximum(
                np.sum(_degrees(n_out, dim)[:, None] >= _degrees(n_in, dim), axis=1), 1
            )
            scale = np.sqrt(2 / seen)[:, None]
            weights.append(scale * jr.normal(subkey, (n_out, n_in)))
            biases.append(jnp.zeros(n_out))
        weights.append(jnp.zeros((dim * num_params, sizes[-1])))
        biases.append(jnp.zeros(dim * num_params))
        self.weights, self.biases = tuple(weights), tuple(biases)

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, "params dim"]:
        """Parameters of every coordinate."""
        h = x
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            degrees = _degrees(weight.shape[0], self.dim)
            below = _degrees(weight.shape[1], self.dim)
            parts = [
                _masked(weight[rows], below, degrees[rows]) @ h[: _prefix(below, top)]
                for rows, top in _groups(degrees)
            ]
            h = self.activation(jnp.concatenate(parts) + bias)
        # Without this factor one step of Adam moves the output in proportion to the
        # width, and wide networks leave the identity with a jump.
        h = h / np.sqrt(h.shape[0]).astype(h.dtype)
        # Output i sees degrees below i. Rows are (coordinate, parameter), so that a
        # group of coordinates is a slice.
        below = _degrees(self.weights[-1].shape[1], self.dim)
        out = np.repeat(np.arange(self.dim) - 1, self.num_params)
        parts = []
        for rows, top in _groups(out, self.num_params):
            weight = _masked(self.weights[-1][rows], below, out[rows])
            part = weight @ h[: _prefix(below, top)] + self.biases[-1][rows]
            parts.append(part.reshape(-1, self.num_params).T)
        return jnp.concatenate(parts, axis=1)


def _degrees(size: int, dim: int) -> np.ndarray:
    """Sorted degrees: 0 to dim - 2 spread evenly, or those of the inputs themselves."""
    if size == dim:
        return np.arange(dim)
    return np.arange(size) * max(dim - 1, 1) // size


def _groups(degrees: np.ndarray, multiple: int = 1):
    """Slices of rows, each with the highest degree in it."""
    units = len(degrees) // multiple
    bounds = np.linspace(0, units, min(_MAX_GROUPS, units) + 1).astype(int) * multiple
    return [
        (slice(start, stop), int(degrees[stop - 1]))
        for start, stop in itertools.pairwise(bounds)
    ]


def _prefix(below: np.ndarray, top: int) -> int:
    return int(np.sum(below <= top))


def _masked(weight: Array, below: np.ndarray, degrees: np.ndarray) -> Array:
    """Rows of a weight, cut to the prefix they may see, entries out of sight zero."""
    size = _prefix(below, int(degrees[-1]))
    visible = jnp.asarray(degrees)[:, None] >= jnp.asarray(below[:size])
    return jnp.where(visible, weight[:, :size], 0)
