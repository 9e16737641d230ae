"""What is sampled is a model, also where it was given as plain functions."""

import jax.numpy as jnp
import jax.random as jr
import pytest
from flowjax.distributions import Normal

import annealax as ax
from annealax.auto.knowledge import as_prior
from annealax.models.plain import as_model


def _log_likelihood(x):
    return -0.5 * jnp.sum((x["a"] - 1.0) ** 2)


@pytest.fixture(scope="module")
def model():
    return as_model(
        _log_likelihood, None, None, as_prior({"a": Normal(jnp.zeros(2), 2.0)})
    )


def test_a_model_keeps_prior_and_likelihood_apart(model):
    point = {"a": jnp.array([0.5, -1.0])}
    prior = Normal(jnp.zeros(2), 2.0).log_prob(point["a"]).sum()
    assert model.log_likelihood(point) == pytest.approx(-0.5 * (0.25 + 4.0))
    assert model.log_prior(point) == pytest.approx(prior)
    assert model.log_density(point) == pytest.approx(prior - 2.125)
    assert model.transform(point)["a"].shape == (2,)
    assert model.prior.sample(jr.key(0))["a"].shape == (2,)


def test_what_a_model_does_not_know_it_says(model):
    assert model.pointwise_log_likelihood({"a": jnp.zeros(2)}) == {}
    assert not model.can_predict
    with pytest.raises(ax.InvalidInputError, match="does not say how data are made"):
        model.predict(jr.key(0), {"a": jnp.zeros(2)})


def test_a_model_has_its_own_shape_and_prior(model):
    with pytest.raises(ax.InvalidInputError, match="leave out shape= and prior="):
        ax.sample(model, (2,), prior=Normal(jnp.zeros(2)))
