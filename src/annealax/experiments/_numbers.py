"""Numbers as text, and as JSON."""

import math
from typing import Any


def duration_text(seconds: float) -> str:
    """Seconds or milliseconds, three digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def count_text(number: float) -> str:
    """A count with k, M or G."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.0f}"


def percent_text(share: float) -> str:
    """A share in percent, or a question mark if it is not a number."""
    return f"{share:.0%}" if math.isfinite(share) else "?"


def json_number(value: Any) -> float | None:
    """A float, or None where JSON has no word for it."""
    number = float(value)
    return number if math.isfinite(number) else None
