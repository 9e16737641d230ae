"""The search for a start: where the modes are, starts that compete, and the winner.

A start is better if a pass from it finds significantly more mass (a start that misses
part of the target finds too little), and, where that does not decide, if it needs less
work for the same accuracy. So a narrow start never wins against a wide one that sees
more. Where these two point to different starts and the first is a near thing, more
passes decide.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import PRNGKeyArray

from annealax._errors import SamplingError
from annealax._keys import named_key
from annealax.auto import gradient_free
from annealax.auto.adaptive_smc import MAX_TEMPERATURES, AdaptivePass, adaptive_pass
from annealax.auto.climbed import climb_terms
from annealax.auto.density import CountedDensity
from annealax.auto.knowledge import Knowledge, around_points
from annealax.auto.mass_at_modes import mass_at_modes
from annealax.auto.modes import MAX_MODES, Ascents, Modes, explore
from annealax.auto.places import Climbers
from annealax.auto.positive import where_positive
from annealax.auto.starts import PROPOSALS, WITHOUT_GRADIENT
from annealax.auto.starts.base import Candidate, Seen, Start, Tried, WideNormal
from annealax.auto.starts.gaussian import (
    MAX_FULL_SIZE,
    Linear,
    from_moments,
    normal_start,
)
from annealax.auto.starts.hierarchy import NAME as HIERARCHY
from annealax.auto.starts.hierarchy import Hierarchy, fit_hierarchy
from annealax.auto.starts.mixture import (
    MAX_MIXTURE_SIZE,
    Peaks,
    gaussians_at,
    peaks_at,
    start_at_peaks,
)

MANY_DIMENSIONS = 500
"""Where an evaluation is dear, less is tried."""

_PARTICLES, _FEWER_PARTICLES, _FEW_PARTICLES = 1000, 500, 400
"""Particles of a pass that only compares starts.

The second where an evaluation is dear, the third in many dimensions.
"""

_DEAR = 2000
"""Numbers that an evaluation computes, from which on it is dear: a scan over data."""

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

_OVER_PRIOR, _PRECISE = 4.0, 0.05
"""Gain needed over the prior; an error of a pass below the second is as good as that.

In the neck of a centred hierarchy a fitted start is short of a few per cent of the
mass, which no pass shows; the prior is not.
"""

_LEVEL = 0.1
"""Nats by which a start may favour one mode over another."""

_WIDER, _WIDE_PASSES = 10.0, 3
"""A wide start looks so many times further than the best, in so many passes."""

_POINTS_PER_DIMENSION = 2
"""Points given by the user from which on a normal is fitted to them."""

_POLISHINGS, _POOLED, _POLISHED_GAIN = 2, 4, 0.3
"""A hierarchy is fitted again so often, to so many passes, unless it gets worse.

Of two that agree, the one that was fitted to more particles is preferred.
"""

Say = Callable[[str], None]


def search(
    key: PRNGKeyArray, density: CountedDensity, known: Knowledge, say: Say
) -> Seen:
    """Find modes, let starts compete, and improve the best from its particles.

    Args:
        key: Random key.
        density: The density, of an unconstrained vector.
        known: What is known beside the density.
        say: Called with a line of text now and then.

    Raises:
        SamplingError: If no pass came to its end.
    """
    if not density.has_gradient:
        seen = gradient_free.nothing_seen(key, density, known)
        for candidate in gradient_free.first_starts(density, known):
            seen = race(seen, candidate, say)
        return _improved(seen, say)
    terms = climb_terms(named_key(key, "terms"), density, known.places)
    ascents = Ascents(density if terms is None else terms.whole)
    expected = len(terms.peaks.fits) if terms and terms.all_known else 1
    subkey = named_key(key, "ascents")
    modes = explore(subkey, ascents, known.places, expected=expected)
    if len(known.points):
        given = around_points(known.points).at(known.points)
        modes = ascents.together(modes, ascents.peaks(given))
    if terms is not None:
        modes = ascents.together(modes, ascents.peaks(terms.tops(), counted=False))
    wide = _as_wide_as(modes.that_count())
    rare = where_positive(named_key(key, "positive"), ascents, known.places)
    seen = Seen(density, key, modes, wide, terms=terms)
    spots = Peaks((), ())
    if rare is not None:
        spots, chance = rare.spots(named_key(key, "spots")), rare.chance_of_a_miss
        seen = dataclasses.replace(seen, spots=spots, chance_of_empty=chance)
    seen = _start_at_modes(seen, say)
    candidates = [*simple_starts(seen, known), rare and rare.candidate()]
    for candidate in filter(None, candidates):
        seen = race(seen, candidate, say)
    if spots.fits:
        if seen.at_modes is None:  # there are no peaks
            seen = _with_peaks(seen, Peaks((), ()))
        start = gaussians_at(spots, seen.wide)
        name = f"Gaussians where the density is positive ({len(spots.fits)})"
        seen = race(seen, Candidate(name, start), say)
    return _improved(_look_wider(seen, ascents, known, say), say)


def _improved(seen: Seen, say: Say) -> Seen:
    if seen.best is None:
        raise SamplingError(
            "no pass reached the target: the log density may be -inf or NaN nearly "
            "everywhere, or be far from where there was to look; rescale the "
            "parameters, or say where to look with region=, prior= or initial="
        )
    return improve(seen, say)


def improve(seen: Seen, say: Say) -> Seen:
    """Starts made from the particles of those before, as long as that helps."""
    if seen.best is not None and seen.best.start.has_parts:
        return seen
    for _ in range(_ROUNDS):
        before = seen.best
        assert before is not None
        for propose in PROPOSALS if seen.density.has_gradient else WITHOUT_GRADIENT:
            for candidate in propose(seen):
                seen = race(seen, candidate, say)
        assert seen.best is not None
        if gain_of(before, seen.best) < _WORTH_A_ROUND:
            break
    return _polish(seen, say)


def simple_starts(seen: Seen, known: Knowledge) -> Iterator[Candidate]:
    """Starts that need no particles."""
    count, size = len(seen.modes.that_count().points), seen.density.size
    if count > 1:
        start = normal_start(Linear.scaled(*seen.wide))
        yield Candidate(f"normal as wide as {count} modes", start)
    if len(known.points) > _POINTS_PER_DIMENSION * size:
        weights = np.full(len(known.points), 1 / len(known.points))
        linear, kind = from_moments(Linear.identity(size), known.points, weights)
        name = f"mean and covariance of the points given ({kind})"
        yield Candidate(name, normal_start(linear))
    if known.start is not None:
        yield known.start
    else:
        yield Candidate("standard normal", normal_start(Linear.identity(size)))


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
    new = seen.judged(new)
    usable = new.first.usable
    if best is not None and usable and is_doubtful(best, new):
        old, best, new = best, look_again(seen, best), look_again(seen, new)
        tried = tuple(best if each is old else each for each in tried)
    say(str(new))
    if usable and (best is None or is_better(best, new)):
        best = new
    return dataclasses.replace(seen, tried=(*tried, new), best=best)


def gain_of(old: Tried, new: Tried) -> float:
    """How many times better `new` is; infinite or zero where one misses mass."""
    if (old.lost > 0) != (new.lost > 0):
        return float("inf") if old.lost > 0 else 0.0
    difference = new.log_normalizer - old.log_normalizer
    if abs(difference) > _tolerance(old, new):
        return float("inf") if difference > 0 else 0.0
    return old.difficulty / max(new.difficulty, 1e-12)


def is_better(old: Tried, new: Tried) -> bool:
    """Whether `new` is to be preferred."""
    needed = new.start.bijection.gain_needed(old.start.bijection)
    gain = gain_of(old, new)
    if old.start.base_dist.is_prior and np.isfinite(gain):
        least = _PRECISE**2 * new.num_transitions
        return min(gain, old.difficulty / least) > max(needed, _OVER_PRIOR)
    return gain > needed


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


def look_again(seen: Seen, tried: Tried) -> Tried:
    """With more passes, unless there are several."""
    if len(tried.passes) > 1:
        return tried
    return with_more(seen, tried)


def with_more(seen: Seen, tried: Tried) -> Tried:
    """With more passes."""
    count = len(tried.passes)
    key = named_key(seen.key, "again", tried.name, seen.times(tried.name))
    limit = 2 * (tried.num_transitions + 1)
    found = [
        _one_pass(named_key(key, count - 1 + index), seen.density, tried.start, limit)
        for index in range(_MORE_PASSES)
    ]
    usable = tuple(each for each in found if each.usable)
    return dataclasses.replace(tried, passes=(*tried.passes, *usable))


def _start_at_modes(seen: Seen, say: Say) -> Seen:
    """Try Gaussians at the peaks of the modes, if there are not too many.

    Those of terms, if these are known: a narrow one may be inside of a wide one that
    has no peak of its own.
    """
    terms = seen.terms
    if seen.density.size > MAX_MIXTURE_SIZE or terms is None or not terms.all_known:
        return _start_at_peaks(seen, say)
    peaks = terms.peaks
    if not seen.knows_terms:
        peaks = peaks.and_new(peaks_at(seen.density, seen.modes.that_count()))
    seen = _with_peaks(seen, peaks)
    candidate = start_at_peaks(peaks, seen.wide)
    return seen if candidate is None else race(seen, candidate, say)


def _with_peaks(seen: Seen, peaks: Peaks) -> Seen:
    """What was tried is judged by what is now known of the modes."""
    if seen.spots is not None:
        peaks = peaks.and_new(seen.spots)
    key = named_key(seen.key, "at modes", len(seen.tried))
    at_modes = mass_at_modes(key, Ascents(seen.climbed), peaks.fits)
    seen = dataclasses.replace(seen, num_peaks=len(peaks.fits), at_modes=at_modes)
    judged = {id(each): seen.judged(each) for each in seen.tried}
    best = None if seen.best is None else judged[id(seen.best)]
    return dataclasses.replace(seen, tried=tuple(judged.values()), best=best)


def _start_at_peaks(seen: Seen, say: Say) -> Seen:
    modes = seen.modes.that_count()
    count = len(modes.points)
    largest = MAX_FULL_SIZE if count == 1 else MAX_MIXTURE_SIZE
    if count > MAX_MODES or seen.density.size > largest:
        return seen
    peaks = peaks_at(seen.density, modes)
    seen = _with_peaks(seen, peaks)
    candidate = start_at_peaks(peaks, seen.wide)
    return seen if candidate is None else race(seen, candidate, say)


def _look_wider(seen: Seen, ascents: Ascents, known: Knowledge, say: Say) -> Seen:
    """Modes that passes from far out find, and ascents from there do not.

    A broad mode draws nearly all ascents from where they start. Particles settle also
    in narrow ones, on the way to which they are seen at one temperature or another.
    """
    if seen.best is None or seen.density.size > MAX_MIXTURE_SIZE:
        return seen
    for look, candidate in enumerate(_wide_starts(seen, known)):
        # Those whose name was raced before have a pass already.
        raced = [each for each in seen.tried if each.name == candidate.name]
        if not raced:
            seen = race(seen, candidate, say)
            raced = [seen.tried[-1]]
        passes = [raced[-1].first]
        key = named_key(seen.key, "wide", look)
        if passes[0].reached:
            passes += [
                _one_pass(named_key(key, index), seen.density, candidate.start)
                for index in range(1, _WIDE_PASSES)
            ]
            seen = _with_passes(seen, raced[-1], passes)
        place = candidate.start.bijection.positions
        climbers = Climbers.join(
            [each.climbers(place) for each in passes if len(each.trail)]
        )
        before = seen.modes.that_count()
        found = ascents.from_some(named_key(key, "ascents"), climbers)
        seen = dataclasses.replace(seen, modes=ascents.together(seen.modes, found))
        now = seen.modes.that_count()
        if len(now.points) > len(before.points):
            seen = dataclasses.replace(seen, wide=_as_wide_as(now))
            seen = _start_at_modes(seen, say)
    return seen


def _with_passes(seen: Seen, tried: Tried, passes: list[AdaptivePass]) -> Seen:
    """With more passes for a start."""
    usable = tuple(each for each in passes[1:] if each.usable)
    new = dataclasses.replace(tried, passes=(tried.first, *usable))
    others = tuple(new if each is tried else each for each in seen.tried)
    best = new if seen.best is tried else seen.best
    return dataclasses.replace(seen, tried=others, best=best)


def _wide_starts(seen: Seen, known: Knowledge) -> Iterator[Candidate]:
    """Starts wider than what is known."""
    if known.start is not None:
        yield known.start
        return
    best = seen.best
    assert best is not None
    x = np.asarray(best.x, np.float64)
    mean = best.weights @ x
    scale = _WIDER * np.sqrt(best.weights @ (x - mean) ** 2)
    yield Candidate("wide normal", normal_start(Linear.scaled(mean, scale)))
    if np.median(scale) < 1:
        # Narrow as it is, it may be one of several.
        start = normal_start(Linear.scaled(mean, np.maximum(scale, _WIDER)))
        yield Candidate("wider normal", start)


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
        new = seen.judged(Tried(f"{HIERARCHY}, polished", start, (found,)))
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
    if not density.has_gradient:
        path = start.path(density.log_density, np.arange(2.0))
        return gradient_free.walk_pass(key, path, density, limit)
    if density.size > MANY_DIMENSIONS:
        count = _FEW_PARTICLES
    else:
        count = _FEWER_PARTICLES if density.work > _DEAR else _PARTICLES
    return adaptive_pass(
        key,
        start.path(density.log_density, np.arange(2.0)),
        density,
        num_particles=count,
        max_temperatures=limit,
    )


def _as_wide_as(modes: Modes) -> WideNormal:
    """Centre and scale so wide that no mode has a head start over another."""
    points = modes.points
    if len(points) == 0:
        return WideNormal(np.zeros(points.shape[1]), np.ones(points.shape[1]))
    centre = points.mean(axis=0)
    scale = modes.reach
    heights = 0.5 * np.sum(((points - centre) / scale) ** 2, axis=1)
    return WideNormal(centre, scale * np.sqrt(max(1.0, heights.std() / _LEVEL)))
