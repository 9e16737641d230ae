"""What a command prints while it works: words and a bar, nothing, or JSON lines."""

import contextlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from annealax._errors import AnnealaxError
from annealax._work.checkpoint import CheckpointWarning
from annealax._work.drive import Callback, Progress
from annealax._work.signals import Interrupted, Signals, deferred_signals
from annealax.loggers import json_value

_PLAIN_WIDTH = 110
"""Columns where the output is no terminal: wide enough for every table."""


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

    def callbacks(self, stage: str) -> list[Callback]:
        """Callbacks that print the progress of a stage as JSON, if asked for."""
        if self.quiet or not self.as_json:
            return []

        def report(snapshot: Progress) -> None:
            last = {k: json_value(v[-1].item()) for k, v in snapshot.metrics().items()}
            self.emit(
                "progress",
                stage=stage,
                step=snapshot.step,
                num_steps=snapshot.num_steps,
                seconds=round(snapshot.seconds, 3),
                **last,
            )

        return [report]

    def finish(
        self, show: Callable[[Console], None], content: Callable[[], Mapping[str, Any]]
    ) -> None:
        """The final result: as a table, or as the last JSON object."""
        if self.as_json:
            self.emit("result", **content())
        else:
            show(self.console)

    def emit(self, event: str, **content: Any) -> None:
        """Print a JSON object."""
        typer.echo(json.dumps({"event": event, **content}, allow_nan=False))

    def warn(self, text: str) -> None:
        """Tell of something that went wrong without ending the work."""
        if self.as_json:
            self.emit("warning", text=text)
        else:
            typer.echo(f"Warning: {text}", err=True)


@contextlib.contextmanager
def stoppable(
    output: Output, folder: Path, on_stop: Callable[[], None]
) -> Iterator[Signals]:
    """SIGINT and SIGTERM end the work once it is saved, with a word on how to go on.

    Args:
        output: How to speak.
        folder: What to resume.
        on_stop: Called when a signal has ended the work.
    """
    with deferred_signals() as signals, warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = lambda message, *_, **__: output.warn(str(message))
        try:
            yield signals
        except Interrupted as error:
            with contextlib.suppress(AnnealaxError):  # a full disk must not hide it
                on_stop()
            typer.echo(f"Stopped. To go on: annealax resume {folder}", err=True)
            raise typer.Exit(error.exit_code) from None
