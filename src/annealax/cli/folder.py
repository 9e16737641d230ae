"""Run folders: what a command leaves, as JSON, npz and pictures; nothing is pickled.

- `settings.json`: what was asked for, written before anything else;
- `environment.json`: versions, devices and commit;
- `status.json`: how far each command has come in this folder;
- `metrics.jsonl`: a line for each training step and each pass, while they are made;
- `checkpoints/`: what `annealax resume` goes on from;
- `result.npz`: particles, log Z, diagnostics, training history (the same for the same
  seed, to the bit);
- `table.json`: the comparison, with times;
- `flows.npz`: the trained flows, as `annealax.save` writes them;
- pictures and a page.

Files are written whole or not at all, and a folder that holds a run is left alone. A
command is alone in a folder while it works there, its status is noted, and a signal
ends it once its state is saved.
"""

import contextlib
import dataclasses
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import filelock
import numpy as np

from annealax._errors import AnnealaxError, InvalidInputError
from annealax._work.checkpoint import Checkpoint, CheckpointWarning
from annealax._work.drive import Callback
from annealax._work.executors import Workers
from annealax._work.serialise import FileError
from annealax._work.signals import Interrupted, Signals, deferred_signals
from annealax._work.together import is_first
from annealax.cli.output import Output
from annealax.experiments.files import disk_errors, writing
from annealax.experiments.jobs import SETTINGS
from annealax.loggers import JSONLines

STATUS = "status.json"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"
_LOCK = ".lock"

Status = Literal["running", "interrupted", "finished"]


class RunFolder:
    """A folder for one run.

    Args:
        path: Where; if there is a run already, the next free of path-2, path-3, ...
        existing: Add to the run that is there instead.
    """

    path: Path

    def __init__(self, path: Path, *, existing: bool = False):
        if existing:
            self.path = path
            return
        path = path if path.name else path.resolve()  # "." has no name to extend
        candidate, index = path, 1
        try:
            while (candidate / SETTINGS).exists():
                index += 1
                candidate = path.with_name(f"{path.name}-{index}")
            candidate.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"cannot make the run folder {candidate}: {error.strerror}; choose "
                "another with --out."
            ) from error
        self.path = candidate

    def write_json(self, name: str, content: Mapping[str, Any]) -> Path:
        """Write a JSON file."""
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        with writing(self.path / name) as file:
            file.write(text.encode())
        return self.path / name

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> Path:
        """Write an npz file."""
        numbers: dict[str, Any] = {k: np.asarray(v) for k, v in arrays.items()}
        with writing(self.path / name) as file:
            np.savez_compressed(file, **numbers)
        return self.path / name

    def status(self) -> dict[str, Status]:
        """How far each command has come."""
        file = self.path / STATUS
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            return {str(command): status for command, status in content.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise FileError(
                f"{file} is damaged: {error!r}; remove it and try again."
            ) from error

    def set_status(self, command: str, status: Status) -> None:
        """Note how far a command has come."""
        self.write_json(STATUS, self.status() | {command: status})


@dataclasses.dataclass(frozen=True)
class Workplace:
    """Where and how a command works.

    Attributes:
        folder: Its folder.
        output: How it speaks.
        signals: Whether it is asked to stop.
        fresh: Whether it starts, rather than goes on.
        workers: Where independent parts are made; None for this process.
    """

    folder: RunFolder
    output: Output
    signals: Signals
    fresh: bool
    workers: Workers | None = None

    @property
    def path(self) -> Path:
        """The folder's path."""
        return self.folder.path

    def checkpoint(self, seconds: float = 60.0) -> Checkpoint:
        """Where its state is saved."""
        return Checkpoint(self.path / CHECKPOINTS, every_seconds=seconds)

    def callbacks(self, stage: str) -> list[Callback]:
        """What is called while a stage goes on: metrics, and JSON if asked for."""
        log = JSONLines(self.path / METRICS, stage=stage)
        return [log, *self.output.callbacks(stage)]


@dataclasses.dataclass(frozen=True)
class Done:
    """What a command has done.

    Attributes:
        files: Names of the files that it left.
        content: The result, as JSON holds it.
        reported: Whether its pictures and pages are written, too.
    """

    files: list[str]
    content: Mapping[str, Any]
    reported: bool = False


@contextlib.contextmanager
def working(
    output: Output, folder: RunFolder, command: str, *, fresh: bool
) -> Iterator[Workplace]:
    """The time that a command works in a folder.

    Args:
        output: How to speak.
        folder: The folder.
        command: Name of the command, for its status.
        fresh: Whether it starts, rather than goes on.
    """
    with (
        deferred_signals() as signals,
        _told_by(output),
        alone_in(folder.path),
        disk_errors(folder.path),
    ):
        folder.set_status(command, "running")
        try:
            yield Workplace(folder, output, signals, fresh)
        except Interrupted as error:
            with contextlib.suppress(AnnealaxError):  # a full disk must not hide it
                folder.set_status(command, "interrupted")
            text = f"Stopped. To go on: annealax resume {folder.path}"
            if is_first():
                print(text, file=sys.stderr, flush=True)
            raise SystemExit(error.exit_code) from None
        folder.set_status(command, "finished")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; a lock ends with the process that has it.

    Raises:
        InvalidInputError: If another process works there.
    """
    file = folder / _LOCK
    lock = filelock.FileLock(file)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        process = ""
        with contextlib.suppress(OSError, ValueError):
            process = file.read_text().strip()
        raise InvalidInputError(
            f"process {process or 'unknown'} is at work in {folder}; wait for it to "
            "end, or choose another folder with --out."
        ) from None
    except OSError as error:
        raise InvalidInputError(
            f"cannot write in {folder}: {error.strerror}; make it writable, or choose "
            "another folder with --out."
        ) from error
    try:
        with contextlib.suppress(OSError):  # a full disk is no reason to stop here
            file.write_text(f"{os.getpid()}\n")
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _told_by(output: Output) -> Iterator[None]:
    """Warnings about checkpoints and logs, in the words of the command."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = lambda message, *_, **__: output.warn(str(message))
        yield
