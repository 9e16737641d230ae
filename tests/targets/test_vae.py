"""The posterior of the latents of a digit, against NumPy and finite differences."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import annealax as ax
from annealax import vae


@pytest.fixture(scope="module")
def target():
    return ax.targets.VAE()


def test_density_is_prior_times_bernoulli(target):
    """In float64, where probabilities near 0 and 1 are exact enough; then float32."""
    with jax.enable_x64(True):
        double = ax.targets.VAE()
        for seed in range(3):
            z = 0.5 * jr.normal(jr.key(seed), (30,))
            probabilities = np.asarray(double.decode(z))
            image = np.asarray(double.image, np.int64)
            expected = stats.norm.logpdf(np.asarray(z)).sum()
            expected += stats.bernoulli.logpmf(image, probabilities).sum()
            assert float(double(z)) == pytest.approx(expected, rel=1e-9)
    z = jnp.asarray(np.asarray(z), jnp.float32)
    assert float(target(z)) == pytest.approx(expected, rel=1e-4)


def test_gradient_against_finite_differences():
    with jax.enable_x64(True):
        target = ax.targets.VAE(4)
        z = jr.normal(jr.key(0), (30,)) * 0.7
        assert target.image.dtype == jnp.float64
        gradient = jax.grad(target)(z)
        for i in (0, 7, 29):
            step = 1e-5 * jnp.eye(30)[i]
            slope = (target(z + step) - target(z - step)) / 2e-5
            assert float(gradient[i]) == pytest.approx(float(slope), rel=1e-5, abs=1e-6)


def test_it_is_a_target(target):
    assert target.shape == (30,)
    assert target.log_normalizer is None
    decoded = target.decode(jnp.zeros(30))
    assert decoded.shape == (28, 28)
    assert 0 <= float(decoded.min()) <= float(decoded.max()) <= 1


def test_digits_differ_and_are_binary():
    images = [np.asarray(ax.targets.VAE(digit).image) for digit in range(10)]
    for image in images:
        assert set(np.unique(image)) == {0.0, 1.0}
    assert len({image.tobytes() for image in images}) == 10


def test_the_decoder_has_learnt_digits(target):
    """From the best of prior draws the digit is far likelier than by chance."""
    draws = jr.normal(jr.key(0), (500, 30))
    logits = jax.vmap(target.decoder)(draws)
    logs = jax.vmap(lambda value: vae.bernoulli_log_likelihood(value, target.image))
    assert float(logs(logits).max()) > -250  # pixels at random: -543
    mean = np.asarray(jax.vmap(target.decode)(draws)).mean(axis=0)
    assert mean[8:20, 8:20].mean() > 5 * mean[:3].mean()


def test_own_image_and_decoder():
    decoder = vae.Decoder(jr.key(0), num_latents=2, hidden=3, channels=(2, 2), base=1)
    target = ax.targets.VAE(image=np.eye(4), decoder=decoder)
    assert target.shape == (2,)
    with pytest.raises(ax.InvalidInputError, match="shape"):
        ax.targets.VAE(image=np.eye(5), decoder=decoder)
    with pytest.raises(ax.InvalidInputError, match="zeros and ones"):
        ax.targets.VAE(image=np.eye(4) * 255, decoder=decoder)


def test_bad_digit():
    with pytest.raises(ax.InvalidInputError, match="from 0 to 9"):
        ax.targets.VAE(10)
    with pytest.raises(ax.InvalidInputError, match="digit"):
        ax.targets.VAE(-1)
