"""A second look: more mass elsewhere, edges, tails."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import special

import annealax as ax
from annealax.auto.density import CountedDensity
from annealax.auto.modes import Ascents
from annealax.auto.tails import share_of_escapes


def _escapes(log_density, size, scale=1.0):
    x = scale * np.random.default_rng(0).normal(size=(2000, size))
    ascents = Ascents(CountedDensity(log_density, size))
    return share_of_escapes(jr.key(0), ascents, x, np.full(2000, 1 / 2000))


def test_what_has_an_integral_does_not_escape():
    def student(freedom):
        return lambda x: -0.5 * (freedom + 2) * jnp.log1p(jnp.sum(x**2) / freedom)

    assert _escapes(lambda x: -0.5 * jnp.sum(x**2), 5) == 0
    assert _escapes(lambda x: -jnp.sum(jnp.log1p(x**2)), 3) == 0
    assert _escapes(student(0.5), 2) == 0
    assert _escapes(lambda x: jnp.where(jnp.all(jnp.abs(x) < 1), 0.0, -jnp.inf), 2) == 0
    # A floor against log(0) is none of the density.
    floor = lambda x: jnp.logaddexp(jnp.sum(norm.logpdf(x)), -80.0)  # noqa: E731
    assert _escapes(floor, 2) == 0


def test_copies_of_one_particle_do_not_escape():
    ascents = Ascents(CountedDensity(lambda x: -0.5 * jnp.sum(x**2), 2))
    x = np.repeat(np.array([[0.5, -1.0], [1.0, 2.0]]), [1500, 500], axis=0)
    assert share_of_escapes(jr.key(0), ascents, x, np.full(2000, 1 / 2000)) == 0


def test_what_has_no_integral_escapes():
    features = np.random.default_rng(1).normal(size=(30, 3)).astype(np.float32)
    signs = np.sign(features[:, 0])

    def separable(x):
        return jnp.sum(jax.nn.log_sigmoid(signs * (features @ x)))

    assert _escapes(lambda x: 0 * jnp.sum(x), 2) == 1
    assert _escapes(lambda x: -jnp.log1p(jnp.sum(x**2)), 2) == 1
    assert 0 < _escapes(separable, 3, scale=np.array([30.0, 1, 1])) < 1


@pytest.mark.slow
def test_mass_at_a_bound_is_told_and_double_precision_brings_some_of_it():
    """Beta(0.1, 0.1): a fifth of the mass is nearer to 1 than float32 can tell."""

    def log_density(x):
        return jnp.sum(-0.9 * jnp.log(x) - 0.9 * jnp.log1p(-x))

    exact = 2 * special.betaln(0.1, 0.1)
    arguments = {"shape": {"p": 2}, "support": {"p": "unit"}, "num_replicates": 4}
    single, double = (
        ax.sample(lambda v: log_density(v["p"]), dtype=dtype, **arguments)
        for dtype in ("float32", "float64")
    )
    (found,) = (each for each in single.warnings() if each.code == "edge-mass")
    assert "p is pressed" in found
    assert single.log_normalizer < exact - 0.1
    assert abs(double.log_normalizer - exact) < 0.05
    assert double.x["p"].dtype == jnp.float64
    assert jnp.ones(2).dtype == jnp.float32
    assert double.mean()["p"].dtype == np.float64


@pytest.mark.slow
def test_an_improper_density_is_told():
    result = ax.sample(lambda x: 0 * jnp.sum(x), 2, num_replicates=4)
    assert "not-integrable" in [each.code for each in result.warnings()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_four_normals_of_unlike_width(seed):
    """Those of the table that was wrong in silence; 0.02 is five errors."""
    rng = np.random.default_rng(7)
    means = jnp.asarray(rng.normal(0, 5, (4, 5)))
    sds, weights = jnp.array([1, 0.5, 0.8, 1.5]), jnp.array([0.5, 0.3, 0.15, 0.05])

    def log_density(x):
        away = jnp.sum((x - means) ** 2, axis=1) / sds**2
        heights = jnp.log(weights) - 5 * jnp.log(sds * np.sqrt(2 * np.pi))
        return 3.7 + jax.nn.logsumexp(heights - 0.5 * away)

    result = ax.sample(log_density, 5, seed=seed)
    assert abs(result.log_normalizer - 3.7) < 0.02
    assert result.warnings() == []
    assert "4 modes" in result.summary()
