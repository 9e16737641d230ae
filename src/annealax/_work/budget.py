"""What a method may spend: time or density evaluations."""

import dataclasses
import math
from typing import Literal, overload

from annealax._errors import InvalidInputError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class Budget:
    """What may be spent.

    Attributes:
        amount: How much.
        unit: Of what.
    """

    amount: float
    unit: Literal["seconds", "evaluations"]

    def __post_init__(self) -> None:
        """Validate."""
        if not (math.isfinite(self.amount) and self.amount > 0):
            raise InvalidInputError(
                f"a budget must be a positive number of {self.unit}; got {self.amount}."
            )


@overload
def as_budget(budget: None) -> None: ...
@overload
def as_budget(budget: Budget | str | float) -> Budget: ...
def as_budget(budget: Budget | str | float | None) -> Budget | None:
    """A time such as "60s", "2m" or "1h", or a number of density evaluations."""
    if budget is None or isinstance(budget, Budget):
        return budget
    if isinstance(budget, str):
        seconds = _seconds(budget.strip())
        if seconds is not None:
            return Budget(seconds, "seconds")
    elif not isinstance(budget, bool):
        return Budget(float(budget), "evaluations")
    raise InvalidInputError(
        f"a budget is a time such as 60s, 2m or 1h, or a number of density "
        f"evaluations; got {budget!r}."
    )


def _seconds(text: str) -> float | None:
    """The time that a text stands for; None if it stands for none."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return None


def parse_budget(text: str | None, evaluations: float | None) -> Budget:
    """What the options of a command say; 20 s if neither is given."""
    if text is not None and evaluations is not None:
        raise InvalidInputError("give --budget or --evaluations, not both.")
    return as_budget((text or "20s") if evaluations is None else evaluations)
