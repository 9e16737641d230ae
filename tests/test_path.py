"""Paths: what they evaluate, and what they refuse."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal, StandardNormal
from tests_problems import skewed_log_density

import annealax as ax


def test_log_density_is_the_geometric_mean():
    initial = Normal(jnp.array([1.0, -1.0]), 2.0)
    path = ax.GeometricPath(initial, skewed_log_density, 4)
    x = jnp.array([0.3, -0.7])
    for beta in (0.0, 0.25, 0.6, 1.0):
        expected = (1 - beta) * initial.log_prob(x) + beta * skewed_log_density(x)
        assert float(path.log_density(beta, x)) == pytest.approx(
            float(expected), rel=1e-6
        )


def test_ends_of_the_path_ignore_the_other_density():
    def half_space(x):
        return jnp.where(x[0] > 0, -0.5 * jnp.sum(x**2), -jnp.inf)

    path = ax.GeometricPath((2,), half_space, 2)
    x = jnp.array([-1.0, 0.0])
    assert float(path.log_density(0.0, x)) == pytest.approx(
        float(StandardNormal((2,)).log_prob(x))
    )
    assert float(path.log_density(0.5, x)) == -np.inf


def test_ladder_from_a_number():
    path = ax.GeometricPath((2,), skewed_log_density, 4)
    assert np.allclose(path.betas, [0, 0.25, 0.5, 0.75, 1])
    assert path.num_transitions == 4
    assert np.allclose(path.edges.start, [0, 0.25, 0.5, 0.75])
    assert np.allclose(path.edges.end, [0.25, 0.5, 0.75, 1])


def test_standard_normal_by_default():
    target = ax.targets.Funnel()
    path = ax.GeometricPath(None, target)
    assert path.shape == (10,)
    x, log_density = path.sample(jr.key(0), 3)
    assert x.shape == (3, 10)
    assert np.allclose(log_density, jax.vmap(StandardNormal((10,)).log_prob)(x))


def test_at_is_never_nan_or_infinite():
    path = ax.GeometricPath((1,), lambda x: jnp.log(x[0]) / x[0] ** 2, 2)
    for value in (-1.0, 0.0, 1.0):
        log_density = path.at(1.0)(jnp.array([value]))
        assert not np.isnan(log_density)
        assert log_density < np.inf


@pytest.mark.parametrize(
    "betas",
    [
        [0.0, 0.5, 0.5, 1.0],
        [0.0, 0.7, 0.3, 1.0],
        [0.1, 1.0],
        [0.0, 0.9],
        [0.0, float("nan"), 1.0],
        [1.0],
        [[0.0, 1.0]],
        [0.0, 1e-12, 1.0, 1.0 + 1e-12],
        0,
        -3,
    ],
)
def test_bad_ladders(betas, untyped):
    with pytest.raises(ax.InvalidInputError, match=r"betas|ladder"):
        ax.GeometricPath((2,), skewed_log_density, betas)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda x: -0.5 * x**2, r"returns shape \(2,\)"),
        (lambda x: x[5] @ jnp.ones(3), "cannot be evaluated"),
        (lambda x: jnp.array(1), "floating"),
        (lambda x: None, "one number"),
        (3.0, "function"),
    ],
)
def test_bad_targets(target, message, untyped):
    with pytest.raises(ax.InvalidInputError, match=message):
        ax.GeometricPath((2,), target)


@pytest.mark.parametrize(
    ("initial", "message"),
    [(None, "shape"), ((0,), "whole numbers of at least 1"), ("normal", "sample")],
)
def test_bad_initial_distributions(initial, message, untyped):
    with pytest.raises(ax.InvalidInputError, match=message):
        ax.GeometricPath(initial, skewed_log_density)
