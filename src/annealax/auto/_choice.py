"""A start that was tried, and which of two is better.

A start is better if its pilot finds significantly more mass (a start that misses part
of the target finds too little), and, where that does not decide, if it needs less work
for the same accuracy. So a narrow start never wins against a wide one that sees more.
Where these two point to different starts and the first is a near thing, more passes are
to decide.
"""

import dataclasses

import numpy as np

from annealax._estimates import log_mean, pooled_stderr
from annealax.auto._conditional import Conditional
from annealax.auto._explore import DEPTH, Modes
from annealax.auto._hierarchy import Hierarchy
from annealax.auto._mixture import is_of_modes
from annealax.auto._pilot import Pilot
from annealax.auto._placement import Coordinates


@dataclasses.dataclass(frozen=True)
class Start:
    """A start that was tried.

    Attributes:
        name: What it is, in words.
        placement: Its coordinates.
        pilot: What its pilot pass found.
        more: What further passes found, if the first left a doubt.
    """

    name: str
    placement: Coordinates
    pilot: Pilot
    more: tuple[Pilot, ...] = ()

    @property
    def log_normalizer(self) -> float:
        """Estimate of log Z by all passes."""
        return log_mean(self._log_normalizers)

    @property
    def stderr(self) -> float:
        """Its standard error: within passes or between them, whichever is larger."""
        if not self.more:
            return self.pilot.stderr
        stderrs = np.asarray([each.stderr for each in self._pilots])
        return pooled_stderr(self._log_normalizers, stderrs, pareto_k=0.0)

    @property
    def difficulty(self) -> float:
        """Squared error times work, up to a factor that starts share."""
        return self.stderr**2 * len(self._pilots) * self.pilot.num_transitions

    @property
    def _pilots(self) -> tuple[Pilot, ...]:
        return (self.pilot, *self.more)

    @property
    def _log_normalizers(self) -> np.ndarray:
        return np.asarray([each.log_normalizer for each in self._pilots])

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.name}: log Z {self.log_normalizer:.2f} +- {self.stderr:.2f}, "
            f"{self.pilot.num_transitions} temperatures"
        )


@dataclasses.dataclass(frozen=True)
class Choice:
    """The start that was chosen, and all that were tried.

    Attributes:
        start: The choice.
        tried: All, in the order in which they were tried.
        modes: Peaks that ascents found.
        num_evaluations: Evaluations made.
    """

    start: Start
    tried: tuple[Start, ...]
    modes: Modes
    num_evaluations: int

    @property
    def num_unseen(self) -> float:
        """Modes that the start probably lacks, if it is made of modes."""
        if is_of_modes(self.start.placement):
            return self.modes.highest(DEPTH).num_unseen
        return 0.0


def gain_of(old: Start, new: Start) -> float:
    """How many times better `new` is; infinite or zero where one misses mass."""
    difference = new.log_normalizer - old.log_normalizer
    if abs(difference) > _tolerance(old, new):
        return float("inf") if difference > 0 else 0.0
    return old.difficulty / max(new.difficulty, 1e-12)


def is_better(old: Start, new: Start) -> bool:
    """Whether `new` is to be preferred."""
    return gain_of(old, new) > gain_needed(old, new)


def is_doubtful(old: Start, new: Start) -> bool:
    """Whether the one that needs less work may well miss mass that the other sees."""
    difference = new.log_normalizer - old.log_normalizer
    tolerance = _tolerance(old, new)
    if not tolerance / 2 < abs(difference) <= tolerance:
        return False
    return is_better(old, new) == (difference < 0)


def _tolerance(old: Start, new: Start) -> float:
    """Estimates of log Z that differ by less say nothing."""
    return 0.1 + 3 * float(np.hypot(new.stderr, old.stderr))


def gain_needed(old: Start, new: Start) -> float:
    """How much better a start must be to be preferred."""
    before, after = old.placement, new.placement
    if isinstance(after, Hierarchy):
        return 1.5  # it costs more, and has to show that it is worth it
    if isinstance(after, Conditional) and isinstance(before, Conditional):
        # With the same leaders it was fitted to particles that came further into a
        # neck. With others it must be clearly better: what neither saw does not show.
        return 0.5 if set(after.leaders) == set(before.leaders) else 1.5
    return 1.0
