"""Pictures that need the experiment: particles along the ladder, fields, maps, digits.

They are functions of a loaded run (`annealax.load_run`), and become PNG files. Which of
them a problem has, its settings say: `Settings.pictures(run)`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Identity
from jaxtyping import Array, ArrayLike, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from annealax import observables
from annealax._particles import Particles
from annealax._path import AbstractPath, Edge
from annealax._sampler import Sampler
from annealax.flows.base import select
from annealax.report.charts import (
    BLUE,
    FAINT,
    ORANGE,
    compose,
    magnetisation_panel,
    spaced,
    window,
)
from annealax.targets import VAE, LogGaussianCox

_COLUMNS = 6
_FIELDS = 3
_DRAWS = 8

Figures = Mapping[str, Callable[[], Figure]]


# The particles along the ladder.


class Population(NamedTuple):
    """The particles at one temperature, configurations flattened.

    Attributes:
        beta: Inverse temperature.
        before: Where they came from, at the temperature before.
        moved: Where the flow put them, before reweighting.
        moved_weights: Their weights in both places.
        x: Where they are after reweighting, resampling and the kernel.
        weights: Their weights now.
    """

    beta: float
    before: np.ndarray
    moved: np.ndarray
    moved_weights: np.ndarray
    x: np.ndarray
    weights: np.ndarray


def populations(
    key: PRNGKeyArray,
    sampler: Sampler,
    flows: AbstractBijection | None,
    indices: list[int],
) -> list[Population]:
    """The particles of one pass at these rungs (0: the start).

    `Sampler.run` keeps only the last, so this is a pass of its own.
    """
    key_init, key_steps = jr.split(key)
    particles = _start(sampler, key_init)
    betas = np.asarray(sampler.path.betas)
    kept: dict[int, Population] = {}
    if 0 in indices:
        kept[0] = _population(0.0, particles, particles.x, particles)
    identity = Identity(sampler.path.shape)  # type: ignore[call-arg]
    for k in range(sampler.path.num_transitions):
        flow = identity if flows is None else select(flows, k)
        edge = jax.tree.map(lambda leaf, k=k: leaf[k], sampler.path.edges)
        before = particles
        particles, moved = _step(
            sampler, jr.fold_in(key_steps, k), particles, flow, edge
        )
        if k + 1 in indices:
            kept[k + 1] = _population(betas[k + 1], before, moved, particles)
    return [kept[index] for index in sorted(kept)]


@eqx.filter_jit  # one program, not thirty
def _start(sampler: Sampler, key: PRNGKeyArray) -> Particles:
    return sampler.init(key)


@eqx.filter_jit
def _step(
    sampler: Sampler,
    key: PRNGKeyArray,
    particles: Particles,
    flow: AbstractBijection,
    edge: Edge,
) -> tuple[Particles, Array]:
    moved = sampler.transport(flow, particles, edge)
    particles, _ = sampler.correct(key, particles, moved, edge)
    return particles, moved.point.x


def _population(beta, before: Particles, moved, after: Particles) -> Population:
    def flat(x: Array) -> np.ndarray:
        return np.asarray(x, np.float64).reshape(x.shape[0], -1)

    return Population(
        float(beta),
        flat(before.x),
        flat(moved),
        np.asarray(before.weights),
        flat(after.x),
        np.asarray(after.weights),
    )


def temperatures(run: Any) -> Figures:
    """The particles along the ladder, for points of at least two numbers."""
    shape = run.sampler.path.shape
    if len(shape) != 1 or shape[0] < 2:  # two sites of a field say little
        return {}
    return {"temperatures.png": lambda: draw_temperatures(run)}


def draw_temperatures(run: Any) -> Figure:
    """The first two coordinates of the particles, at temperatures along the ladder.

    A row for where they come from, one for where the flow moves them, and one for where
    they are after the step; without flows only the last.
    """
    sampler, flows = run.sampler, run.flows
    chosen = spaced(sampler.path.num_transitions, _COLUMNS)
    shown = populations(jr.key(run.seed), sampler, flows, chosen)
    rows, planar = 1 if flows is None else 3, sampler.path.shape == (2,)
    figure = Figure((2.1 * len(shown), 2.15 * rows + 0.55), layout="constrained")
    axes = figure.subplots(rows, len(shown), sharex=True, sharey=True, squeeze=False)
    windows = [_common_window(shown, index) for index in (0, 1)]
    for column, population in enumerate(shown):
        if rows == 3:
            weights = population.moved_weights
            _scatter(axes[0, column], population.before, weights, FAINT)
            _scatter(axes[1, column], population.moved, weights, ORANGE)
        _scatter(axes[-1, column], population.x, population.weights, BLUE)
        axes[0, column].set_title(_beta_title(population.beta))
        if planar:
            beta = jnp.asarray(population.beta)  # an array: a float would recompile
            draw_contours(axes[:, column], sampler.path, beta, windows)
        axes[0, column].set(xlim=windows[0], ylim=windows[1])
    names = [f"x[{index}]" for index in (0, 1)]
    axes[-1, 0].set_ylabel(names[1])
    if rows == 3:
        words = ("as they come", "moved by the flow", "reweighted, moved again")
        for axis, word in zip(axes[:, 0], words, strict=True):
            axis.set_ylabel(f"{word}\n{names[1]}")
    for axis in axes[-1]:
        axis.set_xlabel(names[0])
    total = sampler.path.num_transitions + 1
    contours = ", over contours of the density there" if planar else ""
    share = f"all {total}" if len(shown) == total else f"{len(shown)} of the {total}"
    figure.suptitle(f"{run.name}: particles at {share} temperatures{contours}")
    return figure


def _beta_title(beta: float) -> str:
    ends: Mapping[float, str] = {0.0: ", start", 1.0: ", target"}
    return f"β = {beta:.3g}{ends.get(beta, '')}"


def _common_window(shown: list[Population], index: int) -> tuple[float, float]:
    ends = [window(each.x[:, index], each.weights) for each in shown]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _scatter(axis: Axes, x: np.ndarray, weights: np.ndarray, color: str) -> None:
    """Points whose area is their weight."""
    area = np.minimum(5.0 * weights * len(weights), 60.0)
    axis.scatter(x[:, 0], x[:, 1], s=area, color=color, alpha=0.35, lw=0)


def draw_contours(
    axes: Iterable[Axes],
    path: AbstractPath,
    beta: ArrayLike,
    windows: list[tuple[float, float]],
) -> None:
    """Lines at 1 to 5 'standard deviations' from the peak, if that were a normal."""
    first, second = (np.linspace(low, high, 120) for low, high in windows)
    grid = np.stack(np.meshgrid(first, second), axis=-1)
    values = np.asarray(_log_densities(path, beta, jnp.asarray(grid)))
    depth = np.maximum(values - values.max(), -1e6)
    for axis in axes:
        axis.contour(
            first,
            second,
            depth,
            [-0.5 * sigmas**2 for sigmas in (5, 4, 3, 2, 1)],
            colors="#3d4350",
            linewidths=0.6,
            linestyles="solid",
            zorder=3,
            alpha=0.8,
        )


@eqx.filter_jit
def _log_densities(path: AbstractPath, beta: ArrayLike, grid: Array) -> Array:
    return jax.vmap(jax.vmap(path.at(beta)))(grid)


# Lattice fields.


def lattice(run: Any) -> Figures:
    """Fields along the ladder and the two signs of the magnetisation."""
    return {
        "fields.png": lambda: draw_fields(run),
        "magnetisation.png": lambda: draw_magnetisation(run),
    }


def draw_fields(run: Any) -> Figure:
    """Three fields, drawn by weight, at temperatures along the ladder."""
    sampler = run.sampler
    chosen = spaced(sampler.path.num_transitions, _COLUMNS)
    shown = populations(jr.key(run.seed), sampler, run.flows, chosen)
    rng = np.random.default_rng(run.seed)
    panels = [
        p.x[rng.choice(len(p.x), _FIELDS, p=p.weights / p.weights.sum())] for p in shown
    ]
    limit = float(np.quantile(np.abs(np.concatenate(panels)), 0.99))
    figure = Figure(
        (1.5 * len(shown) + 0.8, 1.55 * _FIELDS + 0.5), layout="constrained"
    )
    axes = figure.subplots(_FIELDS, len(shown), squeeze=False)
    for column, (population, fields) in enumerate(zip(shown, panels, strict=True)):
        axes[0, column].set_title(_beta_title(population.beta))
        for row, field in enumerate(fields):
            axis = axes[row, column]
            image = axis.imshow(
                field.reshape(sampler.path.shape),
                cmap="RdBu_r",
                vmin=-limit,
                vmax=limit,
            )
            axis.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, shrink=0.6, label="φ")
    figure.suptitle(f"{run.name}: fields drawn along the ladder")
    return figure


def draw_magnetisation(run: Any) -> Figure:
    """Weighted histogram of the magnetisation, with the share of either sign."""
    result = run.result
    fields = np.asarray(result.x, np.float64)
    values = fields.reshape(len(fields), -1).mean(axis=1)
    shares = np.asarray(result.weights, np.float64)
    shares = shares / shares.sum()
    error = float(result.expectation_stderr(observables.positive_magnetisation))
    positive = float(shares[values > 0].sum())
    panel = magnetisation_panel(values, shares, positive, error)
    return compose([panel], panel.caption)


# A map of intensity, and images.


def draw_intensity(
    run: Any,
    target: LogGaussianCox,
    points: np.ndarray,
    observed: tuple[tuple[float, float], tuple[float, float]],
    unit: str,
) -> Figure:
    """Posterior mean of the intensity, and its relative spread, with the points on it.

    Args:
        run: The run.
        target: The Cox process.
        points: Positions of the points.
        observed: The observed rectangle, ((xmin, xmax), (ymin, ymax)).
        unit: Unit of length.
    """
    area = np.prod([high - low for low, high in observed])

    def moments(x):
        intensity = jnp.exp(target.log_intensity(x))
        return jnp.stack([intensity, intensity**2])

    mean, square = np.asarray(run.result.expectation(moments), np.float64) / area
    spread = np.sqrt(np.maximum(square * area - (mean * area) ** 2, 0)) / (mean * area)
    figure = Figure((9.2, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    extent = (*observed[0], *observed[1])
    titles = (f"posterior mean, per {unit}²", "standard deviation / mean")
    for axis, values, title, colours in zip(
        axes, (mean, spread), titles, ("YlGnBu", "Greys"), strict=True
    ):
        image = axis.imshow(
            values.T, origin="lower", extent=extent, cmap=colours, vmin=0
        )
        axis.set(title=title, xlabel=f"x ({unit})")
        figure.colorbar(image, ax=axis, shrink=0.85)
    axes[0].scatter(*points.T, s=9, color=ORANGE, edgecolor="white", lw=0.4)
    axes[0].set_ylabel(f"y ({unit})")
    figure.suptitle(
        f"{run.name}: intensity on {mean.shape[0]} x {mean.shape[1]} cells and the "
        f"{len(points)} points"
    )
    return figure


def draw_digits(run: Any, target: VAE) -> Figure:
    """The image, prior draws decoded, posterior draws decoded."""
    key_prior, key_posterior = jr.split(jr.key(run.seed))
    prior = jr.normal(key_prior, (_DRAWS, *target.shape))
    posterior = run.result.draws(key_posterior, _DRAWS)
    mean = run.result.expectation(target.decode)
    figure = Figure((0.95 * (_DRAWS + 1.4), 2.6), layout="constrained")
    axes = figure.subplots(
        2, _DRAWS + 1, gridspec_kw={"width_ratios": [1.25] + [1] * _DRAWS}
    )
    _draw_image(axes[0, 0], target.image, "the image")
    _draw_image(axes[1, 0], mean, "posterior mean")
    for row, draws, name in ((0, prior, "prior"), (1, posterior, "posterior")):
        for column, pixels in enumerate(jax.vmap(target.decode)(draws)):
            title = f"draws from the {name}, decoded" if column == 0 else ""
            _draw_image(axes[row, column + 1], pixels, title)
    figure.suptitle(f"{run.name}: pixel probabilities")
    return figure


def draw_decoded(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Images, what encoder and decoder make of them, and draws from the prior.

    Args:
        arrays: `shown_images`, `shown_decoded` and `shown_prior` of the training.
    """
    rows = (
        ("test images", arrays["shown_images"]),
        ("encoded and decoded again", arrays["shown_decoded"]),
        ("draws from the prior, decoded", arrays["shown_prior"]),
    )
    count = len(arrays["shown_images"])
    figure = Figure((0.95 * max(count, 4), 3.4), layout="constrained")
    axes = figure.subplots(3, count, squeeze=False)
    for row, (title, shown) in enumerate(rows):
        for column, pixels in enumerate(shown):
            _draw_image(axes[row, column], pixels, title if column == 0 else "")
    return figure


def _draw_image(axis: Axes, pixels: ArrayLike, title: str) -> None:
    """A grey image without a frame; pixels are from 0 to 1."""
    axis.imshow(np.asarray(pixels), cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=8, loc="left")
    for spine in axis.spines.values():
        spine.set_visible(False)
