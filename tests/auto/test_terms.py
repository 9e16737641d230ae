"""Sums in the program of a density, and ascents of their terms."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp

import annealax as ax
from annealax.auto.climbed import climb_terms
from annealax.auto.density import CountedDensity
from annealax.auto.logarithms import without_underflow
from annealax.auto.places import Everywhere
from annealax.auto.sample import free_density
from annealax.auto.terms import MAX_TERMS, terms_of

_RNG = np.random.default_rng(3)
_MEANS, _SCALES = 5 * _RNG.normal(size=(4, 3)), np.array([1.0, 0.5, 0.2, 3.0])
_WEIGHTS = np.array([0.4, 0.1, 0.2, 0.3])
_POINTS = np.concatenate([k * _RNG.normal(size=(16, 3)) for k in (1, 3, 30, 300)])


def _quadratic(x):
    return -0.5 * jnp.sum(((x - _MEANS) / _SCALES[:, None]) ** 2, axis=1)


def _with_largest(x):
    terms = _quadratic(x)
    largest = jnp.max(terms, keepdims=True)
    return (largest + jnp.log(jnp.sum(jnp.exp(terms - largest), keepdims=True)))[0]


def _one_after_the_other(x):
    terms = _quadratic(x)
    both = jnp.logaddexp(terms[0], terms[1])
    return jnp.logaddexp(jnp.logaddexp(both, terms[2]), terms[3]) - 0.1 * x[0] ** 2


def _in_vmap(x):
    def one(mean, scale):
        return -0.5 * jnp.sum(((x - mean) / scale) ** 2)

    return logsumexp(jax.vmap(one)(jnp.asarray(_MEANS), jnp.asarray(_SCALES)))


def _numpyro(x):
    distributions = pytest.importorskip("numpyro.distributions")
    parts = distributions.Normal(_MEANS, _SCALES[:, None]).to_event(1)
    weights = distributions.Categorical(probs=_WEIGHTS)
    return distributions.MixtureSameFamily(weights, parts).log_prob(x)


def _densities(x):
    norm = jax.scipy.stats.norm
    parts = zip(_WEIGHTS, _MEANS, _SCALES, strict=True)
    return jnp.log(sum(w * jnp.prod(norm.pdf(x, m, s)) for w, m, s in parts))


def _relative(x):
    first, *others = _quadratic(x)[:3]
    return first + jnp.log1p(sum(jnp.exp(each - first) for each in others))


def _spikes(x):
    return jnp.sum(logsumexp(jnp.stack([-400 * x**2, -0.5 * (x - 0.3) ** 2]), axis=0))


_SUMS = {
    "weights in logarithms": (lambda x: logsumexp(np.log(_WEIGHTS) + _quadratic(x)), 4),
    "weights": (lambda x: logsumexp(_quadratic(x), b=_WEIGHTS), 4),
    "no largest": (lambda x: jnp.log(jnp.sum(_WEIGHTS * jnp.exp(_quadratic(x)))), 4),
    "by hand": (_with_largest, 4),
    "compiled": (jax.jit(lambda x: logsumexp(_quadratic(x)) + x[1]), 4),
    "nested": (_one_after_the_other, 4),
    "vmap": (_in_vmap, 4),
    "NumPyro": (_numpyro, 4),
    "of this package": (
        ax.targets.GaussianMixture(_MEANS, np.outer(_SCALES, np.ones(3)), _WEIGHTS),
        4,
    ),
    "densities": (_densities, 4),
    "mean": (lambda x: jnp.log(jnp.mean(jnp.exp(_quadratic(x)) ** 2) / 3), 4),
    "product": (lambda x: x[0] + jnp.log(_WEIGHTS @ jnp.exp(_quadratic(x))), 4),
    "relative to the first": (_relative, 3),
    "three sums": (_spikes, 8),
}


def in_terms(log_density):
    free = free_density(log_density, (3,), None)
    return terms_of(without_underflow(free, _POINTS), _POINTS)


@pytest.mark.parametrize("name", _SUMS)
def test_terms_add_up_to_the_density(name):
    log_density, count = _SUMS[name]
    terms = in_terms(log_density)
    x = jnp.asarray(_POINTS[:8], jnp.float32)
    parts = jnp.stack([jax.vmap(each)(x) for each in terms.each()])
    assert len(parts) == count
    whole = np.asarray(jax.vmap(log_density)(x))
    seen = np.isfinite(whole)
    assert seen.sum() > 1
    np.testing.assert_allclose(logsumexp(parts, axis=0)[seen], whole[seen], 1e-4)
    values = np.asarray(jax.vmap(terms.whole)(x))
    np.testing.assert_allclose(values[seen], whole[seen], 1e-5)
    # Each is a term of its own, also far from where it is the largest.
    assert np.isfinite(parts).all() or name == "no largest"


@pytest.mark.parametrize(
    "log_density",
    [
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x: jax.nn.log_softmax(x)[0] - jnp.sum(x**2),
        lambda x: 2 * logsumexp(_quadratic(x)),
        lambda x: -(logsumexp(_quadratic(x)) ** 2),
        lambda x: jnp.sum(jax.nn.log_sigmoid(x)) - jnp.sum(x**2),
        lambda x: logsumexp(jnp.tile(_quadratic(x), MAX_TERMS)),
        lambda x: jnp.log(2 - 0.9 * jnp.mean(jnp.exp(-(x**2)))) - jnp.sum(x**2),
    ],
)
def test_other_densities_have_no_terms(log_density):
    """None, a normaliser, a factor, functions of a sum, too many, a difference."""
    assert in_terms(log_density) is None


def _needle_beside(share, scale, size):
    means = np.stack([np.zeros(size), np.linspace(-2.0, 5.0, size)])
    widths = np.array([1.5, scale])
    constants = np.log([1 - share, share]) - size * np.log(widths)

    def log_density(x):
        away = jnp.sum((x - means) ** 2, axis=1) / widths**2
        return logsumexp(constants - 0.5 * away) - 0.5 * size * np.log(2 * np.pi)

    return log_density, means


def test_densities_that_underflow_are_added_up_in_logarithms():
    """In 30 dimensions both are zero nearly everywhere in single precision."""

    def wide_and_narrow(x):
        pdf = jax.scipy.stats.norm.pdf
        wide, narrow = (jnp.prod(pdf(x, m, s)) for m, s in ((0.0, 10.0), (4.0, 1.0)))
        return jnp.log(0.3 * wide + 0.7 * narrow)

    free = free_density(wide_and_narrow, (30,), None)
    points = np.random.default_rng(0).normal(size=(8, 30)) * 10
    assert not np.isfinite([free(jnp.asarray(x)) for x in points]).any()
    found = without_underflow(free, points)
    exact = np.log(0.3) + jax.scipy.stats.norm.logpdf(points, 0, 10).sum(axis=1)
    values = [found(jnp.asarray(x, jnp.float32)) for x in points]
    np.testing.assert_allclose(values, exact, rtol=1e-5)


def test_a_needle_that_no_gradient_points_to_is_a_term():
    log_density, means = _needle_beside(0.3, 0.05, 12)
    density = CountedDensity(log_density, 12)
    found = climb_terms(jr.key(1), density, Everywhere(12))
    assert found.all_known
    centres = np.stack([fit.mean for fit in found.peaks.fits])
    np.testing.assert_allclose(centres, means, atol=1e-3)
    # Up to what both share, these are the weights.
    masses = np.exp(found.peaks.log_masses)
    np.testing.assert_allclose(masses / masses.sum(), [0.7, 0.3], rtol=1e-3)
    assert density.num_evaluations == found.whole.num_evaluations > 0


def test_a_term_with_two_modes_is_not_known_by_its_highest():
    """One of them has a basin that few ascents begin in."""

    def two(x):
        def add(total, mean):
            return jnp.logaddexp(total, -0.5 * jnp.sum((x - mean) ** 2) / 0.01), None

        return jax.lax.scan(add, -jnp.inf, jnp.array([-3.0, 3.0]))[0]

    def log_density(x):
        return jnp.logaddexp(two(x), -0.5 * jnp.sum((x - 9) ** 2))

    found = climb_terms(jr.key(2), CountedDensity(log_density, 2), Everywhere(2))
    assert sorted(len(each.points) for each in found.modes) == [1, 2]


@pytest.mark.slow
def test_a_density_written_as_a_sum_is_right_without_a_warning():
    """Missing the needle would make log Z -0.36 instead of 0."""
    log_density, _ = _needle_beside(0.3, 0.05, 12)
    result = ax.sample(log_density, (12,), seed=5)
    assert abs(result.log_normalizer) < 4 * result.log_normalizer_stderr + 1e-3
    assert result.log_normalizer_stderr < 0.02
    assert not result.warnings()
    assert "sum of 2 terms" in result.summary()
