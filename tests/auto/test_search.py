"""Which of two starts is better, and when that is doubtful."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from annealax.auto.adaptive_smc import AdaptivePass
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Ascents
from annealax.auto.places import Everywhere
from annealax.auto.search import gain_of, is_better, is_doubtful
from annealax.auto.second import wider_start
from annealax.auto.starts.base import Seen, Tried, WideNormal
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.starts.hierarchy import fit_hierarchy
from annealax.auto.starts.mixture import Gaussians
from annealax.auto.starts.student import with_heavier_draws


def _pass(log_normalizer, stderr, num_transitions):
    count = num_transitions
    return AdaptivePass(
        betas=np.linspace(0, 1, count + 1),
        step_sizes=np.ones(count),
        scales=np.ones((count, 2)),
        acceptance=np.ones(count),
        work_variance=np.ones(count),
        log_normalizer=log_normalizer,
        stderr=stderr,
        z=np.zeros((4, 2)),
        weights=np.full(4, 0.25),
        trail=np.zeros((count, 2, 2)),
    )


def _start(log_normalizer, stderr, num_transitions=10):
    start = normal_start(Linear.identity(2))
    found = _pass(log_normalizer, stderr, num_transitions)
    return Tried("a start", start, (found,))


def test_more_mass_wins_and_otherwise_less_work():
    old = _start(-10.0, 0.03)
    assert is_better(old, _start(-9.5, 0.1))
    assert not is_better(old, _start(-10.5, 0.001))
    assert is_better(old, _start(-10.0, 0.02))
    assert not is_better(old, _start(-10.0, 0.04))
    np.testing.assert_allclose(gain_of(old, _start(-10.0, 0.03, 5)), 2)


def test_a_prior_that_is_precise_enough_is_kept():
    """It has all of the mass; a fitted start may lack some that no pass shows."""

    class Prior(Gaussians):
        is_prior = True

    def prior(stderr, num_transitions=10):
        tried = _start(-10.0, stderr, num_transitions)
        base = object.__new__(Prior)
        return dataclasses.replace(
            tried, start=eqx.tree_at(lambda s: s.base_dist, tried.start, base)
        )

    fitted = _start(-10.0, 0.01)
    assert is_better(_start(-10.0, 0.05), fitted)
    assert not is_better(prior(0.05), fitted)
    assert not is_better(prior(0.09), fitted)
    assert is_better(prior(0.11), fitted)  # four times 0.05 squared
    assert is_better(prior(0.05, 50), fitted)
    # Whatever it is, mass that it lacks counts, and mass that the other lacks.
    assert is_better(prior(0.01), _start(-9.5, 0.01))
    assert not is_better(prior(0.2), _start(-11.0, 0.001))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_near_thing_is_doubtful_if_work_says_otherwise(sign):
    """Tolerance: 0.1 + 3 hypot(0.03, 0.06) = 0.30."""
    seen, missed = _start(-10.0, 0.06), _start(-10.29, 0.03)
    pair = (missed, seen) if sign > 0 else (seen, missed)
    assert is_doubtful(*pair)
    # Clear one way or the other:
    assert not is_doubtful(missed, _start(-9.9, 0.06))
    assert not is_doubtful(missed, _start(-10.2, 0.06))
    # What sees more and needs less work is better in any case.
    assert not is_doubtful(missed, _start(-10.15, 0.01))


def test_more_passes_sharpen_the_estimate_and_not_the_difficulty():
    once = _start(-10.0, 0.06)
    often = dataclasses.replace(once, passes=(_pass(-10.0, 0.06, 10),) * 4)
    np.testing.assert_allclose(often.stderr, 0.03, rtol=1e-3)
    np.testing.assert_allclose(often.difficulty, once.difficulty, rtol=1e-3)
    # What was within the tolerance of three error bars may now be decided.
    other = _start(-10.24, 0.03)
    assert gain_of(other, once) < 1
    assert gain_of(other, often) == np.inf


def test_against_heavy_tails_the_easiest_of_the_wider_starts_that_agree():
    best = _start(-10.0, 0.02, 10)
    prior, wide = _start(-10.1, 0.05, 25), _start(-10.2, 0.2, 50)
    others = [_start(-10.0, 0.01, 12), _start(-14.0, 0.01, 30)]  # akin; went nowhere
    density = CountedDensity(lambda x: -jnp.sum(x**2), 2)
    modes = Ascents(density).from_places(jr.key(0), Everywhere(2))
    seen = Seen(density, jr.key(0), modes, WideNormal(np.zeros(2), np.ones(2)))
    seen = dataclasses.replace(seen, tried=(best, *others, wide, prior), best=best)
    assert wider_start(seen, -10.0, 0.02) is prior
    # What passes from the prior contradict, it cannot cure.
    assert wider_start(seen, -12.0, 0.02) is None
    seen = dataclasses.replace(seen, tried=(best, *others))
    assert wider_start(seen, -10.0, 0.02) is None


def test_where_rulers_are_known_only_heavier_draws_are_wider():
    """A wide start would lose the neck that the coordinates know."""
    rng = np.random.default_rng(0)
    v = rng.normal(size=4000)
    x = np.stack([v, np.exp(v) * rng.normal(size=4000)], axis=1)
    hierarchy = fit_hierarchy(x, np.full(4000, 1 / 4000))
    best = dataclasses.replace(_start(-10.0, 0.02, 10), start=normal_start(hierarchy))
    heavier = dataclasses.replace(
        _start(-10.0, 0.03, 9), start=with_heavier_draws(best.start)
    )
    wide = _start(-10.0, 0.02, 30)
    density = CountedDensity(lambda x: -jnp.sum(x**2), 2)
    modes = Ascents(density).from_places(jr.key(0), Everywhere(2))
    seen = Seen(density, jr.key(0), modes, WideNormal(np.zeros(2), np.ones(2)))
    seen = dataclasses.replace(seen, tried=(best, wide), best=best)
    assert wider_start(seen, -10.0, 0.02) is None
    seen = dataclasses.replace(seen, tried=(best, wide, heavier))
    assert wider_start(seen, -10.0, 0.02) is heavier


def test_one_lucky_pass_is_no_proof_of_more_mass():
    """A heavy tail: passes claim 0.2, and disagree by far more."""
    poor = _start(0.0, 0.2)
    passes = tuple(_pass(value, 0.2, 10) for value in (0.2, 2.4, -0.3))
    often = dataclasses.replace(poor, passes=(poor.first, *passes))
    mean = np.mean(np.exp([0.0, 0.2, 2.4, -0.3]))
    np.testing.assert_allclose(often.log_normalizer, np.log(mean))
    between = np.std(np.exp([0.0, 0.2, 2.4, -0.3]), ddof=1) / mean / 2
    np.testing.assert_allclose(often.stderr, between, rtol=1e-3)
    good = _start(-0.27, 0.05)
    assert often.log_normalizer - good.log_normalizer > 0.1 + 3 * 0.2
    assert not is_better(good, often)
