"""Results as a notebook shows them: a sentence, warnings, a small table, a picture."""

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from annealax import _words
from annealax._estimates import log_mean
from annealax.auto.show import notes as notes_of
from annealax.report import charts, tables
from annealax.report.page import Chart, environment, remedies
from annealax.report.read import Draws

_MOST_ROWS = 12
_MOST_PAIRS = 4


def render(
    headline: str,
    *,
    lines: Iterable[str] = (),
    doubts: Iterable[str] = (),
    found: Sequence[tables.Table] = (),
    panels: Sequence[charts.Panel] = (),
    figures: Sequence[tuple[Figure, str]] = (),
    notes: Mapping[str, str] | None = None,
) -> str:
    """An answer as a part of a notebook.

    Args:
        headline: The answer in a sentence.
        lines: More sentences.
        doubts: Reasons to doubt it.
        found: Tables.
        panels: Charts.
        figures: Figures with their captions; they come before the charts.
        notes: How it was found, folded away.
    """
    # One notebook shows many of them, and identifiers of charts must differ.
    name = f"a{uuid.uuid4().hex[:8]}"
    numbers = itertools.count(1)

    def chart(figure: Figure, title: str, caption: str) -> Chart:
        words = f"{title}. {caption}" if title else caption
        text = charts.svg(figure, f"{name}-{next(numbers)}", words)
        return Chart(title, caption, Markup(text))

    shown = [chart(figure, "", caption) for figure, caption in figures]
    shown += [chart(charts.alone(each), each.title, each.caption) for each in panels]
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(
            headline=headline,
            lines=list(lines),
            doubts=remedies(doubts),
            tables=found,
            charts=shown,
            notes=notes or {},
        )
    )


def sample_html(sample: Any) -> str:
    """What `annealax.sample` found."""
    draws = charts.draws_of(sample)
    low, high = sample.log_normalizer_interval()
    doubts = sample.warnings()
    count = len(draws.names)
    kept = draws.columns(list(range(min(count, _MOST_ROWS))))
    table = tables.parameter_table(kept)
    lines = [
        f"95 % interval {low:.4f} to {high:.4f}, by {sample.num_replicates} "
        f"independent replicates of {sample.num_particles} particles; draws worth "
        f"{sample.ess:.0f} without weights. "
        f"{tables.count_text(float(sample.num_evaluations))} density evaluations in "
        f"{tables.duration_text(sample.seconds)}."
    ]
    if count > _MOST_ROWS:
        lines.append(f"The first {_MOST_ROWS} of {count} parameters:")
    pairs = draws.columns(list(range(min(count, _MOST_PAIRS))))
    caption = _pairs_caption(pairs, count)
    return render(
        _words.headline(
            sample.log_normalizer, sample.log_normalizer_stderr, len(doubts)
        ),
        lines=lines,
        doubts=doubts,
        found=[table],
        panels=[charts.passes_panel(charts.passes_of(sample), pooled=True)],
        figures=[(charts.corner(pairs), caption)],
        notes=notes_of(sample),
    )


def evidence_html(found: Any) -> str:
    """A comparison of models by their evidence."""
    return render(
        found.headline(),
        doubts=found.warnings(),
        found=tables.evidence_tables(found),
        panels=charts.evidence_panels(found),
    )


def result_html(result: Any) -> str:
    """One run of a sampler."""
    doubts = result.warnings()
    draws = charts.draws_of_run(result)
    kept = draws.columns(list(range(min(len(draws.names), _MOST_ROWS))))
    lines = [f"{_run_words(result)}."]
    if len(draws.names) > _MOST_ROWS:
        lines.append(f"The first {_MOST_ROWS} of {len(draws.names)} coordinates:")
    pairs = draws.columns(list(range(min(len(draws.names), _MOST_PAIRS))))
    return render(
        _words.headline(
            float(result.log_normalizer),
            float(result.log_normalizer_stderr),
            len(doubts),
        ),
        lines=lines,
        doubts=doubts,
        found=[tables.parameter_table(kept)],
        figures=[(charts.corner(pairs), _pairs_caption(pairs, len(draws.names)))],
    )


def _pairs_caption(pairs: Draws, count: int) -> str:
    first = f" of the first {_MOST_PAIRS}" if count > _MOST_PAIRS else ""
    return f"Weighted marginals and pairs{first}.{charts.beside_words(pairs)}"


def _run_words(result: Any) -> str:
    return (
        f"One run of {len(result.log_weights)} particles, worth "
        f"{float(result.ess):.0f} without weights; "
        f"{len(np.asarray(result.steps.ess))} transitions"
    )


def fit_html(fit: Any) -> str:
    """A fit of flows."""
    history, doubts = fit.history, fit.warnings()
    loss = np.asarray(history.loss, np.float64)
    values = np.asarray(history.log_normalizer, np.float64)
    panels = [
        charts.curve_panel(each, title, label)
        for each, title, label in (
            (loss, "Loss", "sum over temperatures"),
            (values, "log Z of each training pass", "log Z"),
        )
        if each.ndim == 1 and np.isfinite(each).sum() > 1
    ]
    return render(
        _words.fit_line(len(loss), loss, len(doubts)),
        lines=[
            f"{tables.duration_text(fit.seconds)} of training, and "
            f"{tables.duration_text(fit.compile_seconds)} to compile it. Its flows "
            "go into sampler.run(key, flows)."
        ],
        doubts=doubts,
        panels=panels,
    )


def chain_html(chain: Any) -> str:
    """Chains of particle MCMC."""
    proposals = np.asarray(chain.proposed_log_normalizer, np.float64).ravel()
    chains, steps = chain.accepted.shape
    return render(
        f"Particle MCMC: {chain.acceptance_rate:.0%} of proposals accepted",
        lines=[
            f"{chains} chain{'s' * (chains > 1)} of {steps} iterations; log Z of all "
            f"proposals together {log_mean(proposals):.4f}."
        ],
        found=[tables.expectations_table("Expectations", chain)],
        panels=charts.chain_panels(chain)[:3],
    )
