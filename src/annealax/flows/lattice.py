r"""Coupling flows for a field on a periodic lattice (Section 4.3, Appendices H and I).

Sites are coloured like a checkerboard. Each layer keeps one colour and moves the other,
with parameters $\theta$ that a periodic convolutional network computes from the
kept sites (zero elsewhere); the colours alternate. For the affine transformer,

$$\phi'(x) = \phi(x)\, e^{s(x)} + t(x), \qquad
  (t, s) = \theta[\phi_{\text{kept}}](x).$$

The flow commutes with every translation that maps colours to themselves, that is by
$(a, b)$ with $a + b$ even: half of all translations. The others exchange
the colours, and with them the roles of the layers. A periodic checkerboard needs sides
of even length.

Only what is needed is computed. The first convolution sees the kept sites alone, so it
has half of the taps at each site; the last gives values at the moved sites alone. Both
colours are stored apart, and a tap at $(i, j)$ links equal colours if
$i + j$ is even, which for an odd kernel is every second tap.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._checks import whole_number, whole_numbers
from annealax._errors import InvalidInputError
from annealax.flows._lattice_ops import (
    Permutations,
    append_ones,
    collect,
    materialise,
    mix,
    spread,
)
from annealax.flows._transformers import (
    AbstractTransformer,
    Spline,
    transformer_named,
)
from annealax.flows.base import flow_shape

_Half = Float[Array, "_ half"]


def lattice_coupling(
    key: PRNGKeyArray,
    shape: tuple[int, int],
    *,
    num_layers: int = 2,
    channels: Sequence[int] = (10,),
    kernel_size: int = 3,
    transformer: Literal["affine", "spline"] = "affine",
    num_bins: int = 8,
    bound: float = 5.0,
    activation: Callable[[Array], Array] = jax.nn.relu,
    odd: bool = False,
) -> "LatticeCoupling":
    """Convolutional coupling flow of a periodic lattice; starts as the identity.

    Args:
        key: Random key for the hidden layers.
        shape: Numbers of sites along the two sides, both even.
        num_layers: Number of layers; two are needed to move every site.
        channels: Channels of each hidden layer of the networks.
        kernel_size: Side of the convolution kernels, odd.
        transformer: "affine" or "spline".
        num_bins: Bins of the splines.
        bound: The splines act on fields in [-bound, bound].
        activation: Nonlinearity.
        odd: Make the flow odd, T(-phi) = -T(phi), so that it keeps a symmetry under a
            change of sign. Costs up to twice as much.
    """
    sides = flow_shape(shape)
    if len(sides) != 2 or any(n % 2 for n in sides):
        raise InvalidInputError(
            f"a periodic checkerboard needs two sides of even length, got {shape}; use "
            "annealax.flows.coupling for other shapes"
        )
    num_layers = whole_number("num_layers", num_layers)
    if kernel_size < 3 or kernel_size % 2 == 0:
        raise InvalidInputError(
            f"kernel_size must be odd and at least 3, got {kernel_size}"
        )
    widths = whole_numbers("channels", channels)
    if not widths:
        raise InvalidInputError("channels must name at least one hidden layer, got ()")
    kind = transformer_named(transformer, num_bins, bound)
    sizes = (1, *widths, kind.num_params)
    return LatticeCoupling(
        shape=sides,
        cond_shape=None,
        networks=tuple(
            _network(subkey, sizes, kernel_size) for subkey in jr.split(key, num_layers)
        ),
        transformer=kind,
        activation=activation,
        odd=odd,
    )


class LatticeCoupling(AbstractBijection):
    """Coupling layers that move the colours of a checkerboard in turn.

    Attributes:
        networks: One network, a sequence of convolutions, per layer.
        transformer: The map of each moved site.
        activation: Nonlinearity between the convolutions.
        odd: Whether the flow commutes with a change of sign.
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] | None = eqx.field(static=True)
    networks: tuple["_Network", ...]
    transformer: AbstractTransformer
    activation: Callable[[Array], Array] = eqx.field(static=True)
    odd: bool = eqx.field(static=True)

    def transform_and_log_det(self, x, condition=None):
        """Apply the layers in turn."""
        return self._apply(self.transformer.forward, x, range(len(self.networks)))

    def inverse_and_log_det(self, y, condition=None):
        """Undo the layers, the last one first."""
        backwards = reversed(range(len(self.networks)))
        return self._apply(self.transformer.inverse, y, backwards)

    def _apply(self, function, x, order: Iterable[int]):
        board = _board(self.shape, self.networks[0][0].weight.shape[-1])
        half = x.size // 2
        sites = spread(x.reshape(1, -1), board.sorted)
        halves = [sites[:, :half], sites[:, half:]]
        log_det = jnp.zeros((), x.dtype)
        for index in order:
            moved = index % 2
            params = self._params(self.networks[index], halves[1 - moved], moved, board)
            new, log_slope = function(params, halves[moved][0])
            halves[moved] = materialise(new[None])
            log_det = log_det + jnp.sum(log_slope)
        # Padding and adding, because joining would move the particle axis to the front.
        sites = jnp.pad(halves[0], ((0, 0), (0, half))) + jnp.pad(
            halves[1], ((0, 0), (half, 0))
        )
        return spread(sites, board.sorted.inverse).reshape(self.shape), log_det

    def _params(
        self, network: "_Network", kept: _Half, moved: int, board: "_Board"
    ) -> _Half:
        """Parameters of the transformer at the moved sites, one row for each kind."""
        if self.odd:
            network = _odd_network(network, self.transformer)
        values: list[_Half | None] = [None, None]
        values[1 - moved] = kept
        for layer in network[:-1]:
            values = [
                self.activation(_convolve(layer, values, colour, board))
                for colour in (0, 1)
            ]
        return _convolve(network[-1], values, moved, board)


class Convolution(eqx.Module):
    """Weights of a periodic convolution."""

    weight: Float[Array, "*stack out in kernel kernel"]
    bias: Float[Array, "*stack out"]


_Network = tuple[Convolution, ...]


def _convolve(
    layer: Convolution, values: Sequence[_Half | None], colour: int, board: "_Board"
) -> _Half:
    """Values at the sites of one colour, from those at all sites; None is zero.

    The shifted copies that a convolution adds up are copies of its input, stacked
    before the product along the channels, or copies of its output, added up after it:
    whichever are fewer.
    """
    n_out, n_in = layer.weight.shape[:2]
    before = n_in <= n_out
    taps = layer.weight.reshape(n_out, n_in, -1)
    terms: list[Array] = []
    for kind, given in enumerate((values[colour], values[1 - colour])):
        if given is None:
            continue
        links, weight = board.links[colour][kind], taps[:, :, kind::2]
        rows = spread(given, links) if before else given
        order = (0, 2, 1) if before else (2, 0, 1)
        weight = weight.transpose(order).reshape(-1, rows.shape[0])
        if not terms:  # The bias goes into the first product, to its first copy.
            rows = append_ones(rows)
            bias = jnp.pad(layer.bias, (0, weight.shape[0] - n_out))
            weight = jnp.concatenate([weight, bias[:, None]], axis=1)
        product = mix(weight, rows)
        terms.append(product if before else collect(product, links.inverse))
    return functools.reduce(jnp.add, terms)


def _network(key: PRNGKeyArray, sizes: Sequence[int], kernel_size: int) -> _Network:
    """Hidden layers that keep the size of a signal, and a last one of zero."""
    pairs = list(itertools.pairwise(sizes))
    layers = []
    for index, (n_in, n_out) in enumerate(pairs):
        key, subkey = jr.split(key)
        weight = jr.normal(subkey, (n_out, n_in, kernel_size, kernel_size))
        scale = 1 / math.sqrt(n_in * kernel_size**2) if index < len(pairs) - 1 else 0.0
        layers.append(Convolution(scale * weight, jnp.zeros(n_out)))
    return tuple(layers)


def _odd_network(network: _Network, transformer: AbstractTransformer) -> _Network:
    r"""The network of $\theta[\phi] + R\,\theta[-\phi]$, of twice the width.

    $R$ turns the parameters of a map $f(x)$ into those of
    $-f(-x)$, so that the parameters at $-\phi$ are those, turned.
    """
    first, *middle, last = network

    def both(layer: Convolution) -> Convolution:
        zero = jnp.zeros_like(layer.weight)
        rows = [[layer.weight, zero], [zero, layer.weight]]
        weight = jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])
        return Convolution(weight, jnp.concatenate([layer.bias, layer.bias]))

    turn = functools.partial(_turn, transformer)
    return (
        Convolution(
            jnp.concatenate([first.weight, -first.weight]),
            jnp.concatenate([first.bias, first.bias]),
        ),
        *map(both, middle),
        Convolution(
            jnp.concatenate([last.weight, turn(last.weight)], axis=1),
            last.bias + turn(last.bias),
        ),
    )


def _turn(transformer: AbstractTransformer, params: Array) -> Array:
    """Parameters (along the first axis) of -f(-x), from those of f(x)."""
    if isinstance(transformer, Spline):
        n = transformer.num_bins
        parts = params[:n], params[n : 2 * n], params[2 * n :]
        return jnp.concatenate([part[::-1] for part in parts])
    shift, log_scale = params
    return jnp.stack([-shift, log_scale])


class _Board(NamedTuple):
    """A checkerboard: where its sites are stored, and which ones a kernel links.

    Attributes:
        sorted: The sites of colour 0, then those of colour 1.
        links: By colour of the output, and by equal or different colour of the input.
    """

    sorted: Permutations
    links: tuple[tuple[Permutations, Permutations], ...]


@functools.cache
def _board(shape: tuple[int, int], kernel_size: int) -> _Board:
    rows, columns = np.indices(shape).reshape(2, -1)
    by_colour = np.argsort((rows + columns) % 2, kind="stable")
    place = np.argsort(by_colour) % (len(by_colour) // 2)
    offsets = np.indices((kernel_size, kernel_size)).reshape(2, -1) - kernel_size // 2

    def links(sites: np.ndarray, taps: np.ndarray) -> Permutations:
        row = (rows[sites] + taps[0][:, None]) % shape[0]
        column = (columns[sites] + taps[1][:, None]) % shape[1]
        return Permutations(place[row * shape[1] + column])

    return _Board(
        Permutations(by_colour[None]),
        tuple(
            (links(sites, offsets[:, ::2]), links(sites, offsets[:, 1::2]))
            for sites in np.split(by_colour, 2)
        ),
    )
