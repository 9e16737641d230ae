"""Live progress of long work: a bar on a terminal, plain lines elsewhere."""

import time
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from annealax._fit import Snapshot

_SECONDS_BETWEEN_LINES = 5.0


class Lines:
    """Shows how far a loop has come, with a line of numbers.

    Args:
        label: What is being done.
        total: Steps of the loop.
        enabled: False shows nothing.
    """

    def __init__(self, label: str, total: int, *, enabled: bool):
        self._label = label
        self._total = total
        self._enabled = enabled
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._last_line = -float("inf")

    def __enter__(self):
        if self._enabled and self._console.is_terminal:
            self._bar = Progress(
                TextColumn(self._label),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total, text="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, text: str) -> None:
        """Show that `done` steps are behind us."""
        if not self._enabled:
            return
        if self._bar is not None:
            self._bar.update(self._task, completed=done, text=text)
            return
        now = time.monotonic()
        if done == self._total or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(
                f"{self._label} {done}/{self._total}  {text}", highlight=False
            )


def describe(snapshot: "Snapshot") -> str:
    """Loss, log Z and lowest ESS of the last step of a fit."""
    info = snapshot.info
    ess = np.asarray(info.steps.ess)[-1]
    return (
        f"loss {float(info.loss[-1]):.4g}  "
        f"log Z {float(info.log_normalizer[-1]):.4f}  "
        f"lowest ESS {ess.min():.0f}"
    )
