"""The examples of learning run and do what they say, on a small scale."""

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import annealax as ax

FOLDER = Path(__file__).parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cox(capsys):
    learnt = example("learn_cox").main(grid=4, num_steps=40, num_particles=100)
    rise = learnt.log_normalizer[-5:].mean() - learnt.log_normalizer[:5].mean()
    assert rise > 0.5
    text = capsys.readouterr().out
    assert "log_variance" in text
    assert "log_length_scale" in text


def test_decoder(capsys):
    learnt = example("learn_decoder").main(num_steps=12, num_particles=32)
    assert learnt.parameters[0].shape == (4, 4, 8, 1)
    assert learnt.log_normalizer[-4:].mean() > learnt.log_normalizer[:4].mean()
    assert "log p(image)" in capsys.readouterr().out


@pytest.mark.parametrize("whitened", [False, True])
def test_cox_gradient_in_its_parameters(whitened):
    """Against finite differences in float64, of the target built anew."""
    with jax.enable_x64(True):
        counts = np.array(jr.poisson(jr.key(0), 2.0, (3, 4)))

        def density(flat, x):
            target = ax.targets.LogGaussianCox(counts, whitened=whitened)
            return target.with_prior(flat[0], flat[1])(x)

        x = jr.normal(jr.key(1), (12,)) + (0 if whitened else 3.0)
        flat = jnp.array([1.4, 0.2])
        exact = jax.grad(density)(flat, x)
        for i in range(2):
            ends = [
                ax.targets.LogGaussianCox(
                    counts,
                    variance=float(flat[0] + sign * 1e-5 * (i == 0)),
                    length_scale=float(flat[1] + sign * 1e-5 * (i == 1)),
                    whitened=whitened,
                )(x)
                for sign in (1, -1)
            ]
            slope = float(ends[0] - ends[1]) / 2e-5
            assert float(exact[i]) == pytest.approx(slope, rel=1e-5, abs=1e-6)
