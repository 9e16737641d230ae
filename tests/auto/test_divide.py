"""Densities whose parts need starts of their own, from the outside."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy.stats import norm

import annealax as ax

_LOG_Z = 1.3


def _parts(x):
    """Logs of a funnel with 45 % of the mass, and of a normal with 55 % beside it."""
    funnel = norm.logpdf(x[0], -0.4, 1.8) + jnp.log(0.45)
    funnel += jnp.sum(norm.logpdf(x[1:], -0.7, jnp.exp(0.5 * x[0])))
    return funnel, jnp.sum(norm.logpdf(x, 4.0, 0.6)) + jnp.log(0.55)


def _written_as_a_sum(x):
    return _LOG_Z + jnp.logaddexp(*_parts(x))


def _in_a_loop(x):
    """The same; terms are not looked for in loops."""
    return lax.scan(lambda x, _: (x, _written_as_a_sum(x)), x, None, length=1)[1][0]


@pytest.mark.slow
@pytest.mark.parametrize("log_density", [_written_as_a_sum, _in_a_loop])
def test_a_funnel_beside_a_normal(log_density):
    """Four errors, and a tenth of them for the bias of a logarithm: 1e-4.

    A Gaussian at the funnel's peak, or the funnel's coordinates alone, would be off by
    more than half a nat.
    """
    result = ax.sample(log_density, (5,), seed=3)
    assert result.choices["start"].startswith("by parts")
    assert result.log_normalizer_stderr < 0.02
    assert abs(result.log_normalizer - _LOG_Z) < 4.1 * result.log_normalizer_stderr
    assert not {w.code for w in result.warnings()} - {"unseen-modes"}
    beside = np.asarray(result.weights) @ np.all(np.abs(result.x - 4) < 3, axis=1)
    assert abs(beside - 0.55) < 0.03
