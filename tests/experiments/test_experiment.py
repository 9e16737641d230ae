"""Every registered experiment builds its parts, and they fit together."""

import typing

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import annealax as ax
from annealax.experiments import EXPERIMENTS, METHODS, experiment, find_experiment
from annealax.experiments.problems.synthetic import Bimodal, Gaussian
from annealax.experiments.settings import format_value, parse_assignments


@pytest.fixture(params=EXPERIMENTS)
def settings(request):
    return EXPERIMENTS[request.param]()


def test_parts_agree_in_shape(settings):
    problem = settings.replace(pilot_transitions=0).problem()  # a pilot takes a while
    target, sampler, flow = problem.target, problem.sampler(), problem.flow(jr.key(0))
    assert target.shape == sampler.path.shape == tuple(flow.shape)
    assert sampler.num_particles == settings.num_particles
    assert sampler.path.num_transitions == settings.num_transitions
    trainer = METHODS["craft"].trainer(problem)
    assert isinstance(trainer, ax.CRAFT)
    state = jax.eval_shape(lambda: trainer.init(jr.key(0), flow).optimizer_state)
    assert jax.tree.leaves(state)


def test_every_setting_has_a_meaning_and_can_be_read_back(settings):
    texts = [f"{key}={format_value(value)}" for key, value in settings.values().items()]
    assert type(settings)(**parse_assignments(texts)).values() == settings.values()
    assert all(field.description for field in type(settings).model_fields.values())
    assert type(settings).__doc__


def test_funnel_keeps_to_64_transitions():
    assert EXPERIMENTS["funnel"]().num_transitions <= 64
    assert EXPERIMENTS["funnel"]().target().shape == (10,)


def test_many_well_is_that_of_the_paper():
    settings = EXPERIMENTS["many-well"]()
    flow = settings.flow(jr.key(0), settings.target().shape)
    widths = [w.shape[0] for w in flow.network.weights[:-1]]
    assert widths == [960, 960, 960]
    assert settings.num_transitions == 10
    assert (settings.num_hmc_steps, settings.num_leapfrog) == (1, 10)
    assert settings.num_particles == 2000
    assert settings.target().log_normalizer == pytest.approx(164.69567532)


def test_cox_process_is_that_of_the_paper():
    settings = EXPERIMENTS["lgcp"](
        gradient="plain",
        num_train_steps=200,
        learning_rate=0.05,
        final_learning_rate=0.01,
        learning_rate_schedule="drop",
    )  # as its docstring says; by default it trains in another way
    assert settings.target().shape == (1024,)
    assert settings.num_transitions == 10
    assert (settings.num_hmc_steps, settings.num_leapfrog) == (1, 10)
    assert settings.num_particles == 2000
    kernel = settings.kernel()
    sizes = [float(kernel.step_size(beta)) for beta in (0, 0.25, 0.5, 1)]
    np.testing.assert_allclose(sizes, [0.3, 0.3, 0.2, 0.2], rtol=1e-6)
    update = [0.05, 0.05, 0.01, 0.01]
    optimizer = settings.optimizer()
    state, steps = optimizer.init(jnp.zeros(())), []
    for _ in range(200):
        step, state = optimizer.update(jnp.ones(()), state)
        steps.append(-float(step))
    np.testing.assert_allclose([steps[i] for i in (0, 99, 100, 199)], update, rtol=1e-3)


def test_vae_is_that_of_the_paper():
    settings = EXPERIMENTS["vae"]()
    problem = settings.problem()
    widths = [w.shape[0] for w in problem.flow(jr.key(0)).network.weights[:-1]]
    assert widths == [150, 150]
    assert problem.sampler().path.betas.shape == (3,)
    assert (settings.num_hmc_steps, settings.num_leapfrog) == (2, 10)
    assert settings.target().shape == (30,)


def test_logistic_regression_on_a_file(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("dose,outcome\n0.5,no\n1.5,yes\n2.5,yes\n0.1,no\n")
    settings = EXPERIMENTS["logistic"](csv=str(path), label="outcome", positive="yes")
    assert settings.target().names == ("intercept", "dose")
    with pytest.raises(ax.InvalidInputError, match="csv="):
        EXPERIMENTS["logistic"](positive="yes").target()


def test_ladder_kernel_and_start_follow_the_settings():
    settings = Bimodal(
        num_transitions=4,
        ladder_power=2.0,
        step_size_betas=(0.0, 1.0),
        step_sizes=(1.0, 0.5),
        initial_scale=3.0,
    )
    sampler = settings.problem().sampler()
    np.testing.assert_allclose(sampler.path.betas, [0, 1 / 16, 1 / 4, 9 / 16, 1])
    np.testing.assert_allclose(sampler.kernel.step_size(0.5), 0.75)
    x, _ = sampler.path.sample(jr.key(0), 4000)
    np.testing.assert_allclose(jnp.std(x), 3.0, rtol=0.05)
    longer = settings.problem().sampler(num_transitions=9)
    assert longer.path.num_transitions == 9


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.1, 0.1, 0.1]),
        ("drop", [0.1, 0.01, 0.01]),
        ("cosine", [0.1, 0.055, 0.01]),
        ("exponential", [0.1, 0.0316, 0.01]),
    ],
)
def test_learning_rate_schedule(schedule, rates):
    settings = Bimodal(
        num_train_steps=10,
        learning_rate=0.1,
        final_learning_rate=0.01,
        learning_rate_schedule=schedule,
    )
    optimizer = settings.optimizer()
    state = optimizer.init(jnp.zeros(()))
    steps = []
    for _ in range(11):  # Adam's step on a constant gradient is the learning rate
        update, state = optimizer.update(jnp.ones(()), state)
        steps.append(-float(update))
    np.testing.assert_allclose([steps[0], steps[5], steps[10]], rates, rtol=1e-3)


def test_clip_acts_before_adam():
    settings = Bimodal(clip_norm=1e-3, learning_rate=1.0)
    optimizer = settings.optimizer()
    clipped, _ = optimizer.update(jnp.full(3, 1e3), optimizer.init(jnp.zeros(3)))
    assert bool(jnp.all(jnp.isfinite(clipped)))
    assert len(optimizer.init(jnp.zeros(3))) == 2


@pytest.mark.parametrize("family", typing.get_args(experiment.FlowFamily))
def test_every_flow_family_builds(family):
    settings = Bimodal(flow_family=family, flow_hidden=(4,), flow_bins=3)
    flow = settings.flow(jr.key(0), (2,))
    assert tuple(flow.shape) == (2,)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num_particles", 0, ["at least 1", "0"]),
        ("num_particles", 1.5, ["whole number", "1.5"]),
        ("num_particles", True, ["whole number", "True"]),
        ("learning_rate", "fast", ["a number", "fast"]),
        ("step_sizes", 0.1, ["commas"]),
        ("resample_threshold", 0.0, ["above 0"]),
        ("resample_threshold", 1.5, ["at most 1"]),
        ("resample_scheme", "magic", ["systematic", "magic"]),
    ],
)
def test_bad_values_are_refused_by_name(name, value, words):
    with pytest.raises(ax.InvalidInputError) as error:
        Bimodal(**{name: value})
    assert all(word in str(error.value) for word in [name, *words]), str(error.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_leapfrog": 0}, ["num_leapfrog", "at least 1"]),
        (
            {"step_sizes": (0.1,), "step_size_betas": (0.0, 1.0)},
            ["step_size_betas", "step_sizes", "same length"],
        ),
        (
            {"step_sizes": (0.1, 0.2), "step_size_betas": (1.0, 0.0)},
            ["step_size_betas", "rise"],
        ),
        ({"step_sizes": (), "step_size_betas": ()}, ["step_size_betas"]),
    ],
)
def test_settings_check_themselves(changes, words):
    with pytest.raises(ax.InvalidInputError) as error:
        Bimodal(**changes)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_unknown_experiment_shows_the_nearest():
    with pytest.raises(ax.InvalidInputError, match="Did you mean 'funnel'") as error:
        find_experiment("funel")
    assert all(name in str(error.value) for name in EXPERIMENTS)


def test_a_pilot_places_the_start():
    settings = Gaussian(
        dim=3, num_particles=400, num_transitions=2, pilot_transitions=10
    )
    initial = settings.problem().initial
    draws = np.asarray(initial.sample(jr.key(0), (20_000,)))
    exact = np.asarray(settings.target().sample(jr.key(1), 20_000))
    spread = exact.std(axis=0)
    # 2000 pilot particles: means within a tenth of a standard deviation.
    assert np.all(np.abs(draws.mean(axis=0) - exact.mean(axis=0)) < 0.2 * spread)
    assert np.allclose(draws.std(axis=0), spread, rtol=0.2)
