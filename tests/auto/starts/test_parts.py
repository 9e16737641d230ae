"""A density in two parts, each with a start of its own."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import annealax as ax
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.starts.leaders import fit_leaders, leaders_start
from annealax.auto.starts.parts import Ellipsoids, Part, start_of_parts
from annealax.auto.terms import OneByOne, terms_of

_MODE = Linear(np.array([4.0, -3.0]), np.array([[0.5, 0.0], [0.3, 0.4]]))


def _ellipsoids():
    other = Linear(np.array([-6.0, 5.0]), np.array([[1.0, 0.0], [-0.5, 0.7]]))
    return Ellipsoids([_MODE, other], [3.0, 5.0])


def test_shares_add_up_to_one_everywhere():
    rng = np.random.default_rng(0)
    near = 4 * rng.normal(size=(200, 2))
    points = np.concatenate([near, 1e6 * near, 1e-6 * near, [[4.0, -3.0]]])
    shares = _ellipsoids().log_shares
    found = jax.vmap(shares)(jnp.asarray(points, jnp.float32))
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, atol=1e-5)
    slopes = jax.vmap(jax.jacobian(shares))(jnp.asarray(points, jnp.float32))
    assert np.isfinite(np.asarray(slopes)).all()
    inside = np.exp(found[:, 1])
    assert inside[-1] > 0.999  # the centre of a mode
    assert inside[200:400].max() < 1e-6  # far away from both


def test_parts_add_up_to_the_density():
    target = ax.targets.Normal(np.zeros(2), 20 * np.eye(2))
    x = jnp.asarray([3.0, -1.5])
    parts = [Part(target, _ellipsoids(), side)(x) for side in (0, 1)]
    np.testing.assert_allclose(
        float(jnp.logaddexp(*parts)), float(target(x)), rtol=1e-5
    )


def _line(share=0.3):
    """A start for a line: a wide normal, and a narrow one inside of an ellipsoid."""
    narrow = Linear(np.array([4.0]), np.array([[0.2]]))
    wide = Linear(np.array([-1.0]), np.array([[1.5]]))
    ellipsoid = Ellipsoids([narrow], [4.0])
    starts = [normal_start(wide), normal_start(narrow)]
    return start_of_parts(starts, ellipsoid, np.array([1 - share, share]))


def _two_modes(x):
    """Log Z is 0.4."""
    slab = jax.scipy.stats.norm.logpdf(x[0], -0.5, 1.5)
    spike = jax.scipy.stats.norm.logpdf(x[0], 4.1, 0.25)
    return 0.4 + jnp.logaddexp(jnp.log(0.35) + slab, jnp.log(0.65) + spike)


def test_the_integral_over_both_parts_is_that_of_the_density():
    start = _line()
    path = start.path(_two_modes, np.arange(2.0))
    u = stats.norm.ppf((np.arange(400) + 0.5) / 400)  # equal shares of u
    z = np.linspace(-40, 40, 16_001)
    densities = ((path.target, 0.4), (start.base_dist.log_prob, 0.0))
    for density, log_z in densities:
        given = [
            jax.vmap(lambda z, u=u, f=density: f(jnp.stack([u, z[0]])))(z[:, None])
            - stats.norm.logpdf(u)
            for u in u[[0, -1]]  # below and above the threshold
        ]
        below, above = (float(jnp.exp(each).sum()) * (z[1] - z[0]) for each in given)
        total = 0.7 * below + 0.3 * above
        np.testing.assert_allclose(np.log(total), log_z, atol=2e-4)


def test_it_is_a_distribution_and_goes_back():
    start = _line(0.45)
    z = start.base_dist.sample(jr.key(0), (4000,))
    # Of 4000 draws 1800 should be inside; five standard errors.
    assert abs(np.sum(np.asarray(z[:, 0]) > stats.norm.ppf(0.55)) - 1800) < 5 * 31.5
    there = jax.vmap(start.bijection.transform)(z)
    back = jax.vmap(start.bijection.inverse)(there)
    np.testing.assert_allclose(back, z, atol=1e-4)
    np.testing.assert_allclose(
        start.bijection.positions(np.asarray(z))[:, 0], there[:, 1], atol=1e-6
    )


_SIZE, _RUNS = 4, 150


def _funnel_and_normal(x):
    """Log Z is -0.7: 40 % in a funnel, 60 % in a normal beside it."""
    funnel = jax.scipy.stats.norm.logpdf(x[0], 0.3, 1.5)
    funnel += jnp.sum(jax.scipy.stats.norm.logpdf(x[1:], 0.5, jnp.exp(0.5 * x[0])))
    normal = jnp.sum(jax.scipy.stats.norm.logpdf(x, 5.0, 0.4))
    return -0.7 + jnp.logaddexp(jnp.log(0.4) + funnel, jnp.log(0.6) + normal)


def _funnel_draws(count):
    rng = np.random.default_rng(1)
    first = rng.normal(0.3, 1.5, size=(count, 1))
    others = 0.5 + np.exp(0.5 * first) * rng.normal(size=(count, _SIZE - 1))
    return np.concatenate([first, others], axis=1)


def _terms():
    rng = np.random.default_rng(4)
    found = terms_of(_funnel_and_normal, rng.normal(size=(64, _SIZE)))
    assert found is not None
    return OneByOne(found)


_NORMAL = Linear(np.full(_SIZE, 5.0), 0.4 * np.eye(_SIZE))


@pytest.mark.parametrize(
    "division", [Ellipsoids([_NORMAL], [6.0]), _terms()], ids=["ellipsoid", "terms"]
)
def test_log_z_of_a_funnel_and_a_normal_is_unbiased(division):
    """150 runs: 4.5 standard errors of the mean of Z (false alarm: 1e-5).

    Leaving out the share of draws of each part would be off by a factor of about two.
    """
    x = _funnel_draws(2000)
    leaders = fit_leaders(x, np.full(len(x), 1 / len(x)), np.array([0]))
    starts = [leaders_start(leaders), normal_start(_NORMAL)]
    start = start_of_parts(starts, division, np.array([0.2, 0.8]))
    path = start.path(_funnel_and_normal, np.linspace(0, 1, 7))
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 4), num_particles=200)
    run = jax.jit(lambda key: sampler.run(key).log_normalizer)
    ratios = np.exp([float(run(key)) + 0.7 for key in jr.split(jr.key(2), _RUNS)])
    error = np.std(ratios, ddof=1) / np.sqrt(_RUNS)
    assert error < 0.02
    assert abs(np.mean(ratios) - 1) < 4.5 * error


def test_particles_change_sides_where_one_had_too_many():
    """All but a twentieth of the draws begin in a part with 40 % of the mass."""
    x = _funnel_draws(2000)
    leaders = fit_leaders(x, np.full(len(x), 1 / len(x)), np.array([0]))
    starts = [leaders_start(leaders), normal_start(_NORMAL)]
    division = Ellipsoids([_NORMAL], [6.0])
    start = start_of_parts(starts, division, np.array([1.0, 0.0]))
    path = start.path(_funnel_and_normal, np.linspace(0, 1, 7))
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 4), num_particles=4000)
    result = sampler.run(jr.key(3))
    places = start.bijection.positions(np.asarray(result.x))
    weights = np.asarray(result.weights, np.float64)
    share = float(weights @ (np.abs(places - 5).max(axis=1) < 2))
    assert abs(share - 0.6) < 0.05
