"""Numbers and verdicts as text, the same in a terminal, a notebook and a page."""

import math
from collections.abc import Sequence

import numpy as np

from annealax._estimates import weighted_quantiles

PARAMETER_HEADERS = ("mean", "sd", "5%", "50%", "95%")
"""What `parameter_cells` says of a parameter: the last three are quantiles."""

_LEVELS = (0.05, 0.5, 0.95)


def estimate_text(value: float | None, error: float | None) -> str:
    """A number and its error bar, to the digits that the error bar leaves.

    The rule of the Particle Data Group: two digits of an error bar that begins with
    less than 0.355, else one.
    """
    if value is None or not math.isfinite(value):
        return "?"
    if error is None or not math.isfinite(error) or error <= 0:
        return f"{value:z.4f}"
    digits = min(max(_decimals(error), 0), 12)
    return f"{value:z.{digits}f} ± {error:.{digits}f}"


def brief_text(value: float, error: float | None) -> str:
    """A number and the error of its last digits: 3.702(4) is 3.702 ± 0.004."""
    if not math.isfinite(value):
        return "?"
    if error is None or not math.isfinite(error) or error <= 0:
        return f"{value:.5g}"
    digits = min(_decimals(error), 12)
    if digits < 0 or (digits == 0 and error >= 1):
        scale = 10**-digits
        return f"{round(value / scale) * scale:.0f}({round(error / scale) * scale:.0f})"
    unit = round(error * 10**digits)
    return f"{value:z.{digits}f}({max(unit, 1)})"


def _decimals(error: float) -> int:
    power = math.floor(math.log10(error))
    return (1 if error / 10**power < 3.55 else 0) - power


def headline(value: float | None, error: float | None, num_doubts: int) -> str:
    """The answer in a sentence."""
    doubt = "nothing to doubt"
    if num_doubts:
        doubt = f"{num_doubts} reason{'s' * (num_doubts > 1)} to doubt it, see below"
    return f"log Z = {estimate_text(value, error)}; {doubt}"


def fit_line(num_steps: int, loss: np.ndarray, num_doubts: int) -> str:
    """What a training came to, in a sentence."""
    tail = loss[-max(1, len(loss) // 10) :]
    tail = tail[np.isfinite(tail)]
    level = f"{np.mean(tail):.4g}" if len(tail) else "not finite"
    doubt = "nothing to doubt"
    if num_doubts:
        doubt = f"{num_doubts} reason{'s' * (num_doubts > 1)} to doubt it"
    return f"Flows trained for {num_steps} steps: loss {level} at the end; {doubt}"


def parameter_cells(
    values: np.ndarray, weights: np.ndarray, num_replicates: int = 1
) -> tuple[str, ...]:
    """Mean with its error, standard deviation and quantiles of a number.

    Args:
        values: Weighted draws, as many of each replicate, one after the other.
        weights: Their weights, which add up to one.
        num_replicates: Replicates, whose differences give the error of the mean; with
            one it is not known.
    """
    values = np.where(weights > 0, np.asarray(values, np.float64), 0.0)
    mean = float(weights @ values)
    spread = math.sqrt(max(float(weights @ (values - mean) ** 2), 0.0))
    error = None
    if num_replicates > 1:
        parts = (weights * (values - mean)).reshape(num_replicates, -1).sum(axis=1)
        scale = num_replicates / (num_replicates - 1)
        error = math.sqrt(scale * float(np.sum(parts**2)))
    form = spread_form(spread)
    ends = weighted_quantiles(values, weights, _LEVELS)
    first = format(mean, form) if error is None else brief_text(mean, error)
    return (first, format(spread, form), *(format(each, form) for each in ends))


def spread_form(spread: float) -> str:
    """How to write numbers that spread so much: to three digits of it, and no -0.00."""
    if not math.isfinite(spread) or not 1e-4 < spread < 1e5:
        return "z.4g"
    return f"z.{max(0, 2 - math.floor(math.log10(spread)))}f"


def listed(names: Sequence[str], most: int = 4) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
