"""The answer in pictures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from annealax.auto.result import Sample

_BLUE, _ORANGE, _GREY = "#2b6cb0", "#c05621", "#718096"
_MAX_MARGINALS = 6


def draw(sample: Sample) -> Figure:
    """Replicates, ladder, acceptance, weights and marginals."""
    columns = range(min(len(sample.space.coordinate_names()), _MAX_MARGINALS))
    marginal_rows = -(-len(columns) // 3)
    figure = Figure(figsize=(11, 3.1 * (2 + marginal_rows)), layout="constrained")
    axes = figure.subplots(2 + marginal_rows, 3, squeeze=False)
    _replicates(axes[0][0], sample)
    _work(axes[0][1], sample)
    _effective(axes[0][2], sample)
    _acceptance(axes[1][0], sample)
    _weights(axes[1][1], sample)
    _pair(axes[1][2], sample, columns)
    for axis, column in zip(axes[2:].ravel(), columns, strict=False):
        _marginal(axis, sample, column)
    for axis in axes[2:].ravel()[len(columns) :]:
        axis.set_axis_off()
    for axis in axes.ravel():
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"log Z = {sample.log_normalizer:.4f} ± {sample.log_normalizer_stderr:.4f}"
        + (f"   ({len(sample.messages)} warnings)" if sample.messages else ""),
        fontsize=13,
    )
    return figure


def _values(sample: Sample) -> np.ndarray:
    """Draws in the user's space, as columns."""
    x = sample.x
    parts = (
        [x[each.name] for each in sample.space.parameters]
        if sample.space.named
        else [x]
    )
    return np.concatenate([np.asarray(p).reshape(len(p), -1) for p in parts], axis=1)


def _replicates(axis: Axes, sample: Sample) -> None:
    values, errors = sample.replicate_log_normalizers, sample.replicate_stderrs
    axis.errorbar(
        np.arange(1, len(values) + 1), values, errors, fmt="o", ms=4, color=_BLUE, lw=1
    )
    centre, error = sample.log_normalizer, sample.log_normalizer_stderr
    axis.axhline(centre, color=_ORANGE, lw=1)
    axis.axhspan(centre - error, centre + error, color=_ORANGE, alpha=0.2, lw=0)
    axis.set(title="replicates and the answer", xlabel="replicate", ylabel="log Z")
    axis.ticklabel_format(useOffset=False)


def _work(axis: Axes, sample: Sample) -> None:
    work = np.maximum(
        np.asarray(sample.steps.free_energy + sample.steps.log_ratio).mean(axis=0), 0
    )
    axis.step(np.arange(1, len(work) + 1), work, where="mid", color=_BLUE)
    axis.set_ylim(bottom=0)
    axis.set(title="how hard transitions are", xlabel="transition", ylabel="nats lost")


def _effective(axis: Axes, sample: Sample) -> None:
    share = np.asarray(sample.steps.ess) / sample.num_particles
    number = np.arange(1, share.shape[1] + 1)
    axis.plot(number, share.T, color=_BLUE, lw=0.7, alpha=0.4)
    resampled = np.asarray(sample.steps.resampled).mean(axis=0)
    axis.bar(number, resampled, color=_GREY, alpha=0.25, label="share that resampled")
    axis.set_ylim(0, 1.02)
    axis.legend(frameon=False, fontsize=8, loc="lower left")
    axis.set(title="effective sample size", xlabel="transition", ylabel="ESS / N")


def _acceptance(axis: Axes, sample: Sample) -> None:
    rates = np.asarray(sample.steps.acceptance_rate)
    number = np.arange(1, rates.shape[1] + 1)
    axis.plot(number, rates.mean(axis=0), color=_BLUE, label="acceptance")
    axis.set_ylim(0, 1.02)
    axis.set(title="HMC", xlabel="transition", ylabel="acceptance")
    other = axis.twinx()
    other.plot(number, sample.step_sizes, color=_ORANGE, lw=1, ls="--")
    other.set_ylim(bottom=0)
    other.set_ylabel("step size (dashed)", color=_ORANGE)
    other.spines["top"].set_visible(False)


def _weights(axis: Axes, sample: Sample) -> None:
    weights = np.sort(np.asarray(sample.weights, np.float64))[::-1]
    share = np.cumsum(weights)
    part = np.arange(1, len(weights) + 1) / len(weights)
    axis.plot(part, share, color=_BLUE)
    axis.plot([0, 1], [0, 1], color=_GREY, lw=0.8, ls=":")
    axis.set(
        title="weights", xlabel="share of the draws, heaviest first", ylabel="weight"
    )


def _pair(axis: Axes, sample: Sample, columns: Sequence[int]) -> None:
    values, names = _values(sample), sample.space.coordinate_names()
    if len(columns) < 2:
        axis.set_axis_off()
        return
    rng = np.random.default_rng(0)
    weights = np.asarray(sample.weights, np.float64)
    index = rng.choice(len(weights), 2000, p=weights / weights.sum())
    first, second = columns[:2]
    axis.plot(values[index, first], values[index, second], ".", ms=2, alpha=0.4)
    axis.set(
        title="draws",
        xlabel=names[first],
        ylabel=names[second],
        xlim=_range(values[:, first], weights),
        ylim=_range(values[:, second], weights),
    )


def _range(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """What to show: nearly all, but of heavy tails only a part."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    levels = np.searchsorted(total, np.array([0.001, 0.05, 0.95, 0.999]) * total[-1])
    lowest, low, high, highest = values[order[levels]].astype(float)
    reach = 2 * (high - low)
    lowest, highest = max(lowest, low - reach), min(highest, high + reach)
    pad = 0.1 * (highest - lowest) + 1e-12
    return lowest - pad, highest + pad


def _marginal(axis: Axes, sample: Sample, column: int) -> None:
    values = _values(sample)[:, column]
    weights = np.asarray(sample.weights, np.float64)
    axis.hist(
        values,
        bins=60,
        range=_range(values, weights),
        weights=weights,
        density=True,
        color=_BLUE,
    )
    axis.set(xlabel=sample.space.coordinate_names()[column])
    axis.set_yticks([])
