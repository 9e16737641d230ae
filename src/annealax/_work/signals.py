"""SIGINT and SIGTERM while long work runs: finish the call, save, then stop.

A first signal is only noted; the loop asks for it after each device call, saves and
raises `Interrupted`. A second SIGINT ends the process at once, even in the middle of a
device call, where Python itself does not get to run a handler: a thread reads signals
from the descriptor that Python's own C handler writes them to.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from annealax import _command_start

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"  # a progress bar may have hidden it


class Interrupted(KeyboardInterrupt):
    """Work was stopped by a signal after its state was saved.

    Attributes:
        signum: The signal.
    """

    def __init__(self, message: str, signum: int):
        super().__init__(message)
        self.signum = signum

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that a signal ended."""
        return 128 + self.signum


class Signals:
    """The signal that came, if any.

    Attributes:
        pending: Its number, or None.
    """

    def __init__(self) -> None:
        self.pending: int | None = None

    def stop_if_asked(self, message: str) -> None:
        """Raise `Interrupted` if a signal came."""
        if self.pending is not None:
            name = signal.Signals(self.pending).name
            raise Interrupted(f"{name}: {message}", self.pending)

    def note(self, signum: int, frame: FrameType | None) -> None:
        """The handler; a second signal does not wait for the loop."""
        del frame
        if self.pending is not None:
            raise Interrupted("a second signal", signum)
        self.pending = signum


def interrupt(signum: int, frame: FrameType | None) -> None:
    """The handler of a command where there is no loop: what is open gets closed."""
    del frame
    raise Interrupted(_command_start.words(signum), signum)


_REPLACEABLE = (
    signal.SIG_DFL,
    signal.default_int_handler,
    _command_start.stop,
    _command_start.stop_silently,
    interrupt,
)
"""Python's own handlers, and those of the command."""

_active: list[Signals] = []


@contextlib.contextmanager
def deferred_signals() -> Iterator[Signals]:
    """Note SIGINT and SIGTERM instead of dying of them.

    Within another such block, or outside the main thread, nothing changes; a handler
    that somebody else installed is left alone.
    """
    if _active:
        yield _active[0]
        return
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {s: signal.getsignal(s) for s in _SIGNALS}
    ours = [s for s, handler in before.items() if handler in _REPLACEABLE]
    with _watching() if ours else contextlib.nullcontext():
        _active.append(signals)
        try:
            for signum in ours:
                signal.signal(signum, signals.note)
            yield signals
        finally:
            _active.clear()
            for signum in ours:
                signal.signal(signum, before[signum])


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    if previous != -1:  # an event loop needs it (a notebook): do without
        signal.set_wakeup_fd(previous)
    thread = threading.Thread(target=_watch, args=(reader,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        if previous == -1:
            signal.set_wakeup_fd(-1)
        writer.close()
        thread.join()
        reader.close()


def _watch(reader: socket.socket) -> None:
    count = 0
    while data := reader.recv(64):
        for signum in data:
            if signum not in _SIGNALS:
                continue
            count += 1
            if count == 1:
                _tell("finishing the current step and saving; Ctrl-C again: stop now")
            elif signum == signal.SIGINT:
                _tell("stopped at once")
                os._exit(128 + signum)


def _tell(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        prefix = f"\n{_SHOW_CURSOR}" if sys.stderr.isatty() else ""
        os.write(2, f"{prefix}{text}\n".encode())
