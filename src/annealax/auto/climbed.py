"""Ascents of the terms that a density is the sum of, one by one.

Where each leads to known modes, these hold all of the mass, and there is no need to
guess from hits what may have been missed.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import PRNGKeyArray

from annealax._keys import named_key
from annealax.auto.density import CountedDensity
from annealax.auto.mass_at_modes import MassAtModes, mass_at_modes
from annealax.auto.modes import Ascents, Modes
from annealax.auto.places import Climbers, Places
from annealax.auto.starts.mixture import Peaks, peaks_at
from annealax.auto.terms import OneByOne, terms_of

_LOOKED_AT = 64
"""Points at which it is looked whether a density is what its terms add up to."""

_SMALL_STEP = 1e-3
"""First steps from the top of a term up the whole density, in its typical widths."""


class ClimbedTerms(NamedTuple):
    """What ascents of the terms found.

    Attributes:
        whole: The density, of which terms can be left out: the same compiled programs
            serve it and each of its terms.
        modes: Of each term.
        peaks_of: Gaussians at those of each term.
        at_modes: Of each term, how near it is to these.
        division: The terms as parts of the density.
    """

    whole: CountedDensity
    modes: tuple[Modes, ...]
    peaks_of: tuple[Peaks, ...]
    at_modes: tuple[MassAtModes, ...]
    division: OneByOne

    @property
    def peaks(self) -> Peaks:
        """Gaussians at all of them."""
        fits, log_masses = zip(*self.peaks_of, strict=True)
        return Peaks(sum(fits, ()), sum(log_masses, ()))

    @property
    def all_known(self) -> bool:
        """Whether each term has a peak, and probably none beside those known."""
        found = [each.that_count().peaks() for each in self.modes]
        return all(len(each.points) > 0 and each.all_known for each in found)

    def tops(self) -> Climbers:
        """The modes of the terms, to climb from up the whole density."""
        parts = []
        for each in self.modes:
            step = _SMALL_STEP * float(np.median(each.widths))
            parts.append(Climbers(each.points, np.full(len(each.points), step)))
        return Climbers.join(parts)


def climb_terms(
    key: PRNGKeyArray, density: CountedDensity, places: Places
) -> ClimbedTerms | None:
    """Ascents of every term; None if the density is not written as a sum."""
    points = places.draw(named_key(key, "points"), _LOOKED_AT).points
    terms = terms_of(density.log_density, points)
    if terms is None:
        return None
    modes: list[Modes] = []
    peaks: list[Peaks] = []
    at_modes: list[MassAtModes] = []
    for index, log_density in enumerate(terms.each()):
        term = density.counting(log_density)
        subkey = named_key(key, "term", index)
        ascents = Ascents(term)
        found = ascents.from_places(subkey, places).that_count()
        modes.append(found)
        peaks.append(peaks_at(term, found.peaks()))
        subkey = named_key(key, "at modes", index)
        at_modes.append(mass_at_modes(subkey, ascents, peaks[-1].fits))
    return ClimbedTerms(
        density.counting(terms.whole),
        tuple(modes),
        tuple(peaks),
        tuple(at_modes),
        OneByOne(terms),
    )
