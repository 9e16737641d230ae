"""How all pictures and tables look."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

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


def new_table(title: str) -> Table:
    """An empty table that fits a terminal and a plain file."""
    return Table(
        title=title,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        collapse_padding=True,
    )
