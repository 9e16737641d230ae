"""Models of PyMC against PyMC's own density, and evidences in closed form."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import annealax as ax
from annealax._work.fingerprint import fingerprint

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*BLAS.*:UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

_RNG = np.random.default_rng(6)
X = _RNG.normal(size=(10, 3))
Y = X @ np.array([1.0, 0.0, -0.5]) + 0.4 * _RNG.normal(size=10)
GROUP = np.repeat(np.arange(2), 5)


def regression():
    with pm.Model(coords={"feature": ["a", "b", "c"]}) as model:
        sigma = pm.HalfNormal("sigma", 1.0)
        slope = pm.Normal("slope", 0, 1, dims="feature")
        mean = pm.Deterministic("mean", pm.math.dot(X, slope))
        pm.Normal("y", mean, sigma, observed=Y)
    return model


def horseshoe(*, centred=False):
    with pm.Model(coords={"feature": ["a", "b", "c"]}) as model:
        tau = pm.HalfCauchy("tau", 1.0)
        local = pm.HalfCauchy("local", 1.0, dims="feature")
        if centred:
            slope = pm.Normal("b", 0, tau * local, dims="feature")
        else:
            raw = pm.Normal("raw", 0, 1, dims="feature")
            slope = pm.Deterministic("b", tau * local * raw, dims="feature")
        pm.Normal("y", pm.math.dot(X, slope), 0.5, observed=Y)
    return model


def shares():
    with pm.Model() as model:
        share = pm.Dirichlet("share", np.array([1.0, 2.0, 0.7]))
        mixed = pm.Beta("mixed", 2.0, 3.0)
        probs = mixed * share + (1 - mixed) / 3
        pm.Multinomial("counts", 12, probs, observed=[3, 7, 2])
    return model


def bounds():
    with pm.Model() as model:
        width = pm.Gamma("width", 3.0, 2.0)
        inside = pm.Uniform("inside", -width, 2 * width)
        cut = pm.TruncatedNormal("cut", 0.0, 1.0, lower=-0.5, upper=2.0)
        above = pm.Pareto("above", 3.0, 0.5)
        pm.Normal("y", inside + cut + above, 1.0, observed=Y)
    return model


def correlated():
    with pm.Model() as model:
        spread = pm.Exponential.dist(1.0)
        factor, _, _ = pm.LKJCholeskyCov("factor", n=3, eta=2.0, sd_dist=spread)
        pm.MvNormal("y", np.zeros(3), chol=factor, observed=X)
    return model


def zero_sum():
    with pm.Model() as model:
        effect = pm.ZeroSumNormal("effect", 1.0, shape=3)
        level = pm.StudentT("level", nu=4, mu=0.0, sigma=1.0)
        pm.Potential("penalty", -0.5 * level**2)
        pm.Normal("y", level + pm.math.dot(X, effect), 1.0, observed=Y)
    return model


def ordered():
    rising = pm.distributions.transforms.ordered
    with pm.Model() as model:
        cut = pm.Normal("cut", 0, 1, shape=2, transform=rising, initval=[-1.0, 1.0])
        pm.OrderedLogistic("y", X[:, 0], cut, observed=(Y > 0) + (Y > 1) * 1)
    return model


def mixture():
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(2))
        centre = pm.Normal("centre", [-1.0, 1.0], 1.0)
        pm.NormalMixture("y", weight, centre, 0.5, observed=Y)
    return model


def hierarchy():
    with pm.Model() as model:
        data = pm.Data("data", Y)
        top = pm.Normal("top", 0, 1)
        spread = pm.LogNormal("spread", 0, 0.5)
        level = pm.Normal("level", top, spread, shape=2)
        pm.Normal("y", level[GROUP], 0.5, observed=data)
    return model


def random_walk():
    with pm.Model() as model:
        noise = pm.InverseGamma("noise", 3.0, 1.0)
        start = pm.Normal.dist(0, 1)
        walk = pm.GaussianRandomWalk("walk", 0.0, noise, init_dist=start, steps=9)
        pm.Normal("y", walk, 0.3, observed=Y)
    return model


def flat():
    with pm.Model() as model:
        centre = pm.Flat("centre")
        scale = pm.HalfFlat("scale")
        pm.Normal("y", centre, scale, observed=Y)
    return model


MODELS = [regression, horseshoe, shares, bounds, correlated, zero_sum, ordered]
MODELS += [mixture, hierarchy, random_walk, flat]
NOT_DRAWN = {ordered: "cut has a transform of yours", flat: "centre has the improper"}


@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("make", MODELS)
def test_density_and_gradient_are_those_of_pymc(make, dtype):
    theirs = make()
    with jax.enable_x64(dtype == "float64"):
        model = ax.from_pymc(theirs)
        assert (model.prior is None) == (make in NOT_DRAWN)
        assert model.why_no_prior.startswith(NOT_DRAWN.get(make, ""))
        rng = np.random.default_rng(1)
        start = theirs.initial_point()
        free = {
            name: np.asarray(value + 0.3 * rng.normal(size=np.shape(value)))
            for name, value in start.items()
        }
        # PyMC's unconstrained numbers are ours, in the same order.
        vector = np.concatenate([value.ravel() for value in free.values()])
        vector = jnp.asarray(vector, jnp.result_type(float))
        value, slope = jax.jit(jax.value_and_grad(model.free()))(vector)
    total = theirs.compile_fn(
        [theirs.logp(), theirs.dlogp()], mode="FAST_COMPILE", point_fn=True
    )
    right, right_slope = total(free)
    rtol = 2e-4 if dtype == "float32" else 1e-7
    assert np.asarray(value).dtype == dtype
    np.testing.assert_allclose(value, right, rtol=rtol)
    scale = np.abs(right_slope).max()
    np.testing.assert_allclose(slope, right_slope, atol=rtol * scale)


def test_a_circle_is_a_circle():
    with pm.Model() as theirs:
        pm.VonMises("angle", 2.5, 1.5)
    model = ax.from_pymc(theirs)
    angle = jnp.linspace(-3.1, 3.1, 7)
    found = jax.vmap(lambda a: model.log_prior({"angle": a}))(angle)
    np.testing.assert_allclose(found, stats.vonmises.logpdf(angle, 1.5, 2.5), rtol=1e-5)
    assert model.space.size == 2


def _evidence(model, count=20_000):
    @jax.jit
    def log_likelihoods(keys):
        return jax.vmap(lambda k: model.log_likelihood(model.prior.sample(k)))(keys)

    values = np.asarray(log_likelihoods(jr.split(jr.key(0), count)), np.float64)
    top = values.max()
    shares = np.exp(values - top)
    error = shares.std() / shares.mean() / np.sqrt(count)
    return top + np.log(shares.mean()), error


def test_evidence_of_a_conjugate_model():
    with pm.Model() as theirs:
        centre = pm.Normal("centre", 1.0, 2.0)
        share = pm.Beta("share", 2.0, 3.0)
        pm.Normal("y", centre, 1.0, observed=Y[:5])
        pm.Binomial("n", 10, share, observed=4)
    right = stats.multivariate_normal.logpdf(Y[:5], np.ones(5), np.eye(5) + 4.0)
    right += stats.betabinom.logpmf(4, 10, 2, 3)
    value, error = _evidence(ax.from_pymc(theirs))
    assert abs(value - right) < 4 * error < 0.1


def test_a_prior_that_jax_cannot_draw_is_drawn_by_pymc():
    model = ax.from_pymc(correlated())
    draws = jax.vmap(model.prior.sample)(jr.split(jr.key(0), 200))["factor"]
    # Of a packed factor the squared rows are variances of the exponential spread.
    rows = [draws[:, :1], draws[:, 1:3], draws[:, 3:]]
    spread = np.stack([np.sqrt((row**2).sum(1)) for row in rows])
    assert spread.mean() == pytest.approx(1.0, abs=4 / np.sqrt(600))
    again = jax.vmap(model.prior.sample)(jr.split(jr.key(0), 200))["factor"]
    np.testing.assert_array_equal(draws, again)


def test_names_are_those_of_the_model():
    before = jnp.result_type(float)
    model = ax.from_pymc(horseshoe())
    assert jnp.result_type(float) == before
    point = model.prior.sample(jr.key(1))
    assert set(point) == {"tau", "local", "raw"}
    found = model.transform(point)
    np.testing.assert_allclose(
        found["b"], point["tau"] * point["local"] * point["raw"], rtol=1e-5
    )
    assert model.dims["b"] == ("feature",)
    assert list(model.coords["feature"]) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.observed["y"], Y)
    pointwise = model.pointwise_log_likelihood(point)["y"]
    assert pointwise.shape == (10,)
    np.testing.assert_allclose(pointwise.sum(), model.log_likelihood(point), rtol=1e-5)
    draws = jax.vmap(lambda key: model.predict(key, point)["y"])(
        jr.split(jr.key(0), 500)
    )
    np.testing.assert_allclose(draws.mean(0), X @ found["b"], atol=0.1)
    np.testing.assert_allclose(draws.std(0), 0.5, atol=0.07)


def test_what_cannot_be_sampled_is_said():
    with pm.Model() as discrete:
        pm.Poisson("count", 3.0)
    with pm.Model() as empty:
        pass
    for model, words in (
        (discrete, "'count'.*are discrete"),
        (empty, "no free variable"),
        (lambda: 0, "needs a pymc.Model"),
    ):
        with pytest.raises(ax.InvalidInputError, match=words):
            ax.from_pymc(model)


def test_checkpoints_tell_models_and_data_apart():
    def prints(y):
        with pm.Model() as theirs:
            centre = pm.Normal("centre")
            pm.Normal("y", centre, 1.0, observed=y)
        return fingerprint(ax.from_pymc(theirs))

    assert prints(Y) == prints(Y)
    assert prints(Y) != prints(Y + 1)
    assert prints(Y) != prints(Y[:3])


def test_graphs_first_needed_in_a_trace_can_be_used_outside():
    model = ax.from_pymc(hierarchy())
    point = model.prior.sample(jr.key(0))
    for name in ("log_likelihood", "pointwise_log_likelihood", "transform"):
        function = getattr(model, name)
        inside = jax.tree.leaves(jax.jit(lambda p, f=function: f(p))(point))
        outside = jax.tree.leaves(function(point))
        for one, other in zip(inside, outside, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_devices_stay_those_of_the_process():
    """PyMC's own use of JAX makes a hundred of a processor when it is imported."""
    script = """
import os
import pymc as pm, jax, annealax as ax
with pm.Model() as model:
    pm.Normal("y", pm.Normal("x"), observed=1.0)
free = ax.from_pymc(model).free()
print(jax.local_device_count(), "device_count" in os.environ.get("XLA_FLAGS", ""))
"""
    flags = {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    found = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | flags, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.split() == ["1", "False"]
