"""A command at work in a run folder: alone there, stoppable, its progress noted."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from annealax._errors import InvalidInputError
from annealax._signals import Signals
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
    try:
        file = (folder / _LOCK).open("a+")
    except OSError as error:
        raise InvalidInputError(
            f"cannot write in {folder}: {error.strerror}; make it writable, or choose "
            "another folder with --out."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                file.seek(0)
                number = file.read().strip()
                raise InvalidInputError(
                    f"process {number or 'unknown'} is at work in {folder}; wait for "
                    "it to end, or choose another folder with --out."
                ) from None
            # A file system without locks: go on without.
        with contextlib.suppress(OSError):  # a full disk is no reason to stop here
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
        yield
