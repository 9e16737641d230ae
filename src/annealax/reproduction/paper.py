"""What the paper shows: values read off its figures, and what its text claims.

The paper prints pictures, not tables. Values were read off the points and axes of the
pictures; where a curve wanders, the lowest and the highest are given. All of them were
measured on one Nvidia V100.
"""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Reading:
    """A value of a figure.

    Attributes:
        line: Name of the line in our configuration.
        low: The value; where a range was read, its lower end.
        high: The upper end of the range; None for a single value.
        at: Where on the axis of a sweep; None where the line has but one value.
    """

    line: str
    low: float
    high: float | None = None
    at: int | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The range, lower end first."""
        return self.low, self.low if self.high is None else self.high


@dataclasses.dataclass(frozen=True)
class Gold:
    """The value that a figure calls its gold standard.

    Attributes:
        value: The value.
        stderr: Its error as printed or drawn; zero where the figure gives none.
    """

    value: float
    stderr: float = 0.0


@dataclasses.dataclass(frozen=True)
class Shown:
    """One panel of the paper.

    Attributes:
        source: Where it is.
        gold: Its gold standard.
        readings: What was read off it. Of sweeps and trainings log Z; of chains the
            error of the running mean after 1000 s.
    """

    source: str
    gold: Gold
    readings: tuple[Reading, ...] = ()


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper that compares two lines of a panel.

    Attributes:
        text: What it says.
        source: Where.
        better: The line that does better.
        worse: The other.
        by: What is compared: "log Z" (more is better), "error" after the same time,
            or "memory" (less is better).
    """

    text: str
    source: str
    better: str
    worse: str
    by: Literal["log Z", "error", "memory"] = "log Z"


def _sweep(line: str, values: dict[int, float]) -> tuple[Reading, ...]:
    return tuple(Reading(line, value, at=at) for at, value in values.items())


PARTICLES = Shown(
    "Figure 1",
    Gold(508.8, 1.6),
    (
        *_sweep("craft", {10: 444.6, 20: 466.8, 40: 495.4, 200: 505.7}),
        *_sweep("aft", {10: 211.5, 20: 254.3, 40: 389.1, 200: 492.2}),
    ),
)
TRAINING_VAE = Shown(
    "Figure 2, VAE",
    Gold(-109.75),
    (Reading("craft", -109.75), Reading("snf", -135.0, -126.0)),
)
TRAINING_LGCP = Shown(
    "Figure 2, LGCP",
    Gold(507.46),
    (Reading("craft", 499.0, 504.0), Reading("snf", 491.7)),
)
SUSCEPTIBILITY = Shown(
    "Figure 3",
    Gold(39.455, 0.04),
    (
        Reading("craft", -0.045, 0.045),
        Reading("smc", -0.08, 0.08),
        Reading("hmc", -0.65, -0.3),
        Reading("vi", 0.1, 0.8),
    ),
)
TRANSITIONS = Shown(
    "Figure 4",
    Gold(511.9, 2.8),
    (
        *_sweep("craft", {10: 505.0, 30: 502.0, 100: 505.0}),
        *_sweep("aft", {10: 131.0, 30: 400.0, 100: 494.0}),
        *_sweep("smc", {10: -26.0, 30: 289.0, 100: 472.0}),
        Reading("vi", 428.9),
    ),
)
ENERGY = Shown("Figures 5 and 7", Gold(0.2412, 0.0001))
CHAIN = Shown("Figure 6", Gold(39.455, 0.04))
