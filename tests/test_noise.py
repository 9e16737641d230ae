"""The fast random numbers are those of jax.random."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from annealax._noise import bits, noise


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_words_are_those_of_jax(count):
    for seed in (0, 1, 2**31 + 5):
        key = jr.key(seed)
        np.testing.assert_array_equal(bits(key, count), jr.bits(key, (count,)))


def test_normal_numbers_are_those_of_jax():
    key = jr.key(3)
    drawn = noise(key, (3, 5), 70, jnp.float32)
    assert drawn.normal.shape == (3, 5, 70)
    assert drawn.exponential.shape == (70,)
    expected = jr.normal(key, (3 * 5 * 70 + 70,))[:-70].reshape(3, 5, 70)
    np.testing.assert_array_equal(drawn.normal, expected)
    # The last 70 words make the exponential numbers, as jax.random.exponential does.
    expected = jr.exponential(key, (3 * 5 * 70 + 70,))[-70:]
    np.testing.assert_allclose(drawn.exponential, expected, rtol=1e-6)


@pytest.mark.parametrize("case", ["float32", "float64", "rbg"])
def test_distributions(case):
    """Kolmogorov-Smirnov; six tests at 1e-5: false alarm below 6e-5."""
    with jax.enable_x64(case == "float64"):
        key = jr.key(1, impl="rbg") if case == "rbg" else jr.key(1)
        dtype = jnp.float64 if case == "float64" else jnp.float32
        drawn = noise(key, (14, 2), 2000, dtype)
        assert drawn.normal.dtype == dtype
        normal = np.asarray(drawn.normal, np.float64).ravel()
        exponential = np.asarray(drawn.exponential, np.float64)
    assert stats.kstest(normal, "norm").pvalue > 1e-5
    assert stats.kstest(exponential, "expon").pvalue > 1e-5
    # Independent of each other: the correlation with each normal is 0 +- 1 / sqrt(N).
    correlation = np.corrcoef(exponential, normal.reshape(28, -1))[0, 1:]
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)
