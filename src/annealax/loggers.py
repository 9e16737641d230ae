"""Loggers: callbacks for `fit` and `pimh` that keep the numbers of every step.

A logger is any function of a snapshot: it reads `snapshot.step` and
`snapshot.metrics()`. Give one or several as `callback=`:

    ax.fit(..., callback=[ax.loggers.CSV("run.csv"), ax.loggers.TensorBoard("logs")])

Text files have one line for each step. Work that resumes from a checkpoint makes some
steps a second time: their first lines are dropped, and so is a last line that was cut
short.
"""

import csv
import io
import json
import math
import os
import time
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annealax._errors import MissingExtraError
from annealax._work.checkpoint import CheckpointWarning
from annealax._work.drive import Progress
from annealax._work.serialise import FileError, replacing

_VERSION = "brain.Event:2"  # of the format of event files


class _Lines(ABC):
    """A file that lines are added to.

    Args:
        path: The file; lines of earlier work in it are replaced.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self._ready = self._warned = False

    def __call__(self, snapshot: Progress) -> None:
        """Add a line for each step of a device call."""
        rows = [
            {"step": step, "seconds": round(snapshot.seconds, 3)} | numbers
            for step, numbers in _steps(snapshot)
        ]
        first = snapshot.step - len(rows)
        try:
            if not self._ready:
                self._begin(first, list(rows[0]) if rows else [])
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.writelines(map(self._line, rows))
            self._ready = True
        except OSError as error:  # a log must not end the work
            self._ready = False
            if not self._warned:
                warnings.warn(
                    f"cannot write to {self.path}: {error.strerror}; lines are lost "
                    "until it works again",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self._warned = True

    def _begin(self, first: int, names: list[str]) -> None:
        text = "".join(self._kept(first, names))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as file:
            file.write(text.encode())

    def _old_lines(self) -> list[str]:
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        except UnicodeDecodeError as error:
            raise self._foreign() from error
        return [line for line in lines if line.endswith("\n")]

    def _foreign(self) -> FileError:
        return FileError(
            f"{self.path} was not written by this logger; choose another file"
        )

    @abstractmethod
    def _kept(self, first: int, names: list[str]) -> Iterator[str]:
        """What the file holds before the next line is added."""

    @abstractmethod
    def _line(self, row: dict[str, Any]) -> str:
        """A step as a line."""


class CSV(_Lines):
    """A CSV file: step, seconds, and a column for each number.

    Args:
        path: The file; lines of earlier work in it are replaced.
    """

    def _kept(self, first: int, names: list[str]) -> Iterator[str]:
        header = self._line(dict(zip(names, names, strict=True)))
        lines = self._old_lines()
        if lines and lines[0] != header:
            raise self._foreign()
        yield header
        for line in lines[1:]:
            step = line.partition(",")[0]
            if step.isdigit() and int(step) <= first:
                yield line

    def _line(self, row: dict[str, Any]) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row.values())
        return text.getvalue()


class JSONLines(_Lines):
    """A file with one JSON object on each line; NaN and infinity are null.

    Args:
        path: The file; lines of the same stage that are there are replaced.
        stage: A name for the work; several stages can share a file.
    """

    def __init__(self, path: str | os.PathLike, *, stage: str = "training"):
        super().__init__(path)
        self.stage = stage

    def _kept(self, first: int, names: list[str]) -> Iterator[str]:
        del names
        for line in self._old_lines():
            try:
                row = json.loads(line)
                stage, step = row["stage"], int(row["step"])
            except (ValueError, TypeError, KeyError) as error:
                raise self._foreign() from error
            if stage != self.stage or step <= first:
                yield line

    def _line(self, row: dict[str, Any]) -> str:
        content = {"stage": self.stage} | {k: json_value(v) for k, v in row.items()}
        return json.dumps(content, allow_nan=False) + "\n"


def json_value(value: Any) -> Any:
    """The value, or None where JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TensorBoard:
    """Numbers of every step for `tensorboard --logdir FOLDER`.

    Needs the extra `annealax[tensorboard]`.

    Args:
        folder: Folder for the event file, one for each run.
        prefix: Put before the name of every number, such as "training/".

    Raises:
        MissingExtraError: If tensorboardX is not installed.
    """

    def __init__(self, folder: str | os.PathLike, *, prefix: str = ""):
        self.folder = Path(folder)
        self.prefix = prefix
        self._writer: Any = None
        try:
            import tensorboardX  # noqa: F401, PLC0415
        except ImportError as error:
            raise MissingExtraError(
                f"logging for TensorBoard needs tensorboardX, which cannot be imported "
                f"({error}): pip install 'annealax[tensorboard]'"
            ) from error

    def __call__(self, snapshot: Progress) -> None:
        """Add the steps of a device call."""
        from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415
        from tensorboardX.proto.summary_pb2 import Summary  # noqa: PLC0415

        now = time.time()
        try:
            if self._writer is None:
                self._writer = self._open(Event(wall_time=now, file_version=_VERSION))
            for step, numbers in _steps(snapshot):
                values = [
                    Summary.Value(tag=f"{self.prefix}{name}", simple_value=value)
                    for name, value in numbers.items()
                ]
                event = Event(wall_time=now, step=step, summary=Summary(value=values))
                self._writer.write(event.SerializeToString())
            self._writer.flush()
        except OSError as error:  # a log must not end the work
            warnings.warn(
                f"cannot write to {self.folder}: {error.strerror}; some steps are lost",
                CheckpointWarning,
                stacklevel=2,
            )

    def _open(self, first: Any) -> Any:
        """A new file; tensorboardX's usual writer, a thread, hangs on a full disk."""
        from tensorboardX import RecordWriter  # noqa: PLC0415

        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{first.wall_time:.6f}.annealax"
        writer = RecordWriter(str(self.folder / name))
        weakref.finalize(self, writer.close)
        writer.write(first.SerializeToString())
        return writer


def _steps(snapshot: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and metrics of each step of a device call."""
    metrics = snapshot.metrics()
    count = len(next(iter(metrics.values())))
    for i in range(count):
        numbers = {name: values[i].item() for name, values in metrics.items()}
        yield snapshot.step - count + i + 1, numbers
