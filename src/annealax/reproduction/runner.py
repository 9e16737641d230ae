"""All pieces of some figures: one after the other, or side by side in processes.

A process that works at the side is started afresh (spawn), takes the next piece from a
queue, and ends by itself when the process that started it is gone, however it went: two
that write the same checkpoints would spoil them.
"""

import contextlib
import dataclasses
import datetime
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from annealax._errors import AnnealaxError, InvalidInputError
from annealax._work.checkpoint import Checkpoint
from annealax._work.signals import deferred_signals
from annealax.experiments.comparison import reuse_compiled_programs
from annealax.reproduction.figures import Scale, Task, all_tasks
from annealax.reproduction.measure import Bench, Measured, Watch, finished, measure

_POLL_SECONDS = 0.5
_LAST_SECONDS = 120.0
"""Time to finish a call of the device and to save."""
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
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


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
    workers: int = 1,
    say: Callable[[str], None] = lambda text: None,
    stop_if_asked: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> dict[str, Measured]:
    """Measure all that is not there yet.

    Args:
        plan: What is to be reproduced.
        store: Where every piece keeps its state; the same plan goes on from there.
        workers: Processes side by side; times are always measured by one alone.
        say: Called with a line of text after each piece.
        stop_if_asked: Raises if the work shall stop; called often.
        progress: Show a live line of the piece under way (with one worker).
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
            count = 1 if stage == "timing" else min(workers, len(left))
            if count > 1:
                _side_by_side(left, plan, store, count, note, stop_if_asked)
                continue
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


def _side_by_side(
    tasks: list[Task],
    plan: Plan,
    store: Checkpoint,
    count: int,
    note: Callable[[Task, Measured], None],
    stop_if_asked: Callable[[], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    todo, answers = context.Queue(), context.Queue()
    for task in tasks:
        todo.put(task)
    for _ in range(count):
        todo.put(None)
    facts = (plan.seed, plan.scale, str(store.folder), store.every_seconds)
    cache = getattr(jax.config, _CACHE)
    processes = [
        context.Process(target=_work, args=(todo, answers, facts, cache), daemon=True)
        for _ in range(count)
    ]
    for process in processes:
        process.start()
    by_name = {task.name: task for task in tasks}
    try:
        while by_name:
            stop_if_asked()
            working = any(process.is_alive() for process in processes)
            try:
                name, error = answers.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if not working or any(process.exitcode for process in processes):
                    stop_if_asked()  # Ctrl-C reaches them, too, while they start
                    raise InvalidInputError(
                        "a process at the side was ended, perhaps for want of memory; "
                        "what is finished is kept: go on with fewer --workers."
                    ) from None
                continue
            if error is not None:
                raise InvalidInputError(f"{name}: {error}")
            task = by_name.pop(name)
            answer = finished(_bench(task, plan, store, Watch()))
            assert answer is not None
            note(task, answer)
    finally:
        for process in processes:
            process.terminate()  # a signal that they save their state on
        for process in processes:
            process.join(_LAST_SECONDS)
            process.kill()  # it may wait for one that died


def _work(todo: Any, answers: Any, facts: tuple[Any, ...], cache: str | None) -> None:
    """What a process at the side does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: its parent ends it in order
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    seed, scale, folder, seconds = facts
    store = Checkpoint(Path(folder), every_seconds=seconds)
    if cache:
        jax.config.update(_CACHE, cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    # The same compiler as in the process that started it: the same bits.
    with deferred_signals() as signals, _compiled_in_haste(scale == "smoke"):
        watch = Watch(callback=lambda snapshot: signals.stop_if_asked("saved"))
        while signals.pending is None and (task := todo.get()) is not None:
            try:
                measure(Bench(task, seed, store, watch, scale))
            except KeyboardInterrupt:
                return
            except (AnnealaxError, OSError) as error:
                answers.put((task.name, str(error)))
                return
            answers.put((task.name, None))


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
