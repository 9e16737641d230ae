"""The answer on one screen."""

import math
from collections.abc import Iterator

import numpy as np

from annealax._estimates import tail_factor
from annealax.auto.result import Sample

_MAX_ROWS = 12
_WIDTH = 79


def summarise(sample: Sample) -> str:
    """All that matters about an answer, as text of at most one screen."""
    low, high = sample.log_normalizer_interval()
    lines = [
        f"log Z  {sample.log_normalizer:.4f} +- {sample.log_normalizer_stderr:.4f}   "
        f"({sample.num_replicates} replicates of {sample.num_particles} particles)",
        f"       {low:.4f} to {high:.4f} with a probability of 95 %",
        f"ESS    {sample.ess:.0f} of {len(sample.log_weights)} draws"
        + _tail(sample.pareto_k),
        "",
        *_doubts(sample),
        "",
        *_parameters(sample),
        "",
        *_modes(sample),
        *_search(sample),
        *_choices(sample),
        *_costs(sample),
    ]
    return "\n".join(lines)


def _tail(k: float) -> str:
    if math.isnan(k):
        return ""
    widened = " (error bar widened for it)" if tail_factor(k) > 1 else ""
    return f"; tail of the weights: Pareto k {k:.2f}{widened}"


def _doubts(sample: Sample) -> Iterator[str]:
    if not sample.messages:
        yield "No reason to doubt this answer was found."
        return
    yield "Reasons to doubt this answer:"
    for message in sample.messages:
        yield from _wrap(message, "  - ", "    ")


def _parameters(sample: Sample) -> Iterator[str]:
    names = sample.space.coordinate_names()
    mean, std, error = (
        _flat(sample, each)
        for each in (sample.mean(), sample.std(), sample.mean_stderr())
    )
    width = max(9, *(len(name) for name in names[:_MAX_ROWS]))
    yield f"{'parameter':<{width}}  {'mean':>11}  {'+-':>9}  {'sd':>10}"
    for name, m, e, s in list(zip(names, mean, error, std, strict=True))[:_MAX_ROWS]:
        yield f"{name:<{width}}  {m:>11.5g}  {e:>9.2g}  {s:>10.4g}"
    if len(names) > _MAX_ROWS:
        yield f"... and {len(names) - _MAX_ROWS} more"


def _flat(sample: Sample, values) -> np.ndarray:
    if not sample.space.named:
        return np.ravel(values)
    names = [each.name for each in sample.space.parameters]
    return np.concatenate([np.ravel(values[name]) for name in names])


def _modes(sample: Sample) -> Iterator[str]:
    weights = sample.modes.weights
    if len(weights) < 2:
        return
    shown = ", ".join(f"{weight:.3f}" for weight in weights[:6])
    more = ", ..." if len(weights) > 6 else ""
    yield from _wrap(
        f"{len(weights)} peaks among the draws; share of the draws nearest to each: "
        f"{shown}{more}",
        "",
        "  ",
    )


def _search(sample: Sample) -> Iterator[str]:
    search = sample.search
    count = len(search.hits)
    found = "no mode" if count == 0 else "one mode" if count == 1 else f"{count} modes"
    hits = ""
    if count > 1:
        hits = f", the rarest {search.hits.min()} times"
    limited = "; nowhere else" if search.is_limited else ""
    text = (
        f"search  {search.num_points} points {search.where}{limited}; {found}{hits}; a "
        f"further one is found with 95 % if {search.smallest_share:.1g} of the points "
        "lead to it"
    )
    if search.other_start:
        text += (
            f"; second opinion ({search.other_start}): log Z "
            f"{search.other_log_normalizer:.3f} +- {search.other_stderr:.2g}"
        )
    yield from _wrap(text, "", "        ")
    if sample.choices.get("second thoughts", "none") != "none":
        line = f"again   {sample.choices['second thoughts']}"
        yield from _wrap(line, "", "        ")


def _choices(sample: Sample) -> Iterator[str]:
    rates = np.asarray(sample.steps.acceptance_rate).mean(axis=0)
    yield from _wrap(f"start   {sample.choices['start']}", "", "        ")
    yield from _wrap(
        f"ladder  {len(sample.betas) - 1} transitions; HMC of {sample.num_leapfrog} "
        f"leapfrogs, step sizes {sample.step_sizes.min():.2g} to "
        f"{sample.step_sizes.max():.2g}, acceptance {rates.min():.2f} to "
        f"{rates.max():.2f}",
        "",
        "        ",
    )
    yield from _wrap(f"flows   {sample.choices['flows']}", "", "        ")


def _costs(sample: Sample) -> Iterator[str]:
    parts = ", ".join(
        f"{stage.name} {stage.evaluations:.2g} ({stage.seconds:.1f} s)"
        for stage in sample.stages
    )
    yield from _wrap(
        f"cost    {sample.num_evaluations:.3g} density evaluations in "
        f"{sample.seconds:.1f} s, compilation included: {parts}",
        "",
        "        ",
    )


def _wrap(text: str, first: str, rest: str) -> Iterator[str]:
    line = first
    for word in text.split(" "):
        if len(line) + len(word) > _WIDTH and line.strip():
            yield line.rstrip()
            line = rest
        line += word + " "
    yield line.rstrip()
