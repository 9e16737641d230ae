"""Models of NumPyro against NumPyro's own density, and evidences in closed form."""

import importlib.util
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import constrain_fn, potential_energy
from scipy import stats

import annealax as ax

_PATH = Path(__file__).parent / "_numpyro_models.py"
_SPEC = importlib.util.spec_from_file_location("_numpyro_models", _PATH)
models = importlib.util.module_from_spec(_SPEC)
sys.modules["_numpyro_models"] = models
_SPEC.loader.exec_module(models)


def _theirs(function, args, free):
    """NumPyro's density of its unconstrained numbers."""
    return -potential_energy(function, args, {}, free)


def _ours(model, function, args, free):
    """Ours in the same coordinates: the Jacobians are NumPyro's own."""
    values = constrain_fn(function, args, {}, free)
    trace = model.program.trace(values)
    log_det = 0.0
    for name, x in free.items():
        transform = dist.biject_to(trace[name]["fn"].support)
        log_det += transform.log_abs_det_jacobian(x, values[name]).sum()
    return model.log_density(values) + log_det


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in models.MODELS if n != "directions"])
def test_density_and_gradient_are_those_of_numpyro(name, dtype):
    # NumPyro has no bijection to the sphere: tested by its integral.
    function, args = models.MODELS[name]
    with jax.enable_x64(dtype == "float64"):
        model = ax.from_numpyro(function, *args)
        trace = model.program.trace({}, jr.key(2))
        free = {}
        for each in model.space.parameters:
            transform = dist.biject_to(trace[each.name]["fn"].support)
            shape = transform.inverse_shape(each.shape)
            free[each.name] = jnp.asarray(
                0.3 * np.random.default_rng(3).normal(size=shape)
            )

        @jax.jit
        def both(free):
            ours = jax.value_and_grad(lambda x: _ours(model, function, args, x))
            theirs = jax.value_and_grad(lambda x: _theirs(function, args, x))
            return ours(free), theirs(free)

        (value, slope), (right, right_slope) = both(free)
    rtol = 1e-4 if dtype == "float32" else 1e-9
    assert np.asarray(value).dtype == dtype
    np.testing.assert_allclose(value, right, rtol=rtol)
    for each in free:
        scale = np.abs(right_slope[each]).max()
        np.testing.assert_allclose(slope[each], right_slope[each], atol=rtol * scale)


@pytest.mark.parametrize(
    "name", ["regression", "shares", "correlated", "thresholds", "bounds", "zero_sum"]
)
def test_the_prior_is_the_density_of_its_draws(name):
    """Weights of a normal density against the prior's, at its draws, average to one.

    So a wrong Jacobian or constant shows. 4 standard errors: 6e-5 a model.
    """
    function, args = models.MODELS[name]
    model = ax.from_numpyro(function, *args)

    @jax.jit
    def weights(keys):
        def free(key):
            return model.space.unconstrain(model.prior.sample(key), key)

        x = jax.vmap(free)(keys)
        covariance = 0.3 * jnp.cov(x.T) + 1e-6 * jnp.eye(x.shape[1])

        def log_weight(x):
            value, log_det = model.space.constrain(x)
            log_prior = model.log_prior(value) + log_det
            normal = jax.scipy.stats.multivariate_normal.logpdf(x, mean, covariance)
            return normal - log_prior

        mean = x.mean(axis=0)
        return jnp.exp(jax.vmap(log_weight)(x))

    found = np.asarray(weights(jr.split(jr.key(4), 4000)), np.float64)
    error = found.std() / np.sqrt(len(found))
    assert error < 0.2
    assert abs(found.mean() - 1) < 4 * error


def _evidence(model, count=20_000):
    """Log of the mean likelihood over prior draws, and its error."""

    @jax.jit
    def log_likelihoods(keys):
        return jax.vmap(lambda k: model.log_likelihood(model.prior.sample(k)))(keys)

    values = np.asarray(log_likelihoods(jr.split(jr.key(0), count)), np.float64)
    top = values.max()
    shares = np.exp(values - top)
    error = shares.std() / shares.mean() / np.sqrt(count)
    return top + np.log(shares.mean()), error


def test_evidence_of_conjugate_models():
    def normal(y):
        centre = numpyro.sample("centre", dist.Normal(1.0, 2.0))
        numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)

    def binomial(successes):
        share = numpyro.sample("share", dist.Beta(2.0, 3.0))
        numpyro.sample("n", dist.Binomial(10, share), obs=successes)

    def multinomial(counts):
        share = numpyro.sample("share", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])))
        numpyro.sample("n", dist.Multinomial(6, share), obs=counts)

    def poisson(counts):
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
        numpyro.sample("n", dist.Poisson(rate), obs=counts)

    y = models.Y[:5]
    covariance = np.eye(5) + 4.0
    exact = {
        normal: (y, stats.multivariate_normal.logpdf(y, np.ones(5), covariance)),
        binomial: (np.array(4), stats.betabinom.logpmf(4, 10, 2, 3)),
        multinomial: (
            np.array([1, 2, 3]),
            stats.dirichlet_multinomial.logpmf([1, 2, 3], [1.0, 2.0, 3.0], 6),
        ),
        poisson: (np.array(3), stats.nbinom.logpmf(3, 2, 0.5 / 1.5)),
    }
    for function, (data, right) in exact.items():
        value, error = _evidence(ax.from_numpyro(function, data))
        assert abs(value - right) < 4 * error < 0.1, function.__name__


def test_a_result_has_names_deterministics_and_new_data():
    model = ax.from_numpyro(models.regression, models.X, models.Y)
    values = {"sigma": jnp.array(0.5), "slope": jnp.array([1.0, 2.0])}
    np.testing.assert_allclose(
        model.transform(values)["mean"], models.X @ [1.0, 2.0], rtol=1e-5
    )
    assert model.dims["slope"] == ("feature",)
    assert model.dims["y"] == ("row",)
    assert list(model.coords["feature"]) == [0, 1]
    np.testing.assert_allclose(model.observed["y"], models.Y)
    pointwise = model.pointwise_log_likelihood(values)["y"]
    np.testing.assert_allclose(pointwise.sum(), model.log_likelihood(values), rtol=1e-5)
    draws = jax.vmap(lambda key: model.predict(key, values)["y"])(
        jr.split(jr.key(0), 2000)
    )
    np.testing.assert_allclose(draws.mean(0), models.X @ [1.0, 2.0], atol=0.06)
    np.testing.assert_allclose(draws.std(0), 0.5, atol=0.05)


def test_new_values_of_data_do_not_compile_again():
    traces = []

    def counted(x, y):
        traces.append(1)
        models.regression(x, y)

    model = ax.from_numpyro(counted, models.X, models.Y)
    other = model.with_data(models.X + 1, models.Y)
    point = {"sigma": jnp.array(0.5), "slope": jnp.array([1.0, 2.0])}

    compiled = eqx.filter_jit(lambda program, p: program.log_density(p))
    first = compiled(model.program, point)
    before = len(traces)
    second = compiled(other.program, point)
    assert len(traces) == before
    assert first != second
    # and where values have to be looked at, others are not mistaken for them
    fixed = ax.from_numpyro(models.looks_at_values, models.GROUP, models.Y)
    assert fixed.with_data(models.GROUP[::-1].copy(), models.Y).program != fixed.program


def test_flat_priors_are_no_path():
    model = ax.from_numpyro(models.improper, models.Y)
    assert model.prior is None
    assert "rate has the improper prior" in model.why_no_prior
    value = {
        "rate": jnp.array([0.1, 0.2, 0.3]),
        "centre": jnp.array(0.1),
        "scale": jnp.array(0.8),
    }
    right = stats.norm.logpdf(models.Y, 0.7, 0.8).sum() + stats.weibull_min.logpdf(
        0.8, 1.5
    )
    np.testing.assert_allclose(model.log_likelihood(value), right, rtol=1e-5)


def test_discrete_sites_are_summed_out():
    def mixture(y):
        centre = numpyro.sample(
            "centre", dist.Normal(jnp.array([-1.0, 1.0]), 1.0).to_event(1)
        )
        with numpyro.plate("row", len(y)):
            which = numpyro.sample("which", dist.Bernoulli(0.3))
            numpyro.sample("y", dist.Normal(centre[which], 1.0), obs=y)

    model = ax.from_numpyro(mixture, models.Y)
    value = {"centre": jnp.array([0.3, -0.2])}
    densities = stats.norm.pdf(models.Y[:, None], [0.3, -0.2]) @ [0.7, 0.3]
    np.testing.assert_allclose(
        model.log_likelihood(value), np.log(densities).sum(), rtol=1e-5
    )
    prior = stats.norm.logpdf([0.3, -0.2], [-1.0, 1.0]).sum()
    np.testing.assert_allclose(model.log_prior(value), prior, rtol=1e-5)
    assert not model.can_predict


def _endless(y):
    count = numpyro.sample("count", dist.Poisson(3.0))
    numpyro.sample("y", dist.Normal(count, 1.0), obs=y)


def _parameter(y):
    numpyro.sample("y", dist.Normal(numpyro.param("centre", 0.0), 1.0), obs=y)


def _subsample(y):
    level = numpyro.sample("level", dist.Normal())
    with numpyro.plate("row", len(y), subsample_size=2) as index:
        numpyro.sample("y", dist.Normal(level), obs=y[index])


def _nothing(y):
    numpyro.sample("y", dist.Normal(), obs=y)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_endless, "'count'.*cannot enumerate"),
        (_parameter, "centre is a numpyro.param"),
        (_subsample, "plate row takes a subsample"),
        (_nothing, "no latent site"),
        (lambda y: y.wrong, "cannot be run with these arguments"),
        (3, "needs a function"),
    ],
)
def test_what_cannot_be_sampled_is_said(function, words):
    with pytest.raises(ax.InvalidInputError, match=words):
        ax.from_numpyro(function, models.Y)
