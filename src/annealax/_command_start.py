"""Ctrl-C while the command is still being imported ends it without a traceback.

Importing JAX and all that is built on it takes seconds. A library must not touch
signals, so this only acts in a process that was started as the command `annealax`;
`annealax.cli.main` takes over once a command has imported what it needs.
"""

import os
import signal
import sys


def _is_command() -> bool:
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    as_module = program == "-m" and "annealax" in sys.orig_argv
    return as_module or program.removesuffix(".exe") == "annealax"


def stop(signum: int, _: object) -> None:
    os._exit(128 + signum)  # nothing is being written yet


if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, stop)
