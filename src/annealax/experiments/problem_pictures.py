"""Pictures that belong to one problem: an intensity map, decoded digits, parameters."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import ArrayLike
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from annealax.experiments._style import BLUE, INK
from annealax.targets import VAE, LogGaussianCox
from annealax.targets._posterior import AbstractPosterior

_PANELS = 9
_DRAWS = 8


def draw_intensity(
    outcome: Any,
    target: LogGaussianCox,
    points: np.ndarray,
    window: tuple[tuple[float, float], tuple[float, float]],
    unit: str,
) -> Figure:
    """Posterior mean of the intensity, and its relative spread, with the points on it.

    Args:
        outcome: The run.
        target: The Cox process.
        points: Positions of the points.
        window: The observed rectangle, ((xmin, xmax), (ymin, ymax)).
        unit: Unit of length.
    """
    particles = outcome.main.result.particles
    area = np.prod([high - low for low, high in window])

    def moments(x):
        intensity = jnp.exp(target.log_intensity(x))
        return jnp.stack([intensity, intensity**2])

    mean, square = np.asarray(particles.expectation(moments), np.float64) / area
    spread = np.sqrt(np.maximum(square * area - (mean * area) ** 2, 0)) / (mean * area)
    figure = Figure((9.2, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    extent = (*window[0], *window[1])
    titles = (f"posterior mean, per {unit}²", "standard deviation / mean")
    for axis, values, title, colours in zip(
        axes, (mean, spread), titles, ("YlGnBu", "Greys"), strict=True
    ):
        image = axis.imshow(
            values.T, origin="lower", extent=extent, cmap=colours, vmin=0
        )
        axis.set(title=title, xlabel=f"x ({unit})")
        figure.colorbar(image, ax=axis, shrink=0.85)
    axes[0].scatter(
        *points.T, s=9, color="#d1561a", edgecolor="white", lw=0.4, label="points"
    )
    axes[0].set_ylabel(f"y ({unit})")
    figure.suptitle(
        f"{outcome.name}: intensity on {mean.shape[0]} x {mean.shape[1]} cells and the "
        f"{len(points)} points",
        fontsize=10,
    )
    return figure


def draw_digits(outcome: Any, target: VAE) -> Figure:
    """The image, prior draws decoded, posterior draws decoded."""
    key_prior, key_posterior = jr.split(jr.key(outcome.seed))
    prior = jr.normal(key_prior, (_DRAWS, *target.shape))
    posterior = outcome.main.result.draws(key_posterior, _DRAWS)
    mean = outcome.main.result.expectation(target.decode)
    figure = Figure((0.95 * (_DRAWS + 1.4), 2.6), layout="constrained")
    axes = figure.subplots(
        2, _DRAWS + 1, gridspec_kw={"width_ratios": [1.25] + [1] * _DRAWS}
    )
    show_image(axes[0, 0], target.image, "the image")
    show_image(axes[1, 0], mean, "posterior mean")
    for row, draws, name in ((0, prior, "prior"), (1, posterior, "posterior")):
        for column, pixels in enumerate(jax.vmap(target.decode)(draws)):
            title = f"draws from the {name}, decoded" if column == 0 else ""
            show_image(axes[row, column + 1], pixels, title)
    figure.suptitle(f"{outcome.name}: pixel probabilities", fontsize=10)
    return figure


def draw_parameters(outcome: Any, target: AbstractPosterior) -> Figure:
    """Marginals of the parameters in their own space; vectors as intervals."""
    result = outcome.main.result
    weights = np.asarray(result.weights, np.float64)
    parameters = {
        name: np.asarray(values, np.float64)
        for name, values in jax.vmap(target.constrain)(result.x).items()
    }
    scalars = {k: v for k, v in parameters.items() if v.ndim == 1}
    scalars = dict(list(scalars.items())[:_PANELS])
    vectors = {k: v for k, v in parameters.items() if v.ndim == 2}
    columns = min(5, len(scalars))
    rows = -(-len(scalars) // columns)
    figure = Figure(
        (2.0 * max(columns, 3), 1.8 * rows + 2.0 * len(vectors) + 0.4),
        layout="constrained",
    )
    grid = figure.add_gridspec(rows + len(vectors), columns)
    for index, (name, values) in enumerate(scalars.items()):
        axis = figure.add_subplot(grid[index // columns, index % columns])
        _marginal(axis, name, values, weights)
    for index, (name, values) in enumerate(vectors.items()):
        _intervals(figure.add_subplot(grid[rows + index, :]), name, values, weights)
    figure.suptitle(
        f"{outcome.name}: posterior of the parameters in their own space", fontsize=10
    )
    return figure


def quantiles(
    values: np.ndarray, weights: np.ndarray, levels: Sequence[float]
) -> np.ndarray:
    """Weighted quantiles of one sample."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    index = np.searchsorted(cumulative / cumulative[-1], np.asarray(levels))
    return values[order[np.minimum(index, len(order) - 1)]]


def show_image(axis: Axes, pixels: ArrayLike, title: str) -> None:
    """A grey image without a frame; pixels are from 0 to 1."""
    axis.imshow(np.asarray(pixels), cmap="Greys", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[])
    axis.set_title(title, fontsize=8, loc="left")
    for spine in axis.spines.values():
        spine.set_visible(False)


def _marginal(axis: Axes, name: str, values: np.ndarray, weights: np.ndarray) -> None:
    low, high = quantiles(values, weights, [0.005, 0.97 if values.min() > 0 else 0.995])
    middle = quantiles(values, weights, [0.5])[0]
    if values.min() > 0 and quantiles(values, weights, [0.975])[0] > 10 * middle:
        axis.set_xscale("log")
        high = quantiles(values, weights, [0.995])[0]
        edges = np.geomspace(low, high, 36)
    else:
        edges = np.linspace(low, high, 36)
        # Without those at the ends, whose labels would leave the figure.
        axis.xaxis.set_major_locator(MaxNLocator(3, prune="both"))
    axis.hist(values, edges.tolist(), weights=weights, color=BLUE, alpha=0.6)
    axis.axvline(middle, color=INK, lw=1)
    axis.set(xlabel=f"{name} (median {middle:.3g})", yticks=[])
    axis.spines["left"].set_visible(False)


def _intervals(axis: Axes, name: str, values: np.ndarray, weights: np.ndarray) -> None:
    levels = [0.025, 0.25, 0.5, 0.75, 0.975]
    table = np.array([quantiles(column, weights, levels) for column in values.T])
    index = np.arange(1, len(table) + 1)
    axis.vlines(index, table[:, 0], table[:, 4], color=BLUE, lw=1)
    axis.vlines(index, table[:, 1], table[:, 3], color=BLUE, lw=3.5)
    axis.plot(index, table[:, 2], "o", color=INK, ms=3)
    axis.axhline(0, color="#8a909c", lw=0.6)
    axis.set(title=f"{name}: medians, 50 % and 95 % intervals", xlabel="index")
    axis.set_xlim(0.4, len(table) + 0.6)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
