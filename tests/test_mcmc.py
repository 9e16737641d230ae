"""Direct MCMC: moments, diagnostics and the bill."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from tests_problems import skewed_log_density

import annealax as ax

# Moments of the skewed target: x0 is the logarithm of a Gamma(2) variable, whose mean
# and variance are digamma(2) and trigamma(2).
MEAN = np.array([0.4227843351, 0.5 * (0.6449340668 + 0.4227843351**2)])


@pytest.mark.parametrize("method", ["hmc", "nuts"])
def test_moments_of_a_skewed_target(method):
    """|z| < 4.5 for three numbers: false alarm 2e-5, if the errors are right."""
    path = ax.GeometricPath((2,), skewed_log_density, 2)
    chains = ax.mcmc(
        jr.key(0),
        path,
        method=method,
        num_chains=16,
        num_warmup=200,
        num_samples=300,
        observables={"x": lambda x: x, "square": lambda x: x[0] ** 2},
        keep_draws=method == "hmc",
        num_leapfrog=5,
    )
    square = 0.6449340668 + MEAN[0] ** 2
    z = (chains.mean["x"] - MEAN) / chains.stderr["x"]
    assert np.abs(z).max() < 4.5
    assert abs((chains.mean["square"] - square) / chains.stderr["square"]) < 4.5
    assert np.all(chains.stderr["x"] < 0.1)
    assert np.all(chains.rhat["x"] < 1.05)
    assert chains.rhat["square"].shape == ()
    assert np.all(chains.ess["x"] > 300)
    assert 0.6 < chains.acceptance_rate <= 1
    assert chains.step_size.shape == (16,)
    if method == "hmc":
        assert chains.draws.shape == (16, 300, 2)
        assert np.allclose(chains.draws.mean(axis=(0, 1)), chains.mean["x"], atol=1e-4)
        assert chains.num_evaluations == 16 * (1 + 500 * 5)
        arviz = pytest.importorskip("arviz")
        for i in range(2):
            draws = chains.draws[..., i]
            rhat, ess = float(arviz.rhat(draws)), float(arviz.ess(draws))
            assert chains.rhat["x"][i] == pytest.approx(rhat, rel=1e-3)
            assert chains.ess["x"][i] == pytest.approx(ess, rel=0.02)
        assert chains.num_warmup_evaluations == 16 * (1 + 200 * 5)
    else:
        assert chains.draws is None
        assert chains.num_evaluations > 16 * 500


def test_chains_in_separate_modes_are_found_out():
    def two_modes(x):
        left = -0.5 * jnp.sum((x + 10) ** 2)
        return jnp.logaddexp(left, -0.5 * jnp.sum((x - 20) ** 2))

    start = jnp.where(jnp.arange(8) < 3, -10.0, 20.0)[:, None]
    chains = ax.mcmc(
        jr.key(1),
        two_modes,
        num_chains=8,
        num_warmup=50,
        num_samples=100,
        initial=start,
        num_leapfrog=3,
    )
    assert np.all(chains.rhat["x"] > 1.5)
    assert np.all(chains.ess["x"] < 20)
    # The error bar admits that it may be about the modes: they are thirty apart.
    assert np.all(chains.stderr["x"] > 3)


def test_errors_say_what_to_do(untyped):
    def target(x):
        return -0.5 * jnp.sum(x**2)

    with pytest.raises(ax.InvalidInputError, match="nuts"):
        ax.mcmc(jr.key(0), target, method="gibbs")
    with pytest.raises(ax.InvalidInputError, match="shape"):
        ax.mcmc(jr.key(0), target)
    with pytest.raises(ax.InvalidInputError, match=r"\(4, 2\)"):
        ax.mcmc(jr.key(0), target, num_chains=4, initial=jnp.zeros((3, 2)))
    with pytest.raises(ax.InvalidInputError, match="at least 4"):
        ax.mcmc(jr.key(0), target, num_samples=3, initial=jnp.zeros((16, 2)))
