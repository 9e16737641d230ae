"""Where a density has its modes."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from annealax._keys import named_key
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Ascents, Modes, explore
from annealax.auto.starts.mixture import peaks_at
from annealax.targets import Funnel, GaussianMixture, Normal


def _ascents(log_density, size):
    return Ascents(CountedDensity(log_density, size))


def test_ascents_find_the_modes_and_tell_them_apart():
    target = GaussianMixture(np.array([[-6.0, 0], [6.0, 0], [0, 9.0]]))
    modes = _ascents(target, 2).from_scales(jr.key(0))
    assert len(modes.points) == 3
    assert len(_ascents(Normal(np.ones(3)), 3).from_scales(jr.key(0)).points) == 1


def test_ascents_go_on_until_all_modes_are_known():
    """With this key 39 were known when each had been hit three times."""
    target = GaussianMixture.forty_modes(50)
    ascents = _ascents(target, 50)
    first = ascents.from_scales(named_key(jr.key(7), "scales"))
    assert len(first.points) < 40
    modes = explore(jr.key(7), ascents)
    nearest = ((modes.points[:, None] - np.asarray(target.means)) ** 2).sum(-1)
    assert sorted(nearest.argmin(axis=1)) == list(range(40))
    assert modes.hits.min() >= 5
    assert modes.num_unseen == 0


def test_a_curved_ridge_has_one_top():
    """Ascents tire on it at several points, from all of which Newton finds the top."""

    def ridge(x):
        return -0.5 * (x[0] / 3) ** 2 - 0.5 * (x[1] - 0.3 * x[0] ** 2 + 1) ** 2

    modes = _ascents(ridge, 2).from_scales(jr.key(0)).highest(15.0)
    assert len(modes.points) > 1
    peaks = peaks_at(CountedDensity(ridge, 2), modes)
    assert len(peaks.fits) == 1
    np.testing.assert_allclose(peaks.fits[0].mean, [0, -1], atol=0.02)
    # Two real modes stay two.
    two = GaussianMixture(np.array([[-2.0, 0], [2.0, 1]]))
    modes = _ascents(two, 2).from_scales(jr.key(0))
    assert len(peaks_at(CountedDensity(two, 2), modes).fits) == 2


def test_modes_that_were_hit_once_have_siblings():
    modes = Modes(np.zeros((5, 1)), np.zeros(5), np.array([1, 1, 1, 2, 9]))
    assert modes.num_unseen == 1.5
    assert modes.highest(1.0).num_unseen == 1.5


def test_ascents_survive_overflow():
    ascents = _ascents(lambda x: -jnp.sum(jnp.exp(x)) + jnp.sum(x), 4)
    modes = ascents.from_scales(jr.key(0))
    np.testing.assert_allclose(modes.points[0], 0, atol=0.05)


def test_the_neck_of_a_funnel_is_no_start():
    """Its peak is far from its mass: a Laplace fit there must not be kept as is."""
    modes = _ascents(Funnel(10), 10).from_scales(jr.key(0))
    assert modes.points[0][0] < -5
