"""The sampler: unbiased Z, exact transports, honest error bars, faults."""

from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.bijections import AbstractBijection, Identity
from scipy import stats
from tests_problems import (
    LOPSIDED_LOG_NORMALIZER,
    LOPSIDED_MEAN,
    flow_families,
    gaussian_transport,
    lopsided_log_density,
    perturb,
    z_score,
)

import annealax as ax
from annealax.experiments.experiment import Scheme

BETAS = [0.0, 0.3, 0.55, 1.0]
RUNS = 4000
RESAMPLERS = {
    "none": ax.NoResampling(),
    **{name: ax.ESSResampling(0.7, scheme=name) for name in get_args(Scheme)},
}


def sampler(resampler, num_particles=48, target=lopsided_log_density):
    path = ax.GeometricPath((2,), target, BETAS)
    kernel = ax.kernels.HMC([0.3, 0.25, 0.2], num_leapfrog=2)
    return ax.Sampler(path, kernel, resampler, num_particles=num_particles)


def ratios(sampler, flows, num_runs=RUNS):
    """Z-hat / Z over independent runs."""
    keys = jr.split(jr.key(5), num_runs)
    run = eqx.filter_jit(jax.vmap(lambda key: sampler.run(key, flows).log_normalizer))
    return np.exp(np.asarray(run(keys), np.float64) - LOPSIDED_LOG_NORMALIZER)


def random_flows(family):
    """Three different random flows of a family."""
    flow, size = flow_families(jr.key(0), 2)[family]
    return perturb(jr.key(1), ax.flows.replicate(flow, 3), size)


# |z| < 4 for each of 14 combinations: a false alarm has probability 1e-3. With a
# standard error of about 1 %, an error of 5 % in Z is caught.
@pytest.mark.parametrize("resampler", ["none", "systematic"])
@pytest.mark.parametrize("family", flow_families(jr.key(0), 2))
def test_z_is_unbiased_for_random_flows(family, resampler):
    z_hat = ratios(sampler(RESAMPLERS[resampler]), random_flows(family))
    assert abs(z_score(z_hat, 1.0)) < 4
    assert z_hat.std() / np.sqrt(RUNS) < 0.02


@pytest.mark.parametrize("resampler", ["multinomial", "stratified", "residual"])
def test_z_is_unbiased_for_every_resampler(resampler):
    z_hat = ratios(sampler(RESAMPLERS[resampler]), random_flows("affine_coupling"))
    assert abs(z_score(z_hat, 1.0)) < 4
    assert z_hat.std() / np.sqrt(RUNS) < 0.02


class Liar(AbstractBijection):
    """A flow whose log-determinant is off by five percent of Z per transition."""

    shape: tuple[int, ...] = (2,)
    cond_shape: None = None

    def transform_and_log_det(self, x, condition=None):
        return 1.1 * x, jnp.asarray(2 * np.log(1.1) + 0.05)

    def inverse_and_log_det(self, y, condition=None):
        return y / 1.1, jnp.asarray(-2 * np.log(1.1) - 0.05)


def test_the_test_catches_a_wrong_log_determinant():
    assert z_score(ratios(sampler(RESAMPLERS["systematic"]), Liar()), 1.0) > 4


@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_exact_transport_between_gaussians_has_no_variance(resampler):
    mean, scale = np.array([2.0, -1.0]), np.array([0.4, 2.5])
    target = ax.targets.Normal(
        jnp.asarray(mean), jnp.diag(jnp.asarray(scale**2)), log_normalizer=1.7
    )
    exact = gaussian_transport(mean, scale, BETAS)
    run = sampler(RESAMPLERS[resampler], 100, target).run(jr.key(0), exact)
    assert float(run.log_normalizer) == pytest.approx(1.7, abs=1e-5)
    assert float(run.log_normalizer_stderr) < 1e-4
    assert float(run.lower_bound) == pytest.approx(1.7, abs=1e-5)
    assert float(run.ess) == pytest.approx(100, rel=1e-4)


@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_identity_flows_are_bit_equal_to_smc(resampler):
    smc = sampler(RESAMPLERS[resampler])
    plain, helped = smc.run(jr.key(3)), smc.run(jr.key(3), Identity((2,)))
    for a, b in zip(*map(jax.tree.leaves, (plain, helped)), strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("family", flow_families(jr.key(0), 2))
def test_untrained_flows_give_smc(family):
    smc = sampler(RESAMPLERS["systematic"])
    flow, _ = flow_families(jr.key(0), 2)[family]
    plain = smc.run(jr.key(3))
    helped = smc.run(jr.key(3), ax.flows.replicate(flow, 3))
    # Equal up to the order in which the compiler adds.
    assert np.allclose(plain.x, helped.x, atol=1e-5)
    assert np.allclose(plain.log_weights, helped.log_weights, atol=1e-5)
    assert np.allclose(plain.log_normalizer, helped.log_normalizer, atol=1e-5)


def test_no_resampling_is_annealed_importance_sampling():
    # Weights multiply along each chain: Z is the plain mean of products.
    ais = sampler(ax.NoResampling(), 50)
    result = ais.run(jr.key(0))
    assert not np.any(result.steps.resampled)
    assert np.array_equal(result.particles.roots, np.arange(50))
    ratio = 50 * np.asarray(result.weights, np.float64)
    cv2 = np.var(ratio, ddof=1)
    assert float(result.log_normalizer_stderr) == pytest.approx(
        np.sqrt(cv2 / 50), rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("resampler", RESAMPLERS)
def test_error_bars_cover(resampler):
    """Two hundred runs; the truth lies within 1.96 standard errors about 95 % of the
    time. With exact coverage, fewer than 85 % or more than 99 % has probability below
    0.1 % and 2 % (the seed is fixed)."""

    # A lopsided mixture: three resampling events, and modes that get random shares.
    target = ax.targets.GaussianMixture(
        means=jnp.array([[-2.0, 1.0], [2.5, 0.0]]),
        covariances=jnp.array([0.25, 0.81]),
        weights=jnp.array([0.3, 0.7]),
    )
    path = ax.GeometricPath((2,), target, jnp.linspace(0, 1, 9) ** 2)
    kernel = ax.kernels.HMC(0.3, num_leapfrog=3)
    smc = ax.Sampler(path, kernel, RESAMPLERS[resampler], num_particles=500)

    def run(key):
        result = smc.run(key)
        first = lambda x: x[0]  # noqa: E731
        return (
            result.log_normalizer,
            result.log_normalizer_stderr,
            result.expectation(first),
            result.expectation_stderr(first),
            jnp.sum(result.steps.resampled),
        )

    log_z, stderr, mean, mean_stderr, resampled = (
        np.asarray(a) for a in eqx.filter_jit(jax.vmap(run))(jr.split(jr.key(2), 200))
    )
    truth = 0.3 * -2.0 + 0.7 * 2.5
    coverage = np.mean(np.abs(log_z) < 1.96 * stderr)
    assert 0.85 <= coverage <= 0.99, (coverage, log_z.std(), stderr.mean())
    coverage = np.mean(np.abs(mean - truth) < 1.96 * mean_stderr)
    assert 0.85 <= coverage <= 0.995, (coverage, mean.std(), mean_stderr.mean())
    if resampler != "none":
        assert resampled.mean() >= 2
    # The average stated variance matches the variance over runs: a chi-square with
    # 199 degrees of freedom stays within 0.65 and 1.45 with probability 0.9998.
    assert 0.65 < np.mean(stderr**2) / log_z.var(ddof=1) < 1.45


def test_expectations_agree_with_the_exact_mean():
    result = sampler(ax.ESSResampling(0.5), 20_000).run(jr.key(0))
    error = np.asarray(result.mean()) - LOPSIDED_MEAN
    stderr = np.asarray(result.expectation_stderr(lambda x: x))
    assert np.all(np.abs(error) < 4 * stderr)  # false alarm 1.3e-4
    assert np.all(stderr < 0.03)
    variance = 0.3 * 0.4**2 + 0.7 * 0.35**2 + 0.3 * 0.7 * 1.8**2
    assert float(result.std()[0]) == pytest.approx(np.sqrt(variance), rel=0.05)


def test_draws_follow_the_weights():
    result = sampler(ax.NoResampling(), 2000).run(jr.key(0))
    draws = np.asarray(result.draws(jr.key(1), 50_000), np.float64)
    assert draws.shape == (50_000, 2)
    z = (draws.mean(axis=0) - np.asarray(result.mean())) / (
        draws.std(axis=0) / np.sqrt(len(draws))
    )
    assert np.all(np.abs(z) < 4)  # false alarm 1.3e-4


def test_lower_bound_is_below_and_tight_for_exact_flows():
    result = sampler(ax.ESSResampling(0.5), 5000).run(jr.key(0))
    assert float(result.lower_bound) < LOPSIDED_LOG_NORMALIZER - 0.05


def test_one_compilation_for_new_numbers():
    traces = 0

    def target(x):
        nonlocal traces
        traces += 1
        return lopsided_log_density(x)

    path = ax.GeometricPath((2,), target, [0.0, 0.5, 1.0])
    ax.Sampler(path, ax.kernels.HMC(0.1), num_particles=8).run(jr.key(0))
    traces = 0
    other = eqx.tree_at(lambda p: p.betas, path, jnp.array([0.0, 0.3, 1.0]))
    ax.Sampler(other, ax.kernels.HMC(0.2), num_particles=8).run(jr.key(1))
    assert traces == 0


# --- faults -----------------------------------------------------------------------


def test_nan_and_zero_regions_are_counted_and_do_not_bias():
    def wounded(x):
        """N(0, 1) on each axis, but NaN left of -1 and zero above 1.5."""
        value = -0.5 * jnp.sum(x**2) - jnp.log(2 * jnp.pi)
        value = jnp.where(x[0] < -1, jnp.nan, value)
        return jnp.where(x[1] > 1.5, -jnp.inf, value)

    truth = np.log(stats.norm.sf(-1) * stats.norm.cdf(1.5))
    result = sampler(ax.ESSResampling(0.5), 5000, wounded).run(jr.key(0))
    assert int(result.steps.num_nan[0]) == pytest.approx(5000 * 0.1587, rel=0.15)
    assert int(result.steps.num_zero[0]) > int(result.steps.num_nan[0])
    assert np.all(np.asarray(result.steps.num_nan) >= 0)
    error = float(result.log_normalizer) - truth
    assert abs(error) < 4 * float(result.log_normalizer_stderr)
    assert float(result.log_normalizer_stderr) < 0.02
    assert np.all(np.isfinite(result.mean()))
    found = {doubt.code: doubt for doubt in result.warnings()}
    assert "NaN" in found["nan-density"]
    assert "zero" in found["zero-density"]


def test_infinite_density_is_an_error():
    def target(x):
        return jnp.where(x[0] > 0.5, jnp.inf, -0.5 * jnp.sum(x**2))

    with pytest.raises(ax.SamplingError, match=r"\+inf at .* temperature 1"):
        sampler(ax.ESSResampling(0.5), 100, target).run(jr.key(0))


def test_all_particles_dead_names_the_temperature_and_the_remedy():
    def target(x):
        return jnp.where(x[0] > 50, 0.0, -jnp.inf)

    with pytest.raises(
        ax.SamplingError, match="zero weight at temperature 1 .*add temperatures"
    ):
        sampler(ax.ESSResampling(0.5), 100, target).run(jr.key(0))


def test_all_nan_says_so():
    def target(x):
        return jnp.sum(x) * jnp.nan

    with pytest.raises(ax.SamplingError, match=r"100 gave NaN"):
        sampler(ax.ESSResampling(0.5), 100, target).run(jr.key(0))


@pytest.mark.parametrize("num_particles", [0, -5, 2.5, True])
def test_bad_number_of_particles(num_particles, untyped):
    path = ax.GeometricPath((2,), lopsided_log_density)
    with pytest.raises(ax.InvalidInputError, match="num_particles"):
        ax.Sampler(path, num_particles=num_particles)


def test_wrong_kinds_of_parts(untyped):
    path = ax.GeometricPath((2,), lopsided_log_density)
    with pytest.raises(ax.InvalidInputError, match="kernel"):
        ax.Sampler(path, ax.ESSResampling(0.3), num_particles=4)
    with pytest.raises(ax.InvalidInputError, match="path"):
        ax.Sampler(lopsided_log_density, num_particles=4)


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        (ax.flows.diagonal_affine(None, 2), "3 transitions.*replicate"),
        (ax.flows.replicate(ax.flows.diagonal_affine(None, 2), 2), "3 transitions"),
        (ax.flows.replicate(ax.flows.diagonal_affine(None, 3), 3), r"shape \(3,\)"),
        (lambda x: x, "flowjax bijection"),
    ],
)
def test_flows_that_do_not_fit(flows, message, untyped):
    with pytest.raises(ax.InvalidInputError, match=message):
        sampler(ax.ESSResampling(0.5)).run(jr.key(0), flows)


def test_a_single_particle_works():
    result = sampler(ax.ESSResampling(0.5), 1).run(jr.key(0))
    assert np.isfinite(result.log_normalizer)
    assert float(result.log_normalizer_stderr) == np.inf
