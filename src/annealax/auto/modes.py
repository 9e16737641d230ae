"""Where a density has its modes: ascents from many points on many scales.

This is for choosing a start and for reporting, never for estimates: ascents find peaks
of the density, which need not be where its mass is.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from annealax._keys import named_key
from annealax._path import sanitise
from annealax.auto.density import CountedDensity

_SCALES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Where ascents start: nobody says on which scale the density lives."""

_ASCENTS_PER_SCALE = 16

_NUM_STEPS = 200
_FIRST_RATE, _LAST_RATE = 0.3, 3e-4
"""Steps of an ascent shrink by so much, in units of its scale: coarse, then fine."""

_DIP = 0.5
"""Ends between which the density falls by less than these nats are one peak."""

_DIP_POINTS = 9
"""Where the density is looked at between two ends."""

_MAX_PEAKS = 128
"""Telling peaks apart costs a program call for each."""

_MAX_EXPLORATIONS = 16
"""Batches of ascents from around the modes, at most."""

_MIN_HITS = 5
"""All modes are probably known once each was found so often."""

_AROUND = 1.5
"""Ascents around the modes start so many times further out than these lie."""

MAX_MODES = 100
"""Up to so many are looked for one by one."""

DEPTH = 15.0
"""Modes this far below the highest, in nats, do not count."""

NUM_ASCENTS = len(_SCALES) * _ASCENTS_PER_SCALE
"""Points in a batch of ascents."""


class Modes(NamedTuple):
    """Distinct peaks, the highest first.

    Attributes:
        points: Where they are.
        log_densities: How high they are.
        hits: How many ascents ended at each.
    """

    points: Float[np.ndarray, "modes size"]
    log_densities: Float[np.ndarray, " modes"]
    hits: Int[np.ndarray, " modes"]

    def highest(self, depth: float) -> "Modes":
        """Those at most `depth` below the highest."""
        kept = self.log_densities > self.log_densities[:1] - depth
        return Modes(self.points[kept], self.log_densities[kept], self.hits[kept])

    @property
    def num_unseen(self) -> float:
        """How many more there probably are (Chao, 1984).

        The more of them were hit only once, and the fewer twice, the more were missed.
        """
        once, twice = (int(np.sum(self.hits == count)) for count in (1, 2))
        return 0.5 * once * (once - 1) / (twice + 1)


class Ascents:
    """Compiled ascents of one density.

    Args:
        density: The density.
    """

    def __init__(self, density: CountedDensity):
        self._density = density

    def from_scales(self, key: Array) -> Modes:
        """Peaks reached from normal points on scales from small to large."""
        normal = np.asarray(jr.normal(key, (NUM_ASCENTS, self._density.size)))
        scales = np.repeat(_SCALES, _ASCENTS_PER_SCALE)
        return self.peaks(normal * scales[:, None], scales)

    def more(
        self, key: Array, modes: Modes, centre: np.ndarray, scale: np.ndarray
    ) -> Modes:
        """Modes known and those reached from points around them."""
        normal = np.asarray(jr.normal(key, (NUM_ASCENTS, len(centre))))
        scale = np.maximum(scale, 1e-3 * scale.max() + 1e-12)
        starts = centre + _AROUND * normal * scale
        found = self.peaks(starts, np.full(NUM_ASCENTS, float(np.median(scale))))
        return self.together(modes, found)

    def from_particles(self, key: Array, x: np.ndarray, weights: np.ndarray) -> Modes:
        """Peaks reached from particles."""
        shares = jnp.asarray(weights)
        index = np.asarray(jr.choice(key, len(x), (NUM_ASCENTS,), p=shares))
        scale = np.sqrt(weights @ (x - weights @ x) ** 2)
        # With small steps: they are where they belong.
        rates = np.full(NUM_ASCENTS, 0.1 * float(np.median(scale)) + 1e-30)
        return self.peaks(x[index], rates)

    def together(self, modes: Modes, found: Modes) -> Modes:
        """Modes of two searches, each counted once."""
        points, values, hits = (
            np.concatenate(pair) for pair in zip(modes, found, strict=True)
        )
        # In batches of one size: programs are compiled for it.
        return self._distinct(_padded(points), _padded(values, -np.inf), _padded(hits))

    def peaks(self, starts: np.ndarray, scales: np.ndarray) -> Modes:
        """Climb from `starts`, with steps in proportion to `scales`, and sort out."""
        points, values = jax.device_get(
            _ascend(
                self._density.log_density,
                jnp.asarray(starts, jnp.result_type(float)),
                jnp.asarray(scales, jnp.result_type(float)),
            )
        )
        self._density.spend(len(starts) * _NUM_STEPS)
        return self._distinct(points, values, np.ones(len(points), int))

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
                    jnp.asarray(points[index]),
                    jnp.asarray(points),
                )
            )
            same = (depth < _DIP) & (members < 0) & np.isfinite(values)
            same[index] = True
            members[same] = len(peaks)
            peaks.append(index)
            self._density.spend(_DIP_POINTS * len(points))
        assigned = members >= 0
        counts = np.bincount(members[assigned], hits[assigned], len(peaks))
        return Modes(points[peaks], values[peaks], counts.astype(int))


def explore(key: PRNGKeyArray, ascents: Ascents) -> Modes:
    """Ascend from all scales, then from the region of the modes until all are known."""
    modes = ascents.from_scales(named_key(key, "scales"))
    for index in range(_MAX_EXPLORATIONS):
        kept = modes.highest(DEPTH)
        count = len(kept.points)
        if not 1 < count <= MAX_MODES:
            break
        subkey = named_key(key, "around", index)
        modes = ascents.more(subkey, modes, kept.points.mean(0), kept.points.std(0))
        after = modes.highest(DEPTH)
        # Basins differ in size: what was hit once or twice has siblings not yet hit.
        if len(after.points) == count and after.hits.min() >= _MIN_HITS:
            break
    return modes


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


@eqx.filter_jit
def _ascend(
    log_density: Callable[[Array], Array],
    starts: Float[Array, "ascents size"],
    scales: Float[Array, " ascents"],
) -> tuple[Array, Array]:
    """Adam from every start; the best point of each way and its log density."""
    evaluate = jax.vmap(jax.value_and_grad(lambda x: sanitise(log_density(x))))
    # Steps of a size of their own, however large or small the gradient.
    adam = optax.scale_by_adam(b1=0.8, b2=0.95, eps=1e-20)
    ratio = (_LAST_RATE / _FIRST_RATE) ** (1 / _NUM_STEPS)

    def step(i, state):
        x, momenta, best, best_value = state
        value, gradient = evaluate(x)
        better = value > best_value
        best = jnp.where(better[:, None], x, best)
        best_value = jnp.where(better, value, best_value)
        usable = jnp.isfinite(gradient) & jnp.isfinite(value)[:, None]
        gradient = jnp.where(usable, gradient, 0)
        # A gradient of any size must not overflow when squared.
        size = jnp.max(jnp.abs(gradient), axis=1, keepdims=True)
        gradient = gradient / jnp.maximum(size / 1e6, 1)
        move, momenta = adam.update(gradient, momenta)
        rate = scales * _FIRST_RATE * ratio**i
        return x + rate[:, None] * move, momenta, best, best_value

    value = jnp.full(scales.shape, -jnp.inf, starts.dtype)
    state = (starts, adam.init(starts), starts, value)
    *_, best, best_value = jax.lax.fori_loop(0, _NUM_STEPS, step, state)
    return best, best_value


@eqx.filter_jit
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
