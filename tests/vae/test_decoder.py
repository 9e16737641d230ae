"""The decoder: a transposed convolution, a normalised likelihood, files."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax import vae
from annealax.vae._decoder import upsample

TINY = {"num_latents": 3, "hidden": 4, "channels": (3, 2), "base": 1}


@pytest.mark.parametrize("shape", [(1, 1, 2), (3, 4, 2), (7, 7, 3)])
def test_upsample_is_the_sum_over_taps(shape):
    height, width, channels = shape
    maps = np.asarray(jr.normal(jr.key(0), shape))
    kernel = np.asarray(jr.normal(jr.key(1), (4, 4, channels, 5)))
    bias = np.arange(5.0)
    padded = np.zeros((2 * height + 2, 2 * width + 2, 5))
    for i, j, a, b in itertools.product(
        range(height), range(width), range(4), range(4)
    ):
        padded[2 * i + a, 2 * j + b] += maps[i, j] @ kernel[a, b]
    got = upsample(jnp.asarray(maps), jnp.asarray(kernel), jnp.asarray(bias))
    np.testing.assert_allclose(got, padded[1:-1, 1:-1] + bias, atol=1e-5)


def test_likelihood_sums_to_one_over_all_images():
    decoder = vae.Decoder(jr.key(0), **TINY)
    logits = decoder(jnp.array([0.5, -1.0, 2.0]))
    assert logits.shape == (4, 4)
    bits = (np.arange(2**16)[:, None] >> np.arange(16)) & 1
    images = jnp.asarray(bits.reshape(-1, 4, 4), jnp.float32)
    logs = jax.vmap(lambda image: vae.bernoulli_log_likelihood(logits, image))(images)
    assert float(jnp.sum(jnp.exp(logs))) == pytest.approx(1, abs=1e-4)


def test_default_sizes():
    decoder = vae.Decoder(jr.key(0))
    assert decoder.num_latents == 30
    assert decoder(jnp.zeros(30)).shape == decoder.image_shape == (28, 28)


def test_files_hold_half_precision(tmp_path):
    decoder = vae.Decoder(jr.key(0), **TINY)
    vae.save_decoder(tmp_path / "decoder.npz", decoder)
    again = vae.load_decoder(tmp_path / "decoder.npz")
    for old, new in zip(jax.tree.leaves(decoder), jax.tree.leaves(again), strict=True):
        assert new.dtype == jnp.float32
        np.testing.assert_allclose(new, old, rtol=1e-3, atol=1e-4)
    assert again.image_shape == decoder.image_shape
    ax.save(tmp_path / "other.npz", [1])
    with pytest.raises(ax.FileError, match="no decoder"):
        vae.load_decoder(tmp_path / "other.npz")
    with pytest.raises(ax.InvalidInputError, match="positive sizes"):
        vae.Decoder(jr.key(0), base=0)
