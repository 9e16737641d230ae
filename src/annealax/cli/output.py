"""What a command prints while it works: words and a bar, nothing, or JSON lines."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from annealax._work.drive import Callback, Progress

_PLAIN_WIDTH = 110
"""Columns where the output is no terminal: wide enough for every table."""


def json_number(value: Any) -> Any:
    """A number, or None where JSON has no word for it."""
    number = value if isinstance(value, int) else float(value)
    return number if math.isfinite(number) else None


def json_doubts(doubts: Iterable[str]) -> list[dict[str, str]]:
    """Reasons to doubt a result, with their codes."""
    return [{"code": getattr(d, "code", ""), "text": str(d)} for d in doubts]


def new_console() -> Console:
    """The console for results."""
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


class Output:
    """How a command speaks.

    Args:
        quiet: Only the final result.
        as_json: One JSON object on each line of standard output, and nothing else.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False):
        self.quiet = quiet
        self.as_json = as_json
        self.console = new_console()

    @property
    def progress(self) -> bool:
        """Whether to show a bar or lines of progress."""
        return not (self.quiet or self.as_json)

    def say(self, text: str) -> None:
        """A line about what begins now."""
        if self.as_json and not self.quiet:
            self.emit("stage", text=text)
        elif self.progress:
            self.console.print(text, style="dim", highlight=False)

    def tell(self, text: str) -> None:
        """A line of the result, never broken."""
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def left(self, folder: Path, files: Sequence[str]) -> None:
        """Say what is in a folder now: the page last, since it shows all the rest."""
        others = ", ".join(name for name in files if name != "report.html")
        text = f"Files in {folder}: {others}"
        self.console.print(text, highlight=False, markup=False)
        if "report.html" in files:
            self.tell(f"Open {folder / 'report.html'}")

    def callbacks(self, stage: str) -> list[Callback]:
        """Callbacks that print the progress of a stage as JSON, if asked for."""
        if self.quiet or not self.as_json:
            return []

        def report(snapshot: Progress) -> None:
            last = {k: json_number(v[-1].item()) for k, v in snapshot.metrics().items()}
            self.emit(
                "progress",
                stage=stage,
                step=snapshot.step,
                num_steps=snapshot.num_steps,
                seconds=round(snapshot.seconds, 3),
                **last,
            )

        return [report]

    def emit(self, event: str, **content: Any) -> None:
        """Print a JSON object."""
        print(json.dumps({"event": event, **content}, allow_nan=False), flush=True)

    def warn(self, text: str) -> None:
        """Tell of something that went wrong without ending the work."""
        if self.as_json:
            self.emit("warning", text=text)
        else:
            print(f"Warning: {text}", file=sys.stderr, flush=True)
