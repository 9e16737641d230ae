"""Settings of kernels: schedules, counts, errors, reports."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import annealax as ax
from annealax.kernels import (
    HMC,
    MALA,
    NUTS,
    Composition,
    EnsembleWalk,
    InterpolatedStepSize,
    NoMove,
    PerTemperature,
    Point,
    RandomWalk,
)
from annealax.kernels.base import accept


def slope(x):
    return -0.5 * jnp.sum(x**2) + 0.2 * x[0]


def test_interpolated_step_size_follows_the_papers_points():
    schedule = InterpolatedStepSize([0.0, 0.25, 0.5, 1.0], [0.3, 0.3, 0.2, 0.1])
    betas = np.array([0.0, 0.1, 0.375, 0.5, 0.75, 1.0])
    assert np.allclose(
        jax.vmap(schedule)(betas), [0.3, 0.3, 0.25, 0.2, 0.15, 0.1], atol=1e-6
    )


def test_one_step_size_per_temperature_reaches_its_temperature():
    sizes = [0.1, 0.4, 0.9]
    path = ax.GeometricPath((2,), slope, [0.0, 0.2, 0.7, 1.0])
    sampler = ax.Sampler(path, HMC(sizes), num_particles=4)
    got = [float(sampler.kernel.step_size(beta)) for beta in path.betas[1:]]
    assert got == pytest.approx(sizes)


def test_per_temperature_reaches_inside_compositions():
    path = ax.GeometricPath((2,), slope, 3)
    kernel = Composition(RandomWalk([0.1, 0.2, 0.3]), MALA(0.1))
    sampler = ax.Sampler(path, kernel, num_particles=4)
    assert float(sampler.kernel.kernels[0].step_size(2 / 3)) == pytest.approx(0.2)


def test_a_ladder_of_another_length_is_an_error():
    path = ax.GeometricPath((2,), slope, 3)
    with pytest.raises(ax.InvalidInputError, match="3 for the transitions.*got 2"):
        ax.Sampler(path, HMC([0.1, 0.2]), num_particles=4)


def test_a_ladder_without_a_sampler_is_an_error():
    with pytest.raises(ax.InvalidInputError, match="Sampler"):
        HMC(PerTemperature(jnp.ones(3)))(jr.key(0), jnp.zeros(2), slope, 1.0)


@pytest.mark.parametrize("step_size", [0.0, -0.1, float("nan"), [0.1, 0.0]])
@pytest.mark.parametrize("kernel", [HMC, MALA, RandomWalk, NUTS])
def test_step_sizes_must_be_positive(kernel, step_size):
    with pytest.raises(ax.InvalidInputError, match="positive"):
        kernel(step_size)


@pytest.mark.parametrize(
    "make",
    [
        lambda: HMC(0.1, num_leapfrog=0),
        lambda: HMC(0.1, num_steps=-1),
        lambda: HMC(0.1, num_steps=1.5),
        lambda: RandomWalk(0.1, num_steps=0),
        lambda: EnsembleWalk(np.eye(2)[:1], 0.1),
        lambda: NUTS(0.1, max_doublings=0),
        lambda: Composition(),
        lambda: Composition(3),
        lambda: InterpolatedStepSize([0.0, 0.0], [0.1, 0.1]),
        lambda: InterpolatedStepSize([0.0, 1.0], [0.1]),
    ],
)
def test_absurd_settings_are_errors(make, untyped):
    with pytest.raises(ax.InvalidInputError):
        make()


def test_evaluations_are_counted():
    def count(kernel):
        return float(kernel(jr.key(0), jnp.zeros(2), slope)[1].num_evaluations)

    assert count(HMC(0.1, num_leapfrog=7, num_steps=3)) == 21
    assert count(MALA(0.1, num_steps=3)) == 3
    assert count(RandomWalk(0.1, num_steps=5)) == 5
    assert count(Composition(HMC(0.1, 7), RandomWalk(0.1))) == 8
    assert count(EnsembleWalk(np.eye(2), 0.1, num_steps=3)) == 3
    assert count(NoMove()) == 0
    assert count(NUTS(0.1, num_steps=2)) >= 2


def test_mala_is_the_langevin_proposal():
    # With a small step nearly everything is accepted: compare the mean move.
    x, step = jnp.array([1.0, -2.0]), 0.1
    keys = jr.split(jr.key(0), 200_000)
    moved = jax.vmap(lambda key: MALA(step)(key, x, slope)[0])(keys)
    drift = (np.asarray(moved, np.float64) - np.asarray(x)).mean(axis=0)
    expected = 0.5 * step**2 * np.asarray(jax.grad(slope)(x))
    stderr = step / np.sqrt(len(keys))
    assert np.all(np.abs(drift - expected) < 4 * stderr)  # false alarm 1.3e-4
    assert np.abs(expected).min() > 10 * stderr


def test_a_proposal_that_overflows_is_rejected():
    def steep(x):
        return -jnp.sum(jnp.exp(x**4))

    x = jnp.array([1.5])
    moved, info = HMC(10.0, 20)(jr.key(0), x, steep)
    assert np.array_equal(moved, x)
    assert float(info.acceptance_rate) == 0


def test_random_walk_acceptance_is_the_metropolis_rate():
    # For a standard normal and step s the mean acceptance is 2/pi * atan(2/s).
    step, n = 1.3, 100_000
    keys = jr.split(jr.key(0), n)
    start = jr.normal(jr.key(1), (n, 1))
    _, info = jax.vmap(
        lambda key, x: RandomWalk(step)(key, x, lambda x: -0.5 * jnp.sum(x**2))
    )(keys, start)
    rates = np.asarray(info.acceptance_rate, np.float64)
    z = (rates.mean() - 2 / np.pi * np.arctan(2 / step)) / (rates.std() / np.sqrt(n))
    assert abs(z) < stats.norm.isf(5e-5)


@pytest.mark.parametrize("name", ["hmc", "mala", "composition"])
def test_moving_all_particles_is_moving_each(name):
    """With a scale per coordinate and a lattice shape: axes must not be mixed up."""
    scale = jnp.array([[0.5, 1.0, 2.0], [1.5, 0.7, 0.2]])
    hmc = HMC(0.3, num_leapfrog=3, num_steps=2, scale=scale)
    kernel = {
        "hmc": hmc,
        "mala": MALA(0.3, num_steps=2, scale=scale),
        "composition": Composition(hmc, MALA(0.2)),
    }[name]

    def log_density(x):
        return -jnp.sum(x**4 * scale) + x[0, 1] * x[1, 2]

    x = jr.normal(jr.key(0), (50, 2, 3))
    value, gradient = jax.vmap(jax.value_and_grad(log_density))(x)
    points, info = kernel.move_all(
        jr.key(1), Point(x, value, gradient), log_density, 1.0
    )
    assert info.acceptance_rate.shape == info.num_evaluations.shape == (50,)
    moved = np.any(np.asarray(points.x != x), axis=(1, 2))
    assert moved.sum() > 10
    # What it says about the new points is true of them.
    value, gradient = jax.vmap(jax.value_and_grad(log_density))(points.x)
    np.testing.assert_allclose(points.log_density, value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(points.gradient, gradient, rtol=1e-5, atol=1e-5)


def test_one_decision_for_position_density_and_gradient():
    """All three leave one conditional, which takes the decision as an input.

    Chosen one by one, the compiler may take a decision for each, rounded differently.
    """
    many = Point(jnp.ones((3, 7)), jnp.ones(7), jnp.ones((3, 7)))
    jaxpr = jax.make_jaxpr(accept)(jnp.ones(7), jnp.zeros(7), many, many, jnp.ones(7))
    conditionals = [each for each in jaxpr.eqns if each.primitive.name == "cond"]
    assert len(conditionals) == 1
    assert jaxpr.jaxpr.outvars[:3] == conditionals[0].outvars


def _from_numpy(x):
    """The logarithm of a density with Z = 1.5 pi that only NumPy can compute."""

    def evaluate(x):
        x = np.asarray(x)
        return (np.log(1.5) - 0.5 * np.sum((x - 1) ** 2 * [1, 4], -1)).astype(x.dtype)

    shape = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(evaluate, shape, x, vmap_method="expand_dims")


@pytest.mark.parametrize(
    "kernel",
    [
        RandomWalk(0.7, num_steps=3),
        EnsembleWalk(np.eye(2), 0.7, num_steps=3),
        Composition(RandomWalk(0.7), NoMove(), RandomWalk(0.3)),
    ],
    ids=["random_walk", "ensemble_walk", "composition"],
)
def test_kernels_without_gradient_ask_for_none(kernel):
    """A callback has no derivative: asking for one is an error."""
    assert not kernel.needs_gradient
    path = ax.GeometricPath((2,), _from_numpy, 4)
    sampler = ax.Sampler(path, kernel, num_particles=1000)
    result = sampler.run(jr.key(0))
    z = (float(result.log_normalizer) - np.log(1.5 * np.pi)) / float(
        result.log_normalizer_stderr
    )
    assert abs(z) < 4  # false alarm 6e-5
    assert float(result.log_normalizer_stderr) < 0.1
    alone, _ = kernel(jr.key(1), jnp.zeros(2), _from_numpy)
    assert np.isfinite(alone).all()


def test_one_kernel_with_gradient_makes_a_composition_need_it():
    assert Composition(RandomWalk(0.1), HMC(0.1)).needs_gradient
