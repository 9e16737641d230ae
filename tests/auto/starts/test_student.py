"""Student-t starts: the distributions, their fit, and what they are good for."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import annealax as ax
from annealax.auto.adaptive_smc import _scales
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Ascents
from annealax.auto.places import Everywhere
from annealax.auto.starts.base import WideNormal
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.starts.mixture import peaks_at, start_at_peaks
from annealax.auto.starts.student import (
    Students,
    fit_tails,
    with_heavier_draws,
    with_tails,
)

_SCALES = np.array([0.5, 1.0, 3.0])
_FREEDOM = 2.5


def _alone(*, together):
    return Students([[1.0, -2.0, 0.0]], [_SCALES], [1.0], _FREEDOM, together=together)


def _draws(count, freedom, *, together, seed=0):
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(count, 3))
    each = (count, 1) if together else normal.shape
    return normal / np.sqrt(rng.chisquare(freedom, each) / freedom) * _SCALES + 1


def test_densities_are_those_of_scipy():
    x = np.array([3.0, -1.0, -7.0])
    mean = np.array([1.0, -2.0, 0.0])
    found = float(_alone(together=True).log_prob(jnp.asarray(x)))
    exact = stats.multivariate_t(mean, np.diag(_SCALES**2), _FREEDOM).logpdf(x)
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    found = float(_alone(together=False).log_prob(jnp.asarray(x)))
    exact = stats.t.logpdf(x, _FREEDOM, mean, _SCALES).sum()
    np.testing.assert_allclose(found, exact, rtol=1e-5)


@pytest.mark.parametrize("together", [False, True])
def test_draws_follow_the_density(together):
    """Kolmogorov-Smirnov tests at 1e-4 each; the seed is fixed."""
    x = np.asarray(_alone(together=together).sample(jr.key(0), (5000,)), np.float64)
    z = (x - [1.0, -2.0, 0.0]) / _SCALES
    for column in z.T:
        assert stats.kstest(column, stats.t(_FREEDOM).cdf).pvalue > 1e-4
    radius = (z**2).mean(axis=1)
    value = stats.kstest(radius, stats.f(3, _FREEDOM).cdf).pvalue
    # Only if they are far out together is the radius as Fisher has it.
    assert value > 1e-4 if together else value < 1e-4


def test_a_mixture_draws_in_its_shares():
    means, shares = [[0.0, 0.0], [1e4, 0.0]], [0.3, 0.7]
    start = Students(means, np.ones((2, 2)), shares, 3.0, together=True)
    x = np.asarray(start.sample(jr.key(1), (4000,)))
    # Four standard errors.
    np.testing.assert_allclose(np.mean(x[:, 0] > 5e3), 0.7, atol=0.03)
    terms = start.component_log_densities(jnp.zeros(2))
    exact = np.log(0.3) + stats.multivariate_t([0, 0], np.eye(2), 3.0).logpdf([0, 0])
    np.testing.assert_allclose(float(terms[0]), exact, rtol=1e-5)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("freedom", [1.0, 2.0, 5.0])
def test_the_fit_finds_form_and_tails(freedom, together):
    x = _draws(3000, freedom, together=together)
    weights = np.full(len(x), 1 / len(x))
    tails = fit_tails(x, weights, np.zeros(len(x), int))
    assert tails.together == together
    # Between two values of the grid, and made heavier by a fifth.
    assert 0.5 * freedom < tails.freedom < 1.1 * freedom
    np.testing.assert_allclose(tails.means[0], 1, atol=0.3)
    scales = np.diag(tails.factor) * tails.scales[0]
    np.testing.assert_allclose(scales, _SCALES, rtol=0.25)


def test_the_fit_of_groups_keeps_their_places_and_scales():
    first, second = (_draws(1500, 2.0, together=False, seed=s) for s in (1, 2))
    x = np.concatenate([first, 4 * second + [500.0, 0, 0]])
    labels = np.repeat([0, 1], 1500)
    tails = fit_tails(x, np.full(3000, 1 / 3000), labels)
    assert not tails.together
    np.testing.assert_allclose(tails.means[0], 1, atol=0.4)
    np.testing.assert_allclose(tails.means[1], [504, 4, 4], atol=1.5)
    np.testing.assert_allclose(tails.scales[1] / tails.scales[0], 4, rtol=0.15)


def test_light_tails_need_no_student():
    rng = np.random.default_rng(3)
    weights, labels = np.full(2000, 1 / 2000), np.zeros(2000, int)
    for x in (rng.normal(size=(2000, 4)), rng.uniform(size=(2000, 4))):
        assert fit_tails(x, weights, labels) is None


def test_particles_that_tell_nothing_give_no_fit():
    weights, labels = np.full(100, 0.01), np.zeros(100, int)
    x = _draws(100, 2.0, together=True)
    lost = np.where(np.arange(100)[:, None] == 7, np.inf, x)
    for useless in (np.ones((100, 3)), np.column_stack([x, np.ones(100)]), lost):
        assert fit_tails(useless, weights, labels) is None
    copies = np.repeat(x[:3], [98, 1, 1], axis=0)
    tails = fit_tails(copies, weights, labels)
    assert tails is None or np.isfinite(tails.factor).all()


def test_few_particles_give_scales_alone():
    rng = np.random.default_rng(5)
    x = rng.standard_t(2, size=(100, 40)) * np.linspace(0.5, 2, 40)
    tails = fit_tails(x, np.full(100, 0.01), np.zeros(100, int))
    assert np.isfinite(tails.scales).all()
    np.testing.assert_allclose(tails.factor, np.diag(np.diag(tails.factor)), atol=1e-12)


def test_chance_turns_no_axis():
    x = _draws(2000, 1.0, together=False)
    tails = fit_tails(x, np.full(len(x), 1 / len(x)), np.zeros(len(x), int))
    np.testing.assert_allclose(tails.factor, np.diag(np.diag(tails.factor)), atol=1e-12)


def test_weights_count():
    """Half of the draws, with another location, have weight zero."""
    x = np.concatenate([_draws(2000, 2.0, together=True), np.full((2000, 3), 50.0)])
    weights = np.repeat([1 / 2000, 0.0], 2000)
    tails = fit_tails(x, weights, np.zeros(len(x), int))
    np.testing.assert_allclose(tails.means[0], 1, atol=0.3)


def test_one_mode_gives_one_component_and_several_a_wide_one():
    normal = normal_start(Linear.identity(3))
    x = _draws(2000, 2.0, together=True)
    weights = np.full(2000, 1 / 2000)
    wide = WideNormal(np.zeros(3), np.full(3, 30.0))
    alone = with_tails(normal, x, weights, wide)
    assert alone.base_dist.num_components == 1
    assert not alone.is_of_modes

    target = ax.targets.StudentTMixture([[-10.0, 0], [10.0, 5.0]], [0.25, 0.75])
    density = CountedDensity(target, 2)
    modes = Ascents(density).from_places(jr.key(0), Everywhere(2))
    wide = WideNormal(np.zeros(2), np.full(2, 30.0))
    _, start = start_at_peaks(peaks_at(density, modes), wide)
    exact = np.asarray(target.sample(jr.key(2), 4000), np.float64)
    z = np.asarray(jax.vmap(start.bijection.inverse)(jnp.asarray(exact, jnp.float32)))
    tailed = with_tails(start, z, np.full(4000, 1 / 4000), wide)
    assert tailed.is_of_modes
    assert tailed.base_dist.num_components == 3
    shares = np.exp(np.asarray(tailed.base_dist.log_shares))
    np.testing.assert_allclose(np.sort(shares), [0.2, 0.2, 0.6], atol=0.03)
    # It is now so close to the target that weights hardly differ.
    draws = tailed.base_dist.sample(jr.key(3), (4000,))

    def log_weight(z):
        path = tailed.path(target, np.arange(2.0))
        return path.target(z) - path.initial.log_prob(z)

    ratio = np.exp(np.asarray(jax.vmap(log_weight)(draws), np.float64))
    assert ratio.mean() == pytest.approx(1, abs=5 * ratio.std() / np.sqrt(4000))
    assert ratio.std() < 0.6


def test_kernel_scales_exist_where_variances_do_not():
    rng = np.random.default_rng(4)
    weights = jnp.full(2000, 1 / 2000)
    normal = jnp.asarray(rng.normal(size=(2000, 2)) * [1.0, 5.0])
    np.testing.assert_allclose(_scales(normal, weights), normal.std(axis=0), rtol=1e-4)
    cauchy = jnp.asarray(rng.standard_cauchy(size=(2000, 50)))
    scales = np.asarray(_scales(cauchy, weights))
    assert scales.max() / scales.min() < 2
    assert np.asarray(cauchy).std(axis=0).max() > 100


def test_densities_without_a_variance():
    """A product of Cauchy densities of different scales."""
    scales = jnp.asarray([1.0, 3.0, 0.2, 1.0])

    def log_density(x):
        return jnp.sum(jax.scipy.stats.cauchy.logpdf(x - 1, scale=scales))

    result = ax.sample(log_density, 4, seed=0)
    assert "Student-t" in result.choices["start"]
    assert result.log_normalizer_stderr < 0.01
    low, high = result.log_normalizer_interval(0.9999)
    assert low < 0 < high
    quartile = np.asarray(result.weights) @ (np.asarray(result.vectors) < 1 + scales)
    np.testing.assert_allclose(quartile, 0.75, atol=0.02)


def test_heavier_draws_in_the_same_coordinates():
    factor = np.array([[2.0, 0.0], [0.5, 3.0]])
    normal = normal_start(Linear(np.array([1.0, -2.0]), factor))
    heavier = with_heavier_draws(normal)
    assert heavier.bijection is normal.bijection
    z = np.array([[0.3, -8.0], [50.0, 0.0]])
    x = heavier.bijection.positions(z)
    exact = stats.t.logpdf(z, 4).sum(axis=1) - np.log(6.0)
    found = jax.vmap(heavier.log_prob)(jnp.asarray(x))
    np.testing.assert_allclose(found, exact, rtol=1e-4)
    again = with_heavier_draws(heavier)
    exact = stats.t.logpdf(z, 2).sum(axis=1) - np.log(6.0)
    found = jax.vmap(again.log_prob)(jnp.asarray(x))
    np.testing.assert_allclose(found, exact, rtol=1e-4)
