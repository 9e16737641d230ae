"""Pictures of single problems: they are drawn, and their numbers are weighted."""

from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import tests_problems
from flowjax.bijections import Loc
from matplotlib.figure import Figure

import annealax as ax
from annealax import flows
from annealax.experiments.problems.lgcp import LGCP
from annealax.experiments.problems.phi4 import Phi4Small
from annealax.experiments.problems.synthetic import Bimodal
from annealax.experiments.problems.vae import VAE
from annealax.report import charts, problem_charts
from annealax.report.problem_charts import populations


def sampler(num_transitions=3, num_particles=200):
    path = ax.GeometricPath((2,), tests_problems.skewed_log_density, num_transitions)
    kernel = ax.kernels.HMC(0.3, num_leapfrog=2)
    return ax.Sampler(path, kernel, num_particles=num_particles)


def made_up(settings, x):
    """A run that ended with these particles."""
    result = ax.Result(
        ax.Particles.uniform(x, jnp.zeros(len(x))),
        ax.StepInfo(*(jnp.ones(2) for _ in ax.StepInfo._fields)),
    )
    problem = SimpleNamespace(target=settings.target())
    return SimpleNamespace(
        name="made-up", seed=0, settings=settings, problem=problem, result=result
    )


# The particles along the ladder.


def test_populations_follow_the_ladder():
    made = sampler()
    found = populations(jr.key(0), made, None, [0, 2, 3])
    np.testing.assert_allclose(
        [p.beta for p in found], np.asarray(made.path.betas)[[0, 2, 3]]
    )
    for population in found:
        assert population.x.shape == population.moved.shape == (200, 2)
        np.testing.assert_allclose(population.weights.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(population.moved_weights.sum(), 1, rtol=1e-5)
    # Without a flow, what moves on to the next temperature is what was there.
    np.testing.assert_array_equal(found[2].moved, found[1].x)
    np.testing.assert_array_equal(found[2].moved_weights, found[1].weights)


def test_flows_move_the_particles():
    shift = flows.replicate(Loc(jnp.asarray([10.0, 10.0])), 1)
    start, end = populations(jr.key(0), sampler(1, 50), shift, [0, 1])
    np.testing.assert_allclose(end.moved, start.x + 10, atol=1e-4)
    np.testing.assert_array_equal(end.before, start.x)


@pytest.mark.parametrize("helped", [False, True])
def test_particles_at_temperatures(helped):
    made = sampler(3)
    shift = flows.replicate(Loc(jnp.zeros(2)), 3) if helped else None
    run = SimpleNamespace(name="made-up", seed=0, sampler=made, flows=shift)
    figures = problem_charts.temperatures(run)
    figure = figures["temperatures.png"]()
    assert len(figure.axes) == (12 if helped else 4)
    assert "all 4 temperatures" in figure.get_suptitle()
    titles = [axis.get_title() for axis in figure.axes[:4]]
    assert titles == ["β = 0, start", "β = 0.333", "β = 0.667", "β = 1, target"]


def test_fields_have_no_picture_of_two_coordinates():
    run = SimpleNamespace(sampler=SimpleNamespace(path=SimpleNamespace(shape=(4, 4))))
    assert problem_charts.temperatures(run) == {}


def test_contours_and_windows():
    path = sampler().path
    x = np.asarray(path.sample(jr.key(0), 2000)[0], np.float64)
    windows = [charts.window(column, np.full(2000, 1 / 2000)) for column in x.T]
    assert all(2.5 < high < 4.5 and -4.5 < low < -2.5 for low, high in windows)
    axis = Figure().subplots()
    problem_charts.draw_contours([axis], path, 0.0, windows)
    assert axis.collections


# Single problems.


def test_each_problem_has_its_pictures():
    cases = {
        ("intensity.png",): LGCP(grid=4),
        ("digits.png",): VAE(),
        (): Bimodal(),
    }
    for files, settings in cases.items():
        shape = settings.target().shape
        run = made_up(settings, jr.normal(jr.key(0), (50, *shape)))
        figures = settings.pictures(run)
        assert tuple(figures) == files
        for draw in figures.values():
            assert isinstance(draw(), Figure)


def test_lattice_fields_and_their_magnetisation():
    settings = Phi4Small(lattice=(4, 4))
    fields = jr.normal(jr.key(0), (60, 4, 4))
    run = made_up(settings, fields)
    run.sampler = ax.Sampler(
        ax.GeometricPath((4, 4), settings.target(), 2),
        ax.kernels.HMC(0.1, num_leapfrog=2),
        num_particles=60,
    )
    run.flows = None
    figures = settings.pictures(run)
    assert list(figures) == ["fields.png", "magnetisation.png"]
    images = [axis for axis in figures["fields.png"]().axes if axis.images]
    assert len(images) == 3 * 3  # three fields at each of three temperatures
    shown = figures["magnetisation.png"]().get_suptitle()
    positive = np.mean(np.asarray(fields).mean(axis=(1, 2)) > 0)
    assert shown.startswith(f"Positive: {positive:.3f} ± ")


def test_intensity_is_the_posterior_mean():
    x = jnp.log(jnp.stack([jnp.full(16, 100.0), jnp.full(16, 300.0)]))
    run = made_up(LGCP(grid=4), x)
    figure = run.settings.pictures(run)["intensity.png"]()
    mean, spread = (axis.images[0].get_array() for axis in figure.axes[:2])
    np.testing.assert_allclose(mean, 2.0, rtol=1e-4)  # 200 in 100 square metres
    np.testing.assert_allclose(spread, 0.5, rtol=1e-3)
    points = figure.axes[0].collections[0].get_offsets()
    assert points.shape == (126, 2)


def test_the_map_is_the_right_way_round():
    """A tree at (x, y) is seen in the cell of the map that holds (x, y)."""
    target = ax.targets.LogGaussianCoxPines(8)
    run = made_up(LGCP(grid=8), jnp.log(target.counts.reshape(1, -1) + 0.1))
    figure = run.settings.pictures(run)["intensity.png"]()
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert image.origin == "lower"
    table = np.asarray(image.get_array())
    x, y = target.points()[17]
    row = int((y - bottom) / (top - bottom) * 8)
    column = int((x - left) / (right - left) * 8)
    assert table[row, column] > 1.0 / 100  # an empty cell shows 0.1 / 100
