"""Mass at known modes, and draws that lost one."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from annealax.auto.density import CountedDensity
from annealax.auto.knowledge import Knowledge
from annealax.auto.mass_at_modes import mass_at_modes
from annealax.auto.modes import Ascents
from annealax.auto.places import Everywhere
from annealax.auto.search import search
from annealax.auto.starts.gaussian import Linear

_MEANS, _SDS = np.array([[0.0, 0, 0], [9.0, -7, 5]]), np.array([2.0, 0.1])
_WEIGHTS, _LOG_Z = np.array([0.3, 0.7]), 1.7
_FITS = [
    Linear.scaled(mean, sd * np.ones(3)) for mean, sd in zip(_MEANS, _SDS, strict=True)
]


def unlike(x):
    away = jnp.sum(((x - _MEANS) / _SDS[:, None]) ** 2, axis=1)
    heights = np.log(_WEIGHTS) - 3 * np.log(_SDS) - 1.5 * np.log(2 * np.pi)
    return _LOG_Z + jax.nn.logsumexp(heights - 0.5 * away)


def at(fits):
    return mass_at_modes(jr.key(0), Ascents(CountedDensity(unlike, 3)), fits)


def test_mass_inside_of_each_ellipsoid():
    """99 % of each, here without noise but for the share of draws that are inside."""
    shares = np.exp(at(_FITS).log_masses - _LOG_Z)
    np.testing.assert_allclose(shares, 0.99 * _WEIGHTS, rtol=0.02)
    # Wider than the mode, it is as right; so narrow that it sees a part, it says less.
    wide, narrow = (Linear.scaled(_MEANS[1], s * np.ones(3)) for s in (0.15, 0.03))
    shares = np.exp(at([wide, narrow]).log_masses - _LOG_Z)
    np.testing.assert_allclose(shares[0], 0.7, rtol=0.15)
    assert shares[1] < 0.2
    nowhere = Linear.scaled(np.full(3, 50.0), np.full(3, 0.01))
    assert at([nowhere]).log_masses[0] < -100


@pytest.mark.parametrize("which", [0, 1])
def test_draws_that_lost_a_mode(which):
    rng = np.random.default_rng(3)
    labels = rng.choice(2, 1000, p=_WEIGHTS)
    x = _MEANS[labels] + _SDS[labels, None] * rng.normal(size=(1000, 3))
    known, even = at(_FITS), np.full(1000, 1e-3)
    assert known.lost(x, even, _LOG_Z) == 0
    some = labels == which
    found = _LOG_Z + np.log(_WEIGHTS[which])
    lost = known.lost(x[some], np.full(some.sum(), 1 / some.sum()), found)
    np.testing.assert_allclose(lost, _WEIGHTS[1 - which], atol=0.02)
    # A mode that hardly counts is none to lose.
    assert known.lost(x[some], even[: some.sum()], found + 8) == 0


@pytest.mark.slow
def test_what_suits_one_mode_does_not_win_over_another():
    """A funnel beside a normal: coordinates for the funnel lose the normal."""
    sd, centre = 0.6, np.array([-5.0, -4, -5, -3, -4, -3.5, -4])

    def log_density(x):
        norm = jax.scipy.stats.norm
        z = (x[1:] - 1.0) * jnp.exp(-0.5 * x[0])
        neck = norm.logpdf(x[0], 0.5, 1.2) + jnp.sum(norm.logpdf(z)) - 3 * x[0]
        beside = jnp.sum(norm.logpdf(x, centre, sd))
        return jnp.logaddexp(np.log(0.55) + neck, np.log(0.45) + beside)

    density = CountedDensity(log_density, 7)
    known = Knowledge(Everywhere(7), None, np.zeros((0, 7)))
    seen = search(jr.key(3), density, known, print)
    lost = [each.lost for each in seen.tried if each.first.usable]
    assert max(lost) > 0.3
    assert seen.best.lost == 0
