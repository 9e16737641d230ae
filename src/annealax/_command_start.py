"""A signal while the command is still being imported ends it with one line.

Importing JAX and all that is built on it takes seconds. A library must not touch
signals, so this only acts in a process that was started as the command `annealax`, and
on signals that nobody else cares for. `annealax.cli.main` takes over once a command has
imported what it needs.
"""

import os
import signal
import sys

_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


def _is_command() -> bool:
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    as_module = program == "-m" and "annealax" in sys.orig_argv
    return as_module or program.removesuffix(".exe") == "annealax"


def _is_worker() -> bool:
    """Whether `multiprocessing` started this process, which has its parent's name."""
    return "--multiprocessing-fork" in sys.orig_argv


def words(signum: int) -> str:
    """What is said when a signal ends the command and there is nothing to resume."""
    return f"Stopped by {signal.Signals(signum).name}."


def stop(signum: int, _: object) -> None:
    """End at once: nothing is being written."""
    line = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    os.write(2, f"{line}{words(signum)}\n".encode())  # a print may be under way
    os._exit(128 + signum)


def stop_silently(signum: int, _: object) -> None:
    """End a worker: its parent speaks."""
    os._exit(128 + signum)


def take_over() -> None:
    """Let `stop` handle what nobody else does."""
    for signum, default in _DEFAULTS.items():
        if signal.getsignal(signum) is default:
            signal.signal(signum, stop)


if _is_command():
    if not _is_worker():
        take_over()
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop_silently)
