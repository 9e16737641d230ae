"""The search for a start: where the modes are, starts that compete, and the winner.

A start is better if a pass from it finds significantly more mass (a start that misses
part of the target finds too little), and, where that does not decide, if it needs less
work for the same accuracy. So a narrow start never wins against a wide one that sees
more. Where these two point to different starts and the first is a near thing, more
passes decide.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import PRNGKeyArray

from annealax._errors import SamplingError
from annealax._keys import named_key
from annealax.auto.adaptive_smc import MAX_TEMPERATURES, AdaptivePass, adaptive_pass
from annealax.auto.density import CountedDensity
from annealax.auto.modes import DEPTH, MAX_MODES, Ascents, explore
from annealax.auto.starts import PROPOSALS
from annealax.auto.starts.base import Candidate, Seen, Start, Tried, WideNormal
from annealax.auto.starts.gaussian import MAX_FULL_SIZE, Linear, normal_start
from annealax.auto.starts.hierarchy import NAME as HIERARCHY
from annealax.auto.starts.hierarchy import Hierarchy, fit_hierarchy
from annealax.auto.starts.mixture import (
    MAX_MIXTURE_SIZE,
    peaks_at,
    start_at_peaks,
)

MANY_DIMENSIONS = 500
"""Where an evaluation is dear, less is tried."""

_PARTICLES, _FEW_PARTICLES = 1000, 400
"""Particles of a pass that only compares starts; the latter in many dimensions."""

_ROUNDS = 3
"""Rounds of proposals, at most: later ones start from better particles."""

_WORTH_A_ROUND = 1.5
"""A round that gained less than this factor was the last."""

_ALLOWED, _ALLOWED_DEAR = 60, 20
"""Temperatures that a start may always take; the latter in many dimensions."""

_LONGER = 1.5
"""A start that takes so many times the temperatures of the best has lost."""

_MORE_PASSES = 3
"""Passes that decide a near thing."""

_TOLERANCE, _ERRORS = 0.1, 3
"""Estimates of log Z that differ by less than these nats and error bars agree."""

_LEVEL = 0.1
"""Nats by which a start may favour one mode over another."""

_WIDER, _WIDE_PASSES = 10.0, 3
"""A wide start looks so many times further than the best, in so many passes."""

_POLISHINGS, _POOLED, _POLISHED_GAIN = 2, 4, 0.3
"""A hierarchy is fitted again so often, to so many passes, unless it gets worse.

Of two that agree, the one that was fitted to more particles is preferred.
"""

Say = Callable[[str], None]


def search(key: PRNGKeyArray, density: CountedDensity, say: Say) -> Seen:
    """Find modes, let starts compete, and improve the best from its particles.

    Args:
        key: Random key.
        density: The density, of an unconstrained vector.
        say: Called with a line of text now and then.

    Raises:
        SamplingError: If no pass came to its end.
    """
    ascents = Ascents(density)
    modes = explore(named_key(key, "ascents"), ascents)
    kept = modes.highest(DEPTH).points
    wide = WideNormal(np.zeros(density.size), np.ones(density.size))
    if len(kept) > 1:
        wide = _as_wide_as(kept)
    seen = Seen(density, key, modes, wide)
    seen = _start_at_modes(seen, say)
    if len(kept) > 1:
        name = f"normal as wide as {len(kept)} modes"
        seen = race(seen, Candidate(name, normal_start(Linear.scaled(*wide))), say)
    standard = normal_start(Linear.identity(density.size))
    seen = race(seen, Candidate("standard normal", standard), say)
    seen = _look_wider(seen, ascents, say)
    if seen.best is None:
        raise SamplingError(
            "no pass reached the target: the log density may be -inf or NaN nearly "
            "everywhere, or be far from anything that a normal start of scale 0.3 to "
            "100 can find; rescale the parameters, or give bounds with support="
        )
    for _ in range(_ROUNDS):
        before = seen.best
        for propose in PROPOSALS:
            for candidate in propose(seen):
                seen = race(seen, candidate, say)
        assert seen.best is not None
        if gain_of(before, seen.best) < _WORTH_A_ROUND:
            break
    return _polish(seen, say)


def race(seen: Seen, candidate: Candidate, say: Say) -> Seen:
    """Try a start; it is the best from now on if it does enough better."""
    name, start = candidate
    best, tried = seen.best, seen.tried
    limit = MAX_TEMPERATURES
    if best is not None:
        dear = seen.density.size > MANY_DIMENSIONS
        allowed = _ALLOWED_DEAR if dear else _ALLOWED
        limit = max(allowed, int(_LONGER * (best.num_transitions + 1)))
    key = named_key(seen.key, "race", name, seen.times(name))
    new = Tried(name, start, (_one_pass(key, seen.density, start, limit),))
    usable = new.first.usable
    if best is not None and usable and is_doubtful(best, new):
        old, best, new = best, _look_again(seen, best), _look_again(seen, new)
        tried = tuple(best if each is old else each for each in tried)
    say(str(new))
    if usable and (best is None or is_better(best, new)):
        best = new
    return dataclasses.replace(seen, tried=(*tried, new), best=best)


def gain_of(old: Tried, new: Tried) -> float:
    """How many times better `new` is; infinite or zero where one misses mass."""
    difference = new.log_normalizer - old.log_normalizer
    if abs(difference) > _tolerance(old, new):
        return float("inf") if difference > 0 else 0.0
    return old.difficulty / max(new.difficulty, 1e-12)


def is_better(old: Tried, new: Tried) -> bool:
    """Whether `new` is to be preferred."""
    needed = new.start.bijection.gain_needed(old.start.bijection)
    return gain_of(old, new) > needed


def is_doubtful(old: Tried, new: Tried) -> bool:
    """Whether the one that needs less work may well miss mass that the other sees."""
    difference = new.log_normalizer - old.log_normalizer
    tolerance = _tolerance(old, new)
    if not tolerance / 2 < abs(difference) <= tolerance:
        return False
    return is_better(old, new) == (difference < 0)


def _tolerance(old: Tried, new: Tried) -> float:
    """Estimates of log Z that differ by less say nothing."""
    return _TOLERANCE + _ERRORS * float(np.hypot(new.stderr, old.stderr))


def num_unseen(seen: Seen) -> float:
    """Modes that the best start probably lacks, if it is made of modes."""
    assert seen.best is not None
    return seen.modes.highest(DEPTH).num_unseen if seen.best.start.is_of_modes else 0.0


def _look_again(seen: Seen, tried: Tried) -> Tried:
    """With more passes, unless that was done before."""
    if len(tried.passes) > 1:
        return tried
    key = named_key(seen.key, "again", tried.name, seen.times(tried.name))
    limit = 2 * (tried.num_transitions + 1)
    found = [
        _one_pass(named_key(key, index), seen.density, tried.start, limit)
        for index in range(_MORE_PASSES)
    ]
    usable = tuple(each for each in found if each.usable)
    return dataclasses.replace(tried, passes=(tried.first, *usable))


def _start_at_modes(seen: Seen, say: Say) -> Seen:
    """Try Gaussians at the peaks of the modes, if there are not too many."""
    modes = seen.modes.highest(DEPTH)
    count = len(modes.points)
    largest = MAX_FULL_SIZE if count == 1 else MAX_MIXTURE_SIZE
    if count > MAX_MODES or seen.density.size > largest:
        return seen
    peaks = peaks_at(seen.density, modes)
    seen = dataclasses.replace(seen, num_peaks=len(peaks.fits))
    candidate = start_at_peaks(peaks, seen.wide)
    return seen if candidate is None else race(seen, candidate, say)


def _look_wider(seen: Seen, ascents: Ascents, say: Say) -> Seen:
    """If one mode is known: others that a wide start finds, and ascents do not.

    A broad mode draws nearly all ascents from where they start. Particles settle also
    in narrow ones.
    """
    best, size = seen.best, seen.density.size
    alone = len(seen.modes.highest(DEPTH).points) <= 1
    if best is None or not alone or size > MAX_MIXTURE_SIZE:
        return seen
    x = np.asarray(best.x, np.float64)
    mean = best.weights @ x
    scale = np.sqrt(best.weights @ (x - mean) ** 2)
    wide = WideNormal(mean, _WIDER * np.maximum(scale, 1.0))
    start = normal_start(Linear.scaled(*wide))
    seen = dataclasses.replace(seen, wide=wide)
    seen = race(seen, Candidate("wide normal", start), say)
    passes = [seen.tried[-1].first]
    key = named_key(seen.key, "wide")
    if passes[0].reached:
        passes += [
            _one_pass(named_key(key, index), seen.density, start)
            for index in range(1, _WIDE_PASSES)
        ]
    passes = [each for each in passes if each.usable]
    if not passes:
        return seen
    x = np.concatenate([start.bijection.positions(each.z) for each in passes])
    weights = np.concatenate([each.weights / len(passes) for each in passes])
    found = ascents.from_particles(named_key(key, "ascents"), x, weights)
    modes = ascents.together(seen.modes, found)
    seen = dataclasses.replace(seen, modes=modes)
    several = len(modes.highest(DEPTH).points) > 1
    return _start_at_modes(seen, say) if several else seen


def _polish(seen: Seen, say: Say) -> Seen:
    """Fit a hierarchy to the particles of several passes.

    In the neck of a funnel small errors of its slopes are many times the scale.
    """
    key = named_key(seen.key, "polish")
    for index in range(_POLISHINGS):
        best = seen.best
        assert best is not None
        if not isinstance(best.start.bijection, Hierarchy):
            break
        *keys, last = (named_key(key, index, i) for i in range(_POOLED + 1))
        passes = [_one_pass(each, seen.density, best.start) for each in keys]
        z = np.concatenate([each.z for each in passes])
        log_masses = np.asarray([each.log_normalizer for each in passes])
        shares = np.exp(log_masses - log_masses.max())
        weights = np.concatenate(
            [share * each.weights for share, each in zip(shares, passes, strict=True)]
        )
        x = best.start.bijection.positions(z)
        fitted = fit_hierarchy(x, weights / shares.sum())
        if fitted is None:
            break
        start = normal_start(fitted)
        found = _one_pass(last, seen.density, start)
        new = Tried(f"{HIERARCHY}, polished", start, (found,))
        say(str(new))
        better = found.usable and gain_of(best, new) > _POLISHED_GAIN
        seen = dataclasses.replace(
            seen, tried=(*seen.tried, new), best=new if better else best
        )
    return seen


def _one_pass(
    key: PRNGKeyArray,
    density: CountedDensity,
    start: Start,
    limit: int = MAX_TEMPERATURES,
) -> AdaptivePass:
    dear = density.size > MANY_DIMENSIONS
    return adaptive_pass(
        key,
        start.path(density.log_density, 1),
        density,
        num_particles=_FEW_PARTICLES if dear else _PARTICLES,
        max_temperatures=limit,
    )


def _as_wide_as(points: np.ndarray) -> WideNormal:
    """Centre and scale so wide that no mode has a head start over another."""
    centre = points.mean(axis=0)
    scale = np.maximum(points.std(axis=0), 1.0)
    heights = 0.5 * np.sum(((points - centre) / scale) ** 2, axis=1)
    return WideNormal(centre, scale * np.sqrt(max(1.0, heights.std() / _LEVEL)))
