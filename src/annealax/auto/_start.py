"""Where passes start: candidates, a pilot pass from each, and the choice."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Array, PRNGKeyArray

from annealax._errors import SamplingError
from annealax._keys import named_key
from annealax.auto._choice import Choice, Start, gain_of, is_better, is_doubtful
from annealax.auto._conditional import (
    Conditional,
    first_conditional,
    train_conditional,
)
from annealax.auto._explore import DEPTH, MAX_MODES, Ascents, Modes, explore
from annealax.auto._hierarchy import Hierarchy, fit_hierarchy
from annealax.auto._mixture import (
    is_of_modes,
    mixture_at_peaks,
    peaks_at,
    refit_mixture,
    with_tails,
)
from annealax.auto._pilot import Pilot, run_pilot
from annealax.auto._placement import (
    MAX_FULL_SIZE,
    Coordinates,
    Placement,
    from_moments,
    placed_path,
    positions,
)
from annealax.auto._regions import Cloud, with_region
from annealax.auto._rulers import Rulers

_CONDITIONAL_ESS = 0.9
_MAX_HIERARCHY_SIZE = 128
_MAX_MIXTURE_SIZE = 256
_EXPENSIVE_SIZE = 500
_ROUNDS = 3
_LEVEL = 0.1
_POLISHINGS, _POOLED = 2, 4
_EASY, _NOWHERE = 5, 5.0
_WIDER, _WIDE_PASSES = 10.0, 3
_MORE = 3
_HIERARCHY = "scales that depend on other coordinates"
_SAY = Callable[[str], None]


class Search:
    """Looks for a start.

    Args:
        log_density: The density, of an unconstrained vector.
        size: Length of the vector.
        num_particles: Particles of pilot passes.
        say: Called with a line of text now and then.
    """

    def __init__(
        self,
        log_density: Callable[[Array], Array],
        size: int,
        num_particles: int,
        say: _SAY = lambda text: None,
    ):
        self._log_density = log_density
        self._size = size
        self._num_particles = num_particles
        self._say = say
        self._tried: list[Start] = []
        self._num_evaluations = 0
        self._wide = (np.zeros(size), np.ones(size))
        self._best: Start | None = None
        self._num_peaks = 0

    def run(self, key: PRNGKeyArray, ascents: Ascents) -> Choice:
        """Try starts and choose one."""
        self._key = key
        modes = explore(named_key(key, "ascents"), ascents, self._size)
        self._num_evaluations += ascents.num_evaluations
        for name, placement in self._first_candidates(modes):
            self._compete(name, placement)
        modes = self._look_wider(named_key(key, "wide"), modes, ascents)
        if self._best is None:
            raise SamplingError(
                "no pilot pass reached the target: the log density may be -inf or NaN "
                "nearly everywhere, or be far from anything that a normal start of "
                "scale 0.3 to 100 can find; rescale the parameters, or give bounds "
                "with support="
            )
        for _ in range(_ROUNDS):
            before = self._best
            for candidates in (
                self._by_regions,
                self._by_moments,
                self._by_tails,
                self._by_scale_leaders,
                self._by_hierarchy,
                self._by_mean_leaders,
            ):
                for name, placement in candidates(self._best):
                    self._compete(name, placement)
            if gain_of(before, self._best) < 1.5:
                break
        best = self._best
        if isinstance(best.placement, Hierarchy):
            best = self._polish(named_key(key, "polish"), best)
        return Choice(best, tuple(self._tried), modes, self._num_evaluations)

    def _polish(self, key: PRNGKeyArray, best: Start) -> Start:
        """Fit a hierarchy to the particles of several passes.

        In the neck of a funnel small errors of its slopes are many times the scale.
        """
        for index in range(_POLISHINGS):
            *keys, last = (named_key(key, index, i) for i in range(_POOLED + 1))
            pilots = [self._pilot(each, best.placement) for each in keys]
            z = np.concatenate([each.z for each in pilots])
            log_weights = np.asarray([each.log_normalizer for each in pilots])
            shares = np.exp(log_weights - log_weights.max())
            weights = np.concatenate(
                [s * each.weights for s, each in zip(shares, pilots, strict=True)]
            )
            fitted = fit_hierarchy(positions(best.placement, z), weights / shares.sum())
            if fitted is None:
                break
            name = f"{_HIERARCHY}, polished"
            start = Start(name, fitted, self._pilot(last, fitted))
            self._tried.append(start)
            self._say(str(start))
            # Of two that agree, the one that was fitted to more particles.
            if start.pilot.usable and gain_of(best, start) > 0.3:
                best = start
        return best

    def _first_candidates(self, modes: Modes):
        """Starts that need no particles, the most promising first."""
        size = self._size
        kept = modes.highest(DEPTH)
        count = len(kept.points)
        if count > 1:
            self._wide = _wide_normal(kept.points)
        largest = MAX_FULL_SIZE if count == 1 else _MAX_MIXTURE_SIZE
        if count <= MAX_MODES and size <= largest:
            yield from self._at_peaks(kept)
        if count > 1:
            yield f"normal as wide as {count} modes", Placement.scaled(*self._wide)
        yield "standard normal", Placement.scaled(np.zeros(size), 1.0)

    def _look_wider(self, key: PRNGKeyArray, modes: Modes, ascents: Ascents) -> Modes:
        """If one mode is known: others that a wide start finds, and ascents do not.

        A broad mode draws nearly all ascents from where they start. Particles settle
        also in narrow ones.
        """
        alone = len(modes.highest(DEPTH).points) <= 1
        if self._best is None or not alone or self._size > _MAX_MIXTURE_SIZE:
            return modes
        cloud = _cloud(self._best)
        mean = cloud.weights @ cloud.x
        scale = np.sqrt(cloud.weights @ (cloud.x - mean) ** 2)
        self._wide = (mean, _WIDER * np.maximum(scale, 1.0))
        wide = Placement.scaled(*self._wide)
        others = [named_key(key, i) for i in range(1, _WIDE_PASSES)]
        self._compete("wide normal", wide)
        pilots = [self._tried[-1].pilot]
        if pilots[0].reached:
            pilots += [self._pilot(each, wide) for each in others]
        pilots = [each for each in pilots if each.usable]
        if not pilots:
            return modes
        before = ascents.num_evaluations
        x = np.concatenate([positions(wide, each.z) for each in pilots])
        weights = np.concatenate([each.weights / len(pilots) for each in pilots])
        found = ascents.from_particles(named_key(key, "ascents"), x, weights)
        modes = ascents.together(modes, found)
        self._num_evaluations += ascents.num_evaluations - before
        kept = modes.highest(DEPTH)
        if 1 < len(kept.points) <= MAX_MODES:
            for name, placement in self._at_peaks(kept):
                self._compete(name, placement)
        return modes

    def _at_peaks(self, modes: Modes):
        """Gaussians at the peaks of modes."""
        peaks = peaks_at(self._log_density, modes)
        self._num_evaluations += peaks.num_evaluations
        found = self._num_peaks = len(peaks.placements)
        if found == 1:
            yield "Gaussian at the mode (Laplace)", peaks.placements[0]
        elif found > 1:
            mixture = mixture_at_peaks(peaks, *self._wide)
            yield f"Gaussians at {found} modes and a wide one", mixture

    def _by_regions(self, best: Start):
        """Mixtures with what another start found far from the best so far."""
        if self._size > _MAX_MIXTURE_SIZE:
            return
        cloud = _cloud(best)
        for each in self._tried:
            if each is not best and each.pilot.usable:
                mixture = with_region(cloud, _cloud(each), *self._wide)
                if mixture is not None:
                    yield "Gaussians where two starts ended, and a wide one", mixture
                    return

    def _by_moments(self, best: Start):
        """Starts with the mean and covariance of the particles of the best so far."""
        pilot, placement = best.pilot, best.placement
        if isinstance(placement, Conditional):
            return
        if isinstance(placement, Hierarchy):
            standard = Placement.scaled(np.zeros(self._size), 1.0)
            x = positions(placement, pilot.z)
            fitted, kind = from_moments(standard, x, pilot.weights)
        elif is_of_modes(placement):
            mixture = refit_mixture(placement, pilot.z, pilot.weights, *self._wide)
            if mixture is not None:
                yield "Gaussians fitted to the particles at modes", mixture
            return
        else:
            fitted, kind = from_moments(placement, pilot.z, pilot.weights)
        yield f"mean and covariance of particles ({kind})", fitted

    def _by_tails(self, best: Start):
        """Starts with heavy tails, if the particles of the best so far have them."""
        pilot, placement = best.pilot, best.placement
        if isinstance(placement, Placement) and self._size <= _MAX_MIXTURE_SIZE:
            tailed = with_tails(placement, pilot.z, pilot.weights, *self._wide)
            if tailed is not None:
                modes = " at modes" if is_of_modes(tailed) else ""
                yield f"Student-t fitted to the particles{modes}", tailed

    def _by_scale_leaders(self, best: Start):
        """A normal that follows the few coordinates that set the scales of others."""
        pilot, placement = best.pilot, best.placement
        x = positions(placement, pilot.z)
        if isinstance(placement, Conditional):
            yield from self._follow(placement.leaders, x, pilot.weights)
            return
        rulers = self._rulers_of(best)
        if rulers is not None and len(rulers.of_scales):
            yield from self._follow(rulers.of_scales, x, pilot.weights)

    def _by_hierarchy(self, best: Start):
        """Too many leaders, or a density that is hard to learn from: a boundary."""
        if isinstance(best.placement, Conditional) or self._rulers_of(best) is None:
            return
        x = positions(best.placement, best.pilot.z)
        hierarchy = fit_hierarchy(x, best.pilot.weights)
        if hierarchy is not None:
            yield _HIERARCHY, hierarchy

    def _by_mean_leaders(self, best: Start):
        """A normal that follows the few coordinates with which others bend."""
        rulers = self._rulers_of(best)
        if rulers is None or not len(rulers.of_means):
            return
        known = [
            set(each.placement.leaders)
            for each in self._tried
            if isinstance(each.placement, Conditional)
        ]
        if set(rulers.of_means) not in known:
            x = positions(best.placement, best.pilot.z)
            yield from self._follow(rulers.of_means, x, best.pilot.weights)

    def _rulers_of(self, best: Start) -> Rulers | None:
        """What the particles show of coordinates that rule others."""
        pilot, placement = best.pilot, best.placement
        several = is_of_modes(placement) and self._num_peaks > 1
        if several or self._size > _MAX_HIERARCHY_SIZE:
            return None
        if pilot.num_transitions <= _EASY:
            return None
        rulers = Rulers(self._size)
        # The particles of a good start may have lost a neck that others, unless they
        # went nowhere, came some way into.
        for each in self._tried:
            lost = pilot.log_normalizer - each.pilot.log_normalizer
            if each is best or (each.pilot.reached and lost < _NOWHERE):
                x = positions(each.placement, each.pilot.z)
                rulers.see(x, each.pilot.weights)
        rulers.see_bends(positions(placement, pilot.z), pilot.weights)
        return rulers

    def _follow(self, leaders: np.ndarray, x: np.ndarray, weights: np.ndarray):
        """A normal that follows the leaders, unless training fails."""
        names = ", ".join(map(str, leaders))
        name = f"normal that follows coordinates {names}"
        subkey = named_key(self._key, "leaders", name, self._times(name))
        first = first_conditional(x, weights, leaders)
        trained = train_conditional(subkey, self._log_density, first)
        self._num_evaluations += trained.num_evaluations
        if trained.conditional is not None:
            yield name, trained.conditional

    def _times(self, name: str) -> int:
        return sum(each.name == name for each in self._tried)

    def _compete(self, name: str, placement: Coordinates) -> None:
        """Try a start; it is the best from now on if it does enough better."""
        key = named_key(self._key, "race", name, self._times(name))
        best = self._best
        few = 20 if self._size > _EXPENSIVE_SIZE else 60
        limit = 1000 if best is None else max(few, int(1.5 * len(best.pilot.betas)))
        pilot = self._pilot(key, placement, limit)
        start = Start(name, placement, pilot)
        if best is not None and pilot.usable and is_doubtful(best, start):
            old, best, start = best, self._look_again(best), self._look_again(start)
            self._tried = [best if each is old else each for each in self._tried]
            self._best = best
        self._tried.append(start)
        self._say(str(start))
        if pilot.usable and (best is None or is_better(best, start)):
            self._best = start

    def _look_again(self, start: Start) -> Start:
        """With more passes."""
        if start.more:
            return start
        limit = 2 * len(start.pilot.betas)
        key = named_key(self._key, "again", start.name, self._times(start.name))
        keys = [named_key(key, i) for i in range(_MORE)]
        pilots = [self._pilot(k, start.placement, limit) for k in keys]
        return dataclasses.replace(
            start, more=tuple(each for each in pilots if each.usable)
        )

    def _pilot(self, key: PRNGKeyArray, placement, limit: int = 1000) -> Pilot:
        pilot = run_pilot(
            key,
            placed_path(self._log_density, placement, 1),
            num_particles=self._num_particles,
            conditional_ess=_CONDITIONAL_ESS,
            max_temperatures=limit,
        )
        self._num_evaluations += pilot.num_evaluations
        return pilot


def _cloud(start: Start) -> Cloud:
    """Where its particles ended."""
    pilot = start.pilot
    x = positions(start.placement, pilot.z)
    return Cloud(np.asarray(x, np.float64), pilot.weights, pilot.log_normalizer)


def _wide_normal(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and scale so wide that no mode has a head start over another."""
    centre = points.mean(axis=0)
    scale = np.maximum(points.std(axis=0), 1.0)
    heights = 0.5 * np.sum(((points - centre) / scale) ** 2, axis=1)
    return centre, scale * np.sqrt(max(1.0, heights.std() / _LEVEL))
