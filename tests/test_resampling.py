"""Resampling schemes: unbiased offspring, honest noise, no survivor of weight zero."""

import typing

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax._resampling import SCHEMES
from annealax.experiments.experiment import Scheme

WEIGHTS = np.array([0.0, 0.31, 0.02, 0.17, 0.0, 0.05, 0.4, 0.05, 0.0], np.float32)


def offspring(scheme, weights, num_draws, seed=0):
    keys = jr.split(jr.key(seed), num_draws)
    indices = jax.vmap(lambda key: SCHEMES[scheme].draw(key, jnp.asarray(weights)))(
        keys
    )
    n = weights.shape[0]
    return np.asarray(jax.vmap(lambda i: jnp.bincount(i, length=n))(indices))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_offspring_have_expectation_n_times_weight(scheme):
    counts = offspring(scheme, WEIGHTS, 40_000)
    n = WEIGHTS.size
    assert np.all(counts.sum(axis=1) == n)
    error = counts.mean(axis=0) - n * WEIGHTS
    stderr = counts.std(axis=0) / np.sqrt(len(counts)) + 1e-6
    # Six live particles, four schemes: false alarm below 24 * 6e-5 = 0.2 %.
    assert np.all(np.abs(error) < 4 * stderr), (error, stderr)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_particles_of_weight_zero_never_survive(scheme):
    counts = offspring(scheme, WEIGHTS, 5000, seed=1)
    assert np.all(counts[:, WEIGHTS == 0] == 0)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_noise_is_the_variance_of_offspring(scheme):
    counts = offspring(scheme, WEIGHTS, 40_000, seed=2)
    n = WEIGHTS.size
    measured = counts.var(axis=0).sum() / n**2
    stated = float(SCHEMES[scheme].noise(jnp.asarray(WEIGHTS)))
    if scheme == "multinomial":
        # Lee and Whiteley's 1/N is the variance plus the coalescence by weight.
        stated -= float(np.sum(WEIGHTS**2)) / n
    # The relative error of a variance from 40 000 draws is below 1 %.
    assert measured == pytest.approx(stated, rel=0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_live_particle_gets_everything(scheme):
    weights = np.zeros(50, np.float32)
    weights[17] = 1.0
    assert np.all(offspring(scheme, weights, 100)[:, 17] == 50)


def test_large_populations_stay_in_range():
    weights = jr.dirichlet(jr.key(3), jnp.full(100_000, 0.05)).astype(jnp.float32)
    for scheme in SCHEMES.values():
        index = np.asarray(scheme.draw(jr.key(4), weights))
        assert index.min() >= 0
        assert index.max() < weights.size
        assert np.all(np.asarray(weights)[index] > 0)


@pytest.mark.parametrize(
    ("ess", "threshold", "expected"),
    [(2.0, 0.3, True), (8.0, 0.3, False), (9.9, 1.0, True)],
)
def test_threshold(ess, threshold, expected):
    # Two-valued weights with the wanted effective sample size out of ten.
    n = 10
    spread = np.sqrt((n / ess - 1) / (n - 1))
    weights = np.full(n, (1 - spread) / n)
    weights[0] += spread
    resampler = ax.ESSResampling(threshold)
    selection = resampler(
        jr.key(0), jnp.log(jnp.asarray(weights, jnp.float32)), jnp.arange(n)
    )
    assert bool(selection.resampled) is expected
    if expected:
        assert np.allclose(selection.log_weights, -np.log(n))
    else:
        assert np.array_equal(selection.survivors, np.arange(n))


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5, float("nan")])
def test_bad_threshold(threshold):
    with pytest.raises(ax.InvalidInputError, match="threshold"):
        ax.ESSResampling(threshold)


def test_unknown_scheme_names_the_valid_ones():
    with pytest.raises(ax.InvalidInputError, match="systematic"):
        ax.ESSResampling(0.5, scheme="sistematic")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_noise_of_more_particles_than_a_32_bit_square_holds(scheme):
    """The square of 50000 does not fit in 32 bits."""
    noise = SCHEMES[scheme].noise(jnp.full(50_000, 1 / 50_000))
    assert 0 <= float(noise) < 1e-4


def test_settings_name_every_scheme():
    assert set(typing.get_args(Scheme)) == set(SCHEMES)
