"""The contract that every trainer meets, from one dictionary."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import gaussian_transport

import annealax as ax
from annealax.flows.base import partition, select

BETAS = [0.0, 0.4, 1.0]
MEAN, SCALE = np.array([1.5, -1.0]), np.array([0.6, 1.6])
LOG_NORMALIZER = 0.8
# One optimiser, one structure of problem: the tests below share compiled programs.
OPTIMIZER = optax.sgd(0.1)

# Name, how to build it, and whether one step is a whole fit.
TRAINERS = {
    "craft": (lambda s: ax.CRAFT(s, OPTIMIZER), False),
    "aft": (lambda s: ax.AFT(s, OPTIMIZER, num_iters=150), True),
    "aft-simple": (
        lambda s: ax.AFT(
            s, OPTIMIZER, num_iters=150, early_stopping=False, gradient="path"
        ),
        True,
    ),
    "snf": (lambda s: ax.SNF(s, OPTIMIZER), False),
    "snf-score": (lambda s: ax.SNF(s, OPTIMIZER, score_term=True), False),
    "vi": (lambda s: ax.VI(s, OPTIMIZER, "path"), False),
}
EXACT_AT_THE_OPTIMUM = {"aft-simple", "vi"}  # path gradients have no noise there


def sampler(mean, scale):
    target = ax.targets.Normal(
        jnp.asarray(mean), jnp.asarray(scale) ** 2, log_normalizer=LOG_NORMALIZER
    )
    path = ax.GeometricPath((2,), target, BETAS)
    return ax.Sampler(path, ax.kernels.HMC(0.4, 2), num_particles=1000)


@eqx.filter_jit
def train(trainer, key, state, num_steps):
    arrays, static = eqx.partition(state, eqx.is_array)

    def body(i, carry):
        state = eqx.combine(carry[0], static)
        state, info = trainer.step(jr.fold_in(key, i), state)
        return eqx.filter(state, eqx.is_array), info

    _, info = eqx.filter_eval_shape(trainer.step, key, state)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info)
    arrays, info = jax.lax.fori_loop(0, num_steps, body, (arrays, empty))
    return eqx.combine(arrays, static), info


@pytest.fixture(scope="module", params=TRAINERS)
def trained(request):
    """A Gaussian path fitted, and one whose target is the initial distribution."""
    build, one_step = TRAINERS[request.param]
    num_steps = jnp.asarray(1 if one_step else 150)
    outcomes = []
    for mean, scale in ((MEAN, SCALE), (np.zeros(2), np.ones(2))):
        trainer = build(sampler(mean, scale))
        state = trainer.init(jr.key(0), ax.flows.diagonal_affine(None, 2))
        outcomes.append((trainer, *train(trainer, jr.key(1), state, num_steps)))
    return request.param, *outcomes


def test_fits_a_gaussian_path_and_deploys(trained):
    name, (trainer, state, info), _ = trained
    result = trainer.sampler.run(jr.key(2), state.flows)
    assert float(result.log_normalizer) == pytest.approx(LOG_NORMALIZER, abs=0.03)
    assert float(result.ess) > 0.98 * 1000
    assert float(info.loss) == pytest.approx(-LOG_NORMALIZER, abs=0.05)
    assert float(info.log_normalizer) == pytest.approx(LOG_NORMALIZER, abs=0.05)
    assert int(info.num_skipped) == 0
    assert np.all(info.steps.num_evaluations >= 1000)
    if name.startswith("snf"):
        return  # only the whole is determined: flows may share the work otherwise
    exact = gaussian_transport(MEAN, SCALE, trainer.sampler.path.betas)
    x = jr.normal(jr.key(3), (20, 2))
    for k in range(trainer.sampler.path.num_transitions):
        got = jax.vmap(select(state.flows, k).transform)(x)
        expected = jax.vmap(select(exact, k).transform)(x)
        assert np.allclose(got, expected, atol=0.25)


def test_keeps_the_identity_if_there_is_nothing_to_do(trained):
    """Gradient noise leaves SGD within about 0.01 of the optimum, and five times that
    is allowed; a wrong term in a loss would move the flow by a tenth in a few steps."""
    name, _, (trainer, state, info) = trained
    x = jnp.asarray([[0.5, -1.0], [-1.5, 0.2]])
    tolerance = 1e-5 if name in EXACT_AT_THE_OPTIMUM else 0.08
    for k in range(trainer.sampler.path.num_transitions):
        y = jax.vmap(select(state.flows, k).transform)(x)
        assert np.allclose(y, x, atol=tolerance)
    assert float(info.log_normalizer) == pytest.approx(LOG_NORMALIZER, abs=0.01)


def test_vi_takes_a_path_too():
    path = sampler(MEAN, SCALE).path
    trainer = ax.VI(path, OPTIMIZER, num_particles=50)
    assert trainer.sampler.num_particles == 50
    assert trainer.sampler.path.num_transitions == 1
    assert isinstance(trainer.sampler.kernel, ax.kernels.NoMove)


def test_vi_estimators_share_their_mean():
    """Plain and path gradients of the reverse KL, at a flow that is not the best;
    |z| < 4.5 for four parameters: false alarm 3e-5."""
    flow = ax.flows.diagonal_affine(None, 2)
    gradients = {}
    for estimator in ("plain", "path"):
        trainer = ax.VI(
            sampler(MEAN, SCALE), optax.sgd(1.0), estimator, num_particles=200
        )
        state = trainer.init(jr.key(0), flow)
        before = jax.tree.leaves(partition(state.flows)[0])

        def gradient(key, trainer=trainer, state=state, before=before):
            after, _ = partition(trainer.step(key, state)[0].flows)
            pairs = zip(before, jax.tree.leaves(after), strict=True)
            return jnp.concatenate([(old - new).ravel() for old, new in pairs])

        values = jax.jit(jax.vmap(gradient))(jr.split(jr.key(4), 300))
        gradients[estimator] = np.asarray(values, np.float64)
    difference = gradients["plain"] - gradients["path"]
    z = difference.mean(axis=0) / (difference.std(axis=0) / np.sqrt(300))
    assert np.abs(z).max() < 4.5
    assert np.abs(gradients["path"].mean(axis=0)).min() > 0.1
