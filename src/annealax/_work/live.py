"""A live line for work in stages: which stage it is at, since when, how long to go.

On a terminal the line stays at the bottom, below the lines that are said; elsewhere,
and in a notebook, there are these lines alone. Without being asked, it shows on a
terminal only.
"""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from rich import progress as bars
from rich.console import Console

from annealax._work.drive import Progress, as_callbacks

_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")

_STAGES = {
    "start": "looking for a start",
    "tuning": "temperatures and step sizes",
    "flows": "flows",
    "answer": "independent replicates",
    "modes": "a last look",
}
"""What stages are called, by their names in `Sample.stages`."""


class Live:
    """Says lines, and shows a live line below them.

    Args:
        enabled: Whether to say anything; None for on a terminal only.
        console: Where to; None for standard error.
        also: Is given every line as well, whether it is shown or not.
    """

    def __init__(
        self,
        enabled: bool | None = None,
        console: Console | None = None,
        also: Callable[[str], None] | None = None,
    ):
        self._also = also
        self._console = console or Console(stderr=True)
        terminal = self._console.is_terminal
        self._enabled = terminal if enabled is None else enabled
        self._bar: bars.Progress | None = None
        if self._enabled and terminal:
            self._bar = bars.Progress(
                bars.SpinnerColumn("line"),
                bars.TextColumn("{task.description}"),
                bars.BarColumn(bar_width=20),
                bars.TimeElapsedColumn(),
                bars.TextColumn("{task.fields[text]}"),
                bars.TimeRemainingColumn(),
                console=self._console,
                transient=True,
                refresh_per_second=4,
            )

    def __enter__(self) -> "Live":
        """Show it."""
        if self._bar is not None:
            self._task = self._bar.add_task("starting", total=None, text="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, text: str) -> None:
        """Say a line."""
        if self._also is not None:
            self._also(text)
        if self._enabled:
            self._console.print(text, highlight=False, style="dim", markup=False)

    def stage(self, name: str) -> None:
        """A stage begins."""
        if self._bar is not None:
            self._bar.reset(self._task, total=None, text="")
            self._bar.update(self._task, description=_STAGES.get(name, name))

    def watch(self, snapshot: Progress) -> None:
        """A step of the stage is made: a callback."""
        if self._bar is not None:
            text = f"{snapshot.step} of {snapshot.num_steps}, time left"
            done, total = snapshot.step, snapshot.num_steps
            self._bar.update(self._task, completed=done, total=total, text=text)


def with_live_line(
    function: Callable[_Arguments, _Returned],
) -> Callable[_Arguments, _Returned]:
    """Give a function whose `progress` is a function of lines a live line.

    Its argument `progress` is then also True, False, or None for on a terminal only.
    """

    @functools.wraps(function)
    def wrapped(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Returned:
        progress: Any = kwargs.get("progress")
        if callable(progress):
            return function(*args, **kwargs)
        with Live(progress) as live:
            callbacks: Any = kwargs.get("callback")
            changed: Any = {
                "progress": live,
                "callback": [live.watch, *as_callbacks(callbacks)],
            }
            return function(*args, **{**kwargs, **changed})

    return wrapped
