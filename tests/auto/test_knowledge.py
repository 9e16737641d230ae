"""What the user knows beside the density: prior, region and points."""

import flowjax.distributions as fd
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import integrate, stats

import annealax as ax
from annealax import InvalidInputError
from annealax.auto.knowledge import as_prior, gather
from annealax.auto.parameters import Space


def _known(space, prior=None, region=None, initial=None):
    prior = None if prior is None else as_prior(prior)
    return gather(jr.key(0), space, prior, region, initial)


def test_a_prior_gives_the_evidence():
    """A normal mean with a normal prior; five standard errors."""
    data = np.array([1.3, 0.4, 2.2])

    def log_likelihood(x):
        return jnp.sum(norm.logpdf(data, x, 0.5))

    prior = fd.Normal(jnp.array(0.5), jnp.array(3.0))
    result = ax.sample(log_likelihood, prior=prior, seed=0, num_replicates=8)
    covariance = 0.25 * np.eye(3) + 9.0
    exact = stats.multivariate_normal.logpdf(data, np.full(3, 0.5), covariance)
    error = result.log_normalizer - exact
    assert abs(error) < 5 * result.log_normalizer_stderr < 0.02
    assert "prior" in result.choices["starts tried"]
    assert "nowhere else" in result.summary()


def test_a_prior_by_name_in_its_own_space():
    """E exp(-2 tau) for a log-normal tau, by quadrature; five standard errors."""
    prior = {
        "tau": fd.LogNormal(jnp.array(0.3), jnp.array(0.7)),
        "mu": fd.Normal(jnp.zeros(2), jnp.ones(2)),
    }
    result = ax.sample(
        lambda p: -2 * p["tau"] + 0 * jnp.sum(p["mu"]),
        prior=prior,
        support={"tau": "positive"},
        seed=0,
        num_replicates=8,
    )
    weight = stats.lognorm(0.7, scale=np.exp(0.3)).pdf
    exact, _ = integrate.quad(lambda t: np.exp(-2 * t) * weight(t), 0, np.inf)
    error = result.log_normalizer - np.log(exact)
    assert abs(error) < 5 * result.log_normalizer_stderr < 0.02
    assert result.x["mu"].shape[1:] == (2,)


def test_the_prior_as_a_start_is_the_prior():
    """Draws follow the density, which is normalised: an exact identity of moments."""
    space = Space({"a": (), "b": (2,)}, {"a": "positive"})
    prior = {
        "a": fd.LogNormal(jnp.array(0.5), jnp.array(0.4)),
        "b": fd.Normal(jnp.array([3.0, -1.0]), jnp.array([2.0, 0.1])),
    }
    start = _known(space, prior).start.start
    z = start.base_dist.sample(jr.key(1), (4000,))
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.1)
    normal = jax.vmap(lambda z: jnp.sum(norm.logpdf(z)))(z)
    ratio = jnp.exp(normal - jax.vmap(start.base_dist.log_prob)(z))
    assert abs(ratio.mean() - 1) < 5 * ratio.std() / np.sqrt(4000)


def test_a_pair_of_functions_is_a_prior():
    prior = as_prior(
        (lambda key: jr.normal(key, (2,)), lambda x: jnp.sum(norm.logpdf(x)))
    )
    assert prior.shapes() == (2,)
    assert prior.sample(jr.key(0)).shape == (2,)
    named = as_prior((lambda key: {"a": jr.normal(key)}, lambda p: norm.logpdf(p["a"])))
    assert named.shapes() == {"a": ()}
    np.testing.assert_allclose(named.log_prob({"a": 0.0}), norm.logpdf(0.0))


def test_numpyro_says_where_its_distributions_live():
    dist = pytest.importorskip("numpyro.distributions")
    prior = as_prior(
        {
            "rate": dist.Gamma(2.0, 1.0),
            "share": dist.Beta(2.0, 3.0),
            "weights": dist.Dirichlet(jnp.ones(3)),
            "place": dist.Normal(jnp.zeros(2), 1.0),
            "box": dist.Uniform(-1.0, 4.0),
        }
    )
    supports = prior.supports()
    assert supports["rate"] == "positive"
    assert supports["share"] == "unit"
    assert supports["weights"] == "simplex"
    assert supports["box"] == (-1.0, 4.0)
    assert "place" not in supports
    space = Space(prior.shapes(), supports)
    value = prior.sample(jr.key(0))
    back, _ = space.constrain(space.unconstrain(value))
    for name, each in value.items():
        np.testing.assert_allclose(back[name], each, rtol=1e-4)


def test_points_of_a_region_lie_in_it():
    space = Space({"a": (), "b": (2,)}, {"a": (0, 10)})
    region = {"a": (2.0, 4.0), "b": np.array([1.0, 5.0])}
    known = _known(space, region=region)
    values = space.values(jnp.asarray(known.places.draw(jr.key(0), 500).points))
    assert values["a"].min() > 1.99
    assert values["a"].max() < 4.01
    assert np.all(np.abs(values["b"]) < [1.001, 5.001])
    assert np.abs(values["b"]).max() > 4.5


def test_a_far_mode_in_a_region_or_given_is_found():
    """Too narrow for its distance to be met by chance."""

    def log_density(x):
        wide = jnp.sum(norm.logpdf(x, 0.0, 1.0)) + np.log(0.3)
        narrow = jnp.sum(norm.logpdf(x, 9.0, 0.05)) + np.log(0.7)
        return jnp.logaddexp(wide, narrow)

    result = ax.sample(
        log_density, 8, initial=np.full(8, 8.9), seed=0, num_replicates=8
    )
    assert abs(result.log_normalizer) < max(5 * result.log_normalizer_stderr, 0.02)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prior": 3}, "prior must be a distribution"),
        ({"prior": {}}, "empty"),
        ({"shape": 2, "region": (3.0, 1.0)}, "empty within its support"),
        ({"shape": 2, "region": "wide"}, "region of the density must be"),
        ({"shape": 2, "region": (0.0, np.inf)}, "finite bounds"),
        ({"shape": {"a": ()}, "region": 3.0}, "dict of all names"),
        ({"shape": {"a": (), "b": ()}, "region": {"a": 3.0}}, "where b lies"),
        ({"shape": 2, "initial": np.zeros(3)}, "initial points"),
        ({"shape": 2, "initial": np.array([0.0, np.nan])}, "finite"),
        ({"shape": 2, "dtype": "float16"}, "dtype"),
    ],
)
def test_wrong_knowledge_is_refused(arguments, message, untyped):
    def log_density(x):
        return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(x))

    with pytest.raises(InvalidInputError, match=message):
        ax.sample(log_density, **arguments)
