"""How all pictures look."""

from collections.abc import Mapping
from typing import Any

import numpy as np

INK, BLUE, ORANGE = "#22262e", "#1f5fa8", "#d1561a"
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.edgecolor": "#8a909c",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": "#5b616d",
    "ytick.color": "#5b616d",
    "legend.frameon": False,
}


def spaced(last: int, count: int) -> list[int]:
    """At most `count` whole numbers from 0 to `last`, both included."""
    return sorted({round(i) for i in np.linspace(0, last, min(count, last + 1))})


def beta_title(beta: float) -> str:
    """Title of a panel at one temperature."""
    ends: Mapping[float, str] = {0.0: ", start", 1.0: ", target"}
    return rf"$\beta = {beta:.3g}$" + ends.get(beta, "")
