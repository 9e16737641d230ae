"""Affine coordinates, Laplace fits and moments."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from annealax.auto.density import CountedDensity
from annealax.auto.starts.gaussian import Linear, from_moments, laplace, normal_start
from annealax.targets import Normal


def _covariance(size, condition, seed=0):
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (rotation * np.logspace(0, np.log10(condition), size)) @ rotation.T


def test_laplace_is_exact_for_a_gaussian():
    covariance = _covariance(12, 1e4)
    mean = np.arange(12.0)
    fit = laplace(CountedDensity(Normal(mean, covariance), 12), np.zeros(12))
    factor = np.asarray(fit.factor, np.float64)
    np.testing.assert_allclose(factor @ factor.T, covariance, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(np.asarray(fit.mean), mean, atol=2e-2)


def test_laplace_refuses_what_has_no_peak():
    density = CountedDensity(lambda x: jnp.sum(x[0] - x[1] ** 2), 2)
    assert laplace(density, np.zeros(2)) is None
    assert density.num_evaluations > 0


def test_moments_give_mean_and_covariance():
    """Five standard errors of a covariance of 20000 draws."""
    covariance = _covariance(3, 100)
    rng = np.random.default_rng(3)
    x = rng.multivariate_normal([1.0, -2.0, 3.0], covariance, 20_000)
    linear, kind = from_moments(Linear.identity(3), x, np.full(len(x), 1 / len(x)))
    factor = np.asarray(linear.factor, np.float64)
    assert kind == "full"
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=5 * 100 / 100)
    np.testing.assert_allclose(
        float(linear.log_det), np.linalg.slogdet(factor)[1], rtol=1e-4
    )


def test_few_particles_give_scales_and_the_directions_that_stand_out():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(200, 1))
    x = 3 * common + rng.normal(size=(200, 100)) * np.linspace(0.5, 2, 100)
    linear, kind = from_moments(Linear.identity(100), x, np.full(200, 1 / 200))
    assert kind == "scales and 1 directions"
    assert np.isfinite(np.asarray(linear.factor)).all()


def test_a_placed_density_keeps_its_integral():
    target = Normal(np.array([1.0, 2.0]), _covariance(2, 9), log_normalizer=0.7)
    linear = Linear(np.array([0.5, 0.0]), np.array([[1.0, 0.2], [0.0, 2.0]]))
    density = normal_start(linear).path(target, np.arange(2.0)).target
    grid = jnp.linspace(-20, 20, 401)
    points = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, 2)
    total = jnp.sum(jnp.exp(jax.vmap(density)(points))) * (grid[1] - grid[0]) ** 2
    np.testing.assert_allclose(float(jnp.log(total)), 0.7, atol=1e-3)


def test_a_start_is_a_distribution():
    start = normal_start(
        Linear(np.array([0.5, 1.0]), np.array([[1.0, 0.2], [0.0, 2.0]]))
    )
    x, log_prob = start.sample_and_log_prob(jr.key(5), (50,))
    np.testing.assert_allclose(start.log_prob(x), log_prob, atol=1e-4)
    diagonal = normal_start(Linear(np.array([0.5, 1.0]), np.array([3.0, 0.1])))
    x, log_prob = diagonal.sample_and_log_prob(jr.key(5), (50,))
    np.testing.assert_allclose(diagonal.log_prob(x), log_prob, atol=1e-4)
