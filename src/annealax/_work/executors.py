"""Tasks on workers: anything with the interface of `concurrent.futures`.

A process pool, `dask.distributed.Client`, `mpi4py.futures.MPIPoolExecutor`: they have
`submit`, which returns a future. Scheduling is the engine's job. Ours is what a task
is, that one whose worker died is done again, and that nothing is done twice otherwise.

Functions travel by cloudpickle, so that lambdas and functions of a script or a notebook
work. These are messages between own processes, never files.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import cloudpickle
import jax

from annealax._checks import whole_number
from annealax._errors import InvalidInputError, MissingExtraError, SamplingError

_TRIES = 5
"""Losses of workers in a row, without a task that is done between, before giving up."""

_PATIENCE = 1.0
"""Seconds after which futures are looked at even if none says that it is done."""

_PROCESSES, _DASK, _ADDRESS = "processes:", "dask", "dask://"
"""What `--executor` can be."""


class Workers:
    """Where tasks are done.

    Args:
        executor: A number of processes; "processes:4", "dask" (workers on this
            machine), "dask://HOST:PORT" (a scheduler); or an object with `submit`.

    Raises:
        InvalidInputError: If it is nothing of the kind.
        MissingExtraError: If Dask is asked for and not installed.
    """

    def __init__(self, executor: Any):
        self._make, self._current = _maker(executor)
        self._is_ours = self._is_busy = False

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def count(self) -> int:
        """How many tasks are done at a time, as far as the engine says."""
        engine = self._engine()
        for name in ("_max_workers", "num_workers"):
            if isinstance(number := getattr(engine, name, None), int) and number > 0:
                return number
        if callable(threads := getattr(engine, "nthreads", None)):  # of Dask
            return max(1, sum(threads().values()))
        return num_processors()

    def close(self) -> None:
        """End the processes that were started here; those of others go on."""
        if not self._is_ours:
            return
        engine, self._current, self._is_ours = self._current, None, False
        if isinstance(engine, ProcessPoolExecutor):
            if self._is_busy:  # with what nobody waits for any more
                for process in list((engine._processes or {}).values()):
                    process.terminate()
            engine.shutdown(wait=False, cancel_futures=True)
        else:
            engine.close()

    def each(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[Any, ...]],
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[int, Any]]:
        """Do tasks; yield the index of each and its outcome, as they get done.

        Args:
            function: What to do.
            tasks: Its arguments, task by task.
            waiting: Called every second or so; may raise to give up.

        Raises:
            SamplingError: If workers die again and again and nothing gets done.
        """
        news = threading.Event()
        left = {
            index: cloudpickle.dumps(_Task(function, arguments))
            for index, arguments in enumerate(tasks)
        }
        losses = 0
        pending: dict[int, Any] = {}
        try:
            while left:
                try:
                    for index in left.keys() - pending.keys():
                        future = self._submit(left[index])
                        future.add_done_callback(lambda _: news.set())
                        pending[index] = future
                except Exception as error:
                    if not _is_loss(error):
                        raise
                waiting()
                news.wait(_PATIENCE)
                news.clear()
                lost = None if pending else "the pool takes no tasks"
                for index in [each for each in pending if pending[each].done()]:
                    future = pending.pop(index)
                    try:
                        outcome = future.result()
                    except Exception as error:
                        if not _is_loss(error):
                            raise
                        lost = f"{type(error).__name__}: {error}"
                        continue
                    del left[index]
                    losses = 0
                    yield index, outcome
                if lost:
                    losses += 1
                    if losses >= _TRIES:
                        raise SamplingError(
                            f"workers died {_TRIES} times in a row while one of "
                            f"{len(left)} tasks was done ({lost}): look for a crash "
                            "or too little memory in what they compute"
                        )
                    pending = self._renewed(pending)
        finally:
            # What runs cannot be cancelled.
            stopped = [future.cancel() for future in pending.values()]
            self._is_busy = not all(stopped)

    def _engine(self) -> Any:
        if self._current is None:
            self._current, self._is_ours = self._make(), True
        return self._current

    def _submit(self, message: bytes) -> Any:
        engine = self._engine()
        if not isinstance(engine, ProcessPoolExecutor):
            return engine.submit(_read, message, list(sys.path))
        with _without_main():  # this is where it makes processes
            return engine.submit(_read, message, list(sys.path))

    def _renewed(self, pending: dict[int, Any]) -> dict[int, Any]:
        """A pool that lost a process is broken for good; engines mend themselves."""
        if not isinstance(self._current, ProcessPoolExecutor):
            return pending
        self.close()
        self._current = None
        return {}


def _read(message: bytes, folders: list[str]) -> Any:
    """What a worker does: read a task, which makes the call.

    What can be imported where it comes from can be here, if the folders are there.
    """
    sys.path += [f for f in folders if f not in sys.path and os.path.isdir(f)]
    return cloudpickle.loads(message)


def num_processors() -> int:
    """Those that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def as_workers(executor: Any) -> Workers | None:
    """Workers; None for this process alone."""
    if executor is None or isinstance(executor, Workers):
        return executor
    return Workers(executor)


@contextlib.contextmanager
def named_workers(name: str | None) -> Iterator[Workers | None]:
    """What `--executor` says, begun at once, so that what is wrong shows early."""
    if name is None:
        yield None
        return
    with Workers(name) as workers:
        _ = workers.count
        yield workers


class _Task:
    """A call, as a message that makes the call when it is read."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]):
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


def check_sendable(function: Callable[..., Any]) -> None:
    """Raise unless a function can be sent to other processes.

    Raises:
        InvalidInputError: If it cannot.
    """
    as_message(function, repr(function))


def as_message(thing: Any, name: str) -> bytes:
    """What is sent to other processes.

    Raises:
        InvalidInputError: If it cannot be sent.
    """
    try:
        return cloudpickle.dumps(thing)
    except Exception as error:
        raise InvalidInputError(
            f"{name} cannot be sent to other processes: {type(error).__name__}: "
            f"{error}. It may hold an open file, a lock or a connection: make these "
            "within the function, or leave out executor="
        ) from error


_SETTINGS = (
    "enable_x64",
    "threefry_partitionable",
    "default_matmul_precision",
    "default_prng_impl",
)
"""What numbers depend on."""


def settings_here() -> dict[str, Any]:
    """What JAX is set to here, as far as numbers depend on it."""
    return {name: getattr(jax.config, f"jax_{name}") for name in _SETTINGS}


@contextlib.contextmanager
def settings_as(settings: dict[str, Any]) -> Iterator[None]:
    """For a moment JAX is set as it is elsewhere."""
    with contextlib.ExitStack() as stack:
        for name, value in settings.items():
            stack.enter_context(getattr(jax, name)(value))
        yield


_LOSSES = {"KilledWorker", "FutureCancelledError", "CommClosedError"}
"""What Dask says when workers are lost, apart from what Python has names for."""


def _is_loss(error: Exception) -> bool:
    """Whether an error is the engine's, and not that of what it was asked to do."""
    known = concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError
    return isinstance(error, known) or type(error).__name__ in _LOSSES


def _maker(executor: Any) -> tuple[Callable[[], Any], Any]:
    """How to make an engine, and one that is there already."""
    if isinstance(executor, str):
        if executor.startswith(_ADDRESS):
            return functools.partial(_dask, executor.removeprefix(_ADDRESS)), None
        if executor == _DASK:
            return _dask, None
        count = executor.removeprefix(_PROCESSES)
        if executor.startswith(_PROCESSES) and count.isdigit():
            executor = int(count)
    if isinstance(executor, int):
        return functools.partial(_pool, whole_number("executor", executor)), None
    if isinstance(executor, ProcessPoolExecutor):
        pool: Any = executor
        make = functools.partial(
            _pool, pool._max_workers, pool._initializer, pool._initargs
        )
        # One that forks would copy locks of JAX without the threads that hold them.
        forks = pool._mp_context.get_start_method() == "fork"
        return make, None if forks else executor
    if callable(getattr(executor, "submit", None)):
        return lambda: executor, executor
    raise InvalidInputError(
        'executor must be a number of processes, "processes:4", "dask", '
        '"dask://HOST:PORT", or have submit(), as concurrent.futures.'
        f"ProcessPoolExecutor and dask.distributed.Client do; got {executor!r}"
    )


def _pool(
    count: int, initializer: Callable[..., Any] | None = None, arguments: tuple = ()
) -> ProcessPoolExecutor:
    # Made anew, not forked: a forked JAX hangs.
    context = multiprocessing.get_context("spawn")
    facts = (os.getpid(), initializer, arguments)
    return ProcessPoolExecutor(count, context, _begin, facts)


def _begin(
    parent: int, initializer: Callable[..., Any] | None, arguments: tuple
) -> None:
    """What a process of a pool does first.

    It ends when the one that started it is gone, however it went: nobody else would
    end it, and what it writes would meet that of its successors.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if initializer is not None:
        initializer(*arguments)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PATIENCE)
    os._exit(1)


def _dask(address: str | None = None) -> Any:
    try:
        from dask.distributed import Client, LocalCluster  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "executors of Dask need it: pip install 'annealax[dask]'"
        ) from error
    if address is None:
        return _OwnDask(Client, LocalCluster)
    try:
        return Client(f"tcp://{address}", timeout=30)
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"no scheduler of Dask answers at {address} ({error}): start one with "
            "`dask scheduler`, or give the address that it prints"
        ) from error


class _OwnDask:
    """Workers of Dask on this machine, one thread each, that end with us."""

    def __init__(self, client: Any, cluster: Any):
        self._cluster = cluster(threads_per_worker=1, dashboard_address=None)
        self._client = client(self._cluster)
        self.submit, self.nthreads = self._client.submit, self._client.nthreads

    def close(self) -> None:
        """End them."""
        self._client.close()
        self._cluster.close()


_MAIN_LOCK = threading.Lock()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """For a moment, the main module looks like one that has no file.

    Processes that are made in this moment do not run the user's script again, which
    would start itself anew without end if it has no `if __name__ == "__main__"`. What
    is sent by cloudpickle does not need it.
    """
    main = sys.modules["__main__"]
    with _MAIN_LOCK:
        saved: dict[str, Any] = {
            name: main.__dict__.pop(name)
            for name in ("__file__", "__spec__")
            if name in main.__dict__
        }
        main.__spec__ = None
        try:
            yield
        finally:
            del main.__spec__
            main.__dict__.update(saved)
