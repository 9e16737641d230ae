"""Training: the bound rises, is a bound, and the command leaves a decoder."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax import vae
from annealax.experiments.cli import app
from annealax.vae import _train

TINY = vae.Decoder(jr.key(0), num_latents=2, hidden=8, channels=(4, 2), base=1)
# Two kinds of 4 x 4 images, with a little noise.
LEFT = np.tile([1, 1, 0, 0], (4, 1))
IMAGES = np.where(
    np.random.default_rng(1).uniform(size=(200, 4, 4)) < 0.05,
    1 - np.stack([LEFT, LEFT.T] * 100),
    np.stack([LEFT, LEFT.T] * 100),
).astype(np.uint8)


@pytest.fixture(scope="module")
def trained():
    return vae.train(
        jr.key(0), IMAGES, num_steps=400, batch_size=50, learning_rate=1e-2,
        decoder=TINY,
    )  # fmt: skip


def test_the_bound_rises(trained):
    assert trained.elbo.shape == (400,)
    assert trained.elbo[:10].mean() < -10  # 16 pixels at random: -11.1
    test = vae.elbo(jr.key(2), trained.decoder, trained.encoder, IMAGES)
    assert test > -6  # the best there is: -log 2 - 16 * 0.199 = -3.9
    assert test == pytest.approx(trained.elbo[-50:].mean(), abs=0.5)


def test_the_bound_is_below_the_evidence(trained):
    """Evidence by summing over a fine grid of the two latents."""
    axis = jnp.linspace(-6, 6, 121)
    grid = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)
    target = ax.targets.VAE(image=IMAGES[0], decoder=trained.decoder)
    evidence = jax.nn.logsumexp(jax.vmap(target)(grid)) + 2 * jnp.log(0.1)
    keys = jr.split(jr.key(3), 500)
    model, image = (trained.decoder, trained.encoder), target.image
    bounds = jax.vmap(lambda key: _train._elbo(model, key, image))(keys)
    # The gap is a KL divergence; noise of the mean is about 0.05.
    assert float(evidence) - 1.5 < float(jnp.mean(bounds)) < float(evidence) + 0.15


def test_bad_input():
    with pytest.raises(ax.InvalidInputError, match="shape"):
        vae.train(jr.key(0), IMAGES, num_steps=1)
    with pytest.raises(ax.InvalidInputError, match="binarised"):
        vae.train(jr.key(0), 2 * IMAGES, num_steps=1, decoder=TINY)
    with pytest.raises(ax.InvalidInputError, match="num_steps"):
        vae.train(jr.key(0), IMAGES, num_steps=-1, decoder=TINY)


def test_the_command_writes_a_decoder(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 28, 28), np.uint8)
    np.savez(tmp_path / "data.npz", x_train=pixels)
    out = tmp_path / "decoder.npz"
    command = ["train-vae", "--data", tmp_path / "data.npz", "--out", out]
    options = ["--num-steps", 2, "--batch-size", 4]
    result = CliRunner().invoke(app, [str(word) for word in command + options])
    assert result.exit_code == 0, result.output
    assert "ELBO" in result.output
    assert out.stat().st_size < 1e6
    target = ax.targets.VAE(3, decoder=vae.load_decoder(out))
    assert np.isfinite(target(jnp.zeros(30)))


@pytest.mark.parametrize(
    ("data", "out", "words"),
    [("none.npz", "a.npz", "does not exist"), ("data.npz", "no/a.npz", "no folder")],
)
def test_the_command_says_what_is_wrong(tmp_path, data, out, words):
    np.savez(tmp_path / "data.npz", x_train=np.zeros((12, 28, 28), np.uint8))
    result = CliRunner().invoke(
        app, ["train-vae", "--data", str(tmp_path / data), "--out", str(tmp_path / out)]
    )
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert words in result.output
