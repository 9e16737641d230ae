"""Live progress of a fit: a bar on a terminal, plain lines elsewhere."""

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


class FitProgress:
    """Shows step, loss, log Z, ESS and time left while a fit runs.

    Args:
        num_steps: Steps of the fit.
        enabled: False shows nothing.
    """

    def __init__(self, num_steps: int, *, enabled: bool):
        self._num_steps = num_steps
        self._enabled = enabled
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._last_line = -float("inf")

    def __enter__(self) -> "FitProgress":
        if self._enabled and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("training"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task("", total=self._num_steps, text="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, snapshot: "Snapshot") -> None:
        """Show the last step of a device call."""
        if not self._enabled:
            return
        info = snapshot.info
        ess = np.asarray(info.steps.ess)[-1]
        text = (
            f"loss {float(info.loss[-1]):.4g}  "
            f"log Z {float(info.log_normalizer[-1]):.4f}  "
            f"lowest ESS {ess.min():.0f}"
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=snapshot.step, text=text)
            return
        now = time.monotonic()
        last = snapshot.step == snapshot.num_steps
        if last or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(
                f"step {snapshot.step}/{snapshot.num_steps}  {text}", highlight=False
            )
