"""What the losses estimate: Proposition 2, and the bound of Section 3.1."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tests_problems import gaussian_transport, perturb

import annealax as ax
from annealax._objectives import evidence_lower_bound
from annealax.flows.base import partition, replicate

BETA = 0.4
SHIFTS, LOG_SCALES = np.array([0.3, -0.2]), np.array([-0.2, 0.15])


def log_target(x, exp=np.exp):
    """Logarithm of a Gamma(2) variable: skewed, so that no error cancels."""
    return 2 * x - exp(x)


def log_normal(x):
    return -0.5 * x * x - 0.5 * np.log(2 * np.pi)


def log_middle(x):
    return (1 - BETA) * log_normal(x) + BETA * log_target(x)


GRID = np.linspace(-8, 8, 2001)


def averaged_particles():
    """Density of the average of the particle measure after the first transition.

    Two particles, by quadrature: N E[W_1 delta(Y_1)] with the weight normalised over
    both. It holds whether or not they are resampled afterwards.
    """
    x = GRID
    y = SHIFTS[0] + np.exp(LOG_SCALES[0]) * x
    log_weight = log_middle(y) + LOG_SCALES[0] - log_normal(x)
    share = 1 / (1 + np.exp(log_weight[None, :] - log_weight[:, None]))
    probability = np.exp(log_normal(x)) * (x[1] - x[0])
    return y, 2 * probability * (share @ probability)


def exact_particles():
    """The true distribution at that temperature."""
    density = np.exp(log_middle(GRID))
    return GRID, density / density.sum()


def exact_gradient(x, measure):
    """Gradient of the KL divergence of the moved measure from the target."""

    def loss(shift, log_scale):
        y = shift + np.exp(log_scale) * x
        return np.sum(measure * (log_middle(x) - log_target(y) - log_scale))

    h, theta = 1e-4, (SHIFTS[1], LOG_SCALES[1])
    return np.array(
        [
            (loss(theta[0] + h, theta[1]) - loss(theta[0] - h, theta[1])) / (2 * h),
            (loss(theta[0], theta[1] + h) - loss(theta[0], theta[1] - h)) / (2 * h),
        ]
    )


@pytest.mark.parametrize("resample", [False, True])
def test_proposition_2(resample):
    """CRAFT's gradient with two particles is that of the KL divergence from their
    average measure. |z| < 4 for two numbers: false alarm 1.3e-4. The gradient at the
    true distribution, which it would be with many particles, is far away."""
    y, measure = averaged_particles()
    assert measure.sum() == pytest.approx(1, abs=1e-6)
    expected = exact_gradient(y, measure)
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), [0.0, BETA, 1.0])
    resampler = ax.ESSResampling(1.0, "multinomial") if resample else ax.NoResampling()
    craft = ax.CRAFT(ax.Sampler(path, None, resampler, num_particles=2), optax.sgd(1.0))
    flow = replicate(ax.flows.diagonal_affine(None, 1), 2)
    params, rest = partition(flow)
    leaves = [
        jnp.asarray(SHIFTS, jnp.float32)[:, None],
        jnp.asarray(LOG_SCALES, jnp.float32)[:, None],
    ]
    params = jax.tree.unflatten(jax.tree.structure(params), leaves)
    state = ax.TrainState(
        eqx.combine(params, rest), jax.vmap(craft.optimizer.init)(params)
    )

    def gradient(key):
        after, _ = partition(craft.step(key, state)[0].flows)
        change = [a - b for a, b in zip(leaves, jax.tree.leaves(after), strict=True)]
        return jnp.concatenate([each[1] for each in change])

    rows = jax.jit(jax.vmap(gradient))(jr.split(jr.key(0), 100_000))
    rows = np.asarray(rows, np.float64)
    error = rows.std(axis=0) / np.sqrt(len(rows))
    assert np.abs((rows.mean(axis=0) - expected) / error).max() < 4
    limit = exact_gradient(*exact_particles())
    assert np.abs((rows.mean(axis=0) - limit) / error).max() > 10


def gaussian_divergence(mean, scale, other_mean, other_scale):
    """KL divergence between diagonal normals."""
    ratio = (scale / other_scale) ** 2
    shift = ((mean - other_mean) / other_scale) ** 2
    return 0.5 * np.sum(ratio + shift - 1 - np.log(ratio))


def test_the_bound_of_section_3():
    """log Z minus the bound is the sum of the divergences, which are known here."""
    mean, scale = np.array([1.5, -1.0]), np.array([0.6, 1.6])
    betas = np.array([0.0, 0.3, 0.7, 1.0])
    target = ax.targets.Normal(mean, scale**2, log_normalizer=0.8)
    path = ax.GeometricPath((2,), target, betas)
    sampler = ax.Sampler(path, ax.kernels.HMC(0.5, 4), num_particles=4000)
    exact = gaussian_transport(mean, scale, betas)
    for size in (0.0, 0.3):
        flows = perturb(jr.key(3), exact, size)
        result = sampler.run(jr.key(4), flows)
        shift, factor = (
            np.asarray(flows.loc),
            np.asarray(eqx.filter_vmap(scales)(flows)),
        )
        # The path stays Gaussian: where it is at each temperature.
        precision = 1 - betas[:, None] + betas[:, None] / scale**2
        centre, width = betas[:, None] * mean / scale**2 / precision, precision**-0.5
        divergence = sum(
            gaussian_divergence(
                shift[k] + factor[k] * centre[k],
                factor[k] * width[k],
                centre[k + 1],
                width[k + 1],
            )
            for k in range(3)
        )
        assert (divergence > 0.2) == (size > 0)
        # 0.06 is about four standard deviations at these numbers of particles.
        bound = float(result.lower_bound)
        assert bound == pytest.approx(0.8 - divergence, abs=0.06 if size else 1e-3)
        assert bound <= 0.8 + 1e-3


def scales(flow):
    """Scale of an affine flow, by its action."""
    return flow.transform(jnp.ones(2)) - flow.transform(jnp.zeros(2))


def test_the_lower_bound_of_a_pass_is_the_mean_log_weight():
    path = ax.GeometricPath((1,), lambda x: log_target(x[0], jnp.exp), 3)
    sampler = ax.Sampler(
        path, ax.kernels.HMC(0.5, 2), ax.NoResampling(), num_particles=100
    )
    result = sampler.run(jr.key(0))
    log_w = result.log_weights + result.log_normalizer + np.log(100)
    bound = float(evidence_lower_bound(result.particles))
    assert bound == pytest.approx(float(jnp.mean(log_w)), abs=1e-5)
    assert bound < float(result.log_normalizer)
