"""Coordinates in which a hierarchical model is tame."""

import jax
import jax.numpy as jnp
import numpy as np

from annealax.auto.starts.gaussian import normal_start
from annealax.auto.starts.hierarchy import fit_hierarchy


def _funnel(count, seed=0, last=False):
    rng = np.random.default_rng(seed)
    v = 1.0 + 3 * rng.normal(size=count)
    x = 5.0 + np.exp(v / 2)[:, None] * rng.normal(size=(count, 4))
    return np.column_stack([x, v] if last else [v, x])


def test_a_funnel_is_undone_wherever_its_neck_is():
    for last in (False, True):
        x = _funnel(4000, last=last)
        fitted = fit_hierarchy(x, np.full(len(x), 1 / len(x)))
        column = 4 if last else 0
        others = [i for i in range(5) if i != column]
        slopes = np.asarray(fitted.log_scale_slopes)[others, column]
        sd = float(fitted.scale[column]) * np.exp(float(fitted.log_scales[column]))
        # The scale is exp(v / 2): half a unit per unit of v.
        np.testing.assert_allclose(slopes / sd, 0.5, atol=0.03)
        np.testing.assert_allclose(np.asarray(fitted.mean)[others], 5, atol=0.02)


def test_the_jacobian_is_that_of_the_map():
    x = _funnel(2000)
    fitted = fit_hierarchy(x, np.full(len(x), 1 / len(x)))
    z = jnp.asarray([0.3, -1.0, 0.5, 2.0, -0.2])
    _, log_det = fitted.transform_and_log_det(z)
    jacobian = jax.jacobian(lambda z: fitted.transform_and_log_det(z)[0])(z)
    np.testing.assert_allclose(
        float(log_det), float(jnp.linalg.slogdet(jacobian)[1]), rtol=1e-4
    )


def test_a_start_is_a_distribution():
    x = _funnel(2000)
    start = normal_start(fit_hierarchy(x, np.full(len(x), 1 / len(x))))
    draws, log_prob = start.sample_and_log_prob(jax.random.key(5), (50,))
    np.testing.assert_allclose(start.log_prob(draws), log_prob, rtol=1e-3, atol=1e-2)


def test_a_gaussian_has_no_hierarchy():
    """Chance of a false alarm: 10 tests at five standard errors, about 1e-5."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 5)) @ rng.normal(size=(5, 5))
    assert fit_hierarchy(x, np.full(3000, 1 / 3000)) is None


def test_a_location_that_depends_on_a_coordinate_is_found():
    rng = np.random.default_rng(2)
    v, w = rng.normal(size=(2, 5000))
    x = np.column_stack([v, w, 2 * w + np.exp(v) * rng.normal(size=5000)])
    fitted = fit_hierarchy(x, np.full(5000, 1 / 5000))
    slope = float(fitted.scale[2] * fitted.location_slopes[2, 1])
    scale = float(fitted.scale[1] * jnp.exp(fitted.log_scales[1]))
    np.testing.assert_allclose(slope / scale, 2, atol=0.1)
