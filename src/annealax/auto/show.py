"""The answer on one screen."""

import math
from collections.abc import Iterator

import numpy as np

from annealax._doubts import Doubt
from annealax._estimates import tail_factor
from annealax._words import PARAMETER_HEADERS, headline, parameter_cells
from annealax.auto.result import Sample
from annealax.models.plain import PlainModel

_MAX_ROWS = 12
_WIDTH = 79
_INDENT = " " * 10


def summarise(sample: Sample) -> str:
    """All that matters about an answer, as text of at most one screen."""
    value, error = sample.log_normalizer, sample.log_normalizer_stderr
    low, high = sample.log_normalizer_interval()
    verdict = headline(value, error, len(sample.messages)).replace("±", "+-")
    lines = [
        f"{verdict}{':' if sample.messages else '.'}".replace(", see below", ""),
        *_doubts(sample.messages),
        "",
        f"log Z     {value:.4f} +- {error:.4f}; with a probability of 95 % between "
        f"{low:.4f} and",
        f"{_INDENT}{high:.4f}, by {sample.num_replicates} independent runs "
        f"(replicates) of {sample.num_particles} particles",
        *_line(
            "draws",
            f"{len(sample.log_weights)} with weights, worth {sample.ess:.0f} without"
            f"{_tail(sample.pareto_k)}",
        ),
        "",
        *_parameters(sample),
        "",
        *(row for each in notes(sample).items() for row in _line(*each)),
    ]
    return "\n".join(lines)


def notes(sample: Sample) -> dict[str, str]:
    """How the answer was found, a sentence for each part, by its name."""
    parts = (_modes, _prior, _search, _choices, _costs)
    return dict(pair for part in parts for pair in part(sample))


def _tail(k: float) -> str:
    if math.isnan(k):
        return ""
    widened = "; error bar widened for it" if tail_factor(k) > 1 else ""
    kind = "light" if k <= 0.35 else "heavy" if k <= 0.7 else "too heavy to trust"
    return f"; the tail of the weights is {kind} (Pareto k {k:.2f} of 0.7{widened})"


def _doubts(messages: tuple[Doubt, ...]) -> Iterator[str]:
    for message in messages:
        yield from _wrap(message, "  - ", "    ")
        yield from _wrap(f"[{message.code}: {Doubt.CODES[message.code][1]}]", *_REMEDY)


_REMEDY = ("    ", "    ")


def _parameters(sample: Sample) -> Iterator[str]:
    names, columns = sample.columns()
    weights = np.asarray(sample.weights, np.float64)
    weights = weights / weights.sum()
    shown = list(zip(names, columns.T, strict=True))[:_MAX_ROWS]
    rows = [
        (name, *parameter_cells(column, weights, sample.num_replicates))
        for name, column in shown
    ]
    rows.insert(0, ("parameter", *PARAMETER_HEADERS))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for name, *cells in rows:
        texts = [f"{c:>{w}}" for c, w in zip(cells, widths[1:], strict=True)]
        yield f"{name:<{widths[0]}}  {'  '.join(texts)}"
    if len(names) > _MAX_ROWS:
        yield f"... and {len(names) - _MAX_ROWS} more"
    yield "3.702(4) means 3.702 +- 0.004; columns with % are quantiles."


_Note = Iterator[tuple[str, str]]
"""What a part of the answer says, and what it is about."""


def _prior(sample: Sample) -> _Note:
    why = sample.model.why_no_prior
    if why and not isinstance(sample.model, PlainModel):
        yield (
            "prior",
            f"log Z is of the whole density, which has no prior to start from: {why}",
        )


def _modes(sample: Sample) -> _Note:
    weights = sample.modes.weights
    if len(weights) < 2:
        return
    shown = ", ".join(f"{weight:.3f}" for weight in weights[:6])
    more = ", ..." if len(weights) > 6 else ""
    yield (
        "peaks",
        f"{len(weights)} among the draws; share of the draws nearest to each: "
        f"{shown}{more}",
    )


def _search(sample: Sample) -> _Note:
    search = sample.search
    count = len(search.hits)
    found = "no mode" if count == 0 else "one mode" if count == 1 else f"{count} modes"
    hits = ""
    if count > 1:
        hits = f", the rarest {search.hits.min()} times"
    limited = "; nowhere else" if search.is_limited else ""
    text = (
        f"{search.num_points} points {search.where}{limited}; {found}{hits}; a "
        f"further one is found with 95 % if {search.smallest_share:.1g} of the points "
        "lead to it"
    )
    if search.num_terms:
        text = (
            f"your density is written as a sum of {search.num_terms} terms, each of "
            f"which was climbed by itself; beside that, {text}"
        )
    if sample.plan.members is not None:
        text = (
            f"by particles alone: the density has no gradient; {search.num_points} of "
            f"them began {search.where}{limited}"
        )
    if search.other_start:
        text += (
            f"; second opinion ({search.other_start}): log Z "
            f"{search.other_log_normalizer:.3f} +- {search.other_stderr:.2g}"
        )
    yield "search", text
    if sample.choices.get("second thoughts", "none") != "none":
        yield "again", sample.choices["second thoughts"]


def _choices(sample: Sample) -> _Note:
    rates = np.asarray(sample.steps.acceptance_rate).mean(axis=0)
    yield "start", sample.choices["start"]
    yield (
        "steps",
        f"{len(sample.betas) - 1} from the start to your density (the ladder of "
        f"temperatures); at each, {_moves(sample)} with step "
        f"size {sample.step_sizes.min():.2g} to {sample.step_sizes.max():.2g}, "
        f"{rates.min():.0%} to {rates.max():.0%} accepted",
    )
    yield "flows", sample.choices["flows"]


def _moves(sample: Sample) -> str:
    if sample.plan.members is None:
        return f"HMC of {sample.num_leapfrog} leapfrogs"
    return f"walks of {sample.num_leapfrog} proposals"


def _costs(sample: Sample) -> _Note:
    if calls := sample.choices.get("calls"):
        yield "calls", calls
    parts = ", ".join(
        f"{stage.name} {stage.evaluations:.2g} ({stage.seconds:.1f} s)"
        for stage in sample.stages
    )
    if (devices := sample.num_devices) > 1:
        yield "devices", f"{devices}, which shared out replicates or their particles"
    yield (
        "cost",
        f"{sample.num_evaluations:.3g} density evaluations in {sample.seconds:.1f} s, "
        f"{sum(stage.compiling for stage in sample.stages):.1f} s of it for compiling: "
        f"{parts}. Half the error takes about {3 * _of_answer(sample):.2g} more: "
        f"precision={sample.log_normalizer_stderr / 2:.1g}",
    )


def _of_answer(sample: Sample) -> int:
    """Evaluations behind the answer itself: four times as many halve its error."""
    found = (each.evaluations for each in sample.stages if each.name == "answer")
    return next(found, 0)


def _line(label: str, text: str) -> Iterator[str]:
    return _wrap(text, f"{label:<{len(_INDENT)}}", _INDENT)


def _wrap(text: str, first: str, rest: str) -> Iterator[str]:
    line = first
    for word in text.split(" "):
        if len(line) + len(word) > _WIDTH and line.strip():
            yield line.rstrip()
            line = rest
        line += word + " "
    yield line.rstrip()
