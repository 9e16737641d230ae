"""A second look at the first runs of an answer, before it is given.

Two things may contradict it. Another start, from which passes found significantly more
mass: an estimate of Z is unbiased, so mass that was found is there, while mass that was
not found shows nowhere. And the runs themselves, where they scatter far more than
tuning led to expect, or where few initial draws make up most of Z.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from annealax._estimates import log_mean, pooled_stderr
from annealax._result import Result
from annealax.auto import gradient_free
from annealax.auto.knowledge import Knowledge
from annealax.auto.modes import CHANCE
from annealax.auto.result import SearchReport, pool_replicates
from annealax.auto.search import race, with_more
from annealax.auto.starts.base import Candidate, Seen, Tried
from annealax.auto.starts.student import Students, with_heavier_draws
from annealax.auto.tuning import Effort, Measured, Plan

_TOLERANCE, _ERRORS = 0.1, 4.0
"""More mass counts if it is more by these nats and so many error bars."""

_HEAVY = 0.7
"""Pareto k above which a mean cannot be trusted (Vehtari et al. 2024)."""

_SCATTER = 3.0
"""Runs may scatter so many times more than one alone claims."""

_SURPRISE, _LARGE = 4.0, 0.1
"""An error so many times larger than tuning expected, and as large as this, is one."""

_MUCH_LONGER = 1.5
"""A start from which passes take so many times the temperatures is a wider one."""

_LONGER = 4.0
"""A second attempt has a ladder so many times longer."""


class Remedy(NamedTuple):
    """What to do differently.

    Attributes:
        reason: Why, in words.
        seen: From where the search goes on.
        effort: How hard to try.
        is_settled: Whether the best of what was seen is to be taken as it is, and not
            to be improved.
    """

    reason: str
    seen: Seen
    effort: Effort
    is_settled: bool = False


def reconsider(
    seen: Seen, plan: Plan, expected: Measured, effort: Effort, results: list[Result]
) -> Remedy | None:
    """What to do differently after the first runs; None to go on."""
    values = np.asarray([each.log_normalizer for each in results], np.float64)
    stderrs = np.asarray([each.log_normalizer_stderr for each in results], np.float64)
    k = float(pool_replicates(results, plan)["pareto_k"])
    error = pooled_stderr(values, stderrs, k)
    seen, other = contradiction(seen, log_mean(values), error)
    if other is not None:
        more = other.log_normalizer - log_mean(values)
        reason = f"passes from the start '{other.name}' found {more:.2g} nats more mass"
        return Remedy(reason, dataclasses.replace(seen, best=other), effort)
    spread, typical = np.std(values, ddof=1), np.sqrt(np.mean(stderrs**2))
    surprise = error * np.sqrt(len(values)) / max(expected.stderr, 1e-12)
    if k > _HEAVY:
        reason = f"few initial draws made up most of Z (Pareto k {k:.2f})"
        seen = _with_heavier_draws(seen)
        wider = wider_start(seen, log_mean(values), error)
        if wider is not None:
            settled = dataclasses.replace(seen, best=wider)
            return Remedy(reason, settled, effort, is_settled=True)
    elif spread > _SCATTER * typical + 1e-2:
        reason = f"runs scattered by {spread:.2g} where each claimed {typical:.2g}"
    elif surprise > _SURPRISE and error > _LARGE:
        reason = f"the error was {surprise:.2g} times what tuning led to expect"
    else:
        return None
    return Remedy(reason, seen, Effort(effort.longer * _LONGER, try_flows=True))


def wider_start(seen: Seen, log_normalizer: float, error: float) -> Tried | None:
    """The easiest of the starts with heavier tails that agree.

    Those are starts with a longer way to the density: one that was fitted to particles
    lacks the tails that they did not reach; from a wide one, or from the prior,
    particles come in from all sides. But what was learnt of rulers must not be given
    up: where these set scales, wide starts lose the neck. And what was learnt of heavy
    tails neither. Then only heavier draws in the same coordinates will do, or, for
    tails, the prior.
    """
    best = seen.best
    assert best is not None

    def is_wider(tried: Tried) -> bool:
        base = tried.start.base_dist
        if _heavier_draws_only(best):
            same = tried.start.bijection is best.start.bijection
            is_prior = base.is_prior and not best.start.bijection.knows_rulers
            return is_prior or (same and isinstance(base, Students))
        return tried.num_transitions > _MUCH_LONGER * best.num_transitions

    wider = [
        each
        for each in seen.tried
        if each is not best
        and each.first.usable
        and each.lost == 0
        and is_wider(each)
        and not _differ(each, log_normalizer, error)
    ]
    return min(wider, key=lambda each: each.difficulty, default=None)


def _heavier_draws_only(best: Tried) -> bool:
    """Whether no other start has heavier tails for being wide."""
    is_heavy = isinstance(best.start.base_dist, Students)
    return is_heavy or best.start.bijection.knows_rulers


def _with_heavier_draws(seen: Seen) -> Seen:
    """A pass from heavier draws in the same coordinates, if only these will do."""
    best = seen.best
    assert best is not None
    heavier = with_heavier_draws(best.start)
    if heavier is None or not _heavier_draws_only(best):
        return seen
    name = f"{best.name}, heavier draws"
    raced = race(seen, Candidate(name, heavier), lambda text: None)
    return dataclasses.replace(raced, best=best)


def _differ(tried: Tried, log_normalizer: float, error: float) -> bool:
    difference = abs(tried.log_normalizer - log_normalizer)
    return difference > _TOLERANCE + _ERRORS * float(np.hypot(tried.stderr, error))


def contradiction(
    seen: Seen, log_normalizer: float, error: float
) -> tuple[Seen, Tried | None]:
    """A start from which passes find more mass, looked at more than once."""
    found = None
    for tried in seen.tried:
        if tried is seen.best or not tried.first.usable:
            continue
        if not _is_more(tried, log_normalizer, error):
            continue
        closer = with_more(seen, tried)
        others = tuple(closer if each is tried else each for each in seen.tried)
        seen = dataclasses.replace(seen, tried=others)
        more = _is_more(closer, log_normalizer, error)
        if more and (found is None or closer.log_normalizer > found.log_normalizer):
            found = closer
    return seen, found


def _is_more(tried: Tried, log_normalizer: float, error: float) -> bool:
    is_larger = tried.log_normalizer > log_normalizer
    return is_larger and _differ(tried, log_normalizer, error)


def report_of(seen: Seen, known: Knowledge, lost: float = 0.0) -> SearchReport:
    """What the search can say for itself.

    Args:
        seen: What was seen.
        known: What was known before.
        lost: Largest share of the mass, at a known mode, that the answer lost.
    """
    modes = seen.modes.that_count().peaks()
    best = seen.best
    assert best is not None
    others = [each for each in seen.tried if each is not best and each.first.usable]
    other = max(others, key=lambda each: each.num_transitions, default=None)
    where, num_points = str(known.places), int(seen.modes.hits.sum())
    of_modes = best.start.is_of_modes or best.start.has_parts
    in_doubt = of_modes and not seen.knows_terms
    all_known = modes.all_known or not in_doubt
    chance = modes.chance_of_a_miss if in_doubt else 0.0
    chance = max(chance, seen.chance_of_empty)
    all_known = all_known and seen.chance_of_empty < CHANCE
    if not seen.density.has_gradient:
        where = gradient_free.where(known)
        num_points = gradient_free.PARTICLES * len(
            gradient_free.wide_starts(seen.density, known)
        )
        chance = gradient_free.chance_of_a_miss(seen.density.size)
        all_known = known.is_limited or chance < CHANCE
    return SearchReport(
        where=where,
        is_limited=known.is_limited,
        num_points=num_points,
        hits=np.asarray(modes.hits),
        num_unseen=modes.num_unseen if in_doubt else 0.0,
        all_known=all_known,
        chance_of_a_miss=chance,
        other_start="" if other is None else other.name,
        other_log_normalizer=np.nan if other is None else other.log_normalizer,
        other_stderr=np.nan if other is None else other.stderr,
        most_mass=_most_mass(seen),
        lost=lost,
        is_rarely_positive=seen.chance_of_empty > 0,
        num_terms=len(seen.terms.modes) if seen.terms and seen.knows_terms else 0,
    )


def _most_mass(seen: Seen) -> tuple[str, float, float]:
    """The start whose passes found most for sure: name, log Z and error."""
    usable = [each for each in seen.tried if each.first.usable]
    most = max(usable, key=lambda each: each.log_normalizer - _ERRORS * each.stderr)
    return most.name, most.log_normalizer, most.stderr
