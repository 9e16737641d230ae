"""Independent work on the devices of this process, one task on each at a time.

Replicates, proposals and passes know nothing of each other, so each device makes some
of them by itself, without any exchange. The program is compiled for one device and
loaded onto the others as it stands. So all give the same bits, and a copy takes tens of
milliseconds where compiling takes seconds.

JAX has no public way to do this; what is used here is what its cache of compiled
programs on disk does. Where it does not work, one device does all the work.

Tasks that train, too, are no single program: they run as a whole in a thread for which
another device is the default one, and compile for it (`whole_tasks`).
"""

import contextlib
import dataclasses
import io
import queue
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import equinox as eqx
import jax
from jax._src.compiler import get_compile_options
from jax.experimental import serialize_executable

from annealax._layout import available_devices
from annealax._work.drive import Program, compile_ahead
from annealax._work.executors import num_processors, settings_as, settings_here
from annealax._work.together import together

_PATIENCE = 1.0
"""Seconds after which `waiting` is called even if no task is done."""


_MOST_VIRTUAL = 8
"""Devices that a processor may be split into and used as such, if it has fewer cores:
who imports PyMC's own use of JAX has a hundred."""


def devices_for_tasks() -> list[jax.Device]:
    """Those of this process, for work that knows nothing of each other."""
    if together():  # all processes do the same
        return []
    devices = available_devices()
    if len(devices) == 1:  # or the name of a kind of devices
        return []
    if devices[0].platform == "cpu":
        devices = devices[: max(num_processors(), _MOST_VIRTUAL)]
    return [each for each in devices if each.process_index == jax.process_index()]


def compile_copies(
    compile_here: Callable[[], Program],
    count: int,
    *,
    is_shared_out: bool = True,
) -> list[Program]:
    """Compile a program, and load it onto as many devices as there is work for.

    Args:
        compile_here: Compiles it, by `compile_ahead`.
        count: How many independent tasks there are.
        is_shared_out: Whether the program might spread its particles over devices. It
            does not where there are at least as many tasks as devices: these need no
            exchange.

    Returns:
        The program, once for each device.
    """
    devices = devices_for_tasks()
    is_enough = is_shared_out and 1 < len(devices) <= count
    one = jax.default_device(devices[0]) if is_enough else contextlib.nullcontext()
    with one:
        program = compile_here()
    programs = [program]
    if program.num_devices > 1 or len(devices) < 2 or not _is_movable(program.run):
        return programs
    # What was read from a cache on disk cannot be written again; but the cache has it
    # for each device, once it was compiled there.
    is_cached = jax.config.jax_compilation_cache_dir is not None  # type: ignore[attr-defined]
    for device in devices[1:count]:
        if is_cached:
            with jax.default_device(device):
                programs.append(compile_here())
        elif (copy := _copy(program.run, device)) is not None:
            programs.append(program._replace(run=copy))
    return programs


def num_devices_of(programs: Sequence[Program]) -> int:
    """Devices that copies of a program use together."""
    return sum(each.num_devices for each in programs)


def whole_tasks(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    devices: Sequence[jax.Device],
    waiting: Callable[[], None],
) -> Generator[tuple[int, Any], None, None]:
    """Do tasks that compile what they need, each on a device that is free.

    Args:
        function: What to do; it uses the default device only, and notices by itself
            where it shall stop.
        tasks: Its arguments, task by task.
        devices: The devices.
        waiting: Called every second or so; may raise to give up.
    """

    def there(device: jax.Device) -> Callable[..., Any]:
        def call(*task: Any) -> Any:
            with jax.default_device(device):
                return function(*task)

        return call

    return side_by_side([there(device) for device in devices], tasks, waiting)


def may_move(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether what computes a function may be done on another device."""
    constants = jax.make_jaxpr(function)(*arguments).consts
    if any(isinstance(each, jax.Array) and each.committed for each in constants):
        return False
    return _is_movable(compile_ahead(eqx.filter_jit(function), *arguments).run)


def side_by_side(
    calls: Sequence[Callable[..., Any]],
    tasks: Sequence[tuple[Any, ...]],
    waiting: Callable[[], None] = lambda: None,
) -> Generator[tuple[int, Any], None, None]:
    """Do tasks, each by a call that is free; yield the index of each and its outcome.

    After an error no other task begins, and those under way are still yielded.

    Args:
        calls: One for each device.
        tasks: Arguments, task by task.
        waiting: Called every second or so; may raise to give up.
    """
    if len(calls) == 1:
        for index, task in enumerate(tasks):
            yield index, calls[0](*task)
        return
    free: queue.SimpleQueue[Callable[..., Any]] = queue.SimpleQueue()
    for each in calls:
        free.put(each)
    settings = settings_here()

    def do(task: tuple[Any, ...]) -> Any:
        call = free.get()
        try:
            with settings_as(settings):
                return call(*task)
        finally:
            free.put(call)

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = {pool.submit(do, task): index for index, task in enumerate(tasks)}
        pending: set[Future[Any]] = set(futures)
        failed: Future[Any] | None = None
        try:
            while pending:
                waiting()
                done, pending = wait(pending, _PATIENCE, return_when=FIRST_COMPLETED)
                for future in done:
                    if future.exception() is None:
                        yield futures[future], future.result()
                        continue
                    failed = failed or future
                    pending = {each for each in pending if not each.cancel()}
            if failed is not None:
                failed.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _is_movable(compiled: Any) -> bool:
    """Whether a program may run on another device.

    Not if it calls Python, nor if somebody has put its arrays where they are.
    """
    try:
        parts = compiled.compiled._executable._unloaded_executable
        calls = (parts.host_callbacks, parts.keepalive, parts.ordered_effects)
    except AttributeError:
        return False
    return not any(calls) and not parts.committed


def _copy(compiled: Any, device: jax.Device) -> Any:
    """The same program on another device; None if that cannot be."""
    try:
        content, in_tree, out_tree = serialize_executable.serialize(compiled.compiled)
        unloaded, information, no_kwargs = _Reader(content, device).load()
        loaded = jax.stages.Compiled(
            unloaded.load(),
            [],
            in_tree.unflatten(information),
            out_tree,
            no_kwargs=no_kwargs,
        )
    except (AttributeError, TypeError, ValueError, KeyError, RuntimeError):
        # NotImplementedError and JAX's own errors are RuntimeErrors.
        return None
    return dataclasses.replace(compiled, compiled=loaded)


class _Reader(serialize_executable._JaxPjrtUnpickler):
    """Reads a program that `serialize` wrote, a moment ago, for another device."""

    def __init__(self, content: bytes, device: jax.Device):
        super().__init__(io.BytesIO(content), device.client, [device])
        self.devices_by_id = {each.id: device for each in device.client.devices()}
        self._device = device

    def persistent_load(self, pid: Any) -> Any:
        """Devices are the other one, everywhere."""
        if pid[0] != "exec":
            return super().persistent_load(pid)
        options = get_compile_options(1, 1, [[self._device.id]])
        return self.backend.deserialize_executable(
            pid[1],
            executable_devices=self.execution_devices,
            compile_options=options,
        )
