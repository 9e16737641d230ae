"""All charts: of a result in memory, of pictures in a folder, and of pages.

A chart is a `Panel`: words, and a function that draws into axes. `compose` puts panels
into one figure, for a PNG file or `result.plot()`; `svg` writes a figure as a part of a
page, whose colours it takes. There is one palette, light and dark.

Figures are made without pyplot: no window, no global state.
"""

import contextlib
import dataclasses
import functools
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator
from scipy.ndimage import gaussian_filter

from annealax import Chain, observables
from annealax._estimates import weighted_quantiles
from annealax._words import estimate_text
from annealax.report.read import (
    Comparison,
    Decoder,
    Draws,
    Ladder,
    Passes,
    Run,
    named_draws,
)
from annealax.report.tables import budget_text

PALETTE: Mapping[str, tuple[str, str]] = {
    "ground": ("#f7f6f3", "#16181d"),
    "card": ("#ffffff", "#1f2229"),
    "ink": ("#22262e", "#e6e7ea"),
    "faint": ("#5b616d", "#a5abb8"),
    "line": ("#b9bcc4", "#4a505d"),
    "blue": ("#1f5fa8", "#7fb2ee"),
    "orange": ("#b8480f", "#f0935a"),
    "green": ("#2a7a4b", "#6cc492"),
    "purple": ("#7a44a0", "#c79be6"),
    "gold": ("#8a6500", "#dcb64f"),
    "pink": ("#b0175a", "#f087b3"),
}
"""Names of colours with their values on light and on dark ground."""

INK, FAINT, LINE = (PALETTE[name][0] for name in ("ink", "faint", "line"))
BLUE, ORANGE, GOLD = (PALETTE[name][0] for name in ("blue", "orange", "gold"))
SERIES = [PALETTE[n][0] for n in ("blue", "orange", "green", "purple", "gold", "pink")]

MOST_PARAMETERS = 8
"""So many parameters fit into one corner plot."""

_MANY = 10
"""With more nameless coordinates, directions of largest variance stand for them."""
_DIRECTIONS = 4
_MARGINALS = 6
_DOTS = 800
_MOST_POINTS = 600
_MOST_NATS = 10.0
"""A transition that lost more was not measured, only found wanting."""

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.useoffset": False,
    "figure.facecolor": "none",
    "text.color": INK,
    "text.parse_math": False,  # names of folders may hold dollars
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # smaller than outlines, and in the font of the page
    "svg.hashsalt": "annealax",  # the same page from the same numbers
}


@dataclasses.dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: What it shows, in a few words.
        caption: What there is to see.
        draw: Draws it.
        width: In inches.
        height: In inches.
    """

    title: str
    caption: str
    draw: Callable[[Axes], None]
    width: float = 3.5
    height: float = 2.2


# From panels to figures, files and pages.


@contextlib.contextmanager
def style() -> Iterator[None]:
    """How all figures look."""
    with mpl.rc_context(_STYLE):
        yield


def compose(panels: Sequence[Panel], title: str = "") -> Figure:
    """Panels side by side, three in a row."""
    with style():
        columns = min(3, len(panels))
        rows = -(-len(panels) // columns)
        figure = Picture(
            (4.0 * columns, 2.9 * rows + 0.4 * bool(title)), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            panel.draw(axis)
            axis.set_title(panel.title)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=11)
        return figure


def alone(panel: Panel) -> Figure:
    """A panel as a figure of its own, without its title."""
    with style():
        figure = Figure((panel.width, panel.height), layout="constrained")
        panel.draw(figure.subplots())
        return figure


def png(figure: Figure, dpi: int = 130) -> bytes:
    """A figure as a picture on white ground."""
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="png", dpi=dpi, facecolor="white")
    return file.getvalue()


def svg(figure: Figure, name: str, description: str) -> str:
    """A figure as an element of a page, in the colours and the font of the page.

    Args:
        figure: The figure.
        name: Begins the identifiers in it: no two of a page may be the same.
        description: What it shows, for those who cannot see it.
    """
    file = io.BytesIO()
    with style():
        figure.savefig(file, format="svg", dpi=170)
    root = ElementTree.fromstring(file.getvalue())
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
        for parent, child in [(element, child) for child in element]:
            if str(child.tag).endswith(("metadata", "style")):
                parent.remove(child)
        _adopt(element, name)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {"class": "chart", "role": "img", "aria-label": description}
    root.set("data-axes", json.dumps(_scales(figure), separators=(",", ":")))
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _scales(figure: Figure) -> list[dict[str, Any]]:
    """What turns a place of each chart into numbers, for a page that can tell them.

    Boxes are shares of the width and of the height, from the upper left corner.
    """
    found, boxes = [], set()
    for axis in figure.axes:
        box = axis.get_position()
        corner_ = (box.x0, 1 - box.y1, box.width, box.height)
        place = [round(float(each), 4) for each in corner_]
        if not axis.axison or tuple(place) in boxes:  # such as a second scale
            continue
        boxes.add(tuple(place))
        found.append({"box": place, "x": _scale(axis, "x"), "y": _scale(axis, "y")})
    return found


_MOST_WORDS = 200


def _scale(axis: Axes, which: str) -> dict[str, Any] | None:
    """One of the two scales; None where it has no numbers."""
    scale = getattr(axis, f"{which}axis")
    low, high = getattr(axis, f"get_{which}lim")()
    if not len(scale.get_majorticklocs()):
        return None
    found = {"name": scale.get_label_text(), "ends": [float(low), float(high)]}
    if scale.get_scale() == "log":
        found["log"] = True
    words = getattr(axis, f"fmt_{which}data")
    first, last = math.ceil(low), math.floor(high)
    if words is not None and last - first < _MOST_WORDS:
        found["words"] = [words(each) for each in range(first, last + 1)]
    return found


_VARIABLES = {light: f"var(--{name})" for name, (light, _) in PALETTE.items()}
_COLOUR = re.compile("|".join(_VARIABLES))
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def _adopt(element: ElementTree.Element, name: str) -> None:
    """Attributes of an element as a page wants them: short, and with its own names."""
    attributes = {
        key.rpartition("}")[2]: value for key, value in element.attrib.items()
    }
    if element.tag == "g":  # nothing refers to a group
        attributes.pop("id", None)
    element.attrib.clear()
    for key, value in attributes.items():
        element.set(key, _adopted(key, value, name))


def _adopted(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "style":
        value = re.sub(r"font-family:[^;]*;?", "", value)
        return _COLOUR.sub(lambda found: _VARIABLES[found[0]], value)
    if key in ("d", "points", "x", "y", "transform"):
        return _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", value)
    if key in ("href", "clip-path") and not value.startswith("data:"):
        return value.replace("#", f"#{name}-")
    return value


# Passes.


def passes_panel(passes: Passes, *, pooled: bool) -> Panel:
    """Log Z of each pass with its error bar, and the answer."""

    def draw(axis: Axes) -> None:
        number = np.arange(1, len(passes.values) + 1)
        if len(passes.errors):
            axis.errorbar(
                number, passes.values, passes.errors, fmt="o", ms=3, color=BLUE, lw=0.9
            )
        else:
            axis.plot(number, passes.values, "o", ms=3, color=BLUE)
        centre, error = passes.centre, passes.error
        if math.isfinite(centre):
            axis.axhline(centre, color=ORANGE, lw=1.2)
        if math.isfinite(centre + error):
            axis.axhspan(centre - error, centre + error, color=ORANGE, alpha=0.2, lw=0)
        if passes.truth is not None:
            axis.axhline(passes.truth, color=INK, lw=1, ls="--")
        axis.set(xlabel="replicate" if pooled else "pass", ylabel="log Z")
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        reach = [passes.values, np.array([centre - error, centre + error])]
        if len(passes.errors):
            reach += [passes.values - passes.errors, passes.values + passes.errors]
        if passes.truth is not None:
            reach.append(np.array([passes.truth]))
        axis.set_ylim(*limits(np.concatenate(reach)))

    what = "replicate" if pooled else "pass"
    answer = "all of them pooled" if len(passes.values) > 1 else "the answer"
    exact = "" if passes.truth is None else "; dashed: exact"
    return Panel(
        f"log Z of each {what}",
        f"With its own error bar. Band: {answer}{exact}.",
        draw,
    )


def strips_panel(
    title: str, rows: Mapping[str, np.ndarray], truth: float | None
) -> Panel:
    """Log Z of every pass, a row of dots for each sampler or run."""

    def draw(axis: Axes) -> None:
        if truth is not None:
            axis.axvline(truth, color=INK, lw=1, ls="--")
        for index, (label, values) in enumerate(rows.items()):
            color = SERIES[index % len(SERIES)]
            place = np.full(len(values), index)
            axis.plot(values, place, "o", ms=4, alpha=0.6, color=color, mew=0)
            axis.plot(np.mean(values), index, "|", ms=13, mew=1.6, color=color)
            _name_of_row(axis, index, label)
        known = [] if truth is None else [truth]
        values = np.concatenate([*rows.values(), known])
        axis.set(xlabel="log Z", yticks=[], ylim=(len(rows) - 0.5, -0.85))
        axis.set_xlim(*limits(values))
        axis.xaxis.set_major_locator(MaxNLocator(5))
        axis.spines["left"].set_visible(False)

    exact = "" if truth is None else " Dashed: exact."
    return Panel(
        title,
        f"log Z: a dot for each pass, a bar at the mean.{exact}",
        draw,
        height=max(1.4, 0.75 + 0.45 * len(rows)),
    )


# The ladder of temperatures.


def ladder_panels(ladder: Ladder) -> list[Panel]:
    """How hard transitions are, effective sample size, acceptance."""
    panels = [_ess_panel(ladder), _acceptance_panel(ladder)]
    if ladder.work.size:
        panels.insert(0, _work_panel(ladder))
    return panels


_LETTERS = 22
"""Of all labels under a chart together."""


def _beta_axis(axis: Axes, betas: np.ndarray) -> np.ndarray:
    """Transitions side by side, labelled with the inverse temperature they end at."""
    last = len(betas) - 1
    for most in (6, 5, 4, 3, 2):  # as many labels as there is room for, evenly
        ticks = list(range(last, 0, -max(1, math.ceil((last - 1) / (most - 1)))))[::-1]
        labels = [f"{betas[tick]:.2g}" for tick in ticks]
        if sum(map(len, labels)) <= _LETTERS:
            break
    axis.set_xticks(ticks, labels)
    axis.set_xlim(0.5, last + 0.5)
    axis.set_xlabel("inverse temperature β where it ends")
    axis.fmt_xdata = lambda place: f"{betas[int(place)]:.4g}"
    return np.arange(1, last + 1)


def _work_panel(ladder: Ladder) -> Panel:
    work = ladder.work.mean(axis=0)
    off = ~(work <= _MOST_NATS)  # also if it is not a number

    def draw(axis: Axes) -> None:
        number = _beta_axis(axis, ladder.betas)
        axis.bar(number, np.where(off, 0, work), width=0.8, color=BLUE, alpha=0.7, lw=0)
        known = work[~off]
        top = 1.15 * max(float(known.max()) if len(known) else 0.0, 0.05)
        axis.plot(
            number[off], np.full(off.sum(), 0.95 * top), "^", color=ORANGE, ms=5, mew=0
        )
        axis.set(ylim=(0, top), ylabel="nats lost")

    beyond = f" Triangles: more than {_MOST_NATS:.0f}." if off.any() else ""
    return Panel(
        "How hard transitions are",
        "How far the particles lag behind at each: low and even is a good ladder."
        + beyond,
        draw,
    )


def _ess_panel(ladder: Ladder) -> Panel:
    replicates, count = ladder.ess.shape
    resampled = ladder.resampled > 0.5

    def draw(axis: Axes) -> None:
        number = _beta_axis(axis, ladder.betas)
        share = 100 * ladder.ess
        if ladder.threshold is not None and resampled.any():
            axis.axhline(100 * ladder.threshold, color=LINE, lw=1, ls="--")
        if replicates > 1:
            for row in share[: _MOST_POINTS // 10]:
                axis.plot(number, row, color=BLUE, lw=0.6, alpha=0.3)
            axis.plot(number, share.mean(axis=0), color=BLUE, lw=1.5)
            axis.bar(number, 100 * ladder.resampled, color=LINE, alpha=0.35, lw=0)
        else:
            axis.plot(number, share[0], "o-", color=BLUE, ms=3, lw=1.3, mew=0)
            axis.plot(
                number[resampled], share[0][resampled], "o", color=ORANGE, ms=4.5, mew=0
            )
        axis.set(ylim=(0, 104), ylabel="% of the particles")

    if replicates > 1:
        words = "A line for each replicate; grey bars: share (%) that resampled."
    else:
        times = int(resampled.sum())
        often = {0: "Never resampled", 1: "Resampled once"}.get(
            times, f"Resampled {times} times"
        )
        words = (
            f"{often} in {count} transition{'s' * (count != 1)}"
            f"{' (orange)' if times else ''}."
        )
    return Panel("Effective sample size", f"After reweighting. {words}", draw)


def _acceptance_panel(ladder: Ladder) -> Panel:
    def draw(axis: Axes) -> None:
        number = _beta_axis(axis, ladder.betas)
        rates = 100 * ladder.acceptance.mean(axis=0)
        axis.plot(number, rates, "o-", color=BLUE, ms=3, lw=1.3, mew=0)
        axis.set(ylim=(0, 104), ylabel="accepted (%)")
        if ladder.step_sizes is not None:
            other = axis.twinx()
            other.plot(number, ladder.step_sizes, color=ORANGE, lw=1.2, ls="--")
            other.set_ylim(0, 1.15 * float(np.max(ladder.step_sizes)) or 1.0)
            other.set_ylabel("step size", color=ORANGE)

    sizes = "" if ladder.step_sizes is None else " Dashed: its step size."
    return Panel(
        "Acceptance of the Markov kernel", f"At each temperature.{sizes}", draw
    )


# Weights and draws.


def weights_panel(weights: np.ndarray) -> Panel:
    """How unequal weights are: the share of the heaviest."""
    count = len(weights)
    heaviest = np.concatenate([[0.0], np.cumsum(np.sort(weights)[::-1])])
    heaviest /= heaviest[-1]
    share = 100 * np.arange(count + 1) / count
    half = float(share[np.searchsorted(heaviest, 0.5)])
    zero = int(np.sum(weights <= 0))

    def draw(axis: Axes) -> None:
        axis.plot([0, 100], [0, 100], color=LINE, lw=1, ls="--")
        keep = np.unique(np.linspace(0, count, _MOST_POINTS).astype(int))
        axis.plot(share[keep], 100 * heaviest[keep], color=BLUE, lw=1.5)
        axis.set(
            xlim=(0, 100),
            ylim=(0, 104),
            xlabel="% of the draws, heaviest first",
            ylabel="% of the weight",
        )

    return Panel(
        "Weights",
        f"Half of the weight is on {half:.2g}% of the draws, "
        f"{weights.max() / weights.sum():.2%} on the heaviest"
        + (f"; {zero} have weight zero" if zero else "")
        + ". Dashed: equal weights.",
        draw,
    )


def main_draws(draws: Draws) -> tuple[str, Draws]:
    """What a corner plot shows, in words, and its columns.

    Parameters with names come first as they are; of many coordinates without names,
    the directions of largest variance stand for them.
    """
    count = len(draws.names)
    if draws.named or count <= _MANY:
        vectors = {index for each in draws.vectors().values() for index in each}
        order = sorted(range(count), key=lambda i: draws.named and i in vectors)
        chosen = sorted(order[:MOST_PARAMETERS])
        which = "all" if len(chosen) == count else f"{len(chosen)} of {count}"
        what = "parameter" if draws.named else "coordinate"
        words = f"Weighted marginals and pairs of {which} {what}s."
        if count == 1:
            words = f"Weighted marginal of the {what}."
        return words + beside_words(draws), draws.columns(chosen)
    alive = (draws.weights > 0) & np.isfinite(draws.values).all(axis=1)
    values, weights = draws.values[alive], draws.weights[alive]
    mean = weights @ values
    _, scales, directions = np.linalg.svd(
        np.sqrt(weights)[:, None] * (values - mean), full_matrices=False
    )
    kept = min(_DIRECTIONS, len(scales))
    directions = directions[:kept]
    # Only up to a sign: let the largest entry be positive.
    largest = np.take_along_axis(
        directions, np.abs(directions).argmax(axis=1)[:, None], axis=1
    )
    directions = directions * np.where(largest < 0, -1, 1)
    shares = scales**2 / max(float(np.sum(scales**2)), 1e-300)
    names = tuple(f"direction {i + 1} ({shares[i]:.0%})" for i in range(kept))
    words = (
        f"Weighted marginals and pairs along the {kept} directions in which the "
        f"particles vary most, of {count} (principal components, with their share of "
        "the variance)."
    )
    exact, prior = (
        None if each is None else (each - mean) @ directions.T
        for each in (draws.exact, draws.prior)
    )
    return words + beside_words(draws), Draws(
        names, (values - mean) @ directions.T, weights, exact, prior, named=False
    )


def beside_words(draws: Draws) -> str:
    """What a corner plot has beside the draws, in words."""
    many = len(draws.names) > 1 and _has_regions(draws.weights)
    lines = " Dotted: 5, 50 and 95 %."
    if many:
        lines += " Lines hold half and nine tenths of the draws."
    prior = "" if draws.prior is None else " Gold: the prior."
    exact = "" if draws.exact is None else " Black or white outline: exact draws."
    return lines + prior + exact


def corner(draws: Draws) -> Figure:
    """Marginals on the diagonal, pairs below it; all weighted."""
    count = len(draws.names)
    windows = [
        window(column, draws.weights, _column(draws.exact, index))
        for index, column in enumerate(draws.values.T)
    ]
    with style():
        side = {1: 2.6, 2: 2.0, 3: 1.6, 4: 1.4}.get(count, 1.25)
        width = max(count * side, 3.4)
        figure = Figure(
            (width, max(count * side, 2.4)),
            layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02),
        )
        axes = figure.subplots(count, count, squeeze=False)
        for row in range(count):
            for column in range(count):
                axis = axes[row, column]
                if column > row:
                    axis.set_axis_off()
                    continue
                if column == row:
                    draw_marginal(axis, draws, row, windows[row])
                    axis.set_title(draws.names[row], fontsize=8.5, color=FAINT)
                else:
                    _draw_pair(axis, draws, column, row, windows)
                _corner_labels(axis, draws.names, row, column)
    return figure


def _corner_labels(axis: Axes, names: Sequence[str], row: int, column: int) -> None:
    count = len(names)
    # Inner charts keep their names, unseen: `svg` tells them to the page.
    axis.xaxis.set_major_locator(MaxNLocator(3, prune="both"))
    axis.tick_params(labelsize=7.5)
    axis.set_xlabel(names[column], visible=row == count - 1)
    axis.tick_params(labelbottom=row == count - 1)
    if column == row:
        return
    axis.yaxis.set_major_locator(MaxNLocator(3, prune="both"))
    axis.set_ylabel(names[row], visible=column == 0)
    axis.tick_params(labelleft=column == 0)


def draw_marginal(
    axis: Axes, draws: Draws, index: int, limits_: tuple[float, float] | None = None
) -> None:
    """A weighted histogram with quantiles, beside prior and exact draws if known."""
    values, weights = draws.values[:, index], draws.weights
    exact = _column(draws.exact, index)
    prior = _column(draws.prior, index)
    ends = limits_ or window(values, weights, exact)
    bins = int(np.clip(2 / np.sqrt(np.sum(weights**2)), 10, 40))  # 2 sqrt(ESS)
    counts, edges = np.histogram(values, bins, ends, weights=weights)
    axis.stairs(counts, edges, fill=True, color=BLUE, alpha=0.6, lw=0)
    for value in weighted_quantiles(values, weights, _QUANTILES):
        axis.axvline(float(value), color=INK, lw=0.7, ls=":")
    if prior is not None:
        # Few of its draws may lie here: wider bins, of the same height a width.
        outline, wide = np.histogram(prior, _PRIOR_BINS, ends)
        share = outline / len(prior) * _PRIOR_BINS / bins
        axis.stairs(share, wide, color=GOLD, lw=1.2)
    if exact is not None:
        outline, _ = np.histogram(exact, bins, ends)
        axis.stairs(outline / len(exact), edges, color=INK, lw=0.9)
    axis.set(xlim=ends, yticks=[])
    axis.set_ylim(bottom=0)
    axis.spines["left"].set_visible(False)


_QUANTILES = (0.05, 0.5, 0.95)
"""As in tables of parameters."""
_PRIOR_BINS = 12
_PRIOR_DOTS = 400
_REGIONS = (0.9, 0.5)
_GRID = 48
_ENOUGH = 200.0
"""Effective draws below which lines around regions would show noise."""
_HEAVY = 0.01
"""Share of a single draw from which on such lines would be rings around it."""


def _draw_pair(
    axis: Axes,
    draws: Draws,
    across: int,
    up: int,
    windows: Sequence[tuple[float, float]],
) -> None:
    chosen = np.random.default_rng(0).choice(
        len(draws.weights), _DOTS, p=draws.weights / draws.weights.sum()
    )
    shown = [(draws.values[chosen], "#4c8bd0")]  # seen on light and on dark ground
    if draws.prior is not None:
        shown.insert(0, (draws.prior[:_PRIOR_DOTS], "#b8902f"))
    for points, color in shown:
        # As an image: hundreds of dots for each of up to 28 pairs make a page heavy.
        axis.plot(
            points[:, across],
            points[:, up],
            "o",
            ms=2.0,
            mew=0,
            alpha=0.4,
            color=color,
            rasterized=True,
        )
    axis.set(xlim=windows[across], ylim=windows[up])
    _draw_regions(axis, draws, across, up)


def _has_regions(weights: np.ndarray) -> bool:
    """Whether draws are many and even enough for lines around regions."""
    return bool(1 / np.sum(weights**2) >= _ENOUGH and weights.max() < _HEAVY)


def _draw_regions(axis: Axes, draws: Draws, across: int, up: int) -> None:
    """Lines around the smallest regions that hold half and nine tenths of the draws."""
    weights = draws.weights / draws.weights.sum()
    if not _has_regions(weights):
        return
    ends = (axis.get_xlim(), axis.get_ylim())
    mass, *edges = np.histogram2d(
        *(draws.values[:, across], draws.values[:, up], _GRID, ends), weights=weights
    )
    mass = gaussian_filter(mass, 1.0, mode="constant")
    heights = np.sort(mass.ravel())[::-1]
    held = np.cumsum(heights)
    levels = [
        float(heights[np.searchsorted(held, share)])
        for share in _REGIONS
        if held[-1] > share
    ]
    if len(set(levels)) < len(_REGIONS) or levels[0] <= 0:
        return
    middles = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    axis.contour(*middles, mass.T, levels, colors=BLUE, linewidths=0.9, alpha=0.9)


def _column(rows: np.ndarray | None, index: int) -> np.ndarray | None:
    return None if rows is None else rows[:, index]


def intervals_panel(name: str, draws: Draws) -> Panel:
    """Medians and intervals of the entries of a parameter that is a list."""

    def draw(axis: Axes) -> None:
        levels = [0.025, 0.25, 0.5, 0.75, 0.975]
        table = np.array(
            [weighted_quantiles(each, draws.weights, levels) for each in draws.values.T]
        )
        index = np.arange(len(table))
        axis.axhline(0, color=LINE, lw=0.8)
        axis.vlines(index, table[:, 0], table[:, 4], color=BLUE, lw=1)
        axis.vlines(index, table[:, 1], table[:, 3], color=BLUE, lw=3.5)
        axis.plot(index, table[:, 2], "o", color=INK, ms=3)
        axis.set(xlabel=f"index of {name}", xlim=(-0.6, len(table) - 0.4))
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    return Panel(name, "Medians, 50% and 95% intervals of all entries.", draw)


def posterior_panels(draws: Draws) -> list[Panel]:
    """Intervals of parameters that a corner plot has no room for."""
    _, shown = main_draws(draws)
    if not draws.named or len(shown.names) == len(draws.names):
        return []
    return [
        intervals_panel(name, draws.columns(columns))
        for name, columns in draws.vectors().items()
        if len(columns) > 1
    ]


# Training.


def training_panels(run: Run) -> list[Panel]:
    """Loss, log Z and the lowest ESS over training; none without a history."""
    found = []
    for key, title, label, exact in (
        ("history_log_normalizer", "log Z of each training pass", "log Z", run.truth),
        ("history_loss", "Loss", "sum over temperatures", None),
        ("history_ess", "Lowest ESS of each pass", "% of the particles", None),
    ):
        values = np.asarray(run.arrays.get(key, np.zeros(0)), np.float64)
        if key == "history_ess" and values.ndim == 2 and values.size:
            values = 100 * values.min(axis=1) / run.num_particles
        if values.ndim == 1 and np.isfinite(values).sum() > 1:
            found.append(curve_panel(values, title, label, exact))
    return found


def curve_panel(
    values: np.ndarray, title: str, label: str, exact: float | None = None
) -> Panel:
    """Every step lightly, the average over neighbouring steps on top."""

    def draw(axis: Axes) -> None:
        steps = np.arange(1, len(values) + 1, dtype=np.float64)
        width = max(1, len(values) // 25)
        smooth = np.convolve(values, np.full(width, 1 / width), mode="valid")
        middle = steps[: len(smooth)] + (width - 1) / 2
        if exact is not None:
            axis.axhline(exact, color=INK, lw=1, ls="--")
        axis.plot(*thin_out(steps, values), color=BLUE, lw=0.7, alpha=0.4)
        axis.plot(*thin_out(middle, smooth), color=BLUE, lw=1.6)
        # Untrained flows can be far off: let the later steps fill the chart.
        late = values[len(values) // 20 :]
        axis.set_ylim(*limits(late if exact is None else np.append(late, exact)))
        axis.set(xlabel="training step", ylabel=label, xlim=(1, len(values)))
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    words = "" if exact is None else " Dashed: exact."
    return Panel(title, f"Bold: average over neighbouring steps.{words}", draw)


# Particle MCMC.


def chain_panels(chain: Chain) -> list[Panel]:
    """Traces, and for a lattice its correlations and magnetisation."""
    names = [k for k, v in chain.observables.items() if v.ndim == 2][:2]
    panels = [_trace_panel("log Z", chain.log_normalizer, running=False)]
    panels += [
        _trace_panel(name.replace("_", " "), chain.observables[name], running=True)
        for name in names
    ]
    correlator = chain.observables.get("zero_momentum_correlator")
    if correlator is not None:
        if correlator.ndim == 3 and correlator.shape[-1] > 1:
            panels += [_correlator_panel(chain), _mass_panel(chain)]
        if chain.configurations is not None:
            panels.append(_chain_magnetisation_panel(chain))
    return panels


def _trace_panel(name: str, trace: np.ndarray, *, running: bool) -> Panel:
    def draw(axis: Axes) -> None:
        steps = np.arange(1, trace.shape[1] + 1, dtype=np.float64)
        for chain in trace[:8]:
            axis.plot(*thin_out(steps, chain), color=BLUE, lw=0.8, alpha=0.6)
        if running:
            mean = np.cumsum(trace.mean(axis=0)) / steps
            axis.plot(*thin_out(steps, mean), color=ORANGE, lw=1.5)
        axis.set(xlabel="iteration", ylabel=name)
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))

    words = "Orange: running mean." if running else "Of the current population."
    return Panel(f"Trace of {name}", words, draw)


def _correlator_panel(chain: Chain) -> Panel:
    def draw(axis: Axes) -> None:
        correlator = chain.mean["zero_momentum_correlator"]
        error = chain.stderr["zero_momentum_correlator"]
        half = len(correlator) // 2 + 1
        _error_bars(axis, np.arange(half), correlator[:half], error[:half], BLUE)
        axis.set(xlabel="separation in time", ylabel="C(t)")
        positive = bool(np.all(correlator[:half] > 0))
        if positive and correlator[:half].max() > 3 * correlator.min():
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter("{x:.2g}")
            axis.yaxis.set_minor_formatter("")

    return Panel("Zero-momentum correlator", "With standard errors.", draw)


def _mass_panel(chain: Chain) -> Panel:
    def draw(axis: Axes) -> None:
        mass, error = chain.derived(observables.effective_mass)
        known = np.isfinite(mass) & np.isfinite(error)
        place = 1 + np.flatnonzero(known)
        _error_bars(axis, place, mass[known], error[known], ORANGE)
        half = chain.observables["zero_momentum_correlator"].shape[-1] // 2 + 1
        axis.set(xlabel="separation in time", ylabel="mass", xlim=(0.5, half - 0.5))

    return Panel("Effective mass", "With jackknife errors.", draw)


def _error_bars(axis: Axes, x: Any, y: Any, error: Any, color: str) -> None:
    axis.errorbar(x, y, error, fmt="o", ms=3.5, color=color, capsize=2.5, lw=1)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _chain_magnetisation_panel(chain: Chain) -> Panel:
    fields = np.asarray(chain.configurations)
    values = fields.reshape(fields.shape[0] * fields.shape[1], -1).mean(axis=1)
    share = chain.mean.get("positive_magnetisation")
    error = chain.stderr.get("positive_magnetisation")
    positive = float((values > 0).mean()) if share is None else float(share)
    return magnetisation_panel(
        values,
        np.full(len(values), 1 / len(values)),
        positive,
        math.nan if error is None else float(error),
    )


def magnetisation_panel(
    values: np.ndarray, shares: np.ndarray, positive: float, error: float
) -> Panel:
    """Histogram of the magnetisation, either sign in its own colour.

    Args:
        values: Mean of each field.
        shares: Their weights, which add up to one.
        positive: Share that is positive.
        error: Its standard error; NaN if not known.
    """

    def draw(axis: Axes) -> None:
        limit = 1.05 * float(np.abs(values).max()) or 1.0
        bins = 2 * max(4, min(30, math.isqrt(len(values))) // 2 + 3)
        edges = np.linspace(-limit, limit, bins + 1)
        for keep, color in ((values <= 0, BLUE), (values > 0, ORANGE)):
            counts, _ = np.histogram(values[keep], edges, weights=shares[keep])
            axis.stairs(counts, edges, fill=True, color=color, alpha=0.75, lw=0)
        axis.axvline(0, color=INK, lw=0.8)
        axis.set(xlabel="magnetisation (mean of the field)", yticks=[])
        axis.set_ylim(bottom=0)
        axis.spines["left"].set_visible(False)

    bar = f" ± {error:.3f}" if math.isfinite(error) else ""
    return Panel(
        "Magnetisation",
        f"Positive: {positive:.3f}{bar} (exact: 0.5 by symmetry).",
        draw,
    )


# Comparisons of methods, and decoders.


def comparison_panels(comparison: Comparison) -> list[Panel]:
    """Log Z against what was spent, a line for each repeat: all, and magnified."""
    shown = [each for each in comparison.contenders if len(each.log_normalizers)]
    shown = [each for each in shown if f"{each.method}_0" in comparison.curves]
    if not shown:
        return []
    finals = np.concatenate([each.log_normalizers for each in shown])
    truth = comparison.truth
    centre = float(np.median(finals)) if truth is None else truth
    away = np.sort(np.abs(finals - centre))
    # Early training is far off: only the final estimates decide what is shown.
    widths = (max(1.4 * away[-1], 1e-3), max(2.5 * away[len(away) // 2], 1e-3))
    column = 0 if comparison.budget.unit == "seconds" else 1

    def draw(axis: Axes, width: float, legend: bool) -> None:
        for index, each in enumerate(shown):
            color = SERIES[index % len(SERIES)]
            for repeat, attempt in enumerate(each.attempts):
                curve = comparison.curves.get(f"{each.method}_{repeat}")
                if curve is None or not len(curve):
                    continue
                # Single training passes scatter so much that they would hide all else.
                deployed = curve[:, 0] > attempt.training_seconds
                x, y = curve[:, column], curve[:, 2]
                if not legend:
                    axis.plot(
                        x[~deployed], y[~deployed], color=color, lw=0.5, alpha=0.3
                    )
                axis.plot(x[deployed], y[deployed], color=color, lw=1.2, alpha=0.8)
                label = each.label if repeat == 0 else None
                axis.plot(x[-1], y[-1], "o", color=color, ms=4, mew=0, label=label)
        if truth is not None:
            axis.axhline(truth, color=INK, lw=1, ls="--", label="exact")
        axis.set(
            xlabel=f"{comparison.budget.unit} spent, training included",
            ylabel="log Z",
            ylim=(centre - width, centre + width),
        )
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        if legend:
            axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))

    budget = budget_text(comparison.budget)
    return [
        Panel(
            "All of it",
            f"{budget} for each method; dots: final estimates. Thin: training passes.",
            lambda axis: draw(axis, widths[0], legend=False),
            width=5.0,
            height=2.8,
        ),
        Panel(
            "Magnified",
            "Passes after training, near where the better half of them ends.",
            lambda axis: draw(axis, widths[1], legend=True),
            width=5.0,
            height=2.8,
        ),
    ]


def decoder_panels(decoder: Decoder) -> list[Panel]:
    """The training of a decoder."""
    values = np.asarray(decoder.arrays["elbo"], np.float64)
    if np.isfinite(values).sum() < 2:
        return []
    return [curve_panel(values, "Evidence lower bound of each batch", "nats")]


# Models by their evidence.


def evidence_panels(found: Any) -> list[Panel]:
    """Probabilities of models, Bayes factors, and what priors do to them."""
    order = sorted(found.names, key=lambda name: -found.probabilities[name])
    panels = [_probabilities_panel(found, order), _factors_panel(found, order)]
    if found.sensitivities:
        panels.append(_sensitivity_panel(found))
    return panels


def _name_of_row(axis: Axes, index: int, name: str) -> None:
    """Above what it names: beside it, names have no room on a phone."""
    axis.annotate(
        name,
        (0, index),
        xytext=(2, 9),
        xycoords=axis.get_yaxis_transform(),
        textcoords="offset points",
        fontsize=8.5,
        color=FAINT,
    )


def _model_axis(axis: Axes, names: Sequence[str]) -> None:
    """A row for each model, its name above it."""
    for index, name in enumerate(names):
        _name_of_row(axis, index, name)
    axis.set(yticks=[], ylim=(len(names) - 0.5, -0.85))
    axis.spines["left"].set_visible(False)


def _probabilities_panel(found: Any, order: Sequence[str]) -> Panel:
    def draw(axis: Axes) -> None:
        for index, name in enumerate(order):
            low, high = found.probability_intervals[name]
            prior = found.priors[found.names.index(name)]
            axis.barh(index, found.probabilities[name], 0.3, color=BLUE, alpha=0.6)
            axis.plot([low, high], [index, index], color=INK, lw=1.5)
            axis.plot([prior], [index], "|", color=ORANGE, ms=13, mew=2)
        _model_axis(axis, order)
        axis.set(xlim=(-0.01, 1.01), xlabel="probability")

    return Panel(
        "Probability of each model",
        "Line: 95 %, within the errors of log Z. Orange: before the data.",
        draw,
        height=max(1.4, 0.75 + 0.5 * len(order)),
    )


def _factors_panel(found: Any, order: Sequence[str]) -> Panel:
    best = order[0]

    def draw(axis: Axes) -> None:
        reach = [0.0]
        axis.axvline(0, color=LINE, lw=1)
        for index, name in enumerate(order):
            factor = found.log_bayes_factor(name, best)
            axis.plot([factor.low, factor.high], [index, index], color=BLUE, lw=1.5)
            axis.plot([factor.value], [index], "o", color=BLUE, ms=5, mew=0)
            reach += [factor.low, factor.high]
        _model_axis(axis, order)
        axis.set(xlabel=f"log Bayes factor against {best}", xlim=limits(reach))
        axis.xaxis.set_major_locator(MaxNLocator(5))

    return Panel(
        "Bayes factors",
        "Logarithm, with 95 % intervals.",
        draw,
        height=max(1.4, 0.75 + 0.5 * len(order)),
    )


def _sensitivity_panel(found: Any) -> Panel:
    def draw(axis: Axes) -> None:
        axis.axhline(0, color=LINE, lw=1)
        ticks = {1.0}
        for index, (name, known) in enumerate(found.sensitivities.items()):
            color = SERIES[index % len(SERIES)]
            points = [(1.0, 0.0, 0.0)]
            points += [
                (each.power, each.change, each.stderr)
                for each in known.scaled
                if math.isfinite(each.change)
            ]
            powers, changes, errors = zip(*sorted(points), strict=True)
            ticks |= set(powers)
            axis.errorbar(
                powers,
                changes,
                1.96 * np.asarray(errors),
                fmt="o-",
                ms=4,
                lw=1.2,
                color=color,
                label=name,
            )
        axis.set_xscale("log")
        axis.minorticks_off()
        axis.set_xticks(sorted(ticks), [f"{tick:g}" for tick in sorted(ticks)])
        axis.set(xlabel="power of the prior", ylabel="change of log Z")
        axis.legend()

    return Panel(
        "What priors do",
        "log Z with the prior to a power, normalised again: weaker on the left.",
        draw,
    )


# A result in memory.


def draws_of(sample: Any) -> Draws:
    """The draws of what `annealax.sample` found."""

    def by_name(found: Any) -> dict[str, np.ndarray]:
        named = found if sample.space.named else {"": found}
        return {name: np.asarray(value) for name, value in named.items()}

    prior = sample.prior_draws()
    return named_draws(
        by_name(sample.values),
        np.asarray(sample.weights),
        prior=None if prior is None else by_name(prior),
        num_replicates=len(sample.replicate_log_normalizers),
    )


def draws_of_run(result: Any) -> Draws:
    """The draws of one run of a sampler."""
    return named_draws({"": np.asarray(result.x)}, np.asarray(result.weights))


def passes_of(sample: Any) -> Passes:
    """Log Z of its replicates."""
    return Passes(
        np.asarray(sample.replicate_log_normalizers),
        np.asarray(sample.replicate_stderrs),
        sample.log_normalizer,
        sample.log_normalizer_stderr,
    )


class Picture(Figure):
    """A figure that a notebook shows, and that `show` opens in a viewer."""

    def _repr_png_(self) -> bytes:
        return png(self)

    def show(self, warn: bool = True) -> None:
        """Open the picture in the viewer of this computer."""
        from PIL import Image  # noqa: PLC0415 (comes with matplotlib)

        Image.open(io.BytesIO(png(self))).show()


def draw_sample(sample: Any) -> Figure:
    """What `annealax.sample` found: replicates, ladder, weights, pairs, marginals."""
    draws = draws_of(sample)
    steps = sample.steps
    work = np.asarray(steps.free_energy + steps.log_ratio, np.float64)
    ladder = Ladder(
        np.asarray(sample.betas),
        np.maximum(work, 0),
        np.asarray(steps.ess) / sample.num_particles,
        np.asarray(steps.resampled, float).mean(axis=0),
        np.asarray(steps.acceptance_rate),
        np.asarray(sample.step_sizes),
    )
    passes = passes_of(sample)
    doubts = len(sample.warnings())
    title = f"log Z = {estimate_text(sample.log_normalizer, passes.error)}"
    return compose(
        [
            passes_panel(passes, pooled=True),
            *ladder_panels(ladder),
            weights_panel(draws.weights),
            *draws_panels(draws),
        ],
        title + (f"   ({doubts} warning{'s' * (doubts > 1)})" if doubts else ""),
    )


def draws_panels(draws: Draws) -> list[Panel]:
    """The first pair of parameters, and the marginals of the first few."""
    names, panels = draws.names, []
    if len(names) > 1:
        windows = [window(each, draws.weights) for each in draws.values.T[:2]]

        def draw_pair(axis: Axes) -> None:
            _draw_pair(axis, draws, 0, 1, windows)
            axis.set(xlabel=names[0], ylabel=names[1])

        panels.append(Panel("Draws", "By weight.", draw_pair))
    return panels + [
        Panel(name, "", functools.partial(draw_marginal, draws=draws, index=index))
        for index, name in enumerate(names[:_MARGINALS])
    ]


# Places and limits.


def spaced(last: int, count: int) -> list[int]:
    """At most `count` whole numbers from 0 to `last`, both included."""
    return sorted({round(i) for i in np.linspace(0, last, min(count, last + 1))})


def limits(values: Any, margin: float = 0.08) -> tuple[float, float]:
    """Limits around the finite values, never empty."""
    finite = np.asarray(values, np.float64).ravel()
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    width = (high - low) * margin
    if not width > 1e-9 * max(abs(low), abs(high)):
        width = 0.5 * max(abs(low), abs(high), 1e-3)  # all the same
    return low - width, high + width


def window(
    values: np.ndarray, weights: np.ndarray, exact: np.ndarray | None = None
) -> tuple[float, float]:
    """What to show of draws: nearly all, but of heavy tails only a part."""
    found = []
    shown = [(values, weights)]
    if exact is not None:
        shown.append((exact, np.ones(len(exact))))
    for each, share in shown:
        good = np.isfinite(each) & (share > 0)
        if not good.any():
            continue
        levels = [0.001, 0.05, 0.95, 0.999]
        lowest, low, high, highest = weighted_quantiles(each[good], share[good], levels)
        reach = 2 * (high - low)
        found += [max(lowest, low - reach), min(highest, high + reach)]
    return limits(np.array(found), 0.1)


def thin_out(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most some hundred points: averages over neighbours where there are more."""
    width = -(-len(y) // _MOST_POINTS)
    if width <= 1:
        return x, y
    count = len(y) // width
    x, y = (v[: count * width].reshape(count, width).mean(axis=1) for v in (x, y))
    return x, y
