"""Pictures of single problems: they are drawn, and their numbers are weighted."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure

import annealax as ax
from annealax.experiments import EXPERIMENTS, pictures
from annealax.experiments._folder import RunFolder
from annealax.experiments.evaluate import Evaluation
from annealax.experiments.problem_pictures import quantiles
from annealax.experiments.run import Outcome


def made_up(name, x, **changes):
    """The outcome of a run that ended with these particles."""
    settings = dataclasses.replace(EXPERIMENTS[name](), **changes)
    sampler = settings.sampler()
    result = ax.Result(
        ax.Particles.uniform(x, jnp.zeros(len(x))),
        ax.StepInfo(*(jnp.ones(2) for _ in ax.StepInfo._fields)),
    )
    one = np.ones(1)
    row = Evaluation("SMC", sampler, None, result, one, one, one, one, 1.0)
    return Outcome(name, settings, "smc", 0, None, None, (row,))


CASES = {
    "lgcp": ("intensity.png", {"grid": 4}),
    "vae": ("digits.png", {}),
    "seeds": ("parameters.png", {"pilot_transitions": 0}),
    "brownian": ("parameters.png", {"pilot_transitions": 0}),
    "eight-schools": ("parameters.png", {"pilot_transitions": 0}),
    "logistic": ("parameters.png", {"pilot_transitions": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_problem_has_its_picture(name):
    file, changes = CASES[name]
    dim = dataclasses.replace(EXPERIMENTS[name](), **changes).target().shape
    outcome = made_up(name, jr.normal(jr.key(0), (50, *dim)), **changes)
    figures = outcome.settings.pictures(outcome)
    assert list(figures) == [file]
    assert isinstance(figures[file](), Figure)


def test_intensity_is_the_posterior_mean():
    x = jnp.log(jnp.stack([jnp.full(16, 100.0), jnp.full(16, 300.0)]))
    outcome = made_up("lgcp", x, grid=4)
    figure = outcome.settings.pictures(outcome)["intensity.png"]()
    mean, spread = (axis.images[0].get_array() for axis in figure.axes[:2])
    np.testing.assert_allclose(mean, 2.0, rtol=1e-4)  # 200 in 100 square metres
    np.testing.assert_allclose(spread, 0.5, rtol=1e-3)
    points = figure.axes[0].collections[0].get_offsets()
    assert points.shape == (126, 2)


def test_the_map_is_the_right_way_round():
    """A tree at (x, y) is seen in the cell of the map that holds (x, y)."""
    target = ax.targets.LogGaussianCoxPines(8)
    outcome = made_up("lgcp", jnp.log(target.counts.reshape(1, -1) + 0.1), grid=8)
    figure = outcome.settings.pictures(outcome)["intensity.png"]()
    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    assert image.origin == "lower"
    table = np.asarray(image.get_array())
    x, y = target.points()[17]
    row = int((y - bottom) / (top - bottom) * 8)
    column = int((x - left) / (right - left) * 8)
    assert table[row, column] > 1.0 / 100  # an empty cell shows 0.1 / 100


def test_hook_joins_the_generic_pictures(tmp_path):
    x = jr.normal(jr.key(0), (64, 10))
    outcome = made_up("eight-schools", x, num_particles=64, num_transitions=2)
    names = pictures.draw_all(RunFolder(tmp_path), outcome)
    assert {"marginals.png", "temperatures.png", "parameters.png"} == set(names)
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)
    assert EXPERIMENTS["bimodal"]().pictures(outcome) == {}


def test_weighted_quantiles():
    values, weights = np.array([3.0, 1.0, 2.0]), np.array([0.1, 0.6, 0.3])
    np.testing.assert_array_equal(
        quantiles(values, weights, [0.5, 0.85, 1.0]), [1, 2, 3]
    )
