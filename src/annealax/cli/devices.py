"""`--devices` and `--distributed`: where the particles of a command are.

A process that is lost ends the run: the others cannot go on without its particles. Most
of them notice at the next exchange and say so; the runtime ends the rest without a word
(`jax.distributed`), so a helper that outlives every process has the last one.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax

from annealax._checks import whole_number
from annealax._errors import AnnealaxError, InvalidInputError
from annealax._layout import use_devices
from annealax._work import together
from annealax._work.executors import num_processors

HEARTBEAT_SECONDS = 10
"""After so long without a sign of life a process counts as lost."""

MEETING_SECONDS = 300
"""After so long processes that wait for others to start give up."""

_LOST = 75
"""Exit code: something outside failed, try again (`EX_TEMPFAIL`)."""


class Where(NamedTuple):
    """What was asked for.

    Attributes:
        devices: Devices in each process; None for all.
        distributed: Whether there are several processes.
        coordinator: HOST:PORT of the first; None to find out.
        processes: How many; None to find out.
        rank: Which of them this is; None to find out.
        is_split: Whether a processor is as many devices as it has cores, if nobody says
            how many: where all work is independent, that is faster than several threads
            for each part of it (`benchmarks/processes.py`).
    """

    devices: int | None = None
    distributed: bool = False
    coordinator: str | None = None
    processes: int | None = None
    rank: int | None = None
    is_split: bool = False

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """The time that these devices are used."""
        given = (self.coordinator, self.processes, self.rank)
        if self.devices is not None:
            whole_number("--devices", self.devices)
            _split_processor(self.devices)
        elif self.is_split and "device_count" not in os.environ.get("XLA_FLAGS", ""):
            _split_processor(num_processors())
        if not self.distributed:
            if any(each is not None for each in given):
                raise InvalidInputError(
                    "--coordinator, --processes and --rank go with --distributed."
                )
            if self.devices is not None:
                use_devices(_first(jax.local_devices(), self.devices))
            yield
            return
        if any(each is None for each in given) and any(
            each is not None for each in given
        ):
            raise InvalidInputError(
                "--coordinator, --processes and --rank go together: give all of them, "
                "or none where Slurm, Open MPI or Kubernetes says who is who."
            )
        with _last_words(
            f"Error: --distributed: not all processes have met within {MEETING_SECONDS}"
            " s, or one of them ended before that. Nothing was done yet: start all of "
            "them, with the same --coordinator and --processes."
        ):
            self._connect()
        line = (
            "Error: a process of this run is lost, and the others cannot go on without "
            "it. To go on from the last checkpoint, with any number of processes: "
            "annealax resume, with the folder that process 0 writes."
        )
        with _last_words(line) as say:
            try:
                yield
            except (AnnealaxError, SystemExit):
                raise
            except (ValueError, RuntimeError) as error:
                # The shapes that JAX gives to a connection that broke.
                if not _is_lost(error):
                    raise
                _fall_silent()  # the runtime may still complain, after the last line
                say()
                # Not by the usual way, on which JAX would wait for those that are lost.
                os._exit(_LOST)

    def _connect(self) -> None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        try:
            jax.distributed.initialize(
                coordinator_address=self.coordinator,
                num_processes=self.processes,
                process_id=self.rank,
                initialization_timeout=MEETING_SECONDS,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            )
        except (ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"--distributed: {str(error).splitlines()[0]}; start it under Slurm, "
                "Open MPI or Kubernetes, or give --coordinator HOST:PORT, --processes "
                "and --rank."
            ) from error
        together.work_together()
        devices = []
        for process in range(jax.process_count()):
            own = [each for each in jax.devices() if each.process_index == process]
            devices += own if self.devices is None else _first(own, self.devices)
        use_devices(devices)


def _first(devices: list[jax.Device], count: int) -> list[jax.Device]:
    if len(devices) < count:
        raise InvalidInputError(
            f"--devices {count}: there are only {len(devices)}: "
            f"{', '.join(map(str, devices))}."
        )
    return devices[:count]


def _split_processor(count: int) -> None:
    """Make so many devices of a processor; others are as many as they are."""
    with contextlib.suppress(RuntimeError):  # JAX is in use: it is as it is
        jax.config.update("jax_num_cpu_devices", count)


def _fall_silent() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def _is_lost(error: Exception) -> bool:
    words = ("gloo", "connection", "nccl", "unavailable", "heartbeat", "coordination")
    return any(word in str(error).lower() for word in words)


_HELPER = """
import signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
if sys.stdin.read() != "done":
    print(sys.argv[1], file=sys.stderr, flush=True)
"""


@contextlib.contextmanager
def _last_words(line: str) -> Iterator[Callable[[], None]]:
    """A line that is said if this process ends before it leaves the block."""
    helper = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _HELPER, line],
        stdin=subprocess.PIPE,
        text=True,
    )
    assert helper.stdin is not None

    def say() -> None:
        helper.stdin.close()  # type: ignore[union-attr]
        helper.wait()

    try:
        yield say
    finally:
        with contextlib.suppress(OSError, ValueError):
            helper.stdin.write("done")
            helper.stdin.close()
        helper.wait()
