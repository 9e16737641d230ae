"""Densities of unlike parts: a start of its own for each (`starts/parts.py`).

The coordinates that undo a funnel may lose a normal beside it, and a Gaussian at its
peak loses its wide end. Where some modes are as good as normal and others are not, or
where a start that is much easier than the best has lost modes that are known, the
density is divided: into its terms, if it is written as a sum, or else into what is near
some modes and the rest. Starts compete for each part by itself, and the winners make
one start for all of it.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from annealax._keys import named_key
from annealax.auto.knowledge import Knowledge
from annealax.auto.mass_at_modes import squared_radius
from annealax.auto.search import improve, race, simple_starts
from annealax.auto.starts.base import Candidate, Seen, Tried
from annealax.auto.starts.gaussian import Linear, distances
from annealax.auto.starts.mixture import MAX_MIXTURE_SIZE, Peaks, gaussians_at
from annealax.auto.starts.parts import (
    AbstractDivision,
    Ellipsoids,
    Part,
    start_of_parts,
)

_TAME, _WILD = 0.8, 0.4
"""A mode is normal, or is not, if draws from its Gaussian are worth so much each."""

_WORTH_IT = 4.0
"""A start that lost modes must be so many times easier than the best, to be kept."""

_MOST_PARTS = 6
"""Every evaluation goes through the coordinates of all parts."""

_MOST_ELLIPSOIDS = 8
"""And through the shapes of all of these."""

_NARROWEST, _WIDEST = 1.4, 3.0
"""An ellipsoid reaches at least and at most so many times as far as a normal does."""

_FEW = 0.01
"""Share of the particles of the rest that may be inside of an ellipsoid."""

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class _Piece:
    """What is known of a part before it is looked at by itself.

    Attributes:
        peaks: Gaussians at its modes.
        likeness: How near it is to each of them.
        first: Starts that did well on the whole.
    """

    peaks: Peaks
    likeness: np.ndarray
    first: tuple[Candidate, ...] = ()

    @property
    def is_tame(self) -> bool:
        """Whether it is as good as normal at its modes."""
        return bool(len(self.likeness) and self.likeness.min() > _TAME)

    @property
    def is_wild(self) -> bool:
        """Whether it is nothing like its Gaussians, or has none."""
        return bool(self.likeness.min(initial=1.0) < _WILD or not len(self.likeness))


def divide(seen: Seen, known: Knowledge, say: Say) -> Seen:
    """A start for each part, where a single start for all of it would lose one."""
    best = seen.best
    assert best is not None
    is_small = seen.density.has_gradient and seen.density.size <= MAX_MIXTURE_SIZE
    if best.start.has_parts or not is_small:
        return seen
    divided = _by_terms(seen) or _by_ellipsoids(seen)
    if divided is None:
        return seen
    division, pieces = divided
    say(f"{division.num_parts} parts of the density are looked at by themselves")
    found = []
    for index, piece in enumerate(pieces):
        part = _best_of_part(seen, known, division, index, piece, say)
        if part is None:
            return seen
        found.append(part)
    log_masses = np.asarray([each.log_normalizer for each in found])
    shares = np.exp(log_masses - log_masses.max())
    start = start_of_parts([each.start for each in found], division, shares)
    names = dict.fromkeys(each.name for each in found)
    return race(seen, Candidate(f"by parts: {'; '.join(names)}", start), say)


def _by_terms(seen: Seen) -> tuple[AbstractDivision, list[_Piece]] | None:
    """The terms of a density that is written as a sum, if they are unlike."""
    terms = seen.terms
    if terms is None or not 1 < terms.division.num_parts <= _MOST_PARTS:
        return None
    pieces = [
        _Piece(peaks, known.likeness)
        for peaks, known in zip(terms.peaks_of, terms.at_modes, strict=True)
    ]
    is_mixed = any(p.is_tame for p in pieces) and any(p.is_wild for p in pieces)
    if not is_mixed and _best_of_the_losers(seen) is None:
        return None
    return terms.division, pieces


def _by_ellipsoids(seen: Seen) -> tuple[AbstractDivision, list[_Piece]] | None:
    """What is near modes that are normal, or that a good start lost; and the rest."""
    best, at_modes = seen.best, seen.at_modes
    assert best is not None
    if at_modes is None or not len(at_modes.fits):
        return None
    loser = _best_of_the_losers(seen)
    if loser is not None:
        rest = loser
        found = (loser.x, loser.weights, loser.log_normalizer)
        inside = at_modes.shares_lost(*found) > 0
    else:
        rest = best
        inside = at_modes.likeness > _TAME
        if not best.start.is_of_modes or at_modes.likeness.min() > _WILD:
            return None
    if not 0 < inside.sum() <= _MOST_ELLIPSOIDS:
        return None

    def those(which: np.ndarray) -> Peaks:
        chosen = np.flatnonzero(which)
        masses = tuple(float(at_modes.log_masses[i]) for i in chosen)
        return Peaks(tuple(at_modes.fits[i] for i in chosen), masses)

    fits = those(inside).fits
    ellipsoids = Ellipsoids(fits, [_radius(fit, fits, rest) for fit in fits])
    first = () if loser is None else (Candidate(loser.name, loser.start),)
    pieces = [
        _Piece(those(~inside), at_modes.likeness[~inside], first),
        _Piece(those(inside), at_modes.likeness[inside]),
    ]
    return ellipsoids, pieces


def _best_of_part(
    seen: Seen,
    known: Knowledge,
    division: AbstractDivision,
    index: int,
    piece: _Piece,
    say: Say,
) -> Tried | None:
    """The best start for a part; None if no pass from any came to its end."""
    density = seen.density.counting(Part(seen.density.log_density, division, index))
    part = Seen(
        density,
        named_key(seen.key, "part", index, len(seen.tried)),
        seen.modes,
        seen.wide,
        num_peaks=len(piece.peaks.fits),
    )
    if piece.peaks.fits:
        at_peaks = gaussians_at(piece.peaks, None if piece.is_tame else seen.wide)
        part = race(part, Candidate("Gaussians at its modes", at_peaks), say)
    if piece.is_tame and part.best is not None:
        return part.best
    for candidate in (*piece.first, *simple_starts(part, known)):
        part = race(part, candidate, say)
    return None if part.best is None else improve(part, say).best


def _best_of_the_losers(seen: Seen) -> Tried | None:
    """The easiest start that lost known modes, if that is worth dividing for."""
    best = seen.best
    assert best is not None
    if best.lost > 0:
        return best
    losers = [each for each in seen.tried if each.first.usable and each.lost > 0]
    easiest = min(losers, key=lambda each: each.difficulty, default=None)
    if easiest is None or best.difficulty < _WORTH_IT * easiest.difficulty:
        return None
    return easiest


def _radius(fit: Linear, fits: tuple[Linear, ...], rest: Tried) -> float:
    """Where the ellipsoid at a mode ends: between it and the particles of the rest."""
    size = rest.x.shape[1]
    radius = float(np.sqrt(squared_radius(size)))
    nearest = np.min([distances(each, rest.x) for each in fits], axis=0)
    elsewhere = nearest > _NARROWEST * radius
    if not elsewhere.any():
        return _NARROWEST * radius
    away = distances(fit, rest.x)[elsewhere]
    weights = rest.weights[elsewhere] / max(rest.weights[elsewhere].sum(), 1e-300)
    order = np.argsort(away)
    near = int(np.searchsorted(np.cumsum(weights[order]), _FEW))
    middle = np.sqrt(away[order[min(near, len(order) - 1)]] / radius)
    return radius * float(np.clip(middle, _NARROWEST, _WIDEST))
