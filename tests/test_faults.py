"""Densities with faults: the answer stays right, or somebody says what happened."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import annealax as ax

SCALE = 0.5
LOG_Z = float(np.log(2 * np.pi * SCALE**2))


def normal(x):
    return -0.5 * jnp.sum((x / SCALE) ** 2)


def sampler(log_density, num_particles=1000):
    path = ax.GeometricPath((2,), log_density, 4)
    return ax.Sampler(path, ax.kernels.HMC(0.2, 3), num_particles=num_particles)


def nan_on_one_percent(x):
    """The set where sin > 0.9995 is 1.007 % of the line, in stripes 0.03 apart."""
    return jnp.where(jnp.sin(200 * x[0]) > 0.9995, jnp.nan, normal(x))


def zero_on_half_space(x):
    return jnp.where(x[0] > 0, normal(x), -jnp.inf)


@jax.custom_jvp
def overflowing_gradient(x):
    return normal(x)


@overflowing_gradient.defjvp
def _overflow(primals, tangents):
    (x,), (direction,) = primals, tangents
    slope = -x / SCALE**2 * jnp.where(x[0] > 0.5, jnp.inf, 1.0)
    return normal(x), jnp.sum(slope * direction)


CASES = {
    "nan": (nan_on_one_percent, LOG_Z + np.log1p(-0.01007)),
    "half": (zero_on_half_space, LOG_Z - np.log(2)),
    "gradient": (overflowing_gradient, LOG_Z),
}


@pytest.mark.parametrize("name", CASES)
def test_log_normalizer_stays_right(name):
    """Four of its own error bars: false alarm 6e-5 for each."""
    log_density, exact = CASES[name]
    result = sampler(log_density).run(jr.key(0))
    assert abs(result.log_normalizer - exact) < 4 * result.log_normalizer_stderr
    assert result.log_normalizer_stderr < 0.1
    assert np.all(np.isfinite(result.x[np.asarray(result.weights) > 0]))
    codes = {doubt.code for doubt in result.warnings()}
    if name == "nan":
        assert "nan-density" in codes
        assert int(result.steps.num_nan.sum()) > 0
    if name == "half":
        assert "zero-density" in codes
        assert np.all(result.x[np.asarray(result.weights) > 0, 0] > 0)


def test_training_survives_faults():
    smc = sampler(nan_on_one_percent, 200)
    fit = ax.fit(
        jr.key(0),
        ax.CRAFT(smc, optax.adam(1e-2)),
        ax.flows.diagonal_affine(None, 2),
        num_steps=30,
    )
    assert fit.rollback is None
    assert np.all(np.isfinite(fit.history.loss))
    result = smc.run(jr.key(1), fit.flows)
    exact = CASES["nan"][1]
    assert abs(result.log_normalizer - exact) < 4 * result.log_normalizer_stderr


def spike(height):
    """A huge value around one point, where a few particles in a thousand come."""
    centre = jnp.array([0.1, 0.1])
    return lambda x: jnp.where(jnp.sum((x - centre) ** 2) < 0.05**2, height, normal(x))


def test_a_huge_value_at_one_point_is_told():
    result = sampler(spike(1e6)).run(jr.key(0))
    codes = {doubt.code for doubt in result.warnings()}
    assert codes & {"few-draws", "few-roots"}


def test_an_infinite_value_at_one_point_is_an_error():
    with pytest.raises(ax.SamplingError, match=r"\+inf at \d+ of 1000 .* temperature"):
        sampler(spike(jnp.inf)).run(jr.key(0))


def test_nan_everywhere_is_an_error():
    with pytest.raises(
        ax.SamplingError, match="zero weight at temperature 1.*1000 gave"
    ):
        sampler(lambda x: normal(x) * jnp.nan).run(jr.key(0))
