"""Where a density has its modes."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import stats

from annealax.auto.density import CountedDensity
from annealax.auto.modes import Ascents, Modes, explore
from annealax.auto.places import Climbers, Everywhere
from annealax.auto.starts.mixture import peaks_at
from annealax.targets import Funnel, GaussianMixture, Normal


def _ascents(log_density, size):
    return Ascents(CountedDensity(log_density, size))


def _first(log_density, size):
    """What one batch of ascents finds."""
    return _ascents(log_density, size).from_places(jr.key(0), Everywhere(size))


def _four_normals(size, seed, sds=(1.0, 0.5, 0.8, 1.5)):
    """Of unlike width and weight; 3.7 is the log of their mass."""
    rng = np.random.default_rng(seed)
    means = jnp.asarray(rng.normal(0, 5, (4, size)))
    sds, weights = jnp.asarray(sds), jnp.asarray([0.5, 0.3, 0.15, 0.05])

    def log_density(x):
        away = jnp.sum((x - means) ** 2, axis=1) / sds**2
        heights = jnp.log(weights) - size * jnp.log(sds * np.sqrt(2 * np.pi))
        return 3.7 + jax.nn.logsumexp(heights - 0.5 * away)

    return log_density, np.asarray(means)


def test_ascents_find_the_modes_and_tell_them_apart():
    target = GaussianMixture(np.array([[-6.0, 0], [6.0, 0], [0, 9.0]]))
    assert len(_first(target, 2).points) == 3
    assert len(_first(Normal(np.ones(3)), 3).points) == 1


def test_ascents_go_on_until_all_modes_are_known():
    target = GaussianMixture.forty_modes(50)
    ascents = _ascents(target, 50)
    first = ascents.from_places(jr.key(7), Everywhere(50))
    assert len(first.points) < 40
    modes = explore(jr.key(7), ascents, Everywhere(50)).that_count()
    nearest = ((modes.points[:, None] - np.asarray(target.means)) ** 2).sum(-1)
    assert sorted(nearest.argmin(axis=1)) == list(range(40))
    assert modes.all_known
    assert modes.num_unseen == 0


def test_narrow_modes_beside_wide_ones_are_found_by_what_these_do_not_explain():
    """One of 1024 plain ascents at most would find the narrow ones in 5 dimensions."""
    log_density, means = _four_normals(5, 5, sds=(3.0, 0.5, 1.0, 1.5))
    ascents = _ascents(log_density, 5)
    modes = explore(jr.key(1), ascents, Everywhere(5)).that_count()
    nearest = ((modes.points[:, None] - means) ** 2).sum(-1)
    assert sorted(nearest.argmin(axis=1)) == [0, 1, 2, 3]
    weights = np.array([0.5, 0.3, 0.15, 0.05])[nearest.argmin(axis=1)]
    np.testing.assert_allclose(modes.log_masses, 3.7 + np.log(weights), atol=0.1)


def test_a_wide_mode_counts_though_a_narrow_one_is_much_higher():
    """46 nats higher, with a tenth of the mass."""

    def log_density(x):
        wide = jnp.sum(norm.logpdf(x, 0.0, 1.0)) + np.log(0.9)
        narrow = jnp.sum(norm.logpdf(x, 4.0, 0.1)) + np.log(0.1)
        return jnp.logaddexp(wide, narrow)

    ascents = _ascents(log_density, 20)
    points = np.concatenate([np.full((1, 20), 0.1), np.full((1, 20), 3.9)])
    modes = ascents.peaks(Climbers(points, np.full(2, 0.1))).that_count()
    np.testing.assert_allclose(modes.points.mean(axis=1), [4, 0], atol=1e-2)
    assert modes.log_densities[0] - modes.log_densities[1] > 40
    np.testing.assert_allclose(np.exp(modes.log_masses), [0.1, 0.9], rtol=0.05)


@pytest.mark.parametrize(("width", "reach", "scale"), [(0.2, 1.6, 12), (1e-3, 8e-3, 1)])
def test_the_only_point_in_a_narrow_basin_is_climbed_from(width, reach, scale):
    """Steps in proportion to the scale on which it was drawn overshoot."""

    def log_density(x):
        wide = -0.5 * (reach / width) ** 2 - 1e-3 * jnp.sum((x - 1) ** 2)
        return jnp.logaddexp(-0.5 * jnp.sum((x / width) ** 2), wide)

    start = np.random.default_rng(0).normal(size=(1, 5))
    start *= 0.97 * reach / np.linalg.norm(start)
    modes = _ascents(log_density, 5).peaks(Climbers(start, np.full(1, float(scale))))
    np.testing.assert_allclose(modes.points[0], 0, atol=0.1 * width)
    assert modes.are_peaks[0]


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_modes_are_found_on_any_scale(scale):
    target = GaussianMixture(np.array([[-6.0, 0], [6.0, 3]]))
    modes = explore(
        jr.key(0), _ascents(lambda x: target(x / scale), 2), Everywhere(2)
    ).that_count()
    np.testing.assert_allclose(np.sort(modes.points[:, 0]) / scale, [-6, 6], atol=0.1)
    assert modes.are_peaks.all()


def test_where_ascents_tire_is_no_peak():
    modes = _first(Funnel(10), 10)
    assert not modes.are_peaks.all()


def test_a_rarer_mode_is_expected_where_basins_differ():
    def modes(*hits):
        count = len(hits)
        shape = np.zeros((count, 1, 1)), np.zeros((count, 1))
        return Modes(np.zeros((count, 1)), np.zeros(count), np.array(hits), *shape)

    assert modes(1000).all_known
    assert modes(30, 25, 40).all_known
    assert not modes(4, 50).all_known
    assert not modes(1000, 20).all_known
    assert modes(10_000, 2500, 900).all_known
    # By Student's t distribution with two degrees of freedom.
    logs = np.log([1000, 250, 10])
    spread = np.sqrt(4 / 3 * np.var(logs, ddof=1))
    chance = stats.t(2, logs.mean(), spread).cdf(np.log(5))
    np.testing.assert_allclose(modes(1000, 250, 10).chance_of_a_miss, chance)


def test_a_narrower_mode_is_expected_where_widths_differ():
    """Hits alone say nothing: those of modes that were found are alike."""

    def modes(size, *scales):
        curvatures = np.stack([np.eye(size) / scale**2 for scale in scales])
        count, hits = len(scales), np.array([5000, 9000, 20_000])
        return Modes(
            np.zeros((count, size)),
            np.zeros(count),
            hits,
            curvatures,
            np.zeros((count, size)),
        )

    assert modes(2, 0.8, 1.0, 1.5).all_known
    assert modes(2, 0.5, 1.0, 1.5).all_known
    assert modes(20, 1.0, 1.0, 1.05).all_known
    assert not modes(20, 0.8, 1.0, 1.5).all_known


def test_a_curved_ridge_has_one_top():
    """Ascents tire on it at several points, from all of which Newton finds the top."""

    def ridge(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * (x[1] - 0.3 * x[0] ** 2 + 1) ** 2

    modes = _first(ridge, 2).that_count()
    assert len(modes.points) > 1
    peaks = peaks_at(CountedDensity(ridge, 2), modes)
    assert len(peaks.fits) == 1
    np.testing.assert_allclose(peaks.fits[0].mean, [0, -1], atol=0.02)
    # Two real modes stay two.
    two = GaussianMixture(np.array([[-2.0, 0], [2.0, 1]]))
    modes = _first(two, 2)
    assert len(peaks_at(CountedDensity(two, 2), modes).fits) == 2


def test_modes_that_were_hit_once_have_siblings():
    hits, shapes = np.array([1, 1, 1, 2, 9]), (np.ones((5, 1, 1)), np.zeros((5, 1)))
    modes = Modes(np.zeros((5, 1)), np.zeros(5), hits, *shapes)
    assert modes.num_unseen == 1.5
    assert modes.that_count().num_unseen == 1.5


def test_ascents_survive_overflow():
    modes = _first(lambda x: -jnp.sum(jnp.exp(x)) + jnp.sum(x), 4)
    np.testing.assert_allclose(modes.points[0], 0, atol=0.05)


def test_the_neck_of_a_funnel_is_no_start():
    """Its peak is far from its mass: a Laplace fit there must not be kept as is."""
    modes = _first(Funnel(10), 10)
    assert modes.points[0][0] < -5
