"""The charts of a report, from the arrays of a run."""

from collections.abc import Mapping

import numpy as np

from annealax.experiments._html import Html, tag
from annealax.experiments._numbers import percent_text
from annealax.experiments._run_files import RunFiles
from annealax.experiments._svg import Chart, limits, thin_out

_COORDINATES = 4
_MANY = 10
"""With more coordinates than this, those of largest variance stand for them."""
_DOTS = 700
_BINS = 36


def grid(figures: list[Html], kind: str = "") -> Html:
    """Figures side by side, as many as there is room for."""
    return tag("div", *figures, class_=f"charts {kind}".strip())


def figure(chart: Html, *caption: object) -> Html:
    """A chart with its caption."""
    return tag("figure", chart, tag("figcaption", *caption))


def passes_chart(
    rows: Mapping[str, np.ndarray], truth: float | None, title: str = ""
) -> Html:
    """Log Z of every pass, a row of dots for each method or run.

    Args:
        rows: log Z of the passes, by label.
        truth: The exact value, if known.
        title: What the chart is about, if that needs saying.
    """
    values = np.concatenate(list(rows.values()))
    known = [] if truth is None else [truth]
    chart = Chart(
        limits(np.append(values, known)),
        (len(rows) - 0.35, -0.75),
        "log Z",
        (340, 42 + 44 * len(rows)),
        y_ticks=False,
    )
    if truth is not None:
        chart.line([truth, truth], [-1, len(rows)], "second dashed")
    for index, (label, repeats) in enumerate(rows.items()):
        chart.dots(repeats, np.full(len(repeats), index), "first marks")
        chart.text(chart.x[0], index, label, lift=12)
    words = f"{title}: " if title else ""
    words += "log Z of every pass, a row of dots for each sampler."
    exact = "" if truth is None else " The dashed line is the exact value."
    return figure(chart.draw(words), words + exact)


def training_charts(files: RunFiles) -> list[Html]:
    """Log Z, loss and the lowest ESS over training; none without a history."""
    found = []
    for key, words, exact in (
        ("history_log_normalizer", "log Z of each training pass", files.truth),
        ("history_loss", "Loss, the sum over temperatures", None),
        ("history_ess", "Lowest ESS of each training pass (%)", None),
    ):
        values = np.asarray(files.arrays.get(key, np.zeros(0)), np.float64)
        if key == "history_ess" and values.ndim == 2 and values.size:
            values = 100 * values.min(axis=1) / files.num_particles
        if values.ndim == 1 and len(values) > 1:
            found.append(curve(values, words, exact))
    return found


def curve(values: np.ndarray, words: str, exact: float | None) -> Html:
    """Every step lightly, the average over neighbouring steps on top."""
    steps = np.arange(1, len(values) + 1, dtype=np.float64)
    # The first steps, of untrained flows, can be far off: let the rest fill the chart.
    late = values[len(values) // 20 :]
    shown = late if exact is None else np.append(late, exact)
    chart = Chart((1.0, float(len(values))), limits(shown), "training step", whole=True)
    if exact is not None:
        chart.line(chart.x, [exact, exact], "second dashed")
    chart.line(*thin_out(steps, values), "first thin")
    width = max(1, len(values) // 25)
    smooth = np.convolve(values, np.full(width, 1 / width), mode="valid")
    middle = steps[: len(smooth)] + (width - 1) / 2
    chart.line(*thin_out(middle, smooth), "first")
    caption: list[object] = [words]
    if exact is not None:
        caption.append("; dashed: exact")
    return figure(chart.draw(f"{words}, over {len(values)} steps"), *caption, ".")


def ladder_charts(files: RunFiles) -> list[Html]:
    """Effective sample size, resampling and acceptance at every temperature."""
    ess = 100 * np.asarray(files.arrays["step_ess"], np.float64) / files.num_particles
    resampled = np.asarray(files.arrays["step_resampled"], bool)
    rates = 100 * np.asarray(files.arrays["step_acceptance_rate"], np.float64)
    steps = np.arange(1, len(ess) + 1, dtype=np.float64)
    ends = (0.5, len(ess) + 0.5)
    first = Chart(ends, (0.0, 104.0), "temperature", whole=True)
    threshold = files.header.settings.get("resample_threshold")
    if isinstance(threshold, int | float) and resampled.any():
        first.line(ends, [100 * threshold] * 2, "grey dashed")
    first.line(steps, ess, "first")
    first.dots(steps, ess, "first marks")
    first.dots(steps[resampled], ess[resampled], "second marks")
    count = int(resampled.sum())
    second = Chart(ends, (0.0, 104.0), "temperature", whole=True)
    second.line(steps, rates, "first")
    second.dots(steps, rates, "first marks")
    times = "once" if count == 1 else f"{count} times"
    return [
        figure(
            first.draw(
                f"effective sample size at {len(ess)} temperatures, lowest "
                f"{percent_text(np.min(ess) / 100)}; resampled {times}"
            ),
            "ESS after reweighting, % of the particles; ",
            tag("span", f"resampled {times}", class_="key-second")
            if count
            else "never resampled",
            f" in {len(ess)} temperature{'s' * (len(ess) != 1)}.",
        ),
        figure(
            second.draw(
                f"acceptance of the Markov kernel at {len(ess)} temperatures, from "
                f"{percent_text(np.min(rates) / 100)} to "
                f"{percent_text(np.max(rates) / 100)}"
            ),
            "Acceptance of the Markov kernel (%).",
        ),
    ]


def weight_charts(files: RunFiles) -> list[Html]:
    """How unequal the final weights are."""
    weights = _weights(files)
    n = len(weights)
    heaviest = np.concatenate([[0], np.cumsum(np.sort(weights)[::-1])])
    share = 100 * np.arange(n + 1) / n
    half = float(share[np.searchsorted(heaviest, 0.5)])
    first = Chart((0.0, 100.0), (0.0, 104.0), "% of the particles, heaviest first")
    first.line([0, 100], [0, 100], "grey dashed")
    keep = np.unique(np.linspace(0, n, 400).astype(int))
    first.line(share[keep], 100 * heaviest[keep], "first")
    positive = np.log10(n * weights[weights > 0])
    low, high = limits(np.append(positive[positive > -6], [-1.0, 1.0]), 0.04)
    counts, edges = np.histogram(np.maximum(positive, low), _BINS, (low, high))
    second = Chart((low, high), (0.0, 1.08 * counts.max()), "log10 of weight × N")
    second.bars(edges, counts)
    zero = n - len(positive)
    return [
        figure(
            first.draw(
                f"share of the weight on the heaviest particles: {half:.0f}% of "
                "them hold half of it"
            ),
            f"Share of the weight (%): half of it is on {half:.2g}% of the "
            f"particles, {weights.max():.2%} on the heaviest. Dashed: equal weights.",
        ),
        figure(
            second.draw("histogram of the weights, on a logarithmic scale"),
            "Number of particles by weight; 0 is the average weight.",
            f" {zero} have weight zero." if zero else None,
        ),
    ]


def coordinate_charts(files: RunFiles) -> tuple[str, list[Html]]:
    """Marginals and pairs of the main coordinates: what they are, and the charts."""
    weights = _weights(files)
    x = np.asarray(files.arrays["x"], np.float64).reshape(len(weights), -1)
    alive = (weights > 0) & np.isfinite(x).all(axis=1)
    if not alive.any() or not x.shape[1]:
        return "No particle has a weight.", []
    x, weights = x[alive], weights[alive] / weights[alive].sum()
    words, names, shown = main_coordinates(x, weights)
    drawn = np.random.default_rng(0).choice(len(weights), _DOTS, p=weights)
    windows = [_window(column, weights) for column in shown.T]
    count = shown.shape[1]
    found = [
        _marginal(names[i], shown[:, i], weights, windows[i]) for i in range(count)
    ]
    for j in range(count):
        for i in range(j):
            chart = Chart(windows[i], windows[j], "", (170, 150))
            chart.dots(shown[drawn, i], shown[drawn, j], "first dots")
            short = [names[k].partition(",")[0] for k in (i, j)]
            title = f"{short[0]} (across), {short[1]} (up)"
            found.append(figure(chart.draw(f"draws: {title}"), title))
    return words, found


def main_coordinates(
    x: np.ndarray, weights: np.ndarray
) -> tuple[str, list[str], np.ndarray]:
    """The first coordinates; of many, the directions of largest variance.

    Returns:
        What they are, their names, and their values, one column for each.
    """
    dim = x.shape[1]
    if dim <= _MANY:
        count = min(dim, _COORDINATES)
        which = "all" if count == dim else f"the first {count} of {dim}"
        names = [f"x{i + 1}" for i in range(count)]
        words = f"Weighted marginals and pairs of {which} coordinates."
        return words, names, x[:, :count]
    centred = x - weights @ x
    _, scales, directions = np.linalg.svd(
        np.sqrt(weights)[:, None] * centred, full_matrices=False
    )
    count = min(_COORDINATES, len(scales))
    directions = directions[:count]
    # Only up to a sign: let the largest entry be positive.
    largest = np.take_along_axis(
        directions, np.abs(directions).argmax(axis=1)[:, None], axis=1
    )
    directions = directions * np.where(largest < 0, -1, 1)
    shares = scales**2 / max(float(np.sum(scales**2)), 1e-300)
    names = [f"direction {i + 1}, {shares[i]:.0%} of variance" for i in range(count)]
    words = (
        f"Weighted marginals and pairs along the {count} directions in which the "
        f"particles vary most, of {dim} (principal components)."
    )
    return words, names, centred @ directions.T


def _marginal(
    name: str, values: np.ndarray, weights: np.ndarray, window: tuple[float, float]
) -> Html:
    bins = int(np.clip(2 / np.sqrt(np.sum(weights**2)), 10, _BINS))  # 2 sqrt(ESS)
    counts, edges = np.histogram(values, bins, window, weights=weights)
    top = float(counts.max())
    chart = Chart(window, (0.0, 1.08 * top or 1.0), "", (170, 150), y_ticks=False)
    chart.bars(edges, counts)
    return figure(chart.draw(f"weighted histogram: {name}"), name)


def _window(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Limits that hold nearly all of the weight."""
    order = np.argsort(values)
    ends = np.searchsorted(np.cumsum(weights[order]), [0.003, 0.997])
    return limits(values[order[np.minimum(ends, len(order) - 1)]], 0.1)


def _weights(files: RunFiles) -> np.ndarray:
    logs = np.asarray(files.arrays["log_weights"], np.float64)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()
