"""Live progress of long work: a bar on a terminal, plain lines elsewhere."""

import datetime
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

_SECONDS_BETWEEN_LINES = 5.0


class Lines:
    """Shows how far a loop has come, with a line of numbers.

    Args:
        label: What is being done.
        total: Steps of the loop.
        enabled: False shows nothing.
        start: Steps that an earlier process made.
    """

    def __init__(self, label: str, total: int, *, enabled: bool, start: int = 0):
        self._label = label
        self._total = total
        self._enabled = enabled
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._last_line = -float("inf")
        self._start = start
        self._began = time.monotonic()

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
            self._task = self._bar.add_task(
                "", total=self._total, text="", completed=self._start
            )
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
                f"{self._label} {done}/{self._total}  {text}{self._left(done, now)}",
                highlight=False,
                soft_wrap=True,
            )

    def _left(self, done: int, now: float) -> str:
        made = done - self._start
        if made <= 0 or done >= self._total:
            return ""
        seconds = (now - self._began) / made * (self._total - done)
        return f"  {datetime.timedelta(seconds=round(seconds))} left"
