"""AFT: what early stopping guarantees, and the sample replenishment problem."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import z_score

import annealax as ax
from annealax.flows.base import partition

DIM = 16
LOG_NORMALIZER = 1.0


def skewed(x):
    """Sixteen different log-gamma variables, log Z = 1: no symmetry, not Gaussian."""
    shape = jnp.linspace(1.5, 4.0, DIM)
    log_gamma = jax.scipy.special.gammaln(shape)
    return jnp.sum(shape * x - jnp.exp(x) - log_gamma) + LOG_NORMALIZER


def sampler(num_particles, kernel=None):
    path = ax.GeometricPath((DIM,), skewed, [0.0, 0.5, 1.0])
    kernel = ax.kernels.HMC(0.3, 2) if kernel is None else kernel
    return ax.Sampler(path, kernel, num_particles=num_particles)


def population(sampler, key):
    return sampler.init(key), jax.tree.map(lambda leaf: leaf[0], sampler.path.edges)


def test_early_stopping_never_ends_above_the_start():
    """By the validation loss, for every seed, also with far too large steps; and with
    a handful of particles the last flow is worse than the one that is kept."""
    aft = ax.AFT(
        sampler(8, ax.kernels.NoMove()), optax.adam(0.2), num_iters=40, num_train=6
    )
    params, rest = partition(ax.flows.diagonal_affine(None, DIM))

    def learn(key):
        key_train, key_validation = jr.split(key)
        train, edge = population(aft.training, key_train)
        validation, _ = population(aft.sampler, key_validation)
        stopped = aft.learn(params, rest, train, validation, edge)
        fitted = aft.learn(params, rest, train, train, edge)
        unseen = aft.learn(fitted.params, rest, train, validation, edge).initial_loss
        return stopped, fitted, unseen

    stopped, fitted, unseen = jax.jit(jax.vmap(learn))(jr.split(jr.key(0), 64))
    assert np.all(stopped.loss <= stopped.initial_loss)
    assert np.all(fitted.loss <= fitted.initial_loss)
    # What fits the training particles best is worse than nothing on others.
    assert np.mean(np.asarray(unseen)) > np.mean(np.asarray(stopped.initial_loss))
    assert np.all(fitted.loss < stopped.loss)


def test_flows_that_kill_particles_are_not_chosen():
    """Dead particles are left out of the loss, but must not look like a gain."""

    def half_line(x):
        return jnp.where(x[0] > -3.0, -0.5 * jnp.sum((x - 1) ** 2), -jnp.inf)

    path = ax.GeometricPath((1,), half_line, 1)
    aft = ax.AFT(
        ax.Sampler(path, num_particles=50), optax.sgd(-3.0), num_iters=5
    )  # a step in the wrong direction
    params, rest = partition(ax.flows.diagonal_affine(None, 1))
    train, edge = population(aft.training, jr.key(0))
    learnt = eqx.filter_jit(aft.learn)(params, rest, train, train, edge)
    assert float(learnt.loss) == float(learnt.initial_loss)
    for kept, start in zip(
        jax.tree.leaves(learnt.params), jax.tree.leaves(params), strict=True
    ):
        assert np.array_equal(kept, start)


def test_counts_every_evaluation_and_reports_the_right_population():
    small = sampler(8)
    flow = ax.flows.diagonal_affine(None, DIM)
    optimizer = optax.adam(0.05)
    more = ax.kernels.HMC(0.3, 2, 3)
    counts = {}
    for name, options in {
        "simple": {"early_stopping": False},
        "practical": {"train_kernel": more, "num_train": 5, "num_validation": 7},
    }.items():
        aft = ax.AFT(small, optimizer, num_iters=4, **options)
        _, info = eqx.filter_jit(aft.step)(jr.key(0), aft.init(jr.key(0), flow))
        counts[name] = np.asarray(info.steps.num_evaluations)
        assert np.all(np.asarray(info.steps.ess) <= 8)
    # Four updates, two judgements, then one evaluation to move and two leapfrogs.
    assert np.allclose(counts["simple"], 8 * (4 + 2) + 8 * (1 + 2))
    # Six judgements by the seven; the two training populations take three HMC steps.
    assert np.allclose(counts["practical"], 5 * 4 + 7 * 6 + (5 + 7) * 7 + 8 * 3)


@pytest.fixture(scope="module")
def replenishment():
    """Many runs of each method at the same number of particles: in training 16, in
    practical AFT 8 to train and 8 to validate; 16 to deploy."""
    num_runs, num_particles = 200, 16
    base = sampler(num_particles)
    flow = ax.flows.diagonal_affine(None, DIM)
    adam = optax.adam(0.03)
    half = num_particles // 2
    methods = {
        "simple": (ax.AFT(base, adam, num_iters=150, early_stopping=False), 1),
        "practical": (
            ax.AFT(base, adam, num_iters=150, num_train=half, num_validation=half),
            1,
        ),
        "craft": (ax.CRAFT(base, adam), 150),
    }

    def run(trainer, num_steps, key):
        key_train, key_test = jr.split(key)
        state = trainer.init(key, flow)
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(arrays, key):
            state, info = trainer.step(key, eqx.combine(arrays, static))
            return eqx.filter(state, eqx.is_array), info.log_normalizer

        arrays, log_z = jax.lax.scan(body, arrays, jr.split(key_train, num_steps))
        result = base.run(key_test, eqx.combine(arrays, static).flows)
        return log_z[-1], result.log_normalizer

    keys = jr.split(jr.key(2026), num_runs)
    return {
        name: [
            np.asarray(each, np.float64) - LOG_NORMALIZER
            for each in jax.jit(
                jax.vmap(lambda key, t=trainer, n=steps: run(t, n, key))
            )(keys)
        ]
        for name, (trainer, steps) in methods.items()
    }


def test_sample_replenishment(replenishment):
    """Few particles, and a flow with twice as many parameters.

    If E[Z-hat] = Z then the mean of log Z-hat is below log Z, by Jensen's inequality.
    That of simple AFT is above by many of its errors (false alarm of z > 6: 1e-9): its
    particles no longer know. Practical AFT reports particles that no flow was fitted
    to, and is honest. Its flows need not be better than those of simple AFT when both
    have the same total to train on (measured here: deployed they are worse, having
    seen half as many particles). CRAFT sees new particles in every pass.
    """
    reported = {k: np.sqrt(np.mean(v[0] ** 2)) for k, v in replenishment.items()}
    deployed = {k: np.sqrt(np.mean(v[1] ** 2)) for k, v in replenishment.items()}
    assert z_score(replenishment["simple"][0], 0.0) > 6
    assert np.mean(replenishment["practical"][0]) < 0
    assert np.mean(replenishment["craft"][0]) < 0
    assert reported["simple"] > 1.5 * reported["practical"]
    assert reported["practical"] > 3 * reported["craft"]
    # The flows on particles that none of them has seen.
    assert min(deployed["simple"], deployed["practical"]) > 3 * deployed["craft"]


def test_unknown_gradient_names_the_valid_ones(untyped):
    with pytest.raises(ax.InvalidInputError, match="plain"):
        ax.AFT(sampler(8), optax.adam(1e-3), gradient="reinforce")
