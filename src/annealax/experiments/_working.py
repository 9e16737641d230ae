"""A command at work in a run folder: alone there, stoppable, its progress noted."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from annealax._errors import InvalidInputError
from annealax._work.signals import Signals
from annealax.experiments._folder import RunFolder
from annealax.experiments._output import Output, stoppable

try:
    import fcntl
except ImportError:  # not on Windows, where nothing keeps two processes apart
    fcntl = None  # type: ignore[assignment]

_LOCK = ".lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)


@contextlib.contextmanager
def working(output: Output, folder: RunFolder, command: str) -> Iterator[Signals]:
    """The time that a command works in a folder.

    Nobody else works there meanwhile; `status.json` says how far the command came; and
    a signal ends it once its state is saved.

    Args:
        output: How to speak.
        folder: The folder.
        command: Name of the command, for its status.
    """
    with alone_in(folder.path):
        folder.set_status(command, "running")

        def interrupted() -> None:
            folder.set_status(command, "interrupted")

        with stoppable(output, folder.path, interrupted) as signals:
            yield signals
        folder.set_status(command, "finished")


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; a lock ends with the process that has it.

    Raises:
        InvalidInputError: If another process works there.
    """
    if fcntl is None:
        yield
        return
    with _open(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                raise _taken(folder, file.read()) from None
            # A file system without locks: go on without.
        if not _is_there(folder, file):  # whoever had it has just gone, and the file
            raise _taken(folder, "")
        with contextlib.suppress(OSError):  # a full disk is no reason to stop here
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        try:
            yield
        finally:
            (folder / _LOCK).unlink(missing_ok=True)


def _open(folder: Path) -> TextIO:
    try:
        file = (folder / _LOCK).open("a+")
    except OSError as error:
        raise InvalidInputError(
            f"cannot write in {folder}: {error.strerror}; make it writable, or choose "
            "another folder with --out."
        ) from error
    file.seek(0)
    return file


def _is_there(folder: Path, file: TextIO) -> bool:
    """Whether the file is the one that others would find."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (folder / _LOCK).stat())
    except FileNotFoundError:
        return False


def _taken(folder: Path, number: str) -> InvalidInputError:
    return InvalidInputError(
        f"process {number.strip() or 'unknown'} is at work in {folder}; wait for it to "
        "end, or choose another folder with --out."
    )
