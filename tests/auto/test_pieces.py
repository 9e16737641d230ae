"""Placements, Laplace fits, ladders, tails and modes."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from annealax._estimates import pareto_shape
from annealax._ladder import lengths
from annealax.auto._explore import Ascents, Modes, explore
from annealax.auto._mixture import peaks_at
from annealax.auto._placement import Placement, from_moments, laplace, placed_path
from annealax.auto._plan import Plan, round_up
from annealax.targets import Funnel, GaussianMixture, Normal


def _covariance(size, condition, seed=0):
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(size, size)))
    return (rotation * np.logspace(0, np.log10(condition), size)) @ rotation.T


def test_laplace_is_exact_for_a_gaussian():
    covariance = _covariance(12, 1e4)
    mean = np.arange(12.0)
    fit = laplace(Normal(mean, covariance), np.zeros(12))
    factor = np.asarray(fit.placement.factor, np.float64)
    np.testing.assert_allclose(factor @ factor.T, covariance, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(np.asarray(fit.placement.mean), mean, atol=2e-2)


def test_laplace_refuses_what_has_no_peak():
    assert laplace(lambda x: jnp.sum(x[0] - x[1] ** 2), np.zeros(2)).placement is None


def test_moments_give_mean_and_covariance():
    """Five standard errors of a covariance of 20000 draws."""
    covariance = _covariance(3, 100)
    rng = np.random.default_rng(3)
    x = rng.multivariate_normal([1.0, -2.0, 3.0], covariance, 20_000)
    placement, kind = from_moments(
        Placement.scaled(np.zeros(3), 1.0), x, np.full(len(x), 1 / len(x))
    )
    factor = np.asarray(placement.factor, np.float64)
    assert kind == "full"
    np.testing.assert_allclose(factor @ factor.T, covariance, atol=5 * 100 / 100)
    np.testing.assert_allclose(
        float(placement.log_det), np.linalg.slogdet(factor)[1], rtol=1e-4
    )


def test_few_particles_give_scales_and_the_directions_that_stand_out():
    rng = np.random.default_rng(4)
    common = rng.normal(size=(200, 1))
    x = 3 * common + rng.normal(size=(200, 100)) * np.linspace(0.5, 2, 100)
    placement, kind = from_moments(
        Placement.scaled(np.zeros(100), 1.0), x, np.full(200, 1 / 200)
    )
    assert kind == "scales and 1 directions"
    assert np.isfinite(np.asarray(placement.factor)).all()


def test_a_placed_density_keeps_its_integral():
    target = Normal(np.array([1.0, 2.0]), _covariance(2, 9), log_normalizer=0.7)
    placement = Placement(np.array([0.5, 0.0]), np.array([[1.0, 0.2], [0.0, 2.0]]))
    density = placed_path(target, placement, 1).target
    grid = jnp.linspace(-20, 20, 401)
    points = jnp.stack(jnp.meshgrid(grid, grid), -1).reshape(-1, 2)
    total = jnp.sum(jnp.exp(jax.vmap(density)(points))) * (grid[1] - grid[0]) ** 2
    np.testing.assert_allclose(float(jnp.log(total)), 0.7, atol=1e-3)


def test_ascents_find_the_modes_and_tell_them_apart():
    target = GaussianMixture(np.array([[-6.0, 0], [6.0, 0], [0, 9.0]]))
    modes = Ascents(target).from_scales(jr.key(0), 2)
    assert len(modes.points) == 3
    assert len(Ascents(Normal(np.ones(3))).from_scales(jr.key(0), 3).points) == 1


def test_ascents_go_on_until_all_modes_are_known():
    """With this key 39 were known when each had been hit three times."""
    target = GaussianMixture.forty_modes(50)
    ascents = Ascents(target)
    assert len(ascents.from_scales(jr.split(jr.key(7))[1], 50).points) < 40
    modes = explore(jr.key(7), ascents, 50)
    nearest = ((modes.points[:, None] - np.asarray(target.means)) ** 2).sum(-1)
    assert sorted(nearest.argmin(axis=1)) == list(range(40))
    assert modes.hits.min() >= 5
    assert modes.num_unseen == 0


def test_a_curved_ridge_has_one_top():
    """Ascents tire on it at several points, from all of which Newton finds the top."""

    def ridge(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * (x[1] - 0.3 * x[0] ** 2 + 1) ** 2

    modes = Ascents(ridge).from_scales(jr.key(0), 2).highest(15.0)
    assert len(modes.points) > 1
    peaks = peaks_at(ridge, modes)
    assert len(peaks.placements) == 1
    np.testing.assert_allclose(peaks.placements[0].mean, [0, -1], atol=0.02)
    # Two real modes stay two.
    two = GaussianMixture(np.array([[-2.0, 0], [2.0, 1]]))
    modes = Ascents(two).from_scales(jr.key(0), 2)
    assert len(peaks_at(two, modes).placements) == 2


def test_modes_that_were_hit_once_have_siblings():
    modes = Modes(np.zeros((5, 1)), np.zeros(5), np.array([1, 1, 1, 2, 9]))
    assert modes.num_unseen == 1.5
    assert modes.highest(1.0).num_unseen == 1.5


def test_ascents_survive_overflow():
    modes = Ascents(lambda x: -jnp.sum(jnp.exp(x)) + jnp.sum(x)).from_scales(
        jr.key(0), 4
    )
    np.testing.assert_allclose(modes.points[0], 0, atol=0.05)


def _plan(count=10):
    return Plan(
        placement=Placement.scaled(np.zeros(2), 1.0),
        betas=np.linspace(0, 1, count + 1),
        step_sizes=np.linspace(0.5, 0.1, count),
        scales=np.ones((count, 2)),
        num_leapfrog=4,
        num_particles=100,
    )


def test_temperatures_move_to_where_the_work_is():
    work = np.full(10, 1e-4)
    work[0] = 0.5
    plan = _plan().respaced(work, 12)
    assert plan.num_transitions == 12
    assert np.sum(plan.betas <= 0.1) > 8
    assert plan.betas[0] == 0
    assert plan.betas[-1] == 1
    assert np.all(np.diff(plan.betas.astype(np.float32)) > 0)
    even = _plan().respaced(np.full(10, 0.1), 10)
    np.testing.assert_allclose(even.betas, np.linspace(0, 1, 11), atol=1e-6)


def test_no_trajectory_is_longer_than_it_should_be():
    plan = _plan().adjusted(np.ones(10), gain=10.0)
    assert np.all(plan.step_sizes * plan.num_leapfrog <= 2.0 + 1e-6)
    lower = _plan().adjusted(np.zeros(10))
    assert np.all(lower.step_sizes < _plan().step_sizes)


def test_lengths_bear_what_was_not_measured():
    assert np.isfinite(lengths(np.array([0.0, np.nan, np.inf, 1e9]))).all()
    assert round_up(20) == 20
    assert round_up(33) == 40


@pytest.mark.parametrize("shape", [0.2, 0.5, 1.0])
def test_pareto_shape_of_pareto_tails(shape):
    """The estimate's standard error is (1 + k) / sqrt(tail), here 0.07 to 0.12."""
    rng = np.random.default_rng(5)
    values = (1 - rng.uniform(size=10_000)) ** -shape
    assert abs(pareto_shape(values) - shape) < 0.3


def test_pareto_shape_of_light_tails():
    rng = np.random.default_rng(6)
    assert pareto_shape(rng.uniform(size=10_000)) < 0.2
    assert np.isnan(pareto_shape(np.ones(5)))
    assert np.isnan(pareto_shape(np.ones(5000)))


def test_the_neck_of_a_funnel_is_no_start():
    """Its peak is far from its mass: a Laplace fit there must not be kept as is."""
    modes = Ascents(Funnel(10)).from_scales(jr.key(0), 10)
    assert modes.points[0][0] < -5
