"""Reasons to doubt an answer."""

from collections.abc import Iterator

import numpy as np

from annealax._doubts import Doubt
from annealax._estimates import rounding_of
from annealax.auto.aim import Aim
from annealax.auto.result import Sample

_MIN_ESS = 200
"""Fewer effective draws make expectations coarse."""

_MIN_ACCEPTANCE = 0.25
"""As a share of what tuning aims at. Between far modes it falls to a third at one or
two temperatures, and the answer is right."""

_MODE_SHARE = 0.01
"""Modes with a smaller share of the draws may be missed by a replicate."""

_LARGE_ERROR = 0.2
"""Where an error bar of log Z is larger, Z is not normal enough for it to mean much."""

_EDGE = 1e-3
"""Share of the draws at the edge of the precision that means as much beyond it."""

_HEAVY = 0.7
"""Pareto k above which a mean cannot be trusted (Vehtari et al. 2024)."""


def doubts(
    sample: Sample, escapes: float = 0.0, aim: Aim | None = None
) -> tuple[Doubt, ...]:
    """All reasons to doubt an answer; none if there are none.

    Args:
        sample: The answer.
        escapes: Share of directions in which the density seems not to be integrable.
        aim: What was asked for; None if that was a number of runs, or a budget.
    """
    return (
        *_about_tails(escapes),
        *_about_search(sample),
        *_about_replicates(sample),
        *_about_aim(sample, aim),
        *_about_weights(sample),
        *_about_edges(sample),
        *_about_steps(sample),
        *_about_modes(sample),
    )


def _about_tails(escapes: float) -> Iterator[Doubt]:
    if escapes > 0:
        yield Doubt(
            "not-integrable",
            f"the density may not have a finite integral: in {escapes:.0%} of the "
            "directions from the draws it does not fall fast enough, however far out; "
            "log Z then means nothing: give a prior, or bounds with support=",
        )


def _about_search(sample: Sample) -> Iterator[Doubt]:
    search = sample.search
    if search.lost > 0:
        yield Doubt(
            "lost-mode",
            f"about {search.lost:.0%} of the mass lies at a mode that ascents found, "
            "where there are next to no draws: log Z is too low; give the mode with "
            "initial=, or train flows with flow=",
        )
    if sample.is_contradicted:
        name, value, error = search.most_mass
        yield Doubt(
            "second-opinion",
            f"passes from another start ({name}) found log Z = {value:.4g} +- "
            f"{error:.2g}, more than this answer: it misses mass. The interval holds "
            "both; say more of what you know with prior=, region= or initial=",
        )
    if search.num_unseen >= 0.5:
        yield Doubt(
            "unseen-modes",
            f"ascents went on to find new modes: about {search.num_unseen:.0f} more "
            "may exist that the start does not know, and log Z may be too low",
        )
    elif not search.all_known and search.is_rarely_positive:
        yield Doubt(
            "unseen-modes",
            "the density is zero at nearly all points, so that few say where it is "
            "not: none of them would have fallen into a part with a tenth of the "
            f"whole with a probability of {search.chance_of_a_miss:.0%}, and log Z "
            "may be too low; give a closer region=, or bounds with support=",
        )
    elif not search.all_known and not len(search.hits):
        yield Doubt(
            "unseen-modes",
            "nothing says where to look, and the density has no gradient to follow: "
            f"{search.num_points} particles began {search.where}; a mode ten times "
            "narrower than the rest, no further out than these, is missed with a "
            f"probability of {search.chance_of_a_miss:.0%}, and log Z is then too low; "
            "give prior= or region=",
        )
    elif not search.all_known:
        yield Doubt(
            "unseen-modes",
            f"modes are very unlike: of {search.num_points} points looked at, "
            f"{search.hits.max()} led to one of them and {search.hits.min()} to "
            "another; one more, as unlike these as they are, would have been missed "
            f"with a probability of {search.chance_of_a_miss:.0%}, and log Z may be "
            "too low; say where to look with prior=, region= or initial=",
        )


def _about_edges(sample: Sample) -> Iterator[Doubt]:
    weights = np.asarray(sample.weights, np.float64)
    for name, share in sample.space.share_at_edges(sample.vectors, weights).items():
        if share > _EDGE:
            yield Doubt(
                "edge-mass",
                f"{share:.1%} of the mass of {name or 'the density'} is pressed "
                f"against a bound, nearer than {sample.vectors.dtype} can tell from "
                'it: log Z is too low. Use dtype="float64", or write the density in '
                "the logarithm of the distance from the bound",
            )


def _about_replicates(sample: Sample) -> Iterator[Doubt]:
    values, stderrs = sample.replicate_log_normalizers, sample.replicate_stderrs
    error = sample.log_normalizer_stderr
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    typical = float(np.sqrt(np.mean(np.square(stderrs))))
    if len(values) > 1 and spread > 2 * typical + 1e-3:
        yield Doubt(
            "replicates-disagree",
            f"replicates disagree: log Z differs by {spread:.2g} from one to another, "
            f"but each claims {typical:.2g}; parts of the target may be missed by "
            "some: give a larger budget",
        )
    rounding = rounding_of(values)
    if rounding > 0.5 * error:
        yield Doubt(
            "rounding",
            f"log Z is so large that it is rounded to {rounding:.2g}, which is most of "
            "its error: subtract a constant from the log density, or use "
            'dtype="float64"',
        )
    if error > _LARGE_ERROR:
        yield Doubt(
            "large-error",
            f"the error of log Z is {error:.2g}: too large for a normal "
            "approximation; give a larger budget",
        )


def _about_aim(sample: Sample, aim: Aim | None) -> Iterator[Doubt]:
    if aim is None:
        return
    error, ess = sample.log_normalizer_stderr, sample.ess
    if aim.is_reached(error, ess):
        return
    found, wanted = [], []
    if error > aim.precision:
        found.append(f"the error of log Z is {error:.2g}")
        wanted.append(f"{aim.precision:.2g}")
    if ess < aim.draws:
        found.append(f"there are {ess:.0f} effective draws")
        wanted.append(f"{aim.draws}")
    share = max((error / aim.precision) ** 2, aim.draws / max(ess, 1.0))
    yield Doubt(
        "not-as-precise",
        f"{' and '.join(found)}, not {' and '.join(wanted)} as asked for: each of the "
        f"{sample.num_replicates} runs is too imprecise by itself; it would take about "
        f"{share:.1f} times as many: give a budget, or more particles",
    )


def _about_weights(sample: Sample) -> Iterator[Doubt]:
    if sample.ess < _MIN_ESS:
        yield Doubt(
            "few-draws",
            f"the effective sample size is {sample.ess:.0f}: expectations rest on few "
            "draws; give a larger budget",
        )
    if sample.pareto_k > _HEAVY:
        yield Doubt(
            "heavy-tail",
            f"the weights have a heavy tail (Pareto k = {sample.pareto_k:.2f}, above "
            f"{_HEAVY}): log Z is probably too low and its error bar too small",
        )


def _about_steps(sample: Sample) -> Iterator[Doubt]:
    steps = sample.steps
    rates = np.asarray(steps.acceptance_rate).mean(axis=0)
    if rates.min() < _MIN_ACCEPTANCE * sample.plan.target_acceptance:
        worst = int(np.argmin(rates))
        yield Doubt(
            "low-acceptance",
            f"acceptance is {rates[worst]:.2f} at temperature {worst + 1} of "
            f"{len(rates)}: moves there are mostly refused",
        )
    for code, name, found in (
        ("nan-density", "NaN", steps.num_nan),
        ("infinite-density", "+inf", steps.num_infinite),
    ):
        counts = np.asarray(found)
        if counts.any():
            share = counts.sum() / (counts.size * sample.num_particles)
            yield Doubt(
                code,
                f"the density was {name} at {counts.sum()} of the points where "
                f"particles were weighed ({share:.2g}); they count as zero density",
            )


def _about_modes(sample: Sample) -> Iterator[Doubt]:
    modes = sample.modes
    if len(modes.weights) < 2:
        return
    few = [
        (weight, int(np.sum(shares > 0)))
        for weight, shares in zip(modes.weights, modes.shares.T, strict=True)
        if weight > _MODE_SHARE and np.mean(shares > 0) < 0.5
    ]
    if few:
        weight, seen = max(few)
        yield Doubt(
            "uncertain-modes",
            f"{len(few)} of {len(modes.weights)} modes were seen by fewer than half of "
            f"the {len(modes.shares)} replicates (one with weight {weight:.2g} by "
            f"{seen}): mode weights are uncertain, and modes may be missing",
        )
