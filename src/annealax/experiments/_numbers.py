"""Numbers as JSON holds them."""

import math
from typing import Any


def json_number(value: Any) -> float | None:
    """A float, or None where JSON has no word for it."""
    number = float(value)
    return number if math.isfinite(number) else None
