"""Posteriors against NumPyro models, exact marginals, quadrature and differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import pytest
from numpyro import distributions as dist
from numpyro.infer import Predictive
from numpyro.infer.util import potential_energy
from scipy import stats
from scipy.special import expit, gammaln, logsumexp
from tests_problems import shipped_columns

from annealax.targets import (
    BrownianMotion,
    EightSchools,
    LogisticRegression,
    Seeds,
)

FEATURES = np.random.default_rng(0).normal(1.0, 2.0, (15, 3))
LABELS = np.random.default_rng(1).integers(0, 2, 15)
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def brownian_data():
    return shipped_columns("brownian_observations.csv", "observed_loc")[0]


# The models, and the split of a configuration into NumPyro's unconstrained sites ------


def seeds_model():
    r, n, x1, x2 = shipped_columns("seeds.csv", "r", "n", "x1", "x2")
    a0, a1, a2, a12 = (
        numpyro.sample(name, dist.Normal(0, 10)) for name in ("a0", "a1", "a2", "a12")
    )
    tau = numpyro.sample("tau", dist.Gamma(0.01, 0.01))
    with numpyro.plate("plates", 21):
        b = numpyro.sample("b", dist.Normal(0, 1 / jnp.sqrt(tau)))
        logits = a0 + a1 * x1 + a2 * x2 + a12 * x1 * x2 + b
        germinated = dist.Binomial(total_count=n, logits=logits)
        numpyro.sample("r", germinated, obs=jnp.asarray(r))


def brownian_model():
    innovation = numpyro.sample("innovation", dist.LogNormal(0, 2))
    noise = numpyro.sample("noise", dist.LogNormal(0, 2))
    position = 0.0
    for t, observed in enumerate(brownian_data()):
        position = numpyro.sample(f"x{t}", dist.Normal(position, innovation))
        if np.isfinite(observed):
            numpyro.sample(f"y{t}", dist.Normal(position, noise), obs=observed)


def eight_schools_model(centered):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", 8):
        if centered:
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
        else:
            theta = mu + tau * numpyro.sample("eta", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(theta, ERRORS), obs=jnp.asarray(EFFECTS))


def logistic_model(prior):
    intercept = numpyro.sample("intercept", prior)
    with numpyro.plate("features", 3):
        coefficients = numpyro.sample("coefficients", prior)
    logits = intercept + FEATURES @ coefficients
    numpyro.sample("y", dist.Bernoulli(logits=logits), obs=LABELS)


def eight_schools_sites(x, name):
    return {"mu": x[0], "tau": x[1], name: x[2:]}


def logistic_sites(x):
    return {"intercept": x[0], "coefficients": x[1:]}


CASES = {
    "seeds": (
        Seeds,
        seeds_model,
        lambda x: {
            **dict(zip(("a0", "a1", "a2", "a12", "tau"), x[:5], strict=True)),
            "b": x[5:],
        },
    ),
    "brownian": (
        BrownianMotion,
        brownian_model,
        lambda x: {
            "innovation": x[0],
            "noise": x[1],
            **{f"x{t}": x[2 + t] for t in range(30)},
        },
    ),
    "eight_schools": (
        EightSchools,
        lambda: eight_schools_model(False),
        lambda x: eight_schools_sites(x, "eta"),
    ),
    "eight_schools_centered": (
        lambda: EightSchools(centered=True),
        lambda: eight_schools_model(True),
        lambda x: eight_schools_sites(x, "theta"),
    ),
    "logistic_normal": (
        lambda: LogisticRegression(FEATURES, LABELS, prior_scale=2),
        lambda: logistic_model(dist.Normal(0.0, 2.0)),
        logistic_sites,
    ),
    "logistic_laplace": (
        lambda: LogisticRegression(FEATURES, LABELS, prior="laplace", prior_scale=0.5),
        lambda: logistic_model(dist.Laplace(0.0, 0.5)),
        logistic_sites,
    ),
    "logistic_student_t": (
        lambda: LogisticRegression(FEATURES, LABELS, prior="student_t"),
        lambda: logistic_model(dist.StudentT(4.0, 0.0, 1.0)),
        logistic_sites,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_density_gradient_and_observables(name):
    """NumPyro's value, with its transforms and Jacobians, in both precisions."""
    build, model, sites = CASES[name]

    def reference(x):
        return -potential_energy(model, (), {}, sites(x))

    shape = build().shape
    points = np.random.default_rng(2).normal(size=(6, *shape)).astype(np.float32)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        exact = np.asarray(jax.jit(jax.vmap(reference))(points.astype(float)))
    values = eqx.filter_jit(eqx.filter_vmap(build()))(points)
    np.testing.assert_allclose(values, exact, rtol=3e-6)
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        target = build()
        gradient = jax.grad(target)

        @jax.jit
        def evaluate(x):
            steps = 1e-5 * jnp.eye(x.size)
            up, down = x + steps, x - steps
            first = (jax.vmap(target)(up) - jax.vmap(target)(down)) / 2e-5
            second = (jax.vmap(gradient)(up) - jax.vmap(gradient)(down)) / 2e-5
            return first, second, gradient(x), jax.hessian(target)(x)

        x = jnp.asarray(points.astype(float))
        doubles = jax.jit(lambda x: jax.vmap(target)(x))(x)
        assert doubles.dtype == jnp.float64
        np.testing.assert_allclose(doubles, exact, rtol=1e-11)
        first, second, slope, hessian = evaluate(x[0])
        tolerance = {"rtol": 1e-6, "atol": 1e-5}
        np.testing.assert_allclose(slope, first, **tolerance)
        np.testing.assert_allclose(hessian, second, **tolerance)
        parameters = target.constrain(x[0])
        assert set(target.observables) == {
            name for name, value in parameters.items() if value.shape == ()
        }
        for observable, function in target.observables.items():
            assert function(x[0]) == parameters[observable]


@pytest.mark.parametrize("name", CASES)
def test_draws_from_the_prior_are_those_of_numpyro(name):
    """Every coordinate, and the sizes of neighbours together, by Kolmogorov-Smirnov."""
    build, model, sites = CASES[name]
    ours = jax.vmap(build().draw_prior)(jr.split(jr.key(0), 4000))
    drawn = Predictive(model, num_samples=4000)(jr.key(1))
    theirs = []
    for site in sites(ours[0]):
        values = np.asarray(drawn[site], np.float64)
        if site in ("tau", "innovation", "noise"):
            values = np.log(np.maximum(values, 1e-30))
        theirs.append(values.reshape(4000, -1))
    # The gamma distribution of Seeds goes beyond what a float can hold.
    ours, theirs = (
        np.clip(np.nan_to_num(np.asarray(each, np.float64)), -60, 60)
        for each in (ours, np.concatenate(theirs, axis=1))
    )
    for a, b in ((ours, theirs), (pairs(ours), pairs(theirs))):
        for mine, other in zip(a.T, b.T, strict=True):
            assert stats.ks_2samp(mine, other).pvalue > 1e-5


def pairs(x):
    return x[:, 1:] - x[:, :-1]


def test_constrained_parameters():
    x = jr.normal(jr.key(0), (32,))
    brownian = BrownianMotion().constrain(x)
    assert list(brownian) == ["innovation_scale", "observation_scale", "path"]
    np.testing.assert_allclose(brownian["observation_scale"], np.exp(x[1]), rtol=1e-6)
    np.testing.assert_array_equal(brownian["path"], x[2:])
    seeds = Seeds().constrain(x[:26])
    assert list(seeds) == ["a0", "a1", "a2", "a12", "tau", "b"]
    np.testing.assert_allclose(seeds["tau"], np.exp(x[4]), rtol=1e-6)
    for centered in (False, True):
        schools = EightSchools(centered).constrain(x[:10])
        assert list(schools) == ["mu", "tau", "theta"]
        theta = x[2:10] if centered else x[0] + np.exp(x[1]) * x[2:10]
        np.testing.assert_allclose(schools["theta"], theta, rtol=1e-5)
    assert set(EightSchools().observables) == {"mu", "tau"}


@pytest.mark.parametrize("build", [Seeds, BrownianMotion, EightSchools])
@pytest.mark.parametrize("log_scale", [-60.0, -20.0, 20.0, 60.0])
def test_extreme_scales_stay_finite_or_have_zero_density(build, log_scale):
    target = build()
    x = jnp.full(target.shape, 0.1).at[jnp.array([0, 1, 4])].set(log_scale)
    value, gradient = eqx.filter_jit(eqx.filter_value_and_grad(build()))(x)
    assert not jnp.isnan(value)
    assert value < jnp.inf
    if value > -1e30:
        assert jnp.all(jnp.isfinite(gradient))


def test_batch_is_refused():
    for target in (Seeds(), BrownianMotion(), EightSchools()):
        with pytest.raises(ValueError, match="use jax.vmap"):
            eqx.filter_eval_shape(target, jnp.zeros((*target.shape, 3))[0])


# log Z --------------------------------------------------------------------------------


def brownian_marginal(log_innovation, log_noise):
    """Log of p(y, scales) in log coordinates, the path integrated out."""
    observed = brownian_data()
    times = np.flatnonzero(np.isfinite(observed))
    eigenvalues, vectors = np.linalg.eigh(np.minimum.outer(times + 1.0, times + 1.0))
    rotated = vectors.T @ observed[times]
    variances = np.exp(2 * np.asarray(log_innovation))[..., None] * eigenvalues
    variances = variances + np.exp(2 * np.asarray(log_noise))[..., None]
    likelihood = stats.norm.logpdf(rotated, scale=np.sqrt(variances)).sum(-1)
    priors = stats.norm.logpdf([log_innovation, log_noise], scale=2)
    return likelihood + priors[0] + priors[1]


def test_brownian_log_normalizer():
    """The density is marginal(scales) times an exact Gaussian; the rest is a sum."""
    grid = np.linspace(-16, 16, 300)
    values = brownian_marginal(*np.meshgrid(grid, grid, indexing="ij"))
    log_normalizer = logsumexp(values) + 2 * np.log(grid[1] - grid[0])
    assert BrownianMotion().log_normalizer == pytest.approx(log_normalizer, abs=1e-6)
    assert log_normalizer == pytest.approx(1.17, abs=0.05)  # as published

    times = np.arange(1.0, 31.0)
    observed = brownian_data()
    seen = np.isfinite(observed)
    x = np.random.default_rng(0).normal(scale=0.5, size=32)
    innovation, noise = np.exp(2 * x[:2])
    prior_precision = np.linalg.inv(innovation * np.minimum.outer(times, times))
    covariance = np.linalg.inv(prior_precision + np.diag(seen / noise))
    mean = covariance @ np.where(seen, observed, 0.0) / noise
    conditional = stats.multivariate_normal(mean, covariance).logpdf(x[2:])
    with jax.enable_x64(True):
        value = eqx.filter_jit(BrownianMotion())(jnp.asarray(x))
    np.testing.assert_allclose(
        value, brownian_marginal(*x[:2]) + conditional, rtol=1e-9
    )


def test_eight_schools_log_normalizer():
    log_tau = np.linspace(-30, 30, 6001)
    tau = np.exp(log_tau)
    variances = tau[:, None] ** 2 + ERRORS**2
    # The mean of the effects is integrated out: y ~ N(0, diag(variances) + 25).
    precision = np.sum(1 / variances, axis=1)
    pull = np.sum(EFFECTS / variances, axis=1)
    likelihood = stats.norm.logpdf(EFFECTS, scale=np.sqrt(variances)).sum(axis=1)
    likelihood += 0.5 * pull**2 / (precision + 1 / 25)
    likelihood -= 0.5 * np.log1p(25 * precision)
    values = likelihood + stats.halfcauchy.logpdf(tau, scale=5) + log_tau
    log_normalizer = logsumexp(values) + np.log(log_tau[1] - log_tau[0])
    for centered in (False, True):
        target = EightSchools(centered=centered)
        assert target.log_normalizer == pytest.approx(log_normalizer, abs=1e-6)


def test_seeds_log_normalizer():
    """Nested Gauss-Hermite quadrature: over b, then over a, then a sum over log tau."""
    r, n, x1, x2 = shipped_columns("seeds.csv", "r", "n", "x1", "x2")
    design = np.stack([np.ones(21), x1, x2, x1 * x2])
    coefficients = gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)

    def marginal(a, tau):
        fixed, b = a @ design, np.zeros((len(a), 21))
        for _ in range(20):  # Newton steps to the mode of each b
            p = expit(fixed + b)
            step = (r - n * p - tau * b) / (n * p * (1 - p) + tau)
            b = b + np.clip(step, -1, 1)
        nodes, weights = np.polynomial.hermite_e.hermegauss(12)
        scale = 1 / np.sqrt(n * p * (1 - p) + tau)
        b = b[..., None] + scale[..., None] * nodes
        logits = fixed[..., None] + b
        values = r[:, None] * logits - n[:, None] * np.logaddexp(0, logits)
        values += stats.norm.logpdf(b, scale=tau**-0.5) + 0.5 * nodes**2
        values = logsumexp(values + np.log(weights), axis=-1) + np.log(scale)
        return (values + coefficients).sum(-1) + stats.norm.logpdf(a, scale=10).sum(-1)

    def integrated(tau):
        mode = np.array([-0.5, 0.1, 1.3, -0.8])
        stencil = np.concatenate([np.zeros((1, 4)), np.eye(4), -np.eye(4)]) * 1e-2
        pairs = np.array([(i, j) for i in range(4) for j in range(i)])
        corners = 1e-2 * (np.eye(4)[pairs[:, 0]] + np.eye(4)[pairs[:, 1]])
        for _ in range(4):  # Newton steps with finite differences
            values = marginal(mode + np.concatenate([stencil, corners]), tau)
            up, down, both = values[1:5], values[5:9], values[9:]
            hessian = np.diag((up - 2 * values[0] + down) / 1e-4)
            for (i, j), value in zip(pairs, both, strict=True):
                mixed = (value - up[i] - up[j] + values[0]) / 1e-4
                hessian[i, j] = hessian[j, i] = mixed
            mode = mode - np.linalg.solve(hessian, (up - down) / 2e-2)
        factor = np.linalg.cholesky(np.linalg.inv(-hessian))
        nodes, weights = np.polynomial.hermite_e.hermegauss(5)
        points = np.stack(np.meshgrid(*[nodes] * 4), -1).reshape(-1, 4)
        weights = np.stack(np.meshgrid(*[weights] * 4), -1).reshape(-1, 4).prod(-1)
        values = marginal(mode + points @ factor.T, tau) + 0.5 * (points**2).sum(-1)
        return logsumexp(values, b=weights) + np.log(np.diagonal(factor)).sum()

    log_tau = np.arange(-2.0, 9.0, 0.75)
    prior = stats.gamma(0.01, scale=100)
    values = [integrated(np.exp(t)) + prior.logpdf(np.exp(t)) + t for t in log_tau]
    log_normalizer = logsumexp(values) + np.log(0.75)
    assert Seeds().log_normalizer == pytest.approx(log_normalizer, abs=2e-3)
    assert log_normalizer == pytest.approx(-73.41, abs=0.02)  # as published


# Logistic regression on files ---------------------------------------------------------


def test_logistic_regression_from_csv(tmp_path):
    path = tmp_path / "table.csv"
    rows = [f"{a},{y},{b}" for (a, b, _), y in zip(FEATURES, LABELS, strict=True)]
    path.write_text("\n".join(["age,sick,dose", *rows]))
    x = jnp.array([0.3, -0.2, 0.5])
    target = LogisticRegression.from_csv(path, label="sick", prior="laplace")
    same = LogisticRegression(FEATURES[:, :2], LABELS, prior="laplace")
    assert target.names == ("intercept", "age", "dose")
    assert target.constrain(x)["dose"] == x[2]
    assert list(target.observables) == ["intercept", "age", "dose"]
    np.testing.assert_array_equal(target.signed_design, same.signed_design)

    scaled = LogisticRegression.from_csv(path, label="sick", standardize=True)
    signs = np.asarray(scaled.signed_design[0])
    np.testing.assert_array_equal(signs, 2 * LABELS - 1)
    features = np.asarray(scaled.signed_design[1:] * signs)
    np.testing.assert_allclose(features.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(features.std(axis=1), 1, rtol=1e-6)
    bare = LogisticRegression.from_csv(path, label="sick", intercept=False)
    assert (bare.shape, bare.names) == ((2,), ("age", "dose"))
    np.testing.assert_array_equal(bare.signed_design, target.signed_design[1:])


def test_logistic_regression_labels(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x,y\n1,-1\n2,1\n")
    target = LogisticRegression.from_csv(path, label="y")
    np.testing.assert_array_equal(target.signed_design, [[-1, 1], [-1, 2]])
    path.write_text("x,y\n1,good\n2,bad\n")
    target = LogisticRegression.from_csv(path, label="y", positive="good")
    np.testing.assert_array_equal(target.signed_design, [[1, -1], [1, -2]])


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("x,y\n1,g\n2,b\n", {}, "line 2, column 'y'.*'g'.*with positive="),
        ("x,y\n1,g\n2,b\n", {"positive": "h"}, "expected 'h' and one other value"),
        ("x,y\n1,1\n2,2\n", {}, r"must be 0 and 1, or -1 and 1; found \[1.0, 2.0\]"),
        ("x,z\n1,1\n", {}, "no column 'y'"),
        ("y\n1\n", {}, "no column but the label 'y'"),
        ("x,y\na,1\n", {}, "line 2, column 'x'"),
        ("x,y\n1,1\n1,0\n", {"standardize": True}, "'x' is constant"),
        ("intercept,y\n1,1\n", {}, "names of the coefficients must differ"),
        ("x,y\n1,1\n", {"prior_scale": 0.0}, "prior_scale .* above zero"),
    ],
)
def test_errors_of_logistic_regression_from_csv(tmp_path, content, options, message):
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        LogisticRegression.from_csv(path, label="y", **options)


def test_errors_of_logistic_regression(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        LogisticRegression.from_csv(tmp_path / "absent.csv", label="y")
    with pytest.raises(ValueError, match=r"labels must have shape \(15,\)"):
        LogisticRegression(FEATURES, LABELS[:3])
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        LogisticRegression(FEATURES, LABELS + 1)
    with pytest.raises(ValueError, match="features must be finite"):
        LogisticRegression(FEATURES * np.nan, LABELS)
    with pytest.raises(ValueError, match="features must have shape"):
        LogisticRegression(FEATURES[0], LABELS)
    with pytest.raises(ValueError, match="2 names for 3 features"):
        LogisticRegression(FEATURES, LABELS, names=("a", "b"))
