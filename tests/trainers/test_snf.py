"""SNF: Proposition 1 against quadrature, and gradients that stay finite."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import gaussian_transport

import annealax as ax
from annealax.flows.base import partition, replicate

BETA, STEP = 0.5, 1.5
# Shift and log scale of each of the two flows: far from the best.
SUBOPTIMAL = np.array([[0.3, -0.2], [-0.3, 0.25]])


def log_target(x, exp=np.exp):
    """Logarithm of a Gamma(2) variable in one dimension: skewed, log Z = log 3."""
    return 2 * x - exp(x) + np.log(3.0)


def exact_elbo(theta, count=801):
    """The ELBO of two transitions with one leapfrog between them, by quadrature.

    In plain NumPy: the integral over the start x and the momentum p, and the sum over
    both decisions, are done, so this is smooth in the parameters.
    """
    (shift1, log_scale1), (shift2, log_scale2) = theta
    grid = np.linspace(-7, 7, count)
    x, p = grid[:, None], grid[None, :]

    def log_normal(x):
        return -0.5 * x * x - 0.5 * np.log(2 * np.pi)

    def log_middle(x):
        return (1 - BETA) * log_normal(x) + BETA * log_target(x)

    def slope(x):
        return -(1 - BETA) * x + BETA * (2 - np.exp(x))

    def log_second(x):
        y = shift2 + np.exp(log_scale2) * x
        return log_target(y) + log_scale2 - log_middle(x)

    with np.errstate(over="ignore", invalid="ignore"):
        y = shift1 + np.exp(log_scale1) * x
        first = log_middle(y) + log_scale1 - log_normal(x)
        half = p + 0.5 * STEP * slope(y)
        end = y + STEP * half
        momentum = half + 0.5 * STEP * slope(end)
        ratio = log_middle(end) - 0.5 * momentum**2 - log_middle(y) + 0.5 * p**2
        probability = np.exp(np.minimum(np.nan_to_num(ratio, nan=-np.inf), 0))
        moved = np.where(probability > 0, probability * log_second(end), 0)
    stayed = (1 - probability) * log_second(y)
    measure = np.exp(log_normal(x) + log_normal(p)) * (grid[1] - grid[0]) ** 2
    return np.sum(measure * (first + moved + stayed))


def exact_gradient(theta, step=1e-3):
    gradient = np.zeros_like(theta)
    for index in np.ndindex(*theta.shape):
        change = np.zeros_like(theta)
        change[index] = step
        slope = exact_elbo(theta + change) - exact_elbo(theta - change)
        gradient[index] = slope / (2 * step)
    return gradient


def affine_flows(theta):
    flow = replicate(ax.flows.diagonal_affine(None, 1), 2)
    params, rest = partition(flow)
    structure = jax.tree.structure(params)
    leaves = [jnp.asarray(theta[:, :1]), jnp.asarray(theta[:, 1:])]
    return eqx.combine(jax.tree.unflatten(structure, leaves), rest)


def gradients(trainer, flows, num_batches):
    """Gradients of the ELBO, one row per batch, through the trainer's own update."""
    before, _ = partition(flows)
    state = ax.TrainState(flows, jax.vmap(trainer.optimizer.init)(before))

    def one(key):
        after, _ = partition(trainer.step(key, state)[0].flows)
        change = jax.tree.map(lambda new, old: new - old, after, before)
        return jnp.stack([leaf.reshape(2, -1) for leaf in jax.tree.leaves(change)], 1)

    rows = jax.jit(lambda keys: jax.lax.map(one, keys))(
        jr.split(jr.key(7), num_batches)
    )
    return np.asarray(rows, np.float64)


def test_proposition_1():
    """With the score term the gradient is that of the expected ELBO, without it not.

    |z| < 4 for four numbers: false alarm 3e-4."""
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), [0.0, BETA, 1.0])
    sampler = ax.Sampler(path, ax.kernels.HMC(STEP, 1), num_particles=4000)
    exact = exact_gradient(SUBOPTIMAL)
    flows = affine_flows(SUBOPTIMAL.astype(np.float32))
    z = {}
    for score_term in (True, False):
        trainer = ax.SNF(sampler, optax.sgd(1.0), score_term=score_term)
        rows = gradients(trainer, flows, 200)[..., 0]
        error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
        z[score_term] = (rows.mean(axis=0) - exact) / error
    assert np.abs(z[True]).max() < 4
    # Only the decisions between the flows depend on a flow: the first one.
    assert np.abs(z[False][0]).max() > 20
    assert np.abs(z[False][1]).max() < 4


def test_both_terms_vanish_at_the_best_flows():
    """Also part of Proposition 1; |z| < 4.5 for eight numbers: false alarm 5e-5."""
    mean, scale = np.array([1.5, -1.0]), np.array([0.6, 1.6])
    betas = [0.0, 0.4, 1.0]
    target = ax.targets.Normal(mean, scale**2, log_normalizer=0.8)
    path = ax.GeometricPath((2,), target, betas)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.9, 2), num_particles=500)
    exact = gaussian_transport(mean, scale, betas)
    flow = replicate(ax.flows.diagonal_affine(None, 2), 2)
    params, rest = partition(flow)
    factor = eqx.filter_vmap(
        lambda flow: flow.transform(jnp.ones(2)) - flow.transform(jnp.zeros(2))
    )(exact)
    leaves = [exact.loc, jnp.log(factor)]
    flows = eqx.combine(jax.tree.unflatten(jax.tree.structure(params), leaves), rest)
    trainer = ax.SNF(sampler, optax.sgd(1.0), score_term=True)
    with_score = gradients(trainer, flows, 100)
    error = with_score.std(axis=0, ddof=1) / np.sqrt(100)
    assert np.abs(with_score.mean(axis=0) / error).max() < 4.5
    assert error.max() < 0.02
    # log w is constant, so the score term is zero draw by draw, up to rounding.
    without = gradients(ax.SNF(sampler, optax.sgd(1.0)), flows, 3)
    assert np.allclose(without, with_score[:3], atol=1e-3)


class Explosive(eqx.Module):
    """Harmless where particles are; the force on a long step overflows in the next."""

    shape: tuple[int, ...] = eqx.field(static=True, default=(2,))

    def __call__(self, x):
        return jnp.sum(0.3 * x - jnp.cosh(x))


def test_the_problem_below_does_overflow():
    def leap(x, p):
        for _ in range(4):
            x = x + 3.0 * p
            p = p + 3.0 * jax.grad(Explosive())(x)
        return x

    ends = jax.vmap(leap)(*jr.normal(jr.key(0), (2, 100, 2)))
    assert np.mean(~np.isfinite(np.asarray(ends))) > 0.5


@pytest.mark.parametrize("score_term", [False, True])
def test_gradients_stay_finite_when_a_rejected_proposal_overflows(score_term):
    path = ax.GeometricPath((2,), Explosive(), [0.0, 0.5, 1.0])
    kernel = ax.kernels.Composition(
        ax.kernels.HMC(3.0, 4), ax.kernels.RandomWalk(100.0), ax.kernels.HMC(0.2, 2)
    )
    sampler = ax.Sampler(path, kernel, num_particles=200)
    trainer = ax.SNF(sampler, optax.sgd(1e-2), score_term=score_term)
    state = trainer.init(jr.key(0), ax.flows.diagonal_affine(None, 2))
    after, info = eqx.filter_jit(trainer.step)(jr.key(1), state)
    assert float(jnp.mean(info.steps.acceptance_rate)) < 0.8
    assert int(info.num_skipped) == 0
    assert np.isfinite(float(info.loss))
    assert np.all(np.isfinite(after.flows.loc))
    assert not np.array_equal(after.flows.loc, state.flows.loc)


def test_rematerialisation_changes_nothing_but_the_cost():
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), 2)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.5, 2), num_particles=50)
    flow = ax.flows.diagonal_affine(None, 1)
    outcomes = []
    for rematerialise in (True, False):
        trainer = ax.SNF(
            sampler, optax.sgd(0.1), resampling=True, rematerialise=rematerialise
        )
        state = trainer.init(jr.key(0), flow)
        outcomes.append(eqx.filter_jit(trainer.step)(jr.key(1), state))
    (state, info), (other, other_info) = outcomes
    assert np.allclose(state.flows.loc, other.flows.loc, rtol=1e-5)
    # 50 particles, one evaluation to transport and two leapfrogs; forward, backward
    # (twice) and, with rematerialisation, forward again.
    assert np.allclose(info.steps.num_evaluations, 4 * 150)
    assert np.allclose(other_info.steps.num_evaluations, 3 * 150)


def test_it_trains_without_resampling_unless_told():
    """The pass of the trainer is that of the sampler it says it uses."""
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), 2)
    always = ax.ESSResampling(1.0)
    for resampling, resampler in ((False, ax.NoResampling()), (True, always)):
        sampler = ax.Sampler(path, ax.kernels.HMC(0.5, 2), always, num_particles=50)
        trainer = ax.SNF(sampler, optax.sgd(0.1), resampling=resampling)
        state = trainer.init(jr.key(0), ax.flows.diagonal_affine(None, 1))
        _, info = eqx.filter_jit(trainer.step)(jr.key(1), state)
        same = ax.Sampler(path, sampler.kernel, resampler, num_particles=50)
        expected = same.run(jr.key(1), state.flows)
        assert float(info.log_normalizer) == pytest.approx(
            float(expected.log_normalizer), abs=1e-5
        )


def test_options_that_exclude_each_other():
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), 2)
    hmc = ax.Sampler(path, ax.kernels.HMC(0.5, 2))
    with pytest.raises(ax.InvalidInputError, match="choose one"):
        ax.SNF(hmc, optax.sgd(0.1), score_term=True, resampling=True)
    nuts = ax.Sampler(path, ax.kernels.Composition(ax.kernels.NUTS(0.5)))
    with pytest.raises(ax.InvalidInputError, match="HMC"):
        ax.SNF(nuts, optax.sgd(0.1))
