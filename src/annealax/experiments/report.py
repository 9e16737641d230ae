"""The results in words and a table, for a terminal or a plain file."""

import math
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from annealax._ladder import even_betas, work_of
from annealax.experiments._numbers import count_text, duration_text
from annealax.experiments._style import new_table
from annealax.experiments.evaluation import Evaluation, Outcome


def show(console: Console, outcome: Outcome) -> None:
    """Print the table, what it says, and the warnings."""
    console.print(table(outcome))
    for line in remarks(outcome):
        console.print(line, highlight=False)
    for line in warnings(outcome):
        console.print(f"Warning: {line}", style="yellow", highlight=False)


def table(outcome: Outcome) -> Table:
    """One row per method, the exact log Z first where it is known."""
    view = new_table(
        f"{outcome.name}, seed {outcome.seed}, "
        f"{outcome.settings.num_particles} particles"
    )
    view.add_column("")
    for header in (
        "steps",
        "log Z, one pass",
        "off by",
        f"mean of {outcome.settings.num_repeats}",
        "spread",
        "low ESS",
        "ESS",
        "time",
        "evals",
    ):
        view.add_column(header, justify="right", no_wrap=True)
    if outcome.truth is not None:
        exact = f"{outcome.truth:.4f}"
        view.add_row("exact", "", f"{exact}         ", "", exact, *[""] * 5)
    for index, row in enumerate(outcome.evaluations):
        style = "bold" if index == 0 and len(outcome.evaluations) > 1 else None
        view.add_row(*_cells(row, outcome.truth), style=style)
    return view


def _cells(row: Evaluation, truth: float | None) -> Iterator[str]:
    value = float(row.result.log_normalizer)
    error = float(row.result.log_normalizer_stderr)
    yield row.label
    yield str(row.num_transitions)
    yield f"{value:.4f} ± {error:.4f}"
    yield "?" if truth is None or error == 0 else f"{(value - truth) / error:+.1f} σ"
    yield f"{row.mean:.4f}"
    yield "?" if row.spread is None else f"{row.spread:.4f}"
    yield f"{row.lowest_ess.mean():.0%}"
    yield f"{row.ess.mean():.0%}"
    yield duration_text(row.seconds)
    yield count_text(float(row.result.num_evaluations))


def remarks(outcome: Outcome) -> Iterator[str]:
    """What the table says, whichever way it went."""
    yield (
        "steps: annealing transitions. ±: error bar from that one pass. off by: its "
        "distance from exact in error bars. mean, spread: of log Z over passes. low "
        "ESS, ESS: lowest along a pass, and final, as a share of the particles. time, "
        "evals: seconds and density evaluations per pass."
    )
    if outcome.fit is not None:
        yield (
            f"Training took {outcome.fit.seconds:.1f} s (compiling it "
            f"{outcome.fit.compile_seconds:.1f} s more), the time of "
            f"{outcome.fit.seconds / outcome.main.seconds:.0f} {outcome.main.label} "
            "passes."
        )
    if len(outcome.evaluations) > 1:
        yield from _verdict(outcome.main, outcome.evaluations[-1], outcome.truth)
    yield from _ladder_advice(outcome.main)


def _ladder_advice(row: Evaluation) -> Iterator[str]:
    """A better ladder, if one transition loses far more than the others."""
    work = work_of(row.result)
    worst, typical = int(np.argmax(work)), float(np.median(work))
    if not work[worst] >= max(1.0, 3 * typical):  # nor if it is not a number
        return
    betas = np.asarray(row.sampler.path.betas)
    even = even_betas(betas, work, len(work))
    yield (
        f"The transition from {betas[worst]:.3g} to {betas[worst + 1]:.3g} loses "
        f"{work[worst]:.1f} nats, the median one {typical:.1f}. This ladder is more "
        f"even: --set ladder={','.join(f'{beta:.4g}' for beta in even)}"
    )


def _verdict(ours: Evaluation, smc: Evaluation, truth: float | None) -> Iterator[str]:
    mine, theirs = ours.squared_error(truth), smc.squared_error(truth)
    if not mine or not theirs:
        return
    # Passes differ a little in time, and averaging passes trades time for error.
    gain = (theirs * smc.seconds) / (mine * ours.seconds)
    clear = chance_ratio(len(ours.stderrs))
    what = f"squared error of log Z at equal time, over {len(ours.stderrs)} passes each"
    if gain > clear:
        text = f"{ours.label} beats SMC: {gain:.2g} times smaller {what}."
    elif gain < 1 / clear:
        text = f"SMC beats {ours.label}: {1 / gain:.2g} times smaller {what}."
    else:
        factor = max(gain, 1 / gain)
        text = f"No clear winner: a factor of {factor:.2g} in {what}."
    yield text


def chance_ratio(num_passes: int) -> float:
    """Ratio of two mean squared errors that chance exceeds in 2.5 % of cases.

    Each is over so many passes; their logarithms have variance 2 / (n - 1) or so.
    """
    return math.exp(1.96 * math.sqrt(4 / max(num_passes - 1, 1)))


def warnings(outcome: Outcome) -> Iterator[str]:
    """Reasons to doubt the numbers."""
    for row in outcome.evaluations:
        for message in row.warnings():
            yield f"{row.label} ({row.num_transitions} steps): {message}."
    if outcome.fit is not None:
        for message in outcome.fit.warnings():
            yield f"{message}."
