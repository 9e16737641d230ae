"""Ladders and step sizes of the frozen sampler."""

import jax.numpy as jnp
import numpy as np
import pytest

import annealax as ax
from annealax.auto.starts.gaussian import Linear, normal_start
from annealax.auto.tuning import Plan, round_up


def _plan(count=10):
    return Plan(
        start=normal_start(Linear.identity(2)),
        betas=np.linspace(0, 1, count + 1),
        step_sizes=np.linspace(0.5, 0.1, count),
        scales=np.ones((count, 2)),
        num_leapfrog=4,
        num_particles=100,
    )


def test_temperatures_move_to_where_the_work_is():
    work = np.full(10, 1e-4)
    work[0] = 0.5
    plan = _plan().respaced(work, 12)
    assert plan.num_transitions == 12
    assert np.sum(plan.betas <= 0.1) > 8
    assert plan.betas[0] == 0
    assert plan.betas[-1] == 1
    assert np.all(np.diff(plan.betas.astype(np.float32)) > 0)
    even = _plan().respaced(np.full(10, 0.1), 10)
    np.testing.assert_allclose(even.betas, np.linspace(0, 1, 11), atol=1e-6)


def test_no_trajectory_is_longer_than_it_should_be():
    plan = _plan().adjusted(np.ones(10), gain=10.0)
    assert np.all(plan.step_sizes * plan.num_leapfrog <= 2.0 + 1e-6)
    lower = _plan().adjusted(np.zeros(10))
    assert np.all(lower.step_sizes < _plan().step_sizes)


def test_numbers_of_transitions_are_round():
    assert round_up(20) == 20
    assert round_up(33) == 40


def test_few_infinite_values_are_a_warning_and_many_an_error():
    """A scale that underflows far out, where a start with heavy tails draws."""

    def density(least):
        return lambda x: jnp.where(jnp.abs(x[0]) > least, jnp.inf, -0.5 * jnp.sum(x**2))

    arguments = {"shape": (2,), "num_replicates": 4, "flow": "none"}
    few = ax.sample(density(3.4), **arguments)
    assert "infinite-density" in [doubt.code for doubt in few.warnings()]
    assert abs(few.log_normalizer - np.log(2 * np.pi)) < 0.05
    with pytest.raises(ax.SamplingError, match="inf"):
        ax.sample(density(0.5), **arguments)
