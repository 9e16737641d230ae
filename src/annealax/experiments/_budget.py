"""What a method may spend in a comparison."""

import dataclasses
import math
from typing import Literal

from annealax._errors import InvalidInputError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class Budget:
    """What every method may spend.

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


def parse_budget(text: str | None, evaluations: float | None) -> Budget:
    """A time such as 60s, 2m or 1h, or evaluations; 20 s if neither is given."""
    if text is not None and evaluations is not None:
        raise InvalidInputError("give --budget or --evaluations, not both.")
    if evaluations is not None:
        return Budget(evaluations, "evaluations")
    text = (text or "20s").strip()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        seconds = float(number) * _UNITS[unit]
    except ValueError:
        raise InvalidInputError(
            f"a budget is a time such as 60s, 2m or 1h; got {text!r}."
        ) from None
    return Budget(seconds, "seconds")
