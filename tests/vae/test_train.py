"""Training: the bound rises, is a bound, and the command leaves a decoder."""

import json
import os
import signal

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from typer.testing import CliRunner

import annealax as ax
from annealax import vae
from annealax.cli.main import app
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


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def data(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 28, 28), np.uint8)
    np.savez(tmp_path / "data.npz", x_train=pixels)
    return tmp_path / "data.npz"


SHORT = ("--num-steps", 120, "--batch-size", 4)


def test_the_command_leaves_a_run_folder(data, tmp_path):
    out = tmp_path / "out"
    result = invoke("train-vae", "--data", data, "--out", out, *SHORT)
    assert result.exit_code == 0, result.output
    assert "ELBO" in result.output
    decoder = out / "decoder.npz"
    assert decoder.stat().st_size < 1e6
    target = ax.targets.VAE(3, decoder=vae.load_decoder(decoder))
    assert np.isfinite(target(jnp.zeros(30)))
    lines = [
        json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == list(range(1, 121))
    assert all(np.isfinite(line["elbo"]) for line in lines)
    assert json.loads((out / "status.json").read_text()) == {"train-vae": "finished"}
    assert (out / "decoded.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert "nats" in page
    assert "train-vae" in page
    assert "versions" in json.loads((out / "environment.json").read_text())


def test_the_decoder_may_have_a_name_of_its_own(data, tmp_path):
    out = tmp_path / "mine.npz"
    options = ("--num-steps", 1, "--batch-size", 4, "--json")
    result = invoke("train-vae", "--data", data, "--out", out, *options)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["command"] == "train-vae"
    vae.load_decoder(out)
    assert (tmp_path / "mine" / "report.html").exists()


def test_a_training_that_was_stopped_goes_on(data, tmp_path, monkeypatch):
    """To the same numbers, to the bit."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert invoke("train-vae", "--data", data, "--out", whole, *SHORT).exit_code == 0
    advance = _train._advance

    def advance_and_stop(*arguments):
        if arguments[-1][-1] == 49:
            os.kill(os.getpid(), signal.SIGTERM)
        return advance(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(_train, "_advance", advance_and_stop)
        result = invoke("train-vae", "--data", data, "--out", parts, *SHORT)
    assert result.exit_code == 128 + signal.SIGTERM
    assert f"annealax resume {parts}" in result.output
    assert len((parts / "metrics.jsonl").read_text().splitlines()) == 50
    result = invoke("resume", parts)
    assert result.exit_code == 0, result.output
    with np.load(whole / "result.npz") as one, np.load(parts / "result.npz") as two:
        assert {**one}.keys() == {**two}.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, two[name])
    assert (whole / "decoder.npz").read_bytes() == (parts / "decoder.npz").read_bytes()


def test_a_checkpoint_of_other_images_is_an_error(tmp_path):
    options = {"num_steps": 1, "decoder": TINY, "checkpoint": tmp_path}
    vae.train(jr.key(0), IMAGES, **options)
    with pytest.raises(ax.InvalidInputError, match="images"):
        vae.train(jr.key(0), IMAGES[:50], **options)


@pytest.mark.parametrize(
    ("name", "out", "words"),
    [("none.npz", "a", "does not exist"), ("data.npz", "data.npz/a", "run folder")],
)
def test_the_command_says_what_is_wrong(data, tmp_path, name, out, words):
    result = invoke("train-vae", "--data", tmp_path / name, "--out", tmp_path / out)
    assert result.exit_code == 2
    assert result.output.startswith("Error: ")
    assert words in result.output
