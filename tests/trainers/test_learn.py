"""Learning by evidence: exact gradients, curvature and maximisers where known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import annealax as ax
from annealax.trainers import learn as _learn
from annealax.trainers.learn import EvidenceAscent

# A linear-Gaussian model: x ~ N(0, e^(2b) I), y = c + A x + noise, noise ~ N(0, 0.5^2).
DESIGN = np.array(jr.normal(jr.key(5), (12, 3))) * [1.0, 0.6, 1.5]
SCALE = 0.5
DATA = np.array(
    1.3
    + DESIGN @ (1.7 * np.array([0.9, -1.4, 0.6]))
    + SCALE * np.array(jr.normal(jr.key(6), (12,)))
)


def model(parameters):
    shift, log_scale = parameters["shift"], parameters["log_scale"]

    def log_density(x):
        residual = (jnp.asarray(DATA) - shift - jnp.asarray(DESIGN) @ x) / SCALE
        prior = -0.5 * jnp.sum(x**2) * jnp.exp(-2 * log_scale) - 3 * log_scale
        constant = -7.5 * jnp.log(2 * jnp.pi) - 12 * jnp.log(SCALE)
        return constant + prior - 0.5 * jnp.sum(residual**2)

    return log_density


def evidence(flat):
    """Exact log Z: the data are normal with covariance s^2 A A' + 0.25 I."""
    log_scale, shift = flat  # the order of ravel_pytree
    covariance = jnp.exp(2 * log_scale) * DESIGN @ DESIGN.T + SCALE**2 * jnp.eye(12)
    return jax.scipy.stats.multivariate_normal.logpdf(
        jnp.asarray(DATA), jnp.full(12, shift), covariance
    )


def maximiser():
    flat = jnp.array([0.4, 1.3])
    for _ in range(30):
        flat = flat - jnp.linalg.solve(
            jax.hessian(evidence)(flat), jax.grad(evidence)(flat)
        )
    assert float(jnp.abs(jax.grad(evidence)(flat)).max()) < 1e-3
    return np.asarray(flat)


def craft(num_particles=300, transitions=4):
    start = model({"shift": 0.0, "log_scale": 0.0})
    sampler = ax.Sampler(
        ax.GeometricPath((3,), start, jnp.linspace(0, 1, transitions + 1) ** 2),
        ax.kernels.HMC(0.12, 6),
        num_particles=num_particles,
    )
    return ax.CRAFT(sampler, optax.adam(2e-2))


START = {"shift": jnp.asarray(0.0), "log_scale": jnp.asarray(0.0)}


@pytest.fixture(scope="module")
def learnt():
    return ax.learn(
        jr.key(0),
        craft(),
        model,
        {"shift": 0, "log_scale": 0.0},
        ax.flows.affine_autoregressive(jr.key(1), 3, hidden=(8,)),
        num_steps=250,
    )


def test_learnt_parameters_are_the_maximiser_within_the_error(learnt):
    flat, errors = (ravel_pytree(t)[0] for t in (learnt.parameters, learnt.stderr))
    z = (np.asarray(flat) - maximiser()) / np.asarray(errors)
    assert np.all(np.abs(z) < 4), z  # false alarms: 1e-4, were the errors exact
    assert np.all(np.asarray(errors) < 0.03), errors  # so that the test has a point
    assert np.all(np.abs(maximiser()) > 0.2)  # it had a way to go


def test_evidence_rises_to_its_maximum(learnt):
    best = float(evidence(jnp.asarray(maximiser())))
    assert learnt.log_normalizer[:5].mean() < best - 2
    result = learnt.result
    error = float(result.log_normalizer_stderr) + 1e-3
    assert abs(float(result.log_normalizer) - best) < 5 * error
    assert learnt.log_normalizer.shape == (250,)
    assert learnt.path["shift"].shape == (250,)
    assert learnt.path["shift"][0] == 0


def test_data_stderr_is_the_observed_information(learnt):
    information = -np.asarray(jax.hessian(evidence)(jnp.asarray(maximiser())))
    exact = np.sqrt(np.diagonal(np.linalg.inv(information)))
    flat = ravel_pytree(learnt.data_stderr)[0]
    np.testing.assert_allclose(flat, exact, rtol=0.15)


@pytest.mark.parametrize("rate", [0.02, 0.002])
def test_error_bars_cover_over_seeds(rate):
    """Made-up ascents near a maximum, of an optimiser that arrives and one that does
    not. Each bar is wide enough: 68 % within one error would be exact, 200 seeds of
    two parameters give 0.024 of noise. It must not be too wide for the first, where
    the noise dominates.
    """
    generator = np.random.default_rng(3)
    curvature = np.array([[8.0, 2.0], [2.0, 3.0]])
    noise = np.linalg.cholesky([[4.0, -1.0], [-1.0, 2.0]])
    zs = []
    for _ in range(200):
        phi, path, gradients = np.array([0.3, -0.2]), [], []
        for _ in range(400):
            gradient = -curvature @ phi + noise @ generator.normal(size=2)
            path.append(phi)
            gradients.append(gradient)
            phi = phi + rate * gradient
        late = np.array(path)[200:]
        errors = _learn._standard_errors(curvature, late, np.array(gradients)[200:])
        zs.append(late.mean(axis=0) / errors.average)
    inside = np.mean(np.abs(zs) < 1)
    assert inside > 0.6
    if rate == 0.02:
        assert inside < 0.95


def test_a_saddle_has_no_error_bar():
    path = np.random.default_rng(0).normal(size=(20, 2))
    errors = _learn._standard_errors(np.diag([1.0, -1.0]), path, path)
    assert np.all(np.isinf(errors.average))


def exact_particles(flat, n):
    """Draws of the posterior, equally weighted."""
    log_scale, shift = (float(v) for v in flat)
    precision = DESIGN.T @ DESIGN / SCALE**2 + np.exp(-2 * log_scale) * np.eye(3)
    covariance = np.linalg.inv(precision)
    mean = covariance @ DESIGN.T @ (DATA - shift) / SCALE**2
    x = np.random.default_rng(0).multivariate_normal(mean, covariance, n)
    return ax.Particles.uniform(jnp.asarray(x, jnp.float32), jnp.zeros(n))


def test_hessian_is_that_of_the_evidence():
    flat = jnp.array([0.2, 0.8])
    parameters = {"log_scale": flat[0], "shift": flat[1]}
    got = _learn.hessian(model, parameters, exact_particles(flat, 100_000))
    exact = jax.hessian(evidence)(flat)
    # The covariance of scores has relative error of about sqrt(2 / 1e5).
    np.testing.assert_allclose(got, exact, rtol=0.05, atol=0.3)


def test_gradient_is_that_of_the_evidence():
    flat = jnp.array([0.2, 0.8])
    parameters = {"log_scale": flat[0], "shift": flat[1]}
    particles = exact_particles(flat, 50_000)
    got = jax.grad(_learn.weighted_log_density, argnums=1)(model, parameters, particles)
    exact = jax.grad(evidence)(flat)
    np.testing.assert_allclose(ravel_pytree(got)[0], exact, rtol=0.02, atol=0.05)


def test_dead_particles_do_not_spoil_the_gradient():
    x = jnp.array([[1.0], [-1.0]])
    particles = eqx.tree_at(
        lambda p: (p.x, p.log_weights),
        ax.Particles.uniform(x, jnp.zeros(2)),
        (x, jnp.array([0.0, -jnp.inf])),
    )
    root = lambda p: lambda x: jnp.sqrt(p * x[0])  # noqa: E731  NaN at the second
    gradient = jax.grad(_learn.weighted_log_density, argnums=1)(
        root, jnp.asarray(4.0), particles
    )
    assert float(gradient) == pytest.approx(0.25)


def test_compiles_once(learnt):
    traces = []

    def counting(parameters):
        traces.append(1)
        return model(parameters)

    flow = ax.flows.diagonal_affine(None, 3)
    ax.learn(jr.key(0), craft(20, 2), counting, START, flow, num_steps=2)
    few = len(traces)
    traces.clear()
    ax.learn(
        jr.key(0), craft(20, 2), counting, START, flow, num_steps=12, steps_per_call=2
    )
    assert len(traces) <= few


def test_parameters_move_after_the_pass():
    ascent = EvidenceAscent(craft(50, 2), model, START, optax.sgd(1e-3))
    state = ascent.init(jr.key(0), ax.flows.diagonal_affine(None, 3))
    after, info = eqx.filter_jit(ascent.step)(jr.key(1), state)
    for name, value in START.items():
        assert info.extra.parameters[name] == value
        np.testing.assert_allclose(
            after.optimizer_state.parameters[name],
            value + 1e-3 * info.extra.gradient[name],
            rtol=1e-5,
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": {}}, "no parameters"),
        ({"parameters": {"shift": jnp.nan, "log_scale": 0.0}}, "finite"),
        ({"num_steps": 1}, "at least 2"),
        ({"average": 0.0}, "average"),
        ({"model": lambda p: lambda x: x}, "one number"),
    ],
)
def test_bad_input(changes, words):
    arguments = {
        "trainer": craft(10, 2),
        "model": model,
        "parameters": START,
        "flow": ax.flows.diagonal_affine(None, 3),
        "num_steps": 2,
    } | changes
    with pytest.raises(ax.InvalidInputError, match=words):
        ax.learn(jr.key(0), **arguments)


def test_many_parameters_have_no_curvature():
    many = lambda p: lambda x: -0.5 * jnp.sum((x - p[:3]) ** 2) - jnp.sum(p**2)  # noqa: E731
    got = ax.learn(
        jr.key(0), craft(20, 2), many, jnp.ones(301),
        ax.flows.diagonal_affine(None, 3), num_steps=4,
    )  # fmt: skip
    assert got.data_stderr is None
    assert bool(jnp.all(got.stderr > 0))
