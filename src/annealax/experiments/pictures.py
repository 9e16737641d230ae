"""Pictures of a run: the particles at several temperatures, marginals, training.

Those that only one problem has come from its settings (`Settings.pictures`).

Figures are made without pyplot: no window, no global state.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib as mpl
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from annealax._path import AbstractPath
from annealax.cli.folder import RunFolder
from annealax.experiments._style import BLUE, INK, ORANGE, STYLE, beta_title, spaced
from annealax.experiments.evaluation import Outcome
from annealax.experiments.populations import flatten, populations
from annealax.trainers.fit import Fit

_PANELS = 6


@runtime_checkable
class _ExactDraws(Protocol):
    def sample(self, key: PRNGKeyArray, num_samples: int) -> Array: ...


def draw_all(folder: RunFolder, outcome: Outcome) -> list[str]:
    """Draw every picture of a run into its folder; returns their names."""
    figures: dict[str, Callable[[], Figure]] = {}
    shape = outcome.main.sampler.path.shape
    dim = int(np.prod(shape))
    if dim > 1 and len(shape) == 1:  # two sites of a field say little
        figures["temperatures.png"] = lambda: draw_temperatures(outcome)
    if dim != 2:
        figures["marginals.png"] = lambda: draw_marginals(outcome)
    fit = outcome.fit
    if fit is not None and len(fit.history.loss):
        figures["training.png"] = lambda: draw_training(outcome, fit)
    figures |= outcome.settings.pictures(outcome)
    return draw_figures(folder, figures)


def draw_figures(
    folder: RunFolder, figures: Mapping[str, Callable[[], Figure]]
) -> list[str]:
    """Draw figures into a folder, all in one style; returns their names."""
    with mpl.rc_context(STYLE):
        for name, draw in figures.items():
            with folder.writing(name) as file:
                draw().savefig(file, format="png", dpi=150)
    return list(figures)


def draw_temperatures(outcome: Outcome) -> Figure:
    """The first two coordinates of the particles, at temperatures along the ladder."""
    sampler, flows = outcome.main.sampler, outcome.main.flows
    chosen = spaced(sampler.path.num_transitions, _PANELS)
    shown = populations(jr.key(outcome.seed), sampler, flows, chosen)
    rows, planar = 1 if flows is None else 2, sampler.path.shape == (2,)
    figure = Figure((2.3 * len(shown), 2.35 * rows + 0.55), layout="constrained")
    axes = figure.subplots(rows, len(shown), sharex=True, sharey=True, squeeze=False)
    window = _window([(p.x[:, :2], p.weights) for p in shown])
    for column, population in enumerate(shown):
        if rows == 2:
            top = axes[0, column]
            _scatter(top, population.moved, population.moved_weights, ORANGE)
        _scatter(axes[-1, column], population.x, population.weights, BLUE)
        axes[0, column].set_title(beta_title(population.beta))
        if planar:
            beta = jnp.asarray(population.beta)  # an array: a float would recompile
            _contours(axes[:, column], sampler.path, beta, window)
        axes[0, column].set(xlim=window[0], ylim=window[1])
    if rows == 2:
        axes[0, 0].set_ylabel("moved by the flow\n$x_2$")
        axes[1, 0].set_ylabel("reweighted, moved by HMC\n$x_2$")
    else:
        axes[0, 0].set_ylabel("$x_2$")
    for axis in axes[-1]:
        axis.set_xlabel("$x_1$")
    total = sampler.path.num_transitions + 1
    contours = ", over contours of the density there" if planar else ""
    share = f"all {total}" if len(shown) == total else f"{len(shown)} of the {total}"
    figure.suptitle(
        f"{outcome.name}: {outcome.main.label} particles at {share} "
        f"temperatures{contours}",
        fontsize=10,
    )
    return figure


def draw_marginals(outcome: Outcome) -> Figure:
    """Weighted histograms of the first coordinates, beside exact draws if known."""
    result, target = outcome.main.result, outcome.problem.target
    x, weights = flatten(result.x), np.asarray(result.weights)
    exact = None
    if isinstance(target, _ExactDraws):
        exact = flatten(target.sample(jr.key(outcome.seed), 20_000))
    count = min(6, x.shape[1])
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure((2.9 * columns, 2.1 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for index, axis in enumerate(axes):
        if index >= count:
            axis.set_axis_off()
            continue
        data = [(x[:, index : index + 1], weights)]
        if exact is not None:
            data.append((exact[:, index : index + 1], np.full(len(exact), 1.0)))
        edges = np.linspace(*_window(data)[0], 41)
        values, share = data[0][0][:, 0], weights / weights.sum()
        axis.hist(
            values, edges, weights=share, color=BLUE, alpha=0.55, label="particles"
        )
        if exact is not None:
            axis.hist(
                exact[:, index],
                edges,
                weights=np.full(len(exact), 1 / len(exact)),
                histtype="step",
                color=INK,
                label="exact draws",
            )
        axis.set(xlabel=f"$x_{{{index + 1}}}$", yticks=[])
        axis.spines["left"].set_visible(False)
    if exact is not None:
        axes[0].legend(fontsize=8)
    figure.suptitle(
        f"{outcome.name}: marginals of {outcome.main.label} particles", fontsize=10
    )
    return figure


def draw_training(outcome: Outcome, fit: Fit) -> Figure:
    """Loss, log Z and the lowest effective sample size along the training."""
    history = fit.history
    figure = Figure((8.4, 2.7), layout="constrained")
    loss, normalizer, ess = figure.subplots(1, 3)
    _curve(loss, history.loss)
    loss.set(title="loss (sum over temperatures)")
    _curve(normalizer, history.log_normalizer)
    normalizer.set(title="log Z of each training pass")
    if outcome.truth is not None:
        normalizer.axhline(outcome.truth, color=ORANGE, lw=1.2, label="exact")
        normalizer.legend(fontsize=8)
    lowest = np.asarray(history.steps.ess).min(axis=1)
    _curve(ess, 100 * lowest / outcome.settings.num_particles)
    ess.set(title="lowest ESS of the pass (%)", ylim=(0, 102))
    for axis in (loss, normalizer, ess):
        axis.set_xlabel("training step")
    figure.suptitle(f"{outcome.name}: training", fontsize=10)
    return figure


def _scatter(axis: Axes, x: np.ndarray, weights: np.ndarray, color: str) -> None:
    """Points whose area is their weight."""
    area = 5.0 * weights * len(weights)
    axis.scatter(
        x[:, 0], x[:, 1], s=np.minimum(area, 60.0), color=color, alpha=0.35, lw=0
    )


def _contours(
    axes: Iterable[Axes],
    path: AbstractPath,
    beta: ArrayLike,
    window: list[tuple[float, float]],
) -> None:
    """Lines at 1 to 5 'standard deviations' from the peak, if that were a normal."""
    first, second = (np.linspace(low, high, 120) for low, high in window)
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


def _window(data: list[tuple[np.ndarray, np.ndarray]]) -> list[tuple[float, float]]:
    """Limits of each coordinate that hold nearly all weight of every population."""
    limits = []
    for index in range(data[0][0].shape[1]):
        low, high = np.inf, -np.inf
        for x, weights in data:
            order = np.argsort(x[:, index])
            cumulative = np.cumsum(weights[order]) / weights.sum()
            ends = np.searchsorted(cumulative, [0.003, 0.997])
            ends = np.minimum(ends, len(order) - 1)
            bottom, top = x[order[ends], index]
            low, high = min(low, bottom), max(high, top)
        margin = 0.12 * (high - low) or 1.0
        limits.append((low - margin, high + margin))
    return limits


def _curve(axis: Axes, values: ArrayLike) -> None:
    """Every step lightly, the average over neighbouring steps on top."""
    values = np.asarray(values, np.float64)
    steps = np.arange(1, len(values) + 1)
    axis.plot(steps, values, color=BLUE, alpha=0.3, lw=0.7)
    width = max(1, len(values) // 25)
    smooth = np.convolve(values, np.full(width, 1 / width), mode="valid")
    axis.plot(steps[: len(smooth)] + (width - 1) / 2, smooth, color=BLUE, lw=1.6)
    # The first steps, of untrained flows, can be far off: let the rest fill the axis.
    late = values[np.isfinite(values)][len(values) // 20 :]
    if len(late) > 1 and np.ptp(late) > 0:
        margin = 0.15 * np.ptp(late)
        axis.set_ylim(late.min() - margin, late.max() + margin)
