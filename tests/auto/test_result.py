"""What a model adds to an answer: computed numbers, data, likelihoods, predictions."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal
from scipy import stats

import annealax as ax
from annealax import InvalidInputError
from annealax.models.plain import PlainModel

Y = np.array([0.5, 2.0, 1.1])


class Regression(PlainModel):
    """A level b with a normal prior, and data about it; b squared is computed."""

    def transform(self, parameters):
        """The level and its square."""
        return {**super().transform(parameters), "square": parameters["b"] ** 2}

    def pointwise_log_likelihood(self, parameters):
        """Of each datum."""
        noise = -0.5 * (jnp.asarray(self.observed["y"]) - parameters["b"]) ** 2
        return {"y": noise - 0.5 * np.log(2 * np.pi)}

    @property
    def can_predict(self):
        """It can."""
        return True

    def predict(self, key, parameters):
        """New data."""
        return {"y": parameters["b"] + jr.normal(key, (3,))}


@pytest.fixture(scope="module")
def result():
    """A posterior that is normal(0.9, 1/4)."""

    def log_likelihood(p):
        return jnp.sum(-0.5 * (Y - p["b"]) ** 2) - 1.5 * np.log(2 * np.pi)

    found = ax.sample(log_likelihood, prior={"b": Normal(0.0)}, num_particles=400)
    plain = found.model
    model = Regression(plain.function, plain.space, plain.prior)
    added = {"observed": {"y": Y}, "dims": {"y": ("day",)}, "coords": {"day": [*"abc"]}}
    for name, value in added.items():
        model = eqx.tree_at(
            lambda m, name=name: getattr(m, name),
            model,
            value,
            is_leaf=lambda leaf: isinstance(leaf, dict),
        )
    return dataclasses.replace(found, model=model)


def test_what_the_model_computes_is_named_beside_parameters(result):
    """b is normal(0.9, 1/4), so b^2 has the mean 0.81 + 0.25; five standard errors."""
    mean, error = result.mean(), result.mean_stderr()
    assert list(mean) == list(result.draws(3)) == ["b", "square"]
    assert abs(mean["square"] - 1.06) < 5 * error["square"] < 0.1
    assert set(result.x) == {"b"}
    assert "square" in result.summary()
    assert list(result.to_dataframe().columns) == ["b", "square"]


def test_groups_for_arviz(result):
    data = result.to_arviz()
    assert list(data.posterior.data_vars) == ["b", "square"]
    assert data.observed_data.y.dims == ("day",)
    assert list(data.observed_data.day.values) == ["a", "b", "c"]
    chains, draws = data.posterior.b.shape
    assert data.log_likelihood.y.shape == (chains, draws, 3)
    assert data.log_likelihood.y.dims[-1] == "day"
    b = data.posterior.b.values[..., None]
    exact = stats.norm.logpdf(Y, b)
    np.testing.assert_allclose(data.log_likelihood.y, exact, atol=1e-4)
    prior = data.prior.b.values.ravel()
    assert abs(prior.mean()) < 5 / np.sqrt(len(prior))
    lp = exact.sum(axis=-1) + stats.norm.logpdf(b[..., 0])
    np.testing.assert_allclose(data.sample_stats.lp, lp, atol=1e-4)


def test_predictions(result):
    """New data are normal(0.9, 1 + 1/4); five standard errors."""
    found = result.predict(num_draws=4000)["y"]
    assert found.shape == (4000, 3)
    assert abs(found.mean() - 0.9) < 5 * np.sqrt(1.25 / 4000)
    np.testing.assert_allclose(found.std(), np.sqrt(1.25), rtol=0.05)
    np.testing.assert_array_equal(found, result.predict(num_draws=4000)["y"])
    other = result.predict(key=jr.key(5), num_draws=4000)["y"]
    assert not np.array_equal(found, other)
    double = result.predict(lambda p: 2 * p["b"])
    assert double.shape == (int(result.ess),)
    np.testing.assert_allclose(double.mean(), 1.8, atol=0.05)
    noisy = result.predict(lambda key, p: p["b"] + jr.normal(key), num_draws=4000)
    np.testing.assert_allclose(noisy.std(), np.sqrt(1.25), rtol=0.08)


def test_predictions_need_to_know_how(result):
    model = PlainModel(result.model.function, result.model.space, result.model.prior)
    plain = dataclasses.replace(result, model=model)
    with pytest.raises(InvalidInputError, match="needs a function"):
        plain.predict()
    with pytest.raises(InvalidInputError, match="needs 3 arguments"):
        plain.predict(lambda a, b, c: a)
