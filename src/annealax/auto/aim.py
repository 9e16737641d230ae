"""What was asked for: an error of log Z, and a number of effective draws.

Runs are added until both are reached. The error is that of the answer, as it will be
stated; what a single tuned pass promises only says how many runs to begin with.
"""

import dataclasses
import math

import numpy as np

from annealax._checks import positive_number, whole_number

PRECISION, DRAWS = 0.02, 4000
"""An evidence ratio is then known to 3 %, and a mean to 2 % of a standard deviation."""

FEWEST, MOST = 8, 128
"""Runs: an error bar needs the former; beyond the latter, ask for it by a budget."""

_MARGIN = 0.8
"""An error bar of few runs is itself uncertain: aim somewhat below."""


@dataclasses.dataclass(frozen=True)
class Aim:
    """What was asked for.

    Attributes:
        precision: The error of log Z.
        draws: Number of effective draws.
    """

    precision: float = PRECISION
    draws: int = DRAWS

    def __post_init__(self) -> None:
        """Validate."""
        positive_number("precision", self.precision)
        whole_number("draws", self.draws, at_least=1)

    def runs(self, stderr: float, ess: float, count: int = 1) -> int:
        """How many runs it takes.

        Args:
            stderr: The error of so many runs.
            ess: Their effective number of draws.
            count: How many they are.
        """
        for_error = count * (stderr / (_MARGIN * self.precision)) ** 2
        for_draws = count * self.draws / max(ess, 1.0)
        wanted = np.nan_to_num(max(for_error, for_draws), nan=MOST, posinf=MOST)
        return math.ceil(np.clip(wanted, FEWEST, MOST))

    def is_reached(self, stderr: float, ess: float) -> bool:
        """Whether runs give what was asked for."""
        return bool(stderr <= self.precision and ess >= self.draws)
