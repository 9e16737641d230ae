r"""The latents behind one image, under a trained variational autoencoder.

$$ \log \gamma(z) = \log \mathcal{N}(z; 0, I) + \log p(x | z), \qquad
   \log Z = \log p(x) , $$

with a Bernoulli likelihood of the binarised pixels of $x$, decoded by
`annealax.vae.Decoder` (Section 4.2; 30 latents).
"""

from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from annealax._checks import whole_number
from annealax._errors import InvalidInputError
from annealax.targets.base import AbstractTarget, check_configuration, log_normal
from annealax.vae import Decoder, bernoulli_log_likelihood, load_decoder

_DATA = "annealax.targets.data"


class VAE(AbstractTarget):
    """Posterior of the latents of one image.

    Prior and likelihood are normalised, so log Z is the log evidence of the image.

    Args:
        digit: Which of the shipped MNIST test images: `digit` is the first of the test
            set with that label.
        image: An image of zeros and ones of your own, instead of a digit.
        decoder: A decoder of your own (`annealax train-vae`, `vae.load_decoder`); None
            is the shipped one.
    """

    image: Float[Array, "height width"]
    decoder: Decoder
    shape: tuple[int, ...] = eqx.field(static=True)
    log_normalizer: float | None = eqx.field(static=True)

    def __init__(
        self,
        digit: int = 0,
        *,
        image: ArrayLike | None = None,
        decoder: Decoder | None = None,
    ):
        self.decoder = _shipped_decoder() if decoder is None else decoder
        pixels = _digit(digit) if image is None else np.asarray(image)
        if pixels.shape != self.decoder.image_shape:
            raise InvalidInputError(
                f"the decoder makes images of shape {self.decoder.image_shape}, got "
                f"one of shape {pixels.shape}"
            )
        if not np.all((pixels == 0) | (pixels == 1)):
            raise InvalidInputError(
                "the image must hold zeros and ones only, its values run from "
                f"{pixels.min()} to {pixels.max()}; binarise it, as in image > 127"
            )
        self.image = jnp.asarray(pixels, jnp.result_type(float))
        self.shape = (self.decoder.num_latents,)
        self.log_normalizer = None

    def __call__(self, x: Float[Array, " latents"]) -> Float[Array, ""]:
        """Log density of the latents of one image."""
        check_configuration(self.shape, x)
        return log_normal(x) + bernoulli_log_likelihood(self.decoder(x), self.image)

    def draw_prior(self, key: PRNGKeyArray) -> Float[Array, " latents"]:
        """Latents drawn from the prior, a standard normal."""
        return jr.normal(key, self.shape)

    def decode(self, z: Float[Array, " latents"]) -> Float[Array, "height width"]:
        """The probability of each pixel being 1, given latents."""
        return jax.nn.sigmoid(self.decoder(z))


def _shipped_decoder() -> Decoder:
    source = resources.files(_DATA) / "mnist_decoder.npz"
    with resources.as_file(source) as path:
        return load_decoder(path)


def _digit(digit: int) -> np.ndarray:
    number = whole_number("digit", digit, at_least=0)
    source = resources.files(_DATA) / "mnist_digits.npz"
    with resources.as_file(source) as path, np.load(path, allow_pickle=False) as file:
        images = file["images"]
    if number >= len(images):
        raise InvalidInputError(
            f"digit must be from 0 to {len(images) - 1}, got {digit}; give an image of "
            "your own with image="
        )
    return images[number]
