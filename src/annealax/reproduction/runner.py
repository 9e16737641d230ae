"""All pieces of some figures: one after the other, or side by side.

Side by side they are measured in processes, or on the devices of this one.

A worker (`annealax._work.executors`) takes the next piece, and leaves what it finds in
the folder of the work.
"""

import concurrent.futures
import contextlib
import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import filelock
import jax

from annealax._errors import AnnealaxError, InvalidInputError
from annealax._work.checkpoint import Checkpoint
from annealax._work.copies import devices_for_tasks, whole_tasks
from annealax._work.executors import Workers, num_processors
from annealax._work.signals import deferred_signals
from annealax.experiments.comparison import reuse_compiled_programs
from annealax.reproduction.figures import Scale, Task, all_tasks
from annealax.reproduction.measure import Bench, Measured, Watch, finished, measure

_CACHE = "jax_compilation_cache_dir"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be reproduced.

    Attributes:
        figures: Numbers of figures.
        scale: The scale.
        seed: Seed of all that is random.
        repeats: Repeats of each line; None for those of the scale.
    """

    figures: tuple[int, ...]
    scale: Scale
    seed: int
    repeats: int | None = None

    @property
    def tasks(self) -> list[Task]:
        """All pieces."""
        return all_tasks(self.figures, self.scale, self.repeats)


def default_workers(scale: Scale) -> int:
    """As many as there are processors; one at a time on any other device.

    At the smallest scale compilation is most of the work, and is best shared.
    """
    if scale == "smoke" or jax.default_backend() != "cpu":
        return 1
    return num_processors()


def default_devices(scale: Scale) -> list[jax.Device]:
    """Those of this process, if there are several, but at the smallest scale.

    There compilation is most of the work, and each device would do it again.
    """
    return [] if scale == "smoke" else devices_for_tasks()


def collect(plan: Plan, store: Checkpoint) -> dict[str, Measured]:
    """What is there of a plan, by the names of its tasks."""
    found = {}
    for task in plan.tasks:
        answer = finished(_bench(task, plan, store, Watch()))
        if answer is not None:
            found[task.name] = answer
    return found


def run(
    plan: Plan,
    store: Checkpoint,
    *,
    workers: Workers | None = None,
    devices: Sequence[jax.Device] = (),
    say: Callable[[str], None] = lambda text: None,
    stop_if_asked: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> dict[str, Measured]:
    """Measure all that is not there yet.

    Args:
        plan: What is to be reproduced.
        store: Where every piece keeps its state; the same plan goes on from there.
        workers: Where pieces are measured side by side; None for this process, one
            after the other. Times are always measured here.
        devices: Without workers, pieces are measured side by side on these, as long as
            there are enough. What uses all devices by itself or takes the time stays
            alone.
        say: Called with a line of text after each piece.
        stop_if_asked: Raises if the work shall stop; called often.
        progress: Show a live line of the piece under way, if it is alone.
    """
    done = collect(plan, store)
    clock = _Clock(plan.tasks, done)
    if done:
        say(f"{len(done)} of {len(plan.tasks)} pieces are there already")
    watch = Watch(progress, lambda snapshot: stop_if_asked())

    def note(task: Task, answer: Measured) -> None:
        done[task.name] = answer
        say(clock.line(task, answer))

    with reuse_compiled_programs(), _compiled_in_haste(plan.scale == "smoke"):
        for stage in ("flows", "measurement", "timing"):
            left = [t for t in plan.tasks if t.stage == stage and t.name not in done]
            if workers is not None and stage != "timing" and len(left) > 1:
                _side_by_side(left, plan, store, workers, note, stop_if_asked)
                continue
            beside = [t for t in left if _is_movable(t)]
            if 1 < len(devices) <= len(beside):
                silent = dataclasses.replace(watch, progress=False)
                benches = [_bench(t, plan, store, silent) for t in beside]
                _on_devices(benches, devices, note, stop_if_asked)
                left = [t for t in left if t not in beside]
            for task in left:
                stop_if_asked()
                note(task, measure(_bench(task, plan, store, watch)))
    return done


@contextlib.contextmanager
def _compiled_in_haste(enabled: bool) -> Iterator[None]:
    """At the smallest scale programs take longer to compile than to run."""
    name = "jax_disable_most_optimizations"
    before = bool(jax.config.values[name])
    try:
        jax.config.update(name, enabled or before)
        yield
    finally:
        jax.config.update(name, before)


def _bench(task: Task, plan: Plan, store: Checkpoint, watch: Watch) -> Bench:
    return Bench(task, plan.seed, store, watch, plan.scale)


class _Clock:
    """How far the work has come, and how long the rest may take."""

    def __init__(self, tasks: Iterable[Task], done: Mapping[str, Any]):
        self._left = {t.name: t.cost for t in tasks if t.name not in done}
        self._total = len(self._left) + len(done)
        self._made = 0.0
        self._began = time.monotonic()

    def line(self, task: Task, answer: Measured) -> str:
        """A line of text after a task."""
        self._made += self._left.pop(task.name)
        number = self._total - len(self._left)
        text = f"{number}/{self._total} {task.name}{_outcome(answer)}"
        if not self._left or not self._made:
            return text
        seconds = (time.monotonic() - self._began) / self._made
        left = datetime.timedelta(seconds=round(seconds * sum(self._left.values())))
        return f"{text}; about {left} left"


def _outcome(answer: Measured) -> str:
    values = answer.get("log_normalizer")
    if "seconds" in answer:
        return f": {answer['seconds']:.3g} s a step"
    if values is None:
        return ""
    last = float(values[-1]) if getattr(values, "ndim", 0) else float(values)
    return f": log Z {last:.3f}"


# Side by side.


def _is_movable(task: Task) -> bool:
    """Whether it may be measured on one device beside others.

    `ax.sample` spreads replicates over all devices, and its processor time is noted,
    which is that of the process.
    """
    return task.stage != "timing" and task.line.method != "sample"


def _on_devices(
    benches: list[Bench],
    devices: Sequence[jax.Device],
    note: Callable[[Task, Measured], None],
    stop_if_asked: Callable[[], None],
) -> None:
    tasks = [(bench,) for bench in benches]
    # Every loop within notices a signal by itself, and saves what it has.
    with contextlib.closing(
        whole_tasks(measure, tasks, devices, stop_if_asked)
    ) as found:
        for index, answer in found:
            note(benches[index].task, answer)


def _side_by_side(
    tasks: list[Task],
    plan: Plan,
    store: Checkpoint,
    workers: Workers,
    note: Callable[[Task, Measured], None],
    stop_if_asked: Callable[[], None],
) -> None:
    folder = str(store.folder.resolve())
    facts = (plan.seed, plan.scale, folder, store.every_seconds)
    cache = getattr(jax.config, _CACHE)
    calls = [(task, facts, cache) for task in tasks]
    for index, _ in workers.each(_measure_there, calls, stop_if_asked):
        answer = finished(_bench(tasks[index], plan, store, Watch()))
        if answer is None:
            raise InvalidInputError(
                f"a worker measured {tasks[index].name}, but {folder} has nothing of "
                "it: workers need the same folders, at the same place."
            )
        note(tasks[index], answer)


def _measure_there(task: Task, facts: tuple[Any, ...], cache: str | None) -> None:
    """What a worker is asked; it leaves what it finds in the folder."""
    seed, scale, folder, seconds = facts
    store = Checkpoint(Path(folder), every_seconds=seconds)
    store.folder.mkdir(parents=True, exist_ok=True)
    # Of a worker that was given up but still works.
    lock = filelock.FileLock(store.folder / f"{task.name}.lock")
    # The same compiler as in the process that started it: the same bits.
    with (
        lock,
        deferred_signals() as signals,
        reuse_compiled_programs(cache),
        _compiled_in_haste(scale == "smoke"),
    ):
        watch = Watch(callback=lambda snapshot: signals.stop_if_asked("saved"))
        try:
            measure(Bench(task, seed, store, watch, scale))
        except KeyboardInterrupt as error:  # a signal: its state is saved
            raise concurrent.futures.CancelledError(str(error)) from None
        except (AnnealaxError, OSError) as error:
            raise InvalidInputError(f"{task.name}: {error}") from error
