"""CRAFT: what it learns, in which order, and what it costs."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flowjax.bijections import AbstractBijection
from tests_problems import (
    gaussian_transport,
    lopsided_log_density,
    perturb,
    z_score,
)

import annealax as ax
from annealax._objectives import free_energy
from annealax.flows.base import partition, replicate, select

MEAN, SCALE = np.array([1.5, -1.0]), np.array([0.6, 1.6])
BETAS = [0.0, 0.4, 1.0]


def gaussian_sampler(num_particles=1000, log_normalizer=0.8):
    target = ax.targets.Normal(
        jnp.asarray(MEAN),
        jnp.diag(jnp.asarray(SCALE**2)),
        log_normalizer=log_normalizer,
    )
    path = ax.GeometricPath((2,), target, BETAS)
    return ax.Sampler(path, ax.kernels.HMC(0.4, 3), num_particles=num_particles)


@pytest.mark.parametrize("gradient", ["plain", "path"])
def test_learns_the_exact_transport_between_gaussians(gradient):
    sampler = gaussian_sampler()
    craft = ax.CRAFT(sampler, optax.adam(3e-2), gradient=gradient)
    flow = ax.flows.diagonal_affine(None, 2)
    fit = ax.fit(jr.key(0), craft, flow, num_steps=300)
    exact = gaussian_transport(MEAN, SCALE, BETAS)
    x = jr.normal(jr.key(1), (20, 2))
    for k in range(2):
        got = jax.vmap(select(fit.flows, k).transform)(x)
        expected = jax.vmap(select(exact, k).transform)(x)
        assert np.allclose(got, expected, atol=0.1)
    result = sampler.run(jr.key(2), fit.flows)
    assert float(result.log_normalizer) == pytest.approx(0.8, abs=0.02)
    assert float(result.ess) > 0.99 * 1000
    # The loss ends at -log Z, from above.
    assert np.mean(fit.history.loss[-20:]) == pytest.approx(-0.8, abs=0.02)
    assert fit.history.loss[0] > -0.8 + 0.5


def test_the_update_comes_after_the_transport():
    """A training pass gives bit for bit the particles of the untrained sampler."""
    sampler = gaussian_sampler(100)
    flow = perturb(jr.key(5), ax.flows.diagonal_affine(None, 2), 0.2)
    craft = ax.CRAFT(sampler, optax.adam(0.1))
    state = craft.init(jr.key(0), flow)
    for key in jr.split(jr.key(1), 3):
        expected = sampler.run(key, state.flows)
        state, info = eqx.filter_jit(craft.step)(key, state)
        assert float(info.log_normalizer) == pytest.approx(
            float(expected.log_normalizer), abs=1e-6
        )
        assert np.allclose(info.steps.ess, expected.steps.ess, rtol=1e-5)
        assert float(info.loss) == pytest.approx(-float(expected.lower_bound), abs=1e-5)


@pytest.mark.slow
def test_z_along_the_way_is_unbiased():
    """Few particles and a high learning rate: an update before the transport would
    overfit and bias Z. |z| < 4 at four steps: false alarm 2.5e-4."""
    path = ax.GeometricPath((2,), lopsided_log_density, BETAS)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.3, 2), num_particles=16)
    craft = ax.CRAFT(sampler, optax.sgd(0.03))
    flow = ax.flows.diagonal_affine(None, 2)

    def train(key):
        def step(state, key):
            state, info = craft.step(key, eqx.combine(state, static))
            return eqx.filter(state, eqx.is_array), info.log_normalizer

        state = craft.init(key, flow)
        arrays, static = eqx.partition(state, eqx.is_array)
        return jax.lax.scan(step, arrays, jr.split(key, 4))[1]

    log_z = jax.jit(jax.vmap(train))(jr.split(jr.key(3), 8000))
    ratio = np.exp(np.asarray(log_z, np.float64) - np.log(3.0))
    for step in range(4):
        assert abs(z_score(ratio[:, step], 1.0)) < 4
        assert ratio[:, step].std() / np.sqrt(8000) < 0.03


def exact_particles(key, num_particles):
    """Independent draws at the start of the path."""
    x = jr.normal(key, (num_particles, 2))
    return ax.Particles.uniform(x, -0.5 * jnp.sum(x**2, axis=1) - jnp.log(2 * jnp.pi))


def gradients(flow, sampler, estimator, num_batches, batch=50):
    params, rest = partition(flow)
    edge = jax.tree.map(lambda leaf: leaf[0], sampler.path.edges)

    def gradient(key):
        def loss(params):
            flow = eqx.combine(params, rest)
            particles = exact_particles(key, batch)
            return free_energy(flow, sampler, particles, edge, estimator)[0]

        leaves = jax.tree.leaves(jax.grad(loss)(params))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    keys = jr.split(jr.key(8), num_batches)
    return np.asarray(jax.jit(jax.vmap(gradient))(keys), np.float64)


def test_estimators_agree_on_average():
    sampler = gaussian_sampler()
    flow = perturb(
        jr.key(5), ax.flows.coupling(jr.key(0), 2, num_layers=2, hidden=(4,)), 0.2
    )
    plain = gradients(flow, sampler, "plain", 4000)
    path = gradients(flow, sampler, "path", 4000)
    difference = plain - path
    moved = difference.std(axis=0) > 1e-6  # dead units have no gradient at all
    z = difference.mean(axis=0)[moved] / (difference.std(axis=0)[moved] / np.sqrt(4000))
    assert moved.sum() > 10
    assert np.abs(z).max() < 4.5  # about 30 parameters: false alarm 2e-4
    assert not np.allclose(plain.mean(axis=0), 0, atol=0.05)


def test_path_gradient_has_no_noise_at_the_exact_flow():
    sampler = gaussian_sampler()
    exact = select(gaussian_transport(MEAN, SCALE, BETAS), 0)
    assert np.abs(gradients(exact, sampler, "path", 50)).max() < 1e-4
    assert gradients(exact, sampler, "plain", 50).std() > 1e-2


def test_plain_gradient_is_that_of_the_loss():
    """Against finite differences of the loss itself."""
    sampler = gaussian_sampler()
    flow = perturb(jr.key(5), ax.flows.diagonal_affine(None, 2), 0.3)
    particles = exact_particles(jr.key(0), 200)
    edge = jax.tree.map(lambda leaf: leaf[0], sampler.path.edges)
    params, rest = partition(flow)

    def loss(params):
        return free_energy(eqx.combine(params, rest), sampler, particles, edge)[0]

    gradient = jax.grad(loss)(params)
    leaves, structure = jax.tree.flatten(params)
    for i, leaf in enumerate(leaves):
        for j in range(leaf.size):
            step = jnp.zeros(leaf.size).at[j].set(1e-2).reshape(leaf.shape)
            up = [*leaves[:i], leaf + step, *leaves[i + 1 :]]
            down = [*leaves[:i], leaf - step, *leaves[i + 1 :]]
            slope = (
                loss(jax.tree.unflatten(structure, up))
                - loss(jax.tree.unflatten(structure, down))
            ) / 2e-2
            got = jax.tree.leaves(gradient)[i].ravel()[j]
            assert float(got) == pytest.approx(float(slope), rel=0.01, abs=2e-3)


class Counting(AbstractBijection):
    """A scale that counts how often it is traced and marks the program."""

    log_scale: jax.Array
    shape: tuple[int, ...] = eqx.field(static=True, default=(2,))
    cond_shape: None = None
    traces: list = eqx.field(static=True, default_factory=list)

    def transform_and_log_det(self, x, condition=None):
        self.traces.append(1)
        # asinh appears nowhere else: count it in the program.
        marker = 0 * jnp.arcsinh(x)
        return x * jnp.exp(self.log_scale) + marker, jnp.sum(self.log_scale)

    def inverse_and_log_det(self, y, condition=None):
        return y * jnp.exp(-self.log_scale), -jnp.sum(self.log_scale)


class _Identified(list):
    """A list that can be a static field."""

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other


def counting():
    return Counting(jnp.zeros(2), traces=_Identified())


def test_the_flow_is_applied_once_per_temperature():
    craft = ax.CRAFT(gaussian_sampler(20), optax.adam(1e-2))
    state = craft.init(jr.key(0), counting())
    program = str(eqx.filter_make_jaxpr(craft.step)(jr.key(0), state)[0])
    assert program.count("asinh") == 1
    assert "length=2" in program  # inside the scan over the two transitions


def test_one_trace_per_fit_however_many_steps():
    flow = counting()
    craft = ax.CRAFT(gaussian_sampler(20), optax.adam(1e-2))
    fit = ax.fit(jr.key(0), craft, flow, num_steps=7, steps_per_call=3)
    assert len(flow.traces) == 1
    assert fit.history.loss.shape == (7,)


def test_optimizers_do_not_mix_temperatures():
    """A clip by global norm acts on each flow by itself."""
    sampler = gaussian_sampler(200)
    flow = ax.flows.diagonal_affine(None, 2)
    clipped = optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0))
    craft = ax.CRAFT(sampler, clipped)
    state, _ = craft.step(jr.key(0), craft.init(jr.key(0), flow))
    before, _ = partition(replicate(flow, 2))
    after, _ = partition(state.flows)
    moves = [
        np.asarray(a - b).reshape(2, -1)
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(before), strict=True)
    ]
    norms = np.linalg.norm(np.concatenate(moves, axis=1), axis=1)
    assert np.allclose(norms, 1e-3, rtol=1e-3)


def test_learning_rate_schedules_count_passes():
    schedule = optax.piecewise_constant_schedule(0.1, {2: 0.0})
    craft = ax.CRAFT(gaussian_sampler(50), optax.sgd(schedule))
    states = [craft.init(jr.key(0), ax.flows.diagonal_affine(None, 2))]
    for key in jr.split(jr.key(0), 4):
        states.append(eqx.filter_jit(craft.step)(key, states[-1])[0])
    leaves = [np.asarray(s.flows.loc) for s in states]
    changed = [not np.array_equal(a, b) for a, b in itertools.pairwise(leaves)]
    assert changed == [True, True, False, False]


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    class Broken(Counting):
        """Finite value, NaN gradient."""

        def transform_and_log_det(self, x, condition=None):
            poison = jnp.sum(jnp.sqrt(self.log_scale**2))  # derivative 0/0 at zero
            return x + poison, poison

    craft = ax.CRAFT(gaussian_sampler(20), optax.adam(0.1))
    state = craft.init(jr.key(0), Broken(jnp.zeros(2), traces=_Identified()))
    state, info = craft.step(jr.key(0), state)
    assert int(info.num_skipped) == 2
    assert np.array_equal(state.flows.log_scale, np.zeros((2, 2)))


def test_dead_particles_do_not_spoil_the_gradient():
    def half_plane(x):
        return jnp.where(x[0] > 0.2, -0.5 * jnp.sum((x - 1) ** 2), -jnp.inf)

    path = ax.GeometricPath((2,), half_plane, 4)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.2, 3), num_particles=200)
    craft = ax.CRAFT(sampler, optax.adam(1e-2))
    fit = ax.fit(jr.key(0), craft, ax.flows.diagonal_affine(None, 2), num_steps=20)
    assert np.all(fit.history.num_skipped == 0)
    assert np.all(np.isfinite(fit.history.loss))
    assert np.all(np.isfinite(fit.flows.loc))


def test_unknown_gradient_names_the_valid_ones(untyped):
    with pytest.raises(ax.InvalidInputError, match="plain"):
        ax.CRAFT(gaussian_sampler(), optax.adam(1e-3), gradient="reinforce")


def test_a_flow_of_the_wrong_shape(untyped):
    craft = ax.CRAFT(gaussian_sampler(), optax.adam(1e-3))
    with pytest.raises(ax.InvalidInputError, match=r"shape \(3,\)"):
        craft.init(jr.key(0), ax.flows.diagonal_affine(None, 3))
