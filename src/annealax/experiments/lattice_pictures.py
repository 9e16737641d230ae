"""Pictures of lattice fields: from a run, and from particle MCMC on top of it."""

import math
from collections.abc import Callable, Mapping

import jax.random as jr
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from annealax import observables
from annealax._pimh import Chain
from annealax.experiments._style import BLUE, INK, ORANGE, beta_title, spaced
from annealax.experiments.evaluation import Outcome
from annealax.experiments.populations import populations

_COLUMNS, _ROWS = 6, 3


def of_run(outcome: Outcome) -> Mapping[str, Callable[[], Figure]]:
    """Pictures of the particles of a run, by file name."""
    return {
        "fields.png": lambda: draw_fields(outcome),
        "magnetisation.png": lambda: draw_magnetisation(outcome),
    }


def of_chain(
    chain: Chain, shape: tuple[int, ...]
) -> Mapping[str, Callable[[], Figure]]:
    """Pictures of particle MCMC that only a lattice has, by file name."""
    figures: dict[str, Callable[[], Figure]] = {}
    if shape[0] > 1:
        figures["pimh_correlator.png"] = lambda: draw_correlator(chain)
    if chain.configurations is not None:
        figures["pimh_magnetisation.png"] = lambda: draw_chain_magnetisation(chain)
    return figures


def draw_fields(outcome: Outcome) -> Figure:
    """Three fields, drawn by weight, at temperatures along the ladder."""
    sampler, flows = outcome.main.sampler, outcome.main.flows
    chosen = spaced(sampler.path.num_transitions, _COLUMNS)
    shown = populations(jr.key(outcome.seed), sampler, flows, chosen)
    rng = np.random.default_rng(outcome.seed)
    shape = sampler.path.shape
    panels = [
        p.x[rng.choice(len(p.x), _ROWS, p=p.weights / p.weights.sum())] for p in shown
    ]
    limit = float(np.quantile(np.abs(np.concatenate(panels)), 0.99))
    figure = Figure((1.5 * len(shown) + 0.8, 1.55 * _ROWS + 0.5), layout="constrained")
    axes = figure.subplots(_ROWS, len(shown), squeeze=False)
    for column, (population, fields) in enumerate(zip(shown, panels, strict=True)):
        axes[0, column].set_title(beta_title(population.beta))
        for row, field in enumerate(fields):
            axis = axes[row, column]
            image = axis.imshow(
                field.reshape(shape), cmap="RdBu_r", vmin=-limit, vmax=limit
            )
            axis.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, shrink=0.6, label=r"$\phi$")
    figure.suptitle(
        f"{outcome.name}: fields drawn from {outcome.main.label} along the ladder",
        fontsize=10,
    )
    return figure


def draw_magnetisation(outcome: Outcome) -> Figure:
    """Weighted histogram of the magnetisation, with the share of either sign."""
    result = outcome.main.result
    values = _magnetisation(np.asarray(result.x))
    weights = np.asarray(result.weights)
    error = float(result.expectation_stderr(observables.positive_magnetisation))
    figure = Figure((4.6, 2.9), layout="constrained")
    axis = figure.subplots()
    _signed_histogram(axis, values, weights / weights.sum(), error)
    figure.suptitle(
        f"{outcome.name}: one pass of {outcome.main.label}, {len(values)} particles",
        fontsize=10,
    )
    return figure


def draw_chain_magnetisation(chain: Chain) -> Figure:
    """Histogram of the magnetisation of the configurations that a chain kept."""
    if chain.configurations is None:
        raise ValueError("the chain kept no configurations")
    fields = chain.configurations.reshape(-1, *chain.configurations.shape[2:])
    values = _magnetisation(fields)
    figure = Figure((4.6, 2.9), layout="constrained")
    axis = figure.subplots()
    share = chain.mean.get("positive_magnetisation")
    error = chain.stderr.get("positive_magnetisation")
    _signed_histogram(
        axis,
        values,
        np.full(len(values), 1 / len(values)),
        None if error is None else float(error),
        None if share is None else float(share),
    )
    figure.suptitle(
        f"Particle MCMC: one configuration from each of {len(values)} iterations",
        fontsize=10,
    )
    return figure


def draw_correlator(chain: Chain) -> Figure:
    """The zero-momentum correlator and the effective mass, with error bars."""
    correlator = chain.mean["zero_momentum_correlator"]
    half = len(correlator) // 2 + 1
    time = np.arange(half)
    figure = Figure((7.6, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.errorbar(
        time,
        correlator[:half],
        chain.stderr["zero_momentum_correlator"][:half],
        fmt="o",
        ms=3.5,
        color=BLUE,
        capsize=2.5,
    )
    left.set(xlabel="separation in time", title="zero-momentum correlator C(t)")
    for axis in (left, right):
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if np.all(correlator[:half] > 0) and correlator[:half].max() > 3 * correlator.min():
        left.set_yscale("log")
    mass, error = chain.derived(observables.effective_mass)
    known = np.isfinite(mass) & np.isfinite(error)
    right.errorbar(
        1 + np.flatnonzero(known),
        mass[known],
        error[known],
        fmt="o",
        ms=3.5,
        color=ORANGE,
        capsize=2.5,
    )
    right.set(
        xlabel="separation in time", title="effective mass", xlim=(0.5, half - 0.5)
    )
    figure.suptitle("Particle MCMC: correlations in time", fontsize=10)
    return figure


def _magnetisation(fields: np.ndarray) -> np.ndarray:
    return fields.reshape(len(fields), -1).mean(axis=1)


def _signed_histogram(
    axis: Axes,
    values: np.ndarray,
    shares: np.ndarray,
    error: float | None,
    positive: float | None = None,
) -> None:
    """Symmetric bins, negative and positive in two colours, shares in words."""
    limit = 1.05 * float(np.abs(values).max()) or 1.0
    bins = 2 * max(4, min(30, math.isqrt(len(values))) // 2 + 3)
    edges = list(np.linspace(-limit, limit, bins + 1))
    for keep, color in ((values <= 0, BLUE), (values > 0, ORANGE)):
        axis.hist(
            values[keep], edges, weights=shares[keep], color=color, alpha=0.75, lw=0
        )
    axis.axvline(0, color=INK, lw=0.8)
    if positive is None:
        positive = float(shares[values > 0].sum())
    bar = "" if error is None or not math.isfinite(error) else rf" $\pm$ {error:.3f}"
    axis.set_title(f"positive: {positive:.3f}{bar} (exact: 0.5 by symmetry)")
    axis.set(xlabel="magnetisation (mean of the field)", yticks=[])
    axis.spines["left"].set_visible(False)
