"""The one loop under all long work: advance, show, tell, save, stop.

Work under way is an immutable object (`Work`): what was made so far and how much is
left. A function takes it some steps further and says what these steps showed. The loop
calls it until nothing is left, shows a live line, calls callbacks, and, where there is
a checkpoint, saves the work now and then, at the end, and on a signal. Since it is
immutable it is whole at every moment, and whoever interrupts finds it so.

With what work needs on its way: programs that are compiled ahead, and the live line.
"""

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from jaxtyping import PyTree
from rich import progress as bars
from rich.console import Console

from annealax._errors import InvalidInputError
from annealax._work.checkpoint import Checkpoint
from annealax._work.serialise import FileError
from annealax._work.signals import Signals, deferred_signals
from annealax._work.together import agreed, is_first, meet, together

_W = TypeVar("_W", bound="Work")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Long work under way; what it holds must be what `annealax.save` can describe.

    Attributes:
        total: Steps asked for.
        done: Steps made.
        seconds: Time that they took.
        stopped: Nothing more is to be made, though something is left.
    """

    total: int
    done: int = 0
    seconds: float = 0.0
    stopped: bool = False

    @property
    def finished(self) -> bool:
        """Whether nothing is left to be made."""
        return self.stopped or self.done >= self.total

    def compact(self: _W) -> _W:
        """The same work, in the form in which it is saved."""
        return self


@runtime_checkable
class Progress(Protocol):
    """What every callback can rely on; all snapshots have it."""

    @property
    def step(self) -> int:
        """Steps made so far."""
        ...

    @property
    def num_steps(self) -> int:
        """Steps asked for."""
        ...

    @property
    def seconds(self) -> float:
        """Time since the first step began, compilation apart."""
        ...

    def metrics(self) -> dict[str, np.ndarray]:
        """Numbers of each step of this call, by name: arrays over steps."""
        ...


Callback = Callable[[Any], bool | None]
"""Is given a snapshot after each device call; work stops if it returns True."""


def drive(
    advance: Callable[[_W], tuple[_W, Any]],
    work: _W,
    *,
    label: str,
    describe: Callable[[Any], str],
    unit: str = "steps",
    callbacks: Iterable[Callback] = (),
    may_stop: bool = True,
    progress: bool | None = False,
    store: Checkpoint | None = None,
    identity: Callable[[], Mapping[str, Any]] = dict,
) -> _W:
    """Make what is left of some work.

    Args:
        advance: From the work to the work after some more steps, and a snapshot of
            what these showed (a `Progress`).
        work: The work at its beginning.
        label: What is being done, for the live line and for messages.
        describe: From a snapshot to the numbers of the live line.
        unit: What the steps are, in messages.
        callbacks: Are given each snapshot.
        may_stop: Whether a callback that returns True ends the work.
        progress: Show the live line; None for on a terminal only.
        store: Where the work is saved, and taken from if it is there.
        identity: Says what the work is: that of other work in the store is an error.

    Raises:
        Interrupted: A KeyboardInterrupt, after the work was saved; only with a store.
    """
    callbacks = list(callbacks)
    if not is_first():
        progress = False
    known = {} if store is None else identity()
    if store is not None:
        work = _latest(store, known, work)
    if work.finished:
        return work

    def save() -> None:
        if store is not None:
            meta = {"step": work.done}
            store.save(work.compact(), identity=known, meta=meta, step=work.done)

    with (
        Lines(label, work.total, enabled=progress, start=work.done) as line,
        _signals(store) as signals,
    ):
        try:
            while not work.finished:
                work, snapshot = advance(work)
                line.update(work.done, describe(snapshot))
                if agreed(call_all(callbacks, snapshot)) and may_stop:
                    work = dataclasses.replace(work, stopped=True)
                if store is None:
                    continue
                if together():
                    signals.pending = agreed(signals.pending or 0) or None
                if work.finished or signals.pending or store.due(work.done):
                    work = work.compact()
                    save()
                signals.stop_if_asked(
                    f"{label} stopped after {work.done} of {work.total} {unit}; the "
                    f"same call goes on from the checkpoint in {store.folder}"
                )
        except KeyboardInterrupt:
            # Not one of our signals: a handler of somebody else's, or a callback.
            if signals.pending is None:
                save()
            raise
    return work


def _signals(store: Checkpoint | None) -> AbstractContextManager[Signals]:
    """Work that cannot be saved has no reason to outlive a signal."""
    return nullcontext(Signals()) if store is None else deferred_signals()


def _latest(store: Checkpoint, identity: Mapping[str, Any], work: _W) -> _W:
    """The work as it was saved, if it was."""
    if (saved := store.latest(identity)) is None:
        return work
    found = saved.restore()
    if type(found) is not type(work):
        raise FileError(f"{saved.path} holds {type(found).__name__}, not this work")
    return found


def joined(chunks: Iterable[PyTree]) -> PyTree:
    """Trees of arrays over steps, one after the other, as one tree."""
    return jax.tree.map(lambda *each: np.concatenate(each), *chunks)


def size_of_next_call(count: int, elapsed: float, seconds: float) -> int:
    """Steps that should take about `seconds`, if `count` took `elapsed`."""
    return max(1, int(seconds * count / max(agreed(elapsed), 1e-6)))


def as_callbacks(callback: Callback | Iterable[Callback] | None) -> list[Callback]:
    """None, one callback or several, as a list."""
    if callback is None:
        return []
    found = [callback] if callable(callback) else list(callback)
    for entry in found:
        if not callable(entry):
            raise InvalidInputError(
                f"callback must be a function of a snapshot, or several; got {entry!r}"
            )
    return found


def call_all(callbacks: Iterable[Callback], snapshot: Progress) -> bool:
    """Call every one of them; whether one wants to stop."""
    return any([bool(callback(snapshot)) for callback in callbacks])


class Program(NamedTuple):
    """A compiled program.

    Attributes:
        run: The program, as a function of what it was compiled for.
        compile_seconds: Time to trace and compile it.
        memory: Bytes for its inputs, outputs and intermediate results.
        num_devices: Devices that a call uses.
    """

    run: Callable[..., Any]
    compile_seconds: float
    memory: int
    num_devices: int = 1


def compile_ahead(function: Any, *arguments: Any) -> Program:
    """Compile a function that `eqx.filter_jit` made, for arguments like these."""
    began = time.perf_counter()
    compiled = function.lower(*arguments).compile()
    meet("compiled")
    seconds = time.perf_counter() - began
    return Program(compiled, seconds, _peak_memory(compiled), _num_devices(compiled))


def _num_devices(compiled: Any) -> int:
    shardings = jax.tree.leaves(compiled.compiled.output_shardings)
    return max((len(each.device_set) for each in shardings), default=1)


def _peak_memory(compiled: Any) -> int:
    analysis = compiled.compiled.memory_analysis()
    if analysis is None:  # some backends do not tell
        return 0
    return int(
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )


_SECONDS_BETWEEN_LINES = 5.0


_WIDEST_BAR, _LEAST_BAR, _BESIDE = 24, 4, 12
"""Characters of a bar, and of the time left with the spaces between all parts."""


class Lines:
    """Shows how far a loop has come, with a line of numbers.

    Args:
        label: What is being done.
        total: Steps of the loop.
        enabled: Whether to show it; None for on a terminal only.
        start: Steps that an earlier process made.
    """

    def __init__(self, label: str, total: int, *, enabled: bool | None, start: int = 0):
        self._label = label
        self._total = total
        self._console = Console(stderr=True)
        self._enabled = self._console.is_terminal if enabled is None else enabled
        self._bar: bars.Progress | None = None
        self._last_line = -float("inf")
        self._start = start
        self._first: tuple[int, float] | None = None

    def __enter__(self):
        if self._enabled and self._console.is_terminal:
            self._width = bars.BarColumn(bar_width=_WIDEST_BAR)
            self._bar = bars.Progress(
                bars.TextColumn(self._label),
                self._width,
                bars.MofNCompleteColumn(),
                bars.TextColumn("{task.fields[text]}"),
                bars.TimeRemainingColumn(),
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
        now = time.monotonic()
        if self._first is None:  # until then most of the time went to compilation
            self._first = done, now
        if self._bar is not None:
            text = self._fitted(text)
            self._bar.update(self._task, completed=done, text=text)
            return
        if done == self._total or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._console.print(
                f"{self._label} {done}/{self._total}  {text}{self._left(done, now)}",
                highlight=False,
                soft_wrap=True,
            )

    def _fitted(self, text: str) -> str:
        """As much of it as there is room for; the bar gets shorter before."""
        count = 2 * len(str(self._total)) + 1
        room = self._console.width - len(self._label) - count - _BESIDE
        self._width.bar_width = int(np.clip(room - len(text), _LEAST_BAR, _WIDEST_BAR))
        return text[: max(0, room - self._width.bar_width)]

    def _left(self, done: int, now: float) -> str:
        first, began = self._first or (done, now)
        if done <= first or done >= self._total:
            return ""
        seconds = (now - began) / (done - first) * (self._total - done)
        return f"  {datetime.timedelta(seconds=round(seconds))} left"


def as_teller(
    progress: bool | Callable[[str], None] | None,
) -> Callable[[str], None]:
    """Where lines about what is going on go."""
    if callable(progress):
        return progress
    if not progress:
        return lambda text: None
    console = Console(stderr=True)
    return lambda text: console.print(text, highlight=False, style="dim")
