"""The fast random numbers are those of jax.random."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from annealax._noise import hashes, noise


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_words_of_the_first_particle_are_those_of_jax(count):
    for seed in (0, 1, 2**31 + 5):
        one, two = hashes(key := jr.key(seed), count, 1, 0)
        np.testing.assert_array_equal((one ^ two)[:, 0], jr.bits(key, (count,)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_of_the_first_particle_are_those_of_jax(dtype):
    with jax.enable_x64(dtype == "float64"):
        key = jr.key(3)
        drawn = noise(key, (3, 5), 70, dtype)
        assert drawn.normal.shape == (3, 5, 70)
        assert drawn.exponential.shape == (70,)
        normal = jr.normal(key, (16,), dtype)[:15].reshape(3, 5)
        np.testing.assert_array_equal(drawn.normal[..., 0], normal)
        # Its last word makes the exponential number, as jax.random.exponential does.
        exponential = jr.exponential(key, (16,), dtype)[15]
        np.testing.assert_allclose(drawn.exponential[0], exponential, rtol=1e-6)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_numbers_of_a_block_do_not_depend_on_the_others(impl):
    key = jr.key(3, impl=impl)
    block = noise(key, (2, 3), 8, jnp.float32, first=16)
    if impl == "threefry2x32":
        whole = noise(key, (2, 3), 30, jnp.float32)
        np.testing.assert_array_equal(block.normal, whole.normal[..., 16:24])
        np.testing.assert_array_equal(block.exponential, whole.exponential[16:24])
    other = noise(key, (2, 3), 8, jnp.float32, first=24)
    assert not np.any(np.asarray(block.normal) == np.asarray(other.normal))


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
