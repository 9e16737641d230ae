"""A comparison of methods as a table, a file and a picture."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from annealax._work.budget import Budget
from annealax.experiments._numbers import count_text, duration_text, json_number
from annealax.experiments._style import INK, new_table
from annealax.experiments.comparison import DIRECT, Comparison, Row

_COLORS = ("#1f5fa8", "#d1561a", "#2e8b57", "#8a4fae", "#b8860b", "#c2185b", "#5b616d")


def show(console: Console, outcome: Comparison) -> None:
    """Print the table and how to read it."""
    console.print(table(outcome))
    for line in remarks(outcome.rows):
        console.print(line, highlight=False)


def table(outcome: Comparison) -> Table:
    """One row per method."""
    repeats = len(outcome.rows[0].attempts)
    view = new_table(
        f"{outcome.name}: {repeats} repeats of {budget_text(outcome.budget)} "
        "for each method"
    )
    view.add_column("")
    headers = ["log Z", "spread", "ESS", "evals", "training", "in all", "compile", "MB"]
    for header in headers:
        view.add_column(header, justify="right", no_wrap=True)
    view.add_column("budget went to")
    if outcome.truth is not None:
        view.add_row("exact", f"{outcome.truth:.4f}", *[""] * 8)
    for row in outcome.rows:
        values = row.log_normalizers
        spread = f"{values.std(ddof=1):.4f}" if len(values) > 1 else ""
        view.add_row(
            row.label,
            f"{values.mean():.4f}" if len(values) else "none",
            spread,
            f"{row.average('ess'):.1%}",
            count_text(row.average("evaluations")),
            duration_text(row.average("training_seconds")),
            duration_text(row.average("seconds")),
            duration_text(row.average("compile_seconds")),
            f"{row.average('memory') / 1e6:.3g}",
            row.what,
        )
    return view


def remarks(rows: Sequence[Row]) -> Iterator[str]:
    """How to read the table, and what direct MCMC says about itself."""
    yield (
        "log Z: mean over repeats, each of which pools its passes. ESS: of a final "
        "population, as a share of the particles. evals: density gradients, training "
        "included. in all: training and passes, compilation apart. MB: memory of the "
        "largest program."
    )
    for row in rows:
        if row.name in DIRECT:
            worst = max(a.rhat for a in row.attempts if a.rhat is not None)
            verdict = (
                "its chains disagree, they have not mixed"
                if worst > 1.05
                else "its chains agree"
            )
            yield f"{row.label} has no log Z; R-hat is {worst:.2f}: {verdict}."


def budget_text(budget: Budget) -> str:
    """The budget in words."""
    if budget.unit == "seconds":
        return f"{budget.amount:g} s"
    return f"{count_text(budget.amount)} evaluations"


def as_json(outcome: Comparison) -> dict[str, Any]:
    """All numbers."""
    return {
        "name": outcome.name,
        "seed": outcome.seed,
        "budget": dataclasses.asdict(outcome.budget),
        "log_normalizer_true": outcome.truth,
        "rows": [
            {
                "method": row.name,
                "what": row.what,
                "attempts": [
                    {
                        "log_normalizer": _optional(a.log_normalizer),
                        "ess": json_number(a.ess),
                        "rhat": _optional(a.rhat),
                        "evaluations": a.evaluations,
                        "training_seconds": a.training_seconds,
                        "seconds": a.seconds,
                        "compile_seconds": a.compile_seconds,
                        "memory": a.memory,
                    }
                    for a in row.attempts
                ],
            }
            for row in outcome.rows
        ],
    }


def as_arrays(outcome: Comparison) -> dict[str, np.ndarray]:
    """The curve of every repeat: seconds, evaluations, log Z."""
    return {
        f"{row.name}_{index}": attempt.curve
        for row in outcome.rows
        for index, attempt in enumerate(row.attempts)
    }


def _optional(value: float | None) -> float | None:
    return None if value is None else json_number(value)


def draw(outcome: Comparison) -> Figure:
    """Log Z against what was spent, a line for each repeat: all, and magnified."""
    budget, truth = outcome.budget, outcome.truth
    column, unit = (0, "seconds") if budget.unit == "seconds" else (1, "evaluations")
    shown = [row for row in outcome.rows if len(row.log_normalizers)]
    figure = Figure((10.5, 3.8), layout="constrained")
    axes = figure.subplots(1, 2)
    for index, row in enumerate(shown):
        color = _COLORS[index % len(_COLORS)]
        for repeat, attempt in enumerate(row.attempts):
            label = row.label if repeat == 0 else None
            # Single training passes scatter so much that they would hide all else.
            deployed = attempt.curve[:, 0] > attempt.training_seconds
            x, y = attempt.curve[~deployed][:, (column, 2)].T
            axes[0].plot(x, y, color=color, lw=0.4, alpha=0.25, zorder=1)
            x, y = attempt.curve[deployed][:, (column, 2)].T
            for axis in axes:
                axis.plot(x, y, color=color, lw=1.1, alpha=0.75, label=label)
                axis.plot(x[-1], y[-1], "o", color=color, ms=4)
    for axis, limits in zip(axes, _limits(shown, truth), strict=True):
        if truth is not None:
            axis.axhline(truth, color=INK, lw=1.2, ls="--", label="exact")
        axis.set(xlabel=f"{unit} spent, training included", ylim=limits)
    axes[0].set_ylabel("log Z")
    axes[1].set_title("magnified, passes after training")
    axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.suptitle(
        f"{outcome.name}: {budget_text(budget)} for each method; dots: final estimates",
        fontsize=10,
    )
    return figure


def _limits(rows: Sequence[Row], truth: float | None) -> list[tuple[float, float]]:
    """Of log Z: where all methods end, and where the better half of them does."""
    finals = np.concatenate([row.log_normalizers for row in rows] or [np.zeros(1)])
    centre = float(np.median(finals)) if truth is None else truth
    away = np.sort(np.abs(finals - centre))
    # Early training is far off: only the final estimates decide.
    widths = (max(1.4 * away[-1], 1e-3), max(2.5 * away[len(away) // 2], 1e-3))
    return [(centre - width, centre + width) for width in widths]
