"""What one start finds and another does not."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

import annealax as ax
from annealax.auto.starts.base import WideNormal
from annealax.auto.starts.gaussian import widening
from annealax.auto.starts.mixture import (
    Cloud,
    mixture_of,
    refit_mixture,
    with_region,
)

_WIDE = WideNormal(np.zeros(3), np.full(3, 50.0))


def _cloud(mean, scale, log_mass, count=1000, seed=0):
    rng = np.random.default_rng(seed)
    x = mean + scale * rng.normal(size=(count, 3))
    return Cloud(x, np.full(count, 1 / count), log_mass)


@pytest.mark.parametrize("narrow_first", [False, True])
def test_a_spike_and_a_slab_are_put_together(narrow_first):
    spike = _cloud(1.0, 0.01, np.log(0.3))
    slab = _cloud(0.0, 10.0, np.log(0.7), seed=1)
    pair = (spike, slab) if narrow_first else (slab, spike)
    start = with_region(*pair, _WIDE)
    assert start.is_of_modes

    # So close to the target that weights hardly differ, but for the wide normal.
    def target(x):
        parts = [(1.0, 0.01, 0.3), (0.0, 10.0, 0.7)]
        terms = [jnp.sum(norm.logpdf(x, m, s)) + np.log(w) for m, s, w in parts]
        return logsumexp(jnp.stack(terms))

    def log_weight(z):
        path = start.path(target, np.arange(2.0))
        return path.target(z) - path.initial.log_prob(z)

    z = start.base_dist.sample(jr.key(0), (4000,))
    ratio = np.exp(np.asarray(jax.vmap(log_weight)(z), np.float64))
    assert ratio.mean() == pytest.approx(1, abs=5 * ratio.std() / np.sqrt(4000))
    assert ratio.std() < 1.5


def test_another_region_is_kept_apart_from_what_is_known():
    cloud, other = _cloud(0.0, 1.0, 0.0), _cloud(0.0, 1.0, np.log(2.0), seed=1)
    x = np.where(np.arange(1000)[:, None] < 500, other.x, other.x + 40)
    start = with_region(cloud, other._replace(x=x), _WIDE)
    places = start.bijection.positions(np.asarray(start.base_dist.means))
    np.testing.assert_allclose(places[:2], [[0, 0, 0], [40, 40, 40]], atol=0.3)
    shares = np.exp(np.asarray(start.base_dist.mixture.log_weights))
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.2], atol=1e-3)


@pytest.mark.parametrize(
    "other",
    [
        _cloud(0.0, 1.0, 0.3, seed=2),  # the same
        _cloud(0.5, 0.2, np.log(0.02), seed=2),  # a part of it
        _cloud(0.0, 1.5, 0.1, seed=2),  # somewhat wider
        _cloud(90.0, 1.0, np.log(0.01), seed=2),  # of no account
        _cloud(0.0, 0.0, 0.0),  # no cloud
    ],
)
def test_what_adds_nothing_gives_no_mixture(other):
    assert with_region(_cloud(0.0, 1.0, 0.0), other, _WIDE) is None


def test_starts_that_agree_but_see_different_halves():
    """Without both, log Z came out as -0.6939 +- 0.0012, without a warning."""

    def log_density(x):
        spike = jnp.sum(norm.logpdf(x, 0.0, 0.01))
        slab = jnp.sum(norm.logpdf(x, 0.0, 10.0))
        return jnp.logaddexp(spike, slab) - jnp.log(2.0)

    result = ax.sample(log_density, 3, seed=0)
    low, high = result.log_normalizer_interval(0.9999)
    assert low < 0 < high
    assert result.log_normalizer_stderr < 0.03
    inside = np.abs(np.asarray(result.vectors)).max(axis=1) < 0.1
    assert np.asarray(result.weights) @ inside == pytest.approx(0.5, abs=0.03)


def test_a_mode_with_few_particles_keeps_its_gaussian():
    """Left to the wide normal, it made the weights of 40 modes heavy-tailed."""
    rng = np.random.default_rng(8)
    root = np.array([[1.0, 0.0], [0.6, 0.3]])
    covariance = root @ root.T
    means = np.array([[-6.0, 1.0], [5.0, 2.0], [1.0, 9.0]])
    wide = WideNormal(np.zeros(2), np.full(2, 10.0))
    shares = np.array([0.5, 0.3, 0.2])
    start = mixture_of(means, [covariance] * 3, shares, wide)
    moved = means + np.array([0.5, -0.3])
    x = np.concatenate(
        [
            moved[index] + rng.normal(size=(count, 2)) @ root.T
            for index, count in enumerate([1200, 790])
        ]
        + [means[2] + np.zeros((3, 2))]
    )
    z = np.asarray(jax.vmap(start.bijection.inverse)(jnp.asarray(x, jnp.float32)))
    fitted = refit_mixture(start, z, np.full(len(z), 1 / len(z)), wide)
    assert fitted is not None
    mixture, linear = fitted.base_dist.mixture, fitted.bijection
    found = linear.positions(np.asarray(mixture.means))
    # Standard errors of means: 0.04 at most.
    np.testing.assert_allclose(found[:2], moved[:2], atol=0.15)
    np.testing.assert_allclose(found[2], means[2], atol=1e-3)
    kept = np.asarray(linear.factor) * np.asarray(mixture.factors)[2] / widening(2)
    np.testing.assert_allclose(kept @ kept.T, covariance, atol=0.05)
    weights = np.exp(np.asarray(mixture.log_weights))
    expected = 0.8 * np.array([1200, 790, 3]) / 1993
    np.testing.assert_allclose(weights[:3], expected, rtol=1e-3)
