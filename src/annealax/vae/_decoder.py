r"""The decoder: latents in, one logit for each pixel out.

$$ z \in \mathbb{R}^{d} \;\to\; h \;\to\; s \times s \times c_1 \;\to\;
   2s \times 2s \times c_2 \;\to\; 4s \times 4s, \qquad
   \log p(x | z) = \sum_i x_i \ell_i - \log(1 + e^{\ell_i}) , $$

two dense layers and two transposed convolutions (kernel 4, stride 2), with leaky ReLU
between. A transposed convolution is one product with a matrix that is dense along the
columns of the image and sparse along its rows; `benchmarks/vae_pieces.py` compares it
with XLA's own convolution.
"""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from annealax._errors import InvalidInputError
from annealax._work.serialise import FileError, load, save

_KERNEL = 4


class Decoder(eqx.Module):
    """A convolutional decoder.

    Args:
        key: Random key for the weights.
        num_latents: Number of latents.
        hidden: Units of the dense hidden layer.
        channels: Channels of the two feature maps.
        base: Side of the first feature map; images are four times as wide and high.
    """

    dense: tuple[Float[Array, "hidden latents"], Float[Array, " hidden"]]
    unfold: tuple[Float[Array, "features hidden"], Float[Array, " features"]]
    first: tuple[Float[Array, "4 4 channels out"], Float[Array, " out"]]
    last: tuple[Float[Array, "4 4 channels 1"], Float[Array, "1"]]
    base: int = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        *,
        num_latents: int = 30,
        hidden: int = 128,
        channels: tuple[int, int] = (32, 8),
        base: int = 7,
    ):
        if min(num_latents, hidden, *channels, base) < 1:
            raise InvalidInputError(
                f"a decoder needs positive sizes, got num_latents={num_latents}, "
                f"hidden={hidden}, channels={channels}, base={base}"
            )
        keys = jr.split(key, 4)
        features = base * base * channels[0]
        self.base = base
        self.dense = _dense(keys[0], num_latents, hidden)
        self.unfold = _dense(keys[1], hidden, features)
        self.first = _kernel(keys[2], channels[0], channels[1])
        self.last = _kernel(keys[3], channels[1], 1)

    @property
    def num_latents(self) -> int:
        """Number of latents."""
        return self.dense[0].shape[1]

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an image."""
        return (4 * self.base, 4 * self.base)

    def __call__(self, z: Float[Array, " latents"]) -> Float[Array, "height width"]:
        """The logits of the pixels of one image."""
        hidden = jax.nn.leaky_relu(jnp.matmul(z, self.dense[0].T) + self.dense[1])
        maps = jax.nn.leaky_relu(jnp.matmul(hidden, self.unfold[0].T) + self.unfold[1])
        maps = maps.reshape(self.base, self.base, -1)
        maps = jax.nn.leaky_relu(upsample(maps, *self.first))
        return upsample(maps, *self.last)[:, :, 0]


def upsample(
    maps: Float[Array, "height width channels"],
    kernel: Float[Array, "4 4 channels out"],
    bias: Float[Array, " out"],
) -> Float[Array, "rows columns out"]:
    """Transposed convolution with a kernel of 4 x 4 and stride 2.

    Pixel (2i + a - 1, 2j + b - 1) of the output receives `maps[i, j] @ kernel[a, b]`.
    """
    height, width, channels = maps.shape
    out = kernel.shape[-1]
    along = jnp.asarray(_placement(width), kernel.dtype)
    bands = jnp.einsum("bjo,abcd->ajcod", along, kernel)
    bands = bands.reshape(_KERNEL, width * channels, 2 * width * out)
    rows = jnp.pad(maps.reshape(height, width * channels), ((1, 1), (0, 0)))
    here, above, below = rows[1:-1], rows[:-2], rows[2:]
    even = jnp.concatenate([here, above], 1) @ jnp.concatenate([bands[1], bands[3]])
    odd = jnp.concatenate([here, below], 1) @ jnp.concatenate([bands[2], bands[0]])
    both = jnp.stack([even, odd], axis=1)
    return both.reshape(2 * height, 2 * width, out) + bias


def bernoulli_log_likelihood(
    logits: Float[Array, "*image"], image: Float[Array, "*image"]
) -> Float[Array, ""]:
    """Log probability of an image of zeros and ones."""
    return -jnp.sum(jax.nn.softplus((1 - 2 * image) * logits))


def save_decoder(path: str | os.PathLike, decoder: Decoder) -> None:
    """Write a decoder to a file, in half precision and without pickle."""
    save(path, jax.tree.map(lambda leaf: leaf.astype(jnp.float16), decoder))


def load_decoder(path: str | os.PathLike) -> Decoder:
    """Read a decoder in the default precision.

    Args:
        path: A file that `save_decoder` or `annealax train-vae` wrote.

    Raises:
        FileError: If the file is damaged, or holds something else.
    """
    decoder = load(path)
    if not isinstance(decoder, Decoder):
        raise FileError(f"{path} holds no decoder, but {type(decoder).__name__}")
    return jax.tree.map(lambda leaf: leaf.astype(jnp.result_type(float)), decoder)


def _placement(width: int) -> np.ndarray:
    """1 where tap b of input column j lands in output column o."""
    taps, columns, out = np.ogrid[:_KERNEL, :width, : 2 * width]
    return (out == 2 * columns + taps - 1).astype(np.float32)


def _dense(key: PRNGKeyArray, inputs: int, outputs: int) -> tuple[Array, Array]:
    scale = (2 / inputs) ** 0.5
    return scale * jr.normal(key, (outputs, inputs)), jnp.zeros(outputs)


def _kernel(key: PRNGKeyArray, inputs: int, outputs: int) -> tuple[Array, Array]:
    scale = (2 / (4 * inputs)) ** 0.5  # each output pixel sees 2 x 2 taps
    shape = (_KERNEL, _KERNEL, inputs, outputs)
    return scale * jr.normal(key, shape), jnp.zeros(outputs)
