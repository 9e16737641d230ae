"""Error bars, tails and other estimates on the host."""

import numpy as np
import pytest

from annealax._estimates import pareto_shape, pooled_stderr, weighted_quantiles


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


def test_replicates_that_agree_by_chance_do_not_shrink_the_error_bar():
    same = np.zeros(8)
    stderr = pooled_stderr(same, np.full(8, 0.4), 0.1)
    np.testing.assert_allclose(stderr, 0.4 / np.sqrt(8))
    # Heavy tails widen it; a tail that could not be measured does not.
    wider = pooled_stderr(same, np.full(8, 0.4), 0.55)
    np.testing.assert_allclose(wider, 2 * stderr)
    assert pooled_stderr(same, np.full(8, 0.4), np.nan) == stderr
    spread = np.array([-1.0, 1.0] * 4)
    assert pooled_stderr(spread, np.full(8, 0.01), 0.0) > 0.2


def test_rounding_is_an_error_too():
    """Single precision has no number between 1e5 and 1e5 + 0.0078."""
    large = pooled_stderr(np.full(8, 1e5), np.full(8, 1e-4), 0.0)
    np.testing.assert_allclose(large, 1e5 * np.finfo(np.float32).eps, rtol=1e-3)


def test_quantiles_count_weights():
    values = np.array([3.0, 1.0, 2.0, 50.0])
    weights = np.array([0.25, 0.5, 0.25, 0.0])
    np.testing.assert_array_equal(
        weighted_quantiles(values, weights, [0, 0.4, 1]), [1, 1, 3]
    )
    np.testing.assert_array_equal(weighted_quantiles(values, 8 * weights, [0.6]), [2])


def test_the_shape_of_a_tail_over_many_powers_of_ten():
    """Warnings are errors here; nothing is divided by what is zero in doubles."""
    rng = np.random.default_rng(0)
    for scale in (1.0, 30.0, 300.0):
        k = pareto_shape(np.exp(np.minimum(scale * rng.normal(size=2000), 700)))
        assert k > 0.35 or scale == 1.0
    assert pareto_shape(np.exp(np.linspace(-700, 700, 500))) > 0.7
    assert np.isnan(pareto_shape(np.full(200, 1e-300)))
