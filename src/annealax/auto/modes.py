"""Where a density has its modes: ascents from many points on many scales.

This is for choosing a start and for reporting, never for estimates: ascents find peaks
of the density, which need not be where its mass is.
"""

import dataclasses
import functools
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from annealax._device import to_device
from annealax._jit import quick_jit
from annealax._keys import generator, named_key
from annealax._path import sanitise
from annealax.auto.density import CountedDensity
from annealax.auto.places import Around, Climbers, Places

NUM_ASCENTS = 256
"""Points in a batch of ascents."""

_NUM_STEPS = 150
_FIRST_RATE, _LAST_RATE = 0.3, 3e-4
"""Steps of an ascent shrink by so much, in units of its scale: coarse, then fine.

The last ones of an ascent from afar, in units of one: it does not know where it ends.
"""

_CONTINUE, _FINER, _CONTINUATIONS = 0.5, 3e-3, 4
"""An ascent that gained these nats in its last quarter goes on, on a finer scale, as
does one whose first step there would gain them by the slope, or that gained nothing on
a slope: this one with steps of a nat, as long as they gain.

So scales far below those on which ascents start are reached.
"""

_DIP = 0.05
"""Ends between which the density falls by less than these nats are one peak.

No more: a needle inside of a wide mode is near its top.
"""

_DIP_POINTS = 9
"""Where the density is looked at between two ends."""

_MAX_PEAKS = 128
"""Telling peaks apart costs a program call for each."""

NUM_SCREENED = 4096
"""Points in a batch of which only those are climbed from that are not explained."""

_EXPLAINED, _EXPLAINED_SHARE = 0.5, 0.02
"""A density is explained if it is so near, in nats and as a share of the depth."""

_CYCLE, _WAIT = 4, 8
"""One batch of the first is drawn by the shapes of the modes.

After as many as the second those are climbed from that wait: an ascent costs as many.
"""

_SHARE_OF_ONE, _SHARE_OF_SEVERAL, _CALM = 0.1, 0.15, 2 * _WAIT
"""Of the effort, once each mode was found often and no new one in so many batches.

Where there are several, there may well be more.
"""

_EFFORT, _LEAST, _MOST = 4e9, 2e5, 2e7
"""Numbers that the search may compute: a cheap density deserves a long search.

The others are the least and the most evaluations that this may come to.
"""

_MIN_HITS, CHANCE = 5, 0.05
"""All modes are probably known once each was found as often as the first of these, and
the chance is below the second that a further one would not have been."""

MAX_MODES = 100
"""Up to so many are looked for one by one."""

DEPTH = 15.0
"""Modes this far below the highest, and below the heaviest, in nats, do not count."""

_FLAT, _FLATTER = 1e-5, 0.1
"""Curvatures below this share of the largest are none; they count as so many times the
least that is one."""

_STEEP = 0.5
"""Nats that a Newton step from a peak would gain, twice, at most."""

_FEW = 10
"""Modes from which on their spread along a coordinate says more than the average."""

_CURVED_AT_ONCE = 8
"""Curvatures are computed for so many modes at a time."""

MAX_CURVED_SIZE = 256
"""In more dimensions, curvatures of many modes cost too much."""


@dataclasses.dataclass(frozen=True)
class Modes:
    """Distinct peaks, the highest first.

    Attributes:
        points: Where they are.
        log_densities: How high they are.
        hits: How many ascents ended at each, or would have.
        curvatures: Minus the Hessians; of no size in too many dimensions.
        slopes: The gradients, which vanish at a peak.
    """

    points: Float[np.ndarray, "modes size"]
    log_densities: Float[np.ndarray, " modes"]
    hits: Int[np.ndarray, " modes"]
    curvatures: Float[np.ndarray, "modes axes axes"]
    slopes: Float[np.ndarray, "modes axes"]

    @functools.cached_property
    def _axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Curvatures along main axes, these, and which of the modes are peaks."""
        values, vectors = np.linalg.eigh(self.curvatures.astype(np.float64))
        largest = np.abs(values).max(axis=1, initial=0, keepdims=True)
        curved = values > _FLAT * largest
        least = np.where(curved, values, np.inf).min(
            axis=1, keepdims=True, initial=1e99
        )
        return np.where(curved, values, _FLATTER * least), vectors, curved.all(axis=1)

    @functools.cached_property
    def are_peaks(self) -> np.ndarray:
        """Which are peaks, and not where an ascent tired on a slope or a ridge."""
        if self.curvatures.shape[1] == 0:
            return np.ones(len(self.points), bool)
        values, vectors, curved = self._axes
        along = np.einsum("kij,ki->kj", vectors, self.slopes.astype(np.float64))
        return curved & (np.sum(along**2 / values, axis=1) < _STEEP)

    @functools.cached_property
    def log_masses(self) -> np.ndarray:
        """Log of the mass of each by its curvature (Laplace).

        Where that is not the curvature of a peak, of what it may be. Minus infinity in
        too many dimensions.
        """
        if self.curvatures.shape[1] == 0:
            return np.full(len(self.points), -np.inf)
        terms = np.log(2 * np.pi) - np.log(self._axes[0])
        return self.log_densities + 0.5 * terms.sum(axis=1)

    @property
    def widths(self) -> Float[np.ndarray, " size"]:
        """Typical standard deviation of a mode along each coordinate, by curvature."""
        count, size = self.points.shape
        if count == 0 or self.curvatures.shape[1] == 0:
            return np.ones(size)
        curvatures = np.einsum("kii->ki", self.curvatures).astype(np.float64)
        curved = np.where(curvatures > 0, curvatures, np.nan)
        with warnings.catch_warnings(action="ignore"):
            typical = np.nanmedian(curved, axis=0)
            overall = np.nanmedian(curved)
        typical = np.where(np.isnan(typical), overall, typical)
        return np.where(typical > 0, typical, 1.0) ** -0.5

    @property
    def reach(self) -> Float[np.ndarray, " size"]:
        """How far they lie apart along each coordinate, and at least how wide they are.

        Few modes say little about single coordinates: then all count alike, in widths.
        """
        widths, count = self.widths, len(self.points)
        apart = (self.points.std(axis=0) / widths) ** 2
        mixed = (count * apart + _FEW * apart.mean()) / (count + _FEW)
        return widths * np.sqrt(np.maximum(mixed, 1.0))

    def around(self) -> Around:
        """Places around all of them, as wide as the widest."""
        scale = self.reach
        if self.are_peaks.any() and self.curvatures.size:
            covariances = np.linalg.inv(self.peaks().curvatures.astype(np.float64))
            widest = np.einsum("kii->ki", covariances).max(axis=0)
            scale = np.sqrt(np.maximum(widest + self.points.var(axis=0), scale**2))
        return Around.one(self.points.mean(axis=0), scale)

    def around_each(self) -> Around:
        """Places around each, by its own shape."""
        values, vectors, _ = self._axes
        factors = vectors * values[:, None, :] ** -0.5
        return Around(self.points.astype(np.float64), factors)

    def that_count(self) -> "Modes":
        """Those not far below the highest, or not far below the heaviest.

        A wide mode with most of the mass may be much lower than a narrow one.
        """
        high = self.log_densities > self.log_densities[:1] - DEPTH
        masses = self.log_masses
        heavy = masses > np.max(masses, initial=-np.inf) - DEPTH
        return self._chosen(high | heavy)

    def peaks(self) -> "Modes":
        """Those that are peaks."""
        return self._chosen(self.are_peaks)

    def _chosen(self, kept: np.ndarray) -> "Modes":
        fields = (getattr(self, field.name) for field in dataclasses.fields(self))
        return Modes(*(each[kept] for each in fields))

    def explain(self, x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, Any]:
        """Whether the density at points is that of the modes known, and of which.

        A mode stands for its Gaussian. Where the density is what these add up to, an
        ascent would end at the nearest, and need not be made.
        """
        curvatures, vectors, _ = self._axes
        roots = vectors * np.sqrt(curvatures)[:, None, :]
        parts = np.full((len(x), len(self.points)), -np.inf)
        for index in np.flatnonzero(self.are_peaks):
            away = (x - self.points[index]) @ roots[index]
            parts[:, index] = self.log_densities[index] - 0.5 * np.sum(away**2, axis=1)
        if len(self.points) == 0:
            return np.zeros(len(x), bool), np.zeros(len(x), int)
        nearest = parts.argmax(axis=1)
        known = np.logaddexp.reduce(parts, axis=1)
        depth = np.abs(self.log_densities[nearest] - known)
        with np.errstate(invalid="ignore"):
            explained = np.abs(values - known) < _EXPLAINED + _EXPLAINED_SHARE * depth
        return explained & np.isfinite(values), nearest

    @property
    def num_unseen(self) -> float:
        """How many more there probably are (Chao, 1984).

        The more of them were hit only once, and the fewer twice, the more were missed.
        """
        once, twice = (int(np.sum(self.hits == count)) for count in (1, 2))
        return 0.5 * once * (once - 1) / (twice + 1)

    @property
    def chance_of_a_miss(self) -> float:
        """Probability that one more mode, as unlike these as they are, was not found.

        Its basin is a further draw from a log-normal distribution that those known are
        draws from: Student's t distribution says how likely one is so small that it
        would have been hit less than `_MIN_HITS` times. The spread is that of the hits
        or of the volumes, whichever is larger: the first lack those that were not
        found, and beside a wide mode the basin of a narrow one is as its volume.
        """
        count = len(self.hits)
        if count < 2:
            return 0.0
        logs = np.log(np.maximum(self.hits, 1))
        variance = np.var(logs, ddof=1)
        if np.isfinite(self.log_masses).all():
            volumes = self.log_masses - self.log_densities
            variance = max(variance, np.var(volumes, ddof=1))
        spread = np.sqrt(variance * (1 + 1 / count)) + 1e-9
        far = (np.log(_MIN_HITS) - logs.mean()) / spread
        from scipy import special  # noqa: PLC0415 (loaded where it is used)

        return float(special.stdtr(count - 1, far))

    @property
    def all_known(self) -> bool:
        """Whether each was hit so often that another would have been hit too."""
        if len(self.hits) < 2:
            return True
        return bool(self.hits.min() >= _MIN_HITS and self.chance_of_a_miss < CHANCE)


class Ascents:
    """Compiled ascents of one density.

    Args:
        density: The density.
    """

    def __init__(self, density: CountedDensity):
        self._density = density

    @property
    def num_evaluations(self) -> int:
        """How many were made of the density so far."""
        return self._density.num_evaluations

    @property
    def has_gradient(self) -> bool:
        """Whether there are any: they follow the gradient."""
        return self._density.has_gradient

    @property
    def effort(self) -> float:
        """Evaluations that a long search may take."""
        return float(np.clip(_EFFORT / self._density.work, _LEAST, _MOST))

    def from_places(self, key: PRNGKeyArray, places: Places) -> Modes:
        """Peaks reached from where there is to look."""
        return self.peaks(places.draw(key, NUM_ASCENTS))

    def from_particles(self, key: Array, x: np.ndarray, weights: np.ndarray) -> Modes:
        """Peaks reached from particles."""
        shares = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
        index = generator(key).choice(len(x), NUM_ASCENTS, p=shares)
        scale = np.sqrt(weights @ (x - weights @ x) ** 2)
        # With small steps: they are where they belong.
        rates = np.full(NUM_ASCENTS, 0.1 * float(np.median(scale)) + 1e-30)
        return self.peaks(Climbers(x[index], rates))

    def from_some(self, key: Array, climbers: Climbers) -> Modes:
        """Peaks reached from some of many points."""
        count = len(climbers.points)
        index = generator(key).permutation(count)[:NUM_ASCENTS]
        return self.peaks(Climbers(*(each[index] for each in climbers)))

    def together(self, modes: Modes, found: Modes) -> Modes:
        """Modes of two searches, each counted once."""
        points, values, hits = (
            np.concatenate([getattr(each, name) for each in (modes, found)])
            for name in ("points", "log_densities", "hits")
        )
        # In batches of one size: programs are compiled for it.
        return self._distinct(_padded(points), _padded(values, -np.inf), _padded(hits))

    def peaks(self, climbers: Climbers, *, counted: bool = True) -> Modes:
        """Climb, and sort out which ends share a peak; as hits, or not."""
        dtype = jnp.result_type(float)
        count = len(climbers.points)
        points = _padded(np.asarray(climbers.points, dtype))
        scales = _padded(np.asarray(climbers.scales, dtype), 1.0)
        values = np.full(len(points), -np.inf, dtype)
        climbing, careful = np.ones(len(points), bool), np.zeros(len(points), bool)
        for _ in range(1 + _CONTINUATIONS):
            ends, heights, gains, slopes, moved = jax.device_get(
                _ascend(self._density.log_density, to_device(points), to_device(scales))
            )
            self._density.spend(len(points) * _NUM_STEPS)
            better = climbing & (heights > values)
            before = np.where(np.isfinite(values), values, heights)
            points = np.where(better[:, None], ends, points)
            values = np.where(better, heights, values)
            # Steps that are too coarse overshoot a narrow peak, and gain nothing: then
            # the first is of a nat, as long as it pays.
            steep = _FIRST_RATE * scales.astype(np.float64) * slopes
            stuck = ~moved & ~careful & (steep > _CONTINUE)
            careful |= stuck
            climbing &= np.where(
                careful,
                stuck | (values > before + _CONTINUE),
                (gains > _CONTINUE) | (_FINER * steep > _CONTINUE),
            )
            finer = np.where(careful, 1 / np.maximum(steep, 1e-3), _FINER)
            scales = np.where(climbing, finer * scales, scales).astype(dtype)
            if not climbing[:count].any():
                break
        values[count:] = -np.inf
        return self._distinct(points, values, np.full(len(points), int(counted)))

    def evaluate(self, points: np.ndarray) -> np.ndarray:
        """Log densities of points, `NUM_SCREENED` in general."""
        self._density.spend(len(points))
        values = _evaluate(self._density.log_density, to_device(points))
        return np.asarray(values, np.float64)

    def screen(self, modes: Modes, climbers: Climbers) -> tuple[Climbers, np.ndarray]:
        """Points that the modes known do not explain; hits of these by the others."""
        # As the density sees them: single precision moves points far out.
        points = np.asarray(climbers.points, jnp.result_type(float))
        values = self.evaluate(points)
        explained, nearest = modes.explain(points.astype(np.float64), values)
        hits = np.bincount(nearest[explained], minlength=len(modes.points))
        rest = Climbers(*(each[~explained] for each in climbers))
        return rest, hits

    def _distinct(
        self, points: np.ndarray, values: np.ndarray, hits: np.ndarray
    ) -> Modes:
        """Two ends share a peak if the density does not dip between them."""
        members = np.full(len(points), -1)
        peaks: list[int] = []
        order = np.argsort(-values)
        for index in order:
            if members[index] >= 0 or not np.isfinite(values[index]):
                continue
            if len(peaks) == _MAX_PEAKS:
                break
            depth = np.asarray(
                _dips(
                    self._density.log_density,
                    to_device(points[index]),
                    to_device(points),
                )
            )
            same = (depth < _DIP) & (members < 0) & np.isfinite(values)
            same[index] = True
            members[same] = len(peaks)
            peaks.append(index)
            self._density.spend(_DIP_POINTS * len(points))
        assigned = members >= 0
        counts = np.bincount(members[assigned], hits[assigned], len(peaks))
        points = points[peaks]
        shapes = self._shapes(points)
        return Modes(points, values[peaks], counts.astype(int), *shapes)

    def _shapes(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Curvatures and slopes."""
        count, size = points.shape
        if count == 0 or size > MAX_CURVED_SIZE:
            return np.zeros((count, 0, 0)), np.zeros((count, 0))
        # In batches of one size, too.
        filling = np.repeat(points[:1], -count % _CURVED_AT_ONCE, axis=0)
        filled = np.concatenate([points, filling])
        parts = [
            jax.device_get(_shapes(self._density.log_density, to_device(part)))
            for part in np.split(filled, len(filled) // _CURVED_AT_ONCE)
        ]
        self._density.spend(len(filled) * (size + 2))
        curvatures, slopes = zip(*parts, strict=True)
        return np.concatenate(curvatures)[:count], np.concatenate(slopes)[:count]


def explore(
    key: PRNGKeyArray, ascents: Ascents, places: Places, *, expected: int = 1
) -> Modes:
    """Look from all places, and around the modes, until all of these are known.

    Ascents are made from points that the modes known so far do not explain.

    Args:
        key: Random key.
        ascents: Ascents of the density.
        places: Where to look.
        expected: How many there are by what is known from elsewhere. As long as no
            more are found, they are taken to be as well known as one alone.
    """
    modes = ascents.from_places(named_key(key, "first"), places)
    none = Climbers(np.zeros((0, modes.points.shape[1])), np.zeros(0))
    waiting = {True: none, False: none}
    began, calm = ascents.num_evaluations, 0
    for index in itertools.count(1):
        spent = ascents.num_evaluations - began
        counting = modes.that_count()
        peaks = counting.peaks()
        more = len(peaks.points) > expected
        known = calm >= _CALM and (peaks.all_known or not more)
        share = _SHARE_OF_SEVERAL if more else _SHARE_OF_ONE
        allowed = ascents.effort * (share if known else 1)
        if len(counting.points) > MAX_MODES or spent > allowed:
            break
        where, blind = _next_places(index, places, counting)
        drawn = where.draw(named_key(key, index), NUM_SCREENED)
        rest, hits = ascents.screen(modes, drawn)
        # As if ascents had been made from a part of all points alike.
        part = blind * min(1.0, NUM_ASCENTS / max(len(rest.points), 1))
        modes = dataclasses.replace(modes, hits=modes.hits + (part * hits).astype(int))
        queue = Climbers.join([waiting[blind], rest.first(NUM_ASCENTS)])
        calm += 1
        if len(queue.points) >= NUM_ASCENTS or (
            index % _WAIT < _CYCLE and queue.points.size
        ):
            found = ascents.peaks(queue.first(NUM_ASCENTS), counted=blind)
            queue = queue.after(NUM_ASCENTS)
            modes = ascents.together(modes, found)
        waiting[blind] = queue
        if len(modes.that_count().peaks().points) > len(peaks.points):
            calm = 0
    return dataclasses.replace(modes, hits=np.maximum(modes.hits, 1))


def _next_places(index: int, places: Places, modes: Modes) -> tuple[Places, bool]:
    """Where to look next, and whether what is hit from there counts.

    A needle may be inside of a wide mode, so some points are drawn by the shape of
    each; but these say nothing about how often it is hit.
    """
    # Most of many scales are of no use, as soon as one is known.
    every = 2 if places.is_all else _CYCLE
    if len(modes.points) == 0 or index % every == 1:
        return places, True
    peaks = modes.peaks()
    if peaks.curvatures.size and (len(peaks.points) == 1 or index % _CYCLE == 0):
        return peaks.around_each(), len(peaks.points) == 1 and not places.is_all
    return modes.around(), not places.is_all


@dataclasses.dataclass(frozen=True)
class ModeTable:
    """Peaks of the density among the draws.

    Attributes:
        points: Where they are, as unconstrained vectors; the heaviest first.
        shares: Share of the draws nearest to each, per replicate.
        weights: The same over all replicates.
    """

    points: np.ndarray
    shares: np.ndarray
    weights: np.ndarray


def find_modes(
    key: PRNGKeyArray,
    ascents: Ascents,
    vectors: np.ndarray,
    weights: np.ndarray,
    num_replicates: int,
) -> ModeTable:
    """Peaks that are reached from draws, with the share of the draws nearest to each.

    Args:
        key: Random key.
        ascents: Ascents of the density.
        vectors: Draws of all replicates, one after the other.
        weights: Their weights, which add up to one.
        num_replicates: How many replicates there are.
    """
    points = vectors[:0]
    if ascents.has_gradient:
        points = ascents.from_particles(key, vectors, weights).points
    if len(points) == 0:
        points = vectors[[np.argmax(weights)]]
    scale = np.sqrt(weights @ (vectors - weights @ vectors) ** 2) + 1e-30
    nearest = _nearest(vectors / scale, points / scale)
    shares = np.stack(
        [
            np.bincount(which, part / max(part.sum(), 1e-300), len(points))
            for which, part in zip(
                np.split(nearest, num_replicates),
                np.split(weights, num_replicates),
                strict=True,
            )
        ]
    )
    pooled = np.bincount(nearest, weights, len(points))
    order = np.argsort(-pooled, kind="stable")
    return ModeTable(points[order], shares[:, order], pooled[order])


def _nearest(vectors: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Index of the point nearest to each vector."""
    centre = points.mean(axis=0)
    vectors, points = vectors - centre, points - centre
    return np.argmin(np.sum(points**2, axis=1) - 2 * vectors @ points.T, axis=1)


def _padded(values: np.ndarray, fill: float = 0.0) -> np.ndarray:
    """Filled up to a multiple of the number of ascents."""
    missing = -len(values) % NUM_ASCENTS
    filling = np.full((missing, *values.shape[1:]), fill, values.dtype)
    return np.concatenate([values, filling])


@quick_jit
def _ascend(
    log_density: Callable[[Array], Array],
    starts: Float[Array, "ascents size"],
    scales: Float[Array, " ascents"],
) -> tuple[Array, Array, Array, Array, Array]:
    """Adam from every start; the best point of each way, its height, gain and slope.

    The gain is that of the last quarter, the slope the largest partial derivative. And
    whether the best point is another than the first.
    """
    evaluate = jax.vmap(jax.value_and_grad(lambda x: sanitise(log_density(x))))
    # Steps of a size of their own, however large or small the gradient.
    adam = optax.scale_by_adam(b1=0.8, b2=0.95, eps=1e-20)
    last = _LAST_RATE * jnp.minimum(scales, 1) / scales
    ratio = (last / _FIRST_RATE) ** (1 / _NUM_STEPS)

    def step(i, state):
        x, momenta, best, best_value, slope, before = state
        value, gradient = evaluate(x)
        better = value > best_value
        best = jnp.where(better[:, None], x, best)
        best_value = jnp.where(better, value, best_value)
        before = jnp.where(i == 3 * _NUM_STEPS // 4, best_value, before)
        usable = jnp.isfinite(gradient) & jnp.isfinite(value)[:, None]
        gradient = jnp.where(usable, gradient, 0)
        # A gradient of any size must not overflow when squared.
        size = jnp.max(jnp.abs(gradient), axis=1, keepdims=True)
        slope = jnp.where(better, size[:, 0], slope)
        gradient = gradient / jnp.maximum(size / 1e6, 1)
        move, momenta = adam.update(gradient, momenta)
        rate = scales * _FIRST_RATE * ratio**i
        return x + rate[:, None] * move, momenta, best, best_value, slope, before

    value = jnp.full(scales.shape, -jnp.inf, starts.dtype)
    state = (starts, adam.init(starts), starts, value, jnp.zeros_like(value), value)
    *_, best, best_value, slope, before = jax.lax.fori_loop(0, _NUM_STEPS, step, state)
    moved = jnp.any(best != starts, axis=1)
    return best, best_value, best_value - before, slope, moved


@quick_jit
def _shapes(
    log_density: Callable[[Array], Array], points: Float[Array, "points size"]
) -> tuple[Float[Array, "points size size"], Float[Array, "points size"]]:
    """Minus the Hessians, and the gradients; zero where they are not finite."""

    def slope(x):
        slope = jax.grad(lambda y: sanitise(log_density(y)))(x)
        return slope, slope

    hessian = jax.jacfwd(slope, has_aux=True)
    matrices, slopes = jax.lax.map(hessian, points)
    matrices = jnp.where(jnp.isfinite(matrices), matrices, 0)
    slopes = jnp.where(jnp.isfinite(slopes), slopes, 0)
    return -0.5 * (matrices + matrices.swapaxes(1, 2)), slopes


@quick_jit
def _evaluate(
    log_density: Callable[[Array], Array], points: Float[Array, "points size"]
) -> Float[Array, " points"]:
    return jax.vmap(lambda x: sanitise(log_density(x)))(points)


@quick_jit
def _dips(
    log_density: Callable[[Array], Array], peak: Array, points: Array
) -> Float[Array, " points"]:
    """How far the density falls between a peak and each point, below the lower end."""

    def dip(point):
        share = jnp.linspace(0, 1, _DIP_POINTS)[:, None]
        values = jax.vmap(lambda x: sanitise(log_density(x)))(
            peak + share * (point - peak)
        )
        return jnp.minimum(values[0], values[-1]) - jnp.min(values)

    return jax.vmap(dip)(points)
