"""What is sampled is a model, also where it was given as plain functions."""

import jax.numpy as jnp
import jax.random as jr
import pytest
from flowjax.distributions import Normal

import annealax as ax


@pytest.fixture(scope="module")
def result():
    return ax.sample(
        lambda x: -0.5 * jnp.sum((x["a"] - 1.0) ** 2),
        prior={"a": Normal(jnp.zeros(2), 2.0)},
        seed=1,
        num_particles=100,
        num_replicates=2,
        flow="none",
    )


def test_a_result_keeps_prior_and_likelihood_apart(result):
    point = {"a": jnp.array([0.5, -1.0])}
    prior = Normal(jnp.zeros(2), 2.0).log_prob(point["a"]).sum()
    assert result.model.log_likelihood(point) == pytest.approx(-0.5 * (0.25 + 4.0))
    assert result.model.log_prior(point) == pytest.approx(prior)
    assert result.model.log_density(point) == pytest.approx(prior - 2.125)
    assert result.model.transform(point)["a"].shape == (2,)
    assert result.model.prior.sample(jr.key(0))["a"].shape == (2,)


def test_what_a_model_does_not_know_it_says(result):
    assert result.model.pointwise_log_likelihood({"a": jnp.zeros(2)}) == {}
    assert not result.model.can_predict
    with pytest.raises(ax.InvalidInputError, match="does not say how data are made"):
        result.model.predict(jr.key(0), {"a": jnp.zeros(2)})


def test_a_model_has_its_own_shape_and_prior(result):
    with pytest.raises(ax.InvalidInputError, match="leave out shape= and prior="):
        ax.sample(result.model, (2,), prior=Normal(jnp.zeros(2)))
